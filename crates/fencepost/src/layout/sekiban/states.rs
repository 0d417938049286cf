//! Projection states in Sekiban's rows: read in every form that it wrote, written by compare-and-set, inline or with a blob, and status rows beside
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::TryStreamExt;

use super::Sekiban;
use super::item::{HASH, RANGE, corrupt, key, written};
use super::plan::TABLE_HASH;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, number, size, text, wrong};
use crate::dynamo::{Failure, Find, Freshness, ITEM_BYTES, Outcome, Terms, Verdict, Write};
use crate::error::{Error, Refused, Result};

const ENVELOPE: &str = "Sekiban.Dcb.Snapshots.SerializableMultiProjectionStateEnvelope";
const KIND: &str = "documentType";
const STATE: &str = "projectionState";
const STATUS: &str = "projectionStatus";
const PROJECTOR: &str = "projectorName";
const VERSION: &str = "projectorVersion";
const PAYLOAD_TYPE: &str = "payloadType";
const LAST: &str = "lastSortableUniqueId";
const PROCESSED: &str = "eventsProcessed";
const DATA: &str = "stateData";
const OFFLOADED: &str = "isOffloaded";
const KEY: &str = "offloadKey";
const PROVIDER: &str = "offloadProvider";
const ORIGINAL: &str = "originalSizeBytes";
const COMPRESSED: &str = "compressedSizeBytes";
const THRESHOLD: &str = "safeWindowThreshold";
const CREATED: &str = "createdAt";
const UPDATED: &str = "updatedAt";
const SOURCE: &str = "buildSource";
const HOST: &str = "buildHost";
const GENERATION: &str = "generation";
const REVISION: &str = "revision";
const LIFECYCLE: &str = "lifecycle";
const SEQUENCE: &str = "sequence";
/// What a projection of ours says of its state. Sekiban's readers pass over attributes that they do not know.
pub(super) const MARK: &str = "fencepostHeader";

/// A projection's state, as a row of Sekiban's has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionRow {
    /// The projector.
    pub projector: String,
    /// Its version.
    pub version: String,
    /// The id up to which it has folded; empty: nothing.
    pub last: String,
    /// How many events that were.
    pub events: u64,
    /// The state.
    pub body: RowBody,
    /// Bytes before and after compression, as its builder counted them.
    pub sizes: (u64, u64),
    /// What was safe then: 30 digits.
    pub safe_window_threshold: String,
    /// When the row was first built, as text of .NET's.
    pub created_at: String,
    /// Who built it: `GRAIN_STREAM`, `GRAIN`, `CLI`.
    pub build_source: String,
    /// Where.
    pub build_host: Option<String>,
    /// Which write of it this is.
    pub control: Control,
}

/// Where a row's state is.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowBody {
    /// In the row: the envelope, as JSON.
    Inline(Bytes),
    /// In a blob that holds the envelope.
    Offloaded {
        /// Its key.
        key: String,
        /// Where: `AwsS3`.
        provider: String,
    },
}

impl std::fmt::Debug for RowBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RowBody::Inline(envelope) => write!(f, "Inline({} bytes)", envelope.len()),
            RowBody::Offloaded { key, provider } => write!(f, "Offloaded({provider}, {key})"),
        }
    }
}

/// Which write of a row this is. A row without these attributes has 0 of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Control {
    /// Raised when a state is given up.
    pub generation: u64,
    /// Raised by every write.
    pub revision: u64,
    /// Whether it was given up, and is to be built anew.
    pub tombstoned: bool,
}

/// What became of a write of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowWrite {
    /// It is there, under this control.
    Committed(Control),
    /// Somebody else was first; what is there, if anything is.
    Rejected(Option<Control>),
}

/// How a projection is doing: a heartbeat beside its states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectionHeartbeat {
    /// The projector.
    pub projector: String,
    /// Its version.
    pub version: String,
    /// Which cluster runs it.
    pub cluster: String,
    /// Which activation of it.
    pub activation: String,
    /// Rises with every heartbeat.
    pub sequence: u64,
    /// Events applied.
    pub applied: u64,
    /// The last that was applied.
    pub last_applied: Option<String>,
    /// The last that was looked at.
    pub last_traversed: Option<String>,
    /// When, with its offset.
    pub recorded_at: String,
    /// `unknown`, `starting`, `catchingUp`, `active`, `caughtUp`, `faulted`, `stopped`.
    pub phase: String,
    /// When it is taken for dead.
    pub lease_expires_at: Option<String>,
    /// What went wrong, where it is faulted.
    pub fault: Option<String>,
}

