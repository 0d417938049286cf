//! Looking after the tables: whether every stream is whole, and its lock is where its events end.

use std::collections::HashMap;

use super::EventStoreAdapter;
use super::item::{self, AID, CONFIG};
use super::settings::Kind;
use crate::dynamo::Freshness;
use crate::dynamo::item::{Attributes, Item};
use crate::error::Result;
use crate::event::StreamName;
use crate::layout::{Finding, Verified};

/// What a scan remembers of one stream: bounded by the number of streams, not of events.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    highest: u64,
    commits: u64,
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
            if seen.events == seen.highest {
                continue;
            }
            let rows = self.tail(&op, stream, 0, Freshness::Strong).await?;
            let mut next = 1;
            for row in &rows {
                if row.version != next {
                    let problem = format!("events from {next} to {} are missing", row.version - 1);
                    report.findings.push(Finding { item: stream.to_string(), problem });
                }
                next = row.version + 1;
            }
        }
        self.check_heads(&streams, &mut report, progress).await?;
        report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
        report.units += op.units();
        Ok(report)
    }

    fn take(&self, item: &Item, streams: &mut HashMap<StreamName, Seen>, report: &mut Verified) {
        let row = match item::stream_of(self.options(), item) {
            Ok(None) => return,
            Ok(Some(stream)) => item::row(self.options(), &stream, item).map(|row| (stream, row)),
            Err(error) => Err(error),
        };
        match row {
            Ok((stream, row)) => {
                let seen = streams.entry(stream).or_default();
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

    /// Heads of v5 against the events that were met.
    async fn check_heads(
        &self,
        streams: &HashMap<StreamName, Seen>,
        report: &mut Verified,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<()> {
        let Kind::V5 { head, .. } = &self.options().kind else { return Ok(()) };
        let op = self.dynamo().long_op();
        let (mut start, mut met) = (None, 0);
        loop {
            let (items, next) = self.dynamo().scan_page(&op, head, start).await?;
            for item in items.iter().filter(|item| item.maybe_text(AID).ok().flatten() != Some(CONFIG)) {
                report.items += 1;
                let found = |problem: String| Finding { item: format!("head of {}", item.text(AID).unwrap_or("?")), problem };
                match item::headed(item) {
                    Ok(Some(headed)) => {
                        met += u64::from(streams.contains_key(&headed.stream));
                        // What came since the scan is behind it.
                        if streams.get(&headed.stream).map_or(0, |seen| seen.highest) != headed.version {
                            let last = self.last(&op, &headed.stream, Freshness::Strong).await?.map_or(0, |row| row.version);
                            if last < headed.version {
                                report.findings.push(found(format!("it says {}, and the last event is {last}", headed.version)));
                            }
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
            report.findings.push(Finding { item: head.clone(), problem: format!("{lacking} streams of the journal have no head") });
        }
        report.units += op.units();
        Ok(())
    }
}
