//! Rings of the index: whoever is rung takes the lease, or hands the ring over to somebody who lives. Killed, frozen or out of time anywhere,
//! a ring that was answered well is in the index, and rings that were not come again: when none is left, nothing is missing.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::testing::{Faults, Gate, Reshard, Rule};
use fencepost::{Append, CommitId, Engine, Env, Event, Ring, Rung, Served, Store};
use futures::future::{Either, join_all, select};
use serde_json::json;
use support::{Ground, open};

/// Beats come every 20 ms.
const LEASE: Duration = Duration::from_millis(200);
/// Longer than a busy machine's pauses: nobody who lives loses it by accident.
const LONG: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(20);

/// An instance of the function: a process of its own, as far as the tables can tell.
#[derive(Clone)]
struct Instance {
    store: Store,
    faults: Faults,
}

impl Instance {
    async fn on(engine: &Engine, seed: u64) -> Instance {
        let faults = Faults::new(engine.http_client(), seed);
        let store = open(Ground::Engine(engine.clone()).builder("feed=streams").http_client(faults.http_client())).await;
        Instance { store, faults }
    }

    async fn answer(&self, ring: &Ring) -> Rung {
        self.store.index().expect("an index").answer(ring, &|_| ()).await.expect("answers")
    }

    async fn rung(&self) -> Rung {
        self.rung_for(LEASE).await
    }

    async fn rung_for(&self, lease: Duration) -> Rung {
        self.answer(&Ring::within(SOON).lease(lease)).await
    }

    /// Rung in the background.
    fn ringing(&self) -> tokio::task::JoinHandle<Rung> {
        self.ringing_for(LEASE)
    }

    fn ringing_for(&self, lease: Duration) -> tokio::task::JoinHandle<Rung> {
        let instance = self.clone();
        tokio::spawn(async move { instance.rung_for(lease).await })
    }

    async fn append(&self, tag: &str) {
        self.store.log().expect("a log").append(Append::new([event(tag)])).await.expect("appends");
    }

    async fn append_as(&self, tag: &str, commit: CommitId) {
        self.store.log().expect("a log").append(Append::new([event(tag)]).commit(commit)).await.expect("appends");
    }

    fn requests(&self) -> usize {
        self.faults.log().len()
    }

    /// How many commits are in the index, each once and in order.
    async fn indexed(&self) -> u64 {
        let verified = self.store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
        assert!(verified.findings.iter().all(|finding| finding.problem.contains("not in the index")), "{verified:?}");
        verified.indexed
    }
}

fn event(tag: &str) -> Event {
    Event::new("A", "{}").and_then(|event| event.tag(tag)).expect("an event")
}

async fn two() -> (Engine, Instance, Instance) {
    let engine = Engine::memory().expect("an engine");
    let (one, two) = (Instance::on(&engine, 1).await, Instance::on(&engine, 2).await);
    (engine, one, two)
}

#[tokio::test]
async fn a_ring_indexes_all_and_one_for_nothing_costs_two_units_of_each_kind() {
    let (_engine, one, _) = two().await;
    for tag in ["a", "b", "a"] {
        one.append(tag).await;
    }
    let rung = one.rung().await;
    assert_eq!((rung.served, rung.looks, rung.fenced, rung.progress.commits), (Served::Indexed, 1, 0, 3), "{rung:?}");
    assert_eq!(one.indexed().await, 3);
    let before = one.requests();
    // With beats six seconds apart there is none in it.
    let rung = one.answer(&Ring::within(SOON).lease(20 * LONG)).await;
    assert_eq!((rung.served, rung.progress.commits, rung.progress.epochs), (Served::Indexed, 0, 0), "{rung:?}");
    // The lease read, taken and given up; the stream's name, the last epoch, the shards, and of the one shard a cursor and three pages.
    assert_eq!((one.requests() - before, rung.progress.units.requests), (10, 10), "{rung:?}");
    assert_eq!((rung.progress.units.read, rung.progress.units.write), (2.0, 2.0), "{rung:?}");
}

