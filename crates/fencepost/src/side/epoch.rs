//! Epochs: the items of an index that is built from a stream, to and from attributes. One chain for the table, across namespaces. Pure.
//!
//! An epoch is put once, if absent, under the next number. Its wire letters appear here and nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::item::{HASH, RANGE, corrupt, key, pack, unpack};
use super::series::Series;
use crate::dynamo::ITEM_BYTES;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, binary, number, size, text, wrong};
use crate::dynamo::records::Sequence;
use crate::error::Error;
use crate::event::{CommitId, EventType, Tag};
use crate::query::{Query, QueryItem};

/// The hash key of all epochs.
pub(crate) const CHAIN: &str = "x";
/// An epoch is cut at this many bytes.
pub(crate) const EPOCH_BYTES: usize = 300 * 1024;
/// More distinct types than this in a commit: none are listed, meaning any.
const LISTED_TYPES: usize = 32;
/// More tags than this: only the home is named, and tells.
const LISTED_TAGS: usize = 98;
/// Entries of one epoch, so that its reader's memory is bounded.
pub(crate) const MAX_ENTRIES: usize = 20_000;

const ENTRIES: &str = "e";
const COUNT: &str = "n";
const TIME: &str = "s";
const SHARDS: &str = "h";
const IDS: &str = "i";
const STREAM: &str = "a";
const WRITER: &str = "w";
const REBUILT: &str = "b";
const GAP: &str = "g";
const LOOKED: &str = "l";
const UNSURE: &str = "o";
const CHAIN_ID: &str = "c";
const BEGUN: &str = "f";
const DONE: &str = "d";
const FIRST: &str = "b";
const READ: &str = "r";
const FINISHED: &str = "f";

/// A part of the index: commits in order, and how far the stream was read and emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    /// When it was put, by its writer's clock, in microseconds since 1970.
    pub(crate) time: u64,
    /// The run that put it, so that a lost answer is told from a lost race.
    pub(crate) writer: Uuid,
    /// The stream that the shards belong to.
    pub(crate) stream: Option<String>,
    /// Every shard that is not wholly in the index, and those whose children are not known yet.
    pub(crate) shards: BTreeMap<String, Mark>,
    /// Commits in the index whose records lie beyond a shard's number.
    pub(crate) ids: Vec<CommitId>,
    /// Where the rebuilds of the last day put commits that may come again by the stream.
    pub(crate) rebuilt: Vec<Span>,
    /// What is missing, if anything may be; a rebuild clears it.
    pub(crate) gap: Option<Gap>,
    /// Which chain it belongs to: the writer of the first epoch. One that is built anew is another, and places in the old one mean nothing in it.
    pub(crate) chain: Option<Uuid>,
    /// When an indexer began the chain: what is older than the stream was then is not in it. A rebuild clears it.
    pub(crate) begun: Option<u64>,
    /// No record was unread that had been written before this, by the writer's clock.
    pub(crate) looked: u64,
    pub(crate) entries: Vec<Indexed>,
}

/// Records were trimmed before they were read, could not be read, or were given up: commits may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// When that was last found.
    pub(crate) found: u64,
    /// All that is stamped before this is in the index; of what is stamped later only the epochs tell.
    pub(crate) since: u64,
}

/// The epochs of one rebuild, and those that others put between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// When the last of them was put.
    pub(crate) time: u64,
}

/// How far a shard is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// All up to `done` is in the index, or nothing is, and `first` is the first record that the writer had read. It had read up to `read`,
    /// which was written at `at`, where that is known.
    At { done: Option<Sequence>, first: Option<Sequence>, read: Option<Sequence>, at: Option<u64> },
    /// Closed, and all of it is in the index.
    Finished,
}

/// A commit in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) namespace: String,
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    pub(crate) home: (Series, u64),
    /// Every slot; none: too many, and the home tells.
    pub(crate) slots: Option<BTreeMap<Series, u64>>,
    /// The types of its events; none: too many, meaning any.
    pub(crate) types: Option<BTreeSet<EventType>>,
    /// How many events it has at most, where that is known: a reader holds so many at a time.
    pub(crate) events: Option<u32>,
}

/// The same in bytes. Names are short names; the home's is among the slots, by index.
#[derive(Debug, Serialize, Deserialize)]
struct Wire<'a> {
    namespace: &'a str,
    commit: [u8; 16],
    stamp: u64,
    home: u32,
    #[serde(borrow)]
    slots: Vec<(&'a str, u64)>,
    whole: bool,
    types: Option<Vec<&'a str>>,
    events: Option<u32>,
}

