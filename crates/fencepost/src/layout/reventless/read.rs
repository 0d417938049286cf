//! Reading: fences, everything on a cover, and the events of a query merged lazily in order. An error is an error, never an end.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;

use futures::stream::{self, BoxStream, Peekable};
use futures::{Stream, StreamExt, TryStreamExt};

use super::Reventless;
use super::fence::{Fence, fence_key};
use super::item::{self, HASH, RANGE, Stored, TAG, is_event, pointers};
use super::place::{Cover, split};
use super::position::{ceiling, floor};
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::Recorded;
use crate::log::{Consistency, Direction, ReadOptions};
use crate::position::Position;
use crate::query::Query;

pub(super) fn freshness(consistency: Consistency) -> Freshness {
    match consistency {
        Consistency::Strong => Freshness::Strong,
        Consistency::Eventual => Freshness::Eventual,
    }
}

/// Keys in a page: what one batch fetches.
const KEYS: i32 = 100;

/// One of the places where events of a cover are found.
#[derive(Debug, Clone)]
enum Shelf {
    /// The partition itself.
    Partition(String),
    /// An index, and the value in it: keys only.
    Index(String, String),
    /// Pointers: keys only.
    Pointers(String),
}

impl Reventless {
    /// Fences as they stand; one that is not there stands at 0.
    pub(super) async fn fences<'a>(
        &self,
        op: &Op,
        covers: impl IntoIterator<Item = &'a Cover>,
        freshness: Freshness,
    ) -> Result<BTreeMap<Cover, Fence>> {
        let covers: Vec<&Cover> = covers.into_iter().collect();
        let found = match covers[..] {
            [] => Vec::new(),
            [one] => self.dynamo().get(op, self.table(), fence_key(one), freshness).await?.into_iter().collect(),
            _ => self.dynamo().get_many(op, self.table(), covers.iter().map(|cover| fence_key(cover)).collect(), freshness).await?,
        };
        let by_name: BTreeMap<&str, &Item> = found.iter().filter_map(|item| Some((Fence::name(item)?, item))).collect();
        let fences = covers.into_iter().map(|cover| {
            let fence = by_name.get(cover.fence().as_str()).map_or(Fence::default(), |item| Fence::of_item(item));
            self.remember(cover, fence.clone());
            (cover.clone(), fence)
        });
        Ok(fences.collect())
    }

    fn shelf(&self, cover: &Cover) -> Result<Shelf> {
        Ok(match cover {
            // Of a key that is not declared there is no index: such a tag may still be the partition of events that have no other.
            Cover::Tag(tag) if !self.settings().is_home(cover) && self.settings().is_declared(tag) => {
                let (key, value) = split(tag)?;
                Shelf::Index(format!("{TAG}{key}"), value.into())
            }
            home => Shelf::Partition(home.id().into()),
        })
    }

    fn find(&self, shelf: &Shelf, range: Option<Range>, freshness: Freshness) -> Find {
        let find = match shelf {
            Shelf::Partition(id) | Shelf::Pointers(id) => Find { freshness, ..Find::new(self.table(), HASH, text(id)) },
            // Indexes are never read strongly.
            Shelf::Index(name, value) => {
                Find { index: Some(name.clone()), freshness: Freshness::Eventual, ..Find::new(self.table(), name, text(value)) }
            }
        };
        Find { range, ..find }
    }

    /// What a page of a shelf stands for.
    async fn open_page(&self, op: &Op, shelf: &Shelf, items: Vec<Item>, freshness: Freshness) -> Result<Vec<Stored>> {
        match shelf {
            Shelf::Partition(_) => items.iter().filter(|item| is_event(item)).map(item::stored).collect(),
            Shelf::Index(..) => {
                let key = |item: &Item| Some(item::key(item.text(HASH).ok()?, item.text(RANGE).ok()?));
                self.fetch(op, items.iter().filter_map(key).collect(), freshness).await
            }
            // A composite partition may be called as pointers are: events in it are no pointers.
            Shelf::Pointers(_) => {
                let pointers = items.iter().filter(|item| !is_event(item));
                self.fetch(op, pointers.map(item::pointed).collect::<Result<_>>()?, freshness).await
            }
        }
    }

    /// Events by key, in the order of the keys. One that does not show is read again strongly; none is passed over.
    pub(super) async fn fetch(&self, op: &Op, keys: Vec<Item>, freshness: Freshness) -> Result<Vec<Stored>> {
        let name = |item: &Item| (item.text(HASH).unwrap_or_default().to_owned(), item.text(RANGE).unwrap_or_default().to_owned());
        let mut found: BTreeMap<(String, String), Item> = BTreeMap::new();
        for item in self.dynamo().get_many(op, self.table(), keys.clone(), freshness).await? {
            found.insert(name(&item), item);
        }
        let missing: Vec<Item> = keys.iter().filter(|key| !found.contains_key(&name(key))).cloned().collect();
        if !missing.is_empty() {
            for item in self.dynamo().get_many(op, self.table(), missing, Freshness::Strong).await? {
                found.insert(name(&item), item);
            }
        }
        let mut events = Vec::with_capacity(keys.len());
        for key in &keys {
            let Some(item) = found.get(&name(key)) else {
                let message = format!("{} is named by an index and does not show: read again", item::describe(key));
                return Err(Error::unavailable(Reason::Unreachable, message));
            };
            if is_event(item) {
                events.push(item::stored(item)?);
            }
        }
        Ok(events)
    }

    /// Every event on a cover behind a stamp, in order, each once.
    pub(super) async fn on_cover(
        &self,
        op: &Op,
        cover: &Cover,
        after: Option<u64>,
        more: bool,
        freshness: Freshness,
    ) -> Result<Vec<Stored>> {
        let mut shelves = vec![self.shelf(cover)?];
        shelves.extend(more.then(|| Shelf::Pointers(pointers(cover))));
        let mut events: Vec<Stored> = Vec::new();
        for shelf in shelves {
            let range = after.map(|stamp| Range::After(RANGE.into(), text(floor(stamp))));
            let mut items = std::pin::pin!(self.dynamo().items(op, self.find(&shelf, range, freshness)));
            let mut page = Vec::new();
            while let Some(item) = items.try_next().await? {
                page.push(item);
            }
            events.extend(self.open_page(op, &shelf, page, freshness).await?);
        }
        events.retain(|event| after.is_none_or(|after| event.at.stamp > after));
        events.sort_by_key(|event| event.at);
        let mut met = HashSet::new();
        events.retain(|event| met.insert((event.id.clone(), event.at)));
        Ok(events)
    }

    /// Events of a query, lazily.
    pub(super) fn read_query<'a>(&'a self, query: Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        if options.limit == Some(0) {
            return stream::empty().boxed();
        }
        if options.after.is_some_and(|after| after.as_stamped().is_none()) {
            let refused = Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
            return stream::once(async move { Err(refused.into()) }).boxed();
        }
        let tagless = query.is_all() || query.items().iter().any(|item| item.tags().is_empty());
        if tagless && self.0.options.scans {
            return self.scanned(query, options);
        }
        let sources = match self.sources(&query, options) {
            Ok(sources) => sources,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let matching = merge(sources, options.direction).try_filter(move |event| {
            let wanted = query.matches(&event.event_type, &event.tags) && in_range(event.position, options);
            futures::future::ready(wanted)
        });
        match options.limit {
            Some(limit) => matching.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => matching.boxed(),
        }
    }

    fn sources<'a>(&'a self, query: &Query, options: ReadOptions) -> Result<Vec<Source<'a>>> {
        let mut sources = Vec::new();
        for cover in self.settings().covers(query)?.into_keys() {
            let own = self.shelf(&cover)?;
            for shelf in [own, Shelf::Pointers(pointers(&cover))] {
                sources.push(self.shelf_stream(shelf, options).peekable());
            }
        }
        Ok(sources)
    }

    fn shelf_stream<'a>(&'a self, shelf: Shelf, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let backwards = options.direction == Direction::Backwards;
        let range = options.after.and_then(|after| after.as_stamped()).map(|(stamp, ..)| match backwards {
            false => Range::After(RANGE.into(), text(floor(stamp))),
            true => Range::Before(RANGE.into(), text(ceiling(stamp))),
        });
        // Types and further tags are looked at here, so a page is larger than what is wanted of it.
        let limit = options.limit.and_then(|limit| i32::try_from(limit.saturating_mul(4).clamp(16, 1_000)).ok());
        // All that a page of keys names is fetched before its first event is handed over.
        let limit = match shelf {
            Shelf::Partition(_) => limit,
            Shelf::Index(..) | Shelf::Pointers(_) => Some(limit.unwrap_or(KEYS).min(KEYS)),
        };
        let fresh = freshness(options.consistency);
        let find = Find { reverse: backwards, limit, ..self.find(&shelf, range, fresh) };
        let pages = stream::try_unfold(Some(None), move |next| {
            let (find, shelf) = (find.clone(), shelf.clone());
            async move {
                let Some(start) = next else { return Ok::<_, Error>(None) };
                let op = self.dynamo().long_op();
                let (items, after) = self.dynamo().page(&op, &find, start).await?;
                let events = self.open_page(&op, &shelf, items, fresh).await?;
                Ok(Some((stream::iter(events.into_iter().map(|event| Ok(event.recorded))), after.map(Some))))
            }
        });
        pages.try_flatten().boxed()
    }

    /// The whole table, for queries without a tag, where that was asked for by name. Holds what matches in memory.
    fn scanned(&self, query: Query, options: ReadOptions) -> BoxStream<'_, Result<Recorded>> {
        let all = async move {
            let op = self.dynamo().long_op();
            let mut events = Vec::new();
            let mut start = None;
            loop {
                let (items, next) = self.dynamo().scan_page(&op, self.table(), start).await?;
                for item in items.iter().filter(|item| is_event(item)) {
                    let event = item::stored(item)?.recorded;
                    if query.matches(&event.event_type, &event.tags) && in_range(event.position, options) {
                        events.push(event);
                    }
                }
                match next {
                    Some(key) => start = Some(key),
                    None => break,
                }
            }
            events.sort_by_key(|event| event.position);
            if options.direction == Direction::Backwards {
                events.reverse();
            }
            events.truncate(options.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
            Ok::<_, Error>(stream::iter(events.into_iter().map(Ok)))
        };
        stream::once(all).try_flatten().boxed()
    }
}

