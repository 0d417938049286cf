//! R: what a query gives back, to a decision and to a plain read.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use uuid::Uuid;

use super::{Must, Subject, assert_ascending, assert_unsupported, both, event, label, labels, put, shows, tag, tags, towards, types};
use crate::{Append, Bodies, Direction, Error, Event, EventLogExt, Metadata, Position, Query, ReadOptions, Refused};

const BOTH_WAYS: [Direction; 2] = [Direction::Forwards, Direction::Backwards];

/// An empty store gives nothing, either way, and has no head.
pub async fn r01_empty_store_is_empty_both_ways(s: Subject) {
    let Some(log) = s.log() else { return };
    for query in [Query::all(), tag("a"), types(&["Opened"])] {
        shows(&s, &query, &[]).await;
    }
    let sourced = log.source(&tag("a"), None).await.must();
    assert_eq!(sourced.head, None, "no head where there is no event");
    match s.capabilities.untagged_reads {
        true => assert_eq!(log.head().await.must(), None),
        false => assert_unsupported(log.head().await),
    }
}

/// All gives all, ascending.
pub async fn r02_all_gives_all_ascending(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "1", &["a"]).await;
    log.append(Append::new([event("Opened", "2", &["b"]), event("Noted", "3", &[])])).await.must();
    put(&log, "Closed", "4", &["a", "b"]).await;
    shows(&s, &Query::all(), &["1", "2", "3", "4"]).await;
}

/// The first event can be taken alone, before and after the whole is read.
pub async fn r03_first_is_there_before_and_after_iterating(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in ["1", "2", "3"] {
        put(&log, "Noted", n, &["a"]).await;
    }
    let query = tag("a");
    let before = log.read(&query, ReadOptions::default()).try_next().await.must().expect("there is one");
    let whole = log.read_all(&query, ReadOptions::default()).await.must();
    let after = log.read(&query, ReadOptions::default()).try_next().await.must().expect("there is one");
    assert_eq!((&before, &after), (&whole[0], &whole[0]));
    assert_eq!(label(&before), "1");
}

/// `after` is exclusive in the direction of reading; behind the end there is nothing.
pub async fn r04_after_is_exclusive_both_ways(s: Subject) {
    let Some(log) = s.log() else { return };
    let mut at = Vec::new();
    for n in ["1", "2", "3"] {
        at.push(put(&log, "Opened", n, &["a"]).await);
    }
    let beyond = match at[2].as_stamped() {
        Some((stamp, commit, index)) => Position::stamped(stamp + 1_000_000, commit, index),
        None => Position::number(at[2].as_number().expect("a number") + 1_000),
    };
    for query in [tag("a"), types(&["Opened"]), Query::all()] {
        let read = async |options: ReadOptions| log.read_all(&query, options).await.map(|events| labels(&events));
        if !s.reads(&query) {
            assert_unsupported(read(ReadOptions::default().after(at[0])).await);
            continue;
        }
        let forwards = ReadOptions::default;
        assert_eq!(read(forwards().after(at[0])).await.must(), ["2", "3"]);
        assert_eq!(read(forwards().after(at[1])).await.must(), ["3"]);
        assert!(read(forwards().after(at[2])).await.must().is_empty(), "after the head");
        assert!(read(forwards().after(beyond)).await.must().is_empty(), "after a place beyond the head");
        let backwards = || ReadOptions::default().backwards();
        assert_eq!(read(backwards().after(at[2])).await.must(), ["2", "1"]);
        assert_eq!(read(backwards().after(at[1])).await.must(), ["1"]);
        assert!(read(backwards().after(at[0])).await.must().is_empty(), "before the first");
        assert_eq!(read(backwards().after(beyond)).await.must(), ["3", "2", "1"]);
        if s.capabilities.counted_positions {
            assert_eq!(read(forwards().after(Position::number(0))).await.must(), ["1", "2", "3"]);
            assert!(read(backwards().after(Position::number(0))).await.must().is_empty());
        }
    }
}

