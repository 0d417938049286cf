//! One peer doing the rows that it is told, on an endpoint: `fencepost-bench-peers PEER ENDPOINT ROW…`. A line of JSON for each row: its
//! units, or why the peer cannot do it.

mod adapter;
mod dynamo_es_peer;
mod peer;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use fencepost::testing::Meter;
use peer::{Done, Peer};
use serde_json::json;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Where a peer is measured.
pub(crate) struct Ground {
    endpoint: String,
    pub(crate) meter: Meter,
}

impl Ground {
    fn new(endpoint: &str) -> Ground {
        let meter = Meter::new(aws_smithy_http_client::Builder::new().build_http());
        Ground { endpoint: endpoint.trim_end_matches('/').into(), meter }
    }

    pub(crate) fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new("any", "any", None, None, "bench"))
            .region(Region::new("us-east-1"))
            .endpoint_url(&self.endpoint)
            .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new())
            .http_client(self.meter.http_client());
        Client::from_conf(config.build())
    }

    /// The tables of a layout, made as its peer has them.
    pub(crate) async fn tables(&self, table: &str, layout: &str) -> Result<(), Fault> {
        let url = format!("{}/{table}?layout={layout}", self.endpoint);
        fencepost::Store::builder(&url)?.client(self.client()).create(true).open().await?;
        Ok(())
    }
}

async fn rows(peer: &mut impl Peer, ground: &Ground, names: &[String]) -> Result<(), Fault> {
    for row in names {
        let found = match peer.row(ground, row).await? {
            Done::Units(units) => json!({ "row": row, "units": units }),
            Done::Cannot(why) => json!({ "row": row, "cannot": why }),
        };
        println!("{found}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, endpoint, names @ ..] = &args[..] else {
        return Err("expected: PEER ENDPOINT ROW…".into());
    };
    let ground = Ground::new(endpoint);
    match peer.as_str() {
        "event-store-adapter-rs 3.0.6" => rows(&mut adapter::V3::default(), &ground, names).await,
        "event-store-adapter-rs 5.2.0" => rows(&mut adapter::V5::default(), &ground, names).await,
        "dynamo-es 0.5.0" => rows(&mut dynamo_es_peer::DynamoEs::default(), &ground, names).await,
        other => Err(format!("no peer {other}").into()),
    }
}
