//! Random histories of the plan: commits over a few series, records scattered over shards that split and close, delayed, swapped and read
//! twice, two indexers that crash and race, and hours that pass. Every commit must come out once, after its predecessor on every series.
//! Some series are ordered by versions, and some by places: there a commit follows what stood before it when it was written.
//! What the stream forgets is in `losses`.

mod losses;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use self::losses::{Drought, Losses, sure};
use super::mutation::Mutation;
use super::plan::{Earlier, HOUR, Plan, Stamps, Want};
use super::run::UNREAD;
use super::shards::{Bounds, FORGETS, Shards};
use crate::dynamo::records::{Sequence, Shard, Start};
use crate::event::CommitId;
use crate::side::chain::Before;
use crate::side::epoch::{Gap, Mark};
use crate::side::notice::Notice;

const SERIES: u64 = 5;
const COMMITS: u64 = 40;
const MINUTE: u64 = 60_000_000;

#[derive(Debug, Clone)]
struct Commit {
    stamp: u64,
    /// The first version of each; none has an order where it is 0.
    firsts: BTreeMap<String, u64>,
    /// What it follows by places.
    behind: Vec<CommitId>,
}

#[derive(Debug, Default)]
struct Shelf {
    parent: Option<String>,
    records: Vec<(u64, Notice)>,
    /// So many of the first are forgotten.
    trimmed: usize,
    /// When it was.
    closed: Option<u64>,
}

#[derive(Debug, Clone)]
struct Link {
    commits: Vec<CommitId>,
    marks: BTreeMap<String, Mark>,
    ids: Vec<CommitId>,
    time: u64,
    looked: u64,
    gap: Option<Gap>,
    begun: Option<u64>,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Indexer,
    Rebuild,
}

#[derive(Debug, Default)]
struct Indexer {
    plan: Plan,
    /// How many epochs it knows of.
    number: usize,
    gap: Option<Gap>,
    known_gap: Option<Gap>,
    begun: Option<u64>,
    sure: u64,
    polled: u64,
    /// How many empty pages are to come of a shard in front of its records; with the last of them its records must.
    dry: HashMap<String, u32>,
}

struct World {
    rng: fastrand::Rng,
    mutation: Option<Mutation>,
    bounds: Bounds,
    now: u64,
    commits: HashMap<CommitId, Commit>,
    table: HashMap<(String, u64), CommitId>,
    ends: BTreeMap<String, u64>,
    /// Rows of the series that places order; none: its event is gone.
    rows: BTreeMap<(String, String), Option<CommitId>>,
    /// Records on their way to a shard: when they were written, and what they say.
    underway: Vec<(u64, Notice)>,
    shards: BTreeMap<String, Shelf>,
    /// How many shards there have been.
    named: usize,
    chain: Vec<Link>,
    indexers: [Option<Indexer>; 2],
    /// Commits that were put behind their turn, by any indexer. One that loses the race may have thought so of what the other put.
    late: u64,
    /// The longest list of ids.
    listed: usize,
    losses: Losses,
    /// Chance of its own, so that a history without droughts stays the same.
    droughts: Option<fastrand::Rng>,
}

