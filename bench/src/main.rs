//! Benchmarks: what the store costs and how fast it is beside its peers and the bare SDK, how fast feeds catch up, and what a long replay holds
//! in memory.

mod bare;
mod catch_up;
mod contend;
mod contenders;
mod document;
mod floor;
mod ground;
mod growth;
mod instructions;
mod ours;
mod overhead;
mod plot;
mod replay;
mod report;
mod speed;
mod units;
mod work;

use clap::{Parser, Subcommand};
use document::Page;
use fencepost_contest::Fault;
use plot::Plot;
use report::{Format, Report};

/// Measure fencepost beside the bare SDK and its peers, on the embedded engine
#[derive(Parser)]
struct Args {
    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Write what is found into `docs/src/measured` and the README.
    #[arg(long, global = true)]
    write: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Units and requests of the same work on each layout and with each peer.
    Units(units::Args),
    /// Operations a second, latency, start, size and memory.
    Speed(speed::Args),
    /// Units and time as a stream grows, and as the store does.
    Growth(growth::Args),
    /// Units, speed and growth, with what they take to begin with.
    All,
    /// Appends and loads of the ledger beside the same requests sent by the bare SDK.
    Overhead(overhead::Args),
    /// Feeds over lanes and over the index beside a bare loop that does the same reads.
    CatchUp(catch_up::Args),
    /// A consumer replays a long log from a served engine: its memory and its speed.
    Replay(replay::Args),
    /// Instructions of planning, encoding and decoding, by callgrind, held against `bench/instructions.json`; `--write` writes them down.
    Instructions,
    /// A part of the hot path, so many times.
    #[command(hide = true)]
    Hot(instructions::Hot),
    /// One of our contenders, told what to do.
    #[command(hide = true)]
    Contend(contend::Args),
    /// A process of `replay`.
    #[command(hide = true)]
    Process(replay::Process),
}

impl What {
    /// Everything that is asked for, as a new user would.
    fn each(self) -> Vec<What> {
        let of = |what: &str| Args::parse_from(["fencepost-bench", what]).what;
        match self {
            What::All => vec![of("units"), of("speed"), of("growth")],
            one => vec![one],
        }
    }

    /// The page that it is written to, if any; its tables; its pictures.
    async fn run(self, write: bool) -> Result<(Option<Page>, Vec<Report>, Vec<Plot>), Fault> {
        let alone = |report| (None, vec![report], Vec::new());
        Ok(match self {
            What::Units(args) => (Some(Page::Units), units::run(&args).await?, Vec::new()),
            What::Speed(args) => {
                let (mut reports, plots) = speed::run(&args).await?;
                reports.push(
                    overhead::run(&overhead::Args::rounds(3 * args.rounds))
                        .await?
                        .titled("what the store adds to the bare SDK, in one process"),
                );
                (Some(Page::Speed), reports, plots)
            }
            What::Growth(args) => {
                let (reports, plots) = growth::run(&args).await?;
                (Some(Page::Growth), reports, plots)
            }
            What::Overhead(args) => alone(overhead::run(&args).await?),
            What::CatchUp(args) => alone(catch_up::run(&args).await?),
            What::Replay(args) => alone(replay::run(&args).await?),
            What::Instructions => alone(instructions::run(write)?),
            What::All | What::Hot(_) | What::Contend(_) | What::Process(_) => (None, Vec::new(), Vec::new()),
        })
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let Args { output, write, what } = Args::parse();
    let what = match what {
        What::Contend(contender) => return contender.run().await,
        What::Hot(hot) => return Ok(hot.run()?),
        What::Process(process) => return Ok(process.run().await?),
        other => other.each(),
    };
    let mut all = Vec::new();
    for what in what {
        let (page, reports, plots) = what.run(write).await?;
        // Each as soon as it is there: the next may take long.
        if let (Some(page), true) = (page, write) {
            document::write(page, &reports, &plots)?;
        }
        all.extend(reports);
    }
    println!("{}", report::print(&all, output));
    let broken = all.iter().flat_map(|report| &report.notes).filter(|note| note.starts_with("DOES NOT HOLD")).count();
    if broken > 0 { Err(format!("{broken} of what it must show does not hold").into()) } else { Ok(()) }
}
