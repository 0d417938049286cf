//! The contracts without DynamoDB: the oracle of the tests, and a store for unit tests. One list of events behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::event::{self, CommitId, Event, MAX_BODY_BYTES, Recorded, StreamName, Tag};
use crate::feed::{Delivery, Feed, From};
use crate::log::{After, Answer, Append, Bodies, Capabilities, Committed, Condition, Direction, EventLog, ReadOptions, Snapshots, Sourced};
use crate::position::{Base, Checkpoint, Position, Token};
use crate::query::Query;
use crate::state::{Cell, CellKey, CellKind, CellWrite, Cells, Checkpoints, Revision, State, States, check_key, check_name};
use crate::stream::{Expect, LoadOptions, Loaded, Origin, Snapshot, Step, StreamReadOptions, StreamStore};
use crate::units::Units;

const LAYOUT: &str = "memory";
/// The largest body of a cell: as much as a DynamoDB item holds, so that what works here works there.
const CELL_BYTES: usize = 399 * 1024;

/// A store in this process's memory. Cheap to clone; clones share their events.
///
/// ```
/// use fencepost::{Append, Event, EventLog, Memory, Query};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencepost::Result<()> {
/// let log = Memory::new();
/// let query = Query::tag("username:ada")?;
/// let seen = log.source(&query, None).await?;
/// let claimed = Event::new("UsernameClaimed", "{}")?.tag("username:ada")?;
/// EventLog::append(&log, Append::new([claimed]).unless(query, seen.token)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    env: Env,
    held: Mutex<Held>,
    /// How many events there are: wakes the feeds.
    head: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Held {
    /// The event at index i has position i + 1.
    events: Vec<Recorded>,
    commits: HashMap<CommitId, Outcome>,
    snapshots: BTreeMap<(StreamName, String), Snapshot>,
    checkpoints: BTreeMap<String, (Checkpoint, Revision)>,
    states: BTreeMap<(String, String), (State, Revision)>,
    cells: BTreeMap<CellKey, (Bytes, Revision)>,
}

/// What a repeat under the same commit id returns.
#[derive(Debug)]
struct Outcome {
    digest: [u8; 8],
    committed: Committed,
}

/// What a token holds: how many events there were, and the query as JSON, since only that tells later what the token guards.
#[derive(Serialize, Deserialize)]
struct Seen {
    head: usize,
    query: String,
}

