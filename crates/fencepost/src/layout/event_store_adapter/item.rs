//! Events, heads and snapshots, to and from the attributes of both generations, and of what older clients wrote. Pure.
//!
//! What is ours among the attributes begins with `fp_`: the peer passes over it, and under `strict` it is not written.

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::settings::{Keys, Kind, LAST, Options};
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, binary, number, text, wrong};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{CommitId, Event, EventType, Metadata, Recorded, StreamName, Tag};
use crate::position::Position;

pub(super) const AID: &str = "aid";
pub(super) const SEQ: &str = "seq_nr";
pub(super) const EVENTS: &str = "events";
pub(super) const SKEY: &str = "skey";
pub(super) const VERSION: &str = "version";
pub(super) const TTL: &str = "ttl";
pub(super) const ACTIVE: &str = "active_history_seq_nr";
pub(super) const UPDATED: &str = "last_updated_at";
pub(super) const PAYLOAD: &str = "payload";
const PKEY: &str = "pkey";
const TYPE_NAME: &str = "type_name";
const OCCURRED: &str = "occurred_at";
const MANIFEST: &str = "manifest";
/// As the published page spells it.
const SER: &str = "ser_nr";

/// The commit id, on the first event of a commit whose time is the caller's; on every event where an earlier version wrote it.
const COMMIT: &str = "fp_c";
/// Index in the commit and number of its events, where there are several.
const PART: &str = "fp_n";
/// Metadata, as JSON.
const META: &str = "fp_m";
/// The event's id, where the caller gave one.
const ID: &str = "fp_i";

/// The aid of the records that say which store a table belongs to. No stream's name is so, for want of a dash.
pub(super) const CONFIG: &str = "__config__";
/// The name of a snapshot without one.
pub(super) const SNAPSHOT: &str = "snapshot";

/// An event as it lies in the journal.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) version: u64,
    /// Nanoseconds since 1970, as somebody said.
    occurred: i64,
    event_type: EventType,
    data: Bytes,
    meta: Metadata,
    id: Option<Uuid>,
    pub(super) commit: Option<CommitId>,
    index: u32,
    count: u32,
}

impl Row {
    /// The last version of its commit.
    pub(super) fn last(&self) -> u64 {
        self.version + u64::from(self.count - 1 - self.index)
    }
    /// The first version of its commit.
    pub(super) fn first(&self) -> u64 {
        self.version.saturating_sub(u64::from(self.index))
    }
    pub(super) fn is_last(&self) -> bool {
        self.index + 1 == self.count
    }
    #[cfg(feature = "streams")]
    pub(super) fn count(&self) -> u32 {
        self.count
    }
    #[cfg(feature = "streams")]
    pub(super) fn event_type(&self) -> &EventType {
        &self.event_type
    }
    #[cfg(feature = "streams")]
    pub(super) fn stamp(&self) -> u64 {
        micros(self.occurred)
    }
    /// Whether it is the one of this index of a commit of so many.
    pub(super) fn is_part(&self, index: usize, count: usize) -> bool {
        u32::try_from(index) == Ok(self.index) && u32::try_from(count) == Ok(self.count)
    }
    /// Whether its commit begins with it, at this time.
    pub(super) fn begins_at(&self, occurred: i64) -> bool {
        self.index == 0 && self.occurred == occurred
    }
    /// When it occurred, in milliseconds.
    pub(super) fn millis(&self) -> i64 {
        millis(self.occurred)
    }
    /// Whether type and body are this event's. One that differs is surely another.
    pub(super) fn is_like(&self, event: &Event) -> bool {
        self.data == event.data() && self.event_type == *event.event_type()
    }
    /// The same, and at this time.
    pub(super) fn says(&self, event: &Event, occurred: i64) -> bool {
        self.is_like(event) && self.occurred == occurred
    }

