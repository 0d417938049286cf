//! The command `fencepost`: reads its arguments, runs one command, and ends with the exit code that says what to do next.

#![forbid(unsafe_code)]

mod append;
mod args;
mod completions;
mod consumers;
mod copy;
mod cost;
mod count;
mod demo;
mod doctor;
mod engine;
mod event;
mod export;
mod failure;
mod gc;
mod import;
mod index;
mod indexed;
mod init;
mod json;
mod output;
mod parked;
mod projections;
mod prune;
mod read;
mod select;
mod signal;
mod stats;
mod tags;
mod tail;
mod verify;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use failure::{Failure, Outcome};
use output::{Format, Output};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => error.exit(),
        // Who types the bare name on a terminal wants to know what there is.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && io::stdout().is_terminal() => error.exit(),
        Err(error) => return Failure::usage(&error).report(Format::guess(&args).unwrap_or_else(Format::default_for_stdout)),
    };
    // Off unless asked for: what is on stderr otherwise is talk for people, or one line of JSON for programs.
    let filter = tracing_subscriber::EnvFilter::try_from_env("FENCEPOST_LOG").unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let format = cli.output.unwrap_or_else(Format::default_for_stdout);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::from(error).report(format),
    };
    let mut out = Output::stdout(format);
    let outcome = runtime.block_on(run(cli, &mut out)).and_then(|()| Ok(out.flush()?));
    // A read of stdin that nobody ends would hold the runtime back for ever.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format),
    }
}

async fn run(cli: Cli, out: &mut Output) -> Outcome {
    let place = args::Place(cli.store);
    match cli.command {
        Command::Init(args) => init::run(args, &place, out).await,
        Command::Append(args) => append::run(args, &place, out).await,
        Command::Read(args) => read::run(args, &place, out).await,
        Command::Tail(args) => tail::run(args, &place, out).await,
        Command::Tags(args) => tags::run(args, &place, out).await,
        Command::Event(args) => event::run(args, &place, out).await,
        Command::Count(args) => count::run(args, &place, out).await,
        Command::Consumers(args) => consumers::run(args, &place, out).await,
        Command::Parked(args) => parked::run(args, &place, out).await,
        Command::Projections(args) => projections::run(args, &place, out).await,
        Command::Copy(args) => copy::run(args, out).await,
        Command::Cost(args) => cost::run(args, out).await,
        Command::Export(args) => export::run(args, &place, out).await,
        Command::Import(args) => import::run(args, &place, out).await,
        Command::Verify(args) => verify::run(args, &place, out).await,
        Command::Index(args) => index::run(args, &place, out).await,
        Command::Gc(args) => gc::run(args, &place, out).await,
        Command::Prune(args) => prune::run(args, &place, out).await,
        Command::Stats(args) => stats::run(args, &place, out).await,
        Command::Doctor(args) => doctor::run(args, &place, out).await,
        Command::Demo(args) => demo::run(args, &place, out).await,
        Command::Engine(args) => engine::run(args, out).await,
        Command::Completions(args) => completions::run(args, out),
    }
}
