//! The rooms of the house and who may know whom: reads every path in `src/` and holds the table of the design, the sizes of files, and what
//! each feature pulls in. `the_house_stands` judges the real sources; the tests under it plant one violation each, so that every rule is seen red.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Who may use whom, besides its own room and what [`COMMON`] lists. `layout/*` is any one layout; `testing` has a rule of its own.
const TABLE: &[(&str, &[&str])] = &[
    ("error", &["model"]),
    ("env", &["model"]),
    ("units", &[]),
    ("model", &[]),
    ("domain", &["model"]),
    ("contracts", &["model"]),
    ("memory", &["model", "contracts", "feed"]),
    ("dynamo", &[]),
    ("side", &["model", "contracts", "dynamo"]),
    ("layout", &["model", "contracts", "dynamo", "side", "url", "layout/*"]),
    ("layout/*", &["model", "contracts", "dynamo", "side", "url", "layout"]),
    ("feed", &["model", "contracts", "dynamo", "side", "layout", "layout/*"]),
    ("project", &["model", "domain", "contracts", "feed"]),
    ("decide", &["model", "domain", "contracts"]),
    ("moving", &["model", "contracts", "feed"]),
    (
        "store",
        &["model", "domain", "contracts", "memory", "dynamo", "side", "layout", "layout/*", "feed", "project", "decide", "moving", "url"],
    ),
    ("doctor", &["dynamo", "layout", "layout/*", "store"]),
    ("url", &["dynamo"]),
];
/// What every room may use. Units are here because `dynamo` meters them, and they know nothing of events.
const COMMON: &[&str] = &["error", "env", "units"];
/// Crates that belong to one room: their prefix, and the rooms that may name them.
const FOREIGN: &[(&str, &[&str])] =
    &[("aws_smithy_", &["dynamo", "testing"]), ("aws_", &["dynamo"]), ("dynoxide", &["dynamo"]), ("rusqlite", &["dynamo"])];
const LIB_MAX_CODE_LINES: usize = 200;
const FILE_MAX_LINES: usize = 600;
/// What the header of a longer file must say, followed by the reason.
const LONG_FILE_MARK: &str = "over 600 lines because";

#[test]
fn the_house_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    collect(&root, &root, &mut files);
    assert!(files.contains_key("lib.rs") && files.len() > 10, "the sources were not found under src/");
    let wrong = violations(&files);
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn without_the_feature_dynamo_no_aws_crate_is_pulled_in() {
    let aws = |tree: &BTreeSet<String>| tree.iter().any(|name| name.starts_with("aws-"));
    assert!(!aws(&dependencies(&["--no-default-features"])));
    assert!(!aws(&dependencies(&["--no-default-features", "--features", "testing"])));
    assert!(aws(&dependencies(&["--no-default-features", "--features", "dynamo"])), "the check sees no aws crate where there must be one");
}

#[test]
fn without_the_feature_embedded_no_engine_is_pulled_in() {
    let engine = |tree: &BTreeSet<String>| ["dynoxide-rs", "rusqlite", "libsqlite3-sys"].iter().any(|name| tree.contains(*name));
    assert!(!engine(&dependencies(&[])));
    assert!(!engine(&dependencies(&["--features", "testing"])));
    assert!(engine(&dependencies(&["--features", "embedded"])), "the check sees no engine where there must be one");
}

/// The names of the crates that the library pulls in with these features.
fn dependencies(features: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "-p", "fencepost", "-e", "normal", "--offline", "--prefix", "none", "--format", "{p}"])
        .args(features)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("under src").to_string_lossy().replace('\\', "/");
            files.insert(name, std::fs::read_to_string(&path).expect("a readable file"));
        }
    }
}

// ---- the rules ----

fn violations(files: &BTreeMap<String, String>) -> Vec<String> {
    let sources: Vec<Source> = files.iter().map(|(name, text)| Source::new(name, text)).collect();
    let house = House::new(&sources);
    let mut wrong = Vec::new();
    for source in &sources {
        house.judge_paths(source, &mut wrong);
        judge_foreign(source, &mut wrong);
        judge_shape(source, &files[&source.name], &mut wrong);
    }
    wrong
}

