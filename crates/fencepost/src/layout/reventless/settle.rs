//! Settling a try: what it left behind, our own earlier success, a conflict; and commits found by their ids.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use super::append::Run;
use super::fence::{Fence, Seen};
use super::item::{self, Once, Stored};
use super::place::Cover;
use super::plan::Part;
use super::position::{At, floor};
use super::token::Began;
use super::{Reads, Reventless};
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::{Find, Freshness, Op, Range, Verdict};
use crate::error::{Error, Refused, Result};
use crate::event::CommitId;
use crate::log::Committed;
use crate::position::Position;

impl Reventless {
    /// What a try that landed left behind.
    pub(super) fn landed(&self, op: &Op, run: &Run<'_>, stamp: u64, exact: &BTreeMap<Cover, (u64, u64)>) -> (Committed, Option<Seen>) {
        let last = run.intent.last(stamp);
        for (cover, touch) in &run.intent.touches {
            // A fence that was moved without being known is not known now.
            if !exact.contains_key(cover) {
                continue;
            }
            let read = run.boundary.as_ref().and_then(|b| b.seen.get(cover));
            let mut fence = run.known.get(cover).cloned().unwrap_or_default();
            let seen = read.cloned().unwrap_or_else(|| fence.seen(None, 0)).moved(touch, &last);
            (fence.version, fence.count, fence.stamp, fence.home_version, fence.more) =
                (seen.version, seen.count, seen.stamp, seen.home_version, seen.more);
            for (of, (version, position)) in seen.types {
                fence.versions.insert(of.clone(), version);
                fence.positions.extend(position.map(|position| (of, position)));
            }
            self.remember(cover, fence);
        }
        let moved = |(cover, seen): (&Cover, &Seen)| {
            (cover.clone(), run.intent.touches.get(cover).map_or_else(|| seen.clone(), |touch| seen.moved(touch, &last)))
        };
        let covers: Option<BTreeMap<Cover, Seen>> = run.boundary.as_ref().map(|b| b.seen.iter().map(moved).collect());
        let stream = run.stream.and_then(|stream| {
            let known = || Some(run.known.get(stream)?.seen(None, 0).moved(run.intent.touches.get(stream)?, &last));
            covers.as_ref().and_then(|covers| covers.get(stream).cloned()).or_else(known)
        });
        let token = run.boundary.as_ref().zip(covers).map(|(boundary, covers)| self.held(boundary.query, covers).seal());
        self.side().ring();
        (Committed::new(run.intent.commit, positions(run.intent.commit, stamp, run.intent.drafts.len()), token, op.units()), stream)
    }

    /// What a failed try tells: our own earlier success, a conflict, or what to know for the next.
    pub(super) async fn lost(
        &self,
        op: &Op,
        run: &mut Run<'_>,
        stamp: u64,
        exact: &BTreeMap<Cover, (u64, u64)>,
        parts: &[Part],
        verdicts: Vec<Verdict>,
    ) -> Result<Option<(Committed, Option<Seen>)>> {
        let taken = parts
            .iter()
            .zip(&verdicts)
            .any(|(part, verdict)| matches!(verdict, Verdict::Found(_)) && matches!(part, Part::Event | Part::Pointer | Part::Once));
        // Nobody else has our keys; and hidden by another reason, our commit may be there.
        if (taken || run.doubt)
            && let Some(done) = self.landed_before_at(op, run, stamp, Some(exact)).await?
        {
            return Ok(Some(done));
        }
        if let Some(repeated) = run.repeats
            && let Some(done) = self.landed_before_at(op, run, repeated, None).await?
        {
            return Ok(Some(done));
        }
        self.take_in(op, run, parts, verdicts).await?;
        let Some(boundary) = &run.boundary else { return Ok(None) };
        let looked = match boundary.fresh {
            true => {
                let asked = boundary.seen.iter().map(|(cover, seen)| (cover.clone(), seen.asked())).collect();
                self.look(op, boundary.query, &asked, None, Reads::Strong).await
            }
            false => self.look_on(op, boundary.query, &boundary.seen).await,
        };
        let looked = match looked {
            // Another writer, who counts nothing, was here: what is new cannot be told from what was read.
            Err(Error::Refused(Refused::Foreign { .. })) => {
                let conflict = Error::conflict(Vec::new(), None);
                return self.unless_recorded(op, run, conflict).await.map(Some);
            }
            looked => looked?,
        };
        if looked.events.is_empty() {
            if let Some(boundary) = &mut run.boundary {
                boundary.seen = looked.covers;
                boundary.fresh = false;
            }
            return Ok(None);
        }
        let token = boundary.whole.then(|| self.held(boundary.query, looked.covers).seal());
        let conflict = Error::conflict(looked.events.into_iter().map(|event| event.recorded).collect(), token);
        self.unless_recorded(op, run, conflict).await.map(Some)
    }

