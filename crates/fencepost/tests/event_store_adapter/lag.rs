//! The index of v3 lags: what it does not show yet is read by its key.

use std::time::Duration;

use fencepost::testing::Lag;
use fencepost::{Engine, Env, Expect, LoadOptions, Step, Store, StreamReadOptions, StreamStoreExt};

use super::support::open;
use super::{V3, bare_sdk, event, first, name, number, put, scan};

#[tokio::test]
async fn what_the_index_of_v3_does_not_show_yet_is_read_by_its_key() {
    let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(now.http_client(), stale.http_client(), 1);
    let builder = || Store::builder(&format!("memory:?{V3}")).expect("a URL").http_client(lag.http_client());
    let a = name("user-a");
    open(builder()).await.streams().append(&a, first([event("A", "1"), event("A", "2")])).await.expect("appends");
    lag.apply_all().await;
    for n in 3..=9u64 {
        // A fresh handle remembers nothing.
        let streams = open(builder()).await.streams();
        let loaded = streams.load(&a, LoadOptions::default()).await.expect("loads");
        assert_eq!(loaded.events.iter().filter_map(|event| event.version).collect::<Vec<_>>(), (1..n).collect::<Vec<_>>());
        let from = streams.load(&a, LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        assert_eq!((from.snapshots[0].version, from.events.len() as u64), (2, n - 3));
        assert_eq!(streams.load(&a, LoadOptions::default().latest()).await.expect("loads").version, n - 1);
        let backwards = streams.read_stream(&a, StreamReadOptions::default().backwards().limit(2)).await.expect("reads");
        assert_eq!(backwards.iter().filter_map(|event| event.version).collect::<Vec<_>>(), [n - 1, n - 2]);
        let step = Step::new([event("A", &n.to_string())]).expect(Expect::Version(n - 1));
        assert_eq!(open(builder()).await.streams().append(&a, step).await.expect("appends").version, Some(n));
        if n % 3 == 0 {
            lag.apply_half().await;
        }
    }
}

/// A program that moved the lock once for two events: the number alone would call the index whole, and the time of the last event does not.
#[tokio::test]
async fn a_lock_that_counts_too_few_hides_no_event() {
    let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(now.http_client(), stale.http_client(), 1);
    let builder = || Store::builder(&format!("memory:?{V3}&table=orders")).expect("a URL").http_client(lag.http_client());
    let a = name("user-a");
    let streams = open(builder()).await.streams();
    streams.append(&a, first([event("A", "1")])).await.expect("appends");
    streams.append(&a, Step::new([event("A", "2")])).await.expect("appends");
    lag.apply_all().await;
    // The lock tells milliseconds: of two events of one of them it tells nothing.
    Env::system().sleep(Duration::from_millis(2)).await;
    streams.append(&a, Step::new([event("A", "3")])).await.expect("appends");
    let client = bare_sdk::client(lag.http_client());
    let mut current = scan(&client, "orders-snapshot").await.remove(0);
    current.insert("version".into(), number(2));
    put(&client, "orders-snapshot", current).await;
    let loaded = open(builder()).await.streams().load(&a, LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!((loaded.snapshots[0].version, loaded.version), (1, 3));
}

/// The index shows nothing of the stream yet: it is not taken for one that begins.
#[tokio::test]
async fn an_append_without_a_snapshot_is_not_refused_because_the_index_lags() {
    let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(now.http_client(), stale.http_client(), 1);
    let builder = || Store::builder(&format!("memory:?{V3}")).expect("a URL").http_client(lag.http_client());
    let a = name("user-a");
    open(builder()).await.streams().append(&a, first([event("A", "1"), event("A", "2")])).await.expect("appends");
    for n in 3..=5 {
        let done = open(builder()).await.streams().append(&a, Step::new([event("A", &n.to_string())])).await;
        assert_eq!(done.expect("appends").version, Some(n));
    }
}
