//! The keys of v3 come from `types=`, `shards=` and `hash=`: with others than the tables were written with, an aggregate would lie in two places.

use fencepost::{Error, Expect, LoadOptions, Reason, Snapshot, Step};

use super::support::{Ground, open};
use super::{V3, bench, event, first, name, scan};

/// What lies under another key is told, by reads and by appends, and nothing is written beside it.
#[tokio::test]
async fn a_wrong_hash_shard_count_or_type_is_told_and_forks_nothing() {
    for (stream, right, wrong) in [
        ("user-a", "", "&hash=java&dialect=v3"),
        ("user-a", "", "&shards=32"),
        ("user-account-a", "&types=user-account", ""),
        ("user-account-a", "", "&types=user-account"),
    ] {
        let (engine, store, client) = bench(&format!("{V3}{right}&table=orders")).await;
        let (stream, told) = (name(stream), format!("{right} against {wrong}"));
        store.streams().append(&stream, first([event("A", "1"), event("A", "2")])).await.expect("appends");
        let other = open(Ground::Engine(engine).builder(&format!("{V3}{wrong}&table=orders"))).await;
        let streams = other.streams();
        let differs = |outcome: Result<(), Error>| match outcome {
            Err(Error::Unavailable(u)) if u.reason == Reason::Differs => {
                ["types=", "shards=", "hash="].iter().all(|p| u.message.contains(p))
            }
            _ => false,
        };
        for options in [LoadOptions::default(), LoadOptions::default().snapshot(["snapshot"]), LoadOptions::default().eventual()] {
            assert!(differs(streams.load(&stream, options).await.map(|_| ())), "{told}");
        }
        for expect in [Expect::Any, Expect::Version(2)] {
            let step = first([event("A", "3")]).expect(expect);
            assert!(differs(streams.append(&stream, step).await.map(|_| ())), "{told}");
        }
        assert_eq!((scan(&client, "orders-journal").await.len(), scan(&client, "orders-snapshot").await.len()), (2, 1), "{told}");
        let findings = other.verify(&|_| ()).await.expect("verifies").findings;
        assert!(findings.iter().any(|finding| finding.problem.contains("shards=")), "{told}: {findings:?}");
    }
}

/// The lock of a stream with events is gone: it is not made again from nothing, at whatever version that would be.
#[tokio::test]
async fn a_lock_is_made_with_the_first_event_only() {
    for expect in [Expect::Any, Expect::Version(2)] {
        let (engine, store, client) = bench(&format!("{V3}&table=orders")).await;
        let a = name("user-a");
        store.streams().append(&a, first([event("A", "1"), event("A", "2")])).await.expect("appends");
        let lock = scan(&client, "orders-snapshot").await.remove(0);
        let key = lock.into_iter().filter(|(name, _)| ["pkey", "skey"].contains(&name.as_str())).collect();
        client.delete_item().table_name("orders-snapshot").set_key(Some(key)).send().await.expect("deletes");
        for streams in [store.streams(), open(Ground::Engine(engine.clone()).builder(&format!("{V3}&table=orders"))).await.streams()] {
            let step = Step::new([event("A", "3")]).snapshot(Snapshot::new("snapshot", "{}")).expect(expect.clone());
            let answer = streams.append(&a, step).await;
            assert!(matches!(&answer, Err(Error::Corrupt(c)) if c.what.contains("snapshot")), "{expect:?}: {answer:?}");
        }
        assert_eq!((scan(&client, "orders-journal").await.len(), scan(&client, "orders-snapshot").await.len()), (2, 0), "{expect:?}");
    }
}
