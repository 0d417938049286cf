//! Units and requests of the same work, on each of our layouts and with each peer that can be run here, in one run; and what that must show.

use std::collections::BTreeMap;

use fencepost::{Result, Units};
use fencepost_contest::{Row as Line, Task};
use serde_json::{Value, json};

use crate::contenders::{CONTENDERS, Contender, LEDGER};
use crate::ground::{self, Ground};
use crate::report::Report;
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

/// What was found: by row, then by contender.
#[derive(Default)]
pub(crate) struct Found(BTreeMap<&'static str, BTreeMap<&'static str, Line>>);

impl Found {
    fn units(&self, row: &str, contender: &str) -> Option<Units> {
        self.0.get(row)?.get(contender)?.units
    }
}

/// `4 w + 0.5 r, 2 req`
fn shown(line: Option<&Line>) -> Value {
    let Some(line) = line else { return json!("not done") };
    let Some(Units { write, read, requests }) = line.units else { return json!(line.cannot) };
    let part = |units: f64, name: &str| (units > 0.0).then(|| format!("{} {name}", (units * 100.0).round() / 100.0));
    let parts: Vec<String> = [part(write, "w"), part(read, "r")].into_iter().flatten().collect();
    let parts = if parts.is_empty() { "0".to_owned() } else { parts.join(" + ") };
    json!(format!("{parts}, {requests} req"))
}

pub(crate) async fn run(args: &Args) -> Result<Vec<Report>> {
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.name)).collect();
    // A load before the append that would make the stream longer.
    let mut order: Vec<String> = wanted.iter().map(|row| row.name.to_owned()).collect();
    order.sort_by_key(|name| !name.starts_with("load-"));
    let (mut found, mut columns) = (Found::default(), Vec::new());
    for contender in CONTENDERS.iter().filter(|contender| contender.units && !(args.without_peers && contender.is_peer())) {
        // An engine of its own: one holds a day of stream records in memory, and some leave many.
        let ground = Ground::new(&args.ground).await?;
        let (endpoint, task) = (ground.endpoint().to_owned(), Task::Units(order.clone()));
        let told = move |row: Line| {
            eprintln!("{}: {} {}", contender.name, row.row, shown(Some(&row)).as_str().unwrap_or_default());
            row
        };
        let measured = tokio::task::spawn_blocking(move || {
            let mut rows = Vec::new();
            contender.each(&endpoint, &task, |row| rows.push(told(row))).map(|()| rows)
        });
        match measured.await.map_err(|error| error.to_string()).flatten() {
            Ok(rows) => {
                columns.push(contender.name);
                for row in rows {
                    if let Some(known) = ROWS.iter().find(|known| known.name == row.row) {
                        found.0.entry(known.name).or_default().insert(contender.name, row);
                    }
                }
            }
            Err(why) if contender.is_peer() => eprintln!("{} is left out: {why}", contender.name),
            Err(why) => return Err(fencepost::Error::unavailable(fencepost::Reason::Rejected, why)),
        }
    }
    Ok(tables(&found, &columns, &wanted))
}

/// A line for each contender, a column for each row of the work; what they must show is below the last.
fn tables(found: &Found, contenders: &[&'static str], wanted: &[&Row]) -> Vec<Report> {
    let table = |title: &str| {
        let rows: Vec<&&Row> = wanted.iter().filter(|row| row.table == title).collect();
        let line = |name: &&'static str| {
            let cells = rows.iter().map(|row| shown(found.0.get(row.name).and_then(|of| of.get(name))));
            std::iter::once(json!(name)).chain(cells).collect()
        };
        let columns: Vec<&str> = std::iter::once("").chain(rows.iter().map(|row| row.head)).collect();
        let notes = rows.iter().map(|row| format!("{}: {}", row.head, row.says)).collect();
        (!rows.is_empty()).then(|| Report::new(&columns, contenders.iter().map(line).collect()).titled(title).with_notes(notes))
    };
    let mut tables: Vec<Report> = TABLES.into_iter().filter_map(table).collect();
    if let Some(last) = tables.last_mut() {
        last.notes.extend(claims(found));
    }
    tables
}

