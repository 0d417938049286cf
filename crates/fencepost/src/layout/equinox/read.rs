//! Loading and reading: the Tip, and calves only as far down as they are needed.

use futures::TryStreamExt;
use uuid::Uuid;

use super::item::{self, Batch, HASH, RANGE, Stored, TIP, Tip, Unfold};
use super::settings::{Missing, check_name};
use super::{Equinox, LAYOUT};
use crate::dynamo::item::{number, text};
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{CommitId, Recorded, StreamName, Tag};
use crate::log::Consistency;
use crate::position::{Position, Token};
use crate::side::began::at_stream;
use crate::stream::{LoadOptions, Loaded, Origin, Snapshot};

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
    /// Whether not even a Tip was there.
    pub(super) fn is_nothing(&self) -> bool {
        self.version == 0 && self.etag.is_empty()
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

/// Those of a batch from this index on.
pub(super) fn all(stream: &StreamName, batch: &Batch, from: u64) -> impl DoubleEndedIterator<Item = Result<Recorded>> {
    let skipped = usize::try_from(from.saturating_sub(batch.base())).unwrap_or(usize::MAX).min(batch.events.len());
    let base = batch.base() + skipped as u64;
    let events = batch.events.get(skipped..).unwrap_or_default();
    events.iter().enumerate().map(move |(at, event)| recorded(stream, base + at as u64, event))
}

impl Equinox {
    pub(super) async fn tip(&self, op: &Op, stream: &StreamName, freshness: Freshness) -> Result<Option<Tip>> {
        // The last item, which costs no more than the Tip by its key: calves without a Tip must not be taken for nothing.
        let find = Find { freshness, reverse: true, limit: Some(1), ..self.whole(stream) };
        let (found, _) = self.dynamo().page(op, &find, None).await?;
        if found.first().is_some_and(|item| !item::is_tip(item)) {
            // A replica may not have it yet.
            return match freshness {
                Freshness::Eventual => Box::pin(self.tip(op, stream, Freshness::Strong)).await,
                Freshness::Strong => Err(without_a_tip(stream)),
            };
        }
        let tip = found.first().map(item::tip).transpose()?;
        if freshness == Freshness::Strong {
            self.remember(stream, tip.as_ref());
        }
        Ok(tip)
    }

    pub(super) async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        check_name(stream)?;
        let freshness = freshness(options.consistency);
        match self.load_with(op, stream, options, freshness).await {
            // A replica may lack one item of several that belong together; and a prune may delete some between two pages.
            Err(Error::Corrupt(_)) => self.load_with(op, stream, options, Freshness::Strong).await,
            loaded => loaded,
        }
    }

    async fn load_with(&self, op: &Op, stream: &StreamName, options: &LoadOptions, freshness: Freshness) -> Result<Loaded> {
        if let Some(since) = &options.since {
            let held = Held::open(since, stream)?;
            let mut tip = self.tip(op, stream, freshness).await?;
            let is_behind = |tip: &Option<Tip>| tip.as_ref().map_or(0, |tip| tip.batch.next) < held.version;
            if is_behind(&tip) && freshness == Freshness::Eventual {
                // Older than what the caller has seen: its events would come twice.
                tip = self.tip(op, stream, Freshness::Strong).await?;
            }
            if is_behind(&tip) {
                let of = format!("a stream {stream} that was longer");
                return Err(Refused::Foreign { what: "token", of, here: "this table, which was made anew or restored".into() }.into());
            }
            let changed = tip.as_ref().is_some_and(|tip| tip.etag != held.etag || tip.batch.next != held.version);
            // A snapshot at the same version is news too: of a state that is kept in no other place.
            let snapshots = if changed { named(stream, tip.as_ref(), &options.origin)? } else { Vec::new() };
            let snapshots: Vec<_> = snapshots.into_iter().filter(|snapshot| snapshot.version >= held.version).collect();
            let from = snapshots.iter().map(|snapshot| snapshot.version).max().unwrap_or(held.version);
            let events = self.from(op, stream, from, tip.as_ref(), freshness).await?;
            return Ok(loaded(stream, op, snapshots, events, tip.as_ref()));
        }
        if options.origin == Origin::Start {
            return self.load_all(op, stream, freshness).await;
        }
        let tip = self.tip(op, stream, freshness).await?;
        let snapshots = named(stream, tip.as_ref(), &options.origin)?;
        let next = tip.as_ref().map_or(0, |tip| tip.batch.next);
        if options.origin == Origin::Latest
            && let Some(tip) = tip.as_ref().filter(|tip| tip.batch.events.is_empty() && next > 0)
            && let Some(kept) = tip.unfolds.iter().filter(|unfold| unfold.version == next).find_map(Unfold::as_event)
        {
            // The last event is in a calf, or pruned, and kept here.
            let event = recorded(stream, next - 1, &kept)?;
            return Ok(loaded(stream, op, snapshots, vec![event], Some(tip)));
        }
        let from = match options.origin {
            Origin::Latest => next.saturating_sub(1),
            _ => snapshots.iter().map(|snapshot| snapshot.version).max().unwrap_or(0),
        };
        let events = match (self.from(op, stream, from, tip.as_ref(), freshness).await, tip.as_ref()) {
            // Pruned, and kept by F#, whose copy of the last event bears no mark: it is the only unfold.
            (Err(corrupt @ Error::Corrupt(_)), Some(tip)) if options.origin == Origin::Latest && tip.batch.events.is_empty() => {
                match tip.unfolds.as_slice() {
                    [kept] if kept.version == next => vec![recorded(stream, next - 1, &kept.copied())?],
                    _ => return Err(corrupt),
                }
            }
            (events, _) => events?,
        };
        Ok(loaded(stream, op, snapshots, events, tip.as_ref()))
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
            return Err(without_a_tip(stream));
        };
        if freshness == Freshness::Strong {
            self.remember(stream, Some(&tip));
        }
        let batches = self.join(op, stream, batches, &tip.batch, 0).await?;
        let events = batches.iter().chain([&tip.batch]).flat_map(|batch| all(stream, batch, 0));
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
        let batches = self.calves_down_to(op, stream, from, tip, freshness).await?;
        let events = batches.iter().chain([&tip.batch]).flat_map(|batch| all(stream, batch, from));
        events.collect()
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
        let base = tip.batch.base();
        if from >= base {
            return Ok(Vec::new());
        }
        let batches = self.down_to(op, self.whole(stream), from, base, freshness).await?;
        self.join(op, stream, batches, &tip.batch, from).await
    }

    /// The batches below one index that hold another and all behind it, as far as they are there.
    async fn down_to(&self, op: &Op, find: Find, from: u64, below: u64, freshness: Freshness) -> Result<Vec<Batch>> {
        let mut find = Find { freshness, reverse: true, ..find }.range(Range::Before(RANGE.into(), number(below)));
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
        Ok(batches)
    }

    /// Calves and Tip were not read at one instant, and a write of both may be seen in part: what is not there yet is read again, strongly.
    /// Then a gap is a gap, and below the lowest is the archive.
    async fn join(&self, op: &Op, stream: &StreamName, mut calves: Vec<Batch>, tip: &Batch, from: u64) -> Result<Vec<Batch>> {
        let reached = calves.last().map_or(from, |calf| calf.next);
        if reached < tip.base() {
            calves.extend(self.down_to(op, self.whole(stream), reached, tip.base(), Freshness::Strong).await?);
        }
        let lowest = joined(stream, &calves, tip.base())?;
        let mut batches = self.archived(op, stream, from, lowest).await?;
        batches.extend(calves);
        Ok(batches)
    }

    /// Batches below this index, from where they were kept when they were pruned.
    pub(super) async fn archived(&self, op: &Op, stream: &StreamName, from: u64, below: u64) -> Result<Vec<Batch>> {
        if from >= below {
            return Ok(Vec::new());
        }
        let archive = Find::new(self.archive(), HASH, text(stream.as_str()));
        let batches = match self.down_to(op, archive, from, below, Freshness::Strong).await {
            Err(Error::Unavailable(gone)) if gone.reason == Reason::Missing => None,
            batches => Some(batches?),
        };
        let mut batches = match batches {
            None => Vec::new(),
            Some(mut batches) => {
                let reached = batches.last().map_or(0, |last| last.next);
                batches.extend(self.archive_tip(op, stream.as_str(), reached, below).await?);
                batches
            }
        };
        // What was kept may reach further than what was pruned.
        batches.iter_mut().for_each(|batch| batch.cut(below));
        let lowest = if batches.is_empty() { below } else { joined(stream, &batches, below)? };
        if lowest > from && self.missing() == Missing::Refused {
            return Err(pruned(stream, lowest, self.archive()));
        }
        Ok(batches)
    }

    /// What the archive's own Tip has below this index, where its calves do not reach: a stream that was copied as it was.
    pub(super) async fn archive_tip(&self, op: &Op, stream: &str, reached: u64, below: u64) -> Result<Option<Batch>> {
        if reached >= below {
            return Ok(None);
        }
        let tip = self.dynamo().get(op, self.archive(), item::key(stream, TIP), Freshness::Strong).await?;
        let mut tip = tip.as_ref().map(item::batch).transpose()?;
        tip.iter_mut().for_each(|tip| tip.cut(below));
        Ok(tip.filter(|tip| !tip.events.is_empty()))
    }

    pub(super) fn whole(&self, stream: &StreamName) -> Find {
        Find::new(self.table(), HASH, text(stream.as_str()))
    }
}

