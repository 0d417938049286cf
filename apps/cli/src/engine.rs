//! `engine`: the embedded engine as a DynamoDB endpoint, for other programs and for tests.

use std::net::SocketAddr;
use std::path::PathBuf;

use fencepost::Engine;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, talk};
use crate::signal::asked_to_end;

/// Serve the embedded engine as a DynamoDB endpoint
///
/// For other programs and for tests: any region and any credentials do, nothing is checked. The address is printed once requests are
/// answered. Ctrl-C or SIGTERM ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost engine
  fencepost engine --listen 127.0.0.1:0 --file orders.db
  fencepost --store http://127.0.0.1:8000/orders init")]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Keep the tables in this file; without one they end with the process
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Listening {
    url: String,
    address: SocketAddr,
}

pub(crate) async fn run(args: Args, out: &mut Output) -> Outcome {
    let engine = match &args.file {
        Some(path) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(Failure::new(Code::NotFound, format!("there is no folder {}", folder.display())));
            }
            Engine::file(path)?
        }
        None => Engine::memory()?,
    };
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        Failure::new(Code::Failure, format!("cannot listen on {}: {error}", args.listen)).hint("give another port, or 0 for a free one")
    })?;
    let address = listener.local_addr()?;
    let listening = Listening { url: format!("http://{address}"), address };
    out.result(&listening, |paint| format!("{} {}", paint.dim("listening on"), paint.bold(&listening.url)))?;
    out.flush()?;
    if !address.ip().is_loopback() {
        talk("open to the network: whoever reaches this port reads and writes everything");
    }
    engine.serve(listener, asked_to_end()).await?;
    Ok(())
}
