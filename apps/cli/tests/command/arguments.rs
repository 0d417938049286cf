//! Help, completions and usage.

use crate::{fencepost, run};

#[test]
fn help_of_every_command_names_its_flags_and_shows_an_example() {
    let flags: &[(&str, &[&str])] = &[
        (
            "init",
            &["--no-create", "--billing", "--kms-key", "--tag", "--stream", "--index-type", "--print", "cloudformation", "aws-cli", "iam"],
        ),
        ("append", &["--unless", "--token", "--commit", "--base", "--stream", "--expect", "--snapshot", "data_base64"]),
        ("read", &["--query", "--tag", "--type", "--stream", "--after", "--limit", "--backwards", "--with-token"]),
        ("tail", &["--from", "--consumer", "--query", "--tag", "--type", "--limit", "--once"]),
        ("tags", &["ls"]),
        ("event", &["<ID>"]),
        ("count", &["--since"]),
        ("verify", &["--repair"]),
        ("gc", &["--older-than"]),
        ("stats", &[]),
        ("doctor", &[]),
        ("demo", &["--students", "--courses", "--workers"]),
        ("engine", &["--listen", "--file"]),
        ("completions", &["bash"]),
    ];
    for (command, flags) in flags {
        let help = run(&[command, "--help"]).ok().stdout();
        for flag in flags.iter().chain(&["--store", "--output", "Examples:"]) {
            assert!(help.contains(flag), "{command} --help does not name {flag}:\n{help}");
        }
    }
    let help = run(&["--help"]).ok().stdout();
    for (command, _) in flags {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in the list:\n{help}");
    }
    assert!(help.contains("FENCEPOST_STORE") && help.contains("NO_COLOR"));
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(run(&["completions", shell]).ok().stdout().contains("with-token"), "{shell}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_why() {
    let token_without_a_guard = ["--store", "memory:", "append", "--token", "x"];
    let cases: &[&[&str]] = &[
        &["--store", "memory:", "fly"],
        &["--store", "memory:", "read", "--with-token", "--limit", "1"],
        &["--store", "memory:", "read", "--with-token", "--after", "1"],
        &["--store", "memory:", "read", "--with-token", "--backwards"],
        &["--store", "memory:", "read", "--query", "{}", "--tag", "x"],
        &["--store", "memory:", "read", "--query", "{nonsense"],
        &["--store", "memory:", "read", "--tag", ""],
        &["--store", "memory:", "read", "--after", "soon"],
        &["--store", "memory:", "tail", "--from", "yesterday"],
        &["--store", "memory:", "append", "--expect", "1"],
        &["--store", "memory:", "append", "--stream", "s", "--expect", "x"],
        &["--store", "memory:", "append", "--base", "x"],
        &["--store", "memory:", "append", "--stream", "s", "--snapshot", "{"],
        &["--store", "memory:", "init", "--billing", "free"],
        &["--store", "memory:", "init", "--tag", "novalue"],
        &["engine", "--listen", "nowhere"],
        &token_without_a_guard,
        &[],
    ];
    for case in cases {
        let error = run(case).fails(2).error();
        assert!(!error["message"].as_str().expect("message").is_empty(), "{case:?}");
        assert_eq!(error["retryable"], false);
        assert!(error.get("hint").is_some() && error["code"].is_string());
    }
}

#[test]
fn no_store_names_both_ways_to_give_one() {
    let error = run(&["read"]).fails(2).error();
    let hint = error["hint"].as_str().expect("hint");
    assert!(hint.contains("--store") && hint.contains("FENCEPOST_STORE"), "{hint}");
    let people = run(&["read", "-o", "table"]).fails(2).stderr();
    assert!(people.starts_with("error: ") && people.contains("\nhint: "), "{people}");
}

#[test]
fn the_store_may_come_from_the_environment() {
    let read = |store: &str| fencepost().env("FENCEPOST_STORE", store).arg("read").output().expect("runs").status.code();
    assert_eq!(read("memory:"), Some(0));
    assert_eq!(read(""), Some(2));
}
