//! `verify`: reads the whole log and lists what cannot be right.

use fencepost::VerifyProgress;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Looking, Output, printable, table};

/// Check the whole log: dense versions, every slot of each commit, chunks present
///
/// Exit code 5 and the list, where something is wrong, or is left so by a repair. Run it after a restore: a backup may hold half of a transaction. It reads every item.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost verify
  fencepost verify --repair
  fencepost verify -o json | jq .findings")]
pub(crate) struct Args {
    /// Mend what can be derived: in Sekiban's tables, missing rows of tags from their events. Nothing is deleted
    #[arg(long)]
    repair: bool,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    let bar = Looking::new("items read");
    let heard = |so_far: &VerifyProgress| bar.tell(so_far.items, so_far.about);
    let verified = if args.repair { store.repair(&heard).await? } else { store.verify(&heard).await? };
    let found = verified.findings.len();
    // What was mended is in the list as well: what is left of it is told by looking again.
    let left = if args.repair && found > 0 { store.verify(&heard).await?.findings.len() } else { found };
    bar.done();
    out.result(&verified, |paint| {
        let mut text = format!("{} items, {} commits, {} events; {}\n", verified.items, verified.commits, verified.events, verified.units);
        if found == 0 {
            return text + &paint.good("all is well");
        }
        let mut findings = table(["item", "problem"]);
        findings.add_rows(verified.findings.iter().map(|finding| [printable(&finding.item), printable(&finding.problem)]));
        text += &findings.to_string();
        if args.repair {
            text += &match left {
                0 => format!("\n{}", paint.good("all of it was mended")),
                left => format!("\n{left} of it could not be mended"),
            };
        }
        text
    })?;
    out.flush()?;
    let hint = match args.repair {
        false => "nothing was changed: after a restore, take the list to whoever restored the table",
        true => "what could be derived was mended, and nothing was deleted: take the rest to whoever restored the table",
    };
    let broken = |message: String| Err(Failure::new(Code::Corrupt, message).hint(hint));
    match left {
        0 => Ok(()),
        1 => broken("1 thing is wrong".into()),
        n => broken(format!("{n} things are wrong")),
    }
}
