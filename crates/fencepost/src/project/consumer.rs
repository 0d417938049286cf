//! A consumer: a handler's place in a feed under a name, what it is allowed, and what operators do to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names;
use super::parked::{Lot, Parked};
use super::share::partition_of;
use super::window::Low;
use crate::env::Env;
use crate::error::{Error, Refused, Result};
use crate::event::Recorded;
use crate::feed::{Delivery, Feed, From};
use crate::position::{Checkpoint, Position};
use crate::query::Query;
use crate::state::{CellKey, CellKind, Cells, Lease, check_name, seen};

/// What becomes of an event that its handler has failed on, after all attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It is set aside with the reason, and the consumer goes on. Later events under the same key are set aside behind it, so that order
    /// holds: once it is retried or skipped, they follow.
    #[default]
    Park,
    /// The consumer ends before it.
    Stop,
}

type Keys = Arc<dyn Fn(&Recorded) -> Vec<String> + Send + Sync>;

/// Follows a feed under a name: first what is there, then what comes, from where it was left.
///
/// Every event is handed to the handler at least once, in order under each key, and different keys at the same time. Its place is saved
/// behind what is done, never before. Instances that run under the same name divide the partitions among themselves by leases; with one
/// partition, all but one stand by. A clone is the same consumer.
///
/// ```
/// use std::sync::Arc;
/// use fencepost::{Append, Consumer, Ended, Env, Event, EventLog, Memory};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencepost::Result<()> {
/// let store = Arc::new(Memory::new());
/// EventLog::append(&*store, Append::new([Event::new("Greeted", "{}")?.tag("guest:1")?])).await?;
/// let consumer = Consumer::new("mailer", store.clone(), store.clone(), Env::system())?;
/// let (tell, told) = futures::channel::oneshot::channel();
/// let tell = std::sync::Mutex::new(Some(tell));
/// let ended = consumer
///     .run_until(
///         |event| {
///             assert_eq!(event.event_type.as_str(), "Greeted");
///             tell.lock().unwrap().take().map(|tell| tell.send(()));
///             async { Ok::<_, String>(()) }
///         },
///         async { drop(told.await) },
///     )
///     .await?;
/// assert!(matches!(ended, Ended::Stopped));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Consumer {
    pub(super) name: String,
    pub(super) feed: Arc<dyn Feed>,
    pub(super) cells: Arc<dyn Cells>,
    pub(super) env: Env,
    pub(super) query: Query,
    pub(super) start: From,
    pub(super) concurrency: usize,
    pub(super) read_ahead: usize,
    pub(super) save_events: u64,
    pub(super) save_time: Duration,
    pub(super) attempts: u32,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
    pub(super) on_failure: OnFailure,
    pub(super) most_parked: usize,
    pub(super) partitions: Option<u32>,
    pub(super) lease: Duration,
    /// None: the first tag.
    pub(super) keys: Option<Keys>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("name", &self.name).field("query", &self.query).finish_non_exhaustive()
    }
}

/// What is stored of a consumer as a whole, in cell 0 of its leases; partition p is cell p + 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Fixed {
    pub(super) partitions: u32,
    pub(super) query: Query,
    /// What "now" was when it first ran, where it began then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<Checkpoint>,
    /// It has keys of its own, which only its program knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) own_keys: bool,
}

/// What goes with the lease of a partition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<Checkpoint>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) rewound: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<Position>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recorded_at: Option<Timestamp>,
}

impl Progress {
    pub(super) fn of(low: &Low) -> serde_json::Value {
        let (position, recorded_at) = low.last.unzip();
        // Plain fields: there is nothing to fail.
        serde_json::to_value(Progress { checkpoint: low.checkpoint.clone(), rewound: low.rewound, position, recorded_at })
            .unwrap_or_default()
    }
    pub(super) fn read(key: &CellKey, content: &serde_json::Value) -> Result<Progress> {
        match content {
            serde_json::Value::Null => Ok(Progress::default()),
            content => Progress::deserialize(content).map_err(|_| Error::corrupt("cells", format!("{key}: not a consumer's progress"))),
        }
    }
    pub(super) fn low(self) -> Low {
        Low { checkpoint: self.checkpoint, rewound: self.rewound, last: self.position.zip(self.recorded_at), finished: 0 }
    }
}

