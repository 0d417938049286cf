//! The feed over the index of all events: what comes late comes, whatever the window holds.

use crate::*;

/// W6: an event whose id is older than what was handed over comes late, and comes.
#[tokio::test]
async fn late_arrivals_are_delivered_and_counted() {
    let counted = tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::new();
    let store = bench.store("").await;
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let log = store.log().expect("log");
    let early = Env::system().now();
    log.append(Append::new([event("1", &["a:1"])])).await.expect("append");
    let (first, checkpoint) = next_event(&mut feed).await;
    assert_eq!(&first.data[..], b"1");
    let late = (SortableId::threshold(early), event("late", &["b:1"]).id(Uuid::from_u128(3)));
    bench.sekiban("").await.write(&[late], WriteOptions::default()).await.expect("a slow writer's");
    assert_eq!(&next_event(&mut feed).await.0.data[..], b"late");
    assert_eq!(counted.of("fencepost_sekiban_late_events_total"), 1);
    let mut again = store.feed().expect("feed").subscribe(From::Checkpoint(checkpoint.to_string().parse().expect("text")), Query::all());
    assert_eq!(&next_event(&mut again).await.0.data[..], b"late");
}

/// The index shows the second event of a tag and not yet the first: the tag's rows tell, and the feed keeps their order, each once.
#[tokio::test]
async fn what_the_index_does_not_show_yet_is_asked_of_the_tags() {
    let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
    let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
    let builder = Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").http_client(lag.http_client());
    let store = open(builder).await;
    let log = store.log().expect("log");
    for label in ["1", "2", "3"] {
        log.append(Append::new([event(label, &["a:1"])])).await.expect("append");
    }
    assert_eq!(
        labels(&log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events),
        ["1", "2", "3"],
        "decisions are strong"
    );
    assert!(
        store.sekiban().expect("sekiban").all_since(None, None).try_collect::<Vec<_>>().await.expect("all").is_empty(),
        "the index lags"
    );
    let newest = lag.pending().into_iter().rfind(|pending| pending.table == "SekibanEvents").expect("an event waits");
    assert!(lag.apply(newest.id).await);
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let mut met = Vec::new();
    for _ in 0..3 {
        met.push(next_event(&mut feed).await.0);
    }
    assert_eq!(labels(&met), ["1", "2", "3"]);
    lag.apply_all().await;
    log.append(Append::new([event("4", &["a:1"])])).await.expect("append");
    lag.apply_all().await;
    let (next, _) = next_event(&mut feed).await;
    assert_eq!(&next.data[..], b"4", "none a second time");
}

async fn fill(log: &std::sync::Arc<dyn fencepost::EventLog>, events: usize) {
    for _ in 0..events / 50 {
        log.append(Append::new((0..50).map(|n| event(&n.to_string(), &[])))).await.expect("append");
    }
}

/// More young events than any list holds, and below them a large commit whose rows are not there yet, and an event that comes late: both come.
#[tokio::test]
async fn whatever_is_below_comes_however_many_events_the_window_holds() {
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let store = open(bench.builder("").env(env.clone())).await;
    let log = store.log().expect("log");
    let early = env.now();
    env.advance(Duration::from_millis(100));
    let large = (0..70).map(|n| event(&format!("large{n}"), &["a:1"]));
    crate::large::dies_when_published(&bench, "", Some(&env), Append::new(large)).await;
    env.advance(Duration::from_millis(100));
    fill(&log, 2_200).await;
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let (mut met, mut last) = (Vec::new(), None);
    for _ in 0..2_000 {
        let (event, checkpoint) = next_event(&mut feed).await;
        met.push(event.id);
        last = Some(checkpoint);
    }
    let late = (SortableId::threshold(early), event("late", &["b:1"]).id(Uuid::from_u128(3)));
    bench.sekiban("").await.write(&[late], WriteOptions::default()).await.expect("a slow writer's");
    env.advance(Duration::from_secs(23));
    for mut feed in [feed, store.feed().expect("feed").subscribe(From::Checkpoint(last.expect("some")), Query::all())] {
        let mut met: BTreeSet<Uuid> = met.iter().copied().collect();
        let mut labelled = BTreeSet::new();
        for _ in 0..271 {
            let (event, _) = next_event(&mut feed).await;
            assert!(met.insert(event.id), "each once");
            labelled.insert(String::from_utf8_lossy(&event.data).into_owned());
        }
        assert!(labelled.contains("late") && (0..70).all(|n| labelled.contains(&format!("large{n}"))), "{labelled:?}");
    }
}

/// A try that is not answered for a part of the window is given up: the next one stands at a new place, so that no reader has passed it.
#[tokio::test]
async fn a_try_that_takes_long_gets_a_new_place() {
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let store = open(bench.builder("&safe_window=1000").timeouts(PATIENT).env(env.clone()).http_client(between.http_client())).await;
    let log = store.log().expect("log");
    let writer = tokio::spawn(async move { log.append(Append::new([event("1", &["a:1"])])).await });
    gate.reached(1).await;
    env.advance(Duration::from_secs(6));
    let done = writer.await.expect("joins").expect("appends");
    assert_eq!(SortableId::of(&done.positions[0]).expect("id").timestamp(), env.now());
}

/// A process that stands still between taking a place and sending: it lands behind whoever has passed the place, and says so.
#[tokio::test]
async fn a_commit_that_lands_later_than_the_window_is_counted() {
    let counted = tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    let store = open(bench.builder("").timeouts(PATIENT).env(env.clone()).http_client(between.http_client())).await;
    between.script(Rule::on("PutItem").nth(1).pause_before(&gate));
    let log = store.log().expect("log");
    let writer = async { log.append(Append::new([event("1", &[])])).await };
    let stop = async {
        gate.reached(1).await;
        env.advance(Duration::from_secs(30));
        gate.open();
    };
    let (done, ()) = futures::join!(writer, stop);
    done.expect("appends");
    assert_eq!(counted.of("fencepost_sekiban_landed_late_total"), 1);
    log.append(Append::new([event("2", &[])])).await.expect("appends");
    assert_eq!(counted.of("fencepost_sekiban_landed_late_total"), 1, "in time");
}
