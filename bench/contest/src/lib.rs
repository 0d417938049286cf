//! What every contender of the benchmark shares, ours and the peers': what it is told to do, the bodies, the loop that times writers, and the
//! lines it prints.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fencepost::Units;
use serde::{Deserialize, Serialize};

/// Whatever a contender says went wrong.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Where everybody says that they call, and with which key: an endpoint such as DynamoDB Local keeps tables apart by both.
pub const REGION: &str = "us-east-1";
/// The key, and its secret.
pub const KEY: &str = "any";

/// Bytes of a body.
pub const BYTES: usize = 500;

/// Text that does not compress to nothing, sixteen characters for each word.
fn filler(n: u64, words: u64) -> String {
    (0..words).map(|at| format!("{:016x}", (n * 131 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

/// What a snapshot holds: text of 2,000 bytes.
pub fn state() -> String {
    filler(7, 125)
}

/// JSON of [`BYTES`] that does not compress to nothing.
pub fn body(n: u64) -> String {
    let filler = filler(n, 64);
    let head = format!("{{\"n\":{n},\"text\":\"");
    let text: String = filler.chars().take(BYTES - head.len() - 2).collect();
    format!("{head}{text}\"}}")
}

/// What is written to while it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Every writer appends to a stream of its own.
    Disjoint,
    /// All append to one stream; who loses reads on, and tries again.
    Hot,
    /// All decide on boundaries of two tags of eight, each of which is in four boundaries: read what is new, append one event on both.
    Boundaries,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 3] = [Scenario::Disjoint, Scenario::Hot, Scenario::Boundaries];
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scenario::Disjoint => "disjoint",
            Scenario::Hot => "hot",
            Scenario::Boundaries => "boundaries",
        })
    }
}

impl FromStr for Scenario {
    type Err = Fault;
    fn from_str(text: &str) -> Result<Self, Fault> {
        Self::ALL.into_iter().find(|scenario| scenario.to_string() == text).ok_or_else(|| format!("no scenario {text}").into())
    }
}

/// One timed run.
#[derive(Clone, Debug)]
pub struct Speed {
    /// What is written to.
    pub scenario: Scenario,
    /// How many write at once.
    pub writers: usize,
    /// For how long.
    pub lasts: Duration,
    /// Tables that were prepared.
    pub table: String,
    /// A run keeps to streams and tags of its own.
    pub run: u64,
}

impl Speed {
    /// The stream of a writer.
    pub fn stream(&self, writer: usize) -> String {
        match self.scenario {
            Scenario::Hot => format!("{}", self.run),
            _ => format!("{}-{writer}", self.run),
        }
    }

    /// The two tags of the nth boundary of sixteen.
    pub fn boundary(&self, n: usize) -> [String; 2] {
        [format!("order:{}-{}", self.run, n % 4), format!("customer:{}-{}", self.run, n / 4 % 4)]
    }
}

/// What a contender is told to do, as its arguments.
#[derive(Clone, Debug)]
pub enum Task {
    /// These rows, each counted: a [`Row`] for each.
    Units(Vec<String>),
    /// Makes the tables of this name.
    Prepare(String),
    /// Times writers: a [`Timed`].
    Speed(Speed),
    /// Opens prepared tables, appends one event, and tells its memory: a [`Timed`] of one operation.
    First(String),
    /// Grows a stream, and tells the units and the time of an append and a load at these lengths: a [`Grown`] for each. It stops after so long.
    Growth(Vec<u64>, Duration),
}

impl Task {
    /// `units ROW…`, `prepare TABLE`, `speed SCENARIO WRITERS MILLISECONDS TABLE RUN`, `first TABLE`, or `growth SECONDS LENGTH…`.
    pub fn parse(args: &[String]) -> Result<Task, Fault> {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        Ok(match words[..] {
            ["units", ref rows @ ..] => Task::Units(rows.iter().map(|row| (*row).to_owned()).collect()),
            ["prepare", table] => Task::Prepare(table.to_owned()),
            ["speed", scenario, writers, lasts, table, run] => Task::Speed(Speed {
                scenario: scenario.parse()?,
                writers: writers.parse()?,
                lasts: Duration::from_millis(lasts.parse()?),
                table: table.to_owned(),
                run: run.parse()?,
            }),
            ["first", table] => Task::First(table.to_owned()),
            ["growth", seconds, ref lengths @ ..] => {
                let lengths = lengths.iter().map(|length| length.parse()).collect::<Result<_, _>>()?;
                Task::Growth(lengths, Duration::from_secs(seconds.parse()?))
            }
            _ => return Err(format!("no task: {args:?}").into()),
        })
    }

