//! Tables that Sekiban itself wrote: read to the same events and tags, and the same calls write the same items, plus heads. Tables as it makes them.

use crate::*;

fn service_of(golden: &Json) -> String {
    match items(golden, "SekibanEvents").first().map(|item| text(item, "serviceId").to_owned()) {
        Some(service) if service.is_empty() => "&keys=plain".into(),
        Some(service) => format!("&service={service}"),
        None => String::new(),
    }
}

#[track_caller]
fn same(event: &Recorded, stored: &Json) {
    assert_eq!(event.id.to_string(), text(stored, "eventId"));
    assert_eq!(SortableId::of(&event.position), Some(id(text(stored, "sortableUniqueId"))));
    assert_eq!(event.event_type.as_str(), text(stored, "eventType"));
    assert_eq!(event.data, text(stored, "payload").as_bytes());
    let mut tags = tags_of(stored);
    tags.sort();
    assert_eq!(event.tags.iter().map(Tag::as_str).collect::<Vec<_>>(), tags);
    let meta = |field: &Option<String>| field.clone().unwrap_or_default();
    assert_eq!(meta(&event.meta.causation), text(stored, "causationId"));
    assert_eq!(meta(&event.meta.correlation), text(stored, "correlationId"));
    assert_eq!(meta(&event.meta.user), text(stored, "executedUser"));
    assert_eq!(event.recorded_at, text(stored, "timestamp").parse().expect("a time"));
}

/// Every golden table: each event by id, by each of its tags, among all; counts, groups, latest; and in the feed.
#[tokio::test]
async fn what_sekiban_wrote_is_read_to_the_same_events_and_tags() {
    for name in ["02", "03", "04", "05", "06", "07", "08", "09", "13", "14", "15", "17", "19"] {
        let golden = golden(name);
        let mut events = items(&golden, "SekibanEvents");
        events.sort_by_key(|event| text(event, "sortableUniqueId").to_owned());
        let bench = Bench::new();
        let shards = if name == "07" { "&shards=4" } else { "" };
        let store = bench.store(&format!("{}{shards}", service_of(&golden))).await;
        bench.load(&golden).await;
        let sekiban = store.sekiban().expect("sekiban");
        let all: Vec<Recorded> = sekiban.all_since(None, None).try_collect().await.expect(name);
        assert_eq!(all.len(), events.len(), "{name}");
        all.iter().zip(&events).for_each(|(event, stored)| same(event, stored));
        assert_eq!(sekiban.count(None).await.expect("count"), events.len() as u64);
        assert_eq!(sekiban.latest().await.expect("latest"), events.last().map(|event| id(text(event, "sortableUniqueId"))));
        let mut by_tag: BTreeMap<String, Vec<&Json>> = BTreeMap::new();
        for event in &events {
            let one = sekiban.event(&text(event, "eventId").parse().expect("id")).await.expect("read").expect("there");
            same(&one, event);
            tags_of(event).into_iter().for_each(|tag| by_tag.entry(tag).or_default().push(event));
        }
        for (name, events) in &by_tag {
            let tag = tag(name);
            let read: Vec<Recorded> = sekiban.by_tag_since(&tag, None).try_collect().await.expect("by tag");
            assert_eq!(read.len(), events.len());
            read.iter().zip(events).for_each(|(event, stored)| same(event, stored));
            let rows: Vec<_> = sekiban.tag_stream(&tag, None).try_collect().await.expect("rows");
            assert_eq!(rows, read.iter().map(|event| (SortableId::of(&event.position).expect("id"), event.id)).collect::<Vec<_>>());
            assert_eq!(sekiban.latest_of(&tag).await.expect("latest"), rows.last().map(|(at, _)| *at));
            assert!(sekiban.tag_exists(&tag).await.expect("exists"));
            // The same by the log.
            let sourced = store.log().expect("log").source(&Query::of_tag(tag.clone()), None).await.expect("source").events;
            assert_eq!(sourced, read);
        }
        assert!(!sekiban.tag_exists(&tag("none:there")).await.expect("exists"));
        let groups: BTreeSet<String> = by_tag.keys().map(|tag| tag.split(':').next().expect("group").to_owned()).collect();
        let mut infos = Vec::new();
        for group in groups.iter().filter(|group| !group.is_empty()) {
            infos.extend(sekiban.tags_of_group(group).try_collect::<Vec<_>>().await.expect("group"));
        }
        let mut scanned = sekiban.scan_tags().await.expect("tags");
        scanned.retain(|info| !info.group.is_empty());
        assert_eq!(infos, scanned);
        for info in infos {
            let events = &by_tag[&info.tag];
            let ends = [events.first(), events.last()].map(|event| id(text(event.expect("some"), "sortableUniqueId")));
            assert_eq!((info.events, [info.first, info.last]), (events.len() as u64, ends));
        }
        let verified = store.verify(&|_| ()).await.expect("verify");
        assert_eq!((verified.findings, verified.events), (vec![], events.len() as u64), "{name}");
        let fed = fed(&store).await;
        assert_eq!(fed, all, "{name}");
    }
}

