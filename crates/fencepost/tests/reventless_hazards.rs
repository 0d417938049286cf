//! The hazards of the published algorithm, H1 to H12 of the layout's page: each is forced, shown to go wrong with `fencing=as-published`,
//! and held with ours. `Ok` is what must hold; an `Err` says what was lost. On the embedded engine alone, since clocks stand here.

mod support;

use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use fencepost::testing::{Faults, Gate, Lag, Rule};
use fencepost::{
    After, Append, Cache, Engine, Env, Error, Event, EventLog, EventLogExt, Query, ReadOptions, Store, Timeouts, decision, fold,
};
use serde::{Deserialize, Serialize};

type Held = Result<(), String>;

const PUBLISHED: &str = "as-published";
const OURS: &str = "counters";

/// One table, opened through any connector and with any clock.
struct Table {
    engine: Engine,
    fencing: &'static str,
    parameters: &'static str,
}

impl Table {
    fn new(fencing: &'static str) -> Table {
        Self::with(fencing, "partition=order&cross=product")
    }
    fn with(fencing: &'static str, parameters: &'static str) -> Table {
        Table { engine: Engine::memory().expect("engine"), fencing, parameters }
    }

    async fn through(&self, http: SharedHttpClient, clock: u64) -> Store {
        let url = format!("memory:?layout=reventless&{}&fencing={}", self.parameters, self.fencing);
        let env = Env::seeded(clock);
        env.advance(Duration::from_millis(clock));
        let quick = Timeouts { attempts: 3, operation: Duration::from_secs(10), ..Timeouts::default() };
        support::open(Store::builder(&url).expect("url").http_client(http).env(env).timeouts(quick)).await
    }
    /// A process whose clock stands so many milliseconds behind the start.
    async fn at(&self, clock: u64) -> Arc<dyn EventLog> {
        self.through(self.engine.http_client(), clock).await.log().expect("log")
    }
}

fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type, r#"{"order":1}"#).expect("event"), |event, tag| event.tag(tag).expect("tag"))
}
fn typed(types: &[&str], tags: &[&str]) -> Query {
    Query::item(types, tags).expect("query")
}
fn must(held: bool, what: &str) -> Held {
    if held { Ok(()) } else { Err(what.into()) }
}
fn conflicts(outcome: &fencepost::Result<fencepost::Committed>, what: &str) -> Held {
    assert!(matches!(outcome, Ok(_) | Err(Error::Conflict(_))), "{outcome:?}");
    must(outcome.is_err(), what)
}

async fn hazard(scenario: impl AsyncFn(&'static str) -> Held) {
    assert_eq!(scenario(OURS).await, Ok(()), "ours");
    let lost = scenario(PUBLISHED).await;
    assert!(lost.is_err(), "the published algorithm was to go wrong here");
}

/// W1 stamps itself at 100 and is held up; W2 stamps 105 and commits; then somebody acts, W1 lands, and somebody acts again.
async fn late_writer<T>(table: &Table, between: impl AsyncFnOnce() -> T) -> T {
    let faults = Faults::new(table.engine.http_client(), 1);
    let gate = Gate::new();
    let late = table.through(faults.http_client(), 100).await.log().expect("log");
    faults.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
    let landing = tokio::spawn(async move { late.append(Append::new([event("T", &["order:1"])])).await });
    gate.reached(1).await;
    table.at(105).await.append(Append::new([event("T", &["order:1"])])).await.expect("W2");
    let seen = between().await;
    gate.open();
    landing.await.expect("joins").expect("W1 lands");
    seen
}

#[tokio::test]
async fn h01_a_late_bump_never_hides_an_event_from_the_fence() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let query = typed(&["T"], &["order:1"]);
        let reader = table.at(110).await;
        let seen = late_writer(&table, async || reader.source(&query, None).await.expect("source")).await;
        assert_eq!(seen.events.len(), 1);
        let outcome = reader.append(Append::new([event("T", &["order:1"])]).unless(query, seen.token)).await;
        conflicts(&outcome, "decided without W1's event, and recorded")
    })
    .await;
}

