//! A store, opened by URL: what an application holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::{Deciding, Decision, Model, Options as DecideOptions, decide_on, look};
use crate::domain::IntoEvents;
use crate::dynamo::table::{self, Created, Difference, Format, Role, Scope, TableOptions, TableSpec};
use crate::dynamo::{Client, Connect, Dynamo, HttpClient, Place, SdkConfig, SharedHttpClient, Timeouts};
use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::event::EventType;
use crate::feed::{self, Feed};
use crate::layout::equinox::Equinox;
use crate::layout::sekiban::{Sekiban, Settings};
use crate::layout::{Choice, Collected, Layout, Verified, VerifyProgress};
use crate::log::{Answer, Append, Capabilities, Committed, EventLog};
use crate::moving::Party;
use crate::project::{Consumer, Projections};
use crate::state::{Cells, Checkpoints, States};
use crate::stream::StreamStore;
use crate::units::Units;
use crate::url::StoreUrl;

/// Opens a store by its URL: `memory:`, `file:orders.db`, `dynamodb://eu-west-1/orders`, `http://127.0.0.1:8000/orders`.
///
/// `memory:` and `file:` make their tables by themselves; elsewhere they are made by `fencepost init` or [`Tables::create`].
pub async fn open(url: &str) -> Result<Store> {
    Store::builder(url)?.open().await
}

/// A store: cheap to clone, clones share their connections and what they remember.
#[derive(Debug, Clone)]
pub struct Store {
    layout: Layout,
    log: Option<Arc<dyn EventLog>>,
    feed: Option<Arc<dyn Feed>>,
    specs: Vec<TableSpec>,
}

impl Store {
    /// Understands the URL; nothing is called yet.
    pub fn builder(url: &str) -> Result<Builder> {
        let url = StoreUrl::parse(url)?;
        let choice = Choice::of(&url)?;
        let create = url.is_local();
        let file = url.param("settings").map(str::to_owned);
        let builder = Builder { connect: Connect::to(url.place.clone()), choice, create, refused: None, url };
        match file.as_deref() {
            Some("env") => builder.settings(&Settings::from_this_process()?),
            Some(file) => builder.settings(&Settings::from_file(file)?),
            None => Ok(builder),
        }
    }

