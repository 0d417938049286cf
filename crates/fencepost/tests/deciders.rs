//! Deciders over streams: the same loop on any store of streams, with snapshots that are used on load and never needed, and a cache.

mod support;

use std::sync::Arc;

use fencepost::testing::given;
use fencepost::{
    Cache, Category, CommitId, Decided, Decider, Event, LoadOptions, Memory, Snapshot, Step, StreamName, StreamStore, StreamStoreExt,
};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use support::{Ground, open};

#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
#[event(untagged)]
enum Cart {
    Added { sku: String, n: u32 },
    CheckedOut,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct State {
    items: u32,
    closed: bool,
    /// How many events were folded onto this state since it was made: tells a load from a snapshot from a whole one.
    #[serde(skip)]
    folded: u32,
}

enum Command {
    Add(u32),
    CheckOut,
}

#[derive(Debug, PartialEq)]
enum No {
    Closed,
    Full,
}

struct Carts;

impl Decider for Carts {
    type State = State;
    type Event = Cart;
    type Command = Command;
    type Rejection = No;

    fn initial(&self) -> State {
        State::default()
    }
    fn evolve(&self, state: &mut State, event: &Cart) {
        state.folded += 1;
        match event {
            Cart::Added { n, .. } => state.items += n,
            Cart::CheckedOut => state.closed = true,
        }
    }
    fn decide(&self, command: &Command, state: &State) -> Result<Vec<Cart>, No> {
        match command {
            _ if state.closed => Err(No::Closed),
            Command::Add(n) if state.items + n > 100 => Err(No::Full),
            Command::Add(n) => Ok(vec![Cart::Added { sku: "a".into(), n: *n }]),
            Command::CheckOut if state.items == 0 => Ok(vec![]),
            Command::CheckOut => Ok(vec![Cart::CheckedOut]),
        }
    }
}

fn stream(name: &str) -> StreamName {
    StreamName::new(name).expect("name")
}

async fn stores() -> Vec<(&'static str, Arc<dyn StreamStore>)> {
    let mut stores: Vec<(_, Arc<dyn StreamStore>)> = vec![("memory", Arc::new(Memory::new()))];
    for feed in ["lanes-1", "streams"] {
        stores.push((feed, open(Ground::fresh().builder(&format!("feed={feed}"))).await.streams()));
    }
    stores
}

#[test]
fn a_decider_is_tested_without_a_store() {
    given(()).when_told(&Carts, &Command::Add(3)).then([Cart::Added { sku: "a".into(), n: 3 }]);
    given(()).when_told(&Carts, &Command::CheckOut).then_nothing();
    let full = [Cart::Added { sku: "a".into(), n: 100 }];
    given(full.clone()).when_told(&Carts, &Command::Add(1)).then_rejected(No::Full);
    given(full).and([Cart::CheckedOut]).when_told(&Carts, &Command::CheckOut).then_rejected(No::Closed);
}

#[tokio::test]
async fn a_command_is_decided_on_the_whole_stream_and_on_nothing_else() {
    for (name, streams) in stores().await {
        let carts = Category::new(streams, Carts);
        let (one, other) = (stream("cart-1"), stream("cart-2"));
        assert_eq!(carts.decide(&one, &Command::Add(60)).await.expect("decides").committed().and_then(|c| c.version), Some(1), "{name}");
        assert_eq!(carts.decide(&one, &Command::Add(60)).await.expect("decides").rejection(), Some(&No::Full));
        assert!(carts.decide(&other, &Command::Add(60)).await.expect("decides").committed().is_some());
        assert!(matches!(carts.decide(&stream("cart-3"), &Command::CheckOut).await.expect("decides").decided, Decided::Nothing));
        assert!(carts.decide(&one, &Command::CheckOut).await.expect("decides").committed().is_some());
        assert_eq!(carts.decide(&one, &Command::Add(1)).await.expect("decides").rejection(), Some(&No::Closed));
        assert_eq!(carts.state(&one).await.expect("loads").items, 60);
    }
}

#[tokio::test]
async fn snapshots_are_written_every_n_events_and_used_on_load() {
    for (name, streams) in stores().await {
        let carts = Category::new(streams.clone(), Carts).snapshots("cart-1", 5);
        let cart = stream("cart-1");
        for n in 1..=12u64 {
            let done = carts.decide(&cart, &Command::Add(1)).await.expect("decides");
            assert_eq!(done.committed().and_then(|c| c.version), Some(n));
            let loaded = streams.load(&cart, LoadOptions::default().snapshot(["cart-1"])).await.expect("loads");
            assert_eq!(loaded.snapshots.first().map(|s| s.version), (n >= 5).then_some(n / 5 * 5), "{name} at {n}");
        }
        let state = carts.state(&cart).await.expect("loads");
        assert_eq!((state.items, state.folded), (12, 2), "{name}: ten from the snapshot, two events");
        // Another shape under another name: all events are folded, once.
        let renamed = Category::new(streams.clone(), Carts).snapshots("cart-2", 5);
        assert_eq!(renamed.state(&cart).await.expect("loads").folded, 12);
    }
}

#[tokio::test]
async fn a_snapshot_that_does_not_decode_is_passed_over() {
    for (name, streams) in stores().await {
        let cart = stream("cart-1");
        let added = fencepost::IntoEvents::into_events([Cart::Added { sku: "a".into(), n: 7 }]).expect("events");
        streams.append(&cart, Step::new(added).snapshot(Snapshot::new("cart-1", &b"{\"other\":1}"[..]))).await.expect("appends");
        let carts = Category::new(streams, Carts).snapshots("cart-1", 5);
        assert_eq!(carts.state(&cart).await.expect("loads").items, 7, "{name}");
        assert!(carts.decide(&cart, &Command::Add(1)).await.expect("decides").committed().is_some());
    }
}

#[tokio::test]
async fn racers_on_one_stream_all_get_their_turn_with_and_without_a_cache() {
    for (name, streams) in stores().await {
        for cache in [None, Some(Cache::new(10))] {
            let mut carts = Category::new(streams.clone(), Carts).snapshots("cart-1", 10);
            if let Some(cache) = &cache {
                carts = carts.cache(cache);
            }
            let cart = stream(&format!("cart-{}", cache.is_some()));
            let outcomes = join_all((0..30).map(async |_| carts.decide(&cart, &Command::Add(5)).await.expect("decides"))).await;
            let won = outcomes.iter().filter(|outcome| outcome.committed().is_some()).count();
            assert_eq!(won, 20, "{name}: a hundred items at most");
            assert_eq!(streams.read_stream(&cart, Default::default()).await.expect("reads").len(), 20);
            assert_eq!(carts.state(&cart).await.expect("loads").items, 100);
            if let Some(cache) = cache {
                assert_eq!((cache.stats().misses, cache.stats().hits), (1, 30), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_same_key_returns_the_first_outcome() {
    for (name, streams) in stores().await {
        let carts = Category::new(streams, Carts);
        let cart = stream("cart-1");
        let first = carts.decide(&cart, &Command::Add(60)).once("add 60").await.expect("decides").committed().cloned().expect("recorded");
        assert_eq!(first.commit, CommitId::of_key("add 60"));
        let again = carts.decide(&cart, &Command::Add(60)).once("add 60").await.expect("decides");
        let again = again.committed().expect("recorded, though it would be too much today");
        assert_eq!((again.commit, &again.positions, again.version), (first.commit, &first.positions, Some(1)), "{name}");
        assert_eq!(carts.state(&cart).await.expect("loads").items, 60);
    }
}

#[tokio::test]
async fn unknown_types_are_refused_or_skipped_as_the_category_says() {
    for (_, streams) in stores().await {
        let cart = stream("cart-1");
        let unknown = Event::new("CartAbandoned", "{}").expect("event");
        streams.append(&cart, Step::new([unknown])).await.expect("appends");
        let error = Category::new(streams.clone(), Carts).decide(&cart, &Command::Add(1)).await.expect_err("refused");
        assert!(error.to_string().contains("CartAbandoned"), "{error}");
        let carts = Category::new(streams, Carts).skip_unknown();
        assert_eq!(carts.decide(&cart, &Command::Add(1)).await.expect("decides").committed().and_then(|c| c.version), Some(2));
    }
}
