//! Whose an event is that lies where one of ours was tried: its time tells. Pure.
//!
//! An event without a time of the caller's has the microsecond of its append and, behind it, three digits of the commit's id: a time of which no
//! other append knows, in an attribute that the peer's items have too, and no longer than the peer's. A time that the caller gave may be
//! another's as well: then the commit's first event bears its id.

use super::item::Row;
use super::plan::Commit;
use crate::error::{Refused, Result};
use crate::event::{CommitId, Event};

/// What an event in the journal is to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Of this commit.
    Ours,
    /// Of another.
    Others,
    /// It says the same at the same time, and the time is not ours.
    Untold,
}

/// The commit's own time, in nanoseconds since 1970.
pub(super) fn drawn(stamp: u64, commit: CommitId) -> Result<i64> {
    let digits = i128::from(commit.0.as_u64_pair().1 % 1_000);
    nanos(i128::from(stamp) * 1_000 + digits)
}

/// When an event occurred: what its metadata says, else the commit's own time.
pub(super) fn occurred(event: &Event, drawn: i64) -> Result<i64> {
    event.metadata().occurred.map_or(Ok(drawn), |given| nanos(given.as_nanosecond()))
}

fn nanos(nanos: i128) -> Result<i64> {
    i64::try_from(nanos)
        .map_err(|_| Refused::Malformed { what: "time of the event", why: "it lies outside of the years 1677 to 2262".into() }.into())
}

fn is_given(event: &Event) -> bool {
    event.metadata().occurred.is_some()
}

impl Commit<'_> {
    /// Whether only its id would tell its first event: not where an item of its own holds that.
    pub(super) fn needs_mark(&self) -> bool {
        !self.once && self.events.first().is_some_and(is_given)
    }

    /// Whose this event is, where the commit was tried behind this version.
    pub(super) fn whose(&self, behind: u64, row: &Row) -> Whose {
        if let Some(id) = row.commit {
            return if id == self.id { Whose::Ours } else { Whose::Others };
        }
        let index = row.version.checked_sub(behind + 1).and_then(|index| usize::try_from(index).ok());
        let tried = index.and_then(|index| Some((index, self.events.get(index)?, self.occurred.get(index)?)));
        match tried {
            Some((index, event, at)) if row.is_part(index, self.events.len()) && row.says(event, *at) => match index {
                _ if !is_given(event) => Whose::Ours,
                0 if self.needs_mark() && !self.bare => Whose::Others,
                _ => Whose::Untold,
            },
            _ => Whose::Others,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_commits_own_time_is_in_its_microsecond_and_its_ids_digits() {
        let of = |id: u128| CommitId(uuid::Uuid::from_u128(id));
        assert_eq!([7, 1_007, 1_234].map(|id| drawn(5, of(id)).ok()), [Some(5_007), Some(5_007), Some(5_234)]);
        assert!(drawn(u64::MAX, of(1)).is_err());
        let at = |nanos: i128| Timestamp::from_nanosecond(nanos).ok();
        let event = |occurred| Event::new("A", "").map(|event| event.meta(crate::event::Metadata { occurred, ..Default::default() }));
        assert_eq!(event(None).and_then(|event| occurred(&event, 9)).ok(), Some(9));
        assert_eq!(event(at(77)).and_then(|event| occurred(&event, 9)).ok(), Some(77));
        assert!(event(at(i128::from(i64::MAX) + 1)).and_then(|event| occurred(&event, 9)).is_err());
    }
}
