//! Appending: one transaction behind the stream's end, and what a failed one tells: our own earlier success, a conflict, or where to try next.

use uuid::Uuid;

use super::EventStoreAdapter;
use super::item::{self, Row, SEQ, SNAPSHOT};
use super::plan::{Commit, Part, plan};
use super::read::{Locked, Reach};
use super::settings::Kind;
use super::token::End;
use super::whose::{self, Whose};
use crate::dynamo::item::{Attributes, Item};
use crate::dynamo::{Freshness, Op, Outcome, Verdict};
use crate::error::{Error, InDoubt, Reason, Refused, Result};
use crate::event::{CommitId, Event, StreamName};
use crate::log::Committed;
use crate::side::began::Began;
use crate::side::once::{Known, Once, known};
use crate::state::check_name;
use crate::stream::{Expect, Snapshot, Step};

/// One append, from its first try on.
struct Run<'a> {
    commit: Commit<'a>,
    expect: &'a Expect,
    /// Where an earlier append of this commit began.
    began: Option<Began>,
    /// When it was first tried, in microseconds: every try says the same, so that each is known by it.
    stamp: u64,
    /// Whether the base told: one that an earlier version gave does not.
    stamped: bool,
    /// The version behind which it was first tried here.
    tried: Option<u64>,
    /// What the lock was taken to be when it was first tried of all.
    lock: Option<u64>,
    /// Whether a try may have landed, and nothing tells.
    doubt: bool,
    /// Whether the side table has been made for it.
    made: bool,
}

impl Run<'_> {
    /// The same for every sending of this commit behind this end, from whichever process. Under an id of the caller's none: that may come again
    /// with another time, and its own item tells.
    fn request_token(&self, from: End) -> Option<String> {
        let place = [from.version.to_be_bytes(), from.lock.to_be_bytes()].concat();
        (!self.commit.once).then(|| Uuid::new_v5(&self.commit.id.0, &place).simple().to_string())
    }
}

/// What a failed try came to.
enum Settled {
    /// It had landed.
    Landed(Committed),
    /// It has not, and cannot there any more.
    Not(Met),
    /// It may have.
    Unknown,
}

/// Where the stream ends, and the events behind the end that was tried, where they were read for it.
struct Met {
    end: End,
    rows: Option<Vec<Row>>,
}

impl EventStoreAdapter {
    pub(super) async fn append_stream(&self, op: &Op, stream: &StreamName, step: &Step) -> Result<Committed> {
        let mut run = self.begin(stream, step)?;
        let done = match self.settle_or_try(op, stream, &mut run).await {
            // Under an id of the caller's it may have been recorded when the expectation still held: then that is the answer.
            Err(conflict @ Error::Conflict(_)) if run.commit.once => match self.once().find(op, stream, run.commit.id).await {
                Ok(Some(known)) => self.recorded_before(op, stream, &run, &known).await,
                Ok(None) => Err(conflict),
                Err(error) => Err(error),
            },
            done => done,
        };
        match done {
            // Whatever went wrong since: a try that may have landed is not undone by it.
            Err(error) if run.doubt && error.settles_nothing() => Err(self.in_doubt(stream, &run, &error.to_string())),
            done => done,
        }
    }

    fn in_doubt(&self, stream: &StreamName, run: &Run<'_>, message: &str) -> Error {
        let fresh = || Began::new(stream, run.tried.unwrap_or(0), run.commit.once, Vec::new());
        let mut began = run.began.clone().unwrap_or_else(fresh);
        let lock = run.lock.map_or_else(Vec::new, |lock| lock.to_be_bytes().to_vec());
        began.seen = [&run.stamp.to_be_bytes()[..], &[u8::from(run.commit.bare)], &lock].concat();
        let base = began.seal(self.options().layout());
        Error::InDoubt(Box::new(InDoubt { commit: run.commit.id, base, message: message.into() }))
    }

