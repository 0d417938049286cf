//! Reading a stream: from its start, from its snapshot, since a token, lazily.
//!
//! v5 keeps a stream together and is read strongly. v3 spreads it over a shard, so it is read by the index, which may lag: what the index
//! lacks, in between or at the end, is fetched strongly by its key. Where it should end the lock tells, if the current snapshot was read;
//! else a look behind its end.
//!
//! No page, batch or index is an instant: queries and batches are read-committed beside a transaction, so that of a commit of several events
//! the later may show without the earlier, or the earlier alone. A hole is fetched by key, at any freshness, and costs nothing where there is
//! none. What must be there and stays away is lost, and an error; in v3 only within a commit, since it leaves its numbers to its callers.

use std::ops::RangeInclusive;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};

use super::EventStoreAdapter;
use super::item::{self, AID, Row, SEQ, StoredSnapshot};
use super::settings::{Kind, LAST};
use super::token::End;
use crate::dynamo::item::text;
use crate::dynamo::{Find, Freshness, Key, Op, Range};
use crate::error::{Error, Reason, Result};
use crate::event::{Recorded, StreamName};
use crate::log::{Consistency, Direction};
use crate::stream::{LoadOptions, Loaded, Origin, Snapshot, StreamReadOptions};

/// Events that are fetched by key at a time.
const BY_KEY: u64 = 100;
/// How often one that must be there is looked for. A commit lands within milliseconds.
const LOOKS: u32 = 7;

/// Where a stream of v3 ended when its lock was read: as many events as that counts, and the last of them at its time. The lock alone would
/// not do, since v3 leaves the numbers of events to its callers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Locked {
    pub(super) version: u64,
    pub(super) millis: Option<i64>,
}

impl Locked {
    /// Whether this is the event that the lock was last moved with.
    fn is_at(&self, row: &Row) -> bool {
        self.version == row.version && self.millis == Some(row.millis())
    }
}

/// Which events must be there, since others of their commit, or in v5 of their stream, are.
#[derive(Debug, Clone, Copy)]
struct Sure {
    upto: u64,
    from: u64,
}

impl Sure {
    const NONE: Sure = Sure { upto: 0, from: u64::MAX };

    fn holds(&self, version: u64) -> bool {
        version <= self.upto || version >= self.from
    }
}

/// Which events of a stream, and in which order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// The first and the last that are wanted.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) direction: Direction,
    /// A page's most.
    pub(super) limit: Option<i32>,
    pub(super) fresh: Freshness,
    /// Where it ends at least, if that was read.
    locked: Option<Locked>,
}

impl Reach {
    /// All behind this version.
    pub(super) fn after(version: u64) -> Self {
        let (direction, fresh) = (Direction::Forwards, Freshness::Strong);
        Self { first: version.saturating_add(1), last: LAST, direction, limit: None, fresh, locked: None }
    }
    pub(super) fn backwards(self) -> Self {
        Self { direction: Direction::Backwards, ..self }
    }
    pub(super) fn limit(self, limit: i32) -> Self {
        Self { limit: Some(limit), ..self }
    }
    pub(super) fn fresh(self, fresh: Freshness) -> Self {
        Self { fresh, ..self }
    }
    pub(super) fn locked(self, locked: Locked) -> Self {
        Self { locked: Some(locked), ..self }
    }
    fn is_backwards(&self) -> bool {
        self.direction == Direction::Backwards
    }
}

/// How far a read has come.
struct Cursor {
    asked: Reach,
    /// What is wanted still.
    reach: Reach,
    /// When the last event that was met occurred.
    millis: Option<i64>,
    /// Whether any was met.
    began: bool,
    /// What those that were met tell of the others: up to the end of the last one's commit, forwards; from the start of its commit, backwards.
    sure: Sure,
    /// Where the next page begins; none: there is none.
    page: Option<Option<Key>>,
}

impl Cursor {
    fn new(reach: Reach) -> Self {
        let page = (reach.first <= reach.last).then_some(None);
        Self { asked: reach, reach, millis: None, began: false, sure: Sure::NONE, page }
    }

    /// Whether all were met that the lock counted: the last of them, or none since what was read of the snapshot.
    fn is_whole(&self) -> bool {
        let Some(locked) = self.reach.locked else { return false };
        locked.version + 1 == self.reach.first && (self.millis.is_none() || self.millis == locked.millis)
    }
}

pub(super) fn freshness(consistency: Consistency) -> Freshness {
    match consistency {
        Consistency::Strong => Freshness::Strong,
        Consistency::Eventual => Freshness::Eventual,
    }
}

