//! Rules: which requests, and what happens to them.

use std::time::Duration;

use super::{Fault, Gate, Keep};

/// Which requests a [`Rule`] is for: all of an operation, until it is narrowed.
#[derive(Clone, Debug)]
pub struct When {
    operation: Option<String>,
    part: Option<String>,
    first: usize,
    last: usize,
}

/// Something that happens to certain requests.
#[derive(Clone, Debug)]
pub struct Rule {
    when: When,
    fault: Fault,
    met: usize,
}

impl Rule {
    /// For requests of this operation: `PutItem`, `TransactWriteItems` …
    pub fn on(operation: &str) -> When {
        When { operation: Some(operation.to_owned()), part: None, first: 1, last: usize::MAX }
    }

    /// For requests of any operation.
    pub fn on_any() -> When {
        When { operation: None, part: None, first: 1, last: usize::MAX }
    }

    /// What happens to this request, if it is one of ours. Counts it.
    pub(super) fn meets(&mut self, operation: &str, body: &[u8]) -> Option<Fault> {
        let When { operation: on, part, first, last } = &self.when;
        let ours = on.as_ref().is_none_or(|on| on == operation)
            && part.as_ref().is_none_or(|part| body.windows(part.len()).any(|window| window == part.as_bytes()));
        if !ours {
            return None;
        }
        self.met += 1;
        (*first..=*last).contains(&self.met).then(|| self.fault.clone())
    }
}

impl When {
    /// Only the nth of them, from 1, counted since the rule was added.
    #[must_use]
    pub fn nth(self, n: usize) -> Self {
        Self { first: n, last: n, ..self }
    }

    /// As many of them, from the first, or from the one that `nth` named.
    #[must_use]
    pub fn times(self, n: usize) -> Self {
        Self { last: self.first.saturating_add(n).saturating_sub(1), ..self }
    }

    /// Only those whose JSON holds this text (not empty), and only those are counted.
    #[must_use]
    pub fn holding(self, part: &str) -> Self {
        Self { part: (!part.is_empty()).then(|| part.to_owned()), ..self }
    }

    /// This happens to them.
    pub fn suffer(self, fault: Fault) -> Rule {
        Rule { when: self, fault, met: 0 }
    }

    /// [`Fault::Throttle`].
    pub fn throttle(self) -> Rule {
        self.suffer(Fault::Throttle)
    }
    /// [`Fault::InternalError`].
    pub fn internal_error(self) -> Rule {
        self.suffer(Fault::InternalError)
    }
    /// [`Fault::LoseRequest`].
    pub fn lose_request(self) -> Rule {
        self.suffer(Fault::LoseRequest)
    }
    /// [`Fault::LoseResponse`].
    pub fn lose_response(self) -> Rule {
        self.suffer(Fault::LoseResponse)
    }
    /// [`Fault::Truncate`].
    pub fn truncate(self) -> Rule {
        self.suffer(Fault::Truncate)
    }
    /// [`Fault::DeliverTwice`].
    pub fn deliver_twice(self) -> Rule {
        self.suffer(Fault::DeliverTwice)
    }
    /// [`Fault::Hang`].
    pub fn hang(self) -> Rule {
        self.suffer(Fault::Hang)
    }
    /// [`Fault::Delay`].
    pub fn delay(self, by: Duration) -> Rule {
        self.suffer(Fault::Delay(by))
    }
    /// [`Fault::Conflict`].
    pub fn conflict(self) -> Rule {
        self.suffer(Fault::Conflict)
    }
    /// [`Fault::InProgress`].
    pub fn in_progress(self) -> Rule {
        self.suffer(Fault::InProgress)
    }
    /// [`Fault::TokenMismatch`].
    pub fn token_mismatch(self) -> Rule {
        self.suffer(Fault::TokenMismatch)
    }
    /// [`Fault::HideReasons`].
    pub fn hide_reasons(self, keep: Keep) -> Rule {
        self.suffer(Fault::HideReasons(keep))
    }
    /// [`Fault::PauseBefore`].
    pub fn pause_before(self, gate: &Gate) -> Rule {
        self.suffer(Fault::PauseBefore(gate.clone()))
    }
    /// [`Fault::PauseAfter`].
    pub fn pause_after(self, gate: &Gate) -> Rule {
        self.suffer(Fault::PauseAfter(gate.clone()))
    }
}
