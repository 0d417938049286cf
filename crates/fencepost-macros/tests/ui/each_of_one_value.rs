use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Defined {
    #[tag("course", each)]
    course: String,
}

#[derive(Event, Serialize, Deserialize)]
#[tag("course:{course}", each)]
struct Composite {
    course: String,
}

fn main() {}
