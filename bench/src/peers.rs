//! Rivals: their own programs, built and run beside ours on the same endpoint, a line of JSON for each row.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use fencepost::Units;
use serde::Deserialize;

use crate::ours::Found;

/// As `bench/peers` knows them.
pub(crate) const PEERS: &[&str] = &["event-store-adapter-rs 3.0.6", "event-store-adapter-rs 5.2.0", "dynamo-es 0.5.0"];

#[derive(Deserialize)]
struct Line {
    row: String,
    units: Option<Units>,
    cannot: Option<String>,
}

/// What a peer comes to, by row; or why it could not be run.
pub(crate) fn measure(peer: &str, endpoint: &str, rows: &[&str]) -> Result<BTreeMap<String, Found>, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/Cargo.toml");
    if !manifest.exists() {
        return Err("bench/peers is not here".into());
    }
    let mut cargo = Command::new("cargo");
    cargo.arg("run").arg("--quiet").arg("--manifest-path").arg(&manifest);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Their build is theirs: not in the folder that this one may be told to build in.
    cargo.env_remove("CARGO_TARGET_DIR").arg("--").arg(peer).arg(endpoint).args(rows);
    let ran = cargo.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    if !ran.status.success() {
        return Err(format!("{peer} ended with {}", ran.status));
    }
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&ran.stdout).lines() {
        let Line { row, units, cannot } = serde_json::from_str(line).map_err(|error| format!("{peer} printed {line}: {error}"))?;
        found.insert(row, units.map_or_else(|| Found::Cannot(cannot.unwrap_or_default()), Found::Units));
    }
    Ok(found)
}
