//! A rebuild that is stopped in its scan is gone on with: what it had read is not read again, what was written meanwhile comes after what it
//! follows, and nothing of it stays in the side table.

#[allow(clippy::unwrap_used, reason = "shared with tests that may")]
mod bare_sdk;
mod support;

use std::time::Duration;

use fencepost::testing::{Faults, Gate, Rule};
use fencepost::{Append, Engine, Env, Event, Index, IndexOptions, IndexProgress, IndexRebuilt, IndexVerified, RebuildProgress, Store};
use futures::future::join;
use support::{Ground, open};

const URL: &str = "feed=streams&table=orders";

/// Two items a page, and every page is saved.
fn index(store: &Store) -> Index {
    store.index().expect("an index").scan_by(2, 1)
}

async fn rebuild(store: &Store) -> (IndexRebuilt, RebuildProgress) {
    let first = std::sync::OnceLock::new();
    let rebuilt = index(store).rebuild(&|so_far| drop(first.set(so_far.clone()))).await.expect("rebuilds");
    (rebuilt, first.into_inner().unwrap_or_default())
}

async fn catch_up(store: &Store) -> IndexProgress {
    let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up();
    store.index().expect("an index").run(&options, &|_| ()).await.expect("runs")
}

async fn verify(store: &Store) -> IndexVerified {
    store.index().expect("an index").verify(&|_| ()).await.expect("verifies")
}

async fn put(store: &Store, tags: &[String]) {
    let event = tags.iter().try_fold(Event::new("A", "{}").expect("an event"), |event, tag| event.tag(tag.as_str())).expect("tags");
    store.log().expect("a log").append(Append::new([event])).await.expect("appends");
}

fn tag(n: usize) -> String {
    format!("tag-{n}")
}

/// A log of so many commits on tags of their own, of which the index has two.
async fn filled(store: &Store, commits: usize) {
    for n in 0..commits {
        put(store, &[tag(n)]).await;
        if n == 1 {
            catch_up(store).await;
        }
    }
}

/// What a rebuild has left of its scan in the side table.
async fn left(engine: &Engine) -> usize {
    let side = bare_sdk::client(engine.http_client()).scan().table_name("orders-side").send().await.expect("scans");
    side.items.unwrap_or_default().iter().filter(|item| item["p"].as_s().is_ok_and(|p| p == "b")).count()
}

/// Runs a rebuild until its nth scan of a page is answered, and drops it there.
async fn stopped(engine: &Engine, env: &Env, nth: usize) {
    stopped_at(URL, engine, env, nth).await;
}

async fn stopped_at(url: &str, engine: &Engine, env: &Env, nth: usize) {
    let (gate, faults) = (Gate::new(), Faults::new(engine.http_client(), 1));
    let mortal = open(Ground::Engine(engine.clone()).builder(url).http_client(faults.http_client()).env(env.clone())).await;
    faults.script(Rule::on("Scan").nth(nth).pause_after(&gate));
    tokio::select! {
        rebuilt = rebuild(&mortal) => panic!("{rebuilt:?}"),
        () = gate.reached(1) => {}
    }
}

/// A clock that only the test moves, from now on.
fn clock() -> Env {
    let env = Env::seeded(1);
    env.set_clock(Env::system().now());
    env
}

#[tokio::test]
async fn a_rebuild_that_is_killed_at_any_call_is_gone_on_with_and_leaves_a_whole_index() {
    let (mut kills, mut resumed) = (0, 0);
    for nth in 1.. {
        let engine = Engine::memory().expect("an engine");
        let opened = |http| open(Ground::Engine(engine.clone()).builder(URL).http_client(http));
        let store = opened(engine.http_client()).await;
        filled(&store, 8).await;
        let (gate, faults) = (Gate::new(), Faults::new(engine.http_client(), 1));
        let mortal = opened(faults.http_client()).await;
        faults.script(Rule::on_any().nth(nth).pause_after(&gate));
        let ended = tokio::select! {
            (rebuilt, _) = rebuild(&mortal) => Some(rebuilt),
            () = gate.reached(1) => None,
        };
        kills += u64::from(ended.is_none());
        // Behind the scan or before it, and one that follows it.
        put(&store, &[tag(3)]).await;
        put(&store, &[tag(7), tag(3)]).await;
        resumed += u64::from(rebuild(&store).await.0.resumed > 0);
        let ran = catch_up(&store).await;
        assert!(ran.commits <= 2 && ran.late == 0, "call {nth}: only what came since comes by the stream: {ran:?}");
        let verified = verify(&store).await;
        assert_eq!((verified.findings.as_slice(), verified.indexed), (&[][..], 10), "call {nth}: {verified:?}");
        assert_eq!(left(&engine).await, 0, "call {nth}");
        if let Some(rebuilt) = ended {
            assert_eq!((rebuilt.appended, rebuilt.resumed), (6, 0));
            break;
        }
    }
    assert!(kills >= 30 && resumed >= 15, "{kills} kills, {resumed} gone on with");
}

