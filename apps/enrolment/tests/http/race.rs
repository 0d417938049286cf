//! Many at once: as many seats as there are, and who loses a race hears what changed.

use std::sync::Mutex;

use enrolment::service::Patience;
use fencepost::testing::{Faults, Gate, Rule};
use fencepost::{Engine, Store};
use futures::future::join_all;
use serde_json::json;

use crate::{Answer, App, client};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_enrolments_by_32_clients_fill_fifty_seats_and_no_more() {
    let app = App::start().await;
    app.define("rust", 50).await;
    let students: Vec<_> = (0..200).map(|n| format!("s-{n}")).collect();
    join_all(students.iter().map(|student| app.register(student))).await;

    let (waiting, answers) = (Mutex::new(students), Mutex::new(Vec::new()));
    join_all((0..32).map(async |_| {
        let client = client();
        loop {
            let Some(student) = waiting.lock().expect("queue").pop() else { break };
            let answer = Answer::of(client.post(format!("{}/courses/rust/students", app.url)).json(&json!({ "student": student }))).await;
            answers.lock().expect("answers").push(answer);
        }
    }))
    .await;

    let (accepted, rejected): (Vec<_>, Vec<_>) =
        answers.into_inner().expect("answers").into_iter().partition(|answer| answer.status == 201);
    assert_eq!((accepted.len(), rejected.len()), (50, 150));
    for answer in rejected {
        answer.expect_problem(409, "full");
    }
    let course = app.get("/courses/rust").await.expect(200).body;
    assert_eq!((&course["taken"], &course["free"], course["students"].as_array().map(Vec::len)), (&json!(50), &json!(0), Some(50)));
}

/// A service whose next write about this student waits at the gate, and another over the same tables.
async fn gated(student: &str, patience: Patience) -> (App, App, Gate) {
    let engine = Engine::memory().expect("engine");
    let faults = Faults::new(engine.http_client(), 1);
    let open = async |http| Store::builder("memory:").expect("url").http_client(http).open().await.expect("store");
    let slow = App::on(open(faults.http_client()).await, patience).await;
    let quick = App::on(open(engine.http_client()).await, Patience::default()).await;
    quick.define("rust", 2).await;
    quick.register("s-1").await;
    quick.register("s-2").await;
    let gate = Gate::new();
    faults.script(Rule::on("TransactWriteItems").holding(&format!("student:{student}")).nth(1).pause_before(&gate));
    (slow, quick, gate)
}

#[tokio::test]
async fn who_loses_the_race_for_good_is_told_what_changed_and_may_try_again() {
    let (slow, quick, gate) = gated("s-1", Patience { tries: 1, ..Patience::default() }).await;
    let (lost, won) = tokio::join!(slow.enrol("rust", "s-1"), async {
        gate.reached(1).await;
        let won = quick.enrol("rust", "s-2").await.expect(201);
        gate.open();
        won
    });
    let lost = lost.expect_problem(409, "lost-race");
    // Type and position, and nothing of what the event says.
    assert_eq!(lost.body["changed"], json!([{ "type": "StudentEnrolled", "position": won.body["position"] }]));
    assert_eq!((&lost.body["recorded"], &lost.body["retry"]), (&json!("nothing"), &json!(true)));
    assert!(lost.header("x-fencepost-units").is_some_and(|units| units.contains("requests=")), "{lost:?}");
    slow.enrol("rust", "s-1").await.expect(201);
    assert_eq!(quick.get("/courses/rust").await.expect(200).body["students"], json!(["s-1", "s-2"]));
}

#[tokio::test]
async fn with_patience_the_same_race_is_decided_again() {
    let (slow, quick, gate) = gated("s-1", Patience::default()).await;
    let (answer, ()) = tokio::join!(slow.enrol("rust", "s-1"), async {
        gate.reached(1).await;
        quick.put("/courses/rust/capacity", json!({ "capacity": 1 })).await.expect(200);
        quick.enrol("rust", "s-2").await.expect(201);
        gate.open();
    });
    answer.expect_problem(409, "full");
    assert_eq!(quick.get("/courses/rust").await.expect(200).body["students"], json!(["s-2"]));
}
