//! Events as an application's own types: to and from the store's events, with their names, tags, versions and codec. Pure.

mod about;
mod codec;
mod evolve;
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
pub use variant::{deserialize_variant, serialize_variant};

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserializer, Serialize, Serializer};

use crate::error::{Error, Refused, Result};
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

/// For the derive: one tag `key:value`, refused where the value renders empty.
#[doc(hidden)]
pub fn field_tag(event_type: &str, field: &str, key: &str, value: &impl Display) -> Result<Tag> {
    let value = value.to_string();
    if value.is_empty() {
        return Err(empty_tag(event_type, field, key));
    }
    rendered_tag(event_type, field, format!("{key}:{value}"))
}

/// For the derive: one tag composed of several fields, none of which may render empty.
#[doc(hidden)]
pub fn composed_tag(event_type: &str, template: &str, fields: &[(&str, &dyn Display)], tag: String) -> Result<Tag> {
    match fields.iter().find(|(_, value)| value.to_string().is_empty()) {
        Some((field, _)) => Err(empty_tag(event_type, field, template)),
        None => rendered_tag(event_type, template, tag),
    }
}

fn rendered_tag(event_type: &str, field: &str, tag: String) -> Result<Tag> {
    Tag::new(&tag).map_err(|error| match error {
        Error::Refused(refused) => Refused::Malformed { what: "tag", why: format!("from {field} of {event_type}: {refused}") }.into(),
        other => other,
    })
}

fn empty_tag(event_type: &str, field: &str, key: &str) -> Error {
    let why = format!(
        "the field {field} of {event_type} renders empty, so that every such event would share the tag {key}: give it a value, or make it an Option"
    );
    Refused::Malformed { what: "tag", why }.into()
}
