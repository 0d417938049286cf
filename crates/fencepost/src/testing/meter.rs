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
    counted: Arc<Mutex<Units>>,
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
        std::mem::take(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Metered {
    inner: SharedHttpConnector,
    counted: Arc<Mutex<Units>>,
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

/// One answer has one sum for each table, or one alone.
fn capacity(body: &[u8]) -> f64 {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |consumed: &Value| consumed["CapacityUnits"].as_f64().unwrap_or(0.0);
    match &answer["ConsumedCapacity"] {
        Value::Array(tables) => tables.iter().map(of).sum(),
        one => of(one),
    }
}

impl HttpConnector for Metered {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let (inner, counted) = (self.inner.clone(), self.counted.clone());
        HttpConnectorFuture::new(async move {
            let Some(units) = kind(&wire::operation(&request)) else { return inner.call(request).await };
            let mut body = wire::body(&request);
            body["ReturnConsumedCapacity"] = "TOTAL".into();
            let body = body.to_string();
            if request.headers().get("content-length").is_some() {
                request.headers_mut().insert("content-length", body.len().to_string());
            }
            *request.body_mut() = SdkBody::from(body);
            let (response, body) = wire::split(inner.call(request).await?).await?;
            *counted.lock().unwrap_or_else(PoisonError::into_inner) += units(capacity(&body));
            Ok(wire::with_body(response, body))
        })
    }
}
