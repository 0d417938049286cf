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

#[test]
fn a_workload_costs_its_units_times_the_prices() {
    let (_folder, file) = priced();
    let prices = ["--prices", &file];
    // A million events of one write unit each, a dollar a million, thirty days.
    let answer = dollars(&[&["--events-per-day", "1000000"], &prices[..]].concat());
    assert_eq!((answer["prices"].as_str(), answer["region"].as_str()), (Some("2030-01-01"), Some("nowhere")));
    let ledger = of(&answer, "ledger (streams)");
    assert_near(ledger, "write_units_per_event", 1.0);
    assert_near(ledger, "table_writes", 30.0);
    assert_near(ledger, "index_writes", 0.0);
    // 20 events of 565 bytes are 3 units of read, ten dollars a million.
    assert_near(ledger, "reads", 900.0);
    // A shard is asked every second of 30 days; the function starts as often, for 12.5 thousandths of a gigabyte-second.
    assert_near(ledger, "streams", 2.592 * 3.0);
    assert_near(ledger, "lambda", 2.592 * 0.5 + 2_592_000.0 * 0.0125 * 0.0001);
    // More than a commit a second: no look is in vain.
    assert_near(ledger, "idle", 0.0);
    // 30 million events of about 565 bytes, 100 an item besides, and the index of the feed; a year of them; a thousand dollars a gigabyte.
    let storage = number(ledger, "storage") / 12.0 / 30.0;
    assert!(storage > 665.0 && storage < 740.0, "{storage} bytes an event in {ledger}");
    let parts = ["table_writes", "index_writes", "reads", "feed", "idle", "storage"];
    let cheaper = number(ledger, "streams").min(number(ledger, "lambda"));
    assert_near(ledger, "on_demand", parts.iter().map(|part| number(ledger, part)).sum::<f64>() + cheaper);
    // Bought for three times the average, so that seven tenths of it are used: 11.8 units of write a second, the index's with them, are 51 for
    // 720 hours.
    assert_near(ledger, "provisioned_writes", 51.0 * 720.0);
    let reads = number(ledger, "read_units_per_event") * 1e6 / 86_400.0;
    assert_near(ledger, "provisioned_reads", (reads * 3.0 / 0.7).ceil() * 720.0 * 100.0);
    let bought = number(ledger, "provisioned_writes") + number(ledger, "provisioned_reads");
    assert_near(ledger, "provisioned", bought + cheaper + number(ledger, "storage"));
    let adapter = of(&answer, "event-store-adapter-v5");
    assert_near(adapter, "table_writes", 120.0);
    // 3 (1 + T) as published, of which T + 1 are of indexes, and the head.
    let sekiban = of(&answer, "sekiban");
    assert_near(sekiban, "write_units_per_event", 8.0);
    assert_near(sekiban, "index_writes", 60.0);
    // Lanes need no stream.
    let lanes = of(&answer, "ledger (lanes-1)");
    assert_eq!((number(lanes, "streams"), number(lanes, "lambda")), (0.0, 0.0), "{lanes}");
    // The Tip is written whole with every append until it is full: the mean of many, and not what one of them came to.
    let equinox = number(of(&answer, "equinox"), "write_units_per_event");
    assert!(equinox > 2.0 && equinox.fract() > 0.0, "{equinox}");
    let tagged = dollars(&[&["--events-per-day", "1000000", "--tags", "2"], &prices[..]].concat());
    assert_near(of(&tagged, "ledger (streams)"), "write_units_per_event", 4.0);
    assert_eq!(of(&tagged, "event-store-adapter-v5")["tags"], 1);
}

#[test]
fn consumers_that_find_nothing_are_paid_for() {
    let (_folder, file) = priced();
    let idle = |consumers: &str| {
        let answer = dollars(&["--events-per-day", "1000", "--prices", &file, "--consumers", consumers]);
        number(of(&answer, "ledger (lanes-1)"), "idle")
    };
    // A look a second that costs at most a unit of read, at ten dollars a million, but for the 30,000 that find a commit.
    let one = idle("1");
    assert!(one > 5.0 && one <= 25.7, "{one}");
    assert!((idle("3") - 3.0 * one).abs() < 0.005);
}

#[test]
fn the_published_estimate_of_sekiban_is_set_beside_its_design_and_ours() {
    // Whatever else is asked for, the estimate is of its own workload.
    let answer = dollars(&["--events-per-day", "10", "--sekiban-estimate"]);
    let other = dollars(&["--events-per-day", "99", "--size", "3000", "--consumers", "7", "--sekiban-estimate"]);
    assert_eq!(answer["sekiban_estimate"], other["sekiban_estimate"]);
    let parts = answer["sekiban_estimate"].as_array().expect("parts");
    let sum = |of: &str| parts.iter().filter_map(|part| part[of].as_f64()).sum::<f64>();
    assert!((sum("published") - 233.0).abs() < 0.005);
    // 3 (1 + T) units of write an event.
    assert!((sum("by_design") - 6.0 * 30.0 * 1.4846).abs() < 0.005, "{parts:?}");
    let part = |name: &str| parts.iter().find(|part| part["part"] == name).expect("a part");
    // 6 of tables, the head's two with them, and 2 of indexes.
    assert_near(part("event and tag writes"), "ours_then", 6.0 * 30.0 * 1.4846);
    assert_near(part("index writes"), "ours_then", 2.0 * 30.0 * 1.4846);
    assert!(sum("ours") < sum("ours_then") / 2.0 && number(part("storage"), "ours") > 3.0, "{parts:?}");
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
