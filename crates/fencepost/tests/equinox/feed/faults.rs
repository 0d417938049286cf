//! The indexer under faults: killed between any two calls, answers lost, requests doubled.

use super::*;

/// Seeded: writers, two indexers over shards that split, killed before or after any call.
#[tokio::test]
async fn indexers_that_are_killed_between_any_two_calls_miss_nothing_and_repeat_nothing() {
    const CALLS: [&str; 7] = ["GetRecords", "GetShardIterator", "GetItem", "Query", "PutItem", "UpdateItem", "any call"];
    let mut struck = BTreeSet::new();
    for seed in 0..4 {
        let engine = Engine::memory().expect("an engine");
        let reshard = Reshard::new(engine.http_client(), seed);
        let faults = Faults::new(reshard.http_client(), seed);
        let url = "memory:?layout=equinox&table=orders&tip_events=4&epoch_bytes=600&partitions=2";
        let store = |http| async { Store::builder(url).expect("a good URL").http_client(http).open().await.expect("opens") };
        let (writer, other) = (store(engine.http_client()).await, store(reshard.http_client()).await);
        let (chance, mut events) = (Env::seeded(seed), 0);
        for round in 0..24 {
            for _ in 0..chance.below(4) {
                let count = 1 + usize::try_from(chance.below(3)).expect("small");
                put(&writer, &format!("Cart-{}", chance.below(6)), &["A", "B", "C"][..count]).await;
                events += count;
            }
            let pick = |bound: usize| usize::try_from(chance.below(bound as u64)).expect("small");
            let (operation, after) = (CALLS[pick(CALLS.len())], pick(2) == 1);
            let gate = Gate::new();
            let call = if operation == "any call" { Rule::on_any() } else { Rule::on(operation) }
                .nth(1 + pick(if operation == "any call" { 30 } else { 2 }));
            faults.script(if after { call.pause_after(&gate) } else { call.pause_before(&gate) });
            // Every time another process.
            let mortal = store(faults.http_client());
            let mortal = tokio::select! { store = mortal => store, () = gate.reached(1) => { faults.calm(); continue; } };
            let (index, second) = (mortal.index().expect("an index"), other.index().expect("an index"));
            let options = quickly().until_caught_up();
            tokio::select! {
                ran = async { if round % 3 == 0 { futures::join!(index.run(&options, &|_| ()), second.run(&options, &|_| ())).0 } else { index.run(&options, &|_| ()).await } } => { ran.expect("runs"); }
                () = gate.reached(1) => { struck.insert((operation, after)); }
            }
            faults.calm();
        }
        reshard.calm().await;
        for _ in 0..3 {
            catch_up(&other).await;
        }
        audit(&writer, events).await;
        assert_eq!(named(&engine).await, events, "seed {seed}: each once");
    }
    assert!(struck.len() >= 10, "{struck:?}");
}

#[tokio::test]
async fn lost_answers_and_duplicates_of_requests_leave_the_index_whole() {
    for seed in 0..4 {
        let engine = Engine::memory().expect("an engine");
        let faults = Faults::new(engine.http_client(), seed);
        let url = "memory:?layout=equinox&table=orders&epoch_bytes=500";
        let writer = Store::builder(url).expect("a good URL").http_client(engine.http_client()).open().await.expect("opens");
        let indexer = Store::builder(url).expect("a good URL").http_client(faults.http_client()).open().await.expect("opens");
        faults.random(fencepost::testing::Chances {
            lose_response: 0.1,
            deliver_twice: 0.1,
            throttle: 0.05,
            conflict: 0.05,
            ..Default::default()
        });
        for n in 0..30 {
            put(&writer, &format!("Cart-{}", n % 4), &["A"]).await;
            if n % 3 == 0 {
                let _ = indexer.index().expect("an index").run(&quickly().until_caught_up(), &|_| ()).await;
            }
        }
        faults.calm();
        catch_up(&indexer).await;
        audit(&writer, 30).await;
        assert_eq!(named(&engine).await, 30, "seed {seed}: each once");
    }
}
