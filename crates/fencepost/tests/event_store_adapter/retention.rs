//! Snapshots of the past: kept, deleted, marked to expire; never the newest, and never at the append's cost.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::testing::{Faults, Rule};
use fencepost::{Engine, Expect, LoadOptions, Snapshot, Step, Store};

use super::support::{Ground, open};
use super::{BOTH, V5, bare_sdk, bench, event, name, scan, text};

async fn history(client: &Client) -> Vec<(i64, Option<i64>, bool)> {
    let number = |value: &AttributeValue| value.as_n().expect("a number").parse::<i64>().expect("whole");
    let mut all: Vec<_> = scan(client, "orders-snapshot")
        .await
        .iter()
        .filter(|item| item["aid"] != text("__config__"))
        .filter(|item| {
            item["skey"] != AttributeValue::N("0".into()) && item["skey"].as_s().is_ok_and(|key| !key.ends_with("-0"))
                || item["skey"].as_n().is_ok_and(|key| key != "0")
        })
        .map(|item| {
            (number(&item["seq_nr"]), item.get("ttl").map(number).filter(|ttl| *ttl > 0), item.contains_key("active_history_seq_nr"))
        })
        .collect();
    all.sort_unstable();
    all
}

/// The newest so many stay, the current one always; with an expiry the others are marked once and stay until DynamoDB removes them.
#[tokio::test]
async fn snapshots_beyond_those_kept_are_deleted_or_marked_and_never_the_newest() {
    for layout in BOTH {
        let snapshot = |n: u64| Step::new([event("A", "{}")]).snapshot(Snapshot::new("snapshot", n.to_string()));
        let (_, store, client) = bench(&format!("{layout}&keep=2&table=orders")).await;
        for n in 1..=5 {
            store.streams().append(&name("user-a"), snapshot(n)).await.expect("appends");
            store.streams().append(&name("user-a-1"), snapshot(n)).await.expect("of a name that begins so");
        }
        store.streams().append(&name("user-a"), Step::new([event("A", "{}")])).await.expect("an event alone");
        let kept: Vec<i64> = history(&client).await.into_iter().map(|(version, ..)| version).collect();
        assert_eq!(kept, [4, 4, 5, 5], "{layout}: two of each stream");
        let current = store.streams().load(&name("user-a"), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        assert_eq!((current.snapshots[0].version, current.version), (5, 6));

        let env = fencepost::Env::seeded(1);
        let engine = Engine::memory().expect("an engine");
        let expiring = Ground::Engine(engine.clone()).builder(&format!("{layout}&keep=2&expire=60&table=orders")).env(env.clone());
        let (store, client) = (open(expiring).await, bare_sdk::client(engine.http_client()));
        let mut marks = Vec::new();
        for n in 1..=4 {
            marks.push(env.now().as_second() + 60);
            store.streams().append(&name("user-a"), snapshot(n)).await.expect("appends");
            env.advance(Duration::from_secs(1000));
        }
        let active = layout == V5;
        let expected = [(1, Some(marks[2]), false), (2, Some(marks[3]), false), (3, None, active), (4, None, active)];
        assert_eq!(history(&client).await, expected, "{layout}: each marked when it fell behind, and not again");
    }
}

/// Whatever happens to retention, the append has its answer, and the next one makes up for it.
#[tokio::test]
async fn retention_never_fails_the_append() {
    for layout in BOTH {
        for (operation, parameters) in [("Query", "&keep=1"), ("BatchWriteItem", "&keep=1"), ("UpdateItem", "&keep=1&expire=60")] {
            let engine = Engine::memory().expect("an engine");
            let faults = Faults::new(engine.http_client(), 1);
            let quick = fencepost::Timeouts { attempts: 2, ..fencepost::Timeouts::default() };
            let url = format!("memory:?{layout}{parameters}&table=orders");
            let store = Store::builder(&url).expect("a URL").timeouts(quick).http_client(faults.http_client());
            let streams = open(store).await.streams();
            let step = |n: u64| Step::new([event("A", "{}")]).snapshot(Snapshot::new("snapshot", "{}")).expect(Expect::Version(n));
            streams.append(&name("user-a"), step(0)).await.expect("appends");
            faults.script(Rule::on(operation).internal_error());
            streams.append(&name("user-a"), step(1)).await.expect("the append has its answer");
            faults.calm();
            streams.append(&name("user-a"), step(2)).await.expect("appends");
            let client = bare_sdk::client(engine.http_client());
            let left: Vec<_> =
                history(&client).await.into_iter().filter(|(_, ttl, _)| ttl.is_none()).map(|(version, ..)| version).collect();
            assert_eq!(left, [3], "{layout} {operation}");
        }
    }
}
