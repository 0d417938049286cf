//! `cost`: what a workload costs a month on each layout.

mod consumed;
mod month;
mod pace;
mod prices;
mod sample;
mod sekiban;

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::ArgPredicate;

use crate::failure::Outcome;
use crate::output::{Output, Paint, table};
use month::{Cost, cost};
use prices::{Prices, prices};
use sample::{LAYOUTS, sample};
use sekiban::Part;

/// Say what a workload costs a month on each layout: units times prices
///
/// The units are not estimated: commits, reads, their way through the feed and a consumer's saves are done on an engine in this process, and
/// counted; how many of them wait together follows from the rate. The prices are a dated file: print the program's own with --print-prices, edit
/// it, and give it with --prices. A month has 30 days.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost cost --events-per-day 1000000 --size 500 --tags 2
  fencepost cost --events-per-day 50000 --size 2000 --events-per-commit 3 --loads-per-day 200000 -o json
  fencepost cost --events-per-day 1000000 --sekiban-estimate
  fencepost cost --print-prices > prices.toml; fencepost cost --events-per-day 1000000 --prices prices.toml")]
pub(crate) struct Args {
    #[command(flatten)]
    work: Workload,
    /// Prices in place of the program's own: a copy of what --print-prices prints, edited
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print the program's own prices, as a file for --prices, and nothing else
    #[arg(long, exclusive = true)]
    print_prices: bool,
    /// Beside it, Sekiban's published estimate for a million events a day, what its own design comes to, and ours, part by part
    #[arg(long)]
    sekiban_estimate: bool,
}

#[derive(Debug, Clone, clap::Args)]
struct Workload {
    /// Events recorded a day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000_000),
          default_value_if("print_prices", ArgPredicate::IsPresent, Some("1")))]
    events_per_day: u64,
    /// Bytes of an event's body
    #[arg(long, value_name = "BYTES", default_value_t = 500, value_parser = size)]
    size: usize,
    /// Tags of an event, all of which its decision has read; layouts that have streams only take one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = tags)]
    tags: usize,
    /// Events of one commit
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=20))]
    events_per_commit: u64,
    /// Reads of a stream, or of all tags of a decision, a day [default: one for each commit]
    #[arg(long, value_name = "N")]
    loads_per_day: Option<u64>,
    /// Events that such a read finds: the length that streams and tags have
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    load_events: u64,
    /// Consumers that follow the feed, each with a place of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    consumers: u64,
    /// Months of events that are stored
    #[arg(long, value_name = "N", default_value_t = 12)]
    months: u64,
    /// How many times the average the busiest moment is, for provisioned capacity and shards
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    peak: f64,
    /// Who builds the feed's index, where it has one
    #[arg(long, value_enum, default_value_t = By::Function)]
    indexer: By,
    /// Shards of the stream [default: one for each 10 GB of the table and each 1000 write units a second, at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    shards: Option<u64>,
}

/// Who builds the index of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The Lambda function of apps/indexer, as its template deploys it
    Function,
    /// `fencepost index run`; the machine that it runs on is not counted
    Process,
}

fn size(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|bytes| (12..=300_000).contains(bytes)).ok_or_else(|| "expected 12 to 300000 bytes".into())
}
fn tags(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|tags| (1..=9).contains(tags)).ok_or_else(|| "expected 1 to 9".into())
}

fn dollars(amount: f64) -> String {
    if amount < 10.0 { format!("{amount:.2}") } else { format!("{amount:.0}") }
}

