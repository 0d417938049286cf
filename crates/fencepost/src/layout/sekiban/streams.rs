//! Streams: a stream is a tag, and its version the number of events that carry it, as its head counts them, and with those that stand above the head.
//!
//! Events are numbered back from there. Where a row of Sekiban's came late, below a head, which counts it nowhere, the number of the end stays, and the
//! first events share the number 1; where rows have expired, the first is the one behind them.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::item::TagRow;
use super::plan::Stand;
use super::read::{Walk, freshness};
use super::token::{End, Held};
use super::{Sekiban, SortableId};
use crate::dynamo::item::{Attributes, Item, number, text};
use crate::dynamo::{Freshness, Op, Write, report};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Event, Recorded, StreamName, Tag};
use crate::log::{After, Answer, Committed, Direction};
use crate::position::Token;
use crate::query::Query;
use crate::side::item::corrupt;
use crate::side::{body, put_body};
use crate::state::check_name;
use crate::stream::{Expect, LoadOptions, Loaded, Origin, Snapshot, Step, StreamReadOptions, StreamStore};

const VERSION: &str = "n";
const END: &str = "e";

impl Sekiban {
    fn stream_token(&self, tag: &Tag, end: End) -> Token {
        self.held(&Query::of_tag(tag.clone()), [(tag.clone(), end)].into()).seal()
    }

    fn stream_end(&self, token: &Token, tag: &Tag) -> Result<End> {
        let held = Held::open(token, self.namespace())?;
        let foreign = || Refused::Foreign { what: "token", of: "another stream".into(), here: format!("stream {tag}") };
        held.covers.get(tag).copied().ok_or_else(|| foreign().into())
    }

    /// Events of rows, of which the last has this number.
    async fn numbered(&self, op: &Op, rows: &[TagRow], last: u64, fresh: Freshness) -> Result<Vec<Recorded>> {
        let numbers = Numbers { rows: rows.len() as u64, last };
        let events = self.hydrate_each(op, rows, fresh).await?.into_iter().zip(1..);
        Ok(events.filter_map(|(stored, nth)| Some(Recorded { version: Some(numbers.of(nth)), ..stored?.event })).collect())
    }

    async fn load_stream(&self, op: &Op, stream: &StreamName, options: &LoadOptions) -> Result<Loaded> {
        let tag = Tag::from(stream);
        let fresh = freshness(options.consistency);
        let mut snapshots = Vec::new();
        let after = match (&options.since, &options.origin) {
            (Some(token), _) => self.stream_end(token, &tag)?,
            (None, Origin::Start) => End::default(),
            (None, Origin::Snapshot(names)) => match self.newest_snapshot(op, &tag, names).await? {
                None => End::default(),
                Some((name, end, state)) => {
                    snapshots.push(Snapshot::at(name, end.count, state));
                    end
                }
            },
            (None, Origin::Latest) => {
                let (Stand { end, .. }, row) = self.stand_and_row(op, &tag).await?;
                let events = self.numbered(op, row.as_slice(), end.count, Freshness::Strong).await?;
                return Ok(Loaded::new(Vec::new(), events, end.count, self.stream_token(&tag, end), op.units()));
            }
        };
        let (rows, head) = self.view(op, &tag, &after, fresh).await?;
        let end = after.reached(&rows, head);
        let events = self.numbered(op, &rows, end.count, fresh).await?;
        Ok(Loaded::new(snapshots, events, end.count, self.stream_token(&tag, end), op.units()))
    }

    async fn append_stream(&self, op: &Op, stream: &StreamName, step: Step) -> Result<Committed> {
        let repeats = step.repeats();
        self.append_step(op, stream, step).await.map_err(|error| error.of_repeat(repeats))
    }

