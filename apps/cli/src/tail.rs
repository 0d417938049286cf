//! `tail`: the feed, from a place on, and a consumer's checkpoint moved behind what was printed.

use std::str::FromStr;

use fencepost::{Checkpoint, Checkpoints, Delivery, Feed, From, Revision};
use futures::{FutureExt, StreamExt};

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::indexed;
use crate::json::EventLine;
use crate::output::{Output, talk};
use crate::select::Select;
use crate::signal::asked_to_end;

/// How many events are printed at most before the consumer's checkpoint is saved: a save costs a write unit.
const SAVE_EVERY: u64 = 100;

/// Follow all events in order, as they come
///
/// Each line carries its checkpoint: resume from it with --from. Ctrl-C ends it. A consumer's checkpoint is moved after printing, at least
/// every 100 events, whenever it has caught up, and at the end: a crash repeats a few events, and loses none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost tail --from now
  fencepost tail --once --tag course:c1 | jq -c .data
  fencepost tail --consumer mailer --type InvoiceSent")]
pub(crate) struct Args {
    /// Where to begin: `start`, `now`, or behind a checkpoint; a consumer with a stored checkpoint begins there instead
    #[arg(long, value_name = "start|now|CHECKPOINT", default_value = "start")]
    from: Start,
    /// Keep a checkpoint under this name: begin where it was left, and move it after printing
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    #[command(flatten)]
    select: Select,
    /// End after so many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// End when all that is there has been printed
    #[arg(long)]
    once: bool,
}

/// A place in the feed, as it is given.
#[derive(Debug, Clone)]
pub(crate) struct Start(pub(crate) From);

impl FromStr for Start {
    type Err = fencepost::Error;
    fn from_str(text: &str) -> fencepost::Result<Self> {
        Ok(Self(match text {
            "start" => From::Start,
            "now" => From::Now,
            checkpoint => From::Checkpoint(checkpoint.parse()?),
        }))
    }
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    let checkpoints = store.checkpoints();
    indexed::keep_up(&store, place.url().unwrap_or_default()).await?;
    follow(args, &*store.feed()?, &*checkpoints, asked_to_end(), out).await
}

async fn follow(args: Args, feed: &dyn Feed, checkpoints: &dyn Checkpoints, ended: impl Future<Output = ()>, out: &mut Output) -> Outcome {
    let Args { from: Start(from), consumer, select, limit, once } = args;
    let query = select.query()?;
    let (mut consumer, from) = match consumer {
        Some(name) => Consumer::resume(name, from, checkpoints).await?,
        None => (None, from),
    };
    let mut deliveries = feed.subscribe(from, query);
    let mut ended = std::pin::pin!(ended);
    let (mut printed, mut told) = (0, false);
    let outcome = loop {
        if limit.is_some_and(|limit| printed >= limit) {
            break Ok(());
        }
        let next = match deliveries.next().now_or_never() {
            Some(next) => next,
            None => {
                out.flush()?;
                tokio::select! {
                    biased;
                    () = &mut ended => break Ok(()),
                    next = deliveries.next() => next,
                }
            }
        };
        match next {
            None => break Ok(()),
            Some(Err(error)) => break Err(Failure::from(error)),
            Some(Ok(Delivery::Event { event, checkpoint })) => {
                out.event(&EventLine::of(&event).checkpoint(&checkpoint))?;
                printed += 1;
                if let Some(consumer) = &mut consumer {
                    consumer.printed(checkpoint);
                    if consumer.unsaved >= SAVE_EVERY {
                        out.flush()?;
                        consumer.save(checkpoints).await?;
                    }
                }
            }
            Some(Ok(Delivery::CaughtUp { checkpoint })) => {
                out.flush()?;
                if let Some(consumer) = &mut consumer {
                    consumer.passed(checkpoint);
                    consumer.save(checkpoints).await?;
                }
                if once {
                    break Ok(());
                }
                if !std::mem::replace(&mut told, true) {
                    talk("caught up; waiting for more, Ctrl-C ends");
                }
            }
            Some(Ok(_)) => {}
        }
        // A feed that always has something ready would never come to the wait above.
        if (&mut ended).now_or_never().is_some() {
            break Ok(());
        }
    };
    // A request of the feed's that nobody polls any more may hold what the save waits for.
    drop(deliveries);
    out.end(None)?;
    if let Some(consumer) = &mut consumer {
        consumer.save(checkpoints).await?;
    }
    outcome
}

