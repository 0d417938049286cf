//! Parked events and instances that sleep, die or hear no answer: whoever comes late leaves alone what others have done since. What parking
//! does in daylight is in `subscriptions.rs`.

mod follow;
mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost::testing::Meter;
use fencepost::{
    Cell, CellKey, CellKind, CellWrite, Cells, Consumer, Delivery, Ended, Engine, Env, Error, From, Handed, Memory, Query, Result,
    Revision, Units,
};
use follow::cells::{Judged, Verdict};
use follow::{Place, Recording, place, wait_for, wait_until};
use futures::StreamExt;
use support::{Ground, open, subject};
use uuid::Uuid;

fn lease() -> Duration {
    follow::lease(30, 400)
}

fn consumer(place: &Place) -> Consumer {
    with_cells(place, place.cells.clone())
}

fn with_cells(place: &Place, cells: Arc<dyn Cells>) -> Consumer {
    let consumer = Consumer::new("mailer", place.feed.clone(), cells, Env::system()).expect("a good name");
    consumer.lease(lease()).save_every(7, Duration::from_millis(5)).retry(1, Duration::ZERO, Duration::ZERO)
}

async fn parked(place: &Place) -> Vec<(u64, usize)> {
    let history = place.history().await;
    let label = |id| history.iter().find(|event| event.id == id).map(follow::label).expect("of the log");
    let parked = consumer(place).parked().await.expect("lists");
    parked.into_iter().map(|parked| (parked.number, label(parked.event))).collect()
}

/// A retry takes long; meanwhile its event is skipped, and another is parked. A number that is given again would bring the retry's end down
/// on the other event, which nobody would ever handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_ends_late_leaves_alone_what_was_parked_meanwhile() {
    let mut place = place(Memory::new());
    let cells = Judged::new(&place.cells, |_, _| Verdict::Done);
    place.cells = cells.clone();
    place.append(&[("0", &["a"])]).await;
    let (go_on, recording) = (tokio::sync::Semaphore::new(0), Recording::default());
    let (retrying, tried) = (AtomicBool::new(false), AtomicBool::new(false));
    let handler = async |handed: Handed| match follow::label(&handed) {
        0 if retrying.load(Ordering::SeqCst) => {
            tried.store(true, Ordering::SeqCst);
            let _ = go_on.acquire().await.expect("open");
            recording.note(&handed);
            Ok(())
        }
        0 | 1 => Err("no"),
        _ => {
            recording.note(&handed);
            Ok(())
        }
    };
    let mailer = consumer(&place);
    let script = async {
        wait_for(|| async { parked(&place).await.len() == 1 }).await;
        retrying.store(true, Ordering::SeqCst);
        let number = parked(&place).await[0].0;
        mailer.retry_parked(number).await.expect("it is there");
        wait_until(|| tried.load(Ordering::SeqCst)).await;
        mailer.skip_parked(number).await.expect("it is there");
        // The instance that runs looks again, and knows that it is gone.
        let before = cells.lists();
        wait_until(|| cells.lists() > before).await;
        place.append(&[("1", &["b"])]).await;
        wait_for(|| async { parked(&place).await.iter().map(|(_, label)| *label).eq([1]) }).await;
        assert_ne!(parked(&place).await[0].0, number, "no number is given twice");
        go_on.add_permits(1);
        place.append(&[("2", &["c"])]).await;
        wait_until(|| recording.labels().contains(&0) && recording.labels().contains(&2)).await;
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
    assert_eq!(parked(&place).await.iter().map(|(_, label)| *label).collect::<Vec<_>>(), [1], "it waits to be retried");
}

