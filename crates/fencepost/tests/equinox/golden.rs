//! Tables that the real F# Equinox wrote: each put as it lies into a fresh engine, and opened.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use fencepost::{Engine, Env, Store};
use serde_json::Value;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// One file.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) json: Value,
}

pub(crate) fn files() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/equinox");
    let mut files: Vec<Golden> = std::fs::read_dir(folder)
        .expect("the golden tables")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let json = serde_json::from_str(&std::fs::read_to_string(&path).expect("readable")).expect("JSON");
            Golden { name: path.file_stem().expect("a name").to_string_lossy().into_owned(), json }
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

pub(crate) fn file(name: &str) -> Golden {
    files().into_iter().find(|file| file.name == name).expect("such a file")
}

/// A table, and the store on it: on a fresh engine, or under a fresh name on the endpoint that `FENCEPOST_TEST_ENDPOINT` names.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) table: String,
    place: Place,
}

enum Place {
    Engine(Engine),
    Endpoint(String),
}

impl Golden {
    pub(crate) fn tables(&self) -> BTreeMap<String, Vec<Item>> {
        let items = |items: &Value| items.as_array().expect("items").iter().map(item).collect();
        self.json["tables"].as_object().expect("tables").iter().map(|(name, of)| (name.clone(), items(of))).collect()
    }

    pub(crate) async fn open(&self, table: &str, parameters: &str) -> Opened {
        let opened = open(table, parameters).await;
        for item in &self.tables()[table] {
            opened.client.put_item().table_name(&opened.table).set_item(Some(item.clone())).send().await.expect("the item is put");
        }
        opened
    }
}

pub(crate) async fn open(table: &str, parameters: &str) -> Opened {
    let Ok(endpoint) = std::env::var("FENCEPOST_TEST_ENDPOINT") else { return embedded(table, parameters).await };
    let table = format!("{table}-{}", Env::system().new_id().simple());
    let client = Client::from_conf(config().endpoint_url(&endpoint).build());
    opened(Place::Endpoint(endpoint.trim_end_matches('/').to_owned()), client, table, parameters).await
}

/// On the embedded engine whatever the environment says: for units.
pub(crate) async fn embedded(table: &str, parameters: &str) -> Opened {
    let engine = Engine::memory().expect("an engine");
    let client = client(&engine);
    opened(Place::Engine(engine), client, table.into(), parameters).await
}

/// As anybody's own.
pub(crate) fn client(engine: &Engine) -> Client {
    Client::from_conf(config().http_client(engine.http_client()).build())
}

async fn opened(place: Place, client: Client, table: String, parameters: &str) -> Opened {
    let store = place.store(&table, parameters).await;
    Opened { store, client, table, place }
}

fn config() -> aws_sdk_dynamodb::config::Builder {
    let config = aws_sdk_dynamodb::Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new("us-east-1"));
    config.credentials_provider(Credentials::from_keys("any", "any", None))
}

impl Place {
    async fn store(&self, table: &str, parameters: &str) -> Store {
        let builder = match self {
            Place::Engine(engine) => Store::builder(&format!("memory:?layout=equinox&table={table}{parameters}"))
                .expect("a good URL")
                .http_client(engine.http_client()),
            Place::Endpoint(url) => Store::builder(&format!("{url}/{table}?layout=equinox{parameters}")).expect("a good URL").create(true),
        };
        builder.open().await.expect("it opens")
    }
}

impl Opened {
    /// As another process would open it.
    pub(crate) async fn other(&self, parameters: &str) -> Store {
        self.place.store(&self.table, parameters).await
    }

    pub(crate) async fn item(&self, stream: &str, index: u64) -> Option<Item> {
        let (hash, range) = (AttributeValue::S(stream.into()), AttributeValue::N(index.to_string()));
        let got = self.client.get_item().table_name(&self.table).key("p", hash).key("i", range).send().await.expect("it is read");
        got.item
    }
}

pub(crate) fn item(item: &Value) -> Item {
    item.as_object().expect("an item").iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

/// From DynamoDB's own JSON.
fn attribute(value: &Value) -> AttributeValue {
    let (kind, value) = value.as_object().expect("an attribute").iter().next().expect("a type");
    let text = || value.as_str().expect("a text").to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "B" => AttributeValue::B(Blob::new(base64::engine::general_purpose::STANDARD.decode(text()).expect("base64"))),
        "BOOL" => AttributeValue::Bool(value.as_bool().expect("a truth")),
        "NULL" => AttributeValue::Null(true),
        "L" => AttributeValue::L(value.as_array().expect("a list").iter().map(attribute).collect()),
        "M" => AttributeValue::M(value.as_object().expect("a map").iter().map(|(name, value)| (name.clone(), attribute(value))).collect()),
        other => panic!("type {other}"),
    }
}
