//! The conformance suite: one named test per case and store, from one list of cases. For whoever writes a layout.
//!
//! [`conformance!`](crate::conformance) expands to a module of tests; each opens a [`Subject`] of its own. What a store's
//! [`Capabilities`] leave out is asserted to be refused, never passed over.

use std::fmt;
use std::sync::Arc;

use crate::{
    After, Append, Capabilities, Cells, Checkpoints, Committed, Conflict, Direction, Error, Event, EventLog, EventLogExt, Feed, Position,
    Query, ReadOptions, Recorded, Refused, Result, States, StreamStore, Token,
};

pub mod append;
pub mod concurrency;
pub mod condition;
mod list;
pub mod read;
pub mod states;
pub mod streams;
pub mod subscription;

/// Types that a store must declare as indexed for the suite, where it holds conditions and reads without a tag only so.
pub const INDEXED_TYPES: &[&str] = &["Opened", "Closed", "Moved", "Unheard"];

/// A fresh, empty store under test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The log with boundaries, where the layout has one.
    pub log: Option<Arc<dyn EventLog>>,
    /// The streams.
    pub streams: Arc<dyn StreamStore>,
    /// The feed, where the mode has one.
    pub feed: Option<Arc<dyn Feed>>,
    /// Where consumers are.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Folded states.
    pub states: Arc<dyn States>,
    /// Cells.
    pub cells: Arc<dyn Cells>,
    /// Another handle on the same store that shares no memory with this one, as another process would have it.
    pub second: Option<Box<Subject>>,
    /// What it can hold.
    pub capabilities: Capabilities,
}

impl Subject {
    /// The log, for the cases about boundaries; none where the layout says that it has none.
    fn log(&self) -> Option<Arc<dyn EventLog>> {
        assert_eq!(self.log.is_some(), self.capabilities.boundaries, "a log exactly where the capabilities promise boundaries");
        self.log.clone()
    }

    fn feed(&self) -> Option<Arc<dyn Feed>> {
        assert_eq!(self.feed.is_some(), self.capabilities.feed, "a feed exactly where the capabilities promise one");
        self.feed.clone()
    }

    /// This handle and the other one, in turn.
    fn handle(&self, turn: usize) -> &Subject {
        match &self.second {
            Some(second) if turn % 2 == 1 => second,
            _ => self,
        }
    }

    fn handle_log(&self, turn: usize) -> Arc<dyn EventLog> {
        self.handle(turn).log.clone().expect("both handles have a log")
    }

    /// Whether a condition, or a decision read, over this query can be held here.
    fn holds(&self, query: &Query) -> bool {
        self.capabilities.untagged_conditions || self.has_series(query)
    }

    /// Whether a plain read of this query is possible here.
    fn reads(&self, query: &Query) -> bool {
        self.capabilities.untagged_reads || self.has_series(query)
    }

    /// Whether every item has a tag, or only types that are indexed.
    fn has_series(&self, query: &Query) -> bool {
        let indexed = |ty: &crate::EventType| self.capabilities.indexed_types && INDEXED_TYPES.contains(&ty.as_str());
        !query.is_all() && query.items().iter().all(|item| !item.tags().is_empty() || item.types().iter().all(indexed))
    }
}

/// What must succeed: else the test fails at the caller's line.
trait Must<T> {
    fn must(self) -> T;
}

impl<T, E: fmt::Display> Must<T> for std::result::Result<T, E> {
    #[track_caller]
    fn must(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("must succeed: {error}"),
        }
    }
}

/// An event whose body is its label, as JSON: some layouts keep nothing else.
fn event(event_type: &str, label: &str, tags: &[&str]) -> Event {
    let bare = Event::json(event_type, &label).must();
    tags.iter().fold(bare, |event, tag| event.tag(tag).must())
}

/// One event, in a commit of its own, without a condition.
async fn put(log: &Arc<dyn EventLog>, event_type: &str, label: &str, tags: &[&str]) -> Position {
    let committed = log.append(Append::new([event(event_type, label, tags)])).await.must();
    committed.last().expect("one event, one position")
}

fn label(event: &Recorded) -> String {
    event.json().expect("labels are text")
}

fn labels<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> Vec<String> {
    events.into_iter().map(label).collect()
}

fn tag(tag: &str) -> Query {
    Query::tag(tag).must()
}
fn tags(tags: &[&str]) -> Query {
    Query::tags(tags).must()
}
fn types(types: &[&str]) -> Query {
    Query::types(types).must()
}
fn both(types: &[&str], tags: &[&str]) -> Query {
    Query::item(types, tags).must()
}

#[track_caller]
fn assert_ascending(events: &[Recorded]) {
    assert!(events.is_sorted_by(|a, b| a.position < b.position), "positions must rise: {events:?}");
}

#[track_caller]
fn assert_unsupported<T: fmt::Debug>(outcome: Result<T>) {
    assert!(matches!(outcome, Err(Error::Refused(Refused::Unsupported { .. }))), "must be refused as unsupported: {outcome:?}");
}

#[track_caller]
fn assert_conflict(outcome: Result<Committed>) -> Conflict {
    match outcome {
        Err(Error::Conflict(conflict)) => *conflict,
        other => panic!("must conflict: {other:?}"),
    }
}

