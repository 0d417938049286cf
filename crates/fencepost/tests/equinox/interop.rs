//! equinox-js 1.2.0 and this store on the same tables, either way and at once. Run by `interop/equinox/run`, which names the driver of
//! equinox-js by `FENCEPOST_EQUINOX_JS`; passed over where that is not set.

mod feed;

use std::process::Stdio;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use fencepost::{Cache, Engine, Env, Event, Expect, LoadOptions, Step, Store, Units};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::access::{Sum, add, category};
use super::name;

/// A place where both are, and equinox-js.
struct Both {
    endpoint: String,
    table: String,
    engine: Option<Engine>,
    js: Js,
}

struct Js {
    _process: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Js {
    fn start(driver: &str, endpoint: &str) -> Js {
        let mut command = Command::new("node");
        command
            .arg(driver)
            .env("ENDPOINT", endpoint)
            .env("NODE_NO_WARNINGS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().expect("node starts");
        let (to, from) = (process.stdin.take().expect("stdin"), process.stdout.take().expect("stdout"));
        Js { _process: process, to, from: BufReader::new(from).lines() }
    }

    async fn ask(&mut self, command: &str, args: Value) -> Result<Value, String> {
        let mut line = args;
        line["command"] = command.into();
        self.to.write_all(format!("{line}\n").as_bytes()).await.expect("it listens");
        let answer = self.from.next_line().await.expect("it answers").expect("it lives");
        let mut answer: Value = serde_json::from_str(&answer).expect("JSON");
        match answer["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["message"].as_str().unwrap_or_default())),
            None => Ok(answer["value"].take()),
        }
    }

    async fn units(&mut self) -> Units {
        let units = self.ask("units", json!({})).await.expect("units");
        let of = |name: &str| units[name].as_f64().expect("a number");
        Units { read: of("read"), write: of("write"), requests: units["requests"].as_u64().expect("a number") }
    }
}

impl Both {
    /// None where equinox-js is not here.
    async fn fresh() -> Option<Both> {
        let Ok(driver) = std::env::var("FENCEPOST_EQUINOX_JS") else {
            println!("passed over: interop/equinox/run names the driver of equinox-js");
            return None;
        };
        let table = format!("orders-{}", Env::system().new_id().simple());
        let (endpoint, engine) = match std::env::var("FENCEPOST_TEST_ENDPOINT") {
            Ok(endpoint) => (endpoint.trim_end_matches('/').to_owned(), None),
            Err(_) => {
                let engine = Engine::memory().expect("an engine");
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
                let served = engine.clone();
                tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
                (endpoint, Some(engine))
            }
        };
        let js = Js::start(&driver, &endpoint);
        Some(Both { endpoint, table, engine, js })
    }

    async fn store(&self, parameters: &str) -> Store {
        let table = &self.table;
        let builder = match &self.engine {
            Some(engine) => {
                Store::builder(&format!("memory:?layout=equinox&table={table}{parameters}")).expect("url").http_client(engine.http_client())
            }
            None => Store::builder(&format!("{}/{table}?layout=equinox{parameters}", self.endpoint)).expect("url").create(true),
        };
        builder.open().await.expect("opens")
    }

    fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("any", "any", None))
            .endpoint_url(&self.endpoint);
        Client::from_conf(config.build())
    }

    /// To equinox-js, about this table.
    async fn ask(&mut self, command: &str, mut args: Value) -> Result<Value, String> {
        args["table"] = self.table.as_str().into();
        self.js.ask(command, args).await
    }
    async fn state(&mut self, strategy: &str, id: &str) -> Sum {
        let state = self.ask("state", json!({ "strategy": strategy, "id": id, "load": "RequireLeader" })).await.expect("it loads");
        serde_json::from_value(state).expect("a sum")
    }
}

const STRATEGIES: [&str; 6] = ["unoptimised", "latest", "snapshot", "several", "rolling", "custom"];

