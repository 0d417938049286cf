//! Sekiban's own settings: each of them, by what it does.

use std::time::{Duration, Instant};

use fencepost::sekiban::Settings;
use fencepost::testing::{Faults, Gate, Lag, Rule};
use fencepost::{Append, Engine, Error, Query, Reason, Refused, Store};
use futures::TryStreamExt;
use serde_json::json;

use crate::tap::Tap;
use crate::*;

fn settings(name: &str, value: impl Into<Json>) -> Settings {
    Settings::from_json(&json!({ "DynamoDb": { name: value.into() } }).to_string()).expect("settings")
}

async fn opened(bench: &Bench, tap: &Tap, settings: &Settings) -> Store {
    open(bench.builder("").settings(settings).expect("settings").http_client(tap.http_client())).await
}

async fn append_many(store: &Store, events: usize, tags: &[&str]) {
    let events = (0..events).map(|n| event(&n.to_string(), tags));
    store.log().expect("log").append(Append::new(events)).await.expect("append");
}

#[tokio::test]
async fn tables_are_called_and_made_as_the_settings_say() {
    let bench = Bench::embedded();
    let names = json!({ "DynamoDb": { "EventsTableName": "prod-Events", "TagsTableName": "prod-Tags", "ProjectionStatesTableName": "prod-States" } });
    let names = Settings::from_json(&names.to_string()).expect("settings");
    let off = settings("AutoCreateTables", false).over(names.clone());
    let store = open(bench.builder("").settings(&off).expect("settings")).await;
    let missing = store.log().expect("log").append(Append::new([event("1", &["a:1"])])).await;
    assert!(matches!(&missing, Err(Error::Unavailable(why)) if why.reason == Reason::Missing), "{missing:?}");
    let made = async || bench.client.list_tables().send().await.expect("list").table_names().to_vec();
    assert_eq!(made().await, Vec::<String>::new(), "nothing is made");
    let store = open(bench.builder("").settings(&names).expect("settings")).await;
    append_many(&store, 1, &["a:1"]).await;
    assert_eq!(made().await, ["prod-Events", "prod-States", "prod-Tags"], "as published, tables are made");
    let given = open(bench.builder("&events=other-Events").settings(&names).expect("settings")).await;
    assert_eq!(given.sekiban().expect("sekiban").count(None).await.expect("count"), 0, "the URL goes before");
}

#[tokio::test]
async fn the_sizes_of_requests_are_those_of_the_settings() {
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let store = opened(&bench, &tap, &Settings::default()).await;
    append_many(&store, 25, &["a:1"]).await;
    let reads = async |settings: Settings| {
        let sekiban = opened(&bench, &tap, &settings).await.sekiban().expect("sekiban");
        // Once, shards that nobody named are looked for.
        sekiban.latest().await.expect("latest");
        tap.take();
        let all: Vec<_> = sekiban.all_since(None, None).try_collect().await.expect("all");
        let queries = tap.count("Query");
        let by_tag: Vec<_> = sekiban.by_tag_since(&tag("a:1"), None).try_collect().await.expect("by tag");
        assert_eq!((all.len(), by_tag.len()), (25, 25));
        (queries, tap.count("BatchGetItem"))
    };
    // One query is of the list of large commits.
    assert_eq!(reads(Settings::default()).await, (1 + 1, 1));
    assert_eq!(reads(settings("QueryPageSize", 10)).await, (1 + 3, 3));
    assert_eq!(reads(settings("MaxBatchGetItems", 10)).await, (1 + 1, 3));
    assert_eq!(reads(settings("MaxBatchSize", 5)).await, (1 + 1, 5), "as the design document calls it");

    // One piece, 60 events, 60 rows.
    for (settings, batches) in [(Settings::default(), 1 + 3 + 3), (settings("MaxBatchWriteItems", 10), 1 + 6 + 6)] {
        let store = opened(&bench, &tap, &settings).await;
        tap.take();
        append_many(&store, 60, &["large:1"]).await;
        assert_eq!(tap.count("BatchWriteItem"), batches);
    }
    // 5 events, 5 rows and a head.
    for (settings, staged) in [(settings("MaxTransactionItems", 11), false), (settings("MaxTransactionItems", 10), true)] {
        let store = opened(&bench, &tap, &settings).await;
        tap.take();
        append_many(&store, 5, &["some:1"]).await;
        assert_eq!(tap.count("BatchWriteItem") > 0, staged);
        let tags: Vec<String> = (0..20).map(|n| format!("t:{n}")).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        let refused = store.log().expect("log").append(Append::new([event("1", &tags)])).await;
        let limit = if staged { 10 } else { 11 };
        assert!(matches!(&refused, Err(Error::Refused(Refused::TooManyItems { limit: most, .. })) if *most == limit), "{refused:?}");
    }
    let four = opened(&bench, &tap, &settings("WriteShardCount", 4)).await;
    append_many(&four, 8, &["s:1"]).await;
    let sharded = bench
        .dump("SekibanEvents")
        .await
        .iter()
        .filter(|item| item.get("gsi1pk").is_some_and(|pk| pk.as_s().expect("text").contains("ALL_EVENTS#")))
        .count();
    assert_eq!(sharded, 8);
}

