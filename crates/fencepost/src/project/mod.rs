//! Following a feed: consumers with their handlers, projections with their states, and waiting for either.

mod attempt;
mod consumer;
mod lost;
mod names;
mod offload;
mod parked;
mod projection;
mod projections;
mod run;
mod share;
mod wait;
mod window;

pub use consumer::{Consumer, ConsumerStatus, Lag, OnFailure, PartitionStatus};
#[cfg(feature = "offload")]
pub use offload::{Objects, ObjectsCollected};
pub use parked::Parked;
pub use projection::Projection;
pub use projections::{Projected, ProjectionStatus, Projections};
pub use run::{Ended, Failed, Handed};
pub use wait::{Target, feed_reaches};