/// A consumer as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// What it follows.
    pub query: Query,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
    /// How many events it has parked.
    pub parked: usize,
}

/// A partition of a consumer as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// Its number, from 0.
    pub partition: u32,
    /// The instance that works on it, or last did and died.
    pub holder: Option<Uuid>,
    /// Whether it is paused.
    pub paused: bool,
    /// Behind what is done.
    pub checkpoint: Option<Checkpoint>,
    /// The last event that is done.
    pub position: Option<Position>,
    /// When that event was recorded.
    pub recorded_at: Option<Timestamp>,
}

/// How far a consumer or projection is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lag {
    /// Events that match and are not done.
    pub events: u64,
    /// There are more than were counted; or the feed does not show all of the log yet, and more may match of the rest.
    pub more: bool,
    /// It may be less: of a consumer with keys of its own, which were not given here.
    pub at_most: bool,
    /// For how long the oldest of them has waited, or the oldest that the feed does not show, by the clocks of its writer and of this process.
    pub seconds: f64,
}

impl Lag {
    /// What the log has and the feed does not show, before anything is counted: what is shown meanwhile counts twice rather than not at all.
    pub(super) async fn unshown(feed: &dyn Feed, env: &Env) -> Result<Lag> {
        let since = feed.unshown_since().await?;
        Ok(Lag { more: since.is_some(), seconds: since.map_or(0.0, |since| waited(since, env)), ..Lag::default() })
    }

    /// Both together.
    pub(super) fn and(self, other: Lag) -> Lag {
        Lag {
            events: self.events + other.events,
            more: self.more || other.more,
            at_most: self.at_most || other.at_most,
            seconds: self.seconds.max(other.seconds),
        }
    }

    /// What matches and counts behind a place, counting at most so many.
    pub(super) async fn behind(
        feed: &dyn Feed,
        from: From,
        query: &Query,
        count_to: u64,
        env: &Env,
        counts: impl Fn(&Recorded) -> bool,
    ) -> Result<Lag> {
        let mut lag = Lag::default();
        let mut oldest: Option<Timestamp> = None;
        let mut deliveries = feed.subscribe(from, query.clone());
        while let Some(Delivery::Event { event, .. }) = deliveries.next().await.transpose()? {
            if !counts(&event) {
                continue;
            }
            oldest = oldest.into_iter().chain([event.recorded_at]).min();
            lag.more = lag.events >= count_to;
            if lag.more {
                break;
            }
            lag.events += 1;
        }
        lag.seconds = oldest.map_or(0.0, |oldest| waited(oldest, env));
        Ok(lag)
    }
}

fn waited(since: Timestamp, env: &Env) -> f64 {
    env.now().duration_since(since).as_secs_f64().max(0.0)
}

impl Consumer {
    /// How long an instance may be silent, if [`Consumer::lease`] does not say. It writes five times in it, and looks at the others four times.
    pub const LEASE: Duration = Duration::from_secs(15);
    /// After how many events it saves its place, if [`Consumer::save_every`] does not say,
    pub const SAVE_EVENTS: u64 = 100;
    /// and after how long.
    pub const SAVE_TIME: Duration = Duration::from_secs(1);

    /// A consumer of this feed, with its place in these cells. Nothing is called yet.
    pub fn new(name: &str, feed: Arc<dyn Feed>, cells: Arc<dyn Cells>, env: Env) -> Result<Self> {
        check_name("consumer", name)?;
        Ok(Self {
            name: name.into(),
            feed,
            cells,
            env,
            query: Query::all(),
            start: From::Start,
            concurrency: 16,
            read_ahead: 256,
            save_events: Self::SAVE_EVENTS,
            save_time: Self::SAVE_TIME,
            attempts: 5,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            on_failure: OnFailure::Park,
            most_parked: 10_000,
            partitions: None,
            lease: Self::LEASE,
            keys: None,
        })
    }

