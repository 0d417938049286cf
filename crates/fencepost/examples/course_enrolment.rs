//! Course enrolment: one decision over two tags, the course's and the student's, that no concurrent request can slip past.
//!
//! `cargo run -p fencepost --features embedded --example course_enrolment [URL]`, on `memory:` where no URL is given.

use fencepost::{After, Append, Conflict, Env, Error, Event, EventLog, EventLogExt, Query, ReadOptions, Recorded, Result, Store};
use futures::future::try_join_all;

const MOST_COURSES: u32 = 2;

#[derive(Debug, PartialEq)]
enum Answer {
    Enrolled,
    NoSuchCourse,
    Full,
    TooManyCourses,
    AlreadyIn,
}

/// What the decision knows: folded from the events of one course and one student.
#[derive(Default)]
struct Model {
    capacity: Option<u32>,
    taken: u32,
    courses: u32,
    already_in: bool,
}

impl Model {
    fn fold(&mut self, events: &[Recorded], course: &str, student: &str) -> Result<()> {
        for event in events {
            let carries = |tag: &str| event.tags.iter().any(|t| t.as_str() == tag);
            match event.event_type.as_str() {
                "CourseDefined" => self.capacity = Some(event.json()?),
                "StudentEnrolled" => {
                    self.taken += u32::from(carries(course));
                    self.courses += u32::from(carries(student));
                    self.already_in |= carries(course) && carries(student);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn decide(&self) -> Answer {
        match self.capacity {
            None => Answer::NoSuchCourse,
            Some(_) if self.already_in => Answer::AlreadyIn,
            Some(capacity) if self.taken >= capacity => Answer::Full,
            Some(_) if self.courses >= MOST_COURSES => Answer::TooManyCourses,
            Some(_) => Answer::Enrolled,
        }
    }
}

async fn define(log: &dyn EventLog, course: &str, capacity: u32) -> Result<()> {
    let event = Event::json("CourseDefined", &capacity)?.tag(course)?;
    // No token: any definition in history is one too many.
    log.append(Append::new([event]).unless(Query::item(["CourseDefined"], [course])?, After::Nothing)).await?;
    Ok(())
}

async fn enrol(log: &dyn EventLog, course: &str, student: &str) -> Result<Answer> {
    let query = Query::item(["CourseDefined", "StudentEnrolled"], [course])?.or(Query::item(["StudentEnrolled"], [student])?);
    let read = log.source(&query, None).await?;
    let (mut token, mut model) = (read.token, Model::default());
    model.fold(&read.events, course, student)?;
    loop {
        let answer = model.decide();
        if answer == Answer::Enrolled {
            let event = Event::new("StudentEnrolled", "{}")?.tag(course)?.tag(student)?;
            match log.append(Append::new([event]).unless(query.clone(), &token)).await {
                Ok(_) => return Ok(answer),
                Err(Error::Conflict(conflict)) => {
                    let Conflict { events, token: newer, .. } = *conflict;
                    if let Some(newer) = newer {
                        // The conflict brought what the model lacks: no read.
                        model.fold(&events, course, student)?;
                        token = newer;
                        continue;
                    }
                }
                Err(error) => return Err(error),
            }
        } else if log.unchanged(&token).await?.value {
            // Two tags were read, one after the other: a "no" is said only of a state that was there at one instant.
            return Ok(answer);
        }
        let more = log.source(&query, Some(&token)).await?;
        model.fold(&more.events, course, student)?;
        token = more.token;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    let log = store.log()?;
    let run = Env::system().new_id().simple().to_string();
    let (course, student) = (|n: u32| format!("course:{run}-{n}"), |n: u32| format!("student:{run}-{n}"));
    for n in 1..=4 {
        define(&*log, &course(n), 3).await?;
    }
    // Five students at once for three seats, and one student at once for three courses with a limit of two.
    let crowd = try_join_all((1..=5).map(async |n| enrol(&*log, &course(1), &student(n)).await)).await?;
    let eager = try_join_all((2..=4).map(async |n| enrol(&*log, &course(n), &student(9)).await)).await?;
    println!("{crowd:?}\n{eager:?}");

    let count = |answers: &[Answer], of: Answer| answers.iter().filter(|answer| **answer == of).count();
    assert_eq!((count(&crowd, Answer::Enrolled), count(&crowd, Answer::Full)), (3, 2));
    assert_eq!((count(&eager, Answer::Enrolled), count(&eager, Answer::TooManyCourses)), (2, 1));
    let seats = log.read_all(&Query::item(["StudentEnrolled"], [course(1)])?, ReadOptions::default()).await?;
    assert_eq!(seats.len(), 3, "as many as there are seats");
    assert_eq!(enrol(&*log, &course(5), &student(9)).await?, Answer::NoSuchCourse);
    Ok(())
}
