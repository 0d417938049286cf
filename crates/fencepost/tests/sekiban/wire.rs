//! The calls that each operation makes, beside those that Sekiban makes for it; the exceptions that it handles; and what catching up reads.

use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use fencepost::Reason;

use crate::tap::{Call, Tap};
use crate::*;

/// Sekiban's calls for an operation.
fn theirs(operation: &str) -> Vec<(String, Json)> {
    let recorded = golden("requests");
    let found =
        recorded["operations"].as_array().expect("operations").iter().find(|one| one["operation"] == operation).expect(operation).clone();
    let call = |request: &Json| (request["api"].as_str().expect("api").to_owned(), request["body"].clone());
    found["requests"].as_array().expect("requests").iter().map(call).collect()
}

fn values(request: &Json) -> BTreeSet<String> {
    let values = request["ExpressionAttributeValues"].as_object().into_iter().flat_map(|map| map.values());
    values.filter_map(|value| value["S"].as_str()).map(str::to_owned).collect()
}

/// Each of theirs is among ours, on the same table and index, in the same direction, for the same keys; what ours has besides is listed.
#[track_caller]
fn compare(operation: &str, ours: Vec<Call>, besides: &[&str]) {
    let mut rest = ours;
    for (api, theirs) in theirs(operation) {
        let same = |ours: &Call| {
            let request = &ours.request;
            let forward = |request: &Json| request["ScanIndexForward"].as_bool().unwrap_or(true);
            ours.api == api
                && request["TableName"] == theirs["TableName"]
                && request["IndexName"] == theirs["IndexName"]
                && request["Key"] == theirs["Key"]
                && request["Select"] == theirs["Select"]
                && forward(request) == forward(&theirs)
                && (api != "Query"
                    || values(request).contains(
                        theirs["ExpressionAttributeValues"][":pk"]["S"]
                            .as_str()
                            .or(theirs["ExpressionAttributeValues"][":group"]["S"].as_str())
                            .expect("a key"),
                    ))
                && request["TransactItems"].as_array().map(Vec::len) >= theirs["TransactItems"].as_array().map(Vec::len)
        };
        let at = rest.iter().position(same).unwrap_or_else(|| panic!("{operation}: no {api} {theirs} among {rest:#?}"));
        let ours = rest.remove(at).request;
        // What a limit asks for at a time is theirs, or less.
        if let (Some(ours), Some(theirs)) = (ours["Limit"].as_u64(), theirs["Limit"].as_u64()) {
            assert!(ours <= theirs, "{operation}: {ours} > {theirs}");
        }
    }
    assert_eq!(rest.iter().map(|call| call.api.as_str()).collect::<Vec<_>>(), besides, "{operation}");
}

