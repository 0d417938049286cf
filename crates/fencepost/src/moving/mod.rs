//! Moving data between any two stores and out of one: `copy`, `export`, `import`, and the comparison behind a copy. For every layout, by
//! the contracts alone.
//!
//! **One commit of the source is one commit of the destination**, under an id made of the ids of its events (UUIDv5). So nothing has to be
//! remembered for a repeat to be harmless: whatever was written before answers with its first outcome, in whatever order and however the
//! rest was cut, and a crash between any two calls loses and doubles nothing. Larger batches would be fewer requests, but a batch is only
//! recognised if it is cut again as it was, and a feed over several lanes does not promise that.
//!
//! Which events are one commit is told by their positions where those carry the commit, else by the instant of recording: a store that
//! counts its events records one commit an instant. Commits of one instant, as of [`crate::Memory`] under a clock that stands, become one.
//!
//! Memory is bounded by the commits under way: at most [`IN_FLIGHT`] of them, and [`IN_FLIGHT_BYTES`] of bodies but for one commit alone.

mod compare;
mod copy;
mod files;
mod known;
mod lines;
mod others;
mod source;
mod target;
mod write;

use std::sync::Arc;

use crate::error::Result;
use crate::event::StreamName;
use crate::feed::Feed;
use crate::log::{Capabilities, EventLog};
use crate::state::Checkpoints;
use crate::stream::StreamStore;

pub use self::compare::{Compared, Difference, compare};
pub use self::copy::{Copied, Copy, Loss, Misfits, Plan};
pub use self::files::{Imported, Resume, export, import, resume_at};
pub use self::lines::{Line, Parsed, parse};
pub use self::source::Place;

/// Commits under way at once, where their order allows it.
pub const IN_FLIGHT: usize = 16;
/// Bytes of bodies and metadata under way at once, unless one commit alone has more.
pub const IN_FLIGHT_BYTES: usize = 16 * 1024 * 1024;

/// One of the two stores of a move, as contracts. Made of a [`crate::Store`] by `From`.
#[derive(Debug, Clone)]
pub struct Party {
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) streams: Option<Arc<dyn StreamStore>>,
    pub(crate) feed: Option<Arc<dyn Feed>>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) capabilities: Capabilities,
    /// Whether its feed is an index that somebody has to build.
    pub(crate) indexed: bool,
    /// Refuses the name of a stream that it cannot have.
    pub(crate) names: fn(&StreamName) -> Result<()>,
}

impl Party {
    /// A store that can hold this, and keeps checkpoints here.
    pub fn new(capabilities: Capabilities, checkpoints: Arc<dyn Checkpoints>) -> Self {
        Self { log: None, streams: None, feed: None, checkpoints, capabilities, indexed: false, names: |_| Ok(()) }
    }
    /// Its log: to be written to, and read where it has no feed.
    pub fn log(mut self, log: Arc<dyn EventLog>) -> Self {
        self.log = Some(log);
        self
    }
    /// Its streams: to be written to, where it has no log. An event's only tag is its stream then.
    pub fn streams(mut self, streams: Arc<dyn StreamStore>) -> Self {
        self.streams = Some(streams);
        self
    }
    /// Its feed.
    pub fn feed(mut self, feed: Arc<dyn Feed>) -> Self {
        self.feed = Some(feed);
        self
    }
}