pub(super) fn without_a_tip(stream: &StreamName) -> Error {
    Error::corrupt(LAYOUT, format!("{stream}: calves without a Tip"))
}

/// What was asked for is no longer there.
pub(super) fn pruned(stream: &StreamName, lowest: u64, archive: &str) -> Error {
    let remedy = "read from there on, name the table that has them by &archive=, or pass over them by &missing=ignored";
    Error::corrupt(LAYOUT, format!("{stream}: the events before version {} were pruned, and are not in {archive}: {remedy}", lowest + 1))
}

/// The snapshots of the Tip that were asked for, in the order in which they lie.
fn named(stream: &StreamName, tip: Option<&Tip>, origin: &Origin) -> Result<Vec<Snapshot>> {
    let Origin::Snapshot(names) = origin else { return Ok(Vec::new()) };
    let asked = tip.into_iter().flat_map(|tip| &tip.unfolds).filter(|unfold| names.contains(&unfold.kind));
    asked.map(|unfold| snapshot(stream, unfold)).collect()
}

pub(super) fn snapshot(stream: &StreamName, unfold: &Unfold) -> Result<Snapshot> {
    let state = unfold.state().map_err(|m| Error::corrupt(LAYOUT, format!("{stream}, unfold {}: {}", unfold.kind, m.0)))?;
    Ok(Snapshot::at(&unfold.kind, unfold.version, state))
}

fn loaded(stream: &StreamName, op: &Op, snapshots: Vec<Snapshot>, events: Vec<Recorded>, tip: Option<&Tip>) -> Loaded {
    let version = tip.map_or(0, |tip| tip.batch.next);
    Loaded::new(snapshots, events, version, Held::seal(stream, tip), op.units())
}

/// Each batch goes on where the one before it ended, up to this index: a gap in the middle would be a wrong state. The lowest index.
pub(super) fn joined(stream: &StreamName, batches: &[Batch], end: u64) -> Result<u64> {
    let mut expected = end;
    for batch in batches.iter().rev() {
        if batch.next != expected {
            return Err(gap(stream, batch.next, expected));
        }
        expected = batch.base();
    }
    Ok(expected)
}

pub(super) fn gap(stream: &StreamName, from: u64, to: u64) -> Error {
    let (from, to) = (from.min(to), from.max(to));
    Error::corrupt(LAYOUT, format!("{stream}: events {from} to {} are missing, or there twice", to.saturating_sub(1)))
}
