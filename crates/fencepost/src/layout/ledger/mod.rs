//! The ledger: our own layout. Every item of the log is put once and never changed; a missing item is the fence.
//!
//! Normative: `docs/layouts/ledger.md`.

mod append;
mod check;
mod chunk;
mod ends;
#[cfg(feature = "testing")]
mod hot;
#[cfg(feature = "streams")]
mod index;
pub(crate) mod item;
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "only tests break the protocol"))]
mod mutation;
#[cfg(feature = "streams")]
mod notice;
mod plan;
mod read;
mod resolve;
pub(crate) mod series;
mod settings;
mod settle;
mod snapshot;
mod source;
mod streams;
mod tables;
pub(crate) mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::{Mutex, MutexGuard, watch};

use self::ends::Ends;
#[cfg(feature = "testing")]
pub use self::hot::HotPath;
#[cfg(feature = "testing")]
pub use self::mutation::Mutation;
#[cfg(not(feature = "testing"))]
use self::mutation::Mutation;
pub(crate) use self::read::Page;
use self::series::{End, Series};
use self::settings::check_namespace;
pub(crate) use self::settings::{FeedMode, Settings};
use self::token::Began;
use crate::dynamo::table::{Rights, TableSpec};
use crate::dynamo::{Dynamo, Freshness, Op, Outcome, Write, report};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{CommitId, EventType, MAX_BODY_BYTES, Recorded};
use crate::log::{Answer, Append, Bodies, Capabilities, Committed, EventLog, ReadOptions, Snapshots, Sourced};
use crate::position::Token;
use crate::query::Query;
use crate::side::{Made, Side};
use crate::url::StoreUrl;

/// Events in one commit.
pub(crate) const MAX_EVENTS: usize = 100_000;
/// Bytes of all bodies in one commit.
pub(crate) const MAX_COMMIT_BYTES: usize = 64 * 1024 * 1024;
/// How long an append waits for its turn on the lane before it races.
const PATIENCE: Duration = Duration::from_secs(1);
/// Series that untagged commits are spread over, in streams mode.
const UNTAGGED: u64 = 16;

/// What a ledger is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) table: String,
    pub(crate) side: String,
    pub(crate) namespace: String,
    /// None: as the namespace was created, or one lane for a new one.
    pub(crate) feed: Option<FeedMode>,
    /// None: as the namespace was created.
    pub(crate) types: Option<Vec<EventType>>,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only tests break the protocol"))]
    pub(crate) mutation: Option<Mutation>,
    /// None: an instance chooses its lane.
    pub(crate) lane: Option<u8>,
}

impl Options {
    pub(crate) fn of(url: &StoreUrl) -> Result<Options> {
        url.only(&["namespace", "feed", "side"])?;
        let namespace = url.param("namespace").unwrap_or("main").to_owned();
        check_namespace(&namespace)?;
        let feed = url.param("feed").map(str::parse).transpose()?;
        Ok(Options {
            table: url.table.clone(),
            side: url.named("side", "-side")?,
            namespace,
            feed,
            types: None,
            mutation: None,
            lane: None,
        })
    }
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        tables::specs(&self.table, &self.side, self.feed == Some(FeedMode::Streams))
    }
    pub(crate) fn rights(&self) -> Vec<Rights> {
        tables::rights(&self.table, &self.side)
    }
}

/// An opened namespace. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dynamo: Dynamo,
    options: Options,
    settings: Settings,
    ends: Ends,
    /// The lane and the untagged series that this instance keeps to.
    lane: u8,
    untagged: u8,
    turn: Mutex<()>,
    stamp: AtomicU64,
    side: Side,
}

impl Ledger {
    /// Reads the namespace's settings, and holds what was asked for against them.
    pub(crate) async fn open(dynamo: Dynamo, options: Options) -> Result<Ledger> {
        let op = dynamo.op();
        let stored = dynamo.get(&op, &options.table, Settings::key(&options.namespace), Freshness::Strong).await?;
        let Some(stored) = stored else {
            let message = format!("namespace {} in table {}: create it with `fencepost init`", options.namespace, options.table);
            return Err(Error::unavailable(Reason::Missing, message));
        };
        let settings = Settings::of_item(&options.namespace, &stored)?;
        agree(&options, &settings)?;
        let env = dynamo.env();
        let lane = settings.lanes().map_or(0, |lanes| env.below(u64::from(lanes)));
        let untagged = env.below(UNTAGGED);
        Ok(Ledger(Arc::new(Inner {
            lane: options.lane.unwrap_or(u8::try_from(lane).unwrap_or(0)),
            untagged: u8::try_from(untagged).unwrap_or(0),
            side: Side::new(dynamo.clone(), &options.side, &options.namespace, Made::WithTheLog),
            dynamo,
            options,
            settings,
            ends: Ends::new(),
            turn: Mutex::new(()),
            stamp: AtomicU64::new(0),
        })))
    }

