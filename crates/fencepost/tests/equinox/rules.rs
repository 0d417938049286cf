//! The rules under which the tables are shared with the F# and the JavaScript library, each with its own test.

use aws_sdk_dynamodb::types::AttributeValue;
use fencepost::{Error, Event, Expect, LoadOptions, Metadata, Snapshot, Step, StreamReadOptions, StreamStoreExt};
use futures::StreamExt;

use super::golden::{self, Item, Opened, file};
use super::{list, name, step};

const TIP: u64 = 2_147_483_647;

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}
fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
fn n(item: &Item, name: &str) -> u64 {
    item[name].as_n().expect("a number").parse().expect("a number")
}

/// As somebody else would change the Tip.
async fn update(opened: &Opened, stream: &str, expression: &str, values: &[(&str, AttributeValue)]) {
    let update = opened.client.update_item().table_name(&opened.table).key("p", text(stream)).key("i", number(TIP));
    let update = update.update_expression(expression);
    let update = values.iter().fold(update, |update, (name, value)| update.expression_attribute_values(*name, value.clone()));
    update.send().await.expect("it is changed");
}

#[tokio::test]
async fn write_the_intersection() {
    let opened = golden::open("orders", "&tip_events=2").await;
    let streams = opened.store.streams();
    let long = format!("{{\"text\":\"{}\"}}", "again and again ".repeat(20));
    let mut meta = Metadata::default();
    (meta.correlation, meta.causation) = (Some("c1".into()), Some("e1".into()));
    let event = Event::new("Noted", long.clone()).expect("an event").meta(meta);
    let with = Step::new([event, Event::new("Emptied", "").expect("an event")]).snapshot(Snapshot::new("Snapshotted", "{\"n\":2}"));
    streams.append(&name("Cart-1"), with).await.expect("appends");
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    let mut names: Vec<_> = tip.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c", "e", "etag", "i", "k", "n", "p", "u"]);
    assert_eq!((n(&tip, "n"), n(&tip, "a"), n(&tip, "b")), (2, 2, 0));
    assert_eq!(tip["etag"].as_s().expect("a text").len(), 22);
    let first = list(&tip, "e")[0].as_m().expect("a map").clone();
    assert_eq!((first["x"].as_s().expect("x").as_str(), first["y"].as_s().expect("y").as_str()), ("c1", "e1"));
    assert_eq!(n(&first, "D"), 2, "Brotli");
    assert!(first["d"].as_b().expect("bytes").as_ref().len() < 100 && !first.contains_key("m"));
    let time = first["t"].as_s().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    let second = list(&tip, "e")[1].as_m().expect("a map").clone();
    assert_eq!(second.keys().collect::<Vec<_>>(), ["t"], "no empty body, and nothing is NULL");
    let unfold = list(&tip, "u")[0].as_m().expect("a map").clone();
    assert_eq!((n(&unfold, "i"), unfold["c"].as_s().expect("c").as_str(), unfold.contains_key("D")), (2, "Snapshotted", false));
    // Calved: every list is there, also where it is empty, and nothing of what is a Tip's alone.
    streams.append(&name("Cart-1"), step(&["a"])).await.expect("appends");
    let calf = opened.item("Cart-1", 0).await.expect("a calf");
    let mut names: Vec<_> = calf.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["c", "e", "i", "n", "p", "u"]);
    assert_eq!((list(&calf, "e"), calf["u"].as_l().expect("there").len()), (list(&tip, "e"), 0), "as they lay");
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert!(tip["u"].as_l().expect("there").is_empty());
    assert_eq!(
        (n(&tip, "n"), n(&tip, "a"), n(&tip, "b")),
        (3, 1, first["d"].as_b().expect("bytes").as_ref().len() as u64 + 40 + 5 + 4 + 7 + 40)
    );
    let loaded = streams.load(&name("Cart-1"), LoadOptions::default()).await.expect("loads");
    assert_eq!((loaded.events[0].data.as_ref(), loaded.events[0].meta.correlation.as_deref()), (long.as_bytes(), Some("c1")));
}

