//! The chain of epochs in the side table, read strongly and put if absent; and what a layout must tell of its log for it to be indexed.

use async_trait::async_trait;

use super::Side;
use super::epoch::{CHAIN, Epoch, Indexed};
use super::item::{HASH, RANGE};
use super::notice::Notice;
use crate::dynamo::item::{Item, text};
use crate::dynamo::records::Record;
use crate::dynamo::{Dynamo, Find, Freshness, Op, Outcome, Range, Verdict, Write};
use crate::error::{Refused, Result};
use crate::event::{CommitId, Recorded};
use crate::position::Position;
use crate::query::Query;

/// So many events of indexed commits are held at a time, and those of one commit more.
pub(crate) const EVENTS: usize = 1_024;
/// The highest number there can be.
const LAST: u64 = u64::MAX >> 1;

/// Where an epoch may be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Under {
    /// Where none is.
    NextNumber,
    /// Over what another put as well: only tests break the chain so.
    AnyNumber,
}

impl Side {
    /// The newest epoch.
    pub(crate) async fn last_epoch(&self, op: &Op) -> Result<Option<Epoch>> {
        Ok(self.epochs_down(op, LAST, 1).await?.pop())
    }

    /// Epochs from this number down.
    pub(crate) async fn epochs_down(&self, op: &Op, from: u64, limit: i32) -> Result<Vec<Epoch>> {
        self.epochs(op, Find { reverse: true, limit: Some(limit), ..self.chain(1, from) }).await
    }

    /// A page of epochs from this number on: the contiguous run.
    pub(crate) async fn epochs_from(&self, op: &Op, from: u64, limit: i32) -> Result<Vec<Epoch>> {
        self.epochs_shown(op, from, limit, Freshness::Strong).await
    }

    /// The same; at half the units what was there a moment ago. An epoch never changes, and none comes before one that is there.
    pub(crate) async fn epochs_shown(&self, op: &Op, from: u64, limit: i32, freshness: Freshness) -> Result<Vec<Epoch>> {
        let epochs = self.epochs(op, Find { limit: Some(limit), freshness, ..self.chain(from, LAST) }).await?;
        Ok(epochs.into_iter().zip(from..).take_while(|(epoch, number)| epoch.number == *number).map(|(epoch, _)| epoch).collect())
    }

    async fn epochs(&self, op: &Op, find: Find) -> Result<Vec<Epoch>> {
        let page = self.dynamo().page(op, &find, None).await;
        if self.is_not_made(&page) {
            return Ok(Vec::new());
        }
        page?.0.iter().map(Epoch::of_item).collect()
    }

    fn chain(&self, from: u64, to: u64) -> Find {
        Find::new(self.table(), HASH, text(CHAIN)).range(Range::numbers(RANGE, from, to))
    }

    /// Puts an epoch under its number, if nobody else did; whether it is there now.
    pub(crate) async fn put_epoch(&self, op: &Op, epoch: &Epoch, under: Under) -> Result<bool> {
        self.dynamo().check_clock()?;
        let (table, item) = (self.table().into(), epoch.item());
        let write = match under {
            Under::NextNumber => Write::PutNew { table, item },
            Under::AnyNumber => Write::Put { table, item },
        };
        match self.put(op, write).await? {
            Outcome::Done => {
                self.ring();
                Ok(true)
            }
            // Our own put, whose answer was lost.
            Outcome::Failed { verdicts, .. } => match verdicts.first() {
                Some(Verdict::Found(there)) => Ok(Epoch::of_item(there)? == *epoch),
                _ => Ok(false),
            },
        }
    }
}

/// What a row says that stands before a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Before {
    /// As the index calls it, if it came by itself.
    pub(crate) commit: CommitId,
    pub(crate) place: String,
    pub(crate) stamp: u64,
}

/// A log whose feed is an index in its side table, built from the stream of one of its tables: what only its layout can tell.
#[async_trait]
pub(crate) trait Indexable: std::fmt::Debug + Send + Sync {
    /// Where the chain is, and the namespace whose events are handed over.
    fn side(&self) -> &Side;
    /// The table whose stream is read.
    fn log_table(&self) -> &str;
    /// Raised when a restore is adopted; older checkpoints are refused then.
    fn incarnation(&self) -> u64 {
        0
    }

    /// Whether the slots of a commit name every tag of its events, so that a reader of other tags passes it over.
    fn slots_name_all_tags(&self) -> bool {
        true
    }

    /// Whether versions count events, and stamps are what somebody said and not what the order follows.
    fn counts_events(&self) -> bool {
        false
    }

    /// What a record of the stream says; none: nothing that counts.
    fn notice(&self, record: &Record) -> Result<Option<Notice>>;

    /// What an item says that a scan of [`Indexable::homes`] met; none: it is no commit's home.
    fn home(&self, item: &Item) -> Result<Option<Notice>>;
    /// The table among whose items the homes are.
    fn homes(&self) -> &str;

    /// The commit that left this version of a series, by the whole key, and its stamp: when it was written, or was said to be.
    async fn commit_at(&self, op: &Op, series: &str, version: u64) -> Result<Option<(CommitId, u64)>>;
    /// The same commit's home.
    async fn home_of(&self, op: &Op, series: &str, version: u64) -> Result<Option<Notice>>;

    /// Where places order a series: what stands last on it before this one, by its row, strongly read.
    async fn before(&self, _: &Op, _series: &str, _place: &str) -> Result<Option<Before>> {
        Ok(None)
    }
    /// What the log itself says of a commit that such a row named; none: it is not there.
    async fn notice_of(&self, _: &Op, _series: &str, _: CommitId) -> Result<Option<Notice>> {
        Ok(None)
    }

    /// The commit that stands at a position, as the index calls it, and its stamp; none where that cannot be told yet.
    async fn commit_of(&self, _: &Op, position: Position) -> Result<Option<(CommitId, u64)>> {
        let foreign =
            || Refused::Foreign { what: "position", of: "a store that counts its events".into(), here: "one that does not".into() };
        let (stamp, commit, _) = position.as_stamped().ok_or_else(foreign)?;
        Ok(Some((commit, stamp)))
    }
    /// Whether events may go from the log, by their time to live, while the index names them still.
    fn may_expire(&self) -> bool {
        false
    }

    /// The events of these commits that match, of each in order, with their indexes. A commit that cannot match need not be fetched. Of how
    /// many events the commits are may not be known: it may end, behind one of them at least, once there are [`EVENTS`].
    async fn indexed_events(&self, commits: &[&Indexed], query: &Query) -> Result<Vec<Vec<(u32, Recorded)>>>;

    fn dynamo(&self) -> &Dynamo {
        self.side().dynamo()
    }
}
