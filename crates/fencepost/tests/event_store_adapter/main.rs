//! event-store-adapter, v3 and v5: tables that other clients wrote, the exact items that are written, retention, the feed, copies.
//!
//! It is over 600 lines because both generations are held to the same cases on the same fixtures, and another binary would be linked for each.

#[allow(clippy::unwrap_used, reason = "shared with tests that may")]
#[path = "../bare_sdk/mod.rs"]
mod bare_sdk;
mod faults;
mod lost;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use fencepost::moving::Copy;
use fencepost::testing::{Faults, Gate, Lag, Reshard, Rule};
use fencepost::{
    Delivery, Engine, Error, Event, Expect, From, IndexOptions, LoadOptions, Metadata, Query, Reason, Recorded, Refused, Snapshot, Step,
    Store, StreamName, StreamReadOptions, StreamStoreExt, Units,
};
use futures::StreamExt;
use serde_json::{Value, json};
use support::{Ground, open};

type Item = HashMap<String, AttributeValue>;

const V3: &str = "layout=event-store-adapter-v3";
const V5: &str = "layout=event-store-adapter-v5";
const BOTH: [&str; 2] = [V3, V5];

fn name(name: &str) -> StreamName {
    StreamName::new(name).expect("a name")
}
fn event(event_type: &str, body: &str) -> Event {
    Event::new(event_type, body.to_owned()).expect("an event")
}
/// With a snapshot, as the first append to a stream of v3 needs one.
fn first(events: impl IntoIterator<Item = Event>) -> Step {
    Step::new(events).snapshot(Snapshot::new("snapshot", "{}"))
}
fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}
fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
fn blob(bytes: &str) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes.as_bytes()))
}
fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// An engine, a store on it, and the bare SDK beside it.
async fn bench(parameters: &str) -> (Engine, Store, Client) {
    let engine = Engine::memory().expect("an engine").keep_tokens();
    let store = open(Ground::Engine(engine.clone()).builder(parameters)).await;
    let client = bare_sdk::client(engine.http_client());
    (engine, store, client)
}