    pub(super) fn recorded(self, stream: &StreamName) -> Recorded {
        let position = position(stream, self.last(), self.index, self.occurred);
        let id = self.id.unwrap_or_else(|| event_id(stream, self.version));
        let at = Timestamp::from_nanosecond(i128::from(self.occurred)).unwrap_or_default();
        let mut recorded = Recorded::new(position, id, self.event_type, self.data, vec![Tag::from(stream)], self.meta, at);
        recorded.version = Some(self.version);
        recorded
    }
}

/// Where the event of this index stands, of the commit whose last version this is.
pub(super) fn position(stream: &StreamName, last: u64, index: u32, occurred: i64) -> Position {
    Position::stamped(micros(occurred), commit_id(stream, last), index)
}

/// As a snapshot of its event has it.
pub(super) fn millis(nanos: i64) -> i64 {
    nanos.div_euclid(1_000_000)
}

fn micros(nanos: i64) -> u64 {
    u64::try_from(nanos / 1_000).unwrap_or(0)
}

/// The id under which a commit is in the index, by the last version that it left: the same whoever wrote it, and however it is met.
pub(super) fn commit_id(stream: &StreamName, last: u64) -> CommitId {
    const COMMITS: Uuid = Uuid::from_u128(0x6b0f_3e0a_52c1_4d0f_9c4b_6573_612d_636d);
    CommitId(derived(&COMMITS, stream, last))
}

/// The id of an event for which nobody gave one. The same in both generations, so that a copy keeps it.
fn event_id(stream: &StreamName, version: u64) -> Uuid {
    const EVENT_IDS: Uuid = Uuid::from_u128(0x6b0f_3e0a_52c1_4d0f_9c4b_6573_612d_6576);
    derived(&EVENT_IDS, stream, version)
}

fn derived(space: &Uuid, stream: &StreamName, version: u64) -> Uuid {
    let name = [stream.as_str().as_bytes(), b"\0", &version.to_be_bytes()].concat();
    Uuid::new_v5(space, &name)
}

/// An event on its way into the journal.
#[derive(Debug)]
pub(super) struct New<'a> {
    pub(super) event: &'a Event,
    pub(super) version: u64,
    pub(super) occurred: i64,
    /// Where nothing else tells whose it is.
    pub(super) mark: Option<CommitId>,
    pub(super) index: u32,
    pub(super) count: u32,
}

impl New<'_> {
    /// What journal and head have in common.
    fn body(&self) -> Item {
        Item::from([
            (SEQ.into(), number(self.version)),
            (OCCURRED.into(), Value::N(self.occurred.to_string())),
            (MANIFEST.into(), text(self.event.event_type().as_str())),
            (PAYLOAD.into(), binary(self.event.data().to_vec())),
        ])
    }

    pub(super) fn journal(&self, options: &Options, stream: &StreamName) -> Item {
        let mut item = self.body();
        item.extend(journal_key(options, stream, self.version));
        item.insert(AID.into(), text(stream.as_str()));
        if options.strict {
            return item;
        }
        if let Some(commit) = self.mark {
            item.insert(COMMIT.into(), binary(commit.0.as_bytes().to_vec()));
        }
        if self.count > 1 {
            item.insert(PART.into(), Value::L(vec![number(self.index.into()), number(self.count.into())]));
        }
        if says_more_than_when(self.event.metadata()) {
            // Maps of text into memory: nothing to fail.
            item.insert(META.into(), text(serde_json::to_string(self.event.metadata()).unwrap_or_default()));
        }
        if let Some(id) = self.event.given_id().filter(|id| *id != event_id(stream, self.version)) {
            item.insert(ID.into(), binary(id.as_bytes().to_vec()));
        }
        item
    }
}

/// When an event occurred has a place of its own.
fn says_more_than_when(meta: &Metadata) -> bool {
    !(Metadata { occurred: None, ..meta.clone() }).is_empty()
}

