//! Appends under every fault that a service and a network can have: the outcome that the caller is told is the true one, and the
//! history has no duplicate and no loss. Faults come from a connector between the SDK and the embedded engine.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fencepost::testing::oracle::{self, Oracle};
use fencepost::testing::{Chances, Fault, Faults, Gate, Keep, Lag, Rule};
use fencepost::{
    Append, Engine, Error, Event, EventLog, EventLogExt, Expect, LoadOptions, Query, ReadOptions, Reason, Step, Store, StreamName, Timeouts,
};

/// A ledger behind a connector, and the same tables without it.
struct Bench {
    engine: Engine,
    faults: Faults,
    log: Arc<dyn EventLog>,
    feed: &'static str,
}

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };

impl Bench {
    async fn new(feed: &'static str) -> Bench {
        let engine = Engine::memory().expect("engine").keep_tokens();
        let faults = Faults::new(engine.http_client(), 1);
        let builder = Store::builder(&format!("memory:?feed={feed}")).expect("url").timeouts(QUICK).http_client(faults.http_client());
        let log = support::open(builder).await.log().expect("log");
        // The ends are remembered from here on, so the write is the only request.
        log.append(Append::new([event()])).await.expect("warm");
        Bench { engine, faults, log, feed }
    }

    async fn other(&self) -> Arc<dyn EventLog> {
        let builder = Store::builder(&format!("memory:?feed={}", self.feed)).expect("url").http_client(self.engine.http_client());
        support::open(builder).await.log().expect("log")
    }

    async fn recorded(&self) -> usize {
        self.faults.calm();
        self.other().await.read_all(&tag(), ReadOptions::default()).await.expect("read").len()
    }
}

fn event() -> Event {
    Event::new("T", "{}").and_then(|e| e.tag("a")).expect("event")
}

fn tag() -> Query {
    Query::tag("a").expect("query")
}

fn writes(feed: &str) -> &'static str {
    if feed == "streams" { "PutItem" } else { "TransactWriteItems" }
}

/// Every fault that passes: the append succeeds, and its event is there once.
async fn passes(fault: Fault) {
    passes_in(&["streams", "lanes-1"], fault).await;
}

