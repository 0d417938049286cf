//! The calls that each operation makes, beside those that Sekiban makes for it; the exceptions that it handles; and what catching up reads.

use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use fencepost::Reason;

use crate::tap::{Call, Tap};
use crate::*;

/// What a request asks for, by the names of its parts: expressions with what stands for names and values put in.
fn parts(api: &str, request: &Json) -> BTreeMap<&'static str, String> {
    let put_in = |name: &str| {
        let Some(expression) = request[name].as_str() else { return String::new() };
        let plain = |value: &Json| {
            value.as_object().and_then(|map| map.values().next()).map(|value| match value {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            })
        };
        let word = |word: &str| {
            let bare = word.trim_matches(|c| c == '(' || c == ')' || c == ',');
            let found = match bare.chars().next() {
                Some('#') => request["ExpressionAttributeNames"][bare].as_str().map(str::to_owned),
                Some(':') => plain(&request["ExpressionAttributeValues"][bare]),
                _ => None,
            };
            // The clock's.
            let found = found.map(|found| if found.parse::<jiff::Timestamp>().is_ok() { "(now)".into() } else { found });
            found.map_or_else(|| word.to_owned(), |found| word.replace(bare, &found))
        };
        // `attribute_not_exists(#h)` is one word.
        expression.replace('(', "( ").split_whitespace().map(word).collect::<Vec<_>>().join(" ").replace("( ", "(")
    };
    let names = |json: &Json| match json {
        Json::Array(names) => names.iter().filter_map(Json::as_str).map(str::to_owned).collect::<BTreeSet<_>>(),
        Json::Object(item) => item.keys().cloned().collect(),
        _ => BTreeSet::new(),
    };
    let key = |json: &Json| match (json["pk"]["S"].as_str(), json["sk"]["S"].as_str()) {
        (Some(pk), Some(sk)) => format!("{pk} @{sk}"),
        _ => String::new(),
    };
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let sorted = |json: &Json| {
        let mut all: Vec<String> = json.as_array().into_iter().flatten().map(ToString::to_string).collect();
        all.sort();
        all.join(" ")
    };
    let mut parts = BTreeMap::from([
        ("table", text("TableName")),
        ("index", text("IndexName")),
        ("key", key(&request["Key"])),
        ("fresh", if request["ConsistentRead"].as_bool().unwrap_or(false) { "strong" } else { "" }.into()),
        ("limit", request["Limit"].as_u64().map(|limit| limit.to_string()).unwrap_or_default()),
        ("order", if request["ScanIndexForward"].as_bool().unwrap_or(true) { "" } else { "descending" }.into()),
        ("select", text("Select")),
        ("attributes read", put_in("ProjectionExpression")),
        ("keys", put_in("KeyConditionExpression")),
        ("filter", put_in("FilterExpression")),
        ("condition", put_in("ConditionExpression")),
        ("update", put_in("UpdateExpression")),
        ("item", names(&request["Item"]).into_iter().collect::<Vec<_>>().join(" ")),
    ]);
    match api {
        "TransactWriteItems" => {
            let puts =
                request["TransactItems"].as_array().into_iter().flatten().map(|item| item["Put"].clone()).filter(|put| !put.is_null());
            let put = |put: Json| {
                let own = self::parts("PutItem", &put);
                let part = |name: &str| own.get(name).cloned().unwrap_or("anything".into());
                format!("{} if {} [{}]", part("table"), part("condition"), part("item"))
            };
            parts.insert("puts", puts.map(put).collect::<Vec<_>>().join("; "));
        }
        "BatchGetItem" => {
            for (table, asked) in request["RequestItems"].as_object().into_iter().flatten() {
                let mut keys: Vec<String> = asked["Keys"].as_array().into_iter().flatten().map(key).collect();
                keys.sort();
                let fresh = if asked["ConsistentRead"].as_bool().unwrap_or(false) { "strong" } else { "" };
                parts.extend([("table", table.clone()), ("key", keys.join(", ")), ("fresh", fresh.to_owned())]);
            }
        }
        "CreateTable" => {
            let indexes: Vec<String> = request["GlobalSecondaryIndexes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|index| format!("{} {} {}", index["IndexName"], index["KeySchema"], index["Projection"]["ProjectionType"]))
                .collect();
            parts.insert("keys", request["KeySchema"].to_string());
            parts.insert("attributes", sorted(&request["AttributeDefinitions"]));
            parts.insert("indexes", indexes.join(" "));
            parts.insert("billing", text("BillingMode"));
        }
        _ => {}
    }
    parts.retain(|_, part| !part.is_empty());
    parts
}

