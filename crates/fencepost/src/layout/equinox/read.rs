//! Loading and reading: the Tip, and calves only as far down as they are needed.

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use uuid::Uuid;

use super::item::{self, Batch, HASH, RANGE, Stored, TIP, Tip};
use super::settings::check_name;
use super::{Equinox, LAYOUT};
use crate::dynamo::item::{Item, number, text};
use crate::dynamo::{Find, Freshness, Key, Op, Range};
use crate::error::{Error, Result};
use crate::event::{CommitId, Recorded, StreamName, Tag};
use crate::log::{Consistency, Direction};
use crate::position::{Position, Token};
use crate::side::began::at_stream;
use crate::state::check_name as check_snapshot;
use crate::stream::{LoadOptions, Loaded, Origin, Snapshot, StreamReadOptions};

/// What a token holds: how many events there were, and what the Tip was then.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Held {
    stream: String,
    pub(super) version: u64,
    pub(super) etag: String,
}

impl Held {
    pub(super) fn seal(stream: &StreamName, tip: Option<&Tip>) -> Token {
        let (version, etag) = tip.map_or((0, String::new()), |tip| (tip.batch.next, tip.etag.clone()));
        Token::seal(LAYOUT, &Held { stream: stream.as_str().into(), version, etag })
    }
    pub(super) fn open(token: &Token, stream: &StreamName) -> Result<Held> {
        let held: Held = token.open(LAYOUT)?;
        at_stream("token", &held.stream, stream)?;
        Ok(held)
    }
}

pub(super) fn freshness(consistency: Consistency) -> Freshness {
    match consistency {
        Consistency::Strong => Freshness::Strong,
        Consistency::Eventual => Freshness::Eventual,
    }
}

/// The peers store no ids and no positions: both follow from the stream's name and the event's version.
pub(super) fn position(stream: &StreamName, version: u64) -> Position {
    identity(stream, version).0
}

/// The position and the id that follow. Every event counts as a commit: which of them were appended together is not stored.
pub(super) fn identity(stream: &StreamName, version: u64) -> (Position, Uuid) {
    let id = Uuid::new_v5(&stream_id(stream), &version.to_be_bytes());
    (Position::stamped(version, CommitId(id), 0), id)
}

fn stream_id(stream: &StreamName) -> Uuid {
    const STREAMS: Uuid = Uuid::from_u128(0x65_71_75_69_6e_6f_78_2d_73_74_72_65_61_6d_73_31);
    Uuid::new_v5(&STREAMS, stream.as_str().as_bytes())
}

/// An event at its index, which is its version less one.
pub(super) fn recorded(stream: &StreamName, index: u64, stored: &Stored) -> Result<Recorded> {
    let read = stored.read().map_err(|m| Error::corrupt(LAYOUT, format!("{stream}, event {index}: {}", m.0)))?;
    let version = index + 1;
    let (position, id) = identity(stream, version);
    let id = read.id.unwrap_or(id);
    let mut event = Recorded::new(position, id, read.kind, read.data, vec![Tag::from(stream)], read.meta, read.at);
    event.version = Some(version);
    Ok(event)
}

fn all(stream: &StreamName, base: u64, events: &[Stored]) -> impl Iterator<Item = Result<Recorded>> {
    (base..).zip(events).map(move |(index, event)| recorded(stream, index, event))
}

impl Equinox {
    pub(super) async fn tip(&self, op: &Op, stream: &StreamName, freshness: Freshness) -> Result<Option<Tip>> {
        let found = self.dynamo().get(op, self.table(), item::key(stream.as_str(), TIP), freshness).await?;
        let tip = found.as_ref().map(item::tip).transpose()?;
        if freshness == Freshness::Strong {
            self.remember(stream, tip.as_ref());
        }
        Ok(tip)
    }

