//! Our projections in Sekiban's rows: the cell of a version is a row of its projection-states table, and all other cells lie beside the log.
//!
//! A projection's cell is a line of JSON about the state, and the state. The line goes into an attribute of its own, the state into an envelope
//! as Sekiban makes it, and what both have a name for (the last event, how many) into Sekiban's attributes. The revision of the cell is the row's
//! generation and revision, so that Sekiban's state machine and ours are one: a state that Sekiban gives up is built anew here, and one that is
//! reset here is given up there.

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value as Json;

use super::Sekiban;
use super::item::{RANGE, corrupt};
use super::snapshot::Folded;
use super::states::{Control, MARK, ProjectionRow, RowWrite};
use super::suid::SortableId;
use crate::dynamo::item::{Attributes, Item, number};
use crate::dynamo::{Freshness, Write};
use crate::error::{Error, Refused, Result};
use crate::position::Position;
use crate::state::{Cell, CellKey, CellKind, CellWrite, Cells, Revision};

/// The cells of a store with Sekiban's tables.
#[derive(Debug, Clone)]
pub(crate) struct SekibanCells(pub(crate) Sekiban);

/// Bits of a cell's revision that are the row's own; the generation stands above them.
const OWN: u32 = 32;

fn revision(control: Control) -> Revision {
    Revision(control.generation << OWN | control.revision)
}
fn control(revision: Revision) -> Control {
    Control { generation: revision.0 >> OWN, revision: revision.0 & ((1 << OWN) - 1), tombstoned: false }
}

/// Exactly this generation and revision, given up or not. A missing attribute is 0.
fn as_known(control: Control) -> (String, Item) {
    let condition = match control.generation {
        0 => "revision = :r AND (generation = :g OR attribute_not_exists(generation))",
        _ => "revision = :r AND generation = :g",
    };
    (condition.into(), Item::from([(":g".into(), number(control.generation)), (":r".into(), number(control.revision))]))
}

/// The version whose state a cell is; pointers and leases are no rows.
fn version(key: &CellKey) -> Option<u32> {
    let number = u32::try_from(key.number()).ok().filter(|number| *number > 0)?;
    (key.kind() == CellKind::Projection).then_some(number)
}

/// A cell's body taken apart: what it says of the state, and the state. A body without such a line is a state alone.
fn parts(body: &Bytes) -> (&str, Bytes) {
    let end = body.iter().position(|byte| *byte == b'\n');
    let line = end.and_then(|end| std::str::from_utf8(&body[..end]).ok()).filter(|line| line.starts_with('{'));
    line.map_or_else(|| ("", body.clone()), |line| (line, body.slice(line.len() + 1..)))
}

impl SekibanCells {
    async fn cell(&self, number: u32, item: &Item) -> Result<Option<Cell>> {
        let Some(mark) = item.maybe_text(MARK).map_err(|malformed| corrupt(item, &malformed))? else { return Ok(None) };
        let row = ProjectionRow::of_item(item)?;
        let gone = |mark: &str| matches!(about(mark)["state"].as_str(), Some("reset" | "deleted"));
        let body = if row.control.tombstoned && !gone(mark) {
            // Sekiban gave it up.
            Bytes::from(format!("{{\"generation\":{},\"state\":\"reset\"}}\n", about(mark)["generation"].as_u64().unwrap_or(0) + 1))
        } else {
            let state = self.0.state_of(&row).await?.unwrap_or_default();
            if mark.is_empty() { state } else { [mark.as_bytes(), b"\n", &state].concat().into() }
        };
        Ok(Some(Cell { number: number.into(), body, revision: revision(row.control) }))
    }

    fn row_key(&self, key: &CellKey, version: u32) -> Item {
        self.0.state_key(key.name(), &version.to_string())
    }
}

fn about(mark: &str) -> Json {
    serde_json::from_str(mark).unwrap_or(Json::Null)
}

