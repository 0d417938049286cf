//! What a store of this layout is opened with: its tables, and when Tips are calved. Pure.

use std::collections::BTreeMap;

use super::plan::{Limits, TIP_BYTES};
use crate::dynamo::table::{KeyKind, KeySpec, On, READ, Rights, Role, StreamSpec, StreamView, TABLE_ADMIN, TableSpec};
use crate::error::{Refused, Result};
use crate::event::StreamName;
use crate::url::StoreUrl;

/// Items that one page of a load asks for, as the peers do.
const PAGE: i32 = 32;

/// What becomes of a read that asks for events that were pruned, and are in no archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Refused,
    Ignored,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) table: String,
    pub(crate) index: String,
    /// Where pruned events are, if they were kept.
    pub(crate) archive: String,
    pub(super) missing: Missing,
    pub(crate) side: String,
    pub(super) limits: Limits,
    pub(super) page: i32,
    /// Partitions of the index that its writers use, by the stream's name; its readers read all that there are.
    pub(crate) partitions: u32,
    /// Estimated bytes from which on an epoch of the index is closed; none: as the peer has it.
    #[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the index has epochs"))]
    pub(super) epoch_bytes: Option<u64>,
    #[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the index is fed from"))]
    pub(crate) fed: Fed,
}

/// What the feed hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    /// Events as they were recorded.
    Events,
    /// What the index tells of them, without a read of the store: stream, version and type, no body.
    Types,
}

/// The Tip of an index's stream, as Propulsion's indexer has it.
#[cfg(feature = "streams")]
const INDEX_TIP_BYTES: u64 = 48 * 1024;
#[cfg(feature = "streams")]
const INDEX_PAGE: i32 = 100;
/// Partitions of an index: more than any reader should have to follow.
const MAX_PARTITIONS: u64 = 256;

impl Options {
    pub(crate) fn of(url: &StoreUrl) -> Result<Options> {
        const KNOWN: [&str; 11] = [
            "index",
            "archive",
            "missing",
            "side",
            "tip_events",
            "tip_bytes",
            "tip_event_bytes",
            "page",
            "partitions",
            "epoch_bytes",
            "feed",
        ];
        url.only(&KNOWN)?;
        let count = |name: &str| -> Result<Option<u64>> {
            let parse = |given: &str| given.parse().ok().filter(|n| *n > 0);
            match url.param(name) {
                None => Ok(None),
                Some(given) => {
                    Ok(Some(parse(given).ok_or_else(|| Refused::Url { why: format!("{name}={given}: expected a number from 1 on") })?))
                }
            }
        };
        // One parameter sets both, as in F#.
        let bytes = count("tip_bytes")?.unwrap_or(TIP_BYTES);
        let partitions = count("partitions")?.unwrap_or(1);
        if partitions > MAX_PARTITIONS {
            return Err(Refused::Url { why: format!("partitions={partitions}: expected at most {MAX_PARTITIONS}") }.into());
        }
        let fed = match url.param("feed") {
            None | Some("events") => Fed::Events,
            Some("types") => Fed::Types,
            Some(other) => return Err(Refused::Url { why: format!("feed={other}: expected events or types") }.into()),
        };
        Ok(Options {
            table: url.table.clone(),
            index: url.named("index", "-index")?,
            archive: url.named("archive", "-archive")?,
            missing: match url.param("missing") {
                None | Some("refused") => Missing::Refused,
                Some("ignored") => Missing::Ignored,
                Some(other) => return Err(Refused::Url { why: format!("missing={other}: expected refused or ignored") }.into()),
            },
            side: url.named("side", "-side")?,
            limits: Limits {
                events: count("tip_events")?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
                event_bytes: count("tip_event_bytes")?.unwrap_or(bytes),
                bytes,
            },
            page: count("page")?.and_then(|n| i32::try_from(n).ok()).unwrap_or(PAGE),
            partitions: u32::try_from(partitions).unwrap_or(1),
            epoch_bytes: count("epoch_bytes")?,
            fed,
        })
    }

