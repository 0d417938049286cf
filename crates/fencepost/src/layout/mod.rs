//! What a layout is: the table of capabilities, and its names.

pub(crate) mod ledger;

use crate::feed::Feed;
use crate::log::EventLog;
use crate::state::{Checkpoints, States};
use crate::stream::StreamStore;
use std::sync::Arc;

/// What an opened layout offers, as contracts.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) streams: Arc<dyn StreamStore>,
    pub(crate) feed: Option<Arc<dyn Feed>>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) states: Arc<dyn States>,
    pub(crate) capabilities: Capabilities,
}

/// What a store can hold. What it cannot is refused, never ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Conditions over tags.
    pub boundaries: bool,
    /// Conditions and reads without a tag: all events, or types that are not indexed.
    pub untagged_conditions: bool,
    /// Reads without a tag, and the position of the newest event.
    pub untagged_reads: bool,
    /// Positions are 1, 2, 3 …, and serve as `after` of a condition.
    pub counted_positions: bool,
    /// A feed.
    pub feed: bool,
    /// How many distinct tags one append may carry.
    pub max_tags: usize,
}
