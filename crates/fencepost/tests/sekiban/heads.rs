//! Heads: what a decision read holds in the store, beside rows that Sekiban writes without them, at what cost.

use crate::*;

#[tokio::test]
async fn a_payload_that_is_no_text_is_refused_and_so_is_a_place_behind_which_others_stand() {
    let bench = Bench::new();
    let sekiban = bench.sekiban("").await;
    let event = |n: u128| Event::new("T", "{}").and_then(|e| e.tag("a:1")).expect("event").id(Uuid::from_u128(n));
    let mangled = Event::new("T", b"\x7b\xff\xfe\x7d".to_vec()).expect("event").id(Uuid::from_u128(9));
    let at = |n: u64| id(&format!("063921792785{n:07}00144769402"));
    let refused = sekiban.write(&[(at(1), mangled)], WriteOptions::default()).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "event body", .. }))), "{refused:?}");
    sekiban.write(&[(at(5), event(1))], WriteOptions::default()).await.expect("writes");
    let behind = sekiban.write(&[(at(4), event(2))], WriteOptions::default()).await;
    assert!(matches!(behind, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{behind:?}");
    let other = sekiban.write(&[(at(6), event(1).meta(Metadata::default()))], WriteOptions::default()).await.expect("a duplicate");
    assert_eq!(other.duplicates, [Uuid::from_u128(1)]);
    assert_eq!(sekiban.count(None).await.expect("count"), 1);
}

/// 3(1+T) for the event and its rows, transactions and indexes included, and 2 for each head; a second head costs no more.
#[tokio::test]
async fn an_event_costs_what_it_costs_sekiban_and_two_units_for_each_head() {
    let bench = Bench::embedded();
    let log = bench.store("").await.log().expect("log");
    for (tags, write) in [(&[][..], 2.0), (&["a:1"], 6.0 + 2.0), (&["a:1", "b:1"], 9.0 + 4.0), (&["a:1", "b:1", "c:1"], 12.0 + 6.0)] {
        log.append(Append::new([event("{}", tags)])).await.expect("first");
        let done = log.append(Append::new([event("{}", tags)])).await.expect("second");
        assert_eq!(done.units.write, write, "{tags:?}");
        // The last row of each tag is looked at: Sekiban may have written.
        assert_eq!((done.units.read, done.units.requests), (tags.len() as f64, 1 + tags.len() as u64), "{tags:?}");
    }
}

/// Rows that Sekiban wrote without a head count: a decision that did not see them conflicts, and versions go on from them.
#[tokio::test]
async fn rows_without_heads_are_taken_into_account() {
    let counted = crate::tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let golden = golden("04");
    let student = "Student:0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11";
    let bench = Bench::new();
    let store = bench.store("").await;
    let log = store.log().expect("log");
    let query = Query::tag(student).expect("query");
    let empty = log.source(&query, None).await.expect("source").token;
    bench.load(&golden).await;
    let conflict = log.append(Append::new([event("mine", &[student])]).unless(query.clone(), &empty)).await;
    let Err(Error::Conflict(conflict)) = conflict else { panic!("{conflict:?}") };
    assert_eq!(conflict.events.len(), 2);
    let done =
        log.append(Append::new([event("mine", &[student])]).unless(query.clone(), conflict.token.expect("token"))).await.expect("appends");
    assert!(counted.of("fencepost_sekiban_rows_without_head_total") >= 2, "two rows of Sekiban's were met");
    assert_eq!(labels(&log.source(&query, None).await.expect("source").events)[2..], ["mine"]);
    let heads = bench.heads().await;
    let head = &heads[&format!("SERVICE#default#HEAD#{student}")];
    assert_eq!((head.1.as_str(), head.2), ("3", false), "two rows without a head, and ours");
    // Once more behind a head: it counts too, and is found by verify.
    let mut row = item(&items(&golden, "SekibanTags")[0]);
    let late = SortableId::of(&done.last().expect("position")).expect("id");
    let after = SortableId::threshold(late.timestamp() + Duration::from_secs(1)).to_string();
    let foreign = Uuid::from_u128(77).to_string();
    let text = |text: String| AttributeValue::S(text);
    row.insert("pk".into(), text(format!("SERVICE#default#TAG#{student}")));
    row.insert("sk".into(), text(format!("{after}#{foreign}")));
    row.extend([
        ("sortableUniqueId".into(), text(after.clone())),
        ("eventId".into(), text(foreign.clone())),
        ("tagString".into(), text(student.into())),
    ]);
    let mut theirs = item(&items(&golden, "SekibanEvents")[0]);
    theirs.extend([("pk".into(), text(format!("SERVICE#default#EVENT#{foreign}"))), ("sk".into(), text(format!("EVENT#{foreign}")))]);
    theirs.extend([("sortableUniqueId".into(), text(after)), ("eventId".into(), text(foreign))]);
    bench.put("SekibanEvents", theirs).await;
    bench.put("SekibanTags", row).await;
    let found = store.verify(&|_| ()).await.expect("verify").findings;
    assert!(found.iter().any(|finding| finding.problem.contains("stand above it")), "{found:?}");
    let conflict = log.append(Append::new([event("mine", &[student])]).unless(query.clone(), done.token.expect("token"))).await;
    assert!(matches!(&conflict, Err(Error::Conflict(conflict)) if conflict.events.len() == 1), "{conflict:?}");
    log.append(Append::new([event("last", &[student])])).await.expect("appends behind it");
    assert_eq!(bench.heads().await[&format!("SERVICE#default#HEAD#{student}")].1, "5");
    assert_eq!(labels(&log.source(&query, None).await.expect("source").events).last().map(String::as_str), Some("last"));
}

/// Many writers deciding at random under random faults: every commit holds against the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_under_random_faults() {
    for seed in 1..=4 {
        let bench = Bench::new();
        let between = Faults::new(bench.http(), seed);
        let mut handles: Vec<std::sync::Arc<dyn fencepost::EventLog>> = Vec::new();
        for _ in 0..2 {
            let store = open(bench.builder("").timeouts(Timeouts { attempts: 12, ..QUICK }).http_client(between.http_client())).await;
            handles.push(store.log().expect("log"));
        }
        let chances = Chances {
            throttle: 0.02,
            internal_error: 0.02,
            lose_request: 0.02,
            lose_response: 0.04,
            time_out: 0.02,
            truncate: 0.01,
            deliver_twice: 0.03,
            hang: 0.003,
            delay: 0.05,
            conflict: 0.03,
            in_progress: 0.01,
            token_mismatch: 0.01,
            hide_reasons: 0.1,
        };
        between.random(chances);
        let options = Oracle { seed, writers: 8, rounds: 8, all: false, types_only: false, ..Oracle::default() };
        let report = oracle::run(&handles, options).await;
        between.calm();
        let report = report.expect("holds");
        assert!(report.conditional > 10 && report.conflicts > 0, "{report:?}");
        let verified = bench.store("").await.verify(&|_| ()).await.expect("verify");
        assert_eq!(verified.findings, vec![]);
    }
}

