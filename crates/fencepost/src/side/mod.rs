//! The side table: what lies beside a log in ledger form, whatever the log's layout. Checkpoints, folded states and cells, each by
//! compare-and-set; and the chain of epochs, the index of a feed that is built from a stream.

pub(crate) mod began;
#[cfg(feature = "streams")]
pub(crate) mod chain;
#[cfg(feature = "streams")]
pub(crate) mod epoch;
pub(crate) mod item;
#[cfg(feature = "streams")]
pub(crate) mod notice;
pub(crate) mod once;
pub(crate) mod reached;
#[cfg(feature = "streams")]
pub(crate) mod scan;
pub(crate) mod series;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use tokio::sync::watch;

use self::item::{HASH, RANGE, corrupt, key, pack, unpack};
use crate::dynamo::item::{Attributes, Item, Malformed, binary, number, size, text, wrong};
use crate::dynamo::table::{KeyKind, KeySpec, StreamSpec, TableOptions, TableSpec};
use crate::dynamo::{Dynamo, Find, Freshness, ITEM_BYTES, Op, Outcome, Terms, Verdict, Write};
use crate::error::{Error, Reason, Refused, Result};
use crate::position::{Checkpoint, Token};
use crate::state::{Cell, CellKey, CellKind, CellWrite, Cells, Checkpoints, Revision, State, States, check_key, check_name};

const BODY: &str = "d";
const PACKED: &str = "D";
const TOKEN: &str = "k";
const REVISION: &str = "r";

/// When a side table is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// With the other tables of its layout: one that is missing is an error.
    WithTheLog,
    /// By the first write to it: reading one that is missing finds nothing.
    WhenNeeded,
}

/// A namespace's part of a side table. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Side(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dynamo: Dynamo,
    table: String,
    namespace: String,
    made: Made,
    bell: watch::Sender<()>,
}

/// Its definition.
pub(crate) fn spec(table: &str) -> TableSpec {
    TableSpec {
        name: table.into(),
        hash: KeySpec { name: HASH.into(), kind: KeyKind::S },
        range: Some(KeySpec { name: RANGE.into(), kind: KeyKind::N }),
        indexes: Vec::new(),
        stream: StreamSpec::Never,
        ttl: None,
    }
}

impl Side {
    pub(crate) fn new(dynamo: Dynamo, table: impl Into<String>, namespace: impl Into<String>, made: Made) -> Self {
        Self(Arc::new(Inner { dynamo, table: table.into(), namespace: namespace.into(), made, bell: watch::Sender::new(()) }))
    }

    pub(crate) fn dynamo(&self) -> &Dynamo {
        &self.0.dynamo
    }
    pub(crate) fn table(&self) -> &str {
        &self.0.table
    }
    pub(crate) fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Rings whenever something was appended or indexed through this instance; what others do does not ring.
    pub(crate) fn rings(&self) -> watch::Receiver<()> {
        self.0.bell.subscribe()
    }
    pub(crate) fn ring(&self) {
        self.0.bell.send_replace(());
    }

    /// The key of what has this name, and perhaps belongs to something.
    pub(crate) fn key(&self, kind: &str, name: &str, of: &str) -> Item {
        let namespace = self.namespace();
        key(if of.is_empty() { format!("{kind}/{namespace}/{name}") } else { format!("{kind}/{namespace}/{name}/{of}") }, 0)
    }

    pub(crate) async fn get(&self, op: &Op, key: Item) -> Result<Option<Item>> {
        let found = self.dynamo().get(op, self.table(), key, Freshness::Strong).await;
        if self.is_not_made(&found) { Ok(None) } else { found }
    }

    /// One write.
    pub(crate) async fn put(&self, op: &Op, write: Write) -> Result<Outcome> {
        self.put_all(op, vec![write]).await
    }

