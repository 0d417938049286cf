//! What the feed's index needs to know of these tables, where it is built from the stream of the events table: what records and items say of
//! events, whoever wrote them, and the events that it names.
//!
//! An event is a commit of its own there. Nothing counts Sekiban's events, so no series has versions: the rows of a tag, read strongly, tell
//! what stands before an event, and that goes before it. A large commit is one by its record: it is there, whole, from its publication on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Sekiban;
use super::item::{self, ALL_KEY, HASH, Keys, RANGE, STAGED, Stored};
use super::plan::{BURIED, COUNT, ENDS, FIRST, PIECES, RECORD, TICKS, WRITTEN};
use super::suid::SortableId;
use crate::dynamo::item::{Attributes, Item, Malformed, text, wrong};
use crate::dynamo::records::{Change, Record};
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Refused, Result};
use crate::event::{CommitId, EventType, Recorded, Tag};
use crate::position::Position;
use crate::query::Query;
use crate::side::Side;
use crate::side::chain::{Before, Indexable};
use crate::side::epoch::Indexed;
use crate::side::notice::{Notice, split};
use crate::side::series::Series;

/// The home of an event without a tag.
const UNTAGGED: Series = Series::Untagged(0);
/// The home of every large commit, so that it is told from an event.
const LARGE: Series = Series::Untagged(1);

/// Services share a table and an index, and an event that was copied from one to the other keeps its id: each service turns ids its own way,
/// and back again.
fn turned(namespace: &str, id: Uuid) -> Uuid {
    let hash = Sha256::digest(format!("fencepost.index/{namespace}"));
    let own = hash.iter().take(16).fold(0, |so_far: u128, byte| so_far << 8 | u128::from(*byte));
    Uuid::from_u128(id.as_u128() ^ own)
}

fn micros(at: Timestamp) -> u64 {
    u64::try_from(at.as_microsecond()).unwrap_or(0)
}

/// None: neither an event that reads of all events show, nor a large commit.
fn notice(item: &Item) -> Result<Option<Notice>> {
    let read = || {
        let Some((keys, rest)) = item.text(HASH).ok().and_then(Keys::split) else { return Ok(None) };
        if let Some(commit) = rest.strip_prefix("COMMIT#") {
            return if item.text(RANGE)? == RECORD { of_record(&keys, commit, item) } else { Ok(None) };
        }
        match rest.strip_prefix("EVENT#") {
            // One of a large commit was told by its record.
            Some(id) if item.contains_key(ALL_KEY) && !item.contains_key(STAGED) => of_event(&keys, id, item).map(Some),
            _ => Ok(None),
        }
    };
    read().map_err(|malformed| item::corrupt(item, &malformed))
}

fn of_event(keys: &Keys, id: &str, item: &Item) -> Result<Notice, Malformed> {
    let namespace = keys.namespace();
    let (at, written, tags, of_type) = item::announced(item)?;
    let parsed: Uuid = id.parse().map_err(|_| wrong(HASH, "an event's id"))?;
    let home = tags.first().map_or(UNTAGGED, |tag| Series::Tag(tag.clone()));
    let slots = tags.into_iter().map(Series::Tag).chain((home == UNTAGGED).then_some(UNTAGGED));
    Ok(Notice {
        commit: CommitId(turned(namespace, parsed)),
        stamp: micros(written),
        series: home.key(namespace),
        version: 0,
        span: 1,
        slots: Some(slots.map(|series| (series.key(namespace), 0)).collect()),
        types: EventType::new(of_type).ok().map(|of_type| BTreeSet::from([of_type])),
        events: 1,
        place: Some(item::sort_key(at, id)),
    })
}

