//! S: the feed: all events, in an order that never loses one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Must, Subject, event, label, labels, put, race, tag, types};
use crate::{Append, Checkpoint, Delivery, Error, Event, EventLog, Feed, From, Position, Query, Recorded, Refused, Result};

/// A feed that delivers nothing for so long has lost something.
const PATIENCE: Duration = Duration::from_secs(30);

struct Reader(BoxStream<'static, Result<Delivery>>);

impl Reader {
    fn new(feed: &Arc<dyn Feed>, from: From, query: &Query) -> Self {
        Self(feed.subscribe(from, query.clone()))
    }

    async fn next(&mut self) -> Delivery {
        let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a feed delivers, or says that it has caught up");
        next.expect("a feed never ends by itself").must()
    }

    /// So many events, with the checkpoint of each.
    async fn take(&mut self, count: usize) -> Vec<(Recorded, Checkpoint)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            if let Delivery::Event { event, checkpoint } = self.next().await {
                taken.push((*event, checkpoint));
            }
        }
        taken
    }

    async fn take_labels(&mut self, count: usize) -> Vec<String> {
        labels(self.take(count).await.iter().map(|(event, _)| event))
    }

    /// All events until it says that it has caught up, and where it then is.
    async fn catch_up(&mut self) -> (Vec<String>, Checkpoint) {
        let mut met = Vec::new();
        loop {
            match self.next().await {
                Delivery::Event { event, .. } => met.push(label(&event)),
                Delivery::CaughtUp { checkpoint } => return (met, checkpoint),
            }
        }
    }
}

/// Log and feed, where there is a feed; what the mode lacks is checked by `feed()`.
fn parts(s: &Subject) -> Option<(Arc<dyn EventLog>, Arc<dyn Feed>)> {
    Some((s.log()?, s.feed()?))
}

/// History first, then what comes: no gap, no event twice.
pub async fn s01_history_then_live(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    for n in ["1", "2"] {
        put(&log, "Noted", n, &["a"]).await;
    }
    log.append(Append::new([event("Noted", "3", &["b"]), event("Opened", "4", &[])])).await.must();
    let mut reader = Reader::new(&feed, From::Start, &Query::all());
    assert_eq!(reader.catch_up().await.0, ["1", "2", "3", "4"]);
    for n in ["5", "6"] {
        put(&log, "Noted", n, &["a"]).await;
        assert_eq!(reader.take_labels(1).await, [n]);
    }
    let again = Reader::new(&feed, From::Start, &Query::all()).take_labels(6).await;
    assert_eq!(again, ["1", "2", "3", "4", "5", "6"], "the same order for everybody");
}

/// From the start, from any checkpoint, from the head, from now on; a checkpoint of another layout is refused.
pub async fn s02_from_anywhere(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    let (met, _) = Reader::new(&feed, From::Start, &Query::all()).catch_up().await;
    assert!(met.is_empty(), "an empty store is caught up at once");
    for n in ["1", "2"] {
        put(&log, "Noted", n, &["a"]).await;
    }
    log.append(Append::new(["3", "4", "5"].map(|n| event("Noted", n, &["a"])))).await.must();
    let all = Reader::new(&feed, From::Start, &Query::all()).take(5).await;
    for (behind, (_, checkpoint)) in all.iter().enumerate() {
        let travelled: Checkpoint = checkpoint.to_string().parse().must();
        let mut reader = Reader::new(&feed, From::Checkpoint(travelled), &Query::all());
        let rest: Vec<_> = all[behind + 1..].iter().map(|(event, _)| label(event)).collect();
        assert_eq!(reader.catch_up().await.0, rest, "behind event {}, inside a commit too", behind + 1);
    }
    let mut now = Reader::new(&feed, From::Now, &Query::all());
    assert!(now.catch_up().await.0.is_empty(), "from now on: nothing that was there");
    let mut at_head = Reader::new(&feed, From::Checkpoint(all[4].1.clone()), &Query::all());
    assert!(at_head.catch_up().await.0.is_empty());
    put(&log, "Noted", "6", &["a"]).await;
    assert_eq!(now.take_labels(1).await, ["6"]);
    assert_eq!(at_head.take_labels(1).await, ["6"]);
    let foreign = feed.subscribe(From::Checkpoint(Checkpoint::seal("elsewhere", &1_u64)), Query::all()).next().await;
    assert!(matches!(foreign, Some(Err(Error::Refused(Refused::Foreign { .. })))), "{foreign:?}");
}

