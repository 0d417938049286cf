//! U: what changes beside the log: checkpoints of consumers, folded states, cells and the leases in them, by compare-and-set.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Must, Subject, race};
use crate::{CellKey, CellKind, Checkpoint, Env, Error, Lease, Refused, Revision, Standing, State, Token, Watch};

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

fn cell(name: &str, number: u64) -> CellKey {
    CellKey::new(CellKind::Lease, name, number).must()
}

/// A cell is stored if there is none, replaced against its revision; a stale one loses, and of many at once one wins.
pub async fn u07_cell_compare_and_set(s: Subject) {
    let c = &s.cells;
    let key = cell("worker", 3);
    assert!(c.load(&key).await.must().is_none());
    assert!(c.save(&key, &"x".into(), Some(Revision(1))).await.must().is_none(), "there is none to replace");
    let first = c.save(&key, &"one".into(), None).await.must().expect("there was none");
    let second = c.save(&key, &"two".into(), Some(first)).await.must().expect("nobody else did");
    for stale in [None, Some(first), Some(Revision(second.0 + 1))] {
        assert!(c.save(&key, &"stale".into(), stale).await.must().is_none(), "{stale:?}");
    }
    let got = s.handle(1).cells.load(&key).await.must().expect("it was stored");
    assert_eq!((got.number, &got.body[..], got.revision), (3, &b"two"[..], second));
    let saved = race((0..8).map(|turn| {
        let (cells, key) = (s.handle(turn).cells.clone(), key.clone());
        async move { cells.save(&key, &Bytes::from(turn.to_string()), Some(second)).await.must() }
    }))
    .await;
    assert_eq!(saved.iter().flatten().count(), 1, "one of many wins");
}

/// Cells of one kind and name come by number; those of others do not, whatever their names begin with.
pub async fn u08_cells_are_listed_by_number(s: Subject) {
    let big = u64::from(u32::MAX) + 2;
    for number in [big, 0, 10, 9] {
        s.cells.save(&cell("a", number), &Bytes::from(number.to_string()), None).await.must().expect("a place of its own");
    }
    for (kind, name) in [(CellKind::Parked, "a"), (CellKind::Lease, "ab"), (CellKind::Projection, "a"), (CellKind::Names, "a")] {
        s.cells.save(&CellKey::new(kind, name, 0).must(), &"other".into(), None).await.must().expect("a place of its own");
    }
    let listed = s.handle(1).cells.list(CellKind::Lease, "a").await.must();
    assert_eq!(listed.iter().map(|cell| cell.number).collect::<Vec<_>>(), [0, 9, 10, big]);
    assert!(listed.iter().all(|cell| cell.body == cell.number.to_string()));
    assert!(s.cells.list(CellKind::Lease, "b").await.must().is_empty());
    assert!(matches!(s.cells.list(CellKind::Lease, "a/b").await, Err(Error::Refused(Refused::BadName { .. }))));
    assert!(matches!(CellKey::new(CellKind::Lease, "a/b", 0), Err(Error::Refused(Refused::BadName { .. }))));
}

/// Only who knows the cell's last write removes it.
pub async fn u09_cell_is_deleted_by_its_revision_only(s: Subject) {
    let key = cell("worker", 0);
    assert!(!s.cells.delete(&key, Revision(1)).await.must(), "there is none");
    let first = s.cells.save(&key, &"one".into(), None).await.must().expect("there was none");
    let second = s.cells.save(&key, &"two".into(), Some(first)).await.must().expect("nobody else did");
    assert!(!s.handle(1).cells.delete(&key, first).await.must());
    assert!(s.cells.load(&key).await.must().is_some());
    assert!(s.cells.delete(&key, second).await.must());
    assert!(s.cells.load(&key).await.must().is_none());
}

/// What does not fit one cell is refused with the limit, and the cell stays as it was.
pub async fn u10_cell_too_large_is_refused(s: Subject) {
    let noise = |bytes: usize| {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        Bytes::from((0..bytes).map(|_| next()).collect::<Vec<_>>())
    };
    let key = cell("worker", 0);
    let fits = noise(390 * 1024);
    let first = s.cells.save(&key, &fits, None).await.must();
    match s.cells.save(&key, &noise(400 * 1024), first).await {
        Err(Error::Refused(Refused::TooLong { bytes, limit, .. })) => assert!(bytes > limit, "{bytes} of {limit}"),
        other => panic!("must be refused: {other:?}"),
    }
    assert_eq!(s.cells.load(&key).await.must().expect("as it was").body, fits);
}

/// Long enough that a test under load does not lose it by accident, short enough to wait for.
const LEASE: Duration = Duration::from_millis(400);

async fn try_take(s: &Subject, turn: usize, me: u128, watch: &mut Watch) -> Option<Lease> {
    Lease::try_take(&s.handle(turn).cells, &cell("work", 1), Uuid::from_u128(me), LEASE, watch).await.must()
}

fn kept(standing: Standing) -> bool {
    matches!(standing, Standing::Kept { .. })
}

