//! Answers that were lost, and others who write meanwhile, the same words too: an append is told from another's by its time, and where the caller
//! gave the time by the commit's id; a year later as well. Engines here forget request tokens at once.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use fencepost::testing::{Faults, Gate, Rule};
use fencepost::{
    Base, CommitId, Engine, Env, Error, Event, Expect, LoadOptions, Metadata, Recorded, Refused, Step, Store, StreamStore, Timeouts,
};

use super::support::open;
use super::{BOTH, Item, V5, bare_sdk, blob, event, first, name, names, number, put, scan};

const WRITE: &str = "TransactWriteItems";
const STRICT: &str = "&strict=true";

/// One stream with one event, a writer behind a connector, and others without.
struct Scene {
    engine: Engine,
    faults: Faults,
    env: Env,
    layout: String,
    writer: Arc<dyn StreamStore>,
}

impl Scene {
    async fn new(layout: &str, more: &str) -> Scene {
        let engine = Engine::memory().expect("an engine");
        let (faults, env) = (Faults::new(engine.http_client(), 1), Env::seeded(1));
        let patient = Timeouts { attempt: Duration::from_secs(10), attempts: 2, ..Timeouts::default() };
        let builder = Store::builder(&format!("memory:?{layout}{more}&table=orders")).expect("a URL").timeouts(patient);
        let writer = open(builder.env(env.clone()).http_client(faults.http_client())).await.streams();
        writer.append(&name("user-a"), first([event("A", "0")])).await.expect("warm");
        // The side table is there: its making is not the matter here.
        writer.append(&name("user-b"), first([event("A", "0")]).commit(CommitId::of_key("warm"))).await.expect("warm");
        Scene { engine, faults, env, layout: layout.into(), writer }
    }

    /// Another handle; with `STRICT` it writes what the peer would.
    async fn other(&self, more: &str) -> Arc<dyn StreamStore> {
        let url = format!("memory:?{}{more}&table=orders", self.layout);
        open(Store::builder(&url).expect("a URL").env(self.env.clone()).http_client(self.engine.http_client())).await.streams()
    }

    async fn events(&self) -> Vec<Recorded> {
        self.other("").await.load(&name("user-a"), LoadOptions::default()).await.expect("loads").events
    }

    fn client(&self) -> Client {
        bare_sdk::client(self.engine.http_client())
    }

    /// The writer knows where the stream ends: what is sent first could land.
    async fn look(&self) {
        self.writer.load(&name("user-a"), LoadOptions::default()).await.expect("loads");
    }

    /// Appends; the first sending is lost as the rule says, and before the second the others have theirs.
    async fn between(&self, lost: Rule, step: Step, others: impl Future<Output = ()>) -> fencepost::Result<fencepost::Committed> {
        let gate = Gate::new();
        self.look().await;
        self.faults.script(lost).script(Rule::on(WRITE).nth(2).pause_before(&gate));
        let meanwhile = async {
            gate.reached(1).await;
            others.await;
            gate.open();
        };
        let stream = name("user-a");
        let (done, ()) = tokio::join!(self.writer.append(&stream, step), meanwhile);
        self.faults.calm();
        done
    }

    /// Appends, and is never answered.
    async fn doubt(&self, lost: Rule, step: Step) -> (CommitId, Base) {
        self.look().await;
        self.faults.script(lost);
        let answer = self.writer.append(&name("user-a"), step).await;
        self.faults.calm();
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{}: {answer:?}", self.layout) };
        (doubt.commit, doubt.base)
    }
}

/// The same words every time, as a tick has them.
fn ticks(count: usize) -> Vec<Event> {
    (0..count).map(|_| event("Ticked", "{}")).collect()
}

/// The same, at a time that everybody gives.
fn timed(count: usize) -> Vec<Event> {
    let occurred = "2026-01-02T03:04:05.678901234Z".parse().ok();
    ticks(count).into_iter().map(|event| event.meta(Metadata { occurred, ..Metadata::default() })).collect()
}

async fn append(streams: &Arc<dyn StreamStore>, events: Vec<Event>) {
    streams.append(&name("user-a"), Step::new(events)).await.expect("another's");
}

