//! Commands under a key: carried out once, whoever repeats them and however often.

use enrolment::service::Patience;
use fencepost::EventLogExt;
use fencepost::{Query, ReadOptions};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{Answer, App, client};

impl App {
    async fn post_once(&self, key: &str, path: &str, body: Value) -> Answer {
        Answer::of(client().request(Method::POST, format!("{}{path}", self.url)).header("Idempotency-Key", key).json(&body)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_with_one_key_get_one_enrolment_and_the_same_outcome() {
    let app = App::start().await;
    app.define("rust", 5).await;
    app.register("s-1").await;
    let enrol = || app.post_once("k1", "/courses/rust/students", json!({ "student": "s-1" }));
    let (one, two) = tokio::join!(enrol(), enrol());
    let (one, two) = (one.expect(201), two.expect(201));
    assert_eq!(one.body, two.body);
    assert_eq!(one.body["recorded"], json!(true));
    let later = enrol().await.expect(201);
    assert_eq!((&later.body, later.header("idempotency-replayed")), (&one.body, Some("true")));
    assert_eq!(app.get("/courses/rust").await.body["taken"], json!(1));
    // Without the key it is another command, and the rules see the first.
    app.enrol("rust", "s-1").await.expect_problem(409, "already-enrolled");
}

#[tokio::test]
async fn a_key_remembers_what_it_was_for() {
    let app = App::start().await;
    app.define("rust", 5).await;
    app.register("s-1").await;
    app.register("s-2").await;
    let first = app.post_once("k1", "/courses/rust/students", json!({ "student": "s-1" })).await.expect(201);
    assert_eq!(first.header("idempotency-replayed"), None);
    let other = app.post_once("k1", "/courses/rust/students", json!({ "student": "s-2" })).await;
    other.expect_problem(422, "key-reused");
    assert_eq!(app.get("/courses/rust").await.body["students"], json!(["s-1"]));
    // Each route has keys of its own.
    app.post_once("k1", "/courses", json!({ "id": "go", "title": "Go", "capacity": 1 })).await.expect(201);
    app.post_once("k1", "/students", json!({ "id": "s-3", "name": "Bob" })).await.expect(201);
}

#[tokio::test]
async fn a_rejection_is_decided_anew_under_the_same_key() {
    let app = App::start().await;
    app.define("rust", 1).await;
    app.register("s-1").await;
    app.register("s-2").await;
    app.enrol("rust", "s-1").await.expect(201);
    let enrol = || app.post_once("k1", "/courses/rust/students", json!({ "student": "s-2" }));
    enrol().await.expect_problem(409, "full");
    app.delete("/courses/rust/students/s-1").await.expect(200);
    enrol().await.expect(201);
}

#[tokio::test]
async fn events_carry_the_conversation_they_belong_to() {
    let store = fencepost::open("memory:").await.expect("store");
    let app = App::on(store.clone(), Patience::default()).await;
    let body = json!({ "id": "rust", "title": "Rust", "capacity": 1 });
    Answer::of(app.request(Method::POST, "/courses").header("X-Correlation-Id", "talk-7").json(&body)).await.expect(201);
    let events = store.log().expect("log").read_all(&Query::all(), ReadOptions::default()).await.expect("events");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].meta.correlation.as_deref(), Some("talk-7"));
}
