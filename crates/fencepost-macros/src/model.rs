//! What a derive was asked for, checked: the event types with their names, fields, tags and versions. Pure; `expand` writes it out.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, GenericArgument, Generics, Ident, LitStr, Member, Path, PathArguments, Type};

use crate::attrs::{Errors, EventAttrs, Place, TagAttr, event_attrs, tag_attrs};
use crate::check::{Names, refuse_lifetimes, refuse_names_twice, refuse_serde_of_enums, refuse_serde_of_variants, upcasters};
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
    pub(crate) key: String,
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
                    kinds.push(kind(&variant.ident, &variant.attrs, &said, &whole, &variant.fields, &mut errors));
                }
            }
            Data::Struct(data) => {
                if matches!(data.fields, Fields::Unit) {
                    shape = Shape::UnitStruct;
                }
                kinds.push(kind(&input.ident, &input.attrs, &whole, &whole, &data.fields, &mut errors));
            }
            Data::Union(_) => {
                let message = format!("`{}` is a union, which serde cannot write: make it an enum or a struct", input.ident);
                return Err(syn::Error::new(input.ident.span(), message));
            }
        }
        let (kinds, names): (_, Vec<_>) = kinds.into_iter().unzip();
        refuse_names_twice(&names, &mut errors);
        let krate = whole.krate.unwrap_or_else(|| syn::parse_quote!(::fencepost));
        errors.or(Input { ident: input.ident, generics: input.generics, krate, codec: whole.codec, shape, kinds })
    }
}

/// One event type: what its attributes say, beside what those of the whole say. A struct is the whole.
fn kind(ident: &Ident, attrs: &[Attribute], said: &EventAttrs, whole: &EventAttrs, fields: &Fields, errors: &mut Errors) -> (Kind, Names) {
    let upcasters = upcasters(ident, said, errors);
    let own = said.name.as_ref().map_or_else(|| ident.unraw().to_string(), LitStr::value);
    let name_span = said.name.as_ref().map_or_else(|| ident.span(), LitStr::span);
    if own.is_empty() {
        errors.at(name_span, format_args!("the name of `{ident}` is empty: leave `name` out, or give it one"));
    }
    let name = whole.prefix.as_ref().map(LitStr::value).unwrap_or_default() + &own;
    let mut names = vec![(name.clone(), name_span)];
    for alias in &said.aliases {
        if alias.value().is_empty() {
            errors.at(alias.span(), format_args!("an alias of `{ident}` is empty: remove it, or give the name that the event had"));
        }
        names.push((alias.value(), alias.span()));
    }
    for (name, span) in names.iter().filter(|(name, _)| name.len() > NAME_MAX_BYTES) {
        errors.at(*span, format_args!("an event type of {} bytes: at most {NAME_MAX_BYTES} are accepted", name.len()));
    }

    let is_tagged = attrs.iter().chain(fields.iter().flat_map(|field| &field.attrs)).any(|attr| attr.path().is_ident("tag"));
    let fields: Vec<_> = fields.iter().enumerate().map(|(index, field)| checked_field(ident, index, field, errors)).collect();
    let composed: Vec<_> = tag_attrs(attrs, errors).iter().filter_map(|tag| composed(ident, tag, &fields, errors)).collect();
    let mut keys: Vec<String> = Vec::new();
    for key in fields.iter().flat_map(|field| &field.tags).map(|tag| &tag.key).chain(composed.iter().map(|tag| &tag.key)) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    match said.untagged {
        None if !is_tagged && whole.untagged.is_none() => errors.at(
            ident.span(),
            format_args!(
                "`{ident}` has no tag, so that no query by tags would find it: put `#[tag(\"key\")]` on a field, or say `#[event(untagged)]`"
            ),
        ),
        Some(span) if is_tagged => errors.at(span, format_args!("`{ident}` is said to be untagged and has tags: remove one or the other")),
        _ => {}
    }
    let aliases = said.aliases.iter().map(LitStr::value).collect();
    (Kind { ident: ident.clone(), name, aliases, keys, upcasters, fields, composed }, Names { ident: ident.clone(), names })
}

fn checked_field(owner: &Ident, index: usize, field: &syn::Field, errors: &mut Errors) -> Field {
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
    let mut tags = Vec::new();
    for TagAttr { text, each } in tag_attrs(&field.attrs, errors) {
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
    Field { member, name, span: field.ty.span(), depth, tags }
}

fn composed(owner: &Ident, tag: &TagAttr, fields: &[Field], errors: &mut Errors) -> Option<Composed> {
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
    Some(Composed { key: template.key, template: text, span: tag.text.span(), pieces })
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
