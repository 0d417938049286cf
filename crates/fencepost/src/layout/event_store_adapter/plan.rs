//! What one append writes, in the peer's own order of actions. Pure.

use super::item::{self, ACTIVE, AID, EVENTS, New, PAYLOAD, SEQ, UPDATED, VERSION};
use super::settings::{Kind, LAST, Options};
use super::token::End;
use crate::dynamo::item::{Item, Value, number, size};
use crate::dynamo::{ITEM_BYTES, TRANSACTION_BYTES, Terms, Write};
use crate::error::{Error, Refused, Result};
use crate::event::{CommitId, Event, StreamName};
use crate::side::once::Once;
use crate::stream::Snapshot;

/// What an append is about, wherever it lands.
#[derive(Debug)]
pub(super) struct Commit<'a> {
    pub(super) id: CommitId,
    pub(super) events: &'a [Event],
    /// The time that is its own, and when each event occurred, in nanoseconds.
    pub(super) drawn: i64,
    pub(super) occurred: Vec<i64>,
    pub(super) snapshot: Option<&'a Snapshot>,
    /// Under an id that the caller gave.
    pub(super) once: bool,
    /// A try under `strict` was among its tries: that bears no id.
    pub(super) bare: bool,
}

impl Commit<'_> {
    pub(super) fn count(&self) -> u64 {
        self.events.len() as u64
    }
}

/// What a write of the transaction is to the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// An event.
    Journal,
    /// Head or current snapshot: what is fought for.
    Lock,
    /// Nothing that can fail, but by an accident.
    Beside,
    /// The commit id.
    Once,
}

/// All writes of the commit behind this end, and what the stream's end is then.
pub(super) fn plan(
    options: &Options,
    once: &Once<'_>,
    stream: &StreamName,
    from: End,
    commit: &Commit<'_>,
) -> Result<(Vec<(Part, Write)>, End)> {
    let last = from.version + commit.count();
    if last > LAST {
        return Err(Refused::TooManyEvents { events: commit.events.len(), limit: usize::try_from(LAST - from.version).unwrap_or(0) }.into());
    }
    for (event, version) in commit.events.iter().zip(from.version + 1..) {
        item::check_event(options, stream, event, Some(version))?;
    }
    let count = u32::try_from(commit.events.len()).unwrap_or(u32::MAX);
    let news: Vec<New<'_>> = (0..)
        .zip(commit.events.iter().zip(&commit.occurred))
        .map(|(index, (event, occurred))| New {
            event,
            version: from.version + 1 + u64::from(index),
            occurred: *occurred,
            mark: (index == 0 && commit.needs_mark()).then_some(commit.id),
            index,
            count,
        })
        .collect();
    let journal = news.iter().map(|new| {
        let put = Write::PutNew { table: options.journal.clone(), item: new.journal(options, stream) };
        (Part::Journal, put)
    });
    // The last event's time, in milliseconds.
    let updated = commit.occurred.last().map_or(0, |nanos| item::millis(*nanos));
    let (mut writes, end) = match &options.kind {
        Kind::V5 { head, .. } => {
            let mut writes: Vec<_> = journal.collect();
            writes.push((Part::Lock, v5_head(head, stream, from, &news)?));
            writes.extend(v5_snapshots(options, stream, commit, last, updated).into_iter().map(|write| (Part::Beside, write)));
            (writes, End { version: last, lock: last })
        }
        Kind::V3(_) => {
            let lock = from.lock + commit.count();
            let mut writes = vec![(Part::Lock, v3_current(options, stream, from, commit, End { version: last, lock }, updated)?)];
            writes.extend(journal);
            if let (Some(snapshot), Some(_)) = (commit.snapshot, options.keep) {
                let mut history = item::v3_snapshot(stream, last, lock, &snapshot.state, updated);
                history.extend(item::snapshot_key(options, stream, last));
                writes.push((Part::Beside, Write::PutNew { table: options.snapshot.clone(), item: history }));
            }
            (writes, End { version: last, lock })
        }
    };
    if commit.once {
        writes.push((Part::Once, once.write(stream, last, commit.id, commit.events)));
    }
    check_sizes(&writes)?;
    Ok((writes, end))
}

