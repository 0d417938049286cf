//! Commit ids that a caller gave: one item each in the side table, in the commit's own transaction, so that a repeat is known for ever.

use super::plan::Commit;
use crate::dynamo::item::{Attributes, Item, Malformed, binary, number, text, wrong};
use crate::dynamo::{Op, Write};
use crate::error::{Refused, Result};
use crate::event::{CommitId, StreamName, digest};
use crate::side::Side;
use crate::side::item::{HASH, corrupt, key};

const STREAM: &str = "t";
const VERSION: &str = "n";
const COUNT: &str = "e";
const DIGEST: &str = "f";

/// Where they lie.
#[derive(Debug)]
pub(super) struct Once<'a>(pub(super) &'a Side);

/// What such an item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// The last version of the commit.
    pub(super) version: u64,
    pub(super) count: u64,
    digest: Vec<u8>,
}

impl Once<'_> {
    fn key(&self, commit: CommitId) -> Item {
        key(format!("i/{}/{}", self.0.namespace(), commit.0.simple()), 1)
    }

    pub(super) fn write(&self, stream: &StreamName, last: u64, commit: &Commit<'_>) -> Write {
        let mut item = self.key(commit.id);
        item.insert(STREAM.into(), text(stream.as_str()));
        item.insert(VERSION.into(), number(last));
        item.insert(COUNT.into(), number(commit.count()));
        item.insert(DIGEST.into(), binary(digest(commit.events)));
        // By its own name: the transaction's other tables have another hash key.
        Write::PutIf { table: self.0.table().into(), item, condition: format!("attribute_not_exists({HASH})"), values: Item::new() }
    }

    pub(super) async fn find(&self, op: &Op, stream: &StreamName, commit: CommitId) -> Result<Option<Known>> {
        match self.0.get(op, self.key(commit)).await? {
            Some(item) => known(stream, &item).map(Some),
            None => Ok(None),
        }
    }
}

/// Refused where the commit was one to another stream.
pub(super) fn known(stream: &StreamName, item: &Item) -> Result<Known> {
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
    pub(super) fn check(&self, commit: &Commit<'_>) -> Result<()> {
        if self.digest == digest(commit.events) { Ok(()) } else { Err(Refused::Reused { commit: commit.id }.into()) }
    }
}
