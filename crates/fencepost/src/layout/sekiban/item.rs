//! Items of Sekiban's three tables: keys in both forms, events, rows of tags, heads, to and from attributes. Pure; the rooms beside it do the talking.

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::LAYOUT;
use super::suid::SortableId;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, number, size, text, wrong};
use crate::dynamo::{ITEM_BYTES, Key};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Event, EventType, Metadata, Recorded, Tag};

pub(super) const HASH: &str = "pk";
pub(super) const RANGE: &str = "sk";
pub(super) const INDEX: &str = "GSI1";
pub(super) const ALL_KEY: &str = "gsi1pk";
pub(super) const SORTABLE: &str = "sortableUniqueId";
pub(super) const GROUP: &str = "tagGroup";
pub(super) const TAG: &str = "tagString";
const SERVICE: &str = "serviceId";
pub(super) const EVENT_ID: &str = "eventId";
const TYPE: &str = "eventType";
const PAYLOAD: &str = "payload";
const TAGS: &str = "tags";
pub(super) const TIMESTAMP: &str = "timestamp";
const CREATED: &str = "createdAt";
const CAUSATION: &str = "causationId";
const CORRELATION: &str = "correlationId";
const USER: &str = "executedUser";
pub(super) const TTL: &str = "ttl";
/// What of an event's metadata Sekiban has no attribute for, as JSON. Its readers pass over attributes that they do not know.
const META: &str = "fencepostMeta";
/// The staged commit that an event came with: its rows come one after the other.
pub(super) const STAGED: &str = "fencepostCommit";
pub(super) const POS: &str = "pos";
pub(super) const CNT: &str = "cnt";
pub(super) const PENDING: &str = "pending";

/// What stands for a service where keys are plain.
const PLAIN: &str = "plain.";

/// How keys are written: for a service, or plain as releases 10.0.5 to 10.0.8 did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// None: plain keys.
    service: Option<String>,
}

impl Keys {
    /// Keys of a service: lower case, then `[a-z0-9-]{1,64}`.
    pub(crate) fn of_service(name: &str) -> Result<Keys> {
        let name = name.to_lowercase();
        let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !fits {
            return Err(Refused::BadName { what: "service", name, rule: "1 to 64 of a-z 0-9 -" }.into());
        }
        Ok(Keys { service: Some(name) })
    }
    pub(crate) fn plain() -> Keys {
        Keys { service: None }
    }
    pub(crate) fn service(&self) -> &str {
        self.service.as_deref().unwrap_or("default")
    }
    pub(crate) fn is_plain(&self) -> bool {
        self.service.is_none()
    }
    /// Plain keys know no service; a dot is in no service's name.
    pub(super) fn namespace(&self) -> &str {
        self.service.as_deref().unwrap_or(PLAIN)
    }
    #[cfg(feature = "streams")]
    pub(super) fn of_namespace(namespace: &str) -> Result<Keys> {
        if namespace == PLAIN { Ok(Keys::plain()) } else { Keys::of_service(namespace) }
    }
    /// Whose an item is, by its key, and what that says behind the service; none where no service is called so.
    #[cfg(feature = "streams")]
    pub(super) fn split(pk: &str) -> Option<(Keys, &str)> {
        match pk.strip_prefix("SERVICE#") {
            None => Some((Keys::plain(), pk)),
            Some(rest) => {
                let (service, rest) = rest.split_once('#')?;
                Some((Keys::of_service(service).ok()?, rest))
            }
        }
    }

