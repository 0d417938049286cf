//! Killed at any call, and answers that are lost: nothing is lost and nothing doubled.

use super::*;

/// A store that dies at one of its calls, before or after the call is carried out, and can then do nothing more.
#[derive(Debug, Clone)]
pub(crate) struct Dying {
    memory: Memory,
    left: Arc<AtomicI64>,
    /// Whether the last call is carried out.
    after: bool,
}

impl Dying {
    pub(crate) fn new(memory: &Memory, calls: i64, after: bool) -> Self {
        Self { memory: memory.clone(), left: Arc::new(AtomicI64::new(calls)), after }
    }
    pub(crate) fn party(&self) -> Party {
        // As a store that takes several commits at once.
        let mut capabilities = self.memory.capabilities();
        capabilities.counted_positions = false;
        let shared = Arc::new(self.clone());
        Party::new(capabilities, shared.clone()).log(shared).feed(Arc::new(self.memory.clone()))
    }
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        // Others get in between.
        tokio::task::yield_now().await;
        if left > 0 {
            return call.await;
        }
        if left == 0 && self.after {
            call.await?;
        }
        Err(Error::unavailable(Reason::Unreachable, "it died"))
    }
}

#[async_trait]
impl EventLog for Dying {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.memory.source(query, since).await
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        self.call(EventLog::append(&self.memory, append)).await
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.memory.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.call(EventLog::committed(&self.memory, commit)).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let read = self.call(async move { Ok(EventLog::read(&self.memory, query, options)) });
        stream::once(read).try_flatten().boxed()
    }
}

#[async_trait]
impl Checkpoints for Dying {
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>> {
        self.call(Checkpoints::load(&self.memory, consumer)).await
    }
    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>> {
        self.call(Checkpoints::save(&self.memory, consumer, checkpoint, expect)).await
    }
}

#[tokio::test]
async fn a_copy_killed_at_any_call_loses_and_doubles_nothing() {
    let from = Memory::new();
    fill(&from, &Env::seeded(9), 80).await;
    let expected = held(&all(&from).await);
    for after in [false, true] {
        for calls in 0.. {
            let to = Memory::new();
            let died = Copy::new(party(&from), Dying::new(&to, calls, after).party(), "there").run(&quiet).await.is_err();
            let copy = Copy::new(party(&from), party(&to), "there");
            copy.run(&quiet).await.expect("goes on");
            assert!(copy.compare(&quiet).await.expect("compares").is_equal(), "killed at call {calls}");
            assert_eq!(held(&all(&to).await), expected, "killed at call {calls}");
            if !died {
                assert!(calls >= 80, "it was killed at every call: {calls}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_import_killed_at_any_call_loses_and_doubles_nothing() {
    let from = Memory::new();
    fill(&from, &Env::seeded(10), 30).await;
    let (expected, file) = (held(&all(&from).await), exported(party(&from), None).await);
    for after in [false, true] {
        for calls in 0.. {
            let to = Memory::new();
            let died = moving::import(Dying::new(&to, calls, after).party(), lines(&file), &quiet).await.is_err();
            let imported = is_send(moving::import(party(&to), lines(&file), &quiet)).await.expect("imports");
            assert_eq!(imported.events + imported.repeated, all(&from).await.len() as u64);
            assert_eq!(held(&all(&to).await), expected, "killed at call {calls}");
            if !died {
                assert!(calls >= 35, "it was killed at every call: {calls}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn answers_that_are_lost_on_the_way_lose_and_double_nothing() {
    const IMPATIENT: Timeouts =
        Timeouts { connect: Duration::from_secs(1), attempt: Duration::from_secs(10), operation: Duration::from_secs(20), attempts: 1 };
    let from = Memory::new();
    fill(&from, &Env::seeded(17), 60).await;
    for feed in ["lanes-1", "streams"] {
        let engine = Engine::memory().expect("an engine").keep_tokens();
        let faults = Faults::new(engine.http_client(), 1);
        let url = format!("memory:?feed={feed}");
        let mut failed = 0;
        loop {
            faults.calm();
            let builder = Store::builder(&url).expect("url").timeouts(IMPATIENT).http_client(faults.http_client());
            let to = open(builder).await;
            faults.random(Chances { throttle: 0.01, lose_request: 0.02, lose_response: 0.04, deliver_twice: 0.05, ..Chances::default() });
            match Copy::new(party(&from), &to, "there").run(&quiet).await {
                Ok(_) => break,
                Err(error) if error.is_retryable() && failed < 500 => failed += 1,
                Err(error) => panic!("after {failed} runs: {error}"),
            }
        }
        assert!(failed > 2, "{feed}: it failed only {failed} times");
        let to = open(Store::builder(&url).expect("url").http_client(engine.http_client())).await;
        let expected = held(&all(&from).await);
        for (tag, events) in expected.iter().filter(|(tag, _)| !tag.is_empty()) {
            let there = to.log().expect("log").read_all(&Query::tag(tag).expect("query"), ReadOptions::default()).await.expect("reads");
            assert_eq!(&held(&there)[tag], events, "{feed}: {tag}");
        }
    }
}
