//! Comparisons: every difference told, and none that is not one.

use super::*;

/// What `change` does to one of three events on one tag, as the comparison tells it.
async fn told(change: impl Fn(Vec<Event>) -> Vec<Event>) -> Vec<Vec<&'static str>> {
    let event = |n: u128| {
        let meta = Metadata { occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() };
        Event::new("T", format!("{n}")).and_then(|e| e.tag("a")).expect("event").id(Uuid::from_u128(n)).meta(meta)
    };
    let (left, right) = (Memory::new(), Memory::new());
    let events: Vec<Event> = (1..=4).map(event).collect();
    EventLog::append(&left, Append::new(events.clone())).await.expect("appends");
    EventLog::append(&right, Append::new(change(events))).await.expect("appends");
    let compared = moving::compare(party(&left), party(&right), &quiet).await.expect("compares");
    assert_eq!(compared.differing, compared.differences.len() as u64);
    assert_eq!(compared.is_equal(), compared.differing == 0);
    compared.differences.into_iter().map(|difference| difference.fields).collect()
}

#[tokio::test]
async fn every_difference_is_named() {
    let second = |to: fn(Event) -> Event| {
        move |mut events: Vec<Event>| {
            events[1] = to(events[1].clone());
            events
        }
    };
    let other = |name: &str, body: &'static str, old: &Event| Event::new(name, body).expect("event").id(old.given_id().expect("id"));
    assert_eq!(told(|events| events).await, Vec::<Vec<&str>>::new());
    assert_eq!(told(second(|e| e.tag("b").expect("tag"))).await, [["tags"]]);
    assert_eq!(
        told(second(|e| e.meta(Metadata { user: Some("u".into()), occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() })))
            .await,
        [["metadata"]]
    );
    assert_eq!(told(second(|e| e.meta(Metadata { occurred: Some(jiff::Timestamp::MAX), ..Metadata::default() }))).await, [["time"]]);
    let body = |mut events: Vec<Event>| {
        events[1] = other("T", "x", &events[1]).tag("a").expect("tag").meta(events[1].metadata().clone());
        events
    };
    assert_eq!(told(body).await, [["body"]]);
    let kind = |mut events: Vec<Event>| {
        events[1] = other("U", "2", &events[1]).tag("a").expect("tag").meta(events[1].metadata().clone());
        events
    };
    assert_eq!(told(kind).await, [["type"]]);
    assert_eq!(
        told(|mut events| {
            events.remove(1);
            events
        })
        .await,
        [["missing"]]
    );
    assert_eq!(
        told(|mut events| {
            events.insert(1, Event::new("T", "").and_then(|e| e.tag("a")).expect("event"));
            events
        })
        .await,
        [["extra"]]
    );
    assert_eq!(
        told(|mut events| {
            events.swap(1, 2);
            events
        })
        .await,
        [["order"]]
    );
}

#[tokio::test]
async fn the_order_of_events_that_share_no_tag_is_no_difference() {
    let event = |n: u128| Event::new("T", "").and_then(|e| e.tag(format!("t{n}"))).expect("event").id(Uuid::from_u128(n));
    let meta = Metadata { occurred: Some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() };
    let (left, right) = (Memory::new(), Memory::new());
    EventLog::append(&left, Append::new((0..50).map(|n| event(n).meta(meta.clone())))).await.expect("appends");
    EventLog::append(&right, Append::new((0..50).rev().map(|n| event(n).meta(meta.clone())))).await.expect("appends");
    let compared = moving::compare(party(&left), party(&right), &quiet).await.expect("compares");
    assert!(compared.is_equal() && compared.equal == 50, "{compared:?}");
}

