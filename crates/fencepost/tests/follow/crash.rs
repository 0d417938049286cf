//! A process that dies, in process: at a named point it stops for ever, and the test drops what ran. Or it stops for a while, and wakes late.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fencepost::{Cell, CellKey, CellKind, CellWrite, Cells, Delivery, Env, Feed, From, Position, Query, Result, Revision};
use futures::StreamExt;
use futures::future::select;
use futures::stream::BoxStream;
use tokio::sync::watch;

/// Where a process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    BeforeSave(CellKind),
    /// It was stored, and nobody heard of it.
    AfterSave(CellKind),
    BeforeDelete,
    AfterDelete,
    /// With an event in hand.
    InFeed,
    BeforeEffect,
    AfterEffect,
}

pub(crate) const POINTS: &[Point] = &[
    Point::BeforeSave(CellKind::Lease),
    Point::AfterSave(CellKind::Lease),
    Point::BeforeSave(CellKind::Parked),
    Point::AfterSave(CellKind::Parked),
    Point::BeforeDelete,
    Point::AfterDelete,
    Point::InFeed,
    Point::BeforeEffect,
    Point::AfterEffect,
];

/// Stops whoever comes to the point for the nth time.
#[derive(Debug, Clone)]
pub(crate) struct Fate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    plan: Mutex<Option<(Point, u64)>>,
    struck: watch::Sender<bool>,
    woken: watch::Sender<bool>,
}

impl Fate {
    pub(crate) fn new(point: Point, nth: u64) -> Self {
        let plan = Mutex::new(Some((point, nth)));
        Self(Arc::new(Shared { plan, struck: watch::Sender::new(false), woken: watch::Sender::new(false) }))
    }

    pub(crate) async fn at(&self, point: Point) {
        let strikes = {
            let mut plan = self.0.plan.lock().expect("it must succeed");
            match &mut *plan {
                Some((at, 0)) if *at == point => {
                    *plan = None;
                    true
                }
                Some((at, left)) if *at == point => {
                    *left -= 1;
                    false
                }
                _ => false,
            }
        };
        // All of a process stops at once: what comes to any point after the first stroke stops too.
        if strikes || *self.0.struck.borrow() {
            self.0.struck.send_replace(true);
            self.0.woken.subscribe().wait_for(|woken| *woken).await.expect("the sender lives here");
        }
    }

    /// Ends once it has struck.
    pub(crate) async fn struck(&self) {
        self.0.struck.subscribe().wait_for(|struck| *struck).await.expect("the sender lives here");
    }

    fn has_struck(&self) -> bool {
        *self.0.struck.borrow()
    }

    /// It was a pause, not a death.
    pub(crate) fn wake(&self) {
        self.0.struck.send_replace(false);
        self.0.woken.send_replace(true);
    }

    pub(crate) fn cells(&self, inner: &Arc<dyn Cells>) -> Arc<dyn Cells> {
        Arc::new(Mortal(inner.clone(), self.clone()))
    }
    pub(crate) fn feed(&self, inner: &Arc<dyn Feed>) -> Arc<dyn Feed> {
        Arc::new(MortalFeed(inner.clone(), self.clone()))
    }
}

/// Where the processes of a test died, round by round: told when it fails.
#[derive(Debug)]
pub(crate) struct Deaths {
    of: String,
    /// The point, how often it was passed before, and whether it came.
    rounds: Mutex<Vec<(Point, u64, bool)>>,
    /// How long a point is waited for: twice as long after one that did not come, since a machine may be busy and an engine slow.
    patience: Mutex<Duration>,
}

const PATIENCE: Duration = Duration::from_millis(50);
const MOST_PATIENCE: Duration = Duration::from_secs(2);

impl Deaths {
    pub(crate) fn of(name: String) -> Self {
        Deaths { of: name, rounds: Mutex::default(), patience: Mutex::new(PATIENCE) }
    }

    fn rounds(&self) -> MutexGuard<'_, Vec<(Point, u64, bool)>> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of these points, and how often it is passed before.
    pub(crate) fn choose(&self, points: &[Point], chance: &Env, times: u64) -> Fate {
        let point = points[usize::try_from(chance.below(points.len() as u64)).expect("small")];
        let passed = chance.below(times);
        self.rounds().push((point, passed, false));
        Fate::new(point, passed)
    }

    /// Ends when it has struck. A point that does not come is no reason to wait: whoever runs is killed where it is.
    pub(crate) async fn struck(&self, fate: &Fate) {
        let patience = *self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        select(Box::pin(fate.struck()), Box::pin(Env::system().sleep(patience))).await;
        let struck = fate.has_struck();
        let next = if struck { patience.mul_f32(0.8).max(PATIENCE) } else { (patience * 2).min(MOST_PATIENCE) };
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = next;
        if let Some(last) = self.rounds().last_mut() {
            last.2 = struck;
        }
    }

    /// So many died where they were to (not all: some wait for a lease that another holds), and somebody died at each of the points.
    #[track_caller]
    pub(crate) fn assert_met(all: &[Deaths], points: &[Point], at_least: usize) {
        let rounds: Vec<_> = all.iter().flat_map(|deaths| deaths.rounds().clone()).collect();
        let struck: Vec<_> = rounds.iter().filter(|(.., struck)| *struck).map(|(point, ..)| *point).collect();
        assert!(struck.len() >= at_least, "{} of {} died at their points, not {at_least}", struck.len(), rounds.len());
        eprintln!("{} of {} died at their points", struck.len(), rounds.len());
        for point in points {
            assert!(struck.contains(point), "nobody died at {point:?}");
        }
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (round, (point, passed, struck)) in (1..).zip(self.rounds().iter()) {
                eprintln!("{}, round {round}: {point:?} after {passed}{}", self.of, if *struck { "" } else { ", which did not come" });
            }
        }
    }
}

#[derive(Debug)]
struct Mortal(Arc<dyn Cells>, Fate);

#[async_trait]
impl Cells for Mortal {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        self.0.load(key).await
    }
    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        self.1.at(Point::BeforeSave(key.kind())).await;
        let saved = self.0.save(key, body, expect).await;
        self.1.at(Point::AfterSave(key.kind())).await;
        saved
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        self.1.at(Point::BeforeDelete).await;
        let deleted = self.0.delete(key, expect).await;
        self.1.at(Point::AfterDelete).await;
        deleted
    }
    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        // The first is the lease; what goes with it names the point.
        let (before, after) = match writes.last() {
            Some(CellWrite::Save { key, .. }) => (Point::BeforeSave(key.kind()), Point::AfterSave(key.kind())),
            _ => (Point::BeforeDelete, Point::AfterDelete),
        };
        self.1.at(before).await;
        let written = self.0.write_all(writes).await;
        self.1.at(after).await;
        written
    }
    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        self.0.list(kind, name).await
    }
}

#[derive(Debug)]
struct MortalFeed(Arc<dyn Feed>, Fate);

#[async_trait]
impl Feed for MortalFeed {
    fn subscribe(&self, from: From, query: Query) -> BoxStream<'static, Result<Delivery>> {
        let fate = self.1.clone();
        let through = move |delivery: Result<Delivery>| {
            let fate = fate.clone();
            async move {
                fate.at(Point::InFeed).await;
                delivery
            }
        };
        self.0.subscribe(from, query).then(through).boxed()
    }
    async fn shows(&self, position: Position) -> Result<bool> {
        self.0.shows(position).await
    }
    async fn unshown_since(&self) -> Result<Option<jiff::Timestamp>> {
        self.0.unshown_since().await
    }
}
