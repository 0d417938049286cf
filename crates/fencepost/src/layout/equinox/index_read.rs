//! Reading the index, and the events that its spans name: from the newest calf that holds them down, never those before.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::Timestamp;

use super::index::{self, Entry, Place};
use super::item::{self, Batch, HASH, RANGE, Stored, TIP, Tip};
use super::read::{identity, recorded};
use super::{Equinox, LAYOUT};
use crate::dynamo::item::{number, text};
use crate::dynamo::{Find, Freshness, Op, Range as Keys};
use crate::error::{Error, Reason, Result};
use crate::event::{EventType, Metadata, Recorded, StreamName, Tag};
use crate::position::Position;

/// A part of an epoch, from a place on.
#[derive(Debug, Default)]
pub(crate) struct EpochRead {
    pub(crate) entries: Vec<Noted>,
    /// The events of its stream so far.
    pub(crate) version: u64,
    pub(crate) closed: bool,
    /// As it was read; none: nothing is there.
    pub(super) tip: Option<Tip>,
}

/// An entry, where it stands, and when it was put.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) place: Place,
    pub(crate) at: Timestamp,
    pub(crate) entry: Entry,
}

/// Where events are looked for first: each costs its whole size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// Events that were appended just now are there.
    Tip,
    /// Of a long stream nearly all are there.
    Calves,
}

impl Equinox {
    /// The active epoch of each partition that was ever started, and of partition 0, of which equinox-js never says so.
    pub(crate) async fn active_epochs(&self, op: &Op, freshness: Freshness) -> Result<BTreeMap<u32, u32>> {
        let tip = self.index().tip(op, &index::active_stream()?, freshness).await?;
        let mut active = self.active_by(op, tip.as_ref()).await?;
        active.entry(0).or_insert(0);
        Ok(active)
    }

    /// What this Tip says of the active epochs.
    pub(super) async fn active_by(&self, op: &Op, tip: Option<&Tip>) -> Result<BTreeMap<u32, u32>> {
        let (Some(tip), stream) = (tip, index::active_stream()?) else { return Ok(BTreeMap::new()) };
        let active = if index::has_snapshot(tip) {
            index::active(&tip.unfolds, &tip.batch.events)
        } else {
            index::active(&[], &self.index().stored_from(op, &stream, 0, tip).await?.1)
        };
        active.map_err(|m| Error::corrupt(LAYOUT, format!("{stream}: {}", m.0)))
    }

    /// An epoch from a place in it on. A Tip that is a moment old will do for whoever asks again; what is behind it is read strongly.
    /// An entry that cannot be decoded is told and stands for nothing: it would stop everybody, for good.
    pub(crate) async fn read_epoch(&self, op: &Op, partition: u32, from: Place, freshness: Freshness) -> Result<EpochRead> {
        let (index, stream) = (self.index(), index::epoch_stream(partition, from.epoch)?);
        let Some(tip) = index.tip(op, &stream, freshness).await? else { return Ok(EpochRead::default()) };
        let version = tip.batch.next;
        let offset = u64::from(from.offset);
        // The last event tells whether more can come, whatever is new.
        let lowest = offset.min(version.saturating_sub(1));
        let mut batches =
            if lowest < tip.batch.base() { index.calves_down_to(op, &stream, lowest, &tip, Freshness::Strong).await? } else { Vec::new() };
        batches.push(tip.batch.clone());
        let mut read = EpochRead { version, tip: Some(tip), ..EpochRead::default() };
        let mut time = Timestamp::UNIX_EPOCH;
        for (at, stored) in batches.iter().flat_map(|batch| (batch.base()..).zip(&batch.events)).filter(|(at, _)| *at >= lowest) {
            let corrupt = |why: String| Error::corrupt(LAYOUT, format!("{stream}, event {at}: {why}"));
            let entry = index::entry(stored);
            read.closed = entry == Ok(Entry::Closed);
            // One that does not say when stands where the one before it does.
            time = stored.at().unwrap_or(time);
            if at >= offset {
                let offset = u32::try_from(at).map_err(|_| corrupt("more events than an epoch can have".into()))?;
                let entry = entry.unwrap_or_else(|malformed| {
                    tracing::error!(%stream, event = at, why = malformed.0, "an entry of the index cannot be read, and is passed over: run `fencepost index rebuild`");
                    metrics::counter!("fencepost_equinox_unread_entries_total").increment(1);
                    Entry::Unread
                });
                read.entries.push(Noted { place: Place { offset, ..from }, at: time, entry });
            }
        }
        Ok(read)
    }

