//! What any client consumes, ours or a peer's: a connector that asks the engine with every request, and adds up what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

use super::wire;
use crate::{Error, Result, Units};

/// Stands between a client and an engine that does not check signatures. Clones share what was counted.
///
/// A write that is refused tells no consumption and is billed nevertheless: it is counted by the larger of what was offered and what the
/// answer shows to be there, twice that in a transaction, as the store counts its own. Any other failure is a request and no more.
#[derive(Clone, Debug)]
pub struct Meter {
    inner: SharedHttpClient,
    counted: Arc<Mutex<Counted>>,
    written: Arc<Mutex<Written>>,
}

/// What capacity is bought for: a table, or a secondary index of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its table.
    pub table: String,
    /// None: the table itself.
    pub index: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    units: Units,
    /// The units again, by where they were consumed.
    places: BTreeMap<Place, Units>,
    /// Reads of DynamoDB Streams, which are billed apart.
    streams: u64,
}

/// Which indexes were written to, ever, and how to ask for what is in them.
#[derive(Debug, Default)]
struct Written {
    indexes: BTreeSet<Place>,
    asks: Option<(SharedHttpConnector, HttpRequest)>,
}

impl Meter {
    /// Nothing counted yet.
    pub fn new(inner: SharedHttpClient) -> Self {
        Self { inner, counted: Arc::default(), written: Arc::default() }
    }

    /// For an SDK client's `http_client`.
    pub fn http_client(&self) -> SharedHttpClient {
        let Self { inner, counted, written } = self.clone();
        http_client_fn(move |settings, components| {
            let inner = inner.http_connector(settings, components);
            SharedHttpConnector::new(Metered { inner, counted: counted.clone(), written: written.clone() })
        })
    }

    /// What was consumed since this was last asked.
    pub fn take(&self) -> Units {
        std::mem::take(&mut *self.counted.lock().unwrap_or_else(PoisonError::into_inner)).units
    }

    /// The write units of secondary indexes among those that [`Meter::take`] will tell.
    pub fn index_writes(&self) -> f64 {
        self.places().iter().filter(|(place, _)| place.index.is_some()).map(|(_, units)| units.write).sum()
    }

    /// What [`Meter::take`] will tell, by table and index, without the requests: one may be of several.
    pub fn places(&self) -> BTreeMap<Place, Units> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).places.clone()
    }

    /// The reads of DynamoDB Streams (`GetRecords`) since [`Meter::take`]: they are billed by the call, and are not among its units.
    pub fn stream_reads(&self) -> u64 {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).streams
    }

    /// Items and bytes of each secondary index that was written to: scanned, and not counted. Engines tell the size of a table only, and
    /// DynamoDB that of an index every six hours.
    pub async fn index_sizes(&self) -> Result<BTreeMap<Place, (u64, u64)>> {
        let indexes = self.written.lock().unwrap_or_else(PoisonError::into_inner).indexes.clone();
        let mut sizes = BTreeMap::new();
        for place in indexes {
            let (mut items, mut size, mut from) = (0, 0, None);
            loop {
                let mut scan = json!({ "TableName": place.table, "IndexName": place.index });
                if let Some(from) = from.take() {
                    scan["ExclusiveStartKey"] = from;
                }
                let page = self.ask("Scan", &scan).await.map_err(|error| Error::corrupt("meter", error.to_string()))?;
                let found = page["Items"].as_array().map_or(&[][..], Vec::as_slice);
                items += found.len() as u64;
                size += found.iter().map(item_bytes).sum::<usize>() as u64;
                match page.get("LastEvaluatedKey") {
                    Some(key) if !key.is_null() => from = Some(key.clone()),
                    _ => break,
                }
            }
            sizes.insert(place, (items, size));
        }
        Ok(sizes)
    }

    async fn ask(&self, operation: &str, body: &Value) -> std::result::Result<Value, ConnectorError> {
        let (engine, request) = {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let (engine, like) = written.asks.as_ref().ok_or_else(|| wire::other("nothing was written yet"))?;
            (engine.clone(), wire::request(like, operation, body)?)
        };
        let (response, bytes) = wire::split(engine.call(request).await?).await?;
        if !response.status().is_success() {
            return Err(wire::other(format!("{operation}: {}", String::from_utf8_lossy(&bytes))));
        }
        serde_json::from_slice(&bytes).map_err(wire::other)
    }
}

