//! Settling a try that failed: our own earlier success, a conflict, or where to try next; and looking for a commit that may have landed.

use std::collections::BTreeMap;

use futures::future::try_join_all;

use super::Ledger;
use super::append::{Boundary, Run};
use super::item::{self, Place, Slot};
use super::mutation::Mutation;
use super::plan::{self, Part};
use super::resolve::Met;
use super::series::{End, Series};
use super::token::Began;
use crate::dynamo::item::Item;
use crate::dynamo::{Freshness, Op, Verdict};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Recorded};
use crate::log::Committed;
use crate::position::Token;

/// What a look from the base showed.
#[derive(Debug)]
pub(super) enum Looked {
    Landed(Box<Committed>),
    /// Nothing of ours up to this end.
    Not(End),
}

impl Ledger {
    /// What a failed try tells: our own earlier success, a conflict, or where to try next.
    pub(super) async fn lost_race(
        &self,
        op: &Op,
        run: &mut Run<'_>,
        lane: u8,
        parts: &[Part],
        verdicts: Vec<Verdict>,
    ) -> Result<Option<Committed>> {
        let mut found: Vec<(&Part, Item)> = Vec::new();
        for (part, verdict) in parts.iter().zip(verdicts) {
            if let Verdict::Found(item) = verdict {
                found.push((part, *item));
            }
        }
        if let Some((part, item)) = found.iter().find(|(_, item)| item::commit_of(item) == Some(run.intent.commit)) {
            return self.own(op, run, part, item).await.map(Some);
        }
        let mut slots = Vec::new();
        for (part, item) in &found {
            match part {
                Part::Slot(series) | Part::Check(series) => {
                    let slot = item::slot(self.namespace(), item)?;
                    let losses = run.losses.entry(series.clone()).or_default();
                    *losses += 1;
                    // The second time the series' whole tail is read: it moves faster than one slot a try.
                    let more = if *losses > 1 { self.tail(op, series, slot.version, Freshness::Strong).await? } else { Vec::new() };
                    slots.push(slot);
                    slots.extend(more);
                }
                // The sweeper was first: the chunks are gone, or going.
                Part::Seal if item::is_dead_seal(item) => run.set = None,
                Part::Seal | Part::Once => {
                    return Err(Error::corrupt("ledger", format!("{} belongs to another commit", item::describe(item))));
                }
            }
        }
        if found.is_empty() {
            slots = self.all_tails(op, run, lane).await?;
        }
        self.take_in(op, run, slots).await
    }

    /// Slots that were met on the way: our own commit among them is success, a match is a conflict, else the run moves past them.
    pub(super) async fn take_in(&self, op: &Op, run: &mut Run<'_>, slots: Vec<Slot>) -> Result<Option<Committed>> {
        if let Some(slot) = slots.iter().find(|slot| slot.commit == run.intent.commit) {
            return self.outcome(op, run, slot.home_key()).await.map(Some);
        }
        let Some(conflict) = self.judge_new(op, run, slots).await? else { return Ok(None) };
        // Hidden by another reason, our own commit may be there: one look decides, and after it no try of ours can land.
        if run.doubt
            && !self.mutated(Mutation::NoLook)
            && let Looked::Landed(done) = self.look(op, run).await?
        {
            return Ok(Some(*done));
        }
        Err(conflict)
    }

    /// Where no reason shows an item, every series of the try is read on.
    async fn all_tails(&self, op: &Op, run: &Run<'_>, lane: u8) -> Result<Vec<Slot>> {
        let mut ends = run.ends.clone();
        ends.extend(run.lane.map(|end| (Series::Lane(lane), end)));
        ends.extend(run.boundary.iter().flat_map(|b| b.seen.clone()));
        let tails = ends.iter().map(|(series, end)| self.tail(op, series, end.version, Freshness::Strong));
        Ok(try_join_all(tails).await?.into_iter().flatten().collect())
    }

