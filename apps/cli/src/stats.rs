//! `stats`: what is in a store.

use crate::args::Place;
use crate::failure::Outcome;
use crate::output::{Output, printable, table};

/// Say what is in the store: layout, settings, tables, commits, events
///
/// Items and bytes of a table are DynamoDB's own count, refreshed every six hours or so.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost stats
  fencepost stats -o json | jq .events")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, place: &Place, out: &mut Output) -> Outcome {
    let stats = place.open().await?.stats().await?;
    Ok(out.result(&stats, |paint| {
        let mut text = format!("{} {}\n", paint.dim("layout "), paint.bold(&stats.layout));
        for (name, value) in &stats.settings {
            text += &format!("{} {}\n", paint.dim(format!("{name:<7}")), printable(value));
        }
        for (name, count) in [("commits", stats.commits), ("events ", stats.events)] {
            if let Some(count) = count {
                text += &format!("{} {count}\n", paint.dim(name));
            }
        }
        text += &format!("{} {}\n", paint.dim("units  "), stats.units);
        let mut tables = table(["table", "status", "items", "bytes"]);
        tables.add_rows(stats.tables.iter().map(|t| [t.name.clone(), t.status.clone(), t.items.to_string(), t.bytes.to_string()]));
        text + &tables.to_string()
    })?)
}
