//! What must not be accepted is not: a clear error, and nothing written. And what must work across processes and wires does.

mod support;

use std::collections::HashMap;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::config::{Credentials, Region, SharedCredentialsProvider};
use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::{
    After, Append, CommitId, Delivery, Engine, Error, Event, EventLog, EventLogExt, From, LoadOptions, Memory, Query, ReadOptions, Reason,
    Refused, Store, StreamName, Token,
};
use futures::StreamExt;
use support::{Ground, open};

fn event(tag: &str) -> Event {
    Event::new("T", "{}").and_then(|e| e.tag(tag)).expect("event")
}

fn tag(tag: &str) -> Query {
    Query::tag(tag).expect("query")
}

fn raw(engine: &Engine) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(Credentials::from_keys("a", "b", None))
        .http_client(engine.http_client());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

#[tokio::test]
async fn tokens_of_others_are_refused_and_nothing_is_written() {
    let ground = Ground::fresh();
    let (one, two) = (open(ground.builder("namespace=one")).await, open(ground.builder("namespace=two")).await);
    let (one, two) = (one.log().expect("log"), two.log().expect("log"));
    let theirs = two.source(&tag("a"), None).await.expect("source").token;
    let foreign = Memory::new().source(&tag("a"), None).await.expect("source").token;
    for token in [theirs, foreign] {
        let read = one.source(&tag("a"), Some(&token)).await;
        assert!(matches!(read, Err(Error::Refused(Refused::Foreign { .. }))), "{read:?}");
        let append = one.append(Append::new([event("a")]).unless(tag("a"), token.clone())).await;
        assert!(matches!(append, Err(Error::Refused(Refused::Foreign { .. }))), "{append:?}");
        assert!(matches!(one.unchanged(&token).await, Err(Error::Refused(_))));
    }
    let token = one.source(&tag("a"), None).await.expect("source").token;
    let append = one.append(Append::new([event("b")]).unless(tag("b"), token.clone())).await;
    assert!(matches!(append, Err(Error::Refused(Refused::NotHeld { .. }))), "{append:?}");
    let mut text = token.to_string();
    text.replace_range(3..4, if &text[3..4] == "A" { "B" } else { "A" });
    assert!(matches!(text.parse::<Token>(), Err(Error::Refused(Refused::Malformed { .. }))));
    assert_eq!(one.head().await.expect("head"), None);
}

#[tokio::test]
async fn namespaces_never_see_each_other() {
    let ground = Ground::fresh();
    let (one, two) = (open(ground.builder("namespace=one")).await, open(ground.builder("namespace=two")).await);
    one.log().expect("log").append(Append::new([event("a")])).await.expect("append");
    assert!(two.log().expect("log").source(&tag("a"), None).await.expect("source").events.is_empty());
    assert_eq!(two.log().expect("log").head().await.expect("head"), None);
    let mut feed = two.feed().expect("feed").subscribe(From::Start, Query::all());
    assert!(matches!(feed.next().await, Some(Ok(Delivery::CaughtUp { .. }))));
    let stream = StreamName::new("a").expect("name");
    assert_eq!(two.streams().load(&stream, LoadOptions::default()).await.expect("load").version, 0);
}

#[tokio::test]
async fn a_namespace_is_opened_as_it_was_created_or_refused_naming_both() {
    let ground = Ground::fresh();
    open(ground.builder("feed=lanes-4")).await;
    let differs = ground.builder("feed=lanes-1").open().await;
    let Err(Error::Refused(Refused::Differs { given, stored, .. })) = &differs else { panic!("{differs:?}") };
    assert_eq!((given.as_str(), stored.as_str()), ("lanes-1", "lanes-4"));
    // Without a word about it, it is as it was.
    assert!(!open(ground.builder("")).await.capabilities().counted_positions);
}

