//! Each row's work on each of our layouts, through the public API, by a process that has been running for a while.

use std::pin::Pin;
use std::time::{Duration, Instant};

use fencepost::testing::Meter;
use fencepost::{
    Append, Checkpoint, Delivery, Error, Event, Expect, From, Handed, IndexOptions, LoadOptions, Query, Refused, Result, Snapshot, Step,
    StreamName, Units,
};
use futures::StreamExt;

use crate::contenders::{EVENTUAL, LEDGER};
use crate::ground::{Ground, Opened};
use fencepost_contest::{Row, body, run_id, state};

/// A layout as it is measured.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static str,
    /// The stream that is written to.
    pub(crate) stream: &'static str,
}

pub(crate) const LAYOUTS: &[Layout] = &[
    Layout { name: LEDGER, parameters: "feed=streams", stream: "order-1" },
    Layout { name: EVENTUAL, parameters: "feed=streams", stream: "order-1" },
    Layout { name: "ledger, lanes-1", parameters: "feed=lanes-1", stream: "order-1" },
    Layout { name: "equinox", parameters: "layout=equinox", stream: "order-1" },
    Layout { name: "event-store-adapter v3", parameters: "layout=event-store-adapter-v3", stream: "order-1" },
    Layout { name: "event-store-adapter v5", parameters: "layout=event-store-adapter-v5", stream: "order-1" },
    Layout { name: "sekiban", parameters: "layout=sekiban&safe_window=1000", stream: "order:1" },
    Layout { name: "reventless", parameters: "layout=reventless&partition=order&cross=customer", stream: "order:1" },
];

/// How long something idle is watched: whole looks of a second; whole renewals of a lease, with every third of them; and whole looks
/// at the leases
/// of others, with every fourth.
const WATCHED: Duration = Duration::from_secs(24);
/// Appends of which it is told how their units differ: more than a Tip of Equinox' takes in before it is begun anew.
const IN_A_ROW: u64 = 100;

/// Rows that watch something idle, which takes nothing of the machine: all of them at once.
pub(crate) fn is_watched(row: &str) -> bool {
    ["idle", "consumer", "idle-index"].contains(&row)
}

impl Layout {
    /// Its name, as a table's.
    pub(crate) fn table(&self) -> String {
        self.name.replace([' ', ','], "-")
    }

    /// Loads as this contender asks for them.
    pub(crate) fn options(&self) -> LoadOptions {
        if self.is_eventual() { LoadOptions::default().eventual() } else { LoadOptions::default() }
    }

    fn is_eventual(&self) -> bool {
        self.name == EVENTUAL
    }

    /// One row on tables of its own.
    pub(crate) async fn measure(&self, ground: &Ground, row: &str) -> Result<Row> {
        // Rows of one length share its stream.
        let of = row.strip_prefix("append-").or(row.strip_prefix("load-")).unwrap_or(row);
        let table = format!("{}-{of}-{}", self.table(), run_id());
        let opened = ground.store(&table, self.parameters).await?;
        let mut bench = Bench { layout: self, opened, note: None, eventual: false };
        match bench.row(row, ground, &table).await {
            Ok(units) => Ok(Row { eventual: bench.eventual, note: bench.note, ..Row::of(row, units) }),
            // Beyond what the layout holds, and said before any call.
            Err(Error::Refused(refused)) => Ok(Row::cannot(row, cannot(&refused))),
            Err(error) => Err(error),
        }
    }
}

fn cannot(refused: &Refused) -> String {
    match refused {
        Refused::TooManyEvents { limit, .. } => format!("at most {limit} events"),
        Refused::TooManyItems { limit, .. } => format!("at most {limit} items"),
        Refused::TooLong { limit, .. } => format!("at most {limit} bytes"),
        // As the peers say it.
        Refused::Unsupported { what, .. } if what.contains("boundary") => "streams only".into(),
        Refused::Unsupported { what, .. } => format!("no: {what}"),
        other => other.to_string().split([':', ';']).next().unwrap_or_default().to_owned(),
    }
}

pub(crate) fn event(n: u64) -> Result<Event> {
    Event::new("OrderPlaced", body(n))
}

struct Bench<'a> {
    layout: &'a Layout,
    opened: Opened,
    /// What the figures do not say.
    note: Option<String>,
    /// Whether a read of what was measured was eventually consistent.
    eventual: bool,
}

