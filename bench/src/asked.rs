//! Whether a store's reads ask for less than the newest: told by the requests themselves, so that no table has to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;

/// Stands between a meter and the endpoint. Clones share what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    inner: SharedHttpClient,
    eventual: Arc<AtomicBool>,
}

impl Asked {
    pub(crate) fn new(inner: SharedHttpClient) -> Asked {
        Asked { inner, eventual: Arc::default() }
    }

    pub(crate) fn http_client(&self) -> SharedHttpClient {
        let Asked { inner, eventual } = self.clone();
        http_client_fn(move |settings, components| {
            let inner = inner.http_connector(settings, components);
            SharedHttpConnector::new(Watched { inner, eventual: eventual.clone() })
        })
    }

    /// Whether a read was eventually consistent since this was last asked.
    pub(crate) fn take(&self) -> bool {
        self.eventual.swap(false, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Watched {
    inner: SharedHttpConnector,
    eventual: Arc<AtomicBool>,
}

/// A read that does not say otherwise is eventually consistent; one within a transaction never is.
fn is_eventual(target: &str, body: &[u8]) -> bool {
    let operation = target.rsplit('.').next().unwrap_or_default();
    let strongly = br#""ConsistentRead":true"#;
    ["GetItem", "Query", "Scan", "BatchGetItem"].contains(&operation) && !body.windows(strongly.len()).any(|part| part == strongly)
}

impl HttpConnector for Watched {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        if is_eventual(target, request.body().bytes().unwrap_or_default()) {
            self.eventual.store(true, Ordering::Relaxed);
        }
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_eventually_consistent_unless_it_says_otherwise() {
        let of = |operation: &str, body: &str| is_eventual(&format!("DynamoDB_20120810.{operation}"), body.as_bytes());
        assert!(of("Query", r#"{"TableName":"t"}"#) && of("BatchGetItem", r#"{"RequestItems":{"t":{"ConsistentRead":false}}}"#));
        assert!(!of("Query", r#"{"ConsistentRead":true,"TableName":"t"}"#));
        assert!(!of("PutItem", "{}") && !of("TransactGetItems", "{}"));
    }
}
