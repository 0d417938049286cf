//! What the index needs to know of these tables. v5 is followed by the stream of its heads, each of which carries the events of one commit;
//! v3 by the stream of its journal. Both are mended from a scan of the journal.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;

use super::item::{self, Row};
use super::settings::Kind;
use super::{EventStoreAdapter, NAMESPACE};
use crate::dynamo::item::Item;
use crate::dynamo::records::{Change, Record};
use crate::dynamo::{Freshness, Op};
use crate::error::{Error, Result};
use crate::event::{CommitId, EventType, Recorded, StreamName, Tag};
use crate::query::Query;
use crate::side::Side;
use crate::side::chain::Indexable;
use crate::side::epoch::Indexed;
use crate::side::notice::{Notice, split};
use crate::side::series::Series;

/// A commit to one stream, by the last version that it left.
fn notice(stream: &StreamName, version: u64, span: u32, stamp: u64, types: Option<BTreeSet<EventType>>) -> Notice {
    let series = Series::Tag(Tag::from(stream)).key(NAMESPACE);
    let slots = Some(BTreeMap::from([(series.clone(), version)]));
    let commit = item::commit_id(stream, version);
    Notice { commit, stamp, series, version, span: span.into(), slots, types, events: span, place: None }
}

/// None: a later event of the same commit tells.
fn of_row(stream: &StreamName, row: &Row) -> Option<Notice> {
    let types = (row.count() == 1).then(|| BTreeSet::from([row.event_type().clone()]));
    row.is_last().then(|| notice(stream, row.version, row.count(), row.stamp(), types))
}

fn stream_of(series: &Series) -> Option<StreamName> {
    match series {
        Series::Tag(tag) => StreamName::new(tag).ok(),
        _ => None,
    }
}

impl EventStoreAdapter {
    fn row_notice(&self, item: &Item) -> Result<Option<Notice>> {
        let Some(stream) = item::stream_of(self.options(), item)? else { return Ok(None) };
        Ok(of_row(&stream, &item::row(self.options(), &stream, item)?))
    }

    async fn row_at(&self, op: &Op, series: &str, version: u64) -> Result<Option<(StreamName, Row)>> {
        let Some(stream) = split(series).and_then(|(_, series)| stream_of(&series)) else { return Ok(None) };
        for fresh in [Freshness::Eventual, Freshness::Strong] {
            if let Some(row) = self.fetch(op, &stream, version..=version, fresh).await?.pop() {
                return Ok(Some((stream, row)));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Indexable for EventStoreAdapter {
    fn side(&self) -> &Side {
        EventStoreAdapter::side(self)
    }
    fn log_table(&self) -> &str {
        match &self.options().kind {
            Kind::V5 { head, .. } => head,
            Kind::V3(_) => &self.options().journal,
        }
    }
    fn counts_events(&self) -> bool {
        true
    }

    fn notice(&self, record: &Record) -> Result<Option<Notice>> {
        match self.options().kind {
            // A head is rewritten by every append.
            Kind::V5 { .. } => {
                let Some(headed) = item::headed(&record.image)? else { return Ok(None) };
                let span = u32::try_from(headed.types.len().max(1)).unwrap_or(u32::MAX);
                let types = (!headed.types.is_empty()).then(|| headed.types.into_iter().collect());
                Ok(Some(notice(&headed.stream, headed.version, span, headed.stamp, types)))
            }
            Kind::V3(_) if record.change == Change::Insert => self.row_notice(&record.image),
            Kind::V3(_) => Ok(None),
        }
    }

    fn home(&self, item: &Item) -> Result<Option<Notice>> {
        self.row_notice(item)
    }
    fn homes(&self) -> &str {
        &self.options().journal
    }

    async fn commit_at(&self, op: &Op, series: &str, version: u64) -> Result<Option<(CommitId, u64)>> {
        let found = self.row_at(op, series, version).await?;
        Ok(found.map(|(stream, row)| (item::commit_id(&stream, row.last()), row.stamp())))
    }

    async fn home_of(&self, op: &Op, series: &str, version: u64) -> Result<Option<Notice>> {
        let Some((stream, row)) = self.row_at(op, series, version).await? else { return Ok(None) };
        if row.is_last() {
            return Ok(of_row(&stream, &row));
        }
        let last = self.row_at(op, series, row.last()).await?;
        Ok(last.and_then(|(stream, row)| of_row(&stream, &row)))
    }

    async fn indexed_events(&self, commits: &[&Indexed], query: &Query) -> Result<Vec<Vec<(u32, Recorded)>>> {
        let op = self.dynamo().long_op();
        let mut of_commits = Vec::with_capacity(commits.len());
        for commit in commits {
            let stream = stream_of(&commit.home.0);
            let stream = stream.ok_or_else(|| Error::corrupt(self.options().layout(), format!("commit {} of no stream", commit.commit)))?;
            of_commits.push((stream, commit.first(commit.home.1)..=commit.home.1));
        }
        let mut rows: HashMap<(StreamName, u64), Row> = HashMap::new();
        let wanted: Vec<(StreamName, u64)> =
            of_commits.iter().flat_map(|(stream, versions)| versions.clone().map(move |version| (stream.clone(), version))).collect();
        // Events never change: a copy that is a moment old will do, if it is there.
        for fresh in [Freshness::Eventual, Freshness::Strong] {
            let missing = wanted.iter().filter(|place| !rows.contains_key(place));
            let keys: Vec<_> = missing.map(|(stream, version)| item::journal_key(self.options(), stream, *version)).collect();
            if keys.is_empty() {
                break;
            }
            for found in self.dynamo().get_many(&op, &self.options().journal, keys, fresh).await? {
                if let Some(stream) = item::stream_of(self.options(), &found)? {
                    let row = item::row(self.options(), &stream, &found)?;
                    rows.insert((stream, row.version), row);
                }
            }
        }
        let mut events = Vec::with_capacity(commits.len());
        for (stream, versions) in of_commits {
            let mut of_commit = Vec::new();
            for (index, version) in (0..).zip(versions) {
                let row = rows.get(&(stream.clone(), version)).cloned();
                let row = row.ok_or_else(|| Error::corrupt(self.options().layout(), format!("event @{version} of {stream} is missing")))?;
                let event = row.recorded(&stream);
                if query.matches(&event.event_type, &event.tags) {
                    of_commit.push((index, event));
                }
            }
            events.push(of_commit);
        }
        Ok(events)
    }
}
