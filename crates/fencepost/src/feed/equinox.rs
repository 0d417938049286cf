//! The feed over the index that Equinox's tables have: the entries of every partition in order, by one order of their times, and then the
//! events of their spans fetched from the newest calf down. A partition that has epochs to come holds the others back until they are read.
//!
//! An index of the peer's may name events twice, and may have left some out. What this reader has handed over it does not hand over again,
//! and what was left out between it fetches with what follows. It says so: an index with holes should be rebuilt.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Delivery, Feed, From, IDLE, SOON, Subscription, deliver, index};
use crate::dynamo::{Freshness, Op};
use crate::error::{Error, Refused, Result};
use crate::event::{EventType, Recorded, StreamName, Tag};
use crate::layout::equinox::{Entry, Equinox, Fed, First, LAYOUT, Noted, Place, Span};
use crate::position::{Checkpoint, Position};
use crate::query::Query;

/// Events fetched at a time, at most, unless one entry has more.
const EVENTS: usize = 1_024;
/// Streams whose events are fetched at a time.
const STREAMS: usize = 8;
/// Streams of which it is remembered how far they were handed over.
const REMEMBERED: usize = 500_000;
/// Events that were indexed so long ago at most are looked for in Tips first.
const YOUNG: SignedDuration = SignedDuration::from_mins(5);
/// New partitions are looked for with every so many looks at nothing new.
const LOOKS: u32 = 8;

/// The feed of Equinox's tables.
#[derive(Debug, Clone)]
pub(crate) struct Appends {
    store: Equinox,
    passed: Arc<Mutex<Option<Passed>>>,
}

/// An event that was asked for, and below which epoch of each partition it is not.
type Passed = (Position, BTreeMap<u32, u32>);

impl Appends {
    pub(crate) fn new(store: Equinox) -> Self {
        Self { store, passed: Arc::default() }
    }

    /// Whether an epoch names this event.
    async fn names(&self, op: &Op, partition: u32, epoch: u32, position: Position, version: u64) -> Result<(bool, bool)> {
        let read = self.store.read_epoch(op, partition, Place::start_of(epoch), Freshness::Strong).await?;
        let holds = |span: &Span| {
            span.index < version
                && version <= span.end()
                && StreamName::new(&span.stream).is_ok_and(|stream| Equinox::stands_at(&stream, version, position))
        };
        let named = read.entries.iter().any(|noted| matches!(&noted.entry, Entry::Ingested(spans) if spans.iter().any(holds)));
        Ok((named, read.closed))
    }
}

#[async_trait]
impl Feed for Appends {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        deliver(Cursor::start(self.store.clone(), from, query))
    }

    async fn shows(&self, position: Position) -> Result<bool> {
        let foreign = || Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
        let (version, ..) = position.as_stamped().ok_or_else(foreign)?;
        let op = self.store.side().dynamo().long_op();
        // Whoever waits asks again and again: what is closed does not change.
        let mut passed = match self.passed.lock() {
            Ok(passed) => passed.clone().filter(|(of, _)| *of == position).map(|(_, passed)| passed).unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        };
        for (partition, mut epoch) in self.store.active_epochs(&op, Freshness::Strong).await? {
            let below = passed.get(&partition).copied().unwrap_or(0);
            let newest = loop {
                let (named, closed) = self.names(&op, partition, epoch, position, version).await?;
                if named {
                    return Ok(true);
                }
                if !closed {
                    break epoch;
                }
                epoch += 1;
            };
            for older in (below..newest).rev() {
                if self.names(&op, partition, older, position, version).await?.0 {
                    return Ok(true);
                }
            }
            passed.insert(partition, newest);
        }
        if let Ok(mut kept) = self.passed.lock() {
            *kept = Some((position, passed));
        }
        Ok(false)
    }

    async fn unshown_since(&self) -> Result<Option<Timestamp>> {
        index::unshown_of_appends(&self.store).await
    }
}

/// How far a consumer has come: in each partition the entry that comes next, and of one of them what was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    /// Positions as the peers have them.
    pub(crate) partitions: BTreeMap<u32, u64>,
    within: Option<Within>,
}

/// Of an entry, all spans before this one and of this one all events before this index were handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Within {
    partition: u32,
    span: u32,
    index: u64,
}

