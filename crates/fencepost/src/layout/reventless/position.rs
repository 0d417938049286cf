//! Positions as they stand in the table, to and from text: `<13-digit ms>-<6-digit counter>-<uuid>`, and `-001…` inside a batch. Pure.

use uuid::Uuid;

use crate::event::CommitId;
use crate::position::Position;

/// Counters of ours stay below this: a stamp is in microseconds, and holds milliseconds and counter.
const COUNTERS: u64 = 1_000;

/// Where an event stands: when, in which commit, and the suffix of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct At {
    /// Milliseconds and counter, as microseconds.
    pub(super) stamp: u64,
    /// The uuid in it.
    pub(super) commit: CommitId,
    /// From 1; 0 for an event alone in its commit.
    pub(super) suffix: u32,
}

impl At {
    /// The event at this index of a commit of so many.
    pub(super) fn of(stamp: u64, commit: CommitId, index: usize, events: usize) -> Self {
        let suffix = if events > 1 { u32::try_from(index + 1).unwrap_or(u32::MAX) } else { 0 };
        Self { stamp, commit, suffix }
    }

    /// The published page's sample has no counter: both forms are read.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (millis, rest) = text.split_at_checked(13)?;
        let millis: u64 = digits(millis)?;
        let rest = rest.strip_prefix('-')?;
        let (counter, rest) = match rest.split_at_checked(6) {
            Some((counter, after)) if after.starts_with('-') && digits(counter).is_some() => (digits(counter)?, &after[1..]),
            // A uuid in the counter's place sorts behind almost every counter: nothing of ours may come between.
            _ => (COUNTERS - 1, rest),
        };
        let (uuid, rest) = rest.split_at_checked(36)?;
        let suffix = match rest.strip_prefix('-') {
            None if rest.is_empty() => 0,
            None => return None,
            Some(suffix) => u32::try_from(digits(suffix)?).ok()?,
        };
        // A process of the peer's that counts past a thousand in one millisecond keeps its order by uuid only.
        let stamp = millis * COUNTERS + counter.min(COUNTERS - 1);
        Some(Self { stamp, commit: CommitId(Uuid::try_parse(uuid).ok()?), suffix })
    }

    /// As this store writes it.
    pub(super) fn text(&self) -> String {
        let (millis, counter) = (self.stamp / COUNTERS, self.stamp % COUNTERS);
        let base = format!("{millis:013}-{counter:06}-{}", self.commit.0.hyphenated());
        if self.suffix == 0 { base } else { format!("{base}-{:03}", self.suffix) }
    }

    pub(super) fn index(&self) -> u32 {
        self.suffix.saturating_sub(1)
    }
    pub(super) fn position(&self) -> Position {
        Position::stamped(self.stamp, self.commit, self.index())
    }
}

/// A text that sorts at or before every position of this stamp's millisecond, in either form.
pub(super) fn floor(stamp: u64) -> String {
    format!("{:013}", stamp / COUNTERS)
}
/// A text that sorts behind every position of this stamp's millisecond.
pub(super) fn ceiling(stamp: u64) -> String {
    format!("{:013}", stamp / COUNTERS + 1)
}

fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

    #[test]
    fn both_published_forms_are_read_and_one_is_written() {
        let bare = At::parse(&format!("1719100800000-{UUID}")).expect("as on the page");
        assert_eq!((bare.stamp, bare.commit.0.to_string(), bare.suffix), (1_719_100_800_000_999, UUID.into(), 0));
        let counted = format!("1719100800000-000012-{UUID}");
        assert_eq!(At::parse(&counted).expect("counted").stamp, 1_719_100_800_000_012);
        assert_eq!(At::parse(&counted).expect("counted").text(), counted);
        let third = At::of(1_719_100_800_000_012, bare.commit, 2, 5);
        assert_eq!(third.text(), format!("{counted}-003"));
        assert_eq!(At::parse(&third.text()), Some(third));
        assert_eq!(At::parse(&format!("1719100800000-{UUID}-002")).map(|at| at.index()), Some(1));
        for bad in [
            "",
            "FENCE",
            "1719100800000",
            "1719100800000-1-2",
            &format!("171910080000-{UUID}"),
            &format!("{counted}-x"),
            &format!("{counted}x"),
        ] {
            assert_eq!(At::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_sort_as_positions_do() {
        let commit = |n: u128| CommitId(Uuid::from_u128(n));
        let mut all = Vec::new();
        for stamp in [1_719_100_800_000_000, 1_719_100_800_000_001, 1_719_100_800_000_999, 1_719_100_800_001_000] {
            for n in [1, 2] {
                all.extend((0..12).map(|index| At::of(stamp, commit(n), index, 12)));
            }
        }
        let texts: Vec<String> = all.iter().map(At::text).collect();
        assert!(texts.is_sorted() && all.iter().map(At::position).collect::<Vec<_>>().is_sorted());
        let bare = format!("1719100800000-{UUID}");
        let behind = At { stamp: At::parse(&bare).expect("as on the page").stamp + 1, ..all[0] };
        assert!(bare < behind.text() && ceiling(all[0].stamp) > bare, "what follows a position without a counter sorts behind it");
        assert!(floor(all[0].stamp) <= texts[0] && texts[71] < ceiling(all[71].stamp) && texts[72] >= ceiling(all[71].stamp));
    }
}
