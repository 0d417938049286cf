//! What one commit, one read, its way through the feed and its storage come to on a layout: done on an engine in this process, and counted.

use std::time::Duration;

use fencepost::testing::Meter;
use fencepost::{
    Append, Checkpoint, Delivery, Engine, Event, Expect, From, IndexOptions, LoadOptions, Query, Result, Snapshot, Step, Store, StreamName,
    Units,
};
use futures::StreamExt;

use super::Workload;

/// A layout, how it is opened, and what its stream is called.
pub(super) struct Layout {
    pub(super) name: &'static str,
    parameters: &'static str,
    stream: &'static str,
}

pub(super) const LAYOUTS: &[Layout] = &[
    Layout { name: "ledger (streams)", parameters: "feed=streams", stream: "order:1" },
    Layout { name: "ledger (lanes-1)", parameters: "feed=lanes-1", stream: "order:1" },
    Layout { name: "equinox", parameters: "layout=equinox", stream: "order-1" },
    Layout { name: "event-store-adapter-v3", parameters: "layout=event-store-adapter-v3", stream: "order-1" },
    Layout { name: "event-store-adapter-v5", parameters: "layout=event-store-adapter-v5", stream: "order-1" },
    Layout { name: "reventless", parameters: "layout=reventless&partition=order&cross=k2,k3,k4,k5,k6,k7,k8,k9", stream: "order:1" },
    Layout { name: "sekiban", parameters: "layout=sekiban&safe_window=0", stream: "order:1" },
];

/// What was counted, of one commit and of one read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    /// The mean of many, since some layouts fill an item and begin another. Of which `index_writes` were of secondary indexes.
    pub(super) commit: Units,
    pub(super) index_writes: f64,
    pub(super) load: Units,
    /// What the feed costs of one commit: an indexer's share, and one consumer's.
    pub(super) feed: Units,
    /// What one look of one consumer costs that finds nothing new.
    pub(super) idle: Units,
    /// Bytes that one event leaves in the tables, the feed's index with it, as they are billed: 100 for each item besides. Secondary indexes as
    /// their write units say, so at most.
    pub(super) bytes: f64,
    /// Whether the feed is built from DynamoDB Streams.
    pub(super) streams: bool,
    /// How many tags an event could have of those asked for.
    pub(super) tags: usize,
}

/// Commits that are counted, and wait for the indexer together.
const COUNTED: u64 = 100;
/// Bytes that DynamoDB bills for every item besides its own, in a table and in an index.
const ITEM_BYTES: f64 = 100.0;

pub(super) async fn sample(layout: &Layout, work: &Workload) -> Result<Sample> {
    let meter = Meter::new(Engine::memory()?.http_client());
    let store = Store::builder(&format!("memory:?{}", layout.parameters))?.http_client(meter.http_client()).open().await?;
    let bench = Bench { layout, work, store, meter };
    bench.sample().await
}

struct Bench<'a> {
    layout: &'a Layout,
    work: &'a Workload,
    store: Store,
    meter: Meter,
}

