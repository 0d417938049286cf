//! What tests of consumers and projections share: stores of every kind to follow, and a record of what a handler was given.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub(crate) mod cells;
pub(crate) mod crash;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost::testing::conformance::Subject;
use fencepost::{
    Append, Cells, Committed, Delivery, Env, Event, EventLog, EventLogExt, Feed, From, Handed, Memory, Query, ReadOptions, Recorded,
};
use futures::StreamExt;

/// Longer than anything takes that is not stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A lease of so many milliseconds here, or there. Under one that is not several round trips long nothing begins: over HTTP it is longer.
pub(crate) fn lease(here: u64, over_http: u64) -> Duration {
    Duration::from_millis(if std::env::var_os("FENCEPOST_TEST_ENDPOINT").is_some() { over_http } else { here })
}

/// A store to follow.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) log: Arc<dyn EventLog>,
    /// Another handle on the same log, as another process would have it.
    pub(crate) other_log: Arc<dyn EventLog>,
    pub(crate) feed: Arc<dyn Feed>,
    pub(crate) cells: Arc<dyn Cells>,
}

pub(crate) fn place(memory: Memory) -> Place {
    let memory = Arc::new(memory);
    Place { name: "memory".into(), log: memory.clone(), other_log: memory.clone(), feed: memory.clone(), cells: memory }
}

pub(crate) fn of(name: &str, subject: Subject) -> Place {
    let log = subject.log.expect("a log");
    let other_log = subject.second.and_then(|second| second.log).unwrap_or(log.clone());
    Place { name: name.into(), log, other_log, feed: subject.feed.expect("a feed"), cells: subject.cells }
}

/// Memory, and the ledger with one lane, with eight, and by its index, which an indexer keeps up in the background.
pub(crate) async fn places() -> Vec<Place> {
    let mut places = vec![place(Memory::new())];
    for feed in ["lanes-1", "lanes-8", "streams"] {
        places.push(of(feed, crate::support::ledger(feed).await));
    }
    places
}

impl Place {
    /// One commit of events with these labels and tags.
    pub(crate) async fn append(&self, events: &[(&str, &[&str])]) -> Committed {
        self.log.append(Append::new(events.iter().map(|(label, tags)| event(label, tags)))).await.expect("appends")
    }

    /// Two writers at once, until the future ends: labels rise on every tag. How many events there are then.
    pub(crate) async fn load(&self, seed: u64, until: impl Future<Output = ()>) -> usize {
        let (count, ended) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(false)));
        let writer = |number: usize, log: Arc<dyn EventLog>| {
            let (count, ended, env) = (count.clone(), ended.clone(), Env::seeded(seed + number as u64));
            async move {
                let mut next = number;
                while !ended.load(Ordering::SeqCst) {
                    let events: Vec<Event> = (0..=env.below(3))
                        .map(|_| {
                            next += 2;
                            let tags = [format!("s:{number}:{}", env.below(4)), format!("t:{number}:{}", env.below(3))];
                            event(&(next - 2).to_string(), &tags.each_ref().map(String::as_str))
                        })
                        .collect();
                    let events_appended = events.len();
                    log.append(Append::new(events)).await.expect("appends");
                    *count.lock().expect("it must succeed") += events_appended;
                    // Over HTTP what waits behind a parked event, each read again alone, drains by some 25 a second: no more is written than that.
                    let pause = env.below(16);
                    Env::system().sleep(lease(pause, 10 * pause)).await;
                }
            }
        };
        let mut writers = Box::pin(futures::future::join(writer(0, self.log.clone()), writer(1, self.other_log.clone())));
        futures::future::select(&mut writers, Box::pin(until)).await;
        // What comes of a writer that is stopped within an append is not known before the feed has it, or ever, over HTTP: they end.
        ended.store(true, Ordering::SeqCst);
        writers.await;
        self.history().await.len()
    }

    fn is_indexed(&self) -> bool {
        self.name == "streams"
    }

    /// All events, in the order of the log; of the feed, where that is the only way to read them all.
    pub(crate) async fn history(&self) -> Vec<Recorded> {
        if self.is_indexed() {
            let mut history = Vec::new();
            let mut deliveries = self.feed.subscribe(From::Start, Query::all());
            while let Some(Delivery::Event { event, .. }) = deliveries.next().await.transpose().expect("delivers") {
                history.push(*event);
            }
            return history;
        }
        self.log.read_all(&Query::all(), ReadOptions::default()).await.expect("reads")
    }
}

fn event(label: &str, tags: &[&str]) -> Event {
    let bare = Event::new("Noted", label.as_bytes().to_vec()).expect("an event");
    tags.iter().fold(bare, |event, tag| event.tag(tag).expect("a tag"))
}

/// The number in an event's body.
pub(crate) fn label(event: &Recorded) -> usize {
    std::str::from_utf8(&event.data).ok().and_then(|text| text.parse().ok()).expect("bodies are numbers")
}

/// What a handler was given, in the order in which it finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording(Arc<Mutex<Vec<Noted>>>);

/// A label, and the tags it came with.
type Noted = (usize, Vec<String>);

impl Recording {
    pub(crate) fn note(&self, event: &Recorded) {
        self.0.lock().expect("it must succeed").push((label(event), event.tags.iter().map(|tag| tag.to_string()).collect()));
    }
    pub(crate) fn handler(&self) -> impl Fn(Handed) -> futures::future::Ready<Result<(), String>> + use<> {
        let recording = self.clone();
        move |handed| {
            recording.note(&handed);
            futures::future::ok(())
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("it must succeed").len()
    }
    pub(crate) fn labels(&self) -> Vec<usize> {
        self.0.lock().expect("it must succeed").iter().map(|(label, _)| *label).collect()
    }
    pub(crate) fn labels_sorted(&self) -> Vec<usize> {
        let mut labels = self.labels();
        labels.sort_unstable();
        labels
    }
    /// Under each first tag, a label comes for the first time only after all lower ones did. (Labels rise in the order of appends.)
    #[track_caller]
    pub(crate) fn assert_order(&self, place: &str) {
        self.assert_order_of(place, |tags| tags[..1].to_vec());
    }
    /// The same under every tag.
    #[track_caller]
    pub(crate) fn assert_order_of_every_tag(&self, place: &str) {
        self.assert_order_of(place, <[String]>::to_vec);
    }
    #[track_caller]
    fn assert_order_of(&self, place: &str, keys: impl Fn(&[String]) -> Vec<String>) {
        let mut first_times: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (label, tags) in self.0.lock().expect("it must succeed").iter() {
            for tag in keys(tags) {
                let seen = first_times.entry(tag.clone()).or_default();
                if !seen.contains(label) {
                    assert!(seen.last().is_none_or(|last| last < label), "{place}: {label} on {tag} after {seen:?}");
                    seen.push(*label);
                }
            }
        }
    }
}

/// Ends when this holds.
pub(crate) async fn wait_until(holds: impl Fn() -> bool) {
    wait_for(|| std::future::ready(holds())).await;
}

/// Ends when this holds, by asking again and again.
pub(crate) async fn wait_for<Fut: Future<Output = bool>>(holds: impl Fn() -> Fut) {
    let waiting = async {
        while !holds().await {
            Env::system().sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it must come to hold");
}
