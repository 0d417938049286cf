//! From slots to events: judging entries by a query, and fetching the bodies that lie in homes and chunks.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use jiff::Timestamp;
use uuid::Uuid;

use super::Ledger;
use super::chunk;
use super::item::{self, Body, Entries, Entry, HASH, Place, RANGE, Run, Slot};
use super::plan::position;
use super::series::{End, Series};
use crate::dynamo::item::text;
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Result};
use crate::event::{CommitId, Recorded};
use crate::position::Position;
use crate::query::Query;

/// An event as a slot shows it, and where its commit stands on each series.
#[derive(Debug, Clone)]
pub(super) struct Met {
    pub(super) commit: CommitId,
    pub(super) position: Position,
    pub(super) lane: Option<(u8, u64)>,
    entry: Entry,
    home: (Series, u64),
    stamp: u64,
    /// Number of the event in the slot's series.
    pub(super) version: u64,
}

impl Met {
    /// Its index in the commit.
    pub(super) fn index(&self) -> u32 {
        self.entry.index
    }

    /// Whether a reader who stands at these covers has it: a matching event at or below one of them was read there.
    pub(super) fn known_at(&self, covers: &BTreeMap<Series, End>) -> bool {
        covers.iter().any(|(cover, end)| match cover {
            Series::Lane(lane) => self.lane.is_some_and(|(l, seq)| l == *lane && seq <= end.version),
            Series::Tag(tag) => self.entry.tags.iter().any(|(t, version)| t == tag && *version <= end.version),
            Series::Type(event_type) => self.entry.event_type == *event_type && self.entry.type_version.is_some_and(|v| v <= end.version),
            Series::Untagged(_) => false,
        })
    }
}

/// Events that match, each with the place of the slot that showed it first.
struct Judged<'q> {
    query: &'q Query,
    /// Where there are several slots: an event lies on each of its tags.
    seen: Option<HashSet<(CommitId, u32)>>,
    met: Vec<(usize, Met)>,
    /// Which of them have their body in a set of chunks.
    apart: HashMap<Uuid, Vec<usize>>,
}

impl Judged<'_> {
    /// Those of one slot, given all of its events.
    fn take<'e>(&mut self, ledger: &Ledger, (at, slot): (usize, &Slot), entries: impl Iterator<Item = &'e Entry>) {
        let first = (slot.count + 1).saturating_sub(slot.entries.count());
        for (number, entry) in (first..).zip(entries) {
            let matches = self.query.is_all() || self.query.matches(&entry.event_type, &entry.tag_names());
            if matches && self.seen.as_mut().is_none_or(|seen| seen.insert((slot.commit, entry.index))) {
                if let Body::Chunk(run) = entry.body {
                    self.apart.entry(run.set).or_default().push(self.met.len());
                }
                self.met.push((at, ledger.met(slot, entry.clone(), number)));
            }
        }
    }

    /// Gives those whose body lies in this set their body, as far as it was read.
    fn embody(&mut self, set: Uuid, entries: &[Entry]) {
        for at in self.apart.remove(&set).unwrap_or_default() {
            let entry = &mut self.met[at].1.entry;
            if let Ok(read) = entries.binary_search_by_key(&entry.index, |read| read.index) {
                entry.body = entries[read].body.clone();
            }
        }
    }
}

