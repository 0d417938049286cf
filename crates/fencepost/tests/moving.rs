//! Moving data: what arrives is what left, whatever lies between, however often it is begun again, and wherever it was cut off.
//! It is over 600 lines because copies, files and comparisons are tested on the same fixtures: logs that are killed, slow, or watched.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost::moving::{self, Copy, IN_FLIGHT, Party, Place};
use fencepost::testing::{Chances, Faults};
use fencepost::{
    Answer, Append, Capabilities, Checkpoint, Checkpoints, CommitId, Committed, Delivery, Engine, Env, Error, Event, EventLog, EventLogExt,
    Feed, From, Memory, Metadata, Position, Query, ReadOptions, Reason, Recorded, Refused, Result, Revision, Sourced, Store, Timeouts,
    Token,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use support::{Ground, open};
use uuid::Uuid;

fn party(memory: &Memory) -> Party {
    let shared = Arc::new(memory.clone());
    Party::new(memory.capabilities(), shared.clone()).log(shared.clone()).feed(shared)
}

fn quiet(_: u64) {}

/// Commits of one to five events over a few tags, with every kind of body and metadata.
async fn fill(log: &dyn EventLog, env: &Env, commits: usize) {
    for commit in 0..commits {
        let mut events = Vec::new();
        for n in 0..=env.below(5) {
            let bodies: [&[u8]; 9] =
                [b"{\"n\":1.50}", b"", b"\x00\xff\n", b" {\n}", b" 1 ", b"null", b"text", "{\"s\":\"é\\u0000\"}".as_bytes(), &[7; 3_000]];
            let body = bodies[usize::try_from(env.below(9)).expect("small")];
            let mut event = Event::new(format!("T{}", env.below(3)), body.to_vec()).expect("event");
            for _ in 0..env.below(4) {
                event = event.tag(format!("tag:{}", env.below(6))).expect("tag");
            }
            if n % 2 == 0 {
                let extra = BTreeMap::from([("k".to_owned(), serde_json::json!([1, {"a": commit}]))]);
                event = event.meta(Metadata { user: Some("ada".into()), schema: Some(2), extra, ..Metadata::default() });
            }
            if n % 3 == 0 {
                event = event.id(env.new_id());
            }
            events.push(event);
        }
        log.append(Append::new(events)).await.expect("appends");
    }
}

/// All that must arrive, by tag: events without one are under the empty name.
type Held = BTreeMap<String, Vec<(Uuid, String, Vec<u8>, Vec<String>, Metadata, jiff::Timestamp)>>;

fn held(events: &[Recorded]) -> Held {
    let mut held = Held::new();
    for event in events {
        let tags: Vec<String> = event.tags.iter().map(|tag| tag.to_string()).collect();
        let meta = Metadata { occurred: None, ..event.meta.clone() };
        let what = (event.id, event.event_type.to_string(), event.data.to_vec(), tags.clone(), meta, event.occurred_at());
        for tag in tags.into_iter().chain(event.tags.is_empty().then(String::new)) {
            held.entry(tag).or_default().push(what.clone());
        }
    }
    held
}

async fn all(log: &dyn EventLog) -> Vec<Recorded> {
    log.read_all(&Query::all(), ReadOptions::default()).await.expect("reads")
}

async fn store(parameters: &str) -> Store {
    open(Ground::fresh().builder(parameters)).await
}

async fn exported(from: impl Into<Party>, after: Option<Place>) -> Vec<u8> {
    moving::export(from, Query::all(), after).expect("begins").try_concat().await.expect("exports")
}

fn lines(file: &[u8]) -> BoxStream<'static, Result<Vec<u8>>> {
    let lines: Vec<_> = file.split(|byte| *byte == b'\n').map(|line| Ok(line.to_vec())).collect();
    stream::iter(lines).boxed()
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn everything_arrives_through_memory_one_lane_and_eight_and_back() {
    let (first, last) = (Memory::new(), Memory::new());
    fill(&first, &Env::seeded(1), 60).await;
    let (one, eight) = (store("feed=lanes-1").await, store("feed=lanes-8").await);
    let steps: [(Party, Party); 3] =
        [(party(&first), Party::from(&one)), (Party::from(&one), Party::from(&eight)), (Party::from(&eight), party(&last))];
    let begun = all(&first).await;
    for (number, (from, to)) in steps.into_iter().enumerate() {
        let copy = Copy::new(from, to, "there");
        assert_eq!(copy.plan().await.expect("a plan").resumes_after, None);
        let copied = is_send(copy.run(&quiet)).await.expect("copies");
        assert_eq!((copied.events, copied.commits, copied.split), (begun.len() as u64, 60, 0), "step {number}");
        let compared = is_send(copy.compare(&quiet)).await.expect("compares");
        assert!(compared.is_equal() && !compared.by_commits, "step {number}: {compared:?}");
        assert_eq!((compared.source, compared.destination, compared.equal), (copied.events, copied.events, copied.events));
    }
    assert_eq!(held(&all(&last).await), held(&begun));
    assert!(moving::compare(party(&first), party(&last), &quiet).await.expect("compares").is_equal());
    // One lane keeps the total order.
    let ids = |events: &[Recorded]| events.iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids(&all(&*one.log().expect("log")).await), ids(&begun));
}

