//! What there is: the names of consumers and of projections, each in a cell of its own, since a table is never scanned for them; and the
//! name of the cells themselves.

use bytes::Bytes;
use uuid::Uuid;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::state::{CellKey, CellKind, Cells};

pub(super) const CONSUMERS: &str = "consumers";
pub(super) const PROJECTIONS: &str = "projections";

/// These cells' own name, by which object storage tells them from others: made by chance at first use, the same ever after.
pub(super) async fn own(cells: &dyn Cells, env: &Env) -> Result<Uuid> {
    let key = CellKey::new(CellKind::Names, "own", 0)?;
    loop {
        if let Some(cell) = cells.load(&key).await? {
            return Uuid::try_parse_ascii(&cell.body).map_err(|_| Error::corrupt("cells", format!("{key}: not an id")));
        }
        // Somebody else may be first: then it is theirs for all.
        cells.save(&key, &env.new_id().to_string().into(), None).await?;
    }
}

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
