//! Turns: within one process, decisions that keep losing to each other wait for one another instead.
//!
//! A courtesy that saves requests, and never a guarantee: the append's condition alone decides, and other processes know nothing of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::env::Env;

/// By what is fought over: a tag or stream, and the handle of the store by which it is.
static QUEUES: LazyLock<Mutex<HashMap<String, Weak<Queue>>>> = LazyLock::new(Mutex::default);

/// A turn is not waited for longer than this if nobody's ends: a decision that nobody polls any more would hold up all others.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Queue {
    free: Arc<Semaphore>,
    /// How many turns have begun.
    turns: AtomicU64,
}

/// One's turn; over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    // Keeps the queue for those who come while the turn lasts.
    _queue: Arc<Queue>,
}

/// The first of these that somebody has, or waits for, a turn on.
pub(super) fn taken(mut these: impl Iterator<Item = String>) -> Option<String> {
    let queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    if queues.is_empty() {
        return None;
    }
    these.find(|what| queues.get(what).is_some_and(|queue| queue.strong_count() > 0))
}

/// Waits for one's turn, in the order of asking; none where nobody's ends in time.
pub(super) async fn wait(env: &Env, what: &str) -> Option<Turn> {
    let queue = queue(what);
    let mut seen = queue.turns.load(Ordering::Relaxed);
    let mut permit = Box::pin(queue.free.clone().acquire_owned());
    loop {
        match select(permit, Box::pin(env.sleep(PATIENCE))).await {
            Either::Left((permit, _)) => {
                queue.turns.fetch_add(1, Ordering::Relaxed);
                return permit.ok().map(|permit| Turn { _permit: permit, _queue: queue });
            }
            Either::Right((_, waiting)) => {
                let now = queue.turns.load(Ordering::Relaxed);
                if now == seen {
                    return None;
                }
                (seen, permit) = (now, waiting);
            }
        }
    }
}

fn queue(what: &str) -> Arc<Queue> {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(queue) = queues.get(what).and_then(Weak::upgrade) {
        return queue;
    }
    // Whoever opens a queue sweeps those that nobody stands in.
    queues.retain(|_, queue| queue.strong_count() > 0);
    let queue = Arc::new(Queue { free: Arc::new(Semaphore::new(1)), turns: AtomicU64::new(0) });
    queues.insert(what.into(), Arc::downgrade(&queue));
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_the_order_of_asking_and_leave_nothing_behind() {
        let env = Env::system();
        let first = wait(&env, "in order").await.expect("free");
        let order = Mutex::new(Vec::new());
        let others = (0..5).map(async |n| {
            let turn = wait(&env, "in order").await.expect("in time");
            order.lock().expect("order").push(n);
            drop(turn);
        });
        let release = async {
            assert!(taken(["nobody", "in order"].map(String::from).into_iter()).is_some());
            drop(first);
        };
        futures::future::join(futures::future::join_all(others), release).await;
        assert_eq!(*order.lock().expect("order"), [0, 1, 2, 3, 4]);
        assert_eq!(taken(["in order".into()].into_iter()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_never_ends_holds_nobody_up_for_long() {
        let env = Env::system();
        let _stuck = wait(&env, "stuck").await.expect("free");
        assert!(wait(&env, "stuck").await.is_none());
    }
}
