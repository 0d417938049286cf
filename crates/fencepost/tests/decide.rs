//! The loop of decisions, step by step: a log that records every call and lets others get in between, and then real ledgers under
//! concurrency. What the loop must hold: it decides on nothing stale, records at most once, reads nothing that a conflict brought,
//! confirms a rejection that no append would check, and ends.

mod support;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost::{
    Answer, Append, Base, Cache, CommitId, Committed, Decided, Decision, Env, Error, Event, EventLog, EventLogExt, Fold, InDoubt,
    IntoEvents, Memory, Metadata, Query, ReadOptions, Recorded, Refused, Result, Sourced, Token, about, decide, decision, fold,
    fold_recorded,
};
use futures::future::join_all;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use support::{Ground, open};

#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
enum Enrolment {
    CourseDefined {
        #[tag("course")]
        course: String,
        seats: u32,
    },
    StudentEnrolled {
        #[tag("course")]
        course: String,
        #[tag("student")]
        student: String,
    },
}
use Enrolment::{CourseDefined, StudentEnrolled};

#[derive(Debug, Clone, PartialEq)]
enum No {
    Full,
    TooMany,
}

fn defined(course: &str, seats: u32) -> Enrolment {
    CourseDefined { course: course.into(), seats }
}
fn enrolled(course: &str, student: &str) -> Enrolment {
    StudentEnrolled { course: course.into(), student: student.into() }
}

fn free_seats(course: &str) -> Fold<i64> {
    fold(("course", course), 0, |free, event: &Enrolment| match event {
        CourseDefined { seats, .. } => *free = i64::from(*seats),
        StudentEnrolled { .. } => *free -= 1,
    })
}
fn courses_of(student: &str) -> Fold<u32> {
    fold(("student", student), 0, |courses, _: &Enrolment| *courses += 1)
}

fn enrol(course: &str, student: &str) -> impl Decision<Rejection = No> + Clone + use<> {
    let event = enrolled(course, student);
    decision((free_seats(course), courses_of(student)), move |(free, courses)| match () {
        () if *free < 1 => Err(No::Full),
        () if *courses > 1 => Err(No::TooMany),
        () => Ok([event.clone()]),
    })
}

// ---- a log that records its calls ----

type Interference = Box<dyn FnOnce(&Memory) -> Option<Error> + Send>;

/// Memory, with every call written down, and what happens before the next append or after the next read given beforehand.
#[derive(Default)]
struct Scripted {
    memory: Memory,
    calls: Mutex<Vec<&'static str>>,
    before_append: Mutex<VecDeque<Interference>>,
    /// Answers that were lost: the append happens, and this is said.
    after_append: Mutex<VecDeque<Interference>>,
    after_source: Mutex<VecDeque<Interference>>,
    torn: bool,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    async fn with(events: impl IntoEvents) -> Self {
        let scripted = Self::default();
        scripted.memory.add(events.into_events().expect("events"));
        scripted
    }
    fn called(&self, what: &'static str) {
        self.calls.lock().expect("calls").push(what);
    }
    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock().expect("calls"))
    }
    fn before_append(&self, event: impl IntoEvents + Send + 'static) {
        let interference = move |memory: &Memory| {
            memory.add(event.into_events().expect("events"));
            None
        };
        self.before_append.lock().expect("script").push_back(Box::new(interference));
    }
    fn next(&self, script: &Mutex<VecDeque<Interference>>) -> Result<()> {
        let next = script.lock().expect("script").pop_front();
        next.and_then(|interfere| interfere(&self.memory)).map_or(Ok(()), Err)
    }
}

trait Add {
    fn add(&self, events: Vec<Event>);
}
impl Add for Memory {
    fn add(&self, events: Vec<Event>) {
        if !events.is_empty() {
            // Memory's futures are ready at once.
            let done = futures::executor::block_on(EventLog::append(self, Append::new(events)));
            done.expect("appends");
        }
    }
}

