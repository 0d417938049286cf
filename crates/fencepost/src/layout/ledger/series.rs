//! Where series of the log end, as an append needs to know it. Pure.

use serde::{Deserialize, Serialize};

pub(crate) use crate::side::series::Series;

/// The last slot of a series, as it was read, acknowledged, or handed back by a failed put. Version 0: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) version: u64,
    /// Events of the series up to and including this slot.
    pub(crate) count: u64,
    pub(crate) stamp: u64,
    /// Where its commit stands: lane and sequence.
    pub(crate) lane: Option<(u8, u64)>,
}
