use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    Defined {
        #[tag("course")]
        course: String,
    },
    YearClosed {
        year: u32,
    },
}

#[derive(Event, Serialize, Deserialize)]
struct Closed {
    year: u32,
}

#[derive(Event, Serialize, Deserialize)]
struct Unit;

fn main() {}
