//! event-store-adapter-rs 3.0.6 and 5.2.0, as they are published, and this store on the same tables.
//!
//! Over 600 lines because each crate wants its own aggregate, events and error types written out, and every case uses them.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::{DateTime, Utc};
use esa_v3::types::EventStore as _;
use fencepost::moving::Copy;
use fencepost::testing::{Faults, Meter, Rule};
use fencepost::{Engine, Env, Error, Event, Expect, IndexOptions, LoadOptions, Metadata, Snapshot, Step, Store, StreamName, Timeouts, Units};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An aggregate's id, to both generations.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Id(String);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user-{}", self.0)
    }
}
impl esa_v3::types::AggregateId for Id {
    fn type_name(&self) -> String {
        "user".into()
    }
    fn value(&self) -> String {
        self.0.clone()
    }
}
impl esa_v5::AggregateId for Id {
    fn type_name(&self) -> String {
        "user".into()
    }
    fn value(&self) -> String {
        self.0.clone()
    }
}

type TheirsV5 = esa_v5::EventStoreForDynamoDB<Id, Value, Value>;
type TheirsV3 = esa_v3::EventStoreForDynamoDB<Id, Value, Value>;
type V5Event = esa_v5::EventEnvelope<Id, Value>;
type V3Event = esa_v3::event_envelope::EventEnvelope<Id, Value>;

/// Tables of their own on the embedded engine, or on the endpoint that is given.
#[derive(Clone)]
struct Ground {
    engine: Option<Engine>,
    endpoint: String,
    table: String,
    /// Counts what the peer consumes.
    meter: Option<Meter>,
}

impl Ground {
    fn fresh() -> Ground {
        let table = format!("i{}", Env::system().new_id().simple());
        match std::env::var("FENCEPOST_TEST_ENDPOINT") {
            Ok(endpoint) => Ground { engine: None, endpoint: endpoint.trim_end_matches('/').into(), table, meter: None },
            Err(_) => Ground { engine: Some(Engine::memory().expect("an engine")), endpoint: String::new(), table, meter: None },
        }
    }

    /// An engine of its own, and each side's requests counted: the peer's by a meter, ours as the store tells them.
    fn metered() -> (Ground, Meter) {
        let engine = Engine::memory().expect("an engine");
        let meter = Meter::new(engine.http_client());
        let ground = Ground { engine: Some(engine), endpoint: String::new(), table: "theirs".into(), meter: Some(meter.clone()) };
        (ground, meter)
    }

    fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new("any", "any", None, None, "test"))
            .region(Region::new("us-east-1"))
            .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new());
        let config = match (&self.engine, &self.meter) {
            (Some(_), Some(meter)) => config.http_client(meter.http_client()),
            (Some(engine), None) => config.http_client(engine.http_client()),
            (None, _) => config.endpoint_url(&self.endpoint).http_client(aws_smithy_http_client::Builder::new().build_http()),
        };
        Client::from_conf(config.build())
    }

    async fn open(&self, parameters: &str) -> Store {
        let builder = match &self.engine {
            Some(engine) => {
                Store::builder(&format!("memory:?table={}&layout={parameters}", self.table)).expect("a URL").http_client(engine.http_client())
            }
            None => Store::builder(&format!("{}/{}?layout={parameters}", self.endpoint, self.table)).expect("a URL").create(true),
        };
        builder.open().await.expect("opens")
    }

    async fn theirs_v5(&self, retention: esa_v5::RetentionSettings) -> TheirsV5 {
        let options = esa_v5::DynamoDbOptions { retention, ..esa_v5::DynamoDbOptions::default() };
        TheirsV5::open(self.client(), self.v5_tables(), options).await.expect("they open")
    }
    fn v5_tables(&self) -> esa_v5::DynamoDbTables {
        esa_v5::DynamoDbTables {
            journal_table_name: format!("{}-journal", self.table),
            snapshot_table_name: format!("{}-snapshot", self.table),
            head_table_name: format!("{}-head", self.table),
            snapshot_history_index_name: "snapshot-history-index".into(),
        }
    }

    fn theirs_v3(&self) -> TheirsV3 {
        TheirsV3::new(
            self.client(),
            format!("{}-journal", self.table),
            "journal-aid-index".into(),
            format!("{}-snapshot", self.table),
            "snapshot-aid-index".into(),
            64,
        )
    }

    async fn snapshots(&self) -> Vec<HashMap<String, AttributeValue>> {
        let scan = self.client().scan().table_name(format!("{}-snapshot", self.table)).consistent_read(true);
        scan.send().await.expect("scans").items.unwrap_or_default()
    }
}

