//! C and P: conditions that must fail, and conditions that must hold.

use super::{
    Mark, Must, Subject, assert_conflict, assert_unsupported, both, conflicts, conflicts_with_history, event, labels, passes, put, shows,
    tag, tags, types,
};
use crate::{After, Append, Error, Position, Query, Refused, Token};

/// All: any event fails it; all after the first of three fails by the other two.
pub async fn c01_all_fails_on_any_event(s: Subject) {
    let Some(log) = s.log() else { return };
    let empty = Mark::now(&s, &Query::all()).await;
    put(&log, "Noted", "1", &["a"]).await;
    conflicts_with_history(&s, &Query::all()).await;
    let first = Mark::now(&s, &Query::all()).await;
    put(&log, "Opened", "2", &[]).await;
    put(&log, "Noted", "3", &["b"]).await;
    conflicts(&s, &Query::all(), &first, &["2", "3"]).await;
    conflicts(&s, &Query::all(), &empty, &["1", "2", "3"]).await;
}

/// A type, in history and behind a place.
pub async fn c02_type_fails(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = types(&["Opened"]);
    put(&log, "Opened", "1", &["a"]).await;
    conflicts_with_history(&s, &query).await;
    let first = Mark::now(&s, &query).await;
    put(&log, "Opened", "2", &[]).await;
    conflicts(&s, &query, &first, &["2"]).await;
}

/// A tag, in history and behind a place.
pub async fn c03_tag_fails(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "1", &["a"]).await;
    conflicts_with_history(&s, &tag("a")).await;
    let first = Mark::now(&s, &tag("a")).await;
    put(&log, "Opened", "2", &["b", "a"]).await;
    put(&log, "Opened", "3", &["a"]).await;
    conflicts(&s, &tag("a"), &first, &["2", "3"]).await;
}

/// Type and tag together.
pub async fn c04_type_and_tag_fail(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = both(&["Opened", "Closed"], &["a"]);
    put(&log, "Opened", "1", &["a"]).await;
    conflicts_with_history(&s, &query).await;
    let first = Mark::now(&s, &query).await;
    put(&log, "Noted", "-", &["a"]).await;
    put(&log, "Closed", "2", &["a", "b"]).await;
    conflicts(&s, &query, &first, &["2"]).await;
}

/// An event that carries more tags than the item asks for.
pub async fn c05_superset_of_tags_fails(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = tags(&["a", "b"]);
    let empty = Mark::now(&s, &query).await;
    put(&log, "Noted", "1", &["c", "b", "d", "a"]).await;
    conflicts_with_history(&s, &query).await;
    conflicts(&s, &query, &empty, &["1"]).await;
}

/// Any item suffices.
pub async fn c06_any_item_fails(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = tag("a").or(tags(&["b", "c"])).or(types(&["Moved"]));
    let mut mark = Mark::now(&s, &query).await;
    for (ty, n, on) in [("Noted", "1", &["a"][..]), ("Noted", "2", &["b", "c"]), ("Moved", "3", &[]), ("Moved", "4", &["a", "b", "c"])] {
        put(&log, "Noted", "-", &["b"]).await;
        put(&log, ty, n, on).await;
        conflicts(&s, &query, &mark, &[n]).await;
        conflicts_with_history(&s, &query).await;
        mark = Mark::now(&s, &query).await;
    }
}

/// Without a place, any match in history fails, however old.
pub async fn c07_any_match_in_history_fails(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    for n in 0..5 {
        put(&log, "Noted", &n.to_string(), &["b", "c"]).await;
    }
    for query in [tag("a"), types(&["Opened"]), both(&["Opened"], &["a"]), tag("nothing").or(tag("a"))] {
        conflicts_with_history(&s, &query).await;
    }
}

/// What an unconditional append put there counts.
pub async fn c08_unconditional_append_is_noticed(s: Subject) {
    let Some(log) = s.log() else { return };
    let (on_tag, on_type, on_both) = (tag("a"), types(&["Opened"]), tag("a").or(tag("b")));
    let marks = [Mark::now(&s, &on_tag).await, Mark::now(&s, &on_type).await, Mark::now(&s, &on_both).await];
    log.append(Append::new([event("Noted", "-", &["c"]), event("Opened", "1", &["a"])])).await.must();
    for mark in &marks {
        conflicts(&s, &mark.query, mark, &["1"]).await;
    }
}

/// An event committed between read and append, by another handle too.
pub async fn c09_event_between_read_and_append(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = tag("a");
    for turn in 0..2 {
        let sourced = log.source(&query, None).await.must();
        put(&s.handle_log(turn), "Noted", "between", &["a"]).await;
        let conflict =
            assert_conflict(log.append(Append::new([event("Noted", "mine", &["a"])]).unless(query.clone(), &sourced.token)).await);
        assert_eq!(labels(&conflict.events), ["between"]);
        // The continuation: fold what came, and append with the conflict's token, without reading.
        let token = conflict.token.expect("a continuation");
        log.append(Append::new([event("Noted", "mine", &["a"])]).unless(query.clone(), token)).await.must();
    }
    shows(&s, &query, &["between", "mine", "between", "mine"]).await;
}

