//! Out of a store as lines of JSON, and into one. Reading and writing the file is the caller's; what a line says is in `lines`.
//!
//! Each line carries its place in the source, so a file tells by itself where its export goes on, and which of how many events of its
//! commit it is, so that a file that was cut off is known to be. The first tells what was asked for besides: to go on with another query would
//! make a file that is neither. An import keeps no place: it asks for every event whether it is there.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use serde::Serialize;

use super::known::Known;
use super::lines::{Line, Parsed, parse};
use super::source::{Group, Place, grouped, same_commit};
use super::write::{Writer, size};
use super::{IN_FLIGHT_BYTES, Party};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{Event, Metadata};
use crate::position::Checkpoint;
use crate::query::Query;
use crate::state::{Checkpoints, Revision};

/// The events that match behind a place, up to where there are no more just now, each as a line with its line break. Of an export from the
/// beginning the first line tells the query.
pub fn export(from: impl Into<Party>, query: Query, after: Option<Place>) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let mut asked = after.is_none().then(|| query.clone());
    let events = from.into().events(query, after)?.map_ok(|(event, place)| ((event, place), ()));
    let commits = grouped(events, |(a, _), (b, _)| same_commit(a, b));
    let lines = commits.map_ok(move |Group { events, .. }| {
        let (of, mut asked) = (events.len() as u64, asked.take());
        stream::iter(events.into_iter().zip(1..).map(move |((event, place), number)| {
            let line = Line::exact(&event).part(number, of);
            let line = match &place {
                Place::Checkpoint(checkpoint) => line.checkpoint(checkpoint),
                Place::Position(_) => line,
            };
            let asked = asked.take();
            let line = asked.iter().fold(line, Line::query);
            let mut line = serde_json::to_vec(&line).map_err(|_| Refused::Malformed { what: "event", why: "it is no JSON".into() })?;
            line.push(b'\n');
            Ok(line)
        }))
    });
    Ok(lines.try_flatten().boxed())
}

/// How an export goes on that is in a file already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resume {
    /// The length of the file up to the end of its last whole commit. What stands behind is to be cut off.
    pub length: u64,
    /// The place behind that; none where nothing whole is in it.
    pub place: Option<Place>,
    /// What it was begun with, and is to go on with; none where nothing whole is in it, or its first line does not tell.
    pub query: Option<Query>,
}

/// How an export goes on.
pub fn resume_at(file: &mut (impl Read + Seek)) -> Result<Resume> {
    let (length, place) = last_whole(file)?;
    if place.is_none() {
        return Ok(Resume::default());
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut first = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut first).map_err(unreadable)?;
    let query = match first.trim_ascii() {
        [] => None,
        line => parse(line).map_err(|why| Refused::Malformed { what: "first line of the file", why })?.query,
    };
    Ok(Resume { length, place, query })
}

fn unreadable(error: std::io::Error) -> Error {
    Error::unavailable(Reason::Unreachable, format!("the file cannot be read: {error}"))
}

/// Where the last whole commit ends, and the place behind it.
fn last_whole(file: &mut (impl Read + Seek)) -> Result<(u64, Option<Place>)> {
    let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let mut window = 64 * 1024;
    loop {
        let start = length.saturating_sub(window);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        file.take(length - start).read_to_end(&mut tail).map_err(unreadable)?;
        let mut end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        while end > 0 {
            let begin = tail[..end - 1].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
            // A line that begins before the window is not whole in it.
            let Some(begin) = begin.or((start == 0).then_some(0)) else { break };
            let line = tail[begin..end].trim_ascii();
            if !line.is_empty() {
                let parsed = parse(line).map_err(|why| Refused::Malformed { what: "last line of the file", why })?;
                if parsed.part.is_none_or(|(number, of)| number == of) {
                    let place = parsed.checkpoint.map(Place::Checkpoint).or(parsed.position.map(Place::Position));
                    let none = || Refused::Malformed { what: "last line of the file", why: "it has no checkpoint and no position".into() };
                    return Ok((start + end as u64, Some(place.ok_or_else(none)?)));
                }
            }
            end = begin;
        }
        if start == 0 {
            return Ok((0, None));
        }
        window = window.saturating_mul(4);
    }
}

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Imported {
    /// Events recorded.
    pub events: u64,
    /// Their commits.
    pub commits: u64,
    /// Commits that were too large for one, and came over in pieces.
    pub split: u64,
    /// Events that were there already.
    pub repeated: u64,
}

