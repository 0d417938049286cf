//! Sekiban.Dcb.DynamoDB: its three tables, read and written as it does, and a head beside each tag, so that a decision holds in the store.
//!
//! Normative: `docs/layouts/sekiban.md`.

mod append;
mod check;
mod chunked;
mod item;
mod ops;
mod plan;
mod read;
mod source;
mod stage;
mod states;
mod streams;
mod suid;
mod tables;
mod token;
mod unique;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

pub(crate) use self::item::Stored;
use self::item::{Head, Keys};
pub use self::ops::{TagInfo, TagWrite, WriteOptions, Written};
pub(crate) use self::read::Sweep;
pub use self::states::{Control, Payload, ProjectionHeartbeat, ProjectionRow, RowBody, RowWrite, payload};
pub use self::suid::SortableId;
use self::suid::Ticks;
pub use self::unique::Unique;
use crate::dynamo::item::{Attributes, Item, number};
use crate::dynamo::table::{Rights, TableSpec};
use crate::dynamo::{Dynamo, Op, Write, report};
use crate::error::{Refused, Result};
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
/// Heads that one transaction holds beside a large commit's record and its place in the list.
const MAX_TAGS: usize = crate::dynamo::TRANSACTION_ITEMS - 2;
/// More shards than this are not accepted.
const MAX_SHARDS: u32 = 256;
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
    pub(crate) large: Large,
}

impl Options {
    pub(crate) fn of(url: &StoreUrl) -> Result<Options> {
        url.only(&["events", "tags", "states", "side", "service", "shards", "keys", "safe_window", "large"])?;
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
            None => 1,
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
        let large = match url.param("large").unwrap_or("staged") {
            "staged" => Large::Staged,
            "chunked" => Large::Chunked,
            other => return Err(unknown("large", other, "staged or chunked").into()),
        };
        Ok(Options {
            events: url.named("events", "Events")?,
            tags: url.named("tags", "Tags")?,
            states: url.named("states", "ProjectionStates")?,
            side: url.named("side", "-side")?,
            keys,
            shards,
            safe_window: Duration::from_millis(window),
            large,
        })
    }
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        tables::specs(self)
    }
    pub(crate) fn rights(&self) -> Vec<Rights> {
        tables::rights(self)
    }
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
    /// The largest number of shards that is known to be recorded.
    recorded: AtomicU32,
    side: Side,
}

const SHARDS: &str = "n";

impl Sekiban {
    pub(crate) async fn open(dynamo: Dynamo, options: Options) -> Result<Sekiban> {
        // Plain keys know no service; a dot is in no service's name.
        let namespace = if options.keys.is_plain() { "plain." } else { options.keys.service() };
        let side = Side::new(dynamo.clone(), &options.side, namespace, Made::WhenNeeded);
        let inner = Inner { dynamo, options, ticks: Ticks::default(), heads: Mutex::default(), recorded: AtomicU32::new(1), side };
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
    fn options(&self) -> &Options {
        &self.0.options
    }
    pub(crate) fn namespace(&self) -> &str {
        self.side().namespace()
    }
    pub(crate) fn safe_window(&self) -> Duration {
        self.0.options.safe_window
    }
    /// For people.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        let options = self.options();
        let keys = if options.keys.is_plain() { "plain" } else { "prefixed" };
        let large = if options.large == Large::Staged { "staged" } else { "chunked" };
        BTreeMap::from([
            ("service".into(), options.keys.service().into()),
            ("keys".into(), keys.into()),
            ("shards".into(), options.shards.to_string()),
            ("safe window".into(), format!("{} ms", options.safe_window.as_millis())),
            ("large writes".into(), large.into()),
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
        if known.pos <= head.pos {
            *known = head;
        }
    }

    /// How many shards there may be: the largest number recorded, or given here.
    pub(crate) async fn shards(&self, op: &Op) -> Result<u32> {
        let stored = self.side().get(op, self.side().key("x", "shards", "")).await?;
        let stored = stored.and_then(|item| item.number(SHARDS).ok()).and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        self.0.recorded.fetch_max(stored, Ordering::Relaxed);
        Ok(stored.max(self.options().shards))
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
            feed: true,
            max_tags: MAX_TAGS,
            indexed_types: false,
            max_events: MAX_EVENTS,
            max_body: MAX_BODY,
            max_bytes: MAX_COMMIT_BYTES,
            snapshots: Snapshots::Each,
            bodies: Bodies::Text,
        }
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
