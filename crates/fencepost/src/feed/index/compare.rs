//! Whether the index is right: the log and the chain read whole, and every difference named.

use std::collections::HashMap;

use futures::TryStreamExt;

use super::run::now;
use crate::dynamo::Op;
use crate::error::Result;
use crate::event::CommitId;
use crate::layout::Finding;
use crate::side::chain::Indexable;
use crate::side::epoch::{Epoch, Indexed};
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
            let seen = Seen { epoch: epoch.number, home: home(entry), in_log: false };
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

pub(super) async fn verify(log: &dyn Indexable, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<IndexVerified> {
    let op = log.dynamo().long_op();
    let began = now(log);
    let mut report = IndexVerified::default();
    let mut chain = Chain::default();
    chain.read(log, &op).await?;
    // Home and stamp of commits that the chain did not have yet.
    let mut unseen: HashMap<CommitId, (String, u64)> = HashMap::new();
    let mut pages = log.homes(&op);
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
                    if seen.home != place {
                        let problem = format!("the home of commit {} is {place}, and the index says {}", notice.commit, seen.home);
                        let item = format!("x @{}", seen.epoch);
                        chain.findings.push(Finding { item, problem });
                    }
                }
                None => {
                    unseen.insert(notice.commit, (place, notice.stamp));
                }
            }
        }
        progress(report.items);
    }
    // What was indexed meanwhile.
    let known = chain.next;
    chain.read(log, &op).await?;
    for (commit, (place, stamp)) in unseen {
        match chain.commits.get_mut(&commit) {
            Some(seen) => seen.in_log = true,
            None if stamp >= began => report.younger += 1,
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