    /// Takes in slots of others: moves the known ends past them, and judges those on covers by the condition.
    async fn judge_new(&self, op: &Op, run: &mut Run<'_>, slots: Vec<Slot>) -> Result<Option<Error>> {
        let mut on_covers = Vec::new();
        for slot in slots {
            let end = slot.end();
            self.remember(&slot.series, end);
            if let Some(known) = run.ends.get_mut(&slot.series).filter(|known| known.version < end.version) {
                *known = end;
            }
            let own_lane = matches!(slot.series, Series::Lane(_)) && slot.series == run.intent.home;
            if own_lane && run.lane.is_some_and(|known| known.version < end.version) {
                run.lane = Some(end);
            }
            if let Some(boundary) = &mut run.boundary
                && let Some(seen) = boundary.seen.get_mut(&slot.series).filter(|seen| seen.version < end.version)
            {
                *seen = end;
                on_covers.push(slot);
            }
        }
        let Some(boundary) = &run.boundary else { return Ok(None) };
        if self.mutated(Mutation::LaneSteppedOver) {
            on_covers.retain(|slot| !matches!(slot.series, Series::Lane(_)));
        }
        if on_covers.is_empty() || self.mutated(Mutation::NoReevaluation) {
            return Ok(None);
        }
        let mut met: Vec<Met> = self.judge(op, &on_covers, boundary.query).await?;
        if !self.mutated(Mutation::CountedAgain) {
            met.retain(|m| !m.known_at(&boundary.model));
        }
        met.retain(|m| boundary.after.is_none_or(|after| m.position > after));
        if met.is_empty() {
            return Ok(None);
        }
        met.sort_by_key(|m| m.position);
        let events: Vec<Recorded> = self.hydrate(op, met).await?;
        let token = boundary.whole.then(|| self.held(boundary.fingerprint, boundary.seen.clone()).seal());
        Ok(Some(Error::conflict(events, token)))
    }

    /// An item of ours is there already: an earlier try landed, and its answer was lost.
    pub(super) async fn own(&self, op: &Op, run: &mut Run<'_>, part: &Part, item: &Item) -> Result<Committed> {
        let home = match part {
            Part::Once => item::home_of(item).map_err(|m| item::corrupt(item, &m))?,
            Part::Seal => None,
            Part::Slot(_) | Part::Check(_) => Some(item::slot(self.namespace(), item)?.home_key()),
        };
        match home {
            Some(home) => self.outcome(op, run, home).await,
            None => match self.look(op, run).await? {
                Looked::Landed(done) => Ok(*done),
                Looked::Not(_) => Err(Error::corrupt("ledger", format!("{}: a seal without its commit", item::describe(item)))),
            },
        }
    }

    /// The outcome of a commit that landed before, from its home.
    async fn outcome(&self, op: &Op, run: &mut Run<'_>, (series, version): (Series, u64)) -> Result<Committed> {
        // It is there: whatever goes wrong from here on, nobody is told that nothing was recorded.
        run.found = true;
        run.doubt = true;
        if run.began.is_none() {
            let version = if series == run.intent.first { version } else { 0 };
            run.began = Some(Began { namespace: self.namespace().into(), series: run.intent.first.clone(), version, once: run.once });
        }
        let home = self.slot_surely(op, &series, version).await?;
        let corrupt = |what: &str| Error::corrupt("ledger", format!("{series} @{version}: {what}"));
        let outcome = home.home.as_ref().ok_or_else(|| corrupt("a home without its list of slots"))?;
        if home.commit != run.intent.commit {
            return Err(corrupt("another commit where ours should be"));
        }
        if home.digest().is_none_or(|digest| digest != run.intent.digest()) {
            return Err(Refused::Reused { commit: run.intent.commit }.into());
        }
        let positions = plan::positions(self.settings(), run.intent.events.len(), lane_count_before(&home), home.stamp, home.commit);
        if let Some((stream, end)) = &mut run.stream
            && let Some(version) = outcome.written.get(stream)
        {
            *end = self.slot_surely(op, stream, *version).await?.end();
        }
        let token = match &run.boundary {
            Some(boundary) => self.moved_up(op, boundary, &outcome.written).await?,
            None => None,
        };
        Ok(Committed::new(run.intent.commit, positions, token, op.units()))
    }