#[async_trait]
impl EventLog for Scripted {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.called(if since.is_some() { "more" } else { "source" });
        let sourced = self.memory.source(query, since).await?.at_one_instant(!self.torn);
        self.next(&self.after_source)?;
        Ok(sourced)
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        self.called(if append.base().is_some() { "again" } else { "append" });
        self.next(&self.before_append)?;
        let done = EventLog::append(&self.memory, append).await;
        self.next(&self.after_append)?;
        done
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.called("unchanged");
        self.memory.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.called("committed");
        EventLog::committed(&self.memory, commit).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        EventLog::read(&self.memory, query, options)
    }
}

async fn all(log: &dyn EventLog) -> Vec<Enrolment> {
    let events = log.read_all(&Query::all(), ReadOptions::default()).await.expect("reads");
    events.iter().map(|event| event.decode().expect("decodes")).collect()
}

// ---- the loop ----

#[tokio::test]
async fn several_models_are_one_read_and_one_append() {
    let log = Scripted::with([defined("c1", 1)]).await;
    let outcome = decide(&log, enrol("c1", "s1")).await.expect("decides");
    assert_eq!(outcome.tries, 1);
    assert_eq!(outcome.position().and_then(|p| p.as_number()), Some(2));
    assert_eq!(outcome.recorded::<Enrolment>().expect("decodes"), [enrolled("c1", "s1")]);
    assert_eq!(log.calls(), ["source", "append"]);
    assert_eq!(decide(&log, enrol("c1", "s2")).await.expect("decides").rejection(), Some(&No::Full));
    assert_eq!(log.calls(), ["source"]);
}

#[tokio::test]
async fn a_conflict_is_folded_and_decided_again_without_reading() {
    let log = Scripted::with([defined("c1", 2)]).await;
    log.before_append([enrolled("c1", "s2")]);
    let outcome = decide(&log, enrol("c1", "s1")).await.expect("decides");
    assert_eq!((outcome.tries, log.calls()), (2, vec!["source", "append", "append"]));
    // Had the conflict not been folded, the third would get a seat.
    log.before_append([enrolled("c1", "s4")]);
    let log2 = Scripted::with([defined("c1", 1)]).await;
    log2.before_append([enrolled("c1", "s2")]);
    let lost = decide(&log2, enrol("c1", "s1")).await.expect("decides");
    assert_eq!((lost.rejection(), lost.tries), (Some(&No::Full), 2));
    assert_eq!(all(&log2).await.len(), 2);
}

#[tokio::test]
async fn what_another_decision_wrote_elsewhere_is_no_conflict() {
    let log = Scripted::with([defined("c1", 1), defined("c2", 1)]).await;
    log.before_append([enrolled("c2", "s9")]);
    let outcome = decide(&log, enrol("c1", "s1")).await.expect("decides");
    assert_eq!((outcome.tries, log.calls()), (1, vec!["source", "append"]));
}

#[tokio::test]
async fn a_rejection_over_several_covers_is_confirmed_and_one_over_an_instant_is_not() {
    let mut log = Scripted::with([defined("c1", 0)]).await;
    assert_eq!(decide(&log, enrol("c1", "s1")).await.expect("decides").rejection(), Some(&No::Full));
    assert_eq!(log.calls(), ["source"]);
    log.torn = true;
    assert_eq!(decide(&log, enrol("c1", "s1")).await.expect("decides").rejection(), Some(&No::Full));
    assert_eq!(log.calls(), ["source", "unchanged"]);
    // Somebody adds seats between the reads of the two covers: the state that was rejected never was.
    log.after_source.lock().expect("script").push_back(Box::new(|memory| {
        memory.add([defined("c1", 5)].into_events().expect("events"));
        None
    }));
    let outcome = decide(&log, enrol("c1", "s1")).await.expect("decides");
    assert!(outcome.committed().is_some(), "{outcome:?}");
    assert_eq!(log.calls(), ["source", "unchanged", "more", "append"]);
}

