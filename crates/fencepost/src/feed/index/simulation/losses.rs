//! What the stream forgets in the simulation: records a day old, closed shards with them, while no indexer runs or one is far behind; records
//! that cannot be read; commits that are given up. Rebuilds come at any time, and one at the end, for which all that waits has waited.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{By, FOUND, HOUR, Indexer, Link, MINUTE, World};
use crate::event::CommitId;
use crate::feed::index::mutation::Mutation;
use crate::feed::index::plan::{Plan, Stamps};
use crate::feed::index::run::{FORGOTTEN, MAY_COME, UNREAD};
use crate::feed::index::shards::{Bounds, FORGETS, QUIET, SURE, Shards};
use crate::side::epoch::Gap;
use crate::side::notice::Notice;

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) happen: bool,
    /// Of whichever record: nobody can read it.
    unreadable: HashSet<(CommitId, String)>,
    pub(super) given_up: usize,
    /// Commits that a rebuild found.
    mended: usize,
}

/// What a shard sends that has records.
pub(super) enum Drought {
    None,
    /// An empty page.
    Dry,
    /// At least one of them, at last.
    Over,
}

/// Before which all is in the index when an epoch is put now.
pub(super) fn sure(now: u64) -> u64 {
    now.saturating_sub(UNREAD)
}

impl World {
    pub(super) fn lossy(seed: u64, mutation: Option<Mutation>) -> Self {
        let mut world = Self::new(seed, mutation);
        world.losses.happen = true;
        // Every other one with so little room that commits are given up.
        if seed.is_multiple_of(2) {
            world.bounds = Bounds { soft: 6, hard: 8, most: 40, short: 2, page: 3, remembered: 8 };
        }
        world
    }

    /// From the chain, as a run begins.
    pub(super) fn start(&mut self, which: usize) {
        let last = self.chain.last();
        let shards = last.map_or_else(|| Shards::unknown(self.now), |link| Shards::resume(&link.marks, link.looked));
        let mut listed: HashSet<CommitId> = last.iter().flat_map(|link| link.ids.iter().copied()).collect();
        let young = |link: &&Link| link.by == By::Rebuild && link.time + MAY_COME > self.now;
        listed.extend(self.chain.iter().filter(young).flat_map(|link| &link.commits));
        let forgets = last.is_some_and(|link| link.looked + FORGETS < self.now) && shards.has_unread();
        let plan = Plan::new(shards.within(self.bounds), listed, Stamps::Drawn, self.mutation);
        let (gap, time) = last.map_or((None, 0), |link| (link.gap, link.time));
        let begun = last.map_or(Some(self.now), |link| link.begun);
        let (number, sure, polled) = (self.chain.len(), sure(time), self.now);
        let mut indexer = Indexer { plan, number, gap, known_gap: gap, begun, sure, polled, dry: HashMap::new() };
        if let Some(begun) = begun {
            indexer.plan.begun(begun.saturating_sub(FORGOTTEN));
        }
        if let Some(gap) = gap {
            indexer.plan.lost(gap.since);
        }
        if forgets {
            self.miss(&mut indexer);
        }
        self.indexers[which] = Some(indexer);
    }

    /// Records are lost, and the indexer notices.
    pub(super) fn miss(&self, indexer: &mut Indexer) {
        let gap = Gap::found(indexer.gap, self.now, indexer.sure);
        indexer.plan.lost(gap.since);
        indexer.gap = Some(gap);
    }

    pub(super) fn readable(&self, notice: Notice) -> Option<Notice> {
        let strange = self.losses.unreadable.contains(&(notice.commit, notice.series.clone()));
        (!strange).then_some(notice)
    }

    pub(super) fn something_is_lost(&mut self) {
        if self.droughts.is_some() && self.rng.bool() {
            return self.look_in_vain();
        }
        match self.rng.u8(0..4) {
            0 => {
                if let Some((_, notice)) = self.underway.first() {
                    self.losses.unreadable.insert((notice.commit, notice.series.clone()));
                }
            }
            1 => {
                self.rebuild();
            }
            _ => self.outage(),
        }
    }

    /// Nobody indexes for up to two days, in which others write. The indexers die, or sleep with what they know.
    fn outage(&mut self) {
        if self.rng.bool() {
            self.indexers = [None, None];
        }
        let until = self.now + self.rng.u64(10 * HOUR..48 * HOUR);
        while self.now < until {
            for _ in 0..self.rng.u8(0..3) {
                self.write();
            }
            if self.rng.u8(0..3) == 0 {
                self.split();
            }
            while !self.underway.is_empty() {
                self.arrive();
            }
            self.now += self.rng.u64(30 * MINUTE..8 * HOUR);
        }
    }

    /// Now and then a shard sends many empty pages in front of its records, and fewer than are taken for the end.
    pub(super) fn drought(&mut self, indexer: &mut Indexer, shard: &str, there: usize) -> Drought {
        let Some(chance) = self.droughts.as_mut().filter(|_| there > 0) else { return Drought::None };
        match indexer.dry.get_mut(shard) {
            Some(left) if *left > 0 => {
                *left -= 1;
                return Drought::Dry;
            }
            Some(_) => {
                indexer.dry.remove(shard);
                return Drought::Over;
            }
            None => {}
        }
        if chance.u8(0..4) > 0 {
            return Drought::None;
        }
        indexer.dry.insert(shard.into(), chance.u32(QUIET..SURE * 2 / 3));
        Drought::Dry
    }

