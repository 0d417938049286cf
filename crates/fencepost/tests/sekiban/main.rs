//! Sekiban's tables: what the real Sekiban wrote is read, what it would write is written, and what it does not hold is held.
//!
//! Over 600 lines because the golden tables, the faults and the crashes share one bench, and another binary would be linked for each.
//!
//! `golden/sekiban/*.json` are tables that Sekiban itself wrote; each names the calls that made it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

#[path = "../bare_sdk/mod.rs"]
mod bare_sdk;
mod bucket;
mod following;
mod indexed;
mod once;
mod settings;
mod snapshots;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use base64::Engine as _;
use fencepost::moving::Copy;
use fencepost::sekiban::{
    Control, Payload, ProjectionHeartbeat, ProjectionRow, RowBody, RowWrite, Sekiban, SortableId, Unique, WriteOptions, payload,
};
use fencepost::testing::oracle::{self, Oracle};
use fencepost::testing::{Chances, Fault, Faults, Gate, Keep, Lag, Rule};
use fencepost::{
    After, Append, Checkpoint, CommitId, Delivery, Engine, Env, Error, Event, EventLogExt, From, Metadata, Query, ReadOptions, Recorded,
    Refused, Result, Store, Tag, Timeouts,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde_json::Value as Json;
use support::open;
use uuid::Uuid;

type Item = HashMap<String, AttributeValue>;

const TABLES: [&str; 3] = ["SekibanEvents", "SekibanTags", "SekibanProjectionStates"];
/// What the clock writes.
const CLOCK: [&str; 2] = ["timestamp", "createdAt"];

fn golden(name: &str) -> Json {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sekiban");
    let file = std::fs::read_dir(&folder).expect("golden files").map(|entry| entry.expect("entry").path());
    let file = file.into_iter().find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))).expect(name);
    serde_json::from_slice(&std::fs::read(file).expect("readable")).expect("json")
}

fn items(golden: &Json, table: &str) -> Vec<Json> {
    golden["tables"][table].as_array().cloned().unwrap_or_default()
}

fn attribute(json: &Json) -> AttributeValue {
    let (kind, value) = json.as_object().and_then(|map| map.iter().next()).expect("a typed value");
    match (kind.as_str(), value) {
        ("S", Json::String(text)) => AttributeValue::S(text.clone()),
        ("N", Json::String(number)) => AttributeValue::N(number.clone()),
        ("BOOL", Json::Bool(so)) => AttributeValue::Bool(*so),
        ("L", Json::Array(all)) => AttributeValue::L(all.iter().map(attribute).collect()),
        other => panic!("{other:?}"),
    }
}

fn item(json: &Json) -> Item {
    json.as_object().expect("an item").iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn text<'a>(item: &'a Json, name: &str) -> &'a str {
    item[name]["S"].as_str().unwrap_or_default()
}

fn tags_of(item: &Json) -> Vec<String> {
    item["tags"]["L"].as_array().into_iter().flatten().map(|tag| tag["S"].as_str().expect("tag").to_owned()).collect()
}

/// Tables of Sekiban's on an engine of their own, or under a name of their own on the endpoint that `FENCEPOST_TEST_ENDPOINT` names.
struct Bench {
    http: SharedHttpClient,
    client: Client,
    /// What stands for `Sekiban` in the names of the tables.
    prefix: String,
    endpoint: Option<String>,
}

impl Bench {
    fn new() -> Bench {
        match std::env::var("FENCEPOST_TEST_ENDPOINT") {
            Ok(endpoint) => {
                let http = aws_smithy_http_client::Builder::new().build_http();
                // As the chain finds them for the store: an endpoint may keep regions and accounts apart.
                let var = |name: &str| std::env::var(name).expect(name);
                let keys = Credentials::new(var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY"), None, None, "test");
                let config = bare_sdk::client(http.clone()).config().to_builder().endpoint_url(&endpoint).credentials_provider(keys);
                let config = config.region(Region::new(var("AWS_REGION"))).build();
                let prefix = format!("S{}", Env::system().new_id().simple());
                Bench { http, client: Client::from_conf(config), prefix, endpoint: Some(endpoint.trim_end_matches('/').into()) }
            }
            Err(_) => Bench::embedded(),
        }
    }

    /// On the embedded engine whatever the environment says: for units, and for clocks that stand.
    fn embedded() -> Bench {
        let http = Engine::memory().expect("engine").keep_tokens().http_client();
        Bench { client: bare_sdk::client(http.clone()), http, prefix: "Sekiban".into(), endpoint: None }
    }

    fn http(&self) -> SharedHttpClient {
        self.http.clone()
    }

    fn builder(&self, more: &str) -> fencepost::Builder {
        let url = match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{}?layout=sekiban{more}", self.prefix),
            None => format!("memory:?table={}&layout=sekiban{more}", self.prefix),
        };
        Store::builder(&url).expect("url").create(true).http_client(self.http())
    }

    async fn store(&self, more: &str) -> Store {
        open(self.builder(more)).await
    }

    async fn sekiban(&self, more: &str) -> Sekiban {
        self.store(more).await.sekiban().expect("sekiban")
    }

    /// The table that stands for one of Sekiban's names.
    fn table(&self, name: &str) -> String {
        name.replacen("Sekiban", &self.prefix, 1)
    }

    /// What Sekiban wrote, put as it is.
    async fn load(&self, golden: &Json) {
        for table in TABLES {
            for json in items(golden, table) {
                self.put(table, item(&json)).await;
            }
        }
    }

    async fn put(&self, table: &str, item: Item) {
        self.client.put_item().table_name(self.table(table)).set_item(Some(item)).send().await.expect("put");
    }

    async fn dump(&self, table: &str) -> Vec<Item> {
        self.client.scan().table_name(self.table(table)).send().await.expect("scan").items().to_vec()
    }

    async fn heads(&self) -> BTreeMap<String, (String, String, bool)> {
        let heads = self.dump("SekibanTags").await.into_iter().filter(|item| item["sk"] == AttributeValue::S("HEAD".into()));
        let text = |item: &Item, name: &str| item[name].as_s().or(item[name].as_n()).expect(name).clone();
        heads.map(|head| (text(&head, "pk"), (text(&head, "pos"), text(&head, "cnt"), head.contains_key("pending")))).collect()
    }
}

fn service_of(golden: &Json) -> String {
    match items(golden, "SekibanEvents").first().map(|item| text(item, "serviceId").to_owned()) {
        Some(service) if service.is_empty() => "&keys=plain".into(),
        Some(service) => format!("&service={service}"),
        None => String::new(),
    }
}

fn id(text: &str) -> SortableId {
    text.parse().expect("30 digits")
}

fn tag(name: &str) -> Tag {
    Tag::new(name).expect("a tag")
}