async fn passes_in(feeds: &[&'static str], fault: Fault) {
    for &feed in feeds {
        let bench = Bench::new(feed).await;
        bench.faults.script(Rule::on(writes(feed)).nth(1).suffer(fault.clone()));
        let before = bench.faults.calls(writes(feed));
        let done = bench.log.append(Append::new([event()])).await;
        assert!(done.is_ok(), "{feed} {fault:?}: {done:?}");
        assert!(bench.faults.calls(writes(feed)) > before, "{feed} {fault:?}");
        assert_eq!(bench.recorded().await, 2, "{feed} {fault:?}");
    }
}

#[tokio::test]
async fn one_throttled_attempt_is_repeated() {
    passes(Fault::Throttle).await;
    passes(Fault::ThrottleAccount).await;
}
#[tokio::test]
async fn one_internal_error_is_repeated() {
    passes(Fault::InternalError).await;
}
#[tokio::test]
async fn one_lost_request_is_repeated() {
    passes(Fault::LoseRequest).await;
}
#[tokio::test]
async fn one_lost_answer_is_settled_by_the_commit_id() {
    passes(Fault::LoseResponse).await;
    passes(Fault::TimeOut).await;
}
#[tokio::test]
async fn one_truncated_answer_is_settled() {
    passes(Fault::Truncate).await;
}
#[tokio::test]
async fn one_duplicate_delivery_is_settled() {
    passes(Fault::DeliverTwice).await;
}
#[tokio::test]
async fn one_hang_ends_with_the_attempt() {
    passes(Fault::Hang).await;
}
#[tokio::test]
async fn one_transaction_conflict_is_repeated_and_is_no_conflict() {
    passes(Fault::Conflict).await;
}
#[tokio::test]
async fn a_transaction_in_progress_is_repeated() {
    passes_in(&["lanes-1"], Fault::InProgress).await;
}
#[tokio::test]
async fn a_spent_token_is_replaced() {
    passes_in(&["lanes-1"], Fault::TokenMismatch).await;
}

/// A fault that stays and delivers nothing: the caller hears that nothing was recorded, and nothing was.
#[tokio::test]
async fn what_stays_throttled_is_unavailable_and_recorded_nothing() {
    for feed in ["streams", "lanes-1"] {
        let bench = Bench::new(feed).await;
        bench.faults.script(Rule::on(writes(feed)).throttle());
        let answer = bench.log.append(Append::new([event()])).await;
        let Err(error) = answer else { panic!("{answer:?}") };
        assert!(matches!(&error, Error::Unavailable(u) if u.reason == Reason::Throttled), "{error:?}");
        assert!(error.recorded_nothing() && error.is_retryable());
        assert_eq!(bench.recorded().await, 1);
    }
}

/// Lost for good: the caller hears that it is in doubt, and the repeat from the base finds the truth, whichever it is.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for feed in ["streams", "lanes-1", "lanes-4"] {
        for (fault, landed) in
            [(Fault::LoseResponse, true), (Fault::LoseRequest, false), (Fault::InternalError, false), (Fault::Hang, false)]
        {
            let bench = Bench::new(feed).await;
            bench.faults.script(Rule::on(writes(feed)).suffer(fault.clone()));
            let answer = bench.log.append(Append::new([event()])).await;
            let Err(Error::InDoubt(doubt)) = answer else { panic!("{feed} {fault:?}: {answer:?}") };
            assert_eq!(bench.recorded().await, 1 + usize::from(landed), "{feed} {fault:?}");
            // Others go on meanwhile; then another process repeats, with the id and base as text.
            let other = bench.other().await;
            other.append(Append::new([event()])).await.expect("another's");
            let base = doubt.base.to_string().parse().expect("base");
            let first = other.append(Append::new([event()]).again(doubt.commit, base)).await.expect("again");
            let again = other.append(Append::new([event()]).again(doubt.commit, doubt.base.clone())).await.expect("and again");
            assert_eq!(first.positions, again.positions);
            assert_eq!(bench.recorded().await, 3, "{feed} {fault:?}");
            let different = Event::new("U", "{}").and_then(|e| e.tag("a")).expect("event");
            let reused = other.append(Append::new([different]).again(doubt.commit, doubt.base)).await;
            assert!(matches!(reused, Err(Error::Refused(_))), "{reused:?}");
        }
    }
}

/// A throttled answer after a lost one does not make the lost one undone.
#[tokio::test]
async fn a_doubt_is_not_forgotten_when_later_attempts_are_throttled() {
    let bench = Bench::new("streams").await;
    bench.faults.script(Rule::on("PutItem").nth(1).lose_response());
    bench.faults.script(Rule::on("PutItem").nth(2).throttle());
    bench.faults.script(Rule::on("PutItem").nth(3).throttle());
    bench.faults.script(Rule::on("PutItem").nth(4).throttle());
    let answer = bench.log.append(Append::new([event()])).await;
    assert!(matches!(answer, Err(Error::InDoubt(_))), "{answer:?}");
    assert_eq!(bench.recorded().await, 2);
}

