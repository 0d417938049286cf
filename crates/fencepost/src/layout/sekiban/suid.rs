//! Sortable unique ids: 30 digits, 19 of .NET ticks and 11 of an id part, and the clock that makes new ones above all that were seen. Pure but for it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Refused, Result};
use crate::event::CommitId;
use crate::position::Position;

/// Ticks of 100 ns from 0001-01-01 to 1970-01-01.
const EPOCH: u64 = 621_355_968_000_000_000;
/// What 19 digits hold.
const MAX_TICKS: u64 = 9_999_999_999_999_999_999;
/// What 11 digits hold.
const MAX_PART: u64 = 99_999_999_999;

/// Where an event stands in Sekiban's order: 30 digits, compared as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SortableId {
    ticks: u64,
    part: u64,
}

impl SortableId {
    /// The smallest.
    pub const MIN: SortableId = SortableId { ticks: 0, part: 0 };
    /// Sekiban's `MaxValue`: the last tick of the year 9999. Not the largest id of its tick.
    pub const MAX: SortableId = SortableId { ticks: 3_155_378_975_999_999_999, part: 0 };

    /// At a time, with nothing behind it: the threshold of a safe window.
    pub fn threshold(at: Timestamp) -> Self {
        Self { ticks: ticks(at), part: 0 }
    }
    /// At a tick, with the part that this id gives.
    pub(crate) fn new(ticks: u64, id: &Uuid) -> Self {
        Self { ticks, part: part(id) }
    }
    /// Before every id of this tick.
    pub(crate) fn at_ticks(ticks: u64) -> Self {
        Self { ticks, part: 0 }
    }
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }
    /// The time it tells, to the microsecond.
    pub fn timestamp(&self) -> Timestamp {
        let nanos = (i128::from(self.ticks) - i128::from(EPOCH)) * 100;
        Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::MAX)
    }

    /// The event's position: ordered as the ids are, and those of equal ids by the event's.
    pub(crate) fn position(&self, event: &Uuid) -> Option<Position> {
        let since = self.ticks.checked_sub(EPOCH)?;
        let rest = u128::from(since % 10) << 124 | u128::from(self.part) << 87 | event.as_u128() >> 41;
        Some(Position::stamped(since / 10, CommitId(Uuid::from_u128(rest)), 0))
    }
    /// The id that a position of this layout stands for.
    pub fn of(position: &Position) -> Option<SortableId> {
        let (stamp, rest, _) = position.as_stamped()?;
        let rest = rest.0.as_u128();
        let digit = u64::try_from(rest >> 124).ok()?;
        let part = u64::try_from(rest >> 87 & ((1 << 37) - 1)).ok()?;
        Some(SortableId { ticks: stamp.checked_mul(10)?.checked_add(digit)?.checked_add(EPOCH)?, part })
    }
}

/// `abs(Guid.GetHashCode())`: the four words of the id, as .NET lays them out, over each other.
fn part(id: &Uuid) -> u64 {
    let words = id.to_bytes_le();
    let word = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    // Sekiban's `Math.Abs` throws for the smallest number; ours has one more value instead.
    u64::from((word(0) ^ word(4) ^ word(8) ^ word(12)).unsigned_abs())
}

fn ticks(at: Timestamp) -> u64 {
    let ticks = at.as_nanosecond() / 100 + i128::from(EPOCH);
    u64::try_from(ticks).unwrap_or(0).min(MAX_TICKS)
}

impl fmt::Display for SortableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:019}{:011}", self.ticks, self.part)
    }
}
impl fmt::Debug for SortableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for SortableId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Refused::Malformed { what: "sortable unique id", why: "expected exactly 30 digits".into() };
        if text.len() != 30 || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed().into());
        }
        let ticks = text[..19].parse().map_err(|_| malformed())?;
        let part: u64 = text[19..].parse().map_err(|_| malformed())?;
        Ok(Self { ticks, part: part.min(MAX_PART) })
    }
}
impl TryFrom<String> for SortableId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
impl From<SortableId> for String {
    fn from(id: SortableId) -> String {
        id.to_string()
    }
}

/// As two numbers, where bytes count.
pub(super) mod numbers {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SortableId;

    pub(crate) fn serialize<S: Serializer>(id: &SortableId, to: S) -> Result<S::Ok, S::Error> {
        (id.ticks, id.part).serialize(to)
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SortableId, D::Error> {
        let (ticks, part) = <(u64, u64)>::deserialize(from)?;
        Ok(SortableId { ticks, part })
    }
}

/// Makes ticks, each above the clock's, those made before, and all that was seen.
#[derive(Debug, Default)]
pub(super) struct Ticks(AtomicU64);

impl Ticks {
    /// An id that was read: nothing new stands before it.
    pub(super) fn saw(&self, id: SortableId) {
        self.0.fetch_max(id.ticks, Ordering::Relaxed);
    }