#[track_caller]
fn same(event: &Recorded, stored: &Json) {
    assert_eq!(event.id.to_string(), text(stored, "eventId"));
    assert_eq!(SortableId::of(&event.position), Some(id(text(stored, "sortableUniqueId"))));
    assert_eq!(event.event_type.as_str(), text(stored, "eventType"));
    assert_eq!(event.data, text(stored, "payload").as_bytes());
    let mut tags = tags_of(stored);
    tags.sort();
    assert_eq!(event.tags.iter().map(Tag::as_str).collect::<Vec<_>>(), tags);
    let meta = |field: &Option<String>| field.clone().unwrap_or_default();
    assert_eq!(meta(&event.meta.causation), text(stored, "causationId"));
    assert_eq!(meta(&event.meta.correlation), text(stored, "correlationId"));
    assert_eq!(meta(&event.meta.user), text(stored, "executedUser"));
    assert_eq!(event.recorded_at, text(stored, "timestamp").parse().expect("a time"));
}

/// Every golden table: each event by id, by each of its tags, among all; counts, groups, latest; and in the feed.
#[tokio::test]
async fn what_sekiban_wrote_is_read_to_the_same_events_and_tags() {
    for name in ["02", "03", "04", "05", "06", "07", "08", "09", "13", "14", "15", "17", "19"] {
        let golden = golden(name);
        let mut events = items(&golden, "SekibanEvents");
        events.sort_by_key(|event| text(event, "sortableUniqueId").to_owned());
        let bench = Bench::new();
        let shards = if name == "07" { "&shards=4" } else { "" };
        let store = bench.store(&format!("{}{shards}", service_of(&golden))).await;
        bench.load(&golden).await;
        let sekiban = store.sekiban().expect("sekiban");
        let all: Vec<Recorded> = sekiban.all_since(None, None).try_collect().await.expect(name);
        assert_eq!(all.len(), events.len(), "{name}");
        all.iter().zip(&events).for_each(|(event, stored)| same(event, stored));
        assert_eq!(sekiban.count(None).await.expect("count"), events.len() as u64);
        assert_eq!(sekiban.latest().await.expect("latest"), events.last().map(|event| id(text(event, "sortableUniqueId"))));
        let mut by_tag: BTreeMap<String, Vec<&Json>> = BTreeMap::new();
        for event in &events {
            let one = sekiban.event(&text(event, "eventId").parse().expect("id")).await.expect("read").expect("there");
            same(&one, event);
            tags_of(event).into_iter().for_each(|tag| by_tag.entry(tag).or_default().push(event));
        }
        for (name, events) in &by_tag {
            let tag = tag(name);
            let read: Vec<Recorded> = sekiban.by_tag_since(&tag, None).try_collect().await.expect("by tag");
            assert_eq!(read.len(), events.len());
            read.iter().zip(events).for_each(|(event, stored)| same(event, stored));
            let rows: Vec<_> = sekiban.tag_stream(&tag, None).try_collect().await.expect("rows");
            assert_eq!(rows, read.iter().map(|event| (SortableId::of(&event.position).expect("id"), event.id)).collect::<Vec<_>>());
            assert_eq!(sekiban.latest_of(&tag).await.expect("latest"), rows.last().map(|(at, _)| *at));
            assert!(sekiban.tag_exists(&tag).await.expect("exists"));
            // The same by the log.
            let sourced = store.log().expect("log").source(&Query::of_tag(tag.clone()), None).await.expect("source").events;
            assert_eq!(sourced, read);
        }
        assert!(!sekiban.tag_exists(&tag("none:there")).await.expect("exists"));
        let groups: BTreeSet<String> = by_tag.keys().map(|tag| tag.split(':').next().expect("group").to_owned()).collect();
        let mut infos = Vec::new();
        for group in groups.iter().filter(|group| !group.is_empty()) {
            infos.extend(sekiban.tags_of_group(group).try_collect::<Vec<_>>().await.expect("group"));
        }
        let mut scanned = sekiban.scan_tags().await.expect("tags");
        scanned.retain(|info| !info.group.is_empty());
        assert_eq!(infos, scanned);
        for info in infos {
            let events = &by_tag[&info.tag];
            let ends = [events.first(), events.last()].map(|event| id(text(event.expect("some"), "sortableUniqueId")));
            assert_eq!((info.events, [info.first, info.last]), (events.len() as u64, ends));
        }
        let verified = store.verify(&|_| ()).await.expect("verify");
        assert_eq!((verified.findings, verified.events), (vec![], events.len() as u64), "{name}");
        let fed = fed(&store).await;
        assert_eq!(fed, all, "{name}");
    }
}

/// The next event that a feed hands over; one that hands over nothing for so long has lost it.
async fn next_event(feed: &mut BoxStream<'static, Result<Delivery>>) -> (Recorded, Checkpoint) {
    let next = async {
        loop {
            if let Delivery::Event { event, checkpoint } = feed.next().await.expect("never ends").expect("delivers") {
                return (*event, checkpoint);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), next).await.expect("an event comes")
}

async fn fed(store: &Store) -> Vec<Recorded> {
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let mut met = Vec::new();
    loop {
        match feed.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => met.push(*event),
            _ => return met,
        }
    }
}

/// The call that made it: the event as it was given.
fn given(stored: &Json) -> (SortableId, Event) {
    let some = |name: &str| Some(text(stored, name).to_owned()).filter(|text| !text.is_empty());
    let meta =
        Metadata { causation: some("causationId"), correlation: some("correlationId"), user: some("executedUser"), ..Metadata::default() };
    let event = Event::new(text(stored, "eventType"), text(stored, "payload").to_owned()).expect("event");
    let event = tags_of(stored).iter().fold(event, |event, tag| event.tag(tag).expect("tag"));
    (id(text(stored, "sortableUniqueId")), event.id(text(stored, "eventId").parse().expect("id")).meta(meta))
}

fn comparable(mut item: Item) -> BTreeMap<String, AttributeValue> {
    item.retain(|name, _| !CLOCK.contains(&name.as_str()));
    item.into_iter().collect()
}

fn set(items: impl Iterator<Item = Item>) -> Vec<BTreeMap<String, AttributeValue>> {
    let mut all: Vec<_> = items.map(comparable).collect();
    all.sort_by_key(|item| (item["pk"].as_s().expect("pk").clone(), item["sk"].as_s().expect("sk").clone()));
    all
}

#[tokio::test]
async fn the_same_calls_write_the_same_items_and_heads() {
    for name in ["02", "03", "04", "05", "06", "07", "08", "09", "13", "19"] {
        let golden = golden(name);
        let mut events = items(&golden, "SekibanEvents");
        events.sort_by_key(|event| text(event, "sortableUniqueId").to_owned());
        let bench = Bench::new();
        let more = match name {
            "07" => "&shards=4",
            "08" => "&large=chunked",
            _ => "",
        };
        let sekiban = bench.sekiban(&format!("{}{more}", service_of(&golden))).await;
        let calls: Vec<_> = events.iter().map(given).collect();
        if name == "09" {
            let (at, event) = calls[0].clone();
            let first = sekiban.append_if_unique("order-42", event, Some(at)).await.expect("appends");
            assert!(
                matches!(&first, Unique::Appended { ids, .. } if ids[0].to_string() == text(&golden_root(&golden), "derivedEventId")),
                "{first:?}"
            );
        } else {
            let written = sekiban.write(&calls, WriteOptions::default()).await.expect(name);
            assert_eq!((written.positions.len(), written.duplicates.len()), (calls.len(), 0));
            let versions: BTreeMap<String, u64> = written.tags.iter().map(|tag| (tag.tag.to_string(), tag.version)).collect();
            for (tag, version) in &versions {
                assert_eq!(*version, calls.iter().filter(|(_, event)| event.tags().iter().any(|t| t.as_str() == tag)).count() as u64);
            }
            // Again: duplicates, skipped as such.
            let again = sekiban.write(&calls, WriteOptions::default()).await.expect(name);
            assert_eq!((again.positions, again.duplicates.len()), (written.positions, calls.len()), "{name}");
        }
        let ours = bench.dump("SekibanTags").await;
        let (heads, rows): (Vec<Item>, Vec<Item>) = ours.into_iter().partition(|item| item["sk"] == AttributeValue::S("HEAD".into()));
        for (table, ours) in [("SekibanEvents", bench.dump("SekibanEvents").await), ("SekibanTags", rows)] {
            assert_eq!(set(ours.into_iter()), set(items(&golden, table).iter().map(item)), "{name} {table}");
        }
        let tags: BTreeSet<String> = events.iter().flat_map(tags_of).collect();
        assert_eq!(heads.len(), tags.len(), "{name}");
        for head in heads {
            assert!(["eventId", "tagGroup", "serviceId"].iter().all(|name| !head.contains_key(*name)), "no read of Sekiban's meets it");
        }
    }
}

