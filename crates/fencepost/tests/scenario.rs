//! Given, when, then: that it sees what a log would hand over, fails where it should, says what came instead, and points at the test's line.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost::testing::given;
use fencepost::{Decision, Event, decision, fold, fold_recorded};
use serde::{Deserialize, Serialize};

#[derive(Debug, Event, Serialize, Deserialize)]
enum Door {
    Opened {
        #[tag("door")]
        door: u32,
    },
    Closed {
        #[tag("door")]
        door: u32,
    },
}

#[derive(Debug, PartialEq)]
enum No {
    IsOpen,
    Other,
}

fn open(door: u32) -> impl Decision<Rejection = No> {
    let is_open = fold(("door", door), false, |open, event: &Door| *open = matches!(event, Door::Opened { .. }));
    decision(is_open, move |is_open| if *is_open { Err(No::IsOpen) } else { Ok([Door::Opened { door }]) })
}

/// The message of a check that fails, and the line it points at. The hook is the process's, so one at a time.
fn failure(check: impl FnOnce()) -> (String, u32) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let line = Arc::new(Mutex::new(0));
    let before = std::panic::take_hook();
    let seen = line.clone();
    std::panic::set_hook(Box::new(move |info| {
        let here = info.location().filter(|location| location.file().ends_with("scenario.rs") && location.file().contains("tests"));
        *seen.lock().expect("line") = here.map_or(0, Location::line);
    }));
    let failed = catch_unwind(AssertUnwindSafe(check));
    std::panic::set_hook(before);
    let message = failed.expect_err("it must fail");
    let text = message.downcast_ref::<String>().cloned().or_else(|| message.downcast_ref::<&str>().map(|text| (*text).into()));
    let line = *line.lock().expect("line");
    (text.expect("a text"), line)
}

#[test]
fn what_holds_passes() {
    given(()).when(open(1)).then([Door::Opened { door: 1 }]);
    given([Door::Opened { door: 1 }]).when(open(1)).then_rejected(No::IsOpen);
    given([Door::Opened { door: 1 }]).and([Door::Closed { door: 1 }]).when(open(1)).then([Door::Opened { door: 1 }]);
    // Another door's events are not what the decision reads.
    given([Door::Opened { door: 2 }]).when(open(1)).then([Door::Opened { door: 1 }]);
    given(()).when(decision((), |()| Ok::<_, No>(()))).then_nothing();
}

#[test]
fn what_does_not_hold_fails_at_the_tests_own_line_and_says_what_came_instead() {
    let line = Location::caller().line();
    let (message, at) = failure(|| given(()).when(open(1)).then([Door::Closed { door: 1 }]));
    assert!(message.contains(r#"Closed {"door":1} [door:1]"#) && message.contains(r#"Opened {"door":1} [door:1]"#), "{message}");
    let (message, other) = failure(|| given(()).when(open(1)).then_rejected(No::IsOpen));
    assert!(message.contains("IsOpen") && message.contains("Opened"), "{message}");
    let (message, _) = failure(|| given([Door::Opened { door: 1 }]).when(open(1)).then([Door::Opened { door: 1 }]));
    assert!(message.contains("rejected: IsOpen"), "{message}");
    let (message, _) = failure(|| given([Door::Opened { door: 1 }]).when(open(1)).then_rejected(No::Other));
    assert!(message.contains("Other") && message.contains("IsOpen"), "{message}");
    let (message, _) = failure(|| given(()).when(open(1)).then_nothing());
    assert!(message.contains("no events"), "{message}");
    assert!(at > line && other == at + 2, "lines {at} and {other}, from {line}");
}

#[test]
fn a_model_about_a_key_that_no_event_has_is_seen_here() {
    let typo = || decision(fold(("dor", 1), (), |(), _: &Door| ()), |()| Ok::<_, No>(()));
    let (message, line) = failure(|| given(()).when(typo()).then_nothing());
    assert!(message.contains("the keys are door") && line > 0, "{message}");
}

#[test]
fn time_passes_as_told() {
    let ages = || fold_recorded(("door", 1), Vec::new(), |at, _: &Door, recorded| at.push(recorded.recorded_at));
    let told = given([Door::Opened { door: 1 }]).after(Duration::from_secs(60)).and([Door::Closed { door: 1 }]);
    let gap = decision(ages(), |at: &Vec<_>| Err::<(), _>(at[1].duration_since(at[0]).as_secs()));
    told.when(gap).then_rejected(60);
    assert_eq!(told.now().duration_since(given(()).now()).as_secs(), 60);
}