/// Refuses what has no place: tags besides the stream; under `strict` metadata and ids of the caller's too.
pub(super) fn check_event(options: &Options, stream: &StreamName, event: &Event, version: Option<u64>) -> Result<()> {
    let unsupported = |what: &str, remedy: &str| Err(Refused::Unsupported { what: what.into(), remedy: remedy.into() }.into());
    if event.tags().iter().any(|tag| tag.as_str() != stream.as_str()) {
        return unsupported("an event with tags", "a stream of this layout is its only tag: leave them out, or use layout=ledger");
    }
    if !options.strict {
        return Ok(());
    }
    if says_more_than_when(event.metadata()) {
        return unsupported("metadata under strict=true", "the peer has no place for it: leave it out, or open without strict");
    }
    // The id that it would have anyway is no loss.
    if event.given_id().is_some_and(|id| version.is_some_and(|version| id != event_id(stream, version))) {
        return unsupported("an event's id under strict=true", "the peer has no place for it: leave it out, or open without strict");
    }
    Ok(())
}

/// The key of an event.
pub(super) fn journal_key(options: &Options, stream: &StreamName, version: u64) -> Item {
    match &options.kind {
        Kind::V5 { .. } => Item::from([(AID.into(), text(stream.as_str())), (SEQ.into(), number(version))]),
        Kind::V3(keys) => v3_key(keys, stream, version),
    }
}

/// The key of a snapshot; 0: the current one.
pub(super) fn snapshot_key(options: &Options, stream: &StreamName, version: u64) -> Item {
    match &options.kind {
        Kind::V5 { .. } => Item::from([(AID.into(), text(stream.as_str())), (SKEY.into(), number(version))]),
        Kind::V3(keys) => v3_key(keys, stream, version),
    }
}

fn v3_key(keys: &Keys, stream: &StreamName, version: u64) -> Item {
    Item::from([(PKEY.into(), text(keys.partition(stream.as_str()))), (SKEY.into(), text(format!("{stream}-{version}")))])
}

