//! How far each shard has been read and emitted, which of them to read next, and what an epoch says of them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use crate::dynamo::records::{Sequence, Shard, Start};
use crate::event::CommitId;
use crate::side::epoch::Mark;

/// Streams forget after a day.
const DAY: u64 = 24 * 3_600_000_000;
/// How much is held of what cannot be put yet, and remembered of what was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Records beyond the numbers: past this only the shard that is furthest behind is read on, those that have little beyond their number,
    /// and those that have no more to say …
    pub(crate) soft: usize,
    /// … past this no longer those that have little …
    pub(crate) hard: usize,
    /// … and past this none at all: an epoch lists 16 bytes of each, in an item of 400 KB.
    pub(crate) most: usize,
    /// Little.
    pub(crate) short: usize,
    /// Records a page.
    pub(crate) page: usize,
    /// Commits that were emitted, before those that cannot come again are forgotten.
    pub(crate) remembered: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { soft: 4_096, hard: 12_288, most: 16_384, short: 1_024, page: 1_000, remembered: 500_000 }
    }
}

/// The shards that are not wholly emitted, and those of which no child is known yet.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    all: BTreeMap<String, Reading>,
    pub(crate) bounds: Bounds,
}

#[derive(Debug, Default)]
struct Reading {
    parent: Option<String>,
    /// All up to here is in the index.
    done: Option<Sequence>,
    /// This run has read up to here.
    read: Option<Sequence>,
    /// The chain's writer had read up to here, and this run has not yet.
    reach: Option<Sequence>,
    /// When the last record read was written: what is unread is not older.
    at: u64,
    /// When it was last asked for records, and none was gone: what was unread then was not over a day old.
    asked: u64,
    /// Records beyond the number, each with its commit; runs of those that do not count are one.
    beyond: VecDeque<(Sequence, Option<CommitId>)>,
    /// The last page brought nothing.
    drained: bool,
    /// Closed, and read to its end.
    ended: bool,
    /// … and all of it is in the index.
    finished: bool,
}

/// What a look at the stream's shards brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Not known before.
    pub(crate) new: usize,
    /// Gone before they were read to their end.
    pub(crate) lost: Vec<String>,
}

impl Shards {
    /// As an epoch left them.
    pub(crate) fn resume(marks: &BTreeMap<String, Mark>) -> Self {
        let reading = |mark: &Mark| match mark {
            Mark::Finished => Reading { ended: true, finished: true, ..Reading::default() },
            Mark::At { done, read } => {
                Reading { done: done.clone(), reach: read.clone().filter(|read| Some(read) > done.as_ref()), ..Reading::default() }
            }
        };
        Self { all: marks.iter().map(|(id, mark)| (id.clone(), reading(mark))).collect(), bounds: Bounds::default() }
    }

    /// With other bounds than those of real streams.
    #[cfg(test)]
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Whether there is a shard of which nothing is in the index, or was one that follows one which is: what it has lost does not show.
    pub(crate) fn has_unread(&self) -> bool {
        self.all.is_empty() || self.all.values().any(|reading| reading.finished || reading.done.is_none())
    }

    /// What an epoch says of them.
    pub(crate) fn marks(&self) -> BTreeMap<String, Mark> {
        let mark = |reading: &Reading| match reading.finished {
            true => Mark::Finished,
            false => Mark::At { done: reading.done.clone(), read: reading.read.clone().max(reading.reach.clone()) },
        };
        self.all.iter().map(|(id, reading)| (id.clone(), mark(reading))).collect()
    }

