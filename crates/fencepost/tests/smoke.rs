use fencepost::*;
use futures::StreamExt;
#[tokio::test]
async fn smoke() -> Result<()> {
    for feed in ["lanes-1", "lanes-4", "streams"] {
        let store = open(&format!("memory:?feed={feed}")).await?;
        let log = store.log()?;
        let q = Query::tag("a")?;
        let s = log.source(&q, None).await?;
        println!("{feed} {:?}", s);
        let e = |t: &str| Event::new("T", format!("{{\"x\":\"{}\"}}", "y".repeat(400))).unwrap().tag(t).unwrap();
        let c = log.append(Append::new([e("a")]).unless(q.clone(), s.token.clone())).await?;
        println!("{:?}", c);
        let c = log.append(Append::new([e("a")]).unless(q.clone(), s.token.clone())).await;
        println!("{:?}", c);
        let c = log.append(Append::new([e("b"), e("a").tag("b")?])).await?;
        println!("{:?}", c);
        let big: Vec<_> = (0..1000).map(|_| e("a")).collect();
        let c = log.append(Append::new(big)).await?;
        println!("{:?} {}", c.last(), c.units);
        let s = log.source(&q, Some(&s.token)).await?;
        println!("{} {}", s.events.len(), s.units);
        let v = store.verify(&|_| ()).await?;
        println!("{:?}", v);
        if let Ok(feed) = store.feed() {
            let n = feed.subscribe(From::Start, Query::all()).take_while(|d| futures::future::ready(matches!(d, Ok(Delivery::Event{..})))).count().await;
            println!("fed {n}");
        }
    }
    Ok(())
}
