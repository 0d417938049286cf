//! The index of `streams` mode: built from DynamoDB Streams, every commit once and after its predecessor on every series it touched.

mod compare;
mod mutation;
mod plan;
mod poll;
mod rebuild;
mod recent;
mod ring;
mod run;
mod shards;
#[cfg(test)]
mod simulation;
mod status;

use std::sync::Arc;
use std::time::Duration;

pub use self::compare::IndexVerified;
pub use self::rebuild::{IndexRebuilt, RebuildProgress};
use self::recent::Recent;
pub use self::ring::{Ring, Rung, Served};
use self::run::Runner;
pub use self::status::{IndexStatus, ShardStatus};
use crate::error::Result;
use crate::event::CommitId;
use crate::side::chain::Indexable;
use crate::units::Units;

/// The index of a table in `streams` mode: one for all of its namespaces. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Index {
    log: Arc<dyn Indexable>,
}

/// When a run of the indexer ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Until {
    /// When it is dropped, or its time is up.
    #[default]
    Stopped,
    /// Once nothing more is to be read.
    CaughtUp,
}

/// How to run the indexer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IndexOptions {
    pub(crate) idle_at_least: Duration,
    pub(crate) idle_at_most: Duration,
    pub(crate) until: Until,
    pub(crate) within: Option<Duration>,
    pub(crate) quiet: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            idle_at_least: Duration::from_millis(50),
            idle_at_most: Duration::from_secs(1),
            until: Until::Stopped,
            within: None,
            quiet: 0,
        }
    }
}

impl IndexOptions {
    /// With nothing new, the stream is asked again after the first of these, twice as long each time, up to the second.
    pub fn idle(mut self, at_least: Duration, at_most: Duration) -> Self {
        (self.idle_at_least, self.idle_at_most) = (at_least, at_most.max(at_least));
        self
    }
    /// Ends once nothing more is to be read.
    pub fn until_caught_up(mut self) -> Self {
        self.until = Until::CaughtUp;
        self
    }
    /// Ends after this long, wherever it is: whatever was put is whole, and the next run goes on from there.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
    /// At least so many rounds without a record before it is taken for caught up.
    pub(crate) fn quiet(mut self, rounds: u32) -> Self {
        self.quiet = rounds;
        self
    }
}

/// How far a run of the indexer has come.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexProgress {
    /// Epochs that this run put.
    pub epochs: u64,
    /// Commits in them.
    pub commits: u64,
    /// Commits that arrived, in part or whole, and whose turn has not come.
    pub waiting: u64,
    /// Commits that came behind their turn. Should stay 0.
    pub late: u64,
    /// How often another indexer was first.
    pub races_lost: u64,
    /// How old the records are that are being read; nothing once caught up.
    pub lag: Duration,
    /// Whether nothing more was to be read when this was said.
    pub caught_up: bool,
    /// Whether records were lost before they were read: a rebuild is needed.
    pub trimmed: bool,
    /// What the run has cost; told at its end.
    pub units: Units,
}

impl Index {
    pub(crate) fn new(log: Arc<dyn Indexable>) -> Self {
        Self { log }
    }

    /// Runs the indexer. Two that run at once do no harm: each epoch is put by one of them. Dropped anywhere, the chain is whole.
    pub async fn run(&self, options: &IndexOptions, progress: &(dyn Fn(&IndexProgress) + Send + Sync)) -> Result<IndexProgress> {
        let mut runner = Runner::new(&*self.log, options, progress);
        match options.within {
            None => runner.run().await?,
            Some(time) => tokio::time::timeout(time, runner.run()).await.unwrap_or(Ok(()))?,
        }
        Ok(runner.so_far())
    }

    /// Whether the index holds this commit, of this stamp.
    pub(super) async fn holds(&self, commit: CommitId, stamp: u64) -> Result<bool> {
        let op = self.log.dynamo().long_op();
        let last = self.log.side().last_epoch(&op).await?;
        Recent::before(last.as_ref()).holds(&*self.log, &op, commit, stamp.min(run::now(&*self.log))).await
    }

    /// How far the chain is, as its last epoch says.
    pub async fn status(&self) -> Result<IndexStatus> {
        status::status(&*self.log).await
    }

    /// Reads the whole log and the whole index, and names every difference: commits that one has and the other has not, commits that are
    /// in the index twice or before one that they follow. Commits that were appended since it began are not compared.
    /// `progress` hears the number of items read so far. Holds some 100 bytes of every commit in memory.
    pub async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<IndexVerified> {
        compare::verify(&*self.log, progress).await
    }

    /// Reads the whole log and appends to the index what it lacks, in the order of stamps. Writers and indexers go on meanwhile; checkpoints
    /// hold. What was appended stays if it is stopped, and another run goes on from there. Holds 16 bytes of every commit, and what lacks.
    pub async fn rebuild(&self, progress: &(dyn Fn(&RebuildProgress) + Send + Sync)) -> Result<IndexRebuilt> {
        rebuild::rebuild(&*self.log, progress).await
    }
}
