//! Tips, calves, events and unfolds, to and from attributes: the intersection of what the two peers write, the union of what they wrote.
//! Stored events are kept as they lie, so that calving copies them byte for byte. Pure; the wire letters appear here and nowhere else.

use std::io::{Read, Write};

use bytes::Bytes;
use jiff::Timestamp;

use super::marks::Marks;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, binary, number, text, wrong};
use crate::error::{Error, Refused, Result};
use crate::event::{Event, EventType, Metadata};

pub(super) const HASH: &str = "p";
pub(super) const RANGE: &str = "i";
/// The Tip sorts behind every calf.
pub(super) const TIP: u64 = 2_147_483_647;

pub(super) const NEXT: &str = "n";
pub(super) const EVENTS: &str = "e";
pub(super) const TYPES: &str = "c";
pub(super) const UNFOLDS: &str = "u";
pub(super) const APPENDED: &str = "a";
pub(super) const CALVED: &str = "b";
pub(super) const ETAG: &str = "etag";

pub(super) const TIME: &str = "t";
pub(super) const DATA: &str = "d";
pub(super) const DATA_ENCODING: &str = "D";
const META: &str = "m";
const META_ENCODING: &str = "M";
const CORRELATION: &str = "x";
const CAUSATION: &str = "y";
const UNFOLD_TYPE: &str = "c";
const UNFOLD_VERSION: &str = "i";
/// Ours, on an unfold that is a copy of the last event, and no state: the peers pass over it.
const IS_EVENT: &str = "l";
/// Ours, on a Tip: the peers pass over it, and keep it.
pub(super) const MARKS: &str = "k";

const DEFLATE: u64 = 1;
const BROTLI: u64 = 2;
/// Shorter bodies are not worth a try, and what does not gain more than this is not worth a reader's time. As F# has it.
const TRY_FROM: usize = 48;
const GAIN: usize = 4;

/// Where a peer stores bytes that are no JSON object as metadata, they are handed over under this name, in base64.
const FOREIGN_META: &str = "equinox.m";
/// The caller's id of an event, in its metadata: the layout has no place for one.
const EVENT_ID: &str = "id";

/// An event as it lies in a Tip or calf.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    pub(super) kind: String,
    pub(super) map: Item,
}

/// A snapshot as it lies in a Tip: it stands for the events before `version`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unfold {
    pub(super) version: u64,
    pub(super) kind: String,
    pub(super) map: Item,
}

/// A Tip or a calf.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    /// The index that follows its last event.
    pub(super) next: u64,
    pub(super) events: Vec<Stored>,
}

impl Batch {
    /// The index of its first event, or of the next where it has none.
    pub(super) fn base(&self) -> u64 {
        self.next.saturating_sub(self.events.len() as u64)
    }

    /// Without what is at this index or behind it.
    pub(super) fn cut(&mut self, end: u64) {
        let left = end.saturating_sub(self.base());
        if self.next > end {
            self.events.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            self.next = self.next.min(end);
        }
    }
}

/// What only a Tip has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tip {
    pub(super) batch: Batch,
    pub(super) unfolds: Vec<Unfold>,
    /// How many events the last write appended.
    pub(super) appended: u64,
    /// Estimated bytes of the events in all calves.
    pub(super) calved: u64,
    /// Empty where none was written.
    pub(super) etag: String,
    pub(super) marks: Marks,
    /// Whether there are as many types as events: where there are more, nothing can be appended to the list of them.
    pub(super) even: bool,
}

pub(super) fn key(stream: &str, index: u64) -> Item {
    Item::from([(HASH.into(), text(stream)), (RANGE.into(), number(index))])
}

/// How an item is called in messages: its key, never what it holds.
fn corrupt(item: &Item, malformed: &Malformed) -> Error {
    let at = item.number(RANGE).map_or("?".into(), |index| if index == TIP { "Tip".into() } else { index.to_string() });
    Error::corrupt("equinox", format!("{} @{at}: {}", item.text(HASH).unwrap_or("?"), malformed.0))
}

pub(super) fn is_tip(item: &Item) -> bool {
    item.number(RANGE).is_ok_and(|index| index == TIP)
}

