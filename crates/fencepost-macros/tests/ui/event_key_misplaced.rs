use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "Enrolment")]
#[tag("course:{course}")]
enum Enrolment {
    #[event(prefix = "school.")]
    Enrolled {
        #[tag("course")]
        #[event(name = "course")]
        course: String,
    },
}

fn main() {}
