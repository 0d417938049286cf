use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    #[tag("seat:{course}-{rwo}")]
    Taken { course: String, row: u8 },
    #[tag("seat:{1}")]
    Numbered(u8),
    #[tag("seat:{row}")]
    Unit,
}

fn main() {}
