//! Appending: one try after another until a commit has landed, or a condition has failed, or nobody can tell.
//!
//! The loop for lost races. Service errors are retried below it, in `dynamo`; conflicts are decided again above it.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;

use super::chunk::Set;
use super::item::{self, Slot};
use super::mutation::Mutation;
use super::plan::{Intent, Part, Try};
use super::series::{End, Series};
use super::settle::Looked;
use super::token::{Began, Held};
use super::{Ledger, MAX_COMMIT_BYTES, MAX_EVENTS};
use crate::dynamo::{Failure, Freshness, Op, Outcome, TRANSACTION_ITEMS, Write};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::Event;
use crate::log::{After, Append, Committed, Condition};
use crate::position::Position;
use crate::query::{Query, QueryItem};

/// What an append holds against the store.
#[derive(Debug)]
pub(super) struct Boundary<'a> {
    pub(super) query: &'a Query,
    pub(super) fingerprint: u64,
    /// As the caller stands: what is at or below is in the model.
    pub(super) model: BTreeMap<Series, End>,
    /// As far as every cover was judged since.
    pub(super) seen: BTreeMap<Series, End>,
    /// Whether the model was read with this very query, so that a conflict can bring the whole continuation.
    pub(super) whole: bool,
    /// A bare position: what stands at or before it does not count.
    pub(super) after: Option<Position>,
}

/// The state of one append over all its tries.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) intent: Intent<'a>,
    pub(super) boundary: Option<Boundary<'a>>,
    /// The ends of the series written, as this append knows them: it moves past a slot only having seen who is in it.
    pub(super) ends: BTreeMap<Series, End>,
    /// The end of the own lane.
    pub(super) lane: Option<End>,
    pub(super) set: Option<Set>,
    pub(super) once: bool,
    pub(super) began: Option<Began>,
    /// Where the first series ended when a repeat found nothing of ours on it. A remembered end may lie behind a try that landed since.
    pub(super) looked: Option<End>,
    pub(super) doubt: bool,
    pub(super) losses: BTreeMap<Series, u32>,
    /// The stream that the append is to, if it is to one, and its end once the commit is known to have landed.
    pub(super) stream: Option<(Series, End)>,
    /// Whether the commit was there before this call's answer: landed by an earlier try, an earlier call, or another run.
    pub(super) found: bool,
}

/// Of so many slots a conflict is told at once: their bodies may lie in chunks.
pub(super) const SOME_SLOTS: usize = 16;

/// A commit that has landed.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) committed: Committed,
    /// Where the stream ends with it, if it is to one.
    pub(super) end: End,
    /// Whether it was found: whoever landed it may have stood elsewhere.
    pub(super) found: bool,
}

impl Run<'_> {
    fn done(self, committed: Committed) -> Done {
        Done { committed, end: self.stream.map_or(End::default(), |(_, end)| end), found: self.found }
    }
}

impl Ledger {
    /// Appends; with a stream also tells where that ends with this commit.
    pub(super) async fn append_commit(&self, op: &Op, append: &Append, stream: Option<&Series>) -> Result<Done> {
        check_size(append.events())?;
        match self.append_unless_recorded(op, append, stream).await {
            // Under an id of the caller's it may have been recorded when the condition still held: then that is the answer.
            Err(conflict @ Error::Conflict(_)) if append.commit_id().is_some() => {
                self.recorded_before(op, append, stream).await?.ok_or(conflict)
            }
            done => done,
        }
    }

    async fn append_unless_recorded(&self, op: &Op, append: &Append, stream: Option<&Series>) -> Result<Done> {
        let mut run = self.begin(append, stream)?;
        let done = self.settle_or_try(op, append, &mut run).await;
        self.told(run, done)
    }

    /// Whatever went wrong: a try that may have landed is not undone by it.
    fn told(&self, run: Run<'_>, done: Result<Committed>) -> Result<Done> {
        match done {
            Ok(committed) => Ok(run.done(committed)),
            Err(error) if error.settles_nothing() => Err(self.give_up(&run, Failure { error, doubt: false })),
            Err(error) => Err(error),
        }
    }

