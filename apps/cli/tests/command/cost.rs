//! `cost`: units that are counted, times prices that can be given.

use crate::run;

fn dollars(args: &[&str]) -> serde_json::Value {
    run(&[&["cost", "-o", "ndjson"], args].concat()).ok().lines().remove(0)
}

fn of<'a>(answer: &'a serde_json::Value, layout: &str) -> &'a serde_json::Value {
    let layouts = answer["layouts"].as_array().expect("layouts");
    layouts.iter().find(|cost| cost["layout"] == layout).unwrap_or_else(|| panic!("{layout} in {answer}"))
}

#[test]
fn a_workload_costs_its_units_times_the_prices() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("prices.toml");
    let text = "date = \"2030-01-01\"\nregion = \"nowhere\"\n[on_demand]\nwrite_million = 1\nread_million = 0\n[provisioned]\nwrite_unit_hour = 1\n\
                read_unit_hour = 0\n[storage]\ngigabyte_month = 0\n[streams]\nread_million = 0\n[lambda]\nrequest_million = 0\ngigabyte_second = 0\n";
    std::fs::write(&file, text).expect("writes");
    let prices = ["--prices", file.to_str().expect("UTF-8")];
    // A million events of one write unit each, a dollar a million, thirty days.
    let answer = dollars(&[&["--events-per-day", "1000000"], &prices[..]].concat());
    assert_eq!((answer["prices"].as_str(), answer["region"].as_str()), (Some("2030-01-01"), Some("nowhere")));
    let ledger = of(&answer, "ledger (streams)");
    assert_eq!((ledger["write_units_per_event"].as_f64(), ledger["table_writes"].as_f64()), (Some(1.0), Some(30.0)), "{ledger}");
    assert_eq!((ledger["index_writes"].as_f64(), ledger["storage"].as_f64()), (Some(0.0), Some(0.0)));
    let adapter = of(&answer, "event-store-adapter-v5");
    assert_eq!(adapter["table_writes"].as_f64(), Some(120.0), "{adapter}");
    // 3 (1 + T) as published, of which T + 1 are of indexes, and the head.
    let sekiban = of(&answer, "sekiban");
    assert_eq!((sekiban["write_units_per_event"].as_f64(), sekiban["index_writes"].as_f64()), (Some(8.0), Some(60.0)), "{sekiban}");
    // Bought for three times the average, so that seven tenths of it are used: 11.8 units a second, the index's with them, are 51 for 720 hours.
    assert_eq!(ledger["provisioned"].as_f64(), Some(51.0 * 720.0), "{ledger}");
    let tagged = dollars(&[&["--events-per-day", "1000000", "--tags", "2"], &prices[..]].concat());
    assert_eq!(of(&tagged, "ledger (streams)")["write_units_per_event"].as_f64(), Some(4.0), "{tagged}");
    assert_eq!(of(&tagged, "event-store-adapter-v5")["tags"], 1);
}

#[test]
fn the_published_estimate_of_sekiban_is_recomputed_and_bad_input_is_refused() {
    let answer = dollars(&["--events-per-day", "10", "--sekiban-estimate"]);
    let estimate = &answer["sekiban_estimate"];
    assert_eq!(estimate["published"].as_f64(), Some(233.0));
    let then = estimate["recomputed_at_their_prices"].as_f64().expect("a number");
    let now = estimate["recomputed_at_these_prices"].as_f64().expect("a number");
    // 8 units an event (6 as published, 2 for the head) at their price are 356 dollars, without reads and storage.
    assert!(then > 356.0 && now < then / 2.0, "{estimate}");
    run(&["cost"]).fails(2);
    run(&["cost", "--events-per-day", "1", "--size", "5"]).fails(2);
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, "date = \"2030-01-01\"").expect("writes");
    run(&["cost", "--events-per-day", "1", "--prices", file.to_str().expect("UTF-8")]).fails(2);
}