fn golden_root(golden: &Json) -> Json {
    serde_json::json!({"derivedEventId": {"S": golden["derivedEventId"]}})
}

#[tokio::test]
async fn a_payload_that_is_no_text_is_refused_and_so_is_a_place_behind_which_others_stand() {
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let event = |n: u128| Event::new("T", "{}").and_then(|e| e.tag("a:1")).expect("event").id(Uuid::from_u128(n));
    let mangled = Event::new("T", b"\x7b\xff\xfe\x7d".to_vec()).expect("event").id(Uuid::from_u128(9));
    let at = |n: u64| id(&format!("063921792785{n:07}00144769402"));
    let refused = sekiban.write(&[(at(1), mangled)], WriteOptions::default()).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "event body", .. }))), "{refused:?}");
    sekiban.write(&[(at(5), event(1))], WriteOptions::default()).await.expect("writes");
    let behind = sekiban.write(&[(at(4), event(2))], WriteOptions::default()).await;
    assert!(matches!(behind, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{behind:?}");
    let other = sekiban.write(&[(at(6), event(1).meta(Metadata::default()))], WriteOptions::default()).await.expect("a duplicate");
    assert_eq!(other.duplicates, [Uuid::from_u128(1)]);
    assert_eq!(sekiban.count(None).await.expect("count"), 1);
}

/// W10: `since` is exclusive, on every read.
#[tokio::test]
async fn since_is_exclusive_on_every_read() {
    for more in ["", "&shards=4"] {
        let bench = Bench::new();
        let sekiban = bench.sekiban(more).await;
        let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
        let events: Vec<_> = (1..=3)
            .map(|n| (at(n * 10), Event::new("T", n.to_string()).and_then(|e| e.tag("a:1")).expect("event").id(Uuid::from_u128(n.into()))))
            .collect();
        sekiban.write(&events, WriteOptions::default()).await.expect("writes");
        let vectors = [
            (None, 3),
            (Some(SortableId::MIN), 3),
            (Some(at(9)), 3),
            (Some(at(10)), 2),
            (Some(id("063921792785123401000144769401")), 3),
            (Some(id("063921792785123401000144769403")), 2),
            (Some(at(11)), 2),
            (Some(at(20)), 1),
            (Some(at(30)), 0),
            (Some(at(31)), 0),
            (Some(SortableId::MAX), 0),
        ];
        for (since, expected) in vectors {
            let labels = |events: Vec<Recorded>| events.iter().map(|e| String::from_utf8_lossy(&e.data).into_owned()).collect::<Vec<_>>();
            let wanted: Vec<String> = (4 - expected..=3).map(|n: usize| n.to_string()).collect();
            let all = sekiban.all_since(since, None).try_collect().await.expect("all");
            assert_eq!(labels(all), wanted, "all since {since:?}");
            let limited = sekiban.all_since(since, Some(1)).try_collect().await.expect("all");
            assert_eq!(labels(limited), wanted[..wanted.len().min(1)], "one since {since:?}");
            let by_tag = sekiban.by_tag_since(&tag("a:1"), since).try_collect().await.expect("by tag");
            assert_eq!(labels(by_tag), wanted, "by tag since {since:?}");
            let rows: Vec<_> = sekiban.tag_stream(&tag("a:1"), since).try_collect().await.expect("rows");
            assert_eq!(rows.len(), expected, "rows since {since:?}");
            assert_eq!(sekiban.count(since).await.expect("count"), expected as u64, "count since {since:?}");
        }
    }
}

fn event(label: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new("T", label.to_owned()).expect("event"), |event, tag| event.tag(tag).expect("tag"))
}

fn labels(events: &[Recorded]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8_lossy(&event.data).into_owned()).collect()
}

/// 3(1+T) for the event and its rows, transactions and indexes included, and 2 for each head; a second head costs no more.
#[tokio::test]
async fn an_event_costs_what_it_costs_sekiban_and_two_units_for_each_head() {
    let bench = Bench::embedded();
    let log = bench.store("").await.log().expect("log");
    for (tags, write) in [(&[][..], 2.0), (&["a:1"], 6.0 + 2.0), (&["a:1", "b:1"], 9.0 + 4.0), (&["a:1", "b:1", "c:1"], 12.0 + 6.0)] {
        log.append(Append::new([event("{}", tags)])).await.expect("first");
        let done = log.append(Append::new([event("{}", tags)])).await.expect("second");
        assert_eq!(done.units.write, write, "{tags:?}");
        // The last row of each tag is looked at: Sekiban may have written.
        assert_eq!((done.units.read, done.units.requests), (tags.len() as f64, 1 + tags.len() as u64), "{tags:?}");
    }
}

