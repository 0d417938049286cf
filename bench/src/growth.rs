//! What an append and a load come to as a stream grows: units, which must not grow, and time. `filled` does the same as the store does.

use std::time::Duration;

use fencepost::{Error, Reason, Result, Units};
use fencepost_contest::{Grown, Task};
use serde_json::{Value, json};

use crate::Done;
use crate::contenders::{BARE, CONTENDERS, Contender, LEDGER};
use crate::document::Page;
use crate::filled::{self, APPEND, Filled, LOAD};
use crate::ground::{self, Ground};
use crate::plot::{Axis, Line, Plot};
use crate::report::{Report, cell, claim};
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
    pub(crate) without_peers: bool,
}

impl Args {
    /// As on a command line.
    pub(crate) fn words(&self) -> String {
        format!("growth --stream {} --store {} --seconds {}", self.stream, self.store, self.seconds)
    }

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
    let (mut found, mut missing): (Vec<(&'static str, Vec<Grown>)>, Vec<String>) = Default::default();
    for contender in CONTENDERS.iter().filter(|contender| contender.grows() && !(args.without_peers && contender.is_peer())) {
        // An engine of its own: one holds a day of stream records in memory, and some leave many.
        let ground = Ground::new(&args.ground).await?;
        // What it told before it stopped is kept.
        let (grown, ended) = stream(contender, args, &ground).await;
        missing.extend(ended.err().map(|why| left_out(contender, &why)));
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
    let sizes: Vec<u64> = lengths(args.store).into_iter().filter(|size| *size >= 1_000).collect();
    let filled = filled::run(&sizes, &Ground::with_room(&args.ground, folder.path()).await?).await?;
    reports.push(filled.report());
    plots.extend(filled.plots());
    let ledgers = found.iter().find(|(who, _)| *who == LEDGER).map_or(&[][..], |(_, grown)| grown);
    if let Some(last) = reports.last_mut() {
        last.notes.extend(does_not_grow(ledgers, &filled));
    }
    let who = found.iter().map(|(who, _)| *who).collect();
    Ok(Done { page: Some(Page::Growth), who, reports, plots, ..Done::default() }.without(missing))
}

/// An append of the ledger takes the same at every length of a stream and every size of the store, in each of the rounds; and a load the same at every
/// size.
fn does_not_grow(ledgers: &[Grown], filled: &Filled) -> Vec<String> {
    let one = |units: &Units| units.write == 1.0 && units.read == 0.0 && units.requests == 1;
    let at_lengths: Vec<Units> = ledgers.iter().filter_map(|grown| grown.most).collect();
    let at_sizes = filled.most(LEDGER, APPEND);
    let says = format!(
        "in every round an append of the ledger in streams mode takes 1 write unit, none of read, and 1 request: at {} lengths of a stream and {} sizes of the store",
        at_lengths.len(),
        at_sizes.len()
    );
    let all_told = at_lengths.len() == ledgers.len() && !at_sizes.is_empty();
    let loads = filled.most(LEDGER, LOAD);
    let same = loads.iter().all(|load| Some(load) == loads.first());
    vec![
        claim(&says, all_told && at_lengths.iter().chain(&at_sizes).all(one)),
        claim(&format!("a load of 100 events takes the same at {} sizes of the store", loads.len()), same),
    ]
}

/// For a picture: a unit of write costs as much as five of read.
pub(crate) fn weight(units: Units) -> f64 {
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

pub(crate) fn shown((units, microseconds): (Units, f64)) -> Value {
    let (Units { write, read, requests }, ms) = (units, microseconds / 1e3);
    let figures = json!({ "write": write, "read": read, "requests": requests, "ms": ms });
    cell(format!("{}, {requests} req · {ms:.2} ms", parts(units)), figures)
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
    Report::new(&columns, found.iter().map(row).collect()).titled(&format!("{title}: units, requests · time")).with_notes(notes)
}

fn lines(found: &[(&'static str, Vec<Grown>)], pick: impl Fn(&Grown) -> Option<f64>) -> Vec<Line> {
    let line = |(name, grown): &(&'static str, Vec<Grown>)| {
        let points = grown.iter().filter_map(|grown| Some((grown.length as f64, pick(grown)?)));
        Line { name, points: points.collect() }
    };
    found.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_that_takes_more_in_any_round_at_any_length_or_size_is_a_failure() {
        let one = Units { write: 1.0, read: 0.0, requests: 1 };
        let grown = |most: Option<Units>| Grown { length: 1, append: Some((one, 1.0)), load: None, most, says: None };
        let filled = |rounds: [Units; 2]| {
            let cells = rounds.into_iter().map(|units| (units, 1.0)).collect::<Vec<_>>();
            Filled::of(vec![1_000], [((LEDGER, APPEND), vec![cells.clone()]), ((LEDGER, LOAD), vec![cells])])
        };
        let broken = |grown: &[Grown], filled: &Filled| does_not_grow(grown, filled)[0].starts_with(crate::report::BROKEN);
        assert!(!broken(&[grown(Some(one)), grown(Some(one))], &filled([one, one])));
        for other in [Units { write: 2.0, ..one }, Units { read: 0.5, ..one }, Units { requests: 2, ..one }] {
            assert!(broken(&[grown(Some(one)), grown(Some(other))], &filled([one, one])));
            // Not in the last round alone.
            assert!(broken(&[grown(Some(one))], &filled([other, one])));
        }
        assert!(broken(&[grown(Some(one)), grown(None)], &filled([one, one])), "one that was not told does not hold");
    }
}
