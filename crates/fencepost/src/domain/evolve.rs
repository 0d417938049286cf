//! Evolution: names an event type had, versions its body had, and the functions that bring old bodies up.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer};

use super::DomainEvent;
use super::codec::Codec;
use crate::error::{Error, Refused, Result};
use crate::event::Recorded;

/// What an application's type says of one of its event types.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kind {
    /// The name that is written.
    pub name: &'static str,
    /// Other names that are read as this one: earlier ones, or those of a later program.
    pub aliases: &'static [&'static str],
    /// The keys of the tags that such an event may carry: `course` of `course:c1`.
    pub keys: &'static [&'static str],
    /// From version 1 to 2, 2 to 3, and so on: as many as there are earlier versions.
    pub upcasters: &'static [Upcaster],
}

impl Kind {
    /// An event type of this name, of version 1, with tags of these keys.
    pub const fn new(name: &'static str, keys: &'static [&'static str]) -> Self {
        Self { name, aliases: &[], keys, upcasters: &[] }
    }
    /// Read under these names as well.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
    /// Brought up by these from version 1 to 2, 2 to 3, and so on: its version is one more than there are.
    pub const fn upcasters(mut self, upcasters: &'static [Upcaster]) -> Self {
        self.upcasters = upcasters;
        self
    }
    /// The version that is written.
    pub fn version(&self) -> u32 {
        u32::try_from(self.upcasters.len()).unwrap_or(u32::MAX).saturating_add(1)
    }
    /// All names that are read as this kind.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// Brings a body up by one version: from bytes of the codec to bytes of the codec.
pub struct Upcaster(fn(&[u8]) -> Result<Vec<u8>, String>);

impl Upcaster {
    /// For the derive: what [`upcast`] wraps.
    #[doc(hidden)]
    pub const fn new(step: fn(&[u8]) -> Result<Vec<u8>, String>) -> Self {
        Self(step)
    }
}

impl fmt::Debug for Upcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upcaster")
    }
}

/// For the derive: one step by a plain function, over any types that the codec writes; `serde_json::Value` is one.
// By the event's own codec, not by JSON values in between: in MessagePack a UUID is bytes, which no JSON value holds.
#[doc(hidden)]
pub fn upcast<C: Codec, Old: DeserializeOwned, New: Serialize>(step: impl FnOnce(Old) -> New, body: &[u8]) -> Result<Vec<u8>, String> {
    C::encode(&step(C::decode(PhantomData::<Old>, body)?))
}

/// What becomes of an event whose type the application does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// An error: to decide without it could be wrong.
    #[default]
    Refuse,
    /// As if it were not there.
    Skip,
}

/// The event as a value of `E`; none where its type is unknown and unknown ones are skipped.
pub(crate) fn decode<E: DomainEvent>(event: &Recorded, on_unknown: Unknown) -> Result<Option<E>> {
    let name = event.event_type.as_str();
    let Some(index) = E::KINDS.iter().position(|kind| kind.names().any(|known| known == name)) else {
        return match on_unknown {
            Unknown::Skip => Ok(None),
            Unknown::Refuse => Err(unknown::<E>(event)),
        };
    };
    let kind = &E::KINDS[index];
    let version = event.meta.schema.unwrap_or(1).max(1);
    if version > kind.version() {
        let why =
            format!("its version is {version}, and this program knows up to {}: deploy the program that reads it first", kind.version());
        return Err(undecodable(event, &why));
    }
    let mut body = Cow::Borrowed(event.data.as_ref());
    for (from, upcaster) in (1u32..).zip(kind.upcasters).skip(version as usize - 1) {
        let up = (upcaster.0)(&body)
            .map_err(|why| undecodable(event, &format!("from version {from} to {}: {} {why}", from + 1, E::Codec::NAME)));
        body = Cow::Owned(up?);
    }
    let decoded = E::Codec::decode(Seed::<E>(index, PhantomData), &body);
    decoded.map(Some).map_err(|why| {
        let since = if version == kind.version() { String::new() } else { format!("brought up from version {version}: ") };
        undecodable(event, &format!("{since}{} {why}", E::Codec::NAME))
    })
}

struct Seed<E>(usize, PhantomData<E>);

impl<'de, E: DomainEvent> DeserializeSeed<'de> for Seed<E> {
    type Value = E;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<E, D::Error> {
        E::deserialize_body(self.0, deserializer)
    }
}

fn undecodable(event: &Recorded, why: &str) -> Error {
    let why = format!("event {} of type {} at {} does not decode ({why})", event.id, event.event_type, event.position);
    Refused::Malformed { what: "event body", why }.into()
}

pub(super) fn unknown<E: DomainEvent>(event: &Recorded) -> Error {
    let known: Vec<_> = E::KINDS.iter().map(|kind| kind.name).collect();
    let what = format!("event {} of type {} at {}", event.id, event.event_type, event.position);
    Refused::Unsupported { what, remedy: format!("known are {}: add its type, or say that unknown ones are skipped", known.join(", ")) }
        .into()
}
