//! Queries: which events a decision, a condition, a read or a feed is about. Exact matching, pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Refused, Result};
use crate::event::{EventType, Tag};

/// OR of items; no items means all events.
///
/// As JSON: `{"items":[{"types":["A","B"],"tags":["course:c1"]}]}`, and `{}` for all.
///
/// ```
/// use fencepost::Query;
/// # fn main() -> fencepost::Result<()> {
/// let query = Query::tag("course:c1")?.or(Query::types(["CourseDefined"])?);
/// assert_eq!(query.items().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<QueryItem>,
}

/// Matches when the type is one of its types (if it names any) and the event carries all of its tags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawItem")]
pub struct QueryItem {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    types: BTreeSet<EventType>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tags: BTreeSet<Tag>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawItem {
    #[serde(default)]
    types: BTreeSet<EventType>,
    #[serde(default)]
    tags: BTreeSet<Tag>,
}

impl TryFrom<RawItem> for QueryItem {
    type Error = crate::error::Error;
    fn try_from(raw: RawItem) -> Result<Self> {
        QueryItem::new(raw.types, raw.tags)
    }
}

impl QueryItem {
    /// At least one type or one tag.
    pub fn new(types: impl IntoIterator<Item = EventType>, tags: impl IntoIterator<Item = Tag>) -> Result<Self> {
        let item = Self { types: types.into_iter().collect(), tags: tags.into_iter().collect() };
        if item.types.is_empty() && item.tags.is_empty() {
            return Err(Refused::Empty { what: "query item" }.into());
        }
        Ok(item)
    }

    /// Any of these, or any type where there is none.
    pub fn types(&self) -> &BTreeSet<EventType> {
        &self.types
    }
    /// All of these.
    pub fn tags(&self) -> &BTreeSet<Tag> {
        &self.tags
    }

    /// Exactly: a type of ours, and every tag of ours.
    pub fn matches(&self, event_type: &EventType, tags: &[Tag]) -> bool {
        (self.types.is_empty() || self.types.contains(event_type)) && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

impl Query {
    /// Every event.
    pub fn all() -> Self {
        Self { items: Vec::new() }
    }

    /// Events that match any of these items. At least one: for every event say [`Query::all`].
    pub fn any(items: impl IntoIterator<Item = QueryItem>) -> Result<Self> {
        let items: Vec<_> = items.into_iter().collect();
        if items.is_empty() {
            return Err(Refused::Empty { what: "list of query items" }.into());
        }
        Ok(Self { items })
    }

    /// Events of one of these types, with any tags.
    pub fn types<T: AsRef<str>>(types: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::item(types, [] as [&str; 0])
    }

    /// Events that carry this tag.
    pub fn tag(tag: impl AsRef<str>) -> Result<Self> {
        Self::item([] as [&str; 0], [tag])
    }

    /// Events that carry this tag, already checked.
    pub fn of_tag(tag: Tag) -> Self {
        Self { items: vec![QueryItem { types: BTreeSet::new(), tags: [tag].into() }] }
    }

    /// Events that carry all of these tags.
    pub fn tags<T: AsRef<str>>(tags: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::item([] as [&str; 0], tags)
    }

    /// Events of one of these types that carry all of these tags.
    pub fn item<Y: AsRef<str>, T: AsRef<str>>(types: impl IntoIterator<Item = Y>, tags: impl IntoIterator<Item = T>) -> Result<Self> {
        let types = types.into_iter().map(EventType::new).collect::<Result<Vec<_>>>()?;
        let tags = tags.into_iter().map(Tag::new).collect::<Result<Vec<_>>>()?;
        Ok(Self { items: vec![QueryItem::new(types, tags)?] })
    }

    /// Events that match either. Everything, if one of the two is everything.
    pub fn or(mut self, other: Query) -> Self {
        if self.is_all() || other.is_all() {
            return Self::all();
        }
        self.items.extend(other.items);
        self
    }

    /// Whether it matches every event.
    pub fn is_all(&self) -> bool {
        self.items.is_empty()
    }

    /// Its items; none for all.
    pub fn items(&self) -> &[QueryItem] {
        &self.items
    }

    /// Exact matching.
    pub fn matches(&self, event_type: &EventType, tags: &[Tag]) -> bool {
        self.is_all() || self.items.iter().any(|item| item.matches(event_type, tags))
    }

    /// Tells queries apart, whatever the order of their items: what a token remembers of the query it was read for.
    pub fn fingerprint(&self) -> u64 {
        let items: BTreeSet<_> = self.items.iter().collect();
        let mut bytes = Vec::with_capacity(64);
        let mut part = |kind: u8, text: &str| {
            bytes.push(kind);
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        for item in items {
            part(b'i', "");
            item.types.iter().for_each(|t| part(b'y', t.as_str()));
            item.tags.iter().for_each(|t| part(b't', t.as_str()));
        }
        Uuid::new_v5(&Uuid::nil(), &bytes).as_u64_pair().0
    }
}

impl std::str::FromStr for Query {
    type Err = crate::error::Error;
    fn from_str(json: &str) -> Result<Self> {
        // serde would take an empty list for an object without fields, and that is every event.
        if !json.trim_start().starts_with('{') {
            return Err(Refused::Malformed { what: "query", why: "expected an object, such as {\"items\":[{\"tags\":[\"a\"]}]}".into() }.into());
        }
        serde_json::from_str(json).map_err(|e| Refused::Malformed { what: "query", why: e.to_string() }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips_and_braces_are_all() {
        let query: Query = r#"{"items":[{"types":["B","A"],"tags":["x:1"]},{"tags":["y"]}]}"#.parse().expect("parses");
        assert_eq!(serde_json::to_string(&query).expect("json"), r#"{"items":[{"types":["A","B"],"tags":["x:1"]},{"tags":["y"]}]}"#);
        assert!("{}".parse::<Query>().expect("parses").is_all());
        for bad in [r#"{"items":[{}]}"#, r#"{"items":[{"tag":["x"]}]}"#, r#"{"items":[{"tags":[""]}]}"#, "[]"] {
            assert!(bad.parse::<Query>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fingerprints_ignore_order_and_tell_apart() -> Result<()> {
        let (a, b) = (Query::tag("a")?, Query::tag("b")?);
        assert_eq!(a.clone().or(b.clone()).fingerprint(), b.clone().or(a.clone()).fingerprint());
        assert_ne!(a.fingerprint(), Query::types(["a"])?.fingerprint());
        assert_ne!(Query::tags(["a", "b"])?.fingerprint(), a.or(b).fingerprint());
        Ok(())
    }
}
