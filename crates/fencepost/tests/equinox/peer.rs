//! What the golden files tell besides their tables: partial reads, moves from one strategy to the next, states by every strategy, tables as F#
//! describes them; and every golden stream appended to each way, with nothing of it harmed.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput, ScalarAttributeType,
    StreamSpecification,
};
use fencepost::{Category, Error, Expect, LoadOptions, Snapshot, Store, StreamReadOptions, StreamStoreExt};
use serde_json::Value;

use super::access::{Counter, add, category, of_json};
use super::golden::{self, Item, Opened, file, files};
use super::{folded, list, name, step};

const TIP: u64 = 2_147_483_647;

fn n(item: &Item, name: &str) -> u64 {
    item[name].as_n().expect("a number").parse().expect("a number")
}

/// F# never hands over what is in the Tip where an upper end is given: ours does.
#[tokio::test]
async fn partial_reads_hand_over_what_the_real_one_does_and_the_tip_too() {
    let golden = file("partial-reads");
    let opened = golden.open("reads", "&page=2").await;
    let (streams, mut reads) = (opened.store.streams(), 0);
    for read in golden.json["reads"].as_array().expect("reads") {
        let stream = name(read["stream"].as_str().expect("a stream"));
        let (least, most, count) = (read["minIndex"].as_u64(), read["maxIndex"].as_u64(), read["maxCount"].as_u64());
        let forwards = read["direction"] == "Forward";
        let mut options = StreamReadOptions::default();
        if forwards {
            options = options.after(least.unwrap_or(0));
        } else {
            options = options.backwards();
            options = if let Some(most) = most { options.after(most + 1) } else { options };
        }
        options = if let Some(count) = count { options.limit(count) } else { options };
        let all = streams.read_stream(&stream, options).await.expect("reads");
        let indexes = all.iter().map(|event| event.version.expect("a version") - 1);
        let ours: Vec<u64> = indexes.filter(|index| most.is_none_or(|most| *index < most) && *index >= least.unwrap_or(0)).collect();
        let tip = opened.item(stream.as_str(), TIP).await;
        let base = tip.map_or(0, |tip| n(&tip, "n") - list(&tip, "e").len() as u64);
        let theirs: Vec<u64> = ours.iter().copied().filter(|index| most.is_none() || *index < base).collect();
        assert_eq!(Value::from(theirs), read["indexes"], "{read}");
        // And ours lacks nothing between.
        let end = if stream.as_str() == "Part-long" { 11 } else { 3 };
        let mut whole: Vec<u64> = (least.unwrap_or(0)..most.unwrap_or(end).min(end)).collect();
        if !forwards {
            whole.reverse();
        }
        whole.truncate(count.map_or(usize::MAX, |count| usize::try_from(count).expect("small")));
        assert_eq!(ours, if stream.as_str() == "Part-none" { Vec::new() } else { whole }, "{read}");
        reads += 1;
    }
    assert_eq!(reads, 22);
}

/// One stream written by one strategy after another: after every step what F# had then; and where F# can never write again, ours goes on.
#[tokio::test]
async fn strategies_move_step_by_step_as_the_real_ones_do() {
    let golden = file("strategy-moves");
    let opened = golden::open("orders", "").await;
    let (mut by, mut steps) = (2, 0);
    for told in golden.json["steps"].as_array().expect("steps") {
        let (stream, step) = (told["stream"].as_str().expect("a stream"), told["step"].as_str().expect("a step"));
        let streams = opened.other("").await.streams();
        let counter = match step {
            "unoptimized" => category(streams, "unoptimised"),
            "rollingstate" => category(streams, "rolling"),
            "snapshot" => category(streams, "snapshot"),
            "multisnapshot writing no unfolds" => {
                Category::new(streams, Counter).several_snapshots(["Snapshotted"], of_json, |_| Vec::new())
            }
            "custom transmuting to nothing" => {
                let nothing = Category::new(streams, Counter).custom(["Snapshotted"], of_json, |_, _| (Vec::new(), Vec::new()));
                let refused = nothing.decide(&name("Move-empty"), &1).await.expect_err("neither events nor unfolds");
                assert!(matches!(refused, Error::Refused(_)), "{refused}");
                assert!(opened.item("Move-empty", TIP).await.is_none());
                steps += 1;
                continue;
            }
            other => panic!("{other}"),
        };
        let stream = format!("Move-{stream}");
        if stream == "Move-rollfirst" {
            // F# is told of a conflict for ever: version 0 is a put there.
            add(&counter, &stream, 1).await;
            if step == "unoptimized" {
                let tip = opened.item(&stream, TIP).await.expect("a Tip");
                assert_eq!((n(&tip, "n"), list(&tip, "e").len()), (2, 2), "the snapshot's, and this one");
            }
            steps += 1;
            continue;
        }
        if steps == 0 {
            add(&counter, &stream, 1).await;
            add(&counter, &stream, 2).await;
        } else {
            by += 1;
            add(&counter, &stream, by).await;
        }
        let state = counter.state(&name(&stream)).await.expect("loads");
        assert_eq!(
            (Some(state.sum), Some(state.times)),
            (told["load"]["state"]["sum"].as_u64(), told["load"]["state"]["n"].as_u64()),
            "{step}"
        );
        let (ours, theirs) = (opened.item(&stream, TIP).await.expect("a Tip"), golden::item(&told["tip"]));
        let shape = |tip: &Item| (n(tip, "n"), list(tip, "e").len(), list(tip, "c").len(), list(tip, "u").len());
        assert_eq!(shape(&ours), shape(&theirs), "{step}");
        assert!(steps == 0 || n(&ours, "a") == n(&theirs, "a"), "{step}");
        steps += 1;
    }
    assert_eq!(steps, 11);
}

