//! Each kind of error that can be provoked, by its exit code.

use crate::{FileStore, run, run_with};

const EVENT: &str = "{\"type\":\"T\",\"data\":1,\"tags\":[\"a\"]}\n";

#[test]
fn a_bad_url_is_refused() {
    for url in ["nonsense", "ftp://x/y", "memory:?colour=red", "dynamodb://eu-west-1", "file:", "memory:?layout=unknown"] {
        let error = run(&["--store", url, "read"]).fails(2).error();
        assert_eq!(error["code"], "refused", "{url}");
    }
    let error = run(&["--store", "memory:?colour=red", "read"]).fails(2).error();
    let message = error["message"].as_str().expect("message");
    assert!(message.contains("colour") && message.contains("namespace"), "it lists the known ones: {message}");
}

#[test]
fn a_malformed_line_is_named_and_nothing_is_written() {
    let store = FileStore::new();
    let error = store.run_with(&["append"], &format!("{EVENT}{EVENT}{{\"type\":\n{EVENT}")).fails(2).error();
    assert_eq!(error["code"], "malformed");
    assert!(error["message"].as_str().expect("message").starts_with("line 3: "), "{error}");
    assert_eq!(store.run(&["read"]).ok().stdout(), "");
}

#[test]
fn an_empty_append_is_refused() {
    assert_eq!(run(&["--store", "memory:", "append"]).fails(2).error()["code"], "refused");
    assert_eq!(run_with(&["--store", "memory:", "append"], "\n \n").fails(2).error()["code"], "refused");
}

#[test]
fn a_conflict_brings_its_events_and_its_token() {
    let store = FileStore::with_events(1);
    let query = r#"{"items":[{"tags":["a"]}]}"#;
    let read = store.run(&["read", "--query", query, "--with-token"]).ok().lines();
    let token = read[1]["token"].as_str().expect("token").to_string();
    store.run_with(&["append"], EVENT).ok();
    let append = |token: &str| store.run_with(&["append", "--unless", query, "--token", token], EVENT);
    let error = append(&token).fails(3).error();
    assert_eq!(error["code"], "conflict");
    assert_eq!(error["events"].as_array().map(Vec::len), Some(1), "{error}");
    assert_eq!(error["events"][0]["data"], 1);
    append(error["token"].as_str().expect("token")).ok();
}

#[test]
fn a_corrupted_or_foreign_token_is_refused() {
    let store = FileStore::with_events(1);
    let read = store.run(&["read", "--tag", "a", "--with-token"]).ok().lines();
    let token = read[1]["token"].as_str().expect("token");
    let append = |token: &str| store.run_with(&["append", "--unless", r#"{"items":[{"tags":["a"]}]}"#, "--token", token], EVENT);
    append(&token[..token.len() - 4]).fails(2);
    append(&fencepost::Token::seal("equinox", &7u64).to_string()).fails(2);
    append(token).ok();
}

#[test]
fn an_unreachable_endpoint_is_exit_code_6() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port that nobody listens on");
    let error = run(&["--store", &format!("http://{free}/orders"), "read"]).fails(6).error();
    assert_eq!((error["code"].as_str(), error["retryable"].as_bool()), (Some("unavailable"), Some(true)));
}

#[test]
fn no_credentials_is_exit_code_8() {
    let nowhere = tempfile::tempdir().expect("a folder");
    let mut command = crate::fencepost();
    for name in
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    {
        command.env_remove(name);
    }
    let none = nowhere.path().join("none");
    command.env("AWS_SHARED_CREDENTIALS_FILE", &none).env("AWS_CONFIG_FILE", &none);
    let ran = crate::Ran(command.args(["--store", "http://127.0.0.1:1/orders", "read"]).output().expect("runs")).fails(8);
    assert_eq!(ran.error()["code"], "denied");
}

#[test]
fn a_missing_table_is_exit_code_8() {
    let store = FileStore::new();
    let error = store.run(&["init", "--no-create"]).fails(8);
    assert!(!error.stderr().is_empty());
}

#[test]
fn a_folder_that_is_not_there_is_exit_code_4() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("missing/x.db");
    run(&["engine", "--listen", "127.0.0.1:0", "--file", &file.display().to_string()]).fails(4);
}

#[test]
fn the_doctor_ends_with_the_code_of_what_it_found() {
    let store = FileStore::new();
    let sick = store.run(&["doctor"]).fails(8);
    assert_eq!(sick.lines()[0]["ok"], false);
    assert!(sick.stderr().contains("missing-table"), "{}", sick.stderr());
    store.run(&["init"]).ok();
    let well = store.run(&["doctor"]).ok();
    assert!(well.lines()[0]["checks"].as_array().is_some_and(|checks| checks.iter().any(|check| check["name"] == "clock")));
    run(&["--store", "http://127.0.0.1:1/orders", "doctor"]).fails(6);
}

#[test]
fn init_says_what_was_created_and_what_was_there() {
    let store = FileStore::new();
    let created = |ran: crate::Ran| -> Vec<bool> {
        ran.lines()[0]["parts"].as_array().expect("parts").iter().filter_map(|part| part["created"].as_bool()).collect()
    };
    let first = created(store.run(&["init", "--index-type", "Opened"]).ok());
    assert!(first.len() >= 2 && first.iter().all(|now| *now), "{first:?}");
    assert!(created(store.run(&["init"]).ok()).iter().all(|now| !now));
    store.run(&["init", "--no-create"]).ok();
    // Indexed types are fixed when the namespace is created.
    assert_eq!(store.run(&["init", "--index-type", "Closed"]).fails(2).error()["code"], "refused");
}

#[test]
fn init_prints_definitions_and_calls_nothing() {
    let print = |form: &str, args: &[&str]| {
        run(&[&["--store", "dynamodb://eu-west-1/orders", "init", "--print", form], args].concat()).ok().stdout()
    };
    let terraform =
        print("terraform", &["--billing", "provisioned:5:7", "--tag", "team=orders", "--kms-key", "arn:aws:kms:eu-west-1:1:key/x"]);
    for part in ["aws_dynamodb_table", "orders-side", "deletion_protection_enabled", "point_in_time_recovery", "team", "arn:aws:kms"] {
        assert!(terraform.contains(part), "{part}:\n{terraform}");
    }
    assert!(print("cloudformation", &[]).contains("AWS::DynamoDB::Table"));
    assert!(print("aws-cli", &["--stream", "new-and-old"]).contains("NEW_AND_OLD_IMAGES"));
    let policies: serde_json::Value = serde_json::from_str(&print("iam", &[])).expect("JSON");
    for role in ["writer", "reader", "indexer", "admin"] {
        assert!(policies[role]["Statement"].is_array(), "{role}: {policies}");
    }
    assert!(policies["writer"].to_string().contains("eu-west-1"));
}
