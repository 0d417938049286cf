//! Appending: from the Tip as it is known, again from the Tip that a refused write hands back; and our own lost answers told from conflicts.

use super::item::{self, Stored, Tip};
use super::plan::{Addition, Held as By, Sync, WRITES_BY, sync};
use super::read::{Held, position};
use super::settings::check_written;
use super::{Equinox, LAYOUT};
use crate::dynamo::{Failure, Freshness, Op, Outcome, Verdict, Write};
use crate::error::{Error, InDoubt, Reason, Refused, Result};
use crate::event::{CommitId, Event, StreamName, Tag};
use crate::log::Committed;
use crate::side::began::Began;
use crate::side::once::{Known, Once, known};
use crate::state::check_name;
use crate::stream::{Expect, Step};

/// How often a race for one Tip is run again: every loss is somebody else's success.
const RACES: u32 = 256;

/// One append, wherever it lands.
struct Commit<'a> {
    stream: &'a StreamName,
    id: CommitId,
    events: &'a [Event],
    stored: Vec<Stored>,
    step: &'a Step,
    /// Under an id that the caller gave.
    once: bool,
}

/// How far an append has come.
struct Run {
    tip: Option<Tip>,
    /// The version behind which it was first tried, once it was.
    began: Option<u64>,
    /// A try was sent whose answer was lost, here or in another process.
    doubt: bool,
}

impl Equinox {
    pub(super) async fn append_step(&self, op: &Op, stream: &StreamName, step: &Step) -> Result<Committed> {
        check_written(stream)?;
        if step.events.is_empty() {
            return Err(Refused::Empty { what: "append" }.into());
        }
        for snapshot in &step.snapshots {
            check_name("snapshot name", &snapshot.name)?;
        }
        let tag = Tag::from(stream);
        if let Some(other) = step.events.iter().flat_map(Event::tags).find(|other| **other != tag) {
            let what = format!("the tag {other} on an event of this layout");
            return Err(Refused::Unsupported { what, remedy: "it has streams only: put what the tag says into the body or the metadata".into() }.into());
        }
        let id = step.commit.unwrap_or_else(|| CommitId(self.dynamo().env().new_id()));
        let now = self.dynamo().env().now();
        let mark = |index: usize| (index == 0).then(|| id.0.as_bytes());
        let stored = step.events.iter().enumerate().map(|(index, event)| item::stored(event, now, mark(index)));
        let began = step.base.as_ref().map(|base| Began::open(LAYOUT, base, stream)).transpose()?;
        let once = step.commit.is_some() && began.as_ref().is_none_or(|began| began.once);
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let commit = Commit { stream, id, events: &step.events, stored, step, once };
        if once && let Some(known) = self.once().find(op, stream, id).await? {
            return self.found(op, &commit, &known);
        }
        let tip = self.known_tip(op, stream, &step.expect).await?;
        let mut run = Run { tip, began: began.as_ref().map(|began| began.version), doubt: began.is_some() };
        if run.doubt && let Some(committed) = self.look(op, &commit, &run).await? {
            return Ok(committed);
        }
        for _ in 0..RACES {
            match self.attempt(op, &commit, &mut run).await {
                Ok(Some(committed)) => return Ok(committed),
                Ok(None) => {}
                Err(failure) => return Err(give_up(&commit, &run, failure)),
            }
        }
        let error = Error::unavailable(Reason::Throttled, format!("{stream} was written by others {RACES} times meanwhile"));
        Err(give_up(&commit, &run, Failure { error, doubt: false }))
    }

