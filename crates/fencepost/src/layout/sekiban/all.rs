//! Reading all events by the index: every shard that there may be, merged, a page at a time, and of each large commit all or nothing.
//!
//! The index is a moment old, item by item, so that it may show a part of a large commit for a while. The list of large commits is looked at before
//! the first page. Those on it are taken from the table itself, in place of what the index shows of them. One that is not on it was settled before, and
//! the index shows all of it; or it was published since, and then it is handed over whole if its first event is still ahead, or not at all.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet, VecDeque};

use futures::TryStreamExt;
use futures::future::try_join_all;
use futures::stream::{self, Stream};
use jiff::Timestamp;

use super::Sekiban;
use super::item::{self, ALL_KEY, INDEX, SORTABLE, STAGED, Stored, TIMESTAMP};
use super::listed::{Listed, Place};
use super::suid::SortableId;
use crate::dynamo::item::text;
use crate::dynamo::{Find, Freshness, Key, Op, Range, Terms};
use crate::error::{Error, Result};
use crate::event::CommitId;
use crate::position::Position;

/// Reading the index of all events, as far as it has come.
#[derive(Debug)]
pub(crate) struct Sweep {
    from: Option<SortableId>,
    reverse: bool,
    shards: Vec<Shard>,
    /// Commits that come from the table; none: nothing of them comes.
    large: BTreeMap<CommitId, Option<Large>>,
    /// Commits that the index shows, all of them.
    settled: HashSet<CommitId>,
    /// What was written before this, and is not on the list, was settled when this began.
    trusted: Timestamp,
    /// The last event handed over.
    last: Option<Position>,
    /// Events asked for at a time.
    page: i32,
}

#[derive(Debug)]
struct Shard {
    find: Find,
    /// Where its next page begins; none: it is at its end.
    next: Option<Option<Key>>,
    ready: VecDeque<Stored>,
}

/// The events of a large commit that are still to come.
#[derive(Debug)]
struct Large {
    places: VecDeque<Place>,
    ready: VecDeque<Stored>,
}

impl Shard {
    /// Whether the next page is needed before the first of these events can be handed over: events of equal ids are in any order in the index, and
    /// a page may end between them.
    fn is_hungry(&self) -> bool {
        let whole = self.ready.front().map(|stored| stored.at) != self.ready.back().map(|stored| stored.at);
        self.next.is_some() && !whole
    }
}

impl Sweep {
    /// Whether an event of a large commit, met elsewhere, belongs to what is handed over.
    pub(crate) fn shows(&self, stored: &Stored) -> bool {
        stored.staged.is_none_or(|commit| match self.large.get(&commit) {
            Some(large) => large.is_some(),
            None => self.settled.contains(&commit) || stored.event.recorded_at < self.trusted,
        })
    }
    /// Leaves out events of large commits that are known by their places, before they are read.
    pub(crate) fn leave_out(&mut self, known: impl Fn(SortableId, &uuid::Uuid) -> bool) {
        for large in self.large.values_mut().flatten() {
            large.places.retain(|(at, id)| !known(*at, id));
        }
    }

    fn in_order(&self, a: &Stored, b: &Stored) -> Ordering {
        let order = a.event.position.cmp(&b.event.position);
        if self.reverse { order.reverse() } else { order }
    }

    /// The events of a commit that are asked for, in the order in which they are; none where the first of them was passed already.
    fn ahead(&self, places: &[Place]) -> Option<Large> {
        let asked = |(at, _): &&Place| self.from.is_none_or(|from| if self.reverse { *at <= from } else { *at >= from });
        let mut places: VecDeque<Place> = places.iter().filter(asked).copied().collect();
        if self.reverse {
            places = places.into_iter().rev().collect();
        }
        let passed = places
            .front()
            .and_then(|(at, id)| at.position(id))
            .zip(self.last)
            .is_some_and(|(first, last)| if self.reverse { first >= last } else { first <= last });
        (!passed).then_some(Large { places, ready: VecDeque::new() })
    }

    fn fronts(&self) -> impl Iterator<Item = &Stored> {
        let large = self.large.values().flatten().filter_map(|large| large.ready.front());
        self.shards.iter().filter_map(|shard| shard.ready.front()).chain(large)
    }

    fn pop(&mut self) -> Option<Stored> {
        let next = self.fronts().map(|stored| stored.event.position);
        let next = if self.reverse { next.max() } else { next.min() }?;
        let large = self.large.values_mut().flatten().map(|large| &mut large.ready);
        let mut all = self.shards.iter_mut().map(|shard| &mut shard.ready).chain(large);
        let source = all.find(|ready| ready.front().is_some_and(|stored| stored.event.position == next))?;
        let stored = source.pop_front();
        self.last = Some(next);
        stored
    }
}

