//! How far a consumer has come in an index; and whether a token, checkpoint or base belongs here at all. Pure.

#[cfg(feature = "streams")]
use serde::{Deserialize, Serialize};

use crate::error::{Refused, Result};
#[cfg(feature = "streams")]
use crate::position::Checkpoint;

/// How far a consumer has come in the index: the epoch and its entry that come next, and how many events of that one were handed over.
#[cfg(feature = "streams")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexReached {
    pub(crate) namespace: String,
    pub(crate) incarnation: u64,
    pub(crate) epoch: u64,
    pub(crate) entry: u64,
    /// The index of the last event handed over.
    pub(crate) within: Option<u32>,
}

/// Another name than the lanes' checkpoints have: neither is read as the other.
#[cfg(feature = "streams")]
const INDEX: &str = "ledger-index";

#[cfg(feature = "streams")]
impl IndexReached {
    pub(crate) fn seal(&self) -> Checkpoint {
        Checkpoint::seal(INDEX, self)
    }
    pub(crate) fn open(checkpoint: &Checkpoint, namespace: &str, incarnation: u64) -> Result<IndexReached> {
        let reached: IndexReached = checkpoint.open(INDEX)?;
        at_home("checkpoint", &reached.namespace, reached.incarnation, namespace, incarnation)?;
        Ok(reached)
    }
}

/// Refuses what is of another namespace, or from before a restore.
pub(crate) fn at_home(what: &'static str, namespace: &str, incarnation: u64, here: &str, now: u64) -> Result<()> {
    if namespace != here {
        return Err(Refused::Foreign { what, of: format!("namespace {namespace}"), here: format!("namespace {here}") }.into());
    }
    if incarnation != now {
        return Err(Refused::Foreign { what, of: format!("incarnation {incarnation}"), here: format!("incarnation {now}") }.into());
    }
    Ok(())
}
