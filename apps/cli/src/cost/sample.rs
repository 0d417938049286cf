//! What a commit, a read, their way through the feed, a consumer and their storage come to on a layout: done on an engine in this process, and
//! counted.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost::testing::Meter;
use fencepost::{
    Append, CellKey, CellKind, Consumer, Delivery, Engine, Event, Expect, From, Index, IndexOptions, Lease, LoadOptions, Query, Result,
    Ring, Snapshot, Step, Store, StreamName, Watch,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::Workload;
use super::consumed::{Consumed, Grows, MANY};

/// A layout, how it is opened, and what its streams are called before their number.
pub(super) struct Layout {
    pub(super) name: &'static str,
    parameters: &'static str,
    stream: &'static str,
}

pub(super) const LAYOUTS: &[Layout] = &[
    Layout { name: "ledger (streams)", parameters: "feed=streams", stream: "order:" },
    Layout { name: "ledger (lanes-1)", parameters: "feed=lanes-1", stream: "order:" },
    Layout { name: "equinox", parameters: "layout=equinox", stream: "order-" },
    Layout { name: "event-store-adapter-v3", parameters: "layout=event-store-adapter-v3", stream: "order-" },
    Layout { name: "event-store-adapter-v5", parameters: "layout=event-store-adapter-v5", stream: "order-" },
    Layout { name: "reventless", parameters: "layout=reventless&partition=order&cross=k2,k3,k4,k5,k6,k7,k8,k9", stream: "order:" },
    Layout { name: "sekiban", parameters: "layout=sekiban&safe_window=0", stream: "order:" },
];

/// What was counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// How many tags an event could have of those asked for.
    pub(super) tags: usize,
    /// The mean of many, since some layouts fill an item and begin another; on a stream of about the length asked for.
    pub(super) commit: Consumed,
    /// Of all that the commit's decision reads.
    pub(super) load: Consumed,
    /// None: the feed needs none.
    pub(super) indexer: Option<Indexer>,
    /// What commits that come together cost one consumer to read.
    pub(super) follow: Grows<Consumed>,
    /// One look of one consumer that finds nothing.
    pub(super) idle: Consumed,
    /// One write of a consumer's place and lease, and one look at the leases.
    pub(super) save: Consumed,
    pub(super) seats: Consumed,
    /// Bytes that one event leaves in tables and their indexes, as they are billed: 100 for each item besides; and those of the table that has most.
    pub(super) bytes: f64,
    pub(super) largest: f64,
}

/// What commits that come together cost to index.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexer {
    /// By one that runs already.
    pub(super) round: Grows<Consumed>,
    /// Bytes that are left of them.
    pub(super) bytes: Grows<f64>,
    /// By the function, if it is rung; none where it is fed with records.
    pub(super) ring: Option<Rung>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rung {
    /// The lease and what else a ring takes, with it.
    pub(super) round: Grows<Consumed>,
    /// For nothing.
    pub(super) nothing: Consumed,
    /// Reads of a stream of one shard (`GetRecords`), and all requests.
    pub(super) reads: Grows<f64>,
    pub(super) requests: Grows<f64>,
}

/// Commits that are counted on each side of the length asked for, at most.
const AROUND: u64 = 50;
/// Bytes that DynamoDB bills for every item besides its own, in a table and in an index.
const ITEM_BYTES: f64 = 100.0;
const CONSUMER: &str = "cost";

pub(super) async fn sample(layout: &Layout, work: &Workload) -> Result<Sample> {
    let meter = Meter::new(Engine::memory()?.http_client());
    let store = Store::builder(&format!("memory:?{}", layout.parameters))?.http_client(meter.http_client()).open().await?;
    let index = store.index().ok();
    Bench { layout, work, store, meter, index }.sample().await
}

struct Bench<'a> {
    layout: &'a Layout,
    work: &'a Workload,
    store: Store,
    meter: Meter,
    index: Option<Index>,
}

type Subscription = BoxStream<'static, Result<Delivery>>;

