//! event-store-adapter v3 for the conformance suite: what it refuses, a first append without a snapshot, is appended with one.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost::testing::conformance::Subject;
use fencepost::{
    Answer, CommitId, Committed, Error, LoadOptions, Loaded, Recorded, Refused, Result, Snapshot, Step, Store, StreamName,
    StreamReadOptions, StreamStore,
};
use futures::stream::BoxStream;

pub(crate) fn subject(store: &Store) -> Subject {
    Subject { streams: Arc::new(FirstSnapshot(store.streams())), ..super::subject(store) }
}

#[derive(Debug)]
struct FirstSnapshot(Arc<dyn StreamStore>);

#[async_trait]
impl StreamStore for FirstSnapshot {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        self.0.load(stream, options).await
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        match self.0.append(stream, step.clone()).await {
            Err(Error::Refused(Refused::Unsupported { what, .. })) if what.contains("first append") => {
                self.0.append(stream, step.snapshot(Snapshot::new("snapshot", "{}"))).await
            }
            done => done,
        }
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.0.committed(stream, commit).await
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.0.read(stream, options)
    }
}
