//! The layout of Reventless' DcbEventLog: items as the published page has them, both ways; what it holds beside its peer; what it costs;
//! what it refuses; its feed; and the truth under faults. The hazards of the published algorithm are in `reventless_hazards.rs`.
//!
//! over 600 lines because one binary links once: a layout's own tests stand together.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

mod bare_sdk;
mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as Value;
use fencepost::moving::Copy;
use fencepost::testing::oracle::{self, Oracle};
use fencepost::testing::{Chances, Fault, Faults, Gate, Rule};
use fencepost::{
    After, Append, Cache, Delivery, Engine, Error, Event, EventLog, EventLogExt, Expect, From, IndexOptions, LoadOptions, Query,
    ReadOptions, Refused, Step, Store, StreamName, Timeouts, Units, decision, fold,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

const TABLE: &str = "fencepost";
const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };

type Item = HashMap<String, Value>;

struct Table {
    engine: Engine,
    parameters: &'static str,
}

impl Table {
    fn new(parameters: &'static str) -> Table {
        Table { engine: Engine::memory().expect("engine").keep_tokens(), parameters }
    }
    fn builder(&self) -> fencepost::Builder {
        let url = format!("memory:?layout=reventless&{}", self.parameters);
        Store::builder(&url).expect("url").http_client(self.engine.http_client())
    }
    async fn open(&self) -> Store {
        support::open(self.builder()).await
    }
    async fn log(&self) -> Arc<dyn EventLog> {
        self.open().await.log().expect("log")
    }
    async fn through(&self, faults: &Faults) -> Arc<dyn EventLog> {
        support::open(self.builder().timeouts(QUICK).http_client(faults.http_client())).await.log().expect("log")
    }
    fn client(&self) -> aws_sdk_dynamodb::Client {
        bare_sdk::client(self.engine.http_client())
    }
    /// As the peer would put it.
    async fn put(&self, item: Item) {
        self.client().put_item().table_name(TABLE).set_item(Some(item)).send().await.expect("put");
    }
    async fn get(&self, id: &str, position: &str) -> Item {
        let key = [("id", id), ("position", position)].map(|(name, value)| (name.to_owned(), Value::S(value.into())));
        let got = self.client().get_item().table_name(TABLE).set_key(Some(key.into())).consistent_read(true).send().await.expect("get");
        got.item.unwrap_or_default()
    }
    async fn items(&self) -> Vec<Item> {
        self.client().scan().table_name(TABLE).send().await.expect("scan").items.unwrap_or_default()
    }
}

fn golden(name: &str) -> Item {
    let path = format!("{}/tests/golden/reventless/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).expect("golden")).expect("json");
    file["item"].as_object().expect("an item").iter().map(|(name, value)| (name.clone(), native(value))).collect()
}

fn native(value: &serde_json::Value) -> Value {
    let (kind, value) = value.as_object().and_then(|map| map.iter().next()).expect("one kind");
    let text = || value.as_str().expect("text").to_owned();
    match kind.as_str() {
        "S" => Value::S(text()),
        "N" => Value::N(text()),
        "BOOL" => Value::Bool(value.as_bool().expect("bool")),
        "NULL" => Value::Null(true),
        "L" => Value::L(value.as_array().expect("list").iter().map(native).collect()),
        "M" => Value::M(value.as_object().expect("map").iter().map(|(name, value)| (name.clone(), native(value))).collect()),
        other => panic!("{other}"),
    }
}

fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type, "{}").expect("event"), |event, tag| event.tag(tag).expect("tag"))
}
fn tag(tag: &str) -> Query {
    Query::tag(tag).expect("query")
}
fn units(read: f64, write: f64, requests: u64) -> Units {
    Units { read, write, requests }
}
fn is_unsupported<T>(outcome: &fencepost::Result<T>) -> bool {
    matches!(outcome, Err(Error::Refused(Refused::Unsupported { .. })))
}

