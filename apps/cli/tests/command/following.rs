//! Consumers, parked events and projections of an application, looked after from the shell.

use std::time::Duration;

use fencepost::{Ended, Projection};
use serde_json::{Value, json};

use crate::FileStore;

/// An application runs for a moment: a consumer that fails on the third event, and a projection that counts.
fn application(store: &FileStore) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let open = fencepost::open(&store.url).await.expect("opens");
        let consumer =
            open.consumer("mailer").expect("a name").save_every(1, Duration::from_millis(5)).retry(1, Duration::ZERO, Duration::ZERO);
        let consumer = consumer.lease(Duration::from_millis(200));
        let handler = |event: fencepost::Handed| async move { if &event.data[..] == b"3" { Err("no threes") } else { Ok(()) } };
        let done = async {
            while consumer.parked().await.expect("lists").len() < 3 {
                tokio::task::yield_now().await;
            }
        };
        let ended = consumer.run_until(handler, done).await.expect("runs");
        assert!(matches!(ended, Ended::Stopped), "{ended:?}");
        let count = Projection::new(
            "count",
            1,
            || 0u64,
            |count: &mut u64, _: &_| {
                *count += 1;
                Ok::<_, String>(())
            },
        );
        let projections = open.projections().expect("a feed");
        let counted = async {
            while projections.get::<u64>("count").await.expect("reads").is_none() {
                tokio::task::yield_now().await;
            }
        };
        let _ = projections.run_until(&count.expect("a name"), counted).await.expect("runs");
    });
}

fn json(store: &FileStore, args: &[&str]) -> Value {
    let ran = store.run(&[args, &["-o", "json"]].concat()).ok();
    serde_json::from_str(&ran.stdout()).expect("one JSON document")
}

/// One that has done all that is in the index is told what the index lacks: a dead indexer shows nowhere else.
#[test]
fn a_consumer_is_shown_to_lag_behind_what_nobody_has_indexed() {
    let mut store = FileStore::new();
    store.url += "?feed=streams";
    let append = |data: std::ops::RangeInclusive<u32>| {
        let events: String = data.map(|n| format!("{{\"type\":\"T\",\"data\":{n},\"tags\":[\"a\"]}}\n")).collect();
        store.run_with(&["append"], &events).ok();
    };
    append(1..=5);
    store.run(&["index", "run", "--once"]).ok();
    application(&store);
    let shown = json(&store, &["consumers", "show", "mailer"]);
    assert_eq!((&shown["lag"]["more"], &shown["unindexed_since"]), (&json!(false), &Value::Null));
    append(6..=6);
    let shown = json(&store, &["consumers", "show", "mailer"]);
    assert_eq!((&shown["lag"]["events"], &shown["lag"]["more"]), (&json!(0), &json!(true)), "{shown}");
    assert!(shown["unindexed_since"].is_string(), "{shown}");
    let told = store.run(&["consumers", "show", "mailer", "-o", "table"]).ok().stdout();
    assert!(told.contains("more than 0 events behind") && told.contains("the feed's index lacks what was written since 20"), "{told}");
    store.run(&["index", "run", "--once"]).ok();
    let shown = json(&store, &["consumers", "show", "mailer"]);
    assert_eq!((&shown["lag"]["events"], &shown["lag"]["more"], &shown["unindexed_since"]), (&json!(1), &json!(false), &Value::Null));
}

#[test]
fn consumers_are_listed_shown_paused_resumed_and_rewound() {
    let store = FileStore::with_events(5);
    assert_eq!(json(&store, &["consumers", "ls"]), json!([]));
    application(&store);
    let listed = json(&store, &["consumers", "ls"]);
    assert_eq!((&listed[0]["name"], &listed[0]["parked"], listed.as_array().map(Vec::len)), (&json!("mailer"), &json!(3), Some(1)));
    let shown = json(&store, &["consumers", "show", "mailer"]);
    assert_eq!((&shown["lag"]["events"], &shown["partitions"][0]["position"]), (&json!(0), &json!("5")));
    assert_eq!(json(&store, &["consumers", "pause", "mailer"])["paused"], true);
    assert_eq!(json(&store, &["consumers", "show", "mailer"])["partitions"][0]["paused"], true);
    assert_eq!(json(&store, &["consumers", "resume", "mailer"])["paused"], false);
    assert_eq!(json(&store, &["consumers", "rewind", "mailer", "--to", "start"])["partitions"][0]["checkpoint"], Value::Null);
    let shown = json(&store, &["consumers", "show", "mailer", "--count-to", "3"]);
    assert_eq!((&shown["lag"]["events"], &shown["lag"]["more"]), (&json!(3), &json!(true)));
    assert_eq!(store.run(&["consumers", "show", "nobody"]).fails(4).error()["code"], "not-found");
    store.run(&["consumers", "rewind", "mailer"]).fails(2);
}

#[test]
fn parked_events_are_listed_released_and_skipped() {
    let store = FileStore::with_events(5);
    application(&store);
    let listed = json(&store, &["parked", "ls", "mailer"]);
    let told: Vec<_> = listed.as_array().expect("a list").iter().map(|one| (one["position"].as_str(), one["attempts"].as_u64())).collect();
    assert_eq!(told, [(Some("3"), Some(1)), (Some("4"), Some(0)), (Some("5"), Some(0))]);
    assert_eq!(listed[0]["reason"], "no threes");
    let first = listed[0]["number"].to_string();
    assert_eq!(json(&store, &["parked", "retry", "mailer", "--all"])["released"], json!([listed[0]["number"]]));
    assert_eq!(json(&store, &["parked", "ls", "mailer"])[0]["released"], true);
    assert_eq!(json(&store, &["parked", "skip", "mailer", &first])["skipped"], json!([listed[0]["number"]]));
    assert_eq!(json(&store, &["parked", "ls", "mailer"]).as_array().map(Vec::len), Some(2));
    assert_eq!(store.run(&["parked", "skip", "mailer", &first]).fails(4).error()["code"], "not-found");
    store.run(&["parked", "retry", "mailer"]).fails(2);
}

#[test]
fn projections_are_listed_reset_deleted_and_swept() {
    let store = FileStore::with_events(5);
    application(&store);
    let listed = json(&store, &["projections", "ls"]);
    assert_eq!((&listed[0]["name"], &listed[0]["live"], &listed[0]["position"]), (&json!("count"), &json!(true), &json!("5")));
    assert_eq!(json(&store, &["projections", "show", "count"]), listed);
    assert_eq!(json(&store, &["projections", "reset", "count", "1"])["reset"], true);
    assert_eq!(json(&store, &["projections", "show", "count"])[0]["position"], Value::Null);
    assert_eq!(store.run(&["projections", "reset", "count", "2"]).fails(4).error()["code"], "not-found");
    let folder = tempfile::tempdir().expect("a folder");
    let orphan = folder.path().join("main/count/1");
    std::fs::create_dir_all(&orphan).expect("made");
    std::fs::write(orphan.join("7-abc.zst"), "left behind").expect("written");
    let url = format!("file://{}", folder.path().display());
    assert_eq!(json(&store, &["projections", "gc", "--objects", &url])["young"], 1);
    assert_eq!(json(&store, &["projections", "gc", "--objects", &url, "--older-than", "0s"])["deleted"], 1);
    assert_eq!(json(&store, &["projections", "delete", "count", "1"])["deleted"], true);
    assert_eq!(json(&store, &["projections", "ls"]), json!([]));
}
