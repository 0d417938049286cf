//! Fences: what stands in one, what a reader remembers of it, and what an append demands of it and does to it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::item::{HASH, RANGE, key};
use super::place::{Cover, Touch};
use super::position::At;
use crate::dynamo::Terms;
use crate::dynamo::item::{Attributes, Item, Value, as_number, number, text};

const PREFIX: &str = "fence#";
const PLACE: &str = "FENCE";
/// The peer's: the last position of this type.
const POSITION: &str = "pos#";
/// Ours: commits that moved it.
const VERSION: &str = "v";
/// Ours: its version when this type last moved it.
const TYPE_VERSION: &str = "v#";
/// Ours: events of ours on it.
const COUNT: &str = "cnt";
/// Ours: the stamp of the commit of ours that last moved it. It only rises.
const STAMP: &str = "at";
/// Ours: commits of ours with events in its partition.
const HOME_VERSION: &str = "fv";
/// Ours: events of ours on it that only pointers show.
const MORE: &str = "more";

pub(super) fn fence_key(cover: &Cover) -> Item {
    key(&format!("{PREFIX}{}", cover.fence()), PLACE)
}

/// A fence as it stands; one that is not there stands at 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) version: u64,
    pub(super) count: u64,
    pub(super) stamp: u64,
    pub(super) home_version: u64,
    pub(super) more: u64,
    /// By type: the peer's attribute, as it stands.
    pub(super) positions: BTreeMap<String, String>,
    pub(super) versions: BTreeMap<String, u64>,
}

impl Fence {
    pub(super) fn of_item(item: &Item) -> Fence {
        let count = |name: &str| item.value(name).and_then(as_number).unwrap_or(0);
        let mut fence = Fence {
            version: count(VERSION),
            count: count(COUNT),
            stamp: count(STAMP),
            home_version: count(HOME_VERSION),
            more: count(MORE),
            ..Fence::default()
        };
        for (name, value) in item {
            if let (Some(of), Ok(position)) = (name.strip_prefix(POSITION), value.as_s()) {
                fence.positions.insert(of.to_owned(), position.clone());
            } else if let (Some(of), Some(version)) = (name.strip_prefix(TYPE_VERSION), as_number(value)) {
                fence.versions.insert(of.to_owned(), version);
            }
        }
        fence
    }

    /// Whether an item is a fence, and of what.
    pub(super) fn name(item: &Item) -> Option<&str> {
        (item.text(RANGE) == Ok(PLACE)).then(|| item.text(HASH).ok()?.strip_prefix(PREFIX)).flatten()
    }

    /// The highest stamp that anybody left on it.
    pub(super) fn highest(&self) -> u64 {
        let positions = self.positions.values().filter_map(|position| At::parse(position)).map(|at| at.stamp);
        positions.chain([self.stamp]).max().unwrap_or(0)
    }

    /// What a reader of these types remembers of it; none: of all.
    pub(super) fn seen(&self, types: Option<&BTreeSet<String>>, foreign: u64) -> Seen {
        let one = |of: &String| (of.clone(), (self.versions.get(of).copied().unwrap_or(0), self.positions.get(of).cloned()));
        let types_seen = match types {
            Some(types) => types.iter().map(one).collect(),
            None => self.positions.keys().map(one).collect(),
        };
        Seen {
            version: self.version,
            count: self.count,
            stamp: self.stamp,
            home_version: self.home_version,
            more: self.more,
            foreign,
            typed: types.is_some(),
            types: types_seen,
        }
    }
}

/// A fence as a decision read saw it: the token's part for one cover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) version: u64,
    pub(super) count: u64,
    pub(super) stamp: u64,
    pub(super) home_version: u64,
    pub(super) more: u64,
    /// Events of the peer's that were seen on it.
    pub(super) foreign: u64,
    /// Whether only the types below were asked for.
    pub(super) typed: bool,
    pub(super) types: BTreeMap<String, (u64, Option<String>)>,
}

