//! All of a large commit or nothing of it, by every read of ours: whatever call its writer died before, whatever the index shows of it yet, and
//! whenever the reader began.

use fencepost::sekiban::Settings;
use fencepost::{StreamName, StreamReadOptions};
use serde_json::json;

use crate::*;

/// So that few events are a large commit, and their rows come in several calls.
fn small(consistent: bool) -> Settings {
    let sizes = json!({ "MaxTransactionItems": 8, "MaxBatchWriteItems": 3, "QueryPageSize": 3, "UseConsistentReads": consistent });
    Settings::from_json(&json!({ "DynamoDb": sizes }).to_string()).expect("settings")
}

/// Nine events: each second one on `a:1`, two of those on `a:2`; the others on no tag.
fn nine() -> Vec<Event> {
    let tags = |n| match n {
        1 | 5 => &["a:1", "a:2"][..],
        n if n % 2 == 1 => &["a:1"],
        _ => &[],
    };
    (0..9).map(|n| event(&format!("large{n}"), tags(n))).collect()
}

/// The reads, and how much of one small commit before and the large one each shows: none of the large one, or all.
const READS: [(&str, u64, u64); 18] = [
    ("all_since", 1, 10),
    ("all_since in pages", 1, 10),
    ("count", 1, 10),
    ("read of all", 1, 10),
    ("read of all, backwards", 1, 10),
    ("latest", 0, 9),
    ("feed", 1, 10),
    ("safe feed", 1, 10),
    ("export", 1, 10),
    ("by_tag_since", 1, 5),
    ("tag_stream", 1, 5),
    ("latest_of", 0, 9),
    ("tag_exists", 0, 1),
    ("tags_of_group", 1, 7),
    ("scan_tags", 1, 7),
    ("events by id", 0, 9),
    ("source", 1, 5),
    ("stream", 1, 5),
];

fn is_fed(read: &str) -> bool {
    read.contains("feed") || read == "export"
}

/// How much a read shows. What is told as the last, or as being there, is turned into how much of the commit that means.
async fn shown(store: &Store, read: &str, commit: CommitId) -> u64 {
    let (sekiban, log) = (store.sekiban().expect("sekiban"), store.log().expect("log"));
    let many = |events: Vec<Recorded>| {
        assert!(events.is_sorted_by_key(|event| event.position) || read.contains("backwards"), "{read}: in order");
        assert_eq!(events.iter().map(|event| event.id).collect::<BTreeSet<_>>().len(), events.len(), "{read}: each once");
        events.len() as u64
    };
    // The number of its events up to this one.
    let up_to = |last: Option<SortableId>| async move {
        let record = log_committed(store, commit).await;
        record.iter().filter(|at| last.is_some_and(|last| **at <= last)).count() as u64
    };
    match read {
        "all_since" => many(sekiban.all_since(None, None).try_collect().await.expect(read)),
        "all_since in pages" => {
            let (mut since, mut all) = (None, Vec::new());
            loop {
                let page: Vec<Recorded> = sekiban.all_since(since, Some(2)).try_collect().await.expect(read);
                let Some(last) = page.last() else { return many(all) };
                since = SortableId::of(&last.position);
                all.extend(page);
            }
        }
        "count" => sekiban.count(None).await.expect(read),
        "read of all" => many(log.read_all(&Query::all(), ReadOptions::default().eventual()).await.expect(read)),
        "read of all, backwards" => many(log.read_all(&Query::all(), ReadOptions::default().eventual().backwards()).await.expect(read)),
        "latest" => up_to(sekiban.latest().await.expect(read)).await,
        "feed" => many(fed(store).await),
        "safe feed" => {
            let mut feed = store.safe_feed().expect("feed").subscribe(From::Start, Query::all());
            let mut met = Vec::new();
            while let Delivery::Event { event, .. } = feed.next().await.expect("never ends").expect(read) {
                met.push(*event);
            }
            many(met)
        }
        "export" => {
            let lines: Vec<_> = fencepost::moving::export(store, Query::all(), None).expect(read).try_collect().await.expect(read);
            lines.iter().filter(|line| String::from_utf8_lossy(line).contains("position")).count() as u64
        }
        "by_tag_since" => many(sekiban.by_tag_since(&tag("a:1"), None).try_collect().await.expect(read)),
        "tag_stream" => sekiban.tag_stream(&tag("a:1"), None).try_collect::<Vec<_>>().await.expect(read).len() as u64,
        "latest_of" => match up_to(sekiban.latest_of(&tag("a:1")).await.expect(read)).await {
            // Its last event on the tag is the eighth.
            8 => 9,
            other => other,
        },
        "tag_exists" => u64::from(sekiban.tag_exists(&tag("a:2")).await.expect(read)),
        "tags_of_group" => {
            sekiban.tags_of_group("a").map_ok(|info| info.events).try_fold(0, |a, b| async move { Ok(a + b) }).await.expect(read)
        }
        "scan_tags" => sekiban.scan_tags().await.expect(read).iter().map(|info| info.events).sum(),
        "events by id" => {
            let mut met = 0;
            // From the last to the first: they are put the other way round.
            for n in (0..9).rev() {
                met += u64::from(sekiban.event(&commit.event_id(n)).await.expect(read).is_some());
            }
            met
        }
        "source" => many(log.source(&Query::tag("a:1").expect("query"), None).await.expect(read).events),
        "stream" => {
            let name = StreamName::new("a:1").expect("name");
            let streams = store.streams();
            let events = streams.read(&name, StreamReadOptions::default()).try_collect().await.expect(read);
            many(events)
        }
        other => panic!("{other}"),
    }
}