    /// All of them or none.
    async fn put_all(&self, op: &Op, writes: Vec<Write>) -> Result<Outcome> {
        let outcome = self.dynamo().write(op, HASH, writes.clone()).await.map_err(Error::from);
        if !self.is_not_made(&outcome) {
            return outcome;
        }
        self.make().await?;
        Ok(self.dynamo().write(op, HASH, writes).await?)
    }

    /// Makes the table, unless it is there.
    pub(crate) async fn make(&self) -> Result<()> {
        self.dynamo().create_table(&self.dynamo().long_op(), &spec(self.table()), &TableOptions::default()).await?;
        Ok(())
    }

    fn is_not_made<T>(&self, result: &Result<T>) -> bool {
        self.0.made == Made::WhenNeeded && matches!(result, Err(Error::Unavailable(u)) if u.reason == Reason::Missing)
    }

    /// Replaces an item whose revision is still the expected one; the new revision, or none where somebody else was first.
    async fn swap(&self, item: Item, expect: Option<Revision>) -> Result<Option<Revision>> {
        let op = self.dynamo().op();
        let (mine, write) = self.over(item, expect);
        let outcome = self.put(&op, write).await?;
        Ok(is_done(&outcome, &mine).then_some(next(expect)))
    }

    /// The item as the next revision, and its put over the expected one.
    fn over(&self, mut item: Item, expect: Option<Revision>) -> (Item, Write) {
        item.insert(REVISION.into(), number(next(expect).0));
        let (condition, values) = match expect {
            None => ("attribute_not_exists(#h)".to_owned(), Item::new()),
            Some(revision) => (format!("{REVISION} = :r"), Item::from([(":r".into(), number(revision.0))])),
        };
        (item.clone(), Write::PutIf { table: self.table().into(), item, condition, values })
    }

    fn cell_key(&self, at: &CellKey) -> Item {
        key(cells_hash(self.namespace(), at.kind(), at.name()), at.number())
    }
}

fn next(expect: Option<Revision>) -> Revision {
    Revision(expect.map_or(1, |revision| revision.0 + 1))
}

/// Whether it was written. Our own write, whose answer was lost, is there as we wrote it: of several, the first tells.
fn is_done(outcome: &Outcome, mine: &Item) -> bool {
    match outcome {
        Outcome::Done => true,
        Outcome::Failed { verdicts, doubt } => *doubt && matches!(verdicts.first(), Some(Verdict::Found(found)) if **found == *mine),
    }
}

#[async_trait]
impl Checkpoints for Side {
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>> {
        check_name("consumer", consumer)?;
        let Some(item) = self.get(&self.dynamo().op(), self.key("k", consumer, "")).await? else { return Ok(None) };
        let (token, revision) = marked(&item, TOKEN).map_err(|m| corrupt(&item, &m))?;
        Ok(Some((token.parse()?, revision)))
    }

    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("consumer", consumer)?;
        let mut item = self.key("k", consumer, "");
        item.insert(TOKEN.into(), text(checkpoint.to_string()));
        self.swap(item, expect).await
    }
}

#[async_trait]
impl States for Side {
    async fn load(&self, name: &str, key: &str) -> Result<Option<(State, Revision)>> {
        check_name("state name", name)?;
        check_key(key)?;
        let Some(item) = self.get(&self.dynamo().op(), self.key("f", name, key)).await? else { return Ok(None) };
        let corrupt = |m: Malformed| corrupt(&item, &m);
        let (token, revision) = marked(&item, TOKEN).map_err(corrupt)?;
        let body = body(&item).map_err(corrupt)?;
        Ok(Some((State { body, token: token.parse::<Token>()? }, revision)))
    }

    async fn save(&self, name: &str, key: &str, state: &State, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("state name", name)?;
        check_key(key)?;
        let mut item = self.key("f", name, key);
        item.insert(TOKEN.into(), text(state.token.to_string()));
        put_body(&mut item, &state.body)?;
        self.swap(item, expect).await
    }
}

