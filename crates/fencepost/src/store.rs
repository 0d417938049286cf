//! A store, opened by URL: what an application holds.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::feed::Feed;
use crate::layout::Opened;
use crate::log::{Capabilities, EventLog};
use crate::state::{Checkpoints, States};
use crate::stream::StreamStore;
use crate::units::Units;

/// Opens a store by its URL: `memory:`, `file:orders.db`, `dynamodb://eu-west-1/orders`, `http://127.0.0.1:8000/orders`.
pub async fn open(url: &str) -> Result<Store> {
    Store::builder(url)?.open().await
}

/// A store: cheap to clone, clones share their connections and what they remember.
#[derive(Debug, Clone)]
pub struct Store(Opened);

/// A store that is not open yet: what the URL does not say, and its tables.
#[derive(Debug, Clone)]
pub struct Builder {}

impl Store {
    /// Understands the URL; nothing is called yet.
    pub fn builder(_url: &str) -> Result<Builder> {
        Ok(Builder {})
    }
    /// The log with boundaries. Refused on layouts that have streams only.
    pub fn log(&self) -> Result<Arc<dyn EventLog>> {
        Ok(self.0.log.clone().expect("stub"))
    }
    /// The streams.
    pub fn streams(&self) -> Arc<dyn StreamStore> {
        self.0.streams.clone()
    }
    /// The feed. Refused where the mode has none.
    pub fn feed(&self) -> Result<Arc<dyn Feed>> {
        Ok(self.0.feed.clone().expect("stub"))
    }
    /// Where consumers are.
    pub fn checkpoints(&self) -> Arc<dyn Checkpoints> {
        self.0.checkpoints.clone()
    }
    /// Folded states.
    pub fn states(&self) -> Arc<dyn States> {
        self.0.states.clone()
    }
    /// What this store can hold.
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }
    /// Reads the whole log and checks it: dense versions, every slot of each commit, chunks present.
    /// `progress` hears the number of items read so far.
    pub async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        let _ = progress;
        unimplemented!()
    }
    /// Deletes chunks that no commit names, of sets older than this.
    pub async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        let _ = older_than;
        unimplemented!()
    }
    /// What is in it.
    pub async fn stats(&self) -> Result<Stats> {
        unimplemented!()
    }
}

impl Builder {
    /// Creates missing tables and the namespace on opening. On for `memory:` and `file:`, else off: `init` is explicit.
    pub fn create(self, _create: bool) -> Self {
        self
    }
    /// Types that get a series of their own, declared when the namespace is created.
    pub fn index_types(self, _types: Vec<crate::event::EventType>) -> Self {
        self
    }
    /// Opens it.
    pub async fn open(self) -> Result<Store> {
        unimplemented!()
    }
}

/// What [`Store::verify`] found.
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

/// What [`Store::collect_garbage`] removed.
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

/// What is in a store.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The layout's name.
    pub layout: String,
    /// Its settings: namespace, feed, indexed types.
    pub settings: std::collections::BTreeMap<String, String>,
    /// Its tables.
    pub tables: Vec<TableStats>,
    /// Commits and events, where they are counted without a scan.
    pub commits: Option<u64>,
    /// Events, where counted.
    pub events: Option<u64>,
    /// What it cost.
    pub units: Units,
}

/// One table, as DescribeTable tells (item count and bytes are refreshed by DynamoDB every six hours or so).
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// Items, roughly.
    pub items: i64,
    /// Bytes, roughly.
    pub bytes: i64,
}