#[tokio::test]
async fn nothing_is_allowed_and_writes_nothing() {
    let log = Scripted::with([defined("c1", 3)]).await;
    let nothing = decision(free_seats("c1"), |_: &i64| Ok::<_, No>(Vec::<Enrolment>::new()));
    let outcome = decide(&log, nothing).await.expect("decides");
    assert!(matches!(outcome.decided, Decided::Nothing));
    assert_eq!(log.calls(), ["source"]);
    assert!(outcome.accepted().expect("no rejection").is_none());
}

#[tokio::test]
async fn it_gives_up_after_its_tries_and_after_its_deadline_with_the_conflict() {
    for (tries, deadline) in [(3, Duration::from_secs(30)), (1_000, Duration::from_secs(5))] {
        let log = Scripted::with([defined("c1", 1_000)]).await;
        let env = Env::seeded(1);
        for n in 0..50 {
            let env = env.clone();
            log.before_append.lock().expect("script").push_back(Box::new(move |memory| {
                env.advance(Duration::from_secs(1));
                memory.add([enrolled("c1", &format!("other{n}"))].into_events().expect("events"));
                None
            }));
        }
        let error = decide(&log, enrol("c1", "s1")).tries(tries).deadline(deadline).env(env).await.expect_err("gives up");
        assert!(error.is_conflict() && error.recorded_nothing(), "{error}");
        let appends = log.calls().iter().filter(|call| **call == "append").count();
        assert_eq!(appends, if tries == 3 { 3 } else { 5 });
    }
}

#[tokio::test]
async fn a_list_of_ids_known_at_run_time_is_one_boundary() {
    let log = Scripted::with([defined("c1", 1), defined("c2", 2), defined("c3", 3), defined("c9", 9)]).await;
    let courses = ["c3", "c1", "c2"].map(free_seats).into_iter().collect::<Vec<_>>();
    let all_free = decision(courses, |free: &Vec<i64>| if free == &[3, 1, 2] { Ok([enrolled("c1", "s1")]) } else { Err(No::Full) });
    log.before_append([enrolled("c9", "s1")]);
    assert!(decide(&log, &all_free).await.expect("decides").committed().is_some());
    assert_eq!(log.calls(), ["source", "append"]);
    // One seat less now, and a seat taken in any of them in between is noticed.
    assert_eq!(decide(&log, &all_free).await.expect("decides").rejection(), Some(&No::Full));
    let nobody = decision(Vec::<Fold<i64>>::new(), |free: &Vec<i64>| Ok::<_, No>(vec![defined("c4", free.len() as u32)]));
    log.calls();
    assert!(decide(&log, nobody).await.expect("decides").committed().is_some());
    assert_eq!(log.calls(), ["append"], "nothing to read and nothing to guard");
}

// ---- narrowed conditions ----

#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
enum Account {
    Deposited {
        #[tag("account")]
        account: u32,
        amount: i64,
    },
    Withdrawn {
        #[tag("account")]
        account: u32,
        amount: i64,
    },
}

fn withdraw(amount: i64) -> impl Decision<Rejection = &'static str> {
    let balance = fold(("account", 1), 0, |balance, event: &Account| match event {
        Account::Deposited { amount, .. } => *balance += amount,
        Account::Withdrawn { amount, .. } => *balance -= amount,
    });
    decision(balance.guarded_by(about("account", 1).only(["Withdrawn"])), move |balance| {
        if *balance < amount { Err("not enough") } else { Ok([Account::Withdrawn { account: 1, amount }]) }
    })
}