fn shown(api: &str, request: &Json) -> String {
    let parts = parts(api, request);
    let part = |name: &str| parts.get(name).map(|part| format!(" {part}")).unwrap_or_default();
    format!("{api}{}{}{}{}", part("table"), part("key"), part("keys"), part("fresh"))
}

/// The event that Sekiban appended under a key.
const UNDER_KEY: &str = "6e2dd568-1096-875e-a773-5a8b3bd44217";

/// The operations of `requests.json`, each of which is compared once.
struct Requests {
    /// What ours has under its key, for what theirs has under another.
    under_key: String,
    rest: BTreeMap<String, Vec<(String, Json)>>,
}

impl Requests {
    fn recorded() -> Requests {
        let call = |request: &Json| (request["api"].as_str().expect("api").to_owned(), request["body"].clone());
        let operation = |one: &Json| {
            let calls = one["requests"].as_array().expect("requests").iter().map(call).collect();
            (one["operation"].as_str().expect("a name").to_owned(), calls)
        };
        Requests {
            under_key: UNDER_KEY.into(),
            rest: golden("requests")["operations"].as_array().expect("operations").iter().map(operation).collect(),
        }
    }

    /// Each of Sekiban's calls is among ours, part for part, but for the differences that are listed (`CALL PART: theirs -> ours`), those that ours
    /// leaves out (`- CALL`) and those that it makes besides (`+ CALL`). What is listed and not so is as wrong as what is so and not listed.
    #[track_caller]
    fn compare(&mut self, operation: &str, ours: Vec<Call>, differences: &[&str]) {
        let theirs = self.rest.remove(operation).expect(operation);
        let theirs_is = |call: Call| {
            let text = call.request.to_string().replace(&self.under_key, UNDER_KEY);
            Call { request: serde_json::from_str(&text).expect("JSON"), ..call }
        };
        let mut ours: Vec<Option<Call>> = ours.into_iter().map(theirs_is).map(Some).collect();
        let mut found = BTreeSet::new();
        for (api, request) in theirs {
            let theirs = parts(&api, &request);
            let is_it = |call: &Option<Call>| {
                call.as_ref().is_some_and(|call| {
                    let ours = parts(&call.api, &call.request);
                    let same = |name: &str| ours.get(name) == theirs.get(name);
                    call.api == api && same("table") && same("index") && (api != "GetItem" || same("key"))
                })
            };
            let Some(call) = ours.iter().position(is_it).and_then(|at| ours[at].take()) else {
                found.insert(format!("- {}", shown(&api, &request)));
                continue;
            };
            let ours = parts(&call.api, &call.request);
            for name in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
                let part = |parts: &BTreeMap<&str, String>| parts.get(*name).cloned().unwrap_or("none".into());
                if part(&theirs) != part(&ours) {
                    found.insert(format!("{api} {name}: {} -> {}", part(&theirs), part(&ours)));
                }
            }
        }
        found.extend(ours.into_iter().flatten().map(|call| format!("+ {}", shown(&call.api, &call.request))));
        let listed: BTreeSet<String> = differences.iter().map(|difference| (*difference).to_owned()).collect();
        assert!(
            found == listed,
            "{operation}:
  found {found:#?}
  listed {listed:#?}"
        );
    }
}

/// A head is read before the rows of its tag: what stands at or below it is whole.
const HEAD: &str = "+ GetItem SekibanTags SERVICE#default#HEAD#Student:a @HEAD";
/// The largest number of shards that was ever recorded.
const SHARDS: &str = "+ GetItem Sekiban-side strong";
/// Whether large commits are listed, of which an index may show a part.
const LIST: &str = "+ Query SekibanEvents pk = SERVICE#default#COMMITS strong";
/// Before a write, the last row of a tag: it may be Sekiban's, above the head.
const LAST_ROW: &str = "+ Query SekibanTags pk = SERVICE#default#TAG#Student:a strong";
/// What decides on a state is what is there.
const STATES: [&str; 3] = [
    "Query fresh: none -> strong",
    "Query limit: 1000 -> none",
    "Query filter: attribute_not_exists(documentType) OR documentType = projectionState -> none",
];

/// `requests.json` was recorded with these, by its default options: the last event of `Student:a` is under a key.
#[tokio::test]
async fn each_operation_makes_the_calls_that_sekiban_makes_and_those_that_heads_need() {
    let bench = Bench::embedded();
    let tap = Tap::on(bench.http());
    let mut requests = Requests::recorded();
    let published = fencepost::sekiban::Settings::default();
    let builder = bench.builder("").settings(&published).expect("settings").http_client(tap.http_client());
    let sekiban = open(builder).await.sekiban().expect("sekiban");
    requests.compare("first call of any method with AutoCreateTables (tables absent)", tap.take(), &[]);
    let at = |n: u64| id(&format!("06392179278602445{n}000144856799"));
    let known: Uuid = "0198894f-9a63-7c21-8f0e-000000000385".parse().expect("an id");
    let student = tag("Student:a");
    // Once, so that what is looked at once is behind.
    sekiban.write(&[(at(1), event("{}", &["Room:x"]).id(Uuid::from_u128(1)))], WriteOptions::default()).await.expect("writes");
    tap.take();
    let meta = Metadata { causation: Some("c".into()), correlation: Some("d".into()), user: Some("u".into()), ..Metadata::default() };
    let given = event("{}", &["Student:a", "ClassRoom:b"]).id(known).meta(meta.clone());
    sekiban.write(&[(at(6), given)], WriteOptions::default()).await.expect("writes");
    let calls = tap.take();
    let transaction = calls.iter().find(|call| call.api == "TransactWriteItems").expect("one transaction").request.clone();
    assert_eq!(transaction["ClientRequestToken"].as_str().map(str::len), Some(36));
    requests.compare(
        "WriteSerializableEvents: one event, two tags",
        calls,
        &[
            "+ GetItem SekibanTags SERVICE#default#HEAD#ClassRoom:b @HEAD strong",
            "+ GetItem SekibanTags SERVICE#default#HEAD#Student:a @HEAD strong",
            "+ Query SekibanTags pk = SERVICE#default#TAG#ClassRoom:b strong",
            LAST_ROW,
        ],
    );
    let unique = async || sekiban.append_if_unique("key-1", event("{}", &["Student:a"]).meta(meta.clone()), None).await.expect("appends");
    let Unique::Appended { ids, .. } = unique().await else { panic!() };
    requests.under_key = ids[0].to_string();
    requests.compare("AppendIfUnique: first", tap.take(), &[LAST_ROW]);
    assert!(matches!(unique().await, Unique::AlreadyCommitted { .. }));
    // The winner comes with the failed condition, where Sekiban reads it.
    let winner = format!("- GetItem SekibanEvents SERVICE#default#EVENT#{UNDER_KEY} @EVENT#{UNDER_KEY} strong");
    requests.compare("AppendIfUnique: repeated", tap.take(), &[LAST_ROW, &winner]);

    // Once, shards that nobody named are looked for; then the list of large commits, and the index.
    sekiban.latest().await.expect("latest");
    assert_eq!(tap.take().iter().filter(|call| call.api == "Query").count(), 4 + 1 + 1);
    let everything = async |since, limit| sekiban.all_since(since, limit).try_collect::<Vec<_>>().await.expect("all").len();
    assert_eq!(everything(None, None).await, 3);
    requests.compare("ReadAllSerializableEvents(null)", tap.take(), &[SHARDS, LIST]);
    assert_eq!(everything(Some(at(6)), Some(1)).await, 1);
    // The limit is pushed down, with one more that tells whether the id goes on; behind an id is from the next one on.
    let keys = "Query keys: gsi1pk = SERVICE#default#ALL_EVENTS AND sortableUniqueId > 063921792786024456000144856799 -> \
                gsi1pk = SERVICE#default#ALL_EVENTS AND sortableUniqueId >= 063921792786024456000144856800";
    requests.compare("ReadAllSerializableEvents(since, maxCount 1)", tap.take(), &[SHARDS, LIST, keys, "Query limit: 1000 -> 2"]);
    // Rows younger than the safe window are read again strongly: a replica may have a part of a commit. Those of an hour ago are not.
    assert_eq!(sekiban.by_tag_since(&student, None).try_collect::<Vec<_>>().await.expect("by tag").len(), 2);
    let strong = |call: &Call| call.api == "Query" && call.request["ConsistentRead"] == true;
    assert_eq!(tap.take().iter().filter(|call| strong(call)).count(), 1);
    let later = Env::seeded(1);
    later.set_clock(Env::system().now() + Duration::from_secs(3600));
    let builder = bench.builder("").settings(&published).expect("settings").env(later).http_client(tap.http_client());
    let old = open(builder).await.sekiban().expect("sekiban");
    tap.take();
    let by_tag = async |since| old.by_tag_since(&student, since).try_collect::<Vec<_>>().await.expect("by tag").len();
    assert_eq!(by_tag(None).await, 2);
    requests.compare("ReadSerializableEventsByTag(tag)", tap.take(), &[HEAD]);
    assert_eq!(by_tag(Some(at(6))).await, 1);
    // W10: theirs reads the event at `since` once more.
    let of = |id: &str| format!("SERVICE#default#EVENT#{id} @EVENT#{id}");
    let events = format!("BatchGetItem key: {}, {} -> {}", of(&known.to_string()), of(UNDER_KEY), of(UNDER_KEY));
    let rows = "Query keys: pk = SERVICE#default#TAG#Student:a AND sk > 063921792786024456000144856799# -> \
                pk = SERVICE#default#TAG#Student:a AND sk > 063921792786024456000144856799$";
    requests.compare("ReadSerializableEventsByTag(tag, since)", tap.take(), &[HEAD, &events, rows]);
    sekiban.event(&known).await.expect("event");
    requests.compare("ReadSerializableEvent(id)", tap.take(), &[]);
    old.tag_stream(&student, None).try_collect::<Vec<_>>().await.expect("rows");
    requests.compare("ReadTags", tap.take(), &[HEAD]);
    old.latest_of(&student).await.expect("latest");
    requests.compare("GetLatestTag", tap.take(), &[HEAD]);
    old.tag_exists(&student).await.expect("exists");
    // The last row does as well as the first.
    requests.compare("TagExists", tap.take(), &[HEAD, "Query order: none -> descending"]);
    sekiban.count(None).await.expect("count");
    let settled = "Query filter: none -> attribute_not_exists(fencepostCommit) OR timestamp < (now)";
    requests.compare("GetEventCount(null)", tap.take(), &[SHARDS, LIST, settled]);
    sekiban.count(Some(at(6))).await.expect("count");
    requests.compare("GetEventCount(since)", tap.take(), &[SHARDS, LIST, settled]);
    sekiban.latest().await.expect("latest");
    // Units are those of whole items, whatever is asked of them.
    requests.compare(
        "GetLatestSortableUniqueId",
        tap.take(),
        &[SHARDS, LIST, "Query attributes read: sortableUniqueId -> none", "Query limit: 1 -> 2"],
    );
    sekiban.scan_tags().await.expect("tags");
    // Services are told by keys, since rows of others may lack the attribute; pages are as large as they can be.
    let whole = [LIST, "Scan filter: serviceId = default -> none", "Scan fresh: none -> strong", "Scan limit: 1000 -> none"];
    requests.compare("GetAllTags()", tap.take(), &whole);
    sekiban.tags_of_group("Student").try_collect::<Vec<_>>().await.expect("group");
    requests.compare("GetAllTags(group)", tap.take(), &[LIST, "Query filter: serviceId = default -> none", "Query limit: 1000 -> none"]);

    sekiban.projection_row("P", "1").await.expect("reads");
    requests.compare("GetLatestForVersion", tap.take(), &["GetItem fresh: none -> strong"]);
    let row = |name: &str| {
        let folded = fencepost::sekiban::Folded { projector: name.into(), version: "1".into(), ..Default::default() };
        let row = sekiban.row_of(&folded, b"{}").expect("row");
        ProjectionRow { build_host: Some("silo".into()), ..row }
    };
    // Once more: a table is looked at once.
    sekiban.put_row(&row("other")).await.expect("writes");
    tap.take();
    sekiban.put_row(&row("P")).await.expect("writes");
    // W16: one that is held by compare-and-set is not written over.
    let free = "PutItem condition: none -> attribute_not_exists(pk) OR (attribute_exists(pk) AND (attribute_not_exists(generation) OR generation = 0) \
                AND (attribute_not_exists(revision) OR revision = 0) AND (attribute_not_exists(lifecycle) OR lifecycle = 0))";
    requests.compare("UpsertFromStream", tap.take(), &[free]);
    sekiban.create_row(&row("Q")).await.expect("writes");
    // Sekiban reads what it wrote; a failed condition would have told.
    let read = "- GetItem SekibanProjectionStates SERVICE#default#PROJECTOR#Q @VERSION#1 strong";
    requests.compare("ConditionalUpsert(absent)", tap.take(), &[read]);
    sekiban.create_row(&row("R")).await.expect("writes");
    tap.take();
    let held = Control { revision: 1, ..Control::default() };
    assert!(matches!(sekiban.replace_row(&row("R"), held).await.expect("writes"), RowWrite::Committed(_)));
    // A missing attribute is 0.
    let held_is = "generation = 0 AND revision = 1 AND lifecycle = 0 -> attribute_exists(pk) AND (attribute_not_exists(generation) OR generation = 0) \
                   AND revision = 1 AND (attribute_not_exists(lifecycle) OR lifecycle = 0)";
    let put = format!("PutItem condition: {held_is}");
    requests.compare("ConditionalUpsert(exact active slot): rejected by the service, see status", tap.take(), &[&put]);
    sekiban.invalidate_row("Q", "1", held).await.expect("writes");
    let update = format!("UpdateItem condition: {held_is}");
    requests.compare("InvalidateWithTombstone(exact active slot)", tap.take(), &[read, &update]);
    let tombstone = Control { generation: 1, revision: 2, tombstoned: true };
    assert!(matches!(sekiban.replace_row(&row("Q"), tombstone).await.expect("writes"), RowWrite::Committed(_)));
    let tombstone = "PutItem condition: generation = 1 AND revision = 2 AND lifecycle = 1 -> \
                     attribute_exists(pk) AND generation = 1 AND revision = 2 AND lifecycle = 1";
    requests.compare("CommitRebuilt(exact tombstone slot): rejected by the service, see status", tap.take(), &[tombstone]);
    let beat = |sequence| ProjectionHeartbeat {
        projector: "P".into(),
        version: "1".into(),
        cluster: "c".into(),
        activation: "a".into(),
        sequence,
        phase: "active".into(),
        recorded_at: "2026-01-01T00:00:00Z".into(),
        ..ProjectionHeartbeat::default()
    };
    assert!(sekiban.put_heartbeat(&beat(1), 0).await.expect("writes"));
    requests.compare(
        "status UpsertAsync(expected 0)",
        tap.take(),
        &["PutItem condition: attribute_not_exists(pk) -> attribute_not_exists(sequence)"],
    );
    assert!(sekiban.put_heartbeat(&beat(2), 1).await.expect("writes"));
    requests.compare("status UpsertAsync(expected 1)", tap.take(), &[]);
    assert_eq!(sekiban.heartbeats_of("P").await.expect("reads").len(), 1);
    // One partition, not the whole table.
    let listed = ["- Scan SekibanProjectionStates", "+ Query SekibanProjectionStates pk = SERVICE#default#PROJECTOR#P strong"];
    requests.compare("status ListAsync(projector, version)", tap.take(), &listed);
    sekiban.newest_row("P").await.expect("reads");
    requests.compare("GetLatestAnyVersion", tap.take(), &STATES);
    sekiban.scan_rows().await.expect("lists");
    let whole = [
        "Scan filter: serviceId = default AND (attribute_not_exists(documentType) OR documentType = projectionState) -> none",
        "Scan fresh: none -> strong",
        "Scan limit: 1000 -> none",
    ];
    requests.compare("ListAll", tap.take(), &whole);
    assert!(sekiban.delete_row("P", "1").await.expect("deletes"));
    // Whether it was there is told by the condition.
    let read = "- GetItem SekibanProjectionStates SERVICE#default#PROJECTOR#P @VERSION#1 strong";
    requests.compare("DeleteAsync", tap.take(), &[read, "DeleteItem condition: none -> projectorName = P"]);
    assert_eq!(sekiban.delete_rows_of("Q").await.expect("deletes"), 1);
    let all = [&STATES[..], &["DeleteItem condition: none -> projectorName = Q"]].concat();
    requests.compare("DeleteAllAsync(projector)", tap.take(), &all);
    assert_eq!(requests.rest.keys().collect::<Vec<_>>(), Vec::<&String>::new(), "every operation is compared");
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
    assert_eq!(between.calls("Query") - before, 1 + 1, "a look at the list; and not tried again");
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
    // Once, shards that nobody named are looked for; then the list of large commits, and the index.
    sekiban.latest().await.expect("latest");
    assert_eq!(tap.count("Query"), 4 + 1 + 1);
    tap.take();
    let (mut since, mut met) = (None, 0);
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(500)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len() as u64;
        since = SortableId::of(&last.position);
    }
    assert_eq!(met, count);
    let queries = tap.take().into_iter().filter(|call| call.api == "Query");
    let (queries, looks): (Vec<Call>, Vec<Call>) = queries.partition(|call| call.request["IndexName"] == "GSI1");
    // Before each page, whether large commits are listed: none is.
    let looked: f64 = looks.iter().map(|call| call.answer["ConsumedCapacity"]["CapacityUnits"].as_f64().expect("units")).sum();
    assert_eq!((looks.len(), looked), (queries.len(), queries.len() as f64));
    let items: u64 = queries.iter().map(|call| call.answer["Count"].as_u64().expect("count")).sum();
    let units: f64 = queries.iter().map(|call| call.answer["ConsumedCapacity"]["CapacityUnits"].as_f64().expect("units")).sum();
    // One more of each page but the last, which tells that no id goes on there.
    assert_eq!(
        (items, queries.len() as u64),
        (count + count / 500 - 1, count.div_ceil(500) + 1),
        "each once, one more of each page that is not the last, and one page that finds nothing"
    );
    let bytes: usize = stored(0).iter().map(|(name, value)| name.len() + value.as_s().map_or(3, String::len)).sum();
    // A page of them, eventually consistent: half a unit for each 4 KB.
    let page = (501 * bytes).div_ceil(4096) as f64 / 2.0;
    let pages = (count / 500) as f64;
    assert!((units - pages * page).abs() <= 1.0, "{units} units, expected {} of {bytes} bytes each", pages * page);
}
