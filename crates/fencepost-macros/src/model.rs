//! What a derive was asked for, checked: the event types with their names, fields, tags and versions. Pure; `expand` writes it out.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Fields, GenericArgument, GenericParam, Generics, Ident, LitStr, Member, Path, PathArguments, Type,
};

use crate::attrs::{Errors, EventAttrs, Place, TagAttr, event_attrs, serde_words, tag_attrs};
use crate::template::{Part, Template};

/// `EventType::MAX_BYTES`.
const NAME_MAX_BYTES: usize = 256;
/// `Tag::MAX_BYTES` less the `:` and one byte of a value.
const KEY_MAX_BYTES: usize = 1024 - 2;

/// The whole type.
pub(crate) struct Input {
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    /// How the generated code names the library.
    pub(crate) krate: Path,
    pub(crate) codec: Option<Type>,
    pub(crate) shape: Shape,
    pub(crate) kinds: Vec<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Enum,
    Struct,
    /// A struct without fields, whose body is `{}` as a unit variant's.
    UnitStruct,
}

/// One event type: a variant, or the struct.
pub(crate) struct Kind {
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) keys: Vec<String>,
    /// From version 1 to 2, 2 to 3, and so on.
    pub(crate) upcasters: Vec<Path>,
    pub(crate) fields: Vec<Field>,
    pub(crate) composed: Vec<Composed>,
}

pub(crate) struct Field {
    pub(crate) member: Member,
    /// The member's name, or its number.
    pub(crate) name: String,
    /// Where its type stands, for what the compiler says of it.
    pub(crate) span: Span,
    /// How many lists and options lie around the value: one loop each.
    pub(crate) depth: usize,
    pub(crate) tags: Vec<FieldTag>,
}

pub(crate) struct FieldTag {
    pub(crate) key: String,
    /// As the field's, or one more by `each`.
    pub(crate) depth: usize,
}

pub(crate) struct Composed {
    pub(crate) template: String,
    pub(crate) span: Span,
    pub(crate) pieces: Vec<Piece>,
}

pub(crate) enum Piece {
    Text(String),
    /// A field by its place among the kind's.
    Field(usize),
}

impl Input {
    pub(crate) fn check(input: DeriveInput) -> syn::Result<Input> {
        let mut errors = Errors::default();
        let place = if matches!(input.data, Data::Enum(_)) { Place::Enum } else { Place::Struct };
        let whole = event_attrs(&input.attrs, place, &mut errors);
        refuse_lifetimes(&input.generics, &mut errors);
        let prefix = whole.prefix.as_ref().map(LitStr::value).unwrap_or_default();
        let (mut shape, mut kinds) = (Shape::Struct, Vec::new());
        match &input.data {
            Data::Enum(data) => {
                shape = Shape::Enum;
                refuse_serde_of_enums(&input.attrs, &mut errors);
                for tag in tag_attrs(&input.attrs, &mut errors) {
                    errors.at(tag.text.span(), "a tag belongs on a field or on a variant, not on the enum");
                }
                if data.variants.is_empty() {
                    errors.at(input.ident.span(), format_args!("`{}` has no variants, and so no events: add one", input.ident));
                }
                for variant in &data.variants {
                    refuse_serde_of_variants(&variant.ident, &variant.attrs, &mut errors);
                    let said = event_attrs(&variant.attrs, Place::Variant, &mut errors);
                    let may_lack_tags = whole.untagged.is_some();
                    kinds.push(kind(&variant.ident, &variant.attrs, said, &variant.fields, &prefix, may_lack_tags, &mut errors));
                }
            }
            Data::Struct(data) => {
                if matches!(data.fields, Fields::Unit) {
                    shape = Shape::UnitStruct;
                }
                let said =
                    EventAttrs { prefix: None, codec: None, krate: None, ..event_attrs(&input.attrs, place, &mut Errors::default()) };
                kinds.push(kind(&input.ident, &input.attrs, said, &data.fields, &prefix, false, &mut errors));
            }
            Data::Union(_) => {
                let message = format!("`{}` is a union, which serde cannot write: make it an enum or a struct", input.ident);
                return Err(syn::Error::new(input.ident.span(), message));
            }
        }
        refuse_names_twice(&kinds, &mut errors);
        let kinds = kinds.into_iter().map(|(kind, _)| kind).collect();
        let krate = whole.krate.unwrap_or_else(|| syn::parse_quote!(::fencepost));
        errors.or(Input { ident: input.ident, generics: input.generics, krate, codec: whole.codec, shape, kinds })
    }
}

