//! `demo`: course enrolment with concurrent students on the chosen store, and the proof that no rule was broken.

mod enrolment;
mod feed;
mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fencepost::{Env, EventLog, Feed, Query, ReadOptions, Result, Units};
use futures::TryStreamExt;
use serde::Serialize;

use crate::args::Place;
use crate::failure::{Code, Failure, Outcome};
use crate::indexed;
use crate::output::{Format, Output, Paint, progress};
use enrolment::{Campus, ENROLLED, Tally};
use report::{Dollars, Report};

/// Watch course enrolment with concurrent students, in memory unless a store is named
///
/// Students ask for seats at the same time. Every request is decided on the course's and the student's events together, and recorded only
/// if none came meanwhile that matters: the exact boundary. At the end everything is read again and counted.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[command(after_help = "\
Examples:
  fencepost demo
  fencepost demo --students 500 --workers 64
  fencepost demo --store http://127.0.0.1:8000/demo")]
pub(crate) struct Args {
    /// How many courses there are
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    courses: u32,
    /// Seats in each course
    #[arg(long, value_name = "N", default_value_t = 10)]
    capacity: u32,
    /// How many students there are; each asks for one seat more than the limit allows
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    students: u32,
    /// How many courses a student may take
    #[arg(long, value_name = "N", default_value_t = 5)]
    limit: u32,
    /// How many requests are decided at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    workers: u32,
    /// Who asks for what, in which order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let url = place.url().unwrap_or("memory:");
    let store = fencepost::Store::builder(url)?.create(true).open().await?;
    let log = store.log()?;
    indexed::keep_up(&store, url).await?;
    perform(args, url, log, store.feed().ok(), out).await
}

async fn perform(args: Args, url: &str, log: Arc<dyn EventLog>, feed: Option<Arc<dyn Feed>>, out: &mut Output) -> Outcome {
    let began = Instant::now();
    // A name of its own, so that a store which outlives the demo can hold many.
    let run = Env::system().new_id().simple().to_string().split_off(26);
    let campus = Campus { run: run.clone(), capacity: args.capacity, limit: args.limit };
    let watch = match feed {
        Some(feed) => Some(feed::Watch::begin(&*feed, &campus).await?),
        None => None,
    };

    let mut units = open_courses(&*log, &campus, args.courses).await?;
    let requests = campus.requests(args.courses, args.students, &mut fastrand::Rng::with_seed(args.seed));
    let tally = enrol(&log, &campus, requests, args.workers).await?;
    units += tally.units;
    let decided = began.elapsed();

    let check = check(&*log, &campus, args.courses).await?;
    let feed = match watch {
        Some(watch) => Some(watch.finish(u64::from(args.courses) + tally.enrolled).await?),
        None => None,
    };
    let dollars = Dollars::of(units, tally.enrolled);
    let report =
        Report { store: url, run: &run, setting: &args, tally: &tally, check: &check, feed: feed.as_ref(), units, decided, dollars };
    if out.format == Format::Table {
        out.text(report.story(out.paint))?;
    } else {
        eprintln!("{}", report.story(Paint::none()));
        out.result(&report, |_| String::new())?;
    }
    out.flush()?;
    if let Some(broken) = check.broken(&args).or_else(|| (check.enrolled != tally.enrolled).then(|| "enrolments were lost".into())) {
        return Err(Failure::new(Code::Corrupt, broken));
    }
    Ok(())
}

async fn open_courses(log: &dyn EventLog, campus: &Campus, courses: u32) -> Result<Units> {
    let mut units = Units::default();
    for course in 1..=courses {
        units += log.append(campus.open(course)?).await?.units;
    }
    Ok(units)
}

