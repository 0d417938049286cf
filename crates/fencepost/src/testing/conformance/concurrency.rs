//! K: many at once, through both handles. Every outcome is known beforehand, whatever the order.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::super::oracle::{self, Oracle};
use super::{Must, Subject, assert_unsupported, both, event, labels, race, tag, tags, types};
use crate::{After, Append, CommitId, Committed, Error, EventLog, Query, Result, Token};

const RACERS: usize = 12;

/// How many won; everybody else must have met a conflict.
#[track_caller]
fn winners(outcomes: &[Result<Committed>]) -> usize {
    for outcome in outcomes {
        assert!(matches!(outcome, Ok(_) | Err(Error::Conflict(_))), "neither recorded nor a conflict: {outcome:?}");
    }
    outcomes.iter().filter(|outcome| outcome.is_ok()).count()
}

/// Everybody appends at once, each with the token that it read before; then how many won.
async fn contest(s: &Subject, racers: &[(Query, crate::Event)]) -> usize {
    let mut ready = Vec::new();
    for (turn, (query, event)) in racers.iter().enumerate() {
        let log = s.handle_log(turn);
        let token = log.source(query, None).await.must().token;
        ready.push((log, Append::new([event.clone()]).unless(query.clone(), token)));
    }
    winners(&race(ready.into_iter().map(|(log, append)| async move { log.append(append).await })).await)
}

/// Many on one boundary: exactly one wins, every time.
pub async fn k01_one_boundary_one_winner(s: Subject) {
    let Some(log) = s.log() else { return };
    for round in 0..4 {
        let racers = [0; RACERS].map(|_| (tag("a"), event("Noted", &round.to_string(), &["a"])));
        assert_eq!(contest(&s, &racers).await, 1, "round {round}");
    }
    assert_eq!(labels(&log.source(&tag("a"), None).await.must().events), ["0", "1", "2", "3"]);
}

/// Boundaries that share nothing: everybody wins.
pub async fn k02_disjoint_boundaries_all_win(s: Subject) {
    let Some(_) = s.log() else { return };
    for _ in 0..2 {
        let racers: Vec<_> = (0..RACERS).map(|n| (tag(&format!("own:{n}")), event("Noted", "1", &[&format!("own:{n}")]))).collect();
        assert_eq!(contest(&s, &racers).await, RACERS);
    }
    // The same tag, but each asks for a type of its own: looked at, and no false conflict.
    let racers: Vec<_> = (0..RACERS).map(|n| (both(&[&format!("T{n}")], &["shared"]), event(&format!("T{n}"), "1", &["shared"]))).collect();
    assert_eq!(contest(&s, &racers).await, RACERS);
}

/// One asks by type, the other by tag: one event, so not both.
pub async fn k03_type_against_tag_one_winner(s: Subject) {
    let Some(log) = s.log() else { return };
    if !s.holds(&types(&["Opened"])) {
        return assert_unsupported(log.source(&types(&["Opened"]), None).await);
    }
    for n in 0..6 {
        let name = format!("a:{n}");
        let racers = [types(&["Opened"]), tag(&name)].map(|query| (query, event("Opened", "1", &[&name])));
        assert_eq!(contest(&s, &racers).await, 1, "round {n}");
    }
}

/// Two overlapping conditions on tags, two on types.
pub async fn k04_overlapping_conditions_one_winner(s: Subject) {
    let Some(_) = s.log() else { return };
    for n in 0..4 {
        let (a, b) = (format!("a:{n}"), format!("b:{n}"));
        let racers = [tag(&a), tag(&b)].map(|query| (query, event("Noted", "1", &[&a, &b])));
        assert_eq!(contest(&s, &racers).await, 1, "tags, round {n}");
        if !s.holds(&types(&["Opened", "Moved"])) {
            continue;
        }
        let racers = [types(&["Opened", "Moved"]), types(&["Moved", "Closed"])].map(|query| (query, event("Moved", "1", &[])));
        assert_eq!(contest(&s, &racers).await, 1, "types, round {n}");
    }
}