    pub(super) async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        check_name(stream)?;
        let freshness = freshness(options.consistency);
        if let Some(since) = &options.since {
            let held = Held::open(since, stream)?;
            let tip = self.tip(op, stream, freshness).await?;
            let unchanged = tip.as_ref().is_some_and(|tip| tip.etag == held.etag && tip.batch.next == held.version);
            let from = if unchanged { tip.as_ref().map_or(0, |tip| tip.batch.next) } else { held.version };
            let events = self.from(op, stream, from, tip.as_ref(), freshness).await?;
            return Ok(loaded(stream, op, Vec::new(), events, tip.as_ref()));
        }
        match &options.origin {
            Origin::Start => self.load_all(op, stream, freshness).await,
            Origin::Latest => {
                let tip = self.tip(op, stream, freshness).await?;
                let last = tip.as_ref().map_or(0, |tip| tip.batch.next.saturating_sub(1));
                let events = self.from(op, stream, last, tip.as_ref(), freshness).await?;
                Ok(loaded(stream, op, Vec::new(), events, tip.as_ref()))
            }
            Origin::Snapshot(names) => {
                for name in names {
                    check_snapshot("snapshot name", name)?;
                }
                let tip = self.tip(op, stream, freshness).await?;
                let unfolds = tip.iter().flat_map(|tip| &tip.unfolds).filter(|unfold| names.contains(&unfold.kind));
                let mut snapshots = Vec::new();
                for unfold in unfolds {
                    let state = unfold.state().map_err(|m| Error::corrupt(LAYOUT, format!("{stream}, unfold {}: {}", unfold.kind, m.0)))?;
                    snapshots.push(Snapshot::at(&unfold.kind, unfold.version, state));
                }
                let from = snapshots.iter().map(|snapshot| snapshot.version).max().unwrap_or(0);
                let events = self.from(op, stream, from, tip.as_ref(), freshness).await?;
                Ok(loaded(stream, op, snapshots, events, tip.as_ref()))
            }
        }
    }

    /// Everything, by one run over calves and Tip.
    async fn load_all(&self, op: &Op, stream: &StreamName, freshness: Freshness) -> Result<Loaded> {
        let find = Find { freshness, limit: Some(self.page()), ..self.whole(stream) };
        let (mut batches, mut tip): (Vec<Batch>, _) = (Vec::new(), None);
        let mut items = std::pin::pin!(self.dynamo().items(op, find));
        while let Some(item) = items.try_next().await? {
            if item::is_tip(&item) {
                tip = Some(item::tip(&item)?);
            } else {
                batches.push(item::batch(&item)?);
            }
        }
        let Some(tip) = tip else {
            if batches.is_empty() {
                self.remember(stream, None);
                return Ok(loaded(stream, op, Vec::new(), Vec::new(), None));
            }
            return Err(Error::corrupt(LAYOUT, format!("{stream}: calves without a Tip")));
        };
        if freshness == Freshness::Strong {
            self.remember(stream, Some(&tip));
        }
        let lowest = joined(stream, &batches, &tip.batch)?;
        let mut archived = self.archived(op, stream, 0, lowest, freshness).await?;
        archived.extend(batches);
        let events = archived.iter().chain([&tip.batch]).flat_map(|batch| all(stream, batch.base(), &batch.events));
        let events = events.collect::<Result<Vec<_>>>()?;
        Ok(loaded(stream, op, Vec::new(), events, Some(&tip)))
    }

    /// Events from this index on: of the Tip, and of calves only where they are needed, from the newest down.
    pub(super) async fn from(
        &self,
        op: &Op,
        stream: &StreamName,
        from: u64,
        tip: Option<&Tip>,
        freshness: Freshness,
    ) -> Result<Vec<Recorded>> {
        let Some(tip) = tip else { return Ok(Vec::new()) };
        let batches = if from < tip.batch.base() { self.calves_down_to(op, stream, from, tip, freshness).await? } else { Vec::new() };
        let events = batches.iter().chain([&tip.batch]).flat_map(|batch| all(stream, batch.base(), &batch.events));
        events.filter(|event| event.as_ref().map_or(true, |event| event.version > Some(from))).collect()
    }

    /// The calves, and what was archived, that hold this index and all behind it, up to the Tip.
    pub(super) async fn calves_down_to(
        &self,
        op: &Op,
        stream: &StreamName,
        from: u64,
        tip: &Tip,
        freshness: Freshness,
    ) -> Result<Vec<Batch>> {
        let find = Find { freshness, reverse: true, ..self.whole(stream) };
        let mut find = find.range(Range::Before(RANGE.into(), number(tip.batch.base())));
        let (mut batches, mut start): (Vec<Batch>, _) = (Vec::new(), None);
        for page in 0.. {
            // Every calf is paid for whole: few at first, since mostly the last one will do.
            find.limit = Some(self.page().min(1 << page.min(16)));
            let (items, after) = self.dynamo().page(op, &find, start).await?;
            for item in &items {
                batches.push(item::batch(item)?);
            }
            start = after;
            if start.is_none() || batches.last().is_some_and(|batch| batch.base() <= from) {
                break;
            }
        }
        batches.reverse();
        let lowest = joined(stream, &batches, &tip.batch)?;
        let mut archived = self.archived(op, stream, from, lowest, freshness).await?;
        archived.extend(batches);
        Ok(archived)
    }

    /// Batches below this index, from where they were kept when they were pruned.
    async fn archived(&self, op: &Op, stream: &StreamName, from: u64, below: u64, freshness: Freshness) -> Result<Vec<Batch>> {
        if from >= below {
            return Ok(Vec::new());
        }
        let pruned = |what: String| Error::corrupt(LAYOUT, format!("{stream}: {what}"));
        let Some(archive) = self.archive() else {
            return Err(pruned(format!("events before {below} are not there; if they were pruned to another table, give it as &archive=")));
        };
        let find = Find { freshness, ..Find::new(archive, HASH, text(stream.as_str())) }.range(Range::Before(RANGE.into(), number(below)));
        let items: Vec<Item> = self.dynamo().items(op, find).try_collect().await?;
        let batches = items.iter().map(item::batch).collect::<Result<Vec<_>>>()?;
        let end = Batch { next: below, events: Vec::new() };
        let lowest = joined(stream, &batches, &end)?;
        if lowest > from {
            return Err(pruned(format!("events before {lowest} are not in the archive")));
        }
        Ok(batches)
    }

    fn whole(&self, stream: &StreamName) -> Find {
        Find::new(self.table(), HASH, text(stream.as_str()))
    }

    /// Events, lazily. One that cannot be decoded is an error in its place, and the rest follows.
    pub(super) fn read_lazily<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let backwards = options.direction == Direction::Backwards;
        let start = async move {
            check_name(stream)?;
            let op = self.dynamo().long_op();
            let freshness = freshness(options.consistency);
            let find = Find { freshness, reverse: backwards, limit: Some(self.page()), ..self.whole(stream) };
            let find = match (options.after, backwards) {
                (None, _) => find,
                // The calf that holds the event behind it begins at or below it; the Tip sorts last, wherever it begins.
                (Some(after), false) => match self.begins(&op, stream, after, freshness).await? {
                    Some(base) => find.range(Range::From(RANGE.into(), number(base))),
                    None => find,
                },
                (Some(_), true) => find,
            };
            Ok::<_, Error>(stream::try_unfold((op, find, Some(None::<Key>), None), move |(op, find, next, expected)| async move {
                let Some(start) = next else { return Ok(None) };
                let (items, after) = self.dynamo().page(&op, &find, start).await?;
                let (events, expected) = run(stream, &items, expected, backwards)?;
                Ok(Some((stream::iter(events), (op, find, after.map(Some), expected))))
            }))
        };
        let events = stream::once(start).try_flatten().flat_map(|page| match page {
            Ok(events) => events.left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        });
        let wanted = move |event: &Result<Recorded>| match (event, options.after) {
            (Ok(event), Some(after)) if backwards => event.version < Some(after),
            (Ok(event), Some(after)) => event.version > Some(after),
            _ => true,
        };
        let events = events.filter(move |event| futures::future::ready(wanted(event)));
        match options.limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events.boxed(),
        }
    }

    /// Where the last calf begins that begins at or below this index.
    async fn begins(&self, op: &Op, stream: &StreamName, index: u64, freshness: Freshness) -> Result<Option<u64>> {
        let find = Find { freshness, reverse: true, limit: Some(1), ..self.whole(stream) };
        let find = find.range(Range::Before(RANGE.into(), number(index.saturating_add(1).min(TIP))));
        let (items, _) = self.dynamo().page(op, &find, None).await?;
        items.first().map(|item| Ok(item::batch(item)?.base())).transpose()
    }
}

