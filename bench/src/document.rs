//! What was found, written into the documents by the run itself: a page for each benchmark with its pictures, linked in the guide's summary, and
//! the README's table.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost::Env;
use fencepost_contest::Fault;

use crate::contenders::CONTENDERS;
use crate::plot::Plot;
use crate::report::Report;

/// The pages of the guide.
#[derive(Clone, Copy)]
pub(crate) enum Page {
    Units,
    Speed,
    Growth,
    Feeds,
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Page::Units => "units",
            Page::Speed => "speed",
            Page::Growth => "growth",
            Page::Feeds => "feeds",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Page::Units => {
                "# Measured: units\n\nThe same work by everybody, one event of 500 bytes a commit unless the column says otherwise, as the engine counts it: units of write (w) and of read (r), and requests (req). A unit of write costs as much as five of read. Reads are strongly consistent; `r~` are eventually consistent ones, at half the units, of contenders that offer no others there, and the ledger has a line with such reads to be set beside them. A refused write is counted as it is billed, by the size of its items. The bare SDK sends the fewest requests that hold what is asked, and is the floor."
            }
            Page::Speed => {
                "# Measured: speed\n\nEverybody over loopback HTTP on one engine, which does most of the work: compare lines, not figures with those of another machine. Each contender in a process of its own, in turns, and each turn begins with another one; medians of the turns, ratios of time within a turn, so that less is better everywhere. An operation on the hot stream or on a boundary ends when it has been recorded, whatever conflicts it met. What is under way when a turn ends is not waited for: it is not counted as done, and its time so far stands among the latencies. `ledger, streams, decide` is the same ledger by decisions, as its users write them, with a cache and a queue for those of one process who would only lose; all others try again by a loop of the benchmark's, at once. umadb is no contender but a reference: its core in the writers' process, on a local file, behind a lock, without its server, which gathers appends into batches."
            }
            Page::Growth => {
                "# Measured: growth\n\nUnits (written w, read r) and time of one append and of one load, as a stream grows by single events, and as the store does. Medians, over loopback HTTP on one engine."
            }
            Page::Feeds => {
                "# Measured: feeds\n\nCatching up beside a bare loop that does the same reads, moves type and body of every event out of the answers and does nothing else: it decodes, orders and checks nothing and makes no checkpoints; medians of rounds taken in turns. And what a consumer holds in memory while it replays a long log: engine, loader and indexer are processes of their own."
            }
        }
    }
}

/// Where documents are written: here, or elsewhere to look at them.
fn root(into: Option<&Path>) -> PathBuf {
    into.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), Path::to_owned)
}

/// What a page tells of its run besides its tables.
pub(crate) struct Told<'a> {
    /// Who was measured.
    pub(crate) who: &'a [&'static str],
    pub(crate) elsewhere: bool,
    pub(crate) took: std::time::Duration,
}

/// The engine's version, as it is locked.
fn engine() -> String {
    let lock = std::fs::read_to_string(root(None).join("Cargo.lock")).unwrap_or_default();
    let version = lock.split("[[package]]").find(|package| package.contains("name = \"dynoxide-rs\""));
    let version = version.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")));
    format!("its embedded engine (dynoxide {})", version.unwrap_or("unknown").trim_matches('"'))
}

/// When, with what, on what, and how long it took.
fn provenance(page: Page, told: &Told<'_>) -> String {
    let date = jiff_date(Env::system().now());
    let of = |command: &str, argument: &str| {
        let ran = Command::new(command).arg(argument).output().ok()?;
        Some(String::from_utf8_lossy(&ran.stdout).lines().next()?.trim().to_owned())
    };
    let rustc = of("rustc", "--version").unwrap_or_else(|| "rustc".into());
    let with_node = told.who.iter().any(|who| who.starts_with("equinox-js"));
    let node = of("node", "--version").filter(|_| with_node).map_or(String::new(), |version| format!(", node {version}"));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).map_or("unknown processor", str::trim);
    let place = if told.elsewhere { "an endpoint that was given".to_owned() } else { engine() };
    let peers: Vec<&str> = told.who.iter().copied().filter(|who| is_peer(who)).collect();
    let peers = match page {
        Page::Feeds => String::new(),
        _ if peers.is_empty() => ", without peers".to_owned(),
        _ => format!(", {}", peers.join(", ")),
    };
    format!(
        "Written on {date} by `cargo run --release -p fencepost-bench -- {} --write` in {} s: fencepost {}, {place}{peers}; {rustc}{node}; {cores} cores, {model}.",
        page.name(),
        told.took.as_secs(),
        env!("CARGO_PKG_VERSION"),
    )
}

fn is_peer(who: &str) -> bool {
    CONTENDERS.iter().any(|contender| contender.is_peer() && contender.name == who)
}

fn jiff_date(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%d").to_string()
}

/// A page and its pictures.
pub(crate) fn write(into: Option<&Path>, page: Page, told: &Told<'_>, reports: &[Report], plots: &[Plot]) -> Result<(), Fault> {
    let root = root(into);
    let folder = root.join("docs/src/measured");
    std::fs::create_dir_all(&folder)?;
    let mut text = format!("{}\n\n{}\n", page.says(), provenance(page, told));
    for report in reports {
        text += &format!("\n{}\n", report.section());
    }
    for plot in plots {
        std::fs::write(folder.join(format!("{}.svg", plot.file)), plot.svg()?)?;
        text += &format!("\n![{}]({}.svg)\n", plot.title, plot.file);
    }
    std::fs::write(folder.join(format!("{}.md", page.name())), text)?;
    eprintln!("docs/src/measured/{}.md is written, with {} pictures", page.name(), plots.len());
    summary(&root, page)?;
    if matches!(page, Page::Units) {
        readme(&root, reports)?;
    }
    Ok(())
}

/// The page's line in the guide's summary, behind those that are there already.
fn summary(root: &Path, page: Page) -> Result<(), Fault> {
    let path = root.join("docs/src/SUMMARY.md");
    let text = std::fs::read_to_string(&path)?;
    let line = format!("  - [Measured: {0}](measured/{0}.md)", page.name());
    if text.lines().any(|known| known == line) {
        return Ok(());
    }
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().rposition(|known| known.contains("](measured/") || known.contains("](costs.md)"));
    lines.insert(last.ok_or("the guide's summary has lost its page of costs")? + 1, &line);
    Ok(std::fs::write(&path, lines.join("\n") + "\n")?)
}

/// Between its marks.
fn readme(root: &Path, reports: &[Report]) -> Result<(), Fault> {
    let path = root.join("README.md");
    let text = std::fs::read_to_string(&path)?;
    let (before, after) = (text.split_once("<!-- beside -->\n"), text.split_once("<!-- /beside -->"));
    let (Some((before, _)), Some((_, after))) = (before, after) else { return Err("the README has lost its marks".into()) };
    let tables: Vec<String> = reports.iter().map(|report| format!("**{}**\n\n{}", report.title, report.markdown())).collect();
    std::fs::write(&path, format!("{before}<!-- beside -->\n{}\n<!-- /beside -->{after}", tables.join("\n\n")))?;
    eprintln!("README.md is written");
    Ok(())
}