/// A boundary of two tags: those that carry both race; those that carry one do not disturb them.
pub async fn k05_two_tag_boundary(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in 0..3 {
        let (a, b) = (format!("a:{n}"), format!("b:{n}"));
        let mut racers = vec![(tags(&[&a, &b]), event("Noted", "both", &[&a, &b])); 4];
        for name in [&a, &b] {
            racers.push((tags(&["none", name]), event("Noted", "one", &[name])));
        }
        assert_eq!(contest(&s, &racers).await, 3, "one of four with both, and both with one");
        assert_eq!(labels(&log.source(&tags(&[&a, &b]), None).await.must().events), ["both"]);
    }
}

/// Creation without a token: one.
pub async fn k06_creation_race_one_winner(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in 0..3 {
        let name = format!("user:{n}");
        let outcomes = race((0..RACERS).map(|turn| {
            let (log, name) = (s.handle_log(turn), name.clone());
            async move { log.append(Append::new([event("Claimed", "1", &[&name])]).unless(tag(&name), After::Nothing)).await }
        }))
        .await;
        assert_eq!(winners(&outcomes), 1);
        assert_eq!(log.source(&tag(&name), None).await.must().events.len(), 1);
    }
}

/// Unconditional racers all succeed, each event with a place and an id of its own.
pub async fn k07_unconditional_all_succeed(s: Subject) {
    let Some(log) = s.log() else { return };
    let outcomes = race((0..2 * RACERS).map(|turn| {
        let log = s.handle_log(turn);
        async move { log.append(Append::new([event("Noted", "1", &["a"]), event("Noted", "2", &["a"])])).await.must() }
    }))
    .await;
    let events = log.source(&tag("a"), None).await.must().events;
    assert_eq!(events.len(), 4 * RACERS);
    assert_eq!(events.iter().map(|event| event.id).collect::<BTreeSet<_>>().len(), 4 * RACERS);
    let told: BTreeSet<_> = outcomes.iter().flat_map(|committed| committed.positions.clone()).collect();
    assert_eq!(told, events.iter().map(|event| event.position).collect(), "positions as told, all distinct");
    for pair in events.chunks(2) {
        assert_eq!(labels(pair), ["1", "2"], "commits do not mingle on a tag");
    }
}

