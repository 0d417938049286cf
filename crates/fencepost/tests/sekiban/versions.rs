//! Versions: one number for a stream, whoever counts it, also where Sekiban's rows came late below a head and where rows have expired.

use fencepost::{Expect, LoadOptions, Snapshot, Step, StreamName, StreamReadOptions, StreamStore};

use crate::*;

fn name() -> StreamName {
    StreamName::new("a:1").expect("name")
}

/// Five rows of ours, and one of Sekiban's that came late, below the head.
async fn with_a_late_row(bench: &Bench) -> std::sync::Arc<dyn StreamStore> {
    let streams = bench.store("").await.streams();
    for n in 1..=5 {
        streams.append(&name(), Step::new([event(&n.to_string(), &[])])).await.expect("append");
    }
    let old = SortableId::threshold(Env::system().now() - Duration::from_secs(60));
    crate::indexed::sekiban_writes(bench, "default", old, &Uuid::from_u128(77), "late", &["a:1"]).await;
    streams
}

/// An event and its row on a tag, removed as DynamoDB removes what has expired.
pub(crate) async fn expire(bench: &Bench, at: SortableId, event: &Uuid, tag: &str) {
    let key = |pk: String, sk: String| [("pk".to_owned(), AttributeValue::S(pk)), ("sk".to_owned(), AttributeValue::S(sk))];
    let of_event = key(format!("SERVICE#default#EVENT#{event}"), format!("EVENT#{event}"));
    let row = key(format!("SERVICE#default#TAG#{tag}"), format!("{at}#{event}"));
    for (table, key) in [("SekibanEvents", of_event), ("SekibanTags", row)] {
        bench.client.delete_item().table_name(bench.table(table)).set_key(Some(key.into())).send().await.expect("removed");
    }
}

async fn versions(streams: &dyn StreamStore, options: StreamReadOptions) -> Vec<(String, Option<u64>)> {
    let read: Vec<Recorded> = streams.read(&name(), options).try_collect().await.expect("read");
    labels(&read).into_iter().zip(read.iter().map(|event| event.version)).collect()
}

/// The row is one more, and no head counts it: whoever loaded before another appended must not pass for one who loaded after.
#[tokio::test]
async fn a_stale_version_conflicts_although_a_row_came_late_below_the_head() {
    let bench = Bench::new();
    let streams = with_a_late_row(&bench).await;
    let stale = streams.load(&name(), LoadOptions::default()).await.expect("load");
    assert_eq!(stale.events.len(), 6, "it is there to be read");
    let theirs = streams.append(&name(), Step::new([event("theirs", &[])])).await.expect("another's");
    assert_eq!(theirs.version, Some(stale.version + 1), "the number that loads tell goes on");
    let outcome = streams.append(&name(), Step::new([event("blind", &[])]).expect(Expect::Version(stale.version))).await;
    assert!(matches!(&outcome, Err(Error::Conflict(conflict)) if labels(&conflict.events) == ["theirs"]), "{outcome:?}");
    let fresh = streams.load(&name(), LoadOptions::default().since(stale.token)).await.expect("load").version;
    streams.append(&name(), Step::new([event("seen", &[])]).expect(Expect::Version(fresh))).await.expect("what a load tells is accepted");
}

/// Where Sekiban's late row stands above the head, or where there is no head, a version that conflicts once does not do so for ever.
#[tokio::test]
async fn a_version_loaded_since_a_token_is_accepted_in_the_end() {
    let bench = Bench::new();
    let streams = bench.store("").await.streams();
    let now = crate::indexed::now_id();
    let at = |seconds: i64| SortableId::threshold(now.timestamp() + jiff::SignedDuration::from_secs(seconds));
    crate::indexed::sekiban_writes(&bench, "default", at(-60), &Uuid::from_u128(1), "1", &["a:1"]).await;
    let token = streams.load(&name(), LoadOptions::default()).await.expect("load").token;
    crate::indexed::sekiban_writes(&bench, "default", at(-70), &Uuid::from_u128(2), "late", &["a:1"]).await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let loaded = streams.load(&name(), LoadOptions::default().since(token.clone())).await.expect("load");
        expected.push(loaded.version);
        if streams.append(&name(), Step::new([event("mine", &[])]).expect(Expect::Version(loaded.version))).await.is_ok() {
            return;
        }
    }
    panic!("never accepted: {expected:?}");
}

