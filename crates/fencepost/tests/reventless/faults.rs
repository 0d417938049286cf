//! The truth under faults: lost answers, repeats, storms.

use fencepost::testing::oracle::{self, Oracle};
use fencepost::testing::{Chances, Fault, Gate, Rule};
use fencepost::{
    Answer, Append, CommitId, Committed, EventLogExt, Expect, LoadOptions, ReadOptions, Recorded, Sourced, Step, StreamName, Token,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::*;

/// Every fault that passes: the append succeeds, and its event is there once.
#[tokio::test]
async fn faults_that_pass_are_settled() {
    for fault in [
        Fault::Throttle,
        Fault::InternalError,
        Fault::LoseRequest,
        Fault::LoseResponse,
        Fault::TimeOut,
        Fault::Truncate,
        Fault::DeliverTwice,
        Fault::Hang,
        Fault::Conflict,
        Fault::InProgress,
        Fault::TokenMismatch,
    ] {
        // With the engine's tokens and without: past ten minutes only the keys are left.
        for engine in [Engine::memory().expect("engine").keep_tokens(), Engine::memory().expect("engine")] {
            let table = Table::on(engine.http_client(), "partition=order&cross=product");
            let faults = Faults::new(table.http(), 1);
            let log = table.through(&faults).await;
            let two = || event("T", &["order:1", "product:p"]);
            log.append(Append::new([two()])).await.expect("warm");
            faults.script(Rule::on("TransactWriteItems").nth(1).suffer(fault.clone()));
            let token = log.source(&tag("order:1"), None).await.expect("source").token;
            let done = log.append(Append::new([two()]).unless(tag("order:1"), token)).await;
            assert!(done.is_ok(), "{fault:?}: {done:?}");
            faults.calm();
            let moved = done.expect("done").token.expect("token");
            assert!(log.source(&tag("order:1"), Some(&moved)).await.expect("delta").events.is_empty(), "{fault:?}: behind its own event");
            assert_eq!(log.source(&tag("product:p"), None).await.expect("source").events.len(), 2, "{fault:?}");
        }
    }
}

/// Lost for good: in doubt, and the repeat from the base finds the truth, whichever it is.
#[tokio::test]
async fn what_stays_unanswered_is_in_doubt_and_the_repeat_settles_it() {
    for (fault, landed) in [(Fault::LoseResponse, true), (Fault::LoseRequest, false), (Fault::Hang, false)] {
        let table = Table::new("partition=order");
        let faults = Faults::new(table.http(), 1);
        let log = table.through(&faults).await;
        faults.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
        let answer = log.append(Append::new([event("T", &["order:1"])])).await;
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{fault:?}: {answer:?}") };
        faults.calm();
        let other = table.log().await;
        assert_eq!(other.source(&tag("order:1"), None).await.expect("source").events.len(), usize::from(landed), "{fault:?}");
        other.append(Append::new([event("T", &["order:1"])])).await.expect("another's");
        let base: fencepost::Base = doubt.base.to_string().parse().expect("base");
        let first = other.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, base.clone())).await.expect("again");
        let count = other.source(&tag("order:1"), None).await.expect("source").events.len();
        assert_eq!(count, 2, "{fault:?}");
        let again = other.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, base.clone())).await.expect("and again");
        assert_eq!(first.positions, again.positions);
        let reused = other.append(Append::new([event("U", &["order:1"])]).again(doubt.commit, base)).await;
        assert!(matches!(reused, Err(Error::Refused(Refused::Reused { .. }))), "{reused:?}");
    }
}

