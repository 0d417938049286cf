//! U: what changes beside the log: checkpoints of consumers and folded states, by compare-and-set.

use bytes::Bytes;

use super::{Must, Subject, race};
use crate::{Checkpoint, Error, Refused, Revision, State, Token};

fn checkpoint(n: u64) -> Checkpoint {
    Checkpoint::seal("suite", &n)
}

fn state(body: impl Into<Bytes>, n: u64) -> State {
    State { body: body.into(), token: Token::seal("suite", &n) }
}

/// A checkpoint is stored if there is none, moved against its revision, and each consumer has its own.
pub async fn u01_checkpoint_compare_and_set(s: Subject) {
    let c = &s.checkpoints;
    assert!(c.load("mailer").await.must().is_none());
    let first = c.save("mailer", &checkpoint(1), None).await.must().expect("there was none");
    assert_eq!(c.load("mailer").await.must(), Some((checkpoint(1), first)));
    let second = c.save("mailer", &checkpoint(2), Some(first)).await.must().expect("nobody else moved it");
    assert!(second > first);
    assert_eq!(s.handle(1).checkpoints.load("mailer").await.must(), Some((checkpoint(2), second)));
    assert!(c.load("Mailer").await.must().is_none(), "each consumer has its own");
}

/// A stale revision loses, and so does "none yet" where there is one, and any revision where there is none.
pub async fn u02_stale_checkpoint_loses(s: Subject) {
    let c = &s.checkpoints;
    assert!(c.save("mailer", &checkpoint(9), Some(Revision(1))).await.must().is_none(), "there is none to move");
    let first = c.save("mailer", &checkpoint(1), None).await.must().expect("there was none");
    let second = c.save("mailer", &checkpoint(2), Some(first)).await.must().expect("nobody else moved it");
    for stale in [None, Some(first), Some(Revision(second.0 + 1))] {
        assert!(c.save("mailer", &checkpoint(3), stale).await.must().is_none(), "{stale:?}");
    }
    assert_eq!(c.load("mailer").await.must(), Some((checkpoint(2), second)));
}

/// Many move a checkpoint at once: one wins.
pub async fn u03_checkpoint_race_one_winner(s: Subject) {
    let mut expect = None;
    for round in 0..4 {
        let saved = race((0..8).map(|turn| {
            let checkpoints = s.handle(turn).checkpoints.clone();
            async move { checkpoints.save("mailer", &checkpoint(turn as u64), expect).await.must() }
        }))
        .await;
        let won: Vec<_> = saved.iter().enumerate().filter_map(|(turn, saved)| saved.map(|revision| (turn as u64, revision))).collect();
        assert_eq!(won.len(), 1, "round {round}");
        let (winner, revision) = won[0];
        assert_eq!(s.checkpoints.load("mailer").await.must(), Some((checkpoint(winner), revision)));
        expect = Some(revision);
    }
}

/// Names out of bounds are refused; those within are kept apart.
pub async fn u04_names_are_checked(s: Subject) {
    for bad in ["", "a/b", "a b", "a:b", "é", "a\0", &"x".repeat(65)] {
        let outcomes = [
            s.checkpoints.load(bad).await.map(|_| ()),
            s.checkpoints.save(bad, &checkpoint(1), None).await.map(|_| ()),
            s.states.load(bad, "key").await.map(|_| ()),
            s.states.save(bad, "key", &state("x", 1), None).await.map(|_| ()),
        ];
        for outcome in outcomes {
            assert!(matches!(outcome, Err(Error::Refused(Refused::BadName { .. }))), "{bad:?}: {outcome:?}");
        }
    }
    for bad in [String::new(), "k".repeat(1025)] {
        assert!(matches!(s.states.load("model", &bad).await, Err(Error::Refused(_))));
        assert!(matches!(s.states.save("model", &bad, &state("x", 1), None).await, Err(Error::Refused(_))));
    }
    let longest = "x".repeat(64);
    for (n, good) in ["a", "A", "a.b", "a_b", "a-b", "0", &longest].into_iter().enumerate() {
        s.checkpoints.save(good, &checkpoint(n as u64), None).await.must().expect("a name of its own");
    }
}

/// A state is stored if there is none, replaced against its revision; a stale one loses.
pub async fn u05_state_compare_and_set(s: Subject) {
    let st = &s.states;
    assert!(st.load("model", "course:c1").await.must().is_none());
    let first = st.save("model", "course:c1", &state("one", 1), None).await.must().expect("there was none");
    assert_eq!(st.load("model", "course:c1").await.must(), Some((state("one", 1), first)));
    let second = st.save("model", "course:c1", &state("two", 2), Some(first)).await.must().expect("nobody else did");
    for stale in [None, Some(first), Some(Revision(second.0 + 1))] {
        assert!(st.save("model", "course:c1", &state("stale", 3), stale).await.must().is_none(), "{stale:?}");
    }
    assert_eq!(s.handle(1).states.load("model", "course:c1").await.must(), Some((state("two", 2), second)));
}

/// Each name and key has a state of its own, whatever characters the key holds; bodies come back as they were.
pub async fn u06_states_stay_apart(s: Subject) {
    let longest = "k".repeat(1024);
    let keys = ["a", "a/", "a/b", "/", "#", ":", "\0", "é", "🦀", &longest];
    let body = |name: &str, n: usize| {
        let binary: Vec<u8> = (0..=255).chain(name.bytes()).chain([n as u8]).collect();
        if n == 0 { Vec::new() } else { binary }
    };
    for name in ["one", "two", "one.a"] {
        for (n, key) in keys.iter().enumerate() {
            s.states.save(name, key, &state(body(name, n), n as u64), None).await.must().expect("a place of its own");
        }
    }
    for name in ["one", "two", "one.a"] {
        for (n, key) in keys.iter().enumerate() {
            let (got, _) = s.states.load(name, key).await.must().expect("it was stored");
            assert_eq!(got, state(body(name, n), n as u64), "{name} {key:?}");
        }
    }
}