/// A consumer with its place in the feed.
struct Consumer {
    name: String,
    revision: Option<Revision>,
    saved: Option<Checkpoint>,
    reached: Option<Checkpoint>,
    /// Events printed since the last save.
    unsaved: u64,
}

impl Consumer {
    /// Where it was left, or where it is to begin.
    async fn resume(name: String, from: From, checkpoints: &dyn Checkpoints) -> Outcome<(Option<Self>, From)> {
        let (saved, revision) = checkpoints.load(&name).await?.unzip();
        let from = saved.clone().map_or(from, From::Checkpoint);
        Ok((Some(Self { name, revision, saved, reached: None, unsaved: 0 }), from))
    }

    fn printed(&mut self, checkpoint: Checkpoint) {
        self.reached = Some(checkpoint);
        self.unsaved += 1;
    }

    fn passed(&mut self, checkpoint: Checkpoint) {
        self.reached = Some(checkpoint);
    }

    async fn save(&mut self, checkpoints: &dyn Checkpoints) -> Outcome {
        let Some(reached) = self.reached.take().filter(|reached| self.saved.as_ref() != Some(reached)) else { return Ok(()) };
        let Some(revision) = checkpoints.save(&self.name, &reached, self.revision).await? else {
            return Err(Failure::new(Code::Conflict, format!("somebody else moved the checkpoint of consumer {}", self.name))
                .hint("let one process at a time run under a consumer's name"));
        };
        (self.saved, self.revision, self.unsaved) = (Some(reached), Some(revision), 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::output::{Captured, Format};
    use clap::Parser;
    use fencepost::{Append, Event, EventLog, Memory};
    use std::future::{pending, ready};

    async fn append(memory: &Memory, events: std::ops::RangeInclusive<u64>) {
        for n in events {
            let event = Event::new("T", n.to_string()).and_then(|e| e.tag(if n % 2 == 0 { "even" } else { "odd" })).expect("event");
            EventLog::append(memory, Append::new([event])).await.expect("appends");
        }
    }

    async fn tail(memory: &Memory, args: &str, ended: impl Future<Output = ()>) -> (Vec<serde_json::Value>, Outcome) {
        let Command::Tail(args) = Cli::parse_from(format!("fencepost tail {args}").split_whitespace()).command else { panic!() };
        let (mut out, captured) = Captured::output(Format::Ndjson);
        let outcome = follow(args, memory, memory, ended, &mut out).await;
        (captured.lines(), outcome)
    }

    fn bodies(lines: &[serde_json::Value]) -> Vec<u64> {
        lines.iter().filter_map(|line| line["data"].as_u64()).collect()
    }

    #[tokio::test]
    async fn a_line_resumes_behind_itself() {
        let memory = Memory::new();
        append(&memory, 1..=4).await;
        let (lines, outcome) = tail(&memory, "--once", pending()).await;
        outcome.expect("ends");
        assert_eq!(bodies(&lines), [1, 2, 3, 4]);
        let from = lines[1]["checkpoint"].as_str().expect("checkpoint").to_string();
        assert_eq!(bodies(&tail(&memory, &format!("--once --from {from}"), pending()).await.0), [3, 4]);
        assert_eq!(bodies(&tail(&memory, "--once --from now", pending()).await.0), [] as [u64; 0]);
        assert_eq!(bodies(&tail(&memory, "--tag even --limit 1", pending()).await.0), [2]);
    }

    #[tokio::test]
    async fn a_consumer_goes_on_where_it_was_left() {
        let memory = Memory::new();
        append(&memory, 1..=5).await;
        assert_eq!(bodies(&tail(&memory, "--consumer c --limit 2", pending()).await.0), [1, 2]);
        assert_eq!(bodies(&tail(&memory, "--consumer c --once", pending()).await.0), [3, 4, 5]);
        assert_eq!(bodies(&tail(&memory, "--consumer c --once --from start", pending()).await.0), [] as [u64; 0]);
        append(&memory, 6..=6).await;
        assert_eq!(bodies(&tail(&memory, "--consumer c --once", pending()).await.0), [6]);
        assert_eq!(bodies(&tail(&memory, "--consumer d --once --tag even", pending()).await.0), [2, 4, 6]);
    }

    #[tokio::test]
    async fn asked_to_end_it_ends_well_and_saves_what_was_printed() {
        let memory = Memory::new();
        append(&memory, 1..=3).await;
        let (lines, outcome) = tail(&memory, "--consumer c", ready(())).await;
        outcome.expect("ends well");
        let printed = bodies(&lines);
        let rest = bodies(&tail(&memory, "--consumer c --once", pending()).await.0);
        assert_eq!([printed, rest].concat(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_consumer_that_waits_has_saved_what_it_passed_over_too() {
        let memory = Memory::new();
        append(&memory, 1..=3).await;
        let saved = async {
            loop {
                match memory.load("c").await.expect("loads") {
                    Some((checkpoint, _)) => break checkpoint,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let checkpoint = tokio::select! {
            _ = tail(&memory, "--consumer c --tag odd", pending()) => panic!("it does not end by itself"),
            saved = tokio::time::timeout(std::time::Duration::from_secs(10), saved) => saved.expect("saved while it waits"),
        };
        append(&memory, 4..=4).await;
        assert_eq!(bodies(&tail(&memory, &format!("--once --from {checkpoint}"), pending()).await.0), [4]);
        // The newest that matches is behind what was passed over.
        let (lines, _) = tail(&memory, "--consumer d --tag odd --once", pending()).await;
        let (checkpoint, _) = memory.load("d").await.expect("loads").expect("saved");
        assert_ne!(lines[1]["checkpoint"], checkpoint.to_string());
    }

    /// A store that answers one request at a time, as the engine on a file does; its feed is always in the middle of one.
    #[derive(Debug)]
    struct OneAtATime {
        memory: Memory,
        turn: std::sync::Arc<tokio::sync::Mutex<()>>,
    }

    #[async_trait::async_trait]
    impl Feed for OneAtATime {
        fn subscribe(&self, from: From, query: fencepost::Query) -> futures::stream::BoxStream<'static, fencepost::Result<Delivery>> {
            let turn = self.turn.clone();
            let busy = async move {
                let _turn = turn.lock_owned().await;
                pending().await
            };
            self.memory.subscribe(from, query).take(1).chain(futures::stream::once(busy)).boxed()
        }
        async fn shows(&self, position: fencepost::Position) -> fencepost::Result<bool> {
            self.memory.shows(position).await
        }
        async fn unshown_since(&self) -> fencepost::Result<Option<jiff::Timestamp>> {
            self.memory.unshown_since().await
        }
    }

    #[async_trait::async_trait]
    impl Checkpoints for OneAtATime {
        async fn load(&self, consumer: &str) -> fencepost::Result<Option<(Checkpoint, Revision)>> {
            self.memory.load(consumer).await
        }
        async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> fencepost::Result<Option<Revision>> {
            let _turn = tokio::time::timeout(std::time::Duration::from_secs(2), self.turn.lock()).await.expect("its turn comes");
            self.memory.save(consumer, checkpoint, expect).await
        }
    }

    /// Seen in one of ten runs on a file: a signal while the feed was asking, and the save waited ten seconds for an answer.
    #[tokio::test]
    async fn the_last_save_does_not_wait_for_a_feed_that_nobody_polls() {
        let memory = Memory::new();
        append(&memory, 1..=1).await;
        let store = OneAtATime { memory: memory.clone(), turn: std::sync::Arc::default() };
        let ended = async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        let Command::Tail(args) = Cli::parse_from(["fencepost", "tail", "--consumer", "c"]).command else { panic!() };
        let (mut out, captured) = Captured::output(Format::Ndjson);
        follow(args, &store, &store, ended, &mut out).await.expect("ends well");
        assert_eq!(bodies(&captured.lines()), [1]);
        assert!(memory.load("c").await.expect("loads").is_some());
    }

    #[tokio::test]
    async fn two_under_one_name_are_told() {
        let memory = Memory::new();
        append(&memory, 1..=2).await;
        let (consumer, _) = Consumer::resume("c".into(), From::Start, &memory).await.expect("loads");
        let mut consumer = consumer.expect("a consumer");
        tail(&memory, "--consumer c --limit 1", pending()).await.1.expect("the other one");
        consumer.passed(Checkpoint::seal("memory", &2usize));
        assert_eq!(consumer.save(&memory).await.expect_err("moved by the other").code().exit(), 3);
    }
}
