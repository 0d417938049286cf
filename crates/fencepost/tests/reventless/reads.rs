//! What is found: exactly what matches, lazily, each event once, with tags and without.

use fencepost::{After, Append, EventLogExt, ReadOptions};
use futures::StreamExt;

use crate::*;

#[tokio::test]
async fn several_values_of_a_key_supersets_and_odd_tags_are_found_exactly() {
    let table = Table::new("partition=order&cross=product");
    let log = table.log().await;
    let mut body = 0;
    let mut put = async |tags: &[&str]| {
        body += 1;
        let event = tags.iter().fold(Event::new("T", body.to_string()).expect("event"), |e, t| e.tag(t).expect("tag"));
        log.append(Append::new([event])).await.expect("append");
    };
    put(&["order:1", "order:2", "product:a", "product:b"]).await; // 1
    put(&["order:2", "product:a#product:b"]).await; // 2
    put(&["product:a", "note:x:y"]).await; // 3
    put(&["product:b", "product:a", "order:3"]).await; // 4
    let found = async |names: &[&str]| {
        let query = Query::tags(names).expect("query");
        let sourced = log.source(&query, None).await.expect("source").events;
        let read = log.read_all(&query, ReadOptions::default()).await.expect("read");
        assert_eq!(sourced, read, "{names:?}");
        read.iter().map(|event| event.json::<u32>().expect("number")).collect::<Vec<_>>()
    };
    for (names, expected) in [
        (&["order:2"][..], &[1, 2][..]),
        (&["product:a"], &[1, 3, 4]),
        (&["product:b"], &[1, 4]),
        (&["product:a", "product:b"], &[1, 4]),
        (&["product:b", "order:1"], &[1]),
        (&["product:a#product:b"], &[2]),
        (&["product:a", "note:x:y"], &[3]),
        (&["order:1", "order:2", "product:b"], &[1]),
        (&["product:a", "note:x"], &[]),
    ] {
        assert_eq!(found(names).await, expected, "{names:?}");
    }
    let verified = table.open().await.verify(&|_| ()).await.expect("verify");
    assert!(verified.findings.is_empty() && verified.events == 4, "{verified:?}");
    // A restore may tear a commit apart (H16): a fence without its events, or events without their fence.
    table.delete("fence#order:3", "FENCE").await;
    let torn = table.open().await.verify(&|_| ()).await.expect("verify");
    assert!(torn.findings.iter().any(|finding| finding.item == "fence#order:3 @FENCE"), "{torn:?}");
}

#[tokio::test]
async fn untagged_events_are_appended_and_read_by_a_scan_that_is_asked_for_by_name() {
    let table = Table::new("partition=order");
    let log = table.log().await;
    log.append(Append::new([event("T", &[]), event("U", &["order:1"])])).await.expect("append");
    log.append(Append::new([event("T", &[])])).await.expect("append");
    assert!(table.items().await.iter().filter(|item| item["id"] == Value::S("dcb".into())).count() == 2);
    let types = Query::types(["T"]).expect("query");
    for query in [Query::all(), types.clone()] {
        assert!(is_unsupported(&log.source(&query, None).await) && is_unsupported(&log.read_all(&query, ReadOptions::default()).await));
        assert!(is_unsupported(&log.append(Append::new([event("T", &["order:1"])]).unless(query, After::Nothing)).await));
    }
    let scanning = table.with("partition=order&untagged=scan").log().await;
    assert_eq!(scanning.read_all(&types, ReadOptions::default()).await.expect("scan").len(), 2);
    let all = scanning.read_all(&Query::all(), ReadOptions::default()).await.expect("scan");
    assert_eq!(scanning.read_all(&Query::all(), ReadOptions::default().after(all[0].position)).await.expect("scan"), all[1..]);
    assert!(is_unsupported(&scanning.source(&types, None).await), "never as a condition");
}

#[tokio::test]
async fn reads_are_lazy_in_batches_and_each_event_comes_once() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    for order in 0..3 {
        let some = (0..40).map(|_| event("T", &[&format!("order:{order}"), "product:p"]));
        log.append(Append::new(some)).await.expect("append");
    }
    let query = tag("product:p").or(tag("order:1")).or(Query::tags(["order:2", "product:p"]).expect("query"));
    let calls = || (faults.calls("Query"), faults.calls("BatchGetItem"));
    let before = calls();
    let all = log.read_all(&query, ReadOptions::default()).await.expect("read");
    assert!(all.len() == 120 && all.is_sorted_by(|a, b| a.position < b.position), "{} events", all.len());
    assert_eq!(calls().1 - before.1, 2, "a hundred keys a batch");
    assert_eq!(log.source(&query, None).await.expect("source").events, all);
    let before = calls();
    let first = log.read(&tag("order:1"), ReadOptions::default().limit(3)).collect::<Vec<_>>().await;
    assert!(first.len() == 3 && calls().0 - before.0 <= 2, "a page of the partition, and one of its pointers");
}

/// Keys cost little and events much: a page of keys is no longer than a batch, so that the first event comes after one.
#[tokio::test]
async fn reads_of_an_index_are_lazy_too() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    for order in 0..5 {
        let some = (0..60).map(|_| event("T", &[&format!("order:{order}"), "product:p"]));
        log.append(Append::new(some)).await.expect("append");
    }
    for (options, met) in [(ReadOptions::default(), 1), (ReadOptions::default().limit(3), 3)] {
        let before = faults.calls("BatchGetItem");
        let query = tag("product:p");
        let first = log.read(&query, options).take(met).collect::<Vec<_>>().await;
        assert_eq!((first.len(), faults.calls("BatchGetItem") - before), (met, 1), "{options:?}");
    }
    assert_eq!(log.read_all(&tag("product:p"), ReadOptions::default()).await.expect("read").len(), 300);
}

/// A composite partition may be called as the items of ours are: what lies there is an event all the same.
#[tokio::test]
async fn a_partition_that_is_called_like_pointers_is_read() {
    let table = Table::new("partition=a#b&cross=x");
    let log = table.log().await;
    log.append(Append::new([event("T", &["a:more", "b:x:1"])])).await.expect("append");
    log.append(Append::new([event("T", &["a:1", "b:1", "x:1", "x:2"])])).await.expect("append");
    for query in [tag("x:1"), Query::tags(["a:more", "b:x:1"]).expect("query")] {
        assert_eq!(log.source(&query, None).await.expect("source").events.len(), 1, "{query:?}");
        assert_eq!(log.read_all(&query, ReadOptions::default()).await.expect("read").len(), 1, "{query:?}");
    }
}