impl Reached {
    pub(crate) fn new(partitions: BTreeMap<u32, u64>) -> Self {
        Self { partitions, within: None }
    }
    pub(crate) fn seal(&self) -> Checkpoint {
        Checkpoint::seal(LAYOUT, self)
    }
    pub(crate) fn open(checkpoint: &Checkpoint) -> Result<Reached> {
        checkpoint.open(LAYOUT)
    }
    /// All of a partition before this was handed over. What of another was in part, stays so.
    fn pass(&mut self, partition: u32, behind: Place) {
        self.partitions.insert(partition, behind.number());
        self.within = self.within.filter(|within| within.partition != partition);
    }
    fn place(&self, partition: u32) -> Result<Place> {
        let number = self.partitions.get(&partition).copied().unwrap_or(0);
        Place::of(number)
            .ok_or_else(|| Refused::Malformed { what: "checkpoint", why: format!("position {number} of partition {partition}") }.into())
    }
}

/// A partition, as far as it was read: an epoch at a time.
#[derive(Debug)]
struct Partition {
    /// Where it is read on.
    next: Place,
    ahead: VecDeque<Ahead>,
    /// Whether nothing was behind what was read. Before that nothing of the others may go first: what comes is perhaps older.
    ended: bool,
}

/// An entry that was read ahead, and the place behind it.
#[derive(Debug)]
struct Ahead {
    partition: u32,
    noted: Noted,
    behind: Place,
}

/// What of a stream was handed over here: from the first index on without a hole, up to the second.
type Handed = (u64, u64);

/// A part of a span that is to be handed over.
#[derive(Debug)]
struct Piece {
    /// Which of the entries that are taken, and which of its spans.
    entry: usize,
    span: u32,
    stream: StreamName,
    events: Range<u64>,
    /// The types, by the index from which on the span tells them: what is before was left out of the index.
    types: (u64, Vec<String>),
}

/// One subscription.
#[derive(Debug)]
struct Cursor {
    store: Equinox,
    query: Query,
    reached: Reached,
    /// The partitions that are read.
    partitions: BTreeMap<u32, Partition>,
    handed: HashMap<String, Handed>,
    ready: VecDeque<Delivery>,
    moved: bool,
    looks: u32,
    pause: Duration,
    rings: watch::Receiver<()>,
}

impl Subscription for Cursor {
    async fn next(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            if self.fetch().await? {
                continue;
            }
            // Whatever rings from here on may have come too late for this look.
            let rung = self.rings.has_changed().unwrap_or(false);
            self.rings.mark_unchanged();
            // That all is caught up is said after a strong look at all partitions; whoever has said so may look at what is a moment old.
            let freshness = if self.moved || rung { Freshness::Strong } else { Freshness::Eventual };
            if self.look(freshness).await? {
                self.pause = SOON;
                continue;
            }
            if freshness == Freshness::Strong && std::mem::take(&mut self.moved) {
                return Ok(Delivery::CaughtUp { checkpoint: self.reached.seal() });
            }
            match tokio::time::timeout(self.pause, self.rings.changed()).await {
                Ok(_) => {
                    self.pause = SOON;
                    self.rings.mark_changed();
                }
                Err(_) => self.pause = (self.pause * 2).min(IDLE),
            }
        }
    }
}

impl Cursor {
    async fn start(store: Equinox, from: From, query: Query) -> Result<Cursor> {
        let rings = store.side().rings();
        let reached = match from {
            From::Start => Reached::new(BTreeMap::new()),
            From::Now => Reached::new(now(&store).await?),
            From::Checkpoint(checkpoint) => Reached::open(&checkpoint)?,
        };
        let from = |partition: &u32| Ok((*partition, Partition::from(reached.place(*partition)?)));
        let partitions = reached.partitions.keys().map(from).collect::<Result<_>>()?;
        let (ready, handed) = (VecDeque::new(), HashMap::new());
        Ok(Cursor { store, query, reached, partitions, handed, ready, moved: true, looks: 0, pause: SOON, rings })
    }

