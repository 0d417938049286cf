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
        let mut facts = vec![("layout", paint.bold(&stats.layout))];
        facts.extend(stats.settings.iter().map(|(name, value)| (name.as_str(), printable(value))));
        facts.extend(stats.commits.map(|count| ("commits", count.to_string())));
        facts.extend(stats.events.map(|count| ("events", count.to_string())));
        facts.push(("units", stats.units.to_string()));
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let told = facts.iter().filter(|(_, value)| !value.is_empty());
        let mut text: String = told.map(|(name, value)| format!("{} {value}\n", paint.dim(format!("{name:<width$}")))).collect();
        let mut tables = table(["table", "status", "items", "bytes"]);
        tables.add_rows(stats.tables.iter().map(|t| [t.name.clone(), t.status.clone(), t.items.to_string(), t.bytes.to_string()]));
        text += &tables.to_string();
        text
    })?)
}
