//! What a month of a workload costs, from what was counted: units times prices. Pure.

use std::collections::BTreeMap;

use fencepost::Consumer;
use fencepost::testing::Place;
use serde::Serialize;

use super::consumed::Consumed;
use super::pace::{Keeping, REQUEST, Rings, Round};
use super::prices::Prices;
use super::sample::{Indexer, Rung, Sample};
use super::{By, Workload};

pub(super) const DAYS: f64 = 30.0;
const DAY: f64 = 86_400.0;
const MONTH: f64 = DAYS * DAY;
const MILLION: f64 = 1e6;
const GIGABYTE: f64 = 1e9;
/// Provisioned capacity is bought so that the busiest moment uses this much of it.
const UTILISED: f64 = 0.7;

/// A partition of a table takes so many write units a second and holds so many bytes, and is a shard of the stream; a new table on demand has
/// four, since it takes 4,000 at once. AWS, "Partitions and data distribution", "On-demand capacity mode".
const UNITS_OF_A_SHARD: f64 = 1_000.0;
const BYTES_OF_A_SHARD: f64 = 10.0 * GIGABYTE;
const LEAST_SHARDS: f64 = 4.0;

/// `apps/indexer/deploy/template.yaml`: 256 MB, and a rule that rings twice a day. A test holds them together.
const GIGABYTES: f64 = 0.25;
const LOOKS_A_DAY: f64 = 2.0;
/// Between the three empty pages that end a ring it pauses twice for 20 ms.
const PAUSES: f64 = 0.04;
/// A ring looks for its commit in the newest epochs, so many of them, before it ends. Nothing was rung about where it was counted.
const NEWEST: f64 = 16.0;
/// A ring that finds another at work waits about a second for it, leaves a mark, and looks at the lease and for its commit four times.
const HANDED_SECONDS: f64 = 1.0;
const HANDED: (f64, f64) = (8.0, 1.0);

/// Dollars a month.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Cost {
    pub(super) layout: String,
    /// Of the tags asked for.
    pub(super) tags: usize,
    /// Of all that is below, indexes, indexer and consumers with it.
    pub(super) write_units_per_event: f64,
    pub(super) read_units_per_event: f64,
    pub(super) table_writes: f64,
    pub(super) index_writes: f64,
    /// By commits and loads.
    pub(super) reads: f64,
    /// What the indexer of the feed writes and reads.
    pub(super) indexer: f64,
    pub(super) streams: f64,
    pub(super) lambda: f64,
    /// What consumers read of the feed, also in vain, and what they write.
    pub(super) consumers: f64,
    pub(super) storage: f64,
    pub(super) on_demand: f64,
    pub(super) provisioned_writes: f64,
    pub(super) provisioned_reads: f64,
    pub(super) provisioned: f64,
    /// How it is indexed; none where the feed needs no indexer.
    pub(super) indexing: Option<Indexing>,
}

/// How a feed is indexed at this rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Indexing {
    pub(super) shards: f64,
    /// Commits that are indexed together.
    pub(super) together: f64,
    /// How often a second something is indexed, and the function starts.
    pub(super) rounds_per_second: f64,
    pub(super) rings_per_second: f64,
    pub(super) stream_reads_per_second: f64,
    pub(super) gigabyte_seconds_per_second: f64,
    /// A second's.
    #[serde(skip)]
    units: Consumed,
}

fn by_process(of: &Indexer, commits: f64, shards: f64) -> Indexing {
    let round = Round::of_indexer(commits);
    let (together, rounds) = (commits * round.seconds, 1.0 / round.seconds);
    Indexing {
        shards,
        together,
        rounds_per_second: rounds,
        stream_reads_per_second: round.looks * rounds * shards,
        units: of.round.at(together).times(rounds),
        ..Indexing::default()
    }
}

/// Rung, it reads the stream itself.
fn by_rings(of: &Indexer, rung: &Rung, commits: f64, shards: f64) -> Indexing {
    // How long a look takes depends on how much it finds, and little: as long as one that finds one.
    let seconds = rung.requests.one * REQUEST + PAUSES;
    let rings = Rings::of(commits, shards, seconds);
    let together = commits / rings.looks;
    let looks_for_nothing = LOOKS_A_DAY / DAY;
    let about = (NEWEST * of.bytes.at(together) / 4_096.0).ceil();
    let at_lease = |(read, write): (f64, f64)| {
        let lease = rung.nothing.0.iter().find(|(_, units)| units.write > 0.0).map(|(place, _)| place.clone());
        Consumed(lease.map(|place| (place, fencepost::Units { read, write, requests: 0 })).into_iter().collect())
    };
    let units = Consumed::default()
        .with(rings.looks, &rung.round.at(together))
        .with(rings.looks, &at_lease((about, 0.0)))
        .with(rings.handed, &at_lease(HANDED))
        // It says each time that it looked.
        .with(looks_for_nothing, &rung.nothing)
        .with(looks_for_nothing, &at_lease((0.0, 1.0)));
    Indexing {
        shards,
        together,
        rounds_per_second: rings.looks,
        rings_per_second: rings.rings + looks_for_nothing,
        stream_reads_per_second: (rings.looks * rung.reads.at(together) + looks_for_nothing * rung.reads.one) * shards,
        gigabyte_seconds_per_second: (rings.looks * seconds + rings.handed * HANDED_SECONDS + looks_for_nothing * seconds) * GIGABYTES,
        units,
    }
}

