//! The feed: every event once and in order, and what a stream has lost is found.

use std::time::Duration;

use fencepost::testing::{Faults, Gate, Reshard, Rule};
use fencepost::{Delivery, Engine, From, IndexOptions, LoadOptions, Query, Recorded, Step, Store};
use futures::StreamExt;

use super::support::{Ground, open};
use super::{BOTH, event, first, name};

pub(crate) fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

pub(crate) async fn fed(store: &Store, query: Query) -> Vec<Recorded> {
    let mut feed = store.feed().expect("a feed").subscribe(From::Start, query);
    let mut all = Vec::new();
    loop {
        match feed.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => all.push(*event),
            Delivery::CaughtUp { .. } => return all,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn catch_up(store: &Store) -> fencepost::IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

/// Some streams, commits of one to three events, by two handles.
pub(crate) async fn write(stores: &[&Store], streams: usize, commits: usize) -> usize {
    let mut events = 0;
    for n in 0..commits {
        let stream = name(&format!("user-{}", n % streams));
        let step = first((0..=n % 3).map(|index| event(if index == 0 { "A" } else { "B" }, &format!("{n}.{index}"))));
        stores[n % stores.len()].streams().append(&stream, step).await.expect("appends");
        events += 1 + n % 3;
    }
    events
}

/// Every event once, of each stream in its order, its commits together; as strong reads have them.
pub(crate) async fn audit(store: &Store, streams: usize, events: usize) {
    let all = fed(store, Query::all()).await;
    assert_eq!(all.len(), events);
    for n in 0..streams {
        let stream = format!("user-{n}");
        let mut read = store.streams().load(&name(&stream), LoadOptions::default()).await.expect("loads").events;
        let of_stream = fed(store, Query::tag(&stream).expect("a query")).await;
        assert_eq!(of_stream, read, "{stream}");
        read.retain(|event| event.event_type.as_str() == "B");
        let both = Query::item(["B"], [stream.as_str()]).expect("a query");
        assert_eq!(fed(store, both).await, read, "{stream}");
    }
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!(verified.findings, [], "{verified:?}");
}

#[tokio::test]
async fn the_feed_has_every_event_once_and_in_order() {
    for layout in BOTH {
        let ground = Ground::fresh();
        let (store, other) = (open(ground.builder(layout)).await, open(ground.builder(layout)).await);
        let mut events = write(&[&store, &other], 5, 24).await;
        let progress = catch_up(&store).await;
        assert_eq!((progress.commits, progress.late, progress.waiting), (24, 0, 0), "{layout}: {progress:?}");
        audit(&store, 5, events).await;
        events += write(&[&store], 5, 6).await;
        assert_eq!(catch_up(&other).await.commits, 6);
        audit(&other, 5, events).await;
        let done = store.streams().append(&name("user-0"), Step::new([event("A", "last")])).await.expect("appends");
        let position = done.last().expect("an event");
        assert!(!store.feed().expect("a feed").shows(position).await.expect("tells"), "{layout}");
        catch_up(&store).await;
        assert!(store.feed().expect("a feed").shows(position).await.expect("tells"), "{layout}");
    }
}

/// A day without a consumer: what came meanwhile has left the stream before the indexer is back, which says so; a resync finds it in the
/// journal.
#[tokio::test]
async fn a_resync_finds_what_the_stream_has_lost() {
    for layout in BOTH {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), 21);
        reshard.calm().await;
        let opened = |http| open(Ground::Engine(engine.clone()).builder(layout).http_client(http));
        let store = opened(reshard.http_client()).await;
        let mut events = write(&[&store], 4, 8).await;
        assert_eq!(catch_up(&store).await.commits, 8, "{layout}");
        events += write(&[&store], 4, 8).await;
        // The records reach the shards, and nobody reads them.
        let (gate, faults) = (Gate::new(), Faults::new(reshard.http_client(), 1));
        faults.script(Rule::on("GetRecords").nth(1).pause_after(&gate));
        let paused = opened(faults.http_client()).await;
        tokio::select! {
            ran = async { paused.index().expect("an index").run(&quickly(), &|_| ()).await } => panic!("{ran:?}"),
            () = gate.reached(1) => {}
        }
        reshard.trim().await;
        events += write(&[&store], 4, 4).await;
        let index = store.index().expect("an index");
        let ran = index.run(&quickly().until_caught_up().within(Duration::from_secs(5)), &|_| ()).await.expect("runs");
        assert!(ran.trimmed, "{layout}: {ran:?}");
        assert!(!index.verify(&|_| ()).await.expect("verifies").findings.is_empty(), "{layout}");
        let rebuilt = index.rebuild(&|_| ()).await.expect("rebuilds");
        assert!(rebuilt.appended >= 8, "{layout}: {rebuilt:?}");
        catch_up(&store).await;
        audit(&store, 4, events).await;
    }
}
