//! The smallest program on umadb: one event appended, to tell how long a start takes and what it weighs.

use fencepost_bench_peers::{told, uma};
use fencepost_contest::{Fault, Task};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    drop(endpoint);
    uma::contend(Task::First(table)).await
}