fn name() -> StreamName {
    StreamName::new("user-a").expect("a name")
}
fn id() -> Id {
    Id("a".into())
}
fn event(n: u64) -> Event {
    Event::json("Counted", &json!({ "n": n })).expect("an event")
}
fn snapshot(n: u64) -> Snapshot {
    Snapshot::new("snapshot", json!({ "count": n }).to_string())
}
fn at(n: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(1_767_225_600_123_456_789 + i64::try_from(n).expect("small"))
}
fn v5_event(n: u64) -> V5Event {
    V5Event::new(id(), n, at(n), json!({ "n": n })).with_manifest("Counted")
}
fn v3_event(n: usize) -> V3Event {
    V3Event::new(id(), n, at(n as u64), json!({ "n": n })).with_manifest("Counted")
}

/// The stream holds the numbers 1 to n, to us.
async fn ours_hold(store: &Store, n: u64) {
    let loaded = store.streams().load(&name(), LoadOptions::default()).await.expect("loads");
    let numbers: Vec<u64> = loaded.events.iter().map(|event| event.json::<Value>().expect("JSON")["n"].as_u64().expect("n")).collect();
    assert_eq!((numbers, loaded.version), ((1..=n).collect(), n));
    assert!(loaded.events.iter().all(|event| event.event_type.as_str() == "Counted"));
}

async fn v5_hold(theirs: &TheirsV5, n: u64) {
    let events = theirs.get_events_by_id_since_seq_nr(&id(), 1).await.expect("they read");
    assert_eq!(events.iter().map(|event| event.payload()["n"].as_u64().expect("n")).collect::<Vec<_>>(), (1..=n).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.manifest() == "Counted"));
    assert_eq!(theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a head").head_seq_nr(), n);
}

async fn v3_hold(theirs: &TheirsV3, n: u64) {
    let events = theirs.get_events_by_id_since_seq_nr(&id(), 1).await.expect("they read");
    assert_eq!(events.iter().map(|event| event.payload()["n"].as_u64().expect("n")).collect::<Vec<_>>(), (1..=n).collect::<Vec<_>>());
}