#[tokio::test]
async fn what_the_page_shows_is_read() {
    let table = Table::new("partition=orderId&cross=productId");
    let log = table.log().await;
    table.put(golden("event")).await;
    table.put(golden("fence")).await;
    for query in [tag("orderId:ord-123"), tag("productId:p-5"), Query::tags(["productId:p-5", "orderId:ord-123"]).expect("query")] {
        let sourced = log.source(&query, None).await.expect("source");
        let [event] = &sourced.events[..] else { panic!("{query:?}: {} events", sourced.events.len()) };
        assert_eq!(event.event_type.as_str(), "OrderPlaced");
        assert_eq!(&event.data[..], br#"{"amount":12.5,"lines":[{"gift":false,"sku":"p-5"}],"note":null}"#);
        assert_eq!(event.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["orderId:ord-123", "productId:p-5"]);
        assert_eq!((event.meta.correlation.as_deref(), event.recorded_at.to_string()), (Some("corr-1"), "2026-06-22T10:20:00Z".into()));
        let outcome = log.append(Append::new([event_of(event)]).unless(query, sourced.token)).await;
        assert!(outcome.is_ok(), "and appended to: {outcome:?}");
        assert_eq!(log.source(&tag("orderId:ord-123"), None).await.expect("source").events.len(), 2);
        table
            .client()
            .delete_item()
            .table_name(TABLE)
            .set_key(Some(key_of(&outcome.expect("done"), &table).await))
            .send()
            .await
            .expect("undo");
        let fences = ["fence#orderId:ord-123", "fence#productId:p-5"];
        for id in fences {
            table
                .put(Item::from([
                    ("id".into(), Value::S(id.into())),
                    ("position".into(), Value::S("FENCE".into())),
                    ("pos#OrderPlaced".into(), golden("event")["position"].clone()),
                ]))
                .await;
        }
    }
}

fn event_of(event: &fencepost::Recorded) -> Event {
    event.clone().into_event()
}
async fn key_of(done: &fencepost::Committed, table: &Table) -> Item {
    let commit = done.commit.0.hyphenated().to_string();
    let own =
        |item: &Item| matches!(item.get("position"), Some(Value::S(position)) if position.contains(&commit)) && item.contains_key("event");
    let item = table.items().await.into_iter().find(own).expect("the event");
    ["id", "position"].map(|name| (name.to_owned(), item[name].clone())).into()
}

#[tokio::test]
async fn what_is_written_is_what_the_page_shows_and_what_the_peer_needs() {
    let table = Table::new("partition=orderId&cross=productId");
    let body = r#"{"amount":12.5,"lines":[{"sku":"p-5","gift":false}],"note":null}"#;
    let meta = fencepost::Metadata { correlation: Some("corr-1".into()), ..Default::default() };
    let event = Event::new("OrderPlaced", body)
        .and_then(|e| e.tag("orderId:ord-123"))
        .and_then(|e| e.tag("productId:p-5"))
        .expect("event")
        .meta(meta);
    let done = table.log().await.append(Append::new([event])).await.expect("append");
    let key = key_of(&done, &table).await;
    let Value::S(position) = &key["position"] else { panic!("{key:?}") };
    let written = table.get("orderId:ord-123", position).await;
    for (name, value) in golden("event").iter().filter(|(name, _)| !["position", "recordedAt"].contains(&name.as_str())) {
        assert_eq!(written.get(name), Some(value), "{name}");
    }
    let shape: String = position.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
    assert_eq!(shape, "xxxxxxxxxxxxx-xxxxxx-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
    for name in ["service", "time", "msgId", "recordedAt"] {
        assert!(matches!(written.get(name), Some(Value::S(_))), "the peer throws without {name}");
    }
    for tag in ["orderId:ord-123", "productId:p-5"] {
        let fence = table.get(&format!("fence#{tag}"), "FENCE").await;
        assert_eq!(fence.get("pos#OrderPlaced"), Some(&key["position"]));
        assert_eq!(fence.get("v"), Some(&Value::N("1".into())));
    }
    let batch = table.log().await.append(Append::new([event_two("orderId:ord-9"), event_two("orderId:ord-9")])).await.expect("batch");
    let fence = table.get("fence#orderId:ord-9", "FENCE").await;
    let Some(Value::S(last)) = fence.get("pos#T") else { panic!("{fence:?}") };
    assert!(last.ends_with(&format!("{}-002", batch.commit.0.hyphenated())), "a fence takes the last position of the batch: {last}");
}

fn event_two(tag: &str) -> Event {
    event("T", &[tag])
}

#[tokio::test]
async fn one_event_costs_five_units_with_one_tag_and_nine_with_two_that_are_fenced() {
    let table = Table::new("partition=orderId&cross=productId");
    let log = table.log().await;
    let placed = |tags: &[&str]| {
        tags.iter().fold(Event::new("OrderPlaced", r#"{"amount":12.5,"customer":"c-77"}"#).expect("event"), |e, t| e.tag(t).expect("tag"))
    };
    let one = || Append::new([placed(&["orderId:ord-123"])]);
    log.append(one()).await.expect("first");
    assert_eq!(log.append(one()).await.expect("one").units, units(0.0, 5.0, 1));
    let tags = ["orderId:ord-123", "productId:p-5"];
    let query = Query::item(["OrderPlaced"], ["orderId:ord-123"])
        .expect("query")
        .or(Query::item(["OrderPlaced"], ["productId:p-5"]).expect("query"));
    log.append(Append::new([placed(&tags)])).await.expect("first");
    for _ in 0..3 {
        let token = log.source(&query, None).await.expect("source").token;
        assert_eq!(log.append(Append::new([placed(&tags)]).unless(query.clone(), token)).await.expect("two").units, units(0.0, 9.0, 1));
    }
    // No fence, no transaction.
    assert_eq!(log.append(Append::new([placed(&[])])).await.expect("untagged").units, units(0.0, 1.0, 1));
}

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
        let mut item = golden("event");
        let position = "1719100800000-000001-550e8400-e29b-41d4-a716-446655440000";
        item.extend([
            ("id".to_owned(), Value::S("order:1".into())),
            ("position".into(), Value::S(position.into())),
            ("event".into(), Value::S("T".into())),
        ]);
        let one = Value::M(HashMap::from([("key".into(), Value::S("order".into())), ("value".into(), Value::S("1".into()))]));
        item.insert("tags".into(), Value::L(vec![one]));
        table.put(item).await;
        let update =
            table.client().update_item().table_name(TABLE).update_expression("SET #p = :p").expression_attribute_names("#p", "pos#T");
        let update = update.key("id", Value::S("fence#order:1".into())).key("position", Value::S("FENCE".into()));
        update.expression_attribute_values(":p", Value::S(position.into())).send().await.expect("the peer's bump");
        let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), token.clone())).await;
        assert!(outcome.as_ref().is_err_and(|e| e.is_conflict()), "{query:?}: {outcome:?}");
        let stale = log.source(&query, Some(&token)).await;
        assert!(matches!(stale, Err(Error::Refused(Refused::Foreign { .. }))), "a model from before it cannot be read on: {stale:?}");
        let fresh = log.source(&query, None).await.expect("source");
        assert!(fresh.events.iter().any(|event| event.recorded_at.to_string() == "2026-06-22T10:20:00Z"));
        log.append(Append::new([event("T", &["order:1"])]).unless(query, fresh.token)).await.expect("decided again");
        table
            .client()
            .delete_item()
            .table_name(TABLE)
            .key("id", Value::S("order:1".into()))
            .key("position", Value::S(position.into()))
            .send()
            .await
            .expect("gone");
    }
}

