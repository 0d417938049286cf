//! Reads: `since` is exclusive, each event once, tenants and shards, copies, and what expires.

use crate::*;

/// W10: `since` is exclusive, on every read.
#[tokio::test]
async fn since_is_exclusive_on_every_read() {
    for more in ["", "&shards=4"] {
        let bench = Bench::new();
        let sekiban = bench.sekiban(more).await;
        let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
        let events: Vec<_> = (1..=3)
            .map(|n| (at(n * 10), Event::new("T", n.to_string()).and_then(|e| e.tag("a:1")).expect("event").id(Uuid::from_u128(n.into()))))
            .collect();
        sekiban.write(&events, WriteOptions::default()).await.expect("writes");
        let vectors = [
            (None, 3),
            (Some(SortableId::MIN), 3),
            (Some(at(9)), 3),
            (Some(at(10)), 2),
            (Some(id("063921792785123401000144769401")), 3),
            (Some(id("063921792785123401000144769403")), 2),
            (Some(at(11)), 2),
            (Some(at(20)), 1),
            (Some(at(30)), 0),
            (Some(at(31)), 0),
            (Some(SortableId::MAX), 0),
        ];
        for (since, expected) in vectors {
            let labels = |events: Vec<Recorded>| events.iter().map(|e| String::from_utf8_lossy(&e.data).into_owned()).collect::<Vec<_>>();
            let wanted: Vec<String> = (4 - expected..=3).map(|n: usize| n.to_string()).collect();
            let all = sekiban.all_since(since, None).try_collect().await.expect("all");
            assert_eq!(labels(all), wanted, "all since {since:?}");
            let limited = sekiban.all_since(since, Some(1)).try_collect().await.expect("all");
            assert_eq!(labels(limited), wanted[..wanted.len().min(1)], "one since {since:?}");
            let by_tag = sekiban.by_tag_since(&tag("a:1"), since).try_collect().await.expect("by tag");
            assert_eq!(labels(by_tag), wanted, "by tag since {since:?}");
            let rows: Vec<_> = sekiban.tag_stream(&tag("a:1"), since).try_collect().await.expect("rows");
            assert_eq!(rows.len(), expected, "rows since {since:?}");
            assert_eq!(sekiban.count(since).await.expect("count"), expected as u64, "count since {since:?}");
        }
    }
}

#[tokio::test]
async fn one_tenant_never_sees_another() {
    let bench = Bench::new();
    let (one, other) = (bench.store("&service=one").await, bench.store("&service=one-more").await);
    let plain = bench.store("&keys=plain").await;
    for (store, label) in [(&one, "1"), (&other, "2"), (&plain, "3")] {
        let log = store.log().expect("log");
        log.append(Append::new([event(label, &["a:1"])]).unless(Query::tag("a:1").expect("query"), After::Nothing)).await.expect("its own");
        store.sekiban().expect("sekiban").append_if_unique("key", event("unique", &["u:1"]), None).await.expect("its own key");
    }
    for (store, label) in [(&one, "1"), (&other, "2"), (&plain, "3")] {
        let sekiban = store.sekiban().expect("sekiban");
        let events = store.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source");
        assert_eq!(labels(&events.events), [label]);
        assert_eq!(labels(&fed(store).await), [label, "unique"]);
        assert_eq!((sekiban.count(None).await.expect("count"), sekiban.scan_tags().await.expect("tags").len()), (2, 2));
        assert_eq!(sekiban.tags_of_group("a").try_collect::<Vec<_>>().await.expect("group").len(), 1);
        let verified = store.verify(&|_| ()).await.expect("verify");
        assert_eq!((verified.events, verified.findings), (2, vec![]));
    }
    let token = one.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source").token;
    let foreign = other.log().expect("log").unchanged(&token).await;
    assert!(matches!(foreign, Err(Error::Refused(Refused::Foreign { .. }))), "{foreign:?}");
}

/// W7: whatever the number of shards was and is, everything is read.
#[tokio::test]
async fn changing_the_number_of_shards_hides_nothing() {
    let bench = Bench::new();
    let mut written = 0;
    for shards in [1, 4, 8, 2, 1] {
        let store = bench.store(&format!("&shards={shards}")).await;
        for n in 0..10 {
            store.log().expect("log").append(Append::new([event(&n.to_string(), &["a:1"])])).await.expect("append");
            written += 1;
        }
        for other in [1, 3, 8] {
            let reader = bench.store(&format!("&shards={other}")).await;
            assert_eq!(reader.sekiban().expect("sekiban").count(None).await.expect("count"), written);
            let all: Vec<Recorded> = reader.sekiban().expect("sekiban").all_since(None, None).try_collect().await.expect("all");
            assert!(all.len() as u64 == written && all.is_sorted_by_key(|event| event.position));
            assert_eq!(fed(&reader).await, all);
        }
    }
}

