//! The contract of what changes beside the log: checkpoints of consumers, folded states, and cells, each by compare-and-set.

mod lease;

pub(crate) use lease::seen;
pub use lease::{Fenced, Lease, Standing, Watch};

use std::fmt::{self, Debug};

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

/// What a cell is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CellKind {
    /// Who works on something, and how far it is: leases of consumers, of indexers.
    Lease,
    /// Events that a consumer could not handle, from number 1 on; in number 0, how many numbers were given out.
    Parked,
    /// States of projections, each with its checkpoint: a line of JSON about it, then the state. In the line, `state` is `reset` or `deleted`
    /// where there is none, `position` the last event that counts, `events` how many do.
    Projection,
    /// What there is: names of consumers, of projections.
    Names,
}

/// Where a cell lies: its kind, a name, and a number under the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey {
    kind: CellKind,
    name: String,
    number: u64,
}

impl CellKey {
    /// Checks the name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub fn new(kind: CellKind, name: &str, number: u64) -> Result<Self> {
        check_name("name", name)?;
        Ok(Self { kind, name: name.into(), number })
    }
    /// The same name, another number.
    pub fn at(&self, number: u64) -> Self {
        Self { number, ..self.clone() }
    }
    /// What it is for.
    pub fn kind(&self) -> CellKind {
        self.kind
    }
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The number.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}/{}", self.kind, self.name, self.number)
    }
}

/// A cell as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its number under the name.
    pub number: u64,
    /// What it holds.
    pub body: Bytes,
    /// Which write of it this is.
    pub revision: Revision,
}

impl Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("number", &self.number).field("bytes", &self.body.len()).field("revision", &self.revision).finish()
    }
}

/// One write of several that are done together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellWrite {
    /// Stores a cell, if nobody else did since `expect` (none: if there is none yet).
    Save {
        /// Where.
        key: CellKey,
        /// What.
        body: Bytes,
        /// What it must be.
        expect: Option<Revision>,
    },
    /// Removes a cell, if its revision is still this one.
    Delete {
        /// Where.
        key: CellKey,
        /// What it must be.
        expect: Revision,
    },
}

impl CellWrite {
    /// Where.
    pub fn key(&self) -> &CellKey {
        match self {
            CellWrite::Save { key, .. } | CellWrite::Delete { key, .. } => key,
        }
    }
    /// What its cell must be before it.
    pub fn expect(&self) -> Option<Revision> {
        match self {
            CellWrite::Save { expect, .. } => *expect,
            CellWrite::Delete { expect, .. } => Some(*expect),
        }
    }
}

/// Small values, each written only over the one that the writer knows. Leases, parked events and projections lie in them.
///
/// A revision counts the writes of a cell since it was created: who deletes a cell that may be created again, and fears a writer from
/// before, leaves an empty one in its place.
#[async_trait]
pub trait Cells: Debug + Send + Sync {
    /// The cell, strongly consistent; none where there is none.
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>>;

    /// Stores it, if nobody else did since `expect` (none: if there is none yet). Returns none where somebody did.
    /// A body too large for one cell is refused as [`Refused::TooLong`], and nothing is written.
    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>>;

    /// Removes it, if its revision is still this one; false where it is not.
    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool>;

    /// All of these writes or none, at one instant; false where one of them is not as expected, and nothing was written. Of leases and parked
    /// events, at most 100, each cell once: so nobody writes the one who does not hold the other.
    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool>;

    /// All cells under a kind and a name, by number, strongly consistent.
    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>>;
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