#[tokio::test]
async fn so_many_attempts_are_made_and_pauses_are_so_long() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let both = Settings::from_json(r#"{"DynamoDb":{"MaxRetryAttempts":12,"MaxRetryDelay":"00:00:00"}}"#).expect("settings");
    for (settings, attempts) in [(settings("MaxRetryAttempts", 2), 2), (both, 12)] {
        let store = open(bench.builder("").settings(&settings).expect("settings").http_client(between.http_client())).await;
        between.script(Rule::on("GetItem").holding("EVENT#").throttle());
        let (before, began) = (between.calls("GetItem"), Instant::now());
        let throttled = store.sekiban().expect("sekiban").event(&Uuid::from_u128(1)).await;
        assert!(matches!(&throttled, Err(Error::Unavailable(why)) if why.reason == Reason::Throttled), "{throttled:?}");
        assert_eq!(between.calls("GetItem") - before, attempts);
        // By default the twelve would take seconds.
        assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
        between.calm();
    }
}

#[tokio::test]
async fn so_many_reads_are_under_way_at_once() {
    for (most, expected) in [(1, 1), (3, 3), (64, 6)] {
        let bench = Bench::embedded();
        let between = Faults::new(bench.http(), 1);
        let settings = settings("MaxConcurrentReads", most);
        let store = open(bench.builder("").settings(&settings).expect("settings").http_client(between.http_client())).await;
        let query = (1..6).fold(Query::tag("t:0").expect("query"), |query, n| query.or(Query::tag(format!("t:{n}")).expect("query")));
        let gate = Gate::new();
        between.script(Rule::on("GetItem").pause_before(&gate));
        let log = store.log().expect("log");
        let reading = tokio::spawn(async move { log.source(&query, None).await });
        gate.reached(expected).await;
        Env::system().sleep(Duration::from_millis(50)).await;
        assert_eq!(between.calls("GetItem"), expected);
        gate.open();
        reading.await.expect("ends").expect("source");
    }
}

/// Reads that decide nothing may be a moment old, as published, or not; decisions never are.
#[tokio::test]
async fn reads_are_as_fresh_as_the_settings_say_and_decisions_strong() {
    for (consistent, seen) in [(false, false), (true, true)] {
        let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
        let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
        let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url");
        let store =
            open(builder.settings(&settings("UseConsistentReads", consistent)).expect("settings").http_client(lag.http_client())).await;
        append_many(&store, 1, &["a:1"]).await;
        let sekiban = store.sekiban().expect("sekiban");
        assert_eq!(sekiban.tag_exists(&tag("a:1")).await.expect("exists"), seen);
        assert_eq!(sekiban.latest_of(&tag("a:1")).await.expect("latest").is_some(), seen);
        assert_eq!(!sekiban.by_tag_since(&tag("a:1"), None).try_collect::<Vec<_>>().await.expect("by tag").is_empty(), seen);
        let sourced = store.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source");
        assert_eq!(sourced.events.len(), 1);
        assert_eq!(sekiban.event(&sourced.events[0].id).await.expect("event").is_some(), seen);
    }
}

