//! The hot path without the network, so that its instructions can be counted. Only under the feature `testing`.

use std::collections::{BTreeMap, BTreeSet};

use super::item;
use super::plan::{Intent, Try};
use super::series::{End, Series};
use super::settings::{FeedMode, Settings};
use crate::dynamo::Write;
use crate::dynamo::item::Item;
use crate::error::Result;
use crate::event::{CommitId, Event};

/// One append of these events in `streams` mode, and a read of what it leaves.
#[derive(Debug)]
pub struct HotPath {
    settings: Settings,
    events: Vec<Event>,
    ends: BTreeMap<Series, End>,
    items: Vec<Item>,
}

const COMMIT: CommitId = CommitId(uuid::Uuid::from_u128(7));
const STAMP: u64 = 1_767_225_600_000_000;

impl HotPath {
    /// For events with tags.
    pub fn new(events: Vec<Event>) -> HotPath {
        let settings = Settings { namespace: "main".into(), feed: FeedMode::Streams, types: BTreeSet::new(), incarnation: 0 };
        let end = End { version: 100, count: 100, stamp: STAMP - 1, lane: None };
        let ends = events.iter().flat_map(Event::tags).map(|tag| (Series::Tag(tag.clone()), end)).collect();
        let mut path = HotPath { settings, events, ends, items: Vec::new() };
        let put = |write| match write {
            Write::PutNew { item, .. } => Some(item),
            _ => None,
        };
        path.items = path.encoded().into_iter().filter_map(put).collect();
        path
    }

    fn intent(&self) -> Intent<'_> {
        Intent::new(COMMIT, &self.events, &self.settings, 0, 0)
    }

    fn encoded(&self) -> Vec<Write> {
        let intent = self.intent();
        let this = Try {
            intent: &intent,
            settings: &self.settings,
            table: "events",
            stamp: STAMP,
            ends: &self.ends,
            lane: None,
            deps: BTreeMap::new(),
            checks: Vec::new(),
            set: None,
            seal: false,
            once: false,
            without: BTreeSet::new(),
        };
        this.writes().1
    }

    /// Plans the commit; how many series it is written to.
    pub fn plan(&self) -> usize {
        self.intent().carried.len()
    }

    /// Plans it, and makes its items; how many.
    pub fn encode(&self) -> usize {
        self.encoded().len()
    }

    /// Reads its items; how many entries are in them.
    pub fn decode(&self) -> Result<usize> {
        let entries = |item| match item::slot(&self.settings.namespace, item)?.entries {
            item::Entries::Here(entries) => Ok(entries.len()),
            item::Entries::Chunked { .. } => Ok(1),
        };
        self.items.iter().map(entries).sum()
    }
}
