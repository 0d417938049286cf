//! T: streams: versions, expectations, snapshots, reads. A version is the number of events in the stream.

use uuid::Uuid;

use super::{Must, Subject, assert_conflict, assert_unsupported, event, label, labels, race};
use crate::{
    Base, Bodies, CommitId, Committed, Error, Expect, LoadOptions, Recorded, Refused, Result, Snapshot, Snapshots, Step, StreamName,
    StreamReadOptions, StreamStoreExt, Token,
};

/// A name that every layout takes: some split it at a dash.
fn name(name: &str) -> StreamName {
    StreamName::new(format!("s-{name}")).must()
}

fn step(labels: &[&str]) -> Step {
    Step::new(labels.iter().map(|label| event("Noted", label, &[])))
}

async fn add(s: &Subject, stream: &StreamName, labels: &[&str]) -> Committed {
    s.streams.append(stream, step(labels)).await.must()
}

fn versions(events: &[Recorded]) -> Vec<u64> {
    events.iter().map(|event| event.version.expect("reads of a stream tell versions")).collect()
}

/// The conflict's events and what its token leaves are exactly these, each once.
async fn brings(s: &Subject, stream: &StreamName, outcome: Result<Committed>, new: &[&str]) -> Token {
    let conflict = assert_conflict(outcome);
    let token = conflict.token.expect("a conflict of a stream brings its continuation");
    let mut folded = labels(&conflict.events);
    folded.extend(labels(&s.streams.load(stream, LoadOptions::default().since(token.clone())).await.must().events));
    assert_eq!(folded, new);
    token
}

/// A stream that nobody wrote has version 0 and no events.
pub async fn t01_missing_stream_is_version_0(s: Subject) {
    let loaded = s.streams.load(&name("none"), LoadOptions::default()).await.must();
    assert_eq!((loaded.version, loaded.events.len(), loaded.snapshots.len()), (0, 0, 0));
    assert!(s.streams.read_stream(&name("none"), StreamReadOptions::default()).await.must().is_empty());
    let latest = s.streams.load(&name("none"), LoadOptions::default().latest()).await.must();
    assert_eq!((latest.version, latest.events.len()), (0, 0));
}

/// A version counts events, not commits; several events of a commit take several.
pub async fn t02_version_counts_events(s: Subject) {
    let (a, b) = (name("a"), name("b"));
    assert_eq!(add(&s, &a, &["1"]).await.version, Some(1));
    assert_eq!(add(&s, &b, &["other"]).await.version, Some(1));
    assert_eq!(add(&s, &a, &["2", "3", "4"]).await.version, Some(4));
    let loaded = s.streams.load(&a, LoadOptions::default()).await.must();
    assert_eq!(loaded.version, 4);
    assert_eq!(labels(&loaded.events), ["1", "2", "3", "4"]);
    assert_eq!(versions(&loaded.events), [1, 2, 3, 4]);
    super::assert_ascending(&loaded.events);
    assert_eq!(s.streams.load(&b, LoadOptions::default()).await.must().version, 1);
}

/// "Must not exist": the first wins, then it fails and brings what is there.
pub async fn t03_expect_none(s: Subject) {
    let a = name("a");
    let first = s.streams.append(&a, step(&["1", "2"]).expect(Expect::None)).await.must();
    assert_eq!(first.version, Some(2));
    assert!(first.token.is_some(), "an append with an expectation hands back its token");
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::None)).await;
    brings(&s, &a, outcome, &["1", "2"]).await;
    assert_eq!(s.streams.load(&a, LoadOptions::default()).await.must().version, 2);
}

