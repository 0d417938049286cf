//! What a peer must be able to do, and the rows made of it: the same as `bench/src/ours.rs` does with our layouts.

use fencepost::Units;
use serde_json::{Value, json};

use crate::{Fault, Ground};

pub(crate) enum Done {
    Units(Units),
    Cannot(String),
}

/// A store of streams. Versions are numbers of events.
pub(crate) trait Peer {
    /// Fresh tables, whose names begin with this.
    async fn open(&mut self, ground: &Ground, table: &str) -> Result<(), Fault>;
    /// One event behind `version`; with the state, where a snapshot is due. Whether it was not a conflict.
    async fn append(&mut self, version: u64, snapshot: Option<Value>) -> Result<bool, Fault>;
    /// Events behind `version`; how many.
    async fn load(&mut self, version: u64) -> Result<u64, Fault>;
    /// The snapshot and the events behind it; how many.
    async fn load_from_snapshot(&mut self) -> Result<u64, Fault>;
    /// A thousand events at once: why not.
    fn thousand(&self) -> &'static str;
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

    async fn row(&mut self, ground: &Ground, row: &str) -> Result<Done, Fault> {
        let cannot = |why: &str| Ok(Done::Cannot(why.to_owned()));
        let length = match row {
            "two-tags" | "twenty" => return cannot("streams only"),
            "thousand" => return cannot(self.thousand()),
            "feed" | "idle" => return cannot("no feed"),
            "append-1" => 1,
            "append-10000" | "load-10000" => 10_000,
            "snapshot" => 97,
            _ => 100,
        };
        self.open(ground, &format!("peer-{row}-{}", std::process::id())).await?;
        self.grow(0, length).await?;
        if row == "snapshot" {
            self.append(97, Some(json!("s".repeat(1_998)))).await?;
            self.grow(98, 100).await?;
        }
        if row == "conflict" {
            self.append(length, None).await?;
        }
        ground.meter.take();
        match row {
            "append-1" | "append-100" | "append-10000" => assert!(self.append(length, None).await?),
            "load-100" | "load-10000" => {
                let loaded = self.load(0).await?;
                if loaded != length {
                    return Ok(Done::Cannot(format!("loads only {loaded} of them, and does not say so")));
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
        Ok(Done::Units(ground.meter.take()))
    }
}

/// The same bodies as ours.
pub(crate) fn body(n: u64) -> Value {
    let filler: String = (0..64u64).map(|at| format!("{:016x}", (n * 131 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let head = format!("{{\"n\":{n},\"text\":\"");
    json!({ "n": n, "text": filler[..500 - head.len() - 2] })
}
