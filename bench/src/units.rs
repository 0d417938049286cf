//! Units and requests of the same work, on each of our layouts and with each peer that can be run here, in one run; and what that must show.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fencepost::{Result, Units};
use fencepost_contest::{Row as Line, Task};
use serde_json::{Value, json};

use crate::contenders::{BARE, CONTENDERS, Contender, EVENTUAL, LEDGER, NO_NODE};
use crate::ground::{self, Ground};
use crate::report::{BROKEN, Report, cell, claim};
use crate::work::{ROWS, Row, TABLES};

#[derive(clap::Args, Clone, Default)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) ground: ground::Place,
    /// Only these rows, by name: append-1, load-100 …
    #[arg(long = "row")]
    pub(crate) rows: Vec<String>,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    pub(crate) without_peers: bool,
}

impl Args {
    /// All of the work, by everybody.
    pub(crate) fn is_whole(&self) -> bool {
        self.rows.is_empty() && !self.without_peers
    }
}

/// A whole run ends within this.
const AT_MOST: Duration = Duration::from_secs(600);

/// What was found: by row, then by contender.
#[derive(Default)]
pub(crate) struct Found(BTreeMap<&'static str, BTreeMap<&'static str, Line>>);

impl Found {
    fn line(&self, row: &str, contender: &str) -> Option<&Line> {
        self.0.get(row)?.get(contender)
    }
    fn units(&self, row: &str, contender: &str) -> Option<Units> {
        self.line(row, contender)?.units
    }
    fn add(&mut self, contender: &'static str, line: Line) {
        if let Some(known) = ROWS.iter().find(|known| known.name == line.row) {
            self.0.entry(known.name).or_default().insert(contender, line);
        }
    }
}

/// `4 w + 0.5 r, 2 req`, with `~` at reads that are eventually consistent.
fn shown(line: &Line) -> Value {
    let Some(Units { write, read, requests }) = line.units else {
        let why = line.cannot.clone().unwrap_or_default();
        return cell(why.clone(), json!({ "cannot": why }));
    };
    let part = |units: f64, name: &str| (units > 0.0).then(|| format!("{} {name}", (units * 100.0).round() / 100.0));
    let parts: Vec<String> = [part(write, "w"), part(read, if line.eventual { "r~" } else { "r" })].into_iter().flatten().collect();
    let parts = if parts.is_empty() { "0".to_owned() } else { parts.join(" + ") };
    let note = line.note.as_ref().map_or(String::new(), |note| format!(", {note}"));
    let figures = json!({ "write": write, "read": read, "requests": requests, "eventual": line.eventual, "note": line.note });
    cell(format!("{parts}, {requests} req{note}"), figures)
}

/// What was found, who was measured, and how long it took.
pub(crate) struct Ran {
    pub(crate) reports: Vec<Report>,
    pub(crate) who: Vec<&'static str>,
}

pub(crate) async fn run(args: &Args) -> Result<Ran> {
    let began = Instant::now();
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.name)).collect();
    // A load before the append that would make the stream longer.
    let mut order: Vec<String> = wanted.iter().map(|row| row.name.to_owned()).collect();
    order.sort_by_key(|name| !name.starts_with("load-"));
    let (mut found, mut who, mut notes) = (Found::default(), Vec::new(), Vec::new());
    for contender in CONTENDERS.iter().filter(|contender| contender.units && !(args.without_peers && contender.is_peer())) {
        let rows: Vec<String> = order.iter().filter(|row| contender.does(row)).cloned().collect();
        if rows.is_empty() {
            continue;
        }
        // An engine of its own: one holds a day of stream records in memory, and some leave many.
        let ground = Ground::new(&args.ground).await?;
        let (endpoint, task) = (ground.endpoint().to_owned(), Task::Units(rows));
        let measured = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            let told = |line: Line| {
                eprintln!("{}: {} {}", contender.name, line.row, shown(&line)["shown"].as_str().unwrap_or_default());
                lines.push(line);
            };
            let ended = contender.each(&endpoint, &task, told);
            (lines, ended)
        });
        let (lines, ended) = measured.await.unwrap_or_else(|error| (Vec::new(), Err(error.to_string())));
        if let Err(why) = ended {
            eprintln!("{}: {why}", contender.name);
            notes.push(left_out(contender, &why));
        }
        // What it told before it stopped is kept.
        if !lines.is_empty() {
            who.push(contender.name);
        }
        lines.into_iter().for_each(|line| found.add(contender.name, line));
    }
    let mut reports = tables(&found, &who, &wanted);
    if let Some(last) = reports.last_mut() {
        last.notes.extend(notes);
        last.notes.extend(claims(&found));
        if args.is_whole() {
            let took = began.elapsed();
            last.notes.push(claim(&format!("the run ends within ten minutes: it took {} s", took.as_secs()), took <= AT_MOST));
        }
    }
    Ok(Ran { reports, who })
}

