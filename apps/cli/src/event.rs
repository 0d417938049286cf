//! `event`: one event, by its id.

use uuid::Uuid;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::json::EventLine;
use crate::output::Output;

/// Show one event, by its id (layout sekiban)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost event 0198894f-9a63-7c21-8f0e-3b5d2a91c7e4")]
pub(crate) struct Args {
    /// Its id
    #[arg(value_name = "ID")]
    id: Uuid,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let found = place.open().await?.sekiban()?.event(&args.id).await?;
    let event = found.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no event {}", args.id)))?;
    Ok(out.event(&EventLine::of(&event))?)
}
