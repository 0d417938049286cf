//! Appending: one try after another until a commit has landed, or a condition has failed, or nobody can tell.
//!
//! A try that failed can never land later: what failed it is a version or a stamp that only rises, or an item that is there for good. So
//! the next try may stamp itself anew, and a try whose answer stayed out is repeated under its own stamp, where its keys tell.

use std::collections::{BTreeMap, BTreeSet};

use super::Reventless;
use super::fence::{Fence, Seen};
use super::item::HASH;
use super::place::Cover;
use super::plan::{Intent, Part, Try, check_expressions};
use super::token::{Began, Held};
use crate::dynamo::{Failure, Freshness, Op, Outcome, Verdict};
use crate::error::{Error, InDoubt, Reason, Refused, Result};
use crate::log::{After, Append, Committed, Condition};
use crate::query::{Query, QueryItem};

/// What an append holds against the store.
#[derive(Debug)]
pub(super) struct Boundary<'a> {
    pub(super) query: &'a Query,
    /// As the caller stands.
    pub(super) model: BTreeMap<Cover, Seen>,
    /// As far as it was judged since.
    pub(super) seen: BTreeMap<Cover, Seen>,
    /// Whether the model was read with this very query, so that a conflict can bring the whole continuation.
    pub(super) whole: bool,
    /// Whether the caller has seen nothing, so that all that matches is new.
    pub(super) fresh: bool,
}

/// The state of one append over all its tries.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) intent: Intent,
    pub(super) boundary: Option<Boundary<'a>>,
    /// Fences that it moves, as far as it knows them.
    pub(super) known: BTreeMap<Cover, Fence>,
    /// Where the try under way, or the one in doubt, put its first event.
    pub(super) began: Option<Began>,
    /// The stamp of the try that this run repeats. It may land yet: what fails a try of ours need not fail that one.
    pub(super) repeats: Option<u64>,
    pub(super) doubt: bool,
    /// The stream that it is to: its fence must be known, so that its events can be counted.
    pub(super) stream: Option<&'a Cover>,
}

impl Reventless {
    /// Appends; to a stream it also tells the stream's fence behind the commit.
    pub(super) async fn append_commit(&self, op: &Op, append: &Append, stream: Option<&Cover>) -> Result<(Committed, Option<Seen>)> {
        let mut run = self.begin(append, stream)?;
        let done = self.settle_or_try(op, append, &mut run).await;
        done.map_err(|error| self.in_doubt(&run, error))
    }

    /// The outcome of a commit that was recorded before. Only looks: nothing lands by it.
    pub(super) async fn recorded_before(&self, op: &Op, append: &Append, stream: &Cover) -> Result<Option<(Committed, Option<Seen>)>> {
        let mut run = self.begin(append, Some(stream))?;
        let found = self.landed_before(op, &mut run).await;
        found.map_err(|error| self.in_doubt(&run, error))
    }