    fn prefixed(&self, rest: String) -> String {
        match &self.service {
            Some(service) => format!("SERVICE#{service}#{rest}"),
            None => rest,
        }
    }
    /// An event, by its id as it is written.
    pub(super) fn event(&self, id: &str) -> Key {
        key(self.prefixed(format!("EVENT#{id}")), format!("EVENT#{id}"))
    }
    pub(super) fn tag(&self, tag: &str) -> String {
        self.prefixed(format!("TAG#{tag}"))
    }
    pub(super) fn head(&self, tag: &str) -> Key {
        key(self.prefixed(format!("HEAD#{tag}")), "HEAD".into())
    }
    /// A commit's record, or a part of what it staged.
    pub(super) fn commit(&self, commit: CommitId, part: &str) -> Key {
        key(self.prefixed(format!("COMMIT#{commit}")), part.into())
    }
    /// Where large commits are listed, see `listed`.
    pub(super) fn large_commits(&self) -> String {
        self.prefixed("COMMITS".into())
    }
    /// The partition of the index that holds all events, or one shard of them.
    pub(super) fn all_events(&self, shard: Option<u32>) -> String {
        match shard {
            None => self.prefixed("ALL_EVENTS".into()),
            Some(shard) => self.prefixed(format!("ALL_EVENTS#{shard}")),
        }
    }
    pub(super) fn projector(&self, name: &str) -> String {
        self.prefixed(format!("PROJECTOR#{name}"))
    }
    /// As the index of tags has it.
    pub(super) fn group(&self, group: &str) -> String {
        match &self.service {
            Some(service) => format!("{service}|{group}"),
            None => group.into(),
        }
    }
    /// Whether an item of a table that several services share is this one's.
    pub(super) fn owns(&self, item: &Item) -> bool {
        match &self.service {
            Some(service) => item
                .text(HASH)
                .is_ok_and(|pk| pk.strip_prefix("SERVICE#").and_then(|rest| rest.split_once('#')).is_some_and(|(of, _)| of == service)),
            None => item.text(HASH).is_ok_and(|pk| !pk.starts_with("SERVICE#")),
        }
    }
    /// What a key says behind the service.
    pub(super) fn rest<'a>(&self, pk: &'a str) -> &'a str {
        match &self.service {
            Some(_) => pk.splitn(3, '#').nth(2).unwrap_or(pk),
            None => pk,
        }
    }
    pub(super) fn mark_service(&self, item: &mut Item) {
        if let Some(service) = &self.service {
            item.insert(SERVICE.into(), text(service.as_str()));
        }
    }
}

pub(super) fn key(hash: String, range: String) -> Key {
    Key::from([(HASH.into(), text(hash)), (RANGE.into(), text(range))])
}

/// How an item is called in messages.
pub(super) fn describe(item: &Item) -> String {
    format!("{} @{}", item.text(HASH).unwrap_or("?"), item.text(RANGE).unwrap_or("?"))
}

pub(super) fn corrupt(item: &Item, malformed: &Malformed) -> Error {
    Error::corrupt(LAYOUT, format!("{}: {}", describe(item), malformed.0))
}

/// Everything before the first colon; a tag without one is its own group.
pub(super) fn group_of(tag: &str) -> &str {
    tag.split_once(':').map_or(tag, |(group, _)| group)
}

/// The shard of an id: the same for everybody, forever.
pub(super) fn shard_of(id: SortableId, shards: u32) -> Option<u32> {
    if shards <= 1 {
        return None;
    }
    let hash = Sha256::digest(id.to_string().as_bytes());
    let number = i32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]) & 0x7fff_ffff;
    u32::try_from(number).ok().map(|number| number % shards)
}

/// The published token of a write: 36 digits of the hash of its events' ids.
pub(super) fn request_token(ids: impl Iterator<Item = Uuid>) -> String {
    let joined: Vec<String> = ids.map(|id| id.to_string()).collect();
    let hash = Sha256::digest(joined.join("|").as_bytes());
    hash.iter().take(18).map(|byte| format!("{byte:02X}")).collect()
}

/// A time as .NET's round-trip format has it.
pub(super) fn written(at: Timestamp) -> String {
    let seconds = at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    format!("{seconds}.{:07}+00:00", at.subsec_nanosecond() / 100)
}

/// An event with the place that it gets.
#[derive(Debug, Clone)]
pub(super) struct Placed<'a> {
    pub(super) id: Uuid,
    pub(super) at: SortableId,
    pub(super) event: &'a Event,
}

/// What all rows of one write have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'a> {
    pub(super) keys: &'a Keys,
    pub(super) shards: u32,
    pub(super) now: Timestamp,
    /// When DynamoDB may remove them, in seconds.
    pub(super) ttl: Option<u64>,
    pub(super) staged: Option<CommitId>,
}

