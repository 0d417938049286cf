//! What the indexer decides, without I/O: records of slots in; commits in an order that versions alone decide, and what must be looked up, out.
//!
//! Arrival is never trusted. A commit is ready when all of its slots have arrived and each is the next version of its series; where a series is
//! ordered by places, once what stands before it there is in the index.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::mutation::Mutation;
use super::shards::Shards;
use crate::dynamo::records::Sequence;
use crate::event::{CommitId, EventType};
use crate::side::chain::Before;
use crate::side::notice::Notice;

/// Clocks of writers and indexers are within half an hour of the service's, so two of them are within this.
pub(crate) const HOUR: u64 = 3_600_000_000;
/// A version that does not come is looked for after this long, and again after twice as long, up to a minute.
const PATIENCE: u64 = 2_000_000;
/// Where there is no room for more, a commit is given up that arrived so long ago and waits for what has not come.
const GIVEN_UP: u64 = 5 * 60_000_000;

/// What stamps are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stamps {
    /// Drawn by writers from clocks that are right to half an hour.
    #[default]
    Drawn,
    /// Said by callers, and perhaps of another time than the writing.
    Said,
}

/// A commit whose turn has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    pub(crate) home: (String, u64),
    pub(crate) slots: BTreeMap<String, u64>,
    pub(crate) types: Option<BTreeSet<EventType>>,
    /// At most so many.
    pub(crate) events: u32,
    /// Its turn was over: a commit behind it is in the index already. Should never be.
    pub(crate) late: bool,
}

/// What the plan cannot know by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// Which commit left this slot, and its stamp: answer with [`Plan::slot_is`].
    Slot { series: String, version: u64 },
    /// Whether this commit, which left that slot, is in the index: answer with [`Plan::commit_is`].
    Commit { commit: CommitId, stamp: u64, series: String, version: u64 },
    /// What stands on a series before the place of this commit: answer with [`Plan::before_is`].
    Before { commit: CommitId, series: String, place: String },
    /// What became of that, which this run has not met: answer with [`Plan::earlier_is`].
    Earlier { commit: CommitId, series: String, before: Before },
}

/// What became of something that stands before a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earlier {
    Indexed,
    /// It is not in the log any more: what is before it counts.
    Gone,
    /// Its record is on its way, under this id; and when it was written.
    Comes(CommitId, u64),
}

/// The order of what is ready at the same time: by places, where there are any, then by stamps.
pub(crate) type Turn = (String, u64, CommitId);

/// A version that others wait for, and that does not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) series: String,
    pub(crate) version: u64,
    pub(crate) since: u64,
}

/// One run of the indexer, from the chain's end on.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) shards: Shards,
    /// The version that comes next, where that is known.
    next: HashMap<String, u64>,
    waiting: HashMap<CommitId, Waiting>,
    /// Slots that arrived, of commits that wait, by the first version that each holds.
    arrived: HashMap<String, BTreeMap<u64, CommitId>>,
    /// In the index since before this run, and their records may come again.
    listed: HashSet<CommitId>,
    /// Emitted in this run, with their stamps.
    emitted: HashMap<CommitId, u64>,
    ready: BTreeSet<Turn>,
    /// Those that wait for a commit, by places.
    followers: HashMap<CommitId, Vec<CommitId>>,
    /// Emitted, and not in an epoch yet.
    queue: VecDeque<Ready>,
    wants: BTreeSet<Want>,
    missing: HashMap<String, Missing>,
    /// Waited for in vain: not in the index, and their records are passed over. What follows them waits for a rebuild.
    given_up: HashSet<CommitId>,
    /// Records are lost: of what is stamped from here on no clock says that it is in the index.
    lost_since: Option<u64>,
    /// What is stamped before this is older than the chain.
    begun: u64,
    /// Something is in the log, not in the index, and no record of it can come any more.
    misses_old: bool,
    stamps: Stamps,
    mutation: Option<Mutation>,
}

#[derive(Debug, Default)]
struct Waiting {
    stamp: u64,
    /// When its first record was written, by the service's clock.
    at: u64,
    /// The first version of each slot. 0: one without order.
    arrived: BTreeMap<String, u64>,
    /// The home's list, once the home arrived, and where it is.
    slots: Option<BTreeMap<String, u64>>,
    home: (String, u64),
    types: Option<BTreeSet<EventType>>,
    events: u32,
    place: String,
    /// Series on which it is not known yet what stands before it.
    unsure: BTreeSet<String>,
    /// What must come before it, and when that was written.
    after: BTreeMap<CommitId, u64>,
}

