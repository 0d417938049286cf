//! Instructions of the hot path, counted by callgrind: a check that does not depend on the machine. The loop is run at two lengths, and their
//! difference divided, so that starting the program does not count.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use fencepost::{Event, HotPath, Result};
use fencepost_contest::{Fault, body};
use serde_json::json;

use crate::report::Report;

const SHORT: u64 = 200;
const LONG: u64 = 700;
/// More than this times what is written down is a finding. Runs of one build differ by less than a hundredth; compilers differ more.
const SLACK: f64 = 1.15;

#[derive(clap::Args)]
pub(crate) struct Hot {
    part: String,
    times: u64,
}

/// Each part of the path, and what it is.
const PARTS: &[(&str, &str)] = &[
    ("plan-1", "plan an append of 1 event"),
    ("encode-1", "plan it and make its item"),
    ("decode-1", "read that item"),
    ("plan-20", "plan an append of 20 events over 21 tags"),
    ("encode-20", "plan it and make its items"),
    ("decode-20", "read those items"),
];

impl Hot {
    pub(crate) fn run(&self) -> Result<()> {
        let event = |n: u64| -> Result<Event> { Event::new("OrderPlaced", body(n))?.tag("order:1") };
        let tagged = |n: u64| event(n)?.tag(format!("customer:{n}"));
        let events = if self.part.ends_with("-20") { (0..20).map(tagged).collect::<Result<_>>()? } else { vec![event(1)?] };
        let path = HotPath::new(events);
        for _ in 0..self.times {
            let done = match self.part.split('-').next() {
                Some("plan") => path.plan(),
                Some("encode") => path.encode(),
                _ => path.decode()?,
            };
            assert!(black_box(done) > 0);
        }
        Ok(())
    }
}

fn counted(part: &str, times: u64) -> std::result::Result<u64, Fault> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let ran = valgrind.args(["hot", part, &times.to_string()]).output().map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    collected.ok_or_else(|| format!("valgrind did not count:\n{said}").into())
}

/// What is written down, by build and part.
type Kept = BTreeMap<String, BTreeMap<String, u64>>;

fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

pub(crate) fn run(write: bool) -> std::result::Result<Report, Fault> {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut known: Kept = serde_json::from_str(&std::fs::read_to_string(kept())?)?;
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (part, says) in PARTS {
        let each = (counted(part, LONG)? - counted(part, SHORT)?) / (LONG - SHORT);
        let before = known.get(build).and_then(|parts| parts.get(*part)).copied();
        rows.push(vec![json!(says), json!(each), json!(before)]);
        if before.is_none_or(|before| each as f64 > before as f64 * SLACK) && !write {
            notes.push(format!(
                "DOES NOT HOLD: {says}: {each} instructions, written down are {}",
                before.map_or("none".into(), |n| n.to_string())
            ));
        }
        known.entry(build.into()).or_default().insert((*part).into(), each);
    }
    if write {
        std::fs::write(kept(), serde_json::to_string_pretty(&known)? + "\n")?;
    }
    let columns = ["instructions of the hot path", &format!("{build} build"), "written down"];
    Ok(Report::new(&columns, rows).with_notes(notes))
}