/// An event has one number, forwards and backwards, in pages and in loads; and the last one's is the stream's.
#[tokio::test]
async fn an_event_has_one_number_whichever_way_it_is_read() {
    let bench = Bench::new();
    with_a_late_row(&bench).await;
    let few = fencepost::sekiban::Settings::from_json(r#"{"DynamoDb":{"QueryPageSize":2}}"#).expect("settings");
    for settings in [None, Some(few)] {
        let builder = bench.builder("");
        let builder = match &settings {
            Some(settings) => builder.settings(settings).expect("settings"),
            None => builder,
        };
        let streams = open(builder).await.streams();
        let loaded = streams.load(&name(), LoadOptions::default()).await.expect("load");
        let all: Vec<_> = labels(&loaded.events).into_iter().zip(loaded.events.iter().map(|event| event.version)).collect();
        assert_eq!(all.last(), Some(&("5".into(), Some(loaded.version))), "{settings:?}");
        assert_eq!(versions(&*streams, StreamReadOptions::default()).await, all, "{settings:?}");
        assert_eq!(versions(&*streams, StreamReadOptions::default().limit(2)).await, all[..2], "{settings:?}");
        let mut back = versions(&*streams, StreamReadOptions::default().backwards()).await;
        back.reverse();
        assert_eq!(back, all, "{settings:?}");
        let latest = streams.load(&name(), LoadOptions::default().latest()).await.expect("load");
        assert_eq!((latest.version, latest.events[0].version), (loaded.version, Some(loaded.version)));
    }
}

/// Snapshots are saved as before: the number that they are saved under is the one that loads tell.
#[tokio::test]
async fn snapshots_are_saved_although_a_row_came_late() {
    let bench = Bench::new();
    let streams = with_a_late_row(&bench).await;
    let token = streams.load(&name(), LoadOptions::default()).await.expect("load").token;
    let step = Step::new([event("6", &[])]).expect(Expect::Token(token)).snapshot(Snapshot::new("s", "state"));
    let version = streams.append(&name(), step).await.expect("append").version;
    let loaded = streams.load(&name(), LoadOptions::default().snapshot(["s"])).await.expect("load");
    assert_eq!(loaded.snapshots.first().map(|snapshot| Some(snapshot.version)), Some(version));
    assert!(loaded.events.is_empty(), "{:?}", loaded.events);
}

/// Rows that expire take nothing from the version: it never goes back to a number that was told before.
#[tokio::test]
async fn a_version_does_not_go_back_when_rows_expire() {
    let bench = Bench::new();
    let store = bench.store("").await;
    let (sekiban, streams) = (store.sekiban().expect("sekiban"), store.streams());
    let now = Env::system().now() - Duration::from_secs(60);
    let at = |n: u64| SortableId::threshold(now + Duration::from_micros(n));
    let gone = WriteOptions::default().expire_at(now);
    let write = async |n: u64| {
        sekiban.write(&[(at(n), event(&n.to_string(), &["a:1"]).id(Uuid::from_u128(n.into())))], gone).await.expect("write");
    };
    let expires = async |n: u64| expire(&bench, at(n), &Uuid::from_u128(n.into()), "a:1").await;
    for n in 1..=5 {
        write(n).await;
    }
    expires(1).await;
    expires(2).await;
    let stale = streams.load(&name(), LoadOptions::default()).await.expect("load");
    assert_eq!((stale.version, stale.events.iter().map(|event| event.version).collect::<Vec<_>>()), (5, vec![Some(3), Some(4), Some(5)]));
    write(6).await;
    expires(3).await;
    let outcome = streams.append(&name(), Step::new([event("blind", &[])]).expect(Expect::Version(stale.version))).await;
    assert!(matches!(&outcome, Err(Error::Conflict(conflict)) if labels(&conflict.events) == ["6"]), "{outcome:?}");
    // All of them, and then one that expects none: the count goes on.
    for n in 4..=6 {
        expires(n).await;
    }
    let first = streams.append(&name(), Step::new([event("anew", &[])]).expect(Expect::None)).await.expect("nothing is there");
    assert_eq!(first.version, Some(7));
    // A token whose last row expired behind the back of others: still counted on.
    let token = streams.load(&name(), LoadOptions::default()).await.expect("load").token;
    assert_eq!(streams.append(&name(), Step::new([event("8", &[])]).expect(Expect::Token(token))).await.expect("append").version, Some(8));
}

/// The newest event of a long stream costs that event, not a page of them.
#[tokio::test]
async fn a_limit_is_pushed_down_to_the_rows_and_their_events() {
    let bench = Bench::embedded();
    let tap = crate::tap::Tap::on(bench.http());
    let streams = open(bench.builder("").http_client(tap.http_client())).await.streams();
    streams.append(&name(), Step::new((0..40).map(|n| event(&n.to_string(), &[])))).await.expect("append");
    for (options, label) in [(StreamReadOptions::default().backwards(), "39"), (StreamReadOptions::default(), "0")] {
        tap.take();
        assert_eq!(versions(&*streams, options.limit(1)).await[0].0, label);
        let asked = tap.take();
        let rows = asked.iter().filter(|call| call.api == "Query" && call.request["Select"] != "COUNT");
        assert!(rows.map(|call| call.answer["Count"].as_u64().expect("a count")).sum::<u64>() <= 3, "{label}: rows");
        let events = asked.iter().filter(|call| call.api == "BatchGetItem");
        let events = events.map(|call| call.request["RequestItems"]["SekibanEvents"]["Keys"].as_array().map_or(0, Vec::len));
        assert!(events.sum::<usize>() <= 2, "{label}: events");
    }
}

/// Sekiban's older hosts write ids in capitals: the last event is found by its row, as all others are.
#[tokio::test]
async fn the_latest_event_is_found_whichever_way_its_id_is_written() {
    let bench = Bench::new();
    let streams = bench.store("").await.streams();
    let id = Uuid::from_u128(0xabcdef);
    crate::indexed::sekiban_writes(&bench, "default", crate::indexed::now_id(), &id, "loud", &["a:1"]).await;
    for table in ["SekibanEvents", "SekibanTags"] {
        for item in bench.dump(table).await {
            let key: Item = item.iter().filter(|(name, _)| *name == "pk" || *name == "sk").map(|(n, v)| (n.clone(), v.clone())).collect();
            bench.client.delete_item().table_name(bench.table(table)).set_key(Some(key)).send().await.expect("removed");
            let loud = |value: AttributeValue| match value {
                AttributeValue::S(text) => AttributeValue::S(text.replace(&id.to_string(), &id.to_string().to_uppercase())),
                other => other,
            };
            bench.put(table, item.into_iter().map(|(name, value)| (name, loud(value))).collect()).await;
        }
    }
    let latest = streams.load(&name(), LoadOptions::default().latest()).await.expect("load");
    assert_eq!((labels(&latest.events), latest.version), (vec!["loud".to_owned()], 1));
}

/// What `verify` finds of a late row, a repair ends: the head counts it from then on, and nobody who loaded before passes for one who loaded after.
#[tokio::test]
async fn a_repair_counts_rows_that_came_late_or_without_a_head() {
    let bench = Bench::new();
    let streams = with_a_late_row(&bench).await;
    let store = bench.store("").await;
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings.len(), 1);
    let stale = streams.load(&name(), LoadOptions::default()).await.expect("load").version;
    store.repair(&|_| ()).await.expect("repair");
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
    let repaired = streams.load(&name(), LoadOptions::default()).await.expect("load");
    assert_eq!((stale, repaired.version), (5, 6));
    assert_eq!(repaired.events.iter().map(|event| event.version).collect::<Vec<_>>(), (1..=6).map(Some).collect::<Vec<_>>());
    let blind = streams.append(&name(), Step::new([event("blind", &[])]).expect(Expect::Version(stale))).await;
    assert!(matches!(blind, Err(Error::Conflict(_))), "{blind:?}");
    // Above the head.
    crate::indexed::sekiban_writes(&bench, "default", crate::indexed::now_id(), &Uuid::from_u128(78), "above", &["a:1"]).await;
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings.len(), 1);
    store.repair(&|_| ()).await.expect("repair");
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
}