impl World {
    fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let shards = (0..3).map(|n| (format!("s{n}"), Shelf::default())).collect();
        Self {
            rng: fastrand::Rng::with_seed(seed),
            mutation,
            bounds: Bounds::default(),
            now: 1_767_225_600_000_000,
            commits: HashMap::new(),
            table: HashMap::new(),
            ends: BTreeMap::new(),
            rows: BTreeMap::new(),
            underway: Vec::new(),
            shards,
            named: 3,
            chain: Vec::new(),
            indexers: [None, None],
            late: 0,
            listed: 0,
            losses: Losses::default(),
            droughts: None,
        }
    }

    /// With lists so short that they are always full.
    fn narrow(seed: u64) -> Self {
        Self { bounds: Bounds { soft: 6, hard: 12, most: 40, short: 2, page: 3, remembered: 8 }, ..Self::new(seed, None) }
    }

    fn write(&mut self) {
        let commit = CommitId(Uuid::from_u128(u128::from(self.commits.len() as u64) + 1));
        if self.rng.u8(0..3) == 0 {
            return self.write_placed(commit);
        }
        let (mut slots, mut firsts) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..self.rng.u64(1..=3) {
            let series = format!("t/main/{}", self.rng.u64(0..SERIES));
            let end = self.ends.get(&series).copied().unwrap_or(0);
            // Mostly one version; a stream that counts events gets several at once.
            slots.insert(series.clone(), end + self.rng.u64(1..=4).saturating_sub(1).max(1));
            firsts.insert(series, end + 1);
        }
        // Now and then one whose series has no order.
        if self.rng.u8(0..8) == 0 {
            slots = BTreeMap::from([("t/main/loose".to_owned(), 0)]);
            firsts.clone_from(&slots);
        }
        // Above all that it follows, and by a clock that is up to a quarter of an hour off.
        let before = |(series, first): (&String, &u64)| self.table.get(&(series.clone(), first.checked_sub(1)?));
        let follows = firsts.iter().filter_map(before).map(|c| self.commits[c].stamp).max();
        let clock = self.now + self.rng.u64(0..30 * MINUTE) - 15 * MINUTE;
        let stamp = 1 + follows.unwrap_or(0).max(clock);
        let home = slots.keys().nth(self.rng.usize(0..slots.len())).cloned().expect("a slot");
        for (series, version) in &slots {
            self.ends.insert(series.clone(), *version);
            let first = firsts[series];
            self.table.extend((first.max(1)..=*version).map(|version| ((series.clone(), version), commit)));
            let all = (*series == home).then(|| slots.clone());
            let (series, version) = (series.clone(), *version);
            let notice =
                Notice { commit, stamp, series, version, span: version + 1 - first, slots: all, types: None, events: 1, place: None };
            self.underway.push((self.now, notice));
        }
        self.commits.insert(commit, Commit { stamp, firsts, behind: Vec::new() });
    }

    /// On one or two series, mostly behind all that is there; by somebody whose clock is late, before it.
    fn write_placed(&mut self, commit: CommitId) {
        let number = self.commits.len() as u64 * 10;
        let place = format!("{:09}", if self.rng.u8(0..6) == 0 { number / 2 + 1 } else { number });
        let names: BTreeSet<String> = (0..self.rng.u8(1..=2)).map(|_| format!("t/placed/{}", self.rng.u8(0..3))).collect();
        let mut behind = Vec::new();
        for series in &names {
            behind.extend(self.last_before(series, &place).and_then(|(_, commit)| commit));
            self.rows.insert((series.clone(), place.clone()), Some(commit));
            // A row whose event was taken back.
            if self.rng.u8(0..6) == 0 {
                self.rows.insert((series.clone(), format!("{place}+")), None);
            }
        }
        let stamp = self.now + self.rng.u64(0..30 * MINUTE) - 15 * MINUTE;
        let slots: BTreeMap<String, u64> = names.into_iter().map(|series| (series, 0)).collect();
        let series = slots.keys().next().cloned().expect("a slot");
        let notice = Notice { commit, stamp, series, version: 0, span: 1, slots: Some(slots), types: None, events: 1, place: Some(place) };
        self.underway.push((self.now, notice));
        self.commits.insert(commit, Commit { stamp, firsts: BTreeMap::new(), behind });
    }

    /// The last row before a place, and what it names: passed over are those whose events are gone.
    fn last_before(&self, series: &str, place: &str) -> Option<(String, Option<CommitId>)> {
        let rows = self.rows.range((series.to_owned(), String::new())..(series.to_owned(), place.to_owned()));
        rows.rev().find(|(_, commit)| commit.is_some()).map(|((_, place), commit)| (place.clone(), *commit))
    }

    /// One record arrives, in any open shard, whenever it was written.
    fn arrive(&mut self) {
        if self.underway.is_empty() {
            return;
        }
        // Mostly the oldest first; now and then any.
        let at = if self.rng.u8(0..4) > 0 { 0 } else { self.rng.usize(0..self.underway.len()) };
        let (written, notice) = self.underway.remove(at);
        let open: Vec<&String> = self.shards.iter().filter(|(_, shelf)| shelf.closed.is_none()).map(|(id, _)| id).collect();
        let shard = open[self.rng.usize(0..open.len())].clone();
        self.shards.get_mut(&shard).expect("it is open").records.push((written, notice));
    }

    fn split(&mut self) {
        if self.shards.len() > 8 {
            return;
        }
        let open: Vec<String> = self.shards.iter().filter(|(_, shelf)| shelf.closed.is_none()).map(|(id, _)| id.clone()).collect();
        let shard = open[self.rng.usize(0..open.len())].clone();
        self.shards.get_mut(&shard).expect("it is open").closed = Some(self.now);
        for _ in 0..self.rng.usize(1..=2) {
            let id = format!("s{}", self.named);
            self.named += 1;
            self.shards.insert(id, Shelf { parent: Some(shard.clone()), ..Shelf::default() });
        }
    }

    fn described(&self) -> Vec<Shard> {
        self.shards.iter().map(|(id, shelf)| Shard { id: id.clone(), parent: shelf.parent.clone(), last: None }).collect()
    }

    /// One turn of an indexer: a page of one shard, what it wants, and perhaps a put. Whether anything moved.
    fn turn(&mut self, which: usize, whole: bool) -> bool {
        self.forget();
        if self.indexers[which].as_ref().is_none_or(|indexer| indexer.polled + FORGETS < self.now) {
            self.start(which);
        }
        let described = self.described();
        let mut indexer = self.indexers[which].take().expect("it was started");
        indexer.polled = self.now;
        indexer.plan.shards.forgotten(self.now.saturating_sub(UNREAD));
        let found = indexer.plan.shards.describe(&described);
        indexer.plan.shards.described(self.now);
        if !found.lost.is_empty() {
            self.miss(&mut indexer);
        }
        let to_read = indexer.plan.shards.to_read();
        let mut moved = false;
        let pages = if whole { to_read.len() } else { 1.min(to_read.len()) };
        let first = if to_read.is_empty() { 0 } else { self.rng.usize(0..to_read.len()) };
        for n in 0..pages {
            let (shard, limit) = &to_read[(first + n) % to_read.len()];
            moved |= self.page(&mut indexer, shard, *limit);
        }
        indexer.plan.look_again(self.now);
        if whole && !moved && indexer.plan.give_up(self.now) > 0 {
            self.losses.given_up += 1;
            self.miss(&mut indexer);
        }
        self.answer(&mut indexer.plan);
        if indexer.plan.misses_old() && indexer.gap.is_none() {
            indexer.sure = 0;
            self.miss(&mut indexer);
        }
        indexer.plan.emit(self.now);
        let putting = whole || self.rng.u8(0..3) == 0;
        let queued = indexer.plan.queue().len();
        if putting && indexer.plan.may_put() && (queued > 0 || indexer.gap != indexer.known_gap) {
            moved = true;
            let count = self.rng.usize(1.min(queued)..=queued);
            let (taken, ids) = indexer.plan.commit(count);
            let late = taken.iter().filter(|ready| ready.late).count() as u64;
            assert!(ids.len() <= self.bounds.most + self.bounds.soft + self.bounds.page, "{} ids", ids.len());
            self.listed = self.listed.max(ids.len());
            let (commits, shards, time) = (taken.iter().map(|ready| ready.commit).collect(), &indexer.plan.shards, self.now);
            let (marks, looked) = (shards.marks(), shards.looked());
            let link = Link { commits, marks, ids, time, looked, gap: indexer.gap, begun: indexer.begun, by: By::Indexer };
            if self.chain.len() == indexer.number {
                self.chain.push(link);
                self.late += late;
                indexer.number += 1;
                (indexer.known_gap, indexer.sure) = (indexer.gap, sure(self.now));
            } else if self.mutation == Some(Mutation::NoPutIfAbsent) {
                self.chain[indexer.number] = link;
                indexer.number += 1;
            } else {
                // The race is lost: again from the chain.
                return true;
            }
        }
        self.indexers[which] = Some(indexer);
        moved
    }

    fn page(&mut self, indexer: &mut Indexer, shard: &str, limit: usize) -> bool {
        let trimmed = self.shards[shard].trimmed;
        let number = |sequence: &Sequence| sequence.as_str().parse::<usize>().expect("a number");
        // Behind a record that has expired a stream refuses, whether or not anything followed it.
        let (behind, refused) = match indexer.plan.shards.start(shard) {
            Start::Oldest => (trimmed, false),
            Start::At(sequence) => (number(&sequence), number(&sequence) < trimmed),
            Start::After(sequence) => (number(&sequence) + 1, number(&sequence) < trimmed),
        };
        if refused {
            if indexer.plan.shards.has_only_expired(shard, self.now) {
                indexer.plan.shards.expired(shard);
            } else {
                self.miss(indexer);
                indexer.plan.shards.lost(shard);
            }
            return true;
        }
        let there = self.shards[shard].records.len() - behind;
        let rains = match self.drought(indexer, shard, there) {
            Drought::Dry => {
                indexer.plan.shards.paged(shard, 0, self.now);
                return false;
            }
            Drought::Over => 1,
            Drought::None => 0,
        };
        // Now and then a page comes again.
        let again = self.rng.u8(0..8) == 0;
        let from = if again { behind.saturating_sub(2).max(self.shards[shard].trimmed) } else { behind };
        let to = (behind + self.rng.usize(0..6).max(rains).min(limit)).min(self.shards[shard].records.len());
        for at in from..to {
            let (written, notice) = self.shards[shard].records[at].clone();
            let notice = self.readable(notice);
            let strange = notice.is_none();
            if indexer.plan.take(shard, Sequence::new(at.to_string()), written, notice) && strange {
                self.miss(indexer);
            }
        }
        // Without droughts an empty page in front of records is passed over, as in the histories that were found.
        if self.droughts.is_some() || to > behind || to == self.shards[shard].records.len() {
            indexer.plan.shards.paged(shard, to - behind, self.now);
        }
        let shelf = &self.shards[shard];
        let ends = shelf.closed.is_some() && to == shelf.records.len();
        if ends {
            indexer.plan.shards.ended(shard);
        }
        to > behind || ends
    }

    fn answer(&mut self, plan: &mut Plan) {
        loop {
            let wants = plan.wants();
            if wants.is_empty() {
                return;
            }
            for want in wants {
                match want {
                    Want::Slot { series, version } => {
                        let found = self.table.get(&(series.clone(), version)).map(|commit| (*commit, self.commits[commit].stamp));
                        plan.slot_is(&series, version, found, self.now);
                    }
                    Want::Commit { commit, stamp, series, version } => {
                        let indexed = self.chain.iter().any(|link| link.commits.contains(&commit));
                        plan.commit_is(&series, version, stamp, indexed, self.now);
                    }
                    Want::Before { commit, series, place } => {
                        let rows = self.rows.range((series.clone(), String::new())..(series.clone(), place));
                        let found = rows.last().map(|((_, place), of)| Before {
                            commit: of.unwrap_or(CommitId(Uuid::nil())),
                            place: place.clone(),
                            stamp: of.map_or(self.now, |of| self.commits[&of].stamp),
                        });
                        plan.before_is(commit, &series, found, self.now);
                    }
                    Want::Earlier { commit, series, before } => {
                        let earlier = if before.commit.0.is_nil() {
                            Earlier::Gone
                        } else if self.chain.iter().any(|link| link.commits.contains(&before.commit)) {
                            Earlier::Indexed
                        } else {
                            Earlier::Comes(before.commit, before.stamp)
                        };
                        plan.earlier_is(commit, &series, &before.place, earlier, self.now);
                    }
                }
            }
        }
    }

    fn run(&mut self) -> Result<u64, String> {
        while (self.commits.len() as u64) < COMMITS || self.rng.u8(0..40) > 0 {
            match self.rng.u8(0..100) {
                0..25 if (self.commits.len() as u64) < COMMITS => self.write(),
                0..50 => self.arrive(),
                50..80 => {
                    self.turn(0, false);
                }
                80..92 => {
                    self.turn(1, false);
                }
                92..95 => {
                    let which = self.rng.usize(0..2);
                    self.indexers[which] = None;
                }
                95 => self.split(),
                _ if self.losses.happen && self.rng.u8(0..30) == 0 => self.something_is_lost(),
                96 => {
                    // Hours pass only when nothing is on its way: a record is in its shard within minutes.
                    while !self.underway.is_empty() {
                        self.arrive();
                    }
                    self.now += self.rng.u64(20 * MINUTE..3 * HOUR);
                }
                _ => self.now += self.rng.u64(1_000..3_000_000),
            }
        }
        while !self.underway.is_empty() {
            self.arrive();
        }
        // Whatever crashed before: from now on the first runs in peace.
        self.indexers[1] = None;
        let (mut idle, mut turns) = (0, 0);
        while idle < 40 {
            turns += 1;
            if turns > 5_000 {
                return Err("it never comes to rest".into());
            }
            idle = if self.turn(0, true) { 0 } else { idle + 1 };
            self.now += 5_000_000;
            // What waits for what is lost waits for this, however long.
            if idle == 40 && self.is_mended() {
                idle = 0;
            }
        }
        self.audit()?;
        Ok(self.late)
    }

    fn audit(&self) -> Result<(), String> {
        let mut at: HashMap<CommitId, usize> = HashMap::new();
        for (n, commit) in self.chain.iter().flat_map(|link| &link.commits).enumerate() {
            if at.insert(*commit, n).is_some() {
                return Err(format!("twice: {commit}"));
            }
        }
        let mut missing: BTreeSet<CommitId> = self.commits.keys().copied().collect();
        for commit in at.keys() {
            missing.remove(commit);
        }
        if let Some(commit) = missing.first() {
            return Err(format!("lost: {commit} and {} more", missing.len() - 1));
        }
        for (commit, what) in &self.commits {
            if let Some(before) = what.behind.iter().find(|before| at[*before] > at[commit]) {
                return Err(format!("order: {commit} before {before}, by places"));
            }
            for (series, first) in what.firsts.iter().filter(|(_, first)| **first > 1) {
                let before = self.table[&(series.clone(), first - 1)];
                if at[&before] > at[commit] {
                    return Err(format!("order: {commit} before {before} on {series}"));
                }
            }
        }
        Ok(())
    }
}

