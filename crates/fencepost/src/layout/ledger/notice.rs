//! Notices: what the record of a slot tells the indexer, without decoding its events. Pure.

use super::item::{Slotted, slotted};
use crate::dynamo::item::{Attributes, Item};
use crate::error::Error;
use crate::side::item::{HASH, RANGE};
use crate::side::notice::{Notice, split};
use crate::side::series::Series;

/// None: not a slot that the index counts. Those are `t/`, `u/` and `y/` of namespaces without lanes.
pub(crate) fn notice(item: &Item) -> Result<Option<Notice>, Error> {
    let key = item.text(HASH).unwrap_or_default();
    let Some((namespace, series)) = split(key) else { return Ok(None) };
    if matches!(series, Series::Lane(_)) || item.number(RANGE).unwrap_or(0) == 0 {
        return Ok(None);
    }
    let Some(Slotted { commit, stamp, version, written, types, events }) = slotted(item)? else { return Ok(None) };
    let slots = written.map(|written| written.iter().map(|(series, v)| (series.key(namespace), *v)).collect());
    let events = if matches!(series, Series::Type(_)) { 0 } else { events };
    Ok(Some(Notice { commit, stamp, series: key.to_owned(), version, span: 1, slots, types, events, place: None }))
}
