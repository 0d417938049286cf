//! No read hands out a stream with a hole: an index may show an event before the one below it, and a query or a batch may meet a commit of
//! several events half done. A token behind such a read would hold, and a decision that never saw an event would stand.

use std::sync::Arc;

use fencepost::testing::{Faults, Lag, Rule};
use fencepost::{Engine, Error, Expect, LoadOptions, Result, Step, Store, StreamReadOptions, StreamStore, StreamStoreExt, Timeouts};
use serde_json::Value;

use super::half::Half;
use super::support::open;
use super::{BOTH, Item, V3, V5, bench, event, first, name, scan};

fn numbered(version: u64) -> impl Fn(&Value) -> bool + Send + 'static {
    move |item| item["seq_nr"]["N"].as_str() == Some(&version.to_string()) && item.get("occurred_at").is_some()
}

/// The versions that each kind of read has, from the first event on.
async fn versions(streams: &Arc<dyn StreamStore>, options: LoadOptions) -> Result<Vec<u64>> {
    let loaded = streams.load(&name("user-a"), options).await?;
    let versions: Vec<u64> = loaded.events.iter().filter_map(|event| event.version).collect();
    assert_eq!(versions.last().copied().unwrap_or(0), loaded.version);
    Ok(versions)
}

async fn read(streams: &Arc<dyn StreamStore>, options: StreamReadOptions) -> Result<Vec<u64>> {
    let events = streams.read_stream(&name("user-a"), options).await?;
    Ok(events.iter().filter_map(|event| event.version).collect())
}

/// One event, and then two commits of two.
async fn five(streams: &Arc<dyn StreamStore>) {
    streams.append(&name("user-a"), first([event("A", "1")])).await.expect("appends");
    for two in [["2", "3"], ["4", "5"]] {
        streams.append(&name("user-a"), Step::new(two.map(|body| event("A", body)))).await.expect("appends");
    }
}

