//! Decisions: models that compose, deciders over streams, and the loop that reads, decides, appends, and on a conflict decides again.

mod access;
mod boundary;
mod cache;
mod model;
mod outcome;
mod run;
mod stream;
mod turn;

#[cfg(feature = "dynamo")]
pub(crate) use boundary::decide_on;
pub use boundary::{Decision, Inline, decide, decision, look};
pub use cache::{Cache, CacheStats};
pub use model::{Boundary, Fold, Model, fold, fold_recorded};
pub use outcome::{Decided, Outcome};
pub use run::Deciding;
#[cfg(feature = "dynamo")]
pub(crate) use run::Options;
pub use stream::{Category, Decider};
