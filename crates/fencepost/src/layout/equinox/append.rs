//! Appending: from the Tip as it is known, again from the Tip that a refused write hands back; and our own lost answers told from conflicts.

use super::item::{self, Stored, Tip, Unfold};
use super::plan::{Addition, Sync, WRITES_BY, sync};
use super::read::{Held, position};
use super::settings::check_written;
use super::{Equinox, LAYOUT};
use crate::dynamo::{Failure, Freshness, Op, Outcome, Verdict};
use crate::error::{Error, InDoubt, Reason, Refused, Result};
use crate::event::{CommitId, Event, StreamName, Tag};
use crate::log::Committed;
use crate::side::began::Began;
use crate::side::once::{Known, Once, known};
use crate::state::check_name;
use crate::stream::{Expect, Guards, Step};

/// How often a race for one Tip is run again: every loss is somebody else's success.
const RACES: u32 = 256;

/// One append, wherever it lands.
struct Commit<'a> {
    stream: &'a StreamName,
    id: CommitId,
    stored: Vec<Stored>,
    step: &'a Step,
    /// Under an id that the caller gave.
    once: bool,
}

/// How far an append has come.
struct Run {
    tip: Option<Tip>,
    /// The version behind which it was first tried, once it was, and the newest of the Tip's marks then.
    began: Option<(u64, Vec<u8>)>,
    /// A try was sent whose answer was lost, here or in another process.
    doubt: bool,
}

impl Commit<'_> {
    fn count(&self) -> u64 {
        self.stored.len() as u64
    }

    /// The snapshots for a Tip that has come to this version.
    fn unfolds(&self, version: u64, now: jiff::Timestamp) -> Vec<Unfold> {
        let given = self.step.snapshots.iter().map(|snapshot| item::unfold(&snapshot.name, version, &snapshot.state, now));
        let last = self.stored.last().filter(|_| self.step.keep_last).map(|last| item::unfold_of(last, version));
        given.chain(last).collect()
    }

    /// Whether these events say what this commit's do. Times do not count: a repeat has another.
    fn says(&self, events: &[Stored]) -> bool {
        let same = |(own, other): (&Stored, &Stored)| {
            own.kind == other.kind && own.read().ok().zip(other.read().ok()).is_some_and(|(own, other)| own.says(&other))
        };
        events.len() == self.stored.len() && self.stored.iter().zip(events).all(same)
    }

    /// What the caller expects, held against what is there. None: it is so. Else the version from which on the caller does not know it.
    fn missed(&self, tip: Option<&Tip>) -> Result<Option<u64>> {
        let version = tip.map_or(0, |tip| tip.batch.next);
        let whole = self.step.guards == Guards::Snapshots;
        let known = match &self.step.expect {
            Expect::Any => return Ok(None),
            Expect::None if whole && tip.is_some() => return Ok(Some(0)),
            Expect::None => 0,
            Expect::Version(version) => *version,
            Expect::Token(token) => {
                let held = Held::open(token, self.stream)?;
                let is_other = tip.map_or("", |tip| tip.etag.as_str()) != held.etag;
                if whole && is_other {
                    return Ok(Some(held.version));
                }
                held.version
            }
        };
        Ok((known != version).then_some(known))
    }
}

impl Equinox {
    pub(super) async fn append_step(&self, op: &Op, stream: &StreamName, step: &Step) -> Result<Committed> {
        let began = step.base.as_ref().map(|base| Began::open(LAYOUT, base, stream)).transpose()?;
        let commit = self.begin(stream, step, began.as_ref())?;
        if commit.once
            && let Some(known) = self.once().find(op, stream, commit.id).await?
        {
            return self.found(op, &commit, &known);
        }
        let tip = self.known_tip(op, stream, &step.expect).await?;
        let mut run = Run { tip, began: began.as_ref().map(|began| (began.version, began.seen.clone())), doubt: began.is_some() };
        for race in 0..RACES {
            match self.attempt(op, &commit, &mut run).await {
                Ok(Some(committed)) => return Ok(committed),
                Ok(None) => {}
                Err(failure) => return Err(give_up(&commit, &run, failure)),
            }
            if race > 0 {
                let pause = self.dynamo().pause(race.min(5), Reason::Unreachable);
                if op.is_over(pause) {
                    break;
                }
                self.dynamo().env().sleep(pause).await;
            }
        }
        let error = Error::unavailable(Reason::Throttled, format!("{stream} was written by others again and again meanwhile"));
        Err(give_up(&commit, &run, Failure { error, doubt: false }))
    }

