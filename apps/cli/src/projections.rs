//! `projections`: the states of projections: listed, shown, reset, deleted; and the objects that no state names any more.

use std::time::Duration;

use clap::Subcommand;
use fencepost::{ProjectionStatus, Projections};
use serde_json::json;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::gc::duration;
use crate::output::{Output, printable, table};

/// Look after projections: list, show, reset, delete, gc
///
/// A projection has versions; the live one is read. A reset version is built anew from the first event by whoever runs it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost projections ls
  fencepost projections reset enrolments 2
  fencepost projections gc --objects s3://bucket/states --older-than 24h")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all versions of all projections
    Ls,
    /// Show all versions of one
    Show {
        /// Its name
        #[arg(value_name = "PROJECTION")]
        name: String,
    },
    /// Forget a version's state: it is built anew
    Reset {
        /// Its name
        #[arg(value_name = "PROJECTION")]
        name: String,
        /// The version
        #[arg(value_name = "VERSION")]
        version: u32,
    },
    /// Delete a version's state
    Delete {
        /// Its name
        #[arg(value_name = "PROJECTION")]
        name: String,
        /// The version
        #[arg(value_name = "VERSION")]
        version: u32,
    },
    /// Delete objects that no state names any more
    Gc {
        /// Where large states lie: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER; with layout=sekiban, if
        /// not given, the bucket of its settings
        #[arg(long, value_name = "URL", env = "FENCEPOST_OBJECTS", hide_env_values = true)]
        objects: Option<String>,
        /// Only what is older than this: longer than a projection takes to save its state
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
        older_than: Duration,
    },
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    let projections = store.projections()?;
    match args.what {
        What::Ls => {
            let all = projections.list().await?;
            Ok(out.result(&all, |_| list(&all))?)
        }
        What::Show { name } => {
            let versions = known(&projections, &name, None).await?;
            Ok(out.result(&versions, |_| list(&versions))?)
        }
        What::Reset { name, version } => {
            known(&projections, &name, Some(version)).await?;
            projections.reset(&name, version).await?;
            Ok(out.result(&json!({ "projection": name, "version": version, "reset": true }), |_| {
                format!("{name} version {version} is built anew by whoever runs it")
            })?)
        }
        What::Delete { name, version } => {
            known(&projections, &name, Some(version)).await?;
            projections.delete(&name, version).await?;
            Ok(out.result(&json!({ "projection": name, "version": version, "deleted": true }), |_| {
                format!("{name} version {version} is deleted")
            })?)
        }
        What::Gc { objects: None, older_than } => {
            let missing = |_| Failure::new(Code::Usage, "--objects says where large states lie; only layout=sekiban has settings that do");
            let collected = store.sekiban().map_err(missing)?.collect_blobs(older_than).await?;
            Ok(out.result(&collected, |paint| {
                let removed = paint.bold(format!("{} blobs of {} bytes deleted", collected.deleted, collected.bytes));
                format!("{removed}, {} seen, {} too young", collected.seen, collected.young)
            })?)
        }
        What::Gc { objects: Some(objects), older_than } => {
            let objects = store.objects(&objects, [])?;
            let collected = projections.offload(objects).gc(older_than).await?;
            Ok(out.result(&collected, |paint| {
                let removed = paint.bold(format!("{} objects of {} bytes deleted", collected.deleted, collected.bytes));
                format!("{removed}, {} seen, {} too young", collected.seen, collected.young)
            })?)
        }
    }
}

/// The versions of a projection; not found where there is none, or not the one that is meant.
async fn known(projections: &Projections, name: &str, version: Option<u32>) -> Outcome<Vec<ProjectionStatus>> {
    let versions = projections.versions(name).await?;
    let there = versions.iter().any(|status| version.is_none_or(|version| status.version == version));
    if there {
        return Ok(versions);
    }
    let which = version.map_or(String::new(), |version| format!(" version {version}"));
    Err(Failure::new(Code::NotFound, format!("no projection {name}{which}")).hint("`fencepost projections ls` lists them"))
}

fn list(all: &[ProjectionStatus]) -> String {
    let mut rows = table(["projection", "version", "live", "caught up", "position", "saved", "bytes", "object", "holder"]);
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let yes = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    for one in all {
        rows.add_row([
            printable(&one.name),
            one.version.to_string(),
            yes(one.live),
            yes(one.caught_up),
            text(one.position.map(|position| position.to_string())),
            text(one.saved_at.map(|at| at.to_string())),
            one.bytes.to_string(),
            text(one.object.as_deref().map(printable)),
            text(one.holder.map(|holder| holder.to_string())),
        ]);
    }
    rows.to_string()
}