/// Exactly so many events: fewer and more fail.
pub async fn t04_expect_version(s: Subject) {
    let a = name("a");
    assert_eq!(s.streams.append(&a, step(&["1"]).expect(Expect::Version(0))).await.must().version, Some(1));
    assert_eq!(s.streams.append(&a, step(&["2", "3"]).expect(Expect::Version(1))).await.must().version, Some(3));
    for (expected, new) in [(0, &["1", "2", "3"][..]), (1, &["2", "3"]), (2, &["3"])] {
        let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Version(expected))).await;
        brings(&s, &a, outcome, new).await;
    }
    let short = assert_conflict(s.streams.append(&a, step(&["x"]).expect(Expect::Version(9))).await);
    assert!(short.events.is_empty(), "the stream is shorter: nothing is new");
    assert_eq!(s.streams.append(&a, step(&["4"]).expect(Expect::Version(3))).await.must().version, Some(4));
    assert_eq!(labels(&s.streams.load(&a, LoadOptions::default()).await.must().events), ["1", "2", "3", "4"]);
}

/// A token holds while nothing came; a conflict brings events and a token that works without reading.
pub async fn t05_expect_token(s: Subject) {
    let a = name("a");
    let empty = s.streams.load(&a, LoadOptions::default()).await.must().token;
    add(&s, &name("b"), &["other"]).await;
    let first = s.streams.append(&a, step(&["1"]).expect(Expect::Token(empty.clone()))).await.must();
    let moved = first.token.expect("a token");
    let second = s.streams.append(&a, step(&["2"]).expect(Expect::Token(moved.clone()))).await.must();
    assert_eq!(second.version, Some(2));
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Token(empty))).await;
    brings(&s, &a, outcome, &["1", "2"]).await;
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Token(moved))).await;
    let token = brings(&s, &a, outcome, &["2"]).await;
    let travelled: Token = token.to_string().parse().must();
    assert_eq!(s.streams.append(&a, step(&["3"]).expect(Expect::Token(travelled))).await.must().version, Some(3));
    let foreign = s.streams.append(&a, step(&["x"]).expect(Expect::Token(Token::seal("elsewhere", &1_u64)))).await;
    assert!(matches!(foreign, Err(Error::Refused(Refused::Foreign { .. }))), "{foreign:?}");
}

/// Whatever is there.
pub async fn t06_expect_any(s: Subject) {
    let a = name("a");
    let stale = s.streams.load(&a, LoadOptions::default()).await.must().token;
    for n in 1..=3_u64 {
        assert_eq!(s.streams.append(&a, step(&[&n.to_string()]).expect(Expect::Any)).await.must().version, Some(n));
    }
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Token(stale))).await;
    brings(&s, &a, outcome, &["1", "2", "3"]).await;
}

/// Only what came since a token; a token of another stream is refused.
pub async fn t07_since_gives_what_came_since(s: Subject) {
    let a = name("a");
    add(&s, &a, &["1", "2"]).await;
    let seen = s.streams.load(&a, LoadOptions::default()).await.must().token;
    let still = s.streams.load(&a, LoadOptions::default().since(seen.clone())).await.must();
    assert_eq!((still.events.len(), still.version), (0, 2));
    add(&s, &name("b"), &["other"]).await;
    add(&s, &a, &["3"]).await;
    add(&s, &a, &["4", "5"]).await;
    let delta = s.streams.load(&a, LoadOptions::default().since(seen.to_string().parse().must())).await.must();
    assert_eq!(labels(&delta.events), ["3", "4", "5"]);
    assert_eq!((versions(&delta.events), delta.version), (vec![3, 4, 5], 5));
    assert_eq!(s.streams.append(&a, step(&["6"]).expect(Expect::Token(delta.token))).await.must().version, Some(6));
    let foreign = s.streams.load(&name("b"), LoadOptions::default().since(seen)).await;
    assert!(matches!(foreign, Err(Error::Refused(Refused::Foreign { .. }))), "{foreign:?}");
}

/// Only the last event, with its version, and the token that guards the whole.
pub async fn t08_latest(s: Subject) {
    let a = name("a");
    add(&s, &a, &["1"]).await;
    add(&s, &a, &["2", "3"]).await;
    let latest = s.streams.load(&a, LoadOptions::default().latest()).await.must();
    assert_eq!(labels(&latest.events), ["3"]);
    assert_eq!((versions(&latest.events), latest.version), (vec![3], 3));
    s.streams.append(&a, step(&["4"]).expect(Expect::Token(latest.token.clone()))).await.must();
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Token(latest.token))).await;
    brings(&s, &a, outcome, &["4"]).await;
}