#[tokio::test]
async fn deposits_need_not_invalidate_withdrawals() {
    let log = Scripted::with([Account::Deposited { account: 1, amount: 10 }]).await;
    log.before_append([Account::Deposited { account: 1, amount: 1 }]);
    assert_eq!(decide(&log, withdraw(5)).await.expect("decides").tries, 1, "a deposit in between");
    log.calls();
    log.before_append([Account::Withdrawn { account: 1, amount: 5 }]);
    let outcome = decide(&log, withdraw(5)).await.expect("decides");
    assert_eq!((outcome.rejection(), outcome.tries), (Some(&"not enough"), 2));
    // The read was wider than the condition, so the conflict cannot bring all: what came is read.
    assert_eq!(log.calls(), ["source", "append", "more"]);
    let unguarded = decision(free_seats("c1").unguarded(), |_: &i64| Ok::<_, No>([enrolled("c1", "s1")]));
    log.before_append([enrolled("c1", "s2")]);
    assert_eq!(decide(&log, unguarded).await.expect("decides").tries, 1);
}

// ---- once ----

#[tokio::test]
async fn the_same_key_returns_the_first_outcome_even_if_it_would_be_rejected_today() {
    for feed in [None, Some("lanes-1"), Some("lanes-8"), Some("streams")] {
        let log: Arc<dyn EventLog> = match feed {
            None => Arc::new(Memory::new()),
            Some(feed) => open(Ground::fresh().builder(&format!("feed={feed}"))).await.log().expect("log"),
        };
        log.append(Append::new([defined("c1", 1)].into_events().expect("events"))).await.expect("appends");
        let first = decide(&*log, enrol("c1", "s1")).once("enrol s1").await.expect("decides");
        let first = first.committed().expect("recorded").clone();
        assert_eq!(first.commit, CommitId::of_key("enrol s1"));
        let again = decide(&*log, enrol("c1", "s1")).once("enrol s1").await.expect("decides");
        assert_eq!(again.tries, 0, "nothing is decided again");
        let again = again.committed().expect("recorded").clone();
        assert_eq!((again.commit, again.positions), (first.commit, first.positions), "{feed:?}");
        assert_eq!(decide(&*log, enrol("c1", "s1")).once("another").await.expect("decides").rejection(), Some(&No::Full));
        // A rejection is not remembered: a seat more, and the same key goes through.
        log.append(Append::new([defined("c1", 9)].into_events().expect("events"))).await.expect("appends");
        assert!(decide(&*log, enrol("c1", "s2")).once("another").await.expect("decides").committed().is_some());
    }
}

#[tokio::test]
async fn two_runs_of_one_command_at_once_record_once_whatever_they_come_to() {
    let log = Scripted::with([defined("c1", 5)]).await;
    // The other run of the same command comes to other events, and wins.
    let other = log.memory.clone();
    log.before_append.lock().expect("script").push_back(Box::new(move |_| {
        let events = [enrolled("c1", "s1"), enrolled("c1", "s1b")].into_events().expect("events");
        let append = Append::new(events).commit(CommitId::of_key("k"));
        futures::executor::block_on(EventLog::append(&other, append)).expect("appends");
        None
    }));
    let outcome = decide(&log, enrol("c1", "s1")).once("k").await.expect("decides");
    assert_eq!(outcome.committed().expect("recorded").positions.len(), 2, "the first outcome, not ours");
    assert!(outcome.events.is_empty(), "what the other run recorded is not known here");
    assert_eq!(all(&log).await.len(), 3);
    assert_eq!(log.calls(), ["committed", "source", "append", "committed"]);
}

/// Found by two clients of the sample service: the other run of the same command lands between the look for it and the read, and what
/// is read then is a course that is full by this very command.
#[tokio::test]
async fn a_rejection_by_the_other_run_of_the_same_command_is_its_outcome() {
    #[derive(Debug)]
    struct Between(Scripted);
    #[async_trait]
    impl EventLog for Between {
        async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
            let append = Append::new([enrolled("c1", "s1")].into_events()?).commit(CommitId::of_key("k"));
            EventLog::append(&self.0.memory, append).await?;
            self.0.source(query, since).await
        }
        async fn append(&self, append: Append) -> Result<Committed> {
            EventLog::append(&self.0, append).await
        }
        async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
            self.0.unchanged(token).await
        }
        async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
            EventLog::committed(&self.0, commit).await
        }
        fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
            EventLog::read(&self.0, query, options)
        }
    }
    let log = Between(Scripted::with([defined("c1", 1)]).await);
    let outcome = decide(&log, enrol("c1", "s1")).once("k").await.expect("decides");
    assert_eq!(outcome.committed().map(|committed| committed.commit), Some(CommitId::of_key("k")), "{outcome:?}");
    assert!(outcome.is_repeat());
    assert_eq!(log.0.calls(), ["committed", "source", "committed"]);
}

