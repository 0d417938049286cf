//! Invoice numbers without gap or duplicate: a boundary over a type and no tag, held by the position of the last invoice.
//!
//! `cargo run -p fencepost --features embedded --example invoice_number [URL]`, on `memory:` where no URL is given.
//! Positions count with one lane (`feed=lanes-1`, the default); other modes refuse them in a condition: use tokens there.

use fencepost::{After, Append, Event, EventLog, Position, Query, ReadOptions, Result, Store};
use futures::TryStreamExt;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct InvoiceCreated {
    number: u64,
    cents: u64,
}

/// The last number given, and where its event stands.
async fn last(log: &dyn EventLog, query: &Query) -> Result<Option<(u64, Position)>> {
    let mut newest = log.read(query, ReadOptions::default().backwards().limit(1));
    match newest.try_next().await? {
        Some(event) => Ok(Some((event.json::<InvoiceCreated>()?.number, event.position))),
        None => Ok(None),
    }
}

/// The next number, for this invoice and no other.
async fn create(log: &dyn EventLog, cents: u64) -> Result<u64> {
    let query = Query::types(["InvoiceCreated"])?;
    loop {
        // Only the newest invoice is read, and what came after its position fails the append.
        let (number, after) = match last(log, &query).await? {
            Some((number, position)) => (number + 1, After::Position(position)),
            None => (1, After::Nothing),
        };
        let event = Event::json("InvoiceCreated", &InvoiceCreated { number, cents })?;
        match log.append(Append::new([event]).unless(query.clone(), after)).await {
            Ok(_) => return Ok(number),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let log = store.log()?;
    let before = last(&*log, &Query::types(["InvoiceCreated"])?).await?.map_or(0, |(number, _)| number);

    let mut numbers = try_join_all((1..=8).map(async |clerk| create(&*log, clerk * 100).await)).await?;
    numbers.sort_unstable();
    println!("{numbers:?}");

    let expected: Vec<u64> = (before + 1..=before + 8).collect();
    assert_eq!(numbers, expected, "each once, none left out");
    let all: Vec<_> = log.read(&Query::types(["InvoiceCreated"])?, ReadOptions::default()).try_collect().await?;
    let stored = all.iter().map(|event| Ok(event.json::<InvoiceCreated>()?.number)).collect::<Result<Vec<_>>>()?;
    assert!(stored.windows(2).all(|pair| pair[1] == pair[0] + 1), "and in the store in this order");
    Ok(())
}
