//! `append`: events from stdin as one commit, under a condition or on a stream.

use std::io::{IsTerminal, Read};
use std::str::FromStr;

use fencepost::{
    After, Append, Base, CommitId, Committed, Event, EventLog, Expect, Position, Query, Snapshot, Step, StreamName, StreamStore, Token,
    Units,
};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::args::Place;
use crate::failure::Outcome;
use crate::json::parse_events;
use crate::output::{Output, talk};

/// Append events from stdin as one atomic commit
///
/// Reads one JSON object a line: {"type":…,"data":…,"tags":[…],"meta":{…},"id":…}, with "data_base64" instead of "data" for what is not
/// JSON. The whole input is checked before anything is written, and all of it is recorded or nothing. What `read` and `tail` print is accepted too.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  echo '{\"type\":\"CourseDefined\",\"data\":{\"capacity\":10},\"tags\":[\"course:c1\"]}' | fencepost append

  # Only if nothing came since the read that gave $TOKEN
  fencepost append --unless '{\"items\":[{\"tags\":[\"course:c1\"]}]}' --token $TOKEN < events.ndjson

  # A new stream, then its second event
  echo '{\"type\":\"Opened\",\"data\":{}}' | fencepost append --stream account-7 --expect none
  echo '{\"type\":\"Paid\",\"data\":5}' | fencepost append --stream account-7 --expect 1

  # Again after exit code 7
  fencepost append --commit $COMMIT --base $BASE < events.ndjson")]
pub(crate) struct Args {
    /// Fail if events match this query, as JSON; with --token, only those that came after it
    #[arg(long, value_name = "QUERY", conflicts_with = "stream", group = "guard")]
    unless: Option<Query>,
    /// What is known already: the token of a read with --with-token, of an append, or of a conflict
    #[arg(long, value_name = "TOKEN", requires = "guard", conflicts_with = "expect")]
    token: Option<Token>,
    /// The commit's id: appended again under it, now or later, the first outcome is returned
    #[arg(long, value_name = "UUID")]
    commit: Option<Uuid>,
    /// Where the try began that stayed in doubt, as exit code 7 told
    #[arg(long, value_name = "BASE", requires = "commit")]
    base: Option<Base>,
    /// Append to this stream
    #[arg(long, value_name = "NAME", value_parser = |text: &str| StreamName::new(text), group = "guard")]
    stream: Option<StreamName>,
    /// How many events the stream must hold: a number, `none` if it must not exist, or `any`
    #[arg(long, value_name = "N|none|any", requires = "stream")]
    expect: Option<Expected>,
    /// The stream's state after these events, as JSON, stored with them
    #[arg(long, value_name = "JSON", requires = "stream")]
    snapshot: Option<String>,
    /// The name of that snapshot, since a stream may have several
    #[arg(long, value_name = "NAME", requires = "snapshot", default_value = "state")]
    snapshot_name: String,
}

#[derive(Debug, Clone)]
struct Expected(Expect);

impl FromStr for Expected {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            "any" => Expect::Any,
            "none" => Expect::None,
            number => Expect::Version(number.parse().map_err(|_| "expected a number of events, `none` or `any`")?),
        }))
    }
}

/// What is printed.
#[derive(Serialize)]
struct Appended<'a> {
    positions: &'a [Position],
    token: Option<&'a Token>,
    units: Units,
    commit: CommitId,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let builder = place.builder()?;
    check_snapshot(&args)?;
    let events = parse_events(&stdin()?)?;
    let store = builder.open().await?;
    let committed = match args.stream.clone() {
        Some(stream) => to_stream(&*store.streams(), &stream, args, events).await?,
        None => to_log(&*store.log()?, args, events).await?,
    };
    print(&committed, out)
}

fn stdin() -> Outcome<Vec<u8>> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        talk("events, one JSON object a line; Ctrl-D ends");
    }
    let mut input = Vec::new();
    stdin.read_to_end(&mut input)?;
    Ok(input)
}

fn check_snapshot(args: &Args) -> Outcome {
    if let Some(json) = &args.snapshot {
        serde_json::from_str::<&RawValue>(json).map_err(|error| fencepost::Refused::Malformed {
            what: "snapshot",
            why: format!("it is not JSON ({:?} error at column {})", error.classify(), error.column()),
        })?;
    }
    Ok(())
}

async fn to_log(log: &dyn EventLog, args: Args, events: Vec<Event>) -> Outcome<Committed> {
    let mut append = Append::new(events);
    if let Some(query) = args.unless {
        append = append.unless(query, After::from(args.token));
    }
    append = match (args.commit.map(CommitId), args.base) {
        (Some(commit), Some(base)) => append.again(commit, base),
        (Some(commit), None) => append.commit(commit),
        _ => append,
    };
    Ok(log.append(append).await?)
}

