//! What things cost, asserted as numbers on the embedded engine: a regression in cost is a failing test.
//! The rows are those of the ledger's specification, whose figures are upper bounds; `-- --nocapture` prints the README's table.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fencepost::testing::{Faults, Gate, Meter, Rule};
use fencepost::{
    Append, Cache, Category, Committed, Decider, Decision, Delivery, Engine, Event, EventLog, From, IndexOptions, LoadOptions, Query, Step,
    StreamName, Units, decision, fold,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use support::{Ground, open};

async fn log(feed: &str) -> Arc<dyn EventLog> {
    open(Ground::embedded().builder(&format!("feed={feed}"))).await.log().expect("log")
}

/// JSON of exactly so many bytes that compresses about three to one, as real events do.
fn json(bytes: usize, seed: u64) -> String {
    let mut body = String::from("{\"items\":[");
    let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    while body.len() + 40 < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        body.push_str(&format!("{{\"sku\":\"{:09}\",\"n\":{}}},", (state >> 20) % 1_000_000_000, (state >> 50) % 90 + 10));
    }
    let rest = bytes - body.len() - 4;
    body.push_str(&format!("\"{}\"]}}", &"pad-".repeat(rest / 4 + 1)[..rest]));
    assert_eq!(body.len(), bytes);
    body
}

fn event(bytes: usize, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new("OrderPlaced", json(bytes, 1)).expect("event"), |event, tag| event.tag(tag).expect("tag"))
}

fn units(read: f64, write: f64, requests: u64) -> Units {
    Units { read, write, requests }
}

/// The second append of the kind, with its series' ends remembered.
async fn warm(log: &dyn EventLog, append: impl Fn() -> Append) -> Committed {
    log.append(append()).await.expect("first");
    log.append(append()).await.expect("second")
}

#[tokio::test]
async fn one_event_one_tag_costs_one_write_unit_and_one_request_in_streams_mode() {
    let log = log("streams").await;
    assert_eq!(warm(&*log, || Append::new([event(500, &["order:1"])])).await.units, units(0.0, 1.0, 1));
    // Whose end is not remembered: half a read unit more.
    let cold = log.append(Append::new([event(500, &["order:2"])])).await.expect("append");
    assert_eq!(cold.units, units(0.5, 1.0, 2));
}

/// The meter of other clients counts what the store tells of itself.
#[tokio::test]
async fn the_meter_and_the_store_tell_the_same() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine).builder("feed=lanes-1").http_client(meter.http_client())).await;
    let log = store.log().expect("log");
    meter.take();
    let done = warm(&*log, || Append::new([event(3_000, &["order:1", "customer:2"])])).await;
    let first = log.append(Append::new([event(100, &["order:9"])])).await.expect("append").units;
    assert!(done.units.write > 0.0 && first.requests > 0);
    let told = meter.take();
    assert_eq!(meter.take(), Units::default());
    let again = log.append(Append::new([event(3_000, &["order:1", "customer:2"])])).await.expect("append").units;
    assert_eq!(meter.take(), again);
    assert!(told.write >= done.units.write + first.write, "{told}");
    let read = log.source(&Query::tag("order:1").expect("a query"), None).await.expect("reads");
    assert_eq!(meter.take(), read.units);
}

/// Who has said that it is caught up looks at half the units, each lane or the index once; what says so, before, was read strongly.
#[tokio::test]
async fn an_idle_look_costs_half_a_unit_for_each_lane_and_for_the_index() {
    for (feed, lanes) in [("lanes-1", 1u64), ("lanes-4", 4), ("streams", 1)] {
        let engine = Engine::memory().expect("an engine");
        let meter = Meter::new(engine.http_client());
        let store = open(Ground::Engine(engine).builder(&format!("feed={feed}")).http_client(meter.http_client())).await;
        store.log().expect("log").append(Append::new([event(100, &["order:1"])])).await.expect("append");
        if let Ok(index) = store.index() {
            index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await.expect("indexes");
        }
        let mut deliveries = store.feed().expect("a feed").subscribe(From::Start, Query::all());
        assert!(matches!(deliveries.next().await, Some(Ok(Delivery::Event { .. }))), "{feed}");
        meter.take();
        assert!(matches!(deliveries.next().await, Some(Ok(Delivery::CaughtUp { .. }))), "{feed}");
        let said = meter.take();
        assert_eq!(said, units(lanes as f64, 0.0, lanes), "{feed}: strongly, before it is said");
        let mut looked = Units::default();
        while looked.requests < 2 * lanes {
            assert!(tokio::time::timeout(Duration::from_millis(50), deliveries.next()).await.is_err(), "{feed}: nothing comes");
            looked += meter.take();
        }
        assert_eq!(looked.read.to_string(), (looked.requests as f64 / 2.0).to_string(), "{feed}: {looked}");
    }
}

