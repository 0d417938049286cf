//! The settings of a namespace: fixed when it is created, stored in it, and held against what a URL says. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::item::{self, FORMAT, key};
use crate::dynamo::item::{Attributes, Item, Value, number, text, wrong};
use crate::error::{Error, Refused, Result};
use crate::event::EventType;

/// How a namespace orders its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedMode {
    Lanes(u8),
    Streams,
}

/// More lanes than this are not accepted.
const MAX_LANES: u8 = 64;

impl fmt::Display for FeedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedMode::Lanes(lanes) => write!(f, "lanes-{lanes}"),
            FeedMode::Streams => f.write_str("streams"),
        }
    }
}

impl FromStr for FeedMode {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let lanes = || text.strip_prefix("lanes-")?.parse().ok().filter(|n| (1..=MAX_LANES).contains(n));
        match text {
            "streams" => Ok(FeedMode::Streams),
            _ => lanes()
                .map(FeedMode::Lanes)
                .ok_or_else(|| Refused::Url { why: format!("feed={text}: expected lanes-1 to lanes-{MAX_LANES}, or streams") }.into()),
        }
    }
}

/// What a namespace was created with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) feed: FeedMode,
    /// Types that have a series of their own.
    pub(crate) types: BTreeSet<EventType>,
    /// Raised when a restore is adopted; older tokens and checkpoints are refused then.
    pub(crate) incarnation: u64,
}

/// A namespace's name: `[a-z0-9-]{1,32}`.
pub(crate) fn check_namespace(name: &str) -> Result<()> {
    let fits = (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        return Ok(());
    }
    Err(Refused::BadName { what: "namespace", name: name.into(), rule: "1 to 32 of a-z 0-9 -" }.into())
}

const FORMAT_NUMBER: &str = "format";
const FEED: &str = "feed";
const TYPES: &str = "types";
const INCARNATION: &str = "incarnation";

impl Settings {
    /// How many lanes there are, if any.
    pub(crate) fn lanes(&self) -> Option<u8> {
        match self.feed {
            FeedMode::Lanes(lanes) => Some(lanes),
            FeedMode::Streams => None,
        }
    }
    /// Whether positions are 1, 2, 3 …
    pub(crate) fn counted(&self) -> bool {
        self.feed == FeedMode::Lanes(1)
    }

    /// For people.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let types: Vec<_> = self.types.iter().map(|t| t.as_str()).collect();
        BTreeMap::from([
            ("namespace".into(), self.namespace.clone()),
            ("feed".into(), self.feed.to_string()),
            ("indexed types".into(), types.join(", ")),
        ])
    }

    pub(crate) fn key(namespace: &str) -> Item {
        key(format!("n/{namespace}"), 0)
    }

    pub(crate) fn item(&self) -> Item {
        let mut item = Self::key(&self.namespace);
        item.insert(FORMAT_NUMBER.into(), number(FORMAT));
        item.insert(FEED.into(), text(self.feed.to_string()));
        if !self.types.is_empty() {
            item.insert(TYPES.into(), Value::Ss(self.types.iter().map(|t| t.as_str().to_owned()).collect()));
        }
        if self.incarnation > 0 {
            item.insert(INCARNATION.into(), number(self.incarnation));
        }
        item
    }

    pub(crate) fn of_item(namespace: &str, item: &Item) -> Result<Settings> {
        let corrupt = |m: crate::dynamo::item::Malformed| item::corrupt(item, &m);
        let format = item.number(FORMAT_NUMBER).map_err(corrupt)?;
        if format > FORMAT {
            return Err(Refused::Newer { found: format, known: FORMAT }.into());
        }
        let feed = item.text(FEED).map_err(corrupt)?.parse().map_err(|_| corrupt(wrong(FEED, "a feed mode")))?;
        let types = match item.value(TYPES) {
            None => BTreeSet::new(),
            Some(value) => {
                let texts = value.as_ss().map_err(|_| corrupt(wrong(TYPES, "a set of texts")))?;
                texts.iter().map(EventType::new).collect::<Result<_>>()?
            }
        };
        let incarnation = item.maybe_number(INCARNATION).map_err(corrupt)?.unwrap_or(0);
        Ok(Settings { namespace: namespace.into(), feed, types, incarnation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_and_a_later_format_is_refused() {
        let settings = Settings {
            namespace: "main".into(),
            feed: FeedMode::Lanes(8),
            types: [EventType::new("T").expect("type")].into(),
            incarnation: 2,
        };
        let mut item = settings.item();
        assert_eq!(Settings::of_item("main", &item).expect("reads"), settings);
        item.insert(FORMAT_NUMBER.into(), number(FORMAT + 1));
        let refused = Settings::of_item("main", &item);
        assert!(matches!(refused, Err(Error::Refused(Refused::Newer { found: 2, known: 1 }))), "{refused:?}");
        for bad in ["lanes-0", "lanes-65", "lane", ""] {
            assert!(bad.parse::<FeedMode>().is_err(), "{bad}");
        }
    }
}
