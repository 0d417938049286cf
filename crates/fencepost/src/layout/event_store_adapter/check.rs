//! Looking after the tables: whether every stream is whole, and its lock is where its events end.

use std::collections::HashMap;

use super::EventStoreAdapter;
use super::item::{self, AID, CONFIG};
use super::settings::{Kind, Options};
use crate::dynamo::item::{Attributes, Item};
use crate::dynamo::{Freshness, Op};
use crate::error::Result;
use crate::event::StreamName;
use crate::layout::{Finding, Verified};

/// What a scan remembers of one stream: bounded by the number of streams, not of events.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    highest: u64,
    commits: u64,
    /// Where an event of it lies that does not belong there; named once.
    misplaced: Option<String>,
}

impl Options {
    /// The table that has of each stream what says how far it is, and what that is called.
    fn locks(&self) -> (&str, &'static str) {
        match &self.kind {
            Kind::V5 { head, .. } => (head, "head"),
            Kind::V3(_) => (&self.snapshot, "current snapshot"),
        }
    }
    /// The tables that a verification reads whole.
    pub(crate) fn verified_tables(&self) -> Vec<&str> {
        vec![&self.journal, self.locks().0]
    }
}

impl EventStoreAdapter {
    /// Reads the whole journal and every head once. What was appended meanwhile may be met in part: what looks wrong is read again first.
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        let op = self.dynamo().long_op();
        let mut report = Verified::default();
        let mut streams: HashMap<StreamName, Seen> = HashMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, &self.options().journal, start).await?;
            for item in &items {
                report.items += 1;
                self.take(item, &mut streams, &mut report);
            }
            progress(report.items);
            start = next;
            if start.is_none() {
                break;
            }
        }
        for (stream, seen) in &streams {
            report.commits += seen.commits;
            report.events += seen.events;
            if seen.events == seen.highest || seen.misplaced.is_some() {
                continue;
            }
            let mut next = 1;
            for version in self.versions(&op, stream).await? {
                if version > next {
                    let problem = format!("events from {next} to {} are missing", version - 1);
                    report.findings.push(Finding { item: stream.to_string(), problem });
                }
                next = version + 1;
            }
        }
        for (stream, seen) in &streams {
            let misplaced =
                seen.misplaced.iter().map(|elsewhere| Finding { item: stream.to_string(), problem: format!("an event {elsewhere}") });
            report.findings.extend(misplaced);
        }
        self.check_locks(&streams, &mut report, progress).await?;
        report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
        report.units += op.units();
        Ok(report)
    }

    fn take(&self, item: &Item, streams: &mut HashMap<StreamName, Seen>, report: &mut Verified) {
        let row = match item::stream_of(self.options(), item) {
            Ok(None) => return,
            Ok(Some(stream)) => item::row_anywhere(self.options(), &stream, item).map(|row| (stream, row)),
            Err(error) => Err(error),
        };
        match row {
            Ok((stream, row)) => {
                let misplaced = item::misplaced(self.options(), &stream, item);
                let seen = streams.entry(stream).or_default();
                seen.misplaced = seen.misplaced.take().or(misplaced);
                seen.events += 1;
                seen.highest = seen.highest.max(row.version);
                seen.commits += u64::from(row.is_last());
            }
            Err(error) => {
                let item = item.maybe_text(AID).ok().flatten().unwrap_or("an item of the journal").to_owned();
                report.findings.push(Finding { item, problem: error.to_string() });
            }
        }
    }

    /// Heads of v5 and current snapshots of v3 against the events that were met.
    async fn check_locks(
        &self,
        streams: &HashMap<StreamName, Seen>,
        report: &mut Verified,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<()> {
        let (table, what) = self.options().locks();
        let op = self.dynamo().long_op();
        let (mut start, mut met) = (None, 0);
        loop {
            let (items, next) = self.dynamo().scan_page(&op, table, start).await?;
            for item in items.iter().filter(|item| item.maybe_text(AID).ok().flatten() != Some(CONFIG)) {
                report.items += 1;
                let found = |problem: String| Finding { item: format!("{what} of {}", item.text(AID).unwrap_or("?")), problem };
                match self.lock_of(item) {
                    Ok(Some((stream, said))) => {
                        let seen = streams.get(&stream);
                        met += u64::from(seen.is_some());
                        let elsewhere = item::misplaced(self.options(), &stream, item);
                        let is_told = elsewhere.is_some() || seen.is_some_and(|seen| seen.misplaced.is_some());
                        report.findings.extend(elsewhere.map(|elsewhere| found(format!("it {elsewhere}"))));
                        let (events, last) = seen.map_or((0, 0), |seen| (seen.events, seen.highest));
                        if !is_told && !self.may_say(events, last).contains(&said) {
                            report.findings.extend(self.judge(&op, &stream).await?.map(found));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => report.findings.push(found(error.to_string())),
                }
            }
            progress(report.items);
            start = next;
            if start.is_none() {
                break;
            }
        }
        if met < streams.len() as u64 {
            let lacking = streams.len() as u64 - met;
            report.findings.push(Finding { item: table.into(), problem: format!("{lacking} streams of the journal have no {what}") });
        }
        report.units += op.units();
        Ok(())
    }

    /// The stream and what its lock says; none: not a lock.
    fn lock_of(&self, item: &Item) -> Result<Option<(StreamName, u64)>> {
        match self.options().kind {
            Kind::V5 { .. } => Ok(item::headed(item)?.map(|headed| (headed.stream, headed.version))),
            Kind::V3(_) => item::current_lock(self.options(), item),
        }
    }

    /// Where the lock may stand: v5 names the last event. v3 counts them, and leaves their numbers to its callers; of those that are lost it knows.
    fn may_say(&self, events: u64, last: u64) -> [u64; 2] {
        match self.options().kind {
            Kind::V5 { .. } => [last; 2],
            Kind::V3(_) => [events, last],
        }
    }

    /// What is wrong with a lock, read again: before the events and after them, so that what came meanwhile lies in between.
    async fn judge(&self, op: &Op, stream: &StreamName) -> Result<Option<String>> {
        let before = self.lock_now(op, stream).await?;
        let versions = self.versions(op, stream).await?;
        let (last, events) = (versions.last().copied().unwrap_or(0), versions.len() as u64);
        let after = self.lock_now(op, stream).await?;
        let stands = self.may_say(events, last).iter().any(|end| (before..=after).contains(end));
        Ok((!stands).then(|| match self.options().kind {
            Kind::V5 { .. } => format!("it says {after}, and the last event is {last}"),
            Kind::V3(_) => format!("it counts {after}, and there are {events} events"),
        }))
    }

    async fn lock_now(&self, op: &Op, stream: &StreamName) -> Result<u64> {
        match self.options().kind {
            Kind::V5 { .. } => Ok(self.seen_end(op, stream, Freshness::Strong).await?.lock),
            Kind::V3(_) => Ok(self.current(op, stream, Freshness::Strong).await?.map_or(0, |current| current.lock)),
        }
    }
}
