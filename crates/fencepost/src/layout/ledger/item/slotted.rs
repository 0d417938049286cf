//! A slot as far as the index must know it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Attributes, CHUNKS, COMMIT, CommitId, Error, EventType, HASH, HOME, Item, LANE, Malformed, RANGE, STAMP, Series, TYPE, WRITTEN,
    commit_of, corrupt, events, listed_types, outcome, run_of, wrong,
};
use crate::side::notice::split;

/// What the index must know of a slot.
#[derive(Debug)]
pub(crate) struct Slotted {
    pub(crate) commit: CommitId,
    pub(crate) stamp: u64,
    pub(crate) version: u64,
    /// In the home: every slot of the commit.
    pub(crate) written: Option<BTreeMap<Series, u64>>,
    /// None: any.
    pub(crate) types: Option<BTreeSet<EventType>>,
    pub(crate) events: u32,
}

/// What the index must know of a slot; none for one of a namespace with lanes.
pub(crate) fn slotted(item: &Item) -> Result<Option<Slotted>, Error> {
    let decode = || {
        if item.contains_key(LANE) {
            return Ok(None);
        }
        let here = events(item)?;
        let types = match &here {
            Some(events) => {
                let named = events.iter().filter_map(|event| event.get(TYPE)?.as_s().ok());
                Some(named.map(|t| EventType::new(t).map_err(|_| wrong(TYPE, "a type"))).collect::<Result<_, _>>()?)
            }
            None => listed_types(item)?,
        };
        let events = match (&here, item.maybe_list(CHUNKS)?) {
            (Some(events), _) => events.len() as u64,
            (None, Some(list)) => run_of(CHUNKS, list)?.1,
            (None, None) => 0,
        };
        Ok(Some(Slotted {
            commit: commit_of(item).ok_or_else(|| wrong(COMMIT, "a commit id"))?,
            stamp: item.number(STAMP)?,
            version: item.number(RANGE)?,
            written: match (item.maybe_map(WRITTEN)?, split(item.text(HASH)?)) {
                (Some(map), _) => Some(outcome(map, item)?.written),
                (None, Some((_, series))) if !item.contains_key(HOME) => Some(BTreeMap::from([(series, item.number(RANGE)?)])),
                (None, _) => None,
            },
            types,
            events: u32::try_from(events).unwrap_or(u32::MAX),
        }))
    };
    decode().map_err(|malformed: Malformed| corrupt(item, &malformed))
}
