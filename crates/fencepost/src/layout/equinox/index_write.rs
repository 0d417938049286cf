//! Writing the index: what Propulsion's indexer does, by the same appends under the same conditions, made safe. Whatever comes twice, late or
//! in part, and whoever else writes or dies meanwhile, every event is named once and after those before it on its stream.
//!
//! What is announced is cut to what the index lacks, by this epoch and by those before it. What is missing between is looked up in the table
//! itself and put in its place, where the peer's indexer stops for good or leaves a hole. A lost answer needs no thought: what it put is
//! found when the epoch is read again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::Equinox;
use super::index::{self, Place, Span};
use super::index_plan::{Batch, Closing, Ends, Missing, Next, cut};
use super::index_read::EpochRead;
use super::item::{self, Stored, Tip, Unfold};
use super::plan::{Addition, Sync, WRITES_BY, sync};
use crate::dynamo::{Freshness, Op, Outcome, Verdict};
use crate::error::{Error, Reason, Result};
use crate::event::{CommitId, Event, StreamName};

/// How often a race for one epoch is run again: every loss is somebody else's success.
const RACES: u32 = 256;
/// JSON of one entry, so that it fits an item even if it does not compress.
const ENTRY_BYTES: usize = 256 * 1024;
/// Streams that are looked up at a time.
const AT_ONCE: usize = 8;
/// What a stream of DynamoDB's holds may come again for a day.
const MAY_COME: SignedDuration = SignedDuration::from_hours(26);

/// What is known of the index from one call to the next. A hint: whatever goes by it is checked by its write.
#[derive(Debug, Default)]
pub(super) struct Known {
    partitions: Mutex<BTreeMap<u32, Arc<Mutex<Option<Partition>>>>>,
    /// The same, for whoever looks for a stream that was in another partition while there were more or fewer.
    others: Mutex<BTreeMap<u32, Partition>>,
}

/// One partition, as far as it was read.
#[derive(Debug)]
struct Partition {
    epoch: u32,
    tip: Option<Tip>,
    ends: Ends,
    /// Whether the stream of active epochs has this one.
    started: bool,
    /// How far epochs before this one have each stream, from epoch `back` on.
    earlier: HashMap<u128, u64>,
    back: u32,
    /// When the first entry of epoch `back` was put; none: it has none.
    since: Option<Timestamp>,
    /// Partitions that were there besides it when it was first read.
    others: Vec<u32>,
}

/// A stream that is announced: its name, its digest, and the lowest index.
type Wanted<'a> = (&'a str, u128, u64);

/// What an ingestion put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) spans: u64,
    pub(crate) events: u64,
    /// Entries that hold them.
    pub(crate) entries: u64,
    /// Epochs that were closed.
    pub(crate) closed: u64,
    /// Events that nothing announced, found in the table and put in their place.
    pub(crate) found: u64,
    /// How often another writer was first.
    pub(crate) races_lost: u64,
}

impl std::ops::AddAssign for Put {
    fn add_assign(&mut self, other: Put) {
        self.spans += other.spans;
        self.events += other.events;
        self.entries += other.entries;
        self.closed += other.closed;
        self.found += other.found;
        self.races_lost += other.races_lost;
    }
}

/// How a write to a stream of the index ended.
pub(super) enum Wrote {
    Done(Box<Tip>),
    /// Somebody else was first.
    Lost,
}

/// Streams by their names' digest: there are many.
fn digest(stream: &str) -> u128 {
    const STREAMS: Uuid = Uuid::from_u128(0x65_71_75_69_6e_6f_78_2d_65_61_72_6c_69_65_72_31);
    Uuid::new_v5(&STREAMS, stream.as_bytes()).as_u128()
}

impl Partition {
    fn read(&mut self, read: EpochRead) {
        self.tip = read.tip;
        if self.since.is_none() && self.back == self.epoch {
            self.since = read.entries.first().map(|entry| entry.at);
        }
        read.entries.iter().for_each(|entry| self.ends.take(&entry.entry));
        self.ends.closed = read.closed;
    }
    fn take(&mut self, stream: &Ends) {
        for (name, end) in &stream.of {
            let known = self.earlier.entry(digest(name)).or_insert(0);
            *known = (*known).max(*end);
        }
    }
    fn end_of(&self, (stream, digest, _): &Wanted<'_>) -> Option<u64> {
        self.ends.of.get(*stream).copied().max(self.earlier.get(digest).copied())
    }
    /// Estimated bytes of all events, as the peers count them.
    fn bytes(&self, stream: &StreamName) -> u64 {
        self.tip.as_ref().map_or(0, |tip| {
            tip.calved + item::base_estimate(stream.as_str(), &tip.etag) + tip.batch.events.iter().map(Stored::estimate).sum::<u64>()
        })
    }
}

