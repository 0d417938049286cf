//! The index of `streams` mode: built from DynamoDB Streams, every commit once and after its predecessor on every series it touched.

mod compare;
mod equinox;
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "only tests break the protocol"))]
mod mutation;
mod plan;
mod poll;
mod rebuild;
mod recent;
mod ring;
mod run;
mod scan;
mod shards;
#[cfg(test)]
mod simulation;
mod status;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;

pub use self::compare::IndexVerified;
#[cfg(feature = "testing")]
pub use self::mutation::Mutation;
#[cfg(not(feature = "testing"))]
use self::mutation::Mutation;
pub use self::rebuild::{IndexRebuilt, RebuildProgress};
use self::recent::{Rebuilt, Recent, Since};
pub use self::ring::{Ring, Rung, Served};
use self::run::Runner;
use self::scan::Pace;
pub use self::status::{IndexStatus, ShardStatus, Unread};
use crate::dynamo::item::of_json;
use crate::error::{Refused, Result};
use crate::event::CommitId;
use crate::layout::VerifyProgress;
use crate::layout::equinox::Equinox;
use crate::position::Checkpoint;
use crate::side::Side;
use crate::side::chain::Indexable;
use crate::units::Units;

/// What a chain holds, asked again and again: each epoch is read once.
#[derive(Debug, Default)]
pub(super) struct Shown {
    recent: Mutex<Recent>,
    rebuilt: Mutex<Rebuilt>,
}

impl Shown {
    /// Whether the chain holds this commit, of this stamp, by now.
    pub(super) async fn holds(&self, log: &dyn Indexable, commit: CommitId, stamp: u64) -> Result<bool> {
        let op = log.dynamo().long_op();
        let mut recent = self.recent.lock().await;
        recent.read_on(log, &op).await?;
        let now = run::now(log);
        // One that is dated ahead may have been indexed at any time.
        let since = if log.counts_events() && stamp > now { Since::Ever } else { Since::Stamp(stamp.min(now)) };
        recent.holds(log, &op, commit, since).await
    }

    /// Since when the stream has something of this namespace that the chain lacks.
    pub(super) async fn lacks_since(&self, log: &dyn Indexable) -> Result<Option<Timestamp>> {
        status::lacks_since(log, &mut *self.rebuilt.lock().await).await
    }
}

/// Since when the stream of Equinox's tables has something that their index lacks.
pub(super) async fn unshown_of_appends(store: &Equinox) -> Result<Option<Timestamp>> {
    equinox::lacks_since(store).await
}

/// What one run learnt of the chain and the next need not read again.
#[derive(Debug, Default)]
struct Learnt {
    recent: Recent,
    rebuilt: Rebuilt,
}

/// The index of a table in `streams` mode: one for all of its namespaces. Cheap to clone. Kept from run to run, it reads less of the chain.
#[derive(Debug, Clone)]
pub struct Index {
    of: Of,
    pace: Pace,
    learnt: Arc<Mutex<Learnt>>,
}

