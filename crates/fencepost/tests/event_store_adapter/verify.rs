//! Looking after the tables: what is wrong is named.

use super::feed::write;
use super::{BOTH, Item, V5, bench, number, scan, text};

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
