//! event-store-adapter: two generations of one peer's tables. v3 is the published page (journal and snapshot, logical shards, a lock that
//! counts writes); v5 is what the crate writes today (journal, snapshot, head). A stream's name is the aggregate's id.
//!
//! `docs/layouts/event_store_adapter.md`.

mod append;
mod check;
mod config;
pub(crate) mod hash;
#[cfg(feature = "streams")]
mod index;
mod item;
mod plan;
mod read;
mod retention;
mod settings;
mod tables;
mod token;
mod whose;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;

pub(crate) use self::settings::{Kind, Options};
use self::token::End;
use crate::dynamo::table::{Rights, TableSpec};
use crate::dynamo::{Dynamo, report};
use crate::error::Result;
use crate::event::{CommitId, Recorded, StreamName};
use crate::log::{Answer, Bodies, Capabilities, Committed, Snapshots};
use crate::position::Token;
use crate::side::{Made, Side};
use crate::stream::{LoadOptions, Loaded, Step, StreamReadOptions, StreamStore};

/// What lies in the side table is under this name: the layout itself has no namespaces.
const NAMESPACE: &str = "main";
/// Ends that are remembered; when it is full, all are forgotten, at half a read unit each.
const REMEMBERED: usize = 64 * 1024;

impl Options {
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        tables::specs(self)
    }
    pub(crate) fn rights(&self) -> Vec<Rights> {
        tables::rights(self)
    }
    /// Writes what v5 has in its tables before any event; whether that was now.
    pub(crate) async fn create(&self, dynamo: &Dynamo) -> Result<bool> {
        config::resolve(dynamo, &dynamo.op(), self).await
    }
}

/// Opened tables. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventStoreAdapter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dynamo: Dynamo,
    options: Options,
    side: Side,
    /// Where streams end, as far as this process knows: a hint, since a try behind the wrong end fails, and tells.
    ends: Mutex<HashMap<StreamName, End>>,
    stamp: AtomicU64,
}

impl EventStoreAdapter {
    /// Holds the configuration of v5's tables against each other, and writes it where there is none, as the peer does.
    pub(crate) async fn open(dynamo: Dynamo, options: Options) -> Result<Self> {
        config::resolve(&dynamo, &dynamo.op(), &options).await?;
        let side = Side::new(dynamo.clone(), &options.side, NAMESPACE, Made::WhenNeeded);
        Ok(Self(Arc::new(Inner { dynamo, options, side, ends: Mutex::default(), stamp: AtomicU64::new(0) })))
    }

    pub(crate) fn dynamo(&self) -> &Dynamo {
        &self.0.dynamo
    }
    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
    pub(crate) fn side(&self) -> &Side {
        &self.0.side
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            boundaries: false,
            untagged_conditions: false,
            indexed_types: false,
            untagged_reads: false,
            counted_positions: false,
            feed: cfg!(feature = "streams"),
            max_tags: 1,
            max_events: self.options().max_events(),
            max_body: self.options().max_body(),
            // The head holds a copy of them all.
            max_bytes: self.options().max_body(),
            snapshots: match self.options().kind {
                Kind::V5 { .. } => Snapshots::Newest,
                Kind::V3(_) => Snapshots::Single,
            },
            bodies: Bodies::Bytes,
        }
    }

    fn token(&self, stream: &StreamName, end: End) -> Token {
        token::seal(self.options().layout(), stream, end)
    }
    fn open_token(&self, token: &Token, stream: &StreamName) -> Result<End> {
        token::open(self.options().layout(), token, stream)
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<StreamName, End>> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn remembered(&self, stream: &StreamName) -> Option<End> {
        self.ends().get(stream).copied()
    }
    /// Only what was read, acknowledged or handed back; never what is in doubt.
    fn remember(&self, stream: &StreamName, end: End) {
        let mut ends = self.ends();
        if ends.len() >= REMEMBERED && !ends.contains_key(stream) {
            ends.clear();
        }
        let known = ends.entry(stream.clone()).or_default();
        if known.version <= end.version {
            *known = end;
        }
    }

    /// Above the clock and above every stamp of this instance, in microseconds. For people, and where positions are compared.
    fn new_stamp(&self) -> Result<u64> {
        self.dynamo().check_clock()?;
        let clock = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let last = self.0.stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(clock.max(last + 1))).unwrap_or(clock);
        Ok(clock.max(last + 1))
    }
}

#[async_trait]
impl StreamStore for EventStoreAdapter {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let op = self.dynamo().op();
        let loaded = self.load_stream(&op, stream, &options).await;
        report("load", &op);
        loaded
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = self.append_stream(&op, stream, &step).await.map_err(|error| error.of_repeat(step.repeats()).costing(op.units()));
        report("append", &op);
        committed.map(|committed| Committed { units: op.units(), ..committed })
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, stream, commit).await;
        report("committed", &op);
        Ok(Answer::new(found?, op.units()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_stream_lazily(stream, options)
    }
}
