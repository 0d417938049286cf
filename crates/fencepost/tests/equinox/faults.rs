//! Appends under every fault that a service and a network can have: what the caller is told is true, nothing is doubled or lost.

use std::sync::Arc;
use std::time::Duration;

use fencepost::testing::{Chances, Fault, Faults, Gate, Keep, Rule};
use fencepost::{
    CommitId, Engine, Env, Error, Expect, LoadOptions, Reason, Snapshot, Step, Store, StreamReadOptions, StreamStore, StreamStoreExt,
    Timeouts,
};

use super::{name, step};

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };

/// How an append is written: into the Tip by one update, or with the Tip's events calved by one transaction.
const WAYS: [(&str, &str); 2] = [("layout=equinox", "UpdateItem"), ("layout=equinox&tip_events=1", "TransactWriteItems")];

/// A store behind a connector, with one event in a stream whose Tip it remembers; and the same tables without the connector.
struct Bench {
    engine: Engine,
    faults: Faults,
    streams: Arc<dyn StreamStore>,
    layout: &'static str,
}

async fn open(layout: &str, client: impl aws_sdk_dynamodb::config::HttpClient + 'static) -> Store {
    let builder = Store::builder(&format!("memory:?{layout}")).expect("url").timeouts(QUICK).http_client(client);
    builder.open().await.expect("opens")
}

impl Bench {
    async fn new(layout: &'static str) -> Bench {
        Bench::on(Engine::memory().expect("engine").keep_tokens(), layout).await
    }
    async fn on(engine: Engine, layout: &'static str) -> Bench {
        let faults = Faults::new(engine.http_client(), 1);
        let streams = open(layout, faults.http_client()).await.streams();
        streams.append(&name("User-a"), step(&["0"])).await.expect("warm");
        Bench { engine, faults, streams, layout }
    }
    async fn other(&self) -> Arc<dyn StreamStore> {
        open(self.layout, self.engine.http_client()).await.streams()
    }
    async fn recorded(&self) -> usize {
        self.faults.calm();
        let store = open(self.layout, self.engine.http_client()).await;
        let loaded = store.streams().load(&name("User-a"), LoadOptions::default()).await.expect("loads");
        assert_eq!(loaded.version, loaded.events.len() as u64);
        assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, []);
        loaded.events.len()
    }
}

fn two() -> Step {
    step(&["1", "2"])
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
    for (layout, write) in WAYS {
        for fault in &faults {
            if write == "UpdateItem" && matches!(fault, Fault::InProgress | Fault::TokenMismatch) {
                continue;
            }
            for expect in [Expect::Any, Expect::Version(1)] {
                let bench = Bench::new(layout).await;
                bench.faults.script(Rule::on(write).nth(1).suffer(fault.clone()));
                let done = bench.streams.append(&name("User-a"), step(&["1"]).expect(expect.clone())).await;
                assert_eq!(done.expect("appends").version, Some(2), "{layout} {fault:?} {expect:?}");
                assert_eq!(bench.recorded().await, 2, "{layout} {fault:?} {expect:?}");
            }
        }
    }
}

/// The first append to a stream is a put: the same, also where somebody else comes first.
#[tokio::test]
async fn a_lost_answer_to_the_first_append_is_settled() {
    for fault in [Fault::LoseResponse, Fault::LoseRequest, Fault::TimeOut, Fault::DeliverTwice, Fault::Throttle] {
        for expect in [Expect::None, Expect::Version(0), Expect::Any] {
            let bench = Bench::new("layout=equinox").await;
            bench.faults.script(Rule::on("PutItem").nth(1).suffer(fault.clone()));
            let done = bench.streams.append(&name("User-b"), two().expect(expect.clone())).await.expect("appends");
            assert_eq!(done.version, Some(2), "{fault:?} {expect:?}");
            let there = bench.other().await.load(&name("User-b"), LoadOptions::default()).await.expect("loads");
            assert_eq!(there.events.len(), 2, "{fault:?} {expect:?}");
            let again = bench.streams.append(&name("User-b"), two().expect(Expect::None)).await;
            assert!(again.is_err_and(|error| error.is_conflict()), "{fault:?} {expect:?}");
        }
    }
}

