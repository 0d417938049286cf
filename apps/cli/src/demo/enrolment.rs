//! The domain of the demo: courses with seats, students with a limit, and a request decided on both.

use fencepost::{Append, Event, EventLog, IntoEvent, Model, Result, Units, decide, decision, fold};
use serde::{Deserialize, Serialize};

pub(super) const OPENED: &str = "CourseOpened";
pub(super) const ENROLLED: &str = "StudentEnrolled";

/// How many students come at once: few enough that the first reach their limit before the courses are full.
const WAVE: usize = 12;

/// The rules, and the names that this run uses.
#[derive(Debug, Clone)]
pub(super) struct Campus {
    pub(super) run: String,
    pub(super) capacity: u32,
    pub(super) limit: u32,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum No {
    Full,
    AtLimit,
}

/// What one worker, or all of them, met.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) enrolled: u64,
    pub(super) full: u64,
    pub(super) at_limit: u64,
    /// How often something that mattered had changed, and it was decided again.
    pub(super) conflicts: u64,
    /// Requests that met a conflict and got their answer all the same.
    pub(super) resolved: u64,
    #[serde(skip)]
    pub(super) units: Units,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.enrolled += other.enrolled;
        self.full += other.full;
        self.at_limit += other.at_limit;
        self.conflicts += other.conflicts;
        self.resolved += other.resolved;
        self.units += other.units;
    }
}

#[derive(Debug, Clone, Event, Serialize, Deserialize)]
pub(super) enum Enrolment {
    CourseOpened {
        #[tag("course")]
        course: String,
        capacity: u32,
    },
    StudentEnrolled {
        #[tag("course")]
        course: String,
        #[tag("student")]
        student: String,
        seat: u32,
    },
}

/// Seats of a course, and how many are taken.
fn seats(course: &str) -> impl Model<State = (u32, u32)> + use<> {
    fold(("course", course), (0, 0), |(capacity, taken), event| match event {
        Enrolment::CourseOpened { capacity: seats, .. } => *capacity = *seats,
        Enrolment::StudentEnrolled { .. } => *taken += 1,
    })
}

fn courses_of(student: &str) -> impl Model<State = u32> + use<> {
    fold(("student", student), 0, |courses, _: &Enrolment| *courses += 1)
}

impl Campus {
    pub(super) fn course_tag(&self, number: u32) -> String {
        format!("course:{}", self.course(number))
    }
    fn course(&self, number: u32) -> String {
        format!("{}-{number}", self.run)
    }
    fn student(&self, number: u32) -> String {
        format!("{}-{number}", self.run)
    }

    pub(super) fn open(&self, course: u32) -> Result<Append> {
        let event = Enrolment::CourseOpened { course: self.course(course), capacity: self.capacity };
        Ok(Append::new([event.into_event()?]))
    }

    /// Everybody asks for one course more than allowed. Students come in waves, and within one all at once: the same student in
    /// two places too.
    pub(super) fn requests(&self, courses: u32, students: u32, chance: &mut fastrand::Rng) -> Vec<(u32, u32)> {
        let all: Vec<u32> = (1..=courses).collect();
        let wanted = usize::try_from(self.limit).unwrap_or(usize::MAX).saturating_add(1).min(all.len());
        let students: Vec<u32> = (1..=students).collect();
        let waves = students.chunks(WAVE).flat_map(|wave| {
            let wishes = wave.iter().flat_map(|&student| {
                let courses = chance.choose_multiple(all.iter().copied(), wanted);
                courses.into_iter().map(move |course| (student, course))
            });
            let mut requests: Vec<_> = wishes.collect();
            chance.shuffle(&mut requests);
            requests
        });
        waves.collect()
    }

    /// One request, decided on the course and the student together.
    pub(super) async fn enrol(&self, log: &dyn EventLog, student: u32, course: u32, tally: &mut Tally) -> Result<()> {
        let (course, student, limit) = (self.course(course), self.student(student), self.limit);
        let models = (seats(&course), courses_of(&student));
        let enrol = decision(models, move |((capacity, taken), courses)| match () {
            () if taken >= capacity => Err(No::Full),
            () if *courses >= limit => Err(No::AtLimit),
            () => Ok([Enrolment::StudentEnrolled { course: course.clone(), student: student.clone(), seat: taken + 1 }]),
        });
        let outcome = decide(log, enrol).await?;
        tally.units += outcome.units;
        tally.conflicts += u64::from(outcome.tries - 1);
        tally.resolved += u64::from(outcome.tries > 1);
        match outcome.rejection() {
            None => tally.enrolled += 1,
            Some(No::Full) => tally.full += 1,
            Some(No::AtLimit) => tally.at_limit += 1,
        }
        Ok(())
    }
}