    /// The log with boundaries. Refused on layouts that have streams only.
    pub fn log(&self) -> Result<Arc<dyn EventLog>> {
        self.log.clone().ok_or_else(streams_only)
    }
    /// Takes a decision over a boundary: reads, decides, appends, and decides again if something of it changed meanwhile.
    /// Refused on layouts that have streams only.
    pub fn decide<'a, D: Decision + 'a>(&'a self, decision: D) -> Deciding<'a, D::Rejection>
    where
        D::Rejection: 'a,
    {
        let log = self.log.as_deref().ok_or_else(streams_only);
        decide_on(log, DecideOptions::with_env(self.env().clone()), decision)
    }
    /// What a model amounts to now, read strongly. For answers to people: it guards nothing.
    pub async fn look<M: Model>(&self, model: M) -> Result<Answer<M::State>> {
        look(self.log.as_deref().ok_or_else(streams_only)?, model).await
    }
    /// Records events, whatever happened meanwhile: a decision on nothing.
    pub async fn record(&self, events: impl IntoEvents) -> Result<Committed> {
        self.log()?.append(Append::new(events.into_events()?)).await
    }
    fn dynamo(&self) -> &Dynamo {
        self.layout.side().dynamo()
    }
    /// Clock, chance and ids that the store works by: the time for decisions that ask for it.
    pub fn env(&self) -> &Env {
        self.dynamo().env()
    }
    /// The streams.
    pub fn streams(&self) -> Arc<dyn StreamStore> {
        self.layout.streams()
    }
    /// The feed. Refused where the mode has none.
    pub fn feed(&self) -> Result<Arc<dyn Feed>> {
        self.feed.clone().ok_or_else(|| {
            let remedy = "build with the feature `streams` (`cargo add fencepost --features streams`)".into();
            Refused::Unsupported { what: "a feed that is built from DynamoDB Streams".into(), remedy }.into()
        })
    }
    /// The feed of what nothing can come before any more. Where a feed is ordered by clocks (`layout=sekiban`), it hands over what is older than the
    /// safe window, in the order of ids; a projection over it has Sekiban's safe state, one over [`Store::feed`] the state that is served.
    /// Elsewhere the two feeds are one.
    pub fn safe_feed(&self) -> Result<Arc<dyn Feed>> {
        self.feed()?;
        feed::safe_of(&self.layout).map_or_else(|| self.feed(), Ok)
    }
    /// The index that the feed is read from: to build, look at, verify and rebuild. Refused where the feed needs none.
    #[cfg(feature = "streams")]
    pub fn index(&self) -> Result<crate::feed::index::Index> {
        if let Layout::Equinox(store) = &self.layout {
            return Ok(crate::feed::index::Index::appends(store.clone()));
        }
        let log = crate::feed::indexable(&self.layout).ok_or_else(|| Refused::Unsupported {
            what: "an index".into(),
            remedy: "the feed is read from the log itself, by its lanes or by an index of the table: it needs no other".into(),
        })?;
        Ok(crate::feed::index::Index::new(log))
    }
    /// Where consumers are.
    pub fn checkpoints(&self) -> Arc<dyn Checkpoints> {
        Arc::new(self.layout.side().clone())
    }
    /// Folded states.
    pub fn states(&self) -> Arc<dyn States> {
        Arc::new(self.layout.side().clone())
    }
    /// Cells: leases, parked events and projections lie in them.
    pub fn cells(&self) -> Arc<dyn Cells> {
        self.layout.cells()
    }
    /// A consumer of the feed, under a name.
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        Consumer::new(name, self.feed()?, self.cells(), self.dynamo().env().clone())
    }
    /// The projections over the feed.
    pub fn projections(&self) -> Result<Projections> {
        Ok(Projections::new(self.feed()?, self.cells(), self.dynamo().env().clone()))
    }
    /// Where states of projections go that outgrow an item, by URL: see [`crate::Objects::open`]. They lie under this store's namespace. In S3 the
    /// keys are those of the AWS default chain, as for DynamoDB, and the region this store's, unless the options or the environment name others.
    #[cfg(feature = "offload")]
    pub fn objects(&self, url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<crate::project::Objects> {
        let keys = |plain| (std::sync::Arc::new(crate::dynamo::Chain::new(None, plain)) as _, self.dynamo().region());
        crate::project::Objects::open_with(url, self.layout.side().namespace(), options, Some(&keys))
    }
    /// What this store can hold.
    pub fn capabilities(&self) -> Capabilities {
        self.layout.capabilities()
    }

    /// Reads the whole log and checks it: dense versions, every slot of each commit, chunks present.
    /// `progress` hears the number of items read so far, and about how many there are.
    pub async fn verify(&self, progress: &(dyn Fn(&VerifyProgress) + Send + Sync)) -> Result<Verified> {
        let about = self.about_items().await;
        self.layout.verify(&|items| progress(&VerifyProgress { items, about })).await
    }
    /// Verifies, and mends what can be derived from what is there: in Sekiban's tables, rows of tags from their events. Deletes nothing.
    pub async fn repair(&self, progress: &(dyn Fn(&VerifyProgress) + Send + Sync)) -> Result<Verified> {
        let about = self.about_items().await;
        self.layout.repair(&|items| progress(&VerifyProgress { items, about })).await
    }
    async fn about_items(&self) -> Option<u64> {
        self.dynamo().about_items(&self.dynamo().op(), &self.layout.verified_tables()).await
    }
    /// What Sekiban's tables offer beyond a log and streams. Refused on other layouts.
    pub fn sekiban(&self) -> Result<Sekiban> {
        match &self.layout {
            Layout::Sekiban(sekiban) => Ok(sekiban.clone()),
            other => {
                let what = format!("an operation of Sekiban's, on layout {}", other.name());
                Err(Refused::Unsupported { what, remedy: "open with layout=sekiban".into() }.into())
            }
        }
    }
    /// What Equinox' tables offer beyond streams. Refused on other layouts.
    pub fn equinox(&self) -> Result<Equinox> {
        match &self.layout {
            Layout::Equinox(equinox) => Ok(equinox.clone()),
            other => {
                let what = format!("an operation of Equinox', on layout {}", other.name());
                Err(Refused::Unsupported { what, remedy: "open with layout=equinox".into() }.into())
            }
        }
    }
    /// Deletes chunks that no commit names, of sets older than this.
    pub async fn collect_garbage(&self, older_than: Duration) -> Result<Collected> {
        self.layout.collect_garbage(older_than).await
    }
    /// What is in it.
    pub async fn stats(&self) -> Result<Stats> {
        let op = self.dynamo().op();
        let mut tables = Vec::new();
        for spec in &self.specs {
            let described = self.dynamo().describe(&op, &spec.name).await?;
            tables.push(TableStats { name: spec.name.clone(), status: described.status, items: described.items, bytes: described.bytes });
        }
        let counts = self.layout.counts(&op).await?;
        Ok(Stats {
            layout: self.layout.name().into(),
            settings: self.layout.settings(),
            tables,
            commits: counts.map(|(commits, _)| commits),
            events: counts.map(|(_, events)| events),
            units: op.units(),
        })
    }
}

impl From<&Store> for Party {
    fn from(store: &Store) -> Party {
        let (log, feed) = (store.log.clone(), store.feed.clone());
        let (streams, checkpoints, capabilities) = (Some(store.streams()), store.checkpoints(), store.capabilities());
        let (indexed, names) = (feed::is_indexed(&store.layout), store.layout.names());
        Party { log, streams, feed, checkpoints, capabilities, indexed, names }
    }
}

fn streams_only() -> Error {
    Refused::Unsupported { what: "a boundary over tags".into(), remedy: "this layout has streams only: use streams()".into() }.into()
}

/// A store that is not open yet: what the URL does not say, and its tables.
#[derive(Debug, Clone)]
pub struct Builder {
    url: StoreUrl,
    connect: Connect,
    choice: Choice,
    create: bool,
    /// What was asked for that the layout does not have: said on opening.
    refused: Option<(&'static str, &'static str)>,
}

impl Builder {
    /// Creates missing tables and the namespace on opening. On for `memory:` and `file:`, else off: making tables is explicit.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
    /// Types that get a series of their own, declared when the namespace is created.
    pub fn index_types(mut self, types: Vec<EventType>) -> Self {
        match &mut self.choice {
            Choice::Ledger(options) => options.types = Some(types),
            _ => self.refused = Some(("indexed types", "only layout=ledger has them")),
        }
        self
    }
    /// How `layout=event-store-adapter-v3` finds the shard of an aggregate, where its clients have a hash that no `hash=` names: of type,
    /// value and number of shards. As with any hash but Rust's, appending needs `&dialect=v3`.
    pub fn shard_by(mut self, shard: impl Fn(&str, &str, u64) -> i64 + Send + Sync + 'static) -> Self {
        use crate::layout::event_store_adapter::{Kind, hash::KeyHash};
        match &mut self.choice {
            Choice::EventStoreAdapter(options) if matches!(options.kind, Kind::V3(_)) => {
                if let Kind::V3(keys) = &mut options.kind {
                    keys.hash = KeyHash::Own(std::sync::Arc::new(shard));
                }
            }
            _ => self.refused = Some(("a hash of shards", "only layout=event-store-adapter-v3 has shards")),
        }
        self
    }
    /// Opens by Sekiban's own settings; what the URL says goes before. Refused where they say another place than the URL, and on other layouts.
    ///
    /// As published, missing tables are made on opening unless `AutoCreateTables` is off, and reads that decide nothing are a moment old
    /// unless `UseConsistentReads` is on. `settings=FILE` in the URL is the same, and `settings=env` takes them from the environment alone.
    pub fn settings(mut self, settings: &Settings) -> Result<Self> {
        let Choice::Sekiban(options) = &mut self.choice else {
            self.refused = Some(("Sekiban's settings", "only layout=sekiban has them"));
            return Ok(self);
        };
        *options = crate::layout::sekiban::Options::with(&self.url, settings)?;
        let differs =
            |what, here: &str, said: &str| Err(Refused::Url { why: format!("it says {here}, and {what} of the settings {said}") }.into());
        match (&self.connect.place, settings.region(), settings.service_url()) {
            (Place::Region(here), Some(said), _) if here != said => return differs("AWS.Region", here, said),
            (Place::Endpoint(here), _, Some(said)) if here != said.trim_end_matches('/') => {
                return differs("DynamoDb.ServiceUrl", here, said);
            }
            _ => {}
        }
        self.connect.region = settings.region().map(str::to_owned);
        self.connect.profile = settings.profile().map(str::to_owned);
        self.connect.timeouts.attempts = settings.retry_attempts();
        self.connect.longest_pause = settings.retry_delay();
        self.create = settings.creates_tables();
        Ok(self)
    }
    /// Where projection states of `layout=sekiban` go that outgrow a row, in place of the settings' bucket.
    #[cfg(feature = "offload")]
    pub fn blobs(mut self, blobs: crate::layout::sekiban::Blobs) -> Self {
        match &mut self.choice {
            Choice::Sekiban(options) => options.blobs = Some(blobs),
            _ => self.refused = Some(("Sekiban's blobs", "only layout=sekiban has them; others have Projections::offload")),
        }
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
    /// A ready configuration of the SDK, in place of the default chain; the endpoint or region of the URL stands.
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
        if let Choice::Ledger(options) = &mut self.choice {
            options.mutation = Some(mutation);
        }
        self
    }

