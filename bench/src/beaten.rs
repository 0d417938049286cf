//! Where the ledger takes longer than another: said of every cell, with the reason where one is known. Nothing of it is typed: a line is there as long
//! as the figures say so.

use fencepost_contest::Scenario;

use crate::contenders::{BARE, Contender, DECIDES, LEDGER};
use crate::pairs::{Pairs, of_a_stream};
use crate::report::{BROKEN, within};
use crate::speed::{OVERHEAD, Runs, lost, middle, per_second, ratio, shown};

/// Who did not come through all of its turns: those count as infinitely slow, and are said.
pub(crate) fn by_failing(runs: &Runs, scenario: Scenario) -> Vec<String> {
    let of = runs.iter().filter(|((of, ..), _)| *of == scenario);
    let short = of.filter_map(|((_, writers, who), turns)| {
        let nothing = turns.iter().filter(|turn| turn.as_ref().is_none_or(|turn| turn.done == 0)).count();
        (nothing > 0).then(|| format!("{who}, {}: {nothing} of {} turns came to nothing", at(*writers), turns.len()))
    });
    short.collect()
}

/// By how much medians of a few turns differ from one run to the next, as it was seen on machines of 2026: what is not won by more than this must have
/// a reason that is known.
const NOISE: f64 = 1.05;

/// Of one scenario.
pub(crate) struct Beaten<'a> {
    pub(crate) runs: &'a Runs,
    pub(crate) pairs: &'a [Pairs],
    pub(crate) scenario: Scenario,
}

impl Beaten<'_> {
    /// Beside the bare SDK, what is more than the ledger may add; but for the one that pairs decide.
    pub(crate) fn beside_the_bare_sdk(&self, writers: &[usize]) -> Vec<String> {
        let in_pairs = |writers: &&usize| self.scenario == Scenario::Disjoint && **writers == 1;
        writers.iter().filter(|writers| !in_pairs(writers)).filter_map(|writers| self.not_won(*writers, BARE, OVERHEAD)).collect()
    }

    /// Beside each peer, whatever is longer.
    pub(crate) fn beside_peers(&self, writers: &[usize], present: &[&'static Contender]) -> Vec<String> {
        let peers = present.iter().filter(|contender| contender.is_peer());
        peers.flat_map(|peer| writers.iter().filter_map(|writers| self.not_won(*writers, peer.name, 1.0))).collect()
    }

    fn ratio(&self, writers: usize, one: &'static str, other: &'static str) -> Option<f64> {
        ratio(self.runs, (self.scenario, writers), one, other)
    }

    fn not_won(&self, writers: usize, other: &'static str, most: f64) -> Option<String> {
        let found = self.ratio(writers, LEDGER, other)?;
        if within(found, most) {
            return None;
        }
        let times = if found.is_finite() { format!("{} times the time", shown(found)) } else { "it came to nothing".into() };
        let says = format!("not won, {times}: {}, {}, beside {other}", self.scenario, at(writers));
        Some(match self.why(writers, other) {
            Some(why) => format!("{says}: {why}"),
            None if within(found, most * NOISE) => format!("{says}; no reason is known, and another run may say otherwise"),
            None => format!("{BROKEN}: what is not won has a reason that is known; {says}"),
        })
    }

    /// The reason, where it is known and explains as much, and what wins it.
    fn why(&self, writers: usize, other: &'static str) -> Option<String> {
        if other.starts_with("umadb") {
            return Some("it writes to a file in the writers' process, without a network and a service between".into());
        }
        match (self.scenario, writers, other) {
            (Scenario::Boundaries, _, BARE) => {
                let races =
                    self.races(writers, other).map_or(String::new(), |(says, _)| format!("; {says}. {}", self.decides(writers, other)));
                Some(format!(
                    "every decision reads what the other boundaries left on its two tags: the ledger makes events of it, each once \
                     though it lies on both, and judges them by the query, where the floor takes types and bodies{races}"
                ))
            }
            (Scenario::Disjoint, 2.., BARE) => self.at_work(writers),
            (Scenario::Disjoint | Scenario::Hot, 1, _) if other.starts_with("dynamo-es") => {
                let stream = of_a_stream(self.pairs).filter(|stream| !within(*stream, 1.0))?;
                Some(format!(
                    "its table has no stream, and ours has one, for the feed, into which the engine copies every write: the bare SDK \
                     takes {} times as long with one as without. What would win it: a table without a stream, and so without this feed",
                    shown(stream)
                ))
            }
            (Scenario::Hot, 2.., _) => {
                let ((says, explains), found) = (self.races(writers, other)?, self.ratio(writers, LEDGER, other)?);
                let most = if other == BARE { OVERHEAD } else { 1.0 };
                let of_stream = of_a_stream(self.pairs).filter(|_| other.starts_with("dynamo-es")).unwrap_or(1.0).max(1.0);
                within(found, explains * of_stream * most * NOISE).then(|| {
                    let next = "each of its tries goes on from what the last refusal brought, while others move on";
                    let stream = if of_stream > 1.0 { "; and the other's table has no stream" } else { "" };
                    format!("{says}: {next}{stream}. {}", self.decides(writers, other))
                })
            }
            _ => None,
        }
    }

    /// Races lost, as both tell of them, and by how many times more tries that is.
    fn races(&self, writers: usize, other: &'static str) -> Option<(String, f64)> {
        let of = |who| lost(self.runs, (self.scenario, writers, who));
        let (ours, theirs) = (of(LEDGER)?, of(other)?);
        (writers > 1)
            .then(|| (format!("it loses {ours:.1} races for each that it wins, the other {theirs:.1}"), (ours + 1.0) / (theirs + 1.0)))
    }

    /// The same store, by the call that its users have: whether that wins it is for the figures to say.
    fn decides(&self, writers: usize, other: &'static str) -> String {
        match self.ratio(writers, DECIDES, other) {
            Some(ratio) if within(ratio, 1.0) => {
                format!("What wins it: `decide`, which queues those of one process, and takes {} times its time", shown(ratio))
            }
            Some(ratio) => {
                format!("`decide`, which queues those of one process, takes {} times its time, and does not win it either", shown(ratio))
            }
            None => "`decide` queues those of one process".into(),
        }
    }

    /// Where all cores are at work, nothing of what the store adds is waited out: what it adds at one writer, beside the cores' time
    /// of an operation.
    fn at_work(&self, writers: usize) -> Option<String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let per_second = |writers, who| middle(self.runs, (self.scenario, writers, who), per_second);
        let added = 1.0 / per_second(1, LEDGER)? - 1.0 / per_second(1, BARE)?;
        let explains = 1.0 + added * per_second(writers, BARE)? / cores;
        let found = self.ratio(writers, LEDGER, BARE)?;
        (added > 0.0 && within(found, explains * NOISE)).then(|| {
            format!(
                "with all {cores} cores at work nothing of what the store adds is waited out: {:.0} µs an operation, as at one writer, \
                 are {} times the time here. What would win it: fewer instructions (`instructions` counts them), or more cores",
                added * 1e6,
                shown(explains)
            )
        })
    }
}

