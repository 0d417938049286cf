//! The index of `streams` mode on the embedded engine: what an indexer puts, what a feed over it delivers.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fencepost::testing::{Faults, Gate, Reshard, Rule};
use fencepost::{Append, Delivery, Engine, Env, Event, From, IndexMutation, IndexOptions, Query, Store};
use futures::StreamExt;

use support::{Ground, open};

fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type, "{}").expect("an event"), |event, tag| event.tag(tag).expect("a tag"))
}

async fn put(store: &Store, events: Vec<Event>) {
    store.log().expect("a log").append(Append::new(events)).await.expect("appends");
}

async fn catch_up(store: &Store) -> fencepost::IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

/// All that a feed has, from the start.
async fn fed(store: &Store, query: Query) -> Vec<fencepost::Recorded> {
    let mut feed = store.feed().expect("a feed").subscribe(From::Start, query);
    let mut all = Vec::new();
    loop {
        match feed.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => all.push(*event),
            Delivery::CaughtUp { .. } => return all,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_was_appended_is_indexed_and_comes_out_of_the_feed() {
    let ground = Ground::fresh();
    let store = open(ground.builder("feed=streams")).await;
    put(&store, vec![event("A", &["x"]), event("B", &["x", "y"]), event("C", &[])]).await;
    put(&store, vec![event("A", &["y"])]).await;
    assert!(fed(&store, Query::all()).await.is_empty(), "nothing is in the index yet");
    let progress = catch_up(&store).await;
    assert_eq!((progress.commits, progress.late, progress.waiting, progress.caught_up), (2, 0, 0, true), "{progress:?}");
    let types = |events: &[fencepost::Recorded]| events.iter().map(|e| e.event_type.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(types(&fed(&store, Query::all()).await), ["A", "B", "C", "A"]);
    assert_eq!(types(&fed(&store, Query::tag("y").expect("a query")).await), ["B", "A"]);
    assert_eq!(types(&fed(&store, Query::types(["C"]).expect("a query")).await), ["C"]);
    let again = catch_up(&store).await;
    assert_eq!((again.commits, again.epochs), (0, 0), "{again:?}");
}

/// Every commit of the log is in the feed, once, and on every tag in the order that decisions see.
async fn audit(store: &Store, commits: usize) {
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!(verified.findings, [], "{verified:?}");
    assert_eq!((verified.commits, verified.indexed), (commits as u64, commits as u64));
    let all = fed(store, Query::all()).await;
    let ids: BTreeSet<_> = all.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), all.len(), "each once");
    for tag in TAGS {
        let query = Query::tag(tag).expect("a query");
        let decided = store.log().expect("a log").source(&query, None).await.expect("reads").events;
        let of_tag: Vec<_> = all.iter().filter(|event| query.matches(&event.event_type, &event.tags)).cloned().collect();
        assert_eq!(of_tag, decided, "{tag}");
        assert_eq!(fed(store, query).await, decided, "{tag}");
    }
}

const TAGS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Commits over one to three tags, two events each.
async fn write(store: &Store, chance: &Env, commits: usize) {
    for _ in 0..commits {
        let tag = || TAGS[usize::try_from(chance.below(8)).expect("small")];
        let (one, two, three) = (tag(), tag(), tag());
        put(store, vec![event("A", &[one, two]), event("B", &[three])]).await;
    }
}

/// Runs until so many commits are in the index.
async fn settle(store: &Store, commits: u64) {
    let index = store.index().expect("an index");
    let mut last = None;
    for _ in 0..40 {
        let ran = index.run(&quickly().until_caught_up(), &|_| ()).await.expect("runs");
        let verified = index.verify(&|_| ()).await.expect("verifies");
        if verified.indexed >= commits {
            return;
        }
        last = Some((ran, verified));
    }
    let status = index.status().await.expect("status");
    panic!("the index does not come to {commits} commits: {last:#?} {status:#?}");
}

/// What an indexer calls: it is killed before such a call, or after it, with the answer unheard.
/// Each with how often it comes in every run that has something to do.
const CALLS: [(&str, usize); 7] =
    [("DescribeStream", 2), ("GetShardIterator", 3), ("GetRecords", 6), ("Query", 1), ("PutItem", 1), ("GetItem", 1), ("any call", 25)];

/// Where the indexer was killed, round by round: told when the test fails.
#[derive(Default)]
struct Deaths(Vec<(String, usize, bool)>);

impl Deaths {
    #[track_caller]
    fn assert_met(&self, points: usize, rounds: usize) {
        let struck = self.0.iter().filter(|(.., struck)| *struck);
        assert!(struck.clone().count() >= rounds, "{} of {} rounds were killed", struck.count(), self.0.len());
        let met: BTreeSet<&str> = struck.map(|(point, ..)| point.as_str()).collect();
        assert_eq!(met.len(), points, "killed at {met:?} only");
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (round, (point, nth, struck)) in self.0.iter().enumerate() {
                eprintln!("round {round}: killed {point}, time {nth}{}", if *struck { "" } else { ", which did not come" });
            }
        }
    }
}

