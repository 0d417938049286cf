//! What a layout is: what a URL asks for, what an opened one offers, what looking after it tells. The only place that knows them all.

pub(crate) mod equinox;
pub(crate) mod event_store_adapter;
pub(crate) mod ledger;
pub(crate) mod reventless;
pub(crate) mod sekiban;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::equinox::Equinox;
use self::event_store_adapter::EventStoreAdapter;
use self::ledger::Ledger;
use self::reventless::Reventless;
use self::sekiban::Sekiban;
use crate::dynamo::table::{Format, Rights, TableSpec};
use crate::dynamo::{Dynamo, Op};
use crate::error::{Refused, Result};
use crate::event::StreamName;
use crate::log::{Capabilities, EventLog};
use crate::side::Side;
use crate::state::Cells;
use crate::stream::StreamStore;
use crate::units::Units;
use crate::url::StoreUrl;

/// What a URL asks for: a layout with its tables and settings. Nothing is called yet.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    Ledger(ledger::Options),
    Equinox(equinox::Options),
    EventStoreAdapter(event_store_adapter::Options),
    Reventless(reventless::Options),
    Sekiban(sekiban::Options),
}

impl Choice {
    pub(crate) fn of(url: &StoreUrl) -> Result<Choice> {
        match url.layout.as_str() {
            "ledger" => Ok(Choice::Ledger(ledger::Options::of(url)?)),
            "equinox" => Ok(Choice::Equinox(equinox::Options::of(url)?)),
            "event-store-adapter-v3" => Ok(Choice::EventStoreAdapter(event_store_adapter::Options::v3(url)?)),
            "event-store-adapter-v5" => Ok(Choice::EventStoreAdapter(event_store_adapter::Options::v5(url)?)),
            "reventless" => Ok(Choice::Reventless(reventless::Options::of(url)?)),
            "sekiban" => Ok(Choice::Sekiban(sekiban::Options::of(url)?)),
            other => {
                let what = format!("layout={other}");
                let remedy =
                    "this release has ledger, equinox, event-store-adapter-v3, event-store-adapter-v5, reventless and sekiban".into();
                Err(Refused::Unsupported { what, remedy }.into())
            }
        }
    }

    /// The tables that must be there. The side table of a peer's layout is not among them: it is made when first needed.
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        match self {
            Choice::Ledger(options) => options.specs(),
            Choice::Equinox(options) => options.specs(),
            Choice::EventStoreAdapter(options) => options.specs(),
            Choice::Reventless(options) => options.specs(),
            Choice::Sekiban(options) => options.specs(),
        }
    }
    /// What each role does to them, and to the side table.
    pub(crate) fn rights(&self) -> Vec<Rights> {
        match self {
            Choice::Ledger(options) => options.rights(),
            Choice::Equinox(options) => options.rights(),
            Choice::EventStoreAdapter(options) => options.rights(),
            Choice::Reventless(options) => options.rights(),
            Choice::Sekiban(options) => options.rights(),
        }
    }
    /// What belongs to the tables and is none, for other tools.
    pub(crate) fn print_besides(&self, format: Format) -> Option<String> {
        match self {
            Choice::Sekiban(options) => options.print_bucket(format),
            Choice::Ledger(_) | Choice::Equinox(_) | Choice::EventStoreAdapter(_) | Choice::Reventless(_) => None,
        }
    }
    /// Whether the tables can be made as they are asked for: said before any is.
    pub(crate) async fn may_create(&self, dynamo: &Dynamo) -> Result<()> {
        match self {
            Choice::Ledger(_) | Choice::Equinox(_) | Choice::EventStoreAdapter(_) | Choice::Sekiban(_) => Ok(()),
            Choice::Reventless(options) => Reventless::may_create(dynamo, options).await,
        }
    }
    /// Creates what is in the tables before any event. Each thing's name, and whether it was created now.
    pub(crate) async fn create(&self, dynamo: &Dynamo) -> Result<Vec<(String, bool)>> {
        match self {
            Choice::Ledger(options) => {
                let created = Ledger::create(dynamo, options).await?;
                Ok(vec![(format!("namespace {}", options.namespace), created)])
            }
            Choice::Equinox(_) => Ok(Vec::new()),
            Choice::EventStoreAdapter(options) => {
                let created = options.create(dynamo).await?;
                Ok(match options.kind {
                    event_store_adapter::Kind::V5 { .. } => vec![("configuration".into(), created)],
                    event_store_adapter::Kind::V3(_) => Vec::new(),
                })
            }
            Choice::Reventless(options) => {
                let created = Reventless::create(dynamo, options).await?;
                Ok(vec![(format!("settings of {}", options.table), created)])
            }
            Choice::Sekiban(_) => Ok(Vec::new()),
        }
    }
    pub(crate) async fn open(self, dynamo: Dynamo) -> Result<Layout> {
        Ok(match self {
            Choice::Ledger(options) => Layout::Ledger(Ledger::open(dynamo, options).await?),
            Choice::Equinox(options) => Layout::Equinox(Equinox::open(dynamo, options)),
            Choice::EventStoreAdapter(options) => Layout::EventStoreAdapter(EventStoreAdapter::open(dynamo, options).await?),
            Choice::Reventless(options) => Layout::Reventless(Reventless::open(dynamo, options).await?),
            Choice::Sekiban(options) => Layout::Sekiban(Sekiban::open(dynamo, options).await?),
        })
    }
}