/// So much is parked that to list it takes longer than a lease may be silent: a lease that was renewed before the list would always be silent
/// behind it, and nothing begin.
#[tokio::test(start_paused = true)]
async fn a_parked_event_is_tried_again_however_long_their_list_takes() {
    let mut place = place(Memory::new());
    let cells = Judged::new(&place.cells, |_, _| Verdict::Done);
    place.cells = cells.clone();
    place.append(&[("0", &["a"])]).await;
    let (mended, recording) = (AtomicBool::new(false), Recording::default());
    let handler = async |handed: Handed| {
        if !mended.load(Ordering::SeqCst) {
            return Err("no");
        }
        recording.note(&handed);
        Ok(())
    };
    let mailer = consumer(&place);
    let script = async {
        wait_for(|| async { parked(&place).await.len() == 1 }).await;
        mended.store(true, Ordering::SeqCst);
        cells.list_slowly(2 * lease());
        mailer.retry_parked(parked(&place).await[0].0).await.expect("it is there");
        wait_until(|| recording.len() == 1).await;
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
}

/// The same beside an instance that lists fast, and takes what is silent: whoever lists for long keeps what it holds.
#[tokio::test(start_paused = true)]
async fn an_instance_that_lists_for_long_loses_nothing_to_another() {
    let place = place(Memory::new());
    let cells = Judged::new(&place.cells, |_, _| Verdict::Done);
    for n in 0..8 {
        place.append(&[(&n.to_string(), &[&format!("s:{n}")])]).await;
    }
    let (mended, recording) = (AtomicBool::new(false), Recording::default());
    let handler = |handed: Handed| {
        let is_mended = mended.load(Ordering::SeqCst);
        if is_mended {
            recording.note(&handed);
        }
        std::future::ready(if is_mended { Ok(()) } else { Err("no") })
    };
    let shared = |consumer: Consumer| consumer.partitions(4).lease(Duration::from_secs(1));
    let (one, two) = (shared(with_cells(&place, cells.clone())), shared(consumer(&place)));
    let holders = || async {
        let status = two.status().await.expect("reads").expect("it runs");
        status.partitions.iter().filter_map(|partition| partition.holder).collect::<Vec<_>>()
    };
    let script = async {
        wait_for(|| async { parked(&place).await.len() == 8 }).await;
        let are_shared = |holders: &[Uuid]| holders.len() == 4 && holders.iter().filter(|holder| **holder == holders[0]).count() == 2;
        wait_for(|| async { are_shared(&holders().await) }).await;
        let before = holders().await;
        cells.list_slowly(Duration::from_secs(3));
        for _ in 0..100 {
            Env::system().sleep(Duration::from_millis(200)).await;
            assert_eq!(holders().await, before);
        }
        mended.store(true, Ordering::SeqCst);
        for (number, _) in parked(&place).await {
            two.retry_parked(number).await.expect("it is there");
        }
        wait_until(|| recording.len() == 8).await;
    };
    // Side by side: whoever lists must not hold up the other.
    let beside = futures::future::select(Box::pin(two.run(&handler)), Box::pin(script));
    futures::future::select(Box::pin(one.run(&handler)), beside).await;
    assert_eq!(recording.len(), 8, "neither ended by itself");
}

/// A thousand that are released at once are not tried at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_are_tried_again_at_once_as_are_handled_at_once() {
    let place = place(Memory::new());
    for n in 0..40 {
        place.append(&[(&n.to_string(), &[&format!("s:{n}")])]).await;
    }
    let (mended, recording) = (AtomicBool::new(false), Recording::default());
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let handler = async |handed: Handed| {
        if !mended.load(Ordering::SeqCst) {
            return Err("no");
        }
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Env::system().sleep(Duration::from_millis(1)).await;
        running.fetch_sub(1, Ordering::SeqCst);
        recording.note(&handed);
        Ok(())
    };
    let mailer = consumer(&place).lease(Duration::from_secs(1)).concurrency(3);
    let script = async {
        wait_for(|| async { parked(&place).await.len() == 40 }).await;
        mended.store(true, Ordering::SeqCst);
        for (number, _) in parked(&place).await {
            mailer.retry_parked(number).await.expect("it is there");
        }
        wait_until(|| recording.len() == 40).await;
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
    assert_eq!(most.into_inner(), 3);
}

/// In front of much more, the event itself is read and not a page of megabytes of each lane.
#[tokio::test]
async fn a_parked_event_is_read_again_by_few_units() {
    for feed in ["lanes-1", "lanes-4"] {
        let Ground::Engine(engine) = Ground::embedded() else { unreachable!("it is embedded") };
        let meter = Meter::new(engine.http_client());
        let url = format!("memory:?feed={feed}");
        let store = open(fencepost::Store::builder(&url).expect("a URL").http_client(meter.http_client())).await;
        let place = follow::of(feed, subject(&store));
        let body = "7".repeat(500);
        for _ in 0..400 {
            place.append(&[(&body, &["a"])]).await;
        }
        let mut deliveries = place.feed.subscribe(From::Start, Query::all());
        meter.take();
        assert!(matches!(deliveries.next().await, Some(Ok(Delivery::Event { .. }))));
        let units = meter.take();
        assert!(units.read <= 20.0, "{feed}: {units}");
    }
}

/// A process that is stopped: its thread stands still, so that nothing of it runs, whatever it was about to do.
#[derive(Default)]
struct Sleep(Mutex<bool>, Condvar, AtomicBool);

impl Sleep {
    fn fall(&self) {
        tokio::task::block_in_place(|| {
            self.2.store(true, Ordering::SeqCst);
            let mut woken = self.0.lock().expect("a bool");
            while !*woken {
                woken = self.1.wait(woken).expect("a bool");
            }
        });
    }
    fn has_fallen(&self) -> bool {
        self.2.load(Ordering::SeqCst)
    }
    fn wake(&self) {
        *self.0.lock().expect("a bool") = true;
        self.1.notify_all();
    }
}

/// An instance is stopped with event 0 in hand, for the nth time; meanwhile another handles it and a later one of its stream, and parks
/// event 2; then the first wakes, and its handler ends so. What is parked when it has gone on to the next event, and what it handled.
async fn wakes_late(place: &Place, nth: usize, outcome: Result<(), &'static str>) -> (Vec<usize>, Recording) {
    place.append(&[("0", &["a"])]).await;
    let (late, second) = (consumer(place), consumer(place));
    let (late_seen, seen, sleep) = (Recording::default(), Recording::default(), Arc::new(Sleep::default()));
    let (noted, sleeper, times) = (late_seen.clone(), sleep.clone(), AtomicUsize::new(0));
    let late_handler = move |handed: Handed| {
        let is_first = follow::label(&handed) == 0;
        let ends = match times.fetch_add(usize::from(is_first), Ordering::SeqCst) {
            _ if !is_first => Ok(()),
            time if time < nth => Err("no"),
            time => {
                if time == nth {
                    sleeper.fall();
                }
                outcome
            }
        };
        if ends.is_ok() {
            noted.note(&handed);
        }
        std::future::ready(ends)
    };
    let late = tokio::spawn(async move { late.run(late_handler).await });
    if nth > 0 {
        wait_for(|| async { parked(place).await.len() == 1 }).await;
        second.retry_parked(parked(place).await[0].0).await.expect("it is there");
    }
    wait_until(|| sleep.has_fallen()).await;
    let other_handler = |handed: Handed| {
        let fails = follow::label(&handed) == 2;
        if !fails {
            seen.note(&handed);
        }
        std::future::ready(if fails { Err("no") } else { Ok(()) })
    };
    let goes_on = async {
        wait_until(|| seen.labels().contains(&0)).await;
        wait_for(|| async { parked(place).await.is_empty() }).await;
        place.append(&[("1", &["a"])]).await;
        place.append(&[("2", &["b"])]).await;
        wait_until(|| seen.labels().contains(&1)).await;
        wait_for(|| async { parked(place).await.len() == 1 }).await;
    };
    let _ = second.run_until(other_handler, goes_on).await.expect("it runs");
    sleep.wake();
    place.append(&[("3", &["c"])]).await;
    wait_until(|| late_seen.labels().contains(&3)).await;
    late.abort();
    (parked(place).await.into_iter().map(|(_, label)| label).collect(), late_seen)
}

/// It wakes when the other has handled the event that it holds, and a later one of the same stream: if it set the event aside now, it would be
/// handled again after the later one, and the whole stream would wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_wakes_in_a_failing_handler_parks_nothing_that_another_has_handled() {
    for place in follow::places().await {
        let (parked, _) = wakes_late(&place, 0, Err("no")).await;
        assert_eq!(parked, [2], "{}: only what the other could not handle", place.name);
    }
}

