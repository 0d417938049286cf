//! What a rebuild put and the stream brings again is in the index once, whatever became of the stream and whatever times callers said; and
//! neither that nor waiting for the index costs more the longer the chain is.
//! A little long, since all of it shares one way to damage a log and to look at its chain.

#[allow(clippy::unwrap_used, reason = "shared with tests that may")]
mod bare_sdk;
mod support;

use std::time::Duration;

use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType};
use fencepost::testing::{Faults, Gate, Meter, Reshard, Rule};
use fencepost::{
    Append, Delivery, Engine, Env, Event, From, IndexOptions, IndexProgress, IndexVerified, Metadata, Query, Snapshot, Step, Store,
    StreamName,
};
use futures::StreamExt;
use jiff::Timestamp;
use support::{Ground, open};

const V3: &str = "layout=event-store-adapter-v3";
const SAID: [&str; 2] = [V3, "layout=event-store-adapter-v5"];

fn quickly() -> IndexOptions {
    IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5))
}

async fn put(store: &Store, tag: &str) {
    let event = Event::new("A", "{}").and_then(|event| event.tag(tag)).expect("an event");
    store.log().expect("a log").append(Append::new([event])).await.expect("appends");
}

/// On a stream whose layout keeps the time that is said.
async fn say(store: &Store, stream: &str, at: Timestamp) {
    let event = Event::new("A", "{}").expect("an event").meta(Metadata { occurred: Some(at), ..Metadata::default() });
    let step = Step::new([event]).snapshot(Snapshot::new("snapshot", "{}"));
    store.streams().append(&StreamName::new(stream).expect("a name"), step).await.expect("appends");
}

async fn catch_up(store: &Store) -> IndexProgress {
    store.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await.expect("runs")
}

async fn verify(store: &Store) -> IndexVerified {
    store.index().expect("an index").verify(&|_| ()).await.expect("verifies")
}

async fn fed(store: &Store) -> usize {
    let feed = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    feed.take_while(|next| std::future::ready(matches!(next, Ok(Delivery::Event { .. })))).count().await
}

fn hours(n: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_hours(n)
}

/// A clock that only the test moves, from now on.
fn clock() -> Env {
    let env = Env::seeded(1);
    env.set_clock(Env::system().now());
    env
}

#[tokio::test]
async fn a_rebuild_before_the_first_look_at_a_new_stream_makes_nothing_come_twice() {
    let engine = Engine::memory().expect("an engine");
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams&table=orders")).await;
    let client = bare_sdk::client(engine.http_client());
    let switch = async |on: bool| {
        let spec = StreamSpecification::builder().stream_enabled(on);
        let spec = if on { spec.stream_view_type(StreamViewType::NewImage) } else { spec };
        client.update_table().table_name("orders").stream_specification(spec.build().expect("whole")).send().await.expect("switches");
    };
    // Nothing before: this engine shows by a new stream what it recorded for the old one.
    assert_eq!(catch_up(&store).await.epochs, 1, "its shards are named");
    switch(false).await;
    put(&store, "a").await;
    switch(true).await;
    for tag in ["a", "b", "a"] {
        put(&store, tag).await;
    }
    let index = store.index().expect("an index");
    assert_eq!(index.rebuild(&|_| ()).await.expect("rebuilds").appended, 4);
    let ran = catch_up(&store).await;
    assert_eq!((ran.commits, ran.late, ran.trimmed), (0, 0, false), "all of it is there, and nothing is missing: {ran:?}");
    put(&store, "b").await;
    assert_eq!(catch_up(&store).await.commits, 1);
    let verified = verify(&store).await;
    assert_eq!((verified.findings.as_slice(), verified.indexed), (&[][..], 5), "{verified:?}");
    // Without a rebuild what came between is missing, and that is said.
    switch(false).await;
    put(&store, "c").await;
    switch(true).await;
    assert!(catch_up(&store).await.trimmed);
}