fn scattered(engine: &Engine, reshard: &Reshard) -> fencepost::Builder {
    Ground::Engine(engine.clone()).builder("feed=streams").http_client(reshard.http_client())
}

/// Kills an indexer so often, before or after a call, while commits come; then lets it finish.
async fn killed(rounds: usize, seed: u64, deaths: &mut Deaths) {
    let engine = Engine::memory().expect("an engine");
    let reshard = Reshard::new(engine.http_client(), seed);
    let faults = Faults::new(reshard.http_client(), seed);
    let writer = open(Ground::Engine(engine.clone()).builder("feed=streams")).await;
    let indexer = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
    let index = indexer.index().expect("an index");
    let (chance, mut commits, mut round) = (Env::seeded(seed), 0, 0);
    // Now and then it has caught up before the call comes: that is no round.
    while round < rounds {
        if round < rounds * 4 / 5 {
            let more = chance.below(4);
            write(&writer, &chance, usize::try_from(more).expect("small")).await;
            commits += more;
        }
        let gate = Gate::new();
        let pick = |bound: usize| usize::try_from(chance.below(bound as u64)).expect("small");
        let ((operation, times), when) = (CALLS[pick(CALLS.len())], ["before", "after"][pick(2)]);
        let nth = 1 + pick(times);
        let call = if operation == "any call" { Rule::on_any() } else { Rule::on(operation) }.nth(nth);
        faults.script(if when == "before" { call.pause_before(&gate) } else { call.pause_after(&gate) });
        let point = format!("{when} {operation}");
        let options = quickly().until_caught_up();
        let struck = tokio::select! {
            ran = index.run(&options, &|_| ()) => {
                assert_eq!(ran.expect("runs").late, 0, "seed {seed} round {round}");
                false
            }
            () = gate.reached(1) => true,
        };
        deaths.0.push((point, nth, struck));
        round += usize::from(struck);
        assert!(deaths.0.len() < 4_000, "the calls do not come");
        faults.calm();
    }
    reshard.calm().await;
    settle(&indexer, commits).await;
    audit(&writer, usize::try_from(commits).expect("small")).await;
    assert!(reshard.shards().await > 2, "shards were split");
}

#[tokio::test]
async fn an_indexer_that_is_killed_between_any_two_calls_misses_nothing_and_repeats_nothing() {
    let mut deaths = Deaths::default();
    // Several short histories: an indexer that begins again reads what is young. With the consumers and projections that tests kill at a
    // named point, of which a quarter at least dies there, these are a thousand rounds.
    for seed in 11..27 {
        killed(50, seed, &mut deaths).await;
    }
    deaths.assert_met(2 * CALLS.len(), 800);
}