/// All requests, so many at a time.
async fn enrol(log: &Arc<dyn EventLog>, campus: &Campus, requests: Vec<(u32, u32)>, workers: u32) -> Outcome<Tally> {
    let bar = progress(Some(requests.len() as u64), "enrolling");
    let queue = Arc::new(Mutex::new(requests));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (log, campus, queue, bar) = (log.clone(), campus.clone(), queue.clone(), bar.clone());
        tasks.spawn(async move {
            let mut tally = Tally::default();
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some((student, course)) = next else { return Ok::<_, fencepost::Error>(tally) };
                campus.enrol(&*log, student, course, &mut tally).await?;
                bar.inc(1);
            }
        });
    }
    let mut total = Tally::default();
    while let Some(done) = tasks.join_next().await {
        total += done.map_err(|error| Failure::new(Code::Failure, error.to_string()))??;
    }
    bar.finish_and_clear();
    Ok(total)
}

/// What a fresh read says, whatever the workers believe.
#[derive(Debug, Serialize)]
struct Check {
    enrolled: u64,
    fullest_course: u32,
    busiest_student: u32,
}

impl Check {
    fn broken(&self, rules: &Args) -> Option<String> {
        if self.fullest_course > rules.capacity {
            return Some(format!("a course of {} seats has {} students", rules.capacity, self.fullest_course));
        }
        (self.busiest_student > rules.limit)
            .then(|| format!("a student with a limit of {} courses takes {}", rules.limit, self.busiest_student))
    }
}

async fn check(log: &dyn EventLog, campus: &Campus, courses: u32) -> Result<Check> {
    let mut students: BTreeMap<String, u32> = BTreeMap::new();
    let (mut fullest, mut enrolled) = (0, 0);
    for course in 1..=courses {
        let query = Query::item([ENROLLED], [campus.course_tag(course)])?;
        let events: Vec<_> = log.read(&query, ReadOptions::default()).try_collect().await?;
        fullest = fullest.max(u32::try_from(events.len()).unwrap_or(u32::MAX));
        enrolled += events.len() as u64;
        for tag in events.iter().flat_map(|event| &event.tags).filter(|tag| tag.as_str().starts_with("student:")) {
            *students.entry(tag.to_string()).or_default() += 1;
        }
    }
    let busiest = students.values().copied().max().unwrap_or(0);
    Ok(Check { enrolled, fullest_course: fullest, busiest_student: busiest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Captured;
    use fencepost::Memory;

    fn small() -> Args {
        Args { courses: 4, capacity: 3, students: 12, limit: 2, workers: 8, seed: 7 }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_demo_fills_the_courses_and_breaks_no_rule() {
        let (mut out, captured) = Captured::output(Format::Ndjson);
        let memory = Memory::new();
        perform(small(), "memory:", Arc::new(memory.clone()), Some(Arc::new(memory)), &mut out).await.expect("ends well");
        let report = captured.json();
        assert_eq!(report["enrolled"], 12, "4 courses of 3 seats: {report}");
        assert_eq!(report["check"]["enrolled"], 12);
        assert_eq!(report["check"]["fullest_course"], 3);
        assert_eq!(report["full"].as_u64().zip(report["at_limit"].as_u64()).map(|(full, limit)| full + limit), Some(24));
        assert_eq!(report["feed"]["events"], 16);
        assert_eq!(report["feed"]["last"].as_array().map(Vec::len), Some(5));
    }

    #[tokio::test]
    async fn the_check_sees_a_course_that_is_over_capacity() {
        let memory = Memory::new();
        let campus = Campus { run: "x".into(), capacity: 1, limit: 1 };
        for student in ["student:a", "student:a", "student:b"] {
            let event = fencepost::Event::new(ENROLLED, "{}").and_then(|e| e.tag(campus.course_tag(1))?.tag(student)).expect("event");
            EventLog::append(&memory, fencepost::Append::new([event])).await.expect("appends");
        }
        let check = check(&memory, &campus, 1).await.expect("reads");
        assert_eq!((check.fullest_course, check.busiest_student, check.enrolled), (3, 2, 3));
        assert!(check.broken(&Args { capacity: 2, ..small() }).is_some_and(|why| why.contains("seats")));
        assert!(check.broken(&Args { limit: 1, ..small() }).is_some_and(|why| why.contains("limit")));
        assert!(check.broken(&small()).is_none());
    }
}
