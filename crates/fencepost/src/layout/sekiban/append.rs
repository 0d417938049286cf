//! Appending: one try after another until a commit has landed, or a condition has failed, or nobody can tell.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;

use super::chunked::stands_behind;
use super::item::{self, Head, Stamp, TagRow};
use super::plan::{Intent, Part, Stand, TABLE_HASH, Tables, Try, fits};
use super::suid::SortableId;
use super::token::{Began, End, Held};
use super::{BESIDE_HEADS, Large, MAX_COMMIT_BYTES, MAX_EVENTS, Sekiban};
use crate::dynamo::{Failure, Freshness, Op, Outcome, Write};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{Event, Tag};
use crate::log::{After, Append, Committed, Condition};
use crate::position::Position;
use crate::query::Query;

/// What an append holds against the store.
#[derive(Debug)]
pub(super) struct Boundary<'a> {
    pub(super) query: &'a Query,
    /// As far as every tag was judged.
    pub(super) seen: BTreeMap<Tag, End>,
    /// Whether the model was read with this very query, so that a conflict can bring the whole continuation.
    whole: bool,
}

/// The state of one append over all its tries.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) intent: Intent<'a>,
    pub(super) boundary: Option<Boundary<'a>>,
    /// The caller gave the commit's id: it is recorded, so that a repeat a year later finds it.
    pub(super) once: bool,
    /// Pieces staged, where it is too large for one transaction.
    pub(super) pieces: Option<u64>,
    /// How often pieces under its id were collected, as far as is known: those that are staged next are called by it.
    pub(super) buried: u64,
    pub(super) ttl: Option<u64>,
    /// First ticks of the tries so far.
    pub(super) tried: Vec<u64>,
    pub(super) began: Option<Began>,
    doubt: bool,
    /// Under the published token of these events.
    pub(super) published: bool,
    /// Under a key: what is there under the events' ids is compared by whoever asked.
    pub(super) unique: bool,
    /// Each tag's count with this commit, once it has landed.
    pub(super) ends: BTreeMap<Tag, u64>,
}

impl<'a> Run<'a> {
    pub(super) fn new(intent: Intent<'a>, once: bool) -> Run<'a> {
        Run {
            intent,
            boundary: None,
            once,
            pieces: None,
            buried: 0,
            ttl: None,
            tried: Vec::new(),
            began: None,
            doubt: false,
            published: false,
            unique: false,
            ends: BTreeMap::new(),
        }
    }
}

impl Sekiban {
    /// Appends; with a stream also tells how many events that has with this commit.
    pub(super) async fn append_commit(&self, op: &Op, append: &Append, stream: Option<&Tag>) -> Result<(Committed, u64)> {
        check_size(append.events())?;
        let done = match self.append_unless_recorded(op, append, stream).await {
            // Under an id of the caller's it may have been recorded when the condition still held: then that is the answer. A first call that is
            // still on its way is barred before.
            Err(conflict @ Error::Conflict(_)) if append.commit_id().is_some() => {
                self.bar_condition(op, append).await?;
                self.recorded_before(op, append, stream).await.and_then(|recorded| recorded.ok_or(conflict))
            }
            done => done,
        };
        done.map_err(|error| error.of_repeat(append.repeats()))
    }

    /// The outcome of an append under a commit id that the caller gave, if it was recorded before.
    pub(super) async fn recorded_before(&self, op: &Op, append: &Append, stream: Option<&Tag>) -> Result<Option<(Committed, u64)>> {
        let (began, intent) = self.intent(append)?;
        let mut run = Run::new(intent, false);
        run.boundary = append.condition().map(|condition| self.boundary(condition)).transpose()?;
        run.began = began;
        let done = match self.found(op, &mut run).await? {
            Some(done) => done,
            None => match self.record(op, run.intent.commit).await? {
                Some(record) => self.met_record(op, &mut run, &record).await?,
                None => return Ok(None),
            },
        };
        let count = stream.and_then(|tag| run.ends.get(tag)).copied().unwrap_or(0);
        Ok(Some((done, count)))
    }

    fn intent<'a>(&self, append: &'a Append) -> Result<(Option<Began>, Intent<'a>)> {
        let began = append.base().map(|base| Began::open(base, self.namespace())).transpose()?;
        let commit = append.commit_id().unwrap_or_else(|| self.dynamo().env().new_commit_id());
        let intent = Intent::new(commit, append.events())?;
        if let Some(began) = &began
            && began.digest != intent.digest
        {
            return Err(Refused::Reused { commit }.into());
        }
        Ok((began, intent))
    }

