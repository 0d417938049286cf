//! The random-query oracle: many writers decide on random queries at once, and an auditor holds every commit against the whole history.
//!
//! It returns what it found instead of panicking, so that a test can assert that a store with a defect *is* caught.

mod audit;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::conformance::INDEXED_TYPES;
use crate::{EventLog, EventType, Position, Query, Recorded, Tag};

/// What to try. The same seed makes the same choices; their interleaving is the runtime's.
#[derive(Debug, Clone)]
pub struct Oracle {
    /// Named in every violation.
    pub seed: u64,
    /// How many write at once.
    pub writers: usize,
    /// How many decisions each makes.
    pub rounds: usize,
    /// How many tags there are: fewer collide more.
    pub tags: usize,
    /// How many types there are, of [`INDEXED_TYPES`].
    pub types: usize,
    /// Queries with items of types only, and events without a tag.
    pub types_only: bool,
    /// Queries of all events.
    pub all: bool,
}

impl Default for Oracle {
    fn default() -> Self {
        Self { seed: 1, writers: 16, rounds: 12, tags: 4, types: 3, types_only: true, all: true }
    }
}

impl Oracle {
    fn tag_names(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.tags).map(|n| format!("tag:{n}"))
    }
    fn type_names(&self) -> &'static [&'static str] {
        &INDEXED_TYPES[..self.types.clamp(1, INDEXED_TYPES.len())]
    }
}

/// What was tried, so that a test can assert that it was enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Commits recorded.
    pub commits: usize,
    /// Of them, those with a condition.
    pub conditional: usize,
    /// Their events.
    pub events: usize,
    /// Conflicts met.
    pub conflicts: usize,
    /// Commits made with the continuation of a conflict, without reading.
    pub continued: usize,
    /// Models read on from a token.
    pub deltas: usize,
    /// Decisions without an append, confirmed.
    pub confirmed: usize,
    /// Appends that the store was not available for.
    pub unavailable: usize,
}

/// Runs the writers, each on one of these handles of the same store, then audits. The error tells what was violated, and the seed.
pub async fn run(subjects: &[Arc<dyn EventLog>], options: Oracle) -> Result<Report, String> {
    let told = |violation: String| format!("seed {}: {violation}", options.seed);
    let Some(first) = subjects.first() else { return Err(told("no subject was given".into())) };
    let witness = Arc::new(Witness::default());
    let tasks: Vec<_> = (0..options.writers)
        .map(|number| tokio::spawn(writer::Writer::new(number, subjects.to_vec(), options.clone(), witness.clone()).run()))
        .collect();
    for task in tasks {
        task.await.map_err(|error| told(format!("a writer panicked: {error}")))?.map_err(told)?;
    }
    let history = audit::history(first.as_ref(), &options).await.map_err(told)?;
    let evidence = std::mem::take(&mut *witness.lock());
    audit::audit(&history, &evidence).map_err(told)?;
    Ok(evidence.report)
}

/// What is known of an event: enough to match it.
type Known = (EventType, Vec<Tag>);
/// The events that a decision was made on, by id.
type Model = BTreeMap<Uuid, Known>;

fn known(event: &Recorded) -> Known {
    (event.event_type.clone(), event.tags.clone())
}

fn restricted(model: &Model, query: &Query) -> Model {
    model.iter().filter(|(_, (ty, tags))| query.matches(ty, tags)).map(|(id, known)| (*id, known.clone())).collect()
}

/// A decision on a model: one that was appended, or one that was confirmed without an append.
#[derive(Debug)]
struct Decision {
    query: Query,
    model: Model,
    how: &'static str,
}

/// One recorded commit.
#[derive(Debug)]
struct Commit {
    events: Vec<Uuid>,
    positions: Vec<Position>,
    /// None: unconditional.
    decision: Option<Decision>,
}

/// What the writers saw.
#[derive(Debug, Default)]
struct Evidence {
    commits: Vec<Commit>,
    confirmed: Vec<Decision>,
    /// Every event whose append was acknowledged, in that order: a strong read that begins later must show it.
    acknowledged: Vec<(Uuid, Known)>,
    report: Report,
}

#[derive(Debug, Default)]
struct Witness(Mutex<Evidence>);

impl Witness {
    fn lock(&self) -> MutexGuard<'_, Evidence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events were acknowledged before now.
    fn before(&self) -> usize {
        self.lock().acknowledged.len()
    }

    /// Every matching event that was acknowledged before a read began is in what it showed.
    fn fresh(&self, before: usize, query: &Query, model: &Model, what: &str) -> Result<(), String> {
        let evidence = self.lock();
        let missed = evidence.acknowledged[..before].iter().find(|(id, (ty, tags))| query.matches(ty, tags) && !model.contains_key(id));
        match missed {
            Some((id, known)) => Err(format!("{what} {query:?} missed event {id} {known:?}, which was acknowledged before it began")),
            None => Ok(()),
        }
    }
}
