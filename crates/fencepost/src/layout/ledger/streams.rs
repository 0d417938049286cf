//! Streams: a stream is a tag, and its version the number of events that carry it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};

use super::Ledger;
use super::append::{Done, SOME_SLOTS};
use super::read::freshness;
use super::series::{End, Series};
use crate::dynamo::{Find, Freshness, Op, report};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Recorded, StreamName, Tag};
use crate::log::{After, Answer, Committed, Direction};
use crate::position::Token;
use crate::query::Query;
use crate::stream::{Expect, LoadOptions, Loaded, Origin, Snapshot, Step, StreamReadOptions, StreamStore};

impl Ledger {
    fn stream_token(&self, query: &Query, series: &Series, end: End) -> Token {
        self.held(query.fingerprint(), BTreeMap::from([(series.clone(), end)])).seal()
    }

    fn stream_end(&self, token: &Token, series: &Series) -> Result<End> {
        let held = self.open_token(token)?;
        held.covers
            .get(series)
            .copied()
            .ok_or_else(|| Refused::Foreign { what: "token", of: "another stream".into(), here: format!("stream {series}") }.into())
    }

    /// Events behind a slot of the stream, numbered.
    async fn stream_events(&self, op: &Op, query: &Query, series: &Series, after: End, fresh: Freshness) -> Result<(Vec<Recorded>, End)> {
        let slots = self.tail(op, series, after.version, fresh).await?;
        let end = slots.last().map_or(after, |slot| slot.end());
        let met = self.judge(op, &slots, query).await?;
        Ok((self.number(op, met).await?, end))
    }

    async fn number(&self, op: &Op, met: Vec<super::resolve::Met>) -> Result<Vec<Recorded>> {
        let numbers: Vec<u64> = met.iter().map(|m| m.version).collect();
        let mut events = self.hydrate(op, met).await?;
        for (event, number) in events.iter_mut().zip(numbers) {
            event.version = Some(number);
        }
        Ok(events)
    }

