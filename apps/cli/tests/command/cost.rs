//! `cost`: units that are counted, times prices that can be given.

use crate::run;

fn dollars(args: &[&str]) -> serde_json::Value {
    run(&[&["cost", "-o", "ndjson"], args].concat()).ok().lines().remove(0)
}

fn of<'a>(answer: &'a serde_json::Value, layout: &str) -> &'a serde_json::Value {
    let layouts = answer["layouts"].as_array().expect("layouts");
    layouts.iter().find(|cost| cost["layout"] == layout).unwrap_or_else(|| panic!("{layout} in {answer}"))
}

/// Each price another one, so that no part is paid at the price of another.
const PRICES: &str = "date = \"2030-01-01\"\nregion = \"nowhere\"\n[on_demand]\nwrite_million = 1\nread_million = 10\n[provisioned]\nwrite_unit_hour = 1\n\
                      read_unit_hour = 100\n[storage]\ngigabyte_month = 1000\n[streams]\nread_million = 3\n[lambda]\nrequest_million = 0.5\ngigabyte_second = 0.0001\n";

fn priced() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, PRICES).expect("writes");
    let file = file.to_str().expect("UTF-8").to_owned();
    (folder, file)
}

fn number(cost: &serde_json::Value, part: &str) -> f64 {
    cost[part].as_f64().unwrap_or_else(|| panic!("{part} in {cost}"))
}

fn assert_near(cost: &serde_json::Value, part: &str, expected: f64) {
    assert!((number(cost, part) - expected).abs() < 0.005, "{part}: {expected} expected in {cost}");
}

const UNITS: [&str; 5] = ["table_writes", "index_writes", "reads", "indexer", "consumers"];
const BESIDES: [&str; 3] = ["streams", "lambda", "storage"];

fn sum(cost: &serde_json::Value, parts: &[&str]) -> f64 {
    parts.iter().map(|part| number(cost, part)).sum()
}

#[test]
fn a_workload_costs_its_units_times_the_prices() {
    let (_folder, file) = priced();
    let prices = ["--prices", &file];
    // A million events of one write unit each, a dollar a million, thirty days.
    let answer = dollars(&[&["--events-per-day", "1000000"], &prices[..]].concat());
    assert_eq!((answer["prices"].as_str(), answer["region"].as_str()), (Some("2030-01-01"), Some("nowhere")));
    let ledger = of(&answer, "ledger (streams)");
    assert_near(ledger, "table_writes", 30.0);
    assert_near(ledger, "index_writes", 0.0);
    // 20 events of 565 bytes are 3 units of read, ten dollars a million.
    assert_near(ledger, "reads", 900.0);
    // 30 million events of about 565 bytes, 100 an item besides, and the index of the feed; a year of them; a thousand dollars a gigabyte.
    let storage = number(ledger, "storage") / 12.0 / 30.0;
    assert!(storage > 665.0 && storage < 1_000.0, "{storage} bytes an event in {ledger}");
    for cost in answer["layouts"].as_array().expect("layouts") {
        assert_near(cost, "on_demand", sum(cost, &UNITS) + sum(cost, &BESIDES));
        let bought = sum(cost, &["provisioned_writes", "provisioned_reads"]);
        assert_near(cost, "provisioned", bought + sum(cost, &BESIDES));
        // Of both kinds all that is paid for.
        let units = number(cost, "write_units_per_event") + 10.0 * number(cost, "read_units_per_event");
        assert!((units * 30.0 - sum(cost, &UNITS)).abs() < 0.005, "{cost}");
    }
    let adapter = of(&answer, "event-store-adapter-v5");
    assert_near(adapter, "table_writes", 120.0);
    // 3 (1 + T) as published, of which T + 1 are of indexes, and the head.
    let sekiban = of(&answer, "sekiban");
    assert_near(sekiban, "table_writes", 180.0);
    assert_near(sekiban, "index_writes", 60.0);
    // The Tip is written whole with every append until it is full: the mean of many, and not what one of them came to.
    let equinox = number(of(&answer, "equinox"), "table_writes") / 30.0;
    assert!(equinox > 2.0 && equinox.fract() > 0.0, "{equinox}");
    // A decision on two tags writes both and reads both.
    let tagged = dollars(&[&["--events-per-day", "1000000", "--tags", "2"], &prices[..]].concat());
    assert_near(of(&tagged, "ledger (streams)"), "table_writes", 120.0);
    assert_near(of(&tagged, "ledger (streams)"), "reads", 1_800.0);
    assert_eq!(of(&tagged, "event-store-adapter-v5")["tags"], 1);
}

