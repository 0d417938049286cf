//! Every benchmark runs, small: figures come from a release build. From here, that they come, that they are of what they say, and that a run
//! fails where a promise does not hold.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn ran(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fencepost-bench")).args(args).output().expect("it starts")
}

fn run(args: &[&str]) -> String {
    let ran = ran(args);
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8")
}

/// The tables of a run, each with its title, rows and notes.
fn tables(args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&run(&[args, &["-o", "json"]].concat())).expect("JSON")
}

fn table<'a>(tables: &'a [Value], title: &str) -> &'a Vec<Value> {
    let found = tables.iter().find(|table| table["title"].as_str().is_some_and(|of| of.starts_with(title)));
    found.and_then(|table| table["rows"].as_array()).unwrap_or_else(|| panic!("{title} in {tables:?}"))
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row[""] == name).unwrap_or_else(|| panic!("{name} in {rows:?}"))
}

/// What both sides did, and how their times compare: the ratio is that of the times, within what medians of few rounds allow.
fn compared(rows: &[Value], ours: &str, bare: &str, is_time: bool) {
    for row in rows {
        let of = |column: &str| row[column].as_f64().unwrap_or_else(|| panic!("{column} in {row}"));
        let ratio = if is_time { of(ours) / of(bare) } else { of(bare) / of(ours) };
        assert!(of(ours) > 0.0 && of("ratio") > 0.0 && (ratio / of("ratio") - 1.0).abs() < 0.01, "{row}");
    }
}

#[test]
fn overhead_beside_the_bare_sdk() {
    let found = tables(&["overhead", "--operations", "16", "--rounds", "1"]);
    let rows = table(&found, "");
    assert_eq!(rows.len(), 3, "{rows:?}");
    compared(rows, "fencepost, ms", "bare SDK, ms", true);
}

#[test]
fn catch_up_beside_a_bare_loop() {
    let args = ["catch-up", "--events", "300", "--rounds", "1"];
    let found = tables(&args);
    assert_eq!(table(&found, "").len(), 3, "{found:?}");
    let markdown = run(&[&args[..], &["-o", "markdown"]].concat());
    assert!(markdown.starts_with("| catch-up") && markdown.lines().nth(1) == Some("| --- | --- | --- | --- |"), "{markdown}");
}

#[test]
fn a_replay_from_a_served_engine() {
    let found = tables(&["replay", "--events", "2500", "--commit", "1000"]);
    let rows = table(&found, "2500 events");
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in rows {
        let figures = row.as_object().expect("a row").iter().filter(|(name, _)| !name.is_empty());
        assert!(
            figures.clone().count() == 7 && figures.map(|(_, found)| found).all(|found| found.as_f64().is_some_and(|n| n > 0.0)),
            "{row}"
        );
    }
}

#[test]
fn units_of_every_layout() {
    let wanted = ["append-1", "append-100", "two-tags", "twenty", "load-100", "snapshot", "cold", "warm", "conflict"];
    let rows: Vec<&str> = wanted.iter().flat_map(|row| ["--row", row]).collect();
    let found = tables(&[&["units", "--without-peers"], &rows[..]].concat());
    let cell = |title: &str, contender: &str, column: &str| {
        let cell = &row(table(&found, title), contender)[column];
        cell["shown"].as_str().or(cell.as_str()).unwrap_or_else(|| panic!("{contender}, {column}")).to_owned()
    };
    // The ledger in streams mode sends what the bare SDK sends, for as much, whatever is done; a refused write is billed.
    for contender in ["bare SDK", "ledger, streams"] {
        for (column, units) in [("to a stream of 1", "1 w, 1 req"), ("of 100", "1 w, 1 req"), ("2 tags, condition", "4 w, 1 req")] {
            assert_eq!(cell("appends", contender, column), units, "{contender}, {column}");
        }
        for (column, units) in [("load 100", "14 r, 1 req"), ("snapshot and 2", "2 r, 2 req")] {
            assert_eq!(cell("reads", contender, column), units, "{contender}, {column}");
        }
        for (column, units) in
            [("decide cold", "1 w + 14 r, 2 req"), ("decide warm", "1 w + 1 r, 2 req"), ("lose, decide again", "2 w, 2 req")]
        {
            assert_eq!(cell("decisions and feeds", contender, column), units, "{contender}, {column}");
        }
    }
    // A line of its own for reads that ask for less.
    let eventual = "ledger, streams, eventual";
    assert_eq!(cell("reads", eventual, "load 100"), "7 r~, 1 req");
    assert_eq!(cell("decisions and feeds", eventual, "decide warm"), "1 w + 0.5 r~, 2 req");
    // A process that has been running for a while knows the lane's end, at every length.
    for column in ["to a stream of 1", "of 100"] {
        assert_eq!(cell("appends", "ledger, lanes-1", column), "4 w, 1 req");
    }
    assert_eq!(cell("appends", "event-store-adapter v5", "to a stream of 1"), "4 w, 1 req");
    assert!(cell("reads", "equinox", "snapshot and 2").ends_with("written with every append"), "{found:?}");
    // Where the next appends take other units, that is said.
    assert!(cell("appends", "equinox", "of 100").contains(" w in the next 100"), "{found:?}");
    let figures = &row(table(&found, "appends"), "ledger, streams")["2 tags, condition"];
    assert_eq!((figures["write"].as_f64(), figures["requests"].as_u64()), (Some(4.0), Some(1)), "for programs, numbers");
    let notes = found.iter().flat_map(|table| table["notes"].as_array().expect("notes")).map(|note| note.as_str().expect("text"));
    let notes: Vec<&str> = notes.collect();
    assert!(notes.iter().any(|note| note.starts_with("holds: the ledger in streams mode appends for 1 write unit")), "{notes:?}");
    assert!(notes.iter().any(|note| note.starts_with("not the floor: 20 events")) && !notes.concat().contains("DOES NOT"), "{notes:?}");
}

