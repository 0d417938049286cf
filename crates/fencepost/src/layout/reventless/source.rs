//! The decision read: fences strongly first, then the events that they count, and the token that guards what was not there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::fence::{Fence, Seen};
use super::item::Stored;
use super::place::Cover;
use super::position::At;
use super::token::Held;
use super::{Reads, Reventless};
use crate::dynamo::{Freshness, Op, TRANSACTION_ITEMS};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::CommitId;
use crate::log::Sourced;
use crate::position::Token;
use crate::query::Query;

/// How often a read that does not show all that a fence counts is made again.
const LOOKS: u32 = 8;

/// Covers, and what each is asked for or was seen at.
pub(super) type Asked = BTreeMap<Cover, Option<BTreeSet<String>>>;

/// What a look showed: what is new, in order, and the covers as they stand.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) events: Vec<Stored>,
    pub(super) covers: BTreeMap<Cover, Seen>,
    /// Whether any of what lies there was written by the peer.
    pub(super) foreign: bool,
}

impl Reventless {
    pub(super) fn held(&self, query: &Query, covers: BTreeMap<Cover, Seen>) -> Held {
        Held { table: self.table().into(), fingerprint: query.fingerprint(), covers }
    }

    pub(super) async fn source_query(&self, op: &Op, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let looked = match since {
            None => self.look(op, query, &self.settings().covers(query)?, None, self.0.options.reads).await?,
            Some(token) => {
                let held = Held::open(token, self.table())?;
                if held.fingerprint != query.fingerprint() {
                    return Err(Refused::Foreign { what: "token", of: "another query".into(), here: "this one".into() }.into());
                }
                self.look_on(op, query, &held.covers).await?
            }
        };
        // One fence is read at one instant, and what it counts stood there then.
        let one = looked.covers.len() == 1 && !looked.foreign;
        let token = self.held(query, looked.covers).seal();
        let events = looked.events.into_iter().map(|event| event.recorded).collect();
        Ok(Sourced::new(events, token, None, op.units()).at_one_instant(one))
    }

    /// What came since covers were seen so.
    pub(super) async fn look_on(&self, op: &Op, query: &Query, known: &BTreeMap<Cover, Seen>) -> Result<Looked> {
        let asked = known.iter().map(|(cover, seen)| (cover.clone(), seen.asked())).collect();
        self.look(op, query, &asked, Some(known), self.0.options.reads).await
    }

    /// What matches and is not in the model of one who saw the covers so.
    pub(super) async fn look(
        &self,
        op: &Op,
        query: &Query,
        asked: &Asked,
        known: Option<&BTreeMap<Cover, Seen>>,
        reads: Reads,
    ) -> Result<Looked> {
        let mut covers = BTreeMap::new();
        let mut all: Vec<Stored> = Vec::new();
        let mut any_foreign = false;
        let mut fences = self.fences(op, asked.keys(), Freshness::Strong).await?;
        for (cover, types) in asked {
            let before = known.and_then(|known| known.get(cover));
            let mut attempt = 0;
            let (events, foreign) = loop {
                let fence = &fences[cover];
                // Nothing that was asked for has moved: nothing to read.
                if let Some(seen) = before.filter(|seen| seen.holds(fence) && seen.version == fence.version) {
                    break (Vec::new(), seen.foreign);
                }
                match self.counted(op, cover, (types.as_ref(), fence, before), reads.freshness(attempt)).await? {
                    Some(read) => break read,
                    None => {
                        attempt += 1;
                        self.wait_for_all(op, cover, attempt).await?;
                        // The peer may have moved it; ours only adds.
                        fences.extend(self.fences(op, [cover], Freshness::Strong).await?);
                    }
                }
            };
            any_foreign |= foreign > 0;
            covers.insert(cover.clone(), fences[cover].seen(types.as_ref(), foreign));
            all.extend(events);
        }
        // Every event is judged by the whole query, and is in the model if any cover that it lies on had been read as far.
        let in_model = |event: &Stored, covers: &BTreeMap<Cover, Seen>| {
            event.is_ours()
                && self
                    .settings()
                    .fences(&event.written)
                    .keys()
                    .any(|cover| covers.get(cover).is_some_and(|seen| event.at.stamp <= seen.stamp))
        };
        all.retain(|event| query.matches(&event.recorded.event_type, &event.recorded.tags));
        all.retain(|event| !event.is_ours() || in_model(event, &covers));
        if let Some(known) = known {
            all.retain(|event| !in_model(event, known));
        }
        all.sort_by_key(|event| event.at);
        all.dedup_by_key(|event| event.at);
        Ok(Looked { events: all, covers, foreign: any_foreign })
    }

