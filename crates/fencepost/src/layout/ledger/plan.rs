//! Planning a commit: which slots it leaves, where its bodies lie, and the writes of one try. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::chunk::Set;
use super::item::{self, EntryParts, Outcome, Place, SlotParts, Written};
use super::series::{End, Series};
use super::settings::Settings;
use crate::dynamo::Write;
use crate::dynamo::item::{Item, map_size, write_units};
use crate::event::{self, CommitId, Event, EventType};
use crate::position::Position;

/// Entries and bodies of a slot that is not the home stay within this.
const SLOT_BYTES: usize = 4 * 1024;
/// … of the home.
const HOME_BYTES: usize = 16 * 1024;

/// A commit to be: its events, and what follows from them alone.
#[derive(Debug)]
pub(crate) struct Intent<'a> {
    pub(crate) commit: CommitId,
    pub(crate) events: &'a [Event],
    /// The series written, without the lane, each with the indexes of its events.
    pub(crate) carried: BTreeMap<Series, Vec<u32>>,
    /// The first event's first tag, else the untagged series or the lane: the series that all its tries keep to.
    pub(crate) first: Series,
    pub(crate) home: Series,
    metas: Vec<Option<String>>,
    packed: Vec<OnceLock<Vec<u8>>>,
    seats: Vec<Seat>,
    chunked: BTreeSet<Series>,
}

/// Where a body must be; copies may lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Home,
    /// In the only slot of its event.
    Own,
    Chunk,
}

impl<'a> Intent<'a> {
    /// `lane` and `untagged` are the series that this writer keeps to.
    pub(crate) fn new(commit: CommitId, events: &'a [Event], settings: &Settings, lane: u8, untagged: u8) -> Self {
        let mut carried: BTreeMap<Series, Vec<u32>> = BTreeMap::new();
        for (index, event) in (0u32..).zip(events) {
            for tag in event.tags() {
                carried.entry(Series::Tag(tag.clone())).or_default().push(index);
            }
            if settings.types.contains(event.event_type()) {
                carried.entry(Series::Type(event.event_type().clone())).or_default().push(index);
            }
            if event.tags().is_empty() && settings.lanes().is_none() {
                carried.entry(Series::Untagged(untagged)).or_default().push(index);
            }
        }
        let tag = events.first().and_then(|e| e.tags().first()).map(|tag| Series::Tag(tag.clone()));
        let loose = carried.keys().find(|s| matches!(s, Series::Untagged(_))).cloned();
        let lane = settings.lanes().map(|_| Series::Lane(lane));
        let any_tag = || carried.keys().next().cloned().unwrap_or(Series::Untagged(untagged));
        let first = tag.clone().or_else(|| loose.clone()).or_else(|| lane.clone()).unwrap_or_else(any_tag);
        let home = lane.or(loose).or(tag).unwrap_or_else(any_tag);
        let metas =
            events.iter().map(|e| (!e.metadata().is_empty()).then(|| serde_json::to_string(e.metadata()).unwrap_or_default())).collect();
        let mut intent = Intent {
            commit,
            events,
            carried,
            first,
            home,
            metas,
            packed: events.iter().map(|_| OnceLock::new()).collect(),
            seats: vec![Seat::Home; events.len()],
            chunked: BTreeSet::new(),
        };
        intent.seat();
        intent
    }

