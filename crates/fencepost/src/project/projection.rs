//! A projection: a name, a version and a fold; and the cell that holds its state together with its checkpoint.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::offload::{ObjectRef, Objects, Of, Offload};
use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::event::Recorded;
use crate::position::{Checkpoint, Position};
use crate::query::Query;
use crate::state::{Cell, CellKey, CellKind, Cells, Revision, check_name};

type Fold<S> = Arc<dyn Fn(&mut S, &Recorded) -> Result<(), String> + Send + Sync>;

/// State folded from a feed, stored with its checkpoint: every event counts exactly once.
///
/// Another fold is another version: it is built beside the old one, and takes over when it has caught up.
pub struct Projection<S> {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) query: Query,
    pub(super) initial: Arc<dyn Fn() -> S + Send + Sync>,
    pub(super) apply: Fold<S>,
    pub(super) save_events: u64,
    pub(super) save_time: Duration,
    pub(super) lease: Duration,
    pub(super) if_lost: IfLost,
}

/// What becomes of a state whose object is missing or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfLost {
    /// Whoever runs it ends with the error.
    End,
    /// It is told, and the state built from the first event on.
    Rebuild,
}

impl<S> fmt::Debug for Projection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projection").field("name", &self.name).field("version", &self.version).finish_non_exhaustive()
    }
}

impl<S: Serialize + DeserializeOwned> Projection<S> {
    /// A name, a version from 1, the state before the first event, and what an event does to it. The state is stored as JSON.
    pub fn new<E: Display>(
        name: &str,
        version: u32,
        initial: impl Fn() -> S + Send + Sync + 'static,
        apply: impl Fn(&mut S, &Recorded) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Self> {
        check_name("projection", name)?;
        if version == 0 {
            return Err(Refused::Malformed { what: "version", why: "versions of projections count from 1".into() }.into());
        }
        Ok(Self {
            name: name.into(),
            version,
            query: Query::all(),
            initial: Arc::new(initial),
            apply: Arc::new(move |state, event| apply(state, event).map_err(|error| error.to_string())),
            save_events: 1000,
            save_time: Duration::from_secs(1),
            lease: Duration::from_secs(15),
            if_lost: IfLost::End,
        })
    }

    /// Only what matches. Another query is another fold: give it another version.
    pub fn query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }
    /// Saves after so many events, or so long: 1,000 and a second, if not said. Each save writes the whole state.
    pub fn save_every(mut self, events: u64, time: Duration) -> Self {
        (self.save_events, self.save_time) = (events.max(1), time);
        self
    }
    /// Within which an instance that dies is replaced by another: 15 s, if not said. One that is silent for three quarters of it loses its place.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length.max(Duration::from_millis(20));
        self
    }
    /// Where the object that holds the state is missing, or not as it was stored, whoever runs it says so (an error in `tracing`, and
    /// `fencepost_projection_states_lost_total`), and builds the state anew from the first event; it ends with the error, if not said. Until it
    /// has caught up readers get an error ([`crate::Reason::Late`]), never the part that is there. A place that is wrong looks the same: one
    /// who opens another bucket, or prefix, builds anew what is whole elsewhere.
    pub fn rebuild_if_lost(mut self) -> Self {
        self.if_lost = IfLost::Rebuild;
        self
    }
    /// How long an instance may be silent before another goes on in its place, which takes two looks besides, each an eighth of this.
    pub(super) fn silence(&self) -> Duration {
        self.lease * 3 / 4
    }
}

/// What a cell says of a state, before the state itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Counts the states that were stored and the resets: an object's name is never used for another.
    pub(super) generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<Checkpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<Position>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recorded_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) saved_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) query: Option<Query>,
    /// Events that count in it.
    #[serde(default)]
    pub(super) events: u64,
    /// It has once seen all that there was.
    #[serde(default)]
    pub(super) caught_up: bool,
    /// It was lost, and is built anew: nobody is given it before it has caught up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
    /// Bytes of the state.
    #[serde(default)]
    pub(super) bytes: u64,
    pub(super) state: Where,
}

/// Where the state lies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Where {
    /// There is none: it was reset, and is built anew by whoever runs it.
    #[default]
    Reset,
    /// There is none, and there shall be none: but for this cell, a writer from before could store its own.
    Deleted,
    /// Behind the header.
    Inline,
    /// In object storage.
    Object(ObjectRef),
}

/// A state as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) header: Header,
    pub(super) revision: Revision,
    inline: Bytes,
}