/// W12: catching up in pages reads each event once.
#[tokio::test]
async fn catching_up_in_pages_reads_each_event_once() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let store = open(bench.builder("").http_client(between.http_client())).await;
    for commit in 0..20 {
        let events = (0..50).map(|n| event(&format!("{commit}.{n}"), &[]));
        store.log().expect("log").append(Append::new(events)).await.expect("append");
    }
    let sekiban = store.sekiban().expect("sekiban");
    let (mut since, mut met) = (None, 0);
    // Once, shards that nobody named are looked for.
    sekiban.latest().await.expect("latest");
    let before = between.calls("Query");
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(100)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len();
        since = SortableId::of(&last.position);
    }
    assert_eq!(met, 1_000);
    assert_eq!(
        between.calls("Query") - before,
        2 * 11,
        "a query for each page, one that finds nothing, and each time a look at the list of large commits"
    );
}

/// The published `ttl`, on the event and on its rows alike.
#[tokio::test]
async fn an_event_expires_with_its_rows() {
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let at: jiff::Timestamp = "2030-01-01T00:00:00Z".parse().expect("time");
    let many = (0..60u64)
        .map(|n| (id(&format!("0639217927851234{n:03}00144769402")), event("{}", &["a:1", "b:1"]).id(Uuid::from_u128(n.into()))))
        .collect::<Vec<_>>();
    sekiban.write(&many[..1], WriteOptions::default().expire_at(at)).await.expect("small");
    sekiban.write(&many[1..], WriteOptions::default().expire_at(at)).await.expect("staged");
    let ttl = |item: &Item| item.get("ttl").cloned();
    let (events, tags) = (bench.dump("SekibanEvents").await, bench.dump("SekibanTags").await);
    let rows: Vec<&Item> = events.iter().chain(&tags).filter(|item| item.contains_key("eventId")).collect();
    assert_eq!(rows.len(), 60 * 3);
    for item in rows {
        assert_eq!(ttl(item), Some(AttributeValue::N(at.as_second().to_string())));
    }
}

/// Copied from the ledger, from prefixed to plain keys, and back into a ledger: the same events under the same ids, on the same tags in order.
#[tokio::test]
async fn everything_is_copied_there_between_forms_and_back() {
    let quiet = |_: u64| ();
    let ledger = open(Store::builder("memory:").expect("url")).await;
    for n in 0..30 {
        let tags = [format!("a:{}", n % 3), format!("b:{}", n % 5)];
        let events = (0..1 + n % 3).map(|m| event(&format!("{n}.{m}"), &[&tags[0], &tags[1]]));
        ledger.log().expect("log").append(Append::new(events)).await.expect("append");
    }
    let bench = Bench::new();
    let (prefixed, plain) = (bench.store("&service=copied").await, bench.store("&keys=plain&shards=2").await);
    let back = open(Store::builder("memory:").expect("url")).await;
    for (from, to) in [(&ledger, &prefixed), (&prefixed, &plain), (&plain, &back)] {
        let copy = Copy::new(from, to, "there");
        let losses = copy.plan().await.expect("a plan").losses;
        assert!(losses.iter().all(|loss| loss.what != "what the index lacks"), "nobody has to build an index here: {losses:?}");
        let copied = copy.run(&quiet).await.expect("copies");
        assert_eq!(copied.events, 60);
        assert!(copy.compare(&quiet).await.expect("compares").is_equal());
    }
    for n in 0..3 {
        let query = Query::tag(format!("a:{n}")).expect("query");
        let of = async |store: &Store| store.log().expect("log").source(&query, None).await.expect("source").events;
        let (there, home) = (of(&ledger).await, of(&back).await);
        assert_eq!(labels(&there), labels(&home));
        assert_eq!(there.iter().map(|event| event.id).collect::<Vec<_>>(), home.iter().map(|event| event.id).collect::<Vec<_>>());
    }
}