#[tokio::test]
async fn v5_each_reads_and_appends_to_what_the_other_wrote() {
    for strict in ["", "&strict=true"] {
        let ground = Ground::fresh();
        let ours = ground.open(&format!("event-store-adapter-v5{strict}")).await;
        let theirs = ground.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
        let streams = ours.streams();
        theirs.persist_event(v5_event(1)).await.expect("they create");
        ours_hold(&ours, 1).await;
        let recorded = &streams.load(&name(), LoadOptions::default()).await.expect("loads").events[0];
        assert_eq!(i128::from(at(1).timestamp_nanos_opt().expect("in range")), recorded.recorded_at.as_nanosecond());
        streams.append(&name(), Step::new([event(2)]).expect(Expect::Version(1)).snapshot(snapshot(2))).await.expect("we append");
        v5_hold(&theirs, 2).await;
        let read = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a head");
        let seen = read.snapshot().expect("our snapshot");
        assert_eq!((seen.seq_nr(), seen.aggregate()), (2, &json!({ "count": 2 })));
        theirs.persist_event_and_snapshot(v5_event(3), esa_v5::SnapshotEnvelope::new(json!({ "count": 3 }), 3)).await.expect("they append");
        let loaded = streams.load(&name(), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        assert_eq!((loaded.snapshots[0].version, loaded.events.len(), loaded.version), (3, 0, 3));
        let mut next = 4;
        if strict.is_empty() {
            // Several events, metadata and an id of the caller's: they read and append on.
            let meta = Metadata { user: Some("ada".into()), ..Metadata::default() };
            let step = Step::new([event(4).meta(meta), event(5), event(6)]).commit(fencepost::CommitId::of_key("once"));
            streams.append(&name(), step).await.expect("we append");
            next = 7;
        }
        theirs.persist_event(v5_event(next)).await.expect("they append");
        v5_hold(&theirs, next).await;
        ours_hold(&ours, next).await;
        // Stale on either side.
        let stale = streams.append(&name(), Step::new([event(9)]).expect(Expect::Version(next - 1))).await;
        assert!(stale.is_err_and(|error| error.is_conflict()));
        assert!(matches!(theirs.persist_event(v5_event(next)).await, Err(esa_v5::EventStoreError::OptimisticLock { .. })));
        assert!(matches!(theirs.persist_event(v5_event(next + 5)).await, Err(esa_v5::EventStoreError::ContractViolation { .. })));
        assert!(ours.verify(&|_| ()).await.expect("verifies").findings.is_empty());
        // All of it, theirs and ours, is in the feed.
        let index = ours.index().expect("an index");
        index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("runs");
        let verified = index.verify(&|_| ()).await.expect("verifies");
        assert_eq!((verified.findings.len(), verified.commits == verified.indexed), (0, true), "{verified:?}");
    }
}

#[tokio::test]
async fn v3_each_reads_and_appends_to_what_the_other_wrote() {
    for strict in ["", "&strict=true"] {
        let ground = Ground::fresh();
        let ours = ground.open(&format!("event-store-adapter-v3{strict}")).await;
        let mut theirs = ground.theirs_v3();
        let streams = ours.streams();
        theirs.persist_event_and_snapshot(v3_event(1), json!({ "count": 1 }), 0).await.expect("they create");
        ours_hold(&ours, 1).await;
        streams.append(&name(), Step::new([event(2)]).expect(Expect::Version(1)).snapshot(snapshot(2))).await.expect("we append");
        let seen = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("our snapshot");
        assert_eq!((seen.seq_nr(), seen.version(), seen.aggregate()), (2, 2, &json!({ "count": 2 })));
        theirs.persist_event(v3_event(3), 2).await.expect("they append");
        let loaded = streams.load(&name(), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
        assert_eq!((loaded.snapshots[0].version, loaded.events.len(), loaded.version), (2, 1, 3));
        streams.append(&name(), Step::new([event(4)]).expect(Expect::Token(loaded.token))).await.expect("we append");
        let mut next = 5;
        if strict.is_empty() {
            streams.append(&name(), Step::new([event(5), event(6)])).await.expect("we append");
            next = 7;
        }
        let version = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a snapshot").version();
        theirs.persist_event_and_snapshot(v3_event(next), json!({ "count": next }), version).await.expect("they append");
        v3_hold(&theirs, next as u64).await;
        ours_hold(&ours, next as u64).await;
        let stale = streams.append(&name(), Step::new([event(9)]).expect(Expect::Version(next as u64 - 1))).await;
        assert!(stale.is_err_and(|error| error.is_conflict()));
        let stale = theirs.persist_event(v3_event(next + 1), version).await;
        assert!(matches!(stale, Err(esa_v3::types::EventStoreWriteError::OptimisticLockError(_))), "{stale:?}");
    }
    // A stream that we began.
    let ground = Ground::fresh();
    let (ours, mut theirs) = (ground.open("event-store-adapter-v3").await, ground.theirs_v3());
    ours.streams().append(&name(), Step::new([event(1), event(2)]).expect(Expect::None).snapshot(snapshot(2))).await.expect("we create");
    let seen = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("our snapshot");
    theirs.persist_event(v3_event(3), seen.version()).await.expect("they append");
    v3_hold(&theirs, 3).await;
    ours_hold(&ours, 3).await;
}

/// Eight of theirs and eight of ours race for each version of one aggregate: exactly one wins each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_who_race_for_a_version_one_wins() {
    let ground = Ground::fresh();
    for version in 0..8u64 {
        let mut racers = Vec::new();
        for racer in 0..16 {
            let ground = ground.clone();
            racers.push(tokio::spawn(async move {
                if racer % 2 == 0 {
                    let ours = ground.open("event-store-adapter-v5").await;
                    let outcome = ours.streams().append(&name(), Step::new([event(version + 1)]).expect(Expect::Version(version))).await;
                    assert!(matches!(&outcome, Ok(_) | Err(Error::Conflict(_))), "{outcome:?}");
                    outcome.is_ok()
                } else {
                    // The tables are made by us: they wait for them to be there.
                    let _ = ground.open("event-store-adapter-v5").await;
                    let theirs = ground.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
                    theirs.persist_event(v5_event(version + 1)).await.is_ok()
                }
            }));
        }
        let mut won = 0;
        for racer in racers {
            won += usize::from(racer.await.expect("no panic"));
        }
        // Theirs take a transaction that met another for a lost one, and give up; ours do not, so that somebody wins.
        assert_eq!(won, 1, "version {version}");
    }
    ours_hold(&ground.open("event-store-adapter-v5").await, 8).await;

    let ground = Ground::fresh();
    let ours = ground.open("event-store-adapter-v3").await;
    ours.streams().append(&name(), Step::new([event(1)]).snapshot(snapshot(1))).await.expect("creates");
    for version in 1..8usize {
        let racers: Vec<_> = (0..16)
            .map(|racer| {
                let ground = ground.clone();
                tokio::spawn(async move {
                    if racer % 2 == 0 {
                        let ours = ground.open("event-store-adapter-v3").await;
                        let step = Step::new([event(version as u64 + 1)]).expect(Expect::Version(version as u64));
                        ours.streams().append(&name(), step).await.is_ok()
                    } else {
                        ground.theirs_v3().persist_event(v3_event(version + 1), version).await.is_ok()
                    }
                })
            })
            .collect();
        let mut won = 0;
        for racer in racers {
            won += usize::from(racer.await.expect("no panic"));
        }
        assert_eq!(won, 1, "version {version}");
    }
    ours_hold(&ours, 8).await;
}

/// Histories and marks of one side are seen and kept to by the other.
#[tokio::test]
async fn retention_of_one_side_is_the_others_too() {
    let kept = async |ground: &Ground| {
        let number = |item: &HashMap<String, AttributeValue>, name: &str| item.get(name).and_then(|v| v.as_n().ok()?.parse::<i64>().ok());
        let of_past = |item: &HashMap<String, AttributeValue>| match &item["skey"] {
            AttributeValue::N(key) => key != "0",
            AttributeValue::S(key) => !key.ends_with("-0"),
            _ => false,
        };
        let mut all: Vec<_> = ground.snapshots().await.into_iter().filter(of_past).map(|item| (number(&item, "seq_nr"), number(&item, "ttl").filter(|ttl| *ttl > 0).is_some())).collect();
        all.sort_unstable();
        all.into_iter().map(|(version, marked)| (version.expect("a version"), marked)).collect::<Vec<_>>()
    };
    let theirs_at = |n: u64| (v5_event(n), esa_v5::SnapshotEnvelope::new(json!({ "count": n }), n));

    let ground = Ground::fresh();
    let ours = ground.open("event-store-adapter-v5&keep=2").await.streams();
    let theirs = ground.theirs_v5(esa_v5::RetentionSettings::keep_latest(2)).await;
    for n in (1..=6).step_by(2) {
        ours.append(&name(), Step::new([event(n)]).snapshot(snapshot(n))).await.expect("we append");
        let (event, state) = theirs_at(n + 1);
        theirs.persist_event_and_snapshot(event, state).await.expect("they append");
    }
    assert_eq!(kept(&ground).await, [(5, false), (6, false)]);

    let ground = Ground::fresh();
    let ours = ground.open("event-store-adapter-v5&keep=2&expire=3600").await.streams();
    let mode = esa_v5::RetentionMode::Ttl { grace_seconds: 3600 };
    let theirs = ground.theirs_v5(esa_v5::RetentionSettings::keep_latest(2).with_mode(mode)).await;
    for n in (1..=6).step_by(2) {
        ours.append(&name(), Step::new([event(n)]).snapshot(snapshot(n))).await.expect("we append");
        let (event, state) = theirs_at(n + 1);
        theirs.persist_event_and_snapshot(event, state).await.expect("they append");
    }
    assert_eq!(kept(&ground).await, [(1, true), (2, true), (3, true), (4, true), (5, false), (6, false)]);

    let ground = Ground::fresh();
    let ours = ground.open("event-store-adapter-v3&keep=2").await.streams();
    let mut theirs = ground.theirs_v3().with_keep_snapshot_count(Some(2)).expect("two");
    for n in (1..=6usize).step_by(2) {
        ours.append(&name(), Step::new([event(n as u64)]).snapshot(snapshot(n as u64))).await.expect("we append");
        theirs.persist_event_and_snapshot(v3_event(n + 1), json!({ "count": n + 1 }), n).await.expect("they append");
    }
    assert_eq!(kept(&ground).await, [(5, false), (6, false)]);

    let ground = Ground::fresh();
    let ours = ground.open("event-store-adapter-v3&keep=2&expire=3600").await.streams();
    let theirs = ground.theirs_v3().with_keep_snapshot_count(Some(2)).expect("two");
    let mut theirs = theirs.with_delete_ttl(Some(chrono::Duration::hours(1)));
    for n in (1..=6usize).step_by(2) {
        ours.append(&name(), Step::new([event(n as u64)]).snapshot(snapshot(n as u64))).await.expect("we append");
        theirs.persist_event_and_snapshot(v3_event(n + 1), json!({ "count": n + 1 }), n).await.expect("they append");
    }
    assert_eq!(kept(&ground).await, [(1, true), (2, true), (3, true), (4, true), (5, false), (6, false)], "v3");
}

/// Theirs and ours open tables without a configuration at once: one is written, and all of them take it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_who_open_at_once_one_writes_the_configuration() {
    for _ in 0..4 {
        let ground = Ground::fresh();
        let _ = ground.open("event-store-adapter-v5").await;
        let (client, tables) = (ground.client(), ground.v5_tables());
        let config = || AttributeValue::S("__config__".into());
        for (table, range) in
            [(&tables.journal_table_name, Some("seq_nr")), (&tables.snapshot_table_name, Some("skey")), (&tables.head_table_name, None)]
        {
            let delete = client.delete_item().table_name(table).key("aid", config());
            let delete = range.into_iter().fold(delete, |delete, range| delete.key(range, AttributeValue::N("0".into())));
            delete.send().await.expect("deletes");
        }
        let openers: Vec<_> = (0..12)
            .map(|opener| {
                let ground = ground.clone();
                tokio::spawn(async move {
                    match opener % 2 {
                        0 => drop(ground.open("event-store-adapter-v5").await),
                        _ => drop(ground.theirs_v5(esa_v5::RetentionSettings::current_only()).await),
                    }
                })
            })
            .collect();
        for opener in openers {
            opener.await.expect("opens");
        }
        let mut stores = Vec::new();
        for table in [&tables.journal_table_name, &tables.snapshot_table_name, &tables.head_table_name] {
            let items = client.scan().table_name(table).consistent_read(true).send().await.expect("scans").items.unwrap_or_default();
            stores.extend(items.into_iter().filter(|item| item["aid"] == config()).map(|item| format!("{:?}", item["store_id"])));
        }
        stores.dedup();
        assert_eq!(stores.len(), 1, "{stores:?}");
    }
}

