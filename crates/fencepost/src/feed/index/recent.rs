//! Which commits are in the newest epochs: loaded backwards as far as a question reaches.

use std::collections::HashSet;

use super::plan::HOUR;
use crate::dynamo::Op;
use crate::error::Result;
use crate::event::CommitId;
use crate::side::chain::Indexable;
use crate::side::epoch::Epoch;

/// Commits of the epochs before a run, from the newest down to `from`.
#[derive(Debug, Default)]
pub(super) struct Recent {
    commits: HashSet<CommitId>,
    /// The lowest epoch that is loaded; 0 or 1: all are.
    from: u64,
    /// When that one was put.
    time: u64,
}

impl Recent {
    /// The chain's end is known.
    pub(super) fn before(last: Option<&Epoch>) -> Self {
        last.map_or_else(Self::default, |epoch| Self {
            commits: epoch.entries.iter().map(|entry| entry.commit).collect(),
            from: epoch.number,
            time: epoch.time,
        })
    }

    /// Whether a commit of this stamp is in the index. An epoch that was put an hour before the stamp cannot hold it.
    pub(super) async fn holds(&mut self, log: &dyn Indexable, op: &Op, commit: CommitId, stamp: u64) -> Result<bool> {
        while !self.commits.contains(&commit) && self.from > 1 && self.time + HOUR >= stamp {
            let epochs = log.side().epochs_down(op, self.from - 1, 16).await?;
            let Some(last) = epochs.last() else { break };
            (self.from, self.time) = (last.number, last.time);
            self.commits.extend(epochs.iter().flat_map(|epoch| &epoch.entries).map(|entry| entry.commit));
        }
        Ok(self.commits.contains(&commit))
    }
}
