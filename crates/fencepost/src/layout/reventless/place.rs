//! Where events lie and what fences them: the partition of an event, the fences it moves, and the cover of a query's item. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::settings::{Partition, Settings, check_key};
use crate::error::{Refused, Result};
use crate::event::{StreamName, Tag};
use crate::query::{Query, QueryItem};

/// The partition of events without a tag.
pub(super) const UNTAGGED: &str = "dcb";
/// A tag has at most so many bytes.
const TAG_BYTES: usize = 1_024;
const COMPOSITE: &str = "__dcb_composite__";

/// What has a fence: a tag, or a partition of several tags' values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) enum Cover {
    Tag(Tag),
    Composite(String),
}

impl Cover {
    /// The partition of events whose home it is.
    pub(super) fn id(&self) -> &str {
        match self {
            Cover::Tag(tag) => tag.as_str(),
            Cover::Composite(value) => value,
        }
    }
    /// Whose fence has this name.
    pub(super) fn of_fence(name: &str) -> Option<Cover> {
        match name.strip_prefix(COMPOSITE).and_then(|rest| rest.strip_prefix(':')) {
            Some(value) => Some(Cover::Composite(value.to_owned())),
            None => Tag::new(name).ok().map(Cover::Tag),
        }
    }
    /// The fence's name, without what says that it is a fence.
    pub(super) fn fence(&self) -> String {
        match self {
            Cover::Tag(tag) => tag.to_string(),
            Cover::Composite(value) => format!("{COMPOSITE}:{value}"),
        }
    }
}

/// A tag as the peer has it: a key and a value.
pub(super) fn split(tag: &Tag) -> Result<(&str, &str)> {
    let parts = tag.as_str().split_once(':').filter(|(_, value)| !value.is_empty());
    let Some((key, value)) = parts else {
        return Err(Refused::BadName {
            what: "tag",
            name: tag.to_string(),
            rule: "KEY:VALUE, both not empty: this layout keeps the two apart",
        }
        .into());
    };
    check_key(key)?;
    Ok((key, value))
}

/// What a commit does to one fence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Touch {
    /// Events that move it.
    pub(super) events: u64,
    pub(super) types: BTreeSet<String>,
    /// Events among them that neither its partition nor its index shows.
    pub(super) more: u64,
    /// Whether it is the home of some.
    pub(super) home: bool,
}

impl Settings {
    /// Whether events of this cover lie in its partition, so that they are read from the table itself.
    pub(super) fn is_home(&self, cover: &Cover) -> bool {
        match cover {
            Cover::Composite(_) => true,
            Cover::Tag(tag) => {
                matches!((&self.partition, tag.as_str().split_once(':')), (Partition::Key(own), Some((key, _))) if own == key)
            }
        }
    }

    pub(super) fn is_declared(&self, tag: &Tag) -> bool {
        let key = tag.as_str().split_once(':').map_or("", |(key, _)| key);
        self.cross.contains(key) || matches!(&self.partition, Partition::Key(own) if own == key)
    }

    /// The partition of an event: named by the partition tag, else by its first tag. None for an event without tags.
    pub(super) fn home(&self, tags: &[Tag]) -> Option<Cover> {
        let first = |wanted: &str| tags.iter().find_map(|tag| tag.as_str().split_once(':').filter(|(key, _)| *key == wanted));
        let of = |tag: &Tag| Cover::Tag(tag.clone());
        match &self.partition {
            Partition::Key(key) => tags.iter().find(|tag| tag.as_str().split_once(':').is_some_and(|(own, _)| own == key)).map(of),
            Partition::Composite { keys, separators } => {
                let values: Vec<_> = keys.iter().map(|key| first(key).map(|(_, value)| value)).collect();
                values.iter().any(Option::is_some).then(|| Cover::Composite(join(&values, separators)))
            }
        }
        .or_else(|| tags.first().map(of))
    }

    /// Every fence that an event moves, and whether a read of it must be shown the way to the event.
    pub(super) fn fences(&self, tags: &[Tag]) -> BTreeMap<Cover, bool> {
        let Some(home) = self.home(tags) else { return BTreeMap::new() };
        let mut all = BTreeMap::from([(home.clone(), false)]);
        for (n, tag) in tags.iter().enumerate().filter(|(_, tag)| self.is_declared(tag)) {
            let cover = Cover::Tag(tag.clone());
            let key = |tag: &Tag| tag.as_str().split_once(':').map(|(key, _)| key.to_owned());
            let hidden = match self.is_home(&cover) {
                true => cover != home,
                // The index shows the last value of a key, as the peer writes it.
                false => tags[n + 1..].iter().any(|later| key(later) == key(tag)),
            };
            let so_far = all.entry(cover).or_insert(false);
            *so_far |= hidden;
        }
        all
    }

