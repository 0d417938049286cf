//! Projections over every feed: no state differs from a fold of the whole history, whatever is killed; versions beside each other; stale
//! writers fenced. In `offload.rs`: large states in object storage, whole or loudly not.

#[path = "../follow/mod.rs"]
mod follow;
mod offload;
mod resumed;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{Cell, CellKey, CellKind, Cells, Ended, Env, Error, Memory, Projection, Projections, Query, Reason, Recorded, Revision};
use follow::cells::{Judged, Verdict};
use follow::crash::{Deaths, Fate, Point};
use follow::{Place, place, wait_for};
use futures::future::{Either, select};

const LEASE: Duration = Duration::from_millis(30);

/// Under each tag, the labels in the order in which they came.
type Seen = BTreeMap<String, Vec<usize>>;

fn fold(state: &mut Seen, event: &Recorded) -> Result<(), String> {
    for tag in &event.tags {
        state.entry(tag.to_string()).or_default().push(follow::label(event));
    }
    Ok(())
}

fn seen(version: u32) -> Projection<Seen> {
    let projection = Projection::new("seen", version, Seen::new, fold).expect("a good name");
    projection.lease(LEASE).save_every(5, Duration::from_millis(5))
}

fn projections(place: &Place, fate: Option<&Fate>) -> Projections {
    match fate {
        Some(fate) => Projections::new(fate.feed(&place.feed), fate.cells(&place.cells), Env::system()),
        None => Projections::new(place.feed.clone(), place.cells.clone(), Env::system()),
    }
}

async fn whole(place: &Place) -> Seen {
    let mut state = Seen::new();
    for event in place.history().await {
        fold(&mut state, &event).expect("folds");
    }
    state
}

async fn state(projections: &Projections) -> Option<Seen> {
    projections.get::<Seen>("seen").await.expect("reads").map(|got| got.state)
}

async fn append(place: &Place, labels: std::ops::Range<usize>) {
    for n in labels {
        place.append(&[(&n.to_string(), &[&format!("s:{}", n % 3)])]).await;
    }
}

/// Runs it until what is stored equals a fold of everything.
async fn catch_up(place: &Place, projection: &Projection<Seen>) {
    let all = projections(place, None);
    let expected = whole(place).await;
    let version = projection_version(projection);
    let reached = || async {
        let got = all.get_version::<Seen>("seen", version).await.expect("it must succeed");
        got.is_some_and(|got| got.caught_up && got.state == expected)
    };
    let ended = all.run_until(projection, wait_for(reached)).await.expect("it must succeed");
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
}

fn projection_version(projection: &Projection<Seen>) -> u32 {
    let text = format!("{projection:?}");
    let digits: String = text.split("version: ").nth(1).expect("it says").chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_the_fold_of_all_and_goes_on_where_it_was() {
    for place in follow::places().await {
        let all = projections(&place, None);
        assert!(state(&all).await.is_none(), "{}", place.name);
        append(&place, 0..20).await;
        catch_up(&place, &seen(1)).await;
        assert_eq!(state(&all).await, Some(whole(&place).await), "{}", place.name);
        append(&place, 20..30).await;
        catch_up(&place, &seen(1)).await;
        let got = all.get::<Seen>("seen").await.expect("it must succeed").expect("it is there");
        assert_eq!((got.version, got.position), (1, place.history().await.last().map(|event| event.position)), "{}", place.name);
        let listed = all.list().await.expect("it must succeed");
        assert_eq!((listed.len(), listed[0].live, listed[0].caught_up, listed[0].holder), (1, true, true, None), "{}", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_is_built_beside_the_old_one_and_takes_over_when_it_has_caught_up() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    catch_up(&place, &seen(1)).await;
    let all = projections(&place, None);
    // The second version counts, and is killed while it catches up.
    let fate = Fate::new(Point::AfterSave(CellKind::Projection), 2);
    let mortal = projections(&place, Some(&fate));
    let second = || seen(2).save_every(2, Duration::from_secs(9));
    match select(Box::pin(mortal.run(&second())), Box::pin(fate.struck())).await {
        Either::Left((ended, _)) => panic!("{ended:?}"),
        Either::Right(_) => {}
    }
    assert!(all.get_version::<Seen>("seen", 2).await.expect("it must succeed").is_some_and(|got| !got.caught_up), "it is on its way");
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(1), "the old one is read");
    catch_up(&place, &second()).await;
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(2));
    catch_up(&place, &seen(1)).await;
    assert_eq!(
        all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version),
        Some(2),
        "the old one does not come back by running"
    );
    all.delete("seen", 2).await.expect("it must succeed");
    assert_eq!(all.get::<Seen>("seen").await.expect("it must succeed").map(|got| got.version), Some(1), "but by deleting the new one");
    assert_eq!(all.list().await.expect("it must succeed").iter().map(|status| status.version).collect::<Vec<_>>(), [1]);
    assert!(all.delete("seen", 7).await.is_err() && all.reset("unheard", 1).await.is_err());
}

