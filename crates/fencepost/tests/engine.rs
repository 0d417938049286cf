//! The embedded engine under the SDK's own client: DynamoDB's answers in process, a file that outlives its process however it ends,
//! one process at a time.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

mod bare_sdk;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure};
use bare_sdk::{TABLE, by, client, create_table, get, item, put_new, text};
use fencepost::{Engine, Error, Reason};

async fn fresh() -> Client {
    let client = client(Engine::memory().unwrap().http_client());
    create_table(&client).await;
    client
}

async fn put(client: &Client, p: &str, s: u64, who: &str) {
    client.put_item().table_name(TABLE).set_item(Some(item(p, s, who))).send().await.unwrap();
}

#[tokio::test]
async fn what_is_put_is_got_and_queried_in_order() {
    let client = fresh().await;
    for s in [3, 1, 10, 2] {
        put(&client, "a", s, "ann").await;
    }
    assert_eq!(get(&client, "a", 3).await, Some(item("a", 3, "ann")));
    assert_eq!(get(&client, "a", 4).await, None);
    let page = client
        .query()
        .table_name(TABLE)
        .key_condition_expression("p = :p and s > :s")
        .expression_attribute_values(":p", text("a"))
        .expression_attribute_values(":s", AttributeValue::N("1".into()))
        .send()
        .await
        .unwrap();
    let order: Vec<_> = page.items().iter().map(|i| i["s"].as_n().unwrap().as_str()).collect();
    assert_eq!(order, ["2", "3", "10"]);
}

#[tokio::test]
async fn two_engines_in_memory_share_nothing() {
    let (one, other) = (fresh().await, fresh().await);
    put(&one, "a", 1, "ann").await;
    assert_eq!(get(&other, "a", 1).await, None);
}

