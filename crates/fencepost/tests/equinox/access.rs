//! How a state is kept and found again: Equinox' access strategies, its load options and its caching, by deciders; and what an archive has.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use fencepost::testing::{Faults, Lag};
use fencepost::{
    Cache, Category, Decider, Engine, Env, Error, Event, Expect, LoadOptions, Memory, Snapshot, Step, Store, StreamReadOptions,
    StreamStore, StreamStoreExt, Units,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::golden::{self, Item, Opened, file};
use super::{list, name, step};

const TIP: u64 = 2_147_483_647;

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
pub(crate) enum Counted {
    Added { by: u64 },
}

pub(crate) struct Counter;

#[derive(Debug)]
pub(crate) struct TooMuch;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) sum: u64,
    pub(crate) times: u64,
}

impl Decider for Counter {
    type State = Sum;
    type Event = Counted;
    type Command = u64;
    type Rejection = TooMuch;
    fn initial(&self) -> Sum {
        Sum::default()
    }
    fn evolve(&self, sum: &mut Sum, Counted::Added { by }: &Counted) {
        *sum = Sum { sum: sum.sum + by, times: sum.times + 1 };
    }
    fn decide(&self, by: &u64, sum: &Sum) -> Result<Vec<Counted>, TooMuch> {
        if sum.sum + by > 100 { Err(TooMuch) } else { Ok(vec![Counted::Added { by: *by }]) }
    }
}

fn json(sum: &Sum) -> Vec<u8> {
    serde_json::to_vec(sum).expect("JSON")
}
pub(crate) fn of_json(snapshots: &[Snapshot]) -> Option<Sum> {
    serde_json::from_slice(&snapshots.iter().find(|snapshot| snapshot.name == "Snapshotted")?.state).ok()
}

pub(crate) fn category(streams: Arc<dyn StreamStore>, strategy: &str) -> Category<Counter> {
    let bare = Category::new(streams, Counter);
    match strategy {
        "unoptimised" => bare,
        "latest" => bare.latest(),
        "snapshot" => bare.snapshots("Snapshotted", 1),
        "several" => bare.several_snapshots(["Snapshotted", "Tallied"], of_json, |sum| {
            vec![Snapshot::new("Tallied", format!("{}", sum.times)), Snapshot::new("Snapshotted", json(sum))]
        }),
        "rolling" => bare.rolling("Snapshotted"),
        // Small ones are in the state alone.
        "custom" => bare.custom(["Snapshotted"], of_json, |events, sum| {
            let large = |event: &Event| !String::from_utf8_lossy(event.data()).contains("\"by\":1}");
            (events.into_iter().filter(large).collect(), vec![Snapshot::new("Snapshotted", json(sum))])
        }),
        other => panic!("{other}"),
    }
}

pub(crate) async fn add(category: &Category<Counter>, stream: &str, by: u64) -> Units {
    let outcome = category.decide(&name(stream), &by).await.expect("decides");
    let units = outcome.units;
    outcome.accepted().expect("it is not too much");
    units
}

fn n(item: &Item, name: &str) -> u64 {
    item[name].as_n().expect("a number").parse().expect("a number")
}
fn unfolds(tip: &Item) -> Vec<(String, u64)> {
    let of = |unfold: &AttributeValue| {
        let map = unfold.as_m().expect("a map").clone();
        (map["c"].as_s().expect("a type").clone(), n(&map, "i"))
    };
    list(tip, "u").iter().map(of).collect()
}

#[tokio::test]
async fn every_strategy_keeps_what_it_says_and_loads_from_it() {
    for (strategy, events, expected) in [
        ("unoptimised", 3, vec![]),
        ("latest", 3, vec![("Added", 3)]),
        ("snapshot", 3, vec![("Snapshotted", 3)]),
        ("several", 3, vec![("Tallied", 3), ("Snapshotted", 3)]),
        ("rolling", 0, vec![("Snapshotted", 0)]),
        ("custom", 2, vec![("Snapshotted", 2)]),
    ] {
        let opened = golden::open("orders", "&tip_events=2").await;
        let counter = category(opened.store.streams(), strategy);
        for by in [5, 1, 7] {
            add(&counter, "Counter-1", by).await;
        }
        let tip = opened.item("Counter-1", TIP).await.expect("a Tip");
        let expected: Vec<_> = expected.into_iter().map(|(name, at)| (name.to_owned(), at)).collect();
        assert_eq!((n(&tip, "n"), unfolds(&tip)), (events, expected), "{strategy}");
        let cold = category(opened.store.streams(), strategy);
        let sum = cold.state(&name("Counter-1")).await.expect("loads");
        let whole = if strategy == "latest" { Sum { sum: 7, times: 1 } } else { Sum { sum: 13, times: 3 } };
        assert_eq!(sum, whole, "{strategy}");
        // And on, by another process.
        let other = opened.other("&tip_events=2").await;
        let decided = add(&category(other.streams(), strategy), "Counter-1", 20).await;
        // One look, at the Tip alone but for who needs every event.
        assert_eq!(decided.requests, 2, "{strategy}");
        assert!(
            counter.decide(&name("Counter-1"), &90).await.expect("decides").rejection().is_some() || strategy == "latest",
            "{strategy}"
        );
    }
}

