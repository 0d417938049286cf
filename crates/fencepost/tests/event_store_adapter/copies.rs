//! Copies: from these layouts and to them.

use fencepost::moving::Copy;
use fencepost::{Error, LoadOptions, Metadata, Query, Recorded, Refused, Step, Store};

use super::feed::{catch_up, fed, write};
use super::support::{Ground, open};
use super::{V3, V5, event, first, name};

#[tokio::test]
async fn a_copy_brings_every_event_over() {
    let from_v3 = [V5, "layout=ledger", "layout=ledger&feed=streams"];
    let from_v5 = ["layout=ledger"];
    let pairs = from_v3.map(|to| (V3, to)).into_iter().chain(from_v5.map(|to| (V5, to)));
    for (from, to) in pairs {
        let (source, target) = (open(Ground::embedded().builder(from)).await, open(Ground::embedded().builder(to)).await);
        let meta = Metadata { user: Some("ada".into()), ..Metadata::default() };
        source.streams().append(&name("user-0"), first([event("A", "0").meta(meta).id(uuid::Uuid::from_u128(3))])).await.expect("appends");
        let events = 1 + write(&[&source], 3, 12).await as u64;
        catch_up(&source).await;
        let copy = Copy::new(&source, &target, "test");
        assert_eq!(copy.run(&|_| ()).await.expect("copies").events, events, "{from} to {to}");
        source.streams().append(&name("user-1"), Step::new([event("A", "later")])).await.expect("appends");
        catch_up(&source).await;
        assert_eq!(copy.run(&|_| ()).await.expect("goes on").events, 1, "{from} to {to}");
        let compared = copy.compare(&|_| ()).await.expect("compares");
        assert!(compared.is_equal() && compared.source == events + 1, "{from} to {to}: {compared:?}");
        for n in 0..3 {
            let stream = name(&format!("user-{n}"));
            let all = async |store: &Store| store.streams().load(&stream, LoadOptions::default()).await.expect("loads").events;
            let told = |event: &Recorded| (event.version, event.id, event.event_type.clone(), event.data.clone(), event.occurred_at());
            let (before, after) = (all(&source).await, all(&target).await);
            assert_eq!(before.iter().map(told).collect::<Vec<_>>(), after.iter().map(told).collect::<Vec<_>>(), "{from} to {to}");
        }
        if to == V5 {
            catch_up(&target).await;
            assert_eq!(fed(&target, Query::all()).await.len() as u64, events + 1);
        }
    }
    // A commit over several tags has no stream to go to.
    let (source, target) = (open(Ground::embedded().builder("layout=ledger")).await, open(Ground::embedded().builder(V5)).await);
    source.record(vec![event("A", "{}").tag("user-1").and_then(|e| e.tag("user-2")).expect("tags")]).await.expect("records");
    let refused = Copy::new(&source, &target, "test").run(&|_| ()).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Unsupported { .. }))), "{refused:?}");
}
