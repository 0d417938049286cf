//! `read`: events that match, or of one stream, printed while they are read.

use fencepost::{EventLog, LoadOptions, Position, Query, ReadOptions, Recorded, Refused, Result, StreamName, StreamReadOptions, StreamStore};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use crate::args::Place;
use crate::failure::Outcome;
use crate::json::EventLine;
use crate::output::Output;
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
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    let plan = Plan::of(args)?;
    let store = builder.open().await?;
    match plan {
        Plan::Stream { stream, how: Some(options) } => print(store.streams().read(&stream, options), Some(&stream), out).await,
        Plan::Stream { stream, how: None } => stream_with_token(&*store.streams(), &stream, out).await,
        Plan::Query { query, how: Some(options) } => print(store.log()?.read(&query, options), None, out).await,
        Plan::Query { query, how: None } => query_with_token(&*store.log()?, &query, out).await,
    }
}

/// What to read; how, or whole and with its token.
enum Plan {
    Stream { stream: StreamName, how: Option<StreamReadOptions> },
    Query { query: Query, how: Option<ReadOptions> },
}

impl Plan {
    fn of(args: Args) -> Outcome<Self> {
        let Args { select, stream, after, limit, backwards, with_token } = args;
        if let Some(stream) = stream {
            let mut options = StreamReadOptions::default();
            if let Some(after) = after {
                let malformed = |_| Refused::Malformed { what: "version", why: "expected a number of events: --after with --stream".into() };
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

async fn print(mut events: BoxStream<'_, Result<Recorded>>, stream: Option<&StreamName>, out: &mut Output) -> Outcome {
    loop {
        // Where nothing is ready the store is being asked: until it answers, a reader downstream has all there is.
        let next = match events.next().now_or_never() {
            Some(next) => next,
            None => {
                out.flush()?;
                events.next().await
            }
        };
        let Some(event) = next.transpose()? else { break };
        write(&event, stream, out)?;
    }
    Ok(out.end(None)?)
}

fn write(event: &Recorded, stream: Option<&StreamName>, out: &mut Output) -> Outcome {
    let line = EventLine::of(event);
    Ok(out.event(&stream.into_iter().fold(line, EventLine::stream))?)
}

async fn query_with_token(log: &dyn EventLog, query: &Query, out: &mut Output) -> Outcome {
    let sourced = log.source(query, None).await?;
    sourced.events.iter().try_for_each(|event| write(event, None, out))?;
    let ending = [("token".to_string(), sourced.token.to_string().into())].into_iter().collect();
    Ok(out.end(Some(&ending))?)
}

async fn stream_with_token(streams: &dyn StreamStore, stream: &StreamName, out: &mut Output) -> Outcome {
    let loaded = streams.load(stream, LoadOptions::default()).await?;
    loaded.events.iter().try_for_each(|event| write(event, Some(stream), out))?;
    let ending = [("token".to_string(), loaded.token.to_string().into()), ("version".to_string(), loaded.version.into())];
    Ok(out.end(Some(&ending.into_iter().collect()))?)
}
