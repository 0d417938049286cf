//! The contract of a log with boundaries: what every layout that can hold a condition over tags implements.

use std::fmt::Debug;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::error::Result;
use crate::event::{CommitId, Event, Recorded};
use crate::position::{Base, Position, Token};
use crate::query::Query;
use crate::units::Units;

/// A log of events under dynamic consistency boundaries. Object-safe: hold an `Arc<dyn EventLog>` and pick the layout in configuration.
#[async_trait]
pub trait EventLog: Debug + Send + Sync {
    /// Everything that matches, strongly consistent, and the token that guards what was *not* there.
    /// With a token of an earlier read of the same query: only what came since.
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced>;

    /// One atomic commit: all events or none.
    async fn append(&self, append: Append) -> Result<Committed>;

    /// Whether nothing that the token guards has changed, at one instant: confirms a decision that appends nothing.
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>>;

    /// The outcome of a commit under an id that the caller gave beforehand, if it was recorded, a second or a year ago. It has no token.
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>>;

    /// Events in order, lazily. For queries and exports: it guards nothing. Events appended meanwhile may be seen.
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>>;
}

/// What a question was answered with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Answer<T> {
    /// The answer.
    pub value: T,
    /// What asking cost.
    pub units: Units,
}

impl<T> Answer<T> {
    /// What a layout hands back.
    pub fn new(value: T, units: Units) -> Self {
        Self { value, units }
    }
}

/// What a decision read hands back.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sourced {
    /// The events that match, in order.
    pub events: Vec<Recorded>,
    /// Guards them, and what was not there.
    pub token: Token,
    /// The position of the newest event of the store, where it was known without another request.
    pub head: Option<Position>,
    /// Whether what it saw was there at one instant. If not, as where several covers were read one after the other, a decision that
    /// appends nothing is confirmed by [`EventLog::unchanged`].
    pub at_one_instant: bool,
    /// What it cost.
    pub units: Units,
}

impl Sourced {
    /// What a layout hands back.
    pub fn new(events: Vec<Recorded>, token: Token, head: Option<Position>, units: Units) -> Self {
        Self { events, token, head, at_one_instant: false, units }
    }
    /// What it saw was there at one instant.
    pub fn at_one_instant(mut self, so: bool) -> Self {
        self.at_one_instant = so;
        self
    }
}

/// One atomic append.
#[derive(Debug, Clone)]
pub struct Append {
    pub(crate) events: Vec<Event>,
    pub(crate) condition: Option<Condition>,
    pub(crate) commit: Option<CommitId>,
    pub(crate) base: Option<Base>,
}

/// Fail if events match this query after this place.
#[derive(Debug, Clone)]
pub struct Condition {
    /// What must not have been recorded.
    pub query: Query,
    /// What is known already.
    pub after: After,
}

/// From where on a condition counts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum After {
    /// Any match in history fails it.
    Nothing,
    /// What the token's read did not see.
    Token(Token),
    /// What stands behind this position. Only where the store counts its events.
    Position(Position),
}

impl From<Token> for After {
    fn from(token: Token) -> After {
        After::Token(token)
    }
}
impl From<Option<Token>> for After {
    fn from(token: Option<Token>) -> After {
        token.map_or(After::Nothing, After::Token)
    }
}
impl From<&Token> for After {
    fn from(token: &Token) -> After {
        After::Token(token.clone())
    }
}
impl From<Position> for After {
    fn from(position: Position) -> After {
        After::Position(position)
    }
}

impl Append {
    /// The append in doubt that this one repeats.
    #[cfg(feature = "dynamo")]
    pub(crate) fn repeats(&self) -> Option<(CommitId, Base)> {
        self.commit.zip(self.base.clone())
    }

    /// These events, unconditionally.
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self { events: events.into_iter().collect(), condition: None, commit: None, base: None }
    }
    /// Unless events match `query` that stand behind `after`: a token, a position, or [`After::Nothing`] for any match in history.
    pub fn unless(mut self, query: Query, after: impl Into<After>) -> Self {
        self.condition = Some(Condition { query, after: after.into() });
        self
    }
    /// Under an id of the caller's: appended again, a second or a year later, it returns the first outcome. Costs one more item.
    pub fn commit(mut self, id: CommitId) -> Self {
        self.commit = Some(id);
        self.base = None;
        self
    }
    /// The repeat of an append that stayed in doubt: looks for the commit from its base, and appends only if it is not there.
    pub fn again(mut self, id: CommitId, base: Base) -> Self {
        self.commit = Some(id);
        self.base = Some(base);
        self
    }
    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
    /// The condition, if there is one.
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }
    /// The commit id, if the caller gave one.
    pub fn commit_id(&self) -> Option<CommitId> {
        self.commit
    }
    /// Where an earlier try began, if this is its repeat.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }
}

