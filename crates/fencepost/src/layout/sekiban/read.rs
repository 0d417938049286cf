//! Reading: heads, rows of a tag as whole commits, and the events behind them. Never a whole log in memory; all events by the index are in `all`.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;

use futures::stream::{self, BoxStream, Peekable};
use futures::{Stream, StreamExt, TryStreamExt};
use uuid::Uuid;

use super::item::{self, HASH, Head, RANGE, Stored, TagRow};
use super::suid::SortableId;
use super::token::End;
use super::{LAYOUT, Sekiban};
use crate::dynamo::item::{Item, text};
use crate::dynamo::{Failure, Find, Freshness, Op, Range};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{Recorded, Tag};
use crate::log::{Consistency, Direction, ReadOptions};
use crate::position::Position;
use crate::query::Query;

pub(super) fn freshness(consistency: Consistency) -> Freshness {
    match consistency {
        Consistency::Strong => Freshness::Strong,
        Consistency::Eventual => Freshness::Eventual,
    }
}

/// A walk over the rows of a tag: whole commits of our writers, whatever is being written meanwhile.
///
/// A query of DynamoDB's may show a part of a transaction, and the rows of a large commit come one after the other. What stands at or below
/// the head was there, all of it, when the head was read. What stands above it is another writer's, Sekiban's, if the head has not moved
/// since; else the rows are looked at again.
///
/// A replica may have a part of a transaction, and the head without its rows or the rows without their head. So what is a moment old is taken only as
/// far as it is older than the safe window, and all of it is at or below the head; from there on the walk is strong.
#[derive(Debug)]
pub(super) struct Walk {
    tag: Tag,
    pub(super) head: Option<Head>,
    /// Behind, or in front of, this sort key.
    from: Option<String>,
    reverse: bool,
    limit: i32,
    fresh: Freshness,
    done: bool,
}

impl Walk {
    /// So many rows at a time.
    pub(super) fn by(self, limit: i32) -> Walk {
        Walk { limit, ..self }
    }
    /// Whether there is nothing more.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }
    /// Backwards from here, where `reverse`.
    pub(super) fn towards(self, reverse: bool, from: Option<String>) -> Walk {
        Walk { reverse, from, ..self }
    }
    /// So many rows at a time.
    pub(super) fn of(self, limit: i32) -> Walk {
        Walk { limit, ..self }
    }
}

impl Sekiban {
    /// The head of a tag, with no commit left unfinished.
    pub(super) async fn head(&self, op: &Op, tag: &Tag, fresh: Freshness) -> Result<Option<Head>> {
        let mut fresh = fresh;
        for _ in 0..64 {
            let found = self.dynamo().get(op, &self.options().tags, self.keys().head(tag.as_str()), fresh).await?;
            let Some(head) = found.as_ref().map(item::head).transpose()? else { return Ok(None) };
            match head.pending {
                Some(commit) => self.finish(commit).await?,
                None => {
                    self.remember(tag, head);
                    return Ok(Some(head));
                }
            }
            fresh = Freshness::Strong;
        }
        Err(Error::unavailable(Reason::Throttled, "a tag kept getting large commits"))
    }

    /// The last row of a tag, whoever wrote it.
    pub(super) async fn latest_row(&self, op: &Op, tag: &str, fresh: Freshness) -> Result<Option<TagRow>> {
        let find = Find { reverse: true, limit: Some(1), freshness: fresh, ..self.rows_of(tag) };
        let (items, _) = self.dynamo().page(op, &find, None).await?;
        let row = items.first().map(item::tag_row).transpose()?;
        if let Some(row) = &row {
            self.saw(row.at);
        }
        Ok(row)
    }

    pub(super) fn rows_of(&self, tag: &str) -> Find {
        Find::new(&self.options().tags, HASH, text(self.keys().tag(tag)))
    }

    /// How many rows of a tag stand behind a place, up to another.
    pub(super) async fn count_rows(&self, op: &Op, tag: &str, behind: Option<SortableId>, to: Option<SortableId>) -> Result<u64> {
        let find = self.rows_of(tag);
        let find = match (behind, to) {
            (None, None) => find,
            (Some(id), None) => find.range(Range::After(RANGE.into(), text(bound(id)))),
            (behind, Some(to)) => {
                let from = behind.map_or_else(|| SortableId::MIN.to_string(), bound);
                find.range(Range::Between(RANGE.into(), text(from), text(bound(to))))
            }
        };
        self.dynamo().count(op, &find).await
    }

