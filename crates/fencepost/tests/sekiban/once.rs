//! Once, and no more: appends under a key and under a commit id, and writes of events that are there, small and large, alone and at once.

use crate::indexed::{now_id, sekiban_writes};
use crate::tap::Tap;
use crate::*;

fn batch(labels: &[&str], tags: &[&str]) -> Vec<Event> {
    labels.iter().map(|label| event(label, tags)).collect()
}

fn many(count: u64, tags: &[&str]) -> Vec<Event> {
    (0..count).map(|n| event(&n.to_string(), tags)).collect()
}

/// Another batch under the key, longer or shorter than the first: told as such, and nothing of it is written.
#[tokio::test]
async fn another_batch_under_a_key_writes_nothing() {
    for tags in [&["a:1"][..], &[]] {
        let bench = Bench::new();
        let sekiban = bench.sekiban("").await;
        let first = sekiban.append_batch_if_unique("k", batch(&["1", "2"], tags)).await.expect("appends");
        assert!(matches!(first, Unique::Appended { .. }), "{first:?}");
        for (other, labels) in
            [("longer", &["1", "2", "3"][..]), ("longer, other", &["x", "y", "z"]), ("shorter", &["1"]), ("other", &["1", "x"])]
        {
            let told = sekiban.append_batch_if_unique("k", batch(labels, tags)).await.expect(other);
            assert!(matches!(told, Unique::KeyReused { .. }), "{other}: {told:?}");
            assert_eq!(sekiban.count(None).await.expect("count"), 2, "{other}");
        }
        let again = sekiban.append_batch_if_unique("k", batch(&["1", "2"], tags)).await.expect("again");
        assert!(matches!(again, Unique::AlreadyCommitted { .. }), "{again:?}");
    }
}

/// The same for a batch that fits in no transaction: repeated, with its answer lost, and with another at the same time.
#[tokio::test]
async fn a_large_batch_under_a_key_is_done_once() {
    for tags in [&["a:1"][..], &[]] {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let one = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await.sekiban().expect("sekiban");
        let other = bench.sekiban("").await;
        let count = if tags.is_empty() { 120 } else { 60 };
        between.script(Rule::on("TransactWriteItems").suffer(Fault::LoseResponse));
        let doubt = one.append_batch_if_unique("lost", many(count, tags)).await;
        assert!(matches!(doubt, Err(Error::InDoubt(_))), "{doubt:?}");
        between.calm();
        for sekiban in [&one, &other] {
            let again = sekiban.append_batch_if_unique("lost", many(count, tags)).await.expect("again");
            assert!(matches!(&again, Unique::AlreadyCommitted { positions, .. } if positions.len() == count as usize), "{again:?}");
        }
        let told = other.append_batch_if_unique("lost", many(count + 1, tags)).await.expect("another");
        assert!(matches!(told, Unique::KeyReused { .. }), "{told:?}");
        assert_eq!(other.count(None).await.expect("count"), count);
        // One is about to publish when the other does.
        let gate = Gate::new();
        between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
        let slow = tokio::spawn({
            let (one, events) = (one.clone(), many(count, tags));
            async move { one.append_batch_if_unique("race", events).await }
        });
        gate.reached(1).await;
        let quick = other.append_batch_if_unique("race", many(count, tags)).await.expect("appends");
        let Unique::Appended { positions, .. } = &quick else { panic!("{quick:?}") };
        gate.open();
        let slow = slow.await.expect("joins").expect("is told");
        assert!(matches!(&slow, Unique::AlreadyCommitted { positions: there, .. } if there == positions), "{slow:?}");
        assert_eq!(other.count(None).await.expect("count"), 2 * count);
        assert_eq!(bench.store("").await.verify(&|_| ()).await.expect("verifies").findings, vec![]);
    }
}

