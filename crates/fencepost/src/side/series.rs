//! Series: dense runs of versions under one key, of a tag, an indexed type, untagged commits or a lane. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{EventType, Tag};

/// What has versions 1, 2, 3 …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Series {
    Tag(Tag),
    Type(EventType),
    Untagged(u8),
    Lane(u8),
}

impl Series {
    /// The hash key. Tags and types come last in it, so any byte is safe in them.
    pub(crate) fn key(&self, namespace: &str) -> String {
        match self {
            Series::Tag(tag) => format!("t/{namespace}/{tag}"),
            Series::Type(event_type) => format!("y/{namespace}/{event_type}"),
            Series::Untagged(number) => format!("u/{namespace}/{number}"),
            Series::Lane(number) => format!("l/{namespace}/{number}"),
        }
    }

    /// Its name inside its namespace, as it stands in a home's list of slots.
    pub(crate) fn short(&self) -> String {
        match self {
            Series::Tag(tag) => format!("t/{tag}"),
            Series::Type(event_type) => format!("y/{event_type}"),
            Series::Untagged(number) => format!("u/{number}"),
            Series::Lane(number) => format!("l/{number}"),
        }
    }

    /// From its short name.
    pub(crate) fn parse(short: &str) -> Option<Series> {
        let (kind, name) = short.split_once('/')?;
        Series::of_kind(kind, name)
    }

    fn of_kind(kind: &str, name: &str) -> Option<Series> {
        match kind {
            "t" => Tag::new(name).ok().map(Series::Tag),
            "y" => EventType::new(name).ok().map(Series::Type),
            "u" => name.parse().ok().map(Series::Untagged),
            "l" => name.parse().ok().map(Series::Lane),
            _ => None,
        }
    }

    /// From a hash key of this namespace.
    pub(crate) fn of_key(key: &str, namespace: &str) -> Option<Series> {
        let (kind, rest) = key.split_once('/')?;
        let name = rest.strip_prefix(namespace)?.strip_prefix('/')?;
        Series::of_kind(kind, name)
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_whatever_the_tag_holds() {
        for tag in ["course:c1", "/", "a/b/c", "\0", "ü#:"] {
            let series = Series::Tag(Tag::new(tag).expect("tag"));
            assert_eq!(Series::of_key(&series.key("main"), "main"), Some(series.clone()));
            assert_eq!(Series::of_key(&series.key("other"), "main"), None);
            assert_eq!(Series::parse(&series.short()), Some(series));
        }
        assert_eq!(Series::of_key("l/main/3", "main"), Some(Series::Lane(3)));
    }
}
