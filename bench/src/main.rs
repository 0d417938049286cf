//! Benchmarks: what the store adds to the bare SDK, how fast feeds catch up, and what a long replay holds in memory.

mod bare;
mod catch_up;
mod overhead;
mod replay;
mod report;

use clap::{Parser, Subcommand};
use fencepost::Result;
use report::Format;

/// Measure fencepost beside the bare SDK, on the embedded engine
#[derive(Parser)]
struct Args {
    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Appends and loads of the ledger beside the same requests sent by the bare SDK.
    Overhead(overhead::Args),
    /// Feeds over lanes and over the index beside a bare loop that does the same reads.
    CatchUp(catch_up::Args),
    /// A consumer replays a long log from a served engine: its memory and its speed.
    Replay(replay::Args),
    /// A process of `replay`.
    #[command(hide = true)]
    Process(replay::Process),
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let Args { output, what } = Args::parse();
    let report = match what {
        What::Overhead(args) => overhead::run(&args).await?,
        What::CatchUp(args) => catch_up::run(&args).await?,
        What::Replay(args) => replay::run(&args).await?,
        What::Process(process) => return process.run().await,
    };
    println!("{}", report.print(output));
    Ok(())
}
