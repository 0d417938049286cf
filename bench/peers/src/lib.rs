//! The peers, as they are published, doing the work of `fencepost-bench`.
#![allow(async_fn_in_trait, reason = "nobody else has these traits")]

pub mod adapter;
pub mod dynamo_es_peer;
pub mod peer;
pub mod uma;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use fencepost::Units;
use fencepost::testing::Meter;
use fencepost_contest::{Fault, KEY, REGION};

/// Where a peer is measured.
pub struct Ground {
    endpoint: String,
    /// None where nothing is counted, and nothing stands between the client and the endpoint.
    meter: Option<Meter>,
    client: Client,
}

impl Ground {
    /// With a meter between.
    pub fn metered(endpoint: &str) -> Ground {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let meter = Meter::new(aws_smithy_http_client::Builder::new().build_http());
        let client = client(&endpoint, meter.http_client());
        Ground { endpoint, meter: Some(meter), client }
    }

    /// With one client, as a program of a user has.
    pub fn plain(endpoint: &str) -> Ground {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let client = plain(&endpoint);
        Ground { endpoint, meter: None, client }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What was consumed since this was last asked.
    pub fn taken(&self) -> Units {
        self.meter.as_ref().map(Meter::take).unwrap_or_default()
    }

    /// The tables of a layout, made as its peer has them.
    pub async fn tables(&self, table: &str, layout: &str) -> Result<(), Fault> {
        let url = format!("{}/{table}?layout={layout}", self.endpoint);
        fencepost::Store::builder(&url)?.client(self.client()).create(true).open().await?;
        Ok(())
    }
}

/// A client for an endpoint that checks no signatures, with the settings of everybody's: the store and the bare SDK switch off the SDK's own retries
/// and its watch over slow answers, which cost each request some microseconds.
pub fn client(endpoint: &str, http: aws_smithy_runtime_api::client::http::SharedHttpClient) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::new(KEY, KEY, None, None, "bench"))
        .region(Region::new(REGION))
        .endpoint_url(endpoint)
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new())
        .http_client(http);
    Client::from_conf(config.build())
}

/// A client by a connector without anything between.
pub fn plain(endpoint: &str) -> Client {
    client(endpoint, aws_smithy_http_client::Builder::new().build_http())
}

/// The endpoint and the table that a small program is told.
pub fn told() -> Result<(String, String), Fault> {
    let mut args = std::env::args().skip(1);
    args.next().zip(args.next()).ok_or_else(|| "expected: ENDPOINT TABLE".into())
}
