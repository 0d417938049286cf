//! The table of Reventless' DcbEventLog: events by partition tag, and a fence for each tag that is moved with them.
//!
//! Normative: `docs/layouts/reventless.md`.

mod append;
mod check;
mod fence;
#[cfg(feature = "streams")]
mod index;
mod item;
mod json;
mod place;
mod plan;
mod position;
mod published;
mod read;
mod settings;
mod settle;
mod source;
mod streams;
mod tables;
mod token;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;

use self::fence::Fence;
use self::place::Cover;
pub(crate) use self::settings::{Partition, Settings};
use crate::dynamo::item::Item;
use crate::dynamo::table::{Rights, TableSpec};
use crate::dynamo::{Dynamo, Freshness, Outcome, Write, report};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{CommitId, Recorded};
use crate::log::{Answer, Append, Bodies, Capabilities, Committed, EventLog, ReadOptions, Snapshots, Sourced};
use crate::position::Token;
use crate::query::Query;
use crate::side::{Made, Side};
use crate::url::StoreUrl;

/// One event, its fence, and what else fits a transaction; each tag may need a pointer beside its fence.
const MAX_TAGS: usize = 50;
const MAX_EVENTS: usize = 99;
/// A body with what else its item holds stays below DynamoDB's 400 KB.
const MAX_BODY: usize = 380 * 1024;
/// Fences remembered; more, and it begins again.
const REMEMBERED: usize = 64 * 1024;
/// The side table's part.
const NAMESPACE: &str = "main";

/// How appends are fenced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fencing {
    /// By counters, read before the events.
    #[default]
    Counters,
    /// As the published page says, with its reads, positions and cache, for comparison. **Unsafe**: it loses conflicts.
    AsPublished,
}

/// How fresh decisions read what is read from the table itself. Fences are read strongly in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reads {
    #[default]
    Strong,
    /// Perhaps a moment old first, and strongly if that does not show all that the fence counts.
    Escalate,
    /// Perhaps a moment old, again and again until it shows all.
    Eventual,
}

impl FromStr for Reads {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "strong" => Ok(Reads::Strong),
            "escalate" => Ok(Reads::Escalate),
            "eventual" => Ok(Reads::Eventual),
            _ => Err(Refused::Url { why: format!("consistency={text}: expected strong, escalate or eventual") }.into()),
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Strong => "strong",
            Reads::Escalate => "escalate",
            Reads::Eventual => "eventual",
        })
    }
}

impl Reads {
    fn freshness(self, attempt: u32) -> Freshness {
        match self {
            Reads::Strong => Freshness::Strong,
            Reads::Escalate if attempt > 0 => Freshness::Strong,
            Reads::Escalate | Reads::Eventual => Freshness::Eventual,
        }
    }
}

/// What a table is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) table: String,
    pub(crate) side: String,
    /// None: as the table records it.
    pub(crate) partition: Option<Partition>,
    pub(crate) cross: Option<BTreeSet<String>>,
    pub(crate) reads: Reads,
    /// Whether reads without a tag are answered by a scan.
    pub(crate) scans: bool,
    pub(crate) fencing: Fencing,
}

impl Options {
    pub(crate) fn of(url: &StoreUrl) -> Result<Options> {
        url.only(&["partition", "cross", "side", "consistency", "untagged", "fencing"])?;
        let scans = match url.param("untagged") {
            None => false,
            Some("scan") => true,
            Some(other) => return Err(Refused::Url { why: format!("untagged={other}: expected scan") }.into()),
        };
        let fencing = match url.param("fencing") {
            None | Some("counters") => Fencing::Counters,
            Some("as-published") => Fencing::AsPublished,
            Some(other) => return Err(Refused::Url { why: format!("fencing={other}: expected counters or as-published") }.into()),
        };
        Ok(Options {
            table: url.table.clone(),
            side: url.named("side", "-side")?,
            partition: url.param("partition").map(str::parse).transpose()?,
            cross: url.param("cross").map(settings::cross).transpose()?,
            reads: url.param("consistency").map(str::parse).transpose()?.unwrap_or_default(),
            scans,
            fencing,
        })
    }

