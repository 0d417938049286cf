//! What Sekiban's event store offers, by its meaning: reads by id and tag, counts, and writes of events whose places are given.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use futures::{TryStreamExt, stream};
use jiff::Timestamp;
use uuid::Uuid;

use super::append::check_size;
use super::item;
use super::read::bound;
use super::suid::SortableId;
use super::{Large, Sekiban};
use crate::dynamo::Freshness;
use crate::error::{Error, Refused, Result};
use crate::event::{Event, Recorded, Tag};
use crate::position::Position;

/// How far ahead of the clock a place may be, where no window says.
const AHEAD: Duration = Duration::from_secs(5);

/// What a write did to one tag.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagWrite {
    /// The tag.
    pub tag: Tag,
    /// How many events it has now.
    pub version: u64,
    /// When it was written.
    pub written_at: Timestamp,
}

/// How to write events whose places are given.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    ttl: Option<Timestamp>,
}

impl WriteOptions {
    /// DynamoDB may remove the events, and their rows with them, from this time on, where the tables expire by `ttl`.
    pub fn expire_at(mut self, at: Timestamp) -> Self {
        self.ttl = Some(at);
        self
    }
    pub(super) fn seconds(&self) -> Option<u64> {
        self.ttl.and_then(|at| u64::try_from(at.as_second()).ok())
    }
}

/// What was written.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Written {
    /// Where the events stand, in the order given.
    pub positions: Vec<Position>,
    /// Those that were there before, and were left as they are.
    pub duplicates: Vec<Uuid>,
    /// Each tag, with its new version.
    pub tags: Vec<TagWrite>,
    /// What it cost.
    pub units: crate::units::Units,
}