#[test]
fn speed_of_every_layout_beside_the_bare_sdk() {
    let found = tables(&["speed", "--without-peers", "--rounds", "2", "--milliseconds", "100", "--writers", "1,2"]);
    // Streams twice, pairs, boundaries, and what the store adds to the SDK.
    assert_eq!(found.len(), 5, "{found:?}");
    for pairs in table(&found, "disjoint, 1 writer") {
        let of = |column: &str| pairs[column].as_f64().unwrap_or_else(|| panic!("{column} in {pairs}"));
        assert!(of("pairs") == 6.0 && of("least") <= of("time, median") && of("time, median") <= of("most"), "{pairs}");
    }
    for (title, contenders) in [("appends to disjoint", 9), ("appends to one hot", 9), ("decisions on overlapping", 6)] {
        let rows = table(&found, title);
        assert_eq!(rows.len(), contenders, "{rows:?}");
        for cell in rows.iter().flat_map(|row| [&row["1 writer"], &row["2 writers"]]) {
            assert!(["per_second", "p50_ms", "time_to_bare"].iter().all(|of| cell[of].as_f64().is_some_and(|of| of > 0.0)), "{rows:?}");
            assert!(cell["p99_ms"].as_f64() >= cell["p50_ms"].as_f64(), "{cell}");
        }
        let bare = &row(rows, "bare SDK")["1 writer"]["time_to_bare"];
        assert_eq!(bare.as_f64(), Some(1.0), "beside itself");
    }
}

#[test]
fn growth_of_streams_and_of_the_store() {
    let found = tables(&["growth", "--without-peers", "--stream", "10", "--store", "1000"]);
    let appends = table(&found, "append as the stream grows");
    let loads = table(&found, "load as the stream grows");
    assert!(row(loads, "event-store-adapter v3")["10"]["shown"].as_str().is_some_and(|shown| shown.contains(" r~, ")), "{loads:?}");
    assert!(row(loads, "ledger, streams")["10"]["shown"].as_str().is_some_and(|shown| shown.contains(" r, ")), "{loads:?}");
    assert!(found[0]["notes"].to_string().contains("equinox: from "), "{}", found[0]["notes"]);
    for length in ["1", "10"] {
        for who in ["ledger, streams", "bare SDK"] {
            let cell = &row(appends, who)[length];
            let figures = (cell["write"].as_f64(), cell["read"].as_f64(), cell["requests"].as_u64());
            assert_eq!(figures, (Some(1.0), Some(0.0), Some(1)), "{who}, {length}");
        }
    }
    assert_eq!(found.len(), 3, "{found:?}");
    let notes = found[2]["notes"].to_string();
    assert!(
        notes.contains("holds: in every round an append of the ledger") && notes.contains("at 2 lengths of a stream and 1 sizes"),
        "{notes}"
    );
}

