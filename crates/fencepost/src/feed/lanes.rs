//! The feed over lanes: every lane read, strongly until all is caught up, and merged so that a commit comes after all that it follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::watch;

use super::{Delivery, Feed, From, IDLE, SOON, Subscription, deliver};
use crate::dynamo::Freshness;
use crate::error::Result;
use crate::layout::ledger::item::Slot;
use crate::layout::ledger::series::Series;
use crate::layout::ledger::token::Reached;
use crate::layout::ledger::{Ledger, Page};
use crate::position::Position;
use crate::query::Query;
use crate::side::reached::after_head;

/// The feed of a ledger with lanes.
#[derive(Debug, Clone)]
pub(crate) struct LaneFeed(pub(crate) Ledger);

#[async_trait]
impl Feed for LaneFeed {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        deliver(Cursor::start(self.0.clone(), from, query))
    }

    // A commit puts its lane slot in the same transaction as all others, and lanes are read strongly.
    async fn shows(&self, _: Position) -> Result<bool> {
        Ok(true)
    }

    async fn unshown_since(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }
}

/// One subscription: how far it has come, and what it has read ahead.
#[derive(Debug)]
struct Cursor {
    ledger: Ledger,
    query: Query,
    reached: Reached,
    lanes: BTreeMap<u8, VecDeque<Slot>>,
    /// Lanes that had no more when they were last read.
    ended: BTreeSet<u8>,
    /// Slots of a lane that are read at once: few at first, for whoever only wants the next event; then as many as a page holds.
    page: Option<i32>,
    /// Where the checkpoint says that it was, by lane, until the lane has shown that it is so long.
    unseen: BTreeMap<u8, u64>,
    ready: VecDeque<Delivery>,
    /// Whether anything was passed since it was last said that all is caught up.
    moved: bool,
    pause: Duration,
    /// How often in a row something waited for what another lane does not show.
    stalled: u32,
    appended: watch::Receiver<()>,
}

/// Some seconds.
const STALLED: u32 = 500;

const FIRST_PAGE: i32 = 64;
/// More than this fills a page by itself.
const MOST_ASKED_FOR: i32 = 512;

impl Subscription for Cursor {
    async fn next(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            // A lane that was at its end is not asked again for every commit of the others.
            if !self.is_hungry() && self.deliver().await? {
                self.pause = SOON;
                continue;
            }
            // Whatever rings from here on may have come too late for this read.
            let rung = self.appended.has_changed().unwrap_or(false);
            self.appended.mark_unchanged();
            // That all is caught up is said after a strong look; whoever has said so may look at what is a moment old: that is only seen later.
            // What waits, waits for what is there: it is looked for strongly.
            let waits = self.lanes.values().any(|slots| !slots.is_empty());
            let freshness = if self.moved || rung || waits { Freshness::Strong } else { Freshness::Eventual };
            let mut found = self.read_ahead(freshness).await?;
            if found && freshness == Freshness::Eventual {
                // Of the others what came before it.
                found |= self.read_ahead(Freshness::Strong).await?;
            }
            if self.deliver().await? {
                self.pause = SOON;
                continue;
            }
            // A dependency that does not show yet is committed already: it comes within moments.
            let waiting = self.lanes.values().any(|slots| !slots.is_empty());
            if !found && !waiting && std::mem::take(&mut self.moved) {
                return Ok(Delivery::CaughtUp { checkpoint: self.reached.seal() });
            }
            self.stalled = if waiting { self.stalled + 1 } else { 0 };
            if self.stalled == STALLED {
                tracing::warn!("a commit waits for another one on a lane that does not show it: `fencepost verify` names what is missing");
            }
            let pause = if waiting { SOON } else { self.pause };
            if tokio::time::timeout(pause, self.appended.changed()).await.is_ok() {
                self.appended.mark_changed();
            }
            self.pause = (pause * 2).min(IDLE);
        }
    }
}

impl Cursor {
    async fn start(ledger: Ledger, from: From, query: Query) -> Result<Cursor> {
        let incarnation = ledger.settings().incarnation;
        let lanes = ledger.settings().lanes().unwrap_or(0);
        let fresh = |lanes: BTreeMap<u8, u64>| Reached { namespace: ledger.namespace().into(), incarnation, lanes, within: None };
        let reached = match &from {
            From::Start => fresh(BTreeMap::new()),
            From::Now => fresh(ledger.lane_ends().await?),
            From::Checkpoint(checkpoint) => Reached::open(checkpoint, ledger.namespace(), incarnation)?,
        };
        let lanes = (0..lanes).map(|lane| (lane, VecDeque::new())).collect();
        let mut unseen = if matches!(from, From::Checkpoint(_)) { reached.lanes.clone() } else { BTreeMap::new() };
        unseen.extend(reached.within.map(|(lane, seq, _)| (lane, seq)));
        let appended = ledger.appended();
        let ended = BTreeSet::new();
        let (page, ready) = (Some(FIRST_PAGE), VecDeque::new());
        Ok(Cursor { ledger, query, reached, lanes, ended, page, unseen, ready, moved: true, pause: SOON, stalled: 0, appended })
    }

