//! Connecting: from what a URL says to a client, with credentials from the AWS default chain and from nowhere else.

use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, Region, StalledStreamProtectionConfig};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use super::Dynamo;
use super::embedded::Engine;
use crate::env::Env;
use crate::error::Result;

/// How long things may take. What stays unanswered within the attempt is sent again while the operation lasts.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// To reach the endpoint.
    pub connect: Duration,
    /// For one attempt.
    pub attempt: Duration,
    /// For a whole operation of the store, all its attempts and requests.
    pub operation: Duration,
    /// Attempts at one request before giving up, within the operation.
    pub attempts: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), attempt: Duration::from_secs(10), operation: Duration::from_secs(30), attempts: 10 }
    }
}

/// Where the tables are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    File(String),
    Region(String),
    Endpoint(String),
}

/// Everything that makes a connection.
#[derive(Debug, Clone)]
pub(crate) struct Connect {
    pub(crate) place: Place,
    pub(crate) env: Env,
    pub(crate) timeouts: Timeouts,
    /// Between two attempts, at most.
    pub(crate) longest_pause: Duration,
    /// Of the shared files, where another than the default.
    pub(crate) profile: Option<String>,
    /// Beside an endpoint, where the chain names another or none.
    pub(crate) region: Option<String>,
    pub(crate) client: Option<aws_sdk_dynamodb::Client>,
    pub(crate) sdk_config: Option<SdkConfig>,
    pub(crate) http_client: Option<SharedHttpClient>,
}

impl Connect {
    pub(crate) fn to(place: Place) -> Self {
        Self {
            place,
            env: Env::system(),
            timeouts: Timeouts::default(),
            longest_pause: Duration::from_secs(2),
            profile: None,
            region: None,
            client: None,
            sdk_config: None,
            http_client: None,
        }
    }

    pub(crate) async fn connect(&self) -> Result<Dynamo> {
        let sdk = match (&self.client, &self.sdk_config) {
            (Some(_), _) => None,
            (None, Some(sdk)) => Some(self.placed(sdk.clone())),
            (None, None) => Some(self.chain().await?),
        };
        let config = match (&self.client, &sdk) {
            (Some(client), _) => client.config().to_builder(),
            (None, Some(sdk)) => aws_sdk_dynamodb::config::Builder::from(sdk),
            (None, None) => aws_sdk_dynamodb::config::Builder::new(),
        };
        let streams = super::records::Connection::new(sdk.as_ref(), self.http_client.clone(), self.timeouts);
        let config = config
            .behavior_version(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(self.timeouts.connect).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new());
        let config = match &self.http_client {
            Some(http) => config.http_client(http.clone()),
            None => config,
        };
        let clock = super::clock::Watch::new(self.env.clone());
        // The engine in this process tells no time, and every interceptor costs each request some microseconds.
        let in_process = matches!(self.place, Place::Memory | Place::File(_));
        let config = if in_process { config } else { config.interceptor(clock.clone()) };
        Ok(Dynamo::new(
            aws_sdk_dynamodb::Client::from_conf(config.build()),
            streams,
            self.env.clone(),
            self.timeouts,
            self.longest_pause,
            clock,
        ))
    }

    fn loader(&self) -> aws_config::ConfigLoader {
        let loader = aws_config::defaults(BehaviorVersion::latest());
        match &self.profile {
            Some(profile) => loader.profile_name(profile),
            None => loader,
        }
    }

    /// What a caller configured, where the URL says.
    fn placed(&self, sdk: SdkConfig) -> SdkConfig {
        match &self.place {
            Place::Endpoint(endpoint) => sdk.into_builder().endpoint_url(endpoint).build(),
            Place::Region(region) => sdk.into_builder().region(Region::new(region.clone())).build(),
            Place::Memory | Place::File(_) => sdk,
        }
    }

    async fn chain(&self) -> Result<SdkConfig> {
        // The engine in this process checks no signature: the chain is not asked for it. An endpoint may check: there it is.
        let local = |http: Option<SharedHttpClient>| {
            let config =
                SdkConfig::builder().behavior_version(BehaviorVersion::latest()).region(Region::new("local")).credentials_provider(
                    aws_sdk_dynamodb::config::SharedCredentialsProvider::new(Credentials::from_keys("local", "local", None)),
                );
            match http {
                Some(http) => config.http_client(http),
                None => config,
            }
        };
        Ok(match &self.place {
            Place::Memory if self.http_client.is_some() => local(None).build(),
            Place::Memory => local(Some(Engine::memory()?.http_client())).build(),
            Place::File(path) => local(Some(Engine::file(path)?.http_client())).build(),
            Place::Region(region) => self.loader().region(Region::new(region.clone())).load().await,
            Place::Endpoint(endpoint) => {
                let mut loader = self.loader().endpoint_url(endpoint);
                if let Some(region) = &self.region {
                    loader = loader.region(Region::new(region.clone()));
                }
                // Without roots on the machine the HTTPS client panics, even where no TLS is spoken.
                if endpoint.starts_with("http://") {
                    loader = loader.http_client(aws_smithy_http_client::Builder::new().build_http());
                }
                let config = loader.load().await;
                let region = config.region().cloned().unwrap_or(Region::new("us-east-1"));
                config.into_builder().region(region).build()
            }
        })
    }
}