#[tokio::test]
async fn events_that_come_during_the_comparison_are_for_the_next_run() {
    let (from, to) = (Memory::new(), Memory::new());
    fill(&from, &Env::seeded(5), 5).await;
    let copy = Copy::new(party(&from), party(&to), "there");
    copy.run(&quiet).await.expect("copies");
    fill(&from, &Env::seeded(6), 1).await;
    assert!(copy.compare(&quiet).await.expect("compares").is_equal());
    assert!(!moving::compare(party(&from), party(&to), &quiet).await.expect("compares").is_equal());
}

/// Over several lanes a commit is merged by its writer's clock: one that is recorded after the copy, by a writer whose clock is behind, comes
/// before events that were copied. Counted from the front, it would push one of them out.
#[tokio::test]
async fn what_is_recorded_since_under_an_earlier_time_is_for_the_next_run() {
    for to in ["feed=lanes-1", "feed=streams"] {
        // An endpoint's own clock would refuse one that is ahead.
        let (ground, ahead) = (Ground::embedded(), Env::seeded(1));
        ahead.advance(Duration::from_secs(3600));
        let from = open(ground.builder("feed=lanes-8").env(ahead.clone())).await;
        for n in 0..20 {
            fill(&*from.log().expect("log"), &Env::seeded(20 + n), 1).await;
            ahead.advance(Duration::from_secs(1));
        }
        let copy = Copy::new(&from, &store(to).await, "there");
        let copied = copy.run(&quiet).await.expect("copies");
        for n in 0..8 {
            let event = Event::new("Late", "{}").and_then(|event| event.tag(format!("late:{n}"))).expect("event");
            // Each keeps to a lane of its own.
            let behind = open(ground.builder("feed=lanes-8").env(Env::seeded(100 + n))).await;
            behind.log().expect("log").append(Append::new([event])).await.expect("appends");
        }
        let compared = copy.compare(&quiet).await.expect("compares");
        assert!(compared.is_equal(), "{to}: {compared:?}");
        assert_eq!((compared.source, compared.equal), (copied.events, copied.events), "{to}");
        assert_eq!(copy.run(&quiet).await.expect("copies").events, 8, "{to}");
        assert!(copy.compare(&quiet).await.expect("compares").is_equal(), "{to}");
    }
}

/// What was copied and is not there is told, though other events came since.
#[tokio::test]
async fn what_is_missing_is_told_beside_what_came_since() {
    let (from, to, lost) = (Memory::new(), Memory::new(), Memory::new());
    fill(&from, &Env::seeded(21), 5).await;
    Copy::new(party(&from), party(&to), "there").run(&quiet).await.expect("copies");
    fill(&from, &Env::seeded(22), 1).await;
    // The mark of the copy, and nothing else.
    let (mark, _) = Checkpoints::load(&to, "moving.there").await.expect("loads").expect("a mark");
    Checkpoints::save(&lost, "moving.there", &mark, None).await.expect("saves");
    let compared = Copy::new(party(&from), party(&lost), "there").compare(&quiet).await.expect("compares");
    assert_eq!((compared.source, compared.differing), (all(&to).await.len() as u64, all(&to).await.len() as u64), "{compared:?}");
}

/// A log that records something else than it was given: by the type of an event another body, metadata or time; a commit back to front.
#[derive(Debug)]
struct Mangling(Arc<dyn EventLog>);

#[async_trait]
impl EventLog for Mangling {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.0.source(query, since).await
    }
    async fn append(&self, append: Append) -> Result<Committed> {
        let mangled = |event: &Event| {
            let body = if event.event_type().as_str() == "Bad" { b"other".to_vec() } else { event.data().to_vec() };
            let mut meta = event.metadata().clone();
            match event.event_type().as_str() {
                "Else" => meta.user = Some("somebody else".into()),
                "Then" => meta.occurred = Some(jiff::Timestamp::UNIX_EPOCH),
                _ => {}
            }
            let bare = Event::new(event.event_type(), body).expect("event").meta(meta);
            let bare = event.given_id().into_iter().fold(bare, Event::id);
            event.tags().iter().fold(bare, |event, tag| event.with_tag(tag.clone()))
        };
        let mangled = Append::new(append.events().iter().rev().map(mangled).collect::<Vec<_>>());
        self.0.append(append.commit_id().into_iter().fold(mangled, Append::commit)).await
    }
    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.0.unchanged(token).await
    }
    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.0.committed(commit).await
    }
    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.0.read(query, options)
    }
}

