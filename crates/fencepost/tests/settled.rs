//! Commits that were there before whoever asks: landed by a try whose answer was lost, by an earlier call, by another run of the same command, or
//! still on their way. Nobody is told that nothing was recorded of what may be, nothing lands once a conflict was told, and a repeat costs no more than
//! a look. The conformance cases a12 and t21 hold what a repeat's token and snapshot may claim.

mod support;

use std::time::Duration;

use fencepost::testing::{Fault, Faults, Gate, Rule};
use fencepost::{Append, CommitId, Engine, Error, Event, EventLogExt, Expect, From, Query, ReadOptions, Step, Store, StreamName, Timeouts};
use futures::StreamExt;

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_secs(10), operation: Duration::from_secs(20), attempts: 3 };
const MODES: [&str; 3] = ["streams", "lanes-1", "lanes-8"];

/// A ledger, and the same one behind a connector that fails.
struct Bench {
    engine: Engine,
    faults: Faults,
    mode: &'static str,
}

impl Bench {
    fn new(mode: &'static str) -> Bench {
        let engine = Engine::memory().expect("engine").keep_tokens();
        let faults = Faults::new(engine.http_client(), 1);
        Bench { engine, faults, mode }
    }
    async fn store(&self) -> Store {
        let builder = Store::builder(&format!("memory:?feed={}", self.mode)).expect("url");
        support::open(builder.timeouts(QUICK).http_client(self.engine.http_client())).await
    }
    async fn faulty(&self) -> Store {
        let builder = Store::builder(&format!("memory:?feed={}", self.mode)).expect("url");
        support::open(builder.timeouts(QUICK).http_client(self.faults.http_client())).await
    }
    async fn bodies(&self) -> Vec<String> {
        let events = self.store().await.log().expect("log").read_all(&tag(), ReadOptions::default()).await.expect("reads");
        events.iter().map(|event| String::from_utf8_lossy(&event.data).into_owned()).collect()
    }
}

fn event(body: &str) -> Event {
    Event::new("T", body.to_owned()).and_then(|event| event.tag("a")).expect("event")
}
/// Text that hardly compresses.
fn noise(seed: usize, length: usize) -> String {
    let chance = fencepost::Env::seeded(seed as u64);
    (0..length).map(|_| char::from(b'0' + chance.below(64) as u8)).collect::<String>().replace(['"', '\\'], "~")
}
fn tag() -> Query {
    Query::tag("a").expect("query")
}
fn id(n: u128) -> CommitId {
    CommitId(uuid::Uuid::from_u128(n))
}

/// Delivered twice, the second time tells of the first; where its outcome cannot be read, the commit is in doubt and not "not recorded".
#[tokio::test]
async fn a_commit_that_was_seen_is_never_told_as_not_recorded() {
    for mode in MODES {
        // Without the tokens of requests the second delivery is refused, by the first.
        let engine = Engine::memory().expect("engine");
        let faults = Faults::new(engine.http_client(), 1);
        let bench = Bench { engine, faults, mode };
        let log = bench.faulty().await.log().expect("log");
        log.append(Append::new([event("warm")]).commit(id(1))).await.expect("warm");
        bench.faults.script(Rule::on("TransactWriteItems").deliver_twice());
        bench.faults.script(Rule::on("GetItem").internal_error());
        let told = log.append(Append::new([event("x")]).commit(id(2))).await;
        let Err(Error::InDoubt(doubt)) = told else { panic!("{mode}: {told:?}") };
        bench.faults.calm();
        let again = log.append(Append::new([event("x")]).again(doubt.commit, doubt.base)).await.expect("settles");
        assert_eq!(again.commit, id(2));
        assert_eq!(bench.bodies().await, ["warm", "x"], "{mode}");

        // The same of a repeat without a base, which meets a conflict first.
        let token = log.source(&tag(), None).await.expect("source").token;
        log.append(Append::new([event("y")]).unless(tag(), &token).commit(id(3))).await.expect("y");
        log.append(Append::new([event("z")])).await.expect("z");
        let fresh = bench.faulty().await.log().expect("log");
        fresh.source(&tag(), None).await.expect("knows the end");
        bench.faults.script(Rule::on("GetItem").nth(2).times(10).internal_error());
        let told = fresh.append(Append::new([event("y")]).unless(tag(), &token).commit(id(3))).await;
        assert!(matches!(told, Err(Error::InDoubt(_))), "{mode}: {told:?}");
        bench.faults.calm();
    }
}

