//! One writer: decides on random queries, by fresh reads, deltas and continuations, and says what it saw.

use std::sync::Arc;

use uuid::Uuid;

use super::{Commit, Decision, Model, Oracle, Witness, known, restricted};
use crate::{Append, CommitId, Committed, Conflict, Env, Error, Event, EventLog, EventType, Query, QueryItem, Recorded, Tag, Token};

/// A model that is kept between decisions, as an application's cache keeps it.
#[derive(Clone)]
struct Kept {
    query: Query,
    model: Model,
    token: Token,
    how: &'static str,
}

pub(super) struct Writer {
    handles: Vec<Arc<dyn EventLog>>,
    number: usize,
    options: Oracle,
    witness: Arc<Witness>,
    chance: Env,
    kept: Vec<Kept>,
}

enum Outcome {
    Committed(Committed),
    Conflict(Conflict),
    Unavailable,
}

impl Writer {
    pub(super) fn new(number: usize, handles: Vec<Arc<dyn EventLog>>, options: Oracle, witness: Arc<Witness>) -> Self {
        let chance = Env::seeded(options.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        Self { handles, number, options, witness, chance, kept: Vec::new() }
    }

    pub(super) async fn run(mut self) -> Result<(), String> {
        for _ in 0..self.options.rounds {
            let Some(mut kept) = self.look().await? else { continue };
            self.dawdle().await;
            if self.one_in(4) {
                self.confirm(&kept).await?;
            }
            match self.below(8) {
                0 => drop(self.commit(&kept, None).await?),
                1 => {
                    let narrowed = self.narrowed(&kept.query);
                    let condition = Kept { model: restricted(&kept.model, &narrowed), query: narrowed, how: "narrowed", ..kept.clone() };
                    if let Ok(Some(moved)) = self.commit(&kept, Some(&condition)).await? {
                        self.keep(moved);
                    }
                }
                _ => {
                    // A conflict brings its continuation: decide again on it, without reading.
                    for _ in 0..3 {
                        match self.commit(&kept, Some(&kept)).await? {
                            Ok(Some(moved)) => {
                                self.keep(moved);
                                break;
                            }
                            Ok(None) => break,
                            Err(conflict) => kept = self.fold_conflict(kept, conflict)?,
                        }
                        self.dawdle().await;
                    }
                    self.keep(kept);
                }
            }
        }
        Ok(())
    }

    /// A model to decide on: read afresh, read on from a token, or as it was kept.
    async fn look(&mut self) -> Result<Option<Kept>, String> {
        let log = self.handle();
        if self.kept.is_empty() || self.one_in(3) {
            let query = self.query();
            let before = self.witness.before();
            let sourced = match log.source(&query, None).await {
                Ok(sourced) => sourced,
                Err(Error::Unavailable(_)) => return Ok(None),
                Err(error) => return Err(format!("source {query:?}: {error}")),
            };
            let mut model = Model::new();
            fold(&mut model, &query, &sourced.events, "source")?;
            self.witness.fresh(before, &query, &model, "source")?;
            return Ok(Some(Kept { query, model, token: sourced.token, how: "fresh" }));
        }
        let at = self.below(self.kept.len() as u64);
        let mut kept = self.kept.swap_remove(at as usize);
        if self.one_in(2) {
            kept.token = kept.token.to_string().parse().map_err(|error| format!("a token does not survive as text: {error}"))?;
        }
        if self.one_in(4) {
            return Ok(Some(Kept { how: "stale", ..kept }));
        }
        let before = self.witness.before();
        let delta = match log.source(&kept.query, Some(&kept.token)).await {
            Ok(delta) => delta,
            Err(Error::Unavailable(_)) => return Ok(None),
            Err(error) => return Err(format!("source {:?} since a token ({}): {error}", kept.query, kept.how)),
        };
        fold(&mut kept.model, &kept.query, &delta.events, "delta")?;
        self.witness.fresh(before, &kept.query, &kept.model, "delta")?;
        self.witness.lock().report.deltas += 1;
        Ok(Some(Kept { token: delta.token, how: "delta", ..kept }))
    }

    /// A decision that appends nothing: held only if the store confirms it.
    async fn confirm(&self, kept: &Kept) -> Result<(), String> {
        let before = self.witness.before();
        match self.handle().unchanged(&kept.token).await.map(|answer| answer.value) {
            Ok(true) => {
                self.witness.fresh(before, &kept.query, &kept.model, "a confirmed read of")?;
                let mut evidence = self.witness.lock();
                evidence.report.confirmed += 1;
                evidence.confirmed.push(Decision { query: kept.query.clone(), model: kept.model.clone(), how: kept.how });
                Ok(())
            }
            Ok(false) | Err(Error::Unavailable(_)) => Ok(()),
            Err(error) => Err(format!("unchanged ({}): {error}", kept.how)),
        }
    }

    /// Appends under a condition. Hands back the model moved up to the commit, or the conflict.
    async fn commit(&self, read: &Kept, condition: Option<&Kept>) -> Result<Result<Option<Kept>, Conflict>, String> {
        let events = self.events();
        let mut append = Append::new(events.clone());
        if let Some(condition) = condition {
            append = append.unless(condition.query.clone(), &read.token);
        }
        let repeated = self.one_in(8);
        if repeated {
            append = append.commit(CommitId(self.chance.new_id()));
        }
        let committed = match self.send(append.clone()).await? {
            Outcome::Committed(committed) => committed,
            Outcome::Unavailable => return Ok(Ok(None)),
            Outcome::Conflict(conflict) => {
                let Some(condition) = condition else { return Err("an unconditional append met a conflict".into()) };
                self.witness.lock().report.conflicts += 1;
                judge_conflict(&conflict, condition)?;
                return Ok(Err(conflict));
            }
        };
        let ids: Vec<Uuid> = (0..events.len()).map(|index| committed.commit.event_id(index)).collect();
        let news: Vec<_> = ids.iter().zip(&events).map(|(id, event)| (*id, known_of(event))).collect();
        {
            let mut evidence = self.witness.lock();
            evidence.acknowledged.extend(news.iter().cloned());
            evidence.report.commits += 1;
            evidence.report.events += events.len();
            evidence.report.conditional += usize::from(condition.is_some());
            evidence.report.continued += usize::from(condition.is_some_and(|condition| condition.how == "continued"));
            let decision = condition.map(|c| Decision { query: c.query.clone(), model: c.model.clone(), how: c.how });
            evidence.commits.push(Commit { events: ids, positions: committed.positions.clone(), decision });
        }
        if repeated {
            match self.send(append).await? {
                Outcome::Committed(again) if again.positions == committed.positions => {}
                Outcome::Unavailable => {}
                _ => return Err(format!("a repeat of commit {} did not give the first outcome", committed.commit)),
            }
        }
        let Some(condition) = condition else { return Ok(Ok(None)) };
        let token = committed.token.ok_or("a conditional append handed back no token")?;
        let mut model = condition.model.clone();
        model.extend(news.into_iter().filter(|(_, (ty, tags))| condition.query.matches(ty, tags)));
        Ok(Ok(Some(Kept { query: condition.query.clone(), model, token, how: "committed" })))
    }

    /// Until the outcome is known.
    async fn send(&self, append: Append) -> Result<Outcome, String> {
        let mut append = append;
        for _ in 0..20 {
            match self.handle().append(append.clone()).await {
                Ok(committed) => return Ok(Outcome::Committed(committed)),
                Err(Error::Conflict(conflict)) => return Ok(Outcome::Conflict(*conflict)),
                Err(Error::InDoubt(doubt)) => append = append.again(doubt.commit, doubt.base),
                Err(Error::Unavailable(_)) => {
                    self.witness.lock().report.unavailable += 1;
                    return Ok(Outcome::Unavailable);
                }
                Err(error) => return Err(format!("append: {error}")),
            }
        }
        Err("an append stayed in doubt".into())
    }

    /// The model and token after a conflict with the model's own query.
    fn fold_conflict(&self, mut kept: Kept, conflict: Conflict) -> Result<Kept, String> {
        let Some(token) = conflict.token else {
            return Err(format!("a conflict with the token's own query brought no token ({})", kept.how));
        };
        fold(&mut kept.model, &kept.query, &conflict.events, "conflict")?;
        Ok(Kept { token, how: "continued", ..kept })
    }

    fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
        if self.kept.len() > 4 {
            self.kept.remove(0);
        }
    }

