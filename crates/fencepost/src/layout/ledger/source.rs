//! The decision read: covers, everything on them that matches, and the token that guards what was not there.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;

use super::Ledger;
use super::item::{self, Slot};
use super::mutation::Mutation;
use super::resolve::Met;
use super::series::{End, Series};
use super::token::Held;
use crate::dynamo::{Freshness, Op, TRANSACTION_ITEMS};
use crate::error::{Refused, Result};
use crate::log::Sourced;
use crate::position::{Position, Token};
use crate::query::{Query, QueryItem};

impl Ledger {
    /// One series for each item, so that every event that matches lies on one of them. Lanes hold what has no tag, and then everything.
    pub(super) fn covers(&self, query: &Query) -> Result<BTreeSet<Series>> {
        let mut covers = BTreeSet::new();
        for item in query.items() {
            match self.cover(item, &covers) {
                Some(series) => covers.extend(series),
                None => return self.lanes_or_refuse(),
            }
        }
        if query.is_all() { self.lanes_or_refuse() } else { Ok(covers) }
    }

    /// Any tag of the item suffices, since a matching event carries them all: the rarest known, else one that is read anyway.
    fn cover(&self, item: &QueryItem, chosen: &BTreeSet<Series>) -> Option<Vec<Series>> {
        let tags: Vec<Series> = item.tags().iter().map(|tag| Series::Tag(tag.clone())).collect();
        let known: Option<Vec<u64>> = tags.iter().map(|series| self.remembered(series).map(|end| end.count)).collect();
        let rarest = known.and_then(|counts| (0..tags.len()).min_by_key(|at| counts[*at]));
        let shared = || tags.iter().position(|series| chosen.contains(series));
        if !tags.is_empty() {
            return Some(vec![tags[rarest.or_else(shared).unwrap_or(0)].clone()]);
        }
        let indexed = item.types().iter().all(|t| self.settings().types.contains(t));
        indexed.then(|| item.types().iter().map(|t| Series::Type(t.clone())).collect())
    }

    fn lanes_or_refuse(&self) -> Result<BTreeSet<Series>> {
        match self.settings().lanes() {
            Some(lanes) => Ok((0..lanes).map(Series::Lane).collect()),
            None => Err(Refused::Unsupported {
                what: "a query without a tag, in streams mode".into(),
                remedy: "name a tag in every item, declare the type as indexed when the namespace is created, or use lanes".into(),
            }
            .into()),
        }
    }

    pub(super) fn open_token(&self, token: &Token) -> Result<Held> {
        Held::open(token, self.namespace(), self.settings().incarnation)
    }

    /// By the fingerprint of the query that was read.
    pub(super) fn held(&self, fingerprint: u64, covers: BTreeMap<Series, End>) -> Held {
        Held { namespace: self.namespace().into(), incarnation: self.settings().incarnation, fingerprint, covers }
    }

    pub(super) async fn source_query(&self, op: &Op, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let known = match since {
            None => self.covers(query)?.into_iter().map(|cover| (cover, End::default())).collect(),
            Some(token) => {
                let held = self.open_token(token)?;
                if held.fingerprint != query.fingerprint() && !self.mutated(Mutation::AnyToken) {
                    return Err(Refused::Foreign { what: "token", of: "another query".into(), here: "this one".into() }.into());
                }
                held.covers
            }
        };
        let (met, covers) = self.read_covers(op, query, &known).await?;
        let head = self.head_of(&covers);
        let events = self.hydrate(op, met).await?;
        // A page of one series is read at one instant, and pages only ever add what came behind.
        let one = covers.len() <= 1;
        Ok(Sourced::new(events, self.held(query.fingerprint(), covers).seal(), head, op.units()).at_one_instant(one))
    }

    /// What matches behind these covers and is not in the model of one who stands there, in order; and the covers moved up.
    async fn read_covers(&self, op: &Op, query: &Query, known: &BTreeMap<Series, End>) -> Result<(Vec<Met>, BTreeMap<Series, End>)> {
        let tails = known.iter().map(|(cover, end)| self.tail(op, cover, end.version, Freshness::Strong));
        let tails = try_join_all(tails).await?;
        let mut covers = known.clone();
        let mut all: Vec<Slot> = Vec::new();
        for ((cover, end), slots) in covers.iter_mut().zip(tails) {
            if let Some(last) = slots.last() {
                *end = last.end();
            }
            if self.mutated(Mutation::JudgedByOwnItems) && !matches!(cover, Series::Lane(_)) {
                let own = Self::items_covered_by(query, cover, known);
                let met = self.judge(op, &slots, &own).await?;
                let commits: BTreeSet<_> = met.iter().map(|m| m.commit).collect();
                all.extend(slots.into_iter().filter(|slot| commits.contains(&slot.commit)));
            } else {
                all.extend(slots);
            }
        }
        // Every slot is judged by the whole query: only then is a match at or below any cover in the model.
        let mut met = self.judge(op, &all, query).await?;
        if !self.mutated(Mutation::CountedAgain) {
            met.retain(|m| !m.known_at(known));
        }
        met.sort_by_key(|m| m.position);
        Ok((met, covers))
    }

    /// Only for the mutation: the items that this cover was chosen for.
    fn items_covered_by(query: &Query, cover: &Series, known: &BTreeMap<Series, End>) -> Query {
        let own = query.items().iter().filter(|item| {
            let first = item.tags().iter().map(|t| Series::Tag(t.clone())).find(|s| known.contains_key(s));
            first.as_ref() == Some(cover) || matches!(cover, Series::Type(t) if item.types().contains(t))
        });
        Query::any(own.cloned()).unwrap_or_else(|_| query.clone())
    }

    /// The newest position, where the read went through the only lane.
    fn head_of(&self, covers: &BTreeMap<Series, End>) -> Option<Position> {
        let end = covers.get(&Series::Lane(0)).filter(|_| self.settings().counted())?;
        (end.count > 0).then(|| Position::number(end.count))
    }

    pub(super) async fn is_unchanged(&self, op: &Op, token: &Token) -> Result<bool> {
        if self.mutated(Mutation::Unconfirmed) {
            return Ok(true);
        }
        let held = self.open_token(token)?;
        let next = |(cover, end): (&Series, &End)| item::key(cover.key(self.namespace()), end.version + 1);
        let keys: Vec<_> = held.covers.iter().map(next).collect();
        match <[_; 1]>::try_from(keys) {
            // One item needs no transaction to be read at one instant.
            Ok([key]) => Ok(self.dynamo().get(op, self.table(), key, Freshness::Strong).await?.is_none()),
            Err(keys) if keys.len() > TRANSACTION_ITEMS => {
                Err(Refused::TooManyItems { items: keys.len(), limit: TRANSACTION_ITEMS }.into())
            }
            Err(keys) => Ok(self.dynamo().get_together(op, self.table(), keys).await?.iter().all(Option::is_none)),
        }
    }
}
