//! What a consumer does about one event: the tries with their pauses, setting it aside when they failed, reading it again later.

use std::fmt::Display;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{FutureExt, select};

use super::consumer::Consumer;
use super::parked::{Lot, Parked};
use super::run::{Handed, Hold, Leave};
use crate::error::{Error, Result};
use crate::feed::{Delivery, From};
use crate::state::Fenced;

/// An event that is to be parked, and the place in a window that waits for it.
pub(super) struct ToPark {
    pub(super) group: u64,
    pub(super) sequence: u64,
    pub(super) partition: u32,
    pub(super) parked: Parked,
}

/// Why an event was not handled.
pub(super) enum Trouble {
    /// So often, and for this reason.
    Failed { reason: String, attempts: u32 },
    /// It was not tried to the end, since no try of it may begin any more: it is handed out again by whoever goes on.
    Abandoned,
}

/// Before the try after this many: doubling, with half of it by chance, so that instances do not meet.
pub(super) fn pause(consumer: &Consumer, tries: u32, longest: Duration) -> Duration {
    let whole = consumer.first_pause.saturating_mul(1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX)).min(longest);
    let half = u64::try_from(whole.as_micros() / 2).unwrap_or(u64::MAX);
    Duration::from_micros(half + consumer.env.below(half.saturating_add(1)))
}

pub(super) async fn handle<F, Fut, E>(consumer: &Consumer, handler: &F, mut handed: Handed, mut leave: Leave) -> Result<(), Trouble>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Display + Send,
{
    while leave.is_given().await {
        handed.attempt += 1;
        let reason = match handler(handed.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        };
        let attempts = handed.attempt;
        if attempts >= consumer.attempts {
            return Err(Trouble::Failed { reason, attempts });
        }
        let pause = pause(consumer, attempts, consumer.longest_pause);
        // Who stops or has lost it does not wait out a pause.
        select(consumer.env.sleep(pause).boxed(), leave.over().boxed()).await;
    }
    Err(Trouble::Abandoned)
}

/// Events that are parked by one transaction, beside the lease.
pub(super) const AT_ONCE: usize = 50;

/// Stores what is parked, each under a number of its own, in one transaction with the renewal of the lease that it is of: an instance that
/// slept while another took over and handled the event stores nothing. After an error it may be stored or not; asked again, it is stored once.
pub(super) async fn park(consumer: &Consumer, hold: &mut Hold, place: &serde_json::Value, batch: &mut [ToPark]) -> Result<Fenced> {
    let cells = &*consumer.cells;
    let mut unnumbered: Vec<&mut ToPark> = batch.iter_mut().filter(|one| one.parked.number == 0).collect();
    if !unnumbered.is_empty() {
        let first = Lot::numbers(cells, &consumer.name, unnumbered.len()).await?;
        unnumbered.iter_mut().zip(first..).for_each(|(one, number)| one.parked.number = number);
    }
    let mut fenced = Fenced::Lost;
    for batch in batch.chunks(AT_ONCE) {
        let mut left: Vec<&Parked> = batch.iter().map(|one| &one.parked).collect();
        loop {
            let writes = left.iter().map(|parked| Lot::add(&consumer.name, parked)).collect::<Result<_>>()?;
            fenced = hold.renew_with(place.clone(), writes).await?;
            match fenced {
                Fenced::Written(_) => break,
                Fenced::Lost => return Ok(fenced),
                // Stored by a try of before that nobody heard of.
                Fenced::Refused => {
                    let mut missing = Vec::new();
                    for parked in left {
                        if !Lot::has(cells, &consumer.name, parked).await? {
                            missing.push(parked);
                        }
                    }
                    left = missing;
                }
            }
        }
    }
    Ok(fenced)
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