    /// What came in every partition of which nothing is ahead; whether anything did, or may at once.
    async fn look(&mut self, freshness: Freshness) -> Result<bool> {
        let op = self.store.side().dynamo().long_op();
        let idle = self.partitions.values().all(|partition| partition.ahead.is_empty());
        if idle {
            self.looks += 1;
        }
        if idle && (freshness == Freshness::Strong || self.looks.is_multiple_of(LOOKS)) {
            for partition in self.store.active_epochs(&op, freshness).await?.into_keys() {
                let place = self.reached.place(partition)?;
                self.partitions.entry(partition).or_insert_with(|| Partition::from(place));
            }
        }
        let (store, op) = (&self.store, &op);
        let dry = self.partitions.iter().filter(|(_, partition)| partition.ahead.is_empty());
        let dry: Vec<(u32, Place)> = dry.map(|(number, partition)| (*number, partition.next)).collect();
        let reads = dry.into_iter().map(|(number, from)| async move {
            let read = store.read_epoch(op, number, from, freshness).await?;
            Ok::<_, Error>((number, from, read))
        });
        let reads: Vec<_> = stream::iter(reads).buffered(STREAMS).try_collect().await?;
        for (number, from, read) in reads {
            // A closed epoch is followed by the next, whatever was read of it.
            let behind = match (read.closed, read.entries.last()) {
                (true, _) => Place::start_of(from.epoch + 1),
                (false, Some(last)) => Place { offset: last.place.offset + 1, ..from },
                (false, None) => from,
            };
            let count = read.entries.len();
            let ahead = read.entries.into_iter().zip(1..).map(|(noted, nth)| {
                let behind = if nth == count { behind } else { Place { offset: noted.place.offset + 1, ..noted.place } };
                Ahead { partition: number, noted, behind }
            });
            self.moved |= behind != from || count > 0;
            if behind != from && count == 0 {
                self.reached.pass(number, behind);
            }
            self.partitions.insert(number, Partition { next: behind, ahead: ahead.collect(), ended: !read.closed });
        }
        Ok(self.partitions.values().any(|partition| !partition.ahead.is_empty() || !partition.ended))
    }

    /// The partition whose next entry was handed over in part, before a resume. It goes first: a checkpoint has room for one such entry, so
    /// another's would forget how far this one had come.
    fn begun(&self) -> Option<u32> {
        let Within { partition, .. } = self.reached.within?;
        let next = self.partitions.get(&partition)?.ahead.front()?;
        (self.reached.partitions.get(&partition) == Some(&next.noted.place.number())).then_some(partition)
    }

    /// What was begun, then the next entry by one order of the times, those of one partition in their order; none as long as a partition must be
    /// read on first.
    fn first(&mut self) -> Option<&mut VecDeque<Ahead>> {
        if let Some(partition) = self.begun() {
            return self.partitions.get_mut(&partition).map(|partition| &mut partition.ahead);
        }
        if self.partitions.values().any(|partition| partition.ahead.is_empty() && !partition.ended) {
            return None;
        }
        let ahead = self.partitions.values_mut().map(|partition| &mut partition.ahead).filter(|ahead| !ahead.is_empty());
        ahead.min_by_key(|ahead| ahead.front().map(|next| next.noted.at))
    }

    /// The events of the next entries: as many as are to be held, of each stream by one run. False where none may be taken.
    async fn fetch(&mut self) -> Result<bool> {
        let mut count = 0;
        let mut taken = Vec::new();
        while let Some(ahead) = self.first() {
            let events = ahead.front().map_or(&[][..], |next| spans(&next.noted.entry)).iter().map(|span| span.types.len()).sum::<usize>();
            if count > 0 && count + events > EVENTS {
                break;
            }
            count += events;
            taken.extend(ahead.pop_front());
        }
        if taken.is_empty() {
            return Ok(false);
        }
        let pieces = self.pieces(&taken);
        let fetched = self.events_of(&taken, &pieces).await?;
        let mut of_entries: Vec<Vec<(u32, Recorded)>> = taken.iter().map(|_| Vec::new()).collect();
        for (piece, events) in pieces.iter().zip(fetched) {
            if let Some(of_entry) = of_entries.get_mut(piece.entry) {
                of_entry.extend(events.into_iter().map(|event| (piece.span, event)));
            }
        }
        for (Ahead { partition, noted, behind }, events) in taken.into_iter().zip(of_entries) {
            let last = events.len();
            for (nth, (span, event)) in events.into_iter().enumerate() {
                let mut reached = self.reached.clone();
                if nth + 1 == last {
                    reached.pass(partition, behind);
                } else {
                    reached.partitions.insert(partition, noted.place.number());
                    reached.within = Some(Within { partition, span, index: event.version.unwrap_or(0) });
                }
                self.ready.push_back(Delivery::Event { event: Box::new(event), checkpoint: reached.seal() });
            }
            self.reached.pass(partition, behind);
        }
        Ok(true)
    }

