//! Event items, to and from attributes as the peer has them; and the few items of ours that the peer never meets. Pure.
//! Names of attributes appear here and in `fence`, and nowhere else.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::json;
use super::place::{Cover, UNTAGGED, composite, split};
use super::position::At;
use super::settings::Settings;
use crate::dynamo::ITEM_BYTES;
pub(super) use crate::dynamo::item::Item;
use crate::dynamo::item::{Attributes, Malformed, Value, as_number, binary, number, size, text, wrong};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Event, EventType, Metadata, Recorded, Tag};

pub(super) const HASH: &str = "id";
pub(super) const RANGE: &str = "position";

pub(super) const EVENT: &str = "event";
const DATA: &str = "data";
const RECORDED: &str = "recordedAt";
const TAGS: &str = "tags";
const KEY: &str = "key";
const VALUE: &str = "value";
/// Before a tag's key: the attribute that its index is over.
pub(super) const TAG: &str = "tag_";
pub(super) const TAG_COMPOSITE: &str = "tag_composite";

const SERVICE: &str = "service";
const TIME: &str = "time";
const MESSAGE: &str = "msgId";
const CORRELATION: &str = "correlationId";
const CAUSATION: &str = "causationId";
const USER: &str = "user";
const SCHEMA: &str = "schemaVersion";

/// The commit's number in its partition: the feed's order.
const VERSION: &str = "fv";
/// In the first event of a commit in a partition: how many it has there.
const COUNT: &str = "fn";
/// In the first event of a commit: the number in each partition, where there are several; in the first event in each of the others: where it is.
const SLOTS: &str = "fs";
/// In the first event of a commit: a hash of all its events.
const DIGEST: &str = "fd";
/// In a pointer: the partition of the event. In the item of a commit id: the positions.
const OF: &str = "of";

/// What is said of the service where the caller says nothing.
const OURS: &str = "fencepost";
/// An index key may have so many bytes.
const INDEX_KEY: usize = 2048;
/// Ids of events that have none of ours are derived under this.
const DERIVED: Uuid = Uuid::from_u128(0x2c0d_51a7_8e3b_4f6d_9a42_7265_7665_6e74);

/// The key of an item.
pub(super) fn key(id: &str, position: &str) -> Item {
    Item::from([(HASH.into(), text(id)), (RANGE.into(), text(position))])
}

/// How an item is called in messages.
pub(super) fn describe(item: &Item) -> String {
    format!("{} @{}", item.text(HASH).unwrap_or("?"), item.text(RANGE).unwrap_or("?"))
}

pub(super) fn corrupt(item: &Item, malformed: &Malformed) -> Error {
    Error::corrupt("reventless", format!("{}: {}", describe(item), malformed.0))
}

/// An event, ready to be put wherever its commit lands.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) home: Option<Cover>,
    /// The fences it moves, and whether each must be shown the way to it.
    pub(super) fences: BTreeMap<Cover, bool>,
    pub(super) event_type: EventType,
    attributes: Item,
}

impl Draft {
    /// Refuses what the layout cannot hold, before anything is called.
    pub(super) fn new(settings: &Settings, event: &Event, id: Uuid) -> Result<Draft> {
        settings.check(event.tags())?;
        let home = settings.home(event.tags());
        let mut item = Item::from([(EVENT.into(), text(event.event_type().as_str()))]);
        let body = json::parse(event.data())
            .map_err(|why| Refused::Malformed { what: "event body", why: format!("{}; this layout keeps JSON", why.0) })?;
        item.insert(DATA.into(), body);
        let mut tags = Vec::with_capacity(event.tags().len());
        for tag in event.tags() {
            let (key, value) = split(tag)?;
            tags.push(Value::M(Item::from([(KEY.into(), text(key)), (VALUE.into(), text(value))])));
            item.insert(format!("{TAG}{key}"), text(value));
        }
        item.insert(TAGS.into(), Value::L(tags));
        if event.tags().len() > 1 {
            let all = composite(event.tags());
            // Nothing of ours reads it, and what is too long for an index would be refused whole.
            if all.len() <= INDEX_KEY {
                item.insert(TAG_COMPOSITE.into(), text(all));
            }
        }
        put_meta(&mut item, event.metadata(), id)?;
        let draft = Draft { fences: settings.fences(event.tags()), home, event_type: event.event_type().clone(), attributes: item };
        let bytes = size(&draft.attributes) + 512 + 2 * draft.id().len();
        if bytes > ITEM_BYTES {
            return Err(Refused::TooLong { what: "event as an item", bytes, limit: ITEM_BYTES }.into());
        }
        Ok(draft)
    }

