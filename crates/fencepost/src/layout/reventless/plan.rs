//! What an append wants, whatever try it takes; and one try as writes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::fence::{Demand, Seen, bump, check, fence_key};
use super::item::{self, Draft, Marks, Once};
use super::place::{Cover, Touch};
use super::position::At;
use super::settings::Settings;
use crate::dynamo::{ITEM_BYTES, TRANSACTION_ITEMS, Write};
use crate::error::{Refused, Result};
use crate::event::{CommitId, Event, digest};

/// All bytes of one transaction.
const TRANSACTION_BYTES: usize = 4 * 1024 * 1024;

/// An expression of a condition or an update, as text.
const EXPRESSION_BYTES: usize = 4 * 1024;

/// Refuses a write whose condition or update DynamoDB would not read.
pub(super) fn check_expressions<'a>(writes: impl IntoIterator<Item = &'a Write>) -> Result<()> {
    let longest = writes.into_iter().map(|write| match write {
        Write::Update { update, condition, .. } => update.len().max(condition.condition.len()),
        Write::Check { condition, .. } => condition.condition.len(),
        _ => 0,
    });
    let bytes = longest.max().unwrap_or(0);
    if bytes <= EXPRESSION_BYTES {
        return Ok(());
    }
    let what = "the expression over all types at a fence: ask by the tag alone, or append in several commits";
    Err(Refused::TooLong { what, bytes, limit: EXPRESSION_BYTES }.into())
}

/// What an append wants.
#[derive(Debug)]
pub(super) struct Intent {
    pub(super) commit: CommitId,
    pub(super) digest: [u8; 8],
    pub(super) drafts: Vec<Draft>,
    /// The fences it moves.
    pub(super) touches: BTreeMap<Cover, Touch>,
    pub(super) once: bool,
}

impl Intent {
    /// Refuses what does not fit, before anything is called.
    pub(super) fn new(settings: &Settings, events: &[Event], commit: CommitId, once: bool) -> Result<Intent> {
        if events.is_empty() {
            return Err(Refused::Empty { what: "append" }.into());
        }
        // More events than items are refused without looking at each.
        if events.len() > TRANSACTION_ITEMS {
            return Err(Refused::TooManyItems { items: events.len(), limit: TRANSACTION_ITEMS }.into());
        }
        let draft = |(n, event): (usize, &Event)| Draft::new(settings, event, event.given_id().unwrap_or_else(|| commit.event_id(n)));
        let drafts = events.iter().enumerate().map(draft).collect::<Result<Vec<_>>>()?;
        let mut touches: BTreeMap<Cover, Touch> = BTreeMap::new();
        for draft in &drafts {
            for (cover, hidden) in &draft.fences {
                let touch = touches.entry(cover.clone()).or_default();
                touch.events += 1;
                touch.more += u64::from(*hidden);
                touch.types.insert(draft.event_type.to_string());
                touch.home |= draft.home.as_ref() == Some(cover);
            }
        }
        let intent = Intent { commit, digest: digest(events), drafts, touches, once };
        // The first event lists the partitions, where there are several.
        let bytes = intent.drafts[0].bytes() + intent.list_bytes();
        if bytes > ITEM_BYTES {
            return Err(
                Refused::TooLong { what: "event as an item, with the list of its commit's partitions", bytes, limit: ITEM_BYTES }.into()
            );
        }
        Ok(intent)
    }

    /// Items and bytes of its transaction, with so many fences that are only checked.
    pub(super) fn check(&self, checks: usize) -> Result<()> {
        let pointers: u64 = self.touches.values().map(|touch| touch.more).sum();
        let items = self.drafts.len() + self.touches.len() + checks + usize::try_from(pointers).unwrap_or(0) + usize::from(self.once);
        if items > TRANSACTION_ITEMS {
            return Err(Refused::TooManyItems { items, limit: TRANSACTION_ITEMS }.into());
        }
        let bytes = self.drafts.iter().map(Draft::bytes).sum::<usize>() + self.list_bytes();
        if bytes > TRANSACTION_BYTES {
            return Err(Refused::TooLong { what: "commit", bytes, limit: TRANSACTION_BYTES }.into());
        }
        Ok(())
    }

    fn list_bytes(&self) -> usize {
        let ids: BTreeSet<&str> = self.drafts.iter().map(Draft::id).collect();
        if ids.len() > 1 { ids.iter().map(|id| id.len() + 24).sum() } else { 0 }
    }