    async fn append_unless_recorded(&self, op: &Op, append: &Append, stream: Option<&Tag>) -> Result<(Committed, u64)> {
        let (began, intent) = self.intent(append)?;
        let once = began.as_ref().map_or(append.commit_id().is_some(), |began| began.once);
        let mut run = Run::new(intent, once);
        if let Some(began) = began {
            run.doubt = true;
            run.tried.clone_from(&began.tried);
            run.began = Some(began);
        }
        let mut done = Box::pin(self.settle_or_try(op, append, &mut run)).await;
        // While a try is in doubt, what is in its way may be itself, or have come behind it. A try that is not there once its heads have moved
        // never will be.
        if run.doubt
            && let Err(Error::Conflict(_)) = &done
        {
            done = self.landed_after_all(op, append, &mut run).await.transpose().unwrap_or(done);
        }
        self.told(&run, done).map(|committed| {
            let count = stream.and_then(|tag| run.ends.get(tag)).copied().unwrap_or(0);
            (committed, count)
        })
    }

    /// Whatever went wrong: a try that may have landed is not undone by it.
    pub(super) fn told(&self, run: &Run<'_>, done: Result<Committed>) -> Result<Committed> {
        match done {
            Err(error) if error.settles_nothing() => Err(self.give_up(run, Failure { error, doubt: false })),
            done => done,
        }
    }