/// Two writers, and two indexers that do not know of each other, over scattered shards.
async fn two_at_once(seed: u64, options: &IndexOptions) -> [Store; 2] {
    let engine = Engine::memory().expect("an engine");
    let reshard = Reshard::new(engine.http_client(), seed);
    let stores = [open(scattered(&engine, &reshard)).await, open(scattered(&engine, &reshard)).await];
    let indexes = stores.each_ref().map(|store| store.index().expect("an index"));
    let written = async {
        let [one, two] = [Env::seeded(seed), Env::seeded(100 + seed)];
        futures::join!(write(&stores[0], &one, 20), write(&stores[1], &two, 20));
    };
    tokio::select! {
        ended = async { futures::join!(indexes[0].run(options, &|_| ()), indexes[1].run(options, &|_| ())) } => panic!("{ended:?}"),
        () = written => {}
    }
    reshard.calm().await;
    stores
}

#[tokio::test]
async fn two_indexers_over_scattered_shards_make_one_index() {
    for seed in 0..6 {
        let stores = two_at_once(seed, &quickly()).await;
        settle(&stores[0], 40).await;
        audit(&stores[1], 40).await;
    }
}

/// One indexer has read a commit and stands before its put; another puts that commit and the next one, and later a third. What differs then.
async fn overtaken(options: IndexOptions) -> Vec<String> {
    let engine = Engine::memory().expect("an engine");
    let (faults, first, second) = (Faults::new(engine.http_client(), 1), Gate::new(), Gate::new());
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams")).await;
    let slow = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
    put(&store, vec![event("A", &["a"])]).await;
    faults.script(Rule::on("PutItem").nth(1).pause_before(&first)).script(Rule::on("PutItem").nth(2).pause_before(&second));
    let index = slow.index().expect("an index");
    let mut slow = tokio::spawn(async move { index.run(&options.until_caught_up(), &|_| ()).await });
    first.reached(1).await;
    put(&store, vec![event("A", &["b"])]).await;
    let commits = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (index, told) = (store.index().expect("an index"), commits.clone());
    let quick =
        tokio::spawn(async move { index.run(&quickly(), &|so_far| told.store(so_far.commits, Ordering::Relaxed)).await.map(|_| ()) });
    let indexed = async |count: u64| {
        while commits.load(Ordering::Relaxed) < count {
            Env::system().sleep(Duration::from_millis(2)).await;
        }
    };
    indexed(2).await;
    first.open();
    tokio::select! {
        () = second.reached(1) => slow.abort(),
        ended = &mut slow => assert!(ended.expect("joins").is_ok()),
    }
    put(&store, vec![event("A", &["c"])]).await;
    indexed(3).await;
    quick.abort();
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    verified.findings.into_iter().map(|finding| finding.problem).collect()
}

#[tokio::test]
async fn an_indexer_that_comes_late_puts_nothing_over_another_and_would_be_noticed() {
    assert_eq!(overtaken(quickly()).await, [] as [String; 0]);
    let broken = overtaken(quickly().mutate(IndexMutation::NoPutIfAbsent)).await;
    assert!(broken.iter().any(|problem| problem.contains("not in the index")), "{broken:?}");
}

/// S5: a boundary that shares nothing with what waits is not delayed, though its records lie in the same shards.
#[tokio::test]
async fn while_some_wait_for_a_record_all_others_come_out() {
    for seed in 0..4 {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), seed);
        reshard.calm().await;
        let store = open(scattered(&engine, &reshard)).await;
        reshard.hold(Some("t/main/a")).await;
        put(&store, vec![event("A", &["a", "b"])]).await;
        put(&store, vec![event("B", &["b", "c"])]).await;
        let types = |events: Vec<fencepost::Recorded>| events.iter().map(|e| e.event_type.as_str().to_owned()).collect::<Vec<_>>();
        let mut others = Vec::new();
        for n in 0..5 {
            let kind = format!("D{n}");
            put(&store, vec![event(&kind, &[&format!("d{}", n % 2), "e"])]).await;
            others.push(kind);
            let ran = catch_up(&store).await;
            assert_eq!((ran.commits, ran.waiting, ran.late), (1, 2, 0), "seed {seed}: {ran:?}");
            assert_eq!(types(fed(&store, Query::all()).await), others, "seed {seed}");
        }
        reshard.hold(None).await;
        settle(&store, 7).await;
        assert_eq!(types(fed(&store, Query::all()).await)[5..], ["A", "B"], "seed {seed}");
        assert_eq!(store.index().expect("an index").verify(&|_| ()).await.expect("verifies").findings, []);
    }
}

