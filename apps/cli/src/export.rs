//! `export`: all events as lines of JSON, into a file that tells by itself where it goes on.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fencepost::moving::{self, Place as At, Resume};
use fencepost::{Query, Store};
use futures::{FutureExt, TryStreamExt};
use serde::Serialize;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::indexed;
use crate::output::{Output, printable, progress, talk};
use crate::select::Select;

/// Write events as lines of JSON, to a file or to stdout
///
/// The lines are those of `read` and `tail`, with bodies kept byte by byte: what is not JSON on one line stands in "data_base64". Each line
/// has its checkpoint, and "part" where its commit has several events. Events are in the order of the feed, up to where it has no more now.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost export events.ndjson
  # Later, or after it was interrupted: what has come since
  fencepost export events.ndjson --resume

  fencepost export --tag course:c1 | gzip > course.ndjson.gz
  fencepost export --store file:a.db | fencepost import --store file:b.db")]
pub(crate) struct Args {
    /// The file; stdout, if not given
    file: Option<PathBuf>,
    /// Go on behind the last whole commit in the file, with the query that it began with, and cut off what stands behind it
    #[arg(long, requires = "file")]
    resume: bool,
    #[command(flatten)]
    select: Select,
}

/// What is printed, where the events went to a file.
#[derive(Serialize)]
struct Exported {
    events: u64,
    bytes: u64,
    /// Where it began.
    resumed_at: u64,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let given = args.select.is_given();
    let mut query = args.select.query()?;
    let Some(path) = args.file else {
        let store = open_store(place).await?;
        let events = to(&mut std::io::stdout().lock(), &store, query, None).await?.0;
        talk(format!("{events} events"));
        return Ok(());
    };
    let (mut file, Resume { length: resumed_at, place: after, query: began_with, .. }) = open(&path, args.resume)?;
    if let Some(began_with) = began_with {
        if given && began_with != query {
            let began_with = serde_json::to_string(&began_with).unwrap_or_default();
            return Err(Failure::new(Code::Refused, format!("{} began with another query: {}", path.display(), printable(&began_with)))
                .hint("leave out --query, --tag and --type, and it goes on with its own; or choose another file"));
        }
        query = began_with;
    }
    file.set_len(resumed_at)?;
    file.seek(SeekFrom::Start(resumed_at))?;
    let store = open_store(place).await?;
    let (events, bytes) = to(&mut file, &store, query, after).await?;
    file.sync_all()?;
    let exported = Exported { events, bytes, resumed_at };
    Ok(out.result(&exported, |paint| {
        let written = paint.bold(format!("{events} events"));
        format!(
            "{written} in {bytes} bytes{}",
            if resumed_at > 0 { format!(", behind {resumed_at} bytes that were there") } else { String::new() }
        )
    })?)
}

/// The store, and its index as far as that can be seen to: what the feed does not show would be missing from a backup that looks whole.
async fn open_store(place: &Place) -> Outcome<Store> {
    let store = place.open().await?;
    indexed::catch_up(&store, place.url().unwrap_or_default()).await?;
    Ok(store)
}

/// The file, and how writing goes on in it.
fn open(path: &Path, resume: bool) -> Outcome<(File, Resume)> {
    let named = |error: std::io::Error| {
        Failure::new(Failure::from(std::io::Error::from(error.kind())).code(), format!("{}: {error}", path.display()))
    };
    if !resume {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::new(Code::Refused, format!("{} is there already", path.display()))
                .hint("--resume goes on behind what is in it; or choose another name"),
            _ => named(error),
        })?;
        return Ok((file, Resume::default()));
    }
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(named)?;
    let resume = moving::resume_at(&mut file)?;
    Ok((file, resume))
}

/// Events and bytes written.
async fn to(file: &mut impl Write, store: &Store, query: Query, after: Option<At>) -> Outcome<(u64, u64)> {
    let mut lines = moving::export(store, query, after)?;
    let mut file = BufWriter::with_capacity(256 * 1024, file);
    let bar = progress(None, "events exported");
    let (mut events, mut bytes) = (0, 0);
    loop {
        // Where nothing is ready the store is being asked: until it answers, a reader downstream has all there is.
        let next = match lines.try_next().now_or_never() {
            Some(next) => next,
            None => {
                file.flush()?;
                lines.try_next().await
            }
        };
        let Some(line) = next? else { break };
        file.write_all(&line)?;
        events += 1;
        bytes += line.len() as u64;
        bar.set_position(events);
    }
    file.flush()?;
    bar.finish_and_clear();
    Ok((events, bytes))
}