#[tokio::test]
async fn h02_a_clock_that_lags_never_hides_an_event() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let query = typed(&["T"], &["order:1"]);
        let (slow, right) = (table.at(50).await, table.at(200).await);
        right.append(Append::new([event("T", &["order:1"])])).await.expect("first");
        let mine = right.source(&query, None).await.expect("source").token;
        let theirs = slow.source(&query, None).await.expect("source").token;
        slow.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), theirs)).await.expect("by the slow clock");
        let delta = right.source(&query, Some(&mine)).await.expect("delta");
        let outcome = right.append(Append::new([event("T", &["order:1"])]).unless(query, mine)).await;
        must(delta.events.len() == 1, "a delta passed the event over")?;
        conflicts(&outcome, "decided without the slow clock's event, and recorded")
    })
    .await;
}

#[tokio::test]
async fn h03_two_clauses_read_at_two_moments_are_each_held() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let faults = Faults::new(table.engine.http_client(), 1);
        let reader = table.through(faults.http_client(), 100).await.log().expect("log");
        let query = typed(&["T"], &["order:a"]).or(typed(&["T"], &["order:b"]));
        let gate = Gate::new();
        faults.script(Rule::on("Query").holding("order:b").nth(1).pause_before(&gate));
        let reading = tokio::spawn({
            let (reader, query) = (reader.clone(), query.clone());
            async move { reader.source(&query, None).await }
        });
        gate.reached(1).await;
        table.at(60).await.append(Append::new([event("T", &["order:a"])])).await.expect("W1");
        table.at(70).await.append(Append::new([event("T", &["order:b"])])).await.expect("W2");
        gate.open();
        let token = reading.await.expect("joins").expect("source").token;
        let outcome = reader.append(Append::new([event("T", &["order:a"])]).unless(query, token)).await;
        conflicts(&outcome, "write skew: the other clause's head hid what came on this one")
    })
    .await;
}

/// Two engines, of which the second lags; two events on one cross tag, in two partitions; the index shows the second only.
async fn lagging(fencing: &'static str, parameters: &'static str, first: Append, shown: &str) -> (Lag, Arc<dyn EventLog>) {
    let engines = [Engine::memory().expect("engine"), Engine::memory().expect("engine")];
    let lag = Lag::new(engines[0].http_client(), engines[1].http_client(), 1);
    let table = Table { engine: engines[0].clone(), fencing, parameters };
    let log = table.through(lag.http_client(), 60).await.log().expect("log");
    lag.apply_all().await;
    log.append(first).await.expect("events");
    for pending in lag.pending().iter().filter(|pending| pending.key.contains(shown) && !pending.key.contains("fence#")) {
        lag.apply(pending.id).await;
    }
    (lag, log)
}

/// A read either shows all, or is an error; and an append on less must not land.
async fn whole_or_nothing(lag: &Lag, log: &dyn EventLog, query: Query, ours: Event) -> Held {
    match log.source(&query, None).await {
        Ok(seen) if seen.events.len() == 2 => {}
        Ok(seen) => {
            let outcome = log.append(Append::new([ours]).unless(query, seen.token)).await;
            return conflicts(&outcome, &format!("decided on {} of 2 events, and recorded", seen.events.len()));
        }
        Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error}"),
    }
    lag.apply_all().await;
    must(log.source(&query, None).await.expect("source").events.len() == 2, "not even once all shows")
}

#[tokio::test]
async fn h04_an_index_that_lags_feeds_a_decision_only_when_it_shows_all() {
    hazard(async |fencing| {
        let both = Append::new([event("T", &["order:1", "product:p"]), event("T", &["order:2", "product:p"])]);
        let (lag, log) = lagging(fencing, "partition=order&cross=product", both, "order:2").await;
        whole_or_nothing(&lag, &*log, typed(&["T"], &["product:p"]), event("T", &["order:3", "product:p"])).await
    })
    .await;
}

