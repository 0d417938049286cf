//! The index of equinox-js and ours: its indexer feeds our reader, its readers read what our indexer wrote, and both write one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost::{Delivery, Event, From, IndexOptions, Query, Step, Store};
use futures::StreamExt;
use serde_json::{Value, json};

use super::super::name;
use super::Both;

async fn append(store: &Store, stream: &str, types: &[&str]) {
    let events = types.iter().map(|kind| Event::new(kind, "{}").expect("an event"));
    store.streams().append(&name(stream), Step::new(events)).await.expect("appends");
}

async fn catch_up(store: &Store) {
    let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up();
    store.index().expect("an index").run(&options, &|_| ()).await.expect("runs");
}

/// The types of each stream as our feed has them, each event once and in its place.
async fn fed(store: &Store) -> BTreeMap<String, Vec<String>> {
    let mut feed = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    let mut met = BTreeMap::<String, Vec<String>>::new();
    loop {
        match feed.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => {
                let types = met.entry(event.tags[0].to_string()).or_default();
                types.push(event.event_type.to_string());
                assert_eq!(event.version, Some(types.len() as u64), "{}", event.tags[0]);
            }
            _ => return met,
        }
    }
}

/// The same, as equinox-js reads the index.
async fn read_by_js(both: &mut Both, partition: u32) -> (u64, BTreeMap<String, Vec<String>>) {
    let read = both.ask("spans", json!({ "partition": partition })).await.expect("equinox-js reads the index");
    let mut met = BTreeMap::<String, Vec<String>>::new();
    for span in read["spans"].as_array().expect("spans") {
        let types = met.entry(span["p"].as_str().expect("a stream").to_owned()).or_default();
        assert_eq!(span["i"].as_u64(), Some(types.len() as u64), "{span}");
        types.extend(span["c"].as_array().expect("types").iter().map(|kind| kind.as_str().expect("a type").to_owned()));
    }
    (read["epochs"].as_u64().expect("a number"), met)
}

fn span(stream: &str, index: u64, types: &[&str]) -> Value {
    json!({ "p": stream, "i": index, "c": types })
}

#[tokio::test]
async fn the_indexer_of_equinox_js_feeds_our_reader_over_several_epochs() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("&tip_events=3").await;
    let mut expected = BTreeMap::<String, Vec<String>>::new();
    for round in 0..12_u64 {
        let mut spans = Vec::new();
        for stream in ["Cart-a", "Cart-b", "Fav-1"].iter().take(1 + usize::try_from(round % 3).expect("small")) {
            let types = expected.entry((*stream).to_owned()).or_default();
            spans.push(span(stream, types.len() as u64, &["Added", "Noted"]));
            append(&store, stream, &["Added", "Noted"]).await;
            types.extend(["Added", "Noted"].map(str::to_owned));
        }
        both.ask("ingest", json!({ "spans": spans, "cutoff": 300 })).await.expect("equinox-js indexes");
    }
    assert_eq!(fed(&store).await, expected);
    let (epochs, met) = read_by_js(&mut both, 0).await;
    assert!(epochs > 2, "{epochs}");
    assert_eq!(met, expected);
    // The fifth of what it is known to do: its snapshot of the index has texts where it looks for numbers, so that its writer begins at epoch 0
    // again and walks to the open one. Ours reads which epoch that is.
    let known = both.ask("known", json!({})).await.expect("reads");
    assert_eq!(known, json!({ "partitions": ["0"], "epoch": 0 }));
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!(verified.findings, []);
    // Ours goes on where it ended: all that the stream still has is known.
    append(&store, "Cart-a", &["Last"]).await;
    catch_up(&store).await;
    expected.get_mut("Cart-a").expect("a stream").push("Last".into());
    assert_eq!(fed(&store).await, expected);
    assert_eq!(read_by_js(&mut both, 0).await.1, expected, "nothing twice");
}

#[tokio::test]
async fn the_readers_of_equinox_js_read_what_our_indexer_wrote_and_its_writer_goes_on() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("&epoch_bytes=300").await;
    let mut expected = BTreeMap::<String, Vec<String>>::new();
    for round in 0..20_u64 {
        let stream = format!("Cart-{}", round % 4);
        append(&store, &stream, &["Added", "Noted"]).await;
        expected.entry(stream).or_default().extend(["Added", "Noted"].map(str::to_owned));
        if round % 2 == 0 {
            catch_up(&store).await;
        }
    }
    catch_up(&store).await;
    let (epochs, met) = read_by_js(&mut both, 0).await;
    assert!(epochs > 2, "{epochs}");
    assert_eq!(met, expected);
    assert_eq!(both.ask("partitions", json!({})).await.expect("reads"), json!([0]));
    // By turns.
    for round in 0..6_u64 {
        let stream = format!("Cart-{}", round % 4);
        append(&store, &stream, &["More"]).await;
        let types = expected.get_mut(&stream).expect("a stream");
        if round % 2 == 0 {
            both.ask("ingest", json!({ "spans": [span(&stream, types.len() as u64, &["More"])], "cutoff": 300 })).await.expect("indexes");
        } else {
            catch_up(&store).await;
        }
        types.push("More".into());
    }
    assert_eq!(read_by_js(&mut both, 0).await.1, expected);
    assert_eq!(fed(&store).await, expected);
}

#[tokio::test]
async fn a_source_of_equinox_js_sees_every_partition_that_our_indexer_writes() {
    let Some(mut both) = Both::fresh().await else { return };
    let store = both.store("&partitions=3").await;
    for n in 0..12 {
        append(&store, &format!("Cart-{n}"), &["Added"]).await;
    }
    catch_up(&store).await;
    assert_eq!(both.ask("partitions", json!({})).await.expect("reads"), json!([0, 1, 2]));
    let mut streams = 0;
    for partition in 0..3 {
        streams += read_by_js(&mut both, partition).await.1.len();
    }
    assert_eq!((streams, fed(&store).await.len()), (12, 12));
}
