//! The rules: what each command is decided on, and what comes of it. Pure; the page and the API take the same decisions.

use std::collections::BTreeSet;
use std::fmt;

use fencepost::{Decision, Fold, decision, fold};

use crate::events::{CourseId, Enrolment, StudentId};

/// How many courses a student may be in.
pub const MOST_COURSES: usize = 10;

/// A course, as its events tell it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// What it is called and how many it takes; none where it was never defined.
    pub offer: Option<Offer>,
    /// Who is in it.
    pub students: BTreeSet<StudentId>,
}

/// What a course offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What it is called.
    pub title: String,
    /// How many students it takes.
    pub capacity: u32,
}

/// A student, as their events tell it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Student {
    /// What the student is called; none where nobody registered.
    pub name: Option<String>,
    /// Which courses the student is in.
    pub courses: BTreeSet<CourseId>,
}

impl Course {
    /// How many seats are taken.
    pub fn taken(&self) -> u32 {
        u32::try_from(self.students.len()).unwrap_or(u32::MAX)
    }

    /// Takes in one event of this course.
    pub fn apply(&mut self, event: &Enrolment) {
        match event {
            Enrolment::CourseDefined { title, capacity, .. } => self.offer = Some(Offer { title: title.clone(), capacity: *capacity }),
            Enrolment::CourseCapacityChanged { capacity, .. } => {
                if let Some(offer) = &mut self.offer {
                    offer.capacity = *capacity;
                }
            }
            Enrolment::StudentEnrolled { student, .. } => drop(self.students.insert(student.clone())),
            Enrolment::StudentLeft { student, .. } => drop(self.students.remove(student)),
            Enrolment::StudentRegistered { .. } => {}
        }
    }
}

impl Student {
    /// Takes in one event of this student.
    pub fn apply(&mut self, event: &Enrolment) {
        match event {
            Enrolment::StudentRegistered { name, .. } => self.name = Some(name.clone()),
            Enrolment::StudentEnrolled { course, .. } => drop(self.courses.insert(course.clone())),
            Enrolment::StudentLeft { course, .. } => drop(self.courses.remove(course)),
            Enrolment::CourseDefined { .. } | Enrolment::CourseCapacityChanged { .. } => {}
        }
    }
}

/// The course of this name.
pub fn course(course: &CourseId) -> Fold<Course> {
    fold(("course", course), Course::default(), Course::apply)
}

/// The student of this name.
pub fn student(student: &StudentId) -> Fold<Student> {
    fold(("student", student), Student::default(), Student::apply)
}

/// Offers a course, unless there is one of this name.
pub fn define_course(id: CourseId, title: String, capacity: u32) -> impl Decision<Rejection = Rejection> {
    decision(course(&id), move |course| match &course.offer {
        Some(_) => Err(Rejection::CourseExists(id.clone())),
        None => Ok([Enrolment::CourseDefined { course: id.clone(), title: title.clone(), capacity }]),
    })
}

/// Changes how many students a course takes; to what it is already, and nothing is recorded.
pub fn change_capacity(id: CourseId, capacity: u32) -> impl Decision<Rejection = Rejection> {
    decision(course(&id), move |course| match &course.offer {
        None => Err(Rejection::NoSuchCourse(id.clone())),
        Some(_) if capacity < course.taken() => Err(Rejection::SeatsTaken { course: id.clone(), taken: course.taken() }),
        Some(offer) if offer.capacity == capacity => Ok(None),
        Some(_) => Ok(Some(Enrolment::CourseCapacityChanged { course: id.clone(), capacity })),
    })
}

/// Lets somebody enrol from now on.
pub fn register_student(id: StudentId, name: String) -> impl Decision<Rejection = Rejection> {
    decision(student(&id), move |student| match &student.name {
        Some(_) => Err(Rejection::StudentExists(id.clone())),
        None => Ok([Enrolment::StudentRegistered { student: id.clone(), name: name.clone() }]),
    })
}

