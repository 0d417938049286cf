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
    let before = between.calls("Query");
    loop {
        let page: Vec<Recorded> = sekiban.all_since(since, Some(100)).try_collect().await.expect("page");
        let Some(last) = page.last() else { break };
        met += page.len();
        since = SortableId::of(&last.position);
    }
    assert_eq!(met, 1_000);
    assert_eq!(between.calls("Query") - before, 11, "a query for each page, and one that finds nothing");
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
