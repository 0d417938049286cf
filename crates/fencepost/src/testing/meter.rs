//! What any client consumes, ours or a peer's: a connector that asks the engine with every request, and adds up what it answers.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;

use super::wire;
use crate::Units;

/// Stands between a client and an engine that does not check signatures. Clones share what was counted.
///
/// A write that is refused tells no consumption and is billed nevertheless: it is counted by the larger of what was offered and what the
/// answer shows to be there, twice that in a transaction, as the store counts its own. Any other failure is a request and no more.
#[derive(Clone, Debug)]
pub struct Meter {
    inner: SharedHttpClient,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    units: Units,
    /// Write units of secondary indexes, which are among the units.
    indexes: f64,
    /// Reads of DynamoDB Streams, which are billed apart.
    streams: u64,
}

impl Meter {
    /// Nothing counted yet.
    pub fn new(inner: SharedHttpClient) -> Self {
        Self { inner, counted: Arc::default() }
    }

    /// For an SDK client's `http_client`.
    pub fn http_client(&self) -> SharedHttpClient {
        let Self { inner, counted } = self.clone();
        http_client_fn(move |settings, components| {
            let inner = inner.http_connector(settings, components);
            SharedHttpConnector::new(Metered { inner, counted: counted.clone() })
        })
    }

    /// What was consumed since this was last asked.
    pub fn take(&self) -> Units {
        std::mem::take(&mut *self.counted.lock().unwrap_or_else(PoisonError::into_inner)).units
    }

    /// The write units of secondary indexes among those that [`Meter::take`] will tell.
    pub fn index_writes(&self) -> f64 {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).indexes
    }

    /// The reads of DynamoDB Streams (`GetRecords`) since [`Meter::take`]: they are billed by the call, and are not among its units.
    pub fn stream_reads(&self) -> u64 {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).streams
    }
}

#[derive(Debug)]
struct Metered {
    inner: SharedHttpConnector,
    counted: Arc<Mutex<Counted>>,
}

/// Reads or writes of items; none for the rest, which consumes nothing.
fn kind(operation: &str) -> Option<fn(f64) -> Units> {
    match operation {
        "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems" => Some(|read| Units { read, write: 0.0, requests: 1 }),
        "PutItem" | "UpdateItem" | "DeleteItem" | "BatchWriteItem" | "TransactWriteItems" => {
            Some(|write| Units { read: 0.0, write, requests: 1 })
        }
        _ => None,
    }
}

/// All that an answer says was consumed, and what of it by indexes. It says it of one table, or of several.
fn capacity(body: &[u8]) -> (f64, f64) {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |consumed: &Value| {
        let indexes = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"].into_iter().filter_map(|kind| consumed[kind].as_object());
        let indexes = indexes.flat_map(|indexes| indexes.values()).map(|index| index["CapacityUnits"].as_f64().unwrap_or(0.0)).sum();
        (consumed["CapacityUnits"].as_f64().unwrap_or(0.0), indexes)
    };
    match &answer["ConsumedCapacity"] {
        Value::Array(tables) => tables.iter().map(of).fold((0.0, 0.0), |(all, indexes), (own, of_own)| (all + own, indexes + of_own)),
        one => of(one),
    }
}

/// Bytes that DynamoDB counts for an attribute, as its JSON has it.
fn bytes(attribute: &Value) -> usize {
    let Some((kind, value)) = attribute.as_object().and_then(|of| of.iter().next()) else { return 0 };
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let digits = |value: &Value| {
        let digits = value.as_str().unwrap_or_default();
        let significant = digits.trim_start_matches('-').trim_end_matches('0').len();
        significant.div_ceil(2) + 1 + usize::from(digits.starts_with('-'))
    };
    let blob = |value: &Value| {
        let encoded = value.as_str().unwrap_or_default();
        encoded.trim_end_matches('=').len() * 3 / 4
    };
    let each = |of: &dyn Fn(&Value) -> usize| value.as_array().map_or(0, |values| values.iter().map(of).sum());
    match kind.as_str() {
        "S" => text(value),
        "N" => digits(value),
        "B" => blob(value),
        "SS" => each(&text),
        "NS" => each(&digits),
        "BS" => each(&blob),
        "L" => 3 + each(&|value| 1 + bytes(value)),
        "M" => 3 + value.as_object().map_or(0, |map| map.iter().map(|(name, value)| 1 + name.len() + bytes(value)).sum()),
        _ => 1,
    }
}

/// Write units of an item, as its JSON has it; one where there is none.
fn units(item: &Value) -> usize {
    let size: usize = item.as_object().map_or(0, |item| item.iter().map(|(name, value)| name.len() + bytes(value)).sum());
    size.div_ceil(1024).max(1)
}

/// What DynamoDB bills for a write that it refused, which the answer does not tell; nothing for any other answer.
fn in_vain(operation: &str, request: &Value, answer: &[u8]) -> f64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let error = answer["__type"].as_str().unwrap_or_default();
    let reasons = answer["CancellationReasons"].as_array().map_or(&[][..], Vec::as_slice);
    let failed = |reason: &Value| reason["Code"] == "ConditionalCheckFailed";
    if error.ends_with("ConditionalCheckFailedException") && operation != "TransactWriteItems" {
        units(&request["Item"]).max(units(&answer["Item"])) as f64
    } else if error.ends_with("TransactionCanceledException") && reasons.iter().any(failed) {
        let writes = request["TransactItems"].as_array().map_or(&[][..], Vec::as_slice);
        let there = |at: usize| reasons.get(at).map_or(1, |reason| units(&reason["Item"]));
        let billed: usize = writes.iter().enumerate().map(|(at, write)| units(&write["Put"]["Item"]).max(there(at))).sum();
        (2 * billed) as f64
    } else {
        0.0
    }
}

impl HttpConnector for Metered {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let (inner, counted) = (self.inner.clone(), self.counted.clone());
        HttpConnectorFuture::new(async move {
            let operation = wire::operation(&request);
            if operation == "GetRecords" {
                counted.lock().unwrap_or_else(PoisonError::into_inner).streams += 1;
            }
            let Some(units) = kind(&operation) else { return inner.call(request).await };
            let mut sent = wire::body(&request);
            sent["ReturnConsumedCapacity"] = "INDEXES".into();
            let body = sent.to_string();
            if request.headers().get("content-length").is_some() {
                request.headers_mut().insert("content-length", body.len().to_string());
            }
            *request.body_mut() = SdkBody::from(body);
            let (response, body) = wire::split(inner.call(request).await?).await?;
            let (all, indexes) = capacity(&body);
            let consumed = units(all + in_vain(&operation, &sent, &body));
            {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.units += consumed;
                counted.indexes += if consumed.write > 0.0 { indexes } else { 0.0 };
            }
            Ok(wire::with_body(response, body))
        })
    }
}
