//! Reading series: their ends, their tails, and events of a query merged lazily in order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::pin::Pin;

use futures::stream::{self, BoxStream, Peekable};
use futures::{Stream, StreamExt, TryStreamExt};

use super::Ledger;
use super::item::{self, HASH, Place, RANGE, Slot};
use super::series::{End, Series};
use crate::dynamo::item::text;
use crate::dynamo::{Find, Freshness, Op, Range};
use crate::error::{Error, Refused, Result};
use crate::event::Recorded;
use crate::log::{Consistency, Direction, ReadOptions};
use crate::position::Position;
use crate::query::Query;

/// The highest version there can be.
const LAST: u64 = u64::MAX >> 1;

pub(super) fn freshness(consistency: Consistency) -> Freshness {
    match consistency {
        Consistency::Strong => Freshness::Strong,
        Consistency::Eventual => Freshness::Eventual,
    }
}

/// Contiguous slots of a series.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) slots: Vec<Slot>,
    pub(crate) is_last: bool,
}

impl Ledger {
    pub(super) fn find(&self, series: &Series, from: u64, to: u64) -> Find {
        Find::new(self.table(), HASH, text(series.key(self.namespace()))).range(Range::numbers(RANGE, from, to))
    }

    /// The last slot of a series; one request.
    pub(super) async fn last_slot(&self, op: &Op, series: &Series, freshness: Freshness) -> Result<Option<Slot>> {
        let find = Find { reverse: true, limit: Some(1), freshness, ..self.find(series, 1, LAST) };
        let (items, _) = self.dynamo().page(op, &find, None).await?;
        items.first().map(|item| item::slot(self.namespace(), item)).transpose()
    }

    /// Where a series ends, as remembered, or else as read, a moment old perhaps: a put that is too low fails and tells.
    pub(super) async fn end(&self, op: &Op, series: &Series) -> Result<End> {
        if let Some(end) = self.remembered(series) {
            return Ok(end);
        }
        let end = self.last_slot(op, series, Freshness::Eventual).await?.map_or(End::default(), |slot| slot.end());
        self.remember(series, end);
        Ok(end)
    }

    /// The contiguous run of slots behind a version. A version that shows before the one below it is left for the next read.
    pub(super) async fn tail(&self, op: &Op, series: &Series, after: u64, freshness: Freshness) -> Result<Vec<Slot>> {
        let find = Find { freshness, ..self.find(series, after + 1, LAST) };
        let mut slots = Vec::new();
        let mut items = std::pin::pin!(self.dynamo().items(op, find));
        while let Some(item) = items.try_next().await? {
            let slot = item::slot(self.namespace(), &item)?;
            if slot.version != after + 1 + slots.len() as u64 {
                break;
            }
            slots.push(slot);
        }
        if let Some(last) = slots.last() {
            self.remember(series, last.end());
        }
        Ok(slots)
    }

    /// One page of a series' slots behind a version, for those who come again for more.
    pub(crate) async fn slots_after(&self, op: &Op, series: &Series, after: u64, limit: Option<i32>) -> Result<Vec<Slot>> {
        self.page_after(op, series, after, limit).await.map(|page| page.slots)
    }

    /// A page, of so many at most; at half the units what was there a moment ago. A slot never changes, and none comes before one that is there.
    pub(crate) async fn page_shown(&self, op: &Op, series: &Series, after: u64, limit: Option<i32>, freshness: Freshness) -> Result<Page> {
        let find = Find { limit, freshness, ..self.find(series, after + 1, LAST) };
        self.page(op, series, after, find).await
    }

    /// A page of so many, and whether there is more.
    pub(super) async fn page_after(&self, op: &Op, series: &Series, after: u64, limit: Option<i32>) -> Result<Page> {
        let find = Find { limit, ..self.find(series, after + 1, LAST) };
        self.page(op, series, after, find).await
    }