/// The write landed and its answer was lost; the repeat shows it, but the outcome cannot be read: still in doubt, not undone.
#[tokio::test]
async fn a_doubt_is_not_forgotten_when_the_outcome_cannot_be_read() {
    for (feed, get) in [("streams", "GetItem"), ("lanes-1", "GetItem")] {
        let engine = Engine::memory().expect("engine");
        let faults = Faults::new(engine.http_client(), 1);
        let url = format!("memory:?feed={feed}");
        let open = || Store::builder(&url).expect("url").timeouts(QUICK);
        let log = support::open(open().http_client(faults.http_client())).await.log().expect("log");
        faults.script(Rule::on(writes(feed)).nth(1).lose_response());
        faults.script(Rule::on(get).internal_error());
        let answer = log.append(Append::new([event()])).await;
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{feed}: {answer:?}") };
        // While nothing can be read, a repeat does not know better.
        faults.script(Rule::on("Query").internal_error());
        let again = log.append(Append::new([event()]).again(doubt.commit, doubt.base.clone())).await;
        let Err(Error::InDoubt(still)) = again else { panic!("{feed}: {again:?}") };
        assert_eq!((still.commit, still.base), (doubt.commit, doubt.base.clone()));
        faults.calm();
        log.append(Append::new([event()]).again(doubt.commit, doubt.base)).await.expect("settled");
        assert_eq!(log.read_all(&tag(), ReadOptions::default()).await.expect("read").len(), 1);
    }
}

/// Past the ten minutes of the request token: only the commit id is left, and with hidden reasons only the look.
#[tokio::test]
async fn without_the_request_token_the_commit_id_settles() {
    for feed in ["lanes-1", "streams"] {
        for keep in [Keep::Last, Keep::Item(0)] {
            let engine = Engine::memory().expect("engine");
            let faults = Faults::new(engine.http_client(), 3);
            let url = format!("memory:?feed={feed}");
            let log = support::open(Store::builder(&url).expect("url").timeouts(QUICK).http_client(faults.http_client()))
                .await
                .log()
                .expect("log");
            let two = || Event::new("T", "{}").and_then(|e| e.tag("a")).and_then(|e| e.tag("b")).expect("event");
            faults.script(Rule::on("TransactWriteItems").nth(1).lose_response());
            faults.script(Rule::on("TransactWriteItems").nth(2).hide_reasons(keep));
            log.append(Append::new([two()])).await.expect("settled");
            assert_eq!(log.read_all(&tag(), ReadOptions::default()).await.expect("read").len(), 1);
        }
    }
}

/// The future of an append is dropped between the request and its answer: what was sent may land, and nothing remembered is wrong.
#[tokio::test]
async fn a_dropped_append_leaves_nothing_wrong_behind() {
    for feed in ["streams", "lanes-1"] {
        let bench = Bench::new(feed).await;
        bench.faults.script(Rule::on(writes(feed)).nth(1).suffer(Fault::LoseResponse));
        let gate = Gate::new();
        bench.faults.script(Rule::on(writes(feed)).nth(2).pause_before(&gate));
        tokio::select! {
            ended = bench.log.append(Append::new([event()])) => panic!("{ended:?}"),
            () = gate.reached(1) => {}
        }
        bench.faults.calm();
        bench.log.append(Append::new([event()])).await.expect("the next");
        assert_eq!(bench.recorded().await, 3);
    }
}

/// Commit ids given by the caller settle for ever, whoever asks.
#[tokio::test]
async fn a_given_commit_id_returns_the_first_outcome_under_lost_answers() {
    for feed in ["streams", "lanes-1"] {
        let bench = Bench::new(feed).await;
        let id = fencepost::Env::seeded(5).new_commit_id();
        bench.faults.script(Rule::on("TransactWriteItems").lose_response());
        let answer = bench.log.append(Append::new([event()]).commit(id)).await;
        assert!(matches!(answer, Err(Error::InDoubt(_))), "{answer:?}");
        bench.faults.calm();
        let other = bench.other().await;
        let first = other.append(Append::new([event()]).commit(id)).await.expect("first");
        other.append(Append::new([event()])).await.expect("between");
        // A condition that held then and does not now changes nothing: it was recorded.
        let again = other.append(Append::new([event()]).unless(tag(), fencepost::After::Nothing).commit(id)).await.expect("again");
        assert_eq!(first.positions, again.positions);
        assert_eq!(bench.recorded().await, 3);
    }
}

