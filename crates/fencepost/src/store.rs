//! A store, opened by URL: what an application holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::{Deciding, Decision, Model, Options as DecideOptions, decide_on, look};
use crate::domain::IntoEvents;
use crate::dynamo::table::{self, Created, Difference, Format, Role, Scope, TableOptions, TableSpec};
use crate::dynamo::{Client, Connect, Dynamo, HttpClient, SdkConfig, SharedHttpClient, Timeouts};
use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::event::EventType;
use crate::feed::Feed;
use crate::feed::lanes::LaneFeed;
use crate::layout::ledger::{FeedMode, Ledger, Options, check_namespace, tables};
use crate::layout::{Collected, Opened, Verified};
use crate::log::{Answer, Append, Capabilities, Committed, EventLog};
use crate::moving::Party;
use crate::project::{Consumer, Projections};
use crate::state::{Cells, Checkpoints, States};
use crate::stream::StreamStore;
use crate::units::Units;
use crate::url::{StoreUrl, check_table};

/// Opens a store by its URL: `memory:`, `file:orders.db`, `dynamodb://eu-west-1/orders`, `http://127.0.0.1:8000/orders`.
///
/// `memory:` and `file:` make their tables by themselves; elsewhere they are made by `fencepost init` or [`Tables::create`].
pub async fn open(url: &str) -> Result<Store> {
    Store::builder(url)?.open().await
}

/// A store: cheap to clone, clones share their connections and what they remember.
#[derive(Debug, Clone)]
pub struct Store {
    opened: Opened,
    ledger: Ledger,
    specs: Vec<TableSpec>,
}

impl Store {
    /// Understands the URL; nothing is called yet.
    pub fn builder(url: &str) -> Result<Builder> {
        let url = StoreUrl::parse(url)?;
        if url.layout != "ledger" {
            let what = format!("layout={}", url.layout);
            return Err(Refused::Unsupported { what, remedy: "this release has layout=ledger".into() }.into());
        }
        url.only(&["namespace", "feed", "side"])?;
        let options = ledger_options(&url)?;
        let create = url.is_local();
        Ok(Builder { connect: Connect::to(url.place), options, create })
    }

    /// The log with boundaries. Refused on layouts that have streams only.
    pub fn log(&self) -> Result<Arc<dyn EventLog>> {
        self.opened.log.clone().ok_or_else(streams_only)
    }
    /// Takes a decision over a boundary: reads, decides, appends, and decides again if something of it changed meanwhile.
    /// Refused on layouts that have streams only.
    pub fn decide<'a, D: Decision + 'a>(&'a self, decision: D) -> Deciding<'a, D::Rejection>
    where
        D::Rejection: 'a,
    {
        let log = self.opened.log.as_deref().ok_or_else(streams_only);
        decide_on(log, DecideOptions::with_env(self.env().clone()), decision)
    }
    /// What a model amounts to now, read strongly. For answers to people: it guards nothing.
    pub async fn look<M: Model>(&self, model: M) -> Result<Answer<M::State>> {
        look(self.opened.log.as_deref().ok_or_else(streams_only)?, model).await
    }
    /// Records events, whatever happened meanwhile: a decision on nothing.
    pub async fn record(&self, events: impl IntoEvents) -> Result<Committed> {
        self.log()?.append(Append::new(events.into_events()?)).await
    }
    /// Clock, chance and ids that the store works by: the time for decisions that ask for it.
    pub fn env(&self) -> &Env {
        self.ledger.dynamo().env()
    }
    /// The streams.
    pub fn streams(&self) -> Arc<dyn StreamStore> {
        self.opened.streams.clone()
    }
    /// The feed. Refused where the mode has none.
    pub fn feed(&self) -> Result<Arc<dyn Feed>> {
        self.opened.feed.clone().ok_or_else(|| {
            let remedy = "build with the feature `streams` (`cargo add fencepost --features streams`)".into();
            Refused::Unsupported { what: "a feed in streams mode".into(), remedy }.into()
        })
    }
    /// The index of `streams` mode: to build, look at, verify and rebuild. Refused where there is none.
    #[cfg(feature = "streams")]
    pub fn index(&self) -> Result<crate::feed::index::Index> {
        if self.ledger.settings().feed != FeedMode::Streams {
            let what = format!("an index with feed={}", self.ledger.settings().feed);
            return Err(Refused::Unsupported { what, remedy: "lanes are a feed by themselves: use feed()".into() }.into());
        }
        Ok(crate::feed::index::Index::new(self.ledger.clone(), self.cells()))
    }
    /// Where consumers are.
    pub fn checkpoints(&self) -> Arc<dyn Checkpoints> {
        self.opened.checkpoints.clone()
    }
    /// Folded states.
    pub fn states(&self) -> Arc<dyn States> {
        self.opened.states.clone()
    }
    /// Cells: leases, parked events and projections lie in them.
    pub fn cells(&self) -> Arc<dyn Cells> {
        self.opened.cells.clone()
    }
    /// A consumer of the feed, under a name.
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        Consumer::new(name, self.feed()?, self.cells(), self.ledger.dynamo().env().clone())
    }
    /// The projections over the feed.
    pub fn projections(&self) -> Result<Projections> {
        Ok(Projections::new(self.feed()?, self.cells(), self.ledger.dynamo().env().clone()))
    }
    /// Where states of projections go that outgrow an item, by URL: see [`crate::Objects::open`]. They lie under this store's namespace.
    #[cfg(feature = "offload")]
    pub fn objects(&self, url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<crate::project::Objects> {
        crate::project::Objects::open(url, self.ledger.namespace(), options)
    }
    /// What this store can hold.
    pub fn capabilities(&self) -> Capabilities {
        self.opened.capabilities
    }

    /// Reads the whole log and checks it: dense versions, every slot of each commit, chunks present.
    /// `progress` hears the number of items read so far.
    pub async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        self.ledger.verify(progress).await
    }
    /// Deletes chunks that no commit names, of sets older than this.
    pub async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        self.ledger.collect_garbage(older_than).await
    }
    /// What is in it.
    pub async fn stats(&self) -> Result<Stats> {
        let op = self.ledger.dynamo().op();
        let mut tables = Vec::new();
        for spec in &self.specs {
            let described = self.ledger.dynamo().describe(&op, &spec.name).await?;
            tables.push(TableStats { name: spec.name.clone(), status: described.status, items: described.items, bytes: described.bytes });
        }
        let counts = self.ledger.counts(&op).await?;
        let settings = self.ledger.settings();
        let types: Vec<_> = settings.types.iter().map(|t| t.as_str()).collect();
        Ok(Stats {
            layout: "ledger".into(),
            settings: BTreeMap::from([
                ("namespace".into(), settings.namespace.clone()),
                ("feed".into(), settings.feed.to_string()),
                ("indexed types".into(), types.join(", ")),
            ]),
            tables,
            commits: counts.map(|(commits, _)| commits),
            events: counts.map(|(_, events)| events),
            units: op.units(),
        })
    }
}