    async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        let (query, series) = of(stream);
        let fresh = freshness(options.consistency);
        let mut snapshots = Vec::new();
        let after = match (&options.since, &options.origin) {
            (Some(token), _) => self.stream_end(token, &series)?,
            (None, Origin::Start) => End::default(),
            (None, Origin::Snapshot(names)) => match self.newest_snapshot(op, stream.as_str(), names).await? {
                None => End::default(),
                Some(found) => {
                    snapshots.push(Snapshot::at(found.name, found.end.count, found.state));
                    found.end
                }
            },
            (None, Origin::Latest) => {
                let slots: Vec<_> = self.last_slot(op, &series, fresh).await?.into_iter().collect();
                let end = slots.last().map_or(End::default(), |slot| slot.end());
                let last = self.judge(op, &slots, &query).await?.pop();
                let events = self.number(op, last.into_iter().collect()).await?;
                return Ok(Loaded::new(Vec::new(), events, end.count, self.stream_token(&query, &series, end), op.units()));
            }
        };
        let (events, end) = self.stream_events(op, &query, &series, after, fresh).await?;
        Ok(Loaded::new(snapshots, events, end.count, self.stream_token(&query, &series, end), op.units()))
    }

    async fn append_stream(&self, op: &Op, stream: &StreamName, mut step: Step) -> Result<Committed> {
        let (query, series) = of(stream);
        let mut append = step.take_append(&[Tag::from(stream)])?;
        // With how many events the caller saw, where it says so.
        let after = match step.expect {
            Expect::Any => None,
            Expect::None => Some((After::Nothing, 0)),
            Expect::Token(token) => {
                let stood = self.stream_end(&token, &series)?.count;
                Some((After::Token(token), stood))
            }
            // A repeat may find its own events where the version was: it is looked for before the version is judged.
            Expect::Version(version) => match self.at_version(op, &query, &series, version).await? {
                AtVersion::Is(end) => Some((After::Token(self.stream_token(&query, &series, end)), end.count)),
                AtVersion::Not(conflict) if append.commit.is_none() => return Err(*conflict),
                AtVersion::Not(conflict) => {
                    let done = self.recorded_before(op, &append, Some(&series)).await?.ok_or(*conflict)?;
                    return Ok(Committed { version: Some(done.end.count), ..done.committed });
                }
            },
        };
        // How many events the snapshots were made on: where the caller does not say, only this call's own commit is taken to be behind them.
        let stood = after.as_ref().map(|(_, stood)| *stood);
        if let Some((after, _)) = after {
            append = append.unless(query.clone(), after);
        }
        let Done { mut committed, end, found } = self.append_commit(op, &append, Some(&series)).await?;
        committed.version = Some(end.count);
        // Another run of the same command may have landed it behind events that these states lack.
        let adjacent = stood.map_or(!found, |stood| stood + append.events().len() as u64 == end.count);
        for snapshot in step.snapshots.iter().filter(|_| adjacent) {
            if let Err(error) = self.save_snapshot(op, stream.as_str(), &snapshot.name, &snapshot.state, end).await {
                tracing::warn!(stream = stream.as_str(), snapshot = snapshot.name, %error, "the events were recorded, the snapshot was not");
            }
        }
        committed.units = op.units();
        Ok(committed)
    }

    /// The slot at which the stream has exactly this many events, if that is its end.
    async fn at_version(&self, op: &Op, query: &Query, series: &Series, version: u64) -> Result<AtVersion> {
        if let Some(end) = self.remembered(series).filter(|end| end.count == version) {
            return Ok(AtVersion::Is(end));
        }
        let end = self.last_slot(op, series, Freshness::Strong).await?.map_or(End::default(), |slot| slot.end());
        self.remember(series, end);
        if end.count == version {
            return Ok(AtVersion::Is(end));
        }
        // Some slots are enough of a conflict, however long the stream is.
        let behind = self.slot_before(op, series, end, version).await?;
        let slots = self.slots_after(op, series, behind.version, i32::try_from(SOME_SLOTS).ok()).await?;
        let end = slots.last().map_or(behind, |slot| slot.end());
        let met = self.judge(op, &slots, query).await?;
        let mut events = self.number(op, met).await?;
        events.retain(|event| event.version.is_some_and(|v| v > version));
        Ok(AtVersion::Not(Box::new(Error::conflict(events, Some(self.stream_token(query, series, end))))))
    }

    /// The last slot with at most this many events, by a search over the counts.
    async fn slot_before(&self, op: &Op, series: &Series, end: End, count: u64) -> Result<End> {
        if end.count <= count {
            return Ok(end);
        }
        let (mut low, mut high) = (0, end.version);
        let mut found = End::default();
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let slot = self.slot_surely(op, series, middle).await?.end();
            if slot.count <= count {
                low = middle;
                found = slot;
            } else {
                high = middle;
            }
        }
        Ok(found)
    }

    /// Events of pages of slots from one version to another, numbered.
    fn numbered_pages(
        &self,
        query: Query,
        series: Series,
        after: u64,
        to: u64,
        options: StreamReadOptions,
    ) -> impl Stream<Item = Result<Recorded>> + Send + '_ {
        let backwards = options.direction == Direction::Backwards;
        let find = Find {
            reverse: backwards,
            limit: options.limit.and_then(|limit| i32::try_from(limit.max(1)).ok()),
            freshness: freshness(options.consistency),
            ..self.find(&series, after + 1, to)
        };
        self.pages(find, (!backwards).then_some(after + 1))
            .and_then(move |slots| {
                let query = query.clone();
                async move {
                    let op = self.dynamo().long_op();
                    let mut met = self.judge(&op, &slots, &query).await?;
                    met.sort_by_key(|m| if backwards { u64::MAX - m.version } else { m.version });
                    self.number(&op, met).await
                }
            })
            .map_ok(|events| stream::iter(events.into_iter().map(Ok)))
            .try_flatten()
    }

    fn read_stream_lazily<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        let start = async move {
            let (query, series) = of(stream);
            let op = self.dynamo().long_op();
            let backwards = options.direction == Direction::Backwards;
            let end = self.last_slot(&op, &series, freshness(options.consistency)).await?.map_or(End::default(), |slot| slot.end());
            let first = match options.after {
                Some(after) if !backwards => self.slot_before(&op, &series, end, after).await?.version,
                _ => 0,
            };
            let last = match options.after {
                Some(after) if backwards => self.slot_before(&op, &series, end, after.saturating_sub(1)).await?.version + 1,
                _ => u64::MAX >> 1,
            };
            Ok::<_, Error>(self.numbered_pages(query, series, first, last, options))
        };
        let events = stream::once(start).try_flatten().try_filter(move |event| {
            let wanted = match (options.after, options.direction, event.version) {
                (Some(after), Direction::Forwards, Some(v)) => v > after,
                (Some(after), Direction::Backwards, Some(v)) => v < after,
                _ => true,
            };
            futures::future::ready(wanted)
        });
        match options.limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events.boxed(),
        }
    }
}

/// Whether a stream is where it was expected.
enum AtVersion {
    Is(End),
    Not(Box<Error>),
}

fn of(stream: &StreamName) -> (Query, Series) {
    let tag = Tag::from(stream);
    (Query::of_tag(tag.clone()), Series::Tag(tag))
}

#[async_trait]
impl StreamStore for Ledger {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let op = self.dynamo().op();
        let loaded = self.load_stream(&op, stream, &options).await;
        report("load", &op);
        loaded
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        let op = self.dynamo().op();
        let repeats = step.repeats();
        let committed = self.append_stream(&op, stream, step).await.map_err(|error| error.of_repeat(repeats).costing(op.units()));
        report("append", &op);
        committed
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, commit, Some(&of(stream).1)).await;
        report("committed", &op);
        Ok(Answer::new(found?, op.units()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_stream_lazily(stream, options)
    }
}
