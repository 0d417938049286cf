//! A consumer at work: reads ahead, hands out in order, saves behind what is done, and shares partitions with other instances by leases.

mod parking;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, FuturesUnordered};

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::attempt::{ToPark, Trouble, handle, pause};
use super::consumer::{Consumer, Fixed, OnFailure, Progress, place};
use super::parked::{Lot, Parked, shares};
use super::share::{self, Seat, partition_of};
use super::window::{Ready, Window};
use crate::error::Result;
use crate::event::{EventType, Recorded};
use crate::feed::{Delivery, From};
use crate::position::{Checkpoint, Position};
use crate::state::{CellKind, Lease, Standing, Watch};

/// An event in the hands of a handler. It may come again: the position tells whether it was handled before.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Handed {
    /// The event.
    pub event: Recorded,
    /// Covers the event and all before it.
    pub checkpoint: Checkpoint,
    /// Which try this is, from 1.
    pub attempt: u32,
}

impl Deref for Handed {
    type Target = Recorded;
    fn deref(&self) -> &Recorded {
        &self.event
    }
}

/// How a consumer ended.
#[derive(Debug)]
#[must_use]
pub enum Ended {
    /// It was asked to: what ran was finished, and its place is saved.
    Stopped,
    /// An event failed, and it was not to be parked.
    Failed(Failed),
}

/// The event that a consumer or a projection ended before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Failed {
    /// Its id.
    pub event: Uuid,
    /// Its type.
    pub event_type: EventType,
    /// Where it stands.
    pub position: Position,
    /// How often it was tried.
    pub attempts: u32,
    /// What was said of it.
    pub reason: String,
}

impl Failed {
    pub(super) fn new(event: &Recorded, attempts: u32, reason: String) -> Self {
        Failed { event: event.id, event_type: event.event_type.clone(), position: event.position, attempts, reason }
    }
}

impl Consumer {
    /// Runs until it is dropped: then what ran is handed out again by whoever goes on.
    pub async fn run<F, Fut, E>(&self, handler: F) -> Result<Ended>
    where
        F: Fn(Handed) -> Fut + Send + Sync,
        Fut: Future<Output = Result<(), E>> + Send,
        E: Display + Send,
    {
        self.run_until(handler, std::future::pending()).await
    }

    /// Runs until the future ends: then what runs is finished, its place is saved, and its partitions are free for others at once.
    pub async fn run_until<F, Fut, E>(&self, handler: F, until: impl Future<Output = ()> + Send) -> Result<Ended>
    where
        F: Fn(Handed) -> Fut + Send + Sync,
        Fut: Future<Output = Result<(), E>> + Send,
        E: Display + Send,
    {
        let fixed = self.fix().await?;
        let mut runner = Runner {
            consumer: self,
            handler: &handler,
            me: self.env.new_id(),
            partitions: fixed.partitions,
            fixed,
            watch: Watch::default(),
            groups: Vec::new(),
            groups_made: 0,
            jobs: FuturesUnordered::new(),
            lot: Lot::new(self.cells.clone(), &self.name),
            to_park: Vec::new(),
            retrying: BTreeMap::new(),
            failed: None,
            stop: watch::Sender::new(false),
            claimed: None,
        };
        let mut until = std::pin::pin!(until);
        let outcome = runner.work(until.as_mut()).await;
        // Also after an error: what is done is done.
        let released = runner.release().await;
        outcome.and(released)?;
        Ok(runner.failed.map_or(Ended::Stopped, Ended::Failed))
    }
}

/// Partitions that stand at the same place, and read the feed together.
struct Group {
    id: u64,
    leases: BTreeMap<u32, Lease>,
    window: Window,
    feed: BoxStream<'static, Result<Delivery>>,
    /// Errors of the feed in a row.
    errors: u32,
    /// Whether all that there was has been read.
    caught_up: bool,
    /// Partitions to give up once all that was read is finished.
    leaving: BTreeSet<u32>,
    /// The place as last saved, and the events finished by then.
    saved: (Option<Checkpoint>, u64),
}

impl Group {
    /// The partition is another's by now.
    fn give_up(&mut self, partition: u32) {
        self.leases.remove(&partition);
        self.leaving.remove(&partition);
    }

    /// Nothing is unfinished, and the feed stands where the mark is.
    fn idle_at(&self) -> Option<&Checkpoint> {
        let low = self.window.low().checkpoint.as_ref();
        low.filter(|low| self.window.unfinished() == 0 && self.leaving.is_empty() && self.window.read() == Some(*low))
    }
}