    /// Checks all that needs no call.
    fn begin<'a>(&self, stream: &'a StreamName, step: &'a Step, began: Option<&Began>) -> Result<Commit<'a>> {
        check_written(stream)?;
        let rolls = step.guards == Guards::Snapshots && !step.snapshots.is_empty();
        if step.events.is_empty() && !rolls {
            return Err(Refused::Empty { what: "append" }.into());
        }
        for snapshot in &step.snapshots {
            check_name("snapshot name", &snapshot.name)?;
        }
        if step.guards == Guards::Snapshots && matches!(step.expect, Expect::Version(_)) {
            let what = "a version that guards snapshots too".into();
            return Err(Refused::Unsupported { what, remedy: "a version counts events alone: expect the token of a load".into() }.into());
        }
        let tag = Tag::from(stream);
        if let Some(other) = step.events.iter().flat_map(Event::tags).find(|other| **other != tag) {
            let what = format!("the tag {other} on an event of this layout");
            return Err(Refused::Unsupported {
                what,
                remedy: "it has streams only: put what the tag says into the body or the metadata".into(),
            }
            .into());
        }
        let id = step.commit.unwrap_or_else(|| CommitId(self.dynamo().env().new_id()));
        let once = step.commit.is_some() && began.is_none_or(|began| began.once);
        if once && step.events.is_empty() {
            let what = "a commit id on an append without events".into();
            return Err(Refused::Unsupported {
                what,
                remedy: "nothing of it stays to be found by the id: expect the token of a load".into(),
            }
            .into());
        }
        let now = self.dynamo().env().now();
        let stored = step.events.iter().map(|event| item::stored(event, now)).collect::<Result<Vec<_>>>()?;
        let commit = Commit { stream, id, stored, step, once };
        // However the Tip is, the new events and snapshots must fit into it.
        self.plan(&commit, None)?;
        Ok(commit)
    }

    fn plan(&self, commit: &Commit<'_>, tip: Option<&Tip>) -> Result<Sync> {
        let env = self.dynamo().env();
        let version = tip.map_or(0, |tip| tip.batch.next) + commit.count();
        let add = Addition {
            events: commit.stored.clone(),
            unfolds: commit.unfolds(version, env.now()),
            // A fresh one for each try: it tells whose the Tip is.
            etag: item::etag(env.new_id()),
            commit: commit.id,
        };
        sync(self.table(), commit.stream.as_str(), tip, add, self.limits())
    }

    /// The Tip as it is remembered, if that is what the caller saw, or no matter; else as it is.
    async fn known_tip(&self, op: &Op, stream: &StreamName, expect: &Expect) -> Result<Option<Tip>> {
        let remembered = self.remembered(stream);
        let seen = match (expect, &remembered) {
            (Expect::Any, Some(_)) => true,
            (Expect::Token(token), Some(tip)) => tip.batch.next == Held::open(token, stream)?.version,
            // Nothing was there: a put tells if that is still so.
            (Expect::Token(token), None) => {
                if Held::open(token, stream)?.is_nothing() {
                    return Ok(None);
                }
                false
            }
            (Expect::Version(version), Some(tip)) => tip.batch.next == *version,
            (Expect::None | Expect::Version(0), None) => return Ok(None),
            _ => false,
        };
        if seen { Ok(remembered) } else { self.tip(op, stream, Freshness::Strong).await }
    }