#[tokio::test]
async fn a_destination_without_a_feed_is_looked_up_by_commits() {
    let from = Memory::new();
    fill(&from, &Env::seeded(2), 20).await;
    let to = store("feed=streams").await;
    let mut capabilities = to.capabilities();
    capabilities.feed = false;
    let copy = Copy::new(party(&from), Party::new(capabilities, to.checkpoints()).log(to.log().expect("log")), "there");
    let losses = copy.plan().await.expect("a plan").losses;
    for what in ["the comparison", "the feed", "total order", "conditions without a tag", "commits"] {
        assert!(losses.iter().any(|loss| loss.what == what), "{what} is not named: {losses:?}");
    }
    let copied = copy.run(&quiet).await.expect("copies");
    let compared = copy.compare(&quiet).await.expect("compares");
    assert!(compared.is_equal() && compared.by_commits, "{compared:?}");
    assert_eq!(compared.equal, copied.events);
    let tag = Query::tag("tag:1").expect("query");
    let there = to.log().expect("log").read_all(&tag, ReadOptions::default()).await.expect("reads");
    assert_eq!(held(&there)["tag:1"], held(&all(&from).await)["tag:1"]);
    fill(&from, &Env::seeded(16), 1).await;
    let bare = || Party::new(to.capabilities(), to.checkpoints()).log(to.log().expect("log"));
    let compared = moving::compare(party(&from), bare(), &quiet).await.expect("compares");
    assert!(compared.differing > 0 && compared.differences.iter().all(|difference| difference.fields == ["missing"]), "{compared:?}");
    // As a source it has no order to be read in.
    let refused = Copy::new(bare(), party(&Memory::new()), "back").plan().await.expect_err("refused");
    assert!(matches!(refused, Error::Refused(Refused::Unsupported { .. })), "{refused}");
}

