//! DynamoDB's protocol as far as a connector between client and engine must read and write it: operation, JSON body, errors.

use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use serde_json::{Value, json};

const TARGET: &str = "x-amz-target";

pub(super) type Answer = Result<HttpResponse, ConnectorError>;

/// `PutItem` of `DynamoDB_20120810.PutItem`.
pub(super) fn operation(request: &HttpRequest) -> String {
    request.headers().get(TARGET).and_then(|target| target.rsplit('.').next()).unwrap_or_default().to_owned()
}

pub(super) fn body(request: &HttpRequest) -> Value {
    request.body().bytes().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// A request of our own, to the same endpoint as one of the client's. Unsigned: for engines that do not ask who calls.
pub(super) fn request(like: &HttpRequest, operation: &str, body: &Value) -> Result<HttpRequest, ConnectorError> {
    let mut request = HttpRequest::new(SdkBody::from(body.to_string()));
    request.set_method("POST").map_err(other)?;
    request.set_uri(like.uri()).map_err(other)?;
    request.headers_mut().insert(TARGET, format!("DynamoDB_20120810.{operation}"));
    request.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    if let Some(auth) = like.headers().get("authorization") {
        request.headers_mut().insert("authorization", auth.to_owned());
    }
    Ok(request)
}

/// The answer's bytes, and the answer without them.
pub(super) async fn split(mut response: HttpResponse) -> Result<(HttpResponse, Vec<u8>), ConnectorError> {
    let body = ByteStream::new(response.take_body()).collect().await.map_err(|e| ConnectorError::io(e.into()))?;
    Ok((response, body.to_vec()))
}

pub(super) fn with_body(mut response: HttpResponse, body: Vec<u8>) -> HttpResponse {
    // A real service's length and checksum are of the body that was.
    response.headers_mut().remove("content-length");
    response.headers_mut().remove("x-amz-crc32");
    *response.body_mut() = SdkBody::from(body);
    response
}

/// An error as DynamoDB answers it.
pub(super) fn error(status: u16, name: &str, message: &str) -> Answer {
    respond(status, &json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": message }))
}

/// A cancelled transaction with these reasons, one for each of its items.
pub(super) fn cancelled(reasons: &[Value]) -> Answer {
    respond(
        400,
        &json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": cancelled_message(reasons),
            "CancellationReasons": reasons,
        }),
    )
}

pub(super) fn cancelled_message(reasons: &[Value]) -> String {
    let codes: Vec<_> = reasons.iter().map(|reason| reason["Code"].as_str().unwrap_or_default()).collect();
    format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", "))
}

/// An answer with this body.
pub(super) fn respond(status: u16, body: &Value) -> Answer {
    let status = StatusCode::try_from(status).map_err(other)?;
    let mut response = HttpResponse::new(status, SdkBody::from(body.to_string()));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}

pub(super) fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectorError {
    ConnectorError::other(error.into(), None)
}
