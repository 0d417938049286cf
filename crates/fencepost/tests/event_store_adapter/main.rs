//! event-store-adapter, v3 and v5: tables that other clients wrote, the exact items that are written, retention, the feed, copies.

#[allow(clippy::unwrap_used, reason = "shared with tests that may")]
#[path = "../bare_sdk/mod.rs"]
mod bare_sdk;
mod copies;
mod costs;
mod faults;
mod feed;
mod gaps;
mod half;
mod items;
mod keys;
mod lag;
mod lost;
mod opening;
mod others;
mod retention;
#[path = "../support/mod.rs"]
mod support;
mod verify;

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::{Engine, Event, Snapshot, Step, Store, StreamName};
use support::{Ground, open};

type Item = HashMap<String, AttributeValue>;

const V3: &str = "layout=event-store-adapter-v3";
const V5: &str = "layout=event-store-adapter-v5";
const BOTH: [&str; 2] = [V3, V5];

fn name(name: &str) -> StreamName {
    StreamName::new(name).expect("a name")
}
fn event(event_type: &str, body: &str) -> Event {
    Event::new(event_type, body.to_owned()).expect("an event")
}
/// With a snapshot, as the first append to a stream of v3 needs one.
fn first(events: impl IntoIterator<Item = Event>) -> Step {
    Step::new(events).snapshot(Snapshot::new("snapshot", "{}"))
}
fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}
fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
fn blob(bytes: &str) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes.as_bytes()))
}
fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// An engine, a store on it, and the bare SDK beside it.
async fn bench(parameters: &str) -> (Engine, Store, Client) {
    let engine = Engine::memory().expect("an engine").keep_tokens();
    let store = open(Ground::Engine(engine.clone()).builder(parameters)).await;
    let client = bare_sdk::client(engine.http_client());
    (engine, store, client)
}

async fn put(client: &Client, table: &str, item: Item) {
    client.put_item().table_name(table).set_item(Some(item)).send().await.expect("puts");
}
async fn scan(client: &Client, table: &str) -> Vec<Item> {
    client.scan().table_name(table).consistent_read(true).send().await.expect("scans").items.unwrap_or_default()
}
fn names(item: &Item) -> Vec<&str> {
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}
