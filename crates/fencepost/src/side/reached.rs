//! How far a consumer has come in an index; and whether a token, checkpoint or base belongs here at all. Pure.

#[cfg(feature = "streams")]
use std::sync::Arc;

#[cfg(feature = "streams")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "streams")]
use uuid::Uuid;

use crate::error::{Refused, Result};
#[cfg(feature = "streams")]
use crate::position::Checkpoint;

/// How far a consumer has come in the index: the epoch and its entry that come next, and how many events of that one were handed over.
#[cfg(feature = "streams")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexReached {
    pub(crate) namespace: Arc<str>,
    pub(crate) incarnation: u64,
    pub(crate) epoch: u64,
    pub(crate) entry: u64,
    /// The index of the last event handed over.
    pub(crate) within: Option<u32>,
    /// Which chain it is a place in; none: before the first epoch of any.
    pub(crate) chain: Option<Uuid>,
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

    /// The epoch that must be there for this to be a place in the index, and how many entries it must have; none: any index has its beginning.
    pub(crate) fn rests_on(&self) -> Option<(u64, u64)> {
        match (self.epoch, self.entry, self.within) {
            (epoch, entry, _) if entry > 0 => Some((epoch, entry + 1)),
            (epoch, _, Some(_)) => Some((epoch, 1)),
            (epoch, ..) => (epoch > 1).then(|| (epoch - 1, 0)),
        }
    }

    /// Refuses what is a place in another chain: of one that was built anew since, the same numbers name other commits.
    pub(crate) fn in_chain(&self, chain: Option<Uuid>) -> Result<()> {
        match (self.chain, chain) {
            (Some(own), Some(here)) if own != here => {
                Err(Refused::Foreign { what: "checkpoint", of: format!("index {own}"), here: format!("index {here}") }.into())
            }
            _ => Ok(()),
        }
    }
}

/// What a checkpoint covers is not there: it is of another store, or from before this one was made anew.
pub(crate) fn after_head(of: String) -> crate::error::Error {
    Refused::Foreign { what: "checkpoint", of, here: "this store, which ends before it".into() }.into()
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