struct House {
    layouts: BTreeSet<String>,
    /// Names at the crate's root, and the path each stands for.
    exports: BTreeMap<String, Vec<String>>,
}

impl House {
    fn new(sources: &[Source]) -> Self {
        let layouts = sources.iter().filter(|s| s.module.len() > 1 && s.module[0] == "layout").map(|s| s.module[1].clone()).collect();
        let exports = sources.iter().filter(|s| s.name == "lib.rs").flat_map(|lib| &lib.paths);
        let exports = exports.filter(|p| p.import).filter_map(|p| Some((p.segments.last()?.clone(), p.segments.clone()))).collect();
        House { layouts, exports }
    }

    /// The room that a path from the crate's root leads to.
    fn room(&self, path: &[String]) -> Option<String> {
        Some(match path.first()?.as_str() {
            "event" | "query" | "position" => "model".into(),
            "log" | "stream" | "state" => "contracts".into(),
            "layout" => match path.get(1) {
                Some(name) if self.layouts.contains(name) => format!("layout/{name}"),
                _ => "layout".into(),
            },
            "testing" => "testing".into(),
            name if TABLE.iter().any(|(room, _)| *room == name) => name.into(),
            _ => return None,
        })
    }

    fn judge_paths(&self, source: &Source, wrong: &mut Vec<String>) {
        if source.name == "lib.rs" {
            let globs = source.paths.iter().filter(|p| p.import && p.segments.last().is_some_and(|last| last == "*"));
            wrong.extend(globs.map(|p| format!("lib.rs:{}: re-exports are listed by name", p.line)));
            return;
        }
        let Some(from) = self.room(&source.module) else {
            wrong.push(format!("{}: a room that the table does not list", source.name));
            return;
        };
        for path in source.paths.iter().filter(|p| p.from_root && !p.is_macro) {
            let place = format!("{}:{}: crate::{}", source.name, path.line, path.segments.join("::"));
            let whole_root = path.segments.is_empty() || path.segments[0] == "*";
            if whole_root {
                if path.import {
                    wrong.push(format!("{place}: imports the whole crate; name what is needed"));
                }
                continue;
            }
            let exported = self.exports.get(&path.segments[0]);
            let Some(to) = self.room(exported.unwrap_or(&path.segments)) else {
                wrong.push(format!("{place}: neither a room of the table nor a name that lib.rs exports"));
                continue;
            };
            if from == "testing" {
                if exported.is_none() && to != "testing" {
                    wrong.push(format!("{place}: testing uses the public API, not the room {to}"));
                }
                continue;
            }
            // With the parent module in hand, a sibling is one `::` away and out of sight.
            let holds_parent = path.segments == ["layout"] || path.segments == ["layout", "*"];
            if path.import && from.starts_with("layout/") && holds_parent {
                wrong.push(format!("{place}: name what is needed, the other layouts hang on it"));
            } else if !may_use(&from, &to) {
                wrong.push(format!("{place}: {from} may not use {to}"));
            }
        }
    }
}

fn may_use(from: &str, to: &str) -> bool {
    let kind = |room: &str| if room.starts_with("layout/") { "layout/*".to_owned() } else { room.to_owned() };
    let allowed = TABLE.iter().find(|(room, _)| *room == kind(from)).map_or(&[][..], |(_, allowed)| allowed);
    from == to || (COMMON.contains(&to) && from != "units") || allowed.contains(&kind(to).as_str())
}

fn judge_foreign(source: &Source, wrong: &mut Vec<String>) {
    let room = source.module.first().map_or("lib.rs", String::as_str);
    for token in &source.tokens {
        let owner = FOREIGN.iter().find(|(prefix, _)| token.text.starts_with(prefix));
        if owner.is_some_and(|(_, rooms)| !rooms.contains(&room)) {
            wrong.push(format!("{}:{}: {} belongs to dynamo", source.name, token.line, token.text));
        }
    }
}