#[tokio::test]
async fn a_ring_that_names_its_commit_costs_one_read_more() {
    let (_engine, one, _) = two().await;
    let commit = CommitId(one.store.env().new_id());
    one.append_as("a", commit).await;
    assert_eq!(one.rung().await.served, Served::Indexed);
    let rung = one.answer(&Ring::within(SOON).lease(20 * LONG).about(&image(commit))).await;
    let units = rung.progress.units;
    assert_eq!((rung.served, rung.looks, units.requests, units.read, units.write), (Served::Indexed, 1, 11, 3.0, 2.0), "{rung:?}");
    // A name of nothing is waited for in vain, and blocks nobody.
    let rung = one.answer(&Ring::within(SOON).about(&image(CommitId(one.store.env().new_id())))).await;
    assert_eq!((rung.served, rung.looks), (Served::Indexed, 3), "{rung:?}");
}

/// The image of a record of this commit.
fn image(commit: CommitId) -> serde_json::Value {
    use base64::Engine as _;
    let id = base64::engine::general_purpose::STANDARD.encode(commit.0.as_bytes());
    json!({ "p": { "S": "t/main/a" }, "v": { "N": "1" }, "s": { "N": "1" }, "n": { "N": "1" }, "c": { "B": id } })
}

#[tokio::test]
async fn a_record_that_rang_is_waited_for_though_the_stream_does_not_show_it_yet() {
    let (_engine, one, two) = two().await;
    one.append("b").await;
    let commit = CommitId(two.store.env().new_id());
    let ring = Ring::within(SOON).lease(LEASE).about(&image(commit));
    let late = async {
        Env::system().sleep(Duration::from_millis(300)).await;
        two.append_as("a", commit).await;
    };
    let (rung, ()) = futures::join!(one.answer(&ring), late);
    assert_eq!((rung.served, rung.progress.commits), (Served::Indexed, 2), "{rung:?}");
}

/// A commit over two shards: one record shows at once, and the other lies behind many empty pages.
#[tokio::test]
async fn a_commit_that_waits_for_a_record_behind_empty_pages_is_waited_for() {
    // In some of these the two records lie in different shards.
    let mut apart = 0;
    for seed in 0..6 {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), seed);
        reshard.calm().await;
        reshard.empty_pages(1, 50).await;
        let store = open(Ground::Engine(engine).builder("feed=streams").http_client(reshard.http_client())).await;
        let commit = CommitId(store.env().new_id());
        let events = [event("a"), event("b")];
        store.log().expect("a log").append(Append::new(events).commit(commit)).await.expect("appends");
        let ring = Ring::within(SOON).lease(LEASE).about(&image(commit));
        let rung = store.index().expect("an index").answer(&ring, &|_| ()).await.expect("answers");
        assert_eq!((rung.served, rung.progress.commits, rung.progress.waiting), (Served::Indexed, 1, 0), "seed {seed}: {rung:?}");
        let [one, two, three] = reshard.records().await;
        apart += u64::from(two > 0 && one + three > 0);
    }
    assert!(apart > 0, "the records were never apart");
}

#[tokio::test]
async fn what_came_after_the_holders_last_look_is_indexed_by_the_ring_that_was_handed_over() {
    let (_engine, holder, other) = two().await;
    holder.append("a").await;
    holder.rung().await;
    // The holder has read the last page, which was empty, and does not know it yet; it speaks meanwhile.
    let gate = Gate::new();
    holder.faults.script(Rule::on("GetRecords").nth(3).pause_after(&gate));
    let holding = holder.ringing_for(LONG);
    gate.reached(1).await;
    other.append("a").await;
    let rung = other.rung_for(LONG).await;
    assert_eq!((rung.served, rung.looks), (Served::HandedOver, 0), "{rung:?}");
    assert_eq!(other.indexed().await, 1, "and nobody else rings");
    gate.open();
    let rung = holding.await.expect("joins");
    assert_eq!((rung.served, rung.looks, rung.progress.commits), (Served::Indexed, 2, 1), "{rung:?}");
    assert_eq!(other.indexed().await, 2);
}

