//! `feed=streams`: an index in the side table, built from the stream of the events table. Every event of the table, Sekiban's and ours, once, none
//! missed whenever it lands, each tag in order; a large commit whole; and nobody waits for a window.

use std::sync::Arc;

use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use fencepost::testing::Reshard;
use fencepost::{IndexOptions, IndexProgress, feed_reaches};

use crate::tap::Tap;
use crate::*;

/// An hour's window: who waits for one does not come to an end here.
const STREAMS: &str = "&feed=streams&safe_window=3600000";

fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

async fn catch_up(store: &Store) -> IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

/// Until so many are in the index, where records are under way for a while.
async fn settle(store: &Store, commits: u64) {
    for _ in 0..40 {
        catch_up(store).await;
        if store.index().expect("an index").verify(&|_| ()).await.expect("verifies").indexed >= commits {
            return;
        }
    }
    panic!("the index does not come to {commits}");
}

/// An event and its rows as Sekiban writes them: no head.
pub(crate) async fn sekiban_writes(bench: &Bench, service: &str, at: SortableId, event: &Uuid, label: &str, tags: &[&str]) {
    let text = |text: &str| AttributeValue::S(text.into());
    let now = Env::system().now().to_string();
    let put = |table: &str, item: Item| {
        TransactWriteItem::builder().put(Put::builder().table_name(bench.table(table)).set_item(Some(item)).build().expect("a put")).build()
    };
    let stored = Item::from([
        ("pk".into(), text(&format!("SERVICE#{service}#EVENT#{event}"))),
        ("sk".into(), text(&format!("EVENT#{event}"))),
        ("serviceId".into(), text(service)),
        ("gsi1pk".into(), text(&format!("SERVICE#{service}#ALL_EVENTS"))),
        ("eventId".into(), text(&event.to_string())),
        ("sortableUniqueId".into(), text(&at.to_string())),
        ("eventType".into(), text("T")),
        ("payload".into(), text(label)),
        ("tags".into(), AttributeValue::L(tags.iter().map(|tag| text(tag)).collect())),
        ("timestamp".into(), text(&now)),
    ]);
    let row = |tag: &&str| {
        let item = Item::from([
            ("pk".into(), text(&format!("SERVICE#{service}#TAG#{tag}"))),
            ("sk".into(), text(&format!("{at}#{event}"))),
            ("serviceId".into(), text(service)),
            ("tagString".into(), text(tag)),
            ("tagGroup".into(), text(&format!("{service}|{}", tag.split(':').next().expect("a group")))),
            ("eventType".into(), text("T")),
            ("eventId".into(), text(&event.to_string())),
            ("sortableUniqueId".into(), text(&at.to_string())),
            ("createdAt".into(), text(&now)),
        ]);
        put("SekibanTags", item)
    };
    let writes = std::iter::once(put("SekibanEvents", stored)).chain(tags.iter().map(row));
    bench.client.transact_write_items().set_transact_items(Some(writes.collect())).send().await.expect("Sekiban's write");
}

pub(crate) fn now_id() -> SortableId {
    SortableId::threshold(Env::system().now())
}

/// All of the log is in the index and in the feed, each event once, and on every tag in the order that decisions see.
async fn audit(store: &Store, commits: u64, tags: &[&str]) {
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!((verified.findings, verified.commits, verified.indexed), (vec![], commits, commits));
    let all = fed(store).await;
    let ids: BTreeSet<Uuid> = all.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), all.len(), "each once");
    for tag in tags {
        let query = Query::tag(tag).expect("a query");
        let decided = store.log().expect("a log").source(&query, None).await.expect("reads").events;
        let of_tag: Vec<_> = all.iter().filter(|event| query.matches(&event.event_type, &event.tags)).cloned().collect();
        assert_eq!(labels(&of_tag), labels(&decided), "{tag}");
    }
}

