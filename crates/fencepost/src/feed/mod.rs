//! Feeds: all events in an order that never loses one.

#[cfg(feature = "streams")]
pub(crate) mod equinox;
#[cfg(feature = "streams")]
pub(crate) mod index;
#[cfg(feature = "streams")]
pub(crate) mod indexed;
#[cfg(feature = "dynamo")]
pub(crate) mod lanes;
#[cfg(feature = "dynamo")]
pub(crate) mod sekiban;

use std::fmt::Debug;
#[cfg(feature = "dynamo")]
use std::sync::Arc;
#[cfg(feature = "dynamo")]
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
#[cfg(feature = "dynamo")]
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

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
        Layout::Sekiban(sekiban) if !sekiban.is_indexed() => {
            Some(Arc::new(sekiban::AllEvents { sekiban: sekiban.clone(), of: sekiban::Of::Served }))
        }
        #[cfg(feature = "streams")]
        Layout::Equinox(store) => Some(Arc::new(equinox::Appends::new(store.clone()))),
        #[cfg(feature = "streams")]
        indexed => Some(Arc::new(indexed::IndexFeed::new(indexable(indexed)?))),
        #[cfg(not(feature = "streams"))]
        _ => None,
    }
}

/// Of a feed that is ordered by clocks, what nothing can come before any more; elsewhere the feed itself.
#[cfg(feature = "dynamo")]
pub(crate) fn safe_of(layout: &Layout) -> Option<Arc<dyn Feed>> {
    match layout {
        Layout::Sekiban(sekiban) if !sekiban.is_indexed() => {
            Some(Arc::new(sekiban::AllEvents { sekiban: sekiban.clone(), of: sekiban::Of::Safe }))
        }
        other => of(other),
    }
}

/// Whether the feed of a layout is an index that somebody has to build.
#[cfg(feature = "dynamo")]
pub(crate) fn is_indexed(layout: &Layout) -> bool {
    #[cfg(feature = "streams")]
    return indexable(layout).is_some() || matches!(layout, Layout::Equinox(_));
    // Without the feature there is no such feed.
    #[cfg(not(feature = "streams"))]
    return {
        let _ = layout;
        false
    };
}

/// What the index of a layout is built from, where its feed is one.
#[cfg(feature = "streams")]
pub(crate) fn indexable(layout: &Layout) -> Option<Arc<dyn Indexable>> {
    match layout {
        Layout::Ledger(ledger) if ledger.settings().lanes().is_some() => None,
        Layout::Ledger(ledger) => Some(Arc::new(ledger.clone())),
        // Its tables have an index of their own.
        Layout::Equinox(_) => None,
        Layout::EventStoreAdapter(adapter) => Some(Arc::new(adapter.clone())),
        Layout::Reventless(table) => Some(Arc::new(table.clone())),
        Layout::Sekiban(sekiban) if sekiban.is_indexed() => Some(Arc::new(sekiban.clone())),
        // Its feed is read from its own index of all events.
        Layout::Sekiban(_) => None,
    }
}

/// All events, in an order that never loses one: every event of a tag after those before it on the tag. In `layout=reventless` that holds of
/// tags that name partitions; over several partitions of one tag the order is that of coming.
#[async_trait]
pub trait Feed: Debug + Send + Sync {
    /// From a place on: first what is there, then what comes. Never ends by itself; after an error, subscribe again from the last checkpoint.
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>>;

    /// Whether what stands at this position, acknowledged to its writer, is in the feed yet: a subscription that begins now delivers it
    /// before it says that it has caught up. Where the feed is read from the log itself, always; where it is an index, once that holds it.
    async fn shows(&self, position: Position) -> Result<bool>;

    /// Since when the log has something that the feed does not show yet, as far as one look can tell. None: nothing, or that cannot be told,
    /// for want of rights to read the stream. Where the feed is read from the log itself, always none, and it costs nothing. Where it is an
    /// index, the stream is looked at that it is built from: three requests, and two for each shard, or four where nothing new is in it. No units
    /// but those of the index's last epoch.
    async fn unshown_since(&self) -> Result<Option<Timestamp>>;
}

/// Nothing new: asked again after this, twice as long each time …
#[cfg(feature = "dynamo")]
const SOON: Duration = Duration::from_millis(20);
/// … up to this. What is appended or indexed through the same instance rings at once.
#[cfg(feature = "dynamo")]
const IDLE: Duration = Duration::from_secs(1);

/// One subscription, as far as it has come.
#[cfg(feature = "dynamo")]
trait Subscription: Send + Sized + 'static {
    fn next(&mut self) -> impl Future<Output = Result<Delivery>> + Send;
}

/// A subscription from its beginning, which is looked for when it is first polled; it ends by an error alone.
#[cfg(feature = "dynamo")]
fn deliver<C: Subscription>(start: impl Future<Output = Result<C>> + Send + 'static) -> BoxStream<'static, Result<Delivery>> {
    let from = |cursor: C| {
        stream::try_unfold(cursor, |mut cursor| async move {
            let next = cursor.next().await?;
            Ok(Some((next, cursor)))
        })
    };
    stream::once(start).map_ok(from).try_flatten().boxed()
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
