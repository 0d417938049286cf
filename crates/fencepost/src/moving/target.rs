//! What a move writes to: a log, or streams, where an event's only tag is its stream.

use std::sync::Arc;

use futures::TryStreamExt;

use super::Party;
use super::write::commit_id;
use crate::error::{Error, Refused, Result};
use crate::event::{Event, Recorded, StreamName, Tag};
use crate::log::{Append, Committed, EventLog, ReadOptions};
use crate::query::Query;
use crate::stream::{Step, StreamReadOptions, StreamStore};

#[derive(Debug, Clone)]
pub(super) enum Target {
    Log(Arc<dyn EventLog>),
    Streams(Arc<dyn StreamStore>),
}

impl Party {
    /// What to write to.
    pub(super) fn writable(&self) -> Result<Target> {
        match (&self.log, &self.streams) {
            (Some(log), _) => Ok(Target::Log(log.clone())),
            (None, Some(streams)) => Ok(Target::Streams(streams.clone())),
            (None, None) => {
                let remedy = "the destination was given neither a log nor streams".into();
                Err(Refused::Unsupported { what: "writing to it".into(), remedy }.into())
            }
        }
    }
}

impl Target {
    /// Appends one piece under its id. A doubt is settled by one repeat from its base; what stays is for the next run.
    pub(super) async fn append(&self, events: Vec<Event>) -> Result<()> {
        let id = commit_id(&events);
        let done = match self {
            Target::Log(log) => {
                let first = Append::new(events).commit(id);
                match log.append(first.clone()).await {
                    Err(Error::InDoubt(doubt)) => log.append(first.again(doubt.commit, doubt.base)).await,
                    done => done,
                }
            }
            Target::Streams(streams) => {
                let stream = stream_of(&events)?;
                let first = Step::new(events).commit(id);
                match streams.append(&stream, first.clone()).await {
                    Err(Error::InDoubt(doubt)) => streams.append(&stream, first.again(doubt.commit, doubt.base)).await,
                    done => done,
                }
            }
        };
        match done {
            Ok(_) => Ok(()),
            Err(Error::Refused(Refused::Reused { commit })) => {
                let why = format!("the destination holds events with the same ids as commit {commit} brings, but they say something else");
                Err(Refused::Malformed { what: "event", why }.into())
            }
            Err(error) => Err(error),
        }
    }

    /// The outcome of the commit that a piece became, if it is there.
    pub(super) async fn committed(&self, piece: &[Event]) -> Result<Option<Committed>> {
        let id = commit_id(piece);
        Ok(match self {
            Target::Log(log) => log.committed(id).await?.value,
            Target::Streams(streams) => streams.committed(&stream_of(piece)?, id).await?.value,
        })
    }

    /// Every event that carries all of these tags, read strongly.
    pub(super) async fn each(&self, tags: &[Tag], mut hear: impl FnMut(Recorded) + Send) -> Result<()> {
        match (self, tags) {
            (Target::Log(log), _) => {
                let query = if tags.is_empty() { Query::all() } else { Query::tags(tags)? };
                let mut events = log.read(&query, ReadOptions::default());
                while let Some(event) = events.try_next().await? {
                    hear(event);
                }
            }
            (Target::Streams(streams), [tag]) => {
                let stream = StreamName::new(tag)?;
                let mut events = streams.read(&stream, StreamReadOptions::default());
                while let Some(event) = events.try_next().await? {
                    hear(event);
                }
            }
            // What is not of one stream has no place there: writing it is refused.
            (Target::Streams(_), _) => {}
        }
        Ok(())
    }

    /// The first event of a tag; without one, of all.
    pub(super) async fn first(&self, of: Option<&Tag>) -> Result<Option<Recorded>> {
        match self {
            Target::Log(log) => {
                let query = of.map_or_else(Query::all, |tag| Query::of_tag(tag.clone()));
                log.read(&query, ReadOptions::default().limit(1)).try_next().await
            }
            Target::Streams(streams) => {
                let Some(tag) = of else { return Ok(None) };
                let stream = StreamName::new(tag)?;
                streams.read(&stream, StreamReadOptions::default().limit(1)).try_next().await
            }
        }
    }
}

/// The only tag of these events. A piece has no more than one, and an event without any has no place.
fn stream_of(events: &[Event]) -> Result<StreamName> {
    let tags: Vec<&Tag> = events.first().map(|event| event.tags().iter().collect()).unwrap_or_default();
    match tags[..] {
        [tag] if events.iter().all(|event| event.tags() == [tag.clone()]) => StreamName::new(tag),
        _ => {
            let what = format!("an event with {} tags", tags.len());
            let remedy = "the destination has streams only, and an event's one tag is its stream".into();
            Err(Refused::Unsupported { what, remedy }.into())
        }
    }
}
