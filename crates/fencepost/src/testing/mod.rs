//! Given, when, then for decisions; the conformance suite, the random-query oracle, and the connectors that inject faults. Unstable: it follows the store.

pub mod conformance;
pub mod oracle;
mod scenario;

#[cfg(feature = "dynamo")]
mod faults;
#[cfg(feature = "dynamo")]
mod lag;
#[cfg(feature = "dynamo")]
mod meter;
#[cfg(feature = "streams")]
mod reshard;
#[cfg(feature = "dynamo")]
mod wire;

#[cfg(feature = "dynamo")]
pub use faults::{Call, Chances, Fault, Faults, Gate, Keep, Rule, When};
#[cfg(feature = "dynamo")]
pub use lag::{Lag, Pending};
#[cfg(feature = "dynamo")]
pub use meter::{Meter, Place};
#[cfg(feature = "streams")]
pub use reshard::Reshard;
pub use scenario::{Given, Then, given};
