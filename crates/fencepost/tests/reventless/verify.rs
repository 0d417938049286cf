//! Looking after a table: what a restore has torn apart is named, and what is sound is not.

use std::collections::BTreeSet;

use fencepost::Append;

use crate::*;

/// A restore may bring back a fence and none of what it counts.
#[tokio::test]
async fn h16_a_fence_whose_events_are_all_lost_is_named() {
    let table = Table::new("partition=env/platform&cross=product");
    let store = table.open().await;
    let done = store.log().expect("log").append(Append::new([event("T", &["env:e", "platform:p", "product:p"])])).await.expect("append");
    let position = table.items().await.into_iter().find(|item| item.contains_key("event")).expect("the event")["position"].clone();
    table.delete("e/p", position.as_s().expect("text")).await;
    let torn = store.verify(&|_| ()).await.expect("verify");
    let named: BTreeSet<_> = torn.findings.iter().map(|finding| finding.item.as_str()).collect();
    assert_eq!(
        named.into_iter().collect::<Vec<_>>(),
        ["fence#__dcb_composite__:e/p @FENCE", "fence#product:p @FENCE"],
        "{done:?}: {torn:?}"
    );
}

/// An event whose first tag is its partition, for want of a better: no index is over that key.
#[tokio::test]
async fn h16_partitions_of_undeclared_keys_are_looked_after_too() {
    let table = Table::new("partition=order");
    let store = table.open().await;
    let log = store.log().expect("log");
    for _ in 0..2 {
        log.append(Append::new([event("T", &["x:1"]), event("T", &["x:1"]), event("T", &["order:1"])])).await.expect("append");
    }
    let sound = store.verify(&|_| ()).await.expect("verify");
    assert!(sound.findings.is_empty() && (sound.events, sound.commits) == (6, 2), "{sound:?}");
    table.delete("fence#x:1", "FENCE").await;
    let torn = store.verify(&|_| ()).await.expect("verify");
    assert!(torn.findings.iter().any(|finding| finding.item == "fence#x:1 @FENCE"), "{torn:?}");
}