/// The index of a destination in streams mode shows nothing while no indexer runs: the comparison must not take that for missing events.
#[tokio::test]
async fn through_an_index_all_comes_back_once_it_was_built() {
    let from = Memory::new();
    fill(&from, &Env::seeded(3), 30).await;
    let to = store("feed=streams").await;
    let there = Copy::new(party(&from), &to, "there");
    let copied = there.run(&quiet).await.expect("copies");
    let compared = there.compare(&quiet).await.expect("compares");
    assert!(compared.is_equal() && compared.by_commits, "{compared:?}");
    let back = Memory::new();
    let home = Copy::new(&to, party(&back), "back");
    assert!(home.plan().await.expect("a plan").losses.iter().any(|loss| loss.what == "what the index lacks"));
    to.index().expect("an index").run(&fencepost::IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    assert_eq!(home.run(&quiet).await.expect("copies").events, copied.events);
    assert!(home.compare(&quiet).await.expect("compares").is_equal());
    assert_eq!(held(&all(&back).await), held(&all(&from).await));
}

#[tokio::test]
async fn a_commit_with_more_tags_than_fit_is_split_and_counted() {
    let from = Memory::new();
    let wide = (0..150).map(|n| Event::new("T", "{}").and_then(|e| e.tag(format!("t{n}"))).expect("event"));
    EventLog::append(&from, Append::new(wide)).await.expect("appends");
    let to = store("feed=lanes-1").await;
    let copy = Copy::new(party(&from), &to, "there");
    let copied = copy.run(&quiet).await.expect("copies");
    assert_eq!((copied.events, copied.commits, copied.split), (150, 1, 1));
    assert!(copy.compare(&quiet).await.expect("compares").is_equal());
}

#[tokio::test]
async fn a_copy_goes_on_with_what_came_since() {
    let (from, to) = (Memory::new(), store("feed=lanes-1").await);
    fill(&from, &Env::seeded(3), 10).await;
    let copy = Copy::new(party(&from), &to, "there");
    let first = copy.run(&quiet).await.expect("copies").events;
    assert_eq!(copy.run(&quiet).await.expect("copies").events, 0);
    fill(&from, &Env::seeded(4), 10).await;
    assert_eq!(copy.plan().await.expect("a plan").resumes_after, Some(first));
    let second = copy.run(&quiet).await.expect("copies");
    assert_eq!((second.commits, second.total), (10, all(&from).await.len() as u64));
    assert!(copy.compare(&quiet).await.expect("compares").is_equal());
    assert_eq!(held(&all(&*to.log().expect("log")).await), held(&all(&from).await));
}

#[tokio::test]
async fn a_second_copy_at_the_same_time_is_noticed_and_doubles_nothing() {
    let (from, to) = (Memory::new(), Memory::new());
    fill(&from, &Env::seeded(18), 200).await;
    let copy = || Copy::new(party(&from), Dying::new(&to, i64::MAX, false).party(), "there");
    let (a, b) = (copy(), copy());
    let later = async {
        // Behind the first place that the other saves: in step they would save the same, and be as one.
        while all(&to).await.len() < 100 {
            tokio::task::yield_now().await;
        }
        b.run(&quiet).await
    };
    let (first, second) = futures::join!(a.run(&quiet), later);
    let refused = [first.err(), second.err()].into_iter().flatten().map(|error| error.to_string()).collect::<Vec<_>>();
    assert!(refused.len() == 1 && refused[0].contains("second copy"), "{refused:?}");
    copy().run(&quiet).await.expect("copies");
    assert_eq!(held(&all(&to).await), held(&all(&from).await));
}

#[tokio::test]
async fn events_that_come_during_the_comparison_are_for_the_next_run() {
    let (from, to) = (Memory::new(), Memory::new());
    fill(&from, &Env::seeded(5), 5).await;
    let copy = Copy::new(party(&from), party(&to), "there");
    copy.run(&quiet).await.expect("copies");
    fill(&from, &Env::seeded(6), 1).await;
    assert!(copy.compare(&quiet).await.expect("compares").is_equal());
    assert!(!moving::compare(party(&from), party(&to), &quiet).await.expect("compares").is_equal());
}

#[tokio::test]
async fn a_store_with_other_events_is_taken_only_when_asked_for() {
    let (from, to) = (Memory::new(), Memory::new());
    fill(&from, &Env::seeded(7), 5).await;
    fill(&to, &Env::seeded(8), 3).await;
    let others = all(&to).await.len() as u64;
    let refused = Copy::new(party(&from), party(&to), "there").run(&quiet).await.expect_err("refused");
    assert!(refused.to_string().contains("other events"), "{refused}");
    assert_eq!(all(&to).await.len() as u64, others);
    let copy = Copy::new(party(&from), party(&to), "there").into_existing();
    let copied = copy.run(&quiet).await.expect("copies");
    let compared = copy.compare(&quiet).await.expect("compares");
    assert!(compared.is_equal(), "{compared:?}");
    assert_eq!((compared.equal, compared.others), (copied.events, others));
}

/// What `change` does to one of three events on one tag, as the comparison tells it.
async fn told(change: impl Fn(Vec<Event>) -> Vec<Event>) -> Vec<Vec<&'static str>> {
    let event = |n: u128| {
        let meta = Metadata { occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() };
        Event::new("T", format!("{n}")).and_then(|e| e.tag("a")).expect("event").id(Uuid::from_u128(n)).meta(meta)
    };
    let (left, right) = (Memory::new(), Memory::new());
    let events: Vec<Event> = (1..=4).map(event).collect();
    EventLog::append(&left, Append::new(events.clone())).await.expect("appends");
    EventLog::append(&right, Append::new(change(events))).await.expect("appends");
    let compared = moving::compare(party(&left), party(&right), &quiet).await.expect("compares");
    assert_eq!(compared.differing, compared.differences.len() as u64);
    assert_eq!(compared.is_equal(), compared.differing == 0);
    compared.differences.into_iter().map(|difference| difference.fields).collect()
}