    async fn settle_or_try<'a>(&self, op: &Op, append: &'a Append, run: &mut Run<'a>) -> Result<Committed> {
        if let Some(condition) = append.condition() {
            run.boundary = Some(self.boundary(condition)?);
        }
        self.check_items(run, BESIDE_HEADS)?;
        if run.began.is_some()
            && let Some(landed) = self.found(op, run).await?
        {
            return Ok(landed);
        }
        self.tries(op, run).await
    }

    pub(super) async fn tries(&self, op: &Op, run: &mut Run<'_>) -> Result<Committed> {
        self.check_items(run, BESIDE_HEADS)?;
        self.before_writing(op).await?;
        let large = self.is_large(run)?;
        if large {
            if self.options().large == Large::Chunked {
                let remedy = "open with large=staged, or split it".into();
                return Err(
                    Refused::Unsupported { what: "an append too large for one transaction, under large=chunked".into(), remedy }.into()
                );
            }
            // Before anything is staged: what is there under the caller's id is the answer.
            if run.once && run.began.is_none() {
                let (record, buried) = self.record_or_grave(op, run.intent.commit).await?;
                if let Some(record) = record {
                    return self.met_record(op, run, &record).await;
                }
                run.buried = buried;
            }
            if run.intent.is_given() {
                // Its first event is published with it: by that another of the same is met.
                self.check_items(run, BESIDE_HEADS + 1)?;
            } else {
                run.pieces = Some(self.stage(op, &run.intent, run.buried).await?);
            }
        }
        for attempt in 0u32.. {
            if run.unique && !run.intent.there.is_empty() {
                return self.under_key(op, run).await;
            }
            if run.intent.there.len() == run.intent.events.len() {
                return self.all_there(op, run).await;
            }
            let stands = self.stands(op, run).await?;
            if self.is_below(op, run, &stands).await? {
                continue;
            }
            // Ids of the caller's are looked at behind the heads: whoever publishes them on these tags from here on moves a head.
            if large && run.intent.is_given() {
                if let Some(done) = self.large_is_known(op, run).await? {
                    return Ok(done);
                }
                if run.pieces.is_none() {
                    run.pieces = Some(self.stage(op, &run.intent, run.buried).await?);
                }
            }
            let above = stands.values().map(Stand::ticks).max().unwrap_or(0);
            self.check_clock()?;
            let now = self.dynamo().env().now();
            let ticks = self.0.ticks.take(now, above, run.intent.events.len() as u64)?;
            if run.intent.fixed.is_none() && self.is_ahead(SortableId::at_ticks(ticks)) {
                metrics::counter!("fencepost_sekiban_ids_ahead_total").increment(run.intent.events.len() as u64);
                tracing::warn!(
                    ticks,
                    "new events stand in the future: an id that was read is ahead of the clock, and they have to stand behind it"
                );
            }
            let stamp = Stamp { keys: self.keys(), shards: self.options().shards, now, ttl: run.ttl, staged: None };
            let record = run.pieces.or(run.once.then_some(0));
            let tables = Tables { events: &self.options().events, tags: &self.options().tags };
            let this = Try { intent: &run.intent, tables, stamp, ticks, stands: &stands, record, buried: run.buried };
            let writes = match run.pieces {
                Some(pieces) => this.publication(pieces, self.options().transaction_items)?,
                None => this.whole()?,
            };
            run.tried.push(ticks);
            run.began = Some(self.began(run));
            let (parts, writes): (Vec<Part>, Vec<Write>) = writes.into_iter().unzip();
            let token = run.published.then(|| item::request_token(run.intent.ids.iter().copied()));
            // A place that has grown old may lie behind a reader: such a try is not repeated, but made anew.
            let patience = self.patience().filter(|_| run.intent.fixed.is_none());
            let part = op.part(patience.unwrap_or(Duration::MAX));
            let outcome = self.dynamo().write_under(&part, TABLE_HASH, writes, token).await;
            op.add(&part);
            match outcome {
                Ok(Outcome::Done) => {
                    self.note_late(run, now);
                    return self.landed(op, run, ticks, &stands).await;
                }
                Ok(Outcome::Failed { verdicts, doubt }) => {
                    run.doubt |= doubt;
                    if let Some(done) = self.lost_race(op, run, &stands, &parts, verdicts).await? {
                        return Ok(done);
                    }
                }
                Err(failure) if !op.is_over(Duration::ZERO) && patience.is_some_and(|patience| part.is_over(patience / 2)) => {
                    run.doubt |= failure.doubt;
                    continue;
                }
                Err(failure) => return Err(self.give_up(run, failure)),
            }
            // Another writer was faster. The pause keeps racers from meeting again.
            if attempt > 2 {
                let pause = self.dynamo().pause(attempt, Reason::Unreachable);
                if op.is_over(pause) {
                    let error = Error::unavailable(Reason::Throttled, format!("lost the race for a head {} times", attempt + 1));
                    return Err(self.give_up(run, Failure { error, doubt: false }));
                }
                self.dynamo().env().sleep(pause).await;
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// A process that stood still between taking a place and sending lands behind readers that have passed it: whoever reads by the window may have
    /// missed it.
    fn note_late(&self, run: &Run<'_>, stamped: Timestamp) {
        let took = Duration::try_from(self.dynamo().env().now().duration_since(stamped)).unwrap_or_default();
        if self.patience().is_some() && !self.is_indexed() && run.intent.fixed.is_none() && took > self.safe_window() {
            metrics::counter!("fencepost_sekiban_landed_late_total").increment(run.intent.events.len() as u64);
            tracing::warn!(commit = %run.intent.commit, ?took, "a commit landed later than the safe window: a feed may have passed it");
        }
    }

    fn began(&self, run: &Run<'_>) -> Began {
        Began {
            namespace: self.namespace().into(),
            recorded: run.pieces.is_some(),
            once: run.once,
            digest: run.intent.digest,
            tried: run.tried.clone(),
        }
    }

    fn give_up(&self, run: &Run<'_>, failure: Failure) -> Error {
        match &run.began {
            Some(began) if run.doubt || failure.doubt => failure.error.in_doubt(run.intent.commit, began.seal()),
            _ => failure.error,
        }
    }

    /// The condition as tags and their ends: the token's, or nothing where there is none. Never today's.
    pub(super) fn boundary<'a>(&self, condition: &'a Condition) -> Result<Boundary<'a>> {
        let query = &condition.query;
        match &condition.after {
            After::Nothing => {
                let seen = self.covers(query)?.into_iter().map(|tag| (tag, End::default())).collect();
                Ok(Boundary { query, seen, whole: true })
            }
            After::Token(token) => {
                let held = Held::open(token, self.namespace())?;
                Ok(Boundary { query, seen: self.holding(query, &held)?, whole: held.fingerprint == query.fingerprint() })
            }
            After::Position(_) => {
                let what = "a bare position as `after` of a condition".into();
                Err(Refused::Unsupported {
                    what,
                    remedy: "use the token of a read; positions count with one lane of the ledger only".into(),
                }
                .into())
            }
        }
    }

    /// Heads of one transaction, counted before any call: beyond them nothing can be published at once.
    fn check_items(&self, run: &Run<'_>, beside: usize) -> Result<()> {
        let tags = run.intent.tags();
        let checks = run.boundary.iter().flat_map(|b| b.seen.keys()).filter(|tag| !tags.contains_key(*tag)).count();
        let heads = tags.len() + checks;
        let (items, limit) = (heads + beside, self.options().transaction_items);
        if items > limit {
            return Err(Refused::TooManyItems { items, limit }.into());
        }
        Ok(())
    }

    /// Whether it does not fit in one transaction, as its events lie now. An event too large for an item is refused.
    fn is_large(&self, run: &Run<'_>) -> Result<bool> {
        let mut stands: BTreeMap<Tag, Stand> = run.intent.tags().into_keys().map(|tag| (tag, Stand::default())).collect();
        stands.extend(run.boundary.iter().flat_map(|b| b.seen.keys()).map(|tag| (tag.clone(), Stand::default())));
        let now = self.dynamo().env().now();
        // With the mark of a staged commit, which an event may have to bear.
        let stamp = Stamp { keys: self.keys(), shards: self.options().shards, now, ttl: run.ttl, staged: Some(run.intent.commit) };
        let tables = Tables { events: &self.options().events, tags: &self.options().tags };
        let this = Try { intent: &run.intent, tables, stamp, ticks: 0, stands: &stands, record: run.once.then_some(0), buried: 0 };
        Ok(!fits(&this.whole()?, self.options().transaction_items))
    }

    /// Where every tag stands that is written or held: its head first, then its last row, strongly. A head that moves after it was read fails
    /// the transaction; rows above a head are Sekiban's, and counted in.
    async fn stands(&self, op: &Op, run: &mut Run<'_>) -> Result<BTreeMap<Tag, Stand>> {
        let mut stands = BTreeMap::new();
        if run.boundary.is_some() {
            stands.extend(self.judge(op, run).await?);
        }
        let tags = run.intent.tags();
        let free: Vec<&Tag> = tags.keys().filter(|tag| !stands.contains_key(*tag)).collect();
        let found = try_join_all(free.iter().map(|tag| self.stand(op, tag))).await?;
        stands.extend(free.into_iter().cloned().zip(found));
        Ok(stands)
    }

    async fn known_head(&self, op: &Op, tag: &Tag) -> Result<Option<Head>> {
        match self.remembered(tag) {
            Some(head) => Ok(Some(head)),
            None => self.head(op, tag, Freshness::Strong).await,
        }
    }

    /// Where a tag stands, with the number of its events.
    pub(super) async fn stand(&self, op: &Op, tag: &Tag) -> Result<Stand> {
        Ok(self.stand_and_row(op, tag).await?.0)
    }

    /// The same, with its last row.
    pub(super) async fn stand_and_row(&self, op: &Op, tag: &Tag) -> Result<(Stand, Option<TagRow>)> {
        let (head, row) = self.head_and_last(op, tag).await?;
        let end = match (&row, head) {
            (None, None) => End::default(),
            (Some(row), head) if is_behind(head, row.at) => {
                let behind = self.count_rows(op, tag.as_str(), head.map(|head| head.pos), None).await?;
                End::default().behind(std::slice::from_ref(row)).counting(head.map_or(0, |head| head.cnt) + behind)
            }
            (Some(row), Some(head)) => End::default().behind(std::slice::from_ref(row)).counting(head.cnt),
            // Its rows have expired; what comes is counted on, and stands behind them.
            (None, Some(head)) => End::default().counting(head.cnt),
            (Some(_), None) => unreachable!("a row without a head is behind it"),
        };
        Ok((Stand { head, end }, row))
    }

    /// The same for a tag that is held and not written: nobody needs its number, and to count rows without a head is to read them all.
    async fn stand_uncounted(&self, op: &Op, tag: &Tag) -> Result<Stand> {
        let (head, row) = self.head_and_last(op, tag).await?;
        Ok(Stand { head, end: End::default().behind(row.as_slice()) })
    }

    async fn head_and_last(&self, op: &Op, tag: &Tag) -> Result<(Option<Head>, Option<TagRow>)> {
        let mut head = self.known_head(op, tag).await?;
        let mut row = self.latest_row(op, tag.as_str(), Freshness::Strong).await?;
        // The row above the head is another's, or the head has moved since it was remembered; below it, what was there has expired, and so may have
        // what came since.
        if row.as_ref().map(|row| row.at) != head.map(|head| head.pos) {
            head = self.head(op, tag, Freshness::Strong).await?;
            row = self.latest_row(op, tag.as_str(), Freshness::Strong).await?;
        }
        Ok((head, row))
    }

    /// The tags of the condition: nothing new on them that matches, or a conflict.
    async fn judge(&self, op: &Op, run: &mut Run<'_>) -> Result<BTreeMap<Tag, Stand>> {
        let written = run.intent.tags();
        let Some(boundary) = &mut run.boundary else { return Ok(BTreeMap::new()) };
        for _ in 0..64 {
            let written = &written;
            let stands = boundary.seen.keys().map(|tag| async move {
                match written.contains_key(tag) {
                    true => self.stand(op, tag).await,
                    false => self.stand_uncounted(op, tag).await,
                }
            });
            let stands = try_join_all(stands).await?;
            let still = boundary.seen.values().zip(&stands).all(|(end, stand)| end.id() == stand.end.id());
            if still {
                return Ok(as_judged(boundary, stands, written));
            }
            let (met, seen) = self.read_covers(op, boundary.query, &boundary.seen).await?;
            let gone = seen == boundary.seen;
            boundary.seen = seen;
            if !met.is_empty() {
                let token = boundary.whole.then(|| self.held(boundary.query, boundary.seen.clone()).seal());
                return Err(Error::conflict(met.into_iter().map(|stored| stored.event).collect(), token));
            }
            if gone {
                // The last row that was read is not there any more: expired, or removed. Nothing is new.
                return Ok(as_judged(boundary, stands, written));
            }
        }
        Err(Error::unavailable(Reason::Throttled, "the tags of the condition kept moving"))
    }

    async fn landed(&self, op: &Op, run: &mut Run<'_>, ticks: u64, stands: &BTreeMap<Tag, Stand>) -> Result<Committed> {
        let mut moved = BTreeMap::new();
        for (tag, indexes) in run.intent.tags() {
            let stand = stands.get(&tag).copied().unwrap_or_default();
            let end = run.intent.end(ticks, &indexes, &stand);
            stand.count_passed();
            run.ends.insert(tag.clone(), end.count);
            moved.insert(tag, end);
        }
        if run.pieces.is_some() {
            // It is recorded, whatever becomes of its rows here: who reads the tags finishes them.
            if let Err(error) = self.finish(run.intent.commit).await {
                tracing::warn!(commit = %run.intent.commit, %error, "a large commit was recorded; its rows are left to the next reader");
            }
            // Whoever writes large commits keeps their list short, whether anybody reads it or not.
            if let Ok(listed) = self.listed(op).await {
                self.shorten(op, &listed).await;
            }
        } else {
            for (tag, end) in &moved {
                self.remember(tag, Head { pos: end.id().unwrap_or(SortableId::MIN), cnt: end.count, pending: None });
            }
        }
        self.side().ring();
        let positions = self.positions(&run.intent, ticks)?;
        let token = run.boundary.as_ref().map(|boundary| {
            let mut covers = boundary.seen.clone();
            for (tag, end) in &mut covers {
                *end = moved.get(tag).copied().unwrap_or(*end);
            }
            self.held(boundary.query, covers).seal()
        });
        Ok(Committed::new(run.intent.commit, positions, token, op.units()))
    }

    pub(super) fn positions(&self, intent: &Intent<'_>, ticks: u64) -> Result<Vec<Position>> {
        let position = |n: usize| match intent.there.get(&n) {
            Some(stored) => Some(stored.event.position),
            None => intent.place(ticks, n).position(&intent.ids[n]),
        };
        let all: Option<Vec<_>> = (0..intent.events.len()).map(position).collect();
        all.ok_or_else(|| Refused::Malformed { what: "sortable unique id", why: "it is before 1970".into() }.into())
    }

    /// Places that the caller gives must stand behind all that is on their tags: else one who has read those would never see them. Whether
    /// some of the events turned out to be there already.
    async fn is_below(&self, op: &Op, run: &mut Run<'_>, stands: &BTreeMap<Tag, Stand>) -> Result<bool> {
        let Some(fixed) = &run.intent.fixed else { return Ok(false) };
        let tags = run.intent.tags();
        let below = |(tag, indexes): (&Tag, &Vec<usize>)| {
            let refused = indexes.iter().find_map(|n| stands_behind(fixed[*n], tag, stands.get(tag)?).err());
            refused.map(|refused| (refused, tag.clone()))
        };
        let Some((refused, tag)) = tags.iter().find_map(below) else { return Ok(false) };
        let ids: Vec<String> = run.intent.ids.iter().map(ToString::to_string).collect();
        let before = run.intent.there.len();
        for barred in [false, true] {
            // The same write may be on its way still, from an earlier call: it holds the head as it was.
            if barred {
                self.catch_head_up(op, &tag).await?;
            }
            let found = self.events_by_id(op, ids.iter(), Freshness::Strong).await?;
            for (index, id) in ids.iter().enumerate() {
                if let Some(stored) = found.get(id) {
                    self.note_there(run, index, stored.clone())?;
                }
            }
            if run.intent.there.len() > before {
                return Ok(true);
            }
        }
        Err(refused)
    }

    /// A large commit's events are not looked at one by one when they are published: where all are there it is done, and some are refused before.
    async fn large_is_known(&self, op: &Op, run: &mut Run<'_>) -> Result<Option<Committed>> {
        let given: Vec<String> = run.intent.events.iter().filter_map(Event::given_id).map(|id| id.to_string()).collect();
        let mut found = self.events_by_id(op, given.iter(), Freshness::Strong).await?;
        let Some(some) = found.values().next().map(|stored| stored.event.id) else { return Ok(None) };
        if let Some(record) = self.record(op, run.intent.commit).await? {
            return self.met_record(op, run, &record).await.map(Some);
        }
        if run.unique {
            return self.under_key(op, run).await.map(Some);
        }
        let ids: Vec<String> = run.intent.ids.iter().map(ToString::to_string).collect();
        // The first event of a large commit is there before its rows: they may be these.
        if found.len() < ids.len()
            && let Some(commit) = found.values().find_map(|stored| stored.staged)
        {
            self.finish(commit).await?;
            found = self.events_by_id(op, ids.iter(), Freshness::Strong).await?;
        }
        if ids.iter().all(|id| found.contains_key(id)) {
            for (index, id) in ids.iter().enumerate() {
                if let Some(stored) = found.remove(id) {
                    self.note_there(run, index, stored)?;
                }
            }
            return self.all_there(op, run).await.map(Some);
        }
        let why = format!("event {some} is there already, and the append is too large to leave it out");
        Err(Refused::Malformed { what: "event id", why }.into())
    }

    /// Every event was there before: nothing is written, and that is where they stand.
    async fn all_there(&self, op: &Op, run: &mut Run<'_>) -> Result<Committed> {
        let positions = run.intent.there.values().map(|stored| stored.event.position).collect();
        let token = run.boundary.as_ref().map(|boundary| self.held(boundary.query, boundary.seen.clone()).seal());
        for event in run.intent.events {
            for tag in event.tags() {
                let stand = self.stand(op, tag).await?;
                run.ends.insert(tag.clone(), stand.end.count);
            }
        }
        Ok(Committed::new(run.intent.commit, positions, token, op.units()))
    }
}

