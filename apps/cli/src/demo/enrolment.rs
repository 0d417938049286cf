//! The domain of the demo: courses with seats, students with a limit, and a request decided on both.

use fencepost::{Append, Error, Event, EventLog, Query, Recorded, Result, Units};
use serde::{Deserialize, Serialize};

pub(super) const OPENED: &str = "CourseOpened";
pub(super) const ENROLLED: &str = "StudentEnrolled";

/// How often an append that stays in doubt is settled before the demo gives up.
const SETTLE: u32 = 5;

/// How many students come at once: few enough that the first reach their limit before the courses are full.
const WAVE: usize = 12;

/// The rules, and the names that this run uses.
#[derive(Debug, Clone)]
pub(super) struct Campus {
    pub(super) run: String,
    pub(super) capacity: u32,
    pub(super) limit: u32,
}

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Enrolled,
    Full,
    AtLimit,
}

/// What one worker, or all of them, met.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) enrolled: u64,
    pub(super) full: u64,
    pub(super) at_limit: u64,
    /// Appends that lost a race that mattered.
    pub(super) conflicts: u64,
    /// Of those, how many were decided again on what the conflict brought, without reading.
    pub(super) without_reading: u64,
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
        self.without_reading += other.without_reading;
        self.resolved += other.resolved;
        self.units += other.units;
    }
}

#[derive(Serialize, Deserialize)]
struct Opened {
    capacity: u32,
}

/// What a decision knows, folded from events.
#[derive(Default)]
struct Seats {
    capacity: u32,
    taken: u32,
    courses: u32,
}

impl Seats {
    fn fold(&mut self, events: &[Recorded], course: &str, student: &str) -> Result<()> {
        for event in events {
            let carries = |tag: &str| event.tags.iter().any(|t| t.as_str() == tag);
            match event.event_type.as_str() {
                OPENED => self.capacity = event.json::<Opened>()?.capacity,
                ENROLLED => {
                    self.taken += u32::from(carries(course));
                    self.courses += u32::from(carries(student));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Campus {
    pub(super) fn course(&self, number: u32) -> String {
        format!("course:{}-{number}", self.run)
    }
    pub(super) fn student(&self, number: u32) -> String {
        format!("student:{}-{number}", self.run)
    }

    pub(super) fn open(&self, course: u32) -> Result<Append> {
        Ok(Append::new([Event::json(OPENED, &Opened { capacity: self.capacity })?.tag(self.course(course))?]))
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

    /// One request: read once, decide, append unless something came meanwhile; then decide again on what the conflict brought.
    pub(super) async fn enrol(&self, log: &dyn EventLog, student: u32, course: u32, tally: &mut Tally) -> Result<Answer> {
        let (course, student) = (self.course(course), self.student(student));
        let query = Query::item([OPENED, ENROLLED], [&course])?.or(Query::item([ENROLLED], [&student])?);
        let read = log.source(&query, None).await?;
        tally.units += read.units;
        let (mut seats, mut token) = (Seats::default(), read.token);
        seats.fold(&read.events, &course, &student)?;
        let mut conflicts = 0;
        let answer = loop {
            let refusal = match () {
                () if seats.taken >= seats.capacity => Some(Answer::Full),
                () if seats.courses >= self.limit => Some(Answer::AtLimit),
                () => None,
            };
            if let Some(refusal) = refusal {
                // Course and student were read at two moments, and no append will catch what lay between: a refusal is confirmed first.
                if log.unchanged(&token).await?.value {
                    break refusal;
                }
                let read = log.source(&query, Some(&token)).await?;
                tally.units += read.units;
                token = read.token;
                seats.fold(&read.events, &course, &student)?;
                continue;
            }
            let event = Event::json(ENROLLED, &serde_json::json!({ "seat": seats.taken + 1 }))?.tag(&course)?.tag(&student)?;
            match settle(log, Append::new([event]).unless(query.clone(), token.clone())).await {
                Ok(committed) => {
                    tally.units += committed.units;
                    break Answer::Enrolled;
                }
                Err(Error::Conflict(conflict)) => {
                    conflicts += 1;
                    tally.units += conflict.units;
                    let events = match conflict.token {
                        Some(newer) => {
                            tally.without_reading += 1;
                            token = newer;
                            conflict.events
                        }
                        None => {
                            let read = log.source(&query, Some(&token)).await?;
                            tally.units += read.units;
                            token = read.token;
                            read.events
                        }
                    };
                    seats.fold(&events, &course, &student)?;
                }
                Err(error) => return Err(error),
            }
        };
        tally.conflicts += conflicts;
        tally.resolved += u64::from(conflicts > 0);
        Ok(answer)
    }
}

/// Appends, and repeats under the same id what stayed in doubt.
async fn settle(log: &dyn EventLog, append: Append) -> Result<fencepost::Committed> {
    let mut tried = log.append(append.clone()).await;
    for _ in 0..SETTLE {
        let Err(Error::InDoubt(doubt)) = tried else { break };
        tried = log.append(append.clone().again(doubt.commit, doubt.base)).await;
    }
    tried
}