    /// The first of so many ticks in a row.
    pub(super) fn take(&self, now: Timestamp, above: u64, count: u64) -> Result<u64> {
        let clock = ticks(now);
        let mut first = 0;
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            first = last.max(above).checked_add(1)?.max(clock);
            first.checked_add(count).filter(|end| *end <= MAX_TICKS)
        });
        match taken {
            Ok(_) => Ok(first),
            Err(_) => Err(Error::corrupt("sekiban", "a sortable unique id at the end of time: nothing can stand behind it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SortableId {
        text.parse().expect(text)
    }

    #[test]
    fn thirty_digits_and_nothing_else() {
        let real = id("063921293460140234601491390758");
        assert_eq!(real.to_string(), "063921293460140234601491390758");
        assert_eq!(SortableId::MIN.to_string(), "0".repeat(30));
        assert_eq!(SortableId::MAX.to_string(), "315537897599999999900000000000");
        for bad in [
            "",
            "0",
            "06392129346014023460149139075",
            "0639212934601402346014913907588",
            "06392129346014023460149139075x",
            "+63921293460140234601491390758",
        ] {
            assert!(bad.parse::<SortableId>().is_err(), "{bad}");
        }
        assert!(id("063921293460140234601491390758") < id("063921293460140234601491390759"));
        assert!(id("063921293460140234699999999999") < id("063921293460140234700000000000"));
    }

    #[test]
    fn time_and_part_are_those_of_the_specification() {
        let sample = id("063921792785123456000144769402");
        assert_eq!(sample.timestamp().to_string(), "2026-08-08T13:33:05.123456Z");
        let event: Uuid = "0198894f-9a63-7c21-8f0e-3b5d2a91c7e4".parse().expect("id");
        assert_eq!(SortableId::new(sample.ticks(), &event).to_string(), "063921792785123456001002074999");
        assert_eq!(part(&Uuid::from_u128(u128::MAX)), 0, "FF…FF hashes to 0");
        let smallest: Uuid = "80000000-0000-0000-0000-000000000000".parse().expect("id");
        assert_eq!(part(&smallest), 2_147_483_648, "where Math.Abs throws");
        let at: Timestamp = "2026-08-08T13:33:25.123456Z".parse().expect("time");
        assert_eq!(SortableId::threshold(at).to_string(), "063921792805123456000000000000");
    }

    #[test]
    fn positions_order_as_ids_do_and_lead_back() {
        let (a, b) = (Uuid::from_u128(1 << 100), Uuid::from_u128(2 << 100));
        let ordered = [
            ("063921792785123456000144769402", &a),
            ("063921792785123456000144769402", &b),
            ("063921792785123456000144769403", &a),
            ("063921792785123456100000000000", &a),
            ("063921792785123457000000000000", &a),
        ];
        let positions: Vec<_> = ordered.iter().map(|(text, event)| id(text).position(event).expect("position")).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
        for ((text, _), position) in ordered.iter().zip(&positions) {
            assert_eq!(SortableId::of(position), Some(id(text)));
            let text: Position = position.to_string().parse().expect("parses");
            assert_eq!(text, *position);
        }
        assert!(SortableId::MIN.position(&a).is_none(), "before 1970");
    }

    #[test]
    fn ticks_rise_whatever_the_clock_does() {
        let ticks = Ticks::default();
        let noon: Timestamp = "2026-08-08T12:00:00Z".parse().expect("time");
        let before: Timestamp = "2026-08-08T11:00:00Z".parse().expect("time");
        let first = ticks.take(noon, 0, 3).expect("ticks");
        let second = ticks.take(before, 0, 1).expect("ticks");
        assert!(second >= first + 3, "the clock went back");
        assert!(ticks.take(noon, second + 1_000, 1).expect("ticks") > second + 1_000, "above what it follows");
        let ahead: Timestamp = "2026-08-08T13:00:00Z".parse().expect("time");
        ticks.saw(SortableId::threshold(ahead));
        assert!(ticks.take(noon, 0, 1).expect("ticks") > super::ticks(ahead), "above every id seen");
        ticks.saw(SortableId { ticks: MAX_TICKS, part: 0 });
        assert!(ticks.take(noon, 0, 1).is_err(), "nothing stands behind the end of time");
    }
}
