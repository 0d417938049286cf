//! A connector whose answers lack items: a read of several items may meet a commit half done, and then has some of it.

use std::fmt;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use serde_json::Value;

/// Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Half {
    inner: SharedHttpClient,
    lacking: Arc<Mutex<Option<Lacking>>>,
}

struct Lacking {
    operation: &'static str,
    times: usize,
    which: Box<dyn Fn(&Value) -> bool + Send>,
}

impl fmt::Debug for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more of {}", self.times, self.operation)
    }
}

impl Half {
    pub(crate) fn on(inner: SharedHttpClient) -> Half {
        Half { inner, lacking: Arc::default() }
    }

    /// The next answers to this operation that have such an item, as DynamoDB's JSON, come without it, so many of them.
    pub(crate) fn lack(&self, operation: &'static str, times: usize, which: impl Fn(&Value) -> bool + Send + 'static) {
        *self.lacking.lock().expect("a lock") = Some(Lacking { operation, times, which: Box::new(which) });
    }

    /// How many answers are to come without.
    pub(crate) fn left(&self) -> usize {
        self.lacking.lock().expect("a lock").as_ref().map_or(0, |lacking| lacking.times)
    }

    pub(crate) fn http_client(&self) -> SharedHttpClient {
        let half = self.clone();
        http_client_fn(move |settings, components| {
            SharedHttpConnector::new(Connector { inner: half.inner.http_connector(settings, components), half: half.clone() })
        })
    }

    fn take_from(&self, operation: &str, answer: &mut Value) {
        let mut lacking = self.lacking.lock().expect("a lock");
        let Some(lacking) = lacking.as_mut().filter(|lacking| lacking.operation == operation && lacking.times > 0) else { return };
        let Lacking { which, times, .. } = lacking;
        let mut lost = false;
        let mut thin = |items: &mut Value| {
            let Some(items) = items.as_array_mut() else { return };
            let before = items.len();
            items.retain(|item| !which(item));
            lost |= items.len() < before;
        };
        if let Some(tables) = answer.get_mut("Responses").and_then(Value::as_object_mut) {
            tables.values_mut().for_each(&mut thin);
        } else if let Some(items) = answer.get_mut("Items") {
            thin(items);
        }
        *times -= usize::from(lost);
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    half: Half,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, half) = (self.inner.clone(), self.half.clone());
        HttpConnectorFuture::new(async move {
            let operation =
                request.headers().get("x-amz-target").and_then(|target| target.rsplit('.').next()).unwrap_or_default().to_owned();
            let mut response = inner.call(request).await?;
            let body = ByteStream::new(response.take_body()).collect().await.map_err(|error| ConnectorError::io(error.into()))?.to_vec();
            let mut answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            half.take_from(&operation, &mut answer);
            response.headers_mut().remove("content-length");
            response.headers_mut().remove("x-amz-crc32");
            *response.body_mut() = SdkBody::from(answer.to_string().into_bytes());
            Ok(response)
        })
    }
}
