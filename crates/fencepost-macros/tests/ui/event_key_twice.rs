use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "A", name = "B", version = 1, version = 1)]
struct Closed {
    #[tag("course")]
    course: String,
}

fn main() {}