    fn handle(&self) -> Arc<dyn EventLog> {
        // Mostly its own; now and then another, so that tokens travel.
        let at = if self.one_in(5) { self.below(self.handles.len() as u64) as usize } else { self.number };
        self.handles[at % self.handles.len()].clone()
    }

    fn below(&self, bound: u64) -> u64 {
        self.chance.below(bound)
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    async fn dawdle(&self) {
        for _ in 0..self.below(4) {
            tokio::task::yield_now().await;
        }
    }

    fn tag(&self) -> String {
        let at = self.below(self.options.tags.max(1) as u64) as usize;
        self.options.tag_names().nth(at).unwrap_or_else(|| "tag:0".into())
    }

    fn event_type(&self) -> &'static str {
        let names = self.options.type_names();
        names[self.below(names.len() as u64) as usize]
    }

    fn query(&self) -> Query {
        if self.options.all && self.one_in(12) {
            return Query::all();
        }
        let item = || {
            let types: Vec<_> = (0..self.below(3)).map(|_| self.event_type()).collect();
            let least = u64::from(types.is_empty() || !self.options.types_only);
            let tags: Vec<_> = (0..(least + self.below(2)).min(2)).map(|_| self.tag()).collect();
            Query::item(types, tags)
        };
        let first = item();
        let whole = (0..self.below(3)).fold(first, |query, _| Ok(query?.or(item()?)));
        whole.unwrap_or_else(|_| Query::all())
    }