/// The answer is lost, and somebody else appends before the repeat: what landed is found under the others' writes by the Tip's marks, and
/// what did not land is written once.
#[tokio::test]
async fn all_old_tells_our_own_lost_answer_from_a_conflict_also_under_others_writes() {
    for (layout, write) in WAYS {
        for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false)] {
            for expect in [Expect::Any, Expect::Version(1)] {
                // One that does not remember request tokens.
                let bench = Bench::on(Engine::memory().expect("engine"), layout).await;
                let told = format!("{layout} {fault:?} {expect:?}");
                // The first sending is lost, and the second comes when others have written.
                bench.faults.script(Rule::on(write).nth(1).suffer(fault.clone()));
                let gate = Gate::new();
                bench.faults.script(Rule::on(write).nth(2).pause_before(&gate));
                let (streams, expected) = (bench.streams.clone(), expect.clone());
                let ours = tokio::spawn(async move { streams.append(&name("User-a"), two().expect(expected)).await });
                gate.reached(1).await;
                let other = bench.other().await;
                for n in 0..3 {
                    other.append(&name("User-a"), step(&[&format!("another's {n}")])).await.expect("another's");
                }
                gate.open();
                match (ours.await.expect("no panic"), landed, &expect) {
                    (Ok(done), true, _) => assert_eq!(done.version, Some(3), "{told}"),
                    (Ok(done), false, Expect::Any) => assert_eq!(done.version, Some(6), "{told}"),
                    (Err(error), false, Expect::Version(_)) => assert!(error.is_conflict(), "{told}: {error}"),
                    (other, ..) => panic!("{told}: {other:?}"),
                }
                let expected = if landed || matches!(expect, Expect::Any) { 6 } else { 4 };
                assert_eq!(bench.recorded().await, expected, "{told}");
            }
        }
    }
}

/// The Tip that the refused repeat hands back says by its etag whose it is: nothing is read.
#[tokio::test]
async fn a_lost_answer_is_settled_without_a_read() {
    for (layout, write) in WAYS {
        let bench = Bench::on(Engine::memory().expect("engine"), layout).await;
        let before = bench.faults.log().len();
        bench.faults.script(Rule::on(write).nth(1).lose_response());
        let done = bench.streams.append(&name("User-a"), two().expect(Expect::Version(1))).await.expect("settled");
        assert_eq!((done.units.requests, bench.faults.log().len() - before), (2, 2), "{layout}");
        assert!(done.token.is_some() && done.version == Some(3), "{layout}");
    }
}

/// A transaction that met another is no conflict of ours, unless the other has won.
#[tokio::test]
async fn a_transaction_conflict_is_told_from_a_conflict() {
    for (layout, write) in WAYS {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(write).times(3).conflict());
        let done = bench.streams.append(&name("User-a"), two().expect(Expect::Version(1))).await.expect("appends");
        assert_eq!(done.version, Some(3), "{layout}");
        let late = bench.streams.append(&name("User-a"), two().expect(Expect::Version(1))).await;
        assert!(late.is_err_and(|error| error.is_conflict()), "{layout}");
        assert_eq!(bench.recorded().await, 3, "{layout}");
    }
}

#[tokio::test]
async fn what_stays_throttled_is_unavailable_and_recorded_nothing() {
    for (layout, write) in WAYS {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(write).throttle());
        let answer = bench.streams.append(&name("User-a"), two()).await;
        assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Throttled), "{answer:?}");
        assert_eq!(bench.recorded().await, 1);
    }
}

/// Lost for good: in doubt, and the repeat from the base finds the truth, whichever it is, while others go on.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for (layout, write) in WAYS {
        for given in [None, Some(CommitId::of_key("given"))] {
            for (fault, landed) in [(Fault::LoseResponse, 2), (Fault::LoseRequest, 0), (Fault::InternalError, 0), (Fault::Hang, 0)] {
                let bench = Bench::new(layout).await;
                let told = format!("{layout} {fault:?} {given:?}");
                let write = if given.is_some() { "TransactWriteItems" } else { write };
                if given.is_some() {
                    // The side table is there: its making is not the matter here.
                    bench.streams.append(&name("User-b"), step(&["0"]).commit(CommitId::of_key("other"))).await.expect("appends");
                }
                bench.faults.script(Rule::on(write).suffer(fault.clone()));
                let answer = bench.streams.append(&name("User-a"), given.into_iter().fold(two(), Step::commit)).await;
                let Err(Error::InDoubt(doubt)) = answer else { panic!("{told}: {answer:?}") };
                assert!(!doubt.to_string().contains("nothing was recorded"), "{told}: {doubt}");
                assert_eq!(bench.recorded().await, 1 + landed, "{told}");
                let other = bench.other().await;
                other.append(&name("User-a"), step(&["another's"])).await.expect("another's");
                let base = doubt.base.to_string().parse().expect("base");
                let settled = other.append(&name("User-a"), two().again(doubt.commit, base)).await.expect("again");
                let again = other.append(&name("User-a"), two().again(doubt.commit, doubt.base.clone())).await.expect("and again");
                assert_eq!((&settled.positions, settled.version), (&again.positions, again.version), "{told}");
                assert_eq!(settled.version, Some(if landed > 0 { 3 } else { 4 }), "{told}");
                assert_eq!(bench.recorded().await, 4, "{told}");
                let elsewhere = other.append(&name("User-b"), two().again(doubt.commit, doubt.base)).await;
                assert!(matches!(elsewhere, Err(Error::Refused(_))), "{told}: {elsewhere:?}");
            }
        }
    }
}

