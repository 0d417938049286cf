use fencepost::Event;
use serde::{Deserialize, Serialize};

fn step(body: u8) -> u8 {
    body
}

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
enum Enrolment {
    #[event(version = 4, upcast(1 = step, 3 = step))]
    Hole,
    #[event(version = 3)]
    NoSteps,
    #[event(version = 4000000000, upcast(2 = step))]
    Far,
}

fn main() {}