/// Gives a student a seat. Rests on one course and one student: whatever happens to other courses and students is no conflict.
pub fn enrol(course_id: CourseId, student_id: StudentId) -> impl Decision<Rejection = Rejection> {
    decision((course(&course_id), student(&student_id)), move |(course, student)| {
        let (course_id, student_id) = (course_id.clone(), student_id.clone());
        let Some(offer) = &course.offer else { return Err(Rejection::NoSuchCourse(course_id)) };
        if student.name.is_none() {
            return Err(Rejection::NoSuchStudent(student_id));
        }
        if course.students.contains(&student_id) {
            return Err(Rejection::AlreadyEnrolled { course: course_id, student: student_id });
        }
        if course.taken() >= offer.capacity {
            return Err(Rejection::Full { course: course_id, capacity: offer.capacity });
        }
        if student.courses.len() >= MOST_COURSES {
            return Err(Rejection::TooManyCourses(student_id));
        }
        Ok([Enrolment::StudentEnrolled { course: course_id, student: student_id }])
    })
}

/// Gives the seat back. Who leaves must be in the course, and nothing else matters.
pub fn leave(course_id: CourseId, student_id: StudentId) -> impl Decision<Rejection = Rejection> {
    let about = fencepost::about("course", &course_id).and("student", &student_id);
    let enrolled = fold(about, false, |enrolled, event: &Enrolment| *enrolled = matches!(event, Enrolment::StudentEnrolled { .. }));
    decision(enrolled, move |enrolled| {
        let (course, student) = (course_id.clone(), student_id.clone());
        if *enrolled { Ok([Enrolment::StudentLeft { course, student }]) } else { Err(Rejection::NotEnrolled { course, student }) }
    })
}

/// Why a command is not carried out. Values, not errors: the store is well.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each says in its sentence what it is")]
pub enum Rejection {
    CourseExists(CourseId),
    NoSuchCourse(CourseId),
    StudentExists(StudentId),
    NoSuchStudent(StudentId),
    Full { course: CourseId, capacity: u32 },
    SeatsTaken { course: CourseId, taken: u32 },
    AlreadyEnrolled { course: CourseId, student: StudentId },
    NotEnrolled { course: CourseId, student: StudentId },
    TooManyCourses(StudentId),
}

impl Rejection {
    /// For programs.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::CourseExists(_) => "course-exists",
            Rejection::NoSuchCourse(_) => "no-such-course",
            Rejection::StudentExists(_) => "student-exists",
            Rejection::NoSuchStudent(_) => "no-such-student",
            Rejection::Full { .. } => "full",
            Rejection::SeatsTaken { .. } => "seats-taken",
            Rejection::AlreadyEnrolled { .. } => "already-enrolled",
            Rejection::NotEnrolled { .. } => "not-enrolled",
            Rejection::TooManyCourses(_) => "too-many-courses",
        }
    }
}

