use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(prefx = "school.")]
enum Enrolment {
    YearClosed { year: u32 },
    #[event(version = 2)]
    Joined {
        #[tag("")]
        course: String,
    },
    #[tag("seat:{row}")]
    Taken,
}

fn main() {}
