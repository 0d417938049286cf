//! What only the destination has, where it cannot be read as a whole: the series that were read are held against how many of their events the
//! source brought. Where one has more, its ids tell which. What is on tags that the source does not have is not seen.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::TryStreamExt;
use uuid::Uuid;

use super::Party;
use super::known::Cover;
use super::target::Target;
use crate::error::Result;
use crate::event::{Recorded, Tag};
use crate::query::Query;

/// Tags of the source that are counted, some 30 bytes each. Of more than these the first are.
const COUNTED: usize = 1_000_000;
/// Series whose length is kept.
const SERIES: usize = 200_000;

/// How long the series are that were read, and how many events of the source are there on each.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// By a hash: a collision hides an event at worst, and invents none.
    met: HashMap<u64, u64>,
    read: HashMap<Cover, u64>,
}

impl Lengths {
    /// An event of the source is there, with these tags; it was found on a series of this length.
    pub(super) fn met(&mut self, tags: &[Tag], series: &Cover, length: u64) {
        for cover in tags.iter().map(std::slice::from_ref).chain([&[][..]]) {
            let room = self.met.len() < COUNTED;
            match self.met.get_mut(&hash(cover)) {
                Some(count) => *count += 1,
                None if room => drop(self.met.insert(hash(cover), 1)),
                None => {}
            }
        }
        // Of what carries several tags it is not counted how many do.
        if series.len() <= 1 && (self.read.len() < SERIES || self.read.contains_key(series)) {
            self.read.insert(series.clone(), length);
        }
    }

    /// The ids of events that the source does not have; none where there are more to look at than this.
    pub(super) async fn others(&self, source: &Party, target: &Target, most: usize) -> Result<Option<Vec<Uuid>>> {
        let longer = |(cover, length): &(&Cover, &u64)| self.met.get(&hash(cover)).is_some_and(|met| *length > met);
        let mut there = HashMap::<Uuid, u64>::new();
        for (cover, _) in self.read.iter().filter(longer) {
            let mut on_series = HashMap::<Uuid, u64>::new();
            // Whatever is beyond the limit is not kept.
            let each = |event: Recorded| {
                if on_series.len() <= most {
                    *on_series.entry(event.id).or_default() += 1;
                }
            };
            target.each(cover, each).await?;
            for (id, times) in on_series {
                let known = there.entry(id).or_default();
                *known = times.max(*known);
            }
            if there.len() > most {
                return Ok(None);
            }
        }
        if there.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut events = source.events(Query::all(), None)?;
        while let Some((event, _)) = events.try_next().await? {
            if let Some(times) = there.get_mut(&event.id) {
                *times = times.saturating_sub(1);
            }
        }
        let mut others: Vec<Uuid> = there.into_iter().filter(|(_, times)| *times > 0).map(|(id, _)| id).collect();
        others.sort_unstable();
        Ok(Some(others))
    }
}

fn hash(cover: &[Tag]) -> u64 {
    let mut hasher = DefaultHasher::new();
    cover.hash(&mut hasher);
    hasher.finish()
}