    /// The token of whoever repeats, moved up to the commit. None where something that matches lies between: another run has landed it, whose
    /// model had that.
    async fn moved_up(&self, op: &Op, boundary: &Boundary<'_>, written: &BTreeMap<Series, u64>) -> Result<Option<Token>> {
        let mut covers = boundary.model.clone();
        for (cover, end) in &mut covers {
            let Some(version) = written.get(cover).filter(|version| **version > end.version) else { continue };
            let mut after = end.version;
            while after + 1 < *version {
                let mut slots = self.slots_after(op, cover, after, None).await?;
                slots.retain(|slot| slot.version < *version);
                let Some(last) = slots.last().map(|slot| slot.version) else { break };
                let mut met = self.judge(op, &slots, boundary.query).await?;
                met.retain(|m| !m.known_at(&boundary.model) && boundary.after.is_none_or(|after| m.position > after));
                if !met.is_empty() {
                    return Ok(None);
                }
                after = last;
            }
            *end = self.slot_surely(op, cover, *version).await?.end();
        }
        Ok(Some(self.held(boundary.fingerprint, covers).seal()))
    }

    /// The outcome of a commit under an id of the caller's, if it was recorded; to a stream, if it was to that one.
    pub(super) async fn find_commit(&self, op: &Op, commit: CommitId, stream: Option<&Series>) -> Result<Option<Committed>> {
        // By a transaction, of one item: a plain read may show a commit's slot to one who then finds no item of its id, since the items of a
        // transaction come to light one by one; and who rejects a command for what its own first run recorded must find that run.
        let key = item::once_key(self.namespace(), commit);
        let Some(once) = self.dynamo().get_together(op, self.table(), vec![key]).await?.pop().flatten() else {
            return Ok(None);
        };
        let malformed = |m| item::corrupt(&once, &m);
        let events = item::events_of(&once).map_err(malformed)?;
        let home = item::home_of(&once).map_err(malformed)?;
        let (series, version) = home.ok_or_else(|| Error::corrupt("ledger", format!("{} names no home", item::describe(&once))))?;
        let home = self.slot_surely(op, &series, version).await?;
        let positions = plan::positions(self.settings(), events, lane_count_before(&home), home.stamp, commit);
        let mut committed = Committed::new(commit, positions, None, op.units());
        let written = home.home.as_ref().zip(stream).and_then(|(outcome, stream)| Some((stream, outcome.written.get(stream)?)));
        if let Some((stream, version)) = written {
            committed.version = Some(self.slot_surely(op, stream, *version).await?.end().count);
        } else if let Some(stream) = stream {
            return Err(Refused::Foreign { what: "commit id", of: "a commit elsewhere".into(), here: format!("stream {stream}") }.into());
        }
        Ok(Some(committed))
    }

    /// Looks for our commit from the base on.
    pub(super) async fn look(&self, op: &Op, run: &mut Run<'_>) -> Result<Looked> {
        let Some(began) = &run.began else { return Ok(Looked::Not(End::default())) };
        // From the slot before the base, whose end is needed where nothing has come since.
        let after = began.version.saturating_sub(2);
        let (series, mut version, mut end) = (began.series.clone(), after, End::default());
        // Page by page: on a busy lane much may have come since.
        loop {
            let page = self.page_after(op, &series, version, None).await?;
            if let Some(slot) = page.slots.iter().find(|slot| slot.commit == run.intent.commit) {
                return Ok(Looked::Landed(Box::new(self.outcome(op, run, slot.home_key()).await?)));
            }
            end = page.slots.last().map_or(end, Slot::end);
            version = end.version;
            if page.is_last {
                return Ok(Looked::Not(end));
            }
        }
    }
}

fn lane_count_before(home: &Slot) -> u64 {
    match home.place {
        Place::Lane { before, .. } => before,
        _ => 0,
    }
}
