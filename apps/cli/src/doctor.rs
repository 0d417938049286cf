//! `doctor`: looks at what a store needs to work, and says what to do where it does not.

use serde_json::json;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, printable};
use crate::pending::{self, Status};

/// Check credentials, region, clock, table settings, replicas and rights
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost doctor --store dynamodb://eu-west-1/orders")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    let checks = pending::doctor(&builder).await?;
    let failed = checks.iter().filter(|check| check.status == Status::Failed).count();
    let name = |status| match status {
        Status::Ok => "ok",
        Status::Warning => "warning",
        Status::Failed => "failed",
    };
    let lines: Vec<_> = checks
        .iter()
        .map(|check| json!({ "name": check.name, "status": name(check.status), "detail": check.detail, "hint": check.hint }))
        .collect();
    out.result(&json!({ "ok": failed == 0, "checks": lines }), |paint| {
        checks.iter().fold(String::new(), |mut text, check| {
            let mark = match check.status {
                Status::Ok => paint.good("✓"),
                Status::Warning => paint.warn("!"),
                Status::Failed => paint.bad("✗"),
            };
            text += &format!("{mark} {} {}\n", paint.bold(format!("{:<14}", printable(&check.name))), printable(&check.detail));
            check.hint.iter().for_each(|hint| text += &format!("  {} {}\n", paint.dim("→"), printable(hint)));
            text
        })
    })?;
    out.flush()?;
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Failure, "1 check failed")),
        n => Err(Failure::new(Code::Failure, format!("{n} checks failed"))),
    }
}