/// What an append recorded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Committed {
    /// Its id.
    pub commit: CommitId,
    /// Where its events stand, in the order given.
    pub positions: Vec<Position>,
    /// The condition's token, moved up to this commit. None for an unconditional append; and for a repeat of a commit that another run landed behind
    /// events that this condition's token does not cover: read again.
    pub token: Option<Token>,
    /// The number of events in the stream, after an append to a stream.
    pub version: Option<u64>,
    /// What it cost.
    pub units: Units,
}

impl Committed {
    /// What a layout hands back.
    pub fn new(commit: CommitId, positions: Vec<Position>, token: Option<Token>, units: Units) -> Self {
        Self { commit, positions, token, version: None, units }
    }
    /// The position of its last event.
    pub fn last(&self) -> Option<Position> {
        self.positions.last().copied()
    }
}

/// What a store can hold. What it cannot is refused, never ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Conditions over tags.
    pub boundaries: bool,
    /// Conditions and reads without a tag: all events, or types that are not indexed.
    pub untagged_conditions: bool,
    /// Types can be declared as indexed, and then conditions and reads on them alone are held.
    pub indexed_types: bool,
    /// Reads without a tag, and the position of the newest event.
    pub untagged_reads: bool,
    /// Positions are 1, 2, 3 …, and serve as `after` of a condition.
    pub counted_positions: bool,
    /// A feed.
    pub feed: bool,
    /// How many distinct tags one append may carry.
    pub max_tags: usize,
    /// How many events one append may carry.
    pub max_events: usize,
    /// The largest body of one event, in bytes, with short names around it.
    pub max_body: usize,
    /// Bytes of all bodies that one append may carry.
    pub max_bytes: usize,
    /// The snapshots of a stream.
    pub snapshots: Snapshots,
    /// What bodies may be.
    pub bodies: Bodies,
}

/// What bodies may be; others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bodies {
    /// Any bytes.
    Bytes,
    /// Text in UTF-8.
    Text,
    /// JSON, kept as values: the same value comes back, perhaps spelt otherwise.
    Json,
}

/// Which snapshots of a stream are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Snapshots {
    /// The newest under each name.
    Each,
    /// The newest of all, under the name that it was given.
    Newest,
    /// The newest of all, and it is always called `snapshot`.
    Single,
    /// Those of the newest append, and none where it had none.
    Last,
}

/// In which order to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Forwards,
    /// Newest first.
    Backwards,
}

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Everything acknowledged before the read began.
    #[default]
    Strong,
    /// Perhaps a moment old, at half the units.
    Eventual,
}

/// How to read: of a log by position, of a stream by version ([`crate::StreamReadOptions`]).
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions<At = Position> {
    pub(crate) after: Option<At>,
    pub(crate) limit: Option<u64>,
    pub(crate) direction: Direction,
    pub(crate) consistency: Consistency,
}

impl<At> Default for ReadOptions<At> {
    fn default() -> Self {
        Self { after: None, limit: None, direction: Direction::default(), consistency: Consistency::default() }
    }
}

impl<At> ReadOptions<At> {
    /// Begin behind this place, in the direction of reading. Exclusive.
    pub fn after(mut self, place: At) -> Self {
        self.after = Some(place);
        self
    }
    /// At most so many events.
    pub fn limit(mut self, events: u64) -> Self {
        self.limit = Some(events);
        self
    }
    /// Newest first.
    pub fn backwards(mut self) -> Self {
        self.direction = Direction::Backwards;
        self
    }
    /// A moment old perhaps, at half the units.
    pub fn eventual(mut self) -> Self {
        self.consistency = Consistency::Eventual;
        self
    }
}

/// Conveniences over every [`EventLog`].
#[async_trait]
pub trait EventLogExt: EventLog {
    /// The position of the newest event, or none where there is no event.
    async fn head(&self) -> Result<Option<Position>> {
        let query = Query::all();
        let newest = self.read(&query, ReadOptions::default().backwards().limit(1)).try_next().await?;
        Ok(newest.map(|event| event.position))
    }

    /// Everything that matches, read into memory.
    async fn read_all(&self, query: &Query, options: ReadOptions) -> Result<Vec<Recorded>> {
        self.read(query, options).boxed().try_collect().await
    }
}

impl<L: EventLog + ?Sized> EventLogExt for L {}