/// Every shape that hand-read.json has, and F# reads: also loaded, from a snapshot and from the start, and appended to.
#[tokio::test]
async fn read_the_union() {
    let golden = file("hand-read");
    let table = golden.tables().into_keys().next().expect("a table");
    let opened = golden.open(&table, "").await;
    let streams = opened.store.streams();
    let reads = golden.json["reads"].as_object().expect("reads");
    // F# cannot, and ours can: no etag, a `b` beyond its numbers, an `u` of NULL; and what is damaged is said.
    let damaged = ["H20-x", "H25-x", "H37-x", "H38-x", "H43-x", "H44unopt-x"];
    let mut appended = 0;
    for (stream, read) in reads {
        let loaded = streams.load(&name(stream), LoadOptions::default()).await;
        if damaged.contains(&stream.as_str()) {
            assert!(matches!(loaded, Err(Error::Corrupt(_))), "{stream}: {loaded:?}");
            continue;
        }
        let loaded = loaded.unwrap_or_else(|error| panic!("{stream}: {error}"));
        if let Some(version) = read["load unopt"]["version"].as_u64() {
            assert_eq!(loaded.version, version, "{stream}");
            assert_eq!(loaded.events.len() as u64, version, "{stream}");
        }
        let snapped = streams.load(&name(stream), LoadOptions::default().snapshot(["Snapshotted"])).await.expect("loads");
        assert_eq!(snapped.version, loaded.version, "{stream}");
        let done = streams.append(&name(stream), step(&["more"]).expect(Expect::Token(loaded.token))).await;
        let done = done.unwrap_or_else(|error| panic!("{stream}: {error}"));
        assert_eq!(done.version, Some(loaded.version + 1), "{stream}");
        let tip = opened.item(stream, TIP).await.expect("a Tip");
        assert!(["e", "c", "u"].iter().all(|list| tip.contains_key(*list)), "{stream}");
        assert!(!tip["etag"].as_s().expect("an etag").is_empty() && n(&tip, "b") <= 2_147_483_647, "{stream}");
        let again = streams.load(&name(stream), LoadOptions::default()).await.expect("loads");
        assert_eq!(again.events[..loaded.events.len()], loaded.events[..], "{stream}: without harm");
        let last = again.events.last().expect("events");
        assert_eq!((last.event_type.as_str(), last.data.as_ref()), ("Noted", &br#"{"text":"more"}"#[..]), "{stream}");
        assert_eq!(list(&tip, "e").len(), list(&tip, "c").len(), "{stream}");
        appended += 1;
    }
    assert!(appended > 40, "{appended} streams");
}

#[tokio::test]
async fn a_put_only_where_no_tip_was_seen() {
    // A Tip without events, as a rolling state leaves it: F# puts there again and again, in vain.
    let opened = golden::open("orders", "").await;
    let streams = opened.store.streams();
    streams.append(&name("Cart-1"), Step::rolling([Snapshot::new("Snapshotted", "{\"n\":7}")])).await.expect("rolls");
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert_eq!((n(&tip, "n"), n(&tip, "a"), list(&tip, "e").len()), (0, 0, 0));
    let other = opened.other("").await.streams();
    let loaded = other.load(&name("Cart-1"), LoadOptions::default().snapshot(["Snapshotted"])).await.expect("loads");
    let rolled = Step::rolling([Snapshot::new("Snapshotted", "{\"n\":8}")]).expect(Expect::Token(loaded.token));
    assert_eq!(other.append(&name("Cart-1"), rolled).await.expect("rolls").units.requests, 1, "no put in vain");
    for expect in [Expect::None, Expect::Version(1), Expect::Any] {
        streams.append(&name("Cart-1"), step(&["a"]).expect(expect)).await.expect("appends");
    }
    let loaded = streams.load(&name("Cart-1"), LoadOptions::default()).await.expect("loads");
    assert_eq!((loaded.version, loaded.events.len()), (3, 3));
}

#[tokio::test]
async fn if_not_exists_in_list_append() {
    let opened = golden::open("orders", "").await;
    let streams = opened.store.streams();
    streams.append(&name("Cart-1"), step(&["a", "b"])).await.expect("appends");
    // The lists are taken away, and nothing tells: what F# answers with a ValidationException.
    update(&opened, "Cart-1", "REMOVE e, c", &[]).await;
    streams.append(&name("Cart-1"), step(&["c"])).await.expect("appends");
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert_eq!((n(&tip, "n"), list(&tip, "e").len(), list(&tip, "c").len()), (3, 1, 1));
    // As F# trims, with a new etag: what is remembered of the Tip is not held against it.
    update(&opened, "Cart-1", "SET etag = :etag REMOVE e, c", &[(":etag", text("theirs"))]).await;
    streams.append(&name("Cart-1"), step(&["d"]).expect(Expect::Version(3))).await.expect("appends");
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert_eq!((n(&tip, "n"), list(&tip, "e").len()), (4, 1));
}

#[tokio::test]
async fn the_etag_on_calve_keeps_trimmed_events_away() {
    for stale_append in [false, true] {
        let opened = golden::open("orders", "&tip_events=3").await;
        let streams = opened.store.streams();
        streams.append(&name("Cart-1"), step(&["a", "b"])).await.expect("appends");
        // Somebody else trims the Tip, and the version stays: what this one remembers is stale.
        let none = || AttributeValue::L(Vec::new());
        update(
            &opened,
            "Cart-1",
            "SET etag = :etag, e = :none, c = :none, a = :zero",
            &[(":etag", text("theirs")), (":none", none()), (":zero", number(0))],
        )
        .await;
        if stale_append {
            streams.append(&name("Cart-1"), step(&["c"]).expect(Expect::Version(2))).await.expect("appends");
        }
        let version = if stale_append { 3 } else { 2 };
        streams.append(&name("Cart-1"), step(&["d", "e", "f"]).expect(Expect::Version(version))).await.expect("appends");
        assert!(opened.item("Cart-1", 0).await.is_none(), "they stay away");
        let calf = opened.item("Cart-1", 2).await;
        assert_eq!(calf.map(|calf| list(&calf, "e").len()), stale_append.then_some(1));
        let there = streams.read_stream(&name("Cart-1"), StreamReadOptions::default().after(2)).await.expect("reads");
        assert_eq!(there.len(), if stale_append { 4 } else { 3 });
    }
}

#[tokio::test]
async fn a_is_zero_on_trim_and_on_snapshots_alone() {
    let opened = golden::open("orders", "&tip_events=3").await;
    let (streams, equinox) = (opened.store.streams(), opened.store.equinox().expect("equinox"));
    for label in ["a", "b", "c", "d", "e"] {
        streams.append(&name("Cart-1"), step(&[label]).snapshot(Snapshot::new("Snapshotted", "{}"))).await.expect("appends");
    }
    // 1 to 3 in a calf, 4 and 5 in the Tip.
    let pruned = equinox.prune(&name("Cart-1"), 3).await.expect("prunes");
    assert_eq!((pruned.deleted, pruned.deferred, pruned.first), (0, 2, 1), "a calf is never changed");
    let pruned = equinox.prune(&name("Cart-1"), 5).await.expect("prunes");
    assert_eq!((pruned.deleted, pruned.deferred, pruned.first), (4, 0, 5));
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert_eq!((n(&tip, "a"), n(&tip, "n"), list(&tip, "e").len(), list(&tip, "c").len(), list(&tip, "u").len()), (0, 5, 1, 1, 1));
    let pruned = equinox.prune(&name("Cart-1"), 99).await.expect("prunes");
    assert_eq!((pruned.deleted, pruned.first), (1, 6));
    let tip = opened.item("Cart-1", TIP).await.expect("a Tip");
    assert!(tip["e"].as_l().expect("there").is_empty() && tip["c"].as_l().expect("there").is_empty());
    assert_eq!((n(&tip, "n"), n(&tip, "a"), list(&tip, "u").len()), (5, 0, 1));
    assert_eq!(equinox.prune(&name("Cart-1"), 99).await.expect("prunes").deleted, 0);
    // It goes on, from the snapshot; and what is gone is said.
    let loaded = streams.load(&name("Cart-1"), LoadOptions::default().snapshot(["Snapshotted"])).await.expect("loads");
    assert_eq!((loaded.version, loaded.snapshots.len()), (5, 1));
    streams.append(&name("Cart-1"), step(&["f"]).expect(Expect::Token(loaded.token))).await.expect("appends");
    let all = streams.load(&name("Cart-1"), LoadOptions::default()).await.expect_err("they were pruned").to_string();
    assert!(all.contains("before version 6 were pruned") && all.contains(&format!("{}-archive", opened.table)), "{all}");
    let late = streams.append(&name("Cart-1"), step(&["x"]).expect(Expect::Version(1))).await.expect_err("late");
    let Error::Conflict(conflict) = late else { panic!("{late}") };
    assert!(conflict.events.is_empty() && conflict.token.is_none(), "what is new is not all there: it must be read");
    streams.append(&name("Cart-2"), Step::rolling([Snapshot::new("Snapshotted", "{}")])).await.expect("rolls");
    assert_eq!(n(&opened.item("Cart-2", TIP).await.expect("a Tip"), "a"), 0);
    assert_eq!(opened.store.verify(&|_| ()).await.expect("verifies").findings, []);
}

#[tokio::test]
async fn no_tip_is_put_beside_calves_that_have_none() {
    let golden = file("hand-read");
    let table = golden.tables().into_keys().next().expect("a table");
    let opened = golden.open(&table, "").await;
    let refused = opened.store.streams().append(&name("H44unopt-x"), step(&["a"])).await.expect_err("F# puts a Tip at 1");
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
    assert!(opened.item("H44unopt-x", TIP).await.is_none());
}

/// One event that nobody can decode, amid others: it is told where it is, and the rest is read.
#[tokio::test]
async fn an_event_that_cannot_be_decoded_is_told_in_its_place() {
    let opened = golden::open("orders", "&tip_events=2").await;
    let streams = opened.store.streams();
    for label in ["a", "b", "c", "d", "e"] {
        streams.append(&name("Cart-1"), step(&[label])).await.expect("appends");
    }
    let mut calf = opened.item("Cart-1", 2).await.expect("a calf");
    let AttributeValue::L(events) = calf.get_mut("e").expect("events") else { panic!("a list") };
    let AttributeValue::M(event) = &mut events[1] else { panic!("a map") };
    event.insert("D".into(), number(2));
    opened.client.put_item().table_name(&opened.table).set_item(Some(calf)).send().await.expect("it is put");
    let stream = name("Cart-1");
    let read: Vec<_> = streams.read(&stream, StreamReadOptions::default()).collect().await;
    let told: Vec<_> = read
        .iter()
        .map(|event| event.as_ref().map_or_else(|error| error.to_string(), |event| event.version.expect("one").to_string()))
        .collect();
    assert_eq!(told, ["1", "2", "3", "corrupt equinox: Cart-1, event 3: attribute d is not Brotli", "5"]);
    let backwards: Vec<_> = streams.read(&stream, StreamReadOptions::default().backwards()).collect().await;
    assert_eq!(backwards.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, true, true]);
    // Where it is not asked for, it does not matter.
    assert_eq!(streams.read_stream(&stream, StreamReadOptions::default().after(4)).await.expect("reads").len(), 1);
    let error = streams.load(&stream, LoadOptions::default()).await.expect_err("a state without it would be wrong").to_string();
    assert!(error.contains("Cart-1, event 3"), "{error}");
    let findings = opened.store.verify(&|_| ()).await.expect("verifies").findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
}

/// What a Tip cannot hold is refused with its size, before any call; what an event can be at most is accepted.
#[tokio::test]
async fn what_is_too_large_is_refused_with_its_size_before_any_call() {
    let engine = fencepost::Engine::memory().expect("an engine");
    let faults = fencepost::testing::Faults::new(engine.http_client(), 1);
    let url = "memory:?layout=equinox&table=orders&tip_bytes=1000000";
    let store = fencepost::Store::builder(url).expect("url").http_client(faults.http_client()).open().await.expect("opens");
    let (streams, env) = (store.streams(), fencepost::Env::seeded(3));
    let most = store.capabilities().max_body;
    let noise = |bytes: usize| -> Vec<u8> { (0..bytes).map(|_| env.below(256) as u8).collect() };
    let of = |bytes: usize| Step::new([Event::new("Imported", noise(bytes)).expect("an event")]);
    let before = faults.log().len();
    for too_large in [of(most + 1024), of(200_000).snapshot(Snapshot::new("Snapshotted", noise(most - 150_000)))] {
        let refused = streams.append(&name("Cart-1"), too_large).await.expect_err("it does not fit").to_string();
        assert!(refused.contains("at most 409600 are accepted") && refused.contains(" bytes"), "{refused}");
    }
    assert_eq!(faults.log().len(), before, "no call");
    // The limits let them pile up: they are calved before an item would burst.
    for _ in 0..3 {
        streams.append(&name("Cart-1"), of(most)).await.expect("it fits");
    }
    let loaded = streams.load(&name("Cart-1"), LoadOptions::default()).await.expect("loads");
    assert_eq!((loaded.version, loaded.events.iter().all(|event| event.data.len() == most)), (3, true));
    let many = (0..store.capabilities().max_events).map(|_| Event::new("Something.Noted", noise(40)).expect("an event"));
    streams.append(&name("Cart-2"), Step::new(many)).await.expect("they fit");
}
