//! What changes beside the log: snapshots of streams, folded states, checkpoints, cells. Each by compare-and-set in the side table.

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;

use super::Ledger;
use super::item::{HASH, RANGE, key, pack, unpack};
use super::series::End;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, binary, number, size, text, wrong};
use crate::dynamo::{Find, Freshness, ITEM_BYTES, Op, Outcome, Verdict, Write};
use crate::error::{Error, Refused, Result};
use crate::position::{Checkpoint, Token};
use crate::state::{Cell, CellKey, CellKind, Cells, Checkpoints, Revision, State, States, check_key, check_name};

const BODY: &str = "d";
const PACKED: &str = "D";
const TOKEN: &str = "k";
const REVISION: &str = "r";
const VERSION: &str = "n";
const SLOT: &str = "e";
const STAMP: &str = "s";
const LANE: &str = "l";

/// A snapshot of a stream: the state, the number of events folded, and the slot behind them.
#[derive(Debug, Clone)]
pub(super) struct StreamSnapshot {
    pub(super) name: String,
    pub(super) state: Bytes,
    pub(super) end: End,
}

impl Ledger {
    fn side_key(&self, kind: &str, name: &str, of: &str) -> Item {
        let namespace = self.namespace();
        key(if of.is_empty() { format!("{kind}/{namespace}/{name}") } else { format!("{kind}/{namespace}/{name}/{of}") }, 0)
    }

