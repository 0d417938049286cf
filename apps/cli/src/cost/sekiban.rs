//! The published estimate for Sekiban (1 M events a day), recomputed: by its design, and by ours of its tables.

use serde::Serialize;

use super::month::{Cost, DAYS, cost};
use super::prices::Prices;
use super::sample::{Layout, sample};
use super::{By, Workload};
use crate::failure::Failure;

/// The prices of the publication: Tokyo, on demand, before November 2024.
const WRITE_MILLION: f64 = 1.4846;
const READ_MILLION: f64 = 0.2969;
const GIGABYTE_MONTH: f64 = 0.285;

/// The publication says a million events a day and no more of its workload. So it is this one, whatever else is asked for.
const WORK: Workload = Workload {
    events_per_day: 1_000_000,
    size: 500,
    tags: 1,
    events_per_commit: 1,
    loads_per_day: None,
    load_events: 20,
    consumers: 1,
    months: 1,
    peak: 3.0,
    indexer: By::Function,
    shards: None,
};
pub(super) const ASSUMED: &str = "\
The publication says a million events a day, and nothing else of its workload. Assumed here: events of 500 bytes, one a commit, with one tag; for \
each a read of a tag with 20 events; one consumer; a month's events stored. By its design: an item for the event and one for its tag, written in a \
transaction and once more to an index each (6 write units); a read is an eventually consistent query and a get of each event (11 read units for 20 \
events; the 30 dollars published are 3.4 units an event, a read of about 6); stored, some 500 bytes an event beside its body, 396 a row of a tag, \
each twice, and 100 an item (the 3 dollars published are 10 GB, of 96). Ours besides has a head for each tag, reads what it decides on strongly \
consistent, and pays its consumer.";

/// One part of the estimate, in dollars a month.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) part: &'static str,
    /// As its authors published it, with the prices of then; none where they have no such part.
    pub(super) published: Option<f64>,
    /// What the published design takes of this workload at those prices.
    pub(super) by_design: Option<f64>,
    /// Our layout of its tables, as it is counted, at those prices,
    pub(super) ours_then: f64,
    /// and at these.
    pub(super) ours: f64,
}

/// Units and bytes of an event by the published design.
struct Design {
    table_writes: f64,
    index_writes: f64,
    reads: f64,
    bytes: f64,
}

fn design(work: &Workload) -> Design {
    let (size, tags) = (work.size as f64, work.tags as f64);
    // Of one with a body of 105 bytes and two tags, 647 bytes were counted, and 396 of a tag's row.
    let (event, row) = (size + 500.0, 396.0);
    let kilobytes = (event / 1_024.0).ceil();
    let query = (work.load_events as f64 * row / 4_096.0).ceil() / 2.0;
    let gets = work.load_events as f64 * (event / 4_096.0).ceil() / 2.0;
    Design {
        table_writes: 2.0 * (kilobytes + tags),
        index_writes: kilobytes + tags,
        reads: query + gets,
        bytes: 2.0 * (event + tags * row) + 2.0 * (1.0 + tags) * 100.0,
    }
}

fn parts(then: &Cost, now: &Cost) -> Vec<Part> {
    let of = design(&WORK);
    let millions = WORK.events_per_day as f64 * DAYS / 1e6;
    let part = |part, published, by_design, of: fn(&Cost) -> f64| Part { part, published, by_design, ours_then: of(then), ours: of(now) };
    let mut parts = vec![
        part("event and tag writes", Some(100.0), Some(of.table_writes * millions * WRITE_MILLION), |cost| cost.table_writes),
        part("index writes", Some(100.0), Some(of.index_writes * millions * WRITE_MILLION), |cost| cost.index_writes),
        part("reads", Some(30.0), Some(of.reads * millions * READ_MILLION), |cost| cost.reads),
        part("consumer", None, None, |cost| cost.consumers),
        part("storage", Some(3.0), Some(of.bytes * millions / 1e3 * GIGABYTE_MONTH), |cost| cost.storage),
    ];
    let sum = |of: fn(&Part) -> Option<f64>| Some(parts.iter().filter_map(of).sum());
    let (published, by_design) = (sum(|part| part.published), sum(|part| part.by_design));
    parts.push(part("total", published, by_design, |cost| cost.on_demand));
    parts
}

pub(super) async fn estimate(layout: &Layout, prices: &Prices) -> Result<Vec<Part>, Failure> {
    let of = sample(layout, &WORK).await?;
    let mut theirs = prices.clone();
    (theirs.on_demand.write_million, theirs.on_demand.read_million) = (WRITE_MILLION, READ_MILLION);
    theirs.storage.gigabyte_month = GIGABYTE_MONTH;
    Ok(parts(&cost(layout.name, &WORK, &of, &theirs), &cost(layout.name, &WORK, &of, prices)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_design_takes_three_units_an_item_and_stores_each_twice() {
        let of = design(&WORK);
        assert_eq!((of.table_writes, of.index_writes, of.reads, of.bytes), (4.0, 2.0, 11.0, 2.0 * (1_000.0 + 396.0) + 400.0));
        // 3 (1 + T), up to a kilobyte.
        let tagged = design(&Workload { tags: 2, ..WORK });
        assert_eq!(tagged.table_writes + tagged.index_writes, 9.0);
    }

    #[test]
    fn the_total_is_the_sum_of_its_parts() {
        let cost =
            Cost { table_writes: 1.0, index_writes: 2.0, reads: 3.0, consumers: 4.0, storage: 5.0, on_demand: 15.0, ..Cost::default() };
        let parts = parts(&cost, &cost);
        let (total, parts) = parts.split_last().expect("a total");
        assert_eq!(total.published, Some(233.0));
        assert_eq!(total.by_design, Some(parts.iter().filter_map(|part| part.by_design).sum()));
        assert_eq!(total.ours, parts.iter().map(|part| part.ours).sum::<f64>());
    }
}
