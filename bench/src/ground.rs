//! Where everybody is measured: an engine over loopback HTTP, or an endpoint that is given; and stores whose consumption is counted.

use aws_config::SdkConfig;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use fencepost::testing::Meter;
use fencepost::{Engine, Error, Result, Store, Units};
use tokio::sync::oneshot;

#[derive(clap::Args, Clone)]
pub(crate) struct Place {
    /// Measure on this endpoint, such as <http://127.0.0.1:8000>, and not on an engine of our own. It must not check signatures, since
    /// every request is made to ask for what it consumed.
    #[arg(long)]
    endpoint: Option<String>,
}

pub(crate) struct Ground {
    endpoint: String,
    /// Ends the engine when it is dropped.
    _engine: Option<oneshot::Sender<()>>,
}

impl Ground {
    pub(crate) async fn new(args: &Place) -> Result<Ground> {
        match &args.endpoint {
            Some(endpoint) if endpoint.starts_with("http://") => {
                Ok(Ground { endpoint: endpoint.trim_end_matches('/').to_owned(), _engine: None })
            }
            Some(other) => Err(fencepost::Refused::Url { why: format!("{other}: expected http://HOST:PORT") }.into()),
            None => {
                let unreachable = |error: std::io::Error| Error::unavailable(fencepost::Reason::Unreachable, error.to_string());
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(unreachable)?;
                let endpoint = format!("http://{}", listener.local_addr().map_err(unreachable)?);
                let (end, ended) = oneshot::channel();
                let engine = Engine::memory()?;
                tokio::spawn(async move { engine.serve(listener, async { drop(ended.await) }).await });
                Ok(Ground { endpoint, _engine: Some(end) })
            }
        }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A store with tables of its own.
    pub(crate) async fn store(&self, table: &str, parameters: &str) -> Result<Opened> {
        let meter = Meter::new(aws_smithy_http_client::Builder::new().build_http());
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys("any", "any", None)))
            .region(Region::new("us-east-1"))
            .build();
        let url = format!("{}/{table}?{parameters}", self.endpoint);
        let store = Store::builder(&url)?.sdk_config(config).http_client(meter.http_client()).create(true).open().await?;
        meter.take();
        Ok(Opened { store, meter })
    }
}

pub(crate) struct Opened {
    pub(crate) store: Store,
    meter: Meter,
}

impl Opened {
    /// What this consumes, and what it comes to.
    pub(crate) async fn measured<T>(&self, work: impl Future<Output = Result<T>>) -> Result<(T, Units)> {
        self.meter.take();
        let done = work.await?;
        Ok((done, self.meter.take()))
    }
}