/// It wakes in a retry that another has ended meanwhile: whatever its own end is, what the other has parked since stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_wakes_in_a_retry_leaves_alone_what_another_has_parked_since() {
    for outcome in [Ok(()), Err("no")] {
        for place in follow::places().await {
            let (parked, late_seen) = wakes_late(&place, 1, outcome).await;
            assert_eq!(parked, [2], "{}: it waits to be retried", place.name);
            assert_eq!(late_seen.labels().contains(&0), outcome.is_ok());
            let waiting = consumer(&place).parked().await.expect("lists").remove(0);
            assert_eq!((waiting.attempts, waiting.reason.as_str()), (1, "no"), "{}", place.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_parking_was_not_answered_is_parked_once() {
    let mut place = place(Memory::new());
    place.append(&[("0", &["a"])]).await;
    let first = Arc::new(AtomicBool::new(true));
    place.cells = Judged::new(&place.cells, move |key, body| {
        let is_event = key.kind() == CellKind::Parked && body.starts_with(b"{");
        if is_event && first.swap(false, Ordering::SeqCst) { Verdict::Unheard } else { Verdict::Done }
    });
    let mailer = consumer(&place);
    let handler = |_: Handed| async { Err::<(), _>("no") };
    let saved = || async {
        let status = mailer.status().await.expect("reads");
        status.is_some_and(|status| status.partitions[0].position.is_some())
    };
    let _ = mailer.run_until(handler, wait_for(saved)).await.expect("it runs");
    assert_eq!(parked(&place).await.iter().map(|(_, label)| *label).collect::<Vec<_>>(), [0]);
}

/// It sleeps at the worst of all moments: its handler has failed, the lease is its own, and the request that parks the event is on its way.
/// Meanwhile another takes over, handles the event and a later one of its stream. Only the lease in the same transaction can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_sleeps_right_before_it_parks_is_fenced_by_the_parking_itself() {
    for place in follow::places().await {
        place.append(&[("0", &["a"])]).await;
        let (late_seen, seen, sleep) = (Recording::default(), Recording::default(), Arc::new(Sleep::default()));
        let (noted, sleeper) = (late_seen.clone(), sleep.clone());
        let cells = Judged::new(&place.cells, move |key, body| {
            if key.kind() == CellKind::Parked && body.starts_with(b"{") && !sleeper.has_fallen() {
                sleeper.fall();
            }
            Verdict::Done
        });
        let late = with_cells(&place, cells);
        let handler = move |handed: Handed| {
            let fails = follow::label(&handed) == 0;
            if !fails {
                noted.note(&handed);
            }
            std::future::ready(if fails { Err("no") } else { Ok(()) })
        };
        let late = tokio::spawn(async move { late.run(handler).await });
        wait_until(|| sleep.has_fallen()).await;
        let other_handler = |handed: Handed| {
            seen.note(&handed);
            std::future::ready(Ok::<_, String>(()))
        };
        let goes_on = async {
            wait_until(|| seen.labels().contains(&0)).await;
            place.append(&[("1", &["a"])]).await;
            wait_until(|| seen.labels().contains(&1)).await;
        };
        let _ = consumer(&place).run_until(other_handler, goes_on).await.expect("it runs");
        sleep.wake();
        place.append(&[("2", &["a"])]).await;
        wait_until(|| late_seen.labels().contains(&2)).await;
        late.abort();
        assert_eq!(parked(&place).await, [], "{}: the other has handled it", place.name);
        assert_eq!(seen.labels(), [0, 1], "{}", place.name);
        assert_eq!(late_seen.labels(), [2], "{}: in the order of their key", place.name);
    }
}

/// What waits behind it counts too: one event that fails on a busy stream would park all that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_rather_than_park_without_bound_behind_one_that_failed() {
    let place = place(Memory::new());
    for n in 0..10 {
        place.append(&[(&n.to_string(), &["a"])]).await;
    }
    let mailer = consumer(&place).park_at_most(3);
    let handler = |_: Handed| async { Err::<(), _>("no") };
    for times in 1..=2 {
        let ended = tokio::time::timeout(follow::PATIENCE / 6, mailer.run(handler)).await.expect("it ends").expect("it runs");
        match ended {
            Ended::Failed(failed) => assert_eq!((failed.position.as_number(), failed.attempts), (Some(4), 0), "{times}: {failed:?}"),
            other => panic!("{times}: {other:?}"),
        }
        assert_eq!(parked(&place).await.iter().map(|(_, label)| *label).collect::<Vec<_>>(), [0, 1, 2], "{times}");
    }
    // Once there is room, it goes on where it ended.
    for (number, _) in parked(&place).await {
        mailer.skip_parked(number).await.expect("it is there");
    }
    let seen = Recording::default();
    let _ = mailer.run_until(seen.handler(), wait_until(|| seen.len() == 7)).await.expect("it runs");
    assert_eq!(seen.labels(), [3, 4, 5, 6, 7, 8, 9]);
}

/// All at once, and not one at each look: nothing else happens meanwhile that would have it look again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_behind_a_parked_event_is_parked_by_few_transactions_and_at_once() {
    let mut place = place(Memory::new());
    let cells = Judged::new(&place.cells, |_, _| Verdict::Done);
    place.cells = cells.clone();
    let commits: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let events: Vec<(&str, &[&str])> = commits.iter().map(|label| (label.as_str(), &["a"] as &[&str])).collect();
    place.append(&events).await;
    let mailer = consumer(&place).lease(Duration::from_secs(60)).save_every(1000, Duration::from_secs(60));
    let handler = |_: Handed| async { Err::<(), _>("no") };
    let all = wait_for(|| async { parked(&place).await.len() == 200 });
    let all = async { tokio::time::timeout(Duration::from_secs(10), all).await.expect("all are parked") };
    let _ = mailer.run_until(handler, all).await.expect("it runs");
    assert!(cells.transactions() <= 6, "fifty at once: {}", cells.transactions());
    let history = place.history().await;
    let order: Vec<_> = mailer.parked().await.expect("lists").iter().map(|parked| parked.event).collect();
    assert_eq!(order, history.iter().map(|event| event.id).collect::<Vec<_>>(), "in their order");
}