/// Who has read a head before a repair set its count does not set it back.
#[tokio::test]
async fn an_append_that_is_on_its_way_does_not_undo_a_repair() {
    let bench = Bench::embedded();
    with_a_late_row(&bench).await;
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let slow = open(bench.builder("").timeouts(PATIENT).http_client(between.http_client())).await.streams();
    let writer = tokio::spawn(async move { slow.append(&name(), Step::new([event("slow", &[])])).await });
    gate.reached(1).await;
    bench.store("").await.repair(&|_| ()).await.expect("repair");
    gate.open();
    assert_eq!(writer.await.expect("joins").expect("appends").version, Some(7));
}

/// The counter of rows without a head counts rows: each once, however often they are looked at.
#[tokio::test]
async fn rows_without_a_head_are_counted_once() {
    let counted = crate::tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::new();
    let store = bench.store("").await;
    let streams = store.streams();
    for n in 0..3u128 {
        crate::indexed::sekiban_writes(&bench, "default", crate::indexed::now_id(), &Uuid::from_u128(n), "theirs", &["a:1"]).await;
    }
    for _ in 0..3 {
        versions(&*streams, StreamReadOptions::default().backwards()).await;
        store.verify(&|_| ()).await.expect("verify");
    }
    streams.append(&name(), Step::new([event("mine", &[])])).await.expect("append");
    streams.append(&name(), Step::new([event("mine", &[])])).await.expect("append");
    assert_eq!(counted.of("fencepost_sekiban_rows_without_head_total"), 3);
}