/// Writers keep to a lane, so that others may stand still for long: who catches up asks those for every page of the others, not for every commit.
#[tokio::test]
async fn a_lane_that_stands_still_is_not_asked_for_every_commit_of_another() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine).builder("feed=lanes-4").http_client(meter.http_client())).await;
    for _ in 0..50 {
        store.log().expect("log").append(Append::new([event(100, &["order:1"])])).await.expect("append");
    }
    meter.take();
    let mut deliveries = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    for n in 0..50 {
        assert!(matches!(deliveries.next().await, Some(Ok(Delivery::Event { .. }))), "{n}");
    }
    assert!(matches!(deliveries.next().await, Some(Ok(Delivery::CaughtUp { .. }))));
    let read = meter.take();
    // A look at each lane, which is a page of one; and once more before it is said that that was all.
    assert_eq!(read.requests, 8, "{read}");
}

/// A refused write is billed, though the answer does not say so: by the meter as by the store, plain and in a transaction.
#[tokio::test]
async fn the_meter_bills_a_refused_write_as_the_store_does() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine).builder("feed=streams").http_client(meter.http_client())).await;
    let (log, both) = (store.log().expect("log"), ["order:1", "customer:2"]);
    // By tags of the event and bytes of the body: 1 unit plain; what lies there is larger than what was offered; twice for two items.
    for (tags, there, offered, billed) in
        [(&both[..1], 100, 100, 1.0..=1.0), (&both[..1], 12_000, 100, 2.0..=12.0), (&both[..], 100, 100, 4.0..=4.0)]
    {
        let query = tags[1..].iter().fold(Query::tag(tags[0]).expect("tag"), |query, tag| query.or(Query::tag(*tag).expect("tag")));
        let token = log.source(&query, None).await.expect("reads").token;
        log.append(Append::new([event(there, tags)])).await.expect("somebody else");
        meter.take();
        let lost = log.append(Append::new([event(offered, tags)]).unless(query, token)).await;
        let Err(fencepost::Error::Conflict(conflict)) = lost else { panic!("{lost:?}") };
        assert_eq!(meter.take(), conflict.units);
        assert!(billed.contains(&conflict.units.write), "{tags:?} of {there} and {offered} bytes: {}", conflict.units);
    }
}

/// Capacity is bought for tables and indexes one by one, and an index is stored besides.
#[tokio::test]
async fn the_meter_tells_tables_and_indexes_apart() {
    let engine = Engine::memory().expect("an engine");
    let meter = Meter::new(engine.http_client());
    let store = open(Ground::Engine(engine).builder("layout=sekiban").http_client(meter.http_client())).await;
    let log = store.log().expect("log");
    meter.take();
    log.append(Append::new([event(500, &["order:1"])])).await.expect("append");
    let (places, indexes) = (meter.places(), meter.index_writes());
    let all = meter.take();
    assert_eq!((places.values().map(|units| units.write).sum::<f64>(), indexes), (all.write, 2.0), "{places:?}");
    // The event and its tag, in an index each: 2 units of a transaction, and for the tag's head 2 more.
    let of = |index: bool| places.iter().filter(|(place, units)| place.index.is_some() == index && units.write > 0.0).count();
    assert_eq!((of(false), of(true)), (2, 2), "{places:?}");
    assert!(meter.places().is_empty());
    // The event's index has the whole of it, the tag's a row; the engine's own count of a table agrees.
    let sizes = meter.index_sizes().await.expect("scans");
    assert!(sizes.values().all(|(items, _)| *items == 1), "{sizes:?}");
    let largest = sizes.values().map(|(_, bytes)| *bytes).max().expect("an index");
    let tables = store.stats().await.expect("stats").tables;
    assert!(tables.iter().any(|table| u64::try_from(table.bytes) == Ok(largest)), "{sizes:?}, {tables:?}");
    assert_eq!(meter.take().write, 0.0, "what the scans took is not counted as work");
}

#[tokio::test]
async fn it_costs_the_same_at_every_length() {
    let log = log("streams").await;
    for _ in 0..1_000 {
        let done = log.append(Append::new([event(500, &["order:1"])])).await.expect("append");
        assert_eq!(done.units.write, 1.0);
    }
}