/// Where the marks no longer reach back, an append that may have landed is not written again, and not called a success either.
#[tokio::test]
async fn what_nothing_tells_any_more_stays_in_doubt() {
    let bench = Bench::new("layout=equinox&tip_events=1").await;
    bench.faults.script(Rule::on("TransactWriteItems").lose_response());
    let Err(Error::InDoubt(doubt)) = bench.streams.append(&name("User-a"), two()).await else { panic!("in doubt") };
    bench.faults.calm();
    let other = bench.other().await;
    // As many as push it out: a mark takes eight bytes of what is left of the Tip's kilobyte, and never more than 32 are kept.
    for n in 0..40 {
        other.append(&name("User-a"), step(&[&n.to_string()])).await.expect("another's");
    }
    let again = other.append(&name("User-a"), two().again(doubt.commit, doubt.base.clone())).await;
    assert!(matches!(again, Err(Error::InDoubt(_))), "{again:?}");
    // Other words were never written, whoever wrote what.
    let different = other.append(&name("User-a"), step(&["x", "y"]).again(doubt.commit, doubt.base)).await.expect("appends");
    assert_eq!((different.version, bench.recorded().await), (Some(45), 45));
}

/// With all reasons but one hidden, and no request token remembered: the etag or the marks settle, and another's event is no success.
#[tokio::test]
async fn without_the_request_token_and_its_reasons_the_tip_settles() {
    for keep in [Keep::Last, Keep::Item(0), Keep::Item(1)] {
        let bench = Bench::on(Engine::memory().expect("engine"), "layout=equinox&tip_events=1").await;
        for expect in [Expect::Version(1), Expect::Any] {
            bench.faults.calm();
            let before = bench.streams.load(&name("User-a"), LoadOptions::default()).await.expect("loads").version;
            bench.faults.script(Rule::on("TransactWriteItems").nth(1).lose_response());
            bench.faults.script(Rule::on("TransactWriteItems").nth(2).hide_reasons(keep));
            let done = bench.streams.append(&name("User-a"), two().expect(expect.clone())).await;
            assert_eq!(done.expect("settled").version, Some(before + 2), "{keep:?} {expect:?}");
        }
        assert_eq!(bench.recorded().await, 5, "{keep:?}");
        bench.faults.script(Rule::on("TransactWriteItems").nth(1).lose_request());
        bench.faults.script(Rule::on("TransactWriteItems").nth(2).hide_reasons(keep));
        let late = bench.streams.append(&name("User-a"), two().expect(Expect::Version(3))).await;
        assert!(late.is_err_and(|error| error.is_conflict()), "{keep:?}");
    }
}

/// A state without events: what was lost is settled by the marks too, while others roll it on.
#[tokio::test]
async fn a_rolled_state_whose_answer_was_lost_is_settled() {
    for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false)] {
        for others in [0, 1, 5] {
            let bench = Bench::on(Engine::memory().expect("engine"), "layout=equinox").await;
            let state = |state: &str| Step::rolling([Snapshot::new("Snapshotted", state.to_owned())]);
            let stream = name("User-r");
            bench.streams.append(&stream, state("first")).await.expect("rolls");
            let load = LoadOptions::default().snapshot(["Snapshotted"]);
            let token = bench.streams.load(&stream, load.clone()).await.expect("loads").token;
            bench.faults.script(Rule::on("UpdateItem").nth(1).suffer(fault.clone()));
            let gate = Gate::new();
            bench.faults.script(Rule::on("UpdateItem").nth(2).pause_before(&gate));
            let (streams, ours) = (bench.streams.clone(), state("ours").expect(Expect::Token(token)));
            let task = tokio::spawn(async move { streams.append(&name("User-r"), ours).await });
            gate.reached(1).await;
            let other = bench.other().await;
            for n in 0..others {
                let token = other.load(&stream, load.clone()).await.expect("loads").token;
                other.append(&stream, state(&format!("another's {n}")).expect(Expect::Token(token))).await.expect("rolls");
            }
            gate.open();
            let answer = task.await.expect("no panic");
            let told = format!("{fault:?} {others}: {answer:?}");
            match landed || others == 0 {
                true => assert_eq!(answer.expect(&told).version, Some(0), "{told}"),
                false => assert!(answer.is_err_and(|error| error.is_conflict()), "{told}"),
            }
        }
    }
}

