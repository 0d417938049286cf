//! What an append and a load come to as a stream grows, and as the store does: units, which must not grow, and time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fencepost::{Error, Event, Expect, LoadOptions, Reason, Result, Step, Store, StreamName, Units};
use fencepost_contest::{Grown, Task, body};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::Done;
use crate::bare::Bare;
use crate::contenders::{BARE, CONTENDERS, Contender, LEDGER, run as run_id};
use crate::document::Page;
use crate::ground::{self, Ground};
use crate::plot::{Axis, Line, Plot};
use crate::report::{Report, cell, median};
use crate::units::left_out;

#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) ground: ground::Place,
    /// The longest stream, of the ledger and the bare SDK; the others stop at 10,000 events.
    #[arg(long, default_value_t = 100_000)]
    stream: u64,
    /// The most events in the store, of the ledger and the bare SDK.
    #[arg(long, default_value_t = 1_000_000)]
    store: u64,
    /// Seconds after which the others stop.
    #[arg(long, default_value_t = OTHERS_SECONDS)]
    seconds: u64,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    without_peers: bool,
}

impl Args {
    /// Everybody, and as far as it is to be shown.
    pub(crate) fn is_whole(&self) -> bool {
        !self.without_peers && self.stream >= 100_000 && self.store >= 1_000_000 && self.seconds >= OTHERS_SECONDS
    }
}

/// Where peers and our other layouts stop, whichever comes first.
const OTHERS: u64 = 10_000;
const OTHERS_SECONDS: u64 = 180;

/// Powers of ten up to this.
fn lengths(most: u64) -> Vec<u64> {
    std::iter::successors(Some(1u64), |length| length.checked_mul(10)).take_while(|length| *length <= most).collect()
}

