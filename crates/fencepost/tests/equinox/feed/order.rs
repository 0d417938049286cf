//! Orders that an index can have and should not: streams that go on in another partition, holes, entries that nobody can read, a partition
//! that nobody named, a past longer than one run. Nothing is lost by it, and every stream comes in its order.

use super::*;

/// An item of the index by hand: the events of a stream, each at its second.
async fn put_index(opened: &Opened, stream: &str, events: &[(&str, &str)], unfold: Option<&str>) {
    let time = |second: usize| AttributeValue::S(format!("2026-01-02T03:04:{second:02}.000Z"));
    let map = |second: usize, body: &str| {
        let mut map = Item::from([("t".to_owned(), time(second))]);
        if !body.is_empty() {
            map.insert("d".into(), AttributeValue::B(body.as_bytes().to_vec().into()));
        }
        map
    };
    let version = AttributeValue::N(events.len().to_string());
    let unfold = unfold.map(|body| {
        let mut map = map(9, body);
        map.extend([("i".to_owned(), version.clone()), ("c".to_owned(), AttributeValue::S("Snapshotted".into()))]);
        AttributeValue::M(map)
    });
    let table = format!("{}-index", opened.table);
    let item = opened.client.put_item().table_name(table).item("p", AttributeValue::S(stream.into()));
    let item = item.item("i", AttributeValue::N("2147483647".into())).item("n", version.clone());
    let item = item.item("a", AttributeValue::N("1".into())).item("b", AttributeValue::N("0".into()));
    let item = item.item("etag", AttributeValue::S("e".into())).item("u", AttributeValue::L(unfold.into_iter().collect()));
    let item = item.item("c", AttributeValue::L(events.iter().map(|(kind, _)| AttributeValue::S((*kind).into())).collect()));
    let maps = events.iter().enumerate().map(|(at, (_, body))| AttributeValue::M(map(at, body))).collect();
    item.item("e", AttributeValue::L(maps)).send().await.expect("put");
}

/// A partition with several epochs behind it, when the number of partitions is raised: an epoch that is still to be read holds the others back.
#[tokio::test]
async fn streams_that_go_on_in_another_partition_come_in_order_however_many_epochs_are_behind_them() {
    let one = open("orders", "&epoch_bytes=1").await;
    let mut events = 0;
    for round in 0..6 {
        for n in 0..6 {
            put(&one.store, &format!("Cart-{n}"), &["A"]).await;
            events += 1;
            // Met first when an epoch is closed behind it already.
            if round >= 3 {
                put(&one.store, &format!("Late-{n}"), &["A", "B"]).await;
                events += 2;
            }
        }
        catch_up(&one.store).await;
    }
    assert!(index_item(&one, "$AppendsEpoch-0_2").await.is_some(), "several epochs");
    let four = on(one.engine.clone(), "orders", "&partitions=4").await;
    for n in 0..6 {
        put(&four.store, &format!("Cart-{n}"), &["C", "D"]).await;
        put(&four.store, &format!("Late-{n}"), &["C"]).await;
        events += 3;
    }
    catch_up(&four.store).await;
    assert!(index_item(&one, "$AppendsEpoch-1_0").await.is_some() && index_item(&one, "$AppendsEpoch-2_0").await.is_some());
    for parameters in ["", "&feed=types"] {
        let reader = on(one.engine.clone(), "orders", parameters).await;
        let feed = reader.store.feed().expect("a feed");
        let all = from(&*feed, From::Start, Query::all()).await.0;
        in_order(&all.iter().map(|(event, _)| event.clone()).collect::<Vec<_>>());
        assert_eq!(all.len(), events, "{parameters}");
        // From a checkpoint in the middle the rest, and nothing else.
        for at in (0..events).step_by(7) {
            let rest = from(&*feed, From::Checkpoint(all[at].1.clone()), Query::all()).await.0;
            let rest: Vec<_> = rest.into_iter().map(|(event, _)| event.position).collect();
            assert_eq!(rest, all[at + 1..].iter().map(|(event, _)| event.position).collect::<Vec<_>>(), "{parameters} from {at}");
        }
    }
}

