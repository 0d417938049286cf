//! Slots: the item that one commit leaves on one series, to and from attributes; and the other items of the log. Pure.
//! The wire letters appear here and nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use uuid::Uuid;

use super::series::{End, Series};
use crate::dynamo::item::{self, Attributes, Item, Malformed, Value, as_number, binary, number, text, wrong};
use crate::error::Error;
use crate::event::{self, CommitId, Event, EventType, Metadata, Tag};
pub(crate) use crate::side::item::{HASH, RANGE, corrupt, describe, key, pack, unpack};

#[cfg(feature = "streams")]
mod slotted;
#[cfg(feature = "streams")]
pub(crate) use slotted::{Slotted, slotted};

const COMMIT: &str = "c";
const STAMP: &str = "s";
const COUNT: &str = "n";
const LANE: &str = "l";
const HOME: &str = "h";
const EVENTS: &str = "e";
const WRITTEN: &str = "w";
const DEPS: &str = "o";
const DIGEST: &str = "f";
const CHUNKS: &str = "x";
const TYPES: &str = "y";
const DEAD: &str = "dead";

const ID: &str = "u";
const TYPE: &str = "t";
const TAGS: &str = "g";
const TYPE_VERSION: &str = "y";
const DATA: &str = "d";
const ENCODING: &str = "D";
const META: &str = "m";
const INDEX: &str = "i";
const REFERENCE: &str = "r";
const FIRST: &str = "a";
const LAST: &str = "b";
const PART: &str = "k";

const ZSTD: u64 = 1;
/// The format that this release writes, and the highest that it reads.
pub(crate) const FORMAT: u64 = 1;
/// More distinct types than this in one chunked slot: none are listed, meaning any.
pub(crate) const LISTED_TYPES: usize = 32;

/// What one commit leaves on one series.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) series: Series,
    pub(crate) version: u64,
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    pub(crate) count: u64,
    pub(crate) place: Place,
    pub(crate) entries: Entries,
    /// In the home: bodies of events that its series does not carry, by index.
    pub(crate) bodies: Vec<(u32, Body)>,
    /// In the home: every slot of the commit, and a hash of its events.
    pub(crate) home: Option<Outcome>,
    pub(crate) deps: BTreeMap<u8, u64>,
}

/// Where the commit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a lane, and how many events the lane held before.
    Lane { lane: u8, seq: u64, before: u64 },
    /// No lanes: the home is another slot.
    Home(Series, u64),
    /// No lanes: this is the home.
    Here,
}

/// What a home says of its whole commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) written: BTreeMap<Series, u64>,
    /// None: that of its events, which all lie in the home.
    pub(crate) digest: Option<Vec<u8>>,
}

/// A slot's events.
#[derive(Debug, Clone)]
pub(crate) enum Entries {
    Here(Vec<Entry>),
    /// In these chunks of a set; `types` are all that occur, or none listed.
    Chunked {
        run: Run,
        count: u64,
        types: Option<BTreeSet<EventType>>,
    },
}

/// Chunks of a set, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) set: Uuid,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// One event in a slot.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) index: u32,
    pub(crate) id: Option<Uuid>,
    pub(crate) event_type: EventType,
    /// All its tags, with the version of each in this commit; in a chunk the versions are the home's to tell.
    pub(crate) tags: Vec<(Tag, u64)>,
    pub(crate) type_version: Option<u64>,
    pub(crate) meta: Metadata,
    pub(crate) body: Body,
}

/// Where a body is.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Here(Bytes),
    Home,
    Chunk(Run),
}

impl Entries {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Entries::Here(entries) => entries.len() as u64,
            Entries::Chunked { count, .. } => *count,
        }
    }
}

impl Entry {
    /// Whether the event shows on this series.
    pub(crate) fn lies_on(&self, series: &Series) -> bool {
        match series {
            Series::Tag(tag) => self.tags.iter().any(|(own, _)| own == tag),
            Series::Type(event_type) => self.event_type == *event_type,
            Series::Untagged(_) => self.tags.is_empty(),
            Series::Lane(_) => true,
        }
    }

