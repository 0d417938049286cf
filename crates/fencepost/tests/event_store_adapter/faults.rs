//! Appends under every fault that a service and a network can have: what the caller is told is true, nothing is doubled or lost.

use std::sync::Arc;
use std::time::Duration;

use fencepost::testing::{Chances, Fault, Faults, Gate, Keep, Rule};
use fencepost::{CommitId, Engine, Env, Error, Expect, LoadOptions, Metadata, Reason, Snapshot, Step, Store, StreamStore, Timeouts};

use super::support::open;
use super::{BOTH, V3, V5, event, first, name};

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };
const WRITE: &str = "TransactWriteItems";

/// A store behind a connector, with one event in a stream whose end it remembers; and the same tables without the connector.
struct Bench {
    engine: Engine,
    faults: Faults,
    streams: Arc<dyn StreamStore>,
    layout: String,
}

impl Bench {
    async fn new(layout: &str) -> Bench {
        Bench::on(Engine::memory().expect("engine").keep_tokens(), layout).await
    }

    async fn on(engine: Engine, layout: &str) -> Bench {
        let faults = Faults::new(engine.http_client(), 1);
        let builder = Store::builder(&format!("memory:?{layout}")).expect("url").timeouts(QUICK).http_client(faults.http_client());
        let streams = open(builder).await.streams();
        streams.append(&name("user-a"), first([event("A", "0")])).await.expect("warm");
        Bench { engine, faults, streams, layout: layout.into() }
    }

    async fn other(&self) -> Arc<dyn StreamStore> {
        let builder = Store::builder(&format!("memory:?{}", self.layout)).expect("url").http_client(self.engine.http_client());
        open(builder).await.streams()
    }

    async fn recorded(&self) -> usize {
        self.faults.calm();
        let loaded = self.other().await.load(&name("user-a"), LoadOptions::default()).await.expect("loads");
        assert_eq!(loaded.version, loaded.events.len() as u64);
        loaded.events.len()
    }
}

fn strict(layout: &str) -> String {
    format!("{layout}&strict=true")
}

fn two() -> Step {
    Step::new([event("A", "1"), event("B", "2")])
}

/// Every fault that passes: the append succeeds, and its events are there once, whatever was expected.
#[tokio::test]
async fn what_passes_is_repeated_or_settled() {
    let faults = [
        Fault::Throttle,
        Fault::ThrottleAccount,
        Fault::InternalError,
        Fault::LoseRequest,
        Fault::LoseResponse,
        Fault::TimeOut,
        Fault::Truncate,
        Fault::DeliverTwice,
        Fault::Conflict,
        Fault::InProgress,
        Fault::TokenMismatch,
    ];
    for layout in [V3.to_owned(), V5.to_owned(), strict(V3), strict(V5)] {
        for fault in &faults {
            for expect in [Expect::Any, Expect::Version(1)] {
                let bench = Bench::new(&layout).await;
                bench.faults.script(Rule::on(WRITE).nth(1).suffer(fault.clone()));
                let step = Step::new([event("A", "1")]).expect(expect.clone());
                let done = bench.streams.append(&name("user-a"), step).await;
                assert_eq!(done.expect("appends").version, Some(2), "{layout} {fault:?} {expect:?}");
                assert_eq!(bench.recorded().await, 2, "{layout} {fault:?} {expect:?}");
            }
        }
    }
}

/// A transaction that met another is no conflict of ours, unless the other has won.
#[tokio::test]
async fn a_transaction_conflict_is_told_from_a_conflict() {
    for layout in BOTH {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(WRITE).times(5).conflict());
        let done = bench.streams.append(&name("user-a"), two().expect(Expect::Version(1))).await.expect("appends");
        assert_eq!((done.version, bench.faults.calls(WRITE)), (Some(3), 1 + 6 + usize::from(layout == V5)), "{layout}");
        bench.faults.script(Rule::on(WRITE).conflict());
        let quick = Timeouts { operation: Duration::from_secs(1), ..QUICK };
        let url = format!("memory:?{layout}");
        let hasty = open(Store::builder(&url).expect("url").timeouts(quick).http_client(bench.faults.http_client()).create(false));
        bench.faults.calm();
        let hasty = hasty.await.streams();
        bench.faults.script(Rule::on(WRITE).conflict());
        let answer = hasty.append(&name("user-a"), two().expect(Expect::Version(3))).await;
        assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Unreachable), "{layout}: {answer:?}");
    }
}

