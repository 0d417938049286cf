use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(prefx = "school.")]
enum Enrolment {
    #[event(rename = "Joined", version = 1)]
    Enrolled {
        #[tag("course")]
        course: String,
    },
}

#[derive(Event, Serialize, Deserialize)]
#[event(nam = "X")]
struct Closed {
    #[tag("course")]
    course: String,
}

fn main() {}
