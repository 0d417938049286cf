//! What a decision came to.

use crate::log::Committed;
use crate::position::Position;
use crate::units::Units;

/// What a decision came to, and what that cost.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use = "a rejection is a value here, not an error"]
pub struct Outcome<R> {
    /// What was decided.
    pub decided: Decided<R>,
    /// How often: once, and once more for each conflict.
    pub tries: u32,
    /// What all of it cost: reads, appends, conflicts.
    pub units: Units,
}

/// What was decided.
#[derive(Debug, Clone)]
pub enum Decided<R> {
    /// Events, and they were recorded; under a key perhaps by an earlier run of the same command.
    Recorded(Committed),
    /// No events, and nothing was written.
    Nothing,
    /// The domain says no.
    Rejected(R),
}

impl<R> Outcome<R> {
    /// The commit, or none where there was nothing to record; the rejection as an error, for `?`.
    pub fn accepted(self) -> Result<Option<Committed>, R> {
        match self.decided {
            Decided::Recorded(committed) => Ok(Some(committed)),
            Decided::Nothing => Ok(None),
            Decided::Rejected(rejection) => Err(rejection),
        }
    }
    /// What was recorded.
    pub fn committed(&self) -> Option<&Committed> {
        match &self.decided {
            Decided::Recorded(committed) => Some(committed),
            _ => None,
        }
    }
    /// Why it was rejected.
    pub fn rejection(&self) -> Option<&R> {
        match &self.decided {
            Decided::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }
    /// Where the last event was recorded.
    pub fn position(&self) -> Option<Position> {
        self.committed().and_then(Committed::last)
    }
}
