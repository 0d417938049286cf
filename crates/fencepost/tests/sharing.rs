//! Consumers killed at named points under writing load, and several instances of one consumer: nothing missed, nothing out of order per tag,
//! the dead replaced within their lease, late wakers fenced.

mod follow;
mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::{CellKey, CellKind, Consumer, Env, Handed, Lease, Memory, Recorded, Watch};
use follow::crash::{Deaths, Fate, POINTS, Point};
use follow::{Place, Recording, place, wait_for, wait_until};
use futures::future::{Either, select};
use uuid::Uuid;

fn lease() -> Duration {
    follow::lease(30, 400)
}

fn consumer(place: &Place, fate: Option<&Fate>) -> Consumer {
    let (feed, cells) = match fate {
        Some(fate) => (fate.feed(&place.feed), fate.cells(&place.cells)),
        None => (place.feed.clone(), place.cells.clone()),
    };
    let every_tag = |event: &Recorded| event.tags.iter().map(|tag| tag.to_string()).collect();
    let consumer = Consumer::new("mailer", feed, cells, Env::system()).expect("a good name").keys(every_tag);
    let consumer = consumer.lease(lease()).save_every(7, Duration::from_millis(5)).concurrency(4).read_ahead(32);
    consumer.retry(2, Duration::from_micros(100), Duration::from_millis(1))
}

