//! Feeds beside a bare loop that does the same reads: over lanes, pages of every lane; over the index, its epochs and then the slots that
//! they name. The loop moves type and body of every event out of the answers. It decodes nothing else, orders nothing, makes no
//! checkpoints, and is told the slots' keys beforehand: what it leaves out is what a feed is for.

use std::time::Duration;

use fencepost::{Append, Delivery, Engine, Event, From, IndexOptions, Query, Result, Store};
use futures::StreamExt;
use serde_json::json;

use crate::bare::Bare;
use crate::report::{Compared, Report, claim, compare, figure, within};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events to catch up with, one a commit.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// Bytes of a body.
    #[arg(long, default_value_t = 500)]
    bytes: usize,
    /// Rounds of each side, taken in turns; medians are compared.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// A hundred streams.
const TAGS: usize = 100;
/// What a feed over the index asks for at a time.
const EPOCHS: i32 = 4;
const COMMITS: usize = 64;

/// How long a feed may take beside the loop.
const WITHIN: f64 = 1.3;

impl Args {
    /// Enough that the ratios say something.
    pub(crate) fn is_whole(&self) -> bool {
        self.events >= 20_000 && self.rounds >= 5
    }
}

fn table(feed: &str) -> String {
    format!("ours-{feed}")
}

async fn open(engine: &Engine, feed: &str) -> Result<Store> {
    Store::builder(&format!("memory:?feed={feed}&table={}", table(feed)))?.http_client(engine.http_client()).open().await
}

/// Every instance keeps to a lane of its own choice: through many, all lanes are used.
async fn load(engine: &Engine, feed: &str, args: &Args) -> Result<Store> {
    let mut stores = Vec::new();
    for _ in 0..if feed == "lanes-4" { 16 } else { 1 } {
        stores.push(open(engine, feed).await?);
    }
    for at in 0..args.events {
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(args.bytes.saturating_sub(11)));
        let event = Event::new("OrderPlaced", body)?.tag(format!("order:{}", at % TAGS))?;
        stores[at % TAGS % stores.len()].log()?.append(Append::new([event])).await?;
    }
    Ok(stores.remove(0))
}

/// All that there is; how many events.
async fn catch_up(store: &Store) -> usize {
    let mut feed = store.feed().expect("a feed").subscribe(From::Start, Query::all());
    let (mut events, mut bytes) = (0, 0);
    loop {
        match feed.next().await.expect("never ends").expect("delivers") {
            Delivery::Event { event, .. } => {
                events += 1;
                bytes += event.data.len();
            }
            _ => {
                assert!(bytes > 0);
                return events;
            }
        }
    }
}

async fn over_lanes(engine: &Engine, bare: &Bare, lanes: u8, args: &Args) -> Result<Compared> {
    let feed = format!("lanes-{lanes}");
    let store = load(engine, &feed, args).await?;
    let table = table(&feed);
    let loops = async |_| {
        let mut events = 0;
        for lane in 0..lanes {
            events += bare.series(&table, &format!("l/main/{lane}")).await;
        }
        assert_eq!(events, args.events);
    };
    Ok(compare(args.rounds, loops, async |_| assert_eq!(catch_up(&store).await, args.events)).await)
}

async fn over_the_index(engine: &Engine, bare: &Bare, args: &Args) -> Result<Compared> {
    let store = load(engine, "streams", args).await?;
    let options = IndexOptions::default().idle(Duration::from_millis(1), Duration::from_millis(5)).until_caught_up();
    store.index()?.run(&options, &|_| ()).await?;
    let (table, side) = (table("streams"), format!("{}-side", table("streams")));
    let keys: Vec<(String, u64)> = (0..args.events).map(|at| (format!("t/main/order:{}", at % TAGS), (at / TAGS) as u64 + 1)).collect();
    let loops = async |_| {
        let mut events = 0;
        assert!(bare.epochs(&side, EPOCHS).await > 0);
        for keys in keys.chunks(COMMITS) {
            events += bare.slots(&table, keys).await;
        }
        assert_eq!(events, args.events);
    };
    Ok(compare(args.rounds, loops, async |_| assert_eq!(catch_up(&store).await, args.events)).await)
}

pub(crate) async fn run(args: &Args) -> Result<Report> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let mut row = |name: String, found: Compared| {
        // A short run says nothing about its ratio.
        if args.is_whole() {
            let says = format!("{name}: at most {WITHIN} times the loop's time: {:.2}", found.ratio());
            notes.push(claim(&says, within(found.ratio(), WITHIN)));
        }
        let rate = |time: Duration| json!((args.events as f64 / time.as_secs_f64()).round() as u64);
        rows.push(vec![json!(name), rate(found.bare), rate(found.ours), figure(found.ratio(), 2)]);
    };
    for lanes in [1, 4] {
        let engine = Engine::memory()?;
        let found = over_lanes(&engine, &Bare::new(&engine), lanes, args).await?;
        row(format!("{} events of {} B over {lanes} lanes", args.events, args.bytes), found);
    }
    let engine = Engine::memory()?;
    row(format!("{} events of {} B over the index", args.events, args.bytes), over_the_index(&engine, &Bare::new(&engine), args).await?);
    Ok(Report::new(&["catch-up, median of rounds", "bare loop, events/s", "fencepost, events/s", "ratio"], rows).with_notes(notes))
}