/// It had landed: others behind it change nothing, be they the peer or writers of ours.
#[tokio::test]
async fn what_landed_is_found_whoever_wrote_behind_it() {
    for layout in BOTH {
        for (ours, theirs, count) in [("", "", 2), ("", STRICT, 2), (STRICT, STRICT, 1), (STRICT, "", 1)] {
            for expect in [Expect::Version(1), Expect::Any] {
                let told = format!("{layout} {ours} {theirs} {expect:?}");
                let scene = Scene::new(layout, ours).await;
                let other = scene.other(theirs).await;
                let behind = async {
                    for _ in 0..3 {
                        append(&other, ticks(1)).await;
                    }
                };
                let step = Step::new(ticks(count)).expect(expect);
                let done = scene.between(Rule::on(WRITE).nth(1).lose_response(), step, behind).await.expect(&told);
                let events = scene.events().await;
                assert_eq!((done.version, events.len()), (Some(1 + count as u64), 1 + count + 3), "{told}");
                assert_eq!(done.positions, events[1..=count].iter().map(|event| event.position).collect::<Vec<_>>(), "{told}");
            }
        }
    }
}

/// It had not, and another said the same where it was tried: a conflict, or behind the other; never the other's success.
#[tokio::test]
async fn another_that_says_the_same_is_not_taken_for_ours() {
    for layout in BOTH {
        for (ours, theirs, count) in [("", "", 2), ("", STRICT, 1), (STRICT, STRICT, 1), (STRICT, "", 1)] {
            let told = format!("{layout} {ours} {theirs}");
            let scene = Scene::new(layout, ours).await;
            let other = scene.other(theirs).await;
            let lost = || Rule::on(WRITE).nth(1).lose_request();
            let late = scene.between(lost(), Step::new(ticks(count)).expect(Expect::Version(1)), append(&other, ticks(count))).await;
            assert!(late.is_err_and(|error| error.is_conflict()), "{told}");
            let last = 1 + 2 * count as u64;
            let done = scene.between(lost(), Step::new(ticks(count)), append(&other, ticks(count))).await.expect(&told);
            assert_eq!((done.version, scene.events().await.len() as u64), (Some(last + count as u64), last + count as u64), "{told}");
        }
    }
}

/// From its base a year later, under a hundred others: found where it landed, appended once where it had not, and then found.
#[tokio::test]
async fn a_base_tells_a_year_later() {
    for layout in BOTH {
        for (ours, theirs) in [("", STRICT), (STRICT, "")] {
            for landed in [true, false] {
                let told = format!("{layout} {ours} {landed}");
                let scene = Scene::new(layout, ours).await;
                let rule = Rule::on(WRITE);
                let rule = if landed { rule.lose_response() } else { rule.lose_request() };
                let (commit, base) = scene.doubt(rule, Step::new(ticks(1))).await;
                let (began, other) = (scene.env.now(), scene.other(theirs).await);
                for _ in 0..100 {
                    append(&other, ticks(1)).await;
                }
                scene.env.advance(Duration::from_secs(366 * 86_400));
                let late = scene.other(ours).await;
                let again = async || late.append(&name("user-a"), Step::new(ticks(1)).again(commit, base.clone())).await.expect(&told);
                let (done, twice) = (again().await, again().await);
                assert_eq!((done.version, &done.positions), (twice.version, &twice.positions), "{told}");
                let events = scene.events().await;
                assert_eq!((done.version, events.len()), (Some(if landed { 2 } else { 102 }), 102), "{told}");
                let ours = events.iter().find(|event| event.version == done.version).expect("an event");
                assert_eq!(ours.recorded_at.as_microsecond() / 1_000, began.as_microsecond() / 1_000, "{told}: when it was first tried");
            }
        }
    }
}

/// The base is the first one's whichever try landed, also where the first repeat's answer is lost as well.
#[tokio::test]
async fn a_repeat_whose_answer_is_lost_is_found_from_the_first_base() {
    for layout in BOTH {
        let scene = Scene::new(layout, "").await;
        let (commit, base) = scene.doubt(Rule::on(WRITE).lose_request(), Step::new(ticks(2))).await;
        append(&scene.other(STRICT).await, ticks(1)).await;
        scene.env.advance(Duration::from_secs(60));
        let (again, _) = scene.doubt(Rule::on(WRITE).lose_response(), Step::new(ticks(2)).again(commit, base.clone())).await;
        assert_eq!((again, scene.events().await.len()), (commit, 4), "{layout}: it landed");
        scene.env.advance(Duration::from_secs(60));
        let other = scene.other("").await;
        let done = other.append(&name("user-a"), Step::new(ticks(2)).again(commit, base)).await.expect("found");
        assert_eq!((done.version, scene.events().await.len()), (Some(4), 4), "{layout}");
    }
}