#[tokio::test]
async fn what_was_dated_back_and_rebuilt_does_not_come_again_by_the_stream() {
    for layout in SAID {
        let store = open(Ground::embedded().builder(layout)).await;
        let long_ago = store.env().now() - hours(48);
        for n in 0..6 {
            say(&store, ["user-1", "user-2"][n % 2], long_ago).await;
        }
        assert_eq!(store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 6);
        let ran = catch_up(&store).await;
        assert_eq!((ran.commits, ran.late), (0, 0), "{layout}: {ran:?}");
        say(&store, "user-1", long_ago).await;
        assert_eq!(catch_up(&store).await.commits, 1, "{layout}");
        let verified = verify(&store).await;
        assert_eq!((verified.findings.as_slice(), verified.indexed), (&[][..], 7), "{layout}: {verified:?}");
        assert_eq!(fed(&store).await, 7, "{layout}");
    }
}

#[tokio::test]
async fn what_follows_an_event_that_was_dated_ahead_does_not_wait_for_it() {
    for layout in SAID {
        let env = clock();
        let store = open(Ground::embedded().builder(layout).env(env.clone())).await;
        // One ahead of the clock for good, and one that the clock will have passed.
        say(&store, "user-1", env.now() + hours(9)).await;
        say(&store, "user-2", env.now() + hours(2)).await;
        assert_eq!(catch_up(&store).await.commits, 2);
        env.advance(Duration::from_secs(600));
        // More than a page of epochs.
        for _ in 0..18 {
            say(&store, "user-3", env.now()).await;
            catch_up(&store).await;
        }
        env.advance(Duration::from_secs(4 * 3_600));
        for stream in ["user-1", "user-2"] {
            say(&store, stream, env.now()).await;
            let ran = catch_up(&store).await;
            assert_eq!((ran.commits, ran.waiting), (1, 0), "{layout}, {stream}: {ran:?}");
        }
        assert_eq!(verify(&store).await.findings, []);
    }
}

#[tokio::test]
async fn events_that_are_dated_back_come_in_the_order_of_their_versions_though_their_records_do_not() {
    for seed in 0..3 {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), seed);
        let store = open(Ground::Engine(engine.clone()).builder(V3).http_client(reshard.http_client())).await;
        let (chance, long_ago) = (Env::seeded(seed), store.env().now() - hours(48));
        let mut late = 0;
        for n in 0..40 {
            say(&store, ["user-1", "user-2", "user-3"][usize::try_from(chance.below(3)).expect("small")], long_ago).await;
            if n % 4 == 0 {
                late += catch_up(&store).await.late;
            }
        }
        reshard.calm().await;
        while verify(&store).await.indexed < 40 {
            late += catch_up(&store).await.late;
        }
        let verified = verify(&store).await;
        assert_eq!((verified.findings.as_slice(), verified.indexed, late), (&[][..], 40, 0), "seed {seed}: {verified:?}");
    }
}

#[tokio::test]
async fn a_commit_that_is_dated_ahead_and_missing_is_named() {
    for layout in SAID {
        let store = open(Ground::embedded().builder(layout)).await;
        say(&store, "user-1", store.env().now() + hours(48)).await;
        let verified = verify(&store).await;
        assert_eq!((verified.findings.len(), verified.younger), (1, 0), "{layout}: {verified:?}");
    }
}

/// So many epochs of one commit each.
async fn epochs(store: &Store, count: usize) {
    for _ in 0..count {
        put(store, "a").await;
        assert_eq!(catch_up(store).await.epochs, 1);
    }
}

#[tokio::test]
async fn after_a_rebuild_a_run_reads_what_it_put_and_not_all_that_came_since() {
    let engine = Engine::memory().expect("an engine");
    let faults = Faults::new(engine.http_client(), 1);
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
    epochs(&store, 3).await;
    for _ in 0..3 {
        put(&store, "b").await;
    }
    assert_eq!(store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").epochs, 1);
    let queries = async || {
        let before = faults.calls("Query");
        let ran = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
        assert_eq!(catch_up(&ran).await.commits, 0);
        faults.calls("Query") - before
    };
    let first = queries().await;
    epochs(&store, 20).await;
    assert_eq!(queries().await, first, "the last epoch, and that of the rebuild");
    // A second one on the same day, with nothing between to be read either.
    put(&store, "b").await;
    assert_eq!(store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 1);
    assert_eq!(queries().await, first + 1);
    assert_eq!(verify(&store).await.findings, []);
}

#[tokio::test]
async fn waiting_for_the_index_reads_each_epoch_once() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams")).await;
    epochs(&store, 20).await;
    let reader = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(meter.http_client())).await;
    let feed = reader.feed().expect("a feed");
    let event = Event::new("A", "{}").and_then(|event| event.tag("a")).expect("an event");
    let done = store.log().expect("a log").append(Append::new([event])).await.expect("appends");
    let position = done.last().expect("an event");
    assert!(!feed.shows(position).await.expect("tells"));
    meter.take();
    for _ in 0..10 {
        assert!(!feed.shows(position).await.expect("tells"));
    }
    let units = meter.take();
    assert!(units.requests == 10 && units.read <= 10.0, "{units:?}");
    assert_eq!(catch_up(&store).await.commits, 1);
    assert!(feed.shows(position).await.expect("tells"));
    // The new epoch, and that there is no other.
    let units = meter.take();
    assert!(units.requests == 2 && units.read <= 2.0, "{units:?}");
}

