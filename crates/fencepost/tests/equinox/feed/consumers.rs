//! Who follows the feed: consumers and their checkpoints, ours and Propulsion's, copies, what is damaged or archived.

use super::*;

#[tokio::test]
async fn consumers_and_new_partitions_and_the_order_across_them() {
    let engine = Engine::memory().expect("an engine");
    let open = |parameters: &str| {
        let url = format!("memory:?layout=equinox&table=orders{parameters}");
        let http = engine.http_client();
        async move { Store::builder(&url).expect("a good URL").http_client(http).open().await.expect("opens") }
    };
    let one = open("").await;
    for n in 0..8 {
        put(&one, &format!("Cart-{n}"), &["A"]).await;
    }
    catch_up(&one).await;
    let consumer = one.consumer("mailer").expect("a consumer").lease(Duration::from_millis(200));
    let met = std::sync::Mutex::new(Vec::new());
    let handle = |handed: Handed| {
        met.lock().expect("a lock").push((handed.tags[0].to_string(), handed.version));
        futures::future::ok::<_, String>(())
    };
    let until = async |count: usize| {
        while met.lock().expect("a lock").len() < count {
            Env::system().sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = consumer.run_until(handle, until(8)).await.expect("runs");
    // From now on by four partitions: those who read all of them find each stream's events behind those that it had before.
    let four = open("&partitions=4").await;
    for n in 0..8 {
        put(&four, &format!("Cart-{n}"), &["B"]).await;
    }
    catch_up(&four).await;
    in_order(&fed(&one, Query::all()).await);
    assert_eq!(fed(&one, Query::all()).await.len(), 16);
    let _ = consumer.run_until(handle, until(16)).await.expect("runs");
    assert_eq!(met.lock().expect("a lock").len(), 16, "each once");
}

#[tokio::test]
async fn checkpoints_of_propulsions_consumers_are_read_and_written_for_them() {
    let golden = file("checkpoints");
    let opened = open("orders", "&index=checkpoints").await;
    for item in &golden.tables()["checkpoints"] {
        opened.client.put_item().table_name("checkpoints").set_item(Some(item.clone())).send().await.expect("the item is put");
    }
    let index = opened.store.index().expect("an index");
    let tip = async |group: &str| {
        let (hash, range) = (AttributeValue::S(format!("$ReaderCheckpoint-dynamoStore_0_{group}")), AttributeValue::N("2147483647".into()));
        let got = opened.client.get_item().table_name("checkpoints").key("p", hash).key("i", range).send().await.expect("it is read");
        let item = got.item.expect("it is there");
        let unfold = item["u"].as_l().expect("a list")[0].as_m().expect("a map")["d"].as_b().expect("bytes").clone();
        let types: Vec<_> = bodies(&item).into_iter().map(|(kind, _)| kind).collect();
        (serde_json::from_slice::<Value>(unfold.as_ref()).expect("plain JSON")["state"]["pos"].clone(), types)
    };
    for (group, position) in [("hourly", 3_000_017_u64), ("fast", 8), ("forced", 2_000_001)] {
        let found = index.peer_checkpoint(group).await.expect("reads").expect("it is there");
        let ours = format!("ours-{group}");
        index.save_peer_checkpoint(&ours, &found, Duration::from_secs(3600)).await.expect("writes");
        assert_eq!(tip(&ours).await, (json!(position), vec!["Started".to_owned()]));
        assert_eq!(index.peer_checkpoint(&ours).await.expect("reads"), Some(found));
    }
    // Before it is due a snapshot alone; of F#'s own too.
    let far = index.peer_checkpoint("hourly").await.expect("reads").expect("it is there");
    index.save_peer_checkpoint("ours-fast", &far, Duration::from_secs(3600)).await.expect("writes");
    assert_eq!(tip("ours-fast").await, (json!(3_000_017), vec!["Started".to_owned()]));
    index.save_peer_checkpoint("fast", &far, Duration::from_secs(1)).await.expect("writes");
    assert_eq!(tip("fast").await.1.last().expect("events"), "Checkpointed");
    assert_eq!(index.peer_checkpoint("nobody").await.expect("reads"), None);
    assert!(index.peer_checkpoint("a_b").await.is_err());
}

#[tokio::test]
async fn events_are_copied_to_and_from_the_ledger_and_from_event_store_adapter_and_what_does_not_fit_is_said_before() {
    let at = |parameters: &str| {
        let url = format!("memory:?{parameters}");
        async move { Store::builder(&url).expect("a good URL").open().await.expect("opens") }
    };
    let (ledger, equinox, back) = (at("").await, at("layout=equinox&tip_events=3").await, at("").await);
    for n in 0..10 {
        put(&ledger, &format!("Cart-{}", n % 3), &["A", "B"][..1 + n % 2]).await;
    }
    let copy = |from: &Store, to: &Store| Copy::new(from, to, "one");
    let there = copy(&ledger, &equinox);
    assert_eq!(there.misfits(&|_| ()).await.expect("looks").events, 0);
    assert_eq!(there.run(&|_| ()).await.expect("copies").events, 15);
    assert!(there.compare(&|_| ()).await.expect("compares").is_equal());
    catch_up(&equinox).await;
    audit(&equinox, 15).await;
    let again = copy(&equinox, &back);
    assert_eq!(again.run(&|_| ()).await.expect("copies").events, 15);
    assert!(again.compare(&|_| ()).await.expect("compares").is_equal());
    let ids = |events: Vec<Recorded>| events.into_iter().map(|event| (event.id, event.data)).collect::<BTreeSet<_>>();
    assert_eq!(ids(fed(&ledger, Query::all()).await), ids(fed(&back, Query::all()).await), "ids and bodies stay");
    for generation in ["v3", "v5"] {
        let adapter = at(&format!("layout=event-store-adapter-{generation}")).await;
        for n in 0..6 {
            // One to three a commit.
            let events = (0..=n % 3).map(|n| Event::new("A", format!("{{\"n\":{n}}}")).expect("an event"));
            let step = Step::new(events).snapshot(Snapshot::new("snapshot", "{}"));
            adapter.streams().append(&name(&format!("cart-{}", n % 2)), step).await.expect("appends");
        }
        catch_up(&adapter).await;
        let equinox = at("layout=equinox").await;
        let there = copy(&adapter, &equinox);
        assert_eq!(there.misfits(&|_| ()).await.expect("looks").events, 0);
        assert_eq!(there.run(&|_| ()).await.expect("copies").events, 12);
        let compared = there.compare(&|_| ()).await.expect("compares");
        assert!(compared.is_equal() && compared.source == 12, "{generation}: {compared:?}");
        catch_up(&equinox).await;
        audit(&equinox, 12).await;
    }
    put(&ledger, "nodash", &["A"]).await;
    put(&ledger, "$own-1", &["A"]).await;
    let two = Event::new("A", "{}").and_then(|event| event.tag("Cart-1")).and_then(|event| event.tag("Cart-2")).expect("an event");
    ledger.log().expect("a log").append(fencepost::Append::new([two])).await.expect("appends");
    let misfits = copy(&ledger, &at("layout=equinox").await).misfits(&|_| ()).await.expect("looks");
    assert_eq!((misfits.looked_at, misfits.events, misfits.why.len()), (18, 3, 3), "{misfits:?}");
}

/// A source of F#'s that starts from the tail saves the place behind the last entry of a closed epoch, and stays there for ever.
#[tokio::test]
async fn a_checkpoint_behind_a_closed_epoch_goes_on_with_the_next() {
    let opened = with_index("hand-feed", "hfeed48", "&feed=types").await;
    let unfold = r#"{"config":{"checkpointFreqS":300},"state":{"at":"2026-11-15T20:40:35.348Z","nextCheckpointDue":"2026-11-15T20:45:35.348Z","pos":"2"}}"#;
    let map = [
        ("i", AttributeValue::N("1".into())),
        ("c", AttributeValue::S("Snapshotted".into())),
        ("t", AttributeValue::S("2026-11-15T20:40:35.348Z".into())),
        ("d", AttributeValue::B(unfold.as_bytes().to_vec().into())),
    ];
    let map = AttributeValue::M(map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    let item = opened.client.put_item().table_name("hfeed48-index").item("p", AttributeValue::S("$ReaderCheckpoint-0_js".into()));
    let item = item.item("i", AttributeValue::N("2147483647".into())).item("n", AttributeValue::N("1".into()));
    let item = item.item("etag", AttributeValue::S("e".into())).item("u", AttributeValue::L(vec![map]));
    item.item("e", AttributeValue::L(Vec::new())).item("c", AttributeValue::L(Vec::new())).send().await.expect("put");
    let index = opened.store.index().expect("an index");
    let behind = index.peer_checkpoint("js").await.expect("reads").expect("in the dialect of JavaScript");
    let feed = opened.store.feed().expect("a feed");
    let (none, head) = from(&*feed, From::Checkpoint(behind), Query::all()).await;
    assert!(none.is_empty());
    let (_, now) = from(&*feed, From::Now, Query::all()).await;
    let (_, all) = from(&*feed, From::Start, Query::all()).await;
    assert_eq!((&head, &now), (&all, &all), "all of them at the next epoch");
    put(&opened.store, "Cart-z", &["Z"]).await;
    catch_up(&opened.store).await;
    assert_eq!(from(&*feed, From::Checkpoint(head), Query::all()).await.0.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_decoded_is_left_out_and_what_was_archived_is_found() {
    let opened = open("orders", "&tip_events=2").await;
    for kind in ["A", "B", "C", "D", "E"] {
        put(&opened.store, "Cart-1", &[kind]).await;
    }
    catch_up(&opened.store).await;
    // As aws-sdk-net once left them: bytes that are no Brotli.
    let mut calf = opened.item("Cart-1", 2).await.expect("a calf");
    let Some(AttributeValue::L(events)) = calf.get_mut("e") else { panic!("events") };
    let Some(AttributeValue::M(event)) = events.get_mut(0) else { panic!("an event") };
    event.insert("d".into(), AttributeValue::B(vec![1, 2, 3, 4].into()));
    event.insert("D".into(), AttributeValue::N("2".into()));
    opened.client.put_item().table_name("orders").set_item(Some(calf)).send().await.expect("put");
    let types = async || fed(&opened.store, Query::all()).await.iter().map(|event| event.event_type.to_string()).collect::<Vec<_>>();
    assert_eq!(types().await, ["A", "B", "D", "E"]);
    let first = opened.item("Cart-1", 0).await.expect("a calf");
    let (hash, range) = (AttributeValue::S("Cart-1".into()), AttributeValue::N("0".into()));
    opened.client.delete_item().table_name("orders").key("p", hash).key("i", range).send().await.expect("deleted");
    assert_eq!(types().await, ["D", "E"], "pruned: nobody waits for it");
    let archive = on(opened.engine.clone(), "orders-archive", "").await;
    archive.client.put_item().table_name("orders-archive").set_item(Some(first)).send().await.expect("put");
    assert_eq!(types().await, ["A", "B", "D", "E"]);
}

/// Idle, then many at once; one writes here and another there; readers of both, from the start and of one stream, while an indexer runs.
#[tokio::test]
async fn two_handles_see_each_others_events_while_an_indexer_runs() {
    let one = open("orders", "&tip_events=5&epoch_bytes=2000&partitions=2").await;
    let two = on(one.engine.clone(), "orders", "&tip_events=5").await;
    let index = one.store.index().expect("an index");
    let options = quickly();
    let readers =
        [(&one.store, Query::all(), 120), (&two.store, Query::all(), 120), (&two.store, Query::tag("Cart-1").expect("a query"), 24)];
    let read = readers.into_iter().map(|(store, query, count)| async move {
        let mut feed = store.feed().expect("a feed").subscribe(From::Start, query);
        let mut met = Vec::new();
        while met.len() < count {
            let next = tokio::time::timeout(Duration::from_secs(30), feed.next()).await.expect("it delivers");
            if let Delivery::Event { event, .. } = next.expect("never ends").expect("delivers") {
                met.push(*event);
            }
        }
        in_order(&met);
    });
    let write = async {
        for burst in 0..2 {
            Env::system().sleep(Duration::from_millis(60)).await;
            for n in 0..30 {
                let store = if n % 2 == 0 { &one.store } else { &two.store };
                put(store, &format!("Cart-{}", n % 5), if burst == 0 { &["A"] } else { &["A", "B", "C"] }).await;
            }
        }
    };
    tokio::select! {
        ended = index.run(&options, &|_| ()) => panic!("{ended:?}"),
        _ = async { futures::join!(futures::future::join_all(read), write) } => {}
    }
    audit(&two.store, 120).await;
}

/// Where Propulsion wrote the index, our indexer goes on: behind its spans, behind its closed epochs, in each of its partitions; and our
/// checkpoints are its positions.
#[tokio::test]
async fn our_indexer_and_our_consumers_go_on_where_propulsions_were() {
    let opened = with_index("feed", "feed", "").await;
    let (store, index) = (&opened.store, opened.store.index().expect("an index"));
    let reads = &file("feed").json["reads"];
    let position = async |checkpoint: &Checkpoint, group: &str| {
        index.save_peer_checkpoint(group, checkpoint, Duration::from_secs(3600)).await.expect("writes");
        let item = index_item(&opened, &format!("$ReaderCheckpoint-dynamoStore_0_{group}")).await.expect("it is there");
        let unfold = item["u"].as_l().expect("a list")[0].as_m().expect("a map")["d"].as_b().expect("bytes").clone();
        serde_json::from_slice::<Value>(unfold.as_ref()).expect("plain JSON")["state"]["pos"].clone()
    };
    let feed = store.feed().expect("a feed");
    let head = from(&*feed, From::Start, Query::all()).await.1;
    let tail = from(&*feed, From::Now, Query::all()).await.1;
    assert_eq!(position(&head, "head").await, reads["withDataPositions"]["0"]);
    assert_eq!(position(&tail, "tail").await, reads["startFromTailPositions"]["0"]);
    let demo = index.peer_checkpoint("demo").await.expect("reads").expect("it is there");
    assert_eq!(position(&demo, "again").await, reads["durablePositions"]["0"]);
    assert!(from(&*feed, From::Checkpoint(demo.clone()), Query::all()).await.0.is_empty());
    // What is in the index comes by the stream once more, and is not put again.
    put(store, "FeedA-1", &["Noted"]).await;
    put(store, "FeedZ-1", &["Noted", "Noted"]).await;
    assert_eq!(catch_up(store).await.commits, 3);
    audit(store, 15).await;
    let last = entries(&opened, "$AppendsEpoch-0_0").await.pop().expect("entries").1;
    assert_eq!(last["add"], json!([{ "p": "FeedZ-1", "i": 0, "c": ["Noted", "Noted"] }]));
    assert_eq!(last["app"], json!([{ "p": "FeedA-1", "i": 5, "c": ["Noted"] }]));
    let rest = from(&*feed, From::Checkpoint(demo), Query::all()).await;
    assert_eq!(rest.0.len(), 3);
    assert_eq!(position(&rest.1, "on").await, json!(3));
    for (of, table, epoch) in [("index-ingest", "idx-ingest", "$AppendsEpoch-0_0"), ("index-close", "idx-close", "$AppendsEpoch-0_3")] {
        let opened = open("orders", &format!("&index={table}&feed=types")).await;
        for item in &file(of).tables()[table] {
            opened.client.put_item().table_name(table).set_item(Some(item.clone())).send().await.expect("the item is put");
        }
        let before = fed(&opened.store, Query::all()).await.len();
        put(&opened.store, "New-1", &["A", "B"]).await;
        assert_eq!(catch_up(&opened.store).await.commits, 2, "{of}");
        let all = fed(&opened.store, Query::all()).await;
        assert_eq!(all.len(), before + 2, "{of}");
        assert_eq!(all.last().map(|event| event.tags[0].to_string()).as_deref(), Some("New-1"), "{of}");
        let (hash, range) = (AttributeValue::S(epoch.into()), AttributeValue::N("2147483647".into()));
        let got = opened.client.get_item().table_name(table).key("p", hash).key("i", range).send().await.expect("it is read");
        let last = bodies(&got.item.expect("the active epoch")).pop().expect("entries").1;
        assert_eq!(last["add"], json!([{ "p": "New-1", "i": 0, "c": ["A", "B"] }]), "{of}");
    }
}
