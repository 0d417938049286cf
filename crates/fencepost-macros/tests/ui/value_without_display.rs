use fencepost::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct CourseId(u8);

type Courses = Vec<u8>;

#[derive(Event, Serialize, Deserialize)]
enum Enrolment {
    Defined {
        #[tag("course")]
        course: CourseId,
    },
    Listed {
        #[tag("course")]
        courses: Vec<CourseId>,
    },
    Aliased(#[tag("course")] Courses),
    #[tag("seat:{course}-{row}")]
    Taken {
        course: CourseId,
        row: u8,
    },
}

fn main() {}