#[tokio::test]
async fn a_format_above_ours_is_refused() {
    let engine = Engine::memory().expect("engine");
    let ground = Ground::Engine(engine.clone());
    open(ground.builder("")).await;
    let item = HashMap::from([
        ("p".to_owned(), AttributeValue::S("n/main".into())),
        ("v".to_owned(), AttributeValue::N("0".into())),
        ("format".to_owned(), AttributeValue::N("2".into())),
        ("feed".to_owned(), AttributeValue::S("a mode of the future".into())),
    ]);
    raw(&engine).put_item().table_name("fencepost").set_item(Some(item)).send().await.expect("put");
    let answer = ground.builder("").create(false).open().await;
    assert!(matches!(answer, Err(Error::Refused(Refused::Newer { found: 2, known: 1 }))), "{answer:?}");
}

#[tokio::test]
async fn a_missing_table_or_namespace_says_what_to_do() {
    let ground = Ground::fresh();
    let missing = ground.builder("").create(false).open().await;
    let Err(Error::Unavailable(unavailable)) = &missing else { panic!("{missing:?}") };
    assert_eq!(unavailable.reason, Reason::Missing);
    open(ground.builder("")).await;
    let missing = ground.builder("namespace=other").create(false).open().await;
    assert!(
        matches!(&missing, Err(Error::Unavailable(u)) if u.reason == Reason::Missing && u.message.contains("fencepost init")),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_table_with_other_keys_is_refused_with_what_differs() {
    let engine = Engine::memory().expect("engine");
    let key = |name: &str| {
        let kind = aws_sdk_dynamodb::types::KeyType::Hash;
        aws_sdk_dynamodb::types::KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key")
    };
    let attribute = |name: &str| {
        let kind = aws_sdk_dynamodb::types::ScalarAttributeType::S;
        aws_sdk_dynamodb::types::AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("attribute")
    };
    let mode = aws_sdk_dynamodb::types::BillingMode::PayPerRequest;
    raw(&engine)
        .create_table()
        .table_name("fencepost")
        .billing_mode(mode)
        .key_schema(key("id"))
        .attribute_definitions(attribute("id"))
        .send()
        .await
        .expect("table");
    let answer = Ground::Engine(engine).builder("").open().await;
    assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Differs && u.message.contains("id")), "{answer:?}");
}

#[tokio::test]
async fn too_many_items_are_counted_before_any_call() {
    let ground = Ground::fresh();
    let log = open(ground.builder("feed=streams")).await.log().expect("log");
    let many = (0..101).fold(Event::new("T", "{}").expect("event"), |e, i| e.tag(format!("t{i}")).expect("tag"));
    let answer = log.append(Append::new([many])).await;
    assert!(matches!(answer, Err(Error::Refused(Refused::TooManyItems { items: 101, limit: 100 }))), "{answer:?}");
    let condition = (0..60).map(|i| tag(&format!("c{i}"))).reduce(Query::or).expect("query");
    let some = (0..60).fold(Event::new("T", "{}").expect("event"), |e, i| e.tag(format!("t{i}")).expect("tag"));
    let answer = log.append(Append::new([some]).unless(condition, After::Nothing)).await;
    assert!(matches!(answer, Err(Error::Refused(Refused::TooManyItems { items: 120, limit: 100 }))), "{answer:?}");
    assert!(log.read_all(&tag("t0"), ReadOptions::default()).await.expect("read").is_empty());
}

#[tokio::test]
async fn a_commit_id_for_other_events_is_refused() {
    let log = open(Ground::fresh().builder("")).await.log().expect("log");
    let id = CommitId(fencepost::Env::system().new_id());
    log.append(Append::new([event("a")]).commit(id)).await.expect("first");
    let answer = log.append(Append::new([event("b")]).commit(id)).await;
    assert!(matches!(answer, Err(Error::Refused(Refused::Reused { .. }))), "{answer:?}");
    assert!(log.read_all(&tag("b"), ReadOptions::default()).await.expect("read").is_empty());
}