    pub(super) async fn walk(&self, op: &Op, tag: &Tag, from: Option<String>, fresh: Freshness) -> Result<Walk> {
        let head = self.head(op, tag, fresh).await?;
        Ok(Walk { tag: tag.clone(), head, from, reverse: false, limit: self.options().page, fresh, done: false })
    }

    /// The next rows; none at the end.
    pub(super) async fn step(&self, op: &Op, walk: &mut Walk) -> Result<Option<Vec<TagRow>>> {
        let old = self.older_than_the_window();
        while !walk.done {
            let find = Find { reverse: walk.reverse, limit: Some(walk.limit), freshness: walk.fresh, ..self.rows_of(walk.tag.as_str()) };
            let find = match (&walk.from, walk.reverse) {
                (None, _) => find,
                (Some(from), false) => find.range(Range::After(RANGE.into(), text(from.as_str()))),
                (Some(from), true) => find.range(Range::Before(RANGE.into(), text(from.as_str()))),
            };
            let (items, more) = self.dynamo().page(op, &find, None).await?;
            let mut rows = items.iter().map(item::tag_row).collect::<Result<Vec<_>>>()?;
            let mut whole = more.is_none();
            let above = |row: &TagRow, head: &Option<Head>| head.is_none_or(|head| row.at > head.pos);
            if walk.fresh == Freshness::Eventual && rows.iter().any(|row| above(row, &walk.head) || row.at > old) {
                walk.fresh = Freshness::Strong;
                walk.head = self.head(op, &walk.tag, Freshness::Strong).await?;
                continue;
            }
            if rows.iter().any(|row| above(row, &walk.head)) {
                let now = self.head(op, &walk.tag, walk.fresh).await?;
                if now != walk.head {
                    let before = std::mem::replace(&mut walk.head, now);
                    rows.retain(|row| !above(row, &before));
                    // Backwards, what came meanwhile is not waited for, unless nothing was known at all.
                    whole = whole && walk.reverse && before.is_some();
                    if rows.is_empty() && !whole {
                        walk.from = match (walk.reverse, before) {
                            (true, Some(head)) => Some(bound(head.pos)),
                            _ => walk.from.take(),
                        };
                        continue;
                    }
                }
            }
            rows.iter().for_each(|row| self.saw(row.at));
            walk.done = whole;
            walk.from = rows.last().map(TagRow::sort_key).or(walk.from.take());
            return Ok((!rows.is_empty()).then_some(rows));
        }
        Ok(None)
    }

    /// All rows behind a place, and the head that they were read under.
    pub(super) async fn view(&self, op: &Op, tag: &Tag, after: &End, fresh: Freshness) -> Result<(Vec<TagRow>, Option<Head>)> {
        let mut walk = self.walk(op, tag, after.sort_key(), fresh).await?;
        let mut all = Vec::new();
        while let Some(rows) = self.step(op, &mut walk).await? {
            all.extend(rows);
        }
        Ok((all, walk.head))
    }

    fn older_than_the_window(&self) -> SortableId {
        let now = self.dynamo().env().now();
        SortableId::threshold(now.checked_sub(self.safe_window()).unwrap_or(now))
    }

    /// The events of rows, in their order, but for those that have expired.
    pub(super) async fn hydrate(&self, op: &Op, rows: &[TagRow], fresh: Freshness) -> Result<Vec<Stored>> {
        Ok(self.hydrate_each(op, rows, fresh).await?.into_iter().flatten().collect())
    }