impl From<&Store> for Party {
    fn from(store: &Store) -> Party {
        let Opened { log, feed, checkpoints, capabilities, .. } = store.opened.clone();
        Party { log, feed, checkpoints, capabilities }
    }
}

fn streams_only() -> Error {
    Refused::Unsupported { what: "a boundary over tags".into(), remedy: "this layout has streams only: use streams()".into() }.into()
}

fn ledger_options(url: &StoreUrl) -> Result<Options> {
    let param = |name: &str| url.params.get(name).cloned();
    let namespace = param("namespace").unwrap_or_else(|| "main".into());
    check_namespace(&namespace)?;
    let side = param("side").unwrap_or_else(|| format!("{}-side", url.table));
    check_table(&side)?;
    let feed = param("feed").map(|feed| feed.parse()).transpose()?;
    Ok(Options { table: url.table.clone(), side, namespace, feed, types: None, mutation: None, lane: None })
}

/// A store that is not open yet: what the URL does not say, and its tables.
#[derive(Debug, Clone)]
pub struct Builder {
    connect: Connect,
    options: Options,
    create: bool,
}

impl Builder {
    /// Creates missing tables and the namespace on opening. On for `memory:` and `file:`, else off: making tables is explicit.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
    /// Types that get a series of their own, declared when the namespace is created.
    pub fn index_types(mut self, types: Vec<EventType>) -> Self {
        self.options.types = Some(types);
        self
    }
    /// Clock, chance and ids.
    pub fn env(mut self, env: Env) -> Self {
        self.connect.env = env;
        self
    }
    /// How long things may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.connect.timeouts = timeouts;
        self
    }
    /// A ready configuration of the SDK, in place of the default chain.
    pub fn sdk_config(mut self, config: SdkConfig) -> Self {
        self.connect.sdk_config = Some(config);
        self
    }
    /// A ready client of the SDK. Its retries are switched off: the store sees every attempt.
    pub fn client(mut self, client: Client) -> Self {
        self.connect.client = Some(client);
        self
    }
    /// What carries the requests: an engine's, or one that injects faults.
    pub fn http_client(mut self, client: impl HttpClient + 'static) -> Self {
        self.connect.http_client = Some(SharedHttpClient::new(client));
        self
    }
    /// Breaks the protocol on purpose.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn mutate(mut self, mutation: crate::layout::ledger::Mutation) -> Self {
        self.options.mutation = Some(mutation);
        self
    }

    /// Keeps to this lane, where an instance would choose one.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn keep_to_lane(mut self, lane: u8) -> Self {
        self.options.lane = Some(lane);
        self
    }

    /// Its tables: to create, verify or print.
    pub fn tables(&self) -> Tables {
        Tables { builder: self.clone() }
    }

    /// Opens it.
    pub async fn open(self) -> Result<Store> {
        let dynamo = self.connect.connect().await?;
        if self.create {
            self.tables().create_on(&dynamo, &TableOptions::default()).await?;
        }
        let specs = self.tables().specs();
        let ledger = Ledger::open(dynamo, self.options).await?;
        let opened = Opened {
            log: Some(Arc::new(ledger.clone())),
            streams: Arc::new(ledger.clone()),
            feed: match ledger.settings().feed {
                FeedMode::Lanes(_) => Some(Arc::new(LaneFeed(ledger.clone()))),
                #[cfg(feature = "streams")]
                FeedMode::Streams => Some(Arc::new(crate::feed::indexed::IndexFeed(ledger.clone()))),
                #[cfg(not(feature = "streams"))]
                FeedMode::Streams => None,
            },
            checkpoints: Arc::new(ledger.clone()),
            states: Arc::new(ledger.clone()),
            cells: Arc::new(ledger.clone()),
            capabilities: ledger.capabilities(),
        };
        Ok(Store { opened, ledger, specs })
    }

    /// Connects without opening, for looking at what is there.
    pub(crate) async fn connect(&self) -> Result<Dynamo> {
        self.connect.connect().await
    }
    pub(crate) fn creates(&self) -> bool {
        self.create
    }
    pub(crate) fn ledger(&self) -> &Options {
        &self.options
    }
    pub(crate) fn place(&self) -> &crate::dynamo::Place {
        &self.connect.place
    }
}

