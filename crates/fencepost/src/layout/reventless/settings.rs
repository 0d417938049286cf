//! What a table was declared with: the partition tag, and the tag keys that are fenced by every carrier. Recorded in the table, in an item
//! that the peer never meets, and held against what a URL says. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::item::{HASH, RANGE};
use crate::dynamo::item::{Attributes, Item, Malformed, Value, number, text, wrong};
use crate::error::{Error, Refused, Result};

const ID: &str = "fencepost#settings";
const PLACE: &str = "SETTINGS";
const FORMAT: &str = "format";
const PARTITION: &str = "partition";
const CROSS: &str = "cross";
/// The format that this release writes, and the highest that it reads.
const KNOWN: u64 = 1;

/// Which tag an event's partition is named by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Partition {
    /// The tag with this key.
    Key(String),
    /// The values of these keys, joined; a separator between each two.
    Composite { keys: Vec<String>, separators: Vec<String> },
}

/// What a table was declared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) partition: Partition,
    pub(crate) cross: BTreeSet<String>,
}

fn is_key(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// A tag's key: letters, digits and `_ - .`; and not the name of the index over all tags.
pub(super) fn check_key(key: &str) -> Result<()> {
    if !key.is_empty() && key.chars().all(is_key) && key != "composite" {
        return Ok(());
    }
    Err(Refused::BadName {
        what: "tag key",
        name: key.into(),
        rule: "letters, digits, _ - . and not \"composite\", which is an index of its own",
    }
    .into())
}

impl FromStr for Partition {
    type Err = Error;
    /// A key, or keys with what joins them: `env/platform/plugin`.
    fn from_str(text: &str) -> Result<Self> {
        let mut keys: Vec<String> = Vec::new();
        let mut separators: Vec<String> = Vec::new();
        let mut in_key = false;
        for c in text.chars() {
            if is_key(c) != in_key {
                in_key = is_key(c);
                if in_key { &mut keys } else { &mut separators }.push(String::new());
            }
            if let Some(last) = if in_key { &mut keys } else { &mut separators }.last_mut() {
                last.push(c);
            }
        }
        if keys.len() != separators.len() + 1 || !text.starts_with(is_key) {
            let why = format!("partition={text}: expected a tag key, or keys with a separator between each two, as in env/platform/plugin");
            return Err(Refused::Url { why }.into());
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.iter().collect::<BTreeSet<_>>().len() < keys.len() {
            return Err(Refused::Url { why: format!("partition={text}: a key stands in it twice") }.into());
        }
        Ok(match <[String; 1]>::try_from(keys) {
            Ok([key]) => Partition::Key(key),
            Err(keys) => Partition::Composite { keys, separators },
        })
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partition::Key(key) => f.write_str(key),
            Partition::Composite { keys, separators } => {
                f.write_str(&keys[0])?;
                keys[1..].iter().zip(separators).try_for_each(|(key, separator)| write!(f, "{separator}{key}"))
            }
        }
    }
}

impl Partition {
    pub(super) fn keys(&self) -> &[String] {
        match self {
            Partition::Key(key) => std::slice::from_ref(key),
            Partition::Composite { keys, .. } => keys,
        }
    }
}

/// The keys in a URL's `cross=`.
pub(super) fn cross(text: &str) -> Result<BTreeSet<String>> {
    text.split(',').map(|key| check_key(key).map(|()| key.to_owned())).collect()
}

impl Settings {
    /// Every key that has an index.
    pub(super) fn indexed(&self) -> BTreeSet<&str> {
        self.partition.keys().iter().chain(&self.cross).map(String::as_str).collect()
    }

    /// For people.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("partition".into(), self.partition.to_string()), ("cross".into(), self.list())])
    }
    fn list(&self) -> String {
        self.cross.iter().map(String::as_str).collect::<Vec<_>>().join(",")
    }

    pub(super) fn key() -> Item {
        Item::from([(HASH.into(), text(ID)), (RANGE.into(), text(PLACE))])
    }

    pub(super) fn item(&self) -> Item {
        let mut item = Self::key();
        item.insert(FORMAT.into(), number(KNOWN));
        item.insert(PARTITION.into(), text(self.partition.to_string()));
        if !self.cross.is_empty() {
            item.insert(CROSS.into(), Value::Ss(self.cross.iter().cloned().collect()));
        }
        item
    }

    pub(super) fn of_item(item: &Item) -> Result<Settings> {
        let corrupt = |m: Malformed| super::item::corrupt(item, &m);
        let format = item.number(FORMAT).map_err(corrupt)?;
        if format > KNOWN {
            return Err(Refused::Newer { found: format, known: KNOWN }.into());
        }
        let partition = item.text(PARTITION).map_err(corrupt)?.parse().map_err(|_| corrupt(wrong(PARTITION, "a partition")))?;
        let cross = match item.value(CROSS) {
            None => BTreeSet::new(),
            Some(value) => value.as_ss().map_err(|_| corrupt(wrong(CROSS, "a set of texts")))?.iter().cloned().collect(),
        };
        Ok(Settings { partition, cross })
    }

    /// Refuses what a URL says otherwise.
    pub(super) fn agree(&self, partition: Option<&Partition>, cross: Option<&BTreeSet<String>>) -> Result<()> {
        if let Some(given) = partition.filter(|given| **given != self.partition) {
            return Err(Refused::Differs { what: "partition", given: given.to_string(), stored: self.partition.to_string() }.into());
        }
        if let Some(given) = cross.filter(|given| **given != self.cross) {
            let given = given.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            return Err(Refused::Differs { what: "cross", given, stored: self.list() }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_from_urls_and_settings_round_trip() {
        for (text, keys) in [("orderId", 1), ("env/platform/plugin", 3), ("a#b::c", 3)] {
            let partition: Partition = text.parse().expect(text);
            assert_eq!((partition.to_string(), partition.keys().len()), (text.to_owned(), keys));
            let settings = Settings { partition, cross: cross("x,y").expect("keys") };
            assert_eq!(Settings::of_item(&settings.item()).expect("reads"), settings);
        }
        for bad in ["", "/a", "a/", "a/a", "composite", "a/composite", "a b/"] {
            assert!(bad.parse::<Partition>().is_err(), "{bad}");
        }
        assert!(cross("a,,b").is_err() && cross("a:b").is_err());
    }

    #[test]
    fn what_differs_is_refused_and_what_is_left_out_agrees() {
        let settings = Settings { partition: Partition::Key("a".into()), cross: cross("x").expect("keys") };
        assert!(settings.agree(None, None).is_ok() && settings.agree(Some(&Partition::Key("a".into())), None).is_ok());
        let refused = settings.agree(Some(&Partition::Key("b".into())), None);
        assert!(matches!(refused, Err(Error::Refused(Refused::Differs { what: "partition", .. }))), "{refused:?}");
        assert!(settings.agree(None, Some(&BTreeSet::new())).is_err());
        let mut newer = settings.item();
        newer.insert(FORMAT.into(), number(2));
        assert!(matches!(Settings::of_item(&newer), Err(Error::Refused(Refused::Newer { .. }))));
    }
}
