//! What a stream forgets after a day is lost if it was not read, and that is said; what had been read is not, however long the table idles.
//!
//! On a table that was idle for 23 to 28 hours a gap was told that was none: behind a record that has expired nothing can be asked for.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost::testing::{Faults, Gate, Reshard, Rule};
use fencepost::{Append, Engine, Env, Event, IndexOptions, IndexProgress, Projection, Store, Unread};
use support::{Ground, open};

struct Table {
    engine: Engine,
    reshard: Reshard,
    env: Env,
    layout: &'static str,
}

impl Table {
    async fn new(layout: &'static str) -> Self {
        let engine = Engine::memory().expect("an engine");
        let (reshard, env) = (Reshard::new(engine.http_client(), 1), Env::seeded(1));
        env.set_clock(Env::system().now());
        reshard.calm().await;
        Self { engine, reshard, env, layout }
    }

    async fn store(&self) -> Store {
        let builder = Ground::Engine(self.engine.clone()).builder(self.layout);
        open(builder.http_client(self.reshard.http_client()).env(self.env.clone())).await
    }

    /// As a new process would.
    async fn catch_up(&self) -> IndexProgress {
        let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up();
        self.store().await.index().expect("an index").run(&options, &|_| ()).await.expect("runs")
    }

    fn hours(&self, hours: u64) {
        self.env.advance(Duration::from_secs(hours * 3_600));
    }

    async fn put(&self, commits: usize) {
        let store = self.store().await;
        for n in 0..commits {
            let event = Event::new("A", "{}").expect("an event");
            match store.log() {
                Ok(log) => drop(log.append(Append::new([event.tag(format!("t-{n}")).expect("a tag")])).await.expect("appends")),
                Err(_) => {
                    let stream = fencepost::StreamName::new(format!("Cart-{n}")).expect("a name");
                    store.streams().append(&stream, fencepost::Step::new([event])).await.expect("appends");
                }
            }
        }
    }

    /// What was recorded comes into shards, and nobody reads it.
    async fn arrive(&self) {
        let (gate, faults) = (Gate::new(), Faults::new(self.reshard.http_client(), 1));
        faults.script(Rule::on("GetRecords").nth(1).pause_after(&gate));
        let builder = Ground::Engine(self.engine.clone()).builder(self.layout);
        let reader = open(builder.http_client(faults.http_client()).env(self.env.clone())).await;
        tokio::select! {
            ran = async { reader.index().expect("an index").run(&IndexOptions::default(), &|_| ()).await } => panic!("{ran:?}"),
            () = gate.reached(1) => {}
        }
    }

    async fn findings(&self) -> usize {
        self.store().await.index().expect("an index").verify(&|_| ()).await.expect("verifies").findings.len()
    }
}

const BOTH: [&str; 2] = ["feed=streams", "layout=equinox"];

#[tokio::test]
async fn records_that_expire_after_they_were_read_are_no_gap_as_long_as_somebody_looks() {
    for layout in BOTH {
        let table = Table::new(layout).await;
        table.put(12).await;
        assert_eq!(table.catch_up().await.commits, 12, "{layout}");
        for hours in [20, 5, 20, 40] {
            table.hours(hours);
            // They go a day after they were written, and not before.
            if hours != 20 {
                table.reshard.trim().await;
            }
            // In the last round nobody has looked for longer than a stream keeps anything.
            assert_eq!(table.catch_up().await.trimmed, hours == 40, "{layout}, {hours} hours later");
        }
        assert_eq!(table.findings().await, 0, "{layout}: nothing was lost, and that only a look at everything could tell");
        let rebuilt = table.store().await.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
        assert_eq!((rebuilt.appended, rebuilt.trimmed, table.catch_up().await.trimmed), (0, false, false), "{layout}");
        table.put(3).await;
        assert_eq!((table.catch_up().await.commits, table.findings().await), (3, 0), "{layout}: it is read on");
    }
}