/// One writes, the other reads and goes on, and so on: within a Tip and over calves, with bodies as they are and packed, by every strategy.
#[tokio::test]
async fn either_reads_and_appends_to_what_the_other_wrote() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("&tip_events=2").await;
    let long = "again and again ".repeat(20);
    for strategy in STRATEGIES {
        for (compress, max_events) in [(false, 2), (true, 2), (true, 100)] {
            let id = format!("{strategy}_{compress}_{max_events}");
            let stream = format!("Counter-{id}");
            let js = |by: u64| json!({ "strategy": strategy, "id": id, "by": by, "compress": compress, "pad": long, "tip": { "maxEvents": max_events } });
            let ours = category(store.streams(), strategy);
            let mut sum = Sum::default();
            let mut counts = |by: u64| {
                sum = if strategy == "latest" { Sum { sum: by, times: 1 } } else { Sum { sum: sum.sum + by, times: sum.times + 1 } };
                sum.clone()
            };
            for by in [5, 1, 7] {
                both.ask("add", js(by)).await.expect("equinox-js adds");
                let expected = counts(by);
                assert_eq!(ours.state(&name(&stream)).await.expect("ours loads"), expected, "{id}");
            }
            for by in [2, 1, 11] {
                let _ = add(&ours, &stream, by).await;
                let expected = counts(by);
                assert_eq!(both.state(strategy, &id).await, expected, "{id}");
            }
            for by in [3, 1] {
                both.ask("add", js(by)).await.expect("equinox-js adds again");
                counts(by);
                let _ = add(&ours, &stream, by).await;
                let expected = counts(by);
                assert_eq!(both.state(strategy, &id).await, expected, "{id}");
            }
            let loaded = store.streams().load(&name(&stream), LoadOptions::default()).await.expect("ours loads");
            let read = both.ask("read", json!({ "id": id })).await.expect("equinox-js reads");
            let told = |value: &Value| (value["index"].as_u64().expect("an index"), value["type"].as_str().expect("a type").to_owned());
            let read: Vec<_> = read.as_array().expect("events").iter().map(told).collect();
            let own: Vec<_> =
                loaded.events.iter().map(|event| (event.version.expect("a version") - 1, event.event_type.to_string())).collect();
            assert_eq!(read, own, "{id}");
        }
    }
    assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, []);
}

/// Bodies, metadata and snapshots as ours writes them, of every size and kind, come out of equinox-js.
#[tokio::test]
async fn what_ours_packs_equinox_js_unpacks() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("").await;
    for length in [0, 1, 30, 60, 300, 3_000, 30_000] {
        let id = format!("packed_{length}");
        let body = json!({ "by": 3, "pad": "ab".repeat(length) }).to_string();
        let step = Step::new([Event::new("Added", body.clone()).expect("an event"), Event::new("Added", body).expect("an event")]);
        store.streams().append(&name(&format!("Counter-{id}")), step).await.expect("appends");
        assert_eq!(both.state("unoptimised", &id).await, Sum { sum: 6, times: 2 }, "{length}");
        both.ask("add", json!({ "strategy": "unoptimised", "id": id, "by": 1, "tip": { "maxEvents": 1 } })).await.expect("it calves them");
        let counter = category(store.streams(), "unoptimised");
        assert_eq!(counter.state(&name(&format!("Counter-{id}"))).await.expect("loads"), Sum { sum: 7, times: 3 }, "{length}");
    }
}

/// Both at once on one stream: nothing is lost and nothing is doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_append_to_one_stream_at_once() {
    let Some(mut both) = Both::fresh().await else { return };
    // It has started by then.
    both.js.units().await;
    for strategy in ["unoptimised", "snapshot", "rolling"] {
        let id = format!("storm_{strategy}");
        let mut writers = Vec::new();
        for _ in 0..3 {
            let (store, stream) = (both.store("&tip_events=3").await, format!("Counter-{id}"));
            writers.push(tokio::spawn(async move {
                let counter = category(store.streams(), strategy).cache(&Cache::new(10));
                for _ in 0..16 {
                    let _ = add(&counter, &stream, 1).await;
                }
            }));
        }
        let args = json!({ "strategy": strategy, "id": id, "by": 1, "count": 40, "tip": { "maxEvents": 3 } });
        let escaped = both.ask("add_many", args).await.expect("equinox-js adds");
        for writer in writers {
            writer.await.expect("no panic");
        }
        println!("{strategy}: conflicts that equinox-js let escape: {escaped}");
        let store = both.store("").await;
        let sum = category(store.streams(), strategy).state(&name(&format!("Counter-{id}"))).await.expect("loads");
        assert_eq!(sum, Sum { sum: 88, times: 88 }, "{strategy}");
        assert_eq!(both.state(strategy, &id).await, sum, "{strategy}");
        assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, [], "{strategy}");
    }
}