/// From one to the other on one stream, as their tests say is safe; where F# and equinox-js cannot go on from a Tip without events, ours can.
#[tokio::test]
async fn strategies_may_be_changed_on_a_stream() {
    let opened = golden::open("orders", "").await;
    for (strategy, expected) in [("unoptimised", 5), ("snapshot", 10), ("rolling", 15), ("snapshot", 20), ("custom", 25), ("several", 30)] {
        let counter = category(opened.store.streams(), strategy);
        add(&counter, "Counter-1", 5).await;
        assert_eq!(counter.state(&name("Counter-1")).await.expect("loads").sum, expected, "{strategy}");
    }
    let fresh = category(opened.store.streams(), "rolling");
    add(&fresh, "Counter-2", 5).await;
    let snapshot = category(opened.store.streams(), "snapshot");
    add(&snapshot, "Counter-2", 5).await;
    assert_eq!(snapshot.state(&name("Counter-2")).await.expect("loads"), Sum { sum: 10, times: 2 });
}

/// Eight writers, each with a store of its own: what is in snapshots alone is guarded as events are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_without_events_are_guarded_by_the_etag() {
    for strategy in ["rolling", "custom", "snapshot"] {
        for cached in [false, true] {
            let engine = Engine::memory().expect("an engine");
            let writers = (0..8).map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let url = "memory:?layout=equinox&table=orders&tip_events=3";
                    let store = Store::builder(url).expect("url").http_client(engine.http_client()).open().await.expect("opens");
                    let counter = category(store.streams(), strategy);
                    let counter = if cached { counter.cache(&Cache::new(10)) } else { counter };
                    for by in [1, 2, 1] {
                        let outcome = counter.decide(&name("Counter-1"), &by).any_cached().await.expect("decides");
                        assert!(outcome.accepted().is_ok());
                    }
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.expect("no panic");
            }
            let store = Store::builder("memory:?layout=equinox&table=orders").expect("url").http_client(engine.http_client());
            let counter = category(store.open().await.expect("opens").streams(), strategy);
            assert_eq!(counter.state(&name("Counter-1")).await.expect("loads"), Sum { sum: 32, times: 24 }, "{strategy} {cached}");
        }
    }
}

#[tokio::test]
async fn a_token_that_guards_snapshots_conflicts_with_their_change() {
    let opened = golden::open("orders", "").await;
    let (streams, stream) = (opened.store.streams(), name("Counter-1"));
    let state = |state: &str| Step::rolling([Snapshot::new("Snapshotted", state.to_owned())]);
    streams.append(&stream, state("1").expect(Expect::None)).await.expect("the first");
    assert!(streams.append(&stream, state("x").expect(Expect::None)).await.is_err_and(|error| error.is_conflict()), "there is one");
    let load = || LoadOptions::default().snapshot(["Snapshotted"]);
    let seen = streams.load(&stream, load()).await.expect("loads");
    let next = streams.append(&stream, state("2").expect(Expect::Token(seen.token.clone()))).await.expect("rolls");
    assert_eq!((next.version, next.positions.len()), (Some(0), 0));
    let late = streams.append(&stream, state("x").expect(Expect::Token(seen.token.clone()))).await;
    assert!(late.is_err_and(|error| error.is_conflict()));
    let news = streams.load(&stream, load().since(seen.token.clone())).await.expect("loads");
    assert_eq!(news.snapshots, [Snapshot::at("Snapshotted", 0, "2")], "at the same version");
    assert!(streams.load(&stream, load().since(news.token)).await.expect("loads").snapshots.is_empty(), "nothing since");
    // An event holds its own token against events alone, unless it is said.
    let whole = step(&["a"]).guard_snapshots().expect(Expect::Token(seen.token.clone()));
    assert!(streams.append(&stream, whole).await.is_err_and(|error| error.is_conflict()));
    assert_eq!(streams.append(&stream, step(&["a"]).expect(Expect::Token(seen.token))).await.expect("appends").version, Some(1));
    assert!(matches!(streams.append(&stream, state("x").expect(Expect::Version(1))).await, Err(Error::Refused(_))));
    assert!(matches!(Memory::new().append(&stream, state("x")).await, Err(Error::Refused(_))), "elsewhere it is refused");
}