/// Where each name and alias was written.
type Spans = Vec<(String, Span)>;

fn kind(
    ident: &Ident,
    attrs: &[Attribute],
    said: EventAttrs,
    fields: &Fields,
    prefix: &str,
    may_lack_tags: bool,
    errors: &mut Errors,
) -> (Kind, Spans) {
    let upcasters = upcasters(ident, &said, errors);
    let own = said.name.as_ref().map_or_else(|| ident.unraw().to_string(), LitStr::value);
    let name_span = said.name.as_ref().map_or_else(|| ident.span(), LitStr::span);
    if own.is_empty() {
        errors.at(name_span, format_args!("the name of `{ident}` is empty: leave `name` out, or give it one"));
    }
    let name = format!("{prefix}{own}");
    let mut spans = vec![(name.clone(), name_span)];
    for alias in &said.aliases {
        if alias.value().is_empty() {
            errors.at(alias.span(), format_args!("an alias of `{ident}` is empty: remove it, or give the name that the event had"));
        }
        spans.push((alias.value(), alias.span()));
    }
    for (name, span) in spans.iter().filter(|(name, _)| name.len() > NAME_MAX_BYTES) {
        errors.at(*span, format_args!("an event type of {} bytes: at most {NAME_MAX_BYTES} are accepted", name.len()));
    }

    let fields: Vec<_> = fields.iter().enumerate().map(|(index, field)| checked_field(ident, index, field, errors)).collect();
    let composed_attrs = tag_attrs(attrs, errors);
    let is_tagged = !composed_attrs.is_empty() || fields.iter().any(|(_, tags)| *tags > 0);
    let fields: Vec<_> = fields.into_iter().map(|(field, _)| field).collect();
    let mut keys = Vec::new();
    let composed: Vec<_> = composed_attrs.iter().filter_map(|tag| composed(ident, tag, &fields, &mut keys, errors)).collect();
    let mut all_keys: Vec<String> = Vec::new();
    for key in fields.iter().flat_map(|field| &field.tags).map(|tag| &tag.key).chain(&keys) {
        if !all_keys.contains(key) {
            all_keys.push(key.clone());
        }
    }
    match said.untagged {
        None if !is_tagged && !may_lack_tags => errors.at(
            ident.span(),
            format_args!(
                "`{ident}` has no tag, so that no query by tags would find it: put `#[tag(\"key\")]` on a field, or say `#[event(untagged)]`"
            ),
        ),
        Some(span) if is_tagged => errors.at(span, format_args!("`{ident}` is said to be untagged and has tags: remove one or the other")),
        _ => {}
    }
    let aliases = said.aliases.iter().map(LitStr::value).collect();
    (Kind { ident: ident.clone(), name, aliases, keys: all_keys, upcasters, fields, composed }, spans)
}

