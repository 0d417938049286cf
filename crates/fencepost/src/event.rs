//! Events: what happened, as an application gives it and as the store hands it back. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Refused, Result};
use crate::position::Position;

/// A text of a bounded number of bytes: checked once, where it is made.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $limit:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest that is accepted, in bytes of UTF-8.
            pub const MAX_BYTES: usize = $limit;

            /// Checks the length; any characters are allowed.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                match text.len() {
                    0 => Err(Refused::Empty { what: $what }.into()),
                    len if len > $limit => Err(Refused::TooLong { what: $what, bytes: len, limit: $limit }.into()),
                    _ => Ok(Self(text.into())),
                }
            }

            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl TryFrom<String> for $name {
            type Error = crate::error::Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }
        impl TryFrom<&str> for $name {
            type Error = crate::error::Error;
            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().into()
            }
        }
        impl From<&$name> for $name {
            fn from(name: &$name) -> $name {
                name.clone()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// A name that an event carries, such as `course:c1`. Opaque to the store, compared as bytes; 1 to 1,024 bytes.
    /// Tags stand in keys: no personal data in them.
    Tag, 1024, "tag"
);
name_type!(
    /// What kind of event it is, such as `StudentEnrolled`; 1 to 256 bytes.
    EventType, 256, "event type"
);
name_type!(
    /// The name of a stream; 1 to 1,024 bytes. In the ledger a stream is a tag.
    StreamName, 1024, "stream name"
);

impl From<&StreamName> for Tag {
    // The two have the same bounds, so a stream's name is always a tag.
    fn from(stream: &StreamName) -> Tag {
        Tag(stream.0.clone())
    }
}

/// The largest body of one event that a store accepts, in bytes.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// What an event says about its origin. An empty one takes no room in the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// The conversation that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
    /// What caused the event: the id of a command or of another event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<String>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The version of the body, where it is not the first. It stands here and not in the type, so that a condition by type sees every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u32>,
    /// When it happened, where that is not when it was recorded: what was copied or imported keeps the time of its source here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred: Option<Timestamp>,
    /// Anything else.
    #[serde(flatten)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl Metadata {
    /// How long it is as JSON; nothing, where nothing is said.
    pub(crate) fn bytes(&self) -> usize {
        if self.is_empty() { 0 } else { serde_json::to_vec(self).map_or(0, |json| json.len()) }
    }
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An event that has not been stored yet.
///
/// ```
/// use fencepost::Event;
/// # fn main() -> fencepost::Result<()> {
/// let event = Event::new("StudentEnrolled", r#"{"seat":7}"#)?.tag("course:c1")?.tag("student:s1")?;
/// assert_eq!(event.tags().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
pub struct Event {
    id: Option<Uuid>,
    event_type: EventType,
    data: Bytes,
    tags: Vec<Tag>,
    meta: Metadata,
}

impl Event {
    /// A type and a body: bytes, usually JSON.
    pub fn new(event_type: impl AsRef<str>, data: impl Into<Bytes>) -> Result<Self> {
        let data = data.into();
        if data.len() > MAX_BODY_BYTES {
            return Err(Refused::TooLong { what: "event body", bytes: data.len(), limit: MAX_BODY_BYTES }.into());
        }
        Ok(Self { id: None, event_type: EventType::new(event_type)?, data, tags: Vec::new(), meta: Metadata::default() })
    }

    /// A body that serialises to JSON.
    pub fn json(event_type: impl AsRef<str>, data: &impl Serialize) -> Result<Self> {
        let data =
            serde_json::to_vec(data).map_err(|_| Refused::Malformed { what: "event body", why: "it does not serialise to JSON".into() })?;
        Self::new(event_type, data)
    }

    /// One more tag. A tag given twice counts once.
    pub fn tag(self, tag: impl AsRef<str>) -> Result<Self> {
        let tag = Tag::new(tag)?;
        Ok(self.with_tag(tag))
    }

    /// One more tag, already checked.
    pub fn with_tag(mut self, tag: Tag) -> Self {
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
        self
    }

    /// An id of the caller's. Without one it is derived from the commit and the event's index in it.
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }

    /// Where it comes from.
    pub fn meta(mut self, meta: Metadata) -> Self {
        self.meta = meta;
        self
    }

    /// The id that the caller gave.
    pub fn given_id(&self) -> Option<Uuid> {
        self.id
    }
    /// Its type.
    pub fn event_type(&self) -> &EventType {
        &self.event_type
    }
    /// Its body.
    pub fn data(&self) -> &Bytes {
        &self.data
    }
    /// Its tags, without duplicates, in the order given.
    pub fn tags(&self) -> &[Tag] {
        &self.tags
    }
    /// Its metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.meta
    }
}