#[tokio::test]
async fn every_difference_is_named() {
    let second = |to: fn(Event) -> Event| {
        move |mut events: Vec<Event>| {
            events[1] = to(events[1].clone());
            events
        }
    };
    let other = |name: &str, body: &'static str, old: &Event| Event::new(name, body).expect("event").id(old.given_id().expect("id"));
    assert_eq!(told(|events| events).await, Vec::<Vec<&str>>::new());
    assert_eq!(told(second(|e| e.tag("b").expect("tag"))).await, [["tags"]]);
    assert_eq!(
        told(second(|e| e.meta(Metadata { user: Some("u".into()), occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() })))
            .await,
        [["metadata"]]
    );
    assert_eq!(told(second(|e| e.meta(Metadata { occurred: Some(jiff::Timestamp::MAX), ..Metadata::default() }))).await, [["time"]]);
    let body = |mut events: Vec<Event>| {
        events[1] = other("T", "x", &events[1]).tag("a").expect("tag").meta(events[1].metadata().clone());
        events
    };
    assert_eq!(told(body).await, [["body"]]);
    let kind = |mut events: Vec<Event>| {
        events[1] = other("U", "2", &events[1]).tag("a").expect("tag").meta(events[1].metadata().clone());
        events
    };
    assert_eq!(told(kind).await, [["type"]]);
    assert_eq!(
        told(|mut events| {
            events.remove(1);
            events
        })
        .await,
        [["missing"]]
    );
    assert_eq!(
        told(|mut events| {
            events.insert(1, Event::new("T", "").and_then(|e| e.tag("a")).expect("event"));
            events
        })
        .await,
        [["extra"]]
    );
    assert_eq!(
        told(|mut events| {
            events.swap(1, 2);
            events
        })
        .await,
        [["order"]]
    );
}

#[tokio::test]
async fn the_order_of_events_that_share_no_tag_is_no_difference() {
    let event = |n: u128| Event::new("T", "").and_then(|e| e.tag(format!("t{n}"))).expect("event").id(Uuid::from_u128(n));
    let meta = Metadata { occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() };
    let (left, right) = (Memory::new(), Memory::new());
    EventLog::append(&left, Append::new((0..50).map(|n| event(n).meta(meta.clone())))).await.expect("appends");
    EventLog::append(&right, Append::new((0..50).rev().map(|n| event(n).meta(meta.clone())))).await.expect("appends");
    let compared = moving::compare(party(&left), party(&right), &quiet).await.expect("compares");
    assert!(compared.is_equal() && compared.equal == 50, "{compared:?}");
}

/// A store that dies at one of its calls, before or after the call is carried out, and can then do nothing more.
#[derive(Debug, Clone)]
struct Dying {
    memory: Memory,
    left: Arc<AtomicI64>,
    /// Whether the last call is carried out.
    after: bool,
}

impl Dying {
    fn new(memory: &Memory, calls: i64, after: bool) -> Self {
        Self { memory: memory.clone(), left: Arc::new(AtomicI64::new(calls)), after }
    }
    fn party(&self) -> Party {
        // As a store that takes several commits at once.
        let mut capabilities = self.memory.capabilities();
        capabilities.counted_positions = false;
        let shared = Arc::new(self.clone());
        Party::new(capabilities, shared.clone()).log(shared).feed(Arc::new(self.memory.clone()))
    }
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        // Others get in between.
        tokio::task::yield_now().await;
        if left > 0 {
            return call.await;
        }
        if left == 0 && self.after {
            call.await?;
        }
        Err(Error::unavailable(Reason::Unreachable, "it died"))
    }
}

#[async_trait]
impl EventLog for Dying {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.memory.source(query, since).await
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        self.call(EventLog::append(&self.memory, append)).await
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.memory.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.call(EventLog::committed(&self.memory, commit)).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        EventLog::read(&self.memory, query, options)
    }
}

#[async_trait]
impl Checkpoints for Dying {
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>> {
        self.call(Checkpoints::load(&self.memory, consumer)).await
    }
    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>> {
        self.call(Checkpoints::save(&self.memory, consumer, checkpoint, expect)).await
    }
}

