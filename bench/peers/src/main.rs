//! One peer doing what it is told, on an endpoint: `bench-peers PEER ENDPOINT TASK…`. Lines of JSON, as `fencepost-contest` has them.

use fencepost_bench_peers::adapter::{V3, V5};
use fencepost_bench_peers::dynamo_es_peer::DynamoEs;
use fencepost_bench_peers::peer::contend;
use fencepost_bench_peers::{Ground, uma};
use fencepost_contest::{Fault, Task};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, endpoint, task @ ..] = &args[..] else {
        return Err("expected: PEER ENDPOINT TASK…".into());
    };
    let task = Task::parse(task)?;
    let counted = matches!(task, Task::Units(_) | Task::Growth(..));
    let ground = if counted { Ground::metered(endpoint) } else { Ground::plain(endpoint) };
    match peer.as_str() {
        "event-store-adapter-rs 3.0.6" => contend::<V3>(&ground, task).await,
        "event-store-adapter-rs 5.2.0" => contend::<V5>(&ground, task).await,
        "dynamo-es 0.5.0" => contend::<DynamoEs>(&ground, task).await,
        "umadb 0.7.8" => uma::contend(task).await,
        other => Err(format!("no peer {other}").into()),
    }
}