/// A machine without node leaves its peer out; whatever else keeps one from being measured is a failure of the run.
pub(crate) fn left_out(contender: &Contender, why: &str) -> String {
    if why == NO_NODE { format!("left out: {}: {why}", contender.name) } else { format!("{BROKEN}: {} is measured: {why}", contender.name) }
}

/// A line for each contender, a column for each row of the work.
fn tables(found: &Found, contenders: &[&'static str], wanted: &[&Row]) -> Vec<Report> {
    let table = |title: &str| {
        let rows: Vec<&&Row> = wanted.iter().filter(|row| row.table == title).collect();
        let told = |name: &&&'static str| rows.iter().any(|row| found.line(row.name, name).is_some());
        let line = |name: &&'static str| {
            let of = |row: &&&Row| match found.line(row.name, name) {
                Some(line) => shown(line),
                // It is not asked for what is the same as of another line.
                None if *name == EVENTUAL => json!("as above"),
                None => json!("not done"),
            };
            std::iter::once(json!(name)).chain(rows.iter().map(of)).collect()
        };
        let columns: Vec<&str> = std::iter::once("").chain(rows.iter().map(|row| row.head)).collect();
        let notes = rows.iter().map(|row| format!("{}: {}", row.head, row.says)).collect();
        let lines = contenders.iter().filter(told).map(line).collect();
        (!rows.is_empty()).then(|| Report::new(&columns, lines).titled(title).with_notes(notes))
    };
    TABLES.into_iter().filter_map(table).collect()
}

/// Where a peer reads for less because it packs many events, or the snapshot, into one item: on which rows, why, and what would win it.
struct Packed {
    peer: &'static str,
    rows: &'static [&'static str],
    why: &'static str,
    wins: &'static str,
}

/// No other reason is good enough: the rest of the reads must not cost more, at the same consistency.
const PACKED: &[Packed] = &[
    Packed {
        peer: "equinox-js 1.2.0",
        rows: &["load-100", "load-10000", "cold"],
        why: "it packs many events into one item, compressed, and rewrites that item with every append",
        wins: "snapshots, which leave a few events to be read; or to seal the past of a stream into packed items, which costs a second write of each event",
    },
    Packed {
        peer: "equinox-js 1.2.0",
        rows: &["snapshot"],
        why: "the snapshot lies in the item of the newest events, and is written again with every append",
        wins: "a snapshot in the stream's own series, which would be read with the events behind it, and cost its units with the append that carries it",
    },
];

const APPENDS: &[&str] = &["append-1", "append-100", "append-10000", "two-tags", "twenty", "thousand"];
const READS: &[&str] = &["load-100", "load-10000", "snapshot", "cold", "warm", "conflict", "feed"];

/// What the tables must show, and whether they do. Units of write and of read are never added up: one of write costs as much as five of read.
fn claims(found: &Found) -> Vec<String> {
    let mut claims = Vec::new();
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
        let failed = of.iter().filter(|(_, line)| line.cannot.as_ref().is_some_and(|why| why.starts_with(Line::FAILED)));
        claims.extend(failed.map(|(who, _)| format!("{BROKEN}: {who} does {row}")));
    }
    claims
}

/// Each read beside each peer's, ours as consistent as theirs.
fn reads(found: &Found, pairs: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<String> {
    let (mut claims, mut compared, mut broken) = (Vec::new(), 0, 0);
    for (row, peer) in pairs {
        let Some((theirs, eventual)) = found.line(row, peer).and_then(|line| Some((line.units?, line.eventual))) else { continue };
        let who = if eventual { EVENTUAL } else { LEDGER };
        let Some(ours) = found.units(row, who) else { continue };
        compared += 1;
        if ours.read <= theirs.read && ours.write <= theirs.write {
            continue;
        }
        let says = format!("{row}: the {who} takes {ours}, {peer} {theirs}");
        match PACKED.iter().find(|packed| packed.peer == peer && packed.rows.contains(&row) && ours.write <= theirs.write) {
            Some(Packed { why, wins, .. }) => {
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
        let says = format!(
            "of {compared} reads beside peers, as consistent as theirs, none costs more but where the peer packs events into one item"
        );
        claims.insert(0, claim(&says, broken == 0));
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
    fn what_failed_and_who_is_missing_make_the_run_fail_and_a_machine_without_node_does_not() {
        let mut found = found(&[(LEDGER, "warm", units(1.0, 1.0), false)]);
        found.add("dynamo-es 0.5.0", Line::failed("warm", "it fell over"));
        assert_eq!(broken(&found), ["DOES NOT HOLD: dynamo-es 0.5.0 does warm"]);
        let node = CONTENDERS.iter().find(|contender| contender.name.starts_with("equinox-js")).expect("it is there");
        assert!(left_out(node, NO_NODE).starts_with("left out") && left_out(node, "ended with 1").starts_with(BROKEN));
    }
}
