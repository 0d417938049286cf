//! `prune`: takes away the oldest events of a stream.

use fencepost::StreamName;
use serde::Serialize;

use crate::args::Place;
use crate::failure::Outcome;
use crate::output::Output;

/// Take away the oldest events of a stream, and keep its snapshots (layout equinox)
///
/// Oldest first, so that what is left has no gap, however it ends; run it again if it was cut short. Events that share a calf with some that
/// stay are left for a later prune. Nothing is announced to the feed, but a consumer that has not read them by then finds no bodies: look at
/// `fencepost consumers` first. They are gone for good, unless they are in the table that `&archive=` names.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost prune --stream Cart-7 --before 1000
  fencepost read --stream Cart-7 --unfolds")]
pub(crate) struct Args {
    /// The stream
    #[arg(long, value_name = "NAME", value_parser = |text: &str| StreamName::new(text))]
    stream: StreamName,
    /// The version of the first event to keep
    #[arg(long, value_name = "VERSION")]
    before: u64,
}

#[derive(Serialize)]
struct Shown<'a> {
    stream: &'a StreamName,
    #[serde(flatten)]
    pruned: fencepost::equinox::Pruned,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let pruned = place.open().await?.equinox()?.prune(&args.stream, args.before).await?;
    Ok(out.result(&Shown { stream: &args.stream, pruned }, |paint| {
        let deleted = paint.bold(format!("{} events taken away", pruned.deleted));
        format!("{deleted}, {} left for later; the first is version {}; {}", pruned.deferred, pruned.first, pruned.units)
    })?)
}
