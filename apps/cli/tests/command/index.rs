//! `index` and `tail` in streams mode, on a file and on an engine that others serve; and `tail` over lanes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{Ran, fencepost, run_with};

fn in_layout(layout: &str, folder: &tempfile::TempDir, args: &[&str], stdin: &str) -> Ran {
    // Equinox's tables have no other feed than their index.
    let feed = if layout == "equinox" { "" } else { "&feed=streams" };
    let url = format!("file:{}?layout={layout}{feed}", folder.path().join(layout).display());
    run_with(&[&["--store", url.as_str()], args].concat(), stdin)
}

/// The name of the stream, which is a tag elsewhere.
fn stream(layout: &str) -> &'static str {
    if layout == "equinox" { "Cart-1" } else { "a" }
}

/// Appends it to its stream, or under its tag.
fn append(layout: &str, folder: &tempfile::TempDir, n: u64) {
    let on_tag = format!("{{\"type\":\"T\",\"data\":{n},\"tags\":[\"a\"]}}\n");
    let on_stream = format!("{{\"type\":\"T\",\"data\":{n}}}\n");
    match layout {
        "equinox" => in_layout(layout, folder, &["append", "--stream", stream(layout)], &on_stream).ok(),
        _ => in_layout(layout, folder, &["append"], &on_tag).ok(),
    };
}

fn bodies(ran: &Ran) -> Vec<u64> {
    ran.lines().iter().filter_map(|line| line["data"].as_u64()).collect()
}

#[test]
fn an_index_is_built_looked_at_verified_and_rebuilt() {
    for layout in ["ledger", "sekiban", "equinox"] {
        an_index_of(layout);
    }
}

fn an_index_of(layout: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let append = |n: u64| append(layout, &folder, n);
    let one = |args: &[&str]| -> Value { in_layout(layout, &folder, args, "").ok().lines().remove(0) };
    append(1);
    append(2);
    assert_eq!(one(&["index", "status"])["epochs"], 0);
    let differs = in_layout(layout, &folder, &["index", "verify"], "").fails(5);
    // Of each commit, or of the one stream.
    let findings = if layout == "equinox" { 1 } else { 2 };
    assert_eq!(differs.lines()[0]["findings"].as_array().map(Vec::len), Some(findings));
    let ran = one(&["index", "run", "--once"]);
    assert_eq!((ran["commits"].as_u64(), ran["late"].as_u64(), ran["caught_up"].as_bool()), (Some(2), Some(0), Some(true)), "{ran}");
    assert_eq!(one(&["index", "verify"])["findings"], Value::Array(Vec::new()));
    append(3);
    assert_eq!(one(&["index", "rebuild"])["appended"], 1);
    assert_eq!(one(&["index", "run", "--once"])["commits"], 0);
    let status = one(&["index", "status"]);
    assert_eq!((status["shards"].as_array().map(Vec::len), &status["trimmed"]), (Some(1), &Value::Null), "{status}");
}

#[test]
fn a_tail_of_a_file_builds_the_index_by_itself() {
    for layout in ["ledger", "sekiban", "equinox"] {
        a_tail_of(layout);
    }
}

fn a_tail_of(layout: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let in_streams_mode = |folder: &tempfile::TempDir, args: &[&str], stdin: &str| in_layout(layout, folder, args, stdin);
    (1..=5).for_each(|n| append(layout, &folder, n));
    let tail = in_streams_mode(&folder, &["tail", "--once"], "").ok();
    assert_eq!(bodies(&tail), [1, 2, 3, 4, 5]);
    let from = tail.lines()[2]["checkpoint"].as_str().expect("a checkpoint").to_owned();
    assert_eq!(bodies(&in_streams_mode(&folder, &["tail", "--once", "--from", &from], "").ok()), [4, 5]);
    assert_eq!(bodies(&in_streams_mode(&folder, &["tail", "--limit", "2", "--consumer", "c"], "").ok()), [1, 2]);
    assert_eq!(bodies(&in_streams_mode(&folder, &["tail", "--once", "--consumer", "c"], "").ok()), [3, 4, 5]);
}

/// A backup that left out what nobody had indexed would look whole.
#[test]
fn an_export_and_a_copy_of_a_file_build_the_index_first_and_have_all_events() {
    for layout in ["ledger", "sekiban", "equinox"] {
        let folder = tempfile::tempdir().expect("a folder");
        (1..=3).for_each(|n| append(layout, &folder, n));
        assert_eq!(bodies(&in_layout(layout, &folder, &["export"], "").ok()), [1, 2, 3], "{layout}");
        append(layout, &folder, 4);
        let feed = if layout == "equinox" { "" } else { "&feed=streams" };
        let from = format!("file:{}?layout={layout}{feed}", folder.path().join(layout).display());
        let copied = run_with(&["copy", "--from", &from, "--to", &super::FileStore::new().url], "").ok();
        assert_eq!((copied.lines()[0]["events"].as_u64(), copied.lines()[0]["compared"]["equal"].as_u64()), (Some(4), Some(4)), "{layout}");
        assert!(copied.error()["plan"].is_object(), "{layout}: and nothing else is said");
    }
}

