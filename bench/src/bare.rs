//! The bare SDK: the requests that the ledger sends, item for item, with nothing around them.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, CancellationReason, KeySchemaElement, KeyType, KeysAndAttributes, Put,
    ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure as OnFailure, ScalarAttributeType, StreamSpecification, StreamViewType,
    TransactWriteItem,
};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use fencepost::Engine;
use fencepost_contest::{KEY, REGION};

/// A client with the settings that the store gives its own, on a table like the ledger's in `streams` mode, with a stream; and on one beside
/// it as with lanes, without.
#[derive(Clone)]
pub(crate) struct Bare {
    client: Client,
    table: String,
}

/// Whether a table has a stream, into which every write is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streamed {
    Yes,
    No,
}

type Item = HashMap<String, AttributeValue>;

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}
fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

impl Bare {
    pub(crate) fn new(engine: &Engine) -> Bare {
        Bare::by(engine.http_client(), None, "bare")
    }

    /// By this connector, on a table of this name.
    pub(crate) fn by(http: SharedHttpClient, endpoint: Option<&str>, table: &str) -> Bare {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(Credentials::from_keys(KEY, KEY, None))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(http)
            .sleep_impl(TokioSleep::new());
        let config = match endpoint {
            Some(endpoint) => config.endpoint_url(endpoint),
            None => config,
        };
        Bare { client: Client::from_conf(config.build()), table: table.to_owned() }
    }

    fn lanes(&self) -> String {
        format!("{}-lanes", self.table)
    }

    pub(crate) async fn with_tables(engine: &Engine) -> Bare {
        let bare = Bare::new(engine);
        bare.create(Streamed::Yes).await;
        bare
    }

    pub(crate) async fn create(&self, streamed: Streamed) {
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key");
        let attribute =
            |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("attribute");
        let stream =
            StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewImage).build().expect("stream");
        for (table, stream) in [(self.table.clone(), Some(stream).filter(|_| streamed == Streamed::Yes)), (self.lanes(), None)] {
            self.client
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
    }

    /// A stream in bulk, unconditionally; the events have these numbers in the store, and their commits too, since a commit is read once.
    pub(crate) async fn fill(&self, stream: &str, events: std::ops::Range<u64>, body: impl Fn(u64) -> String) {
        let put = |n: u64| {
            let mut item = Self::slot(format!("t/main/{stream}"), n - events.start + 1, &body(n));
            item.insert("c".into(), AttributeValue::B(Blob::new(u128::from(n).to_be_bytes())));
            TransactWriteItem::builder().put(Put::builder().table_name(&self.table).set_item(Some(item)).build().expect("put")).build()
        };
        let all: Vec<TransactWriteItem> = events.clone().map(put).collect();
        // Not by BatchWriteItem: an engine on disk flushes each item of that, and a transaction once (2.2 ms, on a disk of 2026).
        for some in all.chunks(100) {
            self.client.transact_write_items().set_transact_items(Some(some.to_vec())).send().await.expect("bulk");
        }
    }

    fn slot(key: String, version: u64, body: &str) -> Item {
        let event = HashMap::from([("t".into(), text("OrderPlaced")), ("d".into(), text(body))]);
        HashMap::from([
            ("p".into(), AttributeValue::S(key)),
            ("v".into(), number(version)),
            ("c".into(), AttributeValue::B(Blob::new([7u8; 16]))),
            ("s".into(), number(1_767_225_600_000_000 + version)),
            ("e".into(), AttributeValue::M(event)),
        ])
    }

    pub(crate) async fn put(&self, stream: &str, version: u64, body: &str) {
        assert!(self.try_put(stream, version, body).await, "nobody else writes here");
    }

