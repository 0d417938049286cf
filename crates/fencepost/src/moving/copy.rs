//! Copying one store into another: what will be lost, said beforehand; the copy itself, from where an earlier one stopped; the comparison.
//!
//! How far a copy has come is a checkpoint of the destination under a name of the copy's, moved by compare-and-set, so that a second copy at
//! the same time is noticed. It is written before the first event: a destination that holds events and no such mark holds somebody else's.

use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::compare::{Compared, Others, UpTo, compare_up_to};
use super::source::{Group, Place, grouped, same_commit};
use super::write::{Writer, Written, tags_of_one};
use super::{IN_FLIGHT, Party};
use crate::error::{Refused, Result};
use crate::event::{Event, Metadata, Recorded, StreamName};
use crate::position::Checkpoint;
use crate::query::Query;
use crate::state::Revision;

/// The place is saved after so many commits: what a crash repeats, and repeats are harmless.
const SAVED_AFTER: u64 = 4 * IN_FLIGHT as u64;
const SEALED_BY: &str = "moving";

/// A copy of all events of one store into another.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencepost::Result<()> {
/// use fencepost::moving::Copy;
/// let (from, to) = (fencepost::open("memory:").await?, fencepost::open("memory:?feed=lanes-8").await?);
/// let copy = Copy::new(&from, &to, "orders-to-lanes");
/// for loss in copy.plan().await?.losses {
///     eprintln!("{}: {}", loss.what, loss.why);
/// }
/// let copied = copy.run(&|events| eprintln!("{events} copied")).await?;
/// assert_eq!(copied.events, 0);
/// assert!(copy.compare(&|_| {}).await?.is_equal());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
#[derive(Debug)]
pub struct Copy {
    from: Party,
    to: Party,
    name: String,
    others: Others,
}

/// What a copy does not bring over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// What is not carried, in a word or two.
    pub what: &'static str,
    /// What that means.
    pub why: String,
}

/// What is known before the first write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// What the destination cannot hold, or no copy carries.
    pub losses: Vec<Loss>,
    /// Events that an earlier run of the same copy brought over; none, if there was none.
    pub resumes_after: Option<u64>,
}

/// Events that the destination has no place for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Misfits {
    /// Events that were looked at.
    pub looked_at: u64,
    /// Those that do not fit.
    pub events: u64,
    /// Why, each reason once, a few of them.
    pub why: Vec<String>,
}

/// Reasons that are told.
const REASONS: usize = 20;

/// What a copy did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Copied {
    /// Events of this run, repeats of an interrupted one among them.
    pub events: u64,
    /// Their commits.
    pub commits: u64,
    /// Commits that were too large for one, and came over in pieces.
    pub split: u64,
    /// Events of all runs.
    pub total: u64,
}

/// How far a copy has come.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Mark {
    place: Option<Place>,
    events: u64,
}

impl Copy {
    /// From one into the other. The name tells copies into one destination apart, and finds this one again: `[A-Za-z0-9._-]{1,57}`.
    pub fn new(from: impl Into<Party>, to: impl Into<Party>, name: &str) -> Self {
        Self { from: from.into(), to: to.into(), name: format!("moving.{name}"), others: Others::Differ }
    }

    /// Also into a store that holds other events already.
    pub fn into_existing(mut self) -> Self {
        self.others = Others::Allowed;
        self
    }

    /// What will be lost, and whether it can be at all. Writes nothing.
    pub async fn plan(&self) -> Result<Plan> {
        drop(self.from.events(Query::all(), None)?);
        let target = self.to.writable()?;
        let mark = self.load().await?;
        let alone = mark.is_none() && self.others == Others::Differ;
        if alone && self.to.capabilities.untagged_reads && target.first(None).await?.is_some() {
            let what = "copying into a store that holds other events".into();
            let remedy = "choose an empty one, or say that the two shall mix; a copy goes on only under the name it began with".into();
            return Err(Refused::Unsupported { what, remedy }.into());
        }
        Ok(Plan { losses: losses(&self.from, &self.to), resumes_after: mark.map(|(mark, _)| mark.events) })
    }