/// Their migration of tables that we wrote, and our copy of tables that they wrote, both into v5.
#[tokio::test]
async fn v3_becomes_v5_by_their_migration_and_by_our_copy() {
    let old = Ground::fresh();
    let new = Ground { table: format!("{}-new", old.table), ..old.clone() };
    let ours = old.open("event-store-adapter-v3&keep=2").await;
    ours.streams().append(&name(), Step::new([event(1), event(2)]).snapshot(snapshot(2))).await.expect("we append");
    ours.streams().append(&name(), Step::new([event(3)])).await.expect("we append");
    let migrated = new.open("event-store-adapter-v5").await;
    let legacy = esa_v5::LegacyDynamoDbTables {
        journal_table_name: format!("{}-journal", old.table),
        snapshot_table_name: format!("{}-snapshot", old.table),
    };
    let report = esa_v5::migrate_v3_dynamodb(&old.client(), &legacy, &new.v5_tables(), &HashMap::new()).await.expect("they migrate");
    assert_eq!((report.aggregates, report.events, report.snapshots, report.reasons.len()), (1, 3, 2, 0), "{report:?}");
    ours_hold(&migrated, 3).await;
    let before = ours.streams().load(&name(), LoadOptions::default()).await.expect("loads").events;
    let after = migrated.streams().load(&name(), LoadOptions::default()).await.expect("loads").events;
    let told = |events: &[fencepost::Recorded]| events.iter().map(|event| (event.id, event.recorded_at, event.data.clone())).collect::<Vec<_>>();
    assert_eq!(told(&before), told(&after), "ids and times stay");
    let theirs = new.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
    theirs.persist_event(v5_event(4)).await.expect("they append");
    migrated.streams().append(&name(), Step::new([event(5)])).await.expect("we append");
    v5_hold(&theirs, 5).await;

    let old = Ground::fresh();
    let mut theirs = old.theirs_v3();
    let source = old.open("event-store-adapter-v3").await;
    theirs.persist_event_and_snapshot(v3_event(1), json!({ "count": 1 }), 0).await.expect("they create");
    for n in 2..=4 {
        theirs.persist_event(v3_event(n), n - 1).await.expect("they append");
    }
    source.index().expect("an index").run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("runs");
    let new = Ground { table: format!("{}-new", old.table), ..old.clone() };
    let target = new.open("event-store-adapter-v5").await;
    let copy = Copy::new(&source, &target, "to-v5");
    assert_eq!(copy.run(&|_| ()).await.expect("copies").events, 4);
    assert!(copy.compare(&|_| ()).await.expect("compares").is_equal());
    let theirs = new.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
    v5_hold(&theirs, 4).await;
    theirs.persist_event(v5_event(5)).await.expect("they append");
    ours_hold(&target, 5).await;
    assert_eq!(*theirs.get_events_by_id_since_seq_nr(&id(), 2).await.expect("they read")[0].occurred_at(), at(2), "their times stay");
}

