//! What goes into the index: spans joined by stream, cut to what is new, told apart by whether the epoch has their stream; what is missing
//! between them; when an epoch is closed. And which events of a stream an index covers. Pure.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::index::{Entry, Span};

/// When an epoch is closed: by what it held before the append that closes it. As Propulsion has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closing {
    /// Estimated bytes of its events.
    pub(super) bytes: u64,
    /// Events of its stream.
    pub(super) version: u64,
    /// Spans of the append, and streams that the epoch has.
    pub(super) items: usize,
}

impl Default for Closing {
    fn default() -> Self {
        Self { bytes: 1024 * 1024, version: 5_000, items: 100_000 }
    }
}

impl Closing {
    pub(super) fn is_due(&self, bytes: u64, version: u64, items: usize) -> bool {
        bytes > self.bytes || version >= self.version || items >= self.items
    }
}

/// How far an epoch has each stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    pub(super) of: HashMap<String, u64>,
    pub(super) closed: bool,
}

impl Ends {
    pub(super) fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Ingested(spans) => spans.iter().for_each(|span| self.reach(span)),
            Entry::Closed => self.closed = true,
            Entry::Other | Entry::Unread => {}
        }
    }
    pub(super) fn reach(&mut self, span: &Span) {
        let end = self.of.entry(span.stream.clone()).or_insert(0);
        *end = (*end).max(span.end());
    }
}

/// What is to be indexed: of each stream what was announced, in the order in which streams were first named.
#[derive(Debug, Default)]
pub(super) struct Batch {
    order: Vec<String>,
    spans: HashMap<String, Vec<Span>>,
    /// Events that are nowhere to be found, by stream and the index behind them: pruned before they were indexed.
    lost: HashSet<(String, u64)>,
}

/// Events that no announcement names and the index does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) stream: String,
    pub(super) events: Range<u64>,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All of it is in the index.
    Nothing,
    /// Look for these first.
    LookFor(Vec<Missing>),
    /// Append these: of streams that the epoch does not have, and of others. `breaks`: what is left cannot be in the same epoch, since
    /// events between are lost and consumers of the peer's never get past such a hole.
    Append { add: Vec<Span>, app: Vec<Span>, breaks: bool },
}

/// Spans of one stream in order, joined where they overlap or follow each other.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.index);
    let mut runs: Vec<Span> = Vec::new();
    for span in spans {
        match runs.last_mut() {
            Some(last) if span.index <= last.end() => {
                if let Some(more) = span.from(last.end()) {
                    last.types.extend(more.types);
                }
            }
            _ => runs.push(span),
        }
    }
    runs
}

impl Batch {
    pub(super) fn of(spans: Vec<Span>) -> Batch {
        let mut batch = Batch::default();
        spans.into_iter().for_each(|span| batch.add(span));
        batch
    }
    pub(super) fn add(&mut self, span: Span) {
        if !self.spans.contains_key(&span.stream) {
            self.order.push(span.stream.clone());
        }
        self.spans.entry(span.stream.clone()).or_default().push(span);
    }
    /// What is before this index is not to be had.
    pub(super) fn lose(&mut self, stream: String, before: u64) {
        self.lost.insert((stream, before));
    }

    /// The streams, and the lowest index that is announced of each.
    pub(super) fn streams(&self) -> impl Iterator<Item = (&str, u64)> {
        self.spans.iter().map(|(stream, spans)| (stream.as_str(), spans.iter().map(|span| span.index).min().unwrap_or(0)))
    }

    /// `earlier`: how far epochs before this one have a stream.
    pub(super) fn next(&self, epoch: &Ends, earlier: impl Fn(&str) -> Option<u64>) -> Next {
        let (mut add, mut app, mut missing, mut breaks) = (Vec::new(), Vec::new(), Vec::new(), false);
        for stream in &self.order {
            let here = epoch.of.get(stream).copied();
            let mut known = here.max(earlier(stream)).unwrap_or(0);
            let mut in_epoch = here.is_some();
            for run in joined(self.spans.get(stream).cloned().unwrap_or_default()) {
                let Some(run) = run.from(known) else { continue };
                if run.index > known {
                    if !self.lost.contains(&(stream.clone(), run.index)) {
                        missing.push(Missing { stream: stream.clone(), events: known..run.index });
                        break;
                    }
                    if in_epoch {
                        breaks = true;
                        break;
                    }
                }
                known = run.end();
                if std::mem::replace(&mut in_epoch, true) { app.push(run) } else { add.push(run) }
            }
        }
        match (missing.is_empty(), add.is_empty() && app.is_empty() && !breaks) {
            (false, _) => Next::LookFor(missing),
            (true, true) => Next::Nothing,
            (true, false) => Next::Append { add, app, breaks },
        }
    }
}

/// As many of these as are at most so many bytes of JSON, one at least; the rest comes with the next append.
pub(super) fn cut(add: &mut Vec<Span>, app: &mut Vec<Span>, most: usize) -> bool {
    let bytes = |span: &Span| 32 + span.stream.len() + span.types.iter().map(|kind| kind.len() + 3).sum::<usize>();
    let mut room = most;
    let mut fits = |spans: &[Span]| {
        let count = spans.iter().take_while(|span| {
            let bytes = bytes(span);
            let fits = bytes <= room || room == most;
            room = if fits { room.saturating_sub(bytes) } else { 0 };
            fits
        });
        count.count()
    };
    let (adds, apps) = (fits(add), fits(app));
    let whole = adds == add.len() && apps == app.len();
    add.truncate(adds);
    app.truncate(apps);
    whole
}