// A body may hold what no log should: only its length is shown.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("type", &self.event_type)
            .field("tags", &self.tags)
            .field("id", &self.id)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// An event as the store recorded it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Recorded {
    /// Where it stands in the store's order.
    pub position: Position,
    /// Its id: the caller's, or derived from the commit and the index in it.
    pub id: Uuid,
    /// Its type.
    pub event_type: EventType,
    /// Its body, as it was given.
    pub data: Bytes,
    /// Its tags, in byte order.
    pub tags: Vec<Tag>,
    /// Its metadata.
    pub meta: Metadata,
    /// When it was recorded, by the writer's clock. For people: nothing is decided by it.
    pub recorded_at: Timestamp,
    /// Its number in the stream it was read from, from 1. Only reads of one stream know it.
    pub version: Option<u64>,
}

impl Recorded {
    /// What a layout makes of its items.
    pub fn new(
        position: Position,
        id: Uuid,
        event_type: EventType,
        data: Bytes,
        mut tags: Vec<Tag>,
        meta: Metadata,
        recorded_at: Timestamp,
    ) -> Self {
        tags.sort_unstable();
        Self { position, id, event_type, data, tags, meta, recorded_at, version: None }
    }

    /// The event as it would be given again, under its id.
    pub fn into_event(self) -> Event {
        Event { id: Some(self.id), event_type: self.event_type, data: self.data, tags: self.tags, meta: self.meta }
    }

    /// When it happened: what its metadata says, or else when it was recorded.
    pub fn occurred_at(&self) -> Timestamp {
        self.meta.occurred.unwrap_or(self.recorded_at)
    }

    /// The body as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.data).map_err(|error| {
            Refused::Malformed {
                what: "event body",
                // The category and place only: a message of serde_json's may quote the body.
                why: format!(
                    "event {} of type {} at {} does not decode ({:?} error at line {} column {})",
                    self.id,
                    self.event_type,
                    self.position,
                    error.classify(),
                    error.line(),
                    error.column()
                ),
            }
            .into()
        })
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("position", &self.position)
            .field("type", &self.event_type)
            .field("tags", &self.tags)
            .field("id", &self.id)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// The id of a commit: one atomic append.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(pub Uuid);

impl CommitId {
    /// The id of a command that is run once: the same for the same key.
    pub fn of_key(key: impl AsRef<str>) -> Self {
        const KEYS: Uuid = Uuid::from_u128(0x9d5b_1f0e_6a0c_4c5e_8f77_6665_6e63_6570);
        Self(Uuid::new_v5(&KEYS, key.as_ref().as_bytes()))
    }

    /// The id of the event at this index of the commit, where the caller gave none.
    pub fn event_id(&self, index: usize) -> Uuid {
        Uuid::new_v5(&self.0, &(index as u64).to_be_bytes())
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checksum and length of a commit's events: whether a repeat under the same id says the same. Against mistakes, not malice.
pub(crate) fn digest(events: &[Event]) -> [u8; 8] {
    let (mut checksum, mut length) = (crc32fast::Hasher::new(), 0u32);
    let mut part = |part: &[u8]| {
        let bytes = part.len() as u32;
        length = length.wrapping_add(bytes).wrapping_add(1);
        checksum.update(&bytes.to_be_bytes());
        checksum.update(part);
    };
    for event in events {
        part(event.id.as_ref().map_or(&[][..], |id| id.as_bytes()));
        part(event.event_type.0.as_bytes());
        part(&event.data);
        let mut tags: Vec<_> = event.tags.iter().collect();
        tags.sort_unstable();
        part(&(tags.len() as u64).to_be_bytes());
        tags.iter().for_each(|tag| part(tag.0.as_bytes()));
        if !event.meta.is_empty() {
            part(&serde_json::to_vec(&event.meta).unwrap_or_default());
        }
    }
    (u64::from(checksum.finalize()) << 32 | u64::from(length)).to_be_bytes()
}