impl Seen {
    fn token(head: usize, query: &Query) -> Token {
        Token::seal(LAYOUT, &Seen { head, query: serde_json::to_string(query).unwrap_or_default() })
    }
    fn query(&self) -> Result<Query> {
        self.query.parse()
    }
    /// How many events the reader of this very query has seen.
    fn same(token: &Token, query: &Query) -> Result<usize> {
        let seen: Seen = token.open(LAYOUT)?;
        if seen.query()?.fingerprint() != query.fingerprint() {
            return Err(Refused::Foreign { what: "token", of: "another query".into(), here: "this one".into() }.into());
        }
        Ok(seen.head)
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with this clock and these ids.
    pub fn with_env(env: Env) -> Self {
        Self(Arc::new(Shared { env, ..Shared::default() }))
    }

    /// What it can hold: everything.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            boundaries: true,
            untagged_conditions: true,
            indexed_types: true,
            untagged_reads: true,
            counted_positions: true,
            feed: true,
            max_tags: usize::MAX,
            max_events: usize::MAX,
            max_body: MAX_BODY_BYTES,
            max_bytes: 4 * MAX_BODY_BYTES,
            snapshots: Snapshots::Each,
            bodies: Bodies::Bytes,
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Every change below is whole once it begins, so what a panic elsewhere left behind is whole too.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One commit under the lock: `judge` says whether it may be, and which token it hands back.
    fn commit(
        &self,
        held: &mut Held,
        events: Vec<Event>,
        commit: Option<CommitId>,
        base: Option<&Base>,
        judge: impl FnOnce(&Held, usize) -> Result<Option<Token>>,
    ) -> Result<Committed> {
        if events.is_empty() {
            return Err(Refused::Empty { what: "append" }.into());
        }
        if let Some(base) = base {
            base.open::<u64>(LAYOUT)?;
        }
        let digest = event::digest(&events);
        let id = commit.unwrap_or_else(|| self.0.env.new_commit_id());
        if let Some(first) = held.commits.get(&id) {
            if first.digest != digest {
                return Err(Refused::Reused { commit: id }.into());
            }
            // As it was when the commit landed: a token claims nothing that lay between, and was in the model of another run.
            let before = first.committed.positions.first().map_or(Ok(0), |first| count(*first))?.saturating_sub(1);
            let then = Held { events: held.events[..before].to_vec(), ..Held::default() };
            let token = judge(&then, before + events.len()).ok().flatten();
            return Ok(Committed { token, ..first.committed.clone() });
        }
        let token = judge(held, held.events.len() + events.len())?;
        let now = self.0.env.now();
        let mut positions = Vec::with_capacity(events.len());
        for (index, event) in events.into_iter().enumerate() {
            let position = place(held.events.len());
            positions.push(position);
            held.events.push(Recorded::new(
                position,
                event.given_id().unwrap_or_else(|| id.event_id(index)),
                event.event_type().clone(),
                event.data().clone(),
                event.tags().to_vec(),
                event.metadata().clone(),
                now,
            ));
        }
        let committed = Committed::new(id, positions, token, Units::default());
        held.commits.insert(id, Outcome { digest, committed: committed.clone() });
        self.0.head.send_replace(held.events.len());
        Ok(committed)
    }
}

fn place(index: usize) -> Position {
    Position::number(index as u64 + 1)
}

/// How many events stand at or before this position.
fn count(position: Position) -> Result<usize> {
    let foreign =
        || Refused::Foreign { what: "position", of: "a store that does not count its events".into(), here: "one that does".into() };
    Ok(usize::try_from(position.as_number().ok_or_else(foreign)?).unwrap_or(usize::MAX))
}

fn pick<T>(mut found: Vec<T>, direction: Direction, limit: Option<u64>) -> Vec<T> {
    if direction == Direction::Backwards {
        found.reverse();
    }
    found.truncate(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
    found
}

impl Held {
    fn matching(&self, query: &Query, after: usize) -> Vec<Recorded> {
        let behind = self.events.get(after..).unwrap_or_default();
        behind.iter().filter(|event| query.matches(&event.event_type, &event.tags)).cloned().collect()
    }

    /// The events of a stream, each with its version.
    fn stream(&self, tag: &Tag) -> Vec<Recorded> {
        let of_stream = self.events.iter().filter(|event| event.tags.contains(tag)).cloned();
        of_stream.zip(1..).map(|(event, version)| Recorded { version: Some(version), ..event }).collect()
    }

    /// How many events the stream had with the one at this position.
    fn version_at(&self, tag: &Tag, last: Option<Position>) -> u64 {
        self.events.iter().filter(|event| event.tags.contains(tag) && Some(event.position) <= last).count() as u64
    }

    fn judge(&self, condition: &Condition) -> Result<()> {
        let Condition { query, after } = condition;
        let (after, whole) = match after {
            After::Nothing => (0, true),
            After::Position(position) => (count(*position)?, true),
            After::Token(token) => {
                let seen: Seen = token.open(LAYOUT)?;
                (seen.head, seen.query()?.fingerprint() == query.fingerprint())
            }
        };
        let events = self.matching(query, after);
        if events.is_empty() {
            return Ok(());
        }
        // A token for a narrower query would pass over what the wider read has not seen.
        Err(Error::conflict(events, whole.then(|| Seen::token(self.events.len(), query))))
    }

    fn expect(&self, tag: &Tag, query: &Query, expect: &Expect) -> Result<()> {
        let events = self.stream(tag);
        let (holds, known) = match expect {
            Expect::Any => (true, 0),
            Expect::None => (events.is_empty(), 0),
            Expect::Version(version) => (*version == events.len() as u64, usize::try_from(*version).unwrap_or(usize::MAX)),
            Expect::Token(token) => {
                let head = place(Seen::same(token, query)?);
                let known = events.iter().filter(|event| event.position < head).count();
                (known == events.len(), known)
            }
        };
        if holds {
            return Ok(());
        }
        let behind = events.get(known..).unwrap_or_default().to_vec();
        Err(Error::conflict(behind, Some(Seen::token(self.events.len(), query))))
    }
}

#[async_trait]
impl EventLog for Memory {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let since = since.map(|token| Seen::same(token, query)).transpose()?.unwrap_or(0);
        let held = self.held();
        let head = held.events.last().map(|event| event.position);
        Ok(Sourced::new(held.matching(query, since), Seen::token(held.events.len(), query), head, Units::default()).at_one_instant(true))
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let Append { events, condition, commit, base } = append;
        self.commit(&mut self.held(), events, commit, base.as_ref(), |held, head| {
            let Some(condition) = condition else { return Ok(None) };
            held.judge(&condition)?;
            Ok(Some(Seen::token(head, &condition.query)))
        })
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        let seen: Seen = token.open(LAYOUT)?;
        Ok(Answer::new(self.held().matching(&seen.query()?, seen.head).is_empty(), Units::default()))
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let found = self.held().commits.get(&commit).map(|outcome| Committed { token: None, ..outcome.committed.clone() });
        Ok(Answer::new(found, Units::default()))
    }

    /// What is there when it is called: events appended meanwhile are not seen.
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let found = || -> Result<Vec<Recorded>> {
            let mut found = match options.direction {
                Direction::Forwards => self.held().matching(query, options.after.map(count).transpose()?.unwrap_or(0)),
                Direction::Backwards => self.held().matching(query, 0),
            };
            if let (Direction::Backwards, Some(after)) = (options.direction, options.after) {
                count(after)?;
                found.retain(|event| event.position < after);
            }
            Ok(pick(found, options.direction, options.limit))
        };
        deliver(found())
    }
}

