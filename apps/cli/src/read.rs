//! `read`: events that match, or of one stream, printed while they are read.

use base64::Engine as _;
use fencepost::{
    Error, EventLog, LoadOptions, Position, Query, ReadOptions, Recorded, Refused, Result, Snapshot, StreamName, StreamReadOptions,
    StreamStore,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use serde::Serialize;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::json::EventLine;
use crate::output::{Output, printable};
use crate::select::Select;

/// Read events that match a query, or those of one stream
///
/// By --query, or by --tag and --type, or by --stream; everything, if none is given. An empty read is no failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost read --tag course:c1 --type StudentEnrolled
  fencepost read --query '{\"items\":[{\"tags\":[\"course:c1\"]},{\"tags\":[\"student:s1\"]}]}' --with-token
  fencepost read --stream account-7 --backwards --limit 1
  fencepost read --stream Cart-7 --unfolds
  fencepost read --after 1200 | jq -c .data")]
pub(crate) struct Args {
    #[command(flatten)]
    select: Select,
    /// The events of this stream, each with its version
    #[arg(long, value_name = "NAME", value_parser = |text: &str| StreamName::new(text), conflicts_with_all = ["query", "tag", "type"])]
    stream: Option<StreamName>,
    /// Begin behind this position, in the direction of reading; with --stream, behind this version
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    /// At most so many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Newest first
    #[arg(long)]
    backwards: bool,
    /// End with the token that guards what was read, and what was not there: for append --token
    #[arg(long, conflicts_with_all = ["limit", "after", "backwards"])]
    with_token: bool,
    /// In place of the events, the snapshots that the stream's last append left (layout equinox)
    #[arg(long, requires = "stream", conflicts_with_all = ["limit", "after", "backwards", "with_token"])]
    unfolds: bool,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    let plan = Plan::of(args)?;
    let store = builder.open().await?;
    match plan {
        Plan::Stream { stream, how } => of_stream(&*store.streams(), &stream, how, out).await,
        Plan::Unfolds { stream } => unfolds(&stream, &store.equinox()?.unfolds(&stream).await?.value, out),
        Plan::Query { query, how } => of_log(&*store.log()?, &query, how, out).await,
    }
}

/// What to read; how, or whole and with its token.
enum Plan {
    Stream { stream: StreamName, how: Option<StreamReadOptions> },
    Unfolds { stream: StreamName },
    Query { query: Query, how: Option<ReadOptions> },
}

impl Plan {
    fn of(args: Args) -> Outcome<Self> {
        let Args { select, stream, after, limit, backwards, with_token, unfolds } = args;
        if let Some(stream) = stream {
            if unfolds {
                return Ok(Plan::Unfolds { stream });
            }
            let mut options = StreamReadOptions::default();
            if let Some(after) = after {
                let malformed =
                    |_| Refused::Malformed { what: "version", why: "expected a number of events: --after with --stream".into() };
                options = options.after(after.parse().map_err(malformed)?);
            }
            options = limit.into_iter().fold(options, StreamReadOptions::limit);
            options = if backwards { options.backwards() } else { options };
            return Ok(Plan::Stream { stream, how: (!with_token).then_some(options) });
        }
        let mut options = ReadOptions::default();
        if let Some(after) = after {
            options = options.after(after.parse::<Position>()?);
        }
        options = limit.into_iter().fold(options, ReadOptions::limit);
        options = if backwards { options.backwards() } else { options };
        Ok(Plan::Query { query: select.query()?, how: (!with_token).then_some(options) })
    }
}

/// A snapshot, as a line.
#[derive(Serialize)]
struct Unfold<'a> {
    stream: &'a StreamName,
    version: u64,
    unfold: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

fn unfolds(stream: &StreamName, unfolds: &[Snapshot], out: &mut Output) -> Outcome {
    for snapshot in unfolds {
        let data: Option<serde_json::Value> = serde_json::from_slice(&snapshot.state).ok();
        let data_base64 = data.is_none().then(|| base64::engine::general_purpose::STANDARD.encode(&snapshot.state));
        let line = Unfold { stream, version: snapshot.version, unfold: &snapshot.name, data, data_base64 };
        out.result(&line, |paint| {
            let state = line.data.as_ref().map_or_else(|| format!("{} bytes", snapshot.state.len()), |data| printable(&data.to_string()));
            format!("{:>8}  {}  {state}", line.version, paint.bold(printable(line.unfold)))
        })?;
    }
    Ok(())
}

async fn print(mut events: BoxStream<'_, Result<Recorded>>, stream: Option<&StreamName>, out: &mut Output) -> Outcome {
    let mut damaged: Vec<String> = Vec::new();
    loop {
        // Where nothing is ready the store is being asked: until it answers, a reader downstream has all there is.
        let next = match events.next().now_or_never() {
            Some(next) => next,
            None => {
                out.flush()?;
                events.next().await
            }
        };
        match next {
            None => break,
            Some(Ok(event)) => write(&event, stream, out)?,
            // One that cannot be read is no reason to hold back the others: it is told where it is, and the read fails in the end.
            Some(Err(error @ Error::Corrupt(_))) => damaged.push(error.to_string()),
            Some(Err(error)) => return Err(error.into()),
        }
    }
    out.end(None)?;
    if damaged.is_empty() { Ok(()) } else { Err(Failure::new(Code::Corrupt, damaged.join("; "))) }
}

fn write(event: &Recorded, stream: Option<&StreamName>, out: &mut Output) -> Outcome {
    let line = EventLine::of(event);
    Ok(out.event(&stream.into_iter().fold(line, EventLine::stream))?)
}

async fn of_log(log: &dyn EventLog, query: &Query, how: Option<ReadOptions>, out: &mut Output) -> Outcome {
    let Some(options) = how else {
        let sourced = log.source(query, None).await?;
        sourced.events.iter().try_for_each(|event| write(event, None, out))?;
        let ending = [("token".to_string(), sourced.token.to_string().into())].into_iter().collect();
        return Ok(out.end(Some(&ending))?);
    };
    print(log.read(query, options), None, out).await
}

async fn of_stream(streams: &dyn StreamStore, stream: &StreamName, how: Option<StreamReadOptions>, out: &mut Output) -> Outcome {
    let Some(options) = how else {
        let loaded = streams.load(stream, LoadOptions::default()).await?;
        loaded.events.iter().try_for_each(|event| write(event, Some(stream), out))?;
        let ending = [("token".to_string(), loaded.token.to_string().into()), ("version".to_string(), loaded.version.into())];
        return Ok(out.end(Some(&ending.into_iter().collect()))?);
    };
    print(streams.read(stream, options), Some(stream), out).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::output::{Captured, Format};
    use clap::Parser;
    use fencepost::{Append, Event, Memory};
    use serde_json::json;

    async fn three() -> Memory {
        let memory = Memory::new();
        for n in 1..=3 {
            let event = Event::new("T", format!("{n}")).and_then(|e| e.tag("a")).expect("event");
            EventLog::append(&memory, Append::new([event])).await.expect("appends");
        }
        memory
    }

    async fn read(memory: &Memory, args: &str, format: Format) -> Captured {
        let Command::Read(args) = Cli::parse_from(format!("fencepost read {args}").split_whitespace()).command else { panic!() };
        let (mut out, captured) = Captured::output(format);
        match Plan::of(args).expect("plan") {
            Plan::Stream { stream, how } => of_stream(memory, &stream, how, &mut out).await,
            Plan::Unfolds { .. } => panic!("memory has none"),
            Plan::Query { query, how } => of_log(memory, &query, how, &mut out).await,
        }
        .expect("reads");
        captured
    }

    fn bodies(lines: &[serde_json::Value]) -> Vec<u64> {
        lines.iter().filter_map(|line| line["data"].as_u64()).collect()
    }

    #[tokio::test]
    async fn direction_after_and_limit_are_as_asked() {
        let memory = three().await;
        for (args, expected) in [
            ("", vec![1, 2, 3]),
            ("--after 1", vec![2, 3]),
            ("--backwards --limit 2", vec![3, 2]),
            ("--backwards --after 2", vec![1]),
            ("--stream a --after 2", vec![3]),
            ("--stream a --backwards --limit 1", vec![3]),
            ("--tag b", vec![]),
            ("--type T --tag a --limit 1", vec![1]),
            ("--query {}", vec![1, 2, 3]),
        ] {
            assert_eq!(bodies(&read(&memory, args, Format::Ndjson).await.lines()), expected, "{args}");
        }
    }

    #[tokio::test]
    async fn a_token_ends_the_lines_and_guards_them() {
        let memory = three().await;
        let lines = read(&memory, "--tag a --with-token", Format::Ndjson).await.lines();
        assert_eq!(bodies(&lines), [1, 2, 3]);
        let token: fencepost::Token = lines[3]["token"].as_str().expect("token").parse().expect("parses");
        assert!(memory.unchanged(&token).await.expect("asks").value);
        let lines = read(&memory, "--stream a --with-token", Format::Ndjson).await.lines();
        assert_eq!((&lines[2]["stream"], &lines[2]["version"], &lines[3]["version"]), (&json!("a"), &json!(3), &json!(3)));
    }

    #[tokio::test]
    async fn json_is_one_document_also_when_empty() {
        let memory = three().await;
        assert_eq!(read(&memory, "", Format::Json).await.json()["events"].as_array().map(Vec::len), Some(3));
        assert_eq!(read(&memory, "--tag b", Format::Json).await.json(), json!({ "events": [] }));
        assert!(read(&memory, "--with-token", Format::Json).await.json()["token"].is_string());
    }

    #[tokio::test]
    async fn a_table_has_one_line_an_event() {
        let text = read(&three().await, "", Format::Table).await.text();
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
