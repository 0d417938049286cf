//! Leases: one holder at a time, taken over only after as long a silence as was watched, and a holder that wakes up late is told.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fencepost::{Env, GivenUp, Lease, Leases, Lessee, Marked, Memory};
use support::{Ground, open};

const LENGTH: Duration = Duration::from_millis(60);

async fn everywhere() -> Vec<Arc<dyn Leases>> {
    let store = open(Ground::fresh().builder("feed=lanes-1")).await;
    vec![Arc::new(Memory::new()), store.leases()]
}

fn lessee(leases: &Arc<dyn Leases>, me: &str) -> Lessee {
    Lessee::new(leases.clone(), "work", me, LENGTH, Env::system())
}

#[tokio::test]
async fn a_lease_is_stored_only_over_what_was_expected() {
    for leases in everywhere().await {
        let lease = |beat, marks| Lease { holder: Some("a".into()), beat, marks };
        assert!(leases.load("work").await.unwrap().is_none());
        assert!(!leases.save("work", &lease(1, 0), Some(&lease(0, 0))).await.unwrap());
        assert!(leases.save("work", &lease(1, 0), None).await.unwrap());
        assert!(!leases.save("work", &lease(1, 0), None).await.unwrap());
        assert!(!leases.save("work", &lease(2, 0), Some(&lease(1, 1))).await.unwrap());
        assert!(leases.save("work", &Lease { holder: None, ..lease(2, 1) }, Some(&lease(1, 0))).await.unwrap());
        assert_eq!(leases.load("work").await.unwrap(), Some(Lease { holder: None, beat: 2, marks: 1 }));
        assert!(leases.load("not/a name").await.is_err());
    }
}

#[tokio::test]
async fn a_holder_that_renews_keeps_it_and_one_that_is_silent_loses_it() {
    for leases in everywhere().await {
        let (mut one, mut two) = (lessee(&leases, "one"), lessee(&leases, "two"));
        assert!(one.try_take().await.unwrap());
        for _ in 0..6 {
            assert!(!two.try_take().await.unwrap());
            tokio::time::timeout(LENGTH / 2, std::future::pending::<()>()).await.unwrap_err();
            assert!(one.renew().await.unwrap());
        }
        let began = tokio::time::Instant::now();
        two.take().await.unwrap();
        assert!(began.elapsed() >= LENGTH, "it was watched for the length: {:?}", began.elapsed());
        // The first wakes up late.
        assert!(!one.renew().await.unwrap() && !one.is_held());
        assert_eq!(one.give_up(0).await.unwrap(), GivenUp::Lost);
        assert!(two.renew().await.unwrap());
    }
}

#[tokio::test]
async fn marks_are_seen_before_it_is_given_up_and_do_not_keep_a_dead_holder_alive() {
    for leases in everywhere().await {
        let (mut one, mut two) = (lessee(&leases, "one"), lessee(&leases, "two"));
        assert_eq!(two.mark().await.unwrap(), Marked::Free);
        assert!(one.try_take().await.unwrap());
        let marks = one.look().await.unwrap().unwrap();
        assert_eq!(two.mark().await.unwrap(), Marked::Left);
        assert!(one.renew().await.unwrap(), "a mark takes nothing from the holder");
        assert_eq!(one.give_up(marks).await.unwrap(), GivenUp::Marked);
        let marks = one.look().await.unwrap().unwrap();
        assert_eq!(one.give_up(marks).await.unwrap(), GivenUp::Done);
        assert!(two.try_take().await.unwrap(), "what was given up is taken at once");
        // Two is silent from here on, and rung again and again.
        let began = tokio::time::Instant::now();
        while !one.try_take().await.unwrap() {
            assert!(began.elapsed() < 50 * LENGTH, "marks kept it alive");
            one.mark().await.unwrap();
            tokio::time::timeout(LENGTH / 10, std::future::pending::<()>()).await.unwrap_err();
        }
        assert!(began.elapsed() >= LENGTH);
    }
}

#[tokio::test]
async fn of_many_who_want_it_one_has_it() {
    for leases in everywhere().await {
        let tries = (0..16).map(|n| {
            let mut one = lessee(&leases, &format!("n{n}"));
            async move { one.try_take().await.unwrap() }
        });
        let taken = futures::future::join_all(tries).await.into_iter().filter(|taken| *taken).count();
        assert_eq!(taken, 1);
    }
}
