//! Reading one's own writes: waiting until a consumer, a projection or the feed itself has come past what a commit wrote.
//!
//! Only where the store counts its events do positions tell before from after. Elsewhere the question is asked the other way round: read on
//! from the follower's checkpoint, does the event still come? So it holds for every feed, costs a look when the follower is nearly there,
//! and no more than its lag when it is not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::consumer::Consumer;
use crate::env::Env;
use crate::error::{Error, Reason, Result};
use crate::event::Recorded;
use crate::feed::{Delivery, Feed, From};
use crate::log::Committed;
use crate::position::Position;
use crate::query::Query;

/// What is waited for: all events of a commit, or one position.
#[derive(Debug)]
pub struct Target {
    positions: Vec<Position>,
    /// Those that the feed is asked for: where it shows them, it shows all.
    asked: Vec<Position>,
    /// How many of these it is known to show: it never shows less.
    shown: AtomicUsize,
}

impl Clone for Target {
    /// What one feed was seen to show says nothing of another.
    fn clone(&self) -> Target {
        Target { positions: self.positions.clone(), asked: self.asked.clone(), shown: AtomicUsize::default() }
    }
}

impl std::convert::From<&Committed> for Target {
    fn from(committed: &Committed) -> Target {
        Target::of(committed.positions.clone(), committed.version.is_some())
    }
}
impl std::convert::From<Position> for Target {
    fn from(position: Position) -> Target {
        Target::of(vec![position], true)
    }
}

impl Target {
    /// The last tells of all where positions count, and where all are of one stream; where they name the commit, it is asked for once. Events that
    /// only their own ids tell may show one after the other.
    fn of(positions: Vec<Position>, of_one_stream: bool) -> Target {
        let mut asked = positions.clone();
        asked.sort_unstable_by(|a, b| b.cmp(a));
        asked.dedup_by_key(|position| position.as_stamped().map(|(stamp, commit, _)| (stamp, commit)));
        asked.truncate(if of_one_stream { 1 } else { usize::MAX });
        Target { positions, asked, shown: AtomicUsize::default() }
    }
    fn last(&self) -> Option<Position> {
        self.positions.iter().copied().max()
    }

    /// Whether the feed shows all of it.
    async fn is_shown(&self, feed: &dyn Feed) -> Result<bool> {
        for (n, position) in self.asked.iter().copied().enumerate().skip(self.shown.load(Ordering::Relaxed)) {
            if !feed.shows(position).await? {
                return Ok(false);
            }
            self.shown.fetch_max(n + 1, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Whether nothing of it comes any more to who stands here, of what matches and `counts` for it.
    pub(super) async fn is_behind(&self, feed: &dyn Feed, from: From, query: &Query, counts: impl Fn(&Recorded) -> bool) -> Result<bool> {
        let Some(last) = self.last() else { return Ok(true) };
        if !self.is_shown(feed).await? {
            return Ok(false);
        }
        let mut deliveries = feed.subscribe(from, query.clone());
        while let Some(Delivery::Event { event, .. }) = deliveries.next().await.transpose()? {
            if self.contains(event.position) && counts(&event) {
                return Ok(false);
            }
            let passed = event.position.as_number().zip(last.as_number()).is_some_and(|(at, last)| at > last);
            if passed {
                break;
            }
        }
        Ok(true)
    }

    pub(super) fn contains(&self, position: Position) -> bool {
        self.positions.contains(&position)
    }
}

/// Asks until it holds; at the deadline, an error that says who did not come.
pub(super) async fn until<Fut>(env: &Env, who: &str, target: &Target, deadline: Duration, holds: impl Fn() -> Fut) -> Result<()>
where
    Fut: Future<Output = Result<bool>>,
{
    let began = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        // A look reads what the follower has not done, however much that is: it ends with the deadline, too.
        let left = deadline.saturating_sub(began.elapsed());
        match tokio::time::timeout(left, holds()).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(false)) | Err(_) => {}
        }
        let left = deadline.saturating_sub(began.elapsed());
        if left.is_zero() {
            let at = target.last().map(|at| at.to_string()).unwrap_or_default();
            return Err(Error::unavailable(Reason::Late, format!("{who} has not come to {at} within {deadline:?}")));
        }
        env.sleep(pause.min(left)).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// Waits until the feed shows what a commit wrote. Where the feed is read from the log itself, it does so at once.
pub async fn feed_reaches(feed: &dyn Feed, target: impl Into<Target>, deadline: Duration, env: &Env) -> Result<()> {
    let target = target.into();
    until(env, "the feed", &target, deadline, || target.is_shown(feed)).await
}

impl Consumer {
    /// Waits until all that a commit wrote is handled, or is not for this consumer. An event that is parked is not handled.
    /// Past the deadline it is an error ([`Reason::Late`]): the commit stands all the same.
    pub async fn wait_for(&self, target: impl Into<Target>, deadline: Duration) -> Result<()> {
        let target = target.into();
        until(&self.env, &format!("consumer {}", self.name), &target, deadline, || self.has_reached(&target)).await
    }

    async fn has_reached(&self, target: &Target) -> Result<bool> {
        let Some(fixed) = self.fixed().await? else { return Ok(false) };
        for (from, partitions) in self.places(&fixed).await? {
            let counts = |event: &Recorded| self.is_of(event, &partitions, &fixed);
            if !target.is_behind(&*self.feed, from, &fixed.query, counts).await? {
                return Ok(false);
            }
        }
        Ok(!self.parked().await?.iter().any(|parked| target.contains(parked.position)))
    }
}