impl Sekiban {
    /// All events of the service behind an id, by the index: in order, lazily, a moment old perhaps; of a large commit all or none. With a limit so
    /// many, and with them those that have the same id as the last: the next page begins behind it.
    pub fn all_since(&self, since: Option<SortableId>, limit: Option<u64>) -> BoxStream<'_, Result<Recorded>> {
        let from = since.map(|since| since.next());
        match limit {
            Some(0) => stream::empty().boxed(),
            Some(limit) => self.all_up_to(from, limit).map_ok(|stored| stored.event).boxed(),
            None => self.all(from, false, None).map_ok(|stored| stored.event).boxed(),
        }
    }

    /// Events that carry a tag, behind an id: in order, lazily.
    pub fn by_tag_since(&self, tag: &Tag, since: Option<SortableId>) -> BoxStream<'_, Result<Recorded>> {
        let tag = tag.clone();
        let start = async move {
            let op = self.dynamo().long_op();
            let walk = self.walk(&op, &tag, since.map(bound), self.options().fresh).await?;
            Ok::<_, Error>(self.pages(walk))
        };
        let events = stream::once(start).try_flatten().and_then(move |rows| async move {
            let op = self.dynamo().long_op();
            let events = self.hydrate(&op, &rows, self.options().fresh).await?;
            Ok(stream::iter(events.into_iter().map(|stored| Ok(stored.event))))
        });
        events.try_flatten().boxed()
    }

    /// One event by its id; none where there is none.
    pub async fn event(&self, id: &Uuid) -> Result<Option<Recorded>> {
        let op = self.dynamo().op();
        let mut stored = self.stored_event(&op, id, self.options().fresh).await?;
        // It may be of a large commit whose rows come: others of it are there.
        if stored.is_none() && !self.listed_in_rows(&op).await?.is_empty() {
            stored = self.stored_event(&op, id, Freshness::Strong).await?;
        }
        stored.iter().for_each(|stored| self.saw(stored.at));
        Ok(stored.map(|stored| stored.event))
    }

    /// The places and ids of a tag's events, behind an id: in order, lazily, without the events.
    pub fn tag_stream(&self, tag: &Tag, since: Option<SortableId>) -> BoxStream<'_, Result<(SortableId, Uuid)>> {
        let tag = tag.clone();
        let start = async move {
            let op = self.dynamo().long_op();
            let walk = self.walk(&op, &tag, since.map(bound), self.options().fresh).await?;
            Ok::<_, Error>(self.pages(walk))
        };
        let place = |row: item::TagRow| match row.event.parse() {
            Ok(id) => Ok((row.at, id)),
            Err(_) => Err(Error::corrupt(super::LAYOUT, format!("a tag's row at {} names no event", row.at))),
        };
        stream::once(start).try_flatten().map_ok(move |rows| stream::iter(rows.into_iter().map(place))).try_flatten().boxed()
    }

    /// The place of a tag's last event; none where it has none.
    pub async fn latest_of(&self, tag: &Tag) -> Result<Option<SortableId>> {
        let op = self.dynamo().op();
        // A row that stands above the head may be one of a large commit whose others come.
        let mut walk = self.walk(&op, tag, None, self.options().fresh).await?.towards(true, None).of(1);
        Ok(self.step(&op, &mut walk).await?.and_then(|rows| rows.first().map(|row| row.at)))
    }

    /// Whether any event carries the tag.
    pub async fn tag_exists(&self, tag: &Tag) -> Result<bool> {
        Ok(self.latest_of(tag).await?.is_some())
    }

    /// How many events of the service stand behind an id. Reads the index of all of them.
    pub async fn count(&self, since: Option<SortableId>) -> Result<u64> {
        self.count_all(&self.dynamo().long_op(), since).await
    }

    /// The place of the service's last event, by the index: a moment old perhaps.
    pub async fn latest(&self) -> Result<Option<SortableId>> {
        let mut sweep = self.sweep(None, true, Some(1)).await?;
        Ok(self.swept(&mut sweep).await?.map(|stored| stored.at))
    }

    /// Before 1970 there is no position: whoever reads such an event would fail. And whoever reads one from the future puts all that he writes behind it.
    pub(super) fn check_place(&self, at: &SortableId) -> Result<()> {
        let limit = self.patience().unwrap_or(AHEAD);
        let why = match at.position(&Uuid::nil()) {
            None => format!("{at} is before 1970"),
            Some(_) if self.is_ahead(*at) => format!("{at} is more than {} s ahead of the clock here", limit.as_secs()),
            Some(_) => return Ok(()),
        };
        Err(Refused::Malformed { what: "sortable unique id", why }.into())
    }

    /// Whether a place is further ahead than clocks may differ.
    pub(super) fn is_ahead(&self, at: SortableId) -> bool {
        let now = self.dynamo().env().now();
        at > SortableId::threshold(now.checked_add(self.patience().unwrap_or(AHEAD)).unwrap_or(now))
    }

    /// Writes events whose ids and places are given, as Sekiban does, and the heads of their tags with them. One that is there already is left
    /// as it is. A place that does not stand behind all that is on its tags is refused, and so is one more than a quarter of the safe window ahead of the clock.
    pub async fn write(&self, events: &[(SortableId, Event)], options: WriteOptions) -> Result<Written> {
        let op = self.dynamo().op();
        if events.is_empty() {
            return Ok(Written { positions: Vec::new(), duplicates: Vec::new(), tags: Vec::new(), units: op.units() });
        }
        let plain: Vec<Event> = events.iter().map(|(_, event)| event.clone()).collect();
        check_size(&plain)?;
        if plain.iter().any(|event| event.given_id().is_none()) {
            return Err(Refused::Malformed { what: "event", why: "a write needs the id of each event".into() }.into());
        }
        let places: Vec<SortableId> = events.iter().map(|(at, _)| *at).collect();
        places.iter().try_for_each(|at| self.check_place(at))?;
        let mut written = Written { positions: Vec::new(), duplicates: Vec::new(), tags: Vec::new(), units: op.units() };
        let mut ends = BTreeMap::new();
        let chunks = match self.options().large {
            Large::Staged => std::iter::once(0..plain.len()).collect(),
            Large::Chunked => self.chunks(&plain, &places, options)?,
        };
        for chunk in chunks {
            let done = self.write_chunk(&op, &plain[chunk.clone()], &places[chunk], options, &mut written, &mut ends).await;
            done.map_err(|error| if written.positions.is_empty() { error } else { self.in_part(&plain, error) })?;
        }
        let written_at = self.dynamo().env().now();
        written.tags = ends.into_iter().map(|(tag, version)| TagWrite { tag, version, written_at }).collect();
        written.units = op.units();
        Ok(written)
    }
}
