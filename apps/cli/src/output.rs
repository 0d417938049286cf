//! What goes to stdout and how it looks: table, json or ndjson; colours and progress only where somebody looks at a terminal.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::json::{EventLine, place_name, row};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Ndjson,
}

impl Format {
    pub(crate) fn default_for_stdout() -> Self {
        if io::stdout().is_terminal() { Format::Table } else { Format::Ndjson }
    }

    /// What was asked for in arguments that could not be understood as a whole.
    pub(crate) fn guess(args: &[OsString]) -> Option<Self> {
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        let given = args.iter().enumerate().find_map(|(i, arg)| match arg.as_ref() {
            "-o" | "--output" => args.get(i + 1).map(|value| value.to_string()),
            _ => arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")).map(|value| value.trim_start_matches('=').to_string()),
        });
        given.and_then(|value| Format::from_str(&value, true).ok())
    }
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn stdout() -> Self {
        Self(io::stdout().is_terminal() && wanted())
    }
    pub(crate) fn stderr() -> Self {
        Self(io::stderr().is_terminal() && wanted())
    }
    pub(crate) fn none() -> Self {
        Self(false)
    }
    fn with(self, code: &str, text: impl Display) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
    pub(crate) fn bold(self, text: impl Display) -> String {
        self.with("1", text)
    }
    pub(crate) fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }
    pub(crate) fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }
    pub(crate) fn warn(self, text: impl Display) -> String {
        self.with("33", text)
    }
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.with("31", text)
    }
    pub(crate) fn name(self, text: impl Display) -> String {
        self.with("36", text)
    }
}

// no-color.org: set and not empty, whatever its value.
fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text that leaves the terminal as it is: tags and bodies may hold any character.
pub(crate) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut done, c| {
        if c.is_control() {
            done.extend(c.escape_default())
        } else {
            done.push(c)
        }
        done
    })
}

/// A table for people, as wide as its terminal.
pub(crate) fn table<H: Display>(header: impl IntoIterator<Item = H>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.into_iter().map(|title| Cell::new(title.to_string())).collect::<Vec<_>>());
    table
}

/// Where a command's data goes.
pub(crate) struct Output {
    to: Box<dyn Write>,
    pub(crate) format: Format,
    pub(crate) paint: Paint,
    /// Columns of the terminal; none where it is not one.
    width: Option<usize>,
    events: u64,
}

impl Output {
    pub(crate) fn stdout(format: Format) -> Self {
        let width = io::stdout().is_terminal().then(|| usize::from(console::Term::stdout().size().1));
        Self { to: Box::new(BufWriter::with_capacity(64 * 1024, io::stdout())), format, paint: Paint::stdout(), width, events: 0 }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    pub(crate) fn text(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.to, "{text}")
    }

