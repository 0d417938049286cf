//! Who is measured: our layouts and the bare SDK by this program, the peers by theirs; each in a process of its own on the same endpoint, which
//! is told a task and answers with lines of JSON.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use fencepost_contest::{RUN, Scenario, Task};
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// This program.
    Us,
    /// `bench/peers`, a crate outside the workspace, built when it is first run.
    Rust,
    /// `bench/peers/equinox`, where node is there.
    Node,
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) by: By,
    /// Whether it has streams, and whether boundaries over tags.
    streams: bool,
    boundaries: bool,
    /// Whether it writes to DynamoDB, and so has units.
    pub(crate) units: bool,
    /// Only these rows of the work; all, where there are none.
    pub(crate) only: &'static [&'static str],
}

const fn ours(name: &'static str, boundaries: bool) -> Contender {
    Contender { name, by: By::Us, streams: true, boundaries, units: true, only: &[] }
}
const fn peer(name: &'static str, by: By) -> Contender {
    Contender { name, by, streams: true, boundaries: false, units: true, only: &[] }
}

pub(crate) const BARE: &str = "bare SDK";
pub(crate) const LEDGER: &str = "ledger, streams";
/// The same by decisions, as its users write them; only timed.
pub(crate) const DECIDES: &str = "ledger, streams, decide";
/// The floor on a table without a stream, to tell what a stream adds; only beside [`BARE`].
pub(crate) const UNSTREAMED: &str = "bare SDK, without a stream";
/// The same with loads that ask for no more than some peers do.
pub(crate) const EVENTUAL: &str = "ledger, streams, eventual";
const LOADING: &[&str] = &["load-100", "load-10000", "snapshot", "cold", "warm", "conflict"];

pub(crate) const CONTENDERS: &[Contender] = &[
    ours(BARE, true),
    ours(LEDGER, true),
    Contender { name: DECIDES, by: By::Us, streams: true, boundaries: true, units: false, only: &[] },
    Contender { name: EVENTUAL, by: By::Us, streams: false, boundaries: false, units: true, only: LOADING },
    Contender { name: UNSTREAMED, by: By::Us, streams: false, boundaries: false, units: false, only: &[] },
    ours("ledger, lanes-1", true),
    ours("equinox", false),
    ours("event-store-adapter v3", false),
    ours("event-store-adapter v5", false),
    ours("sekiban", true),
    ours("reventless", true),
    peer("event-store-adapter-rs 3.0.6", By::Rust),
    peer("event-store-adapter-rs 5.2.0", By::Rust),
    peer("dynamo-es 0.5.0", By::Rust),
    peer("equinox-js 1.2.0", By::Node),
    Contender { name: "umadb 0.7.8", by: By::Rust, streams: false, boundaries: true, units: false, only: &[] },
];

impl Contender {
    pub(crate) fn can(&self, scenario: Scenario) -> bool {
        if scenario == Scenario::Boundaries { self.boundaries } else { self.streams }
    }

    /// Whether it is measured as a stream grows.
    pub(crate) fn grows(&self) -> bool {
        self.units && self.streams
    }

    /// Whether it is timed at all.
    pub(crate) fn races(&self) -> bool {
        self.streams || self.boundaries
    }

    /// Whether it does this row of the work.
    pub(crate) fn does(&self, row: &str) -> bool {
        self.units && (self.only.is_empty() || self.only.contains(&row))
    }

    pub(crate) fn is_peer(&self) -> bool {
        self.by != By::Us
    }

