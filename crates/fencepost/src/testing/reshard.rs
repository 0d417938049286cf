//! A connector that scatters a stream's records over shards of its own: delayed, swapped, read twice, split and closed, expired and trimmed.
//! The embedded engine has one shard, and DynamoDB has many.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::wire::{self, Answer};
use crate::Env;

/// Stands between a client and an engine with one shard. Clones share their shards. The same seed and the same requests scatter alike.
#[derive(Clone, Debug)]
pub struct Reshard {
    inner: SharedHttpClient,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where the engine's own shard is read on.
    real: Option<String>,
    /// Read from the engine, and in no shard yet.
    underway: Vec<Value>,
    /// Records of items with this hash key are on their way for as long as it is said, and those that are.
    held: Option<String>,
    kept: Vec<Value>,
    shards: BTreeMap<String, Shelf>,
    /// The next sequence number: its digits grow, as numbers do and texts do not.
    next: u64,
    calm: bool,
}

#[derive(Debug, Default)]
struct Shelf {
    parent: Option<String>,
    records: Vec<(u64, Value)>,
    /// So many of the first are gone.
    trimmed: usize,
    /// So many empty pages come before the first record, whenever it is opened.
    empty: usize,
    closed: bool,
}

impl Reshard {
    /// Over three shards at first.
    pub fn new(inner: SharedHttpClient, seed: u64) -> Self {
        let shards = (0..3).map(|n| (name(n), Shelf::default())).collect();
        let state = State { real: None, underway: Vec::new(), held: None, kept: Vec::new(), shards, next: 95, calm: false };
        Self { inner, shared: Arc::new(Shared { env: Env::seeded(seed), state: Mutex::new(state) }) }
    }

    /// For an SDK client's `http_client`.
    pub fn http_client(&self) -> SharedHttpClient {
        let Self { inner, shared } = self.clone();
        http_client_fn(move |settings, components| {
            SharedHttpConnector::new(Connector { inner: inner.http_connector(settings, components), shared: shared.clone() })
        })
    }

    /// From now on nothing is delayed, expired or split.
    pub async fn calm(&self) {
        self.shared.state.lock().await.calm = true;
    }

    /// Forgets every record that is in a shard; closed shards are gone.
    pub async fn trim(&self) {
        let mut state = self.shared.state.lock().await;
        state.shards.retain(|_, shelf| !shelf.closed);
        for shelf in state.shards.values_mut() {
            shelf.trimmed = shelf.records.len();
        }
    }

    /// From now on records of items with this hash key (attribute `p`) come into no shard, until none is held.
    pub async fn hold(&self, key: Option<&str>) {
        let mut state = self.shared.state.lock().await;
        state.held = key.map(str::to_owned);
        let kept = std::mem::take(&mut state.kept);
        state.underway.extend(kept);
    }

    /// From now on whoever opens this shard (0, 1 or 2) gets so many empty pages first: a page without records does not say that there are none.
    pub async fn empty_pages(&self, shard: usize, pages: usize) {
        if let Some(shelf) = self.shared.state.lock().await.shards.get_mut(&name(shard)) {
            shelf.empty = pages;
        }
    }

    /// How many records each of the first shards (0, 1 and 2) has had.
    pub async fn records(&self) -> [usize; 3] {
        let state = self.shared.state.lock().await;
        std::array::from_fn(|n| state.shards.get(&name(n)).map_or(0, |shelf| shelf.records.len()))
    }

    /// How many shards there have been.
    pub async fn shards(&self) -> usize {
        self.shared.state.lock().await.shards.len()
    }
}

fn name(n: usize) -> String {
    format!("shardId-{n:020}-reshard")
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    shared: Arc<Shared>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, shared) = (self.inner.clone(), self.shared.clone());
        HttpConnectorFuture::new(async move {
            match wire::operation(&request).as_str() {
                "DescribeStream" => shared.describe(&inner, &request).await,
                "GetShardIterator" => shared.open(&request).await,
                "GetRecords" => shared.records(&inner, &request).await,
                _ => inner.call(request).await,
            }
        })
    }
}

impl Shared {
    fn chance(&self, of: u64) -> bool {
        self.env.below(of) == 0
    }

    fn pick(&self, of: usize) -> usize {
        usize::try_from(self.env.below(of as u64)).unwrap_or(0)
    }