fn judge_shape(source: &Source, text: &str, wrong: &mut Vec<String>) {
    let name = &source.name;
    if !text.starts_with("//! ") {
        wrong.push(format!("{name}: the first line says what the file owns (`//! …`)"));
    }
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim()).collect();
    let lines = text.lines().count();
    if lines > FILE_MAX_LINES && !header.join(" ").to_lowercase().contains(LONG_FILE_MARK) {
        wrong.push(format!("{name}: {lines} lines, and the header does not say \"{LONG_FILE_MARK} …\""));
    }
    let code: BTreeSet<usize> = source.tokens.iter().map(|token| token.line).collect();
    if name == "lib.rs" && code.len() > LIB_MAX_CODE_LINES {
        wrong.push(format!("lib.rs: {} lines of code; it is a map of at most {LIB_MAX_CODE_LINES}", code.len()));
    }
    if source.tokens.windows(2).any(|pair| pair[0].text == "mod" && pair[1].text == "prelude") {
        wrong.push(format!("{name}: no prelude"));
    }
}

// ---- reading a source file ----

struct Source {
    name: String,
    /// Where the file hangs: `dynamo/retry.rs` is `[dynamo, retry]`, `dynamo/mod.rs` is `[dynamo]`, `lib.rs` is `[]`.
    module: Vec<String>,
    tokens: Vec<Token>,
    paths: Vec<FoundPath>,
}

struct Token {
    text: String,
    line: usize,
}

struct FoundPath {
    /// From the crate's root where `from_root`; else as written.
    segments: Vec<String>,
    line: usize,
    from_root: bool,
    import: bool,
    is_macro: bool,
}

impl Source {
    fn new(name: &str, text: &str) -> Self {
        let stem = name.strip_suffix(".rs").expect("a Rust file");
        let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
            module.pop();
        }
        let tokens = tokenise(text);
        let paths = Paths { tokens: &tokens, at: 0, module: module.clone(), depth: 0, inline: Vec::new(), found: Vec::new() }.read();
        Source { name: name.to_owned(), module, tokens, paths }
    }
}