async fn put(client: &Client, table: &str, item: Item) {
    client.put_item().table_name(table).set_item(Some(item)).send().await.expect("puts");
}
async fn scan(client: &Client, table: &str) -> Vec<Item> {
    client.scan().table_name(table).consistent_read(true).send().await.expect("scans").items.unwrap_or_default()
}
fn names(item: &Item) -> Vec<&str> {
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

// ---- what others wrote ----

fn golden(file: &str) -> Value {
    let path = format!("{}/tests/golden/event-store-adapter/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("a golden table")).expect("JSON")
}

fn of_json(item: &Value) -> Item {
    let value = |value: &Value| {
        let (kind, of) = value.as_object().and_then(|map| map.iter().next()).expect("a typed value");
        let of = of.as_str().expect("as text");
        match kind.as_str() {
            "S" => text(of),
            "N" => AttributeValue::N(of.into()),
            "B" => AttributeValue::B(Blob::new(base64::engine::general_purpose::STANDARD.decode(of).expect("base64"))),
            other => panic!("{other}"),
        }
    };
    item.as_object().expect("an item").iter().map(|(name, of)| (name.clone(), value(of))).collect()
}

/// Tables of the published JavaScript client: the same events and the same snapshot as it reads, and appended to once it is gone.
#[tokio::test]
async fn tables_of_the_javascript_client_are_read_and_appended_to() {
    for (file, stream, shards) in
        [("js-event-only.json", "user-account-01H42K4ABWQ5V2XQEP3A48VE0Z", 64), ("js-snapshots.json", "user-account-a", 32)]
    {
        let golden = golden(file);
        let parameters = format!("{V3}&hash=js&types=user-account&shards={shards}&table=orders");
        let (engine, store, client) = bench(&parameters).await;
        for table in ["journal", "snapshot"] {
            for item in golden["tables"][table].as_array().expect("items") {
                put(&client, &format!("orders-{table}"), of_json(item)).await;
            }
        }
        let streams = store.streams();
        let loaded = streams.load(&name(stream), LoadOptions::default()).await.expect("loads");
        let read: Vec<Value> = loaded.events.iter().map(|event| event.json::<Value>().expect("JSON")["data"].clone()).collect();
        assert_eq!(Value::Array(read), golden["reads"]["events"], "{file}");
        let types: Vec<_> = golden["reads"]["events"].as_array().expect("events").iter().map(|event| event["typeName"].clone()).collect();
        assert_eq!(loaded.events.iter().map(|event| json!(event.event_type)).collect::<Vec<_>>(), types);
        let latest = &golden["reads"]["latest"];
        let from = streams.load(&name(stream), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        let folded: Value = serde_json::from_slice(&from.snapshots[0].state).expect("JSON");
        assert_eq!(
            (&folded["data"]["name"], from.snapshots[0].version),
            (&latest["name"], latest["sequenceNumber"].as_u64().expect("a number"))
        );
        assert_eq!(from.snapshots[0].version + from.events.len() as u64, loaded.version);
        let refused = streams.append(&name(stream), Step::new([event("Renamed", "{}")])).await;
        assert!(
            matches!(&refused, Err(Error::Refused(Refused::Unsupported { remedy, .. })) if remedy.contains("dialect=v3")),
            "{refused:?}"
        );

        let adopted = open(Ground::Engine(engine).builder(&format!("{parameters}&dialect=v3"))).await.streams();
        let stale = adopted.append(&name(stream), Step::new([event("Renamed", "{}")]).expect(Expect::Version(1))).await;
        assert!(stale.is_err_and(|error| error.is_conflict()), "as their own stale append");
        let step = Step::new([event("Renamed", "{}"), event("Closed", "{}")]).expect(Expect::Token(from.token));
        let done = adopted.append(&name(stream), step).await.expect("appends");
        assert_eq!(done.version, Some(loaded.version + 2));
        let lock = scan(&client, "orders-snapshot").await[0]["version"].clone();
        assert_eq!(lock, number(i64::try_from(loaded.version).expect("small") + 2), "the lock goes with the events");
        assert_eq!(adopted.load(&name(stream), LoadOptions::default()).await.expect("loads").version, loaded.version + 2);
    }
}

/// Items of the other dialects of v3, as the specification has them, and as the published page prints them.
#[tokio::test]
async fn every_dialect_of_v3_is_read() {
    let whole = r#"{"type":"Created","id":"e1","seq_nr":1}"#;
    let millis = 1_767_225_600_123_i64;
    let journal = |seq: i64, shard: i64, attributes: Vec<(&str, AttributeValue)>| {
        let mut item = item([("pkey", text(&format!("user-{shard}"))), ("skey", text(&format!("user-a-{seq}"))), ("aid", text("user-a"))]);
        item.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
        item
    };
    let at = |nanos: i64| jiff::Timestamp::from_nanosecond(i128::from(nanos)).expect("a time");
    let cases = [
        (
            "rust v1",
            "rust",
            51,
            vec![("seq_nr", number(1)), ("payload", blob(whole)), ("occurred_at", number(millis))],
            "Created",
            millis * 1_000_000,
        ),
        (
            "rust v3",
            "rust",
            51,
            vec![("seq_nr", number(1)), ("payload", blob("[1]")), ("occurred_at", number(77)), ("manifest", text("M"))],
            "M",
            77,
        ),
        (
            "java",
            "java",
            33,
            vec![("seq_nr", number(1)), ("payload", blob(whole)), ("occurred_at", number(millis))],
            "Created",
            millis * 1_000_000,
        ),
        (
            "go, nanoseconds",
            "go",
            12,
            vec![("seq_nr", number(1)), ("payload", blob("not JSON")), ("occurred_at", number(millis * 1_000_000))],
            "unknown",
            millis * 1_000_000,
        ),
        (
            "the page",
            "rust",
            51,
            vec![("ser_nr", number(1)), ("payload", text(whole)), ("occurred_at", text("2026-01-01T00:00:00.123Z"))],
            "Created",
            millis * 1_000_000,
        ),
    ];
    for (what, hash, shard, attributes, event_type, nanos) in cases {
        let (_, store, client) = bench(&format!("{V3}&hash={hash}&table=orders")).await;
        put(&client, "orders-journal", journal(1, shard, attributes)).await;
        let current = [("seq_nr", number(0)), ("version", number(1)), ("ttl", number(0)), ("payload", blob(r#"{"seq_nr_counter":1}"#))];
        let mut snapshot = journal(0, shard, current.to_vec());
        snapshot.insert("last_updated_at".into(), number(millis));
        put(&client, "orders-snapshot", snapshot).await;
        let streams = store.streams();
        let loaded = streams.load(&name("user-a"), LoadOptions::default()).await.expect(what);
        let met: Vec<_> = loaded.events.iter().map(|event| (event.event_type.as_str(), event.recorded_at)).collect();
        assert_eq!(met, [(event_type, at(nanos))], "{what}");
        let from = streams.load(&name("user-a"), LoadOptions::default().snapshot(["snapshot"])).await.expect(what);
        assert_eq!((from.snapshots[0].version, from.events.len(), from.version), (1, 0, 1), "{what}");
    }
}

/// What has no hash built in brings its own: here PHP's.
#[tokio::test]
async fn a_hash_of_the_callers_finds_what_its_clients_wrote() {
    let engine = Engine::memory().expect("an engine");
    let php = |_: &str, value: &str, shards: u64| i64::from(crc32fast::hash(value.as_bytes())) % i64::try_from(shards).expect("few");
    let builder = |parameters: &str| Ground::Engine(engine.clone()).builder(parameters);
    let store = open(builder(&format!("{V3}&table=orders&dialect=v3")).shard_by(php)).await;
    store.streams().append(&name("user-a"), first([event("Created", "{}")])).await.expect("appends");
    let written = scan(&bare_sdk::client(engine.http_client()), "orders-journal").await;
    assert_eq!(written[0]["pkey"], text("user-3"), "crc32 of a is 0xe8b7be43, and 0x43 % 64 is 3");
    let readers = open(builder(&format!("{V3}&table=orders")).shard_by(php)).await;
    assert_eq!(readers.streams().load(&name("user-a"), LoadOptions::default()).await.expect("loads").version, 1);
    let refused = readers.streams().append(&name("user-a"), Step::new([event("Renamed", "{}")])).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Unsupported { .. }))), "{refused:?}");
    assert!(builder(V5).shard_by(php).open().await.is_err());
}

// ---- what we write ----

/// Under `strict` exactly the attributes of the peer, in every table; without it ours are beside them.
#[tokio::test]
async fn under_strict_the_items_are_the_peers() {
    let (_, store, client) = bench(&format!("{V5}&strict=true&keep=2&table=orders")).await;
    let at: jiff::Timestamp = "2026-01-02T03:04:05.678901234Z".parse().expect("a time");
    let created = event("Created", "{}").meta(Metadata { occurred: Some(at), ..Metadata::default() });
    store.streams().append(&name("user-a-b"), Step::new([created]).snapshot(Snapshot::new("snapshot", "state"))).await.expect("appends");
    let config: BTreeSet<_> =
        [scan(&client, "orders-journal").await, scan(&client, "orders-snapshot").await, scan(&client, "orders-head").await]
            .into_iter()
            .flatten()
            .filter(|item| item["aid"] == text("__config__"))
            .map(|item| format!("{:?} {:?}", item["store_id"], item["layout_version"]))
            .collect();
    assert_eq!(config.len(), 1, "the same in all three: {config:?}");
    let of = async |table: &str| {
        let items = scan(&client, table).await.into_iter().filter(|item| item["aid"] != text("__config__"));
        items.collect::<Vec<_>>()
    };
    let nanos = number(i64::try_from(at.as_nanosecond()).expect("this century"));
    let body = [("seq_nr", number(1)), ("occurred_at", nanos), ("manifest", text("Created")), ("payload", blob("{}"))];
    let mut journal = item(body.clone());
    journal.insert("aid".into(), text("user-a-b"));
    assert_eq!(of("orders-journal").await, [journal]);
    let head = [
        ("aid", text("user-a-b")),
        ("type_name", text("user")),
        ("seq_nr", number(1)),
        ("events", AttributeValue::L(vec![AttributeValue::M(item(body))])),
    ];
    assert_eq!(of("orders-head").await, [item(head)]);
    let snapshot = |skey: i64| {
        item([
            ("aid", text("user-a-b")),
            ("skey", number(skey)),
            ("seq_nr", number(1)),
            ("manifest", text("")),
            ("payload", blob("state")),
            ("last_updated_at", number(at.as_millisecond())),
        ])
    };
    let mut history = snapshot(1);
    history.insert("active_history_seq_nr".into(), number(1));
    let mut snapshots = of("orders-snapshot").await;
    snapshots.sort_by_key(|item| item["skey"].as_n().expect("a number").clone());
    assert_eq!(snapshots, [snapshot(0), history]);

    let (_, store, client) = bench(&format!("{V3}&strict=true&table=orders")).await;
    store.streams().append(&name("user-a"), first([event("Created", "{}")])).await.expect("appends");
    store.streams().append(&name("user-a"), Step::new([event("Renamed", "{}")])).await.expect("appends");
    for item in scan(&client, "orders-journal").await {
        assert_eq!(names(&item), ["aid", "manifest", "occurred_at", "payload", "pkey", "seq_nr", "skey"]);
    }
    let current = &scan(&client, "orders-snapshot").await[0];
    assert_eq!(names(current), ["aid", "last_updated_at", "payload", "pkey", "seq_nr", "skey", "ttl", "version"]);
    assert_eq!((&current["version"], &current["seq_nr"]), (&number(2), &number(1)), "an event alone moves the lock, not the snapshot");
    assert_eq!((&current["pkey"], &current["skey"]), (&text("user-51"), &text("user-a-0")));
}

/// Metadata and ids of the caller's come back as they were given; tags, and under `strict` those too, are refused before any call.
#[tokio::test]
async fn what_was_given_comes_back_and_what_has_no_place_is_refused() {
    for layout in BOTH {
        let (engine, store, _) = bench(layout).await;
        let extra = [("of".to_owned(), json!("mine"))].into();
        let meta = Metadata { user: Some("ada".into()), schema: Some(2), extra, ..Metadata::default() };
        let id = uuid::Uuid::from_u128(7);
        let given = event("Created", "{}").meta(meta.clone()).id(id);
        store.streams().append(&name("user-a"), first([given.clone(), event("Renamed", "")])).await.expect("appends");
        let events = store.streams().load(&name("user-a"), LoadOptions::default()).await.expect("loads").events;
        assert_eq!((&events[0].meta, events[0].id, events[0].tags[0].as_str()), (&meta, id, "user-a"));
        assert!(events[1].meta.is_empty() && events[1].data.is_empty());
        let again = open(Ground::Engine(engine.clone()).builder(layout)).await.streams();
        assert_eq!(
            again.load(&name("user-a"), LoadOptions::default()).await.expect("loads").events,
            events,
            "the same ids and positions for all"
        );

        let tagged = event("Created", "{}").tag("other").expect("a tag");
        let strict = open(Ground::Engine(engine).builder(&format!("{layout}&strict=true"))).await.streams();
        let two = [event("A", "{}"), event("B", "{}")];
        for (streams, step) in [
            (&again, first([tagged])),
            (&again, first([event("A", "{}")]).snapshot(Snapshot::new("snapshot", "twice"))),
            (&strict, first([event("A", "{}").meta(meta)])),
            (&strict, first([event("A", "{}").id(id)])),
        ] {
            let refused = streams.append(&name("user-b"), step).await;
            assert!(matches!(refused, Err(Error::Refused(Refused::Unsupported { .. }))), "{layout}: {refused:?}");
        }
        let refused = strict.append(&name("user-b"), first(two)).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::TooManyEvents { limit: 1, .. }))), "{layout}: {refused:?}");
        let refused = again.append(&name("user-b"), first((0..97).map(|_| event("A", "{}")))).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::TooManyEvents { limit: 96, .. }))), "{layout}: {refused:?}");
        assert_eq!(again.append(&name("user-b"), first((0..96).map(|_| event("A", "{}")))).await.expect("as many").version, Some(96));
        let refused = again.append(&name("nodash"), first([event("A", "{}")])).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::BadName { .. }))), "{layout}: {refused:?}");
    }
}