    /// It may have been recorded when the condition still held, under an id of the caller's, or by a try in doubt that landed since it was
    /// last looked for, and is itself what is in the way: then that is the answer.
    async fn unless_recorded(&self, op: &Op, run: &mut Run<'_>, conflict: Error) -> Result<(Committed, Option<Seen>)> {
        match run.intent.once || run.repeats.is_some() || run.doubt {
            true => self.landed_before(op, run).await?.ok_or(conflict),
            false => Err(conflict),
        }
    }

    /// The outcome of an earlier try, of this run or of the one that this repeats, if it landed.
    pub(super) async fn landed_before(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<(Committed, Option<Seen>)>> {
        let stamp = run.began.as_ref().map_or(0, |began| began.stamp);
        self.landed_before_at(op, run, stamp, None).await
    }

    async fn landed_before_at(
        &self,
        op: &Op,
        run: &mut Run<'_>,
        stamp: u64,
        exact: Option<&BTreeMap<Cover, (u64, u64)>>,
    ) -> Result<Option<(Committed, Option<Seen>)>> {
        let commit = run.intent.commit;
        let (landed, digest) = if run.intent.once {
            let Some(found) = self.once(op, commit).await? else { return Ok(None) };
            (found.stamp, Some(found.digest))
        } else {
            let found = match exact {
                Some(_) => {
                    let first = item::key(run.intent.first_id(), &run.intent.at(stamp, 0).text());
                    self.dynamo().get(op, self.table(), first, Freshness::Strong).await?
                }
                // A repeat may have stamped itself anew: its commit is in the position, whatever the stamp.
                None => self.first_event(op, run.intent.first_id(), commit, stamp).await?,
            };
            let Some(found) = found else { return Ok(None) };
            let (_, at, marks) = item::placed(&found)?;
            (at.stamp, marks.digest)
        };
        if digest != Some(run.intent.digest) {
            return Err(Refused::Reused { commit }.into());
        }
        // This very try landed: what it knew then held then.
        if let Some(exact) = exact.filter(|_| landed == stamp) {
            return Ok(Some(self.landed(op, run, stamp, exact)));
        }
        // It landed. What stands behind it may not show yet: then the answer is still out, and nobody may say that nothing was recorded.
        run.doubt = true;
        run.began = Some(Began { table: self.table().into(), id: run.intent.first_id().into(), stamp: landed, once: run.intent.once });
        let mut covers = BTreeMap::new();
        // Another run may have landed it, behind events that this one's model has not.
        let mut unread = false;
        if let Some(boundary) = &run.boundary {
            for (cover, seen) in &boundary.model {
                let then = match run.intent.touches.contains_key(cover) && landed > seen.stamp {
                    true => {
                        let (then, between) = self.as_of(op, cover, seen, landed).await?;
                        let matches = |event: &Stored| boundary.query.matches(&event.recorded.event_type, &event.recorded.tags);
                        unread |= between.iter().any(|event| event.at.commit != commit && matches(event));
                        then
                    }
                    false => seen.clone(),
                };
                covers.insert(cover.clone(), then);
            }
        }
        let stream = match run.stream {
            None => None,
            Some(stream) => match covers.get(stream) {
                Some(seen) => Some(seen.clone()),
                None => Some(self.as_of(op, stream, &Fence::default().seen(None, 0), landed).await?.0),
            },
        };
        let token = run.boundary.as_ref().filter(|_| !unread).map(|boundary| self.held(boundary.query, covers).seal());
        let positions = positions(commit, landed, run.intent.drafts.len());
        Ok(Some((Committed::new(commit, positions, token, op.units()), stream)))
    }

    /// The first event of a commit, in its partition, from a stamp on.
    async fn first_event(&self, op: &Op, id: &str, commit: CommitId, stamp: u64) -> Result<Option<Item>> {
        let range = Range::After(item::RANGE.into(), text(floor(stamp)));
        let mut items = std::pin::pin!(self.dynamo().items(op, Find::new(self.table(), item::HASH, text(id)).range(range)));
        while let Some(item) = items.try_next().await? {
            if item.text(item::RANGE).ok().and_then(At::parse).is_some_and(|at| at.commit == commit && at.index() == 0) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    pub(super) async fn once(&self, op: &Op, commit: CommitId) -> Result<Option<Once>> {
        let found = self.dynamo().get(op, self.table(), item::once_key(commit), Freshness::Strong).await?;
        found.map(|item| item::of_once(&item)).transpose()
    }

    /// The outcome of a commit under an id of the caller's, if it was recorded, and what is remembered of it.
    pub(super) async fn find_commit(&self, op: &Op, commit: CommitId) -> Result<Option<(Committed, Once)>> {
        let Some(once) = self.once(op, commit).await? else { return Ok(None) };
        let events = usize::try_from(once.events).unwrap_or(0);
        Ok(Some((Committed::new(commit, positions(commit, once.stamp, events), None, op.units()), once)))
    }
}

fn positions(commit: CommitId, stamp: u64, events: usize) -> Vec<Position> {
    (0..events).map(|index| At::of(stamp, commit, index, events).position()).collect()
}