pub(super) fn state_key(name: &str, version: u32) -> Result<CellKey> {
    CellKey::new(CellKind::Projection, name, u64::from(version))
}
/// Which version is read: cell 0.
pub(super) fn pointer_key(name: &str) -> Result<CellKey> {
    CellKey::new(CellKind::Projection, name, 0)
}
/// Who works on a version: behind all versions.
pub(super) fn lease_key(name: &str, version: u32) -> Result<CellKey> {
    CellKey::new(CellKind::Projection, name, (1 << 32) + u64::from(version))
}

impl Stored {
    pub(super) fn read(key: &CellKey, cell: Cell) -> Result<Stored> {
        let corrupt = || Error::corrupt("cells", format!("{key}: not a projection's state"));
        let end = cell.body.iter().position(|byte| *byte == b'\n').ok_or_else(corrupt)?;
        let header = serde_json::from_slice(&cell.body[..end]).map_err(|_| corrupt())?;
        Ok(Stored { header, revision: cell.revision, inline: cell.body.slice(end + 1..) })
    }

    pub(super) async fn load(cells: &dyn Cells, name: &str, version: u32) -> Result<Option<Stored>> {
        let key = state_key(name, version)?;
        cells.load(&key).await?.map(|cell| Stored::read(&key, cell)).transpose()
    }

    /// The state's bytes, none where there is none; and as what it was stored. An object that is not there may have been superseded and
    /// collected since the cell was read: then the cell names another.
    pub(super) async fn whole(
        self,
        cells: &dyn Cells,
        objects: Option<&Objects>,
        (name, version): (&str, u32),
    ) -> Result<(Stored, Option<Bytes>)> {
        let mut stored = self;
        loop {
            let error = match stored.bytes(objects).await {
                Err(error @ Error::Corrupt(_)) => error,
                bytes => return Ok((stored, bytes?)),
            };
            match Stored::load(cells, name, version).await? {
                Some(now) if now.header.state != stored.header.state => stored = now,
                _ => return Err(error),
            }
        }
    }

    async fn bytes(&self, objects: Option<&Objects>) -> Result<Option<Bytes>> {
        match (&self.header.state, objects) {
            (Where::Reset | Where::Deleted, _) => Ok(None),
            (Where::Inline, _) => Ok(Some(self.inline.clone())),
            (Where::Object(object), Some(objects)) => Ok(Some(objects.get(object).await?)),
            (Where::Object(object), None) => {
                let what = format!("the state in object {}, without an object store", object.key);
                Err(Refused::Unsupported { what, remedy: "give Projections the store that it was written to, by offload".into() }.into())
            }
        }
    }
}

/// A cell's body.
pub(super) fn body(header: &Header, state: &[u8]) -> Bytes {
    // Plain fields: there is nothing to fail.
    let mut body = serde_json::to_vec(header).unwrap_or_default();
    body.push(b'\n');
    body.extend_from_slice(state);
    body.into()
}

/// Stores a state with its checkpoint: in the cell while it fits there, as the store measures it, else as an object that the cell names.
/// The new header and revision, or none where somebody else has written.
pub(super) async fn save(
    cells: &dyn Cells,
    (offload, env): (Option<&Offload>, &Env),
    (name, version): (&str, u32),
    mut header: Header,
    state: &[u8],
    expect: Option<Revision>,
) -> Result<Option<(Header, Revision)>> {
    let key = state_key(name, version)?;
    header.bytes = state.len() as u64;
    header.state = Where::Inline;
    let inline = cells.save(&key, &body(&header, state), expect).await;
    let too_long = match inline {
        Err(Error::Refused(Refused::TooLong { bytes, limit, .. })) => (bytes, limit),
        other => return Ok(other?.map(|revision| (header, revision))),
    };
    let Some(offload) = offload else {
        let what = format!("a state of {} bytes in one item, which holds {}", too_long.0, too_long.1);
        return Err(Refused::Unsupported { what, remedy: "give Projections an object store, by offload".into() }.into());
    };
    offload.claim(cells, env, name).await?;
    // One that is there under the name is not taken, though it be the same state: it is an orphan, which may be collected at any moment.
    let object = loop {
        match offload.objects.put(Of { projection: name, version, generation: header.generation }, state).await? {
            Some(object) => break object,
            None => header.generation += 1,
        }
    };
    header.state = Where::Object(object);
    let saved = cells.save(&key, &body(&header, &[]), expect).await?;
    Ok(saved.map(|revision| (header, revision)))
}
