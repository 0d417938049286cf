//! Looking after the log: whether it is whole, chunks that no commit names, and what is in it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;

use super::Ledger;
use super::item::{self, Entries, HASH, RANGE, Slot};
use super::series::Series;
use crate::dynamo::item::{Attributes, Item};
use crate::dynamo::{Op, Outcome, Write};
use crate::error::Result;
use crate::event::CommitId;
use crate::layout::{Collected, Finding, Verified};

/// What a scan remembers of one series: bounded by the number of series, not of events.
#[derive(Debug, Default)]
struct Seen {
    slots: u64,
    highest: u64,
}

/// What a scan remembers of one commit, until all its slots were met.
#[derive(Debug, Default)]
struct Half {
    /// From the home: series and versions that must be there.
    written: Option<BTreeMap<Series, u64>>,
    met: BTreeMap<Series, u64>,
    events: u64,
}

/// What a scan remembers of one set of chunks.
#[derive(Debug, Default)]
struct ChunkSet {
    numbers: u64,
    highest: u64,
    sealed: bool,
    dead: bool,
    stamp: u64,
    /// The highest chunk that a slot refers to.
    wanted: u64,
}

impl Ledger {
    /// Reads the whole table once. A commit that lands meanwhile may be met in part: what looks wrong is read again before it is said.
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        let op = self.dynamo().long_op();
        let mut report = Verified::default();
        let mut series: HashMap<Series, Seen> = HashMap::new();
        let mut halves: HashMap<CommitId, Half> = HashMap::new();
        let mut sets: HashMap<Uuid, ChunkSet> = HashMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, self.table(), start).await?;
            for item in &items {
                report.items += 1;
                self.take(item, &mut series, &mut halves, &mut sets, &mut report);
            }
            progress(report.items);
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        self.recheck(&op, series, halves, sets, &mut report).await?;
        report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
        report.units = op.units();
        Ok(report)
    }

    fn take(
        &self,
        item: &Item,
        series: &mut HashMap<Series, Seen>,
        halves: &mut HashMap<CommitId, Half>,
        sets: &mut HashMap<Uuid, ChunkSet>,
        report: &mut Verified,
    ) {
        let Ok(hash) = item.text(HASH) else { return };
        if let Some(set) = hash.strip_prefix(&format!("c/{}/", self.namespace())).and_then(|id| id.parse().ok()) {
            let set = sets.entry(set).or_default();
            match item.number(RANGE) {
                Ok(0) => (set.sealed, set.dead) = (true, item::is_dead_seal(item)),
                Ok(number) => (set.numbers, set.highest) = (set.numbers + 1, set.highest.max(number)),
                Err(_) => {}
            }
            return;
        }
        let slot = match (Series::of_key(hash, self.namespace()), item.number(RANGE)) {
            (Some(_), Ok(version)) if version > 0 => item::slot(self.namespace(), item),
            _ => return,
        };
        let slot = match slot {
            Ok(slot) => slot,
            Err(error) => return report.findings.push(Finding { item: item::describe(item), problem: error.to_string() }),
        };
        let seen = series.entry(slot.series.clone()).or_default();
        (seen.slots, seen.highest) = (seen.slots + 1, seen.highest.max(slot.version));
        let runs = match &slot.entries {
            Entries::Chunked { run, .. } => vec![*run],
            Entries::Here(entries) => entries.iter().filter_map(|e| if let item::Body::Chunk(run) = e.body { Some(run) } else { None }).collect(),
        };
        for run in runs {
            let set = sets.entry(run.set).or_default();
            set.wanted = set.wanted.max(run.last);
        }
        self.take_slot(slot, halves, report);
    }

    fn take_slot(&self, slot: Slot, halves: &mut HashMap<CommitId, Half>, report: &mut Verified) {
        let half = halves.entry(slot.commit).or_default();
        half.met.insert(slot.series.clone(), slot.version);
        if let Some(home) = &slot.home {
            half.written = Some(home.written.clone());
        }
        half.events = half.events.max(highest_index(&slot));
        if half.written.as_ref() == Some(&half.met) {
            report.commits += 1;
            report.events += half.events;
            halves.remove(&slot.commit);
        }
    }

    async fn recheck(
        &self,
        op: &Op,
        series: HashMap<Series, Seen>,
        halves: HashMap<CommitId, Half>,
        sets: HashMap<Uuid, ChunkSet>,
        report: &mut Verified,
    ) -> Result<()> {
        for (series, seen) in series.iter().filter(|(_, seen)| seen.slots != seen.highest) {
            let mut missing = Vec::new();
            for version in 1..=seen.highest {
                if !self.is_there(op, series.key(self.namespace()), version).await? {
                    missing.push(version.to_string());
                }
            }
            if !missing.is_empty() {
                report.findings.push(Finding { item: series.key(self.namespace()), problem: format!("versions are missing: {}", missing.join(", ")) });
            }
        }
        for (commit, half) in halves {
            let Some(written) = half.written else {
                let item = half.met.iter().next().map_or(String::new(), |(s, v)| format!("{} @{v}", s.key(self.namespace())));
                // Its home may have landed behind the scan.
                if let Some((series, version)) = half.met.iter().next()
                    && self.home_shows(op, series, *version).await?
                {
                    report.commits += 1;
                    report.events += half.events;
                    continue;
                }
                report.findings.push(Finding { item, problem: format!("the home of commit {commit} is missing") });
                continue;
            };
            let mut whole = true;
            for (series, version) in written.iter().filter(|(s, v)| half.met.get(*s) != Some(*v)) {
                if !self.is_there(op, series.key(self.namespace()), *version).await? {
                    whole = false;
                    let item = format!("{} @{version}", series.key(self.namespace()));
                    report.findings.push(Finding { item, problem: format!("a slot of commit {commit} is missing") });
                }
            }
            if whole {
                report.commits += 1;
                report.events += half.events;
            }
        }
        for (id, set) in sets.iter().filter(|(_, set)| set.wanted > 0) {
            let hash = item::chunk_hash(self.namespace(), *id);
            if !set.sealed || set.dead {
                report.findings.push(Finding { item: hash.clone(), problem: "a commit refers to chunks that it did not seal".into() });
            }
            for number in 1..=set.wanted {
                if set.numbers < set.wanted && !self.is_there(op, hash.clone(), number).await? {
                    report.findings.push(Finding { item: format!("{hash} @{number}"), problem: "a chunk that a commit refers to is missing".into() });
                }
            }
        }
        Ok(())
    }

    async fn is_there(&self, op: &Op, hash: String, range: u64) -> Result<bool> {
        Ok(self.dynamo().get(op, self.table(), item::key(hash, range), crate::dynamo::Freshness::Strong).await?.is_some())
    }

    async fn home_shows(&self, op: &Op, series: &Series, version: u64) -> Result<bool> {
        let key = item::key(series.key(self.namespace()), version);
        let Some(found) = self.dynamo().get(op, self.table(), key, crate::dynamo::Freshness::Strong).await? else { return Ok(false) };
        let (home, at) = item::slot(self.namespace(), &found)?.home_key();
        self.is_there(op, home.key(self.namespace()), at).await
    }

    /// Deletes chunks of sets that are old and that no commit sealed: first the dead seal, which no commit can pass, then the chunks.
    pub(crate) async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        let op = self.dynamo().long_op();
        let now = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let too_young = now.saturating_sub(u64::try_from(older_than.as_micros()).unwrap_or(u64::MAX));
        let mut sets: BTreeMap<Uuid, ChunkSet> = BTreeMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, self.table(), start).await?;
            for item in &items {
                let set = item.text(HASH).ok().and_then(|hash| hash.strip_prefix(&format!("c/{}/", self.namespace()))?.parse().ok());
                if let (Some(set), Ok(number)) = (set, item.number(RANGE)) {
                    let set = sets.entry(set).or_default();
                    set.stamp = set.stamp.max(item::stamp_of(item).unwrap_or(u64::MAX));
                    if number == 0 {
                        (set.sealed, set.dead) = (true, item::is_dead_seal(item));
                    } else {
                        (set.numbers, set.highest) = (set.numbers + 1, set.highest.max(number));
                    }
                }
            }
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        let mut report = Collected { seen: sets.len() as u64, ..Collected::default() };
        for (id, set) in sets {
            // A dead set with chunks left is one that an earlier sweep did not finish.
            let abandoned = (!set.sealed && set.stamp <= too_young) || (set.dead && set.numbers > 0);
            if !abandoned || !self.mark_dead(&op, id).await? {
                continue;
            }
            report.sets += 1;
            for number in 1..=set.highest {
                let key = item::key(item::chunk_hash(self.namespace(), id), number);
                self.dynamo().delete(&op, self.table(), key).await?;
                report.chunks += 1;
            }
        }
        report.units = op.units();
        Ok(report)
    }

    /// Whether the set is dead now. A commit that sealed it first keeps it.
    async fn mark_dead(&self, op: &Op, set: Uuid) -> Result<bool> {
        let seal = item::seal_item(self.namespace(), set, self.new_stamp(0)?, None);
        match self.dynamo().write(op, HASH, vec![Write::PutNew { table: self.table().into(), item: seal }]).await? {
            Outcome::Done => Ok(true),
            Outcome::Failed { .. } => {
                let key = item::key(item::chunk_hash(self.namespace(), set), 0);
                let there = self.dynamo().get(op, self.table(), key, crate::dynamo::Freshness::Strong).await?;
                Ok(there.is_some_and(|seal| item::is_dead_seal(&seal)))
            }
        }
    }

    /// Commits and events, where lanes count them: one request for each lane.
    pub(crate) async fn counts(&self, op: &Op) -> Result<Option<(u64, u64)>> {
        let Some(lanes) = self.settings().lanes() else { return Ok(None) };
        let (mut commits, mut events) = (0, 0);
        for lane in 0..lanes {
            if let Some(slot) = self.last_slot(op, &Series::Lane(lane), crate::dynamo::Freshness::Strong).await? {
                (commits, events) = (commits + slot.version, events + slot.count);
            }
        }
        Ok(Some((commits, events)))
    }
}

fn highest_index(slot: &Slot) -> u64 {
    match &slot.entries {
        Entries::Here(entries) => entries.iter().map(|e| u64::from(e.index) + 1).max().unwrap_or(0),
        Entries::Chunked { count, .. } => *count,
    }
}