#[tokio::test]
async fn every_event_of_the_table_is_fed_whoever_wrote_it_and_services_are_kept_apart() {
    let bench = Bench::new();
    let store = bench.store(STREAMS).await;
    let other = bench.store(&format!("{STREAMS}&service=other")).await;
    bench.load(&golden("04")).await;
    let log = store.log().expect("log");
    log.append(Append::new([event("1", &["a:1"]), event("2", &["b:1"]), event("3", &[])])).await.expect("append");
    let shared = Uuid::from_u128(77);
    sekiban_writes(&bench, "default", now_id(), &shared, "4", &["a:1", "c:1"]).await;
    // Copied from one service to the other: the same id.
    sekiban_writes(&bench, "other", now_id(), &shared, "theirs", &["a:1"]).await;
    log.append(Append::new([event("5", &["a:1"])])).await.expect("append");
    assert!(fed(&store).await.is_empty(), "nothing is in the index yet");
    let progress = catch_up(&other).await;
    assert_eq!((progress.commits, progress.waiting, progress.late), (3 + 6, 0, 0), "one index for the table: {progress:?}");
    assert_eq!(labels(&fed(&store).await)[3..], ["1", "2", "3", "4", "5"]);
    assert_eq!(labels(&fed(&other).await), ["theirs"]);
    audit(&store, 9, &["a:1", "b:1", "c:1", "Student:0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11"]).await;
    assert_eq!(catch_up(&store).await.commits, 0, "none twice");
    // By a query, and built anew from a scan alone.
    let rebuilt = bench.store(&format!("{STREAMS}&side={}", bench.table("Sekiban-anew"))).await;
    assert_eq!(rebuilt.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 9);
    let mut feed = rebuilt.feed().expect("a feed").subscribe(From::Start, Query::tag("a:1").expect("a query"));
    for label in ["1", "4", "5"] {
        assert_eq!(&next_event(&mut feed).await.0.data[..], label.as_bytes());
    }
    // What was recorded of the other feed says nothing here.
    let Ok(Delivery::CaughtUp { checkpoint }) = bench
        .store("")
        .await
        .feed()
        .expect("a feed")
        .subscribe(From::Start, Query::all())
        .filter(|delivery| std::future::ready(matches!(delivery, Ok(Delivery::CaughtUp { .. }))))
        .next()
        .await
        .expect("never ends")
    else {
        panic!("it has caught up")
    };
    let refused = store.feed().expect("a feed").subscribe(From::Checkpoint(checkpoint), Query::all()).next().await;
    assert!(matches!(refused, Some(Err(Error::Refused(_)))), "{refused:?}");
    // Without a stream there is nothing to build it from; and without the setting, no index to build.
    assert!(bench.store("").await.index().is_err());
}

/// A transaction that is held up on its way while later ones land, and are handed over: it comes next, whatever its id says.
#[tokio::test]
async fn what_lands_late_is_delivered_next_and_nobody_waits_for_a_window() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let patient = Timeouts { attempt: Duration::from_secs(30), ..QUICK };
    let slow = open(bench.builder(STREAMS).timeouts(patient).http_client(between.http_client())).await;
    let store = bench.store(STREAMS).await;
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let held = tokio::spawn({
        let log = slow.log().expect("log");
        async move { log.append(Append::new([event("held", &["a:1"])])).await }
    });
    gate.reached(1).await;
    let log = store.log().expect("log");
    let mut quick = None;
    for label in ["1", "2"] {
        quick = Some(log.append(Append::new([event(label, &["b:1"])])).await.expect("append"));
    }
    catch_up(&store).await;
    // The safe feed too: nothing in it can be passed any more.
    let mut feeds = Vec::new();
    for feed in [store.feed().expect("a feed"), store.safe_feed().expect("a feed")] {
        let quick = quick.as_ref().expect("appended");
        assert!(feed.shows(quick.positions[0]).await.expect("asks"), "it is there at once");
        feed_reaches(&*feed, quick, Duration::from_secs(10), store.env()).await.expect("it is there");
        let mut met = feed.subscribe(From::Start, Query::all());
        assert_eq!(&next_event(&mut met).await.0.data[..], b"1");
        let (second, checkpoint) = next_event(&mut met).await;
        assert_eq!(&second.data[..], b"2");
        feeds.push((met, feed, second.position, checkpoint));
    }
    gate.open();
    let landed = held.await.expect("joins").expect("lands");
    assert!(!feeds[0].1.shows(landed.positions[0]).await.expect("asks"), "not in the index yet");
    catch_up(&store).await;
    for (mut met, feed, last, checkpoint) in feeds {
        assert!(feed.shows(landed.positions[0]).await.expect("asks"));
        let mut resumed = feed.subscribe(From::Checkpoint(checkpoint), Query::all());
        for feed in [&mut met, &mut resumed] {
            let (late, _) = next_event(feed).await;
            assert_eq!((&late.data[..], late.position < last), (&b"held"[..], true));
        }
    }
    audit(&store, 3, &["a:1", "b:1"]).await;
}