    /// A pause before a cover is looked at again, if it may be.
    async fn wait_for_all(&self, op: &Op, cover: &Cover, attempt: u32) -> Result<()> {
        let pause = self.dynamo().pause(attempt, Reason::Unreachable);
        if attempt >= LOOKS || op.is_over(pause) {
            let message = format!("{} does not show yet all that its fence counts: decide later", cover.id());
            return Err(Error::unavailable(Reason::Throttled, message));
        }
        self.dynamo().env().sleep(pause).await;
        Ok(())
    }

    /// The events of a cover that its fence stands for, and how many of them all are the peer's. None: not all of them show yet.
    async fn counted(
        &self,
        op: &Op,
        cover: &Cover,
        (types, fence, before): (Option<&BTreeSet<String>>, &Fence, Option<&Seen>),
        freshness: Freshness,
    ) -> Result<Option<(Vec<Stored>, u64)>> {
        let (after, count, more) = before.map_or((0, 0, 0), |seen| (seen.stamp, seen.count, seen.more));
        let read = async |freshness| self.on_cover(op, cover, before.map(|seen| seen.stamp), fence.more > more, freshness).await;
        let mut events = read(freshness).await?;
        // The peer counts nothing: what it left on the fence and a replica does not show is read strongly.
        if freshness == Freshness::Eventual && self.settings().is_home(cover) && !explained(before, (types, fence), &events) {
            events = read(Freshness::Strong).await?;
        }
        let ours = events.iter().filter(|event| event.is_ours() && event.at.stamp > after && event.at.stamp <= fence.stamp).count() as u64;
        if ours < fence.count - count.min(fence.count) {
            return Ok(None);
        }
        // Ours beyond the fence came after it was read, and are left for the next read.
        events.retain(|event| !event.is_ours() || event.at.stamp <= fence.stamp);
        let foreign = events.iter().filter(|event| !event.is_ours()).count() as u64;
        if let Some(before) = before {
            late(before, fence, &events)?;
            events.retain(Stored::is_ours);
            return Ok(Some((events, before.foreign)));
        }
        // The peer counts nothing: what it wrote is whole only if it left the fence alone meanwhile. What ours moved is judged at the append.
        if foreign > 0 {
            let again = self.fences(op, [cover], Freshness::Strong).await?.remove(cover).unwrap_or_default();
            let by_ours = |of: &String| again.versions.get(of) != fence.versions.get(of);
            let mut asked = again.positions.iter().filter(|(of, _)| types.is_none_or(|types| types.contains(*of)));
            if asked.any(|(of, position)| fence.positions.get(of) != Some(position) && !by_ours(of)) {
                return Ok(None);
            }
        }
        Ok(Some((events, foreign)))
    }

    pub(super) async fn is_unchanged(&self, op: &Op, token: &Token) -> Result<bool> {
        let held = Held::open(token, self.table())?;
        let keys: Vec<_> = held.covers.keys().map(super::fence::fence_key).collect();
        let found = match <[_; 1]>::try_from(keys) {
            // One item needs no transaction to be read at one instant.
            Ok([key]) => vec![self.dynamo().get(op, self.table(), key, Freshness::Strong).await?],
            Err(keys) if keys.len() > TRANSACTION_ITEMS => {
                return Err(Refused::TooManyItems { items: keys.len(), limit: TRANSACTION_ITEMS }.into());
            }
            Err(keys) => self.dynamo().get_together(op, self.table(), keys).await?,
        };
        let fences = found.iter().map(|item| item.as_ref().map_or(Fence::default(), Fence::of_item));
        Ok(held.covers.values().zip(fences).all(|(seen, fence)| seen.holds(&fence)))
    }