/// While an earlier event is under way, the saved place lies before the parked one: whoever goes on after a kill reads it again, and must know
/// that it was given up. Once nobody reads it again, nothing is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_event_is_not_handled_by_whoever_goes_on_after_a_kill() {
    for place in follow::places().await {
        place.append(&[("0", &["a"]), ("1", &["b"])]).await;
        let first = consumer(&place);
        let handler = |handed: Handed| async move {
            match follow::label(&handed) {
                0 => std::future::pending().await,
                _ => Err::<(), _>("no"),
            }
        };
        let first = tokio::spawn(async move { first.run(handler).await });
        wait_for(|| async { parked(&place).await.len() == 1 }).await;
        let other = consumer(&place);
        other.skip_parked(parked(&place).await[0].0).await.expect("it is there");
        assert_eq!(parked(&place).await, [], "{}", place.name);
        first.abort();
        let seen = Recording::default();
        let handler = |handed: Handed| {
            seen.note(&handed);
            std::future::ready(Ok::<_, String>(()))
        };
        let cells = || async { place.cells.list(CellKind::Parked, "mailer").await.expect("lists").len() };
        let goes_on = async {
            wait_until(|| seen.labels().contains(&0)).await;
            place.append(&[("2", &["b"])]).await;
            wait_until(|| seen.labels().contains(&2)).await;
            wait_for(|| async { cells().await == 1 }).await;
        };
        let _ = other.run_until(handler, goes_on).await.expect("it runs");
        assert_eq!(seen.labels(), [0, 2], "{}", place.name);
        assert!(other.skip_parked(1).await.is_err() && other.retry_parked(1).await.is_err(), "{}: it is gone", place.name);
    }
}