/// Limits of none, one, all and more than there are; either way, behind a place, with every kind of query.
pub async fn r05_limit_counts_matches_both_ways(s: Subject) {
    let Some(log) = s.log() else { return };
    let mut at = Vec::new();
    for n in ["1", "x", "2", "y", "3", "z", "4"] {
        let (ty, on) = if n.parse::<u8>().is_ok() { ("Opened", "a") } else { ("Noted", "b") };
        at.push(put(&log, ty, n, &[on]).await);
    }
    for query in [tag("a"), types(&["Opened"]), both(&["Opened"], &["a"])] {
        if !s.reads(&query) {
            assert_unsupported(log.read_all(&query, ReadOptions::default().limit(1)).await);
            continue;
        }
        for (limit, direction, expected) in [
            (0, Direction::Forwards, &[][..]),
            (1, Direction::Forwards, &["1"]),
            (4, Direction::Forwards, &["1", "2", "3", "4"]),
            (9, Direction::Forwards, &["1", "2", "3", "4"]),
            (0, Direction::Backwards, &[]),
            (1, Direction::Backwards, &["4"]),
            (3, Direction::Backwards, &["4", "3", "2"]),
            (9, Direction::Backwards, &["4", "3", "2", "1"]),
        ] {
            let read = log.read_all(&query, towards(direction).limit(limit)).await.must();
            assert_eq!(labels(&read), expected, "limit {limit} {direction:?} {query:?}");
        }
        assert_eq!(labels(&log.read_all(&query, ReadOptions::default().after(at[2]).limit(1)).await.must()), ["3"]);
        assert_eq!(labels(&log.read_all(&query, ReadOptions::default().backwards().after(at[4]).limit(1)).await.must()), ["2"]);
    }
    let all = Query::all();
    let two = log.read_all(&all, ReadOptions::default().limit(2)).await;
    match s.reads(&all) {
        true => assert_eq!(labels(&two.must()), ["1", "x"]),
        false => assert_unsupported(two),
    }
}

/// One type, any of several, and one that nothing has.
pub async fn r06_types_are_alternatives(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    put(&log, "Moved", "2", &["a"]).await;
    put(&log, "Closed", "3", &["b"]).await;
    put(&log, "Noted", "4", &["b"]).await;
    shows(&s, &types(&["Opened"]), &["1"]).await;
    shows(&s, &types(&["Closed", "Opened"]), &["1", "3"]).await;
    shows(&s, &types(&["Unheard"]), &[]).await;
    shows(&s, &types(&["Unheard", "Moved"]), &["2"]).await;
    // Not among the indexed ones: refused where nothing else could hold it.
    shows(&s, &types(&["Noted"]), &["4"]).await;
}

/// All tags of an item, any item of a query, each event once, in order.
pub async fn r07_tags_are_all_needed_and_items_are_alternatives(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "a", &["a"]).await;
    put(&log, "Noted", "ab", &["a", "b"]).await;
    put(&log, "Noted", "b", &["b"]).await;
    put(&log, "Noted", "cba", &["c", "b", "a"]).await;
    put(&log, "Noted", "c", &["c"]).await;
    shows(&s, &tag("a"), &["a", "ab", "cba"]).await;
    shows(&s, &tags(&["a", "b"]), &["ab", "cba"]).await;
    shows(&s, &tags(&["b", "a"]), &["ab", "cba"]).await;
    shows(&s, &tags(&["a", "b", "c"]), &["cba"]).await;
    shows(&s, &tags(&["a", "d"]), &[]).await;
    shows(&s, &tag("c").or(tag("a")), &["a", "ab", "cba", "c"]).await;
    shows(&s, &tag("a").or(tag("c")), &["a", "ab", "cba", "c"]).await;
    shows(&s, &tag("a").or(tags(&["a", "b"])).or(tag("b")), &["a", "ab", "b", "cba"]).await;
}

/// Type and tag of one item must both match.
pub async fn r08_type_and_tag_of_one_item(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    put(&log, "Closed", "2", &["a"]).await;
    put(&log, "Opened", "3", &["b"]).await;
    shows(&s, &both(&["Opened"], &["a"]), &["1"]).await;
    shows(&s, &both(&["Opened", "Closed"], &["a"]), &["1", "2"]).await;
    shows(&s, &both(&["Moved"], &["a"]), &[]).await;
    shows(&s, &both(&["Opened"], &["c"]), &[]).await;
    // Each cover's events are judged by the whole query, not by the item that it covers.
    shows(&s, &both(&["Opened"], &["a"]).or(both(&["Closed"], &["b"])), &["1"]).await;
}