#[tokio::test]
async fn a_copy_killed_at_any_call_loses_and_doubles_nothing() {
    let from = Memory::new();
    fill(&from, &Env::seeded(9), 80).await;
    let expected = held(&all(&from).await);
    for after in [false, true] {
        for calls in 0.. {
            let to = Memory::new();
            let died = Copy::new(party(&from), Dying::new(&to, calls, after).party(), "there").run(&quiet).await.is_err();
            let copy = Copy::new(party(&from), party(&to), "there");
            copy.run(&quiet).await.expect("goes on");
            assert!(copy.compare(&quiet).await.expect("compares").is_equal(), "killed at call {calls}");
            assert_eq!(held(&all(&to).await), expected, "killed at call {calls}");
            if !died {
                assert!(calls >= 80, "it was killed at every call: {calls}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_import_killed_at_any_call_loses_and_doubles_nothing() {
    let from = Memory::new();
    fill(&from, &Env::seeded(10), 30).await;
    let (expected, file) = (held(&all(&from).await), exported(party(&from), None).await);
    for after in [false, true] {
        for calls in 0.. {
            let to = Memory::new();
            let died = moving::import(Dying::new(&to, calls, after).party(), lines(&file), &quiet).await.is_err();
            let imported = is_send(moving::import(party(&to), lines(&file), &quiet)).await.expect("imports");
            assert_eq!(imported.events + imported.repeated, all(&from).await.len() as u64);
            assert_eq!(held(&all(&to).await), expected, "killed at call {calls}");
            if !died {
                assert!(calls >= 60, "it was killed at every call: {calls}");
                break;
            }
        }
    }
}

/// A store that answers late and in any order, and tells how much was under way.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    env: Env,
    flying: Mutex<BTreeMap<usize, BTreeSet<String>>>,
    most: AtomicUsize,
    begun: AtomicUsize,
    /// Events behind which nothing is outstanding.
    told: AtomicUsize,
    /// Events read ahead of that, at most.
    ahead: AtomicUsize,
    read: AtomicUsize,
}

#[async_trait]
impl EventLog for Slow {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.memory.source(query, since).await
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let tags: BTreeSet<String> = append.events().iter().flat_map(|e| e.tags().iter().map(|tag| tag.to_string())).collect();
        {
            let mut flying = self.flying.lock().expect("lock");
            assert!(flying.values().all(|others| others.is_disjoint(&tags)), "two commits of one tag are under way");
            flying.insert(number, tags);
            self.most.fetch_max(flying.len(), Ordering::SeqCst);
        }
        // One of them takes very long.
        let long = if number == 5 { 20_000 } else { 0 };
        for _ in 0..self.env.below(20) + long {
            tokio::task::yield_now().await;
        }
        let done = EventLog::append(&self.memory, append).await;
        self.flying.lock().expect("lock").remove(&number);
        done
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.memory.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        EventLog::committed(&self.memory, commit).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        EventLog::read(&self.memory, query, options)
    }
}

/// The source of a copy into [`Slow`], which counts what is read.
#[derive(Debug)]
struct Watched(Memory, Arc<Slow>);

#[async_trait]
impl Feed for Watched {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        let slow = self.1.clone();
        let watch = move |delivery: &Result<Delivery>| {
            if let Ok(Delivery::Event { .. }) = delivery {
                let read = slow.read.fetch_add(1, Ordering::SeqCst) + 1;
                slow.ahead.fetch_max(read - slow.told.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        };
        self.0.subscribe(from, query).inspect(watch).boxed()
    }
    async fn shows(&self, position: Position) -> Result<bool> {
        self.0.shows(position).await
    }
}

async fn copied_slowly(commits: usize, tags: u64, counted: bool) -> (Memory, Arc<Slow>) {
    let env = Env::seeded(11);
    let from = Memory::new();
    for commit in 0..commits {
        let event = |n| Event::new("T", format!("{commit}.{n}")).and_then(|e| e.tag(format!("t{}", env.below(tags)))).expect("event");
        let events: Vec<_> = (0..10).map(event).collect();
        EventLog::append(&from, Append::new(events)).await.expect("appends");
    }
    let slow = Arc::new(Slow {
        memory: Memory::new(),
        env: Env::seeded(12),
        flying: Mutex::default(),
        most: AtomicUsize::new(0),
        begun: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        ahead: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
    });
    let mut capabilities: Capabilities = from.capabilities();
    capabilities.counted_positions = counted;
    let to = Party::new(capabilities, Arc::new(slow.memory.clone())).log(slow.clone()).feed(Arc::new(slow.memory.clone()));
    let watched = Party::new(from.capabilities(), Arc::new(from.clone())).feed(Arc::new(Watched(from.clone(), slow.clone())));
    let copy = Copy::new(watched, to, "there");
    let told = slow.clone();
    let told = move |events| told.told.store(usize::try_from(events).expect("small"), Ordering::SeqCst);
    copy.run(&told).await.expect("copies");
    (from, slow)
}

#[tokio::test]
async fn commits_that_share_no_tag_are_written_at_once_and_each_tag_keeps_its_order() {
    let (from, slow) = copied_slowly(300, 500, false).await;
    let most = slow.most.load(Ordering::SeqCst);
    assert!((4..=IN_FLIGHT).contains(&most), "{most} at once");
    assert_eq!(held(&all(&slow.memory).await), held(&all(&from).await));
    assert!(moving::compare(party(&from), party(&slow.memory), &quiet).await.expect("compares").is_equal());
}

#[tokio::test]
async fn a_store_that_counts_its_events_keeps_the_total_order() {
    let (from, slow) = copied_slowly(50, 500, true).await;
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
    let ids = |events: Vec<Recorded>| events.into_iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids(all(&slow.memory).await), ids(all(&from).await));
}

#[tokio::test]
async fn no_more_is_read_ahead_than_is_under_way() {
    let (_, slow) = copied_slowly(1_000, u64::MAX, false).await;
    assert_eq!(slow.read.load(Ordering::SeqCst), 10_000);
    assert_eq!(slow.most.load(Ordering::SeqCst), IN_FLIGHT);
    // What is under way, one commit that waits for its turn, and the first event of the next, by which the end of that one is known.
    let ahead = slow.ahead.load(Ordering::SeqCst);
    assert!(ahead <= (IN_FLIGHT + 1) * 10 + 1, "{ahead} events read ahead");
}

#[tokio::test]
async fn answers_that_are_lost_on_the_way_lose_and_double_nothing() {
    const IMPATIENT: Timeouts =
        Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 1 };
    let from = Memory::new();
    fill(&from, &Env::seeded(17), 60).await;
    for feed in ["lanes-1", "streams"] {
        let engine = Engine::memory().expect("an engine").keep_tokens();
        let faults = Faults::new(engine.http_client(), 1);
        let url = format!("memory:?feed={feed}");
        let mut failed = 0;
        loop {
            faults.calm();
            let builder = Store::builder(&url).expect("url").timeouts(IMPATIENT).http_client(faults.http_client());
            let to = open(builder).await;
            faults.random(Chances { throttle: 0.01, lose_request: 0.02, lose_response: 0.04, deliver_twice: 0.05, ..Chances::default() });
            match Copy::new(party(&from), &to, "there").run(&quiet).await {
                Ok(_) => break,
                Err(error) if error.is_retryable() && failed < 500 => failed += 1,
                Err(error) => panic!("after {failed} runs: {error}"),
            }
        }
        assert!(failed > 2, "{feed}: it failed only {failed} times");
        let to = open(Store::builder(&url).expect("url").http_client(engine.http_client())).await;
        let expected = held(&all(&from).await);
        for (tag, events) in expected.iter().filter(|(tag, _)| !tag.is_empty()) {
            let there = to.log().expect("log").read_all(&Query::tag(tag).expect("query"), ReadOptions::default()).await.expect("reads");
            assert_eq!(&held(&there)[tag], events, "{feed}: {tag}");
        }
    }
}

#[tokio::test]
async fn an_export_comes_back_whole_and_a_second_import_records_nothing() {
    let from = store("feed=lanes-8").await;
    fill(&*from.log().expect("log"), &Env::seeded(13), 40).await;
    let file = exported(&from, None).await;
    let events = all(&*from.log().expect("log")).await;
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), events.len());
    for feed in ["lanes-1", "lanes-8", "streams"] {
        let to = store(&format!("feed={feed}")).await;
        let first = moving::import(&to, lines(&file), &quiet).await.expect("imports");
        assert_eq!((first.events, first.commits, first.repeated), (events.len() as u64, 40, 0), "{feed}");
        let again = moving::import(&to, lines(&file), &quiet).await.expect("imports");
        assert_eq!((again.events, again.repeated), (0, events.len() as u64), "{feed}");
        let tag = Query::tag("tag:2").expect("query");
        let there = to.log().expect("log").read_all(&tag, ReadOptions::default()).await.expect("reads");
        assert_eq!(held(&there)["tag:2"], held(&events)["tag:2"], "{feed}");
        if feed != "streams" {
            assert!(moving::compare(&from, &to, &quiet).await.expect("compares").is_equal(), "{feed}");
        }
    }
}