#[tokio::test]
async fn what_stays_throttled_is_unavailable_and_recorded_nothing() {
    for layout in BOTH {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(WRITE).throttle());
        let answer = bench.streams.append(&name("user-a"), two()).await;
        assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Throttled), "{answer:?}");
        assert_eq!(bench.recorded().await, 1);
    }
}

/// Lost for good: in doubt, and the repeat from the base finds the truth, whichever it is, while others go on.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for layout in BOTH {
        for given in [None, Some(CommitId::of_key("given"))] {
            for (fault, landed) in [(Fault::LoseResponse, 2), (Fault::LoseRequest, 0), (Fault::InternalError, 0), (Fault::Hang, 0)] {
                let bench = Bench::new(layout).await;
                let told = format!("{layout} {fault:?} {given:?}");
                let step = || given.into_iter().fold(two(), Step::commit);
                if given.is_some() {
                    // The side table is there: its making is not the matter here.
                    bench
                        .streams
                        .append(&name("user-b"), first([event("A", "0")]).commit(CommitId::of_key("other")))
                        .await
                        .expect("appends");
                }
                bench.faults.script(Rule::on(WRITE).suffer(fault.clone()));
                let answer = bench.streams.append(&name("user-a"), step()).await;
                let Err(Error::InDoubt(doubt)) = answer else { panic!("{told}: {answer:?}") };
                assert_eq!(bench.recorded().await, 1 + landed, "{told}");
                let other = bench.other().await;
                other.append(&name("user-a"), Step::new([event("A", "another's")])).await.expect("another's");
                let base = doubt.base.to_string().parse().expect("base");
                let settled = other.append(&name("user-a"), two().again(doubt.commit, base)).await.expect("again");
                let again = other.append(&name("user-a"), two().again(doubt.commit, doubt.base.clone())).await.expect("and again");
                assert_eq!((&settled.positions, settled.version), (&again.positions, again.version), "{told}");
                assert_eq!(settled.version, Some(if landed > 0 { 3 } else { 4 }), "{told}");
                assert_eq!(bench.recorded().await, 4, "{told}");
                let different = Step::new([event("A", "other"), event("B", "2")]).again(doubt.commit, doubt.base.clone());
                let reused = other.append(&name("user-a"), different).await;
                assert!(matches!(reused, Err(Error::Refused(_))), "{told}: {reused:?}");
                let elsewhere = other.append(&name("user-b"), two().again(doubt.commit, doubt.base)).await;
                assert!(matches!(elsewhere, Err(Error::Refused(_))), "{told}: {elsewhere:?}");
            }
        }
    }
}