/// A shard of which nothing was read yet does not tell what it has lost.
#[tokio::test]
async fn after_a_day_without_an_indexer_an_unread_shard_is_said_to_have_lost_records() {
    for (hours, lost) in [(22, false), (24, true)] {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), 1);
        reshard.calm().await;
        let env = clock();
        let builder = Ground::Engine(engine).builder("feed=streams").http_client(reshard.http_client()).env(env.clone());
        let store = open(builder).await;
        assert_eq!(catch_up(&store).await.epochs, 1, "its shards are named");
        env.advance(Duration::from_secs(hours * 3_600));
        assert_eq!(catch_up(&store).await.trimmed, lost, "{hours} hours");
    }
}

#[tokio::test]
async fn a_shard_whose_oldest_records_go_before_they_are_read_is_read_on() {
    let engine = Engine::memory().expect("an engine");
    let reshard = Reshard::new(engine.http_client(), 1);
    reshard.calm().await;
    let (gate, faults) = (Gate::new(), Faults::new(reshard.http_client(), 1));
    let opened = |http| open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(http));
    let (store, slow) = (opened(reshard.http_client()).await, opened(faults.http_client()).await);
    for n in 0..12 {
        put(&store, &format!("lost-{n}")).await;
    }
    // All three shards are open, and before a page of them is read its records come and go.
    faults.script(Rule::on("GetRecords").times(3).pause_before(&gate));
    let running = slow.index().expect("an index");
    let ran = tokio::spawn(async move { running.run(&quickly().until_caught_up(), &|_| ()).await });
    gate.reached(3).await;
    let (other_gate, other) = (Gate::new(), Faults::new(reshard.http_client(), 1));
    other.script(Rule::on("GetRecords").nth(1).pause_after(&other_gate));
    let reader = opened(other.http_client()).await;
    tokio::select! {
        ran = async { reader.index().expect("an index").run(&quickly(), &|_| ()).await } => panic!("{ran:?}"),
        () = other_gate.reached(1) => {}
    }
    assert!(reshard.records().await.iter().all(|records| *records > 0), "each shard had records");
    reshard.trim().await;
    gate.open();
    assert!(ran.await.expect("joins").expect("runs").trimmed);
    for n in 0..12 {
        put(&store, &format!("later-{n}")).await;
    }
    assert_eq!(catch_up(&slow).await.commits, 12, "the shards are open, and are read on");
}

/// What has been appended is in the shards, and then the stream forgets it.
async fn forget(engine: &Engine, reshard: &Reshard) {
    let (gate, faults) = (Gate::new(), Faults::new(reshard.http_client(), 1));
    faults.script(Rule::on("GetRecords").nth(1).pause_after(&gate));
    let reader = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
    tokio::select! {
        ran = async { reader.index().expect("an index").run(&quickly(), &|_| ()).await } => panic!("{ran:?}"),
        () = gate.reached(1) => {}
    }
    reshard.trim().await;
}

/// The tags of all events in the order of the feed, with how many of the tag there were before.
async fn order(store: &Store) -> Vec<String> {
    let feed = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    let events = feed.take_while(|next| std::future::ready(matches!(next, Ok(Delivery::Event { .. }))));
    let tags = events.map(|next| match next {
        Ok(Delivery::Event { event, .. }) => {
            format!("{}{}", event.tags.first().map_or("", |tag| tag.as_str()), event.event_type.as_str())
        }
        other => panic!("{other:?}"),
    });
    tags.collect().await
}