    /// Decided once, before the first try: chunks are written once, whatever versions the tries come to.
    fn seat(&mut self) {
        let everything: Vec<u32> = (0u32..).take(self.events.len()).collect();
        let entries = |indexes: &[u32]| indexes.iter().map(|i| self.entry_bytes(*i)).sum::<usize>();
        let at_home = if matches!(self.home, Series::Lane(_)) { &everything } else { self.carried.get(&self.home).unwrap_or(&everything) };
        let home_entries = entries(at_home);
        let chunked: BTreeSet<Series> = self
            .carried
            .iter()
            .filter(|(series, indexes)| **series != self.home && entries(indexes) > SLOT_BYTES)
            .map(|(series, _)| series.clone())
            .collect();
        let home_chunked = home_entries > HOME_BYTES;
        let mut home_room = HOME_BYTES.saturating_sub(home_entries);
        let mut rooms: BTreeMap<&Series, usize> = BTreeMap::new();
        let in_home: BTreeSet<u32> = at_home.iter().copied().collect();
        let mut seats = Vec::with_capacity(self.events.len());
        for index in everything.iter().copied() {
            let slots: Vec<&Series> =
                self.carried.iter().filter(|(_, indexes)| indexes.binary_search(&index).is_ok()).map(|(s, _)| s).collect();
            if home_chunked || slots.iter().any(|s| chunked.contains(*s)) {
                seats.push(Seat::Chunk);
                continue;
            }
            if let ([only], false) = (&slots[..], in_home.contains(&index)) {
                let room = rooms.entry(only).or_insert_with(|| SLOT_BYTES.saturating_sub(entries(&self.carried[*only])));
                if let Some(left) = self.body_fits(index, *room) {
                    *room = left;
                    seats.push(Seat::Own);
                    continue;
                }
            }
            match self.body_fits(index, home_room) {
                Some(left) => {
                    home_room = left;
                    seats.push(Seat::Home);
                }
                None => seats.push(Seat::Chunk),
            }
        }
        self.seats = seats;
        self.chunked = chunked;
        if home_chunked {
            self.chunked.insert(self.home.clone());
        }
    }

    /// What is left of the room, compressing only if it must.
    fn body_fits(&self, index: u32, room: usize) -> Option<usize> {
        let plain = self.events[index as usize].data().len() + 2;
        room.checked_sub(plain).or_else(|| {
            // zstd seldom does better than 20:1 on one body: a larger one is not tried.
            (plain < room.saturating_mul(20)).then(|| room.checked_sub(self.packed(index).len() + 6))?
        })
    }

    /// An upper bound of an event map without its body: versions of up to ten digits.
    fn entry_bytes(&self, index: u32) -> usize {
        let event = &self.events[index as usize];
        let tags: usize = event.tags().iter().map(|t| t.as_str().len() + 7).sum();
        let meta = self.metas[index as usize].as_ref().map_or(0, |m| m.len() + 2);
        let id = if event.given_id().is_some() { 18 } else { 0 };
        22 + event.event_type().as_str().len() + tags + meta + id
    }

    fn packed(&self, index: u32) -> &[u8] {
        self.packed[index as usize].get_or_init(|| item::pack(self.events[index as usize].data()))
    }

    /// By which a repeat knows the events for its own, where the home does not have all of them.
    pub(crate) fn digest(&self) -> [u8; 8] {
        event::digest(self.events)
    }

    /// Whether a set of chunks must be written first.
    pub(crate) fn needs_chunks(&self) -> bool {
        self.seats.contains(&Seat::Chunk)
    }

    /// The set with all that does not fit the slots.
    pub(crate) fn pack(&self, id: uuid::Uuid) -> Set {
        let out = (0u32..).zip(self.events).filter(|(index, _)| self.seats[*index as usize] == Seat::Chunk);
        Set::pack(id, out.map(|(index, event)| (index, event, self.metas[index as usize].as_deref())))
    }
}

/// One try: where every series ends, as far as the writer knows.
#[derive(Debug)]
pub(crate) struct Try<'a> {
    pub(crate) intent: &'a Intent<'a>,
    pub(crate) settings: &'a Settings,
    pub(crate) table: &'a str,
    pub(crate) stamp: u64,
    /// The end before this commit, for each series written.
    pub(crate) ends: &'a BTreeMap<Series, End>,
    pub(crate) lane: Option<(u8, End)>,
    pub(crate) deps: BTreeMap<u8, u64>,
    /// Slots that must be missing, and are not written.
    pub(crate) checks: Vec<(Series, u64)>,
    pub(crate) set: Option<&'a Set>,
    pub(crate) seal: bool,
    pub(crate) once: bool,
    /// Series left out; only a mutation leaves any out.
    pub(crate) without: BTreeSet<Series>,
}

/// Which part of a try an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Slot(Series),
    Check(Series),
    Seal,
    Once,
}