/// Reads under faults are right or errors, never short.
#[tokio::test]
async fn reads_are_repeated_or_fail() {
    let bench = Bench::new("lanes-1").await;
    for fault in [Fault::Throttle, Fault::InternalError, Fault::LoseRequest, Fault::LoseResponse, Fault::Truncate, Fault::Hang] {
        bench.faults.calm();
        bench.faults.script(Rule::on("Query").nth(1).suffer(fault.clone()));
        assert_eq!(bench.log.source(&tag(), None).await.expect("source").events.len(), 1, "{fault:?}");
    }
    bench.faults.script(Rule::on("Query").internal_error());
    let answer = bench.log.source(&tag(), None).await;
    assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Unreachable), "{answer:?}");
}

/// Eventually consistent reads lag behind by as much as the test likes: appends find their place, decisions see everything.
#[tokio::test]
async fn stale_reads_cost_a_try_and_never_an_event() {
    for feed in ["streams", "lanes-1"] {
        let (first, second) = (Engine::memory().expect("engine"), Engine::memory().expect("engine"));
        let lag = Lag::new(first.http_client(), second.http_client(), 1);
        let open = async || {
            let builder = Store::builder(&format!("memory:?feed={feed}")).expect("url").http_client(lag.http_client());
            support::open(builder).await
        };
        for round in 1..=6 {
            // A fresh handle each time remembers nothing, and its look for the ends is stale.
            let store = open().await;
            let log = store.log().expect("log");
            log.append(Append::new([event()])).await.expect("append");
            assert_eq!(log.source(&tag(), None).await.expect("source").events.len(), round, "{feed}");
            let stream = StreamName::new("a").expect("name");
            let loaded = store.streams().load(&stream, LoadOptions::default().eventual()).await.expect("load");
            assert!(loaded.events.len() <= round);
            if round % 3 == 0 {
                lag.apply_half().await;
            }
        }
        lag.apply_all().await;
        assert_eq!(open().await.log().expect("log").read_all(&tag(), ReadOptions::default().eventual()).await.expect("read").len(), 6);
    }
}

/// A large commit whose bodies lie in chunks that a stale read does not show yet.
#[tokio::test]
async fn chunks_and_homes_that_do_not_show_are_read_again_strongly() {
    let (first, second) = (Engine::memory().expect("engine"), Engine::memory().expect("engine"));
    let lag = Lag::new(first.http_client(), second.http_client(), 1);
    let store = support::open(Store::builder("memory:").expect("url").http_client(lag.http_client())).await;
    let log = store.log().expect("log");
    let large: Vec<Event> = (0..40).map(|_| Event::new("T", "y".repeat(3_000)).and_then(|e| e.tag("a")).expect("event")).collect();
    log.append(Append::new(large)).await.expect("append");
    let events = log.source(&tag(), None).await.expect("source").events;
    assert!(events.len() == 40 && events.iter().all(|e| e.data.len() == 3_000));
}

#[tokio::test]
async fn a_stream_append_keeps_its_version_under_lost_answers() {
    let bench = Bench::new("streams").await;
    let builder = Store::builder("memory:?feed=streams").expect("url").timeouts(QUICK).http_client(bench.faults.http_client());
    let streams = support::open(builder).await.streams();
    let name = StreamName::new("s").expect("name");
    for version in 0..5 {
        bench.faults.calm();
        bench.faults.script(Rule::on("PutItem").nth(1).lose_response());
        let step = Step::new([Event::new("T", "{}").expect("event")]).expect(Expect::Version(version));
        assert_eq!(streams.append(&name, step).await.expect("append").version, Some(version + 1));
    }
}