/// The answer was lost, and what is in the way cannot be read: that is no reason to say that nothing was recorded.
#[tokio::test]
async fn a_doubt_outlives_what_cannot_be_decoded() {
    let bench = Bench::new("streams");
    let (log, other) = (bench.faulty().await.log().expect("log"), bench.store().await.log().expect("log"));
    log.append(Append::new([event("warm")])).await.expect("warm");
    let token = log.source(&tag(), None).await.expect("source").token;
    // Its try is on its way; another one takes the slot, and is damaged there.
    let gate = Gate::new();
    bench.faults.script(Rule::on("PutItem").nth(1).suffer(Fault::DeliverLate(gate.clone())));
    bench.faults.script(Rule::on("PutItem").nth(2).pause_before(&gate));
    let append = tokio::spawn(async move { log.append(Append::new([event("x")]).unless(tag(), &token)).await });
    gate.reached(2).await;
    other.append(Append::new([event("other")])).await.expect("other");
    let items = bench.engine_client().scan().table_name("fencepost").send().await.expect("scan");
    let slot = items.items().iter().find(|item| item.get("v").is_some_and(|v| v.as_n() == Ok(&"2".to_owned()))).expect("slot 2").clone();
    let mut damaged = slot;
    damaged.remove("e");
    damaged.insert("e".into(), aws_sdk_dynamodb::types::AttributeValue::S("damaged".into()));
    bench.engine_client().put_item().table_name("fencepost").set_item(Some(damaged)).send().await.expect("damage");
    gate.open();
    let told = append.await.expect("runs");
    assert!(matches!(told, Err(Error::InDoubt(_))), "{told:?}");
}

/// A request that is still on its way when its conflict is told never lands.
#[tokio::test]
async fn what_was_told_as_a_conflict_never_lands() {
    for mode in MODES {
        for wide in [false, true] {
            let bench = Bench::new(mode);
            let (log, other) = (bench.faulty().await.log().expect("log"), bench.store().await.log().expect("log"));
            log.append(Append::new([event("warm")])).await.expect("warm");
            let token = log.source(&tag(), None).await.expect("source").token;
            let late = Gate::new();
            let held = Gate::new();
            let ours = |body: &str| if wide { event(body).tag("b").expect("tag") } else { event(body) };
            let write = if mode == "streams" && !wide { "PutItem" } else { "TransactWriteItems" };
            bench.faults.script(Rule::on(write).nth(1).suffer(Fault::DeliverLate(late.clone())));
            bench.faults.script(Rule::on(write).nth(2).pause_before(&held));
            let (x, held_token) = (ours("x"), token.clone());
            let append = tokio::spawn(async move { log.append(Append::new([x]).unless(tag(), &held_token)).await });
            held.reached(1).await;
            other.append(Append::new([event("other")])).await.expect("other");
            held.open();
            let told = append.await.expect("runs");
            assert!(matches!(told, Err(Error::Conflict(_))), "{mode} {wide}: {told:?}");
            late.open();
            late.came_through(1).await;
            assert_eq!(bench.bodies().await, ["warm", "other"], "{mode} {wide}");
        }
    }
}

