//! Equinox DynamoStore: the tables of the F# and JavaScript libraries. A Tip per stream that every append goes through, calves behind it.
//!
//! Normative: `docs/layouts/equinox.md`.

mod append;
mod check;
#[cfg(feature = "streams")]
mod index;
#[cfg(feature = "streams")]
mod index_checkpoint;
#[cfg(feature = "streams")]
mod index_plan;
#[cfg(feature = "streams")]
mod index_read;
#[cfg(feature = "streams")]
mod index_write;
mod item;
mod marks;
mod plan;
mod prune;
mod read;
mod settings;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::OnceCell;

#[cfg(feature = "streams")]
pub(crate) use self::index::{Entry, Place, Span, Whole, span, whole_item};
#[cfg(feature = "streams")]
pub(crate) use self::index_plan::Covered;
#[cfg(feature = "streams")]
pub(crate) use self::index_read::{First, Noted};
#[cfg(feature = "streams")]
pub(crate) use self::index_write::Put;
use self::item::{Stored, Tip, Unfold};
use self::plan::Limits;
pub use self::prune::Pruned;
#[cfg(feature = "streams")]
pub(crate) use self::settings::Fed;
use self::settings::Missing;
pub(crate) use self::settings::{Options, check_written};
use crate::dynamo::table::TableOptions;
use crate::dynamo::{Dynamo, Freshness, ITEM_BYTES, Op, report};
use crate::error::Result;
use crate::event::{CommitId, Recorded, StreamName};
use crate::log::{Answer, Bodies, Capabilities, Committed, Snapshots};
use crate::side::{self, Made, Side};
use crate::stream::{LoadOptions, Loaded, Step, StreamReadOptions, StreamStore};

pub(crate) const LAYOUT: &str = "equinox";
/// Bytes of Tips that are remembered, so that an append need not read what a load has just read.
const REMEMBERED: u64 = 64 * 1024 * 1024;

/// Equinox' tables, opened: what they offer beyond streams. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Equinox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    side: Side,
    /// A hint: a write that goes by a Tip that is not the last one is refused, and told the last.
    tips: moka::sync::Cache<String, Arc<Tip>>,
    has_once: OnceCell<()>,
    /// The table of the index, which is one of the same layout.
    #[cfg(feature = "streams")]
    index: std::sync::OnceLock<Equinox>,
    #[cfg(feature = "streams")]
    known: index_write::Known,
}

impl Equinox {
    pub(crate) fn open(dynamo: Dynamo, options: Options) -> Equinox {
        let weigh = |_: &String, tip: &Arc<Tip>| weight(tip);
        let tips = moka::sync::Cache::builder().max_capacity(REMEMBERED).weigher(weigh).build();
        let side = Side::new(dynamo, &options.side, "main", Made::WhenNeeded);
        Equinox(Arc::new(Inner {
            options,
            side,
            tips,
            has_once: OnceCell::new(),
            #[cfg(feature = "streams")]
            index: std::sync::OnceLock::new(),
            #[cfg(feature = "streams")]
            known: index_write::Known::default(),
        }))
    }