/// A connector that shows one partition's events to no read that need not be fresh.
fn blind(inner: SharedHttpClient, partition: &'static str) -> SharedHttpClient {
    #[derive(Debug)]
    struct Blind(SharedHttpConnector, &'static str);
    impl HttpConnector for Blind {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            let target = request.headers().get("x-amz-target").unwrap_or_default().to_owned();
            let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
            let stale = !body.contains("\"ConsistentRead\":true") && body.contains(self.1);
            let answer = match target.rsplit('.').next() {
                Some("GetItem") if stale => "{}",
                Some("BatchGetItem") if stale => r#"{"Responses":{},"UnprocessedKeys":{}}"#,
                _ => return self.0.call(request),
            };
            let mut response = HttpResponse::new(200.try_into().expect("status"), SdkBody::from(answer));
            response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
            HttpConnectorFuture::ready(Ok(response))
        }
    }
    http_client_fn(move |settings, components| SharedHttpConnector::new(Blind(inner.http_connector(settings, components), partition)))
}

#[tokio::test]
async fn h05_what_an_index_names_and_a_replica_lacks_is_read_again_strongly() {
    hazard(async |fencing| {
        let table = Table::with(fencing, "partition=order&cross=product&consistency=escalate");
        for (clock, order) in [(60, "order:1"), (70, "order:2")] {
            table.at(clock).await.append(Append::new([event("T", &[order, "product:p"])])).await.expect("append");
        }
        let log = table.through(blind(table.engine.http_client(), "order:1"), 100).await.log().expect("log");
        let query = typed(&["T"], &["product:p"]);
        let seen = log.source(&query, None).await.expect("source");
        if seen.events.len() == 2 {
            return Ok(());
        }
        let outcome = log.append(Append::new([event("T", &["order:3", "product:p"])]).unless(query, seen.token)).await;
        conflicts(&outcome, "an event was dropped, and the fence agreed")
    })
    .await;
}

#[tokio::test]
async fn h06_a_commit_that_shows_in_part_is_not_decided_on() {
    hazard(async |fencing| {
        let both = Append::new([event("T", &["order:1"]), event("T", &["order:1"])]);
        let (lag, log) = lagging(fencing, "partition=order&consistency=eventual", both, "-002").await;
        whole_or_nothing(&lag, &*log, typed(&["T"], &["order:1"]), event("T", &["order:1"])).await
    })
    .await;
    // What a replica hides is read strongly at once, where that is asked for.
    hazard(async |fencing| {
        let both = Append::new([event("T", &["order:1"]), event("T", &["order:1"])]);
        let (_lag, log) = lagging(fencing, "partition=order&consistency=escalate", both, "-002").await;
        let seen = log.source(&typed(&["T"], &["order:1"]), None).await.expect("source");
        must(seen.events.len() == 2, "decided on what a replica shows")
    })
    .await;
}

/// As published, `escalate` reads what may be old, and strongly only once an append was lost by it.
#[tokio::test]
async fn the_published_escalation_reads_strongly_after_a_conflict() {
    let first = Append::new([event("T", &["order:1"])]);
    for (consistency, then) in [("partition=order&consistency=escalate", 1), ("partition=order&consistency=eventual", 0)] {
        let (_lag, log) = lagging(PUBLISHED, consistency, first.clone(), "nothing").await;
        let query = typed(&["T"], &["order:1"]);
        let seen = log.source(&query, None).await.expect("source");
        assert_eq!(seen.events.len(), 0, "a replica that lags");
        let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), seen.token)).await;
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
        assert_eq!(log.source(&query, None).await.expect("source").events.len(), then, "{consistency}");
        assert_eq!(log.source(&query, None).await.expect("source").events.len(), 0, "the next decision begins anew");
    }
}

#[tokio::test]
async fn h07_a_read_that_fails_is_an_error() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        for order in ["order:a", "order:b"] {
            table.at(60).await.append(Append::new([event("T", &[order])])).await.expect("append");
        }
        let faults = Faults::new(table.engine.http_client(), 1);
        let log = table.through(faults.http_client(), 100).await.log().expect("log");
        faults.script(Rule::on("Query").holding("order:b").internal_error());
        let query = typed(&["T"], &["order:a"]).or(typed(&["T"], &["order:b"]));
        let seen = log.source(&query, None).await;
        must(matches!(seen, Err(Error::Unavailable(_))), "a clause that failed was taken for one that had ended")
    })
    .await;
}

