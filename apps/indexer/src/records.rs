//! The event of DynamoDB Streams, as far as it matters, and the answer to it. Nothing in a record can fail a ring.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// What rang. Empty where it is no event of a stream: rung by hand, or by a schedule.
#[derive(Default, Deserialize)]
pub(crate) struct Batch {
    #[serde(rename = "Records", default)]
    pub(crate) records: Vec<Record>,
}

#[derive(Deserialize)]
pub(crate) struct Record {
    #[serde(rename = "eventName")]
    event_name: Option<String>,
    dynamodb: Option<Change>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    sequence_number: Option<String>,
    /// Seconds since 1970.
    approximate_creation_date_time: Option<f64>,
    /// Left unread but for the last one, where the indexer reads the stream itself.
    new_image: Option<Box<RawValue>>,
}

impl Batch {
    pub(crate) fn read(payload: &RawValue) -> Batch {
        serde_json::from_str(payload.get()).unwrap_or_else(|error| {
            // What it says is of no use, and where: its text may hold a body.
            tracing::warn!(line = error.line(), column = error.column(), "not an event of DynamoDB Streams; it rings all the same");
            Batch::default()
        })
    }

    fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.records.iter().filter_map(|record| record.dynamodb.as_ref())
    }

    /// The image of the last record.
    pub(crate) fn newest(&self) -> Option<Value> {
        self.changes().rev().find_map(|change| serde_json::from_str(change.new_image.as_ref()?.get()).ok())
    }

    /// The images of all records, in their order. A deletion has none; where another has none, what it announces would be lost.
    pub(crate) fn images(&self) -> Result<Vec<Value>, String> {
        let is_change = |record: &&Record| record.event_name.as_deref().is_none_or(|name| name != "REMOVE");
        if self.records.iter().filter(is_change).filter_map(|record| record.dynamodb.as_ref()).any(|change| change.new_image.is_none()) {
            return Err("records without new images: the table's stream must be NEW_IMAGE; nothing of them was indexed".into());
        }
        Ok(self.changes().filter_map(|change| serde_json::from_str(change.new_image.as_ref()?.get()).ok()).collect())
    }

    /// How old the first record is now, in milliseconds since 1970.
    pub(crate) fn age(&self, now: u64) -> Duration {
        let at = self.changes().find_map(|change| change.approximate_creation_date_time);
        at.and_then(|at| Duration::try_from_secs_f64(at).ok()).map_or(Duration::ZERO, |at| Duration::from_millis(now).saturating_sub(at))
    }

    /// The answer that has the whole batch rung again, which is no error. None where nobody would.
    pub(crate) fn again(&self) -> Option<Answer> {
        let first = self.changes().find_map(|change| change.sequence_number.clone())?;
        Some(Answer { batch_item_failures: vec![Failure { item_identifier: first }] })
    }
}

/// What the event source is told: which record it should begin with again.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    batch_item_failures: Vec<Failure>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

impl Answer {
    /// Nothing again.
    pub(crate) fn done() -> Self {
        Self { batch_item_failures: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> Batch {
        Batch::read(&RawValue::from_string(text.into()).expect("JSON"))
    }

    #[test]
    fn whatever_comes_rings() {
        for text in ["{}", "null", "7", r#"{"Records":7}"#, r#"{"Records":[{"dynamodb":{"SequenceNumber":7}}]}"#] {
            let batch = batch(text);
            assert!(batch.records.is_empty() && batch.again().is_none() && batch.newest().is_none(), "{text}");
        }
    }

    #[test]
    fn a_change_without_its_image_is_an_error_and_a_deletion_has_none() {
        let images = |name: &str, image: &str| {
            let record = format!(r#"{{"Records":[{{"eventName":"{name}","dynamodb":{{"SequenceNumber":"1","Keys":{{}}{image}}}}}]}}"#);
            batch(&record).images()
        };
        let image = r#","NewImage":{"p":{"S":"Cart-1"}}"#;
        assert_eq!(images("REMOVE", ""), Ok(Vec::new()));
        for name in ["INSERT", "MODIFY"] {
            assert_eq!(images(name, image).map(|images| images.len()), Ok(1));
            assert!(images(name, "").is_err_and(|error| error.contains("NEW_IMAGE")), "{name}: KEYS_ONLY");
        }
    }

    #[test]
    fn a_batch_is_rung_again_from_its_first_record_and_names_its_last() {
        let batch = batch(
            r#"{"Records":[{"eventName":"INSERT"},
               {"dynamodb":{"SequenceNumber":"100","ApproximateCreationDateTime":1000.5,"NewImage":{"p":{"S":"t/main/a"}}}},
               {"dynamodb":{"SequenceNumber":"101","ApproximateCreationDateTime":1001,"NewImage":{"p":{"S":"t/main/b"}}}}]}"#,
        );
        assert_eq!(batch.records.len(), 3);
        assert_eq!(batch.newest().expect("an image")["p"]["S"], "t/main/b");
        assert_eq!(batch.age(1_002_000), Duration::from_millis(1_500));
        assert_eq!(batch.age(0), Duration::ZERO, "a clock that is behind");
        let answer = serde_json::to_string(&batch.again().expect("an answer")).expect("JSON");
        assert_eq!(answer, r#"{"batchItemFailures":[{"itemIdentifier":"100"}]}"#);
        assert_eq!(serde_json::to_string(&Answer::done()).expect("JSON"), r#"{"batchItemFailures":[]}"#);
    }
}
