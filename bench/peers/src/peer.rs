//! What a peer must be able to do, and the rows made of it: the same as `bench/src/ours.rs` does with our layouts.

use fencepost::Units;
use fencepost_contest::{Fault, Row, Scenario, Speed, Stream, Task, Writer, grow, race, run_id, say, state};
use serde_json::{Value, json};

use crate::Ground;

/// A store of streams, and the one that is worked on. Versions are numbers of events.
pub trait Peer: Default + Send + 'static {
    /// In the names of its tables.
    fn table() -> &'static str;
    /// Fresh tables, whose names begin with this.
    async fn prepare(ground: &Ground, table: &str) -> Result<(), Fault>;
    /// Those tables, and a stream there.
    fn open(&mut self, ground: &Ground, table: &str, stream: &str) -> impl Future<Output = Result<(), Fault>> + Send;
    /// One event behind `version`; with the state, where a snapshot is due. Whether it was not a conflict.
    fn append(&mut self, version: u64, snapshot: Option<Value>) -> impl Future<Output = Result<bool, Fault>> + Send;
    /// Events behind `version`; how many.
    fn load(&mut self, version: u64) -> impl Future<Output = Result<u64, Fault>> + Send;
    /// All events by a call that reads every page, where [`Peer::load`] stops at the first: how many, and what to say of it.
    fn load_paged(&mut self) -> impl Future<Output = Result<Option<(u64, &'static str)>, Fault>> + Send;
    /// The snapshot and the events behind it; how many.
    async fn load_from_snapshot(&mut self) -> Result<u64, Fault>;
    /// A thousand events at once behind `version`; or why not, as it says when it is asked, or as its calls are made.
    async fn thousand(&mut self, version: u64) -> Result<(), String>;
    /// Whether a read behind a version, or from a snapshot, is eventually consistent; and whether one of all events is.
    fn is_eventual(&self, behind: bool) -> bool;
    /// Whether the first event needs a snapshot.
    fn begins_with_snapshot(&self) -> bool {
        false
    }

    async fn grow(&mut self, from: u64, to: u64) -> Result<(), Fault> {
        for version in from..to {
            let first = (version == 0 && self.begins_with_snapshot()).then(|| json!({}));
            if !self.append(version, first).await? {
                return Err(format!("a conflict at {version}").into());
            }
        }
        Ok(())
    }

    async fn row(&mut self, ground: &Ground, row: &str) -> Result<Row, Fault> {
        let cannot = |why: &str| Ok(Row::cannot(row, why));
        let length = match row {
            "two-tags" | "twenty" => return cannot("streams only"),
            "feed" | "idle" | "consumer" | "index" | "idle-index" => return cannot("no feed"),
            "append-1" | "thousand" => 1,
            "append-10000" | "load-10000" => 10_000,
            "snapshot" => 97,
            _ => 100,
        };
        let table = format!("peer-{}-{row}-{}", Self::table(), run_id());
        Self::prepare(ground, &table).await?;
        self.open(ground, &table, "1").await?;
        self.grow(0, length).await?;
        if row == "snapshot" {
            self.append(97, Some(json!(state()))).await?;
            self.grow(98, 100).await?;
        }
        if row == "conflict" {
            self.append(length, None).await?;
        }
        ground.taken();
        let mut note = None;
        match row {
            "append-1" | "append-100" | "append-10000" => assert!(self.append(length, None).await?),
            "load-100" | "load-10000" => {
                let loaded = self.load(0).await?;
                if loaded != length {
                    ground.taken();
                    let paged = self.load_paged().await?.filter(|(paged, _)| *paged == length);
                    let Some((_, says)) = paged else { return cannot(&format!("loads only {loaded} of them, and does not say so")) };
                    note = Some(format!("{says} {loaded}"));
                }
            }
            "thousand" => {
                if let Err(why) = self.thousand(length).await {
                    return cannot(&why);
                }
            }
            "snapshot" => assert_eq!(self.load_from_snapshot().await?, 2),
            "cold" | "warm" => {
                let known = if row == "warm" { length } else { 0 };
                assert_eq!(self.load(known).await?, length - known);
                assert!(self.append(length, None).await?);
            }
            "conflict" => {
                assert!(!self.append(length, None).await?);
                assert_eq!(self.load(length).await?, 1);
                assert!(self.append(length + 1, None).await?);
            }
            other => return Err(format!("no row {other}").into()),
        }
        let eventual = match row {
            "load-100" | "load-10000" | "cold" => self.is_eventual(false),
            "snapshot" | "warm" | "conflict" => self.is_eventual(true),
            _ => false,
        };
        Ok(Row { eventual, note, ..Row::of(row, ground.taken()) })
    }
}