    /// Takes in what the stream says of its shards. A finished shard is kept until a child of it is known, so that one which is not known
    /// is new, unless one that descends from it is known.
    pub(crate) fn describe(&mut self, described: &[Shard]) -> Found {
        let mut found = Found::default();
        let there: BTreeMap<&str, &Shard> = described.iter().map(|shard| (shard.id.as_str(), shard)).collect();
        let mut forebears = BTreeSet::new();
        for id in self.all.keys() {
            let mut at = there.get(id.as_str()).and_then(|shard| shard.parent.as_deref());
            while let Some(parent) = at.filter(|parent| forebears.insert((*parent).to_owned())) {
                at = there.get(parent).and_then(|shard| shard.parent.as_deref());
            }
        }
        for shard in described {
            if let Some(known) = self.all.get_mut(&shard.id) {
                known.parent = shard.parent.clone();
            } else if !forebears.contains(&shard.id) {
                found.new += 1;
                // What it has was written behind what its parent had.
                let asked = shard.parent.as_ref().and_then(|parent| self.all.get(parent)).map_or(0, |parent| parent.asked);
                self.all.insert(shard.id.clone(), Reading { parent: shard.parent.clone(), asked, ..Reading::default() });
            }
        }
        let parents: BTreeSet<String> = self.all.values().filter_map(|reading| reading.parent.clone()).collect();
        self.all.retain(|id, reading| {
            let gone = !there.contains_key(id.as_str());
            if gone && !reading.ended {
                found.lost.push(id.clone());
            }
            // Of one that is gone nothing more can come; one whose child is known need not be remembered.
            !(gone && (reading.finished || !reading.ended) || reading.finished && parents.contains(id))
        });
        found
    }

    /// Which shards to read on, and how many records of each at most: parents before their children.
    pub(crate) fn to_read(&self) -> Vec<(String, usize)> {
        let (beyond, bounds) = (self.beyond(), self.bounds);
        let open = |reading: &Reading| !reading.ended && self.parent_is_read(reading);
        let behind = self.all.values().filter(|reading| open(reading) && !reading.drained).map(|reading| reading.at).min();
        // Nothing can be put before these are read to where the chain's writer had been, and what was beyond the numbers then is there.
        let reached = self.has_reached();
        let first = |id: &str, reading: &Reading| !reached && (reading.reach.is_some() || self.is_followed(id));
        let may = |id: &str, reading: &Reading| {
            let little = beyond < bounds.hard && reading.beyond.len() < bounds.short;
            let turn = little || reading.drained || Some(reading.at) == behind;
            beyond < bounds.soft || first(id, reading) || (reached && turn)
        };
        let wanted: Vec<_> = self.all.iter().filter(|(id, reading)| open(reading) && may(id, reading)).collect();
        let each = |page: usize, of: usize| page / of.max(1);
        let share = each(bounds.most.saturating_sub(beyond), wanted.len()).min(bounds.page);
        let firsts = wanted.iter().filter(|(id, reading)| first(id, reading)).count();
        let limit = |id: &str, reading: &Reading| match first(id, reading) {
            true => share.max(each(bounds.page, firsts)).max(1),
            false => share,
        };
        wanted.into_iter().map(|(id, reading)| (id.clone(), limit(id.as_str(), reading))).filter(|(_, limit)| *limit > 0).collect()
    }

    /// Whether a shard is known that follows this one.
    fn is_followed(&self, shard: &str) -> bool {
        self.all.values().any(|other| other.parent.as_deref() == Some(shard))
    }

    /// Whether so much lies beyond the numbers that little more can be read.
    pub(crate) fn is_full(&self) -> bool {
        self.beyond() >= self.bounds.hard
    }

