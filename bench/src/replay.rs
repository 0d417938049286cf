//! A consumer replays a long log from a served engine: over a lane, over the index as an indexer writes it, and as a rebuild does. Engine, loader,
//! indexer and consumer are processes of their own, so that the memory that is reported is the consumer's alone.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fencepost::{Append, Consumer, Engine, Event, Handed, IndexOptions, Result, Store};
use fencepost_contest::{KEY, REGION, memory};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::report::{Report, claim, figure};

#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Events in the log.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Events of a commit.
    #[arg(long, default_value_t = 10_000)]
    commit: u64,
    /// Bytes of a body.
    #[arg(long, default_value_t = 300)]
    bytes: usize,
    /// Only these: lane, index, rebuilt.
    #[arg(long = "over", value_enum)]
    over: Vec<Over>,
}

/// What the consumer follows.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Over {
    Lane,
    /// The index, as an indexer writes it,
    Index,
    /// and as a rebuild does.
    Rebuilt,
}

impl Over {
    fn says(self) -> &'static str {
        match self {
            Over::Lane => "over one lane",
            Over::Index => "over the index",
            Over::Rebuilt => "over the index, rebuilt",
        }
    }
}

/// What a consumer may hold, resident, however long the log is.
const MOST: u64 = 100_000_000;

impl Args {
    /// As long as it is to be shown.
    pub(crate) fn is_whole(&self) -> bool {
        self.events >= 1_000_000 && self.commit >= 10_000 && self.over.is_empty()
    }
}

/// One of the processes.
#[derive(clap::Args)]
pub(crate) struct Process {
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand)]
enum Role {
    Engine,
    Loader {
        url: String,
        #[command(flatten)]
        args: Args,
    },
    Indexer {
        url: String,
        over: Over,
    },
    Consumer {
        url: String,
        events: u64,
    },
}

/// What the consumer's process tells at its end, in bytes and seconds.
#[derive(Serialize, Deserialize)]
struct Course {
    seconds: f64,
    /// Resident: at the start, after 10 %, 50 % and 100 %.
    resident: Vec<u64>,
    peak: u64,
}

impl Process {
    pub(crate) async fn run(self) -> Result<()> {
        match self.role {
            Role::Engine => engine().await,
            Role::Loader { url, args } => loader(&url, &args).await,
            Role::Indexer { url, over } => indexer(&url, over).await,
            Role::Consumer { url, events } => consumer(&url, events).await,
        }
    }
}

/// Serves until whoever started it is gone.
async fn engine() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    Engine::memory()?.serve(listener, async { drop(orphaned.await) }).await
}

async fn loader(url: &str, args: &Args) -> Result<()> {
    let store = Store::builder(url)?.create(true).open().await?;
    let log = store.log()?;
    let mut loaded = 0;
    while loaded < args.events {
        let count = args.commit.min(args.events - loaded);
        // Numbers that do not repeat, so that bodies are not compressed to nothing.
        let event = |n: u64| {
            let filler: String = (0..).map(|at| format!("{:x}", (n * 31 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15))).take(64).collect();
            let text = filler.get(..args.bytes.saturating_sub(24)).unwrap_or(&filler);
            Event::new("OrderPlaced", format!("{{\"n\":{n},\"text\":\"{text}\"}}"))?.tag(format!("order:{}", n % 50))
        };
        let events = (loaded..loaded + count).map(event).collect::<Result<Vec<_>>>()?;
        log.append(Append::new(events)).await?;
        loaded += count;
    }
    Ok(())
}

async fn indexer(url: &str, over: Over) -> Result<()> {
    let index = Store::builder(url)?.open().await?.index()?;
    if over == Over::Rebuilt {
        index.rebuild(&|_| ()).await?;
    } else {
        index.run(&IndexOptions::default().until_caught_up(), &|_| ()).await?;
    }
    Ok(())
}