/// Where the events of a commit stand, if it is published.
async fn log_committed(store: &Store, commit: CommitId) -> Vec<SortableId> {
    let found = store.log().expect("log").committed(commit).await.expect("committed").value;
    found.into_iter().flat_map(|committed| committed.positions).map(|position| SortableId::of(&position).expect("id")).collect()
}

#[tokio::test]
async fn whatever_call_the_writer_died_before_every_read_shows_all_or_nothing() {
    for (read, none, all) in READS {
        let mut outcomes = BTreeSet::new();
        let bench = Bench::embedded();
        // The answer of a call is lost, or the call itself, and all that follow.
        let lost = if read == "all_since" { &[true, false][..] } else { &[true] };
        for (calls, answered) in (1..).flat_map(|calls| lost.iter().map(move |answered| (calls, *answered))) {
            let service = format!("&service=s{calls}{answered}");
            let env = Env::seeded(calls as u64 * 2 + u64::from(answered));
            let between = Faults::new(bench.http(), 1);
            let timeouts = Timeouts { attempts: 1, ..PATIENT };
            let builder = |consistent| bench.builder(&service).env(env.clone()).settings(&small(consistent)).expect("settings");
            let store = open(builder(true).timeouts(timeouts).http_client(between.http_client())).await;
            store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
            if !answered {
                between.script(Rule::on_any().nth(calls).lose_response());
            }
            for later in calls + usize::from(!answered)..calls + 60 {
                between.script(Rule::on_any().nth(later).lose_request());
            }
            let commit = CommitId(Uuid::from_u128(5));
            let outcome = store.log().expect("log").append(Append::new(nine()).commit(commit)).await;
            let survived = between.log().iter().all(|call| call.faults.is_empty());
            drop(store);
            // Feeds wait a moment for a writer that may live.
            if is_fed(read) {
                env.advance(Duration::from_secs(60));
            }
            let reader = open(builder(calls % 2 == 0)).await;
            let seen = shown(&reader, read, commit).await;
            let published = !log_committed(&reader, commit).await.is_empty();
            assert_eq!(seen, if published || outcome.is_ok() { all } else { none }, "{read}, {calls}");
            outcomes.insert((outcome.is_ok(), seen));
            if survived {
                break;
            }
        }
        let met = [(false, none), (false, all), (true, all)].into_iter().filter(|met| *met != (false, all) || read == "all_since");
        assert_eq!(outcomes, met.collect(), "{read}: each was met");
    }
}

/// Two engines: what the index shows is the second's, which learns of each item when it is told to.
struct Lagging {
    lag: Lag,
    env: Env,
}

impl Lagging {
    fn new(seed: u64) -> Lagging {
        let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
        Lagging { lag: Lag::new(engines[0].http_client(), engines[1].http_client(), seed), env: Env::seeded(seed) }
    }