    /// Only what matches. A query that is changed later counts for what comes after.
    pub fn query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }
    /// Where to begin when it runs for the first time: with the first event, if not said. Now is when the first of its instances began, for all.
    pub fn start(mut self, from: From) -> Self {
        self.start = from;
        self
    }
    /// How many events are handled at the same time: 16, if not said.
    pub fn concurrency(mut self, events: usize) -> Self {
        self.concurrency = events.max(1);
        self
    }
    /// How many events are read and not finished, at most: 256, if not said. Behind one that takes long, eight times as many are handled before
    /// the others wait for it.
    pub fn read_ahead(mut self, events: usize) -> Self {
        self.read_ahead = events.max(1);
        self
    }
    /// Saves its place after so many events, or so long: 100 and a second, if not said. Each save writes every partition that is held.
    pub fn save_every(mut self, events: u64, time: Duration) -> Self {
        (self.save_events, self.save_time) = (events.max(1), time);
        self
    }
    /// How often an event is tried, and the pauses between, which double: 5 times, 100 ms up to 30 s, if not said.
    pub fn retry(mut self, attempts: u32, first_pause: Duration, longest_pause: Duration) -> Self {
        (self.attempts, self.first_pause, self.longest_pause) = (attempts.max(1), first_pause, longest_pause);
        self
    }
    /// What becomes of an event when all attempts failed: parked, if not said.
    pub fn on_failure(mut self, then: OnFailure) -> Self {
        self.on_failure = then;
        self
    }
    /// It ends when it would have to park more events than this, those that wait behind another among them: 10,000, if not said.
    pub fn park_at_most(mut self, events: usize) -> Self {
        self.most_parked = events;
        self
    }
    /// The keys of an event: events that share one are handled in order, others at the same time. The first one chooses the partition, and
    /// only within a partition can order be held. If not said, its first tag in byte order; events without a key go in order among themselves.
    pub fn keys(mut self, keys: impl Fn(&Recorded) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.keys = Some(Arc::new(keys));
        self
    }
    /// Into how many parts instances divide the work: fixed at first use, 1 if not said then.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = Some(partitions);
        self
    }
    /// Within which an instance that dies is replaced by another: 15 s, if not said. One that is silent for three fifths of it, since it is cut off
    /// or stands still, begins nothing more by itself, and another takes its partitions.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length.max(Duration::from_millis(20));
        self
    }

    // A beat is seen by the next look, a quarter of the lease after it at most, and is taken for the last once it was there for the length of a
    // silence: after 17/20 of the lease in all. What is left is for the requests themselves. Only the silence is stored with the lease, and
    // waited out by others; that nobody writes in another's place rests on compare-and-set alone.

    /// How long an instance may be silent before another takes its partitions.
    pub(super) fn silence(&self) -> Duration {
        self.lease * 3 / 5
    }
    /// How long it is silent where nothing happens.
    pub(super) fn beat(&self) -> Duration {
        self.lease / 5
    }
    /// How long until it looks at the others' partitions again.
    pub(super) fn look(&self) -> Duration {
        self.lease / 4
    }
    /// The least pause between two of each kind, where the last was in vain.
    pub(super) fn breath(&self) -> Duration {
        self.lease / 20
    }

    /// The names of all consumers that have run on these cells.
    pub async fn names(cells: &dyn Cells) -> Result<Vec<String>> {
        names::all(cells, names::CONSUMERS).await
    }

    pub(super) fn keys_of(&self, event: &Recorded) -> Vec<String> {
        let keys = match &self.keys {
            Some(keys) => keys(event),
            None => event.tags.first().map(|tag| tag.to_string()).into_iter().collect(),
        };
        if keys.is_empty() { vec![String::new()] } else { keys }
    }
    pub(super) fn cell(&self, number: u64) -> Result<CellKey> {
        CellKey::new(CellKind::Lease, &self.name, number)
    }
    pub(super) fn partition_cell(&self, partition: u32) -> Result<CellKey> {
        self.cell(u64::from(partition) + 1)
    }

    /// What is fixed for it; none where it has never run.
    pub(super) async fn fixed(&self) -> Result<Option<Fixed>> {
        let key = self.cell(0)?;
        let Some(cell) = self.cells.load(&key).await? else { return Ok(None) };
        let fixed = serde_json::from_slice(&cell.body).map_err(|_| Error::corrupt("cells", format!("{key}: not a consumer")))?;
        Ok(Some(fixed))
    }

    /// Whether an event may be of one of these partitions. Who was not given the keys that the consumer has cannot know, and takes all for theirs.
    pub(super) fn is_of(&self, event: &Recorded, partitions: &[u32], fixed: &Fixed) -> bool {
        let unknown = fixed.own_keys && self.keys.is_none();
        unknown || partitions.contains(&partition_of(&self.keys_of(event)[0], fixed.partitions))
    }

    /// Fixes it at first use, and says what is fixed.
    pub(super) async fn fix(&self) -> Result<Fixed> {
        let key = self.cell(0)?;
        loop {
            let cell = self.cells.load(&key).await?;
            let known = self.fixed().await?;
            let partitions = known.as_ref().map_or(self.partitions.unwrap_or(1).clamp(1, 1024), |fixed| fixed.partitions);
            if let Some(given) = self.partitions.filter(|given| *given != partitions) {
                let (given, stored) = (given.to_string(), partitions.to_string());
                return Err(Refused::Differs { what: "the number of partitions", given, stored }.into());
            }
            // Once and for all partitions: one that is first claimed later would miss what came in between.
            let start = match (&known, &self.start) {
                (Some(known), _) => known.start.clone(),
                (None, From::Now) => Some(now(&*self.feed).await?),
                (None, _) => None,
            };
            let fixed = Fixed { partitions, query: self.query.clone(), start, own_keys: self.keys.is_some() };
            if known.as_ref() == Some(&fixed) {
                return Ok(fixed);
            }
            if known.is_none() {
                names::register(&*self.cells, names::CONSUMERS, &self.name).await?;
            }
            self.cells.save(&key, &serde_json::to_vec(&fixed).unwrap_or_default().into(), cell.map(|cell| cell.revision)).await?;
        }
    }

    async fn must_be_fixed(&self) -> Result<Fixed> {
        let none = || Refused::Malformed { what: "consumer", why: format!("{} has never run here", self.name) };
        Ok(self.fixed().await?.ok_or_else(none)?)
    }

    /// How it stands; none where it has never run.
    pub async fn status(&self) -> Result<Option<ConsumerStatus>> {
        let Some(fixed) = self.fixed().await? else { return Ok(None) };
        let cells = self.cells.list(CellKind::Lease, &self.name).await?;
        let mut partitions = Vec::new();
        for partition in 0..fixed.partitions {
            let key = self.partition_cell(partition)?;
            let cell = cells.iter().find(|cell| cell.number == key.number());
            let seen = cell.map(|cell| seen(&key, cell)).transpose()?;
            let progress = seen.as_ref().map(|seen| Progress::read(&key, &seen.content)).transpose()?.unwrap_or_default();
            partitions.push(PartitionStatus {
                partition,
                holder: seen.as_ref().and_then(|seen| seen.holder),
                paused: seen.is_some_and(|seen| seen.barred),
                checkpoint: progress.checkpoint,
                position: progress.position,
                recorded_at: progress.recorded_at,
            });
        }
        Ok(Some(ConsumerStatus { name: self.name.clone(), query: fixed.query, partitions, parked: self.parked().await?.len() }))
    }

    /// Pauses it, on whatever machine it runs. Each instance learns of it with its next save, within a fifth of its lease: from then on nothing
    /// begins, what runs is finished and saved, and [`PartitionStatus::holder`] is none until it is resumed.
    pub async fn pause(&self) -> Result<()> {
        self.bar(true).await
    }
    /// Lets it go on.
    pub async fn resume(&self) -> Result<()> {
        self.bar(false).await
    }
    async fn bar(&self, barred: bool) -> Result<()> {
        for partition in 0..self.must_be_fixed().await?.partitions {
            Lease::bar(&self.cells, &self.partition_cell(partition)?, barred).await?;
        }
        Ok(())
    }

    /// Moves it to another place, running or not; a checkpoint of another feed is refused, and nothing is moved. What runs meanwhile is not counted: its save is refused, and it begins at the new place.
    /// Parked events stay parked.
    pub async fn rewind(&self, to: From) -> Result<()> {
        let (checkpoint, rewound) = match to {
            From::Start => (None, true),
            From::Checkpoint(checkpoint) => {
                // Every instance would end on one that the feed does not take, and the old place be gone.
                let from = From::Checkpoint(checkpoint.clone());
                self.feed.subscribe(from, self.query.clone()).next().await.transpose()?;
                (Some(checkpoint), false)
            }
            From::Now => (Some(now(&*self.feed).await?), false),
        };
        let low = Low { checkpoint, rewound, ..Low::default() };
        for partition in 0..self.must_be_fixed().await?.partitions {
            Lease::reset(&self.cells, &self.partition_cell(partition)?, &Progress::of(&low)).await?;
        }
        Ok(())
    }

    /// Its parked events, the earliest first.
    pub async fn parked(&self) -> Result<Vec<Parked>> {
        let mut lot = Lot::new(self.cells.clone(), &self.name);
        lot.load().await?;
        Ok(lot.all().cloned().collect())
    }
    /// Has a parked event tried again by the instance that runs; those that wait behind it follow.
    pub async fn retry_parked(&self, number: u64) -> Result<()> {
        let mut lot = Lot::new(self.cells.clone(), &self.name);
        if lot.change(number, |parked| Parked { released: true, ..parked }).await? { Ok(()) } else { Err(lot.missing(number)) }
    }
    /// Gives a parked event up for good: it is never handled, unless a try of it is under way; those that wait behind it follow.
    pub async fn skip_parked(&self, number: u64) -> Result<()> {
        let mut lot = Lot::new(self.cells.clone(), &self.name);
        if lot.change(number, |parked| Parked { skipped: true, ..parked }).await? { Ok(()) } else { Err(lot.missing(number)) }
    }

    /// How far it is behind, counting at most so many events: reads the feed from its place on, and so costs what they cost. Where its partitions
    /// stand at several places and it has keys that were not given here ([`Consumer::keys`]), it is all behind the last of them: an upper bound.
    /// Where the feed is an index, the stream is looked at for what that lacks ([`Feed::unshown_since`]): not counted, but told.
    pub async fn lag(&self, count_to: u64) -> Result<Lag> {
        let fixed = self.must_be_fixed().await?;
        let unknown = fixed.own_keys && self.keys.is_none();
        let mut lag = Lag::unshown(&*self.feed, &self.env).await?;
        let places = self.places(&fixed).await?;
        lag.at_most = unknown && places.len() > 1;
        for (from, partitions) in places {
            let left = if unknown { count_to } else { count_to - lag.events };
            let behind =
                Lag::behind(&*self.feed, from, &fixed.query, left, &self.env, |event| self.is_of(event, &partitions, &fixed)).await?;
            lag.events = if unknown { lag.events.max(behind.events) } else { lag.events + behind.events };
            lag.more |= behind.more;
            lag.seconds = lag.seconds.max(behind.seconds);
        }
        Ok(lag)
    }

    /// The partitions by the places that they are at.
    pub(super) async fn places(&self, fixed: &Fixed) -> Result<Vec<(From, Vec<u32>)>> {
        let cells = self.cells.list(CellKind::Lease, &self.name).await?;
        let mut places: BTreeMap<(u8, Option<String>), (From, Vec<u32>)> = BTreeMap::new();
        for partition in 0..fixed.partitions {
            let key = self.partition_cell(partition)?;
            let cell = cells.iter().find(|cell| cell.number == key.number());
            let progress = match cell {
                Some(cell) => Progress::read(&key, &seen(&key, cell)?.content)?,
                None => Progress::default(),
            };
            let from = self.from(fixed, progress.checkpoint, progress.rewound);
            places.entry(place(&from)).or_insert((from, Vec::new())).1.push(partition);
        }
        Ok(places.into_values().collect())
    }

    /// Where to read on.
    pub(super) fn from(&self, fixed: &Fixed, checkpoint: Option<Checkpoint>, rewound: bool) -> From {
        match checkpoint {
            Some(checkpoint) => From::Checkpoint(checkpoint),
            None if rewound => From::Start,
            None => fixed.start.clone().map_or_else(|| self.start.clone(), From::Checkpoint),
        }
    }
}

/// A place, to tell it from others.
pub(super) fn place(from: &From) -> (u8, Option<String>) {
    match from {
        From::Start => (0, None),
        From::Now => (1, None),
        From::Checkpoint(checkpoint) => (2, Some(checkpoint.to_string())),
    }
}

/// The end of a feed as it is now.
pub(super) async fn now(feed: &dyn Feed) -> Result<Checkpoint> {
    let mut deliveries = feed.subscribe(From::Now, Query::all());
    match deliveries.next().await.transpose()? {
        Some(Delivery::Event { checkpoint, .. } | Delivery::CaughtUp { checkpoint }) => Ok(checkpoint),
        None => Err(Error::corrupt("feed", "it ended")),
    }
}