impl Equinox {
    /// The partition that a stream is in: always the same, as long as there are as many.
    pub(crate) fn partition_of(&self, stream: &str) -> u32 {
        let partitions = u128::from(self.0.options.partitions.max(1));
        // Of one alone nothing is computed, and the peers know no other.
        if partitions == 1 { 0 } else { u32::try_from(digest(stream) % partitions).unwrap_or(0) }
    }

    /// Puts what these spans announce into the index, as far as it lacks it.
    pub(crate) async fn ingest(&self, op: &Op, spans: Vec<Span>) -> Result<Put> {
        let mut by_partition: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for span in spans {
            by_partition.entry(self.partition_of(&span.stream)).or_default().push(span);
        }
        let mut put = Put::default();
        for (partition, spans) in by_partition {
            put += self.ingest_into(op, partition, Batch::of(spans)).await?;
        }
        if put.entries > 0 {
            self.side().ring();
        }
        Ok(put)
    }

    fn stored(&self, event: Result<Event>) -> Result<Stored> {
        item::stored(&event?, self.dynamo().env().now())
    }
    fn closing(&self) -> Closing {
        let closing = Closing::default();
        Closing { bytes: self.0.options.epoch_bytes.unwrap_or(closing.bytes), ..closing }
    }

    async fn known_partition(&self, partition: u32) -> Arc<Mutex<Option<Partition>>> {
        self.0.known.partitions.lock().await.entry(partition).or_default().clone()
    }

    async fn ingest_into(&self, op: &Op, partition: u32, mut batch: Batch) -> Result<Put> {
        let known = self.known_partition(partition).await;
        let mut known = known.lock().await;
        let mut put = Put::default();
        let mut races = 0;
        while races < RACES {
            let state = match &mut *known {
                Some(state) => state,
                none => none.insert(self.load_partition(op, partition).await?),
            };
            // In its place: whatever was read when the time is up or a call fails, nobody reads again.
            while state.ends.closed {
                self.advance(op, partition, state).await?;
            }
            self.look_around(op, partition, state, &batch).await?;
            // Taken out while it is written to: after an error it is read again.
            let Some(mut state) = known.take() else { continue };
            let next = batch.next(&state.ends, |stream| state.earlier.get(&digest(stream)).copied());
            let (mut add, mut app, breaks) = match next {
                Next::Nothing => {
                    *known = Some(state);
                    return Ok(put);
                }
                Next::LookFor(missing) => {
                    *known = Some(state);
                    put.found += self.look_for(op, &mut batch, missing).await?;
                    continue;
                }
                Next::Append { add, app, breaks } => (add, app, breaks),
            };
            let whole = cut(&mut add, &mut app, ENTRY_BYTES);
            let stream = index::epoch_stream(partition, state.epoch)?;
            let version = state.tip.as_ref().map_or(0, |tip| tip.batch.next);
            let items = add.len() + app.len() + state.ends.of.len();
            let closes = breaks && whole || self.closing().is_due(state.bytes(&stream), version, items);
            let spans: Vec<Span> = add.iter().chain(&app).cloned().collect();
            let mut events = vec![self.stored(index::ingested(add, app))?];
            if closes {
                events.push(self.stored(index::closed())?);
            }
            self.start(op, partition, &mut state).await?;
            match self.write_index(op, &stream, state.tip.as_ref(), events, Vec::new()).await? {
                Wrote::Done(tip) => {
                    spans.iter().for_each(|span| state.ends.reach(span));
                    state.ends.closed = closes;
                    state.tip = Some(*tip);
                    put.entries += 1;
                    put.closed += u64::from(closes);
                    put.spans += spans.len() as u64;
                    put.events += spans.iter().map(|span| span.types.len() as u64).sum::<u64>();
                    *known = Some(state);
                    races = 0;
                }
                Wrote::Lost => {
                    put.races_lost += 1;
                    races += 1;
                    let pause = self.dynamo().env().below(1 + 4_000 * u64::from(races.min(16)));
                    self.dynamo().env().sleep(std::time::Duration::from_micros(pause)).await;
                    self.read_on(op, partition, &mut state).await?;
                    *known = Some(state);
                }
            }
        }
        Err(Error::unavailable(
            Reason::Throttled,
            format!("partition {partition} of the index was written by others {RACES} times meanwhile"),
        ))
    }

    /// From the active epoch on, which may be closed already.
    async fn load_partition(&self, op: &Op, partition: u32) -> Result<Partition> {
        let active = self.active_epochs(op, Freshness::Strong).await?;
        let epoch = active.get(&partition).copied().unwrap_or(0);
        let others = active.into_keys().filter(|other| *other != partition).collect();
        let (ends, earlier) = (Ends::default(), HashMap::new());
        let mut state = Partition { epoch, tip: None, ends, started: false, earlier, back: epoch, since: None, others };
        self.read_on(op, partition, &mut state).await?;
        Ok(state)
    }