    fn declared(&self) -> Option<Settings> {
        Some(Settings { partition: self.partition.clone()?, cross: self.cross.clone().unwrap_or_default() })
    }
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        let declared = self.declared();
        vec![tables::spec(&self.table, declared.iter().flat_map(Settings::indexed))]
    }
    pub(crate) fn rights(&self) -> Vec<Rights> {
        tables::rights(&self.table, &self.side)
    }
}

/// An opened table. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reventless(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dynamo: Dynamo,
    options: Options,
    settings: Settings,
    side: Side,
    /// Fences as this instance last saw them: a hint, since an update that does not fit fails and tells.
    fences: Mutex<HashMap<Cover, Fence>>,
    stamp: AtomicU64,
    /// Whether the table records what it was declared with: a table of the peer's does from our first append on.
    recorded: AtomicBool,
    /// As published: boundaries whose last append was lost, which are read strongly next.
    escalated: Mutex<HashSet<Query>>,
}

impl Reventless {
    /// Before a table is made: a new one needs to be told what it is partitioned by.
    pub(crate) async fn may_create(dynamo: &Dynamo, options: &Options) -> Result<()> {
        if options.partition.is_some() {
            return Ok(());
        }
        match stored(dynamo, options).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(undeclared(options)),
            Err(Error::Unavailable(missing)) if missing.reason == Reason::Missing => Err(undeclared(options)),
            Err(error) => Err(error),
        }
    }

    /// Records in the table what it was declared with; whether that was done now. A differing one is refused.
    pub(crate) async fn create(dynamo: &Dynamo, options: &Options) -> Result<bool> {
        let op = dynamo.op();
        if let Some(declared) = options.declared() {
            let put = Write::PutNew { table: options.table.clone(), item: declared.item() };
            if let Outcome::Done = dynamo.write(&op, item::HASH, vec![put]).await? {
                return Ok(true);
            }
        }
        let found = stored(dynamo, options).await?.ok_or_else(|| undeclared(options))?;
        found.agree(options.partition.as_ref(), options.cross.as_ref())?;
        Ok(false)
    }

    /// Holds what was asked for against what the table records; a table of the peer's records nothing, and is told by the URL.
    pub(crate) async fn open(dynamo: Dynamo, options: Options) -> Result<Reventless> {
        let stored = stored(&dynamo, &options).await?;
        let recorded = AtomicBool::new(stored.is_some());
        let settings = match stored {
            Some(stored) => {
                stored.agree(options.partition.as_ref(), options.cross.as_ref())?;
                stored
            }
            None => options.declared().ok_or_else(|| undeclared(&options))?,
        };
        Ok(Reventless(Arc::new(Inner {
            side: Side::new(dynamo.clone(), &options.side, NAMESPACE, Made::WhenNeeded),
            dynamo,
            options,
            settings,
            fences: Mutex::default(),
            stamp: AtomicU64::new(0),
            recorded,
            escalated: Mutex::default(),
        })))
    }

    /// Before the first append to a table that records nothing: two processes that were told differently would not fence each other. No part
    /// of the append's cost, since it is made once for a table.
    async fn record(&self) -> Result<()> {
        if self.0.recorded.load(Ordering::Relaxed) {
            return Ok(());
        }
        let op = self.dynamo().op();
        let put = Write::PutNew { table: self.table().into(), item: self.settings().item() };
        if let Outcome::Failed { .. } = self.dynamo().write(&op, item::HASH, vec![put]).await?
            && let Some(found) = stored(self.dynamo(), &self.0.options).await?
        {
            found.agree(Some(&self.settings().partition), Some(&self.settings().cross))?;
        }
        report("record", &op);
        self.0.recorded.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn dynamo(&self) -> &Dynamo {
        &self.0.dynamo
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }
    pub(crate) fn side(&self) -> &Side {
        &self.0.side
    }
    pub(crate) fn table(&self) -> &str {
        &self.0.options.table
    }
    fn published(&self) -> bool {
        self.0.options.fencing == Fencing::AsPublished
    }

    fn remembered(&self, cover: &Cover) -> Option<Fence> {
        self.0.fences.lock().unwrap_or_else(PoisonError::into_inner).get(cover).cloned()
    }
    fn remember(&self, cover: &Cover, fence: Fence) {
        let mut fences = self.0.fences.lock().unwrap_or_else(PoisonError::into_inner);
        if fences.get(cover).is_some_and(|known| known.version > fence.version) {
            return;
        }
        if fences.len() >= REMEMBERED {
            fences.clear();
        }
        fences.insert(cover.clone(), fence);
    }

    /// Above all that it follows, above the clock, and above every stamp of this instance.
    fn new_stamp(&self, follows: u64) -> Result<u64> {
        self.dynamo().check_clock()?;
        let clock = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let at_least = clock.max(follows + 1);
        // A position's milliseconds have thirteen digits: one behind such a stamp would sort before it.
        if at_least >= 10_u64.pow(16) {
            return Err(Error::corrupt("reventless", "a position beyond the year 2286 stands on a fence: nothing can follow it"));
        }
        let last = self.0.stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(at_least.max(last + 1)));
        Ok(at_least.max(last.unwrap_or(0) + 1))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            boundaries: true,
            untagged_conditions: false,
            indexed_types: false,
            untagged_reads: self.0.options.scans,
            counted_positions: false,
            feed: cfg!(feature = "streams"),
            max_tags: MAX_TAGS,
            max_events: MAX_EVENTS,
            max_body: MAX_BODY,
            // Of a transaction's 4 MB; names and numbers take their part.
            max_bytes: 3 * 1024 * 1024,
            snapshots: Snapshots::Each,
            bodies: Bodies::Json,
        }
    }

    /// What it was opened with, for people.
    pub(crate) fn shown(&self) -> std::collections::BTreeMap<String, String> {
        let mut shown = self.settings().shown();
        shown.insert("consistency".into(), self.0.options.reads.to_string());
        if self.published() {
            shown.insert("fencing".into(), "as published: UNSAFE".into());
        }
        shown
    }
}