#[test]
fn an_index_where_lanes_are_the_feed_is_refused() {
    let refused = super::FileStore::with_events(1).run(&["index", "status"]).fails(2);
    assert!(refused.stderr().contains("lanes"), "{}", refused.stderr());
}

fn events(numbers: std::ops::RangeInclusive<u64>) -> String {
    numbers.map(|n| format!("{{\"type\":\"T\",\"data\":{n},\"tags\":[\"a\"]}}\n")).collect()
}

#[test]
fn a_tail_over_several_lanes_keeps_the_order_of_a_tag() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file:{}?feed=lanes-4", folder.path().join("lanes").display());
    let command = |args: &[&str], stdin: &str| run_with(&[&["--store", url.as_str()], args].concat(), stdin).ok();
    // Each command is an instance of its own, and chooses its lane.
    for n in 1..=6 {
        command(&["append"], &events(n..=n));
    }
    let tail = command(&["tail", "--once"], "");
    assert_eq!(bodies(&tail), [1, 2, 3, 4, 5, 6]);
    let from = tail.lines()[3]["checkpoint"].as_str().expect("a checkpoint").to_owned();
    assert_eq!(bodies(&command(&["tail", "--once", "--from", &from], "")), [5, 6]);
    assert_eq!(bodies(&command(&["tail", "--limit", "4", "--consumer", "c"], "")), [1, 2, 3, 4]);
    assert_eq!(bodies(&command(&["tail", "--once", "--consumer", "c"], "")), [5, 6]);
}

/// Ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An engine that others serve, and the URL of a store on it in streams mode.
fn served() -> (Served, String) {
    let mut engine =
        Served(fencepost().args(["engine", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().expect("the binary starts"));
    let mut line = String::new();
    BufReader::new(engine.0.stdout.take().expect("stdout")).read_line(&mut line).expect("the address");
    let listening: Value = serde_json::from_str(&line).expect("JSON");
    let url = format!("{}/orders?feed=streams", listening["url"].as_str().expect("a URL"));
    (engine, url)
}

#[test]
fn an_export_and_a_copy_of_a_served_store_say_what_they_leave_out() {
    let (_engine, url) = served();
    let command = |args: &[&str], stdin: &str| run_with(&[&["--store", url.as_str()], args].concat(), stdin).ok();
    command(&["init"], "");
    command(&["append"], &events(1..=3));
    let none = command(&["export"], "");
    assert_eq!(bodies(&none), [] as [u64; 0]);
    assert!(none.stderr().contains("fencepost index run"), "{}", none.stderr());
    command(&["index", "run", "--once"], "");
    let all = command(&["export"], "");
    assert_eq!((bodies(&all), all.stderr()), (vec![1, 2, 3], String::new()));
    // Written since, and indexed by nobody.
    command(&["append"], &events(4..=4));
    for left_out in [command(&["export"], ""), command(&["tail", "--once"], "")] {
        assert_eq!(bodies(&left_out), [1, 2, 3]);
        assert!(left_out.stderr().contains("written since"), "{}", left_out.stderr());
    }
    let copied = run_with(&["copy", "--from", &url, "--to", &super::FileStore::new().url], "").ok();
    assert_eq!(copied.lines()[0]["events"].as_u64(), Some(3));
    assert!(copied.stderr().contains("written since"), "{}", copied.stderr());
}

#[test]
fn a_tail_of_a_served_store_says_that_nobody_indexes_it_and_shows_what_an_indexer_puts() {
    let (_engine, url) = served();
    let command = |args: &[&str], stdin: &str| run_with(&[&["--store", url.as_str()], args].concat(), stdin).ok();
    command(&["init"], "");
    command(&["append"], &events(1..=3));
    let alone = command(&["tail", "--once"], "");
    assert_eq!(bodies(&alone), [] as [u64; 0]);
    assert!(alone.stderr().contains("fencepost index run"), "{}", alone.stderr());
    command(&["index", "run", "--once"], "");
    let tail = command(&["tail", "--once"], "");
    assert_eq!((bodies(&tail), tail.stderr()), (vec![1, 2, 3], String::new()));
    // What comes while it waits, and is indexed meanwhile.
    let waiting = fencepost().args(["--store", &url, "tail", "--limit", "5"]).stdout(Stdio::piped()).spawn().expect("the binary starts");
    command(&["append"], &events(4..=5));
    command(&["index", "run", "--once"], "");
    assert_eq!(bodies(&Ran(waiting.wait_with_output().expect("ends"))), [1, 2, 3, 4, 5]);
}
