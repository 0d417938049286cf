//! DynamoDB Streams where they are not compiled in: a connection that nobody can use.

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use crate::dynamo::Timeouts;

/// Not compiled in: the feature `streams` is off.
#[derive(Debug)]
pub(in crate::dynamo) struct Connection;

impl Connection {
    pub(in crate::dynamo) fn new(_: Option<&SdkConfig>, _: Option<SharedHttpClient>, _: Timeouts) -> Self {
        Self
    }
}