async fn stored(dynamo: &Dynamo, options: &Options) -> Result<Option<Settings>> {
    let found: Option<Item> = dynamo.get(&dynamo.op(), &options.table, Settings::key(), Freshness::Strong).await?;
    found.map(|item| Settings::of_item(&item)).transpose()
}

fn undeclared(options: &Options) -> Error {
    let why = format!(
        "table {} does not record what it is partitioned by: say &partition=KEY (and &cross=KEY,… for the keys that every carrier fences)",
        options.table
    );
    Refused::Url { why }.into()
}

#[async_trait]
impl EventLog for Reventless {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let op = self.dynamo().op();
        let sourced = match self.published() {
            true => self.source_as_published(&op, query, since).await,
            false => self.source_query(&op, query, since).await,
        };
        report("source", &op);
        sourced
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = match self.published() {
            true => self.append_as_published(&op, &append).await,
            false => self.append_commit(&op, &append, None).await.map(|(committed, _)| committed),
        };
        report("append", &op);
        committed.map_err(|error| error.of_repeat(append.repeats()).costing(op.units()))
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        let op = self.dynamo().op();
        let unchanged = match self.published() {
            true => self.unchanged_as_published(token),
            false => self.is_unchanged(&op, token).await,
        };
        report("unchanged", &op);
        Ok(Answer::new(unchanged?, op.units()))
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, commit).await;
        report("committed", &op);
        Ok(Answer::new(found?.map(|(committed, _)| committed), op.units()))
    }

    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_query(query.clone(), options)
    }
}
