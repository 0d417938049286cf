//! Where everybody is measured: an engine over loopback HTTP, or an endpoint that is given; and stores whose consumption is counted.

use std::path::Path;

use aws_config::SdkConfig;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use fencepost::testing::Meter;
use fencepost::{Builder, Engine, Error, Result, Store, Units};
use fencepost_contest::{KEY, REGION};
use tokio::sync::oneshot;

use crate::asked::Asked;

#[derive(clap::Args, Clone, Default)]
pub(crate) struct Place {
    /// Measure on this endpoint, such as <http://127.0.0.1:8000>, and not on an engine of our own. It must not check signatures, since
    /// every request is made to ask for what it consumed.
    #[arg(long)]
    pub(crate) endpoint: Option<String>,
}

pub(crate) struct Ground {
    endpoint: String,
    /// Ours, without the way over HTTP; none where an endpoint was given.
    engine: Option<Engine>,
    /// Ends the serving when it is dropped.
    _serving: Option<oneshot::Sender<()>>,
}

impl Ground {
    pub(crate) async fn new(args: &Place) -> Result<Ground> {
        Ground::on(args, Engine::memory).await
    }

    /// An engine of ours keeps its tables in this folder: in memory it holds a gigabyte.
    pub(crate) async fn with_room(args: &Place, folder: &Path) -> Result<Ground> {
        Ground::on(args, || Engine::file(folder.join("tables.db"))).await
    }

    async fn on(args: &Place, engine: impl FnOnce() -> Result<Engine>) -> Result<Ground> {
        match &args.endpoint {
            Some(endpoint) if endpoint.starts_with("http://") => Ok(Ground::at(endpoint)),
            Some(other) => Err(fencepost::Refused::Url { why: format!("{other}: expected http://HOST:PORT") }.into()),
            None => {
                let unreachable = |error: std::io::Error| Error::unavailable(fencepost::Reason::Unreachable, error.to_string());
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(unreachable)?;
                let endpoint = format!("http://{}", listener.local_addr().map_err(unreachable)?);
                let (end, ended) = oneshot::channel();
                let engine = engine()?;
                let served = engine.clone();
                tokio::spawn(async move { served.serve(listener, async { drop(ended.await) }).await });
                Ok(Ground { endpoint, engine: Some(engine), _serving: Some(end) })
            }
        }
    }

    /// Where somebody else serves.
    pub(crate) fn at(endpoint: &str) -> Ground {
        Ground { endpoint: endpoint.trim_end_matches('/').to_owned(), engine: None, _serving: None }
    }

    /// The engine as it is reached fastest, for loading in bulk.
    pub(crate) fn shortcut(&self) -> Option<SharedHttpClient> {
        self.engine.as_ref().map(Engine::http_client)
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A store with tables of its own.
    pub(crate) async fn store(&self, table: &str, parameters: &str) -> Result<Opened> {
        let asked = Asked::new(aws_smithy_http_client::Builder::new().build_http());
        let meter = Meter::new(asked.http_client());
        let store = self.open(table, parameters, meter.http_client()).await?;
        meter.take();
        Ok(Opened { store, meter, asked })
    }

    /// A store by this connector, without a meter between; its tables are made, where they are not there.
    pub(crate) async fn open(&self, table: &str, parameters: &str, http: SharedHttpClient) -> Result<Store> {
        self.builder(table, parameters, http)?.create(true).open().await
    }

    pub(crate) fn builder(&self, table: &str, parameters: &str, http: SharedHttpClient) -> Result<Builder> {
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys(KEY, KEY, None)))
            .region(Region::new(REGION))
            .build();
        let url = format!("{}/{table}?{parameters}", self.endpoint);
        Ok(Store::builder(&url)?.sdk_config(config).http_client(http))
    }
}

pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) meter: Meter,
    pub(crate) asked: Asked,
}

impl Opened {
    /// Forgets what was consumed.
    pub(crate) fn begin(&self) {
        self.meter.take();
        self.asked.take();
    }

    /// What this consumes, and what it comes to.
    pub(crate) async fn measured<T>(&self, work: impl Future<Output = Result<T>>) -> Result<(T, Units)> {
        self.begin();
        let done = work.await?;
        Ok((done, self.meter.take()))
    }
}
