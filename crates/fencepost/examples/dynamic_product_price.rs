//! Dynamic prices: an order is taken at the price that was displayed, and for a few minutes after a change at the one before it.
//!
//! `cargo run -p fencepost --features embedded,testing --example dynamic_product_price [URL]`, on `memory:` where no URL is given.

use std::time::Duration;

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Fold, Result, Store, about, decision, fold_recorded};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[rustfmt::skip] // one event, one line
enum Shop {
    ProductDefined { #[tag("product")] product: u64, cents: u32 },
    PriceChanged { #[tag("product")] product: u64, cents: u32 },
    ProductsOrdered { #[tag("product")] products: Vec<u64>, cents: u32 },
}
use Shop::*;

/// This product is not sold at the price that was displayed.
#[derive(Debug, PartialEq)]
struct PriceIsWrong(u64);

const GRACE: Duration = Duration::from_mins(10);

/// The price of now, and those before it with the time of their end.
#[derive(Clone, Default)]
struct Prices {
    current: Option<u32>,
    earlier: Vec<(u32, Timestamp)>,
}

impl Prices {
    fn allow(&self, cents: u32, now: Timestamp) -> bool {
        self.current == Some(cents) || self.earlier.iter().any(|(price, until)| *price == cents && now < *until + GRACE)
    }
}

/// Orders are left out, so that they do not disturb each other: only a new price makes an order be decided again.
fn prices(product: u64) -> Fold<Prices> {
    let prices = about("product", product).only(["ProductDefined", "PriceChanged"]);
    fold_recorded(prices, Prices::default(), |prices, event, recorded| {
        if let ProductDefined { cents, .. } | PriceChanged { cents, .. } = event {
            prices.earlier.extend(prices.current.replace(*cents).map(|old| (old, recorded.recorded_at)));
        }
    })
}

/// A cart: each product with the price that was displayed. One model for each of them, one decision on all.
fn order(cart: &[(u64, u32)], now: Timestamp) -> impl Decision<Rejection = PriceIsWrong> + use<> {
    let models: Vec<_> = cart.iter().map(|(product, _)| prices(*product)).collect();
    let cart = cart.to_vec();
    decision(models, move |prices| {
        for ((product, cents), prices) in cart.iter().zip(prices) {
            if !prices.allow(*cents, now) {
                return Err(PriceIsWrong(*product));
            }
        }
        Ok([ordered(&cart)])
    })
}

fn ordered(cart: &[(u64, u32)]) -> Shop {
    let (products, prices): (Vec<_>, Vec<_>) = cart.iter().copied().unzip();
    ProductsOrdered { products, cents: prices.iter().sum() }
}

fn change_price(product: u64, cents: u32) -> impl Decision<Rejection = PriceIsWrong> {
    decision((), move |()| Ok([PriceChanged { product, cents }]))
}

fn cases() {
    let product = |product, cents| ProductDefined { product, cents };
    let start = given(()).now();
    given([product(1, 100)]).when(order(&[(1, 90)], start)).then_rejected(PriceIsWrong(1));
    given([product(1, 100)]).when(order(&[(1, 100)], start)).then([ordered(&[(1, 100)])]);
    given(()).when(order(&[(1, 100)], start)).then_rejected(PriceIsWrong(1));

    // Changed an hour later: the old price and the new one, within the grace period and after it.
    let changed = given([product(1, 100)]).after(Duration::from_hours(1)).and([PriceChanged { product: 1, cents: 120 }]);
    let (within, after) = (changed.now() + GRACE - Duration::from_secs(1), changed.now() + GRACE);
    changed.clone().when(order(&[(1, 100)], within)).then([ordered(&[(1, 100)])]);
    changed.clone().when(order(&[(1, 120)], within)).then([ordered(&[(1, 120)])]);
    changed.clone().when(order(&[(1, 100)], after)).then_rejected(PriceIsWrong(1));
    changed.clone().when(order(&[(1, 120)], after)).then([ordered(&[(1, 120)])]);

    // Several products: each at a price of its own, and one that is wrong spoils the order.
    let two = changed.and([product(2, 300)]);
    two.clone().when(order(&[(1, 100), (2, 300)], within)).then([ordered(&[(1, 100), (2, 300)])]);
    two.clone().when(order(&[(1, 100), (2, 200)], within)).then_rejected(PriceIsWrong(2));
    two.when(order(&[(2, 300), (1, 100)], after)).then_rejected(PriceIsWrong(1));
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let env = Env::system();
    let first = env.below(1 << 60);
    let cart: Vec<_> = (0..3).map(|n| (first + n, 100)).collect();
    for (product, cents) in &cart {
        assert!(store.decide(change_price(*product, *cents)).await?.committed().is_some());
    }

    // Ten customers with the same three products at once.
    let orders = try_join_all((0..10).map(async |_| store.decide(order(&cart, env.now())).await)).await?;
    assert!(orders.iter().all(|order| order.committed().is_some()));
    println!("10 orders of 3 products each: {} tries, the first at {}", orders.iter().map(|one| one.tries).sum::<u32>(), orders[0].units);
    assert_eq!(store.decide(order(&[(first, 90)], env.now())).await?.rejection(), Some(&PriceIsWrong(first)));
    Ok(())
}
