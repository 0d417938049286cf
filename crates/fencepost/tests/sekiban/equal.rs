//! Events of one sortable id, which Sekiban's writers may make: wherever a page ends, whoever goes on behind it misses none and gets none twice.

use crate::*;

/// As Sekiban writes them: seven events, of which four have one id, in no order of their own; all but the last on `a:1`.
///
/// An index has them in any order. Here it has them by their keys: where ids are in capitals, that is another than the ids' own.
async fn plant(bench: &Bench, capitals: bool) -> BTreeSet<Uuid> {
    bench.store("").await;
    let at = |n: u64| format!("06392179278512345{n}000144769402");
    let mut ids = BTreeSet::new();
    for (n, of) in [1, 2, 2, 2, 2, 3, 4].into_iter().enumerate() {
        let first = [0x20, 0xb0, 0xc0, 0xa0, 0xd0, 0x30, 0x40u128][n];
        let id = Uuid::from_u128(first << 120 | 7);
        ids.insert(id);
        let id = if capitals && n % 2 == 0 { id.to_string().to_uppercase() } else { id.to_string() };
        let text = |text: String| AttributeValue::S(text);
        let tags = if n < 6 { vec![text("a:1".into())] } else { vec![] };
        let mut item = Item::from([
            ("pk".into(), text(format!("SERVICE#default#EVENT#{id}"))),
            ("sk".into(), text(format!("EVENT#{id}"))),
            ("serviceId".into(), text("default".into())),
            ("gsi1pk".into(), text("SERVICE#default#ALL_EVENTS".into())),
            ("eventId".into(), text(id.clone())),
            ("sortableUniqueId".into(), text(at(of))),
            ("eventType".into(), text("T".into())),
            ("payload".into(), text(n.to_string())),
            ("tags".into(), AttributeValue::L(tags.clone())),
            ("timestamp".into(), text("2026-08-08T13:33:05.1502345+00:00".into())),
        ]);
        bench.put("SekibanEvents", item.clone()).await;
        if !tags.is_empty() {
            item.remove("gsi1pk");
            for (name, value) in [
                ("pk", "SERVICE#default#TAG#a:1".to_owned()),
                ("sk", format!("{}#{id}", at(of))),
                ("tagString", "a:1".into()),
                ("tagGroup", "default|a".into()),
            ] {
                item.insert(name.into(), text(value));
            }
            bench.put("SekibanTags", item).await;
        }
    }
    ids
}

fn each_once(ids: &BTreeSet<Uuid>, met: &[Recorded], what: &str) {
    assert_eq!(met.len(), ids.len(), "{what}");
    assert_eq!(met.iter().map(|event| event.id).collect::<BTreeSet<_>>(), *ids, "{what}");
}

#[tokio::test]
async fn pages_of_all_since_end_between_ids() {
    let bench = Bench::embedded();
    let ids = plant(&bench, true).await;
    for shards in ["", "&shards=4"] {
        let sekiban = bench.sekiban(shards).await;
        for limit in 1..=7 {
            let (mut since, mut met, mut pages) = (None, Vec::new(), 0);
            loop {
                let page: Vec<Recorded> = sekiban.all_since(since, Some(limit)).try_collect().await.expect("page");
                let Some(last) = page.last() else { break };
                since = SortableId::of(&last.position);
                met.extend(page);
                pages += 1;
            }
            each_once(&ids, &met, &format!("{shards} in pages of {limit}"));
            assert!(pages >= 2 || limit >= 6, "a limit is kept but for equal ids");
        }
    }
}

#[tokio::test]
async fn reads_go_on_behind_any_event() {
    for (query, capitals) in [(Query::all(), false), (Query::all(), true), (Query::tag("a:1").expect("query"), false)] {
        let bench = Bench::embedded();
        let mut ids = plant(&bench, capitals).await;
        let log = bench.store("").await.log().expect("log");
        if !query.is_all() {
            ids = log.read_all(&query, ReadOptions::default()).await.expect("read").iter().map(|event| event.id).collect();
            assert_eq!(ids.len(), 6);
        }
        for backwards in [false, true] {
            for limit in 1..=3 {
                let mut met: Vec<Recorded> = Vec::new();
                loop {
                    let options = ReadOptions::default().eventual().limit(limit);
                    let options = if backwards { options.backwards() } else { options };
                    let options = met.last().map_or(options, |last| options.after(last.position));
                    let page = log.read_all(&query, options).await.expect("page");
                    if page.is_empty() {
                        break;
                    }
                    met.extend(page);
                }
                each_once(&ids, &met, &format!("backwards: {backwards}, {limit} at a time"));
            }
        }
    }
}

#[tokio::test]
async fn a_feed_goes_on_behind_any_event() {
    let bench = Bench::embedded();
    let ids = plant(&bench, true).await;
    let env = Env::seeded(1);
    // Just behind the events, so that they are young; and later, when they are not.
    for now in ["2026-08-08T13:33:06Z", "2026-08-08T14:33:06Z"] {
        env.set_clock(now.parse().expect("time"));
        let store = open(bench.builder("").env(env.clone())).await;
        for safe in [false, true].into_iter().filter(|safe| !safe || now.contains("T14")) {
            let feed = || if safe { store.safe_feed() } else { store.feed() }.expect("feed");
            let (mut from, mut met) = (From::Start, Vec::new());
            while met.len() < ids.len() {
                let (event, checkpoint) = next_event(&mut feed().subscribe(from, Query::all())).await;
                met.push(event);
                from = From::Checkpoint(checkpoint);
            }
            each_once(&ids, &met, now);
            let mut rest = feed().subscribe(from, Query::all());
            assert!(
                matches!(rest.next().await.expect("never ends").expect("delivers"), Delivery::CaughtUp { .. }),
                "{now}: none a second time"
            );
        }
    }
}
