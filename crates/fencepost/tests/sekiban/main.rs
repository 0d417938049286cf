//! Sekiban's tables: what the real Sekiban wrote is read, what it would write is written, and what it does not hold is held.
//!
//! One bench for all of it, and one binary: what is proved lies in the files beside this one. `golden/sekiban/*.json` are tables that Sekiban itself wrote; each names the calls that made it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

#[path = "../bare_sdk/mod.rs"]
mod bare_sdk;
mod bucket;
mod chunked;
mod doubts;
mod equal;
mod following;
mod golden;
mod heads;
mod indexed;
mod large;
mod once;
mod reading;
mod rows;
mod settings;
mod snapshots;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod versions;
mod whole;
mod window;
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
        let mut items = self.client.scan().table_name(self.table(table)).into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = items.next().await {
            all.push(item.expect("scan"));
        }
        all
    }

    async fn heads(&self) -> BTreeMap<String, (String, String, bool)> {
        let heads = self.dump("SekibanTags").await.into_iter().filter(|item| item["sk"] == AttributeValue::S("HEAD".into()));
        let text = |item: &Item, name: &str| item[name].as_s().or(item[name].as_n()).expect(name).clone();
        heads.map(|head| (text(&head, "pk"), (text(&head, "pos"), text(&head, "cnt"), head.contains_key("pending")))).collect()
    }
}

fn id(text: &str) -> SortableId {
    text.parse().expect("30 digits")
}

fn tag(name: &str) -> Tag {
    Tag::new(name).expect("a tag")
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

fn comparable(mut item: Item) -> BTreeMap<String, AttributeValue> {
    item.retain(|name, _| !CLOCK.contains(&name.as_str()));
    item.into_iter().collect()
}

fn set(items: impl Iterator<Item = Item>) -> Vec<BTreeMap<String, AttributeValue>> {
    let mut all: Vec<_> = items.map(comparable).collect();
    all.sort_by_key(|item| (item["pk"].as_s().expect("pk").clone(), item["sk"].as_s().expect("sk").clone()));
    all
}

fn event(label: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new("T", label.to_owned()).expect("event"), |event, tag| event.tag(tag).expect("tag"))
}

fn labels(events: &[Recorded]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8_lossy(&event.data).into_owned()).collect()
}

const QUICK: Timeouts =
    Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_millis(300), operation: Duration::from_secs(20), attempts: 4 };

/// Where no fault takes time: an engine that is busy is waited for.
const PATIENT: Timeouts = Timeouts { attempt: Duration::from_secs(10), ..QUICK };
