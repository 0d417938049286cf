//! What is held: each role of a fence, beside a peer that moves it too, simple and composite.

use fencepost::testing::{Gate, Rule};
use fencepost::{After, Append, Expect, LoadOptions, Step, StreamName};

use crate::*;

#[tokio::test]
async fn every_role_of_a_fence_holds() {
    let table = Table::new("partition=order&cross=product");
    let (log, other) = (table.log().await, table.log().await);
    let fence = async |name: &str| table.get(&format!("fence#{name}"), "FENCE").await.get("v").cloned();
    // The create guard: a fence that is not there stands at 0.
    log.append(Append::new([event("T", &["order:1"])]).unless(tag("order:1"), After::Nothing)).await.expect("creates");
    assert!(
        log.append(Append::new([event("T", &["order:1"])]).unless(tag("order:1"), After::Nothing)).await.is_err_and(|e| e.is_conflict())
    );
    // Read and carried: checked and moved. Read and not carried: checked. Carried and not read: moved.
    let token = log.source(&tag("product:p"), None).await.expect("source").token;
    log.append(Append::new([event("T", &["order:2"])]).unless(tag("product:p"), token.clone())).await.expect("checks");
    assert_eq!(fence("product:p").await, None, "checked, not moved");
    other.append(Append::new([event("T", &["order:3", "product:p", "note:n"])])).await.expect("moves");
    assert_eq!(fence("product:p").await, Some(Value::N("1".into())));
    assert_eq!(fence("note:n").await, None, "a tag that no read returns it for is not moved");
    assert!(log.append(Append::new([event("T", &["order:2"])]).unless(tag("product:p"), token)).await.is_err_and(|e| e.is_conflict()));
}

#[tokio::test]
async fn a_peer_that_moves_a_fence_is_noticed_and_nothing_of_it_is_lowered() {
    let table = Table::new("partition=order");
    let log = table.log().await;
    let typed = Query::item(["T"], ["order:1"]).expect("query");
    log.append(Append::new([event("T", &["order:1"])])).await.expect("ours");
    for query in [typed, tag("order:1")] {
        let token = log.source(&query, None).await.expect("source").token;
        // Late: below what stands there.
        table.peers("T", &["order:1"], PEERS).await;
        let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), token.clone())).await;
        assert!(outcome.as_ref().is_err_and(|e| e.is_conflict()), "{query:?}: {outcome:?}");
        let stale = log.source(&query, Some(&token)).await;
        assert!(matches!(stale, Err(Error::Refused(Refused::Foreign { .. }))), "a model from before it cannot be read on: {stale:?}");
        let fresh = log.source(&query, None).await.expect("source");
        assert!(fresh.events.iter().any(|event| event.recorded_at.to_string() == "2026-06-22T10:20:00Z"));
        log.append(Append::new([event("T", &["order:1"])]).unless(query, fresh.token)).await.expect("decided again");
        table.delete("order:1", PEERS).await;
    }
}

#[tokio::test]
async fn composite_partitions_lie_and_are_fenced_as_the_peer_has_them() {
    let table = Table::new("partition=env/platform&cross=plugin");
    let store = table.open().await;
    let log = store.log().expect("log");
    let query = Query::tags(["platform:web", "env:prod"]).expect("query");
    let token = log.source(&query, None).await.expect("source").token;
    log.append(Append::new([event("T", &["plugin:z", "env:prod", "platform:web"])]).unless(query.clone(), token.clone()))
        .await
        .expect("append");
    assert!(
        log.append(Append::new([event("T", &["env:prod", "platform:web"])]).unless(query.clone(), token))
            .await
            .is_err_and(|e| e.is_conflict())
    );
    assert!(!table.get("fence#__dcb_composite__:prod/web", "FENCE").await.is_empty());
    assert!(table.items().await.iter().any(|item| item["id"] == Value::S("prod/web".into()) && item.contains_key("event")));
    assert_eq!(log.source(&tag("plugin:z"), None).await.expect("source").events.len(), 1);
    let stream = StreamName::new("prod/web").expect("name");
    store.streams().append(&stream, Step::new([event("T", &[])]).expect(Expect::Version(1))).await.expect("append");
    assert_eq!(store.streams().load(&stream, LoadOptions::default()).await.expect("load").version, 2);
    assert!(is_unsupported(&log.append(Append::new([event("T", &["env:a", "env:b"])])).await));
}

