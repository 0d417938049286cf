//! Units of appends and loads, as numbers.

use fencepost::{Error, Expect, LoadOptions, Snapshot, Step, Units};

use super::support::{Ground, open};
use super::{V3, V5, bench, event, first, name};

fn units(read: f64, write: f64, requests: u64) -> Units {
    Units { read, write, requests }
}

/// The figures of the specification: v5 event 4; with a snapshot of S KB 4 + 2⌈S⌉, a history of it twice that and the index's entry.
#[tokio::test]
async fn an_event_of_v5_costs_four_and_a_snapshot_twice_its_size() {
    let a = name("user-a");
    let at = |version| Expect::Version(version);
    let (_, store, _) = bench(V5).await;
    let streams = store.streams();
    let body = "x".repeat(700);
    let done = async |step: Step| streams.append(&a, step).await.expect("appends").units;
    assert_eq!(done(Step::new([event("A", &body)]).expect(Expect::None)).await, units(0.0, 4.0, 1));
    assert_eq!(done(Step::new([event("A", &body)]).expect(at(1))).await, units(0.0, 4.0, 1));
    assert_eq!(done(Step::new([event("A", &body)])).await, units(0.0, 4.0, 1), "whose end is remembered");
    let snapshot = || Snapshot::new("snapshot", "s".repeat(20 * 1024 - 200));
    assert_eq!(done(Step::new([event("A", &body)]).snapshot(snapshot())).await, units(0.0, 4.0 + 2.0 * 20.0, 1));
    // Two events: two of the journal, and a head that holds both.
    assert_eq!(done(Step::new([event("A", "1"), event("A", "2")])).await, units(0.0, 6.0, 1));
    let id = fencepost::CommitId::of_key("once");
    assert_eq!(done(Step::new([event("A", "1")]).commit(id)).await.write, 6.0, "one item more for an id of the caller's");
    let loaded = streams.load(&a, LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!((loaded.events.len(), loaded.units), (3, units(5.0 + 1.0, 0.0, 2)), "the snapshot and what is behind it, two requests");

    let (_, store, _) = bench(&format!("{V5}&keep=1")).await;
    let kept = store.streams().append(&a, Step::new([event("A", &body)]).snapshot(snapshot())).await.expect("appends").units;
    assert!((4.0 + 4.0 * 20.0..=4.0 + 4.0 * 20.0 + 2.0).contains(&kept.write), "{kept}");
}

/// v3 by its arithmetic: the whole snapshot is billed with every event, and twice; the journal's item, and the indexes' copies.
#[tokio::test]
async fn an_event_of_v3_costs_the_snapshot_that_it_locks() {
    let (_, store, _) = bench(V3).await;
    let a = name("user-a");
    let snapshot = Snapshot::new("snapshot", "s".repeat(20 * 1024 - 300));
    let created = store.streams().append(&a, Step::new([event("A", "{}")]).expect(Expect::None).snapshot(snapshot)).await.expect("appends");
    let later = store.streams().append(&a, Step::new([event("A", "{}")]).expect(Expect::Version(1))).await.expect("appends");
    // 2 × 20 for the lock and 2 for the event; then 20 for the lock's copy in the index of snapshots, and 1 in the journal's.
    assert_eq!((created.units, later.units), (units(0.0, 63.0, 1), units(0.0, 63.0, 1)));
    let loaded = store.streams().load(&a, LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!(
        (loaded.events.len(), loaded.units),
        (1, units(5.0 + 0.5, 0.0, 2)),
        "the snapshot, which tells where it ends, and the index"
    );
    let all = store.streams().load(&a, LoadOptions::default()).await.expect("loads");
    assert_eq!((all.events.len(), all.units), (2, units(0.5 + 1.0, 0.0, 2)), "the index, and a look behind what it has");
    let eventual = store.streams().load(&a, LoadOptions::default().eventual()).await.expect("loads");
    assert_eq!((eventual.events.len(), eventual.units), (2, units(0.5, 0.0, 1)));
    let none = store.streams().load(&name("user-none"), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!((none.version, none.units), (0, units(1.0 + 0.5, 0.0, 2)), "no snapshot, and nothing in the index");
}

/// A lost race brings what came with one read, and an append behind any end looks once; in v3 the lock that the failed condition showed tells
/// that the index has all. What is behind a token is one read, in v3 and strongly one look more.
#[tokio::test]
async fn a_lost_race_is_told_for_one_read() {
    for (layout, read) in [(V3, 0.5), (V5, 1.0)] {
        let (engine, store, _) = bench(layout).await;
        let (a, streams) = (name("user-a"), store.streams());
        let other = open(Ground::Engine(engine).builder(layout)).await.streams();
        streams.append(&a, first([event("A", "1")])).await.expect("appends");
        let loaded = streams.load(&a, LoadOptions::default()).await.expect("loads");
        let theirs = || Step::new([event("A", "2")]);
        other.append(&a, theirs()).await.expect("theirs");
        for expect in [Expect::Version(1), Expect::Token(loaded.token)] {
            let Err(Error::Conflict(conflict)) = streams.append(&a, Step::new([event("A", "3")]).expect(expect)).await else {
                panic!("{layout}")
            };
            assert_eq!((conflict.events.len(), conflict.units.read, conflict.units.requests), (1, read, 2), "{layout}");
            let token = conflict.token.expect("a token");
            let warm = streams.load(&a, LoadOptions::default().since(token)).await.expect("loads");
            assert_eq!((warm.version, warm.events.len()), (2, 0), "{layout}");
        }
        streams.load(&a, LoadOptions::default()).await.expect("loads");
        other.append(&a, theirs()).await.expect("theirs");
        let done = streams.append(&a, Step::new([event("A", "4")])).await.expect("appends");
        let looked = if layout == V3 { (0.5, 3) } else { (0.0, 2) };
        assert_eq!(
            (done.version, (done.units.read, done.units.requests)),
            (Some(4), looked),
            "{layout}: the head tells itself where it is"
        );
        let warm = async |options: LoadOptions| {
            let token = streams.load(&a, LoadOptions::default()).await.expect("loads").token;
            let loaded = streams.load(&a, options.since(token)).await.expect("loads");
            (loaded.units.read, loaded.units.requests)
        };
        assert_eq!(warm(LoadOptions::default().eventual()).await, (0.5, 1), "{layout}");
        assert_eq!(warm(LoadOptions::default()).await, if layout == V3 { (1.5, 2) } else { (1.0, 1) }, "{layout}");
    }
}
