//! What an append writes: into the Tip, or with the Tip's events calved into an item of their own; and what a trim leaves. Pure.

use super::item::{self, APPENDED, Batch, CALVED, ETAG, EVENTS, HASH, MARKS, NEXT, Stored, TIP, TYPES, Tip, UNFOLDS, Unfold};
use crate::dynamo::item::{Value, binary, number, size, text};
use crate::dynamo::{ITEM_BYTES, Terms, Write};
use crate::error::{Refused, Result};
use crate::event::CommitId;

/// When the Tip's events are calved: before they would be more than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limits {
    /// None: as many as fit.
    pub(super) events: Option<usize>,
    /// Estimated bytes of the events.
    pub(super) event_bytes: u64,
    /// Estimated bytes of events and unfolds.
    pub(super) bytes: u64,
}

/// The same defaults as the peers'.
pub(super) const TIP_BYTES: u64 = 32 * 1024;
/// What is written is paid for by the kilobyte.
const UNIT: usize = 1024;

impl Default for Limits {
    fn default() -> Self {
        Self { events: None, event_bytes: TIP_BYTES, bytes: TIP_BYTES }
    }
}

/// What is written, and the Tip after it.
#[derive(Debug)]
pub(super) struct Sync {
    pub(super) writes: Vec<Write>,
    pub(super) tip: Tip,
    /// Whether a calf is written: then it comes first, and the Tip second.
    pub(super) calves: bool,
}

/// What is to be added.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) events: Vec<Stored>,
    /// Replace all that are there. Their version is that of the Tip afterwards.
    pub(super) unfolds: Vec<Unfold>,
    pub(super) etag: String,
    pub(super) commit: CommitId,
}

/// F# reads `b` as an `int32`, and adds the Tip's size to it.
fn clamped(calved: u64, tip: u64) -> u64 {
    calved.min(u64::from(u32::MAX >> 1).saturating_sub(tip))
}

pub(super) fn sync(table: &str, stream: &str, seen: Option<&Tip>, add: Addition, limits: &Limits) -> Result<Sync> {
    if add.events.is_empty() && add.unfolds.is_empty() {
        return Err(Refused::Empty { what: "append" }.into());
    }
    let current: &[Stored] = seen.map_or(&[], |tip| &tip.batch.events);
    let (old_bytes, new_bytes) = (estimate(current), estimate(&add.events));
    let unfold_bytes: u64 = add.unfolds.iter().map(Unfold::estimate).sum();
    let together = old_bytes + new_bytes;
    let full = limits.events.is_some_and(|most| current.len() + add.events.len() > most)
        || together > limits.event_bytes
        || together + unfold_bytes > limits.bytes;
    let (new_events, new_types) = item::lists(&add.events);
    let appended = add.events.len() as u64;
    let mut calves = full && !current.is_empty();
    let mut tip = after(stream, seen, &add, calves);
    if size(&item::tip_item(stream, &tip)) > ITEM_BYTES && !calves && !current.is_empty() {
        // Whatever the limits say, more than this no item holds.
        calves = true;
        tip = after(stream, seen, &add, calves);
    }
    let whole = item::tip_item(stream, &tip);
    let bytes = size(&whole);
    if bytes > ITEM_BYTES {
        return Err(
            Refused::TooLong { what: "append, with names, numbers and snapshots, which one Tip holds,", bytes, limit: ITEM_BYTES }.into()
        );
    }
    let mut writes = Vec::with_capacity(2);
    if calves && let Some(seen) = seen {
        writes.push(Write::PutNew { table: table.into(), item: item::calf(stream, &seen.batch) });
    }
    writes.push(match seen {
        // Only where none was seen: a Tip without events is there all the same.
        None => Write::PutNew { table: table.into(), item: whole },
        Some(seen) => {
            let mut terms = unchanged(seen)
                .name("#a", APPENDED)
                .name("#b", CALVED)
                .name("#u", UNFOLDS)
                .name("#k", MARKS)
                .value(":a", number(appended))
                .value(":b", number(tip.calved))
                .value(":etag", text(&tip.etag))
                .value(":u", item::unfold_list(&tip.unfolds))
                .value(":k", binary(tip.marks.bytes()));
            let mut set = "SET #a = :a, #b = :b, #etag = :etag, #u = :u, #k = :k".to_owned();
            let none = || Value::L(Vec::new());
            if appended > 0 {
                terms = terms.name("#e", EVENTS).name("#c", TYPES);
                terms = terms.value(":n", number(tip.batch.next));
                let (events, types) = if seen.even { (new_events, new_types) } else { item::lists(&tip.batch.events) };
                terms = terms.value(":e", events).value(":c", types);
                if calves || current.is_empty() || !seen.even {
                    set += ", #n = :n, #e = :e, #c = :c";
                } else {
                    // Somebody may have taken the lists away, and left the rest.
                    set += ", #n = :n, #e = list_append(if_not_exists(#e, :none), :e), #c = list_append(if_not_exists(#c, :none), :c)";
                    terms = terms.value(":none", none());
                }
            } else if calves {
                terms = terms.name("#e", EVENTS).name("#c", TYPES).value(":none", none());
                set += ", #e = :none, #c = :none";
            }
            Write::Update { table: table.into(), key: item::key(stream, TIP), update: set, condition: terms }
        }
    });
    Ok(Sync { writes, tip, calves })
}

