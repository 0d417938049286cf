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
    /// Its number among the consumer's parked events; lower ones were parked earlier.
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
        let parked = cells.iter().map(|cell| Ok((cell.number, Parked::read(&self.consumer, cell)?)));
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

    /// Where the next one goes.
    pub(super) fn next(&self) -> u64 {
        self.held.last_key_value().map_or(1, |(number, _)| number + 1)
    }

    /// Under the first free number from this one on.
    pub(super) async fn add(cells: Arc<dyn Cells>, consumer: String, mut parked: Parked, from: u64) -> Result<(Parked, Revision)> {
        parked.number = from;
        loop {
            let key = CellKey::new(CellKind::Parked, &consumer, parked.number)?;
            if let Some(revision) = cells.save(&key, &parked.bytes(), None).await? {
                return Ok((parked, revision));
            }
            parked.number += 1;
        }
    }
    pub(super) fn insert(&mut self, parked: Parked, revision: Revision) {
        self.held.insert(parked.number, (parked, revision));
    }

    /// It is done with.
    pub(super) async fn remove(&mut self, number: u64) -> Result<()> {
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        // Somebody may have released it meanwhile: then its revision is another.
        while let Some(cell) = self.cells.load(&key).await? {
            if self.cells.delete(&key, cell.revision).await? {
                break;
            }
        }
        self.held.remove(&number);
        Ok(())
    }

    /// Stores what became of it; false where it is gone.
    pub(super) async fn change(&mut self, number: u64, change: impl Fn(Parked) -> Parked) -> Result<bool> {
        let key = CellKey::new(CellKind::Parked, &self.consumer, number)?;
        loop {
            let Some(cell) = self.cells.load(&key).await? else {
                self.held.remove(&number);
                return Ok(false);
            };
            let changed = change(Parked::read(&self.consumer, &cell)?.0);
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
