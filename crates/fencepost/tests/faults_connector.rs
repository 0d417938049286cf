//! Each fault of `testing::Faults` and `testing::Lag` under the SDK's bare client: a fault must be what it says, or the tests that lean on it
//! prove nothing. A lost request is not in the engine, a lost response is.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test may")]

mod bare_sdk;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::operation::transact_write_items::{TransactWriteItemsError, TransactWriteItemsOutput};
use aws_sdk_dynamodb::types::AttributeValue;
use bare_sdk::{Item, TABLE, by, client, create_table, get, item, key, put_new, text, with_attempts};
use fencepost::Engine;
use fencepost::testing::{Call, Chances, Fault, Faults, Gate, Keep, Lag, Rule};

type Put = Result<PutItemOutput, SdkError<PutItemError>>;
type Transacted = Result<TransactWriteItemsOutput, SdkError<TransactWriteItemsError>>;

/// A client through faults, tried once; and one that sees the engine as it is.
async fn faulty() -> (Faults, Client, Client) {
    let engine = Engine::memory().unwrap().keep_tokens();
    let plain = client(engine.http_client());
    create_table(&plain).await;
    let faults = Faults::new(engine.http_client(), 7);
    (faults.clone(), client(faults.http_client()), plain)
}

async fn put(client: &Client, s: u64, who: &str) -> Put {
    client.put_item().table_name(TABLE).set_item(Some(item("a", s, who))).condition_expression("attribute_not_exists(p)").send().await
}

async fn transact(client: &Client, items: impl IntoIterator<Item = Item>) -> Transacted {
    let mut write = client.transact_write_items();
    for item in items {
        write = write.transact_items(put_new(item));
    }
    write.send().await
}

fn code<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Option<&str> {
    error.as_service_error().and_then(|e| e.meta().code())
}

#[track_caller]
fn reasons(outcome: Transacted) -> Vec<String> {
    match outcome.unwrap_err().into_service_error() {
        TransactWriteItemsError::TransactionCanceledException(cancelled) => {
            cancelled.cancellation_reasons().iter().map(|r| r.code().unwrap().to_owned()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn refusals_carry_their_code_and_are_not_delivered() {
    for (rule, expected) in [
        (Rule::on("PutItem").throttle(), "ProvisionedThroughputExceededException"),
        (Rule::on("PutItem").suffer(Fault::ThrottleAccount), "ThrottlingException"),
        (Rule::on("PutItem").internal_error(), "InternalServerError"),
        (Rule::on("PutItem").conflict(), "TransactionConflictException"),
    ] {
        let (faults, client, plain) = faulty().await;
        faults.script(rule);
        assert_eq!(code(&put(&client, 1, "ann").await.unwrap_err()), Some(expected));
        assert_eq!(get(&plain, "a", 1).await, None, "{expected}");
        assert_eq!((faults.calls("PutItem"), faults.delivered("PutItem")), (1, 0));
    }
}

#[tokio::test]
async fn refusals_of_transactions_carry_their_code_and_are_not_delivered() {
    for (rule, expected) in [
        (Rule::on("TransactWriteItems").in_progress(), "TransactionInProgressException"),
        (Rule::on("TransactWriteItems").token_mismatch(), "IdempotentParameterMismatchException"),
        (Rule::on("TransactWriteItems").conflict(), "TransactionCanceledException"),
    ] {
        let (faults, client, plain) = faulty().await;
        faults.script(rule);
        assert_eq!(code(&transact(&client, [item("a", 1, "ann")]).await.unwrap_err()), Some(expected));
        assert_eq!(get(&plain, "a", 1).await, None, "{expected}");
    }
}

#[tokio::test]
async fn a_conflict_names_one_item_of_the_transaction() {
    let (faults, client, _) = faulty().await;
    faults.script(Rule::on("TransactWriteItems").conflict());
    let mut reasons = reasons(transact(&client, (1..=3).map(|s| item("a", s, "ann"))).await);
    reasons.sort();
    assert_eq!(reasons, ["None", "None", "TransactionConflict"]);
}

#[tokio::test]
async fn a_lost_request_is_an_io_error_and_not_in_the_engine() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").lose_request());
    let SdkError::DispatchFailure(failure) = put(&client, 1, "ann").await.unwrap_err() else { panic!() };
    assert!(failure.is_io());
    assert_eq!(get(&plain, "a", 1).await, None);
}

#[tokio::test]
async fn a_lost_response_is_an_io_error_and_in_the_engine() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").lose_response());
    let SdkError::DispatchFailure(failure) = put(&client, 1, "ann").await.unwrap_err() else { panic!() };
    assert!(failure.is_io());
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn a_time_out_is_one_and_in_the_engine() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").suffer(Fault::TimeOut));
    let SdkError::DispatchFailure(failure) = put(&client, 1, "ann").await.unwrap_err() else { panic!() };
    assert!(failure.is_timeout());
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn a_truncated_answer_cannot_be_read_though_the_write_is_there() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").truncate());
    let error = put(&client, 1, "ann").await.unwrap_err();
    assert_eq!((code(&error), error.raw_response().map(|r| r.status().as_u16())), (None, Some(200)), "{error:?}");
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn delivered_twice_a_conditional_put_meets_itself() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").deliver_twice());
    assert_eq!(code(&put(&client, 1, "ann").await.unwrap_err()), Some("ConditionalCheckFailedException"));
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
    assert_eq!((faults.calls("PutItem"), faults.delivered("PutItem")), (1, 2));
}

#[tokio::test]
async fn delivered_twice_a_transaction_is_replayed_by_its_token() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("TransactWriteItems").deliver_twice());
    transact(&client, [item("a", 1, "ann")]).await.unwrap();
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn a_hang_never_answers_and_delivers_nothing() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").hang());
    tokio::time::timeout(Duration::from_millis(100), put(&client, 1, "ann")).await.expect_err("no answer");
    assert_eq!(get(&plain, "a", 1).await, None);
}

