//! Sekiban.Dcb.DynamoDB: its three tables, read and written as it does, and a head beside each tag, so that a decision holds in the store.
//!
//! Normative: `docs/layouts/sekiban.md`.

mod all;
mod append;
mod blobs;
mod cells;
mod check;
mod chunked;
mod groups;
#[cfg(feature = "streams")]
mod index;
mod item;
mod listed;
mod ops;
mod plan;
mod read;
mod settings;
mod settle;
mod snapshot;
mod source;
mod stage;
mod states;
mod streams;
mod suid;
mod tables;
mod token;
mod unique;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use futures::stream::BoxStream;

pub(crate) use self::all::Sweep;
#[cfg(feature = "offload")]
pub use self::blobs::Blobs;
#[cfg(not(feature = "offload"))]
use self::blobs::Blobs;
pub(crate) use self::cells::SekibanCells;
pub use self::groups::TagInfo;
pub(crate) use self::item::Stored;
use self::item::{Head, Keys};
pub(crate) use self::listed::Listed;
pub use self::ops::{TagWrite, WriteOptions, Written};
pub(crate) use self::settings::Bucket;
pub use self::settings::Settings;
#[cfg(feature = "offload")]
pub use self::snapshot::BlobsCollected;
pub use self::snapshot::{Folded, Payload, payload};
pub use self::states::{Control, ProjectionHeartbeat, ProjectionRow, RowBody, RowWrite};
pub use self::suid::SortableId;
use self::suid::Ticks;
pub use self::unique::Unique;
use crate::dynamo::item::{Attributes, Item, number};
use crate::dynamo::table::{Format, Rights, TableSpec};
use crate::dynamo::{Dynamo, Find, Freshness, Op, Write, report};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{CommitId, Recorded, Tag};
use crate::log::{Answer, Append, Bodies, Capabilities, Committed, EventLog, ReadOptions, Snapshots, Sourced};
use crate::position::Token;
use crate::query::Query;
use crate::side::{Made, Side};
use crate::url::StoreUrl;

pub(crate) const LAYOUT: &str = "sekiban";
/// Events in one commit.
const MAX_EVENTS: usize = 5_000;
/// Bytes of all bodies in one commit.
const MAX_COMMIT_BYTES: usize = 64 * 1024 * 1024;
/// A body beside short names in an item.
const MAX_BODY: usize = crate::dynamo::ITEM_BYTES - 4 * 1024;
/// What a transaction holds beside the heads of a large commit: its record and its place in the list.
const BESIDE_HEADS: usize = 2;
/// More shards than this are not accepted.
const MAX_SHARDS: u32 = 256;
/// Shards looked into behind those that are read.
const PROBED: u32 = 4;
/// Heads remembered; beyond that all are forgotten, and read again when needed.
const REMEMBERED: usize = 64 * 1024;

/// What becomes of a write that does not fit in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Large {
    /// Staged, then published in one transaction.
    Staged,
    /// As Sekiban does: one transaction after the other, or none at all. Readers may see a part of it.
    Chunked,
}

/// Whether the tables remove what has expired by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Not as far as is known here.
    Off,
    /// By the published attribute `ttl`, of events and of their rows.
    On,
}

/// How the feed is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedMode {
    /// From the index of all events, what is young again until it is older than the safe window.
    Window,
    /// By an index in the side table, built from the stream of the events table.
    Streams,
}

/// What it is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) events: String,
    pub(crate) tags: String,
    pub(crate) states: String,
    pub(crate) side: String,
    pub(crate) keys: Keys,
    pub(crate) shards: u32,
    /// Events younger than this may still be joined by older ones.
    pub(crate) safe_window: Duration,
    pub(crate) feed: FeedMode,
    pub(crate) large: Large,
    pub(crate) expiry: Expiry,
    /// Of reads that decide nothing; decisions are always strong.
    pub(crate) fresh: Freshness,
    /// Read requests under way at once.
    pub(crate) reads: usize,
    pub(crate) batch_get: usize,
    pub(crate) batch_write: usize,
    pub(crate) transaction_items: usize,
    /// Rows of a tag, or events of the index, that are asked for at a time.
    pub(crate) page: i32,
    /// Whether a write without a transaction that fails is taken back, as far as Sekiban does.
    pub(crate) roll_back: bool,
    /// Envelopes larger than this go to the bucket, where there is one.
    pub(crate) threshold: usize,
    pub(crate) blobs: Option<Blobs>,
    /// As the settings name it, for rights and definitions.
    pub(crate) bucket: Option<Bucket>,
    /// The one region that writes to tables with replicas.
    pub(crate) writer_region: Option<String>,
}

impl Options {
    /// By the URL alone. Reads are strong then; as published, they are not.
    pub(crate) fn of(url: &StoreUrl) -> Result<Options> {
        Ok(Options { fresh: Freshness::Strong, ..Options::with(url, &Settings::default())? })
    }

