//! The index of all appends, as Propulsion keeps it in streams of a table of its own: spans, epochs, the epochs that are active, positions.
//! Read in every shape that the two dialects have, written in the one that both read. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::item::{APPENDED, DATA, EVENTS, HASH, NEXT, Stored, TIME, TYPES, Tip, UNFOLDS, Unfold, moment};
use crate::dynamo::item::{Attributes, Item, Malformed, wrong};
use crate::error::Result;
use crate::event::{Event, StreamName};

/// The stream that says which epoch of each partition is active.
const ACTIVE: &str = "$AppendsIndex-0";
const STARTED: &str = "Started";
const SNAPSHOTTED: &str = "Snapshotted";
const INGESTED: &str = "Ingested";
const CLOSED: &str = "Closed";
/// What is the store's own is not indexed.
const SYSTEM: char = '$';
/// Positions of an epoch: decimal, so that people read them.
const POSITIONS: u64 = 1_000_000;

/// Events of one append, or of several that follow each other: their stream, the first one's index, and their types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    #[serde(rename = "p")]
    pub(crate) stream: String,
    /// F# never gets past a text here; it is read, and never written.
    #[serde(rename = "i", deserialize_with = "whole")]
    pub(crate) index: u64,
    #[serde(rename = "c")]
    pub(crate) types: Vec<String>,
}

impl Span {
    /// The index behind its last event.
    pub(crate) fn end(&self) -> u64 {
        self.index + self.types.len() as u64
    }

    /// What it says of the events from this index on; none: nothing.
    pub(crate) fn from(mut self, index: u64) -> Option<Span> {
        if self.index < index {
            let known = usize::try_from(index - self.index).unwrap_or(usize::MAX).min(self.types.len());
            self.types.drain(..known);
            self.index = index;
        }
        (!self.types.is_empty()).then_some(self)
    }
}

/// One event of an epoch's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Spans in their order: of streams that the epoch did not have before, and of others.
    Ingested(Vec<Span>),
    /// The last one.
    Closed,
    /// Not known, and of no meaning here.
    Other,
    /// It should say something, and nobody can tell what.
    Unread,
}

/// Both keys must be there, or F# never gets past it; without one it is read all the same.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Ingested {
    #[serde(default)]
    add: Vec<Span>,
    #[serde(default)]
    app: Vec<Span>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Started {
    /// F# writes `"tranche":null` beside it, and wrote `tranche` in its place before.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    partition: Option<u64>,
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing)]
    tranche: Option<u64>,
    #[serde(deserialize_with = "whole")]
    epoch: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Snapshotted {
    active: BTreeMap<u32, u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Digits {
    Number(u64),
    Text(String),
}

impl Digits {
    fn whole(self) -> Option<u64> {
        match self {
            Digits::Number(number) => Some(number),
            Digits::Text(text) => text.parse().ok(),
        }
    }
}

pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Digits::deserialize(from)?.whole().ok_or_else(|| serde::de::Error::custom("not a whole number"))
}

fn maybe_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Digits>::deserialize(from)?.and_then(Digits::whole))
}

/// The stream of the active epochs.
pub(super) fn active_stream() -> Result<StreamName> {
    StreamName::new(ACTIVE)
}
pub(super) fn epoch_stream(partition: u32, epoch: u32) -> Result<StreamName> {
    StreamName::new(format!("$AppendsEpoch-{partition}_{epoch}"))
}

/// Where in a partition: an epoch, and the event of its stream that comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) epoch: u32,
    pub(crate) offset: u32,
}

impl Place {
    pub(crate) fn start_of(epoch: u32) -> Place {
        Place { epoch, offset: 0 }
    }
    /// As the peers' checkpoints have it.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.epoch) * POSITIONS + u64::from(self.offset)
    }
    pub(crate) fn of(number: u64) -> Option<Place> {
        Some(Place { epoch: u32::try_from(number / POSITIONS).ok()?, offset: u32::try_from(number % POSITIONS).ok()? })
    }
}

/// What a record of the table's stream announces; none: nothing. `image` is the item after the change, empty where it was deleted.
///
/// A calf has no `a`, and neither has a write of unfolds only. A trim of F#'s leaves the old number and may take the types away.
pub(crate) fn span(image: &Item) -> Option<Span> {
    let stream = image.text(HASH).ok().filter(|stream| !stream.starts_with(SYSTEM))?;
    let appended = usize::try_from(image.maybe_number(APPENDED).ok()??).unwrap_or(usize::MAX);
    let types = types(image)?;
    let new = types.get(types.len().saturating_sub(appended)..)?;
    let index = image.number(NEXT).ok()?.checked_sub(new.len() as u64)?;
    (!new.is_empty()).then(|| Span { stream: stream.into(), index, types: new.to_vec() })
}

