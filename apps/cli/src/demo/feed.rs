//! The feed as the demo watches it: from before the first event, live, to the last.

use std::collections::VecDeque;
use std::time::Duration;

use fencepost::{Delivery, Feed, From, Query, Recorded, Result};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Serialize, Serializer};

use super::enrolment::{Campus, ENROLLED, OPENED};
use crate::failure::{Code, Failure, Outcome};
use crate::json::EventLine;

/// How many of the last events are shown.
const SHOWN: usize = 5;
/// How long the feed may be silent while events are still missing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A subscription that runs beside the workers.
#[derive(Debug)]
pub(super) struct Watch {
    seen: tokio::sync::watch::Receiver<u64>,
    task: tokio::task::JoinHandle<Result<()>>,
    last: std::sync::Arc<std::sync::Mutex<VecDeque<Recorded>>>,
}

/// What came through the feed.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    pub(super) events: u64,
    #[serde(serialize_with = "lines")]
    pub(super) last: Vec<Recorded>,
}

fn lines<S: Serializer>(events: &[Recorded], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_seq(events.iter().map(EventLine::of))
}

impl Watch {
    pub(super) async fn begin(feed: &dyn Feed, campus: &Campus) -> Outcome<Self> {
        let mut deliveries = feed.subscribe(From::Now, Query::types([OPENED, ENROLLED])?);
        // "Now" is when the feed first looks: what is appended before might be passed over.
        let ready = tokio::time::timeout(PATIENCE, deliveries.next()).await;
        ready.map_err(|_| silent())?.transpose()?;
        let (tell, seen) = tokio::sync::watch::channel(0);
        let last = std::sync::Arc::default();
        let task = tokio::spawn(collect(deliveries, campus.course_tag(0), tell, std::sync::Arc::clone(&last)));
        Ok(Self { seen, task, last })
    }

    /// Waits until so many events came through.
    pub(super) async fn finish(mut self, expected: u64) -> Outcome<Seen> {
        while *self.seen.borrow_and_update() < expected {
            match tokio::time::timeout(PATIENCE, self.seen.changed()).await {
                Ok(Ok(())) => {}
                // The task ended before its time: with an error, since a feed never ends by itself.
                Ok(Err(_)) => {
                    return Err((&mut self.task).await.map_or_else(|_| silent(), |ended| ended.map_or_else(Failure::from, |()| silent())));
                }
                Err(_) => return Err(silent()),
            }
        }
        self.task.abort();
        let events = *self.seen.borrow();
        let last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..).collect();
        Ok(Seen { events, last })
    }
}

fn silent() -> Failure {
    Failure::new(Code::Failure, "the feed did not bring all events in time")
}

async fn collect(
    mut deliveries: BoxStream<'static, Result<Delivery>>,
    course: String,
    tell: tokio::sync::watch::Sender<u64>,
    last: std::sync::Arc<std::sync::Mutex<VecDeque<Recorded>>>,
) -> Result<()> {
    // Other programs may write the same types: only this run's courses count.
    let ours = course.trim_end_matches('0');
    while let Some(delivery) = deliveries.next().await.transpose()? {
        let Delivery::Event { event, .. } = delivery else { continue };
        if !event.tags.iter().any(|tag| tag.as_str().starts_with(ours)) {
            continue;
        }
        {
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            last.push_back(*event);
            while last.len() > SHOWN {
                last.pop_front();
            }
        }
        tell.send_modify(|seen| *seen += 1);
    }
    Ok(())
}
