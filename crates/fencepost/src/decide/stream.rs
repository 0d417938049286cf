//! Deciders over streams: initial state, evolve, decide; with snapshots and a cache.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{Access, Found, Kept};
use super::cache::{Cache, Key};
use super::run::{Deciding, Options, Read, Subject, look, run};
use crate::domain::{DomainEvent, IntoEvents, Unknown, decode};
use crate::env::Env;
use crate::error::Result;
use crate::event::{CommitId, Event, Recorded, StreamName};
use crate::log::{Answer, Committed, Consistency};
use crate::position::{Base, Token};
use crate::stream::{Expect, LoadOptions, Loaded, Snapshot, StreamStore};

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
    access: Access<D::State>,
    consistency: Consistency,
    unknown: Unknown,
    options: Options,
    name: &'static str,
}

impl<D: Decider> Category<D> {
    /// Its streams lie in this store. Events of unknown types are refused.
    pub fn new(streams: Arc<dyn StreamStore>, decider: D) -> Self {
        let name = std::any::type_name::<D>();
        Self {
            streams,
            decider,
            access: Access::Events,
            consistency: Consistency::Strong,
            unknown: Unknown::Refuse,
            options: Options::default(),
            name,
        }
    }
    /// Writes the state beside the stream whenever it has grown by another `every` events, and begins loading there. The name stands for
    /// the shape of the state, `cart-2`: another shape takes another name, and older snapshots are passed over. On `layout=equinox` an
    /// append without a snapshot takes the last one away: write it `every` 1.
    pub fn snapshots(mut self, name: impl Into<String>, every: u64) -> Self
    where
        D::State: Serialize + DeserializeOwned,
    {
        self.access = Access::Snapshot(Kept::json(name.into()), every.max(1));
        self
    }
    /// Writes several snapshots with every append, and begins loading with those of these names that are there; with the first event, where
    /// `read` makes nothing of them.
    pub fn several_snapshots<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
        read: impl Fn(&[Snapshot]) -> Option<D::State> + Send + Sync + 'static,
        write: impl Fn(&D::State) -> Vec<Snapshot> + Send + Sync + 'static,
    ) -> Self {
        self.access = Access::Several(Kept::of(names.into_iter().map(Into::into).collect(), read, write));
        self
    }
    /// The last event says it all: a load takes no other.
    pub fn latest(mut self) -> Self {
        self.access = Access::Latest;
        self
    }
    /// Keeps the state in the stream's place, and no events; guarded against whoever else writes it. Only on `layout=equinox`.
    pub fn rolling(mut self, name: impl Into<String>) -> Self
    where
        D::State: Serialize + DeserializeOwned,
    {
        self.access = Access::Rolling(Kept::json(name.into()));
        self
    }
    /// Keeps what `transmute` makes of the decided events and the state after them: events, snapshots, or both; guarded against whoever else
    /// writes either. Only on `layout=equinox`.
    pub fn custom<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
        read: impl Fn(&[Snapshot]) -> Option<D::State> + Send + Sync + 'static,
        transmute: impl Fn(Vec<Event>, &D::State) -> (Vec<Event>, Vec<Snapshot>) + Send + Sync + 'static,
    ) -> Self {
        let kept = Kept::of(names.into_iter().map(Into::into).collect(), read, |_| Vec::new());
        self.access = Access::Custom(kept, Arc::new(transmute));
        self
    }
    /// Reads what is perhaps a moment old, at half the units: what comes of it is held against the store all the same.
    pub fn eventual(mut self) -> Self {
        self.consistency = Consistency::Eventual;
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
        self.deciding(self.options.clone(), stream, command)
    }

    /// Decides on a command as for a stream that does not exist yet, without reading first: for the first command of most streams. Where it
    /// exists, the append's conflict brings what is there, and the decision is taken again.
    pub fn decide_new<'a>(&'a self, stream: &'a StreamName, command: &'a D::Command) -> Deciding<'a, D::Rejection>
    where
        D::Rejection: 'a,
    {
        self.deciding(Options { assume_empty: true, ..self.options.clone() }, stream, command)
    }

    fn deciding<'a>(&'a self, options: Options, stream: &'a StreamName, command: &'a D::Command) -> Deciding<'a, D::Rejection>
    where
        D::Rejection: 'a,
    {
        Deciding::new(options, move |options| {
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
    /// The state of a stream as it was at most this long ago, from the cache where it is there.
    pub async fn state_within(&self, stream: &StreamName, max_age: Duration) -> Result<D::State> {
        let options = Options { max_age: Some(max_age), ..self.options.clone() };
        Ok(look(&self.subject(stream)?, &options).await?.state)
    }

    fn subject<'a>(&'a self, stream: &'a StreamName) -> Result<OfStream<'a, D>> {
        self.access.check()?;
        Ok(OfStream { category: self, stream })
    }
}

impl<D: Decider> fmt::Debug for Category<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Category").field("decider", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
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

    fn options(&self) -> LoadOptions {
        match self.category.consistency {
            Consistency::Strong => LoadOptions::default(),
            Consistency::Eventual => LoadOptions::default().eventual(),
        }
    }

    fn read(&self, mut folded: Folded<D::State>, loaded: Loaded) -> Result<Read<Folded<D::State>>> {
        self.fold(&mut folded, &loaded.events)?;
        folded.version = loaded.version;
        // What is perhaps a moment old is looked at again where nothing is appended.
        let at_one_instant = self.category.consistency == Consistency::Strong;
        Ok(Read { state: folded, token: Some(loaded.token), at_one_instant, units: loaded.units })
    }

    /// The state after these events, as a reader would see it: through their own bytes.
    fn evolved(&self, folded: &Folded<D::State>, events: &[Event]) -> Result<D::State> {
        let mut state = folded.state.clone();
        for event in events {
            self.category.decider.evolve(&mut state, &event.decode()?);
        }
        Ok(state)
    }
}

#[async_trait]
impl<D: Decider> Subject for OfStream<'_, D> {
    type State = Folded<D::State>;

    fn key(&self) -> Option<Key> {
        Some(Key { name: self.category.name.into(), about: self.stream.to_string(), state: TypeId::of::<D::State>() })
    }

    fn empty(&self) -> Option<Self::State> {
        Some(self.initial())
    }

    fn after(&self, folded: &Self::State, events: &[Event]) -> Option<Self::State> {
        let state = self.evolved(folded, events).ok()?;
        // How many were written, if not all were, the next load tells.
        Some(Folded { state, version: folded.version + events.len() as u64 })
    }

    async fn load(&self) -> Result<Read<Self::State>> {
        let category = self.category;
        let loaded = category.streams.load(self.stream, category.access.load(self.options())).await?;
        match category.access.found(&loaded.snapshots)? {
            Found::State(state) => self.read(Folded { state, version: 0 }, loaded),
            Found::Nothing => self.read(self.initial(), loaded),
            // A snapshot saves work, and holds nothing that the events do not: without it, all of them are read.
            Found::Unread => {
                let mut all = category.streams.load(self.stream, self.options()).await?;
                all.units += loaded.units;
                self.read(self.initial(), all)
            }
        }
    }

    async fn more(&self, folded: Self::State, since: &Token) -> Result<Read<Self::State>> {
        let category = self.category;
        let options = category.access.reload(self.options().since(since.clone()));
        let loaded = category.streams.load(self.stream, options).await?;
        match category.access.found(&loaded.snapshots)? {
            Found::State(state) => self.read(Folded { state, ..folded }, loaded),
            Found::Nothing | Found::Unread => self.read(folded, loaded),
        }
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
        let step = self.category.access.step(events, at.state.version, || self.evolved(&at.state, events))?.expect(expect);
        let step = match id {
            None => step,
            Some((commit, None)) => step.commit(commit),
            Some((commit, Some(base))) => step.again(commit, base),
        };
        self.category.streams.append(self.stream, step).await
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        let since = self.category.access.reload(LoadOptions::default().since(token.clone()));
        let news = self.category.streams.load(self.stream, since).await?;
        Ok(Answer::new(news.events.is_empty() && news.snapshots.is_empty(), news.units))
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.category.streams.committed(self.stream, commit).await
    }
}
