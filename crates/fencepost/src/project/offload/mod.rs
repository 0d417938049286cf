//! States that outgrow an item, in object storage. Without the feature `offload` there is none, and nothing can be asked of it.

#[cfg(not(feature = "offload"))]
mod disabled;
#[cfg(feature = "offload")]
mod enabled;

#[cfg(not(feature = "offload"))]
pub(super) use disabled::Objects;
#[cfg(feature = "offload")]
pub use enabled::{Objects, ObjectsCollected};

use serde::{Deserialize, Serialize};

/// Where a state lies, and how to know that it is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectRef {
    /// Its key in the store.
    pub(super) key: String,
    /// Of the object as it lies there.
    pub(super) sha256: String,
    /// Likewise.
    pub(super) bytes: u64,
}

/// Whose state it is: names the object.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "offload"), allow(dead_code, reason = "nothing is named"))]
pub(super) struct Of<'a> {
    pub(super) projection: &'a str,
    pub(super) version: u32,
    pub(super) generation: u64,
}
