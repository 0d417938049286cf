//! `tags`: the tags of a store that lists them.

use clap::Subcommand;
use fencepost::sekiban::TagInfo;
use futures::TryStreamExt;

use crate::args::Place;
use crate::failure::Outcome;
use crate::output::{Output, printable, table};

/// List tags, with how many events each has (layout sekiban)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost tags ls --group Student
  fencepost tags ls -o ndjson | jq .tag")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them, by group and name. Without --group the whole table of tags is read
    Ls {
        /// Only those of this group: what stands before the first colon
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let sekiban = place.open().await?.sekiban()?;
    let What::Ls { group } = args.what;
    let tags: Vec<TagInfo> = match group {
        Some(group) => sekiban.tags_of_group(&group).try_collect().await?,
        None => sekiban.scan_tags().await?,
    };
    Ok(out.result(&serde_json::json!({ "tags": tags }), |_| {
        let mut rows = table(["tag", "events", "first", "last"]);
        rows.add_rows(
            tags.iter().map(|info| [printable(&info.tag), info.events.to_string(), info.first_at.to_string(), info.last_at.to_string()]),
        );
        rows.to_string()
    })?)
}