/// For people.
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::CourseExists(course) => write!(f, "There is a course {course} already."),
            Rejection::NoSuchCourse(course) => write!(f, "There is no course {course}."),
            Rejection::StudentExists(student) => write!(f, "There is a student {student} already."),
            Rejection::NoSuchStudent(student) => write!(f, "There is no student {student}."),
            Rejection::Full { course, capacity: 1 } => write!(f, "Course {course} is full: its only seat is taken."),
            Rejection::Full { course, capacity } => write!(f, "Course {course} is full: all {capacity} seats are taken."),
            Rejection::SeatsTaken { course, taken } => write!(f, "Course {course} cannot take fewer than the {taken} who are in it."),
            Rejection::AlreadyEnrolled { course, student } => write!(f, "Student {student} is in course {course} already."),
            Rejection::NotEnrolled { course, student } => write!(f, "Student {student} is not in course {course}."),
            Rejection::TooManyCourses(student) => write!(f, "Student {student} is in {MOST_COURSES} courses, and more are not allowed."),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencepost::testing::given;

    use super::*;
    use Enrolment::{CourseCapacityChanged, CourseDefined, StudentEnrolled, StudentLeft, StudentRegistered};

    fn c(id: &str) -> CourseId {
        CourseId(id.into())
    }
    fn s(id: &str) -> StudentId {
        StudentId(id.into())
    }
    fn defined(course: &str, capacity: u32) -> Enrolment {
        CourseDefined { course: c(course), title: "Rust".into(), capacity }
    }
    fn registered(student: &str) -> Enrolment {
        StudentRegistered { student: s(student), name: "Ada".into() }
    }
    fn enrolled(course: &str, student: &str) -> Enrolment {
        StudentEnrolled { course: c(course), student: s(student) }
    }
    fn left(course: &str, student: &str) -> Enrolment {
        StudentLeft { course: c(course), student: s(student) }
    }

    #[test]
    fn a_course_is_defined_once() {
        given(()).when(define_course(c("c1"), "Rust".into(), 2)).then([defined("c1", 2)]);
        given([defined("c2", 9)]).when(define_course(c("c1"), "Rust".into(), 2)).then([defined("c1", 2)]);
        given([defined("c1", 9)]).when(define_course(c("c1"), "Go".into(), 2)).then_rejected(Rejection::CourseExists(c("c1")));
    }

    #[test]
    fn capacity_changes_but_not_below_those_who_are_in() {
        let two_in = given([defined("c1", 3), registered("s1"), registered("s2"), enrolled("c1", "s1"), enrolled("c1", "s2")]);
        two_in.when(change_capacity(c("c1"), 2)).then([CourseCapacityChanged { course: c("c1"), capacity: 2 }]);
        two_in.when(change_capacity(c("c1"), 1)).then_rejected(Rejection::SeatsTaken { course: c("c1"), taken: 2 });
        two_in.when(change_capacity(c("c1"), 3)).then_nothing();
        two_in.and([left("c1", "s1")]).when(change_capacity(c("c1"), 1)).then([CourseCapacityChanged { course: c("c1"), capacity: 1 }]);
        given(()).when(change_capacity(c("c1"), 1)).then_rejected(Rejection::NoSuchCourse(c("c1")));
    }

    #[test]
    fn a_student_registers_once() {
        given(()).when(register_student(s("s1"), "Ada".into())).then([registered("s1")]);
        given([registered("s1")]).when(register_student(s("s1"), "Bob".into())).then_rejected(Rejection::StudentExists(s("s1")));
    }

    #[test]
    fn who_enrols_must_be_there_and_so_must_the_course() {
        given([defined("c1", 1), registered("s1")]).when(enrol(c("c1"), s("s1"))).then([enrolled("c1", "s1")]);
        given([registered("s1")]).when(enrol(c("c1"), s("s1"))).then_rejected(Rejection::NoSuchCourse(c("c1")));
        given([defined("c1", 1)]).when(enrol(c("c1"), s("s1"))).then_rejected(Rejection::NoSuchStudent(s("s1")));
    }

    #[test]
    fn the_last_seat_goes_once_and_again_when_somebody_leaves_or_the_course_grows() {
        let full = given([defined("c1", 1), registered("s1"), registered("s2"), enrolled("c1", "s1")]);
        full.when(enrol(c("c1"), s("s2"))).then_rejected(Rejection::Full { course: c("c1"), capacity: 1 });
        full.clone().and([left("c1", "s1")]).when(enrol(c("c1"), s("s2"))).then([enrolled("c1", "s2")]);
        let grown = full.and([CourseCapacityChanged { course: c("c1"), capacity: 2 }]);
        grown.when(enrol(c("c1"), s("s2"))).then([enrolled("c1", "s2")]);
    }

    #[test]
    fn nobody_is_in_a_course_twice_but_may_come_back() {
        let is_in = given([defined("c1", 5), registered("s1"), enrolled("c1", "s1")]);
        is_in.when(enrol(c("c1"), s("s1"))).then_rejected(Rejection::AlreadyEnrolled { course: c("c1"), student: s("s1") });
        is_in.and([left("c1", "s1")]).when(enrol(c("c1"), s("s1"))).then([enrolled("c1", "s1")]);
    }

    #[test]
    fn ten_courses_are_the_most() {
        let mut history = vec![registered("s1")];
        for n in 1..=11 {
            history.push(defined(&format!("c{n}"), 5));
        }
        history.extend((1..=10).map(|n| enrolled(&format!("c{n}"), "s1")));
        let busy = given(history);
        busy.when(enrol(c("c11"), s("s1"))).then_rejected(Rejection::TooManyCourses(s("s1")));
        busy.and([left("c3", "s1")]).when(enrol(c("c11"), s("s1"))).then([enrolled("c11", "s1")]);
    }

    #[test]
    fn only_who_is_in_can_leave() {
        let is_in = given([defined("c1", 5), registered("s1"), registered("s2"), enrolled("c1", "s1"), enrolled("c2", "s2")]);
        is_in.when(leave(c("c1"), s("s1"))).then([left("c1", "s1")]);
        is_in.when(leave(c("c1"), s("s2"))).then_rejected(Rejection::NotEnrolled { course: c("c1"), student: s("s2") });
        let gone = is_in.and([left("c1", "s1")]);
        gone.when(leave(c("c1"), s("s1"))).then_rejected(Rejection::NotEnrolled { course: c("c1"), student: s("s1") });
    }
}