/// An epoch for a hundred commits where one comes alone flatters whoever has an index.
#[test]
fn an_index_is_paid_for_by_the_commits_that_wait_together() {
    let (_folder, file) = priced();
    let of_rate = |events: &str, by: &str| {
        let answer = dollars(&["--events-per-day", events, "--prices", &file, "--shards", "1", "--indexer", by, "--consumers", "0"]);
        of(&answer, "ledger (streams)").clone()
    };
    let units = |cost: &serde_json::Value| number(cost, "write_units_per_event") - 1.0;
    let alone = of_rate("1000", "process");
    assert!(units(&alone) > 0.95 && units(&alone) < 1.05, "{alone}");
    // The lease too, and two looks a day.
    let alone = of_rate("1000", "function");
    assert!(units(&alone) > 2.9 && units(&alone) < 3.1, "{alone}");
    assert!(number(&alone["indexing"], "together") < 1.1, "{alone}");
    // 116 a second are rung for once a second.
    let together = of_rate("10000000", "function");
    assert!(units(&together) < 0.2 && number(&together["indexing"], "together") > 100.0, "{together}");
    // Reads of the stream, three dollars a million, and 256 MB for as long as a look takes: of the function its own, of the process its own.
    let rings = number(&together["indexing"], "rings_per_second") * 2.592;
    assert!(rings > 2.5 && rings < 2.6, "{together}");
    assert!(number(&together, "streams") >= rings * 4.0 * 3.0 && number(&together, "lambda") > rings * 0.5, "{together}");
    let process = of_rate("10000000", "process");
    assert_eq!(number(&process, "lambda"), 0.0);
    assert!(number(&process, "streams") > number(&together, "streams"), "{process}");
    // Equinox' function is fed, and lanes need none.
    let answer = dollars(&["--events-per-day", "1000000", "--prices", &file]);
    let (equinox, lanes) = (of(&answer, "equinox"), of(&answer, "ledger (lanes-1)"));
    assert!(number(equinox, "streams") == 0.0 && number(equinox, "lambda") > 0.0, "{equinox}");
    assert_eq!(sum(lanes, &["streams", "lambda", "indexer"]), 0.0, "{lanes}");
}

#[test]
fn consumers_are_paid_for_what_they_read_and_write_also_when_nothing_comes() {
    let (_folder, file) = priced();
    let consumers = |consumers: &str| {
        let answer = dollars(&["--events-per-day", "1000", "--prices", &file, "--consumers", consumers]);
        number(of(&answer, "ledger (lanes-1)"), "consumers")
    };
    // A look a second of half a unit of read, at ten dollars a million, and some after each commit; every three seconds the lease is renewed, a
    // unit of write, and every four the leases are looked at, a unit of read.
    let one = consumers("1");
    let kept = 0.864 + 0.648 * 10.0;
    assert!(one > 12.8 + kept && one < 13.0 + kept + 3.0, "{one}");
    assert!((consumers("3") - 3.0 * one).abs() < 0.005);
    assert_eq!(consumers("0"), 0.0);
}

#[test]
fn the_published_estimate_of_sekiban_is_set_beside_its_design_and_ours() {
    // Whatever else is asked for, the estimate is of its own workload.
    let answer = dollars(&["--events-per-day", "10", "--sekiban-estimate"]);
    let other = dollars(&["--events-per-day", "99", "--size", "3000", "--consumers", "7", "--sekiban-estimate"]);
    assert_eq!(answer["sekiban_estimate"], other["sekiban_estimate"]);
    let parts = answer["sekiban_estimate"].as_array().expect("parts");
    let part = |name: &str| parts.iter().find(|part| part["part"] == name).expect("a part");
    assert_near(part("total"), "published", 233.0);
    // 3 (1 + T) units of write an event.
    let writes = number(part("event and tag writes"), "by_design") + number(part("index writes"), "by_design");
    assert!((writes - 6.0 * 30.0 * 1.4846).abs() < 0.005, "{parts:?}");
    assert!(number(part("storage"), "by_design") > 20.0 && number(part("reads"), "by_design") > 30.0, "{parts:?}");
    // 6 of tables, the head's two with them, and 2 of indexes.
    assert_near(part("event and tag writes"), "ours_then", 6.0 * 30.0 * 1.4846);
    assert_near(part("index writes"), "ours_then", 2.0 * 30.0 * 1.4846);
    let parts_of = |of: &str| parts.iter().filter(|part| part["part"] != "total").filter_map(|part| part[of].as_f64()).sum::<f64>();
    for column in ["published", "by_design", "ours_then", "ours"] {
        assert_near(part("total"), column, parts_of(column));
    }
    assert!(number(part("total"), "ours") < number(part("total"), "ours_then") / 2.0, "{parts:?}");
    // Why it differs is said.
    let assumed = answer["sekiban_assumed"].as_str().expect("text");
    assert!(assumed.contains("20 events") && assumed.contains("3.4 units"), "{assumed}");
}

#[test]
fn the_prices_can_be_taken_out_edited_and_given_back() {
    let printed = run(&["cost", "--print-prices"]).ok().stdout();
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, printed.replace("write_million = 0.625", "write_million = 6.25")).expect("writes");
    let own = dollars(&["--events-per-day", "1000"]);
    let edited = dollars(&["--events-per-day", "1000", "--prices", file.to_str().expect("UTF-8")]);
    let writes = |answer: &serde_json::Value| number(of(answer, "ledger (streams)"), "table_writes");
    assert_eq!(own["prices"], edited["prices"]);
    assert!((writes(&edited) - 10.0 * writes(&own)).abs() < 1e-9 && writes(&own) > 0.0, "{edited}");
    run(&["cost", "--print-prices", "--events-per-day", "1"]).fails(2);
}

#[test]
fn the_table_says_what_is_in_it_and_of_when_its_prices_are() {
    let shown = run(&["cost", "--events-per-day", "1000", "--tags", "2", "--sekiban-estimate", "-o", "table"]).ok().stdout();
    for text in
        ["indexes", "indexer", "Streams", "Lambda", "consumers", "storage", "provisioned", "prices of 2024-11-01", "GetRecords", "total"]
    {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    assert!(shown.contains("with one tag: equinox") && !shown.contains("-0.00"), "{shown}");
}

#[test]
fn bad_input_is_refused() {
    run(&["cost"]).fails(2);
    run(&["cost", "--events-per-day", "1", "--size", "5"]).fails(2);
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, "date = \"2030-01-01\"").expect("writes");
    run(&["cost", "--events-per-day", "1", "--prices", file.to_str().expect("UTF-8")]).fails(2);
}
