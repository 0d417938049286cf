//! What became of a try that failed or whose answer was lost: our own commit, another's under our id, events that are there already.

use std::collections::BTreeMap;

use super::Sekiban;
use super::append::{Boundary, Run};
use super::item::{self, Head, Stored};
use super::plan::{GRAVE, Intent, Part, Stand};
use super::stage::Record;
use super::suid::SortableId;
use super::token::{Began, End};
use crate::dynamo::item::{Attributes, Item};
use crate::dynamo::{Freshness, Op, Verdict};
use crate::error::{Refused, Result};
use crate::event::{Event, Tag};
use crate::log::{Append, Committed};
use crate::position::Token;

/// More of them are not looked through for a repeat's token: its caller reads again.
const MOST_BETWEEN: u64 = 256;

impl Sekiban {
    /// A commit of ours that is there although a conflict was met, with the condition as it was asked: what was judged since is not in the caller's
    /// model.
    pub(super) async fn landed_after_all<'a>(&self, op: &Op, append: &'a Append, run: &mut Run<'a>) -> Result<Option<Committed>> {
        run.boundary = append.condition().map(|condition| self.boundary(condition)).transpose()?;
        self.bar(op, run).await?;
        self.found(op, run).await
    }

    /// Sees to it that a try that is still on its way never lands: it holds the heads of the condition's tags as they were. Where Sekiban wrote, they
    /// have not moved, and are moved here.
    async fn bar(&self, op: &Op, run: &Run<'_>) -> Result<()> {
        for tag in run.boundary.iter().flat_map(|boundary| boundary.seen.keys()) {
            self.catch_head_up(op, tag).await?;
        }
        Ok(())
    }

    /// The same for a condition, before anything is known of a try.
    pub(super) async fn bar_condition(&self, op: &Op, append: &Append) -> Result<()> {
        let boundary = append.condition().map(|condition| self.boundary(condition)).transpose()?;
        for tag in boundary.iter().flat_map(|boundary| boundary.seen.keys()) {
            self.catch_head_up(op, tag).await?;
        }
        Ok(())
    }

    /// A commit that began before: as it stands, if it landed.
    pub(super) async fn found(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<Committed>> {
        let Some(began) = run.began.clone() else { return Ok(None) };
        if let Some(landed) = self.look(op, &began, &run.intent).await? {
            self.note_ends(op, run, |n| landed[n].at).await?;
            let places: Vec<SortableId> = landed.iter().map(|stored| stored.at).collect();
            let token = self.moved_token(op, run, &places).await?;
            return Ok(Some(Committed { token, ..self.committed_as(op, &run.intent, landed) }));
        }
        if (began.recorded || began.once)
            && let Some(record) = self.record(op, run.intent.commit).await?
        {
            return self.met_record(op, run, &record).await.map(Some);
        }
        Ok(None)
    }

    /// A repeat of an append in doubt: its events, if they are there at a place that it tried.
    pub(super) async fn look(&self, op: &Op, began: &Began, intent: &Intent<'_>) -> Result<Option<Vec<Stored>>> {
        if began.recorded {
            return Ok(None);
        }
        let ids: Vec<String> = intent.ids.iter().map(ToString::to_string).collect();
        let mut found = self.events_by_id(op, ids.iter(), Freshness::Strong).await?;
        let all: Option<Vec<Stored>> = ids.iter().map(|id| found.remove(id)).collect();
        let ours = |all: &Vec<Stored>| all.iter().enumerate().any(|(n, stored)| self.is_ours(intent, &began.tried, n, stored));
        Ok(all.filter(ours))
    }

    fn is_ours(&self, intent: &Intent<'_>, tried: &[u64], index: usize, stored: &Stored) -> bool {
        tried.iter().any(|ticks| intent.place(*ticks, index) == stored.at)
    }

    pub(super) fn committed_as(&self, op: &Op, intent: &Intent<'_>, stored: Vec<Stored>) -> Committed {
        let positions = stored.iter().map(|stored| stored.event.position).collect();
        Committed::new(intent.commit, positions, None, op.units())
    }

    /// Counts of the tags of a commit that was found, of which each event stands here: as many as there are, but for those behind its own.
    async fn note_ends(&self, op: &Op, run: &mut Run<'_>, place: impl Fn(usize) -> SortableId + Send + Sync) -> Result<()> {
        for (tag, indexes) in run.intent.tags() {
            let Some(last) = indexes.into_iter().map(&place).max() else { continue };
            let end = self.stand(op, &tag).await?.end;
            let behind = match end.id() {
                Some(at) if at > last => self.count_rows(op, tag.as_str(), Some(last), Some(at)).await?,
                _ => 0,
            };
            run.ends.insert(tag, end.count.saturating_sub(behind));
        }
        Ok(())
    }

    /// A try whose answer was lost, or that landed late. What the tags counted then is read.
    async fn landed_before(&self, op: &Op, run: &mut Run<'_>, ticks: u64) -> Result<Committed> {
        let places: Vec<SortableId> = (0..run.intent.events.len()).map(|n| run.intent.place(ticks, n)).collect();
        self.note_ends(op, run, |n| places[n]).await?;
        self.side().ring();
        let positions = self.positions(&run.intent, ticks)?;
        let token = self.moved_token(op, run, &places).await?;
        Ok(Committed::new(run.intent.commit, positions, token, op.units()))
    }

    /// The outcome that a record tells, if it is of these events.
    pub(super) async fn met_record(&self, op: &Op, run: &mut Run<'_>, record: &Record) -> Result<Committed> {
        if record.digest != run.intent.digest {
            return Err(Refused::Reused { commit: run.intent.commit }.into());
        }
        run.ends.clone_from(&record.ends);
        let places = self.places(op, record).await?;
        let at: Vec<SortableId> = places.iter().map(|place| place.0).collect();
        let token = self.moved_token(op, run, &at).await?;
        Ok(Committed { token, ..self.outcome(op, record, &places)? })
    }

    /// The condition's token behind this commit, of which each event stands here. What was read behind it stays read. None where something that matches
    /// lies between: another run has landed it, whose model had that.
    async fn moved_token(&self, op: &Op, run: &Run<'_>, places: &[SortableId]) -> Result<Option<Token>> {
        let Some(boundary) = &run.boundary else { return Ok(None) };
        let (tags, mut covers) = (run.intent.tags(), boundary.seen.clone());
        let mut between = 0;
        for (tag, indexes) in tags.iter().filter(|(tag, _)| boundary.seen.contains_key(*tag)) {
            let (with, before) = (run.ends.get(tag).copied().unwrap_or(0), boundary.seen[tag].count);
            between += with.saturating_sub(before + indexes.len() as u64);
        }
        if between > MOST_BETWEEN || (between > 0 && self.is_unread(op, run, boundary, places).await?) {
            return Ok(None);
        }
        for (tag, indexes) in tags {
            let Some(end) = covers.get_mut(&tag) else { continue };
            for n in indexes {
                let (at, id) = (places[n], run.intent.ids[n]);
                if !end.covers(at, &id) {
                    *end = End::at(at, id, end.count + 1);
                }
            }
        }
        Ok(Some(self.held(boundary.query, covers).seal()))
    }

    /// Whether something that matches, and is not of this commit, lies before it and behind what the caller has read.
    async fn is_unread(&self, op: &Op, run: &Run<'_>, boundary: &Boundary<'_>, places: &[SortableId]) -> Result<bool> {
        let (met, _) = self.read_covers(op, boundary.query, &boundary.seen).await?;
        let last = places.iter().max();
        Ok(met.iter().any(|stored| !run.intent.ids.contains(&stored.event.id) && Some(&stored.at) < last))
    }

    /// What a failed try tells: our own commit, another's under our id, events that are there already, heads that moved.
    pub(super) async fn lost_race(
        &self,
        op: &Op,
        run: &mut Run<'_>,
        stands: &BTreeMap<Tag, Stand>,
        parts: &[Part],
        verdicts: Vec<Verdict>,
    ) -> Result<Option<Committed>> {
        let told: Vec<(Part, Box<Item>)> = parts
            .iter()
            .zip(verdicts)
            .filter_map(|(part, verdict)| match verdict {
                Verdict::Found(item) => Some((part.clone(), item)),
                Verdict::Silent => None,
            })
            .collect();
        let events = told.iter().filter_map(|(part, item)| match part {
            Part::Event(index) => Some(item::stored(item).map(|stored| (*index, stored))),
            _ => None,
        });
        let events = events.collect::<Result<Vec<_>>>()?;
        // Of another try of ours: the heads of that one are not those of this one, but its events stand where it put them.
        let ours =
            |(index, stored): &(usize, Stored)| run.tried.iter().copied().find(|ticks| run.intent.place(*ticks, *index) == stored.at);
        if run.intent.fixed.is_none()
            && run.pieces.is_none()
            && let Some(ticks) = events.iter().find_map(ours)
        {
            return self.landed_before(op, run, ticks).await.map(Some);
        }
        let has_record = run.once || run.pieces.is_some();
        let met = told.iter().any(|(part, _)| *part == Part::Record) || (has_record && !events.is_empty());
        if met && let Some(record) = self.record(op, run.intent.commit).await? {
            if let Some(pieces) = run.pieces.filter(|_| record.digest != run.intent.digest) {
                self.unstage_own(op, &run.intent, pieces, run.buried).await;
            } else if run.pieces.is_some()
                && let Err(error) = self.finish(run.intent.commit).await
            {
                tracing::warn!(commit = %run.intent.commit, %error, "a large commit was recorded; its rows are left to the next reader");
            }
            return self.met_record(op, run, &record).await.map(Some);
        }
        if let Some(buried) = told.iter().find_map(|(part, item)| item.number(GRAVE).ok().filter(|_| *part == Part::Record)) {
            let before = std::mem::replace(&mut run.buried, buried);
            if let Some(pieces) = run.pieces {
                self.unstage_own(op, &run.intent, pieces, before).await;
                run.pieces = Some(self.stage(op, &run.intent, buried).await?);
            }
        }
        // What is there of a large one is looked at before its next try.
        let large = run.pieces.is_some();
        for (index, stored) in events.into_iter().filter(|_| !large) {
            self.note_there(run, index, stored)?;
        }
        // A head that failed is as it says, or gone: what was remembered of it is not.
        let mut heads = self.heads();
        let silent = told.is_empty();
        heads.retain(|tag, _| !(silent && stands.contains_key(tag)));
        for (part, item) in &told {
            if let Part::Head(tag) = part {
                heads.remove(tag);
                match item::head(item)? {
                    Head { pending: Some(_), .. } => {}
                    head => {
                        heads.insert(tag.clone(), head);
                    }
                }
            }
        }
        Ok(None)
    }

    /// What is there under a key: all that was recorded with it, as far as these events' ids go. Nothing more is written under it.
    pub(super) async fn under_key(&self, op: &Op, run: &mut Run<'_>) -> Result<Committed> {
        let there = &run.intent.there;
        // The failed conditions brought all of it, unless it is another batch, or a large one that comes into rows one after the other.
        if there.len() < run.intent.events.len() || there.values().any(|stored| stored.staged.is_some()) {
            let ids: Vec<String> = run.intent.ids.iter().map(ToString::to_string).collect();
            let mut found = self.events_by_id(op, ids.iter(), Freshness::Strong).await?;
            if let Some(commit) = found.values().find_map(|stored| stored.staged) {
                self.finish(commit).await?;
                found = self.events_by_id(op, ids.iter(), Freshness::Strong).await?;
            }
            run.intent.there = ids.iter().enumerate().filter_map(|(index, id)| Some((index, found.remove(id)?))).collect();
        }
        let positions = run.intent.there.values().map(|stored| stored.event.position).collect();
        Ok(Committed::new(run.intent.commit, positions, None, op.units()))
    }

    /// An event that is there under the id: the same one is not written again, another one is an error.
    pub(super) fn note_there(&self, run: &mut Run<'_>, index: usize, stored: Stored) -> Result<()> {
        let intent = &mut run.intent;
        if !run.unique {
            same(&intent.events[index], &stored)?;
        }
        intent.there.insert(index, stored);
        Ok(())
    }
}

/// Refuses another event than the one that is there under its id.
pub(super) fn same(event: &Event, stored: &Stored) -> Result<()> {
    let mut tags = event.tags().to_vec();
    tags.sort_unstable();
    let there = &stored.event;
    if there.event_type == *event.event_type() && there.data == *event.data() && there.tags == tags {
        return Ok(());
    }
    let why = format!("event {} was recorded before with another type, body or tags", there.id);
    Err(Refused::Malformed { what: "event id", why }.into())
}
