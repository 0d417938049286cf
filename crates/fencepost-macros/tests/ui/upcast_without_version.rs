use fencepost::Event;
use serde::{Deserialize, Serialize};

fn step(body: u8) -> u8 {
    body
}

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, upcast(1 = step, 2 = step))]
struct Closed;

fn main() {}