/// An item of the table, for whoever reads all of them: what it holds, if only where its stream ends, and when its last event was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) span: Span,
    pub(crate) last: Option<Timestamp>,
}

/// The peers' own streams are left out.
pub(crate) fn whole_item(item: &Item) -> Option<Whole> {
    let stream = item.text(HASH).ok().filter(|stream| !stream.starts_with(SYSTEM))?;
    let types = types(item)?;
    let index = item.number(NEXT).ok()?.checked_sub(types.len() as u64)?;
    let last =
        item.maybe_list(EVENTS).ok().flatten().and_then(|events| events.last()?.as_m().ok()?.text(TIME).ok().and_then(|t| moment(t).ok()));
    Some(Whole { span: Span { stream: stream.into(), index, types }, last })
}

/// One for every event, where those are there too: more are passed over, as whoever reads them does.
fn types(item: &Item) -> Option<Vec<String>> {
    let events = item.maybe_list(EVENTS).ok()?.map_or(usize::MAX, <[_]>::len);
    item.maybe_list(TYPES).ok()?.unwrap_or_default().iter().take(events).map(|kind| kind.as_s().ok().cloned()).collect()
}

/// What an event of an epoch's stream says.
pub(super) fn entry(stored: &Stored) -> Result<Entry, Malformed> {
    match stored.kind.as_str() {
        CLOSED => Ok(Entry::Closed),
        INGESTED => {
            let body: Ingested = serde_json::from_slice(&stored.read()?.data).map_err(|_| wrong(DATA, "what an Ingested holds"))?;
            Ok(Entry::Ingested(body.add.into_iter().chain(body.app).collect()))
        }
        _ => Ok(Entry::Other),
    }
}

/// Spans of streams that the epoch did not have, and of others, as an event.
pub(super) fn ingested(add: Vec<Span>, app: Vec<Span>) -> Result<Event> {
    Event::json(INGESTED, &Ingested { add, app })
}
/// No body: the event that is the last.
pub(super) fn closed() -> Result<Event> {
    Event::new(CLOSED, Vec::new())
}

pub(super) fn started(partition: u32, epoch: u32) -> Result<Event> {
    Event::json(STARTED, &Started { partition: Some(partition.into()), tranche: None, epoch: epoch.into() })
}
/// The name and the state of the snapshot of what is active.
pub(super) fn snapshotted(active: &BTreeMap<u32, u32>) -> (&'static str, Vec<u8>) {
    // Numbers by numbers into memory: nothing to fail.
    (SNAPSHOTTED, serde_json::to_vec(&Snapshotted { active: active.clone() }).unwrap_or_default())
}

/// Whether the Tip tells all, without the calves behind it.
pub(super) fn has_snapshot(tip: &Tip) -> bool {
    tip.unfolds.iter().any(|unfold| unfold.kind == SNAPSHOTTED)
}