/// What was assumed and what is in the columns, a line each.
fn notes(work: &Workload, costs: &[Cost], prices: &Prices) -> Vec<String> {
    let each = if work.events_per_commit == 1 { String::new() } else { format!(", {} a commit", work.events_per_commit) };
    let loads = work.loads_per_day.map_or("one for each commit".to_owned(), |loads| format!("{loads} a day"));
    let mut notes = vec![
        format!("prices of {} ({}), without free tiers; a month of 30 days", prices.date, prices.region),
        format!(
            "{} events a day of {} bytes{each}, {} tag{}; reads of {} events, {loads}; {} consumer{}; {} month{} stored",
            work.events_per_day,
            work.size,
            work.tags,
            if work.tags == 1 { "" } else { "s" },
            work.load_events,
            work.consumers,
            if work.consumers == 1 { "" } else { "s" },
            work.months,
            if work.months == 1 { "" } else { "s" },
        ),
        "tables, indexes: writes of commits. reads: of commits and loads. indexer: what builds the feed's index writes and reads. consumers: the feed, \
         looks in vain, places saved, leases renewed. storage: as counted, 100 bytes an item besides, indexes with it"
            .to_owned(),
    ];
    if let Some((cost, of)) = costs.iter().find_map(|cost| Some((cost, cost.indexing.as_ref()?))) {
        let by = match work.indexer {
            By::Function => format!(
                "the function (arm64, 256 MB) starts {:.2} times a second and reads {} shards itself, {:.1} GetRecords a second",
                of.rings_per_second, of.shards, of.stream_reads_per_second
            ),
            By::Process => format!(
                "a process of yours, whose machine is not counted, reads {} shards, {:.1} GetRecords a second",
                of.shards, of.stream_reads_per_second
            ),
        };
        notes.push(format!("{}: {by}; {:.1} commits wait together. Others: by the size of their tables", cost.layout, of.together));
        if work.indexer == By::Function {
            notes.push("equinox: its function is fed with the records, and reads no stream".to_owned());
        }
    }
    notes.push(format!(
        "provisioned: for {} times the average, 70 % used, each table and index bought by itself, at least one unit",
        work.peak
    ));
    let fewer: Vec<&str> = costs.iter().filter(|c| c.tags < work.tags).map(|c| c.layout.as_str()).collect();
    if !fewer.is_empty() {
        notes.push(format!("streams only, so with one tag: {}", fewer.join(", ")));
    }
    notes
}

fn shown(work: &Workload, costs: &[Cost], prices: &Prices, sekiban: Option<&[Part]>, paint: Paint) -> String {
    let columns = [
        "dollars a month",
        "tables",
        "indexes",
        "reads",
        "indexer",
        "Streams",
        "Lambda",
        "consumers",
        "storage",
        "on demand",
        "provisioned",
    ];
    let mut shown = table(columns);
    shown.add_rows(costs.iter().map(|c| {
        let parts =
            [c.table_writes, c.index_writes, c.reads, c.indexer, c.streams, c.lambda, c.consumers, c.storage, c.on_demand, c.provisioned];
        [vec![c.layout.clone()], parts.map(dollars).to_vec()].concat()
    }));
    let mut text = format!("{shown}\n{}", paint.dim(notes(work, costs, prices).join("\n")));
    if let Some(parts) = sekiban {
        let mut beside = table(["Sekiban, 1 M events a day", "published", "by its design", "ours, its prices of then", "ours, at these"]);
        let known = |amount: Option<f64>| amount.map_or("–".into(), dollars);
        beside.add_rows(
            parts.iter().map(|part| {
                [part.part.to_owned(), known(part.published), known(part.by_design), dollars(part.ours_then), dollars(part.ours)]
            }),
        );
        text += &format!("\n{beside}\n{}", paint.dim(sekiban::ASSUMED));
    }
    text
}

pub(crate) async fn run(args: Args, out: &mut Output) -> Outcome {
    if args.print_prices {
        return Ok(out.text(prices::OWN.trim_end())?);
    }
    let prices = prices(args.prices.as_deref())?;
    let mut costs = Vec::new();
    let mut sekiban = None;
    for layout in LAYOUTS {
        let of = sample(layout, &args.work).await?;
        costs.push(cost(layout.name, &args.work, &of, &prices));
        if args.sekiban_estimate && layout.name == "sekiban" {
            sekiban = Some(sekiban::estimate(layout, &prices).await?);
        }
    }
    let answer = serde_json::json!({
        "prices": prices.date,
        "region": prices.region,
        "layouts": costs,
        "notes": notes(&args.work, &costs, &prices),
        "sekiban_estimate": sekiban,
        "sekiban_assumed": sekiban.is_some().then_some(sekiban::ASSUMED),
    });
    Ok(out.result(&answer, |paint| shown(&args.work, &costs, &prices, sekiban.as_deref(), paint))?)
}