#[tokio::test]
async fn one_event_one_tag_costs_four_in_one_lane() {
    let log = log("lanes-1").await;
    assert_eq!(warm(&*log, || Append::new([event(500, &["order:1"])])).await.units, units(0.0, 4.0, 1));
}

#[tokio::test]
async fn an_untagged_event_in_one_lane_is_one_plain_put() {
    let log = log("lanes-1").await;
    assert_eq!(warm(&*log, || Append::new([event(500, &[])])).await.units, units(0.0, 1.0, 1));
}

async fn conditional(feed: &str) -> Units {
    let log = log(feed).await;
    let query = Query::tag("course:1").expect("query").or(Query::tag("student:1").expect("query"));
    log.append(Append::new([event(300, &["course:1", "student:1"])])).await.expect("first");
    let token = log.source(&query, None).await.expect("source").token;
    log.append(Append::new([event(300, &["course:1", "student:1"])]).unless(query, token)).await.expect("append").units
}

#[tokio::test]
async fn one_event_two_tags_under_a_condition_costs_four_and_six_in_one_lane() {
    assert_eq!(conditional("streams").await, units(0.0, 4.0, 1));
    assert_eq!(conditional("lanes-1").await, units(0.0, 6.0, 1));
}

fn twenty() -> Append {
    Append::new((0..20).map(|i| event(150, &["order:000000001-a", &format!("item:{i:06}")])))
}

#[tokio::test]
async fn twenty_events_over_twenty_one_tags_stay_within_fifty_and_fifty_four() {
    let streams = warm(&*log("streams").await, twenty).await.units;
    // The specification allows fifty.
    assert_eq!(streams, units(0.0, 48.0, 1));
    let lanes = warm(&*log("lanes-1").await, twenty).await.units;
    // … and fifty-four.
    assert_eq!(lanes, units(0.0, 50.0, 1));
}

fn thousand() -> Append {
    Append::new((0..1000).map(|i| Event::new("OrderPlaced", json(300, i)).and_then(|e| e.tag("import:1")).expect("event")))
}

#[tokio::test]
async fn a_thousand_events_stay_within_one_hundred_and_ten_atomically() {
    let streams = warm(&*log("streams").await, thousand).await.units;
    assert!(streams.write <= 110.0, "{streams}");
    let lanes = warm(&*log("lanes-1").await, thousand).await.units;
    assert!(lanes.write <= 112.0, "{lanes}");
}