/// A load begins with the newest snapshot that has one of the names, and the events behind it.
pub async fn t09_snapshot_is_used_on_load(s: Subject) {
    if s.capabilities.snapshots == Snapshots::Last {
        return last_snapshots_are_used_on_load(&s).await;
    }
    let a = name("a");
    let (v1, v2) = match s.capabilities.snapshots {
        Snapshots::Single => ("snapshot", "snapshot"),
        _ => ("v1", "v2"),
    };
    let with = |labels: &[&str], name: &str, state: &str| step(labels).snapshot(Snapshot::new(name, state.as_bytes().to_vec()));
    s.streams.append(&a, with(&["1", "2"], v1, "two")).await.must();
    add(&s, &a, &["3"]).await;
    let load = async |names: &[&str]| s.streams.load(&a, LoadOptions::default().snapshot(names.iter().copied())).await.must();
    let loaded = load(&[v1]).await;
    assert_eq!(loaded.snapshots, [Snapshot::at(v1, 2, b"two".to_vec())]);
    assert_eq!((labels(&loaded.events), loaded.version), (vec!["3".to_owned()], 3));
    assert_eq!(versions(&loaded.events), [3]);
    assert_eq!(s.streams.append(&a, with(&["4"], v2, "four").expect(Expect::Token(loaded.token))).await.must().version, Some(4));
    add(&s, &a, &["5"]).await;
    for names in [&[v1, v2], &[v2, v1]] {
        let newest = load(names).await;
        assert!(newest.snapshots.contains(&Snapshot::at(v2, 4, b"four".to_vec())), "{newest:?}");
        assert_eq!(labels(&newest.events), ["5"]);
    }
    match s.capabilities.snapshots {
        Snapshots::Each => {
            let old = load(&[v1]).await;
            assert_eq!((old.snapshots[0].version, labels(&old.events)), (2, vec!["3".into(), "4".into(), "5".into()]));
        }
        Snapshots::Newest => {
            let gone = load(&[v1]).await;
            assert_eq!((gone.snapshots.len(), gone.events.len()), (0, 5), "the newest alone is kept: from the start");
        }
        Snapshots::Single => assert_unsupported(s.streams.append(&a, with(&["x"], "v1", "state")).await),
        Snapshots::Last => unreachable!("asked above"),
    }
    let unknown = load(&["v9"]).await;
    assert_eq!((unknown.snapshots.len(), unknown.events.len()), (0, 5), "none of that name: from the start");
    s.streams.append(&a, with(&["6"], v1, "")).await.must();
    let replaced = load(&[v1]).await;
    assert_eq!(replaced.snapshots, [Snapshot::at(v1, 6, Vec::new())]);
    assert_eq!((replaced.events.len(), replaced.version), (0, 6));
    assert!(s.streams.load(&a, LoadOptions::default()).await.must().snapshots.is_empty(), "none asked for");
    assert!(s.streams.load(&name("b"), LoadOptions::default().snapshot([v1])).await.must().snapshots.is_empty(), "a stream's own");
}