#[derive(Debug)]
struct Metered {
    inner: SharedHttpConnector,
    counted: Arc<Mutex<Counted>>,
    written: Arc<Mutex<Written>>,
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

/// What an answer says was consumed, and where. It says it of one table, or of several.
fn capacity(body: &[u8]) -> Vec<(Place, f64)> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |consumed: &Value| {
        let table = consumed["TableName"].as_str().unwrap_or_default();
        let indexes = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"].into_iter().filter_map(|kind| consumed[kind].as_object());
        let mut places: Vec<(Place, f64)> = indexes
            .flatten()
            .map(|(name, index)| (Place { table: table.into(), index: Some(name.clone()) }, index["CapacityUnits"].as_f64().unwrap_or(0.0)))
            .collect();
        let own = consumed["CapacityUnits"].as_f64().unwrap_or(0.0) - places.iter().map(|(_, units)| units).sum::<f64>();
        places.push((Place { table: table.into(), index: None }, own));
        places
    };
    match &answer["ConsumedCapacity"] {
        Value::Array(tables) => tables.iter().flat_map(of).collect(),
        Value::Null => Vec::new(),
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

fn item_bytes(item: &Value) -> usize {
    item.as_object().map_or(0, |item| item.iter().map(|(name, value)| name.len() + bytes(value)).sum())
}

/// Write units of an item, as its JSON has it; one where there is none.
fn units(item: &Value) -> usize {
    item_bytes(item).div_ceil(1024).max(1)
}

/// What DynamoDB bills for a write that it refused, which the answer does not tell; nothing for any other answer.
fn in_vain(operation: &str, request: &Value, answer: &[u8]) -> Vec<(Place, f64)> {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let error = answer["__type"].as_str().unwrap_or_default();
    let reasons = answer["CancellationReasons"].as_array().map_or(&[][..], Vec::as_slice);
    let failed = |reason: &Value| reason["Code"] == "ConditionalCheckFailed";
    let at = |write: &Value| Place { table: write["TableName"].as_str().unwrap_or_default().into(), index: None };
    if error.ends_with("ConditionalCheckFailedException") && operation != "TransactWriteItems" {
        vec![(at(request), units(&request["Item"]).max(units(&answer["Item"])) as f64)]
    } else if error.ends_with("TransactionCanceledException") && reasons.iter().any(failed) {
        let writes = request["TransactItems"].as_array().map_or(&[][..], Vec::as_slice);
        let there = |at: usize| reasons.get(at).map_or(1, |reason| units(&reason["Item"]));
        let kind = |write: &Value| write.as_object().and_then(|kinds| kinds.values().next()).map_or_else(|| at(write), at);
        let billed = |(number, write): (usize, &Value)| (kind(write), (2 * units(&write["Put"]["Item"]).max(there(number))) as f64);
        writes.iter().enumerate().map(billed).collect()
    } else {
        Vec::new()
    }
}

impl HttpConnector for Metered {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let (inner, counted, written) = (self.inner.clone(), self.counted.clone(), self.written.clone());
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
            let like = wire::request(&request, &operation, &Value::Null)?;
            let (response, body) = wire::split(inner.call(request).await?).await?;
            let consumed: Vec<_> = capacity(&body).into_iter().chain(in_vain(&operation, &sent, &body)).collect();
            let all = units(consumed.iter().map(|(_, units)| units).sum());
            if all.write > 0.0 {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                written.indexes.extend(consumed.iter().filter(|(place, _)| place.index.is_some()).map(|(place, _)| place.clone()));
                written.asks.get_or_insert((inner, like));
            }
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.units += all;
            for (place, of) in consumed {
                *counted.places.entry(place).or_default() += Units { requests: 0, ..units(of) };
            }
            drop(counted);
            Ok(wire::with_body(response, body))
        })
    }
}
