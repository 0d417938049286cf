//! `consumers`: where consumers are, and what operators do to them.

use clap::Subcommand;
use fencepost::{Consumer, ConsumerStatus, Lag, Store, Unread};
use serde::Serialize;
use serde_json::json;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, printable, table};
use crate::tail::Start;

/// Look after consumers: list, show, pause, resume, rewind
///
/// Of consumers that run in applications. What `tail --consumer` keeps is a bare checkpoint, and is not listed here.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost consumers ls
  fencepost consumers show mailer -o json | jq .lag
  fencepost consumers rewind mailer --to start")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all consumers that have run here
    Ls,
    /// Show one: its partitions, who works on them, how far it is behind
    ///
    /// The lag is counted by reading the feed from its place on.
    Show {
        /// Its name
        #[arg(value_name = "CONSUMER")]
        name: String,
        /// Count the lag up to so many events; 0 counts none
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        count_to: u64,
    },
    /// Pause one, on whatever machine it runs: what runs is finished, and nothing more begins
    Pause {
        /// Its name
        #[arg(value_name = "CONSUMER")]
        name: String,
    },
    /// Let one go on
    Resume {
        /// Its name
        #[arg(value_name = "CONSUMER")]
        name: String,
    },
    /// Move one to another place, running or not
    Rewind {
        /// Its name
        #[arg(value_name = "CONSUMER")]
        name: String,
        /// Where to: `start`, `now`, or behind a checkpoint
        #[arg(long, value_name = "start|now|CHECKPOINT")]
        to: Start,
    },
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: ConsumerStatus,
    lag: Option<Lag>,
    /// Where the feed is an index: since when the log has what that lacks, which the lag does not count.
    unindexed_since: Option<jiff::Timestamp>,
}

async fn unindexed(store: &Store) -> Option<jiff::Timestamp> {
    match store.index().ok()?.status().await.ok()?.unread {
        Unread::Since(at) => Some(at),
        _ => None,
    }
}

/// The consumer of this name, and how it stands.
pub(crate) async fn known(store: &Store, name: &str) -> Outcome<(Consumer, ConsumerStatus)> {
    let consumer = store.consumer(name)?;
    match consumer.status().await? {
        Some(status) => Ok((consumer, status)),
        None => {
            let failure = Failure::new(Code::NotFound, format!("no consumer {name} has run here"));
            Err(failure.hint("`fencepost consumers ls` lists those that have"))
        }
    }
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    match args.what {
        What::Ls => {
            let mut all = Vec::new();
            for name in Consumer::names(&*store.cells()).await? {
                all.extend(store.consumer(&name)?.status().await?);
            }
            Ok(out.result(&all, |_| list(&all))?)
        }
        What::Show { name, count_to } => {
            let (consumer, status) = known(&store, &name).await?;
            let lag = if count_to == 0 { None } else { Some(consumer.lag(count_to).await?) };
            let unindexed_since = if count_to == 0 { None } else { unindexed(&store).await };
            let shown = Shown { status, lag, unindexed_since };
            Ok(out.result(&shown, |paint| {
                let told = shown.lag.map(|lag| {
                    let events = match (lag.more, lag.at_most) {
                        (true, _) => format!("more than {}", lag.events),
                        (false, true) => format!("at most {}", lag.events),
                        (false, false) => lag.events.to_string(),
                    };
                    format!("{events} events behind, the oldest for {:.1} s", lag.seconds)
                });
                let parked = format!("{} parked", shown.status.parked);
                let unindexed = shown.unindexed_since.map(|at| paint.bad(format!("the feed's index lacks what was written since {at}")));
                let line = [Some(parked), told, unindexed].into_iter().flatten().collect::<Vec<_>>().join("; ");
                format!("{} {line}\n{}", paint.bold(printable(&shown.status.name)), partitions(&shown.status))
            })?)
        }
        What::Pause { name } => {
            known(&store, &name).await?.0.pause().await?;
            Ok(out.result(&json!({ "consumer": name, "paused": true }), |_| format!("{name} is paused"))?)
        }
        What::Resume { name } => {
            known(&store, &name).await?.0.resume().await?;
            Ok(out.result(&json!({ "consumer": name, "paused": false }), |_| format!("{name} goes on"))?)
        }
        What::Rewind { name, to: Start(to) } => {
            let (consumer, _) = known(&store, &name).await?;
            consumer.rewind(to).await?;
            let (_, status) = known(&store, &name).await?;
            Ok(out.result(&status, |_| partitions(&status))?)
        }
    }
}

fn list(all: &[ConsumerStatus]) -> String {
    let mut rows = table(["consumer", "partitions", "held", "paused", "parked"]);
    for status in all {
        let count = |holds: fn(&fencepost::PartitionStatus) -> bool| status.partitions.iter().filter(|p| holds(p)).count().to_string();
        let (held, paused) = (count(|p| p.holder.is_some()), count(|p| p.paused));
        rows.add_row([printable(&status.name), status.partitions.len().to_string(), held, paused, status.parked.to_string()]);
    }
    rows.to_string()
}

fn partitions(status: &ConsumerStatus) -> String {
    let mut rows = table(["partition", "holder", "paused", "position", "recorded", "checkpoint"]);
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    for one in &status.partitions {
        rows.add_row([
            one.partition.to_string(),
            text(one.holder.map(|holder| holder.to_string())),
            if one.paused { "yes" } else { "no" }.into(),
            text(one.position.map(|position| position.to_string())),
            text(one.recorded_at.map(|at| at.to_string())),
            text(one.checkpoint.as_ref().map(|checkpoint| checkpoint.to_string())),
        ]);
    }
    rows.to_string()
}