    /// Records lie unread for hours, a look meets empty pages in front of them, and before the next one they are gone.
    fn look_in_vain(&mut self) {
        self.turn(0, true);
        for _ in 0..4 {
            self.write();
        }
        while !self.underway.is_empty() {
            self.arrive();
        }
        self.now += self.rng.u64(2 * HOUR..10 * HOUR);
        let pages = self.rng.u32(QUIET..SURE / 2);
        let dry = self.shards.keys().map(|shard| (shard.clone(), pages)).collect();
        if let Some(indexer) = &mut self.indexers[0] {
            indexer.dry = dry;
        }
        for _ in 0..pages {
            self.turn(0, true);
        }
        self.now += self.rng.u64(15 * HOUR..23 * HOUR);
    }

    /// What is a day old is gone.
    pub(super) fn forget(&mut self) {
        if !self.losses.happen {
            return;
        }
        let now = self.now;
        for shelf in self.shards.values_mut() {
            let old = shelf.records.iter().take_while(|(written, _)| written + 24 * HOUR < now).count();
            shelf.trimmed = shelf.trimmed.max(old);
        }
        self.shards.retain(|_, shelf| shelf.closed.is_none_or(|at| at + 24 * HOUR >= now));
    }

    /// Puts what the chain lacks, by stamps, and what is ordered by places by these; in one epoch or two. Whether there was anything to put.
    fn rebuild(&mut self) -> bool {
        let known: HashSet<CommitId> = self.chain.iter().flat_map(|link| &link.commits).copied().collect();
        let places: BTreeMap<CommitId, &String> = self.rows.iter().filter_map(|((_, place), of)| Some(((*of)?, place))).collect();
        let turn = |commit: &CommitId| (places.get(commit).map_or("", |place| place.as_str()), self.commits[commit].stamp, *commit);
        let lacking: BTreeSet<_> = self.commits.keys().filter(|commit| !known.contains(commit)).map(turn).collect();
        let lacking: Vec<CommitId> = lacking.into_iter().map(|(.., commit)| commit).collect();
        let last = self.chain.last().map(|link| (link.marks.clone(), link.ids.clone(), link.gap, link.begun, link.looked));
        let (marks, ids, gap, begun, looked) = last.unwrap_or_default();
        if lacking.is_empty() && gap.is_none() {
            return false;
        }
        self.losses.mended += lacking.len();
        let marks: BTreeMap<_, _> = marks.into_iter().filter(|(id, _)| self.shards.contains_key(id)).collect();
        let (first, rest) = lacking.split_at(self.rng.usize(0..=lacking.len()));
        for (commits, gap, begun, looked) in [(first, gap, begun, looked), (rest, None, None, self.now)] {
            let (marks, ids) = (marks.clone(), ids.clone());
            let (commits, time) = (commits.to_vec(), self.now);
            self.chain.push(Link { commits, marks, ids, time, looked, gap, begun, by: By::Rebuild });
        }
        true
    }

    /// A rebuild, if the chain says that it is needed, or the log is older than the chain; whether it was.
    pub(super) fn is_mended(&mut self) -> bool {
        // What the last writer had read is gone, and nothing comes behind it: that shows once it must be gone, if no shard ends before.
        if self.indexers[0].as_ref().is_some_and(|indexer| !indexer.plan.shards.has_reached()) {
            self.now += 27 * HOUR;
            return true;
        }
        let older = |begun: u64| self.commits.values().any(|commit| commit.stamp < begun.saturating_sub(FORGOTTEN));
        let needed = self.chain.last().is_none_or(|link| link.gap.is_some() || link.begun.is_some_and(older));
        // One that waits looks at the chain again.
        let mended = needed && self.rebuild();
        if mended {
            self.indexers[0] = None;
        }
        mended
    }
}

#[test]
fn whatever_is_lost_every_commit_is_indexed_once_and_after_its_predecessors() {
    let rounds = std::env::var("FENCEPOST_INDEX_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(800);
    let (mut late, mut mended, mut given_up) = (0, 0, 0);
    for seed in (0..rounds).chain(FOUND) {
        let mut world = World::lossy(seed, None);
        late += world.run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        mended += world.losses.mended;
        given_up += world.losses.given_up;
    }
    assert_eq!(late, 0, "nothing comes behind its turn");
    assert!(mended > 1_000 && given_up > 10, "{mended} were lost, {given_up} times some were given up");
}

/// Taken for the end, they would have it said that nothing was unread; and what they stood before would go without a word.
#[test]
fn empty_pages_in_front_of_records_hide_no_loss() {
    for seed in 0..800 {
        let mut world = World::lossy(seed, None);
        world.droughts = Some(fastrand::Rng::with_seed(seed));
        let late = world.run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(late, 0, "seed {seed}: nothing comes behind its turn");
    }
}

#[test]
fn a_clock_that_takes_lost_commits_for_indexed_is_caught() {
    let caught = (0..3_000).find_map(|seed| World::lossy(seed, Some(Mutation::LostTakenForIndexed)).run().err());
    assert!(caught.as_ref().is_some_and(|why| why.starts_with("order")), "{caught:?}");
}
