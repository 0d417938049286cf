//! How fast: writers at once on disjoint streams, on one hot stream, on overlapping boundaries; and what it takes to start. Each contender in a
//! process of its own, in turns, so that a slow moment of the machine strikes all, and no turn begins as the last one did; medians, and ratios
//! within a turn: of times, so that less is better.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost::Result;
use fencepost_contest::{Scenario, Speed, Task, Timed};
use serde_json::{Value, json};

use crate::beaten::Beaten;
use crate::contenders::{self, BARE, By, CONTENDERS, Contender, LEDGER, UNSTREAMED, run as run_id};
use crate::document::Page;
use crate::ground::{self, Ground};
use crate::pairs::{self, Pairs};
use crate::plot::{Axis, Line, Plot};
use crate::report::{BROKEN, Report, cell, figure, median, number};
use crate::units::left_out;
use crate::{Done, beaten, overhead};

#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) ground: ground::Place,
    /// Turns of each contender.
    #[arg(long, default_value_t = ROUNDS)]
    pub(crate) rounds: usize,
    /// How long each writes in a turn.
    #[arg(long, default_value_t = MILLISECONDS)]
    milliseconds: u64,
    /// How many write at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    writers: Vec<usize>,
    /// Only these: disjoint, hot, boundaries.
    #[arg(long = "scenario")]
    scenarios: Vec<Scenario>,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    pub(crate) without_peers: bool,
}

impl Args {
    /// As on a command line.
    pub(crate) fn words(&self) -> String {
        let writers: Vec<String> = self.writers.iter().map(usize::to_string).collect();
        let words = format!("speed --rounds {} --milliseconds {} --writers {}", self.rounds, self.milliseconds, writers.join(","));
        self.scenarios.iter().fold(words, |words, scenario| format!("{words} --scenario {scenario}"))
    }

    /// Everybody, at every number of writers, in every scenario, often enough.
    pub(crate) fn is_whole(&self) -> bool {
        let usual = [1, 16, 64].iter().all(|writers| self.writers.contains(writers));
        !self.without_peers && self.scenarios.is_empty() && usual && self.rounds >= ROUNDS && self.milliseconds >= MILLISECONDS
    }

    /// Whether a turn is long enough that its ratios say something.
    fn is_long(&self) -> bool {
        self.milliseconds >= 500
    }
}

/// What it takes by itself, some eight minutes in all, and what a page is written of.
const ROUNDS: usize = 5;
const MILLISECONDS: u64 = 700;
/// So many pairs for each round, and each side of one for so long at most.
const PAIRS: usize = 3;
const PAIRED: u64 = 400;

/// What the store may add to the bare SDK at one writer.
pub(crate) const OVERHEAD: f64 = 1.15;

/// By scenario, writers and contender: a run for each round in which it came through.
pub(crate) type Runs = BTreeMap<(Scenario, usize, &'static str), Vec<Option<Timed>>>;

fn contenders(args: &Args) -> impl Iterator<Item = &'static Contender> {
    let without_peers = args.without_peers;
    CONTENDERS.iter().filter(move |contender| contender.races() && !(without_peers && contender.is_peer()))
}

fn table(contender: &Contender) -> String {
    format!("speed-{}-{}", contender.name.replace([' ', ',', '.'], "-"), run_id())
}

