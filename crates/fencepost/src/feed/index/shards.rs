//! How far each shard has been read and emitted, which of them to read next, and what an epoch says of them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use crate::dynamo::records::{Sequence, Shard, Start};
use crate::event::CommitId;
use crate::side::epoch::Mark;

/// Streams forget after a day.
const DAY: u64 = 24 * 3_600_000_000;
/// What lies unread in a shard for longer than this may be gone.
pub(crate) const FORGETS: u64 = 23 * 3_600_000_000;
/// A page without records does not say that there are none. After so many rounds of them nothing is asked for in haste …
pub(crate) const QUIET: u32 = 3;
/// … and only after so many is it said that nothing was there: a stream may send some in front of records.
pub(crate) const SURE: u32 = 30;
/// A look that is older than this should be had again.
const STALE: u64 = 3_600_000_000;
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
    /// Nothing was unread that had been written before this, when reading began.
    floor: u64,
    pub(crate) bounds: Bounds,
}

#[derive(Debug, Default)]
struct Reading {
    parent: Option<String>,
    /// All up to here is in the index.
    done: Option<Sequence>,
    /// Nothing of it was when the chain's writer had read this, the first of it: whether that is gone shows only if it is asked for.
    first: Option<Sequence>,
    /// Its last record, where it is closed.
    last: Option<Sequence>,
    /// This run has read up to here.
    read: Option<Sequence>,
    /// The chain's writer had read up to here, and this run has not yet.
    reach: Option<Sequence>,
    /// When that was written.
    reach_at: u64,
    /// When the last record read was written: what is unread is not older.
    at: u64,
    /// When the record was written behind which it is read on, in an earlier run perhaps; 0: not known.
    read_at: u64,
    /// Nothing of it is unread that was written before this: a later record was read, or none was there.
    looked: u64,
    /// So many pages in a row brought nothing.
    empty: u32,
    /// The record behind which it should be read on has expired: it is read on from the oldest that is there.
    expired: Option<Sequence>,
    /// When it was last asked for records, and none was gone: what was unread then was not over a day old.
    asked: u64,
    /// Records beyond the number; runs of those that do not count are one.
    beyond: VecDeque<Beyond>,
    /// The last page brought nothing.
    drained: bool,
    /// Closed, and read to its end.
    ended: bool,
    /// … and all of it is in the index.
    finished: bool,
}

#[derive(Debug)]
struct Beyond {
    sequence: Sequence,
    commit: Option<CommitId>,
    /// When it was written.
    at: u64,
}

impl Reading {
    /// Whether it was closed when it was last described, and its last record was read.
    fn has_its_last(&self) -> bool {
        self.last.as_ref().is_some_and(|last| self.read.as_ref().or(self.done.as_ref()) >= Some(last))
    }

    /// The first record that is not in the index, as far as any was read.
    fn first_unfinished(&self) -> Option<&Sequence> {
        self.beyond.front().map(|record| &record.sequence).or(self.first.as_ref())
    }
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
    /// None is known. All that the stream has is unread, and that may be a day old.
    pub(crate) fn unknown(now: u64) -> Self {
        Self { floor: now.saturating_sub(DAY), ..Self::default() }
    }

    /// As an epoch left them, when all that had been written before `looked` was in the index.
    pub(crate) fn resume(marks: &BTreeMap<String, Mark>, looked: u64) -> Self {
        let reading = |mark: &Mark| match mark {
            Mark::Finished => Reading { ended: true, finished: true, looked, ..Reading::default() },
            Mark::At { done, first, read, at } => Reading {
                done: done.clone(),
                first: first.clone().filter(|_| done.is_none()),
                reach: read.clone().filter(|read| Some(read) > done.as_ref()),
                reach_at: at.unwrap_or(u64::MAX),
                read_at: at.unwrap_or(0),
                looked,
                ..Reading::default()
            },
        };
        Self { all: marks.iter().map(|(id, mark)| (id.clone(), reading(mark))).collect(), floor: looked, bounds: Bounds::default() }
    }

    /// With other bounds than those of real streams.
    #[cfg(test)]
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Whether there is a shard of which nothing was read, or was one that follows one which was: what it has lost does not show.
    pub(crate) fn has_unread(&self) -> bool {
        self.all.is_empty() || self.all.values().any(|reading| reading.finished || (reading.done.is_none() && reading.first.is_none()))
    }

