//! Opening v5: one configuration for all who open, and tables that do not belong together.

use fencepost::{Engine, Error, Reason};

use super::half::Half;
use super::support::{Ground, open};
use super::{V3, V5, bare_sdk, bench, number, put, scan, text};

/// Many open at once: one configuration, the same for all; tables that do not belong together are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_three_tables_of_v5_know_each_other() {
    let engine = Engine::memory().expect("an engine");
    let url = |more: &str| format!("{V5}&table=orders{more}");
    // The tables, and nothing in them.
    drop(Ground::Engine(engine.clone()).builder(&url("")).tables().create(&fencepost::TableOptions::default()).await.expect("creates"));
    let client = bare_sdk::client(engine.http_client());
    for table in ["orders-journal", "orders-snapshot", "orders-head"] {
        let range = [("orders-journal", "seq_nr"), ("orders-snapshot", "skey")].into_iter().find(|(of, _)| *of == table);
        let mut delete = client.delete_item().table_name(table).key("aid", text("__config__"));
        if let Some((_, range)) = range {
            delete = delete.key(range, number(0));
        }
        delete.send().await.expect("deletes");
    }
    let openers = (0..8).map(|_| {
        let builder = Ground::Engine(engine.clone()).builder(&url("")).create(false);
        tokio::spawn(async move { builder.open().await.map(|_| ()) })
    });
    for opener in openers.collect::<Vec<_>>() {
        opener.await.expect("no panic").expect("opens");
    }
    let head = scan(&client, "orders-head").await;
    assert_eq!((head.len(), &head[0]["layout_version"]), (1, &number(1)));
    // A head of another store.
    let mut foreign = head[0].clone();
    foreign.insert("store_id".into(), text("another"));
    put(&client, "orders-head", foreign).await;
    let open_again = async || Ground::Engine(engine.clone()).builder(&url("")).create(false).open().await.map(|_| ());
    let differs = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Unavailable(u)) if u.reason == Reason::Differs);
    assert!(differs(open_again().await));
    client.delete_item().table_name("orders-head").key("aid", text("__config__")).send().await.expect("deletes");
    assert!(differs(open_again().await), "one of three is missing");
}

/// Another opener's records, met while its transaction lands: one or two of three. They are read once more before anybody is told.
#[tokio::test]
async fn records_that_are_met_half_written_are_read_again() {
    let engine = Engine::memory().expect("an engine");
    let half = Half::on(engine.http_client());
    let builder = |http| Ground::Engine(engine.clone()).builder(&format!("{V5}&table=orders")).http_client(http);
    drop(open(builder(engine.http_client())).await);
    let of_head = |item: &serde_json::Value| item["aid"]["S"] == "__config__" && item.get("seq_nr").is_none() && item.get("skey").is_none();
    for two in [true, false] {
        half.lack("BatchGetItem", 1, move |item| of_head(item) == two);
        builder(half.http_client()).create(false).open().await.expect("opens");
        assert_eq!(half.left(), 0);
    }
    half.lack("BatchGetItem", usize::MAX, of_head);
    let differs = builder(half.http_client()).create(false).open().await.map(|_| ());
    assert!(matches!(&differs, Err(Error::Unavailable(u)) if u.reason == Reason::Differs), "{differs:?}");
}

/// As the peer's: a random id, which says nothing of when.
#[tokio::test]
async fn the_store_has_a_random_id() {
    let (_, _, client) = bench(&format!("{V5}&table=orders")).await;
    let head = scan(&client, "orders-head").await.remove(0);
    let id: uuid::Uuid = head["store_id"].as_s().expect("text").parse().expect("an id");
    assert_eq!(
        (id.get_version_num(), id.get_variant(), id.to_string()),
        (4, uuid::Variant::RFC4122, head["store_id"].as_s().expect("text").clone())
    );
}

/// Tables that another made: what they lack is named, each by its table.
#[tokio::test]
async fn tables_that_lack_something_are_told_by_name() {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType,
    };
    let named =
        |name: &str, of: ScalarAttributeType| AttributeDefinition::builder().attribute_name(name).attribute_type(of).build().expect("one");
    let key = |name: &str, of: KeyType| KeySchemaElement::builder().attribute_name(name).key_type(of).build().expect("one");
    let index = |name: &str, range: &str, projection| {
        GlobalSecondaryIndex::builder()
            .index_name(name)
            .key_schema(key("aid", KeyType::Hash))
            .key_schema(key(range, KeyType::Range))
            .projection(Projection::builder().projection_type(projection).build())
            .build()
            .expect("an index")
    };
    let engine = Engine::memory().expect("an engine");
    let client = bare_sdk::client(engine.http_client());
    let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
    let table = |name: &str, hash: &str| {
        let table = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
        table.attribute_definitions(named(hash, text.clone())).key_schema(key(hash, KeyType::Hash))
    };
    let ranged = |name: &str, hash: &str, range: &str, of: &ScalarAttributeType| {
        table(name, hash).attribute_definitions(named(range, of.clone())).key_schema(key(range, KeyType::Range))
    };
    // v5 without the index of past snapshots and without the head's stream.
    ranged("five-journal", "aid", "seq_nr", &number).send().await.expect("creates");
    ranged("five-snapshot", "aid", "skey", &number).send().await.expect("creates");
    table("five-head", "aid").send().await.expect("creates");
    // v3 with keys alone in its journal's index, and without the snapshots'.
    let journal = ranged("three-journal", "pkey", "skey", &text).attribute_definitions(named("aid", text.clone()));
    let journal = journal.attribute_definitions(named("seq_nr", number.clone()));
    journal.global_secondary_indexes(index("journal-aid-index", "seq_nr", ProjectionType::KeysOnly)).send().await.expect("creates");
    ranged("three-snapshot", "pkey", "skey", &text).send().await.expect("creates");
    for (layout, table, expected) in [
        (V5, "five", [("five-snapshot", "snapshot-history-index"), ("five-head", "stream")]),
        (V3, "three", [("three-journal", "projection"), ("three-snapshot", "snapshot-aid-index")]),
    ] {
        let builder = || Ground::Engine(engine.clone()).builder(&format!("{layout}&table={table}"));
        let told: Vec<String> = builder().tables().verify().await.expect("verifies").iter().map(ToString::to_string).collect();
        for (table, what) in expected {
            assert!(told.iter().any(|line| line.contains(table) && line.contains(what)), "{table} {what}: {told:?}");
        }
        assert!(told.iter().all(|line| expected.iter().any(|(table, _)| line.contains(table)) || line.contains("-journal")), "{told:?}");
    }
}
