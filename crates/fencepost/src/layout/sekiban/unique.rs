//! Appending under a key, once: the events' ids are made of it, so that whoever comes second meets what the first wrote.

use std::collections::BTreeMap;

use icu_normalizer::ComposingNormalizerBorrowed;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Sekiban;
use super::append::{Run, check_size};
use super::plan::Intent;
use super::suid::SortableId;
use crate::dynamo::Freshness;
use crate::error::{Refused, Result};
use crate::event::{Event, Tag};
use crate::position::Position;

const SINGLE: &str = "sekiban.dcb.conditional-append.storage-identity.v1";
/// Ours: else a single append would meet a batch's first event as its winner.
const BATCH: &str = "fencepost.conditional-append.batch.v1";
const OPERATION: &str = "sekiban.dcb.conditional-append.unique-key";
const MAX_KEY: usize = 512;

/// What became of an append under a key. The fourth outcome, that nobody can tell, is [`crate::Error::InDoubt`]: ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unique {
    /// Recorded, now.
    Appended {
        /// The events' ids.
        ids: Vec<Uuid>,
        /// Where they stand.
        positions: Vec<Position>,
    },
    /// The same was recorded under the key before.
    AlreadyCommitted {
        /// The ids of what was recorded.
        ids: Vec<Uuid>,
        /// Where it stands.
        positions: Vec<Position>,
    },
    /// Something else was recorded under the key before.
    KeyReused {
        /// The ids of what was recorded.
        ids: Vec<Uuid>,
    },
}

impl Sekiban {
    /// Appends one event under a key, once. The event gets an id made of the key; a place may be given.
    pub async fn append_if_unique(&self, key: &str, event: Event, at: Option<SortableId>) -> Result<Unique> {
        let key = normalised(key)?;
        let id = identity(SINGLE, self.keys().service(), &key, None);
        self.append_unique(&key, vec![event.id(id)], at, None).await
    }

    /// Appends several events under a key, once, all or none.
    pub async fn append_batch_if_unique(&self, key: &str, events: impl IntoIterator<Item = Event>) -> Result<Unique> {
        let key = normalised(key)?;
        let id = |n: u32| identity(BATCH, self.keys().service(), &key, Some(n));
        let events: Vec<Event> = events.into_iter().zip(0u32..).map(|(event, n)| event.id(id(n))).collect();
        let behind = u32::try_from(events.len()).ok().map(id);
        self.append_unique(&key, events, None, behind).await
    }

    /// `behind`: the id that one more event would have.
    async fn append_unique(&self, key: &str, events: Vec<Event>, at: Option<SortableId>, behind: Option<Uuid>) -> Result<Unique> {
        check_size(&events)?;
        at.iter().try_for_each(|at| self.check_place(at))?;
        let op = self.dynamo().op();
        let mut intent = Intent::new(self.dynamo().env().new_commit_id(), &events)?;
        intent.fixed = at.map(|at| vec![at]);
        let mut run = Run::new(intent, false);
        run.unique = true;
        let done = self.tries(&op, &mut run).await;
        let committed = self.told(&run, done)?;
        let ids = run.intent.ids.clone();
        let service = self.keys().service();
        let print = |event_type: &str, data: &[u8], tags: &[Tag]| fingerprint(service, key, event_type, data, tags);
        let there = &run.intent.there;
        if there.is_empty() {
            return Ok(Unique::Appended { ids, positions: committed.positions });
        }
        let same = there.len() == events.len()
            && there.iter().all(|(n, stored)| {
                let (given, there) = (&events[*n], &stored.event);
                print(given.event_type().as_str(), given.data(), given.tags()) == print(there.event_type.as_str(), &there.data, &there.tags)
            });
        let longer = match behind.filter(|_| same) {
            Some(id) => self.stored_event(&op, &id, Freshness::Strong).await?.is_some(),
            None => false,
        };
        if same && !longer {
            return Ok(Unique::AlreadyCommitted { ids, positions: committed.positions });
        }
        Ok(Unique::KeyReused { ids: there.keys().map(|n| run.intent.ids[*n]).collect() })
    }
}

/// In Unicode's form C, without what surrounds it; at most 512 bytes.
fn normalised(key: &str) -> Result<String> {
    let key = ComposingNormalizerBorrowed::new_nfc().normalize(key.trim()).into_owned();
    match key.len() {
        0 => Err(Refused::Empty { what: "key" }.into()),
        bytes if bytes > MAX_KEY => Err(Refused::TooLong { what: "key", bytes, limit: MAX_KEY }.into()),
        _ => Ok(key),
    }
}