/// As the published page says: the snapshot is the lock.
#[tokio::test]
async fn the_first_append_of_v3_carries_a_snapshot() {
    let (_, store, client) = bench(&format!("{V3}&table=orders")).await;
    for expect in [Expect::Any, Expect::None, Expect::Version(0)] {
        let refused = store.streams().append(&name("user-a"), Step::new([event("A", "{}")]).expect(expect)).await;
        assert!(matches!(&refused, Err(Error::Refused(Refused::Unsupported { what, .. })) if what.contains("first append")), "{refused:?}");
    }
    assert!(scan(&client, "orders-journal").await.is_empty());
}

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

// ---- retention ----

async fn history(client: &Client) -> Vec<(i64, Option<i64>, bool)> {
    let number = |value: &AttributeValue| value.as_n().expect("a number").parse::<i64>().expect("whole");
    let mut all: Vec<_> = scan(client, "orders-snapshot")
        .await
        .iter()
        .filter(|item| item["aid"] != text("__config__"))
        .filter(|item| {
            item["skey"] != AttributeValue::N("0".into()) && item["skey"].as_s().is_ok_and(|key| !key.ends_with("-0"))
                || item["skey"].as_n().is_ok_and(|key| key != "0")
        })
        .map(|item| {
            (number(&item["seq_nr"]), item.get("ttl").map(number).filter(|ttl| *ttl > 0), item.contains_key("active_history_seq_nr"))
        })
        .collect();
    all.sort_unstable();
    all
}

