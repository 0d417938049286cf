//! The work whose units are compared: one row each, the same for everybody. Every contender knows the rows by these names.

/// A row's name, the table it is shown in, its head there, and what is done.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) table: &'static str,
    pub(crate) head: &'static str,
    pub(crate) says: &'static str,
}

pub(crate) const APPENDS: &str = "appends";
pub(crate) const READS: &str = "reads";
pub(crate) const DECISIONS: &str = "decisions and feeds";
pub(crate) const TABLES: [&str; 3] = [APPENDS, READS, DECISIONS];

const fn row(name: &'static str, table: &'static str, head: &'static str, says: &'static str) -> Row {
    Row { name, table, head, says }
}

pub(crate) const ROWS: &[Row] = &[
    row("append-1", APPENDS, "to a stream of 1", "append 1 event to a stream of 1"),
    row("append-100", APPENDS, "of 100", "append 1 event to a stream of 100"),
    row("append-10000", APPENDS, "of 10,000", "append 1 event to a stream of 10,000"),
    row("two-tags", APPENDS, "2 tags, condition", "append 1 event with 2 tags under a condition on both"),
    row("twenty", APPENDS, "20 events, 21 tags", "append 20 events over 21 tags"),
    row("thousand", APPENDS, "1,000 at once", "append 1,000 events at once"),
    row("load-100", READS, "load 100", "load a stream of 100"),
    row("load-10000", READS, "load 10,000", "load a stream of 10,000"),
    row("snapshot", READS, "snapshot and 2", "load from a snapshot of 2 KB and the 2 events behind it"),
    row("cold", DECISIONS, "decide cold", "decide cold: load a stream of 100, append 1"),
    row("warm", DECISIONS, "decide warm", "decide warm: nothing new, append 1"),
    row("conflict", DECISIONS, "lose, decide again", "lose to 1 event of another, decide again"),
    row("feed", DECISIONS, "feed, 32 of 977", "feed: 32 new events of a stream of 977"),
    row("idle", DECISIONS, "subscription, idle hour", "feed: a bare subscription that finds nothing new, for an hour"),
    row(
        "consumer",
        DECISIONS,
        "consumer, idle hour",
        "the same by a consumer (`store.consumer`): its looks, and the lease that it renews and divides with others",
    ),
    row(
        "index",
        DECISIONS,
        "indexer, those 32",
        "what an indexer that has been running for a while consumes for those 32 events, where the feed has one; calls of DynamoDB Streams are billed apart",
    ),
    row(
        "idle-index",
        DECISIONS,
        "indexer, idle hour",
        "an indexer that polls an idle stream, for an hour; one that the stream starts as a Lambda asks nothing",
    ),
];