pub(crate) async fn run(args: &Args) -> Result<Done> {
    let (mut found, mut notes): (Vec<(&'static str, Vec<Grown>)>, Vec<String>) = Default::default();
    for contender in CONTENDERS.iter().filter(|contender| contender.grows() && !(args.without_peers && contender.is_peer())) {
        // An engine of its own: one holds a day of stream records in memory, and some leave many.
        let ground = Ground::new(&args.ground).await?;
        // What it told before it stopped is kept.
        let (grown, ended) = stream(contender, args, &ground).await;
        notes.extend(ended.err().map(|why| left_out(contender, &why)));
        if !grown.is_empty() {
            found.push((contender.name, grown));
        }
    }
    let mut reports = vec![
        of_streams("append as the stream grows", &found, args, |grown| grown.append),
        of_streams("load as the stream grows", &found, args, |grown| grown.load),
    ];
    let mut plots = Vec::new();
    for (kind, pick) in [("append", (|grown| grown.append) as fn(&Grown) -> Option<(Units, f64)>), ("load", |grown| grown.load)] {
        let (units, time): (&'static str, &'static str) = match kind {
            "append" => ("Units of an append as the stream grows", "Time of an append as the stream grows"),
            _ => ("Units of a load as the stream grows", "Time of a load as the stream grows"),
        };
        let x = || Axis("events in the stream");
        plots.push(Plot {
            file: format!("growth-{kind}-units"),
            title: units,
            x: x(),
            y: Axis("units of read, those of write five times"),
            lines: lines(&found, |grown| Some(weight(pick(grown)?.0))),
        });
        plots.push(Plot {
            file: format!("growth-{kind}-time"),
            title: time,
            x: x(),
            y: Axis("milliseconds"),
            lines: lines(&found, |grown| Some(pick(grown)?.1 / 1e3)),
        });
    }
    let folder = tempfile::tempdir().map_err(|error| Error::unavailable(Reason::Unreachable, error.to_string()))?;
    let (report, more) = store(args, &Ground::with_room(&args.ground, folder.path()).await?).await?;
    reports.push(report);
    plots.extend(more);
    let who = found.iter().map(|(who, _)| *who).collect();
    Ok(Done { page: Some(Page::Growth), who, reports, plots }.noting(notes))
}

/// For a picture: a unit of write costs as much as five of read.
fn weight(units: Units) -> f64 {
    units.read + 5.0 * units.write
}

/// `4 w + 0.5 r`
fn parts(units: Units) -> String {
    let part = |units: f64, name: &str| (units > 0.0).then(|| format!("{} {name}", (units * 100.0).round() / 100.0));
    let parts: Vec<String> = [part(units.write, "w"), part(units.read, "r")].into_iter().flatten().collect();
    if parts.is_empty() { "0".into() } else { parts.join(" + ") }
}

async fn stream(contender: &'static Contender, args: &Args, ground: &Ground) -> (Vec<Grown>, std::result::Result<(), String>) {
    // Ours to the end; whoever else is measured stops earlier, and says where.
    let to_the_end = [BARE, LEDGER].contains(&contender.name);
    let (most, seconds) = if to_the_end { (args.stream, 3_600) } else { (args.stream.min(OTHERS), args.seconds) };
    let (endpoint, task) = (ground.endpoint().to_owned(), Task::Growth(lengths(most), Duration::from_secs(seconds)));
    let grow = move || {
        let mut lines = Vec::new();
        let told = |line: Grown| {
            eprintln!("{}: {} events {}", contender.name, line.length, line.says.as_deref().unwrap_or_default());
            lines.push(line);
        };
        let ended = contender.each(&endpoint, &task, told);
        (lines, ended)
    };
    tokio::task::spawn_blocking(grow).await.unwrap_or_else(|error| (Vec::new(), Err(error.to_string())))
}

fn shown((units, microseconds): (Units, f64)) -> Value {
    let (Units { write, read, .. }, ms) = (units, microseconds / 1e3);
    cell(format!("{} · {ms:.2} ms", parts(units)), json!({ "write": write, "read": read, "ms": ms }))
}

fn of_streams(title: &str, found: &[(&'static str, Vec<Grown>)], args: &Args, pick: impl Fn(&Grown) -> Option<(Units, f64)>) -> Report {
    let lengths = lengths(args.stream);
    let heads: Vec<String> = lengths.iter().map(|length| crate::plot::number(&(*length as f64))).collect();
    let columns: Vec<&str> = std::iter::once("").chain(heads.iter().map(String::as_str)).collect();
    let row = |(name, grown): &(&'static str, Vec<Grown>)| {
        let last = grown.iter().map(|grown| grown.length).max().unwrap_or(0);
        let at = |length: &u64| match grown.iter().find(|grown| grown.length == *length).and_then(&pick) {
            Some(found) => shown(found),
            None if *length > last => json!(format!("stopped at {}", crate::plot::number(&(last as f64)))),
            None => json!("–"),
        };
        std::iter::once(json!(name)).chain(lengths.iter().map(at)).collect()
    };
    let says = |(name, grown): &(&'static str, Vec<Grown>)| {
        grown.iter().filter_map(|at| Some(format!("{name}, at {} events: {}", at.length, at.says.as_ref()?))).next()
    };
    let notes = found.iter().filter_map(says).collect();
    Report::new(&columns, found.iter().map(row).collect()).titled(&format!("{title}: units · time")).with_notes(notes)
}

fn lines(found: &[(&'static str, Vec<Grown>)], pick: impl Fn(&Grown) -> Option<f64>) -> Vec<Line> {
    let line = |(name, grown): &(&'static str, Vec<Grown>)| {
        let points = grown.iter().filter_map(|grown| Some((grown.length as f64, pick(grown)?)));
        Line { name, points: points.collect() }
    };
    found.iter().map(line).collect()
}

/// Events of a stream of the filled store.
const EACH: u64 = 100;
/// Streams that are loaded at once.
const AT_ONCE: u64 = 16;

type Cell = (Units, f64);

/// The ledger and the bare SDK: filled in bulk the shortest way, measured over HTTP.
async fn store(args: &Args, ground: &Ground) -> Result<(Report, Vec<Plot>)> {
    let sizes: Vec<u64> = lengths(args.store).into_iter().filter(|size| *size >= 1_000).collect();
    let table = format!("filled-{}", run_id());
    let measured = ground.store(&table, "feed=streams").await?;
    let shortcut = match ground.shortcut() {
        Some(http) => ground.open(&table, "feed=streams", http).await?,
        None => measured.store.clone(),
    };
    let meter = fencepost::testing::Meter::new(aws_smithy_http_client::Builder::new().build_http());
    let bare_table = format!("bare-{table}");
    let bare = Bare::by(meter.http_client(), Some(ground.endpoint()), &bare_table);
    let bulk = ground.shortcut().map_or_else(|| bare.clone(), |http| Bare::by(http, None, &bare_table));
    bulk.create().await;
    let (mut found, mut filled): (BTreeMap<(&str, &str), Vec<Cell>>, u64) = (BTreeMap::new(), 0);
    for size in &sizes {
        let began = Instant::now();
        fill(&shortcut, &bulk, filled / EACH, size / EACH).await?;
        filled = *size;
        eprintln!("{size} events in the store, after {:.0} s", began.elapsed().as_secs_f64());
        let middle = name(size / EACH / 2);
        let streams = measured.store.streams();
        let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..15 {
            let fresh = format!("fresh-{size}-{round}");
            let stream = StreamName::new(&fresh)?;
            let timed = timed(measured.measured(streams.append(&stream, Step::new([event(round)?]).expect(Expect::None)))).await?;
            ours[0].push(timed);
            let stream = StreamName::new(&middle)?;
            ours[1].push(self::timed(measured.measured(streams.load(&stream, LoadOptions::default()))).await?);
            let floor = async |work: std::pin::Pin<Box<dyn Future<Output = ()> + '_>>| {
                meter.take();
                let began = Instant::now();
                work.await;
                (meter.take(), began.elapsed().as_secs_f64() * 1e6)
            };
            theirs[0].push(floor(Box::pin(bare.put(&fresh, 1, &body(round)))).await);
            theirs[1].push(floor(Box::pin(async { assert_eq!(bare.since(&middle, 0).await, EACH) })).await);
        }
        for (who, [append, load]) in [(LEDGER, ours), (BARE, theirs)] {
            found.entry((who, "append")).or_default().push(middle_of(append));
            found.entry((who, "load 100")).or_default().push(middle_of(load));
        }
    }
    let heads: Vec<String> = sizes.iter().map(|size| crate::plot::number(&(*size as f64))).collect();
    let columns: Vec<&str> = std::iter::once("").chain(heads.iter().map(String::as_str)).collect();
    let rows = found.iter().map(|((who, what), cells)| {
        let cells = cells.iter().map(|cell| shown(*cell));
        std::iter::once(json!(format!("{who}: {what}"))).chain(cells).collect()
    });
    let note = "an append here begins a stream".to_owned();
    let report = Report::new(&columns, rows.collect()).titled("append and load as the store grows: units · time").with_notes(vec![note]);
    let lines = |of: fn(&Cell) -> f64| {
        let line = |((who, what), cells): (&(&'static str, &'static str), &Vec<Cell>)| Line {
            name: if *who == BARE {
                if *what == "append" { "bare SDK: append" } else { "bare SDK: load 100" }
            } else if *what == "append" {
                "ledger: append"
            } else {
                "ledger: load 100"
            },
            points: sizes.iter().map(|size| *size as f64).zip(cells.iter().map(of)).collect(),
        };
        found.iter().map(line).collect::<Vec<_>>()
    };
    let x = || Axis("events in the store");
    let plots = vec![
        Plot {
            file: "growth-store-units".into(),
            title: "Units as the store grows",
            x: x(),
            y: Axis("units of read, those of write five times"),
            lines: lines(|cell| weight(cell.0)),
        },
        Plot {
            file: "growth-store-time".into(),
            title: "Time as the store grows",
            x: x(),
            y: Axis("milliseconds"),
            lines: lines(|cell| cell.1 / 1e3),
        },
    ];
    Ok((report, plots))
}

fn event(n: u64) -> Result<Event> {
    Event::new("OrderPlaced", body(n))
}

fn name(stream: u64) -> String {
    format!("filled-{stream}")
}

/// Streams from this to that, one event a commit, many at once.
async fn fill(store: &Store, bare: &Bare, from: u64, to: u64) -> Result<()> {
    let fill = |writer: u64| {
        let (store, bare) = (store.clone(), bare.clone());
        let work = async move {
            let streams = store.streams();
            for stream in (from..to).filter(|stream| stream % AT_ONCE == writer) {
                let stream_name = StreamName::new(name(stream))?;
                for n in 0..EACH {
                    streams.append(&stream_name, Step::new([event(stream * EACH + n)?])).await?;
                }
                bare.fill(&name(stream), EACH, |n| body(stream * EACH + n)).await;
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

/// Units of the last, which are those of all, and the median of the times.
fn middle_of(cells: Vec<Cell>) -> Cell {
    let units = cells.last().map(|cell| cell.0).unwrap_or_default();
    (units, median(cells.into_iter().map(|cell| cell.1).collect()))
}
