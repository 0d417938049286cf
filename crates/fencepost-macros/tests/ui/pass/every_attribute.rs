use std::collections::{BTreeSet, HashSet, VecDeque};

use fencepost::{DomainEvent, Event};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Old {
    course: String,
}
fn second(old: Old) -> New {
    New { course: old.course, capacity: 0 }
}
#[derive(Serialize)]
struct New {
    course: String,
    capacity: u32,
}

#[derive(Event, Serialize, Deserialize)]
#[event(prefix = "enrolment.", codec = fencepost::Json)]
#[serde(rename_all = "snake_case")]
enum Enrolment {
    #[event(name = "Defined", alias = "CourseDefined", alias = "Created", version = 2, upcast(1 = second))]
    CourseDefined {
        #[tag("course")]
        course: String,
        capacity: u32,
    },
    #[tag("seat:{course}-{row}")]
    SeatTaken {
        course: String,
        row: u32,
        #[tag("student")]
        students: Vec<u8>,
        #[tag("a")]
        a: VecDeque<u8>,
        #[tag("b")]
        b: BTreeSet<u8>,
        #[tag("c")]
        c: HashSet<u8>,
        #[tag("d")]
        d: [u8; 2],
        #[tag("e", each)]
        e: Box<[u8]>,
    },
    Renamed(#[tag("course")] String, #[tag("tutor")] Option<String>),
    #[event(untagged)]
    YearClosed,
}

#[derive(Event, Serialize, Deserialize)]
struct Noted<T: std::fmt::Display>(#[tag("note")] T);

fn main() {
    let [defined, taken, ..] = Enrolment::KINDS else { panic!("four kinds") };
    assert_eq!((defined.name, defined.version(), defined.keys), ("enrolment.Defined", 2, &["course"][..]));
    assert_eq!(defined.aliases, ["CourseDefined", "Created"]);
    assert_eq!(taken.keys, ["student", "a", "b", "c", "d", "e", "seat"]);
    assert_eq!(Noted::<u8>::KINDS[0].name, "Noted");
}
