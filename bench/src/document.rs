//! What was found, written into the documents by the run itself: a page for each benchmark with its pictures, and the README's table.

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
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Page::Units => "units",
            Page::Speed => "speed",
            Page::Growth => "growth",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Page::Units => {
                "# Measured: units\n\nThe same work by everybody, one event of 500 bytes a commit unless the column says otherwise, as the engine counts it: units of write (w) and of read (r), and requests (req). Streams are loaded strongly consistent where the contender can. The bare SDK sends the fewest requests that hold what is asked, and is the floor."
            }
            Page::Speed => {
                "# Measured: speed\n\nEverybody over loopback HTTP on one engine, which does most of the work: compare lines, not figures with those of another machine. Each contender in a process of its own, in turns; medians of the turns, ratios within a turn. An operation on the hot stream or on a boundary ends when it has been recorded, whatever conflicts it met."
            }
            Page::Growth => {
                "# Measured: growth\n\nUnits (written and read) and time of one append and of one load, as a stream grows by single events, and as the store does. Medians, over loopback HTTP on one engine."
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// When, with what, on what.
fn provenance(page: Page) -> String {
    let date = jiff_date(Env::system().now());
    let of = |command: &str, argument: &str| {
        let ran = Command::new(command).arg(argument).output().ok()?;
        Some(String::from_utf8_lossy(&ran.stdout).lines().next()?.trim().to_owned())
    };
    let rustc = of("rustc", "--version").unwrap_or_else(|| "rustc".into());
    let node = of("node", "--version").map_or(String::new(), |version| format!(", node {version}"));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).map_or("unknown processor", str::trim);
    let peers: Vec<&str> = CONTENDERS.iter().filter(|contender| contender.is_peer()).map(|contender| contender.name).collect();
    format!(
        "Written on {date} by `cargo run --release -p fencepost-bench -- {} --write`: fencepost {}, its embedded engine (dynoxide 3.2.0), {}; {rustc}{node}; {cores} cores, {model}.",
        page.name(),
        env!("CARGO_PKG_VERSION"),
        peers.join(", "),
    )
}

fn jiff_date(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%d").to_string()
}

/// A page and its pictures.
pub(crate) fn write(page: Page, reports: &[Report], plots: &[Plot]) -> Result<(), Fault> {
    let folder = root().join("docs/src/measured");
    std::fs::create_dir_all(&folder)?;
    let mut text = format!("{}\n\n{}\n", page.says(), provenance(page));
    for report in reports {
        text += &format!("\n{}\n", report.section());
    }
    for plot in plots {
        std::fs::write(folder.join(format!("{}.svg", plot.file)), plot.svg()?)?;
        text += &format!("\n![{}]({}.svg)\n", plot.title, plot.file);
    }
    std::fs::write(folder.join(format!("{}.md", page.name())), text)?;
    eprintln!("docs/src/measured/{}.md is written, with {} pictures", page.name(), plots.len());
    if matches!(page, Page::Units) {
        readme(reports)?;
    }
    Ok(())
}

/// Between its marks.
fn readme(reports: &[Report]) -> Result<(), Fault> {
    let path = root().join("README.md");
    let text = std::fs::read_to_string(&path)?;
    let (before, after) = (text.split_once("<!-- beside -->\n"), text.split_once("<!-- /beside -->"));
    let (Some((before, _)), Some((_, after))) = (before, after) else { return Err("the README has lost its marks".into()) };
    let tables: Vec<String> = reports.iter().map(|report| format!("**{}**\n\n{}", report.title, report.markdown())).collect();
    std::fs::write(&path, format!("{before}<!-- beside -->\n{}\n<!-- /beside -->{after}", tables.join("\n\n")))?;
    eprintln!("README.md is written");
    Ok(())
}