/// The states that F# makes of bodies, of conflicts and of shapes by hand. Where ours is another, it says why.
#[tokio::test]
async fn states_are_those_of_the_real_one_but_where_that_is_wrong() {
    // Of an unfold that does not say what it stands for, or that does not fit its stream, F# makes a state that no event made.
    const WRONG: [(&str, u64); 3] = [("H40-x", 1), ("H41-x", 55), ("H42-x", 50)];
    let mut states = 0;
    for of in ["bodies", "conflict", "hand-read"] {
        let golden = file(of);
        let table = golden.tables().into_keys().next().expect("a table");
        let streams = golden.open(&table, "").await.store.streams();
        for (stream, read) in golden.json["reads"].as_object().expect("reads") {
            // Of what is not written as events only the state tells.
            let kept = LoadOptions::default().snapshot(["Snapshotted"]);
            let by_events = !["custom", "roll"].iter().any(|strategy| stream.contains(strategy));
            let ways = [
                ("load", if by_events { LoadOptions::default() } else { kept.clone() }),
                ("load unopt", LoadOptions::default()),
                ("load snap", kept),
            ];
            for (way, options) in ways.into_iter().filter(|(way, _)| read[*way]["state"].is_object()) {
                // Damaged: ours says so, and makes no state of the rest.
                let loaded = streams.load(&name(stream), options).await;
                if ["H38-x", "H43-x", "H44unopt-x"].contains(&stream.as_str()) {
                    assert!(matches!(loaded, Err(Error::Corrupt(_))), "{stream}, {way}");
                    continue;
                }
                // An event that F#'s fold does not know is none.
                if stream == "H35snap-x" {
                    assert_eq!(loaded.expect("loads").events.len(), 2);
                    continue;
                }
                let ours = folded(&loaded.unwrap_or_else(|error| panic!("{stream}, {way}: {error}")));
                match WRONG.iter().find(|(of, _)| of == stream).filter(|_| way == "load snap") {
                    Some((_, sum)) => assert_eq!(ours["sum"].as_u64(), Some(*sum), "{stream}, {way}"),
                    None => {
                        let state = |of: &Value| (of["sum"].clone(), of["n"].clone());
                        assert_eq!(state(&ours), state(&read[way]["state"]), "{of} {stream}, {way}");
                    }
                }
                states += 1;
            }
        }
    }
    assert!(states >= 60, "{states} states");
}

/// Every event of a stream as it lies: by its index, its type and its map.
async fn lying(opened: &Opened, stream: &str) -> BTreeMap<u64, (AttributeValue, AttributeValue)> {
    let query = opened.client.query().table_name(&opened.table).key_condition_expression("p = :p");
    let items =
        query.expression_attribute_values(":p", AttributeValue::S(stream.into())).send().await.expect("queries").items.unwrap_or_default();
    let mut all = BTreeMap::new();
    for item in items.iter().filter(|item| item.contains_key("n")) {
        let (events, types) = (list(item, "e"), list(item, "c"));
        let Some(base) = n(item, "n").checked_sub(events.len() as u64) else { continue };
        all.extend((base..).zip(types.into_iter().zip(events)));
    }
    all
}

/// What F# says that these events of a stream are large, as `b` counts them; none where it does not say so of each.
fn sizes(read: &Value, base: u64, count: usize) -> Option<u64> {
    let events = read.as_array().or_else(|| read["events"].as_array())?;
    let of = |index: u64| events.iter().find(|event| event["unfold"] == false && event["index"].as_u64() == Some(index))?["size"].as_u64();
    (base..base + count as u64).map(of).sum()
}

