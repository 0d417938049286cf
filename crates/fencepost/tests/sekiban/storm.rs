//! The oracle where most commits are large: staged, published at once, put into rows by whoever comes, under faults, an index that lags and a writer of
//! Sekiban's kind beside; and readers of all events meanwhile, each of which sees all of a commit or nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fencepost::sekiban::Settings;

use crate::*;

/// Four tags are in the oracle's queries and events: with the record and the list, six items. More is large.
fn most_are_large() -> Settings {
    Settings::from_json(r#"{ "DynamoDb": { "MaxTransactionItems": 6, "MaxBatchWriteItems": 2, "QueryPageSize": 7 } }"#).expect("settings")
}

/// What each read of all events saw.
type Seen = Arc<Mutex<Vec<(&'static str, Vec<Recorded>)>>>;

async fn read_on(store: Store, seen: Seen, stop: Arc<AtomicBool>) {
    let (sekiban, log) = (store.sekiban().expect("sekiban"), store.log().expect("log"));
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) || rounds < 3 {
        let (read, events) = match rounds % 3 {
            0 => ("all_since", sekiban.all_since(None, None).try_collect().await.expect("all")),
            1 => ("backwards", log.read_all(&Query::all(), ReadOptions::default().eventual().backwards()).await.expect("read")),
            _ => ("feed", fed(&store).await),
        };
        seen.lock().expect("a lock").push((read, events));
        rounds += 1;
        Env::system().sleep(Duration::from_millis(2)).await;
    }
}

/// As Sekiban does: an event and its row, and no head. On a tag of its own, since nothing fences it.
async fn write_as_sekiban(client: Client, stop: Arc<AtomicBool>) {
    let text = |text: String| AttributeValue::S(text);
    while !stop.load(Ordering::Relaxed) {
        let (id, at) = (Env::system().new_id(), SortableId::threshold(Env::system().now()));
        let event = Item::from([
            ("pk".into(), text(format!("SERVICE#default#EVENT#{id}"))),
            ("sk".into(), text(format!("EVENT#{id}"))),
            ("serviceId".into(), text("default".into())),
            ("gsi1pk".into(), text("SERVICE#default#ALL_EVENTS".into())),
            ("eventId".into(), text(id.to_string())),
            ("sortableUniqueId".into(), text(at.to_string())),
            ("eventType".into(), text("T".into())),
            ("payload".into(), text("{}".into())),
            ("tags".into(), AttributeValue::L(vec![text("sekiban:1".into())])),
        ]);
        let row = Item::from([
            ("pk".into(), text("SERVICE#default#TAG#sekiban:1".into())),
            ("sk".into(), text(format!("{at}#{id}"))),
            ("tagString".into(), text("sekiban:1".into())),
            ("tagGroup".into(), text("default|sekiban".into())),
            ("eventId".into(), text(id.to_string())),
        ]);
        for (name, item) in [("SekibanEvents", event), ("SekibanTags", row)] {
            client.put_item().table_name(name).set_item(Some(item)).send().await.expect("put");
        }
        Env::system().sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_and_readers_see_whole_commits_where_most_are_large() {
    for seed in 1..=2 {
        let engines = [Engine::memory().expect("engine").keep_tokens(), Engine::memory().expect("engine")];
        let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), seed);
        let between = Faults::new(lag.http_client(), seed);
        let builder = || {
            let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").create(true);
            builder.settings(&most_are_large()).expect("settings")
        };
        let mut handles: Vec<Arc<dyn fencepost::EventLog>> = Vec::new();
        for _ in 0..2 {
            let store = open(builder().timeouts(Timeouts { attempts: 12, ..QUICK }).http_client(between.http_client())).await;
            handles.push(store.log().expect("log"));
        }
        let (seen, stop) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let mut beside = Vec::new();
        for _ in 0..2 {
            let store = open(builder().http_client(lag.http_client())).await;
            beside.push(tokio::spawn(read_on(store, seen.clone(), stop.clone())));
        }
        let client = bare_sdk::client(lag.http_client());
        beside.push(tokio::spawn(write_as_sekiban(client.clone(), stop.clone())));
        beside.push(tokio::spawn({
            let (lag, stop) = (lag.clone(), stop.clone());
            async move {
                // Slower than they are written.
                while !stop.load(Ordering::Relaxed) {
                    lag.apply_any().await;
                    Env::system().sleep(Duration::from_millis(1)).await;
                }
            }
        }));
        between.random(Chances {
            throttle: 0.02,
            lose_request: 0.02,
            lose_response: 0.04,
            deliver_twice: 0.03,
            conflict: 0.03,
            hide_reasons: 0.1,
            ..Chances::default()
        });
        let options = Oracle { seed, writers: 4, rounds: 6, all: false, types_only: false, ..Oracle::default() };
        let report = oracle::run(&handles, options).await;
        stop.store(true, Ordering::Relaxed);
        between.calm();
        for task in beside {
            task.await.expect("joins");
        }
        let report = report.expect("holds");
        assert!(report.conditional > 5, "{report:?}");
        lag.apply_all().await;
        let verified = open(builder().http_client(lag.http_client())).await.repair(&|_| ()).await.expect("verify");
        assert!(verified.findings.iter().all(|finding| finding.problem.contains("it was finished")), "{verified:?}");
        // Which events came together.
        let mut commits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut items = client.scan().table_name("SekibanEvents").consistent_read(true).into_paginator().items().send();
        while let Some(item) = items.next().await.transpose().expect("scan") {
            if let (Some(commit), Some(id)) = (item.get("fencepostCommit"), item.get("eventId")) {
                commits.entry(commit.as_s().expect("text").clone()).or_default().insert(id.as_s().expect("text").clone());
            }
        }
        let large = commits.values().filter(|events| events.len() > 1).count();
        assert!(large >= 5, "{large} commits of several events were staged: {report:?}");
        let seen = std::mem::take(&mut *seen.lock().expect("a lock"));
        let mut between = 0;
        for (read, events) in &seen {
            let ids: BTreeSet<String> = events.iter().map(|event| event.id.to_string()).collect();
            assert_eq!(ids.len(), events.len(), "{seed} {read}: each once");
            for (commit, all) in &commits {
                let met = all.intersection(&ids).count();
                assert!(met == 0 || met == all.len(), "{seed} {read}: {met} of {} of {commit}", all.len());
            }
            between += usize::from(!ids.is_empty() && commits.values().any(|all| all.is_disjoint(&ids)));
        }
        assert!(between > 0, "some were read while others were to come, of {}", seen.len());
    }
}
