//! The bell of the index: whoever is rung takes the lease and runs the indexer until it has caught up, or makes sure that a living holder
//! knows. So one of many works, the others cost a second, and no ring is lost wherever one of them dies.
//!
//! The lease decides nothing about the index: epochs are put if absent, and a second indexer is only in vain. What rests on it is that a
//! ring is heard. Whoever takes a mark off the lease looks at the stream afterwards, or says [`Served::RingAgain`].

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::{Index, IndexOptions, IndexProgress, Of};
use crate::dynamo::Op;
use crate::dynamo::item::of_json;
use crate::dynamo::records::{Change, Record, Sequence};
use crate::error::Result;
use crate::event::CommitId;
use crate::state::{Cell, CellKey, CellKind, CellWrite, Cells, Lease, Revision, Standing, Watch};
use crate::units::Units;

/// Where the lease lies. A dot, so that a consumer called `index` has a place of its own.
const NAME: &str = "fencepost.index";
/// How long a holder may stay silent.
const LENGTH: Duration = Duration::from_secs(10);
/// How often it speaks in that time.
const BEATS: u32 = 10;
/// How often others look, in one beat.
const LOOKS: u32 = 4;
/// Left for giving the lease up and for answering.
const MARGIN: Duration = Duration::from_secs(2);
/// `GetRecords` may need many calls until it comes to the part of a shard where the records are, and says nothing of that: where the commit
/// that was rung about is not among the newest of the index, so many empty rounds are waited for, and then so many.
const PATIENCE: [u32; 2] = [30, 100];
/// Epochs in which a commit is looked for, one page of them: one that was indexed long ago need not be found.
const NEWEST: i32 = 16;

/// A ring: somebody says that there is something to index.
#[derive(Debug, Clone)]
pub struct Ring {
    within: Duration,
    margin: Duration,
    length: Duration,
    about: Option<Value>,
}

impl Ring {
    /// It must be answered in this time, such as what an invocation of a function has left; the work stops a margin of 2 s before.
    pub fn within(time: Duration) -> Self {
        Self { within: time, margin: MARGIN, length: LENGTH, about: None }
    }
    /// How long before the end the work stops: time to give the lease up and to answer.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }
    /// How long a holder may stay silent before another takes over: 10 s. It speaks ten times as often.
    pub fn lease(mut self, length: Duration) -> Self {
        self.length = length;
        self
    }
    /// What it rings about: the new image of the last record that rang, in DynamoDB's own JSON (`{"p": {"S": …}, …}`), of which no more than
    /// the commit's id is read. The stream may show a record to one reader before another; with this, it is waited for.
    pub fn about(mut self, image: &Value) -> Self {
        self.about = Some(image.clone());
        self
    }
}

/// How a ring was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Served {
    /// All that there was is indexed.
    Indexed,
    /// Another holds the lease, lives, and knows of this ring.
    HandedOver,
    /// The time was up first. Ring again: what is left may have nobody else to ask for it, rings of others too that were handed over.
    RingAgain,
}

/// What came of a ring.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Rung {
    /// How it was served.
    pub served: Served,
    /// How often the indexer was run: once more for each time that somebody rang meanwhile.
    pub looks: u64,
    /// How often the lease was lost to another after a silence: by a process that was frozen and woke up late.
    pub fenced: u64,
    /// What was indexed, and what all of it cost, the lease too.
    pub progress: IndexProgress,
}

impl Index {
    /// Answers a ring: runs the indexer until it has caught up, alone among those who are rung, or hands the ring over to the one that runs.
    /// Dropped anywhere, the chain is whole, and the next ring takes over once the lease's length has passed. After an error, ring again.
    pub async fn answer(&self, ring: &Ring, progress: &(dyn Fn(&IndexProgress) + Send + Sync)) -> Result<Rung> {
        let mut bell = Bell::new(self, ring, progress)?;
        // Work stops by itself when the time is up; what then still hangs is cut off.
        let cut = bell.until + ring.margin / 2;
        let served = timeout_at(cut, bell.serve()).await.unwrap_or(Ok(Served::RingAgain));
        if bell.may_hold && timeout(ring.margin / 4, bell.leave()).await.is_err() {
            tracing::warn!("the index's lease could not be given up in time: others wait for its length");
        }
        Ok(bell.rung(served?))
    }
}

