//! The tables of Equinox: what the real one wrote is read to the same events and appended to without harm; what is written has its shapes.

mod access;
mod archive;
mod faults;
mod feed;
mod golden;
mod interop;
mod peer;
mod rules;
mod units;

use fencepost::{Error, Event, Expect, LoadOptions, Recorded, Snapshot, Step, StreamName, StreamReadOptions, StreamStoreExt};
use golden::{Item, file, files};
use serde_json::Value;

fn name(text: &str) -> StreamName {
    StreamName::new(text).expect("a name")
}

fn step(labels: &[&str]) -> Step {
    Step::new(labels.iter().map(|label| Event::new("Noted", format!("{{\"text\":\"{label}\"}}")).expect("an event")))
}

/// What F# says that an event is, and what ours says.
fn told(event: &Value) -> (u64, String, String, String) {
    let instant: jiff::Timestamp = event["t"].as_str().expect("a time").parse().expect("a time");
    let data = event["data"].as_str().unwrap_or_default().to_owned();
    (event["index"].as_u64().expect("an index"), event["type"].as_str().expect("a type").to_owned(), instant.to_string(), data)
}

fn ours(event: &Recorded) -> (u64, String, String, String) {
    let data = String::from_utf8(event.data.to_vec()).expect("text");
    // F# has hundreds of nanoseconds.
    let at = jiff::Timestamp::from_nanosecond(event.recorded_at.as_nanosecond() / 100 * 100).expect("a time");
    (event.version.expect("a version") - 1, event.event_type.to_string(), at.to_string(), data)
}

/// The streams of a file that F# read raw, with what it read.
fn raw_reads(json: &Value) -> Vec<(String, Vec<Value>)> {
    let Some(reads) = json["reads"].as_object() else { return Vec::new() };
    let events = |read: &Value| read.as_array().or_else(|| read["events"].as_array()).cloned();
    let is_event = |event: &Value| event["index"].is_u64() && event["t"].is_string() && event["unfold"] == false;
    reads
        .iter()
        .filter_map(|(stream, read)| Some((stream.clone(), events(read)?)))
        .filter(|(_, events)| events.iter().all(|event| event["unfold"].is_boolean()))
        .map(|(stream, events)| (stream, events.into_iter().filter(is_event).collect()))
        .collect()
}

/// Where F# makes a wrong state of what is damaged, or none; ours says what and where.
const SAID: [(&str, &str); 4] = [
    ("H25-x", "event 0: attribute d is not Brotli"),
    ("H38-x", "attribute n is missing"),
    ("H43-x", "are missing"),
    ("H44unopt-x", "calves without a Tip"),
];

#[tokio::test]
async fn what_the_real_one_wrote_is_read_to_the_same_events() {
    let (mut streams, mut metas) = (0, 0);
    for golden in files() {
        let reads = raw_reads(&golden.json);
        for (table, items) in golden.tables().into_iter().filter(|(table, _)| !reads.is_empty() && !table.ends_with("-archive")) {
            let opened = golden.open(&table, "").await;
            for (stream, expected) in &reads {
                if !items.iter().any(|item| item["p"].as_s().is_ok_and(|p| p == stream)) {
                    continue;
                }
                streams += 1;
                let told: Vec<_> = expected.iter().map(told).collect();
                // From the first that is there: below it is pruned.
                let from = told.first().map_or(0, |(index, ..)| *index);
                let read = opened.store.streams().read_stream(&name(stream), StreamReadOptions::default().after(from)).await;
                if let Some((_, why)) = SAID.iter().find(|(of, _)| of == stream) {
                    let error = read.expect_err("F# is silent, and ours says so").to_string();
                    assert!(error.contains(why), "{stream}: {error}");
                    continue;
                }
                let read = read.unwrap_or_else(|error| panic!("{} {stream}: {error}", golden.name));
                assert_eq!(read.iter().map(ours).collect::<Vec<_>>(), told, "{} {stream}", golden.name);
                for (event, expected) in read.iter().zip(expected) {
                    // F# tells none and an empty one alike.
                    let text = |of: &Option<String>| of.clone().filter(|text| !text.is_empty());
                    let expected_text = |name: &str| text(&expected[name].as_str().map(str::to_owned));
                    let ids = (text(&event.meta.correlation), text(&event.meta.causation));
                    assert_eq!(ids, (expected_text("x"), expected_text("y")), "{} {stream}", golden.name);
                    if let Some(meta) = expected["meta"].as_str().and_then(|meta| serde_json::from_str::<Value>(meta).ok()) {
                        assert_eq!(event.meta.extra.get("who"), meta.get("who"), "{} {stream}", golden.name);
                        metas += 1;
                    }
                }
            }
        }
    }
    assert!(streams > 40 && metas >= 6, "{streams} streams, {metas} with metadata");
}

