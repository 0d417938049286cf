//! Tables that the real F# Equinox wrote: each put as it lies into a fresh engine, and opened.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use fencepost::{Engine, Store};
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

/// An engine with one of a file's tables, and the store on it.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    pub(crate) table: String,
}

impl Golden {
    pub(crate) fn tables(&self) -> BTreeMap<String, Vec<Item>> {
        let item = |item: &Value| item.as_object().expect("an item").iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
        let items = |items: &Value| items.as_array().expect("items").iter().map(item).collect();
        self.json["tables"].as_object().expect("tables").iter().map(|(name, of)| (name.clone(), items(of))).collect()
    }

    pub(crate) async fn open(&self, table: &str, parameters: &str) -> Opened {
        let opened = open(table, parameters).await;
        for item in &self.tables()[table] {
            opened.client.put_item().table_name(table).set_item(Some(item.clone())).send().await.expect("the item is put");
        }
        opened
    }
}

pub(crate) async fn open(table: &str, parameters: &str) -> Opened {
    on(Engine::memory().expect("an engine"), table, parameters).await
}

pub(crate) async fn on(engine: Engine, table: &str, parameters: &str) -> Opened {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(Credentials::from_keys("a", "b", None))
        .http_client(engine.http_client());
    let url = format!("memory:?layout=equinox&table={table}{parameters}");
    let store = Store::builder(&url).expect("a good URL").http_client(engine.http_client()).open().await.expect("it opens");
    Opened { store, client: Client::from_conf(config.build()), engine, table: table.into() }
}

impl Opened {
    pub(crate) async fn item(&self, stream: &str, index: u64) -> Option<Item> {
        let (hash, range) = (AttributeValue::S(stream.into()), AttributeValue::N(index.to_string()));
        let got = self.client.get_item().table_name(&self.table).key("p", hash).key("i", range).send().await.expect("it is read");
        got.item
    }
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