fn in_range(position: Position, options: ReadOptions) -> bool {
    options.after.is_none_or(|after| match options.direction {
        Direction::Forwards => position > after,
        Direction::Backwards => position < after,
    })
}

type Source<'a> = Peekable<BoxStream<'a, Result<Recorded>>>;

/// Several ordered sources as one, each event once. An error comes at once.
fn merge(sources: Vec<Source<'_>>, direction: Direction) -> impl Stream<Item = Result<Recorded>> + Send + '_ {
    stream::try_unfold((sources, None::<Position>), move |(mut sources, mut last)| async move {
        loop {
            let mut best: Option<(usize, Position)> = None;
            for (at, source) in sources.iter_mut().enumerate() {
                let position = match Pin::new(source).peek().await {
                    None => continue,
                    Some(Ok(event)) => event.position,
                    Some(Err(_)) => {
                        best = Some((at, Position::number(0)));
                        break;
                    }
                };
                let order = |so_far: Position| if direction == Direction::Forwards { position.cmp(&so_far) } else { so_far.cmp(&position) };
                if best.is_none_or(|(_, so_far)| order(so_far) == Ordering::Less) {
                    best = Some((at, position));
                }
            }
            let Some((at, position)) = best else { return Ok(None) };
            let Some(event) = sources[at].next().await else { continue };
            let event = event?;
            if last != Some(position) {
                last = Some(position);
                return Ok(Some((event, (sources, last))));
            }
        }
    })
}