fn of_record(keys: &Keys, commit: &str, item: &Item) -> Result<Option<Notice>, Malformed> {
    // Without pieces it was one transaction, and its events tell.
    if item.maybe_number(PIECES)?.is_none() {
        return Ok(None);
    }
    let namespace = keys.namespace();
    let id: Uuid = commit.parse().map_err(|_| wrong(HASH, "a commit's id"))?;
    let tags = item.maybe_map(ENDS)?.into_iter().flatten().map(|(tag, _)| Tag::new(tag));
    let tags = tags.collect::<Result<Vec<_>>>().map_err(|_| wrong(ENDS, "counts of tags"))?;
    let written: Timestamp = item.text(WRITTEN)?.parse().map_err(|_| wrong(WRITTEN, "a time"))?;
    let first = item.maybe_number(FIRST)?.map_or_else(|| item.number(TICKS), Ok)?;
    let slots = tags.into_iter().map(Series::Tag).chain([LARGE]);
    Ok(Some(Notice {
        commit: CommitId(turned(namespace, id)),
        stamp: micros(written),
        series: LARGE.key(namespace),
        version: 0,
        span: 1,
        slots: Some(slots.map(|series| (series.key(namespace), 0)).collect()),
        types: None,
        events: u32::try_from(item.number(COUNT)?).unwrap_or(u32::MAX),
        place: Some(item::sort_key(SortableId::at_ticks(first), "")),
    }))
}

impl Sekiban {
    /// Events by their ids, those that are there. They never change: a copy that is a moment old will do. Some write ids in capitals.
    async fn events_of(&self, op: &Op, ids: &[Uuid]) -> Result<HashMap<Uuid, Stored>> {
        let mut found: HashMap<Uuid, Stored> = HashMap::new();
        for (fresh, written) in [
            (Freshness::Eventual, str::to_lowercase as fn(&str) -> String),
            (Freshness::Strong, str::to_lowercase),
            (Freshness::Strong, str::to_uppercase),
        ] {
            let missing = ids.iter().filter(|id| !found.contains_key(id));
            let missing: Vec<String> = missing.map(|id| written(&id.to_string())).collect();
            if missing.is_empty() {
                break;
            }
            let more = self.events_by_id(op, missing.iter(), fresh).await?;
            found.extend(more.into_iter().filter_map(|(id, stored)| Some((id.parse().ok()?, stored))));
        }
        Ok(found)
    }

    /// The events of a large commit, in order, whether they are in rows yet or not. One that has expired is left out.
    async fn events_of_large(&self, op: &Op, commit: CommitId) -> Result<Vec<Stored>> {
        let Some(record) = self.record(op, commit).await? else { return Ok(Vec::new()) };
        let ids = record.event_ids();
        let mut found = self.events_of(op, &ids).await?;
        if found.len() < ids.len() {
            self.finish(commit).await?;
            found = self.events_of(op, &ids).await?;
        }
        // An id of the caller's may have come to somebody else: that event was told by itself.
        Ok(ids.iter().filter_map(|id| found.remove(id)).filter(|stored| stored.staged == Some(commit)).collect())
    }

    async fn item_of(&self, op: &Op, key: Item) -> Result<Option<Item>> {
        self.dynamo().get(op, &self.options().events, key, Freshness::Strong).await
    }
}

#[async_trait]
impl Indexable for Sekiban {
    fn side(&self) -> &Side {
        Sekiban::side(self)
    }
    fn log_table(&self) -> &str {
        &self.options().events
    }
    fn may_expire(&self) -> bool {
        true
    }

    // Events are put once. One that Sekiban writes over keeps its place. The record of a large commit may come where others' pieces were collected.
    fn notice(&self, record: &Record) -> Result<Option<Notice>> {
        let over_a_grave = || record.change == Change::Other && record.image.contains_key(BURIED);
        if record.change == Change::Insert || over_a_grave() { notice(&record.image) } else { Ok(None) }
    }

    fn home(&self, item: &Item) -> Result<Option<Notice>> {
        notice(item)
    }
    fn homes(&self) -> &str {
        &self.options().events
    }