impl ProjectionRow {
    pub(super) fn of_item(item: &Item) -> Result<ProjectionRow> {
        let read = || {
            let away = matches!(item.get(OFFLOADED), Some(Value::Bool(true)));
            let body = if away {
                RowBody::Offloaded { key: item.text(KEY)?.into(), provider: item.maybe_text(PROVIDER)?.unwrap_or_default().into() }
            } else {
                let data = STANDARD.decode(item.maybe_text(DATA)?.unwrap_or_default()).map_err(|_| wrong(DATA, "base64"))?;
                RowBody::Inline(data.into())
            };
            Ok(ProjectionRow {
                projector: item.text(PROJECTOR)?.into(),
                version: item.text(VERSION)?.into(),
                last: item.maybe_text(LAST)?.unwrap_or_default().into(),
                events: item.maybe_number(PROCESSED)?.unwrap_or(0),
                body,
                sizes: (item.maybe_number(ORIGINAL)?.unwrap_or(0), item.maybe_number(COMPRESSED)?.unwrap_or(0)),
                safe_window_threshold: item.maybe_text(THRESHOLD)?.unwrap_or_default().into(),
                created_at: item.maybe_text(CREATED)?.unwrap_or_default().into(),
                build_source: item.maybe_text(SOURCE)?.unwrap_or_default().into(),
                build_host: item.maybe_text(HOST)?.map(str::to_owned),
                control: control(item)?,
            })
        };
        read().map_err(|malformed: Malformed| corrupt(item, &malformed))
    }
}

fn control(item: &Item) -> Result<Control, Malformed> {
    Ok(Control {
        generation: item.maybe_number(GENERATION)?.unwrap_or(0),
        revision: item.maybe_number(REVISION)?.unwrap_or(0),
        tombstoned: item.maybe_number(LIFECYCLE)?.unwrap_or(0) == 1,
    })
}

fn put_control(item: &mut Item, control: Control) {
    item.insert(GENERATION.into(), number(control.generation));
    item.insert(REVISION.into(), number(control.revision));
    item.insert(LIFECYCLE.into(), number(control.tombstoned.into()));
}

/// Exactly this control; a row without the attributes has 0 of each, which Sekiban's own conditions do not see.
fn exactly(control: Control) -> (String, Item) {
    let part = |name: &str, value: u64, placeholder: &str| match value {
        0 => format!("(attribute_not_exists({name}) OR {name} = {placeholder})"),
        _ => format!("{name} = {placeholder}"),
    };
    let life = u64::from(control.tombstoned);
    let condition = format!(
        "attribute_exists(pk) AND {} AND {} AND {}",
        part(GENERATION, control.generation, ":g"),
        part(REVISION, control.revision, ":r"),
        part(LIFECYCLE, life, ":l")
    );
    let values =
        Item::from([(":g".into(), number(control.generation)), (":r".into(), number(control.revision)), (":l".into(), number(life))]);
    (condition, values)
}

impl Sekiban {
    pub(super) fn state_key(&self, projector: &str, version: &str) -> Item {
        key(self.keys().projector(projector), format!("VERSION#{version}"))
    }

    pub(super) fn now_text(&self) -> String {
        written(self.dynamo().env().now()).replace("+00:00", "Z")
    }

    /// The state of a projector's version; none where there is none, or where it was given up.
    pub async fn projection_row(&self, projector: &str, version: &str) -> Result<Option<ProjectionRow>> {
        let row = self.any_row(projector, version).await?;
        Ok(row.filter(|row| !row.control.tombstoned))
    }

    /// The same, given up or not: for whoever writes it next.
    pub async fn any_row(&self, projector: &str, version: &str) -> Result<Option<ProjectionRow>> {
        let op = self.dynamo().op();
        let item = self.dynamo().get(&op, &self.options().states, self.state_key(projector, version), Freshness::Strong).await?;
        item.as_ref().map(ProjectionRow::of_item).transpose()
    }