    async fn settle_or_try<'a>(&self, op: &Op, append: &'a Append, run: &mut Run<'a>) -> Result<Committed> {
        if let Some(condition) = append.condition() {
            run.boundary = Some(self.boundary(op, condition).await?);
        }
        self.check_items(run)?;
        if let Some(done) = self.look_first(op, run).await? {
            return Ok(done);
        }
        // A repeat of a large one is told before its chunks are written once more.
        if run.intent.needs_chunks()
            && let Some(done) = self.look_by_id(op, run).await?
        {
            return Ok(done);
        }
        self.prepare(op, run).await?;
        self.tries_in_turn(op, run).await
    }

    /// The outcome of an append under a commit id that the caller gave, if it was recorded before.
    pub(super) async fn recorded_before(&self, op: &Op, append: &Append, stream: Option<&Series>) -> Result<Option<Done>> {
        let mut run = self.begin(append, stream)?;
        let done = match self.look_first(op, &mut run).await {
            Ok(None) => self.look_by_id(op, &mut run).await,
            done => done,
        };
        done.transpose().map(|done| self.told(run, done)).transpose()
    }

    /// A commit under an id of the caller's has an item of its own.
    async fn look_by_id(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<Committed>> {
        if !run.once {
            return Ok(None);
        }
        let key = item::once_key(self.namespace(), run.intent.commit);
        match self.dynamo().get(op, self.table(), key, Freshness::Strong).await? {
            Some(once) => self.own(op, run, &Part::Once, &once).await.map(Some),
            None => Ok(None),
        }
    }

    fn begin<'a>(&self, append: &'a Append, stream: Option<&Series>) -> Result<Run<'a>> {
        let given = append.commit_id();
        let began = append.base().map(|base| Began::open(base, self.namespace())).transpose()?;
        let (lane, untagged) = self.keeps_to(began.as_ref());
        let commit = given.unwrap_or_else(|| self.dynamo().env().new_commit_id());
        let intent = Intent::new(commit, append.events(), self.settings(), lane, untagged);
        if let Some(began) = &began
            && began.series != intent.first
        {
            let (of, here) = (format!("series {}", began.series), format!("series {}", intent.first));
            return Err(Refused::Foreign { what: "base", of, here }.into());
        }
        Ok(Run {
            intent,
            boundary: None,
            ends: BTreeMap::new(),
            lane: None,
            set: None,
            once: began.as_ref().map_or(given.is_some(), |began| began.once),
            doubt: began.is_some(),
            began,
            looked: None,
            losses: BTreeMap::new(),
            stream: stream.map(|series| (series.clone(), End::default())),
            found: false,
        })
    }

    /// A repeat looks for its commit before anything else.
    async fn look_first(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<Committed>> {
        if run.began.is_none() || self.mutated(Mutation::RepeatAtEnd) {
            return Ok(None);
        }
        match self.look(op, run).await? {
            Looked::Landed(done) => Ok(Some(*done)),
            Looked::Not(end) => {
                run.looked = Some(end);
                Ok(None)
            }
        }
    }

    /// What takes time and needs no turn on the lane: chunks, and ends that are not remembered yet.
    async fn prepare(&self, op: &Op, run: &mut Run<'_>) -> Result<()> {
        if run.intent.needs_chunks() {
            run.set = Some(self.write_chunks(op, &run.intent).await?);
        }
        let covered = |series: &&Series| run.boundary.as_ref().is_some_and(|b| b.seen.contains_key(series));
        let unknown: Vec<&Series> = run.intent.carried.keys().filter(|series| !covered(series)).collect();
        if !unknown.is_empty() {
            try_join_all(unknown.into_iter().map(|series| self.end(op, series))).await?;
        }
        Ok(())
    }

    async fn tries_in_turn(&self, op: &Op, run: &mut Run<'_>) -> Result<Committed> {
        let lane = match run.intent.home {
            Series::Lane(lane) => lane,
            _ => return self.tries(op, run, 0).await,
        };
        // A lane takes one commit after another: waiting for one's turn is cheaper than losing the race to one's own process.
        let turn = self.lane_turn(op, lane).await?;
        let done = self.tries(op, run, lane).await;
        drop(turn);
        done
    }

    async fn tries(&self, op: &Op, run: &mut Run<'_>, lane: u8) -> Result<Committed> {
        self.find_ends(op, run, lane).await?;
        if let Some(done) = self.catch_up(op, run).await? {
            return Ok(done);
        }
        for attempt in 0u32.. {
            if run.intent.needs_chunks() && run.set.is_none() {
                run.set = Some(self.write_chunks(op, &run.intent).await?);
            }
            let now = self.stamp_after(run)?;
            let this = self.a_try(run, lane, now);
            let (parts, writes) = this.writes();
            if run.began.is_none() {
                let version = this.end_after(&run.intent.first).version;
                let series = run.intent.first.clone();
                run.began = Some(Began { namespace: self.namespace().into(), series, version, once: run.once });
            }
            let again = || self.a_try(run, lane, now).writes().1;
            let outcome = self.dynamo().write_or_make(op, item::HASH, writes, &again).await;
            match outcome {
                Ok(Outcome::Done) => return Ok(self.landed(op, run, lane, now)),
                Ok(Outcome::Failed { verdicts, doubt }) => {
                    run.doubt |= doubt;
                    if let Some(done) = self.lost_race(op, run, lane, &parts, verdicts).await? {
                        return Ok(done);
                    }
                }
                Err(failure) => return Err(self.give_up(run, failure)),
            }
            // Another writer was faster, and did not touch what was decided on. The pause keeps racers from meeting again.
            if attempt > 2 {
                let pause = self.dynamo().pause(attempt, Reason::Unreachable);
                if op.is_over(pause) {
                    let error = Error::unavailable(Reason::Throttled, format!("lost the race for a slot {} times", attempt + 1));
                    return Err(self.give_up(run, Failure { error, doubt: false }));
                }
                self.dynamo().env().sleep(pause).await;
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    fn give_up(&self, run: &Run<'_>, failure: Failure) -> Error {
        match &run.began {
            Some(began) if run.doubt || failure.doubt => failure.error.in_doubt(run.intent.commit, began.seal()),
            _ => failure.error,
        }
    }

    /// The condition as covers and versions: the token's, or 0 where there is none. Never today's.
    async fn boundary<'a>(&self, op: &Op, condition: &'a Condition) -> Result<Boundary<'a>> {
        let (query, fingerprint) = (&condition.query, condition.query.fingerprint());
        let (model, whole) = match &condition.after {
            After::Nothing => (self.covers(query)?.into_iter().map(|cover| (cover, End::default())).collect(), true),
            After::Token(token) => {
                let held = self.open_token(token)?;
                if self.mutated(Mutation::HeldByToday) {
                    let mut covers = held.covers.clone();
                    for (cover, end) in &mut covers {
                        *end = self.last_slot(op, cover, Freshness::Strong).await?.map_or(*end, |slot| slot.end());
                    }
                    (covers, true)
                } else {
                    (self.holding(query, &held)?, held.fingerprint == fingerprint)
                }
            }
            After::Position(position) => {
                let model = self.covers_at(op, query, *position).await?;
                return Ok(Boundary { query, fingerprint, seen: model.clone(), model, whole: true, after: Some(*position) });
            }
        };
        Ok(Boundary { query, fingerprint, seen: model.clone(), model, whole, after: None })
    }

    /// The covers as they are now, if nothing that matches stands behind the position: read backwards, only as far as it.
    async fn covers_at(&self, op: &Op, query: &Query, position: Position) -> Result<BTreeMap<Series, End>> {
        let (true, Some(number)) = (self.settings().counted(), position.as_number()) else {
            let what = "a bare position as `after` of a condition".into();
            return Err(Refused::Unsupported { what, remedy: "use the token of a read; positions count with one lane only".into() }.into());
        };
        let mut covers = BTreeMap::new();
        let mut behind = Vec::new();
        for cover in self.covers(query)? {
            let slots = self.slots_behind(op, &cover, number).await?;
            covers.insert(cover, slots.first().map_or(End::default(), Slot::end));
            behind.extend(slots);
        }
        let mut met = self.judge(op, &behind, query).await?;
        met.retain(|m| m.position > position);
        if met.is_empty() {
            return Ok(covers);
        }
        met.sort_by_key(|m| m.position);
        let events = self.hydrate(op, met).await?;
        Err(Error::conflict(events, Some(self.held(query.fingerprint(), covers).seal())))
    }

    /// The token's covers, having made sure that each item of the condition is held by one of them.
    fn holding(&self, query: &Query, held: &Held) -> Result<BTreeMap<Series, End>> {
        let lanes = held.covers.keys().any(|cover| matches!(cover, Series::Lane(_)));
        let all_types =
            |item: &QueryItem| !item.types().is_empty() && item.types().iter().all(|t| held.covers.contains_key(&Series::Type(t.clone())));
        let any_tag = |item: &QueryItem| item.tags().iter().any(|t| held.covers.contains_key(&Series::Tag(t.clone())));
        let loose = query.items().iter().find(|item| !(lanes || any_tag(item) || all_types(item)));
        if (query.is_all() && !lanes) || (loose.is_some() && !self.mutated(Mutation::AnyToken)) {
            let item = loose.map_or("{}".into(), |item| serde_json::to_string(item).unwrap_or_default());
            return Err(Refused::NotHeld { item }.into());
        }
        Ok(held.covers.clone())
    }

    /// Items of one transaction, counted before any call.
    fn check_items(&self, run: &Run<'_>) -> Result<()> {
        let intent = &run.intent;
        let written = |cover: &&Series| intent.carried.contains_key(cover) || **cover == intent.home;
        let checks = run.boundary.iter().flat_map(|b| b.model.keys()).filter(|cover| !written(cover)).count();
        let lane = usize::from(matches!(intent.home, Series::Lane(_)));
        let items = intent.carried.len() + checks + lane + usize::from(intent.needs_chunks()) + usize::from(run.once);
        if items > TRANSACTION_ITEMS {
            return Err(Refused::TooManyItems { items, limit: TRANSACTION_ITEMS }.into());
        }
        Ok(())
    }

    /// Ends of the series written: the condition's where it covers them, else as remembered or read.
    async fn find_ends(&self, op: &Op, run: &mut Run<'_>, lane: u8) -> Result<()> {
        let covered = |series: &Series| run.boundary.as_ref().and_then(|b| b.seen.get(series)).copied();
        let known = |series: &Series| covered(series).or_else(|| run.looked.filter(|_| *series == run.intent.first));
        let (mut ends, mut unknown) = (BTreeMap::new(), Vec::new());
        for series in run.intent.carried.keys() {
            match known(series) {
                Some(end) => drop(ends.insert(series.clone(), end)),
                None => unknown.push(series),
            }
        }
        if !unknown.is_empty() {
            let read = try_join_all(unknown.iter().map(|series| self.end(op, series))).await?;
            ends.extend(unknown.into_iter().cloned().zip(read));
        }
        run.ends = ends;
        if self.settings().lanes().is_some() {
            let own = Series::Lane(lane);
            run.lane = Some(match covered(&own).filter(|_| !self.mutated(Mutation::OwnLaneUnchecked)) {
                Some(end) => end,
                None if run.intent.first == own && run.looked.is_some() => run.looked.unwrap_or_default(),
                None => self.end(op, &own).await?,
            });
        }
        Ok(())
    }

    /// A cover that is known to have moved on by more than one slot is read before the first try: cheaper than failing twice.
    async fn catch_up(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<Committed>> {
        let Some(boundary) = &run.boundary else { return Ok(None) };
        let moved = |(cover, end): (&Series, &End)| {
            let known = self.remembered(cover).filter(|known| known.version > end.version + 1)?;
            Some((cover.clone(), known.version))
        };
        let behind: Vec<(Series, u64)> = boundary.seen.iter().filter_map(moved).collect();
        for (cover, known) in behind {
            // Some slots at a time: the first that match are enough of a conflict, however long the cover is.
            loop {
                let after = run.boundary.as_ref().and_then(|b| b.seen.get(&cover)).map_or(known, |end| end.version);
                if after >= known {
                    break;
                }
                let slots = self.slots_after(op, &cover, after, None).await?;
                if slots.is_empty() {
                    break;
                }
                for some in slots.chunks(SOME_SLOTS) {
                    if let Some(done) = self.take_in(op, run, some.to_vec()).await? {
                        return Ok(Some(done));
                    }
                }
            }
        }
        Ok(None)
    }

    fn stamp_after(&self, run: &Run<'_>) -> Result<u64> {
        let covers = run.boundary.iter().flat_map(|b| b.seen.values());
        let follows = run.ends.values().chain(&run.lane).chain(covers).map(|end| end.stamp).max().unwrap_or(0);
        self.new_stamp(follows)
    }

    fn a_try<'r>(&'r self, run: &'r Run<'_>, lane: u8, stamp: u64) -> Try<'r> {
        let mut deps: BTreeMap<u8, u64> = BTreeMap::new();
        let mut checks = Vec::new();
        let mut depend = |on: Option<(u8, u64)>| {
            if let Some((other, seq)) = on.filter(|(other, seq)| *other != lane && *seq > 0) {
                let so_far = deps.entry(other).or_default();
                *so_far = seq.max(*so_far);
            }
        };
        run.ends.values().for_each(|end| depend(end.lane));
        for (cover, end) in run.boundary.iter().flat_map(|b| &b.seen) {
            match cover {
                Series::Lane(own) if *own == lane => {}
                Series::Lane(other) => {
                    if !self.mutated(Mutation::DepsWithoutCheckedLanes) {
                        depend(Some((*other, end.version)));
                    }
                    if !self.mutated(Mutation::OtherLanesUnchecked) {
                        checks.push((cover.clone(), end.version + 1));
                    }
                }
                written if run.intent.carried.contains_key(written) => {}
                _ => {
                    depend(end.lane);
                    if !self.mutated(Mutation::ReadOnlyCoverUnchecked) {
                        checks.push((cover.clone(), end.version + 1));
                    }
                }
            }
        }
        if self.mutated(Mutation::NoDeps) {
            deps.clear();
        }
        let without: BTreeSet<Series> = if self.mutated(Mutation::NoSlotOnUnconditional) && run.boundary.is_none() {
            run.intent.carried.keys().filter(|s| **s != run.intent.home).cloned().collect()
        } else {
            BTreeSet::new()
        };
        Try {
            intent: &run.intent,
            settings: self.settings(),
            table: self.table(),
            stamp,
            ends: &run.ends,
            lane: run.lane.map(|end| (lane, end)),
            deps,
            checks,
            set: run.set.as_ref(),
            seal: !self.mutated(Mutation::NoSeal),
            once: run.once,
            without,
        }
    }

    fn landed(&self, op: &Op, run: &mut Run<'_>, lane: u8, stamp: u64) -> Committed {
        let this = self.a_try(run, lane, stamp);
        let end = run.stream.as_ref().map(|(series, _)| this.end_after(series));
        for series in run.intent.carried.keys().chain(this.lane.map(|_| Series::Lane(lane)).as_ref()) {
            self.remember(series, this.end_after(series));
        }
        let token = run.boundary.as_ref().map(|boundary| {
            let mut covers = boundary.seen.clone();
            for (cover, end) in &mut covers {
                if run.intent.carried.contains_key(cover) || *cover == Series::Lane(lane) {
                    *end = this.end_after(cover);
                }
            }
            self.held(boundary.fingerprint, covers).seal()
        });
        self.announce();
        let committed = Committed::new(run.intent.commit, this.positions(), token, op.units());
        if let (Some((_, known)), Some(end)) = (&mut run.stream, end) {
            *known = end;
        }
        committed
    }

    /// Writes what does not fit the slots, under a fresh set id. Invisible until a slot points at it.
    async fn write_chunks(&self, op: &Op, intent: &Intent<'_>) -> Result<Set> {
        let set = intent.pack(self.dynamo().env().new_id());
        let stamp = self.new_stamp(0)?;
        for chunks in set.chunks.chunks(4) {
            try_join_all(chunks.iter().map(async |chunk| {
                let item = item::chunk_item(self.namespace(), set.id, stamp, chunk);
                // A chunk that is there already is ours: nobody else has this set id, and only an answer was lost.
                self.dynamo().write(op, item::HASH, vec![Write::PutNew { table: self.table().into(), item }]).await.map_err(Error::from)
            }))
            .await?;
        }
        Ok(set)
    }
}

/// The stated maximum of one commit.
fn check_size(events: &[Event]) -> Result<()> {
    if events.is_empty() {
        return Err(Refused::Empty { what: "append" }.into());
    }
    if events.len() > MAX_EVENTS {
        return Err(Refused::TooManyEvents { events: events.len(), limit: MAX_EVENTS }.into());
    }
    let bytes = events.iter().map(|event| event.data().len() + event.metadata().bytes()).sum();
    if bytes > MAX_COMMIT_BYTES {
        return Err(Refused::TooLong { what: "commit", bytes, limit: MAX_COMMIT_BYTES }.into());
    }
    Ok(())
}
