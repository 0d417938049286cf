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
use crate::report::{Report, cell, claim, parts};
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

/// What one operation comes to.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) units: Units,
    /// Whether a read of it is eventually consistent.
    pub(crate) eventual: bool,
    pub(crate) microseconds: f64,
}

fn append(grown: &Grown) -> Option<Cost> {
    grown.append.map(|(units, microseconds)| Cost { units, eventual: false, microseconds })
}

fn load(grown: &Grown) -> Option<Cost> {
    grown.load.map(|(units, microseconds)| Cost { units, eventual: grown.eventual, microseconds })
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
    let mut appends = of_streams("append as the stream grows", &found, args, append);
    appends.notes.extend(found.iter().filter_map(|(who, grown)| sawtooth(who, grown)));
    let mut loads = of_streams("load as the stream grows", &found, args, load);
    loads.notes.extend(found.iter().flat_map(|(who, grown)| says(who, grown)));
    let mut reports = vec![appends, loads];
    let mut plots = Vec::new();
    for (kind, pick) in [("append", append as fn(&Grown) -> Option<Cost>), ("load", load)] {
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
            lines: lines(&found, |grown| Some(weight(pick(grown)?.units))),
        });
        plots.push(Plot {
            file: format!("growth-{kind}-time"),
            title: time,
            x: x(),
            y: Axis("milliseconds"),
            lines: lines(&found, |grown| Some(pick(grown)?.microseconds / 1e3)),
        });
    }
    let folder = tempfile::tempdir().map_err(|error| Error::unavailable(Reason::Unreachable, error.to_string()))?;
    let sizes: Vec<u64> = lengths(args.store).into_iter().filter(|size| *size >= 1_000).collect();
    let filled = filled::run(&sizes, &Ground::with_room(&args.ground, folder.path()).await?).await?;
    reports.push(filled.report());
    plots.extend(filled.plots());
    let ledgers = found.iter().find(|(who, _)| *who == LEDGER).map_or(&[][..], |(_, grown)| grown);
    if let Some(last) = reports.last_mut() {
        last.notes.extend(does_not_grow(ledgers, lengths(args.stream).len(), &filled));
    }
    let who = found.iter().map(|(who, _)| *who).collect();
    Ok(Done { page: Some(Page::Growth), who, reports, plots, ..Done::default() }.without(missing))
}

/// An append of the ledger takes the same at every length of a stream and every size of the store, in each of the rounds; and a load the same at every
/// size. What was asked for and is not there does not hold.
fn does_not_grow(ledgers: &[Grown], lengths: usize, filled: &Filled) -> Vec<String> {
    let one = |units: &Units| units.write == 1.0 && units.read == 0.0 && units.requests == 1;
    let at_lengths: Vec<Units> = ledgers.iter().filter_map(|grown| grown.most).collect();
    let at_sizes = filled.most(LEDGER, APPEND);
    let says = format!(
        "in every round an append of the ledger in streams mode takes 1 write unit, none of read, and 1 request: at {} lengths of a stream and {} sizes of the store",
        at_lengths.len(),
        at_sizes.len()
    );
    let all_told = at_lengths.len() == lengths && at_sizes.len() == filled.sizes().len() && lengths > 0;
    let mut claims = vec![claim(&says, all_told && at_lengths.iter().chain(&at_sizes).all(one))];
    if !filled.sizes().is_empty() {
        let loads = filled.most(LEDGER, LOAD);
        let same = loads.len() == filled.sizes().len() && loads.iter().all(|load| Some(load) == loads.first());
        claims.push(claim(&format!("a load of 100 events takes the same at {} sizes of the store", loads.len()), same));
    }
    claims
}

