//! The exact items that are written, what comes back of what was given, and what is refused.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::{Error, Expect, LoadOptions, Metadata, Refused, Snapshot, Step};
use serde_json::json;

use super::support::{Ground, open};
use super::{BOTH, V3, V5, bench, blob, event, first, item, name, names, number, put, scan, text};

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

/// Told before any call: a body too long for an item, bodies that together are too long for the head of v5, and a name too long for v3's keys.
#[tokio::test]
async fn what_is_too_long_is_refused_by_its_name() {
    for layout in BOTH {
        let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
        let streams = store.streams();
        let of = |kilobytes: usize| event("A", &"x".repeat(kilobytes * 1024));
        let too_long = async |stream: &str, step: Step| match streams.append(&name(stream), step).await {
            Err(Error::Refused(Refused::TooLong { what, bytes, limit })) if bytes > limit => Some(what),
            _ => None,
        };
        assert_eq!(
            too_long("user-a", first([of(401)])).await,
            Some(if layout == V5 { "head, with the copies of the commit's events," } else { "event with its attributes" })
        );
        let snapshot = Step::new([event("A", "")]).snapshot(Snapshot::new("snapshot", "x".repeat(401 * 1024)));
        assert_eq!(too_long("user-a", snapshot).await, Some("snapshot"), "{layout}");
        assert!(too_long("user-a", first((0..17).map(|_| of(250)))).await.is_some(), "{layout}");
        let two = first([of(250), of(250)]);
        match layout {
            V5 => assert_eq!(too_long("user-a", two).await, Some("head, with the copies of the commit's events,")),
            _ => assert_eq!(streams.append(&name("user-b"), two).await.expect("v3 has no head").version, Some(2)),
        }
        let named = |bytes: usize| format!("user-{}", "a".repeat(bytes - 5));
        match layout {
            V3 => {
                assert_eq!(too_long(&named(1008), first([event("A", "")])).await, Some("stream name in v3"));
                assert_eq!(streams.append(&name(&named(1007)), first([event("A", "")])).await.expect("the longest").version, Some(1));
            }
            _ => assert_eq!(streams.append(&name(&named(1024)), first([event("A", "")])).await.expect("the longest").version, Some(1)),
        }
        assert!(scan(&client, "orders-journal").await.iter().all(|item| item["aid"] != text("user-a")), "{layout}");
    }
}

/// An event of which the lock knows nothing: nobody can append there, and it is told as what it is, not as a conflict without end.
#[tokio::test]
async fn a_journal_ahead_of_its_lock_is_corrupt() {
    for layout in BOTH {
        for expect in [Expect::Any, Expect::Version(1)] {
            let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
            let streams = store.streams();
            streams.append(&name("user-a"), first([event("A", "1")])).await.expect("appends");
            let mut ahead = scan(&client, "orders-journal").await.into_iter().find(|item| item["aid"] == text("user-a")).expect("an event");
            ahead.insert("seq_nr".into(), number(2));
            if layout == V3 {
                ahead.insert("skey".into(), text("user-a-2"));
            }
            put(&client, "orders-journal", ahead).await;
            let answer = streams.append(&name("user-a"), Step::new([event("A", "2")]).expect(expect.clone())).await;
            match (layout, &expect) {
                // v3 leaves the numbers to its callers: what lies behind is an event like any.
                (V3, Expect::Any) => assert_eq!(answer.expect("behind it").version, Some(3)),
                (V3, _) => assert!(answer.is_err_and(|error| error.is_conflict())),
                _ => assert!(matches!(&answer, Err(Error::Corrupt(c)) if c.what.contains("@2")), "{expect:?}: {answer:?}"),
            }
        }
    }
}