/// A create that is refused costs a page, however long the stream is: by a store that knows its end and by one that does not.
#[tokio::test]
async fn a_refused_create_does_not_read_the_stream() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let store = bench.store().await;
        let stream = StreamName::new("long-1").expect("name");
        for n in 0..60 {
            let events = (0..60).map(|m| Event::new("T", noise(n * 60 + m, 900)).expect("event"));
            store.streams().append(&stream, Step::new(events)).await.expect("grows");
        }
        for store in [store, bench.store().await] {
            for expect in [Expect::None, Expect::Version(0)] {
                let step = Step::new([event("new")]).expect(expect.clone());
                let told = store.streams().append(&stream, step).await;
                let Err(Error::Conflict(conflict)) = told else { panic!("{mode}: {told:?}") };
                assert!(!conflict.events.is_empty(), "{mode}: a conflict names what it met");
                assert!(conflict.units.read < 300.0, "{mode} {expect:?}: {}", conflict.units);
            }
        }
    }
}

/// A repeat of a large commit under its id is told without its chunks being written once more.
#[tokio::test]
async fn a_repeat_of_a_large_commit_writes_nothing() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let store = bench.store().await;
        let many = || (0..300).map(|n| event(&noise(n, 2_000))).collect::<Vec<_>>();
        let first = store.log().expect("log").append(Append::new(many()).commit(id(7))).await.expect("first");
        assert!(first.units.write > 20.0, "{}", first.units);
        for store in [store, bench.store().await] {
            let again = store.log().expect("log").append(Append::new(many()).commit(id(7))).await.expect("again");
            assert_eq!(again.positions, first.positions);
            assert_eq!(again.units.write, 0.0, "{mode}: {}", again.units);
        }
    }
}

/// "From now on" is a cut that nothing reaches over: where a commit follows one on another lane, both are in it or the first is not alone in being
/// left out. Lanes are read one after the other, and two commits come in between.
#[tokio::test]
async fn from_now_on_leaves_no_gap_in_a_tag() {
    let bench = Bench::new("lanes-2");
    // A handle keeps to one lane, drawn by chance: of so many both have some.
    for n in 0..12 {
        bench.store().await.log().expect("log").append(Append::new([event(&format!("warm {n}"))])).await.expect("warm");
    }
    let gate = Gate::new();
    bench.faults.script(Rule::on("Query").holding("l/main/1").nth(1).pause_before(&gate));
    let follower = bench.faulty().await;
    let mut feed = follower.feed().expect("feed").subscribe(From::Now, tag());
    let first = tokio::spawn(async move {
        let mut bodies = Vec::new();
        while let Some(next) = feed.next().await {
            if let fencepost::Delivery::Event { event, .. } = next.expect("feed") {
                let body = String::from_utf8_lossy(&event.data).into_owned();
                let end = body == "end";
                bodies.push(body);
                if end {
                    return bodies;
                }
            }
        }
        bodies
    });
    gate.reached(1).await;
    // Between the reads of the two lanes: many commits on one tag, on both lanes.
    let mut between = Vec::new();
    for n in 0..12 {
        let body = format!("between {n}");
        bench.store().await.log().expect("log").append(Append::new([event(&body)])).await.expect("between");
        between.push(body);
    }
    gate.open();
    // As many ends as it takes until it has begun: those before that are in the cut.
    let other = bench.store().await.log().expect("log");
    for _ in 0..2_000 {
        if first.is_finished() {
            break;
        }
        other.append(Append::new([event("end")])).await.expect("end");
        fencepost::Env::system().sleep(Duration::from_millis(10)).await;
    }
    let mut told = tokio::time::timeout(Duration::from_secs(20), first).await.expect("in time").expect("runs");
    assert_eq!(told.pop().as_deref(), Some("end"));
    assert!(between.ends_with(&told), "a suffix, without a gap: {told:?}");
}

impl Bench {
    fn engine_client(&self) -> aws_sdk_dynamodb::Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .region(aws_sdk_dynamodb::config::Region::new("local"))
            .credentials_provider(aws_sdk_dynamodb::config::Credentials::for_tests())
            .http_client(self.engine.http_client());
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }
}
