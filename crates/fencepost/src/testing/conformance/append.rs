//! A: what an append records, and what it refuses.

use uuid::Uuid;

use super::{Must, Subject, assert_conflict, assert_unsupported, event, labels, put, shows, tag};
use crate::{After, Append, Base, CommitId, Error, Event, EventLogExt, MAX_BODY_BYTES, Position, Query, ReadOptions, Refused, Tag, Token};

/// An append says where its events stand: counted from 1 where the store counts, else rising.
pub async fn a01_positions_rise(s: Subject) {
    let Some(log) = s.log() else { return };
    let mut at = Vec::new();
    for (n, on) in ["a", "b", "a", "a"].into_iter().enumerate() {
        at.extend(log.append(Append::new([event("Noted", &n.to_string(), &[on])])).await.must().positions);
    }
    at.extend(log.append(Append::new([event("Noted", "4", &["b"]), event("Noted", "5", &[])])).await.must().positions);
    if s.capabilities.counted_positions {
        assert_eq!(at, (1..=6).map(Position::number).collect::<Vec<_>>());
    }
    // Across tags that share nothing, stamped positions need not rise.
    assert!(at[0] < at[2] && at[2] < at[3] && at[1] < at[4] && at[4] < at[5], "{at:?}");
    let on_a: Vec<_> = log.source(&tag("a"), None).await.must().events.iter().map(|event| event.position).collect();
    assert_eq!(on_a, [at[0], at[2], at[3]], "a read gives the same positions");
}

/// The events of one commit stand together, in the order given.
pub async fn a02_one_commit_is_one_block_in_order(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "before", &["a"]).await;
    let given = ["1", "2", "3", "4"].map(|n| event("Opened", n, if n == "2" { &["b"] } else { &["a", "b"] }));
    let committed = log.append(Append::new(given)).await.must();
    put(&log, "Noted", "after", &["a"]).await;
    assert_eq!(committed.positions.len(), 4);
    assert!(committed.positions.is_sorted());
    shows(&s, &tag("a"), &["before", "1", "3", "4", "after"]).await;
    shows(&s, &tag("b"), &["1", "2", "3", "4"]).await;
    shows(&s, &Query::all(), &["before", "1", "2", "3", "4", "after"]).await;
    let read = log.source(&tag("b"), None).await.must().events;
    assert_eq!(read.iter().map(|event| event.position).collect::<Vec<_>>(), committed.positions);
    if s.capabilities.counted_positions {
        let numbers: Vec<_> = committed.positions.iter().filter_map(Position::as_number).collect();
        assert_eq!(numbers, [2, 3, 4, 5], "contiguous");
    }
}

/// No events: refused, with a condition and with a commit id too.
pub async fn a03_empty_append_is_refused(s: Subject) {
    let Some(log) = s.log() else { return };
    let id = CommitId(Uuid::from_u128(3));
    for append in [Append::new([]), Append::new([]).unless(tag("a"), After::Nothing), Append::new([]).commit(id)] {
        let outcome = log.append(append).await;
        assert!(matches!(outcome, Err(Error::Refused(Refused::Empty { .. }))), "{outcome:?}");
    }
    // The id was not used up.
    log.append(Append::new([event("Noted", "1", &["a"])]).commit(id)).await.must();
}

/// A rejected append writes none of its events and takes no position.
pub async fn a04_rejected_append_writes_nothing(s: Subject) {
    let Some(log) = s.log() else { return };
    let first = put(&log, "Noted", "1", &["a"]).await;
    let torn = [event("Noted", "x", &["a", "b"]), event("Opened", "y", &["c"]), event("Noted", "z", &[])];
    assert_conflict(log.append(Append::new(torn).unless(tag("a"), After::Nothing)).await);
    for name in ["b", "c"] {
        shows(&s, &tag(name), &[]).await;
    }
    shows(&s, &Query::all(), &["1"]).await;
    let second = put(&log, "Noted", "2", &["a", "b", "c"]).await;
    assert!(second > first);
    if s.capabilities.counted_positions {
        assert_eq!(second, Position::number(2), "a rejected append takes no position");
    }
}

