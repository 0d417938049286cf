//! What the index costs, in write units, and what following it reads: numbers that must not grow.

mod support;

use std::time::Duration;

use fencepost::testing::Meter;
use fencepost::{Append, Delivery, Engine, Event, From, IndexOptions, IndexProgress, Query};
use futures::StreamExt;
use support::{Ground, open};

/// So many commits of so many events on two tags wait; then they are indexed.
async fn indexed(commits: usize, events: usize) -> IndexProgress {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let log = store.log().expect("a log");
    for n in 0..commits {
        let event = |m: usize| {
            let event = Event::new(format!("StudentEnrolled{}", m % 3), "{}").expect("an event");
            event.tag(format!("course:c{:04}", n % 37)).and_then(|e| e.tag(format!("student:s{:06}", n * 31))).expect("tags")
        };
        log.append(Append::new((0..events).map(event))).await.expect("appends");
    }
    let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up();
    let progress = store.index().expect("an index").run(&options, &|_| ()).await.expect("runs");
    assert_eq!(progress.commits, commits as u64);
    progress
}

#[tokio::test]
async fn when_a_hundred_commits_wait_each_costs_at_most_15_hundredths_of_a_write_unit() {
    let progress = indexed(100, 1).await;
    let each = progress.units.write / 100.0;
    assert!(each <= 0.15, "{each} write units for a commit: {progress:?}");
}

#[tokio::test]
async fn an_event_of_a_commit_of_ten_costs_less_than_two_hundredths() {
    let progress = indexed(100, 10).await;
    let each = progress.units.write / 1_000.0;
    assert!(each < 0.02, "{each} write units for an event: {progress:?}");
}

/// A large commit lies in one set of chunks, whatever tags its events carry: who follows all of them reads that set once, and not for every tag.
#[tokio::test]
async fn a_large_commit_over_many_tags_is_read_once_by_a_feed_and_by_a_decision() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine).builder("feed=streams").http_client(meter.http_client())).await;
    let log = store.log().expect("a log");
    // Bodies that do not repeat, so that they are not compressed to nothing.
    let body = |n: u64| (0..12).map(|at| format!("{:x}", (n * 31 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect::<String>();
    let event = |n: u64| Event::new("Moved", body(n)).and_then(|event| event.tag(format!("order:{}", n % 40))).expect("an event");
    let written = log.append(Append::new((0..4_000).map(event))).await.expect("appends").units;
    store.index().expect("an index").run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("runs");
    meter.take();
    let mut feed = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    for n in 0..4_000 {
        let Some(Ok(Delivery::Event { event, .. })) = feed.next().await else { panic!("an event, {n}") };
        assert_eq!(event.data, body(n));
    }
    // Forty slots of a unit of write each in a transaction; the rest are chunks, read eventually: an eighth of what they cost to write.
    let read = meter.take();
    assert!(read.read <= 40.0 / 2.0 + written.write / 8.0 && read.requests <= 10, "{read}, written for {written}");
    let both = Query::tag("order:1").expect("a query").or(Query::tag("order:2").expect("a query"));
    let decided = log.source(&both, None).await.expect("reads");
    assert_eq!(decided.events.len(), 200);
    assert!(decided.units.read <= 4.0 + written.write / 8.0 && decided.units.requests <= 6, "{}, written for {written}", decided.units);
}