impl Indexed {
    /// Leaves out the lists that are too long.
    pub(crate) fn new(
        namespace: String,
        commit: CommitId,
        stamp: u64,
        home: (Series, u64),
        slots: BTreeMap<Series, u64>,
        types: Option<BTreeSet<EventType>>,
        events: Option<u32>,
    ) -> Self {
        let tags = slots.keys().filter(|series| matches!(series, Series::Tag(_))).count();
        let types = types.filter(|types| types.len() <= LISTED_TYPES);
        Self { namespace, commit, stamp, home, slots: (tags <= LISTED_TAGS).then_some(slots), types, events }
    }

    /// The first version of a slot, where versions count events.
    pub(crate) fn first(&self, version: u64) -> u64 {
        (version + 1).saturating_sub(u64::from(self.events.unwrap_or(1).max(1))).max(version.min(1))
    }

    /// Whether it can hold an event that matches, by its types, and by its tags where its slots name them all.
    pub(crate) fn may_match(&self, query: &Query, by_tags: bool) -> bool {
        let carries = |tag: &Tag| !by_tags || self.slots.as_ref().is_none_or(|slots| slots.contains_key(&Series::Tag(tag.clone())));
        let has = |item: &QueryItem| item.types().is_empty() || self.types.as_ref().is_none_or(|own| !own.is_disjoint(item.types()));
        query.is_all() || query.items().iter().any(|item| has(item) && item.tags().iter().all(carries))
    }

    fn of_wire(wire: Wire<'_>) -> Option<Self> {
        let home = wire.slots.get(usize::try_from(wire.home).ok()?)?;
        let home = (Series::parse(home.0)?, home.1);
        let slots = || wire.slots.iter().map(|(name, version)| Some((Series::parse(name)?, *version))).collect::<Option<_>>();
        let types = match wire.types {
            Some(types) => Some(types.iter().map(|t| EventType::new(t).ok()).collect::<Option<BTreeSet<_>>>()?),
            None => None,
        };
        Some(Self {
            namespace: wire.namespace.to_owned(),
            commit: CommitId(Uuid::from_bytes(wire.commit)),
            stamp: wire.stamp,
            home,
            slots: if wire.whole { Some(slots()?) } else { None },
            types,
            events: wire.events,
        })
    }
}

impl Serialize for Indexed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let home = self.home.0.short();
        let named: Option<Vec<(String, u64)>> =
            self.slots.as_ref().map(|slots| slots.iter().map(|(series, v)| (series.short(), *v)).collect());
        let slots: Vec<(&str, u64)> = match &named {
            Some(named) => named.iter().map(|(name, v)| (name.as_str(), *v)).collect(),
            None => vec![(&home, self.home.1)],
        };
        let at = slots.iter().position(|(name, _)| *name == home).unwrap_or(0);
        let wire = Wire {
            namespace: &self.namespace,
            commit: self.commit.0.into_bytes(),
            stamp: self.stamp,
            home: u32::try_from(at).unwrap_or(0),
            slots,
            whole: self.slots.is_some(),
            types: self.types.as_ref().map(|types| types.iter().map(EventType::as_str).collect()),
            events: self.events,
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Indexed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of_wire(Wire::deserialize(deserializer)?).ok_or_else(|| serde::de::Error::custom("no commit of an index"))
    }
}

impl Epoch {
    pub(crate) fn key(number: u64) -> Item {
        key(CHAIN.into(), number)
    }

    /// Its item. The caller sees to it that it fits: [`Epoch::cut`].
    pub(crate) fn item(&self) -> Item {
        let mut item = Self::key(self.number);
        item.insert(TIME.into(), number(self.time));
        item.insert(WRITER.into(), binary(self.writer.as_bytes().to_vec()));
        item.insert(COUNT.into(), number(self.entries.len() as u64));
        if !self.entries.is_empty() {
            item.insert(ENTRIES.into(), binary(pack_entries(&self.entries)));
        }
        if let Some(stream) = &self.stream {
            item.insert(STREAM.into(), text(stream));
        }
        if !self.shards.is_empty() {
            item.insert(SHARDS.into(), Value::M(self.shards.iter().map(|(id, mark)| (id.clone(), mark.value())).collect()));
        }
        if !self.ids.is_empty() {
            item.insert(IDS.into(), binary(self.ids.iter().flat_map(|id| id.0.into_bytes()).collect::<Vec<u8>>()));
        }
        if !self.rebuilt.is_empty() {
            item.insert(REBUILT.into(), Value::L(self.rebuilt.iter().map(Span::value).collect()));
        }
        item.insert(LOOKED.into(), number(self.looked));
        if let Some(gap) = self.gap {
            item.insert(GAP.into(), number(gap.found));
            item.insert(UNSURE.into(), number(gap.since));
        }
        if let Some(chain) = self.chain {
            item.insert(CHAIN_ID.into(), binary(chain.as_bytes().to_vec()));
        }
        if let Some(time) = self.begun {
            item.insert(BEGUN.into(), number(time));
        }
        item
    }

