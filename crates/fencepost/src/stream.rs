//! The contract of a store of streams: what every layout implements, also those that know no boundary over several tags.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;

use crate::error::{Refused, Result};
#[cfg(feature = "dynamo")]
use crate::event::Tag;
use crate::event::{CommitId, Event, Recorded, StreamName};
#[cfg(feature = "dynamo")]
use crate::log::Append;
use crate::log::{Answer, Committed, Consistency, ReadOptions};
use crate::position::{Base, Token};
use crate::units::Units;

/// A store of streams: ordered sequences of events, each under one name. A version is the number of events in the stream, on every layout.
#[async_trait]
pub trait StreamStore: Debug + Send + Sync {
    /// The events of a stream, from its start, from a snapshot, or since a token.
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded>;

    /// One atomic commit to one stream.
    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed>;

    /// The outcome of a commit to this stream under an id that the caller gave beforehand, if it was recorded.
    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>>;

    /// Events of a stream, lazily. Guards nothing.
    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>>;
}

/// Where a load begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// With the first event.
    #[default]
    Start,
    /// With the newest snapshot that has one of these names, and the events behind it; with the first event where there is none.
    Snapshot(Vec<String>),
    /// With the last event alone.
    Latest,
}

/// How to load.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    pub(crate) since: Option<Token>,
    pub(crate) origin: Origin,
    pub(crate) consistency: Consistency,
}

impl LoadOptions {
    /// Only what came since this token.
    pub fn since(mut self, token: Token) -> Self {
        self.since = Some(token);
        self
    }
    /// From the newest snapshot with one of these names.
    pub fn snapshot<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.origin = Origin::Snapshot(names.into_iter().map(Into::into).collect());
        self
    }
    /// Only the last event.
    pub fn latest(mut self) -> Self {
        self.origin = Origin::Latest;
        self
    }
    /// A moment old perhaps, at half the units.
    pub fn eventual(mut self) -> Self {
        self.consistency = Consistency::Eventual;
        self
    }
}

/// A folded state beside a stream.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Which of the stream's snapshots: `[A-Za-z0-9._-]{1,64}`.
    pub name: String,
    /// The version that it was folded at. An append fills it in with the version after its events.
    pub version: u64,
    /// The state.
    pub state: Bytes,
}

impl Snapshot {
    /// A state under a name; its version is that of the append it goes with.
    pub fn new(name: impl Into<String>, state: impl Into<Bytes>) -> Self {
        Self { name: name.into(), version: 0, state: state.into() }
    }
    /// For layouts: as it was stored.
    pub fn at(name: impl Into<String>, version: u64, state: impl Into<Bytes>) -> Self {
        Self { name: name.into(), version, state: state.into() }
    }
}

impl Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("name", &self.name).field("version", &self.version).field("bytes", &self.state.len()).finish()
    }
}

/// What a load hands back.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loaded {
    /// The snapshot that the events follow, where one was asked for and found; a layout that keeps several together hands back all asked for.
    pub snapshots: Vec<Snapshot>,
    /// The events behind it, in order, each with its version.
    pub events: Vec<Recorded>,
    /// The number of events in the stream; 0 where it does not exist.
    pub version: u64,
    /// Guards the stream.
    pub token: Token,
    /// What it cost.
    pub units: Units,
}

impl Loaded {
    /// What a layout hands back.
    pub fn new(snapshots: Vec<Snapshot>, events: Vec<Recorded>, version: u64, token: Token, units: Units) -> Self {
        Self { snapshots, events, version, token, units }
    }
}

/// What an append expects of the stream.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Expect {
    /// Anything.
    #[default]
    Any,
    /// That it does not exist.
    None,
    /// Exactly so many events.
    Version(u64),
    /// That nothing came since this token.
    Token(Token),
}

/// One append to one stream.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub(crate) expect: Expect,
    pub(crate) events: Vec<Event>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) keep_last: bool,
    pub(crate) guards: Guards,
    pub(crate) commit: Option<CommitId>,
    pub(crate) base: Option<Base>,
}

