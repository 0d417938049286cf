//! Items in ledger form: their keys and packed bytes. The log of the ledger and every side table have them. Pure.

use bytes::Bytes;

use crate::dynamo::item::{Attributes, Item, Malformed, Value, number};
use crate::error::Error;

pub(crate) const HASH: &str = "p";
pub(crate) const RANGE: &str = "v";

/// The key of an item.
pub(crate) fn key(hash: String, range: u64) -> Item {
    Item::from([(HASH.into(), Value::S(hash)), (RANGE.into(), number(range))])
}

/// How an item is called in messages: its key, never what it holds.
pub(crate) fn describe(item: &Item) -> String {
    format!("{} @{}", item.text(HASH).unwrap_or("?"), item.number(RANGE).map_or("?".into(), |v| v.to_string()))
}

pub(crate) fn corrupt(item: &Item, malformed: &Malformed) -> Error {
    Error::corrupt("ledger", format!("{}: {}", describe(item), malformed.0))
}

/// zstd, level 3.
pub(crate) fn pack(data: &[u8]) -> Vec<u8> {
    // Into memory, at a fixed level: there is nothing to fail.
    zstd::bulk::compress(data, 3).unwrap_or_default()
}
/// What `pack` made; none where it is not that.
pub(crate) fn unpack(data: &[u8]) -> Option<Bytes> {
    zstd::stream::decode_all(data).ok().map(Bytes::from)
}
