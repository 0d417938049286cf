//! A partition that an instance holds: its lease, and the leave to begin something under it, which is over before the lease can be another's.

use std::time::Duration;

use futures::future::{FutureExt, select};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Result;
use crate::state::{CellWrite, Fenced, Lease, Standing};

/// Dropped, all leave to work under it is over.
pub(in crate::project) struct Hold {
    lease: Lease,
    /// How long the lease may be silent.
    length: Duration,
    /// Until when something may begin, should the lease stay silent. None: it is to be given up, and nothing begins any more.
    until: Option<watch::Sender<Instant>>,
    /// Since when it is to be given up.
    leaves: Option<Instant>,
}

impl Hold {
    pub(super) fn new(lease: Lease, length: Duration) -> Self {
        let until = Some(watch::Sender::new(lease.spoke() + length));
        Hold { lease, length, until, leaves: None }
    }
    /// Since when it has been silent.
    pub(super) fn spoke(&self) -> Instant {
        self.lease.spoke()
    }
    /// It may be another's by now.
    pub(super) fn is_silent(&self) -> bool {
        self.lease.silence() >= self.length
    }
    /// It is to be given up: nothing begins, and what is tried again is left to whoever goes on.
    pub(super) fn leave(&mut self) {
        self.until = None;
        self.leaves.get_or_insert_with(Instant::now);
    }
    pub(super) fn leaves_since(&self) -> Option<Instant> {
        self.leaves
    }
    pub(super) fn is_leaving(&self) -> bool {
        self.until.is_none()
    }
    /// Leave to begin something under it; none where nothing may begin now.
    pub(super) fn to_begin(&self, stop: &watch::Sender<bool>) -> Option<Leave> {
        let until = self.until.as_ref().filter(|_| !self.is_silent())?;
        Some(Leave { stop: stop.subscribe(), until: until.subscribe() })
    }

    pub(super) async fn renew(&mut self, place: Value) -> Result<Standing> {
        let standing = self.lease.renew(place).await;
        self.spoken();
        standing
    }
    pub(in crate::project) async fn renew_with(&mut self, place: Value, writes: Vec<CellWrite>) -> Result<Fenced> {
        let fenced = self.lease.renew_with(place, writes).await;
        self.spoken();
        fenced
    }
    /// Gives it up; after an error, again.
    pub(super) async fn release(&mut self, place: Value) -> Result<Standing> {
        self.lease.give_up(place).await
    }

    fn spoken(&self) {
        if let Some(until) = &self.until {
            until.send_replace(self.lease.spoke() + self.length);
        }
    }
}

/// Leave to try an event, as long as its partition is held and is not to be given up, and the consumer does not stop.
pub(in crate::project) struct Leave {
    stop: watch::Receiver<bool>,
    until: watch::Receiver<Instant>,
}

impl Leave {
    /// Whether a try may begin. While the lease is silent for too long that is not known: it is waited for.
    pub(in crate::project) async fn is_given(&mut self) -> bool {
        while !*self.stop.borrow() && self.until.has_changed().is_ok() {
            if Instant::now() < *self.until.borrow_and_update() {
                return true;
            }
            select(self.until.changed().boxed(), self.stop.wait_for(|stop| *stop).boxed()).await;
        }
        false
    }

    /// Ends when no try may begin any more.
    pub(in crate::project) async fn over(&mut self) {
        let until = &mut self.until;
        let gone = async { while until.changed().await.is_ok() {} };
        select(gone.boxed(), self.stop.wait_for(|stop| *stop).map(drop).boxed()).await;
    }
}