/// What the index left out is told by the table where types alone are asked for, too: a rebuild that puts it late comes to nobody new.
#[tokio::test]
async fn a_hole_is_handed_over_by_types_alone_too_and_not_again_when_it_is_put_late() {
    let opened = open("orders", "&tip_events=3&feed=types").await;
    for kind in ["A", "B", "C", "D", "E", "F", "G"] {
        put(&opened.store, "Cart-1", &[kind]).await;
    }
    let bodies = [r#"{"add":[{"p":"Cart-1","i":0,"c":["A","B"]}],"app":[]}"#, r#"{"add":[],"app":[{"p":"Cart-1","i":4,"c":["E"]}]}"#];
    put_index(&opened, "$AppendsEpoch-0_0", &bodies.map(|body| ("Ingested", body)), None).await;
    let feed = opened.store.feed().expect("a feed");
    let mut live = feed.subscribe(From::Start, Query::types(["A", "B", "C", "E", "F", "G"]).expect("a query"));
    let mut met = Vec::new();
    let mut until_caught_up = async || loop {
        let next = tokio::time::timeout(Duration::from_secs(30), live.next()).await.expect("it delivers");
        match next.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => met.push((event.version.expect("a version"), event.event_type.to_string())),
            _ => return std::mem::take(&mut met),
        }
    };
    let of = |pairs: &[(u64, &str)]| pairs.iter().map(|(version, kind)| (*version, (*kind).to_owned())).collect::<Vec<_>>();
    assert_eq!(until_caught_up().await, of(&[(1, "A"), (2, "B"), (3, "C"), (5, "E")]), "without D, which was not asked for");
    assert_eq!(opened.store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 4);
    assert_eq!(until_caught_up().await, of(&[(6, "F"), (7, "G")]));
}

/// One entry that nobody can decode, as aws-sdk-net may leave it: it is told, passed over, and what it named is put again.
#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_nobody_and_a_rebuild_puts_what_it_named() {
    let opened = open("orders", "").await;
    for (stream, kinds) in [("Cart-1", &["A"][..]), ("Cart-2", &["A", "B"]), ("Cart-3", &["A"])] {
        put(&opened.store, stream, kinds).await;
        catch_up(&opened.store).await;
    }
    let mut epoch = index_item(&opened, "$AppendsEpoch-0_0").await.expect("an epoch");
    let Some(AttributeValue::L(events)) = epoch.get_mut("e") else { panic!("events") };
    let Some(AttributeValue::M(event)) = events.get_mut(1) else { panic!("an entry") };
    event.insert("d".into(), AttributeValue::B(vec![1, 2, 3, 4].into()));
    event.insert("D".into(), AttributeValue::N("2".into()));
    opened.client.put_item().table_name("orders-index").set_item(Some(epoch)).send().await.expect("put");
    let other = on(opened.engine.clone(), "orders", "").await;
    let (store, index) = (&other.store, other.store.index().expect("an index"));
    let streams = |all: &[Recorded]| all.iter().map(|event| event.tags[0].to_string()).collect::<Vec<_>>();
    assert_eq!(streams(&fed(store, Query::all()).await), ["Cart-1", "Cart-3"]);
    let second = store.streams().read(&name("Cart-2"), Default::default()).next().await.expect("one").expect("reads");
    assert!(!store.feed().expect("a feed").shows(second.position).await.expect("looks"));
    let findings = index.verify(&|_| ()).await.expect("verifies").findings;
    let told: Vec<_> = findings.iter().map(|finding| (finding.item.as_str(), finding.problem.as_str())).collect();
    assert_eq!(told[0], ("$AppendsEpoch-0_0", "event 1 cannot be read: `index rebuild` puts again what it named"), "{told:?}");
    assert_eq!(told[1..], [("Cart-2", "events 0 to 1 are not in the index")]);
    index.status().await.expect("tells");
    // The indexer goes on, also with a stream of which it cannot know how far it is.
    put(store, "Cart-3", &["B"]).await;
    assert_eq!(catch_up(store).await.commits, 1);
    assert_eq!(index.rebuild(&|_| ()).await.expect("rebuilds").appended, 2);
    let all = fed(store, Query::all()).await;
    in_order(&all);
    assert_eq!(all.len(), 5);
    assert!(store.feed().expect("a feed").shows(second.position).await.expect("looks"));
    let findings = index.verify(&|_| ()).await.expect("verifies").findings;
    assert_eq!(
        findings.iter().map(|finding| finding.item.as_str()).collect::<Vec<_>>(),
        ["$AppendsEpoch-0_0"],
        "it stays, and lacks nothing"
    );
}