#[tokio::test]
async fn a_delay_is_as_long_as_it_says_and_the_write_is_there() {
    let (faults, client, plain) = faulty().await;
    faults.script(Rule::on("PutItem").delay(Duration::from_millis(60)));
    let start = std::time::Instant::now();
    put(&client, 1, "ann").await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
}

#[tokio::test]
async fn of_failed_conditions_only_the_chosen_one_stays_named() {
    let (faults, client, plain) = faulty().await;
    for s in [1, 3] {
        put(&plain, s, "ann").await.unwrap();
    }
    let all = || (1..=3).map(|s| item("a", s, "bob"));
    let failed = "ConditionalCheckFailed";
    assert_eq!(reasons(transact(&client, all()).await), [failed, "None", failed]);
    faults.script(Rule::on("TransactWriteItems").nth(1).hide_reasons(Keep::Last));
    faults.script(Rule::on("TransactWriteItems").nth(2).hide_reasons(Keep::Item(0)));
    assert_eq!(reasons(transact(&client, all()).await), ["None", "None", failed]);
    let outcome = transact(&client, all()).await.unwrap_err().into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = outcome else { panic!("{outcome:?}") };
    let reasons = cancelled.cancellation_reasons();
    assert_eq!((reasons[0].item(), reasons[2].code()), (Some(&item("a", 1, "ann")), Some("None")));
}

#[tokio::test]
async fn held_before_delivery_it_is_not_there_and_loses_to_who_passes() {
    let (faults, client, plain) = faulty().await;
    let gate = Gate::new();
    faults.script(Rule::on("PutItem").nth(1).pause_before(&gate));
    let held = tokio::spawn({
        let client = client.clone();
        async move { put(&client, 1, "ann").await }
    });
    gate.reached(1).await;
    assert_eq!(get(&plain, "a", 1).await, None);
    put(&client, 1, "bob").await.unwrap();
    gate.release(1);
    assert_eq!(code(&held.await.unwrap().unwrap_err()), Some("ConditionalCheckFailedException"));
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("bob"));
}