/// Under `strict` nothing of ours is in the tables: an append that was lost is told by its time, and where the caller gave that too by the
/// body; one that says the same stays in doubt once the request token is forgotten. An id of the caller's settles it there too.
#[tokio::test]
async fn under_strict_a_doubt_stays_unless_the_caller_gave_an_id() {
    for layout in BOTH.map(strict) {
        let one = || Step::new([event("A", "1")]);
        let occurred = "2026-01-02T03:04:05Z".parse().ok();
        let timed = || Step::new([event("A", "1").meta(Metadata { occurred, ..Metadata::default() })]);
        let bench = Bench::new(&layout).await;
        bench.faults.script(Rule::on(WRITE).lose_response());
        let Err(Error::InDoubt(doubt)) = bench.streams.append(&name("user-a"), one()).await else { panic!("{layout}") };
        bench.faults.calm();
        let again = bench.streams.append(&name("user-a"), one().again(doubt.commit, doubt.base)).await;
        assert_eq!((again.expect("found").version, bench.recorded().await), (Some(2), 2), "{layout}");

        let bench = Bench::new(&layout).await;
        bench.faults.script(Rule::on(WRITE).lose_response());
        let Err(Error::InDoubt(doubt)) = bench.streams.append(&name("user-a"), timed()).await else { panic!("{layout}") };
        bench.faults.calm();
        let again = bench.other().await.append(&name("user-a"), timed().again(doubt.commit, doubt.base)).await;
        assert_eq!((again.expect("its request token tells").version, bench.recorded().await), (Some(2), 2), "{layout}");

        // The token tells nothing of another's who says the same; nor, after ten minutes, of ours: as of an engine that forgets them.
        for (forgets, lost) in [(false, Rule::on(WRITE).lose_request()), (true, Rule::on(WRITE).lose_response())] {
            let bench = if forgets { Bench::on(Engine::memory().expect("engine"), &layout).await } else { Bench::new(&layout).await };
            bench.faults.script(lost);
            let Err(Error::InDoubt(doubt)) = bench.streams.append(&name("user-a"), timed()).await else { panic!("{layout}") };
            bench.faults.calm();
            if !forgets {
                bench.other().await.append(&name("user-a"), timed()).await.expect("another's");
            }
            let again = bench.streams.append(&name("user-a"), timed().again(doubt.commit, doubt.base)).await;
            assert!(matches!(again, Err(Error::InDoubt(_))), "{layout}: {again:?}");
            assert_eq!(bench.recorded().await, 2, "{layout}: nothing is doubled");
        }

        let bench = Bench::new(&layout).await;
        bench.faults.script(Rule::on(WRITE).lose_request());
        let Err(Error::InDoubt(doubt)) = bench.streams.append(&name("user-a"), one()).await else { panic!("{layout}") };
        bench.faults.calm();
        bench.streams.append(&name("user-a"), Step::new([event("A", "another's")])).await.expect("another's");
        let done = bench.streams.append(&name("user-a"), one().again(doubt.commit, doubt.base)).await.expect("it is not there");
        assert_eq!((done.version, bench.recorded().await), (Some(3), 3), "{layout}");

        let bench = Bench::new(&layout).await;
        let id = CommitId::of_key("mine");
        bench.streams.append(&name("user-b"), first([event("A", "0")]).commit(CommitId::of_key("other"))).await.expect("appends");
        bench.faults.script(Rule::on(WRITE).lose_response());
        let Err(Error::InDoubt(_)) = bench.streams.append(&name("user-a"), one().commit(id)).await else { panic!("{layout}") };
        bench.faults.calm();
        assert_eq!(bench.streams.append(&name("user-a"), one().commit(id)).await.expect("found").version, Some(2));
        assert_eq!(bench.recorded().await, 2, "{layout}");
    }
}

/// Past the ten minutes of the request token, with all reasons but one hidden: the commit's time settles, and another's event is no success.
#[tokio::test]
async fn without_the_request_token_the_time_settles() {
    for layout in BOTH {
        for keep in [Keep::Last, Keep::Item(0), Keep::Item(1)] {
            let engine = Engine::memory().expect("engine");
            let faults = Faults::new(engine.http_client(), 3);
            let url = format!("memory:?{layout}");
            let open_one =
                async || open(Store::builder(&url).expect("url").timeouts(QUICK).http_client(faults.http_client())).await.streams();
            let streams = open_one().await;
            streams.append(&name("user-a"), first([event("A", "0")])).await.expect("warm");
            for expect in [Expect::Version(1), Expect::Any] {
                faults.calm();
                let before = streams.load(&name("user-a"), LoadOptions::default()).await.expect("loads").version;
                faults.script(Rule::on(WRITE).nth(1).lose_response());
                faults.script(Rule::on(WRITE).nth(2).hide_reasons(keep));
                let done = streams.append(&name("user-a"), two().expect(expect.clone())).await;
                assert_eq!(done.expect("settled").version, Some(before + 2), "{layout} {keep:?} {expect:?}");
            }
            faults.calm();
            let fresh = open_one().await;
            assert_eq!(fresh.load(&name("user-a"), LoadOptions::default()).await.expect("loads").version, 5, "{layout} {keep:?}");
            faults.script(Rule::on(WRITE).nth(1).lose_request());
            faults.script(Rule::on(WRITE).nth(2).hide_reasons(keep));
            let late = fresh.append(&name("user-a"), two().expect(Expect::Version(3))).await;
            assert!(late.is_err_and(|error| error.is_conflict()), "{layout} {keep:?}");
        }
    }
}

/// The future of an append is dropped between the request and its answer: what was sent may land, and nothing remembered is wrong.
#[tokio::test]
async fn a_dropped_append_leaves_nothing_wrong_behind() {
    for layout in BOTH {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(WRITE).nth(1).lose_response());
        let gate = Gate::new();
        bench.faults.script(Rule::on(WRITE).nth(2).pause_before(&gate));
        let stream = name("user-a");
        tokio::select! {
            ended = bench.streams.append(&stream, two()) => panic!("{layout}: {ended:?}"),
            () = gate.reached(1) => {}
        }
        bench.faults.calm();
        bench.streams.append(&name("user-a"), two()).await.expect("the next");
        assert_eq!(bench.recorded().await, 5);
    }
}

