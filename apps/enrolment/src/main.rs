//! The command `enrolment`: reads its settings, opens the store, serves until it is asked to end.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use enrolment::serve;
use enrolment::service::{Patience, Service, open};
use tokio::net::TcpListener;

/// Courses, students and enrolments over HTTP: a sample service on fencepost
#[derive(Debug, Parser)]
#[command(name = "enrolment", version, max_term_width = 110)]
struct Args {
    /// Where the events are: memory:, file:PATH, dynamodb://REGION/TABLE or http://HOST:PORT/TABLE, with ?parameters
    #[arg(long, value_name = "URL", env = "FENCEPOST_STORE", default_value = "memory:", hide_env_values = true)]
    store: String,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", env = "ENROLMENT_ADDR", default_value = "127.0.0.1:8080")]
    addr: SocketAddr,
    /// How often a command is decided at most before it says that it lost a race
    #[arg(long, value_name = "N", env = "ENROLMENT_TRIES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tries: u32,
    /// And for how many seconds
    #[arg(long, value_name = "SECONDS", env = "ENROLMENT_DEADLINE", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    deadline: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("ENROLMENT_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("enrolment: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    let store = open(&args.store).await?;
    let patience = Patience { tries: args.tries, deadline: Duration::from_secs(args.deadline) };
    let service = Arc::new(Service::start(store, patience));
    if let Err(problem) = service.view() {
        eprintln!("enrolment: {}", problem.detail);
    }
    let listener = TcpListener::bind(args.addr).await.map_err(|error| format!("cannot listen on {}: {error}", args.addr))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    // For people and for scripts that gave port 0; nobody reading it is no reason to stop.
    let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    serve(listener, service, asked_to_end()).await.map_err(|error| error.to_string())
}

/// Resolves on Ctrl-C and SIGTERM.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler the system's own ends the process, so there is nothing to tell.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        super::Args::command().debug_assert();
    }
}
