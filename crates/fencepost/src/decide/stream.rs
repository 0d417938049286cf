//! Deciders over streams: initial state, evolve, decide; with snapshots and a cache.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cache::{Cache, Key};
use super::run::{Deciding, Options, Read, Subject, look, run};
use crate::domain::{DomainEvent, IntoEvents, Unknown, decode};
use crate::env::Env;
use crate::error::{Refused, Result};
use crate::event::{CommitId, Event, Recorded, StreamName};
use crate::log::{Answer, Committed};
use crate::position::{Base, Position, Token};
use crate::state::check_name;
use crate::stream::{Expect, LoadOptions, Loaded, Snapshot, Step, StreamStore};
use crate::units::Units;

/// How one kind of stream decides: a state before any event, what each event changes, and what comes of a command.
pub trait Decider: Send + Sync {
    /// What the events of a stream amount to.
    type State: Clone + Send + Sync + 'static;
    /// What happens in it.
    type Event: DomainEvent;
    /// What is asked of it.
    type Command: Sync;
    /// Why it may refuse.
    type Rejection: Send;

    /// The state of a stream without events.
    fn initial(&self) -> Self::State;
    /// Takes in one event.
    fn evolve(&self, state: &mut Self::State, event: &Self::Event);
    /// Events, possibly none, or why not. Asked again after a conflict: it must be a function of its arguments.
    fn decide(&self, command: &Self::Command, state: &Self::State) -> Result<Vec<Self::Event>, Self::Rejection>;
}

/// All streams of one kind: a decider over a store of streams.
///
/// ```
/// # #[cfg(feature = "derive")]
/// # mod doc {
/// use std::sync::Arc;
///
/// use fencepost::{Category, Decider, Event, Memory, StreamName};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// #[event(untagged)]
/// enum Counted { Up { by: u32 } }
///
/// struct Counter;
/// #[derive(Debug)]
/// struct TooMuch;
///
/// impl Decider for Counter {
///     type State = u32;
///     type Event = Counted;
///     type Command = u32;
///     type Rejection = TooMuch;
///     fn initial(&self) -> u32 { 0 }
///     fn evolve(&self, count: &mut u32, Counted::Up { by }: &Counted) { *count += by }
///     fn decide(&self, by: &u32, count: &u32) -> Result<Vec<Counted>, TooMuch> {
///         if count + by > 10 { Err(TooMuch) } else { Ok(vec![Counted::Up { by: *by }]) }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # pub async fn main() -> fencepost::Result<()> {
/// let counters = Category::new(Arc::new(Memory::new()), Counter).snapshots("counter-1", 100);
/// let stream = StreamName::new("counter-7")?;
/// assert!(counters.decide(&stream, &8).await?.accepted().is_ok());
/// assert!(counters.decide(&stream, &8).await?.rejection().is_some());
/// assert_eq!(counters.state(&stream).await?, 8);
/// # Ok(()) }
/// # }
/// # #[cfg(feature = "derive")] doc::main().unwrap();
/// ```
pub struct Category<D: Decider> {
    streams: Arc<dyn StreamStore>,
    decider: D,
    snapshots: Option<Snapshots<D::State>>,
    unknown: Unknown,
    options: Options,
    name: &'static str,
}

struct Snapshots<S> {
    name: String,
    every: u64,
    encode: fn(&S) -> Result<Vec<u8>, serde_json::Error>,
    decode: fn(&[u8]) -> Result<S, serde_json::Error>,
}

impl<D: Decider> Category<D> {
    /// Its streams lie in this store. Events of unknown types are refused.
    pub fn new(streams: Arc<dyn StreamStore>, decider: D) -> Self {
        let name = std::any::type_name::<D>();
        Self { streams, decider, snapshots: None, unknown: Unknown::Refuse, options: Options::default(), name }
    }
    /// Writes the state beside the stream whenever it has grown by another `every` events, and begins loading there. The name stands for
    /// the shape of the state, `cart-2`: another shape takes another name, and older snapshots are passed over.
    pub fn snapshots(mut self, name: impl Into<String>, every: u64) -> Self
    where
        D::State: Serialize + DeserializeOwned,
    {
        self.snapshots = Some(Snapshots {
            name: name.into(),
            every: every.max(1),
            encode: |state| serde_json::to_vec(state),
            decode: |bytes| serde_json::from_slice(bytes),
        });
        self
    }
    /// Keeps states between decisions: a warm one reads only what came since.
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.options.cache = Some(cache.clone());
        self
    }
    /// Passes over events whose type is none of the decider's.
    pub fn skip_unknown(mut self) -> Self {
        self.unknown = Unknown::Skip;
        self
    }
    /// Gives up on conflicts after this long (30 seconds).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options.deadline = deadline;
        self
    }
    /// The clock for the deadline, and chance for the pauses between tries.
    pub fn env(mut self, env: Env) -> Self {
        self.options.env = env;
        self
    }

    /// Decides on a command: loads the stream, decides, appends what comes of it at the version that was read; after a conflict decides
    /// again on what it brought.
    pub fn decide<'a>(&'a self, stream: &'a StreamName, command: &'a D::Command) -> Deciding<'a, D::Rejection>
    where
        D::Rejection: 'a,
    {
        Deciding::new(self.options.clone(), move |options| {
            async move {
                let subject = self.subject(stream)?;
                run(&subject, &options, |folded: &Folded<D::State>| match self.decider.decide(command, &folded.state) {
                    Ok(events) => Ok(Ok(events.into_events()?)),
                    Err(rejection) => Ok(Err(rejection)),
                })
                .await
            }
            .boxed()
        })
    }

    /// The state of a stream, as it is now.
    pub async fn state(&self, stream: &StreamName) -> Result<D::State> {
        Ok(look(&self.subject(stream)?, &self.options).await?.state)
    }

    fn subject<'a>(&'a self, stream: &'a StreamName) -> Result<OfStream<'a, D>> {
        if let Some(snapshots) = &self.snapshots {
            check_name("snapshot name", &snapshots.name)?;
        }
        Ok(OfStream { category: self, stream })
    }
}