    /// The index's table, as a store of its own.
    #[cfg(feature = "streams")]
    pub(super) fn of_index(&self) -> Options {
        let limits = Limits { events: None, event_bytes: INDEX_TIP_BYTES, bytes: INDEX_TIP_BYTES };
        Options { table: self.index.clone(), missing: Missing::Refused, limits, page: INDEX_PAGE, ..self.clone() }
    }

    /// The store's table with its stream, and the index's. An archive is somebody else's to make.
    pub(crate) fn specs(&self) -> Vec<TableSpec> {
        let spec = |name: &str, stream| TableSpec {
            name: name.into(),
            hash: KeySpec { name: super::item::HASH.into(), kind: KeyKind::S },
            range: Some(KeySpec { name: super::item::RANGE.into(), kind: KeyKind::N }),
            indexes: Vec::new(),
            stream,
            ttl: None,
        };
        vec![spec(&self.table, StreamSpec::Needed(StreamView::NewImage)), spec(&self.index, StreamSpec::OnRequest)]
    }

    pub(crate) fn rights(&self) -> Vec<Rights> {
        const WRITE: [&str; 3] = ["PutItem", "UpdateItem", "ConditionCheckItem"];
        const CLEAN: [&str; 2] = ["Scan", "DeleteItem"];
        let on = |role, name: &str, on, actions: &[&[&'static str]]| Rights { role, table: name.into(), on, actions: actions.concat() };
        let mut rights = vec![
            on(Role::Indexer, &self.table, On::Stream, &[&["DescribeStream", "GetRecords", "GetShardIterator"]]),
            on(Role::Writer, &self.table, On::Table, &[&READ, &WRITE]),
            on(Role::Reader, &self.table, On::Table, &[&READ]),
            on(Role::Indexer, &self.table, On::Table, &[&READ]),
            on(Role::Admin, &self.table, On::Table, &[&TABLE_ADMIN, &READ, &WRITE, &CLEAN]),
            on(Role::Reader, &self.index, On::Table, &[&READ]),
            on(Role::Writer, &self.index, On::Table, &[&READ]),
            on(Role::Indexer, &self.index, On::Table, &[&READ, &WRITE]),
            on(Role::Admin, &self.index, On::Table, &[&TABLE_ADMIN, &READ, &WRITE, &CLEAN]),
        ];
        for role in [Role::Writer, Role::Reader, Role::Indexer, Role::Admin] {
            let own: &[&'static str] = if role == Role::Reader { &[] } else { &["PutItem", "DeleteItem", "CreateTable"] };
            rights.push(on(role, &self.side, On::Table, &[&READ, own]));
            rights.push(on(role, &self.archive, On::Table, &[&READ]));
        }
        rights
    }

    /// For people.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::from([
            ("index".to_owned(), self.index.clone()),
            ("archive, if there".to_owned(), self.archive.clone()),
            ("tip bytes".to_owned(), self.limits.bytes.to_string()),
            ("partitions".to_owned(), self.partitions.to_string()),
        ]);
        shown.extend(self.limits.events.map(|events| ("tip events".to_owned(), events.to_string())));
        shown
    }
}

/// A stream's name is a category and an id, with a dash between; the first dash splits.
pub(super) fn check_name(stream: &StreamName) -> Result<()> {
    let name = stream.as_str();
    let fits = name.split_once('-').is_some_and(|(category, _)| !category.is_empty());
    if fits {
        return Ok(());
    }
    Err(Refused::BadName { what: "stream", name: name.into(), rule: "a category, a dash, and an id: Cart-1" }.into())
}

/// What is written to: not the peers' own streams.
pub(crate) fn check_written(stream: &StreamName) -> Result<()> {
    check_name(stream)?;
    if !stream.as_str().starts_with('$') {
        return Ok(());
    }
    Err(Refused::BadName { what: "stream", name: stream.as_str().into(), rule: "not beginning with $: those are the store's own" }.into())
}
