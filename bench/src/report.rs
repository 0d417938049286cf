//! What a benchmark found: rows under named columns, as a table for people, as JSON for programs, as markdown for documents. And how two
//! sides are compared: as ratios of medians taken in turns, because machines are noisy.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Markdown,
}

pub(crate) struct Report {
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Report {
    pub(crate) fn print(&self, format: Format) -> String {
        match format {
            Format::Json => self.json().to_string(),
            Format::Table => self.table(),
            Format::Markdown => self.markdown(),
        }
    }

    fn json(&self) -> Value {
        let named = |row: &Vec<Value>| -> Map<String, Value> {
            self.columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        self.rows.iter().map(named).collect()
    }

    fn texts(&self) -> Vec<Vec<String>> {
        let head = self.columns.iter().map(|name| (*name).to_owned()).collect();
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

    fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
        let mut lines: Vec<String> = self.texts().iter().map(line).collect();
        lines.insert(1, format!("|{}", " --- |".repeat(self.columns.len())));
        lines.join("\n")
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            None => format!("{:.3}", number.as_f64().unwrap_or_default()),
        },
        other => other.to_string(),
    }
}

/// The same work by two sides.
pub(crate) struct Compared {
    pub(crate) bare: Duration,
    pub(crate) ours: Duration,
}

impl Compared {
    pub(crate) fn ratio(&self) -> Value {
        json!(self.ours.as_secs_f64() / self.bare.as_secs_f64())
    }
}

/// In turns, so that a slow moment of the machine strikes both; the first round of each warms up and is left out.
pub(crate) async fn compare(rounds: usize, mut bare: impl AsyncFnMut(usize), mut ours: impl AsyncFnMut(usize)) -> Compared {
    let (mut bare_times, mut our_times) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let began = Instant::now();
        bare(round).await;
        let between = Instant::now();
        ours(round).await;
        if round > 0 || rounds == 0 {
            bare_times.push(between - began);
            our_times.push(between.elapsed());
        }
    }
    Compared { bare: median(bare_times), ours: median(our_times) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