/// Events and types of any item. Absent lists are empty: F# leaves them out.
pub(super) fn batch(item: &Item) -> Result<Batch> {
    let decode = || {
        let (events, types) = (item.maybe_list(EVENTS)?.unwrap_or_default(), item.maybe_list(TYPES)?.unwrap_or_default());
        // More types than events are passed over, as F# does.
        if types.len() < events.len() {
            return Err(wrong(TYPES, "a type for every event"));
        }
        let stored = |(event, kind): (&Value, &Value)| {
            let map = event.as_m().map_err(|_| wrong(EVENTS, "a list of maps"))?.clone();
            let kind = kind.as_s().map_err(|_| wrong(TYPES, "a list of texts"))?.clone();
            Ok(Stored { kind, map })
        };
        let events: Vec<Stored> = events.iter().zip(types).map(stored).collect::<Result<_, Malformed>>()?;
        let batch = Batch { next: item.number(NEXT)?, events };
        if batch.next < batch.events.len() as u64 {
            return Err(wrong(NEXT, "at least the number of its events"));
        }
        Ok(batch)
    };
    decode().map_err(|malformed| corrupt(item, &malformed))
}

pub(super) fn tip(item: &Item) -> Result<Tip> {
    let batch = batch(item)?;
    let decode = || {
        // One that does not say what it stands for is of no use.
        let unfold = |value: &Value| {
            let map = value.as_m().ok()?;
            Some(Unfold { version: map.number(UNFOLD_VERSION).ok()?, kind: map.text(UNFOLD_TYPE).ok()?.to_owned(), map: map.clone() })
        };
        let unfolds = match item.value(UNFOLDS) {
            None | Some(Value::Null(_)) => &[][..],
            Some(_) => item.maybe_list(UNFOLDS)?.unwrap_or_default(),
        };
        let even = item.maybe_list(TYPES)?.map_or(0, <[_]>::len) == batch.events.len();
        Ok(Tip {
            batch,
            even,
            unfolds: unfolds.iter().filter_map(unfold).collect(),
            appended: item.maybe_number(APPENDED)?.unwrap_or(0),
            calved: item.maybe_number(CALVED)?.unwrap_or(0),
            etag: item.maybe_text(ETAG)?.unwrap_or_default().to_owned(),
            marks: Marks::of(item.maybe_bytes(MARKS).ok().flatten()),
        })
    };
    decode().map_err(|malformed: Malformed| corrupt(item, &malformed))
}

/// Lists are always there: equinox-js cannot do without. No NULL, no `a` in a calf.
fn put_events(item: &mut Item, events: &[Stored]) {
    let (events, types) = lists(events);
    item.insert(EVENTS.into(), events);
    item.insert(TYPES.into(), types);
}

/// `e` and `c`.
pub(super) fn lists(events: &[Stored]) -> (Value, Value) {
    let maps = events.iter().map(|event| Value::M(event.map.clone())).collect();
    (Value::L(maps), Value::L(events.iter().map(|event| text(&event.kind)).collect()))
}

/// `u`.
pub(super) fn unfold_list(unfolds: &[Unfold]) -> Value {
    Value::L(unfolds.iter().map(|unfold| Value::M(unfold.map.clone())).collect())
}

pub(super) fn calf(stream: &str, batch: &Batch) -> Item {
    let mut item = key(stream, batch.base());
    item.insert(NEXT.into(), number(batch.next));
    item.insert(UNFOLDS.into(), Value::L(Vec::new()));
    put_events(&mut item, &batch.events);
    item
}

pub(super) fn tip_item(stream: &str, tip: &Tip) -> Item {
    let mut item = key(stream, TIP);
    item.insert(NEXT.into(), number(tip.batch.next));
    item.insert(APPENDED.into(), number(tip.appended));
    item.insert(CALVED.into(), number(tip.calved));
    item.insert(ETAG.into(), text(&tip.etag));
    item.insert(UNFOLDS.into(), unfold_list(&tip.unfolds));
    put_events(&mut item, &tip.batch.events);
    if !tip.marks.bytes().is_empty() {
        item.insert(MARKS.into(), binary(tip.marks.bytes()));
    }
    item
}

/// An event to be stored at this time. The layout has no tags.
pub(super) fn stored(event: &Event, at: Timestamp) -> Result<Stored> {
    let mut map = Item::from([(TIME.into(), text(time(at)))]);
    put_bytes(&mut map, DATA, DATA_ENCODING, event.data());
    let Metadata { correlation, causation, .. } = event.metadata();
    let mut meta = Metadata { correlation: None, causation: None, ..event.metadata().clone() };
    if let Some(id) = event.given_id()
        && meta.extra.insert(EVENT_ID.into(), id.to_string().into()).is_some()
    {
        let why = format!("it has an entry {EVENT_ID:?}, where this layout keeps the event's own id");
        return Err(Refused::Malformed { what: "metadata", why }.into());
    }
    match meta.extra.remove(FOREIGN_META) {
        Some(serde_json::Value::String(bytes)) if meta.is_empty() => {
            let bytes =
                base64(&bytes).ok_or_else(|| Refused::Malformed { what: "metadata", why: format!("{FOREIGN_META} is not base64") })?;
            put_bytes(&mut map, META, META_ENCODING, &bytes);
        }
        Some(_) => {
            return Err(Refused::Malformed { what: "metadata", why: format!("{FOREIGN_META} stands alone, as text") }.into());
        }
        None if meta.is_empty() => {}
        // A struct of texts and JSON values into memory: nothing to fail.
        None => put_bytes(&mut map, META, META_ENCODING, &serde_json::to_vec(&meta).unwrap_or_default()),
    }
    for (name, value) in [(CORRELATION, correlation), (CAUSATION, causation)] {
        if let Some(value) = value {
            map.insert(name.into(), text(value));
        }
    }
    Ok(Stored { kind: event.event_type().as_str().to_owned(), map })
}

