//! What the tables of units must show, and whether they do; and where another takes less: why, and what would win it. Nothing of it is typed: a line
//! is there as long as the figures say so.

use fencepost::Units;
use fencepost_contest::Row as Line;

use crate::contenders::{BARE, CONTENDERS, EVENTUAL, LEDGER};
use crate::report::{BROKEN, claim};
use crate::units::Found;

/// Where a peer takes fewer units of read for a reason that is known: on which rows, why, and what would win it.
struct Known {
    peer: &'static str,
    rows: &'static [&'static str],
    why: &'static str,
    wins: &'static str,
}

/// No other reason is good enough: the rest of the reads must not cost more.
const KNOWN: &[Known] = &[
    Known {
        peer: "equinox-js 1.2.0",
        rows: &["load-100", "load-10000", "cold"],
        why: "it packs many events into one item, compressed, and rewrites that item with every append",
        wins: "snapshots, which leave a few events to be read; or to seal the past of a stream into packed items, which costs a second write of each event",
    },
    Known {
        peer: "equinox-js 1.2.0",
        rows: &["snapshot"],
        why: "the snapshot lies in the item of the newest events, and is written again with every append",
        wins: "a snapshot in the stream's own series, which would be read with the events behind it, and cost its units with the append that carries it",
    },
];

const APPENDS: &[&str] = &["append-1", "append-100", "append-10000", "two-tags", "twenty", "thousand"];
const READS: &[&str] =
    &["load-100", "load-10000", "snapshot", "cold", "warm", "conflict", "feed", "idle", "consumer", "index", "idle-index"];

/// What the tables must show, and whether they do; with the rows that the ledger was asked for, of which none may be missing. Units of write and of
/// read are never added up: one of write costs as much as five of read.
pub(crate) fn claims(found: &Found, asked: &[&str]) -> Vec<String> {
    let mut claims = Vec::new();
    let missing = asked.iter().filter(|row| found.line(row, LEDGER).is_none_or(|line| line.units.is_none()));
    claims.extend(missing.map(|row| format!("{BROKEN}: the ledger in streams mode does {row}")));
    let lengths: Vec<_> = APPENDS[..3].iter().filter_map(|row| found.units(row, LEDGER)).collect();
    if !lengths.is_empty() {
        let one = |units: &Units| units.write == 1.0 && units.read == 0.0 && units.requests == 1;
        let says = format!("the ledger in streams mode appends for 1 write unit and 1 request at {} lengths", lengths.len());
        claims.push(claim(&says, lengths.iter().all(one)));
    }
    if let Some(units) = found.units("two-tags", LEDGER) {
        let says = format!("one event on two tags under a condition is at most 4 units: {}", units.write);
        claims.push(claim(&says, units.write <= 4.0 && units.read == 0.0));
    }
    let peers = || CONTENDERS.iter().filter(|contender| contender.is_peer());
    let pairs = |rows: &'static [&'static str]| rows.iter().flat_map(move |row| peers().map(move |peer| (*row, peer.name)));
    let appends: Vec<_> =
        pairs(APPENDS).filter_map(|(row, peer)| Some((row, peer, found.units(row, LEDGER)?, found.units(row, peer)?))).collect();
    // One unit and no read is the least that DynamoDB bills: nobody can take fewer, but another may take the same.
    let least = |units: &Units| units.write == 1.0 && units.read == 0.0;
    let is_tie = |ours: &Units, theirs: &Units| least(ours) && least(theirs);
    let dearer =
        appends.iter().filter(|(.., ours, theirs)| (ours.write >= theirs.write || ours.read > theirs.read) && !is_tie(ours, theirs));
    let dearer: Vec<String> = dearer.map(|(row, peer, ours, theirs)| format!("{row} {ours}, {peer} {theirs}")).collect();
    if !appends.is_empty() {
        let ties = appends.iter().filter(|(.., ours, theirs)| is_tie(ours, theirs));
        let ties: Vec<String> = ties.map(|(row, peer, ..)| format!("as many as {peer} on {row}: 1, the least there is")).collect();
        let but = joined(&[ties, dearer.clone()].concat());
        claims.push(claim(&format!("on every append it takes fewer units than any peer{but}"), dearer.is_empty()));
    }
    claims.extend(reads(found, pairs(READS)));
    claims.extend(beside_the_floor(found));
    for (row, of) in &found.0 {
        let failed =
            of.iter().filter(|(who, line)| **who != LEDGER && line.cannot.as_ref().is_some_and(|why| why.starts_with(Line::FAILED)));
        claims.extend(failed.map(|(who, _)| format!("{BROKEN}: {who} does {row}")));
    }
    claims
}

