//! The arguments that every command shares, and the list of commands; what is a command's own is defined in its file.

use clap::{Parser, Subcommand};
use fencepost::{Builder, Store};

use crate::failure::Failure;
use crate::output::Format;

/// An event store on Amazon DynamoDB
///
/// Decide on past events, append new ones atomically, react to every one of them in order. Data goes to stdout, talk to stderr.
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, subcommand_required = true, arg_required_else_help = true, max_term_width = 110, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Where the events are: memory:, file:PATH, dynamodb://REGION/TABLE or http://HOST:PORT/TABLE, with ?parameters
    #[arg(long, global = true, value_name = "URL", env = "FENCEPOST_STORE", hide_env_values = true, help_heading = "Global options")]
    pub(crate) store: Option<String>,
    /// How to print: a table on a terminal, else ndjson, if not given
    #[arg(short, long, global = true, value_name = "FORMAT", help_heading = "Global options")]
    pub(crate) output: Option<Format>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  fencepost demo
  export FENCEPOST_STORE=file:orders.db
  echo '{\"type\":\"OrderPlaced\",\"data\":{\"total\":7},\"tags\":[\"order:1\"]}' | fencepost append
  fencepost read --tag order:1
  fencepost tail --from start

Exit codes:
  0 ok (an empty read too)          5 integrity: what is stored cannot be right
  1 failure                         6 unavailable or throttled: try later
  2 usage, refused or malformed     7 in doubt: append again with the same --commit and --base
  3 conflict: decide again          8 denied, no credentials, or a missing or differing table
  4 a named thing is not there

Environment:
  FENCEPOST_STORE  the store, where --store is not given
  FENCEPOST_LOG    what to log on stderr, such as debug or fencepost=trace
  NO_COLOR         no colours on a terminal either";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(crate::init::Args),
    Append(crate::append::Args),
    Read(crate::read::Args),
    Tail(crate::tail::Args),
    Tags(crate::tags::Args),
    Event(crate::event::Args),
    Count(crate::count::Args),
    Consumers(crate::consumers::Args),
    Parked(crate::parked::Args),
    Projections(crate::projections::Args),
    Copy(crate::copy::Args),
    Export(crate::export::Args),
    Import(crate::import::Args),
    Verify(crate::verify::Args),
    Index(crate::index::Args),
    Gc(crate::gc::Args),
    Prune(crate::prune::Args),
    Stats(crate::stats::Args),
    Cost(crate::cost::Args),
    Doctor(crate::doctor::Args),
    Demo(crate::demo::Args),
    Engine(crate::engine::Args),
    Completions(crate::completions::Args),
}

/// Where the store is, as far as it was said.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) Option<String>);

impl Place {
    pub(crate) fn url(&self) -> Option<&str> {
        self.0.as_deref().filter(|url| !url.is_empty())
    }
    /// The store that was named, not open yet.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let url = self.url().ok_or_else(Failure::no_store)?;
        Ok(Store::builder(url)?)
    }
    /// The store that was named, open.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        Ok(self.builder()?.open().await?)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        super::Cli::command().debug_assert();
    }
}
