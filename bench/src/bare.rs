//! The bare SDK: the requests that the ledger sends, item for item, with nothing around them.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ReturnConsumedCapacity,
    ReturnValuesOnConditionCheckFailure as OnFailure, ScalarAttributeType, StreamSpecification, StreamViewType, TransactWriteItem,
};
use fencepost::Engine;

/// Like the ledger's table in `streams` mode, with a stream …
const TABLE: &str = "bare";
/// … and with lanes, without.
const LANES: &str = "bare-lanes";

/// A client with the settings that the store gives its own, on a table like the ledger's.
#[derive(Clone)]
pub(crate) struct Bare(Client);

type Item = HashMap<String, AttributeValue>;

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}
fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

impl Bare {
    pub(crate) async fn new(engine: &Engine) -> Bare {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("local"))
            .credentials_provider(Credentials::from_keys("local", "local", None))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(engine.http_client())
            .build();
        let client = Client::from_conf(config);
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key");
        let attribute =
            |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("attribute");
        let stream =
            StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewImage).build().expect("stream");
        for (table, stream) in [(TABLE, Some(stream)), (LANES, None)] {
            client
                .create_table()
                .table_name(table)
                .billing_mode(BillingMode::PayPerRequest)
                .key_schema(key("p", KeyType::Hash))
                .key_schema(key("v", KeyType::Range))
                .attribute_definitions(attribute("p", ScalarAttributeType::S))
                .attribute_definitions(attribute("v", ScalarAttributeType::N))
                .set_stream_specification(stream)
                .send()
                .await
                .expect("table");
        }
        Bare(client)
    }

    fn slot(key: String, version: u64, body: &str) -> Item {
        let event = HashMap::from([("i".into(), number(0)), ("t".into(), text("OrderPlaced")), ("d".into(), text(body))]);
        HashMap::from([
            ("p".into(), AttributeValue::S(key)),
            ("v".into(), number(version)),
            ("c".into(), AttributeValue::B(Blob::new([7u8; 16]))),
            ("s".into(), number(1_767_225_600_000_000 + version)),
            ("n".into(), number(version)),
            ("f".into(), AttributeValue::B(Blob::new([7u8; 16]))),
            ("w".into(), AttributeValue::M(HashMap::from([("t/w0-00".into(), number(version))]))),
            ("e".into(), AttributeValue::L(vec![AttributeValue::M(event)])),
        ])
    }

    pub(crate) async fn put(&self, stream: &str, version: u64, body: &str) {
        self.0
            .put_item()
            .table_name(TABLE)
            .set_item(Some(Self::slot(format!("t/main/{stream}"), version, body)))
            .condition_expression("attribute_not_exists(#h)")
            .expression_attribute_names("#h", "p")
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("put");
    }

    pub(crate) async fn transact(&self, tag: &str, version: u64, seq: u64, body: &str) {
        let put = |key: String, version| {
            let put = Put::builder()
                .table_name(LANES)
                .set_item(Some(Self::slot(key, version, body)))
                .condition_expression("attribute_not_exists(#h)")
                .expression_attribute_names("#h", "p")
                .return_values_on_condition_check_failure(OnFailure::AllOld);
            TransactWriteItem::builder().put(put.build().expect("put")).build()
        };
        self.0
            .transact_write_items()
            .transact_items(put("l/main/0".into(), seq))
            .transact_items(put(format!("t/main/{tag}"), version))
            .client_request_token(format!("{seq:032}"))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("transact");
    }

    /// Every page of a stream; how many items.
    pub(crate) async fn query(&self, stream: &str) -> usize {
        let page = self
            .0
            .query()
            .table_name(TABLE)
            .key_condition_expression("#h = :h AND #r BETWEEN :a AND :b")
            .expression_attribute_names("#h", "p")
            .expression_attribute_names("#r", "v")
            .expression_attribute_values(":h", AttributeValue::S(format!("t/main/{stream}")))
            .expression_attribute_values(":a", number(1))
            .expression_attribute_values(":b", number(u64::MAX >> 1))
            .scan_index_forward(true)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("query");
        assert!(page.last_evaluated_key.is_none());
        page.items.unwrap_or_default().len()
    }
}
