//! DynamoDB Streams by the SDK: shards page by page, iterators, records; what is expired or trimmed is an answer and not an error.

use std::cmp::Ordering;
use std::fmt;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::config::StalledStreamProtectionConfig;
use aws_sdk_dynamodbstreams::config::retry::RetryConfig;
use aws_sdk_dynamodbstreams::config::timeout::TimeoutConfig;
use aws_sdk_dynamodbstreams::operation::get_records::GetRecordsError;
use aws_sdk_dynamodbstreams::operation::get_shard_iterator::GetShardIteratorError;
use aws_sdk_dynamodbstreams::types::{AttributeValue, OperationType, ShardIteratorType};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use serde::{Deserialize, Serialize};

use crate::dynamo::item::{Item, Value};
use crate::dynamo::table::StreamView;
use crate::dynamo::{Dynamo, Op, Timeouts};
use crate::error::{Error, Reason, Refused, Result};

/// A client of DynamoDB Streams beside that of DynamoDB; none where the caller handed in a client of DynamoDB alone.
#[derive(Debug)]
pub(in crate::dynamo) struct Connection(Option<Client>);

impl Connection {
    pub(in crate::dynamo) fn new(sdk: Option<&SdkConfig>, http: Option<SharedHttpClient>, timeouts: Timeouts) -> Self {
        let config = sdk.map(|sdk| {
            let config = aws_sdk_dynamodbstreams::config::Builder::from(sdk)
                .behavior_version(BehaviorVersion::latest())
                .retry_config(RetryConfig::disabled())
                .timeout_config(TimeoutConfig::builder().connect_timeout(timeouts.connect).build())
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
                .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new());
            match http {
                Some(http) => config.http_client(http),
                None => config,
            }
        });
        Self(config.map(|config| Client::from_conf(config.build())))
    }
}

/// Where a record stands in its shard: a whole number of up to 40 digits, which no number of ours holds.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sequence(String);

impl Sequence {
    pub(crate) fn new(digits: impl Into<String>) -> Self {
        Self(digits.into())
    }
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for Sequence {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.0.trim_start_matches('0'), other.0.trim_start_matches('0'));
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}
impl PartialOrd for Sequence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a stream, closed after some hours and followed by its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) id: String,
    /// May be long gone.
    pub(crate) parent: Option<String>,
    /// Its last record's, where it is closed.
    pub(crate) last: Option<Sequence>,
}

/// From where on to read a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// The oldest record that is still there.
    Oldest,
    /// This record, and those behind it.
    At(Sequence),
    /// Behind this record.
    After(Sequence),
}

/// A place to read from; good for a quarter of an hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor(String);

/// What became of the wish to read a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opened {
    At(Cursor),
    /// The shard, or what should be read of it, is gone.
    Trimmed,
}

/// What a read of a shard brought.
#[derive(Debug)]
pub(crate) enum Read {
    /// Perhaps no record: that does not say that none will come. Without a next place the shard is closed and read to its end.
    Page { records: Vec<Record>, next: Option<Cursor> },
    /// The cursor is too old: open the shard again behind the last record.
    Expired,
    /// What should be read is gone.
    Trimmed,
}

/// One change of one item.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) sequence: Sequence,
    pub(crate) change: Change,
    /// When, by the service's clock, in microseconds since 1970, to the second.
    pub(crate) at: u64,
    /// The item after the change; empty where it was deleted.
    pub(crate) image: Item,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Insert,
    Other,
}

impl Dynamo {
    fn stream_client(&self) -> Result<&Client> {
        self.0.streams.0.as_ref().ok_or_else(|| {
            Refused::Unsupported {
                what: "DynamoDB Streams through a ready client of DynamoDB".into(),
                remedy: "open the store with `sdk_config` in place of `client`".into(),
            }
            .into()
        })
    }

    /// The name of a table's stream. One without new images would be read to its end, and nothing found in it.
    pub(crate) async fn stream_of(&self, op: &Op, table: &str) -> Result<String> {
        let differs = |why: &str| Error::unavailable(Reason::Differs, format!("table {table} has {why}"));
        match self.stream_name(op, table).await? {
            Some((stream, view)) if view.holds(StreamView::NewImage) => Ok(stream),
            Some(_) => Err(differs(
                "a stream without new images, and its index is built from them: switch it off, and on again with NEW_IMAGE; \
                 then `fencepost index rebuild`",
            )),
            None => Err(differs("no stream, and its index is built from one (NEW_IMAGE): switch it on")),
        }
    }

    /// Every shard that the stream still knows.
    pub(crate) async fn shards(&self, op: &Op, stream: &str) -> Result<Vec<Shard>> {
        let (mut shards, mut after) = (Vec::new(), None);
        loop {
            let request = self.stream_client()?.describe_stream().stream_arn(stream).set_exclusive_start_shard_id(after);
            let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
            let answer = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
            let Some(described) = answer.stream_description else { return Ok(shards) };
            for shard in described.shards.unwrap_or_default() {
                let parent = shard.parent_shard_id.filter(|parent| !parent.is_empty());
                let last = shard.sequence_number_range.and_then(|range| range.ending_sequence_number).filter(|last| !last.is_empty());
                shards.extend(shard.shard_id.map(|id| Shard { id, parent, last: last.map(Sequence) }));
            }
            after = described.last_evaluated_shard_id.filter(|id| !id.is_empty());
            if after.is_none() {
                return Ok(shards);
            }
        }
    }