/// Our answer is lost and they append the same words: behind ours, which is found; or in its place, which is not taken for ours.
#[tokio::test]
async fn a_lost_answer_is_told_from_the_same_words_of_theirs() {
    for layout in ["event-store-adapter-v3", "event-store-adapter-v5"] {
        for landed in [true, false] {
            let ground = Ground { engine: Some(Engine::memory().expect("an engine")), endpoint: String::new(), ..Ground::fresh() };
            let faults = Faults::new(ground.engine.as_ref().expect("an engine").http_client(), 1);
            let url = format!("memory:?table={}&layout={layout}", ground.table);
            let quick = Timeouts { attempts: 2, ..Timeouts::default() };
            let opened = Store::builder(&url).expect("a URL").timeouts(quick).http_client(faults.http_client()).open();
            let ours = opened.await.expect("opens").streams();
            ours.append(&name(), Step::new([event(1)]).snapshot(snapshot(1))).await.expect("we create");
            let lost = Rule::on("TransactWriteItems");
            faults.script(if landed { lost.lose_response() } else { lost.lose_request() });
            let Err(Error::InDoubt(doubt)) = ours.append(&name(), Step::new([event(2)])).await else { panic!("{layout}: in doubt") };
            faults.calm();
            let at = if landed { 3 } else { 2 };
            if layout.ends_with("v5") {
                let theirs = ground.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
                let same = V5Event::new(id(), at, tick(at), json!({ "n": 2 })).with_manifest("Counted");
                theirs.persist_event(same).await.expect("they append");
            } else {
                let number = usize::try_from(at).expect("small");
                let same = V3Event::new(id(), number, tick(at), json!({ "n": 2 })).with_manifest("Counted");
                ground.theirs_v3().persist_event(same, number - 1).await.expect("they append");
            }
            for _ in 0..2 {
                let again = Step::new([event(2)]).again(doubt.commit, doubt.base.clone());
                let done = ours.append(&name(), again).await.expect("settled");
                assert_eq!(done.version, Some(if landed { 2 } else { 3 }), "{layout}, landed {landed}");
            }
            let loaded = ours.load(&name(), LoadOptions::default()).await.expect("loads");
            assert_eq!(loaded.version, 3, "{layout}, landed {landed}");
        }
    }
}

