//! The feed over the index: epochs read one after the other, strongly until it has caught up, filtered by what they say of each commit, and then its events fetched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::watch;

use super::index::Shown;
use super::{Delivery, Feed, From, IDLE, SOON, Subscription, deliver};
use crate::dynamo::Freshness;
use crate::error::Result;
use crate::position::Position;
use crate::query::Query;
use crate::side::chain::{EVENTS, Indexable};
use crate::side::epoch::Indexed;
use crate::side::reached::{IndexReached, after_head};

/// Epochs and commits held at a time.
const EPOCHS: i32 = 4;
const COMMITS: usize = 64;
/// Commits that are fetched first, for whoever only wants the next event.
const FIRST: usize = 32;
/// A commit of which that is not known is taken for this many events: if it has more, fewer commits come than were asked for.
const UNKNOWN: usize = 32;

/// The feed of a log in `streams` mode.
#[derive(Debug, Clone)]
pub(crate) struct IndexFeed {
    log: Arc<dyn Indexable>,
    shown: Arc<Shown>,
}

impl IndexFeed {
    pub(crate) fn new(log: Arc<dyn Indexable>) -> Self {
        Self { log, shown: Arc::default() }
    }
}

#[async_trait]
impl Feed for IndexFeed {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        deliver(Cursor::start(self.log.clone(), from, query))
    }

    async fn shows(&self, position: Position) -> Result<bool> {
        match self.log.commit_of(&self.log.dynamo().op(), position).await? {
            Some((commit, stamp)) => self.shown.holds(&*self.log, commit, stamp).await,
            None => Ok(false),
        }
    }

    async fn unshown_since(&self) -> Result<Option<Timestamp>> {
        self.shown.lacks_since(&*self.log).await
    }
}

/// One subscription: how far it has come, and what it has read ahead.
#[derive(Debug)]
struct Cursor {
    log: Arc<dyn Indexable>,
    query: Query,
    /// All before it was handed over or passed over.
    reached: IndexReached,
    /// Commits that may match, read ahead.
    ahead: VecDeque<Ahead>,
    /// The epoch to read next.
    next_epoch: u64,
    /// Where the cursor is once all that was read ahead is handed over.
    end: (u64, u64),
    /// For how many events one is taken of which that is not known: as many as the largest of the last had.
    unknown: usize,
    /// Commits that are fetched at once.
    at_once: usize,
    ready: VecDeque<Delivery>,
    /// Whether anything was passed since it was last said that all is caught up.
    moved: bool,
    pause: Duration,
    appended: watch::Receiver<()>,
}

/// A commit, its place, and the place behind it: epoch and entry.
#[derive(Debug)]
struct Ahead {
    commit: Indexed,
    at: (u64, u64),
    behind: (u64, u64),
}

impl Subscription for Cursor {
    async fn next(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            if !self.ahead.is_empty() {
                self.fetch().await?;
                continue;
            }
            // Whatever rings from here on may have come too late for this read.
            let rung = self.appended.has_changed().unwrap_or(false);
            self.appended.mark_unchanged();
            // That all is caught up is said after a strong look; whoever has said so may look at what is a moment old: that is only seen later.
            let freshness = if self.moved || rung { Freshness::Strong } else { Freshness::Eventual };
            if self.read_ahead(freshness).await? {
                self.pause = SOON;
                continue;
            }
            if std::mem::take(&mut self.moved) {
                return Ok(Delivery::CaughtUp { checkpoint: self.reached.seal() });
            }
            // What was appended here shows in the index within moments.
            match tokio::time::timeout(self.pause, self.appended.changed()).await {
                Ok(_) => {
                    self.pause = SOON;
                    self.appended.mark_changed();
                }
                Err(_) => self.pause = (self.pause * 2).min(IDLE),
            }
        }
    }
}

impl Cursor {
    async fn start(log: Arc<dyn Indexable>, from: From, query: Query) -> Result<Cursor> {
        let incarnation = log.incarnation();
        let at =
            |epoch, chain| IndexReached { namespace: log.side().namespace().into(), incarnation, epoch, entry: 0, within: None, chain };
        let reached = match from {
            From::Start => at(1, None),
            From::Now => {
                let last = log.side().last_epoch(&log.dynamo().op()).await?;
                last.map_or_else(|| at(1, None), |epoch| at(epoch.number + 1, epoch.chain))
            }
            From::Checkpoint(checkpoint) => {
                let reached = IndexReached::open(&checkpoint, log.side().namespace(), incarnation)?;
                Self::find(&*log, &reached).await?;
                reached
            }
        };
        let (next_epoch, end) = (reached.epoch, (reached.epoch, reached.entry));
        let appended = log.side().rings();
        let (ahead, ready) = (VecDeque::new(), VecDeque::new());
        Ok(Cursor {
            log,
            query,
            reached,
            ahead,
            next_epoch,
            end,
            unknown: UNKNOWN,
            at_once: FIRST,
            ready,
            moved: true,
            pause: SOON,
            appended,
        })
    }