    /// All that was written before this is in the index: neither unread, nor read and waiting. Whatever will be lost was written later.
    pub(crate) fn looked(&self) -> u64 {
        let unread = self.all.iter().filter(|(id, reading)| !reading.ended || !self.is_followed(id)).map(|(_, reading)| reading.looked);
        let waits = self.all.values().filter_map(|reading| reading.beyond.front()).map(|record| record.at).min();
        let unread = unread.min().unwrap_or(self.floor);
        waits.map_or(unread, |waits| waits.min(unread))
    }

    /// Whether what a shard says is gone was read: its last record was; or the last that was read is past a day itself, and less than a day ago
    /// nothing was behind that, so that what came since is still there. Of a run that has read nothing yet: was in the index.
    pub(crate) fn has_only_expired(&self, shard: &str, now: u64) -> bool {
        let expired = |reading: &Reading| reading.read_at > 0 && reading.read_at + FORGETS < now && reading.looked + FORGETS > now;
        self.all.get(shard).is_some_and(|reading| (reading.reach.is_none() && reading.has_its_last()) || expired(reading))
    }

    /// It is read on from the oldest record that is there.
    pub(crate) fn expired(&mut self, shard: &str) {
        if let Some(reading) = self.all.get_mut(shard) {
            reading.expired = reading.read.clone().or_else(|| reading.done.clone());
            reading.first = None;
        }
    }