impl Sekiban {
    /// All events by the index, from an id on, itself included: a moment old perhaps. Lazily.
    pub(super) fn all(
        &self,
        from: Option<SortableId>,
        reverse: bool,
        limit: Option<u64>,
    ) -> impl Stream<Item = Result<Stored>> + Send + '_ {
        stream::once(async move { self.sweep(from, reverse, limit).await })
            .and_then(move |sweep| async move {
                Ok(stream::try_unfold(
                    sweep,
                    move |mut sweep| async move { Ok(self.swept(&mut sweep).await?.map(|stored| (stored, sweep))) },
                ))
            })
            .try_flatten()
    }

    /// The same, so many of them, and those that have the same id as the last: whoever goes on behind that id has missed none.
    pub(super) fn all_up_to(&self, from: Option<SortableId>, limit: u64) -> impl Stream<Item = Result<Stored>> + Send + '_ {
        stream::once(async move { Ok::<_, Error>((self.sweep(from, false, Some(limit)).await?, 0, None)) })
            .and_then(move |begun: (Sweep, u64, Option<SortableId>)| async move {
                Ok(stream::try_unfold(begun, move |(mut sweep, taken, last)| async move {
                    if taken >= limit && (last.is_none() || self.next_id(&mut sweep).await? != last) {
                        return Ok::<_, Error>(None);
                    }
                    let next = self.swept(&mut sweep).await?;
                    Ok(next.map(|stored| {
                        let at = stored.at;
                        (stored, (sweep, taken + 1, Some(at)))
                    }))
                }))
            })
            .try_flatten()
    }

    /// Begins to read the index of all events, every shard that there may be, and the large commits on the list.
    pub(crate) async fn sweep(&self, from: Option<SortableId>, reverse: bool, limit: Option<u64>) -> Result<Sweep> {
        let listed = self.listed_in_rows(&self.dynamo().long_op()).await?;
        self.sweep_over(&listed, from, reverse, limit).await
    }

    /// The same with a list that was read: those on it that are not in rows yet are passed over.
    pub(crate) async fn sweep_over(&self, listed: &[Listed], from: Option<SortableId>, reverse: bool, limit: Option<u64>) -> Result<Sweep> {
        let op = self.dynamo().long_op();
        let keys = self.shard_keys(&op).await?;
        let page = share(limit, keys.len(), self.options().page);
        let part = |shard| {
            let find = Find { reverse, limit: Some(page), ..self.all_of(shard) };
            let find = match from {
                None => find,
                Some(id) if reverse => find.range(Range::Between(SORTABLE.into(), text(SortableId::MIN.to_string()), text(id.to_string()))),
                Some(id) => find.range(Range::From(SORTABLE.into(), text(id.to_string()))),
            };
            Shard { find, next: Some(None), ready: VecDeque::new() }
        };
        let (shards, trusted) = (keys.into_iter().map(part).collect(), self.trusted());
        let (large, settled) = (BTreeMap::new(), HashSet::new());
        let mut sweep = Sweep { from, reverse, shards, large, settled, trusted, last: None, page };
        for one in listed {
            let large = match one.reaches(from, reverse) && !one.is_open() {
                true => self.places_of(&op, one.commit).await?.and_then(|places| sweep.ahead(&places)),
                false => None,
            };
            sweep.large.insert(one.commit, large);
        }
        Ok(sweep)
    }

    /// What was written before this and is on no list is shown by the index, all of it.
    fn trusted(&self) -> Timestamp {
        let now = self.dynamo().env().now();
        now.checked_sub(self.settling()).unwrap_or(now)
    }

    /// The next event of a sweep: shards are read side by side, a page at a time, and merged.
    pub(crate) async fn swept(&self, sweep: &mut Sweep) -> Result<Option<Stored>> {
        while self.fill(sweep, Shard::is_hungry).await? {}
        Ok(sweep.pop())
    }

    /// The id of the next event.
    async fn next_id(&self, sweep: &mut Sweep) -> Result<Option<SortableId>> {
        while self.fill(sweep, |shard| shard.next.is_some() && shard.ready.is_empty()).await? {}
        Ok(sweep.fronts().map(|stored| stored.at).min())
    }

    /// Reads a page of each shard that needs one, and some events of each large commit that has none ready; whether there was any.
    async fn fill(&self, sweep: &mut Sweep, hungry: impl Fn(&Shard) -> bool) -> Result<bool> {
        let op = self.dynamo().long_op();
        let hungry: Vec<usize> = (0..sweep.shards.len()).filter(|n| hungry(&sweep.shards[*n])).collect();
        let pages = hungry.iter().map(|n| {
            let (op, Shard { find, next, .. }) = (&op, &sweep.shards[*n]);
            async move { self.dynamo().page(op, find, next.clone().flatten()).await }
        });
        let pages = try_join_all(pages).await?;
        let mut filled = !pages.is_empty();
        for (n, (items, after)) in hungry.into_iter().zip(pages) {
            let mut kept = Vec::new();
            for item in &items {
                let stored = item::stored(item)?;
                self.saw(stored.at);
                if self.is_shown(&op, sweep, &stored).await? {
                    kept.push(stored);
                }
            }
            let nothing = kept.is_empty();
            let mut ready: Vec<Stored> = std::mem::take(&mut sweep.shards[n].ready).into_iter().chain(kept).collect();
            ready.sort_by(|a, b| sweep.in_order(a, b));
            let shard = &mut sweep.shards[n];
            (shard.ready, shard.next) = (ready.into(), after.map(Some));
            if nothing {
                // Behind a large commit that is passed over.
                shard.find.limit = Some(self.options().page);
            }
        }
        let batch = usize::try_from(sweep.page).unwrap_or(1).clamp(1, self.options().batch_get);
        for large in sweep.large.values_mut().flatten() {
            while large.ready.is_empty() && !large.places.is_empty() {
                let some: Vec<Place> = large.places.drain(..batch.min(large.places.len())).collect();
                let ids: Vec<_> = some.iter().map(|(_, id)| *id).collect();
                let found = self.stored_events(&op, &ids).await?;
                large.ready = some.iter().filter_map(|(_, id)| found.iter().find(|stored| stored.event.id == *id).cloned()).collect();
                filled = true;
            }
        }
        Ok(filled)
    }

    /// Whether what the index shows of an event is handed over. One of a large commit that nobody has listed is looked into.
    async fn is_shown(&self, op: &Op, sweep: &mut Sweep, stored: &Stored) -> Result<bool> {
        let Some(commit) = stored.staged else { return Ok(true) };
        if sweep.large.contains_key(&commit) {
            return Ok(false);
        }
        if sweep.shows(stored) {
            return Ok(true);
        }
        let is_open = self.listed(op).await?.iter().any(|one| one.commit == commit && one.is_open());
        // Where its events stand is known once all its rows are there.
        let large = match is_open {
            true => None,
            false => match self.places_of(op, commit).await? {
                Some(places) => sweep.ahead(&places),
                None => {
                    sweep.settled.insert(commit);
                    return Ok(true);
                }
            },
        };
        sweep.large.insert(commit, large);
        Ok(false)
    }

    /// How many events stand behind an id. Where no large commit is about, nothing of them travels.
    pub(super) async fn count_all(&self, op: &Op, since: Option<SortableId>) -> Result<u64> {
        let from = since.map(|since| since.next());
        let listed = self.listed_in_rows(op).await?;
        if !listed.iter().any(|one| one.reaches(from, false)) {
            let settled = Terms::when("attribute_not_exists(#g) OR #t < :t").name("#g", STAGED).name("#t", TIMESTAMP);
            let settled = settled.value(":t", text(item::written(self.trusted())));
            let (mut count, mut whole) = (0, true);
            for shard in self.shard_keys(op).await? {
                let find = self.all_of(shard);
                let find = match since {
                    Some(id) => find.range(Range::After(SORTABLE.into(), text(id.to_string()))),
                    None => find,
                };
                let (met, of) = self.dynamo().count_some(op, &find, &settled).await?;
                count += met;
                whole &= met == of;
            }
            if whole {
                return Ok(count);
            }
        }
        // They are told one by one: of a large commit all or none.
        let mut sweep = self.sweep_over(&listed, from, false, None).await?;
        let mut count = 0;
        while self.swept(&mut sweep).await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// The event that stands at a position, if the index of all events shows it.
    pub(crate) async fn at_position(&self, id: SortableId, position: Position) -> Result<Option<Stored>> {
        let mut sweep = self.sweep(Some(id), false, Some(2)).await?;
        while let Some(stored) = self.swept(&mut sweep).await? {
            match stored.event.position.cmp(&position) {
                Ordering::Less => {}
                met => return Ok(met.is_eq().then_some(stored)),
            }
        }
        Ok(None)
    }

    /// A partition of the index of all events.
    pub(super) fn all_of(&self, shard: Option<u32>) -> Find {
        let find = Find::new(&self.options().events, ALL_KEY, text(self.keys().all_events(shard)));
        Find { index: Some(INDEX.into()), freshness: Freshness::Eventual, ..find }
    }

    pub(super) async fn shard_keys(&self, op: &Op) -> Result<Vec<Option<u32>>> {
        let shards = self.shards(op).await?;
        Ok(std::iter::once(None).chain((0..shards).filter(|_| shards > 1).map(Some)).collect())
    }
}

/// What one shard is asked for, at most a page: its share, and one more, which tells whether an id ends there.
fn share(limit: Option<u64>, shards: usize, page: i32) -> i32 {
    let share = |limit: u64| i32::try_from(limit.div_ceil(shards.max(1) as u64).saturating_add(1)).unwrap_or(page);
    limit.map_or(page, |limit| share(limit).clamp(1, page))
}