/// Under the published chunking an event whose first rows fail is taken back, unless that is off.
#[tokio::test]
async fn an_event_whose_rows_failed_is_taken_back_or_left() {
    let tags: Vec<String> = (0..100).map(|n| format!("t:{n}")).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    for (roll_back, left) in [(true, 0), (false, 1)] {
        let bench = Bench::embedded();
        let between = Faults::new(bench.http(), 1);
        let builder = bench.builder("&large=chunked").settings(&settings("TryRollbackOnFailure", roll_back)).expect("settings");
        let timeouts = Timeouts { attempts: 1, ..PATIENT };
        let sekiban = open(builder.timeouts(timeouts).http_client(between.http_client())).await.sekiban().expect("sekiban");
        between.script(Rule::on("TransactWriteItems").nth(1).throttle());
        let at = id("063921792785123456000144769402");
        let failed = sekiban.write(&[(at, event("{}", &tags).id(Uuid::from_u128(1)))], WriteOptions::default()).await;
        assert!(matches!(&failed, Err(error) if error.recorded_nothing() == roll_back), "{failed:?}");
        assert_eq!(bench.dump("SekibanEvents").await.len(), left, "the event");
        assert_eq!(bench.dump("SekibanTags").await.len(), 0, "its rows");
        between.calm();
        let again = sekiban.write(&[(at, event("{}", &tags).id(Uuid::from_u128(1)))], WriteOptions::default()).await.expect("again");
        assert_eq!(again.duplicates.len(), left);
    }
}

/// What is larger than the threshold goes to the bucket, where there is one.
#[tokio::test]
async fn states_go_to_the_bucket_from_the_threshold_on() {
    for (settings, away) in [(Settings::default(), false), (settings("OffloadThresholdBytes", 1000), true)] {
        let bench = Bench::embedded();
        let blobs = fencepost::sekiban::Blobs::new(std::sync::Arc::new(object_store::memory::InMemory::new()), "");
        let store = open(bench.builder("").settings(&settings).expect("settings").blobs(blobs)).await;
        let sekiban = store.sekiban().expect("sekiban");
        let folded = fencepost::sekiban::Folded { projector: "P".into(), version: "1".into(), ..Default::default() };
        sekiban.put_row(&sekiban.row_of(&folded, &snapshots::noise(2_000)).expect("row")).await.expect("writes");
        let row = sekiban.projection_row("P", "1").await.expect("reads").expect("there");
        assert_eq!(matches!(row.body, RowBody::Offloaded { .. }), away);
    }
}