/// A version that keeps others waiting.
#[derive(Debug)]
struct Missing {
    version: u64,
    since: u64,
    look_at: u64,
    pause: u64,
}

impl Plan {
    /// `listed`: commits that are in the index and whose records may come again.
    pub(crate) fn new(shards: Shards, listed: HashSet<CommitId>, stamps: Stamps, mutation: Option<Mutation>) -> Self {
        let listed = if mutation == Some(Mutation::NoListOfIds) { HashSet::new() } else { listed };
        Self { shards, listed, stamps, mutation, ..Self::default() }
    }

    /// One record of a shard, in the shard's order. None: a change that does not count. Whether it was not read before.
    pub(crate) fn take(&mut self, shard: &str, sequence: Sequence, at: u64, notice: Option<Notice>) -> bool {
        let fresh = self.shards.read(shard, sequence, at, notice.as_ref().map(|notice| notice.commit));
        if let Some(notice) = notice.filter(|_| fresh) {
            self.notice(notice, at);
        }
        fresh
    }

    fn notice(&mut self, notice: Notice, at: u64) {
        // Never because its version is low: a commit that comes late is emitted late.
        if self.is_indexed(notice.commit) {
            if notice.version > 0 {
                self.advance(&notice.series, notice.version);
            }
            return;
        }
        if self.given_up.contains(&notice.commit) {
            return;
        }
        let Notice { commit, stamp, series, version, span, slots, types, events, place } = notice;
        let first = (version + 1).saturating_sub(span.max(1)).max(version.min(1));
        if version > 0 {
            self.arrived.entry(series.clone()).or_default().insert(first, commit);
        }
        let fresh = Waiting { stamp, at, types: Some(BTreeSet::new()), ..Waiting::default() };
        let waiting = self.waiting.entry(commit).or_insert(fresh);
        waiting.types = match (waiting.types.take(), types) {
            (Some(so_far), Some(more)) => Some(so_far.into_iter().chain(more).collect()),
            _ => None,
        };
        if let Some(place) = place {
            let unsure = slots.iter().flatten().map(|(series, _)| series);
            waiting.arrived.extend(unsure.clone().filter(|other| **other != series).map(|series| (series.clone(), 0)));
            waiting.unsure = unsure.cloned().collect();
            self.wants.extend(waiting.unsure.iter().map(|series| Want::Before { commit, series: series.clone(), place: place.clone() }));
            waiting.place = place;
        }
        if let Some(slots) = slots {
            waiting.home = (series.clone(), version);
            waiting.slots = Some(slots);
        }
        if waiting.arrived.insert(series.clone(), first).is_none() {
            waiting.events = waiting.events.saturating_add(events);
        }
        self.look_before(&series);
        self.check(commit);
    }

    /// A series above version 1 that is seen for the first time: what is before it must be looked up, unless it is here.
    fn look_before(&mut self, series: &str) {
        if self.next.contains_key(series) {
            return;
        }
        let Some((&lowest, _)) = self.arrived.get(series).and_then(|slots| slots.first_key_value()) else { return };
        if lowest == 1 || self.mutated(Mutation::ShardOrderTrusted) {
            self.next.insert(series.into(), lowest);
        } else if self.missing.get(series).is_none_or(|missing| missing.version != lowest - 1) {
            self.wants.insert(Want::Slot { series: series.into(), version: lowest - 1 });
        }
    }

    fn is_indexed(&self, commit: CommitId) -> bool {
        self.listed.contains(&commit) || self.emitted.contains_key(&commit)
    }

    /// A series is in the index up to this version.
    fn advance(&mut self, series: &str, version: u64) {
        let next = self.next.entry(series.into()).or_insert(0);
        *next = (*next).max(version + 1);
        let next = *next;
        self.missing.remove(series);
        // What is lower than the next is late, and its turn has come as well.
        let turn: Vec<CommitId> =
            self.arrived.get(series).map(|slots| slots.range(..=next).map(|(_, commit)| *commit).collect()).unwrap_or_default();
        for commit in turn {
            self.check(commit);
        }
    }

    fn check(&mut self, commit: CommitId) {
        let Some(waiting) = self.waiting.get(&commit) else { return };
        let Some(slots) = &waiting.slots else { return };
        let whole = slots.keys().all(|series| waiting.arrived.contains_key(series)) || self.mutated(Mutation::NoBarrier);
        let next = |series: &String| self.next.get(series).copied();
        let turn = waiting.arrived.iter().all(|(series, first)| *first == 0 || next(series).is_some_and(|next| *first <= next));
        if whole && turn && waiting.unsure.is_empty() && waiting.after.is_empty() {
            self.ready.insert((waiting.place.clone(), waiting.stamp, commit));
        }
    }