impl Bench<'_> {
    /// Boundaries where the layout has them and more than a stream is asked for.
    fn by_tags(&self) -> bool {
        self.work.tags > 1 && self.store.capabilities().boundaries
    }

    fn body(&self, n: u64) -> String {
        let mut filler = String::new();
        let mut at = n.wrapping_add(1);
        while filler.len() < self.work.size {
            at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n + 1);
            filler.push_str(&format!("{at:016x}"));
        }
        let text = filler.get(..self.work.size.saturating_sub(11)).unwrap_or_default();
        format!("{{\"text\":\"{text}\"}}")
    }

    fn events(&self, n: u64) -> Result<Vec<Event>> {
        let tags = |event: Event| -> Result<Event> {
            let mut event = event.tag("order:1")?;
            for tag in 2..=self.work.tags {
                event = event.tag(format!("k{tag}:1"))?;
            }
            Ok(event)
        };
        (0..self.work.events_per_commit)
            .map(|index| {
                let event = Event::new("OrderPlaced", self.body(n * 1_000 + index))?;
                if self.by_tags() { tags(event) } else { Ok(event) }
            })
            .collect()
    }

    fn stream(&self) -> Result<StreamName> {
        StreamName::new(self.layout.stream)
    }

    /// A commit by who has read what it decides on.
    async fn commit(&self, n: u64, known: bool) -> Result<(Units, f64)> {
        if self.by_tags() {
            let (log, query) = (self.store.log()?, self.boundary()?);
            let token = log.source(&query, None).await?.token;
            self.meter.take();
            log.append(Append::new(self.events(n)?).unless(query, token)).await?;
        } else {
            let (streams, stream) = (self.store.streams(), self.stream()?);
            let expect = match known {
                true => Expect::Token(streams.load(&stream, LoadOptions::default().latest()).await?.token),
                false => Expect::Any,
            };
            let mut step = Step::new(self.events(n)?).expect(expect);
            if n == 0 && self.layout.name == "event-store-adapter-v3" {
                step = step.snapshot(Snapshot::new("snapshot", "{}"));
            }
            self.meter.take();
            streams.append(&stream, step).await?;
        }
        let indexes = self.meter.index_writes();
        Ok((self.meter.take(), indexes))
    }

    fn boundary(&self) -> Result<Query> {
        let mut query = Query::tag("order:1")?;
        for tag in 2..=self.work.tags {
            query = query.or(Query::tag(format!("k{tag}:1"))?);
        }
        Ok(query)
    }

    async fn load(&self) -> Result<Units> {
        self.meter.take();
        if self.by_tags() {
            self.store.log()?.source(&Query::tag("order:1")?, None).await?;
        } else {
            self.store.streams().load(&self.stream()?, LoadOptions::default()).await?;
        }
        Ok(self.meter.take())
    }

    async fn index(&self) -> Result<bool> {
        let Ok(index) = self.store.index() else { return Ok(false) };
        let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(2)).until_caught_up();
        index.run(&options, &|_| ()).await?;
        Ok(true)
    }

    async fn follow(&self, from: From) -> Result<Option<Checkpoint>> {
        let mut feed = self.store.feed()?.subscribe(from, Query::all());
        while let Some(delivery) = feed.next().await {
            if let Delivery::CaughtUp { checkpoint } = delivery? {
                return Ok(Some(checkpoint));
            }
        }
        Ok(None)
    }

    /// One look that finds nothing, by a consumer that has been at the end for a while: its first also looks for the place that it was given.
    async fn idle(&self, end: Checkpoint) -> Result<Units> {
        let mut feed = self.store.feed()?.subscribe(From::Checkpoint(end), Query::all());
        while !matches!(feed.next().await.transpose()?, None | Some(Delivery::CaughtUp { .. })) {}
        self.meter.take();
        let mut look = Units::default();
        loop {
            // Nothing comes. It looks at once, and then after pauses that are longer than this.
            let _ = tokio::time::timeout(Duration::from_millis(5), feed.next()).await;
            match self.meter.take() {
                units if units.requests > 0 => look += units,
                _ if look.requests > 0 => return Ok(look),
                _ => {}
            }
        }
    }

    async fn bytes(&self) -> Result<f64> {
        Ok(self.store.stats().await?.tables.iter().map(|table| table.bytes as f64 + ITEM_BYTES * table.items as f64).sum())
    }

    async fn sample(&self) -> Result<Sample> {
        let commits = self.work.load_events.div_ceil(self.work.events_per_commit).max(1);
        for n in 0..commits {
            self.commit(n, false).await?;
        }
        let load = self.load().await?;
        let streams = self.index().await?;
        let before = self.follow(From::Start).await?;
        let bytes = self.bytes().await?;
        let (mut commit, mut index_writes) = (Units::default(), 0.0);
        for n in 0..COUNTED {
            let (units, indexes) = self.commit(commits + n, true).await?;
            commit += units;
            index_writes += indexes;
        }
        let share = |units: f64| units / COUNTED as f64;
        let commit = Units { write: share(commit.write), read: share(commit.read), requests: 0 };
        let index_writes = share(index_writes);
        self.meter.take();
        self.index().await?;
        let indexed = self.meter.take();
        let now = match before {
            Some(before) => self.follow(From::Checkpoint(before)).await?,
            None => None,
        };
        let followed = self.meter.take();
        let idle = match now {
            // On a busy machine two looks may pass for one: the cheapest is one.
            Some(now) => {
                let looks = [self.idle(now.clone()).await?, self.idle(now.clone()).await?, self.idle(now).await?];
                looks.into_iter().min_by(|a, b| a.read.total_cmp(&b.read)).unwrap_or_default()
            }
            None => Units::default(),
        };
        // With what the indexer left. An index's copy of an item takes no more than what it was billed for.
        let events = (COUNTED * self.work.events_per_commit) as f64;
        let copies = index_writes * (1_024.0 + ITEM_BYTES) / self.work.events_per_commit as f64;
        let bytes = (self.bytes().await? - bytes) / events + copies;
        let feed = Units {
            read: share(followed.read) * self.work.consumers as f64 + share(indexed.read),
            write: share(indexed.write),
            requests: 0,
        };
        let tags = if self.by_tags() { self.work.tags } else { 1 };
        Ok(Sample { commit, index_writes, load, feed, idle, bytes, streams, tags })
    }
}