    /// The row of a projector, of whatever version, that has folded the most events.
    pub async fn newest_row(&self, projector: &str) -> Result<Option<ProjectionRow>> {
        let rows = self.rows_of_projector(projector).await?;
        Ok(rows.into_iter().filter(|row| !row.control.tombstoned).max_by_key(|row| row.events))
    }

    /// All rows of a projector, by version.
    pub async fn rows_of_projector(&self, projector: &str) -> Result<Vec<ProjectionRow>> {
        let items = self.partition(projector).await?;
        items.iter().filter(|item| is_state(item)).map(ProjectionRow::of_item).collect()
    }

    /// Writes a row that nobody holds by compare-and-set, whatever it says. One that somebody does, or that was given up, is left.
    pub async fn put_row(&self, row: &ProjectionRow) -> Result<RowWrite> {
        let to = Control::default();
        let (held, values) = exactly(to);
        self.write_row(row, to, format!("attribute_not_exists(pk) OR ({held})"), values).await
    }

    /// Writes a row where there is none yet.
    pub async fn create_row(&self, row: &ProjectionRow) -> Result<RowWrite> {
        let to = Control { revision: 1, ..Control::default() };
        self.write_row(row, to, "attribute_not_exists(pk)".into(), Item::new()).await
    }

    /// Writes a row over the one that stands under this control; over one that was given up, it is there again.
    pub async fn replace_row(&self, row: &ProjectionRow, expect: Control) -> Result<RowWrite> {
        let to = Control { revision: expect.revision + 1, tombstoned: false, ..expect };
        let (condition, values) = exactly(expect);
        self.write_row(row, to, condition, values).await
    }

    /// Gives a state up: it is not read any more, and built anew.
    pub async fn invalidate_row(&self, projector: &str, version: &str, expect: Control) -> Result<RowWrite> {
        let to = Control { generation: expect.generation + 1, revision: expect.revision + 1, tombstoned: true };
        let (condition, values) = exactly(expect);
        let mut terms = Terms { condition, values, ..Terms::default() };
        for (placeholder, value) in [(":ng", to.generation), (":nr", to.revision), (":nl", 1)] {
            terms = terms.value(placeholder, number(value));
        }
        let terms = terms.value(":nu", text(self.now_text()));
        let update = format!("SET {GENERATION} = :ng, {REVISION} = :nr, {LIFECYCLE} = :nl, {UPDATED} = :nu");
        let write =
            Write::Update { table: self.options().states.clone(), key: self.state_key(projector, version), update, condition: terms };
        self.settle(write, to).await
    }

    async fn write_row(&self, row: &ProjectionRow, to: Control, condition: String, values: Item) -> Result<RowWrite> {
        let item = self.row_item(row, to, None).await?;
        self.settle(Write::PutIf { table: self.options().states.clone(), item, condition, values }, to).await
    }

    /// A row's item, its envelope in the bucket if it is too large: first the blob, then the row that names it, so that no row names what is not
    /// there. `mark` is what a projection of ours says of its state.
    pub(super) async fn row_item(&self, row: &ProjectionRow, to: Control, mark: Option<&str>) -> Result<Item> {
        let too_large = |envelope: &Bytes| envelope.len() > self.options().threshold;
        if let RowBody::Inline(envelope) = &row.body {
            let inline = self.plain_item(row, &row.body, to, mark);
            if (too_large(envelope) || inline.is_err())
                && let Some(away) = self.offload(row, envelope).await?
            {
                return self.plain_item(row, &away, to, mark);
            }
            return inline;
        }
        self.plain_item(row, &row.body, to, mark)
    }

