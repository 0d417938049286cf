//! The command as a shell sees it: arguments, stdin, stdout, stderr and exit codes of the built binary.

mod arguments;
mod cost;
mod demo;
mod errors;
mod following;
mod index;
mod moving;
mod objects;
mod pipes;
mod roundtrip;
mod sekiban;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The binary, with nothing of the environment that could change its answers.
fn fencepost() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    for name in ["FENCEPOST_STORE", "FENCEPOST_LOG", "NO_COLOR"] {
        command.env_remove(name);
    }
    // Endpoints of one's own take any credentials, but the SDK wants some.
    command
        .env("AWS_ACCESS_KEY_ID", "x")
        .env("AWS_SECRET_ACCESS_KEY", "x")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// What a run left behind.
struct Ran(Output);

impl Ran {
    fn exit(&self) -> i32 {
        self.0.status.code().expect("ended by itself")
    }
    fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).expect("UTF-8")
    }
    fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).expect("UTF-8")
    }
    fn lines(&self) -> Vec<Value> {
        self.stdout().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
    /// The one line of JSON on stderr.
    fn error(&self) -> Value {
        let stderr = self.stderr();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        serde_json::from_str(&stderr).expect("a line of JSON")
    }
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.exit(), 0, "{}", self.stderr());
        self
    }
    #[track_caller]
    fn fails(self, exit: i32) -> Self {
        assert_eq!(self.exit(), exit, "stdout: {}\nstderr: {}", self.stdout(), self.stderr());
        self
    }
}

fn run(args: &[&str]) -> Ran {
    run_with(args, "")
}

fn run_with(args: &[&str], stdin: &str) -> Ran {
    let mut child =
        fencepost().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // A command that refuses its arguments does not read on.
    let _ = child.stdin.take().expect("stdin").write_all(stdin.as_bytes());
    Ran(child.wait_with_output().expect("ends"))
}

/// A store in a file of its own.
struct FileStore {
    url: String,
    _folder: tempfile::TempDir,
}

impl FileStore {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { url: url(&folder.path().join("test.db")), _folder: folder }
    }
    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }
    fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        run_with(&[&["--store", &self.url], args].concat(), stdin)
    }
    /// So many events of type T with tag `a`, and their number as body.
    fn with_events(count: usize) -> Self {
        let store = Self::new();
        let events: String = (1..=count).map(|n| format!("{{\"type\":\"T\",\"data\":{n},\"tags\":[\"a\"]}}\n")).collect();
        store.run_with(&["append"], &events).ok();
        store
    }
}

fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}