/// A prune that is cut short leaves no gap, and goes on the next time; one whose answers are lost is told what it did.
#[tokio::test]
async fn a_prune_may_end_anywhere() {
    for (write, nth) in [("DeleteItem", 1), ("DeleteItem", 2), ("UpdateItem", 1)] {
        for fault in [Fault::LoseResponse, Fault::LoseRequest, Fault::Throttle, Fault::DeliverTwice] {
            for for_good in [false, true] {
                let told = format!("{write} {nth} {fault:?} {for_good}");
                let engine = Engine::memory().expect("engine");
                let faults = Faults::new(engine.http_client(), 1);
                let store = open("layout=equinox&tip_events=2", faults.http_client()).await;
                for n in 0..6 {
                    store.streams().append(&name("User-a"), step(&[&n.to_string()])).await.expect("appends");
                }
                let rule = Rule::on(write);
                let rule = if for_good { rule } else { rule.nth(nth) };
                faults.script(rule.suffer(fault.clone()));
                let equinox = store.equinox().expect("equinox");
                let first = equinox.prune(&name("User-a"), 6).await;
                faults.calm();
                assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, [], "{told}");
                let again = equinox.prune(&name("User-a"), 6).await.expect("prunes");
                assert_eq!(again.first, 6, "{told}");
                if let Ok(first) = first {
                    assert_eq!((first.first, again.deleted), (6, 0), "{told}");
                }
                let left = store.streams().read_stream(&name("User-a"), StreamReadOptions::default().after(5)).await.expect("reads");
                assert_eq!(left.len(), 1, "{told}");
            }
        }
    }
}

/// The future of an append is dropped between the request and its answer: what was sent may land, and nothing remembered is wrong.
#[tokio::test]
async fn a_dropped_append_leaves_nothing_wrong_behind() {
    for (layout, write) in WAYS {
        let bench = Bench::new(layout).await;
        bench.faults.script(Rule::on(write).nth(1).lose_response());
        let gate = Gate::new();
        bench.faults.script(Rule::on(write).nth(2).pause_before(&gate));
        let stream = name("User-a");
        tokio::select! {
            ended = bench.streams.append(&stream, two()) => panic!("{layout}: {ended:?}"),
            () = gate.reached(1) => {}
        }
        bench.faults.calm();
        bench.streams.append(&name("User-a"), two()).await.expect("the next");
        assert_eq!(bench.recorded().await, 5, "{layout}");
    }
}

/// Reads under faults are right or errors, never short.
#[tokio::test]
async fn reads_are_repeated_or_fail() {
    let bench = Bench::new("layout=equinox").await;
    let with = step(&["1"]).snapshot(Snapshot::new("Snapshotted", "{}"));
    bench.streams.append(&name("User-a"), with).await.expect("appends");
    for fault in [Fault::Throttle, Fault::InternalError, Fault::LoseRequest, Fault::LoseResponse, Fault::Truncate, Fault::Hang] {
        bench.faults.calm();
        bench.faults.script(Rule::on_any().nth(1).suffer(fault.clone()));
        let loaded = bench.streams.load(&name("User-a"), LoadOptions::default().snapshot(["Snapshotted"])).await.expect("loads");
        assert_eq!((loaded.version, loaded.snapshots.len()), (2, 1), "{fault:?}");
    }
    bench.faults.calm();
    bench.faults.script(Rule::on_any().internal_error());
    let answer = bench.streams.load(&name("User-a"), LoadOptions::default()).await;
    assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Unreachable), "{answer:?}");
}