    fn plain_item(&self, row: &ProjectionRow, body: &RowBody, to: Control, mark: Option<&str>) -> Result<Item> {
        let mut item = self.state_key(&row.projector, &row.version);
        self.keys().mark_service(&mut item);
        if !self.keys().is_plain() {
            item.insert(KIND.into(), text(STATE));
            put_control(&mut item, to);
        } else if to != Control::default() {
            put_control(&mut item, to);
        }
        for (name, value) in [
            (PROJECTOR, &row.projector),
            (VERSION, &row.version),
            (LAST, &row.last),
            (THRESHOLD, &row.safe_window_threshold),
            (CREATED, &row.created_at),
            (SOURCE, &row.build_source),
        ] {
            item.insert(name.into(), text(value.as_str()));
        }
        item.insert(PAYLOAD_TYPE.into(), text(ENVELOPE));
        item.insert(PROCESSED.into(), number(row.events));
        item.insert(ORIGINAL.into(), number(row.sizes.0));
        item.insert(COMPRESSED.into(), number(row.sizes.1));
        item.insert(UPDATED.into(), text(self.now_text()));
        if let Some(host) = &row.build_host {
            item.insert(HOST.into(), text(host.as_str()));
        }
        if let Some(mark) = mark {
            item.insert(MARK.into(), text(mark));
        }
        match body {
            RowBody::Inline(envelope) => {
                item.insert(OFFLOADED.into(), Value::Bool(false));
                item.insert(DATA.into(), text(STANDARD.encode(envelope)));
            }
            RowBody::Offloaded { key, provider } => {
                item.insert(OFFLOADED.into(), Value::Bool(true));
                item.insert(KEY.into(), text(key.as_str()));
                item.insert(PROVIDER.into(), text(provider.as_str()));
            }
        }
        // Measured as it is written: Sekiban compares the envelope, and what it then writes is a third larger.
        let bytes = size(&item);
        if bytes > ITEM_BYTES {
            return Err(Refused::TooLong { what: "projection state", bytes, limit: ITEM_BYTES }.into());
        }
        Ok(item)
    }

    /// A write under a condition; one whose answer was lost is told from another's by what is there.
    pub(super) async fn settle(&self, write: Write, to: Control) -> Result<RowWrite> {
        let op = self.dynamo().op();
        self.refuse_replicas(&op, &self.options().states).await?;
        let mine = match &write {
            Write::PutIf { item, .. } => Some(item.clone()),
            _ => None,
        };
        let key = key_of(&write);
        let outcome = match self.dynamo().write(&op, TABLE_HASH, vec![write]).await {
            // Nobody answered: what is there tells, if it is ours.
            Err(failure) if failure.doubt => {
                let there = self.row_now(key, &failure).await?.unwrap_or_default();
                let ours = mine.map_or_else(|| control(&there).is_ok_and(|now| now == to), |mine| mine == there);
                return if ours { Ok(RowWrite::Committed(to)) } else { Err(self.doubted(&failure)) };
            }
            outcome => outcome?,
        };
        match outcome {
            Outcome::Done => Ok(RowWrite::Committed(to)),
            Outcome::Failed { verdicts, doubt } => {
                let Some(Verdict::Found(there)) = verdicts.into_iter().next() else { return Ok(RowWrite::Rejected(None)) };
                let now = control(&there).map_err(|malformed| corrupt(&there, &malformed))?;
                // An update names no writer: what it was to become is all there is to know it by.
                let ours = doubt && mine.map_or(now == to, |mine| mine == *there);
                Ok(if ours { RowWrite::Committed(to) } else { RowWrite::Rejected(Some(now)) })
            }
        }
    }

    /// Removes a row; whether it was there. Its blob stays.
    pub async fn delete_row(&self, projector: &str, version: &str) -> Result<bool> {
        let values = Item::from([(":p".into(), text(projector))]);
        self.delete_state(self.state_key(projector, version), format!("{PROJECTOR} = :p"), values).await
    }

    /// Removes a row under a condition; whether it was there.
    pub(super) async fn delete_state(&self, key: Item, condition: String, values: Item) -> Result<bool> {
        let op = self.dynamo().op();
        self.refuse_replicas(&op, &self.options().states).await?;
        match self.dynamo().delete_if(&op, &self.options().states, key.clone(), condition, values).await {
            Err(failure) if failure.doubt => match self.row_now(key, &failure).await? {
                None => Ok(true),
                Some(_) => Err(self.doubted(&failure)),
            },
            gone => Ok(gone?),
        }
    }

    /// A row as it is, after a write of it that nobody answered.
    async fn row_now(&self, key: Item, failure: &Failure) -> Result<Option<Item>> {
        let read = self.dynamo().get(&self.dynamo().op(), &self.options().states, key, Freshness::Strong).await;
        read.map_err(|_| self.doubted(failure))
    }