/// The head after these events.
pub(super) fn head(stream: &StreamName, events: &[New<'_>]) -> Item {
    let type_name = stream.as_str().split_once('-').map_or("", |(type_name, _)| type_name);
    let last = events.last().map_or(0, |event| event.version);
    Item::from([
        (AID.into(), text(stream.as_str())),
        (TYPE_NAME.into(), text(type_name)),
        (SEQ.into(), number(last)),
        (EVENTS.into(), Value::L(events.iter().map(|event| Value::M(event.body())).collect())),
    ])
}

/// What the head's stream tells: the stream, its last version, when the last event occurred, and the types of the commit's events.
#[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "the index alone asks when, and of which types"))]
pub(super) struct Headed {
    pub(super) stream: StreamName,
    pub(super) version: u64,
    pub(super) stamp: u64,
    pub(super) types: Vec<EventType>,
}

/// None: the record of the configuration, or an item that is gone.
pub(super) fn headed(item: &Item) -> Result<Option<Headed>> {
    let Some(aid) = item.maybe_text(AID).ok().flatten().filter(|aid| *aid != CONFIG) else { return Ok(None) };
    let decode = || {
        let stream = StreamName::new(aid).map_err(|_| wrong(AID, "the id of an aggregate"))?;
        let (mut types, mut stamp) = (Vec::new(), 0);
        for event in item.maybe_list(EVENTS)?.unwrap_or_default() {
            let event = event.as_m().map_err(|_| wrong(EVENTS, "a list of maps"))?;
            types.push(event_type(event.maybe_text(MANIFEST)?, event.maybe_bytes(PAYLOAD)?.unwrap_or_default()));
            stamp = micros(signed(event, OCCURRED)?);
        }
        Ok(Headed { stream, version: item.number(SEQ)?, stamp, types })
    };
    decode().map(Some).map_err(|m: Malformed| corrupt("event-store-adapter-v5", &format!("head of {aid}"), &m))
}

/// The stream of an item of the journal; none: a record of the configuration.
pub(super) fn stream_of(options: &Options, item: &Item) -> Result<Option<StreamName>> {
    let aid = item.text(AID).map_err(|m| corrupt(options.layout(), "an item of the journal", &m))?;
    if aid == CONFIG {
        return Ok(None);
    }
    StreamName::new(aid).map(Some)
}

/// An event of the journal, where it belongs.
pub(super) fn row(options: &Options, stream: &StreamName, item: &Item) -> Result<Row> {
    let row = row_anywhere(options, stream, item)?;
    match misplaced(options, stream, item) {
        Some(elsewhere) => Err(Error::unavailable(Reason::Differs, format!("event of {stream} @{} {elsewhere}", row.version))),
        None => Ok(row),
    }
}

/// What is wrong with the partition of an item of v3, if it is another than this store looks for the stream in.
pub(super) fn misplaced(options: &Options, stream: &StreamName, item: &Item) -> Option<String> {
    let Kind::V3(keys) = &options.kind else { return None };
    let (found, ours) = (item.maybe_text(PKEY).ok().flatten().unwrap_or_default(), keys.partition(stream.as_str()));
    (found != ours).then(|| {
        format!("lies under pkey {found}, and types=, shards= and hash= make that {ours}: give those with which the tables were written")
    })
}

/// An event of the journal, wherever it lies.
pub(super) fn row_anywhere(options: &Options, stream: &StreamName, item: &Item) -> Result<Row> {
    let decoded = match options.kind {
        Kind::V5 { .. } => v5_row(item),
        Kind::V3(_) => v3_row(stream, item),
    };
    let place = || format!("event of {stream} @{}", item.number(SEQ).map_or("?".into(), |v| v.to_string()));
    let row = decoded.map_err(|m| corrupt(options.layout(), &place(), &m))?;
    let ours = item.maybe_text(AID).ok().flatten() == Some(stream.as_str());
    if !ours {
        return Err(corrupt(options.layout(), &place(), &wrong(AID, "the stream's name")));
    }
    Ok(row)
}

fn v5_row(item: &Item) -> Result<Row, Malformed> {
    let data = Bytes::copy_from_slice(item.bytes(PAYLOAD)?);
    let event_type = event_type(Some(item.text(MANIFEST)?), &data);
    with_ours(item, Row::bare(version(item.number(SEQ)?)?, signed(item, OCCURRED)?, event_type, data))
}

/// What clients of v1 to v3 wrote, in any language, and what the published page prints.
fn v3_row(stream: &StreamName, item: &Item) -> Result<Row, Malformed> {
    let numbered = match (item.maybe_number(SEQ)?, item.maybe_number(SER)?) {
        (Some(seq), _) | (None, Some(seq)) => seq,
        (None, None) => item
            .text(SKEY)?
            .strip_prefix(stream.as_str())
            .and_then(|rest| rest.strip_prefix('-')?.parse().ok())
            .ok_or_else(|| wrong(SKEY, "the stream's name and a number"))?,
    };
    let data = match item.value(PAYLOAD) {
        Some(Value::S(text)) => Bytes::copy_from_slice(text.as_bytes()),
        _ => Bytes::copy_from_slice(item.bytes(PAYLOAD)?),
    };
    let manifest = item.maybe_text(MANIFEST)?;
    let occurred = match item.value(OCCURRED) {
        Some(Value::S(iso)) => {
            let at: Timestamp = iso.parse().map_err(|_| wrong(OCCURRED, "a time"))?;
            i64::try_from(at.as_nanosecond()).map_err(|_| wrong(OCCURRED, "a time between 1677 and 2262"))?
        }
        // Only the Rust client of v3 writes a manifest, and it counts nanoseconds.
        _ if manifest.is_some() => signed(item, OCCURRED)?,
        _ => of_any_unit(signed(item, OCCURRED)?),
    };
    let event_type = event_type(manifest, &data);
    with_ours(item, Row::bare(version(numbered)?, occurred, event_type, data))
}

/// Milliseconds in most clients; what Go's users give is theirs to choose, so the magnitude tells. Numbers too low for any unit stay
/// milliseconds: those of JavaScript's client, which has the part below a second only.
fn of_any_unit(number: i64) -> i64 {
    const SECONDS: i64 = 1_000_000_000;
    match number.unsigned_abs() {
        0..1_000_000_000 => number * 1_000_000,
        1_000_000_000..100_000_000_000 => number.saturating_mul(SECONDS),
        100_000_000_000..100_000_000_000_000 => number.saturating_mul(1_000_000),
        100_000_000_000_000..100_000_000_000_000_000 => number.saturating_mul(1_000),
        _ => number,
    }
}

impl Row {
    fn bare(version: u64, occurred: i64, event_type: EventType, data: Bytes) -> Row {
        Row { version, occurred, event_type, data, meta: Metadata::default(), id: None, commit: None, index: 0, count: 1 }
    }
}

fn with_ours(item: &Item, mut row: Row) -> Result<Row, Malformed> {
    row.commit = commit_of(item);
    if let Some(part) = item.maybe_list(PART)? {
        let small = |value: &Value| as_number(value).and_then(|number| u32::try_from(number).ok());
        let (index, count) = match part {
            [index, count] => small(index).zip(small(count)).filter(|(index, count)| index < count),
            _ => None,
        }
        .ok_or_else(|| wrong(PART, "an index and a number"))?;
        (row.index, row.count) = (index, count);
    }
    if let Some(meta) = item.maybe_text(META)? {
        row.meta = serde_json::from_str(meta).map_err(|_| wrong(META, "metadata"))?;
    }
    if let Some(id) = item.maybe_bytes(ID)? {
        row.id = Some(Uuid::from_slice(id).map_err(|_| wrong(ID, "an id"))?);
    }
    Ok(row)
}

/// The commit that left an item, where it is one of ours.
pub(super) fn commit_of(item: &Item) -> Option<CommitId> {
    let id = item.maybe_bytes(COMMIT).ok()??;
    Uuid::from_slice(id).ok().map(CommitId)
}

/// The manifest; where there is none, what the body says it is.
fn event_type(manifest: Option<&str>, body: &[u8]) -> EventType {
    #[derive(serde::Deserialize)]
    struct Typed {
        r#type: Option<String>,
    }
    let said = || serde_json::from_slice::<Typed>(body).ok().and_then(|typed| typed.r#type).filter(|said| !said.is_empty());
    let name = manifest.filter(|manifest| !manifest.is_empty()).map(str::to_owned).or_else(said).unwrap_or_else(|| "unknown".into());
    let mut end = name.len().min(EventType::MAX_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    #[expect(clippy::expect_used, reason = "cut to the length that a type has, and not empty")]
    EventType::new(&name[..end]).expect("a type")
}

fn signed(item: &Item, name: &str) -> Result<i64, Malformed> {
    let value = item.value(name).ok_or_else(|| Malformed(format!("attribute {name} is missing")))?;
    value.as_n().ok().and_then(|digits| digits.parse().ok()).ok_or_else(|| wrong(name, "a whole number of 64 bits"))
}

fn version(number: u64) -> Result<u64, Malformed> {
    if (1..=LAST).contains(&number) { Ok(number) } else { Err(wrong(SEQ, "a number from 1 to 2^53 - 1")) }
}

/// A snapshot as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredSnapshot {
    pub(super) name: String,
    /// None: the client that wrote it does not say which events it holds, and neither does its body.
    pub(super) version: Option<u64>,
    pub(super) state: Bytes,
    /// The lock of v3.
    pub(super) lock: u64,
    /// When the last event occurred, in milliseconds, as v3 says with every append.
    pub(super) updated: Option<i64>,
}

/// The attributes of a snapshot of v5 but for its key.
pub(super) fn v5_snapshot(name: &str, version: u64, state: &[u8], updated: i64) -> Item {
    Item::from([
        (SEQ.into(), number(version)),
        (MANIFEST.into(), text(if name == SNAPSHOT { "" } else { name })),
        (PAYLOAD.into(), binary(state)),
        (UPDATED.into(), Value::N(updated.to_string())),
    ])
}

/// The attributes of a snapshot of v3 but for its key.
pub(super) fn v3_snapshot(stream: &StreamName, version: u64, lock: u64, state: &[u8], updated: i64) -> Item {
    Item::from([
        (AID.into(), text(stream.as_str())),
        (SEQ.into(), number(version)),
        (VERSION.into(), number(lock)),
        (TTL.into(), number(0)),
        (PAYLOAD.into(), binary(state)),
        (UPDATED.into(), Value::N(updated.to_string())),
    ])
}

/// The stream and the lock of a current snapshot of v3; none: one of the past.
pub(super) fn current_lock(options: &Options, item: &Item) -> Result<Option<(StreamName, u64)>> {
    let aid = item.text(AID).map_err(|m| corrupt(options.layout(), "an item of the snapshots", &m))?;
    if item.maybe_text(SKEY).ok().flatten() != Some(format!("{aid}-0").as_str()) {
        return Ok(None);
    }
    let lock = item.number(VERSION).map_err(|m| corrupt(options.layout(), &format!("snapshot of {aid}"), &m))?;
    Ok(Some((StreamName::new(aid)?, lock)))
}

/// A current snapshot.
pub(super) fn snapshot(options: &Options, stream: &StreamName, item: &Item) -> Result<StoredSnapshot> {
    let decoded = match options.kind {
        Kind::V5 { .. } => v5_stored(item),
        Kind::V3(_) => v3_stored(item),
    };
    decoded.map_err(|m| corrupt(options.layout(), &format!("snapshot of {stream}"), &m))
}

fn v5_stored(item: &Item) -> Result<StoredSnapshot, Malformed> {
    let name = match item.text(MANIFEST)? {
        "" => SNAPSHOT.to_owned(),
        manifest => manifest.to_owned(),
    };
    let (version, state) = (version(item.number(SEQ)?)?, Bytes::copy_from_slice(item.bytes(PAYLOAD)?));
    Ok(StoredSnapshot { name, version: Some(version), state, lock: 0, updated: None })
}

fn v3_stored(item: &Item) -> Result<StoredSnapshot, Malformed> {
    let state = match item.value(PAYLOAD) {
        Some(Value::S(text)) => Bytes::copy_from_slice(text.as_bytes()),
        _ => Bytes::copy_from_slice(item.bytes(PAYLOAD)?),
    };
    let lock = item.number(VERSION)?;
    // Only the Rust client of v3 says the number here; the others say 0, and their aggregates hold it.
    let said = match (item.maybe_number(SEQ)?, item.maybe_number(SER)?) {
        (Some(seq), _) | (None, Some(seq)) if seq > 0 => Some(seq),
        _ => folded(&state),
    };
    let version = said.filter(|version| (1..=LAST).contains(version));
    Ok(StoredSnapshot { name: SNAPSHOT.into(), version, state, lock, updated: signed(item, UPDATED).ok() })
}

/// The number of events that an aggregate says it holds, by the names that the family's examples and generators use.
fn folded(state: &[u8]) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(state).ok()?;
    let said = |body: &serde_json::Value| {
        ["seq_nr", "seqNr", "sequenceNumber", "sequence_number", "seq_nr_counter", "seqNrCounter"]
            .iter()
            .find_map(|name| body.get(name)?.as_u64())
    };
    said(&body).or_else(|| said(body.get("data")?))
}

fn corrupt(layout: &'static str, place: &str, malformed: &Malformed) -> Error {
    Error::corrupt(layout, format!("{place}: {}", malformed.0))
}
