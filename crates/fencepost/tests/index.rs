//! The index of `streams` mode on the embedded engine: what an indexer puts, what a feed over it delivers.

mod support;

use std::time::Duration;

use fencepost::{Append, Delivery, Event, From, IndexOptions, Query, Store};
use futures::StreamExt;

use support::{Ground, open};

fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type, "{}").expect("an event"), |event, tag| event.tag(tag).expect("a tag"))
}

async fn put(store: &Store, events: Vec<Event>) {
    store.log().expect("a log").append(Append::new(events)).await.expect("appends");
}

async fn catch_up(store: &Store) -> fencepost::IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

/// All that a feed has, from the start.
async fn fed(store: &Store, query: Query) -> Vec<fencepost::Recorded> {
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

#[tokio::test]
async fn what_was_appended_is_indexed_and_comes_out_of_the_feed() {
    let ground = Ground::fresh();
    let store = open(ground.builder("feed=streams")).await;
    put(&store, vec![event("A", &["x"]), event("B", &["x", "y"]), event("C", &[])]).await;
    put(&store, vec![event("A", &["y"])]).await;
    assert!(fed(&store, Query::all()).await.is_empty(), "nothing is in the index yet");
    let progress = catch_up(&store).await;
    assert_eq!((progress.commits, progress.late, progress.waiting, progress.caught_up), (2, 0, 0, true), "{progress:?}");
    let types = |events: &[fencepost::Recorded]| events.iter().map(|e| e.event_type.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(types(&fed(&store, Query::all()).await), ["A", "B", "C", "A"]);
    assert_eq!(types(&fed(&store, Query::tag("y").expect("a query")).await), ["B", "A"]);
    assert_eq!(types(&fed(&store, Query::types(["C"]).expect("a query")).await), ["C"]);
    let again = catch_up(&store).await;
    assert_eq!((again.commits, again.epochs), (0, 0), "{again:?}");
}
