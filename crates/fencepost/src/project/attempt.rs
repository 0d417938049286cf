//! What a consumer does about one event: the tries with their pauses, setting it aside when they failed, reading it again later.

use std::fmt::Display;
use std::time::Duration;

use futures::future::{FutureExt, select};
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;

use super::consumer::Consumer;
use super::parked::{Lot, Parked};
use super::run::Handed;
use crate::error::{Error, Result};
use crate::feed::{Delivery, From};
use crate::state::Revision;

/// An event that is to be parked, and the place in a window that waits for it.
pub(super) struct ToPark {
    pub(super) group: u64,
    pub(super) sequence: u64,
    pub(super) parked: Parked,
}

/// Why an event was not handled.
pub(super) struct Trouble {
    pub(super) reason: String,
    pub(super) attempts: u32,
    /// It was not tried to the end, since the consumer stops.
    pub(super) abandoned: bool,
}

/// Before the try after this many: doubling, with half of it by chance, so that instances do not meet.
pub(super) fn pause(consumer: &Consumer, tries: u32, longest: Duration) -> Duration {
    let whole = consumer.first_pause.saturating_mul(1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX)).min(longest);
    let half = u64::try_from(whole.as_micros() / 2).unwrap_or(u64::MAX);
    Duration::from_micros(half + consumer.env.below(half.saturating_add(1)))
}

pub(super) async fn handle<F, Fut, E>(
    consumer: &Consumer,
    handler: &F,
    mut handed: Handed,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Trouble>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Display + Send,
{
    loop {
        handed.attempt += 1;
        let reason = match handler(handed.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        };
        let (attempts, abandoned) = (handed.attempt, *stop.borrow());
        if attempts >= consumer.attempts || abandoned {
            return Err(Trouble { reason, attempts, abandoned: abandoned && attempts < consumer.attempts });
        }
        let pause = pause(consumer, attempts, consumer.longest_pause);
        // Who stops does not wait out a pause: the event is handed out again by whoever goes on.
        select(consumer.env.sleep(pause).boxed(), stop.wait_for(|stop| *stop).map(drop).boxed()).await;
    }
}

/// Stores what is parked, each under a number of its own.
pub(super) async fn park(consumer: &Consumer, batch: &mut [ToPark]) -> Result<Vec<(Parked, Revision)>> {
    let (mut tries, mut first) = (0, None);
    loop {
        let stored = async {
            if first.is_none() {
                let from = Lot::numbers(&*consumer.cells, &consumer.name, batch.len()).await?;
                first = Some(from);
                for (one, number) in batch.iter_mut().zip(from..) {
                    one.parked.number = number;
                }
            }
            let add = |one: &ToPark| Lot::add(consumer.cells.clone(), consumer.name.clone(), one.parked.clone());
            let each: Vec<_> = batch.iter().map(add).collect();
            stream::iter(each).buffered(consumer.concurrency).try_collect().await
        }
        .await;
        tries += 1;
        match stored {
            Err(error) if error.is_retryable() && tries < 10 => consumer.env.sleep(pause(consumer, tries, Duration::from_secs(5))).await,
            stored => return stored,
        }
    }
}

/// A parked event, read again from the feed.
pub(super) async fn again(consumer: &Consumer, parked: &Parked) -> Result<Handed> {
    let from = parked.before.clone().map_or(From::Start, From::Checkpoint);
    let mut deliveries = consumer.feed.subscribe(from, consumer.query.clone());
    while let Some(Delivery::Event { event, checkpoint }) = deliveries.next().await.transpose()? {
        if event.id == parked.event {
            return Ok(Handed { event: *event, checkpoint, attempt: 0 });
        }
    }
    Err(Error::corrupt("feed", format!("parked event {} is not behind the place where it was read", parked.event)))
}
