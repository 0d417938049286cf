//! How a consumer at work shares partitions with other instances: saves their places, takes, asks for and gives up their leases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use futures::future::{FutureExt, join_all};
use tokio::time::Instant;

use super::{Group, Handed, Hold, Runner};
use crate::error::Result;
use crate::project::consumer::{Progress, place};
use crate::project::share::{self, Seat};
use crate::project::window::Window;
use crate::state::{CellKind, Lease, Standing};

/// Leases that are renewed at once.
const AT_ONCE: usize = 16;

impl<'a, F, Fut, E> Runner<'a, F>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send + 'a,
    E: Display + Send + 'a,
{
    /// Saves places that moved and renews leases that have been silent for a while. A save that is refused loses the partition.
    pub(super) async fn save(&mut self) -> Result<()> {
        let beat = self.consumer.beat();
        self.saved = Instant::now();
        for group in &mut self.groups {
            let low = group.window.low().clone();
            let moved = low.checkpoint != group.saved.0;
            let (mut lost, mut all) = (Vec::new(), true);
            let mut due: Vec<(u32, &mut Hold)> = Vec::new();
            for (partition, hold) in &mut group.holds {
                if moved || hold.spoke().elapsed() >= beat {
                    due.push((*partition, hold));
                }
            }
            for some in due.chunks_mut(AT_ONCE) {
                let mut renewals = Vec::new();
                for (_, hold) in &mut *some {
                    renewals.push(hold.renew(Progress::of(&low)).boxed());
                }
                let renewed = join_all(renewals).await;
                for ((partition, hold), standing) in some.iter_mut().zip(renewed) {
                    match standing {
                        Ok(Standing::Kept { rung: None, barred: false }) => {}
                        Ok(Standing::Kept { .. }) => hold.leave(),
                        Ok(Standing::Lost) => lost.push(*partition),
                        Err(error) if !error.is_retryable() => return Err(error),
                        Err(_) if hold.is_silent() => lost.push(*partition),
                        Err(_) => all = false,
                    }
                }
            }
            lost.into_iter().for_each(|partition| group.give_up(partition));
            if all {
                group.saved = (low.checkpoint, low.finished);
            }
        }
        self.groups.retain(|group| !group.holds.is_empty());
        Ok(())
    }

    /// Whether something of it runs, or is about to be parked.
    fn is_under_way(&self, partition: u32) -> bool {
        self.at_work.contains_key(&partition) || self.to_park.iter().any(|one| one.partition == partition)
    }

    /// Gives up what others asked for, once nothing of it is under way: all of a group at one place, so that whoever takes it reads the feed once;
    /// but where something runs for as long as a silence, not what waits for it only for that.
    pub(super) async fn leave(&mut self) -> Result<()> {
        let (at_work, to_park, silence) = (&self.at_work, &self.to_park, self.consumer.silence());
        let under_way = |partition: &u32| at_work.contains_key(partition) || to_park.iter().any(|one| one.partition == *partition);
        for group in &mut self.groups {
            let leaving: BTreeSet<u32> =
                group.holds.iter().filter(|(_, hold)| hold.is_leaving()).map(|(partition, _)| *partition).collect();
            let waited = group.holds.values().filter_map(Hold::leaves_since).any(|since| since.elapsed() >= silence);
            let leaving = match leaving.iter().any(under_way) {
                true if waited => leaving.into_iter().filter(|partition| !under_way(partition)).collect(),
                true => BTreeSet::new(),
                false => leaving,
            };
            if leaving.is_empty() {
                continue;
            }
            let place = Progress::of(&group.window.low_of(|partition| leaving.contains(&partition)));
            for partition in leaving {
                let Some(hold) = group.holds.get_mut(&partition) else { continue };
                match hold.release(place.clone()).await {
                    Ok(_) => group.give_up(partition),
                    Err(error) if !error.is_retryable() => return Err(error),
                    // Whether it is free is not known: at the next turn.
                    Err(_) => {}
                }
            }
        }
        self.groups.retain(|group| !group.holds.is_empty());
        Ok(())
    }

    /// Looks at all partitions, takes what is its share, and asks for what is missing of it.
    pub(super) async fn claim(&mut self) -> Result<()> {
        let consumer = self.consumer;
        let cells = self.meanwhile(consumer.cells.list(CellKind::Lease, &consumer.name)).await?;
        let mut seats = Vec::new();
        for partition in 0..self.partitions {
            let key = consumer.partition_cell(partition)?;
            let held = self.groups.iter().any(|group| group.holds.contains_key(&partition));
            let mut seat = Seat { partition, holder: held.then_some(self.me), rung: None, barred: false, silent: false };
            if let Some(cell) = cells.iter().find(|cell| cell.number == key.number()).filter(|_| !held) {
                let (seen, silent) = self.watch.look(&key, cell)?;
                // Its own id on a lease that it does not hold: a take whose answer was lost.
                let holder = seen.holder.filter(|holder| *holder != self.me);
                seat = Seat { partition, holder, rung: seen.rung, barred: seen.barred, silent };
            }
            seats.push(seat);
        }
        let plan = share::plan(&seats, self.me);
        // Groups that are new by this look, by their places: nothing of them is read yet.
        let mut fresh = BTreeMap::new();
        for partition in plan.take {
            // Lost with something of it under way: whatever comes next of it would be handled beside that.
            if self.is_under_way(partition) {
                continue;
            }
            // Takes may be many: those that are held meanwhile do not fall silent.
            self.save_if_due().await?;
            let key = consumer.partition_cell(partition)?;
            if let Some(lease) = Lease::try_take(&consumer.cells, &key, self.me, consumer.silence(), &mut self.watch).await? {
                let progress = Progress::read(&key, lease.content())?;
                // Whoever held it may have parked something until now.
                self.is_lot_known = false;
                self.join(partition, progress, lease, &mut fresh);
            }
        }
        for partition in plan.ring {
            Lease::ring(&consumer.cells, &consumer.partition_cell(partition)?, self.me).await?;
        }
        self.merge();
        Ok(())
    }

    /// Partitions that stand at the same place read the feed together.
    fn join(&mut self, partition: u32, progress: Progress, lease: Lease, fresh: &mut BTreeMap<(u8, Option<String>), u64>) {
        let from = self.consumer.from(&self.fixed, progress.checkpoint.clone(), progress.rewound);
        let place = place(&from);
        let is_idle_there = |group: &Group| progress.checkpoint.is_some() && group.idle_at() == progress.checkpoint.as_ref();
        let is_new = |group: &Group| fresh.get(&place) == Some(&group.id);
        let known = self.groups.iter().position(|group| is_idle_there(group) || is_new(group));
        let at = known.unwrap_or_else(|| {
            self.groups_made += 1;
            let saved = (progress.checkpoint.clone(), 0);
            let feed = self.consumer.follow(from, Duration::ZERO);
            let window = Window::begin(progress.low());
            let holds = BTreeMap::new();
            self.groups.push(Group { id: self.groups_made, holds, window, feed, errors: 0, caught_up: false, saved });
            fresh.insert(place, self.groups_made);
            self.groups.len() - 1
        });
        self.groups[at].caught_up = false;
        self.groups[at].holds.insert(partition, Hold::new(lease, self.consumer.silence()));
    }

    /// Groups that have come to the same place, with nothing under way, become one: the feed is read once.
    pub(super) fn merge(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let twin = |other: &Group| other.idle_at().is_some() && other.idle_at() == self.groups[at].idle_at();
            match self.groups[..at].iter().position(twin) {
                Some(into) => {
                    let group = self.groups.remove(at);
                    self.groups[into].holds.extend(group.holds);
                }
                None => at += 1,
            }
        }
    }

    /// The end: saves what is done, and frees the partitions.
    pub(super) async fn release(&mut self) -> Result<()> {
        for group in std::mem::take(&mut self.groups) {
            let place = Progress::of(group.window.low());
            for mut hold in group.holds.into_values() {
                let _ = hold.release(place.clone()).await?;
            }
        }
        Ok(())
    }
}