    /// What an event must be to lie here at all.
    pub(super) fn check(&self, tags: &[Tag]) -> Result<()> {
        let mut keys = BTreeSet::new();
        for tag in tags {
            let (key, _) = split(tag)?;
            let member = matches!(&self.partition, Partition::Composite { keys, .. } if keys.iter().any(|own| own == key));
            if !keys.insert(key) && member {
                let what = format!("an event with two values of {key:?}");
                let remedy = format!("its partition is made of one value of each of {}", self.partition);
                return Err(Refused::Unsupported { what, remedy }.into());
            }
        }
        // The feed names a series by its partition, and a name is no longer than a tag.
        match self.home(tags) {
            Some(Cover::Composite(id)) if id.len() > TAG_BYTES => {
                Err(Refused::TooLong { what: "composite partition", bytes: id.len(), limit: TAG_BYTES }.into())
            }
            _ => Ok(()),
        }
    }

    /// One cover for each item, so that every event that matches moves one of them; with the types that are asked of it, none meaning any.
    pub(super) fn covers(&self, query: &Query) -> Result<BTreeMap<Cover, Option<BTreeSet<String>>>> {
        if query.is_all() {
            return Err(untagged("a query for all events"));
        }
        let mut covers: BTreeMap<Cover, Option<BTreeSet<String>>> = BTreeMap::new();
        for item in query.items() {
            let all = self.covers_of(item)?;
            let chosen = all.iter().find(|cover| covers.contains_key(cover)).unwrap_or(&all[0]).clone();
            let types: Option<BTreeSet<String>> = (!item.types().is_empty()).then(|| item.types().iter().map(|t| t.to_string()).collect());
            match (covers.get_mut(&chosen), types) {
                (None, types) => drop(covers.insert(chosen, types)),
                (Some(Some(so_far)), Some(more)) => so_far.extend(more),
                (Some(any), _) => *any = None,
            }
        }
        Ok(covers)
    }

    /// Covers that each hold an item, the cheapest to read first; at least one.
    pub(super) fn covers_of(&self, item: &QueryItem) -> Result<Vec<Cover>> {
        if item.tags().is_empty() {
            return Err(untagged("a query by types without a tag"));
        }
        for tag in item.tags() {
            split(tag)?;
        }
        let mut covers = Vec::new();
        if let Partition::Composite { keys, separators } = &self.partition {
            let value = |key: &String| item.tags().iter().find_map(|tag| tag.as_str().split_once(':').filter(|(own, _)| own == key));
            let values: Option<Vec<_>> = keys.iter().map(|key| value(key).map(|(_, value)| Some(value))).collect();
            covers.extend(values.map(|values| Cover::Composite(join(&values, separators))));
        }
        let declared = item.tags().iter().filter(|tag| self.is_declared(tag)).map(|tag| Cover::Tag(tag.clone()));
        let (home, cross): (Vec<_>, Vec<_>) = declared.partition(|cover| self.is_home(cover));
        covers.extend(home.into_iter().chain(cross));
        if covers.is_empty() {
            let keys: Vec<_> = item.tags().iter().filter_map(|tag| tag.as_str().split_once(':')).map(|(key, _)| key).collect();
            let what = format!("a condition or read over {} alone", keys.join(", "));
            let remedy = format!(
                "only the partition ({}) and declared keys are fenced by every event: declare it with cross={}",
                self.partition, keys[0]
            );
            return Err(Refused::Unsupported { what, remedy }.into());
        }
        Ok(covers)
    }

    /// The tags that name a stream: one tag, or the members of a composite partition.
    pub(super) fn stream(&self, stream: &StreamName) -> Result<Vec<Tag>> {
        let tag = Tag::from(stream);
        match &self.partition {
            Partition::Composite { keys, separators } if !self.is_declared(&tag) => {
                let mut rest = stream.as_str();
                let mut tags = Vec::new();
                for (n, key) in keys.iter().enumerate() {
                    let (value, after) = match separators.get(n) {
                        Some(separator) => rest.split_once(separator.as_str()).unwrap_or((rest, "")),
                        None => (rest, ""),
                    };
                    rest = after;
                    tags.push(Tag::new(format!("{key}:{value}"))?);
                }
                tags.iter().try_for_each(|tag| split(tag).map(drop))?;
                Ok(tags)
            }
            _ => {
                split(&tag)?;
                Ok(vec![tag])
            }
        }
    }
}

fn untagged(what: &str) -> crate::error::Error {
    let remedy = "no fence holds it: name a tag of the partition's key, or of one declared with cross=, in every item; plain reads are answered by a scan with untagged=scan";
    Refused::Unsupported { what: what.into(), remedy: remedy.into() }.into()
}

fn join(values: &[Option<&str>], separators: &[String]) -> String {
    let mut all = values[0].unwrap_or_default().to_owned();
    for (value, separator) in values[1..].iter().zip(separators) {
        all.push_str(separator);
        all.push_str(value.unwrap_or_default());
    }
    all
}

