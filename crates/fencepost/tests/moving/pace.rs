//! How much is under way: as many commits at once as order allows, and no more read than is written.

use super::*;

/// A store that answers late and in any order, and tells how much was under way.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    env: Env,
    flying: Mutex<BTreeMap<usize, BTreeSet<String>>>,
    most: AtomicUsize,
    begun: AtomicUsize,
    /// Events behind which nothing is outstanding.
    told: AtomicUsize,
    /// Events read ahead of that, at most.
    ahead: AtomicUsize,
    read: AtomicUsize,
}

#[async_trait]
impl EventLog for Slow {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.memory.source(query, since).await
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        let tags: BTreeSet<String> = append.events().iter().flat_map(|e| e.tags().iter().map(|tag| tag.to_string())).collect();
        {
            let mut flying = self.flying.lock().expect("lock");
            assert!(flying.values().all(|others| others.is_disjoint(&tags)), "two commits of one tag are under way");
            flying.insert(number, tags);
            self.most.fetch_max(flying.len(), Ordering::SeqCst);
        }
        // One of them takes very long.
        let long = if number == 5 { 20_000 } else { 0 };
        for _ in 0..self.env.below(20) + long {
            tokio::task::yield_now().await;
        }
        let done = EventLog::append(&self.memory, append).await;
        self.flying.lock().expect("lock").remove(&number);
        done
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.memory.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        EventLog::committed(&self.memory, commit).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        EventLog::read(&self.memory, query, options)
    }
}

/// The source of a copy into [`Slow`], which counts what is read.
#[derive(Debug)]
struct Watched(Memory, Arc<Slow>);

#[async_trait]
impl Feed for Watched {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        let slow = self.1.clone();
        let watch = move |delivery: &Result<Delivery>| {
            if let Ok(Delivery::Event { .. }) = delivery {
                let read = slow.read.fetch_add(1, Ordering::SeqCst) + 1;
                slow.ahead.fetch_max(read - slow.told.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        };
        self.0.subscribe(from, query).inspect(watch).boxed()
    }
    async fn shows(&self, position: Position) -> Result<bool> {
        self.0.shows(position).await
    }
    async fn unshown_since(&self) -> Result<Option<jiff::Timestamp>> {
        self.0.unshown_since().await
    }
}

async fn copied_slowly(commits: usize, tags: u64, counted: bool) -> (Memory, Arc<Slow>) {
    let env = Env::seeded(11);
    let from = Memory::new();
    for commit in 0..commits {
        let event = |n| Event::new("T", format!("{commit}.{n}")).and_then(|e| e.tag(format!("t{}", env.below(tags)))).expect("event");
        let events: Vec<_> = (0..10).map(event).collect();
        EventLog::append(&from, Append::new(events)).await.expect("appends");
    }
    let slow = Arc::new(Slow {
        memory: Memory::new(),
        env: Env::seeded(12),
        flying: Mutex::default(),
        most: AtomicUsize::new(0),
        begun: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        ahead: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
    });
    let mut capabilities: Capabilities = from.capabilities();
    capabilities.counted_positions = counted;
    let to = Party::new(capabilities, Arc::new(slow.memory.clone())).log(slow.clone()).feed(Arc::new(slow.memory.clone()));
    let watched = Party::new(from.capabilities(), Arc::new(from.clone())).feed(Arc::new(Watched(from.clone(), slow.clone())));
    let copy = Copy::new(watched, to, "there");
    let told = slow.clone();
    let told = move |events| told.told.store(usize::try_from(events).expect("small"), Ordering::SeqCst);
    copy.run(&told).await.expect("copies");
    (from, slow)
}

#[tokio::test]
async fn commits_that_share_no_tag_are_written_at_once_and_each_tag_keeps_its_order() {
    let (from, slow) = copied_slowly(300, 500, false).await;
    let most = slow.most.load(Ordering::SeqCst);
    assert!((4..=IN_FLIGHT).contains(&most), "{most} at once");
    assert_eq!(held(&all(&slow.memory).await), held(&all(&from).await));
    assert!(moving::compare(party(&from), party(&slow.memory), &quiet).await.expect("compares").is_equal());
}

#[tokio::test]
async fn a_store_that_counts_its_events_keeps_the_total_order() {
    let (from, slow) = copied_slowly(50, 500, true).await;
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
    let ids = |events: Vec<Recorded>| events.into_iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids(all(&slow.memory).await), ids(all(&from).await));
}

#[tokio::test]
async fn no_more_is_read_ahead_than_is_under_way() {
    let (_, slow) = copied_slowly(1_000, u64::MAX, false).await;
    assert_eq!(slow.read.load(Ordering::SeqCst), 10_000);
    assert_eq!(slow.most.load(Ordering::SeqCst), IN_FLIGHT);
    // What is under way, one commit that waits for its turn, and the first event of the next, by which the end of that one is known.
    let ahead = slow.ahead.load(Ordering::SeqCst);
    assert!(ahead <= (IN_FLIGHT + 1) * 10 + 1, "{ahead} events read ahead");
}