impl Bench<'_> {
    /// Boundaries where the layout has them and more than a stream is asked for.
    fn by_tags(&self) -> bool {
        self.work.tags > 1 && self.store.capabilities().boundaries
    }

    fn take(&self) -> Consumed {
        let places = Consumed(self.meter.places());
        self.meter.take();
        places
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

    fn tags(&self, key: u64) -> impl Iterator<Item = String> {
        let others = (2..=self.work.tags).map(move |tag| format!("k{tag}:{key}"));
        std::iter::once(format!("order:{key}")).chain(others)
    }

    fn events(&self, key: u64, n: u64) -> Result<Vec<Event>> {
        (0..self.work.events_per_commit)
            .map(|index| {
                let event = Event::new("OrderPlaced", self.body((key * 100_000 + n) * 1_000 + index))?;
                if self.by_tags() { self.tags(key).try_fold(event, |event, tag| event.tag(tag)) } else { Ok(event) }
            })
            .collect()
    }

    /// All that the decision of a commit has read.
    fn boundary(&self, key: u64) -> Result<Query> {
        let mut tags = self.tags(key).map(Query::tag);
        let first = tags.next().unwrap_or_else(|| Ok(Query::all()))?;
        tags.try_fold(first, |query, tag| Ok(query.or(tag?)))
    }

    fn stream(&self, key: u64) -> Result<StreamName> {
        StreamName::new(format!("{}{key}", self.layout.stream))
    }

    /// The n-th commit of a stream, by who has read what it decides on. That was paid before.
    async fn commit(&self, key: u64, n: u64) -> Result<Consumed> {
        if self.by_tags() {
            let (log, query) = (self.store.log()?, self.boundary(key)?);
            let token = log.source(&query, None).await?.token;
            self.meter.take();
            log.append(Append::new(self.events(key, n)?).unless(query, token)).await?;
        } else {
            let (streams, stream) = (self.store.streams(), self.stream(key)?);
            let expect = match n {
                0 => Expect::Any,
                _ => Expect::Token(streams.load(&stream, LoadOptions::default().latest()).await?.token),
            };
            let mut step = Step::new(self.events(key, n)?).expect(expect);
            if n == 0 && self.layout.name == "event-store-adapter-v3" {
                step = step.snapshot(Snapshot::new("snapshot", "{}"));
            }
            self.meter.take();
            streams.append(&stream, step).await?;
        }
        Ok(self.take())
    }

    async fn load(&self, key: u64) -> Result<Consumed> {
        self.meter.take();
        if self.by_tags() {
            self.store.log()?.source(&self.boundary(key)?, None).await?;
        } else {
            self.store.streams().load(&self.stream(key)?, LoadOptions::default()).await?;
        }
        Ok(self.take())
    }

    /// A commit on each of so many streams that have some already, as those have that are decided on.
    async fn commits(&self, streams: u64, n: u64) -> Result<()> {
        for key in 2..2 + streams {
            self.commit(key, n).await?;
        }
        Ok(())
    }

    /// An indexer that begins, and ends when it has caught up.
    async fn run(&self, index: &Index) -> Result<Consumed> {
        let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(2)).until_caught_up();
        self.meter.take();
        index.run(&options, &|_| ()).await?;
        Ok(self.take())
    }

    /// What a ring takes, its reads of the stream, and its requests.
    async fn ring(&self, index: &Index) -> Result<(Consumed, f64, f64)> {
        self.meter.take();
        let rung = index.answer(&Ring::within(Duration::from_secs(120)), &|_| ()).await?;
        let reads = self.meter.stream_reads();
        Ok((self.take(), reads as f64, rung.progress.units.requests as f64))
    }

    async fn subscribe(&self) -> Result<Subscription> {
        let mut feed = self.store.feed()?.subscribe(From::Now, Query::all());
        while !matches!(feed.next().await.transpose()?, None | Some(Delivery::CaughtUp { .. })) {}
        Ok(feed)
    }

    /// What it takes a consumer that is there to read these commits.
    async fn follow(&self, feed: &mut Subscription, commits: u64) -> Result<Consumed> {
        self.meter.take();
        let mut missing = commits * self.work.events_per_commit;
        while missing > 0 {
            match feed.next().await.transpose()? {
                Some(Delivery::Event { .. }) => missing -= 1,
                Some(_) => {}
                None => break,
            }
        }
        Ok(self.take())
    }

    /// One look that finds nothing.
    async fn idle(&self, feed: &mut Subscription) -> Result<Consumed> {
        self.meter.take();
        let mut look = Consumed::default();
        loop {
            // Nothing comes. It looks at once, and then after pauses that are longer than this.
            let _ = tokio::time::timeout(Duration::from_millis(5), feed.next()).await;
            match self.take() {
                units if units.read() > 0.0 => look = look.with(1.0, &units),
                _ if look.read() > 0.0 => return Ok(look),
                _ => {}
            }
        }
    }

    /// One save of a consumer's place, and one look at the leases of all.
    async fn keep(&self) -> Result<(Consumed, Consumed)> {
        let consumer = self.store.consumer(CONSUMER)?;
        let handled = tokio::sync::Notify::new();
        let handler = |_| async {
            handled.notify_one();
            Ok::<_, String>(())
        };
        let _ended = consumer.run_until(handler, handled.notified()).await?;
        let cells = self.store.cells();
        self.meter.take();
        let listed = cells.list(CellKind::Lease, CONSUMER).await?;
        let seats = self.take();
        let place = listed.iter().map(|cell| cell.number).max().unwrap_or_default();
        let key = CellKey::new(CellKind::Lease, CONSUMER, place)?;
        let me = self.store.env().new_id();
        let Some(mut lease) = Lease::try_take(&cells, &key, me, Consumer::LEASE, &mut Watch::default()).await? else {
            return Ok((Consumed::default(), seats));
        };
        self.meter.take();
        let _standing = lease.renew(lease.content().clone()).await?;
        Ok((self.take(), seats))
    }

    /// Bytes of each table and index, as they are billed.
    async fn stored(&self) -> Result<BTreeMap<(String, Option<String>), f64>> {
        let billed = |items: f64, bytes: f64| bytes + ITEM_BYTES * items;
        let tables = self.store.stats().await?.tables.into_iter();
        let mut stored: BTreeMap<_, f64> =
            tables.map(|table| ((table.name, None), billed(table.items as f64, table.bytes as f64))).collect();
        for (place, (items, bytes)) in self.meter.index_sizes().await? {
            stored.insert((place.table, place.index), billed(items as f64, bytes as f64));
        }
        Ok(stored)
    }

    async fn bytes(&self) -> Result<f64> {
        Ok(self.stored().await?.values().sum())
    }

    async fn sample(&self) -> Result<Sample> {
        let whole = self.work.load_events.div_ceil(self.work.events_per_commit).max(1);
        let around = (whole / 2).min(AROUND);
        for n in 0..whole - around {
            self.commit(1, n).await?;
        }
        self.commits(MANY, 0).await?;
        let before = self.stored().await?;
        let (mut commit, mut load) = (Consumed::default(), Consumed::default());
        let last = whole + around.max(1);
        for n in whole - around..last {
            if n == whole {
                load = self.load(1).await?;
            }
            commit = commit.with(1.0, &self.commit(1, n).await?);
        }
        let counted = (last - (whole - around)) as f64;
        let events = counted * self.work.events_per_commit as f64;
        let mut grown = self.stored().await?;
        grown.iter_mut().for_each(|(place, bytes)| *bytes = (*bytes - before.get(place).copied().unwrap_or(0.0)) / events);
        let mut sample = Sample {
            tags: if self.by_tags() { self.work.tags } else { 1 },
            commit: commit.times(1.0 / counted),
            load,
            bytes: grown.values().sum(),
            largest: grown.iter().filter(|(place, _)| place.1.is_none()).map(|(_, bytes)| *bytes).fold(0.0, f64::max),
            ..Sample::default()
        };
        if let Some(index) = &self.index {
            self.run(index).await?;
        }
        let mut feed = self.subscribe().await?;
        (sample.follow, sample.indexer) = self.followed(&mut feed).await?;
        // On a busy machine two looks may pass for one: the cheapest is one.
        let looks = [self.idle(&mut feed).await?, self.idle(&mut feed).await?, self.idle(&mut feed).await?];
        sample.idle = looks.into_iter().min_by(|a, b| a.read().total_cmp(&b.read())).unwrap_or_default();
        (sample.save, sample.seats) = self.keep().await?;
        Ok(sample)
    }

    /// Commits that are indexed together and read: what the indexer took, what bytes it left, and what the consumer took.
    async fn round(&self, index: &Index, feed: &mut Subscription, (streams, n): (u64, u64)) -> Result<(Consumed, f64, Consumed)> {
        self.commits(streams, n).await?;
        let before = self.bytes().await?;
        let ran = self.run(index).await?;
        let left = self.bytes().await? - before;
        Ok((ran, left, self.follow(feed, streams).await?))
    }

    /// One commit and many through the feed, and through its index if it has one.
    async fn followed(&self, feed: &mut Subscription) -> Result<(Grows<Consumed>, Option<Indexer>)> {
        let Some(index) = &self.index else {
            self.commits(1, 1).await?;
            let one = self.follow(feed, 1).await?;
            self.commits(MANY, 2).await?;
            return Ok((Grows { one, many: self.follow(feed, MANY).await? }, None));
        };
        let begins = self.run(index).await?;
        let one = self.round(index, feed, (1, 1)).await?;
        let many = self.round(index, feed, (MANY, 2)).await?;
        let follow = Grows { one: one.2, many: many.2 };
        let round = Grows { one: one.0.less(&begins), many: many.0.less(&begins) };
        let mut indexer = Indexer { round, bytes: Grows { one: one.1, many: many.1 }, ring: None };
        if !index.takes_records() {
            let nothing = self.ring(index).await?.0;
            self.commits(1, 3).await?;
            let one = self.ring(index).await?;
            self.commits(MANY, 4).await?;
            let many = self.ring(index).await?;
            self.follow(feed, 1 + MANY).await?;
            indexer.ring = Some(Rung {
                round: Grows { one: one.0, many: many.0 },
                nothing,
                reads: Grows { one: one.1, many: many.1 },
                requests: Grows { one: one.2, many: many.2 },
            });
        }
        Ok((follow, Some(indexer)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::By;
    use super::*;

    const WORK: Workload = Workload {
        events_per_day: 1,
        size: 500,
        tags: 1,
        events_per_commit: 1,
        loads_per_day: None,
        load_events: 20,
        consumers: 1,
        months: 1,
        peak: 1.0,
        indexer: By::Function,
        shards: None,
    };

    async fn of(name: &str, work: &Workload) -> Sample {
        let layout = LAYOUTS.iter().find(|layout| layout.name == name).expect("a layout");
        sample(layout, work).await.expect("a sample")
    }

    #[tokio::test]
    async fn a_commit_that_is_indexed_alone_is_a_write_unit_and_a_hundred_together_are_few() {
        let of = of("ledger (streams)", &WORK).await;
        let indexer = of.indexer.expect("an index");
        assert_eq!(indexer.round.one.write(), 1.0);
        let many = indexer.round.many.write();
        assert!((2.0..=15.0).contains(&many), "{many} units of 100 commits");
        // The lease is taken and given up.
        let rung = indexer.ring.expect("rung");
        assert_eq!((rung.nothing.write(), rung.nothing.read()), (2.0, 2.0));
        assert_eq!(rung.round.one.write(), 3.0);
        assert!(rung.reads.one >= 4.0 && rung.requests.one >= 11.0, "{rung:?}");
        // A consumer that is there reads the epoch and the commit's slot.
        assert!(of.follow.one.read() <= 2.0 && of.follow.many.read() > 40.0, "{:?}", of.follow);
    }

    #[tokio::test]
    async fn a_decision_reads_all_of_its_tags() {
        let one = of("ledger (lanes-1)", &WORK).await.load.read();
        let three = of("ledger (lanes-1)", &Workload { tags: 3, ..WORK }).await.load.read();
        assert!(three >= 2.5 * one && one >= 3.0, "{one} units of one tag, {three} of three");
    }

    /// The Tip is written whole until it is full.
    #[tokio::test]
    async fn a_commit_is_counted_at_the_length_asked_for() {
        let short = of("equinox", &Workload { load_events: 2, ..WORK }).await.commit.write();
        let long = of("equinox", &Workload { load_events: 20, ..WORK }).await.commit.write();
        assert!(short <= 2.0 && long > 2.0 * short, "{short} units at two events, {long} at twenty");
    }

    /// A copy in an index takes what it takes, and not what its unit would hold.
    #[tokio::test]
    async fn an_index_is_stored_as_it_is() {
        let of = of("event-store-adapter-v3", &Workload { size: 100, ..WORK }).await;
        assert!(of.commit.index_write() >= 1.0);
        assert!(of.bytes > 2.0 * 200.0 && of.bytes < 2.0 * 1_124.0 * 0.6, "{} bytes", of.bytes);
    }

    /// What is priced of a consumer is what one does: a lease that is renewed five times in its length.
    #[tokio::test]
    async fn a_consumer_that_runs_writes_and_looks_as_often_as_is_priced() {
        let sample = of("ledger (lanes-1)", &WORK).await;
        assert_eq!((sample.save.write(), sample.save.read()), (1.0, 0.0));
        let meter = Meter::new(Engine::memory().expect("an engine").http_client());
        let store = Store::builder("memory:?feed=lanes-1").expect("a builder").http_client(meter.http_client());
        let store = store.open().await.expect("opens");
        let lease = Duration::from_millis(800);
        let consumer = store.consumer("c").expect("a consumer").lease(lease);
        let handler = |_| async { Ok::<_, String>(()) };
        let counted = async {
            store.env().sleep(lease).await;
            meter.take();
            store.env().sleep(3 * lease).await;
        };
        let mut units = fencepost::Units::default();
        let until = async {
            counted.await;
            units = meter.take();
        };
        let _ended = consumer.run_until(handler, until).await.expect("ends");
        // Fifteen fifths; on a busy machine fewer.
        assert!((6.0..=16.0).contains(&units.write), "{units}");
    }
}