/// Fed with records, it reads no stream, takes no lease, and waits for nobody.
fn by_records(of: &Indexer, commits: f64, shards: f64) -> Indexing {
    let rings = Rings::of(commits, shards, REQUEST).rings;
    let together = commits / rings;
    let units = of.round.at(together).times(rings);
    // Units of both kinds are about as many requests, one after the other.
    let seconds = REQUEST * (of.round.one.read() + of.round.one.write()).max(1.0);
    Indexing {
        shards,
        together,
        rounds_per_second: rings,
        rings_per_second: rings,
        gigabyte_seconds_per_second: rings * seconds * GIGABYTES,
        units,
        ..Indexing::default()
    }
}

/// Capacity for a month, in unit hours of writes and reads: of each table and index by itself, at least one, as AWS sells it.
fn bought(units: &BTreeMap<Place, fencepost::Units>, peak: f64) -> (f64, f64) {
    let of = |per_month: f64| (per_month / MONTH * peak / UTILISED).ceil().max(1.0) * 24.0 * DAYS;
    units
        .values()
        .map(|units| (of(units.write), of(units.read)))
        .fold((0.0, 0.0), |(writes, reads), (write, read)| (writes + write, reads + read))
}

pub(super) fn cost(layout: &str, work: &Workload, of: &Sample, prices: &Prices) -> Cost {
    let events = work.events_per_day as f64 * DAYS;
    let commits = events / work.events_per_commit as f64;
    let loads = work.loads_per_day.map_or(commits, |loads| loads as f64 * DAYS);
    let (per_second, events_per_second) = (commits / MONTH, events / MONTH);

    let shards = work.shards.map_or_else(
        || {
            let units = (of.commit.write() - of.commit.index_write()) * per_second * work.peak;
            let bytes = of.largest * events * work.months as f64;
            (units / UNITS_OF_A_SHARD).max(bytes / BYTES_OF_A_SHARD).ceil().max(LEAST_SHARDS)
        },
        |shards| shards as f64,
    );
    let indexing = of.indexer.as_ref().map(|indexer| match (work.indexer, &indexer.ring) {
        (By::Process, _) => by_process(indexer, per_second, shards),
        (By::Function, Some(rung)) => by_rings(indexer, rung, per_second, shards),
        (By::Function, None) => by_records(indexer, per_second, shards),
    });
    let index_bytes = match (&of.indexer, &indexing) {
        (Some(indexer), Some(indexing)) => indexer.bytes.at(indexing.together) / indexing.together,
        _ => 0.0,
    };

    // What is indexed together comes together.
    let arrivals = indexing.as_ref().map_or(per_second, |indexing| indexing.rounds_per_second.min(per_second));
    let round = Round::of_feed(arrivals);
    let keeping = Keeping::of(arrivals, events_per_second, Consumer::LEASE, (Consumer::SAVE_EVENTS, Consumer::SAVE_TIME));
    let consumer = of
        .follow
        .at(per_second * round.seconds)
        .times(1.0 / round.seconds)
        .with((round.looks - 1.0) / round.seconds, &of.idle)
        .with(keeping.saves, &of.save)
        .with(keeping.looks, &of.seats);

    let (commit, load) = (of.commit.times(commits), of.load.times(loads));
    let indexer = indexing.as_ref().map(|indexing| indexing.units.times(MONTH)).unwrap_or_default();
    let consumers = consumer.times(MONTH * work.consumers as f64);
    let all = commit.clone().with(1.0, &load).with(1.0, &indexer).with(1.0, &consumers);

    let write = |units: f64| units / MILLION * prices.on_demand.write_million;
    let read = |units: f64| units / MILLION * prices.on_demand.read_million;
    let both = |units: &Consumed| write(units.write()) + read(units.read());
    let a_month = |of: fn(&Indexing) -> f64| indexing.as_ref().map_or(0.0, of) * MONTH;
    let lambda = a_month(|indexing| indexing.rings_per_second) / MILLION * prices.lambda.request_million
        + a_month(|indexing| indexing.gigabyte_seconds_per_second) * prices.lambda.gigabyte_second;
    let stored = (of.bytes * events + index_bytes * commits) * work.months as f64;
    let (writes, reads) = bought(&all.0, work.peak);
    let mut cost = Cost {
        layout: layout.to_owned(),
        tags: of.tags,
        write_units_per_event: all.write() / events,
        read_units_per_event: all.read() / events,
        table_writes: write(commit.write() - commit.index_write()),
        index_writes: write(commit.index_write()),
        reads: read(commit.read() + load.read()),
        indexer: both(&indexer),
        streams: a_month(|indexing| indexing.stream_reads_per_second) / MILLION * prices.streams.read_million,
        lambda,
        consumers: both(&consumers),
        storage: stored / GIGABYTE * prices.storage.gigabyte_month,
        provisioned_writes: writes * prices.provisioned.write_unit_hour,
        provisioned_reads: reads * prices.provisioned.read_unit_hour,
        indexing,
        ..Cost::default()
    };
    let besides = cost.streams + cost.lambda + cost.storage;
    cost.on_demand = cost.table_writes + cost.index_writes + cost.reads + cost.indexer + cost.consumers + besides;
    cost.provisioned = cost.provisioned_writes + cost.provisioned_reads + besides;
    cost
}

