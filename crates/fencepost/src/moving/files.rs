//! Out of a store as lines of JSON, and into one. Reading and writing the file is the caller's; what a line says is in `lines`.
//!
//! Each line carries its place in the source, so a file tells by itself where its export goes on, and which of how many events of its
//! commit it is, so that a file that was cut off is known to be. An import keeps no place: it asks for every commit whether it is there.

use std::io::{Read, Seek, SeekFrom};
use std::pin::Pin;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;

use super::lines::{Line, Parsed, parse};
use super::source::{Group, Place, grouped, same_commit};
use super::target::Target;
use super::write::{Writer, pieces};
use super::{IN_FLIGHT, Party};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{Event, Metadata};
use crate::log::Capabilities;
use crate::query::Query;

/// The events that match behind a place, up to where there are no more just now, each as a line with its line break.
pub fn export(from: impl Into<Party>, query: Query, after: Option<Place>) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let events = from.into().events(query, after)?.map_ok(|(event, place)| ((event, place), ()));
    let commits = grouped(events, |(a, _), (b, _)| same_commit(a, b));
    let lines = commits.map_ok(|Group { events, .. }| {
        let of = events.len() as u64;
        stream::iter(events.into_iter().zip(1..).map(move |((event, place), number)| {
            let line = Line::exact(&event).part(number, of);
            let line = match &place {
                Place::Checkpoint(checkpoint) => line.checkpoint(checkpoint),
                Place::Position(_) => line,
            };
            let mut line = serde_json::to_vec(&line).map_err(|_| Refused::Malformed { what: "event", why: "it is no JSON".into() })?;
            line.push(b'\n');
            Ok(line)
        }))
    });
    Ok(lines.try_flatten().boxed())
}

/// Where an export goes on: the length of the file up to the end of its last whole commit, and the place behind that; no place where
/// nothing whole is in it. What stands behind is to be cut off.
pub fn resume_at(file: &mut (impl Read + Seek)) -> Result<(u64, Option<Place>)> {
    let unreadable = |error: std::io::Error| Error::unavailable(Reason::Unreachable, format!("the file cannot be read: {error}"));
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

/// Records the events of these lines, each commit once, whatever was imported before: events are told apart by their ids. `progress` hears
/// the number of events dealt with. A wrong line ends it; what stands before it is recorded.
pub async fn import(
    to: impl Into<Party>,
    lines: BoxStream<'_, Result<Vec<u8>>>,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Imported> {
    let to = to.into();
    let target = to.writable()?;
    let mut commits = commits(lines).boxed().peekable();
    if let Some(Ok(first)) = Pin::new(&mut commits).peek().await {
        refuse_own(&target, &to.capabilities, first).await?;
    }
    // Not `try_buffered`: a wrong line must not overtake what stands before it.
    let asked = commits.map(|group| async { ask(&target, &to.capabilities, group?).await }).buffered(IN_FLIGHT);
    // A commit that is there already has nothing left to write, and passes through in its turn.
    let new = asked.map_ok(|(Group { events, .. }, there)| match there {
        true => Group { place: events.len() as u64, events: Vec::new() },
        false => Group { events, place: 0 },
    });
    let mut writer = Writer::new(target.clone(), to.capabilities, new.boxed());
    let mut imported = Imported::default();
    while let Some((written, repeated)) = writer.next().await? {
        imported.repeated += repeated;
        imported.events += written.events;
        imported.commits += u64::from(written.events > 0);
        imported.split += written.split;
        progress(imported.events + imported.repeated);
    }
    Ok(imported)
}

/// What a store exported is there already, but under the commit ids of its own writers: an import would not recognise it. The first event of
/// the lines tells, where it is also the first of the store, or of one of its tags: only there it was recorded at that instant.
async fn refuse_own(target: &Target, capabilities: &Capabilities, first: &Lines) -> Result<()> {
    let (Some(event), Some(recorded_at)) = (first.events.first(), first.place) else { return Ok(()) };
    for of in event.tags().iter().map(Some).chain(capabilities.untagged_reads.then_some(None)) {
        let found = target.first(of).await?;
        if found.is_some_and(|found| Some(found.id) == event.given_id() && found.recorded_at == recorded_at) {
            let what = "importing what this very store exported".into();
            return Err(Refused::Unsupported { what, remedy: "its events are there: import them into another store".into() }.into());
        }
    }
    Ok(())
}

/// Whether all of a commit is there.
async fn ask(target: &Target, capabilities: &Capabilities, group: Lines) -> Result<(Lines, bool)> {
    for piece in pieces(group.events.clone(), capabilities) {
        if target.committed(&piece).await?.is_none() {
            return Ok((group, false));
        }
    }
    Ok((group, true))
}

/// One commit of the lines, and when it was recorded.
type Lines = Group<Event, Option<Timestamp>>;

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
            let place = parsed.recorded_at;
            let event = event(parsed).map_err(wrong)?;
            if at != open.len() as u64 + 1 || at > of {
                return Err(wrong(format!("it is event {at} of {of} of its commit, where event {} was to follow", open.len() + 1)));
            }
            open.push(event);
            if at == of {
                return Ok(Some((Group { events: open, place }, (lines, number))));
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