/// The newest so many stay, the current one always; with an expiry the others are marked once and stay until DynamoDB removes them.
#[tokio::test]
async fn snapshots_beyond_those_kept_are_deleted_or_marked_and_never_the_newest() {
    for layout in BOTH {
        let snapshot = |n: u64| Step::new([event("A", "{}")]).snapshot(Snapshot::new("snapshot", n.to_string()));
        let (_, store, client) = bench(&format!("{layout}&keep=2&table=orders")).await;
        for n in 1..=5 {
            store.streams().append(&name("user-a"), snapshot(n)).await.expect("appends");
            store.streams().append(&name("user-a-1"), snapshot(n)).await.expect("of a name that begins so");
        }
        store.streams().append(&name("user-a"), Step::new([event("A", "{}")])).await.expect("an event alone");
        let kept: Vec<i64> = history(&client).await.into_iter().map(|(version, ..)| version).collect();
        assert_eq!(kept, [4, 4, 5, 5], "{layout}: two of each stream");
        let current = store.streams().load(&name("user-a"), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        assert_eq!((current.snapshots[0].version, current.version), (5, 6));

        let env = fencepost::Env::seeded(1);
        let engine = Engine::memory().expect("an engine");
        let expiring = Ground::Engine(engine.clone()).builder(&format!("{layout}&keep=2&expire=60&table=orders")).env(env.clone());
        let (store, client) = (open(expiring).await, bare_sdk::client(engine.http_client()));
        let mut marks = Vec::new();
        for n in 1..=4 {
            marks.push(env.now().as_second() + 60);
            store.streams().append(&name("user-a"), snapshot(n)).await.expect("appends");
            env.advance(Duration::from_secs(1000));
        }
        let active = layout == V5;
        let expected = [(1, Some(marks[2]), false), (2, Some(marks[3]), false), (3, None, active), (4, None, active)];
        assert_eq!(history(&client).await, expected, "{layout}: each marked when it fell behind, and not again");
    }
}

/// Whatever happens to retention, the append has its answer, and the next one makes up for it.
#[tokio::test]
async fn retention_never_fails_the_append() {
    for layout in BOTH {
        for (operation, parameters) in [("Query", "&keep=1"), ("BatchWriteItem", "&keep=1"), ("UpdateItem", "&keep=1&expire=60")] {
            let engine = Engine::memory().expect("an engine");
            let faults = Faults::new(engine.http_client(), 1);
            let quick = fencepost::Timeouts { attempts: 2, ..fencepost::Timeouts::default() };
            let url = format!("memory:?{layout}{parameters}&table=orders");
            let store = Store::builder(&url).expect("a URL").timeouts(quick).http_client(faults.http_client());
            let streams = open(store).await.streams();
            let step = |n: u64| Step::new([event("A", "{}")]).snapshot(Snapshot::new("snapshot", "{}")).expect(Expect::Version(n));
            streams.append(&name("user-a"), step(0)).await.expect("appends");
            faults.script(Rule::on(operation).internal_error());
            streams.append(&name("user-a"), step(1)).await.expect("the append has its answer");
            faults.calm();
            streams.append(&name("user-a"), step(2)).await.expect("appends");
            let client = bare_sdk::client(engine.http_client());
            let left: Vec<_> =
                history(&client).await.into_iter().filter(|(_, ttl, _)| ttl.is_none()).map(|(version, ..)| version).collect();
            assert_eq!(left, [3], "{layout} {operation}");
        }
    }
}

// ---- opening ----

/// Many open at once: one configuration, the same for all; tables that do not belong together are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_three_tables_of_v5_know_each_other() {
    let engine = Engine::memory().expect("an engine");
    let url = |more: &str| format!("{V5}&table=orders{more}");
    // The tables, and nothing in them.
    drop(Ground::Engine(engine.clone()).builder(&url("")).tables().create(&fencepost::TableOptions::default()).await.expect("creates"));
    let client = bare_sdk::client(engine.http_client());
    for table in ["orders-journal", "orders-snapshot", "orders-head"] {
        let range = [("orders-journal", "seq_nr"), ("orders-snapshot", "skey")].into_iter().find(|(of, _)| *of == table);
        let mut delete = client.delete_item().table_name(table).key("aid", text("__config__"));
        if let Some((_, range)) = range {
            delete = delete.key(range, number(0));
        }
        delete.send().await.expect("deletes");
    }
    let openers = (0..8).map(|_| {
        let builder = Ground::Engine(engine.clone()).builder(&url("")).create(false);
        tokio::spawn(async move { builder.open().await.map(|_| ()) })
    });
    for opener in openers.collect::<Vec<_>>() {
        opener.await.expect("no panic").expect("opens");
    }
    let head = scan(&client, "orders-head").await;
    assert_eq!((head.len(), &head[0]["layout_version"]), (1, &number(1)));
    // A head of another store.
    let mut foreign = head[0].clone();
    foreign.insert("store_id".into(), text("another"));
    put(&client, "orders-head", foreign).await;
    let open_again = async || Ground::Engine(engine.clone()).builder(&url("")).create(false).open().await.map(|_| ());
    let differs = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Unavailable(u)) if u.reason == Reason::Differs);
    assert!(differs(open_again().await));
    client.delete_item().table_name("orders-head").key("aid", text("__config__")).send().await.expect("deletes");
    assert!(differs(open_again().await), "one of three is missing");
}