/// A replica that has seen a part of a commit: reads that are a moment old show whole commits, in order, and what they stand on is no ground for a
/// decision that misses the rest.
#[tokio::test]
async fn what_a_replica_has_seen_in_part_is_read_as_whole_commits() {
    use fencepost::{EventLogExt, Expect, LoadOptions, Step, StreamName};
    let eventual = fencepost::sekiban::Settings::from_json(r#"{"DynamoDb":{"UseConsistentReads":false}}"#).expect("settings");
    for seed in 0..8 {
        let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
        let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), seed);
        let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").settings(&eventual).expect("settings");
        let store = open(builder.http_client(lag.http_client())).await;
        let (log, sekiban, streams) = (store.log().expect("log"), store.sekiban().expect("sekiban"), store.streams());
        let (env, name) = (Env::seeded(seed), StreamName::new("a:1").expect("name"));
        for commit in 0..6u64 {
            log.append(Append::new((0..3).map(|n| event(&format!("{commit}.{n}"), &["a:1"])))).await.expect("append");
            match env.below(3) {
                0 => drop(lag.apply_half().await),
                1 => lag.apply_all().await,
                _ => drop(lag.apply_any().await),
            }
            let by_tag: Vec<Recorded> = sekiban.by_tag_since(&tag("a:1"), None).try_collect().await.expect("by tag");
            let rows: Vec<_> = sekiban.tag_stream(&tag("a:1"), None).try_collect().await.expect("rows");
            let query = Query::tag("a:1").expect("query");
            let read = log.read_all(&query, ReadOptions::default().eventual()).await.expect("read");
            let mut back = log.read_all(&query, ReadOptions::default().eventual().backwards()).await.expect("read");
            back.reverse();
            let loaded = streams.load(&name, LoadOptions::default().eventual()).await.expect("loads");
            for (how, met) in [("by tag", &by_tag), ("read", &read), ("backwards", &back), ("load", &loaded.events)] {
                let whole: Vec<String> = (0..=commit).flat_map(|c| (0..3).map(move |n| format!("{c}.{n}"))).collect();
                assert!(met.len() % 3 == 0 && labels(met) == whole[..met.len()], "seed {seed}, {commit}, {how}: {:?}", labels(met));
            }
            assert_eq!(rows.len() % 3, 0, "seed {seed}, {commit}");
            let held = loaded.events.len() as u64;
            let step = Step::new([event("never", &[])]).expect(Expect::Token(loaded.token));
            match streams.append(&name, step).await {
                Err(Error::Conflict(conflict)) => assert_eq!(conflict.events.len() as u64, (commit + 1) * 3 - held, "seed {seed}"),
                other => assert_eq!((other.is_ok(), held), (true, (commit + 1) * 3), "seed {seed}, {commit}: {other:?}"),
            }
            if held == (commit + 1) * 3 {
                break;
            }
        }
    }
}

/// DynamoDB removes an event and its rows one by one: a row that has expired and whose event is gone is passed over, on every read of the tag.
#[tokio::test]
async fn a_row_that_outlives_its_event_is_passed_over_once_it_has_expired() {
    use fencepost::{LoadOptions, StreamName};
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    env.set_clock(id("063921792785123400000144769402").timestamp());
    let store = open(bench.builder("").env(env.clone())).await;
    let sekiban = store.sekiban().expect("sekiban");
    let expires = env.now() + Duration::from_secs(60);
    let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
    let one = |n: u64| [(at(n), event(&n.to_string(), &["a:1"]).id(Uuid::from_u128(n.into())))];
    sekiban.write(&one(1), WriteOptions::default().expire_at(expires)).await.expect("writes");
    sekiban.write(&one(2), WriteOptions::default()).await.expect("writes");
    let key = [("pk", format!("SERVICE#default#EVENT#{}", Uuid::from_u128(1))), ("sk", format!("EVENT#{}", Uuid::from_u128(1)))];
    let key: Item = key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))).into();
    bench.client.delete_item().table_name(bench.table("SekibanEvents")).set_key(Some(key)).send().await.expect("delete");
    let log = store.log().expect("log");
    let query = Query::tag("a:1").expect("query");
    let early = log.source(&query, None).await;
    assert!(matches!(early, Err(Error::Corrupt(_))), "it has not expired: {early:?}");
    env.advance(Duration::from_secs(61));
    assert_eq!(labels(&log.source(&query, None).await.expect("source").events), ["2"]);
    assert_eq!(labels(&sekiban.by_tag_since(&tag("a:1"), None).try_collect::<Vec<_>>().await.expect("by tag")), ["2"]);
    let loaded = store.streams().load(&StreamName::new("a:1").expect("name"), LoadOptions::default()).await.expect("loads");
    assert_eq!((labels(&loaded.events), loaded.events[0].version, loaded.version), (vec!["2".to_owned()], Some(2), 2));
    let read: Vec<_> = store.streams().read(&StreamName::new("a:1").expect("name"), Default::default()).try_collect().await.expect("reads");
    assert_eq!((labels(&read), read[0].version), (vec!["2".to_owned()], Some(2)));
    log.append(Append::new([event("3", &["a:1"])]).unless(query.clone(), log.source(&query, None).await.expect("source").token))
        .await
        .expect("decisions go on");
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
}