    /// A cover as it stood right after a commit of ours that moved it, with this stamp, for one who had seen it so before; and what of ours lay between,
    /// that commit included.
    pub(super) async fn as_of(&self, op: &Op, cover: &Cover, seen: &Seen, stamp: u64) -> Result<(Seen, Vec<Stored>)> {
        let (home, mut attempt) = (self.settings().is_home(cover), 0);
        // A partition is read strongly, and may be read from the commit on; an index must show all that came since it was seen.
        let from = if home && seen.stamp == 0 { stamp.saturating_sub(1) } else { seen.stamp };
        let (fence, since) = loop {
            let fence = self.fences(op, [cover], Freshness::Strong).await?.remove(cover).unwrap_or_default();
            let mut since = self.on_cover(op, cover, Some(from), fence.more > seen.more, Freshness::Strong).await?;
            since.retain(|event| event.is_ours() && event.at.stamp <= fence.stamp);
            if home || since.len() as u64 + seen.count >= fence.count {
                break (fence, since);
            }
            attempt += 1;
            self.wait_for_all(op, cover, attempt).await?;
        };
        let (later, then): (Vec<&Stored>, Vec<&Stored>) = since.iter().partition(|event| event.at.stamp > stamp);
        let commits = |events: &[&Stored]| events.iter().map(|event| event.at.commit).collect::<BTreeSet<CommitId>>();
        let homes = later.iter().filter(|event| event.id == cover.id()).copied().collect::<Vec<_>>();
        let hidden = later.iter().filter(|event| self.settings().fences(&event.written).get(cover) == Some(&true)).count() as u64;
        let counted = |all: u64, later: usize| all.saturating_sub(later as u64);
        let mut known = fence.seen(seen.asked().as_ref(), seen.foreign);
        known.version = counted(fence.version, commits(&later).len());
        known.count = counted(fence.count, later.len());
        known.home_version = counted(fence.home_version, commits(&homes).len());
        known.more = fence.more.saturating_sub(hidden);
        known.stamp = stamp;
        // What moved a type since, or nobody of ours, is nothing that was seen: anything that is not now will do.
        let (ours, moved) = (commits(&then), later.iter().map(|event| event.recorded.event_type.as_str()).collect::<BTreeSet<_>>());
        let was_seen = |of: &String, position: &Option<String>| {
            let before = seen.types.get(of).is_some_and(|(_, before)| before == position);
            let by_ours = position.as_deref().and_then(At::parse).is_some_and(|at| ours.contains(&at.commit));
            !moved.contains(of.as_str()) && (before || by_ours || position.is_none())
        };
        known.types.iter_mut().filter(|(of, (_, position))| !was_seen(of, position)).for_each(|(_, at)| *at = (0, None));
        let mut between = since;
        if from != seen.stamp && known.version > seen.version + 1 {
            between = self.on_cover(op, cover, None, known.more > 0, Freshness::Strong).await?;
        }
        between.retain(|event| event.is_ours() && event.at.stamp > seen.stamp && event.at.stamp <= stamp);
        Ok((known, between))
    }
}

/// Whether every position that the fence has of what was asked for was seen before, or is of a commit that was read.
fn explained(before: Option<&Seen>, (types, fence): (Option<&BTreeSet<String>>, &Fence), events: &[Stored]) -> bool {
    let commits: BTreeSet<CommitId> = events.iter().map(|event| event.at.commit).collect();
    let seen = |of: &String, position: &String| {
        before.and_then(|before| before.types.get(of)).is_some_and(|(_, seen)| seen.as_ref() == Some(position))
    };
    let asked = fence.positions.iter().filter(|(of, _)| types.is_none_or(|types| types.contains(*of)));
    let mut unknown = asked.filter(|(of, position)| !seen(of, position));
    unknown.all(|(_, position)| At::parse(position).is_some_and(|at| commits.contains(&at.commit)))
}

/// A model that was read before the peer wrote on its covers cannot be read on: where the peer puts an event, it may lie before what was
/// read. What it left on the fence tells, unless it is ours.
fn late(before: &Seen, fence: &Fence, events: &[Stored]) -> Result<()> {
    let commits: HashMap<CommitId, u64> =
        events.iter().filter(|event| event.is_ours()).map(|event| (event.at.commit, event.at.stamp)).collect();
    let ours = |position: &str| At::parse(position).is_some_and(|at| commits.contains_key(&at.commit));
    let asked = |of: &&String| !before.typed || before.types.contains_key(*of);
    let moved = fence.positions.iter().filter(|(of, _)| asked(of));
    let mut moved = moved.filter(|(of, position)| before.types.get(*of).and_then(|(_, seen)| seen.as_ref()) != Some(position));
    match moved.any(|(_, position)| !ours(position)) {
        false => Ok(()),
        true => {
            let of = "a state before an event of another writer's that this store does not count";
            Err(Refused::Foreign { what: "token", of: of.into(), here: "the state now: read again, all of it".into() }.into())
        }
    }
}
