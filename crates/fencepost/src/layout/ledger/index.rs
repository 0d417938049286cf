//! What the index needs to know of the log: what records and homes say, and the events of commits that it names.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::Ledger;
use super::item::{self, Slot};
use super::notice::notice;
use crate::dynamo::item::Item;
use crate::dynamo::records::{Change, Record};
use crate::dynamo::{Freshness, Op};
use crate::error::{Error, Result};
use crate::event::{CommitId, Recorded};
use crate::query::{Query, QueryItem};
use crate::side::Side;
use crate::side::chain::{EVENTS, Indexable};
use crate::side::epoch::Indexed;
use crate::side::notice::{Notice, split};
use crate::side::series::Series;

#[async_trait]
impl Indexable for Ledger {
    fn side(&self) -> &Side {
        Ledger::side(self)
    }
    fn log_table(&self) -> &str {
        self.table()
    }
    fn incarnation(&self) -> u64 {
        self.settings().incarnation
    }

    // Only an INSERT counts: slots are put once.
    fn notice(&self, record: &Record) -> Result<Option<Notice>> {
        if record.change == Change::Insert { notice(&record.image) } else { Ok(None) }
    }

    fn home(&self, item: &Item) -> Result<Option<Notice>> {
        Ok(notice(item)?.filter(|notice| notice.slots.is_some()))
    }
    fn homes(&self) -> &str {
        self.table()
    }

    // Slots never change: a copy that is a moment old will do.
    async fn commit_at(&self, op: &Op, key: &str, version: u64) -> Result<Option<(CommitId, u64)>> {
        for freshness in [Freshness::Eventual, Freshness::Strong] {
            let found = self.dynamo().get(op, self.table(), item::key(key.into(), version), freshness).await?;
            if let Some(found) = found {
                let of = item::commit_of(&found).zip(item::stamp_of(&found));
                return of.map(Some).ok_or_else(|| Error::corrupt("ledger", format!("{key} @{version} names no commit")));
            }
        }
        Ok(None)
    }

    async fn home_of(&self, op: &Op, key: &str, version: u64) -> Result<Option<Notice>> {
        let Some((namespace, _)) = split(key) else { return Ok(None) };
        let get = |key: String, version| self.dynamo().get(op, self.table(), item::key(key, version), Freshness::Strong);
        let Some(found) = get(key.into(), version).await? else { return Ok(None) };
        let (series, version) = item::slot(namespace, &found)?.home_key();
        match get(series.key(namespace), version).await? {
            Some(home) => notice(&home),
            None => Ok(None),
        }
    }

    async fn indexed_events(&self, commits: &[&Indexed], query: &Query) -> Result<Vec<Vec<(u32, Recorded)>>> {
        let op = self.dynamo().long_op();
        let mut wanted: Vec<BTreeSet<(Series, u64)>> = Vec::with_capacity(commits.len());
        for commit in commits {
            wanted.push(match &commit.slots {
                Some(slots) => slots_to_read(slots.iter().map(|(series, v)| (series, *v)), query),
                None => {
                    let home = self.slot_surely(&op, &commit.home.0, commit.home.1).await?;
                    let slots = home.home.map(|home| home.written).unwrap_or_default();
                    slots_to_read(slots.iter().map(|(series, v)| (series, *v)), query)
                }
            });
        }
        let mut distinct: Vec<&(Series, u64)> = wanted.iter().flatten().collect();
        distinct.sort();
        distinct.dedup();
        let keys = distinct.iter().map(|(series, version)| item::key(series.key(self.namespace()), *version)).collect();
        let at = |series: &Series, version: u64| distinct.binary_search_by(|(s, v)| (s, *v).cmp(&(series, version))).ok();
        // By the places of their keys: in no order they come.
        let mut slots: Vec<Option<Slot>> = distinct.iter().map(|_| None).collect();
        for found in self.dynamo().get_many(&op, self.table(), keys, Freshness::Eventual).await? {
            let slot = item::slot(self.namespace(), &found)?;
            if let Some(at) = at(&slot.series, slot.version) {
                slots[at] = Some(slot);
            }
        }
        for (slot, (series, version)) in slots.iter_mut().zip(&distinct).filter(|(slot, _)| slot.is_none()) {
            *slot = Some(self.slot_surely(&op, series, *version).await?);
        }
        let mut met = Vec::new();
        let mut counts = Vec::with_capacity(commits.len());
        for keys in &wanted {
            let read = keys.iter().filter_map(|(series, version)| slots[at(series, *version)?].as_ref());
            let mut matching = self.judge(&op, read, query).await?;
            matching.sort_by_key(|m| m.index());
            counts.push(matching.iter().map(|m| m.index()).collect::<Vec<u32>>());
            met.extend(matching);
            if met.len() >= EVENTS {
                break;
            }
        }
        let known = |series: &Series, version: u64| slots[at(series, version)?].take();
        let mut events = self.hydrate_with(&op, met, known).await?.into_iter();
        Ok(counts.into_iter().map(|indexes| indexes.into_iter().zip(events.by_ref()).collect()).collect())
    }
}