fn deliver<'a>(found: Result<Vec<Recorded>>) -> BoxStream<'a, Result<Recorded>> {
    match found {
        Ok(events) => stream::iter(events.into_iter().map(Ok)).boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    }
}

fn stream_query(stream: &StreamName) -> Result<(Tag, Query)> {
    Ok((Tag::from(stream), Query::tag(stream)?))
}

#[async_trait]
impl StreamStore for Memory {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let (tag, query) = stream_query(stream)?;
        let since = options.since.as_ref().map(|token| Seen::same(token, &query)).transpose()?;
        let held = self.held();
        let mut events = held.stream(&tag);
        let version = events.len() as u64;
        let mut snapshots = Vec::new();
        match (since, &options.origin) {
            (Some(since), _) => events.retain(|event| event.position > Position::number(since as u64)),
            (None, Origin::Snapshot(names)) => {
                names.iter().try_for_each(|name| check_name("snapshot", name))?;
                let named = names.iter().filter_map(|name| held.snapshots.get(&(stream.clone(), name.clone())));
                if let Some(newest) = named.max_by_key(|snapshot| snapshot.version) {
                    events.retain(|event| event.version > Some(newest.version));
                    snapshots.push(newest.clone());
                }
            }
            (None, Origin::Start | Origin::Latest) => {}
        }
        if options.origin == Origin::Latest {
            events.drain(..events.len().saturating_sub(1));
        }
        Ok(Loaded::new(snapshots, events, version, Seen::token(held.events.len(), &query), Units::default()))
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        step.plain()?;
        let (tag, query) = stream_query(stream)?;
        step.snapshots.iter().try_for_each(|snapshot| check_name("snapshot", &snapshot.name))?;
        let events = step.events.into_iter().map(|event| event.with_tag(tag.clone())).collect();
        let held = &mut *self.held();
        let before = held.events.len();
        let mut committed = self.commit(held, events, step.commit, step.base.as_ref(), |held, head| {
            held.expect(&tag, &query, &step.expect)?;
            Ok((!matches!(step.expect, Expect::Any)).then(|| Seen::token(head, &query)))
        })?;
        let version = held.version_at(&tag, committed.last());
        committed.version = Some(version);
        // A repeat added no event, and its snapshot may be older than today's.
        if held.events.len() > before {
            for snapshot in step.snapshots {
                held.snapshots.insert((stream.clone(), snapshot.name.clone()), Snapshot { version, ..snapshot });
            }
        }
        Ok(committed)
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let (tag, held) = (Tag::from(stream), self.held());
        let Some(Outcome { committed, .. }) = held.commits.get(&commit) else { return Ok(Answer::new(None, Units::default())) };
        let last = committed.last();
        if !held.events.iter().any(|event| Some(event.position) == last && event.tags.contains(&tag)) {
            return Err(Refused::Foreign { what: "commit id", of: "a commit elsewhere".into(), here: format!("stream {stream}") }.into());
        }
        let found = Committed { token: None, version: Some(held.version_at(&tag, last)), ..committed.clone() };
        Ok(Answer::new(Some(found), Units::default()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let mut found = self.held().stream(&Tag::from(stream));
        if let Some(after) = options.after {
            found.retain(|event| match options.direction {
                Direction::Forwards => event.version > Some(after),
                Direction::Backwards => event.version < Some(after),
            });
        }
        deliver(Ok(pick(found, options.direction, options.limit)))
    }
}

/// One subscription: how many events it has passed, and of how many it has said that it caught up.
struct Following {
    memory: Memory,
    query: Query,
    passed: usize,
    told: Option<usize>,
    grown: watch::Receiver<usize>,
}

impl Following {
    async fn next(mut self) -> Option<(Result<Delivery>, Self)> {
        loop {
            let head = *self.grown.borrow_and_update();
            while self.passed < head {
                let event = self.memory.held().events[self.passed].clone();
                self.passed += 1;
                if self.query.matches(&event.event_type, &event.tags) {
                    let delivery = Delivery::Event { event: Box::new(event), checkpoint: self.checkpoint() };
                    return Some((Ok(delivery), self));
                }
            }
            if self.told != Some(self.passed) {
                self.told = Some(self.passed);
                return Some((Ok(Delivery::CaughtUp { checkpoint: self.checkpoint() }), self));
            }
            // The sender lives in `memory`, which this subscription holds.
            self.grown.changed().await.ok()?;
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::seal(LAYOUT, &self.passed)
    }
}

#[async_trait]
impl Feed for Memory {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        let grown = self.0.head.subscribe();
        let passed = match from {
            From::Start => Ok(0),
            From::Now => Ok(*grown.borrow()),
            From::Checkpoint(checkpoint) => checkpoint.open(LAYOUT).and_then(|passed| {
                let here = format!("this store, which has {}", *grown.borrow());
                let ahead = Refused::Foreign { what: "checkpoint", of: format!("event {passed}"), here };
                if passed <= *grown.borrow() { Ok(passed) } else { Err(ahead.into()) }
            }),
        };
        match passed {
            Ok(passed) => stream::unfold(Following { memory: self.clone(), query, passed, told: None, grown }, Following::next).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn shows(&self, position: Position) -> Result<bool> {
        Ok(count(position)? <= self.held().events.len())
    }

    async fn unshown_since(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }
}

/// Compare-and-set: stores the value if its revision is still the expected one.
fn put<K: Ord, V>(entries: &mut BTreeMap<K, (V, Revision)>, key: K, value: V, expect: Option<Revision>) -> Option<Revision> {
    let now = entries.get(&key).map(|(_, revision)| *revision);
    (now == expect).then(|| {
        let next = Revision(now.map_or(1, |revision| revision.0 + 1));
        entries.insert(key, (value, next));
        next
    })
}

#[async_trait]
impl Checkpoints for Memory {
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>> {
        check_name("consumer", consumer)?;
        Ok(self.held().checkpoints.get(consumer).cloned())
    }

    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("consumer", consumer)?;
        Ok(put(&mut self.held().checkpoints, consumer.into(), checkpoint.clone(), expect))
    }
}

#[async_trait]
impl States for Memory {
    async fn load(&self, name: &str, key: &str) -> Result<Option<(State, Revision)>> {
        check_name("state", name)?;
        check_key(key)?;
        Ok(self.held().states.get(&(name.into(), key.into())).cloned())
    }