#[tokio::test]
async fn held_after_delivery_it_is_there_and_not_answered() {
    let (faults, client, plain) = faulty().await;
    let gate = Gate::new();
    faults.script(Rule::on("PutItem").pause_after(&gate));
    let held = tokio::spawn(async move { put(&client, 1, "ann").await });
    gate.reached(1).await;
    assert_eq!(by(&plain, "a", 1).await.as_deref(), Some("ann"));
    assert!(!held.is_finished());
    gate.open();
    held.await.unwrap().unwrap();
}

#[tokio::test]
async fn rules_count_the_requests_they_are_for() {
    let (faults, client, _) = faulty().await;
    faults.script(Rule::on("PutItem").nth(2).times(2).throttle());
    faults.script(Rule::on("PutItem").holding(r#""N":"5""#).nth(1).internal_error());
    let mut outcomes = Vec::new();
    for s in 1..=5 {
        get(&client, "a", s).await;
        outcomes.push(put(&client, s, "ann").await.is_ok());
    }
    assert_eq!(outcomes, [true, false, false, true, false]);
    assert_eq!(faults.calls("GetItem"), 5);
    let failed: Vec<_> = faults.log().into_iter().filter(|call| !call.faults.is_empty()).collect();
    let call = |fault| Call { operation: "PutItem".into(), faults: vec![fault], delivered: 0 };
    assert_eq!(failed, [call(Fault::Throttle), call(Fault::Throttle), call(Fault::InternalError)]);
    faults.calm().script(Rule::on_any().throttle()).calm();
    put(&client, 5, "ann").await.unwrap();
}

#[tokio::test]
async fn the_sdk_retries_through_two_throttles() {
    let engine = Engine::memory().unwrap();
    create_table(&client(engine.http_client())).await;
    let faults = Faults::new(engine.http_client(), 7);
    faults.script(Rule::on("PutItem").times(2).throttle());
    put(&with_attempts(faults.http_client(), 3), 1, "ann").await.unwrap();
    assert_eq!(faults.calls("PutItem"), 3);
}

#[tokio::test]
async fn chance_is_the_same_for_the_same_seed_and_as_often_as_asked() {
    async fn run(seed: u64) -> Vec<Call> {
        let engine = Engine::memory().unwrap();
        create_table(&client(engine.http_client())).await;
        let faults = Faults::new(engine.http_client(), seed);
        faults.random(Chances { throttle: 0.1, lose_response: 0.2, in_progress: 0.2, ..Chances::default() });
        let client = client(faults.http_client());
        for s in 0..200 {
            drop(put(&client, s, "ann").await);
        }
        client.describe_table().table_name(TABLE).send().await.unwrap();
        faults.log()
    }
    let (one, same, other) = (run(1).await, run(1).await, run(2).await);
    assert_eq!(one, same);
    assert_ne!(one, other);
    let count = |fault: Fault| one.iter().filter(|call| call.faults.contains(&fault)).count();
    assert!((8..40).contains(&count(Fault::Throttle)), "{}", count(Fault::Throttle));
    assert!((20..70).contains(&count(Fault::LoseResponse)), "{}", count(Fault::LoseResponse));
    assert_eq!(count(Fault::InProgress), 0, "a put has no token");
}

async fn lagging() -> (Lag, Client) {
    let lag = Lag::new(Engine::memory().unwrap().http_client(), Engine::memory().unwrap().http_client(), 7);
    let client = client(lag.http_client());
    create_table(&client).await;
    (lag, client)
}

async fn stale(client: &Client, p: &str, s: u64) -> Option<String> {
    let found = client.get_item().table_name(TABLE).set_key(Some(key(p, s))).send().await.unwrap().item;
    found.map(|item| item["by"].as_s().unwrap().clone())
}

#[tokio::test]
async fn an_eventually_consistent_read_lags_until_the_write_is_applied() {
    let (lag, client) = lagging().await;
    put(&client, 1, "ann").await.unwrap();
    assert_eq!(by(&client, "a", 1).await.as_deref(), Some("ann"));
    assert_eq!(stale(&client, "a", 1).await, None);
    assert!(lag.apply_next().await);
    assert_eq!(stale(&client, "a", 1).await.as_deref(), Some("ann"));
    assert!(!lag.apply_next().await);
}

#[tokio::test]
async fn queries_lag_unless_they_ask_for_consistency() {
    let (lag, client) = lagging().await;
    put(&client, 1, "ann").await.unwrap();
    let query = async |consistent: Option<bool>| {
        let query = client.query().table_name(TABLE).key_condition_expression("p = :p").set_consistent_read(consistent);
        query.expression_attribute_values(":p", text("a")).send().await.unwrap().count()
    };
    assert_eq!((query(None).await, query(Some(false)).await, query(Some(true)).await), (0, 0, 1));
    lag.apply_all().await;
    assert_eq!(query(None).await, 1);
}

#[tokio::test]
async fn half_of_a_transaction_is_seen_by_stale_reads() {
    let (lag, client) = lagging().await;
    transact(&client, (1..=4).map(|s| item("a", s, "ann"))).await.unwrap();
    let pending = lag.pending();
    assert_eq!(pending.len(), 4);
    assert!(pending.iter().all(|p| p.request == pending[0].request && p.table == TABLE));
    assert_eq!(lag.apply_half().await, 2);
    let mut seen = 0;
    for s in 1..=4 {
        seen += usize::from(stale(&client, "a", s).await.is_some());
    }
    assert_eq!((seen, lag.pending().len()), (2, 2));
}

#[tokio::test]
async fn different_items_arrive_in_any_order_and_one_item_never_goes_back() {
    let (lag, client) = lagging().await;
    let overwrite = async |s, who| client.put_item().table_name(TABLE).set_item(Some(item("a", s, who))).send().await.unwrap();
    for (s, who) in [(1, "ann"), (2, "ann"), (1, "bob")] {
        overwrite(s, who).await;
    }
    let [first, second, third] = lag.pending().try_into().unwrap();
    assert!(lag.apply(third.id).await);
    assert_eq!((stale(&client, "a", 1).await.as_deref(), stale(&client, "a", 2).await), (Some("bob"), None));
    assert!(lag.apply(first.id).await);
    assert_eq!(stale(&client, "a", 1).await.as_deref(), Some("bob"));
    assert!(lag.apply_any().await);
    assert_eq!(stale(&client, "a", 2).await.as_deref(), Some("ann"));
    assert!(!lag.apply(second.id).await, "already there");
}

#[tokio::test]
async fn updates_deletes_and_batches_arrive_as_their_images() {
    let (lag, client) = lagging().await;
    put(&client, 1, "ann").await.unwrap();
    put(&client, 2, "ann").await.unwrap();
    let update = client.update_item().table_name(TABLE).set_key(Some(key("a", 1))).update_expression("SET #b = :b");
    let update = update.expression_attribute_names("#b", "by").expression_attribute_values(":b", AttributeValue::S("eve".into()));
    update.send().await.unwrap();
    client.delete_item().table_name(TABLE).set_key(Some(key("a", 2))).send().await.unwrap();
    let put = aws_sdk_dynamodb::types::PutRequest::builder().set_item(Some(item("b", 1, "bob"))).build().unwrap();
    let write = aws_sdk_dynamodb::types::WriteRequest::builder().put_request(put).build();
    client.batch_write_item().request_items(TABLE, vec![write]).send().await.unwrap();
    lag.apply_next().await;
    lag.apply_next().await;
    assert_eq!((stale(&client, "a", 1).await.as_deref(), stale(&client, "a", 2).await.as_deref()), (Some("ann"), Some("ann")));
    lag.apply_all().await;
    assert_eq!((stale(&client, "a", 1).await.as_deref(), stale(&client, "a", 2).await), (Some("eve"), None));
    assert_eq!(stale(&client, "b", 1).await.as_deref(), Some("bob"));
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_to_apply() {
    let (lag, client) = lagging().await;
    put(&client, 1, "ann").await.unwrap();
    lag.apply_all().await;
    put(&client, 1, "bob").await.unwrap_err();
    assert_eq!(lag.pending(), []);
}