    async fn append_step(&self, op: &Op, stream: &StreamName, mut step: Step) -> Result<Committed> {
        let tag = Tag::from(stream);
        let mut append = step.take_append(std::slice::from_ref(&tag))?;
        let after = match step.expect {
            Expect::Any => None,
            Expect::None => Some(After::Nothing),
            Expect::Token(token) => {
                self.stream_end(&token, &tag)?;
                Some(After::Token(token))
            }
            // A repeat may find its own events where the version was: it is looked for before the version is judged.
            Expect::Version(version) => match self.at_version(op, &tag, version).await? {
                Ok(end) => Some(After::Token(self.stream_token(&tag, end))),
                Err(conflict) => {
                    // A try that is still on its way, of this call or of an earlier one under the id, holds the head as it was. And a load since a token
                    // above the head tells what the head counts, once it stands there.
                    self.catch_head_up(op, &tag).await?;
                    if append.commit.is_none() {
                        return Err(conflict);
                    }
                    let (mut committed, count) = self.recorded_before(op, &append, Some(&tag)).await?.ok_or(conflict)?;
                    committed.version = Some(count);
                    // Another run may have landed it, behind events that are not in this one's model.
                    let end = end_of(&committed, append.events()).filter(|_| version + append.events().len() as u64 == count);
                    committed.token = end.map(|end| self.stream_token(&tag, end));
                    return Ok(committed);
                }
            },
        };
        // How many events the snapshots were made on. Another run of the same command may have landed it behind events that they lack.
        let stood = match &after {
            None => None,
            Some(After::Token(token)) => Some(self.stream_end(token, &tag)?.count),
            Some(_) => Some(0),
        };
        if let Some(after) = after {
            append = append.unless(Query::of_tag(tag.clone()), after);
        }
        let (mut committed, count) = self.append_commit(op, &append, Some(&tag)).await?;
        committed.version = Some(count);
        let behind = stood.map_or(append.commit_id().is_none(), |stood| stood + append.events().len() as u64 == count);
        if behind && !step.snapshots.is_empty() {
            self.save_snapshots(op, &tag, &step.snapshots, &committed, append.events()).await;
        }
        committed.units = op.units();
        Ok(committed)
    }

    /// The stream's end, if it has exactly this many events; else the conflict.
    async fn at_version(&self, op: &Op, tag: &Tag, version: u64) -> Result<std::result::Result<End, Error>> {
        let end = self.stand(op, tag).await?.end;
        if end.count == version {
            return Ok(Ok(end));
        }
        let rows = self.last_rows(op, tag, &end, end.count.saturating_sub(version)).await?;
        let events = self.numbered(op, &rows, end.count, Freshness::Strong).await?;
        Ok(Err(Error::conflict(events, Some(self.stream_token(tag, end)))))
    }

