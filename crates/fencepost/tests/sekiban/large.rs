//! Writes that fit in no transaction: whole or not at all, wherever their writer dies and whoever looks meanwhile.

use crate::*;

/// A large write that dies between any two of its calls: a reader sees all of it or none, by every tag and in the feed.
#[tokio::test]
async fn a_large_write_that_dies_anywhere_is_seen_whole_or_not_at_all() {
    let mut outcomes = BTreeSet::new();
    for answered in [true, false] {
        for calls in 1.. {
            let bench = Bench::new();
            let between = Faults::new(bench.http(), 1);
            let timeouts = Timeouts { attempts: 1, ..PATIENT };
            let store = open(bench.builder("").timeouts(timeouts).http_client(between.http_client())).await;
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
            if !answered {
                between.script(Rule::on_any().nth(calls).lose_response());
            }
            for later in calls + usize::from(!answered)..calls + 60 {
                between.script(Rule::on_any().nth(later).lose_request());
            }
            let events = (0..70).map(|n| event(&n.to_string(), &["a:1", if n % 2 == 0 { "b:0" } else { "b:1" }]));
            let outcome = store.log().expect("log").append(Append::new(events)).await;
            let survived = between.log().iter().all(|call| call.faults.is_empty());
            drop(store);
            let reader = bench.store("").await;
            let log = reader.log().expect("log");
            // What the index alone shows is a part perhaps; what the feed hands over never is.
            let fed = fed(&reader).await.len();
            assert!(fed == 1 || fed == 71, "{calls}: {fed} of 71 in the feed");
            let even = log.source(&Query::tag("b:0").expect("query"), None).await.expect("source").events.len();
            let seen = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len();
            let read = log.read_all(&Query::tag("b:1").expect("query"), ReadOptions::default()).await.expect("read").len();
            assert!((seen, even, read) == (1, 0, 0) || (seen, even, read) == (71, 35, 35), "{calls}: {seen} {even} {read}");
            match &outcome {
                Ok(_) => assert_eq!(seen, 71, "{calls}"),
                Err(error) if error.recorded_nothing() => assert_eq!(seen, 1, "{calls}: {error}"),
                Err(_) => {}
            }
            outcomes.insert((outcome.is_ok(), seen));
            // The next writer goes on, and everything is as it should be.
            log.append(Append::new([event("after", &["a:1", "b:0"])])).await.expect("after");
            assert_eq!(log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len(), seen + 1);
            // One that died behind its last head is still on the list of those to finish.
            reader.repair(&|_| ()).await.expect("repair");
            let verified = reader.verify(&|_| ()).await.expect("verify");
            assert_eq!(verified.findings, vec![], "{calls}");
            assert!(bench.heads().await.values().all(|(_, _, pending)| !pending), "{calls}");
            if survived {
                break;
            }
        }
    }
    assert_eq!(outcomes, BTreeSet::from([(false, 1), (false, 71), (true, 71)]), "each was met");
}

#[tokio::test]
async fn pieces_that_were_never_published_are_collected_and_their_id_is_as_new() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let env = Env::seeded(1);
    let store = open(bench.builder("").timeouts(QUICK).env(env.clone()).http_client(between.http_client())).await;
    between.script(Rule::on("TransactWriteItems").throttle());
    let id = CommitId(Uuid::from_u128(5));
    let events = || (0..70).map(|n| event(&n.to_string(), &["a:1"])).collect::<Vec<_>>();
    store.log().expect("log").append(Append::new(events()).commit(id)).await.expect_err("throttled");
    between.calm();
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (0, 0), "too young");
    env.advance(Duration::from_secs(120));
    let collected = store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!((collected.sets, collected.chunks), (1, 1));
    let log = store.log().expect("log");
    assert!(log.committed(id).await.expect("asks").value.is_none(), "nothing was recorded");
    assert_eq!(store.sekiban().expect("sekiban").count(None).await.expect("count"), 0);
    // The command is delivered again, under its id.
    let done = log.append(Append::new(events()).commit(id)).await.expect("now it is recorded");
    assert_eq!(log.committed(id).await.expect("asks").value.expect("recorded").positions, done.positions);
    assert_eq!(log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len(), 70);
    assert_eq!(log.append(Append::new(events()).commit(id)).await.expect("once").positions, done.positions);
    assert_eq!(pieces(&bench).await, 0);
}