    /// What each number stands before.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = CommitId> {
        self.all.values().filter_map(|reading| reading.beyond.front().and_then(|(_, commit)| *commit))
    }

    /// Every commit of which a record lies beyond a number.
    pub(crate) fn commits_beyond(&self) -> HashSet<CommitId> {
        self.all.values().flat_map(|reading| &reading.beyond).filter_map(|(_, commit)| *commit).collect()
    }

    /// A page came that was asked for at this time, of so many records.
    pub(crate) fn paged(&mut self, shard: &str, records: usize, asked: u64) {
        if let Some(reading) = self.all.get_mut(shard) {
            reading.drained = records == 0;
            reading.asked = asked;
        }
    }

    /// What follows a shard that ended would have shown at this time.
    pub(crate) fn described(&mut self, asked: u64) {
        for reading in self.all.values_mut().filter(|reading| reading.ended) {
            reading.asked = asked;
        }
    }

    fn parent_is_read(&self, reading: &Reading) -> bool {
        reading.parent.as_ref().and_then(|parent| self.all.get(parent)).is_none_or(|parent| parent.ended)
    }

    /// From where on to read this shard.
    pub(crate) fn start(&self, shard: &str) -> Start {
        let at = self.all.get(shard).and_then(|reading| reading.read.clone().or_else(|| reading.done.clone()));
        at.map_or(Start::Oldest, Start::After)
    }

    /// A record was read; whether it is one that was not read before, since a page may come twice.
    pub(crate) fn read(&mut self, shard: &str, sequence: Sequence, at: u64, commit: Option<CommitId>) -> bool {
        let Some(reading) = self.all.get_mut(shard) else { return false };
        if reading.read.as_ref().max(reading.done.as_ref()).is_some_and(|read| sequence <= *read) {
            return false;
        }
        reading.at = reading.at.max(at);
        reading.read = Some(sequence.clone());
        reading.reach.take_if(|reach| *reach <= sequence);
        match (reading.beyond.back_mut(), commit) {
            (Some((last, None)), None) => *last = sequence,
            (_, commit) => reading.beyond.push_back((sequence, commit)),
        }
        true
    }

    /// A shard is closed and was read to its end.
    pub(crate) fn ended(&mut self, shard: &str) {
        if let Some(reading) = self.all.get_mut(shard) {
            reading.ended = true;
            reading.reach = None;
        }
    }

    /// What should be read of a shard is gone: it is read on from what is still there. Of what the chain's writer had read some may be.
    pub(crate) fn lost(&mut self, shard: &str) {
        if let Some(reading) = self.all.get_mut(shard) {
            (reading.done, reading.read) = (None, None);
        }
    }

    /// The chain's writer had been here over a day ago: what it had read does not come again.
    pub(crate) fn forgotten(&mut self) {
        for reading in self.all.values_mut() {
            reading.reach = None;
        }
    }

    /// Whether every shard was read to where the chain's writer had been.
    pub(crate) fn has_reached(&self) -> bool {
        self.all.values().all(|reading| reading.reach.is_none() || reading.ended)
    }

    /// No record is older than this that is unread, or is gone unread and not noticed yet. What follows a shard that ended is not older than its
    /// last record, and may not be described yet.
    pub(crate) fn horizon(&self, now: u64) -> u64 {
        let oldest = |reading: &Reading| reading.asked.min(now).saturating_sub(DAY);
        let unread = self.all.iter().filter(|(id, reading)| !reading.ended || !self.is_followed(id));
        unread.map(|(_, reading)| reading.at.max(oldest(reading))).min().unwrap_or(0)
    }

    /// Moves every number up to what is not in the index yet; the ids that are in it beyond the numbers.
    pub(crate) fn settle(&mut self, is_put: impl Fn(CommitId) -> bool) -> Vec<CommitId> {
        let mut ids = BTreeSet::new();
        for reading in self.all.values_mut() {
            while reading.beyond.front().is_some_and(|(_, commit)| commit.is_none_or(&is_put)) {
                reading.done = reading.beyond.pop_front().map(|(sequence, _)| sequence);
            }
            reading.finished = reading.ended && reading.beyond.is_empty();
            ids.extend(reading.beyond.iter().filter_map(|(_, commit)| *commit).filter(|commit| is_put(*commit)));
        }
        ids.into_iter().collect()
    }

    /// How many ids an epoch lists at most.
    pub(crate) fn beyond(&self) -> usize {
        self.all.values().map(|reading| reading.beyond.len()).sum()
    }

    /// Whether an epoch put now would name other shards than these, or call another one finished.
    pub(crate) fn would_change(&self, known: &BTreeSet<(String, bool)>) -> bool {
        let finished = |reading: &Reading| reading.ended && reading.beyond.is_empty();
        let now: BTreeSet<(String, bool)> = self.all.iter().map(|(id, reading)| (id.clone(), finished(reading))).collect();
        now != *known
    }

    /// How long ago the record was written that was read last, of the shard that is furthest behind; none before any was read.
    pub(crate) fn behind(&self) -> Option<u64> {
        self.all.values().filter(|reading| !reading.ended && reading.at > 0).map(|reading| reading.at).min()
    }
}