/// Rows that Sekiban wrote without a head count: a decision that did not see them conflicts, and versions go on from them.
#[tokio::test]
async fn rows_without_heads_are_taken_into_account() {
    let golden = golden("04");
    let student = "Student:0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11";
    let bench = Bench::new();
    let store = bench.store("").await;
    let log = store.log().expect("log");
    let query = Query::tag(student).expect("query");
    let empty = log.source(&query, None).await.expect("source").token;
    bench.load(&golden).await;
    let conflict = log.append(Append::new([event("mine", &[student])]).unless(query.clone(), &empty)).await;
    let Err(Error::Conflict(conflict)) = conflict else { panic!("{conflict:?}") };
    assert_eq!(conflict.events.len(), 2);
    let done =
        log.append(Append::new([event("mine", &[student])]).unless(query.clone(), conflict.token.expect("token"))).await.expect("appends");
    assert_eq!(labels(&log.source(&query, None).await.expect("source").events)[2..], ["mine"]);
    let heads = bench.heads().await;
    let head = &heads[&format!("SERVICE#default#HEAD#{student}")];
    assert_eq!((head.1.as_str(), head.2), ("3", false), "two rows without a head, and ours");
    // Once more behind a head: it counts too, and is found by verify.
    let mut row = item(&items(&golden, "SekibanTags")[0]);
    let late = SortableId::of(&done.last().expect("position")).expect("id");
    let after = SortableId::threshold(late.timestamp() + Duration::from_secs(1)).to_string();
    let foreign = Uuid::from_u128(77).to_string();
    let text = |text: String| AttributeValue::S(text);
    row.insert("pk".into(), text(format!("SERVICE#default#TAG#{student}")));
    row.insert("sk".into(), text(format!("{after}#{foreign}")));
    row.extend([
        ("sortableUniqueId".into(), text(after.clone())),
        ("eventId".into(), text(foreign.clone())),
        ("tagString".into(), text(student.into())),
    ]);
    let mut theirs = item(&items(&golden, "SekibanEvents")[0]);
    theirs.extend([("pk".into(), text(format!("SERVICE#default#EVENT#{foreign}"))), ("sk".into(), text(format!("EVENT#{foreign}")))]);
    theirs.extend([("sortableUniqueId".into(), text(after)), ("eventId".into(), text(foreign))]);
    bench.put("SekibanEvents", theirs).await;
    bench.put("SekibanTags", row).await;
    let found = store.verify(&|_| ()).await.expect("verify").findings;
    assert!(found.iter().any(|finding| finding.problem.contains("stand above it")), "{found:?}");
    let conflict = log.append(Append::new([event("mine", &[student])]).unless(query.clone(), done.token.expect("token"))).await;
    assert!(matches!(&conflict, Err(Error::Conflict(conflict)) if conflict.events.len() == 1), "{conflict:?}");
    log.append(Append::new([event("last", &[student])])).await.expect("appends behind it");
    assert_eq!(bench.heads().await[&format!("SERVICE#default#HEAD#{student}")].1, "5");
    assert_eq!(labels(&log.source(&query, None).await.expect("source").events).last().map(String::as_str), Some("last"));
}

#[tokio::test]
async fn one_tenant_never_sees_another() {
    let bench = Bench::new();
    let (one, other) = (bench.store("&service=one").await, bench.store("&service=one-more").await);
    let plain = bench.store("&keys=plain").await;
    for (store, label) in [(&one, "1"), (&other, "2"), (&plain, "3")] {
        let log = store.log().expect("log");
        log.append(Append::new([event(label, &["a:1"])]).unless(Query::tag("a:1").expect("query"), After::Nothing)).await.expect("its own");
        store.sekiban().expect("sekiban").append_if_unique("key", event("unique", &["u:1"]), None).await.expect("its own key");
    }
    for (store, label) in [(&one, "1"), (&other, "2"), (&plain, "3")] {
        let sekiban = store.sekiban().expect("sekiban");
        let events = store.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source");
        assert_eq!(labels(&events.events), [label]);
        assert_eq!(labels(&fed(store).await), [label, "unique"]);
        assert_eq!((sekiban.count(None).await.expect("count"), sekiban.scan_tags().await.expect("tags").len()), (2, 2));
        assert_eq!(sekiban.tags_of_group("a").try_collect::<Vec<_>>().await.expect("group").len(), 1);
        let verified = store.verify(&|_| ()).await.expect("verify");
        assert_eq!((verified.events, verified.findings), (2, vec![]));
    }
    let token = one.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source").token;
    let foreign = other.log().expect("log").unchanged(&token).await;
    assert!(matches!(foreign, Err(Error::Refused(Refused::Foreign { .. }))), "{foreign:?}");
}

/// W7: whatever the number of shards was and is, everything is read.
#[tokio::test]
async fn changing_the_number_of_shards_hides_nothing() {
    let bench = Bench::new();
    let mut written = 0;
    for shards in [1, 4, 8, 2, 1] {
        let store = bench.store(&format!("&shards={shards}")).await;
        for n in 0..10 {
            store.log().expect("log").append(Append::new([event(&n.to_string(), &["a:1"])])).await.expect("append");
            written += 1;
        }
        for other in [1, 3, 8] {
            let reader = bench.store(&format!("&shards={other}")).await;
            assert_eq!(reader.sekiban().expect("sekiban").count(None).await.expect("count"), written);
            let all: Vec<Recorded> = reader.sekiban().expect("sekiban").all_since(None, None).try_collect().await.expect("all");
            assert!(all.len() as u64 == written && all.is_sorted_by_key(|event| event.position));
            assert_eq!(fed(&reader).await, all);
        }
    }
}

