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
