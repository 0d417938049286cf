//! event-store-adapter-rs, both generations.

use std::fmt;

use chrono::{DateTime, Utc};
use esa_v3::types::EventStore as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::peer::{Peer, body};
use fencepost_contest::Fault;

use crate::Ground;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Id(String);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order-{}", self.0)
    }
}
impl esa_v3::types::AggregateId for Id {
    fn type_name(&self) -> String {
        "order".into()
    }
    fn value(&self) -> String {
        self.0.clone()
    }
}
impl esa_v5::AggregateId for Id {
    fn type_name(&self) -> String {
        "order".into()
    }
    fn value(&self) -> String {
        self.0.clone()
    }
}

fn at(version: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(1_767_225_600_123_456_789 + i64::try_from(version).unwrap_or(0))
}

#[derive(Default)]
pub struct V5(Option<(esa_v5::EventStoreForDynamoDB<Id, Value, Value>, Id)>);

impl Peer for V5 {
    fn table() -> &'static str {
        "v5"
    }
    async fn prepare(ground: &Ground, table: &str) -> Result<(), Fault> {
        ground.tables(table, "event-store-adapter-v5").await
    }

    async fn open(&mut self, ground: &Ground, table: &str, stream: &str) -> Result<(), Fault> {
        let tables = esa_v5::DynamoDbTables {
            journal_table_name: format!("{table}-journal"),
            snapshot_table_name: format!("{table}-snapshot"),
            head_table_name: format!("{table}-head"),
            snapshot_history_index_name: "snapshot-history-index".into(),
        };
        let store = esa_v5::EventStoreForDynamoDB::open(ground.client(), tables, esa_v5::DynamoDbOptions::default()).await?;
        self.0 = Some((store, Id(stream.to_owned())));
        Ok(())
    }

    async fn append(&mut self, version: u64, snapshot: Option<Value>) -> Result<bool, Fault> {
        let (store, id) = self.0.as_mut().ok_or("not opened")?;
        let event = esa_v5::EventEnvelope::new(id.clone(), version + 1, at(version), body(version)).with_manifest("OrderPlaced");
        let done = match snapshot {
            Some(state) => store.persist_event_and_snapshot(event, esa_v5::SnapshotEnvelope::new(state, version + 1)).await,
            None => store.persist_event(event).await,
        };
        match done {
            Ok(_) => Ok(true),
            Err(esa_v5::EventStoreError::OptimisticLock { .. }) => Ok(false),
            Err(error) => Err(error.to_string().into()),
        }
    }

    async fn load(&mut self, version: u64) -> Result<u64, Fault> {
        let (store, id) = self.0.as_ref().ok_or("not opened")?;
        let events = store.get_events_by_id_since_seq_nr(id, version + 1).await.map_err(|error| error.to_string())?;
        Ok(events.len() as u64)
    }

    async fn load_paged(&mut self) -> Result<Option<(u64, &'static str)>, Fault> {
        Ok(None)
    }

    async fn load_from_snapshot(&mut self) -> Result<u64, Fault> {
        let (store, id) = self.0.as_ref().ok_or("not opened")?;
        let read = store.get_latest_snapshot_by_id(id).await.map_err(|error| error.to_string())?.ok_or("no head")?;
        let version = read.snapshot().ok_or("no snapshot")?.seq_nr();
        self.load(version).await
    }

    async fn thousand(&mut self, _: u64) -> Result<(), String> {
        Err("one event a call".into())
    }
    fn is_eventual(&self, _: bool) -> bool {
        false
    }
}

#[derive(Default)]
pub struct V3(Option<(esa_v3::EventStoreForDynamoDB<Id, Value, Value>, Id)>);

impl Peer for V3 {
    fn table() -> &'static str {
        "v3"
    }
    async fn prepare(ground: &Ground, table: &str) -> Result<(), Fault> {
        ground.tables(table, "event-store-adapter-v3").await
    }

    async fn open(&mut self, ground: &Ground, table: &str, stream: &str) -> Result<(), Fault> {
        let store = esa_v3::EventStoreForDynamoDB::new(
            ground.client(),
            format!("{table}-journal"),
            "journal-aid-index".into(),
            format!("{table}-snapshot"),
            "snapshot-aid-index".into(),
            64,
        );
        self.0 = Some((store, Id(stream.to_owned())));
        Ok(())
    }

    async fn append(&mut self, version: u64, snapshot: Option<Value>) -> Result<bool, Fault> {
        let (store, id) = self.0.as_mut().ok_or("not opened")?;
        let version = usize::try_from(version)?;
        let event = esa_v3::event_envelope::EventEnvelope::new(id.clone(), version + 1, at(version as u64), body(version as u64));
        let event = event.with_manifest("OrderPlaced");
        let done = match snapshot {
            Some(state) => store.persist_event_and_snapshot(event, state, version).await,
            None => store.persist_event(event, version).await,
        };
        match done {
            Ok(_) => Ok(true),
            Err(esa_v3::types::EventStoreWriteError::OptimisticLockError(_)) => Ok(false),
            Err(error) => Err(error.to_string().into()),
        }
    }

    async fn load(&mut self, version: u64) -> Result<u64, Fault> {
        let (store, id) = self.0.as_ref().ok_or("not opened")?;
        let since = usize::try_from(version)? + 1;
        let events = store.get_events_by_id_since_seq_nr(id, since).await.map_err(|error| error.to_string())?;
        Ok(events.len() as u64)
    }

    async fn load_paged(&mut self) -> Result<Option<(u64, &'static str)>, Fault> {
        Ok(None)
    }

    async fn load_from_snapshot(&mut self) -> Result<u64, Fault> {
        let (store, id) = self.0.as_ref().ok_or("not opened")?;
        let read = store.get_latest_snapshot_by_id(id).await.map_err(|error| error.to_string())?.ok_or("no snapshot")?;
        let version = read.seq_nr() as u64;
        self.load(version).await
    }

    async fn thousand(&mut self, _: u64) -> Result<(), String> {
        Err("one event a call".into())
    }
    // Events by an index, which has no others; the snapshot by its key, strongly.
    fn is_eventual(&self, _: bool) -> bool {
        true
    }
    fn begins_with_snapshot(&self) -> bool {
        true
    }
}
