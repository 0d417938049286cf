//! Looking after the table: whether every event can be read, and every fence counts what lies behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Reventless;
use super::fence::Fence;
use super::item::{self, is_event};
use super::place::Cover;
use crate::dynamo::{Freshness, Op};
use crate::error::Result;
use crate::layout::{Finding, Verified};

/// What a scan remembers of one fence: bounded by the number of fences, not of events.
#[derive(Debug, Default)]
struct Behind {
    events: u64,
    /// Commits with events in its partition: how many of them were met first, and the highest number.
    homes: u64,
    highest: u64,
}

impl Reventless {
    /// Reads the whole table once. A commit that lands meanwhile may be met in part: what looks wrong is read again before it is said.
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        let op = self.dynamo().long_op();
        let mut report = Verified::default();
        let mut fences: BTreeMap<String, Fence> = BTreeMap::new();
        let mut behind: HashMap<Cover, Behind> = HashMap::new();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, self.table(), start).await?;
            for found in &items {
                report.items += 1;
                if let Some(name) = Fence::name(found) {
                    fences.insert(name.to_owned(), Fence::of_item(found));
                } else if is_event(found) {
                    self.take(found, &mut behind, &mut report);
                }
            }
            progress(report.items);
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        // A fence may have lost everything that it counts.
        for cover in fences.iter().filter(|(_, fence)| fence.count > 0).filter_map(|(name, _)| Cover::of_fence(name)) {
            behind.entry(cover).or_default();
        }
        for (cover, met) in &behind {
            let fence = fences.get(&cover.fence()).cloned().unwrap_or_default();
            if fence.count != met.events || fence.home_version != met.homes || met.homes != met.highest {
                report.findings.extend(self.look_again(&op, cover).await?);
            }
        }
        report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
        report.units = op.units();
        Ok(report)
    }

    fn take(&self, found: &item::Item, behind: &mut HashMap<Cover, Behind>, report: &mut Verified) {
        let event = match item::stored(found) {
            Ok(event) => event,
            Err(error) => {
                report.findings.push(Finding { item: item::describe(found), problem: error.to_string() });
                return;
            }
        };
        report.events += 1;
        report.commits += u64::from(event.at.index() == 0);
        let Some(version) = event.marks.version else { return };
        let home = self.settings().home(&event.written);
        if home.as_ref().map_or(super::place::UNTAGGED, Cover::id) != event.id {
            let problem = format!("its tags belong to another partition than {}", event.id);
            report.findings.push(Finding { item: item::describe(found), problem });
        }
        for cover in self.settings().fences(&event.written).into_keys() {
            let first_here = home.as_ref() == Some(&cover) && (event.at.suffix == 0 || event.marks.count.is_some());
            let met = behind.entry(cover).or_default();
            met.events += 1;
            met.homes += u64::from(first_here);
            met.highest = if first_here { met.highest.max(version) } else { met.highest };
        }
    }

    /// What the fence counts, against what lies behind it now.
    async fn look_again(&self, op: &Op, cover: &Cover) -> Result<Vec<Finding>> {
        let fence = self.fences(op, [cover], Freshness::Strong).await?.remove(cover).unwrap_or_default();
        let events = self.on_cover(op, cover, None, fence.more > 0, Freshness::Strong).await?;
        let ours: Vec<_> = events.iter().filter(|event| event.is_ours() && event.at.stamp <= fence.stamp).collect();
        let numbers: BTreeSet<u64> = ours.iter().filter(|event| event.id == cover.id()).filter_map(|event| event.marks.version).collect();
        let find = |problem| Finding { item: format!("fence#{} @FENCE", cover.fence()), problem };
        let mut findings = Vec::new();
        if fence.version == 0 && !events.is_empty() {
            findings.push(find(
                "there are events of this store's on it, and it was never moved: a restore may have torn them apart".to_owned(),
            ));
        } else if ours.len() as u64 != fence.count {
            findings.push(find(format!("it counts {} events, and {} lie behind it", fence.count, ours.len())));
        }
        if numbers.len() as u64 != fence.home_version || numbers.last().is_some_and(|last| *last != fence.home_version) {
            findings.push(find(format!("it numbers {} commits of its partition, and {} are there", fence.home_version, numbers.len())));
        }
        Ok(findings)
    }
}
