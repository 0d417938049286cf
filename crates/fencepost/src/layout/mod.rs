//! What a layout is: what a URL asks for, what an opened one offers, what looking after it tells. The only place that knows them all.

pub(crate) mod equinox;
pub(crate) mod ledger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::equinox::Equinox;
use self::ledger::Ledger;
use crate::dynamo::table::{Rights, TableSpec};
use crate::dynamo::{Dynamo, Op};
use crate::error::{Refused, Result};
use crate::log::{Capabilities, EventLog};
use crate::side::Side;
use crate::stream::StreamStore;
use crate::units::Units;
use crate::url::StoreUrl;

/// What a URL asks for: a layout with its tables and settings. Nothing is called yet.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    Ledger(ledger::Options),
    Equinox(equinox::Options),
}

impl Choice {
    pub(crate) fn of(url: &StoreUrl) -> Result<Choice> {
        match url.layout.as_str() {
            "ledger" => Ok(Choice::Ledger(ledger::Options::of(url)?)),
            "equinox" => Ok(Choice::Equinox(equinox::Options::of(url)?)),
            other => {
                let what = format!("layout={other}");
                Err(Refused::Unsupported { what, remedy: "this release has layout=ledger".into() }.into())
            }
        }
    }

    /// The tables that must be there. The side table of a peer's layout is not among them: it is made when first needed.
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        match self {
            Choice::Ledger(options) => options.specs(),
            Choice::Equinox(options) => options.specs(),
        }
    }
    /// What each role does to them, and to the side table.
    pub(crate) fn rights(&self) -> Vec<Rights> {
        match self {
            Choice::Ledger(options) => options.rights(),
            Choice::Equinox(options) => options.rights(),
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
        }
    }
    pub(crate) async fn open(self, dynamo: Dynamo) -> Result<Layout> {
        Ok(match self {
            Choice::Ledger(options) => Layout::Ledger(Ledger::open(dynamo, options).await?),
            Choice::Equinox(options) => Layout::Equinox(Equinox::open(dynamo, options)),
        })
    }
}

/// An opened layout. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Layout {
    Ledger(Ledger),
    Equinox(Equinox),
}

impl Layout {
    /// As URLs have it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Layout::Ledger(_) => "ledger",
            Layout::Equinox(_) => "equinox",
        }
    }
    /// With boundaries, where it can hold them.
    pub(crate) fn log(&self) -> Option<Arc<dyn EventLog>> {
        match self {
            Layout::Ledger(ledger) => Some(Arc::new(ledger.clone())),
            Layout::Equinox(_) => None,
        }
    }
    pub(crate) fn streams(&self) -> Arc<dyn StreamStore> {
        match self {
            Layout::Ledger(ledger) => Arc::new(ledger.clone()),
            Layout::Equinox(equinox) => Arc::new(equinox.clone()),
        }
    }
    /// Where checkpoints, states and cells are.
    pub(crate) fn side(&self) -> &Side {
        match self {
            Layout::Ledger(ledger) => ledger.side(),
            Layout::Equinox(equinox) => equinox.side(),
        }
    }
    pub(crate) fn capabilities(&self) -> Capabilities {
        match self {
            Layout::Ledger(ledger) => ledger.capabilities(),
            Layout::Equinox(equinox) => equinox.capabilities(),
        }
    }
    /// What it was opened with, for people.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        match self {
            Layout::Ledger(ledger) => ledger.settings().shown(),
            Layout::Equinox(equinox) => equinox.settings(),
        }
    }
    /// Commits and events, where they are counted without a scan.
    pub(crate) async fn counts(&self, op: &Op) -> Result<Option<(u64, u64)>> {
        match self {
            Layout::Ledger(ledger) => ledger.counts(op).await,
            Layout::Equinox(_) => Ok(None),
        }
    }
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        match self {
            Layout::Ledger(ledger) => ledger.verify(progress).await,
            Layout::Equinox(equinox) => equinox.verify(progress).await,
        }
    }
    pub(crate) async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        match self {
            Layout::Ledger(ledger) => ledger.collect_garbage(older_than).await,
            // It leaves none.
            Layout::Equinox(_) => Ok(Collected::default()),
        }
    }
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