fn loaded(stream: &StreamName, op: &Op, snapshots: Vec<Snapshot>, events: Vec<Recorded>, tip: Option<&Tip>) -> Loaded {
    let version = tip.map_or(0, |tip| tip.batch.next);
    Loaded::new(snapshots, events, version, Held::seal(stream, tip), op.units())
}

/// Each batch goes on where the one before it ended, up to the last: a gap in the middle would be a wrong state. The lowest index.
fn joined(stream: &StreamName, batches: &[Batch], last: &Batch) -> Result<u64> {
    let mut expected = last.base();
    for batch in batches.iter().rev() {
        if batch.next != expected {
            return Err(Error::corrupt(LAYOUT, format!("{stream}: events {} to {} are missing", batch.next, expected.saturating_sub(1))));
        }
        expected = batch.base();
    }
    Ok(expected)
}

/// The events of a page in the order of reading, and where the next page must go on. The first batch may begin anywhere: below it is pruned.
#[expect(clippy::type_complexity, reason = "a page's events, and one number")]
fn run(stream: &StreamName, items: &[Item], mut expected: Option<u64>, backwards: bool) -> Result<(Vec<Result<Recorded>>, Option<u64>)> {
    let mut events = Vec::new();
    for item in items {
        let batch = item::batch(item)?;
        let (enters, leaves) = if backwards { (batch.next, batch.base()) } else { (batch.base(), batch.next) };
        if let Some(expected) = expected
            && expected != enters
        {
            return Err(Error::corrupt(LAYOUT, format!("{stream}: events between {expected} and {enters} are missing")));
        }
        expected = Some(leaves);
        let mut of_batch: Vec<_> = all(stream, batch.base(), &batch.events).collect();
        if backwards {
            of_batch.reverse();
        }
        events.extend(of_batch);
    }
    Ok((events, expected))
}