struct Bell<'a> {
    index: &'a Index,
    ring: &'a Ring,
    progress: &'a (dyn Fn(&IndexProgress) + Send + Sync),
    counted: Arc<Counted>,
    cells: Arc<dyn Cells>,
    key: CellKey,
    me: Uuid,
    until: Instant,
    watch: Watch,
    /// Whether the lease may be ours: it is, or a write that takes it is on its way.
    may_hold: bool,
    op: Op,
    looks: u64,
    fenced: u64,
    total: IndexProgress,
}

impl<'a> Bell<'a> {
    fn new(index: &'a Index, ring: &'a Ring, progress: &'a (dyn Fn(&IndexProgress) + Send + Sync)) -> Result<Self> {
        let counted = Arc::new(Counted { cells: Arc::new(index.side().clone()), loads: AtomicU64::new(0), saves: AtomicU64::new(0) });
        Ok(Self {
            index,
            ring,
            progress,
            cells: counted.clone(),
            counted,
            key: CellKey::new(CellKind::Lease, NAME, 0)?,
            me: index.side().dynamo().env().new_id(),
            until: Instant::now() + ring.within.saturating_sub(ring.margin),
            watch: Watch::default(),
            may_hold: false,
            op: index.side().dynamo().long_op(),
            looks: 0,
            fenced: 0,
            total: IndexProgress::default(),
        })
    }

    async fn serve(&mut self) -> Result<Served> {
        while !self.is_over() {
            self.may_hold = true;
            match Lease::try_take(&self.cells, &self.key, self.me, self.ring.length, &mut self.watch).await? {
                Some(lease) => {
                    if let Some(served) = self.hold(lease).await? {
                        return Ok(served);
                    }
                    self.may_hold = false;
                    self.fenced += 1;
                    tracing::warn!("the index's lease was taken over after a silence; what this run put is whole");
                }
                None => {
                    self.may_hold = false;
                    if self.hand_over().await? {
                        return Ok(Served::HandedOver);
                    }
                }
            }
        }
        Ok(Served::RingAgain)
    }

    /// Looks until nobody has rung since the look began, and gives the lease up; none where it was lost on the way.
    async fn hold(&mut self, mut lease: Lease) -> Result<Option<Served>> {
        let (mut quiet, mut patience) = (0, PATIENCE.into_iter());
        loop {
            let Some(ran) = self.look(&mut lease, quiet).await? else { return Ok(None) };
            if !ran.caught_up {
                return Ok(Some(Served::RingAgain));
            }
            // Also where it waits, for a record of another shard: that may lie behind as many empty pages, and its own ring too.
            if !self.is_in().await? {
                if let Some(rounds) = patience.next() {
                    quiet = rounds;
                    continue;
                }
                tracing::info!("rung about a commit that is not among the newest of the index, and the stream shows no more");
            }
            loop {
                match lease.release_unless_rung(Value::Null).await? {
                    // Given up; or taken by another, after all that this ring asked for was indexed.
                    Standing::Lost => {
                        self.may_hold = false;
                        return Ok(Some(Served::Indexed));
                    }
                    Standing::Kept { rung: Some(_), .. } => break,
                    Standing::Kept { rung: None, .. } => {}
                }
            }
        }
    }

    /// Runs the indexer until it has caught up or the time is up, and speaks meanwhile; none where the lease is another's.
    async fn look(&mut self, lease: &mut Lease, quiet: u32) -> Result<Option<IndexProgress>> {
        self.looks += 1;
        let left = self.until.saturating_duration_since(Instant::now());
        let options = IndexOptions::default().until_caught_up().within(left).quiet(quiet);
        let mut run = pin!(self.index.run(&options, self.progress));
        let ran = loop {
            // The run stands still while the lease is written: a write that is cut short would leave it unknown.
            match timeout(self.ring.length / BEATS, run.as_mut()).await {
                Ok(ran) => break ran?,
                Err(_) => match lease.renew(Value::Null).await {
                    Ok(Standing::Kept { .. }) => {}
                    Ok(Standing::Lost) => return Ok(None),
                    Err(error) if error.is_retryable() => tracing::warn!(%error, "the index's lease was not renewed"),
                    Err(error) => return Err(error),
                },
            }
        };
        let sum = IndexProgress {
            epochs: self.total.epochs + ran.epochs,
            commits: self.total.commits + ran.commits,
            late: self.total.late + ran.late,
            races_lost: self.total.races_lost + ran.races_lost,
            units: self.total.units + ran.units,
            ..ran.clone()
        };
        self.total = sum;
        Ok(Some(ran))
    }