    /// Whether nothing was there. What was there comes with the refusal, so that who lost knows as much as a read would tell.
    pub(crate) async fn try_put(&self, stream: &str, version: u64, body: &str) -> bool {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(Self::slot(format!("t/main/{stream}"), version, body)))
            .condition_expression("attribute_not_exists(#h)")
            .expression_attribute_names("#h", "p")
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match put.send().await.map_err(SdkError::into_service_error) {
            Ok(_) => true,
            Err(PutItemError::ConditionalCheckFailedException(failed)) => {
                assert!(failed.item.is_some_and(|winner| taken(winner) == 1), "the winner's event comes with the refusal");
                false
            }
            Err(error) => panic!("put: {error:?}"),
        }
    }

    /// All of these slots in one transaction; or of each whether it was taken, as the refusal tells.
    pub(crate) async fn try_transact(&self, slots: &[(&str, u64, &str)]) -> Result<(), Vec<bool>> {
        let put = |(stream, version, body): &(&str, u64, &str)| {
            let put = Put::builder()
                .table_name(&self.table)
                .set_item(Some(Self::slot(format!("t/main/{stream}"), *version, body)))
                .condition_expression("attribute_not_exists(#h)")
                .expression_attribute_names("#h", "p")
                .return_values_on_condition_check_failure(OnFailure::AllOld);
            TransactWriteItem::builder().put(put.build().expect("put")).build()
        };
        let items = slots.iter().map(put).collect();
        let sent =
            self.client.transact_write_items().set_transact_items(Some(items)).return_consumed_capacity(ReturnConsumedCapacity::Total);
        match sent.send().await.map_err(SdkError::into_service_error) {
            Ok(_) => Ok(()),
            Err(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                let was_taken = |reason: CancellationReason| reason.item.is_some_and(|winner| taken(winner) == 1);
                Err(cancelled.cancellation_reasons.unwrap_or_default().into_iter().map(was_taken).collect())
            }
            Err(error) => panic!("transact: {error:?}"),
        }
    }

    pub(crate) async fn transact(&self, tag: &str, version: u64, seq: u64, body: &str) {
        let put = |key: String, version| {
            let put = Put::builder()
                .table_name(self.lanes())
                .set_item(Some(Self::slot(key, version, body)))
                .condition_expression("attribute_not_exists(#h)")
                .expression_attribute_names("#h", "p")
                .return_values_on_condition_check_failure(OnFailure::AllOld);
            TransactWriteItem::builder().put(put.build().expect("put")).build()
        };
        self.client
            .transact_write_items()
            .transact_items(put("l/main/0".into(), seq))
            .transact_items(put(format!("t/main/{tag}"), version))
            .client_request_token(format!("{seq:032}"))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("transact");
    }

    /// A stream of one page; how many items.
    pub(crate) async fn query(&self, stream: &str) -> usize {
        let (items, next) = self.page(&self.table, &format!("t/main/{stream}"), 1, None, None).await;
        assert!(next.is_none());
        items.len()
    }

    /// Every page of a stream behind this version, and the events in it, one an item; how many.
    pub(crate) async fn since(&self, stream: &str, version: u64) -> u64 {
        let (mut count, mut next) = (0, None);
        loop {
            let (items, after) = self.page(&self.table, &format!("t/main/{stream}"), version + 1, None, next).await;
            count += items.into_iter().map(taken).sum::<usize>() as u64;
            next = after;
            if next.is_none() {
                return count;
            }
        }
    }

    /// Every page of a series, and the events in it; how many.
    pub(crate) async fn series(&self, table: &str, hash: &str) -> usize {
        let (mut events, mut next) = (0, None);
        loop {
            let (items, after) = self.page(table, hash, 1, None, next).await;
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
            let (items, after) = self.page(table, "x", 1, Some(limit), next).await;
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
        let request = self.client.batch_get_item().request_items(table, wanted).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = request.send().await.expect("slots");
        answer.responses.into_iter().flat_map(HashMap::into_values).flatten().map(taken).sum()
    }

    async fn page(&self, table: &str, hash: &str, from: u64, limit: Option<i32>, start: Option<Item>) -> (Vec<Item>, Option<Item>) {
        let page = self
            .client
            .query()
            .table_name(table)
            .key_condition_expression("#h = :h AND #r BETWEEN :a AND :b")
            .expression_attribute_names("#h", "p")
            .expression_attribute_names("#r", "v")
            .expression_attribute_values(":h", text(hash))
            .expression_attribute_values(":a", number(from))
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
    let events = match slot.remove("e") {
        Some(AttributeValue::L(events)) => events,
        Some(one @ AttributeValue::M(_)) => vec![one],
        _ => return 0,
    };
    let taken = events.into_iter().filter_map(|event| match event {
        AttributeValue::M(mut event) => Some((event.remove("t")?, event.remove("d")?)),
        _ => None,
    });
    std::hint::black_box(taken.collect::<Vec<_>>()).len()
}
