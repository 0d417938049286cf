//! The list of large commits: those that are published, until all their rows are there and the index of all events shows them. Whoever reads by an
//! index looks at it first, strongly, and takes what it names from the table, whole, wherever the rows and the index have come to.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use uuid::Uuid;

use super::Sekiban;
use super::item::{self, HASH, RANGE, SORTABLE};
use super::plan::{LAST, TABLE_HASH, TICKS};
use super::suid::SortableId;
use crate::dynamo::item::{Attributes, Item, number, text};
use crate::dynamo::{Find, Op, Range, Terms, Write};
use crate::error::{Error, Reason, Result};
use crate::event::CommitId;

/// When all rows of a commit were there, in microseconds.
const DONE: &str = "done";
/// How long at least an index is not trusted to show all of what was put into rows.
const LEAST_SETTLING: Duration = Duration::from_secs(20);
/// Commits that one read takes off the list.
const AT_ONCE: usize = 4;

/// Where an event of a large commit stands.
pub(super) type Place = (SortableId, Uuid);

/// A large commit on the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) commit: CommitId,
    /// The lowest tick of its events.
    pub(crate) first: u64,
    last: u64,
    /// None: its rows may not all be there.
    done: Option<u64>,
}

impl Listed {
    fn of_item(item: &Item) -> Option<Listed> {
        Some(Listed {
            commit: CommitId(item.text(RANGE).ok()?.parse().ok()?),
            first: item.number(TICKS).ok()?,
            last: item.number(LAST).unwrap_or(u64::MAX),
            done: item.number(DONE).ok(),
        })
    }
    /// Whether its rows may not all be there.
    pub(crate) fn is_open(&self) -> bool {
        self.done.is_none()
    }
    /// Whether any of its events may be asked for by one who reads from here, up or down.
    pub(super) fn reaches(&self, from: Option<SortableId>, reverse: bool) -> bool {
        from.is_none_or(|from| if reverse { self.first <= from.ticks() } else { self.last >= from.ticks() })
    }
}

impl Sekiban {
    /// The list. Strongly read.
    pub(crate) async fn listed(&self, op: &Op) -> Result<Vec<Listed>> {
        let find = Find::new(&self.options().events, HASH, text(self.keys().large_commits()));
        let items: Vec<Item> = self.dynamo().items(op, find).try_collect().await?;
        let listed: Vec<Listed> = items.iter().filter_map(Listed::of_item).collect();
        self.known_places().retain(|commit, _| listed.iter().any(|one| one.commit == *commit));
        Ok(listed)
    }

    /// The list, with every commit on it in rows that may be put there from here.
    pub(super) async fn listed_in_rows(&self, op: &Op) -> Result<Vec<Listed>> {
        let mut listed = self.listed(op).await?;
        for open in listed.iter_mut().filter(|one| one.is_open()) {
            self.finish_listed(open).await?;
        }
        self.shorten(op, &listed).await;
        Ok(listed)
    }

    /// Puts a commit of the list into rows. From a region that may not it stays open, and nothing of it is shown there until it is not.
    pub(crate) async fn finish_listed(&self, open: &mut Listed) -> Result<()> {
        match self.finish(open.commit).await {
            Err(Error::Unavailable(unavailable)) if unavailable.reason == Reason::Late => {}
            finished => {
                finished?;
                open.done = Some(self.micros());
            }
        }
        Ok(())
    }

    /// All its rows are there. It stays on the list: the index does not show them yet.
    pub(super) async fn close(&self, op: &Op, commit: CommitId) -> Result<()> {
        let key = item::key(self.keys().large_commits(), commit.to_string());
        let condition =
            Terms::when("attribute_exists(#h) AND attribute_not_exists(#d)").name("#d", DONE).value(":d", number(self.micros()));
        let close = Write::Update { table: self.options().events.clone(), key, update: "SET #d = :d".into(), condition };
        // Where it fails, somebody else has said so.
        self.dynamo().write(op, TABLE_HASH, vec![close]).await?;
        Ok(())
    }

    /// How long an index may take until it is trusted.
    pub(super) fn settling(&self) -> Duration {
        self.safe_window().max(LEAST_SETTLING) + self.dynamo().clock_off().unwrap_or_default()
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.dynamo().env().now().as_microsecond()).unwrap_or(0)
    }

    /// Takes commits off the list that have been in rows for long, and that the index shows, all of them. What goes wrong here is left to the next.
    pub(crate) async fn shorten(&self, op: &Op, listed: &[Listed]) {
        // Longer than a reader distrusts what is not listed: their clocks may differ.
        let patience = u64::try_from((self.settling() * 2).as_micros()).unwrap_or(u64::MAX);
        let now = self.micros();
        let old = |one: &&Listed| one.done.is_some_and(|done| done.saturating_add(patience) < now);
        for one in listed.iter().filter(old).take(AT_ONCE) {
            if let Err(error) = self.take_off(op, one.commit).await {
                tracing::debug!(commit = %one.commit, %error, "a large commit stays on the list");
                return;
            }
        }
    }

    async fn take_off(&self, op: &Op, commit: CommitId) -> Result<()> {
        self.dynamo().check_clock()?;
        self.may_finish(op, commit).await?;
        if let Some(places) = self.places_of(op, commit).await? {
            let mut missing: BTreeSet<Uuid> = places.iter().map(|(_, id)| *id).collect();
            if let (Some((first, _)), Some((last, _))) = (places.first(), places.last()) {
                for shard in self.shard_keys(op).await? {
                    let range = Range::Between(SORTABLE.into(), text(first.to_string()), text(last.to_string()));
                    let shown: Vec<Item> = self.dynamo().items(op, self.all_of(shard).range(range)).try_collect().await?;
                    for item in &shown {
                        missing.remove(&item::stored(item)?.event.id);
                    }
                }
            }
            // What has expired is in no index.
            let missing: Vec<Uuid> = missing.into_iter().collect();
            if self.stored_events(op, &missing).await?.iter().any(|stored| stored.staged == Some(commit)) {
                return Ok(());
            }
        }
        let key = item::key(self.keys().large_commits(), commit.to_string());
        self.dynamo().delete(op, &self.options().events, key).await
    }

    /// Where the events of a commit stand that is in rows, in order. None: nothing is known of it.
    pub(super) async fn places_of(&self, op: &Op, commit: CommitId) -> Result<Option<Arc<Vec<Place>>>> {
        let known = self.known_places().get(&commit).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(record) = self.record(op, commit).await? else { return Ok(None) };
        let places = Arc::new(self.own_places(op, &record).await?);
        self.known_places().insert(commit, places.clone());
        Ok(Some(places))
    }

    fn known_places(&self) -> MutexGuard<'_, std::collections::HashMap<CommitId, Arc<Vec<Place>>>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
