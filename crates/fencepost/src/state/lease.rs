//! Leases: who works on something, in a cell. Taken over only from a holder whose silence the taker itself has watched, and held by
//! compare-and-set: a holder that wakes up late finds its write refused, whatever its clock says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Cell, CellKey, CellWrite, Cells, Revision};
use crate::env::Env;
use crate::error::{Error, Reason, Result};

/// How often a race for one cell is run again before it is called trouble: every loss is somebody else's success.
const RACES: u32 = 64;

/// What the cell of a lease holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Held {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<Uuid>,
    /// Counts what holders wrote. Others who ring do not move it, so that they cannot keep a dead holder alive.
    #[serde(default)]
    beat: u64,
    /// How long the holder may stay silent.
    #[serde(default)]
    length_ms: u64,
    /// Who has asked for it; whoever that is takes it first once it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rung: Option<Uuid>,
    /// Nobody may take it, and the holder is asked to give it up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    barred: bool,
    /// What goes with it, such as a checkpoint.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    content: Value,
}

impl Held {
    fn read(key: &CellKey, cell: &Cell) -> Result<Held> {
        serde_json::from_slice(&cell.body).map_err(|_| Error::corrupt("cells", format!("{key}: not a lease")))
    }
    /// Whether it is what a holder wrote, whatever others have wished since.
    fn says(&self, written: &Held) -> bool {
        (self.holder, self.beat) == (written.holder, written.beat) && self.content == written.content
    }
    fn bytes(&self) -> Bytes {
        // Plain fields and a JSON value: there is nothing to fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// A lease that this process holds, as far as it knows: only its next write tells.
#[derive(Debug)]
pub struct Lease {
    cells: Arc<dyn Cells>,
    key: CellKey,
    me: Uuid,
    held: Held,
    revision: Revision,
    /// The last beat that was sent, heard of or not. None is sent twice: what is found under one is the very write that had it, whatever else was
    /// to be written with it.
    sent: u64,
    /// Since when it has been silent, from before its last write was sent.
    spoke: Instant,
}

/// How a lease stands after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Standing {
    /// It is held still.
    Kept {
        /// Who has asked for it.
        rung: Option<Uuid>,
        /// It is to be given up, and nobody may take it.
        barred: bool,
    },
    /// It is somebody else's, or nobody's: nothing was written.
    Lost,
}

/// What became of writes that only the holder of a lease may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// They are done, and the lease is renewed.
    Written(Standing),
    /// The lease is held still, and nothing was written: one of the cells was not as expected.
    Refused,
    /// The lease is somebody else's, or nobody's: nothing was written.
    Lost,
}

/// What a candidate has seen of leases that others hold, and since when by its own waiting. No clock of another machine counts.
#[derive(Debug, Default)]
pub struct Watch(HashMap<CellKey, Watched>);

#[derive(Debug)]
struct Watched {
    holder: Option<Uuid>,
    beat: u64,
    since: Instant,
    /// How long it may be silent.
    length: Duration,
}

impl Watch {
    /// Whether this same beat has been there for the whole length of the lease.
    fn is_silent(&mut self, key: &CellKey, held: &Held) -> bool {
        let now = Instant::now();
        let first_seen = || Watched { holder: held.holder, beat: held.beat, since: now, length: Duration::from_millis(held.length_ms) };
        let seen = self.0.entry(key.clone()).or_insert_with(first_seen);
        if (seen.holder, seen.beat) != (held.holder, held.beat) {
            *seen = first_seen();
        }
        now.duration_since(seen.since) >= seen.length
    }
}

impl Watch {
    /// A lease as others see it, and whether it has been silent for its length.
    pub(crate) fn look(&mut self, key: &CellKey, cell: &Cell) -> Result<(Seen, bool)> {
        let held = Held::read(key, cell)?;
        let silent = self.is_silent(key, &held);
        Ok((held.into(), silent))
    }

    /// When the first of those that were not silent at this time will have been, should nothing be heard of it.
    pub(crate) fn next_silence(&self, now: Instant) -> Option<Instant> {
        self.0.values().filter_map(|seen| seen.since.checked_add(seen.length)).filter(|end| *end > now).min()
    }
}

/// A lease as others see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// Who holds it, dead or alive.
    pub(crate) holder: Option<Uuid>,
    /// Counts what holders wrote.
    pub(crate) beat: u64,
    /// Who has asked for it.
    pub(crate) rung: Option<Uuid>,
    /// Nobody may take it.
    pub(crate) barred: bool,
    /// What goes with it.
    pub(crate) content: Value,
}