    /// How many of these entries an epoch takes beside what else it says, and so many ids: as many as fit.
    pub(crate) fn cut(&self, entries: &[Indexed], ids: usize) -> usize {
        let limit = EPOCH_BYTES.min((ITEM_BYTES - 8 * 1024).saturating_sub(16 * ids));
        let room = limit.saturating_sub(size(&Epoch { entries: Vec::new(), ids: Vec::new(), ..self.clone() }.item()) + ENTRIES.len());
        let mut count = entries.len().min(MAX_ENTRIES);
        while count > 1 {
            let bytes = pack_entries(&entries[..count]).len();
            if bytes <= room {
                break;
            }
            count = (count * room / bytes * 9 / 10).clamp(1, count - 1);
        }
        count
    }

    pub(crate) fn of_item(item: &Item) -> Result<Epoch, Error> {
        decode(item).map_err(|malformed| corrupt(item, &malformed))
    }
}

impl Gap {
    /// Found again, or for the first time.
    pub(crate) fn found(earlier: Option<Gap>, now: u64, since: u64) -> Gap {
        Gap { found: now, since: earlier.map_or(since, |earlier| earlier.since.min(since)) }
    }
}

impl Span {
    fn value(&self) -> Value {
        Value::L([self.first, self.last, self.time].map(number).into())
    }

    fn of_value(value: &Value) -> Option<Self> {
        let numbers: Option<Vec<u64>> = value.as_l().ok()?.iter().map(as_number).collect();
        let &[first, last, time] = numbers?.as_slice() else { return None };
        Some(Self { first, last, time })
    }
}

impl Mark {
    fn value(&self) -> Value {
        Value::M(match self {
            Mark::Finished => Item::from([(FINISHED.into(), Value::Bool(true))]),
            Mark::At { done, first, read, at } => [(DONE, done), (FIRST, first), (READ, read)]
                .into_iter()
                .filter_map(|(name, at)| at.as_ref().map(|at| (name.to_owned(), text(at.as_str()))))
                .chain(at.map(|at| (TIME.to_owned(), number(at))))
                .collect(),
        })
    }

    fn of_value(value: &Value) -> Result<Self, Malformed> {
        let map = value.as_m().map_err(|_| wrong(SHARDS, "a map of maps"))?;
        if map.contains_key(FINISHED) {
            return Ok(Mark::Finished);
        }
        let at = |name: &str| Ok(map.maybe_text(name)?.map(Sequence::new));
        Ok(Mark::At { done: at(DONE)?, first: at(FIRST)?, read: at(READ)?, at: map.maybe_number(TIME)? })
    }
}

fn pack_entries(entries: &[Indexed]) -> Vec<u8> {
    // Numbers and texts into memory: nothing to fail.
    pack(&postcard::to_stdvec(entries).unwrap_or_default())
}

