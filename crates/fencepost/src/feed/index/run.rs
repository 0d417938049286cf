//! The indexer at work: polls shards, asks the plan, looks up what it wants, puts epochs. Whatever is dropped or lost on the way, the chain
//! is whole, and the next run goes on from its end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::mutation::Mutation;
use super::plan::{Earlier, Overdue, Plan, Ready, Stamps, Want};
use super::poll::{Poller, now_of};
use super::recent::{Rebuilt, Since};
use super::shards::{FORGETS, QUIET, SURE, Shards};
use super::{IndexOptions, IndexProgress, Learnt, Until};
use crate::dynamo::Op;
use crate::error::{Error, Result};
use crate::event::CommitId;
use crate::side::chain::{Before, Indexable, Under};
use crate::side::epoch::{Epoch, Gap, Indexed, MAX_ENTRIES, Mark, Span};
use crate::side::notice::split;

/// Slots looked up at a time.
const AT_ONCE: usize = 16;
/// As long as commits wait for records that are on their way, it takes so many.
const QUIET_WAITING: u32 = 30;
/// After an error that may pass, the indexer begins again from the chain: after this, twice as long each time …
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// … up to this.
pub(super) const AGAIN_AT_MOST: Duration = Duration::from_secs(30);
/// What a rebuild put may come again by the stream for a day.
pub(super) const MAY_COME: u64 = 26 * super::plan::HOUR;
/// With nothing to put, that somebody looked is said so often: nothing that is younger can be lost.
pub(super) const LOOKED: u64 = super::plan::HOUR;
/// What was unread when an epoch was put is not stamped longer before it: a day in the stream, an hour by clocks, and an hour in a round.
pub(super) const UNREAD: u64 = 26 * super::plan::HOUR;
/// What is stamped so long before an indexer began the chain may have been forgotten by the stream then.
pub(super) const FORGOTTEN: u64 = 22 * super::plan::HOUR;
/// An epoch is not put so long after the stream was looked at: what was read then says nothing of what the stream has forgotten since.
const ROUND: u64 = super::plan::HOUR;

/// How a run from the chain's end came to its own end.
enum End {
    /// Somebody else put the next epoch: again from the chain.
    Lost,
    CaughtUp,
}