    /// One try. None: again, from the Tip that is known now.
    async fn attempt(&self, op: &Op, commit: &Commit<'_>, run: &mut Run) -> Result<Option<Committed>, Failure> {
        let sure = |error: Error| Failure { error, doubt: false };
        // While a try is in doubt, its events may be what moved the stream. It stays so until a write is answered: what was sent may still
        // be on its way, and either it or the next one goes through.
        if run.doubt
            && let Some(committed) = self.look(op, commit, run).await.map_err(sure)?
        {
            return Ok(Some(committed));
        }
        if let Some(from) = commit.missed(run.tip.as_ref()).map_err(sure)? {
            // What moved the stream since the first look may be this very commit, sent by another.
            if commit.once
                && let Some(known) = self.once().find(op, commit.stream, commit.id).await.map_err(sure)?
            {
                return self.found(op, commit, &known).map(Some).map_err(sure);
            }
            return Err(sure(self.conflict(op, commit, run, from).await.map_err(sure)?));
        }
        let before = run.tip.as_ref().map_or(0, |tip| tip.batch.next);
        let Sync { mut writes, tip, calves } = self.plan(commit, run.tip.as_ref()).map_err(sure)?;
        if commit.once {
            writes.push(self.once().write(commit.stream, tip.batch.next, commit.id, &commit.step.events));
            self.once_table(op).await.map_err(sure)?;
        }
        let newest = || run.tip.as_ref().map(|tip| tip.marks.newest().to_vec()).unwrap_or_default();
        run.began.get_or_insert_with(|| (before, newest()));
        let verdicts = match self.dynamo().write(op, WRITES_BY, writes).await {
            Ok(Outcome::Done) => {
                self.remember(commit.stream, Some(&tip));
                self.side().ring();
                return Ok(Some(self.committed(op, commit, before, Some(&tip))));
            }
            Ok(Outcome::Failed { verdicts, doubt }) => {
                run.doubt |= doubt;
                verdicts
            }
            Err(failure) => {
                self.forget(commit.stream);
                return Err(failure);
            }
        };
        let found = |at: usize| match verdicts.get(at) {
            Some(Verdict::Found(item)) => Some(&**item),
            _ => None,
        };
        let at_tip = usize::from(calves);
        if commit.once
            && let Some(item) = found(at_tip + 1)
        {
            let known = known(commit.stream, item).map_err(sure)?;
            return self.found(op, commit, &known).map(Some).map_err(sure);
        }
        let there = match found(at_tip) {
            Some(item) => Some(item::tip(item).map_err(sure)?),
            // A calf was in the way, or the reasons were left out: what is there must be read.
            None => self.tip(op, commit.stream, Freshness::Strong).await.map_err(sure)?,
        };
        self.remember(commit.stream, there.as_ref());
        if there.as_ref().is_some_and(|there| there.etag == tip.etag) {
            // Our own write, whose answer was lost.
            self.remember(commit.stream, Some(&tip));
            self.side().ring();
            return Ok(Some(self.committed(op, commit, before, Some(&tip))));
        }
        // A request that was delivered twice is answered by its second delivery, and nothing else tells that the first one went through.
        run.doubt |= there.as_ref().is_some_and(|there| there.marks.may_hold(before, commit.id));
        let unmoved = there.as_ref().map(|tip| &tip.etag) == run.tip.as_ref().map(|tip| &tip.etag);
        if calves && found(0).is_some() && unmoved {
            let what = format!("{}: an item is in the place where the Tip's events from {} on go", commit.stream, before);
            return Err(sure(Error::corrupt(LAYOUT, what)));
        }
        run.tip = there;
        Ok(None)
    }

    /// The conflict, with what the caller does not know yet.
    async fn conflict(&self, op: &Op, commit: &Commit<'_>, run: &Run, from: u64) -> Result<Error> {
        let new = match self.from(op, commit.stream, from, run.tip.as_ref(), Freshness::Strong).await {
            // Some of them are pruned, or cannot be read: that is for who reads on to hear, and a conflict it is all the same.
            Err(Error::Corrupt(_)) => return Ok(Error::conflict(Vec::new(), None)),
            new => new?,
        };
        // Where snapshots are guarded, they are what is new, and must be read.
        let token = (commit.step.guards == Guards::Events).then(|| Held::seal(commit.stream, run.tip.as_ref()));
        Ok(Error::conflict(new, token))
    }

