//! `doctor`: looks at what a store needs to work, and says what to do where it does not.

use fencepost::{Builder, Check, Status};
use serde_json::json;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Output, Paint, printable};

/// Check credentials, region, clock, table settings, replicas and rights
///
/// Changes nothing. What fails comes with what to do about it, and with the exit code that any other command would end with.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost doctor --store dynamodb://eu-west-1/orders
  fencepost doctor -o json | jq '.checks[] | select(.status != \"ok\")'")]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    let checks = builder.doctor().await;
    let failed = checks.iter().filter(|check| check.status == Status::Failed).count();
    let result = json!({ "ok": failed == 0, "checks": checks });
    out.result(&result, |paint| checks.iter().map(|check| line(check, paint)).collect())?;
    out.flush()?;
    match failed {
        0 => Ok(()),
        1 => Err(why(builder, "1 check failed".into()).await),
        n => Err(why(builder, format!("{n} checks failed")).await),
    }
}

fn line(check: &Check, paint: Paint) -> String {
    let mark = match check.status {
        Status::Ok => paint.good("✓"),
        Status::Warning => paint.warn("!"),
        Status::Failed => paint.bad("✗"),
    };
    let mut text = format!("{mark} {} {}\n", paint.bold(format!("{:<20}", printable(&check.name))), printable(&check.detail));
    check.hint.iter().for_each(|hint| text += &format!("  {} {}\n", paint.dim("→"), printable(hint)));
    text
}

/// A check tells no kind of failure; opening the store does.
async fn why(builder: Builder, message: String) -> Failure {
    let code = match builder.create(false).open().await {
        Err(error) => Failure::from(error).code(),
        Ok(_) => Code::DifferingTable,
    };
    Failure::new(code, message).hint("each failed check says what to do")
}