async fn consumer(url: &str, events: u64) -> Result<()> {
    let store = Store::builder(url)?.open().await?;
    let (handled, done) = (AtomicU64::new(0), tokio::sync::Notify::new());
    let resident = Mutex::new(vec![memory("VmRSS")]);
    let handler = async |_event: Handed| {
        let so_far = handled.fetch_add(1, Ordering::Relaxed) + 1;
        if [events / 10, events / 2, events].contains(&so_far) {
            resident.lock().expect("whole").push(memory("VmRSS"));
        }
        if so_far == events {
            done.notify_one();
        }
        Ok::<_, String>(())
    };
    let began = Instant::now();
    let replay: Consumer = store.consumer("replay")?;
    let ended = replay.run_until(handler, done.notified()).await?;
    assert!(matches!(ended, fencepost::Ended::Stopped), "{ended:?}");
    let course = Course { seconds: began.elapsed().as_secs_f64(), resident: resident.into_inner().expect("whole"), peak: memory("VmHWM") };
    println!("{}", serde_json::to_string(&course).expect("plain"));
    Ok(())
}

/// A process that ends with this one.
struct Started(Child);

impl Started {
    fn new(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        // A served engine takes any credentials, but the SDK wants some.
        command.args(["process"]).args(args).env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", KEY);
        command.env("AWS_REGION", REGION).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }
    /// The first line that it prints; none where it ends without.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take()?).read_line(&mut line).expect("text");
        (!line.is_empty()).then(|| line.trim().to_owned())
    }
    fn ends_well(&mut self) {
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn run(args: &Args) -> Result<Report> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let all = [Over::Lane, Over::Index, Over::Rebuilt];
    for over in all.into_iter().filter(|over| args.over.is_empty() || args.over.contains(over)) {
        let (loading, course) = replay(args, over);
        let per_second = |seconds: f64| json!((args.events as f64 / seconds).round() as u64);
        let megabytes = |bytes: &u64| figure(*bytes as f64 / 1e6, 1);
        let resident = course.resident.iter().chain([&course.peak]).map(megabytes);
        rows.push([json!(over.says()), per_second(loading), per_second(course.seconds)].into_iter().chain(resident).collect());
        if args.is_whole() {
            let says = format!("{}: at most {} MB resident: {:.1}", over.says(), MOST / 1_000_000, course.peak as f64 / 1e6);
            notes.push(claim(&says, course.peak <= MOST));
        }
    }
    let title = format!(
        "{} events of {} bytes in commits of {}, replayed by a consumer from a served engine",
        args.events, args.bytes, args.commit
    );
    let columns =
        ["", "loaded, events/s", "replayed, events/s", "resident at the start, MB", "after 10 %", "after 50 %", "after 100 %", "at most"];
    Ok(Report::new(&columns, rows).titled(&title).with_notes(notes))
}

/// The seconds of loading, and the consumer's course.
fn replay(args: &Args, over: Over) -> (f64, Course) {
    eprintln!("{} events {} …", args.events, over.says());
    let mut engine = Started::new(&["engine"]);
    let address = engine.line().expect("an address");
    let url = format!("http://{address}/replay?feed={}", if over == Over::Lane { "lanes-1" } else { "streams" });
    let numbers = [args.events, args.commit, args.bytes as u64].map(|n| n.to_string());
    let [events, commit, bytes] = numbers.each_ref().map(String::as_str);
    let began = Instant::now();
    Started::new(&["loader", &url, "--events", events, "--commit", commit, "--bytes", bytes]).ends_well();
    let loading = began.elapsed().as_secs_f64();
    if over != Over::Lane {
        Started::new(&["indexer", &url, if over == Over::Index { "index" } else { "rebuilt" }]).ends_well();
    }
    let mut consumer = Started::new(&["consumer", &url, events]);
    let course: Course = consumer.line().and_then(|line| serde_json::from_str(&line).ok()).expect("a course");
    consumer.ends_well();
    (loading, course)
}