/// An event of a year ago, first seen today: in the feed once, where its stream has it.
#[tokio::test]
async fn a_repeat_of_long_ago_is_in_the_feed_where_its_version_is() {
    for layout in BOTH {
        let engine = Engine::memory().expect("an engine");
        let faults = Faults::new(engine.http_client(), 1);
        let once = Timeouts { attempts: 1, ..Timeouts::default() };
        let url = format!("memory:?{layout}");
        let store = open(Store::builder(&url).expect("a URL").timeouts(once).http_client(faults.http_client())).await;
        let (stream, streams) = (name("user-0"), store.streams());
        streams.append(&stream, first([event("A", "1")])).await.expect("appends");
        faults.script(Rule::on(WRITE).lose_request());
        let answer = streams.append(&stream, Step::new(ticks(2))).await;
        faults.calm();
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{layout}: {answer:?}") };
        let of = doubt.base.layout().to_owned();
        let (at, version, given, seen): (String, u64, bool, Vec<u8>) = doubt.base.open(&of).expect("a base");
        let (stamp, rest) = seen.split_first_chunk().expect("a stamp");
        let stamp = u64::from_be_bytes(*stamp) - 365 * 86_400 * 1_000_000;
        let base = Base::seal(&of, &(at, version, given, [&stamp.to_be_bytes(), rest].concat()));
        for late in [false, true] {
            if late {
                super::feed::catch_up(&store).await;
            }
            streams.append(&stream, Step::new([event("A", "2")])).await.expect("appends");
            streams.append(&stream, Step::new(ticks(2)).again(doubt.commit, base.clone())).await.expect("settled");
            streams.append(&stream, Step::new([event("A", "3")])).await.expect("appends");
        }
        super::feed::catch_up(&store).await;
        super::feed::audit(&store, 1, 7).await;
    }
}

/// A time of the caller's may be everybody's: the commit's id on the first event tells, where there is one; under `strict` nothing does.
#[tokio::test]
async fn a_time_of_the_callers_tells_nothing() {
    for layout in BOTH {
        for theirs in ["", STRICT] {
            let told = format!("{layout} {theirs}");
            let scene = Scene::new(layout, "").await;
            let other = scene.other(theirs).await;
            let lost = || Rule::on(WRITE).nth(1).lose_request();
            let late = scene.between(lost(), Step::new(timed(1)).expect(Expect::Version(1)), append(&other, timed(1))).await;
            assert!(late.is_err_and(|error| error.is_conflict()), "{told}");
            let landed = Rule::on(WRITE).nth(1).lose_response();
            let done = scene.between(landed, Step::new(timed(2)), append(&other, timed(1))).await.expect(&told);
            assert_eq!((done.version, scene.events().await.len()), (Some(4), 5), "{told}");
            let (commit, base) = scene.doubt(Rule::on(WRITE).lose_request(), Step::new(timed(1))).await;
            append(&other, timed(1)).await;
            let done = other.append(&name("user-a"), Step::new(timed(1)).again(commit, base)).await;
            match theirs {
                "" => assert_eq!(done.expect("behind it").version, Some(7), "{told}"),
                _ => assert!(matches!(done, Err(Error::InDoubt(_))), "{told}: {done:?}"),
            }
        }
        // Under `strict`: in doubt, in the run and from the base, unless the caller gave an id.
        for rule in [Rule::on(WRITE).nth(1).lose_response(), Rule::on(WRITE).nth(1).lose_request()] {
            let scene = Scene::new(layout, STRICT).await;
            let other = scene.other(STRICT).await;
            let untold = scene.between(rule.clone(), Step::new(timed(1)), async {
                drop(other.append(&name("user-a"), Step::new(timed(1)).expect(Expect::Version(1))).await)
            });
            let Err(Error::InDoubt(doubt)) = untold.await else { panic!("{layout} {rule:?}") };
            // Also where `strict` was given up since: what was tried under it bears no id.
            for more in [STRICT, ""] {
                let again = Step::new(timed(1)).again(doubt.commit, doubt.base.clone());
                let again = scene.other(more).await.append(&name("user-a"), again).await;
                assert!(matches!(again, Err(Error::InDoubt(_))), "{layout} {rule:?} {more}: {again:?}");
            }
            assert_eq!(scene.events().await.len(), 2, "{layout} {rule:?}: nothing is doubled");
            let once = Step::new(timed(1)).commit(CommitId::of_key("once"));
            let done = scene.between(rule.clone(), once.clone(), append(&other, timed(1))).await.expect("settled").version;
            let again = other.append(&name("user-a"), once).await.expect("known").version;
            assert_eq!((done, scene.events().await.len()), (again, 4), "{layout} {rule:?}");
        }
    }
}