#[tokio::test]
async fn records_that_go_unread_are_a_gap_whatever_had_been_read_before() {
    for layout in BOTH {
        let table = Table::new(layout).await;
        table.put(12).await;
        table.catch_up().await;
        table.hours(20);
        assert!(!table.catch_up().await.trimmed, "{layout}");
        table.put(12).await;
        table.arrive().await;
        table.hours(25);
        table.reshard.trim().await;
        assert!(table.catch_up().await.trimmed, "{layout}");
        assert!(table.findings().await > 0, "{layout}");
        let rebuilt = table.store().await.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
        assert_eq!((rebuilt.appended, rebuilt.trimmed), (12, false), "{layout}");
        assert_eq!((table.catch_up().await.trimmed, table.findings().await), (false, 0), "{layout}");
    }
}

/// Half of a commit is read, and waits in a shard of which nothing else was ever read: the index knows no number of that shard that it has passed.
/// Five hours later others are indexed, and another twenty later the half is gone, though somebody looked a day ago or less.
#[tokio::test]
async fn what_was_read_and_never_indexed_is_a_gap_once_it_is_gone() {
    let table = Table::new("feed=streams").await;
    table.reshard.hold(Some("t/main/held")).await;
    let event = Event::new("A", "{}").and_then(|event| event.tag("there")?.tag("held")).expect("an event");
    let log = table.store().await.log().expect("a log");
    log.append(Append::new([event])).await.expect("appends");
    assert_eq!(table.catch_up().await.waiting, 1);
    table.hours(5);
    // Until each of the other shards has had a record, and the one that waits lies alone in its own.
    table.put(1).await;
    assert_eq!(table.catch_up().await.commits, 1);
    table.hours(20);
    table.reshard.trim().await;
    assert!(table.catch_up().await.trimmed, "a record is gone that was not in the index");
    let rebuilt = table.store().await.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
    assert_eq!((rebuilt.appended, rebuilt.trimmed), (1, false));
    table.reshard.hold(None).await;
    assert_eq!((table.catch_up().await.trimmed, table.findings().await), (false, 0));
}

/// A monitor that asks the index how far it is must hear that nobody builds it.
#[tokio::test]
async fn what_an_index_lacks_of_its_stream_shows_in_its_status_and_since_when() {
    for layout in BOTH {
        let table = Table::new(layout).await;
        let unread = async || table.store().await.index().expect("an index").status().await.expect("status").unread;
        table.put(5).await;
        table.catch_up().await;
        assert_eq!(unread().await, Unread::Nothing, "{layout}");
        let before = Env::system().now();
        table.put(3).await;
        table.hours(10);
        match unread().await {
            // To the second.
            Unread::Since(at) => assert!(at.duration_since(before).as_secs().abs() < 20, "{layout}: {at}"),
            other => panic!("{layout}: {other:?}"),
        }
        table.catch_up().await;
        assert_eq!(unread().await, Unread::Nothing, "{layout}");
    }
}

/// Who has done all that is in the index is not at the end of the log: with a dead indexer both lagged by nothing, for ever.
#[tokio::test]
async fn a_consumer_and_a_projection_lag_behind_the_log_though_nobody_builds_its_index() {
    for layout in BOTH {
        let table = Table::new(layout).await;
        table.put(2).await;
        table.catch_up().await;
        let store = table.store().await;
        let done = AtomicUsize::new(0);
        let handler = |_: fencepost::Handed| async {
            done.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(())
        };
        let mailer = store.consumer("mailer").expect("a name").save_every(1, Duration::from_millis(5)).lease(Duration::from_millis(200));
        let both = async {
            while done.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
        };
        let _ = mailer.run_until(handler, both).await.expect("runs");
        let fold = |count: &mut u64, _: &_| {
            *count += 1;
            Ok::<_, String>(())
        };
        let count = Projection::new("count", 1, || 0u64, fold).expect("a name");
        let projections = store.projections().expect("a feed");
        let counted = async {
            while projections.get::<u64>("count").await.expect("reads").is_none() {
                tokio::task::yield_now().await;
            }
        };
        let _ = projections.run_until(&count, counted).await.expect("runs");
        let lags = async || {
            let projected = projections.lag("count", 9).await.expect("counts").expect("it is live");
            [mailer.lag(9).await.expect("counts"), projected].map(|lag| (lag.events, lag.more, lag.seconds.round()))
        };
        assert_eq!(lags().await, [(0, false, 0.0); 2], "{layout}");
        table.put(3).await;
        table.hours(10);
        for (events, more, seconds) in lags().await {
            assert_eq!((events, more), (0, true), "{layout}: nothing is counted that is not in the index");
            assert!((35_980.0..36_020.0).contains(&seconds), "{layout}: {seconds}");
        }
        table.catch_up().await;
        for (events, more, seconds) in lags().await {
            assert_eq!((events, more), (3, false), "{layout}");
            assert!(seconds > 35_980.0, "{layout}: {seconds}");
        }
        assert_eq!(store.feed().expect("a feed").unshown_since().await.expect("looks"), None, "{layout}");
    }
}

