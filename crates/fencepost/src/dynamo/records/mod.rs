//! DynamoDB Streams: a table's stream, its shards with their lineage, and records. Without the feature `streams` the connection is
//! there and holds nothing, so that nobody else needs a `cfg`.

#[cfg(not(feature = "streams"))]
mod disabled;
#[cfg(feature = "streams")]
mod enabled;

#[cfg(not(feature = "streams"))]
pub(super) use disabled::Connection;
#[cfg(feature = "streams")]
pub(super) use enabled::Connection;
#[cfg(feature = "streams")]
pub(crate) use enabled::{Change, Cursor, Opened, Read, Record, Sequence, Shard, Start};