/// Many reach for a free lease at once: one has it; given up, it is free at once, and what goes with it is there.
pub async fn u11_lease_race_one_holder(s: Subject) {
    let takers = race((0..8).map(|turn| {
        let s = s.clone();
        async move { try_take(&s, turn, turn as u128 + 1, &mut Watch::default()).await }
    }))
    .await;
    let mut held: Vec<Lease> = takers.into_iter().flatten().collect();
    assert_eq!(held.len(), 1);
    let mut lease = held.pop().expect("one");
    assert_eq!(*lease.content(), Value::Null);
    assert!(kept(lease.renew(json!({"at": 1})).await.must()));
    assert!(kept(lease.release(json!({"at": 2})).await.must()));
    let next = try_take(&s, 1, 99, &mut Watch::default()).await.expect("given up");
    assert_eq!(*next.content(), json!({"at": 2}));
}

/// A lease is taken over only after the taker itself has seen the same beat for the lease's length: renewals begin its wait anew.
pub async fn u12_lease_passes_on_after_silence_only(s: Subject) {
    let (env, mut watch) = (Env::system(), Watch::default());
    let mut lease = try_take(&s, 0, 1, &mut Watch::default()).await.expect("free");
    for beat in 0..4 {
        assert!(try_take(&s, 1, 2, &mut watch).await.is_none(), "beat {beat}");
        env.sleep(LEASE / 2).await;
        assert!(kept(lease.renew(json!(beat)).await.must()), "beat {beat}");
    }
    env.sleep(LEASE * 2).await;
    assert!(try_take(&s, 1, 3, &mut Watch::default()).await.is_none(), "who has just come has watched nothing");
    assert!(try_take(&s, 1, 2, &mut watch).await.is_none(), "another beat than when it last looked: its wait begins anew");
    env.sleep(LEASE + LEASE / 4).await;
    let taken = try_take(&s, 1, 2, &mut watch).await.expect("the holder was silent");
    assert_eq!(*taken.content(), json!(3));
}

/// A holder that wakes after its lease went to another writes nothing, even where the other has given it up again.
pub async fn u13_late_waker_is_fenced(s: Subject) {
    let mut late = try_take(&s, 0, 1, &mut Watch::default()).await.expect("free");
    assert!(kept(late.renew(json!("late")).await.must()));
    let mut taken = Lease::take(&s.handle(1).cells, &cell("work", 1), Uuid::from_u128(2), LEASE, &Env::system()).await.must();
    assert!(late.silence() >= LEASE);
    assert_eq!(late.renew(json!("too late")).await.must(), Standing::Lost);
    assert!(kept(taken.renew(json!("new")).await.must()));
    assert!(kept(taken.release(json!("done")).await.must()));
    assert_eq!(late.renew(json!("too late")).await.must(), Standing::Lost);
    assert_eq!(late.release(json!("too late")).await.must(), Standing::Lost);
    assert_eq!(*try_take(&s, 0, 3, &mut Watch::default()).await.expect("given up").content(), json!("done"));
}

/// A ring reaches the holder, who keeps the lease; it keeps no dead holder alive; and no ring is lost when the lease is given up.
pub async fn u14_lease_hears_a_ring(s: Subject) {
    let (key, me, ringer) = (cell("work", 1), Uuid::from_u128(1), Uuid::from_u128(2));
    let cells = &s.handle(1).cells;
    assert!(!Lease::ring(cells, &key, ringer).await.must(), "nobody holds it");
    let mut lease = try_take(&s, 0, 1, &mut Watch::default()).await.expect("free");
    assert!(Lease::ring(cells, &key, ringer).await.must());
    assert_eq!(lease.renew(json!(1)).await.must(), Standing::Kept { rung: Some(ringer), barred: false });
    assert_eq!(lease.release_unless_rung(json!(2)).await.must(), Standing::Kept { rung: Some(ringer), barred: false }, "rung: kept");
    assert!(Lease::ring(cells, &key, ringer).await.must());
    assert!(kept(lease.release_unless_rung(json!(3)).await.must()), "a ring that it has not seen yet");
    assert_eq!(lease.release_unless_rung(json!(4)).await.must(), Standing::Lost, "given up");
    let mut lease = try_take(&s, 0, 1, &mut Watch::default()).await.expect("free");
    assert!(Lease::ring(cells, &key, ringer).await.must());
    assert!(kept(lease.renew(json!(5)).await.must()));
    assert!(kept(lease.release(json!(6)).await.must()));
    assert!(try_take(&s, 0, 1, &mut Watch::default()).await.is_none(), "the ringer has the first turn");
    assert!(try_take(&s, 1, 2, &mut Watch::default()).await.is_some());
    // A dead holder, rung again and again.
    let (env, mut watch) = (Env::system(), Watch::default());
    assert!(try_take(&s, 0, me.as_u128() + 6, &mut watch).await.is_none());
    for turn in 0..5 {
        env.sleep(LEASE / 4).await;
        assert!(Lease::ring(cells, &key, Uuid::from_u128(10 + turn)).await.must());
    }
    assert!(try_take(&s, 0, me.as_u128() + 6, &mut watch).await.is_some());
}