/// All tags as one text, the peer's key for reads by all tags at once: by key, joined `k:v#k:v`. A `#` in a tag would read as two tags:
/// it is escaped, and so is what looks escaped. Values of one key are sorted.
pub(super) fn composite(tags: &[Tag]) -> String {
    let mut parts: Vec<(&str, &str)> = tags.iter().filter_map(|tag| tag.as_str().split_once(':')).collect();
    parts.sort_unstable();
    let escaped = |text: &str| match text.contains('#') || text.contains("%23") || text.contains("%25") {
        true => text.replace('%', "%25").replace('#', "%23"),
        false => text.to_owned(),
    };
    parts.iter().map(|(key, value)| format!("{key}:{}", escaped(value))).collect::<Vec<_>>().join("#")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(names: &[&str]) -> Vec<Tag> {
        names.iter().map(|name| Tag::new(name).expect("tag")).collect()
    }
    fn settings(partition: &str, cross: &[&str]) -> Settings {
        Settings { partition: partition.parse().expect("partition"), cross: cross.iter().map(|key| (*key).into()).collect() }
    }
    fn cover(tag: &str) -> Cover {
        Cover::Tag(Tag::new(tag).expect("tag"))
    }

    #[test]
    fn an_event_lies_with_its_partition_tag_or_its_first_tag_or_with_the_untagged() {
        let simple = settings("order", &["product"]);
        assert_eq!(simple.home(&tags(&["product:p", "order:o"])), Some(cover("order:o")));
        assert_eq!(simple.home(&tags(&["x:1", "product:p"])), Some(cover("x:1")));
        assert_eq!(simple.home(&[]), None);
        let composite = settings("env/platform#plugin", &[]);
        let home = |names: &[&str]| composite.home(&tags(names)).map(|cover| (cover.id().to_owned(), cover.fence()));
        assert_eq!(home(&["plugin:z", "env:e", "platform:p"]), Some(("e/p#z".into(), "__dcb_composite__:e/p#z".into())));
        assert_eq!(home(&["env:e", "plugin:z"]), Some(("e/#z".into(), "__dcb_composite__:e/#z".into())), "a missing member is empty");
        assert_eq!(home(&["x:1"]), Some(("x:1".into(), "x:1".into())));
    }

    #[test]
    fn an_event_moves_its_home_and_every_declared_tag_and_shows_the_way_where_no_index_does() {
        let own = settings("order", &["product"]);
        let fences = own.fences(&tags(&["order:1", "product:a", "note:n", "product:b", "order:2"]));
        let expected = [("order:1", false), ("order:2", true), ("product:a", true), ("product:b", false)];
        assert_eq!(fences, expected.map(|(tag, hidden)| (cover(tag), hidden)).into());
        assert_eq!(own.fences(&tags(&["note:n", "x:1"])), BTreeMap::from([(cover("note:n"), false)]), "its home alone");
    }

    #[test]
    fn an_item_is_held_by_its_partition_or_a_declared_tag_and_else_refused() {
        let own = settings("order", &["product"]);
        let covers = |query: Query| own.covers(&query).map(|covers| covers.into_keys().map(|cover| cover.fence()).collect::<Vec<_>>());
        assert_eq!(covers(Query::tags(["product:a", "order:1"]).expect("query")).expect("held"), ["order:1"]);
        let shared = Query::tags(["note:n", "product:a"]).expect("query").or(Query::tag("product:a").expect("query"));
        assert_eq!(covers(shared).expect("held"), ["product:a"]);
        for refused in
            [Query::all(), Query::types(["T"]).expect("query"), Query::tag("note:n").expect("query"), Query::tag("plain").expect("query")]
        {
            assert!(covers(refused.clone()).is_err(), "{refused:?}");
        }
        let composite = settings("env/platform", &["x"]);
        let covers = |names: [&str; 2]| composite.covers(&Query::tags(names).expect("query")).map(|covers| covers.into_keys().next());
        assert_eq!(covers(["platform:p", "env:e"]).expect("held"), Some(Cover::Composite("e/p".into())));
        assert_eq!(covers(["env:e", "x:1"]).expect("held"), Some(cover("x:1")));
        assert!(covers(["env:e", "note:n"]).is_err());
    }

    #[test]
    fn composites_never_read_as_other_tags() {
        assert_eq!(composite(&tags(&["productId:p-5", "orderId:ord-123"])), "orderId:ord-123#productId:p-5");
        assert_eq!(composite(&tags(&["a:2", "a:1"])), composite(&tags(&["a:1", "a:2"])));
        let sets: [&[&str]; 6] = [&["a:1", "b:2"], &["a:1#b:2"], &["a:1%23b:2"], &["a:1%2523b:2"], &["a:1%25b:2"], &["a:1%b:2"]];
        let all: BTreeSet<_> = sets.iter().map(|set| composite(&tags(set))).collect();
        assert_eq!(all.len(), sets.len(), "{all:?}");
        assert_eq!(composite(&tags(&["a:100%", "t:12:30"])), "a:100%#t:12:30", "as the peer writes it");
    }
}