/// Two write the same events, too many for one transaction, at the same time: one of them does, and every tag can be read.
#[tokio::test]
async fn a_large_write_of_events_that_came_meanwhile_is_told_and_tags_stay_readable() {
    for tags in [[&["a:1"][..], &["a:1"]], [&["a:1"], &["b:1"]]] {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let one = open(bench.builder("").timeouts(QUICK).http_client(between.http_client())).await.sekiban().expect("sekiban");
        let other = bench.sekiban("").await;
        let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
        let events = |from: u64, tags: &[&str]| -> Vec<(SortableId, Event)> {
            (0..60).map(|n| (at(from + n), event(&n.to_string(), tags).id(Uuid::from_u128(n.into())))).collect()
        };
        let gate = Gate::new();
        between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
        let slow = tokio::spawn({
            let (one, events) = (one.clone(), events(100, tags[1]));
            async move { one.write(&events, WriteOptions::default()).await }
        });
        gate.reached(1).await;
        other.write(&events(0, tags[0]), WriteOptions::default()).await.expect("writes");
        gate.open();
        // The same events, whose place was said otherwise, are there; on other tags they are others.
        match slow.await.expect("joins") {
            Ok(written) => {
                let places: Vec<_> = written.positions.iter().filter_map(SortableId::of).collect();
                assert_eq!((tags[0] == tags[1], written.duplicates.len(), places[0], places[59]), (true, 60, at(0), at(59)));
            }
            Err(refused) => assert!(tags[0] != tags[1] && matches!(refused, Error::Refused(_)), "{refused:?}"),
        }
        let store = bench.store("").await;
        for tag in ["a:1", "b:1"] {
            let read = store.log().expect("log").source(&Query::tag(tag).expect("query"), None).await.expect("can be read").events;
            assert_eq!(read.len(), if tag == "a:1" { 60 } else { 0 });
        }
        assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, vec![]);
    }
}

/// Under a commit id of the caller's, repeated without a base: as it was recorded, with the condition's token behind it.
#[tokio::test]
async fn a_repeat_under_a_commit_id_has_its_token() {
    for count in [1, 60] {
        let bench = Bench::new();
        let (log, other) = (bench.store("").await.log().expect("log"), bench.store("").await.log().expect("log"));
        let query = Query::tag("a:1").expect("query");
        let token = log.source(&query, None).await.expect("source").token;
        let append = || Append::new(many(count, &["a:1"])).unless(query.clone(), token.clone()).commit(CommitId(Uuid::from_u128(7)));
        let first = log.append(append()).await.expect("appends");
        other.append(Append::new([event("theirs", &["a:1"])])).await.expect("appends");
        let again = other.append(append()).await.expect("it was recorded");
        assert_eq!(again.positions, first.positions);
        for token in [&first.token, &again.token] {
            let token = token.as_ref().expect("a condition has a token");
            assert_eq!(labels(&other.source(&query, Some(token)).await.expect("source").events), ["theirs"], "{count}");
        }
    }
}

/// The published chunking: what was written before a failure is told as in doubt, and a repeat completes it, rows and heads.
#[tokio::test]
async fn a_chunked_write_that_fails_on_the_way_is_in_doubt_and_its_repeat_completes_it() {
    let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
    let wide: Vec<String> = (0..100).map(|n| format!("t:{n}")).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let several: Vec<_> = (0..60).map(|n| (at(n), event(&n.to_string(), &["a:1"]).id(Uuid::from_u128(n.into())))).collect();
    let one = vec![(at(1), event("{}", &wide).id(Uuid::from_u128(1)))];
    for (call, nth, events) in [("TransactWriteItems", 2, several), ("TransactWriteItems", 2, one)] {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), 1);
        let keeps = fencepost::sekiban::Settings::from_json(r#"{"DynamoDb":{"TryRollbackOnFailure":false}}"#).expect("settings");
        let builder = bench.builder("&large=chunked").settings(&keeps).expect("settings").timeouts(Timeouts { attempts: 1, ..PATIENT });
        let store = open(builder.http_client(between.http_client())).await;
        let sekiban = store.sekiban().expect("sekiban");
        between.script(Rule::on(call).nth(nth).throttle());
        let failed = sekiban.write(&events, WriteOptions::default()).await;
        assert!(matches!(&failed, Err(error) if !error.recorded_nothing()), "{call}: {failed:?}");
        between.calm();
        let again = sekiban.write(&events, WriteOptions::default()).await.expect("again");
        assert!(!again.duplicates.is_empty() && again.positions.len() == events.len(), "{call}: {again:?}");
        assert_eq!(store.verify(&|_| ()).await.expect("verifies").findings, vec![], "{call}");
        for tag in events[0].1.tags() {
            let read = sekiban.by_tag_since(tag, None).try_collect::<Vec<_>>().await.expect("by tag");
            assert_eq!(read.len(), events.len(), "{call}");
        }
        // Another event under the id is told.
        let other = vec![(events[0].0, Event::new("T", "another").expect("event").id(events[0].1.given_id().expect("an id")))];
        let wide = other
            .into_iter()
            .map(|(at, event)| (at, wide.iter().fold(event, |event, tag| event.tag(tag).expect("tag"))))
            .collect::<Vec<_>>();
        let told = sekiban.write(&wide, WriteOptions::default()).await;
        assert!(matches!(told, Err(Error::Refused(_))), "{call}: {told:?}");
    }
}