    /// Its partition.
    pub(super) fn id(&self) -> &str {
        self.home.as_ref().map_or(UNTAGGED, Cover::id)
    }

    pub(super) fn bytes(&self) -> usize {
        size(&self.attributes) + 512
    }

    pub(super) fn item(&self, at: &At, marks: &Marks) -> Item {
        let mut item = self.attributes.clone();
        item.extend(key(self.id(), &at.text()));
        let recorded = format!("{:.3}", recorded_at(at.stamp));
        item.entry(TIME.into()).or_insert_with(|| text(&recorded));
        item.insert(RECORDED.into(), text(recorded));
        let mut mark = |name: &str, value: Option<Value>| drop(value.map(|value| item.insert(name.into(), value)));
        mark(VERSION, marks.version.map(number));
        mark(COUNT, marks.count.map(number));
        mark(DIGEST, marks.digest.map(|digest| binary(digest.to_vec())));
        let slots = |slots: &BTreeMap<String, u64>| Value::M(slots.iter().map(|(id, version)| (id.clone(), number(*version))).collect());
        mark(SLOTS, marks.slots.as_ref().map(slots).or_else(|| marks.home.as_ref().map(text)));
        item
    }
}

/// What this store says of an event besides what the peer does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// In every event of ours. 0 in the partition of the untagged, which has no fence to count with.
    pub(super) version: Option<u64>,
    pub(super) count: Option<u64>,
    pub(super) slots: Option<BTreeMap<String, u64>>,
    /// In the first event of a commit in a partition that its very first event is not in: where that one is.
    pub(super) home: Option<String>,
    pub(super) digest: Option<[u8; 8]>,
}

pub(super) fn recorded_at(stamp: u64) -> Timestamp {
    Timestamp::from_microsecond(i64::try_from(stamp).unwrap_or(i64::MAX) / 1_000 * 1_000).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn put_meta(item: &mut Item, meta: &Metadata, id: Uuid) -> Result<()> {
    let id = id.hyphenated().to_string();
    // The peer throws on an event without these four; the time is put with the position.
    item.insert(CORRELATION.into(), text(meta.correlation.as_deref().unwrap_or(&id)));
    item.insert(MESSAGE.into(), text(id));
    if let Some(occurred) = meta.occurred {
        item.insert(TIME.into(), text(occurred.to_string()));
    }
    for (name, value) in [(CAUSATION, &meta.causation), (USER, &meta.user)] {
        if let Some(value) = value {
            item.insert(name.into(), text(value));
        }
    }
    if let Some(schema) = meta.schema {
        item.insert(SCHEMA.into(), number(schema.into()));
    }
    for (name, value) in &meta.extra {
        let taken = item.contains_key(name) || (is_ours(name) && name != SERVICE) || name.starts_with(TAG);
        if taken || name.is_empty() || (name == SERVICE && !value.is_string()) {
            let rule = "not an attribute that the item has for something else: metadata lies beside them";
            return Err(Refused::BadName { what: "metadata key", name: name.clone(), rule }.into());
        }
        let json = serde_json::to_vec(value).unwrap_or_default();
        let value = json::parse(&json).map_err(|why| Refused::Malformed { what: "metadata", why: format!("{name}: {}", why.0) })?;
        item.insert(name.clone(), value);
    }
    item.entry(SERVICE.into()).or_insert_with(|| text(OURS));
    Ok(())
}

/// Attributes that are no metadata of the caller's own.
fn is_ours(name: &str) -> bool {
    const ALL: [&str; 18] = [
        HASH,
        RANGE,
        EVENT,
        DATA,
        RECORDED,
        TAGS,
        SERVICE,
        TIME,
        MESSAGE,
        CORRELATION,
        CAUSATION,
        USER,
        SCHEMA,
        VERSION,
        COUNT,
        SLOTS,
        DIGEST,
        OF,
    ];
    ALL.contains(&name)
}

/// An event as it lies in the table.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) id: String,
    pub(super) at: At,
    pub(super) marks: Marks,
    /// Its tags in the order that its item has them in.
    pub(super) written: Vec<Tag>,
    pub(super) recorded: Recorded,
}