    /// The fences whose partitions get events: their numbers must be known.
    pub(super) fn homes(&self) -> impl Iterator<Item = &Cover> {
        self.touches.iter().filter(|(_, touch)| touch.home).map(|(cover, _)| cover)
    }

    pub(super) fn at(&self, stamp: u64, index: usize) -> At {
        At::of(stamp, self.commit, index, self.drafts.len())
    }
    pub(super) fn last(&self, stamp: u64) -> At {
        self.at(stamp, self.drafts.len() - 1)
    }
    pub(super) fn first_id(&self) -> &str {
        self.drafts[0].id()
    }
}

/// What a write of a try is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Event,
    Pointer,
    Fence(Cover),
    Once,
}

/// One try: where it stamps itself, and what it knows of the fences.
#[derive(Debug)]
pub(super) struct Try<'a> {
    pub(super) intent: &'a Intent,
    pub(super) table: &'a str,
    pub(super) stamp: u64,
    /// The condition's covers, as they were read or judged since.
    pub(super) seen: Option<&'a BTreeMap<Cover, Seen>>,
    /// Version and home version of the fences that must be known exactly.
    pub(super) exact: &'a BTreeMap<Cover, (u64, u64)>,
}

impl Try<'_> {
    fn put(&self, item: crate::dynamo::item::Item) -> Write {
        Write::PutNew { table: self.table.into(), item }
    }

    /// The number of the commit in each partition it writes to.
    fn slots(&self) -> BTreeMap<String, u64> {
        let number = |draft: &Draft| draft.home.as_ref().and_then(|home| self.exact.get(home)).map_or(0, |(_, home)| home + 1);
        self.intent.drafts.iter().map(|draft| (draft.id().to_owned(), number(draft))).collect()
    }

    fn events(&self) -> Vec<Write> {
        let (intent, slots) = (self.intent, self.slots());
        let mut met = BTreeSet::new();
        let mut writes = Vec::new();
        for (n, draft) in intent.drafts.iter().enumerate() {
            let here = intent.drafts.iter().filter(|other| other.id() == draft.id()).count() as u64;
            let first = met.insert(draft.id());
            let marks = Marks {
                version: slots.get(draft.id()).copied(),
                count: (first && intent.drafts.len() > 1).then_some(here),
                slots: (n == 0 && slots.len() > 1).then(|| slots.clone()),
                home: (n > 0 && first).then(|| intent.first_id().to_owned()),
                digest: (n == 0).then_some(intent.digest),
            };
            writes.push(self.put(draft.item(&intent.at(self.stamp, n), &marks)));
        }
        writes
    }

    pub(super) fn writes(&self) -> (Vec<Part>, Vec<Write>) {
        let intent = self.intent;
        let mut all: Vec<(Part, Write)> = self.events().into_iter().map(|write| (Part::Event, write)).collect();
        for (n, draft) in intent.drafts.iter().enumerate() {
            let hidden = draft.fences.iter().filter(|(_, hidden)| **hidden).map(|(cover, _)| cover);
            all.extend(hidden.map(|cover| (Part::Pointer, self.put(item::pointer(cover, &intent.at(self.stamp, n), draft.id())))));
        }
        all.extend(self.fences());
        if intent.once {
            let fences = intent.touches.keys().map(Cover::fence).collect();
            let once = Once { stamp: self.stamp, events: intent.drafts.len() as u64, digest: intent.digest, fences };
            all.push((Part::Once, self.put(item::once(intent.commit, &once))));
        }
        all.into_iter().unzip()
    }

    /// What it does to fences, and demands of them.
    pub(super) fn fences(&self) -> Vec<(Part, Write)> {
        let (intent, mut all) = (self.intent, Vec::new());
        let last = intent.last(self.stamp);
        for (cover, touch) in &intent.touches {
            let demand = Demand { seen: self.seen.and_then(|seen| seen.get(cover)), exact: self.exact.get(cover).copied() };
            let (update, condition) = bump(touch, &last, demand);
            all.push((Part::Fence(cover.clone()), Write::Update { table: self.table.into(), key: fence_key(cover), update, condition }));
        }
        for (cover, seen) in self.seen.into_iter().flatten().filter(|(cover, _)| !intent.touches.contains_key(*cover)) {
            let write = Write::Check { table: self.table.into(), key: fence_key(cover), condition: check(seen) };
            all.push((Part::Fence(cover.clone()), write));
        }
        all
    }
}