/// A try that landed unheard, and behind it a row that cannot be read: nobody can tell what became of it, and that is what is said.
#[tokio::test]
async fn a_doubt_is_told_whatever_is_met_behind_it() {
    let bench = Bench::new();
    let far = Faults::new(bench.http(), 1);
    let near = Faults::new(far.http_client(), 2);
    let store = open(bench.builder("").timeouts(PATIENT).http_client(near.http_client())).await;
    let log = store.log().expect("log");
    let gate = Gate::new();
    far.script(Rule::on("TransactWriteItems").nth(1).lose_response());
    far.script(Rule::on("TransactWriteItems").nth(2).conflict());
    for n in 3..6 {
        far.script(Rule::on("TransactWriteItems").nth(n).hide_reasons(Keep::Last));
    }
    near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&gate));
    let ours = tokio::spawn(async move { log.append(Append::new([event("1", &["a:1", "b:1"])])).await });
    gate.reached(1).await;
    let broken = [("pk", "SERVICE#default#TAG#a:1"), ("sk", "what is this")];
    bench.put("SekibanTags", broken.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.into()))).into()).await;
    gate.release(1);
    let told = ours.await.expect("joins");
    assert!(matches!(told, Err(Error::InDoubt(_))), "{told:?}");
}

/// A repeat that is not answered is as much in doubt as before, on a stream whose version is asked for first as well.
#[tokio::test]
async fn a_repeat_that_is_not_answered_stays_in_doubt() {
    use fencepost::{Expect, Step, StreamName};
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let store = open(bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(between.http_client())).await;
    let (streams, name) = (store.streams(), StreamName::new("a:1").expect("a name"));
    let step = || Step::new([event("1", &[])]).expect(Expect::Version(0));
    between.script(Rule::on("TransactWriteItems").lose_response());
    let first = streams.append(&name, step()).await;
    let Err(Error::InDoubt(doubt)) = first else { panic!("{first:?}") };
    between.calm();
    for call in ["Query", "GetItem", "BatchGetItem"] {
        between.script(Rule::on(call).throttle());
        let again = streams.append(&name, step().again(doubt.commit, doubt.base.clone())).await;
        assert!(matches!(&again, Err(Error::InDoubt(still)) if still.commit == doubt.commit), "{call}: {again:?}");
        between.calm();
    }
    let settled = streams.append(&name, step().again(doubt.commit, doubt.base.clone())).await.expect("settled");
    assert_eq!((settled.version, settled.token.is_some()), (Some(1), true));
}

/// A try that is stuck on its way, and a conflict with an event of Sekiban's, which moves no head: once that is told, the try never lands.
#[tokio::test]
async fn what_was_told_as_a_conflict_never_lands() {
    use fencepost::{Expect, Step, StreamName};
    let name = StreamName::new("a:1").expect("a name");
    for (before, streams) in [(0, false), (1, false), (0, true), (1, true)] {
        let bench = Bench::new();
        let tap = Tap::on(bench.http());
        let store = open(bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(tap.http_client())).await;
        let other = bench.store("").await;
        for _ in 0..before {
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("appends");
        }
        let query = Query::tag("a:1").expect("query");
        let token = store.log().expect("log").source(&query, None).await.expect("source").token;
        let append = || Append::new([event("mine", &["a:1"])]).unless(query.clone(), token.clone());
        let step = || Step::new([event("mine", &[])]).expect(Expect::Version(before));
        tap.hold("TransactWriteItems");
        let stuck = match streams {
            false => store.log().expect("log").append(append()).await,
            true => store.streams().append(&name, step()).await,
        };
        let Err(Error::InDoubt(doubt)) = stuck else { panic!("{stuck:?}") };
        sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(5), "theirs", &["a:1"]).await;
        let again = match streams {
            false => other.log().expect("log").append(append().again(doubt.commit, doubt.base)).await,
            true => other.streams().append(&name, step().again(doubt.commit, doubt.base)).await,
        };
        assert!(
            matches!(&again, Err(Error::Conflict(conflict)) if labels(&conflict.events) == ["theirs"]),
            "{before} {streams}: {again:?}"
        );
        assert_eq!(tap.let_go().await, 1);
        let there = labels(&other.log().expect("log").source(&query, None).await.expect("source").events);
        assert!(!there.contains(&"mine".to_owned()), "{before} {streams}: {there:?}");
    }
}

