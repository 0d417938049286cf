//! A table in streams mode on a served engine, and the events that its stream makes: its records as they are, in the envelope of Lambda.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost::{Append, CellKey, CellKind, Delivery, Engine, Env, Event, From, Query, Step, Store, StreamName};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// In every body.
pub(crate) const SECRET: &str = "nobody-reads-this";

pub(crate) struct Table {
    layout: &'static str,
    /// The table whose stream rings.
    log: &'static str,
    engine: Engine,
    store: Option<Store>,
    endpoint: String,
    pub(crate) url: String,
}

impl Table {
    pub(crate) async fn served() -> Table {
        Self::without_tables().await.with_tables().await
    }

    pub(crate) async fn without_tables() -> Table {
        let engine = Engine::memory().expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let serving = engine.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        Table { layout: "feed=streams", log: "orders", engine, store: None, url: format!("{endpoint}/orders"), endpoint }
    }

    /// Tables of Equinox, with their index in several partitions.
    pub(crate) async fn equinox() -> Table {
        let table = Self::without_tables().await;
        let layout = "layout=equinox&partitions=2&epoch_bytes=600";
        Table { layout, url: format!("{}?{layout}", table.url), ..table }.with_tables().await
    }

    /// A door in front of the engine that lets nobody write as long as it is told so: what is throttled is not delivered. Its URL.
    pub(crate) async fn throttled(&self, throttled: Arc<AtomicBool>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let door = format!("http://{}", listener.local_addr().expect("an address"));
        let endpoint = self.endpoint.clone();
        let pass = move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
            let (endpoint, throttled) = (endpoint.clone(), throttled.clone());
            async move {
                let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default().to_owned();
                let writes = ["PutItem", "UpdateItem", "TransactWriteItems"].iter().any(|write| target.ends_with(write));
                if writes && throttled.load(Ordering::SeqCst) {
                    let kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
                    return (axum::http::StatusCode::BAD_REQUEST, json!({ "__type": kind, "message": "slow down" }).to_string());
                }
                let request = ["x-amz-target", "content-type", "authorization", "x-amz-date"].iter().fold(
                    reqwest::Client::new().post(&endpoint),
                    |request, name| match headers.get(*name).and_then(|value| value.to_str().ok()) {
                        Some(value) => request.header(*name, value),
                        None => request,
                    },
                );
                let answer = request.body(body).send().await.expect("an answer");
                let status = axum::http::StatusCode::from_u16(answer.status().as_u16()).expect("a status");
                (status, answer.text().await.expect("a body"))
            }
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(pass)).await });
        self.url.replace(&self.endpoint, &door)
    }

    /// Sekiban's tables, with an index of ours.
    pub(crate) async fn sekiban() -> Table {
        let table = Self::without_tables().await;
        let layout = "layout=sekiban&feed=streams";
        Table { layout, log: "ordersEvents", url: format!("{}?{layout}", table.url), ..table }.with_tables().await
    }

    /// An event of this stream.
    pub(crate) async fn append_to(&self, stream: &str) {
        let event = Event::new("OrderPlaced", json!({ "secret": SECRET }).to_string()).expect("an event");
        let stream = StreamName::new(stream).expect("a name");
        self.store().streams().append(&stream, Step::new([event])).await.expect("appends");
    }

    /// Every record, as the stream has it.
    pub(crate) async fn whole_event(&self) -> Value {
        envelope(self.all_records().await)
    }

    /// How many events the feed has, each once and in its stream's order.
    pub(crate) async fn fed(&self) -> usize {
        let mut feed = self.store().feed().expect("a feed").subscribe(From::Start, Query::all());
        let mut ends = std::collections::BTreeMap::<String, u64>::new();
        while let Some(Ok(Delivery::Event { event, .. })) = feed.next().await {
            let end = ends.entry(event.tags[0].to_string()).or_default();
            *end += 1;
            assert_eq!(event.version, Some(*end));
        }
        ends.values().map(|end| usize::try_from(*end).expect("small")).sum()
    }

    pub(crate) async fn with_tables(self) -> Table {
        let builder =
            Store::builder(&format!("memory:?table=orders&{}", self.layout)).expect("a good URL").http_client(self.engine.http_client());
        Table { store: Some(builder.open().await.expect("opens")), ..self }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("its tables are there")
    }

    /// A commit on two tags.
    pub(crate) async fn append(&self, n: usize) {
        let body = json!({ "n": n, "secret": SECRET }).to_string();
        let event = Event::new("OrderPlaced", body).and_then(|e| e.tag(format!("order:{n}"))).and_then(|e| e.tag("all")).expect("an event");
        self.store().log().expect("a log").append(Append::new([event])).await.expect("appends");
    }

    /// How many commits are in the index, each once, in order, and none missing of those before.
    pub(crate) async fn indexed(&self) -> u64 {
        let verified = self.store().index().expect("an index").verify(&|_| ()).await.expect("verifies");
        assert_eq!(verified.findings, [], "{verified:?}");
        verified.indexed
    }

    /// Waits until somebody holds the index's lease.
    pub(crate) async fn held(&self) {
        let (cells, key) = (self.store().cells(), CellKey::new(CellKind::Lease, "fencepost.index", 0).expect("a key"));
        for _ in 0..20_000 {
            let cell = cells.load(&key).await.expect("loads");
            let lease = cell.map(|cell| serde_json::from_slice::<Value>(&cell.body).expect("JSON"));
            if lease.is_some_and(|lease| lease["holder"].is_string()) {
                return;
            }
            Env::system().sleep(Duration::from_micros(500)).await;
        }
        panic!("nobody took the lease");
    }

    /// What Lambda would hand over: every first record of a home slot, as the stream has it.
    pub(crate) async fn event(&self) -> Value {
        let records = self.records().await;
        let homes = records
            .into_iter()
            .filter(|record| record["dynamodb"]["Keys"]["p"]["S"].as_str().is_some_and(|p| p.starts_with("t/main/order:")));
        envelope(homes.collect())
    }

    /// The last record alone.
    pub(crate) async fn newest(&self) -> Value {
        envelope(self.records().await.pop().into_iter().collect())
    }

    async fn records(&self) -> Vec<Value> {
        // The filter of the event source.
        let mut records = self.all_records().await;
        records.retain(|record| record["eventName"] == "INSERT");
        records
    }

    async fn all_records(&self) -> Vec<Value> {
        let described = self.call("DynamoDB_20120810.DescribeTable", json!({ "TableName": self.log })).await;
        let arn = &described["Table"]["LatestStreamArn"];
        let described = self.call("DynamoDBStreams_20120810.DescribeStream", json!({ "StreamArn": arn })).await;
        let mut records = Vec::new();
        for shard in described["StreamDescription"]["Shards"].as_array().expect("shards") {
            let start = json!({ "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON" });
            let cursor = self.call("DynamoDBStreams_20120810.GetShardIterator", start).await;
            let mut page = self.call("DynamoDBStreams_20120810.GetRecords", json!({ "ShardIterator": cursor["ShardIterator"] })).await;
            let found = page["Records"].as_array_mut().expect("records");
            for record in found.iter_mut() {
                record["eventSourceARN"] = arn.clone();
            }
            records.append(found);
        }
        records
    }

    async fn call(&self, target: &str, body: Value) -> Value {
        let request = reqwest::Client::new().post(&self.endpoint).header("X-Amz-Target", target);
        let request = request.header("Content-Type", "application/x-amz-json-1.0").body(body.to_string());
        let request = request.header(
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
        );
        let text = request.header("X-Amz-Date", "20260101T000000Z").send().await.expect("an answer").text().await.expect("a body");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{target}: {text}"))
    }
}

fn envelope(records: Vec<Value>) -> Value {
    json!({ "Records": records })
}
