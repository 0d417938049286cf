//! How far the scan of a rebuild has come, in the side table: what was known when it began, and pieces of what it found. One for the table.
//!
//! Pieces are put and never changed, each under a number that nobody else has, and only after those before it of the same run. So whoever
//! finds a piece finds all that its part held up to the piece's end, whoever else puts pieces of the same scan meanwhile, and any of
//! the pieces of a part tells where to go on. What began the scan is taken away before its pieces are, so that none is found without the others.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Side;
use super::item::{HASH, RANGE, corrupt, key};
use crate::dynamo::item::{Attributes, Item, Malformed, Value, binary, number, text, wrong};
use crate::dynamo::{Find, Key, Op, Outcome, Range, Verdict, Write};
use crate::error::{Error, Result};

/// The hash key of all of it; what began it is under the number 0.
const SCAN: &str = "b";
/// The highest number there can be.
const LAST: u64 = u64::MAX >> 1;

const ID: &str = "i";
const BEGAN: &str = "s";
const PARTS: &str = "t";
const INCARNATION: &str = "n";
const STREAM: &str = "a";
const GONE: &str = "h";
const GAP: &str = "g";
const PART: &str = "t";
const ITEMS: &str = "n";
const KEY: &str = "k";
const END: &str = "f";
const FOUND: &str = "d";

/// What was known when the first run of a rebuild began: all its runs go by that, as if they were one that took long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) id: Uuid,
    /// Microseconds since 1970.
    pub(crate) began: u64,
    /// Into so many parts the table is cut.
    pub(crate) parts: u32,
    pub(crate) incarnation: u64,
    /// The table's stream, where it could be asked.
    pub(crate) stream: Option<String>,
    /// Shards that the chain named and the stream did not know any more.
    pub(crate) gone: BTreeSet<String>,
    /// When it had been found that records were trimmed before they were read.
    pub(crate) gap: Option<u64>,
}

/// How far a part was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reached {
    Behind(Key),
    End,
}

/// What was found in a run of pages of one part.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) scan: Uuid,
    pub(crate) part: u32,
    /// Items of the part that were read up to here.
    pub(crate) items: u64,
    /// None: more of the same pages is in the next piece.
    pub(crate) reached: Option<Reached>,
    pub(crate) found: Vec<u8>,
}

impl Begun {
    fn item(&self) -> Item {
        let mut item = key(SCAN.into(), 0);
        item.insert(ID.into(), binary(self.id.as_bytes().to_vec()));
        item.insert(BEGAN.into(), number(self.began));
        item.insert(PARTS.into(), number(u64::from(self.parts)));
        item.insert(INCARNATION.into(), number(self.incarnation));
        item.insert(GONE.into(), Value::L(self.gone.iter().map(text).collect()));
        item.extend(self.stream.iter().map(|stream| (STREAM.to_owned(), text(stream))));
        item.extend(self.gap.map(|gap| (GAP.to_owned(), number(gap))));
        item
    }

    fn of_item(item: &Item) -> Result<Self, Malformed> {
        let gone = item.value(GONE).and_then(|gone| gone.as_l().ok());
        let gone = gone.and_then(|gone| gone.iter().map(|id| id.as_s().ok().cloned()).collect::<Option<_>>());
        Ok(Self {
            id: id(item)?,
            began: item.number(BEGAN)?,
            parts: part(item)?,
            incarnation: item.number(INCARNATION)?,
            stream: item.maybe_text(STREAM)?.map(str::to_owned),
            gone: gone.ok_or_else(|| wrong(GONE, "a list of shards"))?,
            gap: item.maybe_number(GAP)?,
        })
    }
}

impl Piece {
    fn item(&self, under: u64) -> Item {
        let mut item = key(SCAN.into(), under);
        item.insert(ID.into(), binary(self.scan.as_bytes().to_vec()));
        item.insert(PART.into(), number(u64::from(self.part)));
        item.insert(ITEMS.into(), number(self.items));
        item.insert(FOUND.into(), binary(self.found.clone()));
        item.extend(self.reached.as_ref().map(|reached| match reached {
            Reached::Behind(key) => (KEY.to_owned(), Value::M(key.clone())),
            Reached::End => (END.to_owned(), Value::Bool(true)),
        }));
        item
    }

    fn of_item(item: &Item) -> Result<Self, Malformed> {
        let reached = match item.maybe_map(KEY)? {
            Some(key) => Some(Reached::Behind(key.clone())),
            None => item.value(END).map(|_| Reached::End),
        };
        Ok(Self { scan: id(item)?, part: part(item)?, items: item.number(ITEMS)?, reached, found: item.bytes(FOUND)?.to_vec() })
    }
}