/// F#'s own fold: of events, and of the snapshot that the load began with.
fn folded(loaded: &fencepost::Loaded) -> Value {
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let snapshot = loaded.snapshots.first().map(|snapshot| json(&snapshot.state)).unwrap_or_default();
    let of = |name: &str| snapshot[name].as_u64().unwrap_or(0);
    let (mut sum, mut n, mut notes) = (of("sum"), of("n"), 0);
    for event in &loaded.events {
        n += 1;
        match event.event_type.as_str() {
            "Added" => sum += json(&event.data)["by"].as_u64().expect("by"),
            "Noted" => notes += 1,
            "Cleared" => sum = 0,
            other => panic!("{other}"),
        }
    }
    serde_json::json!({ "sum": sum, "n": n, "notes": notes })
}

#[tokio::test]
async fn what_the_real_one_kept_is_loaded_to_the_same_states() {
    let mut states = 0;
    for golden in files().into_iter().filter(|golden| golden.name.starts_with("strategy-") || golden.name.starts_with("calve-")) {
        let Some(reads) = golden.json["reads"].as_object() else { continue };
        let table = golden.tables().into_keys().next().expect("a table");
        let opened = golden.open(&table, "").await;
        for (stream, read) in reads.iter().filter(|(_, read)| read["load"]["state"].is_object()) {
            let is = |what: &str| golden.name.contains(what);
            let options = LoadOptions::default();
            let options = match () {
                () if is("latestknown") => options.latest(),
                () if is("unoptimized") || !is("snapshot") && !is("custom") && !is("rolling") && !is("multi") && !is("unfold") => options,
                () => options.snapshot(["Snapshotted"]),
            };
            let loaded = opened.store.streams().load(&name(stream), options).await.unwrap_or_else(|error| panic!("{stream}: {error}"));
            assert_eq!(folded(&loaded), read["load"]["state"], "{} {stream}", golden.name);
            assert_eq!(Some(loaded.version), read["load"]["version"].as_u64(), "{} {stream}", golden.name);
            states += 1;
        }
    }
    assert!(states >= 20, "{states} states");
}

#[tokio::test]
async fn a_prune_takes_away_what_the_real_one_does_and_leaves_no_announcement() {
    let golden = file("prune");
    let steps = golden.json["steps"].as_array().expect("steps");
    let mut pruned = 0;
    for (before, step) in steps.iter().zip(&steps[1..]).filter(|(before, step)| before["stream"] == step["stream"]) {
        let (Some(until), Some(items)) = (step["pruneUntil"].as_u64(), before["items"].as_array()) else { continue };
        let stream = name(step["stream"].as_str().expect("a stream"));
        let opened = golden::open("prune", "").await;
        for item in items {
            opened.client.put_item().table_name(&opened.table).set_item(Some(golden::item(item))).send().await.expect("it is put");
        }
        let done = opened.store.equinox().expect("equinox").prune(&stream, until + 2).await.expect("prunes");
        let told = serde_json::json!({ "deleted": done.deleted, "deferred": done.deferred, "lowest": done.first - 1 });
        assert_eq!(told, step["result"], "{step}");
        for expected in step["items"].as_array().expect("items").iter().map(golden::item) {
            let index = expected["i"].as_n().expect("an index").parse().expect("a number");
            let item = opened.item(stream.as_str(), index).await.expect("it is still there");
            assert_eq!(
                (list(&item, "e"), list(&item, "c"), list(&item, "u")),
                (list(&expected, "e"), list(&expected, "c"), list(&expected, "u"))
            );
            assert_eq!((item.get("n"), item.get("b")), (expected.get("n"), expected.get("b")), "{step}: they stay");
            let trimmed =
                item.get("etag") != items.iter().map(golden::item).find(|old| old["i"] == item["i"]).expect("it was there").get("etag");
            assert!(!trimmed || item["a"].as_n().expect("a") == "0", "F# leaves it, and announces events again");
        }
        // It is written on behind what it had.
        let version = step["items"].as_array().and_then(|items| items.last()).map(|tip| golden::item(tip)["n"].as_n().expect("n").clone());
        let version: u64 = version.expect("a Tip").parse().expect("a number");
        let done = opened.store.streams().append(&stream, self::step(&["behind"])).await.expect("appends");
        assert_eq!(done.version, Some(version + 1), "{step}");
        let left = opened.store.streams().read_stream(&stream, StreamReadOptions::default().after(version)).await.expect("reads");
        assert_eq!(left.len(), 1, "{step}");
        pruned += 1;
    }
    assert!(pruned >= 4, "{pruned} prunes");
}

fn list(item: &Item, name: &str) -> Vec<aws_sdk_dynamodb::types::AttributeValue> {
    item.get(name).map(|list| list.as_l().expect("a list").clone()).unwrap_or_default()
}

