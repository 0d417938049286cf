//! Moving data: what arrives is what left, whatever lies between, however often it is begun again, and wherever it was cut off.
//! Here the copies; beside them what is compared, what is killed, how much is under way, and files.

mod compared;
mod files;
mod ids;
mod killed;
mod pace;
#[path = "../support/mod.rs"]
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
    Feed, From, Memory, Metadata, Position, Query, ReadOptions, Reason, Recorded, Refused, Result, Revision, Sourced, Step, Store,
    StreamName, Timeouts, Token,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use killed::Dying;
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