/// The tables of a store: created on request, verified, printed.
#[derive(Debug, Clone)]
pub struct Tables {
    builder: Builder,
}

impl Tables {
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        let options = &self.builder.options;
        tables::specs(&options.table, &options.side, options.feed == Some(FeedMode::Streams))
    }

    /// Creates what is missing, the namespace too, and verifies what is there. Each thing's name, and whether it was created now.
    pub async fn create(&self, options: &TableOptions) -> Result<Vec<(String, bool)>> {
        self.create_on(&self.builder.connect().await?, options).await
    }

    pub(crate) async fn create_on(&self, dynamo: &Dynamo, options: &TableOptions) -> Result<Vec<(String, bool)>> {
        let mut made = Vec::new();
        for spec in self.specs() {
            let op = dynamo.long_op();
            let created = dynamo.create_table(&op, &spec, options).await?;
            made.push((format!("table {}", spec.name), created == Created::Created));
        }
        let created = Ledger::create(dynamo, &self.builder.options).await?;
        made.push((format!("namespace {}", self.builder.options.namespace), created));
        Ok(made)
    }

    /// What differs from what the layout needs; nothing, if all is well. A missing table or namespace is an error.
    pub async fn verify(&self) -> Result<Vec<Difference>> {
        let dynamo = self.builder.connect().await?;
        let op = dynamo.op();
        let mut differences = Vec::new();
        for spec in self.specs() {
            differences.extend(dynamo.verify_table(&op, &spec).await?);
        }
        if differences.is_empty() {
            Ledger::open(dynamo, self.builder.options.clone()).await?;
        }
        Ok(differences)
    }

    /// The same definition for other tools.
    pub fn print(&self, format: Format, options: &TableOptions) -> Result<String> {
        table::print(&self.specs(), options, format)
    }

    /// Least-privilege policies, one for each role.
    pub fn iam(&self, options: &TableOptions, scope: &Scope) -> Vec<(Role, String)> {
        let ledger = &self.builder.options;
        table::iam(&tables::rights(&ledger.table, &ledger.side), options, scope)
    }
}

/// What is in a store.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The layout's name.
    pub layout: String,
    /// Its settings: namespace, feed, indexed types.
    pub settings: BTreeMap<String, String>,
    /// Its tables.
    pub tables: Vec<TableStats>,
    /// Commits, where they are counted without a scan.
    pub commits: Option<u64>,
    /// Events, where counted.
    pub events: Option<u64>,
    /// What it cost.
    pub units: Units,
}

/// One table, as DescribeTable tells (item count and bytes are refreshed by DynamoDB every six hours or so).
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// Items, roughly.
    pub items: i64,
    /// Bytes, roughly.
    pub bytes: i64,
}