/// Two clauses read at different moments: seats on either side, one limit over both, never over it.
pub async fn k08_two_clause_read_skew(s: Subject) {
    let Some(log) = s.log() else { return };
    const SEATS: usize = 12;
    let taken = race((0..8).map(|turn| {
        let log = s.handle_log(turn);
        async move {
            let query = tag("left").or(tag("right"));
            let side = if turn % 4 < 2 { "left" } else { "right" };
            let (mut taken, mut conflicts) = (0, 0);
            loop {
                let sourced = log.source(&query, None).await.must();
                if sourced.events.len() >= SEATS {
                    break taken;
                }
                tokio::task::yield_now().await;
                match log.append(Append::new([event("Seated", "1", &[side])]).unless(query.clone(), sourced.token)).await {
                    Ok(_) => taken += 1,
                    Err(Error::Conflict(_)) => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
                assert!(conflicts <= SEATS, "a conflict that no commit explains");
            }
        }
    }))
    .await;
    assert_eq!(taken.iter().sum::<usize>(), SEATS, "as many as there are seats");
    assert_eq!(log.source(&tag("left").or(tag("right")), None).await.must().events.len(), SEATS);
}

/// Random decisions of many at once, each held against the whole history afterwards.
pub async fn k09_random_queries_against_the_whole_history(s: Subject) {
    let Some(log) = s.log() else { return };
    let all = s.capabilities.untagged_conditions && s.capabilities.untagged_reads;
    let types_only = s.holds(&types(&["Opened"]));
    let options = Oracle { seed: 9, writers: 8, rounds: 6, all, types_only, ..Oracle::default() };
    let report = oracle::run(&[log, s.handle_log(1)], options).await.must();
    assert!(report.conditional > 8 && report.conflicts > 0, "enough was tried: {report:?}");
}

/// A commit of several events is never seen in part by a decision.
pub async fn k10_no_torn_commit_in_a_decision(s: Subject) {
    let Some(log) = s.log() else { return };
    let writer = |turn: usize| {
        let log = s.handle_log(turn);
        async move {
            for _ in 0..12 {
                log.append(Append::new([event("Noted", "l", &["left"]), event("Noted", "r", &["right"]), event("Noted", "l", &["left"])]))
                    .await
                    .must();
            }
            0
        }
    };
    let reader = |turn: usize| {
        let log = s.handle_log(turn);
        async move {
            let mut confirmed = 0;
            for _ in 0..25 {
                let one = log.source(&tag("left"), None).await.must().events.len();
                assert_eq!(one % 2, 0, "one tag never shows part of a commit");
                let query = tag("left").or(tag("right"));
                let both = log.source(&query, None).await.must();
                let (left, right): (Vec<_>, Vec<_>) = both.events.iter().partition(|event| event.tags[0].as_str() == "left");
                assert_eq!(left.len() % 2, 0);
                // Two tags may be read at two moments; `unchanged` says whether it was one.
                if log.unchanged(&both.token).await.must().value {
                    assert_eq!(left.len(), 2 * right.len(), "a confirmed read is whole");
                    confirmed += 1;
                }
            }
            confirmed
        }
    };
    type Task = futures::future::BoxFuture<'static, usize>;
    let tasks: Vec<Task> = vec![Box::pin(writer(0)), Box::pin(writer(1)), Box::pin(reader(0)), Box::pin(reader(1))];
    race(tasks).await;
    let end = log.source(&tag("left").or(tag("right")), None).await.must();
    assert_eq!(end.events.len(), 72);
    assert!(log.unchanged(&end.token).await.must().value);
}

/// The same append delivered many times at once under one commit id is one commit, and all are told the same.
pub async fn k11_duplicate_delivery_is_one_commit(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in 0..3_u128 {
        let name = format!("a:{n}");
        let token: Option<Token> = if n == 1 { None } else { Some(log.source(&tag(&name), None).await.must().token) };
        let outcomes = race((0..8).map(|turn| {
            let (log, name, token) = (s.handle_log(turn), name.clone(), token.clone());
            async move {
                let append = Append::new([event("Noted", "1", &[&name, "shared"]), event("Noted", "2", &[&name])]);
                let append = if n == 2 { append } else { append.unless(tag(&name), token) };
                log.append(append.commit(CommitId(Uuid::from_u128(n + 1)))).await
            }
        }))
        .await;
        let first = outcomes[0].as_ref().map(|committed| committed.positions.clone()).must();
        for outcome in &outcomes {
            assert_eq!(outcome.as_ref().must().positions, first, "everybody is told the first outcome");
        }
        assert_eq!(labels(&log.source(&tag(&name), None).await.must().events), ["1", "2"]);
    }
}

/// Somebody always gets on: nobody conflicts more often than the others commit.
pub async fn k12_conflicts_are_bounded_by_commits(s: Subject) {
    let Some(log) = s.log() else { return };
    const WRITERS: usize = 6;
    const EACH: usize = 4;
    async fn write(log: Arc<dyn EventLog>) {
        let mut conflicts = 0;
        let mut token = log.source(&tag("a"), None).await.must().token;
        for _ in 0..EACH {
            loop {
                match log.append(Append::new([event("Noted", "1", &["a"])]).unless(tag("a"), &token)).await {
                    Ok(committed) => {
                        token = committed.token.expect("a conditional append hands back its token");
                        break;
                    }
                    Err(Error::Conflict(conflict)) => {
                        assert!(!conflict.events.is_empty(), "a conflict names an event that is new");
                        conflicts += 1;
                        assert!(conflicts <= (WRITERS - 1) * EACH, "more conflicts than commits of others");
                        token = conflict.token.expect("a continuation");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    race((0..WRITERS).map(|turn| write(s.handle_log(turn)))).await;
    assert_eq!(log.source(&tag("a"), None).await.must().events.len(), WRITERS * EACH);
}