    fn delivered(&self, lane: u8) -> u64 {
        self.reached.lanes.get(&lane).copied().unwrap_or(0)
    }

    /// Whether there is more of a lane than was read of it, and all that was is handed over.
    fn is_hungry(&self) -> bool {
        self.lanes.iter().any(|(lane, slots)| slots.is_empty() && !self.ended.contains(lane))
    }

    /// A page of every lane of which nothing waits; whether anything came.
    async fn read_ahead(&mut self, freshness: Freshness) -> Result<bool> {
        let mut found = false;
        let op = self.ledger.dynamo().long_op();
        let (ledger, page) = (&self.ledger, self.page);
        self.page = page.map(|few| few * 8).filter(|few| *few <= MOST_ASKED_FOR);
        let wanted: Vec<(u8, u64)> =
            self.lanes.iter().filter(|(_, slots)| slots.is_empty()).map(|(lane, _)| (*lane, self.delivered(*lane))).collect();
        let pages = wanted.iter().map(|(lane, after)| {
            let op = &op;
            async move { Ok::<_, crate::error::Error>((*lane, ledger.page_shown(op, &Series::Lane(*lane), *after, page, freshness).await?)) }
        });
        for (lane, Page { slots, is_last }) in futures::future::try_join_all(pages).await? {
            if is_last {
                self.ended.insert(lane)
            } else {
                self.ended.remove(&lane)
            };
            found |= !slots.is_empty();
            // What comes next says that what was covered is there; where nothing does, that is looked for once.
            if let Some(seq) = self.unseen.remove(&lane).filter(|seq| *seq > 0 && slots.last().is_none_or(|last| last.version < *seq)) {
                let there = ledger.slots_after(&op, &Series::Lane(lane), seq - 1, Some(1)).await?;
                if there.first().is_none_or(|slot| slot.version != seq) {
                    return Err(after_head(format!("commit {seq} of lane {lane}")));
                }
            }
            self.lanes.entry(lane).or_default().extend(slots);
        }
        Ok(found)
    }

    /// The lane of a commit that was handed over in part, before a resume. It goes first: what it follows was delivered before it began, and a
    /// checkpoint has room for one such commit, so another's would forget how far this one had come.
    fn begun(&self) -> Option<u8> {
        let (lane, ..) = self.reached.within?;
        self.lanes.get(&lane).is_some_and(|slots| !slots.is_empty()).then_some(lane)
    }

    /// The lane of the lowest stamp among the commits whose dependencies are delivered.
    fn lowest(&self) -> Option<u8> {
        let is_ready = |slot: &&Slot| slot.deps.iter().all(|(lane, seq)| self.delivered(*lane) >= *seq);
        let ready = self.lanes.iter().filter_map(|(lane, slots)| slots.front().filter(is_ready).map(|slot| (slot.stamp, *lane)));
        ready.min().map(|(_, lane)| lane)
    }

    /// Hands over what was begun, and then commits whose dependencies are delivered, the lowest stamp first; whether there were any.
    async fn deliver(&mut self) -> Result<bool> {
        let mut any = false;
        // A bounded number at a time: bodies are fetched for what is handed over next.
        for _ in 0..256 {
            let Some(lane) = self.begun().or_else(|| self.lowest()) else { break };
            let Some(slot) = self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) else { break };
            any = true;
            self.moved = true;
            self.hand_over(lane, slot).await?;
            if !self.ready.is_empty() {
                break;
            }
        }
        Ok(any)
    }

    async fn hand_over(&mut self, lane: u8, slot: Slot) -> Result<()> {
        let (seq, done) = (slot.version, self.reached.within.filter(|(l, s, _)| *l == lane && *s == slot.version).map(|(.., index)| index));
        let events = self.ledger.events_of(slot, &self.query).await?;
        let last = events.len();
        for (at, (index, event)) in events.into_iter().enumerate() {
            if done.is_some_and(|done| index <= done) {
                continue;
            }
            let mut reached = self.reached.clone();
            if at + 1 == last {
                reached.lanes.insert(lane, seq);
                reached.within = None;
            } else {
                reached.within = Some((lane, seq, index));
            }
            self.ready.push_back(Delivery::Event { event: Box::new(event), checkpoint: reached.seal() });
        }
        self.reached.lanes.insert(lane, seq);
        if self.reached.within.is_some_and(|(l, s, _)| l == lane && s <= seq) {
            self.reached.within = None;
        }
        Ok(())
    }
}