async fn put_as(store: &Store, tag: &str, kind: &str) {
    let event = Event::new(kind, "{}").and_then(|event| event.tag(tag)).expect("an event");
    store.log().expect("a log").append(Append::new([event])).await.expect("appends");
}

/// DynamoDB forgets after a day. Whatever is lost then is older than that, so a clock would take it for indexed long ago; what follows it
/// would come before it, and after the rebuild for ever so.
#[tokio::test]
async fn what_follows_a_commit_that_the_stream_forgot_waits_for_the_rebuild_however_old_it_is() {
    for lost_minutes in [24 * 60 + 10, 24 * 60 + 50, 28 * 60, 29 * 60 + 59] {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), 3);
        reshard.calm().await;
        let (env, now) = (Env::seeded(1), Env::system().now());
        let ago = |minutes: i64| env.set_clock(now - jiff::SignedDuration::from_mins(minutes));
        ago(30 * 60);
        let builder = Ground::Engine(engine.clone()).builder("feed=streams").http_client(reshard.http_client()).env(env.clone());
        let store = open(builder).await;
        for tag in ["a", "b", "c", "a"] {
            put_as(&store, tag, if tag == "a" { "?" } else { "1" }).await;
        }
        assert_eq!(catch_up(&store).await.commits, 4);
        ago(lost_minutes);
        put_as(&store, "a", "3").await;
        put_as(&store, "d", "1").await;
        forget(&engine, &reshard).await;
        ago(2 * 60);
        // One that follows what was lost, one that follows what was indexed as long ago, one that follows nothing.
        for (tag, kind) in [("a", "4"), ("b", "2"), ("e", "1")] {
            put_as(&store, tag, kind).await;
        }
        ago(0);
        let before = ["a?", "b1", "c1", "a?"];
        for hours in [0, 2, 5] {
            env.set_clock(now + jiff::SignedDuration::from_hours(hours));
            let ran = catch_up(&store).await;
            assert!(ran.trimmed && ran.waiting == 1, "{lost_minutes} minutes, and {hours} hours later: {ran:?}");
            assert_eq!(order(&store).await, [&before[..], &["e1", "b2"]].concat(), "{lost_minutes} minutes, and {hours} hours later");
        }
        // And one more behind what waits.
        put_as(&store, "a", "5").await;
        assert_eq!(catch_up(&store).await.waiting, 2);
        let rebuilt = store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
        assert_eq!(rebuilt.appended, 4, "{rebuilt:?}");
        let ran = catch_up(&store).await;
        assert_eq!((ran.commits, ran.late, ran.waiting, ran.trimmed), (0, 0, 0, false), "{ran:?}");
        put_as(&store, "d", "2").await;
        assert_eq!(catch_up(&store).await.commits, 1);
        assert_eq!(order(&store).await, [&before[..], &["e1", "b2", "a3", "d1", "a4", "a5", "d2"]].concat(), "{lost_minutes} minutes");
        assert_eq!(verify(&store).await.findings, []);
    }
}

/// A writer of another release may leave what this one cannot read: of its record, and perhaps of its slot.
#[tokio::test]
async fn what_follows_a_commit_that_cannot_be_read_waits_and_that_is_said() {
    for slot_is_read in [true, false] {
        let (engine, other) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
        let env = clock();
        let opened =
            async |engine: &Engine| open(Ground::Engine(engine.clone()).builder("feed=streams&table=orders").env(env.clone())).await;
        let (store, double) = (opened(&engine).await, opened(&other).await);
        for kind in ["1", "2", "3"] {
            put_as(&double, "a", kind).await;
        }
        let (client, source) = (bare_sdk::client(engine.http_client()), bare_sdk::client(other.http_client()));
        let slots = source.scan().table_name("orders").send().await.expect("scans").items.unwrap_or_default();
        let mut slots: Vec<_> = slots.into_iter().filter(|item| item["p"].as_s().is_ok_and(|p| p.starts_with("t/"))).collect();
        slots.sort_by_key(|item| item["v"].as_n().expect("a number").parse::<u64>().expect("a number"));
        let put = async |item| client.put_item().table_name("orders").set_item(Some(item)).send().await.expect("puts");
        let mut strange = slots[1].clone();
        strange.insert("c".into(), aws_sdk_dynamodb::types::AttributeValue::S("of another form".into()));
        put(slots[0].clone()).await;
        put(strange).await;
        if slot_is_read {
            // Written over: that is no record which counts.
            put(slots[1].clone()).await;
        }
        put(slots[2].clone()).await;
        put_as(&store, "b", "1").await;
        for hours in [0, 2, 20] {
            env.advance(Duration::from_secs(hours * 3_600));
            let ran = catch_up(&store).await;
            assert!(ran.trimmed && ran.waiting == 1, "after {hours} hours more: {ran:?}");
            assert_eq!(order(&store).await, ["a1", "b1"], "after {hours} hours more");
        }
        let index = store.index().expect("an index");
        assert!(index.status().await.expect("status").trimmed.is_some());
        // A release that can read it; the rebuild finds it.
        put(slots[1].clone()).await;
        assert_eq!(index.rebuild(&|_| ()).await.expect("rebuilds").appended, 2);
        let ran = catch_up(&store).await;
        assert_eq!((ran.commits, ran.waiting, ran.trimmed), (0, 0, false), "{ran:?}");
        assert_eq!(order(&store).await, ["a1", "b1", "a2", "a3"]);
        assert_eq!(verify(&store).await.findings, []);
    }
}