    /// What an epoch says of them.
    pub(crate) fn marks(&self) -> BTreeMap<String, Mark> {
        let mark = |reading: &Reading| match reading.finished {
            true => Mark::Finished,
            false => Mark::At {
                done: reading.done.clone(),
                first: reading.first_unfinished().filter(|_| reading.done.is_none()).cloned(),
                read: reading.read.clone().max(reading.reach.clone()),
                at: (reading.read_at > 0).then_some(reading.read_at),
            },
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
        let since = self.looked();
        for shard in described {
            if let Some(known) = self.all.get_mut(&shard.id) {
                (known.parent, known.last) = (shard.parent.clone(), shard.last.clone());
            } else if !forebears.contains(&shard.id) {
                found.new += 1;
                // What it has was written behind what its parent had.
                let parent = shard.parent.as_ref().and_then(|parent| self.all.get(parent));
                let (looked, asked) = parent.map_or((since, 0), |parent| (parent.looked, parent.asked));
                self.all.insert(shard.id.clone(), Reading { parent: shard.parent.clone(), looked, asked, ..Reading::default() });
            }
        }
        let parents: BTreeSet<String> = self.all.values().filter_map(|reading| reading.parent.clone()).collect();
        self.all.retain(|id, reading| {
            let gone = !there.contains_key(id.as_str());
            if gone && !reading.ended && !reading.has_its_last() {
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
        self.all.values().filter_map(|reading| reading.beyond.front().and_then(|record| record.commit))
    }

    /// Every commit of which a record lies beyond a number.
    pub(crate) fn commits_beyond(&self) -> HashSet<CommitId> {
        self.all.values().flat_map(|reading| &reading.beyond).filter_map(|record| record.commit).collect()
    }

    /// A page came that was asked for at this time, of so many records.
    pub(crate) fn paged(&mut self, shard: &str, records: usize, asked: u64) {
        if let Some(reading) = self.all.get_mut(shard) {
            reading.drained = records == 0;
            reading.empty = if records == 0 { reading.empty.saturating_add(1) } else { 0 };
            if reading.empty >= SURE {
                reading.looked = reading.looked.max(asked);
            }
            reading.asked = asked;
        }
    }

    /// Whether it is long ago that nothing was unread in a shard, and too few pages were empty since to say so again.
    pub(crate) fn is_unsure(&self, now: u64) -> bool {
        let open = |reading: &&Reading| !reading.ended && self.parent_is_read(reading);
        self.all.values().filter(open).any(|reading| reading.empty < SURE && reading.looked + STALE < now)
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
        let Some(reading) = self.all.get(shard) else { return Start::Oldest };
        match (reading.read.as_ref().or(reading.done.as_ref()), &reading.first) {
            (Some(at), _) if reading.expired.as_ref() != Some(at) => Start::After(at.clone()),
            (None, Some(first)) => Start::At(first.clone()),
            _ => Start::Oldest,
        }
    }

    /// A record was read; whether it is one that was not read before, since a page may come twice.
    pub(crate) fn read(&mut self, shard: &str, sequence: Sequence, at: u64, commit: Option<CommitId>) -> bool {
        let Some(reading) = self.all.get_mut(shard) else { return false };
        if reading.read.as_ref().max(reading.done.as_ref()).is_some_and(|read| sequence <= *read) {
            return false;
        }
        reading.at = reading.at.max(at);
        (reading.read_at, reading.looked) = (reading.read_at.max(at), reading.looked.max(at));
        reading.read = Some(sequence.clone());
        reading.reach.take_if(|reach| *reach <= sequence);
        match (reading.beyond.back_mut(), commit) {
            (Some(Beyond { sequence: last, commit: None, .. }), None) => *last = sequence,
            (_, commit) => reading.beyond.push_back(Beyond { sequence, commit, at }),
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

    /// What should be read of a shard is gone, and with it all that is older: it is read on from what is still there. Of what the chain's
    /// writer had read some may be.
    pub(crate) fn lost(&mut self, shard: &str) {
        if let Some(reading) = self.all.get_mut(shard) {
            (reading.done, reading.first, reading.read) = (None, None, None);
            reading.beyond.clear();
        }
    }

    /// What was written before this is not in the stream any more: what the chain's writer had read by then does not come again.
    pub(crate) fn forgotten(&mut self, before: u64) {
        for reading in self.all.values_mut().filter(|reading| reading.reach_at < before) {
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
            while reading.beyond.front().is_some_and(|record| record.commit.is_none_or(&is_put)) {
                reading.done = reading.beyond.pop_front().map(|record| record.sequence);
            }
            reading.finished = reading.ended && reading.beyond.is_empty();
            ids.extend(reading.beyond.iter().filter_map(|record| record.commit).filter(|commit| is_put(*commit)));
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

    /// When the record was written that was read last, of the shard that is furthest behind; none where no more was to be read of any.
    pub(crate) fn behind(&self) -> Option<u64> {
        self.all.values().filter(|reading| !reading.ended && !reading.drained && reading.at > 0).map(|reading| reading.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = DAY / 24;

    fn sequence(n: u64) -> Sequence {
        Sequence::new(n.to_string())
    }
    fn shard(id: &str, parent: Option<&str>, last: Option<u64>) -> Shard {
        Shard { id: id.into(), parent: parent.map(str::to_owned), last: last.map(sequence) }
    }
    /// A shard of which record 7 was read, which was written at that time.
    fn read_at(at: u64) -> Shards {
        let mut shards = Shards::unknown(at);
        shards.describe(&[shard("a", None, None)]);
        shards.read("a", sequence(7), at, None);
        shards.settle(|_| true);
        shards
    }
    fn empty_pages(shards: &mut Shards, pages: u32, asked: u64) {
        (0..pages).for_each(|_| shards.paged("a", 0, asked));
    }

    #[test]
    fn what_expired_behind_a_look_was_read_and_what_nobody_looked_at_may_not_have_been() {
        let began = 100 * DAY;
        let later = |hours: u64| began + hours * HOUR;
        // The record itself is an hour old: it cannot have expired.
        assert!(!read_at(began).has_only_expired("a", later(1)));
        // It has, and nobody has looked since: something may have come behind it.
        assert!(!read_at(began).has_only_expired("a", later(25)));
        let mut shards = read_at(began);
        empty_pages(&mut shards, SURE - 1, later(10));
        assert!(!shards.has_only_expired("a", later(25)), "that many may come in front of records");
        assert!(shards.is_unsure(later(10)) && !shards.is_unsure(later(1)), "it is worth asking on only after an hour");
        empty_pages(&mut shards, 1, later(10));
        assert!(!shards.is_unsure(later(10)));
        assert!(shards.has_only_expired("a", later(25)), "what came in the last 15 hours is still there");
        assert!(!shards.has_only_expired("a", later(34)), "what came in the hour after the look is not");
        // A later run knows as much, and asks for the oldest then.
        let mut later_run = Shards::resume(&shards.marks(), shards.looked());
        assert!(later_run.has_only_expired("a", later(25)));
        assert_eq!(later_run.start("a"), Start::After(sequence(7)));
        later_run.expired("a");
        assert_eq!(later_run.start("a"), Start::Oldest);
        assert!(!later_run.read("a", sequence(7), began, None), "what was read is not taken twice");
        assert!(later_run.read("a", sequence(8), later(20), None));
        assert_eq!(later_run.start("a"), Start::After(sequence(8)));
    }

    #[test]
    fn what_the_last_writer_had_read_beyond_its_number_must_come_again_unless_it_is_in_the_index_by_now() {
        let mut shards = read_at(100 * DAY);
        shards.read("a", sequence(9), 100 * DAY, Some(CommitId(uuid::Uuid::from_u128(1))));
        empty_pages(&mut shards, SURE, 101 * DAY);
        shards.settle(|_| false);
        assert_eq!(shards.looked(), 100 * DAY, "what waits is not in the index, however lately somebody looked");
        assert!(!Shards::resume(&shards.marks(), shards.looked()).has_only_expired("a", 101 * DAY + 2 * HOUR));
        // A rebuild has put it.
        assert!(Shards::resume(&shards.marks(), 101 * DAY).has_only_expired("a", 101 * DAY + 2 * HOUR));
    }

    /// From its oldest record on it would be read without a word, whatever had been before that.
    #[test]
    fn what_was_read_of_a_shard_and_is_not_in_the_index_is_asked_for_by_its_number() {
        let mut shards = Shards::unknown(100 * DAY);
        shards.describe(&[shard("a", None, None)]);
        let waits = CommitId(uuid::Uuid::from_u128(1));
        shards.read("a", sequence(3), 100 * DAY, Some(waits));
        shards.read("a", sequence(4), 100 * DAY + HOUR, None);
        shards.settle(|_| false);
        let mut later_run = Shards::resume(&shards.marks(), shards.looked());
        assert_eq!(later_run.start("a"), Start::At(sequence(3)));
        assert!(!later_run.has_unread(), "what it has lost shows");
        later_run.lost("a");
        assert_eq!(later_run.start("a"), Start::Oldest);
        // Once it is in the index, what follows it is asked for.
        shards.settle(|_| true);
        assert_eq!(Shards::resume(&shards.marks(), shards.looked()).start("a"), Start::After(sequence(4)));
    }

    #[test]
    fn a_closed_shard_whose_last_record_was_read_has_lost_nothing() {
        let now = 109 * DAY;
        for (last, lost) in [(Some(7), false), (Some(8), true), (None, true)] {
            let mut shards = read_at(100 * DAY);
            shards.describe(&[shard("a", None, last), shard("b", Some("a"), None)]);
            assert_eq!(shards.has_only_expired("a", now), !lost, "{last:?}");
            assert_eq!(!shards.describe(&[shard("b", Some("a"), None)]).lost.is_empty(), lost, "{last:?}");
        }
    }

    #[test]
    fn a_shard_that_drained_does_not_count_as_behind() {
        let mut shards = read_at(100 * DAY);
        shards.paged("a", 1, 100 * DAY);
        assert_eq!(shards.behind(), Some(100 * DAY));
        shards.describe(&[shard("a", None, None), shard("b", None, None)]);
        shards.read("b", sequence(9), 101 * DAY, None);
        shards.paged("a", 0, 101 * DAY);
        shards.paged("b", 1, 101 * DAY);
        assert_eq!(shards.behind(), Some(101 * DAY), "one shard idles, and the other is being read");
    }

    /// Of a child nothing is known but that it came behind its parent.
    #[test]
    fn nobody_has_looked_at_a_child_for_as_long_as_at_its_parent() {
        let mut shards = read_at(100 * DAY);
        empty_pages(&mut shards, SURE, 101 * DAY);
        shards.ended("a");
        shards.settle(|_| true);
        assert_eq!(shards.looked(), 101 * DAY);
        assert!(shards.has_unread(), "what follows it is not known yet");
        shards.describe(&[shard("a", None, None), shard("b", Some("a"), None)]);
        assert_eq!(shards.looked(), 101 * DAY);
    }
}
