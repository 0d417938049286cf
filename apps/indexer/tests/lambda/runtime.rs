//! Lambda's runtime API on the loopback address, and the function's process under it.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use fencepost::Env;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

/// What the function said.
#[derive(Debug, PartialEq)]
pub(crate) enum Answered {
    Response(Value),
    Error(Value),
}

struct Invocation {
    id: String,
    /// For it from the moment when it is handed over.
    time: Duration,
    event: String,
    answer: oneshot::Sender<Answered>,
}

struct Api {
    queue: AsyncMutex<mpsc::UnboundedReceiver<Invocation>>,
    running: Mutex<HashMap<String, oneshot::Sender<Answered>>>,
}

/// One instance of the function, and its own end of the runtime API.
pub(crate) struct Instance {
    child: Child,
    queue: mpsc::UnboundedSender<Invocation>,
    output: Arc<Mutex<Vec<Value>>>,
}

impl Instance {
    pub(crate) async fn start(store: &str) -> Instance {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (queue, receiver) = mpsc::unbounded_channel();
        let api = Arc::new(Api { queue: AsyncMutex::new(receiver), running: Mutex::default() });
        let runtime = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .with_state(api);
        tokio::spawn(async move { axum::serve(listener, runtime).await });

        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-indexer"));
        command.env_clear().envs([
            ("AWS_LAMBDA_RUNTIME_API", address.to_string().as_str()),
            ("AWS_LAMBDA_FUNCTION_NAME", "indexer"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("AWS_ACCESS_KEY_ID", "any"),
            ("AWS_SECRET_ACCESS_KEY", "any"),
            ("AWS_REGION", "us-east-1"),
            ("FENCEPOST_LEASE", "1"),
        ]);
        if !store.is_empty() {
            command.env("FENCEPOST_URL", store);
        }
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("the function starts");
        let output = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let kept = output.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                kept.lock().expect("whole").push(line);
            }
        });
        Instance { child, queue, output }
    }

    /// An invocation, to be run after those before it; what it is answered comes later.
    pub(crate) fn queue(&self, id: &str, time: Duration, event: &Value) -> oneshot::Receiver<Answered> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Invocation { id: id.into(), time, event: event.to_string(), answer }).expect("it runs");
        answered
    }

    pub(crate) async fn invoke(&self, id: &str, time: Duration, event: &Value) -> Answered {
        let answered = tokio::time::timeout(Duration::from_secs(60), self.queue(id, time, event)).await;
        answered.expect("in a minute").expect("an answer")
    }

    /// Every line that it has printed: all of them are JSON.
    pub(crate) fn output(&self) -> Vec<Value> {
        self.output.lock().expect("whole").clone()
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs");
        assert!(sent.success(), "{name} to {pid}");
    }
}

async fn next(State(api): State<Arc<Api>>) -> impl IntoResponse {
    let Invocation { id, time, event, answer } = match api.queue.lock().await.recv().await {
        Some(invocation) => invocation,
        None => std::future::pending().await,
    };
    let deadline =
        u64::try_from(Env::system().now().as_millisecond()).expect("after 1970") + u64::try_from(time.as_millis()).expect("short");
    let header = |text: &str| HeaderValue::from_str(text).expect("a header");
    let mut headers = HeaderMap::new();
    headers.insert("Lambda-Runtime-Aws-Request-Id", header(&id));
    headers.insert("Lambda-Runtime-Deadline-Ms", header(&deadline.to_string()));
    headers.insert("Lambda-Runtime-Invoked-Function-Arn", header("arn:aws:lambda:us-east-1:123456789012:function:indexer"));
    headers.insert("Content-Type", header("application/json"));
    api.running.lock().expect("whole").insert(id, answer);
    (headers, event)
}

fn answered(api: &Api, id: &str, answer: Answered) -> StatusCode {
    if let Some(waiting) = api.running.lock().expect("whole").remove(id) {
        // Whoever asked may have gone.
        let _ = waiting.send(answer);
    }
    StatusCode::ACCEPTED
}

async fn response(State(api): State<Arc<Api>>, Path(id): Path<String>, body: String) -> StatusCode {
    answered(&api, &id, Answered::Response(serde_json::from_str(&body).expect("JSON")))
}

async fn error(State(api): State<Arc<Api>>, Path(id): Path<String>, body: String) -> StatusCode {
    answered(&api, &id, Answered::Error(serde_json::from_str(&body).expect("JSON")))
}
