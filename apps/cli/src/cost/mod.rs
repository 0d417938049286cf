//! `cost`: what a workload costs a month on each layout.

mod prices;
mod sample;

use std::path::PathBuf;

use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{Output, table};
use prices::{Prices, prices};
use sample::{LAYOUTS, Layout, Sample, sample};

/// Say what a workload costs a month on each layout: units times prices
///
/// The units are not estimated: a commit, a read and their way through the feed are done on an engine in this process, and counted. The
/// prices are a dated file (`--prices`), the program's own if none is given. A month has 30 days.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost cost --events-per-day 1000000 --size 500 --tags 2
  fencepost cost --events-per-day 50000 --size 2000 --events-per-commit 3 --loads-per-day 200000 -o json
  fencepost cost --events-per-day 1000000 --sekiban-estimate")]
pub(crate) struct Args {
    #[command(flatten)]
    work: Workload,
    /// Prices in place of the program's own
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Beside it, Sekiban's published estimate for a million events a day, what its own design comes to, and ours, part by part
    #[arg(long)]
    sekiban_estimate: bool,
}

#[derive(Debug, Clone, clap::Args)]
struct Workload {
    /// Events recorded a day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000_000))]
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
    /// Reads of a stream or tag a day [default: one for each commit]
    #[arg(long, value_name = "N")]
    loads_per_day: Option<u64>,
    /// Events that such a read finds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    load_events: u64,
    /// Consumers that follow the feed
    #[arg(long, value_name = "N", default_value_t = 1)]
    consumers: u64,
    /// Months of events that are stored
    #[arg(long, value_name = "N", default_value_t = 12)]
    months: u64,
    /// How many times the average the busiest moment is, for provisioned capacity
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    peak: f64,
}

fn size(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|bytes| (12..=300_000).contains(bytes)).ok_or_else(|| "expected 12 to 300000 bytes".into())
}
fn tags(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|tags| (1..=9).contains(tags)).ok_or_else(|| "expected 1 to 9".into())
}

const DAYS: f64 = 30.0;
const MILLION: f64 = 1e6;
/// A consumer that has caught up looks about once a second.
const LOOKS_A_MONTH: f64 = 86_400.0 * DAYS;
/// Provisioned capacity is bought so that the busiest moment uses this much of it.
const UTILISED: f64 = 0.7;
/// A poller asks each shard about once a second; one shard takes about a thousand write units a second.
const POLLS_A_MONTH: f64 = 86_400.0 * DAYS;
const UNITS_OF_A_SHARD: f64 = 1_000.0;
/// The function that indexes: 128 MB for about 100 ms, at most once a second.
const LAMBDA_GIGABYTE_SECONDS: f64 = 0.0125;

/// Dollars a month.
#[derive(Debug, Serialize)]
struct Cost {
    layout: String,
    /// Of the tags asked for.
    tags: usize,
    write_units_per_event: f64,
    read_units_per_event: f64,
    table_writes: f64,
    index_writes: f64,
    reads: f64,
    feed: f64,
    /// Of consumers that find nothing new.
    idle: f64,
    streams: f64,
    lambda: f64,
    storage: f64,
    on_demand: f64,
    provisioned_writes: f64,
    provisioned_reads: f64,
    provisioned: f64,
}

fn cost(layout: &str, work: &Workload, of: &Sample, prices: &Prices) -> Cost {
    let commits = work.events_per_day as f64 / work.events_per_commit as f64 * DAYS;
    let loads = work.loads_per_day.map_or(commits, |loads| loads as f64 * DAYS);
    let write = |units: f64| units / MILLION * prices.on_demand.write_million;
    let read = |units: f64| units / MILLION * prices.on_demand.read_million;
    let writes = (of.commit.write + of.feed.write) * commits;
    // Where there is a commit in every second, no look is in vain.
    let idle_reads = of.idle.read * (LOOKS_A_MONTH - commits).max(0.0) * work.consumers as f64;
    let reads = (of.commit.read + of.feed.read) * commits + of.load.read * loads + idle_reads;
    let table_writes = write((of.commit.write - of.index_writes) * commits);
    let index_writes = write(of.index_writes * commits);
    let read_cost = read(of.commit.read * commits + of.load.read * loads);
    let feed = write(of.feed.write * commits) + read(of.feed.read * commits);
    // Fed by the function, the stream's reads are free; polled, they are not. The dearer of the two is not both.
    let shards = (of.commit.write * commits / (86_400.0 * DAYS) / UNITS_OF_A_SHARD).ceil().max(1.0);
    let streams = if of.streams { POLLS_A_MONTH * shards / MILLION * prices.streams.read_million } else { 0.0 };
    let rings = commits.min(86_400.0 * DAYS);
    let lambda = if of.streams {
        rings / MILLION * prices.lambda.request_million + rings * LAMBDA_GIGABYTE_SECONDS * prices.lambda.gigabyte_second
    } else {
        0.0
    };
    let stored = of.bytes * work.events_per_day as f64 * DAYS * work.months as f64 / 1e9;
    let storage = stored * prices.storage.gigabyte_month;
    let besides = streams.min(lambda) + storage;
    let bought = |units: f64| (units / (86_400.0 * DAYS) * work.peak / UTILISED).ceil().max(1.0) * 24.0 * DAYS;
    let provisioned_writes = bought(writes) * prices.provisioned.write_unit_hour;
    let provisioned_reads = bought(reads) * prices.provisioned.read_unit_hour;
    let idle = read(idle_reads);
    Cost {
        layout: layout.to_owned(),
        tags: of.tags,
        write_units_per_event: of.commit.write / work.events_per_commit as f64,
        read_units_per_event: reads / (work.events_per_day as f64 * DAYS),
        table_writes,
        index_writes,
        reads: read_cost,
        feed,
        idle,
        streams,
        lambda,
        storage,
        on_demand: table_writes + index_writes + read_cost + feed + idle + besides,
        provisioned_writes,
        provisioned_reads,
        provisioned: provisioned_writes + provisioned_reads + besides,
    }
}

