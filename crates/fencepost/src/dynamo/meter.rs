//! What one operation has consumed so far, and when it must end.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use aws_sdk_dynamodb::types::ConsumedCapacity;
use tokio::time::Instant;

use crate::units::Units;

/// One operation of the store, which may be many requests, in parallel too.
#[derive(Debug)]
pub(crate) struct Op {
    units: Mutex<Units>,
    deadline: Option<Instant>,
}

impl Op {
    pub(super) fn new(within: Duration) -> Self {
        Self { units: Mutex::default(), deadline: Some(Instant::now() + within) }
    }
    pub(super) fn unbounded() -> Self {
        Self { units: Mutex::default(), deadline: None }
    }

    /// A part of it that must end sooner than the whole. What it costs is its own until it is added.
    pub(crate) fn part(&self, within: Duration) -> Self {
        Self { units: Mutex::default(), deadline: Instant::now().checked_add(self.left(within)) }
    }
    /// Adds what a part has cost.
    pub(crate) fn add(&self, part: &Op) {
        let cost = part.units();
        let mut units = self.lock();
        units.read += cost.read;
        units.write += cost.write;
        units.requests += cost.requests;
    }

    /// What it has cost.
    pub(crate) fn units(&self) -> Units {
        *self.lock()
    }

    /// How long it may still take; at most this long.
    pub(crate) fn left(&self, at_most: Duration) -> Duration {
        self.deadline.map_or(at_most, |deadline| at_most.min(deadline.saturating_duration_since(Instant::now())))
    }

    /// Whether a pause as long as this would outlast it.
    pub(crate) fn is_over(&self, pause: Duration) -> bool {
        self.left(Duration::MAX) <= pause
    }

    pub(super) fn request(&self) {
        self.lock().requests += 1;
    }
    pub(super) fn read<'a>(&self, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let units: f64 = consumed.into_iter().filter_map(|c| c.capacity_units).sum();
        self.lock().read += units;
    }
    pub(super) fn wrote<'a>(&self, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let units: f64 = consumed.into_iter().filter_map(|c| c.capacity_units).sum();
        self.lock().write += units;
    }
    /// A refused write tells no consumption, but is billed: by the larger of the old and the new item.
    pub(super) fn wrote_in_vain(&self, units: f64) {
        self.lock().write += units;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Totals of finished operations go to `metrics` and `tracing`.
pub(crate) fn report(operation: &'static str, op: &Op) {
    let units = op.units();
    metrics::counter!("fencepost_requests_total", "operation" => operation).increment(units.requests);
    metrics::histogram!("fencepost_read_units", "operation" => operation).record(units.read);
    metrics::histogram!("fencepost_write_units", "operation" => operation).record(units.write);
    tracing::debug!(operation, read = units.read, write = units.write, requests = units.requests, "done");
}