/// equinox-js says nothing of epoch 0: once another partition is named, its own readers do not see partition 0 any more.
#[tokio::test]
async fn partition_0_is_read_though_only_others_are_named() {
    let opened = open("orders", "").await;
    for stream in ["Cart-1", "Cart-2"] {
        put(&opened.store, stream, &["A"]).await;
    }
    let span = |stream: &str| format!(r#"{{"add":[{{"p":"{stream}","i":0,"c":["A"]}}],"app":[]}}"#);
    put_index(&opened, "$AppendsEpoch-0_0", &[("Ingested", &span("Cart-1"))], None).await;
    put_index(&opened, "$AppendsEpoch-1_0", &[("Ingested", &span("Cart-2"))], None).await;
    put_index(&opened, "$AppendsIndex-0", &[("Started", r#"{"partition":1,"epoch":0}"#)], Some(r#"{"active":{"1":0}}"#)).await;
    assert_eq!(fed(&opened.store, Query::all()).await.len(), 2);
    let verified = opened.store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!((verified.findings, verified.indexed), (Vec::new(), 2));
    put(&opened.store, "Cart-1", &["B"]).await;
    assert_eq!(catch_up(&opened.store).await.commits, 1, "and nothing is put again");
    audit(&opened.store, 3).await;
}

/// A stream whose last events are in the first of many epochs: what a run has read when its time is up, the next one does not read again.
#[tokio::test]
async fn looking_back_goes_on_where_the_time_was_up() {
    let opened = open("orders", "&epoch_bytes=1").await;
    put(&opened.store, "Old-1", &["A"]).await;
    for n in 0..24 {
        put(&opened.store, &format!("Cart-{n}"), &["A"]).await;
        catch_up(&opened.store).await;
    }
    assert!(index_item(&opened, "$AppendsEpoch-0_10").await.is_some(), "many epochs");
    put(&opened.store, "Old-1", &["B"]).await;
    let image = json_of(&opened.item("Old-1", 2_147_483_647).await.expect("a Tip"));
    let faults = Faults::new(opened.engine.http_client(), 1);
    let cold = Store::builder("memory:?layout=equinox&table=orders&epoch_bytes=1&partitions=1").expect("a good URL");
    let cold = cold.http_client(faults.http_client()).open().await.expect("opens");
    let index = cold.index().expect("an index");
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 12, "every run begins anew");
        let gate = Gate::new();
        // As many requests as one run has time for: less than half of the epochs.
        faults.script(Rule::on("Query").nth(6).pause_before(&gate));
        tokio::select! {
            taken = index.take(std::slice::from_ref(&image)) => { assert_eq!(taken.expect("indexes").commits, 1); break; }
            () = gate.reached(1) => {}
        }
        faults.calm();
    }
    assert!(runs > 1, "it takes several");
    audit(&opened.store, 26).await;
}

/// Of a stream of keys, or of old images, every record would be passed over, and the index said to be caught up.
#[tokio::test]
async fn a_stream_without_new_images_is_refused_before_anything_is_read() {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification, StreamViewType,
    };
    for (view, good) in [
        (StreamViewType::KeysOnly, false),
        (StreamViewType::OldImage, false),
        (StreamViewType::NewImage, true),
        (StreamViewType::NewAndOldImages, true),
    ] {
        // The index is there, the table is somebody else's.
        let opened = open("other", "&index=orders-index").await;
        let attribute = |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().expect("built");
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("built");
        let table = opened.client.create_table().table_name("orders").billing_mode(BillingMode::PayPerRequest);
        let table = table.attribute_definitions(attribute("p", ScalarAttributeType::S)).key_schema(key("p", KeyType::Hash));
        let table = table.attribute_definitions(attribute("i", ScalarAttributeType::N)).key_schema(key("i", KeyType::Range));
        let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(view.clone()).build().expect("built");
        table.stream_specification(stream).send().await.expect("created");
        let store = Store::builder("memory:?layout=equinox&table=orders").expect("a good URL").create(false);
        let store = store.http_client(opened.engine.http_client()).open().await.expect("opens");
        put(&store, "Cart-1", &["A"]).await;
        let ran = store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await;
        match ran {
            Ok(progress) => assert!(good && progress.commits == 1, "{view}: {progress:?}"),
            Err(error) => assert!(!good && error.to_string().contains("without new images"), "{view}: {error}"),
        }
    }
}

/// A name that F# takes and that is too long here: its events are indexed, for others to read, and passed over here, with a word.
#[tokio::test]
async fn a_name_that_is_too_long_here_stops_neither_indexer_nor_feed() {
    let opened = open("orders", "").await;
    put(&opened.store, "Cart-1", &["A", "B"]).await;
    let mut image = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
    let long = format!("Cart-{}", "x".repeat(1_100));
    image.insert("p".into(), AttributeValue::S(long.clone()));
    opened.client.put_item().table_name("orders").set_item(Some(image.clone())).send().await.expect("put");
    // Its first event was never announced: it is looked for.
    image.insert("a".into(), AttributeValue::N("1".into()));
    let cart = json_of(&opened.item("Cart-1", 2_147_483_647).await.expect("a Tip"));
    let progress = opened.store.index().expect("an index").take(&[json_of(&image), cart]).await.expect("indexes");
    assert_eq!(progress.commits, 4);
    let entry = &entries(&opened, "$AppendsEpoch-0_0").await[0].1["add"];
    assert_eq!((entry[0]["p"].as_str(), entry[0]["i"].as_u64(), &entry[0]["c"]), (Some(long.as_str()), Some(0), &json!(["A", "B"])));
    assert_eq!(fed(&opened.store, Query::all()).await.len(), 2);
}

/// An event that the index names twice is told by a verify: consumers of the peer's get it twice.
#[tokio::test]
async fn what_is_in_the_index_twice_is_told() {
    let opened = open("orders", "").await;
    put(&opened.store, "Cart-1", &["A", "B", "C"]).await;
    let bodies = [r#"{"add":[{"p":"Cart-1","i":0,"c":["A","B"]}],"app":[]}"#, r#"{"add":[],"app":[{"p":"Cart-1","i":1,"c":["B","C"]}]}"#];
    put_index(&opened, "$AppendsEpoch-0_0", &bodies.map(|body| ("Ingested", body)), None).await;
    let findings = opened.store.index().expect("an index").verify(&|_| ()).await.expect("verifies").findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].item.as_str(), findings[0].problem.as_str()), ("Cart-1", "1 of the events 1 to 2 are in the index twice"));
    in_order(&fed(&opened.store, Query::all()).await);
}

