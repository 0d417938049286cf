//! What the network does to an append: settled, or told as in doubt and settled by the repeat.

use crate::*;

/// Every fault that passes: the append succeeds, and its event is there once; so does a unique one.
#[tokio::test]
async fn what_the_network_does_is_settled() {
    let faults = [
        Fault::Throttle,
        Fault::InternalError,
        Fault::LoseRequest,
        Fault::LoseResponse,
        Fault::TimeOut,
        Fault::Truncate,
        Fault::DeliverTwice,
        Fault::Hang,
        Fault::Conflict,
        Fault::InProgress,
        Fault::TokenMismatch,
    ];
    for fault in faults {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let store = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await;
        let (log, sekiban) = (store.log().expect("log"), store.sekiban().expect("sekiban"));
        let query = Query::tag("a:1").expect("query");
        for turn in 0..3 {
            between.script(Rule::on("TransactWriteItems").nth(1).suffer(fault.clone()));
            match turn {
                0 => assert_eq!(log.append(Append::new([event("0", &["a:1"])])).await.expect("append").positions.len(), 1, "{fault:?}"),
                1 => {
                    let token = log.source(&query, None).await.expect("source").token;
                    let done = log.append(Append::new([event("1", &["a:1"])]).unless(query.clone(), token)).await.expect("append");
                    assert!(log.source(&query, done.token.as_ref()).await.expect("since").events.is_empty(), "{fault:?}");
                }
                _ => {
                    let done = sekiban.append_if_unique("key", event("2", &["a:1"]), None).await.expect("append");
                    assert!(matches!(done, Unique::Appended { .. } | Unique::AlreadyCommitted { .. }), "{fault:?} {done:?}");
                }
            }
            between.calm();
        }
        assert_eq!(labels(&log.source(&query, None).await.expect("source").events), ["0", "1", "2"], "{fault:?}");
        let cleanly = bench.store("").await.verify(&|_| ()).await.expect("verify");
        assert_eq!(cleanly.findings, vec![], "{fault:?}");
    }
}

/// A landed try whose answer was lost, with its repeat's reasons hidden, and another's event behind it: the append is told as it is, never as a
/// conflict with itself or with what came later. So too under an id of the caller's, and too large for one transaction.
#[tokio::test]
async fn a_commit_that_landed_unheard_is_no_conflict() {
    for (named, count) in [(false, 1), (true, 1), (false, 60)] {
        let bench = Bench::new();
        // Far: the answer is lost, the repeat conflicts, and of its reasons only the last is told. Near: that waits until another has appended.
        let far = Faults::new(bench.http(), 1);
        let near = Faults::new(far.http_client(), 2);
        let store = open(bench.builder("").timeouts(PATIENT).http_client(near.http_client())).await;
        let log = store.log().expect("log");
        let query = Query::tag("a:1").expect("query").or(Query::tag("c:1").expect("query"));
        let token = log.source(&query, None).await.expect("source").token;
        let gate = Gate::new();
        far.script(Rule::on("TransactWriteItems").nth(1).lose_response());
        far.script(Rule::on("TransactWriteItems").nth(2).conflict());
        for n in 3..6 {
            far.script(Rule::on("TransactWriteItems").nth(n).hide_reasons(Keep::Last));
        }
        near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&gate));
        let events = (0..count).map(|n| event(&n.to_string(), &["a:1"]));
        let mut append = Append::new(events).unless(query.clone(), token);
        if named {
            append = append.commit(fencepost::CommitId(Uuid::from_u128(7)));
        }
        let ours = tokio::spawn(async move { log.append(append).await });
        gate.reached(1).await;
        let other = bench.store("").await.log().expect("log");
        other.append(Append::new([event("theirs", &["a:1", "c:1"])])).await.expect("theirs");
        gate.release(1);
        let done = ours.await.expect("joins").unwrap_or_else(|error| panic!("{named} {count}: our commit had landed: {error}"));
        assert_eq!(done.positions.len(), count);
        // Its token stands behind ours and before theirs.
        let rest = other.source(&query, done.token.as_ref()).await.expect("source").events;
        assert!(done.token.is_some() && labels(&rest) == ["theirs"], "{named} {count}: {:?}", labels(&rest));
        assert_eq!(other.source(&query, None).await.expect("source").events.len(), count + 1);
    }
}

/// Lost for good: the caller hears that it is in doubt, and the repeat from the base finds the truth, whichever it is.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for large in [false, true] {
        for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false)] {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let store = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await;
            let count = if large { 60 } else { 1 };
            let events = || (0..count).map(|n| event(&n.to_string(), &["a:1"])).collect::<Vec<_>>();
            between.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
            let answer = store.log().expect("log").append(Append::new(events())).await;
            let Err(Error::InDoubt(doubt)) = answer else { panic!("{large} {fault:?}: {answer:?}") };
            between.calm();
            let other = bench.store("").await.log().expect("log");
            let query = Query::tag("a:1").expect("query");
            let there = other.source(&query, None).await.expect("source").events.len();
            assert_eq!(there, if landed { count } else { 0 });
            other.append(Append::new([event("between", &["a:1"])])).await.expect("another's");
            let base: fencepost::Base = doubt.base.to_string().parse().expect("base");
            let first = other.append(Append::new(events()).again(doubt.commit, base)).await.expect("again");
            let again = other.append(Append::new(events()).again(doubt.commit, doubt.base.clone())).await.expect("and again");
            assert_eq!(first.positions, again.positions);
            assert_eq!(other.source(&query, None).await.expect("source").events.len(), count + 1, "{large} {fault:?}");
            let reused = other.append(Append::new([event("else", &["a:1"])]).again(doubt.commit, doubt.base)).await;
            assert!(matches!(reused, Err(Error::Refused(_))), "{reused:?}");
        }
    }
}