impl Seen {
    /// Whether what was read of it is still all there is.
    pub(super) fn holds(&self, fence: &Fence) -> bool {
        let types = self.types.iter().all(|(of, (version, position))| {
            fence.positions.get(of) == position.as_ref() && (!self.typed || fence.versions.get(of).copied().unwrap_or(0) == *version)
        });
        // A type that was not there is the peer's: ours would have moved the version.
        types && (self.typed || (self.version == fence.version && self.types.len() == fence.positions.len()))
    }

    /// The types that were asked for; none: all.
    pub(super) fn asked(&self) -> Option<BTreeSet<String>> {
        self.typed.then(|| self.types.keys().cloned().collect())
    }

    /// Moved up by a commit of ours that stood right behind it.
    pub(super) fn moved(&self, touch: &Touch, last: &At) -> Seen {
        let mut seen = self.clone();
        seen.version += 1;
        seen.count += touch.events;
        seen.stamp = last.stamp;
        seen.home_version += u64::from(touch.home);
        seen.more += touch.more;
        for of in touch.types.iter().filter(|of| !self.typed || self.types.contains_key(*of)) {
            seen.types.insert(of.clone(), (seen.version, Some(last.text())));
        }
        seen
    }
}

/// A condition and an update under way, with their placeholders.
#[derive(Debug, Default)]
struct Words {
    conditions: Vec<String>,
    sets: Vec<String>,
    terms: Terms,
}

impl Words {
    fn name(&mut self, name: impl Into<String>) -> String {
        let name = name.into();
        if let Some((known, _)) = self.terms.names.iter().find(|(_, known)| **known == name) {
            return known.clone();
        }
        let placeholder = format!("#n{}", self.terms.names.len());
        self.terms.names.insert(placeholder.clone(), name);
        placeholder
    }
    fn value(&mut self, value: Value) -> String {
        if let Some((known, _)) = self.terms.values.iter().find(|(_, known)| **known == value) {
            return known.clone();
        }
        let placeholder = format!(":x{}", self.terms.values.len());
        self.terms.values.insert(placeholder.clone(), value);
        placeholder
    }
    fn set(&mut self, name: impl Into<String>, value: Value) {
        let (name, value) = (self.name(name), self.value(value));
        self.sets.push(format!("{name} = {value}"));
    }
    /// One and the same now as then.
    fn same(&mut self, name: impl Into<String>, value: Option<Value>) {
        let name = self.name(name);
        let condition = match value {
            Some(value) => format!("{name} = {}", self.value(value)),
            None => format!("attribute_not_exists({name})"),
        };
        self.conditions.push(condition);
    }
    /// Not there, or lower.
    fn lower(&mut self, name: impl Into<String>, value: Value) {
        let (name, value) = (self.name(name), self.value(value));
        self.conditions.push(format!("(attribute_not_exists({name}) OR {name} < {value})"));
    }
    fn hold(&mut self, seen: &Seen) {
        for (of, (version, position)) in &seen.types {
            self.same(format!("{POSITION}{of}"), position.as_ref().map(text));
            if seen.typed {
                self.same(format!("{TYPE_VERSION}{of}"), (*version > 0).then(|| number(*version)));
            }
        }
        if !seen.typed {
            self.version(seen.version);
        }
        // Nothing was there at all: then nobody's fence may be, the peer's neither.
        if !seen.typed && seen.version == 0 && seen.types.is_empty() {
            self.same(HASH, None);
        }
    }
    fn version(&mut self, version: u64) {
        self.same(VERSION, (version > 0).then(|| number(version)));
    }
    fn done(mut self) -> (String, Terms) {
        self.conditions.dedup();
        self.terms.condition = self.conditions.join(" AND ");
        (format!("SET {}", self.sets.join(", ")), self.terms)
    }
}

/// The condition of a cover that is read and not moved.
pub(super) fn check(seen: &Seen) -> Terms {
    let mut words = Words::default();
    words.hold(seen);
    words.done().1
}