#[tokio::test]
async fn several_values_of_a_key_supersets_and_odd_tags_are_found_exactly() {
    let table = Table::new("partition=order&cross=product");
    let log = table.log().await;
    let mut body = 0;
    let mut put = async |tags: &[&str]| {
        body += 1;
        let event = tags.iter().fold(Event::new("T", body.to_string()).expect("event"), |e, t| e.tag(t).expect("tag"));
        log.append(Append::new([event])).await.expect("append");
    };
    put(&["order:1", "order:2", "product:a", "product:b"]).await; // 1
    put(&["order:2", "product:a#product:b"]).await; // 2
    put(&["product:a", "note:x:y"]).await; // 3
    put(&["product:b", "product:a", "order:3"]).await; // 4
    let found = async |names: &[&str]| {
        let query = Query::tags(names).expect("query");
        let sourced = log.source(&query, None).await.expect("source").events;
        let read = log.read_all(&query, ReadOptions::default()).await.expect("read");
        assert_eq!(sourced, read, "{names:?}");
        read.iter().map(|event| event.json::<u32>().expect("number")).collect::<Vec<_>>()
    };
    for (names, expected) in [
        (&["order:2"][..], &[1, 2][..]),
        (&["product:a"], &[1, 3, 4]),
        (&["product:b"], &[1, 4]),
        (&["product:a", "product:b"], &[1, 4]),
        (&["product:b", "order:1"], &[1]),
        (&["product:a#product:b"], &[2]),
        (&["product:a", "note:x:y"], &[3]),
        (&["order:1", "order:2", "product:b"], &[1]),
        (&["product:a", "note:x"], &[]),
    ] {
        assert_eq!(found(names).await, expected, "{names:?}");
    }
    let verified = table.open().await.verify(&|_| ()).await.expect("verify");
    assert!(verified.findings.is_empty() && verified.events == 4, "{verified:?}");
    // A restore may tear a commit apart (H16): a fence without its events, or events without their fence.
    let fence = [("id", "fence#order:3"), ("position", "FENCE")].map(|(name, value)| (name.to_owned(), Value::S(value.into())));
    table.client().delete_item().table_name(TABLE).set_key(Some(fence.into())).send().await.expect("torn");
    let torn = table.open().await.verify(&|_| ()).await.expect("verify");
    assert!(torn.findings.iter().any(|finding| finding.item == "fence#order:3 @FENCE"), "{torn:?}");
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

#[tokio::test]
async fn untagged_events_are_appended_and_read_by_a_scan_that_is_asked_for_by_name() {
    let table = Table::new("partition=order");
    let log = table.log().await;
    log.append(Append::new([event("T", &[]), event("U", &["order:1"])])).await.expect("append");
    log.append(Append::new([event("T", &[])])).await.expect("append");
    assert!(table.items().await.iter().filter(|item| item["id"] == Value::S("dcb".into())).count() == 2);
    let types = Query::types(["T"]).expect("query");
    for query in [Query::all(), types.clone()] {
        assert!(is_unsupported(&log.source(&query, None).await) && is_unsupported(&log.read_all(&query, ReadOptions::default()).await));
        assert!(is_unsupported(&log.append(Append::new([event("T", &["order:1"])]).unless(query, After::Nothing)).await));
    }
    let scanning = Table { engine: table.engine.clone(), parameters: "partition=order&untagged=scan" }.log().await;
    assert_eq!(scanning.read_all(&types, ReadOptions::default()).await.expect("scan").len(), 2);
    let all = scanning.read_all(&Query::all(), ReadOptions::default()).await.expect("scan");
    assert_eq!(scanning.read_all(&Query::all(), ReadOptions::default().after(all[0].position)).await.expect("scan"), all[1..]);
    assert!(is_unsupported(&scanning.source(&types, None).await), "never as a condition");
}

#[tokio::test]
async fn what_it_cannot_hold_is_refused_before_any_call() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.engine.http_client(), 1);
    let log = table.through(&faults).await;
    let before = faults.log().len();
    let body = |body: &[u8]| Event::new("T", body.to_vec()).and_then(|e| e.tag("order:1")).expect("event");
    let meta = |key: &str| {
        let meta = fencepost::Metadata { extra: [(key.to_owned(), serde_json::json!(1))].into(), ..Default::default() };
        event("T", &["order:1"]).meta(meta)
    };
    let many: Vec<Event> = (0..100).map(|_| event("T", &["order:1"])).collect();
    for events in [
        vec![body(b"\xff\x00")],
        vec![body(b"text")],
        vec![body(br#"{"a":1,"a":2}"#)],
        vec![meta("data")],
        vec![meta("tag_order")],
        vec![meta("msgId")],
        vec![meta("fv")],
        vec![event("T", &["plain"])],
        vec![event("T", &["composite:1"])],
        vec![event("T", &["order:"])],
        vec![body(format!("\"{}\"", "x".repeat(410_000)).as_bytes())],
        many,
    ] {
        let outcome = log.append(Append::new(events)).await;
        assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    }
    let outcome = log.append(Append::new((0..100).map(|_| event("T", &["order:1"])))).await;
    assert!(matches!(outcome, Err(Error::Refused(Refused::TooManyItems { items: 101, limit: 100 }))), "{outcome:?}");
    assert_eq!(faults.log().len(), before, "no call was made");
}

#[tokio::test]
async fn settings_are_recorded_with_the_table_and_held_against_the_url() {
    let table = Table::new("partition=order&cross=product");
    table.open().await;
    let open = async |parameters: &'static str| Table { engine: table.engine.clone(), parameters }.builder().open().await.map(drop);
    assert!(open("untagged=scan").await.is_ok(), "as the table records it");
    for differs in ["partition=other", "partition=order&cross=x", "cross=product,x"] {
        let refused = open(differs).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::Differs { .. }) | Error::Unavailable(_))), "{differs}: {refused:?}");
    }
    // Every index that it asks for is there, and still it is another declaration.
    let swapped = open("partition=product&cross=order").await;
    assert!(matches!(swapped, Err(Error::Refused(Refused::Differs { what: "partition", .. }))), "{swapped:?}");
    let undeclared = Table::new("untagged=scan").builder().open().await.map(drop);
    assert!(matches!(&undeclared, Err(Error::Refused(Refused::Url { why })) if why.contains("partition=")), "{undeclared:?}");
}