impl Stored {
    /// Whether this store wrote it: only then is it counted.
    pub(super) fn is_ours(&self) -> bool {
        self.marks.version.is_some()
    }
}

/// Whether an item is an event, as the peer's scans tell.
pub(super) fn is_event(item: &Item) -> bool {
    item.contains_key(EVENT)
}

/// The place and marks of an event, without its body.
pub(super) fn placed(item: &Item) -> Result<(String, At, Marks), Error> {
    place(item).map_err(|malformed| corrupt(item, &malformed))
}

fn place(item: &Item) -> Result<(String, At, Marks), Malformed> {
    let at = At::parse(item.text(RANGE)?).ok_or_else(|| wrong(RANGE, "a position"))?;
    let (slots, home) = match item.value(SLOTS) {
        None => (None, None),
        Some(Value::S(home)) => (None, Some(home.clone())),
        Some(Value::M(map)) => {
            let slots: Option<BTreeMap<_, _>> = map.iter().map(|(id, version)| Some((id.clone(), as_number(version)?))).collect();
            (Some(slots.ok_or_else(|| wrong(SLOTS, "numbers by partition"))?), None)
        }
        Some(_) => return Err(wrong(SLOTS, "numbers by partition, or one of them")),
    };
    let digest = item.maybe_bytes(DIGEST)?.and_then(|digest| digest.try_into().ok());
    let marks = Marks { version: item.maybe_number(VERSION)?, count: item.maybe_number(COUNT)?, slots, home, digest };
    Ok((item.text(HASH)?.to_owned(), at, marks))
}

/// The event of an item.
pub(super) fn stored(item: &Item) -> Result<Stored, Error> {
    decode(item).map_err(|malformed| corrupt(item, &malformed))
}

fn decode(item: &Item) -> Result<Stored, Malformed> {
    let (id, at, marks) = place(item)?;
    let event_type = EventType::new(item.text(EVENT)?).map_err(|_| wrong(EVENT, "an event type"))?;
    let body = match item.value(DATA) {
        None => "null".into(),
        Some(value) => json::write(value).ok_or_else(|| wrong(DATA, "a value that JSON has"))?,
    };
    let mut tags = Vec::new();
    for tag in item.maybe_list(TAGS)?.unwrap_or_default() {
        let parts = tag.as_m().ok().and_then(|tag| Some((tag.text(KEY).ok()?, tag.text(VALUE).ok()?)));
        let (key, value) = parts.ok_or_else(|| wrong(TAGS, "a list of keys and values"))?;
        tags.push(Tag::new(format!("{key}:{value}")).map_err(|_| wrong(TAGS, "tags of at most 1,024 bytes"))?);
    }
    tags.dedup();
    let recorded_text = item.maybe_text(RECORDED)?;
    let recorded_at = recorded_text.and_then(|text| text.parse().ok()).unwrap_or_else(|| recorded_at(at.stamp));
    let message = item.maybe_text(MESSAGE)?.map_or_else(|| format!("{id}/{}", at.text()), str::to_owned);
    let event_id = Uuid::try_parse(&message).unwrap_or_else(|_| Uuid::new_v5(&DERIVED, message.as_bytes()));
    let meta = meta(item, &message, recorded_text)?;
    let recorded = Recorded::new(at.position(), event_id, event_type, Bytes::from(body), tags.clone(), meta, recorded_at);
    Ok(Stored { id, at, marks, written: tags, recorded })
}