    /// The one result of a command: as JSON, or as people read it.
    pub(crate) fn result(&mut self, value: &impl Serialize, for_people: impl FnOnce(Paint) -> String) -> io::Result<()> {
        match self.format {
            Format::Table => {
                let text = for_people(self.paint);
                writeln!(self.to, "{}", text.trim_end())
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut self.to, value)?;
                writeln!(self.to)
            }
            Format::Ndjson => {
                serde_json::to_writer(&mut self.to, value)?;
                writeln!(self.to)
            }
        }
    }

    /// One event of many: [`Output::end`] follows the last.
    pub(crate) fn event(&mut self, line: &EventLine<'_>) -> io::Result<()> {
        self.events += 1;
        match self.format {
            Format::Table => {
                if self.events == 1 {
                    let title = format!("{:>8}  {:<20}  {:<20}  {}", place_name(line), "recorded", "type", "tags, data");
                    writeln!(self.to, "{}", self.paint.dim(title))?;
                }
                let row = row(line, self.paint);
                match self.width {
                    Some(width) => writeln!(self.to, "{}", console::truncate_str(&row, width, "…")),
                    None => writeln!(self.to, "{row}"),
                }
            }
            Format::Json => {
                self.to.write_all(if self.events == 1 { b"{\"events\":[\n" } else { b",\n" })?;
                Ok(serde_json::to_writer(&mut self.to, line)?)
            }
            Format::Ndjson => {
                serde_json::to_writer(&mut self.to, line)?;
                self.to.write_all(b"\n")
            }
        }
    }

    /// After the last event: what stands behind them all, if anything does.
    pub(crate) fn end(&mut self, ending: Option<&serde_json::Map<String, serde_json::Value>>) -> io::Result<()> {
        match self.format {
            Format::Table => {
                for (name, value) in ending.into_iter().flatten() {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                    writeln!(self.to, "{} {value}", self.paint.dim(name))?;
                }
            }
            Format::Json => {
                self.to.write_all(if self.events == 0 { b"{\"events\":[]" } else { b"\n]" })?;
                for (name, value) in ending.into_iter().flatten() {
                    write!(self.to, ",{}:{value}", serde_json::Value::from(name.as_str()))?;
                }
                self.to.write_all(b"}\n")?;
            }
            Format::Ndjson => {
                if let Some(ending) = ending {
                    serde_json::to_writer(&mut self.to, ending)?;
                    self.to.write_all(b"\n")?;
                }
            }
        }
        self.flush()
    }
}

/// Talk for whoever watches: on stderr, and only where that is a terminal.
pub(crate) fn talk(text: impl Display) {
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr().lock(), "{}", Paint::stderr().dim(text));
    }
}

/// What whoever reads the output must know: on stderr, whatever that is.
pub(crate) fn warn(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Paint::stderr().bad(text));
}

/// A bar to a known end, or a counter without one. Hidden where stderr is no terminal.
pub(crate) fn progress(total: Option<u64>, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{msg:12} {bar:36.cyan/dim} {pos}/{len} {elapsed:.dim}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} {elapsed:.dim}"),
    };
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar.with_style(style(template)).with_message(what)
}

/// How far a look at everything is, to about this many: a spinner where that is not known, and never past the end, since the table's own
/// count may be hours old.
pub(crate) struct Looking {
    bar: ProgressBar,
    what: &'static str,
}

impl Looking {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { bar: progress(None, what), what }
    }
    pub(crate) fn tell(&self, items: u64, about: Option<u64>) {
        if let Some(length) = about.map(|about| length(items, about)) {
            if self.bar.length().is_none() {
                self.bar.set_style(style("{msg:12} {bar:36.cyan/dim} {human_pos} of about {human_len} {elapsed:.dim}"));
                self.bar.set_message(self.what);
            }
            self.bar.set_length(length);
        }
        self.bar.set_position(items);
    }
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

/// As long as it is told, there is more than was read.
fn length(items: u64, about: u64) -> u64 {
    about.max(items + 1)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─")
}

/// What a test reads instead of a terminal.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Captured(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
    pub(crate) fn output(format: Format) -> (Output, Self) {
        let captured = Self::default();
        (Output { to: Box::new(captured.clone()), format, paint: Paint::none(), width: None, events: 0 }, captured)
    }
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("lock").clone()).expect("UTF-8")
    }
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text()).expect("one JSON document")
    }
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

#[cfg(test)]
impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod looking {
    use super::*;

    #[test]
    fn a_look_at_everything_never_claims_to_be_done_before_it_is() {
        for (items, about) in [(0, 1), (999, 1_000), (1_000, 1_000), (4_000, 1_000)] {
            assert!(length(items, about) > items && length(items, about) >= about);
        }
        // A hidden bar counts as a shown one does.
        let looking = Looking { bar: ProgressBar::hidden(), what: "items read" };
        looking.tell(5, None);
        looking.tell(4_000, Some(1_000));
        assert_eq!((looking.bar.position(), looking.bar.length()), (4_000, Some(4_001)));
    }
}