/// A checkpoint in the middle of an entry, and then an entry of another partition that was indexed earlier by its clock and comes late. What was
/// begun is ended first, since a checkpoint has room for one entry that was handed over in part.
#[tokio::test]
async fn a_feed_that_stopped_within_an_entry_ends_it_first_whatever_another_partition_has() {
    let opened = open("orders", "").await;
    for stream in ["Cart-1", "Cart-2", "Cart-3"] {
        put(&opened.store, stream, &["A", "B", "C"]).await;
    }
    let span = |stream: &str| format!(r#"{{"add":[{{"p":"{stream}","i":0,"c":["A","B","C"]}}],"app":[]}}"#);
    // Its second entry: what comes late is in the first second of the other partition.
    put_index(&opened, "$AppendsEpoch-0_0", &[("Ingested", &span("Cart-1")), ("Ingested", &span("Cart-2"))], None).await;
    let feed = opened.store.feed().expect("a feed");
    let (mut place, mut met) = (From::Start, Vec::new());
    while met.len() < 9 {
        let next = feed.subscribe(place.clone(), Query::all()).next().await.expect("never ends").expect("delivers");
        let Delivery::Event { event, checkpoint } = next else { panic!("{met:?}, and then {next:?}") };
        met.push(format!("{} {}", event.tags[0], event.event_type));
        place = From::Checkpoint(checkpoint);
        if met.len() == 4 {
            put_index(&opened, "$AppendsEpoch-1_0", &[("Ingested", &span("Cart-3"))], None).await;
            put_index(&opened, "$AppendsIndex-0", &[("Started", r#"{"partition":1,"epoch":0}"#)], Some(r#"{"active":{"1":0}}"#)).await;
        }
    }
    let expected = ["Cart-1", "Cart-2", "Cart-3"].map(|stream| ["A", "B", "C"].map(|kind| format!("{stream} {kind}")));
    assert_eq!(met, expected.concat());
    assert!(from(&*feed, place, Query::all()).await.0.is_empty());
}