/// Histories that have failed once, each of those of a wider run.
const FOUND: [u64; 1] = [5_618];

fn first_failure(seeds: std::ops::Range<u64>, mutation: Option<Mutation>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| World::new(seed, mutation).run().err().map(|why| (seed, why)))
}

#[test]
fn every_commit_is_indexed_once_and_after_its_predecessors() {
    let rounds = std::env::var("FENCEPOST_INDEX_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(800);
    let mut late = 0;
    for seed in (0..rounds).chain(FOUND) {
        match World::new(seed, None).run() {
            Ok(more) => late += more,
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert_eq!(late, 0, "nothing comes behind its turn");
}

#[test]
fn with_little_room_every_commit_is_indexed_once_all_the_same() {
    let (mut late, mut listed) = (0, 0);
    for seed in 0..400 {
        let mut world = World::narrow(seed);
        late += world.run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        listed = listed.max(world.listed);
    }
    assert_eq!(late, 0, "nothing comes behind its turn");
    assert!(listed > 6, "the lists were never longer than {listed}");
}

/// A commit whose second record never comes; behind its first, those of others come for as long as it takes.
#[test]
fn a_commit_that_never_becomes_ready_does_not_stop_its_shard() {
    let bounds = Bounds { soft: 6, hard: 12, most: 24, short: 2, page: 3, remembered: 8 };
    let mut plan = Plan::new(Shards::default().within(bounds), std::collections::HashSet::new(), Stamps::Drawn, None);
    plan.shards.describe(&[Shard { id: "s".into(), parent: None, last: None }]);
    let began = 1_767_225_600_000_000;
    let notice = |n: u64, slots: &[(String, u64)]| Notice {
        commit: CommitId(Uuid::from_u128(u128::from(n) + 1)),
        stamp: began + n,
        series: slots[0].0.clone(),
        version: 1,
        span: 1,
        slots: Some(slots.iter().cloned().collect()),
        types: None,
        events: 1,
        place: None,
    };
    let stuck = [("t/main/stuck".to_owned(), 1), ("t/main/lost".to_owned(), 1)];
    let (mut read, mut indexed, mut given_up, mut now) = (0, BTreeSet::new(), 0, began);
    for _ in 0..200 {
        now += 3_000_000;
        let to_read = plan.shards.to_read();
        for _ in 0..to_read.first().map_or(0, |(_, limit)| *limit) {
            let other = [(format!("t/main/{read}"), 1)];
            let slots: &[_] = if read == 0 { &stuck } else { &other };
            plan.take("s", Sequence::new(read.to_string()), began, Some(notice(read, slots)));
            read += 1;
        }
        plan.emit(now);
        let (taken, ids) = plan.commit(usize::MAX);
        indexed.extend(taken.iter().map(|ready| ready.commit));
        assert!(ids.len() <= bounds.most, "{} ids", ids.len());
        if to_read.is_empty() {
            given_up += plan.give_up(now);
            assert_eq!(given_up > 0, now > began + 300_000_000, "after five minutes, and not before");
        }
    }
    assert_eq!((given_up, plan.waiting(), indexed.len() as u64), (1, 0, read - 1));
    assert!(read > 100, "{read}");
}

#[test]
fn what_lies_beyond_the_numbers_fits_an_epoch_however_many_shards_there_are() {
    for count in [1, 3, 24, 200] {
        let mut shards = Shards::default();
        let described: Vec<Shard> = (0..count).map(|n| Shard { id: format!("s{n}"), parent: None, last: None }).collect();
        shards.describe(&described);
        let mut sequence = 0;
        loop {
            let to_read = shards.to_read();
            if to_read.is_empty() {
                break;
            }
            for (shard, limit) in to_read {
                for _ in 0..limit {
                    sequence += 1;
                    shards.read(&shard, Sequence::new(sequence.to_string()), sequence, Some(CommitId(Uuid::from_u128(sequence.into()))));
                }
                shards.paged(&shard, limit, 0);
            }
        }
        let ids = shards.beyond();
        assert!((12_288..=16_384).contains(&ids), "{ids} of {count} shards");
    }
}

#[test]
fn what_follows_a_shard_that_ended_counts_as_unread_before_it_is_described() {
    let mut shards = Shards::default();
    let shard = |id: &str, parent: Option<&str>| Shard { id: id.into(), parent: parent.map(str::to_owned), last: None };
    shards.describe(&[shard("a", None), shard("b", None)]);
    let began = 1_767_225_600_000_000;
    shards.read("a", Sequence::new("1"), began, None);
    shards.read("b", Sequence::new("1"), began + 5 * HOUR, None);
    shards.ended("a");
    assert_eq!(shards.horizon(began + 6 * HOUR), began, "the child of a is not known, and may begin there");
    shards.describe(&[shard("a", None), shard("b", None), shard("c", Some("a"))]);
    shards.read("c", Sequence::new("1"), began + 4 * HOUR, None);
    assert_eq!(shards.horizon(began + 6 * HOUR), began + 4 * HOUR);
}

#[test]
fn each_mutation_is_caught() {
    use Mutation::*;
    for (mutation, known_by) in [
        (NoListOfIds, "twice"),
        (PutBeforeReached, "twice"),
        (NoBarrier, "order"),
        (NoPutIfAbsent, "lost"),
        (ShardOrderTrusted, "order"),
        (NoLook, "lost"),
        (NumberPastWaiting, "lost"),
        (PlacesIgnored, "order"),
    ] {
        let caught = (0..3_000).find_map(|seed| World::new(seed, Some(mutation)).run().err().filter(|why| why.starts_with(known_by)));
        assert!(caught.is_some(), "{mutation:?} went unnoticed; first failure: {:?}", first_failure(0..3_000, Some(mutation)));
    }
}