    /// Looks for the commit in the stream from where its first try began: by the id that its caller gave, or by the marks of the Tip. Where
    /// those do not reach back so far, events that say the same leave the matter in doubt.
    async fn look(&self, op: &Op, commit: &Commit<'_>, run: &mut Run) -> Result<Option<Committed>> {
        let Some((began, seen)) = run.began.clone() else { return Ok(None) };
        run.tip = self.tip(op, commit.stream, Freshness::Strong).await?;
        if commit.once {
            let known = self.once().find(op, commit.stream, commit.id).await?;
            return known.map(|known| self.found(op, commit, &known)).transpose();
        }
        let Some(tip) = &run.tip else { return Ok(None) };
        let (first, events) = self.stored_from(op, commit.stream, began, tip).await?;
        let says_so = |version: u64| {
            let at = usize::try_from(version.checked_sub(first)?).ok()?;
            Some(commit.says(events.get(at..at.checked_add(commit.stored.len())?)?))
        };
        let is_here = |version: &u64| says_so(*version) == Some(true);
        if let Some(version) = tip.marks.versions(began, commit.id).find(is_here) {
            // Its snapshots may be others' by now: a token that guards them would not.
            let tip = (commit.step.guards == Guards::Events).then_some(tip);
            return Ok(Some(self.committed(op, commit, version, tip)));
        }
        if tip.marks.reach_behind(began) || tip.marks.reach_back_to(&seen) {
            return Ok(None);
        }
        let alike = (began..tip.batch.next).find(|version| is_here(version) && !tip.marks.tell_of(*version));
        match alike {
            Some(version) if !commit.stored.is_empty() => {
                let message = format!("event {version} of {} says the same, and nothing tells whose it is", commit.stream);
                Err(Error::unavailable(Reason::Unreachable, message))
            }
            None if !commit.stored.is_empty() => Ok(None),
            _ => Err(Error::unavailable(Reason::Unreachable, format!("{} was written by others since", commit.stream))),
        }
    }

    /// What an append under an id of the caller's recorded the first time.
    fn found(&self, op: &Op, commit: &Commit<'_>, known: &Known) -> Result<Committed> {
        known.check(commit.id, &commit.step.events)?;
        Ok(self.committed(op, commit, known.version - known.count, None))
    }

    fn committed(&self, op: &Op, commit: &Commit<'_>, before: u64, tip: Option<&Tip>) -> Committed {
        let version = before + commit.count();
        let positions = (before + 1..=version).map(|version| position(commit.stream, version)).collect();
        // A token stands for the Tip that the commit left, not for what others made of it since.
        let own = tip.filter(|tip| !matches!(commit.step.expect, Expect::Any) && tip.batch.next == version);
        let mut committed = Committed::new(commit.id, positions, own.map(|tip| Held::seal(commit.stream, Some(tip))), op.units());
        committed.version = Some(version);
        committed
    }

    pub(super) async fn find_commit(&self, op: &Op, stream: &StreamName, commit: CommitId) -> Result<Option<Committed>> {
        let Some(known) = self.once().find(op, stream, commit).await? else { return Ok(None) };
        let positions = (known.version - known.count + 1..=known.version).map(|version| position(stream, version)).collect();
        let mut committed = Committed::new(commit, positions, None, op.units());
        committed.version = Some(known.version);
        Ok(Some(committed))
    }

    fn once(&self) -> Once<'_> {
        Once(self.side())
    }
}

fn give_up(commit: &Commit<'_>, run: &Run, failure: Failure) -> Error {
    match &run.began {
        Some((began, seen)) if (run.doubt || failure.doubt) && !failure.error.is_conflict() => Error::InDoubt(Box::new(InDoubt {
            commit: commit.id,
            base: Began::new(commit.stream, *began, commit.once, seen.clone()).seal(LAYOUT),
            message: match failure.error {
                // Without its own "nothing was recorded".
                Error::Unavailable(unavailable) => unavailable.message,
                other => other.to_string(),
            },
        })),
        _ => failure.error,
    }
}
