//! What a store of this layout is opened with: which generation, its tables, keys and retention. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::hash::KeyHash;
use crate::dynamo::TRANSACTION_ITEMS;
use crate::error::{Refused, Result};
use crate::event::StreamName;
use crate::url::StoreUrl;

/// Items of a transaction that are not events: the lock, two snapshots, the commit id.
const BESIDE_EVENTS: usize = 4;
/// Bytes of an item that a body must leave for keys, names and numbers.
const BESIDE_BODY: usize = 4 * 1024;
/// The highest number of an event.
pub(super) const LAST: u64 = (1 << 53) - 1;
/// The longest name in v3: a sort key has 1,024 bytes, and a dash and a number stand behind the name.
const V3_NAME_BYTES: usize = 1024 - 17;

/// Which tables, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) journal: String,
    pub(crate) snapshot: String,
    pub(crate) side: String,
    pub(crate) kind: Kind,
    /// Snapshots of the past that are kept beside the current one; none: none are written.
    pub(crate) keep: Option<u64>,
    /// Those beyond are marked to expire after this long; none: they are deleted.
    pub(crate) expire: Option<Duration>,
    /// Exactly the attributes that the peer writes.
    pub(crate) strict: bool,
}

/// The generation, and what it alone has.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    V5 { head: String, history_index: String },
    V3(Keys),
}

/// How v3 finds an aggregate.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) journal_index: String,
    pub(crate) snapshot_index: String,
    /// Names of types that a stream's name may begin with; else the first dash splits.
    pub(crate) types: Vec<String>,
    pub(crate) shards: u64,
    pub(crate) hash: KeyHash,
    /// The other clients of this hash are gone: it may be written as the Rust client of v3 does.
    pub(crate) adopted: bool,
}

impl Options {
    pub(crate) fn v5(url: &StoreUrl) -> Result<Options> {
        url.only(&["journal", "snapshot", "head", "history_index", "keep", "expire", "strict", "side"])?;
        let head = url.named("head", "-head")?;
        let history_index = url.param("history_index").unwrap_or("snapshot-history-index").to_owned();
        Options::of(url, Kind::V5 { head, history_index })
    }

    pub(crate) fn v3(url: &StoreUrl) -> Result<Options> {
        url.only(&[
            "journal",
            "snapshot",
            "journal_index",
            "snapshot_index",
            "types",
            "shards",
            "hash",
            "dialect",
            "keep",
            "expire",
            "strict",
            "side",
        ])?;
        let hash = url.param("hash").unwrap_or("rust");
        let hash = KeyHash::parse(hash).ok_or_else(|| bad(format!("hash={hash} is unknown; known are rust, go, java, js")))?;
        let adopted = match url.param("dialect") {
            None => false,
            Some("v3") => true,
            Some(other) => return Err(bad(format!("dialect={other} is unknown; the one that is written is v3")).into()),
        };
        let shards = whole(url, "shards")?.unwrap_or(64);
        let types = url.param("types").map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default();
        let index = |name: &str, by_default: &str| url.param(name).unwrap_or(by_default).to_owned();
        let journal_index = index("journal_index", "journal-aid-index");
        let snapshot_index = index("snapshot_index", "snapshot-aid-index");
        Options::of(url, Kind::V3(Keys { journal_index, snapshot_index, types, shards, hash, adopted }))
    }

