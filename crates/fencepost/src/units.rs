//! Units: what a call consumed, as DynamoDB bills it.

use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// Read and write capacity units, and the requests that consumed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Units {
    /// Read units: 4 KB strongly consistent, 8 KB eventually.
    pub read: f64,
    /// Write units: 1 KB, twice that in a transaction.
    pub write: f64,
    /// Requests sent, retries included.
    pub requests: u64,
}

impl Add for Units {
    type Output = Units;
    fn add(self, other: Units) -> Units {
        Units { read: self.read + other.read, write: self.write + other.write, requests: self.requests + other.requests }
    }
}
impl AddAssign for Units {
    fn add_assign(&mut self, other: Units) {
        *self = *self + other;
    }
}
impl std::iter::Sum for Units {
    fn sum<I: Iterator<Item = Units>>(iter: I) -> Units {
        iter.fold(Units::default(), Add::add)
    }
}
impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} write and {} read units in {} request{}",
            self.write,
            self.read,
            self.requests,
            if self.requests == 1 { "" } else { "s" }
        )
    }
}
