//! How fast: writers at once on disjoint streams, on one hot stream, on overlapping boundaries; and what it takes to start. Each contender in a
//! process of its own, in turns, so that a slow moment of the machine strikes all, and no turn begins as the last one did; medians, and ratios
//! within a turn: of times, so that less is better.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost::Result;
use fencepost_contest::{Scenario, Speed, Task, Timed};
use serde_json::{Value, json};

use crate::contenders::{self, BARE, By, CONTENDERS, Contender, LEDGER, run as run_id};
use crate::document::Page;
use crate::ground::{self, Ground};
use crate::plot::{Axis, Line, Plot};
use crate::report::{BROKEN, Report, cell, claim, median};
use crate::units::left_out;
use crate::{Done, overhead};

#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) ground: ground::Place,
    /// Turns of each contender.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// How long each writes in a turn.
    #[arg(long, default_value_t = 700)]
    milliseconds: u64,
    /// How many write at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    writers: Vec<usize>,
    /// Only these: disjoint, hot, boundaries.
    #[arg(long = "scenario")]
    scenarios: Vec<Scenario>,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    without_peers: bool,
}

impl Args {
    /// Everybody, at every number of writers, in every scenario, often enough.
    pub(crate) fn is_whole(&self) -> bool {
        let usual = [1, 16, 64].iter().all(|writers| self.writers.contains(writers));
        !self.without_peers && self.scenarios.is_empty() && usual && self.rounds >= 3 && self.milliseconds >= 500
    }
}

/// What the store may add to the bare SDK at one writer.
const OVERHEAD: f64 = 1.15;

/// By scenario, writers and contender: a run for each round in which it came through.
type Runs = BTreeMap<(Scenario, usize, &'static str), Vec<Option<Timed>>>;

fn contenders(args: &Args) -> impl Iterator<Item = &'static Contender> {
    let without_peers = args.without_peers;
    CONTENDERS.iter().filter(move |contender| contender.races() && !(without_peers && contender.is_peer()))
}

fn table(contender: &Contender) -> String {
    format!("speed-{}-{}", contender.name.replace([' ', ',', '.'], "-"), run_id())
}

pub(crate) async fn run(args: &Args) -> Result<Done> {
    let ground = Ground::new(&args.ground).await?;
    let (endpoint, asked) = (ground.endpoint().to_owned(), args.clone());
    let done = tokio::task::spawn_blocking(move || {
        let args = asked;
        let (mut present, mut notes) = (Vec::new(), Vec::new());
        for contender in contenders(&args) {
            match contender.lines::<Value>(&endpoint, &Task::Prepare(table(contender))) {
                Ok(_) => present.push(contender),
                Err(why) => notes.push(left_out(contender, &why)),
            }
        }
        let runs = race(&args, &present, &endpoint);
        let start = (!args.without_peers).then(|| start(&args, &present, &endpoint, &runs));
        let mut reports = tables(&args, &present, &runs);
        reports.extend(start);
        // What umadb wrote is in a folder of this machine.
        for contender in present.iter().filter(|contender| !contender.units) {
            let _ = std::fs::remove_dir_all(std::env::temp_dir().join(format!("{}.umadb", table(contender))));
        }
        let plots = plots(&args, &present, &runs);
        Done { page: Some(Page::Speed), who: present.iter().map(|contender| contender.name).collect(), reports, plots }.noting(notes)
    });
    let mut done = done.await.map_err(|error| fencepost::Error::unavailable(fencepost::Reason::Rejected, error.to_string()))?;
    // As many as a short run can have, and sixteen writers at the least.
    let operations = usize::try_from(args.milliseconds).unwrap_or(400).clamp(16, 400);
    let added = overhead::run(&overhead::Args::of(operations, 3 * args.rounds)).await?;
    done.reports
        .push(added.titled("what the store adds to the bare SDK, in one process, without a network between: the most that it can be"));
    Ok(done)
}

fn race(args: &Args, present: &[&'static Contender], endpoint: &str) -> Runs {
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
                    let timed = contender.lines::<Timed>(endpoint, &Task::Speed(speed)).map_err(|why| eprintln!("{why}")).ok();
                    runs.entry((scenario, writers, contender.name)).or_default().push(timed.and_then(|mut lines| lines.pop()));
                }
            }
        }
    }
    runs
}

fn per_second(timed: &Timed) -> f64 {
    timed.done as f64 / timed.seconds
}

