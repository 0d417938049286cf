//! Stale reads: two engines, of which the second learns of each write only when the test says so, and answers every read that DynamoDB
//! may answer from a replica or an index.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use serde_json::{Map, Value, json};

use super::wire::{self, Answer};
use crate::Env;

/// A first engine that has every write, and a second that lags behind it. Clones share their state.
///
/// Strongly consistent reads, transactions and writes go to the first. Eventually consistent reads, and queries of indexes unless they ask
/// for consistency, go to the second. Tables are made in both. PartiQL is not understood, and goes to the first without being copied.
#[derive(Clone, Debug)]
pub struct Lag {
    clients: Arc<[SharedHttpClient; 2]>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    engines: OnceLock<Engines>,
    /// One write at a time, so that the image read after a write is the one that it left.
    writing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct Engines {
    first: SharedHttpConnector,
    second: SharedHttpConnector,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    requests: u64,
    waiting: BTreeMap<u64, Image>,
    /// The last write that the second engine has of each item.
    applied: HashMap<(String, String), u64>,
    keys: HashMap<String, Vec<String>>,
    /// Shows where the engines are, for requests of our own.
    like: Option<HttpRequest>,
}

#[derive(Clone, Debug)]
struct Image {
    pending: Pending,
    key: Value,
    /// None: the item was deleted.
    item: Option<Value>,
}

/// A write that the second engine does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// For [`Lag::apply`]. Grows with every item written.
    pub id: u64,
    /// The same for all items of one transaction or batch. Grows with every request.
    pub request: u64,
    /// Where.
    pub table: String,
    /// The item's key, as DynamoDB's JSON.
    pub key: String,
}

impl Lag {
    /// Two engines, both empty.
    pub fn new(first: SharedHttpClient, second: SharedHttpClient, seed: u64) -> Self {
        let env = Env::seeded(seed);
        let shared = Shared { env, engines: OnceLock::new(), writing: tokio::sync::Mutex::default(), state: Mutex::default() };
        Self { clients: Arc::new([first, second]), shared: Arc::new(shared) }
    }

    /// For an SDK client's `http_client`.
    pub fn http_client(&self) -> SharedHttpClient {
        let Self { clients, shared } = self.clone();
        http_client_fn(move |settings, components| {
            let [first, second] = clients.each_ref().map(|client| client.http_connector(settings, components));
            shared.engines.get_or_init(|| Engines { first, second });
            SharedHttpConnector::new(Connector(shared.clone()))
        })
    }

    /// What the second engine lacks, oldest first.
    pub fn pending(&self) -> Vec<Pending> {
        self.shared.state().waiting.values().map(|image| image.pending.clone()).collect()
    }

    /// Brings this write to the second engine, before or after others. A write that is older than what the second has of the item already is
    /// passed over: an item's writes arrive in order, those of different items do not. Says whether it was waiting.
    pub async fn apply(&self, id: u64) -> bool {
        let Some(image) = self.shared.state().waiting.remove(&id) else { return false };
        #[expect(clippy::expect_used, reason = "for tests: an engine in this process that refuses the copy of what its twin took")]
        self.shared.copy(image).await.expect("the second engine takes the item");
        true
    }

    /// Brings the oldest write to the second engine. Says whether there was one.
    pub async fn apply_next(&self) -> bool {
        let next = self.shared.state().waiting.keys().next().copied();
        match next {
            Some(id) => self.apply(id).await,
            None => false,
        }
    }

    /// Brings one write to the second engine, drawn by the seed. Says whether there was one.
    pub async fn apply_any(&self) -> bool {
        let ids: Vec<_> = self.shared.state().waiting.keys().copied().collect();
        let drawn = usize::try_from(self.shared.env.below(ids.len() as u64)).unwrap_or(0);
        match ids.get(drawn) {
            Some(&id) => self.apply(id).await,
            None => false,
        }
    }

    /// Brings half of the items of the last transaction or batch that waits to the second engine, drawn by the seed; of a single item, none.
    /// Says how many.
    pub async fn apply_half(&self) -> usize {
        let mut ids: Vec<_> = {
            let state = self.shared.state();
            let last = state.waiting.values().next_back().map(|image| image.pending.request);
            state.waiting.values().map(|image| &image.pending).filter(|p| Some(p.request) == last).map(|p| p.id).collect()
        };
        let half = ids.len() / 2;
        for _ in 0..half {
            let drawn = usize::try_from(self.shared.env.below(ids.len() as u64)).unwrap_or(0);
            self.apply(ids.swap_remove(drawn)).await;
        }
        half
    }

    /// Brings the second engine up to date.
    pub async fn apply_all(&self) {
        while self.apply_next().await {}
    }
}