/// The try in doubt is still on its way when the repeat looks, and lands between two tries of the repeat: one commit all the same.
#[tokio::test]
async fn a_try_that_lands_while_it_is_repeated_is_one_commit() {
    let table = Table::new("partition=order");
    let faults = Faults::new(table.http(), 1);
    let (gate, held) = (Gate::new(), Gate::new());
    // No fault here takes time: an engine that is busy is waited for.
    let slow = Timeouts { attempts: 1, attempt: Duration::from_secs(10), ..QUICK };
    let log = support::open(table.builder().timeouts(slow).http_client(faults.http_client())).await.log().expect("log");
    log.append(Append::new([event("T", &["order:1"])])).await.expect("warm");
    faults.script(Rule::on("TransactWriteItems").nth(1).lose_request());
    let answer = log.append(Append::new([event("T", &["order:1"])])).await;
    let Err(Error::InDoubt(doubt)) = answer else { panic!("{answer:?}") };
    // The repeat knows an older fence than the try in doubt did, so its own first try fails; meanwhile that one lands.
    let near = Faults::new(table.http(), 2);
    let other = table.through(&near).await;
    near.script(Rule::on("TransactWriteItems").nth(1).pause_after(&gate));
    near.script(Rule::on("TransactWriteItems").nth(2).pause_before(&held));
    let moved = table.log().await;
    let repeat = tokio::spawn({
        let (commit, base) = (doubt.commit, doubt.base.clone());
        async move {
            other.source(&tag("order:1"), None).await.expect("remembers the fence");
            moved.append(Append::new([event("U", &["order:1"])])).await.expect("which moves");
            other.append(Append::new([event("T", &["order:1"])]).again(commit, base)).await
        }
    });
    gate.reached(1).await;
    gate.open();
    held.reached(1).await;
    let late =
        table.log().await.append(Append::new([event("T", &["order:1"])]).again(doubt.commit, doubt.base.clone())).await.expect("lands");
    held.open();
    let again = repeat.await.expect("joins").expect("settled");
    let count = table.log().await.source(&Query::item(["T"], ["order:1"]).expect("query"), None).await.expect("source").events.len();
    assert_eq!(count, 2, "{late:?} and {again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_in_a_storm() {
    let table = Table::new("partition=p&cross=x,y");
    let key: support::keyed::KeyOf = |tag| ["p", "x", "y"][tag.bytes().map(usize::from).sum::<usize>() % 3];
    let mut logs: Vec<Arc<dyn EventLog>> = Vec::new();
    let mut all = Vec::new();
    for writer in 0..3 {
        let faults = Faults::new(table.http(), 70 + writer);
        let inner = table.through(&faults).await;
        logs.push(Arc::new(support::keyed::Keyed { inner, key }));
        all.push(faults);
    }
    for faults in &all {
        let chances = Chances {
            throttle: 0.03,
            lose_request: 0.02,
            lose_response: 0.04,
            deliver_twice: 0.03,
            conflict: 0.04,
            hide_reasons: 0.1,
            ..Chances::default()
        };
        faults.random(chances);
    }
    let options = Oracle { seed: 7, writers: 6, rounds: 8, types_only: false, all: false, ..Oracle::default() };
    let report = oracle::run(&logs, options).await;
    assert!(report.as_ref().is_ok_and(|report| report.conditional > 5), "{report:?}");
}

/// A commit landed unanswered, and behind it another's, which the index does not show yet: the settled repeat's token is before that one.
#[tokio::test]
async fn the_token_of_a_settled_repeat_claims_nothing_that_its_index_hides() {
    let (table, lag) = lagging("partition=order&cross=product");
    let faults = Faults::new(table.http(), 1);
    let log = table.through(&faults).await;
    let query = tag("product:p");
    let token = log.source(&query, None).await.expect("source").token;
    faults.script(Rule::on("TransactWriteItems").lose_response());
    let ours = Append::new([event("T", &["order:1", "product:p"])]).unless(query.clone(), token);
    let Err(Error::InDoubt(doubt)) = log.append(ours.clone()).await else { panic!("no answer came") };
    faults.calm();
    lag.apply_all().await;
    table.log().await.append(Append::new([event("T", &["order:2", "product:p"])])).await.expect("another's");
    let again = async || log.append(ours.clone().again(doubt.commit, doubt.base.clone())).await;
    let decided = async |token| log.append(Append::new([event("T", &["order:3", "product:p"])]).unless(query.clone(), token)).await;
    match again().await {
        Ok(done) => {
            let outcome = decided(done.token.expect("token")).await;
            assert!(outcome.is_err(), "decided without the other's event: {outcome:?}");
        }
        Err(error) => assert!(matches!(error, Error::InDoubt(_)), "recorded, so no other error will do: {error:?}"),
    }
    lag.apply_all().await;
    let done = again().await.expect("all shows");
    let Err(Error::Conflict(conflict)) = decided(done.token.expect("token")).await else { panic!("decided without the other's event") };
    assert_eq!(conflict.events.len(), 1, "the other's alone");
}

/// The same where the peer wrote behind it: its position on the fence is nothing that was read.
#[tokio::test]
async fn the_token_of_a_settled_repeat_claims_nothing_of_the_peers() {
    for query in [Query::item(["T"], ["order:1"]).expect("query"), tag("order:1")] {
        let table = Table::embedded("partition=order");
        let faults = Faults::new(table.http(), 1);
        let log = table.through(&faults).await;
        let token = log.source(&query, None).await.expect("source").token;
        faults.script(Rule::on("TransactWriteItems").lose_response());
        let ours = Append::new([event("T", &["order:1"])]).unless(query.clone(), token);
        let Err(Error::InDoubt(doubt)) = log.append(ours.clone()).await else { panic!("no answer came") };
        faults.calm();
        table.peers("T", &["order:1"], PEERS).await;
        let done = log.append(ours.again(doubt.commit, doubt.base)).await.expect("landed");
        let outcome = log.append(Append::new([event("T", &["order:1"])]).unless(query.clone(), done.token.expect("token"))).await;
        assert!(outcome.as_ref().is_err_and(|e| e.is_conflict()), "{query:?}: decided without the peer's event: {outcome:?}");
    }
}

/// The try in doubt lands between the repeat's last look for it and its look at what is in the way: that is itself, and no conflict.
#[tokio::test]
async fn a_repeat_that_meets_its_own_commit_is_told_no_conflict() {
    let table = Table::new("partition=order");
    let typed = Query::item(["T"], ["order:1"]).expect("query");
    let faults = Faults::new(table.http(), 1);
    let slow = Timeouts { attempts: 1, attempt: Duration::from_secs(10), ..QUICK };
    let log = support::open(table.builder().timeouts(slow).http_client(faults.http_client())).await.log().expect("log");
    let token = log.source(&typed, None).await.expect("source").token;
    faults.script(Rule::on("TransactWriteItems").nth(1).lose_request());
    let ours = Append::new([event("T", &["order:1"])]).unless(typed.clone(), token);
    let Err(Error::InDoubt(doubt)) = log.append(ours.clone()).await else { panic!("no answer came") };
    let ours = ours.again(doubt.commit, doubt.base);
    // What does not match moved the fence: the repeat's first try fails, it looks for its commit, and then at what came.
    table.log().await.append(Append::new([event("U", &["order:1"])])).await.expect("another's");
    let near = Faults::new(table.http(), 2);
    let other = support::open(table.builder().http_client(near.http_client())).await.log().expect("log");
    let gate = Gate::new();
    near.script(Rule::on("Query").nth(2).pause_after(&gate));
    let repeat = tokio::spawn({
        let ours = ours.clone();
        async move { other.append(ours).await }
    });
    gate.reached(1).await;
    let late = table.log().await.append(ours).await.expect("lands");
    gate.open();
    let again = repeat.await.expect("joins");
    assert_eq!(again.as_ref().ok().map(|done| &done.positions), Some(&late.positions), "{again:?}");
    assert_eq!(table.log().await.source(&typed, None).await.expect("source").events.len(), 1);
}

/// An event without a tag moves no fence that would keep a second try out: the key alone does, so a repeat keeps to it.
#[tokio::test]
async fn a_repeat_of_untagged_events_under_a_condition_is_one_commit() {
    let table = Table::new("partition=order");
    // Held by the fence of order:1, which moves, and matched by nothing.
    let query = Query::tags(["order:1", "note:n"]).expect("query");
    let faults = Faults::new(table.http(), 1);
    let slow = Timeouts { attempts: 1, attempt: Duration::from_secs(10), ..QUICK };
    let log = support::open(table.builder().timeouts(slow).http_client(faults.http_client())).await.log().expect("log");
    let moves = table.log().await;
    moves.append(Append::new([event("U", &["order:1"])])).await.expect("first");
    let old = log.source(&query, None).await.expect("source").token;
    moves.append(Append::new([event("U", &["order:1"])])).await.expect("second");
    faults.script(Rule::on("TransactWriteItems").nth(2).lose_request());
    let ours = |token| Append::new([event("T", &[])]).unless(query.clone(), token);
    let Err(Error::InDoubt(doubt)) = log.append(ours(old.clone())).await else { panic!("no answer came") };
    // The try in doubt, which knew the second move, is under way still when the repeat, which does not, goes out.
    let near = Faults::new(table.http(), 2);
    let other = support::open(table.builder().http_client(near.http_client())).await.log().expect("log");
    let new = other.source(&query, None).await.expect("source").token;
    let gate = Gate::new();
    near.script(Rule::on("Query").nth(1).pause_after(&gate));
    let late = tokio::spawn({
        let late = ours(new).again(doubt.commit, doubt.base.clone());
        async move { other.append(late).await }
    });
    gate.reached(1).await;
    let again = table.log().await.append(ours(old).again(doubt.commit, doubt.base)).await.expect("lands");
    gate.open();
    let late = late.await.expect("joins").expect("settled");
    assert_eq!(late.positions, again.positions);
    assert_eq!(table.items().await.iter().filter(|item| item["id"] == Value::S("dcb".into())).count(), 1);
}

/// A try that may have landed stays in doubt, whatever becomes of those behind it: throttled, or settled by a read that is not answered.
#[tokio::test]
async fn a_doubt_is_kept_behind_throttles_and_reads_that_fail() {
    for (engine, then) in [
        (Engine::memory().expect("engine").keep_tokens(), "TransactWriteItems"),
        (Engine::memory().expect("engine"), "GetItem"),
        (Engine::memory().expect("engine").keep_tokens(), "GetItem"),
    ] {
        let table = Table::on(engine.http_client(), "partition=order");
        let faults = Faults::new(table.http(), 1);
        let log = table.through(&faults).await;
        let token = log.source(&tag("order:1"), None).await.expect("source").token;
        let ours = Append::new([event("T", &["order:1"])]).unless(tag("order:1"), token);
        match then {
            "GetItem" => faults
                .script(Rule::on("TransactWriteItems").nth(1).lose_response())
                .script(Rule::on("TransactWriteItems").nth(2).times(8).suffer(Fault::TokenMismatch)),
            _ => faults.script(Rule::on("TransactWriteItems").nth(1).lose_response()),
        };
        faults.script(Rule::on(then).nth(2).times(1_000).throttle());
        faults.script(Rule::on("GetItem").throttle());
        let answer = log.append(ours.clone()).await;
        let Err(Error::InDoubt(doubt)) = answer else { panic!("{then}: {answer:?}") };
        let unanswered = log.append(ours.clone().again(doubt.commit, doubt.base.clone())).await;
        assert!(matches!(unanswered, Err(Error::InDoubt(_))), "{then}: {unanswered:?}");
        faults.calm();
        log.append(ours.again(doubt.commit, doubt.base)).await.expect("settled");
        assert_eq!(log.source(&tag("order:1"), None).await.expect("source").events.len(), 1, "{then}");
    }
}

/// With an id of the caller's the same step is one commit, whether its answer came or not, and whatever version the stream has by then.
#[tokio::test]
async fn a_step_under_an_id_and_a_version_is_one_commit_whatever_answers_are_lost() {
    for fault in [Fault::LoseResponse, Fault::LoseRequest, Fault::TimeOut] {
        let table = Table::new("partition=order");
        let faults = Faults::new(table.http(), 1);
        let store = support::open(table.builder().timeouts(QUICK).http_client(faults.http_client())).await;
        let (streams, stream) = (store.streams(), StreamName::new("order:1").expect("name"));
        let commit = CommitId(Env::system().new_id());
        let step = || Step::new([event("T", &[]), event("U", &[])]).expect(Expect::Version(0)).commit(commit);
        faults.script(Rule::on("TransactWriteItems").suffer(fault.clone()));
        let Err(Error::InDoubt(doubt)) = streams.append(&stream, step()).await else { panic!("{fault:?}: no answer came") };
        faults.calm();
        let first = streams.append(&stream, step()).await.expect("by the id alone");
        streams.append(&stream, Step::new([event("T", &[])]).expect(Expect::Version(2))).await.expect("behind it");
        let again = streams.append(&stream, step().again(commit, doubt.base)).await.expect("from the base");
        assert_eq!((&again.positions, again.version), (&first.positions, Some(2)), "{fault:?}");
        assert_eq!(streams.load(&stream, LoadOptions::default()).await.expect("load").version, 3, "{fault:?}");
    }
}

/// A read that fails is an error, and one that fails once is made again: never less than there is.
#[tokio::test]
async fn reads_under_faults_show_all_or_fail() {
    let table = Table::new("partition=order&cross=product");
    let faults = Faults::new(table.http(), 1);
    let store = support::open(table.builder().timeouts(QUICK).http_client(faults.http_client())).await;
    let log = store.log().expect("log");
    let stream = StreamName::new("product:p").expect("name");
    for order in ["order:1", "order:2"] {
        log.append(Append::new([event("T", &[order, "product:p"])])).await.expect("append");
    }
    let token = log.source(&tag("product:p"), None).await.expect("source").token;
    for fault in [Fault::Throttle, Fault::InternalError, Fault::LoseResponse, Fault::Truncate] {
        for operation in ["GetItem", "Query", "BatchGetItem"] {
            for lasting in [1, 1_000] {
                faults.script(Rule::on(operation).times(lasting).suffer(fault.clone()));
                let told = |all: usize, read: fencepost::Result<usize>| match read {
                    Ok(read) => assert_eq!(read, all, "{operation} {fault:?}"),
                    Err(error) => assert!(lasting > 1 && matches!(error, Error::Unavailable(_)), "{operation} {fault:?}: {error:?}"),
                };
                told(2, log.source(&tag("product:p"), None).await.map(|sourced| sourced.events.len()));
                told(2, log.read_all(&tag("product:p"), ReadOptions::default()).await.map(|events| events.len()));
                told(2, store.streams().load(&stream, LoadOptions::default()).await.map(|loaded| loaded.events.len()));
                told(1, log.unchanged(&token).await.map(|unchanged| usize::from(unchanged.value)));
                faults.calm();
            }
        }
    }
}

/// What is read without a promise waits until everything shows: the auditor must see all.
#[derive(Debug)]
struct Settled {
    inner: Arc<dyn EventLog>,
    lag: Lag,
}

#[async_trait::async_trait]
impl EventLog for Settled {
    async fn source(&self, query: &Query, since: Option<&Token>) -> fencepost::Result<Sourced> {
        self.inner.source(query, since).await
    }
    async fn append(&self, append: Append) -> fencepost::Result<Committed> {
        self.inner.append(append).await
    }
    async fn unchanged(&self, token: &Token) -> fencepost::Result<Answer<bool>> {
        self.inner.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> fencepost::Result<Answer<Option<Committed>>> {
        self.inner.committed(commit).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, fencepost::Result<Recorded>> {
        futures::stream::once(self.lag.apply_all()).flat_map(move |()| self.inner.read(query, options)).boxed()
    }
}

/// Indexes and replicas that lag, answers that are lost, and events without a tag among the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_holds_while_indexes_lag() {
    let (table, lag) = lagging("partition=p&cross=x,y&consistency=escalate");
    let key: support::keyed::KeyOf = |tag| ["p", "x", "y"][tag.bytes().map(usize::from).sum::<usize>() % 3];
    let mut logs: Vec<Arc<dyn EventLog>> = Vec::new();
    for writer in 0..3 {
        let faults = Faults::new(table.http(), 90 + writer);
        let inner = Arc::new(Settled { inner: table.through(&faults).await, lag: lag.clone() });
        faults.random(Chances { throttle: 0.02, lose_response: 0.03, deliver_twice: 0.02, hide_reasons: 0.1, ..Chances::default() });
        logs.push(Arc::new(support::keyed::Keyed { inner: inner as Arc<dyn EventLog>, key }));
    }
    let untagged = table.log().await;
    let options = Oracle { seed: 9, writers: 4, rounds: 6, types_only: false, all: false, ..Oracle::default() };
    let (storm, beside) = (oracle::run(&logs, options), async {
        for n in 0..u64::MAX {
            lag.apply_any().await;
            if n % 16 == 0 {
                let token = untagged.source(&tag("p:none"), None).await.expect("source").token;
                untagged.append(Append::new([event("T", &[])]).unless(tag("p:none"), token)).await.expect("nothing is in its way");
            }
            fencepost::Env::system().sleep(Duration::from_micros(200)).await;
        }
    });
    let report = tokio::select! { report = storm => report, () = beside => unreachable!("for ever") };
    assert!(report.as_ref().is_ok_and(|report| report.conditional > 5), "{report:?}");
}
