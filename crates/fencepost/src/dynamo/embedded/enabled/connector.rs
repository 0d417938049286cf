//! The engine as an HTTP connector of the SDK: a signed request in, DynamoDB's answer out, and no socket between.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;

use super::{Engine, dispatch};

pub(super) fn client(engine: Engine) -> SharedHttpClient {
    let connector = SharedHttpConnector::new(Connector(engine));
    http_client_fn(move |_, _| connector.clone())
}

#[derive(Debug)]
struct Connector(Engine);

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let engine = self.0.clone();
        HttpConnectorFuture::new(async move {
            let operation = request.headers().get("x-amz-target").and_then(|t| t.rsplit('.').next()).unwrap_or_default();
            let body = request.body().bytes().unwrap_or_default();
            let (status, json) = match dispatch::answer(&engine, operation, body).await {
                Ok(json) => (200, json),
                Err(error) => (error.status_code(), error.to_json()),
            };
            respond(status, json)
        })
    }
}

fn respond(status: u16, json: String) -> Result<HttpResponse, ConnectorError> {
    let status = status.try_into().map_err(|e| ConnectorError::other(Box::new(e), None))?;
    let mut response = HttpResponse::new(status, SdkBody::from(json));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}
