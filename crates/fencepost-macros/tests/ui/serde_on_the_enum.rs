use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[serde(tag = "type", content = "body")]
#[event(untagged)]
enum Adjacent {
    Closed { year: u32 },
}

#[derive(Event, Serialize, Deserialize)]
#[serde(untagged)]
#[event(untagged)]
enum Untagged {
    Closed { year: u32 },
}

fn main() {}