/// Waiting for one's own commit is waiting for all of its events: the index may have the last of them, and not yet the first.
#[tokio::test]
async fn waiting_for_a_commit_waits_for_each_of_its_events() {
    let bench = Bench::embedded();
    let reshard = Reshard::new(bench.http(), 3);
    let store = open(bench.builder(STREAMS).http_client(reshard.http_client())).await;
    let feed = store.feed().expect("a feed");
    let mut late = 0;
    for round in 0..12 {
        let events = (0..4).map(|n| event(&format!("{round}.{n}"), &[&format!("t:{n}")]));
        let committed = store.log().expect("log").append(Append::new(events)).await.expect("append");
        let reached = async || feed_reaches(&*feed, &committed, Duration::ZERO, store.env()).await.is_ok();
        for looks in 0.. {
            assert!(looks < 400, "it comes");
            // Longer and longer: a busy machine has it finish too.
            let options = quickly().until_caught_up().within(Duration::from_millis(2 + looks / 10));
            store.index().expect("an index").run(&options, &|_| ()).await.expect("runs");
            let (said, there) = (reached().await, fed(&store).await.len());
            assert!(there <= 4 * (round + 1));
            if said {
                assert_eq!(fed(&store).await.len(), 4 * (round + 1));
                break;
            }
            late += usize::from(there > 4 * round);
        }
    }
    assert!(late > 0, "commits showed in part");
}

/// Large commits: there, whole, from their publication on, whatever became of their rows; and behind them what follows.
#[tokio::test]
async fn a_large_commit_is_handed_over_whole_from_its_publication_on() {
    for given in [false, true] {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let writer = open(bench.builder(STREAMS).timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(between.http_client())).await;
        let store = bench.store(STREAMS).await;
        let log = writer.log().expect("log");
        log.append(Append::new([event("before", &["a:1"])])).await.expect("append");
        // Its writer dies before any row.
        let gate = Gate::new();
        between.script(Rule::on("TransactWriteItems").nth(1).pause_after(&gate));
        let label = |n: u64| format!("{n:02}");
        let publish = async {
            if given {
                let base = now_id().to_string();
                let at = |n: u64| id(&format!("{}{:011}", &base[..19], n * 7));
                let events: Vec<_> = (0..60).map(|n| (at(n), event(&label(n), &["a:1", "b:1"]).id(Uuid::from_u128(n.into())))).collect();
                writer.sekiban().expect("sekiban").write(&events, WriteOptions::default()).await.map(|_| ())
            } else {
                log.append(Append::new((0..60).map(|n| event(&label(n), &["a:1", "b:1"])))).await.map(|_| ())
            }
        };
        tokio::select! {
            done = publish => panic!("{done:?}"),
            () = gate.reached(1) => {}
        }
        drop(writer);
        assert_eq!(bench.dump("SekibanTags").await.iter().filter(|item| item.contains_key("eventId")).count(), 1, "no row yet");
        let progress = catch_up(&store).await;
        assert_eq!((progress.commits, progress.waiting), (2, 0), "{progress:?}");
        let met = labels(&fed(&store).await);
        assert_eq!(met.len(), 61, "all of it: {met:?}");
        assert!(met[0] == "before" && met[1..].is_sorted());
        store.log().expect("log").append(Append::new([event("after", &["b:1"])])).await.expect("append");
        assert_eq!(catch_up(&store).await.commits, 1, "its rows are told by its record");
        audit(&store, 3, &["a:1", "b:1"]).await;
        assert_eq!(labels(&fed(&store).await).last().map(String::as_str), Some("after"));
    }
}

