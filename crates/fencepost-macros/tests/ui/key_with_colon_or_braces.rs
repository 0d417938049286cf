use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Colon {
    #[tag("school:course")]
    course: String,
}

#[derive(Event, Serialize, Deserialize)]
struct Braces {
    #[tag("seat:{row}")]
    row: String,
}

fn main() {}
