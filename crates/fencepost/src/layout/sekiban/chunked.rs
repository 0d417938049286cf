//! Sekiban's own way with large writes, where that is asked for: one chunk after the other, and an event with too many tags in several transactions.
//! A reader may see a part of it, and so may a crash leave it.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use uuid::Uuid;

use super::append::Run;
use super::item::{Head, Placed, Stamp};
use super::ops::{WriteOptions, Written};
use super::plan::{Intent, Stand, TABLE_HASH, bump};
use super::settle::same;
use super::suid::SortableId;
use super::token::Began;
use super::{Large, Sekiban};
use crate::dynamo::item::size;
use crate::dynamo::{Freshness, Op, Outcome, TRANSACTION_BYTES, Verdict, Write};
use crate::error::{Error, InDoubt, Reason, Refused, Result};
use crate::event::{Event, Tag, digest};

/// What an update holds beside its key: a few numbers.
const BESIDE_KEY: usize = 256;

impl Sekiban {
    /// Greedily in the order given, as far as items and bytes of a transaction go; an event that fits in none comes alone. What no chunk could hold is
    /// refused here, before the first is written.
    pub(super) fn chunks(&self, events: &[Event], places: &[SortableId], options: WriteOptions) -> Result<Vec<std::ops::Range<usize>>> {
        let most = self.options().transaction_items;
        let now = self.dynamo().env().now();
        let stamp = Stamp { keys: self.keys(), shards: self.options().shards, now, ttl: options.seconds(), staged: None };
        let mut chunks = Vec::new();
        let (mut from, mut cost, mut bytes) = (0, 0, 0);
        for (n, (event, at)) in events.iter().zip(places).enumerate() {
            let placed = Placed { id: given(event)?, at: *at, event };
            let rows =
                event.tags().iter().map(|tag| size(&stamp.tag_row(&placed, tag)) + size(&self.keys().head(tag.as_str())) + BESIDE_KEY);
            let (items, weight) = (1 + 2 * event.tags().len(), size(&stamp.event(&placed)?) + rows.sum::<usize>());
            if n > from && (cost + items > most || bytes + weight > TRANSACTION_BYTES) {
                chunks.push(from..n);
                (from, cost, bytes) = (n, 0, 0);
            }
            cost += items;
            bytes += weight;
        }
        chunks.push(from..events.len());
        Ok(chunks)
    }

    /// One transaction, or none where one event alone is too much for it.
    pub(super) async fn write_chunk(
        &self,
        op: &Op,
        events: &[Event],
        places: &[SortableId],
        options: WriteOptions,
        written: &mut Written,
        ends: &mut BTreeMap<Tag, u64>,
    ) -> Result<()> {
        if let [event] = events
            && self.options().large == Large::Chunked
            && 1 + 2 * event.tags().len() > self.options().transaction_items
        {
            return self.write_tag_by_tag(op, event, places[0], options, written, ends).await;
        }
        let mut intent = Intent::new(self.dynamo().env().new_commit_id(), events)?;
        intent.fixed = Some(places.to_vec());
        let mut run = Run::new(intent, false);
        run.ttl = options.seconds();
        run.published = true;
        let done = self.tries(op, &mut run).await;
        let committed = self.told(&run, done)?;
        written.positions.extend(committed.positions);
        written.duplicates.extend(run.intent.there.values().map(|stored| stored.event.id));
        ends.extend(run.ends);
        Ok(())
    }