#[tokio::test]
async fn an_export_cut_anywhere_goes_on_to_the_same_file() {
    let from = store("feed=lanes-1").await;
    fill(&*from.log().expect("log"), &Env::seeded(14), 6).await;
    let whole = exported(&from, None).await;
    assert!(whole.len() < 60_000);
    let to = Memory::new();
    for cut in (0..=whole.len()).step_by(97).chain([whole.len()]) {
        let (length, place) = moving::resume_at(&mut Cursor::new(&whole[..cut])).expect("resumes");
        let mut file = whole[..usize::try_from(length).expect("small")].to_vec();
        file.extend(exported(&from, place).await);
        assert!(file == whole, "cut at {cut}: {length} bytes kept, {} in all of {}", file.len(), whole.len());
        // And what is imported of a file cut short is not there twice once the whole is: nor is half a commit.
        let _ = moving::import(party(&to), lines(&whole[..cut]), &quiet).await;
    }
    moving::import(party(&to), lines(&whole), &quiet).await.expect("imports");
    assert_eq!(held(&all(&to).await), held(&all(&*from.log().expect("log")).await));
}

#[tokio::test]
async fn a_large_commit_is_found_whole_behind_many_blocks() {
    let from = Memory::new();
    let event = |n: usize| Event::new("T", vec![b'x'; 20_000]).and_then(|e| e.tag(format!("t{n}"))).expect("event");
    EventLog::append(&from, Append::new([event(0)])).await.expect("appends");
    EventLog::append(&from, Append::new((0..30).map(event))).await.expect("appends");
    let whole = exported(party(&from), None).await;
    let first = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let (length, place) = moving::resume_at(&mut Cursor::new(&whole[..whole.len() - 30_000])).expect("resumes");
    assert_eq!(length, first as u64);
    assert_eq!(exported(party(&from), place).await.len(), whole.len() - first);
    assert_eq!(moving::resume_at(&mut Cursor::new(&whole[..first - 1])).expect("resumes"), (0, None));
}

