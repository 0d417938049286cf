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
                "# Measured: units\n\nThe same work by everybody, one event of 500 bytes a commit unless the column says otherwise, as the engine counts it: units of write (w) and of read (r), and requests (req). A unit of write costs as much as five of read. Reads are strongly consistent; in `r~` there are eventually consistent ones, at half the units, where a contender offers no others, and the ledger has a line with such loads to be set beside them. What is idle is watched for 16 seconds, and reckoned up to an hour. A refused write is counted as it is billed, by the size of its items. The bare SDK sends the fewest requests that hold what is asked, and is the floor."
            }
            Page::Speed => {
                "# Measured: speed\n\nEverybody over loopback HTTP on the same engine, which does most of the work, and is a new one for every turn: compare lines, not figures with those of another machine. Each contender in a process of its own, in turns, and each turn begins with another one; medians of the turns, ratios of time within a turn, so that less is better everywhere; a turn that came to nothing was infinitely slow, and `–` is shown where half of them were. An operation on the hot stream or on a boundary ends when it has been recorded, whatever conflicts it met. What is under way when a turn ends is not waited for: it is not counted as done, and its time so far stands among the latencies. `ledger, streams, decide` is the same ledger by decisions, as its users write them, with a cache and a queue for those of one process who would only lose; all others try again by a loop of the benchmark's, at once. umadb is no contender but a reference: its core in the writers' process, on a local file, behind a lock, without its server, which gathers appends into batches."
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
    /// What it was told, as on a command line.
    pub(crate) words: &'a [String],
}

/// A page of less than everybody is not written into this repository; elsewhere anything may be.
pub(crate) fn allowed(into: Option<&Path>, left_out: &[String]) -> Result<(), String> {
    if into.is_some() || left_out.is_empty() {
        return Ok(());
    }
    Err(format!("only what everybody did in full is written into this repository, or give --into FOLDER: {}", left_out.join("; ")))
}

/// A crate's version, as it is locked there.
fn locked(lock: &str, name: &str) -> String {
    let lock = std::fs::read_to_string(root(None).join(lock)).unwrap_or_default();
    let named = format!("name = \"{name}\"\n");
    let version = lock.split("[[package]]").find(|package| package.contains(&named));
    let version = version.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}

/// The SDK of everybody who is written in Rust, and of the peers where it is another.
fn sdk(with_peers: bool) -> String {
    let [ours, theirs] = ["Cargo.lock", "bench/peers/Cargo.lock"].map(|lock| locked(lock, "aws-sdk-dynamodb"));
    let peers = if with_peers && theirs != ours { format!(" (the peers {theirs})") } else { String::new() };
    format!("aws-sdk-dynamodb {ours}{peers}")
}

/// The SDK of the peer on node.
fn sdk_of_node() -> Option<String> {
    let lock = std::fs::read_to_string(root(None).join("bench/peers/equinox/package-lock.json")).ok()?;
    let lock: serde_json::Value = serde_json::from_str(&lock).ok()?;
    Some(format!(", @aws-sdk/client-dynamodb {}", lock["packages"]["node_modules/@aws-sdk/client-dynamodb"]["version"].as_str()?))
}

/// The first line that a command prints here, where it ends well.
fn said(command: &str, args: &[&str]) -> Option<String> {
    let ran = Command::new(command).args(args).current_dir(root(None)).output().ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8_lossy(&ran.stdout).lines().next()?.trim().to_owned())
}

/// The commit that was measured, where there is one, and whether it was changed since.
fn commit() -> String {
    let Some(commit) = said("git", &["rev-parse", "--short", "HEAD"]) else { return String::new() };
    // Pages that this run has written already are no change of what is measured.
    let changed = said("git", &["status", "--porcelain", "--", "crates", "bench", "Cargo.toml", "Cargo.lock"]);
    format!(" ({commit}{})", if changed.is_some() { ", changed" } else { "" })
}

/// When, with what, on what, and how long it took.
fn provenance(page: Page, told: &Told<'_>) -> String {
    let date = jiff_date(Env::system().now());
    let rustc = said("rustc", &["--version"]).unwrap_or_else(|| "rustc".into());
    let with_node = told.who.iter().any(|who| who.starts_with("equinox-js"));
    let node = said("node", &["--version"]).filter(|_| with_node).map_or(String::new(), |version| format!(", node {version}"));
    let sdk_of_node = sdk_of_node().filter(|_| with_node).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).map_or("unknown processor", str::trim);
    let place = if told.elsewhere {
        "an endpoint that was given".to_owned()
    } else {
        format!("its embedded engine (dynoxide {})", locked("Cargo.lock", "dynoxide-rs"))
    };
    let peers: Vec<&str> = told.who.iter().copied().filter(|who| is_peer(who)).collect();
    let sdk = sdk(peers.iter().any(|who| !who.starts_with("equinox-js")));
    let peers = match page {
        Page::Feeds => String::new(),
        _ if peers.is_empty() => ", without peers".to_owned(),
        _ => format!(", {}", peers.join(", ")),
    };
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    format!(
        "Written on {date} by `cargo run{release} -p fencepost-bench -- {}` in {} s: fencepost {}{}, {place}{peers}; {sdk}{sdk_of_node}; {rustc}{node}; {cores} cores, {model}.",
        told.words.join(" "),
        told.took.as_secs(),
        env!("CARGO_PKG_VERSION"),
        commit(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a document: each table below a title that is marked so, with that title in small letters.
    fn tables(text: &str, mark: &str) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix(mark) {
                found.push((title.trim_end_matches('*').to_lowercase(), Vec::new()));
            } else if let (true, Some((_, rows))) = (line.starts_with('|'), found.last_mut()) {
                rows.push(line.to_owned());
            }
        }
        found
    }

    #[test]
    fn a_page_that_leaves_somebody_out_is_written_elsewhere_alone() {
        let nobody = ["left out: equinox-js 1.2.0: node is not here".to_owned()];
        assert!(allowed(None, &[]).is_ok() && allowed(Some(Path::new("/elsewhere")), &nobody).is_ok());
        assert!(allowed(None, &nobody).is_err_and(|why| why.contains("equinox-js 1.2.0: node is not here")));
    }

    #[test]
    fn the_readme_shows_the_tables_of_the_page_of_units() {
        let read = |path: &str| std::fs::read_to_string(root(None).join(path)).expect("it is there");
        let (readme, page) = (read("README.md"), read("docs/src/measured/units.md"));
        let (_, block) = readme.split_once("<!-- beside -->\n").expect("a mark");
        let (block, _) = block.split_once("\n<!-- /beside -->").expect("a mark");
        let (shown, measured) = (tables(block, "**"), tables(&page, "### "));
        assert!(measured.len() == 3 && measured.iter().all(|(_, rows)| rows.len() > 5), "{measured:?}");
        assert_eq!(shown, measured);
        // And nothing else: what is typed there would be gone with the next run.
        let typed = block.lines().filter(|line| !line.is_empty() && !line.starts_with('|') && !line.starts_with("**"));
        assert_eq!(typed.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
