//! Writers, indexers, consumers, projections and the engine that serves them, as processes of their own, killed with SIGKILL at random
//! moments and started again: nothing missed, nothing out of order per tag, every commit once, no state that differs from a fold of it all.
//!
//! `FENCEPOST_KILL_ROUNDS` says how often: a few rounds without it, 50 in CI, 1,000 as a soak. `FENCEPOST_KILL_SEED` chooses victims and
//! pauses; where exactly a process is when it dies, only the machine knows.

mod audit;
mod roles;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use audit::Labels;
use fencepost::{Env, EventLogExt, Query, ReadOptions, Store};

/// Longer than anything takes that is not stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// Its feed, and the layout behind it, as they stand in the URL.
const SEKIBAN: &str = "streams&layout=sekiban";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn killed_at_random_moments_over_lanes() {
    Scene::new("lanes-4", &["writer-0", "writer-1", "consumer", "projection-0", "projection-1"]).play();
}

#[test]
fn killed_at_random_moments_over_the_index() {
    Scene::new("streams", &["writer-0", "writer-1", "indexer-0", "indexer-1", "consumer", "projection-0", "projection-1"]).play();
}

#[test]
fn killed_at_random_moments_over_the_index_of_sekibans_tables() {
    Scene::new(SEKIBAN, &["writer-0", "writer-1", "indexer-0", "indexer-1", "consumer", "projection-0", "projection-1"]).play();
}

/// Not a test: this binary, started again by a scene as one of its processes.
#[test]
#[ignore = "a process of the others"]
fn role() {
    if let (Ok(role), Ok(folder), Ok(feed)) = (std::env::var("KILLED_ROLE"), std::env::var("KILLED_FOLDER"), std::env::var("KILLED_FEED")) {
        roles::play(&role, Path::new(&folder), &feed);
    }
}

/// A served engine on a file, and those who work on it.
struct Scene {
    feed: &'static str,
    folder: tempfile::TempDir,
    workers: &'static [&'static str],
    processes: BTreeMap<&'static str, Child>,
    chance: Env,
    kills: BTreeMap<&'static str, u64>,
}

impl Scene {
    fn new(feed: &'static str, workers: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let seed = number("FENCEPOST_KILL_SEED").unwrap_or(1);
        Scene { feed, folder, workers, processes: BTreeMap::new(), chance: Env::seeded(seed), kills: BTreeMap::new() }
    }

    fn play(mut self) {
        let (rounds, began) = (number("FENCEPOST_KILL_ROUNDS").unwrap_or(6), Instant::now());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        self.start("engine");
        runtime.block_on(async { drop(self.store().await.create(true).open().await.expect("makes the tables")) });
        for worker in self.workers {
            self.start(worker);
        }
        for round in 1..=rounds {
            std::thread::sleep(Duration::from_millis(self.chance.below(600)));
            for victim in self.victims() {
                self.kill(victim);
                self.start(victim);
            }
            if round % 100 == 0 {
                eprintln!("{}: {round} rounds, {} s", self.feed, began.elapsed().as_secs());
            }
        }
        runtime.block_on(self.end(rounds, began));
    }

