//! The protocol of the ledger, broken on purpose: each way to break it makes its scenario fail, so the scenarios can fail.
//! The mutations are those that the ledger's specification lists; the interleavings are forced by a connector, not hoped for.

mod support;

use std::time::Duration;

use fencepost::testing::{Faults, Gate, Keep, Rule};
use fencepost::{
    Append, Delivery, Engine, Error, Event, EventLog, EventLogExt, From, Mutation, Query, ReadOptions, Recorded, Store, Timeouts,
};
use futures::StreamExt;

type Held = Result<(), String>;

/// One store's tables, opened through any connector.
struct Table {
    engine: Engine,
    feed: &'static str,
    mutation: Option<Mutation>,
}

impl Table {
    fn new(feed: &'static str, mutation: Option<Mutation>) -> Table {
        Table { engine: Engine::memory().expect("engine"), feed, mutation }
    }

    fn builder(&self) -> fencepost::Builder {
        let builder = Store::builder(&format!("memory:?feed={}", self.feed)).expect("url").http_client(self.engine.http_client());
        match self.mutation {
            Some(mutation) => builder.mutate(mutation),
            None => builder,
        }
    }

    async fn open(&self) -> Store {
        support::open(self.builder()).await
    }

    async fn on_lane(&self, lane: u8) -> Store {
        support::open(self.builder().keep_to_lane(lane)).await
    }

    /// Through connectors, the last one nearest to the store.
    async fn through(&self, faults: &Faults) -> Store {
        support::open(self.builder().http_client(faults.http_client())).await
    }
}

fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type, "{}").expect("event"), |event, tag| event.tag(tag).expect("tag"))
}

fn tag(tag: &str) -> Query {
    Query::tag(tag).expect("query")
}

fn must(held: bool, what: &str) -> Held {
    if held { Ok(()) } else { Err(what.into()) }
}

async fn caught(mutation: Mutation, scenario: impl AsyncFn(Option<Mutation>) -> Held) {
    assert_eq!(scenario(None).await, Ok(()), "the protocol as it is");
    let broken = scenario(Some(mutation)).await;
    assert!(broken.is_err(), "{mutation:?} was not noticed");
}

/// A decides on `query`; meanwhile B appends `theirs`; A's append of `ours` must conflict.
async fn overtaken(table: &Table, a: &Store, b: &Store, query: Query, theirs: Event, ours: Event) -> Held {
    let _ = table;
    let (a, b) = (a.log().expect("log"), b.log().expect("log"));
    let token = a.source(&query, None).await.expect("source").token;
    b.append(Append::new([theirs])).await.expect("theirs");
    let answer = a.append(Append::new([ours]).unless(query, token)).await;
    must(matches!(&answer, Err(Error::Conflict(c)) if c.events.len() == 1), &format!("no conflict: {answer:?}"))
}

#[tokio::test]
async fn no_slot_on_unconditional_append() {
    caught(Mutation::NoSlotOnUnconditional, async |mutation| {
        let table = Table::new("lanes-1", mutation);
        let (a, b) = (table.open().await, table.open().await);
        overtaken(&table, &a, &b, tag("a"), event("T", &["a"]), event("T", &["a"])).await
    })
    .await;
}

#[tokio::test]
async fn own_lane_unchecked() {
    caught(Mutation::OwnLaneUnchecked, async |mutation| {
        let table = Table::new("lanes-2", mutation);
        let (a, b) = (table.on_lane(0).await, table.on_lane(0).await);
        overtaken(&table, &a, &b, Query::types(["T"]).expect("query"), event("T", &["x"]), event("U", &["y"])).await
    })
    .await;
}

#[tokio::test]
async fn other_lanes_unchecked() {
    caught(Mutation::OtherLanesUnchecked, async |mutation| {
        let table = Table::new("lanes-2", mutation);
        let (a, b) = (table.on_lane(0).await, table.on_lane(1).await);
        overtaken(&table, &a, &b, Query::types(["T"]).expect("query"), event("T", &["x"]), event("U", &["y"])).await
    })
    .await;
}

#[tokio::test]
async fn read_only_cover_unchecked() {
    caught(Mutation::ReadOnlyCoverUnchecked, async |mutation| {
        let table = Table::new("streams", mutation);
        let (a, b) = (table.open().await, table.open().await);
        overtaken(&table, &a, &b, tag("a").or(tag("b")), event("T", &["b"]), event("T", &["a"])).await
    })
    .await;
}

#[tokio::test]
async fn no_reevaluation() {
    caught(Mutation::NoReevaluation, async |mutation| {
        let table = Table::new("streams", mutation);
        let (a, b) = (table.open().await, table.open().await);
        overtaken(&table, &a, &b, tag("a"), event("T", &["a"]), event("T", &["a"])).await
    })
    .await;
}