impl Bench<'_> {
    fn stream(&self) -> Result<StreamName> {
        StreamName::new(self.layout.stream)
    }

    /// One event a commit, as streams grow. v3 begins one with a snapshot.
    async fn grow(&self, from: u64, to: u64) -> Result<()> {
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        for at in from..to {
            let mut step = Step::new([event(at)?]);
            if at == 0 {
                step = self.layout.first(step);
            }
            streams.append(&stream, step).await?;
        }
        Ok(())
    }

    /// To this length, whatever is there.
    async fn grow_to(&self, length: u64) -> Result<()> {
        let there = self.opened.store.streams().load(&self.stream()?, LoadOptions::default().latest()).await?.version;
        self.grow(there, length).await
    }

    async fn append(&mut self, length: u64) -> Result<Units> {
        self.grow_to(length).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        // By a process that has been running for a while: in lanes it knows the lane's end.
        streams.append(&StreamName::new(self.layout.named("2"))?, self.layout.first(Step::new([event(0)?]))).await?;
        // By who knows the stream, as every peer is told its version.
        let token = streams.load(&stream, LoadOptions::default().latest()).await?.token;
        let step = Step::new([event(length)?]).expect(Expect::Token(token));
        let units = self.opened.measured(streams.append(&stream, step)).await?.1;
        self.eventual = self.opened.asked.take();
        if length == 100 {
            let (mut least, mut most) = (units.write, units.write);
            for n in 0..IN_A_ROW {
                let next = self.opened.measured(streams.append(&stream, Step::new([event(length + 1 + n)?]))).await?.1;
                (least, most) = (least.min(next.write), most.max(next.write));
            }
            self.note = (least < most).then(|| format!("{least} to {most} w in the next {IN_A_ROW}"));
            self.opened.begin();
        }
        Ok(units)
    }

    async fn load(&self, length: u64) -> Result<Units> {
        self.grow_to(length).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let (loaded, units) = self.opened.measured(streams.load(&stream, self.layout.options())).await?;
        // Not on a slow endpoint's account: an eventual read may lack the newest.
        assert!(loaded.events.len() as u64 == length || self.layout.is_eventual());
        Ok(units)
    }

    async fn row(&mut self, row: &str, ground: &Ground, table: &str) -> Result<Units> {
        let units = self.work(row, ground, table).await?;
        // Of what was measured, which each row does last.
        self.eventual |= self.opened.asked.take();
        Ok(units)
    }

    async fn work(&mut self, row: &str, ground: &Ground, table: &str) -> Result<Units> {
        match row {
            "append-1" => self.append(1).await,
            "append-100" => self.append(100).await,
            "append-10000" => self.append(10_000).await,
            "two-tags" => self.two_tags().await,
            "twenty" => self.twenty().await,
            "thousand" => self.thousand().await,
            "load-100" => self.load(100).await,
            "load-10000" => self.load(10_000).await,
            "snapshot" => self.snapshot().await,
            "cold" | "warm" => self.decide(row == "warm").await,
            "conflict" => self.conflict(ground, table).await,
            "feed" => self.feed().await,
            "index" => self.indexed(ground, table).await,
            "idle" => self.idle().await,
            "consumer" => self.idle_consumer().await,
            "idle-index" => self.idle_index().await,
            other => Err(Refused::Unsupported { what: format!("row {other}"), remedy: "see work.rs".into() }.into()),
        }
    }

    async fn two_tags(&self) -> Result<Units> {
        let log = self.opened.store.log()?;
        let query = Query::tag("order:1")?.or(Query::tag("customer:1")?);
        let tagged = |n| event(n)?.tag("order:1")?.tag("customer:1");
        log.append(Append::new([tagged(1)?])).await?;
        let token = log.source(&query, None).await?.token;
        Ok(self.opened.measured(log.append(Append::new([tagged(2)?]).unless(query, token))).await?.1)
    }

    async fn twenty(&self) -> Result<Units> {
        let log = self.opened.store.log()?;
        let events = || (0..20).map(|n| event(n)?.tag("order:1")?.tag(format!("customer:{n}"))).collect::<Result<Vec<_>>>();
        log.append(Append::new(events()?)).await?;
        Ok(self.opened.measured(log.append(Append::new(events()?))).await?.1)
    }

    async fn thousand(&self) -> Result<Units> {
        self.grow(0, 1).await?;
        let events = (1..=1_000).map(event).collect::<Result<Vec<_>>>()?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        Ok(self.opened.measured(streams.append(&stream, Step::new(events))).await?.1)
    }

    async fn snapshot(&mut self) -> Result<Units> {
        self.grow(0, 97).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let with = |n| -> Result<Step> { Ok(Step::new([event(n)?]).snapshot(Snapshot::new("snapshot", state()))) };
        streams.append(&stream, with(97)?).await?;
        // In the Tip a snapshot lasts until the next append, and so is given with each, as equinox-js does.
        let each = self.layout.parameters.contains("equinox");
        for n in 98..100 {
            streams.append(&stream, if each { with(n)? } else { Step::new([event(n)?]) }).await?;
        }
        let load = streams.load(&stream, self.layout.options().snapshot(["snapshot"]));
        let (loaded, units) = self.opened.measured(load).await?;
        assert_eq!((loaded.snapshots.len(), loaded.events.len()), (1, if each { 0 } else { 2 }));
        self.note = each.then(|| "written with every append".into());
        Ok(units)
    }

    async fn decide(&self, warm: bool) -> Result<Units> {
        self.grow(0, 100).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let before = streams.load(&stream, LoadOptions::default()).await?.token;
        let decide = async {
            let options = if warm { self.layout.options().since(before) } else { self.layout.options() };
            let token = streams.load(&stream, options).await?.token;
            streams.append(&stream, Step::new([event(100)?]).expect(Expect::Token(token))).await
        };
        Ok(self.opened.measured(decide).await?.1)
    }

    async fn conflict(&self, ground: &Ground, table: &str) -> Result<Units> {
        self.grow(0, 100).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let token = streams.load(&stream, LoadOptions::default()).await?.token;
        let other = ground.store(table, self.layout.parameters).await?;
        other.store.streams().append(&stream, Step::new([event(100)?])).await?;
        let lose = async {
            let lost = streams.append(&stream, Step::new([event(101)?]).expect(Expect::Token(token.clone()))).await;
            let behind = match lost {
                Err(Error::Conflict(conflict)) => match conflict.token {
                    Some(token) => token,
                    None => streams.load(&stream, self.layout.options().since(token)).await?.token,
                },
                other => return other,
            };
            streams.append(&stream, Step::new([event(101)?]).expect(Expect::Token(behind))).await
        };
        Ok(self.opened.measured(lose).await?.1)
    }

    async fn index(&self) -> Result<()> {
        if let Ok(index) = self.opened.store.index() {
            index.run(&IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up(), &|_| ()).await?;
        }
        Ok(())
    }

    /// Until what was written is older than any window in which a feed looks again.
    async fn settle(&self) {
        self.opened.store.env().sleep(Duration::from_secs(2)).await;
    }

    /// Hands over what there is; how many events, and where that ends.
    async fn follow(&self, from: From) -> Result<(usize, Option<Checkpoint>)> {
        let mut feed = self.opened.store.feed()?.subscribe(from, Query::all());
        let (mut events, mut last) = (0, None);
        while let Some(delivery) = feed.next().await {
            match delivery? {
                Delivery::Event { checkpoint, .. } => {
                    events += 1;
                    last = Some(checkpoint);
                }
                Delivery::CaughtUp { checkpoint } => return Ok((events, Some(checkpoint))),
                _ => {}
            }
        }
        Ok((events, last))
    }

    /// What a subscription takes for 32 new events.
    async fn feed(&self) -> Result<Units> {
        self.grow(0, 945).await?;
        self.index().await?;
        self.settle().await;
        let (_, before) = self.follow(From::Start).await?;
        self.grow(945, 977).await?;
        self.index().await?;
        self.settle().await;
        let before = before.ok_or(Refused::Empty { what: "feed" })?;
        let ((events, _), units) = self.opened.measured(self.follow(From::Checkpoint(before))).await?;
        assert_eq!(events, 32);
        Ok(units)
    }

    fn without_index(&self) -> Result<()> {
        let remedy = "its feed is in its tables".into();
        if self.opened.store.index().is_err() { Err(Refused::Unsupported { what: "indexer".into(), remedy }.into()) } else { Ok(()) }
    }

    /// What an indexer takes for those 32, with its reads of DynamoDB Streams. It has been running for a while, as everybody's.
    async fn indexed(&mut self, ground: &Ground, table: &str) -> Result<Units> {
        self.without_index()?;
        let indexer = ground.store(table, self.layout.parameters).await?;
        let index = indexer.store.index()?;
        let options = IndexOptions::default();
        let mut run = std::pin::pin!(index.run(&options, &|_| ()));
        self.grow(0, 945).await?;
        watch(run.as_mut(), SETTLED).await;
        // Nobody drives it meanwhile: it finds all 32 at once, as a batch of records that starts a Lambda.
        self.grow(945, 977).await?;
        indexer.begin();
        let (began, mut units, mut reads, mut last) = (Instant::now(), Units::default(), 0, 0);
        while began.elapsed() < SETTLED {
            watch(run.as_mut(), SECOND / 50).await;
            reads += indexer.meter.stream_reads();
            let more = indexer.meter.take();
            // What it asks of Streams when it is done, it asks when it is idle.
            last = if more.requests > 0 { reads } else { last };
            units += more;
        }
        self.note = Some(format!("{last} of Streams"));
        self.eventual = indexer.asked.take();
        // They are there: who follows finds them.
        assert_eq!(self.follow(From::Start).await?.0, 977);
        self.opened.begin();
        Ok(units)
    }

    async fn idle_index(&mut self) -> Result<Units> {
        self.without_index()?;
        self.grow(0, 10).await?;
        self.index().await?;
        let index = self.opened.store.index()?;
        let options = IndexOptions::default();
        let mut run = std::pin::pin!(index.run(&options, &|_| ()));
        self.until(run.as_mut(), SECOND, |meter| meter.stream_reads() > 0).await;
        watch(run.as_mut(), WATCHED).await;
        let reads = self.opened.meter.stream_reads();
        self.note = Some(format!("{} of Streams", (reads as f64 * hours()).round()));
        Ok(by_hour(self.opened.meter.take()))
    }

    async fn idle(&self) -> Result<Units> {
        self.grow(0, 10).await?;
        self.index().await?;
        let mut feed = self.opened.store.feed()?.subscribe(From::Now, Query::all());
        let mut follow = std::pin::pin!(async { while feed.next().await.is_some() {} });
        self.until(follow.as_mut(), SECOND, |meter| meter.take().requests > 0).await;
        watch(follow.as_mut(), WATCHED).await;
        Ok(by_hour(self.opened.meter.take()))
    }

    async fn idle_consumer(&self) -> Result<Units> {
        self.grow(0, 10).await?;
        self.index().await?;
        let consumer = self.opened.store.consumer("idle")?;
        let mut run = std::pin::pin!(consumer.run(async |_: Handed| Ok::<_, String>(())));
        self.until(run.as_mut(), 3 * SECOND, |meter| meter.take().write > 0.0).await;
        watch(run.as_mut(), WATCHED).await;
        Ok(by_hour(self.opened.meter.take()))
    }

    /// Until its pauses are as long as they grow, and half a pause behind a sign of life, so that no sign is at the edge of what is counted next.
    async fn until<F: Future>(&self, mut idle: Pin<&mut F>, between: Duration, sign: impl Fn(&Meter) -> bool) {
        watch(idle.as_mut(), SETTLED).await;
        self.opened.begin();
        while !sign(&self.opened.meter) {
            watch(idle.as_mut(), SECOND / 20).await;
        }
        watch(idle.as_mut(), between / 2).await;
        self.opened.begin();
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// After this a feed or an indexer has found what there was, and its pauses have grown to their most.
const SETTLED: Duration = Duration::from_secs(3);

/// Lets it run for so long.
async fn watch<F: Future>(idle: Pin<&mut F>, lasts: Duration) {
    assert!(tokio::time::timeout(lasts, idle).await.is_err(), "what is idle does not end");
}

/// How many times an hour is what is watched.
fn hours() -> f64 {
    3_600.0 / WATCHED.as_secs_f64()
}

fn by_hour(units: Units) -> Units {
    let requests = (units.requests as f64 * hours()).round() as u64;
    Units { read: (units.read * hours()).round(), write: (units.write * hours()).round(), requests }
}