impl Ledger {
    /// The events of these slots that match, once each and in the order of the slots, without bodies yet.
    pub(super) async fn judge<'a>(&self, op: &Op, slots: impl IntoIterator<Item = &'a Slot>, query: &Query) -> Result<Vec<Met>> {
        let slots: Vec<&Slot> = slots.into_iter().collect();
        let mut judged = Judged { query, seen: (slots.len() > 1).then(HashSet::new), met: Vec::new(), apart: HashMap::new() };
        let mut chunked: HashMap<Uuid, Vec<usize>> = HashMap::new();
        for (at, slot) in slots.iter().enumerate() {
            match &slot.entries {
                Entries::Here(entries) => judged.take(self, (at, slot), entries.iter()),
                Entries::Chunked { types: Some(types), .. } if !types.iter().any(|t| may_match(query, t)) => {}
                Entries::Chunked { run, .. } => chunked.entry(run.set).or_default().push(at),
            }
        }
        // A set is read once, for all slots of its commit, and let go of before the next.
        for (set, places) in chunked {
            let of_set: Vec<&Slot> = places.iter().map(|at| slots[*at]).collect();
            let entries = self.chunked_entries(op, &of_set).await?;
            judged.embody(set, &entries);
            for (at, slot) in places.into_iter().zip(of_set) {
                judged.take(self, (at, slot), entries.iter().filter(|entry| entry.lies_on(&slot.series)));
            }
        }
        judged.met.sort_by_key(|(at, _)| *at);
        Ok(judged.met.into_iter().map(|(_, met)| met).collect())
    }

    fn met(&self, slot: &Slot, entry: Entry, version: u64) -> Met {
        let (before, lane) = match slot.place {
            Place::Lane { lane, seq, before } => (before, Some((lane, seq))),
            _ => (0, None),
        };
        let position = position(self.settings(), before, slot.stamp, slot.commit, entry.index);
        Met { commit: slot.commit, position, lane, entry, home: slot.home_key(), stamp: slot.stamp, version }
    }

    /// All entries of the set that these slots of a commit share, as far as they reach, with the versions that the home tells.
    async fn chunked_entries(&self, op: &Op, slots: &[&Slot]) -> Result<Vec<Entry>> {
        let runs = slots.iter().filter_map(|slot| if let Entries::Chunked { run, .. } = &slot.entries { Some(*run) } else { None });
        let joined = runs.reduce(|one, other| Run { set: one.set, first: one.first.min(other.first), last: one.last.max(other.last) });
        let (Some(slot), Some(run)) = (slots.first(), joined) else { return Ok(Vec::new()) };
        let written = match slots.iter().find_map(|slot| slot.home.as_ref()) {
            Some(home) => home.written.clone(),
            None => {
                let (series, version) = slot.home_key();
                let home = self.slot_surely(op, &series, version).await?.home;
                home.ok_or_else(|| Error::corrupt("ledger", format!("{series} @{version}: a home without its list of slots")))?.written
            }
        };
        let mut entries = self.run(op, run).await?;
        for entry in &mut entries {
            for (tag, version) in &mut entry.tags {
                *version = written.get(&Series::Tag(tag.clone())).copied().unwrap_or(u64::MAX);
            }
            entry.type_version = written.get(&Series::Type(entry.event_type.clone())).copied();
        }
        Ok(entries)
    }

    /// Events with their bodies, in the order given.
    pub(super) async fn hydrate(&self, op: &Op, met: Vec<Met>) -> Result<Vec<Recorded>> {
        self.hydrate_with(op, met, |_, _| None).await
    }

    /// The same for one who knows slots that may be homes, and hands them out once.
    pub(super) async fn hydrate_with(
        &self,
        op: &Op,
        met: Vec<Met>,
        mut known: impl FnMut(&Series, u64) -> Option<Slot>,
    ) -> Result<Vec<Recorded>> {
        let mut homes: HashMap<(Series, u64), Option<Slot>> = HashMap::new();
        for m in &met {
            if matches!(m.entry.body, Body::Home) {
                homes.entry(m.home.clone()).or_insert_with(|| known(&m.home.0, m.home.1));
            }
        }
        self.fetch_homes(op, &mut homes).await?;
        let mut runs: HashMap<Run, HashMap<u32, Bytes>> = HashMap::new();
        let mut events = Vec::with_capacity(met.len());
        for m in met {
            let body = match &m.entry.body {
                Body::Home => {
                    let home = homes.get(&m.home).and_then(Option::as_ref);
                    home.and_then(|slot| slot.body_of(m.entry.index)).cloned().ok_or_else(|| lost(&m, "its home"))?
                }
                other => other.clone(),
            };
            let data = match body {
                Body::Here(data) => data,
                Body::Chunk(run) => {
                    let bodies = match runs.entry(run) {
                        MapEntry::Occupied(known) => known.into_mut(),
                        MapEntry::Vacant(new) => new.insert(self.bodies(op, run).await?),
                    };
                    bodies.get(&m.entry.index).cloned().ok_or_else(|| lost(&m, "its chunk"))?
                }
                Body::Home => return Err(lost(&m, "its home")),
            };
            events.push(recorded(m, data));
        }
        Ok(events)
    }

    async fn fetch_homes(&self, op: &Op, homes: &mut HashMap<(Series, u64), Option<Slot>>) -> Result<()> {
        if homes.is_empty() {
            return Ok(());
        }
        // Homes never change, so a copy that is a moment old will do; one that does not show is read again, strongly.
        let unread = homes.iter().filter(|(_, slot)| slot.is_none());
        let keys: Vec<_> = unread.map(|((series, version), _)| item::key(series.key(self.namespace()), *version)).collect();
        for item in self.dynamo().get_many(op, self.table(), keys, Freshness::Eventual).await? {
            let slot = item::slot(self.namespace(), &item)?;
            homes.insert((slot.series.clone(), slot.version), Some(slot));
        }
        let missing: Vec<_> = homes.iter().filter(|(_, slot)| slot.is_none()).map(|(key, _)| key.clone()).collect();
        for (series, version) in missing {
            let slot = self.slot_surely(op, &series, version).await?;
            homes.insert((series, version), Some(slot));
        }
        Ok(())
    }

    /// A slot that must be there, since another one refers to it.
    pub(super) async fn slot_surely(&self, op: &Op, series: &Series, version: u64) -> Result<Slot> {
        for attempt in 0..PATIENCE {
            self.wait(attempt).await;
            let key = item::key(series.key(self.namespace()), version);
            if let Some(item) = self.dynamo().get(op, self.table(), key, Freshness::Strong).await? {
                return item::slot(self.namespace(), &item);
            }
        }
        Err(Error::corrupt("ledger", format!("{} @{version} is missing, and another slot refers to it", series.key(self.namespace()))))
    }

    /// The bodies of a run, by the events' indexes.
    async fn bodies(&self, op: &Op, run: Run) -> Result<HashMap<u32, Bytes>> {
        let bodies = self.run(op, run).await?.into_iter().filter_map(|entry| match entry.body {
            Body::Here(data) => Some((entry.index, data)),
            _ => None,
        });
        Ok(bodies.collect())
    }

    /// The entries of whole runs of chunks.
    async fn run(&self, op: &Op, run: Run) -> Result<Vec<Entry>> {
        let hash = item::chunk_hash(self.namespace(), run.set);
        for attempt in 0..PATIENCE {
            self.wait(attempt).await;
            let freshness = if attempt == 0 { Freshness::Eventual } else { Freshness::Strong };
            let chunks = Range::numbers(RANGE, run.first, run.last);
            let find = Find { freshness, ..Find::new(self.table(), HASH, text(hash.clone())).range(chunks) };
            let items: Vec<_> = self.dynamo().items(op, find).try_collect().await?;
            if items.len() as u64 != run.last + 1 - run.first {
                continue;
            }
            let chunks = items.iter().map(|i| item::chunk(i).map_err(|m| item::corrupt(i, &m))).collect::<Result<Vec<_>>>()?;
            return chunk::unpack(&chunks)
                .ok_or_else(|| Error::corrupt("ledger", format!("{hash} @{}..{}: the chunks do not decode", run.first, run.last)));
        }
        Err(Error::corrupt("ledger", format!("{hash} @{}..{}: chunks are missing that a slot refers to", run.first, run.last)))
    }

    async fn wait(&self, attempt: u32) {
        if attempt > 0 {
            self.dynamo().env().sleep(Duration::from_millis(10 << attempt)).await;
        }
    }
}

/// How often something that must be there is looked for.
const PATIENCE: u32 = 5;

fn may_match(query: &Query, event_type: &crate::event::EventType) -> bool {
    query.is_all() || query.items().iter().any(|item| item.types().is_empty() || item.types().contains(event_type))
}

fn lost(met: &Met, wher: &str) -> Error {
    Error::corrupt("ledger", format!("event {} of commit {} has no body in {wher}", met.entry.index, met.commit))
}

fn recorded(met: Met, data: Bytes) -> Recorded {
    let id = met.entry.id.unwrap_or_else(|| met.commit.event_id(met.entry.index as usize));
    let at = i64::try_from(met.stamp).ok().and_then(|us| Timestamp::from_microsecond(us).ok()).unwrap_or(Timestamp::MAX);
    let tags = met.entry.tag_names();
    Recorded::new(met.position, id, met.entry.event_type, data, tags, met.entry.meta, at)
}