    async fn page(&self, op: &Op, series: &Series, after: u64, find: Find) -> Result<Page> {
        let (items, next) = self.dynamo().page(op, &find, None).await?;
        let mut page = Page { slots: Vec::with_capacity(items.len()), is_last: next.is_none() };
        for item in &items {
            let slot = item::slot(self.namespace(), item)?;
            if slot.version != after + 1 + page.slots.len() as u64 {
                page.is_last = true;
                break;
            }
            page.slots.push(slot);
        }
        if let Some(last) = page.slots.last() {
            self.remember(series, last.end());
        }
        Ok(page)
    }

    /// Newest first, the slots of a series down to the first that begins before this number: what can stand behind it.
    pub(super) async fn slots_behind(&self, op: &Op, series: &Series, number: u64) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        let find = Find { reverse: true, limit: Some(32), ..self.find(series, 1, LAST) };
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().page(op, &find, start).await?;
            for item in &items {
                let slot = item::slot(self.namespace(), item)?;
                let reached = matches!(slot.place, Place::Lane { before, .. } if before < number);
                slots.push(slot);
                if reached {
                    return Ok(slots);
                }
            }
            if next.is_none() {
                return Ok(slots);
            }
            start = next;
        }
    }

    /// Events of a query, lazily.
    pub(super) fn read_query<'a>(&'a self, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        if options.limit == Some(0) {
            return stream::empty().boxed();
        }
        let covers = match self.covers(query) {
            Ok(covers) => covers,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        if let Some(after) = options.after
            && after.as_number().is_some() != self.settings().counted()
        {
            let refused = Refused::Foreign { what: "position", of: "another store".into(), here: "this one".into() };
            return stream::once(async move { Err(refused.into()) }).boxed();
        }
        let sources = covers.into_iter().map(|cover| self.read_series(cover, query, options).peekable()).collect();
        let merged = merge(sources, options.direction);
        match options.limit {
            Some(limit) => merged.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => merged.boxed(),
        }
    }

    /// Events of one cover that match, in order.
    fn read_series<'a>(&'a self, series: Series, query: &'a Query, options: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let backwards = options.direction == Direction::Backwards;
        let filtered = query.items().iter().any(|item| !item.types().is_empty() || item.tags().len() > 1);
        // A limit is pushed down; where the query leaves events out, pages are larger than what is wanted of them.
        let limit = options.limit.and_then(|n| i32::try_from(if filtered { n.saturating_mul(4).max(64) } else { n }).ok());
        let pages = stream::once(async move {
            let op = self.dynamo().long_op();
            let (from, to) = match options.after {
                None => (1, LAST),
                Some(after) => self.seek(&op, &series, after, backwards).await?,
            };
            let find = Find { reverse: backwards, limit, freshness: freshness(options.consistency), ..self.find(&series, from, to) };
            Ok::<_, Error>(self.pages(find, (!backwards).then_some(from)))
        })
        .try_flatten();
        pages
            .and_then(move |slots| async move {
                let op = self.dynamo().long_op();
                let mut met = self.judge(&op, &slots, query).await?;
                met.retain(|m| options.after.is_none_or(|after| if backwards { m.position < after } else { m.position > after }));
                met.sort_by(|a, b| if backwards { b.position.cmp(&a.position) } else { a.position.cmp(&b.position) });
                self.hydrate(&op, met).await
            })
            .map_ok(|events| stream::iter(events.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }

    /// Pages of slots; forwards only the contiguous run from `expected` on.
    pub(super) fn pages(&self, find: Find, expected: Option<u64>) -> impl Stream<Item = Result<Vec<Slot>>> + Send + '_ {
        stream::try_unfold((Some(None), expected, find), move |(next, mut expected, find)| async move {
            let Some(start) = next else { return Ok(None) };
            let op = self.dynamo().long_op();
            let (items, mut after) = self.dynamo().page(&op, &find, start).await?;
            let mut slots = Vec::with_capacity(items.len());
            for item in &items {
                let slot = item::slot(self.namespace(), item)?;
                if let Some(version) = expected.as_mut() {
                    if slot.version != *version {
                        after = None;
                        break;
                    }
                    *version += 1;
                }
                slots.push(slot);
            }
            Ok(Some((slots, (after.map(Some), expected, find))))
        })
    }

    /// The versions of a series that can hold events behind a position: a search over what slots say of their place.
    async fn seek(&self, op: &Op, series: &Series, after: Position, backwards: bool) -> Result<(u64, u64)> {
        let Some(end) = self.last_slot(op, series, Freshness::Strong).await? else { return Ok((1, LAST)) };
        // The first version that stands wholly behind the position.
        let (mut low, mut high) = (1, end.version + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let slot = self.slot_surely(op, series, middle).await?;
            if is_behind(&slot, after) { high = middle } else { low = middle + 1 }
        }
        Ok(if backwards { (1, low.min(LAST)) } else { (low.saturating_sub(1).max(1), LAST) })
    }
}

