//! What was pruned and is kept in an archive, whose last events may be in a Tip of its own: read alike either way, loaded, and fed from.

use fencepost::{LoadOptions, Query, Snapshot, StreamReadOptions, StreamStoreExt};

use super::feed::{catch_up, fed, on, open};
use super::{name, step};

/// Copied whole when its last events were in the Tip, then written on and pruned: the archive's calves do not reach, and of a short stream
/// it has none.
#[tokio::test]
async fn what_the_archives_own_tip_has_is_read_either_way_and_fed() {
    // Events when it was copied, in all, and the version before which it is pruned.
    for (copied, all, before) in [(6, 9, 7), (2, 6, 3), (2, 6, 5), (1, 3, 3), (3, 7, 5), (5, 9, 5)] {
        let opened = open("orders", "&tip_events=2").await;
        let streams = opened.store.streams();
        let archive = on(opened.engine.clone(), "orders-archive", "").await;
        for n in 0..all {
            if n == copied {
                for item in opened.client.scan().table_name("orders").send().await.expect("scans").items() {
                    archive.client.put_item().table_name("orders-archive").set_item(Some(item.clone())).send().await.expect("put");
                }
            }
            streams.append(&name("Cart-1"), step(&[&n.to_string()])).await.expect("appends");
        }
        catch_up(&opened.store).await;
        let first = opened.store.equinox().expect("equinox").prune(&name("Cart-1"), before).await.expect("prunes").first;
        assert!(first > 1, "something is pruned");
        let told = format!("{copied} of {all}, pruned before {before}");
        let versions = |events: &[fencepost::Recorded]| events.iter().filter_map(|event| event.version).collect::<Vec<_>>();
        if copied + 1 < first {
            // Not all of it was kept: said, and never a shorter state.
            assert!(streams.load(&name("Cart-1"), LoadOptions::default()).await.is_err(), "{told}");
            continue;
        }
        let whole: Vec<u64> = (1..=all).collect();
        let loaded = streams.load(&name("Cart-1"), LoadOptions::default()).await.unwrap_or_else(|error| panic!("{told}: {error}"));
        assert_eq!(versions(&loaded.events), whole, "{told}");
        for after in 0..all {
            let forwards = streams.read_stream(&name("Cart-1"), StreamReadOptions::default().after(after)).await;
            assert_eq!(versions(&forwards.unwrap_or_else(|error| panic!("{told}: {error}"))), whole[after as usize..], "{told}");
            let backwards = streams.read_stream(&name("Cart-1"), StreamReadOptions::default().after(all + 1 - after).backwards()).await;
            let backwards = versions(&backwards.unwrap_or_else(|error| panic!("{told}, backwards: {error}")));
            assert_eq!(backwards, (1..=all - after).rev().collect::<Vec<_>>(), "{told}, from {after} before the end");
        }
        assert_eq!(versions(&fed(&opened.store, Query::all()).await), whole, "{told}");
    }
}