    /// What stands on a series before a commit, as its row says; none: nothing does.
    pub(crate) fn before_is(&mut self, commit: CommitId, series: &str, found: Option<Before>, now: u64) {
        match found {
            None => self.is_sure(commit, series, None),
            Some(before) if self.waiting.contains_key(&before.commit) => {
                self.is_sure(commit, series, Some((before.commit, before.stamp)));
            }
            Some(before) if self.is_past(before.commit, before.stamp, now) => self.is_sure(commit, series, None),
            Some(before) => {
                self.wants.insert(Want::Earlier { commit, series: series.into(), before });
            }
        }
    }

    /// What became of what stands at this place before a commit.
    pub(crate) fn earlier_is(&mut self, commit: CommitId, series: &str, place: &str, earlier: Earlier, now: u64) {
        match earlier {
            Earlier::Gone => {
                self.wants.insert(Want::Before { commit, series: series.into(), place: place.into() });
            }
            Earlier::Comes(before, stamp) if self.waiting.contains_key(&before) || !self.is_past(before, stamp, now) => {
                self.misses_old |= !self.waiting.contains_key(&before) && self.cannot_come(stamp, now);
                self.is_sure(commit, series, Some((before, stamp)));
            }
            Earlier::Indexed | Earlier::Comes(..) => self.is_sure(commit, series, None),
        }
    }

    /// Whether nothing needs to wait for a commit any more.
    fn is_past(&self, commit: CommitId, stamp: u64, now: u64) -> bool {
        self.is_indexed(commit) || self.is_long_past(stamp, now)
    }

    /// Whether what has this stamp was read long ago, and so is in the index, unless it is among what was lost. The one place where a clock counts.
    fn is_long_past(&self, stamp: u64, now: u64) -> bool {
        let since = self.lost_since.filter(|since| self.stamps == Stamps::Said || stamp >= *since);
        let may_be_lost = since.is_some() || stamp < self.begun;
        self.cannot_come(stamp, now) && (!may_be_lost || self.mutated(Mutation::LostTakenForIndexed))
    }

    fn cannot_come(&self, stamp: u64, now: u64) -> bool {
        stamp + HOUR < self.shards.horizon(now)
    }

    /// What is stamped before this may have been forgotten by the stream before the chain was begun.
    pub(crate) fn begun(&mut self, at: u64) {
        self.begun = at;
    }

    /// Whether something was found that is not in the index, and of which no record can come any more.
    pub(crate) fn misses_old(&self) -> bool {
        self.misses_old
    }

    /// Records were lost; all that is stamped before this is in the index.
    pub(crate) fn lost(&mut self, since: u64) {
        self.lost_since = Some(self.lost_since.map_or(since, |earlier| earlier.min(since)));
    }

    fn is_sure(&mut self, commit: CommitId, series: &str, behind: Option<(CommitId, u64)>) {
        let Some(waiting) = self.waiting.get_mut(&commit) else { return };
        waiting.unsure.remove(series);
        if let Some((before, stamp)) = behind.filter(|(before, _)| *before != commit && !self.mutated(Mutation::PlacesIgnored))
            && let Some(waiting) = self.waiting.get_mut(&commit)
            && waiting.after.insert(before, stamp).is_none()
        {
            self.followers.entry(before).or_default().push(commit);
        }
        self.check(commit);
    }

    /// Nothing waits for this commit any more.
    fn release(&mut self, commit: CommitId) {
        for follower in self.followers.remove(&commit).unwrap_or_default() {
            if let Some(waiting) = self.waiting.get_mut(&follower) {
                waiting.after.remove(&commit);
            }
            self.check(follower);
        }
    }

    /// Emits what is ready, the lowest stamp first, and what becomes ready by that.
    pub(crate) fn emit(&mut self, now: u64) {
        while let Some((_, _, commit)) = self.ready.pop_first() {
            let Some(waiting) = self.waiting.remove(&commit) else { continue };
            let slots = waiting.slots.clone().unwrap_or_default();
            let next = |series: &String| self.next.get(series).copied();
            let late = waiting.arrived.iter().any(|(series, first)| *first > 0 && next(series).is_some_and(|next| *first < next));
            self.emitted.insert(commit, waiting.stamp);
            for series in waiting.arrived.keys() {
                if let Some(slots) = self.arrived.get_mut(series) {
                    slots.retain(|_, of| *of != commit);
                    if slots.is_empty() {
                        self.arrived.remove(series);
                        self.missing.remove(series);
                    }
                }
            }
            for (series, version) in slots.iter().filter(|(_, version)| **version > 0) {
                self.advance(series, *version);
            }
            self.release(commit);
            let Waiting { stamp, home, types, events, .. } = waiting;
            self.queue.push_back(Ready { commit, stamp, home, slots, types, events, late });
        }
        // What comes again and is in the index, since a rebuild put it, leaves nothing to put: the numbers must move without it, or nothing more is read.
        if self.shards.is_full() {
            self.settle();
        }
        self.forget(now);
    }

