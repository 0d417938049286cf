//! The auditor: every commit and every confirmed decision against the whole history. Pure, but for reading it.
//!
//! Where positions are numbers, the order is total, and a model must be exactly what stands before its commit. Where they are
//! stamps, only commits that share a tag are ordered by them; a commit that merely checked a tag may carry a higher stamp than one
//! that came after it there. So the question is asked as it is meant: is there *any* order of all commits that keeps every tag's
//! order, and in which every decision stood behind exactly the matches that it knew? There is, unless the demands form a cycle.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{Decision, Evidence, Oracle};
use crate::{EventLog, EventLogExt, Position, Query, ReadOptions, Recorded};

/// All events, by position: read at once where the store can, else by everything that the writers may have used, and merged.
pub(super) async fn history(log: &dyn EventLog, options: &Oracle) -> Result<Vec<Recorded>, String> {
    let mut queries = Vec::new();
    for tag in options.tag_names() {
        queries.push(Query::tag(tag));
    }
    if options.types_only {
        queries.extend(options.type_names().iter().map(|ty| Query::types([ty])));
    }
    if options.all {
        queries.push(Ok(Query::all()));
    }
    let mut merged: BTreeMap<Position, Recorded> = BTreeMap::new();
    let mut places: BTreeMap<Uuid, Position> = BTreeMap::new();
    for query in queries {
        let query = query.map_err(|error| error.to_string())?;
        let events = log.read_all(&query, ReadOptions::default()).await.map_err(|error| format!("reading the history: {error}"))?;
        for event in events {
            if places.insert(event.id, event.position).is_some_and(|place| place != event.position) {
                return Err(format!("event {event:?} stands at two places"));
            }
            if let Some(other) = merged.insert(event.position, event.clone())
                && other.id != event.id
            {
                return Err(format!("events {other:?} and {event:?} stand at one place"));
            }
        }
    }
    Ok(merged.into_values().collect())
}

/// The first thing that is wrong.
pub(super) fn audit(history: &[Recorded], evidence: &Evidence) -> Result<(), String> {
    let places = commits_are_whole(history, evidence)?;
    let decisions = || evidence.commits.iter().enumerate().filter_map(|(n, commit)| Some((n, commit.decision.as_ref()?)));
    for decision in decisions().map(|(_, decision)| decision).chain(&evidence.confirmed) {
        if let Some(id) = decision.model.keys().find(|id| !places.contains_key(id)) {
            return Err(format!("a {} model over {:?} holds event {id}, which is not in the history", decision.how, decision.query));
        }
    }
    if history.iter().all(|event| event.position.as_number().is_some()) {
        for (n, decision) in decisions() {
            exactly_before(history, decision, evidence.commits[n].positions[0])?;
        }
        return evidence.confirmed.iter().try_for_each(|decision| some_instant(history, decision, &places));
    }
    let decisions: Vec<_> = decisions().map(|(n, d)| (Some(n), d)).chain(evidence.confirmed.iter().map(|d| (None, d))).collect();
    some_order(history, evidence.commits.len(), &decisions, &places)
}

/// Every commit once, contiguous, in order, where it was told; and nothing else. Returns the commit of each event.
fn commits_are_whole(history: &[Recorded], evidence: &Evidence) -> Result<BTreeMap<Uuid, usize>, String> {
    let index: BTreeMap<Uuid, usize> = history.iter().enumerate().map(|(at, event)| (event.id, at)).collect();
    let mut places = BTreeMap::new();
    for (n, commit) in evidence.commits.iter().enumerate() {
        let mut previous = None;
        for (id, position) in commit.events.iter().zip(&commit.positions) {
            let Some(at) = index.get(id) else { return Err(format!("event {id} at {position} was acknowledged and is lost")) };
            if history[*at].position != *position {
                return Err(format!("event {id} was acknowledged at {position} and stands at {}", history[*at].position));
            }
            if previous.is_some_and(|previous| previous + 1 != *at) {
                return Err(format!("the commit of event {id} at {position} does not stand together, in order"));
            }
            previous = Some(*at);
            if places.insert(*id, n).is_some() {
                return Err(format!("event {id} was acknowledged twice"));
            }
        }
        if commit.events.len() != commit.positions.len() {
            return Err(format!("a commit of {} events was told {} positions", commit.events.len(), commit.positions.len()));
        }
    }
    match history.iter().find(|event| !places.contains_key(&event.id)) {
        Some(event) => Err(format!("{event:?} is in the history, but its append was not acknowledged")),
        None => Ok(places),
    }
}

