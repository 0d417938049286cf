//! The smallest program on the ledger: one event appended, to tell how long a start takes and what it weighs.

use fencepost::{Event, Expect, Step, Store, StreamName};
use fencepost_bench_peers::{plain, told};
use fencepost_contest::{Fault, body, first, say};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    let store = Store::builder(&format!("{endpoint}/{table}?feed=streams"))?.client(plain(&endpoint)).open().await?;
    let name = StreamName::new(format!("first-{}", std::process::id()))?;
    // As the others, it knows that it begins a stream.
    store.streams().append(&name, Step::new([Event::new("OrderPlaced", body(0))?]).expect(Expect::None)).await?;
    say(&first())
}