/// The same for a write whose places are given, and whose place is taken by an event of Sekiban's.
#[tokio::test]
async fn a_write_that_was_refused_never_lands() {
    let bench = Bench::new();
    let tap = Tap::on(bench.http());
    let builder = bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(tap.http_client());
    let (store, other) = (open(builder).await.sekiban().expect("sekiban"), bench.sekiban("").await);
    let mine = [(now_id(), event("mine", &["a:1"]).id(Uuid::from_u128(1)))];
    tap.hold("TransactWriteItems");
    let stuck = store.write(&mine, WriteOptions::default()).await;
    assert!(matches!(stuck, Err(Error::InDoubt(_))), "{stuck:?}");
    sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(5), "theirs", &["a:1"]).await;
    let refused = other.write(&mine, WriteOptions::default()).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(tap.let_go().await, 1);
    let there: Vec<_> = other.by_tag_since(&tag("a:1"), None).try_collect().await.expect("by tag");
    assert_eq!(labels(&there), ["theirs"]);
}

#[tokio::test]
async fn under_a_key_an_append_is_done_once() {
    let bench = Bench::new();
    let (one, other) = (bench.sekiban("").await, bench.sekiban("").await);
    let order =
        |body: &str, tags: &[&str]| tags.iter().fold(Event::new("T", body.to_owned()).expect("event"), |e, tag| e.tag(tag).expect("tag"));
    let first = one.append_if_unique("order-42", order(r#"{"a":1,"b":2}"#, &["x:1", "y:1"]), None).await.expect("first");
    let Unique::Appended { ids, positions } = first else { panic!("{first:?}") };
    let again = other.append_if_unique("  order-42 ", order(r#"{"b":2,"a":1}"#, &["y:1", "x:1"]), None).await.expect("again");
    assert_eq!(again, Unique::AlreadyCommitted { ids: ids.clone(), positions });
    let reused = other.append_if_unique("order-42", order(r#"{"a":1,"b":3}"#, &["x:1", "y:1"]), None).await.expect("reused");
    assert_eq!(reused, Unique::KeyReused { ids });
    let batch = |second: &str| [order("{}", &["x:1"]), order(second, &["z:1"])];
    let first = one.append_batch_if_unique("order-42", batch("{}")).await.expect("a batch is another thing");
    let Unique::Appended { ids, positions } = first else { panic!("{first:?}") };
    assert_eq!(
        other.append_batch_if_unique("order-42", batch("{}")).await.expect("again"),
        Unique::AlreadyCommitted { ids: ids.clone(), positions }
    );
    assert_eq!(other.append_batch_if_unique("order-42", batch("[]")).await.expect("reused"), Unique::KeyReused { ids });
    assert_eq!(one.count(None).await.expect("count"), 3);
    // Many at once: one appends, the others are told.
    let many = futures::future::join_all((0..8).map(|n| {
        let sekiban = if n % 2 == 0 { &one } else { &other };
        sekiban.append_if_unique("race", order("{}", &["r:1"]), None)
    }))
    .await;
    let appended = many.iter().filter(|outcome| matches!(outcome, Ok(Unique::Appended { .. }))).count();
    let told = many.iter().filter(|outcome| matches!(outcome, Ok(Unique::AlreadyCommitted { .. }))).count();
    assert_eq!((appended, told), (1, 7), "{many:?}");
}

/// Permanent errors are told before the first chunk: never as a doubt that no repeat can end. Chunks are small enough for a transaction.
#[tokio::test]
async fn what_a_chunked_write_can_never_do_is_refused_before_anything_is_written() {
    let bench = Bench::new();
    let sekiban = bench.sekiban("&large=chunked").await;
    let at = |n: u64| id(&format!("0639217927851234{n:03}00144769402"));
    let good = |n: u64| (at(n), event(&n.to_string(), &["a:1"]).id(Uuid::from_u128(n.into())));
    for bad in [b"\x7b\xff\xfe\x7d".to_vec(), vec![b'x'; 410 * 1024]] {
        let mut events: Vec<_> = (0..60).map(good).collect();
        events.push((at(60), Event::new("T", bad).expect("event").id(Uuid::from_u128(60))));
        let refused = sekiban.write(&events, WriteOptions::default()).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        assert_eq!(sekiban.count(None).await.expect("count"), 0);
    }
    let large: Vec<_> =
        (0..12).map(|n| (at(n), Event::new("T", vec![b'a'; 390 * 1024]).expect("event").id(Uuid::from_u128(n.into())))).collect();
    assert_eq!(sekiban.write(&large, WriteOptions::default()).await.expect("several transactions").positions.len(), 12);
}

/// An event too wide for a transaction whose put is not answered may be there: that is told.
#[tokio::test]
async fn a_wide_event_whose_put_is_not_answered_is_in_doubt() {
    let wide: Vec<String> = (0..100).map(|n| format!("t:{n}")).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let builder = bench.builder("&large=chunked").timeouts(Timeouts { attempts: 1, ..PATIENT });
    let sekiban = open(builder.http_client(between.http_client())).await.sekiban().expect("sekiban");
    for call in ["BatchWriteItem", "PutItem"] {
        between.script(Rule::on(call).nth(1).lose_response());
    }
    let events = [(id("063921792785123456000144769402"), event("{}", &wide).id(Uuid::from_u128(1)))];
    let told = sekiban.write(&events, WriteOptions::default()).await;
    assert!(matches!(told, Err(Error::InDoubt(_))), "{told:?}");
    between.calm();
    let again = sekiban.write(&events, WriteOptions::default()).await.expect("again");
    assert_eq!(again.duplicates.len(), 1);
}

/// An event that was there before stands where it stood, in the answer and in the answer to a repeat.
#[tokio::test]
async fn a_repeat_under_a_commit_id_tells_where_its_events_stand() {
    let bench = Bench::new();
    let log = bench.store("").await.log().expect("log");
    let known = || event("known", &["a:1"]).id(Uuid::from_u128(1));
    let before = log.append(Append::new([known()])).await.expect("appends");
    let append = || Append::new([event("first", &["a:1"]), known(), event("last", &["b:1"])]).commit(CommitId(Uuid::from_u128(7)));
    let first = log.append(append()).await.expect("appends");
    assert_eq!(first.positions[1], before.positions[0]);
    assert_eq!(log.append(append()).await.expect("again").positions, first.positions);
    let told = log.committed(CommitId(Uuid::from_u128(7))).await.expect("asks").value.expect("recorded");
    assert_eq!(told.positions, first.positions);
}

/// A first call that is stuck on its way, and its repeat by the commit id alone, which meets an event of Sekiban's: told as a conflict, it never lands.
#[tokio::test]
async fn what_was_told_as_a_conflict_to_a_repeat_by_id_never_lands() {
    use fencepost::{Expect, Step, StreamName};
    let name = StreamName::new("a:1").expect("a name");
    for streams in [false, true] {
        let bench = Bench::new();
        let tap = Tap::on(bench.http());
        let store = open(bench.builder("").timeouts(Timeouts { attempts: 1, ..PATIENT }).http_client(tap.http_client())).await;
        let other = bench.store("").await;
        let query = Query::tag("a:1").expect("query");
        let token = store.log().expect("log").source(&query, None).await.expect("source").token;
        let commit = CommitId(Uuid::from_u128(9));
        let append = || Append::new([event("mine", &["a:1"])]).unless(query.clone(), token.clone()).commit(commit);
        let step = || Step::new([event("mine", &[])]).expect(Expect::Version(0)).commit(commit);
        tap.hold("TransactWriteItems");
        let stuck = match streams {
            false => store.log().expect("log").append(append()).await,
            true => store.streams().append(&name, step()).await,
        };
        assert!(matches!(stuck, Err(Error::InDoubt(_))), "{stuck:?}");
        sekiban_writes(&bench, "default", now_id(), &Uuid::from_u128(5), "theirs", &["a:1"]).await;
        let again = match streams {
            false => other.log().expect("log").append(append()).await,
            true => other.streams().append(&name, step()).await,
        };
        assert!(matches!(&again, Err(Error::Conflict(_))), "{streams}: {again:?}");
        assert_eq!(tap.let_go().await, 1);
        let there = labels(&other.log().expect("log").source(&query, None).await.expect("source").events);
        assert!(!there.contains(&"mine".to_owned()), "{streams}: {there:?}");
    }
}
