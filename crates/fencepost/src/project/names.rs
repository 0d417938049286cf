//! What there is: the names of consumers and of projections, each in a cell of its own, since a table is never scanned for them.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::state::{CellKey, CellKind, Cells};

pub(super) const CONSUMERS: &str = "consumers";
pub(super) const PROJECTIONS: &str = "projections";

/// The names of a list, in the order in which they came.
pub(super) async fn all(cells: &dyn Cells, list: &str) -> Result<Vec<String>> {
    let name = |cell: crate::state::Cell| {
        String::from_utf8(cell.body.to_vec()).map_err(|_| Error::corrupt("cells", format!("Names/{list}/{}: not a text", cell.number)))
    };
    cells.list(CellKind::Names, list).await?.into_iter().map(name).collect()
}

/// Sees to it that a name is in the list.
pub(super) async fn register(cells: &dyn Cells, list: &str, name: &str) -> Result<()> {
    loop {
        let known = cells.list(CellKind::Names, list).await?;
        if known.iter().any(|cell| cell.body == name) {
            return Ok(());
        }
        let next = known.last().map_or(0, |cell| cell.number + 1);
        // Somebody else may be first with another name: then there is a next place.
        cells.save(&CellKey::new(CellKind::Names, list, next)?, &Bytes::copy_from_slice(name.as_bytes()), None).await?;
    }
}