/// What equinox-js 1.2.0 does beside us is its own: expected here, so that a change of it is noticed, and not done by ours.
#[tokio::test]
async fn what_equinox_js_is_known_to_do() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("").await;
    let streams = store.streams();
    let one = |strategy: &str, id: &str, by: u64| json!({ "strategy": strategy, "id": id, "by": by });

    // A conflict while calving escapes as TransactionCanceledException.
    let mut stale = one("unoptimised", "one", 5);
    (stale["cache"], stale["tip"]) = ("one".into(), json!({ "maxEvents": 1 }));
    both.ask("add", stale.clone()).await.expect("adds");
    let counter = category(streams.clone(), "unoptimised");
    let _ = add(&counter, "Counter-one", 6).await;
    stale["load"] = "AnyCachedValue".into();
    let escaped = both.ask("add", stale).await.expect_err("it does not settle that");
    assert!(escaped.starts_with("TransactionCanceledException"), "{escaped}");

    // A reload of a cached state under Unoptimized folds the Tip twice.
    let mut cached = one("unoptimised", "two", 5);
    cached["cache"] = "two".into();
    both.ask("add", cached.clone()).await.expect("adds");
    let _ = add(&counter, "Counter-two", 6).await;
    let wrong = both.ask("state", cached).await.expect("loads");
    assert_eq!(wrong, json!({ "sum": 16, "times": 3 }), "5, and 5 and 6 again");
    assert_eq!(counter.state(&name("Counter-two")).await.expect("loads"), Sum { sum: 11, times: 2 });

    // Items as F# leaves them, without empty lists, it cannot read; what ours has appended to, it can.
    let text = |text: &str| AttributeValue::S(text.into());
    let number = |number: u64| AttributeValue::N(number.to_string());
    let body = AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(&br#"{"by":4}"#[..]));
    let event = AttributeValue::M([("t".to_owned(), text("2026-01-02T03:04:05.6789012+00:00")), ("d".to_owned(), body)].into());
    let put = both.client().put_item().table_name(&both.table).item("p", text("Counter-three")).item("i", number(2_147_483_647));
    let put = put.item("n", number(1)).item("a", number(1)).item("b", number(0)).item("etag", text("39649868eb5b43889285b7b132b32236"));
    let put = put.item("e", AttributeValue::L(vec![event])).item("c", AttributeValue::L(vec![text("Added")]));
    put.send().await.expect("puts");
    let unread = both.ask("state", one("unoptimised", "three", 0)).await.expect_err("it cannot");
    assert!(unread.starts_with("TypeError: Cannot read properties of undefined"), "{unread}");
    let _ = add(&counter, "Counter-three", 2).await;
    assert_eq!(both.state("unoptimised", "three").await, Sum { sum: 6, times: 2 });

    // A stream without events cannot move from RollingState to Snapshot; ours moves it.
    both.ask("add", one("rolling", "four", 5)).await.expect("adds");
    let stuck = both.ask("add", one("snapshot", "four", 5)).await.expect_err("it puts where a Tip is");
    assert!(stuck.contains("Concurrency violation"), "{stuck}");
    let _ = add(&category(streams, "snapshot"), "Counter-four", 5).await;
    both.ask("add", one("snapshot", "four", 5)).await.expect("now it can");
    assert_eq!(both.state("snapshot", "four").await, Sum { sum: 15, times: 3 });
    // The fifth, that the AppendsIndex snapshot loses its numeric keys, is in the feed's tests.
}