/// A state that leaves no room for the Tip's events: they are calved, and no event is announced.
#[tokio::test]
async fn a_large_state_alone_calves_the_events() {
    let opened = golden::open("orders", "&tip_bytes=2000").await;
    let (streams, stream) = (opened.store.streams(), name("Counter-1"));
    streams.append(&stream, step(&["a", "b"])).await.expect("appends");
    let env = Env::seeded(5);
    let noise: Vec<u8> = (0..1_900).map(|_| env.below(256) as u8).collect();
    streams.append(&stream, Step::rolling([Snapshot::new("Snapshotted", noise.clone())])).await.expect("rolls");
    let tip = opened.item("Counter-1", TIP).await.expect("a Tip");
    assert_eq!((n(&tip, "n"), n(&tip, "a"), list(&tip, "e").len(), unfolds(&tip)), (2, 0, 0, vec![("Snapshotted".into(), 2)]));
    assert!(tip["e"].as_l().is_ok() && opened.item("Counter-1", 0).await.is_some());
    let last = streams.load(&stream, LoadOptions::default().latest()).await.expect("loads");
    assert_eq!(last.events[0].event_type.as_str(), "Noted", "the event in the calf, not the state");
    streams.append(&stream, step(&["c"])).await.expect("appends");
    assert_eq!(streams.load(&stream, LoadOptions::default()).await.expect("loads").events.len(), 3);
    assert_eq!(opened.store.verify(&|_| ()).await.expect("verifies").findings, []);
}

#[tokio::test]
async fn the_last_event_is_found_in_the_tip_wherever_the_events_are() {
    let opened = golden::open("orders", "").await;
    let counter = category(opened.store.streams(), "latest");
    add(&counter, "Counter-1", 5).await;
    add(&counter, "Counter-1", 7).await;
    opened.store.equinox().expect("equinox").prune(&name("Counter-1"), 99).await.expect("prunes");
    assert_eq!(counter.state(&name("Counter-1")).await.expect("loads").sum, 7);
    let latest = opened.store.streams().load(&name("Counter-1"), LoadOptions::default().latest()).await.expect("loads");
    assert_eq!((latest.units.requests, latest.events[0].version, latest.version), (1, Some(2), 2));
}

/// What the cache holds saves reads as far as it is allowed to, and never a check.
#[tokio::test]
async fn cached_states_are_used_as_the_load_option_says() {
    for strategy in ["unoptimised", "snapshot", "rolling"] {
        let engine = Engine::memory().expect("an engine");
        let faults = Faults::new(engine.http_client(), 1);
        let open = async |faults: &Faults| {
            let builder = Store::builder("memory:?layout=equinox&table=orders&tip_events=2").expect("url");
            builder.http_client(faults.http_client()).open().await.expect("opens").streams()
        };
        let counter = category(open(&faults).await, strategy).cache(&Cache::new(10));
        let stream = name("Counter-1");
        // Nothing is read first, and nothing is there.
        let first = counter.decide_new(&stream, &1).await.expect("decides");
        assert_eq!(first.units, Units { read: 0.0, write: 1.0, requests: 1 }, "{strategy}");
        let calls = faults.log().len();
        assert_eq!(counter.state_within(&stream, Duration::MAX).await.expect("known").sum, 1, "{strategy}");
        assert_eq!(faults.log().len(), calls, "{strategy}: what it wrote is kept");
        assert_eq!(counter.state(&stream).await.expect("loads").sum, 1);
        // Required: one look at the Tip. Any that is cached: none, and the write saves what came of it.
        let required = counter.decide(&stream, &2).await.expect("decides");
        assert_eq!((required.units.read, required.units.requests), (1.0, 2), "{strategy}");
        for _ in 0..2 {
            let any = counter.decide(&stream, &2).any_cached().await.expect("decides");
            assert_eq!((any.units.read, any.units.requests), (0.0, 1), "{strategy}");
        }
        let calls = faults.log().len();
        assert_eq!(counter.state_within(&stream, Duration::MAX).await.expect("known").sum, 7, "{strategy}");
        assert_eq!(faults.log().len(), calls, "{strategy}: nothing was asked");
        assert_eq!(counter.state_within(&stream, Duration::ZERO).await.expect("loads").sum, 7);
        assert_eq!(faults.log().len(), calls + 1, "{strategy}: it was older than that");
        // Somebody else adds: a stale state is noticed by its append, and by a look where nothing is appended.
        let other = category(open(&Faults::new(engine.http_client(), 2)).await, strategy);
        add(&other, "Counter-1", 43).await;
        assert_eq!(counter.state_within(&stream, Duration::MAX).await.expect("known").sum, 7, "stale, as allowed");
        assert!(counter.decide(&stream, &94).any_cached().await.expect("decides").rejection().is_some());
        add(&other, "Counter-1", 10).await;
        let late = counter.decide(&stream, &5).any_cached().await.expect("decides");
        assert!(late.accepted().is_ok());
        assert_eq!(other.state(&stream).await.expect("loads").sum, 65, "{strategy}");
        // Where it exists, that it was assumed not to is noticed too.
        assert!(counter.decide_new(&stream, &36).await.expect("decides").rejection().is_some(), "{strategy}");
        assert!(counter.decide_new(&stream, &35).await.expect("decides").accepted().is_ok(), "{strategy}");
        assert_eq!(other.state(&stream).await.expect("loads").sum, 100, "{strategy}");
    }
}