fn estimate(events: &[Stored]) -> u64 {
    events.iter().map(Stored::estimate).sum()
}

/// The Tip as it will be.
fn after(stream: &str, seen: Option<&Tip>, add: &Addition, calves: bool) -> Tip {
    let before = seen.map_or(0, |tip| tip.batch.next);
    let current: &[Stored] = seen.map_or(&[], |tip| &tip.batch.events);
    let kept = if calves { &[] } else { current };
    let calved = seen.map_or(0, |tip| tip.calved) + if calves { estimate(current) } else { 0 };
    let events: Vec<Stored> = kept.iter().chain(&add.events).cloned().collect();
    let unfold_bytes: u64 = add.unfolds.iter().map(Unfold::estimate).sum();
    let own = item::base_estimate(stream, &add.etag) + estimate(&events) + unfold_bytes;
    let mut tip = Tip {
        batch: Batch { next: before + add.events.len() as u64, events },
        unfolds: add.unfolds.clone(),
        appended: add.events.len() as u64,
        calved: clamped(calved, own),
        etag: add.etag.clone(),
        marks: Default::default(),
        even: seen.is_none_or(|tip| tip.even) || calves || !add.events.is_empty(),
    };
    // In what is left of the last kilobyte, or in what equinox-js would have written besides.
    let bytes = size(&item::tip_item(stream, &tip));
    let room = (bytes.next_multiple_of(UNIT) - bytes).max(tip.larger_in_js()).min(ITEM_BYTES.saturating_sub(bytes));
    let marks = seen.map(|tip| tip.marks.clone()).unwrap_or_default();
    tip.marks = marks.and(before, add.commit, room.saturating_sub(MARKS.len()));
    tip
}

/// That the Tip is as it was seen: by its etag, so that what is known of it stays exact. Writes of unfolds alone and trims leave the version,
/// and calving from what was before them would bring trimmed events back.
fn unchanged(seen: &Tip) -> Terms {
    let terms = Terms::default().name("#n", NEXT).name("#etag", ETAG).value(":seen", number(seen.batch.next));
    if seen.etag.is_empty() {
        // None was written, or an empty one.
        let condition = "#n = :seen AND (attribute_not_exists(#etag) OR #etag = :was)".into();
        return Terms { condition, ..terms.value(":was", text("")) };
    }
    Terms { condition: "#n = :seen AND #etag = :was".into(), ..terms.value(":was", text(&seen.etag)) }
}

/// Takes the first so many events out of a Tip. No event is announced by it: the feed takes `a` for what was appended.
pub(super) fn trim(table: &str, stream: &str, seen: &Tip, first: usize, etag: &str) -> Write {
    let (events, types) = item::lists(seen.batch.events.get(first..).unwrap_or_default());
    let terms = unchanged(seen).name("#a", APPENDED).name("#e", EVENTS).name("#c", TYPES);
    let terms = terms.value(":zero", number(0_u64)).value(":etag", text(etag)).value(":e", events).value(":c", types);
    let update = "SET #a = :zero, #etag = :etag, #e = :e, #c = :c".into();
    Write::Update { table: table.into(), key: item::key(stream, TIP), update, condition: terms }
}

/// The name of the hash key, for the writes.
pub(super) const WRITES_BY: &str = HASH;