    /// Does a task, and hands over each line as it comes; or why it could not.
    pub(crate) fn each<T: DeserializeOwned>(&self, endpoint: &str, task: &Task, mut line: impl FnMut(T)) -> Result<(), String> {
        let mut command = self.told(endpoint, task)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.name))?;
        let mut broken = None;
        if let Some(out) = child.stdout.take() {
            for text in BufReader::new(out).lines() {
                let text = text.map_err(|error| error.to_string())?;
                // What a library of theirs says for people.
                if !text.starts_with('{') {
                    continue;
                }
                match serde_json::from_str(&text) {
                    Ok(said) => line(said),
                    Err(error) => broken = Some(format!("{} printed {text}: {error}", self.name)),
                }
            }
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match broken {
            Some(why) => Err(why),
            None if status.success() => Ok(()),
            None => Err(format!("{} ended with {status}", self.name)),
        }
    }

    /// All lines of a task.
    pub(crate) fn lines<T: DeserializeOwned>(&self, endpoint: &str, task: &Task) -> Result<Vec<T>, String> {
        let mut lines = Vec::new();
        self.each(endpoint, task, |line| lines.push(line))?;
        Ok(lines)
    }

    /// Its program, with who it is, where, and what it must do.
    pub(crate) fn told(&self, endpoint: &str, task: &Task) -> Result<Command, String> {
        let mut command = self.command()?;
        command.arg(self.name).arg(endpoint).args(task.args()).env(RUN, run());
        Ok(command)
    }

    fn command(&self) -> Result<Command, String> {
        match self.by {
            By::Us => {
                let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
                command.arg("contend");
                Ok(command)
            }
            By::Rust => Ok(Command::new(built("bench-peers")?)),
            By::Node => {
                let mut command = Command::new("node");
                // Its SDK announces the end of versions of node to whoever looks at a run.
                command.arg(installed()?).env("NODE_NO_WARNINGS", "1");
                Ok(command)
            }
        }
    }
}

/// Of this run, in the names of its tables.
pub(crate) fn run() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| fencepost::Env::system().new_id().simple().to_string().chars().skip(20).collect())
}

/// Builds and installs the peers, before any clock begins: a fresh clone takes minutes for it, which are said apart. Who cannot be had, and why.
pub(crate) fn made_ready() -> Vec<String> {
    eprintln!("building and installing the peers …");
    let began = Instant::now();
    let missing = CONTENDERS.iter().filter_map(|peer| {
        let ready = match peer.by {
            By::Us => return None,
            By::Rust => built("bench-peers"),
            By::Node => installed(),
        };
        ready.err().map(|why| format!("{}: {why}", peer.name))
    });
    let missing = missing.collect();
    eprintln!("the peers are there after {} s, which count for nothing below", began.elapsed().as_secs());
    missing
}

/// What is missing on this machine, rather than wrong: a peer that needs it is left out.
pub(crate) const NO_NODE: &str = "node is not here";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A binary of the peers, where Cargo was told to put it.
pub(crate) fn built(binary: &str) -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let manifest = here().join("peers/Cargo.toml");
        if !manifest.exists() {
            return Err("bench/peers is not here".into());
        }
        // Said outright: a setting of Cargo's, of whatever file or variable, may name another for this build.
        let target = here().join("peers/target");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&target);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Err(format!("the peers could not be built: {status}"));
        }
        Ok(target.join(if cfg!(debug_assertions) { "debug" } else { "release" }))
    });
    folder.clone().map(|folder| folder.join(binary))
}

/// Whether every package that is asked for is there, in the version that is asked for.
fn is_installed(folder: &Path) -> bool {
    let read = |path: PathBuf| -> Option<Value> { serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok() };
    let there = |name: &str| read(folder.join("node_modules").join(name).join("package.json"))?.get("version").cloned();
    let asked = read(folder.join("package.json"));
    let asked = asked.as_ref().and_then(|asked| asked["dependencies"].as_object());
    asked.is_some_and(|asked| asked.iter().all(|(name, version)| there(name).is_some_and(|there| there == *version)))
}

/// The program for node, with what it needs.
pub(crate) fn installed() -> Result<PathBuf, String> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = INSTALLED.get_or_init(|| {
        let folder = here().join("peers/equinox");
        if Command::new("node").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err(NO_NODE.into());
        }
        if !is_installed(&folder) {
            let npm = Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder).status();
            if !npm.map_err(|error| format!("npm: {error}"))?.success() {
                return Err("npm could not install equinox-js".into());
            }
        }
        Ok(folder.join("contend.mjs"))
    });
    program.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_another_version_are_installed_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let package = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("writes");
        };
        package("package.json", r#"{"dependencies":{"@equinox-js/core":"1.2.0","other":"3.0.0"}}"#);
        assert!(!is_installed(folder.path()), "nothing is there");
        package("node_modules/@equinox-js/core/package.json", r#"{"version":"1.1.0"}"#);
        package("node_modules/other/package.json", r#"{"version":"3.0.0"}"#);
        assert!(!is_installed(folder.path()), "an older one is there");
        package("node_modules/@equinox-js/core/package.json", r#"{"version":"1.2.0"}"#);
        assert!(is_installed(folder.path()));
    }
}
