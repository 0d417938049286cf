//! Notices: what a record tells the indexer of a commit, without decoding its events. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::series::Series;
use crate::event::{CommitId, EventType};

/// What a record says: this commit left these versions of this series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    /// The whole key, namespace included.
    pub(crate) series: String,
    /// The last version. 0: the series has no order that is known, and the commit's turn is when it comes.
    pub(crate) version: u64,
    /// How many versions of the series it is, up to the last.
    pub(crate) span: u64,
    /// In the home: every slot of the commit.
    pub(crate) slots: Option<BTreeMap<String, u64>>,
    /// The types of the slot's events; none: any.
    pub(crate) types: Option<BTreeSet<EventType>>,
    /// Events in this slot that are in no other, or may be.
    pub(crate) events: u32,
    /// Where places order the series, and not versions: where it stands on all of them, as text that sorts so. Every slot comes with this record.
    pub(crate) place: Option<String>,
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
