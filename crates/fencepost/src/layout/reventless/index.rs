//! What the feed's index needs to know of the table: what records and items say of commits, and the events of commits that it names.
//!
//! A series is a partition, and its versions are the commits of ours in it. What the peer wrote has no version: it is handed over when it
//! comes, each event by itself.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::item::{self, HASH, RANGE, Stored, is_event};
use super::position::{At, ceiling, floor};
use super::{NAMESPACE, Reventless};
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::records::{Change, Record};
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Reason, Result};
use crate::event::{CommitId, EventType, Recorded, Tag};
use crate::query::Query;
use crate::side::Side;
use crate::side::chain::{EVENTS, Indexable};
use crate::side::epoch::Indexed;
use crate::side::notice::{Notice, split};
use crate::side::series::Series;

/// How often events of a commit are looked for that another of its items has shown.
const LOOKS: u32 = 8;

/// The series of a partition, by its whole key. One whose name no tag can have is not indexed.
fn series(id: &str) -> Option<String> {
    Tag::new(id).ok().map(|tag| Series::Tag(tag).key(NAMESPACE))
}

fn partition(key: &str) -> Option<String> {
    match split(key)? {
        (_, Series::Tag(tag)) => Some(tag.to_string()),
        _ => None,
    }
}

fn notice(item: &Item) -> Result<Option<Notice>> {
    if !is_event(item) {
        return Ok(None);
    }
    let (id, at, marks) = item::placed(item)?;
    let Some(own) = series(&id) else { return Ok(None) };
    let of_type = item.text(item::EVENT).ok().and_then(|name| EventType::new(name).ok());
    let Some(version) = marks.version else {
        let types = of_type.map(|of| BTreeSet::from([of]));
        let (commit, slots) = (item::foreign_commit(&id, &at), Some(BTreeMap::from([(own.clone(), 0)])));
        return Ok(Some(Notice { commit, stamp: at.stamp, series: own, version: 0, span: 1, slots, types, events: 1, place: None }));
    };
    // The first event of the commit in the partition speaks for the others.
    if at.suffix > 0 && marks.count.is_none() {
        return Ok(None);
    }
    let events = u32::try_from(marks.count.unwrap_or(1)).unwrap_or(u32::MAX);
    let slots = match (at.index(), marks.slots) {
        (0, None) => Some(BTreeMap::from([(own.clone(), version)])),
        (0, Some(slots)) => Some(slots.iter().filter_map(|(id, version)| Some((series(id)?, *version))).collect()),
        _ => None,
    };
    let types = of_type.filter(|_| events == 1).map(|of| BTreeSet::from([of]));
    Ok(Some(Notice { commit: at.commit, stamp: at.stamp, series: own, version, span: 1, slots, types, events, place: None }))
}

