use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct OnField {
    #[tag("")]
    course: String,
}

#[derive(Event, Serialize, Deserialize)]
#[tag(":{course}")]
struct Composite {
    course: String,
}

fn main() {}