    /// As [`Task::parse`] takes it.
    pub fn args(&self) -> Vec<String> {
        let words = |first: &str, rest: &[String]| [&[first.to_owned()], rest].concat();
        match self {
            Task::Units(rows) => words("units", rows),
            Task::Prepare(table) => words("prepare", std::slice::from_ref(table)),
            Task::Speed(Speed { scenario, writers, lasts, table, run }) => {
                words("speed", &[scenario.to_string(), writers.to_string(), lasts.as_millis().to_string(), table.clone(), run.to_string()])
            }
            Task::First(table) => words("first", std::slice::from_ref(table)),
            Task::Growth(lengths, lasts) => {
                let numbers = std::iter::once(lasts.as_secs()).chain(lengths.iter().copied());
                words("growth", &numbers.map(|n| n.to_string()).collect::<Vec<_>>())
            }
        }
    }
}

/// A line of what a contender prints for [`Task::Units`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub row: String,
    /// What it consumed,
    pub units: Option<Units>,
    /// or why it cannot be done.
    pub cannot: Option<String>,
    /// Whether a read of it, or one of several, is eventually consistent.
    #[serde(default)]
    pub eventual: bool,
    /// What the figures do not say.
    #[serde(default)]
    pub note: Option<String>,
}

impl Row {
    /// Begins the reason of a row that went wrong, where others cannot be done.
    pub const FAILED: &str = "failed";

    /// Strongly consistent, and nothing to add.
    pub fn of(row: &str, units: Units) -> Row {
        Row { row: row.to_owned(), units: Some(units), cannot: None, eventual: false, note: None }
    }

    /// It cannot be done, and why.
    pub fn cannot(row: &str, why: impl Into<String>) -> Row {
        Row { row: row.to_owned(), units: None, cannot: Some(why.into()), eventual: false, note: None }
    }

    /// It should have been done, and was not: said in its cell, while the other rows go on.
    pub fn failed(row: &str, why: &str) -> Row {
        let short: String = why.lines().next().unwrap_or_default().chars().take(80).collect();
        Row::cannot(row, format!("{}: {short}", Row::FAILED))
    }
}

/// Of this run of the benchmark, in the names of its tables, so that an endpoint can be measured again: what whoever started this process
/// says, or the number of the process.
pub fn run_id() -> String {
    std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string())
}

/// Where [`run_id`] is told.
pub const RUN: &str = "FENCEPOST_BENCH_RUN";

/// What a timed run came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// Operations that were done.
    pub done: u64,
    /// Those that were under way at the end.
    #[serde(default)]
    pub unfinished: u64,
    /// In this time.
    pub seconds: f64,
    /// Half of them took at most so many microseconds,
    pub p50: f64,
    /// and all but one in a hundred so many.
    pub p99: f64,
    /// Conflicts on the way to those; none where a contender settles them unseen.
    pub conflicts: Option<u64>,
    /// Bytes in memory before it began,
    pub rest: u64,
    /// and at most.
    pub peak: u64,
}

/// A line of what a contender prints for [`Task::Growth`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grown {
    /// Events in the stream.
    pub length: u64,
    /// One append, and its microseconds, the median of several.
    pub append: Option<(Units, f64)>,
    /// One load of all, and its microseconds.
    pub load: Option<(Units, f64)>,
    /// Whether a read of the load is eventually consistent.
    pub eventual: bool,
    /// The least that an append took in any of its rounds, of each kind of unit and of requests,
    pub least: Option<Units>,
    /// and the most.
    pub most: Option<Units>,
    /// Why there is none, or that it stopped here.
    pub says: Option<String>,
}

/// One of the writers of a timed run.
pub trait Writer: Send + 'static {
    /// One operation; how many conflicts it met.
    fn act(&mut self, scenario: Scenario) -> impl Future<Output = Result<u64, Fault>> + Send;
}