#[tokio::test]
async fn a_trimmed_stream_is_said_and_a_rebuild_heals_it() {
    let engine = Engine::memory().expect("an engine");
    let reshard = Reshard::new(engine.http_client(), 21);
    reshard.calm().await;
    let store = open(scattered(&engine, &reshard)).await;
    let index = store.index().expect("an index");
    let chance = Env::seeded(22);
    write(&store, &chance, 10).await;
    settle(&store, 10).await;
    assert_eq!(index.status().await.expect("status").trimmed, None);
    // Records of the next commits come into shards, and are gone before the indexer comes back.
    write(&store, &chance, 10).await;
    let other = open(scattered(&engine, &reshard)).await;
    let gate = Gate::new();
    let faults = Faults::new(reshard.http_client(), 1);
    faults.script(Rule::on("GetRecords").nth(1).pause_after(&gate));
    let reader = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
    tokio::select! {
        ran = async { reader.index().expect("an index").run(&quickly(), &|_| ()).await } => panic!("{ran:?}"),
        () = gate.reached(1) => {}
    }
    reshard.trim().await;
    write(&store, &chance, 10).await;
    let ran = index.run(&quickly().until_caught_up().within(Duration::from_secs(5)), &|_| ()).await.expect("runs");
    assert!(ran.trimmed, "{ran:?}");
    assert!(!index.verify(&|_| ()).await.expect("verifies").findings.is_empty());
    // An indexer that goes on running takes up what the rebuild put, although nothing comes that it could put itself.
    let waiting = std::sync::atomic::AtomicU64::new(u64::MAX);
    let (options, told) = (quickly(), |so_far: &fencepost::IndexProgress| waiting.store(so_far.waiting, Ordering::Relaxed));
    let healed = async {
        while matches!(waiting.load(Ordering::Relaxed), 0 | u64::MAX) {
            Env::system().sleep(Duration::from_millis(5)).await;
        }
        let rebuilt = other.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
        assert!(rebuilt.appended >= 10, "{rebuilt:?}");
        while waiting.load(Ordering::Relaxed) > 0 {
            Env::system().sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ended = index.run(&options, &told) => panic!("{ended:?}"),
        healed = tokio::time::timeout(Duration::from_secs(20), healed) => healed.expect("nothing waits any more"),
    }
    write(&store, &chance, 5).await;
    settle(&store, 35).await;
    assert_eq!(index.status().await.expect("status").trimmed, None, "a rebuild clears it");
    audit(&other, 35).await;
}

#[tokio::test]
async fn a_rebuild_makes_the_whole_index_and_the_stream_repeats_nothing_of_it() {
    let store = open(Ground::fresh().builder("feed=streams")).await;
    let index = store.index().expect("an index");
    write(&store, &Env::seeded(31), 25).await;
    let heard = std::sync::Mutex::new(Vec::new());
    let rebuilt = index.rebuild(&|so_far| heard.lock().expect("whole").push(so_far.clone())).await.expect("rebuilds");
    assert_eq!(rebuilt.appended, 25);
    assert_eq!(heard.lock().expect("whole").last().map(|so_far| so_far.appended), Some(25));
    assert_eq!(index.rebuild(&|_| ()).await.expect("rebuilds").appended, 0);
    audit(&store, 25).await;
    let progress = catch_up(&store).await;
    assert_eq!((progress.commits, progress.late), (0, 0), "what comes by the stream is there already: {progress:?}");
    write(&store, &Env::seeded(32), 5).await;
    assert_eq!(catch_up(&store).await.commits, 5);
    audit(&store, 30).await;
}

#[tokio::test]
async fn a_rebuild_beside_writers_and_an_indexer_makes_one_index() {
    let store = open(Ground::fresh().builder("feed=streams")).await;
    write(&store, &Env::seeded(41), 30).await;
    let (index, options, chance) = (store.index().expect("an index"), quickly(), Env::seeded(42));
    let work = async {
        let rebuilds = async {
            for _ in 0..4 {
                index.rebuild(&|_| ()).await.expect("rebuilds");
            }
        };
        futures::join!(write(&store, &chance, 30), rebuilds);
    };
    tokio::select! {
        ended = index.run(&options, &|_| ()) => panic!("{ended:?}"),
        () = work => {}
    }
    settle(&store, 60).await;
    audit(&store, 60).await;
}

#[tokio::test]
async fn what_log_and_index_do_not_share_is_named() {
    let ground = Ground::embedded();
    let store = open(ground.builder("feed=streams")).await;
    put(&store, vec![event("A", &["a"])]).await;
    catch_up(&store).await;
    put(&store, vec![event("A", &["b"])]).await;
    // Stamps run ahead of the clock by a microsecond at most: what comes now is not younger than the check.
    Env::system().sleep(Duration::from_millis(2)).await;
    let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
    assert_eq!(verified.findings.len(), 1, "{verified:?}");
    assert_eq!(verified.findings[0].item, "t/main/b @1");
    assert!(verified.findings[0].problem.contains("not in the index"), "{verified:?}");
    catch_up(&store).await;
    assert_eq!(store.index().expect("an index").verify(&|_| ()).await.expect("verifies").findings, []);
    let status = store.index().expect("an index").status().await.expect("status");
    assert_eq!((status.epochs, status.shards.len(), status.beyond), (2, 1, 0), "{status:?}");
    assert!(status.shards[0].done.is_some() && status.shards[0].done == status.shards[0].read, "{status:?}");
}

#[tokio::test]
async fn a_checkpoint_in_the_middle_of_a_commit_holds_for_any_query() {
    let store = open(Ground::fresh().builder("feed=streams")).await;
    put(&store, vec![event("A", &["x"])]).await;
    put(&store, vec![event("A", &["a"]), event("B", &["a", "b"]), event("C", &["b"])]).await;
    put(&store, vec![event("D", &["b", "d"])]).await;
    catch_up(&store).await;
    let feed = store.feed().expect("a feed");
    let query = |tag: &str| Query::tag(tag).expect("a query");
    let mut first = feed.subscribe(From::Start, query("a"));
    let Some(Ok(Delivery::Event { checkpoint, .. })) = first.next().await else { panic!("an event") };
    for (tag, expected) in [("a", vec!["B"]), ("b", vec!["B", "C", "D"]), ("d", vec!["D"]), ("x", vec![])] {
        let mut rest = feed.subscribe(From::Checkpoint(checkpoint.clone()), query(tag));
        let mut types = Vec::new();
        while let Some(Ok(Delivery::Event { event, .. })) = rest.next().await {
            types.push(event.event_type.as_str().to_owned());
        }
        assert_eq!(types, expected, "{tag}");
    }
}

#[tokio::test]
async fn one_index_serves_every_namespace_and_lanes_are_left_alone() {
    let ground = Ground::fresh();
    let one = open(ground.builder("feed=streams&namespace=one")).await;
    let two = open(ground.builder("feed=streams&namespace=two")).await;
    let lanes = open(ground.builder("feed=lanes-1&namespace=lanes")).await;
    for (n, store) in [&one, &two, &lanes, &one].into_iter().enumerate() {
        put(store, vec![event(&format!("E{n}"), &["a", "b"])]).await;
    }
    assert_eq!(catch_up(&two).await.commits, 3);
    let types = |events: Vec<fencepost::Recorded>| events.iter().map(|e| e.event_type.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(types(fed(&one, Query::all()).await), ["E0", "E3"]);
    assert_eq!(types(fed(&two, Query::all()).await), ["E1"]);
    assert!(lanes.index().is_err());
}