/// Kills a consumer at a random point, again and again, while two writers write; then lets it finish.
async fn killed(place: Place, rounds: u64, seed: u64) -> Deaths {
    let recording = Recording::default();
    let chance = Env::seeded(seed);
    let failing = Arc::new(Mutex::new(true));
    let handler = |fate: Option<Fate>| {
        let (recording, chance, failing) = (recording.clone(), chance.clone(), failing.clone());
        move |handed: Handed| {
            let (recording, chance, fate, failing) = (recording.clone(), chance.clone(), fate.clone(), failing.clone());
            async move {
                if let Some(fate) = &fate {
                    fate.at(Point::BeforeEffect).await;
                }
                if *failing.lock().expect("it must succeed") && chance.below(7) == 0 {
                    return Err("not this time");
                }
                recording.note(&handed);
                if let Some(fate) = &fate {
                    fate.at(Point::AfterEffect).await;
                }
                Ok(())
            }
        }
    };
    let deaths = Deaths::of(format!("{} seed {seed}", place.name));
    let killing = async {
        for round in 1..=rounds {
            let fate = deaths.choose(POINTS, &chance, 4);
            let mortal = consumer(&place, Some(&fate));
            let run = Box::pin(mortal.run(handler(Some(fate.clone()))));
            match select(run, Box::pin(deaths.struck(&fate))).await {
                Either::Left((ended, _)) => panic!("seed {seed} round {round}: it ended by itself: {ended:?}"),
                Either::Right(((), run)) => drop(run),
            }
            for parked in consumer(&place, None).parked().await.expect("it must succeed") {
                if parked.attempts > 0 {
                    // Another may be gone meanwhile.
                    let _ = consumer(&place, None).retry_parked(parked.number).await;
                }
            }
        }
    };
    let events = place.load(seed, killing).await;
    *failing.lock().expect("it must succeed") = false;
    let whole = consumer(&place, None);
    let done = || async {
        let parked = whole.parked().await.expect("it must succeed");
        // Over HTTP one that was killed may have parked something since.
        for one in parked.iter().filter(|one| one.attempts > 0 && !one.released) {
            let _ = whole.retry_parked(one.number).await;
        }
        let seen: BTreeSet<usize> = recording.labels().into_iter().collect();
        seen.len() == events && parked.is_empty()
    };
    let _ = whole.run_until(handler(None), wait_for(done)).await.expect("it must succeed");
    let seen: BTreeSet<usize> = recording.labels().into_iter().collect();
    assert_eq!(seen, place.history().await.iter().map(follow::label).collect(), "{} seed {seed}: nothing missed", place.name);
    recording.assert_order_of_every_tag(&format!("{} seed {seed}", place.name));
    assert!(events > 20, "{}: the writers wrote {events} events", place.name);
    deaths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_nothing_is_missed_and_every_tag_stays_in_order_in_memory() {
    // Mostly they wait, for a point or for a dead one's lease: several histories at a time.
    let deaths = futures::future::join_all((1..=8).map(|seed| killed(place(Memory::new()), 75, seed))).await;
    Deaths::assert_met(&deaths, POINTS, 360);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_points_nothing_is_missed_and_every_tag_stays_in_order_on_the_ledger() {
    let places = follow::places().await.into_iter().skip(1);
    let deaths = futures::future::join_all(places.zip(2..).map(|(place, seed)| killed(place, 25, seed))).await;
    // Each of the points is met in memory, where there are rounds enough for all.
    Deaths::assert_met(&deaths, &[], 30);
}

/// By the clock that the leases themselves wait by, which stands still but for their waiting: so the bound is exact on a busy machine, too.
#[tokio::test(start_paused = true)]
async fn the_dead_is_replaced_within_its_lease() {
    const LONG: Duration = Duration::from_secs(60);
    const ASKED: Duration = Duration::from_millis(100);
    // Places are saved often, or never.
    for (nth, tick) in (0..20u64).flat_map(|nth| [(nth, Duration::from_secs(1)), (nth, 100 * LONG)]) {
        let place = place(Memory::new());
        let instance = || consumer(&place, None).lease(LONG).save_every(1, tick);
        let (one, two, first, second) = (instance(), instance(), Recording::default(), Recording::default());
        place.append(&[("0", &["a"])]).await;
        let stand_by = tokio::sync::Notify::new();
        let life = async {
            wait_until(|| first.len() == 1).await;
            stand_by.notify_one();
            // It dies anywhere between two beats; as long as it lives, nobody takes its place.
            Env::system().sleep(5 * LONG + Duration::from_secs(nth)).await;
            assert_eq!(second.len(), 0);
        };
        let standing_by = async {
            stand_by.notified().await;
            two.run(second.handler()).await
        };
        let death = async {
            select(Box::pin(one.run(first.handler())), Box::pin(life)).await;
            place.append(&[("1", &["a"])]).await;
            let died = tokio::time::Instant::now();
            while second.len() == 0 {
                Env::system().sleep(ASKED).await;
            }
            died.elapsed()
        };
        match select(Box::pin(standing_by), Box::pin(death)).await {
            Either::Left((ended, _)) => panic!("{ended:?}"),
            Either::Right((took, _)) => assert!(took <= LONG, "death {nth}: after {took:?}"),
        }
        assert_eq!(second.labels(), [1]);
    }
}

/// Several instances at once, of which each notes its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_divide_the_work_and_the_dead_is_replaced() {
    for place in follow::places().await {
        let (all, first, second) = (Recording::default(), Recording::default(), Recording::default());
        let handler = |own: &Recording| {
            let (all, own) = (all.clone(), own.clone());
            move |handed: Handed| {
                all.note(&handed);
                own.note(&handed);
                futures::future::ok::<(), String>(())
            }
        };
        // Longer than a busy machine's pauses: nobody loses a lease by accident here.
        let shared = || {
            let first_tag = |event: &Recorded| vec![event.tags[0].to_string()];
            consumer(&place, None).keys(first_tag).partitions(8).lease(Duration::from_millis(800))
        };
        let (one, two) = (shared(), shared());
        let script = async {
            let both_hold = || async {
                let status = one.status().await.expect("it must succeed");
                let holders: Vec<_> = status.iter().flat_map(|s| &s.partitions).filter_map(|p| p.holder).collect();
                let distinct: BTreeSet<_> = holders.iter().collect();
                holders.len() == 8 && distinct.len() == 2 && distinct.iter().all(|d| holders.iter().filter(|h| h == d).count() == 4)
            };
            let two_runs = async {
                wait_for(both_hold).await;
                let (before_one, before_two) = (first.len(), second.len());
                wait_until(|| first.len() > before_one + 10 && second.len() > before_two + 10).await;
            };
            // The second dies; the first takes its partitions.
            select(Box::pin(two.run(handler(&second))), Box::pin(two_runs)).await;
            let alone = || async {
                one.status()
                    .await
                    .expect("it must succeed")
                    .expect("it must succeed")
                    .partitions
                    .iter()
                    .map(|p| p.holder)
                    .collect::<BTreeSet<_>>()
                    .len()
                    == 1
            };
            wait_for(alone).await;
        };
        let done = Arc::new(Mutex::new(0));
        let load = async {
            *done.lock().expect("it must succeed") = place.load(5, script).await;
            let events = *done.lock().expect("it must succeed");
            wait_until(|| all.labels().into_iter().collect::<BTreeSet<_>>().len() == events).await;
        };
        let _ = one.run_until(handler(&first), load).await.expect("it must succeed");
        all.assert_order(&place.name);
    }
}

/// An instance stops in the middle of a save, its lease goes to another, and then it wakes: its save is refused, and it stands by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_instance_that_wakes_after_its_lease_is_fenced() {
    for place in follow::places().await {
        for n in 0..20 {
            place.append(&[(&n.to_string(), &[&format!("s:{}", n % 3)])]).await;
        }
        let (late_seen, seen) = (Recording::default(), Recording::default());
        let fate = Fate::new(Point::BeforeSave(fencepost::CellKind::Lease), 4);
        let late = consumer(&place, Some(&fate));
        let second = consumer(&place, None);
        let script = async {
            fate.struck().await;
            let rest = async {
                wait_until(|| seen.labels().contains(&19)).await;
                let before = second.status().await.expect("it must succeed").expect("it must succeed").partitions[0].clone();
                let handled = late_seen.len();
                fate.wake();
                for n in 20..30 {
                    place.append(&[(&n.to_string(), &[&format!("s:{}", n % 3)])]).await;
                }
                wait_until(|| seen.labels().contains(&29)).await;
                let after = second.status().await.expect("it must succeed").expect("it must succeed").partitions[0].clone();
                assert_eq!(after.holder, before.holder, "{}: the late one took nothing back", place.name);
                // What it had read before may still end; nothing that came later is given to it.
                assert!(late_seen.labels().iter().all(|label| *label < 20), "{}: {handled} then {:?}", place.name, late_seen.labels());
            };
            // Longer than a busy machine's pauses: the late one must not find it silent.
            let _ = second.clone().lease(Duration::from_secs(5)).run_until(seen.handler(), rest).await.expect("it must succeed");
            // It stood by, and goes on where the other has left it.
            place.append(&[("30", &["s:0"])]).await;
            wait_until(|| late_seen.labels().contains(&30)).await;
        };
        // Side by side: while it is stopped, nothing of its own future moves.
        let run = Box::pin(late.run(late_seen.handler()));
        select(run, Box::pin(tokio::time::timeout(follow::PATIENCE, script))).await;
        let everything: BTreeSet<_> = late_seen.labels().into_iter().chain(seen.labels()).collect();
        assert_eq!(everything.len(), 31, "{}", place.name);
        seen.assert_order(&place.name);
    }
}