#[tokio::test]
async fn a_ring_between_the_holders_last_look_and_its_leaving_is_not_lost() {
    let (_engine, holder, other) = two().await;
    holder.append("a").await;
    holder.rung().await;
    // Taking the lease is its first write, giving it up the second.
    let gate = Gate::new();
    holder.faults.script(Rule::on("PutItem").holding("fencepost.index").nth(2).pause_before(&gate));
    let holding = holder.ringing();
    gate.reached(1).await;
    other.append("a").await;
    let ringing = other.ringing();
    // The mark is there.
    while other.faults.calls("PutItem") < 2 {
        Env::system().sleep(Duration::from_millis(1)).await;
    }
    Env::system().sleep(Duration::from_millis(20)).await;
    gate.open();
    let (held, rung) = (holding.await.expect("joins"), ringing.await.expect("joins"));
    assert_eq!(held.served, Served::Indexed, "{held:?}");
    assert_eq!(held.progress.commits + rung.progress.commits, 1, "{held:?} {rung:?}");
    assert_eq!(other.indexed().await, 2);
}

#[tokio::test]
async fn a_mark_on_the_lease_of_the_dead_is_heard_by_nobody_so_the_ringer_takes_over() {
    let (_engine, dead, other) = two().await;
    dead.append("a").await;
    let gate = Gate::new();
    dead.faults.script(Rule::on("GetRecords").nth(1).pause_before(&gate));
    let dying = Box::pin(dead.rung());
    let Either::Right(((), dying)) = select(dying, Box::pin(gate.reached(1))).await else { panic!("it was to die") };
    drop(dying);
    let began = Instant::now();
    let rung = other.rung().await;
    assert_eq!((rung.served, rung.progress.commits), (Served::Indexed, 1), "{rung:?}");
    assert!(began.elapsed() >= LEASE, "silence was watched for {:?}", began.elapsed());
    assert_eq!(other.indexed().await, 1);
}

#[tokio::test]
async fn one_that_was_frozen_is_fenced_when_it_wakes() {
    let (_engine, frozen, other) = two().await;
    frozen.append("a").await;
    let (reading, speaking) = (Gate::new(), Gate::new());
    frozen.faults.script(Rule::on("GetRecords").nth(1).pause_after(&reading));
    frozen.faults.script(Rule::on("PutItem").holding("fencepost.index").nth(2).pause_before(&speaking));
    let holding = frozen.ringing();
    speaking.reached(1).await;
    let rung = other.rung().await;
    assert_eq!((rung.served, rung.progress.commits), (Served::Indexed, 1), "{rung:?}");
    reading.open();
    speaking.open();
    let woken = holding.await.expect("joins");
    assert_eq!((woken.served, woken.fenced, woken.progress.commits), (Served::Indexed, 1, 0), "{woken:?}");
    assert_eq!(other.indexed().await, 1);
}

#[tokio::test]
async fn it_stops_before_its_time_is_up_and_gives_the_lease_up() {
    let (_engine, slow, other) = two().await;
    slow.append("a").await;
    let gate = Gate::new();
    slow.faults.script(Rule::on("GetRecords").nth(1).pause_before(&gate));
    let length = Duration::from_secs(60);
    // Most of the margin is for a busy machine: a quarter of it is all there is for giving the lease up.
    let (within, margin) = (Duration::from_millis(4_000), Duration::from_millis(3_600));
    let began = Instant::now();
    let rung = slow.answer(&Ring::within(within).margin(margin).lease(length)).await;
    assert_eq!(rung.served, Served::RingAgain, "{rung:?}");
    assert!(began.elapsed() < within, "{:?}", began.elapsed());
    // Nobody waits for its minute.
    let rung = other.answer(&Ring::within(SOON).lease(length)).await;
    assert_eq!((rung.served, rung.progress.commits), (Served::Indexed, 1), "{rung:?}");
    // So it is where a write of the lease itself hangs.
    other.append("a").await;
    slow.faults.calm().script(Rule::on("PutItem").holding("fencepost.index").nth(1).pause_after(&gate));
    let rung = slow.answer(&Ring::within(within).margin(margin).lease(length)).await;
    assert_eq!((rung.served, rung.looks), (Served::RingAgain, 0), "{rung:?}");
    assert_eq!(other.answer(&Ring::within(SOON).lease(length)).await.progress.commits, 1);
    // With no time at all nothing is asked of anybody.
    let before = slow.requests();
    assert_eq!(slow.answer(&Ring::within(margin).margin(margin)).await.served, Served::RingAgain);
    assert_eq!(slow.requests(), before);
}