#[tokio::test]
async fn a_named_commit_costs_a_transaction_and_its_repeat_finds_the_outcome() {
    let log = log("streams").await;
    log.append(Append::new([event(500, &["order:1"])])).await.expect("first");
    let id = fencepost::Env::seeded(1).new_commit_id();
    let first = log.append(Append::new([event(500, &["order:1"])]).commit(id)).await.expect("named");
    assert_eq!(first.units, units(0.0, 4.0, 1));
    let again = log.append(Append::new([event(500, &["order:1"])]).commit(id)).await.expect("again");
    assert_eq!(again.positions, first.positions);
    // A commit of one slot has no digest of its own: what lies there is compared, to the last byte and tag.
    let other = |event: Event| Append::new([event]).commit(id);
    let event = || event(500, &["order:1"]);
    let meta = fencepost::Metadata { user: Some("u".into()), ..Default::default() };
    for another in
        [event().tag("order:2").expect("tag"), event().meta(meta), event().id(uuid::Uuid::from_u128(1)), self::event(501, &["order:1"])]
    {
        let refused = log.append(other(another)).await;
        assert!(matches!(refused, Err(fencepost::Error::Refused(fencepost::Refused::Reused { .. }))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_conflict_costs_one_write_request_and_no_read() {
    let ground = Ground::embedded();
    let (a, b) =
        (open(ground.builder("feed=streams")).await.log().expect("log"), open(ground.builder("feed=streams")).await.log().expect("log"));
    let query = Query::tag("order:1").expect("query");
    let token = a.source(&query, None).await.expect("source").token;
    b.append(Append::new([event(500, &["order:1"])])).await.expect("theirs");
    let conflict = a.append(Append::new([event(500, &["order:1"])]).unless(query.clone(), token)).await;
    let Err(fencepost::Error::Conflict(conflict)) = conflict else { panic!("{conflict:?}") };
    assert_eq!(conflict.events.len(), 1);
    // Decided again from what the conflict brought: one write, no read.
    let done = a.append(Append::new([event(500, &["order:1"])]).unless(query, conflict.token.expect("continuation"))).await.expect("again");
    assert_eq!(done.units, units(0.0, 1.0, 1));
}

#[tokio::test]
async fn a_stream_of_a_hundred_loads_in_one_query_of_fourteen_units_and_half_of_it_eventually() {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let (streams, name) = (store.streams(), StreamName::new("order:1").expect("name"));
    for _ in 0..100 {
        streams.append(&name, Step::new([event(500, &[])])).await.expect("append");
    }
    let strong = streams.load(&name, LoadOptions::default()).await.expect("load").units;
    // 68 bytes around a body: less than any peer that keeps events one by one.
    assert_eq!(strong, units(14.0, 0.0, 1));
    let eventual = streams.load(&name, LoadOptions::default().eventual()).await.expect("load").units;
    assert_eq!(eventual.read * 2.0, strong.read);
    let loaded = streams.load(&name, LoadOptions::default()).await.expect("load");
    let warm = streams.load(&name, LoadOptions::default().since(loaded.token)).await.expect("delta").units;
    assert_eq!((warm.write, warm.requests), (0.0, 1));
    assert!(warm.read <= 1.0, "a delta with nothing new: {warm}");
}

// ---- decisions ----

#[derive(Event, Serialize, Deserialize)]
enum Order {
    Noted {
        #[tag("order")]
        order: u32,
        text: String,
    },
    Paid {
        #[tag("order")]
        order: u32,
        #[tag("customer")]
        customer: u32,
    },
}

fn note(order: u32) -> impl Decision<Rejection = &'static str> {
    let notes = fold(("order", order), 0, |notes, _: &Order| *notes += 1).cached_as("notes");
    decision(notes, move |notes| if *notes > 2 { Err("enough") } else { Ok([Order::Noted { order, text: json(400, 1) }]) })
}

#[tokio::test]
async fn a_warm_decision_on_one_tag_is_two_requests_one_read_unit_and_one_write_unit() {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let cache = Cache::new(10);
    let mut costs = Vec::new();
    for _ in 0..4 {
        costs.push(store.decide(note(1)).cache(&cache).await.expect("decides").units);
    }
    assert!(costs[1..3].iter().all(|cost| cost.requests == 2 && cost.write == 1.0 && cost.read <= 1.0), "{costs:?}");
    // Rejected on one tag: what came since, and nothing to confirm.
    assert!(costs[3].requests == 1 && costs[3].write == 0.0 && costs[3].read <= 1.0, "{costs:?}");
}

#[tokio::test]
async fn a_decision_that_one_commit_overtook_costs_one_more_write_request_and_no_read() {
    let ground = Ground::embedded();
    let Ground::Engine(engine) = &ground else { unreachable!("embedded") };
    let faults = Faults::new(engine.http_client(), 1);
    let (ours, theirs) =
        (open(ground.builder("feed=streams").http_client(faults.http_client())).await, open(ground.builder("feed=streams")).await);
    let cache = Cache::new(10);
    let warm = ours.decide(note(1)).cache(&cache).await.expect("decides");
    assert_eq!(warm.tries, 1);
    let gate = Gate::new();
    faults.script(Rule::on("PutItem").nth(1).pause_before(&gate));
    let (reads, writes) = (faults.calls("Query"), faults.calls("PutItem"));
    let overtake = async {
        gate.reached(1).await;
        theirs.decide(note(1)).await.expect("decides").accepted().expect("recorded");
        gate.open();
    };
    let (outcome, ()) = futures::future::join(async { ours.decide(note(1)).cache(&cache).await }, overtake).await;
    let outcome = outcome.expect("decides");
    assert_eq!(outcome.tries, 2);
    assert_eq!((faults.calls("Query") - reads, faults.calls("PutItem") - writes), (1, 2), "{:?}", outcome.units);
    assert_eq!((outcome.units.requests, outcome.units.write), (3, 2.0), "the refused write is billed");
    assert!(outcome.units.read <= 1.0, "{}", outcome.units);
}

#[tokio::test]
async fn a_rejection_over_two_tags_is_confirmed_for_two_units_each() {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let both = || {
        (
            fold(("order", 1), 0, |n, _: &Order| *n += 1).cached_as("orders"),
            fold(("customer", 1), 0, |n, _: &Order| *n += 1).cached_as("customers"),
        )
    };
    let cache = Cache::new(10);
    let no = || decision(both(), |_: &(i32, i32)| Err::<(), _>("no"));
    let _ = store.decide(no()).cache(&cache).await.expect("decides");
    let warm = store.decide(no()).cache(&cache).await.expect("decides").units;
    // Two deltas with nothing new, and one transaction of two reads.
    assert_eq!((warm.requests, warm.write), (3, 0.0), "{warm}");
    assert_eq!(warm.read, 2.0 * 1.0 + 2.0 * 2.0, "{warm}");
    let pay = decision(both(), |_: &(i32, i32)| Ok::<_, ()>([Order::Paid { order: 1, customer: 1 }]));
    let paid = store.decide(pay).cache(&cache).await.expect("decides").units;
    assert_eq!((paid.requests, paid.write), (3, 4.0), "{paid}");
}

#[tokio::test]
async fn a_decision_under_a_key_costs_a_look_and_one_more_item_and_its_repeat_two_reads() {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let cache = Cache::new(10);
    let _ = store.decide(note(1)).cache(&cache).await.expect("decides");
    let first = store.decide(note(1)).cache(&cache).once("k").await.expect("decides").units;
    assert_eq!((first.requests, first.write), (3, 4.0), "{first}");
    // The look is a transaction of one read: two units. What came since the cache: one.
    assert_eq!(first.read, 3.0, "{first}");
    let again = store.decide(note(1)).cache(&cache).once("k").await.expect("decides").units;
    assert_eq!((again.requests, again.write), (2, 0.0), "{again}");
}

struct Notes;

impl Decider for Notes {
    type State = u32;
    type Event = Order;
    type Command = ();
    type Rejection = ();
    fn initial(&self) -> u32 {
        0
    }
    fn evolve(&self, notes: &mut u32, _: &Order) {
        *notes += 1;
    }
    fn decide(&self, (): &(), _: &u32) -> Result<Vec<Order>, ()> {
        Ok(vec![Order::Noted { order: 1, text: json(400, 1) }])
    }
}

#[tokio::test]
async fn a_warm_decision_on_a_stream_costs_the_same_and_a_cold_one_with_a_snapshot_reads_only_behind_it() {
    let store = open(Ground::embedded().builder("feed=streams")).await;
    let (cache, stream) = (Cache::new(10), StreamName::new("order:1").expect("name"));
    let orders = Category::new(store.streams(), Notes).cache(&cache);
    for n in 0..60 {
        let cost = orders.decide(&stream, &()).await.expect("decides").units;
        assert!(n == 0 || (cost.requests == 2 && cost.write == 1.0 && cost.read <= 1.0), "{n}: {cost}");
    }
    let whole = Category::new(store.streams(), Notes).decide(&stream, &()).await.expect("decides").units;
    let snapped = Category::new(store.streams(), Notes).snapshots("notes-1", 10);
    for _ in 0..10 {
        let _ = snapped.decide(&stream, &()).await.expect("decides");
    }
    let behind = snapped.decide(&stream, &()).await.expect("decides").units;
    assert!(behind.read <= 2.5 && whole.read > 2.0 * behind.read, "{behind} behind a snapshot, {whole} without");
}

/// The README's table is what this prints: `FENCEPOST_BLESS=1` writes it there, otherwise it must stand there.
#[tokio::test]
async fn the_readme_shows_these_units() {
    let one = || Append::new([event(500, &["order:1"])]);
    let mut rows = vec![row("1 event of 500 B, 1 tag", append("streams", one).await, append("lanes-1", one).await)];
    rows.push(row("1 event of 300 B, 2 tags, under a condition on both", conditional("streams").await, conditional("lanes-1").await));
    rows.push(row("20 events of 150 B over 21 tags", append("streams", twenty).await, append("lanes-1", twenty).await));
    rows.push(row("1,000 events of 300 B, 1 tag, atomic", append("streams", thousand).await, append("lanes-1", thousand).await));
    let table = format!("| append | `streams` | `lanes-1` | requests |\n| --- | --- | --- | --- |\n{}", rows.join("\n"));
    println!("{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(path).expect("README");
    let (before, rest) = readme.split_once("<!-- units -->").expect("the marker");
    let (_, after) = rest.split_once("<!-- /units -->").expect("the end marker");
    let blessed = format!("{before}<!-- units -->\n{table}\n<!-- /units -->{after}");
    if std::env::var_os("FENCEPOST_BLESS").is_some() {
        std::fs::write(path, blessed).expect("README written");
    } else {
        assert!(readme == blessed, "the README shows other units: run this test with FENCEPOST_BLESS=1");
    }
}

async fn append(feed: &str, append: impl Fn() -> Append) -> Units {
    warm(&*log(feed).await, append).await.units
}

fn row(name: &str, streams: Units, lanes: Units) -> String {
    format!("| {name} | {} | {} | {} |", streams.write, lanes.write, streams.requests)
}
