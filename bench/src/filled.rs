//! What an append and a load come to as the store grows, of the ledger and the bare SDK: filled in bulk the shortest way, measured over HTTP.

use std::collections::BTreeMap;
use std::time::Instant;

use fencepost::{Error, Event, Expect, LoadOptions, Reason, Result, Step, Store, StreamName, Units};
use fencepost_contest::{body, most};
use futures::future::try_join_all;
use serde_json::json;

use crate::bare::{Bare, Streamed};
use crate::contenders::{BARE, LEDGER, run as run_id};
use crate::ground::Ground;
use crate::growth::{Cost, shown, weight};
use crate::plot::{Axis, Line, Plot, number};
use crate::report::{Report, median};

pub(crate) const APPEND: &str = "append";
pub(crate) const LOAD: &str = "load 100";

/// Events of a stream.
const EACH: u64 = 100;
/// Streams that are filled at once.
const AT_ONCE: u64 = 16;
const ROUNDS: u64 = 15;

/// Units and microseconds of one operation.
type Cell = (Units, f64);
type By = (&'static str, &'static str);

/// By who and what: at each size, all rounds.
pub(crate) struct Filled {
    sizes: Vec<u64>,
    found: BTreeMap<By, Vec<Vec<Cell>>>,
}

impl Filled {
    #[cfg(test)]
    pub(crate) fn of(sizes: Vec<u64>, found: impl IntoIterator<Item = (By, Vec<Vec<Cell>>)>) -> Filled {
        Filled { sizes, found: found.into_iter().collect() }
    }

    /// What was asked for.
    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The most that it took in any round, at each size.
    pub(crate) fn most(&self, who: &'static str, what: &'static str) -> Vec<Units> {
        let sizes = self.found.get(&(who, what)).map_or(&[][..], Vec::as_slice);
        sizes.iter().filter_map(|rounds| most(rounds.iter().map(|cell| cell.0))).collect()
    }

    /// At each size the most units, and the median of the times.
    fn cells(&self, by: &By) -> Vec<Cell> {
        let times = self.found.get(by).into_iter().flatten().map(|rounds| median(rounds.iter().map(|cell| cell.1).collect()));
        self.most(by.0, by.1).into_iter().zip(times).collect()
    }

    pub(crate) fn report(&self) -> Report {
        let heads: Vec<String> = self.sizes.iter().map(|size| number(&(*size as f64))).collect();
        let columns: Vec<&str> = std::iter::once("").chain(heads.iter().map(String::as_str)).collect();
        let rows = self.found.keys().map(|by| {
            let cells = self.cells(by).into_iter().map(|(units, microseconds)| shown(Cost { units, eventual: false, microseconds }));
            std::iter::once(json!(format!("{}: {}", by.0, by.1))).chain(cells).collect()
        });
        let notes = vec![
            "an append here begins a stream".to_owned(),
            format!(
                "one event an item, {EACH} items a stream, in tables as each has them; the streams that are loaded were appended to one by one, the others put in \
                 bulk, item for item as the ledger writes them, and one of them loads for as much"
            ),
        ];
        Report::new(&columns, rows.collect()).titled("append and load as the store grows: units, requests · time").with_notes(notes)
    }

    pub(crate) fn plots(&self) -> Vec<Plot> {
        let lines = |of: fn(&Cell) -> f64| {
            let line = |by: &By| Line {
                name: match *by {
                    (BARE, APPEND) => "bare SDK: append",
                    (BARE, _) => "bare SDK: load 100",
                    (_, APPEND) => "ledger: append",
                    _ => "ledger: load 100",
                },
                points: self.sizes.iter().map(|size| *size as f64).zip(self.cells(by).iter().map(of)).collect(),
            };
            self.found.keys().map(line).collect::<Vec<_>>()
        };
        let plot = |file: &str, title: &'static str, y: &'static str, lines: Vec<Line>| Plot {
            file: file.into(),
            title,
            x: Axis("events in the store"),
            y: Axis(y),
            lines,
        };
        vec![
            plot(
                "growth-store-units",
                "Units as the store grows",
                "units of read, those of write five times",
                lines(|cell| weight(cell.0)),
            ),
            plot("growth-store-time", "Time as the store grows", "milliseconds", lines(|cell| cell.1 / 1e3)),
        ]
    }
}