/// What an expectation is held against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Guards {
    /// The events of the stream.
    #[default]
    Events,
    /// Its snapshots too, and that is where the state is.
    Snapshots,
}

impl Step {
    /// The append in doubt that this one repeats.
    #[cfg(feature = "dynamo")]
    pub(crate) fn repeats(&self) -> Option<(CommitId, Base)> {
        self.commit.zip(self.base.clone())
    }

    /// These events, whatever is there.
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self { events: events.into_iter().collect(), ..Self::default() }
    }
    /// No events: the state alone is kept, in place of what was kept before it, and a token guards that too. Only `layout=equinox` does so.
    pub fn rolling(snapshots: impl IntoIterator<Item = Snapshot>) -> Self {
        Self { snapshots: snapshots.into_iter().collect(), guards: Guards::Snapshots, ..Self::default() }
    }
    /// Holds the token also against what others wrote of snapshots since. Only `layout=equinox` does so.
    pub fn guard_snapshots(mut self) -> Self {
        self.guards = Guards::Snapshots;
        self
    }
    /// Keeps the last event as a snapshot too, under its type, where a layout writes snapshots into the item that is read first
    /// (`layout=equinox`): [`LoadOptions::latest`] finds it there wherever the events are. Elsewhere it is found among the events.
    pub fn keep_last(mut self) -> Self {
        self.keep_last = true;
        self
    }
    /// For layouts that keep snapshots beside their events, or none: refuses what they do not do.
    pub(crate) fn plain(&self) -> Result<()> {
        if self.guards == Guards::Events {
            return Ok(());
        }
        let what = "an append that guards snapshots".into();
        Err(Refused::Unsupported { what, remedy: "only layout=equinox writes snapshots into the item that guards the stream".into() }
            .into())
    }
    /// For layouts where a stream is tags: what it appends. They come first, since an event may have its home by its first tag. Its expectation and
    /// its snapshots are left to the layout.
    #[cfg(feature = "dynamo")]
    pub(crate) fn take_append(&mut self, tags: &[Tag]) -> Result<Append> {
        self.plain()?;
        for snapshot in &self.snapshots {
            crate::state::check_name("snapshot name", &snapshot.name)?;
        }
        let tagged = |event: Event| {
            let bare = Event::new(event.event_type(), event.data().clone())?.meta(event.metadata().clone());
            let bare = event.given_id().into_iter().fold(bare, Event::id);
            Ok(tags.iter().chain(event.tags()).fold(bare, |tagged, tag| tagged.with_tag(tag.clone())))
        };
        let events = std::mem::take(&mut self.events).into_iter().map(tagged).collect::<Result<Vec<_>>>()?;
        if events.is_empty() {
            return Err(Refused::Empty { what: "append" }.into());
        }
        Ok(Append { commit: self.commit, base: self.base.take(), ..Append::new(events) })
    }
    /// Only if the stream is as expected.
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }
    /// A snapshot of the state after these events.
    pub fn snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshots.push(snapshot);
        self
    }
    /// Under an id of the caller's: appended again, it returns the first outcome.
    pub fn commit(mut self, id: CommitId) -> Self {
        self.commit = Some(id);
        self.base = None;
        self
    }
    /// The repeat of an append that stayed in doubt.
    pub fn again(mut self, id: CommitId, base: Base) -> Self {
        self.commit = Some(id);
        self.base = Some(base);
        self
    }
}

/// How to read a stream: `after` is a version.
pub type StreamReadOptions = ReadOptions<u64>;

/// Conveniences over every [`StreamStore`].
#[async_trait]
pub trait StreamStoreExt: StreamStore {
    /// The events of a stream, read into memory.
    async fn read_stream(&self, stream: &StreamName, options: StreamReadOptions) -> Result<Vec<Recorded>> {
        self.read(stream, options).try_collect().await
    }
}

impl<S: StreamStore + ?Sized> StreamStoreExt for S {}
