use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Word {
    #[tag("course", all)]
    courses: Vec<String>,
}

#[derive(Event, Serialize, Deserialize)]
struct NoText {
    #[tag(course)]
    course: String,
}

#[derive(Event, Serialize, Deserialize)]
struct NoArguments {
    #[tag]
    course: String,
}

fn main() {}
