//! Opening ledgers for tests: on a fresh engine in this process, or on the endpoint that `FENCEPOST_TEST_ENDPOINT` names.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub(crate) mod first_snapshot;
pub(crate) mod keyed;
pub(crate) mod settled;

use fencepost::testing::conformance::{INDEXED_TYPES, Subject};
use fencepost::{Builder, Engine, Env, EventType, Store};

/// Where a test's tables are: a fresh engine, or fresh names on a given endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Ground {
    Engine(Engine),
    Endpoint(String),
}

impl Ground {
    pub(crate) fn fresh() -> Ground {
        match std::env::var("FENCEPOST_TEST_ENDPOINT") {
            Ok(endpoint) => Ground::Endpoint(format!("{}/test-{}", endpoint.trim_end_matches('/'), Env::system().new_id().simple())),
            Err(_) => Ground::embedded(),
        }
    }

    /// On the embedded engine whatever the environment says: for units, and for what only it can be made to do.
    pub(crate) fn embedded() -> Ground {
        Ground::Engine(Engine::memory().expect("an engine in memory"))
    }

    /// A store on it, as another process would open it: nothing is shared but the tables.
    pub(crate) fn builder(&self, parameters: &str) -> Builder {
        match self {
            Ground::Engine(engine) => {
                Store::builder(&format!("memory:?{parameters}")).expect("a good URL").http_client(engine.http_client())
            }
            Ground::Endpoint(url) => Store::builder(&format!("{url}?{parameters}")).expect("a good URL").create(true),
        }
    }
}

pub(crate) fn indexed_types() -> Vec<EventType> {
    INDEXED_TYPES.iter().map(|name| EventType::new(name).expect("a type")).collect()
}

pub(crate) async fn open(builder: Builder) -> Store {
    builder.open().await.expect("opens")
}

pub(crate) fn subject(store: &Store) -> Subject {
    Subject {
        log: store.log().ok(),
        streams: store.streams(),
        feed: store.feed().ok(),
        checkpoints: store.checkpoints(),
        states: store.states(),
        cells: store.cells(),
        second: None,
        capabilities: store.capabilities(),
    }
}

/// A ledger in this mode, and a second handle on it.
pub(crate) async fn ledger(feed: &str) -> Subject {
    let ground = Ground::fresh();
    let parameters = format!("feed={feed}");
    let builder = || {
        let builder = ground.builder(&parameters);
        if feed == "streams" { builder.index_types(indexed_types()) } else { builder }
    };
    let first = open(builder()).await;
    let second = open(builder()).await;
    if feed == "streams" {
        return settled::subject(&first, &second);
    }
    Subject { second: Some(Box::new(subject(&second))), ..subject(&first) }
}

/// A store of event-store-adapter's tables, and a second handle on it.
pub(crate) async fn event_store_adapter(generation: &str) -> Subject {
    let ground = Ground::fresh();
    let parameters = format!("layout=event-store-adapter-{generation}");
    let (first, second) = (open(ground.builder(&parameters)).await, open(ground.builder(&parameters)).await);
    let subject = |store: &Store| match generation {
        "v3" => first_snapshot::subject(store),
        _ => subject(store),
    };
    Subject { second: Some(Box::new(subject(&second))), ..subject(&first) }
}

/// A store by its parameters, and a second handle on it.
pub(crate) async fn two(parameters: &str) -> Subject {
    let ground = Ground::fresh();
    let first = open(ground.builder(parameters)).await;
    let second = open(ground.builder(parameters)).await;
    Subject { second: Some(Box::new(subject(&second))), ..subject(&first) }
}
