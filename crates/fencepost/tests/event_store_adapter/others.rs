//! What others wrote: tables of the published JavaScript client, items of every dialect of v3, hashes of the caller's.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use fencepost::{Engine, Error, Expect, LoadOptions, Refused, Step};
use serde_json::{Value, json};

use super::support::{Ground, open};
use super::{Item, V3, V5, bare_sdk, bench, blob, event, first, item, name, number, put, scan, text};

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

/// When Go's users say that an event occurred: the magnitude tells the unit, and what is too low for any is taken for milliseconds.
#[tokio::test]
async fn a_time_without_a_unit_is_told_by_its_magnitude() {
    let nanos = 1_767_225_600_123_456_789_i64;
    for (said, nanos) in [
        (nanos, nanos),
        (nanos / 1_000, nanos / 1_000 * 1_000),
        (nanos / 1_000_000, nanos / 1_000_000 * 1_000_000),
        (nanos / 1_000_000_000, nanos / 1_000_000_000 * 1_000_000_000),
        (123, 123_000_000),
        (-nanos / 1_000_000, -nanos / 1_000_000 * 1_000_000),
    ] {
        let (_, store, client) = bench(&format!("{V3}&hash=go&table=orders")).await;
        let key = [("pkey", text("user-12")), ("skey", text("user-a-1")), ("aid", text("user-a")), ("seq_nr", number(1))];
        let mut written = item(key);
        written.extend(item([("payload", blob("{}")), ("occurred_at", number(said))]));
        put(&client, "orders-journal", written).await;
        let loaded = store.streams().load(&name("user-a"), LoadOptions::default()).await.expect("loads");
        assert_eq!(loaded.events[0].recorded_at.as_nanosecond(), i128::from(nanos), "{said}");
    }
}

/// Current snapshots of every client, with two events there: where the number of events is said, and where nobody says it.
#[tokio::test]
async fn every_dialect_of_a_snapshot_is_read() {
    let millis = number(1_767_225_600_123);
    let cases = [
        ("rust v3", number(2), blob("[]"), Some(&millis), Some(2)),
        ("rust v1", number(0), blob(r#"{"seq_nr_counter":1}"#), Some(&millis), Some(1)),
        ("java", number(0), blob(r#"{"id":"a","seqNr":2,"version":2}"#), Some(&millis), Some(2)),
        ("go, which says no time", number(0), blob(r#"{"seq_nr":1}"#), None, Some(1)),
        ("javascript", number(0), blob(r#"{"type":"User","data":{"sequenceNumber":2}}"#), Some(&millis), Some(2)),
        ("the page, as text", number(0), text(r#"{"sequence_number":1}"#), None, Some(1)),
        ("one that says no number", number(0), blob(r#"{"name":"ada"}"#), Some(&millis), None),
        ("one that is no JSON", number(0), blob("ada"), None, None),
    ];
    for (what, seq, payload, updated, version) in cases {
        let (_, store, client) = bench(&format!("{V3}&table=orders")).await;
        let at = |n: i64| item([("pkey", text("user-51")), ("skey", text(&format!("user-a-{n}"))), ("aid", text("user-a"))]);
        for n in [1, 2] {
            let mut event = at(n);
            event.extend(item([("seq_nr", number(n)), ("payload", blob("{}")), ("occurred_at", millis.clone())]));
            put(&client, "orders-journal", event).await;
        }
        let mut current = at(0);
        current.extend(item([("seq_nr", seq), ("version", number(2)), ("ttl", number(0)), ("payload", payload)]));
        current.extend(updated.map(|updated| ("last_updated_at".to_owned(), updated.clone())));
        put(&client, "orders-snapshot", current).await;
        for options in [LoadOptions::default(), LoadOptions::default().eventual()] {
            let loaded = store.streams().load(&name("user-a"), options.snapshot(["snapshot"])).await.expect(what);
            let met = loaded.snapshots.first().map(|snapshot| snapshot.version);
            assert_eq!((met, loaded.events.len() as u64, loaded.version), (version, 2 - version.unwrap_or(0), 2), "{what}");
        }
        assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, [], "{what}");
    }
}

/// The page's `ser_nr` is in no index: such an event is found by its key, by a strong read always, by an eventual one below one that shows.
#[tokio::test]
async fn an_event_that_no_index_shows_is_found_by_its_key() {
    let (_, store, client) = bench(&format!("{V3}&table=orders")).await;
    let streams = store.streams();
    streams.append(&name("user-a"), first([event("A", "1")])).await.expect("appends");
    let mut as_printed = scan(&client, "orders-journal").await.remove(0);
    let seq = as_printed.remove("seq_nr").expect("a number");
    as_printed.insert("ser_nr".into(), seq);
    put(&client, "orders-journal", as_printed).await;
    let seen = async |options| streams.load(&name("user-a"), options).await.expect("loads").events.len();
    assert_eq!((seen(LoadOptions::default()).await, seen(LoadOptions::default().eventual()).await), (1, 0));
    streams.append(&name("user-a"), Step::new([event("A", "2")])).await.expect("appends");
    assert_eq!((seen(LoadOptions::default()).await, seen(LoadOptions::default().eventual()).await), (2, 2));
}