/// Every instance would end on it, and the old place be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_another_feed_moves_nothing() {
    let places = follow::places().await;
    for (place, other) in [(0, 1), (2, 3), (3, 0)].map(|(one, other)| (&places[one], &places[other])) {
        place.append(&[("0", &["a"])]).await;
        other.append(&[("0", &["a"])]).await;
        let mailer = consumer(place);
        let saved = || async { mailer.status().await.expect("reads").is_some_and(|status| status.partitions[0].position.is_some()) };
        let _ = mailer.run_until(|_: Handed| std::future::ready(Ok::<_, String>(())), wait_for(saved)).await.expect("it runs");
        let before = mailer.status().await.expect("reads");
        let foreign = other.feed.subscribe(From::Start, Query::all()).next().await.expect("one").expect("reads");
        let checkpoint = match foreign {
            Delivery::Event { checkpoint, .. } | Delivery::CaughtUp { checkpoint } => checkpoint,
            other => panic!("{other:?}"),
        };
        let refused = mailer.rewind(From::Checkpoint(checkpoint)).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{} to {}: {refused:?}", place.name, other.name);
        assert_eq!(mailer.status().await.expect("reads"), before, "{}", place.name);
    }
}

/// Cells that tell what parking costs: of each transaction, what was asked of parked events before it, how many cells it wrote, and its units.
#[derive(Debug)]
struct Metered {
    others: Arc<dyn Cells>,
    /// By a handle of their own, which nobody else uses meanwhile.
    parking: Arc<dyn Cells>,
    meter: Meter,
    transactions: Mutex<Vec<(Units, usize, Units)>>,
}