/// How long a writer's first operation may take: on a hot stream all of them want the same place.
const WARM: Duration = Duration::from_secs(2);

/// What a writer has done so far, and when it began what it is at.
#[derive(Default)]
struct Tally {
    took: Vec<Duration>,
    conflicts: u64,
    began: Option<Instant>,
}

/// Runs the writers, each in a task, until the time is over. The first operation of each is not counted: it opens the connection. What is under
/// way at the end is not waited for, since on a hot stream the last of many would take longer than all the others: it is not done, and its time
/// so far counts among the latencies, which are then at least what is told.
pub async fn race<W: Writer>(writers: Vec<W>, scenario: Scenario, lasts: Duration) -> Result<Timed, Fault> {
    let rest = memory("VmRSS");
    let ready = Arc::new(tokio::sync::Barrier::new(writers.len() + 1));
    let tallies: Vec<Arc<Mutex<Tally>>> = writers.iter().map(|_| Arc::default()).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (mut writer, tally) in writers.into_iter().zip(tallies.clone()) {
        let ready = ready.clone();
        tasks.spawn(async move {
            let warm = tokio::time::timeout(WARM, writer.act(scenario)).await;
            ready.wait().await;
            warm.unwrap_or(Ok(0))?;
            loop {
                let began = Instant::now();
                locked(&tally).began = Some(began);
                let conflicts = writer.act(scenario).await?;
                let mut tally = locked(&tally);
                tally.took.push(began.elapsed());
                tally.conflicts += conflicts;
            }
        });
    }
    ready.wait().await;
    let began = Instant::now();
    // A writer ends by a fault alone.
    if let Ok(Some(ended)) = tokio::time::timeout(lasts, tasks.join_next()).await {
        let ended: Result<std::convert::Infallible, Fault> = ended?;
        return ended.map(|never| match never {});
    }
    let (seconds, mut took, mut conflicts, mut under_way) = (began.elapsed().as_secs_f64(), Vec::new(), 0, Vec::new());
    for tally in &tallies {
        let tally = std::mem::take(&mut *locked(tally));
        took.extend(tally.took);
        conflicts += tally.conflicts;
        under_way.extend(tally.began.map(|began| began.elapsed()));
    }
    tasks.shutdown().await;
    let (done, unfinished) = (took.len() as u64, under_way.len() as u64);
    took.extend(under_way);
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).map_or(0.0, |took| took.as_secs_f64() * 1e6);
    Ok(Timed { done, unfinished, seconds, p50: at(0.5), p99: at(0.99), conflicts: Some(conflicts), rest, peak: memory("VmHWM") })
}