/// Numbers big-endian, texts behind their length.
#[derive(Default)]
struct Hasher(Sha256);

impl Hasher {
    fn number(mut self, number: u32) -> Self {
        self.0.update(number.to_be_bytes());
        self
    }
    fn text(self, text: &str) -> Self {
        let mut with_length = self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        with_length.0.update(text.as_bytes());
        with_length
    }
}

/// The id of the event under a key (UUIDv8, its first fields as .NET reads them); of the nth in a batch.
fn identity(separator: &str, service: &str, key: &str, index: Option<u32>) -> Uuid {
    let hash = Hasher::default().number(1).text(separator).text(service).text(key);
    let hash = match index {
        Some(index) => hash.number(index),
        None => hash,
    };
    let digest = hash.0.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[7] = bytes[7] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes_le(bytes)
}

/// What two operations under one key have in common if they are the same: never stored, and without ids, places and metadata.
fn fingerprint(service: &str, key: &str, event_type: &str, data: &[u8], tags: &[Tag]) -> String {
    let mut tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
    tags.sort_unstable();
    let json = serde_json::from_slice::<&RawValue>(data).ok().and_then(canonical);
    let body = json.unwrap_or_else(|| String::from_utf8_lossy(data).into_owned());
    let hash = Hasher::default().number(2).number(1).text(OPERATION).text(service).text(key).text(event_type).text(&body);
    let hash = hash.number(u32::try_from(tags.len()).unwrap_or(u32::MAX));
    let hash = tags.into_iter().fold(hash, Hasher::text);
    hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON with the names of every object in order, and numbers as they are written: two that a machine's number cannot tell apart are two. None where it is
/// none, or deeper than serde_json goes.
fn canonical(json: &RawValue) -> Option<String> {
    let text = json.get();
    match text.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let members = members.into_iter().map(|(name, value)| Some(format!("{}:{}", Value::from(name), canonical(value)?)));
            Some(format!("{{{}}}", members.collect::<Option<Vec<_>>>()?.join(",")))
        }
        b'[' => {
            let values: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            Some(format!("[{}]", values.into_iter().map(canonical).collect::<Option<Vec<_>>>()?.join(",")))
        }
        b'"' => Some(Value::from(serde_json::from_str::<String>(text).ok()?).to_string()),
        _ => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_those_of_the_specification() {
        let id = |service: &str| identity(SINGLE, service, "order-42", None).to_string();
        assert_eq!(id("default"), "3fe47d67-0390-81f5-8458-9a976854a8d6");
        assert_eq!(id("acme-school"), "dcd687a8-311f-887c-94ac-d682faf72be9");
        assert_ne!(identity(BATCH, "default", "order-42", Some(0)).to_string(), id("default"));
        assert_eq!(normalised("  order-42 ").expect("a key"), "order-42");
        assert_eq!(normalised("e\u{301}").expect("a key"), "é", "composed");
        assert!(normalised(" ").is_err() && normalised(&"x".repeat(513)).is_err());
    }

    #[test]
    fn an_operation_is_the_same_whatever_the_order_of_names_and_tags() {
        let tags = |names: [&str; 2]| names.map(|name| Tag::new(name).expect("tag")).to_vec();
        let one = fingerprint("default", "k", "T", br#"{"a":1,"b":{"c":2,"d":[1,2]}}"#, &tags(["x", "y"]));
        let other = fingerprint("default", "k", "T", br#"{ "b": {"d":[1,2],"c":2}, "a": 1 }"#, &tags(["y", "x"]));
        assert_eq!(one, other);
        assert_ne!(one, fingerprint("default", "k", "T", br#"{"a":1,"b":{"c":2,"d":[2,1]}}"#, &tags(["x", "y"])));
        for (one, other) in [("1e400", "1e401"), ("18446744073709551616", "18446744073709551617"), ("0.30000000000000001", "0.3")] {
            let of = |number: &str| fingerprint("default", "k", "T", format!("{{\"a\":[{number}]}}").as_bytes(), &[]);
            assert_ne!(of(one), of(other));
        }
        let escaped = fingerprint("default", "k", "T", br#"{"\u0061":"\u00e4"}"#, &[]);
        assert_eq!(escaped, fingerprint("default", "k", "T", "{\"a\":\"ä\"}".as_bytes(), &[]));
        assert_ne!(one, fingerprint("default", "k", "U", br#"{"a":1,"b":{"c":2,"d":[1,2]}}"#, &tags(["x", "y"])));
    }
}