/// A match that comes in through another tag of the same item, or through another item.
pub async fn c10_match_through_the_other_tag_conflicts(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = tags(&["a", "b"]);
    put(&log, "Noted", "-", &["a"]).await;
    put(&log, "Noted", "-", &["b"]).await;
    put(&log, "Noted", "-", &["b"]).await;
    let mark = Mark::now(&s, &query).await;
    put(&log, "Noted", "-", &["b"]).await;
    put(&log, "Noted", "-", &["a"]).await;
    passes(&s, &query, &mark).await;
    put(&log, "Noted", "1", &["b", "a"]).await;
    conflicts(&s, &query, &mark, &["1"]).await;
    // Through the cover of another item: the whole query judges every event.
    let query = both(&["Opened"], &["c"]).or(tag("d"));
    let mark = Mark::now(&s, &query).await;
    put(&log, "Noted", "2", &["c", "d"]).await;
    conflicts(&s, &query, &mark, &["2"]).await;
}

/// A place just below the match.
pub async fn c11_after_just_below_the_match(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    let marks = [Mark::now(&s, &tag("a")).await, Mark::now(&s, &types(&["Opened"])).await];
    put(&log, "Opened", "2", &["a"]).await;
    for mark in &marks {
        conflicts(&s, &mark.query, mark, &["2"]).await;
    }
    let at_match = Mark::now(&s, &tag("a")).await;
    passes(&s, &tag("a"), &at_match).await;
}

/// A condition that is narrower than the read is held by the read's token; one that the token says nothing about never slips through.
pub async fn c12_token_of_a_wider_read_holds_a_narrower_condition(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    let wide = Mark::now(&s, &tag("a").or(tag("b"))).await;
    let narrow = both(&["Closed"], &["a"]);
    put(&log, "Opened", "2", &["a", "b"]).await;
    passes(&s, &narrow, &wide).await;
    passes(&s, &both(&["Closed"], &["b"]), &wide).await;
    put(&log, "Closed", "3", &["a"]).await;
    conflicts(&s, &narrow, &wide, &["3"]).await;
    let token = wide.token.expect("tags are always held");
    let conflict = assert_conflict(log.append(Append::new([super::probe()]).unless(narrow, &token)).await);
    assert!(conflict.token.is_none(), "a token for the narrower query would pass over events of the wider read");
    put(&log, "Noted", "4", &["z"]).await;
    let unread = log.append(Append::new([super::probe()]).unless(tag("z"), &token)).await;
    assert!(matches!(unread, Err(Error::Conflict(_) | Error::Refused(Refused::NotHeld { .. }))), "{unread:?}");
}

/// `unchanged` is false once a match came, and true while nothing of the token's tags moved.
pub async fn c13_unchanged_tells_whether_the_boundary_moved(s: Subject) {
    let Some(log) = s.log() else { return };
    for query in [tag("a"), tag("a").or(tag("b")), tags(&["a", "b"])] {
        let sourced = log.source(&query, None).await.must();
        let text: Token = sourced.token.to_string().parse().must();
        put(&log, "Noted", "-", &["elsewhere"]).await;
        assert!(
            log.unchanged(&sourced.token).await.must().value && log.unchanged(&text).await.must().value,
            "another tag moved: {query:?}"
        );
        put(&s.handle_log(1), "Noted", "1", &["b", "a"]).await;
        assert!(!log.unchanged(&sourced.token).await.must().value && !log.unchanged(&text).await.must().value, "a match came: {query:?}");
        let delta = log.source(&query, Some(&sourced.token)).await.must();
        assert!(log.unchanged(&delta.token).await.must().value);
    }
}

/// No match ever, with and without a place, and with one beyond the head.
pub async fn p01_no_match_ever_passes(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "1", &["a"]).await;
    for query in [tag("none"), types(&["Unheard"]), both(&["Unheard"], &["a"]), tags(&["a", "none"])] {
        let mark = Mark::now(&s, &query).await;
        passes(&s, &query, &mark).await;
        if s.holds(&query) {
            log.append(Append::new([super::probe()]).unless(query.clone(), After::Nothing)).await.must();
        }
        let beyond = log.append(Append::new([super::probe()]).unless(query, Position::number(1_000))).await;
        match s.capabilities.counted_positions {
            true => drop(beyond.must()),
            false => assert_unsupported(beyond),
        }
    }
}

/// Matches below the place do not count.
pub async fn p02_match_below_the_place_passes(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    put(&log, "Noted", "-", &["b"]).await;
    for query in [tag("a"), types(&["Opened"]), both(&["Opened"], &["a"])] {
        let mark = Mark::now(&s, &query).await;
        passes(&s, &query, &mark).await;
    }
}