/// A body, tag or type out of bounds is refused with its size and the limit; the bounds themselves are accepted.
pub async fn a05_out_of_bounds_is_refused_with_the_limit(s: Subject) {
    let Some(log) = s.log() else { return };
    let long = Event::new("Noted", vec![0; MAX_BODY_BYTES + 1]);
    assert!(
        matches!(&long, Err(Error::Refused(Refused::TooLong { bytes, limit, .. })) if *bytes == limit + 1 && *limit == MAX_BODY_BYTES),
        "{long:?}"
    );
    for (tag, ok) in [(String::new(), false), ("x".repeat(1024), true), ("x".repeat(1025), false), ("é".repeat(513), false)] {
        assert_eq!(Tag::new(&tag).is_ok(), ok, "{} bytes", tag.len());
    }
    let widest = "t".repeat(256);
    assert!(Event::new("t".repeat(257), "").is_err() && Event::new("", "").is_err());
    log.append(Append::new([event(&widest, "wide", &["a"])])).await.must();
    shows(&s, &super::both(&[&widest], &["a"]), &["wide"]).await;
}

/// A tag given twice counts once; the same body, metadata and even event twice are two events.
pub async fn a06_duplicates_are_defined(s: Subject) {
    let Some(log) = s.log() else { return };
    let twice = event("Noted", "1", &["a", "b", "a"]);
    assert_eq!(twice.tags().len(), 2);
    log.append(Append::new([twice.clone(), twice])).await.must();
    shows(&s, &tag("a"), &["1", "1"]).await;
    let read = log.source(&tag("a"), None).await.must().events;
    assert_ne!(read[0].id, read[1].id);
    assert_eq!(read[0].tags.len(), 2);
}

/// 1, 99, 100, 101, 1,000 and 10,000 events in one commit: accepted, or refused with the limit, as the capabilities say.
pub async fn a07_many_events_in_one_commit(s: Subject) {
    let Some(log) = s.log() else { return };
    for count in [1, 99, 100, 101, 1_000, 10_000] {
        let name = format!("batch:{count}");
        let given: Vec<_> = (0..count).map(|n: usize| event("Noted", &format!("{{\"n\":{n}}}"), &[&name])).collect();
        let outcome = log.append(Append::new(given.clone()).unless(tag(&name), After::Nothing)).await;
        if count > s.capabilities.max_events {
            let named = match &outcome {
                Err(Error::Refused(Refused::TooManyItems { items, limit })) => items > limit,
                Err(Error::Refused(Refused::TooManyEvents { events, limit })) => events > limit,
                _ => false,
            };
            assert!(named, "{count} events must be refused with the limit: {outcome:?}");
            shows(&s, &tag(&name), &[]).await;
            continue;
        }
        let committed = outcome.must();
        assert_eq!(committed.positions.len(), count);
        let sourced = log.source(&tag(&name), None).await.must().events;
        assert_eq!(sourced.len(), count);
        assert!(sourced.iter().zip(&given).all(|(got, given)| got.data == given.data()), "every body in its place, of {count}");
        assert!(sourced.iter().zip(&committed.positions).all(|(got, at)| got.position == *at), "every position, of {count}");
        let last = log.read_all(&tag(&name), ReadOptions::default().backwards().limit(1)).await.must();
        assert_eq!(last[0].data, given[count - 1].data());
        assert_conflict(log.append(Append::new([given[0].clone()]).unless(tag(&name), After::Nothing)).await);
    }
}