    /// The event of each row. DynamoDB removes what has expired item by item, so that a row may outlive its event: then there is none.
    pub(super) async fn hydrate_each(&self, op: &Op, rows: &[TagRow], fresh: Freshness) -> Result<Vec<Option<Stored>>> {
        let now = self.dynamo().env().now();
        let ids: BTreeSet<&String> = rows.iter().map(|row| &row.event).collect();
        let mut found = self.events_by_id(op, ids.iter().copied(), fresh).await?;
        let missing: Vec<&String> = ids.into_iter().filter(|id| !found.contains_key(*id)).collect();
        if !missing.is_empty() && fresh == Freshness::Eventual {
            found.extend(self.events_by_id(op, missing.into_iter(), Freshness::Strong).await?);
        }
        let event = |row: &TagRow| match found.get(&row.event) {
            Some(stored) if stored.at == row.at => Ok(Some(stored.clone())),
            Some(_) => {
                Err(Error::corrupt(LAYOUT, format!("event {}: it stands elsewhere than a row of its tag says; run verify", row.event)))
            }
            None if row.has_expired(now) => Ok(None),
            None => Err(Error::corrupt(LAYOUT, format!("event {}: a tag names it, and it is not there; run verify", row.event))),
        };
        rows.iter().map(event).collect()
    }

    pub(super) async fn events_by_id(
        &self,
        op: &Op,
        ids: impl Iterator<Item = &String>,
        fresh: Freshness,
    ) -> Result<HashMap<String, Stored>> {
        let keys: Vec<_> = ids.map(|id| self.keys().event(id)).collect();
        let mut found = HashMap::with_capacity(keys.len());
        let batches =
            keys.chunks(self.options().batch_get).map(|keys| self.dynamo().get_many(op, &self.options().events, keys.to_vec(), fresh));
        let batches: Vec<_> = stream::iter(batches.collect::<Vec<_>>()).buffered(self.options().reads).try_collect().await?;
        for item in batches.into_iter().flatten() {
            let id = match item.get(RANGE) {
                Some(crate::dynamo::item::Value::S(sk)) => sk.trim_start_matches("EVENT#").to_owned(),
                _ => continue,
            };
            found.insert(id, item::stored(&item)?);
        }
        Ok(found)
    }