/// A replica that lags behind: half the units, and never an event twice.
#[tokio::test]
async fn what_is_a_moment_old_is_never_folded_wrongly() {
    let (first, second) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(first.http_client(), second.http_client(), 1);
    let builder = Store::builder("memory:?layout=equinox&table=orders&tip_events=2").expect("url");
    let streams = builder.http_client(lag.http_client()).open().await.expect("opens").streams();
    let counter = category(streams.clone(), "unoptimised").eventual().cache(&Cache::new(10));
    let stream = name("Counter-1");
    for by in 1..=6 {
        add(&counter, "Counter-1", by).await;
        if by % 2 == 0 {
            lag.apply_half().await;
        }
    }
    assert!(counter.decide(&stream, &80).await.expect("decides").rejection().is_some(), "21 are there, whatever the replica knows");
    let strong = category(streams, "unoptimised");
    assert_eq!(strong.state(&stream).await.expect("loads"), Sum { sum: 21, times: 6 });
    lag.apply_all().await;
    let eventual = category(counter_streams(&first).await, "snapshot").eventual();
    add(&eventual, "Counter-2", 1).await;
    let decided = add(&eventual, "Counter-2", 1).await;
    assert_eq!(decided, Units { read: 0.5, write: 1.0, requests: 2 });
}

/// Replicas that know of some items and not yet of others, in any order: what is read of them has no gap and nothing twice.
#[tokio::test]
async fn what_a_replica_has_seen_in_part_is_read_without_a_gap() {
    for seed in 0..6 {
        let (first, second) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
        let lag = Lag::new(first.http_client(), second.http_client(), seed);
        let builder = Store::builder("memory:?layout=equinox&table=orders&tip_events=2&page=3").expect("url");
        let streams = builder.http_client(lag.http_client()).open().await.expect("opens").streams();
        let (stream, env) = (name("Counter-1"), Env::seeded(seed));
        for n in 0..24 {
            streams.append(&stream, step(&[&n.to_string()])).await.expect("appends");
            for _ in 0..env.below(4) {
                lag.apply_any().await;
            }
            let versions = |events: Vec<fencepost::Recorded>| events.iter().filter_map(|event| event.version).collect::<Vec<_>>();
            let forwards = streams.read_stream(&stream, StreamReadOptions::default().eventual()).await;
            let forwards = versions(forwards.unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}")));
            let backwards = streams.read_stream(&stream, StreamReadOptions::default().backwards().eventual()).await;
            let mut backwards = versions(backwards.unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}")));
            backwards.reverse();
            let loaded = streams.load(&stream, LoadOptions::default().eventual()).await;
            let loaded = versions(loaded.unwrap_or_else(|error| panic!("seed {seed}, {n}: {error}")).events);
            for read in [forwards, backwards, loaded] {
                assert_eq!(read, (1..=read.len() as u64).collect::<Vec<_>>(), "seed {seed}, {n}");
            }
        }
    }
}

async fn counter_streams(engine: &Engine) -> Arc<dyn StreamStore> {
    let builder = Store::builder("memory:?layout=equinox&table=orders").expect("url");
    builder.http_client(engine.http_client()).open().await.expect("opens").streams()
}

