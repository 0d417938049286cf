//! The smallest program on event-store-adapter-rs 3.0.6: one event appended, to tell how long a start takes and what it weighs.

use fencepost_bench_peers::adapter::V3;
use fencepost_bench_peers::peer::first;
use fencepost_bench_peers::{Ground, told};
use fencepost_contest::Fault;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    first::<V3>(&Ground::plain(&endpoint), &table).await
}