    async fn save(&self, name: &str, key: &str, state: &State, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("state", name)?;
        check_key(key)?;
        Ok(put(&mut self.held().states, (name.into(), key.into()), state.clone(), expect))
    }
}

#[async_trait]
impl Cells for Memory {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        let held = self.held();
        Ok(held.cells.get(key).map(|(body, revision)| Cell { number: key.number(), body: body.clone(), revision: *revision }))
    }

    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        if body.len() > CELL_BYTES {
            return Err(Refused::TooLong { what: "cell", bytes: body.len(), limit: CELL_BYTES }.into());
        }
        Ok(put(&mut self.held().cells, key.clone(), body.clone(), expect))
    }

    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        let mut held = self.held();
        let is_it = held.cells.get(key).is_some_and(|(_, revision)| *revision == expect);
        if is_it {
            held.cells.remove(key);
        }
        Ok(is_it)
    }

    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        let cells = &mut self.held().cells;
        let fits = |write: &CellWrite| cells.get(write.key()).map(|(_, revision)| *revision) == write.expect();
        if !writes.iter().all(fits) {
            return Ok(false);
        }
        for write in writes {
            match write {
                CellWrite::Save { key, body, expect } => drop(put(cells, key.clone(), body.clone(), *expect)),
                CellWrite::Delete { key, .. } => drop(cells.remove(key)),
            }
        }
        Ok(true)
    }

    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        let first = CellKey::new(kind, name, 0)?;
        let held = self.held();
        let under = held.cells.range(first.clone()..=first.at(u64::MAX));
        Ok(under.map(|(key, (body, revision))| Cell { number: key.number(), body: body.clone(), revision: *revision }).collect())
    }
}
