//! What happens here: the events, and the names that they carry as tags.

use std::fmt;

use fencepost::Event;
use serde::{Deserialize, Serialize};

/// What is recorded. The names of courses and students are tags, so that a decision reads one course and one student and nothing else.
#[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
pub enum Enrolment {
    /// A course is offered.
    CourseDefined {
        /// Its name in addresses and tags.
        #[tag("course")]
        course: CourseId,
        /// What it is called.
        title: String,
        /// How many students it takes.
        capacity: u32,
    },
    /// It takes more students from now on, or fewer.
    CourseCapacityChanged {
        /// Which course.
        #[tag("course")]
        course: CourseId,
        /// How many students it takes.
        capacity: u32,
    },
    /// Somebody may enrol from now on.
    StudentRegistered {
        /// The student's name in addresses and tags: tags stand in keys, so it says nothing about the person.
        #[tag("student")]
        student: StudentId,
        /// What the student is called.
        name: String,
    },
    /// A student takes a seat.
    StudentEnrolled {
        /// In which course.
        #[tag("course")]
        course: CourseId,
        /// Who.
        #[tag("student")]
        student: StudentId,
    },
    /// And gives it back.
    StudentLeft {
        /// Which course.
        #[tag("course")]
        course: CourseId,
        /// Who.
        #[tag("student")]
        student: StudentId,
    },
}

/// The name of a course: `rust-101`. What comes from outside is checked in [`crate::input`]; what was recorded is taken as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CourseId(pub String);

/// The name of a student: `s-17`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StudentId(pub String);

impl fmt::Display for CourseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Display for StudentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