    /// A place in a shard.
    pub(crate) async fn open_shard(&self, op: &Op, stream: &str, shard: &str, start: &Start) -> Result<Opened> {
        let request = self.stream_client()?.get_shard_iterator().stream_arn(stream).shard_id(shard);
        let request = match start {
            Start::Oldest => request.shard_iterator_type(ShardIteratorType::TrimHorizon),
            Start::At(sequence) => request.shard_iterator_type(ShardIteratorType::AtSequenceNumber).sequence_number(sequence.as_str()),
            Start::After(sequence) => {
                request.shard_iterator_type(ShardIteratorType::AfterSequenceNumber).sequence_number(sequence.as_str())
            }
        };
        let own = |e: &GetShardIteratorError| {
            matches!(e, GetShardIteratorError::TrimmedDataAccessException(_) | GetShardIteratorError::ResourceNotFoundException(_))
        };
        match self.repeat(op, || request.clone().send(), own).await?.0 {
            Ok(opened) => match opened.shard_iterator {
                Some(iterator) => Ok(Opened::At(Cursor(iterator))),
                None => Err(Error::unavailable(Reason::Rejected, format!("no iterator for shard {shard}"))),
            },
            Err(_) => Ok(Opened::Trimmed),
        }
    }

    /// The next records, at most so many.
    pub(crate) async fn records(&self, op: &Op, from: &Cursor, limit: i32) -> Result<Read> {
        let request = self.stream_client()?.get_records().shard_iterator(&from.0).limit(limit);
        let own = |e: &GetRecordsError| {
            matches!(
                e,
                GetRecordsError::ExpiredIteratorException(_)
                    | GetRecordsError::TrimmedDataAccessException(_)
                    | GetRecordsError::ResourceNotFoundException(_)
            )
        };
        match self.repeat(op, || request.clone().send(), own).await?.0 {
            Ok(page) => {
                let records = page.records.unwrap_or_default().into_iter().map(record).collect::<Result<Vec<_>>>()?;
                let records = records.into_iter().flatten().collect();
                Ok(Read::Page { records, next: page.next_shard_iterator.filter(|next| !next.is_empty()).map(Cursor) })
            }
            Err(GetRecordsError::ExpiredIteratorException(_)) => Ok(Read::Expired),
            Err(_) => Ok(Read::Trimmed),
        }
    }
}

/// None where it says nothing. One that should hold an item and does not must not be passed over: what it announces would be lost.
fn record(record: aws_sdk_dynamodbstreams::types::Record) -> Result<Option<Record>> {
    let change = match record.event_name {
        Some(OperationType::Insert) => Change::Insert,
        _ => Change::Other,
    };
    let (Some(changed), is_deletion) = (record.dynamodb, record.event_name == Some(OperationType::Remove)) else { return Ok(None) };
    let Some(sequence) = changed.sequence_number else { return Ok(None) };
    if changed.new_image.is_none() && !is_deletion {
        let message = format!("record {sequence} of the stream has no new image: the table's stream must be NEW_IMAGE");
        return Err(Error::unavailable(Reason::Differs, message));
    }
    let at = changed.approximate_creation_date_time.map_or(0, |at| u64::try_from(at.as_nanos() / 1_000).unwrap_or(0));
    let image = changed.new_image.unwrap_or_default().into_iter().map(|(name, value)| (name, own(value))).collect();
    Ok(Some(Record { sequence: Sequence(sequence), change, at, image }))
}

/// The two services have types of their own for the same values.
fn own(value: AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(digits) => Value::N(digits),
        AttributeValue::B(bytes) => Value::B(bytes),
        AttributeValue::Ss(texts) => Value::Ss(texts),
        AttributeValue::Ns(numbers) => Value::Ns(numbers),
        AttributeValue::Bs(blobs) => Value::Bs(blobs),
        AttributeValue::M(map) => Value::M(map.into_iter().map(|(name, value)| (name, own(value))).collect()),
        AttributeValue::L(list) => Value::L(list.into_iter().map(own).collect()),
        AttributeValue::Bool(truth) => Value::Bool(truth),
        _ => Value::Null(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_should_hold_an_item_and_does_not_is_an_error_and_no_silence() {
        use aws_sdk_dynamodbstreams::types::{Record as Wire, StreamRecord};
        let of = |operation: OperationType, image: bool| {
            let changed = StreamRecord::builder().sequence_number("7");
            let changed = if image { changed.new_image("p", AttributeValue::S("Cart-1".into())) } else { changed };
            record(Wire::builder().event_name(operation).dynamodb(changed.build()).build())
        };
        for operation in [OperationType::Insert, OperationType::Modify] {
            let error = of(operation.clone(), false).expect_err("KEYS_ONLY").to_string();
            assert!(error.contains("record 7") && error.contains("NEW_IMAGE"), "{error}");
            assert_eq!(of(operation, true).expect("reads").expect("a record").image.len(), 1);
        }
        assert!(of(OperationType::Remove, false).expect("reads").expect("a record").image.is_empty());
    }

    #[test]
    fn sequences_order_as_numbers_whatever_their_length() {
        let number = Sequence::new;
        assert!(number("9") < number("10"));
        assert!(number("000000000000000000009") < number("10"));
        assert!(number("9999999999999999999999999999999999999998") < number("9999999999999999999999999999999999999999"));
        assert_eq!(number("007").cmp(&number("7")), Ordering::Equal);
    }
}