/// A writer that is about to publish what is collected meanwhile, once and once more: what it publishes is whole, and what was on its way then never lands.
#[tokio::test]
async fn a_writer_whose_pieces_are_collected_stages_them_anew() {
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let (id, query) = (CommitId(Uuid::from_u128(5)), Query::tag("a:1").expect("query"));
    let between = Faults::new(bench.http(), 1);
    let (first, second) = (Gate::new(), Gate::new());
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&first));
    between.script(Rule::on("TransactWriteItems").nth(2).pause_before(&second));
    let slow = open(bench.builder("").timeouts(PATIENT).env(env.clone()).http_client(between.http_client())).await;
    let store = open(bench.builder("").env(env.clone())).await;
    let writer = tokio::spawn(async move { slow.log().expect("log").append(Append::new(seventy("x")).commit(id)).await });
    for gate in [first, second] {
        gate.reached(1).await;
        env.advance(Duration::from_secs(120));
        assert_eq!(store.collect_garbage(Duration::from_secs(60)).await.expect("gc").sets, 1);
        gate.open();
    }
    let done = writer.await.expect("joins").expect("appends");
    let read = store.log().expect("log").source(&query, None).await.expect("source").events;
    assert_eq!(labels(&read), (0..70).map(|n| format!("x{n}")).collect::<Vec<_>>());
    assert_eq!(read.iter().map(|event| event.position).collect::<Vec<_>>(), done.positions);
    assert_eq!((pieces(&bench).await, store.verify(&|_| ()).await.expect("verify").findings), (0, vec![]));
}

/// Who decides anew under an id whose large append was collected may decide on less, or on something else.
#[tokio::test]
async fn a_commit_id_whose_pieces_were_collected_is_free_for_what_is_decided_now() {
    for events in [vec![event("small", &["a:1"])], seventy("y")] {
        let bench = Bench::embedded();
        let env = Env::seeded(1);
        let between = Faults::new(bench.http(), 1);
        let store = open(bench.builder("").timeouts(QUICK).env(env.clone()).http_client(between.http_client())).await;
        let (log, id) = (store.log().expect("log"), CommitId(Uuid::from_u128(5)));
        between.script(Rule::on("TransactWriteItems").throttle());
        log.append(Append::new(seventy("x")).commit(id)).await.expect_err("throttled");
        between.calm();
        env.advance(Duration::from_secs(120));
        store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
        let done = log.append(Append::new(events.clone()).commit(id)).await.expect("the id is free");
        assert_eq!(log.committed(id).await.expect("asks").value.expect("recorded").positions, done.positions);
        assert_eq!(fed(&store).await.len(), events.len());
        let other = log.append(Append::new([event("other", &["a:1"])]).commit(id)).await;
        assert!(matches!(other, Err(Error::Refused(Refused::Reused { .. }))), "{other:?}");
    }
}

fn seventy(label: &str) -> Vec<Event> {
    (0..70).map(|n| event(&format!("{label}{n}"), &["a:1"])).collect()
}

/// A writer that dies as soon as its large append is published, before any row of it is there.
pub(crate) async fn dies_when_published(bench: &Bench, more: &str, env: Option<&Env>, append: Append) {
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_after(&gate));
    let mut builder = bench.builder(more).timeouts(PATIENT).http_client(between.http_client());
    if let Some(env) = env {
        builder = builder.env(env.clone());
    }
    let log = open(builder).await.log().expect("log");
    let writer = tokio::spawn(async move { log.append(append).await });
    gate.reached(1).await;
    writer.abort();
    writer.await.expect_err("it died");
}

async fn pieces(bench: &Bench) -> usize {
    let events = bench.dump("SekibanEvents").await;
    events.iter().filter(|item| item["pk"].as_s().is_ok_and(|pk| pk.contains("#COMMIT#")) && item.contains_key("data")).count()
}

/// Other events under a commit id that is taken: refused, and what was recorded under it is as it was, in rows or not yet, whatever is collected.
#[tokio::test]
async fn a_refused_reuse_of_a_commit_id_touches_nothing_of_what_it_names() {
    for finished in [false, true] {
        let bench = Bench::embedded();
        let env = Env::seeded(1);
        let id = CommitId(Uuid::from_u128(5));
        let store = open(bench.builder("").env(env.clone())).await;
        let log = store.log().expect("log");
        if finished {
            log.append(Append::new(seventy("x")).commit(id)).await.expect("appends");
        } else {
            dies_when_published(&bench, "", Some(&env), Append::new(seventy("x")).commit(id)).await;
        }
        let reused = log.append(Append::new(seventy("y")).commit(id)).await;
        assert!(matches!(reused, Err(Error::Refused(Refused::Reused { .. }))), "{finished}: {reused:?}");
        env.advance(Duration::from_secs(120));
        store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
        let read = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events;
        assert_eq!(labels(&read), (0..70).map(|n| format!("x{n}")).collect::<Vec<_>>(), "{finished}");
        let again = log.append(Append::new(seventy("x")).commit(id)).await.expect("the same was recorded");
        assert_eq!(read.iter().map(|event| event.position).collect::<Vec<_>>(), again.positions);
        assert_eq!(pieces(&bench).await, 0, "{finished}: nothing is left behind");
        assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![], "{finished}");
    }
}

