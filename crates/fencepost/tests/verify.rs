//! Looking after a log: what a restore of half a transaction leaves behind is found and named, and sweeping takes only what no commit names.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::{Append, Engine, Error, Event, EventLogExt, Query, ReadOptions, Store};
use support::{Ground, open};

struct Damaged {
    store: Store,
    client: aws_sdk_dynamodb::Client,
}

impl Damaged {
    /// A log with a small commit on two tags, one on a single tag, and a large one with chunks.
    async fn new(feed: &str) -> Damaged {
        let engine = Engine::memory().expect("engine");
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("local"))
            .credentials_provider(Credentials::from_keys("a", "b", None))
            .http_client(engine.http_client());
        let client = aws_sdk_dynamodb::Client::from_conf(config.build());
        let store = open(Ground::Engine(engine).builder(&format!("feed={feed}"))).await;
        let log = store.log().expect("log");
        let event = |body: String, tags: &[&str]| tags.iter().fold(Event::new("T", body).expect("event"), |e, t| e.tag(t).expect("tag"));
        log.append(Append::new([event("{}".into(), &["a", "b"])])).await.expect("append");
        log.append(Append::new([event("{}".into(), &["a"])])).await.expect("append");
        log.append(Append::new((0..300).map(|_| event("z".repeat(2_000), &["large"])))).await.expect("append");
        log.append(Append::new([event("{}".into(), &["a"])])).await.expect("append");
        Damaged { store, client }
    }

    async fn keys(&self, prefix: &str) -> Vec<(String, String)> {
        let page = self.client.scan().table_name("fencepost").send().await.expect("scan");
        let key =
            |item: &HashMap<String, AttributeValue>| (item["p"].as_s().expect("hash").clone(), item["v"].as_n().expect("range").clone());
        page.items().iter().map(key).filter(|(hash, _)| hash.starts_with(prefix)).collect()
    }

    async fn delete(&self, hash: &str, range: &str) {
        let (hash, range) = (AttributeValue::S(hash.into()), AttributeValue::N(range.into()));
        self.client.delete_item().table_name("fencepost").key("p", hash).key("v", range).send().await.expect("delete");
    }

    async fn findings(&self) -> Vec<String> {
        let verified = self.store.verify(&|_| ()).await.expect("verify");
        verified.findings.into_iter().map(|f| format!("{}: {}", f.item, f.problem)).collect()
    }
}

#[tokio::test]
async fn a_whole_log_has_no_findings_and_its_counts_are_right() {
    for feed in ["lanes-1", "lanes-4", "streams"] {
        let log = Damaged::new(feed).await;
        let verified = log.store.verify(&|_| ()).await.expect("verify");
        assert_eq!((verified.findings.len(), verified.commits, verified.events), (0, 4, 303), "{feed}: {verified:?}");
    }
}

#[tokio::test]
async fn a_commit_that_was_restored_in_half_is_named() {
    for feed in ["lanes-1", "streams"] {
        let log = Damaged::new(feed).await;
        log.delete("t/main/b", "1").await;
        let findings = log.findings().await;
        assert!(findings.iter().any(|f| f.starts_with("t/main/b @1: a slot of commit")), "{feed}: {findings:?}");
    }
}

#[tokio::test]
async fn a_gap_and_a_missing_home_are_named() {
    let log = Damaged::new("lanes-1").await;
    log.delete("t/main/a", "2").await;
    let findings = log.findings().await;
    assert!(findings.iter().any(|f| f == "t/main/a: versions are missing: 2"), "{findings:?}");
    let log = Damaged::new("lanes-1").await;
    log.delete("l/main/0", "1").await;
    let findings = log.findings().await;
    assert!(findings.iter().any(|f| f.contains("the home of commit") && f.contains("is missing")), "{findings:?}");
}

#[tokio::test]
async fn a_missing_chunk_is_named_and_its_events_are_an_error_not_a_hole() {
    let log = Damaged::new("lanes-1").await;
    let (hash, range) = log.keys("c/").await.into_iter().find(|(_, range)| range != "0").expect("a chunk");
    log.delete(&hash, &range).await;
    let findings = log.findings().await;
    assert!(findings.iter().any(|f| f.starts_with(&hash) && f.contains("is missing")), "{findings:?}");
    let query = Query::tag("large").expect("query");
    let read = log.store.log().expect("log").read_all(&query, ReadOptions::default()).await;
    let Err(Error::Corrupt(corrupt)) = &read else { panic!("{read:?}") };
    assert!(corrupt.what.contains(&hash) && !corrupt.what.contains("zzz"), "{corrupt:?}");
}

#[tokio::test]
async fn sweeping_takes_what_no_commit_sealed_and_nothing_else() {
    let log = Damaged::new("lanes-1").await;
    let before = log.keys("c/").await.len();
    let item = |range: u64, stamp: &str| {
        HashMap::from([
            ("p".to_owned(), AttributeValue::S("c/main/00000000000070008000000000000001".into())),
            ("v".to_owned(), AttributeValue::N(range.to_string())),
            ("s".to_owned(), AttributeValue::N(stamp.into())),
        ])
    };
    for range in 1..=3 {
        log.client.put_item().table_name("fencepost").set_item(Some(item(range, "1000000"))).send().await.expect("put");
    }
    let young = log.store.collect_garbage(Duration::from_secs(u64::from(u32::MAX))).await.expect("gc");
    assert_eq!((young.sets, young.chunks, young.seen), (0, 0, 2));
    let swept = log.store.collect_garbage(Duration::from_secs(3600)).await.expect("gc");
    assert_eq!((swept.sets, swept.chunks), (1, 3));
    // The dead seal stays, so that a late commit cannot name the set.
    assert_eq!(log.keys("c/").await.len(), before + 1);
    assert!(log.findings().await.is_empty());
    assert_eq!(log.store.collect_garbage(Duration::ZERO).await.expect("gc").sets, 0);
}