    /// What of these entries was not handed over, with what the index left out before it.
    fn pieces(&mut self, taken: &[Ahead]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (entry, Ahead { partition, noted, .. }) in taken.iter().enumerate() {
            let at = self.reached.partitions.get(partition).copied().unwrap_or(0);
            let within = self.reached.within.filter(|within| within.partition == *partition && at == noted.place.number());
            for (number, span) in (0..).zip(spans(&noted.entry)) {
                let begin = match within {
                    Some(within) if number < within.span => span.end(),
                    // Perhaps in the middle of what the index left out before it.
                    Some(within) if number == within.span => within.index,
                    _ => span.index,
                };
                let Ok(stream) = StreamName::new(&span.stream) else {
                    tracing::error!(
                        partition,
                        place = noted.place.number(),
                        bytes = span.stream.len(),
                        "a stream's name is none here: its events are passed over"
                    );
                    metrics::counter!("fencepost_equinox_missing_events_total").increment(span.types.len() as u64);
                    continue;
                };
                let (parts, handed) = parts(self.handed.get(&span.stream).copied(), begin.min(span.end())..span.end());
                if self.handed.len() < REMEMBERED || self.handed.contains_key(&span.stream) {
                    self.handed.insert(span.stream.clone(), handed);
                }
                for events in parts {
                    if events.start < span.index && begin >= span.index {
                        tracing::error!(%stream, from = events.start, to = span.index, "the index left events out: run `fencepost index rebuild`");
                        metrics::counter!("fencepost_equinox_index_holes_total").increment(1);
                    }
                    let types = (span.index, span.types.clone());
                    pieces.push(Piece { entry, span: number, stream: stream.clone(), events, types });
                }
            }
        }
        pieces
    }

    /// Of each piece the events that match. Of one stream all at once.
    async fn events_of(&self, taken: &[Ahead], pieces: &[Piece]) -> Result<Vec<Vec<Recorded>>> {
        let tag = |stream: &StreamName| [Tag::from(stream)];
        let mut wanted: BTreeMap<StreamName, Range<u64>> = BTreeMap::new();
        let mut matching: Vec<Vec<u64>> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let tags = tag(&piece.stream);
            let matches = |index: &u64| match piece.event_type(*index) {
                Some(event_type) => self.query.matches(&event_type, &tags),
                // Only the event itself can tell.
                None => true,
            };
            let indexes: Vec<u64> = piece.events.clone().filter(matches).collect();
            if let (Some(first), Some(last)) = (indexes.first(), indexes.last()) {
                let range = wanted.entry(piece.stream.clone()).or_insert(*first..*last + 1);
                *range = range.start.min(*first)..range.end.max(*last + 1);
            }
            matching.push(indexes);
        }
        if self.store.options().fed == Fed::Types {
            return self.announced(taken, pieces, matching).await;
        }
        // What came just now is in Tips; what is read from behind lies mostly in calves.
        let now = self.store.side().dynamo().env().now();
        let young = |piece: &&Piece| taken.get(piece.entry).is_some_and(|ahead| now.duration_since(ahead.noted.at) < YOUNG);
        let young: HashSet<StreamName> = pieces.iter().filter(young).map(|piece| piece.stream.clone()).collect();
        let (op, young) = (&self.store.side().dynamo().long_op(), &young);
        let reads = wanted.into_iter().map(|(stream, range)| async move {
            let first = if young.contains(&stream) { First::Tip } else { First::Calves };
            let events = self.store.events_between(op, &stream, range, first).await?;
            let by_index: HashMap<u64, Recorded> =
                events.into_iter().filter_map(|event| Some((event.version?.checked_sub(1)?, event))).collect();
            Ok::<_, Error>((stream, by_index))
        });
        let fetched: HashMap<StreamName, HashMap<u64, Recorded>> = stream::iter(reads).buffer_unordered(STREAMS).try_collect().await?;
        let of_piece = |(piece, indexes): (&Piece, Vec<u64>)| {
            let events = fetched.get(&piece.stream);
            let found = indexes.into_iter().filter_map(|index| events?.get(&index));
            found.filter(|event| self.query.matches(&event.event_type, &event.tags)).cloned().collect()
        };
        Ok(pieces.iter().zip(matching).map(of_piece).collect())
    }

    /// What the index tells of each piece. Of what it left out the table tells the types: nobody else will, once the place behind it is reached.
    async fn announced(&self, taken: &[Ahead], pieces: &[Piece], matching: Vec<Vec<u64>>) -> Result<Vec<Vec<Recorded>>> {
        let op = self.store.side().dynamo().long_op();
        let mut all = Vec::with_capacity(pieces.len());
        for (piece, indexes) in pieces.iter().zip(matching) {
            let at = taken.get(piece.entry).map(|ahead| ahead.noted.at).unwrap_or_default();
            let (tags, left_out) = ([Tag::from(&piece.stream)], piece.events.start..piece.types.0.min(piece.events.end));
            let found = match left_out.is_empty() {
                true => Vec::new(),
                false => self.store.types_between(&op, piece.stream.as_str(), left_out.clone()).await?,
            };
            let first = left_out.end.saturating_sub(found.len() as u64);
            let of_table = |index: u64| EventType::new(found.get(usize::try_from(index.checked_sub(first)?).ok()?)?).ok();
            let known = indexes.into_iter().filter_map(|index| Some((index, piece.event_type(index).or_else(|| of_table(index))?)));
            let asked = known.filter(|(_, event_type)| self.query.matches(event_type, &tags));
            all.push(asked.map(|(index, event_type)| self.store.announced(&piece.stream, index, event_type, at)).collect());
        }
        Ok(all)
    }
}

