//! Invoice numbers without gap or duplicate: a boundary over a type and no tag, and a cache so that it is not read from the start each time.
//!
//! `cargo run -p fencepost --features embedded,testing --example invoice_number [URL]`, on `memory:` where no URL is given.
//! With `feed=streams` the type must be declared: `fencepost init --index-type InvoiceCreated`.

use fencepost::testing::given;
use fencepost::{About, Cache, Decision, Event, EventLogExt, Query, ReadOptions, Result, Store, decision, fold};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
struct InvoiceCreated {
    number: u64,
    cents: u64,
}

/// The next number, for this invoice and no other.
fn create(cents: u64) -> impl Decision<Rejection = ()> {
    let last = fold(About::every(), 0, |last, invoice: &InvoiceCreated| *last = invoice.number).cached_as("last invoice");
    decision(last, move |last| Ok([InvoiceCreated { number: last + 1, cents }]))
}

fn cases() {
    given(()).when(create(100)).then([InvoiceCreated { number: 1, cents: 100 }]);
    given([InvoiceCreated { number: 1, cents: 100 }]).when(create(200)).then([InvoiceCreated { number: 2, cents: 200 }]);
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let (cache, mut spent) = (Cache::new(1), 0);
    // Twelve clerks at once, each with an invoice.
    for outcome in try_join_all((1..=12).map(async |clerk| store.decide(create(clerk * 100)).cache(&cache).await)).await? {
        spent += outcome.tries;
    }
    let invoices = store.log()?.read_all(&Query::types(["InvoiceCreated"])?, ReadOptions::default()).await?;
    let numbers = invoices.iter().map(|invoice| Ok(invoice.decode::<InvoiceCreated>()?.number)).collect::<Result<Vec<_>>>()?;
    println!("12 invoices in {spent} tries; the last number is {}", numbers.len());
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "each number once, none left out: {numbers:?}");

    // Warm, it reads what came since, however many invoices there are.
    let warm = store.decide(create(900)).cache(&cache).await?;
    println!("the next one, warm: {}", warm.units);
    assert_eq!(cache.stats().misses, 1);
    Ok(())
}