/// A moment old, and the moment was in the middle of a commit: whole up to where it ends, whichever of the items came first.
#[tokio::test]
async fn an_eventual_read_has_no_hole_either() {
    for layout in BOTH {
        for shown in [vec![3], vec![5], vec![3, 5], vec![2, 5], vec![4]] {
            let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
            let lag = Lag::new(now.http_client(), stale.http_client(), 1);
            let builder = || Store::builder(&format!("memory:?{layout}&table=orders")).expect("a URL").http_client(lag.http_client());
            let streams = open(builder()).await.streams();
            five(&streams).await;
            let key = |version: u64| match layout {
                V5 => format!(r#""N":"{version}""#),
                _ => format!("user-a-{version}"),
            };
            for write in lag.pending() {
                if write.table == "orders-journal" && [1].iter().chain(&shown).any(|version| write.key.contains(&key(*version))) {
                    lag.apply(write.id).await;
                }
            }
            let told = format!("{layout}, shown {shown:?}");
            let fresh = open(builder().create(false)).await.streams();
            let met = versions(&fresh, LoadOptions::default().eventual()).await.expect(&told);
            assert_eq!(met, (1..=met.len() as u64).collect::<Vec<_>>(), "{told}");
            assert!(met.last() >= shown.last(), "{told}: {met:?}");
            assert_eq!(read(&fresh, StreamReadOptions::default().eventual()).await.expect(&told), met, "{told}");
            let mut back = read(&fresh, StreamReadOptions::default().eventual().backwards()).await.expect(&told);
            back.reverse();
            assert_eq!(back, met, "{told}");
        }
    }
}

/// A strong query met a commit half done: the other half is fetched.
#[tokio::test]
async fn a_strong_read_that_meets_half_a_commit_has_all_of_it() {
    for layout in BOTH {
        for lacking in 2..=5u64 {
            let engine = Engine::memory().expect("an engine");
            let half = Half::on(engine.http_client());
            let builder = Store::builder(&format!("memory:?{layout}")).expect("a URL").http_client(half.http_client());
            let streams = open(builder).await.streams();
            five(&streams).await;
            let told = format!("{layout}, lacking {lacking}");
            let lack = || half.lack("Query", 1, numbered(lacking));
            lack();
            assert_eq!(versions(&streams, LoadOptions::default()).await.expect(&told), [1, 2, 3, 4, 5], "{told}");
            lack();
            assert_eq!(read(&streams, StreamReadOptions::default()).await.expect(&told), [1, 2, 3, 4, 5], "{told}");
            lack();
            assert_eq!(read(&streams, StreamReadOptions::default().backwards()).await.expect(&told), [5, 4, 3, 2, 1], "{told}");
            lack();
            assert_eq!(versions(&streams, LoadOptions::default().snapshot(["snapshot"])).await.expect(&told), [2, 3, 4, 5], "{told}");
            assert_eq!(half.left(), 0, "{told}");
        }
        // The last of them, where only the end is asked for.
        let engine = Engine::memory().expect("an engine");
        let half = Half::on(engine.http_client());
        let builder = Store::builder(&format!("memory:?{layout}")).expect("a URL").http_client(half.http_client());
        let streams = open(builder).await.streams();
        five(&streams).await;
        half.lack("Query", 1, numbered(5));
        let loaded = streams.load(&name("user-a"), LoadOptions::default()).await.expect("loads");
        half.lack("Query", 1, numbered(4));
        let since = streams.load(&name("user-a"), LoadOptions::default().since(loaded.token.clone())).await.expect("loads");
        assert_eq!((loaded.version, since.version, since.events.len()), (5, 5, 0), "{layout}");
    }
}

/// Behind an index that lags, a batch of keys may meet a commit half done too.
#[tokio::test]
async fn a_batch_by_key_that_lacks_its_lower_key_asks_again() {
    let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(now.http_client(), stale.http_client(), 1);
    let half = Half::on(lag.http_client());
    let builder = || Store::builder(&format!("memory:?{V3}")).expect("a URL").http_client(half.http_client());
    let writer = open(builder()).await.streams();
    five(&writer).await;
    for lacking in 2..=5u64 {
        half.lack("BatchGetItem", 1, numbered(lacking));
        let streams = open(builder()).await.streams();
        let met = versions(&streams, LoadOptions::default()).await.expect("loads");
        // Up to the end, or up to where a commit begins.
        assert_eq!(met, (1..=met.len() as u64).collect::<Vec<_>>(), "lacking {lacking}");
        assert!([1, 3, 5].contains(&met.len()), "lacking {lacking}: {met:?}");
        assert_eq!(half.left(), 0, "lacking {lacking}");
    }
}

/// What the index lacks of a commit is asked for, and one key behind it; not a hundred.
#[tokio::test]
async fn the_rest_of_a_commit_costs_what_it_is() {
    let (now, stale) = (Engine::memory().expect("an engine"), Engine::memory().expect("an engine"));
    let lag = Lag::new(now.http_client(), stale.http_client(), 1);
    let builder = || Store::builder(&format!("memory:?{V3}")).expect("a URL").http_client(lag.http_client());
    five(&open(builder()).await.streams()).await;
    for write in lag.pending() {
        if !write.key.contains("user-a-5") {
            lag.apply(write.id).await;
        }
    }
    let loaded = open(builder()).await.streams().load(&name("user-a"), LoadOptions::default()).await.expect("loads");
    assert_eq!((loaded.version, loaded.units.read, loaded.units.requests), (5, 0.5 + 1.0 + 1.0, 3));
}

/// The answer was lost, and the look for what had landed meets it half done: it is found, and not appended again.
#[tokio::test]
async fn a_repeat_finds_what_landed_though_it_meets_half_of_it() {
    for layout in BOTH {
        for lacking in [2, 3] {
            let engine = Engine::memory().expect("an engine");
            let (faults, half) = (Faults::new(engine.http_client(), 1), Half::on(engine.http_client()));
            let quick = Timeouts { attempts: 1, ..Timeouts::default() };
            let opened = |http| open(Store::builder(&format!("memory:?{layout}")).expect("a URL").timeouts(quick).http_client(http));
            let streams = opened(faults.http_client()).await.streams();
            streams.append(&name("user-a"), first([event("A", "1")])).await.expect("appends");
            faults.script(Rule::on("TransactWriteItems").lose_response());
            let two = || Step::new([event("A", "2"), event("A", "3")]);
            let Err(Error::InDoubt(doubt)) = streams.append(&name("user-a"), two()).await else { panic!("{layout}: in doubt") };
            let again = opened(half.http_client()).await.streams();
            half.lack("Query", 1, numbered(lacking));
            let done = again.append(&name("user-a"), two().again(doubt.commit, doubt.base)).await.expect("found");
            assert_eq!(done.version, Some(3), "{layout}, lacking {lacking}");
            assert_eq!(versions(&again, LoadOptions::default()).await.expect("loads"), [1, 2, 3], "{layout}, lacking {lacking}");
        }
    }
}

/// What stays away is lost, and said so: no state is folded over it. Numbers between the commits of v3 are its callers' to leave out.
#[tokio::test]
async fn a_hole_that_stays_is_corrupt() {
    for (layout, lost, passes) in [(V5, 2, false), (V5, 4, false), (V3, 2, false), (V3, 5, false), (V3, 1, true)] {
        let (_, store, client) = bench(&format!("{layout}&table=orders")).await;
        let streams = store.streams();
        five(&streams).await;
        let keys: &[&str] = if layout == V5 { &["aid", "seq_nr"] } else { &["pkey", "skey"] };
        let lost_one =
            scan(&client, "orders-journal").await.into_iter().find(|item| item["seq_nr"] == super::number(lost)).expect("an event");
        let key: Item = lost_one.into_iter().filter(|(name, _)| keys.contains(&name.as_str())).collect();
        client.delete_item().table_name("orders-journal").set_key(Some(key)).send().await.expect("deletes");
        let told = format!("{layout}, without {lost}");
        for options in [LoadOptions::default(), LoadOptions::default().eventual()] {
            let met = versions(&streams, options).await;
            match passes {
                true => assert_eq!(met.expect(&told), [2, 3, 4, 5], "{told}"),
                false => assert!(matches!(&met, Err(Error::Corrupt(c)) if c.what.contains(&format!("@{lost}"))), "{told}: {met:?}"),
            }
        }
        let back = read(&streams, StreamReadOptions::default().backwards()).await;
        assert_eq!(matches!(back, Err(Error::Corrupt(_))), !passes, "{told}: {back:?}");
        // Above the hole nothing is wrong.
        let step = Step::new([event("A", "6")]).expect(Expect::Version(5));
        assert_eq!(streams.append(&name("user-a"), step).await.expect("appends").version, Some(6), "{told}");
    }
}