/// It took over a partition that stands further back, while there is no end to its own work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_taken_over_has_its_turn_beside_the_others() {
    let place = place(Memory::new());
    let (key, other) = (CellKey::new(CellKind::Lease, "mailer", 2).expect("a key"), Uuid::from_u128(7));
    let long = Duration::from_secs(60);
    let lease = Lease::try_take(&place.cells, &key, other, long, &mut Watch::default()).await.expect("takes").expect("free");
    // Both partitions have some of these; then only those of the first come.
    for n in 0..40 {
        place.append(&[(&n.to_string(), &[&format!("s:{n}")])]).await;
    }
    let recording = Recording::default();
    let handler = async |handed: Handed| {
        Env::system().sleep(Duration::from_millis(2)).await;
        recording.note(&handed);
        Ok::<_, String>(())
    };
    let first_tag = |event: &Recorded| vec![event.tags[0].to_string()];
    let mailer = consumer(&place, None).keys(first_tag).partitions(2).concurrency(1).read_ahead(8).lease(Duration::from_millis(200));
    let script = async {
        wait_until(|| recording.len() >= 10).await;
        let mut before = 0;
        while recording.len() > before {
            before = recording.len();
            Env::system().sleep(Duration::from_millis(50)).await;
        }
        assert!(before < 40, "the other half is another's");
        let mine = recording.labels()[0];
        for n in 40..1040 {
            place.append(&[(&n.to_string(), &[&format!("s:{mine}")])]).await;
        }
        wait_until(|| recording.len() > before + 10).await;
        let _ = lease.release(serde_json::Value::Null).await.expect("gives it up");
        wait_until(|| (0..40).all(|n| recording.labels().contains(&n))).await;
        assert!(recording.len() < 1000, "only once the others had nothing left: {}", recording.len());
    };
    let _ = mailer.run_until(handler, script).await.expect("it runs");
}