    /// A part of what the query matches: fewer items, or items that ask for more.
    fn narrowed(&self, query: &Query) -> Query {
        let asks_more = |item: &QueryItem| {
            let mut types: Vec<EventType> = item.types().iter().cloned().collect();
            let mut tags: Vec<Tag> = item.tags().iter().cloned().collect();
            match self.below(3) {
                0 if types.is_empty() => types.extend(EventType::new(self.event_type()).ok()),
                0 => types.truncate(1),
                1 => tags.extend(Tag::new(self.tag()).ok()),
                _ => {}
            }
            QueryItem::new(types, tags)
        };
        let some: Vec<_> = query.items().iter().filter(|_| self.one_in(2)).collect();
        let some = if some.is_empty() { query.items().iter().take(1).collect() } else { some };
        Query::any(some.into_iter().filter_map(|item| asks_more(item).ok())).unwrap_or_else(|_| query.clone())
    }

    fn events(&self) -> Vec<Event> {
        let least = u64::from(!self.options.types_only && !self.options.all);
        let count = 1 + self.below(3);
        let one = || {
            let tags: Vec<_> = (0..(least + self.below(3))).map(|_| self.tag()).collect();
            tags.into_iter().try_fold(Event::new(self.event_type(), "{}")?, |event, tag| event.tag(tag))
        };
        (0..count).filter_map(|_| one().ok()).collect()
    }
}

fn known_of(event: &Event) -> super::Known {
    let mut tags = event.tags().to_vec();
    tags.sort_unstable();
    (event.event_type().clone(), tags)
}

/// Adds events to a model: each matches, and none is there already.
fn fold(model: &mut Model, query: &Query, events: &[Recorded], what: &str) -> Result<(), String> {
    for event in events {
        if !query.matches(&event.event_type, &event.tags) {
            return Err(format!("{what} {query:?} gave event {event:?}, which does not match"));
        }
        if model.insert(event.id, known(event)).is_some() {
            return Err(format!("{what} {query:?} gave event {event:?} a second time"));
        }
    }
    match events.is_sorted_by(|a, b| a.position < b.position) {
        true => Ok(()),
        false => Err(format!("{what} {query:?} is out of order")),
    }
}

/// A conflict names at least one event that is new and matches, and none that is not.
fn judge_conflict(conflict: &Conflict, condition: &Kept) -> Result<(), String> {
    if conflict.events.is_empty() {
        return Err(format!("a conflict over {:?} names no event ({})", condition.query, condition.how));
    }
    for event in &conflict.events {
        if !condition.query.matches(&event.event_type, &event.tags) {
            return Err(format!("a conflict over {:?} names {event:?}, which does not match", condition.query));
        }
        if condition.model.contains_key(&event.id) {
            return Err(format!("a false conflict over {:?}: {event:?} was in the model already ({})", condition.query, condition.how));
        }
    }
    Ok(())
}