/// Names, `::` and single signs; without comments, strings, characters and lifetimes.
fn tokenise(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut i, mut line) = (Vec::new(), 0, 1);
    while i < chars.len() {
        let start = i;
        let mut text = None;
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
            }
            '"' => i = end_of_quoted(&chars, i, '"'),
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => i = end_of_quoted(&chars, i, '\''),
            '\'' => i += 1,
            c if in_name(c) => {
                while in_name(at(i)) {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
                if matches!(word.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                    i += hashes + 1;
                    while i < chars.len() && !chars[i..].starts_with(&end) {
                        i += 1;
                    }
                    i += end.len();
                } else if word == "r" && hashes == 1 && in_name(at(i + 1)) {
                    i += 1;
                    while in_name(at(i)) {
                        i += 1; // `r#use` is a name, no keyword
                    }
                    text = Some(chars[start..i].iter().collect());
                } else if start > 0 && at(start - 1) == '\'' {
                    // a lifetime
                } else {
                    text = Some(word);
                }
            }
            ':' if at(i + 1) == ':' => {
                i += 2;
                text = Some("::".to_owned());
            }
            c => {
                i += 1;
                text = (!c.is_whitespace()).then(|| c.to_string());
            }
        }
        tokens.extend(text.map(|text| Token { text, line }));
        line += chars[start..i.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn end_of_quoted(chars: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// Walks the tokens, and resolves each path from the module it stands in.
struct Paths<'a> {
    tokens: &'a [Token],
    at: usize,
    module: Vec<String>,
    depth: usize,
    /// Modules opened inside the file, each with the depth of its brace.
    inline: Vec<(String, usize)>,
    found: Vec<FoundPath>,
}

impl Paths<'_> {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| &token.text)
    }

    fn is_name(text: &str) -> bool {
        text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    fn read(mut self) -> Vec<FoundPath> {
        while self.at < self.tokens.len() {
            match self.text(0) {
                "use" if self.text(1) != "<" => {
                    self.at += 1;
                    self.tree(Vec::new());
                    continue;
                }
                "mod" if self.text(2) == "{" => self.inline.push((self.text(1).to_owned(), self.depth)),
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inline.last().is_some_and(|(_, depth)| *depth == self.depth) {
                        self.inline.pop();
                    }
                }
                name if Self::is_name(name) && self.text(1) == "::" => {
                    self.expression();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.found
    }

    /// A path in code: `crate::a::b`.
    fn expression(&mut self) {
        let line = self.tokens[self.at].line;
        let mut segments = vec![self.text(0).to_owned()];
        self.at += 1;
        while self.text(0) == "::" && Self::is_name(self.text(1)) {
            segments.push(self.text(1).to_owned());
            self.at += 2;
        }
        if self.text(0) == "::" {
            self.at += 1; // before generics
        }
        let is_macro = self.text(0) == "!" && segments.len() == 2;
        self.push(segments, line, false, is_macro);
    }

    /// A tree behind `use`: `a::{b, c::{self, d as e}, *}`.
    fn tree(&mut self, mut prefix: Vec<String>) {
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        if self.text(0) == "::" {
            self.at += 1; // `use ::name`
        }
        loop {
            match self.text(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | ";" | "") {
                        self.tree(prefix.clone());
                        self.at += usize::from(self.text(0) == ",");
                    }
                    self.at += 1;
                    return;
                }
                "," | "}" | ";" | "" => break,
                "as" => {
                    self.at += 2;
                    break;
                }
                segment if segment == "*" || Self::is_name(segment) => {
                    if segment != "self" || prefix.is_empty() {
                        prefix.push(segment.to_owned());
                    }
                    self.at += 1;
                    if self.text(0) == "::" {
                        self.at += 1;
                    }
                }
                _ => self.at += 1, // a macro's `$name`
            }
        }
        self.push(prefix, line, true, false);
    }

    fn push(&mut self, segments: Vec<String>, line: usize, import: bool, is_macro: bool) {
        let here = || self.module.iter().cloned().chain(self.inline.iter().map(|(name, _)| name.clone())).collect::<Vec<_>>();
        let (mut base, mut from_root, mut rest) = (Vec::new(), true, segments.as_slice());
        match segments.first().map(String::as_str) {
            Some("crate") => rest = &rest[1..],
            Some("self") => (base, rest) = (here(), &rest[1..]),
            Some("super") => {
                base = here();
                while rest.first().is_some_and(|segment| segment == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            _ => from_root = false,
        }
        base.extend_from_slice(rest);
        self.found.push(FoundPath { segments: base, line, from_root, import, is_macro });
    }
}

// ---- each rule seen red ----

const LIB: &str = "//! Map.\npub use log::EventLog;\npub use dynamo::Client;\n#[cfg(feature = \"x\")]\npub use store::{Store, open};\n";

/// What the checker says to one planted file, among files that are in order.
fn said(name: &str, code: &str) -> Vec<String> {
    let mut files: BTreeMap<String, String> =
        [("lib.rs", LIB), ("layout/equinox/mod.rs", "//! Equinox.\n"), ("layout/ledger/read.rs", "//! Reads.\n")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into();
    assert!(violations(&files).is_empty(), "the files around the plant must be in order");
    files.insert(name.to_owned(), format!("//! Planted.\n{code}"));
    violations(&files)
}

#[track_caller]
fn refused(name: &str, code: &str, because: &str) {
    let said = said(name, code);
    assert!(said.len() == 1 && said[0].contains(because), "{name}: {code}\nsaid {said:?}, not once {because:?}");
}

#[track_caller]
fn accepted(name: &str, code: &str) {
    let said = said(name, code);
    assert!(said.is_empty(), "{name}: {code}\nsaid {said:?}");
}

#[test]
fn each_row_of_the_table_refuses_what_it_must() {
    refused("event.rs", "use crate::log::Append;", "model may not use contracts");
    refused("error.rs", "use crate::dynamo::Fault;", "error may not use dynamo");
    refused("env.rs", "use crate::log::Append;", "env may not use contracts");
    refused("units.rs", "use crate::error::Result;", "units may not use error");
    refused("log.rs", "use crate::dynamo::Client;", "contracts may not use dynamo");
    refused("stream.rs", "use crate::layout::Opened;", "contracts may not use layout");
    refused("memory.rs", "use crate::layout::ledger::Slot;", "memory may not use layout/ledger");
    refused("dynamo/item.rs", "use crate::event::Event;", "dynamo may not use model");
    refused("dynamo/item.rs", "use crate::layout::Opened;", "dynamo may not use layout");
    refused("layout/ledger/append.rs", "use crate::layout::equinox::Tip;", "layout/ledger may not use layout/equinox");
    refused("layout/ledger/append.rs", "use crate::feed::Feed;", "layout/ledger may not use feed");
    refused("layout/ledger/append.rs", "use crate::decide::Decision;", "layout/ledger may not use decide");
    refused("feed/lanes.rs", "use crate::project::Runner;", "feed may not use project");
    refused("feed/lanes.rs", "use crate::decide::Decision;", "feed may not use decide");
    refused("project/mod.rs", "use crate::dynamo::Table;", "project may not use dynamo");
    refused("project/mod.rs", "use crate::layout::ledger::Slot;", "project may not use layout/ledger");
    refused("decide/mod.rs", "use crate::feed::Feed;", "decide may not use feed");
    refused("decide/mod.rs", "use crate::store::Store;", "decide may not use store");
    refused("layout/mod.rs", "use crate::store::Store;", "layout may not use store");
    refused("layout/mod.rs", "use crate::feed::Feed;", "layout may not use feed");
    refused("side/mod.rs", "use crate::layout::ledger::Ledger;", "side may not use layout/ledger");
    refused("store.rs", "use crate::testing::Faults;", "store may not use testing");
}

#[test]
fn each_row_of_the_table_accepts_what_it_may() {
    accepted("event.rs", "use crate::error::Result;\nuse crate::position::Position;");
    accepted("error.rs", "use crate::event::CommitId;");
    accepted("memory.rs", "use crate::{feed::Feed, log::EventLog, units::Units};");
    accepted(
        "dynamo/retry.rs",
        "use crate::{env::Env, error::Result, units::Units};\nuse super::item::Item;\nuse aws_sdk_dynamodb::Client;",
    );
    accepted("layout/mod.rs", "mod ledger;\nuse crate::side::Side;\npub(crate) use ledger::Ledger;");
    accepted("side/mod.rs", "use crate::{dynamo::Dynamo, state::Cells};");
    accepted("layout/ledger/append.rs", "use crate::{dynamo::Table, layout::Capabilities, log::Append};\nuse super::read::Seen;");
    accepted("feed/lanes.rs", "use crate::{layout::ledger::Reader, state::Lease};");
    accepted("project/mod.rs", "use crate::{feed::Feed, state::States};");
    accepted("decide/mod.rs", "use crate::{log::EventLog, query::Query};");
    accepted("store.rs", "use crate::{decide, dynamo::Connect, layout::ledger::Ledger, memory::Memory};");
}

#[test]
fn a_path_is_found_however_it_is_written() {
    let because = "contracts may not use dynamo";
    refused("log.rs", "use crate::{error::Result, dynamo::{item::Item}};", because);
    refused("log.rs", "use crate::{\n    error::{self, Result},\n    dynamo as d,\n};", because);
    refused("log.rs", "use super::dynamo::Item;", because);
    refused("log.rs", "mod tests { mod inner { use super::super::super::dynamo::Item; } }", because);
    refused("log.rs", "mod tests { fn f() {} } use super::dynamo::Item;", because);
    refused("log.rs", "fn f() -> Vec<crate::dynamo::Item> { todo!() }", because);
    refused("log.rs", "fn f() { let x = 'a'; let y = '\"'; crate::dynamo::connect::<u8>(); }", because);
    refused("log.rs", "macro_rules! m { () => { $crate::dynamo::connect() } }", because);
    refused("log.rs", "pub use crate::Client;", because);
    refused("layout/ledger/append.rs", "use super::super::equinox::Tip;", "layout/ledger may not use layout/equinox");
    refused("layout/ledger/mod.rs", "use super::equinox::Tip;", "layout/ledger may not use layout/equinox");
    let said = said("log.rs", "\n/* one\ntwo */\nuse crate::dynamo::Item;");
    assert!(said[0].starts_with("log.rs:5: crate::dynamo::Item:"), "{said:?}");
}

#[test]
fn what_is_no_path_is_left_alone() {
    accepted("log.rs", "// use crate::dynamo::Item;\n/// [`crate::dynamo`]\n/* /* nested */ crate::dynamo::x */ pub(crate) struct A;");
    accepted("log.rs", r####"const A: &str = "crate::dynamo::x \" aws_sdk_dynamodb"; const B: &str = r#"crate::dynamo::" x"#;"####);
    accepted("log.rs", "fn f<'a>(x: &'a str) -> impl Sized + use<'a> { x }\nmod tests { use super::*; }");
    accepted("log.rs", "pub(in crate::log) fn r#use() { crate::exported_macro!(); }");
}

#[test]
fn the_whole_crate_or_all_layouts_cannot_be_taken_in_hand() {
    refused("log.rs", "use crate::*;", "imports the whole crate");
    refused("log.rs", "use super::*;", "imports the whole crate");
    refused("log.rs", "use crate as c;", "imports the whole crate");
    refused("log.rs", "use crate::{self as c};", "imports the whole crate");
    refused("layout/ledger/append.rs", "use crate::layout;", "the other layouts hang on it");
    refused("layout/ledger/mod.rs", "use super::*;", "the other layouts hang on it");
}

#[test]
fn a_room_that_the_table_does_not_list_is_refused() {
    refused("utils.rs", "", "a room that the table does not list");
    refused("log.rs", "use crate::utils::thing;", "neither a room of the table nor a name that lib.rs exports");
}

#[test]
fn testing_uses_the_public_api_only() {
    accepted("testing/mod.rs", "use crate::{EventLog, Store, open};\nuse crate::testing::cases::Case;\nuse super::testing::x;");
    accepted("testing/faults.rs", "use aws_smithy_runtime_api::client::http::HttpConnector;\nuse super::cases::Case;");
    refused("testing/cases.rs", "use crate::log::EventLog;", "testing uses the public API, not the room contracts");
    refused("testing/cases.rs", "use super::super::store::Store;", "testing uses the public API, not the room store");
    refused("testing/faults.rs", "use aws_sdk_dynamodb::Client;", "aws_sdk_dynamodb belongs to dynamo");
    refused("testing/faults.rs", "use rusqlite::Connection;", "rusqlite belongs to dynamo");
}

#[test]
fn the_sdk_and_the_engine_stay_in_dynamo() {
    refused("store.rs", "fn f(client: aws_sdk_dynamodb::Client) {}", "aws_sdk_dynamodb belongs to dynamo");
    refused("layout/ledger/item.rs", "use aws_smithy_types::Blob;", "aws_smithy_types belongs to dynamo");
    refused("store.rs", "use aws_config::SdkConfig;", "aws_config belongs to dynamo");
    refused("feed/lanes.rs", "use ::dynoxide::Database;", "dynoxide belongs to dynamo");
    refused("layout/mod.rs", "extern crate rusqlite;", "rusqlite belongs to dynamo");
}

#[test]
fn lib_is_a_map() {
    let lib = |code: &str| said("lib.rs", code);
    assert_eq!(lib("pub use log::*;"), ["lib.rs:2: re-exports are listed by name"]);
    assert_eq!(lib("pub mod prelude {}"), ["lib.rs: no prelude"]);
    assert_eq!(lib("pub use aws_sdk_dynamodb::Client;").len(), 1);
    let long = "// a comment is no code\npub fn f() {}\n".repeat(LIB_MAX_CODE_LINES);
    assert_eq!(lib(&long[..]).iter().filter(|s| s.contains("lines of code")).count(), 0, "comments are not counted");
    assert!(lib(&format!("{long}fn g() {{}}"))[0].contains("201 lines of code"));
}

#[test]
fn a_long_file_gives_its_reason_and_every_file_a_first_line() {
    let long = "\n".repeat(FILE_MAX_LINES);
    refused("log.rs", &long, "601 lines");
    accepted("log.rs", &long[1..]);
    accepted("log.rs", &format!("//! Over 600 lines because\n//! the table is one.\n{long}"));
    let bare = BTreeMap::from([("log.rs".to_owned(), "use std::fmt;\n".to_owned())]);
    assert_eq!(violations(&bare), ["log.rs: the first line says what the file owns (`//! …`)"]);
}
