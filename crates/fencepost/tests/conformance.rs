//! The conformance suite for every store: one named test per case and store. One line each: `conformance!(name, open)`.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use fencepost::testing::conformance::{INDEXED_TYPES, Subject};
use fencepost::{
    After, Answer, Append, CommitId, Committed, Error, EventLog, Memory, Query, ReadOptions, Recorded, Refused, Result, Sourced, Token,
    conformance,
};
use futures::StreamExt;
use futures::stream::BoxStream;

conformance!(memory, open_memory);
conformance!(ledger_lanes_1, open_ledger_lanes_1);
conformance!(ledger_lanes_8, open_ledger_lanes_8);
conformance!(ledger_streams, open_ledger_streams);
conformance!(event_store_adapter_v3, open_event_store_adapter_v3);
conformance!(event_store_adapter_v5, open_event_store_adapter_v5);
conformance!(equinox, open_equinox);
// A Tip of two events: every case runs over calves.
conformance!(equinox_calving, open_equinox_calving);
// All tags of one key, which is the partition; and tags of three keys, of which two are fenced across partitions.
conformance!(reventless, open_reventless);
conformance!(reventless_cross, open_reventless_cross);
conformance!(sekiban, open_sekiban);
conformance!(sekiban_sharded_plain, open_sekiban_sharded_plain);
conformance!(sekiban_streams, open_sekiban_streams);
// The suite itself: what it asserts to be refused, on a store that refuses all that a store may.
conformance!(restricted, open_restricted);

async fn open_ledger_lanes_1() -> Subject {
    support::ledger("lanes-1").await
}

async fn open_ledger_lanes_8() -> Subject {
    support::ledger("lanes-8").await
}

async fn open_ledger_streams() -> Subject {
    support::ledger("streams").await
}

async fn open_event_store_adapter_v3() -> Subject {
    support::event_store_adapter("v3").await
}

async fn open_event_store_adapter_v5() -> Subject {
    support::event_store_adapter("v5").await
}

async fn open_equinox() -> Subject {
    support::two("layout=equinox").await
}

async fn open_equinox_calving() -> Subject {
    support::two("layout=equinox&tip_events=2&page=3").await
}

async fn open_reventless() -> Subject {
    support::keyed::reventless("partition=p", |_| "p").await
}

async fn open_reventless_cross() -> Subject {
    let of = |tag: &str| ["p", "x", "y"][tag.bytes().map(usize::from).sum::<usize>() % 3];
    support::keyed::reventless("partition=p&cross=x,y", of).await
}

async fn open_sekiban() -> Subject {
    support::two("layout=sekiban").await
}

async fn open_sekiban_sharded_plain() -> Subject {
    support::two("layout=sekiban&keys=plain&shards=3").await
}

async fn open_sekiban_streams() -> Subject {
    let ground = support::Ground::fresh();
    let parameters = "layout=sekiban&feed=streams";
    let (first, second) = (support::open(ground.builder(parameters)).await, support::open(ground.builder(parameters)).await);
    support::settled::subject(&first, &second)
}

async fn open_memory() -> Subject {
    let memory = Memory::new();
    // Clones share the events and nothing else, which is all that a second process would.
    Subject { second: Some(Box::new(memory_subject(memory.clone()))), ..memory_subject(memory) }
}

fn memory_subject(memory: Memory) -> Subject {
    let capabilities = memory.capabilities();
    let memory = Arc::new(memory);
    Subject {
        log: Some(memory.clone()),
        streams: memory.clone(),
        feed: Some(memory.clone()),
        checkpoints: memory.clone(),
        states: memory.clone(),
        cells: memory,
        second: None,
        capabilities,
    }
}

async fn open_restricted() -> Subject {
    let memory = Memory::new();
    Subject { second: Some(Box::new(restricted_subject(memory.clone()))), ..restricted_subject(memory) }
}

fn restricted_subject(memory: Memory) -> Subject {
    let mut subject = memory_subject(memory.clone());
    subject.log = Some(Arc::new(Restricted(memory)));
    subject.feed = None;
    subject.capabilities.untagged_conditions = false;
    subject.capabilities.untagged_reads = false;
    subject.capabilities.counted_positions = false;
    subject.capabilities.feed = false;
    subject.capabilities.max_tags = MAX_TAGS;
    subject
}

const MAX_TAGS: usize = 98;

/// Memory that holds no condition and no read without a tag, but for the indexed types, and takes no bare position.
#[derive(Debug)]
struct Restricted(Memory);

fn unsupported(what: &str) -> Error {
    Refused::Unsupported { what: what.into(), remedy: "use a tag, an indexed type, or a token".into() }.into()
}

fn held(query: &Query) -> Result<()> {
    let indexed =
        query.items().iter().all(|item| !item.tags().is_empty() || item.types().iter().all(|ty| INDEXED_TYPES.contains(&ty.as_str())));
    if indexed && !query.is_all() { Ok(()) } else { Err(unsupported("a query without a tag")) }
}

#[async_trait]
impl EventLog for Restricted {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        held(query)?;
        let sourced = self.0.source(query, since).await?;
        Ok(Sourced::new(sourced.events, sourced.token, None, sourced.units))
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let tags: BTreeSet<_> = append.events().iter().flat_map(|event| event.tags()).collect();
        if tags.len() > MAX_TAGS {
            return Err(Refused::TooManyItems { items: tags.len() + 2, limit: MAX_TAGS + 2 }.into());
        }
        if let Some(condition) = append.condition() {
            held(&condition.query)?;
            if matches!(condition.after, After::Position(_)) {
                return Err(unsupported("a bare position"));
            }
        }
        EventLog::append(&self.0, append).await
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.0.unchanged(token).await
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        EventLog::committed(&self.0, commit).await
    }

    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        match held(query) {
            Ok(()) => EventLog::read(&self.0, query, options),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
}
