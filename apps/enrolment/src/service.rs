//! The service: takes commands by deciding on the store, and reads single courses and students from it. The page and the API share it.

use std::time::Duration;

use fencepost::{Answer, Committed, Decided, Decision, Env, IntoEvent, Query, Reason, Store, Units};

use crate::decisions::{self, Course, Rejection, Student};
use crate::events::{CourseId, Enrolment, StudentId};
use crate::input::Told;
use crate::problem::Problem;
use crate::view::{Following, View};

/// What somebody wants done, checked at the door.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each as its decision")]
pub enum Command {
    DefineCourse { course: CourseId, title: String, capacity: u32 },
    ChangeCapacity { course: CourseId, capacity: u32 },
    RegisterStudent { student: StudentId, name: String },
    Enrol { course: CourseId, student: StudentId },
    Leave { course: CourseId, student: StudentId },
}

/// A command that was carried out.
#[derive(Debug)]
pub struct Done {
    /// What was recorded; none where all was so already.
    pub committed: Option<Committed>,
    /// Whether it was carried out before, under the same key.
    pub repeated: bool,
    /// What it cost.
    pub units: Units,
}

/// How long a command tries before it says that it lost a race.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Decides at most so often.
    pub tries: u32,
    /// And at most for so long.
    pub deadline: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 200, deadline: Duration::from_secs(10) }
    }
}

/// The service over one store.
#[derive(Debug)]
pub struct Service {
    store: Store,
    following: Following,
    patience: Patience,
    /// For waiting, and for the keys in forms.
    pub(crate) env: Env,
}

/// Opens the store at this URL, or says what to do.
pub async fn open(url: &str) -> Result<Store, String> {
    // Tables are made for `memory:` and `file:` only: elsewhere they cost money and need rights that a service should not have.
    let opened = match Store::builder(url) {
        Ok(builder) => builder.open().await,
        Err(error) => Err(error),
    };
    opened.map_err(|error| match &error {
        fencepost::Error::Unavailable(unavailable) if unavailable.reason == Reason::Missing => {
            format!("{error}\nCreate the tables first: fencepost --store '{url}' init")
        }
        _ => error.to_string(),
    })
}

impl Service {
    /// Begins to follow the feed for the lists, where there is one. Needs a runtime.
    pub fn start(store: Store, patience: Patience) -> Self {
        let env = Env::system();
        let following = Following::start(&store, env.clone());
        Self { store, following, patience, env }
    }

    /// Carries out a command, or says why not.
    pub async fn run(&self, command: Command, told: &Told) -> Result<Done, Problem> {
        let (name, expected) = (command.name(), command.event());
        let done = match command {
            Command::DefineCourse { course, title, capacity } => {
                self.decide(decisions::define_course(course, title, capacity), name, told, expected).await
            }
            Command::ChangeCapacity { course, capacity } => {
                self.decide(decisions::change_capacity(course, capacity), name, told, expected).await
            }
            Command::RegisterStudent { student, name: called } => {
                self.decide(decisions::register_student(student, called), name, told, expected).await
            }
            Command::Enrol { course, student } => self.decide(decisions::enrol(course, student), name, told, expected).await,
            Command::Leave { course, student } => self.decide(decisions::leave(course, student), name, told, expected).await,
        };
        match &done {
            Ok(done) => tracing::info!(command = name, repeated = done.repeated, units = %done.units, "done"),
            Err(problem) => tracing::info!(command = name, code = problem.code, "not done"),
        }
        done
    }

    async fn decide<D>(&self, decision: D, name: &str, told: &Told, expected: Enrolment) -> Result<Done, Problem>
    where
        D: Decision<Rejection = Rejection>,
    {
        let mut deciding = self.store.decide(decision).meta(told.meta()).tries(self.patience.tries).deadline(self.patience.deadline);
        if let Some(key) = &told.key {
            deciding = deciding.once(format!("{name} {key}"));
        }
        let outcome = deciding.await?;
        let mut done = Done { committed: None, repeated: outcome.is_repeat(), units: outcome.units };
        match outcome.decided {
            Decided::Rejected(rejection) => return Err(Problem { units: Some(done.units), ..rejection.into() }),
            Decided::Nothing => {}
            Decided::Recorded(committed) => {
                if done.repeated {
                    done.units += self.is_of(&committed, expected).await?;
                }
                done.committed = Some(committed);
            }
        }
        Ok(done)
    }

    /// Whether an earlier run under the same key did what is asked now: who is told "done" must be told of their own command.
    async fn is_of(&self, committed: &Committed, expected: Enrolment) -> Result<Units, Problem> {
        let tags: Vec<_> = expected.clone().into_event()?.tags().to_vec();
        let read = self.store.log()?.source(&Query::tags(tags)?, None).await?;
        let first = read.events.iter().find(|event| committed.positions.contains(&event.position));
        let first = first.map(|event| event.decode::<Enrolment>()).transpose()?;
        if first == Some(expected) {
            return Ok(read.units);
        }
        let detail = "This Idempotency-Key was used before, for another request.";
        Err(Problem { field: Some("idempotency-key"), ..Problem::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail) })
    }

    /// A course as it is now: whoever was told that something is recorded sees it.
    pub async fn course(&self, id: &CourseId) -> Result<(Course, Units), Problem> {
        let Answer { value: course, units, .. } = self.store.look(decisions::course(id)).await?;
        if course.offer.is_none() {
            return Err(Problem { units: Some(units), ..Rejection::NoSuchCourse(id.clone()).into() });
        }
        Ok((course, units))
    }

    /// A student as of now.
    pub async fn student(&self, id: &StudentId) -> Result<(Student, Units), Problem> {
        let Answer { value: student, units, .. } = self.store.look(decisions::student(id)).await?;
        if student.name.is_none() {
            return Err(Problem { units: Some(units), ..Rejection::NoSuchStudent(id.clone()).into() });
        }
        Ok((student, units))
    }

    /// The lists, where the store has a feed.
    pub fn view(&self) -> Result<&View, Problem> {
        self.following.view().map_err(Problem::no_feed)
    }
}

impl Command {
    /// What its keys are scoped by: one key may serve for one of each.
    fn name(&self) -> &'static str {
        match self {
            Command::DefineCourse { .. } => "define-course",
            Command::ChangeCapacity { .. } => "change-capacity",
            Command::RegisterStudent { .. } => "register-student",
            Command::Enrol { .. } => "enrol",
            Command::Leave { .. } => "leave",
        }
    }

    /// What is recorded if anything is.
    fn event(&self) -> Enrolment {
        match self.clone() {
            Command::DefineCourse { course, title, capacity } => Enrolment::CourseDefined { course, title, capacity },
            Command::ChangeCapacity { course, capacity } => Enrolment::CourseCapacityChanged { course, capacity },
            Command::RegisterStudent { student, name } => Enrolment::StudentRegistered { student, name },
            Command::Enrol { course, student } => Enrolment::StudentEnrolled { course, student },
            Command::Leave { course, student } => Enrolment::StudentLeft { course, student },
        }
    }
}
