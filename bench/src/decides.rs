//! The ledger as its users have it: decisions with a cache, which queue behind each other where they would only lose. The other contenders try
//! again by a loop of the benchmark's.

use std::sync::Arc;

use fencepost::{Cache, Category, Decider, Event, Store, StreamName, decision, fold};
use fencepost_contest::{Fault, Scenario, Speed, Writer, body};
use serde::{Deserialize, Serialize};

/// In a stream.
#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
enum Placed {
    OrderPlaced { n: u64, text: String },
}

/// Over tags.
#[derive(Event, Serialize, Deserialize)]
enum Bought {
    OrderPlaced {
        #[tag("order")]
        order: String,
        #[tag("customer")]
        customer: String,
        text: String,
    },
}

fn text(n: u64) -> Result<String, serde_json::Error> {
    let Placed::OrderPlaced { text, .. } = serde_json::from_str(&format!("{{\"OrderPlaced\":{}}}", body(n)))?;
    Ok(text)
}

/// Counts, and always agrees.
struct Orders;

impl Decider for Orders {
    type State = u64;
    type Event = Placed;
    type Command = String;
    type Rejection = std::convert::Infallible;

    fn initial(&self) -> u64 {
        0
    }
    fn evolve(&self, count: &mut u64, _: &Placed) {
        *count += 1;
    }
    fn decide(&self, text: &String, count: &u64) -> Result<Vec<Placed>, Self::Rejection> {
        Ok(vec![Placed::OrderPlaced { n: *count, text: text.clone() }])
    }
}

/// What the writers of a process share.
pub(crate) struct Shared {
    store: Store,
    cache: Cache,
    orders: Category<Orders>,
}

impl Shared {
    pub(crate) fn new(store: Store) -> Arc<Shared> {
        let cache = Cache::new(1_000);
        let orders = Category::new(store.streams(), Orders).cache(&cache);
        Arc::new(Shared { store, cache, orders })
    }
}

pub(crate) struct Decides {
    shared: Arc<Shared>,
    stream: StreamName,
    /// The values of the two tags of each boundary.
    boundaries: Vec<[String; 2]>,
    turn: u64,
}

impl Decides {
    pub(crate) fn new(shared: &Arc<Shared>, speed: &Speed, number: usize) -> fencepost::Result<Decides> {
        let value = |tag: String| tag.split_once(':').map_or(String::new(), |(_, value)| value.to_owned());
        Ok(Decides {
            shared: shared.clone(),
            stream: StreamName::new(format!("order-{}", speed.stream(number)))?,
            boundaries: (0..16).map(|n| speed.boundary(n).map(value)).collect(),
            turn: number as u64 * 7,
        })
    }
}

impl Writer for Decides {
    async fn act(&mut self, scenario: Scenario) -> Result<u64, Fault> {
        self.turn += 1;
        let text = text(self.turn)?;
        let Shared { store, cache, orders } = &*self.shared;
        if scenario != Scenario::Boundaries {
            // As everybody here, who knows a stream believes what it knows until the append says otherwise.
            let outcome = orders.decide(&self.stream, &text).any_cached().await?;
            return Ok(u64::from(outcome.tries) - 1);
        }
        let [order, customer] = self.boundaries[usize::try_from(self.turn * 5 % 16)?].clone();
        let count = |count: &mut u64, _: &Bought| *count += 1;
        let models = (
            fold(("order", &order), 0, count).cached_as("orders of an order"),
            fold(("customer", &customer), 0, count).cached_as("orders of a customer"),
        );
        let place = decision(models, move |_: &(u64, u64)| {
            Ok::<_, std::convert::Infallible>([Bought::OrderPlaced {
                order: order.clone(),
                customer: customer.clone(),
                text: text.clone(),
            }])
        });
        let outcome = store.decide(place).cache(cache).await?;
        Ok(u64::from(outcome.tries) - 1)
    }
}
