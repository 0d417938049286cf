//! Errors: five answers to "what now?". Bodies never appear in them.

use std::time::Duration;

use crate::event::{CommitId, Recorded};
use crate::position::{Base, Token};
use crate::units::Units;

/// What the crate's calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was recorded: the condition did not hold. Decide again.
    #[error(transparent)]
    Conflict(Box<Conflict>),
    /// Nothing was recorded, and no write was attempted: the input is not acceptable here. Change it.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// Nothing was recorded: the store cannot be reached or used. Try later, or once rights and tables are right.
    #[error(transparent)]
    Unavailable(Box<Unavailable>),
    /// Whether it was recorded is unknown. Append again with the same commit id, from the base.
    #[error(transparent)]
    InDoubt(Box<InDoubt>),
    /// What is stored cannot be right. An operator must look.
    #[error("corrupt {}: {}", .0.layout, .0.what)]
    Corrupt(Box<Corrupt>),
}

/// Events match the condition that were not there when the token was read.
#[derive(Debug, thiserror::Error)]
#[error("conflict: {} after the token; nothing was recorded: decide again", count(.events.len()))]
#[non_exhaustive]
pub struct Conflict {
    /// The new events that match the condition, as far as they were met.
    pub events: Vec<Recorded>,
    /// Stands behind `events`: fold them, and decide again with this token, without reading.
    /// None where the condition was narrower than the read: then read again, since the token that was used.
    pub token: Option<Token>,
    /// What finding out cost.
    pub units: Units,
}

fn count(events: usize) -> String {
    match events {
        0 => "the expected state is not there".into(),
        1 => "1 event matches the condition".into(),
        n => format!("{n} events match the condition"),
    }
}

/// Why an input is not acceptable. Always before anything was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Something that must hold at least one thing holds none.
    #[error("an empty {what} is not accepted")]
    Empty {
        /// What is empty.
        what: &'static str,
    },
    /// Longer than its limit.
    #[error("the {what} has {bytes} bytes; at most {limit} are accepted")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// More items than one transaction holds.
    #[error(
        "{items} items in one transaction (tags written, tags checked, lanes, seal, once; in some layouts events too), and at most {limit} fit: use fewer distinct tags, or split it"
    )]
    TooManyItems {
        /// How many it needs.
        items: usize,
        /// How many fit.
        limit: usize,
    },
    /// More events than one commit holds.
    #[error("the append holds {events} events; at most {limit} are accepted in one commit")]
    TooManyEvents {
        /// How many it holds.
        events: usize,
        /// The limit.
        limit: usize,
    },
    /// A name with characters that do not fit its place.
    #[error("the {what} {name:?} is not acceptable: {rule}")]
    BadName {
        /// What kind of name.
        what: &'static str,
        /// The name.
        name: String,
        /// What is accepted.
        rule: &'static str,
    },
    /// It cannot be read.
    #[error("the {what} is malformed: {why}")]
    Malformed {
        /// What cannot be read.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// It belongs to another layout, namespace, incarnation or query.
    #[error("the {what} belongs to {of}, not to {here}")]
    Foreign {
        /// A token, checkpoint or base.
        what: &'static str,
        /// Whose it is.
        of: String,
        /// Where it was used.
        here: String,
    },
    /// An item of the condition that no tag of the token holds.
    #[error("the token holds no tag of the condition's item {item}: read with a query that covers it, and use that token")]
    NotHeld {
        /// The item, as JSON.
        item: String,
    },
    /// The layout, or its mode, cannot do this.
    #[error("{what} is not supported here: {remedy}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to do instead.
        remedy: String,
    },
    /// The URL of a store cannot be understood.
    #[error("the store URL is not acceptable: {why}")]
    Url {
        /// Why, and what is.
        why: String,
    },
    /// What is asked for differs from what the store was created with.
    #[error("{what} is {given} here, but the store was created with {stored}: leave it out, or copy into a new namespace")]
    Differs {
        /// Which setting.
        what: &'static str,
        /// What was asked for.
        given: String,
        /// What is stored.
        stored: String,
    },
    /// A commit id was used before, for other events.
    #[error("commit {commit} was recorded before with other events: use a new id for new events")]
    Reused {
        /// The id.
        commit: CommitId,
    },
    /// Written by a later release.
    #[error("the namespace has format {found}, and this release reads up to {known}: use a later release")]
    Newer {
        /// The stored number.
        found: u64,
        /// Ours.
        known: u64,
    },
    /// This machine's clock is too far from the service's.
    #[error("this machine's clock is {off:?} off DynamoDB's, and at most {limit:?} is accepted for stamping events: set the clock")]
    Clock {
        /// How far.
        off: Duration,
        /// The limit.
        limit: Duration,
    },
}