/// Where the newest append's snapshots are kept and no others: all of them are handed back, and an append without any leaves none.
async fn last_snapshots_are_used_on_load(s: &Subject) {
    let a = name("a");
    let with = |labels: &[&str], of: &[(&str, &str)]| {
        of.iter().fold(step(labels), |step, (name, state)| step.snapshot(Snapshot::new(*name, state.as_bytes().to_vec())))
    };
    let load = async |names: &[&str]| s.streams.load(&a, LoadOptions::default().snapshot(names.iter().copied())).await.must();
    s.streams.append(&a, with(&["1", "2"], &[("v1", "two"), ("v2", "zwei")])).await.must();
    let loaded = load(&["v1"]).await;
    assert_eq!(loaded.snapshots, [Snapshot::at("v1", 2, b"two".to_vec())]);
    assert_eq!((loaded.events.len(), loaded.version), (0, 2));
    let both = [Snapshot::at("v1", 2, b"two".to_vec()), Snapshot::at("v2", 2, b"zwei".to_vec())];
    assert_eq!(load(&["v2", "v1"]).await.snapshots, both, "in the order of the append");
    assert_eq!(load(&["v9"]).await.events.len(), 2, "none of that name: from the start");
    assert_eq!(s.streams.append(&a, with(&["3"], &[("v2", "drei")]).expect(Expect::Token(loaded.token))).await.must().version, Some(3));
    let gone = load(&["v1"]).await;
    assert_eq!((gone.snapshots.len(), labels(&gone.events)), (0, vec!["1".into(), "2".into(), "3".into()]), "the newest alone are kept");
    assert_eq!(load(&["v1", "v2"]).await.snapshots, [Snapshot::at("v2", 3, b"drei".to_vec())]);
    add(s, &a, &["4"]).await;
    let none = load(&["v1", "v2"]).await;
    assert_eq!((none.snapshots.len(), versions(&none.events), none.version), (0, vec![1, 2, 3, 4], 4), "this one had none");
    s.streams.append(&a, with(&["5"], &[("v1", "")]).expect(Expect::Token(none.token))).await.must();
    let empty = load(&["v1"]).await;
    assert_eq!((empty.snapshots, empty.events.len()), (vec![Snapshot::at("v1", 5, Vec::new())], 0));
    assert!(s.streams.load(&a, LoadOptions::default()).await.must().snapshots.is_empty(), "none asked for");
    assert!(s.streams.load(&name("b"), LoadOptions::default().snapshot(["v1"])).await.must().snapshots.is_empty(), "a stream's own");
}

/// A snapshot of an append that was rejected is not stored; a bad name is refused and nothing is written.
pub async fn t10_snapshot_of_a_rejected_append(s: Subject) {
    let a = name("a");
    add(&s, &a, &["1"]).await;
    let v1 = if s.capabilities.snapshots == Snapshots::Single { "snapshot" } else { "v1" };
    assert_conflict(s.streams.append(&a, step(&["x"]).snapshot(Snapshot::new(v1, "wrong")).expect(Expect::None)).await);
    let stored = s.streams.load(&a, LoadOptions::default().snapshot([v1])).await.must().snapshots;
    assert!(stored.iter().all(|snapshot| snapshot.state != "wrong"), "{stored:?}");
    for bad in ["", "a/b", "a b", "é", &"x".repeat(65)] {
        let outcome = s.streams.append(&a, step(&["x"]).snapshot(Snapshot::new(bad, "state"))).await;
        assert!(matches!(outcome, Err(Error::Refused(Refused::BadName { .. }))), "{bad:?}: {outcome:?}");
    }
    assert_eq!(s.streams.load(&a, LoadOptions::default()).await.must().version, 1);
}

/// Forwards and backwards, behind a version, at most so many.
pub async fn t11_read_both_ways(s: Subject) {
    let a = name("a");
    add(&s, &a, &["1"]).await;
    add(&s, &name("b"), &["other"]).await;
    add(&s, &a, &["2", "3", "4"]).await;
    add(&s, &a, &["5"]).await;
    let forwards = StreamReadOptions::default;
    let backwards = || StreamReadOptions::default().backwards();
    for (options, expected) in [
        (forwards(), &[1, 2, 3, 4, 5][..]),
        (forwards().after(0), &[1, 2, 3, 4, 5]),
        (forwards().after(2), &[3, 4, 5]),
        (forwards().after(5), &[]),
        (forwards().after(99), &[]),
        (forwards().limit(0), &[]),
        (forwards().limit(2), &[1, 2]),
        (forwards().after(1).limit(2), &[2, 3]),
        (forwards().eventual(), &[1, 2, 3, 4, 5]),
        (backwards(), &[5, 4, 3, 2, 1]),
        (backwards().after(3), &[2, 1]),
        (backwards().after(1), &[]),
        (backwards().after(0), &[]),
        (backwards().after(99), &[5, 4, 3, 2, 1]),
        (backwards().limit(2), &[5, 4]),
        (backwards().after(4).limit(2), &[3, 2]),
    ] {
        let read = s.streams.read_stream(&a, options).await.must();
        assert_eq!(versions(&read), expected, "{options:?}");
        assert!(read.iter().all(|event| Some(label(event)) == event.version.map(|n| n.to_string())), "{options:?}");
    }
}