/// The call that made it: the event as it was given.
fn given(stored: &Json) -> (SortableId, Event) {
    let some = |name: &str| Some(text(stored, name).to_owned()).filter(|text| !text.is_empty());
    let meta =
        Metadata { causation: some("causationId"), correlation: some("correlationId"), user: some("executedUser"), ..Metadata::default() };
    let event = Event::new(text(stored, "eventType"), text(stored, "payload").to_owned()).expect("event");
    let event = tags_of(stored).iter().fold(event, |event, tag| event.tag(tag).expect("tag"));
    (id(text(stored, "sortableUniqueId")), event.id(text(stored, "eventId").parse().expect("id")).meta(meta))
}

#[tokio::test]
async fn the_same_calls_write_the_same_items_and_heads() {
    for name in ["02", "03", "04", "05", "06", "07", "08", "09", "13", "19"] {
        let golden = golden(name);
        let mut events = items(&golden, "SekibanEvents");
        events.sort_by_key(|event| text(event, "sortableUniqueId").to_owned());
        let bench = Bench::new();
        let more = match name {
            "07" => "&shards=4",
            "08" => "&large=chunked",
            _ => "",
        };
        let sekiban = bench.sekiban(&format!("{}{more}", service_of(&golden))).await;
        let calls: Vec<_> = events.iter().map(given).collect();
        if name == "09" {
            let (at, event) = calls[0].clone();
            let first = sekiban.append_if_unique("order-42", event, Some(at)).await.expect("appends");
            assert!(
                matches!(&first, Unique::Appended { ids, .. } if ids[0].to_string() == text(&golden_root(&golden), "derivedEventId")),
                "{first:?}"
            );
        } else {
            let written = sekiban.write(&calls, WriteOptions::default()).await.expect(name);
            assert_eq!((written.positions.len(), written.duplicates.len()), (calls.len(), 0));
            let versions: BTreeMap<String, u64> = written.tags.iter().map(|tag| (tag.tag.to_string(), tag.version)).collect();
            for (tag, version) in &versions {
                assert_eq!(*version, calls.iter().filter(|(_, event)| event.tags().iter().any(|t| t.as_str() == tag)).count() as u64);
            }
            // Again: duplicates, skipped as such.
            let again = sekiban.write(&calls, WriteOptions::default()).await.expect(name);
            assert_eq!((again.positions, again.duplicates.len()), (written.positions, calls.len()), "{name}");
        }
        let ours = bench.dump("SekibanTags").await;
        let (heads, rows): (Vec<Item>, Vec<Item>) = ours.into_iter().partition(|item| item["sk"] == AttributeValue::S("HEAD".into()));
        for (table, ours) in [("SekibanEvents", bench.dump("SekibanEvents").await), ("SekibanTags", rows)] {
            assert_eq!(set(ours.into_iter()), set(items(&golden, table).iter().map(item)), "{name} {table}");
        }
        let tags: BTreeSet<String> = events.iter().flat_map(tags_of).collect();
        assert_eq!(heads.len(), tags.len(), "{name}");
        for head in heads {
            assert!(["eventId", "tagGroup", "serviceId"].iter().all(|name| !head.contains_key(*name)), "no read of Sekiban's meets it");
        }
    }
}

fn golden_root(golden: &Json) -> Json {
    serde_json::json!({"derivedEventId": {"S": golden["derivedEventId"]}})
}