/// A snapshot of the state at this version.
pub(super) fn unfold(kind: &str, version: u64, state: &[u8], at: Timestamp) -> Unfold {
    let mut map = Item::from([(UNFOLD_VERSION.into(), number(version)), (UNFOLD_TYPE.into(), text(kind)), (TIME.into(), text(time(at)))]);
    put_bytes(&mut map, DATA, DATA_ENCODING, state);
    Unfold { version, kind: kind.into(), map }
}

/// What a stored event says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read1 {
    pub(super) kind: EventType,
    pub(super) data: Bytes,
    pub(super) meta: Metadata,
    pub(super) id: Option<uuid::Uuid>,
    pub(super) at: Timestamp,
}

impl Read1 {
    /// Whether both say the same, whenever it was.
    pub(super) fn says(&self, other: &Read1) -> bool {
        (&self.kind, &self.data, &self.meta, &self.id) == (&other.kind, &other.data, &other.meta, &other.id)
    }
}

impl Stored {
    /// When it was recorded, as far as it says so.
    #[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the index asks"))]
    pub(super) fn at(&self) -> Option<Timestamp> {
        moment(self.map.maybe_text(TIME).ok()??).ok()
    }
    pub(super) fn read(&self) -> Result<Read1, Malformed> {
        let at = moment(self.map.maybe_text(TIME)?.unwrap_or(YEAR_ONE))?;
        let data = bytes(&self.map, DATA, DATA_ENCODING)?.unwrap_or_default();
        let (mut meta, id) = match bytes(&self.map, META, META_ENCODING)? {
            None => (Metadata::default(), None),
            Some(bytes) => metadata(&bytes),
        };
        let named = |name: &str| self.map.value(name).and_then(|value| value.as_s().ok()).cloned();
        meta.correlation = named(CORRELATION).or(meta.correlation);
        meta.causation = named(CAUSATION).or(meta.causation);
        let kind = EventType::new(&self.kind).map_err(|_| wrong(TYPES, "a type of 1 to 256 bytes"))?;
        Ok(Read1 { kind, data, meta, id, at })
    }

    /// As the peers estimate it: what decides when to calve, and is kept in `b`. Lengths of texts are in UTF-16 units.
    pub(super) fn estimate(&self) -> u64 {
        units(&self.kind) + body_length(&self.map) + field(&self.map, CORRELATION) + field(&self.map, CAUSATION) + 20 + 20
    }
}

impl Unfold {
    /// The event that it is a copy of, if it is one.
    pub(super) fn as_event(&self) -> Option<Stored> {
        self.map.contains_key(IS_EVENT).then(|| self.copied())
    }
    /// The event that it is a copy of, if it is one: F# does not say so.
    pub(super) fn copied(&self) -> Stored {
        Stored { kind: self.kind.clone(), map: self.map.clone() }
    }
    /// The state.
    pub(super) fn state(&self) -> Result<Bytes, Malformed> {
        Ok(bytes(&self.map, DATA, DATA_ENCODING)?.unwrap_or_default())
    }
    pub(super) fn estimate(&self) -> u64 {
        units(&self.kind) + body_length(&self.map) + 50
    }
}

/// The item without its events, as the peers estimate it.
pub(super) fn base_estimate(stream: &str, etag: &str) -> u64 {
    80 + units(stream) + units(etag)
}

impl Tip {
    /// How much larger equinox-js would write it: an etag of 36 bytes, and an encoding beside every body.
    pub(super) fn larger_in_js(&self) -> usize {
        let spelt = |event: &&Stored| event.map.contains_key(DATA) && !event.map.contains_key(DATA_ENCODING);
        36_usize.saturating_sub(self.etag.len()) + 3 * self.batch.events.iter().filter(spelt).count()
    }
}