/// What must hold of a fence that is moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand<'a> {
    /// What was read of it, if it was.
    pub(super) seen: Option<&'a Seen>,
    /// Its version and home version, where both must be known: a home numbers its commits.
    pub(super) exact: Option<(u64, u64)>,
}

/// The update and condition of a fence that is moved by a commit whose last position this is. A position on it never falls.
pub(super) fn bump(touch: &Touch, last: &At, demand: Demand<'_>) -> (String, Terms) {
    let mut words = Words::default();
    let (one, zero) = (words.value(number(1)), words.value(number(0)));
    let version = words.name(VERSION);
    let next = format!("if_not_exists({version}, {zero}) + {one}");
    words.sets.push(format!("{version} = {next}"));
    for (name, by) in [(COUNT, touch.events), (MORE, touch.more)] {
        if by > 0 {
            let (name, by) = (words.name(name), words.value(number(by)));
            words.sets.push(format!("{name} = if_not_exists({name}, {zero}) + {by}"));
        }
    }
    words.set(STAMP, number(last.stamp));
    for of in &touch.types {
        words.set(format!("{POSITION}{of}"), text(last.text()));
        let of_type = words.name(format!("{TYPE_VERSION}{of}"));
        words.sets.push(format!("{of_type} = {next}"));
    }
    if let Some((known, home)) = demand.exact {
        words.version(known);
        if touch.home {
            words.set(HOME_VERSION, number(home + 1));
        }
    }
    if let Some(seen) = demand.seen {
        words.hold(seen);
    }
    words.lower(STAMP, number(last.stamp));
    for of in touch.types.iter().filter(|of| demand.seen.is_none_or(|seen| !seen.types.contains_key(*of))) {
        words.lower(format!("{POSITION}{of}"), text(last.text()));
    }
    words.done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CommitId;
    use uuid::Uuid;

    fn at(stamp: u64) -> At {
        At::of(stamp, CommitId(Uuid::from_u128(stamp.into())), 0, 1)
    }

    #[test]
    fn what_was_seen_holds_until_a_type_that_was_asked_for_moves() {
        let mut fence = Fence { version: 3, stamp: 30, ..Fence::default() };
        fence.positions.insert("T".into(), at(30).text());
        fence.versions.insert("T".into(), 3);
        let typed = fence.seen(Some(&["T".into(), "U".into()].into()), 0);
        let any = fence.seen(None, 0);
        assert!(typed.holds(&fence) && any.holds(&fence));
        let mut other = fence.clone();
        other.version = 4;
        other.positions.insert("V".into(), at(40).text());
        assert!(typed.holds(&other) && !any.holds(&other), "another type of ours");
        other.positions.insert("U".into(), at(20).text());
        assert!(!typed.holds(&other), "the peer's, and late");
        let late = Fence { positions: [("T".into(), at(10).text())].into(), ..fence.clone() };
        assert!(!typed.holds(&late) && !any.holds(&late), "lowered by the peer");
        let added = Fence { positions: [("T".into(), at(30).text()), ("V".into(), at(10).text())].into(), ..fence.clone() };
        assert!(typed.holds(&added) && !any.holds(&added), "a type that the peer added");
        assert!(!Fence::default().seen(None, 0).holds(&late), "the peer's alone");
    }

    #[test]
    fn a_seen_fence_moves_with_the_commit_behind_it() {
        let touch = Touch { events: 2, types: ["T".into()].into(), more: 1, home: true };
        let moved = Fence::default().seen(None, 4).moved(&touch, &at(50));
        assert_eq!((moved.version, moved.count, moved.stamp, moved.home_version, moved.more, moved.foreign), (1, 2, 50, 1, 1, 4));
        assert_eq!(moved.types, [("T".to_owned(), (1, Some(at(50).text())))].into());
        let typed = Fence::default().seen(Some(&["U".into()].into()), 0).moved(&touch, &at(50));
        assert_eq!(typed.types.keys().collect::<Vec<_>>(), ["U"], "nothing else was asked for");
    }
}