#[tokio::test]
async fn how_far_it_is_behind_is_told_in_events_and_in_seconds() {
    let env = Env::seeded(1);
    let place = place(Memory::with_env(env.clone()));
    let all = Projections::new(place.feed.clone(), place.cells.clone(), env.clone());
    assert!(all.lag("seen", 9).await.expect("reads").is_none(), "there is none");
    append(&place, 0..10).await;
    catch_up(&place, &seen(1)).await;
    let lag = all.lag("seen", 9).await.expect("reads").expect("it is there");
    assert_eq!((lag.events, lag.more, lag.seconds.to_string().as_str()), (0, false, "0"));
    append(&place, 10..12).await;
    env.advance(Duration::from_secs(90));
    append(&place, 12..13).await;
    let lag = all.lag("seen", 9).await.expect("reads").expect("it is there");
    assert_eq!((lag.events, lag.more, lag.seconds.round().to_string().as_str()), (3, false, "90"));
    let lag = all.lag("seen", 2).await.expect("reads").expect("it is there");
    assert_eq!((lag.events, lag.more), (2, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_it_is_built_anew_also_while_it_runs() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    let all = projections(&place, None);
    let projection = seen(1);
    let script = async {
        wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
        let before = all.list().await.expect("it must succeed")[0].generation;
        all.reset("seen", 1).await.expect("it must succeed");
        append(&place, 10..15).await;
        wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
        assert!(all.list().await.expect("it must succeed")[0].generation > before + 1);
    };
    let _ = all.run_until(&projection, script).await.expect("it must succeed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fold_that_fails_ends_it_before_the_event_and_what_was_saved_stands() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    let picky = |state: &mut Seen, event: &Recorded| {
        fold(state, event)?;
        if follow::label(event) == 7 { Err("not seven".to_owned()) } else { Ok(()) }
    };
    let projection =
        Projection::new("seen", 1, Seen::new, picky).expect("it must succeed").lease(LEASE).save_every(3, Duration::from_secs(9));
    let all = projections(&place, None);
    match all.run(&projection).await.expect("it must succeed") {
        Ended::Failed(failed) => assert_eq!((failed.position.as_number(), failed.reason.as_str()), (Some(8), "not seven")),
        other => panic!("{other:?}"),
    }
    let got = all.get_version::<Seen>("seen", 1).await.expect("it must succeed").expect("saved before");
    assert_eq!(got.position.and_then(|at| at.as_number()), Some(6), "nothing of the failed event is in it");
}

/// By the clock that the leases themselves wait by.
#[tokio::test(start_paused = true)]
async fn the_dead_is_replaced_within_its_lease() {
    const LONG: Duration = Duration::from_secs(60);
    for (nth, tick) in (0..10u32).flat_map(|nth| [(nth, Duration::from_secs(1)), (nth, LONG)]) {
        let place = place(Memory::new());
        append(&place, 0..1).await;
        let projection = seen(1).lease(LONG).save_every(1, tick);
        let (one, two, begun) = (projections(&place, None), projections(&place, None), tokio::sync::Notify::new());
        let life = async {
            wait_for(|| async { state(&one).await.is_some() }).await;
            begun.notify_one();
            // It dies anywhere between two beats.
            Env::system().sleep(2 * LONG + LONG * nth / 40).await;
        };
        let standing_by = async {
            begun.notified().await;
            two.run(&projection).await
        };
        let death = async {
            select(Box::pin(one.run(&projection)), Box::pin(life)).await;
            append(&place, 1..2).await;
            let died = tokio::time::Instant::now();
            while state(&two).await != Some(whole(&place).await) {
                Env::system().sleep(Duration::from_millis(100)).await;
            }
            died.elapsed()
        };
        match select(Box::pin(standing_by), Box::pin(death)).await {
            Either::Left((ended, _)) => panic!("{ended:?}"),
            Either::Right((took, _)) => assert!(took <= LONG, "death {nth}: after {took:?}"),
        }
    }
}

const POINTS: &[Point] = &[Point::BeforeSave(CellKind::Projection), Point::AfterSave(CellKind::Projection), Point::InFeed];
/// A name is entered once: this comes in a projection's first life.
const FIRST_POINTS: &[Point] = &[Point::BeforeSave(CellKind::Names), Point::AfterSave(CellKind::Names)];

/// Kills a projection at a random point, again and again, while two writers write; sometimes another instance runs beside it.
async fn killed(place: Place, rounds: u64, seed: u64) -> Deaths {
    let chance = Env::seeded(seed);
    let projection = seen(1);
    let deaths = Deaths::of(format!("{} seed {seed}", place.name));
    let killing = async {
        for round in 1..=rounds {
            let fate = if round == 1 { deaths.choose(FIRST_POINTS, &chance, 1) } else { deaths.choose(POINTS, &chance, 6) };
            let (mortal, beside) = (projections(&place, Some(&fate)), projections(&place, None));
            let run = async {
                match chance.below(3) {
                    0 => drop(select(Box::pin(mortal.run(&projection)), Box::pin(beside.run(&projection))).await),
                    _ => drop(mortal.run(&projection).await),
                }
            };
            match select(Box::pin(run), Box::pin(deaths.struck(&fate))).await {
                Either::Left(_) => panic!("seed {seed} round {round}: it ended by itself"),
                Either::Right(((), run)) => drop(run),
            }
        }
    };
    let events = place.load(seed, killing).await;
    assert!(events > 20, "{}: the writers wrote {events} events", place.name);
    catch_up(&place, &projection).await;
    assert_eq!(state(&projections(&place, None)).await, Some(whole(&place).await), "{} seed {seed}", place.name);
    deaths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_the_state_is_still_the_fold_of_all_in_memory() {
    // Mostly they wait, for a point or for a dead one's lease: several histories at a time.
    let deaths = futures::future::join_all((1..=8).map(|seed| killed(place(Memory::new()), 50, seed))).await;
    Deaths::assert_met(&deaths, &[POINTS, FIRST_POINTS].concat(), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_the_state_is_still_the_fold_of_all_on_the_ledger() {
    // Feeds of several lanes give different tags in different orders, and each tag in one: the state is the same.
    let places = follow::places().await.into_iter().skip(1);
    let deaths = futures::future::join_all(places.zip(2..).map(|(place, seed)| killed(place, 50, seed))).await;
    Deaths::assert_met(&deaths, POINTS, 100);
}

/// A pointer that moves although the state could not be stored shows a state that is not there, or an old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_takes_over_only_once_its_state_is_stored() {
    let mut place = place(Memory::new());
    append(&place, 0..10).await;
    catch_up(&place, &seen(1)).await;
    let (inner, told) = (place.cells.clone(), Arc::new(Mutex::new(Vec::new())));
    let (failures, saves) = (Mutex::new(3), told.clone());
    place.cells = Judged::new(&inner, move |key, _| {
        let mut left = failures.lock().expect("a number");
        match key.number() {
            0 => saves.lock().expect("a list").push(*left),
            2 if *left > 0 => {
                *left -= 1;
                return Verdict::Failed;
            }
            _ => {}
        }
        Verdict::Done
    });
    let all = projections(&place, None);
    let taken_over = || async {
        let got = all.get::<Seen>("seen").await.expect("reads").expect("one of them is read");
        assert_eq!(got.state, whole(&place).await, "version {}", got.version);
        got.version == 2
    };
    let _ = all.run_until(&seen(2).save_every(1000, Duration::from_millis(5)), wait_for(taken_over)).await.expect("it runs");
    assert_eq!(*told.lock().expect("a list"), [0], "the pointer moved once, after the save that was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_without_having_been_saved_it_says_so() {
    let mut place = place(Memory::new());
    append(&place, 0..10).await;
    place.cells = Judged::new(&place.cells, |key, _| if key.number() == 1 { Verdict::Failed } else { Verdict::Done });
    let folded = Arc::new(Mutex::new(0));
    let count = folded.clone();
    let apply = move |state: &mut Seen, event: &Recorded| {
        *count.lock().expect("a number") += 1;
        fold(state, event)
    };
    let projection = Projection::new("seen", 1, Seen::new, apply).expect("a good name").save_every(1000, Duration::from_secs(9));
    let all_folded = || async { *folded.lock().expect("a number") == 10 };
    let ended = projections(&place, None).run_until(&projection, wait_for(all_folded)).await;
    assert!(matches!(&ended, Err(Error::Unavailable(why)) if why.reason == Reason::Unreachable), "{ended:?}");
}

/// Killed in the middle of a deletion, whatever is read is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_deleted_never_hides_the_one_before_it() {
    for point in [Point::BeforeSave(CellKind::Projection), Point::AfterSave(CellKind::Projection)] {
        for nth in 0..2 {
            let place = place(Memory::new());
            append(&place, 0..10).await;
            catch_up(&place, &seen(1)).await;
            catch_up(&place, &seen(2)).await;
            let (fate, all) = (Fate::new(point, nth), projections(&place, None));
            let mortal = projections(&place, Some(&fate));
            select(Box::pin(mortal.delete("seen", 2)), Box::pin(fate.struck())).await;
            assert_eq!(state(&all).await, Some(whole(&place).await), "killed {point:?} {nth}");
            all.delete("seen", 2).await.expect("once more");
            assert_eq!(all.get::<Seen>("seen").await.expect("reads").map(|got| got.version), Some(1), "killed {point:?} {nth}");
        }
    }
}

/// An instance that was stopped before it moved the pointer wakes, and moves it to a version that is deleted by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pointer_that_comes_late_does_not_hide_what_there_is() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    catch_up(&place, &seen(1)).await;
    let key = CellKey::new(CellKind::Projection, "seen", 0).expect("a key");
    // The saves of one that builds a version: its name, its lease, its state, the pointer.
    let inner = place.cells.clone();
    let (reached, wake) = (Arc::new(Mutex::new(None)), key.clone());
    let noted = reached.clone();
    let stopped = Judged::new(&inner, move |at, body| {
        if *at == wake {
            *noted.lock().expect("a body") = Some(body.clone());
            return Verdict::Stopped;
        }
        Verdict::Done
    });
    let (late, all) = (Projections::new(place.feed.clone(), stopped, Env::system()), projections(&place, None));
    let written = || async { reached.lock().expect("a body").is_some() };
    select(Box::pin(late.run(&seen(2))), Box::pin(wait_for(written))).await;
    all.delete("seen", 2).await.expect("deletes");
    let pointer = inner.load(&key).await.expect("loads").expect("a pointer");
    let body = reached.lock().expect("a body").clone().expect("was written");
    inner.save(&key, &body, Some(pointer.revision)).await.expect("saves").expect("over the one that is there");
    let got = all.get::<Seen>("seen").await.expect("reads").expect("the first is whole");
    assert_eq!((got.version, got.state), (1, whole(&place).await));
    assert!(all.versions("seen").await.expect("lists").iter().map(|one| (one.version, one.live)).eq([(1, true)]));
    let last = place.append(&[("10", &["s:1"])]).await;
    let (reached, first) = (all.wait_for("seen", &last, Duration::from_secs(30)), seen(1));
    let _ = all.run_until(&first, async { reached.await.expect("in time") }).await.expect("it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_version_is_not_built_again_by_who_runs_it_until_it_is_reset() {
    let place = place(Memory::new());
    append(&place, 0..10).await;
    let all = projections(&place, None);
    let refused = |ended: fencepost::Result<Ended>| matches!(&ended, Err(Error::Refused(_)) if ended.as_ref().is_err_and(|e| e.to_string().contains("deleted")));
    // While it runs, and when it is started again.
    let projection = seen(1);
    let script = async {
        wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
        all.delete("seen", 1).await.expect("deletes");
        append(&place, 10..15).await;
        std::future::pending::<()>().await;
    };
    assert!(refused(tokio::time::timeout(follow::PATIENCE, all.run_until(&projection, script)).await.expect("it ends by itself")));
    assert!(refused(tokio::time::timeout(follow::PATIENCE, all.run(&projection)).await.expect("it ends by itself")));
    assert!(state(&all).await.is_none() && all.list().await.expect("lists").is_empty());
    all.reset("seen", 1).await.expect("resets");
    catch_up(&place, &projection).await;
}

/// Cells that note how many events count in each state that is stored.
#[derive(Debug)]
struct Counted(Arc<dyn Cells>, Arc<Mutex<Vec<usize>>>);

#[async_trait::async_trait]
impl Cells for Counted {
    async fn load(&self, key: &CellKey) -> fencepost::Result<Option<Cell>> {
        self.0.load(key).await
    }
    async fn save(&self, key: &CellKey, body: &bytes::Bytes, expect: Option<Revision>) -> fencepost::Result<Option<Revision>> {
        let saved = self.0.save(key, body, expect).await?;
        let state = body.split(|byte| *byte == b'\n').nth(1).and_then(|state| serde_json::from_slice::<Seen>(state).ok());
        if let (Some(state), Some(_)) = (state, saved) {
            self.1.lock().expect("it must succeed").push(state.values().map(Vec::len).sum());
        }
        Ok(saved)
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> fencepost::Result<bool> {
        self.0.delete(key, expect).await
    }
    async fn write_all(&self, writes: &[fencepost::CellWrite]) -> fencepost::Result<bool> {
        self.0.write_all(writes).await
    }
    async fn list(&self, kind: CellKind, name: &str) -> fencepost::Result<Vec<Cell>> {
        self.0.list(kind, name).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_writer_cannot_overwrite() {
    for mut place in follow::places().await {
        let stored = Arc::new(Mutex::new(Vec::new()));
        place.cells = Arc::new(Counted(place.cells, stored.clone()));
        append(&place, 0..10).await;
        // It stops right before it stores its state; its lease goes to another, which goes on; then it wakes.
        let fate = Fate::new(Point::BeforeSave(CellKind::Projection), 1);
        let stale = projections(&place, Some(&fate));
        let (projection, all) = (seen(1), projections(&place, None));
        let script = async {
            fate.struck().await;
            catch_up(&place, &seen(1)).await;
            append(&place, 10..20).await;
            catch_up(&place, &seen(1)).await;
            let (generation, expected) = (all.list().await.expect("it must succeed")[0].generation, whole(&place).await);
            fate.wake();
            // It reads again what is there, and goes on from that.
            append(&place, 20..25).await;
            wait_for(|| async { state(&all).await == Some(whole(&place).await) }).await;
            assert!(all.list().await.expect("it must succeed")[0].generation > generation, "{}", place.name);
            assert_ne!(Some(expected), state(&all).await);
        };
        let script = tokio::time::timeout(follow::PATIENCE, script);
        match select(Box::pin(stale.run(&projection)), Box::pin(script)).await {
            Either::Left((ended, _)) => panic!("{}: {ended:?}", place.name),
            Either::Right((done, _)) => done.expect("in time"),
        }
        let stored = stored.lock().expect("it must succeed").clone();
        assert!(stored.len() > 3 && stored.is_sorted(), "{}: a state was replaced by an older one: {stored:?}", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_commit_wrote_can_be_waited_for() {
    let soon = Duration::from_secs(30);
    for place in follow::places().await {
        let (all, projection) = (projections(&place, None), seen(1).query(Query::tag("s:1").expect("it must succeed")));
        let mailer = fencepost::Consumer::new("mailer", place.feed.clone(), place.cells.clone(), Env::system()).expect("it must succeed");
        let mailer = mailer.lease(Duration::from_secs(10)).save_every(1, Duration::from_millis(5));
        let first = place.append(&[("0", &["s:1"])]).await;
        fencepost::feed_reaches(&*place.feed, &first, soon, &Env::system()).await.expect("it must succeed");
        let late = all.wait_for("seen", &first, Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(&late, Error::Unavailable(u) if u.reason == Reason::Late), "{late}");
        assert!(late.to_string().contains("projection seen") && !late.to_string().contains("nothing was recorded"), "{late}");
        assert!(mailer.wait_for(&first, Duration::from_millis(20)).await.is_err(), "{}: it has never run", place.name);
        let script = async {
            for n in 1..20usize {
                let label = n.to_string();
                let tag = if n % 2 == 0 { "s:1" } else { "s:2" };
                let committed = place.append(&[(&label, &[tag]), (&label, &["other"])]).await;
                all.wait_for("seen", &committed, soon).await.expect("it must succeed");
                let state = state(&all).await.unwrap_or_default();
                assert_eq!(state.get("s:1").is_some_and(|seen| seen.contains(&n)), n % 2 == 0, "{}: read after written", place.name);
                mailer.wait_for(&committed, soon).await.expect("it must succeed");
            }
        };
        let handled = follow::Recording::default();
        let run = futures::future::join(Box::pin(all.run(&projection)), Box::pin(mailer.run(handled.handler())));
        select(Box::pin(run), Box::pin(script)).await;
        assert_eq!(handled.len(), 39, "{}", place.name);
        let stopped = place.append(&[("99", &["s:1"])]).await;
        assert!(all.wait_for("seen", &stopped, Duration::from_millis(50)).await.is_err(), "{}: nobody runs", place.name);
        assert!(mailer.wait_for(&stopped, Duration::from_millis(50)).await.is_err(), "{}: nobody runs", place.name);
    }
}
