//! Reading a stream lazily, either way: a page at a time, from the batch that holds the first event asked for; into the archive where the
//! table's own batches do not reach.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::Equinox;
use super::item::{self, Batch, HASH, RANGE};
use super::read::{all, freshness, gap, pruned, without_a_tip};
use super::settings::{Missing, check_name};
use crate::dynamo::item::{number, text};
use crate::dynamo::{Find, Freshness, Key, Op, Range};
use crate::error::{Error, Reason, Result};
use crate::event::{Recorded, StreamName};
use crate::log::Direction;
use crate::stream::StreamReadOptions;

/// One lazy read.
struct Walk<'a> {
    store: &'a Equinox,
    op: Op,
    stream: &'a StreamName,
    backwards: bool,
    /// The indexes asked for: from the first, up to the second without it.
    asked: (u64, u64),
    find: Find,
    /// Where the next page begins; none behind the last.
    page: Option<Option<Key>>,
    batches: VecDeque<(Batch, Kind)>,
    /// Where the next batch joins.
    joins: Option<u64>,
    met_tip: bool,
    begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Calf,
    Tip,
    Archived,
}

impl Equinox {
    /// Events, lazily. One that cannot be decoded is an error in its place, and the rest follows; so is a start that was pruned.
    pub(super) fn read_lazily<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let backwards = options.direction == Direction::Backwards;
        let asked = match (options.after, backwards) {
            (None, _) => (0, u64::MAX),
            (Some(after), false) => (after, u64::MAX),
            (Some(after), true) => (0, after.saturating_sub(1)),
        };
        // Every item is paid for whole: where few events are asked for, few items at first.
        let first = if options.limit.is_some() { 1 } else { self.page() };
        let find = Find { freshness: freshness(options.consistency), reverse: backwards, limit: Some(first), ..self.whole(stream) };
        let walk = Walk {
            store: self,
            op: self.dynamo().long_op(),
            stream,
            backwards,
            asked,
            find,
            page: Some(None),
            batches: VecDeque::new(),
            joins: None,
            met_tip: false,
            begun: false,
        };
        let pages = stream::unfold(Some(walk), |walk| async {
            let mut walk = walk?;
            match walk.next().await {
                Ok(Some(events)) => Some((events, Some(walk))),
                Ok(None) => None,
                Err(error) => Some((vec![Err(error)], None)),
            }
        });
        let events = pages.flat_map(stream::iter);
        match options.limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events.boxed(),
        }
    }
}

