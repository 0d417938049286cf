use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Borrowed<'a, T> {
    #[tag("course")]
    course: &'a str,
    value: T,
}

fn main() {}
