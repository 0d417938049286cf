use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
struct Closed {
    #[tag("course")]
    course: String,
}

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    #[event(untagged)]
    #[tag("seat:{0}")]
    Taken(u8),
}

fn main() {}