    /// Keeps memory bounded: what is an hour older than every unread record cannot come again, and is looked up if it is needed.
    fn forget(&mut self, now: u64) {
        if self.emitted.len() < self.shards.bounds.remembered {
            return;
        }
        let horizon = self.shards.horizon(now).saturating_sub(2 * HOUR);
        let queued: HashSet<CommitId> = self.queue.iter().map(|ready| ready.commit).collect();
        // Those beyond the numbers are listed by the next epoch.
        let beyond = self.shards.commits_beyond();
        self.emitted.retain(|commit, stamp| *stamp >= horizon || queued.contains(commit) || beyond.contains(commit));
        let arrived = &self.arrived;
        self.next.retain(|series, _| arrived.contains_key(series));
    }

    /// What must be looked up before more can be ready.
    pub(crate) fn wants(&mut self) -> Vec<Want> {
        std::mem::take(&mut self.wants).into_iter().collect()
    }

    /// The commit of a slot that was wanted, and its stamp. None: there is no such slot, so nothing waits for it.
    pub(crate) fn slot_is(&mut self, series: &str, version: u64, found: Option<(CommitId, u64)>, now: u64) {
        match found {
            None => self.advance(series, version),
            Some((commit, _)) if self.is_indexed(commit) => self.advance(series, version),
            // Its record came: it waits itself.
            Some((commit, _)) if self.waiting.contains_key(&commit) => self.miss(series, version, now),
            Some((_, stamp)) if self.is_long_past(stamp, now) && !self.is_dated(series) => self.advance(series, version),
            Some((commit, stamp)) => {
                self.wants.insert(Want::Commit { commit, stamp, series: series.into(), version });
            }
        }
    }

    /// Whether what waits on this series was dated otherwise than it was written, so that what is before it may be as well.
    fn is_dated(&self, series: &str) -> bool {
        let first = self.arrived.get(series).and_then(|slots| slots.first_key_value());
        let first = first.and_then(|(_, commit)| self.waiting.get(commit));
        self.stamps == Stamps::Said && first.is_some_and(|first| first.stamp.abs_diff(first.at) > HOUR)
    }

    /// Whether the commit of a slot that was wanted, of this stamp, is in the index.
    pub(crate) fn commit_is(&mut self, series: &str, version: u64, stamp: u64, indexed: bool, now: u64) {
        if indexed {
            return self.advance(series, version);
        }
        self.misses_old |= self.cannot_come(stamp, now) && !self.is_dated(series);
        self.miss(series, version, now);
    }

    fn miss(&mut self, series: &str, version: u64, now: u64) {
        let fresh = || Missing { version, since: now, look_at: now + PATIENCE, pause: PATIENCE };
        let missing = self.missing.entry(series.into()).or_insert_with(fresh);
        if missing.version != version {
            *missing = fresh();
        }
    }

    /// What others wait for is looked for with the next look, however short the last one is ago.
    pub(crate) fn hurry(&mut self) {
        for missing in self.missing.values_mut() {
            missing.look_at = 0;
        }
    }

    /// Where little more can be read because so much lies behind commits that do not become ready: gives up those of them that came long ago,
    /// the first of each shard first, until there is room. They are not in the index then, until a rebuild finds them.
    pub(crate) fn give_up(&mut self, now: u64) -> usize {
        let before = self.given_up.len();
        let mut full = self.shards.is_full();
        while full {
            let waits_in_vain = |commit: &CommitId| self.waiting.get(commit).is_some_and(|waiting| waiting.at + GIVEN_UP < now);
            let stuck: Vec<CommitId> = self.shards.fronts().filter(waits_in_vain).collect();
            if stuck.is_empty() {
                break;
            }
            for commit in stuck {
                self.leave_out(commit);
            }
            self.settle();
            full = self.shards.beyond() >= self.shards.bounds.soft;
        }
        self.given_up.len() - before
    }