/// Below the table of starting, size and memory: why a program on the ledger has more than one on the bare SDK, as its code says, of whichever column
/// (1 to 4) it has more.
pub(crate) fn by_what_is_carried(has_more: impl Fn(usize) -> bool) -> Vec<String> {
    let start = "not won, start: before its first append the store reads the settings of its namespace, which is a request more than the \
                 others send";
    let binary = "not won, binary: whoever links the crate has all of its layouts, of which the URL names one when it is opened; zstd, brotli \
                  and deflate for their bodies; and aws-config with the clients of STS and SSO, for credentials, where the others are handed a \
                  client. What would win it: features for layouts, and for the credentials";
    let memory = "not won, memory: at rest it is of these small programs, the larger of which has more code in it. Under load it is of the \
                  benchmark's own: the bare SDK and the ledger run in one that carries the engine, its server and all of our layouts, the \
                  Rust peers in one that carries all of them";
    let said = [(has_more(1), start), (has_more(2), binary), (has_more(3) || has_more(4), memory)];
    said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, says)| says.to_owned()).collect()
}

fn at(writers: usize) -> String {
    if writers == 1 { "1 writer".into() } else { format!("{writers} writers") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_contest::{Timed, first};

    fn turn(done: u64) -> Option<Timed> {
        Some(Timed { done, seconds: 1.0, ..first() })
    }

    fn runs(cell: (Scenario, usize), of: &[(&'static str, &[u64])]) -> Runs {
        of.iter().map(|(who, turns)| ((cell.0, cell.1, *who), turns.iter().map(|done| turn(*done)).collect())).collect()
    }

    #[test]
    fn a_turn_that_came_to_nothing_is_infinitely_slow() {
        let cell = (Scenario::Hot, 64);
        for (ours, theirs, found) in [
            ([100, 0, 100], [100, 100, 100], "1.00"),
            ([100, 0, 0], [100, 100, 100], "–"),
            ([100, 100, 100], [50, 0, 0], "–"),
            ([0, 0, 0], [0, 0, 0], "1.00"),
            ([100, 200, 300], [100, 100, 100], "0.50"),
        ] {
            let runs = runs(cell, &[(LEDGER, &ours), (BARE, &theirs)]);
            assert_eq!(shown(ratio(&runs, cell, LEDGER, BARE).expect("it is there")), found, "{ours:?} {theirs:?}");
        }
        // One that did not come through at all, too.
        let mut failed = runs(cell, &[(LEDGER, &[100]), (BARE, &[100])]);
        failed.insert((cell.0, cell.1, LEDGER), vec![None]);
        assert_eq!(ratio(&failed, cell, LEDGER, BARE), Some(f64::INFINITY));
        assert_eq!(by_failing(&failed, cell.0), [format!("{LEDGER}, 64 writers: 1 of 1 turns came to nothing")]);
    }

    fn said(runs: &Runs, cell: (Scenario, usize), pairs: &[Pairs]) -> Vec<String> {
        let beaten = Beaten { runs, pairs, scenario: cell.0 };
        let present: Vec<&Contender> = crate::contenders::CONTENDERS.iter().collect();
        [beaten.beside_the_bare_sdk(&[cell.1]), beaten.beside_peers(&[cell.1], &present)].concat()
    }

    #[test]
    fn what_the_ledger_may_add_is_no_loss_as_it_is_shown() {
        let cell = (Scenario::Hot, 1);
        for (bare, beaten) in [(114, false), (115, false), (1_154, false), (116, true)] {
            let ours = if bare > 1_000 { 1_000 } else { 100 };
            let runs = runs(cell, &[(LEDGER, &[ours]), (BARE, &[bare])]);
            assert_eq!(said(&runs, cell, &[]).len(), usize::from(beaten), "{bare}: {:?}", said(&runs, cell, &[]));
        }
        // Beside a peer nothing; and of one writer on its own stream the pairs decide.
        let peer = runs(cell, &[(LEDGER, &[100]), (BARE, &[100]), ("dynamo-es 0.5.0", &[102])]);
        assert_eq!(said(&peer, cell, &[]).len(), 1);
        let disjoint = (Scenario::Disjoint, 1);
        assert!(said(&runs(disjoint, &[(LEDGER, &[100]), (BARE, &[200])]), disjoint, &[]).is_empty());
    }

    #[test]
    fn what_takes_longer_without_a_known_reason_does_not_hold_beyond_the_noise() {
        let cell = (Scenario::Disjoint, 16);
        for (theirs, says) in [(99, None), (104, Some("not won, 1.04 times the time: disjoint, 16 writers, beside ")), (106, Some(BROKEN))]
        {
            let runs = runs(cell, &[(LEDGER, &[100]), ("event-store-adapter-rs 5.2.0", &[theirs])]);
            let said = said(&runs, cell, &[]);
            assert_eq!(said.len(), usize::from(says.is_some()), "{said:?}");
            assert!(says.is_none_or(|says| said[0].starts_with(says)), "{said:?}");
        }
        let nothing = runs(cell, &[(LEDGER, &[0]), (BARE, &[100])]);
        assert!(said(&nothing, cell, &[])[0].contains("not won, it came to nothing: "));
    }
    /// A turn of one second, with so many races lost.
    fn raced(done: u64, conflicts: u64) -> Vec<Option<Timed>> {
        vec![Some(Timed { done, seconds: 1.0, conflicts: Some(conflicts), ..first() })]
    }

    #[test]
    fn on_a_hot_stream_the_races_lost_are_a_reason_as_far_as_they_go() {
        let cell = (Scenario::Hot, 64);
        let key = |who| (cell.0, cell.1, who);
        // Twice the tries: twice the time is explained, three times is not.
        for (ours, explained) in [(50, true), (33, false)] {
            let runs = [(key(LEDGER), raced(ours, 7 * ours)), (key(BARE), raced(100, 300)), (key(DECIDES), raced(200, 0))];
            let said = said(&runs.into(), cell, &[]);
            assert_eq!(
                said[0].starts_with("not won, 2.00 times the time: hot, 64 writers, beside bare SDK: it loses 7.0 races"),
                explained,
                "{said:?}"
            );
            assert_eq!(said[0].starts_with(BROKEN), !explained, "{said:?}");
            assert!(
                !explained || said[0].ends_with("What wins it: `decide`, which queues those of one process, and takes 0.50 times its time")
            );
        }
        // Who does not tell of races explains nothing.
        let silent = [(key(LEDGER), raced(50, 350)), (key("equinox-js 1.2.0"), vec![turn(100)])];
        assert!(said(&silent.into(), cell, &[])[0].starts_with(BROKEN));
    }

    #[test]
    fn with_all_cores_at_work_what_is_added_weighs_more_and_no_more_than_that() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        // 50 µs are added at one writer; of the cores' time an operation takes 100 µs.
        for (ours, explained) in [(cores * 10_000 / 3 * 2, true), (cores * 5_000, false)] {
            let mut runs = runs((Scenario::Disjoint, 64), &[(LEDGER, &[ours]), (BARE, &[cores * 10_000])]);
            runs.extend(self::runs((Scenario::Disjoint, 1), &[(LEDGER, &[4_000]), (BARE, &[5_000])]));
            let said = said(&runs, (Scenario::Disjoint, 64), &[]);
            assert_eq!(said[0].contains("cores at work") && !said[0].starts_with(BROKEN), explained, "{said:?}");
        }
    }
}
