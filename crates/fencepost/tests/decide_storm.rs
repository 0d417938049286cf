//! Decisions in a storm: requests and answers lost, delivered twice, throttled, and many deciders at once through several handles.
//! Afterwards the history tells: no course over its seats, no student over the limit, nobody in twice, and what each was told is so.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost::testing::{Chances, Faults};
use fencepost::{
    Append, Cache, Decided, Decision, Engine, Env, Error, Event, EventLogExt, Fold, IntoEvents, Query, ReadOptions, Store, Timeouts,
    decision, fold,
};
use futures::future::join_all;
use serde::{Deserialize, Serialize};

const SEATS: u32 = 6;
const MOST: usize = 3;

#[derive(Debug, Event, Serialize, Deserialize)]
enum Enrolment {
    CourseDefined {
        #[tag("course")]
        course: u64,
        seats: u32,
    },
    StudentEnrolled {
        #[tag("course")]
        course: u64,
        #[tag("student")]
        student: u64,
    },
}

#[derive(Debug, PartialEq)]
enum No {
    Full,
    TooMany,
    Already,
}

fn seats(course: u64) -> Fold<(u32, u32)> {
    let step = |(seats, taken): &mut (u32, u32), event: &Enrolment| match event {
        Enrolment::CourseDefined { seats: defined, .. } => *seats = *defined,
        Enrolment::StudentEnrolled { .. } => *taken += 1,
    };
    fold(("course", course), (0, 0), step).cached_as("seats")
}

fn courses(student: u64) -> Fold<BTreeSet<u64>> {
    let step = |courses: &mut BTreeSet<u64>, event: &Enrolment| match event {
        Enrolment::StudentEnrolled { course, .. } => {
            courses.insert(*course);
        }
        Enrolment::CourseDefined { .. } => {}
    };
    fold(("student", student), BTreeSet::new(), step).cached_as("courses")
}

fn enrol(course: u64, student: u64) -> impl Decision<Rejection = No> {
    decision((seats(course), courses(student)), move |((seats, taken), courses)| match () {
        () if courses.contains(&course) => Err(No::Already),
        () if taken >= seats => Err(No::Full),
        () if courses.len() >= MOST => Err(No::TooMany),
        () => Ok([Enrolment::StudentEnrolled { course, student }]),
    })
}

async fn storm(feed: &str, seed: u64) {
    let engine = Engine::memory().expect("engine").keep_tokens();
    let quick = Timeouts { attempt: Duration::from_millis(300), operation: Duration::from_secs(5), ..Timeouts::default() };
    let mut handles = Vec::new();
    for handle in 0..3 {
        let faults = Faults::new(engine.http_client(), seed * 10 + handle);
        let url = format!("memory:?feed={feed}");
        let builder = Store::builder(&url).expect("url").timeouts(quick).http_client(faults.http_client());
        handles.push((support::open(builder).await, faults, Cache::new(50)));
    }
    let log = handles[0].0.log().expect("log");
    for course in 0..4 {
        log.append(Append::new([Enrolment::CourseDefined { course, seats: SEATS }].into_events().expect("events"))).await.expect("appends");
    }
    for (_, faults, _) in &handles {
        let chances =
            Chances { throttle: 0.02, lose_request: 0.03, lose_response: 0.06, deliver_twice: 0.03, conflict: 0.03, ..Chances::default() };
        faults.random(chances);
    }
    let env = Env::seeded(seed);
    let wanted: Vec<_> = (0..150u64).map(|n| (n, env.below(4), env.below(16))).collect();
    let told = join_all(wanted.into_iter().map(async |(n, course, student)| {
        let (store, _, cache) = &handles[n as usize % 3];
        let deciding = store.decide(enrol(course, student)).cache(cache);
        // Some under a key, as a client that may ask again would.
        let told = if n % 4 == 0 { deciding.once(format!("{n}")).await } else { deciding.await };
        (course, student, told)
    }))
    .await;
    for (_, faults, _) in &handles {
        faults.calm();
    }

    let query = (0..4).map(|n| Query::tag(format!("course:{n}")).expect("query")).reduce(Query::or).expect("some");
    let history = log.read_all(&query, ReadOptions::default()).await.expect("reads");
    let (mut taken, mut of_student, mut ids) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for event in &history {
        if let Enrolment::StudentEnrolled { course, student } = event.decode().expect("decodes") {
            *taken.entry(course).or_insert(0u32) += 1;
            assert!(of_student.entry(student).or_insert_with(BTreeSet::new).insert(course), "{student} is in {course} twice");
            ids.insert(event.position, (course, student));
        }
    }
    assert!(taken.values().all(|taken| *taken <= SEATS), "{feed}: {taken:?}");
    assert!(of_student.values().all(|courses| courses.len() <= MOST), "{feed}: {of_student:?}");
    let (mut recorded, mut doubtful, mut unavailable) = (0, 0, 0);
    for (course, student, told) in told {
        match told {
            Ok(outcome) => match outcome.decided {
                Decided::Recorded(committed) => {
                    recorded += 1;
                    assert_eq!(ids.remove(&committed.positions[0]), Some((course, student)), "{feed}: told of an event that is not there");
                }
                Decided::Rejected(No::Already) => assert!(of_student[&student].contains(&course)),
                Decided::Rejected(No::Full) => assert_eq!(taken[&course], SEATS, "{feed}: told that a course is full that never was"),
                Decided::Rejected(No::TooMany) => assert_eq!(of_student[&student].len(), MOST),
                Decided::Nothing => panic!("nothing was decided"),
            },
            Err(Error::InDoubt(_)) => doubtful += 1,
            Err(Error::Unavailable(_)) => unavailable += 1,
            Err(error) => panic!("{feed}: {error}"),
        }
    }
    assert!(ids.len() <= doubtful, "{feed}: {} events that nobody was told of, and {doubtful} in doubt", ids.len());
    assert!(recorded > 10, "{feed}: a storm in which hardly anything was recorded shows nothing");
    println!("{feed}: {recorded} recorded, {doubtful} in doubt, {unavailable} unavailable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_in_a_storm_with_one_lane() {
    storm("lanes-1", 1).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_in_a_storm_with_four_lanes() {
    storm("lanes-4", 2).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_hold_in_a_storm_in_streams_mode() {
    storm("streams", 3).await;
}