    /// Leaves a mark on the lease and waits until its holder has spoken since: only the living speak, and whoever writes the lease has seen
    /// the mark. False: it is to be had, or the time is up.
    async fn hand_over(&mut self) -> Result<bool> {
        if !Lease::ring(&self.cells, &self.key, self.me).await? {
            self.pause().await;
            return Ok(false);
        }
        let (mut spoke, mut heard) = (None, None);
        while !self.is_over() {
            let Some(cell) = self.cells.load(&self.key).await? else { return Ok(false) };
            let (seen, silent) = self.watch.look(&self.key, &cell)?;
            if seen.holder.is_none() || silent {
                return Ok(false);
            }
            // Another holder than before took it after the mark, and looks after that.
            let now = Some((seen.holder, seen.beat));
            if spoke.is_some() && spoke != now {
                let since = *heard.get_or_insert_with(Instant::now);
                // What was rung about shows to the holder too, soon; if it gives the lease up before that, this one looks itself.
                if self.is_in().await? || since.elapsed() >= self.ring.length {
                    return Ok(true);
                }
            }
            spoke = now;
            self.pause().await;
        }
        Ok(false)
    }

    /// The commit that was rung about, where that can be told.
    fn about(&self) -> Option<CommitId> {
        // Of an index that names no commits it is not told.
        let Of::Chain(log) = &self.index.of else { return None };
        let image = of_json(self.ring.about.as_ref()?)?;
        let record = Record { sequence: Sequence::new(""), change: Change::Insert, at: 0, image };
        log.notice(&record).ok().flatten().map(|notice| notice.commit)
    }

    /// Whether what was rung about is among the newest of the index.
    async fn is_in(&self) -> Result<bool> {
        let Some(commit) = self.about() else { return Ok(true) };
        let epochs = self.index.side().epochs_down(&self.op, u64::MAX >> 1, NEWEST).await?;
        Ok(epochs.iter().flat_map(|epoch| &epoch.entries).any(|entry| entry.commit == commit))
    }

    /// Gives the lease up, if it is ours, whatever became of the last write to it. Marks go with it, so this is only for who is rung again.
    async fn leave(&mut self) {
        let given_up = async {
            let taken = Lease::try_take(&self.cells, &self.key, self.me, self.ring.length, &mut Watch::default()).await?;
            let Some(mut lease) = taken else { return Ok(()) };
            while lease.release_unless_rung(Value::Null).await? != Standing::Lost {}
            Ok::<_, crate::error::Error>(())
        };
        if let Err(error) = given_up.await {
            tracing::warn!(%error, "the index's lease was not given up: others wait for its length");
        }
    }

    async fn pause(&self) {
        self.index.side().dynamo().env().sleep(self.ring.length / BEATS / LOOKS).await;
    }
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn rung(self, served: Served) -> Rung {
        let units = self.total.units + self.op.units() + self.counted.units();
        Rung { served, looks: self.looks, fenced: self.fenced, progress: IndexProgress { units, ..self.total } }
    }
}

/// Counts what the lease costs: cells tell no units, and a lease is one small item, read strongly.
#[derive(Debug)]
struct Counted {
    cells: Arc<dyn Cells>,
    loads: AtomicU64,
    saves: AtomicU64,
}

impl Counted {
    fn units(&self) -> Units {
        let (loads, saves) = (self.loads.load(Ordering::Relaxed), self.saves.load(Ordering::Relaxed));
        Units { read: loads as f64, write: saves as f64, requests: loads + saves }
    }
}

#[async_trait]
impl Cells for Counted {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.cells.load(key).await
    }
    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        self.saves.fetch_add(1, Ordering::Relaxed);
        self.cells.save(key, body, expect).await
    }
    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        self.saves.fetch_add(1, Ordering::Relaxed);
        self.cells.delete(key, expect).await
    }
    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        self.saves.fetch_add(writes.len() as u64, Ordering::Relaxed);
        self.cells.write_all(writes).await
    }
    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        self.cells.list(kind, name).await
    }
}
