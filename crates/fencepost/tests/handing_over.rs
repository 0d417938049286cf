//! Partitions that change hands while something of them runs: by a new instance, a pause, a rewind, a silence. Whoever comes next begins where
//! the other has ended, and nothing begins under a lease that is gone.

mod follow;
mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{CellKey, Cells, Consumer, Ended, Env, From, Handed, Memory, OnFailure, Recorded};
use follow::cells::{Judged, Verdict};
use follow::{Place, Recording, label, place, wait_for, wait_until};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// Longer than a busy machine's pauses: nobody loses a lease by accident here.
const LEASE: Duration = Duration::from_millis(600);

fn consumer(place: &Place) -> Consumer {
    with_cells(place, place.cells.clone())
}

fn with_cells(place: &Place, cells: Arc<dyn Cells>) -> Consumer {
    let consumer = Consumer::new("mailer", place.feed.clone(), cells, Env::system()).expect("a good name");
    consumer.lease(LEASE).save_every(7, Duration::from_millis(5)).retry(1, Duration::ZERO, Duration::ZERO)
}

async fn holders(place: &Place) -> Vec<Option<Uuid>> {
    let status = consumer(place).status().await.expect("reads").expect("it ran");
    status.partitions.iter().map(|partition| partition.holder).collect()
}

async fn put(place: &Place, labels: std::ops::Range<usize>, tag: impl Fn(usize) -> String) {
    for n in labels {
        place.append(&[(&n.to_string(), &[&tag(n)])]).await;
    }
}

/// What handlers begin, in order: no two of one stream at once.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<(Vec<usize>, BTreeSet<String>)>>);

impl Begun {
    fn begin(&self, event: &Recorded) {
        let mut begun = self.0.lock().expect("a list");
        begun.0.push(label(event));
        assert!(begun.1.insert(event.tags[0].to_string()), "two of {} at once: {:?}", event.tags[0], begun.0);
    }
    fn end(&self, event: &Recorded) {
        self.0.lock().expect("a list").1.remove(event.tags[0].as_str());
    }
    fn labels(&self) -> Vec<usize> {
        self.0.lock().expect("a list").0.clone()
    }
    fn count(&self, label: usize) -> usize {
        self.labels().iter().filter(|one| **one == label).count()
    }
    fn len(&self) -> usize {
        self.labels().len()
    }
}

/// It is asked for its partition while it tries an event of it again, with nothing else under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_not_handed_over_while_a_parked_event_of_it_is_tried_again() {
    let place = place(Memory::new());
    put(&place, 0..4, |n| format!("s:{n}")).await;
    let (mended, go_on, begun, first, second) =
        (AtomicBool::new(false), Semaphore::new(0), Begun::default(), Recording::default(), Recording::default());
    let handler = async |handed: Handed| {
        if !mended.load(Ordering::SeqCst) {
            return Err("no");
        }
        begun.begin(&handed);
        go_on.acquire().await.expect("open").forget();
        begun.end(&handed);
        first.note(&handed);
        Ok(())
    };
    let other_handler = async |handed: Handed| {
        begun.begin(&handed);
        begun.end(&handed);
        second.note(&handed);
        Ok::<_, String>(())
    };
    let (one, two) = (consumer(&place).partitions(2), consumer(&place).partitions(2));
    let script = async {
        wait_for(|| async { one.parked().await.expect("lists").len() == 4 }).await;
        mended.store(true, Ordering::SeqCst);
        for parked in one.parked().await.expect("lists") {
            one.retry_parked(parked.number).await.expect("it is there");
        }
        wait_until(|| begun.len() == 4).await;
        let joins = async {
            Env::system().sleep(LEASE * 2).await;
            assert_eq!(second.len(), 0, "another tries them at the same time");
            assert_eq!(holders(&place).await.into_iter().collect::<BTreeSet<_>>().len(), 1, "handed over, though handlers run");
            go_on.add_permits(4);
            wait_for(|| async { holders(&place).await.into_iter().collect::<BTreeSet<_>>().len() == 2 }).await;
        };
        let _ = two.run_until(other_handler, joins).await.expect("it runs");
    };
    let _ = one.run_until(handler, script).await.expect("it runs");
    assert_eq!(consumer(&place).parked().await.expect("lists"), []);
    assert_eq!((first.labels_sorted(), second.labels()), (vec![0, 1, 2, 3], vec![]), "each once, by who had begun");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_waits_for_a_parked_event_that_is_tried_again_and_begins_no_other() {
    let place = place(Memory::new());
    put(&place, 0..2, |_| "a".into()).await;
    let (mended, go_on, begun) = (AtomicBool::new(false), Semaphore::new(0), Begun::default());
    let handler = async |handed: Handed| {
        if !mended.load(Ordering::SeqCst) {
            return Err("no");
        }
        begun.begin(&handed);
        go_on.acquire().await.expect("open").forget();
        begun.end(&handed);
        Ok(())
    };
    let mailer = consumer(&place);
    let script = async {
        wait_for(|| async { mailer.parked().await.expect("lists").len() == 2 }).await;
        mended.store(true, Ordering::SeqCst);
        mailer.retry_parked(mailer.parked().await.expect("lists")[0].number).await.expect("it is there");
        wait_until(|| begun.len() == 1).await;
        mailer.pause().await.expect("pauses");
        Env::system().sleep(LEASE).await;
        assert_ne!(holders(&place).await, [None], "told as paused, though a handler runs");
        go_on.add_permits(2);
        wait_for(|| async { holders(&place).await == [None] }).await;
        assert_eq!(begun.labels(), [0], "what waits behind it has begun");
        assert_eq!(mailer.parked().await.expect("lists").len(), 1, "what came of it is stored");
        mailer.resume().await.expect("resumes");
        wait_for(|| async { mailer.parked().await.expect("lists").is_empty() }).await;
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
    assert_eq!(begun.labels(), [0, 1]);
}

/// However much it has read ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_it_is_paused_nothing_begins_of_what_was_read() {
    for place in follow::places().await {
        put(&place, 0..20, |n| format!("s:{}", n % 4)).await;
        let (go_on, begun, recording) = (Semaphore::new(0), Begun::default(), Recording::default());
        let handler = async |handed: Handed| {
            begun.begin(&handed);
            go_on.acquire().await.expect("open").forget();
            begun.end(&handed);
            recording.note(&handed);
            Ok::<_, String>(())
        };
        let mailer = consumer(&place).concurrency(2);
        let script = async {
            wait_until(|| begun.len() == 2).await;
            mailer.pause().await.expect("pauses");
            Env::system().sleep(LEASE).await;
            go_on.add_permits(20);
            wait_for(|| async { holders(&place).await == [None] }).await;
            assert_eq!(begun.len(), 2, "{}: {:?}", place.name, begun.labels());
            mailer.resume().await.expect("resumes");
            wait_until(|| recording.len() == 20).await;
        };
        let _ = mailer.run_until(handler, script).await.expect("it runs");
        recording.assert_order(&place.name);
        assert_eq!(recording.labels_sorted(), (0..20).collect::<Vec<_>>(), "{}: each once, by its saved place", place.name);
    }
}

