//! What a layout is: what it offers, what looking after it tells, and its name.

pub(crate) mod ledger;

use std::sync::Arc;

use crate::feed::Feed;
use crate::log::{Capabilities, EventLog};
use crate::state::{Cells, Checkpoints, States};
use crate::stream::StreamStore;
use crate::units::Units;

/// What an opened layout offers, as contracts.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) streams: Arc<dyn StreamStore>,
    pub(crate) feed: Option<Arc<dyn Feed>>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) states: Arc<dyn States>,
    pub(crate) cells: Arc<dyn Cells>,
    pub(crate) capabilities: Capabilities,
}

/// The layouts, by the name that a URL gives them.
pub(crate) const NAMES: [&str; 6] = ["ledger", "equinox", "event-store-adapter-v3", "event-store-adapter-v5", "sekiban", "reventless"];

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
