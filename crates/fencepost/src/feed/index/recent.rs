//! Which commits are in the newest epochs: loaded backwards as far as a question reaches, and forwards as the chain grows.

use std::collections::HashSet;

use super::plan::HOUR;
use super::run::{MAY_COME, now};
use crate::dynamo::Op;
use crate::error::Result;
use crate::event::CommitId;
use crate::side::chain::Indexable;
use crate::side::epoch::{Epoch, Indexed, Span};

/// Epochs read at a time.
const PAGE: i32 = 16;
/// More commits than this, and than twice what a question reached back to, are not kept.
const KEPT: usize = 1_000_000;

/// How far back a commit may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// An epoch that was put an hour before this stamp cannot hold it.
    Stamp(u64),
    /// Its stamp says nothing: anywhere in the chain.
    Ever,
}

/// Commits of the epochs from `from` up to `to`.
#[derive(Debug, Default)]
pub(super) struct Recent {
    commits: HashSet<CommitId>,
    /// The lowest epoch that is loaded; 0 or 1: all are.
    from: u64,
    /// When that one was put.
    time: u64,
    /// The highest epoch that is loaded.
    to: u64,
    /// So many there were when a question last reached back.
    reached: usize,
}

impl Recent {
    /// The chain's end is known.
    pub(super) fn before(last: Option<&Epoch>) -> Self {
        last.map_or_else(Self::default, |epoch| Self {
            commits: epoch.entries.iter().map(|entry| entry.commit).collect(),
            from: epoch.number,
            time: epoch.time,
            to: epoch.number,
            reached: epoch.entries.len(),
        })
    }

    /// The same where the end is known of a chain that has grown.
    pub(super) async fn until(&mut self, log: &dyn Indexable, op: &Op, last: Option<&Epoch>) -> Result<()> {
        match last {
            Some(last) if self.is_kept() && last.number == self.to + 1 => self.take(std::slice::from_ref(last)),
            Some(last) if self.is_kept() && last.number > self.to => self.read_on(log, op).await?,
            Some(last) if self.is_kept() && last.number == self.to => {}
            last => *self = Self::before(last),
        }
        Ok(())
    }

    /// Whether this epoch, and so all between, is loaded.
    pub(super) fn reaches(&self, number: u64) -> bool {
        self.to >= number
    }

    fn is_kept(&self) -> bool {
        self.to > 0 && self.commits.len() <= KEPT.max(2 * self.reached)
    }

    fn take(&mut self, epochs: &[Epoch]) {
        self.to = epochs.last().map_or(self.to, |last| self.to.max(last.number));
        self.commits.extend(epochs.iter().flat_map(|epoch| &epoch.entries).map(|entry| entry.commit));
    }

    /// Whether a commit is in the epochs that were there when the newest was loaded.
    pub(super) async fn holds(&mut self, log: &dyn Indexable, op: &Op, commit: CommitId, since: Since) -> Result<bool> {
        let reaches = |time: u64| match since {
            Since::Stamp(stamp) => time + HOUR >= stamp,
            Since::Ever => true,
        };
        while !self.commits.contains(&commit) && self.from > 1 && reaches(self.time) {
            let epochs = log.side().epochs_down(op, self.from - 1, PAGE).await?;
            let Some(last) = epochs.last() else { break };
            (self.from, self.time) = (last.number, last.time);
            self.take(&epochs);
            self.reached = self.commits.len();
        }
        Ok(self.commits.contains(&commit))
    }

    /// Takes in what was put since. One that holds much already forgets all but the newest.
    pub(super) async fn read_on(&mut self, log: &dyn Indexable, op: &Op) -> Result<()> {
        if !self.is_kept() {
            *self = Self::before(log.side().last_epoch(op).await?.as_ref());
            return Ok(());
        }
        loop {
            let epochs = log.side().epochs_from(op, self.to + 1, PAGE).await?;
            if epochs.is_empty() {
                return Ok(());
            }
            self.take(&epochs);
        }
    }
}

/// What rebuilds of the last day put that may come again by the stream, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    spans: Vec<Span>,
    commits: HashSet<CommitId>,
}

impl Rebuilt {
    /// Spans of which nothing can come any more are left out.
    pub(super) fn young(spans: &[Span], now: u64) -> Vec<Span> {
        spans.iter().filter(|span| span.time + MAY_COME > now).copied().collect()
    }

    /// Whether the stream may still bring a commit that a rebuild puts now.
    pub(super) fn may_come(log: &dyn Indexable, entry: &Indexed, now: u64) -> bool {
        // A stamp that somebody said does not tell when it was written.
        log.counts_events() || entry.stamp + MAY_COME > now
    }

    /// The commits of these spans: each is read once.
    pub(super) async fn commits(&mut self, log: &dyn Indexable, op: &Op, spans: &[Span]) -> Result<&HashSet<CommitId>> {
        if self.spans != spans {
            if !self.spans.iter().all(|old| spans.contains(old)) {
                (self.spans, self.commits) = Default::default();
            }
            let fresh: Vec<Span> = spans.iter().filter(|span| !self.spans.contains(span)).copied().collect();
            let now = now(log);
            for span in fresh {
                let mut next = span.first;
                while next <= span.last {
                    let epochs = log.side().epochs_from(op, next, PAGE).await?;
                    let Some(last) = epochs.last() else { break };
                    next = last.number + 1;
                    let entries = epochs.iter().flat_map(|epoch| &epoch.entries).filter(|entry| Self::may_come(log, entry, now));
                    self.commits.extend(entries.map(|entry| entry.commit));
                }
            }
            self.spans = spans.to_vec();
        }
        Ok(&self.commits)
    }
}