fn exactly_before(history: &[Recorded], decision: &Decision, position: Position) -> Result<(), String> {
    let before = history.iter().filter(|event| event.position < position && decision.query.matches(&event.event_type, &event.tags));
    let before: BTreeSet<Uuid> = before.map(|event| event.id).collect();
    let model: BTreeSet<Uuid> = decision.model.keys().copied().collect();
    if model == before {
        return Ok(());
    }
    let (missing, extra): (Vec<_>, Vec<_>) = (before.difference(&model).collect(), model.difference(&before).collect());
    Err(format!(
        "an unsafe commit at {position}: its {} model over {:?} lacks {missing:?} and has {extra:?} too many",
        decision.how, decision.query
    ))
}

/// The model is what matched at some instant: a prefix of the matches, of whole commits.
fn some_instant(history: &[Recorded], decision: &Decision, places: &BTreeMap<Uuid, usize>) -> Result<(), String> {
    let mut matches = history.iter().filter(|event| decision.query.matches(&event.event_type, &event.tags)).peekable();
    let mut last = None;
    while let Some(event) = matches.next_if(|event| decision.model.contains_key(&event.id)) {
        last = places.get(&event.id);
    }
    let torn = matches.peek().is_some_and(|next| last.is_some() && places.get(&next.id) == last);
    match matches.find(|event| decision.model.contains_key(&event.id)) {
        Some(event) => Err(format!("a confirmed {} model over {:?} has {event:?} and lacks one before it", decision.how, decision.query)),
        None if torn => Err(format!("a confirmed {} model over {:?} holds part of a commit", decision.how, decision.query)),
        None => Ok(()),
    }
}

/// Whether any order of commits and confirmed decisions meets every demand.
fn some_order(
    history: &[Recorded],
    commits: usize,
    decisions: &[(Option<usize>, &Decision)],
    places: &BTreeMap<Uuid, usize>,
) -> Result<(), String> {
    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); commits + decisions.len()];
    let mut demand = |first: usize, then: usize| {
        if first != then {
            after[first].insert(then);
        }
    };
    let mut last_on = BTreeMap::new();
    for event in history {
        for tag in &event.tags {
            if let Some(before) = last_on.insert(tag, places[&event.id]) {
                demand(before, places[&event.id]);
            }
        }
    }
    for (n, (commit, decision)) in decisions.iter().enumerate() {
        let node = commit.unwrap_or(commits + n);
        for event in history.iter().filter(|event| decision.query.matches(&event.event_type, &event.tags)) {
            match decision.model.contains_key(&event.id) {
                true => demand(places[&event.id], node),
                false => demand(node, places[&event.id]),
            }
        }
    }
    let mut waits = vec![0_usize; after.len()];
    after.iter().flatten().for_each(|then| waits[*then] += 1);
    let mut ready: Vec<usize> = (0..after.len()).filter(|node| waits[*node] == 0).collect();
    let mut ordered = 0;
    while let Some(node) = ready.pop() {
        ordered += 1;
        for then in &after[node] {
            waits[*then] -= 1;
            if waits[*then] == 0 {
                ready.push(*then);
            }
        }
    }
    if ordered == after.len() {
        return Ok(());
    }
    let caught = decisions.iter().enumerate().find(|(n, (commit, _))| waits[commit.unwrap_or(commits + n)] > 0);
    let told = caught.map(|(_, (_, decision))| format!("a {} decision over {:?}", decision.how, decision.query));
    Err(format!(
        "no order of commits explains what was decided: {} of {} are in a cycle, among them {}",
        after.len() - ordered,
        after.len(),
        told.unwrap_or_else(|| "only commits".into())
    ))
}
