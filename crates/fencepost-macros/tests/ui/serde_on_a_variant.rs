use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
enum Enrolment {
    #[serde(skip)]
    Skipped,
    #[serde(rename = "closed", skip_deserializing)]
    NotRead,
    Closed,
    #[serde(other)]
    Other,
}

fn main() {}