    pub(crate) fn tag_names(&self) -> Vec<Tag> {
        self.tags.iter().map(|(tag, _)| tag.clone()).collect()
    }
}

impl Slot {
    pub(crate) fn end(&self) -> End {
        let lane = match self.place {
            Place::Lane { lane, seq, .. } => Some((lane, seq)),
            _ => None,
        };
        End { version: self.version, count: self.count, stamp: self.stamp, lane }
    }

    /// The digest of its commit, in the home.
    pub(crate) fn digest(&self) -> Option<Vec<u8>> {
        let outcome = self.home.as_ref()?;
        if outcome.digest.is_some() {
            return outcome.digest.clone();
        }
        let Entries::Here(entries) = &self.entries else { return None };
        let event = |entry: &Entry| {
            let Body::Here(data) = &entry.body else { return None };
            let event = Event::new(entry.event_type.clone(), data.clone()).ok()?.meta(entry.meta.clone());
            let event = entry.tags.iter().fold(event, |event, (tag, _)| event.with_tag(tag.clone()));
            Some(entry.id.map_or(event.clone(), |id| event.id(id)))
        };
        let events: Option<Vec<Event>> = entries.iter().map(event).collect();
        events.map(|events| event::digest(&events).to_vec())
    }
    /// The slot that holds the whole outcome.
    pub(crate) fn home_key(&self) -> (Series, u64) {
        match &self.place {
            Place::Lane { lane, seq, .. } => (Series::Lane(*lane), *seq),
            Place::Home(series, version) => (series.clone(), *version),
            Place::Here => (self.series.clone(), self.version),
        }
    }

    /// Bodies that lie in this home, by the event's index.
    pub(crate) fn body_of(&self, index: u32) -> Option<&Body> {
        let alone = self.bodies.iter().find(|(i, _)| *i == index).map(|(_, body)| body);
        alone.or_else(|| match &self.entries {
            Entries::Here(entries) => entries.iter().find(|e| e.index == index).map(|e| &e.body),
            Entries::Chunked { .. } => None,
        })
    }
}

/// One body, written plainly or compressed.
#[derive(Debug, Clone)]
pub(crate) enum Written<'a> {
    Plain(&'a [u8]),
    Packed(&'a [u8]),
    Chunk(Run),
}

/// An event map, without its body: as it stands it says that the body is in the home.
pub(crate) fn entry(entry: &EntryParts<'_>) -> Item {
    let mut map = Item::with_capacity(6);
    if entry.index > 0 {
        map.insert(INDEX.into(), number(u64::from(entry.index)));
    }
    if let Some(id) = entry.id {
        map.insert(ID.into(), binary(id.as_bytes().to_vec()));
    }
    map.insert(TYPE.into(), text(entry.event_type.as_str()));
    if !entry.tags.is_empty() {
        map.insert(TAGS.into(), Value::M(entry.tags.iter().map(|(tag, v)| (tag.as_str().to_owned(), number(*v))).collect()));
    }
    if let Some(version) = entry.type_version {
        map.insert(TYPE_VERSION.into(), number(version));
    }
    if let Some(meta) = entry.meta {
        map.insert(META.into(), text(meta));
    }
    map
}

/// What an event map is made of.
#[derive(Debug)]
pub(crate) struct EntryParts<'a> {
    pub(crate) index: u32,
    pub(crate) id: Option<Uuid>,
    pub(crate) event_type: &'a EventType,
    /// The other tags: all but the slot's own.
    pub(crate) tags: Vec<(&'a Tag, u64)>,
    pub(crate) type_version: Option<u64>,
    pub(crate) meta: Option<&'a str>,
}

/// For a body alone, in the home of a commit whose home's series the event does not carry: it has no type.
pub(crate) fn body_alone(index: u32) -> Item {
    Item::from([(INDEX.into(), number(u64::from(index)))])
}

/// Where the body is: here, or in a chunk.
pub(crate) fn put_body(map: &mut Item, index: u32, body: &Written<'_>) {
    match body {
        // JSON stays readable in the console; what is not text is bytes.
        Written::Plain(data) => {
            let value = std::str::from_utf8(data).map_or_else(|_| binary(*data), text);
            map.insert(DATA.into(), value);
        }
        Written::Packed(data) => {
            map.insert(DATA.into(), binary(*data));
            map.insert(ENCODING.into(), number(ZSTD));
        }
        Written::Chunk(run) => {
            map.insert(
                REFERENCE.into(),
                Value::L(vec![binary(run.set.as_bytes().to_vec()), number(run.first), number(run.last), number(u64::from(index))]),
            );
        }
    }
}

/// The attributes of a slot but for its events.
#[derive(Debug)]
pub(crate) struct SlotParts<'a> {
    pub(crate) series: &'a Series,
    pub(crate) version: u64,
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    pub(crate) count: u64,
    pub(crate) place: &'a Place,
    pub(crate) home: Option<&'a Outcome>,
    pub(crate) deps: &'a BTreeMap<u8, u64>,
}