#[tokio::test]
async fn an_append_in_doubt_is_settled_from_its_base() {
    for landed in [true, false] {
        let log = Scripted::with([defined("c1", 5)]).await;
        let commit = CommitId::of_key("doubt");
        let doubt =
            move |_: &Memory| Some(Error::InDoubt(Box::new(InDoubt { commit, base: Base::seal("memory", &0u64), message: "lost".into() })));
        let script = if landed { &log.after_append } else { &log.before_append };
        script.lock().expect("script").push_back(Box::new(doubt));
        let outcome = decide(&log, enrol("c1", "s1")).once("doubt").await.expect("decides");
        assert_eq!(outcome.committed().expect("recorded").commit, commit);
        assert_eq!(log.calls(), ["committed", "source", "append", "again"]);
        assert_eq!(all(&log).await.len(), 2, "once, whether or not the first had landed: {landed}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_an_error_at_once() {
    let log = Scripted::with([defined("c1", 5)]).await;
    log.before_append.lock().expect("script").push_back(Box::new(|_| Some(Error::unavailable(fencepost::Reason::Throttled, "slow down"))));
    let error = decide(&log, enrol("c1", "s1")).await.expect_err("throttled");
    assert!(matches!(error, Error::Unavailable(_)));
    assert_eq!(log.calls(), ["source", "append"]);
}

// ---- what goes in and what comes out ----

#[tokio::test]
async fn metadata_of_the_decision_goes_with_every_event_and_gives_way_to_the_events_own() {
    let log = Memory::new();
    let own = Event::new("Noted", "{}").expect("event").meta(Metadata { user: Some("ada".into()), ..Metadata::default() });
    let notes = decision((), move |()| Ok::<_, No>(([own.clone()], [defined("c1", 1)])));
    let meta = Metadata { user: Some("bot".into()), correlation: Some("r1".into()), ..Metadata::default() };
    decide(&log, notes).meta(meta).await.expect("decides").accepted().expect("accepted");
    let events = log.read_all(&Query::all(), ReadOptions::default()).await.expect("reads");
    let users: Vec<_> = events.iter().map(|event| event.meta.user.as_deref()).collect();
    assert_eq!(users, [Some("ada"), Some("bot")]);
    assert!(events.iter().all(|event| event.meta.correlation.as_deref() == Some("r1")));
}

#[tokio::test]
async fn a_fold_may_ask_when_it_was_recorded() {
    let env = Env::seeded(1);
    let log = Memory::with_env(env.clone());
    let first = env.now();
    for _ in 0..2 {
        EventLog::append(&log, Append::new([defined("c1", 1)].into_events().expect("events"))).await.expect("appends");
        env.advance(Duration::from_secs(60));
    }
    let times = fold_recorded(("course", "c1"), Vec::new(), |times, _: &Enrolment, recorded| times.push(recorded.recorded_at));
    let seen = decision(times, move |times: &Vec<_>| Err::<(), _>(times.clone()));
    let outcome = decide(&log, seen).await.expect("decides");
    assert_eq!(outcome.rejection(), Some(&vec![first, first + jiff::SignedDuration::from_secs(60)]));
}

#[tokio::test]
async fn unknown_types_are_refused_or_skipped_as_the_model_says() {
    let log = Scripted::with([defined("c1", 1)]).await;
    log.memory.add(vec![Event::new("CourseArchived", "secret").expect("event").tag("course:c1").expect("tag")]);
    let any = || Query::tag("course:c1").expect("query");
    let seats = |model: Fold<u32>| decision(model, |seats: &u32| Err::<(), _>(*seats));
    let model = || fold(any(), 0, |seats: &mut u32, _: &Enrolment| *seats += 1);
    let error = decide(&log, seats(model())).await.expect_err("refused").to_string();
    assert!(error.contains("CourseArchived") && error.contains("CourseDefined") && !error.contains("secret"), "{error}");
    assert_eq!(decide(&log, seats(model().skip_unknown())).await.expect("decides").rejection(), Some(&1));
    // Where the model says what it is about in tags, the types are filled in, and others are not even read.
    let typed = fold(("course", "c1"), 0, |seats: &mut u32, _: &Enrolment| *seats += 1);
    assert_eq!(decide(&log, seats(typed)).await.expect("decides").rejection(), Some(&1));
}

#[tokio::test]
async fn a_model_about_a_tag_that_no_event_carries_is_refused_before_any_call() {
    let log = Scripted::default();
    let typo = decision(fold(("cuorse", "c1"), (), |(), _: &Enrolment| ()), |()| Ok::<_, No>([defined("c1", 1)]));
    let error = decide(&log, typo).await.expect_err("refused");
    assert!(matches!(error, Error::Refused(Refused::Unsupported { .. })) && error.to_string().contains("course, student"), "{error}");
    let empty = decision(free_seats(""), |_: &i64| Ok::<_, No>([defined("c1", 1)]));
    let error = decide(&log, empty).await.expect_err("refused");
    assert!(error.to_string().contains("the value of the tag course is empty"), "{error}");
    assert_eq!(log.calls(), Vec::<&str>::new());
}

// ---- the cache ----

fn cached_enrol(course: &str, student: &str) -> impl Decision<Rejection = No> {
    let event = enrolled(course, student);
    decision(free_seats(course).cached_as("free seats"), move |free| if *free < 1 { Err(No::Full) } else { Ok([event.clone()]) })
}

#[tokio::test]
async fn a_warm_decision_reads_only_what_came_since() {
    let log = Scripted::with([defined("c1", 3)]).await;
    let cache = Cache::new(100);
    for student in ["s1", "s2", "s3"] {
        assert!(decide(&log, cached_enrol("c1", student)).cache(&cache).await.expect("decides").committed().is_some());
    }
    assert_eq!(log.calls(), ["source", "append", "more", "append", "more", "append"]);
    // Another process adds a seat: a warm state must not miss it.
    assert_eq!(decide(&log, cached_enrol("c1", "s4")).cache(&cache).await.expect("decides").rejection(), Some(&No::Full));
    log.memory.add([defined("c1", 1)].into_events().expect("events"));
    assert!(decide(&log, cached_enrol("c1", "s4")).cache(&cache).await.expect("decides").committed().is_some());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.states), (4, 1, 1));
    // Not named: not kept.
    log.calls();
    let unnamed = decision(free_seats("c1"), |_: &i64| Err::<(), _>(No::Full));
    let _ = decide(&log, &unnamed).cache(&cache).await.expect("decides");
    let _ = decide(&log, &unnamed).cache(&cache).await.expect("decides");
    assert_eq!(log.calls(), ["source", "source"]);
}

