//! Tokens and bases: how far each tag was read, and where an append began. Sealed. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::LAYOUT;
use super::item::{Head, TagRow, sort_key};
use super::suid::SortableId;
use crate::error::{Refused, Result};
use crate::event::Tag;
use crate::position::{Base, Token};

/// The last row of a tag that was read, and how many events the tag has with it: as its head counts them, and with those that stand above the head.
/// What came late, below a head, or has expired there, moves no number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// None: before the first.
    last: Option<Last>,
    pub(super) count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    #[serde(with = "super::suid::numbers")]
    at: SortableId,
    event: Uuid,
}

impl End {
    pub(super) fn at(at: SortableId, event: Uuid, count: u64) -> End {
        End { last: Some(Last { at, event }), count }
    }
    /// Behind these rows.
    pub(super) fn behind(self, rows: &[TagRow]) -> End {
        let count = self.count + rows.len() as u64;
        match rows.last() {
            None => self,
            // An id that is none has a place all the same: its row is the boundary.
            Some(row) => End::at(row.at, row.event.parse().unwrap_or(Uuid::max()), count),
        }
    }
    /// Behind these rows, all that were found behind this place under a head.
    pub(super) fn reached(self, rows: &[TagRow], head: Option<Head>) -> End {
        let end = self.behind(rows);
        match head.filter(|head| self.id().is_none_or(|at| at <= head.pos)) {
            Some(head) => end.counting(head.cnt + rows.iter().filter(|row| row.at > head.pos).count() as u64),
            // Rows between the head and this place are in its count.
            None => end,
        }
    }
    /// The same place, with so many rows up to it.
    pub(super) fn counting(self, count: u64) -> End {
        End { count, ..self }
    }
    pub(super) fn id(&self) -> Option<SortableId> {
        self.last.map(|last| last.at)
    }
    /// The key of the last row: what is behind it is new.
    pub(super) fn sort_key(&self) -> Option<String> {
        self.last.map(|last| sort_key(last.at, &last.event.to_string()))
    }
    /// Whether a row of the tag was read.
    pub(super) fn passed(&self, row: &TagRow) -> bool {
        self.covers(row.at, &row.event.parse().unwrap_or(Uuid::max()))
    }
    /// Whether an event that stands here on the tag was read.
    pub(super) fn covers(&self, at: SortableId, event: &Uuid) -> bool {
        self.last.is_some_and(|last| (at, event) <= (last.at, &last.event))
    }
}

/// What a decision read stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) namespace: String,
    pub(super) fingerprint: u64,
    pub(super) covers: BTreeMap<Tag, End>,
}

/// Where an append began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Began {
    pub(super) namespace: String,
    /// Whether the commit has a record of its own: one under the caller's id, or a large one.
    pub(super) recorded: bool,
    pub(super) once: bool,
    pub(super) digest: [u8; 8],
    /// The first ticks of its tries.
    pub(super) tried: Vec<u64>,
}

fn at_home(what: &'static str, of: &str, here: &str) -> Result<()> {
    if of == here {
        return Ok(());
    }
    Err(Refused::Foreign { what, of: format!("service {of}"), here: format!("service {here}") }.into())
}

impl Held {
    pub(super) fn seal(&self) -> Token {
        Token::seal(LAYOUT, self)
    }
    pub(super) fn open(token: &Token, namespace: &str) -> Result<Held> {
        let held: Held = token.open(LAYOUT)?;
        at_home("token", &held.namespace, namespace)?;
        Ok(held)
    }
}

impl Began {
    pub(super) fn seal(&self) -> Base {
        Base::seal(LAYOUT, self)
    }
    pub(super) fn open(base: &Base, namespace: &str) -> Result<Began> {
        let began: Began = base.open(LAYOUT)?;
        at_home("base", &began.namespace, namespace)?;
        Ok(began)
    }
}
