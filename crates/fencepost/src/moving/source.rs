//! Reading all events of a store, from a place on, up to where it has no more just now, and the commits that they came in.

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::Party;
use crate::error::{Refused, Result};
use crate::event::Recorded;
use crate::feed::{Delivery, From};
use crate::log::ReadOptions;
use crate::position::{Checkpoint, Position};
use crate::query::Query;

/// How far a move has come in its source: a checkpoint where the source has a feed, else the position of the last event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the feed.
    Checkpoint(Checkpoint),
    /// In the order of positions.
    Position(Position),
}

pub(super) type Events = BoxStream<'static, Result<(Recorded, Place)>>;

impl Party {
    /// Whether all that was recorded can be read at once. Not where the feed is an index, which shows it only after its indexer has run.
    pub(super) fn is_readable(&self) -> bool {
        self.capabilities.untagged_reads && !self.indexed && (self.feed.is_some() || self.log.is_some())
    }

    /// The events that match behind a place, up to where there are no more just now.
    pub(super) fn events(&self, query: Query, after: Option<Place>) -> Result<Events> {
        let foreign = |of: &str, here: &str| Refused::Foreign { what: "place of the move", of: of.into(), here: here.into() };
        if let Some(feed) = &self.feed {
            let from = match after {
                None => From::Start,
                Some(Place::Checkpoint(checkpoint)) => From::Checkpoint(checkpoint),
                Some(Place::Position(_)) => return Err(foreign("a store without a feed", "one with a feed").into()),
            };
            return Ok(until_caught_up(feed.subscribe(from, query)));
        }
        let Some(log) = self.log.clone().filter(|_| self.capabilities.untagged_reads) else {
            let what = "reading all events of this store".into();
            let remedy = "it has neither a feed nor reads without a tag: run its indexer, or read it tag by tag".into();
            return Err(Refused::Unsupported { what, remedy }.into());
        };
        let mut options = ReadOptions::default();
        match after {
            None => {}
            Some(Place::Position(position)) => options = options.after(position),
            Some(Place::Checkpoint(_)) => return Err(foreign("a store with a feed", "one without").into()),
        }
        // The stream of a log borrows it and the query: a task of its own would be needed to own both, so each page is asked for anew.
        Ok(stream::try_unfold((log, query, options, false), |(log, query, options, done)| async move {
            if done {
                return Ok(None);
            }
            let page: Vec<Recorded> = log.read(&query, options.limit(PAGE)).try_collect().await?;
            let last = page.last().map(|event| event.position);
            let done = (page.len() as u64) < PAGE;
            let options = last.into_iter().fold(options, ReadOptions::after);
            Ok::<_, crate::error::Error>(Some((stream::iter(page.into_iter().map(Ok)), (log, query, options, done))))
        })
        .try_flatten()
        .map_ok(|event: Recorded| {
            let place = Place::Position(event.position);
            (event, place)
        })
        .boxed())
    }
}

/// Events of a log without a feed that are read at once.
const PAGE: u64 = 1_000;

fn until_caught_up(deliveries: BoxStream<'static, Result<Delivery>>) -> Events {
    stream::try_unfold(deliveries, |mut deliveries| async move {
        match deliveries.try_next().await? {
            Some(Delivery::Event { event, checkpoint }) => Ok(Some(((*event, Place::Checkpoint(checkpoint)), deliveries))),
            Some(Delivery::CaughtUp { .. }) | None => Ok(None),
        }
    })
    .boxed()
}

/// What one commit recorded, and the place behind it.
#[derive(Debug)]
pub(super) struct Group<E, P> {
    pub(super) events: Vec<E>,
    pub(super) place: P,
}

/// Consecutive items that belong together, as one. The last is whole: a source ends between commits.
pub(super) fn grouped<E: Send, P: Send>(
    items: impl Stream<Item = Result<(E, P)>> + Send + Unpin,
    together: impl Fn(&E, &E) -> bool + Send,
) -> impl Stream<Item = Result<Group<E, P>>> + Send {
    stream::try_unfold((items.fuse(), None::<Group<E, P>>, together), |(mut items, mut open, together)| async move {
        while let Some((event, place)) = items.try_next().await? {
            match &mut open {
                Some(group) if group.events.last().is_some_and(|last| together(last, &event)) => {
                    group.events.push(event);
                    group.place = place;
                }
                _ => {
                    let closed = open.replace(Group { events: vec![event], place });
                    if let Some(closed) = closed {
                        return Ok(Some((closed, (items, open, together))));
                    }
                }
            }
        }
        Ok(open.take().map(|last| (last, (items, None, together))))
    })
}

/// Whether two neighbours were recorded by one commit.
pub(super) fn same_commit(a: &Recorded, b: &Recorded) -> bool {
    match (a.position.as_stamped(), b.position.as_stamped()) {
        (Some((_, a, _)), Some((_, b, _))) => a == b,
        (None, None) => a.recorded_at == b.recorded_at,
        _ => false,
    }
}
