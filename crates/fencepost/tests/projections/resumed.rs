//! A checkpoint in the middle of a commit, over several lanes, and then a commit of another lane that was stamped earlier and comes late. What was
//! begun is ended first: a checkpoint has room for one commit that was handed over in part, and of the other's it said nothing of the first.

use std::sync::Arc;
use std::time::Duration;

use fencepost::{Append, Delivery, Env, Event, Feed, From, Position, Projection, Projections, Query, Recorded, Result, Store};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use crate::follow::{self, wait_for};
use crate::support::{Ground, open};

/// Three events of one commit by a writer whose clock is ahead; later come those of writers behind it, each on its own lane.
async fn begun() -> (Ground, Store) {
    // An endpoint's own clock would refuse one that is ahead.
    let (ground, ahead) = (Ground::embedded(), Env::seeded(1));
    ahead.advance(Duration::from_secs(3600));
    let store = open(ground.builder("feed=lanes-8").env(ahead)).await;
    append(&store, &["0", "1", "2"], "early").await;
    (ground, store)
}

async fn append(store: &Store, labels: &[&str], tag: &str) {
    let event = |label: &&str| Event::new("Noted", label.as_bytes().to_vec()).and_then(|event| event.tag(tag)).expect("an event");
    store.log().expect("a log").append(Append::new(labels.iter().map(event))).await.expect("appends");
}

/// Of eight writers not all choose the lane that the first has. How many events they wrote.
async fn come_late(ground: &Ground) -> usize {
    for n in 0..8 {
        let behind = open(ground.builder("feed=lanes-8").env(Env::seeded(100 + n))).await;
        append(&behind, &[&(10 + 2 * n).to_string(), &(11 + 2 * n).to_string()], &format!("late:{n}")).await;
    }
    16
}

/// A feed of which only so many events come: whoever follows it stands there.
#[derive(Debug)]
pub(crate) struct Short(pub(crate) Arc<dyn Feed>, pub(crate) usize);

#[async_trait::async_trait]
impl Feed for Short {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        let events = self.0.subscribe(from, query).try_filter(|next| std::future::ready(matches!(next, Delivery::Event { .. })));
        events.take(self.1).chain(stream::pending()).boxed()
    }
    async fn shows(&self, position: Position) -> Result<bool> {
        self.0.shows(position).await
    }
    async fn unshown_since(&self) -> Result<Option<jiff::Timestamp>> {
        self.0.unshown_since().await
    }
}

/// Dropped after every single event and taken up again from its checkpoint.
#[tokio::test]
async fn a_feed_over_lanes_that_stopped_within_a_commit_ends_it_first_whatever_was_stamped_before() {
    let (ground, store) = begun().await;
    let feed = store.feed().expect("a feed");
    let (mut from, mut met) = (From::Start, Vec::new());
    let mut late = 0;
    while met.len() < 3 + late {
        let mut deliveries = feed.subscribe(from.clone(), Query::all());
        let next = deliveries.next().await.expect("never ends").expect("delivers");
        let Delivery::Event { event, checkpoint } = next else { panic!("{met:?}, and then {next:?}") };
        met.push(follow::label(&event));
        from = From::Checkpoint(checkpoint);
        if met.len() == 1 {
            late = come_late(&ground).await;
        }
    }
    assert_eq!(met[..3], [0, 1, 2], "{met:?}");
    met.sort_unstable();
    assert_eq!(met, (0..3).chain(10..26).collect::<Vec<_>>(), "each once");
    let rest = feed.subscribe(from, Query::all()).next().await.expect("never ends").expect("delivers");
    assert!(matches!(rest, Delivery::CaughtUp { .. }), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projection_over_lanes_stopped_twice_within_a_commit_counts_every_event_once() {
    let (ground, store) = begun().await;
    let fold = |state: &mut Vec<usize>, event: &Recorded| -> Result<(), String> {
        state.push(follow::label(event));
        Ok(())
    };
    let seen = Projection::new("seen", 1, Vec::new, fold).expect("a good name").save_every(1, Duration::from_millis(5));
    let stored = |all: &Projections| {
        let all = all.clone();
        async move { all.get_version::<Vec<usize>>("seen", 1).await.expect("reads").map(|got| got.state).unwrap_or_default() }
    };
    let events = |n| Projections::new(Arc::new(Short(store.feed().expect("a feed"), n)), store.cells(), Env::system());
    // It stands within the commit, and then wherever it is after one event more; and then it goes on.
    let mut late = 0;
    for count in [1, 2] {
        let one = events(1);
        let reached = wait_for(|| async { stored(&one).await.len() >= count });
        let _ = one.run_until(&seen, reached).await.expect("runs");
        if late == 0 {
            late = come_late(&ground).await;
        }
    }
    let all = events(usize::MAX);
    let reached = wait_for(|| async { stored(&all).await.len() >= 3 + late });
    let _ = all.run_until(&seen, reached).await.expect("runs");
    let mut met = stored(&all).await;
    met.sort_unstable();
    assert_eq!(met, (0..3).chain(10..26).collect::<Vec<_>>(), "each once");
}
