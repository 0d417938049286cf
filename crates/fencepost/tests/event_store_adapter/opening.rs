//! Opening v5: one configuration for all who open, and tables that do not belong together.

use fencepost::{Engine, Error, Reason};

use super::half::Half;
use super::support::{Ground, open};
use super::{V5, bare_sdk, bench, number, put, scan, text};

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
