//! `init`: creates or verifies the tables, or prints their definition for other tools.

use std::str::FromStr;

use clap::ValueEnum;
use fencepost::{Billing, EventType, Format, Scope, StreamChoice, TableOptions, Tables};
use serde_json::{Value, json};

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, printable, progress, table};

/// Create the tables, or verify them and say what differs
///
/// Safe to run again: what is there stays as it is. With --print nothing is called: the same definition comes out for another tool, with
/// point-in-time recovery and deletion protection.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost init --store dynamodb://eu-west-1/orders --tag team=orders
  fencepost init --no-create
  fencepost init --print terraform > orders.tf
  fencepost init --print iam")]
pub(crate) struct Args {
    /// Only verify: exit code 8, where a table is missing or differs
    #[arg(long)]
    no_create: bool,
    /// How capacity is paid for
    #[arg(long, value_name = "on-demand|provisioned:R:W", default_value = "on-demand")]
    billing: Paid,
    /// Encrypt with this key instead of the one that AWS owns
    #[arg(long, value_name = "ARN")]
    kms_key: Option<String>,
    /// A tag of the table for AWS, such as team=orders; may be given more than once
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    tag: Vec<(String, String)>,
    /// The table's DynamoDB stream; what the layout needs, if not given
    #[arg(long, value_name = "SETTING")]
    stream: Option<Stream>,
    /// Give this event type a series of its own, so that conditions and reads by type need no tag; may be given more than once
    #[arg(long, value_name = "TYPE", value_parser = |text: &str| EventType::new(text))]
    index_type: Vec<EventType>,
    /// Print the definition, or the least-privilege policies, and call nothing
    #[arg(long, value_name = "FORM", conflicts_with = "no_create")]
    print: Option<Print>,
}

#[derive(Debug, Clone)]
struct Paid(Billing);

impl FromStr for Paid {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected on-demand, or provisioned:R:W with read and write units of at least 1";
        if text == "on-demand" {
            return Ok(Self(Billing::OnDemand));
        }
        let (read, write) = text.strip_prefix("provisioned:").and_then(|units| units.split_once(':')).ok_or(EXPECTED)?;
        let units = |text: &str| text.parse().ok().filter(|units: &u32| *units > 0).ok_or(EXPECTED);
        Ok(Self(Billing::Provisioned { read: units(read)?, write: units(write)? }))
    }
}

fn key_value(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("expected K=V")?;
    Ok((key.into(), value.into()))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stream {
    Off,
    New,
    NewAndOld,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Print {
    Terraform,
    #[value(name = "cloudformation")]
    CloudFormation,
    AwsCli,
    Iam,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let mut builder = place.builder()?;
    if !args.index_type.is_empty() {
        builder = builder.index_types(args.index_type);
    }
    let tables = builder.tables();
    let stream = args.stream.map(|stream| match stream {
        Stream::Off => StreamChoice::Off,
        Stream::New => StreamChoice::New,
        Stream::NewAndOld => StreamChoice::NewAndOld,
    });
    let options = TableOptions { billing: args.billing.0, kms_key: args.kms_key, tags: args.tag, stream };
    match args.print {
        Some(print) => Ok(out.text(printed(print, &tables, &options, place)?.trim_end())?),
        None if args.no_create => verify(&tables, out).await,
        None => create(&tables, &options, out).await,
    }
}

fn printed(print: Print, tables: &Tables, options: &TableOptions, place: &Place) -> Outcome<String> {
    Ok(match print {
        Print::Terraform => tables.print(Format::Terraform, options)?,
        Print::CloudFormation => tables.print(Format::CloudFormation, options)?,
        Print::AwsCli => tables.print(Format::AwsCli, options)?,
        Print::Iam => {
            let region = place.url().and_then(|url| url.strip_prefix("dynamodb://")).and_then(|rest| rest.split('/').next());
            let scope = Scope { region: region.map(Into::into), account: None };
            let policies = tables.iam(options, &scope).into_iter().map(|(role, policy)| {
                Ok((serde_json::to_value(role)?.as_str().unwrap_or_default().to_string(), serde_json::from_str::<Value>(&policy)?))
            });
            serde_json::to_string_pretty(&policies.collect::<Result<serde_json::Map<_, _>, serde_json::Error>>()?)?
        }
    })
}

async fn create(tables: &Tables, options: &TableOptions, out: &mut Output) -> Outcome {
    let bar = progress(None, "creating");
    let parts = tables.create(options).await?;
    bar.finish_and_clear();
    let lines: Vec<_> = parts.iter().map(|(name, now)| json!({ "name": name, "created": now })).collect();
    Ok(out.result(&json!({ "ok": true, "parts": lines }), |paint| {
        let line = |now: bool| if now { paint.good("created      ") } else { paint.dim("already there") };
        parts.iter().map(|(name, now)| format!("{} {name}\n", line(*now))).collect()
    })?)
}

async fn verify(tables: &Tables, out: &mut Output) -> Outcome {
    let differences = tables.verify().await?;
    out.result(&json!({ "ok": differences.is_empty(), "differences": differences }), |paint| {
        if differences.is_empty() {
            return paint.good("all is as it must be");
        }
        let mut rows = table(["table", "what", "needed", "found"]);
        rows.add_rows(differences.iter().map(|d| [&d.table, &d.what, &d.needed, &d.found].map(|text| printable(text))));
        rows.to_string()
    })?;
    out.flush()?;
    match differences.as_slice() {
        [] => Ok(()),
        [d] => Err(differs(format!("table {}: {} is {}, and must be {}", d.table, d.what, d.found, d.needed))),
        many => Err(differs(format!("the tables differ from what the layout needs in {} ways", many.len()))),
    }
}

fn differs(message: String) -> Failure {
    Failure::new(Code::DifferingTable, message).hint("`fencepost init --print` shows the definition: change the table, or name another one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn billing_is_read_or_refused() {
        assert!(matches!("on-demand".parse::<Paid>(), Ok(Paid(Billing::OnDemand))));
        assert!(matches!("provisioned:5:7".parse::<Paid>(), Ok(Paid(Billing::Provisioned { read: 5, write: 7 }))));
        for text in ["", "provisioned", "provisioned:5", "provisioned:0:1", "provisioned:a:b", "provisioned:1:2:3"] {
            assert!(text.parse::<Paid>().is_err(), "{text}");
        }
    }
}
