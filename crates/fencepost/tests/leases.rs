//! Leases whose answers are lost: what a holder wrote is its own, heard of or not, and what another wrote never is.

mod follow;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost::testing::{Faults, Rule};
use fencepost::{CellKey, CellKind, CellWrite, Cells, Consumer, Env, Fenced, From, Lease, Memory, Standing, Store, Timeouts, Watch};
use follow::cells::{Judged, Verdict};
use follow::{Place, Recording, place, wait_until};
use serde_json::json;
use support::{Ground, open};
use uuid::Uuid;

fn lost_answers(place: &Place, nth: &'static [usize]) -> Arc<Judged> {
    let saves = AtomicUsize::new(0);
    Judged::new(&place.cells, move |key, _| {
        let is_lost = key.kind() == CellKind::Lease && nth.contains(&saves.fetch_add(1, Ordering::SeqCst));
        if is_lost { Verdict::Unheard } else { Verdict::Done }
    })
}

fn kept(standing: Standing) -> bool {
    matches!(standing, Standing::Kept { .. })
}

/// Its renewal was stored and nobody heard of it; by the next one its place has moved.
#[tokio::test]
async fn a_renewal_that_landed_unheard_is_its_own_wherever_its_place_is_by_now() {
    let (me, other, length) = (Uuid::from_u128(1), Uuid::from_u128(2), Duration::from_millis(50));
    let key = CellKey::new(CellKind::Lease, "work", 1).expect("a key");
    let fresh = async |nth| {
        let place = place(Memory::new());
        let cells: Arc<dyn Cells> = lost_answers(&place, nth);
        let lease = Lease::try_take(&cells, &key, me, length, &mut Watch::default()).await.expect("takes").expect("free");
        (place, cells, lease)
    };
    // Renewed, twice unheard.
    let (place, _, mut lease) = fresh(&[1, 4]).await;
    assert!(lease.renew(json!(1)).await.is_err());
    assert!(kept(lease.renew(json!(2)).await.expect("renews")));
    assert!(lease.renew(json!(3)).await.is_err());
    assert!(kept(lease.renew(json!(4)).await.expect("renews")));
    let stored = place.cells.load(&key).await.expect("reads").expect("there");
    assert!(std::str::from_utf8(&stored.body).expect("text").contains(r#""content":4"#), "{:?}", stored.body);
    // Given up: free at once.
    let (_, cells, mut lease) = fresh(&[1]).await;
    assert!(lease.renew(json!(1)).await.is_err());
    assert!(kept(lease.release(json!(2)).await.expect("gives it up")));
    let next = Lease::try_take(&cells, &key, other, length, &mut Watch::default()).await.expect("takes").expect("free");
    assert_eq!(*next.content(), json!(2));
    // With what only the holder may write.
    let (_, cells, mut lease) = fresh(&[1]).await;
    let write = |number| {
        vec![CellWrite::Save { key: CellKey::new(CellKind::Parked, "work", number).expect("a key"), body: "{}".into(), expect: None }]
    };
    assert!(lease.renew(json!(1)).await.is_err());
    assert!(matches!(lease.renew_with(json!(2), write(1)).await.expect("writes"), Fenced::Written(_)));
    assert!(cells.load(&CellKey::new(CellKind::Parked, "work", 1).expect("a key")).await.expect("reads").is_some());
    // Another's is another's: by then it was silent for too long, or moved by an operator.
    for taken in [true, false] {
        let (_, cells, mut lease) = fresh(&[1]).await;
        assert!(lease.renew(json!(1)).await.is_err());
        if taken {
            drop(Lease::take(&cells, &key, other, length, &Env::system()).await.expect("takes"));
        } else {
            let mailer = Consumer::new("work", Arc::new(Memory::new()), cells.clone(), Env::system()).expect("a good name");
            let _ = mailer.run_until(Recording::default().handler(), async {}).await.expect("it runs");
            mailer.rewind(From::Start).await.expect("rewinds");
        }
        assert_eq!(lease.renew(json!(2)).await.expect("hears of it"), Standing::Lost);
        assert_eq!(lease.renew_with(json!(3), write(2)).await.expect("hears of it"), Fenced::Lost);
        assert_eq!(lease.release(json!(4)).await.expect("hears of it"), Standing::Lost);
        assert!(cells.load(&CellKey::new(CellKind::Parked, "work", 2).expect("a key")).await.expect("reads").is_none());
    }
}

/// A renewal landed unheard. What is written next beside the lease, with the same place, is lost on its way, and then refused: the renewal that is
/// found there is not taken for it.
#[tokio::test]
async fn what_was_to_be_written_beside_the_lease_is_not_taken_for_written_by_a_renewal_before_it() {
    let Ground::Engine(engine) = Ground::embedded() else { unreachable!("it is embedded") };
    let faults = Faults::new(engine.http_client(), 1);
    let timeouts = Timeouts { attempts: 2, ..Timeouts::default() };
    let store = open(Store::builder("memory:").expect("a URL").timeouts(timeouts).http_client(faults.http_client())).await;
    let (cells, me) = (store.cells(), Uuid::from_u128(1));
    let key = CellKey::new(CellKind::Lease, "work", 1).expect("a key");
    let lease = Lease::try_take(&cells, &key, me, Duration::from_secs(9), &mut Watch::default()).await;
    let mut lease = lease.expect("takes").expect("free");
    faults.script(Rule::on("PutItem").nth(1).lose_response());
    faults.script(Rule::on("PutItem").nth(2).lose_request());
    assert!(lease.renew(json!(1)).await.is_err());
    faults.calm();
    faults.script(Rule::on("TransactWriteItems").nth(1).lose_request());
    let parked = CellKey::new(CellKind::Parked, "work", 1).expect("a key");
    let write = CellWrite::Save { key: parked.clone(), body: "{}".into(), expect: None };
    assert!(matches!(lease.renew_with(json!(1), vec![write]).await.expect("writes"), Fenced::Written(_)));
    assert!(cells.load(&parked).await.expect("reads").is_some(), "it was told as written");
}

/// What it saves is refused now and then by its own write of before: it goes on, and nothing is handled twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_whose_answers_are_lost_keeps_its_partition() {
    let place = place(Memory::new());
    let (saves, recording) = (AtomicUsize::new(0), Recording::default());
    let seen = recording.clone();
    let cells = Judged::new(&place.cells, move |key, _| {
        let is_partition = key.kind() == CellKind::Lease && key.number() == 1;
        // Not at the end, when it gives the partition up.
        let is_lost = is_partition && seen.len() < 60 && saves.fetch_add(1, Ordering::SeqCst) % 3 == 1;
        if is_lost { Verdict::Unheard } else { Verdict::Done }
    });
    let script = async {
        for n in 0..60 {
            place.append(&[(&n.to_string(), &["a"])]).await;
            Env::system().sleep(Duration::from_millis(5)).await;
        }
        wait_until(|| recording.labels().contains(&59)).await;
    };
    let mailer = Consumer::new("mailer", place.feed.clone(), cells, Env::system()).expect("a good name");
    // Nobody waits for it, and an answer that is lost after a long silence would lose it.
    let mailer = mailer.lease(Duration::from_secs(60)).save_every(7, Duration::from_millis(5));
    let _ = mailer.run_until(recording.handler(), script).await.expect("it runs");
    assert_eq!(recording.labels(), (0..60).collect::<Vec<_>>());
}