/// Whether all events of a slot stand behind a position.
fn is_behind(slot: &Slot, position: Position) -> bool {
    match (&slot.place, position.as_number(), position.as_stamped()) {
        (Place::Lane { before, .. }, Some(number), _) => *before >= number,
        (_, _, Some((stamp, ..))) => slot.stamp > stamp,
        _ => true,
    }
}

type Source<'a> = Peekable<BoxStream<'a, Result<Recorded>>>;

/// Several ordered sources as one, each event once.
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
                let first = |a: Position, b: Position| match direction {
                    Direction::Forwards => a.cmp(&b),
                    Direction::Backwards => b.cmp(&a),
                };
                if best.is_none_or(|(_, so_far)| first(position, so_far) == Ordering::Less) {
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

// What the feed over lanes reads.
impl Ledger {
    /// The last sequence of every lane, as a cut that nothing reaches over: what a commit within it follows is within it too.
    pub(crate) async fn lane_ends(&self) -> Result<BTreeMap<u8, u64>> {
        let op = self.dynamo().long_op();
        let mut closed = self.lane_ends_in_turn(&op).await?;
        if self.settings().lanes().is_none_or(|lanes| lanes < 2) {
            return Ok(closed);
        }
        // Ends are read one after the other: a commit may show on one lane whose predecessor came to another after that was read. Whoever did so is not
        // among those of the first pass, since all that those follow is in the second.
        let mut cut = self.lane_ends_in_turn(&op).await?;
        loop {
            let mut raised = cut.clone();
            for (lane, to) in &cut {
                let mut after = closed.get(lane).copied().unwrap_or(0);
                while after < *to {
                    let slots = self.slots_after(&op, &Series::Lane(*lane), after, None).await?;
                    let Some(last) = slots.last().map(|slot| slot.version) else { break };
                    for (on, seq) in slots.iter().filter(|slot| slot.version <= *to).flat_map(|slot| &slot.deps) {
                        let end = raised.entry(*on).or_default();
                        *end = (*end).max(*seq);
                    }
                    after = last;
                }
            }
            if raised == cut {
                return Ok(cut);
            }
            (closed, cut) = (cut, raised);
        }
    }

    async fn lane_ends_in_turn(&self, op: &Op) -> Result<BTreeMap<u8, u64>> {
        let mut ends = BTreeMap::new();
        for lane in 0..self.settings().lanes().unwrap_or(0) {
            if let Some(slot) = self.last_slot(op, &Series::Lane(lane), Freshness::Strong).await? {
                ends.insert(lane, slot.version);
            }
        }
        Ok(ends)
    }

    /// The events of a slot that match, each with its index in the commit.
    pub(crate) async fn events_of(&self, slot: Slot, query: &Query) -> Result<Vec<(u32, Recorded)>> {
        let op = self.dynamo().long_op();
        let mut met = self.judge(&op, std::slice::from_ref(&slot), query).await?;
        met.sort_by_key(|m| m.index());
        let indexes: Vec<u32> = met.iter().map(|m| m.index()).collect();
        Ok(indexes.into_iter().zip(self.hydrate(&op, met).await?).collect())
    }
}