/// An opened layout. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Layout {
    Ledger(Ledger),
    Equinox(Equinox),
    EventStoreAdapter(EventStoreAdapter),
    Reventless(Reventless),
    Sekiban(Sekiban),
}

impl Layout {
    /// As URLs have it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Layout::Ledger(_) => "ledger",
            Layout::Equinox(_) => "equinox",
            Layout::EventStoreAdapter(adapter) => adapter.options().layout(),
            Layout::Reventless(_) => "reventless",
            Layout::Sekiban(_) => sekiban::LAYOUT,
        }
    }
    /// With boundaries, where it can hold them.
    pub(crate) fn log(&self) -> Option<Arc<dyn EventLog>> {
        match self {
            Layout::Ledger(ledger) => Some(Arc::new(ledger.clone())),
            Layout::Equinox(_) => None,
            Layout::EventStoreAdapter(_) => None,
            Layout::Reventless(table) => Some(Arc::new(table.clone())),
            Layout::Sekiban(sekiban) => Some(Arc::new(sekiban.clone())),
        }
    }
    pub(crate) fn streams(&self) -> Arc<dyn StreamStore> {
        match self {
            Layout::Ledger(ledger) => Arc::new(ledger.clone()),
            Layout::Equinox(equinox) => Arc::new(equinox.clone()),
            Layout::EventStoreAdapter(adapter) => Arc::new(adapter.clone()),
            Layout::Reventless(table) => Arc::new(table.clone()),
            Layout::Sekiban(sekiban) => Arc::new(sekiban.clone()),
        }
    }
    /// Refuses the name of a stream that it cannot have, where that is told by the name alone.
    pub(crate) fn names(&self) -> fn(&StreamName) -> Result<()> {
        match self {
            Layout::Equinox(_) => equinox::check_written,
            Layout::Ledger(_) | Layout::EventStoreAdapter(_) | Layout::Reventless(_) | Layout::Sekiban(_) => |_| Ok(()),
        }
    }
    /// Where checkpoints, states and cells are.
    pub(crate) fn side(&self) -> &Side {
        match self {
            Layout::Ledger(ledger) => ledger.side(),
            Layout::Equinox(equinox) => equinox.side(),
            Layout::EventStoreAdapter(adapter) => adapter.side(),
            Layout::Reventless(table) => table.side(),
            Layout::Sekiban(sekiban) => sekiban.side(),
        }
    }
    /// Cells: beside the log, but for states that a layout has a place for.
    pub(crate) fn cells(&self) -> Arc<dyn Cells> {
        match self {
            Layout::Sekiban(sekiban) => Arc::new(sekiban::SekibanCells(sekiban.clone())),
            other => Arc::new(other.side().clone()),
        }
    }
    pub(crate) fn capabilities(&self) -> Capabilities {
        match self {
            Layout::Ledger(ledger) => ledger.capabilities(),
            Layout::Equinox(equinox) => equinox.capabilities(),
            Layout::EventStoreAdapter(adapter) => adapter.capabilities(),
            Layout::Reventless(table) => table.capabilities(),
            Layout::Sekiban(sekiban) => sekiban.capabilities(),
        }
    }
    /// What it was opened with, for people.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        match self {
            Layout::Ledger(ledger) => ledger.settings().shown(),
            Layout::Equinox(equinox) => equinox.settings(),
            Layout::EventStoreAdapter(adapter) => adapter.options().shown(),
            Layout::Reventless(table) => table.shown(),
            Layout::Sekiban(sekiban) => sekiban.settings(),
        }
    }
    /// Commits and events, where they are counted without a scan.
    pub(crate) async fn counts(&self, op: &Op) -> Result<Option<(u64, u64)>> {
        match self {
            Layout::Ledger(ledger) => ledger.counts(op).await,
            Layout::Equinox(_) => Ok(None),
            Layout::EventStoreAdapter(_) => Ok(None),
            Layout::Reventless(_) => Ok(None),
            Layout::Sekiban(_) => Ok(None),
        }
    }
    /// The tables that a verification reads whole.
    pub(crate) fn verified_tables(&self) -> Vec<&str> {
        match self {
            Layout::Ledger(ledger) => vec![ledger.table()],
            Layout::Equinox(equinox) => vec![equinox.table()],
            Layout::EventStoreAdapter(adapter) => adapter.options().verified_tables(),
            Layout::Reventless(table) => vec![table.table()],
            Layout::Sekiban(sekiban) => vec![&sekiban.options().events, &sekiban.options().tags],
        }
    }
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        match self {
            Layout::Ledger(ledger) => ledger.verify(progress).await,
            Layout::Equinox(equinox) => equinox.verify(progress).await,
            Layout::EventStoreAdapter(adapter) => adapter.verify(progress).await,
            Layout::Reventless(table) => table.verify(progress).await,
            Layout::Sekiban(sekiban) => sekiban.verify(progress, false).await,
        }
    }
    /// Verifies, and mends what can be derived from what is there.
    pub(crate) async fn repair(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        match self {
            Layout::Sekiban(sekiban) => sekiban.verify(progress, true).await,
            Layout::Ledger(_) | Layout::Equinox(_) | Layout::EventStoreAdapter(_) | Layout::Reventless(_) => Err(Refused::Unsupported {
                what: "a repair".into(),
                remedy: "nothing in this layout is derived from anything else: restore what is missing".into(),
            }
            .into()),
        }
    }
    pub(crate) async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        match self {
            Layout::Ledger(ledger) => ledger.collect_garbage(older_than).await,
            // It leaves none.
            Layout::Equinox(_) => Ok(Collected::default()),
            // Nothing is written before its commit.
            Layout::EventStoreAdapter(_) => Ok(Collected::default()),
            Layout::Reventless(_) => Ok(Collected::default()),
            Layout::Sekiban(sekiban) => sekiban.collect_garbage(older_than).await,
        }
    }
}

/// How far a look at everything has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Items read.
    pub items: u64,
    /// About how many there are, where the tables tell: they count every six hours or so.
    pub about: Option<u64>,
}

/// What [`crate::Store::verify`] found.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Verified {
    /// Items read.
    pub items: u64,
    /// Whole commits found.
    pub commits: u64,
    /// Their events.
    pub events: u64,
    /// What is wrong; nothing, if all is well.
    pub findings: Vec<Finding>,
    /// What it cost.
    pub units: Units,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The item.
    pub item: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What [`crate::Store::collect_garbage`] removed.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Collected {
    /// Sets of chunks that no commit had sealed.
    pub sets: u64,
    /// Their chunks, deleted.
    pub chunks: u64,
    /// Sets looked at.
    pub seen: u64,
    /// What it cost.
    pub units: Units,
}
