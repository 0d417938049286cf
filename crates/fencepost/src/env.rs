//! The one door to the outside that is not DynamoDB: wall clock, chance, ids, sleep. Seeded in tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::event::CommitId;

/// Clock, chance and ids. Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct Env(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    chance: Mutex<fastrand::Rng>,
    /// None: the machine's clock.
    clock: Option<Mutex<Timestamp>>,
}

impl Default for Env {
    fn default() -> Self {
        Self::system()
    }
}

impl Env {
    /// The machine's clock and its own chance.
    pub fn system() -> Self {
        // By the keys that the operating system gave the standard library. fastrand's own seed is a hash of the boot clock and the thread, which machines
        // that start from one image may share.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
        let chance = fastrand::Rng::with_seed(seed);
        Self(Arc::new(Inner { chance: Mutex::new(chance), clock: None }))
    }

    /// The same ids and choices for the same seed, and a clock that stands until it is moved.
    pub fn seeded(seed: u64) -> Self {
        let start = Timestamp::constant(1_767_225_600, 0); // 2026-01-01
        Self(Arc::new(Inner { chance: Mutex::new(fastrand::Rng::with_seed(seed)), clock: Some(Mutex::new(start)) }))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match &self.0.clock {
            Some(clock) => *clock.lock().unwrap_or_else(PoisonError::into_inner),
            #[expect(clippy::disallowed_methods, reason = "the door itself")]
            None => Timestamp::now(),
        }
    }

    /// Moves a seeded clock; the machine's does not move for anybody.
    pub fn advance(&self, by: Duration) {
        if let Some(clock) = &self.0.clock {
            let mut now = clock.lock().unwrap_or_else(PoisonError::into_inner);
            *now = now.checked_add(by).unwrap_or(*now);
        }
    }

    /// Moves a seeded clock to another time, back as well: for tests of skewed clocks.
    pub fn set_clock(&self, to: Timestamp) {
        if let Some(clock) = &self.0.clock {
            *clock.lock().unwrap_or_else(PoisonError::into_inner) = to;
        }
    }

    /// Less than `bound`, every number as likely.
    pub fn below(&self, bound: u64) -> u64 {
        self.chance().u64(0..bound.max(1))
    }

    /// An id that sorts by time (UUIDv7).
    pub fn new_id(&self) -> Uuid {
        let millis = u64::try_from(self.now().as_millisecond()).unwrap_or(0);
        let mut random = [0; 10];
        self.chance().fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// A fresh commit id.
    pub fn new_commit_id(&self) -> CommitId {
        CommitId(self.new_id())
    }

    /// Waits, by the runtime's timer.
    pub async fn sleep(&self, duration: Duration) {
        #[expect(clippy::disallowed_methods, reason = "the door itself")]
        tokio::time::sleep(duration).await;
    }

    fn chance(&self) -> std::sync::MutexGuard<'_, fastrand::Rng> {
        self.0.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