impl Walk<'_> {
    /// The events of the next batch, in the order of reading.
    async fn next(&mut self) -> Result<Option<Vec<Result<Recorded>>>> {
        if !self.begun {
            check_name(self.stream)?;
            self.begun = true;
            if self.asked.0 >= self.asked.1 {
                return Ok(None);
            }
            self.begin_inside().await?;
        }
        while self.batches.is_empty() {
            let Some(start) = self.page.take() else { return self.ended().await };
            let (items, after) = self.store.dynamo().page(&self.op, &self.find, start).await?;
            self.page = after.map(Some);
            self.find.limit = self.find.limit.map(|limit| limit.saturating_mul(2).min(self.store.page()));
            for item in &items {
                let kind = if item::is_tip(item) { Kind::Tip } else { Kind::Calf };
                self.batches.push_back((item::batch(item)?, kind));
            }
        }
        if self.backwards && !self.met_tip && self.batches.front().is_some_and(|(_, kind)| *kind == Kind::Calf) {
            self.fetch_tip().await?;
        }
        let Some((mut batch, kind)) = self.batches.pop_front() else { return Ok(None) };
        self.met_tip |= kind == Kind::Tip;
        let enters = if self.backwards { batch.next } else { batch.base() };
        match self.joins {
            Some(joins) if joins != enters => return self.mend(batch, kind, joins).await.map(Some),
            // The first one begins where nothing was pruned, or behind it.
            None if !self.backwards && kind != Kind::Archived && enters > self.asked.0 => {
                if self.read_strongly(None) {
                    return Ok(Some(Vec::new()));
                }
                if let Some(events) = self.archived_first(batch.clone(), kind).await? {
                    return Ok(Some(events));
                }
            }
            _ => {}
        }
        self.joins = Some(if self.backwards { batch.base() } else { batch.next });
        if self.backwards && batch.base() <= self.asked.0 {
            // Nothing that was asked for is below it.
            self.page = None;
            self.batches.clear();
        }
        batch.cut(self.asked.1);
        Ok(Some(self.told(&batch)))
    }

    fn told(&self, batch: &Batch) -> Vec<Result<Recorded>> {
        let events = all(self.stream, batch, self.asked.0);
        if self.backwards { events.rev().collect() } else { events.collect() }
    }

    /// The calf that holds the first event asked for, if it is in a calf, is the last one that begins at or below it.
    async fn begin_inside(&mut self) -> Result<()> {
        let at = match self.backwards {
            false if self.asked.0 > 0 => self.asked.0,
            true if self.asked.1 < item::TIP => self.asked.1 - 1,
            _ => return Ok(()),
        };
        let find = Find { reverse: true, limit: Some(1), ..self.find.clone() };
        let find = find.range(Range::Before(RANGE.into(), number(at.saturating_add(1).min(item::TIP))));
        let (items, _) = self.store.dynamo().page(&self.op, &find, None).await?;
        let Some(batch) = items.first().map(item::batch).transpose()? else { return Ok(()) };
        if !self.backwards {
            self.find = self.find.clone().range(Range::From(RANGE.into(), number(batch.next)));
            self.batches.push_back((batch, Kind::Calf));
        } else if batch.next > at {
            // Nothing behind it is asked for, the Tip neither.
            self.met_tip = true;
            self.find = self.find.clone().range(Range::Before(RANGE.into(), number(batch.base())));
            self.batches.push_back((batch, Kind::Calf));
        }
        Ok(())
    }

    /// A replica may lack what lies before everything that it has: from here on it is not asked. False where none was.
    fn read_strongly(&mut self, below: Option<u64>) -> bool {
        if self.find.freshness == Freshness::Strong {
            return false;
        }
        let find = Find { freshness: Freshness::Strong, ..self.find.clone() };
        self.find = match below {
            None => find,
            Some(below) => find.range(Range::Before(RANGE.into(), number(below))),
        };
        (self.page, self.begun, self.met_tip) = (Some(None), below.is_some(), below.is_some());
        self.batches.clear();
        true
    }

    /// Where calves were seen, the Tip must be there: a replica may not have it yet.
    async fn fetch_tip(&mut self) -> Result<()> {
        let tip = match self.find.freshness {
            Freshness::Eventual => self.store.tip(&self.op, self.stream, Freshness::Strong).await?,
            Freshness::Strong => None,
        };
        let tip = tip.ok_or_else(|| without_a_tip(self.stream))?;
        self.batches.push_front((tip.batch, Kind::Tip));
        Ok(())
    }

    /// Calves and Tip are written together, and may be seen in part: what is there twice is told once, what is not there yet is read again.
    async fn mend(&mut self, batch: Batch, kind: Kind, joins: u64) -> Result<Vec<Result<Recorded>>> {
        let enters = if self.backwards { batch.next } else { batch.base() };
        let (low, high) = (joins.min(enters), joins.max(enters));
        let missing = (joins < enters) != self.backwards;
        let at_tip = kind == Kind::Tip || (self.backwards && self.met_tip) || self.find.freshness == Freshness::Eventual;
        if missing && !self.backwards && self.was_pruned(&batch).await? {
            self.asked.0 = joins;
            if let Some(events) = self.archived_first(batch.clone(), kind).await? {
                return Ok(events);
            }
            self.joins = Some(batch.base());
            self.batches.push_front((batch, kind));
            return Ok(Vec::new());
        }
        if !at_tip {
            return Err(gap(self.stream, low, high));
        }
        if missing {
            let find = Find { freshness: Freshness::Strong, reverse: self.backwards, limit: None, ..self.store.whole(self.stream) };
            let find = find.range(Range::numbers(RANGE, low, high.saturating_sub(1)));
            let (items, _) = self.store.dynamo().page(&self.op, &find, None).await?;
            let found = items.iter().map(item::batch).collect::<Result<VecDeque<_>>>()?;
            let (first, last) = (found.iter().map(Batch::base).min(), found.iter().map(|batch| batch.next).max());
            if (first, last) != (Some(low), Some(high)) {
                return Err(gap(self.stream, low, high));
            }
            self.batches.push_front((batch, kind));
            found.into_iter().rev().for_each(|batch| self.batches.push_front((batch, Kind::Calf)));
            return Ok(Vec::new());
        }
        // Told already: the calf by the Tip as it was before, or the Tip's first events by the calf.
        let mut rest = batch;
        if self.backwards {
            rest.cut(joins);
        } else {
            let told = usize::try_from(joins - rest.base()).unwrap_or(usize::MAX).min(rest.events.len());
            rest.events.drain(..told);
        }
        if !rest.events.is_empty() {
            self.batches.push_front((rest, kind));
        }
        Ok(Vec::new())
    }

    /// Whether what lacks before this batch was deleted since the read began, with all that was before it: no gap, but a prune.
    async fn was_pruned(&self, batch: &Batch) -> Result<bool> {
        let find = Find { freshness: Freshness::Strong, limit: Some(1), ..self.store.whole(self.stream) };
        let (items, _) = self.store.dynamo().page(&self.op, &find, None).await?;
        Ok(items.first().map(item::batch).transpose()?.is_some_and(|lowest| lowest.base() >= batch.base()))
    }

    /// Forwards: what the archive has below this batch comes first. None where the batch is told at once.
    async fn archived_first(&mut self, batch: Batch, kind: Kind) -> Result<Option<Vec<Result<Recorded>>>> {
        let archived = self.store.archived(&self.op, self.stream, self.asked.0, batch.base()).await;
        match archived {
            Ok(archived) if archived.is_empty() => Ok(None),
            Ok(archived) => {
                self.batches.push_front((batch, kind));
                archived.into_iter().rev().for_each(|batch| self.batches.push_front((batch, Kind::Archived)));
                Ok(Some(Vec::new()))
            }
            // Said, and then what is there is read.
            Err(said @ Error::Corrupt(_)) => {
                self.joins = Some(batch.base());
                self.batches.push_front((batch, kind));
                Ok(Some(vec![Err(said)]))
            }
            Err(error) => Err(error),
        }
    }

    /// Behind the last page: backwards the archive goes on, once.
    async fn ended(&mut self) -> Result<Option<Vec<Result<Recorded>>>> {
        let Some(joins) = self.joins else { return Ok(None) };
        if !self.met_tip {
            self.fetch_tip().await?;
            return Ok(Some(Vec::new()));
        }
        if !self.backwards || joins <= self.asked.0 {
            return Ok(None);
        }
        if self.read_strongly(Some(joins)) {
            return Ok(Some(Vec::new()));
        }
        if self.find.table == self.store.archive() {
            self.joins = None;
            let said = (self.store.missing() == Missing::Refused).then(|| Err(pruned(self.stream, joins, self.store.archive())));
            return Ok(said.map(|said| vec![said]));
        }
        let find = Find { freshness: Freshness::Strong, reverse: true, limit: Some(self.store.page()), ..self.archive() };
        self.find = find.range(Range::Before(RANGE.into(), number(joins)));
        let (items, after) = match self.store.dynamo().page(&self.op, &self.find, None).await {
            Err(Error::Unavailable(gone)) if gone.reason == Reason::Missing => return Ok(Some(Vec::new())),
            page => page?,
        };
        self.page = after.map(Some);
        for item in &items {
            let mut batch = item::batch(item)?;
            batch.cut(joins);
            self.batches.push_back((batch, Kind::Archived));
        }
        let reached = self.batches.front().map_or(0, |(batch, _)| batch.next);
        if let Some(tip) = self.store.archive_tip(&self.op, self.stream.as_str(), reached, joins).await? {
            self.batches.push_front((tip, Kind::Archived));
        }
        Ok(Some(Vec::new()))
    }

    fn archive(&self) -> Find {
        Find::new(self.store.archive(), HASH, text(self.stream.as_str()))
    }
}