#[tokio::test]
async fn missing_rows_are_found_and_put_again() {
    let golden = golden("04");
    let bench = Bench::new();
    let store = bench.store("").await;
    bench.load(&golden).await;
    let row = item(&items(&golden, "SekibanTags")[0]);
    let key =
        |row: &Item| row.iter().filter(|(name, _)| ["pk", "sk"].contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect();
    bench.client.delete_item().table_name(bench.table("SekibanTags")).set_key(Some(key(&row))).send().await.expect("delete");
    let found = store.verify(&|_| ()).await.expect("verify").findings;
    assert!(found.len() == 1 && found[0].problem.contains("is missing"), "{found:?}");
    let mended = store.repair(&|_| ()).await.expect("repair").findings;
    assert!(mended.len() == 1 && mended[0].problem.contains("put again"), "{mended:?}");
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
    assert_eq!(set(bench.dump("SekibanTags").await.into_iter()), set(items(&golden, "SekibanTags").iter().map(item)));
}

#[tokio::test]
async fn tables_are_those_that_sekiban_makes_and_an_index_of_keys_alone_is_accepted() {
    let golden = golden("01");
    let bench = Bench::new();
    bench.store("").await;
    for table in TABLES {
        let described = bench.client.describe_table().table_name(bench.table(table)).send().await.expect("describe").table.expect("table");
        let expected = &golden["describe"][table];
        let keys: Vec<_> = described.key_schema().iter().map(|key| key.attribute_name().to_owned()).collect();
        assert_eq!(keys, ["pk", "sk"]);
        let indexes = expected["GlobalSecondaryIndexes"].as_array().expect("indexes");
        assert_eq!(described.global_secondary_indexes().len(), indexes.len(), "{table}");
        for (ours, theirs) in described.global_secondary_indexes().iter().zip(indexes) {
            assert_eq!(ours.index_name(), theirs["IndexName"].as_str());
            let names: Vec<_> = ours.key_schema().iter().map(|key| key.attribute_name()).collect();
            let expected: Vec<_> =
                theirs["KeySchema"].as_array().expect("keys").iter().map(|k| k["AttributeName"].as_str().expect("name")).collect();
            assert_eq!(names, expected);
            let projection = ours.projection().and_then(|p| p.projection_type()).expect("projection").as_str().to_owned();
            assert_eq!(Some(projection.as_str()), theirs["Projection"]["ProjectionType"].as_str());
        }
    }
    // The published script's index of tags.
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType,
    };
    let bench = Bench::new();
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("key");
    let index = GlobalSecondaryIndex::builder()
        .index_name("GSI1")
        .key_schema(key("tagGroup", KeyType::Hash))
        .key_schema(key("tagString", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .expect("index");
    let mut create = bench.client.create_table().table_name(bench.table("SekibanTags")).billing_mode(BillingMode::PayPerRequest);
    for name in ["pk", "sk", "tagGroup", "tagString"] {
        let attribute =
            AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().expect("attribute");
        create = create.attribute_definitions(attribute);
    }
    create
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .global_secondary_indexes(index)
        .send()
        .await
        .expect("create");
    let sekiban = bench.sekiban("").await;
    let written = id("063921792785123456000144769402");
    sekiban.write(&[(written, event("{}", &["a:1", "a:2"]).id(Uuid::from_u128(1)))], WriteOptions::default()).await.expect("write");
    let infos: Vec<_> = sekiban.tags_of_group("a").try_collect().await.expect("group");
    assert_eq!(
        infos.iter().map(|info| (info.tag.as_str(), info.events, info.first)).collect::<Vec<_>>(),
        [("a:1", 1, written), ("a:2", 1, written)]
    );
}

/// An id in capitals is another key: the row that is put again is called as its event is.
#[tokio::test]
async fn a_row_of_an_event_with_capitals_in_its_id_is_put_again_as_it_was() {
    let golden = golden("04");
    let bench = Bench::new();
    let store = bench.store("").await;
    let mut event = item(&items(&golden, "SekibanEvents")[0]);
    let upper = event["eventId"].as_s().expect("id").to_uppercase();
    for (name, value) in [("pk", format!("SERVICE#default#EVENT#{upper}")), ("sk", format!("EVENT#{upper}")), ("eventId", upper)] {
        event.insert(name.into(), AttributeValue::S(value));
    }
    let of = event["tags"].as_l().expect("tags")[0].as_s().expect("tag").clone();
    bench.put("SekibanEvents", event).await;
    store.repair(&|_| ()).await.expect("repair");
    let log = store.log().expect("log");
    assert_eq!(log.source(&Query::tag(&of).expect("query"), None).await.expect("can be read").events.len(), 1);
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
}

/// Events that Sekiban wrote to shards, opened without saying so: told, instead of a feed without them, an empty copy and a count of none.
#[tokio::test]
async fn shards_that_are_not_read_are_told() {
    let bench = Bench::new();
    bench.store("").await;
    bench.load(&golden("07")).await;
    for more in ["", "&shards=2"] {
        let store = bench.store(more).await;
        let refused = |told: Error| assert!(told.to_string().contains("shards="), "{more}: {told}");
        refused(store.feed().expect("feed").subscribe(From::Start, Query::all()).next().await.expect("never ends").expect_err("a feed"));
        refused(store.sekiban().expect("sekiban").count(None).await.expect_err("a count"));
        let all = store.sekiban().expect("sekiban");
        refused(all.all_since(None, None).try_collect::<Vec<_>>().await.expect_err("all events"));
        let found = store.verify(&|_| ()).await.expect("verify").findings;
        assert!(found.iter().any(|finding| finding.problem.contains("shards=")), "{more}: {found:?}");
    }
    let store = bench.store("&shards=4").await;
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
    assert_eq!(fed(&store).await.len(), items(&golden("07"), "SekibanEvents").len());
}
