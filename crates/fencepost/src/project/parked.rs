//! Events that a consumer could not handle: why, and what waits behind them. Kept in cells until they are handled or skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Refused, Result};
use crate::event::{EventType, Recorded};
use crate::position::{Checkpoint, Position};
use crate::state::{Cell, CellKey, CellKind, CellWrite, Cells, Revision};

/// An event that a consumer has parked. Its body stays where it is: in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parked {
    /// Its number among the consumer's parked events, from 1; lower ones were parked earlier, and none is given twice.
    #[serde(skip)]
    pub number: u64,
    /// The event's id.
    pub event: Uuid,
    /// Its type.
    pub event_type: EventType,
    /// Where it stands.
    pub position: Position,
    /// The keys it is ordered under: what shares one of them waits behind it.
    pub keys: Vec<String>,
    /// What the handler said, or that it waits behind another.
    pub reason: String,
    /// How often it was tried. 0: never, it waits behind another.
    pub attempts: u32,
    /// It is to be tried again.
    pub released: bool,
    /// When it was parked, by the consumer's clock.
    pub parked_at: Timestamp,
    /// It is given up. It stays until the consumer's saved place lies behind it, lest whoever reads it again takes it for a new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) skipped: bool,
    /// Covers all before it: from here it is read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Checkpoint>,
}

impl Parked {
    pub(super) fn new(event: &Recorded, keys: Vec<String>, before: Option<Checkpoint>, parked_at: Timestamp) -> Self {
        let (id, event_type, position) = (event.id, event.event_type.clone(), event.position);
        let reason = "waits behind a parked event".into();
        Parked { number: 0, event: id, event_type, position, keys, reason, attempts: 0, released: false, parked_at, skipped: false, before }
    }
    pub(super) fn failed(mut self, reason: String, attempts: u32) -> Self {
        // What a handler says may be long; the cell and whoever reads the list want a line.
        self.reason = reason.chars().take(1000).collect();
        self.attempts += attempts;
        self.released = false;
        self
    }
    fn bytes(&self) -> Bytes {
        // Plain fields: there is nothing to fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
    fn read(consumer: &str, cell: &Cell) -> Result<(Parked, Revision)> {
        let parked: Parked = serde_json::from_slice(&cell.body)
            .map_err(|_| Error::corrupt("cells", format!("Parked/{consumer}/{}: not a parked event", cell.number)))?;
        Ok((Parked { number: cell.number, ..parked }, cell.revision))
    }
}

/// The cell that holds how many numbers were given out. Events count from 1.
const GIVEN_OUT: u64 = 0;

/// A consumer's parked events.
#[derive(Debug)]
pub(super) struct Lot {
    cells: Arc<dyn Cells>,
    consumer: String,
    held: BTreeMap<u64, (Parked, Revision)>,
    /// Events with their numbers: one is looked for with each that is read.
    events: BTreeSet<(Uuid, u64)>,
    /// Under each key, those that what carries it waits behind.
    queues: HashMap<String, BTreeSet<u64>>,
    skipped: BTreeSet<u64>,
}

impl Lot {
    pub(super) fn new(cells: Arc<dyn Cells>, consumer: &str) -> Self {
        let (held, events, queues, skipped) = Default::default();
        Lot { cells, consumer: consumer.into(), held, events, queues, skipped }
    }