/// Which events of a stream are covered: ranges in order that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Covered(Vec<Range<u64>>);

impl Covered {
    /// Covers these too; how many of them were not covered before.
    pub(crate) fn add(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let new = self.lacking(range.clone()).iter().map(|lack| lack.end - lack.start).sum();
        let mut whole = range;
        self.0.retain(|known| {
            let touches = known.start <= whole.end && whole.start <= known.end;
            if touches {
                whole = known.start.min(whole.start)..known.end.max(whole.end);
            }
            !touches
        });
        let at = self.0.partition_point(|known| known.start < whole.start);
        self.0.insert(at, whole);
        new
    }
    /// What of these is not covered.
    pub(crate) fn lacking(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut lacking, mut from) = (Vec::new(), range.start);
        for known in self.0.iter().filter(|known| known.end > range.start && known.start < range.end) {
            if known.start > from {
                lacking.push(from..known.start);
            }
            from = known.end;
        }
        if from < range.end {
            lacking.push(from..range.end);
        }
        lacking
    }
    /// The index behind the last event.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.end)
    }
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(stream: &str, index: u64, count: usize) -> Span {
        Span { stream: stream.into(), index, types: (0..count).map(|n| format!("E{}", index + n as u64)).collect() }
    }
    fn ends(of: &[(&str, u64)]) -> Ends {
        Ends { of: of.iter().map(|(stream, end)| ((*stream).to_owned(), *end)).collect(), closed: false }
    }
    fn append(add: Vec<Span>, app: Vec<Span>) -> Next {
        Next::Append { add, app, breaks: false }
    }

    #[test]
    fn spans_are_joined_cut_to_what_is_new_and_told_apart() {
        let batch = Batch::of(vec![
            span("A-1", 2, 1),
            span("B-1", 0, 2),
            span("A-1", 1, 3),
            span("B-1", 2, 1),
            span("C-1", 0, 1),
            span("A-1", 2, 1),
        ]);
        let next = batch.next(&ends(&[("A-1", 2)]), |stream| (stream == "C-1").then_some(1));
        assert_eq!(next, append(vec![span("B-1", 0, 3)], vec![span("A-1", 2, 2)]));
        assert_eq!(Batch::of(vec![span("A-1", 0, 2)]).next(&ends(&[("A-1", 2)]), |_| None), Next::Nothing);
        let again = Batch::of(vec![span("A-1", 3, 2)]).next(&ends(&[]), |_| Some(4));
        assert_eq!(again, append(vec![span("A-1", 4, 1)], Vec::new()), "known by an earlier epoch");
    }

    #[test]
    fn what_is_missing_is_looked_for_wherever_it_is() {
        let missing = |events| Next::LookFor(vec![Missing { stream: "A-1".into(), events }]);
        let batch = Batch::of(vec![span("A-1", 9, 1)]);
        assert_eq!(batch.next(&ends(&[("A-1", 4)]), |_| None), missing(4..9), "in the epoch");
        assert_eq!(batch.next(&ends(&[]), |_| Some(7)), missing(7..9), "across epochs");
        assert_eq!(batch.next(&ends(&[]), |_| None), missing(0..9), "before the first");
        let hole = Batch::of(vec![span("A-1", 0, 2), span("A-1", 5, 1)]);
        assert_eq!(hole.next(&ends(&[]), |_| None), missing(2..5), "inside what was announced");
    }

    #[test]
    fn what_is_lost_never_makes_a_hole_in_an_epoch() {
        let mut batch = Batch::of(vec![span("A-1", 9, 1), span("B-1", 0, 1)]);
        batch.lose("A-1".into(), 9);
        let before = |stream: &str| (stream == "A-1").then_some(4);
        assert_eq!(batch.next(&ends(&[]), before), append(vec![span("A-1", 9, 1), span("B-1", 0, 1)], Vec::new()));
        let breaks = Next::Append { add: vec![span("B-1", 0, 1)], app: Vec::new(), breaks: true };
        assert_eq!(batch.next(&ends(&[("A-1", 4)]), |_| None), breaks, "closed, and A-1 in the next one");
    }

    #[test]
    fn an_append_is_cut_by_its_bytes() {
        let (mut add, mut app) = (vec![span("A-1", 0, 1), span("B-1", 0, 1)], vec![span("C-1", 1, 1)]);
        assert!(cut(&mut add, &mut app, 10_000));
        assert!(!cut(&mut add, &mut app, 80));
        assert_eq!((add.len(), app.len()), (2, 0));
        assert!(!cut(&mut add, &mut app, 1), "one at least");
        assert_eq!(add.len(), 1);
    }

    #[test]
    fn epochs_close_by_bytes_version_and_items() {
        let closing = Closing::default();
        assert!(!closing.is_due(1024 * 1024, 4_999, 99_999));
        assert!(closing.is_due(1024 * 1024 + 1, 0, 0) && closing.is_due(0, 5_000, 0) && closing.is_due(0, 0, 100_000));
    }

    #[test]
    fn coverage_knows_what_lacks() {
        let mut covered = Covered::default();
        assert_eq!((covered.add(2..4), covered.add(8..9), covered.add(3..5)), (2, 1, 1));
        assert_eq!(covered.lacking(0..10), [0..2, 5..8, 9..10]);
        assert_eq!((covered.end(), covered.count()), (9, 4));
        assert_eq!(covered.add(0..10), 6);
        assert_eq!(covered, Covered(vec![Range { start: 0, end: 10 }]));
    }
}