/// An item of types beside an item of tags.
pub async fn r09_types_or_tags(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &["a"]).await;
    put(&log, "Noted", "2", &["b"]).await;
    put(&log, "Opened", "3", &["b"]).await;
    put(&log, "Noted", "4", &["a"]).await;
    shows(&s, &types(&["Opened"]).or(tag("b")), &["1", "2", "3"]).await;
    shows(&s, &tag("b").or(types(&["Opened"])), &["1", "2", "3"]).await;
}

/// An event without a tag is found by its type and among all, never by a tag.
pub async fn r10_tagless_event_by_type_and_all(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Opened", "1", &[]).await;
    put(&log, "Opened", "2", &["a"]).await;
    log.append(Append::new([event("Opened", "3", &[]), event("Noted", "4", &["a"])])).await.must();
    shows(&s, &types(&["Opened"]), &["1", "2", "3"]).await;
    shows(&s, &Query::all(), &["1", "2", "3", "4"]).await;
    shows(&s, &tag("a"), &["2", "4"]).await;
}

/// Names that nearly match do not match, whatever characters they hold.
pub async fn r11_near_misses_and_odd_tags(s: Subject) {
    let Some(log) = s.log() else { return };
    let longest = "x".repeat(1024);
    let nearly = format!("{}y", "x".repeat(1023));
    let odd = [
        "baz:foos",
        "baz:foosn",
        "baz:foo",
        "baz",
        "BAZ:foos",
        "baz:foos ",
        "/",
        "//",
        "a/b",
        "#",
        "a#b",
        ":",
        "::",
        "a:b",
        "\0",
        "a\0b",
        "a\0",
        "é",
        "e\u{301}",
        "日本語:東京",
        "🦀",
        "\u{feff}",
        "%2F",
        "*",
        "\n",
        "\u{10FFFF}",
        &longest,
        &nearly,
        "x",
    ];
    for (n, name) in odd.iter().enumerate() {
        put(&log, "Noted", &n.to_string(), &[name]).await;
    }
    for (n, name) in odd.iter().enumerate() {
        let sourced = log.source(&tag(name), None).await.must();
        assert_eq!(labels(&sourced.events), [n.to_string()], "{name:?}");
        assert_eq!(sourced.events[0].tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), [*name]);
    }
    put(&log, "Noted", "several", &["key:1", "key:2", "key:3"]).await;
    shows(&s, &tag("key:2"), &["several"]).await;
    shows(&s, &tags(&["key:1", "key:3"]), &["several"]).await;
    shows(&s, &tag("key:"), &[]).await;
    let kinds = ["Noted2", "noted", "Note", "日本", "a\0b", "Y/y", "#"];
    for kind in kinds {
        put(&log, kind, kind, &["kinds"]).await;
    }
    for kind in kinds {
        shows(&s, &both(&[kind], &["kinds"]), &[kind]).await;
    }
    let many: Vec<String> = (0..98.min(s.capabilities.max_tags)).map(|n| format!("m{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    put(&log, "Noted", "many", &many).await;
    shows(&s, &tags(&["m0", many[many.len() - 1]]), &["many"]).await;
    shows(&s, &tags(&many), &["many"]).await;
}

/// Options choose among the matches; they never change what matches.
pub async fn r12_options_never_change_what_matches(s: Subject) {
    let Some(log) = s.log() else { return };
    let mut at = Vec::new();
    for (ty, n) in [("Opened", "1"), ("Noted", "-"), ("Opened", "2"), ("Noted", "-"), ("Opened", "3")] {
        at.push(put(&log, ty, n, &["a"]).await);
    }
    let query = both(&["Opened"], &["a"]);
    for direction in BOTH_WAYS {
        for after in [None, Some(at[1]), Some(at[2]), Some(at[3])] {
            for limit in 0..4 {
                let mut options = towards(direction).limit(limit);
                if let Some(after) = after {
                    options = options.after(after);
                }
                for events in [log.read_all(&query, options).await.must(), log.read_all(&query, options.eventual()).await.must()] {
                    assert!(events.iter().all(|event| label(event) != "-"), "{options:?}: {:?}", labels(&events));
                    assert!(events.len() as u64 <= limit);
                }
            }
        }
    }
    assert_eq!(labels(&log.read_all(&query, ReadOptions::default().backwards().limit(1)).await.must()), ["3"]);
}

/// The head is the newest event's position, whatever the query matched.
pub async fn r13_head_whatever_matched(s: Subject) {
    let Some(log) = s.log() else { return };
    put(&log, "Noted", "1", &["a"]).await;
    let last = put(&log, "Noted", "2", &["b"]).await;
    for query in [tag("a"), tag("nothing")] {
        let head = log.source(&query, None).await.must().head;
        assert!(head.is_none() || head == Some(last), "the head, where it is told, is the newest event's: {head:?}");
    }
    match s.capabilities.untagged_reads {
        true => assert_eq!(log.head().await.must(), Some(last)),
        false => assert_unsupported(log.head().await),
    }
    if s.holds(&Query::all()) {
        assert_eq!(log.source(&Query::all(), None).await.must().events.last().map(|event| event.position), Some(last));
    }
}

/// Body, metadata, id and tags come back as they were given: empty, binary, and over 400 KB too, or are refused where only JSON is kept.
pub async fn r14_what_was_given_comes_back(s: Subject) {
    let Some(log) = s.log() else { return };
    let binary: Vec<u8> = (0..=255).collect();
    // Does not compress, so that a megabyte stays one.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let large: Vec<u8> = (0..1_000_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[0]
        })
        .collect();
    let json = br#"{"name":"Zo\u00eb","n":1.50,"nested":{"a":[1,2,{}]}}  "#.to_vec();
    let near_utf8 = b"{\"a\":\"\xff\"}".to_vec();
    let bodies = [Vec::new(), b"{}".to_vec(), json, near_utf8, binary, vec![0; 5_000], b"text, not JSON".to_vec(), "é🦀\0".into(), large];
    for (n, body) in bodies.iter().enumerate() {
        let n = n as u64;
        let meta = Metadata {
            correlation: Some(format!("c{n}")),
            causation: n.is_multiple_of(2).then(|| "é\0/".into()),
            user: None,
            schema: n.is_multiple_of(3).then_some(2),
            occurred: n.is_multiple_of(2).then(|| jiff::Timestamp::constant(-62_135_596_800, 0)),
            extra: BTreeMap::from([("deep".into(), serde_json::json!({"n": n, "list": [1, "two", null, 2.5], "big": u64::MAX}))]),
        };
        let id = Uuid::from_u128(0xABCD_0000 + u128::from(n));
        let given =
            Event::new("Noted", body.clone()).must().tag("z").must().tag("body").must().tag("a/b#c:d").must().id(id).meta(meta.clone());
        let plain = Event::new("Noted", body.clone()).must().tag("plain").must();
        let outcome = log.append(Append::new([given, plain])).await;
        let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let fits = match s.capabilities.bodies {
            Bodies::Bytes => true,
            Bodies::Text => std::str::from_utf8(body).is_ok(),
            Bodies::Json => value.is_some(),
        };
        if body.len() > s.capabilities.max_body || !fits {
            let told = matches!(&outcome, Err(Error::Refused(Refused::Malformed { .. } | Refused::TooLong { .. })));
            assert!(told, "body {n} must be refused: {outcome:?}");
            continue;
        }
        let same = |got: &[u8]| got == *body || (s.capabilities.bodies == Bodies::Json && serde_json::from_slice(got).ok() == value);
        let committed = outcome.must();
        let sourced = log.source(&tag("body"), None).await.must().events;
        let got = sourced.last().expect("it is there");
        assert!(same(&got.data), "body {n} of {} bytes comes back with {} bytes", body.len(), got.data.len());
        assert_eq!((got.id, &got.meta, got.position), (id, &meta, committed.positions[0]));
        assert_eq!(got.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["a/b#c:d", "body", "z"], "tags in byte order");
        let read = log.read_all(&tag("plain"), ReadOptions::default().backwards().limit(1)).await.must();
        assert!(same(&read[0].data) && read[0].meta.is_empty());
        assert_eq!(read[0].id, committed.commit.event_id(1), "an id that was not given is derived from commit and index");
        assert_eq!(read[0].position, committed.positions[1]);
    }
}

