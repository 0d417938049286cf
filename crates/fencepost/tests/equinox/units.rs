//! What appends and loads cost, as numbers, on the embedded engine; and how that grows with the Tip.

use fencepost::{Env, Event, Expect, LoadOptions, Snapshot, Step, Units};

use super::{golden, name, step};

fn units(read: f64, write: f64, requests: u64) -> Units {
    Units { read, write, requests }
}

/// So many bytes that no compression shortens.
fn noise(env: &Env, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| env.below(256) as u8).collect()
}

#[tokio::test]
async fn an_append_within_the_tip_is_one_request_of_one_unit() {
    let opened = golden::embedded("orders", "").await;
    let streams = opened.store.streams();
    let first = streams.append(&name("Cart-1"), step(&["a"]).expect(Expect::None)).await.expect("appends");
    assert_eq!(first.units, units(0.0, 1.0, 1), "a put, without a look");
    let token = first.token.expect("a token");
    let second = streams.append(&name("Cart-1"), step(&["b"]).expect(Expect::Token(token))).await.expect("appends");
    assert_eq!(second.units, units(0.0, 1.0, 1), "an update of what is remembered");
    let any = streams.append(&name("Cart-1"), step(&["c"])).await.expect("appends");
    assert_eq!(any.units, units(0.0, 1.0, 1));
    // Another process, which remembers nothing, looks first.
    let other = opened.other("").await.streams();
    assert_eq!(other.append(&name("Cart-1"), step(&["d"])).await.expect("appends").units, units(1.0, 1.0, 2));
    // The first one's memory is stale: one write in vain hands it the Tip, and no read is needed.
    let stale = streams.append(&name("Cart-1"), step(&["e"])).await.expect("appends");
    assert_eq!((stale.units, stale.version), (units(0.0, 2.0, 2), Some(5)));
    let late = streams.append(&name("Cart-1"), step(&["x"]).expect(Expect::Version(2))).await.expect_err("late");
    let fencepost::Error::Conflict(conflict) = late else { panic!("{late}") };
    assert_eq!((conflict.units, conflict.events.len()), (units(1.0, 0.0, 1), 3));
}

#[tokio::test]
async fn a_calve_is_one_transaction_of_four_units() {
    let opened = golden::embedded("orders", "&tip_events=2").await;
    let streams = opened.store.streams();
    streams.append(&name("Cart-1"), step(&["a", "b"])).await.expect("appends");
    let calved = streams.append(&name("Cart-1"), step(&["c"])).await.expect("appends");
    assert_eq!(calved.units, units(0.0, 4.0, 1), "two items, twice each");
    assert!(opened.item("Cart-1", 0).await.is_some());
}

#[tokio::test]
async fn a_load_from_a_snapshot_is_one_request_wherever_the_events_are() {
    let opened = golden::embedded("orders", "&tip_events=2").await;
    let streams = opened.store.streams();
    for n in 0..20 {
        let step = step(&[&n.to_string()]).snapshot(Snapshot::new("Snapshotted", format!("{{\"n\":{n}}}")));
        streams.append(&name("Cart-1"), step).await.expect("appends");
    }
    let load = || LoadOptions::default().snapshot(["Snapshotted"]);
    let strong = streams.load(&name("Cart-1"), load()).await.expect("loads");
    assert_eq!((strong.units, strong.version, strong.events.len()), (units(1.0, 0.0, 1), 20, 0));
    assert_eq!(streams.load(&name("Cart-1"), load().eventual()).await.expect("loads").units, units(0.5, 0.0, 1));
    // The last event is in the Tip; what came since is mostly there too.
    assert_eq!(streams.load(&name("Cart-1"), LoadOptions::default().latest()).await.expect("loads").units, units(1.0, 0.0, 1));
    let since = LoadOptions::default().since(strong.token);
    streams.append(&name("Cart-1"), step(&["more"])).await.expect("appends");
    assert_eq!(streams.load(&name("Cart-1"), since).await.expect("loads").units, units(1.0, 0.0, 1));
}

