//! `copy`: all events of one store into another, compared at the end.

use fencepost::moving::{Compared, Copied, Copy, Misfits, Plan};
use fencepost::{CommitId, Error, Store};
use serde::Serialize;

use crate::failure::{Code, Failure, Outcome};
use crate::indexed;
use crate::output::{Format, Output, Paint, printable, progress};

/// Copy all events of one store into another, and compare the two
///
/// Says first what the copy cannot carry. Begun again after a failure, or when more events have come, it goes on where it was; nothing is
/// recorded twice, whatever happened. Ids, types, bodies, tags, metadata and commits stay as they are; when an event was recorded at the
/// source stays in its metadata as `occurred`. At the end both sides are read and compared event by event: exit code 1 where they differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Only say what would be lost
  fencepost copy --from file:orders.db --to dynamodb://eu-west-1/orders --dry-run

  # From one lane to eight, in a namespace of its own
  fencepost init --store 'dynamodb://eu-west-1/orders?namespace=wide&feed=lanes-8'
  fencepost copy --from dynamodb://eu-west-1/orders --to 'dynamodb://eu-west-1/orders?namespace=wide'")]
pub(crate) struct Args {
    /// The store to read
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store to write; its tables must be there
    #[arg(long, value_name = "URL")]
    to: String,
    /// Say what would be lost, and stop there
    #[arg(long)]
    dry_run: bool,
    /// Also into a store that holds other events
    #[arg(long)]
    into_existing: bool,
    /// Copy again under the name that an earlier run had, where --from names the same store in another way
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Do not compare at the end
    #[arg(long, conflicts_with = "dry_run")]
    no_compare: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    copied: Copied,
    name: String,
    compared: Option<Compared>,
}

#[derive(Serialize)]
struct Dry<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    misfits: &'a Misfits,
}

pub(crate) async fn run(args: Args, out: &mut Output) -> Outcome {
    let Args { from, to, .. } = &args;
    if from == to {
        return Err(Failure::new(Code::Usage, "--from and --to name the same store"));
    }
    let name = args.name.clone().unwrap_or_else(|| CommitId::of_key(from).0.simple().to_string());
    let (source, destination) = (Store::builder(from)?.open().await?, Store::builder(to)?.open().await?);
    indexed::catch_up(&source, from).await?;
    let copy = Copy::new(&source, &destination, &name);
    let copy = if args.into_existing { copy.into_existing() } else { copy };
    let plan = copy.plan().await?;
    let looking = progress(None, "looked at");
    let misfits = copy.misfits(&|events| looking.set_position(events)).await?;
    looking.finish_and_clear();
    if args.dry_run {
        let dry = Dry { plan: &plan, misfits: &misfits };
        return Ok(out.result(&dry, |paint| told(&plan, paint) + &unfit(&misfits, paint))?);
    }
    if misfits.events > 0 {
        let message = format!("{} of {} events have no place in the destination", misfits.events, misfits.looked_at);
        return Err(Failure::new(Code::Usage, message).hint(misfits.why.join("; ")));
    }
    match out.format {
        Format::Table => eprintln!("{}", told(&plan, Paint::stderr()).trim_end()),
        Format::Json | Format::Ndjson => eprintln!("{}", serde_json::json!({ "plan": plan })),
    }
    // What the source holds is known without reading it only where it counts.
    let total = source.stats().await.ok().and_then(|stats| stats.events);
    let bar = progress(total, "copied");
    let copied = copy.run(&|events| bar.set_position(events)).await.map_err(again)?;
    bar.finish_and_clear();
    let compared = if args.no_compare {
        None
    } else {
        let bar = progress(Some(copied.total), "compared");
        let compared = copy.compare(&|events| bar.set_position(events)).await?;
        bar.finish_and_clear();
        Some(compared)
    };
    let done = Done { copied, name, compared };
    out.result(&done, |paint| summary(&done, paint))?;
    out.flush()?;
    match &done.compared {
        Some(compared) if !compared.is_equal() => Err(differing(compared)),
        _ => Ok(()),
    }
}

fn told(plan: &Plan, paint: Paint) -> String {
    let mut text = match plan.resumes_after {
        Some(events) => format!("goes on behind {events} events; not carried:\n"),
        None => "not carried:\n".into(),
    };
    for loss in &plan.losses {
        text += &format!("  {} {}\n", paint.bold(loss.what), loss.why);
    }
    text
}

fn unfit(misfits: &Misfits, paint: Paint) -> String {
    if misfits.events == 0 {
        return String::new();
    }
    let mut text = paint.bad(format!("{} of {} events have no place in the destination:\n", misfits.events, misfits.looked_at));
    for why in &misfits.why {
        text += &format!("  {}\n", printable(why));
    }
    text
}

fn summary(done: &Done, paint: Paint) -> String {
    let Copied { events, commits, split, total, .. } = done.copied;
    let mut text = format!("{}, {total} in all", paint.bold(format!("{events} events in {commits} commits copied")));
    if split > 0 {
        text += &format!("; {split} commits were split");
    }
    match &done.compared {
        None => {}
        Some(compared) if compared.is_equal() => {
            let how = if compared.by_commits { "are there, by their commits" } else { "are equal" };
            text += &format!("\n{}", paint.good(format!("{} events {how}", compared.equal)));
            if compared.others > 0 {
                text += &format!(", beside {} others", compared.others);
            }
            if compared.by_tags {
                text += "; what else the destination has was looked for on their tags only";
            }
        }
        Some(compared) => {
            text += &format!("\n{} events are equal, {} differ:\n", compared.equal, paint.bad(compared.differing));
            for difference in &compared.differences {
                text += &format!("  {} {}\n", difference.id, printable(&difference.fields.join(", ")));
            }
        }
    }
    text
}

fn differing(compared: &Compared) -> Failure {
    let message = match compared.differing {
        0 => "not all could be compared: too many events of one side have no partner on the other".into(),
        1 => "1 event differs between the two stores".into(),
        n => format!("{n} events differ between the two stores"),
    };
    Failure::new(Code::Failure, message).hint("nothing is mended by copying again: see which events differ, and where they come from")
}

/// What stays in doubt is settled by the next run: nobody has to remember a commit id.
pub(crate) fn again(error: Error) -> Failure {
    match error {
        Error::InDoubt(doubt) => Failure::new(Code::Unavailable, format!("the last commits may not be recorded ({})", doubt.message))
            .hint("run the same command again: it goes on where it was, and nothing is recorded twice"),
        error => error.into(),
    }
}