#[tokio::test]
async fn lane_stepped_over() {
    caught(Mutation::LaneSteppedOver, async |mutation| {
        let table = Table::new("lanes-1", mutation);
        let (a, b) = (table.open().await, table.open().await);
        overtaken(&table, &a, &b, Query::all(), event("T", &["x"]), event("U", &["y"])).await
    })
    .await;
}

#[tokio::test]
async fn held_by_today() {
    caught(Mutation::HeldByToday, async |mutation| {
        let table = Table::new("streams", mutation);
        let (a, b) = (table.open().await, table.open().await);
        overtaken(&table, &a, &b, tag("a"), event("T", &["a"]), event("T", &["a"])).await
    })
    .await;
}

#[tokio::test]
async fn a_token_for_any_query() {
    caught(Mutation::AnyToken, async |mutation| {
        let log = Table::new("streams", mutation).open().await.log().expect("log");
        let token = log.source(&tag("a"), None).await.expect("source").token;
        let read = log.source(&tag("b"), Some(&token)).await;
        must(matches!(read, Err(Error::Refused(_))), "source took a token of another query")?;
        let append = log.append(Append::new([event("T", &["b"])]).unless(tag("b"), token)).await;
        must(matches!(append, Err(Error::Refused(_))), "append took a token that holds nothing of its condition")
    })
    .await;
}

#[tokio::test]
async fn unchanged_without_looking() {
    caught(Mutation::Unconfirmed, async |mutation| {
        let log = Table::new("streams", mutation).open().await.log().expect("log");
        let token = log.source(&tag("a").or(tag("b")), None).await.expect("source").token;
        must(log.unchanged(&token).await.expect("unchanged").value, "nothing has changed yet")?;
        log.append(Append::new([event("T", &["b"])])).await.expect("append");
        must(!log.unchanged(&token).await.expect("unchanged").value, "a change was not seen")
    })
    .await;
}

/// Reads a query over tags a and b while an event that carries both is appended: seen on `seen`, not yet on the other.
async fn torn(table: &Table, query: &Query, seen: &str, hidden: &str, between: Event) -> (Store, fencepost::Sourced) {
    let faults = Faults::new(table.engine.http_client(), 1);
    let store = table.through(&faults).await;
    let (early, late) = (Gate::new(), Gate::new());
    faults.script(Rule::on("Query").holding(&format!("t/main/{hidden}")).nth(1).pause_after(&early));
    faults.script(Rule::on("Query").holding(&format!("t/main/{seen}")).nth(1).pause_before(&late));
    let log = store.log().expect("log");
    let read = tokio::spawn({
        let query = query.clone();
        async move { log.source(&query, None).await }
    });
    early.reached(1).await;
    late.reached(1).await;
    table.open().await.log().expect("log").append(Append::new([between])).await.expect("between");
    late.release(1);
    early.release(1);
    let sourced = read.await.expect("joins").expect("source");
    (store, sourced)
}

async fn folded_once(store: &Store, query: &Query, first: fencepost::Sourced) -> Held {
    let log = store.log().expect("log");
    let delta = log.source(query, Some(&first.token)).await.expect("delta");
    let events: Vec<Recorded> = first.events.into_iter().chain(delta.events).collect();
    must(events.len() == 1, &format!("folded {} times", events.len()))
}

#[tokio::test]
async fn entries_counted_again() {
    caught(Mutation::CountedAgain, async |mutation| {
        let table = Table::new("streams", mutation);
        let query = tag("a").or(tag("b"));
        let (store, first) = torn(&table, &query, "b", "a", event("T", &["a", "b"])).await;
        folded_once(&store, &query, first).await
    })
    .await;
}

#[tokio::test]
async fn judged_only_by_the_items_it_covers() {
    caught(Mutation::JudgedByOwnItems, async |mutation| {
        let table = Table::new("streams", mutation);
        // The event matches through b alone, and is met on a, which was chosen for another item.
        let query = Query::item(["Other"], ["a"]).expect("query").or(tag("b"));
        let (store, first) = torn(&table, &query, "a", "b", event("T", &["a", "b"])).await;
        folded_once(&store, &query, first).await
    })
    .await;
}

/// Two commits, the second of which follows the first on another lane, read by a feed that meets the second lane first.
async fn fed_in_order(table: &Table, first: Append, second: impl AsyncFnOnce(&dyn EventLog)) -> Held {
    let faults = Faults::new(table.engine.http_client(), 1);
    let store = table.through(&faults).await;
    let (early, late) = (Gate::new(), Gate::new());
    faults.script(Rule::on("Query").holding("l/main/0").nth(1).pause_after(&early));
    faults.script(Rule::on("Query").holding("l/main/1").nth(1).pause_before(&late));
    let feed = store.feed().expect("feed").subscribe(From::Start, Query::all());
    let fed = tokio::spawn(async move {
        let events = feed.filter_map(async |delivery| match delivery.expect("fed") {
            Delivery::Event { event, .. } => Some(event.event_type.to_string()),
            _ => None,
        });
        events.take(2).collect::<Vec<_>>().await
    });
    early.reached(1).await;
    late.reached(1).await;
    table.on_lane(0).await.log().expect("log").append(first).await.expect("first");
    let other = table.on_lane(1).await.log().expect("log");
    second(&*other).await;
    late.release(1);
    early.release(1);
    let order = fed.await.expect("joins");
    must(order == ["First", "Second"], &format!("{order:?}"))
}