/// One index serves all namespaces of a table, and the feed of each shows its own.
#[tokio::test]
async fn what_the_index_lacks_of_another_namespace_is_not_missing_from_a_feed() {
    let engine = Engine::memory().expect("an engine");
    let opened = |url: &'static str| open(Ground::Engine(engine.clone()).builder(url));
    let (store, other) = (opened("feed=streams").await, opened("feed=streams&namespace=other").await);
    let event = Event::new("A", "{}").and_then(|event| event.tag("a")).expect("an event");
    other.log().expect("a log").append(Append::new([event])).await.expect("appends");
    let unshown = async |store: &Store| store.feed().expect("a feed").unshown_since().await.expect("looks");
    assert!(unshown(&other).await.is_some());
    assert_eq!(unshown(&store).await, None);
}

/// Records do not go before a day is over; if they do all the same, that somebody looked says nothing.
#[tokio::test]
async fn records_that_go_early_are_a_gap() {
    for layout in BOTH {
        let table = Table::new(layout).await;
        table.put(12).await;
        table.catch_up().await;
        table.reshard.trim().await;
        assert!(table.catch_up().await.trimmed, "{layout}");
    }
}

/// The index holds what a rebuild's scan could meet: what was written behind it may be gone before an indexer looks for the first time, however
/// young the last epoch is.
#[tokio::test]
async fn what_was_written_behind_a_scan_counts_from_its_beginning() {
    for (hours, lost) in [(1, false), (3, true)] {
        let table = Table::new("feed=streams").await;
        table.put(24).await;
        let (gate, faults) = (Gate::new(), Faults::new(table.engine.http_client(), 1));
        let slow =
            open(Ground::Engine(table.engine.clone()).builder("feed=streams").http_client(faults.http_client()).env(table.env.clone()))
                .await;
        faults.script(Rule::on("Scan").nth(4).pause_after(&gate));
        let index = slow.index().expect("an index");
        let later = async {
            gate.reached(1).await;
            table.hours(21);
            gate.open();
        };
        let (rebuilt, ()) = futures::future::join(index.rebuild(&|_| ()), later).await;
        assert_eq!(rebuilt.expect("rebuilds").appended, 24);
        table.hours(hours);
        assert_eq!(table.catch_up().await.trimmed, lost, "{hours} hours later");
    }
}

/// A rebuild clears what had been found when it began, and not what was found since.
#[tokio::test]
async fn a_gap_that_is_found_while_a_rebuild_scans_is_not_cleared_by_it() {
    let table = Table::new("feed=streams").await;
    table.put(12).await;
    table.catch_up().await;
    table.reshard.trim().await;
    assert!(table.catch_up().await.trimmed);
    let (gate, faults) = (Gate::new(), Faults::new(table.engine.http_client(), 1));
    let builder = Ground::Engine(table.engine.clone()).builder("feed=streams").http_client(faults.http_client()).env(table.env.clone());
    let slow = open(builder).await;
    faults.script(Rule::on("Scan").nth(4).pause_after(&gate));
    let index = slow.index().expect("an index");
    let meanwhile = async {
        gate.reached(1).await;
        table.put(12).await;
        table.catch_up().await;
        table.hours(1);
        table.reshard.trim().await;
        assert!(table.catch_up().await.trimmed);
        gate.open();
    };
    let (rebuilt, ()) = futures::future::join(index.rebuild(&|_| ()), meanwhile).await;
    assert!(rebuilt.expect("rebuilds").trimmed);
    assert!(table.catch_up().await.trimmed, "it is still said");
    assert!(!index.rebuild(&|_| ()).await.expect("rebuilds").trimmed);
    assert!(!table.catch_up().await.trimmed);
}