    fn of(url: &StoreUrl, kind: Kind) -> Result<Options> {
        let strict = match url.param("strict") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(bad(format!("strict={other} is neither true nor false")).into()),
        };
        let keep = whole(url, "keep")?;
        let expire = whole(url, "expire")?.map(Duration::from_secs);
        if expire.is_some() && keep.is_none() {
            return Err(bad("expire= goes with keep=: what is beyond those kept expires".into()).into());
        }
        let options = Options {
            journal: url.named("journal", "-journal")?,
            snapshot: url.named("snapshot", "-snapshot")?,
            side: url.named("side", "-side")?,
            kind,
            keep,
            expire,
            strict,
        };
        let mut names = options.tables();
        names.sort();
        names.dedup();
        if names.len() < options.tables().len() {
            return Err(bad("each table needs a name of its own".into()).into());
        }
        Ok(options)
    }

    fn tables(&self) -> Vec<&str> {
        let mut names = vec![self.journal.as_str(), &self.snapshot, &self.side];
        if let Kind::V5 { head, .. } = &self.kind {
            names.push(head);
        }
        names
    }

    /// As URLs have it; tokens are sealed under it too.
    pub(crate) fn layout(&self) -> &'static str {
        match self.kind {
            Kind::V5 { .. } => "event-store-adapter-v5",
            Kind::V3(_) => "event-store-adapter-v3",
        }
    }
    /// The hash key of every table but the side table.
    pub(super) fn hash_key(&self) -> &'static str {
        match self.kind {
            Kind::V5 { .. } => "aid",
            Kind::V3(_) => "pkey",
        }
    }
    /// Under `strict` as many as the peer: one.
    pub(super) fn max_events(&self) -> usize {
        if self.strict { 1 } else { TRANSACTION_ITEMS - BESIDE_EVENTS }
    }
    pub(super) fn max_body(&self) -> usize {
        crate::dynamo::ITEM_BYTES - BESIDE_BODY
    }

    /// Refuses names that have no place in these tables.
    pub(super) fn check_name(&self, stream: &StreamName) -> Result<()> {
        let name = stream.as_str();
        match &self.kind {
            Kind::V3(_) if name.len() > V3_NAME_BYTES => {
                Err(Refused::TooLong { what: "stream name in v3", bytes: name.len(), limit: V3_NAME_BYTES }.into())
            }
            _ if !name.contains('-') => {
                let rule = "TYPE-VALUE: a stream is an aggregate's id, and a dash stands between its type and its value";
                Err(Refused::BadName { what: "stream", name: name.into(), rule }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether it may be appended to.
    pub(super) fn check_writable(&self) -> Result<()> {
        match &self.kind {
            Kind::V3(keys) if !keys.adopted && !matches!(keys.hash, KeyHash::Rust) => Err(Refused::Unsupported {
                what: format!("appending to tables of clients with hash={}", keys.hash.name()),
                remedy: "events are written as the Rust client of v3 has them, which those do not read: add &dialect=v3 once they are gone"
                    .into(),
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// For people.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::from([("strict".to_owned(), self.strict.to_string())]);
        let mut show = |name: &str, value: String| shown.insert(name.to_owned(), value);
        if let Some(keep) = self.keep {
            show("keep", keep.to_string());
        }
        if let Some(expire) = self.expire {
            show("expire", expire.as_secs().to_string());
        }
        if let Kind::V3(keys) = &self.kind {
            show("hash", keys.hash.name().into());
            show("shards", keys.shards.to_string());
            if !keys.types.is_empty() {
                show("types", keys.types.join(","));
            }
        }
        shown
    }
}

impl Keys {
    /// Type and value of a stream's name. The longest type that is known, else up to the first dash.
    pub(super) fn split<'a>(&self, stream: &'a str) -> (&'a str, &'a str) {
        let known = self.types.iter().filter(|name| stream.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-')));
        match known.max_by_key(|name| name.len()) {
            Some(name) => (&stream[..name.len()], &stream[name.len() + 1..]),
            None => stream.split_once('-').unwrap_or((stream, "")),
        }
    }

    /// The partition of a stream.
    pub(super) fn partition(&self, stream: &str) -> String {
        let (type_name, value) = self.split(stream);
        format!("{type_name}-{}", self.hash.shard(type_name, value, self.shards))
    }
}

fn whole(url: &StoreUrl, name: &str) -> Result<Option<u64>> {
    let Some(text) = url.param(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(bad(format!("{name}={text} is not a whole number from 1 on")).into()),
    }
}

fn bad(why: String) -> Refused {
    Refused::Url { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v3(parameters: &str) -> Result<Options> {
        Options::v3(&StoreUrl::parse(&format!("memory:?layout=event-store-adapter-v3{parameters}"))?)
    }

    #[test]
    fn a_stream_is_split_at_the_longest_type_that_is_known_or_at_the_first_dash() {
        let Ok(Options { kind: Kind::V3(keys), .. }) = v3("&types=user,user-account&shards=64") else { panic!("v3") };
        assert_eq!(keys.split("user-account-a"), ("user-account", "a"));
        assert_eq!(keys.split("user-a"), ("user", "a"));
        assert_eq!(keys.split("other-a-b"), ("other", "a-b"));
        assert_eq!(keys.partition("user-account-a"), "user-account-51");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in
            ["&keep=0", "&expire=60", "&shards=none", "&hash=php", "&dialect=v2", "&strict=yes", "&journal=same&snapshot=same", "&head=x"]
        {
            assert!(v3(bad).is_err(), "{bad}");
        }
        assert!(v3("&keep=2&expire=60&hash=go&dialect=v3&strict=true").is_ok());
    }
}
