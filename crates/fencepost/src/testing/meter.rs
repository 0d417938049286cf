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
/// A request that fails is counted as a request; what DynamoDB bills for it, it does not tell.
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

impl HttpConnector for Metered {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let (inner, counted) = (self.inner.clone(), self.counted.clone());
        HttpConnectorFuture::new(async move {
            let Some(units) = kind(&wire::operation(&request)) else { return inner.call(request).await };
            let mut body = wire::body(&request);
            body["ReturnConsumedCapacity"] = "INDEXES".into();
            let body = body.to_string();
            if request.headers().get("content-length").is_some() {
                request.headers_mut().insert("content-length", body.len().to_string());
            }
            *request.body_mut() = SdkBody::from(body);
            let (response, body) = wire::split(inner.call(request).await?).await?;
            let (all, indexes) = capacity(&body);
            let consumed = units(all);
            {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                counted.units += consumed;
                counted.indexes += if consumed.write > 0.0 { indexes } else { 0.0 };
            }
            Ok(wire::with_body(response, body))
        })
    }
}