pub(crate) fn slot_item(namespace: &str, slot: &SlotParts<'_>) -> Item {
    let mut item = key(slot.series.key(namespace), slot.version);
    item.insert(COMMIT.into(), binary(slot.commit.0.as_bytes().to_vec()));
    item.insert(STAMP.into(), number(slot.stamp));
    // One event a commit so far: the version counts them.
    if slot.count != slot.version {
        item.insert(COUNT.into(), number(slot.count));
    }
    match slot.place {
        // The lane slot is where it says already; only the count before is left out, as count less events.
        Place::Lane { .. } if matches!(slot.series, Series::Lane(_)) => {}
        Place::Lane { lane, seq, before } => {
            item.insert(LANE.into(), Value::L(vec![number(u64::from(*lane)), number(*seq), number(*before)]));
        }
        Place::Home(series, version) => {
            item.insert(HOME.into(), Value::L(vec![text(series.short()), number(*version)]));
        }
        Place::Here => {}
    }
    if let Some(home) = slot.home {
        // A home that names no slots is the only one.
        if home.written.len() > 1 || !matches!(slot.place, Place::Here) {
            item.insert(WRITTEN.into(), Value::M(home.written.iter().map(|(series, v)| (series.short(), number(*v))).collect()));
        }
        if let Some(digest) = &home.digest {
            item.insert(DIGEST.into(), binary(digest.clone()));
        }
    }
    if !slot.deps.is_empty() {
        item.insert(DEPS.into(), Value::M(slot.deps.iter().map(|(lane, seq)| (lane.to_string(), number(*seq))).collect()));
    }
    item
}

/// One alone lies without a list around it: four bytes fewer in every slot of a stream that grows by single events.
pub(crate) fn put_events(item: &mut Item, events: Vec<Item>) {
    let listed = |events: Vec<Item>| Value::L(events.into_iter().map(Value::M).collect());
    item.insert(EVENTS.into(), <[Item; 1]>::try_from(events).map_or_else(listed, |[only]| Value::M(only)));
}
/// Bytes that DynamoDB counts for the events of a slot, their name included, by those of their maps.
pub(crate) fn events_size(maps: &[usize]) -> usize {
    let list = if maps.len() == 1 { 0 } else { 3 + maps.len() };
    EVENTS.len() + list + maps.iter().sum::<usize>()
}
/// The event maps of a slot, one alone or a list of them.
fn events(item: &Item) -> Result<Option<Vec<&Item>>, Malformed> {
    let odd = || wrong(EVENTS, "a map or a list of maps");
    match item.value(EVENTS) {
        None => Ok(None),
        Some(Value::M(only)) => Ok(Some(vec![only])),
        Some(Value::L(list)) => list.iter().map(|value| value.as_m().map_err(|_| odd())).collect::<Result<_, _>>().map(Some),
        Some(_) => Err(odd()),
    }
}

