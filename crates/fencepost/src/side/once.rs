//! Commit ids that a caller gave: one item each in the side table, in the commit's own transaction, so that a repeat is known for ever.

use super::Side;
use super::item::{HASH, corrupt, key};
use crate::dynamo::item::{Attributes, Item, Malformed, binary, number, text, wrong};
use crate::dynamo::{Op, Write};
use crate::error::{Refused, Result};
use crate::event::{CommitId, Event, StreamName, digest};

const STREAM: &str = "t";
const VERSION: &str = "n";
const COUNT: &str = "e";
const DIGEST: &str = "f";

/// Where they lie.
#[derive(Debug)]
pub(crate) struct Once<'a>(pub(crate) &'a Side);

/// What such an item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// The last version of the commit.
    pub(crate) version: u64,
    pub(crate) count: u64,
    digest: Vec<u8>,
}

impl Once<'_> {
    fn key(&self, commit: CommitId) -> Item {
        key(format!("i/{}/{}", self.0.namespace(), commit.0.simple()), 1)
    }

    pub(crate) fn write(&self, stream: &StreamName, last: u64, commit: CommitId, events: &[Event]) -> Write {
        let mut item = self.key(commit);
        item.insert(STREAM.into(), text(stream.as_str()));
        item.insert(VERSION.into(), number(last));
        item.insert(COUNT.into(), number(events.len() as u64));
        item.insert(DIGEST.into(), binary(digest(events)));
        // By its own name: the transaction's other tables have another hash key.
        Write::PutIf { table: self.0.table().into(), item, condition: format!("attribute_not_exists({HASH})"), values: Item::new() }
    }

    pub(crate) async fn find(&self, op: &Op, stream: &StreamName, commit: CommitId) -> Result<Option<Known>> {
        match self.0.get(op, self.key(commit)).await? {
            Some(item) => known(stream, &item).map(Some),
            None => Ok(None),
        }
    }
}

/// Refused where the commit was one to another stream.
pub(crate) fn known(stream: &StreamName, item: &Item) -> Result<Known> {
    let malformed = |m: Malformed| corrupt(item, &m);
    let of = item.text(STREAM).map_err(malformed)?;
    if of != stream.as_str() {
        return Err(Refused::Foreign { what: "commit id", of: format!("stream {of}"), here: format!("stream {stream}") }.into());
    }
    let decode = || {
        let (version, count) = (item.number(VERSION)?, item.number(COUNT)?);
        if count == 0 || count > version {
            return Err(wrong(COUNT, "the number of events"));
        }
        Ok(Known { version, count, digest: item.bytes(DIGEST)?.to_vec() })
    };
    decode().map_err(malformed)
}

impl Known {
    /// Refused where the commit recorded other events.
    pub(crate) fn check(&self, commit: CommitId, events: &[Event]) -> Result<()> {
        if self.digest == digest(events) { Ok(()) } else { Err(Refused::Reused { commit }.into()) }
    }
}
