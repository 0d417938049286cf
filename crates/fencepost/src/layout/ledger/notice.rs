//! Notices: what the record of a slot tells the indexer, without decoding its events. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{HASH, RANGE, Slotted, slotted};
use super::series::Series;
use crate::dynamo::item::{Attributes, Item};
use crate::error::Error;
use crate::event::{CommitId, EventType};

/// What the record of a slot says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    /// The whole key, namespace included.
    pub(crate) series: String,
    pub(crate) version: u64,
    /// In the home: every slot of the commit.
    pub(crate) slots: Option<BTreeMap<String, u64>>,
    /// The types of the slot's events; none: any.
    pub(crate) types: Option<BTreeSet<EventType>>,
    /// Events in this slot that are in no other, or may be.
    pub(crate) events: u32,
}

impl Notice {
    /// None: not a slot that the index counts. Those are `t/`, `u/` and `y/` of namespaces without lanes.
    pub(crate) fn of_item(item: &Item) -> Result<Option<Notice>, Error> {
        let key = item.text(HASH).unwrap_or_default();
        let Some((namespace, series)) = split(key) else { return Ok(None) };
        if matches!(series, Series::Lane(_)) || item.number(RANGE).unwrap_or(0) == 0 {
            return Ok(None);
        }
        let Some(Slotted { commit, stamp, version, written, types, events }) = slotted(item)? else { return Ok(None) };
        let slots = written.map(|written| written.iter().map(|(series, v)| (series.key(namespace), *v)).collect());
        let events = if matches!(series, Series::Type(_)) { 0 } else { events };
        Ok(Some(Notice { commit, stamp, series: key.to_owned(), version, slots, types, events }))
    }
}

/// The namespace and the series of a slot's key.
pub(crate) fn split(key: &str) -> Option<(&str, Series)> {
    let (kind, rest) = key.split_once('/')?;
    let (namespace, _) = rest.split_once('/')?;
    if !matches!(kind, "t" | "u" | "y" | "l") {
        return None;
    }
    Some((namespace, Series::of_key(key, namespace)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Tag;

    #[test]
    fn keys_of_slots_are_told_from_all_others() {
        let tag = |name: &str| Series::Tag(Tag::new(name).expect("a tag"));
        assert_eq!(split("t/main/a/b"), Some(("main", tag("a/b"))));
        assert_eq!(split("u/main/3"), Some(("main", Series::Untagged(3))));
        for other in ["c/main/0123", "n/main", "i/main/0123", "x", "t/main", ""] {
            assert_eq!(split(other), None, "{other}");
        }
    }
}