    pub(super) async fn load(&mut self) -> Result<()> {
        let listed = Lot::list(self.cells.clone(), self.consumer.clone()).await?;
        self.fill(listed);
        Ok(())
    }
    /// All that is parked.
    pub(super) async fn list(cells: Arc<dyn Cells>, consumer: String) -> Result<Vec<(Parked, Revision)>> {
        let cells = cells.list(CellKind::Parked, &consumer).await?;
        cells.iter().filter(|cell| cell.number != GIVEN_OUT).map(|cell| Parked::read(&consumer, cell)).collect()
    }
    /// It is this, and nothing else.
    pub(super) fn fill(&mut self, listed: Vec<(Parked, Revision)>) {
        *self = Lot::new(self.cells.clone(), &self.consumer);
        listed.into_iter().for_each(|(parked, revision)| self.insert(parked, revision));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
    /// How many are parked.
    pub(super) fn len(&self) -> usize {
        self.held.len() - self.skipped.len()
    }
    /// Those that are parked.
    pub(super) fn all(&self) -> impl Iterator<Item = &Parked> {
        self.held.values().map(|(parked, _)| parked).filter(|parked| !parked.skipped)
    }
    /// Those that were skipped, and may still be read again.
    pub(super) fn skipped(&self) -> impl Iterator<Item = &Parked> {
        self.skipped.iter().filter_map(|number| self.held.get(number)).map(|(parked, _)| parked)
    }
    /// Whether this very event is parked already, or was skipped.
    pub(super) fn holds(&self, event: Uuid) -> bool {
        self.events.range((event, 0)..=(event, u64::MAX)).next().is_some()
    }
    /// Whether something is parked that what carries these keys must wait behind.
    pub(super) fn blocks(&self, keys: &[String]) -> bool {
        keys.iter().any(|key| self.queues.contains_key(key))
    }
    /// What may be tried now: released, or never tried, and behind nothing.
    pub(super) fn due(&self) -> Vec<Parked> {
        let is_first = |number: u64, key: &String| self.queues.get(key).and_then(BTreeSet::first) == Some(&number);
        let behind_nothing = |one: &Parked| one.keys.iter().all(|key| is_first(one.number, key));
        self.all().filter(|one| (one.released || one.attempts == 0) && behind_nothing(one)).cloned().collect()
    }

    /// The first of so many numbers that nobody else has or will have: whoever still knows a number from before finds nothing under it, rather
    /// than another event. (A cell that is deleted and made again begins with the same revision: that could not tell.)
    pub(super) async fn numbers(cells: &dyn Cells, consumer: &str, wanted: usize) -> Result<u64> {
        let key = CellKey::new(CellKind::Parked, consumer, GIVEN_OUT)?;
        loop {
            let cell = cells.load(&key).await?;
            let count = |cell: &Cell| std::str::from_utf8(&cell.body).ok()?.parse().ok();
            let given: u64 = match &cell {
                Some(cell) => count(cell).ok_or_else(|| Error::corrupt("cells", format!("{key}: not a number")))?,
                None => 0,
            };
            let then = given.saturating_add(wanted as u64).to_string();
            if cells.save(&key, &then.into(), cell.map(|cell| cell.revision)).await?.is_some() {
                return Ok(given + 1);
            }
        }
    }

    /// Its write under its number, where nothing is yet.
    pub(super) fn add(consumer: &str, parked: &Parked) -> Result<CellWrite> {
        let key = CellKey::new(CellKind::Parked, consumer, parked.number)?;
        Ok(CellWrite::Save { key, body: parked.bytes(), expect: None })
    }
    /// Whether it is there under its number: numbers are given once.
    pub(super) async fn has(cells: &dyn Cells, consumer: &str, parked: &Parked) -> Result<bool> {
        let key = CellKey::new(CellKind::Parked, consumer, parked.number)?;
        Ok(cells.load(&key).await?.is_some())
    }
    pub(super) fn insert(&mut self, parked: Parked, revision: Revision) {
        let number = parked.number;
        self.remove(number);
        self.events.insert((parked.event, number));
        if parked.skipped {
            self.skipped.insert(number);
        } else {
            for key in &parked.keys {
                self.queues.entry(key.clone()).or_default().insert(number);
            }
        }
        self.held.insert(number, (parked, revision));
    }
    fn remove(&mut self, number: u64) -> Option<(Parked, Revision)> {
        let (parked, revision) = self.held.remove(&number)?;
        self.events.remove(&(parked.event, number));
        self.skipped.remove(&number);
        for key in &parked.keys {
            if let Some(queue) = self.queues.get_mut(key) {
                queue.remove(&number);
            }
            if self.queues.get(key).is_some_and(BTreeSet::is_empty) {
                self.queues.remove(key);
            }
        }
        Some((parked, revision))
    }

    /// What a try of this event makes of it: none where it is gone, or is another. Without a reason it is done with, and removed.
    pub(super) async fn tried(
        &mut self,
        number: u64,
        event: Uuid,
        failed: Option<&(String, u32)>,
    ) -> Result<Option<(CellWrite, Option<Parked>)>> {
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        let found = match self.cells.load(&key).await? {
            Some(cell) => Some(Parked::read(&self.consumer, &cell)?).filter(|(parked, _)| parked.event == event),
            None => None,
        };
        let Some((parked, revision)) = found else {
            self.remove(number);
            return Ok(None);
        };
        Ok(Some(match failed {
            None => (CellWrite::Delete { key, expect: revision }, None),
            Some((reason, attempts)) => {
                let parked = parked.failed(reason.clone(), *attempts);
                (CellWrite::Save { key, body: parked.bytes(), expect: Some(revision) }, Some(parked))
            }
        }))
    }
    /// What was made of it is stored.
    pub(super) fn settle(&mut self, number: u64, now: Option<Parked>) {
        let revision = self.remove(number).map_or(Revision(1), |(_, revision)| revision);
        now.into_iter().for_each(|parked| self.insert(parked, revision));
    }

    /// Stores what becomes of it; false where it is gone, or was skipped.
    pub(super) async fn change(&mut self, number: u64, change: impl Fn(Parked) -> Parked) -> Result<bool> {
        if number == GIVEN_OUT {
            return Ok(false);
        }
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        loop {
            let Some(cell) = self.cells.load(&key).await? else {
                self.remove(number);
                return Ok(false);
            };
            let found = Parked::read(&self.consumer, &cell)?.0;
            if found.skipped {
                return Ok(false);
            }
            let changed = change(found);
            if let Some(revision) = self.cells.save(&key, &changed.bytes(), Some(cell.revision)).await? {
                self.insert(changed, revision);
                return Ok(true);
            }
        }
    }

    pub(super) fn missing(&self, number: u64) -> Error {
        let why = format!("consumer {} has no parked event {number}", self.consumer);
        Refused::Malformed { what: "number", why }.into()
    }
}

pub(super) fn shares(one: &[String], other: &[String]) -> bool {
    one.iter().any(|key| other.contains(key))
}