/// Each way to append: into the Tip, and with what is there calved; by a token, where it can be loaded, and by none. What lay there lies there
/// still, byte for byte, events that nobody can decode too; and what is new says what was appended.
#[tokio::test]
async fn every_golden_stream_is_appended_to_each_way_without_harm() {
    let (mut appended, mut calved, mut sized, mut undecodable) = (0, 0, 0, 0);
    for golden in files() {
        for (table, items) in golden.tables().into_iter().filter(|(table, _)| !table.ends_with("-archive")) {
            let mut names: Vec<String> = items.iter().map(|item| item["p"].as_s().expect("a name").clone()).collect();
            names.retain(|stream| !stream.starts_with('$'));
            names.dedup();
            for parameters in ["", "&tip_events=1"] {
                let opened = golden.open(&table, parameters).await;
                let streams = opened.store.streams();
                for stream in &names {
                    let told = format!("{} {stream} {parameters}", golden.name);
                    let before = lying(&opened, stream).await;
                    let tip = opened.item(stream, TIP).await;
                    let number = |name: &str| tip.as_ref().filter(|tip| tip.contains_key(name)).map_or(0, |tip| n(tip, name));
                    let calved_before = number("b");
                    let base = number("n").saturating_sub(tip.as_ref().map_or(0, |tip| list(tip, "e").len() as u64));
                    let loaded = streams.load(&name(stream), LoadOptions::default()).await;
                    let expect = loaded.as_ref().map_or(Expect::Any, |loaded| Expect::Token(loaded.token.clone()));
                    let more = step(&["more"]).snapshot(Snapshot::new("Snapshotted", "{\"sum\":1,\"n\":1}"));
                    let done = match streams.append(&name(stream), more.expect(expect)).await {
                        Ok(done) => done,
                        Err(error) => {
                            // No Tip, none that says how long the stream is, or one without types.
                            assert!(["H37-x", "H38-x", "H44unopt-x"].contains(&stream.as_str()), "{told}: {error}");
                            assert_eq!(lying(&opened, stream).await, before, "{told}");
                            continue;
                        }
                    };
                    let mut after = lying(&opened, stream).await;
                    let new = after.remove(&(done.version.expect("a version") - 1)).expect("it is there");
                    assert_eq!(new.0, AttributeValue::S("Noted".into()), "{told}");
                    assert_eq!(new.1.as_m().expect("a map")["d"].as_b().expect("bytes").as_ref(), br#"{"text":"more"}"#, "{told}");
                    assert_eq!(after, before, "{told}: as they lay");
                    let left = opened.item(stream, TIP).await.expect("a Tip");
                    assert_eq!(list(&left, "e").len(), list(&left, "c").len(), "{told}");
                    // F# adds the size of the Tip to it, and holds both in 31 bits.
                    let own = 80 + stream.len() + 22 + (40 + 5 + 15) + (50 + 11 + 15);
                    assert!(n(&left, "b") + own as u64 <= 2_147_483_647, "{told}");
                    let had = tip.map_or(0, |tip| list(&tip, "e").len());
                    if !parameters.is_empty() && had > 0 && calved_before < 2_000_000_000 {
                        calved += 1;
                        let sizes: Option<u64> = sizes(&golden.json["reads"][stream], base, had);
                        sized += usize::from(sizes.is_some());
                        assert!(sizes.is_none_or(|sizes| n(&left, "b") == calved_before + sizes), "{told}: {sizes:?}");
                    }
                    undecodable += usize::from(loaded.is_err());
                    appended += 1;
                }
            }
        }
    }
    let told = format!("{appended} appended, {calved} calved, {sized} of known size, {undecodable} not to be loaded");
    assert!(appended > 200 && calved > 60 && sized > 20 && undecodable >= 4, "{told}");
}

/// Tables as F# creates them: used as they are; and what one lacks is named.
#[tokio::test]
async fn tables_that_the_real_one_made_are_verified() {
    let golden = file("table");
    for (table, described) in golden.json["describe"].as_object().expect("tables") {
        let engine = fencepost::Engine::memory().expect("an engine");
        let client = golden::client(&engine);
        for name in [table.clone(), format!("{table}-index")] {
            let mut create = client.create_table().table_name(name);
            for key in described["KeySchema"].as_array().expect("keys") {
                let key = KeySchemaElement::builder()
                    .attribute_name(key["AttributeName"].as_str().expect("a name"))
                    .key_type(KeyType::from(key["KeyType"].as_str().expect("a type")));
                create = create.key_schema(key.build().expect("built"));
            }
            for attribute in described["AttributeDefinitions"].as_array().expect("attributes") {
                let attribute = AttributeDefinition::builder()
                    .attribute_name(attribute["AttributeName"].as_str().expect("a name"))
                    .attribute_type(ScalarAttributeType::from(attribute["AttributeType"].as_str().expect("a type")));
                create = create.attribute_definitions(attribute.build().expect("built"));
            }
            create = match described["BillingModeSummary"]["BillingMode"].as_str() {
                Some("PAY_PER_REQUEST") => create.billing_mode(BillingMode::PayPerRequest),
                _ => {
                    let units = |of: &str| described["ProvisionedThroughput"][of].as_i64();
                    let units = ProvisionedThroughput::builder()
                        .set_read_capacity_units(units("ReadCapacityUnits"))
                        .set_write_capacity_units(units("WriteCapacityUnits"));
                    create.provisioned_throughput(units.build().expect("built"))
                }
            };
            if let Some(view) = described["StreamSpecification"]["StreamViewType"].as_str() {
                let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(view.into());
                create = create.stream_specification(stream.build().expect("built"));
            }
            create.send().await.expect("created");
        }
        let builder = || {
            let url = format!("memory:?layout=equinox&table={table}");
            Store::builder(&url).expect("a good URL").create(false).http_client(engine.http_client())
        };
        let differences = builder().tables().verify().await.expect("verifies");
        assert_eq!(differences.len(), usize::from(table == "tbl-ondemand-off"), "{table}: {differences:?}");
        let streams = builder().open().await.expect("opens").streams();
        streams.append(&name("Cart-1"), step(&["a"])).await.expect("appends");
        assert_eq!(streams.load(&name("Cart-1"), LoadOptions::default()).await.expect("loads").version, 1, "{table}");
    }
}

/// The same appends under the same limits, from nothing: after each of them as many items, and in the Tip what F# has there, `b` to the byte.
#[tokio::test]
async fn calves_are_made_when_the_real_one_makes_them_append_by_append() {
    let mut appends = 0;
    for (of, parameters) in [
        ("calve-by-bytes", "&tip_bytes=600"),
        ("calve-by-bytes-snapshot", "&tip_bytes=600"),
        ("calve-by-events", "&tip_events=4"),
        ("calve-by-events-multi", "&tip_events=3"),
        ("calve-by-events-snapshot", "&tip_events=2"),
        ("calve-custom-unfold-only", "&tip_events=2"),
        ("calve-paging", "&tip_events=1"),
        ("calve-unfold-only-calve", "&tip_bytes=260"),
    ] {
        let golden = file(of);
        let (stream, read) = golden.json["reads"].as_object().expect("reads").iter().next().expect("a stream");
        let opened = golden::open("orders", parameters).await;
        let (streams, env) = (opened.store.streams(), fencepost::Env::seeded(1));
        let unfolds = of.contains("snapshot") || of.contains("unfold");
        let mut version = 0;
        for told in golden.json["afterEachAppend"].as_array().expect("appends") {
            let number = |name: &str| told[name].as_str().expect("a number").parse::<u64>().expect("a number");
            // As long as theirs, and such that packing gains nothing.
            let event = |index: u64| {
                let is_it = |event: &&Value| event["unfold"] == false && event["index"].as_u64() == Some(index);
                let theirs = read["events"].as_array().expect("events").iter().find(is_it).expect("an event");
                let length = theirs["d"]["len"].as_u64().expect("a length");
                let noise: Vec<u8> = (0..length).map(|_| u8::try_from(env.below(256)).expect("a byte")).collect();
                fencepost::Event::new(theirs["type"].as_str().expect("a type"), noise).expect("an event")
            };
            let events: Vec<_> = (version..number("n")).map(event).collect();
            let snapshot = || Snapshot::new("Snapshotted", "{\"sum\":1,\"n\":1}");
            let next = if events.is_empty() {
                let token = streams.load(&name(stream), LoadOptions::default().snapshot(["Snapshotted"])).await.expect("loads").token;
                fencepost::Step::rolling([snapshot()]).expect(Expect::Token(token))
            } else {
                let next = fencepost::Step::new(events).expect(Expect::Version(version));
                if unfolds { next.snapshot(snapshot()) } else { next }
            };
            streams.append(&name(stream), next).await.expect("appends");
            version = number("n");
            let tip = opened.item(stream, TIP).await.expect("a Tip");
            let query = opened.client.query().table_name(&opened.table).key_condition_expression("p = :p");
            let query = query.expression_attribute_values(":p", AttributeValue::S(stream.clone()));
            let items = query.send().await.expect("queries").count();
            let ours = (i64::from(items), n(&tip, "n"), n(&tip, "a"), n(&tip, "b"), list(&tip, "e").len() as u64);
            let theirs =
                (told["items"].as_i64().expect("items"), version, number("a"), number("b"), told["tipEvents"].as_u64().expect("events"));
            assert_eq!(ours, theirs, "{of}, to version {version}");
            appends += 1;
        }
    }
    assert!(appends > 50, "{appends} appends");
}