    /// Creates the namespace if it is not there; whether it was created now. A differing one is refused.
    pub(crate) async fn create(dynamo: &Dynamo, options: &Options) -> Result<bool> {
        let settings = Settings {
            namespace: options.namespace.clone(),
            feed: options.feed.unwrap_or(FeedMode::Lanes(1)),
            types: options.types.iter().flatten().cloned().collect(),
            incarnation: 0,
        };
        let op = dynamo.op();
        let put = Write::PutNew { table: options.table.clone(), item: settings.item() };
        match dynamo.write(&op, item::HASH, vec![put]).await? {
            Outcome::Done => Ok(true),
            Outcome::Failed { .. } => {
                let stored = dynamo.get(&op, &options.table, Settings::key(&options.namespace), Freshness::Strong).await?;
                let stored = stored.ok_or_else(|| Error::unavailable(Reason::Missing, "the namespace went away"))?;
                agree(options, &Settings::of_item(&options.namespace, &stored)?)?;
                Ok(false)
            }
        }
    }

    pub(crate) fn dynamo(&self) -> &Dynamo {
        &self.0.dynamo
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }
    pub(crate) fn namespace(&self) -> &str {
        &self.0.settings.namespace
    }
    pub(crate) fn table(&self) -> &str {
        &self.0.options.table
    }
    pub(crate) fn side(&self) -> &Side {
        &self.0.side
    }

    /// Rings whenever something was appended through this instance; others' appends do not ring.
    pub(crate) fn appended(&self) -> watch::Receiver<()> {
        self.side().rings()
    }
    fn announce(&self) {
        self.side().ring();
    }

    fn remembered(&self, series: &Series) -> Option<End> {
        self.0.ends.get(series)
    }
    /// Only what was read, acknowledged or handed back; never what is in doubt.
    fn remember(&self, series: &Series, end: End) {
        self.0.ends.raise(series, end);
    }

    /// A repeat keeps to the lane or untagged series of its base.
    fn keeps_to(&self, began: Option<&Began>) -> (u8, u8) {
        match began.map(|began| &began.series) {
            Some(Series::Lane(lane)) => (*lane, self.0.untagged),
            Some(Series::Untagged(number)) => (self.0.lane, *number),
            _ => (self.0.lane, self.0.untagged),
        }
    }
    async fn lane_turn(&self, op: &Op, lane: u8) -> Result<Option<MutexGuard<'_, ()>>> {
        // Another lane, of a repeat: nobody here writes to it.
        if lane != self.0.lane {
            return Ok(None);
        }
        // The turn is a courtesy: the slot decides. One who holds it and is not polled any more must not hold up the others for long.
        Ok(tokio::time::timeout(op.left(PATIENCE), self.0.turn.lock()).await.ok())
    }

    /// Above all that it follows, above the clock, and above every stamp of this instance. For people and for merging.
    fn new_stamp(&self, follows: u64) -> Result<u64> {
        self.dynamo().check_clock()?;
        let clock = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let next = |last: u64| 1 + follows.max(clock).max(last);
        let last = self.0.stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Ok(next(last.unwrap_or_else(|last| last)))
    }

    #[cfg(feature = "testing")]
    fn mutated(&self, mutation: Mutation) -> bool {
        self.0.options.mutation == Some(mutation)
    }
    #[cfg(not(feature = "testing"))]
    fn mutated(&self, _: Mutation) -> bool {
        false
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let lanes = self.settings().lanes().is_some();
        Capabilities {
            boundaries: true,
            untagged_conditions: lanes,
            indexed_types: true,
            untagged_reads: lanes,
            counted_positions: self.settings().counted(),
            feed: lanes || cfg!(feature = "streams"),
            // One item of a transaction is the lane's.
            max_tags: if lanes { 99 } else { 100 },
            max_events: MAX_EVENTS,
            max_body: MAX_BODY_BYTES,
            max_bytes: MAX_COMMIT_BYTES,
            snapshots: Snapshots::Each,
            bodies: Bodies::Bytes,
        }
    }
}

fn agree(options: &Options, stored: &Settings) -> Result<()> {
    if let Some(feed) = options.feed
        && feed != stored.feed
    {
        return Err(Refused::Differs { what: "feed", given: feed.to_string(), stored: stored.feed.to_string() }.into());
    }
    if let Some(types) = &options.types
        && types.iter().cloned().collect::<std::collections::BTreeSet<_>>() != stored.types
    {
        return Err(
            Refused::Differs { what: "list of indexed types", given: format!("{types:?}"), stored: format!("{:?}", stored.types) }.into()
        );
    }
    Ok(())
}

#[async_trait]
impl EventLog for Ledger {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let op = self.dynamo().op();
        let sourced = self.source_query(&op, query, since).await;
        report("source", &op);
        sourced
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = self.append_commit(&op, &append, None).await.map(|done| done.committed);
        report("append", &op);
        committed.map_err(|error| error.of_repeat(append.repeats()).costing(op.units()))
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        let op = self.dynamo().op();
        let unchanged = self.is_unchanged(&op, token).await;
        report("unchanged", &op);
        Ok(Answer::new(unchanged?, op.units()))
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, commit, None).await;
        report("committed", &op);
        Ok(Answer::new(found?, op.units()))
    }

    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_query(query, options)
    }
}
