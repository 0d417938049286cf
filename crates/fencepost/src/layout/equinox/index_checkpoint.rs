//! Checkpoints of Propulsion's consumers, in streams of the index's table: read in both dialects, written in that of F#. For moving a
//! consumer from there to here and back; our own consumers keep theirs in the side table, where a lease goes with it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::index::whole;
use super::index_write::Wrote;
use super::item::{self, DATA, DATA_ENCODING, Stored, Tip, Unfold};
use super::{Equinox, LAYOUT};
use crate::dynamo::item::{Item, binary};
use crate::dynamo::{Freshness, Op};
use crate::error::{Error, Reason, Refused, Result};
use crate::event::{Event, StreamName};

const STARTED: &str = "Started";
const CHECKPOINTED: &str = "Checkpointed";
const SNAPSHOTTED: &str = "Snapshotted";
/// How often a race for one of them is run again.
const RACES: u32 = 16;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(rename = "checkpointFreqS")]
    every: u64,
}

/// A position, and from when on the next one is an event of its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct At {
    at: Timestamp,
    next_checkpoint_due: Timestamp,
    /// A text in JavaScript; F# takes no text.
    #[serde(deserialize_with = "whole")]
    pos: u64,
}

/// `origin` in what started it, `pos` in what moved it, `state` in the snapshot.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    config: Config,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<At>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pos: Option<At>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<At>,
}

impl Body {
    fn read(bytes: &[u8]) -> Option<At> {
        let Body { origin, pos, state, .. } = serde_json::from_slice(bytes).ok()?;
        state.or(pos).or(origin)
    }
    fn write(&self) -> Vec<u8> {
        // Numbers and times into memory: nothing to fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The two dialects' names, F#'s first. F# joins its parts by `_`, and so refuses it in them.
fn streams(partition: u32, group: &str) -> Result<[StreamName; 2]> {
    if group.is_empty() || group.contains('_') {
        return Err(
            Refused::BadName { what: "consumer group", name: group.into(), rule: "not empty and without _, as Propulsion has it" }.into()
        );
    }
    let name = |id: String| StreamName::new(format!("$ReaderCheckpoint-{id}"));
    Ok([name(format!("dynamoStore_{partition}_{group}"))?, name(format!("{partition}_{group}"))?])
}

/// What a Tip says: its snapshot, or else its last event.
fn position(stream: &StreamName, tip: &Tip) -> Result<At> {
    let corrupt = |what: &str| Error::corrupt(LAYOUT, format!("{stream}: {what}"));
    let snapshot = tip.unfolds.iter().rev().find(|unfold| unfold.kind == SNAPSHOTTED);
    let bytes = match (snapshot, tip.batch.events.last()) {
        (Some(unfold), _) => unfold.state().map_err(|m| corrupt(&m.0))?,
        (None, Some(event)) => event.read().map_err(|m| corrupt(&m.0))?.data,
        (None, None) => return Err(corrupt("neither a snapshot nor an event")),
    };
    Body::read(&bytes).ok_or_else(|| corrupt("not a checkpoint"))
}

/// F# does not compress these.
fn plain(map: &mut Item, bytes: Vec<u8>) {
    map.insert(DATA.into(), binary(bytes));
    map.remove(DATA_ENCODING);
}

impl Equinox {
    /// How far a consumer of Propulsion's has come in a partition, in whichever dialect it says so.
    pub(crate) async fn peer_position(&self, op: &Op, partition: u32, group: &str) -> Result<Option<u64>> {
        for stream in streams(partition, group)? {
            if let Some(tip) = self.index().tip(op, &stream, Freshness::Strong).await? {
                return Ok(Some(position(&stream, &tip)?.pos));
            }
        }
        Ok(None)
    }

    /// Says it in F#'s dialect: an event at first and whenever one is due, a snapshot alone between, nothing where nothing moved.
    pub(crate) async fn save_peer_position(&self, op: &Op, partition: u32, group: &str, pos: u64, every: Duration) -> Result<()> {
        let [stream, _] = streams(partition, group)?;
        let config = Config { every: every.as_secs().max(1) };
        for _ in 0..RACES {
            let tip = self.index().tip(op, &stream, Freshness::Strong).await?;
            let now = self.dynamo().env().now();
            let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
            let next =
                now.checked_add(jiff::SignedDuration::from_secs(i64::try_from(config.every).unwrap_or(i64::MAX))).unwrap_or(Timestamp::MAX);
            let known = tip.as_ref().map(|tip| position(&stream, tip)).transpose()?;
            let due = known.is_none_or(|known| known.next_checkpoint_due <= now);
            if known.is_some_and(|known| known.pos == pos) && !due {
                return Ok(());
            }
            let at = At { at: now, next_checkpoint_due: known.filter(|_| !due).map_or(next, |known| known.next_checkpoint_due), pos };
            let body = |origin, pos, state| Body { config, origin, pos, state }.write();
            let event = match (due, known.is_some()) {
                (false, _) => None,
                (true, true) => Some((CHECKPOINTED, body(None, Some(at), None))),
                (true, false) => Some((STARTED, body(Some(at), None, None))),
            };
            let mut events: Vec<Stored> = Vec::new();
            if let Some((kind, bytes)) = event {
                let mut stored = item::stored(&Event::new(kind, bytes.clone())?, now)?;
                plain(&mut stored.map, bytes);
                events.push(stored);
            }
            let version = tip.as_ref().map_or(0, |tip| tip.batch.next) + events.len() as u64;
            let bytes = body(None, None, Some(at));
            let mut unfold: Unfold = item::unfold(SNAPSHOTTED, version, &bytes, now);
            plain(&mut unfold.map, bytes);
            if let Wrote::Done(_) = self.write_index(op, &stream, tip.as_ref(), events, vec![unfold]).await? {
                return Ok(());
            }
        }
        Err(Error::unavailable(Reason::Throttled, format!("{stream} was written by others {RACES} times meanwhile")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_are_read_and_f_sharps_is_written() {
        let f_sharp = r#"{"config":{"checkpointFreqS":3600},"state":{"at":"2026-11-15T23:47:23.7981079+00:00","nextCheckpointDue":"2026-11-16T00:47:23.7825064+00:00","pos":3000017}}"#;
        let js = r#"{"config":{"checkpointFreqS":300},"origin":{"at":"2026-11-15T20:40:35.348Z","nextCheckpointDue":"2026-11-15T20:45:35.348Z","pos":"17"}}"#;
        let read = |text: &str| Body::read(text.as_bytes()).expect("reads").pos;
        assert_eq!((read(f_sharp), read(js)), (3_000_017, 17));
        let at = At { at: Timestamp::UNIX_EPOCH, next_checkpoint_due: Timestamp::UNIX_EPOCH, pos: 5 };
        let written = Body { config: Config { every: 300 }, origin: None, pos: Some(at), state: None }.write();
        let expected =
            r#"{"config":{"checkpointFreqS":300},"pos":{"at":"1970-01-01T00:00:00Z","nextCheckpointDue":"1970-01-01T00:00:00Z","pos":5}}"#;
        assert_eq!(String::from_utf8(written).expect("text"), expected);
        assert!(streams(0, "a_b").is_err() && streams(0, "").is_err());
        assert_eq!(streams(0, "demo").expect("names")[0].as_str(), "$ReaderCheckpoint-dynamoStore_0_demo");
    }
}