impl Reventless {
    /// An event of the commit that has this number in a partition: from the newest back, since what is asked for is mostly new.
    async fn numbered(&self, op: &Op, id: &str, version: u64) -> Result<Option<Item>> {
        let find = Find { reverse: true, limit: Some(32), ..Find::new(self.table(), HASH, text(id)) };
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().page(op, &find, start).await?;
            for item in items.into_iter().filter(is_event) {
                match item::placed(&item)?.2.version {
                    Some(own) if own == version => return Ok(Some(item)),
                    Some(own) if own < version => return Ok(None),
                    _ => {}
                }
            }
            match next {
                Some(key) => start = Some(key),
                None => return Ok(None),
            }
        }
    }

    /// The events of a commit in one partition.
    async fn of_commit(&self, op: &Op, id: &str, stamp: u64, commit: CommitId) -> Result<Vec<Stored>> {
        let range = Range::Between(RANGE.into(), text(floor(stamp)), text(ceiling(stamp)));
        let (mut items, mut start) = (Vec::new(), None);
        loop {
            let (page, next) = self.dynamo().page(op, &Find::new(self.table(), HASH, text(id)).range(range.clone()), start).await?;
            items.extend(page);
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        let events = items.iter().filter(|item| is_event(item)).map(item::stored).collect::<Result<Vec<_>>>()?;
        let own = |event: &Stored| match event.is_ours() {
            true => event.at.commit == commit,
            false => item::foreign_commit(&event.id, &event.at) == commit,
        };
        Ok(events.into_iter().filter(own).collect())
    }

    /// All events of a commit. A transaction's items may show one after the other.
    async fn whole(&self, op: &Op, commit: &Indexed) -> Result<Vec<Stored>> {
        let slots = match &commit.slots {
            Some(slots) => slots.clone(),
            None => BTreeMap::from([commit.home.clone()]),
        };
        let mut ids: BTreeSet<String> = slots.keys().filter_map(|series| partition(&series.key(NAMESPACE))).collect();
        for attempt in 0..LOOKS {
            let mut events = Vec::new();
            for id in &ids {
                events.extend(self.of_commit(op, id, commit.stamp, commit.commit).await?);
            }
            // Where the index names the home alone, the home names the rest.
            if let Some(more) = events.iter().find_map(|event: &Stored| event.marks.slots.clone()).filter(|more| more.len() > ids.len()) {
                ids = more.into_keys().collect();
                continue;
            }
            events.sort_by_key(|event| event.at);
            let counted: u64 = events.iter().filter_map(|event| event.marks.count).sum();
            let whole = match events.first() {
                Some(first) if first.at.suffix == 0 || !first.is_ours() => true,
                Some(_) => counted == events.len() as u64 && ids.iter().all(|id| events.iter().any(|event| event.id == *id)),
                None => false,
            };
            if whole {
                return Ok(events);
            }
            self.dynamo().env().sleep(self.dynamo().pause(attempt, Reason::Throttled)).await;
        }
        let message = format!("commit {} is in the index, and its events do not all show in {}: read again", commit.commit, commit.home.0);
        Err(Error::unavailable(Reason::Unreachable, message))
    }

    /// Events that are alone in their commits, by their keys at once.
    async fn single(&self, op: &Op, commits: &[&Indexed]) -> Result<BTreeMap<CommitId, Stored>> {
        let alone = commits.iter().filter(|commit| commit.events == Some(1) && commit.home.1 > 0);
        let keys = alone.filter_map(|commit| {
            let at = At { stamp: commit.stamp, commit: commit.commit, suffix: 0 };
            Some(item::key(&partition(&commit.home.0.key(NAMESPACE))?, &at.text()))
        });
        let found = self.dynamo().get_many(op, self.table(), keys.collect(), Freshness::Eventual).await?;
        found.iter().map(|item| item::stored(item).map(|event| (event.at.commit, event))).collect()
    }
}

#[async_trait]
impl Indexable for Reventless {
    fn side(&self) -> &Side {
        Reventless::side(self)
    }
    fn log_table(&self) -> &str {
        self.table()
    }
    fn slots_name_all_tags(&self) -> bool {
        false
    }

    // Events are put once; fences change, and say nothing here.
    fn notice(&self, record: &Record) -> Result<Option<Notice>> {
        if record.change == Change::Insert { notice(&record.image) } else { Ok(None) }
    }

    fn home(&self, item: &Item) -> Result<Option<Notice>> {
        Ok(notice(item)?.filter(|notice| notice.slots.is_some()))
    }
    fn homes(&self) -> &str {
        self.table()
    }

    async fn commit_at(&self, op: &Op, series: &str, version: u64) -> Result<Option<(CommitId, u64)>> {
        let Some(id) = partition(series) else { return Ok(None) };
        let found = self.numbered(op, &id, version).await?;
        found.map(|item| item::placed(&item).map(|(_, at, _)| (at.commit, at.stamp))).transpose()
    }

    async fn home_of(&self, op: &Op, series: &str, version: u64) -> Result<Option<Notice>> {
        let Some(id) = partition(series) else { return Ok(None) };
        let Some(found) = self.numbered(op, &id, version).await? else { return Ok(None) };
        let (_, at, _) = item::placed(&found)?;
        if at.index() == 0 {
            return notice(&found);
        }
        // The first of its events in this partition is the very first, or says where that is.
        let here = self.of_commit(op, &id, at.stamp, at.commit).await?;
        let home = here.iter().find_map(|event| event.marks.home.clone()).unwrap_or(id);
        let first = self.dynamo().get(op, self.table(), item::key(&home, &At { suffix: 1, ..at }.text()), Freshness::Strong).await?;
        first.map_or(Ok(None), |first| notice(&first))
    }

    async fn indexed_events(&self, commits: &[&Indexed], query: &Query) -> Result<Vec<Vec<(u32, Recorded)>>> {
        let op = self.dynamo().long_op();
        let mut single = self.single(&op, commits).await?;
        let (mut all, mut met) = (Vec::with_capacity(commits.len()), 0);
        for commit in commits {
            let events = match single.remove(&commit.commit) {
                Some(event) => vec![event],
                None => self.whole(&op, commit).await?,
            };
            let matching = events.into_iter().filter(|event| query.matches(&event.recorded.event_type, &event.recorded.tags));
            let matching: Vec<_> = matching.map(|event| (event.at.index(), event.recorded)).collect();
            met += matching.len();
            all.push(matching);
            if met >= EVENTS {
                break;
            }
        }
        Ok(all)
    }
}