/// Appended without what it follows, a commit would stand before it for ever: once that can be read, only the end of the index is left for it.
#[tokio::test]
async fn a_rebuild_holds_back_what_follows_a_commit_that_it_cannot_read() {
    // Its slot does not say whose it is; or it does, and nothing else can be read of it.
    for (attribute, age, indexed_before) in
        [("c", 0, true), ("c", 3, true), ("w", 0, true), ("w", 3, true), ("c", 3, false), ("w", 0, false), ("w", 3, false)]
    {
        let told = format!("{attribute}, {age} hours old, indexed before: {indexed_before}");
        let (engine, other) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
        let env = clock();
        let opened =
            async |engine: &Engine| open(Ground::Engine(engine.clone()).builder("feed=streams&table=orders").env(env.clone())).await;
        let (store, double) = (opened(&engine).await, opened(&other).await);
        // The third follows the second, and the fourth the third.
        for (kind, tags) in [("1", &["a"][..]), ("2", &["a"]), ("3", &["a", "c"]), ("4", &["c"])] {
            let event = tags.iter().try_fold(Event::new(kind, "{}").expect("an event"), |event, tag| event.tag(*tag));
            double.log().expect("a log").append(Append::new([event.expect("an event")])).await.expect("appends");
        }
        let (client, source) = (bare_sdk::client(engine.http_client()), bare_sdk::client(other.http_client()));
        let slots = source.scan().table_name("orders").send().await.expect("scans").items.unwrap_or_default();
        let put = async |item| client.put_item().table_name("orders").set_item(Some(item)).send().await.expect("puts");
        let mut repaired = None;
        for mut slot in slots.into_iter().filter(|item| item["p"].as_s().is_ok_and(|p| p.starts_with("t/"))) {
            if slot["p"].as_s().is_ok_and(|p| p == "t/main/a") && slot["v"].as_n().is_ok_and(|v| v == "2") {
                repaired = Some(slot.clone());
                slot.insert(attribute.into(), aws_sdk_dynamodb::types::AttributeValue::S("of another form".into()));
            }
            put(slot).await;
        }
        put_as(&store, "b", "1").await;
        env.advance(Duration::from_secs(age * 3_600));
        if indexed_before {
            assert!(catch_up(&store).await.trimmed, "{told}");
        }
        let index = store.index().expect("an index");
        for (appended, held) in [(if indexed_before { 0 } else { 2 }, 2), (0, 3)] {
            let rebuilt = index.rebuild(&|_| ()).await.expect("rebuilds");
            assert_eq!(
                (rebuilt.appended, rebuilt.unreadable, rebuilt.held, rebuilt.trimmed),
                (appended, 1, held, true),
                "{told}: {rebuilt:?}"
            );
            // However old what cannot be read is, an indexer does not take it for indexed.
            assert_eq!(catch_up(&store).await.commits, 0, "{told}");
            env.advance(Duration::from_secs(2 * 3_600));
            put_as(&store, "c", "5").await;
            assert_eq!(catch_up(&store).await.commits, 0, "{told}");
        }
        put(repaired.expect("it was there")).await;
        let rebuilt = index.rebuild(&|_| ()).await.expect("rebuilds");
        assert_eq!((rebuilt.appended, rebuilt.unreadable, rebuilt.held, rebuilt.trimmed), (5, 0, 0, false), "{told}: {rebuilt:?}");
        let ran = catch_up(&store).await;
        assert_eq!((ran.commits, ran.waiting, ran.trimmed), (0, 0, false), "{told}: {ran:?}");
        let order = order(&store).await;
        let of = |tag: &[&str]| order.iter().filter(|one| tag.contains(&one.as_str())).cloned().collect::<Vec<_>>();
        assert_eq!(of(&["a1", "a2", "a3", "c4", "c5"]), ["a1", "a2", "a3", "c4", "c5", "c5"], "{told}");
        assert_eq!(verify(&store).await.findings, [], "{told}");
    }
}