    /// Whether a place is one in this index: an epoch that is not there, or not so long, would be waited for, and all before it missed.
    async fn find(log: &dyn Indexable, reached: &IndexReached) -> Result<()> {
        let Some((number, entries)) = reached.rests_on() else { return Ok(()) };
        let found = log.side().epochs_from(&log.dynamo().op(), number, 1).await?.pop();
        let found = found.filter(|epoch| epoch.entries.len() as u64 >= entries);
        let found = found.ok_or_else(|| after_head(format!("entry {} of epoch {} of an index", reached.entry, reached.epoch)))?;
        reached.in_chain(found.chain)
    }

    /// A few epochs more; whether there were any.
    async fn read_ahead(&mut self, freshness: Freshness) -> Result<bool> {
        let op = self.log.dynamo().long_op();
        let epochs = self.log.side().epochs_shown(&op, self.next_epoch, EPOCHS, freshness).await?;
        let any = !epochs.is_empty();
        for epoch in epochs {
            self.reached.in_chain(epoch.chain)?;
            self.reached.chain = epoch.chain.or(self.reached.chain);
            let count = epoch.entries.len() as u64;
            // Only the first epoch after a resume begins in the middle.
            let skip = if epoch.number == self.end.0 { self.end.1 } else { 0 };
            for (entry, behind) in epoch.entries.into_iter().zip(1..).skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
                if entry.namespace == self.log.side().namespace() && entry.may_match(&self.query, self.log.slots_name_all_tags()) {
                    let at = (epoch.number, behind - 1);
                    let behind = if behind == count { (epoch.number + 1, 0) } else { (epoch.number, behind) };
                    self.ahead.push_back(Ahead { commit: entry, at, behind });
                }
            }
            self.next_epoch = epoch.number + 1;
            self.end = (self.next_epoch, 0);
        }
        self.pass_over();
        self.moved |= any;
        Ok(any)
    }

    /// Of what is left nothing matches.
    fn pass_over(&mut self) {
        if self.ahead.is_empty() && (self.reached.epoch, self.reached.entry) != self.end {
            (self.reached.epoch, self.reached.entry) = self.end;
            self.reached.within = None;
        }
    }

    /// The events of the next commits: as many at once as a request takes, and no more events than are to be held.
    async fn fetch(&mut self) -> Result<()> {
        let mut events = 0;
        let mut commits = Vec::new();
        for Ahead { commit, .. } in self.ahead.iter().take(std::mem::replace(&mut self.at_once, COMMITS)) {
            events += commit.events.map_or(self.unknown, |events| events as usize);
            commits.push(commit);
            if events >= EVENTS {
                break;
            }
        }
        let fetched = self.log.indexed_events(&commits, &self.query).await?;
        self.unknown = fetched.iter().map(Vec::len).max().unwrap_or(0).max(UNKNOWN);
        let places: Vec<_> = self.ahead.drain(..fetched.len()).map(|ahead| (ahead.at, ahead.behind)).collect();
        for ((own, behind), events) in places.into_iter().zip(fetched) {
            // Another query may have begun before: what was handed over of one commit says nothing of another.
            let done = self.reached.within.filter(|_| (self.reached.epoch, self.reached.entry) == own);
            let last = events.len();
            for (at, (index, event)) in events.into_iter().enumerate() {
                if done.is_some_and(|done| index <= done) {
                    continue;
                }
                let mut reached = self.reached.clone();
                let whole = at + 1 == last;
                (reached.epoch, reached.entry) = if whole { behind } else { own };
                reached.within = (!whole).then_some(index);
                self.ready.push_back(Delivery::Event { event: Box::new(event), checkpoint: reached.seal() });
            }
            (self.reached.epoch, self.reached.entry) = behind;
            self.reached.within = None;
        }
        self.pass_over();
        Ok(())
    }
}