#[tokio::test]
async fn reads_are_lazy_in_batches_and_each_event_comes_once() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.engine.http_client(), 1);
    let log = table.through(&faults).await;
    for order in 0..3 {
        let some = (0..40).map(|_| event("T", &[&format!("order:{order}"), "product:p"]));
        log.append(Append::new(some)).await.expect("append");
    }
    let query = tag("product:p").or(tag("order:1")).or(Query::tags(["order:2", "product:p"]).expect("query"));
    let calls = || (faults.calls("Query"), faults.calls("BatchGetItem"));
    let before = calls();
    let all = log.read_all(&query, ReadOptions::default()).await.expect("read");
    assert!(all.len() == 120 && all.is_sorted_by(|a, b| a.position < b.position), "{} events", all.len());
    assert_eq!(calls().1 - before.1, 2, "a hundred keys a batch");
    assert_eq!(log.source(&query, None).await.expect("source").events, all);
    let before = calls();
    let first = log.read(&tag("order:1"), ReadOptions::default().limit(3)).collect::<Vec<_>>().await;
    assert!(first.len() == 3 && calls().0 - before.0 <= 2, "a page of the partition, and one of its pointers");
}

#[tokio::test]
async fn decisions_read_at_half_the_units_where_that_is_asked_for_and_shows_all() {
    let mut costs = Vec::new();
    for parameters in ["partition=order", "partition=order&consistency=escalate", "partition=order&consistency=eventual"] {
        let log = Table::new(parameters).log().await;
        for _ in 0..2 {
            log.append(Append::new((0..40).map(|_| event("T", &["order:1"])))).await.expect("append");
        }
        let sourced = log.source(&tag("order:1"), None).await.expect("source");
        assert_eq!((sourced.events.len(), sourced.at_one_instant), (80, true));
        // The fence costs one unit, strongly.
        costs.push(sourced.units.read - 1.0);
        let nothing = log.source(&tag("order:1"), Some(&sourced.token)).await.expect("delta");
        assert_eq!((nothing.units.read, nothing.units.requests), (1.0, 1), "nothing new: the fence alone");
    }
    assert_eq!([costs[1] * 2.0, costs[2] * 2.0], [costs[0]; 2]);
}