/// Reads under faults are right or errors, never short.
#[tokio::test]
async fn reads_are_repeated_or_fail() {
    for layout in BOTH {
        let bench = Bench::new(layout).await;
        for fault in [Fault::Throttle, Fault::InternalError, Fault::LoseRequest, Fault::LoseResponse, Fault::Truncate, Fault::Hang] {
            bench.faults.calm();
            bench.faults.script(Rule::on_any().nth(1).suffer(fault.clone()));
            let loaded = bench.streams.load(&name("user-a"), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
            assert_eq!((loaded.version, loaded.snapshots.len()), (1, 1), "{layout} {fault:?}");
        }
        bench.faults.calm();
        bench.faults.script(Rule::on_any().internal_error());
        let answer = bench.streams.load(&name("user-a"), LoadOptions::default()).await;
        assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Unreachable), "{answer:?}");
    }
}

/// Many writers under a storm: each is told the truth, versions are dense, every commit that was acknowledged is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_storm_every_writer_is_told_the_truth() {
    // As DynamoDB does, an engine knows a request again by its token; and one that does not, as after ten minutes: every lost answer is settled
    // by what is in the tables. A request that the network delivers twice is no lost answer: only a token tells it.
    for (layout, deliver_twice) in BOTH.into_iter().flat_map(|layout| [(layout, 0.03), (layout, 0.0)]) {
        let engine = Engine::memory().expect("engine");
        let engine = if deliver_twice > 0.0 { engine.keep_tokens() } else { engine };
        let mut writers = Vec::new();
        for writer in 0..6u64 {
            let faults = Faults::new(engine.http_client(), 10 + writer);
            let builder =
                Store::builder(&format!("memory:?{layout}&keep=2")).expect("url").timeouts(QUICK).http_client(faults.http_client());
            let streams = open(builder).await.streams();
            faults.random(Chances {
                throttle: 0.03,
                lose_request: 0.03,
                lose_response: 0.05,
                deliver_twice,
                conflict: 0.05,
                hide_reasons: 0.1,
                ..Chances::default()
            });
            writers.push(tokio::spawn(async move {
                let (env, mut told) = (Env::seeded(writer), Vec::new());
                for n in 0..8 {
                    let label = format!("{writer}.{n}");
                    let events = [event("A", &label), event("B", &label)];
                    let mut step = Step::new(events).snapshot(Snapshot::new("snapshot", label.clone()));
                    if env.below(2) == 0 {
                        let version = streams.load(&name("user-a"), LoadOptions::default().latest()).await.expect("loads").version;
                        step = step.expect(Expect::Version(version));
                    }
                    let mut answer = streams.append(&name("user-a"), step.clone()).await;
                    while let Err(Error::InDoubt(doubt)) = answer {
                        answer = streams.append(&name("user-a"), step.clone().again(doubt.commit, doubt.base)).await;
                    }
                    match answer {
                        Ok(done) => told.push((label, done.version)),
                        Err(Error::Conflict(_)) | Err(Error::Unavailable(_)) => {}
                        Err(other) => panic!("{layout}: {other:?}"),
                    }
                }
                told
            }));
        }
        let mut told = Vec::new();
        for writer in writers {
            told.extend(writer.await.expect("no panic"));
        }
        let calm = open(Store::builder(&format!("memory:?{layout}")).expect("url").http_client(engine.http_client())).await;
        let events = calm.streams().load(&name("user-a"), LoadOptions::default()).await.expect("loads").events;
        assert_eq!(events.iter().filter_map(|e| e.version).collect::<Vec<_>>(), (1..=events.len() as u64).collect::<Vec<_>>());
        let mut there: Vec<_> =
            events.chunks(2).map(|pair| (String::from_utf8(pair[0].data.to_vec()).expect("text"), pair[1].version)).collect();
        assert!(events.chunks(2).all(|pair| pair[0].data == pair[1].data), "{layout}: commits do not mingle");
        told.sort();
        there.sort();
        assert_eq!(told, there, "{layout}: what was acknowledged is what is there");
        assert_eq!(calm.verify(&|_| ()).await.expect("verifies").findings, [], "{layout}");
    }
}