#[tokio::test]
async fn many_who_miss_at_once_read_once() {
    /// Reads everything slowly, so that all miss.
    #[derive(Debug, Default)]
    struct Slow(Memory, AtomicU32);
    #[async_trait]
    impl EventLog for Slow {
        async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
            if since.is_none() {
                self.1.fetch_add(1, Ordering::SeqCst);
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            self.0.source(query, since).await
        }
        async fn append(&self, append: Append) -> Result<Committed> {
            EventLog::append(&self.0, append).await
        }
        async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
            self.0.unchanged(token).await
        }
        async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
            EventLog::committed(&self.0, commit).await
        }
        fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
            EventLog::read(&self.0, query, options)
        }
    }
    let log = Slow::default();
    log.0.add([defined("c1", 20)].into_events().expect("events"));
    let cache = Cache::new(100);
    let students: Vec<_> = (0..50).map(|n| format!("s{n}")).collect();
    let outcomes = join_all(students.iter().map(async |s| decide(&log, cached_enrol("c1", s)).cache(&cache).await.expect("decides"))).await;
    assert_eq!(log.1.load(Ordering::SeqCst), 1, "one read of everything for all of them");
    assert_eq!(outcomes.iter().filter(|outcome| outcome.committed().is_some()).count(), 20);
    assert_eq!((cache.stats().hits, cache.stats().misses), (49, 1));
}

