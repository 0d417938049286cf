//! The service over real HTTP, in this process on a free port; as a process of its own where signals and restarts are the matter.

mod document;
mod input;
mod life;
mod once;
mod page;
mod race;

use std::io;
use std::sync::Arc;

use enrolment::service::{Patience, Service};
use fencepost::Store;
use reqwest::{Client, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A service that runs, and a client of it.
pub(crate) struct App {
    pub(crate) url: String,
    client: Client,
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<()>>,
}

impl App {
    pub(crate) async fn start() -> Self {
        Self::on(fencepost::open("memory:").await.expect("store"), Patience::default()).await
    }

    pub(crate) async fn on(store: Store, patience: Patience) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let (stop, stopped) = oneshot::channel();
        let service = Arc::new(Service::start(store, patience));
        let served = tokio::spawn(enrolment::serve(listener, service, async { drop(stopped.await) }));
        Self { url, client: client(), stop, served }
    }

    /// Asks it to end, and hands over how it ended.
    pub(crate) fn stop(self) -> JoinHandle<io::Result<()>> {
        let _ = self.stop.send(());
        self.served
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }
    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }
    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::PUT, path).json(&body)).await
    }
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn define(&self, course: &str, capacity: u32) {
        self.post("/courses", json!({ "id": course, "title": "Rust", "capacity": capacity })).await.expect(201);
    }
    pub(crate) async fn register(&self, student: &str) {
        self.post("/students", json!({ "id": student, "name": "Ada" })).await.expect(201);
    }
    pub(crate) async fn enrol(&self, course: &str, student: &str) -> Answer {
        self.post(&format!("/courses/{course}/students"), json!({ "student": student })).await
    }
}

/// A client with connections of its own; redirects are for the tests to see.
pub(crate) fn client() -> Client {
    Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().expect("client")
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.expect("a text");
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self { status, headers, text, body }
    }
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
    /// It is a problem of this status and code, said as JSON.
    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!((&self.body["status"], &self.body["code"]), (&json!(status), &json!(code)), "{self:?}");
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        self
    }
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
