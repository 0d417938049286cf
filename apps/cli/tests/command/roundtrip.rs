//! What is appended comes back, by read and by tail.

use serde_json::json;

use crate::FileStore;

#[test]
fn an_event_comes_back_as_it_was_given() {
    let store = FileStore::new();
    let given = concat!(
        r#"{"type":"A","data":{"n":1.0000000000000000000001, "s":"é\u0000"},"tags":["x/y#z:1","nul\u0000","ü"],"meta":{"user":"u","k":[1]},"id":"0191d7a0-0000-7000-8000-000000000001"}"#,
        "\n",
        r#"{"type":"B","data_base64":"AP8="}"#,
        "\n",
        r#"{"type":"C","data":null}"#,
        "\n",
        r#"{"type":"D"}"#,
        "\n"
    );
    let appended = store.run_with(&["append"], given).ok().lines();
    assert_eq!(appended[0]["positions"], json!(["1", "2", "3", "4"]));
    assert!(appended[0]["units"]["write"].as_f64().is_some_and(|units| units > 0.0), "{}", appended[0]);
    assert!(appended[0]["units"]["requests"].as_u64().is_some_and(|requests| requests > 0));

    let read = store.run(&["read"]).ok();
    assert!(read.stdout().contains(r#""data":{"n":1.0000000000000000000001, "s":"é\u0000"},"#), "{}", read.stdout());
    let lines = read.lines();
    assert_eq!(lines[0]["tags"], json!(["nul\0", "x/y#z:1", "ü"]));
    assert_eq!(lines[0]["meta"], json!({ "user": "u", "k": [1] }));
    assert_eq!(lines[0]["id"], "0191d7a0-0000-7000-8000-000000000001");
    assert_eq!((&lines[1]["data_base64"], &lines[2]["data"], &lines[3]["data_base64"]), (&json!("AP8="), &json!(null), &json!("")));
    assert!(lines.iter().all(|line| line["recorded_at"].is_string() && line["position"].is_string()));

    // What one store prints, another takes.
    let copy = FileStore::new();
    copy.run_with(&["append"], &read.stdout()).ok();
    let ids = |lines: Vec<serde_json::Value>| lines.into_iter().map(|line| (line["id"].clone(), line["data"].clone())).collect::<Vec<_>>();
    assert_eq!(ids(copy.run(&["read"]).ok().lines()), ids(lines));
}

#[test]
fn tail_brings_the_same_events_with_checkpoints() {
    let store = FileStore::with_events(5);
    let lines = store.run(&["tail", "--once"]).ok().lines();
    assert_eq!(lines.iter().filter_map(|line| line["data"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let checkpoint = lines[2]["checkpoint"].as_str().expect("checkpoint");
    assert_eq!(store.run(&["tail", "--once", "--from", checkpoint]).ok().lines().len(), 2);
    assert_eq!(store.run(&["tail", "--once", "--from", "now"]).ok().stdout(), "");
}

#[test]
fn a_consumer_goes_on_behind_what_it_printed() {
    let store = FileStore::with_events(5);
    let tail = |args: &[&str]| store.run(&[&["tail", "--consumer", "mailer"], args].concat()).ok().lines().len();
    assert_eq!(tail(&["--limit", "2"]), 2);
    assert_eq!(tail(&["--once"]), 3);
    assert_eq!(tail(&["--once"]), 0);
}

#[test]
fn the_last_version_of_a_stream_is_what_the_next_append_expects() {
    let store = FileStore::new();
    let append = |expect: &str| {
        store.run_with(
            &["append", "--stream", "account-7", "--expect", expect],
            "{\"type\":\"T\",\"data\":1}\n{\"type\":\"T\",\"data\":2}\n",
        )
    };
    append("none").ok();
    append("none").fails(3);
    let last = |store: &FileStore| store.run(&["read", "--stream", "account-7"]).ok().lines().pop().expect("an event");
    assert_eq!((&last(&store)["version"], &last(&store)["stream"]), (&json!(2), &json!("account-7")));
    append("2").ok();
    append("2").fails(3);
    assert_eq!(last(&store)["version"], 4);
    let token = store.run(&["read", "--stream", "account-7", "--with-token"]).ok().lines().pop().expect("the token");
    let step = ["append", "--stream", "account-7", "--token", token["token"].as_str().expect("token")];
    assert_eq!(store.run_with(&step, "{\"type\":\"T\",\"data\":1}").ok().lines()[0]["version"], 5);
    store.run_with(&step, "{\"type\":\"T\",\"data\":1}").fails(3);
}

#[test]
fn a_commit_id_is_recorded_once() {
    let store = FileStore::new();
    let append =
        || store.run_with(&["append", "--commit", "0191d7a0-0000-7000-8000-000000000001"], "{\"type\":\"T\",\"data\":1}").ok().lines();
    assert_eq!(append()[0]["positions"], append()[0]["positions"]);
    assert_eq!(store.run(&["read"]).ok().lines().len(), 1);
}

#[test]
fn a_sound_store_verifies_and_has_nothing_to_collect() {
    let store = FileStore::with_events(3);
    let verified = &store.run(&["verify"]).ok().lines()[0];
    assert_eq!((&verified["events"], &verified["findings"]), (&json!(3), &json!([])));
    assert_eq!(store.run(&["gc"]).ok().lines()[0]["chunks"], 0);
    assert_eq!(store.run(&["stats"]).ok().lines()[0]["layout"], "ledger");
}

#[test]
fn sekibans_tables_are_made_written_read_and_followed() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file:{}?layout=sekiban&table=Sekiban&safe_window=0", folder.path().join("s.db").display());
    let run = |args: &[&str], input: &str| crate::run_with(&[&["--store", url.as_str()], args].concat(), input);
    let lines = "{\"type\":\"A\",\"data\":{\"n\":1},\"tags\":[\"Student:1\"]}\n{\"type\":\"B\",\"data\":{\"n\":2},\"tags\":[\"Student:1\",\"Room:7\"]}\n";
    run(&["append"], lines).ok();
    let read = run(&["read", "--tag", "Student:1"], "").ok().lines();
    assert_eq!(read.iter().map(|line| line["type"].clone()).collect::<Vec<_>>(), [json!("A"), json!("B")]);
    assert_eq!(run(&["count"], "").ok().lines()[0]["events"], 2);
    let tags = &run(&["tags", "ls", "--group", "Student"], "").ok().lines()[0]["tags"];
    assert_eq!((&tags[0]["tag"], &tags[0]["events"]), (&json!("Student:1"), &json!(2)));
    assert_eq!(run(&["tags", "ls"], "").ok().lines()[0]["tags"].as_array().map(Vec::len), Some(2));
    let id = read[0]["id"].as_str().expect("an id");
    assert_eq!(run(&["event", id], "").ok().lines()[0]["data"], json!({"n": 1}));
    run(&["event", "0198894f-9a63-7c21-8f0e-3b5d2a91c7e4"], "").fails(4);
    assert_eq!(run(&["verify", "--repair"], "").ok().lines()[0]["findings"], json!([]));
    assert_eq!(run(&["tail", "--once", "--from", "start"], "").ok().lines().iter().filter(|line| line["type"].is_string()).count(), 2);
    assert_eq!(run(&["stats"], "").ok().lines()[0]["layout"], "sekiban");
    run(&["read", "--type", "A"], "").fails(2);
    let policy = run(&["init", "--print", "iam"], "").ok().stdout();
    assert!(policy.contains("ConditionCheckItem") && policy.contains("/index/*") && !policy.contains("TransactWriteItems"), "{policy}");
}

#[test]
fn equinox_tables_are_made_written_read_and_pruned() {
    let folder = tempfile::tempdir().expect("folder");
    let url = format!("file:{}?layout=equinox&table=orders&tip_events=2", folder.path().join("e.db").display());
    let run = |args: &[&str], input: &str| crate::run_with(&[&["--store", url.as_str()], args].concat(), input);
    run(&["init"], "").ok();
    for n in 1..=5 {
        let line = format!("{{\"type\":\"Added\",\"data\":{{\"n\":{n}}}}}\n");
        assert_eq!(run(&["append", "--stream", "Cart-1"], &line).ok().lines()[0]["version"], n);
    }
    let read = |args: &[&str]| -> Vec<u64> {
        let lines = run(&[&["read", "--stream", "Cart-1"], args].concat(), "").ok().lines();
        lines.iter().filter_map(|line| line["data"]["n"].as_u64()).collect()
    };
    assert_eq!((read(&[]), read(&["--backwards", "--limit", "2"]), read(&["--after", "3"])), (vec![1, 2, 3, 4, 5], vec![5, 4], vec![4, 5]));
    assert!(run(&["read", "--stream", "Cart-1", "--unfolds"], "").ok().lines().is_empty());
    run(&["append", "--stream", "Cart-2", "--snapshot", "{\"n\":1}", "--snapshot-name", "Snapshotted"], "{\"type\":\"Added\"}\n").ok();
    let unfolds = run(&["read", "--stream", "Cart-2", "--unfolds"], "").ok().lines();
    let expected = json!({ "stream": "Cart-2", "version": 1, "unfold": "Snapshotted", "data": { "n": 1 } });
    assert_eq!(unfolds, [expected]);
    let pruned = run(&["prune", "--stream", "Cart-1", "--before", "4"], "").ok().lines();
    assert_eq!((&pruned[0]["deleted"], &pruned[0]["deferred"], &pruned[0]["first"]), (&json!(2), &json!(1), &json!(3)));
    assert_eq!(read(&["--after", "2"]), [3, 4, 5]);
    // What is gone is told, and what is there is read.
    let all = run(&["read", "--stream", "Cart-1"], "");
    assert_eq!(all.lines().len(), 3);
    assert!(all.fails(5).stderr().contains("before version 3 were pruned"));
    assert_eq!(run(&["verify"], "").ok().lines()[0]["findings"], json!([]));
    assert_eq!(run(&["stats"], "").ok().lines()[0]["layout"], "equinox");
    run(&["prune", "--stream", "$AppendsIndex-0", "--before", "4"], "").fails(2);
    run(&["append", "--stream", "nocategory"], "{\"type\":\"T\"}\n").fails(2);
    let store = FileStore::new();
    store.run(&["prune", "--stream", "Cart-1", "--before", "4"]).fails(2);
}
