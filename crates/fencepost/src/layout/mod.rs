//! What a layout is: the table of capabilities, and its names.

use crate::feed::Feed;
use crate::log::{Capabilities, EventLog};
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
