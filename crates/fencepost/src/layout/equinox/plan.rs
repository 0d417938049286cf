//! What an append writes: into the Tip, or with the Tip's events calved into an item of their own. Pure.

use super::item::{self, Batch, HASH, Stored, TIP, Tip, Unfold};
use crate::dynamo::item::{Value, number, size, text};
use crate::dynamo::{ITEM_BYTES, Terms, Write};
use crate::error::{Refused, Result};

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

impl Default for Limits {
    fn default() -> Self {
        Self { events: None, event_bytes: TIP_BYTES, bytes: TIP_BYTES }
    }
}

/// What a write holds against the Tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// The number of events.
    Version,
    /// That nothing at all was written, unfolds neither.
    Etag,
}

/// What is written, and the Tip after it.
#[derive(Debug)]
pub(super) struct Sync {
    pub(super) writes: Vec<Write>,
    pub(super) tip: Tip,
    /// How the item of the calf is called, where there is one; its write comes first.
    pub(super) calves: bool,
}

/// What is to be added.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) events: Vec<Stored>,
    /// Replace all that are there. Their version is that of the Tip afterwards.
    pub(super) unfolds: Vec<Unfold>,
    pub(super) etag: String,
}

/// F# reads `b` as an `int32`, and adds the Tip's size to it.
fn clamped(calved: u64, tip: u64) -> u64 {
    calved.min(u64::from(u32::MAX >> 1).saturating_sub(tip))
}

pub(super) fn sync(table: &str, stream: &str, seen: Option<&Tip>, held: Held, add: Addition, limits: &Limits) -> Result<Sync> {
    let Addition { events, unfolds, etag } = add;
    if events.is_empty() && unfolds.is_empty() {
        return Err(Refused::Empty { what: "append" }.into());
    }
    let current: &[Stored] = seen.map_or(&[], |tip| &tip.batch.events);
    let before = seen.map_or(0, |tip| tip.batch.next);
    let estimate = |events: &[Stored]| events.iter().map(Stored::estimate).sum::<u64>();
    let (old_bytes, new_bytes) = (estimate(current), estimate(&events));
    let unfold_bytes: u64 = unfolds.iter().map(Unfold::estimate).sum();
    let base = item::base_estimate(stream, &etag);
    let together = base + old_bytes + new_bytes;
    let calves = !current.is_empty()
        && (limits.events.is_some_and(|most| current.len() + events.len() > most)
            || together > limits.event_bytes
            || together + unfold_bytes > limits.bytes);
    let next = before + events.len() as u64;
    let calved = seen.map_or(0, |tip| tip.calved) + if calves { old_bytes } else { 0 };
    let appended = events.len() as u64;
    let kept = if calves { Vec::new() } else { current.to_vec() };
    let (new_events, new_types) = item::lists(&events);
    let all = kept.into_iter().chain(events).collect();
    let tip = Tip {
        batch: Batch { next, events: all },
        unfolds,
        appended,
        calved: clamped(calved, base + new_bytes + unfold_bytes),
        etag,
    };
    let whole = item::tip_item(stream, &tip);
    let bytes = size(&whole);
    if bytes > ITEM_BYTES {
        return Err(Refused::TooLong { what: "append of one Tip", bytes, limit: ITEM_BYTES }.into());
    }
    let mut writes = Vec::with_capacity(2);
    if calves && let Some(seen) = seen {
        writes.push(Write::PutNew { table: table.into(), item: item::calf(stream, &seen.batch) });
    }
    writes.push(match seen {
        // Only where none was seen: a Tip without events is there all the same.
        None => Write::PutNew { table: table.into(), item: whole },
        Some(seen) => {
            let mut terms = Terms::default()
                .name("#a", "a")
                .name("#b", "b")
                .name("#u", "u")
                .value(":a", number(appended))
                .value(":b", number(tip.calved))
                .value(":etag", text(&tip.etag))
                .value(":u", item::unfold_list(&tip.unfolds));
            let mut set = "SET #a = :a, #b = :b, etag = :etag, #u = :u".to_owned();
            if appended > 0 {
                terms = terms.name("#n", "n").name("#e", "e").name("#c", "c");
                terms = terms.value(":n", number(next)).value(":e", new_events).value(":c", new_types);
                if calves || current.is_empty() {
                    set += ", #n = :n, #e = :e, #c = :c";
                } else {
                    // A trim or a calve of unfolds only may have taken the lists away, and left the version.
                    set += ", #n = :n, #e = list_append(if_not_exists(#e, :none), :e), #c = list_append(if_not_exists(#c, :none), :c)";
                    terms = terms.value(":none", Value::L(Vec::new()));
                }
            } else if calves {
                terms = terms.name("#e", "e").name("#c", "c").value(":none", Value::L(Vec::new()));
                set += ", #e = :none, #c = :none";
            }
            // A calve from what was seen before a trim would bring the trimmed events back: it holds the etag too.
            let by_version = held == Held::Version;
            if by_version {
                terms = terms.name("#n", "n").value(":seen", number(before));
            }
            if !by_version || calves {
                terms = terms.value(":was", text(&seen.etag));
            }
            terms.condition = match (by_version, calves) {
                (true, false) => "#n = :seen".into(),
                (true, true) => "#n = :seen AND etag = :was".into(),
                (false, _) => "etag = :was".into(),
            };
            Write::Update { table: table.into(), key: item::key(stream, TIP), update: set, condition: terms }
        }
    });
    Ok(Sync { writes, tip, calves })
}

/// The name of the hash key, for the writes.
pub(super) const WRITES_BY: &str = HASH;