/// What the peer is told.
pub async fn contend<P: Peer>(ground: &Ground, task: Task) -> Result<(), Fault> {
    match task {
        Task::Units(rows) => {
            let mut peer = P::default();
            for row in rows {
                say(&peer.row(ground, &row).await.unwrap_or_else(|error| Row::failed(&row, &error.to_string())))?;
            }
            Ok(())
        }
        Task::Prepare(table) => P::prepare(ground, &table).await,
        Task::Speed(speed) => {
            let mut writers = Vec::new();
            for number in 0..speed.writers {
                writers.push(Racing::<P>::new(ground, &speed, number).await?);
            }
            say(&race(writers, speed.scenario, speed.lasts).await?)
        }
        Task::First(table) => first::<P>(ground, &table).await,
        Task::Growth(lengths, lasts) => {
            let (mut peer, table) = (P::default(), format!("growth-{}-{}", P::table(), run_id()));
            P::prepare(ground, &table).await?;
            peer.open(ground, &table, "1").await?;
            grow(&mut Growing { peer, version: 0, ground, paged: None }, &lengths, lasts).await
        }
    }
}

/// One event, on tables that are there. Apart from [`contend`], so that a small program has nothing else in it.
pub async fn first<P: Peer>(ground: &Ground, table: &str) -> Result<(), Fault> {
    let mut peer = P::default();
    peer.open(ground, table, &format!("first-{}", std::process::id())).await?;
    peer.grow(0, 1).await?;
    say(&fencepost_contest::first())
}

struct Racing<P> {
    peer: P,
    version: u64,
}

impl<P: Peer> Racing<P> {
    /// One after the other: the first begins a stream that is shared.
    async fn new(ground: &Ground, speed: &Speed, number: usize) -> Result<Self, Fault> {
        let mut peer = P::default();
        peer.open(ground, &speed.table, &speed.stream(number)).await?;
        let mut version = peer.load(0).await?;
        if version == 0 {
            peer.grow(0, 1).await?;
            version = 1;
        }
        Ok(Racing { peer, version })
    }
}

impl<P: Peer> Writer for Racing<P> {
    async fn act(&mut self, _: Scenario) -> Result<u64, Fault> {
        for conflicts in 0.. {
            if self.peer.append(self.version, None).await? {
                self.version += 1;
                return Ok(conflicts);
            }
            self.version += self.peer.load(self.version).await?;
        }
        Ok(0)
    }
}

struct Growing<'a, P> {
    peer: P,
    version: u64,
    ground: &'a Ground,
    /// Since its usual load came short: what to say of the other.
    paged: Option<String>,
}

impl<P: Peer> Stream for Growing<'_, P> {
    async fn append(&mut self) -> Result<(), Fault> {
        self.peer.grow(self.version, self.version + 1).await?;
        self.version += 1;
        Ok(())
    }
    async fn load(&mut self) -> Result<u64, Fault> {
        if self.paged.is_none() {
            let loaded = self.peer.load(0).await?;
            if loaded == self.version {
                return Ok(loaded);
            }
            self.ground.taken();
            return Ok(match self.peer.load_paged().await? {
                Some((paged, says)) => {
                    self.paged = Some(format!("{says} {loaded}"));
                    paged
                }
                None => loaded,
            });
        }
        Ok(self.peer.load_paged().await?.map_or(0, |(paged, _)| paged))
    }
    fn consumed(&mut self) -> Units {
        self.ground.taken()
    }
    fn is_eventual(&self) -> bool {
        self.peer.is_eventual(false)
    }
    fn says(&self) -> Option<String> {
        self.paged.clone()
    }
}

/// The same bodies as ours.
pub fn body(n: u64) -> Value {
    serde_json::from_str(&fencepost_contest::body(n)).unwrap_or_default()
}