    /// The event, then its rows, as many tags at a time as a transaction holds, each with its head: nobody of ours decides on a tag beside it. What
    /// failed before the first row is taken back, as far as the settings say; behind that it stays, and a repeat completes it. Sekiban would write over an
    /// event that is there, and take it back from under its rows.
    async fn write_tag_by_tag(
        &self,
        op: &Op,
        event: &Event,
        at: SortableId,
        options: WriteOptions,
        written: &mut Written,
        ends: &mut BTreeMap<Tag, u64>,
    ) -> Result<()> {
        let id = given(event)?;
        self.before_writing(op).await?;
        let known = self.stored_event(op, &id, Freshness::Strong).await?;
        if known.is_none() {
            let stands = try_join_all(event.tags().iter().map(|tag| self.stand(op, tag))).await?;
            event.tags().iter().zip(&stands).try_for_each(|(tag, stand)| stands_behind(at, tag, stand))?;
        }
        let now = self.dynamo().env().now();
        let stamp = Stamp { keys: self.keys(), shards: self.options().shards, now, ttl: options.seconds(), staged: None };
        let there = match known {
            Some(there) => Some(there),
            None => {
                let item = stamp.event(&Placed { id, at, event })?;
                let put = self.dynamo().write(op, TABLE_HASH, vec![Write::PutNew { table: self.options().events.clone(), item }]).await;
                let put = put.map_err(|f| if f.doubt { self.in_part(std::slice::from_ref(event), f.error) } else { f.error })?;
                match put {
                    Outcome::Done => None,
                    // Somebody else was faster, or we were ourselves, unheard.
                    Outcome::Failed { .. } => self.stored_event(op, &id, Freshness::Strong).await?,
                }
            }
        };
        if let Some(there) = &there {
            same(event, there)?;
        }
        // Where it is there, its rows may not be: whoever wrote it may have failed on the way.
        let at = there.as_ref().map_or(at, |there| there.at);
        let position =
            at.position(&id).ok_or_else(|| Refused::Malformed { what: "sortable unique id", why: "it is before 1970".into() })?;
        let placed = Placed { id, at, event };
        let mut landed = if there.is_some() { Landed::Perhaps } else { Landed::Nothing };
        for tags in event.tags().chunks(self.options().transaction_items / 2) {
            let put = self.put_with_heads(op, tags, &placed, &stamp, &mut landed, ends).await;
            let Err(error) = put else { continue };
            if landed == Landed::Perhaps || !self.options().roll_back {
                return Err(self.in_part(std::slice::from_ref(event), error));
            }
            let taken_back = self.dynamo().delete(op, &self.options().events, self.keys().event(&id.to_string())).await;
            return Err(if taken_back.is_ok() { error } else { self.in_part(std::slice::from_ref(event), error) });
        }
        written.positions.push(position);
        written.duplicates.extend(there.map(|_| id));
        Ok(())
    }

    /// An event's rows on some tags, with their heads, in one transaction; those that are there are left. Where somebody came behind its place since the first
    /// rows were put, the row comes late, as one of Sekiban's would: the head counts it, and stays.
    async fn put_with_heads(
        &self,
        op: &Op,
        tags: &[Tag],
        placed: &Placed<'_>,
        stamp: &Stamp<'_>,
        landed: &mut Landed,
        ends: &mut BTreeMap<Tag, u64>,
    ) -> Result<()> {
        let table = &self.options().tags;
        let mut missing: Vec<&Tag> = tags.iter().collect();
        for _ in 0..64 {
            let stands = try_join_all(missing.iter().map(|tag| self.stand(op, tag))).await?;
            let mut writes = Vec::with_capacity(2 * missing.len());
            let mut heads = Vec::with_capacity(missing.len());
            for (tag, stand) in missing.iter().zip(&stands) {
                if *landed == Landed::Nothing {
                    stands_behind(placed.at, tag, stand)?;
                }
                let last = stand.end.id().max(stand.head.map(|head| head.pos));
                let head = Head { pos: last.map_or(placed.at, |last| last.max(placed.at)), cnt: stand.end.count + 1, pending: None };
                writes.push(Write::PutNew { table: table.clone(), item: stamp.tag_row(placed, tag) });
                writes.push(bump(table, self.keys().head(tag.as_str()), stand.head, head));
                heads.push(head);
            }
            let outcome = self.dynamo().write(op, TABLE_HASH, writes).await.map_err(|failure| {
                if failure.doubt {
                    *landed = Landed::Perhaps;
                }
                failure.error
            })?;
            match outcome {
                Outcome::Done => {
                    *landed = Landed::Perhaps;
                    for (tag, head) in missing.iter().zip(heads) {
                        self.remember(tag, head);
                        ends.insert((*tag).clone(), head.cnt);
                    }
                    return Ok(());
                }
                Outcome::Failed { verdicts, doubt } => {
                    if doubt {
                        *landed = Landed::Perhaps;
                    }
                    self.heads().retain(|tag, _| !missing.contains(&tag));
                    let mut rows = verdicts.iter().step_by(2).map(|verdict| matches!(verdict, Verdict::Found(_)));
                    let there: Vec<bool> = missing.iter().map(|_| rows.next().unwrap_or(false)).collect();
                    for (tag, _) in missing.iter().zip(&there).filter(|(_, there)| **there) {
                        ends.insert((*tag).clone(), self.catch_head_up(op, tag).await?);
                    }
                    let mut there = there.into_iter();
                    missing.retain(|_| !there.next().unwrap_or(false));
                    if missing.is_empty() {
                        *landed = Landed::Perhaps;
                        return Ok(());
                    }
                }
            }
        }
        Err(Error::unavailable(Reason::Throttled, "the heads of the tags kept moving"))
    }