pub(crate) fn put_chunked(item: &mut Item, run: Run, count: u64, types: &BTreeSet<&EventType>) {
    item.insert(CHUNKS.into(), Value::L(vec![binary(run.set.as_bytes().to_vec()), number(run.first), number(run.last), number(count)]));
    if types.len() <= LISTED_TYPES {
        item.insert(TYPES.into(), Value::Ss(types.iter().map(|t| t.as_str().to_owned()).collect()));
    }
}

/// A commit id that the caller gave, and the commit's home.
pub(crate) fn once_key(namespace: &str, commit: CommitId) -> Item {
    key(format!("i/{namespace}/{}", commit.0.simple()), 1)
}
pub(crate) fn once_item(namespace: &str, commit: CommitId, home: (&Series, u64), events: usize) -> Item {
    let mut item = once_key(namespace, commit);
    item.insert(COUNT.into(), number(events as u64));
    item.insert(COMMIT.into(), binary(commit.0.as_bytes().to_vec()));
    item.insert(HOME.into(), Value::L(vec![text(home.0.short()), number(home.1)]));
    item
}

/// The commit that an item of the log belongs to.
pub(crate) fn commit_of(item: &Item) -> Option<CommitId> {
    item.bytes(COMMIT).ok().and_then(|bytes| Uuid::from_slice(bytes).ok()).map(CommitId)
}

/// The home that a once item names.
pub(crate) fn home_of(item: &Item) -> Result<Option<(Series, u64)>, Malformed> {
    let Some(list) = item.maybe_list(HOME)? else { return Ok(None) };
    let [series, version] = list else { return Err(wrong(HOME, "a series and a version")) };
    let series = series.as_s().ok().and_then(|s| Series::parse(s)).ok_or_else(|| wrong(HOME, "a series"))?;
    Ok(Some((series, as_number(version).ok_or_else(|| wrong(HOME, "a version"))?)))
}

/// How many events the commit of a once item has.
pub(crate) fn events_of(item: &Item) -> Result<usize, Malformed> {
    usize::try_from(item.number(COUNT)?).map_err(|_| wrong(COUNT, "a number of events"))
}

pub(crate) fn chunk_hash(namespace: &str, set: Uuid) -> String {
    format!("c/{namespace}/{}", set.simple())
}
/// The seal of a set: the commit that names it, or nobody any more.
pub(crate) fn seal_item(namespace: &str, set: Uuid, stamp: u64, by: Option<CommitId>) -> Item {
    let mut item = key(chunk_hash(namespace, set), 0);
    item.insert(STAMP.into(), number(stamp));
    match by {
        Some(commit) => item.insert(COMMIT.into(), binary(commit.0.as_bytes().to_vec())),
        None => item.insert(DEAD.into(), Value::Bool(true)),
    };
    item
}
pub(crate) fn is_dead_seal(item: &Item) -> bool {
    item.contains_key(DEAD)
}
/// When a chunk, or whatever has one, was stamped.
pub(crate) fn stamp_of(item: &Item) -> Option<u64> {
    item.number(STAMP).ok()
}

/// One item of a run of entries: its first and last index, and which part of the run it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) number: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) part: u64,
    pub(crate) data: Bytes,
}

pub(crate) fn chunk_item(namespace: &str, set: Uuid, stamp: u64, chunk: &Chunk) -> Item {
    let mut item = key(chunk_hash(namespace, set), chunk.number);
    item.insert(STAMP.into(), number(stamp));
    item.insert(FIRST.into(), number(u64::from(chunk.first)));
    item.insert(LAST.into(), number(u64::from(chunk.last)));
    if chunk.part > 0 {
        item.insert(PART.into(), number(chunk.part));
    }
    item.insert(DATA.into(), binary(chunk.data.to_vec()));
    item
}