/// 1, 98, 99 and 1,000 distinct tags in one commit: accepted, or refused with the count and the limit, as the capabilities say.
pub async fn a07_many_tags_in_one_commit(s: Subject) {
    let Some(log) = s.log() else { return };
    for count in [1, 98, 99, 1_000] {
        let names: Vec<String> = (0..count).map(|n| format!("{count}.{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let outcome = log.append(Append::new([event("Noted", "many", &names)])).await;
        let held = if count <= s.capabilities.max_tags {
            outcome.must();
            &["many"][..]
        } else {
            let named = matches!(&outcome, Err(Error::Refused(Refused::TooManyItems { items, limit })) if items > limit && *items >= count);
            assert!(named, "{count} tags must be refused with the count and the limit: {outcome:?}");
            &[]
        };
        for name in [names[0], names[count / 2], names[count - 1]] {
            shows(&s, &tag(name), held).await;
        }
    }
}

/// Many events that share a tag, each with one of its own.
pub async fn a08_events_of_one_commit_on_their_own_tags(s: Subject) {
    let Some(log) = s.log() else { return };
    let count = 40.min(s.capabilities.max_events / 4);
    let given = (0..count).map(|n| event("Noted", &n.to_string(), &["shared", &format!("own:{n}")]));
    log.append(Append::new(given)).await.must();
    assert_eq!(log.source(&tag("shared"), None).await.must().events.len(), count);
    for n in [0, 17, count - 1] {
        shows(&s, &tag(&format!("own:{n}")), &[&n.to_string()]).await;
        shows(&s, &super::tags(&[&format!("own:{n}"), "shared"]), &[&n.to_string()]).await;
    }
}

/// Tokens and bases of another layout, of another query, or cut on the way are refused, and nothing is written.
pub async fn a09_foreign_tokens_are_refused(s: Subject) {
    let Some(log) = s.log() else { return };
    let foreign = Token::seal("elsewhere", &7_u64);
    let is_foreign = |outcome: Error| assert!(matches!(outcome, Error::Refused(Refused::Foreign { .. })), "{outcome:?}");
    is_foreign(log.source(&tag("a"), Some(&foreign)).await.expect_err("foreign"));
    is_foreign(log.unchanged(&foreign).await.expect_err("foreign"));
    is_foreign(log.append(Append::new([event("Noted", "x", &["a"])]).unless(tag("a"), foreign)).await.expect_err("foreign"));
    let base = Base::seal("elsewhere", &7_u64);
    is_foreign(
        log.append(Append::new([event("Noted", "x", &["a"])]).again(CommitId(Uuid::from_u128(9)), base)).await.expect_err("foreign"),
    );
    let of_a = log.source(&tag("a"), None).await.must().token;
    is_foreign(log.source(&tag("b"), Some(&of_a)).await.expect_err("another query"));
    let text = of_a.to_string();
    assert!(text[..text.len() - 2].parse::<Token>().is_err(), "a token that was cut is refused");
    let unread = log.append(Append::new([event("Noted", "x", &["a"])]).unless(Query::all(), After::Nothing)).await;
    match s.holds(&Query::all()) {
        true => assert_eq!(labels(&log.source(&tag("a"), None).await.must().events), ["x"]),
        false => {
            assert_unsupported(unread);
            shows(&s, &tag("a"), &[]).await;
        }
    }
}

/// A commit id of the caller's settles repeats: the first outcome, whatever happened since; other events under it are refused.
pub async fn a10_commit_id_settles_repeats(s: Subject) {
    let Some(log) = s.log() else { return };
    let id = CommitId(Uuid::from_u128(0x1234_5678));
    let given = || [event("Opened", "1", &["a", "b"]), event("Noted", "2", &[])];
    let seen = log.source(&tag("a"), None).await.must().token;
    let first = log.append(Append::new(given()).unless(tag("a"), &seen).commit(id)).await.must();
    put(&log, "Noted", "3", &["a"]).await;
    for turn in 0..2 {
        let log = s.handle_log(turn);
        let again = log.append(Append::new(given()).unless(tag("a"), &seen).commit(id)).await.must();
        assert_eq!((again.commit, &again.positions), (first.commit, &first.positions));
        let unconditional = log.append(Append::new(given()).commit(id)).await.must();
        assert_eq!(unconditional.positions, first.positions);
        let other = log.append(Append::new([event("Opened", "other", &["a", "b"])]).commit(id)).await;
        assert!(matches!(&other, Err(Error::Refused(Refused::Reused { commit })) if *commit == id), "{other:?}");
    }
    shows(&s, &tag("a"), &["1", "3"]).await;
    shows(&s, &tag("b"), &["1"]).await;
    shows(&s, &Query::all(), &["1", "2", "3"]).await;
}

/// A commit under an id of the caller's is found by it alone, with the positions of all its events, by every handle; no other is.
pub async fn a11_commit_is_found_by_its_id(s: Subject) {
    let Some(log) = s.log() else { return };
    let id = |n: u128| CommitId(Uuid::from_u128(n));
    put(&log, "Noted", "before", &["a"]).await;
    // Events on tags that share nothing, and more of them than a slot holds.
    let many = (0..300.min(s.capabilities.max_events / 2))
        .map(|n| event("Noted", &format!("{n} {}", "x".repeat(100)), &["many"]))
        .collect::<Vec<_>>();
    let commits = [vec![event("Noted", "1", &["a"])], vec![event("Noted", "2", &["a"]), event("Noted", "3", &["b"])], many];
    let mut first = Vec::new();
    for (n, events) in commits.into_iter().enumerate() {
        first.push(log.append(Append::new(events).commit(id(n as u128 + 1))).await.must());
    }
    let unnamed = log.append(Append::new([event("Noted", "4", &["a"])])).await.must();
    assert_ne!(unnamed.commit, id(9));
    for turn in 0..2 {
        let log = s.handle_log(turn);
        for first in &first {
            let found = log.committed(first.commit).await.must().value.expect("it was recorded");
            assert_eq!((found.commit, &found.positions), (first.commit, &first.positions));
            assert!(found.token.is_none(), "nothing was read");
        }
        assert!(log.committed(id(9)).await.must().value.is_none());
    }
}

/// The token of a repeat stands for the model of whoever repeats, with the commit: what lay between them, and was in another's model, is not passed
/// over.
pub async fn a12_token_of_a_repeat_claims_nothing_unread(s: Subject) {
    let Some(log) = s.log() else { return };
    for (n, conditional) in [true, false].into_iter().enumerate() {
        let name = format!("r{n}");
        let id = CommitId(Uuid::from_u128(500 + n as u128));
        let given = || [event("Noted", "ours", &[&name])];
        put(&log, "Noted", "1", &[&name]).await;
        let early = log.source(&tag(&name), None).await.must().token;
        put(&log, "Noted", "2", &[&name]).await;
        let late = log.source(&tag(&name), None).await.must().token;
        let first = match conditional {
            true => Append::new(given()).unless(tag(&name), &late),
            false => Append::new(given()),
        };
        let first = log.append(first.commit(id)).await.must();
        for turn in 0..2 {
            let log = s.handle_log(turn);
            let again = log.append(Append::new(given()).unless(tag(&name), &early).commit(id)).await.must();
            assert_eq!(again.positions, first.positions);
            // Without a token it is read again. With one, an event that nobody of this model has seen must be met.
            let Some(token) = again.token else { continue };
            let outcome = log.append(Append::new([event("Noted", "blind", &[&name])]).unless(tag(&name), &token)).await;
            assert!(labels(&super::assert_conflict(outcome).events).contains(&"2".to_owned()), "event 2 was in no model of this token");
        }
        // Whoever stood where the first one did may go on.
        let same = log.append(Append::new(given()).unless(tag(&name), &late).commit(id)).await.must();
        let token = same.token.expect("nothing lay between");
        log.append(Append::new([event("Noted", "3", &[&name])]).unless(tag(&name), &token)).await.must();
        shows(&s, &tag(&name), &["1", "2", "ours", "3"]).await;
    }
}