pub(crate) async fn run(args: &Args) -> Result<Done> {
    let ground = Ground::new(&args.ground).await?;
    let (asked, runtime) = (args.clone(), tokio::runtime::Handle::current());
    let done = tokio::task::spawn_blocking(move || {
        let (args, endpoint) = (asked, ground.endpoint());
        let (mut present, mut missing) = (Vec::new(), Vec::new());
        for contender in contenders(&args) {
            match prepare(contender, endpoint) {
                Ok(()) => present.push(contender),
                Err(why) => missing.push(left_out(contender, &why)),
            }
        }
        let run_turn = |contender: &Contender, speed: Speed| {
            // An engine of ours is a new one for every turn: it keeps the token of each transaction for ten minutes and goes through them with the
            // next, so that whoever came later would pay for those before.
            if args.ground.endpoint.is_some() {
                return contender.lines(endpoint, &Task::Speed(speed));
            }
            let fresh = runtime.block_on(Ground::new(&args.ground)).map_err(|error| error.to_string())?;
            prepare(contender, fresh.endpoint())?;
            contender.lines(fresh.endpoint(), &Task::Speed(speed))
        };
        let runs = race(&args, &present, run_turn);
        let pairs = paired(&args, endpoint, run_turn);
        let start = (!args.without_peers).then(|| start(&args, &present, endpoint, &runs));
        let mut reports = tables(&args, &present, &runs, &pairs);
        reports.extend(start);
        // What umadb wrote is in a folder of this machine.
        for contender in present.iter().filter(|contender| !contender.units) {
            let _ = std::fs::remove_dir_all(std::env::temp_dir().join(format!("{}.umadb", table(contender))));
        }
        let plots = plots(&args, &present, &runs);
        let who = present.iter().map(|contender| contender.name).collect();
        Done { page: Some(Page::Speed), who, reports, plots, ..Done::default() }.without(missing)
    });
    let mut done = done.await.map_err(|error| fencepost::Error::unavailable(fencepost::Reason::Rejected, error.to_string()))?;
    // As many as a short run can have.
    let operations = usize::try_from(args.milliseconds).unwrap_or(400).clamp(16, 400);
    let added = overhead::run(&overhead::Args::of(operations, 3 * args.rounds)).await?;
    let title = "what the store adds to the bare SDK where both call the engine in their own process, without HTTP and sockets, of \
    which a request is mostly made";
    done.reports.push(added.titled(title));
    Ok(done)
}

fn prepare(contender: &Contender, endpoint: &str) -> std::result::Result<(), String> {
    contender.lines::<Value>(endpoint, &Task::Prepare(table(contender))).map(drop)
}

type Turn = std::result::Result<Vec<Timed>, String>;