/// What an earlier version wrote: the commit's id on every event, times without digits of its own, and a base that does not tell the time.
#[tokio::test]
async fn tables_of_an_earlier_version_are_settled() {
    for layout in BOTH {
        for more in ["", STRICT] {
            let told = format!("{layout} {more}");
            let scene = Scene::new(layout, more).await;
            let events = || ticks(if more.is_empty() { 2 } else { 1 });
            let (commit, base) = scene.doubt(Rule::on(WRITE).lose_response(), Step::new(events())).await;
            let client = scene.client();
            let written = scan(&client, "orders-journal").await.into_iter();
            for mut item in written.filter(|item| item.get("payload") == Some(&blob("{}"))) {
                item.insert("occurred_at".into(), number(1_767_225_600_000_001_000));
                if more.is_empty() {
                    item.insert("fp_c".into(), aws_sdk_dynamodb::types::AttributeValue::B(commit.0.as_bytes().to_vec().into()));
                }
                put(&client, "orders-journal", item).await;
            }
            let layout_name = base.layout().to_owned();
            let (stream, version, once, _): (String, u64, bool, Vec<u8>) = base.open(&layout_name).expect("a base");
            let base = Base::seal(&layout_name, &(stream, version, once, Vec::<u8>::new()));
            let other = scene.other(more).await;
            append(&other, vec![event("Ticked", "another's")]).await;
            let again = async |events: Vec<Event>| other.append(&name("user-a"), Step::new(events).again(commit, base.clone())).await;
            let done = again(events()).await;
            if more.is_empty() {
                assert_eq!(done.expect(&told).version, Some(3), "{told}");
                let reused = again(vec![event("Ticked", "{}"), event("Other", "{}")]).await;
                assert!(matches!(reused, Err(Error::Refused(Refused::Reused { .. }))), "{told}: {reused:?}");
                assert_eq!(scene.events().await.len(), 4, "{told}");
            } else {
                assert!(matches!(done, Err(Error::InDoubt(_))), "{told}: {done:?}");
                assert_eq!(scene.events().await.len(), 3, "{told}");
            }
        }
    }
}

/// Nothing of ours is in an event that brings nothing of its own: exactly the peer's attributes, also in head and snapshot.
#[tokio::test]
async fn an_event_alone_has_the_peers_attributes_and_no_more() {
    for layout in BOTH {
        let scene = Scene::new(layout, "&keep=1").await;
        append(&scene.writer, ticks(1)).await;
        let timed_once = Step::new(timed(1)).commit(CommitId::of_key("once"));
        scene.writer.append(&name("user-a"), timed_once.snapshot(fencepost::Snapshot::new("snapshot", "{}"))).await.expect("appends");
        let of = async |table: &str| {
            let mut all: Vec<Item> =
                scan(&scene.client(), table).await.into_iter().filter(|item| item["aid"] != super::text("__config__")).collect();
            all.sort_by_key(|item| item["seq_nr"].as_n().ok().and_then(|n| n.parse::<u64>().ok()));
            all
        };
        let (journal, snapshot): (&[&str], &[&str]) = match layout {
            V5 => (
                &["aid", "manifest", "occurred_at", "payload", "seq_nr"],
                &["aid", "last_updated_at", "manifest", "payload", "seq_nr", "skey"],
            ),
            _ => (
                &["aid", "manifest", "occurred_at", "payload", "pkey", "seq_nr", "skey"],
                &["aid", "last_updated_at", "payload", "pkey", "seq_nr", "skey", "ttl", "version"],
            ),
        };
        for item in of("orders-journal").await {
            assert_eq!(names(&item), journal, "{layout}");
        }
        for item in of("orders-snapshot").await {
            assert_eq!(names(&item).into_iter().filter(|name| *name != "active_history_seq_nr").collect::<Vec<_>>(), snapshot, "{layout}");
        }
        if layout == V5 {
            for item in of("orders-head").await {
                assert_eq!(names(&item), ["aid", "events", "seq_nr", "type_name"]);
            }
        }
        // A time of the caller's and no id: the commit's, once.
        append(&scene.writer, timed(2)).await;
        let two: Vec<Item> = of("orders-journal").await.into_iter().rev().take(2).collect();
        assert_eq!(
            two.iter().map(|item| (item.contains_key("fp_c"), item.contains_key("fp_n"))).collect::<Vec<_>>(),
            [(false, true), (true, true)]
        );
    }
}

