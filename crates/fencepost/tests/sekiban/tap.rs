//! What passes between a client and its engine, request and answer, as JSON; and what was counted meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::Value as Json;

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) api: String,
    pub(crate) request: Json,
    pub(crate) answer: Json,
}

/// Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    inner: SharedHttpClient,
    calls: Arc<Mutex<Vec<Call>>>,
    /// Put into what is told of every table.
    replicas: Arc<Mutex<Json>>,
    held: Arc<Mutex<Held>>,
}

/// Requests that are stuck on their way: their sender has heard that the connection broke.
#[derive(Debug, Default)]
struct Held {
    api: Option<String>,
    requests: Vec<(SharedHttpConnector, HttpRequest)>,
}

impl Tap {
    pub(crate) fn on(inner: SharedHttpClient) -> Tap {
        Tap { inner, calls: Arc::default(), replicas: Arc::default(), held: Arc::default() }
    }
    pub(crate) fn replicate(&self, regions: &[&str]) {
        let regions = regions.iter().map(|region| serde_json::json!({ "RegionName": region })).collect();
        *self.replicas.lock().expect("a lock") = Json::Array(regions);
    }
    pub(crate) fn http_client(&self) -> SharedHttpClient {
        let tap = self.clone();
        http_client_fn(move |settings, components| {
            SharedHttpConnector::new(Connector { inner: tap.inner.http_connector(settings, components), tap: tap.clone() })
        })
    }
    /// From now on the requests of this operation are held on their way.
    pub(crate) fn hold(&self, api: &str) {
        self.held.lock().expect("a lock").api = Some(api.into());
    }
    /// They arrive, all of them; how many.
    pub(crate) async fn let_go(&self) -> usize {
        let requests = std::mem::take(&mut *self.held.lock().expect("a lock")).requests;
        let count = requests.len();
        for (connector, request) in requests {
            let _nobody_hears_it = connector.call(request).await;
        }
        count
    }
    /// All since the last time.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().expect("a lock"))
    }
    pub(crate) fn apis(&self) -> Vec<String> {
        self.take().into_iter().map(|call| call.api).collect()
    }
    /// How many requests of an operation there were since the last time.
    pub(crate) fn count(&self, api: &str) -> usize {
        self.apis().iter().filter(|name| *name == api).count()
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    tap: Tap,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, tap) = (self.inner.clone(), self.tap.clone());
        HttpConnectorFuture::new(async move {
            let api = request.headers().get("x-amz-target").and_then(|target| target.rsplit('.').next()).unwrap_or_default().to_owned();
            let sent = request.body().bytes().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
            if tap.held.lock().expect("a lock").api.as_deref() == Some(api.as_str()) {
                tap.held.lock().expect("a lock").requests.push((inner, request));
                return Err(ConnectorError::io("the connection broke".into()));
            }
            let mut response = inner.call(request).await?;
            let body = ByteStream::new(response.take_body()).collect().await.map_err(|error| ConnectorError::io(error.into()))?.to_vec();
            let mut answer: Json = serde_json::from_slice(&body).unwrap_or_default();
            let replicas = tap.replicas.lock().expect("a lock").clone();
            let body = if api == "DescribeTable" && !replicas.is_null() && answer["Table"].is_object() {
                answer["Table"]["Replicas"] = replicas;
                response.headers_mut().remove("content-length");
                response.headers_mut().remove("x-amz-crc32");
                answer.to_string().into_bytes()
            } else {
                body
            };
            *response.body_mut() = SdkBody::from(body);
            tap.calls.lock().expect("a lock").push(Call { api, request: sent, answer });
            Ok(response)
        })
    }
}

/// Counters by name, of whatever this thread counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Counted {
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.0.lock().expect("a lock").get(name).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.0.lock().expect("a lock").entry(key.name().to_owned()).or_default().clone())
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
