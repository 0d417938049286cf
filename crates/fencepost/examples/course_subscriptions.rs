//! Course subscriptions: rules over a course and over a student, held together, that no concurrent request can slip past.
//!
//! `cargo run -p fencepost --features embedded,testing --example course_subscriptions [URL]`, on `memory:` where no URL is given.

use fencepost::testing::given;
use fencepost::{Decision, Env, Event, Fold, Result, Store, about, decision, fold};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[rustfmt::skip] // one event, one line
enum School {
    CourseDefined { #[tag("course")] course: u64, capacity: u32 },
    CapacityChanged { #[tag("course")] course: u64, capacity: u32 },
    StudentSubscribed { #[tag("course")] course: u64, #[tag("student")] student: u64 },
}
use School::*;

#[derive(Debug, PartialEq)]
enum No {
    CourseExists,
    NoSuchCourse,
    SameCapacity,
    CourseFull,
    AlreadySubscribed,
    TooManyCourses,
}

const MOST_COURSES: usize = 3;

/// None where the course was never defined. Subscriptions are left out: they need not disturb who changes the capacity.
fn capacity(course: u64) -> Fold<Option<u32>> {
    let sizes = about("course", course).only(["CourseDefined", "CapacityChanged"]);
    fold(sizes, None, |seats, event| {
        if let CourseDefined { capacity, .. } | CapacityChanged { capacity, .. } = event {
            *seats = Some(*capacity);
        }
    })
}

fn seats_taken(course: u64) -> Fold<u32> {
    fold(about("course", course).only(["StudentSubscribed"]), 0, |taken, _: &School| *taken += 1)
}

fn courses_of(student: u64) -> Fold<Vec<u64>> {
    fold(("student", student), Vec::new(), |courses, event| {
        if let StudentSubscribed { course, .. } = event {
            courses.push(*course);
        }
    })
}

fn define(course: u64, seats: u32) -> impl Decision<Rejection = No> {
    decision(capacity(course), move |defined| match defined {
        Some(_) => Err(No::CourseExists),
        None => Ok([CourseDefined { course, capacity: seats }]),
    })
}

fn change_capacity(course: u64, seats: u32) -> impl Decision<Rejection = No> {
    decision(capacity(course), move |now| match *now {
        None => Err(No::NoSuchCourse),
        Some(now) if now == seats => Err(No::SameCapacity),
        Some(_) => Ok([CapacityChanged { course, capacity: seats }]),
    })
}

fn subscribe(student: u64, course: u64) -> impl Decision<Rejection = No> {
    decision((capacity(course), seats_taken(course), courses_of(student)), move |(capacity, taken, courses)| match capacity {
        None => Err(No::NoSuchCourse),
        Some(_) if courses.contains(&course) => Err(No::AlreadySubscribed),
        Some(seats) if taken >= seats => Err(No::CourseFull),
        Some(_) if courses.len() >= MOST_COURSES => Err(No::TooManyCourses),
        Some(_) => Ok([StudentSubscribed { course, student }]),
    })
}

fn cases() {
    let course = |course, capacity| CourseDefined { course, capacity };
    let subscribed = |student, course| StudentSubscribed { course, student };
    given(()).when(define(1, 10)).then([course(1, 10)]);
    given([course(1, 10)]).when(define(1, 15)).then_rejected(No::CourseExists);

    given(()).when(change_capacity(1, 5)).then_rejected(No::NoSuchCourse);
    given([course(1, 12)]).when(change_capacity(1, 12)).then_rejected(No::SameCapacity);
    given([course(1, 12)]).when(change_capacity(1, 15)).then([CapacityChanged { course: 1, capacity: 15 }]);

    given(()).when(subscribe(7, 1)).then_rejected(No::NoSuchCourse);
    given([course(1, 2), subscribed(7, 1), subscribed(8, 1)]).when(subscribe(9, 1)).then_rejected(No::CourseFull);
    given([course(1, 1), subscribed(7, 1), CapacityChanged { course: 1, capacity: 2 }]).when(subscribe(8, 1)).then([subscribed(8, 1)]);
    given([course(1, 2), subscribed(7, 1)]).when(subscribe(7, 1)).then_rejected(No::AlreadySubscribed);
    let busy = given([course(4, 9)]).and([subscribed(7, 1), subscribed(7, 2), subscribed(7, 3)]);
    busy.clone().when(subscribe(7, 4)).then_rejected(No::TooManyCourses);
    busy.when(subscribe(8, 4)).then([subscribed(8, 4)]);
}

#[tokio::main]
async fn main() -> Result<()> {
    cases();
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let store = Store::builder(&url)?.create(true).open().await?;
    // Ids of their own for each run, so that a store which stays can be used again.
    let first = Env::system().below(1 << 60);
    try_join_all((first..first + 5).map(async |course| store.decide(define(course, 3)).await)).await?;

    // Eight students at once for the three seats of one course.
    let crowd = try_join_all((1..=8).map(async |n| store.decide(subscribe(first + n, first)).await)).await?;
    let full = crowd.iter().filter(|one| one.rejection() == Some(&No::CourseFull)).count();
    let tries: u32 = crowd.iter().map(|one| one.tries).sum();
    println!("8 asked for 3 seats: {} sit, {full} were told that it is full, in {tries} tries", 8 - full);
    assert_eq!(full, 5, "as many sit as there are seats");

    // One student at once for four courses, of which three are allowed.
    let eager = try_join_all((first + 1..first + 5).map(async |course| store.decide(subscribe(first + 99, course)).await)).await?;
    let refused: Vec<_> = eager.iter().filter_map(|one| one.rejection()).collect();
    println!("one asked for 4 courses: {} and {refused:?}", 4 - refused.len());
    assert_eq!(refused, [&No::TooManyCourses]);
    Ok(())
}