/// The active epoch of each partition, by the snapshot and by what started since: an epoch only ever follows a lower one.
pub(super) fn active<'a>(unfolds: &[Unfold], events: impl IntoIterator<Item = &'a Stored>) -> Result<BTreeMap<u32, u32>, Malformed> {
    let mut active = BTreeMap::new();
    if let Some(unfold) = unfolds.iter().rev().find(|unfold| unfold.kind == SNAPSHOTTED) {
        let snapshot: Snapshotted = serde_json::from_slice(&unfold.state()?).map_err(|_| wrong(UNFOLDS, "the active epochs"))?;
        active = snapshot.active;
    }
    for event in events.into_iter().filter(|event| event.kind == STARTED) {
        let wrong = || wrong(DATA, "what a Started holds");
        let Started { partition, tranche, epoch } = serde_json::from_slice(&event.read()?.data).map_err(|_| wrong())?;
        let partition = u32::try_from(partition.or(tranche).unwrap_or(0)).map_err(|_| wrong())?;
        let (known, epoch) = (active.entry(partition).or_insert(0), u32::try_from(epoch).map_err(|_| wrong())?);
        *known = (*known).max(epoch);
    }
    Ok(active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamo::item::{Value, number, text};

    fn image(stream: &str, next: u64, appended: Option<u64>, types: &[&str]) -> Item {
        let mut item = Item::from([("p".into(), text(stream)), ("n".into(), number(next))]);
        item.extend(appended.map(|appended| ("a".into(), number(appended))));
        item.insert("c".into(), Value::L(types.iter().map(|kind| text(*kind)).collect()));
        item
    }

    fn span_of(stream: &str, index: u64, types: &[&str]) -> Span {
        Span { stream: stream.into(), index, types: types.iter().map(|kind| (*kind).to_owned()).collect() }
    }

    #[test]
    fn a_record_announces_what_its_write_appended() {
        assert_eq!(span(&image("Cart-1", 5, Some(2), &["A", "B", "C"])), Some(span_of("Cart-1", 3, &["B", "C"])));
        // A legacy write straight into a calf, and more said to be new than there is.
        assert_eq!(span(&image("Cart-1", 3, Some(9), &["A", "B"])), Some(span_of("Cart-1", 1, &["A", "B"])));
        for nothing in [
            image("Cart-1", 5, None, &["A"]),
            image("Cart-1", 5, Some(0), &["A"]),
            image("Cart-1", 5, Some(2), &[]),
            image("Cart-1", 1, Some(2), &["A", "B"]),
            image("$AppendsEpoch-0_0", 1, Some(1), &["Ingested"]),
            Item::new(),
        ] {
            assert_eq!(span(&nothing), None, "{nothing:?}");
        }
        let mut longer = image("Cart-1", 2, Some(1), &["A", "B", "C"]);
        longer.insert("e".into(), Value::L(vec![Value::M(Item::new()), Value::M(Item::new())]));
        assert_eq!(span(&longer), Some(span_of("Cart-1", 1, &["B"])), "more types than events");
        assert_eq!(whole_item(&longer).map(|whole| whole.span), Some(span_of("Cart-1", 0, &["A", "B"])));
        let mut trimmed = image("Cart-1", 5, Some(2), &[]);
        trimmed.remove("c");
        assert_eq!(span(&trimmed), None, "a trim of F#'s takes the types away");
    }

    #[test]
    fn every_accepted_shape_is_read_and_one_is_written() {
        let read = |text: &str| serde_json::from_str::<Ingested>(text).map(|body| body.add.into_iter().chain(body.app).collect::<Vec<_>>());
        let one = vec![span_of("A-1", 0, &["E"])];
        for text in [
            r#"{"add":[{"p":"A-1","i":0,"c":["E"]}],"app":[]}"#,
            r#"{"add":[{"p":"A-1","i":0,"c":["E"],"zz":1}],"v":2,"app":[]}"#,
            r#"{"add":[{"p":"A-1","i":"0","c":["E"]}]}"#,
        ] {
            assert_eq!(read(text).expect("reads"), one, "{text}");
        }
        let written = ingested(one, Vec::new()).expect("an event");
        assert_eq!(written.data().as_ref(), br#"{"add":[{"p":"A-1","i":0,"c":["E"]}],"app":[]}"#);
        assert!(closed().expect("an event").data().is_empty());
        assert_eq!(started(2, 0).expect("an event").data().as_ref(), br#"{"partition":2,"epoch":0}"#);
        assert_eq!(snapshotted(&[(0, 3), (1, 0)].into()).1, br#"{"active":{"0":3,"1":0}}"#);
    }

    #[test]
    fn what_started_is_read_in_three_shapes() {
        let at = Timestamp::UNIX_EPOCH;
        let stored = |body: &str| super::super::item::stored(&Event::new(STARTED, body.to_owned()).expect("an event"), at).expect("stores");
        let events = [
            stored(r#"{"partition":0,"epoch":0}"#),
            stored(r#"{"tranche":1,"epoch":4}"#),
            stored(r#"{"partition":0,"tranche":null,"epoch":1}"#),
            stored(r#"{"partition":0,"epoch":0}"#),
        ];
        assert_eq!(active(&[], &events).expect("reads"), [(0, 1), (1, 4)].into());
        let unfold = super::super::item::unfold(SNAPSHOTTED, 4, br#"{"active":{"0":7,"2":1}}"#, at);
        assert_eq!(active(&[unfold], &events).expect("reads"), [(0, 7), (1, 4), (2, 1)].into());
    }

    #[test]
    fn positions_are_decimal() {
        let place = Place { epoch: 3, offset: 17 };
        assert_eq!((place.number(), Place::of(3_000_017)), (3_000_017, Some(place)));
        assert_eq!(Place::start_of(4).number(), 4_000_000);
    }

    #[test]
    fn a_span_is_cut_to_what_is_new() {
        let span = span_of("A-1", 3, &["A", "B", "C"]);
        assert_eq!(span.clone().from(4), Some(span_of("A-1", 4, &["B", "C"])));
        assert_eq!((span.clone().from(0), span.clone().from(6), span.clone().from(9)), (Some(span), None, None));
    }
}
