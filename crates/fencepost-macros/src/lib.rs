//! The derive of fencepost. Use it by fencepost's feature `derive`, on by default; a crate of its own because a proc macro must be one.

#![forbid(unsafe_code)]

mod attrs;
mod check;
mod expand;
mod model;
mod template;

use proc_macro::TokenStream;

/// Makes the variants of an enum, or a struct, events: with a type's name, tags from fields, and versions.
///
/// ```
/// use fencepost::{Event, IntoEvent};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// enum Enrolment {
///     CourseDefined { #[tag("course")] course: String, capacity: u32 },
///     // One tag per element of a list, and one or none of an option.
///     Enrolled { #[tag("course")] course: String, #[tag("student")] students: Vec<String>, #[tag("tutor")] tutor: Option<String> },
///     // A tag of several fields stands on the variant.
///     #[tag("seat:{course}-{row}")]
///     SeatTaken { #[tag("course")] course: String, row: u32 },
///     // No query by tags finds it: that has to be said.
///     #[event(untagged)]
///     YearClosed { year: u32 },
/// }
///
/// # fn main() -> fencepost::Result<()> {
/// let event = Enrolment::SeatTaken { course: "c1".into(), row: 4 }.into_event()?;
/// assert_eq!(event.event_type().as_str(), "SeatTaken");
/// assert_eq!(event.data(), r#"{"course":"c1","row":4}"#);
/// assert_eq!(event.tags().iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["course:c1", "seat:c1-4"]);
/// # Ok(()) }
/// ```
///
/// The body is the fields alone, as serde writes them: `{}` without fields, a list for a tuple, the inner value for a tuple of one.
///
/// # Attributes
///
/// | attribute | on | means |
/// | --- | --- | --- |
/// | `#[tag("key")]` | field | the tag `key:value`, by the value's `Display`; may be repeated. `Option`, `Vec`, `VecDeque`, `BTreeSet`, `HashSet` and arrays give one tag per element |
/// | `#[tag("key", each)]` | field | one tag per element of any other type whose reference can be iterated |
/// | `#[tag("key:{a}-{b}")]` | variant, struct | one tag of several fields, by name or number (`{0}`); `{{` is a brace |
/// | `#[event(untagged)]` | variant, struct | it carries no tag |
/// | `#[event(untagged)]` | enum | variants may go without: tags come from the stream |
/// | `#[event(name = "…")]` | variant, struct | the event type; without it, the identifier |
/// | `#[event(alias = "…")]` | variant, struct | another name it is read under, as stored (no prefix is added); may be repeated |
/// | `#[event(version = n, upcast(1 = f, 2 = g))]` | variant, struct | the version of the body, and a function from each earlier one to the next |
/// | `#[event(prefix = "…")]` | enum, struct | stands before names, given or not |
/// | `#[event(codec = Type)]` | enum, struct | how bodies are written; without it, `fencepost::Json` |
/// | `#[event(crate = path)]` | enum, struct | where fencepost is, if not at `::fencepost` |
///
/// A tag that renders empty is refused when the event is made, naming the field: every such event would share it.
///
/// # Evolution
///
/// A field that serde can default (`#[serde(default)]`, `Option`) needs no version. Any other change of a body is a new version, and a plain
/// function from the old body to the new, over any types that serde reads and writes. A rename is an alias. The version is stored beside the
/// type's name, so that a condition by type sees every version.
///
/// ```
/// use fencepost::Event;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Event, Serialize, Deserialize)]
/// enum Enrolment {
///     #[event(alias = "Enrolled", version = 2, upcast(1 = split_name))]
///     StudentEnrolled { #[tag("course")] course: String, first: String, last: String },
/// }
///
/// #[derive(Deserialize)]
/// struct V1 { course: String, name: String }
/// #[derive(Serialize)]
/// struct V2 { course: String, first: String, last: String }
///
/// fn split_name(old: V1) -> V2 {
///     let (first, last) = old.name.split_once(' ').unwrap_or((&old.name, ""));
///     V2 { course: old.course, first: first.into(), last: last.into() }
/// }
/// ```
///
/// Programs that write a new version go out after those that can read it.
///
/// # What serde may do
///
/// Variants and fields can be renamed, defaulted, flattened and skipped if empty. On an enum `tag`, `content`, `untagged`, `from` and `into`
/// are refused, and on a variant `skip`, `other` and `untagged`: the store keeps the type beside the body, and variants are told apart by it.
/// Type parameters must be `Serialize + DeserializeOwned + Send + Sync + 'static`; lifetimes are refused, since an event owns what it says.
#[proc_macro_derive(Event, attributes(event, tag))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let expanded = syn::parse(input).and_then(model::Input::check).map(|input| expand::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
