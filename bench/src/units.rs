//! Units and requests of the same work, on each of our layouts and with each peer that can be run here, in one run. `claims` has what that must show.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fencepost::{Result, Units};
use fencepost_contest::{Row as Line, Task};
use serde_json::{Value, json};

use crate::Done;
use crate::claims::claims;
use crate::contenders::{CONTENDERS, Contender, EVENTUAL, LEDGER, NO_NODE};
use crate::document::Page;
use crate::ground::{self, Ground};
use crate::report::{BROKEN, Report, cell, claim, parts};
use crate::work::{ROWS, Row, TABLES};

#[derive(clap::Args, Clone, Default)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) ground: ground::Place,
    /// Only these rows, by name: append-1, load-100 …
    #[arg(long = "row")]
    pub(crate) rows: Vec<String>,
    /// Only these contenders, by name: "ledger, streams", "dynamo-es 0.5.0" …
    #[arg(long = "who")]
    pub(crate) who: Vec<String>,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    pub(crate) without_peers: bool,
}

impl Args {
    /// As on a command line.
    pub(crate) fn words(&self) -> String {
        let words = self.rows.iter().fold("units".to_owned(), |words, row| format!("{words} --row {row}"));
        self.who.iter().fold(words, |words, who| format!("{words} --who '{who}'"))
    }

    /// All of the work, by everybody.
    pub(crate) fn is_whole(&self) -> bool {
        self.rows.is_empty() && self.who.is_empty() && !self.without_peers
    }
}

/// A whole run ends within this.
const AT_MOST: Duration = Duration::from_secs(600);

/// What was found: by row, then by contender.
#[derive(Default)]
pub(crate) struct Found(pub(crate) BTreeMap<&'static str, BTreeMap<&'static str, Line>>);

impl Found {
    pub(crate) fn line(&self, row: &str, contender: &str) -> Option<&Line> {
        self.0.get(row)?.get(contender)
    }
    pub(crate) fn units(&self, row: &str, contender: &str) -> Option<Units> {
        self.line(row, contender)?.units
    }
    pub(crate) fn add(&mut self, contender: &'static str, line: Line) {
        if let Some(known) = ROWS.iter().find(|known| known.name == line.row) {
            self.0.entry(known.name).or_default().insert(contender, line);
        }
    }
}

/// `4 w + 0.5 r, 2 req`
fn shown(line: &Line) -> Value {
    let Some(units @ Units { write, read, requests }) = line.units else {
        let why = line.cannot.clone().unwrap_or_default();
        return cell(why.clone(), json!({ "cannot": why }));
    };
    let note = line.note.as_ref().map_or(String::new(), |note| format!(", {note}"));
    let figures = json!({ "write": write, "read": read, "requests": requests, "eventual": line.eventual, "note": line.note });
    cell(format!("{}, {requests} req{note}", parts(units, line.eventual)), figures)
}

/// The peers are there already: the clock counts the work alone.
pub(crate) async fn run(args: &Args) -> Result<Done> {
    let began = Instant::now();
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.name)).collect();
    // A load before the append that would make the stream longer.
    let mut order: Vec<String> = wanted.iter().map(|row| row.name.to_owned()).collect();
    order.sort_by_key(|name| !name.starts_with("load-"));
    let (mut found, mut who, mut missing) = (Found::default(), Vec::new(), Vec::new());
    let chosen = |contender: &&Contender| args.who.is_empty() || args.who.iter().any(|name| name == contender.name);
    let measured = CONTENDERS.iter().filter(|contender| contender.units && !(args.without_peers && contender.is_peer()));
    for contender in measured.filter(chosen) {
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
            missing.push(left_out(contender, &why));
        }
        // What it told before it stopped is kept.
        if !lines.is_empty() {
            who.push(contender.name);
        }
        lines.into_iter().for_each(|line| found.add(contender.name, line));
    }
    let took = began.elapsed();
    let in_time = claim(&format!("the run ends within ten minutes: it took {} s", took.as_secs()), took <= AT_MOST);
    let reports = tables(&found, &who, &wanted);
    // Of the ledger, unless others alone were asked for.
    let of_ledger = args.who.is_empty() || args.who.iter().any(|name| name == LEDGER);
    let asked: Vec<&str> = wanted.iter().filter(|_| of_ledger).map(|row| row.name).collect();
    let done = Done { page: Some(Page::Units), who, reports, ..Done::default() };
    Ok(done.without(missing).noting(claims(&found, &asked)).noting(args.is_whole().then_some(in_time)))
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
