//! Events that a consumer could not handle: why, and what waits behind them. Kept in cells until they are handled or skipped.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Refused, Result};
use crate::event::{EventType, Recorded};
use crate::position::{Checkpoint, Position};
use crate::state::{Cell, CellKey, CellKind, Cells, Revision};

/// An event that a consumer has parked. Its body stays where it is: in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parked {
    /// Its number among the consumer's parked events; lower ones were parked earlier, and none is given twice.
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
    /// Covers all before it: from here it is read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Checkpoint>,
}

impl Parked {
    pub(super) fn new(event: &Recorded, keys: Vec<String>, before: Option<Checkpoint>, parked_at: Timestamp) -> Self {
        let (id, event_type, position) = (event.id, event.event_type.clone(), event.position);
        let reason = "waits behind a parked event".into();
        Parked { number: 0, event: id, event_type, position, keys, reason, attempts: 0, released: false, parked_at, before }
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
}

impl Lot {
    pub(super) fn new(cells: Arc<dyn Cells>, consumer: &str) -> Self {
        Lot { cells, consumer: consumer.into(), held: BTreeMap::new() }
    }

    pub(super) async fn load(&mut self) -> Result<()> {
        let cells = self.cells.list(CellKind::Parked, &self.consumer).await?;
        let parked =
            cells.iter().filter(|cell| cell.number != GIVEN_OUT).map(|cell| Ok((cell.number, Parked::read(&self.consumer, cell)?)));
        self.held = parked.collect::<Result<_>>()?;
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
    pub(super) fn all(&self) -> impl Iterator<Item = &Parked> {
        self.held.values().map(|(parked, _)| parked)
    }
    pub(super) fn get(&self, number: u64) -> Option<&Parked> {
        self.held.get(&number).map(|(parked, _)| parked)
    }
    /// Whether this very event is parked already.
    pub(super) fn holds(&self, event: Uuid) -> bool {
        self.all().any(|parked| parked.event == event)
    }
    /// Whether something is parked that what carries these keys must wait behind.
    pub(super) fn blocks(&self, keys: &[String]) -> bool {
        self.all().any(|parked| shares(&parked.keys, keys))
    }
    /// What may be tried now: released, or never tried, and behind nothing.
    pub(super) fn due(&self) -> Vec<Parked> {
        let behind_nothing = |one: &Parked| !self.all().take_while(|other| other.number < one.number).any(|o| shares(&o.keys, &one.keys));
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

    /// Under its number. Whoever heard no answer may ask again: it is stored once.
    pub(super) async fn add(cells: Arc<dyn Cells>, consumer: String, mut parked: Parked) -> Result<(Parked, Revision)> {
        loop {
            let key = CellKey::new(CellKind::Parked, &consumer, parked.number)?;
            if let Some(revision) = cells.save(&key, &parked.bytes(), None).await? {
                return Ok((parked, revision));
            }
            match cells.load(&key).await? {
                // A save of before that nobody heard of.
                Some(cell) if Parked::read(&consumer, &cell)?.0.event == parked.event => return Ok((parked, cell.revision)),
                Some(_) => parked.number += 1,
                // It was stored, and has been skipped since.
                None => return Ok((parked, Revision(0))),
            }
        }
    }
    pub(super) fn insert(&mut self, parked: Parked, revision: Revision) {
        self.held.insert(parked.number, (parked, revision));
    }

    /// It is done with. Another event under this number stays.
    pub(super) async fn remove(&mut self, number: u64, event: Uuid) -> Result<()> {
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        // Somebody may have released it meanwhile: then its revision is another.
        while let Some(cell) = self.cells.load(&key).await? {
            if Parked::read(&self.consumer, &cell)?.0.event != event || self.cells.delete(&key, cell.revision).await? {
                break;
            }
        }
        self.held.remove(&number);
        Ok(())
    }

    /// Stores what became of it; false where it is gone, or is not what was to be changed.
    pub(super) async fn change(&mut self, number: u64, change: impl Fn(Parked) -> Option<Parked>) -> Result<bool> {
        if number == GIVEN_OUT {
            return Ok(false);
        }
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        loop {
            let Some(cell) = self.cells.load(&key).await? else {
                self.held.remove(&number);
                return Ok(false);
            };
            let Some(changed) = change(Parked::read(&self.consumer, &cell)?.0) else { return Ok(false) };
            if let Some(revision) = self.cells.save(&key, &changed.bytes(), Some(cell.revision)).await? {
                self.held.insert(number, (changed, revision));
                return Ok(true);
            }
        }
    }

    pub(super) fn missing(&self, number: u64) -> Error {
        let why = format!("consumer {} has no parked event {number}", self.consumer);
        Refused::Malformed { what: "number", why }.into()
    }
}

fn shares(one: &[String], other: &[String]) -> bool {
    one.iter().any(|key| other.contains(key))
}
