//! The demo, whole.

use crate::{FileStore, run};

#[test]
fn the_demo_needs_nothing_and_ends_well() {
    let ran = run(&["demo", "--students", "30", "--courses", "5"]).ok();
    let report = &ran.lines()[0];
    assert_eq!(report["enrolled"], 50, "5 courses of 10 seats, and 30 students who want them: {report}");
    assert_eq!(report["check"]["enrolled"], 50);
    assert_eq!(report["feed"]["events"], 55);
    assert!(report["units"]["write"].as_f64().is_some_and(|units| units >= 55.0));
    assert!(report["dollars"]["total"].as_f64().is_some_and(|dollars| dollars > 0.0));
    assert!(ran.stderr().contains("Checked from a fresh read"), "the story is told beside the data");
}

#[test]
fn the_demo_runs_twice_on_one_store() {
    let store = FileStore::new();
    for _ in 0..2 {
        let story = store.run(&["demo", "--students", "8", "--courses", "3", "--capacity", "2", "-o", "table"]).ok().stdout();
        assert!(story.contains("no course over 2 seats: the fullest has 2"), "{story}");
        assert!(!story.contains('\x1b'), "no colours where nobody looks");
    }
}
