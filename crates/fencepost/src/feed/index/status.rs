//! How far the index is, by one read of its last epoch.

use jiff::Timestamp;

use crate::error::Result;
use crate::side::chain::Indexable;
use crate::side::epoch::Mark;
use crate::units::Units;

/// How far the index is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexStatus {
    /// Epochs in the chain.
    pub epochs: u64,
    /// When the last one was put.
    pub last: Option<Timestamp>,
    /// The stream that it was built from.
    pub stream: Option<String>,
    /// The shards that are not wholly in the index, and those whose children were not known yet.
    pub shards: Vec<ShardStatus>,
    /// Commits in the index whose records lie beyond a shard's number.
    pub beyond: u64,
    /// When it was found that records were lost before they were read. A rebuild clears it.
    pub trimmed: Option<Timestamp>,
    /// What it cost.
    pub units: Units,
}

/// How far a shard is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ShardStatus {
    /// Its id.
    pub id: String,
    /// All up to this sequence number is in the index.
    pub done: Option<String>,
    /// It was read up to here.
    pub read: Option<String>,
    /// Closed, and all of it is in the index.
    pub finished: bool,
}

pub(super) async fn status(log: &dyn Indexable) -> Result<IndexStatus> {
    let op = log.dynamo().op();
    let last = log.side().last_epoch(&op).await?;
    let time = |micros: u64| i64::try_from(micros).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    let shard = |(id, mark): (&String, &Mark)| {
        let (done, read) = match mark {
            Mark::At { done, read } => (done.as_ref(), read.as_ref()),
            Mark::Finished => (None, None),
        };
        let text = |at: Option<&crate::dynamo::records::Sequence>| at.map(|at| at.as_str().to_owned());
        ShardStatus { id: id.clone(), done: text(done), read: text(read), finished: *mark == Mark::Finished }
    };
    Ok(IndexStatus {
        epochs: last.as_ref().map_or(0, |epoch| epoch.number),
        last: last.as_ref().and_then(|epoch| time(epoch.time)),
        stream: last.as_ref().and_then(|epoch| epoch.stream.clone()),
        shards: last.iter().flat_map(|epoch| &epoch.shards).map(shard).collect(),
        beyond: last.as_ref().map_or(0, |epoch| epoch.ids.len() as u64),
        trimmed: last.as_ref().and_then(|epoch| epoch.gap).and_then(|gap| time(gap.found)),
        units: op.units(),
    })
}