/// The oracle under a storm: many writers, random faults, and every commit checked against the whole history afterwards.
async fn storm(feed: &'static str, seed: u64) {
    let engine = Engine::memory().expect("engine").keep_tokens();
    let mut logs = Vec::new();
    let mut all = Vec::new();
    for writer in 0..3 {
        let faults = Faults::new(engine.http_client(), seed * 10 + writer);
        let mut builder = Store::builder(&format!("memory:?feed={feed}")).expect("url").timeouts(QUICK).http_client(faults.http_client());
        if feed == "streams" {
            builder = builder.index_types(support::indexed_types());
        }
        logs.push(support::open(builder).await.log().expect("log"));
        all.push(faults);
    }
    for faults in &all {
        faults.random(Chances {
            throttle: 0.03,
            lose_request: 0.02,
            lose_response: 0.04,
            deliver_twice: 0.03,
            conflict: 0.04,
            ..Chances::default()
        });
    }
    let options = Oracle { seed, writers: 6, rounds: 8, types_only: feed != "streams", all: feed != "streams", ..Oracle::default() };
    let report = oracle::run(&logs, options).await;
    assert!(report.is_ok(), "{feed} seed {seed}: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_in_a_storm_with_one_lane() {
    storm("lanes-1", 1).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_in_a_storm_with_four_lanes() {
    storm("lanes-4", 2).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_in_a_storm_in_streams_mode() {
    storm("streams", 3).await;
}

/// Of every layout: a repeat that gets no answer is as much in doubt as it was, whatever it expects; it is never told that nothing was recorded.
#[tokio::test]
async fn a_repeat_without_an_answer_stays_in_doubt() {
    let layouts = [
        ("feed=streams", "order-1"),
        ("feed=lanes-1", "order-1"),
        ("layout=equinox", "order-1"),
        ("layout=event-store-adapter-v3", "order-1"),
        ("layout=event-store-adapter-v5", "order-1"),
        ("layout=reventless&partition=order", "order:1"),
        ("layout=sekiban", "order:1"),
    ];
    for (parameters, name) in layouts {
        let engine = Engine::memory().expect("engine").keep_tokens();
        let faults = Faults::new(engine.http_client(), 1);
        let handle = async |http| {
            // Nothing hangs here, and a busy machine is waited for.
            let timeouts = Timeouts { attempts: 2, attempt: Duration::from_secs(10), ..QUICK };
            support::open(Store::builder(&format!("memory:?{parameters}")).expect("url").timeouts(timeouts).http_client(http)).await
        };
        let (store, name) = (handle(faults.http_client()).await, StreamName::new(name).expect("name"));
        let step = || {
            let step = Step::new([Event::new("T", "{}").expect("event")]).expect(Expect::Version(0));
            if parameters.contains("v3") { step.snapshot(fencepost::Snapshot::new("snapshot", "{}")) } else { step }
        };
        for write in ["PutItem", "UpdateItem", "TransactWriteItems"] {
            faults.script(Rule::on(write).lose_response());
        }
        let first = store.streams().append(&name, step()).await;
        let Err(Error::InDoubt(doubt)) = first else { panic!("{parameters}: {first:?}") };
        faults.calm();
        // Another process, which remembers nothing, repeats it: every way to look is closed.
        let lost = Faults::new(engine.http_client(), 1);
        let other = handle(lost.http_client()).await;
        lost.script(Rule::on_any().lose_request());
        for repeat in [step(), step().expect(Expect::Any)] {
            let again = other.streams().append(&name, repeat.again(doubt.commit, doubt.base.clone())).await;
            let Err(Error::InDoubt(still)) = again else { panic!("{parameters}: {again:?}") };
            assert_eq!(still.commit, doubt.commit);
        }
        lost.calm();
        let settled = other.streams().append(&name, step().again(doubt.commit, doubt.base)).await;
        assert_eq!(settled.unwrap_or_else(|error| panic!("{parameters}: {error}")).positions.len(), 1);
        assert_eq!(other.streams().load(&name, LoadOptions::default()).await.expect("load").events.len(), 1, "{parameters}");
    }
}
