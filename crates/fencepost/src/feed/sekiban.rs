//! The feed over Sekiban's index of all events, which is a moment old and ordered by clocks: what is young is read again until it is not, so
//! that an event that comes late is found, and what its tags know of it before the index does is asked of them.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use super::{Delivery, Feed, From, IDLE, SOON, Subscription, deliver};
use crate::error::{Refused, Result};
use crate::event::Tag;
use crate::layout::sekiban::{LAYOUT, Listed, Sekiban, SortableId, Stored, Sweep};
use crate::position::{Checkpoint, Position};
use crate::query::Query;

/// Events handed over at a time, at most.
const BATCH: usize = 256;
/// Young events that a checkpoint remembers. More of them within the window than this, and those behind them wait until the window has passed them:
/// what is not remembered could not be told from what came late.
const REMEMBERED: usize = 2048;
/// A commit that stays unfinished for so long is finished here.
const PATIENCE: Duration = Duration::from_secs(2);
const TICKS_PER_SECOND: u64 = 10_000_000;

/// The feed of Sekiban's tables.
#[derive(Debug, Clone)]
pub(crate) struct AllEvents {
    pub(crate) sekiban: Sekiban,
    pub(crate) of: Of,
}

/// How much of it is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// All that is there.
    Served,
    /// What nothing can come before any more: in the order of ids, whatever comes late.
    Safe,
}

#[async_trait]
impl Feed for AllEvents {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        deliver(Cursor::start(self.clone(), from, query))
    }

    async fn shows(&self, position: Position) -> Result<bool> {
        let foreign = || Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
        let id = SortableId::of(&position).ok_or_else(foreign)?;
        if self.of == Of::Safe && safe(&self.sekiban).await?.0 < id.ticks() {
            return Ok(false);
        }
        Ok(self.sekiban.at_position(id, position).await?.is_some())
    }

    // By the service itself, within moments, and nobody can tell.
    async fn unshown_since(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }
}

/// How far a consumer has come: all before `low`, and of what is behind it, these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reached {
    namespace: String,
    low: u64,
    seen: BTreeSet<(u64, u32)>,
}

impl Reached {
    fn seal(&self) -> Checkpoint {
        Checkpoint::seal(LAYOUT, self)
    }
    fn open(checkpoint: &Checkpoint, namespace: &str) -> Result<Reached> {
        let reached: Reached = checkpoint.open(LAYOUT)?;
        if reached.namespace != namespace {
            let (of, here) = (format!("service {}", reached.namespace), format!("service {namespace}"));
            return Err(Refused::Foreign { what: "checkpoint", of, here }.into());
        }
        Ok(reached)
    }
    fn holds(&self, at: SortableId, id: &Uuid) -> bool {
        at.ticks() < self.low || self.seen.contains(&mark(at, id))
    }
    /// It was handed over, or passed over. Of what is older than the window only the place is kept.
    fn passed(&mut self, stored: &Stored, safe: u64) {
        self.seen.insert(mark(stored.at, &stored.event.id));
        self.raise(stored.at.ticks().min(safe));
    }
    fn raise(&mut self, low: u64) {
        if low > self.low {
            self.low = low;
            self.seen = self.seen.split_off(&(low, 0));
        }
    }
}

/// Tells events of one tick apart.
fn mark(at: SortableId, id: &Uuid) -> (u64, u32) {
    let (high, low) = id.as_u64_pair();
    (at.ticks(), ((high ^ low) ^ ((high ^ low) >> 32)) as u32)
}

/// The tick below which nothing can come any more: older than the window, and than every large commit that is not in rows. And the list of large commits.
async fn safe(sekiban: &Sekiban) -> Result<(u64, Vec<Listed>)> {
    let op = sekiban.dynamo().long_op();
    let now = SortableId::threshold(sekiban.dynamo().env().now()).ticks();
    let window = u64::try_from(sekiban.safe_window().as_nanos() / 100).unwrap_or(u64::MAX);
    // A clock that is ahead would take for old what is not.
    let off = sekiban.dynamo().clock_off().map_or(0, |off| off.as_secs() * TICKS_PER_SECOND);
    let mut safe = now.saturating_sub(window).saturating_sub(off);
    let mut listed = sekiban.listed(&op).await?;
    for one in listed.iter_mut().filter(|one| one.is_open()) {
        if one.first.saturating_add(PATIENCE.as_secs() * TICKS_PER_SECOND) < now {
            sekiban.finish_listed(one).await?;
        }
        if one.is_open() {
            safe = safe.min(one.first.saturating_sub(1));
        }
    }
    sekiban.shorten(&op, &listed).await;
    Ok((safe, listed))
}

/// One subscription.
#[derive(Debug)]
struct Cursor {
    sekiban: Sekiban,
    of: Of,
    query: Query,
    reached: Reached,
    /// The sweep that is under way, and what was safe when it began.
    sweep: Option<(Sweep, u64)>,
    ready: VecDeque<Delivery>,
    /// The last tick handed over: what stands before it came late.
    last: u64,
    moved: bool,
    /// Something is there that was not handed over yet: it waits for room.
    waits: bool,
    pause: Duration,
    rings: watch::Receiver<()>,
}

impl Subscription for Cursor {
    async fn next(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            if self.sweep.is_none() {
                // Whatever rings from here on may have come too late for this sweep.
                self.rings.mark_unchanged();
                self.sweep = Some(self.begin().await?);
            }
            if self.advance().await? {
                continue;
            }
            self.sweep = None;
            if !self.waits && std::mem::take(&mut self.moved) {
                return Ok(Delivery::CaughtUp { checkpoint: self.reached.seal() });
            }
            let _ = tokio::time::timeout(self.pause, self.rings.changed()).await;
            self.pause = (self.pause * 2).min(IDLE);
        }
    }
}