    /// By the URL, and where it says nothing, by the settings.
    pub(crate) fn with(url: &StoreUrl, settings: &Settings) -> Result<Options> {
        url.only(&[
            "events",
            "tags",
            "states",
            "side",
            "service",
            "shards",
            "keys",
            "safe_window",
            "feed",
            "large",
            "ttl",
            "settings",
            "writer_region",
        ])?;
        let unknown = |name: &str, value: &str, expected: &str| Refused::Url { why: format!("{name}={value}: expected {expected}") };
        let keys = match (url.param("keys").unwrap_or("prefixed"), url.param("service")) {
            ("prefixed", service) => Keys::of_service(service.unwrap_or("default"))?,
            ("plain", None) => Keys::plain(),
            ("plain", Some(service)) => {
                return Err(unknown("service", service, "none beside keys=plain: those keys know no service").into());
            }
            (other, _) => return Err(unknown("keys", other, "prefixed or plain").into()),
        };
        let shards = match url.param("shards") {
            None => settings.shards().unwrap_or(1),
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=MAX_SHARDS).contains(n))
                .ok_or_else(|| unknown("shards", text, &format!("1 to {MAX_SHARDS}")))?,
        };
        let window = match url.param("safe_window") {
            None => 20_000,
            Some(text) => text.parse().map_err(|_| unknown("safe_window", text, "milliseconds"))?,
        };
        let feed = match url.param("feed").unwrap_or("window") {
            "window" => FeedMode::Window,
            "streams" => FeedMode::Streams,
            other => return Err(unknown("feed", other, "window or streams").into()),
        };
        let large = match url.param("large").unwrap_or("staged") {
            "staged" => Large::Staged,
            "chunked" => Large::Chunked,
            other => return Err(unknown("large", other, "staged or chunked").into()),
        };
        let expiry = match url.param("ttl").unwrap_or("off") {
            "off" => Expiry::Off,
            "on" => Expiry::On,
            other => return Err(unknown("ttl", other, "on or off").into()),
        };
        let named = |parameter: &str, suffix: &str, given: Option<&str>| match given.filter(|_| url.param(parameter).is_none()) {
            Some(name) => Ok(name.to_owned()),
            None => url.named(parameter, suffix),
        };
        Ok(Options {
            events: named("events", "Events", settings.events_table())?,
            tags: named("tags", "Tags", settings.tags_table())?,
            states: named("states", "ProjectionStates", settings.states_table())?,
            side: url.named("side", "-side")?,
            keys,
            shards,
            safe_window: Duration::from_millis(window),
            feed,
            large,
            expiry,
            fresh: if settings.consistent_reads() { Freshness::Strong } else { Freshness::Eventual },
            reads: settings.concurrent_reads(),
            batch_get: settings.batch_get(),
            batch_write: settings.batch_write(),
            transaction_items: settings.transaction_items(),
            page: settings.page(),
            roll_back: settings.rolls_back(),
            threshold: settings.offload_threshold(),
            blobs: blobs(settings)?,
            bucket: settings.bucket(),
            writer_region: url.param("writer_region").map(str::to_owned),
        })
    }
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        tables::specs(self)
    }
    pub(crate) fn rights(&self) -> Vec<Rights> {
        tables::rights(self)
    }
    pub(crate) fn print_bucket(&self, format: Format) -> Option<String> {
        tables::print_bucket(self, format)
    }
}

#[cfg(feature = "offload")]
fn blobs(settings: &Settings) -> Result<Option<Blobs>> {
    settings.bucket().as_ref().map(Blobs::open).transpose()
}
/// A build without object storage opens all the same: only what needs it is refused.
#[cfg(not(feature = "offload"))]
fn blobs(_: &Settings) -> Result<Option<Blobs>> {
    Ok(None)
}

/// Sekiban's tables, opened for one service: what they offer beyond a log and streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sekiban(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dynamo: Dynamo,
    options: Options,
    ticks: Ticks,
    heads: Mutex<HashMap<Tag, Head>>,
    /// Where the events of large commits on the list stand.
    places: Mutex<HashMap<CommitId, Arc<Vec<listed::Place>>>>,
    /// The largest number of shards that is known to be recorded.
    recorded: AtomicU32,
    /// Behind so many shards no other was found.
    probed: AtomicU32,
    side: Side,
    /// Tables known to have no replicas, or to be written from here alone.
    looked_at: Mutex<HashSet<String>>,
}

const SHARDS: &str = "n";