pub(crate) async fn run(sizes: &[u64], ground: &Ground) -> Result<Filled> {
    let table = format!("filled-{}", run_id());
    let measured = ground.store(&table, "feed=streams").await?;
    let meter = fencepost::testing::Meter::new(aws_smithy_http_client::Builder::new().build_http());
    let bare_table = format!("bare-{table}");
    let bare = Bare::by(meter.http_client(), Some(ground.endpoint()), &bare_table);
    let shortcut = |table: &str| match ground.shortcut() {
        Some(http) => Bare::by(http, None, table),
        None => Bare::by(aws_smithy_http_client::Builder::new().build_http(), Some(ground.endpoint()), table),
    };
    let bulk = [shortcut(&table), shortcut(&bare_table)];
    bulk[1].create(Streamed::Yes).await;
    let (mut found, mut filled): (BTreeMap<By, Vec<Vec<Cell>>>, u64) = Default::default();
    for size in sizes {
        let began = Instant::now();
        let sample = size / EACH / 2;
        fill(&measured.store, &bulk, filled / EACH..size / EACH, sample).await?;
        filled = *size;
        eprintln!("{size} events in the store, after {:.0} s", began.elapsed().as_secs_f64());
        let middle = name(sample);
        let streams = measured.store.streams();
        let load = async |stream: &str| {
            let stream = StreamName::new(stream)?;
            let load = async {
                let loaded = streams.load(&stream, LoadOptions::default()).await?;
                assert_eq!(loaded.events.len() as u64, EACH);
                Ok(())
            };
            timed(measured.measured(load)).await
        };
        let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..ROUNDS {
            let fresh = format!("fresh-{size}-{round}");
            let stream = StreamName::new(&fresh)?;
            ours[0].push(timed(measured.measured(streams.append(&stream, Step::new([event(round)?]).expect(Expect::None)))).await?);
            ours[1].push(load(&middle).await?);
            let floor = async |work: std::pin::Pin<Box<dyn Future<Output = ()> + '_>>| {
                meter.take();
                let began = Instant::now();
                work.await;
                (meter.take(), began.elapsed().as_secs_f64() * 1e6)
            };
            theirs[0].push(floor(Box::pin(bare.put(&fresh, 1, &body(round)))).await);
            theirs[1].push(floor(Box::pin(async { assert_eq!(bare.since(&middle, 0).await, EACH) })).await);
        }
        // What was put in bulk is what the ledger itself writes.
        assert_eq!(load(&name(sample - 1)).await?.0, load(&middle).await?.0);
        for (who, [append, load]) in [(LEDGER, ours), (BARE, theirs)] {
            found.entry((who, APPEND)).or_default().push(append);
            found.entry((who, LOAD)).or_default().push(load);
        }
    }
    Ok(Filled { sizes: sizes.to_vec(), found })
}

fn event(n: u64) -> Result<Event> {
    Event::new("OrderPlaced", body(n))
}

/// As long as every other: the name is in every item.
fn name(stream: u64) -> String {
    format!("filled-{stream:06}")
}

/// These streams, into the ledger's table and the bare SDK's, many at once: the sample by the ledger, one event a commit, the rest in bulk.
async fn fill(store: &Store, bulk: &[Bare; 2], streams: std::ops::Range<u64>, sample: u64) -> Result<()> {
    let fill = |writer: u64| {
        let (store, [ledgers, floors], streams) = (store.clone(), bulk.clone(), streams.clone());
        let work = async move {
            for stream in streams.filter(|stream| stream % AT_ONCE == writer) {
                let (name, events) = (name(stream), stream * EACH..(stream + 1) * EACH);
                if stream == sample {
                    let (own, streams) = (StreamName::new(&name)?, store.streams());
                    for n in events.clone() {
                        streams.append(&own, Step::new([event(n)?])).await?;
                    }
                } else {
                    ledgers.fill(&name, events.clone(), body).await;
                }
                floors.fill(&name, events, body).await;
            }
            Ok::<_, Error>(())
        };
        let joined = tokio::spawn(work);
        async { joined.await.map_err(|error| Error::unavailable(Reason::Rejected, error.to_string()))? }
    };
    try_join_all((0..AT_ONCE).map(fill)).await?;
    Ok(())
}

async fn timed<T>(work: impl Future<Output = Result<(T, Units)>>) -> Result<Cell> {
    let began = Instant::now();
    let (_, units) = work.await?;
    Ok((units, began.elapsed().as_secs_f64() * 1e6))
}