/// `requests.json` was recorded with these: the last event of `Student:a` is under a key.
#[tokio::test]
async fn each_operation_makes_the_calls_that_sekiban_makes_and_those_that_heads_need() {
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let sekiban = open(bench.builder("").http_client(tap.http_client())).await.sekiban().expect("sekiban");
    let at = |n: u64| id(&format!("06392179278602445{n}000144856799"));
    let known: Uuid = "0198894f-9a63-7c21-8f0e-000000000385".parse().expect("an id");
    let student = tag("Student:a");
    // Once, so that what is looked at once is behind.
    sekiban.write(&[(at(1), event("{}", &["Room:x"]).id(Uuid::from_u128(1)))], WriteOptions::default()).await.expect("writes");
    tap.take();
    sekiban.write(&[(at(6), event("{}", &["Student:a", "ClassRoom:b"]).id(known))], WriteOptions::default()).await.expect("writes");
    let mut calls = tap.take();
    let transaction = calls.iter().find(|call| call.api == "TransactWriteItems").expect("one transaction").request.clone();
    assert_eq!(transaction["ClientRequestToken"].as_str().map(str::len), Some(36));
    let puts: Vec<&Json> = transaction["TransactItems"].as_array().expect("items").iter().filter_map(|item| item.get("Put")).collect();
    let names = |item: &Json| item["Item"].as_object().expect("an item").keys().cloned().collect::<BTreeSet<_>>();
    for (ours, theirs) in
        puts.iter().zip(theirs("WriteSerializableEvents: one event, two tags")[0].1["TransactItems"].as_array().expect("items"))
    {
        let optional = ["causationId", "correlationId", "executedUser"];
        let theirs: BTreeSet<String> =
            theirs["Put"]["Item"].as_array().expect("names").iter().map(|name| name.as_str().expect("name").to_owned()).collect();
        assert_eq!(names(ours), theirs.into_iter().filter(|name| !optional.contains(&name.as_str())).collect());
    }
    // A head and the last row, of each tag.
    calls.sort_by(|a, b| a.api.cmp(&b.api));
    compare("WriteSerializableEvents: one event, two tags", calls, &["GetItem", "GetItem", "Query", "Query"]);
    let unique = async || sekiban.append_if_unique("key-1", event("{}", &["Student:a"]), None).await.expect("appends");
    let Unique::Appended { ids, .. } = unique().await else { panic!() };
    compare("AppendIfUnique: first", tap.take(), &["Query"]);
    assert!(matches!(unique().await, Unique::AlreadyCommitted { .. }));
    // The winner comes with the failed condition, where Sekiban reads it.
    let calls = tap.apis();
    assert_eq!(calls.iter().filter(|api| *api == "TransactWriteItems").count(), 1, "{calls:?}");
    assert!(!calls.contains(&"GetItem".to_owned()), "{calls:?}");
    assert_eq!(ids.len(), 1);

    let everything = async |since| sekiban.all_since(since, None).try_collect::<Vec<_>>().await.expect("all").len();
    assert_eq!(everything(None).await, 3);
    compare("ReadAllSerializableEvents(null)", tap.take(), &["GetItem"]);
    sekiban.all_since(Some(at(1)), Some(1)).try_collect::<Vec<_>>().await.expect("one");
    let calls = tap.take();
    assert_eq!(calls.iter().find(|call| call.api == "Query").map(|call| call.request["Limit"].clone()), Some(1.into()), "pushed down");
    compare("ReadAllSerializableEvents(since, maxCount 1)", calls, &["GetItem"]);
    sekiban.by_tag_since(&student, None).try_collect::<Vec<_>>().await.expect("by tag");
    let calls = tap.take();
    assert_eq!(
        calls.iter().map(|call| call.api.as_str()).collect::<Vec<_>>(),
        ["GetItem", "Query", "BatchGetItem"],
        "the head, the rows, the events"
    );
    sekiban.event(&known).await.expect("event");
    compare("ReadSerializableEvent(id)", tap.take(), &[]);
    sekiban.tag_stream(&student, None).try_collect::<Vec<_>>().await.expect("rows");
    compare("ReadTags", tap.take(), &["GetItem"]);
    sekiban.latest_of(&student).await.expect("latest");
    compare("GetLatestTag", tap.take(), &["GetItem"]);
    sekiban.count(None).await.expect("count");
    compare("GetEventCount(null)", tap.take(), &["GetItem"]);
    sekiban.count(Some(at(1))).await.expect("count");
    compare("GetEventCount(since)", tap.take(), &["GetItem"]);
    sekiban.latest().await.expect("latest");
    compare("GetLatestSortableUniqueId", tap.take(), &["GetItem"]);
    sekiban.scan_tags().await.expect("tags");
    compare("GetAllTags()", tap.take(), &[]);
    sekiban.tags_of_group("Student").try_collect::<Vec<_>>().await.expect("group");
    compare("GetAllTags(group)", tap.take(), &[]);

    sekiban.projection_row("P", "1").await.expect("reads");
    compare("GetLatestForVersion", tap.take(), &[]);
    let folded = |name: &str| fencepost::sekiban::Folded { projector: name.into(), version: "1".into(), ..Default::default() };
    sekiban.put_row(&sekiban.row_of(&folded("P"), b"{}").expect("row")).await.expect("writes");
    compare("UpsertFromStream", tap.take(), &["DescribeTable"]);
    let row = sekiban.row_of(&folded("Q"), b"{}").expect("row");
    // Sekiban reads what it wrote; a failed condition would have told.
    sekiban.create_row(&row).await.expect("writes");
    assert_eq!(tap.apis(), ["PutItem"]);
    let held = Control { revision: 1, ..Control::default() };
    sekiban.replace_row(&row, held).await.expect("writes");
    sekiban.invalidate_row("Q", "1", Control { revision: 2, ..held }).await.expect("writes");
    assert_eq!(tap.apis(), ["PutItem", "UpdateItem"]);
}

/// The published table of exceptions: throttled is tried again, a duplicate is skipped, an invalid request is told at once.
#[tokio::test]
async fn exceptions_are_handled_as_published() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let sekiban = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await.sekiban().expect("sekiban");
    let at = |n: u64| id(&format!("063921792785{n:07}00144769402"));
    between.script(Rule::on("TransactWriteItems").times(2).throttle());
    let one = [(at(1), event("{}", &["a:1"]).id(Uuid::from_u128(1)))];
    assert_eq!(sekiban.write(&one, WriteOptions::default()).await.expect("in the end").positions.len(), 1);
    assert_eq!(between.calls("TransactWriteItems"), 3);
    between.calm();
    between.script(Rule::on("TransactWriteItems").times(1).conflict());
    sekiban
        .write(&[(at(2), event("{}", &["a:1"]).id(Uuid::from_u128(2)))], WriteOptions::default())
        .await
        .expect("its reasons are looked at");
    between.calm();
    let again = sekiban.write(&one, WriteOptions::default()).await.expect("skipped");
    assert_eq!(again.duplicates, [Uuid::from_u128(1)]);
    assert_eq!(sekiban.count(None).await.expect("count"), 2);
    // A table without the index.
    let misnamed = bench.builder(&format!("&tags={}", bench.table("SekibanProjectionStates"))).create(false).timeouts(QUICK);
    let misnamed = open(misnamed.http_client(between.http_client())).await.sekiban().expect("sekiban");
    let before = between.calls("Query");
    let rejected = misnamed.tags_of_group("a").try_collect::<Vec<_>>().await;
    assert!(matches!(&rejected, Err(Error::Unavailable(why)) if why.reason == Reason::Rejected), "{rejected:?}");
    assert_eq!(between.calls("Query") - before, 1, "and not tried again");
}

