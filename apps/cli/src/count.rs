//! `count`: how many events there are.

use fencepost::sekiban::SortableId;

use crate::args::Place;
use crate::failure::Outcome;
use crate::output::Output;

/// Count events, by reading the index of all of them (layout sekiban)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost count
  fencepost count --since 063921792785123456000144769402")]
pub(crate) struct Args {
    /// Only those behind this sortable unique id: 30 digits
    #[arg(long, value_name = "ID")]
    since: Option<SortableId>,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let count = place.open().await?.sekiban()?.count(args.since).await?;
    Ok(out.result(&serde_json::json!({ "events": count }), |paint| format!("{} events", paint.bold(count)))?)
}