#[tokio::test]
async fn under_a_key_an_append_is_done_once() {
    let bench = Bench::new();
    let (one, other) = (bench.sekiban("").await, bench.sekiban("").await);
    let order =
        |body: &str, tags: &[&str]| tags.iter().fold(Event::new("T", body.to_owned()).expect("event"), |e, tag| e.tag(tag).expect("tag"));
    let first = one.append_if_unique("order-42", order(r#"{"a":1,"b":2}"#, &["x:1", "y:1"]), None).await.expect("first");
    let Unique::Appended { ids, positions } = first else { panic!("{first:?}") };
    let again = other.append_if_unique("  order-42 ", order(r#"{"b":2,"a":1}"#, &["y:1", "x:1"]), None).await.expect("again");
    assert_eq!(again, Unique::AlreadyCommitted { ids: ids.clone(), positions });
    let reused = other.append_if_unique("order-42", order(r#"{"a":1,"b":3}"#, &["x:1", "y:1"]), None).await.expect("reused");
    assert_eq!(reused, Unique::KeyReused { ids });
    let batch = |second: &str| [order("{}", &["x:1"]), order(second, &["z:1"])];
    let first = one.append_batch_if_unique("order-42", batch("{}")).await.expect("a batch is another thing");
    let Unique::Appended { ids, positions } = first else { panic!("{first:?}") };
    assert_eq!(
        other.append_batch_if_unique("order-42", batch("{}")).await.expect("again"),
        Unique::AlreadyCommitted { ids: ids.clone(), positions }
    );
    assert_eq!(other.append_batch_if_unique("order-42", batch("[]")).await.expect("reused"), Unique::KeyReused { ids });
    assert_eq!(one.count(None).await.expect("count"), 3);
    // Many at once: one appends, the others are told.
    let many = futures::future::join_all((0..8).map(|n| {
        let sekiban = if n % 2 == 0 { &one } else { &other };
        sekiban.append_if_unique("race", order("{}", &["r:1"]), None)
    }))
    .await;
    let appended = many.iter().filter(|outcome| matches!(outcome, Ok(Unique::Appended { .. }))).count();
    let told = many.iter().filter(|outcome| matches!(outcome, Ok(Unique::AlreadyCommitted { .. }))).count();
    assert_eq!((appended, told), (1, 7), "{many:?}");
}

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };
/// Where no fault takes time: an engine that is busy is waited for.
const PATIENT: Timeouts = Timeouts { attempt: Duration::from_secs(10), ..QUICK };

/// Every fault that passes: the append succeeds, and its event is there once; so does a unique one.
#[tokio::test]
async fn what_the_network_does_is_settled() {
    let faults = [
        Fault::Throttle,
        Fault::InternalError,
        Fault::LoseRequest,
        Fault::LoseResponse,
        Fault::TimeOut,
        Fault::Truncate,
        Fault::DeliverTwice,
        Fault::Hang,
        Fault::Conflict,
        Fault::InProgress,
        Fault::TokenMismatch,
    ];
    for fault in faults {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let store = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await;
        let (log, sekiban) = (store.log().expect("log"), store.sekiban().expect("sekiban"));
        let query = Query::tag("a:1").expect("query");
        for turn in 0..3 {
            between.script(Rule::on("TransactWriteItems").nth(1).suffer(fault.clone()));
            match turn {
                0 => assert_eq!(log.append(Append::new([event("0", &["a:1"])])).await.expect("append").positions.len(), 1, "{fault:?}"),
                1 => {
                    let token = log.source(&query, None).await.expect("source").token;
                    let done = log.append(Append::new([event("1", &["a:1"])]).unless(query.clone(), token)).await.expect("append");
                    assert!(log.source(&query, done.token.as_ref()).await.expect("since").events.is_empty(), "{fault:?}");
                }
                _ => {
                    let done = sekiban.append_if_unique("key", event("2", &["a:1"]), None).await.expect("append");
                    assert!(matches!(done, Unique::Appended { .. } | Unique::AlreadyCommitted { .. }), "{fault:?} {done:?}");
                }
            }
            between.calm();
        }
        assert_eq!(labels(&log.source(&query, None).await.expect("source").events), ["0", "1", "2"], "{fault:?}");
        let cleanly = bench.store("").await.verify(&|_| ()).await.expect("verify");
        assert_eq!(cleanly.findings, vec![], "{fault:?}");
    }
}

/// A landed try whose answer was lost, with its repeat's reasons hidden, and another's event behind it: the append is told as it is, never as a
/// conflict with itself or with what came later. So too under an id of the caller's, and too large for one transaction.
#[tokio::test]
async fn a_commit_that_landed_unheard_is_no_conflict() {
    for (named, count) in [(false, 1), (true, 1), (false, 60)] {
        let bench = Bench::new();
        // Far: the answer is lost, the repeat conflicts, and of its reasons only the last is told. Near: that waits until another has appended.
        let far = Faults::new(bench.http(), 1);
        let near = Faults::new(far.http_client(), 2);
        let store = open(bench.builder("").timeouts(PATIENT).http_client(near.http_client())).await;
        let log = store.log().expect("log");
        let query = Query::tag("a:1").expect("query").or(Query::tag("c:1").expect("query"));
        let token = log.source(&query, None).await.expect("source").token;
        let gate = Gate::new();
        far.script(Rule::on("TransactWriteItems").nth(1).lose_response());
        far.script(Rule::on("TransactWriteItems").nth(2).conflict());
        for n in 3..6 {
            far.script(Rule::on("TransactWriteItems").nth(n).hide_reasons(Keep::Last));
        }
        near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&gate));
        let events = (0..count).map(|n| event(&n.to_string(), &["a:1"]));
        let mut append = Append::new(events).unless(query.clone(), token);
        if named {
            append = append.commit(fencepost::CommitId(Uuid::from_u128(7)));
        }
        let ours = tokio::spawn(async move { log.append(append).await });
        gate.reached(1).await;
        let other = bench.store("").await.log().expect("log");
        other.append(Append::new([event("theirs", &["a:1", "c:1"])])).await.expect("theirs");
        gate.release(1);
        let done = ours.await.expect("joins").unwrap_or_else(|error| panic!("{named} {count}: our commit had landed: {error}"));
        assert_eq!(done.positions.len(), count);
        // Its token stands behind ours and before theirs.
        let rest = other.source(&query, done.token.as_ref()).await.expect("source").events;
        assert!(done.token.is_some() && labels(&rest) == ["theirs"], "{named} {count}: {:?}", labels(&rest));
        assert_eq!(other.source(&query, None).await.expect("source").events.len(), count + 1);
    }
}

/// Lost for good: the caller hears that it is in doubt, and the repeat from the base finds the truth, whichever it is.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for large in [false, true] {
        for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false)] {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let store = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await;
            let count = if large { 60 } else { 1 };
            let events = || (0..count).map(|n| event(&n.to_string(), &["a:1"])).collect::<Vec<_>>();
            between.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
            let answer = store.log().expect("log").append(Append::new(events())).await;
            let Err(Error::InDoubt(doubt)) = answer else { panic!("{large} {fault:?}: {answer:?}") };
            between.calm();
            let other = bench.store("").await.log().expect("log");
            let query = Query::tag("a:1").expect("query");
            let there = other.source(&query, None).await.expect("source").events.len();
            assert_eq!(there, if landed { count } else { 0 });
            other.append(Append::new([event("between", &["a:1"])])).await.expect("another's");
            let base: fencepost::Base = doubt.base.to_string().parse().expect("base");
            let first = other.append(Append::new(events()).again(doubt.commit, base)).await.expect("again");
            let again = other.append(Append::new(events()).again(doubt.commit, doubt.base.clone())).await.expect("and again");
            assert_eq!(first.positions, again.positions);
            assert_eq!(other.source(&query, None).await.expect("source").events.len(), count + 1, "{large} {fault:?}");
            let reused = other.append(Append::new([event("else", &["a:1"])]).again(doubt.commit, doubt.base)).await;
            assert!(matches!(reused, Err(Error::Refused(_))), "{reused:?}");
        }
    }
}

/// A large write that dies between any two of its calls: a reader sees all of it or none, by every tag and in the feed.
#[tokio::test]
async fn a_large_write_that_dies_anywhere_is_seen_whole_or_not_at_all() {
    let mut outcomes = BTreeSet::new();
    for answered in [true, false] {
        for calls in 1.. {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let timeouts = Timeouts { attempts: 1, ..PATIENT };
            let store = open(bench.builder("").timeouts(timeouts).http_client(between.http_client())).await;
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
            if !answered {
                between.script(Rule::on_any().nth(calls).lose_response());
            }
            for later in calls + usize::from(!answered)..calls + 60 {
                between.script(Rule::on_any().nth(later).lose_request());
            }
            let events = (0..70).map(|n| event(&n.to_string(), &["a:1", if n % 2 == 0 { "b:0" } else { "b:1" }]));
            let outcome = store.log().expect("log").append(Append::new(events)).await;
            let survived = between.log().iter().all(|call| call.faults.is_empty());
            drop(store);
            let reader = bench.store("").await;
            let log = reader.log().expect("log");
            // What the index alone shows is a part perhaps; what the feed hands over never is.
            let fed = fed(&reader).await.len();
            assert!(fed == 1 || fed == 71, "{calls}: {fed} of 71 in the feed");
            let even = log.source(&Query::tag("b:0").expect("query"), None).await.expect("source").events.len();
            let seen = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len();
            let read = log.read_all(&Query::tag("b:1").expect("query"), ReadOptions::default()).await.expect("read").len();
            assert!((seen, even, read) == (1, 0, 0) || (seen, even, read) == (71, 35, 35), "{calls}: {seen} {even} {read}");
            match &outcome {
                Ok(_) => assert_eq!(seen, 71, "{calls}"),
                Err(error) if error.recorded_nothing() => assert_eq!(seen, 1, "{calls}: {error}"),
                Err(_) => {}
            }
            outcomes.insert((outcome.is_ok(), seen));
            // The next writer goes on, and everything is as it should be.
            log.append(Append::new([event("after", &["a:1", "b:0"])])).await.expect("after");
            assert_eq!(log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len(), seen + 1);
            // One that died behind its last head is still on the list of those to finish.
            reader.repair(&|_| ()).await.expect("repair");
            let verified = reader.verify(&|_| ()).await.expect("verify");
            assert_eq!(verified.findings, vec![], "{calls}");
            assert!(bench.heads().await.values().all(|(_, _, pending)| !pending), "{calls}");
            if survived {
                break;
            }
        }
    }
    assert_eq!(outcomes, BTreeSet::from([(false, 1), (false, 71), (true, 71)]), "each was met");
}