enum Job {
    Handled { group: u64, ready: Ready, outcome: Result<(), Trouble> },
    Retried { number: u64, event: Uuid, keys: Vec<String>, outcome: Result<Result<(), Trouble>> },
}

enum Turn {
    Until,
    Tick,
    Job(Job),
    Delivered(usize, Option<Result<Delivery>>),
}

struct Runner<'a, F> {
    consumer: &'a Consumer,
    handler: &'a F,
    me: Uuid,
    partitions: u32,
    fixed: Fixed,
    watch: Watch,
    groups: Vec<Group>,
    groups_made: u64,
    jobs: FuturesUnordered<BoxFuture<'a, Job>>,
    lot: Lot,
    /// What is to be parked, together with the renewal of its lease.
    to_park: Vec<ToPark>,
    /// Parked events that are being tried again, and their keys: nothing that shares one begins meanwhile, even if they are skipped.
    retrying: BTreeMap<u64, Vec<String>>,
    failed: Option<Failed>,
    stop: watch::Sender<bool>,
    /// When the leases were last looked at.
    claimed: Option<Instant>,
}

impl<'a, F, Fut, E> Runner<'a, F>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send + 'a,
    E: Display + Send + 'a,
{
    async fn work(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>) -> Result<()> {
        let env = self.consumer.env.clone();
        let period = self.consumer.save_time.min(self.consumer.lease / 4).max(Duration::from_millis(1));
        let mut tick = env.sleep(Duration::ZERO).boxed();
        while !(*self.stop.borrow() && self.jobs.is_empty()) {
            self.dispatch();
            match self.turn(until.as_mut(), &mut tick).await {
                Turn::Until => drop(self.stop.send_replace(true)),
                Turn::Tick => {
                    self.tick().await?;
                    let env = env.clone();
                    tick = async move { env.sleep(period).await }.boxed();
                }
                Turn::Job(job) => self.finished(job).await?,
                Turn::Delivered(group, delivery) => self.delivered(group, delivery)?,
            }
            self.park().await?;
            if self.is_due() {
                self.save().await?;
            }
            self.leave().await?;
        }
        Ok(())
    }

    /// What happens next. Finished work comes first, so that the window moves before more is read.
    async fn turn(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>, tick: &mut BoxFuture<'_, ()>) -> Turn {
        let (jobs, groups, stopping, read_ahead) = (&mut self.jobs, &mut self.groups, *self.stop.borrow(), self.consumer.read_ahead);
        poll_fn(|context| {
            if let Poll::Ready(Some(job)) = jobs.poll_next_unpin(context) {
                return Poll::Ready(Turn::Job(job));
            }
            if tick.poll_unpin(context).is_ready() {
                return Poll::Ready(Turn::Tick);
            }
            if stopping {
                return Poll::Pending;
            }
            if until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Until);
            }
            for (at, group) in groups.iter_mut().enumerate() {
                if group.leaving.is_empty()
                    && !group.window.is_full(read_ahead)
                    && let Poll::Ready(delivery) = group.feed.poll_next_unpin(context)
                {
                    return Poll::Ready(Turn::Delivered(at, delivery));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn delivered(&mut self, at: usize, delivery: Option<Result<Delivery>>) -> Result<()> {
        let Some(group) = self.groups.get_mut(at) else { return Ok(()) };
        match delivery {
            Some(Ok(Delivery::Event { event, checkpoint })) => {
                group.errors = 0;
                let keys = self.consumer.keys_of(&event);
                let mine = group.leases.contains_key(&partition_of(&keys[0], self.partitions));
                // Parked before a crash, and read again after it: it waits where it is.
                if mine && !self.lot.holds(event.id) {
                    group.window.push(event, keys, checkpoint);
                } else {
                    group.window.pass(checkpoint);
                }
            }
            Some(Ok(Delivery::CaughtUp { checkpoint })) => {
                (group.errors, group.caught_up) = (0, true);
                group.window.pass(checkpoint);
            }
            Some(Err(error)) if !error.is_retryable() => return Err(error),
            Some(Err(_)) | None => {
                group.errors += 1;
                let pause = pause(self.consumer, group.errors, Duration::from_secs(5));
                let from = self.consumer.from(&self.fixed, group.window.read().cloned(), group.window.low().rewound);
                group.feed = self.consumer.follow(from, pause);
            }
        }
        Ok(())
    }

    /// Begins what may begin.
    fn dispatch(&mut self) {
        if *self.stop.borrow() {
            return;
        }
        let consumer = self.consumer;
        for group in &mut self.groups {
            // Silent for the lease's length, it may be another's by now: nothing begins until it is renewed.
            if group.leases.values().any(|lease| lease.silence() >= consumer.lease) {
                continue;
            }
            while self.jobs.len() < consumer.concurrency {
                let Some(ready) = group.window.next() else { break };
                if !group.leases.contains_key(&partition_of(&ready.keys[0], self.partitions)) {
                    group.window.finish(ready.sequence);
                } else if self.lot.blocks(&ready.keys) || self.retrying.values().any(|keys| shares(keys, &ready.keys)) {
                    let parked = Parked::new(&ready.event, ready.keys, ready.before, consumer.env.now());
                    self.to_park.push(ToPark { group: group.id, sequence: ready.sequence, parked });
                } else {
                    let (id, handler, stop) = (group.id, self.handler, self.stop.subscribe());
                    let handed = Handed { event: (*ready.event).clone(), checkpoint: ready.checkpoint.clone(), attempt: 0 };
                    let handle = handle(consumer, handler, handed, stop);
                    self.jobs.push(async move { Job::Handled { group: id, ready, outcome: handle.await } }.boxed());
                }
            }
        }
    }

    async fn finished(&mut self, job: Job) -> Result<()> {
        let group = |groups: &'_ mut Vec<Group>, id: u64| groups.iter_mut().position(|group| group.id == id);
        match job {
            Job::Handled { group: id, ready, outcome: Ok(()) } => {
                // A group that is gone was lost to another instance, which handles it again.
                if let Some(at) = group(&mut self.groups, id) {
                    self.groups[at].window.finish(ready.sequence);
                }
            }
            Job::Handled { outcome: Err(Trouble { abandoned: true, .. }), .. } => {}
            Job::Handled { group: id, ready, outcome: Err(trouble) } => {
                let full = self.lot.len() + self.to_park.len() >= self.consumer.most_parked;
                if self.consumer.on_failure == OnFailure::Stop || full {
                    self.failed.get_or_insert(Failed::new(&ready.event, trouble.attempts, trouble.reason));
                    self.stop.send_replace(true);
                } else if group(&mut self.groups, id).is_some() {
                    let parked = Parked::new(&ready.event, ready.keys, ready.before, self.consumer.env.now());
                    let parked = parked.failed(trouble.reason, trouble.attempts);
                    self.to_park.push(ToPark { group: id, sequence: ready.sequence, parked });
                }
            }
            Job::Retried { number, event, keys, outcome } => {
                self.retrying.remove(&number);
                // None: it was not tried to an end.
                let tried = match outcome {
                    Ok(Ok(())) => Some(None),
                    Ok(Err(trouble)) => (!trouble.abandoned).then_some(Some((trouble.reason, trouble.attempts))),
                    Err(error) => (!error.is_retryable()).then(|| Some((error.to_string(), 1))),
                };
                if let Some(failed) = tried {
                    // What is not stored is tried again.
                    later(self.tried(number, event, self.seat_of(&keys), failed.as_ref()).await)?;
                }
                self.retry_due();
            }
        }
        Ok(())
    }

    /// Whether enough is done that its place is worth a write; the first place of all is, since "from now on" must not move.
    fn is_due(&self) -> bool {
        let fresh = |group: &Group| group.saved.0.is_none() && group.window.low().checkpoint.is_some();
        let finished: u64 = self.groups.iter().map(|group| group.window.low().finished - group.saved.1).sum();
        finished >= self.consumer.save_events || self.groups.iter().any(fresh)
    }

    async fn tick(&mut self) -> Result<()> {
        self.save().await?;
        let now = Instant::now();
        if self.claimed.is_none_or(|then| now.duration_since(then) >= self.consumer.lease / 4) && !*self.stop.borrow() {
            self.claimed = Some(now);
            later(self.claim().await)?;
            if !self.lot.is_empty() {
                later(self.lot.load().await)?;
                self.retry_due();
                later(self.forget().await)?;
            }
        }
        Ok(())
    }

    /// Saves places that moved and renews leases that have been silent for a while. A save that is refused loses the partition.
    async fn save(&mut self) -> Result<()> {
        let length = self.consumer.lease;
        for group in &mut self.groups {
            let low = group.window.low().clone();
            let moved = low.checkpoint != group.saved.0;
            let (mut lost, mut all) = (Vec::new(), true);
            for (partition, lease) in &mut group.leases {
                if !moved && lease.silence() < length / 4 {
                    continue;
                }
                match lease.renew(Progress::of(&low)).await {
                    Ok(Standing::Kept { rung: None, barred: false }) => {}
                    Ok(Standing::Kept { .. }) => drop(group.leaving.insert(*partition)),
                    Ok(Standing::Lost) => lost.push(*partition),
                    Err(error) if !error.is_retryable() => return Err(error),
                    Err(_) if lease.silence() >= length => lost.push(*partition),
                    Err(_) => all = false,
                }
            }
            lost.into_iter().for_each(|partition| group.give_up(partition));
            if all {
                group.saved = (low.checkpoint, low.finished);
            }
        }
        self.groups.retain(|group| !group.leases.is_empty());
        Ok(())
    }

    /// Gives up what others asked for, once nothing of it is under way.
    async fn leave(&mut self) -> Result<()> {
        for group in &mut self.groups {
            if group.leaving.is_empty() || group.window.unfinished() > 0 {
                continue;
            }
            let place = Progress::of(group.window.low());
            for partition in std::mem::take(&mut group.leaving) {
                if let Some(lease) = group.leases.remove(&partition) {
                    later(lease.release(place.clone()).await)?;
                }
            }
        }
        self.groups.retain(|group| !group.leases.is_empty());
        Ok(())
    }

    /// Looks at all partitions, takes what is its share, and asks for what is missing of it.
    async fn claim(&mut self) -> Result<()> {
        let consumer = self.consumer;
        let cells = consumer.cells.list(CellKind::Lease, &consumer.name).await?;
        let mut seats = Vec::new();
        for partition in 0..self.partitions {
            let key = consumer.partition_cell(partition)?;
            let held = self.groups.iter().any(|group| group.leases.contains_key(&partition));
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
        let mut taken = Vec::new();
        for partition in plan.take {
            let key = consumer.partition_cell(partition)?;
            if let Some(lease) = Lease::try_take(&consumer.cells, &key, self.me, consumer.lease, &mut self.watch).await? {
                taken.push((partition, Progress::read(&key, lease.content())?, lease));
            }
        }
        for partition in plan.ring {
            Lease::ring(&consumer.cells, &consumer.partition_cell(partition)?, self.me).await?;
        }
        if !taken.is_empty() {
            self.lot.load().await?;
            self.join(taken);
        }
        self.merge();
        Ok(())
    }

    /// Partitions that stand at the same place read the feed together.
    fn join(&mut self, taken: Vec<(u32, Progress, Lease)>) {
        let mut fresh = BTreeMap::new();
        for (partition, progress, lease) in taken {
            let from = self.consumer.from(&self.fixed, progress.checkpoint.clone(), progress.rewound);
            let place = place(&from);
            let idle =
                self.groups.iter().position(|group| progress.checkpoint.is_some() && group.idle_at() == progress.checkpoint.as_ref());
            let at = idle.or(fresh.get(&place).copied()).unwrap_or_else(|| {
                self.groups_made += 1;
                let saved = (progress.checkpoint.clone(), 0);
                let feed = self.consumer.follow(from, Duration::ZERO);
                let window = Window::begin(progress.low());
                let (leases, leaving) = (BTreeMap::new(), BTreeSet::new());
                self.groups.push(Group { id: self.groups_made, leases, window, feed, errors: 0, caught_up: false, leaving, saved });
                self.groups.len() - 1
            });
            fresh.insert(place, at);
            self.groups[at].leases.insert(partition, lease);
        }
    }

    /// Groups that have come to the same place, with nothing under way, become one: the feed is read once.
    fn merge(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let twin = |other: &Group| other.idle_at().is_some() && other.idle_at() == self.groups[at].idle_at();
            match self.groups[..at].iter().position(twin) {
                Some(into) => {
                    let group = self.groups.remove(at);
                    self.groups[into].leases.extend(group.leases);
                }
                None => at += 1,
            }
        }
    }

    /// The end: saves what is done, and frees the partitions.
    async fn release(&mut self) -> Result<()> {
        for group in std::mem::take(&mut self.groups) {
            let place = Progress::of(group.window.low());
            for lease in group.leases.into_values() {
                let _ = lease.release(place.clone()).await?;
            }
        }
        Ok(())
    }
}

impl Consumer {
    /// The feed from behind a place, after a pause.
    fn follow(&self, from: From, pause: Duration) -> BoxStream<'static, Result<Delivery>> {
        let (env, feed, query) = (self.env.clone(), self.feed.clone(), self.query.clone());
        let start = async move {
            if !pause.is_zero() {
                env.sleep(pause).await;
            }
            feed.subscribe(from, query)
        };
        stream::once(start).flatten().boxed()
    }
}

/// Trouble that may pass is met again at the next tick.
fn later<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(error) if !error.is_retryable() => Err(error),
        _ => Ok(()),
    }
}