impl Sekiban {
    pub(crate) async fn open(dynamo: Dynamo, options: Options) -> Result<Sekiban> {
        let side = Side::new(dynamo.clone(), &options.side, options.keys.namespace(), Made::WhenNeeded);
        let (ticks, heads, places, looked_at) = (Ticks::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (recorded, probed) = (AtomicU32::new(1), AtomicU32::new(0));
        let inner = Inner { dynamo, options, ticks, heads, places, recorded, probed, side, looked_at };
        Ok(Sekiban(Arc::new(inner)))
    }

    pub(crate) fn dynamo(&self) -> &Dynamo {
        &self.0.dynamo
    }
    pub(crate) fn side(&self) -> &Side {
        &self.0.side
    }
    fn keys(&self) -> &Keys {
        &self.0.options.keys
    }
    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
    pub(crate) fn namespace(&self) -> &str {
        self.side().namespace()
    }
    pub(crate) fn safe_window(&self) -> Duration {
        self.0.options.safe_window
    }
    /// How old the place of a try may become before it is tried anew at another, and how far a clock may be off: a part of the window, so that
    /// what lands does so within it. None: there is no window to speak of.
    fn patience(&self) -> Option<Duration> {
        patience(self.safe_window())
    }
    /// Refuses to stamp with a clock whose ids a reader may have passed.
    fn check_clock(&self) -> Result<()> {
        self.dynamo().check_clock()?;
        let window = Some(self.safe_window()).filter(|_| !self.is_indexed());
        within(self.dynamo().clock_off(), window.and_then(patience))
    }
    /// Whether the feed is an index that somebody has to build.
    pub(crate) fn is_indexed(&self) -> bool {
        self.0.options.feed == FeedMode::Streams
    }
    /// For people.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        let options = self.options();
        let keys = if options.keys.is_plain() { "plain" } else { "prefixed" };
        let large = if options.large == Large::Staged { "staged" } else { "chunked" };
        let feed = if self.is_indexed() { "streams" } else { "window" };
        let expiry = if options.expiry == Expiry::On { "by ttl" } else { "off" };
        BTreeMap::from([
            ("service".into(), options.keys.service().into()),
            ("keys".into(), keys.into()),
            ("shards".into(), options.shards.to_string()),
            ("safe window".into(), format!("{} ms", options.safe_window.as_millis())),
            ("feed".into(), feed.into()),
            ("large writes".into(), large.into()),
            ("expiry".into(), expiry.into()),
        ])
    }

    fn saw(&self, id: SortableId) {
        self.0.ticks.saw(id);
    }

    fn heads(&self) -> MutexGuard<'_, HashMap<Tag, Head>> {
        self.0.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn remembered(&self, tag: &Tag) -> Option<Head> {
        self.heads().get(tag).copied()
    }
    /// Never back to an older one; one with a commit that is not finished is not remembered.
    fn remember(&self, tag: &Tag, head: Head) {
        self.saw(head.pos);
        let mut heads = self.heads();
        if heads.len() >= REMEMBERED {
            heads.clear();
        }
        let known = heads.entry(tag.clone()).or_insert(head);
        if (known.pos, known.cnt) <= (head.pos, head.cnt) {
            *known = head;
        }
    }

    /// How many shards there may be: the largest number recorded, or given here. Sekiban records none: where events of its lie in a shard behind those,
    /// that is told, instead of a read without them. Looked at once.
    pub(crate) async fn shards(&self, op: &Op) -> Result<u32> {
        let shards = self.shards_known(op).await?;
        if self.0.probed.load(Ordering::Relaxed) < shards {
            self.refuse_more_shards(op, shards).await?;
            self.0.probed.fetch_max(shards, Ordering::Relaxed);
        }
        Ok(shards)
    }

    async fn shards_known(&self, op: &Op) -> Result<u32> {
        let stored = self.side().get(op, self.side().key("x", "shards", "")).await?;
        let stored = stored.and_then(|item| item.number(SHARDS).ok()).and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        self.0.recorded.fetch_max(stored, Ordering::Relaxed);
        Ok(stored.max(self.options().shards))
    }

    /// Events spread over all shards: some of those behind the last that is read have one, if any do.
    async fn refuse_more_shards(&self, op: &Op, shards: u32) -> Result<()> {
        let first = if shards > 1 { shards } else { 0 };
        let probes = (first..first + PROBED).map(|shard| async move {
            let (items, _) = self.dynamo().page(op, &Find { limit: Some(1), ..self.all_of(Some(shard)) }, None).await?;
            Ok::<_, Error>((!items.is_empty()).then_some(shard))
        });
        match try_join_all(probes).await?.into_iter().flatten().next() {
            None => Ok(()),
            Some(shard) => Err(Refused::Unsupported {
                what: format!("reading {shards} of the shards of {}, with events in shard {shard}", self.options().events),
                remedy: "open with shards= and Sekiban's WriteShardCount, the largest that it was ever given".into(),
            }
            .into()),
        }
    }

