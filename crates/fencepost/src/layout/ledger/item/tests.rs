//! One event of a slot lies without a list around it, and a list of one is read as well.

use super::*;

fn parts(data: &[u8]) -> Item {
    let event_type = EventType::new("Placed").expect("a type");
    let mut map = entry(&EntryParts { index: 0, id: None, event_type: &event_type, tags: Vec::new(), type_version: None, meta: None });
    put_body(&mut map, 0, &Written::Plain(data));
    map
}

fn with(events: impl FnOnce(&mut Item)) -> Item {
    let series = Series::Tag(Tag::new("order:1").expect("a tag"));
    let (commit, no_deps) = (CommitId(Uuid::from_u128(7)), BTreeMap::new());
    let slot = SlotParts { series: &series, version: 1, commit, stamp: 9, count: 1, place: &Place::Here, home: None, deps: &no_deps };
    let mut item = slot_item("main", &slot);
    events(&mut item);
    item
}

fn bodies(item: &Item) -> Vec<Vec<u8>> {
    let Entries::Here(entries) = slot("main", item).expect("a slot").entries else { panic!("entries") };
    let body = |entry: Entry| match entry.body {
        Body::Here(data) => data.to_vec(),
        other => panic!("{other:?}"),
    };
    entries.into_iter().map(body).collect()
}

#[test]
fn one_event_has_no_list_around_it_and_is_counted_as_it_lies() {
    let none = size(&with(|_| ()));
    for (maps, saved) in [(vec![parts(b"{}")], 4), (vec![parts(b"{}"), parts(b"[]")], 0)] {
        let listed = with(|item| drop(item.insert(EVENTS.into(), Value::L(maps.iter().cloned().map(Value::M).collect()))));
        let written = with(|item| put_events(item, maps.clone()));
        assert_eq!(size(&listed) - size(&written), saved);
        let sizes: Vec<usize> = maps.iter().map(item::map_size).collect();
        assert_eq!(size(&written), none + events_size(&sizes));
        // Both are read, and say the same.
        assert_eq!(bodies(&written), bodies(&listed));
        assert_eq!(bodies(&written).len(), maps.len());
    }
}

#[test]
fn events_that_are_neither_a_map_nor_a_list_of_maps_are_refused() {
    for odd in [text("x"), Value::L(vec![text("x")])] {
        let item = with(|item| drop(item.insert(EVENTS.into(), odd)));
        assert!(matches!(slot("main", &item), Err(Error::Corrupt(_))));
    }
}