/// A history, and what lies in it.
#[derive(Debug, Clone, Copy)]
struct History {
    events: u64,
    /// Bytes of a body and of a snapshot.
    body: usize,
    state: usize,
    /// A snapshot with every event of this many, and in v3 with the first.
    every: u64,
    keep: Option<usize>,
}

impl History {
    fn body(&self, n: u64) -> Value {
        filled(json!({ "n": n, "text": "" }), self.body)
    }
    fn state(&self, n: u64) -> Value {
        filled(json!({ "count": n, "text": "" }), self.state)
    }
    fn step(&self, n: u64, snapshot: bool) -> Step {
        let step = Step::new([Event::json("Counted", &self.body(n)).expect("an event")]).expect(Expect::Version(n - 1));
        if snapshot { step.snapshot(Snapshot::new("snapshot", self.state(n).to_string())) } else { step }
    }
    fn layout(&self, layout: &str) -> String {
        format!("{layout}{}", self.keep.map_or(String::new(), |keep| format!("&keep={keep}")))
    }
}

/// Of so many bytes.
fn filled(mut value: Value, bytes: usize) -> Value {
    let bare = value.to_string().len();
    value["text"] = json!("x".repeat(bytes.saturating_sub(bare)));
    value
}

/// By a clock that counts nanoseconds: of a number that ends in zeros DynamoDB stores less.
fn tick(n: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(1_767_225_600_123_456_001 + 1_000 * i64::try_from(n).expect("small"))
}

/// Short and long, bodies and snapshots of the sizes that real ones have; and some that end just before and behind a border where another
/// unit begins: a kilobyte of the journal's item and of the head, four of a page.
fn histories() -> Vec<History> {
    let mut all = Vec::new();
    for events in [1, 8, 100] {
        for body in [50, 500] {
            let every = if events == 100 { 40 } else { 3 };
            all.push(History { events, body, state: 20_000, every, keep: None });
            if events == 8 {
                all.push(History { events, body, state: 20_000, every, keep: Some(2) });
            }
        }
    }
    let plain = History { events: 2, body: 50, state: 300, every: 8, keep: None };
    // The last byte before each border of the peer's and the first behind it, in v5 and v3.
    all.extend([925, 926, 940, 941, 963, 964].map(|body| History { body, ..plain }));
    all.extend([428, 429, 451, 452].map(|body| History { events: 8, body, ..plain }));
    all.extend([941, 942, 964, 965, 4013, 4014, 4036, 4037].map(|state| History { state, every: 2, ..plain }));
    all
}