/// Killed before or after any of its calls and run again, a rebuild leaves the index that one which was not killed leaves.
#[tokio::test]
async fn a_rebuild_that_is_killed_at_any_call_and_run_again_leaves_a_whole_index() {
    let mut kills = 0;
    for nth in 1.. {
        let mut ended = 0;
        for before in [true, false] {
            let engine = Engine::memory().expect("an engine");
            let opened = |http| open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(http));
            let store = opened(engine.http_client()).await;
            epochs(&store, 2).await;
            for tag in ["a", "b", "a", "c"] {
                put(&store, tag).await;
            }
            let (gate, faults) = (Gate::new(), Faults::new(engine.http_client(), 1));
            let mortal = opened(faults.http_client()).await;
            let call = Rule::on_any().nth(nth);
            faults.script(if before { call.pause_before(&gate) } else { call.pause_after(&gate) });
            let index = mortal.index().expect("an index");
            tokio::select! {
                rebuilt = index.rebuild(&|_| ()) => {
                    assert_eq!(rebuilt.expect("rebuilds").appended, 4);
                    ended += 1;
                }
                () = gate.reached(1) => kills += 1,
            }
            store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds");
            assert_eq!(catch_up(&store).await.commits, 0, "call {nth}");
            put(&store, "a").await;
            assert_eq!(catch_up(&store).await.commits, 1, "call {nth}");
            let verified = verify(&store).await;
            assert_eq!((verified.findings.as_slice(), verified.indexed), (&[][..], 7), "call {nth}: {verified:?}");
        }
        if ended == 2 {
            break;
        }
    }
    assert!(kills > 10, "{kills}");
}

/// The entry of a commit in the index says which tags and types it has: a reader passes over what does not match, so a wrong one hides events.
#[tokio::test]
async fn an_entry_with_other_tags_or_types_than_its_commit_is_named() {
    let (engine, other) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let opened = async |engine: &Engine| open(Ground::Engine(engine.clone()).builder("feed=streams&table=orders")).await;
    let (store, double) = (opened(&engine).await, opened(&other).await);
    let client = bare_sdk::client(engine.http_client());
    // Two logs with the same commit ids and homes, and other tags and types beside them.
    let ids: Vec<_> = (0..2).map(|_| store.env().new_commit_id()).collect();
    for (store, kind, second) in [(&store, "A", "b"), (&double, "B", "c")] {
        let event = |kind: &str, tag: &str| Event::new(kind, "{}").and_then(|event| event.tag(tag)).expect("an event");
        let log = store.log().expect("a log");
        log.append(Append::new([event(kind, "a")]).commit(ids[0])).await.expect("appends");
        log.append(Append::new([event("A", "x"), event("A", second)]).commit(ids[1])).await.expect("appends");
    }
    catch_up(&store).await;
    catch_up(&double).await;
    assert_eq!(verify(&store).await.findings, []);
    let chain = bare_sdk::client(other.http_client()).scan().table_name("orders-side").send().await.expect("scans");
    for epoch in chain.items.unwrap_or_default() {
        client.put_item().table_name("orders-side").set_item(Some(epoch)).send().await.expect("puts");
    }
    let problems: Vec<String> = verify(&store).await.findings.into_iter().map(|finding| finding.problem).collect();
    assert!(problems.iter().any(|problem| problem.contains("types") && problem.contains(&ids[0].to_string())), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("slots") && problem.contains(&ids[1].to_string())), "{problems:?}");
}

