use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event)]
#[event(untagged)]
struct Closed;

fn main() {}
