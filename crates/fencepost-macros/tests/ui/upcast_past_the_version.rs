use fencepost::Event;
use serde::{Deserialize, Serialize};

fn step(body: u8) -> u8 {
    body
}

#[derive(Event, Serialize, Deserialize)]
#[event(untagged)]
enum Enrolment {
    #[event(version = 2, upcast(1 = step, 2 = step))]
    Current,
    #[event(version = 2, upcast(1 = step, 1 = step))]
    Twice,
    #[event(version = 0)]
    Zero,
    #[event(version = 2, upcast(0 = step, 1 = step))]
    FromZero,
    #[event(version = 2, upcast(step))]
    NoNumber,
}

fn main() {}