/// A rebuild does not know how many events a commit of several tags has. What a reader holds at a time is bounded all the same.
#[tokio::test]
async fn a_reader_of_large_commits_that_a_rebuild_put_fetches_few_at_a_time() {
    let engine = Engine::memory().expect("an engine");
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams")).await;
    for n in 0..12 {
        let event = |m: usize| {
            let event = Event::new("A", format!("{{\"n\":{n},\"m\":{m}}}")).expect("an event");
            event.tag(format!("t-{}", m % 5)).expect("a tag")
        };
        store.log().expect("a log").append(Append::new((0..600).map(event))).await.expect("appends");
    }
    assert_eq!(store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 12);
    let meter = Meter::new(engine.http_client());
    let reader = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(meter.http_client())).await;
    meter.take();
    let mut feed = reader.feed().expect("a feed").subscribe(From::Start, Query::all());
    let mut bodies = std::collections::BTreeSet::new();
    let mut first = None;
    while let Some(Ok(Delivery::Event { event, .. })) = feed.next().await {
        first.get_or_insert_with(|| meter.take().requests);
        assert!(bodies.insert(event.data.clone()), "each once");
    }
    let (first, rest) = (first.expect("an event"), meter.take().requests);
    assert_eq!(bodies.len(), 12 * 600);
    // The epoch and the first two commits; then two at a time, and that there is no other epoch.
    assert_eq!((first, rest), (2, 6));
}

/// A chain that is built anew is another one: the same numbers name other commits in it.
#[tokio::test]
async fn a_checkpoint_of_an_index_that_was_built_anew_is_refused() {
    let engine = Engine::memory().expect("an engine");
    let store = open(Ground::Engine(engine.clone()).builder("feed=streams&table=orders")).await;
    let feed = store.feed().expect("a feed");
    let mut live = feed.subscribe(From::Start, Query::all());
    let Some(Ok(Delivery::CaughtUp { checkpoint: empty })) = live.next().await else { panic!("nothing is there") };
    let mut checkpoints = Vec::new();
    for _ in 0..4 {
        epochs(&store, 1).await;
        let Some(Ok(Delivery::Event { checkpoint, .. })) = live.next().await else { panic!("an event") };
        checkpoints.push(checkpoint);
    }
    assert!(matches!(live.next().await, Some(Ok(Delivery::CaughtUp { .. }))));
    for (behind, checkpoint) in checkpoints.iter().enumerate() {
        let rest = feed.subscribe(From::Checkpoint(checkpoint.clone()), Query::all());
        assert_eq!(rest.take_while(|next| std::future::ready(matches!(next, Ok(Delivery::Event { .. })))).count().await, 3 - behind);
    }
    let client = bare_sdk::client(engine.http_client());
    let chain = client.scan().table_name("orders-side").send().await.expect("scans").items.unwrap_or_default();
    for mut epoch in chain.into_iter().filter(|item| item["p"].as_s().is_ok_and(|p| p == "x")) {
        epoch.retain(|name, _| name == "p" || name == "v");
        client.delete_item().table_name("orders-side").set_key(Some(epoch)).send().await.expect("deletes");
    }
    let refused = async |checkpoint: &fencepost::Checkpoint| {
        let next = feed.subscribe(From::Checkpoint(checkpoint.clone()), Query::all()).next().await;
        matches!(next, Some(Err(fencepost::Error::Refused(fencepost::Refused::Foreign { .. }))))
    };
    assert!(refused(&checkpoints[0]).await, "after the head");
    assert_eq!(store.index().expect("an index").rebuild(&|_| ()).await.expect("rebuilds").appended, 4);
    for checkpoint in &checkpoints {
        assert!(refused(checkpoint).await);
    }
    put(&store, "a").await;
    for _ in 0..6 {
        put(&store, "b").await;
        catch_up(&store).await;
    }
    // One that goes on reading finds another chain under the next number.
    assert!(matches!(live.next().await, Some(Err(fencepost::Error::Refused(fencepost::Refused::Foreign { .. })))));
    let all = feed.subscribe(From::Checkpoint(empty), Query::all());
    assert_eq!(
        all.take_while(|next| std::future::ready(matches!(next, Ok(Delivery::Event { .. })))).count().await,
        11,
        "any has its beginning"
    );
}
