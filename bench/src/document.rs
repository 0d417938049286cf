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

    /// Its head.
    fn says(self) -> &'static str {
        match self {
            Page::Units => include_str!("pages/units.md"),
            Page::Speed => include_str!("pages/speed.md"),
            Page::Growth => include_str!("pages/growth.md"),
            Page::Feeds => include_str!("pages/feeds.md"),
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
    /// What was measured, where it is a clone.
    pub(crate) tree: Option<&'a Tree>,
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

/// The commit that is measured, and what was changed since.
pub(crate) struct Tree {
    commit: String,
    changed: Vec<String>,
}

impl Tree {
    /// Of this repository; none where it is no clone.
    pub(crate) fn here() -> Option<Tree> {
        Tree::at(&root(None))
    }

    fn at(root: &Path) -> Option<Tree> {
        let commit = git(root, &["rev-parse", "--short", "HEAD"])?.trim().to_owned();
        let status = git(root, &["status", "--porcelain", "--untracked-files=all"])?;
        let paths = status.lines().filter_map(|line| line.get(3..)).filter(|path| !is_written(root, path));
        Some(Tree { commit, changed: paths.map(str::to_owned).collect() })
    }

    /// `(0a1b2c3)`, as a page names it.
    fn shown(&self) -> String {
        format!(" ({}{})", self.commit, if self.changed.is_empty() { "" } else { ", changed" })
    }

    /// What a page in this repository says must be had again from the commit that it names.
    pub(crate) fn may_be_told(now: Option<&Tree>, began: Option<&Tree>) -> Result<(), String> {
        let (Some(now), Some(began)) = (now, began) else {
            return Err("a page in this repository names the commit that was measured, and this is no clone: give --into FOLDER".into());
        };
        if !now.changed.is_empty() {
            let changed = now.changed.join(", ");
            return Err(format!(
                "a page in this repository names the commit that was measured: commit what was changed first ({changed}), or give \
                 --into FOLDER"
            ));
        }
        if now.commit != began.commit {
            return Err(format!("{} was measured, and {} is here now", began.commit, now.commit));
        }
        Ok(())
    }
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(args).current_dir(root).output().ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Whether a change is no more than what an earlier page of the same run leaves.
fn is_written(root: &Path, path: &str) -> bool {
    let now = || std::fs::read_to_string(root.join(path)).ok();
    let before = || git(root, &["show", &format!("HEAD:{path}")]);
    match path {
        _ if path.starts_with("docs/src/measured/") => true,
        "README.md" => before().zip(now()).is_some_and(|(before, now)| around(&before).is_some_and(|of| around(&now) == Some(of))),
        "docs/src/SUMMARY.md" => before().zip(now()).is_some_and(|(before, now)| {
            let others = |text: &str| text.lines().filter(|line| !line.contains("](measured/")).map(str::to_owned).collect::<Vec<_>>();
            others(&before) == others(&now)
        }),
        _ => false,
    }
}

/// What the README has before and behind the tables that are written into it.
fn around(readme: &str) -> Option<(&str, &str)> {
    let (before, _) = readme.split_once("<!-- beside -->\n")?;
    let (_, after) = readme.split_once("<!-- /beside -->")?;
    Some((before, after))
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
        told.tree.map_or(String::new(), Tree::shown),
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
    let mut text = format!("{}\n{}\n", page.says(), provenance(page, told));
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
    let (before, after) = around(&text).ok_or("the README has lost its marks")?;
    let tables: Vec<String> = reports.iter().map(|report| format!("**{}**\n\n{}", report.title, report.markdown())).collect();
    std::fs::write(&path, format!("{before}<!-- beside -->\n{}\n<!-- /beside -->{after}", tables.join("\n\n")))?;
    eprintln!("README.md is written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BROKEN;

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
    #[test]
    fn every_page_names_the_commit_it_was_measured_at_and_all_of_it_holds() {
        let pages = std::fs::read_dir(root(None).join("docs/src/measured")).expect("a folder").map(|file| file.expect("a file").path());
        let pages: Vec<PathBuf> = pages.filter(|path| path.extension().is_some_and(|of| of == "md")).collect();
        assert_eq!(pages.len(), 4, "{pages:?}");
        let mut wrong = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(&page).expect("text");
            let commit = text.split_once(": fencepost ").and_then(|(_, rest)| Some(rest.split_once('(')?.1.split_once(')')?.0));
            if !commit.is_some_and(|commit| commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit())) {
                wrong.push(format!("{}: measured at {commit:?}", page.display()));
            }
            wrong.extend(text.lines().filter(|line| line.contains(BROKEN)).map(|line| format!("{}: {line}", page.display())));
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_page_is_written_only_of_a_commit_and_what_the_run_writes_is_no_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("a folder");
            std::fs::write(root.join(path), text).expect("writes");
        };
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            super::git(root, &[&who, args].concat()).unwrap_or_else(|| panic!("git {args:?}"))
        };
        assert!(Tree::may_be_told(None, None).is_err(), "no clone");
        git(&["init", "--quiet"]);
        write("README.md", "# A\n<!-- beside -->\nold\n<!-- /beside -->\nend\n");
        write("docs/src/SUMMARY.md", "- [Costs](costs.md)\n");
        write("src/lib.rs", "");
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "one"]);
        let began = Tree::at(root).expect("a clone");
        let now = || Tree::at(root).expect("a clone");
        let told = |now: &Tree| Tree::may_be_told(Some(now), Some(&began));
        assert!(told(&now()).is_ok());
        // As `all --write` leaves it on the way.
        write("docs/src/measured/units.md", "# Measured");
        write("README.md", "# A\n<!-- beside -->\nnew\n<!-- /beside -->\nend\n");
        write("docs/src/SUMMARY.md", "- [Costs](costs.md)\n  - [Measured: units](measured/units.md)\n");
        assert!(told(&now()).is_ok() && !now().shown().contains("changed"), "{:?}", now().changed);
        // What is typed around that is.
        write("README.md", "# B\n<!-- beside -->\nnew\n<!-- /beside -->\nend\n");
        assert_eq!(now().changed, ["README.md"]);
        git(&["checkout", "--quiet", "README.md"]);
        write("src/new.rs", "");
        assert!(told(&now()).is_err_and(|why| why.contains("src/new.rs")) && now().shown().ends_with(", changed)"));
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "two"]);
        assert!(told(&now()).is_err_and(|why| why.contains("was measured")), "another commit than the one it began at");
    }
}