impl Metered {
    fn of(&self, key: &CellKey) -> &dyn Cells {
        if key.kind() == CellKind::Parked { &*self.parking } else { &*self.others }
    }
}

#[async_trait]
impl Cells for Metered {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        self.of(key).load(key).await
    }
    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        self.of(key).save(key, body, expect).await
    }
    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        let before = self.meter.take();
        let written = self.parking.write_all(writes).await;
        self.transactions.lock().expect("the units").push((before, writes.len(), self.meter.take()));
        written
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        self.of(key).delete(key, expect).await
    }
    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        self.others.list(kind, name).await
    }
}

/// In each transaction; before it, one and a read for the numbers of all that it parks, or a read of the event that was tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parking_costs_two_units_for_the_lease_and_two_for_each_event() {
    let engine = Engine::memory().expect("an engine");
    let (ground, meter) = (Ground::Engine(engine.clone()), Meter::new(engine.http_client()));
    let store = open(ground.builder("feed=lanes-1")).await;
    let metered = open(ground.builder("feed=lanes-1").http_client(meter.http_client())).await;
    let place = follow::of("lanes-1", subject(&store));
    let cells = Arc::new(Metered { others: store.cells(), parking: metered.cells(), meter: meter.clone(), transactions: Mutex::default() });
    // Whoever is handed the last has read those that wait behind the first: they are parked together.
    place.append(&[("0", &["a", "b", "c"]), ("1", &["a"]), ("2", &["b"]), ("3", &["c"]), ("4", &["d"])]).await;
    let (seen, mended) = (Recording::default(), AtomicBool::new(false));
    let handler = async |handed: Handed| {
        if follow::label(&handed) == 0 && !mended.load(Ordering::SeqCst) {
            wait_until(|| seen.labels().contains(&4)).await;
            return Err("no");
        }
        seen.note(&handed);
        Ok(())
    };
    let script = async {
        wait_for(|| async { parked(&place).await.len() == 4 }).await;
        mended.store(true, Ordering::SeqCst);
        consumer(&place).retry_parked(1).await.expect("it is there");
        wait_for(|| async { parked(&place).await.is_empty() }).await;
    };
    meter.take();
    let mailer = with_cells(&place, cells.clone()).lease(Duration::from_secs(2)).concurrency(2);
    let mailer = mailer.keys(|event| event.tags.iter().map(ToString::to_string).collect());
    let _ = mailer.run_until(handler, script).await.expect("it runs");
    let units = |read, write, requests| Units { read, write, requests };
    let (numbers, look) = (units(1.0, 1.0, 2), units(1.0, 0.0, 1));
    let (one, three) = (units(0.0, 4.0, 1), units(0.0, 8.0, 1));
    let retried = (look, 2, one);
    let expected = [(numbers, 2, one), (numbers, 4, three), retried, retried, retried, retried];
    assert_eq!(*cells.transactions.lock().expect("the units"), expected);
    assert_eq!(meter.take(), Units::default());
}
