//! Consumers over every feed: nothing missed, nothing out of order under a key, whatever fails or is killed; parking, pausing, rewinding.
//! A little long: one list of what a consumer promises, all by the same places and recordings.

mod follow;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{CellKind, Cells, Consumer, Ended, Env, Feed, From, Handed, Memory, OnFailure, Query};
use follow::crash::{Fate, Point};
use follow::{PATIENCE, Place, Recording, place, wait_until};

fn lease() -> Duration {
    follow::lease(200, 600)
}

fn consumer(place: &Place, name: &str) -> Consumer {
    let consumer = Consumer::new(name, place.feed.clone(), place.cells.clone(), Env::system()).expect("a good name");
    consumer.lease(lease()).save_every(10, Duration::from_millis(20)).retry(2, Duration::from_millis(1), Duration::from_millis(2))
}

async fn put(place: &Place, label: &str, tags: &[&str]) {
    place.append(&[(label, tags)]).await;
}

/// Runs the consumer until the recording holds so many, gracefully.
async fn run_for(consumer: &Consumer, recording: &Recording, count: usize) -> Ended {
    let handler = recording.handler();
    let until = wait_until(|| recording.len() >= count);
    consumer.run_until(handler, until).await.expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_then_live_and_resumed_where_it_was_left() {
    for place in follow::places().await {
        for n in 0..20 {
            put(&place, &n.to_string(), &[&format!("s:{}", n % 3)]).await;
        }
        let recording = Recording::default();
        let mailer = consumer(&place, "mailer");
        let _ = run_for(&mailer, &recording, 20).await;
        assert_eq!(recording.len(), 20, "{}", place.name);
        for n in 20..30 {
            put(&place, &n.to_string(), &[&format!("s:{}", n % 3)]).await;
        }
        let _ = run_for(&mailer, &recording, 30).await;
        assert_eq!(recording.labels_sorted(), (0..30).collect::<Vec<_>>(), "{}: each once, since it was stopped gracefully", place.name);
        recording.assert_order(&place.name);
        assert_eq!(Consumer::names(&*place.cells).await.expect("lists"), ["mailer"]);
    }
}

/// S2, after the head: what a checkpoint covers is not in this store. It would be waited for, and all that comes until then be missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_after_the_head_is_refused() {
    use futures::StreamExt;
    let (longer, shorter) = (follow::places().await, follow::places().await);
    for (longer, shorter) in longer.into_iter().zip(shorter) {
        for n in 0..6 {
            put(&longer, &n.to_string(), &["a"]).await;
        }
        put(&shorter, "0", &["a"]).await;
        let recording = Recording::default();
        let _ = run_for(&consumer(&shorter, "mailer"), &recording, 1).await;
        let mut feed = longer.feed.subscribe(From::Start, Query::all());
        let mut met = 0;
        while met < 6 {
            let Some(Ok(next)) = feed.next().await else { panic!("{}: an event", longer.name) };
            let fencepost::Delivery::Event { checkpoint, .. } = next else { continue };
            met += 1;
            let there = shorter.feed.subscribe(From::Checkpoint(checkpoint), Query::all()).next().await;
            let refused = matches!(&there, Some(Err(fencepost::Error::Refused(fencepost::Refused::Foreign { .. }))));
            // With versions alone the first commit of another store cannot be told from ours.
            assert!(refused || met == 1, "{}, event {met}: {there:?}", longer.name);
        }
    }
}