/// Of one group of partitions some go and some stay: what had not begun of the former is the other's, and the latter go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_had_not_begun_goes_over_with_its_partition_and_the_others_stay_at_work() {
    for place in follow::places().await {
        put(&place, 0..60, |n| format!("s:{}", n % 6)).await;
        let (go_on, begun, first, second) = (Semaphore::new(0), Begun::default(), Recording::default(), Recording::default());
        let all = Recording::default();
        let (begun, all, go_on) = (&begun, &all, &go_on);
        let handler = |own| {
            move |handed: Handed| async move {
                begun.begin(&handed);
                go_on.acquire().await.expect("open").forget();
                begun.end(&handed);
                Recording::note(own, &handed);
                all.note(&handed);
                Ok::<_, String>(())
            }
        };
        let shared = || consumer(&place).partitions(4).concurrency(3);
        let (one, two) = (shared(), shared());
        let script = async {
            wait_until(|| begun.len() == 3).await;
            let joins = async {
                Env::system().sleep(LEASE).await;
                go_on.add_permits(3);
                wait_for(|| async { holders(&place).await.into_iter().flatten().collect::<BTreeSet<_>>().len() == 2 }).await;
                go_on.add_permits(1000);
                wait_until(|| all.labels().into_iter().collect::<BTreeSet<_>>().len() == 60).await;
            };
            let _ = two.run_until(handler(&second), joins).await.expect("it runs");
        };
        let _ = one.run_until(handler(&first), script).await.expect("it runs");
        all.assert_order(&place.name);
        assert!(second.len() > 0 && first.len() > 3, "{}: {} and {}", place.name, first.len(), second.len());
    }
}

/// Wherever it is: what others have asked for besides is theirs soon.
#[tokio::test(start_paused = true)]
async fn a_handler_that_never_ends_holds_up_its_own_partition_alone() {
    for hung in 0..8 {
        let place = place(Memory::new());
        put(&place, 0..8, |n| format!("s:{n}")).await;
        let (begun, second) = (Begun::default(), Recording::default());
        let handler = async |handed: Handed| {
            begun.begin(&handed);
            if label(&handed) == hung {
                std::future::pending::<()>().await;
            }
            Ok::<_, String>(())
        };
        let (one, two) = (consumer(&place).partitions(4), consumer(&place).partitions(4));
        let script = async {
            wait_until(|| begun.len() == 8).await;
            let joins = async {
                Env::system().sleep(LEASE * 4).await;
                let mut held: Vec<usize> = Vec::new();
                let holders = holders(&place).await;
                for holder in holders.iter().collect::<BTreeSet<_>>() {
                    held.push(holders.iter().filter(|one| *one == holder).count());
                }
                assert!(held == [2, 2] || held == [1, 3] || held == [3, 1], "event {hung} hangs: {held:?}");
            };
            let _ = two.run_until(second.handler(), joins).await.expect("it runs");
        };
        tokio::select! {
            ended = one.run(handler) => panic!("{ended:?}"),
            () = script => {}
        }
    }
}