/// The field, and how many tags are written on it, bad ones too.
fn checked_field(owner: &Ident, index: usize, field: &syn::Field, errors: &mut Errors) -> (Field, usize) {
    let (member, name) = match &field.ident {
        Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
        None => (Member::Unnamed(index.into()), index.to_string()),
    };
    for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("event")) {
        errors.at(
            attr.span(),
            format_args!("`#[event(…)]` does not belong on the field `{name}` of `{owner}`: a field takes `#[tag(\"key\")]`"),
        );
    }
    let depth = depth(&field.ty);
    let attrs = tag_attrs(&field.attrs, errors);
    let mut tags = Vec::new();
    for TagAttr { text, each } in &attrs {
        let key = text.value();
        let why = if key.is_empty() {
            Some("is empty: give it a name, as in `#[tag(\"course\")]`".to_owned())
        } else if key.len() > KEY_MAX_BYTES {
            Some(format!("has {} bytes; at most {KEY_MAX_BYTES} leave room for a value", key.len()))
        } else if key.contains(['{', '}']) {
            Some("names fields: a composite tag stands on the variant or the struct, not on a field".to_owned())
        } else if key.contains(':') {
            Some("holds a `:`, where the value begins: use another character".to_owned())
        } else {
            None
        };
        match why {
            Some(why) => errors.at(text.span(), format_args!("the key of the tag on the field `{name}` of `{owner}` {why}")),
            None => tags.push(FieldTag { key, depth: depth.max(usize::from(each.is_some())) }),
        }
    }
    (Field { member, name, span: field.ty.span(), depth, tags }, attrs.len())
}

fn composed(owner: &Ident, tag: &TagAttr, fields: &[Field], keys: &mut Vec<String>, errors: &mut Errors) -> Option<Composed> {
    let text = tag.text.value();
    if let Some(each) = tag.each {
        errors.at(each, "`each` belongs to the tag of a field: a composite tag takes one value of each of its fields");
    }
    let template = match Template::parse(&text) {
        Ok(template) => template,
        Err(why) => {
            errors.at(tag.text.span(), format_args!("on `{owner}`: {why}"));
            return None;
        }
    };
    if template.key.is_empty() {
        errors.at(tag.text.span(), format_args!("the key of the tag on `{owner}` is empty: write \"key{text}\""));
    } else if template.key.len() > KEY_MAX_BYTES {
        let bytes = template.key.len();
        errors.at(
            tag.text.span(),
            format_args!("the key of the tag on `{owner}` has {bytes} bytes; at most {KEY_MAX_BYTES} leave room for a value"),
        );
    }
    for name in template.fields() {
        match fields.iter().find(|field| field.name == name) {
            None => {
                let known: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
                let known = if known.is_empty() { "it has none".to_owned() } else { format!("its fields are {}", known.join(", ")) };
                errors.at(tag.text.span(), format_args!("the tag \"{text}\" names the field `{name}`, which `{owner}` does not have: {known}"));
            }
            Some(field) if field.depth > 0 => errors.at(
                tag.text.span(),
                format_args!(
                    "the tag \"{text}\" names the field `{name}` of `{owner}`, an option or a list: a composite tag takes fields of one value each"
                ),
            ),
            Some(_) => {}
        }
    }
    let pieces = template.parts.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(Piece::Text(text)),
        Part::Field(name) => fields.iter().position(|field| field.name == name).map(Piece::Field),
    });
    let pieces = pieces.collect();
    keys.push(template.key);
    Some(Composed { template: text, span: tag.text.span(), pieces })
}

/// How many options and lists lie around the value, as far as the last word of a type tells.
fn depth(ty: &Type) -> usize {
    match ty {
        Type::Array(array) => 1 + depth(&array.elem),
        Type::Slice(slice) => 1 + depth(&slice.elem),
        Type::Group(group) => depth(&group.elem),
        Type::Paren(paren) => depth(&paren.elem),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return 0 };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return 0 };
            if !["Option", "Vec", "VecDeque", "BTreeSet", "HashSet"].iter().any(|known| last.ident == known) {
                return 0;
            }
            let element = arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(element) => Some(element),
                _ => None,
            });
            1 + element.map_or(0, depth)
        }
        _ => 0,
    }
}