/// Two reads at once do not disturb each other.
pub async fn r15_interleaved_reads_are_independent(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in ["1", "2", "3"] {
        put(&log, "Noted", n, &["a"]).await;
    }
    let query = tag("a");
    let mut forwards = log.read(&query, ReadOptions::default());
    let mut backwards = log.read(&query, ReadOptions::default().backwards());
    let mut met = Vec::new();
    for _ in 0..3 {
        met.push(label(&forwards.try_next().await.must().expect("one more")));
        met.push(label(&backwards.try_next().await.must().expect("one more")));
    }
    assert_eq!(met, ["1", "3", "2", "2", "3", "1"]);
    assert!(forwards.next().await.is_none() && backwards.next().await.is_none());
}

/// Events appended during a read may be seen or not, but what was there is seen once, in order.
pub async fn r16_appends_during_a_read_disturb_nothing(s: Subject) {
    let Some(log) = s.log() else { return };
    for n in ["1", "2", "3"] {
        put(&log, "Noted", n, &["a"]).await;
    }
    let query = tag("a");
    let mut read = log.read(&query, ReadOptions::default());
    let first = read.try_next().await.must().expect("the first");
    put(&log, "Noted", "4", &["a"]).await;
    let mut met = vec![first];
    while let Some(event) = read.try_next().await.must() {
        met.push(event);
    }
    assert_ascending(&met);
    assert_eq!(labels(&met[..3]), ["1", "2", "3"]);
    assert!(met.len() == 3 || labels(&met[3..]) == ["4"], "a new event is seen whole or not at all");
    shows(&s, &query, &["1", "2", "3", "4"]).await;
}