impl Stamp<'_> {
    /// The event's item. A body that is no text is refused: Sekiban would mangle it.
    pub(super) fn event(&self, placed: &Placed<'_>) -> Result<Item> {
        let event = placed.event;
        let body = body_text(event)?;
        let mut item = self.keys.event(&placed.id.to_string());
        self.keys.mark_service(&mut item);
        item.insert(ALL_KEY.into(), text(self.keys.all_events(shard_of(placed.at, self.shards))));
        item.insert(EVENT_ID.into(), text(placed.id.to_string()));
        item.insert(SORTABLE.into(), text(placed.at.to_string()));
        item.insert(TYPE.into(), text(event.event_type().as_str()));
        item.insert(PAYLOAD.into(), text(body));
        item.insert(TAGS.into(), Value::L(event.tags().iter().map(|tag| text(tag.as_str())).collect()));
        item.insert(TIMESTAMP.into(), text(written(self.now)));
        put_meta(&mut item, event.metadata());
        self.mark(&mut item);
        if let Some(commit) = self.staged {
            item.insert(STAGED.into(), text(commit.to_string()));
        }
        let bytes = size(&item);
        if bytes > ITEM_BYTES {
            return Err(Refused::TooLong { what: "event", bytes, limit: ITEM_BYTES }.into());
        }
        Ok(item)
    }

    /// The row of one of its tags.
    pub(super) fn tag_row(&self, placed: &Placed<'_>, tag: &Tag) -> Item {
        let mut item = key(self.keys.tag(tag.as_str()), sort_key(placed.at, &placed.id.to_string()));
        self.keys.mark_service(&mut item);
        item.insert(TAG.into(), text(tag.as_str()));
        let group = self.keys.group(group_of(tag.as_str()));
        // A key of an index is never empty: with plain keys a tag such as `:x` is in no group.
        if !group.is_empty() {
            item.insert(GROUP.into(), text(group));
        }
        item.insert(TYPE.into(), text(placed.event.event_type().as_str()));
        item.insert(EVENT_ID.into(), text(placed.id.to_string()));
        item.insert(SORTABLE.into(), text(placed.at.to_string()));
        item.insert(CREATED.into(), text(written(self.now)));
        self.mark(&mut item);
        item
    }

    fn mark(&self, item: &mut Item) {
        if let Some(ttl) = self.ttl {
            item.insert(TTL.into(), number(ttl));
        }
    }
}

pub(super) fn body_text(event: &Event) -> Result<&str> {
    std::str::from_utf8(event.data()).map_err(|_| {
        let why = "its bytes are not UTF-8, and Sekiban's tables hold text: encode it, as base64 in JSON".into();
        Refused::Malformed { what: "event body", why }.into()
    })
}

pub(super) fn sort_key(at: SortableId, event: &str) -> String {
    format!("{at}#{event}")
}

/// Correlation, causation and user have attributes; an empty text would be left out there, so it goes with the rest.
fn put_meta(item: &mut Item, meta: &Metadata) {
    let mut rest = meta.clone();
    for (name, value) in [(CAUSATION, &mut rest.causation), (CORRELATION, &mut rest.correlation), (USER, &mut rest.user)] {
        if value.as_ref().is_some_and(|value| !value.is_empty())
            && let Some(value) = value.take()
        {
            item.insert(name.into(), text(value));
        }
    }
    if !rest.is_empty() {
        // Texts, numbers and maps of them: nothing that JSON cannot hold.
        item.insert(META.into(), text(serde_json::to_string(&rest).unwrap_or_default()));
    }
}

fn meta(item: &Item) -> Result<Metadata, Malformed> {
    let mut meta = match item.maybe_text(META)? {
        Some(json) => serde_json::from_str(json).map_err(|_| wrong(META, "metadata"))?,
        None => Metadata::default(),
    };
    for (name, field) in [(CAUSATION, &mut meta.causation), (CORRELATION, &mut meta.correlation), (USER, &mut meta.user)] {
        // Sekiban's readers take NULL for nothing.
        if let Some(Value::S(value)) = item.get(name)
            && !value.is_empty()
        {
            *field = Some(value.clone());
        }
    }
    Ok(meta)
}