pub(crate) fn chunk(item: &Item) -> Result<Chunk, Malformed> {
    let index = |name: &str| item.number(name).and_then(|n| u32::try_from(n).map_err(|_| wrong(name, "an index")));
    Ok(Chunk {
        number: item.number(RANGE)?,
        first: index(FIRST)?,
        last: index(LAST)?,
        part: item.maybe_number(PART)?.unwrap_or(0),
        data: Bytes::copy_from_slice(item.bytes(DATA)?),
    })
}

/// A slot from its attributes.
pub(crate) fn slot(namespace: &str, item: &Item) -> Result<Slot, Error> {
    decode(namespace, item).map_err(|malformed| corrupt(item, &malformed))
}

fn decode(namespace: &str, item: &Item) -> Result<Slot, Malformed> {
    let series = Series::of_key(item.text(HASH)?, namespace).ok_or_else(|| wrong(HASH, "the key of a series of this namespace"))?;
    let version = item.number(RANGE)?;
    let count = item.maybe_number(COUNT)?.unwrap_or(version);
    let (entries, bodies) = entries(item, &series, version)?;
    let place = match (&series, item.maybe_list(LANE)?, home_of(item)?) {
        (Series::Lane(lane), ..) => Place::Lane {
            lane: *lane,
            seq: version,
            before: count.checked_sub(entries.count()).ok_or_else(|| wrong(COUNT, "at least the slot's own events"))?,
        },
        (_, Some([lane, seq, before]), _) => {
            let parts = (as_number(lane).and_then(|l| u8::try_from(l).ok()), as_number(seq), as_number(before));
            let (Some(lane), Some(seq), Some(before)) = parts else { return Err(wrong(LANE, "lane, sequence and count")) };
            Place::Lane { lane, seq, before }
        }
        (_, Some(_), _) => return Err(wrong(LANE, "lane, sequence and count")),
        (_, None, Some((home, version))) => Place::Home(home, version),
        (_, None, None) => Place::Here,
    };
    let home = match (item.maybe_map(WRITTEN)?, &place) {
        (Some(map), _) => Some(outcome(map, item)?),
        (None, Place::Here) => {
            Some(Outcome { written: BTreeMap::from([(series.clone(), version)]), digest: item.maybe_bytes(DIGEST)?.map(<[u8]>::to_vec) })
        }
        (None, _) => None,
    };
    let deps = match item.maybe_map(DEPS)? {
        Some(map) => map
            .iter()
            .map(|(lane, seq)| Some((lane.parse().ok()?, as_number(seq)?)))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong(DEPS, "lanes and sequences"))?,
        None => BTreeMap::new(),
    };
    Ok(Slot {
        series,
        version,
        commit: commit_of(item).ok_or_else(|| wrong(COMMIT, "a commit id"))?,
        stamp: item.number(STAMP)?,
        count,
        place,
        entries,
        bodies,
        home,
        deps,
    })
}

fn outcome(map: &Item, item: &Item) -> Result<Outcome, Malformed> {
    let written = map.iter().map(|(short, v)| Some((Series::parse(short)?, as_number(v)?))).collect::<Option<_>>();
    Ok(Outcome { written: written.ok_or_else(|| wrong(WRITTEN, "series and versions"))?, digest: Some(item.bytes(DIGEST)?.to_vec()) })
}

fn run_of(name: &str, list: &[Value]) -> Result<(Run, u64), Malformed> {
    let parts = match list {
        [set, first, last, more] => {
            (set.as_b().ok().and_then(|b| Uuid::from_slice(b.as_ref()).ok()), as_number(first), as_number(last), as_number(more))
        }
        _ => (None, None, None, None),
    };
    let (Some(set), Some(first), Some(last), Some(more)) = parts else { return Err(wrong(name, "a set and its chunks")) };
    Ok((Run { set, first, last }, more))
}