#[tokio::test]
async fn pieces_that_were_never_published_are_collected_and_their_writer_is_stopped() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let env = Env::seeded(1);
    let store = open(bench.builder("").timeouts(QUICK).env(env.clone()).http_client(between.http_client())).await;
    between.script(Rule::on("TransactWriteItems").throttle());
    let id = CommitId(Uuid::from_u128(5));
    let events = || (0..70).map(|n| event(&n.to_string(), &["a:1"])).collect::<Vec<_>>();
    store.log().expect("log").append(Append::new(events()).commit(id)).await.expect_err("throttled");
    between.calm();
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (0, 0), "too young");
    env.advance(Duration::from_secs(120));
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (1, 1));
    let late = store.log().expect("log").append(Append::new(events()).commit(id)).await;
    assert!(matches!(late, Err(Error::Refused(Refused::Reused { .. }))), "{late:?}");
    assert_eq!(store.sekiban().expect("sekiban").count(None).await.expect("count"), 0);
}

#[tokio::test]
async fn missing_rows_are_found_and_put_again() {
    let golden = golden("04");
    let bench = Bench::new();
    let store = bench.store("").await;
    bench.load(&golden).await;
    let row = item(&items(&golden, "SekibanTags")[0]);
    let key =
        |row: &Item| row.iter().filter(|(name, _)| ["pk", "sk"].contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect();
    bench.client.delete_item().table_name(bench.table("SekibanTags")).set_key(Some(key(&row))).send().await.expect("delete");
    let found = store.verify(&|_| ()).await.expect("verify").findings;
    assert!(found.len() == 1 && found[0].problem.contains("is missing"), "{found:?}");
    let mended = store.repair(&|_| ()).await.expect("repair").findings;
    assert!(mended.len() == 1 && mended[0].problem.contains("put again"), "{mended:?}");
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
    assert_eq!(set(bench.dump("SekibanTags").await.into_iter()), set(items(&golden, "SekibanTags").iter().map(item)));
}

/// W6: an event whose id is older than what was handed over comes late, and comes.
#[tokio::test]
async fn late_arrivals_are_delivered_and_counted() {
    let counted = tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::new();
    let store = bench.store("").await;
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let log = store.log().expect("log");
    let early = Env::system().now();
    log.append(Append::new([event("1", &["a:1"])])).await.expect("append");
    let (first, checkpoint) = next_event(&mut feed).await;
    assert_eq!(&first.data[..], b"1");
    let late = (SortableId::threshold(early), event("late", &["b:1"]).id(Uuid::from_u128(3)));
    bench.sekiban("").await.write(&[late], WriteOptions::default()).await.expect("a slow writer's");
    assert_eq!(&next_event(&mut feed).await.0.data[..], b"late");
    assert_eq!(counted.of("fencepost_sekiban_late_events_total"), 1);
    let mut again = store.feed().expect("feed").subscribe(From::Checkpoint(checkpoint.to_string().parse().expect("text")), Query::all());
    assert_eq!(&next_event(&mut again).await.0.data[..], b"late");
}

/// W12: catching up in pages reads each event once.
#[tokio::test]
async fn catching_up_in_pages_reads_each_event_once() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let store = open(bench.builder("").http_client(between.http_client())).await;
    for commit in 0..20 {
        let events = (0..50).map(|n| event(&format!("{commit}.{n}"), &[]));
        store.log().expect("log").append(Append::new(events)).await.expect("append");
    }
    let sekiban = store.sekiban().expect("sekiban");
    let (mut since, mut met) = (None, 0);
    let before = between.calls("Query");
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(100)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len();
        since = SortableId::of(&last.position);
    }
    assert_eq!(met, 1_000);
    assert_eq!(between.calls("Query") - before, 11, "a query for each page, and one that finds nothing");
}

/// The published `ttl`, on the event and on its rows alike.
#[tokio::test]
async fn an_event_expires_with_its_rows() {
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let at: jiff::Timestamp = "2030-01-01T00:00:00Z".parse().expect("time");
    let many = (0..60u64)
        .map(|n| (id(&format!("0639217927851234{n:03}00144769402")), event("{}", &["a:1", "b:1"]).id(Uuid::from_u128(n.into()))))
        .collect::<Vec<_>>();
    sekiban.write(&many[..1], WriteOptions::default().expire_at(at)).await.expect("small");
    sekiban.write(&many[1..], WriteOptions::default().expire_at(at)).await.expect("staged");
    let ttl = |item: &Item| item.get("ttl").cloned();
    let (events, tags) = (bench.dump("SekibanEvents").await, bench.dump("SekibanTags").await);
    let rows: Vec<&Item> = events.iter().chain(&tags).filter(|item| item.contains_key("eventId")).collect();
    assert_eq!(rows.len(), 60 * 3);
    for item in rows {
        assert_eq!(ttl(item), Some(AttributeValue::N(at.as_second().to_string())));
    }
}