/// Rows without events, as a write that was taken back leaves them, and events that expired, hold nobody up.
#[tokio::test]
async fn what_is_gone_holds_nobody_up() {
    let bench = Bench::new();
    let store = bench.store(STREAMS).await;
    let gone = Uuid::from_u128(5);
    sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(4), "1", &["a:1"]).await;
    sekiban_writes(&bench, "default", now_id(), &gone, "gone", &["a:1"]).await;
    let text = |text: String| AttributeValue::S(text);
    let key = [("pk", format!("SERVICE#default#EVENT#{gone}")), ("sk", format!("EVENT#{gone}"))];
    let key = key.map(|(name, value)| (name.to_owned(), text(value)));
    bench.client.delete_item().table_name(bench.table("SekibanEvents")).set_key(Some(key.into())).send().await.expect("deletes");
    // A row whose event never was.
    let (at, never) = (now_id(), Uuid::from_u128(8));
    let row = [("pk", "SERVICE#default#TAG#a:1".to_owned()), ("sk", format!("{at}#{never}")), ("eventId", never.to_string())];
    bench.put("SekibanTags", row.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()).await;
    store.log().expect("log").append(Append::new([event("2", &["b:1"])])).await.expect("append");
    sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(6), "3", &["a:1"]).await;
    let progress = catch_up(&store).await;
    assert_eq!((progress.commits, progress.waiting), (4, 0), "{progress:?}");
    assert_eq!(labels(&fed(&store).await), ["1", "2", "3"]);
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!((verified.findings, verified.expired), (vec![], 1));
    // One that was gone before the index began is not waited for either.
    let anew = bench.store(&format!("{STREAMS}&side={}", bench.table("Sekiban-anew"))).await;
    anew.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
    sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(7), "4", &["a:1"]).await;
    assert_eq!(catch_up(&anew).await.waiting, 0);
    assert_eq!(labels(&fed(&anew).await), ["1", "2", "3", "4"]);
}

const TAGS: [&str; 5] = ["a:1", "a:2", "b:1", "b:2", "c:1"];

/// Writers of ours under faults, and Sekiban's on tags of its own, at random.
async fn write(store: &Store, bench: &Bench, chance: &Env, commits: u64, number: &mut u64) -> u64 {
    let mut events = 0;
    for _ in 0..commits {
        let tag = || TAGS[usize::try_from(chance.below(5)).expect("small")];
        let mut next = || {
            *number += 1;
            format!("{:04}", *number)
        };
        match chance.below(6) {
            0 => {
                sekiban_writes(bench, "default", now_id(), &chance.new_id(), &next(), &["theirs:1", "theirs:2"]).await;
                events += 1;
            }
            1 => {
                let many: Vec<Event> = (0..55).map(|_| event(&next(), &[TAGS[0], TAGS[1]])).collect();
                store.log().expect("log").append(Append::new(many)).await.expect("appends");
                // One, by its record.
                events += 1;
            }
            _ => {
                let two = [event(&next(), &[tag(), tag()]), event(&next(), &[tag()])];
                store.log().expect("log").append(Append::new(two)).await.expect("appends");
                events += 2;
            }
        }
    }
    events
}

#[tokio::test]
async fn an_indexer_that_is_killed_anywhere_misses_nothing_and_keeps_every_tag_in_order() {
    const CALLS: [&str; 6] = ["GetRecords", "GetShardIterator", "Query", "PutItem", "GetItem", "any call"];
    let (mut struck, mut rounds) = (BTreeSet::new(), 0);
    for seed in 1..5 {
        let bench = Bench::embedded();
        let reshard = Reshard::new(bench.http(), seed);
        let faults = Faults::new(reshard.http_client(), seed);
        let trouble = Faults::new(bench.http(), seed);
        let writer = open(bench.builder(STREAMS).timeouts(Timeouts { attempts: 12, ..QUICK }).http_client(trouble.http_client())).await;
        trouble.random(Chances { throttle: 0.02, lose_request: 0.02, lose_response: 0.04, conflict: 0.03, ..Chances::default() });
        let indexer = open(bench.builder(STREAMS).http_client(faults.http_client())).await;
        let index = indexer.index().expect("an index");
        let (chance, mut commits, mut number) = (Env::seeded(seed), 0, 0);
        for round in 0..25 {
            if round < 20 {
                commits += write(&writer, &bench, &chance, chance.below(3), &mut number).await;
            }
            let gate = Gate::new();
            let pick = |bound: usize| usize::try_from(chance.below(bound as u64)).expect("small");
            let (call, when) = (CALLS[pick(CALLS.len())], ["before", "after"][pick(2)]);
            let rule = if call == "any call" { Rule::on_any() } else { Rule::on(call) };
            let rule = rule.nth(1 + pick(if call == "any call" { 60 } else { 3 }));
            faults.script(if when == "before" { rule.pause_before(&gate) } else { rule.pause_after(&gate) });
            let options = quickly().until_caught_up();
            tokio::select! {
                ran = index.run(&options, &|_| ()) => { ran.expect("runs"); }
                () = gate.reached(1) => { struck.insert(format!("{when} {call}")); }
            }
            rounds += 1;
            faults.calm();
        }
        reshard.calm().await;
        trouble.calm();
        settle(&indexer, commits).await;
        audit(&writer, commits, &[&TAGS[..], &["theirs:1", "theirs:2"]].concat()).await;
    }
    assert!(struck.len() > CALLS.len(), "{struck:?} in {rounds} rounds");
}

