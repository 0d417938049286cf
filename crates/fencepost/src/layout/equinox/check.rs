//! Reading the whole table and checking it: every stream has a Tip, and its calves join it without a gap.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use super::Equinox;
use super::item::{self, HASH};
use crate::dynamo::item::Attributes;
use crate::error::Result;
use crate::layout::{Finding, Verified};

/// Requests of a scan at a time.
const PARTS: u32 = 4;

/// What was met of a stream, by its first index: where each batch ends.
#[derive(Default)]
struct Met {
    calves: BTreeMap<u64, u64>,
    /// Where the Tip begins.
    tip: Option<u64>,
}

impl Equinox {
    /// Holds some 50 bytes of every calf in memory.
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Verified> {
        let op = self.dynamo().long_op();
        let mut verified = Verified::default();
        let mut streams: BTreeMap<String, Met> = BTreeMap::new();
        let mut pages = std::pin::pin!(self.dynamo().scan_parts(&op, self.table(), PARTS));
        while let Some(items) = pages.try_next().await? {
            for item in &items {
                verified.items += 1;
                let stream = item.text(HASH).unwrap_or("?").to_owned();
                let find = |problem: String| Finding { item: stream.clone(), problem };
                match item::batch(item) {
                    Ok(batch) => {
                        verified.events += batch.events.len() as u64;
                        for (index, event) in (batch.base()..).zip(&batch.events) {
                            if let Err(malformed) = event.read() {
                                verified.findings.push(find(format!("event {index}: {}", malformed.0)));
                            }
                        }
                        let met = streams.entry(stream).or_default();
                        if item::is_tip(item) {
                            met.tip = Some(batch.base());
                        } else {
                            met.calves.insert(batch.base(), batch.next);
                        }
                    }
                    Err(error) => verified.findings.push(find(error.to_string())),
                }
            }
            progress(verified.items);
        }
        for (stream, met) in streams {
            verified.findings.extend(met.problems().into_iter().map(|problem| Finding { item: stream.clone(), problem }));
        }
        verified.units = op.units();
        Ok(verified)
    }
}

impl Met {
    fn problems(&self) -> Vec<String> {
        let Some(tip) = self.tip else { return vec!["calves without a Tip".into()] };
        // Whatever is below the first was pruned.
        let mut problems = Vec::new();
        let mut ends = None;
        for (base, next) in self.calves.iter().map(|(base, next)| (*base, *next)).chain([(tip, tip)]) {
            if let Some(expected) = ends
                && expected != base
            {
                problems.push(format!("events between {expected} and {base} are missing, or there twice"));
            }
            ends = Some(next);
        }
        problems
    }
}