/// Many at once on one version: exactly one wins, on each version.
pub async fn t12_one_winner_per_version(s: Subject) {
    let a = name("a");
    for version in 0..4_u64 {
        let outcomes = race((0..10).map(|turn| {
            let (streams, a) = (s.handle(turn).streams.clone(), a.clone());
            let expect = if version == 0 && turn % 3 == 0 { Expect::None } else { Expect::Version(version) };
            async move { streams.append(&a, step(&["1"]).expect(expect)).await }
        }))
        .await;
        for outcome in &outcomes {
            assert!(matches!(outcome, Ok(_) | Err(Error::Conflict(_))), "{outcome:?}");
        }
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "version {version}");
    }
    let loaded = s.streams.load(&a, LoadOptions::default()).await.must();
    assert_eq!(versions(&loaded.events), [1, 2, 3, 4]);
}

/// Appends to different streams, and unconditional ones to one stream, all succeed; commits do not mingle.
pub async fn t13_others_all_succeed(s: Subject) {
    let own = race((0..8).map(|turn| {
        let streams = s.handle(turn).streams.clone();
        async move { streams.append(&name(&format!("own-{turn}")), step(&["1"]).expect(Expect::None)).await.must().version }
    }))
    .await;
    assert_eq!(own, [Some(1); 8]);
    let mut any = race((0..8).map(|turn| {
        let streams = s.handle(turn).streams.clone();
        async move { streams.append(&name("a"), step(&["1", "2", "3"])).await.must().version }
    }))
    .await;
    any.sort();
    assert_eq!(any, (1..=8).map(|n| Some(3 * n)).collect::<Vec<_>>(), "each is told its own version");
    let loaded = s.streams.load(&name("a"), LoadOptions::default()).await.must();
    assert_eq!(versions(&loaded.events), (1..=24).collect::<Vec<_>>());
    assert!(loaded.events.chunks(3).all(|commit| labels(commit) == ["1", "2", "3"]));
}

/// A commit id of the caller's settles repeats on a stream too.
pub async fn t14_commit_id_settles_repeats(s: Subject) {
    let a = name("a");
    let id = CommitId(Uuid::from_u128(77));
    let first = s.streams.append(&a, step(&["1", "2"]).expect(Expect::None).commit(id)).await.must();
    add(&s, &a, &["3"]).await;
    for turn in 0..2 {
        let again = s.handle(turn).streams.append(&a, step(&["1", "2"]).expect(Expect::None).commit(id)).await.must();
        assert_eq!((again.commit, &again.positions, again.version), (id, &first.positions, Some(2)));
    }
    let other = s.streams.append(&a, step(&["x"]).commit(id)).await;
    assert!(matches!(other, Err(Error::Refused(Refused::Reused { .. }))), "{other:?}");
    let base = s.streams.append(&a, step(&["x"]).again(id, Base::seal("elsewhere", &1_u64))).await;
    assert!(matches!(base, Err(Error::Refused(Refused::Foreign { .. }))), "{base:?}");
    assert_eq!(s.streams.load(&a, LoadOptions::default()).await.must().version, 3);
}

/// No events: refused.
pub async fn t15_empty_append_is_refused(s: Subject) {
    for empty in [step(&[]), step(&[]).expect(Expect::None), step(&[]).snapshot(Snapshot::new("v1", "state"))] {
        let outcome = s.streams.append(&name("a"), empty).await;
        assert!(matches!(outcome, Err(Error::Refused(Refused::Empty { .. }))), "{outcome:?}");
    }
}