/// Each read beside each peer's, ours as consistent as theirs where ours can be either.
fn reads(found: &Found, pairs: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<String> {
    let (mut claims, mut compared, mut broken) = (Vec::new(), 0, 0);
    for (row, peer) in pairs {
        let Some((theirs, eventual)) = found.line(row, peer).and_then(|line| Some((line.units?, line.eventual))) else { continue };
        // A row that has no line of eventual reads is compared as it is.
        let who = if eventual && found.units(row, EVENTUAL).is_some() { EVENTUAL } else { LEDGER };
        let Some(ours) = found.units(row, who) else { continue };
        compared += 1;
        if ours.read <= theirs.read && ours.write <= theirs.write {
            continue;
        }
        let says = format!("{row}: the {who} takes {ours}, {peer} {theirs}");
        let known = KNOWN.iter().find(|known| known.peer == peer && known.rows.contains(&row));
        match known.filter(|_| ours.write <= theirs.write) {
            Some(Known { why, wins, .. }) => {
                let times = ours.read / theirs.read;
                claims.push(format!("not won, {times:.1} times the units of read: {says}; {why}. What would win it: {wins}"));
            }
            None => {
                broken += 1;
                claims.push(format!("{BROKEN}: {says}"));
            }
        }
    }
    if compared > 0 {
        let not_won = claims.len() - broken;
        let but =
            if not_won == 0 { String::new() } else { format!(" but the {not_won} that are not won, each for a reason that is known") };
        claims.insert(0, claim(&format!("of {compared} reads beside peers none costs more{but}"), broken == 0));
    }
    claims
}

/// Where the ledger takes more than the fewest units that hold what is asked.
fn beside_the_floor(found: &Found) -> Option<String> {
    let (ours, floor) = (found.units("twenty", LEDGER)?, found.units("twenty", BARE)?);
    (ours.write > floor.write).then(|| {
        format!(
            "not the floor: 20 events over 21 tags take {} units of write, the bare SDK {}: the floor leaves only pointers on the shared tag, and so \
             20 more reads to whoever loads it; the ledger puts the bodies there too, compressed, and one query reads them all",
            ours.write, floor.write
        )
    })
}

fn joined(those: &[String]) -> String {
    if those.is_empty() { String::new() } else { format!(", but: {}", those.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::NO_NODE;
    use crate::units::left_out;

    fn units(write: f64, read: f64) -> Units {
        Units { write, read, requests: 1 }
    }

    fn found(lines: &[(&'static str, &str, Units, bool)]) -> Found {
        let mut found = Found::default();
        for (who, row, units, eventual) in lines {
            found.add(who, Line { eventual: *eventual, ..Line::of(row, *units) });
        }
        found
    }

    /// Asked for all that is there of the ledger.
    fn claims(found: &Found) -> Vec<String> {
        let asked: Vec<&str> = found.0.iter().filter(|(_, of)| of.contains_key(LEDGER)).map(|(row, _)| *row).collect();
        super::claims(found, &asked)
    }

    fn broken(found: &Found) -> Vec<String> {
        claims(found).into_iter().filter(|claim| claim.starts_with(BROKEN)).collect()
    }

    #[test]
    fn a_read_that_costs_more_than_a_peers_is_a_failure_unless_the_peer_packs() {
        let (v5, equinox) = ("event-store-adapter-rs 5.2.0", "equinox-js 1.2.0");
        for (peer, ours, theirs, fails) in [(v5, 14.0, 14.0, false), (v5, 14.5, 14.0, true), (equinox, 14.0, 7.0, false)] {
            let found = found(&[(LEDGER, "load-100", units(0.0, ours), false), (peer, "load-100", units(0.0, theirs), false)]);
            assert_eq!(!broken(&found).is_empty(), fails, "{peer} {ours} {theirs}: {:?}", claims(&found));
        }
        // Packing excuses no row on which nothing is packed, and never a write.
        let warm = found(&[(LEDGER, "warm", units(1.0, 2.0), false), (equinox, "warm", units(2.0, 1.0), false)]);
        assert_eq!(broken(&warm).len(), 2, "{:?}", claims(&warm));
        let cold = found(&[(LEDGER, "cold", units(3.0, 14.0), false), (equinox, "cold", units(2.0, 7.0), false)]);
        assert_eq!(broken(&cold).len(), 2, "{:?}", claims(&cold));
    }

    #[test]
    fn a_peer_that_reads_eventually_is_compared_with_eventual_reads_of_ours() {
        let v3 = "event-store-adapter-rs 3.0.6";
        for (eventual, fails) in [(7.0, false), (8.0, true)] {
            let found = found(&[
                (LEDGER, "load-100", units(0.0, 14.0), false),
                (EVENTUAL, "load-100", units(0.0, eventual), true),
                (v3, "load-100", units(0.0, 7.5), true),
            ]);
            assert_eq!(!broken(&found).is_empty(), fails, "{:?}", claims(&found));
        }
    }

    #[test]
    fn a_write_is_not_made_up_for_by_fewer_reads() {
        let dynamo_es = "dynamo-es 0.5.0";
        let same = found(&[(LEDGER, "append-1", units(1.0, 0.0), false), (dynamo_es, "append-1", units(1.0, 9.0), false)]);
        assert_eq!(broken(&same).len(), 1, "{:?}", claims(&same));
        // The least that there is cannot be undercut, and is said to be a tie.
        let tie = found(&[(LEDGER, "append-1", units(1.0, 0.0), false), (dynamo_es, "append-1", units(1.0, 0.0), false)]);
        assert!(broken(&tie).is_empty() && claims(&tie).concat().contains("as many as dynamo-es 0.5.0 on append-1"), "{:?}", claims(&tie));
        let fours = found(&[(LEDGER, "two-tags", units(4.0, 0.0), false), (dynamo_es, "two-tags", units(4.0, 0.0), false)]);
        assert_eq!(broken(&fours).len(), 1, "{:?}", claims(&fours));
        let two = found(&[(LEDGER, "conflict", units(3.0, 0.0), false), (dynamo_es, "conflict", units(2.0, 9.0), false)]);
        assert_eq!(broken(&two).len(), 2, "{:?}", claims(&two));
    }

    #[test]
    fn idle_looks_and_feeds_have_no_excuse() {
        let equinox = "equinox-js 1.2.0";
        for (ours, fails) in [(1800.0, false), (1900.0, true)] {
            let found = found(&[(LEDGER, "idle", units(0.0, ours), true), (equinox, "idle", units(0.0, 1800.0), true)]);
            assert_eq!(!broken(&found).is_empty(), fails, "{:?}", claims(&found));
        }
        // A feed is compared too, where the ledger has no line of eventual reads.
        let feed = found(&[(LEDGER, "feed", units(0.0, 22.0), false), (equinox, "feed", units(0.0, 40.5), true)]);
        assert_eq!(claims(&feed), ["holds: of 1 reads beside peers none costs more"]);
        // And an indexer, for whose reads there is no excuse.
        for (read, fails) in [(0.0, false), (0.5, true)] {
            let index = found(&[(LEDGER, "index", units(1.0, read), false), (equinox, "index", units(2.0, 0.0), false)]);
            assert_eq!(!broken(&index).is_empty(), fails, "{:?}", claims(&index));
        }
    }

    #[test]
    fn a_row_that_the_ledger_was_asked_for_and_did_not_do_is_a_failure() {
        let one = found(&[(LEDGER, "append-1", units(1.0, 0.0), false)]);
        let broken = |found: &Found, asked: &[&str]| super::claims(found, asked).iter().filter(|claim| claim.starts_with(BROKEN)).count();
        assert_eq!(broken(&one, &["append-1"]), 0);
        assert_eq!(broken(&one, &["append-1", "append-100", "two-tags"]), 2, "{:?}", super::claims(&one, &["append-100", "two-tags"]));
        assert_eq!(broken(&Found::default(), &["load-100"]), 1, "nor one of which nobody told");
        // One that it says it cannot do is as much a failure, and told once.
        let mut failed = one;
        failed.add(LEDGER, Line::failed("two-tags", "it fell over"));
        assert_eq!(broken(&failed, &["append-1", "two-tags"]), 1);
    }

    #[test]
    fn what_failed_and_who_is_missing_make_the_run_fail_and_a_machine_without_node_does_not() {
        let mut found = found(&[(LEDGER, "warm", units(1.0, 1.0), false)]);
        found.add("dynamo-es 0.5.0", Line::failed("warm", "it fell over"));
        assert_eq!(broken(&found), ["DOES NOT HOLD: dynamo-es 0.5.0 does warm"]);
        let node = CONTENDERS.iter().find(|contender| contender.name.starts_with("equinox-js")).expect("it is there");
        assert!(left_out(node, NO_NODE).starts_with("left out") && left_out(node, "ended with 1").starts_with(BROKEN));
    }
}