#[tokio::test]
async fn what_a_rebuild_had_read_before_it_was_stopped_is_not_read_again() {
    let (engine, env) = (Engine::memory().expect("an engine"), clock());
    let faults = Faults::new(engine.http_client(), 1);
    let store = open(Ground::Engine(engine.clone()).builder(URL).http_client(faults.http_client()).env(env.clone())).await;
    filled(&store, 80).await;
    stopped(&engine, &env, 32).await;
    let (rebuilt, first) = rebuild(&store).await;
    assert!(rebuilt.resumed >= 54 && first.resumed == rebuilt.resumed && first.dropped.is_none(), "{rebuilt:?}, {first:?}");
    assert!(rebuilt.items >= 80 && rebuilt.appended == 78, "{rebuilt:?}");
    // Those pages that the other one had not saved, and of each part the end.
    let pages = u64::try_from(faults.calls("Scan")).expect("few");
    assert!(pages <= (rebuilt.items - rebuilt.resumed).div_ceil(2) + 4, "{pages} pages: {rebuilt:?}");
    assert_eq!((verify(&store).await.findings.as_slice(), left(&engine).await), (&[][..], 0));
}

/// What lands behind the scan is as young as the first run: hours may pass before it is gone on with.
#[tokio::test]
async fn what_was_written_between_two_runs_comes_after_what_it_follows() {
    let (engine, env) = (Engine::memory().expect("an engine"), clock());
    let store = open(Ground::Engine(engine.clone()).builder(URL).env(env.clone())).await;
    filled(&store, 24).await;
    stopped(&engine, &env, 8).await;
    env.advance(Duration::from_secs(60));
    // Wherever the scan is, one of the first lands behind it, and the one that follows it before it.
    for n in 0..24 {
        put(&store, &[tag(n)]).await;
        put(&store, &[format!("new-{n}"), tag(n)]).await;
    }
    env.advance(Duration::from_secs(5 * 3_600));
    let (rebuilt, _) = rebuild(&store).await;
    assert!(rebuilt.resumed > 0, "{rebuilt:?}");
    let ran = catch_up(&store).await;
    assert!(ran.commits > 0 && ran.late == 0, "some landed behind it, and the stream brings them: {ran:?}");
    let verified = verify(&store).await;
    assert_eq!((verified.findings.as_slice(), verified.indexed), (&[][..], 72), "{verified:?}");
}

#[tokio::test]
async fn what_was_read_about_a_day_ago_is_dropped_and_that_is_said() {
    for (hours, good) in [(22, true), (24, false)] {
        let (engine, env) = (Engine::memory().expect("an engine"), clock());
        let store = open(Ground::Engine(engine.clone()).builder(URL).env(env.clone())).await;
        filled(&store, 24).await;
        stopped(&engine, &env, 8).await;
        env.advance(Duration::from_secs(hours * 3_600));
        let (rebuilt, first) = rebuild(&store).await;
        assert_eq!((rebuilt.resumed > 0, first.dropped.is_none()), (good, good), "{hours} hours: {rebuilt:?}, {first:?}");
        assert_eq!((rebuilt.appended, left(&engine).await), (22, 0), "{hours} hours");
    }
}

#[tokio::test]
async fn two_rebuilds_at_once_that_go_on_with_the_same_scan_append_each_commit_once() {
    let (engine, env) = (Engine::memory().expect("an engine"), clock());
    let store = open(Ground::Engine(engine.clone()).builder(URL).env(env.clone())).await;
    filled(&store, 40).await;
    stopped(&engine, &env, 8).await;
    // One is held up while the other ends, and takes away what both go by.
    let (gate, faults) = (Gate::new(), Faults::new(engine.http_client(), 1));
    let slow = open(Ground::Engine(engine.clone()).builder(URL).http_client(faults.http_client()).env(env.clone())).await;
    faults.script(Rule::on("Scan").nth(1).pause_before(&gate));
    let quick = async {
        gate.reached(1).await;
        let (rebuilt, _) = rebuild(&store).await;
        gate.open();
        rebuilt
    };
    let ((one, _), two) = join(rebuild(&slow), quick).await;
    assert!(one.resumed > 0 && two.resumed > 0 && (one.appended, two.appended) == (0, 38), "{one:?}, {two:?}");
    let verified = verify(&store).await;
    assert_eq!((verified.findings.as_slice(), verified.indexed, left(&engine).await), (&[][..], 40, 0), "{verified:?}");
}

