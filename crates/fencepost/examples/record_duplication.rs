//! No record twice: a form that is sent again, by a reload or a client that lost the answer, places one order.
//!
//! Two ways. A token in the form, as a rule of the domain: the second one is told so. A key for the request, which the store keeps: the second
//! one gets the first outcome, and no rule is needed.
//! `cargo run -p fencepost --features embedded,testing --example record_duplication [URL]`, on `memory:` where no URL is given.

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Result, Store, decision, fold};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[rustfmt::skip] // one event, one line
enum Shop {
    OrderPlaced { #[tag("order")] order: u64, #[tag("form")] form: Option<u64> },
}
use Shop::*;

/// The form was sent before.
#[derive(Debug, PartialEq)]
struct SentBefore;

/// By a token: whoever fills the form in brings it along.
fn place_with(form: u64, order: u64) -> impl Decision<Rejection = SentBefore> {
    let used = fold(("form", form), false, |used, _: &Shop| *used = true);
    decision(used, move |used| if *used { Err(SentBefore) } else { Ok([OrderPlaced { order, form: Some(form) }]) })
}

/// By a key: decided under `once`, nothing is looked up here.
fn place(order: u64) -> impl Decision<Rejection = SentBefore> {
    decision((), move |()| Ok([OrderPlaced { order, form: None }]))
}

fn cases() {
    let placed = |form, order| OrderPlaced { order, form: Some(form) };
    given([placed(11, 1)]).when(place_with(11, 2)).then_rejected(SentBefore);
    given([placed(11, 1)]).when(place_with(12, 2)).then([placed(12, 2)]);
    given(()).when(place_with(11, 1)).then([placed(11, 1)]);
    given([placed(11, 1)]).when(place(2)).then([OrderPlaced { order: 2, form: None }]);
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    // Ids of their own for each run, so that a store which stays can be used again.
    let first = Env::system().below(1 << 60);

    // The same form five times at once: one order.
    let sent = try_join_all((0..5).map(async |n| store.decide(place_with(first, first + n)).await)).await?;
    let told = sent.iter().filter(|one| one.rejection() == Some(&SentBefore)).count();
    println!("a form sent 5 times: {} order, {told} told that it was sent before", 5 - told);
    assert_eq!(told, 4);

    // The same request five times at once: one order, and everybody gets the number of its commit.
    let key = format!("order-{first}");
    let sent = try_join_all((0..5).map(async |n| store.decide(place(first + n)).once(&key).await)).await?;
    let commits: Vec<_> = sent.iter().filter_map(|one| one.position()).collect();
    println!("a request sent 5 times: recorded at {commits:?}");
    assert!(commits.len() == 5 && commits.iter().all(|commit| *commit == commits[0]), "the first outcome for all");

    // And once more later: nothing is decided, the look is all it costs.
    let later = store.decide(place(first + 9)).once(&key).await?;
    assert_eq!((later.position(), later.tries, later.units.write), (sent[0].position(), 0, 0.0));
    Ok(())
}
