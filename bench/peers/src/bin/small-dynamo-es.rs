//! The smallest program on dynamo-es: one event appended, to tell how long a start takes and what it weighs.

use fencepost_bench_peers::dynamo_es_peer::DynamoEs;
use fencepost_bench_peers::peer::first;
use fencepost_bench_peers::{Ground, told};
use fencepost_contest::Fault;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    first::<DynamoEs>(&Ground::plain(&endpoint), &table).await
}
