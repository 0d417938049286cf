//! A gate that holds requests until the test lets them pass: for exact interleavings.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

/// Holds the requests that come to it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arrived: watch::Sender<usize>,
    delivered: watch::Sender<usize>,
    passes: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Shut.
    pub fn new() -> Self {
        Self(Arc::new(Inner { arrived: watch::Sender::new(0), delivered: watch::Sender::new(0), passes: Semaphore::new(0) }))
    }

    /// Waits until this many requests have come to the gate, those that passed it included.
    pub async fn reached(&self, requests: usize) {
        // The sender lives in `self`: waiting cannot fail.
        drop(self.0.arrived.subscribe().wait_for(|arrived| *arrived >= requests).await);
    }

    /// Waits until this many requests that were on their way ([`super::Fault::DeliverLate`]) have been delivered.
    pub async fn came_through(&self, requests: usize) {
        drop(self.0.delivered.subscribe().wait_for(|delivered| *delivered >= requests).await);
    }

    pub(super) fn delivered(&self) {
        self.0.delivered.send_modify(|delivered| *delivered += 1);
    }

    /// Lets this many requests pass, in the order in which they came.
    pub fn release(&self, requests: usize) {
        self.0.passes.add_permits(requests);
    }

    /// Lets all pass, now and from now on.
    pub fn open(&self) {
        self.0.passes.close();
    }

    pub(super) async fn pass(&self) {
        self.0.arrived.send_modify(|arrived| *arrived += 1);
        if let Ok(pass) = self.0.passes.acquire().await {
            pass.forget();
        }
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