/// Where the tags of a condition stand, nothing new being on them. Rows that have expired were read, and are in the model; the number of a tag that is
/// written goes on from the head's, so that none is told twice.
fn as_judged(boundary: &Boundary<'_>, stands: Vec<Stand>, written: &BTreeMap<Tag, Vec<usize>>) -> BTreeMap<Tag, Stand> {
    let judged = boundary.seen.iter().zip(stands).map(|((tag, end), stand)| {
        let end = if written.contains_key(tag) { end.counting(stand.end.count) } else { *end };
        (tag.clone(), Stand { end, ..stand })
    });
    judged.collect()
}

/// Whether a place stands behind a head: Sekiban wrote it, which moves none.
fn is_behind(head: Option<Head>, at: SortableId) -> bool {
    head.is_none_or(|head| head.pos < at)
}

pub(super) fn check_size(events: &[Event]) -> Result<()> {
    if events.is_empty() {
        return Err(Refused::Empty { what: "append" }.into());
    }
    if events.len() > MAX_EVENTS {
        return Err(Refused::TooManyEvents { events: events.len(), limit: MAX_EVENTS }.into());
    }
    let bytes = events.iter().map(|event| event.data().len()).sum();
    if bytes > MAX_COMMIT_BYTES {
        return Err(Refused::TooLong { what: "append", bytes, limit: MAX_COMMIT_BYTES }.into());
    }
    Ok(())
}