/// A day without a consumer: it is said, and a rebuild finds what was lost, each tag in order; what comes behind it waits for it until then.
#[tokio::test]
async fn what_the_stream_has_forgotten_is_found_by_a_rebuild() {
    let bench = Bench::embedded();
    let reshard = Reshard::new(bench.http(), 21);
    reshard.calm().await;
    let store = open(bench.builder(STREAMS).http_client(reshard.http_client())).await;
    let index = store.index().expect("an index");
    let (chance, mut number) = (Env::seeded(22), 0);
    let mut commits = write(&store, &bench, &chance, 6, &mut number).await;
    settle(&store, commits).await;
    commits += write(&store, &bench, &chance, 6, &mut number).await;
    // They come into shards, and are gone before the indexer comes back.
    let gate = Gate::new();
    let faults = Faults::new(reshard.http_client(), 1);
    faults.script(Rule::on("GetRecords").nth(1).pause_after(&gate));
    let reader = open(bench.builder(STREAMS).http_client(faults.http_client())).await;
    let options = quickly();
    tokio::select! {
        ran = async { reader.index().expect("an index").run(&options, &|_| ()).await } => panic!("{ran:?}"),
        () = gate.reached(1) => {}
    }
    reshard.trim().await;
    commits += write(&store, &bench, &chance, 6, &mut number).await;
    let ran = index.run(&quickly().until_caught_up().within(Duration::from_secs(5)), &|_| ()).await.expect("runs");
    assert!(ran.trimmed, "{ran:?}");
    assert!(!index.verify(&|_| ()).await.expect("verifies").findings.is_empty());
    let rebuilt = index.rebuild(&|_| ()).await.expect("rebuilds");
    assert!(rebuilt.appended > 0, "{rebuilt:?}");
    settle(&store, commits).await;
    assert_eq!(index.status().await.expect("status").trimmed, None, "a rebuild clears it");
    commits += write(&store, &bench, &chance, 3, &mut number).await;
    settle(&store, commits).await;
    audit(&store, commits, &[&TAGS[..], &["theirs:1", "theirs:2"]].concat()).await;
}

/// Rebuilds, two indexers and writers, all at once: one index.
#[tokio::test]
async fn rebuilds_and_indexers_beside_writers_make_one_index() {
    let bench = Bench::new();
    let stores = [bench.store(STREAMS).await, bench.store(STREAMS).await];
    let (chance, mut number) = (Env::seeded(41), 0);
    let before = write(&stores[0], &bench, &chance, 10, &mut number).await;
    let indexes = stores.each_ref().map(|store| store.index().expect("an index"));
    let options = quickly();
    let work = async {
        let rebuilds = async {
            for _ in 0..4 {
                indexes[0].rebuild(&|_| ()).await.expect("rebuilds");
            }
        };
        futures::join!(write(&stores[1], &bench, &chance, 20, &mut number), rebuilds).0
    };
    let commits = tokio::select! {
        ended = async { futures::join!(indexes[0].run(&options, &|_| ()), indexes[1].run(&options, &|_| ())) } => panic!("{ended:?}"),
        written = work => before + written,
    };
    settle(&stores[0], commits).await;
    audit(&stores[1], commits, &[&TAGS[..], &["theirs:1", "theirs:2"]].concat()).await;
}

/// A copy follows the index, and says what it does not have.
#[tokio::test]
async fn it_is_copied_by_its_index() {
    let bench = Bench::new();
    let from = bench.store(STREAMS).await;
    let mut number = 0;
    write(&from, &bench, &Env::seeded(51), 12, &mut number).await;
    let ledger = open(Store::builder("memory:").expect("url")).await;
    let copy = Copy::new(&from, &ledger, "there");
    let losses = copy.plan().await.expect("a plan").losses;
    assert!(losses.iter().any(|loss| loss.what == "what the index lacks"), "{losses:?}");
    catch_up(&from).await;
    assert_eq!(copy.run(&|_| ()).await.expect("copies").events, number);
    let back = Bench::new().store(STREAMS).await;
    assert_eq!(Copy::new(&ledger, &back, "back").run(&|_| ()).await.expect("copies").events, number);
    catch_up(&back).await;
    for tag in TAGS {
        let query = Query::tag(tag).expect("a query");
        let of = async |store: &Store| labels(&store.log().expect("log").source(&query, None).await.expect("source").events);
        assert_eq!(of(&from).await, of(&back).await, "{tag}");
    }
    assert_eq!(fed(&back).await.len() as u64, number);
}