#[cfg(test)]
mod tests {
    use super::super::consumed::Grows;
    use super::super::consumed::tests::at;
    use super::super::prices::prices;
    use super::*;

    const WORK: Workload = Workload {
        events_per_day: 864_000,
        size: 500,
        tags: 1,
        events_per_commit: 1,
        loads_per_day: Some(0),
        load_events: 20,
        consumers: 0,
        months: 1,
        peak: 3.0,
        indexer: By::Function,
        shards: Some(1),
    };

    #[track_caller]
    fn near(left: f64, right: f64) {
        assert!((left - right).abs() <= 1e-6 * right.abs().max(1e-6), "{left}, and not {right}");
    }

    /// A dollar for a million write units, and other prices for all else.
    fn dear() -> Prices {
        let mut prices = prices(None).expect("the program's own");
        (prices.on_demand.write_million, prices.on_demand.read_million) = (1.0, 10.0);
        (prices.provisioned.write_unit_hour, prices.provisioned.read_unit_hour) = (1.0, 100.0);
        (prices.storage.gigabyte_month, prices.streams.read_million) = (1_000.0, 3.0);
        (prices.lambda.request_million, prices.lambda.gigabyte_second) = (0.5, 0.0001);
        prices
    }

    /// An epoch is a unit, of a hundred commits ten.
    fn indexer() -> Indexer {
        let round = Grows { one: at("side", None, 0.0, 1.0), many: at("side", None, 0.0, 10.0) };
        let rung = Grows { one: at("side", None, 2.0, 3.0), many: at("side", None, 2.0, 12.0) };
        Indexer {
            round,
            bytes: Grows { one: 400.0, many: 400.0 + 99.0 * 60.0 },
            ring: Some(Rung {
                round: rung,
                nothing: at("side", None, 2.0, 2.0),
                reads: Grows { one: 4.0, many: 4.0 },
                requests: Grows { one: 12.0, many: 12.0 },
            }),
        }
    }

    fn sample() -> Sample {
        Sample { tags: 1, commit: at("log", None, 0.0, 1.0), bytes: 700.0, largest: 700.0, ..Sample::default() }
    }

    #[test]
    fn a_commit_that_comes_alone_costs_an_epoch_and_a_ring_of_its_own() {
        // One an hour, to three digits.
        let (of, hour) = (indexer(), 3_600.0);
        let rounded = |number: f64| (number * hour * 1e3).round() / 1e3;
        assert_eq!(rounded(by_process(&of, 1.0 / hour, 1.0).units.write()), 1.0);
        let indexing = by_rings(&of, of.ring.as_ref().expect("rung"), 1.0 / hour, 1.0);
        // The lease and the epoch; and twice a day a look for nothing, of three units. A second of 3,600 is the window's.
        let hours = hour / (hour + 1.0);
        assert_eq!(rounded(indexing.units.write()), ((3.0 * hours + 3.0 / 12.0) * 1e3).round() / 1e3);
        assert_eq!(rounded(indexing.rings_per_second), ((hours + 1.0 / 12.0) * 1e3).round() / 1e3);
    }

    #[test]
    fn at_ten_commits_a_second_the_function_indexes_eleven_together() {
        let of = indexer();
        let indexing = by_rings(&of, of.ring.as_ref().expect("rung"), 10.0, 1.0);
        // A tenth of a second until one comes, and a second of gathering.
        near(indexing.together, 11.0);
        let rings = 1.0 / 1.1;
        let looks = LOOKS_A_DAY / DAY;
        near(indexing.rings_per_second, rings + looks);
        near(indexing.units.write(), rings * (3.0 + 9.0 / 99.0 * 10.0) + looks * 3.0);
        // 16 epochs of 1,000 bytes are four units, to find the commit that rang.
        near(indexing.units.read(), rings * (2.0 + 4.0) + looks * 2.0);
        near(indexing.stream_reads_per_second, (rings + looks) * 4.0);
        // Twelve requests and two pauses, by a quarter of a gigabyte.
        near(indexing.gigabyte_seconds_per_second, (rings + looks) * 0.16 * 0.25);
    }

