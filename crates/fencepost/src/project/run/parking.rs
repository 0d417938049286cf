//! What a consumer at work does about parked events: every write of them goes with the renewal of the lease of their partition, in one transaction.

use std::collections::BTreeMap;
use std::fmt::Display;

use futures::future::FutureExt;
use uuid::Uuid;

use super::{Group, Handed, Job, Runner};
use crate::error::Result;
use crate::project::attempt::{ToPark, again, handle, park};
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
    pub(super) fn seat_of(&self, keys: &[String]) -> u32 {
        partition_of(keys.first().map_or("", String::as_str), self.partitions)
    }

    /// Parks what waits for it, in one transaction with the renewal of its partition's lease: an instance that slept while another took over and
    /// handled the event parks nothing, wherever it slept.
    pub(super) async fn park(&mut self) -> Result<()> {
        let mut seats = BTreeMap::<(u64, u32), Vec<ToPark>>::new();
        for one in std::mem::take(&mut self.to_park) {
            seats.entry((one.group, self.seat_of(&one.parked.keys))).or_default().push(one);
        }
        for ((id, partition), mut batch) in seats {
            // A group that is gone was lost to another instance.
            let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { continue };
            let place = Progress::of(group.window.low());
            let fenced = match group.leases.get_mut(&partition) {
                Some(lease) => park(self.consumer, lease, &place, &mut batch).await,
                None => Ok(Fenced::Lost),
            };
            match fenced {
                Ok(Fenced::Written(_) | Fenced::Refused) => {
                    for ToPark { sequence, parked, .. } in batch {
                        group.window.finish(sequence);
                        self.lot.insert(parked, Revision(1));
                    }
                }
                Ok(Fenced::Lost) => {
                    batch.into_iter().for_each(|one| group.window.finish(one.sequence));
                    group.give_up(partition);
                }
                Err(error) if !error.is_retryable() => return Err(error),
                // Whether it is stored is not known: at the next turn.
                Err(_) => self.to_park.extend(batch),
            }
        }
        self.groups.retain(|group| !group.leases.is_empty());
        Ok(())
    }

    /// Stores what became of a parked event that was tried again, as long as its partition is held: it is done with, or the try failed.
    pub(super) async fn tried(&mut self, number: u64, event: Uuid, partition: u32, failed: Option<&(String, u32)>) -> Result<()> {
        let Some(group) = self.groups.iter_mut().find(|group| group.leases.contains_key(&partition)) else { return Ok(()) };
        let place = Progress::of(group.window.low());
        while let Some(lease) = group.leases.get_mut(&partition)
            && let Some((write, then)) = self.lot.tried(number, event, failed).await?
        {
            match lease.renew_with(place.clone(), vec![write]).await? {
                Fenced::Written(_) => {
                    self.lot.settle(number, then);
                    break;
                }
                // Somebody has released it, or skipped it.
                Fenced::Refused => {}
                Fenced::Lost => group.give_up(partition),
            }
        }
        self.groups.retain(|group| !group.leases.is_empty());
        Ok(())
    }

    /// Forgets skipped events that nobody reads again: all that there was is read and done, and the place behind it is saved.
    pub(super) async fn forget(&mut self) -> Result<()> {
        let skipped: Vec<_> = self.lot.skipped().map(|one| (one.number, one.event, self.seat_of(&one.keys))).collect();
        for (number, event, partition) in skipped {
            let behind = |group: &&Group| group.leases.contains_key(&partition);
            let Some(group) = self.groups.iter().find(behind) else { continue };
            let low = group.window.low().checkpoint.as_ref();
            if group.caught_up && group.window.unfinished() == 0 && low == group.saved.0.as_ref() && !self.retrying.contains_key(&number) {
                self.tried(number, event, partition, None).await?;
            }
        }
        Ok(())
    }

    /// Tries parked events again whose turn has come.
    pub(super) fn retry_due(&mut self) {
        if *self.stop.borrow() {
            return;
        }
        for parked in self.lot.due() {
            let partition = self.seat_of(&parked.keys);
            let mine = self.groups.iter().any(|group| group.leases.contains_key(&partition));
            if mine && !self.retrying.values().any(|keys| shares(keys, &parked.keys)) {
                self.retrying.insert(parked.number, parked.keys.clone());
                let (consumer, handler, stop) = (self.consumer, self.handler, self.stop.subscribe());
                let (number, event, keys) = (parked.number, parked.event, parked.keys.clone());
                let again = async move {
                    let outcome = match again(consumer, &parked).await {
                        Ok(handed) => Ok(handle(consumer, handler, handed, stop).await),
                        Err(error) => Err(error),
                    };
                    Job::Retried { number, event, keys, outcome }
                };
                self.jobs.push(again.boxed());
            }
        }
    }
}