/// The median over the turns in which it came through.
fn middle(runs: &Runs, key: (Scenario, usize, &'static str), of: impl Fn(&Timed) -> f64) -> Option<f64> {
    let found: Vec<f64> = runs.get(&key)?.iter().flatten().map(of).collect();
    (!found.is_empty()).then(|| median(found))
}

/// The time of one's operation to that of another's, of the same turns.
fn ratio(runs: &Runs, (scenario, writers): (Scenario, usize), one: &'static str, other: &'static str) -> Option<f64> {
    let of = |name| runs.get(&(scenario, writers, name));
    let pairs = of(one)?.iter().zip(of(other)?);
    let ratios = pairs.filter_map(|(one, other)| Some(per_second(other.as_ref()?) / per_second(one.as_ref()?)));
    // Who came to nothing in a turn has no ratio there.
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_normal()).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

fn tables(args: &Args, present: &[&'static Contender], runs: &Runs) -> Vec<Report> {
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
                    let beside = ratio.map_or(String::new(), |ratio| format!(" · {ratio:.2}"));
                    let (p50, p99) = (p50 / 1e3, p99 / 1e3);
                    let figures = json!({ "per_second": ops, "p50_ms": p50, "p99_ms": p99, "time_to_bare": ratio });
                    cell(format!("{ops:.0}/s · {p50:.2}/{p99:.2} ms{beside}"), figures)
                };
                std::iter::once(json!(contender.name)).chain(args.writers.iter().map(cell)).collect()
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let title = match scenario {
            Scenario::Disjoint => "appends to disjoint streams: operations per second · p50/p99 · time beside the bare SDK's",
            Scenario::Hot => "appends to one hot stream: the same",
            Scenario::Boundaries => "decisions on overlapping boundaries of two tags: the same",
        };
        let failed = rows.iter().filter(|row| row.contains(&json!("failed")));
        let mut notes: Vec<String> = failed.map(|row| format!("{BROKEN}: {} comes through", row[0].as_str().unwrap_or_default())).collect();
        // A short run says nothing about its ratio.
        let beside = ratio(runs, (scenario, 1), LEDGER, BARE).filter(|_| scenario == Scenario::Disjoint && args.milliseconds >= 500);
        if let Some(ratio) = beside {
            let says = format!("at one writer an append takes at most {OVERHEAD} times the bare SDK's time, over HTTP: {ratio:.2}");
            notes.push(claim(&says, ratio <= OVERHEAD));
        }
        reports.push(Report::new(&columns(""), rows).titled(title).with_notes(notes));
        let others = present.iter().filter(told).filter(|contender| contender.is_peer());
        let rows: Vec<Vec<Value>> = others
            .map(|peer| {
                let cell =
                    |writers: &usize| json!(ratio(runs, (scenario, *writers), LEDGER, peer.name).map(|r| (r * 100.0).round() / 100.0));
                std::iter::once(json!(peer.name)).chain(args.writers.iter().map(cell)).collect()
            })
            .collect();
        if !rows.is_empty() {
            reports.push(
                Report::new(&columns("beside"), rows)
                    .titled(&format!("{scenario}: the time of an operation of the ledger in streams mode, beside the peer's")),
            );
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
            let Some(mut command) = small(contender, endpoint) else { continue };
            let began = Instant::now();
            let ran = command.stderr(Stdio::inherit()).output();
            let milliseconds = began.elapsed().as_secs_f64() * 1e3;
            let said = ran.ok().filter(|ran| ran.status.success()).map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned());
            let timed = said.and_then(|said| said.lines().find_map(|line| serde_json::from_str::<Timed>(line).ok()));
            // The first of each reads its file from the disk.
            if let (Some(timed), true) = (timed, round > 0) {
                took.entry(contender.name).or_default().push((milliseconds, timed));
            }
        }
    }
    let most = args.writers.iter().copied().max().unwrap_or(1);
    let megabytes = |bytes: f64| json!((bytes / 1e5).round() / 10.0);
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
            json!((median(found.iter().map(|(ms, _)| *ms).collect()) * 10.0).round() / 10.0),
            size.unwrap_or(json!("node")),
            megabytes(median(found.iter().map(|(_, timed)| timed.rest as f64).collect())),
            load.unwrap_or(json!("–")),
        ])
    });
    let columns = ["", "cold start to first append, ms", "binary, MB", "memory at rest, MB", &format!("under {most} writers, MB")];
    let rows = rows.collect();
    Report::new(&columns, rows).titled("starting, size and memory").with_notes(notes)
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