fn locked(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that grows.
pub trait Stream {
    /// One event behind what is there.
    fn append(&mut self) -> impl Future<Output = Result<(), Fault>>;
    /// All of it; how many events.
    fn load(&mut self) -> impl Future<Output = Result<u64, Fault>>;
    /// What was consumed since this was last asked.
    fn consumed(&mut self) -> Units;
    /// Whether a read of the last load was eventually consistent.
    fn is_eventual(&self) -> bool;
    /// What the figures of a load do not say.
    fn says(&self) -> Option<String> {
        None
    }
}

/// Appends at each length: some microseconds each, which a busy moment multiplies.
const APPENDS: usize = 25;
const LOADS: usize = 5;

/// Grows an empty stream, and says what an append and a load come to at these lengths, the medians of several; stops when the time is over.
pub async fn grow(stream: &mut impl Stream, lengths: &[u64], lasts: Duration) -> Result<(), Fault> {
    let (began, mut there) = (Instant::now(), 0);
    for length in lengths.iter().copied() {
        while there < length {
            stream.append().await?;
            there += 1;
            if began.elapsed() > lasts {
                let says = Some(format!("stopped after {} s", lasts.as_secs()));
                return say(&Grown { length: there, append: None, load: None, eventual: false, least: None, most: None, says });
            }
        }
        let (mut loads, mut appends, mut short, mut eventual) = (Vec::new(), Vec::new(), None, false);
        for _ in 0..LOADS {
            stream.consumed();
            let started = Instant::now();
            let loaded = stream.load().await?;
            if loaded != there {
                short = Some(format!("loads only {loaded} of {there}, and does not say so"));
                break;
            }
            loads.push((stream.consumed(), started.elapsed().as_secs_f64() * 1e6));
            eventual |= stream.is_eventual();
        }
        for _ in 0..APPENDS {
            stream.consumed();
            let started = Instant::now();
            stream.append().await?;
            there += 1;
            appends.push((stream.consumed(), started.elapsed().as_secs_f64() * 1e6));
        }
        let units = || appends.iter().map(|(units, _)| *units);
        let (least, most, says) = (least(units()), most(units()), short.or(stream.says()));
        say(&Grown { length, append: middle(appends), load: middle(loads), eventual, least, most, says })?;
    }
    Ok(())
}

/// The most of each kind of unit and of requests: what rounds must not differ in is seen in any of them.
pub fn most(of: impl Iterator<Item = Units>) -> Option<Units> {
    of.reduce(|a, b| Units { read: a.read.max(b.read), write: a.write.max(b.write), requests: a.requests.max(b.requests) })
}

/// The least of each.
fn least(of: impl Iterator<Item = Units>) -> Option<Units> {
    of.reduce(|a, b| Units { read: a.read.min(b.read), write: a.write.min(b.write), requests: a.requests.min(b.requests) })
}

/// The one that half of them took longer than.
fn middle(mut of: Vec<(Units, f64)>) -> Option<(Units, f64)> {
    of.sort_by(|a, b| a.1.total_cmp(&b.1));
    of.get(of.len() / 2).copied()
}

/// Bytes, as the kernel tells of this process: `VmRSS`, or `VmHWM` for the most. Nothing where there is no `/proc`.
pub fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// What there is to tell of a first operation: the memory.
pub fn first() -> Timed {
    Timed { done: 1, unfinished: 0, seconds: 0.0, p50: 0.0, p99: 0.0, conflicts: None, rest: memory("VmRSS"), peak: memory("VmHWM") }
}

/// Prints a line for whoever started this process.
pub fn say(line: &impl Serialize) -> Result<(), Fault> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for n in [0, 7, 9_999] {
            assert_eq!(body(n).len(), BYTES);
            assert!(serde_json::from_str::<serde_json::Value>(&body(n)).is_ok());
        }
        assert_eq!(state().len(), 2_000);
    }

    /// Two operations come to an end, the third never does.
    struct Stuck(u64);

    impl Writer for Stuck {
        async fn act(&mut self, _: Scenario) -> Result<u64, Fault> {
            self.0 += 1;
            match self.0 {
                1 | 2 => Ok(1),
                _ => std::future::pending().await,
            }
        }
    }

    #[tokio::test]
    async fn a_race_ends_with_its_time_whatever_is_under_way() {
        let (began, lasts) = (Instant::now(), Duration::from_millis(50));
        let timed = race((0..4).map(|_| Stuck(0)).collect(), Scenario::Hot, lasts).await.unwrap();
        assert!(began.elapsed() < WARM, "it waits for nobody");
        assert_eq!((timed.done, timed.unfinished, timed.conflicts), (4, 4, Some(4)));
        assert!(timed.p99 >= 49_000.0, "what is under way took as long as the race: {timed:?}");
    }

    /// It cannot be measured.
    struct Broken;

    impl Writer for Broken {
        async fn act(&mut self, _: Scenario) -> Result<u64, Fault> {
            Err("broken".into())
        }
    }

    #[tokio::test]
    async fn a_fault_of_a_writer_is_the_fault_of_the_race() {
        let fault = race(vec![Broken], Scenario::Hot, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(fault.to_string(), "broken");
    }

    #[test]
    fn tasks_are_told_as_they_are_taken() {
        let speed = Speed { scenario: Scenario::Hot, writers: 16, lasts: Duration::from_millis(700), table: "t".into(), run: 3 };
        let tasks = [
            Task::Units(vec!["append-1".into()]),
            Task::Prepare("t".into()),
            Task::Speed(speed),
            Task::First("t".into()),
            Task::Growth(vec![1, 10], Duration::from_secs(180)),
        ];
        for task in tasks {
            let again = Task::parse(&task.args()).unwrap();
            assert_eq!(format!("{task:?}"), format!("{again:?}"));
        }
        assert!(Task::parse(&["speed".into()]).is_err());
    }
}