    // Nothing here has versions.
    async fn commit_at(&self, _: &Op, _: &str, _: u64) -> Result<Option<(CommitId, u64)>> {
        Ok(None)
    }
    async fn home_of(&self, _: &Op, _: &str, _: u64) -> Result<Option<Notice>> {
        Ok(None)
    }

    async fn before(&self, op: &Op, series: &str, place: &str) -> Result<Option<Before>> {
        let Some((namespace, Series::Tag(tag))) = split(series) else { return Ok(None) };
        let hash = text(Keys::of_namespace(namespace)?.tag(tag.as_str()));
        let mut place = place.to_owned();
        loop {
            let find = Find::new(&self.options().tags, HASH, hash.clone()).range(Range::Before(RANGE.into(), text(place.as_str())));
            let (items, _) = self.dynamo().page(op, &Find { reverse: true, limit: Some(1), ..find }, None).await?;
            let Some(row) = items.first().map(item::tag_row).transpose()? else { return Ok(None) };
            place = row.sort_key();
            if let Ok(id) = row.event.parse() {
                let stamp = micros(row.created.unwrap_or_else(|| row.at.timestamp()));
                return Ok(Some(Before { commit: CommitId(turned(namespace, id)), place, stamp }));
            }
        }
    }

    async fn notice_of(&self, op: &Op, series: &str, commit: CommitId) -> Result<Option<Notice>> {
        let Some((namespace, _)) = split(series) else { return Ok(None) };
        let keys = Keys::of_namespace(namespace)?;
        let id = turned(namespace, commit.0).to_string();
        let event = match self.item_of(op, keys.event(&id)).await? {
            None => self.item_of(op, keys.event(&id.to_uppercase())).await?,
            found => found,
        };
        let Some(event) = event else { return Ok(None) };
        let large = event.maybe_text(STAGED).ok().flatten().and_then(|commit| commit.parse().ok()).map(CommitId);
        match large {
            None => notice(&event),
            Some(commit) => self.item_of(op, keys.commit(commit, RECORD)).await?.map_or(Ok(None), |record| notice(&record)),
        }
    }

    // By the index of all events, a moment old perhaps: what it does not show yet is not said to be there.
    async fn commit_of(&self, op: &Op, position: Position) -> Result<Option<(CommitId, u64)>> {
        let foreign = || Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
        let id = SortableId::of(&position).ok_or_else(foreign)?;
        let Some(stored) = self.at_position(id, position).await? else { return Ok(None) };
        let large = match stored.staged {
            Some(commit) => self.record(op, commit).await?.map(|record| (commit.0, record.written())),
            None => None,
        };
        let (id, written) = large.unwrap_or((stored.event.id, stored.event.recorded_at));
        Ok(Some((CommitId(turned(self.namespace(), id)), micros(written))))
    }

    async fn indexed_events(&self, commits: &[&Indexed], query: &Query) -> Result<Vec<Vec<(u32, Recorded)>>> {
        let op = self.dynamo().long_op();
        let id = |commit: &Indexed| turned(self.namespace(), commit.commit.0);
        let ids: Vec<Uuid> = commits.iter().filter(|commit| commit.home.0 != LARGE).map(|commit| id(commit)).collect();
        let mut found: BTreeMap<Uuid, Stored> = self.events_of(&op, &ids).await?.into_iter().collect();
        let mut all = Vec::with_capacity(commits.len());
        for commit in commits {
            let events = match commit.home.0 {
                LARGE => self.events_of_large(&op, CommitId(id(commit))).await?,
                _ => found.remove(&id(commit)).into_iter().collect(),
            };
            let matching = (0..).zip(events).filter(|(_, stored)| query.matches(&stored.event.event_type, &stored.event.tags));
            all.push(matching.map(|(index, stored)| (index, stored.event)).collect());
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_turned_by_service_and_back() {
        let id = Uuid::from_u128(7);
        assert_ne!(turned("default", id), turned("acme", id));
        assert_eq!(turned("acme", turned("acme", id)), id);
    }
}
