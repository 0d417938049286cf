//! What changes beside the log: snapshots of streams, folded states, checkpoints. Each by compare-and-set in the side table.

use async_trait::async_trait;
use bytes::Bytes;

use super::Ledger;
use super::item::{HASH, key, pack, unpack};
use super::series::End;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, binary, number, size, text, wrong};
use crate::dynamo::{Freshness, ITEM_BYTES, Op, Outcome, Verdict, Write};
use crate::error::{Error, Refused, Result};
use crate::lease::{Lease, Leases};
use crate::position::{Checkpoint, Token};
use crate::state::{Checkpoints, Revision, State, States, check_key, check_name};

const BODY: &str = "d";
const PACKED: &str = "D";
const TOKEN: &str = "k";
const REVISION: &str = "r";
const VERSION: &str = "n";
const SLOT: &str = "e";
const STAMP: &str = "s";
const LANE: &str = "l";
const HOLDER: &str = "h";
const MARKS: &str = "m";

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

/// Leases of the namespace, or of the table.
#[derive(Debug, Clone)]
pub(crate) struct SideLeases {
    pub(crate) ledger: Ledger,
    /// The namespace; empty for the table.
    pub(crate) scope: String,
}

impl SideLeases {
    fn key(&self, name: &str) -> Result<Item> {
        check_name("lease", name)?;
        Ok(key(format!("z/{}/{name}", self.scope), 0))
    }
}

#[async_trait]
impl Leases for SideLeases {
    async fn load(&self, name: &str) -> Result<Option<Lease>> {
        let Some(item) = self.ledger.side_item(self.key(name)?).await? else { return Ok(None) };
        let lease =
            || Ok(Lease { holder: item.maybe_text(HOLDER)?.map(str::to_owned), beat: item.number(REVISION)?, marks: item.number(MARKS)? });
        lease().map(Some).map_err(|m| super::item::corrupt(&item, &m))
    }

    async fn save(&self, name: &str, lease: &Lease, expect: Option<&Lease>) -> Result<bool> {
        let mut item = self.key(name)?;
        if let Some(holder) = &lease.holder {
            item.insert(HOLDER.into(), text(holder));
        }
        item.insert(REVISION.into(), number(lease.beat));
        item.insert(MARKS.into(), number(lease.marks));
        // Beats are never used twice, so beat and marks tell everything.
        let (condition, values) = match expect {
            None => ("attribute_not_exists(#h)".to_owned(), Item::new()),
            Some(before) => (
                format!("{REVISION} = :r AND {MARKS} = :m"),
                Item::from([(":r".into(), number(before.beat)), (":m".into(), number(before.marks))]),
            ),
        };
        let op = self.ledger.dynamo().op();
        let mine = item.clone();
        let put = Write::PutIf { table: self.ledger.side().into(), item, condition, values };
        match self.ledger.dynamo().write(&op, HASH, vec![put]).await? {
            Outcome::Done => Ok(true),
            // Our own write, whose answer was lost. Two marks may look alike: then one of them stands for both, and is seen.
            Outcome::Failed { verdicts, doubt } => Ok(doubt && matches!(verdicts.first(), Some(Verdict::Found(found)) if **found == mine)),
        }
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