    /// Which events of those that are not copied yet the destination has no place for: where it has streams only, those whose one tag is not
    /// a name that a stream can have there, or that have none or several. A copy would stop at the first. Reads all of them, writes nothing.
    /// `progress` hears the number of events looked at so far.
    pub async fn misfits(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Misfits> {
        let mut misfits = Misfits::default();
        if self.to.log.is_some() {
            return Ok(misfits);
        }
        let place = self.load().await?.and_then(|(mark, _)| mark.place);
        let mut events = self.from.events(Query::all(), place)?;
        while let Some((event, _)) = events.try_next().await? {
            misfits.looked_at += 1;
            progress(misfits.looked_at);
            let most = self.to.capabilities.max_body;
            let why = match (&event.tags[..], event.data.len()) {
                (_, bytes) if bytes > most => Some(format!("a body of {bytes} bytes, where {most} fit")),
                ([tag], _) => StreamName::new(tag).and_then(|stream| (self.to.names)(&stream)).err().map(|error| error.to_string()),
                (tags, _) => Some(format!("an event with {} tags: the one tag of an event is its stream there", tags.len())),
            };
            let Some(why) = why else { continue };
            misfits.events += 1;
            if misfits.why.len() < REASONS && !misfits.why.contains(&why) {
                misfits.why.push(why);
            }
        }
        Ok(misfits)
    }

    /// Copies what is not copied yet. `progress` hears the number of events brought over so far, by all runs.
    pub async fn run(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Copied> {
        self.plan().await?;
        let target = self.to.writable()?;
        let (mut mark, mut revision) = match self.load().await? {
            Some((mark, revision)) => (mark, revision),
            None => (Mark::default(), self.save(&Mark::default(), None).await?),
        };
        let events = self.from.events(Query::all(), mark.place.clone())?;
        let commits = grouped(events, same_commit);
        let commits = commits.map_ok(|Group { events, place }| Group { events: events.into_iter().map(moved).collect(), place });
        let mut writer = Writer::new(target, self.to.capabilities, commits.boxed());
        let (mut done, mut unsaved) = (Written::default(), 0);
        let failed = loop {
            let (written, place) = match writer.next().await {
                Ok(Some(next)) => next,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            done += written;
            unsaved += 1;
            mark = Mark { place: Some(place), events: mark.events + written.events };
            progress(mark.events);
            if unsaved >= SAVED_AFTER {
                revision = self.save(&mark, Some(revision)).await?;
                unsaved = 0;
            }
        };
        let saved = if unsaved > 0 { self.save(&mark, Some(revision)).await.map(|_| ()) } else { Ok(()) };
        failed.map_or(saved, Err)?;
        Ok(Copied { events: done.events, commits: done.commits, split: done.split, total: mark.events })
    }

    /// Holds what was copied against its source, event by event. `progress` hears the number of events looked at so far.
    pub async fn compare(&self, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Compared> {
        let mark = self.load().await?.map_or_else(Mark::default, |(mark, _)| mark);
        let copied = UpTo { events: mark.events, place: mark.place };
        compare_up_to(&self.from, &self.to, Some(copied), self.others, progress).await
    }

    async fn load(&self) -> Result<Option<(Mark, Revision)>> {
        let Some((sealed, revision)) = self.to.checkpoints.load(&self.name).await? else { return Ok(None) };
        Ok(Some((sealed.open(SEALED_BY)?, revision)))
    }

    async fn save(&self, mark: &Mark, expect: Option<Revision>) -> Result<Revision> {
        let sealed = Checkpoint::seal(SEALED_BY, mark);
        if let Some(revision) = self.to.checkpoints.save(&self.name, &sealed, expect).await? {
            return Ok(revision);
        }
        // A request that arrived twice finds its own first arrival.
        match self.to.checkpoints.load(&self.name).await? {
            Some((found, revision)) if found == sealed => Ok(revision),
            _ => {
                let what = format!("a second copy at the same time under the name {}", self.name);
                Err(Refused::Unsupported { what, remedy: "let the other finish; nothing was recorded twice".into() }.into())
            }
        }
    }
}

/// The event as it goes into another store: its id stays, and the time when it happened.
pub(super) fn moved(event: Recorded) -> Event {
    let meta = Metadata { occurred: Some(event.occurred_at()), ..event.meta.clone() };
    event.into_event().meta(meta)
}

/// What the destination cannot hold, and what no copy carries.
fn losses(from: &Party, to: &Party) -> Vec<Loss> {
    let (source, destination) = (&from.capabilities, &to.capabilities);
    let mut losses = Vec::new();
    let mut lost = |what, why: &str| losses.push(Loss { what, why: why.to_owned() });
    lost("recorded_at", "becomes the time of the copy; when an event was recorded at the source stays in its metadata, as `occurred`");
    lost(
        "positions, tokens",
        "belong to the source, and so do the sortable unique ids of Sekiban: the destination has its own, and they are read from it anew",
    );
    lost("commit ids", "become new ones: a command of before the copy, repeated by its key, is not recognised after it");
    lost("what is beside the log", "snapshots, folded states, checkpoints of consumers are not copied: they are folded and read anew");
    if !destination.counted_positions {
        lost(
            "total order",
            "is kept within each tag only: commits on other tags go to the destination side by side, and take their places there as they come",
        );
    }
    if from.feed.is_none() && !source.counted_positions {
        lost("what comes meanwhile", "may be missed: without a feed the source is read by positions, and late ones may come before");
    }
    if from.indexed {
        lost("what the index lacks", "is not copied: the source is read by its index. Run `fencepost index run --once` on it first");
    }
    if tags_of_one(destination) < source.max_tags {
        let why = format!(
            "with more than {} distinct tags are split, and no longer all or nothing; one event may carry {}",
            tags_of_one(destination),
            destination.max_tags.saturating_sub(1).max(1)
        );
        lost("commits", &why);
    }
    if source.boundaries && !destination.boundaries {
        lost("boundaries", "over several tags are not held by the destination: it has streams only");
    }
    if source.untagged_conditions && !destination.untagged_conditions {
        lost("conditions without a tag", "are not held by the destination, but for types that it indexes");
    }
    if source.feed && !destination.feed {
        lost("the feed", "is not there at the destination");
    }
    if !to.is_readable() {
        lost(
            "the comparison",
            "is by the tags of the source, and of events without a tag by the ids of their commits: the destination cannot be read as a whole. \
             What else it has is told on those tags only",
        );
    }
    losses
}