#[tokio::test]
async fn an_error_gives_the_lease_up_too() {
    let (_engine, one, two) = two().await;
    one.append("a").await;
    one.faults.script(Rule::on("DescribeStream").times(100).throttle());
    let length = Duration::from_secs(60);
    let failed = one.store.index().expect("an index").answer(&Ring::within(SOON).lease(length), &|_| ()).await;
    assert!(failed.expect_err("throttled").is_retryable());
    assert_eq!(two.answer(&Ring::within(SOON).lease(length)).await.progress.commits, 1);
}

/// The time is up while a call hangs, before it reached the engine or after.
async fn out_of_time(call: usize, delivered: bool) -> Option<usize> {
    let engine = Engine::memory().expect("an engine");
    let (one, other) = (Instance::on(&engine, 1).await, Instance::on(&engine, 2).await);
    one.append("a").await;
    let (gate, rule) = (Gate::new(), Rule::on_any().nth(call));
    one.faults.script(if delivered { rule.pause_after(&gate) } else { rule.pause_before(&gate) });
    // All cases run at once: time enough for each to come to its call, and to give the lease up, on a busy machine too.
    let (within, began) = (Duration::from_secs(6), Instant::now());
    let rung = one.answer(&Ring::within(within).margin(Duration::from_millis(4_500)).lease(LEASE)).await;
    let (what, took) = (format!("call {call}, delivered {delivered}: {rung:?}"), began.elapsed());
    assert!(took < within, "{what} after {took:?}");
    if rung.served == Served::Indexed {
        // There are no more calls than that.
        return None;
    }
    assert_eq!(rung.served, Served::RingAgain, "{what}");
    let again = other.answer(&Ring::within(SOON).lease(LEASE)).await;
    assert_eq!(again.served, Served::Indexed, "{what}");
    assert_eq!(other.indexed().await, 1, "{what}");
    Some(call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_kept_at_whatever_call_it_strikes_and_the_next_ring_finishes_the_work() {
    let cases = (1..=16).flat_map(|call| [(call, false), (call, true)]);
    let struck = join_all(cases.map(|(call, delivered)| tokio::spawn(out_of_time(call, delivered)))).await;
    let struck: BTreeSet<usize> = struck.into_iter().filter_map(|case| case.expect("holds")).collect();
    // Taking the lease, finding the stream and its end, pages, an epoch, more pages, leaving.
    assert_eq!(struck.first(), Some(&1));
    assert!(struck.len() >= 12 && struck.len() == *struck.last().expect("some"), "{struck:?}");
}

/// What an event source does: a ring for every append, again and again until it is answered well.
async fn storm(seed: u64, rounds: u64) -> Tally {
    let engine = Engine::memory().expect("an engine");
    let writer = Instance::on(&engine, seed).await;
    let instances = join_all((1..=3).map(|n| Instance::on(&engine, seed + n))).await;
    let chance = Env::seeded(seed);
    let (mut pending, mut commits, mut tally) = (0, 0, Tally::default());
    for round in 0.. {
        // What is not served is caught up with now and then, so that its end can be looked at.
        let more = if round < rounds && pending < 3 { chance.below(3) } else { 0 };
        let writing = async {
            for _ in 0..more {
                writer.append(["a", "b", "c"][usize::try_from(chance.below(3)).expect("small")]).await;
            }
        };
        let ringing = pending.min(1 + usize::try_from(chance.below(3)).expect("small"));
        let rings = instances[..ringing].iter().map(|instance| struck(instance, &chance));
        let (ends, ()) = futures::join!(join_all(rings), writing);
        for end in ends {
            tally.count(end);
            // Only these two are taken for served.
            pending -= usize::from(matches!(end, Some(Served::Indexed | Served::HandedOver)));
        }
        pending += usize::try_from(more).expect("small");
        commits += more;
        if pending == 0 {
            tally.checked += 1;
            assert_eq!(writer.indexed().await, commits, "seed {seed}, round {round}: a ring was lost");
            if round >= rounds {
                return tally;
            }
        }
    }
    unreachable!("the loop ends by itself")
}

#[derive(Debug, Default)]
struct Tally {
    killed: u32,
    again: u32,
    handed_over: u32,
    indexed: u32,
    checked: u32,
}

impl Tally {
    fn count(&mut self, end: Option<Served>) {
        *match end {
            None => &mut self.killed,
            Some(Served::RingAgain) => &mut self.again,
            Some(Served::HandedOver) => &mut self.handed_over,
            Some(Served::Indexed) => &mut self.indexed,
        } += 1;
    }
}

/// A ring that may be killed at a call, before it or after it, or whose time may be short; none: killed.
async fn struck(instance: &Instance, chance: &Env) -> Option<Served> {
    let length = Duration::from_millis(60);
    let (fate, call) = (chance.below(5), 1 + usize::try_from(chance.below(14)).expect("small"));
    let within = if fate == 3 { Duration::from_millis(10 + chance.below(30)) } else { SOON };
    let ring = Ring::within(within).margin(Duration::from_millis(10)).lease(length);
    let gate = Gate::new();
    match fate {
        1 => instance.faults.script(Rule::on_any().nth(call).pause_before(&gate)),
        2 => instance.faults.script(Rule::on_any().nth(call).pause_after(&gate)),
        _ => &instance.faults,
    };
    let end = match select(Box::pin(instance.answer(&ring)), Box::pin(gate.reached(1))).await {
        Either::Left((rung, _)) => Some(rung.served),
        Either::Right(((), killed)) => {
            drop(killed);
            None
        }
    };
    instance.faults.calm();
    end
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_and_deaths_at_every_call_lose_no_ring() {
    let tallies = join_all((0..4).map(|seed| tokio::spawn(storm(10 * seed, 100)))).await;
    let mut all = Tally::default();
    for tally in tallies {
        let Tally { killed, again, handed_over, indexed, checked } = tally.expect("joins");
        all.killed += killed;
        all.again += again;
        all.handed_over += handed_over;
        all.indexed += indexed;
        all.checked += checked;
    }
    println!("{all:?}");
    assert!(all.killed > 100 && all.again > 30 && all.handed_over > 10 && all.indexed > 50 && all.checked > 20, "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_are_rung_at_once_one_works_and_the_others_go() {
    let engine = Engine::memory().expect("an engine");
    let instances = Arc::new(join_all((0..6).map(|n| Instance::on(&engine, n))).await);
    for n in 0..40 {
        instances[0].append(["a", "b", "c"][n % 3]).await;
    }
    let rungs = join_all(instances.iter().map(|instance| instance.ringing_for(LONG))).await;
    let rungs: Vec<Rung> = rungs.into_iter().map(|rung| rung.expect("joins")).collect();
    assert_eq!(rungs.iter().map(|rung| rung.progress.commits).sum::<u64>(), 40, "{rungs:?}");
    assert!(rungs.iter().all(|rung| rung.served != Served::RingAgain), "{rungs:?}");
    assert_eq!(rungs.iter().map(|rung| rung.progress.races_lost).sum::<u64>(), 0, "never two at once: {rungs:?}");
    assert_eq!(instances[0].indexed().await, 40);
}
