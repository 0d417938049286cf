//! What appends and decision reads cost, in units: on the embedded engine, which counts as DynamoDB does.

use fencepost::Append;

use crate::*;

#[tokio::test]
async fn one_event_costs_five_units_with_one_tag_and_nine_with_two_that_are_fenced() {
    let table = Table::embedded("partition=orderId&cross=productId");
    let log = table.log().await;
    let placed = |tags: &[&str]| {
        tags.iter().fold(Event::new("OrderPlaced", r#"{"amount":12.5,"customer":"c-77"}"#).expect("event"), |e, t| e.tag(t).expect("tag"))
    };
    let one = || Append::new([placed(&["orderId:ord-123"])]);
    log.append(one()).await.expect("first");
    assert_eq!(log.append(one()).await.expect("one").units, units(0.0, 5.0, 1));
    let tags = ["orderId:ord-123", "productId:p-5"];
    let query = Query::item(["OrderPlaced"], ["orderId:ord-123"])
        .expect("query")
        .or(Query::item(["OrderPlaced"], ["productId:p-5"]).expect("query"));
    log.append(Append::new([placed(&tags)])).await.expect("first");
    for _ in 0..3 {
        let token = log.source(&query, None).await.expect("source").token;
        assert_eq!(log.append(Append::new([placed(&tags)]).unless(query.clone(), token)).await.expect("two").units, units(0.0, 9.0, 1));
    }
    // No fence, no transaction.
    assert_eq!(log.append(Append::new([placed(&[])])).await.expect("untagged").units, units(0.0, 1.0, 1));
}

#[tokio::test]
async fn decisions_read_at_half_the_units_where_that_is_asked_for_and_shows_all() {
    let mut costs = Vec::new();
    for parameters in ["partition=order", "partition=order&consistency=escalate", "partition=order&consistency=eventual"] {
        let log = Table::embedded(parameters).log().await;
        for _ in 0..2 {
            log.append(Append::new((0..40).map(|_| event("T", &["order:1"])))).await.expect("append");
        }
        let sourced = log.source(&tag("order:1"), None).await.expect("source");
        assert_eq!((sourced.events.len(), sourced.at_one_instant), (80, true));
        // The fence costs one unit, strongly.
        costs.push(sourced.units.read - 1.0);
        let nothing = log.source(&tag("order:1"), Some(&sourced.token)).await.expect("delta");
        assert_eq!((nothing.units.read, nothing.units.requests), (1.0, 1), "nothing new: the fence alone");
    }
    assert_eq!([costs[1] * 2.0, costs[2] * 2.0], [costs[0]; 2]);
}

/// The counters fill the items that the published algorithm writes anyway: on the same events, no more units.
#[tokio::test]
async fn an_append_costs_no_more_than_the_published_algorithm() {
    let shapes: [(&[&str], &[&str]); 5] = [
        (&["order:1"], &[]),
        (&["order:1", "product:p"], &[]),
        (&["order:1", "product:p", "note:n"], &[]),
        (&["order:1"], &["order:1"]),
        (&["order:1", "product:p"], &["order:1", "product:p"]),
    ];
    for (tags, asked) in shapes {
        let mut costs = Vec::new();
        for fencing in ["counters", "as-published"] {
            let table = Table::embedded(&format!("partition=order&cross=product&fencing={fencing}"));
            let log = table.log().await;
            let query = asked.iter().map(|tag| Query::item(["OrderPlaced"], [tag]).expect("query")).reduce(Query::or);
            let mut written = Vec::new();
            for _ in 0..4 {
                let placed = Append::new([event("OrderPlaced", tags)]);
                let append = match &query {
                    None => placed,
                    Some(query) => placed.unless(query.clone(), log.source(query, None).await.expect("source").token),
                };
                written.push(log.append(append).await.expect("append").units.write);
            }
            costs.push(written);
        }
        let no_more = costs[0].iter().zip(&costs[1]).all(|(ours, published)| ours <= published);
        assert!(no_more, "{tags:?} under {asked:?}: ours {:?}, as published {:?}", costs[0], costs[1]);
    }
}
