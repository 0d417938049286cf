//! Large commits: staged where no reader looks, published in one transaction with their heads, then put into rows, by their writer or by
//! whoever meets a head that waits for them. And the record of a commit, by which it is found again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::item::{self, HASH, Placed, RANGE, Stamp};
use super::plan::{
    BURIED, COUNT, DIGEST, ENDS, GRAVE, IDS, Intent, PIECES, RECORD, ROWS_TTL, SHARDS, TABLE_HASH, TICKS, WRITTEN, clear, put_over_grave,
};
use super::suid::SortableId;
use super::{LAYOUT, Sekiban};
use crate::dynamo::item::{Attributes, Item, Malformed, as_number, binary, number, text, wrong};
use crate::dynamo::{Find, Freshness, Op, Outcome, Range, Verdict, Write};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Event, Metadata, Tag, digest};
use crate::layout::Collected;
use crate::log::Committed;
use crate::side::item::{pack, unpack};

/// Bytes of a commit in one item.
const PIECE: usize = 380 * 1024;
const DATA: &str = "data";
const STAGED_AT: &str = "at";
/// How many heads, or conditional puts, go out at once.
const AT_ONCE: usize = 16;

/// One event as it is staged.
#[derive(Debug, Serialize, Deserialize)]
struct StagedEvent {
    id: Uuid,
    given: bool,
    /// Its place, where the caller gave it.
    at: Option<SortableId>,
    event_type: String,
    data: Bytes,
    tags: Vec<Tag>,
    /// As JSON: its map of anything has no fixed shape.
    meta: String,
}

impl StagedEvent {
    fn event(&self) -> Result<Event> {
        let meta: Metadata = serde_json::from_str(&self.meta).unwrap_or_default();
        let bare = Event::new(&self.event_type, self.data.clone())?.meta(meta);
        let bare = if self.given { bare.id(self.id) } else { bare };
        Ok(self.tags.iter().fold(bare, |event, tag| event.with_tag(tag.clone())))
    }
}

/// What is recorded of a commit under its id.
#[derive(Debug, Clone)]
pub(super) struct Record {
    commit: CommitId,
    pub(super) digest: Vec<u8>,
    pub(super) ticks: u64,
    count: u64,
    /// Where the caller gave them.
    ids: Option<Vec<Uuid>>,
    /// None: it fitted in one transaction.
    pieces: Option<u64>,
    /// Which pieces under its id are its own: how often others had been collected.
    buried: u64,
    written: Timestamp,
    shards: u32,
    ttl: Option<u64>,
    pub(super) ends: BTreeMap<Tag, u64>,
}

impl Record {
    pub(super) fn of_item(commit: CommitId, item: &Item) -> Result<Record> {
        let read = || {
            let ends = item.maybe_map(ENDS)?.into_iter().flatten();
            let ends = ends.map(|(tag, count)| Some((Tag::new(tag).ok()?, as_number(count)?)));
            let ids = item.maybe_bytes(IDS)?.map(|bytes| bytes.chunks_exact(16).filter_map(|id| Uuid::from_slice(id).ok()).collect());
            Ok(Record {
                commit,
                digest: item.bytes(DIGEST)?.to_vec(),
                ticks: item.number(TICKS)?,
                count: item.number(COUNT)?,
                ids,
                pieces: item.maybe_number(PIECES)?,
                buried: item.maybe_number(BURIED)?.unwrap_or(0),
                written: item.text(WRITTEN)?.parse().map_err(|_| wrong(WRITTEN, "a time"))?,
                shards: u32::try_from(item.number(SHARDS)?).map_err(|_| wrong(SHARDS, "a number of shards"))?,
                ttl: item.maybe_number(ROWS_TTL)?,
                ends: ends.collect::<Option<_>>().ok_or_else(|| wrong(ENDS, "counts of tags"))?,
            })
        };
        read().map_err(|malformed: Malformed| item::corrupt(item, &malformed))
    }

    /// The ids that the caller gave to the events of a large commit. Others' are made of the commit's, and nobody else has them.
    pub(super) fn given_ids(&self) -> &[Uuid] {
        self.ids.as_deref().filter(|_| self.pieces.is_some()).unwrap_or_default()
    }
    pub(super) fn event_ids(&self) -> Vec<Uuid> {
        (0..self.count).map(|n| self.id(n)).collect()
    }
    #[cfg(feature = "streams")]
    pub(super) fn written(&self) -> Timestamp {
        self.written
    }
    fn id(&self, index: u64) -> Uuid {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        self.ids.as_ref().and_then(|ids| ids.get(at).copied()).unwrap_or_else(|| self.commit.event_id(at))
    }
}

