use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(prefix = "school.", untagged)]
enum Enrolment {
    Joined,
    #[event(name = "Joined")]
    Enrolled,
    #[event(alias = "school.Joined")]
    Signed,
    #[event(alias = "Left", alias = "Left")]
    Dropped,
}

fn main() {}