#[derive(Debug)]
struct Connector(Arc<Shared>);

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let shared = self.0.clone();
        HttpConnectorFuture::new(async move { shared.route(request).await })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines(&self) -> Result<&Engines, ConnectorError> {
        self.engines.get().ok_or_else(|| wire::other("no client was built on this Lag yet"))
    }

    async fn route(&self, request: HttpRequest) -> Answer {
        let Engines { first, second } = self.engines()?;
        let operation = wire::operation(&request);
        match operation.as_str() {
            "PutItem" | "UpdateItem" | "DeleteItem" | "BatchWriteItem" | "TransactWriteItems" => self.write(&operation, request).await,
            "CreateTable" | "UpdateTable" | "DeleteTable" | "UpdateTimeToLive" => {
                if let Some(copy) = request.try_clone() {
                    second.call(copy).await?;
                }
                first.call(request).await
            }
            "GetItem" | "Query" | "Scan" | "BatchGetItem" if may_be_stale(&wire::body(&request)) => second.call(request).await,
            _ => first.call(request).await,
        }
    }

    async fn write(&self, operation: &str, request: HttpRequest) -> Answer {
        let first = &self.engines()?.first;
        let body = wire::body(&request);
        self.state().like = Some(wire::request(&request, operation, &Value::Null)?);
        let _one = self.writing.lock().await;
        let answer = first.call(request).await?;
        if answer.status().is_success() {
            let mut images = Vec::new();
            for (table, place) in touched(operation, &body) {
                let key = self.key_of(&table, place).await?;
                let read = json!({ "TableName": table, "Key": key, "ConsistentRead": true });
                let item = self.ask(first, "GetItem", &read).await?.get("Item").cloned();
                images.push((table, key, item));
            }
            let mut state = self.state();
            state.requests += 1;
            for (table, key, item) in images {
                state.next += 1;
                let pending = Pending { id: state.next, request: state.requests, table, key: key.to_string() };
                state.waiting.insert(pending.id, Image { pending, key, item });
            }
        }
        Ok(answer)
    }

    /// The key attributes of an item, or of a key.
    async fn key_of(&self, table: &str, place: &Value) -> Result<Value, ConnectorError> {
        let known = self.state().keys.get(table).cloned();
        let names = match known {
            Some(names) => names,
            None => {
                let described = self.ask(&self.engines()?.first, "DescribeTable", &json!({ "TableName": table })).await?;
                let schema = described["Table"]["KeySchema"].as_array().cloned().unwrap_or_default();
                let names: Vec<_> = schema.iter().filter_map(|part| part["AttributeName"].as_str().map(str::to_owned)).collect();
                self.state().keys.insert(table.to_owned(), names.clone());
                names
            }
        };
        Ok(names.into_iter().map(|name| (name.clone(), place[&name].clone())).collect::<Map<_, _>>().into())
    }

    async fn copy(&self, Image { pending, key, item }: Image) -> Result<(), ConnectorError> {
        {
            let mut state = self.state();
            let last = state.applied.entry((pending.table.clone(), pending.key.clone())).or_default();
            if *last > pending.id {
                return Ok(());
            }
            *last = pending.id;
        }
        let second = &self.engines()?.second;
        let table = pending.table;
        match item {
            Some(item) => self.ask(second, "PutItem", &json!({ "TableName": table, "Item": item })).await?,
            None => self.ask(second, "DeleteItem", &json!({ "TableName": table, "Key": key })).await?,
        };
        Ok(())
    }

    /// A request of our own.
    async fn ask(&self, engine: &SharedHttpConnector, operation: &str, body: &Value) -> Result<Value, ConnectorError> {
        let request = {
            let state = self.state();
            let like = state.like.as_ref().ok_or_else(|| wire::other("nothing was written yet"))?;
            wire::request(like, operation, body)?
        };
        let (response, bytes) = wire::split(engine.call(request).await?).await?;
        if !response.status().is_success() {
            return Err(wire::other(format!("{operation}: {}", String::from_utf8_lossy(&bytes))));
        }
        serde_json::from_slice(&bytes).map_err(wire::other)
    }
}

/// Whether DynamoDB may answer this read from a replica or an index.
fn may_be_stale(body: &Value) -> bool {
    let consistent = |of: &Value| of["ConsistentRead"] == true;
    match body["RequestItems"].as_object() {
        // A batch goes to one engine whole; what is fresher than it had to be is right too.
        Some(tables) => !tables.values().any(consistent),
        None => !consistent(body),
    }
}

/// Each item that a write touches: its table, and an object that holds its key attributes.
fn touched<'a>(operation: &str, body: &'a Value) -> Vec<(String, &'a Value)> {
    let table = |of: &Value| of["TableName"].as_str().unwrap_or_default().to_owned();
    match operation {
        "PutItem" => vec![(table(body), &body["Item"])],
        "UpdateItem" | "DeleteItem" => vec![(table(body), &body["Key"])],
        "TransactWriteItems" => body["TransactItems"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|action| {
                let put = action.get("Put").map(|put| (table(put), &put["Item"]));
                put.or_else(|| action.get("Update").or(action.get("Delete")).map(|change| (table(change), &change["Key"])))
            })
            .collect(),
        "BatchWriteItem" => body["RequestItems"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(table, writes)| writes.as_array().into_iter().flatten().map(move |write| (table, write)))
            .filter_map(|(table, write)| {
                let place = write.get("PutRequest").map(|put| &put["Item"]);
                let place = place.or_else(|| write.get("DeleteRequest").map(|delete| &delete["Key"]))?;
                Some((table.clone(), place))
            })
            .collect(),
        _ => Vec::new(),
    }
}