impl Cursor {
    async fn start(AllEvents { sekiban, of }: AllEvents, from: From, query: Query) -> Result<Cursor> {
        let fresh = || Reached { namespace: sekiban.namespace().into(), low: 0, seen: BTreeSet::new() };
        let reached = match &from {
            From::Checkpoint(checkpoint) => Reached::open(checkpoint, sekiban.namespace())?,
            From::Start | From::Now => fresh(),
        };
        let rings = sekiban.side().rings();
        let ready = VecDeque::new();
        let mut cursor = Cursor { sekiban, of, query, reached, sweep: None, ready, last: 0, moved: true, waits: false, pause: SOON, rings };
        if matches!(from, From::Now) {
            cursor.pass_what_is_there().await?;
        }
        Ok(cursor)
    }

    /// What was there is not handed over: only what of it is young has to be remembered.
    async fn pass_what_is_there(&mut self) -> Result<()> {
        let (safe, listed) = safe(&self.sekiban).await?;
        self.reached.low = safe;
        if self.of == Of::Safe {
            return Ok(());
        }
        let mut sweep = self.sekiban.sweep_over(&listed, Some(SortableId::at_ticks(safe)), false, None).await?;
        while let Some(stored) = self.sekiban.swept(&mut sweep).await? {
            self.reached.passed(&stored, safe);
        }
        Ok(())
    }

    /// A sweep from the low mark on, and what is safe.
    async fn begin(&self) -> Result<(Sweep, u64)> {
        let (safe, listed) = safe(&self.sekiban).await?;
        let from = (self.reached.low > 0).then(|| SortableId::at_ticks(self.reached.low));
        let mut sweep = self.sekiban.sweep_over(&listed, from, false, None).await?;
        sweep.leave_out(|at, id| self.reached.holds(at, id));
        Ok((sweep, safe))
    }

    /// The next events of the sweep; whether there may be more.
    async fn advance(&mut self) -> Result<bool> {
        let Some((mut sweep, safe)) = self.sweep.take() else { return Ok(false) };
        let mut batch = Vec::new();
        let mut whole = false;
        self.waits = false;
        while batch.len() < BATCH {
            match self.sekiban.swept(&mut sweep).await? {
                Some(stored) if self.reached.holds(stored.at, &stored.event.id) => {}
                Some(stored) if stored.at.ticks() <= safe => batch.push(stored),
                Some(_) if self.of == Of::Served && self.reached.seen.len() + batch.len() >= REMEMBERED => {
                    (self.waits, whole) = (true, true);
                    break;
                }
                Some(stored) if self.of == Of::Served => batch.push(stored),
                _ => {
                    whole = true;
                    break;
                }
            }
        }
        let found = !batch.is_empty();
        let (batch, is_cut) = self.with_what_tags_know(batch, &sweep, safe).await?;
        for stored in batch {
            self.hand_over(stored, safe);
        }
        self.waits |= is_cut;
        if !whole && !is_cut {
            self.sweep = Some((sweep, safe));
            return Ok(true);
        }
        // Everything below was seen: nothing comes there any more.
        self.reached.raise(safe);
        if found && !self.ready.is_empty() {
            self.pause = SOON;
        }
        Ok(!self.ready.is_empty())
    }

    /// The index shows the events of a tag in any order for a moment; their rows, read strongly, tell which of them come before. Where one of them is of
    /// a large commit that this sweep does not hand over, the events from it on are left to the next: whether that is so.
    async fn with_what_tags_know(&self, mut batch: Vec<Stored>, sweep: &Sweep, safe: u64) -> Result<(Vec<Stored>, bool)> {
        let young = || batch.iter().filter(|stored| stored.at.ticks() > safe);
        let Some(to) = young().map(|stored| stored.at).max() else { return Ok((batch, false)) };
        let tags: BTreeSet<&Tag> = young().flat_map(|stored| &stored.event.tags).collect();
        let op = self.sekiban.dynamo().long_op();
        let from = SortableId::at_ticks(safe.max(self.reached.low));
        let rows = tags.into_iter().map(|tag| self.sekiban.on_tag_between(&op, tag, from, to));
        let known: HashSet<Uuid> = batch.iter().map(|stored| stored.event.id).collect();
        let mut missing: Vec<Uuid> =
            futures::future::try_join_all(rows).await?.into_iter().flatten().filter(|id| !known.contains(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok((batch, false));
        }
        let mut found = self.sekiban.stored_events(&op, &missing).await?;
        found.retain(|stored| !self.reached.holds(stored.at, &stored.event.id));
        let cut = found.iter().filter(|stored| !sweep.shows(stored)).map(|stored| stored.event.position).min();
        batch.extend(found);
        batch.retain(|stored| cut.is_none_or(|cut| stored.event.position < cut));
        batch.sort_by_key(|stored| stored.event.position);
        Ok((batch, cut.is_some()))
    }

    fn hand_over(&mut self, stored: Stored, safe: u64) {
        self.moved = true;
        if stored.at.ticks() < self.last {
            metrics::counter!("fencepost_sekiban_late_events_total").increment(1);
        }
        self.last = self.last.max(stored.at.ticks());
        self.reached.passed(&stored, safe);
        if self.query.matches(&stored.event.event_type, &stored.event.tags) {
            self.ready.push_back(Delivery::Event { event: Box::new(stored.event), checkpoint: self.reached.seal() });
        }
    }
}