/// The store cannot be reached or used. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
#[error("{reason}: {message}{}", if *.reason == Reason::Late { "" } else { "; nothing was recorded" })]
pub struct Unavailable {
    /// What kind of trouble.
    pub reason: Reason,
    /// What the service or the connection said.
    pub message: String,
}

/// Who must act on [`Unavailable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Too many requests for the capacity; later it will work.
    #[error("throttled")]
    Throttled,
    /// No answer, or a failure of the service.
    #[error("unreachable")]
    Unreachable,
    /// Credentials or rights are missing.
    #[error("denied")]
    Denied,
    /// A table, or the namespace in it, does not exist.
    #[error("missing")]
    Missing,
    /// A table is there, but not as the layout needs it.
    #[error("differing table")]
    Differs,
    /// The service refused the request as such.
    #[error("rejected by the service")]
    Rejected,
    /// What was waited for had not come by the deadline.
    #[error("late")]
    Late,
}

/// An append whose outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[error("in doubt: whether commit {commit} was recorded is unknown ({message}); append again with the same commit id, from the base")]
pub struct InDoubt {
    /// The commit.
    pub commit: CommitId,
    /// Where its first try began.
    pub base: Base,
    /// What happened last.
    pub message: String,
}

/// What is stored cannot be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt {
    /// The layout.
    pub layout: &'static str,
    /// Item and attribute, never the body.
    pub what: String,
}

impl Error {
    /// A fault that an operator must look into.
    pub fn corrupt(layout: &'static str, what: impl Into<String>) -> Self {
        Error::Corrupt(Box::new(Corrupt { layout, what: what.into() }))
    }
    /// The store cannot be used.
    pub fn unavailable(reason: Reason, message: impl Into<String>) -> Self {
        Error::Unavailable(Box::new(Unavailable { reason, message: message.into() }))
    }
    /// A condition that did not hold.
    pub fn conflict(events: Vec<Recorded>, token: Option<Token>) -> Self {
        Error::Conflict(Box::new(Conflict { events, token, units: Units::default() }))
    }
    /// What a repeat of an append in doubt tells that did not come to an answer: it is as much in doubt as it was.
    #[cfg(feature = "dynamo")]
    pub(crate) fn of_repeat(self, repeats: Option<(CommitId, Base)>) -> Error {
        match repeats {
            Some((commit, base)) if self.settles_nothing() => self.in_doubt(commit, base),
            _ => self,
        }
    }

    /// For layouts: whether it leaves open what became of a try before it.
    #[cfg(feature = "dynamo")]
    pub(crate) fn settles_nothing(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::Refused(Refused::Clock { .. }) | Error::Corrupt(_))
    }

    /// For layouts: why an append that may have been recorded is in doubt.
    #[cfg(feature = "dynamo")]
    pub(crate) fn in_doubt(self, commit: CommitId, base: Base) -> Error {
        let message = match self {
            Error::Unavailable(unavailable) => format!("{}: {}", unavailable.reason, unavailable.message),
            other => other.to_string(),
        };
        Error::InDoubt(Box::new(InDoubt { commit, base, message }))
    }

    /// For layouts: what a conflict cost.
    #[cfg(feature = "dynamo")]
    pub(crate) fn costing(mut self, units: Units) -> Self {
        if let Error::Conflict(conflict) = &mut self {
            conflict.units = units;
        }
        self
    }
    /// Whether it is a conflict: decide again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }
    /// Whether it is certain that nothing was recorded.
    pub fn recorded_nothing(&self) -> bool {
        !matches!(self, Error::InDoubt(_))
    }
    /// Whether the same call may succeed later, unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Unavailable(u) => matches!(u.reason, Reason::Throttled | Reason::Unreachable | Reason::Late),
            Error::InDoubt(_) => true,
            _ => false,
        }
    }
}