// ---- faults ----

/// Every fault that passes: the append succeeds, and its event is there once.
#[tokio::test]
async fn faults_that_pass_are_settled() {
    for fault in [
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
    ] {
        // With the engine's tokens and without: past ten minutes only the keys are left.
        for engine in [Engine::memory().expect("engine").keep_tokens(), Engine::memory().expect("engine")] {
            let table = Table { engine, parameters: "partition=order&cross=product" };
            let faults = Faults::new(table.engine.http_client(), 1);
            let log = table.through(&faults).await;
            let two = || event("T", &["order:1", "product:p"]);
            log.append(Append::new([two()])).await.expect("warm");
            faults.script(Rule::on("TransactWriteItems").nth(1).suffer(fault.clone()));
            let token = log.source(&tag("order:1"), None).await.expect("source").token;
            let done = log.append(Append::new([two()]).unless(tag("order:1"), token)).await;
            assert!(done.is_ok(), "{fault:?}: {done:?}");
            faults.calm();
            let moved = done.expect("done").token.expect("token");
            assert!(log.source(&tag("order:1"), Some(&moved)).await.expect("delta").events.is_empty(), "{fault:?}: behind its own event");
            assert_eq!(log.source(&tag("product:p"), None).await.expect("source").events.len(), 2, "{fault:?}");
        }
    }
}