#[tokio::test]
async fn no_dependencies() {
    caught(Mutation::NoDeps, async |mutation| {
        let table = Table::new("lanes-2", mutation);
        fed_in_order(&table, Append::new([event("First", &["t"])]), async |log| {
            log.append(Append::new([event("Second", &["t"])])).await.expect("second");
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn dependencies_without_checked_lanes() {
    caught(Mutation::DepsWithoutCheckedLanes, async |mutation| {
        let table = Table::new("lanes-2", mutation);
        fed_in_order(&table, Append::new([event("First", &["x"])]), async |log| {
            let seen = log.source(&Query::all(), None).await.expect("source");
            assert_eq!(seen.events.len(), 1);
            log.append(Append::new([event("Second", &["y"])]).unless(Query::all(), seen.token)).await.expect("second");
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn no_look_before_a_conflict_in_doubt() {
    caught(Mutation::NoLook, async |mutation| {
        let table = Table::new("streams", mutation);
        // Far: the answer is lost, and of the repeat's reasons only the last is told. Near: the repeat waits until another has appended.
        let far = Faults::new(table.engine.http_client(), 1);
        let near = Faults::new(far.http_client(), 2);
        let store = table.through(&near).await;
        let log = store.log().expect("log");
        let query = tag("a").or(tag("c"));
        let token = log.source(&query, None).await.expect("source").token;
        let gate = Gate::new();
        far.script(Rule::on("TransactWriteItems").nth(1).lose_response());
        far.script(Rule::on("TransactWriteItems").nth(2).hide_reasons(Keep::Last));
        near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&gate));
        let ours = tokio::spawn({
            let (log, query) = (log.clone(), query.clone());
            async move { log.append(Append::new([event("T", &["a"])]).unless(query, token)).await }
        });
        gate.reached(1).await;
        table.open().await.log().expect("log").append(Append::new([event("T", &["c"])])).await.expect("theirs");
        gate.release(1);
        let answer = ours.await.expect("joins");
        must(answer.is_ok(), &format!("our commit had landed: {answer:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_repeat_at_the_end() {
    caught(Mutation::RepeatAtEnd, async |mutation| {
        let table = Table::new("streams", mutation);
        let faults = Faults::new(table.engine.http_client(), 1);
        let timeouts = Timeouts { attempts: 2, ..Timeouts::default() };
        let store = support::open(table.builder().timeouts(timeouts).http_client(faults.http_client())).await;
        faults.script(Rule::on("PutItem").lose_response());
        let append = || Append::new([event("T", &["a"])]);
        let Err(Error::InDoubt(doubt)) = store.log().expect("log").append(append()).await else { return Err("not in doubt".into()) };
        let other = table.open().await.log().expect("log");
        other.append(append()).await.expect("another's");
        let again = other.append(append().again(doubt.commit, doubt.base)).await.expect("again");
        let all = other.read_all(&tag("a"), ReadOptions::default()).await.expect("read");
        must(all.len() == 2 && all[0].position == again.positions[0], &format!("{} events", all.len()))
    })
    .await;
}

#[tokio::test]
async fn chunks_without_a_seal() {
    caught(Mutation::NoSeal, async |mutation| {
        let table = Table::new("lanes-1", mutation);
        let faults = Faults::new(table.engine.http_client(), 1);
        let store = table.through(&faults).await;
        let gate = Gate::new();
        // Without a seal and with a single lane the commit is one transaction of two items, or with untagged events one put.
        faults.script(Rule::on("TransactWriteItems").nth(1).pause_before(&gate));
        let log = store.log().expect("log");
        let large: Vec<Event> = (0..300).map(|_| Event::new("T", "x".repeat(2_000)).and_then(|e| e.tag("a")).expect("event")).collect();
        let append = tokio::spawn(async move { log.append(Append::new(large)).await });
        gate.reached(1).await;
        let sweeper = table.open().await;
        let swept = sweeper.collect_garbage(Duration::ZERO).await.expect("gc");
        assert_eq!(swept.sets, 1, "{swept:?}");
        gate.release(1);
        append.await.expect("joins").expect("append");
        let read = sweeper.log().expect("log").read_all(&tag("a"), ReadOptions::default()).await;
        must(matches!(&read, Ok(events) if events.len() == 300), "the bodies are gone")?;
        let verified = sweeper.verify(&|_| ()).await.expect("verify");
        must(verified.findings.is_empty(), &format!("{:?}", verified.findings))
    })
    .await;
}
