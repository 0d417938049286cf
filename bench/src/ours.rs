//! Each row's work on each of our layouts, through the public API, by a process that has been running for a while.

use std::time::Duration;

use fencepost::{
    Append, Checkpoint, Delivery, Error, Event, Expect, From, IndexOptions, LoadOptions, Query, Refused, Result, Snapshot, Step,
    StreamName, Units,
};
use futures::StreamExt;

use crate::ground::{Ground, Opened};
use fencepost_contest::body;

/// A layout as it is measured.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static str,
    /// The stream that is written to.
    pub(crate) stream: &'static str,
}

pub(crate) const LAYOUTS: &[Layout] = &[
    Layout { name: "ledger, streams", parameters: "feed=streams", stream: "order-1" },
    Layout { name: "ledger, lanes-1", parameters: "feed=lanes-1", stream: "order-1" },
    Layout { name: "equinox", parameters: "layout=equinox", stream: "order-1" },
    Layout { name: "event-store-adapter v3", parameters: "layout=event-store-adapter-v3", stream: "order-1" },
    Layout { name: "event-store-adapter v5", parameters: "layout=event-store-adapter-v5", stream: "order-1" },
    Layout { name: "sekiban", parameters: "layout=sekiban&safe_window=1000", stream: "order:1" },
    Layout { name: "reventless", parameters: "layout=reventless&partition=order&cross=customer", stream: "order:1" },
];

/// What a row came to: units, or why it cannot be done.
pub(crate) enum Found {
    Units(Units),
    Cannot(String),
}

/// How long an idle consumer is watched.
const WATCHED: Duration = Duration::from_secs(10);

impl Layout {
    /// Its name, as a table's.
    pub(crate) fn table(&self) -> String {
        self.name.replace([' ', ','], "-")
    }

    /// One row on tables of its own.
    pub(crate) async fn measure(&self, ground: &Ground, row: &str) -> Result<Found> {
        // Rows of one length share its stream.
        let of = row.strip_prefix("append-").or(row.strip_prefix("load-")).unwrap_or(row);
        let table = format!("{}-{of}", self.table());
        let opened = ground.store(&table, self.parameters).await?;
        let bench = Bench { layout: self, opened };
        match bench.row(row, ground, &table).await {
            Ok(units) => Ok(Found::Units(units)),
            // Beyond what the layout holds, and said before any call.
            Err(Error::Refused(refused)) => Ok(Found::Cannot(cannot(&refused))),
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

    async fn append(&self, length: u64) -> Result<Units> {
        self.grow_to(length).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        // By who knows the stream, as every peer is told its version.
        let token = streams.load(&stream, LoadOptions::default().latest()).await?.token;
        let step = Step::new([event(length)?]).expect(Expect::Token(token));
        Ok(self.opened.measured(streams.append(&stream, step)).await?.1)
    }

    async fn load(&self, length: u64) -> Result<Units> {
        self.grow_to(length).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let (loaded, units) = self.opened.measured(streams.load(&stream, LoadOptions::default())).await?;
        assert_eq!(loaded.events.len() as u64, length);
        Ok(units)
    }

    async fn row(&self, row: &str, ground: &Ground, table: &str) -> Result<Units> {
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
            "idle" => self.idle().await,
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

    async fn snapshot(&self) -> Result<Units> {
        self.grow(0, 97).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let with = |n| -> Result<Step> { Ok(Step::new([event(n)?]).snapshot(Snapshot::new("snapshot", "s".repeat(2_000)))) };
        streams.append(&stream, with(97)?).await?;
        self.grow(98, 100).await?;
        let load = streams.load(&stream, LoadOptions::default().snapshot(["snapshot"]));
        let (loaded, units) = self.opened.measured(load).await?;
        if loaded.snapshots.is_empty() {
            let remedy = "give one with every append".into();
            return Err(Refused::Unsupported { what: "a snapshot that outlives the next append".into(), remedy }.into());
        }
        assert_eq!(loaded.events.len(), 2);
        Ok(units)
    }

    async fn decide(&self, warm: bool) -> Result<Units> {
        self.grow(0, 100).await?;
        let (streams, stream) = (self.opened.store.streams(), self.stream()?);
        let before = streams.load(&stream, LoadOptions::default()).await?.token;
        let decide = async {
            let options = if warm { LoadOptions::default().since(before) } else { LoadOptions::default() };
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
                    None => streams.load(&stream, LoadOptions::default().since(token)).await?.token,
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

    async fn feed(&self) -> Result<Units> {
        self.grow(0, 945).await?;
        self.index().await?;
        self.settle().await;
        let (_, before) = self.follow(From::Start).await?;
        for at in 945..977 {
            self.grow(at, at + 1).await?;
        }
        self.index().await?;
        self.settle().await;
        let before = before.ok_or(Refused::Empty { what: "feed" })?;
        let ((events, _), units) = self.opened.measured(self.follow(From::Checkpoint(before))).await?;
        assert_eq!(events, 32);
        Ok(units)
    }

    async fn idle(&self) -> Result<Units> {
        self.grow(0, 10).await?;
        self.index().await?;
        let mut feed = self.opened.store.feed()?.subscribe(From::Now, Query::all());
        // Its pauses grow to their most first.
        let settle = tokio::time::timeout(Duration::from_secs(3), async { while feed.next().await.is_some() {} });
        assert!(settle.await.is_err(), "a feed does not end");
        let watch = async {
            let watched = tokio::time::timeout(WATCHED, async { while feed.next().await.is_some() {} });
            assert!(watched.await.is_err(), "a feed does not end");
            Ok(())
        };
        let ((), units) = self.opened.measured(watch).await?;
        let hours = 3_600.0 / WATCHED.as_secs_f64();
        let requests = (units.requests as f64 * hours).round() as u64;
        Ok(Units { read: (units.read * hours).round(), write: (units.write * hours).round(), requests })
    }
}