/// Lost for good: in doubt, and the repeat from the base finds the truth, whichever it is.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false), (Fault::Hang, false)] {
        let table = Table::new("partition=order");
        let faults = Faults::new(table.engine.http_client(), 1);
        let log = table.through(&faults).await;
        faults.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
        let answer = log.append(Append::new([event("T", &["order:1"])])).await;
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{fault:?}: {answer:?}") };
        faults.calm();
        let other = table.log().await;
        assert_eq!(other.source(&tag("order:1"), None).await.expect("source").events.len(), usize::from(landed), "{fault:?}");
        other.append(Append::new([event("T", &["order:1"])])).await.expect("another's");
        let base: fencepost::Base = doubt.base.to_string().parse().expect("base");
        let first = other.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, base.clone())).await.expect("again");
        let count = other.source(&tag("order:1"), None).await.expect("source").events.len();
        assert_eq!(count, 2, "{fault:?}");
        let again = other.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, base.clone())).await.expect("and again");
        assert_eq!(first.positions, again.positions);
        let reused = other.append(Append::new([event("U", &["order:1"])]).again(doubt.commit, base)).await;
        assert!(matches!(reused, Err(Error::Refused(Refused::Reused { .. }))), "{reused:?}");
    }
}

/// The try in doubt is still on its way when the repeat looks, and lands between two tries of the repeat: one commit all the same.
#[tokio::test]
async fn a_try_that_lands_while_it_is_repeated_is_one_commit() {
    let table = Table::new("partition=order");
    let faults = Faults::new(table.engine.http_client(), 1);
    let (gate, held) = (Gate::new(), Gate::new());
    let slow = Timeouts { attempts: 1, attempt: Duration::from_millis(100), ..QUICK };
    let log = support::open(table.builder().timeouts(slow).http_client(faults.http_client())).await.log().expect("log");
    log.append(Append::new([event("T", &["order:1"])])).await.expect("warm");
    faults.script(Rule::on("TransactWriteItems").nth(1).lose_request());
    let answer = log.append(Append::new([event("T", &["order:1"])])).await;
    let Err(Error::InDoubt(doubt)) = answer else { panic!("{answer:?}") };
    // The repeat knows an older fence than the try in doubt did, so its own first try fails; meanwhile that one lands.
    let near = Faults::new(table.engine.http_client(), 2);
    let other = table.through(&near).await;
    near.script(Rule::on("TransactWriteItems").nth(1).pause_after(&gate));
    near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&held));
    let moved = table.log().await;
    let repeat = tokio::spawn({
        let (commit, base) = (doubt.commit, doubt.base.clone());
        async move {
            other.source(&tag("order:1"), None).await.expect("remembers the fence");
            moved.append(Append::new([event("U", &["order:1"])])).await.expect("which moves");
            other.append(Append::new([event("T", &["order:1"])]).again(commit, base)).await
        }
    });
    gate.reached(1).await;
    gate.open();
    held.reached(1).await;
    let late =
        table.log().await.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, doubt.base.clone())).await.expect("lands");
    held.open();
    let again = repeat.await.expect("joins").expect("settled");
    let count = table.log().await.source(&Query::item(["T"], ["order:1"]).expect("query"), None).await.expect("source").events.len();
    assert_eq!(count, 2, "{late:?} and {again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_in_a_storm() {
    let table = Table::new("partition=p&cross=x,y");
    let key: support::keyed::KeyOf = |tag| ["p", "x", "y"][tag.bytes().map(usize::from).sum::<usize>() % 3];
    let mut logs: Vec<Arc<dyn EventLog>> = Vec::new();
    let mut all = Vec::new();
    for writer in 0..3 {
        let faults = Faults::new(table.engine.http_client(), 70 + writer);
        let inner = table.through(&faults).await;
        logs.push(Arc::new(support::keyed::Keyed { inner, key }));
        all.push(faults);
    }
    for faults in &all {
        let chances = Chances {
            throttle: 0.03,
            lose_request: 0.02,
            lose_response: 0.04,
            deliver_twice: 0.03,
            conflict: 0.04,
            hide_reasons: 0.1,
            ..Chances::default()
        };
        faults.random(chances);
    }
    let options = Oracle { seed: 7, writers: 6, rounds: 8, types_only: false, all: false, ..Oracle::default() };
    let report = oracle::run(&logs, options).await;
    assert!(report.as_ref().is_ok_and(|report| report.conditional > 5), "{report:?}");
}

// ---- the feed, the cache, moving ----

async fn fed(store: &Store, query: Query) -> Vec<String> {
    let index = store.index().expect("index");
    index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    let mut feed = store.feed().expect("feed").subscribe(From::Start, query);
    let mut met = Vec::new();
    while let Some(Delivery::Event { event, .. }) = feed.next().await.transpose().expect("delivers") {
        met.push(String::from_utf8(event.data.to_vec()).expect("text"));
    }
    met
}