    /// Of these events those that are there, as they lie: from the newest item that holds some of them down, and from the archive.
    async fn stored_between(
        &self,
        op: &Op,
        stream: &str,
        wanted: Range<u64>,
        first: First,
        fresh: Freshness,
    ) -> Result<Vec<(u64, Stored)>> {
        let mut found = Vec::new();
        let mut take = |batch: Batch| -> (u64, u64) {
            let (base, next) = (batch.base(), batch.next);
            found.extend((base..).zip(batch.events).filter(|(index, _)| wanted.contains(index)));
            (base, next)
        };
        let tip = async || self.dynamo().get(op, self.table(), item::key(stream, TIP), fresh).await;
        let (mut lowest, mut highest) = (wanted.end, wanted.start);
        if first == First::Tip
            && let Some(tip) = tip().await?
        {
            lowest = lowest.min(take(item::batch(&tip)?).0);
            highest = wanted.end;
        }
        for table in [self.table(), self.archive()] {
            let mut find = Find { freshness: fresh, reverse: true, ..Find::new(table, HASH, text(stream)) };
            find = find.range(Keys::Before(RANGE.into(), number(lowest)));
            let (mut start, mut limit, mut archive_below) = (None, 1, (table == self.archive()).then_some(lowest));
            while lowest > wanted.start {
                find.limit = Some(limit);
                let (items, after) = match self.dynamo().page(op, &find, start).await {
                    // Nobody is bound to have an archive.
                    Err(Error::Unavailable(gone)) if gone.reason == Reason::Missing && table == self.archive() => break,
                    page => page?,
                };
                if let Some(below) = archive_below.take() {
                    let reached = items.first().map(item::batch).transpose()?.map_or(0, |batch| batch.next);
                    if let Some(tip) = self.archive_tip(op, stream, reached, below).await? {
                        let (base, next) = take(tip);
                        (lowest, highest) = (lowest.min(base), highest.max(next));
                    }
                }
                for item in &items {
                    let (base, next) = take(item::batch(item)?);
                    (lowest, highest) = (lowest.min(base), highest.max(next));
                    // As many more as hold the rest, if they are as full as this one.
                    limit = i32::try_from((lowest.saturating_sub(wanted.start)).div_ceil((next - base).max(1)))
                        .unwrap_or(i32::MAX)
                        .clamp(1, 32);
                }
                start = after;
                if start.is_none() {
                    break;
                }
            }
        }
        if highest < wanted.end
            && let Some(tip) = tip().await?
        {
            take(item::batch(&tip)?);
        }
        found.sort_by_key(|(index, _)| *index);
        found.dedup_by_key(|(index, _)| *index);
        Ok(found)
    }

    /// The types of these events, in order, as many as follow each other up to the last: what is before them is pruned.
    pub(crate) async fn types_between(&self, op: &Op, stream: &str, wanted: Range<u64>) -> Result<Vec<String>> {
        let found = self.stored_between(op, stream, wanted.clone(), First::Tip, Freshness::Strong).await?;
        let mut types: Vec<String> = Vec::new();
        for (index, stored) in found.into_iter().rev() {
            if index + types.len() as u64 + 1 != wanted.end {
                break;
            }
            types.push(stored.kind);
        }
        types.reverse();
        Ok(types)
    }

