//! `init`: creates or verifies the tables, or prints their definition for other tools.

use std::str::FromStr;

use clap::ValueEnum;
use fencepost::EventType;
use serde_json::json;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, printable};
use crate::pending::{self, Billing, Definition, StreamSetting, TableOptions};

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
        let units = |text: &str| text.parse().ok().filter(|units: &i64| *units > 0).ok_or(EXPECTED);
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
    let builder = place.builder()?;
    let tables = pending::tables(&builder);
    let options = TableOptions {
        billing: args.billing.0,
        kms_key: args.kms_key,
        tags: args.tag,
        stream: args.stream.map(|stream| match stream {
            Stream::Off => StreamSetting::Off,
            Stream::New => StreamSetting::New,
            Stream::NewAndOld => StreamSetting::NewAndOld,
        }),
    };
    if let Some(print) = args.print {
        let text = match print {
            Print::Terraform => tables.print(Definition::Terraform, &options),
            Print::CloudFormation => tables.print(Definition::CloudFormation, &options),
            Print::AwsCli => tables.print(Definition::AwsCli, &options),
            Print::Iam => tables.iam(),
        };
        return Ok(out.text(text.trim_end())?);
    }
    let created = if args.no_create { Vec::new() } else { tables.create(&options).await? };
    let differences = tables.verify().await?;
    if differences.is_empty() {
        // The namespace, too, is created here or verified: with its settings and the types that are indexed.
        builder.create(!args.no_create).index_types(args.index_type).open().await?;
    }
    let lines: Vec<_> = created.iter().map(|(name, now)| json!({ "name": name, "created": now })).collect();
    out.result(&json!({ "ok": differences.is_empty(), "tables": lines, "differences": differences }), |paint| {
        let mut text = String::new();
        for (name, now) in &created {
            text += &format!("{} {name}\n", if *now { paint.good("created      ") } else { paint.dim("already there") });
        }
        differences.iter().for_each(|difference| text += &format!("{} {}\n", paint.bad("differs"), printable(difference)));
        if differences.is_empty() {
            text += &paint.good("all is as it must be");
        }
        text
    })?;
    out.flush()?;
    match differences.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(Code::DifferingTable, format!("a table is not as it must be: {one}"))),
        many => Err(Failure::new(Code::DifferingTable, format!("the tables are not as they must be, in {} ways", many.len()))),
    }
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