    /// What came since, in the epoch that is known.
    async fn read_on(&self, op: &Op, partition: u32, state: &mut Partition) -> Result<()> {
        let offset = state.tip.as_ref().map_or(0, |tip| tip.batch.next);
        let from = Place { epoch: state.epoch, offset: u32::try_from(offset).unwrap_or(u32::MAX) };
        let read = self.read_epoch(op, partition, from, Freshness::Strong).await?;
        state.read(read);
        Ok(())
    }

    /// Behind a closed epoch: all of the step or, where it is interrupted, nothing.
    async fn advance(&self, op: &Op, partition: u32, state: &mut Partition) -> Result<()> {
        let read = self.read_epoch(op, partition, Place::start_of(state.epoch + 1), Freshness::Strong).await?;
        let ends = std::mem::take(&mut state.ends);
        state.take(&ends);
        state.epoch += 1;
        (state.tip, state.started) = (None, false);
        state.read(read);
        Ok(())
    }

    /// Finds how far the index is with each stream that is announced: by epochs before this one, then by other partitions.
    async fn look_around(&self, op: &Op, partition: u32, state: &mut Partition, batch: &Batch) -> Result<()> {
        let mut unknown: Vec<Wanted<'_>> = batch.streams().map(|(stream, index)| (stream, digest(stream), index)).collect();
        unknown.retain(|wanted| state.end_of(wanted).is_none());
        if unknown.is_empty() {
            return Ok(());
        }
        self.look_back(op, partition, state, &unknown).await?;
        for other in state.others.clone() {
            unknown.retain(|wanted| state.end_of(wanted).is_none());
            if unknown.is_empty() {
                break;
            }
            let mut others = self.0.known.others.lock().await;
            let there = match others.entry(other) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(self.load_partition(op, other).await?),
            };
            self.read_on(op, other, there).await?;
            while there.ends.closed {
                self.advance(op, other, there).await?;
            }
            self.look_back(op, other, there, &unknown).await?;
            for wanted in &unknown {
                state.earlier.extend(there.end_of(wanted).map(|end| (wanted.1, end)));
            }
        }
        Ok(())
    }

    /// Epochs before, from the newest down, until every stream was met: those whose first events are announced for as long as they may come
    /// again, the others wherever they are.
    async fn look_back(&self, op: &Op, partition: u32, state: &mut Partition, wanted: &[Wanted<'_>]) -> Result<()> {
        let young = self.dynamo().env().now().checked_sub(MAY_COME).unwrap_or(Timestamp::MIN);
        loop {
            let may_come = state.since.is_none_or(|since| since > young);
            let unknown = |wanted: &Wanted<'_>| state.end_of(wanted).is_none() && (wanted.2 > 0 || may_come);
            if state.back == 0 || !wanted.iter().any(unknown) {
                return Ok(());
            }
            let read = self.read_epoch(op, partition, Place::start_of(state.back - 1), Freshness::Strong).await?;
            let mut ends = Ends::default();
            read.entries.iter().for_each(|entry| ends.take(&entry.entry));
            state.take(&ends);
            state.back -= 1;
            state.since = read.entries.first().map(|entry| entry.at).or(state.since);
        }
    }

    /// What nothing announced: the table has it, unless it is pruned.
    async fn look_for(&self, op: &Op, batch: &mut Batch, missing: Vec<Missing>) -> Result<u64> {
        let reads = missing.into_iter().map(|Missing { stream, events }| async move {
            let types = self.types_between(op, &stream, events.clone()).await?;
            Ok::<_, Error>((stream, events, types))
        });
        let found: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut count = 0;
        for (stream, events, types) in found {
            let index = events.end - types.len() as u64;
            if index > events.start {
                tracing::error!(stream, from = events.start, to = index, "events were never indexed and are not in the table any more");
                metrics::counter!("fencepost_equinox_lost_events_total").increment(index - events.start);
                batch.lose(stream.clone(), index);
            }
            if !types.is_empty() {
                tracing::warn!(stream, from = index, to = events.end, "events were never announced: taken from the table");
                count += types.len() as u64;
                batch.add(Span { stream, index, types });
            }
        }
        metrics::counter!("fencepost_equinox_unannounced_events_total").increment(count);
        Ok(count)
    }

    /// Says that an epoch is the active one, before anything is put into it: a partition that is not named nobody reads.
    async fn start(&self, op: &Op, partition: u32, state: &mut Partition) -> Result<()> {
        let stream = index::active_stream()?;
        while !state.started {
            let tip = self.index().tip(op, &stream, Freshness::Strong).await?;
            let mut active = self.active_by(op, tip.as_ref()).await?;
            // Of a snapshot without events F# could not write on.
            let has_events = tip.as_ref().is_some_and(|tip| tip.batch.next > 0);
            if has_events && active.get(&partition).is_some_and(|epoch| *epoch >= state.epoch) {
                state.started = true;
                return Ok(());
            }
            active.insert(partition, state.epoch);
            let (name, snapshot) = index::snapshotted(&active);
            let next = tip.as_ref().map_or(0, |tip| tip.batch.next) + 1;
            let unfold = item::unfold(name, next, &snapshot, self.dynamo().env().now());
            let events = vec![self.stored(index::started(partition, state.epoch))?];
            state.started = matches!(self.write_index(op, &stream, tip.as_ref(), events, vec![unfold]).await?, Wrote::Done(_));
        }
        Ok(())
    }

    /// One append to a stream of the index, from its Tip as it is known.
    pub(super) async fn write_index(
        &self,
        op: &Op,
        stream: &StreamName,
        seen: Option<&Tip>,
        events: Vec<Stored>,
        unfolds: Vec<Unfold>,
    ) -> Result<Wrote> {
        let index = self.index();
        let (etag, commit) = (item::etag(self.dynamo().env().new_id()), CommitId(self.dynamo().env().new_id()));
        let add = Addition { events, unfolds, etag: etag.clone(), commit };
        let Sync { writes, tip, calves } = sync(index.table(), stream.as_str(), seen, add, index.limits())?;
        index.forget(stream);
        match self.dynamo().write(op, WRITES_BY, writes).await? {
            Outcome::Done => Ok(Wrote::Done(Box::new(tip))),
            Outcome::Failed { verdicts, .. } => match verdicts.get(usize::from(calves)) {
                // Our own, whose answer was lost.
                Some(Verdict::Found(found)) if item::tip(found)?.etag == etag => Ok(Wrote::Done(Box::new(tip))),
                _ => Ok(Wrote::Lost),
            },
        }
    }

    /// Puts what the index lacks and has passed already: into epochs of their own, since consumers of the peer's do not get past a span that
    /// ends before what their epoch has of its stream. Of one stream one span at most.
    pub(crate) async fn ingest_late(&self, op: &Op, spans: Vec<Span>) -> Result<Put> {
        let mut by_partition: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for span in spans {
            by_partition.entry(self.partition_of(&span.stream)).or_default().push(span);
        }
        let mut put = Put::default();
        for (partition, mut spans) in by_partition {
            while !spans.is_empty() {
                let mut part = spans.clone();
                cut(&mut part, &mut Vec::new(), ENTRY_BYTES);
                spans.drain(..part.len());
                put += self.put_alone(op, partition, part).await?;
            }
        }
        self.side().ring();
        Ok(put)
    }

    async fn put_alone(&self, op: &Op, partition: u32, spans: Vec<Span>) -> Result<Put> {
        let known = self.known_partition(partition).await;
        let mut known = known.lock().await;
        let mut put = Put::default();
        for _ in 0..RACES {
            let mut state = match known.take() {
                Some(state) => state,
                None => self.load_partition(op, partition).await?,
            };
            while state.ends.closed {
                self.advance(op, partition, &mut state).await?;
            }
            let stream = index::epoch_stream(partition, state.epoch)?;
            self.start(op, partition, &mut state).await?;
            let empty = state.tip.as_ref().is_none_or(|tip| tip.batch.next == 0);
            // First the epoch that is open is closed, then the next one holds these and is closed at once.
            let entry = index::ingested(if empty { spans.clone() } else { Vec::new() }, Vec::new());
            let events = vec![self.stored(entry)?, self.stored(index::closed())?];
            match self.write_index(op, &stream, state.tip.as_ref(), events, Vec::new()).await? {
                Wrote::Done(tip) => {
                    (state.tip, state.ends.closed) = (Some(*tip), true);
                    put.closed += 1;
                    put.entries += 1;
                    if empty {
                        spans.iter().for_each(|span| state.ends.reach(span));
                        put.spans += spans.len() as u64;
                        put.events += spans.iter().map(|span| span.types.len() as u64).sum::<u64>();
                        *known = Some(state);
                        return Ok(put);
                    }
                }
                Wrote::Lost => {
                    put.races_lost += 1;
                    self.read_on(op, partition, &mut state).await?;
                }
            }
            *known = Some(state);
        }
        Err(Error::unavailable(
            Reason::Throttled,
            format!("partition {partition} of the index was written by others {RACES} times meanwhile"),
        ))
    }
}
