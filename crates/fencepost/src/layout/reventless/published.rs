//! The algorithm as it is published, whole: its reads, positions and fences, and a token that is one position. **Unsafe**, and kept only so
//! that tests can show what each hazard does; the hazards have numbers in `docs/layouts/reventless.md`.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use super::fence::fence_key;
use super::item::{self, HASH, Marks, RANGE, Stored, TAG, TAG_COMPOSITE, is_event};
use super::place::{Cover, composite, split};
use super::plan::Intent;
use super::settings::Partition;
use super::{Reads, Reventless};
use crate::dynamo::item::{Attributes, text};
use crate::dynamo::{Find, Freshness, Op, Outcome, Range, TRANSACTION_ITEMS, Terms, Write};
use crate::error::{Error, Refused, Result};
use crate::event::Tag;
use crate::log::{After, Append, Committed, Sourced};
use crate::position::Token;
use crate::query::{Query, QueryItem};

const LAYOUT: &str = "reventless-as-published";

/// The position of the last event that was decoded, over all clauses.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    after: Option<String>,
}

/// What an append does to one fence.
#[derive(Debug, Default)]
struct Role {
    /// Types whose position must not be behind what was read.
    consumed: BTreeSet<String>,
    produced: BTreeSet<String>,
    /// Whether a first write is guarded by the types' absence.
    guarded: bool,
    moves: bool,
}

impl Reventless {
    fn clause_freshness(&self) -> Freshness {
        match self.0.options.reads {
            Reads::Strong => Freshness::Strong,
            Reads::Escalate | Reads::Eventual => Freshness::Eventual,
        }
    }

    fn is_cross(&self, tag: &Tag) -> bool {
        tag.as_str().split_once(':').is_some_and(|(key, _)| self.settings().cross.contains(key))
    }

    /// One clause, routed by its shape.
    async fn clause(&self, op: &Op, item: &QueryItem, after: Option<&str>) -> Result<Vec<Stored>> {
        let range = after.map(|after| Range::After(RANGE.into(), text(after)));
        let tags: Vec<&Tag> = item.tags().iter().collect();
        let table = self.table();
        let found = match tags[..] {
            [] => {
                let (mut all, mut start) = (Vec::new(), None);
                loop {
                    let (page, next) = self.dynamo().scan_page(op, table, start).await?;
                    all.extend(page.into_iter().filter(|item| after.is_none_or(|after| item.text(RANGE).is_ok_and(|own| own > after))));
                    match next {
                        Some(key) => start = Some(key),
                        None => break all,
                    }
                }
            }
            [tag] if self.is_cross(tag) => {
                let (key, value) = split(tag)?;
                let name = format!("{TAG}{key}");
                let find =
                    Find { index: Some(name.clone()), range, freshness: Freshness::Eventual, ..Find::new(table, &name, text(value)) };
                let keys: Vec<_> = self.dynamo().items(op, find).try_collect().await?;
                let mut all = Vec::new();
                for key in keys {
                    let key = item::key(key.text(HASH).unwrap_or_default(), key.text(RANGE).unwrap_or_default());
                    // One after the other, eventually consistent, and what is missing is dropped.
                    all.extend(self.dynamo().get(op, table, key, Freshness::Eventual).await?);
                }
                all
            }
            [tag] => {
                let find = Find { range, freshness: self.clause_freshness(), ..Find::new(table, HASH, text(tag.as_str())) };
                self.dynamo().items(op, find).try_collect().await?
            }
            _ => {
                let all = composite(&tags.into_iter().cloned().collect::<Vec<_>>());
                let find = Find {
                    index: Some(TAG_COMPOSITE.into()),
                    range,
                    freshness: Freshness::Eventual,
                    ..Find::new(table, TAG_COMPOSITE, text(all))
                };
                self.dynamo().items(op, find).try_collect().await?
            }
        };
        let events = found.iter().filter(|item| is_event(item)).map(item::stored).collect::<Result<Vec<_>>>()?;
        Ok(events.into_iter().filter(|event| item.matches(&event.recorded.event_type, &event.recorded.tags)).collect())
    }

    pub(super) async fn source_as_published(&self, op: &Op, query: &Query, since: Option<&Token>) -> Result<Sourced> {
        let head: Head = since.map_or(Ok(Head { after: None }), |token| token.open(LAYOUT))?;
        let mut events: Vec<Stored> = Vec::new();
        for item in query.items() {
            // The merge takes a failed sub-stream for one that has ended.
            events.extend(self.clause(op, item, head.after.as_deref()).await.unwrap_or_default());
        }
        events.sort_by_key(|event| event.at);
        events.dedup_by_key(|event| event.at);
        let after = events.last().map(|event| event.at.text()).or(head.after);
        let events = events.into_iter().map(|event| event.recorded).collect();
        Ok(Sourced::new(events, Token::seal(LAYOUT, &Head { after }), None, op.units()).at_one_instant(true))
    }

    pub(super) fn unchanged_as_published(&self, token: &Token) -> Result<bool> {
        token.open::<Head>(LAYOUT).map(|_| true)
    }