/// Few events out of a long stream, wherever they are: as few calves, and never all that are older or newer.
#[tokio::test]
async fn a_few_events_of_a_long_stream_cost_little() {
    let engine = fencepost::Engine::memory().expect("an engine");
    let faults = fencepost::testing::Faults::new(engine.http_client(), 1);
    let url = "memory:?layout=equinox&table=orders&tip_bytes=8192";
    let store = fencepost::Store::builder(url).expect("url").http_client(faults.http_client()).open().await.expect("opens");
    let (streams, stream, env) = (store.streams(), name("Cart-1"), Env::seeded(1));
    for _ in 0..60 {
        let events = (0..15).map(|_| Event::new("Added", noise(&env, 500)).expect("an event"));
        streams.append(&stream, Step::new(events)).await.expect("appends");
    }
    let read = fencepost::StreamReadOptions::default;
    // Calves of 15 events and 8 KB: by the number of requests, none of which asks for more items than it needs, twice as many at most.
    for (options, first, count, requests) in [
        (read().limit(3), 1, 3, 1),
        (read().after(400).limit(32), 401, 32, 3),
        (read().after(885).limit(3), 886, 3, 3),
        (read().backwards().limit(3), 900, 3, 1),
        (read().backwards().after(401).limit(3), 400, 3, 1),
        (read().backwards().after(401).limit(32), 400, 32, 3),
    ] {
        let before = faults.log().len();
        let events = fencepost::StreamStoreExt::read_stream(&*streams, &stream, options).await.expect("reads");
        assert_eq!((events[0].version, events.len()), (Some(first), count), "{options:?}");
        assert!(faults.log().len() - before <= requests, "{options:?}: {} requests", faults.log().len() - before);
    }
    let since = streams.load(&stream, LoadOptions::default().latest()).await.expect("loads");
    assert!(since.units.read <= 3.0, "{}", since.units);
}

/// 200 appends of one event of 500 bytes that do not compress, by the size of the Tip: what one event costs in the end. The specification
/// measured the same on DynamoDB Local with equinox-js.
#[tokio::test]
async fn the_larger_the_tip_the_more_an_event_costs() {
    println!("| Tip | calves | units per append | most | units per calve | units per event |");
    let expected = [(4, 28, 4, 16, 4.8), (8, 14, 8, 32, 6.6), (16, 6, 16, 64, 10.3), (32, 3, 32, 128, 17.3)];
    for (kib, calves, most, per_calve, per_event) in expected {
        let opened = golden::embedded("orders", &format!("&tip_bytes={}", kib * 1024)).await;
        let streams = opened.store.streams();
        let (env, mut plain, mut calved) = (Env::seeded(1), Vec::new(), Vec::new());
        for n in 0..200 {
            let event = Event::new("Added", noise(&env, 502)).expect("an event");
            let done = streams.append(&name("Cart-1"), Step::new([event]).expect(Expect::Version(n))).await.expect("appends");
            assert_eq!((done.units.read, done.units.requests), (0.0, 1));
            // A transaction is billed twice: only then is the Tip short again, and the units are many.
            let tip = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
            let is_calve = n > 0 && tip["e"].as_l().expect("events").len() == 1;
            if is_calve { &mut calved } else { &mut plain }.push(done.units.write);
        }
        let sum = |units: &[f64]| units.iter().sum::<f64>();
        let average = sum(&plain) / plain.len() as f64;
        let total = (sum(&plain) + sum(&calved)) / 200.0;
        let largest = |units: &[f64]| units.iter().copied().fold(0.0, f64::max);
        println!("| {kib} KiB | {} | {average:.1} | {} | {} | {total:.1} |", calved.len(), largest(&plain), largest(&calved));
        assert_eq!(calved.len(), calves, "{kib} KiB");
        assert!(largest(&plain) <= f64::from(most), "{kib} KiB: {}", largest(&plain));
        assert!(largest(&calved) <= f64::from(per_calve), "{kib} KiB: {}", largest(&calved));
        assert!(total <= per_event + 0.05 && total > per_event - 0.7, "{kib} KiB: {total}");
    }
}