// ---- the archive ----

async fn archive(opened: &Opened, table: &str, items: &[Item]) {
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a key");
    let of = |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("an attribute");
    let create = opened.client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let create = create.key_schema(key("p", KeyType::Hash)).key_schema(key("i", KeyType::Range));
    let create = create.attribute_definitions(of("p", ScalarAttributeType::S)).attribute_definitions(of("i", ScalarAttributeType::N));
    create.send().await.expect("it is made");
    for item in items {
        opened.client.put_item().table_name(table).set_item(Some(item.clone())).send().await.expect("it is put");
    }
}

#[tokio::test]
async fn what_was_pruned_is_read_from_the_archive_either_way() {
    let golden = file("archive");
    let tables = golden.tables();
    let elsewhere = format!("elsewhere-{}", Env::system().new_id().simple());
    for parameter in [String::new(), format!("&archive={elsewhere}")] {
        let opened = golden.open("harch", &parameter).await;
        let table = if parameter.is_empty() { format!("{}-archive", opened.table) } else { elsewhere.clone() };
        archive(&opened, &table, &tables["harch-archive"]).await;
        let (streams, stream) = (opened.store.streams(), name("Arc-x"));
        let versions = |events: &[fencepost::Recorded]| events.iter().filter_map(|event| event.version).collect::<Vec<_>>();
        let loaded = streams.load(&stream, LoadOptions::default()).await.expect("loads");
        assert_eq!(versions(&loaded.events), [1, 2, 3, 4, 5]);
        let sum: u64 = loaded.events.iter().map(|event| event.json::<serde_json::Value>().expect("JSON")["by"].as_u64().expect("by")).sum();
        assert_eq!(Some(sum), golden.json["reads"]["load unopt"]["state"]["sum"].as_u64());
        for (options, expected) in [
            (StreamReadOptions::default(), &[1, 2, 3, 4, 5][..]),
            (StreamReadOptions::default().after(1), &[2, 3, 4, 5]),
            (StreamReadOptions::default().limit(1), &[1]),
            (StreamReadOptions::default().backwards(), &[5, 4, 3, 2, 1]),
            (StreamReadOptions::default().backwards().after(3), &[2, 1]),
            (StreamReadOptions::default().backwards().limit(4), &[5, 4, 3, 2]),
        ] {
            let read = streams.read_stream(&stream, options).await.expect("reads");
            assert_eq!(versions(&read), expected, "{options:?}");
        }
    }
}

#[tokio::test]
async fn a_start_that_was_pruned_is_told_unless_it_may_be_passed_over() {
    let golden = file("archive");
    let stream = name("Arc-x");
    let told = |read: &[fencepost::Result<fencepost::Recorded>]| -> Vec<String> {
        read.iter()
            .map(|event| event.as_ref().map_or_else(|error| error.to_string(), |event| event.version.expect("one").to_string()))
            .collect()
    };
    let opened = golden.open("harch", "").await;
    let streams = opened.store.streams();
    let read: Vec<_> = streams.read(&stream, StreamReadOptions::default()).collect().await;
    let said = &told(&read)[0];
    assert!(said.contains("events before version 3 were pruned") && said.contains(&format!("{}-archive", opened.table)), "{said}");
    assert_eq!(told(&read)[1..], ["3", "4", "5"]);
    let backwards: Vec<_> = streams.read(&stream, StreamReadOptions::default().backwards()).collect().await;
    assert_eq!((&told(&backwards)[..3], backwards.len(), backwards[3].is_err()), (&["5", "4", "3"].map(String::from)[..], 4, true));
    assert_eq!(
        streams.read_stream(&stream, StreamReadOptions::default().after(2)).await.expect("reads").len(),
        3,
        "nothing of it is asked for"
    );
    assert_eq!(streams.read_stream(&stream, StreamReadOptions::default().backwards().limit(3)).await.expect("reads").len(), 3);
    assert!(matches!(streams.load(&stream, LoadOptions::default()).await, Err(Error::Corrupt(_))));
    let ignored = golden.open("harch", "&missing=ignored").await;
    let streams = ignored.store.streams();
    assert_eq!(streams.load(&stream, LoadOptions::default()).await.expect("loads").events.len(), 3);
    for options in [StreamReadOptions::default(), StreamReadOptions::default().backwards()] {
        assert_eq!(streams.read_stream(&stream, options).await.expect("reads").len(), 3);
    }
}