    /// Mostly one, at times several, at times all of the workers; in one round of eight the engine with them.
    fn victims(&self) -> Vec<&'static str> {
        let below = |bound: usize| usize::try_from(self.chance.below(bound as u64)).expect("small");
        let mut victims = match below(10) {
            0 => self.workers.to_vec(),
            1..4 => vec![self.workers[below(self.workers.len())], self.workers[below(self.workers.len())]],
            _ => vec![self.workers[below(self.workers.len())]],
        };
        if below(8) == 0 {
            victims.insert(below(victims.len() + 1), "engine");
        }
        victims.dedup();
        victims
    }

    fn start(&mut self, role: &'static str) {
        let told = std::fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{role}.log"))).expect("a file");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "role", "--include-ignored", "--nocapture"])
            .envs([("KILLED_ROLE", role), ("KILLED_FEED", self.feed)])
            .env("KILLED_FOLDER", self.folder.path())
            // It reads to the end of this: when this process is gone, however, it goes too.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(told)
            .spawn();
        self.processes.insert(role, child.expect("it starts"));
        if role == "engine" {
            let (began, port) = (Instant::now(), self.path("port"));
            while !port.exists() {
                assert!(began.elapsed() < PATIENCE, "the engine does not come up: {}", self.told(role));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn kill(&mut self, role: &'static str) {
        let mut child = self.processes.remove(role).expect("it was started");
        let ended = child.try_wait().expect("it can be asked");
        assert!(ended.is_none(), "{}: {role} ended by itself: {ended:?}: {}", self.feed, self.told(role));
        child.kill().expect("SIGKILL");
        child.wait().expect("it is dead");
        *self.kills.entry(role).or_default() += 1;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn told(&self, role: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{role}.log"))).unwrap_or_default()
    }
    async fn store(&self) -> fencepost::Builder {
        roles::store(self.folder.path(), self.feed)
    }

    /// The writers stop, all others catch up, and the whole is audited.
    async fn end(mut self, rounds: u64, began: Instant) {
        let writers = ["writer-0", "writer-1"];
        writers.iter().for_each(|writer| self.kill(writer));
        // What their last lives left in doubt is repeated, and they end.
        std::fs::write(self.path("finish"), "").expect("a file");
        for writer in writers {
            self.start(writer);
            let mut child = self.processes.remove(writer).expect("it was started");
            let _held_open = child.stdin.take();
            assert!(child.wait().expect("it ends").success(), "{writer}: {}", self.told(writer));
        }
        let store = self.store().await.open().await.expect("opens");
        let log = read(&store).await;
        let commits = roles::WRITERS.map(|writer| roles::acknowledged(self.folder.path(), writer));
        audit::assert_all_written(&log, commits, self.feed);
        let expected = audit::fold_of(&log);
        let caught_up = Instant::now();
        loop {
            let handed = std::fs::read_to_string(self.path("handed")).expect("the consumer was handed something");
            let state = roles::state(&store).await;
            audit::assert_order(&log, &handed, self.feed);
            if audit::nothing_is_missed(&log, &handed) && state.as_ref() == Some(&expected) {
                break;
            }
            if caught_up.elapsed() > PATIENCE {
                let (missed, differs) = (audit::missed(&log, &handed), audit::differences(&expected, state.as_ref()));
                let told: Vec<_> = self.workers.iter().map(|worker| format!("{worker}: {}", self.told(worker))).collect();
                panic!("{}: never handed over: {missed:?}; states that differ: {differs:?}\n{}", self.feed, told.join("\n"));
            }
            Env::system().sleep(Duration::from_millis(100)).await;
        }
        let handed = audit::assert_order(&log, &std::fs::read_to_string(self.path("handed")).expect("lines"), self.feed);
        if self.feed.starts_with("streams") {
            let verified = store.index().expect("an index").verify(&|_| ()).await.expect("verifies");
            assert_eq!(verified.findings, [], "log and index differ");
            // In Sekiban's tables an event is an entry of its own.
            let entries = if self.feed == SEKIBAN { verified.commits } else { commits.iter().sum() };
            assert_eq!(verified.indexed, entries);
        }
        if self.feed == SEKIBAN {
            // A large commit whose writer died behind its last row is still on the list of those to finish.
            store.repair(&|_| ()).await.expect("repairs");
        }
        let verified = store.verify(&|_| ()).await.expect("verifies");
        assert!(verified.findings.is_empty(), "{verified:?}");
        assert_eq!(roles::state(&store).await.as_ref(), Some(&expected), "nothing is counted twice");
        eprintln!(
            "{}: {rounds} rounds, {} kills {:?}, {} commits, {} events, {handed}, {} s",
            self.feed,
            self.kills.values().sum::<u64>(),
            self.kills,
            commits.iter().sum::<u64>(),
            audit::events(&log),
            began.elapsed().as_secs(),
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in self.processes.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Under each tag, all labels in the order of the log.
async fn read(store: &Store) -> Labels {
    let log = store.log().expect("a log");
    let mut labels = Labels::new();
    for tag in roles::tags() {
        let query = Query::tag(&tag).expect("a query");
        let events = log.read_all(&query, ReadOptions::default()).await.expect("reads");
        labels.insert(tag, events.iter().map(roles::label).collect());
    }
    labels
}