impl<D: Decider> fmt::Debug for Category<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Category").field("decider", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// An event as a reader would see it, but for what only the store knows.
fn read_back(event: &Event) -> Recorded {
    let (id, tags) = (event.given_id().unwrap_or_default(), event.tags().to_vec());
    let (data, meta) = (event.data().clone(), event.metadata().clone());
    Recorded::new(Position::number(0), id, event.event_type().clone(), data, tags, meta, Timestamp::UNIX_EPOCH)
}

/// The state of a stream and how many events it is of.
#[derive(Clone)]
struct Folded<S> {
    state: S,
    version: u64,
}

struct OfStream<'a, D: Decider> {
    category: &'a Category<D>,
    stream: &'a StreamName,
}

impl<D: Decider> OfStream<'_, D> {
    fn initial(&self) -> Folded<D::State> {
        Folded { state: self.category.decider.initial(), version: 0 }
    }

    fn read(&self, mut folded: Folded<D::State>, loaded: Loaded) -> Result<Read<Folded<D::State>>> {
        self.fold(&mut folded, &loaded.events)?;
        folded.version = loaded.version;
        Ok(Read { state: folded, token: Some(loaded.token), at_one_instant: true, units: loaded.units })
    }

    /// The state after these events, where they complete another run of `every`.
    fn snapshot(&self, folded: &Folded<D::State>, events: &[Event]) -> Result<Option<Snapshot>> {
        let Some(snapshots) = &self.category.snapshots else { return Ok(None) };
        let after = folded.version + events.len() as u64;
        if after / snapshots.every == folded.version / snapshots.every {
            return Ok(None);
        }
        let mut state = folded.state.clone();
        for event in events {
            // As a reader would see it: through its own bytes.
            let recorded = read_back(event);
            if let Some(event) = decode::<D::Event>(&recorded, self.category.unknown)? {
                self.category.decider.evolve(&mut state, &event);
            }
        }
        let state = (snapshots.encode)(&state).map_err(|_| Refused::Malformed {
            what: "snapshot",
            why: format!("the state of {} does not serialise to JSON", self.category.name),
        })?;
        Ok(Some(Snapshot::new(&snapshots.name, state)))
    }
}

#[async_trait]
impl<D: Decider> Subject for OfStream<'_, D> {
    type State = Folded<D::State>;

    fn key(&self) -> Option<Key> {
        Some(Key { name: self.category.name.into(), about: self.stream.to_string(), state: TypeId::of::<D::State>() })
    }

    async fn load(&self) -> Result<Read<Self::State>> {
        let Some(snapshots) = &self.category.snapshots else {
            return self.read(self.initial(), self.category.streams.load(self.stream, LoadOptions::default()).await?);
        };
        let mut loaded = self.category.streams.load(self.stream, LoadOptions::default().snapshot([&snapshots.name])).await?;
        match loaded.snapshots.iter().find(|snapshot| snapshot.name == snapshots.name).map(|found| (snapshots.decode)(&found.state)) {
            Some(Ok(state)) => self.read(Folded { state, version: 0 }, loaded),
            None => self.read(self.initial(), loaded),
            // A snapshot saves work, and holds nothing that the events do not: without it, all of them are read.
            Some(Err(_)) => {
                let units = loaded.units;
                loaded = self.category.streams.load(self.stream, LoadOptions::default()).await?;
                loaded.units += units;
                self.read(self.initial(), loaded)
            }
        }
    }

    async fn more(&self, state: Self::State, since: &Token) -> Result<Read<Self::State>> {
        self.read(state, self.category.streams.load(self.stream, LoadOptions::default().since(since.clone())).await?)
    }

    fn fold(&self, folded: &mut Self::State, events: &[Recorded]) -> Result<()> {
        for recorded in events {
            if let Some(event) = decode::<D::Event>(recorded, self.category.unknown)? {
                self.category.decider.evolve(&mut folded.state, &event);
            }
            folded.version += 1;
        }
        Ok(())
    }

    fn places(&self, _: Option<&[Recorded]>) -> Vec<String> {
        vec![format!("{:p} {}", Arc::as_ptr(&self.category.streams).cast::<()>(), self.stream)]
    }

    async fn append(&self, events: &[Event], at: &Read<Self::State>, id: Option<(CommitId, Option<Base>)>) -> Result<Committed> {
        let expect = at.token.clone().map_or(Expect::None, Expect::Token);
        let mut step = Step::new(events.to_vec()).expect(expect);
        if let Some(snapshot) = self.snapshot(&at.state, events)? {
            step = step.snapshot(snapshot);
        }
        step = match id {
            None => step,
            Some((commit, None)) => step.commit(commit),
            Some((commit, Some(base))) => step.again(commit, base),
        };
        self.category.streams.append(self.stream, step).await
    }

    async fn unchanged(&self, _: &Token) -> Result<Answer<bool>> {
        // One stream is read at one instant, so nobody asks.
        Ok(Answer::new(true, Units::default()))
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.category.streams.committed(self.stream, commit).await
    }
}
