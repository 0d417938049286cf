//! What a consumer at work does about parked events: every write of them goes with the renewal of the lease of their partition, in one transaction.

use std::collections::BTreeMap;
use std::fmt::Display;

use futures::future::{Either, FutureExt, select};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Group, Handed, Job, Runner};
use crate::error::Result;
use crate::project::attempt::{AT_ONCE, ToPark, Trouble, again, handle, park};
use crate::project::consumer::Progress;
use crate::project::parked::shares;
use crate::project::share::partition_of;
use crate::state::{Fenced, Revision};

impl<'a, F, Fut, E> Runner<'a, F>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send + 'a,
    E: Display + Send + 'a,
{
    fn seat_of(&self, keys: &[String]) -> u32 {
        partition_of(keys.first().map_or("", String::as_str), self.partitions)
    }

    /// Whether as many are parked as may be.
    pub(super) fn is_full(&self) -> bool {
        self.lot.len() + self.to_park.len() >= self.consumer.most_parked
    }

    /// Whether it is time to park what waits for it, though there is more to do: something failed, or it is enough for a transaction.
    pub(super) fn is_parking_due(&self) -> bool {
        self.to_park.len() >= AT_ONCE || self.to_park.iter().any(|one| one.parked.attempts > 0)
    }

    /// Parks what waits for it, in one transaction with the renewal of its partition's lease: an instance that slept while another took over and
    /// handled the event parks nothing, wherever it slept. Whether all of it is settled.
    pub(super) async fn park(&mut self) -> Result<bool> {
        let mut seats = BTreeMap::<(u64, u32), Vec<ToPark>>::new();
        for one in std::mem::take(&mut self.to_park) {
            seats.entry((one.group, one.partition)).or_default().push(one);
        }
        for ((id, partition), mut batch) in seats {
            // A group that is gone was lost to another instance.
            let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { continue };
            let place = Progress::of(group.window.low());
            let fenced = match group.holds.get_mut(&partition) {
                Some(hold) => park(self.consumer, hold, &place, &mut batch).await,
                None => Ok(Fenced::Lost),
            };
            match fenced {
                Ok(Fenced::Written(_) | Fenced::Refused) => {
                    for ToPark { sequence, parked, .. } in batch {
                        group.window.finish(sequence);
                        self.lot.insert(parked, Revision(1));
                    }
                }
                Ok(Fenced::Lost) => group.give_up(partition),
                Err(error) if !error.is_retryable() => return Err(error),
                // Whether it is stored is not known: at the next turn.
                Err(_) => self.to_park.extend(batch),
            }
        }
        self.groups.retain(|group| !group.holds.is_empty());
        Ok(self.to_park.is_empty())
    }

    /// Stores what became of a parked event that was tried again, as long as its partition is held: it is done with, or the try failed.
    pub(super) async fn tried(&mut self, number: u64, event: Uuid, partition: u32, failed: Option<&(String, u32)>) -> Result<()> {
        let Some(group) = self.groups.iter_mut().find(|group| group.holds.contains_key(&partition)) else { return Ok(()) };
        let place = Progress::of(group.window.low());
        while let Some(hold) = group.holds.get_mut(&partition)
            && let Some((write, then)) = self.lot.tried(number, event, failed).await?
        {
            match hold.renew_with(place.clone(), vec![write]).await? {
                Fenced::Written(_) => {
                    self.lot.settle(number, then);
                    break;
                }
                // Somebody has released it, or skipped it.
                Fenced::Refused => {}
                Fenced::Lost => group.give_up(partition),
            }
        }
        self.groups.retain(|group| !group.holds.is_empty());
        Ok(())
    }

    /// Forgets skipped events that nobody reads again: all that there was is read and done, and the place behind it is saved.
    pub(super) async fn forget(&mut self) -> Result<()> {
        let skipped: Vec<_> = self.lot.skipped().map(|one| (one.number, one.event, self.seat_of(&one.keys))).collect();
        for (number, event, partition) in skipped {
            let behind = |group: &&Group| group.holds.contains_key(&partition);
            let Some(group) = self.groups.iter().find(behind) else { continue };
            let low = group.window.low().checkpoint.as_ref();
            // The rest at the next look.
            if Instant::now() >= self.next_save() {
                break;
            }
            if group.caught_up && group.window.unfinished() == 0 && low == group.saved.0.as_ref() && !self.retrying.contains_key(&number) {
                self.tried(number, event, partition, None).await?;
            }
        }
        Ok(())
    }

    /// Tries parked events again whose turn has come.
    pub(super) fn retry_due(&mut self) {
        if *self.stop.borrow() || !self.is_lot_known {
            return;
        }
        for parked in self.lot.due() {
            // As many as there are of others: so neither waits for the other.
            if self.retrying.len() >= self.consumer.concurrency {
                break;
            }
            let partition = self.seat_of(&parked.keys);
            let leave = self.groups.iter().find_map(|group| group.holds.get(&partition)?.to_begin(&self.stop));
            if let Some(mut leave) = leave
                && !self.retrying.values().any(|keys| shares(keys, &parked.keys))
            {
                self.retrying.insert(parked.number, parked.keys.clone());
                let (consumer, handler, number, event) = (self.consumer, self.handler, parked.number, parked.event);
                let again = async move {
                    let read = match select(again(consumer, &parked).boxed(), leave.over().boxed()).await {
                        Either::Left((read, _)) => Some(read),
                        Either::Right(_) => None,
                    };
                    let outcome = match read {
                        Some(Ok(handed)) => Ok(handle(consumer, handler, handed, leave).await),
                        Some(Err(error)) => Err(error),
                        None => Ok(Err(Trouble::Abandoned)),
                    };
                    Job::Retried { number, event, partition, outcome }
                };
                self.begin(partition, again.boxed());
            }
        }
    }
}