fn race(args: &Args, present: &[&'static Contender], run_turn: impl Fn(&Contender, Speed) -> Turn) -> Runs {
    let (mut runs, mut run) = (Runs::new(), 0);
    let chosen = |scenario: &Scenario| args.scenarios.is_empty() || args.scenarios.contains(scenario);
    for scenario in Scenario::ALL.into_iter().filter(chosen) {
        for writers in args.writers.iter().copied() {
            for round in 1..=args.rounds {
                eprintln!("{scenario}, {writers} at once, turn {round} of {}", args.rounds);
                // Whoever is first finds another machine than who comes last.
                let mut turn: Vec<&Contender> = present.iter().copied().filter(|contender| contender.can(scenario)).collect();
                let begins = (round - 1) % turn.len().max(1);
                turn.rotate_left(begins);
                for contender in turn {
                    run += 1;
                    let speed = Speed { scenario, writers, lasts: Duration::from_millis(args.milliseconds), table: table(contender), run };
                    let timed = run_turn(contender, speed).map_err(|why| eprintln!("{why}")).ok();
                    runs.entry((scenario, writers, contender.name)).or_default().push(timed.and_then(|mut lines| lines.pop()));
                }
            }
        }
    }
    runs
}

/// One writer on a stream of its own, where that is asked for.
fn paired(args: &Args, endpoint: &str, run_turn: impl Fn(&Contender, Speed) -> Turn) -> Vec<Pairs> {
    let scenario = Scenario::Disjoint;
    if !args.writers.contains(&1) || !(args.scenarios.is_empty() || args.scenarios.contains(&scenario)) {
        return Vec::new();
    }
    // On an endpoint that was given, this one's tables are not there yet.
    if let Some(unstreamed) = CONTENDERS.iter().find(|contender| contender.name == UNSTREAMED) {
        let _ = prepare(unstreamed, endpoint).map_err(|why| eprintln!("{why}"));
    }
    let (lasts, mut run) = (Duration::from_millis(args.milliseconds.min(PAIRED)), 0);
    Pairs::all(PAIRS * args.rounds, |contender| {
        run += 1;
        let speed = Speed { scenario, writers: 1, lasts, table: table(contender), run: PAIR_RUNS + run };
        run_turn(contender, speed).map_err(|why| eprintln!("{why}")).ok()?.pop()
    })
}

/// Behind the numbers of the turns: each has streams of its own.
const PAIR_RUNS: u64 = 1_000_000;

pub(crate) fn per_second(timed: &Timed) -> f64 {
    timed.done as f64 / timed.seconds
}

/// Conflicts for each operation that was done, of all turns together; none where they are not told.
pub(crate) fn lost(runs: &Runs, key: (Scenario, usize, &'static str)) -> Option<f64> {
    let turns: Vec<(u64, u64)> = runs.get(&key)?.iter().flatten().filter_map(|turn| Some((turn.conflicts?, turn.done))).collect();
    let (conflicts, done) = turns.iter().fold((0, 0), |(conflicts, done), turn| (conflicts + turn.0, done + turn.1));
    (done > 0).then(|| conflicts as f64 / done as f64)
}

/// The median over the turns in which it came through.
pub(crate) fn middle(runs: &Runs, key: (Scenario, usize, &'static str), of: impl Fn(&Timed) -> f64) -> Option<f64> {
    let found: Vec<f64> = runs.get(&key)?.iter().flatten().map(of).collect();
    (!found.is_empty()).then(|| median(found))
}

/// The time of one's operation to that of another's. Who came to nothing in a turn, or not through it, was infinitely slow.
pub(crate) fn times(one: Option<&Timed>, other: Option<&Timed>) -> f64 {
    let done = |turn: Option<&Timed>| turn.map_or(0.0, per_second);
    match (done(one), done(other)) {
        // Neither is ahead of the other.
        (0.0, 0.0) => 1.0,
        (one, other) => other / one,
    }
}

/// The same of the same turns.
pub(crate) fn ratio(runs: &Runs, (scenario, writers): (Scenario, usize), one: &'static str, other: &'static str) -> Option<f64> {
    let of = |name| runs.get(&(scenario, writers, name));
    let ratios: Vec<f64> = of(one)?.iter().zip(of(other)?).map(|(one, other)| times(one.as_ref(), other.as_ref())).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

/// Nothing, where one of the two came to nothing.
pub(crate) fn shown(ratio: f64) -> String {
    if ratio.is_normal() { format!("{ratio:.2}") } else { "–".into() }
}

fn tables(args: &Args, present: &[&'static Contender], runs: &Runs, pairs: &[Pairs]) -> Vec<Report> {
    let mut reports = Vec::new();
    let heads: Vec<String> = args.writers.iter().map(|n| if *n == 1 { "1 writer".into() } else { format!("{n} writers") }).collect();
    let columns = |first: &'static str| std::iter::once(first).chain(heads.iter().map(String::as_str)).collect::<Vec<_>>();
    for scenario in Scenario::ALL {
        let told = |contender: &&&'static Contender| runs.keys().any(|key| key.0 == scenario && key.2 == contender.name);
        let rows: Vec<Vec<Value>> = present
            .iter()
            .filter(told)
            .map(|contender| {
                let cell = |writers: &usize| {
                    let key = (scenario, *writers, contender.name);
                    let found = middle(runs, key, per_second).zip(middle(runs, key, |t| t.p50)).zip(middle(runs, key, |t| t.p99));
                    let Some(((ops, p50), p99)) = found else { return json!("failed") };
                    let ratio = ratio(runs, (scenario, *writers), contender.name, BARE);
                    let beside = ratio.map_or(String::new(), |ratio| format!(" · {}", shown(ratio)));
                    let (p50, p99, lost) = (p50 / 1e3, p99 / 1e3, lost(runs, key));
                    let races = lost.filter(|lost| *lost > 0.0).map_or(String::new(), |lost| format!(" · {lost:.1} lost"));
                    let ratio = ratio.filter(|ratio| ratio.is_normal());
                    let figures = json!({ "per_second": ops, "p50_ms": p50, "p99_ms": p99, "time_to_bare": ratio, "lost": lost });
                    cell(format!("{ops:.0}/s · {p50:.2}/{p99:.2} ms{beside}{races}"), figures)
                };
                std::iter::once(json!(contender.name)).chain(args.writers.iter().map(cell)).collect()
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let title = match scenario {
            Scenario::Disjoint => "appends to disjoint streams: operations per second · p50/p99 · time beside the bare SDK's",
            Scenario::Hot => "appends to one hot stream: the same · races lost for each that was won",
            Scenario::Boundaries => "decisions on overlapping boundaries of two tags: the same · races lost for each that was won",
        };
        let failed = rows.iter().filter(|row| row.contains(&json!("failed")));
        let mut notes: Vec<String> = failed.map(|row| format!("{BROKEN}: {} comes through", row[0].as_str().unwrap_or_default())).collect();
        notes.extend(beaten::by_failing(runs, scenario));
        let compared = if args.is_long() { &args.writers[..] } else { &[] };
        let beaten = Beaten { runs, pairs, scenario };
        notes.extend(beaten.beside_the_bare_sdk(compared));
        reports.push(Report::new(&columns(""), rows).titled(title).with_notes(notes));
        if scenario == Scenario::Disjoint && !pairs.is_empty() {
            reports.push(pairs::report(pairs, args.is_long()));
        }
        let others = present.iter().filter(told).filter(|contender| contender.is_peer());
        let rows: Vec<Vec<Value>> = others
            .map(|peer| {
                let cell = |writers: &usize| {
                    let ratio = ratio(runs, (scenario, *writers), LEDGER, peer.name).filter(|ratio| ratio.is_normal());
                    ratio.map_or(Value::Null, |ratio| figure(ratio, 2))
                };
                std::iter::once(json!(peer.name)).chain(args.writers.iter().map(cell)).collect()
            })
            .collect();
        if !rows.is_empty() {
            let title = format!("{scenario}: the time of an operation of the ledger in streams mode, beside the peer's");
            let notes = beaten.beside_peers(compared, present);
            reports.push(Report::new(&columns("beside"), rows).titled(&title).with_notes(notes));
        }
    }
    reports
}

fn plots(args: &Args, present: &[&'static Contender], runs: &Runs) -> Vec<Plot> {
    let plot = |scenario: Scenario| {
        let line = |contender: &&'static Contender| {
            let points = args.writers.iter().filter_map(|n| Some((*n as f64, middle(runs, (scenario, *n, contender.name), per_second)?)));
            let points: Vec<(f64, f64)> = points.collect();
            (!points.is_empty()).then_some(Line { name: contender.name, points })
        };
        let lines: Vec<Line> = present.iter().filter_map(line).collect();
        let title = match scenario {
            Scenario::Disjoint => "Appends to disjoint streams",
            Scenario::Hot => "Appends to one hot stream",
            Scenario::Boundaries => "Decisions on overlapping boundaries",
        };
        (!lines.is_empty()).then(|| Plot {
            file: format!("speed-{scenario}"),
            title,
            x: Axis("writers at once"),
            y: Axis("operations a second"),
            lines,
        })
    };
    Scenario::ALL.into_iter().filter_map(plot).collect()
}

/// From a process that starts to its first append, in a program that does no more; its size; and its memory then and under the most writers.
fn start(args: &Args, present: &[&'static Contender], endpoint: &str, runs: &Runs) -> Report {
    let mut took: BTreeMap<&str, Vec<(f64, Timed)>> = BTreeMap::new();
    for round in 0..=args.rounds {
        for contender in present {
            let Some(command) = small(contender, endpoint) else { continue };
            // The first of each reads its file from the disk.
            if let (Some((took_until, timed)), true) = (first_line(command), round > 0) {
                took.entry(contender.name).or_default().push((took_until.as_secs_f64() * 1e3, timed));
            }
        }
    }
    let most = args.writers.iter().copied().max().unwrap_or(1);
    let megabytes = |bytes: f64| figure(bytes / 1e6, 1);
    let mut notes = Vec::new();
    let rows = present.iter().filter_map(|contender| {
        small(contender, endpoint)?;
        let Some(found) = took.get(contender.name) else {
            notes.push(format!("{BROKEN}: {} starts and appends", contender.name));
            return None;
        };
        let size = program(contender).and_then(|path| std::fs::metadata(path).ok()).map(|file| megabytes(file.len() as f64));
        let scenario = if contender.can(Scenario::Disjoint) { Scenario::Disjoint } else { Scenario::Boundaries };
        let load = middle(runs, (scenario, most, contender.name), |timed| timed.peak as f64).map(megabytes);
        Some(vec![
            json!(contender.name),
            figure(median(found.iter().map(|(ms, _)| *ms).collect()), 1),
            size.unwrap_or(json!("node")),
            megabytes(median(found.iter().map(|(_, timed)| timed.rest as f64).collect())),
            load.unwrap_or(json!("–")),
        ])
    });
    let columns = ["", "cold start to first append, ms", "binary, MB", "memory at rest, MB", &format!("under {most} writers, MB")];
    let rows: Vec<Vec<Value>> = rows.collect();
    let of = |who: &str, column: usize| rows.iter().find(|row| row[0] == who).and_then(|row| number(&row[column]));
    notes.extend(beaten::by_what_is_carried(|column| of(LEDGER, column).zip(of(BARE, column)).is_some_and(|(ours, bare)| ours > bare)));
    Report::new(&columns, rows).titled("starting, size and memory").with_notes(notes)
}

/// How long it takes until it tells of its append, and what it tells; what it takes to end is not waited for by whoever starts it.
fn first_line(mut command: Command) -> Option<(Duration, Timed)> {
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
    let mut told = None;
    for line in BufReader::new(child.stdout.take()?).lines().map_while(std::result::Result::ok) {
        let until = began.elapsed();
        // To its end, so that it can go on to print; lines for people come before.
        told = told.or_else(|| Some((until, serde_json::from_str(&line).ok()?)));
    }
    child.wait().is_ok_and(|status| status.success()).then_some(told)?
}

/// A program that appends one event and ends, where there is one.
fn small(contender: &Contender, endpoint: &str) -> Option<Command> {
    let table = table(contender);
    if contender.by == By::Node {
        return contender.told(endpoint, &Task::First(table)).ok();
    }
    let mut command = Command::new(program(contender)?);
    command.args([endpoint, &table]);
    Some(command)
}

fn program(contender: &Contender) -> Option<PathBuf> {
    let name = match contender.name {
        BARE => "small-bare",
        LEDGER => "small-ledger",
        "event-store-adapter-rs 3.0.6" => "small-adapter-v3",
        "event-store-adapter-rs 5.2.0" => "small-adapter-v5",
        "dynamo-es 0.5.0" => "small-dynamo-es",
        "umadb 0.7.8" => "small-umadb",
        _ => return None,
    };
    contenders::built(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_takes_one_request_more_than_an_append() {
        let ground = Ground::new(&ground::Place::default()).await.expect("an engine");
        ground.store("start", "feed=streams").await.expect("tables");
        let meter = fencepost::testing::Meter::new(aws_smithy_http_client::Builder::new().build_http());
        let store = ground.builder("start", "feed=streams", meter.http_client()).expect("a URL").open().await.expect("opens");
        let event = fencepost::Event::new("OrderPlaced", "{}").expect("an event");
        let (name, step) = (fencepost::StreamName::new("first-1").expect("a name"), fencepost::Step::new([event]));
        store.streams().append(&name, step.expect(fencepost::Expect::None)).await.expect("appends");
        assert_eq!(meter.take().requests, 2, "as the page says");
    }

    #[test]
    fn a_start_ends_with_the_first_line_of_json() {
        let mut slow = Command::new("sh");
        let line = serde_json::to_string(&fencepost_contest::first()).expect("plain");
        slow.args(["-c", &format!("echo opened; echo '{line}'; sleep 1; echo '{line}'")]);
        let (took, timed) = first_line(slow).expect("it tells");
        assert!(took < Duration::from_millis(900) && timed.done == 1, "{took:?}");
        let mut fails = Command::new("sh");
        fails.args(["-c", &format!("echo '{line}'; exit 1")]);
        assert!(first_line(fails).is_none());
    }
}