/// Eight writers under a storm: each is told the truth, versions are dense, every commit that was acknowledged is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_storm_every_writer_is_told_the_truth() {
    for (layout, _) in WAYS.into_iter().chain([("layout=equinox&tip_events=6", "")]) {
        // One that does not remember request tokens: every lost answer is settled by the Tip.
        let engine = Engine::memory().expect("engine");
        let mut writers = Vec::new();
        for writer in 0..8u64 {
            let faults = Faults::new(engine.http_client(), 10 + writer);
            let streams = open(layout, faults.http_client()).await.streams();
            faults.random(Chances {
                throttle: 0.03,
                lose_request: 0.03,
                lose_response: 0.05,
                deliver_twice: 0.03,
                conflict: 0.05,
                hide_reasons: 0.1,
                ..Chances::default()
            });
            writers.push(tokio::spawn(async move {
                let (env, mut told, mut unknown) = (Env::seeded(writer), Vec::new(), Vec::new());
                for n in 0..8 {
                    let label = format!("{writer}.{n}");
                    let mut step = step(&[&label, &label]);
                    if env.below(3) == 0 {
                        step = step.snapshot(Snapshot::new("Snapshotted", label.clone()));
                    }
                    if env.below(2) == 0 {
                        let version = streams.load(&name("User-a"), LoadOptions::default().latest()).await.expect("loads").version;
                        step = step.expect(Expect::Version(version));
                    }
                    let mut answer = streams.append(&name("User-a"), step.clone()).await;
                    for _ in 0..3 {
                        let Err(Error::InDoubt(doubt)) = answer else { break };
                        answer = streams.append(&name("User-a"), step.clone().again(doubt.commit, doubt.base)).await;
                    }
                    match answer {
                        Ok(done) => told.push((label, done.version)),
                        Err(Error::InDoubt(_)) => unknown.push(label),
                        Err(Error::Conflict(_)) | Err(Error::Unavailable(_)) => {}
                        Err(other) => panic!("{layout}: {other:?}"),
                    }
                }
                (told, unknown)
            }));
        }
        let (mut told, mut unknown) = (Vec::new(), Vec::new());
        for writer in writers {
            let (of_writer, in_doubt) = writer.await.expect("no panic");
            told.extend(of_writer);
            unknown.extend(in_doubt);
        }
        let calm = open(layout, engine.http_client()).await;
        let events = calm.streams().load(&name("User-a"), LoadOptions::default()).await.expect("loads").events;
        assert_eq!(events.iter().filter_map(|e| e.version).collect::<Vec<_>>(), (1..=events.len() as u64).collect::<Vec<_>>());
        assert!(events.chunks(2).all(|pair| pair[0].data == pair[1].data), "{layout}: commits do not mingle");
        let label =
            |data: &[u8]| serde_json::from_slice::<serde_json::Value>(data).expect("JSON")["text"].as_str().expect("text").to_owned();
        let there = events.chunks(2).map(|pair| (label(&pair[0].data), pair[1].version));
        // What stayed in doubt may be there or not, and the caller was told so.
        let mut there: Vec<_> = there.filter(|(label, _)| !unknown.contains(label)).collect();
        told.sort();
        there.sort();
        assert_eq!(told, there, "{layout}: what was acknowledged is what is there");
        assert!(unknown.len() < 4, "{layout}: {unknown:?}");
        assert_eq!(calm.verify(&|_| ()).await.expect("verifies").findings, [], "{layout}");
    }
}

/// Two send the same commit under one id, and one lands between the other's look for the id and its look at the Tip: it is told what was
/// recorded, and not a conflict with itself.
#[tokio::test]
async fn a_commit_id_that_is_recorded_meanwhile_is_no_conflict() {
    for (layout, _) in WAYS {
        let bench = Bench::new(layout).await;
        let once = || two().expect(Expect::Version(1)).commit(CommitId(uuid::Uuid::from_u128(77)));
        let (first, faults) = (bench.other().await, Faults::new(bench.engine.http_client(), 2));
        let second = open(layout, faults.http_client()).await.streams();
        let gate = Gate::new();
        faults.script(Rule::on("Query").nth(1).pause_before(&gate));
        let meanwhile = async {
            gate.reached(1).await;
            let landed = first.append(&name("User-a"), once()).await.expect("appends");
            gate.open();
            landed
        };
        let (told, landed) = futures::join!(async { second.append(&name("User-a"), once()).await }, meanwhile);
        assert_eq!(told.expect("recorded, by another").version, landed.version, "{layout}");
        assert_eq!(bench.recorded().await, 3, "{layout}");
        // Another id at the same version is a conflict all the same.
        let other = two().expect(Expect::Version(1)).commit(CommitId(uuid::Uuid::from_u128(78)));
        assert!(matches!(second.append(&name("User-a"), other).await, Err(Error::Conflict(_))), "{layout}");
    }
}
