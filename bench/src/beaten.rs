//! Where the ledger takes longer than another: said of every cell, with the reason where one is known. Nothing of it is typed: a line is there as long
//! as the figures say so.

use fencepost_contest::Scenario;

use crate::contenders::{BARE, Contender, DECIDES, LEDGER};
use crate::speed::{OVERHEAD, Runs, ratio, shown};

/// Who did not come through all of its turns: those count as infinitely slow, and are said.
pub(crate) fn by_failing(runs: &Runs, scenario: Scenario) -> Vec<String> {
    let of = runs.iter().filter(|((of, ..), _)| *of == scenario);
    let short = of.filter_map(|((_, writers, who), turns)| {
        let nothing = turns.iter().filter(|turn| turn.as_ref().is_none_or(|turn| turn.done == 0)).count();
        (nothing > 0).then(|| format!("{who}, {}: {nothing} of {} turns came to nothing", at(*writers), turns.len()))
    });
    short.collect()
}

/// Beside the bare SDK, what is more than the ledger may add.
pub(crate) fn beside_the_bare_sdk(runs: &Runs, scenario: Scenario, writers: &[usize]) -> Vec<String> {
    let cells = writers.iter().filter_map(|writers| not_won(runs, (scenario, *writers), BARE, OVERHEAD));
    cells.collect()
}

/// Beside each peer, whatever is longer.
pub(crate) fn beside_peers(runs: &Runs, scenario: Scenario, writers: &[usize], present: &[&'static Contender]) -> Vec<String> {
    let peers = present.iter().filter(|contender| contender.is_peer());
    peers.flat_map(|peer| writers.iter().filter_map(|writers| not_won(runs, (scenario, *writers), peer.name, 1.0))).collect()
}

fn at(writers: usize) -> String {
    if writers == 1 { "1 writer".into() } else { format!("{writers} writers") }
}

fn not_won(runs: &Runs, cell: (Scenario, usize), other: &'static str, most: f64) -> Option<String> {
    let found = ratio(runs, cell, LEDGER, other)?;
    // As it is shown: what is not seen in a cell is not said below it.
    if (found * 100.0).round() <= most * 100.0 {
        return None;
    }
    let times = if found.is_finite() { format!("{} times the time", shown(found)) } else { "it came to nothing".into() };
    let (scenario, writers) = cell;
    Some(format!("not won, {times}: {scenario}, {}, beside {other}{}", at(writers), why(runs, cell, other)))
}

/// The reason, where it is known, and what wins it.
fn why(runs: &Runs, cell: (Scenario, usize), other: &'static str) -> String {
    let (scenario, writers) = cell;
    if other.starts_with("umadb") {
        return ": it writes to a file in the writers' process, without a network and a service between".into();
    }
    if scenario == Scenario::Disjoint || writers == 1 {
        return "; no reason is known".into();
    }
    // The same store, by the call that its users have: whether that wins it is for the figures to say.
    let decides = match ratio(runs, cell, DECIDES, other) {
        Some(ratio) if ratio <= 1.0 => {
            format!("What wins it: `decide`, which queues those of one process, and takes {} times its time", shown(ratio))
        }
        Some(ratio) => {
            format!("`decide`, which queues those of one process, takes {} times its time, and does not win it either", shown(ratio))
        }
        None => "`decide` queues those of one process".into(),
    };
    format!(": here the ledger is driven by a loop of the benchmark's, in which whoever loses tries again at once. {decides}")
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

    #[test]
    fn what_takes_longer_is_said_with_what_wins_it() {
        let cell = (Scenario::Hot, 64);
        let slow = runs(cell, &[(LEDGER, &[50]), (BARE, &[100]), (DECIDES, &[200])]);
        let said = beside_the_bare_sdk(&slow, cell.0, &[64]);
        assert!(said[0].starts_with("not won, 2.00 times the time: hot, 64 writers, beside bare SDK: "), "{said:?}");
        assert!(said[0].contains("What wins it: `decide`") && said[0].ends_with("takes 0.50 times its time"), "{said:?}");
        let slower = runs(cell, &[(LEDGER, &[50]), (BARE, &[100]), (DECIDES, &[20])]);
        assert!(beside_the_bare_sdk(&slower, cell.0, &[64])[0].ends_with("takes 5.00 times its time, and does not win it either"));
        let nothing = runs(cell, &[(LEDGER, &[0]), (BARE, &[100])]);
        assert!(beside_the_bare_sdk(&nothing, cell.0, &[64])[0].starts_with("not won, it came to nothing: "));
        // What the ledger may add to the bare SDK, and no more; beside a peer nothing.
        let close = runs(cell, &[(LEDGER, &[100]), (BARE, &[114]), ("dynamo-es 0.5.0", &[102])]);
        assert!(beside_the_bare_sdk(&close, cell.0, &[64]).is_empty());
        let present: Vec<&Contender> = crate::contenders::CONTENDERS.iter().collect();
        assert_eq!(beside_peers(&close, cell.0, &[64], &present).len(), 1);
    }
}