fn not_more(what: &str, ours: Units, theirs: Units) {
    println!("{what}: ours {ours}; theirs {theirs}");
    assert!(ours.write <= theirs.write && ours.read <= theirs.read && ours.requests <= theirs.requests, "{what}: {ours} against {theirs}");
}

/// The same history by both, on one engine, in one run: never more units or requests than the peer's.
#[tokio::test]
async fn nothing_costs_more_than_with_the_peer() {
    for history in histories() {
        v5_costs_no_more(history).await;
    }
    for history in histories() {
        v3_costs_no_more(history).await;
    }
}

async fn v5_costs_no_more(history: History) {
    let (ground, meter) = Ground::metered();
    let ours = Ground { table: "ours".into(), ..ground.clone() }.open(&history.layout("event-store-adapter-v5")).await.streams();
    let _ = ground.open("event-store-adapter-v5").await;
    let retention = history.keep.map_or_else(esa_v5::RetentionSettings::current_only, esa_v5::RetentionSettings::keep_latest);
    let theirs = ground.theirs_v5(retention).await;
    meter.take();
    for n in 1..=history.events {
        let with = n % history.every == 0;
        let event = V5Event::new(id(), n, tick(n), history.body(n)).with_manifest("Counted");
        match with {
            true => theirs.persist_event_and_snapshot(event, esa_v5::SnapshotEnvelope::new(history.state(n), n)).await.expect("they append"),
            false => theirs.persist_event(event).await.expect("they append"),
        };
        let done = ours.append(&name(), history.step(n, with)).await.expect("we append").units;
        not_more(&format!("v5, {history:?}, event {n}, snapshot {with}"), done, meter.take());
    }
    let read = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a head");
    let since = read.snapshot().map_or(1, |snapshot| snapshot.seq_nr() + 1);
    let behind = theirs.get_events_by_id_since_seq_nr(&id(), since).await.expect("they read").len();
    let loaded = ours.load(&name(), LoadOptions::default().snapshot(["snapshot"])).await.expect("loads");
    assert_eq!(loaded.events.len(), behind);
    not_more(&format!("v5, {history:?}, load from the snapshot"), loaded.units, meter.take());
    let all = theirs.get_events_by_id_since_seq_nr(&id(), 1).await.expect("they read").len();
    let loaded = ours.load(&name(), LoadOptions::default()).await.expect("loads");
    assert_eq!(loaded.events.len(), all);
    not_more(&format!("v5, {history:?}, load of all"), loaded.units, meter.take());
    // Warm: what is new since the last look, which is nothing.
    assert!(theirs.get_events_by_id_since_seq_nr(&id(), history.events + 1).await.expect("they read").is_empty());
    let spent = meter.take();
    for options in [LoadOptions::default(), LoadOptions::default().eventual()] {
        let warm = ours.load(&name(), options.since(loaded.token.clone())).await.expect("loads");
        not_more(&format!("v5, {history:?}, warm"), warm.units, spent);
    }
    // By a process that has neither read nor written the stream.
    let next = history.events + 1;
    let fresh = ground.theirs_v5(esa_v5::RetentionSettings::current_only()).await;
    let other = Ground { table: "ours".into(), ..ground.clone() }.open("event-store-adapter-v5").await.streams();
    meter.take();
    fresh.persist_event(V5Event::new(id(), next, tick(next), history.body(next)).with_manifest("Counted")).await.expect("they append");
    let done = other.append(&name(), history.step(next, false)).await.expect("we append").units;
    not_more(&format!("v5, {history:?}, by a process that knows nothing of it"), done, meter.take());
    // A lost race: told, and then what the winner wrote is read.
    let late = V5Event::new(id(), next, tick(next + 1), history.body(next)).with_manifest("Counted");
    assert!(matches!(theirs.persist_event(late).await, Err(esa_v5::EventStoreError::OptimisticLock { .. })));
    assert_eq!(theirs.get_events_by_id_since_seq_nr(&id(), next).await.expect("they read").len(), 1);
    lost_no_more(&format!("v5, {history:?}, a lost race"), ours.append(&name(), history.step(next, false)).await, meter.take());
}

/// What a lost race costs, with the events that came: reads and requests, since a failed write tells nobody its units.
fn lost_no_more(what: &str, ours: fencepost::Result<fencepost::Committed>, theirs: Units) {
    let Err(Error::Conflict(conflict)) = ours else { panic!("{what}: {ours:?}") };
    assert_eq!(conflict.events.len(), 1, "{what}");
    not_more(what, Units { write: 0.0, ..conflict.units }, Units { write: 0.0, ..theirs });
}