#[tokio::test]
async fn an_unreachable_endpoint_is_unavailable_and_nothing_is_in_doubt() {
    let config = aws_config::SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys("a", "b", None)))
        .endpoint_url("http://127.0.0.1:9")
        .build();
    let timeouts = fencepost::Timeouts { attempts: 2, ..fencepost::Timeouts::default() };
    let answer = Store::builder("http://127.0.0.1:9/orders").expect("url").sdk_config(config).timeouts(timeouts).open().await;
    assert!(matches!(&answer, Err(Error::Unavailable(u)) if u.reason == Reason::Unreachable), "{answer:?}");
}

#[tokio::test]
async fn a_file_is_there_after_it_was_closed() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file:{}", folder.path().join("orders.db").display());
    let token = {
        let log = open(Store::builder(&url).expect("url")).await.log().expect("log");
        log.append(Append::new([event("a")])).await.expect("append");
        log.source(&tag("a"), None).await.expect("source").token.to_string()
    };
    let log = open(Store::builder(&url).expect("url")).await.log().expect("log");
    let again = log.append(Append::new([event("a")]).unless(tag("a"), token.parse::<Token>().expect("token"))).await.expect("append");
    assert_eq!(again.positions[0].as_number(), Some(2));
}

/// The same over real HTTP, with a configuration that the caller brings.
#[tokio::test]
async fn the_engine_serves_other_programs_over_http() {
    let engine = Engine::memory().expect("engine");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async move { engine.serve(listener, async { stopped.await.unwrap_or_default() }).await });
    let config = aws_config::SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys("a", "b", None)))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(&endpoint)
        .build();
    let url = format!("{endpoint}/orders?feed=lanes-2");
    let store = open(Store::builder(&url).expect("url").sdk_config(config).create(true)).await;
    let log = store.log().expect("log");
    let token = log.source(&tag("a"), None).await.expect("source").token;
    log.append(Append::new([event("a")]).unless(tag("a"), token.clone())).await.expect("append");
    let late = log.append(Append::new([event("a")]).unless(tag("a"), token)).await;
    assert!(late.is_err_and(|error| error.is_conflict()));
    assert_eq!(log.read_all(&Query::all(), ReadOptions::default()).await.expect("read").len(), 1);
    drop((store, log));
    stop.send(()).expect("running");
    server.await.expect("joins").expect("serves");
}

/// An append that was begun and is not polled any more, as in an arm of `select!`, must not hold up the others: neither in the
/// engine nor in the queue for a lane.
#[tokio::test]
async fn an_append_that_nobody_polls_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("folder");
    for url in ["memory:".to_owned(), format!("file:{}", folder.path().join("orders.db").display())] {
        let log = open(Store::builder(&url).expect("url")).await.log().expect("log");
        let mut begun = Vec::new();
        for polls in 0..8 {
            let mut append = log.append(Append::new([event("a")]));
            for _ in 0..polls {
                if futures::poll!(&mut append).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            begun.push(append);
        }
        let other = tokio::time::timeout(std::time::Duration::from_secs(5), log.append(Append::new([event("b")]))).await;
        assert!(matches!(other, Ok(Ok(_))), "{url}: {other:?}");
        drop(begun);
    }
}

#[tokio::test]
async fn the_doctor_finds_nothing_wrong_where_nothing_is_and_names_what_is_missing() {
    let well = Store::builder("memory:").expect("url").doctor().await;
    assert!(well.iter().all(|check| check.status == fencepost::Status::Ok), "{well:?}");
    let ground = Ground::fresh();
    let missing = ground.builder("").create(false).doctor().await;
    assert!(missing.iter().any(|check| check.status == fencepost::Status::Failed && check.name.starts_with("table ")), "{missing:?}");
    open(ground.builder("namespace=one")).await;
    let other = ground.builder("namespace=two").create(false).doctor().await;
    assert!(other.iter().any(|check| check.status == fencepost::Status::Failed && check.name == "namespace"), "{other:?}");
}