/// What is idle is watched in real time: all of a layout's rows at once.
#[test]
fn an_idle_consumer_takes_more_than_a_bare_subscription() {
    let who = "ledger, streams";
    let found = tables(&["units", "--without-peers", "--who", who, "--row", "idle", "--row", "consumer"]);
    let cells = row(table(&found, "decisions and feeds"), who);
    let (bare, consumer) = (&cells["subscription, idle hour"], &cells["consumer, idle hour"]);
    let of = |cell: &Value, figure: &str| cell[figure].as_f64().unwrap_or_else(|| panic!("{figure} in {cell}"));
    // A look a second; and by default a renewal of the lease every three, and a look at the others' every four.
    assert!(of(bare, "write") == 0.0 && (3_300.0..=3_750.0).contains(&of(bare, "requests")), "{cells}");
    assert!(of(consumer, "write") == 1_200.0 && of(consumer, "read") > of(bare, "read"), "{cells}");
}

/// An engine in a process of its own, ended with this.
struct Served(std::process::Child, String);

impl Served {
    fn new() -> Served {
        let mut engine = Command::new(env!("CARGO_BIN_EXE_fencepost-bench"));
        let engine = engine.args(["process", "engine"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = engine.spawn().expect("it starts");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut address).expect("a line");
        Served(child, format!("http://{}", address.trim()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_endpoint_is_measured_as_often_as_one_likes() {
    let served = Served::new();
    for _ in 0..2 {
        run(&["units", "--without-peers", "--row", "append-1", "--row", "two-tags", "--endpoint", &served.1]);
        run(&["growth", "--without-peers", "--stream", "1", "--store", "1000", "--endpoint", &served.1]);
        run(&[
            "speed",
            "--without-peers",
            "--rounds",
            "1",
            "--milliseconds",
            "10",
            "--writers",
            "1",
            "--scenario",
            "hot",
            "--endpoint",
            &served.1,
        ]);
    }
}

/// What writes the documents works from end to end, on a copy of those it writes into.
#[test]
fn everything_is_written_where_it_is_told() {
    let folder = std::env::temp_dir().join(format!("fencepost-bench-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("docs/src")).expect("a folder");
    let (readme, summary) = (folder.join("README.md"), folder.join("docs/src/SUMMARY.md"));
    std::fs::write(&readme, "# A\n<!-- beside -->\nold\n<!-- /beside -->\nend\n").expect("writes");
    std::fs::write(&summary, "- [What it costs](costs.md)\n  - [Measured: units](measured/units.md)\n- [Moving](moving.md)\n")
        .expect("writes");
    let into = folder.to_str().expect("UTF-8");
    run(&["all", "--quick", "--without-peers", "--write", "--into", into]);
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let readme = read("README.md");
    assert!(readme.starts_with("# A\n<!-- beside -->\n**appends**") && readme.ends_with("<!-- /beside -->\nend\n"), "{readme}");
    let linked = "  - [Measured: units](measured/units.md)\n  - [Measured: speed](measured/speed.md)\n  - [Measured: growth](measured/growth.md)\n  - [Measured: feeds](measured/feeds.md)\n- [Moving]";
    assert!(read("docs/src/SUMMARY.md").contains(linked), "{}", read("docs/src/SUMMARY.md"));
    for page in ["units", "speed", "growth", "feeds"] {
        let text = read(&format!("docs/src/measured/{page}.md"));
        // Who ran, and nobody else; no peer has such feeds.
        assert!(text.contains("its embedded engine (dynoxide ") && !text.contains("dynamo-es"), "{text}");
        assert!(text.contains("without peers") || page == "feeds", "{text}");
        // How to do it again: not what the whole of it would have been told.
        let told = match page {
            "units" => "-- units --row append-1 --row load-100",
            "speed" => "-- speed --rounds 1 --milliseconds 50 --writers 1,2 --without-peers --write --into",
            "growth" => "-- growth --stream 10 --store 1000 --seconds 180 --without-peers --write",
            _ => "-- feeds --quick --write",
        };
        assert!(text.contains(told) && text.contains("aws-sdk-dynamodb 1."), "{text}");
        assert!(!text.contains("cargo run --release"), "this is a debug build: {text}");
        for picture in text.lines().filter_map(|line| line.strip_prefix("![")?.split('(').nth(1)) {
            assert!(read(&format!("docs/src/measured/{}", picture.trim_end_matches(')'))).starts_with("<svg"), "{picture}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("removes");
}

#[test]
fn a_part_of_the_work_is_not_written_as_the_whole() {
    for args in [&["units", "--row", "append-1", "--write"][..], &["units", "--without-peers", "--write"], &["all", "--quick", "--write"]] {
        let refused = ran(args);
        assert!(!refused.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("in full"), "{said}");
    }
}
