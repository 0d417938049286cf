use fencepost::Event;
use serde::{Deserialize, Serialize};

struct NotSerde;

fn step(body: u8) -> NotSerde {
    NotSerde
}

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, version = 2, upcast(1 = step))]
struct Closed;

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, version = 2, upcast(1 = missing))]
struct Opened;

fn main() {}
