//! The only room that knows the AWS SDK; it does not know what an event is.

#[cfg(feature = "offload")]
mod chain;
mod clock;
mod connect;
pub(crate) mod embedded;
mod fetch;
pub(crate) mod item;
mod limits;
mod meter;
pub(crate) mod records;
mod retry;
pub(crate) mod table;
mod transact;

pub(crate) use aws_config::SdkConfig;
pub(crate) use aws_sdk_dynamodb::Client;
pub(crate) use aws_smithy_runtime_api::client::http::{HttpClient, SharedHttpClient};
#[cfg(feature = "offload")]
pub(crate) use chain::Chain;
pub use connect::Timeouts;
pub(crate) use connect::{Connect, Place};
pub(crate) use fetch::{Find, Freshness, Key, Range};
pub(crate) use limits::{ITEM_BYTES, TRANSACTION_BYTES, TRANSACTION_ITEMS};
pub(crate) use meter::{Op, report};
pub(crate) use retry::Failure;
pub(crate) use transact::{Outcome, Terms, Verdict, Write};

use std::sync::Arc;
use std::time::Duration;

use crate::env::Env;

/// A connection to DynamoDB or to what speaks like it: client, clock and retry policy. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Dynamo(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: aws_sdk_dynamodb::Client,
    #[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the indexer reads streams"))]
    streams: records::Connection,
    env: Env,
    timeouts: Timeouts,
    longest_pause: Duration,
    clock: clock::Watch,
}

impl Dynamo {
    fn new(
        client: aws_sdk_dynamodb::Client,
        streams: records::Connection,
        env: Env,
        timeouts: Timeouts,
        longest_pause: Duration,
        clock: clock::Watch,
    ) -> Self {
        Self(Arc::new(Inner { client, streams, env, timeouts, longest_pause, clock }))
    }
    fn client(&self) -> &aws_sdk_dynamodb::Client {
        &self.0.client
    }
    /// The region of the tables; none where they are in no cloud.
    #[cfg(feature = "offload")]
    pub(crate) fn region(&self) -> Option<String> {
        self.client().config().region().map(|region| region.as_ref().to_owned()).filter(|region| region != "local")
    }
    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }
    /// Refuses to stamp with a clock that is far off the service's.
    pub(crate) fn check_clock(&self) -> crate::error::Result<()> {
        self.0.clock.check()
    }
    /// How far this machine's clock is off the service's, where that tells the time.
    pub(crate) fn clock_off(&self) -> Option<std::time::Duration> {
        self.0.clock.off()
    }
    /// One operation of the store: it must end within the deadline, and its units are added up.
    pub(crate) fn op(&self) -> Op {
        Op::new(self.0.timeouts.operation)
    }
    /// For background work that takes as long as it takes: each request has its own deadline.
    pub(crate) fn long_op(&self) -> Op {
        Op::unbounded()
    }
}
