//! Snapshots of streams, in the side table.

use bytes::Bytes;

use super::Ledger;
use super::series::End;
use crate::dynamo::item::{Attributes, Item, Malformed, Value, as_number, number};
use crate::dynamo::{Op, Write};
use crate::error::Result;
use crate::side::item::corrupt;
use crate::side::{body, put_body};
use crate::state::check_name;

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
    /// The newest of a stream's snapshots with one of these names.
    pub(super) async fn newest_snapshot(&self, op: &Op, stream: &str, names: &[String]) -> Result<Option<StreamSnapshot>> {
        let mut newest: Option<StreamSnapshot> = None;
        for name in names {
            check_name("snapshot name", name)?;
            let Some(item) = self.side().get(op, self.side().key("s", name, stream)).await? else {
                continue;
            };
            let found = snapshot(name, &item).map_err(|m| corrupt(&item, &m))?;
            if newest.as_ref().is_none_or(|so_far| so_far.end.version < found.end.version) {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Stores a snapshot unless a newer one is there. The commit it goes with has landed: nothing here may fail it.
    pub(super) async fn save_snapshot(&self, op: &Op, stream: &str, name: &str, state: &[u8], end: End) -> Result<()> {
        let mut item = self.side().key("s", name, stream);
        item.insert(VERSION.into(), number(end.count));
        item.insert(SLOT.into(), number(end.version));
        item.insert(STAMP.into(), number(end.stamp));
        if let Some((lane, seq)) = end.lane {
            item.insert(LANE.into(), Value::L(vec![number(u64::from(lane)), number(seq)]));
        }
        put_body(&mut item, state)?;
        let condition = format!("attribute_not_exists(#h) OR {SLOT} < :e");
        let values = Item::from([(":e".into(), number(end.version))]);
        self.side().put(op, Write::PutIf { table: self.side().table().into(), item, condition, values }).await?;
        Ok(())
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