/// Names that nearly match are different streams, whatever characters they hold.
pub async fn t16_odd_names_stay_apart(s: Subject) {
    let longest = "n".repeat(1000);
    let odd = ["a", "a-", "a-1", "a-11", "A", "a/1", "/", "a#1", "a:1", "a\0", "日本", "🦀", &longest, "n"];
    for (n, odd) in odd.iter().enumerate() {
        add(&s, &name(odd), &[&n.to_string()]).await;
    }
    for (n, odd) in odd.iter().enumerate() {
        let loaded = s.streams.load(&name(odd), LoadOptions::default()).await.must();
        assert_eq!((labels(&loaded.events), loaded.version), (vec![n.to_string()], 1), "{odd:?}");
    }
    let beyond = name(&"n".repeat(1022));
    match s.streams.append(&beyond, step(&["beyond"])).await {
        Ok(_) => assert_eq!(labels(&s.streams.load(&beyond, LoadOptions::default()).await.must().events), ["beyond"]),
        refused => assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { .. }))), "{refused:?}"),
    }
}

/// Long streams and large events: every page, either way, and since a token in the middle.
pub async fn t17_many_pages(s: Subject) {
    let a = name("a");
    let large = "x".repeat(500_000.min(s.capabilities.max_body));
    let mut middle = None;
    for commit in 0..30 {
        let many: Vec<String> = (0..20).map(|n| format!("{commit}.{n}.{}", &large[..2_500])).collect();
        add(&s, &a, &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
        if commit == 14 {
            middle = Some(s.streams.load(&a, LoadOptions::default().latest()).await.must().token);
        }
    }
    if large.len() > s.capabilities.max_body {
        let refused = s.streams.append(&a, step(&[&large])).await;
        assert!(matches!(refused, Err(Error::Refused(Refused::TooLong { .. }))), "{refused:?}");
    }
    // Where bodies are JSON, a label has quotes around it.
    let room = s.capabilities.max_body - if s.capabilities.bodies == Bodies::Json { 64 } else { 0 };
    let last = &large[..large.len().min(room)];
    add(&s, &a, &[last]).await;
    let loaded = s.streams.load(&a, LoadOptions::default()).await.must();
    assert_eq!(versions(&loaded.events), (1..=601).collect::<Vec<_>>());
    assert!(label(&loaded.events[600]) == last && label(&loaded.events[599]).starts_with("29.19."));
    let rest = s.streams.load(&a, LoadOptions::default().since(middle.expect("it was taken"))).await.must();
    assert!(rest.events[..] == loaded.events[300..]);
    let mut backwards = s.streams.read_stream(&a, StreamReadOptions::default().backwards()).await.must();
    backwards.reverse();
    assert!(backwards == loaded.events);
}

/// Where there is a log, a stream is a tag: each sees what the other wrote, and the same conditions hold.
pub async fn t18_stream_is_a_tag_of_the_log(s: Subject) {
    let Some(log) = s.log() else { return };
    let (a, course) = (name("course:c1"), "s-course:c1");
    add(&s, &a, &["1"]).await;
    super::put(&log, "Opened", "2", &[course, "student:s1"]).await;
    super::shows(&s, &super::tag(course), &["1", "2"]).await;
    let loaded = s.streams.load(&a, LoadOptions::default()).await.must();
    assert_eq!((labels(&loaded.events), loaded.version), (vec!["1".into(), "2".into()], 2));
    let outcome = s.streams.append(&a, step(&["x"]).expect(Expect::Version(1))).await;
    brings(&s, &a, outcome, &["2"]).await;
    let mark = super::Mark::now(&s, &super::tag(course)).await;
    add(&s, &a, &["3"]).await;
    super::conflicts(&s, &super::tag(course), &mark, &["3"]).await;
}

/// A commit under an id of the caller's is found by it, with the version it brought the stream to, whatever came since.
pub async fn t19_commit_is_found_by_its_id(s: Subject) {
    let (a, b) = (name("a"), name("b"));
    let id = |n: u128| CommitId(Uuid::from_u128(n));
    add(&s, &a, &["1"]).await;
    let first = s.streams.append(&a, step(&["2", "3"]).commit(id(1))).await.must();
    add(&s, &a, &["4"]).await;
    for turn in 0..2 {
        let streams = &s.handle(turn).streams;
        let found = streams.committed(&a, id(1)).await.must().value.expect("it was recorded");
        assert_eq!((found.commit, &found.positions, found.version), (id(1), &first.positions, Some(3)));
        assert!(streams.committed(&a, id(2)).await.must().value.is_none());
        let elsewhere = streams.committed(&b, id(1)).await;
        assert!(matches!(elsewhere, Err(Error::Refused(Refused::Foreign { .. }))), "{elsewhere:?}");
    }
}

/// A commit id settles a repeat and lifts nothing: an expectation that does not hold is a conflict, and the id stays free.
pub async fn t20_commit_id_lifts_no_expectation(s: Subject) {
    let (a, id) = (name("a"), CommitId(Uuid::from_u128(20)));
    let expecting = |expect| step(&["x"]).expect(expect).commit(id);
    for there in 0..2 {
        let ahead = assert_conflict(s.streams.append(&a, expecting(Expect::Version(3))).await);
        assert!(ahead.events.is_empty(), "the stream is shorter: nothing is new");
        assert_eq!(s.streams.load(&a, LoadOptions::default()).await.must().version, there);
        assert!(s.streams.committed(&a, id).await.must().value.is_none(), "nothing was recorded");
        add(&s, &a, &["other"]).await;
    }
    let behind = assert_conflict(s.streams.append(&a, expecting(Expect::Version(1))).await);
    assert_eq!(labels(&behind.events), ["other"]);
    let first = s.streams.append(&a, expecting(Expect::Version(2))).await.must();
    let again = s.streams.append(&a, expecting(Expect::Version(2))).await.must();
    assert_eq!((first.version, again.version, &again.positions), (Some(3), Some(3), &first.positions));
    assert_eq!(s.streams.load(&a, LoadOptions::default()).await.must().version, 3);
}

/// A repeat keeps no snapshot and claims nothing in its token that its own model has not: another run, which stood further, has landed the commit.
pub async fn t21_repeat_of_another_run_keeps_nothing_of_its_own(s: Subject) {
    let a = name("a");
    let id = CommitId(Uuid::from_u128(90));
    add(&s, &a, &["1"]).await;
    let early = s.streams.load(&a, LoadOptions::default()).await.must().token;
    add(&s, &a, &["2"]).await;
    let late = s.streams.load(&a, LoadOptions::default()).await.must().token;
    let first = s.streams.append(&a, step(&["3"]).expect(Expect::Token(late)).commit(id)).await.must();
    let called = if s.capabilities.snapshots == Snapshots::Single { "snapshot" } else { "v1" };
    for turn in 0..2 {
        let streams = &s.handle(turn).streams;
        let blind = step(&["3"]).expect(Expect::Token(early.clone())).commit(id).snapshot(Snapshot::new(called, "1 and 3"));
        let again = streams.append(&a, blind).await.must();
        assert_eq!((&again.positions, again.version), (&first.positions, Some(3)));
        let loaded = streams.load(&a, LoadOptions::default().snapshot(["v1", "snapshot"])).await.must();
        assert!(loaded.snapshots.iter().all(|kept| kept.state != "1 and 3"), "a state that lacks event 2 is handed to everybody");
        let Some(token) = again.token else { continue };
        let outcome = streams.append(&a, step(&["blind"]).expect(Expect::Token(token))).await;
        assert!(labels(&assert_conflict(outcome).events).contains(&"2".to_owned()), "event 2 was in no model of this token");
    }
}