    /// The events of a span, in order; what is pruned, or cannot be decoded, is told and left out, since it would never be there.
    pub(crate) async fn events_between(&self, op: &Op, stream: &StreamName, wanted: Range<u64>, first: First) -> Result<Vec<Recorded>> {
        let count = wanted.end.saturating_sub(wanted.start);
        // Events never change: a copy that is a moment old will do, if it has all.
        let mut found = self.stored_between(op, stream.as_str(), wanted.clone(), first, Freshness::Eventual).await?;
        if (found.len() as u64) < count {
            found = self.stored_between(op, stream.as_str(), wanted.clone(), First::Tip, Freshness::Strong).await?;
        }
        if (found.len() as u64) < count {
            let lacking = count - found.len() as u64;
            tracing::error!(%stream, from = wanted.start, to = wanted.end, lacking, "events that the index names are not in the table: pruned, or never written");
            metrics::counter!("fencepost_equinox_missing_events_total").increment(lacking);
        }
        let mut events = Vec::with_capacity(found.len());
        for (index, stored) in &found {
            match recorded(stream, *index, stored) {
                Ok(event) => events.push(event),
                Err(error) => {
                    tracing::error!(%error, "an event cannot be decoded, and is left out");
                    metrics::counter!("fencepost_equinox_undecodable_events_total").increment(1);
                }
            }
        }
        Ok(events)
    }

    /// What the index alone tells of an event: where it stands and its type, no body. The time is that of its entry.
    pub(crate) fn announced(&self, stream: &StreamName, index: u64, event_type: EventType, at: Timestamp) -> Recorded {
        let (position, id) = identity(stream, index + 1);
        let mut event = Recorded::new(position, id, event_type, Vec::new().into(), vec![Tag::from(stream)], Metadata::default(), at);
        event.version = Some(index + 1);
        event
    }

    /// Whether an event is named by this position: its version is the stamp.
    pub(crate) fn stands_at(stream: &StreamName, version: u64, position: Position) -> bool {
        identity(stream, version).0 == position
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use crate::dynamo::table::TableOptions;
    use crate::dynamo::{Connect, Place as At};
    use crate::event::Event;
    use crate::layout::equinox::Options;
    use crate::stream::{Step, StreamStore};
    use crate::url::StoreUrl;

    /// Equinox pays 95 units for 32 events of a stream of 977: its forward read is charged for every older calf.
    #[tokio::test]
    async fn a_few_events_of_a_long_stream_cost_the_calves_that_hold_them() {
        let dynamo = Connect::to(At::Memory).connect().await.expect("connects");
        let options = Options::of(&StoreUrl::parse("memory:?layout=equinox").expect("a URL")).expect("options");
        for spec in options.specs() {
            dynamo.create_table(&dynamo.long_op(), &spec, &TableOptions::default()).await.expect("creates");
        }
        let store = Equinox::open(dynamo.clone(), options);
        let stream = StreamName::new("Cart-1").expect("a name");
        let body = || (0..17).flat_map(|_| *dynamo.env().new_id().as_bytes()).collect::<Vec<u8>>();
        for n in (0..977).step_by(8) {
            let events = (n..977.min(n + 8)).map(|_| Event::new("Added", body()).expect("an event"));
            store.append(&stream, Step::new(events)).await.expect("appends");
        }
        let mut dearest: f64 = 0.0;
        for from in (0..946).step_by(43).chain([945]) {
            for first in [First::Calves, First::Tip] {
                let op = dynamo.op();
                let events = store.events_between(&op, &stream, from..from + 32, first).await.expect("reads");
                let versions: Vec<_> = events.iter().filter_map(|event| event.version).collect();
                assert_eq!(versions, (from + 1..from + 33).collect::<Vec<_>>());
                if first == First::Calves || from >= 900 {
                    dearest = dearest.max(op.units().read);
                }
            }
        }
        println!("at most {dearest} read units");
        assert!(dearest < 10.0, "{dearest}");
    }
}