pub(super) struct Runner<'a> {
    log: &'a dyn Indexable,
    options: &'a IndexOptions,
    progress: &'a (dyn Fn(&IndexProgress) + Send + Sync),
    so_far: IndexProgress,
    writer: Uuid,
    op: Arc<Op>,
    learnt: &'a Mutex<Learnt>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        log: &'a dyn Indexable,
        options: &'a IndexOptions,
        progress: &'a (dyn Fn(&IndexProgress) + Send + Sync),
        learnt: &'a Mutex<Learnt>,
    ) -> Self {
        let writer = log.dynamo().env().new_id();
        Self { log, options, progress, so_far: IndexProgress::default(), writer, op: Arc::new(log.dynamo().long_op()), learnt }
    }

    pub(super) fn so_far(&self) -> IndexProgress {
        IndexProgress { units: self.op.units(), ..self.so_far.clone() }
    }

    pub(super) async fn run(&mut self) -> Result<()> {
        let env = self.log.dynamo().env();
        let mut again = AGAIN;
        loop {
            match self.session().await {
                Ok(End::CaughtUp) => return Ok(()),
                Ok(End::Lost) => {
                    again = AGAIN;
                    self.so_far.races_lost += 1;
                    // Two that run by mistake need not stay in step.
                    env.sleep(Duration::from_micros(env.below(50_000))).await;
                }
                // One that runs until it is stopped outlasts a service that is away.
                Err(error) if error.is_retryable() && self.options.until == Until::Stopped => {
                    tracing::warn!(%error, "the indexer begins again from the chain");
                    metrics::counter!("fencepost_index_errors_total").increment(1);
                    env.sleep(again).await;
                    again = (again * 2).min(AGAIN_AT_MOST);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn session(&mut self) -> Result<End> {
        Session::resume(self).await?.run(self).await
    }
}

/// From the chain's end on, until a race is lost.
struct Session<'a> {
    op: Arc<Op>,
    learnt: &'a Mutex<Learnt>,
    poller: Poller,
    plan: Plan,
    /// The last epoch of the chain.
    number: u64,
    rebuilt: Vec<Span>,
    gap: Option<Gap>,
    /// As the last epoch has it.
    known_gap: Option<Gap>,
    /// As the last epoch has it.
    known_looked: u64,
    /// All that is stamped before this is in the index, unless there was a gap before.
    sure: u64,
    /// When the stream was last looked at.
    polled: u64,
    /// Which chain it is; none: one that does not say.
    chain: Option<Uuid>,
    /// When an indexer began it, if no rebuild was there since.
    begun: Option<u64>,
    /// As the last epoch has them.
    marks: BTreeMap<String, Mark>,
}

/// How often something was looked for already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    First,
    Again,
}

impl<'a> Session<'a> {
    async fn resume(runner: &Runner<'a>) -> Result<Session<'a>> {
        let log = runner.log;
        let op = runner.op.clone();
        let stream = log.dynamo().stream_of(&op, log.log_table()).await?;
        let last = log.side().last_epoch(&op).await?;
        let now = now(log);
        let mut learnt = runner.learnt.lock().await;
        learnt.recent.until(log, &op, last.as_ref()).await?;
        let stamps = if log.counts_events() { Stamps::Said } else { Stamps::Drawn };
        let mut session = Session {
            op,
            learnt: runner.learnt,
            poller: Poller::new(stream),
            plan: Plan::new(Shards::unknown(now), HashSet::new(), stamps, runner.options.mutation),
            number: last.as_ref().map_or(0, |epoch| epoch.number),
            rebuilt: last.as_ref().map(|epoch| Rebuilt::young(&epoch.rebuilt, now)).unwrap_or_default(),
            gap: last.as_ref().and_then(|epoch| epoch.gap),
            known_gap: last.as_ref().and_then(|epoch| epoch.gap),
            known_looked: last.as_ref().map_or(now, |epoch| epoch.looked),
            sure: last.as_ref().map_or(0, |epoch| epoch.time.saturating_sub(UNREAD)),
            polled: now,
            chain: last.as_ref().map_or(Some(runner.writer), |epoch| epoch.chain),
            begun: last.as_ref().map_or(Some(now), |epoch| epoch.begun),
            marks: BTreeMap::new(),
        };
        let Some(last) = last else {
            session.plan.begun(now.saturating_sub(FORGOTTEN));
            return Ok(session);
        };
        let mut listed: HashSet<_> = last.ids.iter().copied().collect();
        listed.extend(learnt.rebuilt.commits(log, &session.op, &session.rebuilt).await?);
        let same = last.stream.as_ref().is_none_or(|stream| *stream == session.poller.stream);
        // What another stream says of its shards is of no use; what a rebuild put comes by any.
        let shards = if same { Shards::resume(&last.shards, last.looked) } else { Shards::unknown(now) };
        if !same {
            session.trimmed(now, "the table has another stream than the index was built from");
        } else if last.looked + FORGETS < now && shards.has_unread() {
            session.trimmed(now, &unlooked(last.looked, now));
        }
        session.plan = Plan::new(shards, listed, stamps, runner.options.mutation);
        if let Some(gap) = session.gap {
            session.plan.lost(gap.since);
        }
        if let Some(begun) = session.begun {
            session.plan.begun(begun.saturating_sub(FORGOTTEN));
        }
        session.marks = if same { last.shards } else { BTreeMap::new() };
        Ok(session)
    }

    async fn run(&mut self, runner: &mut Runner<'_>) -> Result<End> {
        let log = runner.log;
        let mut appended = log.side().rings();
        let (mut quiet, mut pause, mut told) = (0, runner.options.idle_at_least, false);
        loop {
            // Whatever rings from here on may have come too late for this round.
            appended.mark_unchanged();
            // Asleep for so long, it does not see what a shard has lost of which it had read nothing: the chain's end tells.
            if self.polled + FORGETS < now(log) {
                return Ok(End::Lost);
            }
            let moved = self.poll(log).await?;
            self.look_up(log, Look::First).await?;
            // What is said of the stream without commits waits until it can be said that nothing was there.
            let sure = if self.plan.shards.is_unsure(now(log)) { SURE } else { QUIET };
            let put = self.put(runner, !moved && quiet + 1 >= sure).await?;
            if put.is_none() {
                return Ok(End::Lost);
            }
            self.tell(runner, moved);
            if moved || put == Some(true) {
                (quiet, pause, told) = (0, runner.options.idle_at_least, false);
                continue;
            }
            quiet += 1;
            // Nothing more comes that could tell, and a run that ends soon would never look.
            if quiet == QUIET {
                self.plan.hurry();
            }
            self.overdue(log).await?;
            // The look has made something ready: it is put before anything is called caught up.
            if self.plan.may_put() && !self.plan.queue().is_empty() {
                (quiet, pause, told) = (0, runner.options.idle_at_least, false);
                continue;
            }
            if quiet >= QUIET {
                self.give_up(log);
            }
            // What others wait for may have been put by somebody else, a rebuild perhaps.
            if self.plan.waiting() > 0 && quiet % QUIET == 0 && self.is_behind(log).await? {
                return Ok(End::Lost);
            }
            let enough = if self.plan.waiting() == 0 { QUIET } else { QUIET_WAITING }.max(runner.options.quiet);
            // One that runs on comes to that many pages by itself; one that ends would never.
            let enough = if runner.options.until == Until::CaughtUp { enough.max(sure) } else { enough };
            if quiet >= enough && !told {
                told = true;
                runner.so_far.caught_up = true;
                (runner.progress)(&runner.so_far);
            }
            if quiet >= enough && runner.options.until == Until::CaughtUp {
                return Ok(End::CaughtUp);
            }
            if quiet < enough {
                log.dynamo().env().sleep(runner.options.idle_at_least.min(Duration::from_millis(20))).await;
            } else {
                let _ = tokio::time::timeout(pause, appended.changed()).await;
                pause = (pause * 2).min(runner.options.idle_at_most);
            }
        }
    }

    /// A page of every shard that may be read; whether anything came.
    async fn poll(&mut self, log: &dyn Indexable) -> Result<bool> {
        self.polled = now(log);
        self.plan.shards.forgotten(self.polled.saturating_sub(UNREAD));
        let polled = self.poller.poll(log.dynamo(), &self.op, &mut self.plan.shards).await?;
        for what in &polled.trimmed {
            self.trimmed(now(log), what);
        }
        for (shard, records) in polled.records {
            for record in records {
                // What cannot be read is said and left out, as if it were lost: no record may block its shard.
                let (notice, error) = match log.notice(&record) {
                    Ok(notice) => (notice, None),
                    Err(error) => (None, Some(error)),
                };
                let fresh = self.plan.take(&shard, record.sequence, record.at, notice);
                if let Some(error) = error.filter(|_| fresh) {
                    tracing::error!(%error, "a record of the stream cannot be read");
                    self.trimmed(now(log), "a record of the stream cannot be read, and is not indexed");
                }
            }
        }
        self.plan.emit(now(log));
        Ok(polled.moved)
    }

    /// Said loudly, and kept in the chain until a rebuild that began later: until then what follows anything that is missing waits for it.
    fn trimmed(&mut self, now: u64, what: &str) {
        tracing::error!(
            stream = self.poller.stream,
            "{what}: commits may be missing from the index; `fencepost index verify` tells which, `fencepost index rebuild` appends them"
        );
        metrics::counter!("fencepost_index_trimmed_total").increment(1);
        let gap = Gap::found(self.gap, now, self.sure);
        self.plan.lost(gap.since);
        self.gap = Some(gap);
    }

    /// Nobody noticed when it was lost.
    fn misses_old(&mut self, log: &dyn Indexable) {
        if self.plan.misses_old() && self.gap.is_none() {
            self.sure = 0;
            self.trimmed(now(log), "a commit, or a part of one, is older than all that is unread, and is not in the index");
        }
    }

    /// What stands before a commit and cannot be read is not in the index, and is waited for.
    fn unreadable(&mut self, log: &dyn Indexable, error: &Error) {
        let what = "what stands before a commit cannot be read, and is waited for";
        tracing::error!(%error, "{what}");
        // It is looked at again and again, and found once.
        if self.gap.is_none() {
            self.trimmed(now(log), what);
        }
    }

    /// Room for what comes behind commits that wait for what never came.
    fn give_up(&mut self, log: &dyn Indexable) {
        let given_up = self.plan.give_up(now(log));
        if given_up > 0 {
            metrics::counter!("fencepost_index_given_up_total").increment(given_up as u64);
            self.trimmed(now(log), "so many records lie behind commits which wait for others that the first of these were given up");
        }
    }

    /// Whether a commit is in the epochs before this run; where records were lost, also in those of this run.
    async fn is_in(&self, log: &dyn Indexable, commit: CommitId, stamp: u64, look: Look) -> Result<bool> {
        let now = now(log);
        // A stamp that somebody said may lie ahead of when it was written, and then bounds nothing.
        let ever = log.counts_events() && (stamp > now || look == Look::Again);
        let since = if ever { Since::Ever } else { Since::Stamp(stamp.min(now)) };
        let mut learnt = self.learnt.lock().await;
        if learnt.recent.holds(log, &self.op, commit, since).await? {
            return Ok(true);
        }
        // The plan forgets in time what it emitted itself.
        if self.gap.is_none() || learnt.recent.reaches(self.number) {
            return Ok(false);
        }
        learnt.recent.read_on(log, &self.op).await?;
        learnt.recent.holds(log, &self.op, commit, since).await
    }

    /// Answers what the plan wants to know, until it wants nothing more.
    async fn look_up(&mut self, log: &dyn Indexable, look: Look) -> Result<()> {
        loop {
            let wants = self.plan.wants();
            if wants.is_empty() {
                return Ok(());
            }
            let op = &self.op;
            let (mut slots, mut places) = (Vec::new(), Vec::new());
            for want in &wants {
                match want {
                    Want::Slot { series, version } => slots.push((series.clone(), *version)),
                    Want::Before { commit, series, place } => places.push((*commit, series.clone(), place.clone())),
                    Want::Commit { .. } | Want::Earlier { .. } => {}
                }
            }
            let reads = places.into_iter().map(|(commit, series, place)| async move {
                let found = log.before(op, &series, &place).await?;
                Ok::<_, Error>((commit, series, found))
            });
            let found: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
            for (commit, series, found) in found {
                self.plan.before_is(commit, &series, found, now(log));
            }
            let reads = slots.into_iter().map(|(series, version)| async move {
                let found = match log.commit_at(op, &series, version).await {
                    Err(error @ Error::Corrupt(_)) => Err(error),
                    found => Ok(found?),
                };
                Ok::<_, Error>((series, version, found))
            });
            let found: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
            for (series, version, found) in found {
                match found {
                    Ok(found) => self.plan.slot_is(&series, version, found, now(log)),
                    Err(error) => {
                        self.unreadable(log, &error);
                        self.plan.commit_is(&series, version, now(log), false, now(log));
                    }
                }
            }
            for want in wants {
                match want {
                    Want::Commit { commit, stamp, series, version } => {
                        let indexed = self.is_in(log, commit, stamp, look).await?;
                        self.plan.commit_is(&series, version, stamp, indexed, now(log));
                    }
                    Want::Earlier { commit, series, before } => {
                        let earlier = self.earlier(log, &series, &before, look).await?;
                        self.plan.earlier_is(commit, &series, &before.place, earlier, now(log));
                    }
                    Want::Slot { .. } | Want::Before { .. } => {}
                }
            }
            self.misses_old(log);
            self.plan.emit(now(log));
        }
    }

    /// What became of what a row names: in the index, gone, or on its way, perhaps as a part of something.
    async fn earlier(&mut self, log: &dyn Indexable, series: &str, before: &Before, look: Look) -> Result<Earlier> {
        if self.is_in(log, before.commit, before.stamp, look).await? {
            return Ok(Earlier::Indexed);
        }
        let notice = match log.notice_of(&self.op, series, before.commit).await {
            Err(error @ Error::Corrupt(_)) => {
                self.unreadable(log, &error);
                return Ok(Earlier::Comes(before.commit, before.stamp));
            }
            found => found?,
        };
        let Some(notice) = notice else { return Ok(Earlier::Gone) };
        let part = notice.commit != before.commit;
        if part && self.is_in(log, notice.commit, notice.stamp, look).await? {
            return Ok(Earlier::Indexed);
        }
        Ok(Earlier::Comes(notice.commit, notice.stamp))
    }

    async fn overdue(&mut self, log: &dyn Indexable) -> Result<()> {
        for Overdue { series, version, since } in self.plan.look_again(now(log)) {
            tracing::error!(
                series,
                version,
                since,
                "a version has not come for over an hour, and others wait for it: run `fencepost index verify`"
            );
        }
        self.misses_old(log);
        self.look_up(log, Look::Again).await
    }

    /// Whether somebody else has put an epoch.
    async fn is_behind(&self, log: &dyn Indexable) -> Result<bool> {
        Ok(!log.side().epochs_from(&self.op, self.number + 1, 1).await?.is_empty())
    }

    /// Puts what is emitted; whether anything was put, or none where somebody else was first.
    async fn put(&mut self, runner: &mut Runner<'_>, idle: bool) -> Result<Option<bool>> {
        let mut any = false;
        while self.plan.may_put() {
            if self.polled + ROUND < now(runner.log) {
                return Ok(None);
            }
            let bare = self.plan.queue().is_empty();
            // Without commits only if shards came or went, so that a later run knows which of them are new; if records were lost; or, now and
            // then, to say that nothing was unread.
            let unsaid = || self.gap != self.known_gap || self.plan.shards.looked() > self.known_looked + LOOKED;
            if bare && !(idle && (self.shards_changed() || unsaid())) {
                break;
            }
            let log = runner.log;
            let template = Epoch {
                number: self.number + 1,
                time: now(log),
                writer: runner.writer,
                stream: Some(self.poller.stream.clone()),
                shards: self.plan.shards.marks(),
                ids: Vec::new(),
                rebuilt: Rebuilt::young(&self.rebuilt, now(log)),
                gap: self.gap,
                looked: self.plan.shards.looked(),
                chain: self.chain,
                begun: self.begun,
                entries: Vec::new(),
            };
            let entries: Vec<Indexed> = self.plan.queue().iter().take(MAX_ENTRIES).filter_map(indexed).collect();
            let count = if bare { 0 } else { template.cut(&entries, self.plan.shards.beyond()) };
            let (taken, ids) = self.plan.commit(count);
            let epoch = Epoch { shards: self.plan.shards.marks(), ids, entries: taken.iter().filter_map(indexed).collect(), ..template };
            let over = runner.options.mutation == Some(Mutation::NoPutIfAbsent);
            let under = if over { Under::AnyNumber } else { Under::NextNumber };
            if !log.side().put_epoch(&self.op, &epoch, under).await? {
                return Ok(None);
            }
            any |= !bare;
            self.number = epoch.number;
            self.sure = self.sure.max(epoch.time.saturating_sub(UNREAD));
            (self.marks, self.known_gap, self.known_looked) = (epoch.shards, epoch.gap, epoch.looked);
            self.put_done(runner, &taken);
        }
        Ok(Some(any))
    }

    fn shards_changed(&self) -> bool {
        let set = |marks: &BTreeMap<String, Mark>| -> BTreeSet<(String, bool)> {
            marks.iter().map(|(id, mark)| (id.clone(), *mark == Mark::Finished)).collect()
        };
        self.plan.shards.would_change(&set(&self.marks))
    }

    fn put_done(&self, runner: &mut Runner<'_>, taken: &[Ready]) {
        let late = taken.iter().filter(|ready| ready.late).count() as u64;
        if late > 0 {
            tracing::error!(late, "commits were indexed behind commits that follow them");
        }
        metrics::counter!("fencepost_index_epochs_total").increment(1);
        metrics::counter!("fencepost_index_commits_total").increment(taken.len() as u64);
        metrics::counter!("fencepost_index_late_total").increment(late);
        runner.so_far.epochs += 1;
        runner.so_far.commits += taken.len() as u64;
        runner.so_far.late += late;
        tracing::debug!(epoch = self.number, commits = taken.len(), "indexed");
    }

    fn tell(&self, runner: &mut Runner<'_>, moved: bool) {
        let now = now(runner.log);
        // With nothing more to read, what waits is behind all the same.
        let at = if moved { self.plan.shards.behind() } else { self.plan.waits_since() };
        let lag = at.map_or(0, |at| now.saturating_sub(at));
        runner.so_far.lag = Duration::from_micros(lag);
        runner.so_far.waiting = self.plan.waiting() as u64;
        runner.so_far.trimmed = self.gap.is_some();
        runner.so_far.caught_up &= !moved;
        metrics::gauge!("fencepost_index_lag_seconds").set(runner.so_far.lag.as_secs_f64());
        metrics::gauge!("fencepost_index_waiting").set(self.plan.waiting() as f64);
        if moved {
            (runner.progress)(&runner.so_far);
        }
    }
}

pub(super) fn indexed(ready: &Ready) -> Option<Indexed> {
    let (namespace, home) = split(&ready.home.0)?;
    let slots = ready.slots.iter().filter_map(|(key, version)| Some((split(key)?.1, *version))).collect();
    Some(Indexed::new(namespace.into(), ready.commit, ready.stamp, (home, ready.home.1), slots, ready.types.clone(), Some(ready.events)))
}

/// What is known, and what is not, where nobody has looked at the stream for about a day.
pub(super) fn unlooked(looked: u64, now: u64) -> String {
    let time = |micros: u64| i64::try_from(micros).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    let (from, to) = (time(looked), time(now.saturating_sub(FORGETS)));
    let time = |time: Option<Timestamp>| time.map_or("?".into(), |time| format!("{time:.0}"));
    format!(
        "nobody looked at the stream since {}, and it keeps a day: what was written up to {}, if anything was, may be gone",
        time(from),
        time(to)
    )
}

pub(super) fn now(log: &dyn Indexable) -> u64 {
    now_of(log.dynamo())
}