/// An event as it is stored, by us or by Sekiban.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) at: SortableId,
    /// The staged commit that it came with, if it did.
    pub(crate) staged: Option<CommitId>,
    pub(crate) event: Recorded,
}

pub(super) fn stored(item: &Item) -> Result<Stored> {
    read_event(item).map_err(|malformed| corrupt(item, &malformed))
}

fn read_event(item: &Item) -> Result<Stored, Malformed> {
    let id: Uuid = item.text(EVENT_ID)?.parse().map_err(|_| wrong(EVENT_ID, "an id"))?;
    let at = sortable(item)?;
    let position = at.position(&id).ok_or_else(|| wrong(SORTABLE, "a time since 1970"))?;
    // Sekiban reads a missing or binary payload as empty, without a word. Here it is said.
    let body = Bytes::copy_from_slice(item.text(PAYLOAD)?.as_bytes());
    let tags = tags(item)?;
    let event_type = EventType::new(item.text(TYPE)?).map_err(|_| wrong(TYPE, "an event's type"))?;
    let recorded = written_at(item, at)?;
    let staged = item.maybe_text(STAGED)?.and_then(|id| id.parse().ok()).map(CommitId);
    Ok(Stored { at, staged, event: Recorded::new(position, id, event_type, body, tags, meta(item)?, recorded) })
}

/// What of an event's item tells where it belongs: its place, when it was written, its tags and its type.
#[cfg(feature = "streams")]
pub(super) fn announced(item: &Item) -> Result<(SortableId, Timestamp, Vec<Tag>, &str), Malformed> {
    let at = sortable(item)?;
    Ok((at, written_at(item, at)?, tags(item)?, item.text(TYPE)?))
}

fn sortable(item: &Item) -> Result<SortableId, Malformed> {
    item.text(SORTABLE)?.parse().map_err(|_| wrong(SORTABLE, "30 digits"))
}

fn written_at(item: &Item, at: SortableId) -> Result<Timestamp, Malformed> {
    match item.maybe_text(TIMESTAMP)? {
        Some(time) => time.parse().map_err(|_| wrong(TIMESTAMP, "a time")),
        None => Ok(at.timestamp()),
    }
}

fn tags(item: &Item) -> Result<Vec<Tag>, Malformed> {
    let tags = item.maybe_list(TAGS)?.unwrap_or_default().iter();
    tags.map(|tag| tag.as_s().ok().and_then(|tag| Tag::new(tag).ok()).ok_or_else(|| wrong(TAGS, "tags"))).collect()
}

/// One event on one tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TagRow {
    /// The id as it is written: Sekiban's are lower case, others' may not be.
    pub(crate) event: String,
    pub(crate) at: SortableId,
    pub(crate) created: Option<Timestamp>,
    /// From when on DynamoDB may remove it, in seconds; its event too, before it or behind it.
    ttl: Option<u64>,
}

impl TagRow {
    pub(super) fn sort_key(&self) -> String {
        sort_key(self.at, &self.event)
    }
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.ttl.is_some_and(|ttl| i128::from(ttl) <= i128::from(now.as_second()))
    }
}

pub(super) fn tag_row(item: &Item) -> Result<TagRow> {
    let read = || {
        let (at, event) = item.text(RANGE)?.split_once('#').ok_or_else(|| wrong(RANGE, "an id and an event's"))?;
        let at = at.parse().map_err(|_| wrong(RANGE, "30 digits and an event's id"))?;
        let created = item.maybe_text(CREATED)?.and_then(|time| time.parse().ok());
        Ok(TagRow { event: event.into(), at, created, ttl: item.maybe_number(TTL)? })
    };
    read().map_err(|malformed| corrupt(item, &malformed))
}

/// What the writers of ours agree on about a tag. Sekiban's writers know nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Of the tag's last event by a writer of ours.
    pub(super) pos: SortableId,
    /// Events on the tag, up to there.
    pub(super) cnt: u64,
    /// A large commit whose rows are not all there yet.
    pub(super) pending: Option<CommitId>,
}