const SEKIBAN_WRITE_MILLION: f64 = 1.4846;
const SEKIBAN_READ_MILLION: f64 = 0.2969;
const SEKIBAN_GIGABYTE_MONTH: f64 = 0.285;
/// The workload of the estimate, whatever else is asked for: a million events of 500 bytes a day with one tag, one a commit, a read of 20 events
/// for each, one consumer, a month's events stored.
const SEKIBAN_WORK: Workload = Workload {
    events_per_day: 1_000_000,
    size: 500,
    tags: 1,
    events_per_commit: 1,
    loads_per_day: None,
    load_events: 20,
    consumers: 1,
    months: 1,
    peak: 3.0,
};

/// One part of Sekiban's estimate, in dollars a month.
#[derive(Debug, Serialize)]
struct Part {
    part: &'static str,
    /// As its authors published it, with the prices of then.
    published: f64,
    /// What the published design takes at those prices: 3 units for each item, twice of a transaction and once of its index, an item for the
    /// event and one for its tag. None where the publication does not say from what it is.
    by_design: Option<f64>,
    /// Our layout, which has a head for each tag besides, as it is counted, at those prices,
    ours_then: f64,
    /// and at these.
    ours: f64,
}

async fn estimate(layout: &Layout, prices: &Prices) -> Result<Vec<Part>, crate::failure::Failure> {
    let of = sample(layout, &SEKIBAN_WORK).await?;
    let mut theirs = prices.clone();
    (theirs.on_demand.write_million, theirs.on_demand.read_million) = (SEKIBAN_WRITE_MILLION, SEKIBAN_READ_MILLION);
    theirs.storage.gigabyte_month = SEKIBAN_GIGABYTE_MONTH;
    let (then, now) = (cost(layout.name, &SEKIBAN_WORK, &of, &theirs), cost(layout.name, &SEKIBAN_WORK, &of, prices));
    let events = SEKIBAN_WORK.events_per_day as f64 * DAYS / MILLION;
    let design = |units: f64| Some(units * events * SEKIBAN_WRITE_MILLION);
    let part = |part, published, by_design, of: fn(&Cost) -> f64| Part { part, published, by_design, ours_then: of(&then), ours: of(&now) };
    Ok(vec![
        part("event and tag writes", 100.0, design(4.0), |cost| cost.table_writes),
        part("index writes", 100.0, design(2.0), |cost| cost.index_writes),
        part("reads", 30.0, None, |cost| cost.reads + cost.feed + cost.idle),
        part("storage", 3.0, None, |cost| cost.storage),
    ])
}

pub(crate) async fn run(args: Args, out: &mut Output) -> Outcome {
    let prices = prices(args.prices.as_deref())?;
    let mut costs = Vec::new();
    let mut sekiban = None;
    for layout in LAYOUTS {
        let of = sample(layout, &args.work).await?;
        costs.push(cost(layout.name, &args.work, &of, &prices));
        if args.sekiban_estimate && layout.name == "sekiban" {
            sekiban = Some(estimate(layout, &prices).await?);
        }
    }
    let answer = serde_json::json!({ "prices": prices.date, "region": prices.region, "layouts": costs, "sekiban_estimate": sekiban });
    Ok(out.result(&answer, |paint| {
        let columns =
            ["dollars a month", "tables", "indexes", "reads", "feed", "idle", "Streams", "Lambda", "storage", "on demand", "provisioned"];
        let mut shown = table(columns);
        let dollars = |amount: f64| if amount < 10.0 { format!("{amount:.2}") } else { format!("{amount:.0}") };
        shown.add_rows(costs.iter().map(|c| {
            let parts = [c.table_writes, c.index_writes, c.reads, c.feed, c.idle, c.streams, c.lambda, c.storage, c.on_demand, c.provisioned];
            [vec![c.layout.clone()], parts.map(dollars).to_vec()].concat()
        }));
        let mut text = format!(
            "{shown}\n{}",
            paint.dim(format!(
                "prices of {}, {}; the feed is indexed by Streams or by Lambda, the cheaper is in the sum; idle: consumers that look once a second and find nothing",
                prices.date, prices.region
            ))
        );
        let fewer: Vec<&str> = costs.iter().filter(|c| c.tags < args.work.tags).map(|c| c.layout.as_str()).collect();
        if !fewer.is_empty() {
            text += &format!("\n{}", paint.dim(format!("streams only, so with one tag: {}", fewer.join(", "))));
        }
        if let Some(parts) = &sekiban {
            let mut beside = table(["Sekiban, 1 M events a day", "published", "by its design", "ours, its prices of then", "ours, at these"]);
            beside.add_rows(parts.iter().map(|part| {
                let by_design = part.by_design.map_or("–".into(), dollars);
                [part.part.to_owned(), dollars(part.published), by_design, dollars(part.ours_then), dollars(part.ours)]
            }));
            text += &format!("\n{beside}");
        }
        text
    })?)
}
