//! The function under a Lambda runtime on this machine: the real binary, rung over the runtime API with the records of a real stream, several
//! instances at once, killed and frozen, against a served engine.

mod runtime;
mod table;

use std::time::Duration;

use fencepost::{Env, Role, Scope, Store, TableOptions};
use futures::future::join_all;
use runtime::{Answered, Instance};
use serde_json::{Value, json};
use table::Table;

const MINUTE: Duration = Duration::from_secs(60);

async fn wait(millis: u64) {
    Env::system().sleep(Duration::from_millis(millis)).await;
}

fn done() -> Answered {
    Answered::Response(json!({ "batchItemFailures": [] }))
}

#[tokio::test]
async fn one_ring_indexes_all_and_says_what_it_did_but_no_body() {
    let table = Table::served().await;
    for n in 0..12 {
        table.append(n).await;
    }
    let function = Instance::start(&table.url).await;
    let event = table.event().await;
    assert_eq!(event["Records"].as_array().map(Vec::len), Some(12));
    assert_eq!(function.invoke("ring-1", MINUTE, &event).await, done());
    assert_eq!(table.indexed().await, 12);
    assert_eq!(function.invoke("ring-2", MINUTE, &event).await, done(), "the same instance again, and nothing to do");
    let lines = function.output();
    let rung: Vec<&Value> = lines.iter().filter(|line| line["message"] == "rung").collect();
    assert_eq!(rung.len(), 2, "{lines:?}");
    let of = |name: &str| rung.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("request"), [json!("ring-1"), json!("ring-2")]);
    assert_eq!(of("commits"), [json!(12), json!(0)]);
    assert_eq!(of("records"), [json!(12), json!(12)]);
    assert_eq!(of("level"), [json!("INFO"), json!("INFO")]);
    assert!(of("requests").iter().chain(&of("write_units")).all(Value::is_number), "{rung:?}");
    let metrics: Vec<&Value> = lines.iter().filter(|line| line["_aws"].is_object()).collect();
    assert_eq!(metrics.len(), 2);
    assert_eq!((&metrics[0]["FunctionName"], &metrics[0]["Trimmed"], &metrics[0]["Late"]), (&json!("indexer"), &json!(0), &json!(0)));
    assert!(!lines.iter().any(|line| line.to_string().contains(table::SECRET)), "{lines:?}");
}

#[tokio::test]
async fn whatever_rings_it_and_by_hand_too() {
    let table = Table::served().await;
    let function = Instance::start(&table.url).await;
    for (n, payload) in [json!({}), json!(null), json!({ "Records": [{ "dynamodb": 7 }] }), json!("ring")].into_iter().enumerate() {
        table.append(n).await;
        assert_eq!(function.invoke(&format!("{n}"), MINUTE, &payload).await, done(), "{payload}");
        assert_eq!(table.indexed().await, n as u64 + 1);
    }
}

#[tokio::test]
async fn instances_that_are_rung_at_once_index_every_commit_once_and_lose_no_ring() {
    let table = Table::served().await;
    let instances = join_all((0..3).map(|_| Instance::start(&table.url))).await;
    // Every append rings one of them, whatever the others do; nobody rings after the last.
    let mut rings = Vec::new();
    for n in 0..24 {
        table.append(n).await;
        let ring = instances[n % 3].queue(&format!("ring-{n}"), MINUTE, &table.newest().await);
        rings.push(ring);
        wait(if n % 5 == 0 { 150 } else { 0 }).await;
    }
    for (n, ring) in rings.into_iter().enumerate() {
        assert_eq!(ring.await.expect("answered"), done(), "ring {n}");
    }
    assert_eq!(table.indexed().await, 24);
    let lines: Vec<Value> = instances.iter().flat_map(|instance| instance.output()).collect();
    let commits = lines.iter().filter(|line| line["message"] == "rung").filter_map(|line| line["commits"].as_u64());
    assert_eq!(commits.sum::<u64>(), 24, "each by one of them: {lines:#?}");
}

#[tokio::test]
async fn one_that_is_killed_while_it_holds_the_lease_is_replaced_by_the_next_ring() {
    let table = Table::served().await;
    let [mut one, two] = [Instance::start(&table.url).await, Instance::start(&table.url).await];
    for n in 0..5 {
        table.append(n).await;
    }
    let ring = one.queue("dies", MINUTE, &table.event().await);
    table.held().await;
    one.kill().await;
    drop(ring);
    // The ring of the dead comes again, here or elsewhere.
    table.append(5).await;
    assert_eq!(two.invoke("takes-over", MINUTE, &table.event().await).await, done());
    assert_eq!(table.indexed().await, 6);
}

