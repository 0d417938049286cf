//! Streams mode for the conformance suite: an indexer in the background, and appends that return once the feed has them, since the suite
//! expects of a feed that has caught up to have what was appended before.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost::testing::conformance::Subject;
use fencepost::{
    Answer, Append, CommitId, Committed, Delivery, EventLog, From, IndexOptions, Position, Query, ReadOptions, Recorded, Result, Sourced,
    Store, Token,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::watch;

/// A subject with two handles whose feed is kept up by one indexer.
pub(crate) fn subject(first: &Store, second: &Store) -> Subject {
    let index = first.index().expect("an index");
    tokio::spawn(async move {
        let options = IndexOptions::default().idle(Duration::from_millis(2), Duration::from_millis(20));
        let ended = index.run(&options, &|_| ()).await;
        panic!("the indexer ended: {ended:?}");
    });
    let (seen, fed) = watch::channel(HashSet::new());
    let mut feed = first.feed().expect("a feed").subscribe(From::Start, Query::all());
    tokio::spawn(async move {
        while let Some(delivery) = feed.next().await {
            if let Delivery::Event { event, .. } = delivery.expect("delivers") {
                seen.send_modify(|seen| {
                    seen.insert(event.position);
                });
            }
        }
    });
    let settled = |store: &Store| {
        let log: Arc<dyn EventLog> = Arc::new(Settled { log: store.log().expect("a log"), fed: fed.clone() });
        Subject { log: Some(log), ..super::subject(store) }
    };
    Subject { second: Some(Box::new(settled(second))), ..settled(first) }
}

#[derive(Debug)]
struct Settled {
    log: Arc<dyn EventLog>,
    fed: watch::Receiver<HashSet<Position>>,
}

#[async_trait]
impl EventLog for Settled {
    async fn source(&self, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        self.log.source(query, since).await
    }

    async fn append(&self, append: Append) -> Result<Committed> {
        let committed = self.log.append(append).await?;
        let all = |seen: &HashSet<Position>| committed.positions.iter().all(|position| seen.contains(position));
        let settled = self.fed.clone().wait_for(all).await.is_ok();
        assert!(settled, "the indexer and the feed live as long as the test");
        Ok(committed)
    }

    async fn unchanged(&self, token: &Token) -> Result<Answer<bool>> {
        self.log.unchanged(token).await
    }

    async fn committed(&self, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        self.log.committed(commit).await
    }

    fn read<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.log.read(query, options)
    }
}