    async fn store(&self, more: &str, consistent: bool) -> Store {
        let builder = Store::builder(&format!("memory:?table=Sekiban&layout=sekiban{more}")).expect("url").create(true);
        let builder = builder.settings(&small(consistent)).expect("settings").env(self.env.clone());
        open(builder.http_client(self.lag.http_client())).await
    }

    /// How many large commits are on the list.
    async fn listed(&self) -> i32 {
        let list = bare_sdk::client(self.lag.http_client()).query().table_name("SekibanEvents").consistent_read(true);
        let list =
            list.key_condition_expression("pk = :p").expression_attribute_values(":p", AttributeValue::S("SERVICE#default#COMMITS".into()));
        list.send().await.expect("query").count
    }
}

/// Rows are there, and an index shows them one by one, in any order: whoever begins now gets all of them, in order.
#[tokio::test]
async fn whatever_an_index_shows_yet_every_read_shows_all() {
    for (seed, more) in [(1, ""), (2, "&shards=4")] {
        let lagging = Lagging::new(seed);
        let store = lagging.store(more, seed == 1).await;
        store.log().expect("log").append(Append::new([event("before", &["a:1"])])).await.expect("before");
        lagging.lag.apply_all().await;
        let commit = CommitId(Uuid::from_u128(5));
        store.log().expect("log").append(Append::new(nine()).commit(commit)).await.expect("appends");
        // However long it takes an index. Of a replica it is said that it takes no longer than the window.
        for hours in 0.. {
            for (read, none, all) in READS {
                // For the safe feed all of it is too young in the beginning.
                if (hours == 0 || seed == 2) && read == "safe feed" {
                    continue;
                }
                let seen = shown(&store, read, commit).await;
                // Rows of a tag may be asked of a replica, if the settings say so: that is a moment old as a whole.
                let is_old = seed == 2 && seen == none && ["by_tag_since", "tag_stream", "latest_of", "tag_exists"].contains(&read);
                assert!(seen == all || is_old, "{more} {read}: {seen} of {all}, {} to come", lagging.lag.pending().len());
            }
            if !lagging.lag.apply_any().await {
                break;
            }
            if seed == 1 {
                lagging.env.advance(Duration::from_secs(3600));
            }
        }
        let listed = async || lagging.listed().await;
        lagging.env.advance(Duration::from_secs(3600));
        store.sekiban().expect("sekiban").count(None).await.expect("count");
        assert_eq!(listed().await, 0, "the index shows it: it is on no list any more");
        for (read, _, all) in READS {
            assert_eq!(shown(&store, read, commit).await, all, "{read}: by the index alone");
        }
    }
}

/// A reader that began before the commit was published, page by page while it is, with an index that shows any part of it: all of it or nothing.
#[tokio::test]
async fn who_began_before_the_publication_gets_all_or_nothing() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let lagging = Lagging::new(seed);
        let store = lagging.store(if seed % 2 == 0 { "" } else { "&shards=4" }, true).await;
        let log = store.log().expect("log");
        for n in 0..4 {
            log.append(Append::new([event(&format!("before{n}"), &[])])).await.expect("before");
        }
        lagging.lag.apply_all().await;
        let chance = Env::seeded(seed);
        let backwards = seed % 3 == 0;
        let options = ReadOptions::default().eventual();
        let options = if backwards { options.backwards() } else { options };
        let all = Query::all();
        let mut reading = log.read(&all, options);
        let mut met = Vec::new();
        for _ in 0..chance.below(5) {
            met.extend(reading.next().await.transpose().expect("reads"));
        }
        log.append(Append::new(nine())).await.expect("appends");
        log.append(Append::new([event("behind", &[])])).await.expect("behind");
        while let Some(event) = reading.next().await.transpose().expect("reads") {
            met.push(event);
            for _ in 0..chance.below(8) {
                lagging.lag.apply_any().await;
            }
        }
        let large = met.iter().filter(|event| event.data.starts_with(b"large")).count();
        assert!(large == 0 || large == 9, "{seed}: {large} of 9, {:?}", labels(&met));
        let positions: Vec<_> = met.iter().map(|event| event.position).collect();
        assert!(if backwards { positions.iter().rev().is_sorted() } else { positions.is_sorted() }, "{seed}: in order");
        outcomes.insert((backwards, large));
    }
    assert!(outcomes.contains(&(false, 0)) && outcomes.contains(&(false, 9)), "{outcomes:?}");
}