fn decode(item: &Item) -> Result<Epoch, Malformed> {
    if item.text(HASH)? != CHAIN {
        return Err(wrong(HASH, "the index's"));
    }
    let entries = match item.maybe_bytes(ENTRIES)? {
        None => Vec::new(),
        Some(bytes) => {
            let entries: Option<Vec<Indexed>> = unpack(bytes).and_then(|bytes| postcard::from_bytes(&bytes).ok());
            entries.ok_or_else(|| wrong(ENTRIES, "a list of commits"))?
        }
    };
    if item.value(COUNT).and_then(as_number) != Some(entries.len() as u64) {
        return Err(wrong(COUNT, "the number of commits"));
    }
    let ids = item.maybe_bytes(IDS)?.unwrap_or_default();
    if ids.len() % 16 != 0 {
        return Err(wrong(IDS, "a list of ids"));
    }
    let ids = ids.chunks_exact(16).filter_map(|id| Uuid::from_slice(id).ok()).map(CommitId).collect();
    let shards = match item.maybe_map(SHARDS)? {
        Some(map) => map.iter().map(|(id, mark)| Ok((id.clone(), Mark::of_value(mark)?))).collect::<Result<_, Malformed>>()?,
        None => BTreeMap::new(),
    };
    let rebuilt = match item.value(REBUILT) {
        None => Vec::new(),
        Some(spans) => {
            let spans: Option<Vec<Span>> = spans.as_l().ok().and_then(|all| all.iter().map(Span::of_value).collect());
            spans.ok_or_else(|| wrong(REBUILT, "a list of spans"))?
        }
    };
    let id = |name: &'static str, bytes: &[u8]| Uuid::from_slice(bytes).map_err(|_| wrong(name, "an id"));
    Ok(Epoch {
        number: item.number(RANGE)?,
        time: item.number(TIME)?,
        writer: id(WRITER, item.bytes(WRITER)?)?,
        stream: item.maybe_text(STREAM)?.map(str::to_owned),
        shards,
        ids,
        rebuilt,
        // One that does not say since when: nothing is sure.
        gap: item.maybe_number(GAP)?.map(|found| Ok(Gap { found, since: item.maybe_number(UNSURE)?.unwrap_or(0) })).transpose()?,
        chain: item.maybe_bytes(CHAIN_ID)?.map(|bytes| id(CHAIN_ID, bytes)).transpose()?,
        begun: item.maybe_number(BEGUN)?,
        // Not said by those who put it before this was.
        looked: item.maybe_number(LOOKED)?.map_or_else(|| item.number(TIME), Ok)?,
        entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str) -> Series {
        Series::Tag(Tag::new(name).expect("a tag"))
    }

    fn entry(n: u128, tags: usize, types: usize) -> Indexed {
        let slots: BTreeMap<Series, u64> = (0..tags).map(|t| (tag(&format!("course:{n}/{t}")), 3)).collect();
        let home = slots.first_key_value().map(|(series, v)| (series.clone(), *v)).expect("a slot");
        let types = (0..types).map(|t| EventType::new(format!("Type{t}")).expect("a type")).collect();
        Indexed::new("main".into(), CommitId(Uuid::from_u128(n)), 1_767_225_600_000_000, home, slots, Some(types), Some(7))
    }

    fn epoch(entries: Vec<Indexed>) -> Epoch {
        let at = |n: &str| Some(Sequence::new(n));
        Epoch {
            number: 7,
            time: 9,
            writer: Uuid::from_u128(3),
            stream: Some("arn".into()),
            shards: [("a".into(), Mark::At { done: None, first: at("11"), read: at("12"), at: Some(3) }), ("b".into(), Mark::Finished)]
                .into(),
            ids: vec![CommitId(Uuid::from_u128(1)), CommitId(Uuid::from_u128(2))],
            rebuilt: vec![Span { first: 4, last: 5, time: 8 }],
            gap: Some(Gap { found: 5, since: 2 }),
            chain: Some(Uuid::from_u128(4)),
            begun: Some(1),
            looked: 6,
            entries,
        }
    }

    #[test]
    fn an_epoch_is_read_as_it_was_written() {
        for epoch in [epoch(vec![entry(1, 2, 1), entry(2, 99, 33)]), epoch(Vec::new())] {
            assert_eq!(Epoch::of_item(&epoch.item()).expect("reads"), epoch);
        }
        let long = entry(2, 99, 33);
        assert_eq!((long.slots, long.types, long.home), (None, None, (tag("course:2/0"), 3)));
    }

    #[test]
    fn an_epoch_is_cut_so_that_it_fits() {
        let entries: Vec<Indexed> = (0..20_000).map(|n| entry(n * 0x9e37_79b9_7f4a_7c15, 3, 2)).collect();
        let bare = epoch(Vec::new());
        let count = bare.cut(&entries, 2);
        assert!((1_000..20_000).contains(&count), "{count}");
        let full = epoch(entries[..count].to_vec());
        assert!(size(&full.item()) <= EPOCH_BYTES, "{}", size(&full.item()));
        assert_eq!(bare.cut(&entries[..1], 100_000), 1);
    }

    #[test]
    fn what_is_not_an_epoch_is_corrupt_and_named() {
        let mut item = epoch(vec![entry(1, 1, 1)]).item();
        item.insert(ENTRIES.into(), binary([1, 2, 3]));
        let error = Epoch::of_item(&item).expect_err("corrupt").to_string();
        assert!(error.contains("x @7") && error.contains("attribute e"), "{error}");
    }
}