/// Where a peer is cheaper, and why: said, and not held against us.
const CHEAPER: &[(&str, &[&str], &str)] = &[
    (
        "equinox-js 1.2.0",
        &["load-100", "load-10000", "cold", "feed"],
        "it packs many events into one item, and rewrites that item with every append",
    ),
    ("equinox-js 1.2.0", &["snapshot"], "the snapshot lies in the item of the newest events, and is written again with every append"),
    (
        "event-store-adapter-rs 3.0.6",
        &["load-100", "load-10000", "cold"],
        "it reads an index, eventually consistent, at half the units; an index may lack the newest",
    ),
    ("event-store-adapter-rs 3.0.6", &["snapshot", "warm", "conflict"], "the same"),
    (
        "event-store-adapter-rs 5.2.0",
        &["load-100", "load-10000", "cold"],
        "its item of an event is about two bytes shorter at this length: ours has the commit's id",
    ),
    (
        "dynamo-es 0.5.0",
        &["load-100", "cold", "warm", "snapshot"],
        "it reads eventually consistent, at half the units, and only the first page",
    ),
];

const APPENDS: &[&str] = &["append-1", "append-100", "append-10000", "two-tags", "twenty", "thousand"];
const READS: &[&str] = &["load-100", "load-10000", "snapshot", "cold", "warm", "conflict", "feed"];

/// What the tables must show, and whether they do.
fn claims(found: &Found) -> Vec<String> {
    let mut claims = Vec::new();
    let mut claim = |says: String, holds: bool| claims.push(format!("{}: {says}", if holds { "holds" } else { "DOES NOT HOLD" }));
    let lengths: Vec<_> = APPENDS[..3].iter().filter_map(|row| found.units(row, LEDGER)).collect();
    if !lengths.is_empty() {
        let one = |units: &Units| units.write == 1.0 && units.read == 0.0 && units.requests == 1;
        let says = format!("the ledger in streams mode appends for 1 write unit and 1 request at {} lengths", lengths.len());
        claim(says, lengths.iter().all(one));
    }
    if let Some(units) = found.units("two-tags", LEDGER) {
        claim(format!("one event on two tags under a condition is at most 4 units: {}", units.write), units.write <= 4.0);
    }
    let sum = |units: Units| units.write + units.read;
    let beside = |row: &&str, peer: &Contender| Some((sum(found.units(row, LEDGER)?), sum(found.units(row, peer.name)?)));
    let peers = || CONTENDERS.iter().filter(|contender| contender.is_peer());
    let dearer: Vec<String> = APPENDS
        .iter()
        .flat_map(|row| peers().map(move |peer| (row, peer)))
        .filter_map(|(row, peer)| beside(row, peer).filter(|(ours, theirs)| ours >= theirs).map(|units| (row, peer, units)))
        .map(|(row, peer, (ours, theirs))| format!("{row} {ours}, {} {theirs}", peer.name))
        .collect();
    if APPENDS.iter().any(|row| peers().any(|peer| beside(row, peer).is_some())) {
        claim(format!("on every append it takes fewer units than any peer{}", joined(&dearer)), dearer.is_empty());
    }
    for (row, peer) in READS.iter().flat_map(|row| peers().map(move |peer| (row, peer))) {
        let Some((ours, theirs)) = beside(row, peer).filter(|(ours, theirs)| ours > theirs) else { continue };
        let why = CHEAPER.iter().find(|(name, rows, _)| *name == peer.name && rows.contains(row)).map(|(.., why)| *why);
        let says = format!("{row}: the ledger in streams mode {ours} units, {} {theirs}", peer.name);
        match why {
            Some(why) => claims.push(format!("not won: {says}; {why}")),
            None => claims.push(format!("DOES NOT HOLD: {says}")),
        }
    }
    claims
}

fn joined(those: &[String]) -> String {
    if those.is_empty() { String::new() } else { format!(", but: {}", those.join("; ")) }
}
