//! The door: what does not keep to its limits is refused as JSON, with a code, and leaves nothing behind.

use enrolment::service::Patience;
use fencepost::{EventLogExt, Query, ReadOptions};
use reqwest::Method;
use serde_json::json;

use crate::{Answer, App};

#[tokio::test]
async fn what_does_not_keep_to_its_limits_is_refused_and_nothing_is_recorded() {
    let store = fencepost::open("memory:").await.expect("store");
    let app = App::on(store.clone(), Patience::default()).await;
    let course = |id: &str, title: &str, capacity: i64| json!({ "id": id, "title": title, "capacity": capacity });
    let long = "x".repeat(121);
    for (path, body, field) in [
        ("/courses", course("", "Rust", 1), "id"),
        ("/courses", course("Rust", "Rust", 1), "id"),
        ("/courses", course("-rust", "Rust", 1), "id"),
        ("/courses", course("ru st", "Rust", 1), "id"),
        ("/courses", course(&long, "Rust", 1), "id"),
        ("/courses", course("rust", " ", 1), "title"),
        ("/courses", course("rust", &long, 1), "title"),
        ("/courses", course("rust", "a\nb", 1), "title"),
        ("/courses", course("rust", "Rust", 0), "capacity"),
        ("/courses", course("rust", "Rust", 1_001), "capacity"),
        ("/students", json!({ "id": "Ada", "name": "Ada" }), "id"),
        ("/students", json!({ "id": "s-1", "name": "" }), "name"),
        ("/courses/Rust/students", json!({ "student": "s-1" }), "course"),
        ("/courses/rust/students", json!({ "student": "" }), "student"),
    ] {
        let answer = app.post(path, body).await.expect_problem(422, "invalid");
        assert_eq!(answer.body["field"], json!(field), "{answer:?}");
    }
    for (path, body) in [
        ("/courses", course("rust", "Rust", -1)),
        ("/courses", course("rust", "Rust", 5_000_000_000)),
        ("/courses", json!({ "id": "rust", "title": "Rust" })),
        ("/courses", json!({ "id": "rust", "title": "Rust", "capacity": 1, "owner": "me" })),
        ("/students", json!(["s-1"])),
    ] {
        app.post(path, body).await.expect_problem(422, "invalid");
    }
    app.put("/courses/rust/capacity", json!({ "capacity": 0 })).await.expect_problem(422, "invalid");
    app.delete("/courses/rust/students/S").await.expect_problem(422, "invalid");
    app.get("/courses/Rust").await.expect_problem(422, "invalid");
    for asked in ["limit=0", "limit=501"] {
        app.get(&format!("/courses?{asked}")).await.expect_problem(422, "invalid");
    }
    app.get("/courses?limit=many").await.expect_problem(400, "malformed");
    app.get("/courses?colour=red").await.expect_problem(400, "malformed");
    assert_eq!(store.log().expect("log").read_all(&Query::all(), ReadOptions::default()).await.expect("events").len(), 0);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_as_json_too() {
    let app = App::start().await;
    let post = |body: &'static str, media: &'static str| app.request(Method::POST, "/courses").header("content-type", media).body(body);
    Answer::of(post("{", "application/json")).await.expect_problem(400, "malformed");
    Answer::of(post("{}", "text/plain")).await.expect_problem(415, "media-type");
    let large = format!("{{\"id\": \"{}\"}}", "x".repeat(8 * 1024));
    Answer::of(app.request(Method::POST, "/courses").header("content-type", "application/json").body(large))
        .await
        .expect_problem(413, "too-large");
    app.get("/nowhere").await.expect_problem(404, "no-such-route");
    let method = app.delete("/courses").await.expect_problem(405, "method");
    assert_eq!(method.header("allow"), Some("GET,HEAD,POST"));
    for key in ["", "two words", &"x".repeat(201)] {
        let body = json!({ "id": "rust", "title": "Rust", "capacity": 1 });
        for name in ["Idempotency-Key", "X-Correlation-Id"] {
            let answer = Answer::of(app.request(Method::POST, "/courses").header(name, key).json(&body)).await;
            answer.expect_problem(422, "invalid");
        }
    }
}

#[tokio::test]
async fn the_rules_speak_in_codes() {
    let app = App::start().await;
    app.define("rust", 2).await;
    for student in ["s-1", "s-2", "s-3"] {
        app.register(student).await;
    }
    app.post("/courses", json!({ "id": "rust", "title": "Again", "capacity": 1 })).await.expect_problem(409, "course-exists");
    app.post("/students", json!({ "id": "s-1", "name": "Again" })).await.expect_problem(409, "student-exists");
    app.enrol("go", "s-1").await.expect_problem(404, "no-such-course");
    app.enrol("rust", "s-9").await.expect_problem(404, "no-such-student");
    app.get("/courses/go").await.expect_problem(404, "no-such-course");
    app.get("/students/s-9").await.expect_problem(404, "no-such-student");
    let enrolled = app.enrol("rust", "s-1").await.expect(201);
    assert_eq!(enrolled.header("location"), Some("/courses/rust/students/s-1"));
    app.enrol("rust", "s-1").await.expect_problem(409, "already-enrolled");
    app.enrol("rust", "s-2").await.expect(201);
    app.put("/courses/rust/capacity", json!({ "capacity": 1 })).await.expect_problem(409, "seats-taken");
    app.delete("/courses/rust/students/s-3").await.expect_problem(409, "not-enrolled");
    let same = app.put("/courses/rust/capacity", json!({ "capacity": 2 })).await.expect(200);
    assert_eq!(same.body, json!({ "recorded": false, "commit": null, "position": null }));
    let student = app.get("/students/s-1").await.expect(200).body;
    assert_eq!(student, json!({ "id": "s-1", "name": "Ada", "courses": ["rust"], "may_enrol": 9 }));
}

#[tokio::test]
async fn lists_come_in_parts_and_nothing_is_missing_between_them() {
    let app = App::start().await;
    // Names of which one begins the other, in an order that a separator could upset.
    for course in ["a", "a-b", "ab", "b"] {
        app.define(course, 9).await;
    }
    app.register("s-1").await;
    app.register("s-2").await;
    let mut last = json!(null);
    for (course, student) in [("a", "s-1"), ("a", "s-2"), ("a-b", "s-1"), ("ab", "s-2"), ("b", "s-1")] {
        last = app.enrol(course, student).await.expect(201).body["position"].clone();
    }
    while app.get("/health").await.expect(200).body["position"] != last {
        tokio::task::yield_now().await;
    }
    for (path, count) in [("/courses", 4), ("/students", 2), ("/enrolments", 5)] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let part = app.get(&format!("{path}?limit=1{after}")).await.expect(200).body;
            seen.extend(part["items"].as_array().expect("items").iter().cloned());
            let Some(next) = part["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(json!(seen), app.get(path).await.expect(200).body["items"], "{path}");
        assert_eq!(seen.len(), count, "{path}");
    }
}