    /// Keeps to this lane, where an instance would choose one.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn keep_to_lane(mut self, lane: u8) -> Self {
        if let Choice::Ledger(options) = &mut self.choice {
            options.lane = Some(lane);
        }
        self
    }

    /// Its tables: to create, verify or print.
    pub fn tables(&self) -> Tables {
        Tables { builder: self.clone() }
    }

    /// Opens it.
    pub async fn open(self) -> Result<Store> {
        if let Some((what, remedy)) = self.refused {
            return Err(Refused::Unsupported { what: what.into(), remedy: remedy.into() }.into());
        }
        let dynamo = self.connect.connect().await?;
        if self.create {
            Box::pin(self.tables().create_on(&dynamo, &TableOptions::default())).await?;
        }
        let specs = self.tables().specs();
        // Boxed: the futures of all layouts in one would be too deep a type for those who await it.
        let layout = Box::pin(self.choice.open(dynamo)).await?;
        Ok(Store { log: layout.log(), feed: feed::of(&layout), layout, specs })
    }

    /// Connects without opening, for looking at what is there.
    pub(crate) async fn connect(&self) -> Result<Dynamo> {
        self.connect.connect().await
    }
    pub(crate) fn creates(&self) -> bool {
        self.create
    }
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
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
        self.builder.choice.specs()
    }

    /// Creates what is missing, the namespace too, and verifies what is there. Each thing's name, and whether it was created now.
    pub async fn create(&self, options: &TableOptions) -> Result<Vec<(String, bool)>> {
        self.create_on(&self.builder.connect().await?, options).await
    }

    pub(crate) async fn create_on(&self, dynamo: &Dynamo, options: &TableOptions) -> Result<Vec<(String, bool)>> {
        self.builder.choice.may_create(dynamo).await?;
        let mut made = Vec::new();
        for spec in self.specs() {
            let op = dynamo.long_op();
            let created = dynamo.create_table(&op, &spec, options).await?;
            made.push((format!("table {}", spec.name), created == Created::Created));
        }
        made.extend(self.builder.choice.create(dynamo).await?);
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
            self.builder.choice.clone().open(dynamo).await?;
        }
        Ok(differences)
    }

    /// The same definition for other tools.
    pub fn print(&self, format: Format, options: &TableOptions) -> Result<String> {
        let besides = self.builder.choice.print_besides(format).unwrap_or_default();
        Ok(table::print(&self.specs(), options, format)? + &besides)
    }

    /// Least-privilege policies, one for each role.
    pub fn iam(&self, options: &TableOptions, scope: &Scope) -> Vec<(Role, String)> {
        table::iam(&self.builder.choice.rights(), options, scope)
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
