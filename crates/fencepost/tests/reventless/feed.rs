//! The feed, warm decisions, and moving to the ledger and back.

use fencepost::moving::Copy;
use fencepost::testing::Reshard;
use fencepost::{Append, Cache, Delivery, From, IndexOptions, decision, fold};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::*;

async fn fed(store: &Store, query: Query) -> Vec<String> {
    let index = store.index().expect("index");
    index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    let mut feed = store.feed().expect("feed").subscribe(From::Start, query);
    let mut met = Vec::new();
    while let Some(Delivery::Event { event, .. }) = feed.next().await.transpose().expect("delivers") {
        met.push(String::from_utf8(event.data.to_vec()).expect("text"));
    }
    met
}

#[tokio::test]
async fn h13_the_feed_keeps_each_partition_in_order_and_hands_over_what_the_peer_wrote() {
    let table = Table::new("partition=order&cross=product");
    let store = table.open().await;
    let log = store.log().expect("log");
    let numbered = |n: u32, tags: &[&str]| tags.iter().fold(Event::new("T", n.to_string()).expect("event"), |e, t| e.tag(t).expect("tag"));
    for n in 0..6 {
        log.append(Append::new([numbered(n, &["order:1", "product:p"])])).await.expect("append");
    }
    log.append(Append::new([
        numbered(6, &["order:1"]),
        numbered(7, &["order:2", "product:p"]),
        numbered(8, &["order:1"]),
        numbered(9, &[]),
    ]))
    .await
    .expect("a batch");
    let mut item = golden("event");
    item.insert("data".into(), Value::N("99".into()));
    table.put(item).await;
    let all = fed(&store, Query::all()).await;
    assert_eq!(all.iter().filter(|n| *n != "99").cloned().collect::<Vec<_>>(), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(all.contains(&"99".to_owned()), "the peer's too");
    assert_eq!(fed(&store, tag("product:p")).await, ["0", "1", "2", "3", "4", "5", "7"], "by a tag that is no partition");
    let index = store.index().expect("index");
    let verified = index.verify(&|_| ()).await.expect("verify");
    assert!(verified.findings.is_empty(), "{verified:?}");
    // Built anew from a scan alone: the same events, and each partition in its order.
    let copy = table.with(&format!("partition=order&cross=product&side={}-another", table.name));
    let rebuilt = copy.open().await;
    let told = rebuilt.index().expect("index").rebuild(&|_| ()).await.expect("rebuild");
    assert_eq!(told.appended, 8, "{told:?}");
    let again = fed(&rebuilt, tag("order:1")).await;
    assert_eq!(again, ["0", "1", "2", "3", "4", "5", "6", "8"]);
}

#[derive(Event, Serialize, Deserialize)]
enum Order {
    Noted {
        #[tag("order")]
        order: u32,
    },
}

#[tokio::test]
async fn a_warm_decision_reads_the_fence_and_what_came_since() {
    let table = Table::new("partition=order");
    let (store, other) = (table.open().await, table.open().await);
    let cache = Cache::new(10);
    let note = || {
        let notes = fold(("order", 1), 0_u32, |notes, _: &Order| *notes += 1).cached_as("notes");
        decision(notes, |notes| if *notes >= 5 { Err(*notes) } else { Ok([Order::Noted { order: 1 }]) })
    };
    for _ in 0..3 {
        store.decide(note()).cache(&cache).await.expect("decides").accepted().expect("recorded");
    }
    other.decide(note()).await.expect("decides").accepted().expect("recorded");
    let fifth = store.decide(note()).cache(&cache).await.expect("decides");
    assert!(fifth.units.requests <= 3, "the fence, what came since, the append: {:?}", fifth.units);
    let enough = store.decide(note()).cache(&cache).await.expect("decides");
    assert_eq!(enough.rejection(), Some(&5));
    assert_eq!(cache.stats().misses, 1);
}

#[tokio::test]
async fn it_is_copied_to_the_ledger_and_back() {
    let table = Table::new("partition=order&cross=product");
    let from = table.open().await;
    let log = from.log().expect("log");
    for n in 0..5 {
        log.append(Append::new([event("T", &["order:1", &format!("product:{n}")]), event("U", &["order:2"])])).await.expect("append");
    }
    from.index().expect("index").run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    let ledger = fencepost::open("memory:").await.expect("ledger");
    let copied = Copy::new(&from, &ledger, "there").run(&|_| ()).await.expect("copies");
    assert_eq!((copied.events, copied.commits), (10, 5));
    let back = Table::new("partition=order&cross=product").open().await;
    assert_eq!(Copy::new(&ledger, &back, "back").run(&|_| ()).await.expect("copies").events, 10);
    for query in [tag("order:1"), tag("product:3")] {
        let (mut there, mut here) = (
            log.source(&query, None).await.expect("source").events,
            back.log().expect("log").source(&query, None).await.expect("source").events,
        );
        let ids = |events: &mut Vec<fencepost::Recorded>| events.iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(&mut there), ids(&mut here));
    }
}