/// Only what matches, and the checkpoint of having caught up covers what was passed over.
pub async fn s03_filtered(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    for (ty, n, on) in [("Opened", "1", "a"), ("Noted", "2", "b"), ("Opened", "3", "b"), ("Noted", "4", "a"), ("Noted", "5", "c")] {
        put(&log, ty, n, &[on]).await;
    }
    for (query, expected) in [
        (tag("a"), &["1", "4"][..]),
        (types(&["Opened"]), &["1", "3"]),
        (types(&["Noted"]), &["2", "4", "5"]),
        (super::both(&["Opened"], &["b"]).or(tag("c")), &["3", "5"]),
        (tag("none"), &[]),
    ] {
        let mut reader = Reader::new(&feed, From::Start, &query);
        let (met, checkpoint) = reader.catch_up().await;
        assert_eq!(met, expected, "{query:?}");
        let rest = Reader::new(&feed, From::Checkpoint(checkpoint), &Query::all()).catch_up().await.0;
        assert!(rest.is_empty(), "it covers what was passed over: {rest:?}");
    }
    let mut live = Reader::new(&feed, From::Now, &tag("a"));
    live.catch_up().await;
    put(&log, "Noted", "-", &["b"]).await;
    put(&log, "Noted", "6", &["a"]).await;
    assert_eq!(live.take_labels(1).await, ["6"]);
}

