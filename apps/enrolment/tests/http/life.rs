//! Starting and ending: what runs is finished, what was recorded stays, and a store without tables says what to do.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use enrolment::service::Patience;
use fencepost::testing::{Faults, Gate, Rule};
use fencepost::{Engine, Env, Store};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::{Answer, App, client};

#[tokio::test]
async fn a_request_under_way_is_finished_and_no_other_begun() {
    let faults = Faults::new(Engine::memory().expect("engine").http_client(), 1);
    let store = Store::builder("memory:").expect("url").http_client(faults.http_client()).open().await.expect("store");
    let app = App::on(store.clone(), Patience::default()).await;
    let gate = Gate::new();
    faults.script(Rule::on("TransactWriteItems").holding("course:rust").nth(1).pause_before(&gate));
    let url = app.url.clone();
    let body = json!({ "id": "rust", "title": "Rust", "capacity": 1 });
    let running = tokio::spawn(Answer::of(app.request(Method::POST, "/courses").json(&body)));
    gate.reached(1).await;
    let mut ended = app.stop();
    while client().get(format!("{url}/health")).send().await.is_ok() {
        tokio::task::yield_now().await;
    }
    let soon = tokio::time::timeout(Duration::from_millis(200), &mut ended).await;
    assert!(soon.is_err(), "it waits for the request: {soon:?}");
    gate.open();
    running.await.expect("joined").expect(201);
    ended.await.expect("joined").expect("ended well");
}

/// The service as a process.
struct Process {
    child: Child,
    url: String,
}

fn command(store: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enrolment"));
    command.env("FENCEPOST_STORE", store).env("ENROLMENT_ADDR", "127.0.0.1:0").env_remove("ENROLMENT_LOG");
    command.env("AWS_ACCESS_KEY_ID", "any").env("AWS_SECRET_ACCESS_KEY", "any").env("AWS_REGION", "us-east-1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Process {
    async fn start(store: &str) -> Self {
        let mut child = command(store).spawn().expect("spawned");
        let mut said = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let line = said.next_line().await.expect("a line").expect("a line before it ends");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("it said {line}")).to_owned();
        Self { child, url }
    }
    async fn call(&self, method: Method, path: &str, body: serde_json::Value) -> Answer {
        Answer::of(client().request(method, format!("{}{path}", self.url)).header("Idempotency-Key", "k1").json(&body)).await
    }
    async fn get(&self, path: &str) -> Answer {
        Answer::of(client().get(format!("{}{path}", self.url))).await
    }
    /// Tells it to end by this signal, and sees that it ends well.
    async fn end(mut self, signal: &str) {
        let id = self.child.id().expect("running").to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.expect("kill").success());
        let ended = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await.expect("in time").expect("status");
        assert_eq!(ended.code(), Some(0), "after {signal}");
    }
}

#[tokio::test]
async fn on_a_file_everything_is_there_after_a_restart_and_keys_are_remembered() {
    let folder = tempfile::tempdir().expect("folder");
    let store = format!("file:{}", Path::join(folder.path(), "enrolment.db").display());
    let (course, student) = (json!({ "id": "rust", "title": "Rust", "capacity": 2 }), json!({ "id": "s-1", "name": "Ada" }));
    let before = Process::start(&store).await;
    before.call(Method::POST, "/courses", course).await.expect(201);
    before.call(Method::POST, "/students", student).await.expect(201);
    let enrolled = before.call(Method::POST, "/courses/rust/students", json!({ "student": "s-1" })).await.expect(201);
    before.end("-TERM").await;

    let after = Process::start(&store).await;
    let again = after.call(Method::POST, "/courses/rust/students", json!({ "student": "s-1" })).await.expect(201);
    assert_eq!((&again.body, again.header("idempotency-replayed")), (&enrolled.body, Some("true")));
    let rust = json!({ "id": "rust", "title": "Rust", "capacity": 2, "taken": 1, "free": 1, "students": ["s-1"] });
    assert_eq!(after.get("/courses/rust").await.expect(200).body, rust);
    while after.get("/health").await.expect(200).body["lists"] != "following" {
        Env::system().sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(after.get("/courses").await.expect(200).body, json!({ "items": [rust], "next": null }));
    after.end("-INT").await;
}

#[tokio::test]
async fn elsewhere_tables_are_not_made_and_one_variable_moves_the_service() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let store = format!("http://{}/courses", listener.local_addr().expect("address"));
    let engine = Engine::memory().expect("engine");
    let served = engine.clone();
    let serving = tokio::spawn(async move { served.serve(listener, std::future::pending()).await });

    let mut refused = command(&store).spawn().expect("spawned");
    let mut said = String::new();
    refused.stderr.take().expect("stderr").read_to_string(&mut said).await.expect("text");
    assert_eq!(refused.wait().await.expect("status").code(), Some(1));
    assert!(said.contains(&format!("fencepost --store '{store}' init")), "{said}");

    // As `fencepost init` would.
    Store::builder("memory:?table=courses").expect("url").http_client(engine.http_client()).open().await.expect("tables");
    let process = Process::start(&store).await;
    process.call(Method::POST, "/courses", json!({ "id": "rust", "title": "Rust", "capacity": 2 })).await.expect(201);
    assert_eq!(process.get("/courses/rust").await.expect(200).body["free"], 2);
    process.end("-TERM").await;
    serving.abort();
}

#[tokio::test]
async fn a_store_that_cannot_be_meant_is_refused_at_the_start() {
    let said = command("nowhere").output().await.expect("output");
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("store URL is not acceptable"), "{said:?}");
}
