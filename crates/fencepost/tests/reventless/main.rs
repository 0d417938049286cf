//! The layout of Reventless' DcbEventLog: items as the published page has them, both ways; what it holds beside its peer; what it costs;
//! what it refuses; its feed; and the truth under faults. The hazards of the published algorithm are in `reventless_hazards.rs`.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

#[path = "../bare_sdk/mod.rs"]
mod bare_sdk;
mod cost;
mod faults;
mod feed;
mod fences;
mod items;
mod limits;
mod reads;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod verify;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue as Value;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use fencepost::testing::{Faults, Lag};
use fencepost::{Engine, Env, Error, Event, EventLog, Query, Refused, Store, Timeouts, Units};

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };

/// Where an event of the peer's stands: long ago.
const PEERS: &str = "1719100800000-000001-550e8400-e29b-41d4-a716-446655440000";

type Item = HashMap<String, Value>;

/// A table on an engine of its own, or under a name of its own on the endpoint that `FENCEPOST_TEST_ENDPOINT` names.
#[derive(Clone)]
struct Table {
    http: SharedHttpClient,
    name: String,
    endpoint: Option<String>,
    parameters: String,
}

impl Table {
    fn new(parameters: &str) -> Table {
        let Ok(endpoint) = std::env::var("FENCEPOST_TEST_ENDPOINT") else { return Table::embedded(parameters) };
        let http = aws_smithy_http_client::Builder::new().build_http();
        let name = format!("r{}", Env::system().new_id().simple());
        Table { http, name, endpoint: Some(endpoint.trim_end_matches('/').into()), parameters: parameters.into() }
    }
    /// On the embedded engine whatever the environment says: for units, and for what only it can be made to do.
    fn embedded(parameters: &str) -> Table {
        Table::on(Engine::memory().expect("engine").keep_tokens().http_client(), parameters)
    }
    fn on(http: SharedHttpClient, parameters: &str) -> Table {
        Table { http, name: "fencepost".into(), endpoint: None, parameters: parameters.into() }
    }
    /// The same table, opened otherwise.
    fn with(&self, parameters: &str) -> Table {
        Table { parameters: parameters.into(), ..self.clone() }
    }
    fn http(&self) -> SharedHttpClient {
        self.http.clone()
    }
    fn builder(&self) -> fencepost::Builder {
        let url = match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{}?layout=reventless&{}", self.name, self.parameters),
            None => format!("memory:?table={}&layout=reventless&{}", self.name, self.parameters),
        };
        Store::builder(&url).expect("url").create(true).http_client(self.http())
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
        let client = bare_sdk::client(self.http());
        let Some(endpoint) = &self.endpoint else { return client };
        // As the chain finds them for the store: an endpoint may keep regions and accounts apart.
        let var = |name: &str| std::env::var(name).expect(name);
        let keys = Credentials::new(var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY"), None, None, "test");
        let config = client.config().to_builder().endpoint_url(endpoint).credentials_provider(keys);
        aws_sdk_dynamodb::Client::from_conf(config.region(Region::new(var("AWS_REGION"))).build())
    }
    /// As the peer would put it.
    async fn put(&self, item: Item) {
        self.client().put_item().table_name(&self.name).set_item(Some(item)).send().await.expect("put");
    }
    /// As the peer would put an event, and move its fence.
    async fn peers(&self, event_type: &str, tags: &[&str], position: &str) {
        let mut item = golden("event");
        item.retain(|name, _| !name.starts_with("tag_"));
        let parts = |tag: &str| tag.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned())).expect("key and value");
        let mut list = Vec::new();
        for (key, value) in tags.iter().map(|tag| parts(tag)) {
            item.insert(format!("tag_{key}"), Value::S(value.clone()));
            list.push(Value::M([("key".into(), Value::S(key)), ("value".into(), Value::S(value))].into()));
        }
        item.extend([
            ("id".to_owned(), Value::S(tags[0].into())),
            ("position".into(), Value::S(position.into())),
            ("event".into(), Value::S(event_type.into())),
            ("tags".into(), Value::L(list)),
        ]);
        self.put(item).await;
        for tag in tags {
            self.bump(tag, event_type, position).await;
        }
    }
    /// As the peer moves a fence.
    async fn bump(&self, tag: &str, event_type: &str, position: &str) {
        let key = self.key(&format!("fence#{tag}"), "FENCE");
        let update = self.client().update_item().table_name(&self.name).set_key(Some(key)).update_expression("SET #p = :p");
        let update = update.expression_attribute_names("#p", format!("pos#{event_type}"));
        update.expression_attribute_values(":p", Value::S(position.into())).send().await.expect("the peer's bump");
    }
    fn key(&self, id: &str, position: &str) -> Item {
        [("id", id), ("position", position)].map(|(name, value)| (name.to_owned(), Value::S(value.into()))).into()
    }
    async fn get(&self, id: &str, position: &str) -> Item {
        let got = self.client().get_item().table_name(&self.name).set_key(Some(self.key(id, position)));
        got.consistent_read(true).send().await.expect("get").item.unwrap_or_default()
    }
    async fn delete(&self, id: &str, position: &str) {
        self.client().delete_item().table_name(&self.name).set_key(Some(self.key(id, position))).send().await.expect("delete");
    }
    async fn items(&self) -> Vec<Item> {
        self.client().scan().table_name(&self.name).consistent_read(true).send().await.expect("scan").items.unwrap_or_default()
    }
}

/// A table whose replica and indexes show of each write only what the test lets through.
fn lagging(parameters: &str) -> (Table, Lag) {
    let [first, second] = [(), ()].map(|()| Engine::memory().expect("engine").keep_tokens().http_client());
    let lag = Lag::new(first, second, 1);
    (Table::on(lag.http_client(), parameters), lag)
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