/// What an event costs to be indexed: a strong read of each tag's row before it, and its share of an epoch.
#[tokio::test]
async fn an_event_costs_a_read_unit_for_each_tag_and_a_share_of_an_epoch() {
    let bench = Bench::embedded();
    let store = bench.store(STREAMS).await;
    let log = store.log().expect("log");
    for n in 0..100 {
        let tags = [format!("course:c{:04}", n % 37), format!("student:s{:06}", n * 31)];
        log.append(Append::new([event("{}", &tags.each_ref().map(String::as_str))])).await.expect("appends");
    }
    let progress = catch_up(&store).await;
    assert_eq!(progress.commits, 100);
    let (read, write) = (progress.units.read / 100.0, progress.units.write / 100.0);
    assert!((2.0..2.1).contains(&read), "{read} read units for an event with two tags");
    assert!(write <= 0.05, "{write} write units");
    // Reading the feed: an epoch, and each event once.
    let tap = Tap::on(bench.http());
    let reader = open(bench.builder(STREAMS).http_client(tap.http_client())).await;
    tap.take();
    assert_eq!(fed(&reader).await.len(), 100);
    let batches = tap.count("BatchGetItem");
    assert_eq!(batches, 3, "32, and then 64 at a time");
}

/// The function and its policies know of it: a stream with new images, and an indexer that writes nothing but the index.
#[tokio::test]
async fn tables_and_rights_have_the_stream() {
    let url = "dynamodb://eu-west-1/Sekiban?layout=sekiban&feed=streams";
    let tables = Store::builder(url).expect("a URL").tables();
    let options = fencepost::TableOptions::default();
    let printed = tables.print(fencepost::Format::Terraform, &options).expect("prints");
    assert_eq!(printed.matches("stream_view_type").count(), 1, "{printed}");
    let policies = tables.iam(&options, &fencepost::Scope::default());
    let policy = |role| policies.iter().find(|(of, _)| *of == role).map(|(_, policy)| policy.clone()).expect("a policy");
    let indexer = policy(fencepost::Role::Indexer);
    assert!(indexer.contains("GetRecords") && indexer.contains("table/SekibanEvents/stream/"), "{indexer}");
    assert!(indexer.contains("table/SekibanTags") && !indexer.contains("UpdateItem") && !indexer.contains("DeleteItem"), "{indexer}");
    let plain = Store::builder("dynamodb://eu-west-1/Sekiban?layout=sekiban").expect("a URL").tables();
    assert!(!plain.print(fencepost::Format::Terraform, &options).expect("prints").contains("stream_view_type"));
    let bench = Bench::new();
    // The table beside the log is one of them: with shards it is made with the others.
    bench.store("&shards=2").await;
    // A table that is there without a stream is told, not taken.
    let differs = bench.builder(STREAMS).tables().verify().await.expect("looks");
    assert!(differs.iter().any(|difference| difference.to_string().contains("stream")), "{differs:?}");
    assert!(Store::builder("memory:?layout=sekiban&feed=lanes-1").is_err());
    let _: Arc<dyn fencepost::Feed> = bench.store("").await.feed().expect("a feed");
}

/// The record of a large commit comes where pieces under its id were collected before: no new item for the stream, and in the index all the same.
#[tokio::test]
async fn a_large_commit_under_an_id_whose_pieces_were_collected_is_indexed() {
    // By a clock of the test's own, which an endpoint's would refuse.
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let env = Env::seeded(1);
    let store = open(bench.builder(STREAMS).timeouts(QUICK).env(env.clone()).http_client(between.http_client())).await;
    let append = || Append::new((0..70).map(|n| event(&n.to_string(), &["a:1"]))).commit(CommitId(Uuid::from_u128(5)));
    between.script(Rule::on("TransactWriteItems").throttle());
    store.log().expect("log").append(append()).await.expect_err("throttled");
    between.calm();
    env.advance(Duration::from_secs(120));
    assert_eq!(store.collect_garbage(Duration::from_secs(60)).await.expect("gc").sets, 1);
    store.log().expect("log").append(append()).await.expect("appends");
    catch_up(&store).await;
    assert_eq!(fed(&store).await.len(), 70);
}
