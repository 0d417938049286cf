//! Tags rendered from the fields of an event, and refused where a field renders to nothing. Only for the derive.

use std::fmt::Display;

use crate::error::{Error, Refused, Result};
use crate::event::Tag;

/// What can stand in a tag: whatever has a `Display`. A trait of our own, so that the compiler's message speaks of tags.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a tag",
    label = "no `Display`, which renders the value of a tag",
    note = "implement `std::fmt::Display` for `{Self}`, or tag another field",
    note = "a list or an option under a name of its own gives one tag per element: `#[tag(\"key\", each)]`"
)]
pub trait TagValue: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> TagValue for T {}

/// A part of a composed tag.
#[expect(missing_debug_implementations, reason = "only the derive makes one")]
pub enum Piece<'a> {
    /// As it stands.
    Text(&'static str),
    /// A field by its name.
    Field(&'static str, &'a dyn TagValue),
}

/// One tag `key:value`, refused where the value renders empty.
pub fn field_tag(event_type: &str, field: &str, key: &str, value: &(impl TagValue + ?Sized)) -> Result<Tag> {
    let value = value.to_string();
    if value.is_empty() {
        return Err(empty_tag(event_type, field, key));
    }
    rendered_tag(event_type, field, &format!("{key}:{value}"))
}

/// One tag composed of several fields, none of which may render empty.
pub fn composed_tag(event_type: &str, template: &str, pieces: &[Piece<'_>]) -> Result<Tag> {
    let mut tag = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => tag.push_str(text),
            Piece::Field(field, value) => {
                let value = value.to_string();
                if value.is_empty() {
                    return Err(empty_tag(event_type, field, template));
                }
                tag.push_str(&value);
            }
        }
    }
    rendered_tag(event_type, template, &tag)
}

fn rendered_tag(event_type: &str, source: &str, tag: &str) -> Result<Tag> {
    Tag::new(tag).map_err(|error| match error {
        Error::Refused(refused) => Refused::Malformed { what: "tag", why: format!("from {source} of {event_type}: {refused}") }.into(),
        other => other,
    })
}

fn empty_tag(event_type: &str, field: &str, key: &str) -> Error {
    let why = format!(
        "the field {field} of {event_type} renders empty, so that every such event would share the tag {key}: give it a value, or make it an Option"
    );
    Refused::Malformed { what: "tag", why }.into()
}
