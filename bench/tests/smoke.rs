//! Every benchmark runs, small: figures come from a release build, and from here only that they come at all.

use std::process::Command;

fn run(args: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_fencepost-bench")).args(args).output().expect("it starts");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8")
}

fn rows(args: &[&str]) -> Vec<serde_json::Value> {
    serde_json::from_str(&run(&[args, &["-o", "json"]].concat())).expect("JSON")
}

#[test]
fn overhead_beside_the_bare_sdk() {
    let rows = rows(&["overhead", "--operations", "16", "--rounds", "1"]);
    assert!(rows.len() == 4 && rows.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{rows:?}");
}

#[test]
fn catch_up_beside_a_bare_loop() {
    let args = ["catch-up", "--events", "300", "--rounds", "1"];
    let rows = rows(&args);
    assert!(rows.len() == 3 && rows.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{rows:?}");
    let markdown = run(&[&args[..], &["-o", "markdown"]].concat());
    assert!(markdown.starts_with("| catch-up") && markdown.lines().nth(1) == Some("| --- | --- | --- | --- |"), "{markdown}");
}

#[test]
fn a_replay_from_a_served_engine() {
    let rows = rows(&["replay", "--events", "2500", "--commit", "1000"]);
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(rows.iter().all(|row| row["found"].as_f64().is_some_and(|found| found > 0.0)), "{rows:?}");
}

#[test]
fn units_of_every_layout() {
    let args = ["units", "--without-peers", "--row", "append-1", "--row", "two-tags", "--row", "conflict"];
    let found: serde_json::Value = serde_json::from_str(&run(&[&args[..], &["-o", "json"]].concat())).expect("JSON");
    let cell = |table: &str, contender: &str, column: &str| {
        let rows = found[table].as_array().expect("a table");
        let row = rows.iter().find(|row| row[""] == contender).expect("a contender");
        row[column].as_str().map(str::to_owned).expect("a cell")
    };
    for (contender, one, two) in [("bare SDK", "1 w, 1 req", "4 w, 1 req"), ("ledger, streams", "1 w, 1 req", "4 w, 1 req")] {
        assert_eq!(cell("appends", contender, "to a stream of 1"), one);
        assert_eq!(cell("appends", contender, "2 tags, condition"), two);
    }
    assert_eq!(cell("appends", "event-store-adapter v5", "to a stream of 1"), "4 w, 1 req");
    assert!(found["decisions and feeds"].as_array().is_some_and(|rows| rows.len() == 8), "{found}");
    let told = run(&args);
    assert!(told.contains("holds: the ledger in streams mode appends for 1 write unit") && !told.contains("DOES NOT"), "{told}");
}

#[test]
fn speed_of_every_layout_beside_the_bare_sdk() {
    let found: serde_json::Value = serde_json::from_str(&run(&[
        "speed",
        "--without-peers",
        "--rounds",
        "1",
        "--milliseconds",
        "20",
        "--writers",
        "1,2",
        "-o",
        "json",
    ]))
    .expect("JSON");
    let tables = found.as_object().expect("tables");
    // Streams twice, boundaries, and what the store adds to the SDK.
    assert_eq!(tables.len(), 4, "{found}");
    let rows: Vec<usize> = tables.values().map(|rows| rows.as_array().expect("rows").len()).collect();
    assert!(rows.iter().filter(|rows| **rows == 8).count() == 2 && !found.to_string().contains("failed"), "{found}");
}

#[test]
fn growth_of_streams_and_of_the_store() {
    let found: serde_json::Value =
        serde_json::from_str(&run(&["growth", "--without-peers", "--stream", "10", "--store", "1000", "-o", "json"])).expect("JSON");
    let appends = found["append as the stream grows: units · time"].as_array().expect("a table");
    let ledger = appends.iter().find(|row| row[""] == "ledger, streams").expect("the ledger");
    assert!(["1", "10"].iter().all(|length| ledger[*length].as_str().is_some_and(|cell| cell.starts_with("1 · "))), "{found}");
    assert_eq!(found.as_object().map(|tables| tables.len()), Some(3), "{found}");
}
