//! Where series end, as far as this process knows: a hint, since a put that is too low fails and tells. Bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::series::{End, Series};

const SHARDS: usize = 16;
/// Series remembered in all; a shard that is full forgets what it knew and begins again.
const REMEMBERED: usize = 128 * 1024;

// A cache of the field's would keep the most used; it cost more than planning the append did (16,000 instructions an insert, by
// callgrind), and forgetting costs half a read unit.
#[derive(Debug)]
pub(super) struct Ends {
    shards: [Mutex<HashMap<Series, End>>; SHARDS],
    hasher: RandomState,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self { shards: Default::default(), hasher: RandomState::new() }
    }

    fn shard(&self, series: &Series) -> MutexGuard<'_, HashMap<Series, End>> {
        let at = self.hasher.hash_one(series) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, series: &Series) -> Option<End> {
        self.shard(series).get(series).copied()
    }

    /// Never back to a lower version.
    pub(super) fn raise(&self, series: &Series, end: End) {
        let mut shard = self.shard(series);
        match shard.get_mut(series) {
            Some(known) if known.version >= end.version => {}
            Some(known) => *known = end,
            None => {
                if shard.len() >= REMEMBERED / SHARDS {
                    shard.clear();
                }
                shard.insert(series.clone(), end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Tag;

    #[test]
    fn an_end_only_rises_and_the_number_remembered_is_bounded() {
        let ends = Ends::new();
        let series = |n: usize| Series::Tag(Tag::new(n.to_string()).expect("tag"));
        let at = |version| End { version, ..End::default() };
        ends.raise(&series(0), at(3));
        ends.raise(&series(0), at(2));
        assert_eq!(ends.get(&series(0)), Some(at(3)));
        (0..2 * REMEMBERED).for_each(|n| ends.raise(&series(n), at(1)));
        let known: usize = ends.shards.iter().map(|shard| shard.lock().expect("lock").len()).sum();
        assert!(known <= REMEMBERED, "{known}");
    }
}
