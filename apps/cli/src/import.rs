//! `import`: events from lines of JSON, each recorded once.

use std::path::{Path, PathBuf};

use fencepost::moving;
use fencepost::{Error, Reason};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::args::Place;
use crate::copy::again;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, progress};

/// Record events from lines of JSON, each once
///
/// Takes what `export` writes. Ids, tags, bodies, metadata, commits and the order on every tag stay; when an event was recorded stays in
/// its metadata as `occurred`. An event whose id is there on one of its tags is left out, whoever recorded it and in whatever commit: import
/// again, also after it was interrupted, parts, or files that overlap. So each line must have an id; another event under an id that is there
/// is refused. A wrong line ends it with exit code 2; what stands before it is recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost import events.ndjson
  zcat events.ndjson.gz | fencepost import
  fencepost export --store file:a.db | fencepost import --store file:b.db")]
pub(crate) struct Args {
    /// The file; stdin, if not given
    file: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    let lines = match &args.file {
        Some(path) => lines(open(path).await?),
        None => lines(tokio::io::stdin()),
    };
    let store = builder.open().await?;
    let bar = progress(None, "events");
    let imported = moving::import(&store, lines, &|events| bar.set_position(events)).await.map_err(again)?;
    bar.finish_and_clear();
    Ok(out.result(&imported, |paint| {
        let recorded = paint.bold(format!("{} events in {} commits recorded", imported.events, imported.commits));
        format!("{recorded}, {} were there already", imported.repeated)
    })?)
}

async fn open(path: &Path) -> Outcome<tokio::fs::File> {
    tokio::fs::File::open(path)
        .await
        .map_err(|error| Failure::new(Failure::from(std::io::Error::from(error.kind())).code(), format!("{}: {error}", path.display())))
}

fn lines(input: impl AsyncRead + Send + Unpin + 'static) -> BoxStream<'static, fencepost::Result<Vec<u8>>> {
    let lines = BufReader::with_capacity(256 * 1024, input).split(b'\n');
    stream::try_unfold(lines, |mut lines| async move {
        let line = lines.next_segment().await.map_err(|error| Error::unavailable(Reason::Unreachable, format!("the input: {error}")))?;
        Ok(line.map(|line| (line, lines)))
    })
    .boxed()
}
