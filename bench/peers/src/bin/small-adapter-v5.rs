//! The smallest program on event-store-adapter-rs 5.2.0: one event appended, to tell how long a start takes and what it weighs.

use fencepost_bench_peers::adapter::V5;
use fencepost_bench_peers::peer::first;
use fencepost_bench_peers::{Ground, told};
use fencepost_contest::Fault;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    first::<V5>(&Ground::plain(&endpoint), &table).await
}