impl Lease {
    /// One look, and the lease if it is free: nobody holds it, or its holder has been silent since `watch` began to see it. Else none: look
    /// again later with the same watch.
    pub async fn try_take(cells: &Arc<dyn Cells>, key: &CellKey, me: Uuid, length: Duration, watch: &mut Watch) -> Result<Option<Lease>> {
        let spoke = Instant::now();
        let cell = cells.load(key).await?;
        let before = cell.as_ref().map(|cell| Held::read(key, cell)).transpose()?.unwrap_or_default();
        let promised = before.holder.is_none() && before.rung.is_none_or(|ringer| ringer == me);
        let free = before.holder == Some(me) || promised || watch.is_silent(key, &before);
        if before.barred || !free {
            return Ok(None);
        }
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let held = Held { holder: Some(me), beat: before.beat + 1, length_ms, rung: None, ..before };
        let expect = cell.map(|cell| cell.revision);
        let saved = cells.save(key, &held.bytes(), expect).await?;
        let sent = held.beat;
        Ok(saved.map(|revision| Lease { cells: cells.clone(), key: key.clone(), me, held, revision, sent, spoke }))
    }

    /// Waits until the lease is this process's: at once where it is free, else after its holder has been silent for the lease's length.
    pub async fn take(cells: &Arc<dyn Cells>, key: &CellKey, me: Uuid, length: Duration, env: &Env) -> Result<Lease> {
        let mut watch = Watch::default();
        loop {
            if let Some(lease) = Lease::try_take(cells, key, me, length, &mut watch).await? {
                return Ok(lease);
            }
            env.sleep(length / 8).await;
        }
    }

    /// Says that the holder lives, and stores what goes with the lease. Due several times in the lease's length.
    pub async fn renew(&mut self, content: Value) -> Result<Standing> {
        let next = Held { content, beat: self.next_beat(), ..self.held.clone() };
        self.write(next).await
    }

    /// Says that the holder lives, and does these writes at the same instant, all or nothing: where the lease is somebody else's, nothing of it
    /// is done, however late it comes.
    pub async fn renew_with(&mut self, content: Value, writes: Vec<CellWrite>) -> Result<Fenced> {
        for _ in 0..RACES {
            let next = Held { content: content.clone(), beat: self.next_beat(), ..self.held.clone() };
            let (spoke, known) = (Instant::now(), self.revision);
            let renewal = CellWrite::Save { key: self.key.clone(), body: next.bytes(), expect: Some(known) };
            let all: Vec<CellWrite> = [renewal].into_iter().chain(writes.iter().cloned()).collect();
            if self.cells.write_all(&all).await? {
                (self.held, self.revision, self.spoke) = (next, Revision(known.0 + 1), spoke);
                return Ok(Fenced::Written(Standing::Kept { rung: self.held.rung, barred: self.held.barred }));
            }
            match self.look_again(&next).await? {
                Standing::Lost => return Ok(Fenced::Lost),
                // The lease is as it was known: it was another of the cells.
                Standing::Kept { .. } if self.revision == known => return Ok(Fenced::Refused),
                // Others' wishes, or a write of our own that nobody heard of, perhaps this one: then the cells tell at the next turn.
                Standing::Kept { .. } => {}
            }
        }
        Err(too_many(&self.key))
    }

    /// Gives it up, with what goes with it. A ringer has the first turn on it.
    pub async fn release(mut self, content: Value) -> Result<Standing> {
        self.give_up(content).await
    }

    /// The same, for who would try again after an error: it is done once.
    pub(crate) async fn give_up(&mut self, content: Value) -> Result<Standing> {
        let next = Held { holder: None, content, beat: self.next_beat(), ..self.held.clone() };
        self.write(next).await
    }

    /// Gives it up ([`Standing::Lost`]) unless somebody has rung: then it is kept, the ring is taken note of, and there is something to look for again.
    pub async fn release_unless_rung(&mut self, content: Value) -> Result<Standing> {
        let mut standing = Standing::Kept { rung: self.held.rung, barred: self.held.barred };
        if self.held.rung.is_none() {
            let next = Held { holder: None, content: content.clone(), beat: self.next_beat(), ..self.held.clone() };
            match self.cells.save(&self.key, &next.bytes(), Some(self.revision)).await? {
                Some(_) => return Ok(Standing::Lost),
                None => standing = self.look_again(&next).await?,
            }
            if self.held.holder.is_none() {
                return Ok(Standing::Lost);
            }
        }
        if let Standing::Kept { rung: Some(_), .. } = standing {
            let heeded = Held { rung: None, content, beat: self.next_beat(), ..self.held.clone() };
            // A ring that comes during this write is met by it again, as a ring of its own.
            return Ok(match self.write(heeded).await? {
                Standing::Kept { .. } => standing,
                Standing::Lost => Standing::Lost,
            });
        }
        Ok(standing)
    }