/// Two processes that say the same at the same version, in the same microsecond and with the same digits: without a lost answer nothing is
/// in doubt, and the second is told of the first.
#[tokio::test]
async fn who_lost_no_answer_takes_no_others_event_for_its_own() {
    for layout in BOTH {
        // Seeds alike draw request tokens alike: a token would answer for both.
        let engine = Engine::memory().expect("an engine");
        let opened = async |env: Env| {
            let url = format!("memory:?{layout}&table=orders");
            open(Store::builder(&url).expect("a URL").env(env).http_client(engine.http_client())).await.streams()
        };
        opened(Env::seeded(1)).await.append(&name("user-a"), first([event("A", "0")])).await.expect("warm");
        let (one, other) = (opened(Env::seeded(2)).await, opened(Env::seeded(2)).await);
        for streams in [&one, &other] {
            streams.load(&name("user-a"), LoadOptions::default()).await.expect("loads");
        }
        let step = || Step::new(ticks(1)).expect(Expect::Version(1));
        let first = one.append(&name("user-a"), step()).await.expect("appends");
        let second = other.append(&name("user-a"), step()).await;
        assert!(matches!(&second, Err(Error::Conflict(conflict)) if conflict.events.len() == 1), "{layout}: {second:?}");
        let events = one.load(&name("user-a"), LoadOptions::default()).await.expect("loads").events;
        assert_eq!((first.version, events.len()), (Some(2), 2), "{layout}");
    }
}

/// Under `strict`, with a time of the caller's: what the first run sent arrives after the repeat has looked for it. Nothing tells whose it is,
/// and it is not written behind it once more.
#[tokio::test]
async fn a_repeat_that_meets_the_same_words_stays_in_doubt() {
    for layout in BOTH {
        let scene = Scene::new(layout, STRICT).await;
        let (commit, base) = scene.doubt(Rule::on(WRITE).lose_request(), Step::new(timed(1))).await;
        let gate = Gate::new();
        scene.faults.script(Rule::on(WRITE).nth(1).pause_before(&gate));
        let late = async {
            gate.reached(1).await;
            append(&scene.other(STRICT).await, timed(1)).await;
            gate.open();
        };
        let stream = name("user-a");
        let again = scene.writer.append(&stream, Step::new(timed(1)).again(commit, base));
        let (answer, ()) = tokio::join!(again, late);
        assert!(matches!(answer, Err(Error::InDoubt(_))), "{layout}: {answer:?}");
        assert_eq!(scene.events().await.len(), 2, "{layout}: nothing is doubled");
    }
}

/// It landed unheard, and what is there can be read by nobody: that settles nothing, and is no word that nothing was recorded.
#[tokio::test]
async fn a_doubt_is_told_whatever_is_met_where_it_was_tried() {
    for layout in BOTH {
        let scene = Scene::new(layout, "").await;
        let client = scene.client();
        let spoil = async {
            let mut landed =
                scan(&client, "orders-journal").await.into_iter().find(|item| item.get("payload") == Some(&blob("{}"))).expect("it landed");
            landed.insert("payload".into(), number(1));
            put(&client, "orders-journal", landed).await;
        };
        let answer = scene.between(Rule::on(WRITE).nth(1).lose_response(), Step::new(ticks(1)), spoil).await;
        assert!(matches!(answer, Err(Error::InDoubt(_))), "{layout}: {answer:?}");
    }
}