#[test]
fn a_place_that_the_url_says_otherwise_is_refused_and_so_are_other_layouts() {
    let tokyo =
        Settings::from_json(r#"{"AWS":{"Region":"ap-northeast-1"},"DynamoDb":{"ServiceUrl":"http://localhost:4566/"}}"#).expect("settings");
    let with = |url: &str| Store::builder(url).expect("url").settings(&tokyo).map(drop);
    assert!(with("dynamodb://ap-northeast-1/Sekiban?layout=sekiban").is_ok());
    assert!(with("http://localhost:4566/Sekiban?layout=sekiban").is_ok());
    for url in ["dynamodb://eu-west-1/Sekiban?layout=sekiban", "http://localhost:8000/Sekiban?layout=sekiban"] {
        assert!(matches!(with(url), Err(Error::Refused(Refused::Url { .. }))), "{url}");
    }
    assert!(Store::builder("memory:?layout=ledger&settings=x.json").is_err());
    assert!(Store::builder("memory:?layout=sekiban&settings=/no/such/file.json").is_err());
}

/// Conditions hold within one region: a table with replicas is written from the one that is named, and from nowhere else.
#[tokio::test]
async fn a_table_with_replicas_is_written_from_one_region_alone() {
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let here = bench.store("").await.stats().await.expect("stats");
    assert_eq!(here.tables.len(), 3);
    let described = bench.client.describe_table().table_name("SekibanEvents").send().await.expect("describe").table.expect("table");
    let region = described.table_arn().and_then(|arn| arn.split(':').nth(3)).expect("a region").to_owned();
    tap.replicate(&["eu-west-2", "us-east-2"]);
    for (more, allowed) in [("", false), ("&writer_region=eu-west-2", false), (&format!("&writer_region={region}")[..], true)] {
        let store = open(bench.builder(more).http_client(tap.http_client())).await;
        let done = store.log().expect("log").append(Append::new([event("1", &["a:1"])])).await;
        let sekiban = store.sekiban().expect("sekiban");
        let folded = fencepost::sekiban::Folded { projector: "P".into(), version: "1".into(), ..Default::default() };
        let row = sekiban.put_row(&sekiban.row_of(&folded, b"{}").expect("row")).await;
        if allowed {
            assert!(done.is_ok() && row.is_ok(), "{done:?} {row:?}");
        } else {
            assert!(
                matches!(&done, Err(Error::Refused(Refused::Unsupported { what, .. })) if what.contains("eu-west-2, us-east-2")),
                "{done:?}"
            );
            assert!(matches!(&row, Err(Error::Refused(Refused::Unsupported { .. }))), "{row:?}");
            assert_eq!(sekiban.count(None).await.expect("reads are allowed"), 0);
        }
    }
}

/// Whatever writes to tables with replicas is refused elsewhere, what finishes, mends, collects and deletes as well; a reader that meets a commit that
/// is not in rows yet is told to wait for its region.
#[tokio::test]
async fn nothing_is_written_to_tables_with_replicas_from_elsewhere() {
    use fencepost::Reason;
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let here = bench.sekiban("").await;
    let folded = fencepost::sekiban::Folded { projector: "P".into(), version: "1".into(), ..Default::default() };
    here.create_row(&here.row_of(&folded, b"{}").expect("row")).await.expect("row");
    large::dies_when_published(&bench, "", None, Append::new((0..70).map(|n| event(&n.to_string(), &["a:1"])))).await;
    let before = [bench.dump(TABLES[0]).await.len(), bench.dump(TABLES[1]).await.len(), bench.dump(TABLES[2]).await.len()];
    tap.replicate(&["eu-west-2"]);
    let store = open(bench.builder("&writer_region=eu-west-2").http_client(tap.http_client())).await;
    let (log, sekiban) = (store.log().expect("log"), store.sekiban().expect("sekiban"));
    let read = log.source(&Query::tag("a:1").expect("query"), None).await;
    assert!(matches!(&read, Err(Error::Unavailable(unavailable)) if unavailable.reason == Reason::Late), "{read:?}");
    let refused = |what: &str, error: Option<Error>| {
        assert!(matches!(error, Some(Error::Refused(Refused::Unsupported { .. }))), "{what}: {error:?}");
    };
    refused("repair", store.repair(&|_| ()).await.err());
    refused("gc", store.collect_garbage(Duration::ZERO).await.err());
    refused("delete", sekiban.delete_row("P", "1").await.err());
    refused("delete all", sekiban.delete_rows_of("P").await.err());
    refused("delete everything", sekiban.scan_and_delete_rows().await.err());
    let after = [bench.dump(TABLES[0]).await.len(), bench.dump(TABLES[1]).await.len(), bench.dump(TABLES[2]).await.len()];
    assert_eq!(before, after);
    assert!(store.verify(&|_| ()).await.expect("looks").findings.iter().any(|finding| finding.problem.contains("not all in rows")));
}

/// What the shards are recorded in is a table of this layout: made, printed and looked at with the others, where there are shards.
#[tokio::test]
async fn the_side_table_is_made_and_printed_where_it_is_needed() {
    let bench = Bench::embedded();
    let tables = |store: &Store| {
        let store = store.clone();
        async move { store.stats().await.expect("stats").tables.into_iter().map(|table| table.name).collect::<Vec<_>>() }
    };
    assert_eq!(tables(&bench.store("").await).await.len(), 3);
    let sharded = bench.store("&shards=4").await;
    assert!(tables(&sharded).await.contains(&"Sekiban-side".to_owned()));
    let url = "dynamodb://ap-northeast-1/Sekiban?layout=sekiban&shards=4";
    let printed = Store::builder(url).expect("url").tables().print(fencepost::Format::Terraform, &Default::default()).expect("prints");
    assert!(printed.contains("Sekiban-side"), "{printed}");
}

/// Releases to 10.22 put their blobs beside the prefix: they may be read wherever they are, and are written and deleted under the prefix alone.
#[test]
fn blobs_are_readable_wherever_sekiban_put_them() {
    let settings = json!({ "S3BlobStorage": { "BucketName": "shots", "Prefix": "projections" } });
    let settings = Settings::from_json(&settings.to_string()).expect("settings");
    let builder = Store::builder("dynamodb://eu-west-1/Sekiban?layout=sekiban").expect("url").settings(&settings).expect("settings");
    for (role, policy) in builder.tables().iam(&fencepost::TableOptions::default(), &fencepost::Scope::default()) {
        let policy: serde_json::Value = serde_json::from_str(&policy).expect("json");
        let may = |action: &str| -> Vec<String> {
            let statements = policy["Statement"].as_array().expect("statements").iter();
            let of = statements.filter(|statement| statement["Action"].as_array().expect("actions").iter().any(|of| of == action));
            of.flat_map(|statement| statement["Resource"].as_array().expect("resources"))
                .filter_map(|on| on.as_str())
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(may("s3:GetObject"), ["arn:aws:s3:::shots/*"], "{role:?}");
        let changes = [may("s3:PutObject"), may("s3:DeleteObject")].concat();
        assert!(changes.iter().all(|on| on == "arn:aws:s3:::shots/projections/*"), "{role:?}: {changes:?}");
    }
}