    /// Puts rows, whatever is there, so many a request as the settings say.
    pub(super) async fn put_rows(&self, op: &Op, table: &str, mut rows: Vec<Item>) -> Result<(), Failure> {
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(self.options().batch_write));
            self.dynamo().put_many(op, table, std::mem::replace(&mut rows, rest)).await?;
        }
        Ok(())
    }

    /// Events on a tag between two places, strongly read; rows whose event is missing are passed over.
    pub(crate) async fn on_tag_between(&self, op: &Op, tag: &Tag, from: SortableId, to: SortableId) -> Result<Vec<Uuid>> {
        let find = self.rows_of(tag.as_str()).range(Range::Between(RANGE.into(), text(format!("{from}#")), text(bound(to))));
        let items: Vec<_> = self.dynamo().items(op, find).try_collect().await?;
        let rows = items.iter().map(item::tag_row).collect::<Result<Vec<_>>>()?;
        Ok(rows.iter().filter_map(|row| row.event.parse().ok()).collect())
    }

    /// Events by id, strongly read; those that are there.
    pub(crate) async fn stored_events(&self, op: &Op, ids: &[Uuid]) -> Result<Vec<Stored>> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        Ok(self.events_by_id(op, ids.iter(), Freshness::Strong).await?.into_values().collect())
    }

    /// One event, if it is there.
    pub(super) async fn stored_event(&self, op: &Op, id: &Uuid, fresh: Freshness) -> Result<Option<Stored>> {
        let item = self.dynamo().get(op, &self.options().events, self.keys().event(&id.to_string()), fresh).await?;
        item.as_ref().map(item::stored).transpose()
    }

    /// Events of a query, lazily.
    pub(super) fn read_query<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        if options.limit == Some(0) {
            return stream::empty().boxed();
        }
        let eventual = options.consistency == Consistency::Eventual;
        let after = match options.after.map(|position| SortableId::of(&position).map(|id| (id, position))) {
            None => None,
            Some(Some(after)) => Some(after),
            Some(None) => {
                let refused = Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
                return stream::once(async move { Err(refused.into()) }).boxed();
            }
        };
        let events = match self.covers(query) {
            Ok(covers) => {
                let sources = covers.into_iter().map(|tag| self.read_tag(tag, query, after, options).peekable()).collect();
                merge(sources, options.direction, |event: &Recorded| event.position).boxed()
            }
            Err(_) if eventual => {
                let reverse = options.direction == Direction::Backwards;
                let all = self.all(after.map(|(id, _)| id), reverse, options.limit).map_ok(|stored| stored.event);
                let behind =
                    move |position: Position| after.is_none_or(|(_, after)| if reverse { position < after } else { position > after });
                all.try_filter(move |event| std::future::ready(behind(event.position) && query.matches(&event.event_type, &event.tags)))
                    .boxed()
            }
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        match options.limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events,
        }
    }

    /// Events of one tag that match, in order.
    fn read_tag<'a>(
        &'a self,
        tag: Tag,
        query: &'a Query,
        after: Option<(SortableId, Position)>,
        options: ReadOptions,
    ) -> BoxStream<'a, Result<Recorded>> {
        let backwards = options.direction == Direction::Backwards;
        let fresh = freshness(options.consistency);
        let from = after.map(|(id, _)| if backwards { bound(id) } else { format!("{id}#") });
        let filtered = query.items().iter().any(|item| !item.types().is_empty() || item.tags().len() > 1);
        // A limit is pushed down; where the query leaves events out, or the first row is the place itself, pages are a little larger.
        let page = self.options().page;
        let limit = options
            .limit
            .map_or(page, |n| i32::try_from(if filtered { n.saturating_mul(4).max(64) } else { n + 1 }).unwrap_or(page).min(page));
        let pages = stream::once(async move {
            let op = self.dynamo().long_op();
            let walk = self.walk(&op, &tag, from, fresh).await?;
            Ok::<_, Error>(self.pages(Walk { reverse: backwards, limit, ..walk }))
        });
        pages
            .try_flatten()
            .and_then(move |rows| async move {
                let op = self.dynamo().long_op();
                let mut events: Vec<Recorded> = self.hydrate(&op, &rows, fresh).await?.into_iter().map(|stored| stored.event).collect();
                events.retain(|event| query.matches(&event.event_type, &event.tags));
                events
                    .retain(|event| after.is_none_or(|(_, after)| if backwards { event.position < after } else { event.position > after }));
                Ok(stream::iter(events.into_iter().map(Ok)))
            })
            .try_flatten()
            .boxed()
    }

    /// Pages of a walk.
    pub(super) fn pages(&self, walk: Walk) -> impl Stream<Item = Result<Vec<TagRow>>> + Send + '_ {
        stream::try_unfold(walk, move |mut walk| async move {
            let op = self.dynamo().long_op();
            Ok(self.step(&op, &mut walk).await?.map(|rows| (rows, walk)))
        })
    }
}

/// Behind every row of this id: rows are called by it, `#`, and the event's.
pub(super) fn bound(id: SortableId) -> String {
    format!("{id}$")
}

type Source<'a, T> = Peekable<BoxStream<'a, Result<T>>>;

/// Several ordered sources as one, each event once.
fn merge<'a, T: Send + 'a>(
    sources: Vec<Source<'a, T>>,
    direction: Direction,
    place: impl Fn(&T) -> Position + Copy + Send + 'a,
) -> impl Stream<Item = Result<T>> + Send + 'a {
    stream::try_unfold((sources, None::<Position>), move |(mut sources, mut last)| async move {
        loop {
            let mut best: Option<(usize, Option<Position>)> = None;
            for (at, source) in sources.iter_mut().enumerate() {
                let position = match Pin::new(source).peek().await {
                    None => continue,
                    Some(Ok(event)) => place(event),
                    Some(Err(_)) => {
                        best = Some((at, None));
                        break;
                    }
                };
                let first = |a: Position, b: Position| match direction {
                    Direction::Forwards => a.cmp(&b),
                    Direction::Backwards => b.cmp(&a),
                };
                if best.is_none_or(|(_, so_far)| so_far.is_some_and(|so_far| first(position, so_far) == Ordering::Less)) {
                    best = Some((at, Some(position)));
                }
            }
            let Some((at, position)) = best else { return Ok(None) };
            let Some(event) = sources[at].next().await else { continue };
            let event = event?;
            if last != position {
                last = position;
                return Ok(Some((event, (sources, last))));
            }
        }
    })
}
