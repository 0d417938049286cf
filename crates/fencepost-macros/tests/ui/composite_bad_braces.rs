use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    #[tag("seat:{row")]
    Open { row: u8 },
    #[tag("seat:{row:?}")]
    Format { row: u8 },
}

fn main() {}