    /// The newest of a stream's snapshots with one of these names.
    pub(super) async fn newest_snapshot(&self, op: &Op, stream: &str, names: &[String]) -> Result<Option<StreamSnapshot>> {
        let mut newest: Option<StreamSnapshot> = None;
        for name in names {
            check_name("snapshot name", name)?;
            let Some(item) = self.dynamo().get(op, self.side(), self.side_key("s", name, stream), Freshness::Strong).await? else {
                continue;
            };
            let found = snapshot(name, &item).map_err(|m| super::item::corrupt(&item, &m))?;
            if newest.as_ref().is_none_or(|so_far| so_far.end.version < found.end.version) {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Stores a snapshot unless a newer one is there. The commit it goes with has landed: nothing here may fail it.
    pub(super) async fn save_snapshot(&self, op: &Op, stream: &str, name: &str, state: &[u8], end: End) -> Result<()> {
        let mut item = self.side_key("s", name, stream);
        item.insert(VERSION.into(), number(end.count));
        item.insert(SLOT.into(), number(end.version));
        item.insert(STAMP.into(), number(end.stamp));
        if let Some((lane, seq)) = end.lane {
            item.insert(LANE.into(), Value::L(vec![number(u64::from(lane)), number(seq)]));
        }
        put_body(&mut item, state)?;
        let condition = format!("attribute_not_exists(#h) OR {SLOT} < :e");
        let values = Item::from([(":e".into(), number(end.version))]);
        self.dynamo().write(op, HASH, vec![Write::PutIf { table: self.side().into(), item, condition, values }]).await?;
        Ok(())
    }

    /// Replaces an item whose revision is still the expected one; the new revision, or none where somebody else was first.
    async fn swap(&self, mut item: Item, expect: Option<Revision>) -> Result<Option<Revision>> {
        let op = self.dynamo().op();
        let next = expect.map_or(1, |revision| revision.0 + 1);
        item.insert(REVISION.into(), number(next));
        let (condition, values) = match expect {
            None => ("attribute_not_exists(#h)".to_owned(), Item::new()),
            Some(revision) => (format!("{REVISION} = :r"), Item::from([(":r".into(), number(revision.0))])),
        };
        let mine = item.clone();
        let outcome = self.dynamo().write(&op, HASH, vec![Write::PutIf { table: self.side().into(), item, condition, values }]).await?;
        match outcome {
            Outcome::Done => Ok(Some(Revision(next))),
            // Our own write, whose answer was lost, is there as we wrote it.
            Outcome::Failed { verdicts, doubt } => {
                let ours = doubt && matches!(verdicts.first(), Some(Verdict::Found(found)) if **found == mine);
                Ok(ours.then_some(Revision(next)))
            }
        }
    }

    fn cell_key(&self, at: &CellKey) -> Item {
        key(cells_hash(self.namespace(), at.kind(), at.name()), at.number())
    }

    async fn side_item(&self, key: Item) -> Result<Option<Item>> {
        let op = self.dynamo().op();
        self.dynamo().get(&op, self.side(), key, Freshness::Strong).await
    }
}

#[async_trait]
impl Checkpoints for Ledger {
    async fn load(&self, consumer: &str) -> Result<Option<(Checkpoint, Revision)>> {
        check_name("consumer", consumer)?;
        let Some(item) = self.side_item(self.side_key("k", consumer, "")).await? else { return Ok(None) };
        let (token, revision) = marked(&item, TOKEN).map_err(|m| super::item::corrupt(&item, &m))?;
        Ok(Some((token.parse()?, revision)))
    }

    async fn save(&self, consumer: &str, checkpoint: &Checkpoint, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("consumer", consumer)?;
        let mut item = self.side_key("k", consumer, "");
        item.insert(TOKEN.into(), text(checkpoint.to_string()));
        self.swap(item, expect).await
    }
}

#[async_trait]
impl States for Ledger {
    async fn load(&self, name: &str, key: &str) -> Result<Option<(State, Revision)>> {
        check_name("state name", name)?;
        check_key(key)?;
        let Some(item) = self.side_item(self.side_key("f", name, key)).await? else { return Ok(None) };
        let corrupt = |m: Malformed| super::item::corrupt(&item, &m);
        let (token, revision) = marked(&item, TOKEN).map_err(corrupt)?;
        let body = body(&item).map_err(corrupt)?;
        Ok(Some((State { body, token: token.parse::<Token>()? }, revision)))
    }

    async fn save(&self, name: &str, key: &str, state: &State, expect: Option<Revision>) -> Result<Option<Revision>> {
        check_name("state name", name)?;
        check_key(key)?;
        let mut item = self.side_key("f", name, key);
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
impl Cells for Ledger {
    async fn load(&self, at: &CellKey) -> Result<Option<Cell>> {
        let Some(item) = self.side_item(self.cell_key(at)).await? else { return Ok(None) };
        Ok(Some(cell(&item).map_err(|m| super::item::corrupt(&item, &m))?))
    }

    async fn save(&self, at: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        let mut item = self.cell_key(at);
        put_body(&mut item, body)?;
        self.swap(item, expect).await
    }

    async fn delete(&self, at: &CellKey, expect: Revision) -> Result<bool> {
        let op = self.dynamo().op();
        let values = Item::from([(":r".into(), number(expect.0))]);
        self.dynamo().delete_if(&op, self.side(), self.cell_key(at), format!("{REVISION} = :r"), values).await
    }

    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        check_name("name", name)?;
        let op = self.dynamo().long_op();
        let hash = (HASH, text(cells_hash(self.namespace(), kind, name)));
        let find = Find { table: self.side().into(), hash, range: None, reverse: false, limit: None, freshness: Freshness::Strong };
        let items = self.dynamo().items(&op, find);
        let cells = items.and_then(|item| async move { cell(&item).map_err(|m| super::item::corrupt(&item, &m)) });
        cells.try_collect().await
    }
}

fn marked<'a>(item: &'a Item, name: &str) -> Result<(&'a str, Revision), Malformed> {
    Ok((item.text(name)?, Revision(item.number(REVISION)?)))
}

/// Compressed where that helps; refused where it is still too large for one item.
fn put_body(item: &mut Item, state: &[u8]) -> Result<()> {
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

fn body(item: &Item) -> Result<Bytes, Malformed> {
    let bytes = item.bytes(BODY)?;
    match item.maybe_number(PACKED)? {
        None => Ok(Bytes::copy_from_slice(bytes)),
        Some(1) => unpack(bytes).ok_or_else(|| wrong(BODY, "zstd")),
        Some(_) => Err(wrong(PACKED, "an encoding that this release knows")),
    }
}

fn snapshot(name: &str, item: &Item) -> Result<StreamSnapshot, Malformed> {
    let lane = match item.maybe_list(LANE)? {
        Some([lane, seq]) => {
            let lane = as_number(lane).and_then(|l| u8::try_from(l).ok());
            lane.zip(as_number(seq))
        }
        _ => None,
    };
    let end = End { version: item.number(SLOT)?, count: item.number(VERSION)?, stamp: item.number(STAMP)?, lane };
    Ok(StreamSnapshot { name: name.into(), state: body(item)?, end })
}