/// Dropped in the middle, waiting, or before the first poll; taken up again from the last checkpoint: nothing lost, nothing twice.
pub async fn s04_drop_and_reconnect(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    drop(feed.subscribe(From::Start, Query::all()));
    let mut met = Vec::new();
    let mut from = From::Start;
    for n in 0..9_usize {
        put(&log, "Noted", &n.to_string(), &["a"]).await;
        if n % 3 == 2 {
            let mut reader = Reader::new(&feed, from.clone(), &Query::all());
            // Two at a time, so that it falls behind, and is dropped in the middle.
            for (event, checkpoint) in reader.take(2).await {
                met.push(label(&event));
                from = From::Checkpoint(checkpoint);
            }
        }
    }
    let mut reader = Reader::new(&feed, from, &Query::all());
    met.extend(reader.catch_up().await.0);
    assert_eq!(met, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    // Dropped while it waits, by a time-out on its future: the event that comes then is not lost for the next reader.
    let waited = tokio::time::timeout(Duration::from_millis(5), reader.0.next()).await;
    put(&log, "Noted", "9", &["a"]).await;
    match waited {
        Err(_) | Ok(Some(Ok(Delivery::CaughtUp { .. }))) => assert_eq!(reader.take_labels(1).await, ["9"]),
        Ok(other) => panic!("nothing new was there: {other:?}"),
    }
}

/// Commits that land out of order are never lost: read while many write, for all, for a type, for a boundary.
pub async fn s05_out_of_order_commits_are_never_lost(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    const WRITERS: usize = 6;
    const EACH: usize = 8;
    let readers = [(Query::all(), WRITERS * EACH * 2), (types(&["Opened"]), WRITERS * EACH), (tag("own:3"), EACH * 2)];
    let mut tasks: Vec<futures::future::BoxFuture<'static, Vec<Event>>> = Vec::new();
    for (query, count) in readers.clone() {
        let mut reader = Reader::new(&feed, From::Start, &query);
        tasks.push(Box::pin(async move {
            let taken = reader.take(count).await;
            let ids: BTreeSet<_> = taken.iter().map(|(event, _)| event.id).collect();
            assert_eq!(ids.len(), count, "each once");
            assert!(taken.iter().all(|(event, _)| query.matches(&event.event_type, &event.tags)));
            Vec::new()
        }));
    }
    for turn in 0..WRITERS {
        let log = s.handle_log(turn);
        tasks.push(Box::pin(async move {
            for n in 0..EACH {
                let own = format!("own:{turn}");
                let pair = [event("Opened", &n.to_string(), &[&own, "shared"]), event("Noted", &n.to_string(), &[&own])];
                log.append(Append::new(pair)).await.must();
            }
            Vec::new()
        }));
    }
    race(tasks).await;
    let whole = Reader::new(&feed, From::Start, &Query::all()).catch_up().await.0;
    assert_eq!(whole.len(), WRITERS * EACH * 2);
    assert_eq!(log.source(&tag("own:3"), None).await.must().events.len(), EACH * 2);
}

/// On every tag the feed's order is the order that decisions saw, and a commit stays together.
pub async fn s06_feed_order_is_decision_order(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    race((0..6).map(|turn| {
        let log = s.handle_log(turn);
        async move {
            for n in 0..6_usize {
                let tags = [format!("t:{}", (turn + n) % 3), format!("t:{}", (turn * n) % 3)];
                let pair = ["first", "second"].map(|which| event("Noted", &format!("{turn}.{n}.{which}"), &[&tags[0], &tags[1]]));
                log.append(Append::new(pair)).await.must();
            }
        }
    }))
    .await;
    let fed: Vec<Recorded> = Reader::new(&feed, From::Start, &Query::all()).take(72).await.into_iter().map(|(event, _)| event).collect();
    for pair in fed.chunks(2) {
        let (first, second) = (label(&pair[0]), label(&pair[1]));
        assert_eq!(first.strip_suffix("first"), second.strip_suffix("second"), "a commit stays together: {first}, {second}");
    }
    for name in ["t:0", "t:1", "t:2"] {
        let decided = log.source(&tag(name), None).await.must().events;
        let of_tag: Vec<_> = fed.iter().filter(|event| event.tags.iter().any(|tag| tag.as_str() == name)).cloned().collect();
        assert_eq!(of_tag, decided, "{name}");
    }
    if s.capabilities.counted_positions {
        let positions: Vec<_> = fed.iter().map(|event| event.position).collect();
        assert_eq!(positions, (1..=72).map(Position::number).collect::<Vec<_>>());
    }
}

/// Idle, then many at once, then idle again.
pub async fn s07_idle_then_burst(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    let mut reader = Reader::new(&feed, From::Start, &Query::all());
    assert!(reader.catch_up().await.0.is_empty());
    for burst in 0..2 {
        let idle = tokio::time::timeout(Duration::from_millis(30), reader.take(1)).await;
        assert!(idle.is_err(), "nothing is delivered while nothing comes");
        let given: Vec<_> = (0..120).map(|n| format!("{burst}.{n}")).collect();
        for commit in given.chunks(40) {
            log.append(Append::new(commit.iter().map(|n| event("Noted", n, &["a"])))).await.must();
        }
        assert_eq!(reader.take_labels(120).await, given);
    }
}

/// Two handles, as two processes would have them, see each other's events.
pub async fn s08_two_handles_see_each_other(s: Subject) {
    let Some((log, feed)) = parts(&s) else { return };
    let Some(second) = s.second.clone() else { panic!("a subject brings a second handle on its store") };
    let (other_log, other_feed) = parts(&second).expect("both handles have the same contracts");
    let mut readers = [Reader::new(&feed, From::Start, &Query::all()), Reader::new(&other_feed, From::Start, &tag("a"))];
    for (n, log) in [&log, &other_log, &other_log, &log].into_iter().enumerate() {
        put(log, "Noted", &n.to_string(), &["a"]).await;
        for reader in &mut readers {
            assert_eq!(reader.take_labels(1).await, [n.to_string()]);
        }
    }
    let checkpoint = Reader::new(&feed, From::Start, &Query::all()).take(2).await.remove(1).1;
    assert_eq!(Reader::new(&other_feed, From::Checkpoint(checkpoint), &Query::all()).take_labels(2).await, ["2", "3"]);
}
