//! What Equinox' tables offer beyond streams: taking away the oldest events of a stream, and looking at its unfolds.

use super::Equinox;
use super::item::{self, HASH, NEXT};
use super::plan::{WRITES_BY, trim};
use super::read::snapshot;
use super::settings::{check_name, check_written};
use crate::dynamo::item::{Item, number, text};
use crate::dynamo::{Find, Freshness, Op, Outcome, Verdict, report};
use crate::error::{Error, Reason, Result};
use crate::event::StreamName;
use crate::log::Answer;
use crate::stream::Snapshot;
use crate::units::Units;

/// How often a Tip is trimmed anew that others wrote meanwhile.
const RACES: u32 = 64;

/// What a prune did.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// Events taken away.
    pub deleted: u64,
    /// Events that stay though they were asked for: they share a calf with some that were not, and calves are never changed.
    pub deferred: u64,
    /// The version of the first event that is still there, or would be.
    pub first: u64,
    /// What it cost.
    pub units: Units,
}

/// How far one run has come.
enum Run {
    Over,
    /// Somebody wrote the Tip meanwhile.
    Lost,
}

impl Equinox {
    /// Takes away the events of a stream before this version, oldest first, so that what is left has no gap, however it ends. Snapshots, the
    /// version and the Tip stay. Nothing is announced to the feed by it, but what a consumer has not read by then has no body any more.
    pub async fn prune(&self, stream: &StreamName, before: u64) -> Result<Pruned> {
        check_written(stream)?;
        let op = self.dynamo().long_op();
        let mut pruned = Pruned::default();
        for race in 0..RACES {
            let run = self.prune_once(&op, stream, before.saturating_sub(1), &mut pruned).await;
            self.forget(stream);
            if matches!(run?, Run::Over) {
                report("prune", &op);
                pruned.units = op.units();
                return Ok(pruned);
            }
            self.dynamo().env().sleep(self.dynamo().pause(race.min(5), Reason::Unreachable)).await;
        }
        let deleted = pruned.deleted;
        Err(Error::unavailable(
            Reason::Late,
            format!("{stream} was written by others all the time; {deleted} events were taken away so far: again"),
        ))
    }

    /// Up to this index.
    async fn prune_once(&self, op: &Op, stream: &StreamName, end: u64, pruned: &mut Pruned) -> Result<Run> {
        let find = Find { limit: Some(self.page()), ..Find::new(self.table(), HASH, text(stream.as_str())) };
        pruned.deferred = 0;
        let mut start = None;
        loop {
            let (items, after) = self.dynamo().page(op, &find, start).await?;
            for item in &items {
                let batch = item::batch(item)?;
                pruned.first = batch.base() + 1;
                if item::is_tip(item) {
                    return self.trim(op, stream, item, end, pruned).await;
                }
                if batch.next > end {
                    pruned.deferred = end.saturating_sub(batch.base());
                    return Ok(Run::Over);
                }
                let key = item::key(stream.as_str(), batch.base());
                let values = Item::from([(":n".into(), number(batch.next))]);
                if self.dynamo().delete_if(op, self.table(), key, format!("{NEXT} = :n"), values).await? {
                    pruned.deleted += batch.events.len() as u64;
                }
                pruned.first = batch.next + 1;
            }
            match after {
                Some(after) => start = Some(after),
                None => return Ok(Run::Over),
            }
        }
    }

    async fn trim(&self, op: &Op, stream: &StreamName, item: &Item, end: u64, pruned: &mut Pruned) -> Result<Run> {
        let tip = item::tip(item)?;
        let taken = end.min(tip.batch.next).saturating_sub(tip.batch.base());
        if taken == 0 {
            return Ok(Run::Over);
        }
        let etag = item::etag(self.dynamo().env().new_id());
        let write = trim(self.table(), stream.as_str(), &tip, usize::try_from(taken).unwrap_or(usize::MAX), &etag);
        let done = match self.dynamo().write(op, WRITES_BY, vec![write]).await? {
            Outcome::Done => true,
            // Our own, whose answer was lost.
            Outcome::Failed { verdicts, .. } => match verdicts.first() {
                Some(Verdict::Found(item)) => item::tip(item)?.etag == etag,
                _ => false,
            },
        };
        if !done {
            return Ok(Run::Lost);
        }
        pruned.deleted += taken;
        pruned.first = tip.batch.base() + taken + 1;
        Ok(Run::Over)
    }

    /// The unfolds of a stream: the snapshots that its last append left.
    pub async fn unfolds(&self, stream: &StreamName) -> Result<Answer<Vec<Snapshot>>> {
        check_name(stream)?;
        let op = self.dynamo().op();
        let tip = self.tip(&op, stream, Freshness::Strong).await?;
        let unfolds = tip.iter().flat_map(|tip| &tip.unfolds).map(|unfold| snapshot(stream, unfold));
        let unfolds = unfolds.collect::<Result<Vec<_>>>()?;
        report("unfolds", &op);
        Ok(Answer::new(unfolds, op.units()))
    }
}