#[async_trait]
impl Cells for SekibanCells {
    async fn load(&self, key: &CellKey) -> Result<Option<Cell>> {
        let Some(version) = version(key) else { return Cells::load(self.0.side(), key).await };
        let op = self.0.dynamo().op();
        let look = || self.0.dynamo().get(&op, &self.0.options().states, self.row_key(key, version), Freshness::Strong);
        let Some(mut item) = look().await? else { return Ok(None) };
        let cell = loop {
            match self.cell(version, &item).await {
                // Between the row and its blob another row may have taken its place, and the blob been collected: then that one is read.
                Err(error @ Error::Corrupt(_)) => match look().await? {
                    Some(now) if now != item => item = now,
                    _ => return Err(error),
                },
                cell => break cell?,
            }
        };
        // Its state is of Sekiban's own projector: nothing here can go on from it, and nothing may write over it.
        let sekibans = || Refused::Unsupported {
            what: format!("the state of {} version {version}, which Sekiban built", key.name()),
            remedy: "give the projection another name or version, or delete the row".into(),
        };
        Ok(Some(cell.ok_or_else(sekibans)?))
    }

    async fn save(&self, key: &CellKey, body: &Bytes, expect: Option<Revision>) -> Result<Option<Revision>> {
        let Some(version) = version(key) else { return Cells::save(self.0.side(), key, body, expect).await };
        let (mark, state) = parts(body);
        let about = about(mark);
        let given_up = matches!(about["state"].as_str(), Some("reset" | "deleted"));
        let position = serde_json::from_value::<Option<Position>>(about["position"].clone()).ok().flatten();
        let folded = Folded {
            projector: key.name().into(),
            version: version.to_string(),
            payload_type: key.name().into(),
            last: position.as_ref().and_then(SortableId::of),
            events: about["events"].as_u64().unwrap_or(0),
            caught_up: about["caught_up"].as_bool().unwrap_or(false),
        };
        let known = expect.map(control);
        let to = match known {
            None => Control { generation: 0, revision: 1, tombstoned: given_up },
            Some(known) => {
                Control { generation: known.generation + u64::from(given_up), revision: known.revision + 1, tombstoned: given_up }
            }
        };
        let (condition, values) = known.map_or_else(|| ("attribute_not_exists(#h)".into(), Item::new()), as_known);
        let item = self.0.row_item(&self.0.row_of(&folded, &state)?, to, Some(mark)).await?;
        let write = Write::PutIf { table: self.0.options().states.clone(), item, condition, values };
        match self.0.settle(write, to).await? {
            RowWrite::Committed(control) => Ok(Some(revision(control))),
            RowWrite::Rejected(_) => Ok(None),
        }
    }

    async fn delete(&self, key: &CellKey, expect: Revision) -> Result<bool> {
        let Some(version) = version(key) else { return Cells::delete(self.0.side(), key, expect).await };
        let (condition, values) = as_known(control(expect));
        self.0.delete_state(self.row_key(key, version), condition, values).await
    }

    async fn write_all(&self, writes: &[CellWrite]) -> Result<bool> {
        if writes.iter().any(|write| version(write.key()).is_some()) {
            let what = "a projection's state written together with another cell".into();
            return Err(Refused::Unsupported { what, remedy: "its row is Sekiban's: save it by itself".into() }.into());
        }
        Cells::write_all(self.0.side(), writes).await
    }

    async fn list(&self, kind: CellKind, name: &str) -> Result<Vec<Cell>> {
        let mut cells = Cells::list(self.0.side(), kind, name).await?;
        if kind == CellKind::Projection {
            for item in self.0.partition(name).await? {
                let version = item.text(RANGE).ok().and_then(|sk| sk.strip_prefix("VERSION#")?.parse().ok());
                if let Some(version) = version {
                    cells.extend(self.cell(version, &item).await?);
                }
            }
            cells.sort_by_key(|cell| cell.number);
        }
        Ok(cells)
    }
}