    fn doubted(&self, failure: &Failure) -> Error {
        let message = format!("a row of a projection's state is written, or may be: read it, and write again ({})", failure.error);
        self.doubt(&[], message)
    }

    /// Tells how a projection is doing, if the last heartbeat was this one (0: if there was none); false where another was.
    pub async fn put_heartbeat(&self, beat: &ProjectionHeartbeat, expect: u64) -> Result<bool> {
        let op = self.dynamo().op();
        self.refuse_replicas(&op, &self.options().states).await?;
        let named = URL_SAFE_NO_PAD.encode(format!("{}|{}", beat.version, beat.cluster));
        let mut item = key(self.keys().projector(&beat.projector), format!("STATUS#{named}"));
        self.keys().mark_service(&mut item);
        // Sekiban's one class has both: the attributes of a state are there, and blank.
        for name in [PAYLOAD_TYPE, LAST, THRESHOLD, CREATED, UPDATED, SOURCE] {
            item.insert(name.into(), text(""));
        }
        for name in [PROCESSED, ORIGINAL, COMPRESSED] {
            item.insert(name.into(), number(0));
        }
        put_control(&mut item, Control::default());
        item.insert(OFFLOADED.into(), Value::Bool(false));
        item.insert("isFaulted".into(), Value::Bool(beat.fault.is_some()));
        item.insert(SEQUENCE.into(), number(beat.sequence));
        item.insert("appliedEventCount".into(), number(beat.applied));
        let texts = [
            (KIND, Some(STATUS)),
            (PROJECTOR, Some(beat.projector.as_str())),
            (VERSION, Some(beat.version.as_str())),
            ("clusterId", Some(beat.cluster.as_str())),
            ("activationId", Some(beat.activation.as_str())),
            ("lastAppliedSortableUniqueId", beat.last_applied.as_deref()),
            ("lastTraversedSortableUniqueId", beat.last_traversed.as_deref()),
            ("recordedAtUtc", Some(beat.recorded_at.as_str())),
            ("phase", Some(beat.phase.as_str())),
            ("leaseExpiresAtUtc", beat.lease_expires_at.as_deref()),
            ("faultMessage", beat.fault.as_deref()),
        ];
        for (name, value) in texts {
            item.extend(value.map(|value| (name.to_owned(), text(value))));
        }
        let mine = item.clone();
        let key = key_of_item(&item);
        // `sequence` is a word of DynamoDB's own: it goes as the placeholder that is otherwise the hash key.
        let (condition, values) = match expect {
            0 => ("attribute_not_exists(#h)".to_owned(), Item::new()),
            _ => {
                let values = [(":e".to_owned(), number(expect)), (":n".to_owned(), number(beat.sequence))];
                ("#h = :e AND #h < :n".to_owned(), Item::from(values))
            }
        };
        let write = Write::PutIf { table: self.options().states.clone(), item, condition, values };
        let outcome = match self.dynamo().write(&op, SEQUENCE, vec![write]).await {
            Err(failure) if failure.doubt => {
                let there = self.row_now(key, &failure).await?;
                return if there == Some(mine) { Ok(true) } else { Err(self.doubted(&failure)) };
            }
            outcome => outcome?,
        };
        match outcome {
            Outcome::Done => Ok(true),
            Outcome::Failed { verdicts, doubt } => Ok(doubt && matches!(verdicts.first(), Some(Verdict::Found(there)) if **there == mine)),
        }
    }
}

