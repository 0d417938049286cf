//! What the store adds to the bare SDK: the same requests on the same engine in one run.

use fencepost::{Append, Engine, Event, LoadOptions, Result, Step, Store, StreamName};
use serde_json::json;

use crate::bare::Bare;
use crate::report::{Compared, Report, compare, figure};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Operations a round.
    #[arg(long, default_value_t = 400)]
    operations: usize,
    /// Rounds of each side, taken in turns; medians are compared.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

fn body() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(489))
}

fn event() -> Result<Event> {
    Event::new("OrderPlaced", body())
}

/// On a stream of one's own, whose end is remembered after the first round.
async fn put(bare: &Bare, writer: usize, round: usize, count: usize) {
    for at in 0..count {
        bare.put(&format!("writer-{writer}"), (round * count + at) as u64 + 1, &body()).await;
    }
}

async fn append(store: &Store, writer: usize, count: usize) {
    let (streams, name) = (store.streams(), StreamName::new(format!("writer-{writer}")).expect("name"));
    for _ in 0..count {
        streams.append(&name, Step::new([event().expect("event")])).await.expect("append");
    }
}

async fn open(engine: &Engine, feed: &str) -> Result<Store> {
    Store::builder(&format!("memory:?feed={feed}&table=ours-{feed}"))?.http_client(engine.http_client()).open().await
}

impl Args {
    pub(crate) fn of(operations: usize, rounds: usize) -> Self {
        Args { operations, rounds }
    }
}

pub(crate) async fn run(args: &Args) -> Result<Report> {
    let engine = Engine::memory()?;
    let bare = Bare::with_tables(&engine).await;
    let (streams, lanes) = (open(&engine, "streams").await?, open(&engine, "lanes-1").await?);
    let (n, rounds) = (args.operations, args.rounds);

    // One writer: with more, in one process, it is the engine's lock that is measured, and who is woken when.
    let one = compare(rounds, async |r| put(&bare, 0, r, n).await, async |_| append(&streams, 0, n).await).await;

    let mut seq = 0;
    let log = lanes.log()?;
    let lane = compare(
        rounds,
        async |r| {
            for at in 0..n / 2 {
                seq += 1;
                bare.transact(&format!("t{r}"), at as u64 + 1, seq, &body()).await;
            }
        },
        async |r| {
            let tag = format!("t{r}");
            for _ in 0..n / 2 {
                log.append(Append::new([event().and_then(|e| e.tag(&tag)).expect("event")])).await.expect("append");
            }
        },
    )
    .await;

    put(&bare, 99, 0, 100).await;
    append(&streams, 99, 100).await;
    let name = StreamName::new("writer-99")?;
    let load = compare(
        rounds,
        async |_| {
            for _ in 0..n / 10 {
                assert_eq!(bare.query("writer-99").await, 100);
            }
        },
        async |_| {
            for _ in 0..n / 10 {
                let loaded = streams.streams().load(&name, LoadOptions::default()).await.expect("load");
                assert_eq!(loaded.events.len(), 100);
            }
        },
    )
    .await;

    let row = |name: &str, found: Compared| {
        let ms = |time: std::time::Duration| figure(time.as_secs_f64() * 1e3, 1);
        vec![json!(name), ms(found.bare), ms(found.ours), figure(found.ratio(), 2)]
    };
    Ok(Report::new(
        &["the same work, median of rounds", "bare SDK, ms", "fencepost, ms", "ratio"],
        vec![
            row("append, 1 writer, streams mode (PutItem)", one),
            row("append, 1 writer, one lane (2 items in a transaction)", lane),
            row("load a stream of 100 events of 500 B", load),
        ],
    ))
}
