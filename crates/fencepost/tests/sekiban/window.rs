//! The feed over the index of all events: what comes late comes, whatever the window holds.

use crate::*;

/// W6: an event whose id is older than what was handed over comes late, and comes.
#[tokio::test]
async fn late_arrivals_are_delivered_and_counted() {
    let counted = tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::new();
    let store = bench.store("").await;
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let log = store.log().expect("log");
    let early = Env::system().now();
    log.append(Append::new([event("1", &["a:1"])])).await.expect("append");
    let (first, checkpoint) = next_event(&mut feed).await;
    assert_eq!(&first.data[..], b"1");
    let late = (SortableId::threshold(early), event("late", &["b:1"]).id(Uuid::from_u128(3)));
    bench.sekiban("").await.write(&[late], WriteOptions::default()).await.expect("a slow writer's");
    assert_eq!(&next_event(&mut feed).await.0.data[..], b"late");
    assert_eq!(counted.of("fencepost_sekiban_late_events_total"), 1);
    let mut again = store.feed().expect("feed").subscribe(From::Checkpoint(checkpoint.to_string().parse().expect("text")), Query::all());
    assert_eq!(&next_event(&mut again).await.0.data[..], b"late");
}

/// The index shows the second event of a tag and not yet the first: the tag's rows tell, and the feed keeps their order, each once.
#[tokio::test]
async fn what_the_index_does_not_show_yet_is_asked_of_the_tags() {
    let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
    let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
    let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").http_client(lag.http_client());
    let store = open(builder).await;
    let log = store.log().expect("log");
    for label in ["1", "2", "3"] {
        log.append(Append::new([event(label, &["a:1"])])).await.expect("append");
    }
    assert_eq!(
        labels(&log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events),
        ["1", "2", "3"],
        "decisions are strong"
    );
    assert!(
        store.sekiban().expect("sekiban").all_since(None, None).try_collect::<Vec<_>>().await.expect("all").is_empty(),
        "the index lags"
    );
    let newest = lag.pending().into_iter().rfind(|pending| pending.table == "SekibanEvents").expect("an event waits");
    assert!(lag.apply(newest.id).await);
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let mut met = Vec::new();
    for _ in 0..3 {
        met.push(next_event(&mut feed).await.0);
    }
    assert_eq!(labels(&met), ["1", "2", "3"]);
    lag.apply_all().await;
    log.append(Append::new([event("4", &["a:1"])])).await.expect("append");
    lag.apply_all().await;
    let (next, _) = next_event(&mut feed).await;
    assert_eq!(&next.data[..], b"4", "none a second time");
}
