//! The work whose units are compared: one row each, the same for everybody. The programs of `bench/peers` know the rows by these names.

/// A row's name, and what is done.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
}

const fn row(name: &'static str, says: &'static str) -> Row {
    Row { name, says }
}

pub(crate) const ROWS: &[Row] = &[
    row("append-1", "append 1 event to a stream of 1"),
    row("append-100", "append 1 event to a stream of 100"),
    row("append-10000", "append 1 event to a stream of 10,000"),
    row("two-tags", "append 1 event with 2 tags under a condition on both"),
    row("twenty", "append 20 events over 21 tags"),
    row("thousand", "append 1,000 events at once"),
    row("load-100", "load a stream of 100"),
    row("load-10000", "load a stream of 10,000"),
    row("snapshot", "load from a snapshot of 2 KB and the 2 events behind it"),
    row("cold", "decide cold: load a stream of 100, append 1"),
    row("warm", "decide warm: nothing new, append 1"),
    row("conflict", "lose to 1 event of another, decide again"),
    row("feed", "feed: 32 new events of a stream of 977"),
    row("idle", "feed: an idle consumer, for an hour"),
];

/// Bytes of a body.
pub(crate) const BYTES: usize = 500;

/// JSON of [`BYTES`] that does not compress to nothing.
pub(crate) fn body(n: u64) -> String {
    let filler: String = (0..64u64).map(|at| format!("{:016x}", (n * 131 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let head = format!("{{\"n\":{n},\"text\":\"");
    let text: String = filler.chars().take(BYTES - head.len() - 2).collect();
    format!("{head}{text}\"}}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn bodies_have_their_size_and_are_json() {
        for n in [0, 7, 9_999] {
            let body = super::body(n);
            assert_eq!(body.len(), super::BYTES);
            assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
        }
    }
}