/// Names that collide under common short hashes stay apart.
pub async fn r17_colliding_names_stay_apart(s: Subject) {
    let Some(log) = s.log() else { return };
    // Pairs with the same 31-polynomial hash, and with the same CRC-32.
    let pairs = [("Aa", "BB"), ("AaAa", "BBBB"), ("plumless", "buckeroo"), ("a:1", "a1:")];
    for (one, other) in pairs {
        put(&log, "Noted", one, &[one]).await;
        put(&log, "Noted", other, &[other]).await;
        put(&log, one, &format!("type {one}"), &["typed"]).await;
        put(&log, other, &format!("type {other}"), &["typed"]).await;
    }
    for name in pairs.iter().flat_map(|(one, other)| [*one, *other]) {
        shows(&s, &tag(name), &[name]).await;
        shows(&s, &both(&[name], &["typed"]), &[&format!("type {name}")]).await;
    }
}

/// More than one page of anything: many megabytes, and many commits.
pub async fn r18_many_pages(s: Subject) {
    let Some(log) = s.log() else { return };
    let body = |n: usize| -> Vec<u8> {
        let mut state = 0xD1B5_4A32_D192_ED03_u64.wrapping_mul(n as u64 + 1);
        let letters: Vec<u8> = (0..3_000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                b'a' + state.to_be_bytes()[0] % 26
            })
            .collect();
        [b"\"", &letters[..], b"\""].concat()
    };
    for commit in 0..40 {
        let events = (0..25).map(|n| Event::new("Noted", body(commit * 25 + n)).must().tag("pages").must());
        log.append(Append::new(events)).await.must();
    }
    let query = tag("pages");
    let sourced = log.source(&query, None).await.must().events;
    assert_eq!(sourced.len(), 1_000);
    assert_ascending(&sourced);
    assert!(sourced.iter().enumerate().all(|(n, event)| event.data == body(n)), "every body in its place");
    let mut backwards = log.read_all(&query, ReadOptions::default().backwards()).await.must();
    backwards.reverse();
    assert!(backwards == sourced, "backwards over pages is forwards reversed");
    let middle = log.read_all(&query, ReadOptions::default().after(sourced[499].position).limit(300)).await.must();
    assert!(middle == sourced[500..800]);
}

/// A delta since a token is what came since, each event once.
pub async fn r19_since_gives_only_what_came_since(s: Subject) {
    let Some(log) = s.log() else { return };
    let query = tag("a").or(both(&["Opened"], &["b"]));
    put(&log, "Noted", "1", &["a", "b"]).await;
    let first = log.source(&query, None).await.must();
    put(&log, "Noted", "-", &["b"]).await;
    put(&log, "Opened", "2", &["b", "a"]).await;
    put(&log, "Opened", "3", &["b"]).await;
    let text: crate::Token = first.token.to_string().parse().must();
    for token in [&first.token, &text] {
        let delta = log.source(&query, Some(token)).await.must();
        assert_eq!(labels(&delta.events), ["2", "3"], "an event on two covers comes once");
        let nothing = log.source(&query, Some(&delta.token)).await.must();
        assert!(nothing.events.is_empty());
        assert!(log.source(&query, Some(&nothing.token)).await.must().events.is_empty());
    }
}
