//! Events as an application's own types: to and from the store's events, with their names, tags, versions and codec. Pure.

mod about;
mod codec;
mod evolve;
mod tag;
mod variant;

pub use about::{About, about};
#[cfg(feature = "msgpack")]
pub use codec::MessagePack;
pub use codec::{Codec, Json};
pub(crate) use evolve::decode;
#[doc(hidden)]
pub use evolve::upcast;
pub use evolve::{Kind, Unknown, Upcaster};
#[doc(hidden)]
pub use tag::{Piece, TagValue, composed_tag, field_tag};
#[doc(hidden)]
pub use variant::{deserialize_variant, serialize_variant};

use serde::de::DeserializeOwned;
use serde::{Deserializer, Serialize, Serializer};

use crate::error::{Refused, Result};
use crate::event::{Event, Metadata, Recorded, Tag};

/// A type of an application whose values are events. Derived: `#[derive(Event, Serialize, Deserialize)]` on an enum or a struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    note = "derive it: `#[derive(fencepost::Event, serde::Serialize, serde::Deserialize)]`"
)]
pub trait DomainEvent: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// How bodies are written.
    type Codec: Codec;
    /// The event types it has, in the order of its variants.
    const KINDS: &'static [Kind];

    /// Which of its kinds this value is, by index.
    fn kind(&self) -> usize;
    /// Its tags, rendered from its fields.
    fn tags(&self) -> Result<Vec<Tag>>;
    /// The body alone, without the name of the variant: the store keeps the type beside it.
    fn serialize_body<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    /// From the body of the kind at this index.
    fn deserialize_body<'de, D: Deserializer<'de>>(kind: usize, deserializer: D) -> Result<Self, D::Error>;
}

/// What one append takes: events of an application's types, of the store's own, lists and tuples of them.
pub trait IntoEvents {
    /// As the store takes them.
    fn into_events(self) -> Result<Vec<Event>>;
}

/// One of the events that [`IntoEvents`] lists.
pub trait IntoEvent {
    /// As the store takes it.
    fn into_event(self) -> Result<Event>;
}

impl IntoEvent for Event {
    fn into_event(self) -> Result<Event> {
        Ok(self)
    }
}

impl<E: DomainEvent> IntoEvent for E {
    fn into_event(self) -> Result<Event> {
        let kind = &E::KINDS[self.kind()];
        let body = E::Codec::encode(&Body(&self)).map_err(|why| Refused::Malformed {
            what: "event body",
            why: format!("an event of type {} does not serialise to {}: {why}", kind.name, E::Codec::NAME),
        })?;
        let event = Event::new(kind.name, body)?;
        let schema = (kind.version() > 1).then(|| kind.version());
        let event = event.meta(Metadata { schema, ..Metadata::default() });
        Ok(self.tags()?.into_iter().fold(event, Event::with_tag))
    }
}

/// Serialises as the body.
struct Body<'a, E>(&'a E);

impl<E: DomainEvent> Serialize for Body<'_, E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_body(serializer)
    }
}

impl<E: IntoEvent> IntoEvents for Vec<E> {
    fn into_events(self) -> Result<Vec<Event>> {
        self.into_iter().map(IntoEvent::into_event).collect()
    }
}
impl<E: IntoEvent, const N: usize> IntoEvents for [E; N] {
    fn into_events(self) -> Result<Vec<Event>> {
        self.into_iter().map(IntoEvent::into_event).collect()
    }
}
impl<E: IntoEvent> IntoEvents for Option<E> {
    fn into_events(self) -> Result<Vec<Event>> {
        self.into_iter().map(IntoEvent::into_event).collect()
    }
}
/// Nothing.
impl IntoEvents for () {
    fn into_events(self) -> Result<Vec<Event>> {
        Ok(Vec::new())
    }
}

macro_rules! events_of_tuples {
    ($($name:ident)+) => {
        impl<$($name: IntoEvents),+> IntoEvents for ($($name,)+) {
            fn into_events(self) -> Result<Vec<Event>> {
                #[allow(non_snake_case, reason = "the parameters' names serve as the values'")]
                let ($($name,)+) = self;
                let mut events = Vec::new();
                $(events.extend($name.into_events()?);)+
                Ok(events)
            }
        }
    };
}
events_of_tuples!(A);
events_of_tuples!(A B);
events_of_tuples!(A B C);
events_of_tuples!(A B C D);

impl Recorded {
    /// As an event of the application's type: upcast from its version, refused where its type is none of `E`'s.
    pub fn decode<E: DomainEvent>(&self) -> Result<E> {
        match decode(self, Unknown::Refuse)? {
            Some(event) => Ok(event),
            None => Err(evolve::unknown::<E>(self)),
        }
    }

    /// The same, and none where its type is none of `E`'s.
    pub fn decode_known<E: DomainEvent>(&self) -> Result<Option<E>> {
        decode(self, Unknown::Skip)
    }
}