fn id(item: &Item) -> Result<Uuid, Malformed> {
    Uuid::from_slice(item.bytes(ID)?).map_err(|_| wrong(ID, "an id"))
}

fn part(item: &Item) -> Result<u32, Malformed> {
    u32::try_from(item.number(PART)?).map_err(|_| wrong(PART, "a part"))
}

impl Side {
    /// What began the scan that is not done.
    pub(crate) async fn scan_begun(&self, op: &Op) -> Result<Option<Begun>> {
        let found = self.get(op, key(SCAN.into(), 0)).await?;
        found.map(|item| Begun::of_item(&item).map_err(|m| corrupt(&item, &m))).transpose()
    }

    /// Says what begins a scan, where there is none or this other one; whether it is said.
    pub(crate) async fn begin_scan(&self, op: &Op, begun: &Begun, instead_of: Option<Uuid>) -> Result<bool> {
        let (table, item) = (self.table().into(), begun.item());
        let write = match instead_of {
            None => Write::PutNew { table, item: item.clone() },
            Some(other) => {
                let values = Item::from([(":i".into(), binary(other.as_bytes().to_vec()))]);
                Write::PutIf { table, item: item.clone(), condition: format!("attribute_not_exists(#h) OR {ID} = :i"), values }
            }
        };
        // Our own put, whose answer was lost, is there as we put it.
        Ok(match self.put(op, write).await? {
            Outcome::Done => true,
            Outcome::Failed { verdicts, .. } => matches!(verdicts.first(), Some(Verdict::Found(there)) if **there == item),
        })
    }

    /// Every piece that is there, of any scan, and its number.
    pub(crate) async fn pieces(&self, op: &Op) -> Result<Vec<(u64, Piece)>> {
        let find = Find::new(self.table(), HASH, text(SCAN)).range(Range::numbers(RANGE, 1, LAST));
        let (mut pieces, mut start) = (Vec::new(), None);
        loop {
            let page = self.dynamo().page(op, &find, start).await;
            if self.is_not_made(&page) {
                return Ok(Vec::new());
            }
            let (items, next) = page?;
            for item in &items {
                let piece = || Ok((item.number(RANGE)?, Piece::of_item(item)?));
                pieces.push(piece().map_err(|m: Malformed| corrupt(item, &m))?);
            }
            start = next;
            if start.is_none() {
                return Ok(pieces);
            }
        }
    }

    /// Puts a piece under a number of its own, which is told.
    pub(crate) async fn put_piece(&self, op: &Op, piece: &Piece) -> Result<u64> {
        loop {
            let random = self.dynamo().env().new_id().as_u64_pair().1;
            let under = (random & LAST).max(1);
            let item = piece.item(under);
            match self.put(op, Write::PutNew { table: self.table().into(), item: item.clone() }).await? {
                Outcome::Done => return Ok(under),
                Outcome::Failed { verdicts, .. } if matches!(verdicts.first(), Some(Verdict::Found(there)) if **there == item) => {
                    return Ok(under);
                }
                Outcome::Failed { .. } => {}
            }
        }
    }

    pub(crate) async fn delete_pieces(&self, op: &Op, numbers: &[u64]) -> Result<()> {
        for under in numbers {
            self.dynamo().delete(op, self.table(), key(SCAN.into(), *under)).await?;
        }
        Ok(())
    }

    /// Takes a scan away that is done: whoever begins after this begins anew.
    pub(crate) async fn end_scan(&self, op: &Op, scan: Uuid) -> Result<()> {
        let values = Item::from([(":i".into(), binary(scan.as_bytes().to_vec()))]);
        let at = key(SCAN.into(), 0);
        self.dynamo().delete_if(op, self.table(), at, format!("{ID} = :i"), values).await.map_err(Error::from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_a_scan_and_what_it_found_are_read_as_they_were_written() {
        let id = Uuid::from_u128(7);
        let bare = Begun { id, began: 9, parts: 4, incarnation: 0, stream: None, gone: BTreeSet::new(), gap: None };
        let full =
            Begun { incarnation: 2, stream: Some("arn".into()), gone: ["a".into(), "b".into()].into(), gap: Some(5), ..bare.clone() };
        for begun in [bare, full] {
            assert_eq!(Begun::of_item(&begun.item()).expect("reads"), begun);
        }
        for reached in [None, Some(Reached::End), Some(Reached::Behind(key("t/main/a".into(), 3)))] {
            let piece = Piece { scan: id, part: 3, items: 11, reached, found: vec![1, 2] };
            assert_eq!(Piece::of_item(&piece.item(1)).expect("reads"), piece);
        }
    }
}