/// Two callers who stage other events under one id at the same time: one is recorded as it was given, and the other is refused.
#[tokio::test]
async fn pieces_of_two_under_one_commit_id_are_not_mixed() {
    let bench = Bench::embedded();
    let env = Env::seeded(1);
    let id = CommitId(Uuid::from_u128(5));
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let slow = open(bench.builder("").timeouts(PATIENT).env(env.clone()).http_client(between.http_client())).await;
    let store = open(bench.builder("").env(env.clone())).await;
    let first = tokio::spawn(async move { slow.log().expect("log").append(Append::new(seventy("x")).commit(id)).await });
    gate.reached(1).await;
    // Its pieces lie there, and it is about to publish them. The second dies before it publishes its own.
    let dying = Faults::new(bench.http(), 1);
    dying.script(Rule::on("TransactWriteItems").throttle());
    let other =
        open(bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).env(env.clone()).http_client(dying.http_client())).await;
    other.log().expect("log").append(Append::new(seventy("y")).commit(id)).await.expect_err("it is throttled");
    gate.open();
    first.await.expect("joins").expect("appends");
    let read = store.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source").events;
    assert_eq!(labels(&read), (0..70).map(|n| format!("x{n}")).collect::<Vec<_>>());
    env.advance(Duration::from_secs(120));
    store.collect_garbage(Duration::from_secs(60)).await.expect("gc");
    assert_eq!(pieces(&bench).await, 0, "what the second staged is collected");
}

/// A large write whose events have no tag, unheard and not in rows yet: written again, it is found and told as it stands.
#[tokio::test]
async fn a_large_untagged_write_in_doubt_is_settled_by_its_repeat() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let builder = bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(between.http_client());
    let sekiban = open(builder).await.sekiban().expect("sekiban");
    let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
    let events: Vec<_> = (0..150).map(|n| (at(n), event(&n.to_string(), &[]).id(Uuid::from_u128(n.into())))).collect();
    between.script(Rule::on("TransactWriteItems").lose_response());
    let told = sekiban.write(&events, WriteOptions::default()).await;
    assert!(matches!(told, Err(Error::InDoubt(_))), "{told:?}");
    between.calm();
    let again = sekiban.write(&events, WriteOptions::default()).await.expect("it is there");
    assert_eq!((again.positions.len(), again.duplicates.len()), (150, 150));
    assert_eq!(sekiban.count(None).await.expect("count"), 150);
}