/// The types of a chunked slot, where it lists them.
fn listed_types(item: &Item) -> Result<Option<BTreeSet<EventType>>, Malformed> {
    let Some(value) = item.value(TYPES) else { return Ok(None) };
    let texts = value.as_ss().map_err(|_| wrong(TYPES, "a set of texts"))?;
    texts.iter().map(|t| EventType::new(t).map_err(|_| wrong(TYPES, "types"))).collect::<Result<_, _>>().map(Some)
}

fn entries(item: &Item, series: &Series, version: u64) -> Result<(Entries, Vec<(u32, Body)>), Malformed> {
    if let Some(list) = item.maybe_list(CHUNKS)? {
        let (run, count) = run_of(CHUNKS, list)?;
        return Ok((Entries::Chunked { run, count, types: listed_types(item)? }, Vec::new()));
    }
    let maps = events(item)?.ok_or_else(|| wrong(EVENTS, "there"))?;
    let (mut found, mut bodies) = (Vec::with_capacity(maps.len()), Vec::new());
    for map in maps {
        // Without a type it is only a body, of an event that this series does not carry.
        if map.contains_key(TYPE) {
            found.push(decode_entry(map, series, version)?);
        } else {
            bodies.push(body(map)?);
        }
    }
    Ok((Entries::Here(found), bodies))
}

fn body(map: &Item) -> Result<(u32, Body), Malformed> {
    let index = u32::try_from(map.maybe_number(INDEX)?.unwrap_or(0)).map_err(|_| wrong(INDEX, "an index"))?;
    let body = match (map.value(DATA), map.maybe_list(REFERENCE)?) {
        (Some(value), _) => Body::Here(data(value, map.maybe_number(ENCODING)?)?),
        (None, Some(list)) => Body::Chunk(run_of(REFERENCE, list)?.0),
        (None, None) => Body::Home,
    };
    Ok((index, body))
}

fn decode_entry(map: &Item, series: &Series, version: u64) -> Result<Entry, Malformed> {
    let (index, body) = body(map)?;
    let mut tags = Vec::new();
    if let Some(others) = map.maybe_map(TAGS)? {
        for (tag, v) in others {
            tags.push((Tag::new(tag).map_err(|_| wrong(TAGS, "tags"))?, as_number(v).ok_or_else(|| wrong(TAGS, "versions"))?));
        }
    }
    let mut type_version = map.maybe_number(TYPE_VERSION)?;
    match series {
        Series::Tag(own) => tags.push((own.clone(), version)),
        Series::Type(_) => type_version = Some(version),
        Series::Untagged(_) | Series::Lane(_) => {}
    }
    let meta = match map.maybe_text(META)? {
        Some(json) => serde_json::from_str(json).map_err(|_| wrong(META, "metadata"))?,
        None => Metadata::default(),
    };
    let id = map.maybe_bytes(ID)?.map(|b| Uuid::from_slice(b).map_err(|_| wrong(ID, "an id"))).transpose()?;
    let event_type = EventType::new(map.text(TYPE)?).map_err(|_| wrong(TYPE, "a type"))?;
    Ok(Entry { index, id, event_type, tags, type_version, meta, body })
}

fn data(value: &Value, encoding: Option<u64>) -> Result<Bytes, Malformed> {
    match (value, encoding) {
        (Value::S(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (Value::B(blob), None) => Ok(Bytes::copy_from_slice(blob.as_ref())),
        (Value::B(blob), Some(ZSTD)) => unpack(blob.as_ref()).ok_or_else(|| wrong(DATA, "zstd")),
        _ => Err(wrong(ENCODING, "an encoding that this release knows")),
    }
}

/// Bytes of a slot as DynamoDB counts them.
pub(crate) fn size(item: &Item) -> usize {
    item::size(item)
}

#[cfg(test)]
mod tests;