/// A destination that is fed by an index is compared by its commits, since nobody may have built the index yet; and where it can be read
/// without a tag, what lies there already is noticed.
#[tokio::test]
async fn a_copy_into_it_is_compared_without_its_feed() {
    let ledger = fencepost::open("memory:").await.expect("ledger");
    for n in 0..3 {
        ledger.log().expect("log").append(Append::new([event("T", &["order:1", &format!("product:{n}")])])).await.expect("append");
    }
    for parameters in ["partition=order&cross=product&untagged=scan", "partition=order&cross=product"] {
        let table = Table::new(parameters);
        let copy = Copy::new(&ledger, &table.open().await, "there");
        copy.run(&|_| ()).await.expect("copies");
        let compared = copy.compare(&|_| ()).await.expect("compares");
        assert!(compared.differences.is_empty(), "{parameters}: {compared:?}");
        let scanning = table.with("untagged=scan").open().await;
        let other = Copy::new(&ledger, &scanning, "another").plan().await;
        assert!(is_unsupported(&other), "it holds other events: {other:?}");
    }
}

/// Records that come late, twice and out of order, from shards that split: each partition in its order all the same.
#[tokio::test]
async fn h13_the_feed_keeps_each_partition_in_order_over_scattered_shards() {
    for seed in 0..4 {
        let table = Table::embedded("partition=order&cross=product");
        let writers = [table.open().await, table.open().await];
        let reshard = Reshard::new(table.http(), seed);
        let indexer = support::open(table.builder().http_client(reshard.http_client())).await;
        let numbered =
            |n: u32, tags: &[&str]| tags.iter().fold(Event::new("T", n.to_string()).expect("event"), |e, t| e.tag(t).expect("tag"));
        let write = async |store: &Store, own: &str, other: &str| {
            let log = store.log().expect("log");
            for n in 0..15 {
                let mut events = vec![numbered(n, &[own, "product:p"])];
                if n % 5 == 4 {
                    events.push(numbered(100, &[other]));
                }
                log.append(Append::new(events)).await.expect("append");
            }
        };
        let index = indexer.index().expect("index");
        let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5));
        tokio::select! {
            ended = index.run(&options, &|_| ()) => panic!("{ended:?}"),
            _ = async { futures::join!(write(&writers[0], "order:1", "order:2"), write(&writers[1], "order:2", "order:1")) } => {}
        }
        reshard.calm().await;
        for own in ["order:1", "order:2"] {
            let all = fed(&indexer, tag(own)).await;
            let recorded = writers[0].log().expect("log").source(&tag(own), None).await.expect("source").events;
            assert_eq!(
                all,
                recorded.iter().map(|event| String::from_utf8_lossy(&event.data).into_owned()).collect::<Vec<_>>(),
                "{seed}: {own}"
            );
            assert_eq!(all.len(), 18, "{seed}: {own}");
        }
    }
}
