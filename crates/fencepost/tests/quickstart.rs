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