pub(super) fn head(item: &Item) -> Result<Head> {
    let read = || {
        let pos = item.text(POS)?.parse().map_err(|_| wrong(POS, "30 digits"))?;
        let pending = item.maybe_text(PENDING)?.map(|id| id.parse().map(CommitId).map_err(|_| wrong(PENDING, "a commit's id")));
        Ok(Head { pos, cnt: item.number(CNT)?, pending: pending.transpose()? })
    };
    read().map_err(|malformed| corrupt(item, &malformed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_both_forms() {
        let keys = Keys::of_service("Acme-School").expect("a service");
        assert_eq!(keys.event("e1"), key("SERVICE#acme-school#EVENT#e1".into(), "EVENT#e1".into()));
        assert_eq!(keys.tag("Student:a"), "SERVICE#acme-school#TAG#Student:a");
        assert_eq!(keys.head("Student:a"), key("SERVICE#acme-school#HEAD#Student:a".into(), "HEAD".into()));
        assert_eq!(
            (keys.all_events(None), keys.all_events(Some(3))),
            ("SERVICE#acme-school#ALL_EVENTS".into(), "SERVICE#acme-school#ALL_EVENTS#3".into())
        );
        assert_eq!(keys.group("Student"), "acme-school|Student");
        let plain = Keys::plain();
        assert_eq!(plain.event("e1"), key("EVENT#e1".into(), "EVENT#e1".into()));
        assert_eq!((plain.tag("a:b"), plain.all_events(None), plain.group("a")), ("TAG#a:b".into(), "ALL_EVENTS".into(), "a".into()));
        assert_eq!(plain.head("a:b"), key("HEAD#a:b".into(), "HEAD".into()));
        for bad in ["", "a_b", "a b", &"x".repeat(65)] {
            assert!(Keys::of_service(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn computed_values_are_those_of_the_specification() {
        let sample: SortableId = "063921792785123456000144769402".parse().expect("id");
        assert_eq!((shard_of(sample, 4), shard_of(sample, 1)), (Some(0), None));
        let event: Uuid = "0198894f-9a63-7c21-8f0e-3b5d2a91c7e4".parse().expect("id");
        assert_eq!(request_token([event].into_iter()), "EA1AF6680A5C15B5E19DC2268F5B5F3E2D06");
        let at: Timestamp = "2026-08-08T13:33:05.1502345Z".parse().expect("time");
        assert_eq!(written(at), "2026-08-08T13:33:05.1502345+00:00");
        assert_eq!((group_of("Student:a:b"), group_of("plain"), group_of(":x")), ("Student", "plain", ""));
    }

    #[test]
    fn sizes_are_those_of_the_specification() {
        let event = Event::new(
            "StudentEnrolledInClassRoom",
            r#"{"studentId":"0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11","classRoomId":"5f2e0f7c-6f0e-4e0a-8b53-3fb3a1f6d6a2"}"#,
        )
        .and_then(|e| e.tag("Student:0b6d3b1e-2a53-4d55-9a5c-0b8a8c0a5c11"))
        .and_then(|e| e.tag("ClassRoom:5f2e0f7c-6f0e-4e0a-8b53-3fb3a1f6d6a2"))
        .expect("event");
        let id: Uuid = "0198894f-9a63-7c21-8f0e-3b5d2a91c7e4".parse().expect("id");
        let event = event.meta(Metadata {
            causation: Some(id.to_string()),
            correlation: Some("EnrollStudentInClassRoom".into()),
            user: Some("GeneralSekibanExecutor".into()),
            ..Metadata::default()
        });
        let placed = Placed { id, at: "063921792785123456000144769402".parse().expect("id"), event: &event };
        let keys = Keys::of_service("default").expect("service");
        let now = "2026-08-08T13:33:05.1502345Z".parse().expect("time");
        let stamp = Stamp { keys: &keys, shards: 1, now, ttl: None, staged: None };
        let item = stamp.event(&placed).expect("fits");
        assert_eq!(size(&item), 647);
        let rows: Vec<usize> = event.tags().iter().map(|tag| size(&stamp.tag_row(&placed, tag))).collect();
        assert_eq!(rows, [393, 399]);
        let back = stored(&item).expect("reads");
        assert_eq!((back.event.id, back.at, &back.event.meta), (id, placed.at, event.metadata()));
        assert_eq!(tag_row(&stamp.tag_row(&placed, &event.tags()[0])).expect("reads").event, id.to_string());
    }
}