/// The query gives exactly these labels: to a decision, read forwards and read backwards. Or it is refused, where the store cannot read it.
async fn shows(s: &Subject, query: &Query, expected: &[&str]) {
    let log = s.log().expect("asked by the caller");
    if s.holds(query) {
        let sourced = log.source(query, None).await.must();
        assert_eq!(labels(&sourced.events), expected, "source {query:?}");
        assert_ascending(&sourced.events);
    } else {
        assert_unsupported(log.source(query, None).await);
    }
    if s.reads(query) {
        let forwards = log.read_all(query, ReadOptions::default()).await.must();
        assert_eq!(labels(&forwards), expected, "read {query:?}");
        assert_ascending(&forwards);
        let mut backwards = log.read_all(query, ReadOptions::default().backwards()).await.must();
        backwards.reverse();
        assert_eq!(backwards, forwards, "backwards is forwards reversed: {query:?}");
    } else {
        assert_unsupported(log.read_all(query, ReadOptions::default()).await);
    }
}

/// Where a reader of a query stood at one moment.
struct Mark {
    query: Query,
    /// None where the query cannot be held.
    token: Option<Token>,
    /// The newest event's position, where positions are numbers.
    position: Option<Position>,
}

impl Mark {
    async fn now(s: &Subject, query: &Query) -> Mark {
        let log = s.log().expect("asked by the caller");
        let token = if s.holds(query) { Some(log.source(query, None).await.must().token) } else { None };
        let position = match s.capabilities.counted_positions {
            true => Some(log.head().await.must().unwrap_or(Position::number(0))),
            false => None,
        };
        Mark { query: query.clone(), token, position }
    }

    fn afters(&self) -> Vec<After> {
        self.token.clone().map(After::Token).into_iter().chain(self.position.map(After::Position)).collect()
    }
}

/// An event that no query of the suite but "all" matches.
fn probe() -> Event {
    event("Probe", "probe", &["probe:only"])
}

async fn probes(s: &Subject) -> usize {
    s.log().expect("asked by the caller").source(&tag("probe:only"), None).await.must().events.len()
}

/// A condition over this query, from this mark on, fails by exactly these events and writes nothing.
async fn conflicts(s: &Subject, query: &Query, mark: &Mark, new: &[&str]) {
    let log = s.log().expect("asked by the caller");
    let before = probes(s).await;
    let mut afters = mark.afters();
    if !s.holds(query) {
        assert_unsupported(log.append(Append::new([probe()]).unless(query.clone(), After::Nothing)).await);
        afters.clear();
    } else if mark.position.is_none() {
        assert_unsupported(log.append(Append::new([probe()]).unless(query.clone(), Position::number(1))).await);
    }
    for after in afters {
        let told = format!("{query:?} after {after:?}");
        let by_own_token = matches!(after, After::Token(_)) && mark.query.fingerprint() == query.fingerprint();
        let conflict = assert_conflict(log.append(Append::new([probe()]).unless(query.clone(), after)).await);
        assert!(!conflict.events.is_empty(), "a conflict names an event: {told}");
        let mut folded = labels(&conflict.events);
        if by_own_token {
            assert!(conflict.token.is_some(), "a conflict with the token's own query brings its continuation: {told}");
        }
        match &conflict.token {
            Some(token) => folded.extend(labels(&log.source(query, Some(token)).await.must().events)),
            None => assert!(folded.iter().all(|label| new.contains(&label.as_str())), "only new matches: {told}"),
        }
        if conflict.token.is_some() {
            assert_eq!(folded, new, "the conflict's events and what its token leaves are the news, each once: {told}");
        }
    }
    assert_eq!(probes(s).await, before, "a rejected append writes nothing");
}

/// A condition over this query, from this mark on, holds.
async fn passes(s: &Subject, query: &Query, mark: &Mark) {
    let log = s.log().expect("asked by the caller");
    let before = probes(s).await;
    if !s.holds(query) {
        return assert_unsupported(log.append(Append::new([probe()]).unless(query.clone(), After::Nothing)).await);
    }
    let afters = mark.afters();
    let appended = afters.len();
    for after in afters {
        let told = format!("{query:?} after {after:?}");
        let committed = log.append(Append::new([probe()]).unless(query.clone(), after)).await;
        assert!(committed.is_ok(), "must pass: {told}: {committed:?}");
        assert!(committed.must().token.is_some(), "a conditional append hands back its token moved up");
    }
    assert_eq!(probes(s).await, before + appended, "what passed is there");
}

/// A condition without a token: any match in history fails it.
async fn conflicts_with_history(s: &Subject, query: &Query) {
    let log = s.log().expect("asked by the caller");
    let before = probes(s).await;
    let outcome = log.append(Append::new([probe()]).unless(query.clone(), After::Nothing)).await;
    if s.holds(query) {
        assert!(!assert_conflict(outcome).events.is_empty(), "a conflict names an event");
    } else {
        assert_unsupported(outcome);
    }
    assert_eq!(probes(s).await, before, "a rejected append writes nothing");
}

/// Reads in the direction given.
fn towards(direction: Direction) -> ReadOptions {
    match direction {
        Direction::Forwards => ReadOptions::default(),
        Direction::Backwards => ReadOptions::default().backwards(),
    }
}

/// Runs these at once, each in a task of its own.
async fn race<T: Send + 'static>(racers: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = racers.into_iter().map(|racer| tokio::spawn(racer)).collect();
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        outcomes.push(task.await.must());
    }
    outcomes
}