fn v5_head(table: &str, stream: &StreamName, from: End, news: &[New<'_>]) -> Result<Write> {
    let mut head = item::head(stream, news);
    // The update is checked by the item that it leaves.
    check_size("head, with the copies of the commit's events,", &head)?;
    if from.version == 0 {
        return Ok(Write::PutNew { table: table.into(), item: head });
    }
    let terms = Terms::when(format!("{SEQ} = :prev"))
        .value(":prev", number(from.version))
        .value(":next", number(from.version + news.len() as u64))
        .value(":events", head.remove(EVENTS).unwrap_or(Value::L(Vec::new())));
    Ok(Write::Update {
        table: table.into(),
        key: Item::from([(AID.into(), Value::S(stream.as_str().into()))]),
        update: format!("SET {SEQ} = :next, {EVENTS} = :events"),
        condition: terms,
    })
}

fn v5_snapshots(options: &Options, stream: &StreamName, commit: &Commit<'_>, last: u64, updated: i64) -> Vec<Write> {
    let Some(snapshot) = commit.snapshot else { return Vec::new() };
    let put = |version: u64| {
        let mut item = item::v5_snapshot(&snapshot.name, last, &snapshot.state, updated);
        item.extend(item::snapshot_key(options, stream, version));
        item
    };
    let mut items = vec![put(0)];
    if options.keep.is_some() {
        let mut history = put(last);
        history.insert(ACTIVE.into(), number(last));
        items.push(history);
    }
    // Without a condition: the head orders those who write them.
    items.into_iter().map(|item| Write::Put { table: options.snapshot.clone(), item }).collect()
}

fn v3_current(options: &Options, stream: &StreamName, from: End, commit: &Commit<'_>, end: End, updated: i64) -> Result<Write> {
    if from.lock == 0 {
        if from.version > 0 {
            return Err(no_lock(options, stream, from.version));
        }
        let Some(snapshot) = commit.snapshot else { return Err(first_needs_snapshot()) };
        let mut current = item::v3_snapshot(stream, end.version, end.lock, &snapshot.state, updated);
        current.extend(item::snapshot_key(options, stream, 0));
        return Ok(Write::PutNew { table: options.snapshot.clone(), item: current });
    }
    let mut update = "SET #version = :after, #updated = :updated".to_owned();
    let mut terms = Terms::when("#version = :before")
        .name("#version", VERSION)
        .name("#updated", UPDATED)
        .value(":before", number(from.lock))
        .value(":after", number(end.lock))
        .value(":updated", Value::N(updated.to_string()));
    if let Some(snapshot) = commit.snapshot {
        update.push_str(", #payload = :payload, #seq = :seq");
        terms = terms
            .name("#payload", PAYLOAD)
            .name("#seq", SEQ)
            .value(":payload", crate::dynamo::item::binary(snapshot.state.to_vec()))
            .value(":seq", number(end.version));
        let mut whole = item::v3_snapshot(stream, end.version, end.lock, &snapshot.state, updated);
        whole.extend(item::snapshot_key(options, stream, 0));
        check_size("snapshot", &whole)?;
    }
    Ok(Write::Update { table: options.snapshot.clone(), key: item::snapshot_key(options, stream, 0), update, condition: terms })
}

/// A new one would count from nothing, beside whatever the old one is.
fn no_lock(options: &Options, stream: &StreamName, version: u64) -> Error {
    let what = format!("{stream} has events up to @{version} and no current snapshot, which is its lock; nothing was written: put it back");
    Error::corrupt(options.layout(), what)
}

/// As the published page says.
pub(super) fn first_needs_snapshot() -> Error {
    Refused::Unsupported {
        what: "a first append without a snapshot".into(),
        remedy: "v3 locks a stream by its snapshot: append the first events with one, called `snapshot`".into(),
    }
    .into()
}

fn check_size(what: &'static str, item: &Item) -> Result<()> {
    let bytes = size(item);
    if bytes > ITEM_BYTES {
        return Err(Refused::TooLong { what, bytes, limit: ITEM_BYTES }.into());
    }
    Ok(())
}

fn check_sizes(writes: &[(Part, Write)]) -> Result<()> {
    let mut all = 0;
    for (part, write) in writes {
        let (Write::PutNew { item, .. } | Write::Put { item, .. } | Write::PutIf { item, .. }) = write else { continue };
        check_size(if *part == Part::Journal { "event with its attributes" } else { "snapshot" }, item)?;
        all += size(item);
    }
    if all > TRANSACTION_BYTES {
        return Err(Refused::TooLong { what: "commit", bytes: all, limit: TRANSACTION_BYTES }.into());
    }
    Ok(())
}
