//! A consumer at work: reads ahead, hands out in order, saves behind what is done, and shares partitions with other instances by leases.

mod hold;
mod parking;
mod sharing;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, Either, FutureExt, select};
use futures::stream::{self, BoxStream, FuturesUnordered};

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

pub(super) use self::hold::{Hold, Leave};
use super::attempt::{ToPark, Trouble, handle, pause};
use super::consumer::{Consumer, Fixed, OnFailure};
use super::parked::{Lot, Parked, shares};
use super::share::partition_of;
use super::window::{Ready, Window};
use crate::error::Result;
use crate::event::{EventType, Recorded};
use crate::feed::{Delivery, From};
use crate::position::{Checkpoint, Position};
use crate::state::Watch;

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
            next_to_read: 0,
            next_to_begin: 0,
            jobs: FuturesUnordered::new(),
            at_work: BTreeMap::new(),
            lot: Lot::new(self.cells.clone(), &self.name),
            to_park: Vec::new(),
            is_parking_late: false,
            retrying: BTreeMap::new(),
            failed: None,
            stop: watch::Sender::new(false),
            saved: Instant::now(),
            looked: None,
            is_lot_known: false,
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
    holds: BTreeMap<u32, Hold>,
    window: Window,
    feed: BoxStream<'static, Result<Delivery>>,
    /// Errors of the feed in a row.
    errors: u32,
    /// Whether all that there was has been read.
    caught_up: bool,
    /// The place as last saved, and the events finished by then.
    saved: (Option<Checkpoint>, u64),
}

impl Group {
    /// The partition is another's by now, or anybody's.
    fn give_up(&mut self, partition: u32) {
        self.holds.remove(&partition);
        self.window.drop_all_of(partition);
    }

    /// The next event that may begin.
    fn next(&mut self, stop: &watch::Sender<bool>) -> Option<(Ready, Leave)> {
        self.window.next(|partition| self.holds.get(&partition)?.to_begin(stop))
    }

    /// Nothing is unfinished, and the feed stands where the mark is.
    fn idle_at(&self) -> Option<&Checkpoint> {
        let low = self.window.low().checkpoint.as_ref();
        low.filter(|low| self.window.unfinished() == 0 && !self.holds.values().any(Hold::is_leaving) && self.window.read() == Some(*low))
    }
}

enum Job {
    Handled { group: u64, ready: Ready, outcome: Result<(), Trouble> },
    Retried { number: u64, event: Uuid, partition: u32, outcome: Result<Result<(), Trouble>> },
}

enum Turn {
    Until,
    Tick,
    /// Nothing comes, and something is to be parked.
    Idle,
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
    /// Which group is first to be read, and which is first to begin something: the one behind the last that did, so that each has its turn.
    next_to_read: usize,
    next_to_begin: usize,
    jobs: FuturesUnordered<BoxFuture<'a, Job>>,
    /// How many jobs are of each partition, held or lost meanwhile.
    at_work: BTreeMap<u32, usize>,
    lot: Lot,
    /// What is to be parked, together with the renewal of its lease.
    to_park: Vec<ToPark>,
    /// It could not be stored, and is tried again with the next tick.
    is_parking_late: bool,
    /// Parked events that are being tried again, and their keys: nothing that shares one begins meanwhile, even if they are skipped.
    retrying: BTreeMap<u64, Vec<String>>,
    failed: Option<Failed>,
    stop: watch::Sender<bool>,
    /// When places were last saved.
    saved: Instant,
    /// When the last look at the leases began and ended.
    looked: Option<(Instant, Instant)>,
    /// What is parked was listed since a partition was last taken: before that nothing of it is read, and nothing begins.
    is_lot_known: bool,
}