    /// The Tip as it is remembered, if that is what the caller saw, or no matter; else as it is.
    async fn known_tip(&self, op: &Op, stream: &StreamName, expect: &Expect) -> Result<Option<Tip>> {
        let remembered = self.remembered(stream);
        let seen = match (expect, &remembered) {
            (Expect::Any, Some(_)) => true,
            (Expect::Token(token), Some(tip)) => {
                let held = Held::open(token, stream)?;
                tip.batch.next == held.version && tip.etag == held.etag
            }
            // Nothing was there: a put tells if that is still so.
            (Expect::Token(token), None) => {
                if Held::open(token, stream)?.version == 0 {
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
        let before = run.tip.as_ref().map_or(0, |tip| tip.batch.next);
        if let Some(from) = expected(commit.step, commit.stream, before).map_err(sure)? {
            // While a try is in doubt, its events may be what moved the stream.
            if run.doubt && let Some(committed) = self.look(op, commit, run).await.map_err(sure)? {
                return Ok(Some(committed));
            }
            let new = self.from(op, commit.stream, from, run.tip.as_ref(), Freshness::Strong).await.map_err(sure)?;
            let token = Held::seal(commit.stream, run.tip.as_ref());
            run.doubt = false;
            return Err(sure(Error::conflict(new, Some(token))));
        }
        let now = self.dynamo().env().now();
        let version = before + commit.events.len() as u64;
        let unfolds = commit.step.snapshots.iter().map(|snapshot| item::unfold(&snapshot.name, version, &snapshot.state, now)).collect();
        // A fresh one for each try: it tells whose the Tip is.
        let etag = self.dynamo().env().new_id().simple().to_string();
        let add = Addition { events: commit.stored.clone(), unfolds, etag: etag.clone() };
        let Sync { mut writes, tip, calves } =
            sync(self.table(), commit.stream.as_str(), run.tip.as_ref(), By::Version, add, self.limits()).map_err(sure)?;
        if commit.once {
            writes.push(self.once().write(commit.stream, version, commit.id, commit.events));
            self.once_table(op).await.map_err(sure)?;
        }
        run.began.get_or_insert(before);
        let writes: Vec<Write> = writes;
        match self.dynamo().write(op, WRITES_BY, writes).await {
            Ok(Outcome::Done) => {
                self.remember(commit.stream, Some(&tip));
                self.side().ring();
                Ok(Some(self.committed(op, commit, before, Some(&tip))))
            }
            Ok(Outcome::Failed { verdicts, doubt }) => {
                run.doubt |= doubt;
                let found = |at: usize| match verdicts.get(at) {
                    Some(Verdict::Found(item)) => Some(&**item),
                    _ => None,
                };
                let (at_tip, at_once) = (usize::from(calves), usize::from(calves) + 1);
                if commit.once && let Some(item) = found(at_once) {
                    let known = known(commit.stream, item).map_err(sure)?;
                    return self.found(op, commit, &known).map(Some).map_err(sure);
                }
                match found(at_tip) {
                    Some(item) if item.get("etag").and_then(|etag| etag.as_s().ok()) == Some(&etag) => {
                        // Our own write, whose answer was lost.
                        self.remember(commit.stream, Some(&tip));
                        Ok(Some(self.committed(op, commit, before, Some(&tip))))
                    }
                    Some(item) => {
                        run.tip = Some(item::tip(item).map_err(sure)?);
                        self.remember(commit.stream, run.tip.as_ref());
                        Ok(None)
                    }
                    // A calf was in the way, or a Tip that is gone: what is there must be read.
                    None => {
                        run.tip = self.tip(op, commit.stream, Freshness::Strong).await.map_err(sure)?;
                        Ok(None)
                    }
                }
            }
            Err(failure) => {
                self.forget(commit.stream);
                Err(failure)
            }
        }
    }

    /// Looks for the commit in the stream from where its first try began. An event in its place that says the same and does not tell whose it
    /// is, since a peer has calved it, leaves the matter in doubt.
    async fn look(&self, op: &Op, commit: &Commit<'_>, run: &Run) -> Result<Option<Committed>> {
        let Some(began) = run.began else { return Ok(None) };
        let tip = self.tip(op, commit.stream, Freshness::Strong).await?;
        let mut at = began;
        for stored in self.stored_from(op, commit.stream, began, tip.as_ref()).await? {
            if stored.commit() == Some(*commit.id.0.as_bytes()) {
                return Ok(Some(self.committed(op, commit, at, tip.as_ref())));
            }
            let same = commit.stored.first().is_some_and(|own| own.kind == stored.kind && own.read().ok() == stored.read().ok());
            if stored.commit().is_none() && same {
                let message = format!("event {at} says the same, and a peer has moved it");
                return Err(give_up(commit, run, Failure { error: Error::unavailable(Reason::Unreachable, message), doubt: true }));
            }
            at += 1;
        }
        Ok(None)
    }

    /// What an append under an id of the caller's recorded the first time.
    fn found(&self, op: &Op, commit: &Commit<'_>, known: &Known) -> Result<Committed> {
        known.check(commit.id, commit.events)?;
        Ok(self.committed(op, commit, known.version - known.count, None))
    }

    fn committed(&self, op: &Op, commit: &Commit<'_>, before: u64, tip: Option<&Tip>) -> Committed {
        let count = commit.events.len() as u64;
        let positions = (before + 1..=before + count).map(|version| position(commit.stream, version)).collect();
        let guarded = !matches!(commit.step.expect, Expect::Any);
        let token = tip.filter(|_| guarded).map(|tip| Held::seal(commit.stream, Some(tip)));
        let mut committed = Committed::new(commit.id, positions, token, op.units());
        committed.version = Some(before + count);
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

/// None: the stream is as expected. Else the version from which on the caller does not know it.
fn expected(step: &Step, stream: &StreamName, version: u64) -> Result<Option<u64>> {
    let known = match &step.expect {
        Expect::Any => return Ok(None),
        Expect::None => 0,
        Expect::Version(version) => *version,
        Expect::Token(token) => Held::open(token, stream)?.version,
    };
    Ok((known != version).then_some(known))
}

fn give_up(commit: &Commit<'_>, run: &Run, failure: Failure) -> Error {
    match run.began {
        Some(began) if (run.doubt || failure.doubt) && !failure.error.is_conflict() => Error::InDoubt(Box::new(InDoubt {
            commit: commit.id,
            base: Began::new(commit.stream, began, commit.once).seal(LAYOUT),
            message: failure.error.to_string(),
        })),
        _ => failure.error,
    }
}