#[tokio::test]
async fn tables_are_those_that_sekiban_makes_and_an_index_of_keys_alone_is_accepted() {
    let golden = golden("01");
    let bench = Bench::new();
    bench.store("").await;
    for table in TABLES {
        let described = bench.client.describe_table().table_name(bench.table(table)).send().await.expect("describe").table.expect("table");
        let expected = &golden["describe"][table];
        let keys: Vec<_> = described.key_schema().iter().map(|key| key.attribute_name().to_owned()).collect();
        assert_eq!(keys, ["pk", "sk"]);
        let indexes = expected["GlobalSecondaryIndexes"].as_array().expect("indexes");
        assert_eq!(described.global_secondary_indexes().len(), indexes.len(), "{table}");
        for (ours, theirs) in described.global_secondary_indexes().iter().zip(indexes) {
            assert_eq!(ours.index_name(), theirs["IndexName"].as_str());
            let names: Vec<_> = ours.key_schema().iter().map(|key| key.attribute_name()).collect();
            let expected: Vec<_> =
                theirs["KeySchema"].as_array().expect("keys").iter().map(|k| k["AttributeName"].as_str().expect("name")).collect();
            assert_eq!(names, expected);
            let projection = ours.projection().and_then(|p| p.projection_type()).expect("projection").as_str().to_owned();
            assert_eq!(Some(projection.as_str()), theirs["Projection"]["ProjectionType"].as_str());
        }
    }
    // The published script's index of tags.
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType,
    };
    let bench = Bench::new();
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key");
    let index = GlobalSecondaryIndex::builder()
        .index_name("GSI1")
        .key_schema(key("tagGroup", KeyType::Hash))
        .key_schema(key("tagString", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .expect("index");
    let mut create = bench.client.create_table().table_name(bench.table("SekibanTags")).billing_mode(BillingMode::PayPerRequest);
    for name in ["pk", "sk", "tagGroup", "tagString"] {
        let attribute =
            AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().expect("attribute");
        create = create.attribute_definitions(attribute);
    }
    create
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .global_secondary_indexes(index)
        .send()
        .await
        .expect("create");
    let sekiban = bench.sekiban("").await;
    let written = id("063921792785123456000144769402");
    sekiban.write(&[(written, event("{}", &["a:1", "a:2"]).id(Uuid::from_u128(1)))], WriteOptions::default()).await.expect("write");
    let infos: Vec<_> = sekiban.tags_of_group("a").try_collect().await.expect("group");
    assert_eq!(
        infos.iter().map(|info| (info.tag.as_str(), info.events, info.first)).collect::<Vec<_>>(),
        [("a:1", 1, written), ("a:2", 1, written)]
    );
}

/// Copied from the ledger, from prefixed to plain keys, and back into a ledger: the same events under the same ids, on the same tags in order.
#[tokio::test]
async fn everything_is_copied_there_between_forms_and_back() {
    let quiet = |_: u64| ();
    let ledger = open(Store::builder("memory:").expect("url")).await;
    for n in 0..30 {
        let tags = [format!("a:{}", n % 3), format!("b:{}", n % 5)];
        let events = (0..1 + n % 3).map(|m| event(&format!("{n}.{m}"), &[&tags[0], &tags[1]]));
        ledger.log().expect("log").append(Append::new(events)).await.expect("append");
    }
    let bench = Bench::new();
    let (prefixed, plain) = (bench.store("&service=copied").await, bench.store("&keys=plain&shards=2").await);
    let back = open(Store::builder("memory:").expect("url")).await;
    for (from, to) in [(&ledger, &prefixed), (&prefixed, &plain), (&plain, &back)] {
        let copy = Copy::new(from, to, "there");
        let losses = copy.plan().await.expect("a plan").losses;
        assert!(losses.iter().all(|loss| loss.what != "what the index lacks"), "nobody has to build an index here: {losses:?}");
        let copied = copy.run(&quiet).await.expect("copies");
        assert_eq!(copied.events, 60);
        assert!(copy.compare(&quiet).await.expect("compares").is_equal());
    }
    for n in 0..3 {
        let query = Query::tag(format!("a:{n}")).expect("query");
        let of = async |store: &Store| store.log().expect("log").source(&query, None).await.expect("source").events;
        let (there, home) = (of(&ledger).await, of(&back).await);
        assert_eq!(labels(&there), labels(&home));
        assert_eq!(there.iter().map(|event| event.id).collect::<Vec<_>>(), home.iter().map(|event| event.id).collect::<Vec<_>>());
    }
}

/// Many writers deciding at random under random faults: every commit holds against the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_under_random_faults() {
    for seed in 1..=2 {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), seed);
        let mut handles: Vec<std::sync::Arc<dyn fencepost::EventLog>> = Vec::new();
        for _ in 0..2 {
            let store = open(bench.builder("").timeouts(Timeouts { attempts: 12, ..QUICK }).http_client(between.http_client())).await;
            handles.push(store.log().expect("log"));
        }
        let chances = Chances {
            throttle: 0.02,
            internal_error: 0.02,
            lose_request: 0.02,
            lose_response: 0.04,
            conflict: 0.03,
            hide_reasons: 0.1,
            ..Chances::default()
        };
        between.random(chances);
        let options = Oracle { seed, writers: 8, rounds: 8, all: false, types_only: false, ..Oracle::default() };
        let report = oracle::run(&handles, options).await;
        between.calm();
        let report = report.expect("holds");
        assert!(report.conditional > 10 && report.conflicts > 0, "{report:?}");
        let verified = bench.store("").await.verify(&|_| ()).await.expect("verify");
        assert_eq!(verified.findings, vec![]);
    }
}

/// The state of a golden row, as the call gave it.
fn row_of(stored: &Json) -> ProjectionRow {
    let number = |name: &str| stored[name]["N"].as_str().unwrap_or("0").parse().expect("number");
    let envelope = base64::engine::general_purpose::STANDARD.decode(text(stored, "stateData")).expect("base64");
    let body = match stored["isOffloaded"]["BOOL"].as_bool() {
        Some(true) => RowBody::Offloaded { key: text(stored, "offloadKey").into(), provider: text(stored, "offloadProvider").into() },
        _ => RowBody::Inline(envelope.into()),
    };
    ProjectionRow {
        projector: text(stored, "projectorName").into(),
        version: text(stored, "projectorVersion").into(),
        last: text(stored, "lastSortableUniqueId").into(),
        events: number("eventsProcessed"),
        body,
        sizes: (number("originalSizeBytes"), number("compressedSizeBytes")),
        safe_window_threshold: text(stored, "safeWindowThreshold").into(),
        created_at: text(stored, "createdAt").into(),
        build_source: text(stored, "buildSource").into(),
        build_host: Some(text(stored, "buildHost").to_owned()).filter(|host| !host.is_empty()),
        control: Control { generation: number("generation"), revision: number("revision"), tombstoned: number("lifecycle") == 1 },
    }
}