async fn to_stream(streams: &dyn StreamStore, stream: &StreamName, args: Args, events: Vec<Event>) -> Outcome<Committed> {
    let expect = match (args.token, args.expect) {
        (Some(token), _) => Expect::Token(token),
        (None, Some(expected)) => expected.0,
        (None, None) => Expect::Any,
    };
    let mut step = Step::new(events).expect(expect);
    if let Some(state) = args.snapshot {
        step = step.snapshot(Snapshot::new(args.snapshot_name, state));
    }
    step = match (args.commit.map(CommitId), args.base) {
        (Some(commit), Some(base)) => step.again(commit, base),
        (Some(commit), None) => step.commit(commit),
        _ => step,
    };
    Ok(streams.append(stream, step).await?)
}

fn print(committed: &Committed, out: &mut Output) -> Outcome {
    let Committed { commit, positions, token, version, units, .. } = committed;
    let appended = Appended { positions, token: token.as_ref(), units: *units, commit: *commit, version: *version };
    Ok(out.result(&appended, |paint| {
        let events = positions.len();
        let place = match positions.as_slice() {
            [] => String::new(),
            [one] => format!(" at {one}"),
            [first, .., last] => format!(" at {first} to {last}"),
        };
        let mut text = format!("{} {events} event{}{place}\n", paint.good("recorded"), if events == 1 { "" } else { "s" });
        if let Some(version) = version {
            text += &format!("{} {version}\n", paint.dim("version"));
        }
        text += &format!("{} {commit}\n{} {units}\n", paint.dim("commit"), paint.dim("units"));
        if let Some(token) = token {
            text += &format!("{} {token}\n", paint.dim("token"));
        }
        text
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::output::{Captured, Format};
    use clap::Parser;
    use fencepost::{LoadOptions, Memory};

    async fn append(memory: &Memory, args: &[&str]) -> Outcome<serde_json::Value> {
        let Command::Append(args) = Cli::parse_from(["fencepost", "append"].iter().chain(args)).command else { panic!() };
        let events = parse_events(br#"{"type":"T","data":1,"tags":["a"]}"#).expect("events");
        let committed = match args.stream.clone() {
            Some(stream) => to_stream(memory, &stream, args, events).await?,
            None => to_log(memory, args, events).await?,
        };
        let (mut out, captured) = Captured::output(Format::Ndjson);
        print(&committed, &mut out)?;
        Ok(captured.json())
    }

    const QUERY: &str = r#"{"items":[{"tags":["a"]}]}"#;

    #[tokio::test]
    async fn a_condition_holds_until_somebody_else_appends() {
        let memory = Memory::new();
        let first = append(&memory, &["--unless", QUERY]).await.expect("nothing there yet");
        assert_eq!(first["positions"], serde_json::json!(["1"]));
        assert_eq!(append(&memory, &["--unless", QUERY]).await.expect_err("there now").code().exit(), 3);
        let token = first["token"].as_str().expect("token");
        append(&memory, &["--unless", QUERY, "--token", token]).await.expect("nothing came since");
        assert_eq!(append(&memory, &["--unless", QUERY, "--token", token]).await.expect_err("one came").code().exit(), 3);
        assert!(append(&memory, &[]).await.expect("unconditional")["token"].is_null());
    }

    #[tokio::test]
    async fn a_commit_id_is_recorded_once() {
        let memory = Memory::new();
        let commit = ["--commit", "0191d7a0-0000-7000-8000-000000000001"];
        let first = append(&memory, &commit).await.expect("appends");
        assert_eq!(append(&memory, &commit).await.expect("the same outcome"), first);
        assert_eq!(first["commit"], commit[1]);
    }

    #[tokio::test]
    async fn a_stream_expects_its_number_of_events() {
        let memory = Memory::new();
        let to = |expect: &'static str| ["--stream", "s", "--expect", expect];
        assert_eq!(append(&memory, &to("1")).await.expect_err("empty").code().exit(), 3);
        assert_eq!(append(&memory, &to("none")).await.expect("new")["version"], 1);
        assert_eq!(append(&memory, &to("none")).await.expect_err("there").code().exit(), 3);
        assert_eq!(append(&memory, &to("1")).await.expect("one event")["version"], 2);
        append(&memory, &["--stream", "s", "--expect", "any", "--snapshot", r#"{"sum": 3}"#]).await.expect("with a snapshot");
        let loaded = memory.load(&"s".try_into().expect("name"), LoadOptions::default().snapshot(["state"])).await.expect("loads");
        assert_eq!((loaded.snapshots[0].version, loaded.snapshots[0].state.as_ref()), (3, &br#"{"sum": 3}"#[..]));
    }
}