#[tokio::test]
async fn calves_are_made_where_the_real_one_makes_them_and_copied_byte_for_byte() {
    let golden = file("calve-by-events");
    let opened = golden.open("calve-by-events", "&tip_events=4").await;
    let stream = name("Calve-ev");
    let streams = opened.store.streams();
    let before = opened.item("Calve-ev", 2_147_483_647).await.expect("a Tip");
    assert_eq!(list(&before, "e").len(), 1, "13 appends of one");
    for n in 0..3 {
        streams.append(&stream, step(&[&n.to_string()]).expect(Expect::Version(13 + n))).await.expect("it fits");
    }
    let committed = streams.append(&stream, step(&["3"])).await.expect("it calves");
    assert_eq!(committed.version, Some(17));
    let calf = opened.item("Calve-ev", 12).await.expect("a calf");
    assert_eq!((calf["n"].as_n().expect("a number").as_str(), list(&calf, "e").len()), ("16", 4));
    assert_eq!(list(&calf, "e")[0], list(&before, "e")[0], "as it lay");
    assert!(!calf.contains_key("a") && !calf.contains_key("etag") && !calf.contains_key("b"));
    let tip = opened.item("Calve-ev", 2_147_483_647).await.expect("a Tip");
    assert_eq!((tip["n"].as_n().expect("n").as_str(), tip["a"].as_n().expect("a").as_str()), ("17", "1"));
    assert!(tip["u"].as_l().expect("always there").is_empty() && list(&tip, "e").len() == 1);
    let loaded = streams.load(&stream, LoadOptions::default()).await.expect("it loads");
    assert_eq!((loaded.version, loaded.events.len()), (17, 17));
}

#[tokio::test]
async fn a_tip_without_lists_is_appended_to_and_gets_them() {
    let golden = file("strategy-rollingstate");
    let table = golden.tables().into_keys().next().expect("a table");
    let opened = golden.open(&table, "").await;
    let streams = opened.store.streams();
    for stream in ["Rollingstate-one", "Rollingstate-three", "Rollingstate-twelve"] {
        let stream = name(stream);
        let loaded = streams.load(&stream, LoadOptions::default().snapshot(["Snapshotted"])).await.expect("it loads");
        assert_eq!((loaded.version, loaded.snapshots.len()), (0, 1), "{stream}");
        let committed =
            streams.append(&stream, step(&["first"]).expect(Expect::Token(loaded.token))).await.expect("n is 0, and a Tip is there");
        assert_eq!(committed.version, Some(1));
        let tip = opened.item(stream.as_str(), 2_147_483_647).await.expect("a Tip");
        assert_eq!(list(&tip, "e").len(), 1);
    }
}

#[tokio::test]
async fn snapshots_are_unfolds_of_the_tip_and_a_load_from_one_is_one_request() {
    let opened = golden::embedded("orders", "").await;
    let (streams, stream) = (opened.store.streams(), name("Cart-1"));
    let with = |labels: &[&str]| step(labels).snapshot(Snapshot::new("Snapshotted", "{\"n\":2}")).snapshot(Snapshot::new("Tallied", "{}"));
    streams.append(&stream, with(&["a", "b"])).await.expect("it is appended");
    let loaded = streams.load(&stream, LoadOptions::default().snapshot(["Snapshotted"])).await.expect("it loads");
    assert_eq!(loaded.snapshots, [Snapshot::at("Snapshotted", 2, "{\"n\":2}")]);
    assert_eq!((loaded.events.len(), loaded.version, loaded.units.requests), (0, 2, 1));
    assert!((loaded.units.read - 1.0).abs() < f64::EPSILON, "{}", loaded.units);
    let eventual = streams.load(&stream, LoadOptions::default().snapshot(["Snapshotted"]).eventual()).await.expect("it loads");
    assert!((eventual.units.read - 0.5).abs() < f64::EPSILON, "{}", eventual.units);
    let tip = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
    assert!(list(&tip, "u").iter().all(|unfold| unfold.as_m().expect("a map")["i"].as_n().expect("i") == "2"));
    // An append without them takes them away: one that stands for fewer events than there are hides the others from F#.
    streams.append(&stream, step(&["c"])).await.expect("it is appended");
    let tip = opened.item("Cart-1", 2_147_483_647).await.expect("a Tip");
    assert!(tip["u"].as_l().expect("there").is_empty());
}

#[tokio::test]
async fn names_tags_and_sizes_are_refused_before_any_call() {
    let opened = golden::open("orders", "").await;
    let streams = opened.store.streams();
    for bad in ["cart", "-1", "$AppendsIndex-0"] {
        let refused = streams.append(&name(bad), step(&["a"])).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{bad}: {refused:?}");
    }
    let tagged = Step::new([Event::new("T", "{}").expect("an event").tag("other").expect("a tag")]);
    assert!(matches!(streams.append(&name("Cart-1"), tagged).await, Err(Error::Refused(_))));
    let chance = fencepost::Env::seeded(7);
    let noise: Vec<u8> = (0..410_000).map(|_| chance.below(256) as u8).collect();
    let large = Step::new([Event::new("T", noise).expect("an event")]);
    let refused = streams.append(&name("Cart-1"), large).await.expect_err("too large").to_string();
    assert!(refused.contains("409600"), "{refused}");
}
