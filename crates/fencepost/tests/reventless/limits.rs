//! What is refused, and what a table was declared with.

use fencepost::After;
use fencepost::{Append, Metadata};
use fencepost::{Delivery, From, IndexOptions};
use fencepost::{EventLogExt, ReadOptions};
use futures::StreamExt;

use crate::*;

#[tokio::test]
async fn what_it_cannot_hold_is_refused_before_any_call() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    let before = faults.log().len();
    let body = |body: &[u8]| Event::new("T", body.to_vec()).and_then(|e| e.tag("order:1")).expect("event");
    let meta = |key: &str| {
        let meta = Metadata { extra: [(key.to_owned(), serde_json::json!(1))].into(), ..Default::default() };
        event("T", &["order:1"]).meta(meta)
    };
    let many: Vec<Event> = (0..100).map(|_| event("T", &["order:1"])).collect();
    for events in [
        vec![body(b"\xff\x00")],
        vec![body(b"text")],
        vec![body(br#"{"a":1,"a":2}"#)],
        vec![meta("data")],
        vec![meta("tag_order")],
        vec![meta("msgId")],
        vec![meta("fv")],
        vec![event("T", &["plain"])],
        vec![event("T", &["composite:1"])],
        vec![event("T", &["order:"])],
        vec![body(format!("\"{}\"", "x".repeat(410_000)).as_bytes())],
        many,
    ] {
        let outcome = log.append(Append::new(events)).await;
        assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    }
    let outcome = log.append(Append::new((0..100).map(|_| event("T", &["order:1"])))).await;
    assert!(matches!(outcome, Err(Error::Refused(Refused::TooManyItems { items: 101, limit: 100 }))), "{outcome:?}");
    assert_eq!(faults.log().len(), before, "no call was made");
}

#[tokio::test]
async fn settings_are_recorded_with_the_table_and_held_against_the_url() {
    let table = Table::new("partition=order&cross=product");
    table.open().await;
    let open = async |parameters: &'static str| table.with(parameters).builder().open().await.map(drop);
    assert!(open("untagged=scan").await.is_ok(), "as the table records it");
    for differs in ["partition=other", "partition=order&cross=x", "cross=product,x"] {
        let refused = open(differs).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::Differs { .. }) | Error::Unavailable(_))), "{differs}: {refused:?}");
    }
    // Every index that it asks for is there, and still it is another declaration.
    let swapped = open("partition=product&cross=order").await;
    assert!(matches!(swapped, Err(Error::Refused(Refused::Differs { what: "partition", .. }))), "{swapped:?}");
    let undeclared = Table::new("untagged=scan").builder().open().await.map(drop);
    assert!(matches!(&undeclared, Err(Error::Refused(Refused::Url { why })) if why.contains("partition=")), "{undeclared:?}");
}

/// A partition longer than a tag could be in no series of the feed: refused, before it is recorded and never fed.
#[tokio::test]
async fn a_composite_partition_that_no_feed_can_name_is_refused() {
    let table = Table::new("partition=a/b");
    let store = table.open().await;
    let long = |letters: usize| event("T", &[&format!("a:{}", "x".repeat(letters)), &format!("b:{}", "y".repeat(600))]);
    for letters in [424, 1_000] {
        let refused = store.log().expect("log").append(Append::new([long(letters)])).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { limit: 1_024, .. }))), "{letters}: {refused:?}");
    }
    store.log().expect("log").append(Append::new([long(423)])).await.expect("1,024 bytes");
    store.index().expect("index").run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    let fed = store.feed().expect("feed").subscribe(From::Start, Query::all()).next().await;
    assert!(matches!(fed, Some(Ok(Delivery::Event { .. }))), "{fed:?}");
}

/// An expression may have 4 KB: more types at once are refused as what they are.
#[tokio::test]
async fn more_types_than_an_expression_holds_are_refused_with_the_limit() {
    let table = Table::new("partition=order");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    let names: Vec<String> = (0..150).map(|n| format!("Type{n}")).collect();
    let query = Query::item(&names, ["order:1"]).expect("query");
    let before = faults.log().len();
    let refused = log.append(Append::new([event("T", &["order:1"])]).unless(query, After::Nothing)).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { limit: 4_096, .. }))), "{refused:?}");
    let refused = log.append(Append::new(names[..90].iter().map(|name| event(name, &["order:1"])))).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { limit: 4_096, .. }))), "{refused:?}");
    assert_eq!(faults.log().len(), before, "no call was made");
    let some = Query::item(&names[..40], ["order:1"]).expect("query");
    log.append(Append::new([event("T", &["order:1"])]).unless(some, After::Nothing)).await.expect("forty fit");
}

/// The first event of a commit lists its partitions: what it says of them is part of its size.
#[tokio::test]
async fn the_list_of_partitions_counts_for_the_size_of_the_first_event() {
    let table = Table::new("partition=order");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    let mut events = vec![Event::new("T", format!("\"{}\"", "x".repeat(370_000))).and_then(|e| e.tag("order:0")).expect("event")];
    events.extend((0..48).map(|n| event("T", &[&format!("order:{n:0>1000}")])));
    let before = faults.log().len();
    let refused = log.append(Append::new(events)).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { .. }))), "{refused:?}");
    assert_eq!(faults.log().len(), before, "no call was made");
}

/// A table that the peer made records nothing: the first append of ours does, so that the next process cannot fence otherwise.
#[tokio::test]
async fn the_first_append_to_a_table_of_the_peers_records_what_it_is_fenced_by() {
    for (first, others) in [
        ("partition=order&cross=product", &["partition=order", "partition=order&cross=product,x", "partition=product&cross=order"][..]),
        ("partition=env/platform", &["partition=env#platform", "partition=platform/env", "partition=env"][..]),
    ] {
        let table = Table::new(first);
        // Made with every index, and without the item: as the peer makes it.
        table.with("partition=order/env/platform&cross=product,x").open().await;
        table.delete("fencepost#settings", "SETTINGS").await;
        let open = async |parameters: &str| table.with(parameters).builder().create(false).open().await.expect("opens").log().expect("log");
        let (log, mut differ) = (open(first).await, Vec::new());
        for other in others {
            differ.push(open(other).await);
        }
        let tagged = || event("T", &["order:1", "env:e", "platform:p"]);
        log.append(Append::new([tagged()])).await.expect("the first");
        let units = log.append(Append::new([tagged()])).await.expect("the second").units;
        assert_eq!(units.requests, 1, "said once");
        for (log, other) in differ.into_iter().zip(others) {
            let refused = log.append(Append::new([tagged()])).await;
            assert!(matches!(refused, Err(Error::Refused(Refused::Differs { .. }))), "{first}, {other}: {refused:?}");
        }
        let reopened = table.with("untagged=scan").builder().create(false).open().await.expect("as it is recorded now");
        assert_eq!(reopened.log().expect("log").read_all(&Query::all(), ReadOptions::default()).await.expect("scan").len(), 2);
    }
}