/// For a picture: a unit of write costs as much as five of read.
pub(crate) fn weight(units: Units) -> f64 {
    units.read + 5.0 * units.write
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

pub(crate) fn shown(Cost { units, eventual, microseconds }: Cost) -> Value {
    let (Units { write, read, requests }, ms) = (units, microseconds / 1e3);
    let figures = json!({ "write": write, "read": read, "eventual": eventual, "requests": requests, "ms": ms });
    cell(format!("{}, {requests} req · {ms:.2} ms", parts(units, eventual)), figures)
}

/// Of an append whose units differ from one to the next: what lies between.
fn sawtooth(who: &str, grown: &[Grown]) -> Option<String> {
    let least = grown.iter().filter_map(|grown| grown.least).map(|units| units.write).reduce(f64::min)?;
    let most = grown.iter().filter_map(|grown| grown.most).map(|units| units.write).reduce(f64::max)?;
    (least < most).then(|| {
        format!("{who}: from {least} to {most} w, going up and down: an append rewrites the item of the newest events until that is full")
    })
}

/// What a contender has to say, the first time.
fn says(who: &str, grown: &[Grown]) -> Option<String> {
    grown.iter().find_map(|at| Some(format!("{who}, at {} events: {}", crate::plot::number(&(at.length as f64)), at.says.as_ref()?)))
}

fn of_streams(title: &str, found: &[(&'static str, Vec<Grown>)], args: &Args, pick: impl Fn(&Grown) -> Option<Cost>) -> Report {
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
    Report::new(&columns, found.iter().map(row).collect()).titled(&format!("{title}: units, requests · time"))
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
    use crate::report::BROKEN;

    fn grown(most: Option<Units>) -> Grown {
        Grown { length: 1, append: None, load: None, eventual: false, least: most, most, says: None }
    }

    #[test]
    fn an_append_that_takes_more_in_any_round_at_any_length_or_size_is_a_failure() {
        let one = Units { write: 1.0, read: 0.0, requests: 1 };
        let filled = |rounds: [Units; 2]| {
            let cells = rounds.into_iter().map(|units| (units, 1.0)).collect::<Vec<_>>();
            Filled::of(vec![1_000], [((LEDGER, APPEND), vec![cells.clone()]), ((LEDGER, LOAD), vec![cells])])
        };
        let broken = |grown: &[Grown], filled: &Filled| does_not_grow(grown, 2, filled)[0].starts_with(BROKEN);
        assert!(!broken(&[grown(Some(one)), grown(Some(one))], &filled([one, one])));
        for other in [Units { write: 2.0, ..one }, Units { read: 0.5, ..one }, Units { requests: 2, ..one }] {
            assert!(broken(&[grown(Some(one)), grown(Some(other))], &filled([one, one])));
            // Not in the last round alone.
            assert!(broken(&[grown(Some(one)), grown(Some(one))], &filled([other, one])));
        }
        assert!(broken(&[grown(Some(one)), grown(None)], &filled([one, one])), "one that was not told does not hold");
    }

    #[test]
    fn what_was_asked_for_and_is_not_there_does_not_hold() {
        let one = Units { write: 1.0, read: 0.0, requests: 1 };
        let cells = || vec![vec![(one, 1.0)]];
        let whole = Filled::of(vec![1_000], [((LEDGER, APPEND), cells()), ((LEDGER, LOAD), cells())]);
        let broken = |grown: &[Grown], lengths: usize, filled: &Filled| {
            does_not_grow(grown, lengths, filled).iter().map(|claim| claim.starts_with(BROKEN)).collect::<Vec<_>>()
        };
        assert_eq!(broken(&[grown(Some(one))], 1, &whole), [false, false]);
        assert_eq!(broken(&[], 1, &whole), [true, false], "the ledger was not measured");
        assert_eq!(broken(&[grown(Some(one))], 2, &whole), [true, false], "it stopped on the way");
        assert_eq!(broken(&[], 0, &Filled::of(vec![], [])), [true], "nothing shows nothing");
        assert_eq!(broken(&[grown(Some(one))], 1, &Filled::of(vec![1_000], [])), [true, true], "the store was not filled");
        let twice = Filled::of(vec![1_000, 10_000], [((LEDGER, APPEND), cells()), ((LEDGER, LOAD), cells())]);
        assert_eq!(broken(&[grown(Some(one))], 1, &twice), [true, true], "a size is missing");
    }

    #[test]
    fn reads_that_ask_for_less_and_appends_that_differ_are_told() {
        let half = Units { write: 0.0, read: 7.5, requests: 1 };
        for (eventual, says) in [(true, "7.5 r~, 1 req · 1.64 ms"), (false, "7.5 r, 1 req · 1.64 ms")] {
            let found = load(&Grown { load: Some((half, 1_640.0)), eventual, ..grown(None) });
            assert_eq!(shown(found.expect("a load"))["shown"], says);
        }
        let one = Units { write: 1.0, read: 0.0, requests: 1 };
        let rising = Grown { least: Some(one), ..grown(Some(Units { write: 11.0, ..one })) };
        assert!(sawtooth("equinox", &[rising]).is_some_and(|note| note.starts_with("equinox: from 1 to 11 w")));
        assert_eq!(sawtooth("ledger", &[Grown { least: Some(one), ..grown(Some(one)) }]), None);
    }
}