    async fn ask(inner: &SharedHttpConnector, like: &HttpRequest, operation: &str, body: &Value) -> Result<Value, Answer> {
        let answer = async {
            let request = wire::request(like, operation, body)?;
            wire::split(inner.call(request).await?).await
        };
        let (_, body) = answer.await.map_err(Err)?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Two shards a page, so that a client must turn it.
    async fn describe(&self, inner: &SharedHttpConnector, request: &HttpRequest) -> Answer {
        let asked = wire::body(request);
        let mut state = self.state.lock().await;
        if state.real.is_none() {
            let real = match Self::ask(inner, request, "DescribeStream", &json!({ "StreamArn": asked["StreamArn"] })).await {
                Ok(real) => real,
                Err(answer) => return answer,
            };
            let shard = &real["StreamDescription"]["Shards"][0]["ShardId"];
            let from = json!({ "StreamArn": asked["StreamArn"], "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON" });
            match Self::ask(inner, request, "GetShardIterator", &from).await {
                Ok(opened) => state.real = opened["ShardIterator"].as_str().map(str::to_owned),
                Err(answer) => return answer,
            }
        }
        let after = asked["ExclusiveStartShardId"].as_str().unwrap_or_default().to_owned();
        let rest: Vec<_> = state.shards.iter().filter(|(id, _)| **id > after).collect();
        let page = rest.iter().take(2).map(|(id, shelf)| match &shelf.parent {
            Some(parent) => json!({ "ShardId": id, "ParentShardId": parent }),
            None => json!({ "ShardId": id }),
        });
        let page: Vec<Value> = page.collect();
        let mut described = json!({ "StreamArn": asked["StreamArn"], "Shards": page });
        if rest.len() > 2 {
            described["LastEvaluatedShardId"] = rest[1].0.as_str().into();
        }
        wire::respond(200, &json!({ "StreamDescription": described }))
    }

    async fn open(&self, request: &HttpRequest) -> Answer {
        let asked = wire::body(request);
        let state = self.state.lock().await;
        let shard = asked["ShardId"].as_str().unwrap_or_default();
        let Some(shelf) = state.shards.get(shard) else { return wire::error(400, "ResourceNotFoundException", "no such shard") };
        let named = asked["SequenceNumber"].as_str().and_then(|number| number.parse::<u64>().ok());
        let place = |named| shelf.records.partition_point(|(sequence, _)| *sequence < named);
        let behind = usize::from(asked["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER");
        let at = named.map_or(shelf.trimmed, |named| place(named) + behind);
        // A record that is gone itself cannot be asked for or behind, whether or not any came after it.
        if named.is_some_and(|named| place(named) < shelf.trimmed) {
            return wire::error(400, "TrimmedDataAccessException", "what is asked for is no more");
        }
        wire::respond(200, &json!({ "ShardIterator": format!("{shard}/{at}/{}", shelf.empty) }))
    }

    async fn records(&self, inner: &SharedHttpConnector, request: &HttpRequest) -> Answer {
        let asked = wire::body(request);
        let mut state = self.state.lock().await;
        if let Err(answer) = self.pull(&mut state, inner, request).await {
            return answer;
        }
        self.arrive(&mut state);
        let wild = !state.calm;
        if wild && self.chance(12) {
            return wire::error(400, "ExpiredIteratorException", "too old");
        }
        let iterator = asked["ShardIterator"].as_str().unwrap_or_default();
        let mut parts = iterator.split('/');
        let shard = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok()).unwrap_or(0);
        let (at, empty) = (number(), number());
        let Some(shelf) = state.shards.get(shard) else { return wire::error(400, "ResourceNotFoundException", "no such shard") };
        if at < shelf.trimmed {
            return wire::error(400, "TrimmedDataAccessException", "what is asked for is no more");
        }
        if empty > 0 {
            return wire::respond(200, &json!({ "Records": [], "NextShardIterator": format!("{shard}/{at}/{}", empty - 1) }));
        }
        // Part of a page, perhaps nothing of it; and perhaps the end of the last one again.
        let to = if wild { at + self.pick(shelf.records.len() - at + 1) } else { shelf.records.len() };
        let from = if wild && self.chance(6) { at.saturating_sub(2).max(shelf.trimmed) } else { at };
        let page: Vec<&Value> = shelf.records[from..to].iter().map(|(_, record)| record).collect();
        let mut answer = json!({ "Records": page });
        if !(shelf.closed && to == shelf.records.len()) {
            answer["NextShardIterator"] = format!("{shard}/{to}/0").into();
        }
        wire::respond(200, &answer)
    }

    /// What the engine has recorded since.
    async fn pull(&self, state: &mut State, inner: &SharedHttpConnector, request: &HttpRequest) -> Result<(), Answer> {
        while let Some(iterator) = state.real.clone() {
            let page = Self::ask(inner, request, "GetRecords", &json!({ "ShardIterator": iterator })).await?;
            state.real = page["NextShardIterator"].as_str().map(str::to_owned).or(state.real.take());
            let records = page["Records"].as_array().cloned().unwrap_or_default();
            if records.is_empty() {
                break;
            }
            state.underway.extend(records);
        }
        Ok(())
    }

    /// Some of what is under way comes into a shard, whichever is open; now and then one closes, and others follow it.
    fn arrive(&self, state: &mut State) {
        if let Some(key) = &state.held {
            let is_held = |record: &Value| record["dynamodb"]["Keys"]["p"]["S"].as_str() == Some(key);
            let (held, others) = std::mem::take(&mut state.underway).into_iter().partition(is_held);
            state.underway = others;
            state.kept.extend::<Vec<Value>>(held);
        }
        let all = state.underway.len();
        for _ in 0..all {
            if !state.calm && !self.chance(3) {
                continue;
            }
            let mut record = state.underway.remove(if state.calm { 0 } else { self.pick(state.underway.len().min(4)) });
            let open: Vec<String> = state.shards.iter().filter(|(_, shelf)| !shelf.closed).map(|(id, _)| id.clone()).collect();
            let shard = &open[self.pick(open.len())];
            record["dynamodb"]["SequenceNumber"] = state.next.to_string().into();
            if let Some(shelf) = state.shards.get_mut(shard) {
                shelf.records.push((state.next, record));
            }
            state.next += 1;
            if !state.calm && self.chance(40) && state.shards.len() < 12 {
                let shard = shard.clone();
                for n in 0..=self.pick(2) {
                    let child = Shelf { parent: Some(shard.clone()), ..Shelf::default() };
                    state.shards.insert(name(100 + usize::try_from(state.next).unwrap_or(0) * 2 + n), child);
                }
                if let Some(shelf) = state.shards.get_mut(&shard) {
                    shelf.closed = true;
                }
            }
        }
    }
}