impl Sekiban {
    pub(super) async fn record(&self, op: &Op, commit: CommitId) -> Result<Option<Record>> {
        Ok(self.record_or_grave(op, commit).await?.0)
    }

    /// The record of a commit; where there is none, how often pieces under its id were collected.
    pub(super) async fn record_or_grave(&self, op: &Op, commit: CommitId) -> Result<(Option<Record>, u64)> {
        let found = self.dynamo().get(op, &self.options().events, self.keys().commit(commit, RECORD), Freshness::Strong).await?;
        match found {
            None => Ok((None, 0)),
            Some(item) => match item.maybe_number(GRAVE).map_err(|malformed| item::corrupt(&item, &malformed))? {
                Some(buried) => Ok((None, buried)),
                None => Ok((Some(Record::of_item(commit, &item)?), 0)),
            },
        }
    }

    /// Where the events of a record stand. One whose id the caller gave may have been there before, or stand where the caller said: it is read.
    pub(super) async fn places(&self, op: &Op, record: &Record) -> Result<Vec<(SortableId, Uuid)>> {
        let ids: Vec<Uuid> = (0..record.count).map(|n| record.id(n)).collect();
        let mut found = BTreeMap::new();
        if record.ids.is_some() {
            let mut stored = self.stored_events(op, &ids).await?;
            if stored.len() < ids.len() && record.pieces.is_some() {
                self.finish(record.commit).await?;
                stored = self.stored_events(op, &ids).await?;
            }
            found.extend(stored.into_iter().map(|stored| (stored.event.id, stored.at)));
        }
        let place = |(id, n): (Uuid, u64)| (found.get(&id).copied().unwrap_or_else(|| SortableId::new(record.ticks + n, &id)), id);
        Ok(ids.into_iter().zip(0..).map(place).collect())
    }

    /// The places of its events that are its own, in order. It is in rows: an id of the caller's may have come to somebody else, who has them then.
    pub(super) async fn own_places(&self, op: &Op, record: &Record) -> Result<Vec<(SortableId, Uuid)>> {
        let ids = (0..record.count).map(|n| (record.ticks + n, record.id(n)));
        let mut places: Vec<_> = match &record.ids {
            None => ids.map(|(ticks, id)| (SortableId::new(ticks, &id), id)).collect(),
            Some(ids) => {
                let stored = self.stored_events(op, ids).await?;
                stored.iter().filter(|stored| stored.staged == Some(record.commit)).map(|stored| (stored.at, stored.event.id)).collect()
            }
        };
        places.sort_unstable();
        Ok(places)
    }

    pub(super) fn outcome(&self, op: &Op, record: &Record, places: &[(SortableId, Uuid)]) -> Result<Committed> {
        let positions: Option<Vec<_>> = places.iter().map(|(at, id)| at.position(id)).collect();
        let positions = positions.ok_or_else(|| Error::corrupt(LAYOUT, format!("commit {}: it is before 1970", record.commit)))?;
        Ok(Committed::new(record.commit, positions, None, op.units()))
    }

    /// A commit by its id alone; to a stream, with its version there.
    pub(super) async fn find_commit(&self, op: &Op, commit: CommitId, stream: Option<&Tag>) -> Result<Option<(Committed, u64)>> {
        let Some(record) = self.record(op, commit).await? else { return Ok(None) };
        let count = match stream {
            None => 0,
            Some(tag) => *record.ends.get(tag).ok_or_else(|| Refused::Foreign {
                what: "commit",
                of: "other streams".into(),
                here: format!("stream {tag}"),
            })?,
        };
        let places = self.places(op, &record).await?;
        Ok(Some((self.outcome(op, &record, &places)?, count)))
    }

    /// Puts the events where nobody looks, in pieces; how many. Pieces are called by what they hold: other events under the same commit id, of one
    /// who decides anew or of one who takes an id that is taken, never come between them. And by how often pieces under the id were collected: those that
    /// are being deleted are never the ones that are published.
    pub(super) async fn stage(&self, op: &Op, intent: &Intent<'_>, buried: u64) -> Result<u64> {
        let staged = intent.events.iter().zip(&intent.ids).enumerate().map(|(n, (event, id))| StagedEvent {
            id: *id,
            given: event.given_id().is_some(),
            at: intent.fixed.as_ref().and_then(|fixed| fixed.get(n).copied()),
            event_type: event.event_type().as_str().into(),
            data: event.data().clone(),
            tags: event.tags().to_vec(),
            meta: serde_json::to_string(event.metadata()).unwrap_or_default(),
        });
        let staged: Vec<_> = staged.collect();
        let bytes = postcard::to_stdvec(&staged).map_err(|_| Error::corrupt(LAYOUT, "events that cannot be staged"))?;
        let packed = pack(&bytes);
        let now = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let pieces: Vec<Item> = packed
            .chunks(PIECE)
            .enumerate()
            .map(|(n, piece)| {
                let mut item = self.keys().commit(intent.commit, &piece_key(n, &intent.digest, buried));
                item.insert(DATA.into(), binary(piece));
                item.insert(STAGED_AT.into(), number(now));
                item
            })
            .collect();
        let count = pieces.len() as u64;
        self.put_rows(op, &self.options().events, pieces).await?;
        Ok(count)
    }

