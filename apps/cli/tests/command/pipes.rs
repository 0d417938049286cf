//! Readers that go away, and signals.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::{FileStore, fencepost};

#[test]
fn a_closed_pipe_ends_quietly() {
    // More than a pipe holds (64 KB), so that writing meets the closed end.
    let store = FileStore::with_events(3000);
    for command in [&["read"][..], &["tail"], &["read", "-o", "json"], &["read", "-o", "table"]] {
        let mut child = fencepost()
            .args(["--store", &store.url])
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
        let mut first = String::new();
        reader.read_line(&mut first).expect("a line");
        assert!(!first.is_empty());
        drop(reader);
        let output = child.wait_with_output().expect("ends");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_tail_with_its_checkpoint_saved() {
    let store = FileStore::with_events(3);
    for signal in ["-INT", "-TERM"] {
        let consumer = format!("c{signal}");
        let mut child = fencepost()
            .args(["--store", &store.url, "tail", "--consumer", &consumer])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
        for _ in 0..3 {
            reader.read_line(&mut String::new()).expect("a line");
        }
        let killed = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("the rest");
        assert_eq!((child.wait().expect("ends").code(), rest.as_str()), (Some(0), ""), "{signal}");
        assert_eq!(store.run(&["tail", "--consumer", &consumer, "--once"]).ok().stdout(), "", "{signal}");
    }
}

#[cfg(unix)]
#[test]
fn the_engine_serves_other_processes_until_it_is_told_to_end() {
    let mut engine = fencepost().args(["engine", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(engine.stdout.take().expect("stdout")).read_line(&mut line).expect("the address");
    let listening: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = format!("{}/orders", listening["url"].as_str().expect("url"));
    let run = |args: &[&str], stdin: &str| {
        let mut child = fencepost();
        child.args(["--store", &url]).args(args);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), stdin.as_bytes()).expect("stdin");
        crate::Ran(child.wait_with_output().expect("ends"))
    };
    run(&["read"], "").fails(8);
    run(&["init"], "").ok();
    run(&["init", "--no-create"], "").ok();
    run(&["append"], "{\"type\":\"T\",\"data\":1,\"tags\":[\"a\"]}").ok();
    assert_eq!(run(&["read", "--tag", "a"], "").ok().lines().len(), 1);
    assert!(std::process::Command::new("kill").args(["-TERM", &engine.id().to_string()]).status().expect("kill").success());
    assert_eq!(engine.wait().expect("ends").code(), Some(0));
}
