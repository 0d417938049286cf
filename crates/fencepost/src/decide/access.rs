//! How the state of a stream is kept beside its events, or in their place, and found again.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Refused, Result};
use crate::event::Event;
use crate::state::check_name;
use crate::stream::{LoadOptions, Snapshot, Step};

/// Where a load begins, and what an append leaves.
pub(super) enum Access<S> {
    /// All events, and nothing else.
    Events,
    /// The last event says it all.
    Latest,
    /// From a snapshot that is written whenever the stream has grown by so many events.
    Snapshot(Kept<S>, u64),
    /// From several snapshots that every append writes.
    Several(Kept<S>),
    /// No events are kept: the state alone.
    Rolling(Kept<S>),
    /// What is kept of events and state is for the caller to say.
    Custom(Kept<S>, Transmute<S>),
}

pub(super) type Transmute<S> = Arc<dyn Fn(Vec<Event>, &S) -> (Vec<Event>, Vec<Snapshot>) + Send + Sync>;

type Reads<S> = Arc<dyn Fn(&[Snapshot]) -> Option<S> + Send + Sync>;
type Writes<S> = Arc<dyn Fn(&S) -> Result<Vec<Snapshot>> + Send + Sync>;

/// Snapshots of a state, to and from.
pub(super) struct Kept<S> {
    names: Vec<String>,
    read: Reads<S>,
    write: Writes<S>,
}

impl<S: Serialize + DeserializeOwned + 'static> Kept<S> {
    /// One, as JSON, of this name.
    pub(super) fn json(name: String) -> Self {
        let (own, written) = (name.clone(), name.clone());
        let encode = move |state: &S| {
            let why = || format!("the state of {} does not serialise to JSON", std::any::type_name::<S>());
            let bytes = serde_json::to_vec(state).map_err(|_| Refused::Malformed { what: "snapshot", why: why() })?;
            Ok(vec![Snapshot::new(written.clone(), bytes)])
        };
        let decode = move |found: &[Snapshot]| {
            let own = found.iter().find(|snapshot| snapshot.name == own)?;
            serde_json::from_slice(&own.state).ok()
        };
        Self { names: vec![name], read: Arc::new(decode), write: Arc::new(encode) }
    }
}

impl<S> Kept<S> {
    pub(super) fn of(
        names: Vec<String>,
        read: impl Fn(&[Snapshot]) -> Option<S> + Send + Sync + 'static,
        write: impl Fn(&S) -> Vec<Snapshot> + Send + Sync + 'static,
    ) -> Self {
        Self { names, read: Arc::new(read), write: Arc::new(move |state| Ok(write(state))) }
    }
}

/// What snapshots told.
pub(super) enum Found<S> {
    State(S),
    /// There were none.
    Nothing,
    /// They cannot be read, and the events say the same.
    Unread,
}

impl<S> Access<S> {
    fn kept(&self) -> Option<&Kept<S>> {
        match self {
            Access::Events | Access::Latest => None,
            Access::Snapshot(kept, _) | Access::Several(kept) | Access::Rolling(kept) | Access::Custom(kept, _) => Some(kept),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.kept().into_iter().flat_map(|kept| &kept.names).try_for_each(|name| check_name("snapshot name", name))
    }

    /// Whether the state is in the snapshots, and not in events.
    fn is_in_snapshots(&self) -> bool {
        matches!(self, Access::Rolling(_) | Access::Custom(..))
    }

    /// What a first load asks for.
    pub(super) fn load(&self, options: LoadOptions) -> LoadOptions {
        match self {
            Access::Latest => options.latest(),
            _ => self.kept().map_or(options.clone(), |kept| options.snapshot(&kept.names)),
        }
    }
    /// What a later load asks for besides what came since.
    pub(super) fn reload(&self, options: LoadOptions) -> LoadOptions {
        if self.is_in_snapshots() { self.load(options) } else { options }
    }

    pub(super) fn found(&self, snapshots: &[Snapshot]) -> Result<Found<S>> {
        let Some(kept) = self.kept() else { return Ok(Found::Nothing) };
        match (kept.read)(snapshots) {
            Some(state) => Ok(Found::State(state)),
            None if snapshots.is_empty() => Ok(Found::Nothing),
            None if !self.is_in_snapshots() => Ok(Found::Unread),
            None => {
                let why = format!("the state of {} cannot be read from it, and no events say the same", std::any::type_name::<S>());
                Err(Refused::Malformed { what: "snapshot", why }.into())
            }
        }
    }

    /// What is appended: these events, which bring a stream of this version to the state that `after` tells.
    pub(super) fn step(&self, events: &[Event], before: u64, after: impl FnOnce() -> Result<S>) -> Result<Step> {
        let with = |step: Step, snapshots: Vec<Snapshot>| snapshots.into_iter().fold(step, Step::snapshot);
        let plain = || Step::new(events.to_vec());
        Ok(match self {
            Access::Events => plain(),
            Access::Latest => plain().keep_last(),
            Access::Snapshot(kept, every) if (before + events.len() as u64) / every != before / every => {
                with(plain(), (kept.write)(&after()?)?)
            }
            Access::Snapshot(..) => plain(),
            Access::Several(kept) => with(plain(), (kept.write)(&after()?)?),
            Access::Rolling(kept) => Step::rolling((kept.write)(&after()?)?),
            Access::Custom(_, transmute) => match transmute(events.to_vec(), &after()?) {
                (events, snapshots) if events.is_empty() => Step::rolling(snapshots),
                (events, snapshots) => with(Step::new(events), snapshots).guard_snapshots(),
            },
        })
    }
}