impl Partition {
    fn from(next: Place) -> Partition {
        Partition { next, ahead: VecDeque::new(), ended: false }
    }
}

impl Piece {
    /// As its span tells it; none where that is not known.
    fn event_type(&self, index: u64) -> Option<EventType> {
        let at = usize::try_from(index.checked_sub(self.types.0)?).ok()?;
        EventType::new(self.types.1.get(at)?).ok()
    }
}

fn spans(entry: &Entry) -> &[Span] {
    match entry {
        Entry::Ingested(spans) => spans,
        Entry::Closed | Entry::Other | Entry::Unread => &[],
    }
}

/// What of a span is to be handed over, and what was handed over then. What is before all that was is late, and comes now; what was left
/// out between comes with what follows it.
fn parts(handed: Option<Handed>, span: Range<u64>) -> (Vec<Range<u64>>, Handed) {
    let Some((low, next)) = handed else { return (vec![span.clone()], (span.start, span.end)) };
    let mut parts = Vec::new();
    let mut now = (low, next);
    if span.start < low {
        parts.push(span.start..span.end.min(low));
        if span.end >= low {
            now.0 = span.start;
        }
    }
    if span.end > next {
        parts.push(next..span.end);
        now.1 = span.end;
    }
    parts.retain(|part| !part.is_empty());
    (parts, now)
}

/// Where every partition ends now.
pub(crate) async fn now(store: &Equinox) -> Result<BTreeMap<u32, u64>> {
    let op = store.side().dynamo().long_op();
    let mut partitions = BTreeMap::new();
    for (partition, mut epoch) in store.active_epochs(&op, Freshness::Strong).await? {
        let place = loop {
            // Beyond its end: only whether it is closed is looked at, and how long it is.
            let beyond = Place { epoch, offset: u32::MAX };
            let read = store.read_epoch(&op, partition, beyond, Freshness::Strong).await?;
            if !read.closed {
                break Place { epoch, offset: u32::try_from(read.version).unwrap_or(u32::MAX) };
            }
            epoch += 1;
        };
        partitions.insert(partition, place.number());
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_over_is_not_again_and_what_was_left_out_is() {
        let parts = |handed, span| {
            let (parts, handed) = parts(handed, span);
            (parts.into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>(), handed)
        };
        assert_eq!(parts(None, 3..5), (vec![(3, 5)], (3, 5)));
        assert_eq!(parts(Some((0, 5)), 2..5), (vec![], (0, 5)), "again");
        assert_eq!(parts(Some((0, 5)), 4..7), (vec![(5, 7)], (0, 7)), "in part");
        assert_eq!(parts(Some((0, 5)), 8..9), (vec![(5, 9)], (0, 9)), "a hole");
        assert_eq!(parts(Some((4, 9)), 2..6), (vec![(2, 4)], (2, 9)), "late");
        assert_eq!(parts(Some((4, 9)), 1..2), (vec![(1, 2)], (4, 9)), "late, and not joined");
        assert_eq!(parts(Some((4, 6)), 1..8), (vec![(1, 4), (6, 8)], (1, 8)), "late, and new");
    }
}