/// The last event of an append as a snapshot of the stream.
pub(super) fn unfold_of(event: &Stored, version: u64) -> Unfold {
    let mut map = event.map.clone();
    map.retain(|name, _| ![CORRELATION, CAUSATION].contains(&name.as_str()));
    map.insert(UNFOLD_VERSION.into(), number(version));
    map.insert(UNFOLD_TYPE.into(), text(&event.kind));
    map.insert(IS_EVENT.into(), Value::Bool(true));
    Unfold { version, kind: event.kind.clone(), map }
}

fn units(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}
fn field(map: &Item, name: &str) -> u64 {
    map.maybe_text(name).ok().flatten().map_or(0, units)
}
fn body_length(map: &Item) -> u64 {
    let length = |name: &str| map.maybe_bytes(name).ok().flatten().map_or(0, |bytes| bytes.len() as u64);
    length(DATA) + length(META)
}

/// Whole milliseconds and `Z`, as JavaScript writes and both read.
fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// What F# makes of an event that does not say when.
const YEAR_ONE: &str = "0001-01-01T00:00:00Z";

/// Either dialect, `….6789012+00:00` or `….678Z`; without an offset it is UTC.
pub(super) fn moment(text: &str) -> Result<Timestamp, Malformed> {
    let utc = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    text.parse().ok().or_else(utc).ok_or_else(|| wrong(TIME, "a time"))
}

/// Absent where empty; Brotli where that gains.
fn put_bytes(map: &mut Item, name: &str, encoding: &str, raw: &[u8]) {
    if raw.is_empty() {
        return;
    }
    let packed = if raw.len() >= TRY_FROM { compress(raw) } else { None };
    match packed.filter(|packed| raw.len() > packed.len() + GAIN) {
        Some(packed) => {
            map.insert(name.into(), binary(packed));
            map.insert(encoding.into(), number(BROTLI));
        }
        None => {
            map.insert(name.into(), binary(raw));
        }
    }
}

fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    let mut packed = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut packed, 4096, 6, 22);
    writer.write_all(raw).ok()?;
    drop(writer);
    Some(packed)
}

/// Any unknown encoding is taken for raw bytes, as the peers do.
fn bytes(map: &Item, name: &str, encoding: &str) -> Result<Option<Bytes>, Malformed> {
    let Some(stored) = map.maybe_bytes(name)?.filter(|stored| !stored.is_empty()) else { return Ok(None) };
    let encoding = match map.value(encoding) {
        None => 0,
        Some(value) => as_number(value).ok_or_else(|| wrong(encoding, "a number"))?,
    };
    let raw = match encoding {
        DEFLATE => inflate(stored).ok_or_else(|| wrong(name, "deflate"))?,
        BROTLI => {
            let mut raw = Vec::new();
            brotli::Decompressor::new(stored, 4096).read_to_end(&mut raw).map_err(|_| wrong(name, "Brotli"))?;
            raw
        }
        _ => stored.to_vec(),
    };
    Ok(Some(raw.into()))
}

/// What early releases wrote was flushed, and never ended.
fn inflate(stored: &[u8]) -> Option<Vec<u8>> {
    let mut inflater = flate2::Decompress::new(false);
    let mut raw = Vec::with_capacity(stored.len() * 4);
    loop {
        let (read, wrote) = (inflater.total_in(), inflater.total_out());
        let rest = stored.get(usize::try_from(read).ok()?..)?;
        let status = inflater.decompress_vec(rest, &mut raw, flate2::FlushDecompress::Sync).ok()?;
        let stuck = inflater.total_in() == read && inflater.total_out() == wrote;
        if status == flate2::Status::StreamEnd || (stuck && raw.len() < raw.capacity()) {
            return Some(raw);
        }
        raw.reserve(stored.len().max(256));
    }
}

/// A JSON object is metadata as we write it, or near enough; anything else is kept as it lies.
fn metadata(bytes: &[u8]) -> (Metadata, Option<uuid::Uuid>) {
    match serde_json::from_slice::<Metadata>(bytes) {
        Ok(mut meta) => {
            let id = meta.extra.get(EVENT_ID).and_then(|id| id.as_str()?.parse().ok());
            if id.is_some() {
                meta.extra.remove(EVENT_ID);
            }
            (meta, id)
        }
        Err(_) => {
            let mut meta = Metadata::default();
            meta.extra.insert(FOREIGN_META.into(), to_base64(bytes).into());
            (meta, None)
        }
    }
}

/// Any text will do for the peers: the shortest that holds an id.
pub(super) fn etag(id: uuid::Uuid) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id.as_bytes())
}

fn to_base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
fn base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