impl Try<'_> {
    /// The end of a series once this try has landed.
    pub(crate) fn end_after(&self, series: &Series) -> End {
        let lane = self.lane.map(|(lane, end)| (lane, end.version + 1));
        let (before, own) = match (series, self.lane) {
            (Series::Lane(_), Some((_, end))) => (end, self.intent.events.len()),
            _ => (self.ends.get(series).copied().unwrap_or_default(), self.intent.carried.get(series).map_or(0, Vec::len)),
        };
        End { version: before.version + 1, count: before.count + own as u64, stamp: self.stamp, lane }
    }

    fn version(&self, series: &Series) -> u64 {
        self.end_after(series).version
    }

    /// Where its events stand.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let before = self.lane.map_or(0, |(_, end)| end.count);
        positions(self.settings, self.intent.events.len(), before, self.stamp, self.intent.commit)
    }

    /// Everything that one transaction writes and checks, or the one put.
    pub(crate) fn writes(&self) -> (Vec<Part>, Vec<Write>) {
        let intent = self.intent;
        let mut written: BTreeMap<Series, u64> =
            intent.carried.keys().filter(|s| !self.without.contains(s)).map(|s| (s.clone(), self.version(s))).collect();
        let lane_slot = self.lane.map(|(lane, _)| Series::Lane(lane));
        if let Some(lane) = &lane_slot {
            written.insert(lane.clone(), self.version(lane));
        }
        // In a home that has everything in it, the events themselves are compared; metadata may not come back as the same text.
        let plain = self.lane.is_none() && written.len() == 1 && !intent.needs_chunks() && intent.metas.iter().all(Option::is_none);
        let home = Outcome { written, digest: (!plain).then(|| intent.digest().to_vec()) };
        let (mut parts, mut writes) = (Vec::new(), Vec::new());
        let mut push = |part: Part, write: Write| {
            parts.push(part);
            writes.push(write);
        };
        for series in home.written.keys() {
            push(Part::Slot(series.clone()), Write::PutNew { table: self.table.into(), item: self.slot(series, &home) });
        }
        for (series, version) in &self.checks {
            let key = item::key(series.key(&self.settings.namespace), *version);
            push(Part::Check(series.clone()), Write::CheckMissing { table: self.table.into(), key });
        }
        if let (Some(set), true) = (self.set, self.seal) {
            let seal = item::seal_item(&self.settings.namespace, set.id, self.stamp, Some(intent.commit));
            push(Part::Seal, Write::PutNew { table: self.table.into(), item: seal });
        }
        if self.once {
            let once =
                item::once_item(&self.settings.namespace, intent.commit, (&intent.home, self.version(&intent.home)), intent.events.len());
            push(Part::Once, Write::PutNew { table: self.table.into(), item: once });
        }
        (parts, writes)
    }

    fn slot(&self, series: &Series, home: &Outcome) -> Item {
        let intent = self.intent;
        let is_home = *series == intent.home;
        let place = match self.lane {
            Some((lane, end)) => Place::Lane { lane, seq: end.version + 1, before: end.count },
            None if is_home => Place::Here,
            None => Place::Home(intent.home.clone(), self.version(&intent.home)),
        };
        let end = self.end_after(series);
        let no_deps = BTreeMap::new();
        let mut slot = item::slot_item(
            &self.settings.namespace,
            &SlotParts {
                series,
                version: end.version,
                commit: intent.commit,
                stamp: self.stamp,
                count: end.count,
                place: &place,
                home: is_home.then_some(home),
                deps: if matches!(series, Series::Lane(_)) { &self.deps } else { &no_deps },
            },
        );
        let everything: Vec<u32>;
        let indexes = match (series, intent.carried.get(series)) {
            (_, Some(indexes)) => indexes,
            _ => {
                everything = (0u32..).take(intent.events.len()).collect();
                &everything
            }
        };
        match self.set.filter(|_| intent.chunked.contains(series)).and_then(|set| set.span(indexes.iter().copied())) {
            Some(run) => {
                let types: BTreeSet<&EventType> = indexes.iter().map(|i| intent.events[*i as usize].event_type()).collect();
                item::put_chunked(&mut slot, run, indexes.len() as u64, &types);
            }
            None => self.fill(&mut slot, series, indexes, is_home),
        }
        slot
    }

    /// Entries, the bodies that must be here, and copies while they are free.
    fn fill(&self, slot: &mut Item, series: &Series, indexes: &[u32], is_home: bool) {
        let intent = self.intent;
        let carries: BTreeSet<u32> = indexes.iter().copied().collect();
        let alone: Vec<u32> = if is_home {
            (0u32..).take(intent.events.len()).filter(|i| intent.seats[*i as usize] == Seat::Home && !carries.contains(i)).collect()
        } else {
            Vec::new()
        };
        let seated = |index: u32| match intent.seats[index as usize] {
            Seat::Home => is_home,
            Seat::Own => true,
            Seat::Chunk => false,
        };
        // Without bodies first: what the slot occupies anyway.
        let mut entries: Vec<(u32, Item)> = Vec::with_capacity(indexes.len() + alone.len());
        for index in indexes.iter().copied() {
            let mut entry = item::entry(&self.bare(series, index));
            if intent.seats[index as usize] == Seat::Chunk
                && let Some(run) = self.set.and_then(|set| set.run(index))
            {
                item::put_body(&mut entry, index, &Written::Chunk(run));
            }
            entries.push((index, entry));
        }
        entries.extend(alone.iter().map(|index| (*index, item::body_alone(*index))));
        let maps: Vec<usize> = entries.iter().map(|(_, entry)| map_size(entry)).collect();
        let bytes = item::size(slot) + item::events_size(&maps);
        let must: Vec<u32> = indexes.iter().copied().filter(|i| seated(*i)).chain(alone.iter().copied()).collect();
        let plain = bytes + must.iter().map(|i| intent.events[*i as usize].data().len() + 2).sum::<usize>();
        let mut packed = BTreeSet::new();
        let mut total = plain;
        if write_units(plain) > 1 {
            // Compressed only if that saves a whole unit: a unit is 1 KB, and filling it is free.
            let smaller: Vec<u32> =
                must.iter().copied().filter(|i| intent.packed(*i).len() + 4 < intent.events[*i as usize].data().len()).collect();
            let saved: usize = smaller.iter().map(|i| intent.events[*i as usize].data().len() - intent.packed(*i).len() - 4).sum();
            if write_units(plain - saved) < write_units(plain) {
                packed = smaller.into_iter().collect();
                total = plain - saved;
            }
        }
        let mut room = write_units(total) * 1024 - total;
        let values = entries.into_iter().map(|(index, mut entry)| {
            let data: &[u8] = intent.events[index as usize].data();
            let copied = data.len() + 2;
            let body = match intent.seats[index as usize] {
                Seat::Chunk => None,
                _ if packed.contains(&index) => Some(Written::Packed(intent.packed(index))),
                _ if seated(index) => Some(Written::Plain(data)),
                _ if copied <= room => {
                    room -= copied;
                    Some(Written::Plain(data))
                }
                _ => None,
            };
            if let Some(body) = body {
                item::put_body(&mut entry, index, &body);
            }
            entry
        });
        let values = values.collect();
        item::put_events(slot, values);
    }

    fn bare(&self, series: &Series, index: u32) -> EntryParts<'_> {
        let event = &self.intent.events[index as usize];
        let own = |s: &Series| s == series;
        let tags = event
            .tags()
            .iter()
            .filter(|tag| !own(&Series::Tag((*tag).clone())))
            .map(|tag| (tag, self.version(&Series::Tag(tag.clone()))))
            .collect();
        let indexed = Series::Type(event.event_type().clone());
        let type_version = (self.settings.types.contains(event.event_type()) && !own(&indexed)).then(|| self.version(&indexed));
        EntryParts {
            index,
            id: event.given_id(),
            event_type: event.event_type(),
            tags,
            type_version,
            meta: self.intent.metas[index as usize].as_deref(),
        }
    }
}

/// Where the events of a commit stand: counted with one lane, by stamp otherwise.
pub(crate) fn positions(settings: &Settings, events: usize, before: u64, stamp: u64, commit: CommitId) -> Vec<Position> {
    (0u32..).take(events).map(|index| position(settings, before, stamp, commit, index)).collect()
}

/// Where one event stands.
pub(crate) fn position(settings: &Settings, before: u64, stamp: u64, commit: CommitId, index: u32) -> Position {
    if settings.counted() { Position::number(before + 1 + u64::from(index)) } else { Position::stamped(stamp, commit, index) }
}