    pub(super) async fn append_as_published(&self, op: &Op, append: &Append) -> Result<Committed> {
        let commit = append.commit_id().unwrap_or_else(|| self.dynamo().env().new_commit_id());
        let intent = Intent::new(self.settings(), append.events(), commit, false)?;
        let after = match append.condition().map(|condition| &condition.after) {
            None | Some(After::Nothing) => None,
            Some(After::Token(token)) => token.open::<Head>(LAYOUT)?.after,
            Some(After::Position(_)) => {
                let remedy = "use the token of a read".into();
                return Err(Refused::Unsupported { what: "a bare position as `after` of a condition".into(), remedy }.into());
            }
        };
        // The clock alone, and a counter of the process.
        let clock = u64::try_from(self.dynamo().env().now().as_millisecond()).unwrap_or(0) * 1_000;
        let counted = self.0.stamp.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 1_000;
        let stamp = clock + counted;
        let mut writes = Vec::new();
        for (n, draft) in intent.drafts.iter().enumerate() {
            writes.push(Write::Put { table: self.table().into(), item: draft.item(&intent.at(stamp, n), &Marks::default()) });
        }
        // Fences take the position that the batch begins with.
        let base = crate::dynamo::item::Value::S(super::position::At::of(stamp, commit, 0, 1).text());
        for (cover, role) in self.roles(append, &intent) {
            writes.extend(self.fence_write(&cover, &role, append.condition().is_some(), after.as_deref(), &base));
        }
        if writes.len() > TRANSACTION_ITEMS {
            return Err(Refused::TooManyItems { items: writes.len(), limit: TRANSACTION_ITEMS }.into());
        }
        match self.dynamo().write(op, HASH, writes).await? {
            Outcome::Done => {
                let positions = (0..intent.drafts.len()).map(|n| intent.at(stamp, n).position()).collect();
                let token = Token::seal(LAYOUT, &Head { after: Some(intent.last(stamp).text()) });
                self.side().ring();
                Ok(Committed::new(commit, positions, append.condition().map(|_| token), op.units()))
            }
            Outcome::Failed { .. } => Err(Error::conflict(Vec::new(), None)),
        }
    }

    /// Each distinct tag's role, by the published table.
    fn roles(&self, append: &Append, intent: &Intent) -> BTreeMap<Cover, Role> {
        let mut roles: BTreeMap<Cover, Role> = BTreeMap::new();
        let homes: BTreeSet<Cover> = intent.homes().cloned().collect();
        for event in append.events() {
            let home = self.settings().home(event.tags());
            let carried = event.tags().iter().map(|tag| Cover::Tag(tag.clone())).chain(home.clone());
            for cover in carried.collect::<BTreeSet<_>>() {
                let cross = matches!(&cover, Cover::Tag(tag) if self.is_cross(tag));
                let role = roles.entry(cover.clone()).or_default();
                role.produced.insert(event.event_type().to_string());
                // Without a condition every carried tag is bumped; with one, those that a read of the tag would return it for.
                role.moves |= append.condition().is_none() || cross || Some(&cover) == home.as_ref();
            }
        }
        for item in append.condition().iter().flat_map(|condition| condition.query.items()) {
            let types: BTreeSet<String> = item.types().iter().map(ToString::to_string).collect();
            let many = item.tags().len() > 1;
            let composite = matches!(self.settings().partition, Partition::Composite { .. }) && many;
            let whole = self.settings().home(&item.tags().iter().cloned().collect::<Vec<_>>()).filter(|_| composite);
            let covers: Vec<Cover> = match whole {
                Some(whole) => vec![whole],
                None => item.tags().iter().map(|tag| Cover::Tag(tag.clone())).collect(),
            };
            for cover in covers {
                let cross = matches!(&cover, Cover::Tag(tag) if self.is_cross(tag));
                let role = roles.entry(cover.clone()).or_default();
                role.consumed.extend(types.iter().cloned());
                role.guarded |= homes.contains(&cover) || (cross && !many);
                role.moves |= many && !role.produced.is_empty();
            }
        }
        roles
    }

    fn fence_write(
        &self,
        cover: &Cover,
        role: &Role,
        conditional: bool,
        after: Option<&str>,
        base: &crate::dynamo::item::Value,
    ) -> Option<Write> {
        let mut terms = Terms::default();
        let mut conditions = Vec::new();
        let guarded: BTreeSet<&String> = match (conditional, after) {
            (false, _) => BTreeSet::new(),
            (true, Some(_)) => role.consumed.iter().collect(),
            (true, None) if role.guarded => role.consumed.iter().chain(role.produced.iter().filter(|_| role.moves)).collect(),
            (true, None) => BTreeSet::new(),
        };
        for (n, of) in guarded.into_iter().enumerate() {
            let name = format!("#c{n}");
            terms = terms.name(&name, format!("pos#{of}"));
            conditions.push(match after {
                Some(_) => format!("(attribute_not_exists({name}) OR {name} <= :after)"),
                None => format!("attribute_not_exists({name})"),
            });
        }
        if let Some(after) = after.filter(|_| !conditions.is_empty()) {
            terms = terms.value(":after", text(after));
        }
        terms.condition = conditions.join(" AND ");
        let (table, key) = (self.table().to_owned(), fence_key(cover));
        if !role.moves || role.produced.is_empty() {
            return (!terms.condition.is_empty()).then_some(Write::Check { table, key, condition: terms });
        }
        let mut sets = Vec::new();
        for (n, of) in role.produced.iter().enumerate() {
            terms = terms.name(format!("#p{n}"), format!("pos#{of}"));
            sets.push(format!("#p{n} = :new"));
        }
        let condition = terms.value(":new", base.clone());
        Some(Write::Update { table, key, update: format!("SET {}", sets.join(", ")), condition })
    }
}