/// W2: a tag that the decision read and does not write is held as well: whoever writes it between the look and the transaction wins.
#[tokio::test]
async fn a_tag_that_was_only_read_is_held_too() {
    let bench = Bench::new();
    let between = Faults::new(bench.http(), 1);
    let store = open(bench.builder("").http_client(between.http_client())).await;
    let (log, other) = (store.log().expect("log"), bench.store("").await.log().expect("log"));
    for written in [&["read:1"][..], &["written:1"]] {
        let query = Query::tag("read:1").expect("query").or(Query::tag("written:1").expect("query"));
        let token = log.source(&query, None).await.expect("source").token;
        let gate = Gate::new();
        between.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
        let append = tokio::spawn({
            let (log, query) = (log.clone(), query.clone());
            async move { log.append(Append::new([event("mine", &["written:1"])]).unless(query, token)).await }
        });
        gate.reached(1).await;
        other.append(Append::new([event("theirs", written)])).await.expect("another's, meanwhile");
        gate.open();
        let outcome = append.await.expect("ends");
        assert!(matches!(&outcome, Err(Error::Conflict(conflict)) if labels(&conflict.events) == ["theirs"]), "{written:?}: {outcome:?}");
        between.calm();
    }
}

/// A place before 1970 has no position: it is refused before anything is written.
#[tokio::test]
async fn a_place_before_1970_is_refused_at_the_door() {
    let wide: Vec<String> = (0..100).map(|n| format!("t:{n}")).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    for (more, tags) in [("", &["a:1"][..]), ("&large=chunked", &["a:1"]), ("&large=chunked", &wide)] {
        let bench = Bench::new();
        let sekiban = bench.sekiban(more).await;
        for at in [SortableId::MIN, id("062135596799999999900000000000")] {
            let refused = sekiban.write(&[(at, event("{}", tags).id(Uuid::from_u128(1)))], WriteOptions::default()).await;
            assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{refused:?}");
            if more.is_empty() {
                let refused = sekiban.append_if_unique("k", event("{}", tags), Some(at)).await;
                assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{refused:?}");
            }
        }
        assert_eq!((bench.dump("SekibanEvents").await.len(), bench.dump("SekibanTags").await.len()), (0, 0), "nothing was written");
    }
}