/// F#'s copy of the last event bears no mark that it is one: where the event itself is pruned, it is what there is.
#[tokio::test]
async fn the_last_event_that_the_peer_kept_is_loaded_though_it_was_pruned() {
    let opened = super::golden::open("orders", "").await;
    let streams = opened.store.streams();
    streams.append(&name("Cart-1"), step(&["a", "b"]).keep_last()).await.expect("appends");
    let mut tip = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
    let Some(aws_sdk_dynamodb::types::AttributeValue::L(unfolds)) = tip.get_mut("u") else { panic!("unfolds") };
    let Some(aws_sdk_dynamodb::types::AttributeValue::M(unfold)) = unfolds.get_mut(0) else { panic!("an unfold") };
    assert!(unfold.remove("l").is_some());
    opened.client.put_item().table_name(&opened.table).set_item(Some(tip)).send().await.expect("put");
    let other = opened.other("").await;
    other.equinox().expect("equinox").prune(&name("Cart-1"), 9).await.expect("prunes");
    let loaded = other.streams().load(&name("Cart-1"), LoadOptions::default().latest()).await.expect("as F# loads it");
    let last = loaded.events.first().expect("the last event");
    assert_eq!((loaded.version, last.version, last.data.as_ref()), (2, Some(2), &br#"{"text":"b"}"#[..]));
    // Two of them are no copy of one event.
    let two = step(&["c"]).snapshot(Snapshot::new("A", "{}")).snapshot(Snapshot::new("B", "{}"));
    other.streams().append(&name("Cart-1"), two).await.expect("appends");
    other.equinox().expect("equinox").prune(&name("Cart-1"), 9).await.expect("prunes");
    assert!(other.streams().load(&name("Cart-1"), LoadOptions::default().latest()).await.is_err());
}

/// A prune deletes calves between two pages of a load: what is there is read once more, and not called damaged.
#[tokio::test]
async fn a_load_that_a_prune_overtakes_is_repeated() {
    use fencepost::testing::{Faults, Gate, Rule};
    let opened = open("orders", "&tip_events=1").await;
    for n in 0..8 {
        opened.store.streams().append(&name("Cart-1"), step(&[&n.to_string()])).await.expect("appends");
    }
    let faults = Faults::new(opened.engine.http_client(), 1);
    let reader = fencepost::Store::builder("memory:?layout=equinox&table=orders&page=2&missing=ignored").expect("a good URL");
    let reader = reader.http_client(faults.http_client()).open().await.expect("opens").streams();
    let stream = name("Cart-1");
    let versions = |events: Vec<fencepost::Recorded>| events.iter().filter_map(|event| event.version).collect::<Vec<_>>();
    let before_the_second_page = |before: u64| {
        let gate = Gate::new();
        faults.script(Rule::on("Query").holding("ExclusiveStartKey").nth(1).pause_before(&gate));
        let (equinox, stream) = (opened.store.equinox().expect("equinox"), &stream);
        async move {
            gate.reached(1).await;
            equinox.prune(stream, before).await.expect("prunes");
            gate.open();
        }
    };
    let prune = before_the_second_page(5);
    let (loaded, ()) = futures::join!(reader.load(&stream, LoadOptions::default()), prune);
    assert_eq!(versions(loaded.expect("loads").events), [5, 6, 7, 8]);
    // What was handed over already stays so, and what is there follows.
    faults.calm();
    let prune = before_the_second_page(8);
    let (read, ()) = futures::join!(reader.read_stream(&stream, StreamReadOptions::default()), prune);
    assert_eq!(versions(read.expect("reads")), [5, 6, 8]);
}

/// Names of unfolds that only a peer would give are asked for as they are.
#[tokio::test]
async fn unfolds_of_the_peers_are_loaded_whatever_their_name() {
    let opened = super::golden::open("orders", "").await;
    let streams = opened.store.streams();
    streams.append(&name("Cart-1"), step(&["a"]).snapshot(Snapshot::new("Snapshotted", "{\"n\":1}"))).await.expect("appends");
    let theirs = "Zustand, gefaltet (v2)";
    let mut tip = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
    let Some(aws_sdk_dynamodb::types::AttributeValue::L(unfolds)) = tip.get_mut("u") else { panic!("unfolds") };
    let Some(aws_sdk_dynamodb::types::AttributeValue::M(unfold)) = unfolds.get_mut(0) else { panic!("an unfold") };
    unfold.insert("c".into(), aws_sdk_dynamodb::types::AttributeValue::S(theirs.into()));
    opened.client.put_item().table_name(&opened.table).set_item(Some(tip)).send().await.expect("put");
    let loaded = opened.other("").await.streams().load(&name("Cart-1"), LoadOptions::default().snapshot([theirs])).await.expect("loads");
    assert_eq!((loaded.snapshots, loaded.events.len()), (vec![Snapshot::at(theirs, 1, "{\"n\":1}")], 0));
}