/// Where the cells of a kind and a name lie; their number is the range key.
fn cells_hash(namespace: &str, kind: CellKind, name: &str) -> String {
    let letter = match kind {
        CellKind::Lease => "z",
        CellKind::Parked => "q",
        CellKind::Projection => "j",
        CellKind::Names => "w",
    };
    format!("{letter}/{namespace}/{name}")
}

fn cell(item: &Item) -> Result<Cell, Malformed> {
    Ok(Cell { number: item.number(RANGE)?, body: body(item)?, revision: Revision(item.number(REVISION)?) })
}

#[async_trait]
impl Cells for Side {
    async fn load(&self, at: &CellKey) -> Result<Option<Cell>> {
        let Some(item) = self.get(&self.dynamo().op(), self.cell_key(at)).await? else { return Ok(None) };
        Ok(Some(cell(&item).map_err(|m| corrupt(&item, &m))?))
    }

    async fn save(&self, at: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        let mut item = self.cell_key(at);
        put_body(&mut item, body)?;
        self.swap(item, expect).await
    }

    async fn delete(&self, at: &CellKey, expect: Revision) -> Result<bool> {
        let op = self.dynamo().op();
        let values = Item::from([(":r".into(), number(expect.0))]);
        let gone =
            self.dynamo().delete_if(&op, self.table(), self.cell_key(at), format!("{REVISION} = :r"), values).await.map_err(Error::from);
        if self.is_not_made(&gone) { Ok(false) } else { gone }
    }

    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        let (mut first, mut all) = (None, Vec::new());
        for write in writes {
            let key = self.cell_key(write.key());
            all.push(match write {
                CellWrite::Save { body, expect, .. } => {
                    let mut item = key;
                    put_body(&mut item, body)?;
                    let (mine, write) = self.over(item, *expect);
                    first.get_or_insert(mine);
                    write
                }
                CellWrite::Delete { expect, .. } => {
                    let condition = Terms::when(format!("{REVISION} = :r")).value(":r", number(expect.0));
                    Write::DeleteIf { table: self.table().into(), key, condition }
                }
            });
        }
        let outcome = self.put_all(&self.dynamo().op(), all).await?;
        Ok(is_done(&outcome, &first.unwrap_or_default()))
    }

    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        check_name("name", name)?;
        let op = self.dynamo().long_op();
        let find = Find::new(self.table(), HASH, text(cells_hash(self.namespace(), kind, name)));
        let items = self.dynamo().items(&op, find);
        let cells = items.and_then(|item| async move { cell(&item).map_err(|m| corrupt(&item, &m)) });
        let cells = cells.try_collect().await;
        if self.is_not_made(&cells) { Ok(Vec::new()) } else { cells }
    }
}

fn marked<'a>(item: &'a Item, name: &str) -> Result<(&'a str, Revision), Malformed> {
    Ok((item.text(name)?, Revision(item.number(REVISION)?)))
}

/// Compressed where that helps; refused where it is still too large for one item.
pub(crate) fn put_body(item: &mut Item, state: &[u8]) -> Result<()> {
    let packed = pack(state);
    if packed.len() + 8 < state.len() {
        item.insert(BODY.into(), binary(packed));
        item.insert(PACKED.into(), number(1));
    } else {
        item.insert(BODY.into(), binary(state));
    }
    let bytes = size(item);
    if bytes > ITEM_BYTES - 1024 {
        return Err(Error::from(Refused::TooLong { what: "state", bytes, limit: ITEM_BYTES - 1024 }));
    }
    Ok(())
}

pub(crate) fn body(item: &Item) -> Result<Bytes, Malformed> {
    let bytes = item.bytes(BODY)?;
    match item.maybe_number(PACKED)? {
        None => Ok(Bytes::copy_from_slice(bytes)),
        Some(1) => unpack(bytes).ok_or_else(|| wrong(BODY, "zstd")),
        Some(_) => Err(wrong(PACKED, "an encoding that this release knows")),
    }
}
