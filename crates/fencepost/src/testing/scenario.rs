//! Given, when, then: a decision tested with no store. What it reads is what its boundary says, exactly as a log would hand it over.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

use crate::{Decider, Decision, Event, IntoEvents, Model, Position, Recorded, Result};

/// Events that have happened, in this order.
///
/// ```
/// # #[cfg(feature = "derive")] {
/// # use fencepost::testing::given;
/// # use fencepost::{Decision, Event, decision, fold};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Event, Serialize, Deserialize)]
/// # enum Account { Opened { #[tag("account")] id: u32 } }
/// # #[derive(Debug, PartialEq)]
/// # struct Exists;
/// # fn open(id: u32) -> impl Decision<Rejection = Exists, Events = [Account; 1]> {
/// #     let exists = fold(("account", id), false, |exists, _: &Account| *exists = true);
/// #     decision(exists, move |exists| if *exists { Err(Exists) } else { Ok([Account::Opened { id }]) })
/// # }
/// given(()).when(open(7)).then([Account::Opened { id: 7 }]);
/// given([Account::Opened { id: 7 }]).when(open(7)).then_rejected(Exists);
/// # }
/// ```
#[track_caller]
pub fn given(events: impl IntoEvents) -> Given {
    Given { history: Vec::new(), now: START }.and(events)
}

/// 2026-01-01, as in [`crate::Env::seeded`].
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// What has happened so far.
#[derive(Debug, Clone)]
#[must_use = "nothing is checked before `then`"]
pub struct Given {
    history: Vec<Recorded>,
    now: Timestamp,
}

/// What a decision came to.
#[derive(Debug)]
#[must_use = "nothing is checked before `then`"]
pub struct Then<R> {
    came_to: Result<Vec<Event>, R>,
}

impl Given {
    /// And then these.
    #[track_caller]
    pub fn and(mut self, events: impl IntoEvents) -> Self {
        let events = must("what was given is no event", events.into_events());
        for event in events {
            let number = self.history.len() as u64 + 1;
            let position = Position::number(number);
            let id = event.given_id().unwrap_or_else(|| uuid::Uuid::from_u128(u128::from(number)));
            let (data, meta) = (event.data().clone(), event.metadata().clone());
            self.history.push(Recorded::new(position, id, event.event_type().clone(), data, event.tags().to_vec(), meta, self.now));
        }
        self
    }

    /// Time passes: what follows was recorded so much later.
    pub fn after(mut self, time: Duration) -> Self {
        self.now = self.now.checked_add(time).unwrap_or(self.now);
        self
    }

    /// The time of what would happen next: give it to decisions that ask for the time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Decides.
    #[track_caller]
    pub fn when<D: Decision>(&self, decision: D) -> Then<D::Rejection> {
        let model = decision.model();
        let boundary = must("the decision has no boundary", model.boundary());
        let mut state = model.initial();
        for event in &self.history {
            // Only what its query asks for: a model that forgot a type is seen here, and not in production.
            if boundary.read.as_ref().is_some_and(|query| query.matches(&event.event_type, &event.tags)) {
                must("an event does not fold", model.fold(&mut state, event));
            }
        }
        Then {
            came_to: match decision.decide(&state) {
                Ok(events) => Ok(must("what was decided is no event", events.into_events())),
                Err(rejection) => Err(rejection),
            },
        }
    }

    /// Decides on a command to a stream that has these events.
    #[track_caller]
    pub fn when_told<D: Decider>(&self, decider: &D, command: &D::Command) -> Then<D::Rejection> {
        let mut state = decider.initial();
        for event in &self.history {
            let event = must("an event does not decode", event.decode());
            decider.evolve(&mut state, &event);
        }
        Then {
            came_to: match decider.decide(command, &state) {
                Ok(events) => Ok(must("what was decided is no event", events.into_events())),
                Err(rejection) => Err(rejection),
            },
        }
    }
}

// A closure would be where the panic points: these name the test's line.
#[track_caller]
fn must<T>(what: &str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

impl<R: Debug> Then<R> {
    /// Exactly these events.
    #[track_caller]
    pub fn then(self, expected: impl IntoEvents) {
        let expected = must("what is expected is no event", expected.into_events());
        match self.came_to {
            Ok(events) if events == expected => {}
            Ok(events) => panic!("expected\n{}\nbut it came to\n{}", shown(&expected), shown(&events)),
            Err(rejection) => panic!("expected\n{}\nbut it was rejected: {rejection:?}", shown(&expected)),
        }
    }

    /// No events, and no rejection.
    #[track_caller]
    pub fn then_nothing(self) {
        self.then(());
    }

    /// This rejection.
    #[track_caller]
    pub fn then_rejected(self, expected: R)
    where
        R: PartialEq,
    {
        match self.came_to {
            Err(rejection) if rejection == expected => {}
            Err(rejection) => panic!("expected the rejection {expected:?}, but it was rejected for {rejection:?}"),
            Ok(events) => panic!("expected the rejection {expected:?}, but it came to\n{}", shown(&events)),
        }
    }
}

/// With their bodies: these are a test's own.
fn shown(events: &[Event]) -> String {
    if events.is_empty() {
        return "  no events".into();
    }
    let line = |event: &Event| {
        let tags: Vec<_> = event.tags().iter().map(|tag| tag.as_str()).collect();
        let body = String::from_utf8_lossy(event.data()).into_owned();
        format!("  {} {body} [{}]", event.event_type(), tags.join(", "))
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}
