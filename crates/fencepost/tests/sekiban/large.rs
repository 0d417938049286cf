//! Writes that fit in no transaction: whole or not at all, wherever their writer dies and whoever looks meanwhile.

use crate::*;

/// A large write that dies between any two of its calls: a reader sees all of it or none, by every tag and in the feed.
#[tokio::test]
async fn a_large_write_that_dies_anywhere_is_seen_whole_or_not_at_all() {
    let mut outcomes = BTreeSet::new();
    for answered in [true, false] {
        for calls in 1.. {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let timeouts = Timeouts { attempts: 1, ..PATIENT };
            let store = open(bench.builder("").timeouts(timeouts).http_client(between.http_client())).await;
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
            if !answered {
                between.script(Rule::on_any().nth(calls).lose_response());
            }
            for later in calls + usize::from(!answered)..calls + 60 {
                between.script(Rule::on_any().nth(later).lose_request());
            }
            let events = (0..70).map(|n| event(&n.to_string(), &["a:1", if n % 2 == 0 { "b:0" } else { "b:1" }]));
            let outcome = store.log().expect("log").append(Append::new(events)).await;
            let survived = between.log().iter().all(|call| call.faults.is_empty());
            drop(store);
            let reader = bench.store("").await;
            let log = reader.log().expect("log");
            // What the index alone shows is a part perhaps; what the feed hands over never is.
            let fed = fed(&reader).await.len();
            assert!(fed == 1 || fed == 71, "{calls}: {fed} of 71 in the feed");
            let even = log.source(&Query::tag("b:0").expect("query"), None).await.expect("source").events.len();
            let seen = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len();
            let read = log.read_all(&Query::tag("b:1").expect("query"), ReadOptions::default()).await.expect("read").len();
            assert!((seen, even, read) == (1, 0, 0) || (seen, even, read) == (71, 35, 35), "{calls}: {seen} {even} {read}");
            match &outcome {
                Ok(_) => assert_eq!(seen, 71, "{calls}"),
                Err(error) if error.recorded_nothing() => assert_eq!(seen, 1, "{calls}: {error}"),
                Err(_) => {}
            }
            outcomes.insert((outcome.is_ok(), seen));
            // The next writer goes on, and everything is as it should be.
            log.append(Append::new([event("after", &["a:1", "b:0"])])).await.expect("after");
            assert_eq!(log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len(), seen + 1);
            // One that died behind its last head is still on the list of those to finish.
            reader.repair(&|_| ()).await.expect("repair");
            let verified = reader.verify(&|_| ()).await.expect("verify");
            assert_eq!(verified.findings, vec![], "{calls}");
            assert!(bench.heads().await.values().all(|(_, _, pending)| !pending), "{calls}");
            if survived {
                break;
            }
        }
    }
    assert_eq!(outcomes, BTreeSet::from([(false, 1), (false, 71), (true, 71)]), "each was met");
}

#[tokio::test]
async fn pieces_that_were_never_published_are_collected_and_their_writer_is_stopped() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let env = Env::seeded(1);
    let store = open(bench.builder("").timeouts(QUICK).env(env.clone()).http_client(between.http_client())).await;
    between.script(Rule::on("TransactWriteItems").throttle());
    let id = CommitId(Uuid::from_u128(5));
    let events = || (0..70).map(|n| event(&n.to_string(), &["a:1"])).collect::<Vec<_>>();
    store.log().expect("log").append(Append::new(events()).commit(id)).await.expect_err("throttled");
    between.calm();
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (0, 0), "too young");
    env.advance(Duration::from_secs(120));
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (1, 1));
    let late = store.log().expect("log").append(Append::new(events()).commit(id)).await;
    assert!(matches!(late, Err(Error::Refused(Refused::Reused { .. }))), "{late:?}");
    assert_eq!(store.sekiban().expect("sekiban").count(None).await.expect("count"), 0);
}