/// Under a key, when the answer is lost for good: in doubt, and whoever asks again is told what happened.
#[tokio::test]
async fn an_append_under_a_key_that_stays_unanswered_is_in_doubt_and_asking_again_settles_it() {
    for batch in [false, true] {
        for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false)] {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let sekiban = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await.sekiban().expect("sekiban");
            let append = async || match batch {
                false => sekiban.append_if_unique("key", event("1", &["a:1"]), None).await,
                true => sekiban.append_batch_if_unique("key", [event("1", &["a:1"]), event("2", &["a:1"])]).await,
            };
            between.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
            let doubt = append().await;
            assert!(matches!(doubt, Err(Error::InDoubt(_))), "{fault:?}: {doubt:?}");
            between.calm();
            let again = append().await.expect("again");
            assert_eq!(matches!(again, Unique::AlreadyCommitted { .. }), landed, "{fault:?}: {again:?}");
            assert!(matches!(append().await, Ok(Unique::AlreadyCommitted { .. })));
            assert_eq!(sekiban.count(None).await.expect("count"), 1 + u64::from(batch));
        }
    }
}

/// A large write whose places are given, and whose answer is lost: it is told where its events stand.
#[tokio::test]
async fn a_large_write_whose_answer_is_lost_is_told_its_own_places() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let sekiban = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await.sekiban().expect("sekiban");
    let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
    let events: Vec<_> = (0..60).map(|n| (at(n * 3), event("{}", &["a:1"]).id(Uuid::from_u128(n.into())))).collect();
    // The token of the first attempt would tell; under another one, the record has to.
    between.script(Rule::on("TransactWriteItems").nth(1).lose_response());
    between.script(Rule::on("TransactWriteItems").nth(2).token_mismatch());
    let written = sekiban.write(&events, WriteOptions::default()).await.expect("writes");
    let places: Vec<_> = written.positions.iter().filter_map(SortableId::of).collect();
    assert_eq!(places, events.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    assert_eq!(sekiban.tag_stream(&tag("a:1"), None).try_collect::<Vec<_>>().await.expect("rows").len(), 60);
}

/// W12: by pages of 500, every event is read once. `.ci/run` does the same with 100,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catching_up_reads_each_event_once_and_costs_as_much_as_their_bytes() {
    let count: u64 = std::env::var("FENCEPOST_CATCH_UP").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let sekiban = open(bench.builder("").http_client(tap.http_client())).await.sekiban().expect("sekiban");
    let text = |text: String| AttributeValue::S(text);
    let stored = |n: u64| {
        let id = Uuid::from_u128(n.into()).to_string();
        Item::from([
            ("pk".into(), text(format!("SERVICE#default#EVENT#{id}"))),
            ("sk".into(), text(format!("EVENT#{id}"))),
            ("serviceId".into(), text("default".into())),
            ("gsi1pk".into(), text("SERVICE#default#ALL_EVENTS".into())),
            ("eventId".into(), text(id)),
            ("sortableUniqueId".into(), text(format!("06392179278{n:08}00144769402"))),
            ("eventType".into(), text("T".into())),
            ("payload".into(), text("{}".into())),
            ("tags".into(), AttributeValue::L(vec![])),
            ("timestamp".into(), text("2026-08-08T13:33:05.1502345+00:00".into())),
        ])
    };
    for from in (0..count).step_by(25) {
        let puts = (from..count.min(from + 25))
            .map(|n| WriteRequest::builder().put_request(PutRequest::builder().set_item(Some(stored(n))).build().expect("put")).build());
        bench.client.batch_write_item().request_items("SekibanEvents", puts.collect()).send().await.expect("loads");
    }
    tap.take();
    let (mut since, mut met) = (None, 0);
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(500)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len() as u64;
        since = SortableId::of(&last.position);
    }
    assert_eq!(met, count);
    let queries: Vec<Call> = tap.take().into_iter().filter(|call| call.api == "Query").collect();
    let items: u64 = queries.iter().map(|call| call.answer["Count"].as_u64().expect("count")).sum();
    let units: f64 = queries.iter().map(|call| call.answer["ConsumedCapacity"]["CapacityUnits"].as_f64().expect("units")).sum();
    assert_eq!((items, queries.len() as u64), (count, count.div_ceil(500) + 1), "each once, and one page that finds nothing");
    let bytes: usize = stored(0).iter().map(|(name, value)| name.len() + value.as_s().map_or(3, String::len)).sum();
    // A page of them, eventually consistent: half a unit for each 4 KB.
    let page = (500 * bytes).div_ceil(4096) as f64 / 2.0;
    let pages = (count / 500) as f64;
    assert!((units - pages * page).abs() <= 1.0, "{units} units, expected {} of {bytes} bytes each", pages * page);
}