// ---- the index of v3 lags ----

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
    streams.append(&a, Step::new([event("A", "3")])).await.expect("appends");
    let client = bare_sdk::client(lag.http_client());
    let mut current = scan(&client, "orders-snapshot").await.remove(0);
    current.insert("version".into(), number(2));
    put(&client, "orders-snapshot", current).await;
    let loaded = open(builder()).await.streams().load(&a, LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!((loaded.snapshots[0].version, loaded.version), (1, 3));
}

// ---- the feed ----

fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

async fn fed(store: &Store, query: Query) -> Vec<Recorded> {
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

async fn catch_up(store: &Store) -> fencepost::IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

/// Some streams, commits of one to three events, by two handles.
async fn write(stores: &[&Store], streams: usize, commits: usize) -> usize {
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
async fn audit(store: &Store, streams: usize, events: usize) {
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

// ---- copies ----

#[tokio::test]
async fn a_copy_brings_every_event_over() {
    let from_v3 = [V5, "layout=ledger", "layout=ledger&feed=streams"];
    let from_v5 = ["layout=ledger"];
    let pairs = from_v3.map(|to| (V3, to)).into_iter().chain(from_v5.map(|to| (V5, to)));
    for (from, to) in pairs {
        let (source, target) = (open(Ground::embedded().builder(from)).await, open(Ground::embedded().builder(to)).await);
        let meta = Metadata { user: Some("ada".into()), ..Metadata::default() };
        source.streams().append(&name("user-0"), first([event("A", "0").meta(meta).id(uuid::Uuid::from_u128(3))])).await.expect("appends");
        let events = 1 + write(&[&source], 3, 12).await as u64;
        catch_up(&source).await;
        let copy = Copy::new(&source, &target, "test");
        assert_eq!(copy.run(&|_| ()).await.expect("copies").events, events, "{from} to {to}");
        source.streams().append(&name("user-1"), Step::new([event("A", "later")])).await.expect("appends");
        catch_up(&source).await;
        assert_eq!(copy.run(&|_| ()).await.expect("goes on").events, 1, "{from} to {to}");
        let compared = copy.compare(&|_| ()).await.expect("compares");
        assert!(compared.is_equal() && compared.source == events + 1, "{from} to {to}: {compared:?}");
        for n in 0..3 {
            let stream = name(&format!("user-{n}"));
            let all = async |store: &Store| store.streams().load(&stream, LoadOptions::default()).await.expect("loads").events;
            let told = |event: &Recorded| (event.version, event.id, event.event_type.clone(), event.data.clone(), event.occurred_at());
            let (before, after) = (all(&source).await, all(&target).await);
            assert_eq!(before.iter().map(told).collect::<Vec<_>>(), after.iter().map(told).collect::<Vec<_>>(), "{from} to {to}");
        }
        if to == V5 {
            catch_up(&target).await;
            assert_eq!(fed(&target, Query::all()).await.len() as u64, events + 1);
        }
    }
    // A commit over several tags has no stream to go to.
    let (source, target) = (open(Ground::embedded().builder("layout=ledger")).await, open(Ground::embedded().builder(V5)).await);
    source.record(vec![event("A", "{}").tag("user-1").and_then(|e| e.tag("user-2")).expect("tags")]).await.expect("records");
    let refused = Copy::new(&source, &target, "test").run(&|_| ()).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Unsupported { .. }))), "{refused:?}");
}

// ---- looking after ----

#[tokio::test]
async fn verify_names_what_is_missing() {
    for layout in BOTH {
        let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
        write(&[&store], 2, 8).await;
        let well = store.verify(&|_| ()).await.expect("verifies");
        assert_eq!((well.commits, well.findings.len()), (8, 0), "{layout}: {well:?}");
        let of = |item: &Item| item["aid"] == text("user-1") && item["seq_nr"] == number(2);
        let lost = scan(&client, "orders-journal").await.into_iter().find(of).expect("an event");
        let keys: &[&str] = if layout == V5 { &["aid", "seq_nr"] } else { &["pkey", "skey"] };
        let key: Item = lost.into_iter().filter(|(name, _)| keys.contains(&name.as_str())).collect();
        client.delete_item().table_name("orders-journal").set_key(Some(key)).send().await.expect("deletes");
        let findings = store.verify(&|_| ()).await.expect("verifies").findings;
        assert_eq!(findings.len(), 1, "{layout}: {findings:?}");
        assert!(findings[0].item.contains("user-1") && findings[0].problem.contains("from 2 to 2"), "{findings:?}");
    }
}