/// One that looks for what an earlier run has left, while another begins, saves and goes on: it took that one's pieces for nobody's, and threw
/// them away, and whoever went on from the next piece missed what they held.
#[tokio::test]
async fn what_a_rebuild_saves_while_another_begins_is_not_taken_for_what_is_left_over() {
    for nth in 1.. {
        let (engine, env) = (Engine::memory().expect("an engine"), clock());
        let opened = |faults: &Faults| open(Ground::Engine(engine.clone()).builder(URL).http_client(faults.http_client()).env(env.clone()));
        let store = open(Ground::Engine(engine.clone()).builder(URL).env(env.clone())).await;
        filled(&store, 40).await;
        let faults = [1, 2].map(|seed| Faults::new(engine.http_client(), seed));
        let [one, other] = [opened(&faults[0]).await, opened(&faults[1]).await];
        // One saves, waits for the other to look and to clear away, and goes on for a few pages.
        let [saved, killed, held, cleared] = [(); 4].map(|()| Gate::new());
        faults[0].script(Rule::on("PutItem").nth(6).pause_after(&saved)).script(Rule::on("PutItem").nth(14).pause_after(&killed));
        faults[1].script(Rule::on_any().nth(nth).pause_after(&held)).script(Rule::on("Scan").nth(1).pause_before(&cleared));
        let (mut looking, mut saving) = (Box::pin(rebuild(&other)), Box::pin(rebuild(&one)));
        let whole = tokio::select! {
            rebuilt = &mut looking => panic!("{rebuilt:?}"),
            () = held.reached(1) => false,
            () = cleared.reached(1) => true,
        };
        if whole {
            assert!(nth > 5, "it makes {nth} calls before its scan");
            break;
        }
        tokio::select! {
            rebuilt = &mut saving => panic!("{rebuilt:?}"),
            () = saved.reached(1) => held.open(),
        }
        tokio::select! {
            rebuilt = &mut looking => panic!("{rebuilt:?}"),
            () = cleared.reached(1) => saved.open(),
        }
        tokio::select! {
            rebuilt = &mut saving => panic!("{rebuilt:?}"),
            () = killed.reached(1) => {}
        }
        rebuild(&store).await;
        let verified = verify(&store).await;
        assert_eq!((verified.findings.as_slice(), verified.indexed, left(&engine).await), (&[][..], 40, 0), "call {nth}: {verified:?}");
    }
}

/// The index of Equinox' tables by the same scan, with a stream that grows between the runs.
#[tokio::test]
async fn a_rebuild_of_equinox_index_is_gone_on_with() {
    const URL: &str = "layout=equinox&table=orders";
    let (engine, env) = (Engine::memory().expect("an engine"), clock());
    let faults = Faults::new(engine.http_client(), 1);
    let store = open(Ground::Engine(engine.clone()).builder(URL).http_client(faults.http_client()).env(env.clone())).await;
    let put = async |n: usize| {
        let stream = fencepost::StreamName::new(format!("Cart-{n}")).expect("a name");
        let event = Event::new("A", "{}").expect("an event");
        store.streams().append(&stream, fencepost::Step::new([event])).await.expect("appends");
    };
    for n in 0..40 {
        put(n).await;
    }
    stopped_at(URL, &engine, &env, 12).await;
    put(3).await;
    put(33).await;
    let (rebuilt, first) = rebuild(&store).await;
    assert!(rebuilt.resumed > 8 && first.resumed == rebuilt.resumed && rebuilt.appended >= 40, "{rebuilt:?}, {first:?}");
    let pages = u64::try_from(faults.calls("Scan")).expect("few");
    assert!(pages <= (rebuilt.items - rebuilt.resumed).div_ceil(2) + 4, "{pages} pages: {rebuilt:?}");
    catch_up(&store).await;
    let verified = verify(&store).await;
    assert_eq!((verified.findings.as_slice(), verified.indexed, left(&engine).await), (&[][..], 42, 0), "{verified:?}");
}
