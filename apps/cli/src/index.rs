//! `index`: the index of `streams` mode, run, looked at, verified and rebuilt.

use std::time::Duration;

use fencepost::{IndexOptions, IndexProgress, Unread};

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::gc::duration;
use crate::output::{Looking, Output, printable, progress, table, talk};
use crate::signal::asked_to_end;

/// Build and look after the index of streams mode
///
/// With feed=streams the feed reads an index, which an indexer builds from DynamoDB Streams: one for all namespaces of a table.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost index run
  fencepost index run --once
  fencepost index verify -o json | jq .findings")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Run the indexer until Ctrl-C
    ///
    /// Killed anywhere, it goes on where the index ends. Two at once do no harm, and one of them is in vain.
    Run(Run),
    /// Say how far the index is
    Status,
    /// Compare the whole log with the whole index, and name every difference
    ///
    /// Exit code 5 and the list, where something differs. It reads every item.
    Verify,
    /// Append to the index what it lacks
    ///
    /// Needed where the indexer did not run for a day: DynamoDB Streams forget after that. It reads every item; writers go on meanwhile. Stopped, it
    /// goes on where it was if it is run again within 23 hours.
    Rebuild,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// End when there is nothing more to index
    #[arg(long)]
    once: bool,
    /// End after this long, such as 14m
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let index = place.open().await?.index()?;
    match args.what {
        What::Run(Run { once, time }) => {
            let mut options = IndexOptions::default();
            if once {
                options = options.until_caught_up();
            }
            if let Some(time) = time {
                options = options.within(time);
            }
            let bar = progress(None, "commits indexed");
            let last = std::sync::Mutex::new(IndexProgress::default());
            let tell = |so_far: &IndexProgress| {
                bar.set_position(so_far.commits);
                if let Ok(mut last) = last.lock() {
                    if so_far.trimmed && !last.trimmed {
                        talk(
                            "records may have been lost before they were read: `fencepost index verify` tells, `fencepost index rebuild` heals it",
                        );
                    }
                    *last = so_far.clone();
                }
            };
            let ran = tokio::select! {
                ran = index.run(&options, &tell) => Some(ran?),
                () = asked_to_end() => None,
            };
            bar.finish_and_clear();
            let done = ran.unwrap_or_else(|| last.lock().map(|last| last.clone()).unwrap_or_default());
            Ok(out.result(&done, |paint| {
                let commits = paint.bold(format!("{} commits indexed in {} epochs", done.commits, done.epochs));
                format!("{commits}, {} waiting, {} late; {}", done.waiting, done.late, done.units)
            })?)
        }
        What::Status => {
            let status = index.status().await?;
            Ok(out.result(&status, |paint| {
                let last = status.last.map_or("never".into(), |last| last.to_string());
                let mut text = format!("{}, last put {last}; {}\n", paint.bold(format!("{} epochs", status.epochs)), status.units);
                match &status.unread {
                    Unread::Since(at) => {
                        text += &paint.bad(format!("the stream has what the index lacks, since {at}: is an indexer running?\n"));
                    }
                    Unread::Unknown(why) => text += &format!("whether the stream has more is not known: {}\n", printable(why)),
                    _ => {}
                }
                if let Some(trimmed) = status.trimmed {
                    text += &paint.bad(format!(
                        "records may have been lost before they were read, found {trimmed}: `fencepost index verify` tells, \
                         `fencepost index rebuild` heals it\n"
                    ));
                }
                let mut shards = table(["shard", "indexed up to", "read up to"]);
                shards.add_rows(status.shards.iter().map(|shard| {
                    let done = if shard.finished { "its end" } else { shard.done.as_deref().unwrap_or("-") };
                    [printable(&shard.id), done.into(), shard.read.clone().unwrap_or_else(|| "-".into())]
                }));
                text + &shards.to_string()
            })?)
        }
        What::Verify => {
            let bar = Looking::new("items read");
            let verified = index.verify(&|so_far| bar.tell(so_far.items, so_far.about)).await?;
            bar.done();
            let found = verified.findings.len();
            out.result(&verified, |paint| {
                let (commits, indexed, younger) = (verified.commits, verified.indexed, verified.younger);
                let mut text =
                    format!("{commits} commits in the log, {indexed} in the index, {younger} too young to compare; {}\n", verified.units);
                if verified.expired > 0 {
                    text += &format!("{} in the index have gone from the log, by their time to live or taken back\n", verified.expired);
                }
                if found == 0 {
                    return text + &paint.good("log and index agree");
                }
                let mut findings = table(["item", "problem"]);
                findings.add_rows(verified.findings.iter().map(|finding| [printable(&finding.item), printable(&finding.problem)]));
                text += &findings.to_string();
                text
            })?;
            out.flush()?;
            match found {
                0 => Ok(()),
                n => Err(Failure::new(Code::Corrupt, format!("log and index differ in {n} {}", if n == 1 { "thing" } else { "things" }))
                    .hint("if commits lack, let the indexer run, or run `fencepost index rebuild`")),
            }
        }
        What::Rebuild => {
            let (scan, append, began) = (Looking::new("items read"), std::sync::OnceLock::new(), std::sync::Once::new());
            let tell = |so_far: &fencepost::RebuildProgress| {
                began.call_once(|| say_earlier(so_far));
                if so_far.appended == 0 {
                    scan.tell(so_far.items, so_far.about);
                } else {
                    scan.done();
                    let bar = append.get_or_init(|| progress(Some(so_far.lacking), "appended"));
                    bar.set_length(so_far.lacking);
                    bar.set_position(so_far.appended);
                }
            };
            let rebuilt = index.rebuild(&tell).await?;
            scan.done();
            if let Some(bar) = append.get() {
                bar.finish_and_clear();
            }
            Ok(out.result(&rebuilt, |paint| {
                let appended = paint.bold(format!("{} commits appended in {} epochs", rebuilt.appended, rebuilt.epochs));
                let mut text = format!("{appended}, {} items read; {}", rebuilt.items - rebuilt.resumed, rebuilt.units);
                if rebuilt.resumed > 0 {
                    text += &format!("\n{} items more had been read by a run that was stopped", rebuilt.resumed);
                }
                if rebuilt.unreadable > 0 {
                    text += &paint.bad(format!("\n{} commits cannot be read: `fencepost index verify` names them", rebuilt.unreadable));
                }
                if rebuilt.held > 0 {
                    text += &paint.bad(format!(
                        "\n{} commits follow what cannot be read, and are held back: run it once more when that can be",
                        rebuilt.held
                    ));
                }
                if rebuilt.trimmed && rebuilt.unreadable == 0 && rebuilt.held == 0 {
                    text += &paint.bad("\nrecords may have been lost since it began: run it once more");
                }
                text
            })?)
        }
    }
}

/// What is known of a run that was stopped.
fn say_earlier(so_far: &fencepost::RebuildProgress) {
    if so_far.resumed > 0 {
        talk(format!("going on with a rebuild that was stopped: it had read {} items", so_far.resumed));
    }
    if let Some(why) = &so_far.dropped {
        talk(format!("a rebuild was stopped, and what it had read is of no use: {why}"));
    }
}
