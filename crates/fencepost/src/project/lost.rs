//! A state whose object is missing or damaged: told loudly, and built anew by whoever runs the projection, where that was asked for. Until it has
//! caught up nobody is given what is there of it.

use bytes::Bytes;

use super::offload::Objects;
use super::projection::{Header, IfLost, Projection, Stored, Where, body, state_key};
use crate::error::{Error, Reason, Result};
use crate::state::Cells;

/// The state of a projection with its bytes, for whoever runs it. Where they are lost and that was asked for, its cell says from now on that it is
/// built anew: over what it said when the loss was found, and over nothing else.
pub(super) async fn load<S>(
    cells: &dyn Cells,
    objects: Option<&Objects>,
    projection: &Projection<S>,
) -> Result<Option<(Stored, Option<Bytes>)>> {
    let Projection { name, version, .. } = projection;
    loop {
        let Some(stored) = Stored::load(cells, name, *version).await? else { return Ok(None) };
        let mut whole = stored.clone().whole(cells, objects, (name, *version)).await;
        // Perhaps only the way from there was bad.
        if projection.if_lost == IfLost::Rebuild && matches!(whole, Err(Error::Corrupt(_))) {
            whole = stored.clone().whole(cells, objects, (name, *version)).await;
        }
        match whole {
            Err(Error::Corrupt(_found)) if projection.if_lost == IfLost::Rebuild => {
                let header = Header { generation: stored.header.generation + 1, state: Where::Reset, lost: true, ..Header::default() };
                if cells.save(&state_key(name, *version)?, &body(&header, &[]), Some(stored.revision)).await?.is_some() {
                    // Without these there are no objects that could be lost.
                    #[cfg(any(feature = "dynamo", feature = "offload"))]
                    let events = stored.header.events;
                    #[cfg(any(feature = "dynamo", feature = "offload"))]
                    tracing::error!(projection = %name, version, events, found = %_found.what, "a state was lost: it is built anew from the first event");
                    metrics::counter!("fencepost_projection_states_lost_total").increment(1);
                }
            }
            whole => return whole.map(Some),
        }
    }
}

impl Header {
    /// It was lost, and has not caught up since.
    pub(super) fn is_rebuilt(&self) -> bool {
        self.lost && !self.caught_up
    }

    /// Refuses to hand out what was lost and is not whole again.
    pub(super) fn readable(&self, name: &str, version: u32) -> Result<()> {
        if !self.is_rebuilt() {
            return Ok(());
        }
        let so_far = self.events;
        let what = format!("the state of {name} version {version} was lost and is built anew by whoever runs it: {so_far} events so far");
        Err(Error::unavailable(Reason::Late, what))
    }
}
