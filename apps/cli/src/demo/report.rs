//! What the demo tells at its end: as a story for people, as one object for programs.

use std::time::Duration;

use fencepost::Units;
use serde::{Serialize, Serializer};

use super::enrolment::Tally;
use super::feed::Seen;
use super::{Args, Check};
use crate::json::{EventLine, row};
use crate::output::Paint;

/// DynamoDB on demand, standard table class, us-east-1, in dollars for a million request units, since 1 November 2024.
/// <https://aws.amazon.com/dynamodb/pricing/on-demand/>
const DOLLARS_PER_MILLION_WRITES: f64 = 0.625;
const DOLLARS_PER_MILLION_READS: f64 = 0.125;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) store: &'a str,
    pub(super) run: &'a str,
    pub(super) setting: &'a Args,
    #[serde(flatten)]
    pub(super) tally: &'a Tally,
    pub(super) check: &'a Check,
    pub(super) feed: Option<&'a Seen>,
    pub(super) units: Units,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub(super) decided: Duration,
    pub(super) dollars: Dollars,
}

/// What it would cost on demand.
#[derive(Debug, Serialize)]
pub(super) struct Dollars {
    total: f64,
    per_million_enrolments: Option<f64>,
}

impl Dollars {
    pub(super) fn of(units: Units, enrolled: u64) -> Self {
        let total = (units.write * DOLLARS_PER_MILLION_WRITES + units.read * DOLLARS_PER_MILLION_READS) / 1e6;
        Self { total, per_million_enrolments: (enrolled > 0).then(|| total * 1e6 / enrolled as f64) }
    }
}

fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

impl Report<'_> {
    pub(super) fn story(&self, paint: Paint) -> String {
        let Report { setting, tally, check, units, .. } = self;
        let requests = tally.enrolled + tally.full + tally.at_limit;
        let took = self.decided.as_secs_f64();
        let mut text = format!("{} on {} (run {})\n", paint.bold("Course enrolment"), paint.name(self.store), self.run);
        text += &format!(
            "{} courses of {} seats, {} students with at most {} courses each, {} requests at a time\n\n",
            setting.courses, setting.capacity, setting.students, setting.limit, setting.workers
        );
        let mut line = |name: &str, value: String, note: String| {
            text += &format!("  {} {value:>8}  {}\n", paint.dim(format!("{name:<22}")), paint.dim(note)).replace("  \n", "\n");
        };
        line("requests", requests.to_string(), format!("in {took:.1} s, {:.0} a second", requests as f64 / took.max(1e-9)));
        line("enrolled", tally.enrolled.to_string(), format!("of {} seats", u64::from(setting.courses) * u64::from(setting.capacity)));
        line("refused: course full", tally.full.to_string(), String::new());
        line("refused: at the limit", tally.at_limit.to_string(), String::new());
        let note = format!("in {} requests, decided again and answered", tally.resolved);
        line("conflicts", tally.conflicts.to_string(), note);

        text += &format!("\n{}\n", paint.bold("Checked from a fresh read"));
        let mut rule = |holds: bool, what: String| {
            text += &format!("  {} {what}\n", if holds { paint.good("✓") } else { paint.bad("✗") });
        };
        rule(
            check.fullest_course <= setting.capacity,
            format!("no course over {} seats: the fullest has {}", setting.capacity, check.fullest_course),
        );
        rule(
            check.busiest_student <= setting.limit,
            format!("no student over {} courses: the busiest takes {}", setting.limit, check.busiest_student),
        );
        rule(check.enrolled == tally.enrolled, format!("every enrolment recorded once: {}", check.enrolled));

        match self.feed {
            Some(feed) => {
                text += &format!("\n{} ({} events came, in order; the last {})\n", paint.bold("The feed"), feed.events, feed.last.len());
                feed.last.iter().for_each(|event| text += &format!("{}\n", row(&EventLine::of(event), paint)));
            }
            None => text += &format!("\n{} this store has none\n", paint.bold("The feed")),
        }

        let each = tally.enrolled.max(1) as f64;
        text += &format!("\n{}\n  {units}\n", paint.bold("What it cost"));
        text += &format!(
            "  {:.1} write and {:.1} read units for each enrolment, refused requests included\n",
            units.write / each,
            units.read / each
        );
        text += &format!(
            "  {}\n",
            paint.dim("(appends that lost to a conflict are billed, and counted; confirming a refusal is one read more)")
        );
        let million =
            self.dollars.per_million_enrolments.map_or_else(String::new, |dollars| format!("; ${dollars:.2} for a million enrolments"));
        text + &format!("  ${:.6} on demand{million} {}", self.dollars.total, paint.dim("(us-east-1)"))
    }
}
