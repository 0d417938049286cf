//! Streams: versions over partitions, and what is refused before a stream is read.

use fencepost::{Append, Expect, Step, StreamName, StreamReadOptions, StreamStoreExt};

use crate::*;

#[tokio::test]
async fn a_step_that_cannot_be_held_is_refused_before_the_stream_is_read() {
    let table = Table::new("partition=order");
    let faults = Faults::new(table.http(), 1);
    let store = support::open(table.builder().http_client(faults.http_client())).await;
    let before = faults.log().len();
    let stream = StreamName::new("order:1").expect("name");
    let bad = Step::new([Event::new("T", b"\xff".to_vec()).expect("event")]).expect(Expect::Version(0));
    let many = Step::new((0..100).map(|_| event("T", &[]))).expect(Expect::Version(0));
    for step in [bad, many] {
        let refused = store.streams().append(&stream, step).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    assert_eq!(faults.log().len(), before, "no call was made");
}

/// An index shows the second event and not the first: it is not the stream's first for that.
#[tokio::test]
async fn versions_of_a_stream_over_partitions_are_right_while_its_index_lags() {
    let (table, lag) = lagging("partition=order&cross=product");
    let store = table.open().await;
    lag.apply_all().await;
    for order in ["order:1", "order:2"] {
        store.log().expect("log").append(Append::new([event("T", &[order, "product:p"])])).await.expect("append");
    }
    for pending in lag.pending().iter().filter(|pending| pending.key.contains("\"order:2\"")) {
        lag.apply(pending.id).await;
    }
    let stream = StreamName::new("product:p").expect("name");
    let read = async || store.streams().read_stream(&stream, StreamReadOptions::default()).await;
    let versions = |read: Vec<fencepost::Recorded>| read.iter().map(|event| event.version).collect::<Vec<_>>();
    match read().await {
        Ok(events) => assert_eq!(versions(events), [Some(1), Some(2)]),
        Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error:?}"),
    }
    lag.apply_all().await;
    assert_eq!(versions(read().await.expect("all shows")), [Some(1), Some(2)]);
}