/// A tag with many rows: what an append that landed unheard, a version that does not hold, and a tag that is only checked cost does not grow with it.
#[tokio::test]
async fn a_long_tag_is_not_read_again_by_every_append() {
    use fencepost::{Expect, Step, StreamName};
    let bench = Bench::embedded();
    let few = fencepost::sekiban::Settings::from_json(r#"{"DynamoDb":{"QueryPageSize":10}}"#).expect("settings");
    let far = Faults::new(bench.http(), 1);
    let tap = crate::tap::Tap::on(far.http_client());
    let store = open(bench.builder("").settings(&few).expect("settings").timeouts(PATIENT).http_client(tap.http_client())).await;
    let (log, streams, name) = (store.log().expect("log"), store.streams(), StreamName::new("a:1").expect("name"));
    for _ in 0..10 {
        log.append(Append::new((0..30).map(|n| event(&n.to_string(), &["a:1"])))).await.expect("append");
    }
    tap.take();
    // Its answer is lost, and the repeat of it has conflicted.
    far.script(Rule::on("TransactWriteItems").nth(1).lose_response());
    far.script(Rule::on("TransactWriteItems").nth(2).token_mismatch());
    let landed = streams.append(&name, Step::new([event("unheard", &[])])).await.expect("it landed");
    assert_eq!(landed.version, Some(301));
    let asked = tap.count("Query");
    assert!(asked < 6, "{asked} queries to settle it");
    far.calm();
    let conflict = streams.append(&name, Step::new([event("never", &[])]).expect(Expect::Version(299))).await;
    let Err(Error::Conflict(conflict)) = conflict else { panic!("{conflict:?}") };
    assert_eq!(labels(&conflict.events), ["29", "unheard"]);
    assert_eq!(conflict.events.iter().map(|event| event.version).collect::<Vec<_>>(), [Some(300), Some(301)]);
    let asked = tap.count("Query");
    assert!(asked < 6, "{asked} queries to tell the conflict");
    // Rows of Sekiban's on a tag that is only read.
    for n in 0..40u128 {
        crate::indexed::sekiban_writes(&bench, "default", crate::indexed::now_id(), &Uuid::from_u128(n), "theirs", &["r:1"]).await;
    }
    let query = Query::tag("r:1").expect("query");
    let token = log.source(&query, None).await.expect("source").token;
    tap.take();
    log.append(Append::new([event("1", &["w:1"])]).unless(query, token)).await.expect("holds");
    let counted = tap.take().into_iter().filter(|call| call.request["Select"] == "COUNT").count();
    assert_eq!(counted, 0, "a tag that is not written needs no count");
}

/// The last row that a token stands behind has expired and is gone: nothing is new, and a decision that appends nothing holds.
#[tokio::test]
async fn a_token_whose_last_row_has_expired_is_unchanged_until_something_comes() {
    let bench = Bench::new();
    let store = bench.store("").await;
    let (log, sekiban) = (store.log().expect("log"), store.sekiban().expect("sekiban"));
    let past = Env::system().now() - Duration::from_secs(60);
    let at = |n: u64| SortableId::threshold(past + Duration::from_micros(n));
    for n in 1..=2u64 {
        let given = event(&n.to_string(), &["a:1"]).id(Uuid::from_u128(n.into()));
        sekiban.write(&[(at(n), given)], WriteOptions::default().expire_at(past)).await.expect("write");
    }
    log.append(Append::new([event("b", &["b:1"])])).await.expect("append");
    for query in [Query::tag("a:1").expect("query"), Query::tag("a:1").expect("query").or(Query::tag("b:1").expect("query"))] {
        let token = log.source(&query, None).await.expect("source").token;
        assert!(log.unchanged(&token).await.expect("asks").value);
    }
    let query = Query::tag("a:1").expect("query").or(Query::tag("b:1").expect("query"));
    let token = log.source(&query, None).await.expect("source").token;
    for n in [2, 1] {
        crate::versions::expire(&bench, at(n), &Uuid::from_u128(n.into()), "a:1").await;
        assert!(log.unchanged(&token).await.expect("asks").value, "{n}: nothing came");
    }
    log.append(Append::new([event("3", &["a:1"])])).await.expect("append");
    assert!(!log.unchanged(&token).await.expect("asks").value, "something came");
}

/// One id from the future would put every later event of every process behind it: such a place is refused.
#[tokio::test]
async fn a_place_in_the_future_is_refused_at_the_door() {
    for more in ["", "&large=chunked", "&feed=streams"] {
        let bench = Bench::embedded();
        let sekiban = bench.sekiban(more).await;
        for at in [SortableId::MAX, SortableId::threshold(Env::system().now() + Duration::from_secs(60))] {
            let refused = sekiban.write(&[(at, event("{}", &["a:1"]).id(Uuid::from_u128(1)))], WriteOptions::default()).await;
            assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{more}: {refused:?}");
            let refused = sekiban.append_if_unique("k", event("{}", &["a:1"]), Some(at)).await;
            assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{more}: {refused:?}");
        }
        assert_eq!(bench.dump("SekibanEvents").await.len(), 0, "{more}");
        let soon = (SortableId::threshold(Env::system().now() + Duration::from_secs(2)), event("{}", &["a:1"]).id(Uuid::from_u128(1)));
        sekiban.write(&[soon], WriteOptions::default()).await.expect("clocks differ a little");
    }
}

/// An id from the future that somebody else wrote: what has to stand behind it is counted, so that it is seen.
#[tokio::test]
async fn events_that_stand_in_the_future_are_counted() {
    let counted = crate::tap::Counted::default();
    let _here = metrics::set_default_local_recorder(&counted);
    let bench = Bench::new();
    let log = bench.store("").await.log().expect("log");
    log.append(Append::new([event("now", &["a:1"])])).await.expect("append");
    assert_eq!(counted.of("fencepost_sekiban_ids_ahead_total"), 0);
    let ahead = SortableId::threshold(Env::system().now() + Duration::from_secs(3600));
    crate::indexed::sekiban_writes(&bench, "default", ahead, &Uuid::from_u128(7), "theirs", &["a:1"]).await;
    log.append(Append::new([event("behind", &["a:1"]), event("it", &["a:1"])])).await.expect("append");
    assert_eq!(counted.of("fencepost_sekiban_ids_ahead_total"), 2);
}