#[tokio::test]
async fn the_cache_is_bounded_and_forgets_a_token_that_the_store_refuses() {
    let cache = Cache::new(10);
    let log = Scripted::default();
    for n in 0..200 {
        log.memory.add([defined(&format!("c{n}"), 1)].into_events().expect("events"));
        let _ = decide(&log, cached_enrol(&format!("c{n}"), "s1")).cache(&cache).await.expect("decides");
    }
    assert!(cache.stats().states <= 10, "{:?}", cache.stats());
    // Another store under the same cache: its states are worth nothing there, and are read anew.
    let ledger = open(Ground::embedded().builder("feed=lanes-1")).await;
    let _ = decide(&log, cached_enrol("c1", "s1")).cache(&cache).await.expect("decides");
    let outcome = ledger.decide(cached_enrol("c1", "s1")).cache(&cache).await.expect("decides");
    assert_eq!(outcome.rejection(), Some(&No::Full), "no such course there");
}

// ---- under concurrency ----

/// So many students at once for fewer seats; each loser is told why, and there are exactly as many enrolments as seats.
async fn rush(feed: &str, students: usize, seats: u32, at_once: usize) {
    let ground = Ground::fresh();
    let builder = || ground.builder(&format!("feed={feed}"));
    // Two processes, as far as the store can tell.
    let stores = [open(builder()).await, open(builder()).await];
    stores[0].log().expect("log").append(Append::new([defined("c1", seats)].into_events().expect("events"))).await.expect("appends");
    let gate = Arc::new(tokio::sync::Semaphore::new(at_once));
    let tasks = (0..students).map(|n| {
        let (store, gate) = (stores[n % 2].clone(), gate.clone());
        tokio::spawn(async move {
            let _permit = gate.acquire().await.expect("open");
            // Longer than by default: what is tested is who gets a seat, not how fast this machine is.
            store.decide(enrol("c1", &format!("s{n}"))).deadline(Duration::from_secs(180)).await.expect("decides")
        })
    });
    let outcomes = join_all(tasks).await.into_iter().map(|outcome| outcome.expect("no panic")).collect::<Vec<_>>();
    let won = outcomes.iter().filter(|outcome| outcome.committed().is_some()).count();
    let told = outcomes.iter().filter(|outcome| outcome.rejection() == Some(&No::Full)).count();
    assert_eq!((won, told), (seats as usize, students - seats as usize), "{feed}");
    let query = Query::item(["StudentEnrolled"], ["course:c1"]).expect("query");
    assert_eq!(stores[1].log().expect("log").read_all(&query, ReadOptions::default()).await.expect("reads").len(), seats as usize);
    let most = outcomes.iter().map(|outcome| outcome.tries).max().unwrap_or(0);
    println!("{feed}: {students} students, {at_once} at once, {seats} seats: at most {most} tries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_enrolments_at_once_on_a_course_of_fifty_end_with_fifty() {
    match std::env::var("FENCEPOST_TEST_ENDPOINT") {
        Ok(_) => rush("lanes-1", 200, 50, 32).await,
        Err(_) => rush("lanes-1", 1_000, 50, 1_000).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_holds_in_every_mode() {
    rush("lanes-8", 100, 20, 32).await;
    rush("streams", 100, 20, 32).await;
}