    /// Some of it is written, and the rest is not: written again, what is there is passed over and what is missing is put.
    pub(super) fn in_part(&self, events: &[Event], error: Error) -> Error {
        if !error.recorded_nothing() {
            return error;
        }
        self.doubt(events, format!("a part of it is written, or may be: write it again ({error})"))
    }

    /// A doubt of what has no commit of its own.
    pub(super) fn doubt(&self, events: &[Event], message: String) -> Error {
        let (namespace, digest) = (self.namespace().into(), digest(events));
        let base = Began { namespace, recorded: false, once: false, digest, tried: Vec::new() }.seal();
        Error::InDoubt(Box::new(InDoubt { commit: self.dynamo().env().new_commit_id(), base, message }))
    }

    /// Moves a head to where its tag's rows are; how many there are.
    pub(super) async fn catch_head_up(&self, op: &Op, tag: &Tag) -> Result<u64> {
        self.refuse_replicas(op, &self.options().tags).await?;
        for _ in 0..64 {
            let stand = self.stand(op, tag).await?;
            let Some(pos) = stand.end.id().filter(|id| stand.head.is_none_or(|head| head.pos < *id)) else { return Ok(stand.end.count) };
            let head = Head { pos, cnt: stand.end.count, pending: None };
            let write = bump(&self.options().tags, self.keys().head(tag.as_str()), stand.head, head);
            if let Outcome::Done = self.dynamo().write(op, TABLE_HASH, vec![write]).await? {
                stand.count_passed();
                self.remember(tag, head);
                return Ok(head.cnt);
            }
            self.heads().remove(tag);
        }
        Err(Error::unavailable(Reason::Throttled, "a head kept moving"))
    }
}

/// Whether rows of an event may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Landed {
    Nothing,
    Perhaps,
}

/// Refuses a place that does not stand behind all that is on a tag: who has read that would never see it.
pub(super) fn stands_behind(at: SortableId, tag: &Tag, stand: &Stand) -> Result<()> {
    match stand.end.id().max(stand.head.map(|head| head.pos)) {
        Some(last) if at <= last => {
            let why = format!("{at} does not stand behind {last}, the last of tag {tag}: events are recorded in order");
            Err(Refused::Malformed { what: "sortable unique id", why }.into())
        }
        _ => Ok(()),
    }
}

fn given(event: &Event) -> Result<Uuid> {
    event.given_id().ok_or_else(|| Refused::Malformed { what: "event", why: "a write needs the id of each event".into() }.into())
}
