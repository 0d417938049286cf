//! What the store adds to the bare SDK: the same requests on the same engine in one run, as ratios, because machines are noisy.

mod bare;

use std::time::{Duration, Instant};

use bare::Bare;
use clap::Parser;
use fencepost::{Append, Engine, Event, LoadOptions, Result, Step, Store, StreamName};

/// Appends and loads of the ledger beside the same requests sent by the bare SDK, on the embedded engine
#[derive(Parser)]
struct Args {
    /// Operations a round.
    #[arg(long, default_value_t = 400)]
    operations: usize,
    /// Rounds of each side, taken in turns; medians are compared.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

struct Row {
    name: &'static str,
    bare: Duration,
    ours: Duration,
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Both sides in turns, so that a slow moment of the machine strikes both; the first round of each warms up and is left out.
async fn compare(name: &'static str, rounds: usize, mut bare: impl AsyncFnMut(usize), mut ours: impl AsyncFnMut(usize)) -> Row {
    let (mut bare_times, mut our_times) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let began = Instant::now();
        bare(round).await;
        let between = Instant::now();
        ours(round).await;
        if round > 0 {
            bare_times.push(between - began);
            our_times.push(between.elapsed());
        }
    }
    Row { name, bare: median(bare_times), ours: median(our_times) }
}

fn body() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(489))
}

fn event() -> Result<Event> {
    Event::new("OrderPlaced", body())
}

/// Each writer keeps to its stream, whose end it remembers after the first round.
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

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let args = Args::parse();
    let engine = Engine::memory()?;
    let bare = Bare::new(&engine).await;
    let (streams, lanes) = (open(&engine, "streams").await?, open(&engine, "lanes-1").await?);
    let mut rows = Vec::new();

    let n = args.operations;
    rows.push(
        compare(
            "append, 1 writer, streams mode (PutItem)",
            args.rounds,
            async |r| put(&bare, 0, r, n).await,
            async |_| append(&streams, 0, n).await,
        )
        .await,
    );
    // Sixteen tasks, on as many threads as there are.
    rows.push(
        compare(
            "append, 16 writers, streams mode",
            args.rounds,
            async |r| {
                let writers = (1..=16).map(|writer| {
                    let bare = bare.clone();
                    tokio::spawn(async move { put(&bare, writer, r, n / 16).await })
                });
                futures::future::join_all(writers).await;
            },
            async |_| {
                let writers = (1..=16).map(|writer| {
                    let streams = streams.clone();
                    tokio::spawn(async move { append(&streams, writer, n / 16).await })
                });
                futures::future::join_all(writers).await;
            },
        )
        .await,
    );

    let mut seq = 0;
    let log = lanes.log()?;
    rows.push(
        compare(
            "append, 1 writer, one lane (2 items in a transaction)",
            args.rounds,
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
        .await,
    );

    put(&bare, 99, 0, 100).await;
    append(&streams, 99, 100).await;
    let name = StreamName::new("writer-99")?;
    rows.push(
        compare(
            "load a stream of 100 events of 500 B",
            args.rounds,
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
        .await,
    );

    print(&rows, args.json);
    Ok(())
}

fn print(rows: &[Row], json: bool) {
    let ratio = |row: &Row| row.ours.as_secs_f64() / row.bare.as_secs_f64();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| serde_json::json!({ "name": row.name, "bare_ms": row.bare.as_secs_f64() * 1e3, "ours_ms": row.ours.as_secs_f64() * 1e3, "ratio": ratio(row) }))
            .collect();
        return println!("{}", serde_json::Value::Array(rows));
    }
    println!("{:<55} {:>12} {:>12} {:>7}", "the same work, median of rounds", "bare SDK", "fencepost", "ratio");
    for row in rows {
        println!("{:<55} {:>12.2?} {:>12.2?} {:>7.3}", row.name, row.bare, row.ours, ratio(row));
    }
}
