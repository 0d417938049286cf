//! The SDK's own client on a connector of ours, and the smallest table and items to drive it with. Shared by the tests below the store.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ReturnValuesOnConditionCheckFailure,
    ScalarAttributeType, TransactWriteItem,
};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

pub(crate) const TABLE: &str = "orders";
pub(crate) type Item = HashMap<String, AttributeValue>;

/// A client that tries once: what the connector answers is what the test sees.
pub(crate) fn client(http: SharedHttpClient) -> Client {
    with_attempts(http, 1)
}

pub(crate) fn with_attempts(http: SharedHttpClient, attempts: u32) -> Client {
    let retries = RetryConfig::standard().with_max_attempts(attempts).with_initial_backoff(Duration::from_millis(1));
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::for_tests())
        .region(Region::new("eu-west-1"))
        .retry_config(retries)
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(20)).build())
        .http_client(http)
        .build();
    Client::from_conf(config)
}

pub(crate) async fn create_table(client: &Client) {
    let attribute =
        |name: &str, of: ScalarAttributeType| AttributeDefinition::builder().attribute_name(name).attribute_type(of).build().unwrap();
    let key = |name: &str, of: KeyType| KeySchemaElement::builder().attribute_name(name).key_type(of).build().unwrap();
    client
        .create_table()
        .table_name(TABLE)
        .attribute_definitions(attribute("p", ScalarAttributeType::S))
        .attribute_definitions(attribute("s", ScalarAttributeType::N))
        .key_schema(key("p", KeyType::Hash))
        .key_schema(key("s", KeyType::Range))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
}

pub(crate) fn text(of: &str) -> AttributeValue {
    AttributeValue::S(of.into())
}

pub(crate) fn key(p: &str, s: u64) -> Item {
    HashMap::from([("p".into(), text(p)), ("s".into(), AttributeValue::N(s.to_string()))])
}

pub(crate) fn item(p: &str, s: u64, by: &str) -> Item {
    let mut item = key(p, s);
    item.insert("by".into(), text(by));
    item
}

/// Puts where nothing is, and asks for what is there instead.
pub(crate) fn put_new(item: Item) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(TABLE)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(p)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

/// What is stored, by a strongly consistent read.
pub(crate) async fn get(client: &Client, p: &str, s: u64) -> Option<Item> {
    client.get_item().table_name(TABLE).set_key(Some(key(p, s))).consistent_read(true).send().await.unwrap().item
}

/// Who wrote it.
pub(crate) async fn by(client: &Client, p: &str, s: u64) -> Option<String> {
    get(client, p, s).await.map(|item| item["by"].as_s().unwrap().clone())
}
