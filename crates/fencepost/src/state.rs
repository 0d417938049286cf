//! The contract of what changes beside the log: checkpoints of consumers and folded states, each by compare-and-set.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Refused, Result};
use crate::position::{Checkpoint, Token};

/// Which write of an item this is; a save holds it against the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// How far consumers have come.
#[async_trait]
pub trait Checkpoints: Debug + Send + Sync {
    /// Where this consumer is, and the revision to save against.
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>>;

    /// Moves it, if nobody else did since `expect` (none: if it has none yet). Returns none where somebody did: load again.
    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>>;
}

/// A folded state with the token it was folded at.
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    /// The state.
    pub body: Bytes,
    /// Stands behind all that was folded.
    pub token: Token,
}

impl Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("bytes", &self.body.len()).field("token", &self.token).finish()
    }
}

/// Folded states of decision models, each under the name of the fold and a key.
#[async_trait]
pub trait States: Debug + Send + Sync {
    /// The state under this name and key, and the revision to save against.
    async fn load(&self, name: &str, key: &str) -> Result<Option<(State, Revision)>>;

    /// Stores it, if nobody else did since `expect` (none: if there is none yet). Returns none where somebody did.
    async fn save(&self, name: &str, key: &str, state: &State, expect: Option<Revision>) -> Result<Option<Revision>>;
}

/// Names of snapshots, consumers and projections: `[A-Za-z0-9._-]{1,64}`.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        return Ok(());
    }
    Err(Refused::BadName { what, name: name.into(), rule: "1 to 64 of A-Z a-z 0-9 . _ -" }.into())
}

/// Keys of states: 1 to 1,024 bytes.
pub(crate) fn check_key(key: &str) -> Result<()> {
    match key.len() {
        0 => Err(Refused::Empty { what: "key" }.into()),
        bytes if bytes > 1024 => Err(Refused::TooLong { what: "key", bytes, limit: 1024 }.into()),
        _ => Ok(()),
    }
}
