use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[tag("seat:{course}-{row}")]
struct Taken {
    course: String,
    row: Option<u8>,
}

fn main() {}