    /// What an append wants, before anything is called.
    pub(super) fn begin<'a>(&self, append: &Append, stream: Option<&'a Cover>) -> Result<Run<'a>> {
        let began = append.base().map(|base| Began::open(base, self.table())).transpose()?;
        let once = began.as_ref().map_or(append.commit_id().is_some(), |began| began.once);
        let commit = append.commit_id().unwrap_or_else(|| self.dynamo().env().new_commit_id());
        let intent = Intent::new(self.settings(), append.events(), commit, once)?;
        if let Some(began) = began.as_ref().filter(|began| began.id != intent.first_id()) {
            let (of, here) = (format!("partition {}", began.id), format!("partition {}", intent.first_id()));
            return Err(Refused::Foreign { what: "base", of, here }.into());
        }
        let repeats = began.as_ref().map(|began| began.stamp);
        Ok(Run { intent, boundary: None, known: BTreeMap::new(), doubt: began.is_some(), began, repeats, stream })
    }

    /// Whatever went wrong since: a try that may have landed is not undone by it.
    fn in_doubt(&self, run: &Run<'_>, error: Error) -> Error {
        match error {
            Error::Unavailable(_) | Error::Refused(Refused::Clock { .. }) => self.give_up(run, Failure { error, doubt: false }),
            error => error,
        }
    }

    async fn settle_or_try<'a>(&self, op: &Op, append: &'a Append, run: &mut Run<'a>) -> Result<(Committed, Option<Seen>)> {
        if let Some(condition) = append.condition() {
            run.boundary = Some(self.boundary(condition)?);
        }
        let checks = run.boundary.iter().flat_map(|b| b.seen.keys()).filter(|cover| !run.intent.touches.contains_key(*cover)).count();
        run.intent.check(checks)?;
        let exact = self.exact(run);
        check_expressions(self.a_try(run, 0, &exact).fences().iter().map(|(_, write)| write))?;
        self.record().await?;
        // A repeat looks for its commit before anything else.
        if run.doubt
            && let Some(done) = self.landed_before(op, run).await?
        {
            return Ok(done);
        }
        self.learn(op, run).await?;
        self.tries(op, run).await
    }

    async fn tries(&self, op: &Op, run: &mut Run<'_>) -> Result<(Committed, Option<Seen>)> {
        // A repeat keeps to its stamp, so that it and the try in doubt cannot both land.
        let mut stamp = match run.began.as_ref().filter(|_| run.doubt) {
            Some(began) => began.stamp,
            None => self.stamp_after(run)?,
        };
        for attempt in 0u32.. {
            let exact = self.exact(run);
            let (parts, writes) = self.a_try(run, stamp, &exact).writes();
            // A fence without types asked for holds every type that it has met by now.
            check_expressions(&writes).map_err(|error| self.give_up(run, Failure { error, doubt: false }))?;
            // What is looked for later is looked for from the first try on.
            let from = run.repeats.unwrap_or(stamp);
            run.began = Some(Began { table: self.table().into(), id: run.intent.first_id().into(), stamp: from, once: run.intent.once });
            match self.dynamo().write(op, HASH, writes).await {
                Ok(Outcome::Done) => return Ok(self.landed(op, run, stamp, &exact)),
                Ok(Outcome::Failed { verdicts, doubt }) => {
                    let was_in_doubt = run.doubt || doubt;
                    run.doubt = was_in_doubt;
                    if let Some(done) = self.lost(op, run, stamp, &exact, &parts, verdicts).await? {
                        return Ok(done);
                    }
                    // This try did not land and cannot any more.
                    run.doubt = false;
                }
                Err(failure) => return Err(self.give_up(run, failure)),
            }
            // Where no fence moves, only the key keeps the try in doubt and this one apart.
            if run.repeats.is_none() || !run.intent.touches.is_empty() {
                stamp = self.stamp_after(run)?;
            }
            // The pause keeps writers who met from meeting again.
            let pause = self.dynamo().pause(attempt, Reason::Unreachable);
            if op.is_over(pause) {
                let error = Error::unavailable(Reason::Throttled, format!("lost the race for a fence {} times", attempt + 1));
                return Err(self.give_up(run, Failure { error, doubt: false }));
            }
            if attempt > 0 {
                self.dynamo().env().sleep(pause).await;
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    pub(super) fn a_try<'r>(&'r self, run: &'r Run<'_>, stamp: u64, exact: &'r BTreeMap<Cover, (u64, u64)>) -> Try<'r> {
        Try { intent: &run.intent, table: self.table(), stamp, seen: run.boundary.as_ref().map(|b| &b.seen), exact }
    }

    /// Versions of the fences that must be known: of homes, which number their commits, of covers that are moved, and of the stream.
    fn exact(&self, run: &Run<'_>) -> BTreeMap<Cover, (u64, u64)> {
        let mut exact = BTreeMap::new();
        for (cover, touch) in &run.intent.touches {
            let seen = run.boundary.as_ref().and_then(|b| b.seen.get(cover));
            if let Some(seen) = seen {
                exact.insert(cover.clone(), (seen.version, seen.home_version));
            } else if touch.home || run.stream == Some(cover) {
                let fence = run.known.get(cover).cloned().unwrap_or_default();
                exact.insert(cover.clone(), (fence.version, fence.home_version));
            }
        }
        exact
    }

    /// Fences that must be known and are not: as remembered, or as read a moment ago; an update that does not fit fails and tells.
    async fn learn(&self, op: &Op, run: &mut Run<'_>) -> Result<()> {
        let seen = |cover: &Cover| run.boundary.as_ref().is_some_and(|b| b.seen.contains_key(cover));
        let wanted: BTreeSet<&Cover> = run.intent.homes().chain(run.stream).filter(|cover| !seen(cover)).collect();
        let mut unknown = Vec::new();
        for cover in wanted {
            match self.remembered(cover) {
                Some(fence) => drop(run.known.insert(cover.clone(), fence)),
                None => unknown.push(cover.clone()),
            }
        }
        if !unknown.is_empty() {
            run.known.extend(self.fences(op, &unknown, Freshness::Eventual).await?);
        }
        Ok(())
    }

    /// Behind everything that is known of the fences it moves, and behind what its author read.
    fn stamp_after(&self, run: &Run<'_>) -> Result<u64> {
        let known = run.known.values().map(Fence::highest);
        let remembered = run.intent.touches.keys().filter_map(|cover| self.remembered(cover)).map(|fence| fence.highest());
        let read = run.boundary.iter().flat_map(|b| b.seen.values()).flat_map(|seen| {
            let positions = seen.types.values().filter_map(|(_, position)| super::position::At::parse(position.as_deref()?));
            positions.map(|at| at.stamp).chain([seen.stamp])
        });
        self.new_stamp(known.chain(remembered).chain(read).max().unwrap_or(0))
    }

    /// The condition as covers: the token's, or as they are before anything. Never today's.
    fn boundary<'a>(&self, condition: &'a Condition) -> Result<Boundary<'a>> {
        let query = &condition.query;
        let (model, whole, fresh) = match &condition.after {
            After::Nothing => {
                let covers = self.settings().covers(query)?;
                (covers.into_iter().map(|(cover, types)| (cover, Fence::default().seen(types.as_ref(), 0))).collect(), true, true)
            }
            After::Token(token) => {
                let held = Held::open(token, self.table())?;
                self.check_held(query, &held)?;
                let whole = held.fingerprint == query.fingerprint();
                (held.covers, whole, false)
            }
            After::Position(_) => {
                let what = "a bare position as `after` of a condition".into();
                return Err(Refused::Unsupported { what, remedy: "use the token of a read: positions are not counted here".into() }.into());
            }
        };
        Ok(Boundary { query, seen: BTreeMap::clone(&model), model, whole, fresh })
    }

    /// Each item of the condition must be held by a cover of the token that was asked for its types.
    fn check_held(&self, query: &Query, held: &Held) -> Result<()> {
        self.settings().covers(query)?;
        let holds = |item: &QueryItem, cover: &Cover| {
            held.covers.get(cover).is_some_and(|seen| {
                !seen.typed || (!item.types().is_empty() && item.types().iter().all(|t| seen.types.contains_key(t.as_str())))
            })
        };
        for item in query.items() {
            if !self.settings().covers_of(item)?.iter().any(|cover| holds(item, cover)) {
                return Err(Refused::NotHeld { item: serde_json::to_string(item).unwrap_or_default() }.into());
            }
        }
        Ok(())
    }

    pub(super) fn give_up(&self, run: &Run<'_>, failure: Failure) -> Error {
        match &run.began {
            Some(began) if run.doubt || failure.doubt => Error::InDoubt(Box::new(InDoubt {
                commit: run.intent.commit,
                base: began.seal(),
                message: match failure.error {
                    Error::Unavailable(unavailable) => format!("{}: {}", unavailable.reason, unavailable.message),
                    other => other.to_string(),
                },
            })),
            _ => failure.error,
        }
    }

    /// What a failed try tells of the fences it moves; where it tells nothing, they are read.
    pub(super) async fn take_in(&self, op: &Op, run: &mut Run<'_>, parts: &[Part], verdicts: Vec<Verdict>) -> Result<()> {
        let mut told = false;
        for (part, verdict) in parts.iter().zip(verdicts) {
            if let (Part::Fence(cover), Verdict::Found(item)) = (part, verdict) {
                let fence = Fence::of_item(&item);
                self.remember(cover, fence.clone());
                if run.intent.touches.contains_key(cover) {
                    run.known.insert(cover.clone(), fence);
                }
                told = true;
            }
        }
        if !told {
            let touched: Vec<Cover> = run.intent.touches.keys().cloned().collect();
            run.known.extend(self.fences(op, &touched, Freshness::Strong).await?);
        }
        Ok(())
    }
}
