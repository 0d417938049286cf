//! A table of Equinox, as its F# and JavaScript services share it: a shopping cart whose state lies in the Tip as an unfold.
//!
//! `cargo run --example equinox_table --features embedded`

use fencepost::{Category, Decider, Event, StreamName, StreamReadOptions, StreamStoreExt};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
enum CartEvent {
    ItemAdded { sku: String },
    CheckedOut {},
}

#[derive(Clone, Default, Debug, PartialEq, Serialize, Deserialize)]
struct Cart {
    items: Vec<String>,
    closed: bool,
}

enum Command {
    Add(&'static str),
    CheckOut,
}

#[derive(Debug, PartialEq)]
enum No {
    Closed,
    Empty,
}

struct Carts;

impl Decider for Carts {
    type State = Cart;
    type Event = CartEvent;
    type Command = Command;
    type Rejection = No;

    fn initial(&self) -> Cart {
        Cart::default()
    }
    fn evolve(&self, cart: &mut Cart, event: &CartEvent) {
        match event {
            CartEvent::ItemAdded { sku } => cart.items.push(sku.clone()),
            CartEvent::CheckedOut {} => cart.closed = true,
        }
    }
    fn decide(&self, command: &Command, cart: &Cart) -> Result<Vec<CartEvent>, No> {
        match command {
            _ if cart.closed => Err(No::Closed),
            Command::Add(sku) => Ok(vec![CartEvent::ItemAdded { sku: (*sku).into() }]),
            Command::CheckOut if cart.items.is_empty() => Err(No::Empty),
            Command::CheckOut => Ok(vec![CartEvent::CheckedOut {}]),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> fencepost::Result<()> {
    // In production: dynamodb://eu-west-1/orders?layout=equinox, beside the services that write it already.
    let store = fencepost::open("memory:?layout=equinox&table=orders&tip_events=4").await?;
    // Equinox' Snapshot strategy: every append leaves the state, and a load is one request.
    let carts = Category::new(store.streams(), Carts).snapshots("Snapshotted", 1);
    let cart = StreamName::new("Cart-7")?;

    let empty = carts.decide(&cart, &Command::CheckOut).await?;
    assert_eq!(empty.rejection(), Some(&No::Empty));
    for sku in ["b-1", "b-2", "b-3", "b-4", "b-5"] {
        let outcome = carts.decide(&cart, &Command::Add(sku)).await?;
        println!("{sku}: {}", outcome.units);
    }
    let done = carts.decide(&cart, &Command::CheckOut).await?;
    assert!(done.rejection().is_none());
    let late = carts.decide(&cart, &Command::Add("b-6")).await?;
    assert_eq!(late.rejection(), Some(&No::Closed));

    // What F# and JavaScript would find: the state in the Tip, and the events, of which the first four were calved.
    let unfolds = store.equinox()?.unfolds(&cart).await?.value;
    println!("{} at version {}: {}", unfolds[0].name, unfolds[0].version, String::from_utf8_lossy(&unfolds[0].state));
    let events = store.streams().read_stream(&cart, StreamReadOptions::default()).await?;
    assert_eq!(events.len(), 6);
    // They may go, as far as no consumer needs them any more: the cart stays.
    let pruned = store.equinox()?.prune(&cart, 5).await?;
    println!("{} events pruned, the first is version {}", pruned.deleted, pruned.first);
    assert_eq!(carts.state(&cart).await?.items.len(), 5);
    Ok(())
}
