//! Notices: what the record of a slot tells the indexer, without decoding its events. Pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use uuid::Uuid;

use super::item::{COMMIT, HASH, LANE, RANGE, Slotted, slotted};
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

/// The commit of a slot that the index counts, from the image of its record as DynamoDB's own JSON has it. None of any other, or where it
/// cannot be told.
pub(crate) fn commit_of_json(image: &Value) -> Option<CommitId> {
    let counts = split(image[HASH]["S"].as_str()?).is_some_and(|(_, series)| !matches!(series, Series::Lane(_)));
    if !counts || image.get(LANE).is_some() {
        return None;
    }
    let bytes = STANDARD.decode(image[COMMIT]["B"].as_str()?).ok()?;
    Uuid::from_slice(&bytes).ok().map(CommitId)
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
    fn the_commit_of_a_record_is_told_from_its_json_alone_and_of_others_none() {
        let image = |key: &str, commit: &str| serde_json::json!({ "p": { "S": key }, "v": { "N": "1" }, "c": { "B": commit } });
        let commit = STANDARD.encode([7; 16]);
        for key in ["t/main/a", "u/main/3", "y/main/T"] {
            assert_eq!(commit_of_json(&image(key, &commit)), Some(CommitId(Uuid::from_bytes([7; 16]))), "{key}");
        }
        let mut on_a_lane = image("t/main/a", &commit);
        on_a_lane["l"] = serde_json::json!({ "L": [] });
        let others =
            [on_a_lane, image("l/main/0", &commit), image("x", &commit), image("t/main/a", "?"), image("t/main/a", "AAAA"), Value::Null];
        for other in others {
            assert_eq!(commit_of_json(&other), None, "{other}");
        }
    }

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
