//! How far the index is, by one read of its last epoch; and what it lacks of the stream, by a look at that.

use std::collections::HashSet;

use jiff::Timestamp;

use super::poll::{Poller, now_of};
use super::recent::Rebuilt;
use super::shards::{QUIET, Shards};
use crate::dynamo::records::Record;
use crate::dynamo::{Dynamo, Op};
use crate::error::Result;
use crate::side::chain::Indexable;
use crate::side::epoch::{Epoch, Mark};
use crate::side::notice::{Notice, split};
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
    /// When it was found that records may have been lost before they were read. A rebuild clears it.
    pub trimmed: Option<Timestamp>,
    /// What the stream has that the index lacks.
    pub unread: Unread,
    /// What it cost.
    pub units: Units,
}

/// What the table's stream has that the index lacks: with an indexer at work nothing, or what is a moment old.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unread {
    /// Nothing.
    Nothing,
    /// The oldest of it was written then. If that is long ago, nobody indexes; after a day it is gone.
    Since(Timestamp),
    /// The stream cannot be read, or is another than the index was built from: why.
    Unknown(String),
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
    let unread = match look(log, &op, last.as_ref(), &mut Rebuilt::default(), |_| true).await {
        Ok(unread) => unread,
        // Whoever may read the index may perhaps not read the stream.
        Err(error) => Unread::Unknown(error.to_string()),
    };
    let shard = |(id, mark): (&String, &Mark)| {
        let (done, read) = match mark {
            Mark::At { done, read, .. } => (done.as_ref(), read.as_ref()),
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
        unread,
        units: op.units(),
    })
}

/// Since when the stream has something of the log's namespace that the index lacks; none also where the stream cannot be read.
pub(super) async fn lacks_since(log: &dyn Indexable, rebuilt: &mut Rebuilt) -> Result<Option<Timestamp>> {
    let op = log.dynamo().op();
    let last = log.side().last_epoch(&op).await?;
    let own = |notice: &Notice| split(&notice.series).is_some_and(|(namespace, _)| namespace == log.side().namespace());
    since(look(log, &op, last.as_ref(), rebuilt, own).await)
}

/// What may come right by itself is an error still; whoever may not read the stream, or has none, is not told.
pub(super) fn since(looked: Result<Unread>) -> Result<Option<Timestamp>> {
    match looked {
        Ok(Unread::Since(at)) => Ok(Some(at)),
        Err(error) if error.is_retryable() => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}

pub(super) fn time(micros: u64) -> Option<Timestamp> {
    i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok())
}

async fn look(
    log: &dyn Indexable,
    op: &Op,
    last: Option<&Epoch>,
    rebuilt: &mut Rebuilt,
    counts: impl Fn(&Notice) -> bool,
) -> Result<Unread> {
    let stream = log.dynamo().stream_of(op, log.log_table()).await?;
    let now = now_of(log.dynamo());
    let mut known = HashSet::new();
    if let Some(last) = last {
        known.extend(last.ids.iter().copied());
        known.extend(rebuilt.commits(log, op, &Rebuilt::young(&last.rebuilt, now)).await?);
    }
    let shards = last.map_or_else(|| Shards::unknown(now), |last| Shards::resume(&last.shards, last.looked));
    let built_from = last.and_then(|last| last.stream.as_deref());
    let lacks = |notice: &Notice| counts(notice) && !known.contains(&notice.commit);
    let lacks = |record: &Record| log.notice(record).ok().flatten().is_some_and(|notice| lacks(&notice));
    oldest(log.dynamo(), op, stream, built_from, shards, lacks).await
}

/// The oldest record that an index lacks of a stream, as far as a few pages of every shard tell.
pub(super) async fn oldest(
    dynamo: &Dynamo,
    op: &Op,
    stream: String,
    built_from: Option<&str>,
    mut shards: Shards,
    lacks: impl Fn(&Record) -> bool,
) -> Result<Unread> {
    if built_from.is_some_and(|built_from| built_from != stream) {
        return Ok(Unread::Unknown("the table has another stream than the index was built from".into()));
    }
    let mut poller = Poller::new(stream);
    let mut quiet = 0;
    while quiet < QUIET {
        let polled = poller.poll(dynamo, op, &mut shards).await?;
        let lacking = polled.records.iter().flat_map(|(_, records)| records).filter(|record| lacks(record));
        if let Some(at) = lacking.map(|record| record.at).min() {
            return Ok(time(at).map_or(Unread::Nothing, Unread::Since));
        }
        for (shard, records) in polled.records {
            for record in records {
                shards.read(&shard, record.sequence, record.at, None);
            }
        }
        shards.settle(|_| true);
        quiet = if polled.moved { 0 } else { quiet + 1 };
    }
    Ok(Unread::Nothing)
}