/// The slots of a commit in which every event that matches shows.
fn slots_to_read<'a>(slots: impl Iterator<Item = (&'a Series, u64)> + Clone, query: &Query) -> BTreeSet<(Series, u64)> {
    let of = |series: &Series| slots.clone().find(|(s, _)| *s == series).map(|(s, v)| (s.clone(), v));
    // An event lies on each of its tags, or where untagged ones lie; on its type's series it is a copy.
    let everything = || slots.clone().filter(|(s, _)| !matches!(s, Series::Type(_))).map(|(s, v)| (s.clone(), v));
    if query.is_all() {
        return everything().collect();
    }
    let mut read = BTreeSet::new();
    for item in query.items() {
        match tagged(item, of) {
            Tagged::By(slot) => read.extend(slot),
            Tagged::Not => {
                let indexed: Option<Vec<_>> = item.types().iter().map(|t| of(&Series::Type(t.clone()))).collect();
                match indexed {
                    Some(slots) => read.extend(slots),
                    None => return everything().collect(),
                }
            }
        }
    }
    read
}

enum Tagged {
    /// One of its tags, if the commit has them all.
    By(Option<(Series, u64)>),
    Not,
}

fn tagged(item: &QueryItem, of: impl Fn(&Series) -> Option<(Series, u64)>) -> Tagged {
    if item.tags().is_empty() {
        return Tagged::Not;
    }
    let slots: Option<Vec<_>> = item.tags().iter().map(|tag| of(&Series::Tag(tag.clone()))).collect();
    Tagged::By(slots.and_then(|slots| slots.into_iter().next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, Tag};

    #[test]
    fn as_few_slots_are_read_as_show_every_match() {
        let tag = |name: &str| Series::Tag(Tag::new(name).expect("a tag"));
        let slots = [(tag("a"), 1), (tag("b"), 2), (Series::Untagged(3), 4), (Series::Type(EventType::new("T").expect("a type")), 5)];
        let read = |query: Query| {
            slots_to_read(slots.iter().map(|(s, v)| (s, *v)), &query).into_iter().map(|(s, v)| format!("{s}@{v}")).collect::<Vec<_>>()
        };
        assert_eq!(read(Query::all()), ["t/a@1", "t/b@2", "u/3@4"]);
        assert_eq!(read(Query::tag("b").expect("a query")), ["t/b@2"]);
        assert_eq!(read(Query::tags(["a", "c"]).expect("a query")), [] as [&str; 0]);
        assert_eq!(read(Query::types(["T"]).expect("a query")), ["y/T@5"]);
        assert_eq!(read(Query::types(["T", "U"]).expect("a query")), ["t/a@1", "t/b@2", "u/3@4"]);
    }
}
