//! What is refused, and what a table was declared with.

use fencepost::{Append, Metadata};
use fencepost::{Delivery, From, IndexOptions};
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