#[tokio::test]
async fn h08_what_was_not_there_is_guarded_by_any_tag() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let (one, other) = (table.at(60).await, table.at(70).await);
        let query = typed(&["T"], &["note:n", "product:p"]);
        let tokens = [one.source(&query, None).await.expect("source").token, other.source(&query, None).await.expect("source").token];
        let [first, second] = tokens;
        one.append(Append::new([event("T", &["order:1", "product:p", "note:n"])]).unless(query.clone(), first)).await.expect("first");
        let outcome = other.append(Append::new([event("T", &["order:2", "product:p", "note:n"])]).unless(query, second)).await;
        conflicts(&outcome, "two of what must be one")
    })
    .await;
}

#[tokio::test]
async fn h08_a_type_that_is_written_and_not_read_never_wedges() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let query = typed(&["U"], &["order:1"]);
        for clock in [60, 70, 80] {
            let log = table.at(clock).await;
            let token = log.source(&query, None).await.expect("source").token;
            let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), token)).await;
            must(outcome.is_ok(), "a conflict that no reading ends")?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn h09_a_clause_without_types_is_held() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let query = Query::tag("order:1").expect("query");
        let log = table.at(60).await;
        table.at(50).await.append(Append::new([event("T", &["order:1"])])).await.expect("there");
        let token = log.source(&query, None).await.expect("source").token;
        table.at(70).await.append(Append::new([event("T", &["order:1"])])).await.expect("between");
        let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), token)).await;
        conflicts(&outcome, "no check at all")?;
        conflicts(&log.append(Append::new([event("T", &["order:1"])]).unless(query, After::Nothing)).await, "no check of history")
    })
    .await;
}

#[tokio::test]
async fn h10_an_import_leaves_no_conflict_that_no_reading_ends() {
    hazard(async |fencing| {
        // The peer reads a key that is not declared in its own partition only; here such a read is refused, and a declared key is whole.
        let parameters = if fencing == PUBLISHED { "partition=order" } else { "partition=order&cross=product" };
        let table = Table::with(fencing, parameters);
        let log = table.at(60).await;
        log.append(Append::new([event("P", &["product:p"])])).await.expect("the product");
        table.at(70).await.append(Append::new([event("T", &["order:1", "product:p"])])).await.expect("the import");
        let query = typed(&["P", "T"], &["product:p"]);
        let mut outcomes = Vec::new();
        for clock in [80, 90, 100] {
            let log = table.at(clock).await;
            let token = log.source(&query, None).await.expect("source").token;
            outcomes.push(log.append(Append::new([event("P", &["product:p"])]).unless(query.clone(), token)).await.is_ok());
        }
        must(outcomes.iter().all(|ok| *ok), "a conflict that no reading ends")
    })
    .await;
    let undeclared = Table::with(OURS, "partition=order").at(60).await;
    let refused = undeclared.source(&typed(&["T"], &["product:p"]), None).await;
    let told = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("cross=product"), "an undeclared key is refused with what to declare: {refused:?}");
}

#[tokio::test]
async fn h11_who_reads_on_behind_a_position_misses_nothing_on_the_tag() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let query = typed(&["T"], &["order:1"]);
        let reader = table.at(110).await;
        let read = async |options: ReadOptions| reader.read_all(&query, options).await.expect("read");
        let checkpoint = late_writer(&table, async || read(ReadOptions::default()).await[0].position).await;
        must(read(ReadOptions::default().after(checkpoint)).await.len() == 1, "a commit that landed late was passed over")
    })
    .await;
}

#[derive(Event, Serialize, Deserialize)]
enum Order {
    T {
        #[tag("order")]
        order: u32,
    },
}

#[tokio::test]
async fn h12_a_warm_decision_misses_nothing() {
    hazard(async |fencing| {
        let table = Table::new(fencing);
        let store = table.through(table.engine.http_client(), 110).await;
        let cache = Cache::new(10);
        let count = || {
            let counted = fold(("order", 1), 0_u32, |count, _: &Order| *count += 1).cached_as("count");
            decision(counted, |count| Err::<[Order; 0], u32>(*count))
        };
        let decide = async || store.decide(count()).cache(&cache).await.expect("decides").rejection().copied();
        let before = late_writer(&table, async || decide().await).await;
        assert_eq!(before, Some(1));
        let after = decide().await;
        assert_eq!(cache.stats().hits, 1, "the second began with what was kept");
        must(after == Some(2), "the warm state lacks an event for good")
    })
    .await;
}
