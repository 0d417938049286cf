//! Attributes as written: `#[event(…)]`, `#[tag(…)]`, and the words of `#[serde(…)]`. Whether they make sense together is for `model`.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Ident, LitInt, LitStr, Path, Token, Type};

/// All that is wrong, so that one compilation tells all of it.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn at(&mut self, span: Span, message: impl Display) {
        self.add(syn::Error::new(span, message));
    }

    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn or<T>(self, value: T) -> syn::Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// Where an attribute stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Enum,
    Struct,
    Variant,
}

impl Place {
    pub(crate) fn article(self) -> &'static str {
        match self {
            Place::Enum => "an enum",
            Place::Struct => "a struct",
            Place::Variant => "a variant",
        }
    }
}

const ONE_TYPE: &[Place] = &[Place::Struct, Place::Variant];
const WHOLE: &[Place] = &[Place::Enum, Place::Struct];
/// What `#[event(…)]` takes, and where.
const KEYS: &[(&str, &[Place])] = &[
    ("name", ONE_TYPE),
    ("alias", ONE_TYPE),
    ("version", ONE_TYPE),
    ("upcast", ONE_TYPE),
    ("untagged", &[Place::Enum, Place::Struct, Place::Variant]),
    ("prefix", WHOLE),
    ("codec", WHOLE),
    ("crate", WHOLE),
];

/// What `#[event(…)]` says.
#[derive(Default)]
pub(crate) struct EventAttrs {
    pub(crate) name: Option<LitStr>,
    pub(crate) aliases: Vec<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) upcast: Option<(Span, Vec<Step>)>,
    pub(crate) untagged: Option<Span>,
    pub(crate) prefix: Option<LitStr>,
    pub(crate) codec: Option<Type>,
    pub(crate) krate: Option<Path>,
}

/// `1 = path`: a function from this version to the next.
pub(crate) struct Step {
    pub(crate) from: LitInt,
    pub(crate) function: Path,
}

impl Parse for Step {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let from = input.parse().map_err(|error| {
            let message = "a step is the version it starts from and a function: `upcast(1 = v1_to_v2, 2 = v2_to_v3)`";
            syn::Error::new(error.span(), message)
        })?;
        input.parse::<Token![=]>()?;
        Ok(Step { from, function: input.parse()? })
    }
}

pub(crate) fn event_attrs(attrs: &[Attribute], place: Place, errors: &mut Errors) -> EventAttrs {
    let mut said = EventAttrs::default();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("event")) {
        let parsed = attr.parse_nested_meta(|meta| said.take(&meta, place, errors));
        parsed.unwrap_or_else(|error| errors.add(error));
    }
    said
}

impl EventAttrs {
    fn take(&mut self, meta: &ParseNestedMeta<'_>, place: Place, errors: &mut Errors) -> syn::Result<()> {
        let key = meta.path.get_ident().map(Ident::unraw).map(|ident| ident.to_string()).unwrap_or_default();
        let span = meta.path.span();
        let known = KEYS.iter().find(|(known, _)| *known == key);
        if !known.is_some_and(|(_, places)| places.contains(&place)) {
            let here: Vec<_> = KEYS.iter().filter(|(_, places)| places.contains(&place)).map(|(key, _)| format!("`{key}`")).collect();
            let written = path_text(&meta.path);
            let why = match known {
                Some((_, places)) => {
                    let places: Vec<_> = places.iter().map(|place| place.article()).collect();
                    format!("`{key}` belongs on {}", places.join(" or "))
                }
                None => format!("unknown key `{written}` in `#[event(…)]`"),
            };
            errors.at(span, format_args!("{why}; {} takes {}", place.article(), here.join(", ")));
            return skip_value(meta.input);
        }
        let again = match key.as_str() {
            "name" => self.name.replace(meta.value()?.parse()?).is_some(),
            "alias" => {
                self.aliases.push(meta.value()?.parse()?);
                false
            }
            "version" => self.version.replace(meta.value()?.parse()?).is_some(),
            "upcast" => {
                let content;
                syn::parenthesized!(content in meta.input);
                let steps = Punctuated::<Step, Token![,]>::parse_terminated(&content)?.into_iter().collect();
                self.upcast.replace((span, steps)).is_some()
            }
            "untagged" => self.untagged.replace(span).is_some(),
            "prefix" => self.prefix.replace(meta.value()?.parse()?).is_some(),
            "codec" => self.codec.replace(meta.value()?.parse()?).is_some(),
            _ => self.krate.replace(meta.value()?.call(Path::parse_mod_style)?).is_some(),
        };
        if again {
            errors.at(span, format_args!("`{key}` is given twice: keep one"));
        }
        Ok(())
    }
}

/// What `#[tag("…")]` or `#[tag("…", each)]` says.
pub(crate) struct TagAttr {
    pub(crate) text: LitStr,
    /// The word `each`.
    pub(crate) each: Option<Span>,
}

impl Parse for TagAttr {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let text = input.parse().map_err(|error| syn::Error::new(error.span(), "the key of a tag is a text: `#[tag(\"course\")]`"))?;
        let mut each = None;
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let word: Ident = input.call(Ident::parse_any)?;
            if word != "each" {
                return Err(syn::Error::new(
                    word.span(),
                    format!("unknown word `{word}`: after the key only `each` may stand, for one tag per element"),
                ));
            }
            each = Some(word.span());
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(TagAttr { text, each })
    }
}

pub(crate) fn tag_attrs(attrs: &[Attribute], errors: &mut Errors) -> Vec<TagAttr> {
    let parsed = attrs.iter().filter(|attr| attr.path().is_ident("tag")).map(|attr| attr.parse_args());
    parsed.filter_map(|tag| tag.map_err(|error| errors.add(error)).ok()).collect()
}

/// The words of `#[serde(…)]`, whatever they are given: serde itself says what is wrong with them.
pub(crate) fn serde_words(attrs: &[Attribute]) -> Vec<(String, Span)> {
    let mut words = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let _serdes_own_error = attr.parse_nested_meta(|meta| {
            words.push((path_text(&meta.path), meta.path.span()));
            skip_value(meta.input)
        });
    }
    words
}

/// Up to the next comma.
fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn path_text(path: &Path) -> String {
    let tokens: TokenStream = quote::quote!(#path);
    tokens.to_string().replace(' ', "")
}