/// Where the index is.
#[derive(Debug, Clone)]
enum Of {
    /// A chain of epochs in the side table.
    Chain(Arc<dyn Indexable>),
    /// Streams of a table that the layout has for it.
    Appends(Equinox),
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
    mutation: Option<Mutation>,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            idle_at_least: Duration::from_millis(50),
            idle_at_most: Duration::from_secs(1),
            until: Until::Stopped,
            within: None,
            quiet: 0,
            mutation: None,
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
    /// Breaks the protocol on purpose.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn mutate(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
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
    /// How old the records are that are being read; once caught up, how old the oldest is of a commit that waits, or nothing.
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
        Self { of: Of::Chain(log), pace: Pace::default(), learnt: Arc::default() }
    }
    pub(crate) fn appends(store: Equinox) -> Self {
        Self { of: Of::Appends(store), pace: Pace::default(), learnt: Arc::default() }
    }

    /// Scans of a rebuild by pages of so many items, saved after so many of them.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn scan_by(mut self, items: i32, pages: u32) -> Self {
        self.pace = Pace { items: Some(items), pages };
        self
    }

    fn side(&self) -> &Side {
        match &self.of {
            Of::Chain(log) => log.side(),
            Of::Appends(store) => store.side(),
        }
    }

    /// Runs the indexer. Two that run at once do no harm: each epoch is put by one of them. Dropped anywhere, the chain is whole.
    pub async fn run(&self, options: &IndexOptions, progress: &(dyn Fn(&IndexProgress) + Send + Sync)) -> Result<IndexProgress> {
        async fn within(time: Option<Duration>, run: impl Future<Output = Result<()>>) -> Result<()> {
            match time {
                None => run.await,
                Some(time) => tokio::time::timeout(time, run).await.unwrap_or(Ok(())),
            }
        }
        match &self.of {
            Of::Chain(log) => {
                let mut runner = Runner::new(&**log, options, progress, &self.learnt);
                within(options.within, runner.run()).await?;
                Ok(runner.so_far())
            }
            Of::Appends(store) => {
                let mut runner = equinox::Runner::new(store, options, progress);
                within(options.within, runner.run()).await?;
                Ok(runner.so_far())
            }
        }
    }

    /// Whether [`Index::take`] has records put into the index without a look at the stream.
    pub fn takes_records(&self) -> bool {
        matches!(self.of, Of::Appends(_))
    }

    /// Indexes what these records say: the new images of records of one shard, in their order, in DynamoDB's own JSON (`{"p": {"S": …}, …}`).
    /// All of them are in the index once it returns; after an error hand them in again, from the first. Those that come twice do no harm,
    /// and what should have come between is found. Refused where only the stream itself tells what comes next: answer a ring there.
    pub async fn take(&self, images: &[serde_json::Value]) -> Result<IndexProgress> {
        match &self.of {
            Of::Chain(_) => {
                let remedy = "ring: the indexer reads the stream itself".into();
                Err(Refused::Unsupported { what: "indexing records that are handed over".into(), remedy }.into())
            }
            Of::Appends(store) => equinox::take(store, images.iter().filter_map(of_json).collect()).await,
        }
    }

    /// Where a consumer group of Propulsion's has come, to begin from there: in either dialect, in every partition. None where it never began.
    /// Refused where the index is not one of Propulsion's.
    pub async fn peer_checkpoint(&self, group: &str) -> Result<Option<Checkpoint>> {
        equinox::peer_checkpoint(self.of_peer()?, group).await
    }

    /// Says how far a consumer is for one of Propulsion's to go on from there, in the dialect of F#: an event of its own so often, a snapshot
    /// between. What was handed over of an entry that is not whole comes there once more. It lies in the index table, which an indexer's
    /// rights let write, and those of a reader or writer do not.
    pub async fn save_peer_checkpoint(&self, group: &str, checkpoint: &Checkpoint, every: Duration) -> Result<()> {
        equinox::save_peer_checkpoint(self.of_peer()?, group, checkpoint, every).await
    }

    fn of_peer(&self) -> Result<&Equinox> {
        match &self.of {
            Of::Appends(store) => Ok(store),
            Of::Chain(_) => {
                let remedy = "only layout=equinox has them".into();
                Err(Refused::Unsupported { what: "checkpoints of Propulsion's".into(), remedy }.into())
            }
        }
    }

    /// How far the index is, and since when the stream has what it lacks: an indexer that stands still shows by that, and by nothing else.
    pub async fn status(&self) -> Result<IndexStatus> {
        match &self.of {
            Of::Chain(log) => status::status(&**log).await,
            Of::Appends(store) => equinox::status(store).await,
        }
    }

    /// Reads the whole log and the whole index, and names every difference: commits that one has and the other has not, commits that are
    /// in the index twice or, but for Propulsion's index, before one that they follow. Commits that were appended since it began are not compared.
    /// `progress` hears the number of items read so far, and about how many there are. Holds up to 250 bytes of every commit and 120
    /// of every tag in memory; where the index names streams and how far they are, some 100 of every stream.
    pub async fn verify(&self, progress: &(dyn Fn(&VerifyProgress) + Send + Sync)) -> Result<IndexVerified> {
        match &self.of {
            Of::Chain(log) => compare::verify(&**log, progress).await,
            Of::Appends(store) => equinox::verify(store, progress).await,
        }
    }

    /// Reads the whole log and appends to the index what it lacks, in the order of stamps. Writers and indexers go on meanwhile; checkpoints
    /// hold. If it is stopped, another run within 23 hours goes on where its scan was, and what was appended stays. Holds up to 45 bytes of
    /// every commit, and 500 of each that lacks.
    pub async fn rebuild(&self, progress: &(dyn Fn(&RebuildProgress) + Send + Sync)) -> Result<IndexRebuilt> {
        match &self.of {
            Of::Chain(log) => rebuild::rebuild(&**log, self.pace, progress).await,
            Of::Appends(store) => equinox::rebuild(store, self.pace, progress).await,
        }
    }
}