/// Every commit is there under its id; only who reads its events sees what became of them.
#[tokio::test]
async fn a_destination_that_cannot_be_read_whole_is_compared_event_by_event() {
    let from = Memory::new();
    let event = |n: u128, kind| Event::new(kind, n.to_string()).and_then(|event| event.tag("tag:1")).expect("event").id(Uuid::from_u128(n));
    let single = ["Good", "Bad", "Else", "Then"].into_iter().zip(0..).map(|(kind, n)| vec![event(n, kind)]);
    for commit in single.chain([vec![event(4, "Good"), event(5, "Good")]]) {
        EventLog::append(&from, Append::new(commit)).await.expect("appends");
    }
    let to = store("feed=streams").await;
    let log = Arc::new(Mangling(to.log().expect("log")));
    let copy = Copy::new(party(&from), Party::new(to.capabilities(), to.checkpoints()).log(log), "there");
    copy.run(&quiet).await.expect("copies");
    let compared = copy.compare(&quiet).await.expect("compares");
    assert!(!compared.by_commits, "{compared:?}");
    let told: Vec<_> = compared.differences.iter().map(|one| (one.id.as_u128(), one.fields.clone())).collect();
    let differ = [(1, "body"), (2, "metadata"), (3, "time"), (5, "order")].map(|(id, field)| (id, vec![field]));
    assert_eq!((compared.equal, told), (2, differ.to_vec()), "{compared:?}");
}

/// Where the destination cannot be read whole, the tags that are read tell: more events than the source brought there are others.
#[tokio::test]
async fn what_only_the_destination_has_on_a_tag_of_the_source_is_told_though_it_cannot_be_read_whole() {
    for (parameters, name) in [("feed=streams", "a"), ("layout=equinox", "Cart-1"), ("layout=event-store-adapter-v5", "cart-1")] {
        let (from, to) = (Memory::new(), store(parameters).await);
        for n in 0..6 {
            let event = Event::new("T", format!("{n}")).and_then(|event| event.tag(format!("{name}{}", n % 2))).expect("event");
            EventLog::append(&from, Append::new([event])).await.expect("appends");
        }
        let copy = Copy::new(party(&from), &to, "there");
        copy.run(&quiet).await.expect("copies");
        let compared = copy.compare(&quiet).await.expect("compares");
        assert!(compared.is_equal(), "{parameters}: {compared:?}");
        let (stream, id) = (StreamName::new(format!("{name}1")).expect("a name"), Uuid::from_u128(77));
        let other = || Event::new("T", "7").expect("event").id(id);
        to.streams().append(&stream, Step::new([other()])).await.expect("appends");
        let compared = copy.compare(&quiet).await.expect("compares");
        let told: Vec<_> = compared.differences.iter().map(|one| (one.id, one.fields.clone())).collect();
        assert_eq!((compared.equal, told), (6, vec![(id, vec!["extra"])]), "{parameters}: {compared:?}");
        let mixed = Copy::new(party(&from), &to, "there").into_existing();
        assert!(mixed.compare(&quiet).await.expect("compares").is_equal(), "{parameters}: they may be there");
        // The source has it too, and came by it later: it is no other.
        EventLog::append(&from, Append::new([other().tag(stream.as_str()).expect("a tag")])).await.expect("appends");
        let compared = copy.compare(&quiet).await.expect("compares");
        assert!(compared.by_tags && compared.differences.iter().all(|one| one.fields == ["time"]), "{parameters}: {compared:?}");
    }
}