/// With shards, a page that is asked for takes its share of each, and what was read beyond it is read again by the next: how much, at most.
#[tokio::test]
async fn catching_up_over_shards_reads_few_events_twice() {
    let bench = Bench::embedded();
    let tap = crate::tap::Tap::on(bench.http());
    // An id decides its shard: by chance, some spreads are worse than this one.
    let store = open(bench.builder("&shards=4").env(Env::seeded(1)).http_client(tap.http_client())).await;
    for commit in 0..20 {
        let events = (0..50).map(|n| event(&format!("{commit}.{n}"), &[]));
        store.log().expect("log").append(Append::new(events)).await.expect("append");
    }
    let sekiban = store.sekiban().expect("sekiban");
    sekiban.latest().await.expect("latest");
    tap.take();
    let (mut since, mut met) = (None, 0);
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(100)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len() as u64;
        since = SortableId::of(&last.position);
    }
    let asked = tap.take();
    let read: u64 = asked.iter().filter(|call| call.api == "Query").map(|call| call.answer["Count"].as_u64().expect("a count")).sum();
    let queries = asked.iter().filter(|call| call.api == "Query").count();
    assert_eq!(met, 1_000);
    // A share of a page for each shard, and once more for those that are behind; each tells by one more whether its last id goes on.
    assert!(read <= met * 3 / 2 + queries as u64 && queries <= 11 * 10, "{read} events in {queries} queries");
    // Whoever reads on, instead of asking page by page, reads each once.
    let all: Vec<Recorded> = sekiban.all_since(None, None).try_collect().await.expect("all");
    let read: u64 = tap.take().iter().filter(|call| call.api == "Query").map(|call| call.answer["Count"].as_u64().expect("a count")).sum();
    assert_eq!((all.len(), read), (1_000, 1_000));
}

/// W11, and W10 beside it: two events under one id are both read, whatever the page, and `since` passes over both.
#[tokio::test]
async fn equal_ids_are_both_read_across_pages() {
    for page in [1, 2, 1000] {
        let settings = serde_json::json!({"DynamoDb": {"QueryPageSize": page, "UseConsistentReads": true}});
        let settings = fencepost::sekiban::Settings::from_json(&settings.to_string()).expect("settings");
        let bench = Bench::new();
        let store = open(bench.builder("").settings(&settings).expect("settings")).await;
        let sekiban = store.sekiban().expect("sekiban");
        let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
        let one = |n: u64, label: &str, of: u128| (at(n), event(label, &["a:1"]).id(Uuid::from_u128(of)));
        let events = [one(10, "1", 1 << 100), one(10, "2", 2 << 100), one(20, "3", 3 << 100)];
        sekiban.write(&events, WriteOptions::default()).await.expect("writes");
        for (since, expected) in
            [(None, &["1", "2", "3"][..]), (Some(at(9)), &["1", "2", "3"]), (Some(at(10)), &["3"]), (Some(at(20)), &[])]
        {
            let all: Vec<_> = sekiban.all_since(since, None).try_collect().await.expect("all");
            assert_eq!(labels(&all), expected, "{page} {since:?}");
            let by_tag: Vec<_> = sekiban.by_tag_since(&tag("a:1"), since).try_collect().await.expect("by tag");
            assert_eq!(labels(&by_tag), expected, "{page} {since:?}");
            assert_eq!(sekiban.tag_stream(&tag("a:1"), since).try_collect::<Vec<_>>().await.expect("rows").len(), expected.len());
            assert_eq!(sekiban.count(since).await.expect("count"), expected.len() as u64);
        }
        assert_eq!(labels(&fed(&store).await), ["1", "2", "3"]);
        let (first, checkpoint) = next_event(&mut store.feed().expect("feed").subscribe(From::Start, Query::all())).await;
        assert_eq!(&first.data[..], b"1");
        let mut rest = store.feed().expect("feed").subscribe(From::Checkpoint(checkpoint), Query::all());
        assert_eq!(&next_event(&mut rest).await.0.data[..], b"2", "the other one under the id");
    }
}