    fn leave_out(&mut self, commit: CommitId) {
        let Some(waiting) = self.waiting.remove(&commit) else { return };
        self.given_up.insert(commit);
        for series in waiting.arrived.keys() {
            if let Some(slots) = self.arrived.get_mut(series) {
                slots.retain(|_, of| *of != commit);
                if slots.is_empty() {
                    self.arrived.remove(series);
                    self.missing.remove(series);
                }
            }
        }
    }

    /// Looks again for versions that keep others waiting; which of them have been waited for over an hour.
    pub(crate) fn look_again(&mut self, now: u64) -> Vec<Overdue> {
        if self.mutated(Mutation::NoLook) {
            return Vec::new();
        }
        // What was written before all that is unread, and is not among what was lost, is there.
        let is_there =
            |(commit, stamp): (&CommitId, &u64)| (self.is_long_past(*stamp, now) && !self.waiting.contains_key(commit)).then_some(*commit);
        let there: BTreeSet<CommitId> = self.waiting.values().flat_map(|waiting| waiting.after.iter().filter_map(is_there)).collect();
        for commit in there {
            self.release(commit);
        }
        let gaps: Vec<(String, u64)> = self
            .arrived
            .iter()
            .filter_map(|(series, slots)| {
                let lowest = *slots.first_key_value()?.0;
                // The one before what waits: if it is in the index, so is all before it.
                let is_next = self.next.get(series).is_some_and(|next| lowest <= *next);
                (!is_next).then(|| (series.clone(), lowest - 1))
            })
            .collect();
        // What came in part, and of which the rest cannot come any more.
        let in_part =
            |waiting: &Waiting| waiting.slots.as_ref().is_none_or(|slots| !slots.keys().all(|series| waiting.arrived.contains_key(series)));
        self.misses_old |= self.waiting.values().any(|waiting| in_part(waiting) && self.cannot_come(waiting.stamp, now));
        let mut overdue = Vec::new();
        for waiting in self.waiting.values().filter(|waiting| waiting.stamp + HOUR < now) {
            let unseen = waiting.slots.iter().flatten().find(|(series, _)| !waiting.arrived.contains_key(*series));
            overdue.extend(unseen.map(|(series, version)| Overdue { series: series.clone(), version: *version, since: waiting.stamp }));
        }
        for (series, version) in gaps {
            self.miss(&series, version, now);
            let Some(missing) = self.missing.get_mut(&series) else { continue };
            if missing.look_at <= now {
                missing.pause = (missing.pause * 2).min(60_000_000);
                missing.look_at = now + missing.pause;
                self.wants.insert(Want::Slot { series: series.clone(), version });
                if now.saturating_sub(missing.since) > HOUR {
                    overdue.push(Overdue { series, version, since: missing.since });
                }
            }
        }
        overdue
    }

    /// Whether anything may be put: not before the reading is where the chain's writer had been.
    pub(crate) fn may_put(&self) -> bool {
        self.shards.has_reached() || self.mutated(Mutation::PutBeforeReached)
    }

    /// Emitted commits that are in no epoch yet.
    pub(crate) fn queue(&self) -> &VecDeque<Ready> {
        &self.queue
    }

    /// Takes the first of the queue for an epoch, and the ids that the epoch must list. If the put is lost, so is this plan.
    pub(crate) fn commit(&mut self, count: usize) -> (Vec<Ready>, Vec<CommitId>) {
        let taken: Vec<Ready> = self.queue.drain(..count.min(self.queue.len())).collect();
        (taken, self.settle())
    }

    /// Moves every shard's number up to what is neither in an epoch nor given up; the ids that are in one beyond the numbers.
    fn settle(&mut self) -> Vec<CommitId> {
        // Read to where the old writer had been: of the old list only what came again can still come after a restart.
        let queued: HashSet<CommitId> = self.queue.iter().map(|ready| ready.commit).collect();
        let (listed, emitted, given_up) = (&self.listed, &self.emitted, &self.given_up);
        let is_put = |commit: CommitId| listed.contains(&commit) || (emitted.contains_key(&commit) && !queued.contains(&commit));
        let past_waiting = self.mutation == Some(Mutation::NumberPastWaiting);
        let mut ids = self.shards.settle(|commit| past_waiting || is_put(commit) || given_up.contains(&commit));
        ids.retain(|commit| !given_up.contains(commit));
        ids
    }

    /// When the first record was written of the commit that waits longest.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        self.waiting.values().map(|waiting| waiting.at).min()
    }

    /// Commits that have arrived, in part or whole, and whose turn has not come.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
