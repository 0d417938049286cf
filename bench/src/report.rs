//! What a benchmark found: rows under named columns, as a table for people, as JSON for programs, as markdown for documents. And how two
//! sides are compared: in turns, by the median of the rounds' ratios, because machines are noisy.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use fencepost::Units;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Markdown,
}

#[derive(Clone)]
pub(crate) struct Report {
    /// Empty where there is only one.
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Value>>,
    /// Below the table.
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(columns: &[&str], rows: Vec<Vec<Value>>) -> Report {
        Report { title: String::new(), columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows, notes: Vec::new() }
    }

    pub(crate) fn titled(self, title: &str) -> Report {
        Report { title: title.to_owned(), ..self }
    }

    pub(crate) fn with_notes(self, notes: Vec<String>) -> Report {
        Report { notes, ..self }
    }

    fn json(&self) -> Value {
        let named = |row: &Vec<Value>| -> Map<String, Value> {
            // One figure is a number for programs.
            let plain = |value: &Value| value.get(FIGURE).unwrap_or(value).clone();
            self.columns.iter().zip(row).map(|(name, value)| (name.clone(), plain(value))).collect()
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(named).collect::<Vec<_>>(), "notes": self.notes })
    }

    fn texts(&self) -> Vec<Vec<String>> {
        let head = self.columns.clone();
        std::iter::once(head).chain(self.rows.iter().map(|row| row.iter().map(text).collect())).collect()
    }

    fn table(&self) -> String {
        let texts = self.texts();
        let width = |at: usize| texts.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let padded = cells.map(|(at, (cell, width))| if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
            padded.collect::<Vec<_>>().join("  ")
        };
        texts.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// With its title and what is below it, for a document.
    pub(crate) fn section(&self) -> String {
        let title =
            if self.title.is_empty() { String::new() } else { format!("### {}{}", self.title[..1].to_uppercase(), &self.title[1..]) };
        let notes = self.notes.iter().map(|note| format!("- {note}")).collect::<Vec<_>>().join("\n");
        joined([title, self.markdown(), notes])
    }

    pub(crate) fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
        let mut lines: Vec<String> = self.texts().iter().map(line).collect();
        lines.insert(1, format!("|{}", " --- |".repeat(self.columns.len())));
        lines.join("\n")
    }
}

/// A cell of several figures, which programs read by their names and people as this text.
pub(crate) fn cell(shown: String, figures: Value) -> Value {
    let mut cell = figures;
    cell["shown"] = json!(shown);
    cell
}

const FIGURE: &str = "figure";

/// A cell of one figure, shown with as many digits as are meant.
pub(crate) fn figure(value: f64, digits: usize) -> Value {
    cell(format!("{value:.digits$}"), json!({ FIGURE: value }))
}

/// What a [`figure`] is of.
pub(crate) fn number(cell: &Value) -> Option<f64> {
    cell.get(FIGURE)?.as_f64()
}

/// `4 w + 0.5 r`, with `~` at reads that are eventually consistent.
pub(crate) fn parts(Units { write, read, .. }: Units, eventual: bool) -> String {
    let part = |units: f64, name: &str| (units > 0.0).then(|| format!("{} {name}", (units * 100.0).round() / 100.0));
    let parts: Vec<String> = [part(write, "w"), part(read, if eventual { "r~" } else { "r" })].into_iter().flatten().collect();
    if parts.is_empty() { "0".into() } else { parts.join(" + ") }
}

/// Whether a ratio is at most so much, as both are shown: what is not seen in a figure is not held against it.
pub(crate) fn within(ratio: f64, most: f64) -> bool {
    let shown = |ratio: f64| (ratio * 100.0).round();
    shown(ratio) <= shown(most)
}

/// What must hold, and whether it does. One that does not makes the run fail.
pub(crate) fn claim(says: &str, holds: bool) -> String {
    format!("{}: {says}", if holds { "holds" } else { BROKEN })
}
pub(crate) const BROKEN: &str = "DOES NOT HOLD";

/// All of them, one after the other; as JSON a list, each with its title, rows and notes.
pub(crate) fn print(reports: &[Report], format: Format) -> String {
    let section = |title: &str, table: String, notes: String| joined([title.to_owned(), table, notes]);
    let sections: Vec<String> = match format {
        Format::Json => return Value::from_iter(reports.iter().map(Report::json)).to_string(),
        Format::Table => reports.iter().map(|report| section(&report.title, report.table(), report.notes.join("\n"))).collect(),
        Format::Markdown => reports.iter().map(|report| report.section()).collect(),
    };
    sections.join("\n\n")
}

fn joined(parts: [String; 3]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(cell) if cell.contains_key("shown") => cell["shown"].as_str().unwrap_or_default().to_owned(),
        Value::Null => "–".into(),
        other => other.to_string(),
    }
}

/// The same work by two sides.
pub(crate) struct Compared {
    pub(crate) bare: Duration,
    pub(crate) ours: Duration,
    /// Ours to the bare one's, of the two that ran one after the other.
    ratio: f64,
}

impl Compared {
    pub(crate) fn ratio(&self) -> f64 {
        self.ratio
    }
}

/// In turns, so that a slow moment of the machine strikes both, and each second round begins with the other; the first round of each
/// warms up and is
/// left out.
pub(crate) async fn compare(rounds: usize, mut bare: impl AsyncFnMut(usize), mut ours: impl AsyncFnMut(usize)) -> Compared {
    let (mut bare_times, mut our_times) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut times = [Duration::ZERO; 2];
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let began = Instant::now();
            if side == 0 {
                bare(round).await
            } else {
                ours(round).await
            }
            times[side] = began.elapsed();
        }
        if round > 0 || rounds == 0 {
            bare_times.push(times[0]);
            our_times.push(times[1]);
        }
    }
    let ratios = our_times.iter().zip(&bare_times).map(|(ours, bare)| ours.div_duration_f64(*bare)).collect();
    Compared { bare: median(bare_times), ours: median(our_times), ratio: median(ratios) }
}

pub(crate) fn median<T: PartialOrd + Copy>(mut of: Vec<T>) -> T {
    of.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    of[of.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_is_shown_as_the_most_is_within_it() {
        for most in [1.15, 1.3, 1.05, 1.0] {
            assert!(within(most, most) && within(most + 0.0049, most) && within(most - 0.1, most), "{most}");
            assert!(!within(most + 0.0051, most) && !within(f64::INFINITY, most), "{most}");
        }
    }

    #[test]
    fn a_figure_is_shown_with_the_digits_that_are_meant_and_is_a_number_for_programs() {
        let report = Report::new(&["", "ratio", "MB", "events"], vec![vec![json!("a"), figure(1.2, 2), figure(16.84, 1), json!(61_055)]]);
        assert!(report.markdown().ends_with("| a | 1.20 | 16.8 | 61055 |"), "{}", report.markdown());
        assert_eq!(report.json()["rows"][0], json!({ "": "a", "ratio": 1.2, "MB": 16.84, "events": 61_055 }));
    }

    #[tokio::test]
    async fn neither_side_is_always_first() {
        let order = std::cell::RefCell::new(Vec::new());
        compare(2, async |_| order.borrow_mut().push("bare"), async |_| order.borrow_mut().push("ours")).await;
        assert_eq!(order.into_inner(), ["bare", "ours", "ours", "bare", "bare", "ours"]);
    }
}