#[tokio::test]
async fn projection_states_of_every_form_are_read() {
    for name in ["10", "11a", "11b", "11c", "15", "16", "17", "18", "19"] {
        let golden = golden(name);
        let bench = Bench::new();
        let sekiban = bench.sekiban(if name == "19" { "&keys=plain" } else { "" }).await;
        bench.load(&golden).await;
        for stored in items(&golden, "SekibanProjectionStates") {
            let expected = row_of(&stored);
            let (projector, version) = (expected.projector.clone(), expected.version.clone());
            assert_eq!(sekiban.any_row(&projector, &version).await.expect("reads").as_ref(), Some(&expected), "{name}");
            let active = Some(&expected).filter(|row| !row.control.tombstoned);
            assert_eq!(sekiban.projection_row(&projector, &version).await.expect("reads").as_ref(), active, "{name}");
            assert_eq!(sekiban.newest_row(&projector).await.expect("reads").as_ref(), active, "{name}");
            let RowBody::Inline(envelope) = &expected.body else {
                assert!(name == "16" && matches!(&expected.body, RowBody::Offloaded { provider, .. } if provider == "AwsS3"));
                continue;
            };
            match (name, payload(envelope).expect("an envelope")) {
                ("17", Payload::Offloaded { key, provider }) => {
                    let blob = golden["blobKeys"][0].as_str().expect("a blob's key");
                    assert!(blob.ends_with(&format!("/{key}")) && provider == "AwsS3", "{blob} {key}");
                }
                ("19", Payload::None) => {}
                (_, Payload::Here(state)) => drop(serde_json::from_slice::<Json>(&state).expect("JSON inside")),
                (name, other) => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn projection_states_are_written_as_sekiban_does_and_its_checkpoints_go_on() {
    let compare = async |bench: &Bench, golden: &Json, name: &str| {
        let clean = |mut item: Item| {
            item.remove("updatedAt");
            item.into_iter().collect::<BTreeMap<_, _>>()
        };
        let ours: Vec<_> = bench.dump("SekibanProjectionStates").await.into_iter().map(clean).collect();
        let theirs: Vec<_> = items(golden, "SekibanProjectionStates").iter().map(|json| clean(item(json))).collect();
        assert_eq!(ours, theirs, "{name}");
    };
    let (inline, created, tombstoned, offloaded) = (golden("10"), golden("11a"), golden("11b"), golden("16"));
    let row = row_of(&items(&created, "SekibanProjectionStates")[0]);
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    sekiban.put_row(&row).await.expect("writes");
    compare(&bench, &inline, "10").await;
    sekiban.put_row(&row_of(&items(&offloaded, "SekibanProjectionStates")[0])).await.expect("writes over it");
    compare(&bench, &offloaded, "16").await;

    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let at = |generation, revision, tombstoned| Control { generation, revision, tombstoned };
    assert_eq!(sekiban.create_row(&row).await.expect("creates"), RowWrite::Committed(at(0, 1, false)));
    compare(&bench, &created, "11a").await;
    assert_eq!(sekiban.create_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(0, 1, false))));
    assert_eq!(sekiban.put_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(0, 1, false))), "held by compare-and-set");
    let given_up = sekiban.invalidate_row(&row.projector, &row.version, at(0, 1, false)).await.expect("gives up");
    assert_eq!(given_up, RowWrite::Committed(at(1, 2, true)));
    compare(&bench, &tombstoned, "11b").await;
    assert_eq!(sekiban.put_row(&row).await.expect("asks"), RowWrite::Rejected(Some(at(1, 2, true))), "a tombstone is not erased");
    assert_eq!(sekiban.replace_row(&row, at(0, 1, false)).await.expect("asks"), RowWrite::Rejected(Some(at(1, 2, true))));
    // Where Sekiban's own compare-and-set is refused by the service, ours goes on.
    assert_eq!(sekiban.replace_row(&row, at(1, 2, true)).await.expect("rebuilds"), RowWrite::Committed(at(1, 3, false)));
    assert_eq!(sekiban.replace_row(&row, at(1, 3, false)).await.expect("advances"), RowWrite::Committed(at(1, 4, false)));
    assert!(sekiban.delete_row(&row.projector, &row.version).await.expect("deletes"));
    assert!(!sekiban.delete_row(&row.projector, &row.version).await.expect("asks"));
    // A row of the first releases: missing is 0.
    let bench = Bench::new();
    let sekiban = bench.sekiban("&keys=plain").await;
    bench.load(&golden("19")).await;
    let old = sekiban.any_row("ClassRoomList", "1.0.0").await.expect("reads").expect("there");
    assert_eq!(sekiban.replace_row(&old, Control::default()).await.expect("advances"), RowWrite::Committed(at(0, 1, false)));
    let large = ProjectionRow { body: RowBody::Inline(vec![b'x'; 308_000].into()), ..row };
    let refused = sekiban.put_row(&large).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { .. }))), "the item is measured, not the envelope: {refused:?}");
}

#[tokio::test]
async fn heartbeats_are_written_as_sekiban_does() {
    let golden = golden("12");
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let maybe = |stored: &Json, name: &str| Some(text(stored, name).to_owned()).filter(|text| !text.is_empty());
    for stored in items(&golden, "SekibanProjectionStates") {
        let beat = ProjectionHeartbeat {
            projector: text(&stored, "projectorName").into(),
            version: text(&stored, "projectorVersion").into(),
            cluster: text(&stored, "clusterId").into(),
            activation: text(&stored, "activationId").into(),
            sequence: stored["sequence"]["N"].as_str().expect("n").parse().expect("n"),
            applied: stored["appliedEventCount"]["N"].as_str().expect("n").parse().expect("n"),
            last_applied: maybe(&stored, "lastAppliedSortableUniqueId"),
            last_traversed: maybe(&stored, "lastTraversedSortableUniqueId"),
            recorded_at: text(&stored, "recordedAtUtc").into(),
            phase: text(&stored, "phase").into(),
            lease_expires_at: maybe(&stored, "leaseExpiresAtUtc"),
            fault: maybe(&stored, "faultMessage"),
        };
        if beat.sequence == 2 {
            let first = ProjectionHeartbeat { sequence: 1, activation: "act-1".into(), ..beat.clone() };
            assert!(sekiban.put_heartbeat(&first, 0).await.expect("writes"));
            assert!(sekiban.put_heartbeat(&beat, 1).await.expect("writes"));
            assert!(!sekiban.put_heartbeat(&beat, 1).await.expect("asks"), "a stale one");
        } else {
            assert!(sekiban.put_heartbeat(&beat, 0).await.expect("writes"));
        }
    }
    assert_eq!(
        set(bench.dump("SekibanProjectionStates").await.into_iter()),
        set(items(&golden, "SekibanProjectionStates").iter().map(item))
    );
    assert!(sekiban.newest_row("ClassRoomList").await.expect("reads").is_none(), "a heartbeat is no state");
}

/// The index shows the second event of a tag and not yet the first: the tag's rows tell, and the feed keeps their order, each once.
#[tokio::test]
async fn what_the_index_does_not_show_yet_is_asked_of_the_tags() {
    let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
    let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
    let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").http_client(lag.http_client());
    let store = open(builder).await;
    let log = store.log().expect("log");
    for label in ["1", "2", "3"] {
        log.append(Append::new([event(label, &["a:1"])])).await.expect("append");
    }
    assert_eq!(
        labels(&log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events),
        ["1", "2", "3"],
        "decisions are strong"
    );
    assert!(
        store.sekiban().expect("sekiban").all_since(None, None).try_collect::<Vec<_>>().await.expect("all").is_empty(),
        "the index lags"
    );
    let newest = lag.pending().into_iter().rfind(|pending| pending.table == "SekibanEvents").expect("an event waits");
    assert!(lag.apply(newest.id).await);
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let mut met = Vec::new();
    for _ in 0..3 {
        met.push(next_event(&mut feed).await.0);
    }
    assert_eq!(labels(&met), ["1", "2", "3"]);
    lag.apply_all().await;
    log.append(Append::new([event("4", &["a:1"])])).await.expect("append");
    lag.apply_all().await;
    let (next, _) = next_event(&mut feed).await;
    assert_eq!(&next.data[..], b"4", "none a second time");
}

/// W2: a tag that the decision read and does not write is held as well: whoever writes it between the look and the transaction wins.
#[tokio::test]
async fn a_tag_that_was_only_read_is_held_too() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let store = open(bench.builder("").http_client(between.http_client())).await;
    let (log, other) = (store.log().expect("log"), bench.store("").await.log().expect("log"));
    for written in [&["read:1"][..], &["written:1"]] {
        let query = Query::tag("read:1").expect("query").or(Query::tag("written:1").expect("query"));
        let token = log.source(&query, None).await.expect("source").token;
        let gate = Gate::new();
        between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
        let append = tokio::spawn({
            let (log, query) = (log.clone(), query.clone());
            async move { log.append(Append::new([event("mine", &["written:1"])]).unless(query, token)).await }
        });
        gate.reached(1).await;
        other.append(Append::new([event("theirs", written)])).await.expect("another's, meanwhile");
        gate.open();
        let outcome = append.await.expect("ends");
        assert!(matches!(&outcome, Err(Error::Conflict(conflict)) if labels(&conflict.events) == ["theirs"]), "{written:?}: {outcome:?}");
        between.calm();
    }
}