/// Nothing was there at all, and the peer comes first: its fence has no counter, and tells all the same.
#[tokio::test]
async fn the_peers_first_event_on_a_tag_is_never_decided_over() {
    let table = Table::new("partition=order");
    let log = table.log().await;
    let token = log.source(&tag("order:1"), None).await.expect("source").token;
    assert!(log.unchanged(&token).await.expect("unchanged").value);
    table.peers("T", &["order:1"], PEERS).await;
    assert!(!log.unchanged(&token).await.expect("unchanged").value);
    let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(tag("order:1"), token.clone())).await;
    assert!(outcome.as_ref().is_err_and(|e| e.is_conflict()), "{outcome:?}");
    let delta = log.source(&tag("order:1"), Some(&token)).await;
    assert!(matches!(delta, Err(Error::Refused(Refused::Foreign { .. }))), "a model from before it cannot be read on: {delta:?}");
}

#[tokio::test]
async fn a_replica_that_lags_hides_no_event_of_the_peers_from_a_decision() {
    for consistency in ["escalate", "eventual"] {
        let (table, lag) = lagging(&format!("partition=order&consistency={consistency}"));
        let log = table.log().await;
        log.append(Append::new([event("T", &["order:1"])])).await.expect("ours");
        lag.apply_all().await;
        table.peers("T", &["order:1"], PEERS).await;
        for query in [Query::item(["T"], ["order:1"]).expect("query"), tag("order:1")] {
            let seen = log.source(&query, None).await.expect("source");
            assert_eq!(seen.events.len(), 2, "{consistency}: {query:?}");
        }
    }
}

/// What the peer wrote long ago makes no read wait for writers of ours: they count, and their moves are judged at the append.
#[tokio::test]
async fn a_read_of_old_events_of_the_peers_is_not_held_up_by_writers_of_ours() {
    let table = Table::new("partition=order");
    let other = table.log().await;
    table.peers("T", &["order:1"], PEERS).await;
    let faults = Faults::new(table.http(), 1);
    let log = support::open(table.builder().http_client(faults.http_client())).await.log().expect("log");
    let gate = Gate::new();
    faults.script(Rule::on("Query").nth(1).pause_after(&gate));
    let reading = tokio::spawn({
        let log = log.clone();
        async move { log.source(&tag("order:1"), None).await }
    });
    gate.reached(1).await;
    other.append(Append::new([event("U", &["order:1"])])).await.expect("ours");
    gate.open();
    let seen = reading.await.expect("joins").expect("source");
    assert_eq!((seen.events.len(), faults.calls("Query")), (1, 1), "read once");
    let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(tag("order:1"), seen.token)).await;
    assert!(outcome.as_ref().is_err_and(|e| e.is_conflict()), "and what came meanwhile is in the way: {outcome:?}");
}

#[tokio::test]
async fn a_clause_of_several_tags_is_checked_and_moved_at_any_version() {
    let table = Table::new("partition=order&cross=product");
    let (log, other) = (table.log().await, table.log().await);
    let query = Query::item(["T"], ["note:n", "product:p"]).expect("query");
    let both = |order: &str| event("T", &[order, "product:p", "note:n"]);
    let mut token = log.source(&query, None).await.expect("source").token;
    for (n, order) in ["order:1", "order:2", "order:3"].into_iter().enumerate() {
        // Only one of the two: it moves the fence, and is nothing that was asked for.
        other.append(Append::new([event("T", &["order:9", "product:p"])])).await.expect("moves");
        let done = log.append(Append::new([both(order)]).unless(query.clone(), token.clone())).await.expect("checked and moved");
        let version = table.get("fence#product:p", "FENCE").await.get("v").cloned();
        assert_eq!(version, Some(Value::N((2 * n + 2).to_string())));
        let stale = other.append(Append::new([both(order)]).unless(query.clone(), token)).await;
        assert!(stale.as_ref().is_err_and(|e| e.is_conflict()), "{stale:?}");
        token = done.token.expect("token");
    }
}

#[tokio::test]
async fn an_event_without_tags_is_held_by_its_condition_and_moves_nothing() {
    let table = Table::new("partition=order");
    let (log, other) = (table.log().await, table.log().await);
    other.append(Append::new([event("T", &["order:1"])])).await.expect("append");
    let untagged = |token| Append::new([event("U", &[])]).unless(tag("order:1"), token);
    let token = log.source(&tag("order:1"), None).await.expect("source").token;
    log.append(untagged(token.clone())).await.expect("holds");
    assert_eq!(table.get("fence#order:1", "FENCE").await.get("v"), Some(&Value::N("1".into())));
    let again = log.append(untagged(token.clone())).await.expect("its own events are not in its way");
    assert_eq!(table.items().await.iter().filter(|item| item["id"] == Value::S("dcb".into())).count(), 2, "{again:?}");
    other.append(Append::new([event("T", &["order:1"])])).await.expect("moves");
    let stale = log.append(untagged(token)).await;
    assert!(stale.as_ref().is_err_and(|e| e.is_conflict()), "{stale:?}");
    assert_eq!(table.items().await.iter().filter(|item| item["id"] == Value::S("dcb".into())).count(), 2);
}
