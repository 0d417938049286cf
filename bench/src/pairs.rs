//! Two contenders side by side: in pairs, one right after the other, each on an engine of its own, and who is first changes. What is claimed of a few
//! hundredths rests on the median of the pairs' ratios: turns of many contenders lie too far apart for that.

use fencepost_contest::Timed;
use serde_json::{Value, json};

use crate::contenders::{BARE, CONTENDERS, Contender, LEDGER, UNSTREAMED};
use crate::report::{Report, claim, figure, median, within};
use crate::speed::{OVERHEAD, times};

/// The time of one's operation to that of the other's, in each pair.
pub(crate) struct Pairs {
    one: &'static str,
    other: &'static str,
    ratios: Vec<f64>,
}

/// Those that are told: the ledger beside the floor; and the floor beside itself without a stream, which is what a stream adds.
const TOLD: [(&str, &str); 2] = [(LEDGER, BARE), (BARE, UNSTREAMED)];

impl Pairs {
    pub(crate) fn all(count: usize, mut turn: impl FnMut(&'static Contender) -> Option<Timed>) -> Vec<Pairs> {
        TOLD.map(|(one, other)| Pairs::of(one, other, count, &mut turn)).into()
    }

    fn of(one: &'static str, other: &'static str, count: usize, turn: &mut impl FnMut(&'static Contender) -> Option<Timed>) -> Pairs {
        let mut timed = |name: &str| CONTENDERS.iter().find(|contender| contender.name == name).and_then(&mut *turn);
        let mut ratios = Vec::new();
        for pair in 0..count {
            eprintln!("{one} beside {other}, pair {} of {count}", pair + 1);
            let (ours, theirs) = if pair % 2 == 0 {
                let ours = timed(one);
                (ours, timed(other))
            } else {
                let theirs = timed(other);
                (timed(one), theirs)
            };
            ratios.push(times(ours.as_ref(), theirs.as_ref()));
        }
        Pairs { one, other, ratios }
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.ratios.clone())
    }

    /// Least and most.
    fn range(&self) -> (f64, f64) {
        (self.ratios.iter().copied().fold(f64::INFINITY, f64::min), self.ratios.iter().copied().fold(0.0, f64::max))
    }

    fn row(&self) -> Vec<Value> {
        let (least, most) = self.range();
        let shown = |ratio: f64| if ratio.is_normal() { figure(ratio, 2) } else { Value::Null };
        vec![
            json!(format!("{}, beside {}", self.one, self.other)),
            json!(self.ratios.len()),
            shown(self.median()),
            shown(least),
            shown(most),
        ]
    }

    /// What the store may add to the bare SDK at one writer.
    fn claim(&self) -> String {
        let ((least, most), median) = (self.range(), self.median());
        let says = format!(
            "at one writer an append takes at most {OVERHEAD} times the bare SDK's time, over HTTP: {median:.2}, the median of {} pairs \
             from {least:.2} to {most:.2}",
            self.ratios.len()
        );
        claim(&says, within(median, OVERHEAD))
    }
}

/// What a stream adds to the floor's append, where it was told.
pub(crate) fn of_a_stream(pairs: &[Pairs]) -> Option<f64> {
    pairs.iter().find(|pairs| pairs.other == UNSTREAMED).map(Pairs::median)
}

/// With the claim, where the pairs were long enough to say something.
pub(crate) fn report(pairs: &[Pairs], is_long: bool) -> Report {
    let claims = pairs.iter().filter(|pairs| is_long && (pairs.one, pairs.other) == (LEDGER, BARE)).map(Pairs::claim);
    let mut notes: Vec<String> = claims.collect();
    notes.push(
        "a stream has a record of every write: the ledger's table in this mode has one, and so has the floor's; not every peer's".into(),
    );
    let columns = ["appends at one writer", "pairs", "time, median", "least", "most"];
    Report::new(&columns, pairs.iter().map(Pairs::row).collect()).titled("disjoint, 1 writer: one right after the other").with_notes(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BROKEN;
    use fencepost_contest::first;

    fn pairs(ratios: &[f64]) -> Pairs {
        Pairs { one: LEDGER, other: BARE, ratios: ratios.to_vec() }
    }

    #[test]
    fn who_is_first_changes_from_pair_to_pair() {
        let mut order = Vec::new();
        let turn = |contender: &'static Contender| {
            order.push(contender.name);
            Some(Timed { done: if contender.name == LEDGER { 80 } else { 100 }, seconds: 1.0, ..first() })
        };
        let found = Pairs::all(2, turn);
        assert_eq!(order, [LEDGER, BARE, BARE, LEDGER, BARE, UNSTREAMED, UNSTREAMED, BARE]);
        assert_eq!((found[0].median(), found[1].median()), (1.25, 1.0));
        assert_eq!(of_a_stream(&found), Some(1.0));
    }

    #[test]
    fn the_claim_is_judged_by_the_median_as_it_is_shown() {
        for (ratios, holds) in [(&[1.0, 1.154, 9.0][..], true), (&[1.15, 1.15, 1.15], true), (&[1.0, 1.156, 1.2], false)] {
            let said = pairs(ratios).claim();
            assert_eq!(!said.starts_with(BROKEN), holds, "{said}");
        }
        assert!(pairs(&[1.0, 1.15, 1.3]).claim().ends_with("1.15, the median of 3 pairs from 1.00 to 1.30"));
        assert!(pairs(&[1.0, f64::INFINITY, f64::INFINITY]).claim().starts_with(BROKEN), "one that came to nothing");
    }
}
