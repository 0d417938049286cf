//! Whether the index is right: the log and the chain read whole, and every difference named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::TryStreamExt;

use super::plan::HOUR;
use super::run::now;
use super::scan::PARTS;
use crate::dynamo::Op;
use crate::error::Result;
use crate::event::{CommitId, EventType};
use crate::layout::{Finding, VerifyProgress};
use crate::side::chain::Indexable;
use crate::side::epoch::{Epoch, Indexed};
use crate::side::notice::{Notice, split};
use crate::side::series::Series;
use crate::units::Units;

/// What [`super::Index::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexVerified {
    /// Items of the log that were read.
    pub items: u64,
    /// Commits in the log.
    pub commits: u64,
    /// Commits in the index.
    pub indexed: u64,
    /// Commits appended since it began, which were not compared.
    pub younger: u64,
    /// Commits in the index whose events have gone from the log, where they may: by their time to live, or taken back.
    pub expired: u64,
    /// What differs; nothing, if all is well.
    pub findings: Vec<Finding>,
    /// What it cost.
    pub units: Units,
}

/// What the chain says, read once from its beginning.
#[derive(Debug, Default)]
struct Chain {
    next: u64,
    /// Whether the log has it too.
    commits: HashMap<CommitId, Seen>,
    /// How far each series is, by its whole key.
    ends: HashMap<String, u64>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Seen {
    epoch: u64,
    home: String,
    in_log: bool,
    /// A digest of its slots, where the entry names them all.
    slots: Option<u64>,
    /// Its types, where the entry names them.
    types: Option<Types>,
}

/// Which types there are, in 64 bits: enough to tell that one is missing, mostly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u64);

impl Types {
    fn of(types: &BTreeSet<EventType>) -> Self {
        Self(types.iter().fold(0, |bits, name| bits | 1 << (digest(name.as_str()) % 64)))
    }
    fn has_all_of(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }
}

fn digest(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn slots_of(slots: &BTreeMap<Series, u64>) -> u64 {
    digest(slots.iter().map(|(series, version)| (series.short(), *version)).collect::<Vec<_>>())
}

impl Seen {
    fn new(epoch: u64, entry: &Indexed) -> Self {
        let (slots, types) = (entry.slots.as_ref().map(slots_of), entry.types.as_ref().map(Types::of));
        Self { epoch, home: home(entry), in_log: false, slots, types }
    }

    /// In which ways the log says otherwise, by the home.
    fn differs(&self, notice: &Notice, place: &str) -> Vec<String> {
        let commit = notice.commit;
        let mut problems = Vec::new();
        if self.home != place {
            problems.push(format!("the home of commit {commit} is {place}, and the index says {}", self.home));
        }
        let of_home: Option<BTreeMap<Series, u64>> =
            notice.slots.as_ref().map(|slots| slots.iter().filter_map(|(key, version)| Some((split(key)?.1, *version))).collect());
        if self.slots.zip(of_home.as_ref()).is_some_and(|(own, slots)| own != slots_of(slots)) {
            problems.push(format!("commit {commit} has other slots than the index says"));
        }
        // The home tells the types of its own events. Those of a commit with one slot are all.
        let types = self.types.zip(notice.types.as_ref().map(Types::of));
        let alone = notice.place.is_some() || of_home.is_some_and(|slots| slots.len() == 1);
        if types.is_some_and(|(own, there)| !own.has_all_of(there) || (alone && own != there)) {
            problems.push(format!("commit {commit} has events of other types than the index says"));
        }
        problems
    }
}

impl Chain {
    async fn read(&mut self, log: &dyn Indexable, op: &Op) -> Result<()> {
        loop {
            let epochs = log.side().epochs_from(op, self.next.max(1), 16).await?;
            let Some(last) = epochs.last() else { return Ok(()) };
            self.next = last.number + 1;
            for epoch in &epochs {
                self.take(epoch, log.counts_events());
            }
        }
    }

    fn take(&mut self, epoch: &Epoch, counted: bool) {
        for entry in &epoch.entries {
            let seen = Seen::new(epoch.number, entry);
            if let Some(before) = self.commits.insert(entry.commit, seen) {
                self.find(epoch.number, format!("commit {} is in the index twice; first in epoch {}", entry.commit, before.epoch));
                continue;
            }
            let mut wrong = Vec::new();
            for (series, version) in entry.slots.iter().flatten().filter(|(_, version)| **version > 0) {
                let end = self.ends.entry(series.key(&entry.namespace)).or_default();
                let first = if counted { entry.first(*version) } else { *version };
                if first != *end + 1 {
                    wrong.push(format!("commit {} is version {version} of {series}, and {end} came before it", entry.commit));
                }
                *end = (*end).max(*version);
            }
            for problem in wrong {
                self.find(epoch.number, problem);
            }
        }
    }

    fn find(&mut self, epoch: u64, problem: String) {
        self.findings.push(Finding { item: format!("x @{epoch}"), problem });
    }
}

fn home(entry: &Indexed) -> String {
    format!("{} @{}", entry.home.0.key(&entry.namespace), entry.home.1)
}

pub(super) async fn verify(log: &dyn Indexable, progress: &(dyn Fn(&VerifyProgress) + Send + Sync)) -> Result<IndexVerified> {
    let op = log.dynamo().long_op();
    let about = log.dynamo().about_items(&op, &[log.homes()]).await;
    let began = now(log);
    let mut report = IndexVerified::default();
    let mut chain = Chain::default();
    chain.read(log, &op).await?;
    // Home and stamp of commits that the chain did not have yet.
    let mut unseen: HashMap<CommitId, (String, u64)> = HashMap::new();
    let mut pages = log.dynamo().scan_parts(&op, log.homes(), PARTS);
    while let Some(items) = pages.try_next().await? {
        for item in &items {
            report.items += 1;
            let notice = match log.home(item) {
                Ok(Some(notice)) => notice,
                Ok(None) => continue,
                Err(error) => {
                    chain.findings.push(Finding { item: "log".into(), problem: error.to_string() });
                    continue;
                }
            };
            report.commits += 1;
            let place = format!("{} @{}", notice.series, notice.version);
            match chain.commits.get_mut(&notice.commit) {
                Some(seen) => {
                    seen.in_log = true;
                    let item = format!("x @{}", seen.epoch);
                    chain.findings.extend(seen.differs(&notice, &place).into_iter().map(|problem| Finding { item: item.clone(), problem }));
                }
                None => {
                    unseen.insert(notice.commit, (place, notice.stamp));
                }
            }
        }
        progress(&VerifyProgress { items: report.items, about });
    }
    // A stamp that somebody said may lie ahead of every clock.
    let ended = if log.counts_events() { now(log) + HOUR / 2 } else { u64::MAX };
    // What was indexed meanwhile.
    let known = chain.next;
    chain.read(log, &op).await?;
    for (commit, (place, stamp)) in unseen {
        match chain.commits.get_mut(&commit) {
            Some(seen) => seen.in_log = true,
            None if (began..ended).contains(&stamp) => report.younger += 1,
            None => chain.findings.push(Finding { item: place, problem: format!("commit {commit} is not in the index") }),
        }
    }
    let missing = chain.commits.iter().filter(|(_, seen)| !seen.in_log && seen.epoch < known);
    if log.may_expire() {
        report.expired = missing.clone().count() as u64;
    }
    for (commit, seen) in missing.filter(|_| !log.may_expire()) {
        let problem = format!("commit {commit}, whose home should be {}, is not in the log", seen.home);
        chain.findings.push(Finding { item: format!("x @{}", seen.epoch), problem });
    }
    report.indexed = chain.commits.len() as u64;
    report.findings = chain.findings;
    report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
    report.units = op.units();
    Ok(report)
}
