//! `parked`: events that a consumer could not handle: listed, tried again, skipped.

use clap::Subcommand;
use fencepost::Parked;
use serde::Serialize;
use serde_json::json;

use crate::args::Place;
use crate::consumers::known;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, printable, table};

/// Look after parked events: list, retry, skip
///
/// An event that a consumer failed on is set aside, and later ones of its stream behind it. Retried or skipped, those behind it follow.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost parked ls mailer
  fencepost parked retry mailer 3
  fencepost parked retry mailer --all
  fencepost parked skip mailer 3")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List a consumer's parked events, with the reasons
    Ls {
        /// Its name
        #[arg(value_name = "CONSUMER")]
        consumer: String,
    },
    /// Have events tried again by the instance that runs
    Retry {
        /// The consumer's name
        #[arg(value_name = "CONSUMER")]
        consumer: String,
        /// Their numbers
        #[arg(value_name = "NUMBER", required_unless_present = "all")]
        numbers: Vec<u64>,
        /// All that have failed
        #[arg(long, conflicts_with = "numbers")]
        all: bool,
    },
    /// Give events up for good: they are never handled
    Skip {
        /// The consumer's name
        #[arg(value_name = "CONSUMER")]
        consumer: String,
        /// Their numbers
        #[arg(value_name = "NUMBER", required = true)]
        numbers: Vec<u64>,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    number: u64,
    #[serde(flatten)]
    parked: &'a Parked,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    match args.what {
        What::Ls { consumer } => {
            let parked = known(&store, &consumer).await?.0.parked().await?;
            let lines: Vec<Line<'_>> = parked.iter().map(|parked| Line { number: parked.number, parked }).collect();
            Ok(out.result(&lines, |_| list(&parked))?)
        }
        What::Retry { consumer, mut numbers, all } => {
            let (consumer, status) = known(&store, &consumer).await?;
            let parked = consumer.parked().await?;
            if all {
                numbers = parked.iter().filter(|parked| parked.attempts > 0).map(|parked| parked.number).collect();
            }
            check(&parked, &numbers)?;
            for number in &numbers {
                consumer.retry_parked(*number).await?;
            }
            Ok(out.result(&json!({ "consumer": status.name, "released": numbers }), |_| format!("{} to be tried again", numbers.len()))?)
        }
        What::Skip { consumer, numbers } => {
            let (consumer, status) = known(&store, &consumer).await?;
            check(&consumer.parked().await?, &numbers)?;
            for number in &numbers {
                consumer.skip_parked(*number).await?;
            }
            Ok(out.result(&json!({ "consumer": status.name, "skipped": numbers }), |_| format!("{} skipped", numbers.len()))?)
        }
    }
}

/// All are there, or nothing is done.
fn check(parked: &[Parked], numbers: &[u64]) -> Outcome {
    match numbers.iter().find(|number| !parked.iter().any(|parked| parked.number == **number)) {
        Some(number) => {
            Err(Failure::new(Code::NotFound, format!("no parked event {number}")).hint("`fencepost parked ls CONSUMER` lists them"))
        }
        None => Ok(()),
    }
}

fn list(parked: &[Parked]) -> String {
    let mut rows = table(["number", "position", "type", "keys", "tries", "released", "reason"]);
    for one in parked {
        rows.add_row([
            one.number.to_string(),
            one.position.to_string(),
            printable(one.event_type.as_str()),
            printable(&one.keys.join(" ")),
            one.attempts.to_string(),
            if one.released { "yes" } else { "no" }.into(),
            printable(&one.reason),
        ]);
    }
    rows.to_string()
}
