//! An event with more tags than a transaction holds, under `large=chunked`: tag by tag, and each tag as safe against our other writers as by one transaction.

use crate::*;

const TAGS: usize = 100;

fn wide(label: &str) -> Event {
    let tags: Vec<String> = (0..TAGS).map(|n| format!("t:{n}")).collect();
    event(label, &tags.iter().map(String::as_str).collect::<Vec<_>>()).id(Uuid::from_u128(1))
}

async fn chunked(bench: &Bench, between: &Faults, settings: &str) -> Sekiban {
    let settings = fencepost::sekiban::Settings::from_json(settings).expect("settings");
    let builder = bench.builder("&large=chunked").settings(&settings).expect("settings");
    let timeouts = Timeouts { attempts: 1, ..PATIENT };
    open(builder.timeouts(timeouts).http_client(between.http_client())).await.sekiban().expect("sekiban")
}

/// Whoever stands behind the last event of a tag would never see one that is put before it.
#[tokio::test]
async fn a_place_that_others_stand_behind_is_refused_and_nothing_is_written() {
    let bench = Bench::embedded();
    let sekiban = chunked(&bench, &Faults::new(bench.http(), 1), "{}").await;
    let before = crate::indexed::now_id();
    let log = bench.store("").await.log().expect("log");
    log.append(Append::new([event("there", &["t:70"])])).await.expect("append");
    let refused = sekiban.write(&[(before, wide("wide"))], WriteOptions::default()).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Malformed { what: "sortable unique id", .. }))), "{refused:?}");
    assert_eq!((bench.dump("SekibanEvents").await.len(), bench.dump("SekibanTags").await.len()), (1, 2), "nothing was written");
}

/// A decision that has looked, and is about to land when a wide event comes, whichever of its calls it has made by then: one sees the other.
#[tokio::test]
async fn a_decision_does_not_land_behind_a_wide_event_that_it_has_not_seen() {
    let mut outcomes = BTreeSet::new();
    for call in ["PutItem", "BatchWriteItem", "UpdateItem", "TransactWriteItems"] {
        for nth in [1, 2] {
            let bench = Bench::embedded();
            let (mine, theirs) = (Faults::new(bench.http(), 1), Faults::new(bench.http(), 2));
            let (looked, held) = (Gate::new(), Gate::new());
            let store = open(bench.builder("").timeouts(PATIENT).http_client(mine.http_client())).await;
            let sekiban = chunked(&bench, &theirs, "{}").await;
            let (log, query) = (store.log().expect("log"), Query::tag("t:0").expect("query"));
            let token = log.source(&query, None).await.expect("source").token;
            let at = crate::indexed::now_id();
            mine.script(Rule::on("TransactWriteItems").nth(1).pause_before(&looked));
            let append = Append::new([event("mine", &["t:0"])]).unless(query.clone(), token);
            let decision = tokio::spawn(async move { log.append(append).await });
            looked.reached(1).await;
            theirs.script(Rule::on(call).nth(nth).pause_before(&held));
            let writer = tokio::spawn(async move { sekiban.write(&[(at, wide("wide"))], WriteOptions::default()).await });
            while !writer.is_finished() && tokio::time::timeout(Duration::from_millis(5), held.reached(1)).await.is_err() {}
            looked.open();
            let decided = decision.await.expect("joins");
            held.open();
            let written = writer.await.expect("joins");
            let there = store.log().expect("log").source(&query, None).await.expect("each tag is readable").events;
            match (&decided, &written) {
                (Ok(_), Err(Error::Refused(_))) => assert_eq!(labels(&there), ["mine"], "{call} {nth}"),
                (Err(Error::Conflict(_)), Ok(_)) => assert_eq!(labels(&there), ["wide"], "{call} {nth}"),
                other => panic!("{call} {nth}: {other:?} {:?}", labels(&there)),
            }
            outcomes.insert(decided.is_ok());
            assert_eq!(bench.store("").await.verify(&|_| ()).await.expect("verify").findings, vec![], "{call} {nth}");
        }
    }
    assert_eq!(outcomes.len(), 2, "each was met");
}

/// Two at once under one id, with other bodies: the second is refused, and writes over nothing.
#[tokio::test]
async fn two_wide_events_under_one_id_do_not_write_over_each_other() {
    let bench = Bench::embedded();
    let between = Faults::new(bench.http(), 1);
    let (slow, other) = (chunked(&bench, &between, "{}").await, chunked(&bench, &Faults::new(bench.http(), 2), "{}").await);
    let gate = Gate::new();
    for call in ["PutItem", "BatchWriteItem"] {
        between.script(Rule::on(call).nth(1).pause_before(&gate));
    }
    let at = crate::indexed::now_id();
    let first = tokio::spawn(async move { slow.write(&[(at, wide("first"))], WriteOptions::default()).await });
    gate.reached(1).await;
    other.write(&[(at, wide("second"))], WriteOptions::default()).await.expect("writes");
    gate.open();
    let refused = first.await.expect("joins");
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let there = other.event(&Uuid::from_u128(1)).await.expect("reads").expect("there");
    assert_eq!(&there.data[..], b"second");
}

/// Whatever of it fails: every tag is readable, what is told as not recorded is gone, and a repeat completes the rest.
#[tokio::test]
async fn a_wide_event_that_fails_on_the_way_leaves_every_tag_readable() {
    for settings in ["{}", r#"{"DynamoDb":{"TryRollbackOnFailure":false}}"#] {
        for (call, nth) in [("PutItem", 1), ("TransactWriteItems", 1), ("TransactWriteItems", 2)] {
            let bench = Bench::embedded();
            let between = Faults::new(bench.http(), 1);
            let sekiban = chunked(&bench, &between, settings).await;
            between.script(Rule::on(call).nth(nth).throttle());
            let at = crate::indexed::now_id();
            let failed = sekiban.write(&[(at, wide("wide"))], WriteOptions::default()).await.expect_err("throttled");
            between.calm();
            let left = bench.dump("SekibanEvents").await.len();
            assert_eq!(failed.recorded_nothing(), left == 0, "{settings} {call} {nth}: {failed}");
            for n in [0, TAGS / 2, TAGS - 1] {
                let tag = tag(&format!("t:{n}"));
                sekiban.by_tag_since(&tag, None).try_collect::<Vec<_>>().await.expect("readable");
            }
            let again = sekiban.write(&[(at, wide("wide"))], WriteOptions::default()).await.expect("again");
            assert_eq!((again.duplicates.len(), again.tags.len()), (left, TAGS), "{settings} {call} {nth}");
            assert!(again.tags.iter().all(|tag| tag.version == 1), "{settings} {call} {nth}: {again:?}");
            assert_eq!(bench.store("").await.verify(&|_| ()).await.expect("verify").findings, vec![], "{settings} {call} {nth}");
        }
    }
}