async fn v3_costs_no_more(history: History) {
    let (ground, meter) = Ground::metered();
    let ours = Ground { table: "ours".into(), ..ground.clone() }.open(&history.layout("event-store-adapter-v3")).await.streams();
    let _ = ground.open("event-store-adapter-v3").await;
    let mut theirs = ground.theirs_v3().with_keep_snapshot_count(history.keep).expect("a count");
    meter.take();
    for n in 1..=history.events {
        let with = n == 1 || n % history.every == 0;
        let number = usize::try_from(n).expect("small");
        let event = V3Event::new(id(), number, tick(n), history.body(n)).with_manifest("Counted");
        match with {
            true => theirs.persist_event_and_snapshot(event, history.state(n), number - 1).await.expect("they append"),
            false => theirs.persist_event(event, number - 1).await.expect("they append"),
        }
        let done = ours.append(&name(), history.step(n, with)).await.expect("we append").units;
        not_more(&format!("v3, {history:?}, event {n}, snapshot {with}"), done, meter.take());
    }
    let read = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a snapshot");
    let behind = theirs.get_events_by_id_since_seq_nr(&id(), read.seq_nr() + 1).await.expect("they read").len();
    let spent = meter.take();
    // Their events come from an index alone, which may lack the newest; ours do not, and the snapshot that both read tells where it ends.
    for (how, options) in [("eventual", LoadOptions::default().eventual()), ("strong", LoadOptions::default())] {
        let loaded = ours.load(&name(), options.snapshot(["snapshot"])).await.expect("loads");
        assert_eq!(loaded.events.len(), behind);
        not_more(&format!("v3, {history:?}, load from the snapshot, {how}"), loaded.units, spent);
    }
    let all = theirs.get_events_by_id_since_seq_nr(&id(), 1).await.expect("they read").len();
    let spent = meter.take();
    let loaded = ours.load(&name(), LoadOptions::default().eventual()).await.expect("loads");
    assert_eq!(loaded.events.len(), all);
    not_more(&format!("v3, {history:?}, load of all, eventual"), loaded.units, spent);
    // Without the snapshot nothing tells where the index should end, and it is never read strongly: one look behind its end.
    let strong = ours.load(&name(), LoadOptions::default()).await.expect("loads").units;
    assert_eq!((strong.read, strong.requests), (spent.read + 1.0, spent.requests + 1));
    // Warm: what is new since the last look, which is nothing; strongly by one look more, as above.
    assert!(theirs.get_events_by_id_since_seq_nr(&id(), usize::try_from(history.events).expect("small") + 1).await.expect("they read").is_empty());
    let spent = meter.take();
    let warm = async |options: LoadOptions| ours.load(&name(), options.since(loaded.token.clone())).await.expect("loads").units;
    not_more(&format!("v3, {history:?}, warm, eventual"), warm(LoadOptions::default().eventual()).await, spent);
    let strong = warm(LoadOptions::default()).await;
    assert_eq!((strong.read, strong.requests), (spent.read + 1.0, spent.requests + 1));
    // By a process that has neither read nor written the stream: theirs cannot without the snapshot, whose number is the lock.
    let next = history.events + 1;
    let number = usize::try_from(next).expect("small");
    let event = |ticks: u64| V3Event::new(id(), number, tick(ticks), history.body(next)).with_manifest("Counted");
    let other = Ground { table: "ours".into(), ..ground.clone() }.open("event-store-adapter-v3").await.streams();
    meter.take();
    let version = theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a snapshot").version();
    theirs.persist_event(event(next), version).await.expect("they append");
    let (done, spent) = (other.append(&name(), history.step(next, false)).await.expect("we append").units, meter.take());
    assert!(done.write <= spent.write && done.read <= spent.read.max(1.5) && done.requests <= spent.requests + 1, "{done} against {spent}");
    // A lost race: told, and then what the winner wrote is read, and in v3 the lock.
    assert!(matches!(theirs.persist_event(event(next + 1), version).await, Err(esa_v3::types::EventStoreWriteError::OptimisticLockError(_))));
    theirs.get_latest_snapshot_by_id(&id()).await.expect("they read").expect("a snapshot");
    assert_eq!(theirs.get_events_by_id_since_seq_nr(&id(), number).await.expect("they read").len(), 1);
    lost_no_more(&format!("v3, {history:?}, a lost race"), ours.append(&name(), history.step(next, false)).await, meter.take());
}
