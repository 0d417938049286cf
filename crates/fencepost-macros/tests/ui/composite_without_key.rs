use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    #[tag("course")]
    Defined { course: String },
    #[tag("{course}-{row}")]
    Taken { course: String, row: u8 },
    #[tag("course:")]
    Nothing { course: String },
}

fn main() {}