#[tokio::test]
async fn one_that_is_frozen_while_it_holds_the_lease_is_fenced_when_it_wakes() {
    let table = Table::served().await;
    let [one, two] = [Instance::start(&table.url).await, Instance::start(&table.url).await];
    for n in 0..5 {
        table.append(n).await;
    }
    let ring = one.queue("sleeps", MINUTE, &table.event().await);
    table.held().await;
    one.signal("STOP");
    table.append(5).await;
    assert_eq!(two.invoke("takes-over", MINUTE, &table.event().await).await, done());
    assert_eq!(table.indexed().await, 6);
    one.signal("CONT");
    assert_eq!(ring.await.expect("answered"), done());
    assert_eq!(table.indexed().await, 6, "each once");
    let lines = one.output();
    let rung = lines.iter().find(|line| line["message"] == "rung").expect("it tells");
    assert_eq!(rung["fenced"], 1, "{lines:#?}");
}

#[tokio::test]
async fn with_no_time_left_it_asks_for_the_batch_again_and_is_no_error() {
    let table = Table::served().await;
    for n in 0..40 {
        table.append(n).await;
    }
    let function = Instance::start(&table.url).await;
    let event = table.event().await;
    let again = json!({ "batchItemFailures": [{ "itemIdentifier": event["Records"][0]["dynamodb"]["SequenceNumber"] }] });
    let (mut asked_again, mut short) = (0, 1_900);
    // As an event source would: again until it is answered well, here with a little more time each time.
    loop {
        match function.invoke(&format!("{short}"), Duration::from_millis(short), &event).await {
            Answered::Response(answer) if answer == again => asked_again += 1,
            answer => {
                assert_eq!(answer, done());
                break;
            }
        }
        short += 40;
    }
    assert!(asked_again >= 3, "{asked_again}");
    assert_eq!(table.indexed().await, 40);
    // By hand there is nobody who would ring again: that is said as an error.
    let Answered::Error(error) = function.invoke("by-hand", Duration::from_millis(10), &json!({})).await else { panic!("an error") };
    assert!(error["errorMessage"].as_str().is_some_and(|message| message.contains("ring again")), "{error}");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_an_error_of_every_ring_until_it_is() {
    let function = Instance::start("").await;
    let Answered::Error(error) = function.invoke("ring", MINUTE, &json!({})).await else { panic!("an error") };
    assert!(error["errorMessage"].as_str().is_some_and(|message| message.contains("FENCEPOST_URL")), "{error}");
    let table = Table::without_tables().await;
    let function = Instance::start(&table.url).await;
    let Answered::Error(error) = function.invoke("ring", MINUTE, &json!({})).await else { panic!("an error") };
    assert!(error["errorMessage"].as_str().is_some_and(|message| message.contains("not found")), "{error}");
    let table = table.with_tables().await;
    table.append(0).await;
    assert_eq!(function.invoke("ring", MINUTE, &table.event().await).await, done(), "the same process opens it now");
    assert_eq!(table.indexed().await, 1);
}

/// Rung by the stream of Sekiban's events, through the filter that the README gives.
#[tokio::test]
async fn the_stream_of_sekibans_events_rings_as_well() {
    let table = Table::sekiban().await;
    let function = Instance::start(&table.url).await;
    for n in 0..12 {
        table.append(n).await;
    }
    let event = table.newest().await;
    assert_eq!(event["Records"][0]["dynamodb"]["Keys"]["sk"]["S"].as_str().map(|sk| sk.starts_with("EVENT#")), Some(true), "{event}");
    assert_eq!(function.invoke("ring", MINUTE, &event).await, done());
    assert_eq!(table.indexed().await, 12);
    assert!(!function.output().iter().any(|line| line.to_string().contains(table::SECRET)));
}

/// In place of Propulsion's function: what the event source hands over is put into the index of Equinox's tables, whichever instance gets it,
/// in part, twice, and from several shards at once.
#[tokio::test]
async fn records_of_equinox_are_indexed_as_they_are_handed_over() {
    let table = Table::equinox().await;
    let instances = join_all((0..2).map(|_| Instance::start(&table.url))).await;
    for n in 0..12 {
        table.append_to(&format!("Cart-{}", n % 5)).await;
    }
    let event = table.whole_event().await;
    let records = event["Records"].as_array().expect("records").clone();
    assert_eq!(records.len(), 12);
    let part = |range: std::ops::Range<usize>| json!({ "Records": records[range] });
    assert_eq!(instances[0].invoke("first", MINUTE, &part(0..4)).await, done());
    assert_eq!(table.fed().await, 4);
    // One record was lost on the way: the table has what it said.
    let rings = [instances[0].queue("more", MINUTE, &part(5..9)), instances[1].queue("at-once", MINUTE, &part(0..12))];
    for ring in join_all(rings).await {
        assert_eq!(ring.expect("answered"), done());
    }
    assert_eq!(table.fed().await, 12);
    assert_eq!(table.indexed().await, 12);
    assert_eq!(instances[1].invoke("again", MINUTE, &event).await, done());
    let lines: Vec<Value> = instances.iter().flat_map(|instance| instance.output()).collect();
    let commits = lines.iter().filter(|line| line["message"] == "rung").filter_map(|line| line["commits"].as_u64());
    assert_eq!(commits.sum::<u64>(), 12, "each by one of them: {lines:#?}");
    assert!(!lines.iter().any(|line| line.to_string().contains(table::SECRET)), "{lines:?}");
    // By hand it looks at the stream itself.
    table.append_to("Cart-9").await;
    assert_eq!(instances[0].invoke("by-hand", MINUTE, &json!({})).await, done());
    assert_eq!(table.fed().await, 13);
}

#[tokio::test]
async fn records_of_equinox_are_asked_for_again_where_the_time_is_up() {
    let table = Table::equinox().await;
    let function = Instance::start(&table.url).await;
    table.append_to("Cart-1").await;
    let event = table.whole_event().await;
    let again = json!({ "batchItemFailures": [{ "itemIdentifier": event["Records"][0]["dynamodb"]["SequenceNumber"] }] });
    assert_eq!(function.invoke("late", Duration::from_millis(900), &event).await, Answered::Response(again));
    assert_eq!(function.invoke("again", MINUTE, &event).await, done());
    assert_eq!(table.fed().await, 1);
}

/// An index that takes no more writes just now: the event source is told which record to begin with again, and by then all of them are put.
#[tokio::test]
async fn records_of_equinox_are_asked_for_again_where_the_index_is_throttled() {
    let table = Table::equinox().await;
    let throttled = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let function = Instance::start(&table.throttled(throttled.clone()).await).await;
    for n in 0..3 {
        table.append_to(&format!("Cart-{n}")).await;
    }
    let event = table.whole_event().await;
    let again = json!({ "batchItemFailures": [{ "itemIdentifier": event["Records"][0]["dynamodb"]["SequenceNumber"] }] });
    assert_eq!(function.invoke("throttled", MINUTE, &event).await, Answered::Response(again));
    let said = function.output().into_iter().find(|line| line["message"] == "to be handed over again").expect("it says why");
    assert_eq!((&said["request"], &said["records"]), (&json!("throttled"), &json!(3)));
    assert_eq!(table.fed().await, 0);
    throttled.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(function.invoke("again", MINUTE, &event).await, done());
    assert_eq!(table.fed().await, 3);
}

/// A stream of keys alone, or of old images: answered as done, everything would be lost without a word.
#[tokio::test]
async fn records_of_equinox_without_images_are_refused() {
    let table = Table::equinox().await;
    let function = Instance::start(&table.url).await;
    table.append_to("Cart-1").await;
    let mut event = table.whole_event().await;
    let change = event["Records"][0]["dynamodb"].as_object_mut().expect("a change");
    change.remove("NewImage");
    let Answered::Error(error) = function.invoke("keys-only", MINUTE, &event).await else { panic!("an error") };
    assert!(error.to_string().contains("NEW_IMAGE"), "{error}");
    assert_eq!(table.fed().await, 0);
}

/// The actions of a statement of the template, by its `Sid`. That Terraform has the same is for `deploy/check`.
fn granted(sid: &str) -> Vec<String> {
    let template = include_str!("../../deploy/template.yaml");
    let statement = template.split(&format!("- Sid: {sid}\n")).nth(1).expect("a statement");
    let actions = statement.split("Action: [").nth(1).and_then(|rest| rest.split(']').next()).expect("its actions");
    actions.split(", ").filter(|action| *action != "dynamodb:ListStreams").map(str::to_owned).collect()
}

#[test]
fn the_templates_grant_what_the_policy_of_an_indexer_grants() {
    let tables = Store::builder("dynamodb://eu-west-1/orders?feed=streams").expect("a good URL").tables();
    let policies = tables.iam(&TableOptions::default(), &Scope::default());
    let (_, policy) = policies.iter().find(|(role, _)| *role == Role::Indexer).expect("a policy");
    let policy: Value = serde_json::from_str(policy).expect("JSON");
    let statements = policy["Statement"].as_array().expect("statements");
    assert_eq!(statements.len(), 3, "{policy}");
    for statement in statements {
        let sid = match statement["Resource"][0].as_str().expect("a table") {
            resource if resource.ends_with("/stream/*") => "Stream",
            resource if resource.ends_with("-side") => "Side",
            _ => "Log",
        };
        assert_eq!(json!(granted(sid)), statement["Action"], "{sid}");
    }
}
