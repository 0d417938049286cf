//! What Sekiban's event store offers, by its meaning: reads by id and tag, counts, groups of tags, and writes of events whose places are given.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use futures::{TryStreamExt, stream};
use jiff::Timestamp;
use uuid::Uuid;

use super::append::check_size;
use super::item::{self, GROUP, HASH, INDEX, SORTABLE, TAG};
use super::read::bound;
use super::suid::SortableId;
use super::{Large, Sekiban};
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Refused, Result};
use crate::event::{Event, Recorded, Tag};
use crate::position::Position;

/// How far ahead of the clock a place may be, where no window says.
const AHEAD: Duration = Duration::from_secs(5);

/// A tag, and what is on it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TagInfo {
    /// The tag.
    pub tag: String,
    /// Everything before its first colon.
    pub group: String,
    /// How many events carry it.
    pub events: u64,
    /// The first of them.
    pub first: SortableId,
    /// The last.
    pub last: SortableId,
    /// When the first was.
    pub first_at: Timestamp,
    /// When the last was.
    pub last_at: Timestamp,
}

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
    /// All events of the service behind an id, by the index: in order, lazily, a moment old perhaps.
    pub fn all_since(&self, since: Option<SortableId>, limit: Option<u64>) -> BoxStream<'_, Result<Recorded>> {
        if limit == Some(0) {
            return stream::empty().boxed();
        }
        let events = self.all(since.map(|since| since.next()), false, limit).map_ok(|stored| stored.event);
        match limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events.boxed(),
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
        let stored = self.stored_event(&op, id, self.options().fresh).await?;
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
        self.head(&op, tag, self.options().fresh).await?;
        Ok(self.latest_row(&op, tag.as_str(), self.options().fresh).await?.map(|row| row.at))
    }

    /// Whether any event carries the tag.
    pub async fn tag_exists(&self, tag: &Tag) -> Result<bool> {
        Ok(self.latest_of(tag).await?.is_some())
    }

    /// How many events of the service stand behind an id. Reads the index of all of them.
    pub async fn count(&self, since: Option<SortableId>) -> Result<u64> {
        let op = self.dynamo().long_op();
        let mut count = 0;
        for shard in self.shard_keys(&op).await? {
            let find = self.all_of(shard);
            let find = match since {
                Some(id) => find.range(Range::After(SORTABLE.into(), text(id.to_string()))),
                None => find,
            };
            count += self.dynamo().count(&op, &find).await?;
        }
        Ok(count)
    }

    /// The place of the service's last event, by the index: a moment old perhaps.
    pub async fn latest(&self) -> Result<Option<SortableId>> {
        let op = self.dynamo().op();
        let keys = self.shard_keys(&op).await?;
        let ends = keys.into_iter().map(|shard| {
            let (op, find) = (&op, Find { reverse: true, limit: Some(1), ..self.all_of(shard) });
            async move {
                let (items, _) = self.dynamo().page(op, &find, None).await?;
                items.first().map(item::stored).transpose()
            }
        });
        let ends = futures::future::try_join_all(ends).await?;
        let latest = ends.into_iter().flatten().map(|stored| stored.at).max();
        latest.into_iter().for_each(|latest| self.saw(latest));
        Ok(latest)
    }

    async fn shard_keys(&self, op: &Op) -> Result<Vec<Option<u32>>> {
        let shards = self.shards(op).await?;
        Ok(std::iter::once(None).chain((0..shards).filter(|_| shards > 1).map(Some)).collect())
    }

    /// The tags of a group, by name, lazily. Reads every row of the group in the index, which may hold the keys alone.
    pub fn tags_of_group(&self, group: &str) -> BoxStream<'_, Result<TagInfo>> {
        let find = Find::new(&self.options().tags, GROUP, text(self.keys().group(group)));
        let find = Find { index: Some(INDEX.into()), freshness: Freshness::Eventual, ..find };
        let pages = stream::try_unfold((Some(None), None::<TagInfo>), move |(next, mut open)| {
            let find = find.clone();
            async move {
                let Some(start) = next else {
                    return Ok::<_, Error>(open.take().map(|last: TagInfo| (stream::iter(vec![Ok(last)]), (None, None))));
                };
                let op = self.dynamo().long_op();
                let (items, after) = self.dynamo().page(&op, &find, start).await?;
                let mut whole = Vec::new();
                for item in items.iter().filter(|item| self.keys().owns(item)) {
                    let Some((tag, at)) = self.named(item)? else { continue };
                    match &mut open {
                        Some(info) if info.tag == tag => info.add(at),
                        _ => whole.extend(open.replace(TagInfo::first(tag, at)).map(Ok)),
                    }
                }
                Ok(Some((stream::iter(whole), (after.map(Some), open))))
            }
        });
        pages.try_flatten().boxed()
    }

    /// All tags of the service, by group and name. Scans the whole table of tags, which services share.
    pub async fn scan_tags(&self) -> Result<Vec<TagInfo>> {
        let op = self.dynamo().long_op();
        let mut tags: BTreeMap<(String, String), TagInfo> = BTreeMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, &self.options().tags, start).await?;
            for item in items.iter().filter(|item| self.keys().owns(item)) {
                let Some((tag, at)) = self.named(item)? else { continue };
                let key = (item::group_of(&tag).to_owned(), tag.clone());
                tags.entry(key).and_modify(|info| info.add(at)).or_insert_with(|| TagInfo::first(tag, at));
            }
            match next {
                Some(key) => start = Some(key),
                None => return Ok(tags.into_values().collect()),
            }
        }
    }

    /// A row's tag and place; none for what is no row of a tag.
    fn named(&self, item: &Item) -> Result<Option<(String, SortableId)>> {
        let is_row = item.text(HASH).is_ok_and(|pk| self.keys().rest(pk).starts_with("TAG#"));
        match item.maybe_text(TAG).ok().flatten() {
            Some(tag) if is_row => Ok(Some((tag.to_owned(), item::tag_row(item)?.at))),
            _ => Ok(None),
        }
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

impl TagInfo {
    fn first(tag: String, at: SortableId) -> TagInfo {
        let group = item::group_of(&tag).to_owned();
        TagInfo { tag, group, events: 1, first: at, last: at, first_at: at.timestamp(), last_at: at.timestamp() }
    }
    fn add(&mut self, at: SortableId) {
        self.events += 1;
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        (self.first_at, self.last_at) = (self.first.timestamp(), self.last.timestamp());
    }
}