    /// Asks the holder for it. False where nobody holds it: take it.
    pub async fn ring(cells: &Arc<dyn Cells>, key: &CellKey, me: Uuid) -> Result<bool> {
        let mut is_held = false;
        amend(cells, key, |held| {
            is_held = held.holder.is_some();
            let news = is_held && held.rung != Some(me);
            held.rung = if is_held { Some(me) } else { held.rung };
            news
        })
        .await?;
        Ok(is_held)
    }

    /// Bars it: the holder gives it up when it next writes, and nobody takes it until it is unbarred.
    pub(crate) async fn bar(cells: &Arc<dyn Cells>, key: &CellKey, barred: bool) -> Result<()> {
        amend(cells, key, |held| std::mem::replace(&mut held.barred, barred) != barred).await
    }

    /// Takes it from whoever holds it, and leaves it free with another content: what the holder writes next is refused.
    pub(crate) async fn reset(cells: &Arc<dyn Cells>, key: &CellKey, content: &Value) -> Result<()> {
        amend(cells, key, |held| {
            *held = Held { holder: None, rung: None, beat: held.beat + 1, content: content.clone(), ..held.clone() };
            true
        })
        .await
    }

    /// What goes with it, as it was when it was taken or last written.
    pub fn content(&self) -> &Value {
        &self.held.content
    }
    /// Where it lies.
    pub fn key(&self) -> &CellKey {
        &self.key
    }
    /// For how long it has been silent. Past the lease's length somebody else may hold it: a polite holder stops working by then.
    pub fn silence(&self) -> Duration {
        self.spoke.elapsed()
    }

    /// Since when it has been silent.
    pub(crate) fn spoke(&self) -> Instant {
        self.spoke
    }

    fn next_beat(&mut self) -> u64 {
        self.sent = self.sent.max(self.held.beat) + 1;
        self.sent
    }

    async fn write(&mut self, mut next: Held) -> Result<Standing> {
        for _ in 0..RACES {
            let spoke = Instant::now();
            if let Some(revision) = self.cells.save(&self.key, &next.bytes(), Some(self.revision)).await? {
                (self.held, self.revision, self.spoke) = (next, revision, spoke);
                return Ok(Standing::Kept { rung: self.held.rung, barred: self.held.barred });
            }
            match self.look_again(&next).await? {
                Standing::Lost => return Ok(Standing::Lost),
                // This very write, by a try of it that nobody heard of.
                standing if self.held.says(&next) => return Ok(standing),
                // Others' wishes, or a write of our own from before: over that one.
                Standing::Kept { rung, barred } => {
                    (next.rung, next.barred, next.beat) = (rung.or(next.rung), barred, self.next_beat());
                }
            }
        }
        Err(too_many(&self.key))
    }

    /// After a write that was refused: whether only others' wishes changed, or a write of our own landed unheard, this one or one before it.
    async fn look_again(&mut self, mine: &Held) -> Result<Standing> {
        let Some(cell) = self.cells.load(&self.key).await? else { return Ok(Standing::Lost) };
        let now = Held::read(&self.key, &cell)?;
        // Nobody else writes our id.
        let ours = now.holder == Some(self.me) && now.beat <= self.sent;
        if !ours && !now.says(mine) {
            return Ok(Standing::Lost);
        }
        (self.held, self.revision) = (now, cell.revision);
        Ok(Standing::Kept { rung: self.held.rung, barred: self.held.barred })
    }
}

/// The lease in a cell, as others see it.
pub(crate) fn seen(key: &CellKey, cell: &Cell) -> Result<Seen> {
    Held::read(key, cell).map(Seen::from)
}

impl From<Held> for Seen {
    fn from(Held { holder, beat, rung, barred, content, .. }: Held) -> Seen {
        Seen { holder, beat, rung, barred, content }
    }
}

/// Changes a lease that one does not hold; nothing is written where `change` says that nothing is new.
async fn amend(cells: &Arc<dyn Cells>, key: &CellKey, mut change: impl FnMut(&mut Held) -> bool) -> Result<()> {
    for _ in 0..RACES {
        let cell = cells.load(key).await?;
        let mut held = cell.as_ref().map(|cell| Held::read(key, cell)).transpose()?.unwrap_or_default();
        if !change(&mut held) || cells.save(key, &held.bytes(), cell.map(|cell| cell.revision)).await?.is_some() {
            return Ok(());
        }
    }
    Err(too_many(key))
}

fn too_many(key: &CellKey) -> Error {
    Error::unavailable(Reason::Throttled, format!("{key}: too many write this lease"))
}