impl EventStoreAdapter {
    fn find(&self, stream: &StreamName, reach: &Reach) -> Find {
        let mut find = Find::new(&self.options().journal, AID, text(stream.as_str())).range(Range::numbers(SEQ, reach.first, reach.last));
        (find.reverse, find.limit, find.freshness) = (reach.is_backwards(), reach.limit, reach.fresh);
        if let Kind::V3(keys) = &self.options().kind {
            // An index is never read strongly.
            (find.index, find.freshness) = (Some(keys.journal_index.clone()), Freshness::Eventual);
        }
        find
    }

    /// Pages of events, in order.
    pub(super) fn rows<'a>(&'a self, op: &'a Op, stream: &'a StreamName, reach: Reach) -> impl Stream<Item = Result<Vec<Row>>> + Send + 'a {
        stream::try_unfold(Cursor::new(reach), move |cursor| self.next_page(op, stream, cursor))
    }

    async fn next_page(&self, op: &Op, stream: &StreamName, mut cursor: Cursor) -> Result<Option<(Vec<Row>, Cursor)>> {
        let Some(start) = cursor.page.take() else { return Ok(None) };
        let (items, next) = self.dynamo().page(op, &self.find(stream, &cursor.asked), start).await?;
        let rows = items.iter().map(|item| item::row(self.options(), stream, item)).collect::<Result<Vec<_>>>()?;
        cursor.page = next.map(Some);
        let rows = self.whole(op, stream, &mut cursor, rows).await?;
        Ok(Some((rows, cursor)))
    }

    /// The first event that is sure to be there where this one is.
    fn first_beside(&self, row: &Row) -> u64 {
        match self.options().kind {
            Kind::V5 { .. } => 0,
            Kind::V3(_) => row.first(),
        }
    }

    /// Adds what a page lacks, in between and at the end.
    async fn whole(&self, op: &Op, stream: &StreamName, cursor: &mut Cursor, page: Vec<Row>) -> Result<Vec<Row>> {
        let mut rows = Vec::with_capacity(page.len());
        for row in page {
            if cursor.reach.is_backwards() {
                rows.extend(self.above(op, stream, cursor, &row).await?.into_iter().rev());
                cursor.reach.last = row.version - 1;
                cursor.sure = Sure { from: self.first_beside(&row), ..Sure::NONE };
            } else {
                let sure = Sure { from: self.first_beside(&row), ..cursor.sure };
                rows.extend(self.by_key(op, stream, cursor.reach.first..=row.version - 1, sure).await?);
                (cursor.reach.first, cursor.millis) = (row.version + 1, Some(row.millis()));
                cursor.sure = Sure { upto: row.last(), ..Sure::NONE };
            }
            cursor.began = true;
            rows.push(row);
        }
        if cursor.page.is_none() {
            rows.extend(self.rest(op, stream, cursor).await?);
        }
        Ok(rows)
    }

    /// Whether what is asked for may lie behind the end of an index.
    fn may_lag(&self, reach: &Reach) -> bool {
        matches!(self.options().kind, Kind::V3(_)) && reach.fresh == Freshness::Strong
    }

    /// Those above a row, backwards: up to the row before it, or up to the end.
    async fn above(&self, op: &Op, stream: &StreamName, cursor: &Cursor, row: &Row) -> Result<Vec<Row>> {
        let reach = &cursor.reach;
        let sure = Sure { upto: row.last(), ..cursor.sure };
        let last = match cursor.began {
            true => reach.last,
            false if self.may_lag(reach) && !reach.locked.is_some_and(|locked| locked.is_at(row)) => reach.last,
            false => row.last().min(reach.last),
        };
        self.by_key(op, stream, row.version + 1..=last, sure).await
    }

    /// Those behind the last page.
    async fn rest(&self, op: &Op, stream: &StreamName, cursor: &Cursor) -> Result<Vec<Row>> {
        let reach = &cursor.reach;
        if reach.is_backwards() {
            if !cursor.began && !self.may_lag(reach) {
                return Ok(Vec::new());
            }
            let mut rows = self.by_key(op, stream, reach.first..=reach.last, cursor.sure).await?;
            rows.reverse();
            return Ok(rows);
        }
        let last = if self.may_lag(reach) && !cursor.is_whole() { reach.last } else { reach.last.min(cursor.sure.upto) };
        self.by_key(op, stream, reach.first..=last, cursor.sure).await
    }

    /// Events by their keys, strongly, one more each time, up to where there are none and none must be.
    async fn by_key(&self, op: &Op, stream: &StreamName, versions: RangeInclusive<u64>, mut sure: Sure) -> Result<Vec<Row>> {
        let (mut from, to) = versions.into_inner();
        let (mut rows, mut count): (Vec<Row>, u64) = (Vec::new(), 1);
        while from <= to {
            // A key under which nothing is costs a unit too.
            let (wanted, next) = if from >= sure.from {
                (BY_KEY, count)
            } else if from <= sure.upto {
                ((sure.upto - from + 1).min(BY_KEY), count)
            } else {
                (count, (count * 2).min(BY_KEY))
            };
            let last = to.min(from + wanted - 1);
            let found = self.batch(op, stream, from..=last, sure).await?;
            match found.last() {
                Some(highest) => sure.upto = sure.upto.max(highest.last()),
                // Beyond those that need not be there.
                None if sure.from > last && sure.from <= to => {
                    from = sure.from;
                    continue;
                }
                None => break,
            }
            rows.extend(found);
            (from, count) = (last + 1, next);
        }
        Ok(rows)
    }

    /// A batch of events by their keys; once more where one lacks below another, and until those are there that must be.
    async fn batch(&self, op: &Op, stream: &StreamName, versions: RangeInclusive<u64>, sure: Sure) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        for attempt in 0u32.. {
            let lacking = |rows: &[Row]| -> Vec<u64> {
                versions.clone().filter(|version| rows.binary_search_by_key(version, |row| row.version).is_err()).collect()
            };
            rows.extend(self.fetch(op, stream, lacking(&rows).into_iter(), Freshness::Strong).await?);
            rows.sort_by_key(|row| row.version);
            let lacking = lacking(&rows);
            let beside = |version: u64| rows.iter().any(|row| (self.first_beside(row)..=row.last()).contains(&version));
            let Some(lost) = lacking.iter().copied().find(|version| sure.holds(*version) || beside(*version)) else {
                let below = lacking.first().zip(rows.last()).is_some_and(|(lacking, row)| *lacking < row.version);
                if below && attempt == 0 {
                    continue;
                }
                return Ok(rows);
            };
            let pause = self.dynamo().pause(attempt, Reason::Unreachable);
            if op.is_over(pause) {
                return Err(Error::unavailable(Reason::Unreachable, format!("event of {stream} @{lost} did not show in time")));
            }
            if attempt + 1 >= LOOKS {
                let what = format!("event of {stream} @{lost} is missing, and others that were written with it or after it are there");
                return Err(Error::corrupt(self.options().layout(), what));
            }
            if attempt > 0 {
                self.dynamo().env().sleep(pause).await;
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// These events, those that are there, in order.
    pub(super) async fn fetch(
        &self,
        op: &Op,
        stream: &StreamName,
        versions: impl Iterator<Item = u64>,
        fresh: Freshness,
    ) -> Result<Vec<Row>> {
        let keys = versions.map(|version| item::journal_key(self.options(), stream, version)).collect();
        let items = self.dynamo().get_many(op, &self.options().journal, keys, fresh).await?;
        let mut rows = items.iter().map(|item| item::row(self.options(), stream, item)).collect::<Result<Vec<_>>>()?;
        rows.sort_by_key(|row| row.version);
        Ok(rows)
    }

    /// All events behind a version.
    pub(super) async fn tail(&self, op: &Op, stream: &StreamName, after: u64, fresh: Freshness) -> Result<Vec<Row>> {
        self.rows(op, stream, Reach::after(after).fresh(fresh)).try_concat().await
    }

    /// All events behind a version, where a lock of v3 was read.
    pub(super) async fn tail_to(&self, op: &Op, stream: &StreamName, after: u64, locked: Locked) -> Result<Vec<Row>> {
        self.rows(op, stream, Reach::after(after).locked(locked)).try_concat().await
    }

    /// The last event.
    pub(super) async fn last(&self, op: &Op, stream: &StreamName, fresh: Freshness) -> Result<Option<Row>> {
        self.last_of(op, stream, Reach::after(0).fresh(fresh)).await
    }

    /// The last event within reach.
    pub(super) async fn last_of(&self, op: &Op, stream: &StreamName, reach: Reach) -> Result<Option<Row>> {
        let rows = self.rows(op, stream, reach.backwards().limit(1));
        let mut rows = std::pin::pin!(rows);
        while let Some(page) = rows.try_next().await? {
            if let Some(first) = page.into_iter().next() {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// The versions that are there, holes and all: for looking after a table, not for folding.
    pub(super) async fn versions(&self, op: &Op, stream: &StreamName) -> Result<Vec<u64>> {
        let v3 = matches!(self.options().kind, Kind::V3(_));
        let (find, mut page, mut all) = (self.find(stream, &Reach::after(0)), Some(None), Vec::new());
        let mut next = 1;
        while let Some(start) = page {
            let (items, after) = self.dynamo().page(op, &find, start).await?;
            // What cannot be read is a finding of its own.
            for row in items.iter().filter_map(|item| item::row(self.options(), stream, item).ok()) {
                if v3 {
                    all.extend(self.hidden(op, stream, next, row.version - 1).await?);
                }
                all.push(row.version);
                next = row.version + 1;
            }
            page = after.map(Some);
        }
        if v3 {
            all.extend(self.hidden(op, stream, next, LAST).await?);
        }
        Ok(all)
    }

    /// Versions that an index does not show, up to where a batch of keys finds none.
    async fn hidden(&self, op: &Op, stream: &StreamName, mut from: u64, to: u64) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        while from <= to {
            let last = to.min(from + BY_KEY - 1);
            let found = self.fetch(op, stream, from..=last, Freshness::Strong).await?;
            if found.is_empty() {
                break;
            }
            all.extend(found.iter().map(|row| row.version));
            from = last + 1;
        }
        Ok(all)
    }

    /// The current snapshot.
    pub(super) async fn current(&self, op: &Op, stream: &StreamName, fresh: Freshness) -> Result<Option<StoredSnapshot>> {
        let key = item::snapshot_key(self.options(), stream, 0);
        match self.dynamo().get(op, &self.options().snapshot, key, fresh).await? {
            Some(item) => item::snapshot(self.options(), stream, &item).map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        self.options().check_name(stream)?;
        let fresh = freshness(options.consistency);
        let mut snapshots = Vec::new();
        // The lock is taken to have moved with the events: where it has not, the next append is told, and tries with what it says.
        let (mut from, mut locked) = (End::default(), None);
        match (&options.since, &options.origin) {
            (Some(token), _) => from = self.open_token(token, stream)?,
            (None, Origin::Start) => {}
            (None, Origin::Latest) => {
                let last = self.last(op, stream, fresh).await?;
                let end = last.as_ref().map_or(from, |row| End { version: row.version, lock: row.version });
                let events = last.into_iter().map(|row| row.recorded(stream)).collect();
                return Ok(self.loaded(op, stream, snapshots, events, end, fresh));
            }
            (None, Origin::Snapshot(names)) => {
                let found = self.current(op, stream, fresh).await?;
                locked = Some(found.as_ref().map_or_else(Locked::default, |found| Locked { version: found.lock, millis: found.updated }));
                if let Some(found) = found
                    && let Some(version) = found.version.filter(|_| names.contains(&found.name))
                {
                    from = End { version, lock: version };
                    snapshots.push(Snapshot::at(found.name, version, found.state));
                }
            }
        }
        let reach = Reach { locked, ..Reach::after(from.version).fresh(fresh) };
        let rows: Vec<Row> = self.rows(op, stream, reach).try_concat().await?;
        let end = rows.last().map_or(from, |row| End { version: row.version, lock: from.lock + (row.version - from.version) });
        let events = rows.into_iter().map(|row| row.recorded(stream)).collect();
        Ok(self.loaded(op, stream, snapshots, events, end, fresh))
    }

    fn loaded(&self, op: &Op, stream: &StreamName, snapshots: Vec<Snapshot>, events: Vec<Recorded>, end: End, fresh: Freshness) -> Loaded {
        if fresh == Freshness::Strong {
            self.remember(stream, end);
        }
        Loaded::new(snapshots, events, end.version, self.token(stream, end), op.units())
    }

    pub(super) fn read_stream_lazily<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        if let Err(error) = self.options().check_name(stream) {
            return stream::once(async { Err(error) }).boxed();
        }
        let mut reach = Reach::after(0).fresh(freshness(options.consistency));
        reach.limit = options.limit.and_then(|limit| i32::try_from(limit.max(1)).ok());
        match options.direction {
            Direction::Forwards => reach.first = options.after.unwrap_or(0).saturating_add(1),
            Direction::Backwards => {
                reach = reach.backwards();
                reach.last = options.after.map_or(LAST, |after| after.saturating_sub(1).min(LAST));
            }
        }
        let limit = options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit == 0 {
            return stream::empty().boxed();
        }
        let pages = stream::try_unfold((self.dynamo().long_op(), Cursor::new(reach)), move |(op, cursor)| async move {
            let next = self.next_page(&op, stream, cursor).await?;
            Ok::<_, Error>(next.map(|(rows, cursor)| (rows, (op, cursor))))
        });
        let events = pages.map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten().map_ok(move |row| row.recorded(stream));
        events.take(limit).boxed()
    }
}
