//! Looking after the tables: what is wrong is named.

use super::feed::write;
use super::{BOTH, Item, V5, bench, number, put, scan, text};

#[tokio::test]
async fn verify_names_what_is_missing() {
    for layout in BOTH {
        let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
        write(&[&store], 2, 8).await;
        let well = store.verify(&|_| ()).await.expect("verifies");
        assert_eq!((well.commits, well.findings.len()), (8, 0), "{layout}: {well:?}");
        let of = |item: &Item| item["aid"] == text("user-1") && item["seq_nr"] == number(2);
        let lost = scan(&client, "orders-journal").await.into_iter().find(of).expect("an event");
        let keys: &[&str] = if layout == V5 { &["aid", "seq_nr"] } else { &["pkey", "skey"] };
        let key: Item = lost.into_iter().filter(|(name, _)| keys.contains(&name.as_str())).collect();
        client.delete_item().table_name("orders-journal").set_key(Some(key)).send().await.expect("deletes");
        let findings = store.verify(&|_| ()).await.expect("verifies").findings;
        assert_eq!(findings.len(), 1, "{layout}: {findings:?}");
        assert!(findings[0].item.contains("user-1") && findings[0].problem.contains("from 2 to 2"), "{findings:?}");
    }
}

/// The lock of v3 counts the events, the head of v5 names the last: one that says another number, or is not there, is named.
#[tokio::test]
async fn verify_names_a_lock_that_is_not_where_its_events_end() {
    for layout in BOTH {
        let (table, of) = if layout == V5 { ("orders-head", "seq_nr") } else { ("orders-snapshot", "version") };
        for said in [Some(3), Some(9), None] {
            let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
            write(&[&store], 2, 8).await;
            let locks = scan(&client, table).await.into_iter();
            let mut lock = locks.into_iter().find(|item| item["aid"] == text("user-1")).expect("a lock");
            match said {
                Some(said) => {
                    lock.insert(of.into(), number(said));
                    put(&client, table, lock).await;
                }
                None => {
                    let keys: &[&str] = if layout == V5 { &["aid"] } else { &["pkey", "skey"] };
                    let key = lock.into_iter().filter(|(name, _)| keys.contains(&name.as_str())).collect();
                    client.delete_item().table_name(table).set_key(Some(key)).send().await.expect("deletes");
                }
            }
            let findings = store.verify(&|_| ()).await.expect("verifies").findings;
            assert_eq!(findings.len(), 1, "{layout} {said:?}: {findings:?}");
            let Some(said) = said else { continue };
            assert!(findings[0].item.contains("user-1") && findings[0].problem.contains(&said.to_string()), "{layout}: {findings:?}");
        }
    }
}
