use fencepost::Event;
use serde::{Deserialize, Serialize};

const NO_FUNCTION: u8 = 1;

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, version = 2, upcast(1 = missing))]
struct Opened;

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, version = 2, upcast(1 = NO_FUNCTION))]
struct Closed;

fn main() {}
