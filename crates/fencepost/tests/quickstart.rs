//! The README promises a decision in under 40 lines with its events. The block itself is compiled and run as a doctest (`mod guide` in `lib.rs`).

#[test]
fn the_quickstart_has_under_forty_lines() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("```rust\n").expect("a block of Rust");
    let (block, _) = rest.split_once("\n```").expect("its end");
    for part in ["#[derive(Event", "#[tag(\"student\")]", ".decide(enrol(", "fn main()"] {
        assert!(block.contains(part), "the first block of Rust is not the quickstart: it lacks {part}");
    }
    let lines = block.lines().count();
    assert!(lines < 40, "{lines} lines");
}

#[test]
fn each_example_has_under_a_hundred_and_twenty_lines_and_tests_itself() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files: Vec<_> = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("a file").path()).collect();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        let lines = text.lines().count();
        assert!(lines < 120, "{}: {lines} lines", file.display());
        // Those on a peer's tables show the tables, and hold what they show as they run.
        let cases = text.contains("given(") && text.contains(".then");
        let held = file.to_string_lossy().ends_with("_table.rs") && text.contains("assert");
        assert!(cases || held, "{} has no cases", file.display());
    }
}