    fn dynamo(&self) -> &Dynamo {
        self.side().dynamo()
    }
    pub(crate) fn side(&self) -> &Side {
        &self.0.side
    }
    #[cfg(feature = "streams")]
    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
    #[cfg(feature = "streams")]
    fn index(&self) -> &Equinox {
        self.0.index.get_or_init(|| Equinox::open(self.dynamo().clone(), self.0.options.of_index()))
    }
    pub(crate) fn table(&self) -> &str {
        &self.0.options.table
    }
    fn archive(&self) -> &str {
        &self.0.options.archive
    }
    fn missing(&self) -> Missing {
        self.0.options.missing
    }
    fn limits(&self) -> &Limits {
        &self.0.options.limits
    }
    fn page(&self) -> i32 {
        self.0.options.page
    }
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        self.0.options.shown()
    }

    fn remembered(&self, stream: &StreamName) -> Option<Tip> {
        self.0.tips.get(stream.as_str()).map(|tip| (*tip).clone())
    }
    fn remember(&self, stream: &StreamName, tip: Option<&Tip>) {
        match tip {
            Some(tip) => self.0.tips.insert(stream.as_str().into(), Arc::new(tip.clone())),
            None => self.forget(stream),
        }
    }
    fn forget(&self, stream: &StreamName) {
        self.0.tips.invalidate(stream.as_str());
    }

    /// Commit ids lie in the side table, in the commit's own transaction: it must be there.
    async fn once_table(&self, _: &Op) -> Result<()> {
        let make = async || -> Result<()> {
            let spec = side::spec(self.side().table());
            self.dynamo().create_table(&self.dynamo().long_op(), &spec, &TableOptions::default()).await?;
            Ok(())
        };
        self.0.has_once.get_or_try_init(make).await.map(|_| ())
    }

    /// The stored events from this index on, and the index of the first: a later one, where what is missing is ignored.
    async fn stored_from(&self, op: &Op, stream: &StreamName, from: u64, tip: &Tip) -> Result<(u64, Vec<Stored>)> {
        let mut batches = self.calves_down_to(op, stream, from, tip, Freshness::Strong).await?;
        batches.push(tip.batch.clone());
        let events = batches.into_iter().flat_map(|batch| (batch.base()..).zip(batch.events));
        let events: Vec<Stored> = events.filter(|(index, _)| *index >= from).map(|(_, event)| event).collect();
        Ok((tip.batch.next - events.len() as u64, events))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            boundaries: false,
            untagged_conditions: false,
            indexed_types: false,
            untagged_reads: false,
            counted_positions: false,
            feed: cfg!(feature = "streams"),
            max_tags: 1,
            max_events: MAX_EVENTS,
            max_body: MAX_BODY,
            max_bytes: MAX_BODY,
            snapshots: Snapshots::Last,
            bodies: Bodies::Bytes,
        }
    }
}

/// What a remembered Tip takes, nearly: unfolds too, which may be most of it.
fn weight(tip: &Tip) -> u32 {
    let events = tip.batch.events.iter().map(Stored::estimate).sum::<u64>();
    let unfolds = tip.unfolds.iter().map(Unfold::estimate).sum::<u64>();
    u32::try_from(events + unfolds + 256).unwrap_or(u32::MAX)
}

/// What one Tip holds in one append: a stream's name, a type and the item's own numbers take less than a kilobyte.
pub(crate) const MAX_BODY: usize = ITEM_BYTES - 1024;
/// As many as fit into an eighth of an item with time, type (15 letters) and what a list and its maps take, which leaves seven to their
/// bodies. More are accepted as long as all of it fits.
const MAX_EVENTS: usize = ITEM_BYTES / 8 / 48;

#[async_trait]
impl StreamStore for Equinox {
    async fn load(&self, stream: &StreamName, options: LoadOptions) -> Result<Loaded> {
        let op = self.dynamo().op();
        let loaded = self.load_stream(&op, stream, &options).await;
        report("load", &op);
        loaded
    }

    async fn append(&self, stream: &StreamName, step: Step) -> Result<Committed> {
        let op = self.dynamo().op();
        let committed = self.append_step(&op, stream, &step).await.map_err(|error| error.of_repeat(step.repeats()).costing(op.units()));
        report("append", &op);
        committed
    }

    async fn committed(&self, stream: &StreamName, commit: CommitId) -> Result<Answer<Option<Committed>>> {
        let op = self.dynamo().op();
        let found = self.find_commit(&op, stream, commit).await;
        report("committed", &op);
        Ok(Answer::new(found?, op.units()))
    }

    fn read<'a>(&'a self, stream: &'a StreamName, options: StreamReadOptions) -> BoxStream<'a, Result<Recorded>> {
        self.read_lazily(stream, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rolling state is all that its Tip has: by events alone a quarter of a million of them would be remembered, however large.
    #[test]
    fn a_remembered_tip_weighs_what_its_unfolds_do_too() {
        let of = |state: usize| Tip {
            batch: item::Batch { next: 0, events: Vec::new() },
            unfolds: vec![item::unfold("Snapshotted", 0, &noise(state), jiff::Timestamp::UNIX_EPOCH)],
            appended: 0,
            calved: 0,
            etag: String::new(),
            marks: Default::default(),
            even: true,
        };
        assert!((10_000..10_500).contains(&weight(&of(10_000))), "{}", weight(&of(10_000)));
        assert!(weight(&of(10)) < 500);
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let env = crate::env::Env::seeded(1);
        (0..bytes).map(|_| u8::try_from(env.below(256)).unwrap_or(0)).collect()
    }
}