    /// Checks all that needs no call.
    fn begin<'a>(&self, stream: &StreamName, step: &'a Step) -> Result<Run<'a>> {
        let options = self.options();
        options.check_name(stream)?;
        step.plain()?;
        let began = step.base.as_ref().map(|base| Began::open(options.layout(), base, stream)).transpose()?;
        if step.events.is_empty() {
            return Err(Refused::Empty { what: "append" }.into());
        }
        if step.events.len() > options.max_events() {
            return Err(Refused::TooManyEvents { events: step.events.len(), limit: options.max_events() }.into());
        }
        for event in &step.events {
            item::check_event(options, stream, event, None)?;
        }
        let snapshot = self.one_snapshot(&step.snapshots)?;
        options.check_writable()?;
        let told = began.as_ref().and_then(|began| began.seen.first_chunk().copied().map(u64::from_be_bytes));
        let stamp = told.map_or_else(|| self.new_stamp(), Ok)?;
        let once = began.as_ref().map_or(step.commit.is_some(), |began| began.once);
        let id = step.commit.unwrap_or_else(|| self.dynamo().env().new_commit_id());
        let drawn = whose::drawn(stamp, id)?;
        let occurred = step.events.iter().map(|event| whose::occurred(event, drawn)).collect::<Result<Vec<_>>>()?;
        let doubt = began.is_some();
        let bare = options.strict || began.as_ref().is_some_and(|began| began.seen.get(8) == Some(&1));
        let lock = began.as_ref().and_then(|began| began.seen.get(9..)?.first_chunk().copied().map(u64::from_be_bytes));
        let commit = Commit { id, events: &step.events, drawn, occurred, snapshot, once, bare };
        Ok(Run { commit, expect: &step.expect, began, stamp, stamped: told.is_some(), tried: None, lock, doubt, made: false })
    }

    fn one_snapshot<'a>(&self, snapshots: &'a [Snapshot]) -> Result<Option<&'a Snapshot>> {
        for snapshot in snapshots {
            check_name("snapshot name", &snapshot.name)?;
        }
        let unsupported = |what: &str, remedy: &str| Err(Refused::Unsupported { what: what.into(), remedy: remedy.into() }.into());
        match (snapshots, &self.options().kind) {
            ([], _) => Ok(None),
            ([one], Kind::V3(_)) if one.name != SNAPSHOT => {
                unsupported("a snapshot with a name of its own", "v3 has one snapshot of a stream, without a name: call it `snapshot`")
            }
            ([one], _) => Ok(Some(one)),
            _ => unsupported("several snapshots in one append", "the layout keeps one current snapshot of a stream: give one"),
        }
    }

    async fn settle_or_try(&self, op: &Op, stream: &StreamName, run: &mut Run<'_>) -> Result<Committed> {
        if run.began.is_some()
            && let Some(done) = self.look(op, stream, run).await?
        {
            return Ok(done);
        }
        let mut from = self.expected_end(op, stream, run).await?;
        for attempt in 0u32.. {
            let (writes, end) = plan(self.options(), &self.once(), stream, from, &run.commit)?;
            let (parts, writes): (Vec<Part>, Vec<_>) = writes.into_iter().unzip();
            if run.tried.is_none() {
                run.tried = Some(from.version);
                run.lock = if run.began.is_none() { Some(from.lock) } else { run.lock };
            }
            let outcome = match self.dynamo().write_under(op, self.options().hash_key(), writes, run.request_token(from)).await {
                Ok(outcome) => outcome,
                Err(failure) => {
                    run.doubt |= failure.doubt;
                    let missing = matches!(&failure.error, Error::Unavailable(u) if u.reason == Reason::Missing);
                    if missing && run.commit.once && !std::mem::replace(&mut run.made, true) {
                        self.side().make().await?;
                        continue;
                    }
                    return Err(failure.error);
                }
            };
            let settled = match outcome {
                Outcome::Done => {
                    self.remember(stream, end);
                    self.side().ring();
                    self.retain(op, stream, end.version, &run.commit).await;
                    return Ok(self.committed_at(op, stream, run, end));
                }
                Outcome::Failed { verdicts, doubt } => {
                    // Until it is settled; what was in doubt before this try stays so.
                    let before = run.doubt;
                    run.doubt |= doubt;
                    let settled = self.settle(op, stream, run, from, &parts, verdicts).await?;
                    run.doubt = before;
                    settled
                }
            };
            match settled {
                Settled::Landed(done) => return Ok(done),
                Settled::Unknown => {
                    return Err(self.in_doubt(stream, run, "an event like it is where it was tried, and nothing tells whose"));
                }
                Settled::Not(Met { end, .. }) if end == from && attempt >= 3 => {
                    let what = format!("{stream}: the journal has @{} and the lock does not know of it", from.version + 1);
                    return Err(Error::corrupt(self.options().layout(), what));
                }
                // Nothing came: only the lock was not where it was taken to be.
                Settled::Not(Met { end, .. }) if matches!(run.expect, Expect::Any) || end.version == from.version => {
                    // A lock that is gone may be put back.
                    if end.lock > 0 || end.version == 0 {
                        self.remember(stream, end);
                    }
                    from = end;
                }
                Settled::Not(Met { end, rows: Some(rows) }) if !rows.is_empty() => return Err(self.conflict_with(stream, rows, end)),
                Settled::Not(_) => return Err(self.conflict(op, stream, from.version).await?),
            }
            let pause = self.dynamo().pause(attempt.saturating_sub(1), Reason::Unreachable);
            if op.is_over(pause) {
                return Err(Error::unavailable(Reason::Throttled, "others kept appending to this stream"));
            }
            if attempt > 0 {
                self.dynamo().env().sleep(pause).await;
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Where the stream must end, or is taken to end.
    async fn expected_end(&self, op: &Op, stream: &StreamName, run: &Run<'_>) -> Result<End> {
        let v3 = matches!(self.options().kind, Kind::V3(_));
        match run.expect {
            Expect::None | Expect::Version(0) => Ok(End::default()),
            Expect::Token(token) => self.open_token(token, stream),
            Expect::Version(version) => match self.remembered(stream) {
                Some(end) if end.version == *version => Ok(end),
                // The head holds the version itself; the lock of v3 is another number, and proves nothing of it.
                _ if v3 => {
                    let mut rows = self.tail(op, stream, *version - 1, Freshness::Strong).await?;
                    let is_there = rows.first().is_some_and(|row| row.version == *version);
                    rows.retain(|row| row.version > *version);
                    match rows.last().map(|row| row.version) {
                        None if is_there => Ok(End { version: *version, lock: *version }),
                        None => Err(self.conflict(op, stream, *version).await?),
                        Some(last) => Err(self.conflict_with(stream, rows, End { version: last, lock: last })),
                    }
                }
                _ => Ok(End { version: *version, lock: *version }),
            },
            Expect::Any => match self.remembered(stream) {
                Some(end) => Ok(end),
                // A moment old will do: a try behind the wrong end fails, and tells. One that cannot be tried is looked for again.
                None => match self.seen_end(op, stream, Freshness::Eventual).await? {
                    End { version: 0, .. } if v3 && run.commit.snapshot.is_none() => self.seen_end(op, stream, Freshness::Strong).await,
                    end => Ok(end),
                },
            },
        }
    }

    /// Where the stream ends.
    pub(super) async fn seen_end(&self, op: &Op, stream: &StreamName, fresh: Freshness) -> Result<End> {
        match &self.options().kind {
            Kind::V5 { head, .. } => {
                let key = Item::from([(item::AID.into(), crate::dynamo::item::text(stream.as_str()))]);
                let head = self.dynamo().get(op, head, key, fresh).await?;
                head.map_or(Ok(End::default()), |head| self.headed(stream, &head))
            }
            Kind::V3(_) => {
                let version = self.last(op, stream, fresh).await?.map_or(0, |row| row.version);
                Ok(End { version, lock: version })
            }
        }
    }

    /// What a head of v5 says.
    fn headed(&self, stream: &StreamName, head: &Item) -> Result<End> {
        let version = head.number(SEQ).map_err(|m| Error::corrupt(self.options().layout(), format!("head of {stream}: {}", m.0)))?;
        Ok(End { version, lock: version })
    }

    /// What a failed try came to. Nothing is in doubt but where `run` says so.
    async fn settle(
        &self,
        op: &Op,
        stream: &StreamName,
        run: &Run<'_>,
        from: End,
        parts: &[Part],
        verdicts: Vec<Verdict>,
    ) -> Result<Settled> {
        let (mut there, mut lock) = (None, None);
        for (part, verdict) in parts.iter().zip(verdicts) {
            let Verdict::Found(found) = verdict else { continue };
            match part {
                Part::Once => return self.recorded_before(op, stream, run, &known(stream, &found)?).await.map(Settled::Landed),
                Part::Journal if there.is_none() => there = Some(item::row(self.options(), stream, &found)?),
                Part::Lock => lock = Some(*found),
                _ => {}
            }
        }
        if run.doubt {
            // Which conditions failed is not always told of all of them.
            if run.commit.once
                && let Some(known) = self.once().find(op, stream, run.commit.id).await?
            {
                return self.recorded_before(op, stream, run, &known).await.map(Settled::Landed);
            }
            let first = from.version + 1;
            if there.as_ref().is_none_or(|row| row.version != first) {
                there = self.fetch(op, stream, first..=first, Freshness::Strong).await?.pop();
            }
        }
        // By its time alone it is ours only where a try may have landed: else another said the same in the same microsecond.
        let there = there.filter(|row| run.doubt || row.commit.is_some());
        match there.map_or(Whose::Others, |row| run.commit.whose(from.version, &row)) {
            Whose::Ours => {
                let end = End { version: from.version + run.commit.count(), lock: from.lock + run.commit.count() };
                self.remember(stream, end);
                self.side().ring();
                return Ok(Settled::Landed(self.committed_at(op, stream, run, end)));
            }
            Whose::Untold if !run.commit.once => return Ok(Settled::Unknown),
            Whose::Untold | Whose::Others => {}
        }
        let met = match (&self.options().kind, lock) {
            (Kind::V5 { .. }, Some(head)) => Met { end: self.headed(stream, &head)?, rows: None },
            (Kind::V5 { .. }, None) => Met { end: self.seen_end(op, stream, Freshness::Strong).await?, rows: None },
            (Kind::V3(_), lock) => self.met(op, stream, run, from, lock).await?,
        };
        Ok(Settled::Not(met))
    }

    /// Where a stream of v3 ends. Its lock, which a failed condition brought at no cost, tells whether the index shows all.
    async fn met(&self, op: &Op, stream: &StreamName, run: &Run<'_>, from: End, lock: Option<Item>) -> Result<Met> {
        let current = match lock {
            Some(found) => Some(item::snapshot(self.options(), stream, &found)?),
            None => self.current(op, stream, Freshness::Strong).await?,
        };
        let lock = current.as_ref().map_or(0, |current| current.lock);
        let locked = current.map_or_else(Locked::default, |current| Locked { version: current.lock, millis: current.updated });
        let last = async || {
            let last = self.last_of(op, stream, Reach::after(0).locked(locked)).await?.map_or(0, |row| row.version);
            Ok::<_, Error>(Met { end: End { version: last, lock }, rows: None })
        };
        if matches!(run.expect, Expect::Any) {
            return last().await;
        }
        let rows = self.tail_to(op, stream, from.version, locked).await?;
        match rows.last().map(|row| row.version) {
            Some(version) => Ok(Met { end: End { version, lock }, rows: Some(rows) }),
            // Nothing came, or it is shorter than was expected.
            None => last().await,
        }
    }

    fn committed_at(&self, op: &Op, stream: &StreamName, run: &Run<'_>, end: End) -> Committed {
        let positions = (0..).zip(&run.commit.occurred).map(|(index, at)| item::position(stream, end.version, index, *at)).collect();
        let token = (!matches!(run.expect, Expect::Any)).then(|| self.token(stream, end));
        let mut committed = Committed::new(run.commit.id, positions, token, op.units());
        committed.version = Some(end.version);
        committed
    }

    /// The events that came, and a token behind them.
    async fn conflict(&self, op: &Op, stream: &StreamName, after: u64) -> Result<Error> {
        let rows = self.tail(op, stream, after, Freshness::Strong).await?;
        let end = match rows.last() {
            Some(row) => End { version: row.version, lock: row.version },
            // Nothing behind: the stream is shorter than expected.
            None => self.seen_end(op, stream, Freshness::Strong).await?,
        };
        Ok(self.conflict_with(stream, rows, end))
    }

    fn conflict_with(&self, stream: &StreamName, rows: Vec<Row>, end: End) -> Error {
        let events = rows.into_iter().map(|row| row.recorded(stream)).collect();
        Error::conflict(events, Some(self.token(stream, end)))
    }

    /// The outcome of a commit that was recorded before under this id.
    async fn recorded_before(&self, op: &Op, stream: &StreamName, run: &Run<'_>, known: &Known) -> Result<Committed> {
        known.check(run.commit.id, run.commit.events)?;
        let mut committed = self.outcome(op, stream, run.commit.id, known).await?;
        let end = End { version: known.version, lock: known.version };
        // Another run may have landed it, behind events that are not in this one's model.
        let stood = match run.expect {
            Expect::Any => None,
            Expect::None => Some(0),
            Expect::Version(version) => Some(*version),
            Expect::Token(token) => Some(self.open_token(token, stream)?.version),
        };
        committed.token = stood.filter(|stood| stood + known.count == known.version).map(|_| self.token(stream, end));
        Ok(committed)
    }

    async fn outcome(&self, op: &Op, stream: &StreamName, commit: CommitId, known: &Known) -> Result<Committed> {
        let rows = self.fetch(op, stream, known.version + 1 - known.count..=known.version, Freshness::Strong).await?;
        if rows.len() as u64 != known.count {
            let what = format!("events of commit {commit} to {stream}, up to @{}, are missing", known.version);
            return Err(Error::corrupt(self.options().layout(), what));
        }
        let positions = rows.into_iter().map(|row| row.recorded(stream).position).collect();
        let mut committed = Committed::new(commit, positions, None, op.units());
        committed.version = Some(known.version);
        Ok(committed)
    }

    /// The outcome of a commit under an id of the caller's.
    pub(super) async fn find_commit(&self, op: &Op, stream: &StreamName, commit: CommitId) -> Result<Option<Committed>> {
        match self.once().find(op, stream, commit).await? {
            Some(known) => self.outcome(op, stream, commit, &known).await.map(Some),
            None => Ok(None),
        }
    }

    /// Looks for a commit whose append stayed in doubt.
    async fn look(&self, op: &Op, stream: &StreamName, run: &Run<'_>) -> Result<Option<Committed>> {
        let Some(began) = &run.began else { return Ok(None) };
        if run.commit.once {
            return match self.once().find(op, stream, run.commit.id).await? {
                Some(known) => self.recorded_before(op, stream, run, &known).await.map(Some),
                None => Ok(None),
            };
        }
        let rows = self.tail(op, stream, began.version, Freshness::Strong).await?;
        let begins = |row: &Row| row.commit.map_or(row.begins_at(run.commit.drawn), |id| id == run.commit.id);
        let Some(at) = rows.iter().position(begins) else {
            let first = || run.commit.events.first().zip(run.commit.occurred.first());
            let like = |row: &Row| first().is_some_and(|(event, at)| if run.stamped { row.says(event, *at) } else { row.is_like(event) });
            let untold = run.commit.bare && (run.commit.needs_mark() || !run.stamped);
            return match untold && rows.iter().any(like) {
                true => self.first_try(op, stream, run, began.version).await.map(Some),
                false => Ok(None),
            };
        };
        let ours: Vec<Row> = rows.into_iter().skip(at).take(run.commit.events.len()).collect();
        let same = |(index, event): (usize, &Event)| {
            ours.get(index).is_some_and(|row| row.is_part(index, run.commit.events.len()) && row.is_like(event))
        };
        let Some(last) = ours.last().map(Row::last).filter(|_| run.commit.events.iter().enumerate().all(same)) else {
            return Err(Refused::Reused { commit: run.commit.id }.into());
        };
        let positions = ours.into_iter().map(|row| row.recorded(stream).position).collect();
        let end = End { version: last, lock: last };
        let token = (!matches!(run.expect, Expect::Any)).then(|| self.token(stream, end));
        let mut committed = Committed::new(run.commit.id, positions, token, op.units());
        committed.version = Some(last);
        Ok(Some(committed))
    }

    /// Sends the first try once more, as it was, where an event says the same: for ten minutes its request token tells whether it had landed. If it
    /// had not it cannot now, since its place is taken.
    async fn first_try(&self, op: &Op, stream: &StreamName, run: &Run<'_>, version: u64) -> Result<Committed> {
        if let Some(lock) = run.lock
            && let Ok((writes, end)) = plan(self.options(), &self.once(), stream, End { version, lock }, &run.commit)
        {
            let writes = writes.into_iter().map(|(_, write)| write).collect();
            let token = run.request_token(End { version, lock });
            if let Ok(Outcome::Done) = self.dynamo().write_under(op, self.options().hash_key(), writes, token).await {
                return Ok(self.committed_at(op, stream, run, end));
            }
        }
        Err(self.in_doubt(stream, run, "under strict=true nothing tells whose the event is that says the same"))
    }

    fn once(&self) -> Once<'_> {
        Once(self.side())
    }
}
