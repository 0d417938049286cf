//! States that outgrow an item, in object storage. Without the feature `offload` there is none, and nothing can be asked of it.

#[cfg(not(feature = "offload"))]
mod disabled;
#[cfg(feature = "offload")]
mod enabled;

#[cfg(not(feature = "offload"))]
pub(super) use disabled::Objects;
#[cfg(feature = "offload")]
pub use enabled::{Objects, ObjectsCollected};

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::names;
use crate::env::Env;
use crate::error::Result;
use crate::state::Cells;

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

/// Object storage as the projections over some cells use it: the folder of a projection is theirs alone.
#[derive(Debug, Clone)]
pub(super) struct Offload {
    pub(super) objects: Objects,
    /// Projections whose folder is known to be theirs.
    claimed: Arc<Mutex<BTreeSet<String>>>,
}

impl Offload {
    #[cfg(feature = "offload")]
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects, claimed: Arc::default() }
    }

    /// Sees to it that the projection's folder belongs to these cells; refused where it is another store's.
    pub(super) async fn claim(&self, cells: &dyn Cells, env: &Env, projection: &str) -> Result<()> {
        let claimed = || self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if !claimed().contains(projection) {
            self.objects.claim(projection, names::own(cells, env).await?).await?;
            claimed().insert(projection.into());
        }
        Ok(())
    }
}

/// Whose state it is: names the object.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "offload"), allow(dead_code, reason = "nothing is named"))]
pub(super) struct Of<'a> {
    pub(super) projection: &'a str,
    pub(super) version: u32,
    pub(super) generation: u64,
}