/// The functions in order, without a hole.
fn upcasters(ident: &Ident, said: &EventAttrs, errors: &mut Errors) -> Vec<Path> {
    let version = said.version.as_ref().map(|literal| (literal.span(), literal.base10_parse::<u32>()));
    let (span, version) = match (version, &said.upcast) {
        (None, None) => return Vec::new(),
        (None, Some((span, steps))) => {
            let now = steps.iter().filter_map(|step| step.from.base10_parse::<u32>().ok()).max().unwrap_or(0).saturating_add(1);
            errors.at(*span, format_args!("`{ident}` has functions for old versions and does not say its own: add `version = {now}`"));
            return Vec::new();
        }
        (Some((span, Ok(version @ 1..))), _) => (span, version),
        (Some((span, _)), _) => {
            errors.at(span, format_args!("the version of `{ident}` is not a number from 1: the first is 1"));
            return Vec::new();
        }
    };
    let mut functions = BTreeMap::new();
    for step in said.upcast.iter().flat_map(|(_, steps)| steps) {
        match step.from.base10_parse::<u32>() {
            Ok(0) | Err(_) => errors.at(step.from.span(), format_args!("versions of `{ident}` are numbers from 1")),
            Ok(from) if from >= version => errors.at(
                step.from.span(),
                format_args!(
                    "`{ident}` has version {version}, and a function from version {from} on: raise `version`, or remove the function"
                ),
            ),
            Ok(from) => {
                if functions.insert(from, step.function.clone()).is_some() {
                    errors.at(step.from.span(), format_args!("`{ident}` has two functions from version {from}: keep one"));
                }
            }
        }
    }
    let missing: Vec<_> = (1..version).filter(|from| !functions.contains_key(from)).take(4).collect();
    if !missing.is_empty() {
        let span = said.upcast.as_ref().map_or(span, |(span, _)| *span);
        let steps: Vec<_> = missing.iter().map(|from| format!("from version {from} to {}", from + 1)).collect();
        let remedy: Vec<_> = missing.iter().map(|from| format!("{from} = function")).collect();
        errors.at(
            span,
            format_args!(
                "`{ident}` has version {version}, and no function {}: add `{}` to `upcast(…)`",
                steps.join(", "),
                remedy.join(", ")
            ),
        );
    }
    functions.into_values().collect()
}

fn refuse_names_twice(kinds: &[(Kind, Spans)], errors: &mut Errors) {
    let mut seen = BTreeMap::new();
    for (kind, spans) in kinds {
        for (name, span) in spans {
            if let Some(first) = seen.insert(name, &kind.ident) {
                let whose = if *first == kind.ident { "twice by".to_owned() } else { format!("by `{first}` and") };
                errors.at(*span, format_args!("the event type \"{name}\" is used {whose} `{}`: give each its own", kind.ident));
            }
        }
    }
}

fn refuse_lifetimes(generics: &Generics, errors: &mut Errors) {
    for parameter in &generics.params {
        if let GenericParam::Lifetime(lifetime) = parameter {
            let name = &lifetime.lifetime;
            errors.at(
                name.span(),
                format_args!("an event owns what it says, and cannot borrow for `{name}`: use `String` for `&{name} str`"),
            );
        }
    }
}

fn refuse_serde_of_enums(attrs: &[Attribute], errors: &mut Errors) {
    for (word, span) in serde_words(attrs) {
        let why = match word.as_str() {
            "tag" | "content" | "untagged" => "the store keeps the type beside the body, and the body is the fields of the variant alone",
            "from" | "try_from" | "into" => "variants are read and written as they are, one event type each",
            _ => continue,
        };
        errors.at(span, format_args!("`#[serde({word})]` does not go with events: {why}; remove it"));
    }
}

fn refuse_serde_of_variants(ident: &Ident, attrs: &[Attribute], errors: &mut Errors) {
    for (word, span) in serde_words(attrs) {
        let (why, remedy) = match word.as_str() {
            "skip" | "skip_serializing" | "skip_deserializing" => {
                ("serde counts variants without those it skips, and events are told apart by that count", "move it out of the enum")
            }
            "other" => ("it would take in what it cannot write", "say at the read that unknown types are skipped"),
            "untagged" => ("events are told apart by their type, not by trying", "remove it"),
            _ => continue,
        };
        errors.at(span, format_args!("`#[serde({word})]` on `{ident}` does not go with events: {why}; {remedy}"));
    }
}