/// The retries of an event are over once its partition was rewound: it comes again in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewound_it_tries_nothing_from_before() {
    let place = place(Memory::new());
    put(&place, 0..4, |_| "a".into()).await;
    let (begun, rewound) = (Begun::default(), AtomicBool::new(false));
    let handler = async |handed: Handed| {
        begun.begin(&handed);
        // Long enough for a try that comes between.
        let pause = if rewound.load(Ordering::SeqCst) { LEASE / 2 } else { Duration::ZERO };
        Env::system().sleep(pause).await;
        begun.end(&handed);
        if label(&handed) == 2 && begun.count(0) == 1 { Err("not yet") } else { Ok(()) }
    };
    let mailer = consumer(&place).retry(1000, Duration::from_millis(20), Duration::from_millis(20));
    let script = async {
        wait_until(|| begun.count(2) >= 2).await;
        mailer.rewind(From::Start).await.expect("rewinds");
        rewound.store(true, Ordering::SeqCst);
        wait_until(|| begun.count(3) == 1).await;
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
    let labels = begun.labels();
    let again = labels.iter().rposition(|label| *label == 0).expect("from the start");
    assert_eq!(labels[again..], [0, 1, 2, 3], "{labels:?}");
}

/// It cannot reach its lease, and another goes on in its place: whatever it was trying is the other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_it_tries_nothing_once_another_may_have_taken_over() {
    let place = place(Memory::new());
    put(&place, 0..3, |_| "a".into()).await;
    let cut_off = Arc::new(AtomicBool::new(false));
    let is_cut_off = cut_off.clone();
    let judge = move |_: &CellKey, _: &_| if is_cut_off.load(Ordering::SeqCst) { Verdict::Failed } else { Verdict::Done };
    let (late, second) = (with_cells(&place, Judged::new(&place.cells, judge)), consumer(&place));
    let late = late.retry(10_000, Duration::from_millis(5), Duration::from_millis(5));
    let (tries, seen) = (AtomicUsize::new(0), Recording::default());
    let handler = async |_: Handed| {
        tries.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>("no")
    };
    let script = async {
        wait_until(|| tries.load(Ordering::SeqCst) > 3).await;
        cut_off.store(true, Ordering::SeqCst);
        let at_the_take_over = AtomicUsize::new(0);
        let other_handler = async |handed: Handed| {
            if seen.len() == 0 {
                at_the_take_over.store(tries.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            seen.note(&handed);
            Ok::<_, String>(())
        };
        let goes_on = async {
            wait_until(|| seen.len() == 3).await;
            Env::system().sleep(LEASE / 4).await;
        };
        let _ = second.run_until(other_handler, goes_on).await.expect("it runs");
        let (before, after) = (at_the_take_over.load(Ordering::SeqCst), tries.load(Ordering::SeqCst));
        assert_eq!(after, before, "tried again after another had begun it");
    };
    tokio::select! {
        ended = late.run(handler) => panic!("{ended:?}"),
        () = script => {}
    }
    assert_eq!(seen.labels(), [0, 1, 2]);
}

/// What fails under a lease that is gone is another's: no reason to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_does_not_for_an_event_that_is_not_its_own_any_more() {
    let place = place(Memory::new());
    put(&place, 0..2, |_| "a".into()).await;
    let (go_on, times, recording) = (Semaphore::new(0), AtomicUsize::new(0), Recording::default());
    let handler = async |handed: Handed| {
        if times.fetch_add(1, Ordering::SeqCst) == 0 {
            go_on.acquire().await.expect("open").forget();
            return Err("no");
        }
        recording.note(&handed);
        Ok(())
    };
    let mailer = consumer(&place).on_failure(OnFailure::Stop);
    let script = async {
        wait_until(|| times.load(Ordering::SeqCst) == 1).await;
        mailer.rewind(From::Start).await.expect("rewinds");
        Env::system().sleep(LEASE).await;
        assert_eq!(recording.len(), 0, "what it runs itself is still under way");
        go_on.add_permits(1);
        wait_until(|| recording.len() == 2).await;
    };
    let ended = mailer.run_until(handler, script).await.expect("it runs");
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
    assert_eq!(recording.labels(), [0, 1]);
}