impl<'a, F, Fut, E> Runner<'a, F>
where
    F: Fn(Handed) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), E>> + Send + 'a,
    E: Display + Send + 'a,
{
    async fn work(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>) -> Result<()> {
        let env = self.consumer.env.clone();
        let mut tick = env.sleep(Duration::ZERO).boxed();
        loop {
            self.dispatch();
            if *self.stop.borrow() && self.jobs.is_empty() {
                self.park().await?;
                return Ok(());
            }
            let mut is_time = false;
            match self.turn(until.as_mut(), &mut tick).await {
                Turn::Until => drop(self.stop.send_replace(true)),
                Turn::Tick => {
                    self.tick().await?;
                    let (env, pause) = (env.clone(), self.until_tick());
                    tick = async move { env.sleep(pause).await }.boxed();
                    is_time = true;
                }
                Turn::Idle => is_time = true,
                Turn::Job(job) => self.finished(job).await?,
                Turn::Delivered(group, delivery) => self.delivered(group, delivery)?,
            }
            if is_time || (!self.is_parking_late && self.is_parking_due()) {
                self.is_parking_late = !self.park().await?;
            }
            if self.is_due() {
                self.save().await?;
            }
            self.leave().await?;
        }
    }

    /// What happens next. Finished work comes first, so that the window moves before more is read; what is to be parked comes last, so that
    /// all that there is goes together.
    async fn turn(&mut self, mut until: Pin<&mut (impl Future<Output = ()> + Send)>, tick: &mut BoxFuture<'_, ()>) -> Turn {
        let is_idle = !self.to_park.is_empty() && !self.is_parking_late;
        let (jobs, groups, stopping, read_ahead) = (&mut self.jobs, &mut self.groups, *self.stop.borrow(), self.consumer.read_ahead);
        let (next_to_read, is_lot_known) = (&mut self.next_to_read, self.is_lot_known);
        poll_fn(|context| {
            // Before what is finished, of which there may be no end: leases wait for nobody.
            if tick.poll_unpin(context).is_ready() {
                return Poll::Ready(Turn::Tick);
            }
            if let Poll::Ready(Some(job)) = jobs.poll_next_unpin(context) {
                return Poll::Ready(Turn::Job(job));
            }
            if stopping {
                return if is_idle { Poll::Ready(Turn::Idle) } else { Poll::Pending };
            }
            if until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Until);
            }
            for at in in_turn(if is_lot_known { groups.len() } else { 0 }, *next_to_read) {
                let group = &mut groups[at];
                if !group.holds.values().all(Hold::is_leaving)
                    && !group.window.is_full(read_ahead)
                    && let Poll::Ready(delivery) = group.feed.poll_next_unpin(context)
                {
                    *next_to_read = at + 1;
                    return Poll::Ready(Turn::Delivered(at, delivery));
                }
            }
            if is_idle { Poll::Ready(Turn::Idle) } else { Poll::Pending }
        })
        .await
    }

    fn delivered(&mut self, at: usize, delivery: Option<Result<Delivery>>) -> Result<()> {
        let Some(group) = self.groups.get_mut(at) else { return Ok(()) };
        match delivery {
            Some(Ok(Delivery::Event { event, checkpoint })) => {
                (group.errors, group.caught_up) = (0, false);
                let keys = self.consumer.keys_of(&event);
                let partition = partition_of(&keys[0], self.partitions);
                let mine = group.holds.contains_key(&partition);
                // Parked before a crash, and read again after it: it waits where it is.
                if mine && !self.lot.holds(event.id) {
                    group.window.push(event, keys, partition, checkpoint);
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

    /// Begins what may begin: nothing under a lease that may be another's by now, or is to be given up.
    fn dispatch(&mut self) {
        if *self.stop.borrow() || !self.is_lot_known {
            return;
        }
        let consumer = self.consumer;
        let mut set_aside: HashSet<String> = self.to_park.iter().flat_map(|one| one.parked.keys.clone()).collect();
        while self.jobs.len() < consumer.concurrency
            && let Some((at, ready, leave)) = self.next()
        {
            let (id, partition) = (self.groups[at].id, ready.partition);
            let behind_another = self.lot.blocks(&ready.keys) || ready.keys.iter().any(|key| set_aside.contains(key));
            if behind_another || self.retrying.values().any(|keys| shares(keys, &ready.keys)) {
                if self.is_full() {
                    let reason = format!("it would wait behind a parked event, and {} are parked", consumer.most_parked);
                    return self.fail(Failed::new(&ready.event, 0, reason));
                }
                // All of them that were read at once, each behind the one before it.
                self.groups[at].window.set_aside(ready.sequence);
                set_aside.extend(ready.keys.iter().cloned());
                let parked = Parked::new(&ready.event, ready.keys, ready.before, consumer.env.now());
                self.to_park.push(ToPark { group: id, sequence: ready.sequence, partition, parked });
            } else {
                let handed = Handed { event: (*ready.event).clone(), checkpoint: ready.checkpoint.clone(), attempt: 0 };
                let handle = handle(consumer, self.handler, handed, leave);
                self.begin(partition, async move { Job::Handled { group: id, ready, outcome: handle.await } }.boxed());
            }
        }
    }

    /// What may begin next, of each group in turn: one that has no end of events leaves room for the others.
    fn next(&mut self) -> Option<(usize, Ready, Leave)> {
        for at in in_turn(self.groups.len(), self.next_to_begin) {
            if let Some((ready, leave)) = self.groups[at].next(&self.stop) {
                self.next_to_begin = at + 1;
                return Some((at, ready, leave));
            }
        }
        None
    }

    fn begin(&mut self, partition: u32, job: BoxFuture<'a, Job>) {
        *self.at_work.entry(partition).or_default() += 1;
        self.jobs.push(job);
    }
    fn ended(&mut self, partition: u32) {
        if let Some(jobs) = self.at_work.get_mut(&partition) {
            *jobs -= 1;
        }
        self.at_work.retain(|_, jobs| *jobs > 0);
    }

    /// It is to end before this event.
    fn fail(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed);
        self.stop.send_replace(true);
    }

    async fn finished(&mut self, job: Job) -> Result<()> {
        match job {
            Job::Handled { group: id, ready, outcome } => {
                let partition = ready.partition;
                self.ended(partition);
                let held = |group: &&mut Group| group.id == id && group.holds.contains_key(&partition);
                // What is gone was lost to another instance, which handles it again: whatever came of it here.
                let Some(group) = self.groups.iter_mut().find(held) else { return Ok(()) };
                match outcome {
                    Ok(()) => group.window.finish(ready.sequence),
                    // Its place stays before it.
                    Err(Trouble::Abandoned) => {}
                    Err(Trouble::Failed { reason, attempts }) => {
                        if self.consumer.on_failure == OnFailure::Stop || self.is_full() {
                            self.fail(Failed::new(&ready.event, attempts, reason));
                        } else {
                            let parked = Parked::new(&ready.event, ready.keys, ready.before, self.consumer.env.now());
                            let parked = parked.failed(reason, attempts);
                            self.to_park.push(ToPark { group: id, sequence: ready.sequence, partition, parked });
                        }
                    }
                }
            }
            Job::Retried { number, event, partition, outcome } => {
                self.ended(partition);
                self.retrying.remove(&number);
                let failed = match outcome {
                    Ok(Ok(())) => None,
                    Ok(Err(Trouble::Failed { reason, attempts })) => Some((reason, attempts)),
                    Err(error) if !error.is_retryable() => Some((error.to_string(), 1)),
                    // It was not tried to an end: again after the next look.
                    Ok(Err(Trouble::Abandoned)) | Err(_) => return Ok(()),
                };
                // What is not stored is tried again.
                later(self.tried(number, event, partition, failed.as_ref()).await)?;
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

    /// When places are to be saved: after the time that was said, or when a lease has been silent for a while.
    fn next_save(&self) -> Instant {
        let consumer = self.consumer;
        let beats = self.groups.iter().flat_map(|group| group.holds.values()).map(|hold| hold.spoke() + consumer.beat());
        let due = self.saved + consumer.save_time;
        beats.min().map_or(due, |beat| due.min(beat.max(self.saved + consumer.breath())))
    }
    /// When partitions are to be looked at: every so often, or when one that is watched will have been silent for too long. The first time, at once.
    fn next_look(&self) -> Option<Instant> {
        let (began, ended) = self.looked?;
        let due = began + self.consumer.look();
        let due = self.watch.next_silence(began).map_or(due, |end| due.min(end));
        Some(due.max(ended + self.consumer.breath()))
    }
    fn until_tick(&self) -> Duration {
        let look = self.next_look().filter(|_| !*self.stop.borrow());
        let next = look.map_or(self.next_save(), |look| look.min(self.next_save()));
        next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    async fn tick(&mut self) -> Result<()> {
        self.save_if_due().await?;
        let began = Instant::now();
        let looks = self.next_look().is_none_or(|due| began >= due) && !*self.stop.borrow();
        if looks {
            later(self.claim().await)?;
        }
        let is_unknown = !self.is_lot_known && !self.groups.is_empty();
        if is_unknown || (looks && !self.lot.is_empty()) {
            later(self.list().await)?;
        }
        if looks {
            self.looked = Some((began, Instant::now()));
            // A look may take long: nothing begins under a lease that was silent meanwhile.
            self.save_if_due().await?;
            self.retry_due();
            later(self.forget().await)?;
        }
        Ok(())
    }

    async fn save_if_due(&mut self) -> Result<()> {
        if Instant::now() >= self.next_save() { self.save().await } else { Ok(()) }
    }

    /// Waits for what may take long, and renews the leases meanwhile.
    async fn meanwhile<T>(&mut self, long: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let (env, mut long) = (self.consumer.env.clone(), std::pin::pin!(long));
        loop {
            let pause = self.next_save().saturating_duration_since(Instant::now());
            match select(long.as_mut(), env.sleep(pause).boxed()).await {
                Either::Left((done, _)) => return done,
                Either::Right(_) => self.save().await?,
            }
        }
    }

    /// What is parked, as it is now.
    async fn list(&mut self) -> Result<()> {
        let listed = self.meanwhile(Lot::list(self.consumer.cells.clone(), self.consumer.name.clone())).await?;
        self.lot.fill(listed);
        self.is_lot_known = true;
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

/// All of so many, from this one on.
fn in_turn(count: usize, first: usize) -> impl Iterator<Item = usize> {
    (first..first + count).map(move |at| at % count)
}

/// Trouble that may pass is met again at the next tick.
fn later<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(error) if !error.is_retryable() => Err(error),
        _ => Ok(()),
    }
}