    #[test]
    fn every_look_reads_every_shard() {
        let of = indexer();
        let reads = |shards| by_process(&of, 10.0, shards).stream_reads_per_second;
        near(reads(40.0), 40.0 * reads(1.0));
        // Several shards ring, one looks, and the others wait for it.
        let many = by_rings(&of, of.ring.as_ref().expect("rung"), 1e6, 40.0);
        near(many.rounds_per_second, 1.0 / 0.16);
        near(many.stream_reads_per_second, (1.0 / 0.16 + LOOKS_A_DAY / DAY) * 4.0 * 40.0);
        assert!(many.gigabyte_seconds_per_second > 30.0 * HANDED_SECONDS * GIGABYTES, "{many:?}");
    }

    #[test]
    fn a_table_has_a_shard_for_ten_gigabytes_for_a_thousand_units_and_four_at_least() {
        let of = Sample { indexer: Some(indexer()), ..sample() };
        let shards = |work: Workload| cost("", &Workload { shards: None, ..work }, &of, &dear()).indexing.expect("indexed").shards;
        assert_eq!(shards(WORK), 4.0);
        // 25.92 million events of 700 bytes a month.
        assert_eq!(shards(Workload { months: 12, ..WORK }), 22.0);
        assert_eq!(shards(Workload { events_per_day: 864_000_000, months: 0, ..WORK }), 30.0);
    }

    #[test]
    fn the_sum_is_of_all_columns_and_units_are_of_all_of_them() {
        let follow = Grows { one: at("log", None, 1.0, 0.0), many: at("log", None, 100.0, 0.0) };
        let of = Sample {
            commit: at("log", None, 0.5, 1.0).with(1.0, &at("log", Some("all"), 0.0, 2.0)),
            load: at("log", None, 3.0, 0.0),
            indexer: Some(indexer()),
            follow,
            idle: at("side", None, 1.0, 0.0),
            save: at("side", None, 0.0, 1.0),
            seats: at("side", None, 0.5, 0.0),
            ..sample()
        };
        let work = Workload { consumers: 1, loads_per_day: None, ..WORK };
        let of_one = cost("", &work, &of, &dear());
        near(of_one.table_writes, 25.92);
        near(of_one.index_writes, 51.84);
        near(of_one.reads, 25.92 * 3.5 * 10.0);
        let parts = [of_one.table_writes, of_one.index_writes, of_one.reads, of_one.indexer, of_one.consumers];
        let (units, besides) = (parts.iter().sum::<f64>(), of_one.streams + of_one.lambda + of_one.storage);
        near(of_one.on_demand, units + besides);
        near((of_one.write_units_per_event + 10.0 * of_one.read_units_per_event) * 25.92, units);
        // 11 commits are indexed together: 60 bytes of each, and 340 of each epoch.
        near(of_one.storage, (700.0 + 60.0 + 340.0 / 11.0) * 25.92 / 1e3 * 1_000.0);
        // Each consumer reads, and keeps a place.
        let of_three = cost("", &Workload { consumers: 3, ..work }, &of, &dear());
        near(of_three.consumers, 3.0 * of_one.consumers);
        // A read unit of each commit, a save and a bit each second, half a unit of leases every four, and looks in vain.
        let saved = 2.592 * (1.0 - (-1.0f64 / 1.1).exp());
        assert!(of_one.consumers > 25.92 * 10.0 + saved + 2.592 / 4.0 * 0.5 * 10.0, "{of_one:?}");
    }

    #[test]
    fn capacity_is_bought_for_each_table_and_index_by_itself() {
        let month = at("log", None, 0.0, 10.0).with(1.0, &at("log", Some("all"), 0.0, 1.0)).with(1.0, &at("side", None, 0.1, 0.0));
        // 10 × 3 / 0.7 is 42.9; 4.3; and one. Reads: one each.
        assert_eq!(bought(&month.times(MONTH).0, 3.0), ((43.0 + 5.0 + 1.0) * 720.0, 3.0 * 720.0));
    }

    /// What is priced is what is deployed.
    #[test]
    fn the_function_is_that_of_the_template() {
        let template = include_str!("../../../indexer/deploy/template.yaml");
        for line in ["MemorySize: 256", "Architectures: [arm64]", "MaximumBatchingWindowInSeconds: 1", "Default: rate(12 hours)"] {
            assert!(template.contains(line), "{line}");
        }
        assert_eq!(GIGABYTES * 1_024.0, 256.0);
    }
}
