//! Feeds: all events in an order that never loses one.

#[cfg(feature = "streams")]
pub(crate) mod index;
#[cfg(feature = "streams")]
pub(crate) mod indexed;
#[cfg(feature = "dynamo")]
pub(crate) mod lanes;

use std::fmt::Debug;
#[cfg(feature = "dynamo")]
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::error::Result;
use crate::event::Recorded;
#[cfg(feature = "dynamo")]
use crate::layout::Layout;
use crate::position::{Checkpoint, Position};
use crate::query::Query;
#[cfg(feature = "streams")]
use crate::side::chain::Indexable;

/// The feed of a layout, where it has one and what it needs is compiled in.
#[cfg(feature = "dynamo")]
pub(crate) fn of(layout: &Layout) -> Option<Arc<dyn Feed>> {
    match layout {
        Layout::Ledger(ledger) if ledger.settings().lanes().is_some() => Some(Arc::new(lanes::LaneFeed(ledger.clone()))),
        #[cfg(feature = "streams")]
        indexed => Some(Arc::new(indexed::IndexFeed(indexable(indexed)?))),
        #[cfg(not(feature = "streams"))]
        _ => None,
    }
}

/// What the index of a layout is built from, where its feed is one.
#[cfg(feature = "streams")]
pub(crate) fn indexable(layout: &Layout) -> Option<Arc<dyn Indexable>> {
    match layout {
        Layout::Ledger(ledger) if ledger.settings().lanes().is_some() => None,
        Layout::Ledger(ledger) => Some(Arc::new(ledger.clone())),
        Layout::Reventless(table) => Some(Arc::new(table.clone())),
    }
}

/// All events, in an order that never loses one: every event of a tag after those before it on the tag.
#[async_trait]
pub trait Feed: Debug + Send + Sync {
    /// From a place on: first what is there, then what comes. Never ends by itself; after an error, subscribe again from the last checkpoint.
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>>;

    /// Whether what stands at this position, acknowledged to its writer, is in the feed yet: a subscription that begins now delivers it
    /// before it says that it has caught up. Where the feed is read from the log itself, always; where it is an index, once that holds it.
    async fn shows(&self, position: Position) -> Result<bool>;
}

/// Where a subscription begins.
#[derive(Debug, Clone, Default)]
pub enum From {
    /// With the first event.
    #[default]
    Start,
    /// With what comes from now on.
    Now,
    /// Behind what this checkpoint covers.
    Checkpoint(Checkpoint),
}

/// What a feed hands over.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Delivery {
    /// An event, and the checkpoint that covers it and all before it.
    Event {
        /// The event.
        event: Box<Recorded>,
        /// Resume from here once the event is handled.
        checkpoint: Checkpoint,
    },
    /// Nothing more is there just now. The checkpoint also covers what the query passed over.
    CaughtUp {
        /// Resume from here.
        checkpoint: Checkpoint,
    },
}
