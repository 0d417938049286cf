//! An event store on Amazon DynamoDB: decide on past events, append new ones atomically, react to every one of them in order.
//!
//! One model, two ways to hold consistency: streams ([`StreamStore`]) and dynamic consistency boundaries over tags ([`EventLog`]).
//!
//! - [`open`] a [`Store`] by URL.
//! - Derive your events (`#[derive(Event)]`, [`DomainEvent`]), [`fold`] them into models, and take decisions on them: [`Store::decide`],
//!   [`decision`]; over streams with a [`Decider`] and its [`Category`]. Test them with `testing::given`.
//! - Follow the [`Feed`]: [`Consumer`], [`Projection`]; in `streams` mode run its [`Index`].
//! - Move everything elsewhere: [`moving`].
//! - Underneath: [`EventLog::source`], [`EventLog::append`] and their [`Token`]s.
//!
//! Reasons, limits, formats: [`_docs`].

#![forbid(unsafe_code)]

mod decide;
mod domain;
mod env;
mod error;
mod event;
mod feed;
mod log;
mod memory;
pub mod moving;
mod position;
mod project;
mod query;
mod state;
mod stream;
mod units;

#[cfg(feature = "dynamo")]
mod doctor;
#[cfg(feature = "dynamo")]
mod dynamo;
#[cfg(feature = "dynamo")]
mod layout;
#[cfg(feature = "dynamo")]
mod side;
#[cfg(feature = "dynamo")]
mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "dynamo")]
mod url;

pub use decide::{
    Boundary, Cache, CacheStats, Category, Decided, Decider, Deciding, Decision, Fold, Inline, Model, Outcome, decide, decision, fold,
    fold_recorded, look,
};
// A macro beside the struct `Event`: `use fencepost::Event` brings both.
#[cfg(feature = "derive")]
pub use fencepost_macros::Event;

#[cfg(feature = "msgpack")]
pub use domain::MessagePack;
pub use domain::{About, Codec, DomainEvent, IntoEvent, IntoEvents, Json, Kind, Unknown, Upcaster, about};
pub use env::Env;
pub use error::{Conflict, Corrupt, Error, InDoubt, Reason, Refused, Result, Unavailable};
pub use event::{CommitId, Event, EventType, MAX_BODY_BYTES, Metadata, Recorded, StreamName, Tag};
pub use feed::{Delivery, Feed, From};
pub use log::{
    After, Answer, Append, Bodies, Capabilities, Committed, Condition, Consistency, Direction, EventLog, EventLogExt, ReadOptions,
    Snapshots, Sourced,
};
pub use memory::Memory;
pub use position::{Base, Checkpoint, Position, Token};
pub use project::{
    Consumer, ConsumerStatus, Ended, Failed, Handed, Lag, OnFailure, Parked, PartitionStatus, Projected, Projection, ProjectionStatus,
    Projections, Target, feed_reaches,
};
#[cfg(feature = "offload")]
pub use project::{Objects, ObjectsCollected};
pub use query::{Query, QueryItem};
pub use state::{Cell, CellKey, CellKind, CellWrite, Cells, Checkpoints, Fenced, Lease, Revision, Standing, State, States, Watch};
pub use stream::{Expect, LoadOptions, Loaded, Origin, Snapshot, Step, StreamReadOptions, StreamStore, StreamStoreExt};
pub use units::Units;

#[cfg(feature = "dynamo")]
pub use doctor::{Check, Status};
#[cfg(feature = "dynamo")]
pub use dynamo::Timeouts;
#[cfg(feature = "embedded")]
pub use dynamo::embedded::Engine;
#[cfg(feature = "dynamo")]
pub use dynamo::table::{
    Billing, Created, Described, Difference, Format, IndexSpec, KeyKind, KeySpec, Projection as IndexProjection, Role, Scope, StreamChoice,
    StreamView, TableOptions,
};
#[cfg(all(feature = "streams", feature = "testing"))]
#[doc(hidden)]
pub use feed::index::Mutation as IndexMutation;
#[cfg(feature = "streams")]
pub use feed::index::{
    Index, IndexOptions, IndexProgress, IndexRebuilt, IndexStatus, IndexVerified, RebuildProgress, Ring, Rung, Served, ShardStatus, Unread,
    Until,
};
#[cfg(all(feature = "dynamo", feature = "testing"))]
#[doc(hidden)]
pub use layout::ledger::{HotPath, Mutation};
#[cfg(feature = "dynamo")]
pub use layout::{Collected, Finding, Verified, VerifyProgress};
#[cfg(feature = "dynamo")]
pub use store::{Builder, Stats, Store, TableStats, Tables, open};

/// What `layout=equinox` has beyond the contracts: [`Store::equinox`](crate::Store::equinox).
#[cfg(feature = "dynamo")]
pub mod equinox {
    pub use crate::layout::equinox::{Equinox, Pruned};
}

/// What `layout=sekiban` has beyond the contracts: [`Store::sekiban`](crate::Store::sekiban).
#[cfg(feature = "dynamo")]
pub mod sekiban {
    #[cfg(feature = "offload")]
    pub use crate::layout::sekiban::{Blobs, BlobsCollected};
    pub use crate::layout::sekiban::{
        Control, Folded, Payload, ProjectionHeartbeat, ProjectionRow, RowBody, RowWrite, Sekiban, Settings, SortableId, TagInfo, TagWrite,
        Unique, WriteOptions, Written, payload,
    };
}

// What the derive writes: no part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::domain::{Piece, TagValue, composed_tag, deserialize_variant, field_tag, serialize_variant, upcast};
    pub use serde;
}

/// The long documents: reasons, limits, other stores, formats.
pub mod _docs {
    #[doc = include_str!("../docs/design.md")]
    pub mod design {}
    #[doc = include_str!("../docs/limits.md")]
    pub mod limits {}
    #[doc = include_str!("../docs/compare.md")]
    pub mod compare {}
    #[doc = include_str!("../docs/layouts/ledger.md")]
    pub mod ledger {}
    #[doc = include_str!("../docs/layouts/equinox.md")]
    pub mod equinox {}
    #[doc = include_str!("../docs/layouts/event_store_adapter.md")]
    pub mod event_store_adapter {}
    #[doc = include_str!("../docs/layouts/reventless.md")]
    pub mod reventless {}
    #[doc = include_str!("../docs/layouts/sekiban.md")]
    pub mod sekiban {}
}

// The README and the guide, compiled as they stand; only in doctests, since they lie outside the package.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/src/ten-minutes.md")]
    mod ten_minutes {}
    #[doc = include_str!("../../../docs/src/tags.md")]
    mod tags {}
    #[doc = include_str!("../../../docs/src/streams-or-boundaries.md")]
    mod streams_or_boundaries {}
    #[doc = include_str!("../../../docs/src/decisions.md")]
    mod decisions {}
    #[doc = include_str!("../../../docs/src/evolving.md")]
    mod evolving {}
    #[doc = include_str!("../../../docs/src/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/src/reading.md")]
    mod reading {}
    #[doc = include_str!("../../../docs/src/costs.md")]
    mod costs {}
    #[doc = include_str!("../../../docs/src/production.md")]
    mod production {}
    #[doc = include_str!("../../../docs/src/moving.md")]
    mod moving {}
    #[doc = include_str!("../../../docs/src/following.md")]
    mod following {}
    #[doc = include_str!("../../../docs/src/errors.md")]
    mod errors {}
}