    /// So many rows up to an end, in order: no more of them are read.
    async fn last_rows(&self, op: &Op, tag: &Tag, end: &End, wanted: u64) -> Result<Vec<TagRow>> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let walk = self.walk(op, tag, None, Freshness::Strong).await?;
        let mut walk = walk.towards(true, end.sort_key().map(|key| format!("{key}$")));
        let mut rows = Vec::new();
        while rows.len() < wanted
            && let Some(more) = self.step(op, &mut walk).await?
        {
            rows.extend(more);
        }
        rows.truncate(wanted);
        rows.reverse();
        Ok(rows)
    }

    /// The commit has landed: a snapshot that cannot be stored does not undo it.
    async fn save_snapshots(&self, op: &Op, tag: &Tag, snapshots: &[Snapshot], committed: &Committed, events: &[Event]) {
        let Some(end) = end_of(committed, events) else { return };
        for snapshot in snapshots {
            if let Err(error) = self.save_snapshot(op, tag, snapshot, end).await {
                tracing::warn!(stream = tag.as_str(), snapshot = snapshot.name, %error, "the events were recorded, the snapshot was not");
            }
        }
    }

    async fn save_snapshot(&self, op: &Op, tag: &Tag, snapshot: &Snapshot, end: End) -> Result<()> {
        let mut item = self.side().key("s", &snapshot.name, tag.as_str());
        item.insert(VERSION.into(), number(end.count));
        item.insert(END.into(), text(self.stream_token(tag, end).to_string()));
        put_body(&mut item, &snapshot.state)?;
        let condition = format!("attribute_not_exists(#h) OR {VERSION} < :e");
        let values = Item::from([(":e".into(), number(end.count))]);
        self.side().put(op, Write::PutIf { table: self.side().table().into(), item, condition, values }).await?;
        Ok(())
    }

    /// The newest of a stream's snapshots with one of these names.
    async fn newest_snapshot(&self, op: &Op, tag: &Tag, names: &[String]) -> Result<Option<(String, End, Bytes)>> {
        let mut newest: Option<(String, End, Bytes)> = None;
        for name in names {
            check_name("snapshot name", name)?;
            let Some(item) = self.side().get(op, self.side().key("s", name, tag.as_str())).await? else { continue };
            let wrong = |m| corrupt(&item, &m);
            let token: Token = item.text(END).map_err(wrong)?.parse()?;
            let end = self.stream_end(&token, tag)?;
            if newest.as_ref().is_none_or(|(_, so_far, _)| so_far.count < end.count) {
                newest = Some((name.clone(), end, body(&item).map_err(wrong)?));
            }
        }
        Ok(newest)
    }

    /// The first rows of a walk forwards, and the numbers of all. Where the first are not all, those up to the head are counted.
    async fn begin_numbered(&self, op: &Op, tag: &Tag, mut walk: Walk) -> Result<(Numbers, Vec<TagRow>, Walk)> {
        let first = self.step(op, &mut walk).await?.unwrap_or_default();
        let numbers = match walk.head {
            None => Numbers { rows: 0, last: 0 },
            Some(head) => Numbers {
                rows: match walk.is_done() {
                    true => first.iter().filter(|row| row.at <= head.pos).count() as u64,
                    false => self.count_rows(op, tag.as_str(), None, Some(head.pos)).await?,
                },
                last: head.cnt,
            },
        };
        Ok((numbers, first, walk))
    }

    fn read_stream_lazily<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        if options.limit == Some(0) {
            return stream::empty().boxed();
        }
        let backwards = options.direction == Direction::Backwards;
        let fresh = freshness(options.consistency);
        // One more than asked for tells whether there is more. Whoever begins at a version reads the rows before it, not their events.
        let page = self.options().page;
        let limit = options.limit.filter(|_| options.after.is_none()).map_or(page, |n| i32::try_from(n + 1).unwrap_or(page).min(page));
        let start = async move {
            let op = self.dynamo().long_op();
            let tag = Tag::from(stream);
            let walk = self.walk(&op, &tag, None, fresh).await?.by(limit);
            if backwards {
                let last = self.stand(&op, &tag).await?.end;
                let walk = walk.towards(true, last.sort_key().map(|key| format!("{key}$")));
                return Ok((Numbers { rows: 0, last: last.count }, Vec::new(), walk));
            }
            self.begin_numbered(&op, &tag, walk).await
        };
        let wanted = move |version: u64| match options.after {
            None => true,
            Some(after) if backwards => version < after,
            Some(after) => version > after,
        };
        let pages = stream::once(start).and_then(move |(numbers, first, walk)| async move {
            let pages = stream::once(std::future::ready(Ok(first))).chain(self.pages(walk));
            Ok(pages.scan(0, move |so_far, rows| {
                let numbered = rows.map(|rows| {
                    let number = |row: TagRow| {
                        *so_far += 1;
                        (row, if backwards { numbers.counted_back(*so_far) } else { numbers.of(*so_far) })
                    };
                    rows.into_iter().map(number).filter(|(_, version)| wanted(*version)).collect::<Vec<_>>()
                });
                std::future::ready(Some(numbered))
            }))
        });
        let events = pages.try_flatten().and_then(move |numbered| async move {
            let op = self.dynamo().long_op();
            let (rows, versions): (Vec<TagRow>, Vec<u64>) = numbered.into_iter().unzip();
            let events = self.hydrate_each(&op, &rows, fresh).await?.into_iter().zip(versions);
            let events = events.filter_map(|(stored, version)| Some(Ok(Recorded { version: Some(version), ..stored?.event })));
            Ok(stream::iter(events.collect::<Vec<_>>()))
        });
        let events = events.try_flatten();
        match options.limit {
            Some(limit) => events.take(usize::try_from(limit).unwrap_or(usize::MAX)).boxed(),
            None => events.boxed(),
        }
    }
}

/// The numbers of rows: so many of them, and the last of those has this one.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    rows: u64,
    last: u64,
}

impl Numbers {
    /// Of the nth row from the start, from 1 on.
    fn of(self, nth: u64) -> u64 {
        (nth + self.last).saturating_sub(self.rows).max(1)
    }
    /// Of the nth row from the end, from 1 on.
    fn counted_back(self, nth: u64) -> u64 {
        (self.last + 1).saturating_sub(nth).max(1)
    }
}

/// Where a stream ends with this commit.
fn end_of(committed: &Committed, events: &[Event]) -> Option<End> {
    let last = events.len().checked_sub(1)?;
    let id = events[last].given_id().unwrap_or_else(|| committed.commit.event_id(last));
    Some(End::at(SortableId::of(&committed.last()?)?, id, committed.version?))
}

#[async_trait]
impl StreamStore for Sekiban {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let op = self.dynamo().op();
        let loaded = self.load_stream(&op, stream, &options).await;
        report("load", &op);
        loaded
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = self.append_stream(&op, stream, step).await.map_err(|error| error.costing(op.units()));
        report("append", &op);
        committed
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, commit, Some(&Tag::from(stream))).await;
        report("committed", &op);
        let found = found?.map(|(committed, count)| Committed { version: Some(count), ..committed });
        Ok(Answer::new(found, op.units()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_stream_lazily(stream, options)
    }
}
