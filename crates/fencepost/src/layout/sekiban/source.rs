//! The decision read: a tag for each item of the query, everything on them that matches, and the token that guards what was not there.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::item::Stored;
use super::token::{End, Held};
use super::{LAYOUT, Sekiban};
use crate::dynamo::{Freshness, Op};
use crate::error::{Refused, Result};
use crate::event::Tag;
use crate::log::Sourced;
use crate::position::Token;
use crate::query::{Query, QueryItem};

/// What was met behind tags, in order, and the tags moved up.
pub(super) type Met = (Vec<Stored>, BTreeMap<Tag, End>);

impl Sekiban {
    /// One tag for each item, so that every event that matches lies on one of them.
    pub(super) fn covers(&self, query: &Query) -> Result<BTreeSet<Tag>> {
        let mut covers = BTreeSet::new();
        for item in query.items() {
            let Some(tag) = self.cover(item, &covers) else { return Err(untagged()) };
            covers.insert(tag);
        }
        if query.is_all() { Err(untagged()) } else { Ok(covers) }
    }

    /// Any tag of the item suffices, since a matching event carries them all: the rarest known, else one that is read anyway.
    fn cover(&self, item: &QueryItem, chosen: &BTreeSet<Tag>) -> Option<Tag> {
        let known: Option<Vec<(u64, &Tag)>> = item.tags().iter().map(|tag| Some((self.remembered(tag)?.cnt, tag))).collect();
        let rarest = known.and_then(|counts| counts.into_iter().min()).map(|(_, tag)| tag);
        let shared = || item.tags().iter().find(|tag| chosen.contains(*tag));
        rarest.or_else(shared).or_else(|| item.tags().first()).cloned()
    }

    pub(super) fn held(&self, query: &Query, covers: BTreeMap<Tag, End>) -> Held {
        Held { namespace: self.namespace().into(), fingerprint: query.fingerprint(), covers }
    }

    pub(super) async fn source_query(&self, op: &Op, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let known = match since {
            None => self.covers(query)?.into_iter().map(|tag| (tag, End::default())).collect(),
            Some(token) => {
                let held = Held::open(token, self.namespace())?;
                if held.fingerprint != query.fingerprint() {
                    return Err(Refused::Foreign { what: "token", of: "another query".into(), here: "this one".into() }.into());
                }
                held.covers
            }
        };
        let (met, covers) = self.read_covers(op, query, &known).await?;
        let events = met.into_iter().map(|stored| stored.event).collect();
        // Rows of one tag are read as whole commits, up to one head or to what was there above it.
        let one = covers.len() <= 1;
        Ok(Sourced::new(events, self.held(query, covers).seal(), None, op.units()).at_one_instant(one))
    }

    /// What matches behind these tags and is not in the model of one who stands there, in order; and the tags moved up.
    pub(super) async fn read_covers(&self, op: &Op, query: &Query, known: &BTreeMap<Tag, End>) -> Result<Met> {
        let views = known.iter().map(|(tag, end)| self.view(op, tag, end, Freshness::Strong));
        let views: Vec<_> = stream::iter(views.collect::<Vec<_>>()).buffered(self.options().reads).try_collect().await?;
        let mut covers = known.clone();
        let mut rows = Vec::new();
        for (end, (found, head)) in covers.values_mut().zip(views) {
            *end = end.reached(&found, head);
            rows.extend(found);
        }
        rows.sort_by(|a, b| (a.at, &a.event).cmp(&(b.at, &b.event)));
        rows.dedup_by(|a, b| a.event == b.event);
        // Every event is judged by the whole query: only then is a match at or below any tag's end in the model.
        let mut met = self.hydrate(op, &rows, Freshness::Strong).await?;
        met.retain(|stored| query.matches(&stored.event.event_type, &stored.event.tags) && !is_known(stored, known));
        met.sort_by_key(|stored| stored.event.position);
        Ok((met, covers))
    }

    /// The token's tags, having made sure that each item of the condition is held by one of them.
    pub(super) fn holding(&self, query: &Query, held: &Held) -> Result<BTreeMap<Tag, End>> {
        let loose = query.items().iter().find(|item| !item.tags().iter().any(|tag| held.covers.contains_key(tag)));
        if query.is_all() || loose.is_some_and(|item| item.tags().is_empty()) {
            return Err(untagged());
        }
        if let Some(item) = loose {
            return Err(Refused::NotHeld { item: serde_json::to_string(item).unwrap_or_default() }.into());
        }
        Ok(held.covers.clone())
    }

    /// Whether nothing came on any tag of the token, at one instant: the heads did not move between two looks at the rows.
    pub(super) async fn is_unchanged(&self, op: &Op, token: &Token) -> Result<bool> {
        let held = Held::open(token, self.namespace())?;
        let heads = || try_join_all(held.covers.keys().map(|tag| self.head(op, tag, Freshness::Strong)));
        let before = heads().await?;
        let latest = try_join_all(held.covers.keys().map(|tag| self.latest_row(op, tag.as_str(), Freshness::Strong))).await?;
        // The last row that was read may have expired: then an older one is the last.
        let same = held.covers.values().zip(&latest).all(|(end, row)| row.as_ref().is_none_or(|row| end.passed(row)));
        // One tag needs no second look: its last row is read at one instant.
        Ok(same && (held.covers.len() <= 1 || heads().await? == before))
    }
}

/// Whether an event is in the model of one who read so far: on one of its tags it was passed.
pub(super) fn is_known(stored: &Stored, known: &BTreeMap<Tag, End>) -> bool {
    stored.event.tags.iter().any(|tag| known.get(tag).is_some_and(|end| end.covers(stored.at, &stored.event.id)))
}

fn untagged() -> crate::error::Error {
    Refused::Unsupported {
        what: format!("a query without a tag, in layout {LAYOUT}"),
        remedy: "name a tag in every item; all events are read by the feed, or with eventual consistency".into(),
    }
    .into()
}
