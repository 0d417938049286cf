//! The conformance suite for every store: one named test per case and store. One line each: `conformance!(name, open)`.

use std::sync::Arc;

use fencepost::testing::conformance::Subject;
use fencepost::{Memory, conformance};

conformance!(memory, open_memory);

async fn open_memory() -> Subject {
    let memory = Memory::new();
    // Clones share the events and nothing else, which is all that a second process would.
    Subject { second: Some(Box::new(subject(memory.clone()))), ..subject(memory) }
}

fn subject(memory: Memory) -> Subject {
    let capabilities = memory.capabilities();
    let memory = Arc::new(memory);
    Subject {
        log: Some(memory.clone()),
        streams: memory.clone(),
        feed: Some(memory.clone()),
        checkpoints: memory.clone(),
        states: memory,
        second: None,
        capabilities,
    }
}