impl ProjectionHeartbeat {
    fn of_item(item: &Item) -> Result<ProjectionHeartbeat> {
        let read = || {
            let maybe = |name: &str| Ok::<_, Malformed>(item.maybe_text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
            Ok(ProjectionHeartbeat {
                projector: item.text(PROJECTOR)?.into(),
                version: item.text(VERSION)?.into(),
                cluster: maybe("clusterId")?.unwrap_or_default(),
                activation: maybe("activationId")?.unwrap_or_default(),
                sequence: item.number(SEQUENCE)?,
                applied: item.maybe_number("appliedEventCount")?.unwrap_or(0),
                last_applied: maybe("lastAppliedSortableUniqueId")?,
                last_traversed: maybe("lastTraversedSortableUniqueId")?,
                recorded_at: maybe("recordedAtUtc")?.unwrap_or_default(),
                phase: maybe("phase")?.unwrap_or_default(),
                lease_expires_at: maybe("leaseExpiresAtUtc")?,
                fault: maybe("faultMessage")?,
            })
        };
        read().map_err(|malformed: Malformed| corrupt(item, &malformed))
    }
}

/// Lists of what is in the table, and what is deleted by them.
impl Sekiban {
    /// The rows of all projectors of the service, given up or not. Scans the whole table of states, which services share.
    pub async fn scan_rows(&self) -> Result<Vec<ProjectionRow>> {
        self.scan_all_rows(|item| self.keys().owns(item)).await
    }

    pub(super) async fn scan_all_rows(&self, wanted: impl Fn(&Item) -> bool) -> Result<Vec<ProjectionRow>> {
        let items = self.scan_states(|item| wanted(item) && is_state(item)).await?;
        items.iter().map(ProjectionRow::of_item).collect()
    }

    /// How the projections of the service are doing. Scans the whole table of states.
    pub async fn scan_heartbeats(&self) -> Result<Vec<ProjectionHeartbeat>> {
        let items = self.scan_states(|item| self.keys().owns(item) && is_heartbeat(item)).await?;
        items.iter().map(ProjectionHeartbeat::of_item).collect()
    }

    /// How a projector is doing, every version and cluster of it.
    pub async fn heartbeats_of(&self, projector: &str) -> Result<Vec<ProjectionHeartbeat>> {
        let items = self.partition(projector).await?;
        items.iter().filter(|item| is_heartbeat(item)).map(ProjectionHeartbeat::of_item).collect()
    }

    /// Removes all rows of a projector; how many there were. Heartbeats stay, and blobs until they are collected.
    pub async fn delete_rows_of(&self, projector: &str) -> Result<u64> {
        let rows = self.rows_of_projector(projector).await?;
        self.delete_rows(rows).await
    }

    /// Removes all rows of all projectors of the service. Scans the whole table of states.
    pub async fn scan_and_delete_rows(&self) -> Result<u64> {
        let rows = self.scan_rows().await?;
        self.delete_rows(rows).await
    }

    async fn delete_rows(&self, rows: Vec<ProjectionRow>) -> Result<u64> {
        let mut deleted = 0;
        for row in rows {
            deleted += u64::from(self.delete_row(&row.projector, &row.version).await?);
        }
        Ok(deleted)
    }

    pub(super) async fn partition(&self, projector: &str) -> Result<Vec<Item>> {
        let op = self.dynamo().long_op();
        let find = Find::new(&self.options().states, HASH, text(self.keys().projector(projector)));
        self.dynamo().items(&op, find).try_collect().await
    }

    async fn scan_states(&self, wanted: impl Fn(&Item) -> bool) -> Result<Vec<Item>> {
        let op = self.dynamo().long_op();
        let (mut all, mut start) = (Vec::new(), None);
        loop {
            let (items, next) = self.dynamo().scan_page(&op, &self.options().states, start).await?;
            all.extend(items.into_iter().filter(&wanted));
            match next {
                Some(key) => start = Some(key),
                None => return Ok(all),
            }
        }
    }
}

fn key_of(write: &Write) -> Item {
    match write {
        Write::PutNew { item, .. } | Write::Put { item, .. } | Write::PutIf { item, .. } => key_of_item(item),
        Write::Update { key, .. } | Write::DeleteIf { key, .. } | Write::Check { key, .. } | Write::CheckMissing { key, .. } => key.clone(),
    }
}

fn key_of_item(item: &Item) -> Item {
    item.iter().filter(|(name, _)| *name == HASH || *name == RANGE).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_heartbeat(item: &Item) -> bool {
    item.maybe_text(KIND).is_ok_and(|kind| kind == Some(STATUS))
}

/// Rows of the first releases have no kind.
fn is_state(item: &Item) -> bool {
    item.text(RANGE).is_ok_and(|sk| sk.starts_with("VERSION#"))
        && item.maybe_text(KIND).is_ok_and(|kind| kind.is_none_or(|kind| kind == STATE))
}