#[tokio::test]
async fn h13_the_feed_keeps_each_partition_in_order_and_hands_over_what_the_peer_wrote() {
    let table = Table::new("partition=order&cross=product");
    let store = table.open().await;
    let log = store.log().expect("log");
    let numbered = |n: u32, tags: &[&str]| tags.iter().fold(Event::new("T", n.to_string()).expect("event"), |e, t| e.tag(t).expect("tag"));
    for n in 0..6 {
        log.append(Append::new([numbered(n, &["order:1", "product:p"])])).await.expect("append");
    }
    log.append(Append::new([
        numbered(6, &["order:1"]),
        numbered(7, &["order:2", "product:p"]),
        numbered(8, &["order:1"]),
        numbered(9, &[]),
    ]))
    .await
    .expect("a batch");
    let mut item = golden("event");
    item.insert("data".into(), Value::N("99".into()));
    table.put(item).await;
    let all = fed(&store, Query::all()).await;
    assert_eq!(all.iter().filter(|n| *n != "99").cloned().collect::<Vec<_>>(), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(all.contains(&"99".to_owned()), "the peer's too");
    assert_eq!(fed(&store, tag("product:p")).await, ["0", "1", "2", "3", "4", "5", "7"], "by a tag that is no partition");
    let index = store.index().expect("index");
    let verified = index.verify(&|_| ()).await.expect("verify");
    assert!(verified.findings.is_empty(), "{verified:?}");
    // Built anew from a scan alone: the same events, and each partition in its order.
    let copy = Table { engine: table.engine.clone(), parameters: "partition=order&cross=product&side=another-side" };
    let rebuilt = copy.open().await;
    let told = rebuilt.index().expect("index").rebuild(&|_| ()).await.expect("rebuild");
    assert_eq!(told.appended, 8, "{told:?}");
    let again = fed(&rebuilt, tag("order:1")).await;
    assert_eq!(again, ["0", "1", "2", "3", "4", "5", "6", "8"]);
}

#[derive(Event, Serialize, Deserialize)]
enum Order {
    Noted {
        #[tag("order")]
        order: u32,
    },
}

#[tokio::test]
async fn a_warm_decision_reads_the_fence_and_what_came_since() {
    let table = Table::new("partition=order");
    let (store, other) = (table.open().await, table.open().await);
    let cache = Cache::new(10);
    let note = || {
        let notes = fold(("order", 1), 0_u32, |notes, _: &Order| *notes += 1).cached_as("notes");
        decision(notes, |notes| if *notes >= 5 { Err(*notes) } else { Ok([Order::Noted { order: 1 }]) })
    };
    for _ in 0..3 {
        store.decide(note()).cache(&cache).await.expect("decides").accepted().expect("recorded");
    }
    other.decide(note()).await.expect("decides").accepted().expect("recorded");
    let fifth = store.decide(note()).cache(&cache).await.expect("decides");
    assert!(fifth.units.requests <= 3, "the fence, what came since, the append: {:?}", fifth.units);
    let enough = store.decide(note()).cache(&cache).await.expect("decides");
    assert_eq!(enough.rejection(), Some(&5));
    assert_eq!(cache.stats().misses, 1);
}

#[tokio::test]
async fn it_is_copied_to_the_ledger_and_back() {
    let table = Table::new("partition=order&cross=product");
    let from = table.open().await;
    let log = from.log().expect("log");
    for n in 0..5 {
        log.append(Append::new([event("T", &["order:1", &format!("product:{n}")]), event("U", &["order:2"])])).await.expect("append");
    }
    from.index().expect("index").run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
    let ledger = fencepost::open("memory:").await.expect("ledger");
    let copied = Copy::new(&from, &ledger, "there").run(&|_| ()).await.expect("copies");
    assert_eq!((copied.events, copied.commits), (10, 5));
    let back = Table::new("partition=order&cross=product").open().await;
    assert_eq!(Copy::new(&ledger, &back, "back").run(&|_| ()).await.expect("copies").events, 10);
    for query in [tag("order:1"), tag("product:3")] {
        let (mut there, mut here) = (
            log.source(&query, None).await.expect("source").events,
            back.log().expect("log").source(&query, None).await.expect("source").events,
        );
        let ids = |events: &mut Vec<fencepost::Recorded>| events.iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(&mut there), ids(&mut here));
    }
}