#[tokio::test]
async fn what_a_store_exported_is_not_imported_into_it() {
    for feed in ["lanes-1", "lanes-8"] {
        let from = store(&format!("feed={feed}")).await;
        fill(&*from.log().expect("log"), &Env::seeded(15), 5).await;
        let events = all(&*from.log().expect("log")).await.len();
        let tag = Query::tag("tag:3").expect("query");
        let part: Vec<u8> = moving::export(&from, tag, None).expect("begins").try_concat().await.expect("exports");
        for file in [exported(&from, None).await, part] {
            let error = moving::import(&from, lines(&file), &quiet).await.expect_err("refused");
            assert!(error.to_string().contains("this very store"), "{error}");
        }
        assert_eq!(all(&*from.log().expect("log")).await.len(), events, "{feed}");
    }
}

#[tokio::test]
async fn a_wrong_line_is_named_and_what_stands_before_it_is_recorded() {
    let to = Memory::new();
    let good = r#"{"type":"T","data":1,"id":"0191d7a0-0000-7000-8000-000000000001"}"#;
    let cases = [
        ("{", "line 3: EOF"),
        (r#"{"type":"T","data":1}"#, "line 3: it has no id"),
        (r#"{"type":"T","id":"0191d7a0-0000-7000-8000-000000000002","part":[2,3]}"#, "line 3: it is event 2 of 3"),
        (r#"{"type":"T","id":"0191d7a0-0000-7000-8000-000000000002","part":[1,3]}"#, "it ends within a commit, 1 events"),
    ];
    for (line, expected) in cases {
        let error = moving::import(party(&to), lines(format!("{good}\n\n{line}\n").as_bytes()), &quiet).await.expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(error, Error::Refused(Refused::Malformed { .. })));
    }
    assert_eq!(all(&to).await.len(), 1);
}
