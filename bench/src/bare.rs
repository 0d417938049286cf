//! The bare SDK: the requests that the ledger sends, item for item, with nothing around them.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, KeysAndAttributes, Put, ReturnConsumedCapacity,
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
    pub(crate) fn new(engine: &Engine) -> Bare {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("local"))
            .credentials_provider(Credentials::from_keys("local", "local", None))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(engine.http_client())
            .build();
        Bare(Client::from_conf(config))
    }

    pub(crate) async fn with_tables(engine: &Engine) -> Bare {
        let bare = Bare::new(engine);
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key");
        let attribute =
            |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("attribute");
        let stream =
            StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewImage).build().expect("stream");
        for (table, stream) in [(TABLE, Some(stream)), (LANES, None)] {
            bare.0
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
        bare
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
        let (items, next) = self.page(TABLE, &format!("t/main/{stream}"), None, None).await;
        assert!(next.is_none());
        items.len()
    }

    /// Every page of a series, and the events in it; how many.
    pub(crate) async fn series(&self, table: &str, hash: &str) -> usize {
        let (mut events, mut next) = (0, None);
        loop {
            let (items, after) = self.page(table, hash, None, next).await;
            events += items.into_iter().map(taken).sum::<usize>();
            next = after;
            if next.is_none() {
                return events;
            }
        }
    }

    /// Every epoch of an index, so many a page; their bytes.
    pub(crate) async fn epochs(&self, table: &str, limit: i32) -> usize {
        let (mut bytes, mut next) = (0, None);
        loop {
            let (items, after) = self.page(table, "x", Some(limit), next).await;
            bytes += items.iter().filter_map(|item| item.get("e")?.as_b().ok()).map(|entries| entries.as_ref().len()).sum::<usize>();
            next = after;
            if next.is_none() {
                return bytes;
            }
        }
    }

    /// These slots, and the events in them; how many.
    pub(crate) async fn slots(&self, table: &str, keys: &[(String, u64)]) -> usize {
        let keys = keys.iter().map(|(hash, range)| Item::from([("p".into(), text(hash)), ("v".into(), number(*range))])).collect();
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(false).build().expect("keys");
        let request = self.0.batch_get_item().request_items(table, wanted).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = request.send().await.expect("slots");
        answer.responses.into_iter().flat_map(HashMap::into_values).flatten().map(taken).sum()
    }

    async fn page(&self, table: &str, hash: &str, limit: Option<i32>, start: Option<Item>) -> (Vec<Item>, Option<Item>) {
        let page = self
            .0
            .query()
            .table_name(table)
            .key_condition_expression("#h = :h AND #r BETWEEN :a AND :b")
            .expression_attribute_names("#h", "p")
            .expression_attribute_names("#r", "v")
            .expression_attribute_values(":h", text(hash))
            .expression_attribute_values(":a", number(1))
            .expression_attribute_values(":b", number(u64::MAX >> 1))
            .scan_index_forward(true)
            .consistent_read(true)
            .set_limit(limit)
            .set_exclusive_start_key(start)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("query");
        (page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty()))
    }
}

/// Type and body of every event of a slot, moved out of it; how many.
fn taken(mut slot: Item) -> usize {
    let Some(AttributeValue::L(events)) = slot.remove("e") else { return 0 };
    let taken = events.into_iter().filter_map(|event| match event {
        AttributeValue::M(mut event) => Some((event.remove("t")?, event.remove("d")?)),
        _ => None,
    });
    std::hint::black_box(taken.collect::<Vec<_>>()).len()
}
