//! Retention: snapshots of the past beyond those to be kept are deleted, or marked to expire. After the append, which it never fails; by an
//! index that may lag, so that it removes too few at most, and never the newest.

use futures::TryStreamExt;

use super::EventStoreAdapter;
use super::item::{self, ACTIVE, AID, SEQ, SKEY, TTL};
use super::plan::Commit;
use super::settings::Kind;
use crate::dynamo::item::{Attributes, Item, as_number, number, text};
use crate::dynamo::{Find, Freshness, Op, Outcome, Terms, Write};
use crate::error::Result;
use crate::event::StreamName;

impl EventStoreAdapter {
    /// Only after an append that left a snapshot of the past.
    pub(super) async fn retain(&self, op: &Op, stream: &StreamName, version: u64, commit: &Commit<'_>) {
        let Some(keep) = self.options().keep.filter(|_| commit.snapshot.is_some()) else { return };
        if let Err(error) = self.retain_newest(op, stream, version, keep).await {
            tracing::warn!(stream = stream.as_str(), version, %error, "the events were recorded, old snapshots were not removed");
        }
    }

    async fn retain_newest(&self, op: &Op, stream: &StreamName, version: u64, keep: u64) -> Result<()> {
        let mut kept = self.history(op, stream).await?;
        // The one that was just written need not show yet.
        if !kept.contains(&version) {
            kept.push(version);
        }
        let expired = beyond(kept, keep);
        if expired.is_empty() {
            return Ok(());
        }
        let Some(after) = self.options().expire else {
            let keys = expired.into_iter().map(|version| item::snapshot_key(self.options(), stream, version)).collect();
            return self.dynamo().delete_many(op, &self.options().snapshot, keys).await;
        };
        let seconds = self.dynamo().env().now().as_second().saturating_add(i64::try_from(after.as_secs()).unwrap_or(i64::MAX));
        for version in expired {
            let (update, condition) = match &self.options().kind {
                Kind::V5 { .. } => (format!("SET #ttl = :ttl REMOVE {ACTIVE}"), Terms::when(format!("attribute_exists({ACTIVE})"))),
                Kind::V3(_) => ("SET #ttl = :ttl".into(), Terms::when("#ttl = :none").value(":none", number(0))),
            };
            let condition = condition.name("#ttl", TTL).value(":ttl", number(u64::try_from(seconds).unwrap_or(0)));
            let key = item::snapshot_key(self.options(), stream, version);
            let write = Write::Update { table: self.options().snapshot.clone(), key, update, condition };
            // Marked already: its time stays as it is.
            let (Outcome::Done | Outcome::Failed { .. }) = self.dynamo().write(op, self.options().hash_key(), vec![write]).await?;
        }
        Ok(())
    }

    /// Versions of the snapshots of the past that are not marked.
    async fn history(&self, op: &Op, stream: &StreamName) -> Result<Vec<u64>> {
        let (index, v3) = match &self.options().kind {
            Kind::V5 { history_index, .. } => (history_index, false),
            Kind::V3(keys) => (&keys.snapshot_index, true),
        };
        let mut find = Find::new(&self.options().snapshot, AID, text(stream.as_str()));
        (find.index, find.freshness, find.reverse) = (Some(index.clone()), Freshness::Eventual, true);
        let current = format!("{stream}-0");
        let version = |item: &Item| match v3 {
            false => item.value(ACTIVE).and_then(as_number),
            true if item.maybe_text(SKEY).ok().flatten() == Some(current.as_str()) => None,
            true => item.value(SEQ).and_then(as_number).filter(|_| item.value(TTL).and_then(as_number).unwrap_or(0) == 0),
        };
        self.dynamo().items(op, find).try_filter_map(|item| futures::future::ready(Ok(version(&item)))).try_collect().await
    }
}

/// All but the newest so many.
fn beyond(mut versions: Vec<u64>, keep: u64) -> Vec<u64> {
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.split_off(versions.len().min(usize::try_from(keep).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_in_whatever_order_they_come() {
        assert_eq!(beyond(vec![3, 9, 7, 1], 2), [3, 1]);
        assert_eq!(beyond(vec![3], 1), [] as [u64; 0]);
        assert_eq!(beyond(vec![1, 2], 5), [] as [u64; 0]);
    }
}