#[tokio::test]
async fn a_failed_condition_brings_the_old_item() {
    let client = fresh().await;
    put(&client, "a", 1, "ann").await;
    let error = client
        .put_item()
        .table_name(TABLE)
        .set_item(Some(item("a", 1, "bob")))
        .condition_expression("attribute_not_exists(p)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let PutItemError::ConditionalCheckFailedException(failed) = error else { panic!("{error:?}") };
    assert_eq!(failed.item(), Some(&item("a", 1, "ann")));
    assert_eq!(by(&client, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn a_cancelled_transaction_names_each_reason_with_its_item_and_writes_nothing() {
    let client = fresh().await;
    put(&client, "a", 1, "ann").await;
    let error = client
        .transact_write_items()
        .transact_items(put_new(item("a", 2, "bob")))
        .transact_items(put_new(item("a", 1, "bob")))
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else { panic!("{error:?}") };
    let reasons = cancelled.cancellation_reasons();
    assert_eq!(reasons[0].code(), Some("None"));
    assert_eq!(reasons[1].code(), Some("ConditionalCheckFailed"));
    assert_eq!(reasons[1].item(), Some(&item("a", 1, "ann")));
    assert_eq!(get(&client, "a", 2).await, None);
}

#[tokio::test]
async fn capacity_is_reported_as_dynamodb_would_charge_it() {
    let client = fresh().await;
    let put = client
        .put_item()
        .table_name(TABLE)
        .set_item(Some(item("a", 1, &"x".repeat(1500))))
        .return_consumed_capacity(ReturnConsumedCapacity::Total);
    assert_eq!(put.send().await.unwrap().consumed_capacity().unwrap().capacity_units(), Some(2.0));
    let transaction = client
        .transact_write_items()
        .transact_items(put_new(item("a", 2, "ann")))
        .transact_items(put_new(item("a", 3, "ann")))
        .return_consumed_capacity(ReturnConsumedCapacity::Total);
    assert_eq!(transaction.send().await.unwrap().consumed_capacity()[0].capacity_units(), Some(4.0));
}

#[tokio::test]
async fn errors_are_the_ones_the_sdk_knows() {
    let client = fresh().await;
    let error = client.put_item().table_name("missing").set_item(Some(item("a", 1, "ann"))).send().await.unwrap_err();
    assert!(error.as_service_error().unwrap().is_resource_not_found_exception(), "{error:?}");
    let error = client.put_item().table_name(TABLE).item("p", text("a")).send().await.unwrap_err();
    assert_eq!(error.as_service_error().unwrap().meta().code(), Some("ValidationException"), "{error:?}");
    let error = client.describe_continuous_backups().table_name(TABLE).send().await.unwrap_err();
    assert_eq!(error.as_service_error().unwrap().meta().code(), Some("UnsupportedOperation"), "{error:?}");
}

#[tokio::test]
async fn a_token_replays_a_transaction_only_where_tokens_are_kept() {
    for (kept, expected) in [(true, "Ok"), (false, "TransactionCanceledException")] {
        let engine = Engine::memory().unwrap();
        let engine = if kept { engine.keep_tokens() } else { engine };
        let client = client(engine.http_client());
        create_table(&client).await;
        let send = || client.transact_write_items().client_request_token("one").transact_items(put_new(item("a", 1, "ann"))).send();
        send().await.unwrap();
        let again = match send().await {
            Ok(_) => "Ok".to_owned(),
            Err(e) => e.as_service_error().unwrap().meta().code().unwrap().to_owned(),
        };
        assert_eq!(again, expected, "kept: {kept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_sixteen_tasks_racing_for_each_key_one_wins() {
    let engine = Engine::memory().unwrap();
    create_table(&client(engine.http_client())).await;
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let client = client(engine.http_client());
            tokio::spawn(async move {
                let mut won = Vec::new();
                for s in 0..20 {
                    let me = task.to_string();
                    let write = client.transact_write_items();
                    let write = write.transact_items(put_new(item("a", s, &me))).transact_items(put_new(item("b", s, &me)));
                    if write.send().await.is_ok() {
                        won.push((s, me));
                    }
                }
                won
            })
        })
        .collect();
    let won: Vec<_> = futures::future::join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(won.len(), 20);
    let client = client(engine.http_client());
    for (s, winner) in won {
        for p in ["a", "b"] {
            assert_eq!(by(&client, p, s).await.as_ref(), Some(&winner));
        }
    }
}

#[tokio::test]
async fn a_file_has_its_items_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    {
        let client = client(Engine::file(&path).unwrap().http_client());
        create_table(&client).await;
        put(&client, "a", 1, "ann").await;
    }
    let client = client(Engine::file(&path).unwrap().http_client());
    assert_eq!(by(&client, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn the_same_file_opened_twice_in_one_process_is_one_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let one = Engine::file(&path).unwrap();
    let other = Engine::file(folder.path().join(".").join("orders.db")).unwrap();
    create_table(&client(one.http_client())).await;
    put(&client(other.http_client()), "a", 1, "ann").await;
    drop(other);
    assert_eq!(by(&client(one.http_client()), "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn opening_where_a_file_cannot_be_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let Err(Error::Unavailable(error)) = Engine::file(folder.path().join("nowhere/orders.db")) else { panic!("opened") };
    assert_eq!(error.reason, Reason::Missing);
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as one".repeat(50)).unwrap();
    let Err(Error::Unavailable(error)) = Engine::file(&text) else { panic!("opened") };
    assert_eq!(error.reason, Reason::Rejected);
    assert!(error.message.contains("notes.txt"), "{error}");
}

#[tokio::test]
async fn every_acknowledged_write_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let (mut child, mut lines) = writer(&path);
    let mut acknowledged = 0;
    while acknowledged < 50 {
        acknowledged = lines.next().unwrap().unwrap().parse().unwrap();
    }
    child.kill().unwrap(); // SIGKILL, in the middle of its writes
    child.wait().unwrap();
    for line in lines {
        acknowledged = line.unwrap().parse().unwrap(); // what it had printed before
    }
    let client = client(Engine::file(&path).unwrap().http_client());
    for s in 1..=acknowledged {
        assert_eq!(by(&client, "a", s).await.as_deref(), Some("child"), "write {s} of {acknowledged}");
    }
}

#[tokio::test]
async fn a_second_process_on_a_file_is_refused_while_the_first_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let (mut child, mut lines) = writer(&path);
    lines.next().unwrap().unwrap();
    let Err(Error::Unavailable(error)) = Engine::file(&path) else { panic!("opened beside another process") };
    assert!(error.message.contains("orders.db") && error.message.contains("another process"), "{error}");
    assert!(error.message.contains("fencepost engine --file"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    Engine::file(&path).unwrap();
}

/// This test binary once more, as a process that puts items into the file and prints the number of each acknowledged one.
fn writer(path: &Path) -> (Child, impl Iterator<Item = std::io::Result<String>> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture", "--include-ignored"])
        .env("FENCEPOST_TEST_WRITES_TO", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let numbers = lines.filter_map(|line| match line {
        Ok(line) => line.strip_prefix("wrote ").map(|number| Ok(number.to_owned())),
        Err(error) => Some(Err(error)),
    });
    (child, numbers)
}

#[tokio::test]
#[ignore = "the child of the tests above, not a test"]
async fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("FENCEPOST_TEST_WRITES_TO") else { return };
    let client = client(Engine::file(path).unwrap().http_client());
    create_table(&client).await;
    let deadline = Instant::now() + Duration::from_secs(60); // should nobody kill it
    for s in 1.. {
        put(&client, "a", s, "child").await;
        println!("\nwrote {s}"); // the harness may have begun the line
        if Instant::now() > deadline {
            return;
        }
    }
}

#[tokio::test]
async fn served_over_http_it_is_the_same_engine() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let engine = Engine::memory().unwrap();
    let local = client(engine.http_client());
    create_table(&local).await;
    put(&local, "a", 1, "ann").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async move { engine.serve(listener, async { drop(stopped.await) }).await });
    let body = r#"{"TableName":"orders","Key":{"p":{"S":"a"},"s":{"N":"1"}}}"#;
    let request = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-amz-json-1.0\r\nx-amz-target: DynamoDB_20120810.GetItem\r\n\
         x-amz-date: 20260101T000000Z\r\nauthorization: AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""S":"ann""#), "{answer}");
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
