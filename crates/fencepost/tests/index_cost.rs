//! What the index costs, in write units: a number that must not grow.

mod support;

use std::time::Duration;

use fencepost::{Append, Event, IndexOptions, IndexProgress};
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