/// Few events, and more than 4 MB of them, which no packing makes less: staged by their bytes, in several pieces, and whole for whoever reads.
#[tokio::test]
async fn more_than_4_mb_are_staged_in_several_pieces() {
    let bench = Bench::embedded();
    let noise = |seed: u64| {
        let env = Env::seeded(seed);
        let bytes: Vec<u8> = (0..36_500).flat_map(|_| env.below(u64::MAX).to_be_bytes()).collect();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    let bodies: Vec<String> = (0..12).map(noise).collect();
    let events = || bodies.iter().map(|body| event(body, &["a:1"]));
    assert!(bodies.iter().map(String::len).sum::<usize>() > 4 << 20);
    dies_when_published(&bench, "", None, Append::new(events())).await;
    assert!(pieces(&bench).await > 5, "{}", pieces(&bench).await);
    let store = bench.store("").await;
    let read = store.log().expect("log").source(&Query::tag("a:1").expect("query"), None).await.expect("source").events;
    assert!(labels(&read) == bodies, "{} events", read.len());
    assert_eq!(pieces(&bench).await, 0);
    store.log().expect("log").append(Append::new(events())).await.expect("and once more, by a writer that lives");
    assert_eq!(store.sekiban().expect("sekiban").count(None).await.expect("count"), 24);
    assert_eq!(store.verify(&|_| ()).await.expect("verify").findings, vec![]);
}

/// Somebody reads between any two calls of a large write whose writer lives: all of it or none, by every tag and in the feed; and the writer is told
/// that it is recorded, once.
#[tokio::test]
async fn a_large_write_is_seen_whole_or_not_at_all_between_its_calls() {
    for variant in ["plain", "given", "unique"] {
        let mut seen_as = BTreeSet::new();
        // Where ids are given, each event is a call: not before every one of them.
        for calls in (1..16).chain((16..).step_by(5)) {
            let bench = Bench::embedded();
            let between = Faults::new(bench.http(), 1);
            let gate = Gate::new();
            let more = if variant == "given" { "&shards=4" } else { "" };
            let store = open(bench.builder(more).timeouts(PATIENT).http_client(between.http_client())).await;
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
            between.script(Rule::on_any().nth(calls).pause_before(&gate));
            let events: Vec<Event> = (0..36).map(|n| event(&n.to_string(), &["a:1", if n % 2 == 0 { "b:0" } else { "b:1" }])).collect();
            let writer = tokio::spawn(async move {
                let sekiban = store.sekiban().expect("sekiban");
                match variant {
                    "unique" => sekiban.append_batch_if_unique("key", events).await.map(drop),
                    "given" => {
                        let now = Env::system().now() + Duration::from_secs(1);
                        let at = |n: u64| SortableId::threshold(now + Duration::from_micros(n));
                        let given = events.into_iter().zip(0u64..).map(|(event, n)| (at(n), event.id(Uuid::from_u128(n.into()))));
                        let expires = WriteOptions::default().expire_at(now + Duration::from_secs(3600));
                        sekiban.write(&given.collect::<Vec<_>>(), expires).await.map(drop)
                    }
                    _ => store.log().expect("log").append(Append::new(events)).await.map(drop),
                }
            });
            let held = tokio::select! {
                () = gate.reached(1) => true,
                () = async { while !writer.is_finished() { tokio::task::yield_now().await; } } => false,
            };
            let reader = bench.store("").await;
            let log = reader.log().expect("log");
            let fed = fed(&reader).await.len();
            let even = log.source(&Query::tag("b:0").expect("query"), None).await.expect("source").events.len();
            let odd = log.read_all(&Query::tag("b:1").expect("query"), ReadOptions::default().eventual()).await.expect("read").len();
            let seen = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len();
            assert!(fed == 1 || fed == 37, "{variant} {calls}: {fed} of 37 in the feed");
            assert!((seen, even, odd) == (1, 0, 0) || (seen, even, odd) == (37, 18, 18), "{variant} {calls}: {seen} {even} {odd}");
            seen_as.insert((held, seen));
            gate.open();
            writer.await.expect("joins").unwrap_or_else(|error| panic!("{variant} {calls}: {error}"));
            let after = log.source(&Query::tag("a:1").expect("query"), None).await.expect("source").events.len();
            assert_eq!(after, 37, "{variant} {calls}");
            reader.repair(&|_| ()).await.expect("repair");
            assert_eq!(reader.verify(&|_| ()).await.expect("verify").findings, vec![], "{variant} {calls}");
            if !held {
                break;
            }
        }
        assert!(seen_as.contains(&(true, 1)) && seen_as.contains(&(true, 37)), "{variant}: each was met");
    }
}

/// Ids of the caller's are looked for before a large commit is published, and its first is held by the publication; another of them comes to somebody
/// else between the two. It is not written over, and it is told.
#[tokio::test]
async fn an_id_that_somebody_else_takes_meanwhile_is_found_by_verify() {
    let counted = tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let gate = Gate::new();
    let slow = open(bench.builder("").timeouts(PATIENT).http_client(between.http_client())).await.sekiban().expect("sekiban");
    let store = bench.store("").await;
    let given = |n: u64, tag: &str| {
        let at = SortableId::threshold(Env::system().now() + Duration::from_secs(1) + Duration::from_micros(n));
        (at, event(&n.to_string(), &[tag]).id(Uuid::from_u128(u128::from(n) + 1)))
    };
    between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let events: Vec<_> = (0..60).map(|n| given(n, "a:1")).collect();
    let writer = async { slow.write(&events, WriteOptions::default()).await };
    let other = async {
        gate.reached(1).await;
        store.sekiban().expect("sekiban").write(&[given(30, "b:1")], WriteOptions::default()).await.expect("another's");
        gate.open();
    };
    let (written, ()) = futures::join!(writer, other);
    written.expect("recorded");
    assert_eq!(counted.of("fencepost_sekiban_taken_ids_total"), 1);
    let found = store.verify(&|_| ()).await.expect("verify").findings;
    let taken = Uuid::from_u128(31).to_string();
    assert!(found.iter().any(|finding| finding.problem.contains(&taken) && finding.problem.contains("not its own")), "{found:?}");
    let count = store.sekiban().expect("sekiban").count(None).await.expect("count");
    assert_eq!(count, 60, "59 of it, and the other's");
}
