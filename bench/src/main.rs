//! Benchmarks: what the store costs and how fast it is beside its peers and the bare SDK, how fast feeds catch up, and what a long replay holds
//! in memory.

mod asked;
mod bare;
mod beaten;
mod catch_up;
mod claims;
mod contend;
mod contenders;
mod decides;
mod document;
mod filled;
mod floor;
mod ground;
mod growth;
mod instructions;
mod ours;
mod overhead;
mod pairs;
mod plot;
mod replay;
mod report;
mod speed;
mod units;
mod work;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, Subcommand};
use document::{Page, Told, Tree};
use fencepost_contest::Fault;
use plot::Plot;
use report::{BROKEN, Format, Report};

/// Measure fencepost beside the bare SDK and its peers, on the embedded engine
#[derive(Parser)]
struct Args {
    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Write what is found into `docs/src/measured` with its line in the guide's summary, and into the README. Only what everybody did in full.
    #[arg(long, global = true)]
    write: bool,
    /// A folder with a README.md and docs/src/SUMMARY.md to write into, and not those of this repository: then anything may be written.
    #[arg(long, global = true, requires = "write")]
    into: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Units and requests of the same work on each layout and with each peer.
    Units(units::Args),
    /// Operations a second, latency, start, size and memory.
    Speed(speed::Args),
    /// Units and time as a stream grows, and as the store does.
    Growth(growth::Args),
    /// Catching up and a long replay, as `catch-up` and `replay` alone.
    Feeds(Feeds),
    /// Units, speed, growth and feeds, with what they take to begin with.
    All(All),
    /// Appends and loads of the ledger beside the same requests sent by the bare SDK.
    Overhead(overhead::Args),
    /// Feeds over lanes and over the index beside a bare loop that does the same reads.
    CatchUp(catch_up::Args),
    /// A consumer replays a long log from a served engine: its memory and its speed.
    Replay(replay::Args),
    /// Instructions of planning, encoding and decoding, by callgrind, held against `bench/instructions.json`; `--write` writes them down.
    Instructions,
    /// A part of the hot path, so many times.
    #[command(hide = true)]
    Hot(instructions::Hot),
    /// One of our contenders, told what to do.
    #[command(hide = true)]
    Contend(contend::Args),
    /// A process of `replay`.
    #[command(hide = true)]
    Process(replay::Process),
}

#[derive(clap::Args)]
struct Feeds {
    /// As little as shows that it works.
    #[arg(long)]
    quick: bool,
}

impl Feeds {
    async fn run(&self) -> fencepost::Result<Done> {
        let small = |small: &'static [&'static str]| if self.quick { small } else { &[] };
        let catch_up = told::<catch_up::Args>(small(&["--events", "300", "--rounds", "1"]));
        let replay = told::<replay::Args>(small(&["--events", "2500", "--commit", "1000"]));
        let reports = vec![catch_up::run(&catch_up).await?.titled("catching up, in one process"), replay::run(&replay).await?];
        Ok(Done { page: Some(Page::Feeds), reports, ..Done::default() })
    }
}