/// Its rows come long after its place, by whoever reads, and the index shows them later still: no feed passes them.
#[tokio::test]
async fn a_feed_does_not_pass_a_large_commit_whose_rows_come_late() {
    let lagging = Lagging::new(1);
    let between = Faults::new(lagging.lag.http_client(), 1);
    let gate = Gate::new();
    let builder =
        Store::builder("memory:?table=Sekiban&layout=sekiban").expect("url").create(true).settings(&small(true)).expect("settings");
    let dying = open(builder.env(lagging.env.clone()).timeouts(PATIENT).http_client(between.http_client())).await;
    between.script(Rule::on("TransactWriteItems").nth(1).pause_after(&gate));
    let writer = tokio::spawn(async move { dying.log().expect("log").append(Append::new(nine())).await });
    gate.reached(1).await;
    writer.abort();
    writer.await.expect_err("it died");
    lagging.env.advance(Duration::from_secs(30));
    let store = lagging.store("", true).await;
    let mut feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let mut met = Vec::new();
    for _ in 0..4 {
        met.push(next_event(&mut feed).await.0);
    }
    lagging.env.advance(Duration::from_secs(3600));
    let (fifth, checkpoint) = next_event(&mut feed).await;
    met.push(fifth);
    // Another goes on where that one was.
    let mut feed = store.feed().expect("feed").subscribe(From::Checkpoint(checkpoint), Query::all());
    for _ in 5..9 {
        met.push(next_event(&mut feed).await.0);
    }
    assert_eq!(labels(&met), (0..9).map(|n| format!("large{n}")).collect::<Vec<_>>());
    lagging.lag.apply_all().await;
    assert!(matches!(feed.next().await.expect("never ends").expect("delivers"), Delivery::CaughtUp { .. }), "none a second time");
}

/// A writer of the nine that stands still before one of its calls.
struct Held {
    gate: Gate,
    writer: tokio::task::JoinHandle<Result<fencepost::Committed>>,
    /// Else it has ended before.
    is_held: bool,
}

impl Held {
    async fn before(bench: &Bench, more: &str, env: &Env, call: usize) -> Held {
        let (between, gate) = (Faults::new(bench.http(), 1), Gate::new());
        let builder = bench.builder(more).settings(&small(true)).expect("settings").env(env.clone());
        let store = open(builder.timeouts(PATIENT).http_client(between.http_client())).await;
        let log = store.log().expect("log");
        log.append(Append::new([event("before", &["a:1"])])).await.expect("before");
        between.script(Rule::on_any().nth(call).pause_before(&gate));
        let writer = tokio::spawn(async move { log.append(Append::new(nine())).await });
        let is_held = tokio::select! {
            () = gate.reached(1) => true,
            () = async { while !writer.is_finished() { tokio::task::yield_now().await; } } => false,
        };
        Held { gate, writer, is_held }
    }

    async fn goes_on(self) {
        self.gate.open();
        self.writer.await.expect("joins").expect("appends");
    }
}

/// Somebody writes behind a large commit on its tag, and a feed begins, between any two calls of its writer: the feed keeps their order.
#[tokio::test]
async fn what_comes_behind_a_large_commit_on_a_tag_comes_behind_it_in_a_feed() {
    let mut met_between = 0;
    let bench = Bench::embedded();
    for calls in 1.. {
        let more = format!("&service=s{calls}");
        let held = Held::before(&bench, &more, &Env::seeded(calls as u64), calls).await;
        let is_held = held.is_held;
        let env = Env::seeded(1_000 + calls as u64);
        env.set_clock(Env::seeded(calls as u64).now() + Duration::from_millis(1));
        let reader = open(bench.builder(&more).settings(&small(true)).expect("settings").env(env)).await;
        let log = reader.log().expect("log");
        log.append(Append::new([event("behind", &["a:2"])])).await.expect("behind");
        let met = labels(&fed(&reader).await);
        let at = |label: &str| met.iter().position(|met| met == label);
        let behind = at("behind").expect("it is there");
        let on_tag = log.source(&Query::tag("a:2").expect("query"), None).await.expect("source").events;
        if labels(&on_tag)[0] == "large1" {
            let large: Vec<_> = (0..9).map(|n| at(&format!("large{n}"))).collect();
            assert!(large.iter().all(|at| at.is_some_and(|at| at < behind)), "{calls}: {met:?}");
            met_between += usize::from(is_held);
        } else {
            assert!(met.iter().all(|label| !label.starts_with("large")), "{calls}: {met:?}");
        }
        held.goes_on().await;
        if !is_held {
            break;
        }
    }
    assert!(met_between > 3, "{met_between}");
}