fn meta(item: &Item, message: &str, recorded: Option<&str>) -> Result<Metadata, Malformed> {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let schema = match item.value(SCHEMA) {
        None => None,
        Some(Value::S(text)) => text.parse().ok(),
        Some(value) => as_number(value).and_then(|schema| u32::try_from(schema).ok()),
    };
    let mut extra = BTreeMap::new();
    for (name, value) in item.iter().filter(|(name, _)| !is_ours(name) && !name.starts_with(TAG)) {
        // What JSON does not have is not the caller's.
        if let Some(value) = json::write(value).and_then(|json| serde_json::from_str(&json).ok()) {
            extra.insert(name.clone(), value);
        }
    }
    if let Some(service) = item.maybe_text(SERVICE)?.filter(|service| *service != OURS) {
        extra.insert(SERVICE.into(), service.into());
    }
    Ok(Metadata {
        correlation: own(item.maybe_text(CORRELATION)?.filter(|correlation| *correlation != message)),
        causation: own(item.maybe_text(CAUSATION)?),
        user: own(item.maybe_text(USER)?),
        schema,
        occurred: item.maybe_text(TIME)?.filter(|time| Some(*time) != recorded).and_then(|time| time.parse().ok()),
        extra,
    })
}

/// The id of an event that the peer wrote, as a commit of its own in the feed.
#[cfg(feature = "streams")]
pub(super) fn foreign_commit(id: &str, at: &At) -> CommitId {
    CommitId(Uuid::new_v5(&DERIVED, format!("{id}/{}", at.text()).as_bytes()))
}

/// Where the pointers of a cover are: to events that carry it, and that neither its partition nor its index shows.
pub(super) fn pointers(cover: &Cover) -> String {
    format!("more#{}", cover.fence())
}

pub(super) fn pointer(cover: &Cover, at: &At, id: &str) -> Item {
    let mut item = key(&pointers(cover), &at.text());
    item.insert(OF.into(), text(id));
    item
}

/// The key of the event that a pointer shows the way to.
pub(super) fn pointed(item: &Item) -> Result<Item, Error> {
    let malformed = |m: Malformed| corrupt(item, &m);
    Ok(key(item.text(OF).map_err(malformed)?, item.text(RANGE).map_err(malformed)?))
}

/// The key of the item that remembers a commit id of the caller's.
pub(super) fn once_key(commit: CommitId) -> Item {
    key(&format!("once#{}", commit.0.hyphenated()), "ONCE")
}

/// What is remembered of a commit under an id of the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Once {
    pub(super) stamp: u64,
    pub(super) events: u64,
    pub(super) digest: [u8; 8],
    /// The fences that it moved.
    pub(super) fences: Vec<String>,
}

pub(super) fn once(commit: CommitId, once: &Once) -> Item {
    let mut item = once_key(commit);
    item.insert(OF.into(), number(once.stamp));
    item.insert(COUNT.into(), number(once.events));
    item.insert(DIGEST.into(), binary(once.digest.to_vec()));
    if !once.fences.is_empty() {
        item.insert(SLOTS.into(), Value::Ss(once.fences.clone()));
    }
    item
}

pub(super) fn of_once(item: &Item) -> Result<Once, Error> {
    let decode = || {
        let digest = item.bytes(DIGEST)?.try_into().map_err(|_| wrong(DIGEST, "eight bytes"))?;
        let fences = item.value(SLOTS).and_then(|fences| fences.as_ss().ok()).cloned().unwrap_or_default();
        Ok(Once { stamp: item.number(OF)?, events: item.number(COUNT)?, digest, fences })
    };
    decode().map_err(|malformed: Malformed| corrupt(item, &malformed))
}
