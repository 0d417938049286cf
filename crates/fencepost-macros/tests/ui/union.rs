use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event)]
union Either {
    a: u8,
    b: u8,
}

fn main() {}