    /// Puts a published commit into rows and lets go of its heads. Whoever does it, how often, and however many at once: the rows are the same.
    pub(crate) async fn finish(&self, commit: CommitId) -> Result<()> {
        let op = &self.dynamo().long_op();
        let Some(record) = self.record(op, commit).await? else { return Ok(()) };
        let Some(pieces) = record.pieces else { return Ok(()) };
        self.may_finish(op, commit).await?;
        let items = self.pieces(op, commit, &of_digest(&record.digest, record.buried)).await?;
        // Pieces are removed when all is done: somebody else was here.
        if (items.len() as u64) < pieces {
            return self.close(op, commit).await;
        }
        let staged = unstage(commit, &items)?;
        let events = staged.iter().map(StagedEvent::event).collect::<Result<Vec<_>>>()?;
        if digest(&events)[..] != record.digest {
            return Err(Error::corrupt(LAYOUT, format!("commit {commit}: what was staged is not what was published")));
        }
        let stamp = Stamp { keys: self.keys(), shards: record.shards, now: record.written, ttl: record.ttl, staged: Some(commit) };
        let placed = || {
            staged.iter().zip(&events).enumerate().map(|(n, (staged, event))| {
                let at = staged.at.unwrap_or_else(|| SortableId::new(record.ticks + n as u64, &staged.id));
                (staged.given, Placed { id: staged.id, at, event })
            })
        };
        let (mut plain, mut careful) = (Vec::new(), Vec::new());
        for (given, placed) in placed() {
            let item = stamp.event(&placed)?;
            if given { careful.push(item) } else { plain.push(item) }
        }
        let table = &self.options().events;
        self.put_rows(op, table, plain).await?;
        // An id of the caller's may have come to somebody else meanwhile: that event stays, and has its own rows.
        let outcomes = self.each(op, careful.into_iter().map(|item| Write::PutNew { table: table.clone(), item }).collect()).await?;
        let there = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Failed { verdicts, .. } => verdicts.first(),
            Outcome::Done => None,
        });
        let mut others = BTreeSet::new();
        for verdict in there {
            if let Verdict::Found(item) = verdict {
                let stored = item::stored(item)?;
                others.extend((stored.staged != Some(commit)).then_some(stored.event.id));
            }
        }
        if !others.is_empty() {
            metrics::counter!("fencepost_sekiban_taken_ids_total").increment(others.len() as u64);
            let taken = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            tracing::error!(%commit, %taken, "events of a large commit are not in it: their ids came to somebody else while it was published");
        }
        let rows: Vec<Item> = placed()
            .filter(|(_, placed)| !others.contains(&placed.id))
            .flat_map(|(_, placed)| placed.event.tags().iter().map(|tag| stamp.tag_row(&placed, tag)).collect::<Vec<_>>())
            .collect();
        self.put_rows(op, &self.options().tags, rows).await?;
        // Before the heads are let go: what comes behind it on a tag comes behind a commit that is in rows.
        self.close(op, commit).await?;
        let mut clears = Vec::with_capacity(record.ends.len());
        for tag in record.ends.keys() {
            clears.push(clear(&self.options().tags, self.keys().head(tag.as_str()), commit));
        }
        self.each(op, clears).await?;
        for item in items {
            let key = item.into_iter().filter(|(name, _)| name == HASH || name == RANGE).collect();
            self.dynamo().delete(op, table, key).await?;
        }
        self.side().ring();
        Ok(())
    }

    /// Writes of their own, several at once; what became of each.
    async fn each(&self, op: &Op, writes: Vec<Write>) -> Result<Vec<Outcome>> {
        let mut rest = writes.into_iter();
        let mut outcomes = Vec::new();
        loop {
            let some: Vec<_> = rest.by_ref().take(AT_ONCE).map(|write| self.dynamo().write(op, TABLE_HASH, vec![write])).collect();
            if some.is_empty() {
                return Ok(outcomes);
            }
            outcomes.extend(try_join_all(some).await?);
        }
    }

    async fn pieces(&self, op: &Op, commit: CommitId, of: &str) -> Result<Vec<Item>> {
        let key = self.keys().commit(commit, "");
        let Some(hash) = key.get(HASH) else { return Ok(Vec::new()) };
        let find = Find::new(&self.options().events, HASH, hash.clone());
        // At most 64 MiB: never a thousand of them.
        let find = find.range(Range::Begins(RANGE.into(), text("000")));
        let mut items: Vec<Item> = self.dynamo().items(op, find).try_collect().await?;
        items.retain(|item| item.text(RANGE).is_ok_and(|sk| sk.ends_with(of)));
        Ok(items)
    }

    /// Removes what was staged for a commit id that turned out to be taken. What is left of it is garbage, and collected as such.
    pub(super) async fn unstage_own(&self, op: &Op, intent: &Intent<'_>, pieces: u64, buried: u64) {
        for n in 0..pieces {
            let key = self.keys().commit(intent.commit, &piece_key(usize::try_from(n).unwrap_or(usize::MAX), &intent.digest, buried));
            if let Err(error) = self.dynamo().delete(op, &self.options().events, key).await {
                tracing::warn!(commit = %intent.commit, %error, "what was staged in vain is left to be collected");
                return;
            }
        }
    }

    /// Sees to it that nothing that was staged so far under a commit id is published.
    fn bury(&self, commit: CommitId, before: u64) -> Write {
        let mut item = self.keys().commit(commit, RECORD);
        item.insert(GRAVE.into(), number(before + 1));
        item.insert(WRITTEN.into(), text(item::written(self.dynamo().env().now())));
        put_over_grave(&self.options().events, item, before)
    }

    /// Deletes pieces that were never published, of commits older than this. Reads the whole events table.
    pub(crate) async fn collect_garbage(&self, older_than: std::time::Duration) -> Result<Collected> {
        let op = self.dynamo().long_op();
        self.refuse_replicas(&op, &self.options().events).await?;
        self.refuse_replicas(&op, &self.options().tags).await?;
        let now = u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0);
        let before = now.saturating_sub(u64::try_from(older_than.as_micros()).unwrap_or(u64::MAX));
        let mut collected = Collected::default();
        // Their keys alone: a commit is up to 64 MiB.
        let mut dead: BTreeMap<CommitId, Vec<Item>> = BTreeMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, &self.options().events, start).await?;
            for item in items.into_iter().filter(|item| self.keys().owns(item)) {
                let commit = item.text(HASH).ok().and_then(|pk| self.keys().rest(pk).strip_prefix("COMMIT#")?.parse().ok()).map(CommitId);
                if let (Some(commit), Ok(at)) = (commit, item.number(STAGED_AT))
                    && at < before
                {
                    dead.entry(commit).or_default().push(item.into_iter().filter(|(name, _)| name == HASH || name == RANGE).collect());
                }
            }
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        for (commit, keys) in dead {
            collected.seen += 1;
            match self.record_or_grave(&op, commit).await? {
                // One that is published is finished instead. What that leaves is of others, who were refused the id, or of one who died behind it.
                (Some(_), _) => self.finish(commit).await?,
                // Its writer, if it lives, finds this where its record would go, and stages anew.
                (None, before) => {
                    if let Outcome::Failed { .. } = self.dynamo().write(&op, TABLE_HASH, vec![self.bury(commit, before)]).await? {
                        continue;
                    }
                    collected.sets += 1;
                    collected.chunks += keys.len() as u64;
                }
            }
            for key in keys {
                self.dynamo().delete(&op, &self.options().events, key).await?;
            }
        }
        collected.units = op.units();
        Ok(collected)
    }
}

/// How a piece is called: its number, and whose it is.
fn piece_key(number: usize, digest: &[u8], buried: u64) -> String {
    format!("{number:06}{}", of_digest(digest, buried))
}

fn of_digest(digest: &[u8], buried: u64) -> String {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    match buried {
        0 => format!("#{digits}"),
        n => format!("#{digits}.{n}"),
    }
}

fn unstage(commit: CommitId, items: &[Item]) -> Result<Vec<StagedEvent>> {
    let corrupt = || Error::corrupt(LAYOUT, format!("commit {commit}: what was staged cannot be read"));
    let mut packed = Vec::new();
    for item in items {
        packed.extend_from_slice(item.bytes(DATA).map_err(|_| corrupt())?);
    }
    let bytes = unpack(&packed).ok_or_else(corrupt)?;
    postcard::from_bytes(&bytes).map_err(|_| corrupt())
}