/// Once it has said that it is caught up, a feed looks at what is a moment old. That is late and misses nothing, though of two commits the later
/// shows first; and whoever says that it has caught up has looked strongly.
#[tokio::test]
async fn an_idle_feed_that_looks_at_a_stale_replica_is_late_and_misses_nothing() {
    use fencepost::{Append, Delivery, Engine, Event, IndexOptions, Store};
    use futures::StreamExt;
    for feed in ["lanes-1", "lanes-8", "streams"] {
        let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
        let lag = fencepost::testing::Lag::new(now.http_client(), stale.http_client(), 1);
        let builder = || Store::builder(&format!("memory:?feed={feed}")).expect("a good URL").http_client(lag.http_client());
        let subscribe = async || support::open(builder()).await.feed().expect("a feed").subscribe(From::Start, Query::all());
        let mut live = subscribe().await;
        assert!(matches!(live.next().await, Some(Ok(Delivery::CaughtUp { .. }))), "{feed}");
        // Four writers, each on a lane of its own perhaps; each commit follows the one before.
        for n in 0..4 {
            let (writer, event) = (support::open(builder()).await, Event::new("Noted", n.to_string()).and_then(|event| event.tag("a")));
            writer.log().expect("a log").append(Append::new([event.expect("an event")])).await.expect("appends");
            if let Ok(index) = writer.index() {
                index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
            }
        }
        assert!(tokio::time::timeout(Duration::from_millis(100), live.next()).await.is_err(), "{feed}: it looked at what is old");
        let mut met = Vec::new();
        // The replica learns of it, the newest first.
        let pending = lag.pending().into_iter().rev();
        for (id, rest) in pending.map(|pending| pending.id).zip([false, true].into_iter().chain(std::iter::repeat(true))) {
            lag.apply(id).await;
            let wait = if rest { Duration::ZERO } else { Duration::from_millis(300) };
            while let Ok(Some(Ok(next))) = tokio::time::timeout(wait, live.next()).await {
                if let Delivery::Event { event, .. } = next {
                    met.push(follow::label(&event));
                }
            }
        }
        while met.len() < 4 {
            let next = tokio::time::timeout(PATIENCE, live.next()).await.expect("it delivers").expect("never ends").expect("delivers");
            if let Delivery::Event { event, .. } = next {
                met.push(follow::label(&event));
            }
        }
        assert_eq!(met, [0, 1, 2, 3], "{feed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_filters_and_the_place_moves_past_what_it_passes_over() {
    for place in follow::places().await {
        for n in 0..10 {
            put(&place, &n.to_string(), &[if n % 5 == 0 { "wanted" } else { "other" }]).await;
        }
        let recording = Recording::default();
        let mailer = consumer(&place, "mailer").query(Query::tag("wanted").expect("a tag"));
        let _ = run_for(&mailer, &recording, 2).await;
        assert_eq!(recording.labels_sorted(), [0, 5], "{}", place.name);
        let lag = mailer.lag(100).await.expect("counts");
        assert_eq!((lag.events, lag.more), (0, false), "{}", place.name);
        put(&place, "10", &["wanted"]).await;
        put(&place, "11", &["other"]).await;
        assert_eq!(mailer.lag(100).await.expect("counts").events, 1, "{}", place.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_handled_at_the_same_time_and_each_in_order() {
    let place = place(Memory::new());
    for n in 0..40 {
        put(&place, &n.to_string(), &[&format!("s:{}", n % 4)]).await;
    }
    let recording = Recording::default();
    let (running, most) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(0)));
    let handler = |handed: Handed| {
        let (recording, running, most) = (recording.clone(), running.clone(), most.clone());
        async move {
            let tag = handed.tags[0].to_string();
            {
                let mut running = running.lock().expect("it must succeed");
                assert!(running.insert(tag.clone()), "two of one stream at once");
                let mut most = most.lock().expect("it must succeed");
                *most = running.len().max(*most);
            }
            tokio::task::yield_now().await;
            Env::system().sleep(Duration::from_millis(2)).await;
            running.lock().expect("it must succeed").remove(&tag);
            recording.note(&handed);
            Ok::<_, String>(())
        }
    };
    let mailer = consumer(&place, "mailer").concurrency(3);
    let _ = mailer.run_until(handler, wait_until(|| recording.len() == 40)).await.expect("it runs");
    assert_eq!(*most.lock().expect("it must succeed"), 3, "as many as it may, and no more");
    recording.assert_order("memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_place_never_passes_what_is_not_done() {
    let place = place(Memory::new());
    for n in 0..10 {
        put(&place, &n.to_string(), &[&format!("s:{n}")]).await;
    }
    // The third never ends, all others do; then it is killed.
    let recording = Recording::default();
    let handler = |handed: Handed| {
        let recording = recording.clone();
        async move {
            // All is read before anything is done.
            Env::system().sleep(Duration::from_millis(20)).await;
            if follow::label(&handed) == 2 {
                std::future::pending::<()>().await;
            }
            recording.note(&handed);
            Ok::<_, String>(())
        }
    };
    let mailer = consumer(&place, "mailer");
    let killed = async {
        wait_until(|| recording.len() == 9).await;
        Env::system().sleep(Duration::from_millis(100)).await;
    };
    futures::future::select(Box::pin(mailer.run(handler)), Box::pin(killed)).await;
    let status = mailer.status().await.expect("loads").expect("it ran");
    assert_eq!(status.partitions[0].position.and_then(|at| at.as_number()), Some(2), "the place stands before the third");
    let rest = Recording::default();
    let _ = run_for(&mailer, &rest, 8).await;
    assert_eq!(rest.labels_sorted(), (2..10).collect::<Vec<_>>(), "from the third on, again");
}

/// Counts what is read of it.
#[derive(Debug)]
struct Counting(Arc<dyn Feed>, Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Feed for Counting {
    fn subscribe(&self, from: From, query: Query) -> futures::stream::BoxStream<'static, fencepost::Result<fencepost::Delivery>> {
        use futures::StreamExt;
        let read = self.1.clone();
        let count = move |_: &_| {
            read.fetch_add(1, Ordering::SeqCst);
        };
        self.0.subscribe(from, query).inspect(count).boxed()
    }
    async fn shows(&self, position: fencepost::Position) -> fencepost::Result<bool> {
        self.0.shows(position).await
    }
    async fn unshown_since(&self) -> fencepost::Result<Option<jiff::Timestamp>> {
        self.0.unshown_since().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_ahead_is_bounded() {
    let (mut place, read) = (place(Memory::new()), Arc::new(AtomicUsize::new(0)));
    for n in 0..100 {
        put(&place, &n.to_string(), &["a"]).await;
    }
    place.feed = Arc::new(Counting(place.feed, read.clone()));
    let mailer = consumer(&place, "mailer").read_ahead(7);
    let stuck = |_: Handed| std::future::pending::<Result<(), String>>();
    let script = async {
        wait_until(|| read.load(Ordering::SeqCst) >= 7).await;
        // Long enough for whoever would go on.
        Env::system().sleep(Duration::from_millis(100)).await;
    };
    futures::future::select(Box::pin(mailer.run(stuck)), Box::pin(script)).await;
    assert_eq!(read.load(Ordering::SeqCst), 7);
}

/// What is finished behind one that is stuck is read again after a crash: there must be an end to it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_ahead_is_bounded_behind_one_that_is_stuck_though_all_others_are_done() {
    let (mut place, read) = (place(Memory::new()), Arc::new(AtomicUsize::new(0)));
    for n in 0..200 {
        put(&place, &n.to_string(), &[&format!("s:{n}")]).await;
    }
    place.feed = Arc::new(Counting(place.feed, read.clone()));
    let recording = Recording::default();
    let handler = async |handed: Handed| {
        if follow::label(&handed) == 0 {
            std::future::pending::<()>().await;
        }
        recording.note(&handed);
        Ok::<_, String>(())
    };
    let mailer = consumer(&place, "mailer").read_ahead(7);
    let script = async {
        wait_until(|| recording.len() >= 7 * 8 - 1).await;
        // Long enough for whoever would go on.
        Env::system().sleep(Duration::from_millis(100)).await;
    };
    futures::future::select(Box::pin(mailer.run(handler)), Box::pin(script)).await;
    assert_eq!(read.load(Ordering::SeqCst), 7 * 8, "eight times as many, the stuck one among them");
}

/// Killed at once after it was first heard of, before any partition was begun: "now" is then, for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn now_is_one_instant_for_all_partitions() {
    for place in follow::places().await {
        put(&place, "0", &["a"]).await;
        let fate = Fate::new(Point::AfterSave(CellKind::Lease), 0);
        let mortal = Consumer::new("mailer", place.feed.clone(), fate.cells(&place.cells), Env::system()).expect("a good name");
        let mortal = mortal.lease(lease()).start(From::Now).partitions(4);
        let recording = Recording::default();
        futures::future::select(Box::pin(mortal.run(recording.handler())), Box::pin(fate.struck())).await;
        for n in 1..9 {
            put(&place, &n.to_string(), &[&format!("s:{n}")]).await;
        }
        let _ = run_for(&consumer(&place, "mailer").start(From::Now).partitions(4), &recording, 8).await;
        assert_eq!(recording.labels_sorted(), (1..9).collect::<Vec<_>>(), "{}", place.name);
    }
}

/// Whoever asks from outside, as the command does, does not know the keys of the consumer: what one partition has not done must not vanish
/// because by other keys it would be another partition's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_the_keys_is_told_no_less_than_the_lag() {
    let place = place(Memory::new());
    // By its tag each would be of the partition that is done; by their keys, half of them are.
    let side = |event: &fencepost::Recorded| vec![if follow::label(event).is_multiple_of(2) { "a".to_owned() } else { "left".to_owned() }];
    let mailer = || consumer(&place, "mailer").keys(side).partitions(2);
    let handler = |handed: Handed| async move {
        if follow::label(&handed) % 2 == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<_, String>(())
    };
    let (one, two, stranger) = (mailer(), mailer(), consumer(&place, "mailer"));
    let half_done = async {
        let partitions = || async { one.status().await.expect("reads").map(|status| status.partitions).unwrap_or_default() };
        let shared = |all: &[fencepost::PartitionStatus]| all.iter().filter_map(|p| p.holder).collect::<BTreeSet<_>>().len() == 2;
        follow::wait_for(|| async { shared(&partitions().await) }).await;
        for n in 0..21 {
            put(&place, &n.to_string(), &["a"]).await;
        }
        let last = place.history().await.last().map(|event| event.position);
        follow::wait_for(|| async { partitions().await.iter().filter(|p| p.position == last).count() == 1 }).await;
    };
    let both = futures::future::join(Box::pin(one.run(handler)), Box::pin(two.run(handler)));
    futures::future::select(both, Box::pin(half_done)).await;
    let counted = mailer().lag(100).await.expect("counts");
    assert_eq!((counted.events, counted.at_most), (10, false), "exactly, by its own keys");
    let told = stranger.lag(100).await.expect("counts");
    assert!(told.at_most);
    assert_eq!(told.events, 20, "all behind the partition that is furthest behind: no less");
    let missing = place.history().await[1].position;
    assert!(stranger.wait_for(missing, Duration::from_millis(20)).await.is_err(), "it is not done");
}

/// A feed that answers no question.
#[derive(Debug)]
struct Silent;

#[async_trait::async_trait]
impl Feed for Silent {
    fn subscribe(&self, _: From, _: Query) -> futures::stream::BoxStream<'static, fencepost::Result<fencepost::Delivery>> {
        Box::pin(futures::stream::pending())
    }
    async fn shows(&self, _: fencepost::Position) -> fencepost::Result<bool> {
        std::future::pending().await
    }
    async fn unshown_since(&self) -> fencepost::Result<Option<jiff::Timestamp>> {
        std::future::pending().await
    }
}

/// Not even the first look may take longer than the deadline: it reads all that the follower has not done.
#[tokio::test]
async fn a_deadline_holds_though_the_feed_does_not_answer() {
    let mut place = place(Memory::new());
    let committed = place.append(&[("0", &["a"])]).await;
    let recording = Recording::default();
    let _ = run_for(&consumer(&place, "mailer"), &recording, 1).await;
    place.feed = Arc::new(Silent);
    let (mailer, soon, env) = (consumer(&place, "mailer"), Duration::from_millis(20), Env::system());
    let by_feed = fencepost::feed_reaches(&Silent, &committed, soon, &env);
    let late =
        |waited: fencepost::Result<()>| matches!(waited, Err(fencepost::Error::Unavailable(u)) if u.reason == fencepost::Reason::Late);
    assert!(late(tokio::time::timeout(PATIENCE / 10, by_feed).await.expect("it ends")));
    assert!(late(tokio::time::timeout(PATIENCE / 10, mailer.wait_for(&committed, soon)).await.expect("it ends")));
}

#[tokio::test]
async fn lag_is_told_in_seconds_of_the_oldest() {
    let env = Env::seeded(1);
    let place = place(Memory::with_env(env.clone()));
    let mailer = Consumer::new("mailer", place.feed.clone(), place.cells.clone(), env.clone()).expect("a good name").lease(lease());
    put(&place, "0", &["a"]).await;
    let recording = Recording::default();
    let _ = run_for(&mailer, &recording, 1).await;
    assert_eq!(mailer.lag(9).await.expect("counts").seconds.to_string(), "0");
    put(&place, "1", &["a"]).await;
    env.advance(Duration::from_secs(90));
    put(&place, "2", &["a"]).await;
    env.advance(Duration::from_secs(30));
    let lag = mailer.lag(9).await.expect("counts");
    assert_eq!((lag.events, lag.more, lag.seconds.round().to_string().as_str()), (2, false, "120"));
    assert!(mailer.lag(1).await.expect("counts").more, "there are more than were counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_from_now_and_rewind() {
    for place in follow::places().await {
        put(&place, "0", &["a"]).await;
        let recording = Recording::default();
        let mailer = consumer(&place, "mailer").start(From::Now);
        let begun = async {
            follow::wait_for(|| async {
                mailer.status().await.expect("it must succeed").is_some_and(|s| s.partitions[0].checkpoint.is_some())
            })
            .await;
        };
        // Killed right after it first saved: "now" is then, not when it is started again.
        futures::future::select(Box::pin(mailer.run(recording.handler())), Box::pin(begun)).await;
        put(&place, "1", &["a"]).await;
        let _ = run_for(&mailer, &recording, 1).await;
        assert_eq!(recording.labels(), [1], "{}", place.name);
        mailer.rewind(From::Start).await.expect("it must succeed");
        let _ = run_for(&mailer, &recording, 3).await;
        assert_eq!(recording.labels(), [1, 0, 1], "{}", place.name);
        mailer.rewind(From::Now).await.expect("it must succeed");
        put(&place, "2", &["a"]).await;
        let _ = run_for(&mailer, &recording, 4).await;
        assert_eq!(recording.labels(), [1, 0, 1, 2], "{}", place.name);
        // While it runs: it notices at its next save.
        let moving = async {
            mailer.rewind(From::Start).await.expect("it must succeed");
            wait_until(|| recording.len() >= 7).await;
        };
        let _ = mailer.run_until(recording.handler(), moving).await.expect("it must succeed");
        assert_eq!(recording.labels(), [1, 0, 1, 2, 0, 1, 2], "{}", place.name);
        assert!(consumer(&place, "unheard").rewind(From::Start).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_it_stands_and_resumed_it_goes_on() {
    for place in follow::places().await {
        put(&place, "0", &["a"]).await;
        let recording = Recording::default();
        let mailer = consumer(&place, "mailer");
        let script = async {
            wait_until(|| recording.len() == 1).await;
            mailer.pause().await.expect("it must succeed");
            follow::wait_for(|| async {
                mailer
                    .status()
                    .await
                    .expect("it must succeed")
                    .expect("it must succeed")
                    .partitions
                    .iter()
                    .all(|p| p.paused && p.holder.is_none())
            })
            .await;
            put(&place, "1", &["a"]).await;
            Env::system().sleep(lease() * 2).await;
            assert_eq!(recording.len(), 1, "{}: paused", place.name);
            mailer.resume().await.expect("it must succeed");
            wait_until(|| recording.len() == 2).await;
        };
        let _ = mailer.run_until(recording.handler(), script).await.expect("it must succeed");
        assert_eq!(recording.labels(), [0, 1], "{}", place.name);
    }
}

/// Fails on the labels in `bad`.
fn picky<'a>(
    recording: &'a Recording,
    bad: &'a Mutex<BTreeSet<usize>>,
) -> impl Fn(Handed) -> futures::future::Ready<Result<(), String>> + 'a {
    move |handed| {
        let label = follow::label(&handed);
        if bad.lock().expect("it must succeed").contains(&label) {
            return futures::future::err(format!("cannot take {label}"));
        }
        recording.note(&handed);
        futures::future::ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_event_is_parked_its_stream_waits_behind_it_and_the_others_go_on() {
    for place in follow::places().await {
        for (n, tag) in ["a", "b", "a", "b", "a"].iter().enumerate() {
            put(&place, &n.to_string(), &[tag]).await;
        }
        let (recording, bad) = (Recording::default(), Mutex::new(BTreeSet::from([0])));
        let mailer = consumer(&place, "mailer");
        let three = || async { mailer.parked().await.expect("it must succeed").len() == 3 };
        let _ = mailer.run_until(picky(&recording, &bad), follow::wait_for(three)).await.expect("it must succeed");
        assert_eq!(recording.labels(), [1, 3], "{}", place.name);
        let parked = mailer.parked().await.expect("it must succeed");
        let told: Vec<_> = parked.iter().map(|p| (p.keys.clone(), p.attempts, p.reason.as_str())).collect();
        let a = vec!["a".to_owned()];
        let behind = "waits behind a parked event";
        assert_eq!(told, [(a.clone(), 2, "cannot take 0"), (a.clone(), 0, behind), (a, 0, behind)], "{}", place.name);
        // Started again, nothing of it is tried; released, it fails again and stays.
        put(&place, "5", &["b"]).await;
        let _ = mailer.run_until(picky(&recording, &bad), wait_until(|| recording.len() == 3)).await.expect("it must succeed");
        mailer.retry_parked(parked[0].number).await.expect("it must succeed");
        let failed_again = || async { mailer.parked().await.expect("it must succeed")[0].attempts == 4 };
        let _ = mailer.run_until(picky(&recording, &bad), follow::wait_for(failed_again)).await.expect("it must succeed");
        assert_eq!(recording.labels(), [1, 3, 5], "{}", place.name);
        // What comes to the stream meanwhile waits too; once the first is handled, all follow in order.
        put(&place, "6", &["a"]).await;
        bad.lock().expect("it must succeed").clear();
        let four = || async { mailer.parked().await.expect("it must succeed").len() == 4 };
        let _ = mailer.run_until(picky(&recording, &bad), follow::wait_for(four)).await.expect("it must succeed");
        mailer.retry_parked(parked[0].number).await.expect("it must succeed");
        let none = || async { mailer.parked().await.expect("it must succeed").is_empty() };
        let _ = mailer.run_until(picky(&recording, &bad), follow::wait_for(none)).await.expect("it must succeed");
        assert_eq!(recording.labels(), [1, 3, 5, 0, 2, 4, 6], "{}", place.name);
        put(&place, "7", &["a"]).await;
        let _ = run_for(&mailer, &recording, 8).await;
        assert_eq!(recording.labels().last(), Some(&7), "{}: the stream is free again", place.name);
        assert!(mailer.retry_parked(99).await.is_err() && mailer.skip_parked(99).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_right_after_parking_it_parks_the_event_once() {
    let place = place(Memory::new());
    put(&place, "0", &["a"]).await;
    // The first save gives out its number.
    let fate = Fate::new(Point::AfterSave(CellKind::Parked), 1);
    let mortal = Consumer::new("mailer", place.feed.clone(), fate.cells(&place.cells), Env::system()).expect("a good name");
    let mortal = mortal.lease(lease()).retry(1, Duration::ZERO, Duration::ZERO);
    futures::future::select(Box::pin(mortal.run(|_| async { Err::<(), _>("no") })), Box::pin(fate.struck())).await;
    let mailer = consumer(&place, "mailer");
    assert_eq!(mailer.parked().await.expect("lists").len(), 1);
    put(&place, "1", &["b"]).await;
    let (recording, bad) = (Recording::default(), Mutex::new(BTreeSet::from([0])));
    let _ = mailer.run_until(picky(&recording, &bad), wait_until(|| recording.len() == 1)).await.expect("runs");
    assert_eq!(mailer.parked().await.expect("lists").len(), 1, "read again, it is known");
    assert_eq!(mailer.lag(9).await.expect("counts").events, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_event_is_never_handled_and_what_waits_behind_it_follows() {
    let place = place(Memory::new());
    for n in 0..3 {
        put(&place, &n.to_string(), &["a"]).await;
    }
    let (recording, bad) = (Recording::default(), Mutex::new(BTreeSet::from([0, 2])));
    let mailer = consumer(&place, "mailer");
    let script = async {
        follow::wait_for(|| async { mailer.parked().await.expect("it must succeed").len() == 3 }).await;
        mailer.skip_parked(mailer.parked().await.expect("it must succeed")[0].number).await.expect("it must succeed");
        follow::wait_for(|| async { mailer.parked().await.expect("it must succeed").iter().map(|p| p.attempts).eq([2]) }).await;
    };
    let _ = mailer.run_until(picky(&recording, &bad), script).await.expect("it must succeed");
    assert_eq!(recording.labels(), [1], "the first is skipped, the last fails on its own account");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_ends_before_the_event_and_what_is_done_is_saved() {
    let place = place(Memory::new());
    for n in 0..5 {
        put(&place, &n.to_string(), &["a"]).await;
    }
    let (recording, bad) = (Recording::default(), Mutex::new(BTreeSet::from([3])));
    let mailer = consumer(&place, "mailer").on_failure(OnFailure::Stop);
    match mailer.run(picky(&recording, &bad)).await.expect("it must succeed") {
        Ended::Failed(failed) => {
            assert_eq!((failed.position.as_number(), failed.attempts, failed.reason.as_str()), (Some(4), 2, "cannot take 3"));
        }
        other => panic!("{other:?}"),
    }
    bad.lock().expect("it must succeed").clear();
    let _ = run_for(&mailer, &recording, 5).await;
    assert_eq!(recording.labels(), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_rather_than_park_without_bound() {
    let place = place(Memory::new());
    for n in 0..5 {
        put(&place, &n.to_string(), &[&format!("s:{n}")]).await;
    }
    let mailer = consumer(&place, "mailer").park_at_most(2).concurrency(1);
    let ended = mailer.run(|_| async { Err::<(), _>("no") }).await.expect("it must succeed");
    assert!(matches!(ended, Ended::Failed(_)), "{ended:?}");
    assert_eq!(mailer.parked().await.expect("it must succeed").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_hold_the_order_of_every_tag() {
    let place = place(Memory::new());
    let mut tags: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for n in 0..60 {
        let two = vec![format!("s:{}", n % 4), format!("t:{}", n % 3)];
        put(&place, &n.to_string(), &two.iter().map(String::as_str).collect::<Vec<_>>()).await;
        tags.insert(n, two);
    }
    let recording = Recording::default();
    let env = Env::seeded(7);
    let handler = |handed: Handed| {
        let (recording, pause) = (recording.clone(), env.below(3));
        async move {
            Env::system().sleep(Duration::from_millis(pause)).await;
            recording.note(&handed);
            Ok::<_, String>(())
        }
    };
    let every_tag = |event: &fencepost::Recorded| event.tags.iter().map(|tag| tag.to_string()).collect();
    let mailer = consumer(&place, "mailer").keys(every_tag);
    let _ = mailer.run_until(handler, wait_until(|| recording.len() == 60)).await.expect("it must succeed");
    let seen = recording.labels();
    for tag in tags.values().flatten().collect::<BTreeSet<_>>() {
        let of_tag: Vec<_> = seen.iter().filter(|n| tags[n].contains(tag)).collect();
        assert!(of_tag.is_sorted(), "{tag}: {of_tag:?}");
    }
}

/// Kept to the end: the number of partitions is fixed, and another is refused.
#[tokio::test]
async fn the_number_of_partitions_is_fixed_at_first_use() {
    let place = place(Memory::new());
    put(&place, "0", &["a"]).await;
    let recording = Recording::default();
    let _ = run_for(&consumer(&place, "mailer").partitions(4), &recording, 1).await;
    let cells: Arc<dyn Cells> = place.cells.clone();
    assert_eq!(cells.list(fencepost::CellKind::Lease, "mailer").await.expect("it must succeed").len(), 5);
    let refused = consumer(&place, "mailer").partitions(8).run(recording.handler()).await;
    assert!(matches!(refused, Err(fencepost::Error::Refused(fencepost::Refused::Differs { .. }))), "{refused:?}");
    let _ = run_for(&consumer(&place, "mailer"), &recording, 1).await;
}