/// Records the events of these lines, each once: an event whose id is there on one of its tags is left out, whoever recorded it and in whatever
/// commit. One that says something else under its id is refused. `progress` hears the number of events dealt with. A wrong line ends it; what
/// stands before it is recorded.
pub async fn import(
    to: impl Into<Party>,
    lines: BoxStream<'_, Result<Vec<u8>>>,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Imported> {
    let to = to.into();
    let target = to.writable()?;
    let mut known = Known::new(&to, &target);
    let mut turn = None;
    let mut commits = commits(lines).boxed();
    let mut imported = Imported::default();
    loop {
        let (batch, mut wrong) = next_batch(&mut commits).await;
        if batch.is_empty() {
            return wrong.map_or(Ok(imported), Err);
        }
        let taken = match turn {
            Some(turn) => turn,
            None => Turn::take(&*to.checkpoints).await?,
        };
        // What was written is all there before more is looked for: a batch is written to its end.
        let sorted = known.sort(batch).await?;
        wrong = sorted.wrong.or(wrong);
        turn = Some(match sorted.new.iter().any(|group| !group.events.is_empty()) {
            true => taken.keep(&*to.checkpoints).await?,
            false => taken,
        });
        let mut writer = Writer::new(target.clone(), to.capabilities, stream::iter(sorted.new.into_iter().map(Ok)).boxed());
        while let Some((written, counted)) = writer.next().await? {
            imported.repeated += counted.repeated;
            imported.events += written.events;
            imported.commits += counted.commits;
            imported.split += written.split.max(counted.split);
            progress(imported.events + imported.repeated);
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
    }
}

/// The turn of an import on its destination: whoever begins has it, and who had it before is refused when it would write its next batch. So two
/// imports of the same events do not both find that they are missing; but for the batch that the first had under way when the second began.
struct Turn(Revision);

const TURN: &str = "moving-import";

impl Turn {
    async fn take(checkpoints: &dyn Checkpoints) -> Result<Turn> {
        loop {
            let before = checkpoints.load(TURN).await?;
            let count: u64 = before.as_ref().map(|(count, _)| count.open(TURN)).transpose()?.unwrap_or(0);
            let after = Checkpoint::seal(TURN, &(count + 1));
            if let Some(revision) = checkpoints.save(TURN, &after, before.map(|(_, revision)| revision)).await? {
                return Ok(Turn(revision));
            }
        }
    }

    async fn keep(self, checkpoints: &dyn Checkpoints) -> Result<Turn> {
        let kept = checkpoints.save(TURN, &Checkpoint::seal(TURN, &self.0.0), Some(self.0)).await?;
        let lost = || Refused::Unsupported {
            what: "two imports into one store at the same time".into(),
            remedy: "another has begun since: let it end, and run this one again; nothing is recorded twice".into(),
        };
        Ok(Turn(kept.ok_or_else(lost)?))
    }
}

/// Events that are looked for together, at most.
const BATCH: usize = 4_096;

/// The next commits, as far as they are there without waiting; and what is wrong with the line behind them.
async fn next_batch(commits: &mut BoxStream<'_, Result<Lines>>) -> (Vec<Lines>, Option<Error>) {
    let (mut batch, mut events, mut bytes) = (Vec::new(), 0, 0);
    while events < BATCH && bytes < IN_FLIGHT_BYTES {
        let next = match batch.is_empty() {
            true => commits.next().await,
            false => commits.next().now_or_never().flatten(),
        };
        match next {
            Some(Ok(commit)) => {
                events += commit.events.len();
                bytes += commit.events.iter().map(size).sum::<usize>();
                batch.push(commit);
            }
            Some(Err(error)) => return (batch, Some(error)),
            None => break,
        }
    }
    (batch, None)
}

/// One commit of the lines.
pub(super) type Lines = Group<Event, ()>;

/// The commits of these lines. What has no part is a commit of its own.
fn commits(lines: BoxStream<'_, Result<Vec<u8>>>) -> impl Stream<Item = Result<Lines>> + Send {
    stream::try_unfold((lines.fuse(), 0u64), |(mut lines, mut number)| async move {
        let mut open = Vec::<Event>::new();
        while let Some(line) = lines.try_next().await? {
            number += 1;
            let wrong = |why: String| Error::from(Refused::Malformed { what: "input", why: format!("line {number}: {why}") });
            if line.trim_ascii().is_empty() {
                continue;
            }
            let parsed = parse(&line).map_err(wrong)?;
            let (at, of) = parsed.part.unwrap_or((1, 1));
            let event = event(parsed).map_err(wrong)?;
            if at != open.len() as u64 + 1 || at > of {
                return Err(wrong(format!("it is event {at} of {of} of its commit, where event {} was to follow", open.len() + 1)));
            }
            open.push(event);
            if at == of {
                return Ok(Some((Group { events: open, place: () }, (lines, number))));
            }
        }
        if open.is_empty() {
            return Ok(None);
        }
        let why = format!("it ends within a commit, {} events into it: export it to its end with --resume", open.len());
        Err(Refused::Malformed { what: "input", why }.into())
    })
}

fn event(parsed: Parsed) -> Result<Event, String> {
    let Parsed { event, recorded_at, .. } = parsed;
    if event.given_id().is_none() {
        return Err("it has no id, by which an import tells what is there already; new events are appended with `append`".into());
    }
    let meta = event.metadata().clone();
    let occurred = meta.occurred.or(recorded_at);
    Ok(event.meta(Metadata { occurred, ..meta }))
}
