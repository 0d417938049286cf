//! Checks of one thing each: the chain of versions, names, lifetimes, and what serde may not do. Pure.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::{Attribute, GenericParam, Generics, Ident, Path};

use crate::attrs::{Errors, EventAttrs, serde_words};

/// Where each name and alias of an event type was written.
pub(crate) struct Names {
    pub(crate) ident: Ident,
    pub(crate) names: Vec<(String, Span)>,
}

/// The functions in order, without a hole.
pub(crate) fn upcasters(ident: &Ident, said: &EventAttrs, errors: &mut Errors) -> Vec<Path> {
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

pub(crate) fn refuse_names_twice(kinds: &[Names], errors: &mut Errors) {
    let mut seen = BTreeMap::new();
    for Names { ident, names } in kinds {
        for (name, span) in names {
            if let Some(first) = seen.insert(name, ident) {
                let whose = if first == ident { "twice by".to_owned() } else { format!("by `{first}` and") };
                errors.at(*span, format_args!("the event type \"{name}\" is used {whose} `{ident}`: give each its own"));
            }
        }
    }
}

pub(crate) fn refuse_lifetimes(generics: &Generics, errors: &mut Errors) {
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

pub(crate) fn refuse_serde_of_enums(attrs: &[Attribute], errors: &mut Errors) {
    for (word, span) in serde_words(attrs) {
        let why = match word.as_str() {
            "tag" | "content" | "untagged" => "the store keeps the type beside the body, and the body is the fields of the variant alone",
            "from" | "try_from" | "into" => "variants are read and written as they are, one event type each",
            _ => continue,
        };
        errors.at(span, format_args!("`#[serde({word})]` does not go with events: {why}; remove it"));
    }
}

pub(crate) fn refuse_serde_of_variants(ident: &Ident, attrs: &[Attribute], errors: &mut Errors) {
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
