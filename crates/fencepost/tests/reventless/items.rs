//! Items as the published page has them, both ways.

use fencepost::Append;

use crate::*;

#[tokio::test]
async fn what_the_page_shows_is_read() {
    let table = Table::new("partition=orderId&cross=productId");
    let log = table.log().await;
    table.put(golden("event")).await;
    table.put(golden("fence")).await;
    for query in [tag("orderId:ord-123"), tag("productId:p-5"), Query::tags(["productId:p-5", "orderId:ord-123"]).expect("query")] {
        let sourced = log.source(&query, None).await.expect("source");
        let [event] = &sourced.events[..] else { panic!("{query:?}: {} events", sourced.events.len()) };
        assert_eq!(event.event_type.as_str(), "OrderPlaced");
        assert_eq!(&event.data[..], br#"{"amount":12.5,"lines":[{"gift":false,"sku":"p-5"}],"note":null}"#);
        assert_eq!(event.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["orderId:ord-123", "productId:p-5"]);
        assert_eq!((event.meta.correlation.as_deref(), event.recorded_at.to_string()), (Some("corr-1"), "2026-06-22T10:20:00Z".into()));
        let outcome = log.append(Append::new([event_of(event)]).unless(query, sourced.token)).await;
        assert!(outcome.is_ok(), "and appended to: {outcome:?}");
        assert_eq!(log.source(&tag("orderId:ord-123"), None).await.expect("source").events.len(), 2);
        let undone = key_of(&outcome.expect("done"), &table).await;
        table.client().delete_item().table_name(&table.name).set_key(Some(undone)).send().await.expect("undo");
        let fences = ["fence#orderId:ord-123", "fence#productId:p-5"];
        for id in fences {
            table
                .put(Item::from([
                    ("id".into(), Value::S(id.into())),
                    ("position".into(), Value::S("FENCE".into())),
                    ("pos#OrderPlaced".into(), golden("event")["position"].clone()),
                ]))
                .await;
        }
    }
}

fn event_of(event: &fencepost::Recorded) -> Event {
    event.clone().into_event()
}
async fn key_of(done: &fencepost::Committed, table: &Table) -> Item {
    let commit = done.commit.0.hyphenated().to_string();
    let own =
        |item: &Item| matches!(item.get("position"), Some(Value::S(position)) if position.contains(&commit)) && item.contains_key("event");
    let item = table.items().await.into_iter().find(own).expect("the event");
    ["id", "position"].map(|name| (name.to_owned(), item[name].clone())).into()
}

#[tokio::test]
async fn what_is_written_is_what_the_page_shows_and_what_the_peer_needs() {
    let table = Table::new("partition=orderId&cross=productId");
    let body = r#"{"amount":12.5,"lines":[{"sku":"p-5","gift":false}],"note":null}"#;
    let meta = fencepost::Metadata { correlation: Some("corr-1".into()), ..Default::default() };
    let event = Event::new("OrderPlaced", body)
        .and_then(|e| e.tag("orderId:ord-123"))
        .and_then(|e| e.tag("productId:p-5"))
        .expect("event")
        .meta(meta);
    let done = table.log().await.append(Append::new([event])).await.expect("append");
    let key = key_of(&done, &table).await;
    let Value::S(position) = &key["position"] else { panic!("{key:?}") };
    let written = table.get("orderId:ord-123", position).await;
    for (name, value) in golden("event").iter().filter(|(name, _)| !["position", "recordedAt"].contains(&name.as_str())) {
        assert_eq!(written.get(name), Some(value), "{name}");
    }
    let shape: String = position.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
    assert_eq!(shape, "xxxxxxxxxxxxx-xxxxxx-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
    for name in ["service", "time", "msgId", "recordedAt"] {
        assert!(matches!(written.get(name), Some(Value::S(_))), "the peer throws without {name}");
    }
    for tag in ["orderId:ord-123", "productId:p-5"] {
        let fence = table.get(&format!("fence#{tag}"), "FENCE").await;
        assert_eq!(fence.get("pos#OrderPlaced"), Some(&key["position"]));
        assert_eq!(fence.get("v"), Some(&Value::N("1".into())));
    }
    let batch = table.log().await.append(Append::new([event_two("orderId:ord-9"), event_two("orderId:ord-9")])).await.expect("batch");
    let fence = table.get("fence#orderId:ord-9", "FENCE").await;
    let Some(Value::S(last)) = fence.get("pos#T") else { panic!("{fence:?}") };
    assert!(last.ends_with(&format!("{}-002", batch.commit.0.hyphenated())), "a fence takes the last position of the batch: {last}");
}

fn event_two(tag: &str) -> Event {
    event("T", &[tag])
}