/// The arguments of one of them, as from a command line.
fn told<A: clap::Args>(words: &[&str]) -> A {
    let command = A::augment_args(clap::Command::new("fencepost-bench"));
    let matches = command.get_matches_from([&["fencepost-bench"], words].concat());
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[derive(clap::Args)]
struct All {
    #[command(flatten)]
    ground: ground::Place,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    without_peers: bool,
    /// As little of each as shows that it works.
    #[arg(long)]
    quick: bool,
}

/// What one of them found: the page that it is written to, if any; who was measured, and who was not or not to the end, and why; its tables; its
/// pictures.
#[derive(Default)]
struct Done {
    page: Option<Page>,
    who: Vec<&'static str>,
    left_out: Vec<String>,
    reports: Vec<Report>,
    plots: Vec<Plot>,
}

impl Done {
    /// With these below its last table.
    fn noting(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        if let Some(last) = self.reports.last_mut() {
            last.notes.extend(notes);
        }
        self
    }

    /// Without these, and with that said below its last table.
    fn without(self, left_out: Vec<String>) -> Self {
        Done { left_out: left_out.clone(), ..self }.noting(left_out)
    }
}

impl What {
    /// Everything that is asked for, as a new user would.
    fn each(self) -> Vec<What> {
        let What::All(All { ground, without_peers, quick }) = self else { return vec![self] };
        let of = |what: &str, small: &[&str]| {
            let endpoint = ground.endpoint.as_deref().map_or(Vec::new(), |endpoint| vec!["--endpoint", endpoint]);
            let peers: &[&str] = if without_peers { &["--without-peers"] } else { &[] };
            Args::parse_from([&["fencepost-bench", what][..], &endpoint, peers, if quick { small } else { &[] }].concat()).what
        };
        vec![
            of("units", &["--row", "append-1", "--row", "load-100", "--row", "snapshot", "--row", "warm", "--row", "conflict"]),
            of("speed", &["--rounds", "1", "--milliseconds", "50", "--writers", "1,2"]),
            of("growth", &["--stream", "10", "--store", "1000"]),
            What::Feeds(Feeds { quick }),
        ]
    }

    /// Whether it is less than everybody's whole work, and so not to be shown as that.
    fn is_part(&self) -> bool {
        match self {
            What::Units(args) => !args.is_whole(),
            What::Speed(args) => !args.is_whole(),
            What::Growth(args) => !args.is_whole(),
            What::Feeds(args) => args.quick,
            _ => false,
        }
    }

    fn has_page(&self) -> bool {
        matches!(self, What::Units(_) | What::Speed(_) | What::Growth(_) | What::Feeds(_))
    }

    fn place(&self) -> Option<&ground::Place> {
        match self {
            What::Units(args) => Some(&args.ground),
            What::Speed(args) => Some(&args.ground),
            What::Growth(args) => Some(&args.ground),
            _ => None,
        }
    }

    fn wants_peers(&self) -> bool {
        match self {
            What::Units(args) => !args.without_peers,
            What::Speed(args) => !args.without_peers,
            What::Growth(args) => !args.without_peers,
            _ => false,
        }
    }

    /// What it takes to do this again, for a page that tells how it was made.
    fn words(&self) -> Vec<String> {
        let words = match self {
            What::Units(args) => args.words(),
            What::Speed(args) => args.words(),
            What::Growth(args) => args.words(),
            What::Feeds(Feeds { quick }) => format!("feeds{}", if *quick { " --quick" } else { "" }),
            _ => String::new(),
        };
        let endpoint = self.place().and_then(|place| place.endpoint.clone());
        let peers = self.place().is_some() && !self.wants_peers();
        let more = [endpoint.map(|endpoint| format!("--endpoint {endpoint}")), peers.then(|| "--without-peers".to_owned())];
        std::iter::once(words).chain(more.into_iter().flatten()).collect()
    }

    async fn run(self, write: bool) -> Result<Done, Fault> {
        let alone = |report| Done { reports: vec![report], ..Done::default() };
        Ok(match self {
            What::Units(args) => units::run(&args).await?,
            What::Speed(args) => speed::run(&args).await?,
            What::Growth(args) => growth::run(&args).await?,
            What::Feeds(args) => args.run().await?,
            What::Overhead(args) => alone(overhead::run(&args).await?),
            What::CatchUp(args) => alone(catch_up::run(&args).await?),
            What::Replay(args) => alone(replay::run(&args).await?),
            What::Instructions => alone(instructions::run(write)?),
            What::All(_) | What::Hot(_) | What::Contend(_) | What::Process(_) => return Err("not by itself".into()),
        })
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let Args { output, write, into, what } = Args::parse();
    let what = match what {
        What::Contend(contender) => return contender.run().await,
        What::Hot(hot) => return Ok(hot.run()?),
        What::Process(process) => return Ok(process.run().await?),
        other => other.each(),
    };
    if write && into.is_none() && what.iter().any(What::is_part) {
        return Err(
            "only what everybody did in full is written into this repository: leave out what makes it less, or give --into FOLDER".into()
        );
    }
    // Before any clock begins, and before an hour is spent on what could not be written.
    let began = Tree::here();
    let named = |now: Option<&Tree>| if write && into.is_none() { Tree::may_be_told(now, began.as_ref()) } else { Ok(()) };
    if what.iter().any(What::has_page) {
        named(began.as_ref())?;
    }
    let missing = if what.iter().any(What::wants_peers) { contenders::made_ready() } else { Vec::new() };
    if write {
        document::allowed(into.as_deref(), &missing)?;
    }
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for what in what {
        let (started, elsewhere, mut words) = (Instant::now(), what.place().is_some_and(|place| place.endpoint.is_some()), what.words());
        words.extend(["--write".to_owned()]);
        words.extend(into.as_ref().map(|into| format!("--into {}", into.display())));
        let done = what.run(write).await?;
        // Each as soon as it is there: the next may take long.
        if let (Some(page), true) = (done.page, write && document::allowed(into.as_deref(), &done.left_out).is_ok()) {
            named(Tree::here().as_ref())?;
            let told = Told { who: &done.who, elsewhere, took: started.elapsed(), words: &words, tree: began.as_ref() };
            document::write(into.as_deref(), page, &told, &done.reports, &done.plots)?;
        }
        left_out.extend(done.left_out);
        all.extend(done.reports);
    }
    println!("{}", report::print(&all, output));
    if write {
        document::allowed(into.as_deref(), &left_out)?;
    }
    let broken = all.iter().flat_map(|report| &report.notes).filter(|note| note.starts_with(BROKEN)).count();
    if broken > 0 { Err(format!("{broken} of what it must show does not hold").into()) } else { Ok(()) }
}