/// Who begins now, while rows of a large commit come, gets all of it or nothing.
#[tokio::test]
async fn who_follows_from_now_on_does_not_begin_within_a_large_commit() {
    let bench = Bench::embedded();
    for calls in 1.. {
        let more = format!("&service=s{calls}");
        let env = Env::seeded(calls as u64);
        let held = Held::before(&bench, &more, &env, calls).await;
        let is_held = held.is_held;
        let reader = open(bench.builder(&more).settings(&small(true)).expect("settings").env(env.clone())).await;
        let mut feed = reader.feed().expect("feed").subscribe(From::Now, Query::all());
        assert!(matches!(feed.next().await.expect("never ends").expect("delivers"), Delivery::CaughtUp { .. }));
        held.goes_on().await;
        env.advance(Duration::from_millis(1));
        reader.log().expect("log").append(Append::new([event("last", &["a:1", "a:2"])])).await.expect("last");
        let mut met = Vec::new();
        while !met.ends_with(&["last".to_owned()]) {
            met.extend(labels(&[next_event(&mut feed).await.0]));
        }
        assert!(met.len() == 1 || met.len() == 10, "{calls}: {met:?}");
        if !is_held {
            break;
        }
    }
}

/// Ids and places are the caller's, so that where the events stand is read from them: one who meets some of them while their rows come does not take
/// those for all.
#[tokio::test]
async fn who_met_some_rows_of_given_ids_reads_all_of_them_later() {
    let bench = Bench::embedded();
    let mut seen_open = 0;
    for call in 1.. {
        let more = format!("&service=s{call}");
        let env = Env::seeded(call as u64);
        let builder = || bench.builder(&more).settings(&small(true)).expect("settings").env(env.clone());
        let (between, gate) = (Faults::new(bench.http(), 1), Gate::new());
        let writer = open(builder().timeouts(PATIENT).http_client(between.http_client())).await.sekiban().expect("sekiban");
        let reader = open(builder()).await;
        let log = reader.log().expect("log");
        for n in 0..4 {
            log.append(Append::new([event(&format!("before{n}"), &[])])).await.expect("before");
        }
        let all = Query::all();
        let mut reading = log.read(&all, ReadOptions::default().eventual());
        reading.next().await.expect("some").expect("reads");
        env.advance(Duration::from_millis(1));
        between.script(Rule::on_any().nth(call).pause_before(&gate));
        let at = |n: u64| SortableId::threshold(env.now() + Duration::from_micros(n));
        let events: Vec<_> =
            nine().into_iter().zip(1..).map(|(event, n)| (at(n), event.id(Uuid::from_u128(u128::from(n) << 64)))).collect();
        let writing = tokio::spawn(async move { writer.write(&events, WriteOptions::default()).await });
        let is_held = tokio::select! {
            () = gate.reached(1) => true,
            () = async { while !writing.is_finished() { tokio::task::yield_now().await; } } => false,
        };
        let met = reading.try_collect::<Vec<_>>().await.expect("reads").len();
        assert!(met == 3 || met == 12, "{call}: {met}");
        let rows = bench.dump("SekibanEvents").await;
        let mine = |item: &&Item| item["pk"].as_s().is_ok_and(|pk| pk.starts_with(&format!("SERVICE#s{call}#EVENT#")));
        seen_open += usize::from((5..13).contains(&rows.iter().filter(mine).count()));
        gate.open();
        writing.await.expect("joins").expect("writes");
        let after = reader.sekiban().expect("sekiban").all_since(None, None).try_collect::<Vec<_>>().await.expect("all").len();
        assert_eq!(after, 13, "{call}");
        if !is_held {
            break;
        }
    }
    assert!(seen_open > 2, "{seen_open}");
}