    /// What must be so before the first event is written.
    async fn before_writing(&self, op: &Op) -> Result<()> {
        self.refuse_replicas(op, &self.options().events).await?;
        self.refuse_replicas(op, &self.options().tags).await?;
        self.record_shards(op).await
    }

    /// Conditions hold within one region, and replication writes over what another decided: a table with replicas is written by one region, which
    /// has to be named. Looked at once.
    async fn refuse_replicas(&self, op: &Op, table: &str) -> Result<()> {
        if self.looked_at().contains(table) {
            return Ok(());
        }
        let (here, replicas) = self.dynamo().replicas(op, table).await?;
        let writer = self.options().writer_region.as_deref();
        if !replicas.is_empty() && (writer.is_none() || writer != here.as_deref()) {
            let here = here.as_deref().unwrap_or("an unknown region");
            let what = format!("writing to table {table} from {here}, with replicas in {}", replicas.join(", "));
            let remedy = match writer {
                Some(writer) => format!("its writers are in {writer}, as writer_region= says: write there"),
                None => "name the one region that writes, by &writer_region=REGION, and write there alone".into(),
            };
            return Err(Refused::Unsupported { what, remedy }.into());
        }
        self.looked_at().insert(table.to_owned());
        Ok(())
    }
    /// Whoever reads finishes a large commit, but not from a region that may not write: there it is waited for.
    async fn may_finish(&self, op: &Op, commit: CommitId) -> Result<()> {
        for table in [&self.options().events, &self.options().tags] {
            match self.refuse_replicas(op, table).await {
                Err(Error::Refused(refused)) => {
                    let message =
                        format!("commit {commit} is not in rows yet, and not to be finished from here ({refused}): read again later");
                    return Err(Error::unavailable(Reason::Late, message));
                }
                looked => looked?,
            }
        }
        Ok(())
    }
    fn looked_at(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.looked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first event goes to a shard: so that nobody who opens with fewer misses it.
    async fn record_shards(&self, op: &Op) -> Result<()> {
        let wanted = self.options().shards;
        if self.0.recorded.load(Ordering::Relaxed) >= wanted {
            return Ok(());
        }
        let mut item = self.side().key("x", "shards", "");
        item.insert(SHARDS.into(), number(wanted.into()));
        let condition = format!("attribute_not_exists(#h) OR {SHARDS} < :n");
        let values = Item::from([(":n".into(), number(wanted.into()))]);
        // Where it fails, as many are recorded already.
        self.side().put(op, Write::PutIf { table: self.side().table().into(), item, condition, values }).await?;
        self.0.recorded.fetch_max(wanted, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            boundaries: true,
            untagged_conditions: false,
            // The index of all events is never strongly consistent.
            untagged_reads: false,
            counted_positions: false,
            feed: !self.is_indexed() || cfg!(feature = "streams"),
            max_tags: self.options().transaction_items.saturating_sub(BESIDE_HEADS),
            indexed_types: false,
            max_events: MAX_EVENTS,
            max_body: MAX_BODY,
            max_bytes: MAX_COMMIT_BYTES,
            snapshots: Snapshots::Each,
            bodies: Bodies::Text,
        }
    }
}

fn patience(window: Duration) -> Option<Duration> {
    (window >= Duration::from_secs(1)).then(|| window / 4)
}

/// Refuses a clock that is further off than this. The service tells whole seconds.
fn within(off: Option<Duration>, limit: Option<Duration>) -> Result<()> {
    let limit = limit.map(|limit| limit.max(Duration::from_secs(2)));
    match (off, limit) {
        (Some(off), Some(limit)) if off > limit => Err(Refused::Clock { off, limit }.into()),
        _ => Ok(()),
    }
}

#[async_trait]
impl EventLog for Sekiban {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let op = self.dynamo().op();
        let sourced = self.source_query(&op, query, since).await;
        report("source", &op);
        sourced
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = self.append_commit(&op, &append, None).await.map(|(committed, _)| committed);
        report("append", &op);
        committed.map_err(|error| error.costing(op.units()))
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
        Ok(Answer::new(found?.map(|(committed, _)| committed), op.units()))
    }

    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_query(query, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_a_part_of_the_window_off_is_refused() {
        let (seconds, published) = (Duration::from_secs, patience(Duration::from_secs(20)));
        assert_eq!(published, Some(seconds(5)));
        assert!(within(Some(seconds(5)), published).is_ok() && within(Some(seconds(6)), published).is_err());
        assert!(within(None, published).is_ok(), "nobody told the time");
        assert!(within(Some(seconds(2)), patience(seconds(2))).is_ok(), "whole seconds");
        assert!(within(Some(seconds(60)), patience(Duration::ZERO)).is_ok(), "no window to keep to");
    }
}