/// Nor does a match exactly at the place.
pub async fn p03_match_at_the_place_passes(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in ["1", "2"] {
        put(&log, "Opened", n, &["a"]).await;
        let query = if n == "1" { tag("a") } else { types(&["Opened"]) };
        let mark = Mark::now(&s, &query).await;
        passes(&s, &query, &mark).await;
    }
    let all = Mark::now(&s, &Query::all()).await;
    if let (true, Some(token)) = (s.holds(&Query::all()), all.token) {
        let committed = log.append(Append::new([super::probe()]).unless(Query::all(), token)).await.must();
        log.append(Append::new([super::probe()]).unless(Query::all(), committed.token)).await.must();
    }
}

/// Another tag, another type, fewer tags than the item asks for.
pub async fn p04_near_misses_pass(s: Subject) {
    let Some(log) = s.log() else { return };
    let queries = [tag("a:1"), tags(&["b", "c"]), both(&["Opened"], &["d"]), types(&["Closed"])];
    let mut marks = Vec::new();
    for query in &queries {
        marks.push(Mark::now(&s, query).await);
    }
    for (ty, on) in [("Noted", "a:11"), ("Noted", "a:"), ("Noted", "b"), ("Noted", "c"), ("Noted", "d"), ("Opened", "e"), ("Moved", "d")] {
        put(&log, ty, "-", &[on]).await;
    }
    for mark in &marks {
        passes(&s, &mark.query, mark).await;
    }
}

/// A condition is held against what is stored, not against its own batch.
pub async fn p05_own_batch_does_not_count(s: Subject) {
    let Some(log) = s.log() else { return };
    for query in [tag("a"), types(&["Opened"]), tags(&["a", "b"])] {
        let mark = Mark::now(&s, &query).await;
        for after in mark.afters().into_iter().take(1) {
            let batch = ["1", "2"].map(|n| event("Opened", n, &["a", "b"]));
            log.append(Append::new(batch).unless(query.clone(), after)).await.must();
        }
    }
    let fresh = ["1", "2"].map(|n| event("Noted", n, &["fresh"]));
    log.append(Append::new(fresh).unless(tag("fresh"), After::Nothing)).await.must();
}

/// A boundary that moved elsewhere does not matter.
pub async fn p06_another_boundary_moved(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "1", &["a"]).await;
    let mark = Mark::now(&s, &tag("a")).await;
    for n in 0..5 {
        put(&log, "Noted", &n.to_string(), &["b"]).await;
    }
    passes(&s, &tag("a"), &mark).await;
    // Events of the same tag that the condition does not ask for are looked at and left out: no false conflict.
    let opened = both(&["Opened"], &["a"]);
    let mark = Mark::now(&s, &opened).await;
    for n in 0..5 {
        put(&log, "Noted", &n.to_string(), &["a"]).await;
    }
    passes(&s, &opened, &mark).await;
}

/// The token of a read that matched nothing guards exactly that nothing.
pub async fn p07_token_of_an_empty_read(s: Subject) {
    let Some(log) = s.log() else { return };
    for (query, name) in [(tag("a"), "a"), (both(&["Opened"], &["b"]), "b"), (tags(&["c", "d"]), "c")] {
        let token = log.source(&query, None).await.must().token;
        put(&log, "Noted", "-", &["elsewhere"]).await;
        let event = || event("Opened", "1", &[name, "d"]);
        log.append(Append::new([event()]).unless(query.clone(), &token)).await.must();
        assert_conflict(log.append(Append::new([event()]).unless(query, &token)).await);
    }
}

/// On types only, when another type moved; on tags only, when another tag did.
pub async fn p08_types_only_and_tags_only(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    let (on_type, on_tag) = (types(&["Opened"]), tag("a"));
    let marks = [Mark::now(&s, &on_type).await, Mark::now(&s, &on_tag).await];
    put(&log, "Closed", "-", &["b"]).await;
    put(&log, "Noted", "-", &[]).await;
    for mark in &marks {
        passes(&s, &mark.query, mark).await;
    }
}

/// The same append with the same place again: fails by its own events, unless its token was moved up.
pub async fn p09_repeat_fails_by_own_events(s: Subject) {
    let Some(log) = s.log() else { return };
    for (turn, query) in [tag("a"), types(&["Moved"]), tags(&["a", "b"])].into_iter().enumerate() {
        let mark = Mark::now(&s, &query).await;
        if !s.holds(&query) {
            passes(&s, &query, &mark).await;
            continue;
        }
        let mine = || event("Moved", &format!("mine {turn}"), &["a", "b"]);
        let token = mark.token.clone().expect("tags and indexed types are held");
        let committed = log.append(Append::new([mine()]).unless(query.clone(), &token)).await.must();
        conflicts(&s, &query, &mark, &[&format!("mine {turn}")]).await;
        let moved = committed.token.expect("a conditional append hands back its token");
        assert!(log.source(&query, Some(&moved)).await.must().events.is_empty(), "the token stands behind its own events");
        log.append(Append::new([mine()]).unless(query, moved)).await.must();
    }
    let token = log.append(Append::new([event("Noted", "1", &["a"])])).await.must().token;
    assert!(token.is_none(), "an unconditional append has read nothing, so its token would guard nothing");
}
