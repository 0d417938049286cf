//! Polling a stream: its shards looked at, a page of each read, parents before their children. What the records mean is for others to say.

use std::collections::HashMap;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::shards::Shards;
use crate::dynamo::records::{Cursor, Opened, Read, Record, Start};
use crate::dynamo::{Dynamo, Op};
use crate::error::{Error, Result};

/// Shards read at a time.
const AT_ONCE: usize = 16;
/// New shards are looked for when one ends, and this often.
const DESCRIBE: Duration = Duration::from_secs(60);

/// Where each shard of a stream is read on.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) stream: String,
    cursors: HashMap<String, Cursor>,
    /// When the shards were last looked at; none: they must be.
    described: Option<Instant>,
}

/// What one round brought.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// By shard, in the shard's order.
    pub(super) records: Vec<(String, Vec<Record>)>,
    /// What is gone before it was read, in words.
    pub(super) trimmed: Vec<String>,
    /// Whether anything came: records, the end of a shard, a cursor to be opened again.
    pub(super) moved: bool,
}

/// Microseconds since 1970.
pub(super) fn now_of(dynamo: &Dynamo) -> u64 {
    u64::try_from(dynamo.env().now().as_microsecond()).unwrap_or(0)
}

/// What came of one shard.
enum Came {
    Page {
        records: Vec<Record>,
        next: Option<Cursor>,
    },
    Expired,
    /// What should be read is gone.
    Trimmed,
    /// There is nothing of the shard any more.
    Gone,
}

impl Poller {
    pub(super) fn new(stream: String) -> Self {
        Self { stream, cursors: HashMap::new(), described: None }
    }

    /// A page of every shard that may be read.
    pub(super) async fn poll(&mut self, dynamo: &Dynamo, op: &Op, shards: &mut Shards) -> Result<Polled> {
        let mut polled = Polled::default();
        let asked = now_of(dynamo);
        if self.described.is_none_or(|at| at.elapsed() >= DESCRIBE) {
            let found = shards.describe(&dynamo.shards(op, &self.stream).await?);
            polled.trimmed.extend(found.lost.iter().map(|shard| format!("shard {shard} is gone, and was not read to its end")));
            shards.described(asked);
            self.described = Some(Instant::now());
        }
        let wanted = shards.to_read().into_iter();
        let wanted: Vec<_> = wanted.map(|(shard, limit)| (self.cursors.remove(&shard), shards.start(&shard), limit, shard)).collect();
        let stream = &self.stream;
        let pages = wanted.into_iter().map(|(cursor, start, limit, shard)| async move {
            let came = Self::page(dynamo, op, stream, &shard, cursor, &start, limit).await?;
            Ok::<_, Error>((shard, came))
        });
        let pages: Vec<_> = stream::iter(pages).buffer_unordered(AT_ONCE).try_collect().await?;
        for (shard, came) in pages {
            match came {
                Came::Page { records, next } => {
                    polled.moved |= !records.is_empty();
                    shards.paged(&shard, records.len(), asked);
                    match next {
                        Some(cursor) => {
                            self.cursors.insert(shard.clone(), cursor);
                        }
                        None => {
                            polled.moved = true;
                            shards.ended(&shard);
                            self.described = None;
                        }
                    }
                    polled.records.push((shard, records));
                }
                // Opened again behind what was read.
                Came::Expired => polled.moved = true,
                Came::Trimmed if shards.has_only_expired(&shard, asked) => {
                    polled.moved = true;
                    tracing::debug!(shard, "what was read last of a shard has expired");
                    shards.expired(&shard);
                }
                // Read on from what is still there.
                Came::Trimmed => {
                    polled.moved = true;
                    polled.trimmed.push(format!("records of shard {shard} are gone, and perhaps not all of them were read"));
                    shards.lost(&shard);
                    self.described = None;
                }
                Came::Gone => {
                    polled.moved = true;
                    polled.trimmed.push(format!("shard {shard} is gone, and was not read to its end"));
                    shards.ended(&shard);
                    self.described = None;
                }
            }
        }
        Ok(polled)
    }

    async fn page(
        dynamo: &Dynamo,
        op: &Op,
        stream: &str,
        shard: &str,
        cursor: Option<Cursor>,
        start: &Start,
        limit: usize,
    ) -> Result<Came> {
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => match dynamo.open_shard(op, stream, shard, start).await? {
                Opened::At(cursor) => cursor,
                // The oldest record of a shard that is there can always be asked for.
                Opened::Trimmed => return Ok(if *start == Start::Oldest { Came::Gone } else { Came::Trimmed }),
            },
        };
        Ok(match dynamo.records(op, &cursor, i32::try_from(limit).unwrap_or(i32::MAX)).await? {
            Read::Page { records, next } => Came::Page { records, next },
            Read::Expired => Came::Expired,
            Read::Trimmed => Came::Trimmed,
        })
    }
}