/// The same history by both, at every size of the Tip: ours never takes more units. Bodies that nothing shortens, and JSON as it is and packed.
#[tokio::test]
async fn never_more_units_than_equinox_js() {
    let Some(mut both) = Both::fresh().await else { return };
    if both.engine.is_none() {
        println!("passed over: units are those of the embedded engine");
        return;
    }
    both.store("").await;
    let env = Env::seeded(7);
    let noise: Vec<Vec<u8>> = (0..200).map(|_| (0..502).map(|_| env.below(256) as u8).collect()).collect();
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let raw: Vec<String> = noise.iter().map(|bytes| base64(bytes)).collect();
    let text: Vec<String> = noise.iter().map(|bytes| base64(&bytes[..360])).collect();
    println!("| Tip | bodies | equinox-js: units, per event | ours: units, per event |");
    for kib in [4_u64, 8, 16, 32] {
        let tip = json!({ "maxBytes": kib * 1024, "maxEventBytes": kib * 1024 });
        for (kind, pads) in [("raw", &raw), ("plain", &text), ("packed", &text)] {
            let id = format!("units_{kind}_{kib}");
            let args = json!({
                "strategy": "unoptimised", "id": id, "pads": pads, "tip": tip, "cache": id, "load": "AnyCachedValue",
                "raw": kind == "raw", "compress": kind == "packed",
            });
            both.js.units().await;
            both.ask("add_bodies", args).await.expect("equinox-js adds");
            let theirs = both.js.units().await;
            let store = both.store(&format!("&tip_bytes={}", kib * 1024)).await;
            let (streams, stream) = (store.streams(), name(&format!("Counter-fence_{kind}_{kib}")));
            let mut ours = Units::default();
            for (n, (noise, text)) in (0..).zip(noise.iter().zip(&text)) {
                let body = if kind == "raw" { noise.clone() } else { json!({ "by": 1, "pad": text }).to_string().into_bytes() };
                let step = Step::new([Event::new("Added", body).expect("an event")]).expect(Expect::Version(n));
                ours += streams.append(&stream, step).await.expect("appends").units;
            }
            let told = |units: &Units| format!("{} write, {} read, {:.2}", units.write, units.read, units.write / 200.0);
            println!("| {kib} KiB | {kind} | {} | {} |", told(&theirs), told(&ours));
            assert!(
                ours.write <= theirs.write && ours.read <= theirs.read && ours.requests <= theirs.requests,
                "{id}: {ours} against {theirs}"
            );
        }
    }
    // With a snapshot at every append; and a load of all of it, as fresh as theirs.
    for strategy in ["snapshot", "rolling", "custom", "latest", "several"] {
        let id = format!("units_{strategy}");
        let adding = json!({ "strategy": strategy, "id": id, "by": 1, "count": 60, "tip": { "maxEvents": 10 } });
        both.js.units().await;
        both.ask("add_many", adding).await.expect("equinox-js adds");
        let theirs = both.js.units().await;
        let store = both.store("&tip_events=10").await;
        let counter = category(store.streams(), strategy).eventual();
        let mut ours = Units::default();
        for _ in 0..60 {
            ours += add(&counter, &format!("Counter-fence_{strategy}"), 1).await;
        }
        println!("{strategy}: {theirs} against our {ours}");
        assert!(
            ours.write <= theirs.write && ours.read <= theirs.read && ours.requests <= theirs.requests,
            "{strategy}: {ours} against {theirs}"
        );
    }
    let theirs = {
        both.js.units().await;
        both.ask("state", json!({ "strategy": "unoptimised", "id": "units_raw_4", "raw": true })).await.expect("loads");
        both.js.units().await
    };
    let ours =
        both.store("").await.streams().load(&name("Counter-fence_raw_4"), LoadOptions::default().eventual()).await.expect("loads").units;
    assert!(ours.read <= theirs.read, "a whole load: {ours} against {theirs}");
}
