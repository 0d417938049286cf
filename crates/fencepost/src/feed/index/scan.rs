//! The scan of a rebuild: of a whole table, in parts at once. How far it is and what it found is saved now and then, so that one which was
//! stopped is gone on with.
//!
//! A scan that is gone on with is a scan that took long: all that must be known from before it is what its first run knew ([`Begun`]), and all
//! that must be known from after it is learnt after its last. What was written behind it meanwhile is as young as its first run's beginning.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shards::FORGETS;
use crate::dynamo::Op;
use crate::dynamo::item::Item;
use crate::error::{Error, Result};
use crate::side::Side;
use crate::side::epoch::EPOCH_BYTES;
use crate::side::item::{pack, unpack};
use crate::side::scan::{Begun, Piece, Reached};

/// Requests of a scan at a time.
pub(super) const PARTS: u32 = 4;

/// How a scan reads and saves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Items a page; none: as much as a page holds, 1 MB.
    pub(super) items: Option<i32>,
    /// How far a part is, is saved after so many of its pages.
    pub(super) pages: u32,
}

impl Default for Pace {
    // Some 16 MB of a part, which cost over 2,000 read units, for a write unit or two if nothing was found.
    fn default() -> Self {
        Self { items: None, pages: 16 }
    }
}

/// Where an earlier run's scan stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// Items that were read by it.
    pub(super) items: u64,
    /// Why what it has saved is of no use.
    pub(super) dropped: Option<String>,
}

/// One part of the table.
#[derive(Debug)]
struct Part<F> {
    items: u64,
    reached: Option<Reached>,
    /// Pages and what was found since it was last saved.
    pages: u32,
    unsaved: Vec<F>,
}

/// Whether how far it is can be gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saved {
    /// Nothing is, and there is nothing or what is of no use.
    NotYet(Option<uuid::Uuid>),
    Begun,
    /// Somebody else's is there, or it cannot be written.
    Never,
}

/// A scan, begun or gone on with.
#[derive(Debug)]
pub(super) struct Scan<'a, F> {
    side: &'a Side,
    op: &'a Op,
    table: &'a str,
    pace: Pace,
    pub(super) begun: Begun,
    pub(super) earlier: Earlier,
    parts: BTreeMap<u32, Part<F>>,
    found: Vec<F>,
    saved: Saved,
    pieces: Vec<u64>,
}

impl<'a, F: Serialize + DeserializeOwned> Scan<'a, F> {
    /// Goes on with the scan that was stopped, if there is one that is still good; else begins one by what is known now.
    pub(super) async fn open(side: &'a Side, op: &'a Op, table: &'a str, pace: Pace, fresh: Begun) -> Result<Self> {
        let mut scan = Self {
            side,
            op,
            table,
            pace,
            earlier: Earlier::default(),
            parts: (0..fresh.parts).map(|part| (part, Part { items: 0, reached: None, pages: 0, unsaved: Vec::new() })).collect(),
            begun: fresh,
            found: Vec::new(),
            saved: Saved::NotYet(None),
            pieces: Vec::new(),
        };
        // What cannot be read is of no use either: the table itself tells everything. Pieces first: one that is there was put after its scan was
        // begun, so that the scan of each is found if it is not done; in the other order that of another who begins now would look left over.
        let pieces = match side.pieces(op).await {
            Err(Error::Corrupt(_)) => Vec::new(),
            pieces => pieces?,
        };
        let there = match side.scan_begun(op).await {
            Err(Error::Corrupt(_)) => None,
            there => there?,
        };
        let (own, others): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|(_, piece)| there.as_ref().is_some_and(|b| b.id == piece.scan));
        let others: Vec<u64> = others.into_iter().map(|(under, _)| under).collect();
        if let Some(there) = there {
            let list = |(_, piece): &(u64, Piece)| postcard::from_bytes(&unpack(&piece.found)?).ok();
            let found: Option<Vec<Vec<F>>> = own.iter().map(list).collect();
            scan.pieces = own.iter().map(|(under, _)| *under).collect();
            match (useless(&there, &scan.begun), found) {
                (None, Some(found)) => scan.resume(there, own, found),
                (why, _) => {
                    let why = why.unwrap_or("it cannot be read");
                    tracing::warn!(why, began = there.began, "what a rebuild that was stopped had read is of no use: the scan begins anew");
                    scan.earlier.dropped = Some(why.into());
                    scan.saved = Saved::NotYet(Some(there.id));
                }
            }
        }
        // Left by those who were stopped while they took their own away.
        if let Err(error) = side.delete_pieces(op, &others).await {
            tracing::warn!(%error, "what is left of an earlier rebuild cannot be taken away");
        }
        Ok(scan)
    }

    fn resume(&mut self, there: Begun, pieces: Vec<(u64, Piece)>, found: Vec<Vec<F>>) {
        self.begun = there;
        self.saved = Saved::Begun;
        self.found = found.into_iter().flatten().collect();
        for (_, piece) in pieces {
            let Some(part) = self.parts.get_mut(&piece.part) else { continue };
            if piece.reached.is_some() && (part.reached.is_none() || piece.items > part.items || piece.reached == Some(Reached::End)) {
                (part.items, part.reached) = (piece.items, piece.reached);
            }
        }
        self.earlier.items = self.items();
    }

    /// Items that were read, by earlier runs as well.
    pub(super) fn items(&self) -> u64 {
        self.parts.values().map(|part| part.items).sum()
    }

    /// Reads what is left: `look` says what of a page is worth keeping, and `tell` hears how many items were read and things found.
    pub(super) async fn run(&mut self, mut look: impl FnMut(&[Item]) -> Vec<F>, tell: impl Fn(u64, u64)) -> Result<()> {
        let left = self.parts.iter().filter_map(|(number, part)| match &part.reached {
            None => Some((*number, None)),
            Some(Reached::Behind(key)) => Some((*number, Some(key.clone()))),
            Some(Reached::End) => None,
        });
        let left: Vec<_> = left.collect();
        let dynamo = self.side.dynamo();
        let mut pages = dynamo.scan_from(self.op, self.table, self.begun.parts, left, self.pace.items);
        while let Some(page) = pages.try_next().await? {
            let found = look(&page.items);
            let Some(part) = self.parts.get_mut(&page.part) else { continue };
            part.items += page.items.len() as u64;
            part.pages += 1;
            part.unsaved.extend(found);
            part.reached = Some(page.after.map_or(Reached::End, Reached::Behind));
            let ended = part.reached == Some(Reached::End);
            if part.pages >= self.pace.pages || (ended && self.saved == Saved::Begun) {
                self.save(page.part).await?;
            }
            let unsaved: usize = self.parts.values().map(|part| part.unsaved.len()).sum();
            tell(self.items(), (self.found.len() + unsaved) as u64);
        }
        Ok(())
    }

    /// Saves how far a part is, and what was found there. Where that is not possible, the scan goes on all the same.
    async fn save(&mut self, number: u32) -> Result<()> {
        let Some(part) = self.parts.get_mut(&number) else { return Ok(()) };
        let found = std::mem::take(&mut part.unsaved);
        part.pages = 0;
        let (items, reached) = (part.items, part.reached.clone());
        if self.saved != Saved::Never {
            match self.put(number, items, reached, &found).await {
                Ok(saved) => self.saved = saved,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "how far the rebuild is cannot be saved: if it is stopped, the next one begins anew");
                    self.saved = Saved::Never;
                }
            }
        }
        self.found.extend(found);
        Ok(())
    }

    async fn put(&mut self, part: u32, items: u64, reached: Option<Reached>, found: &[F]) -> Result<Saved> {
        let mut packed = Vec::new();
        if !split(found, &mut packed) {
            return Ok(Saved::Never);
        }
        if let Saved::NotYet(instead_of) = self.saved
            && !self.side.begin_scan(self.op, &self.begun, instead_of).await?
        {
            return Ok(Saved::Never);
        }
        let last = packed.pop().unwrap_or_default();
        let scan = self.begun.id;
        let piece = |found, reached| Piece { scan, part, items, reached, found };
        for piece in packed.into_iter().map(|found| piece(found, None)).chain([piece(last, reached)]) {
            self.pieces.push(self.side.put_piece(self.op, &piece).await?);
        }
        Ok(Saved::Begun)
    }

    /// What was found, by earlier runs as well, perhaps twice.
    pub(super) fn take(&mut self) -> Vec<F> {
        let mut found = std::mem::take(&mut self.found);
        for part in self.parts.values_mut() {
            found.append(&mut part.unsaved);
        }
        found
    }

    /// Takes away what was saved: all that was found is in the index.
    pub(super) async fn finish(self) {
        let finished = async {
            match self.saved {
                Saved::NotYet(Some(other)) => self.side.end_scan(self.op, other).await?,
                _ if !self.pieces.is_empty() || self.saved == Saved::Begun => self.side.end_scan(self.op, self.begun.id).await?,
                _ => {}
            }
            self.side.delete_pieces(self.op, &self.pieces).await
        };
        if let Err(error) = finished.await {
            tracing::warn!(%error, "what the rebuild had saved of its scan cannot be taken away; the next one does");
        }
    }
}

/// Why a scan that began so cannot be gone on with.
fn useless(there: &Begun, now: &Begun) -> Option<&'static str> {
    let why = if there.parts != now.parts {
        "it was cut into another number of parts"
    } else if there.incarnation != now.incarnation {
        "the table was restored since"
    } else if there.stream != now.stream {
        "the table has another stream since"
    } else if there.gap != now.gap {
        "records of the stream were lost since, or another rebuild was done"
    } else if there.began + FORGETS < now.began {
        "it began about a day ago, and what was written behind it since may be gone from the stream"
    } else {
        return None;
    };
    Some(why)
}

/// Packs what was found into pieces that fit an item each; whether that is possible.
fn split<F: Serialize>(found: &[F], packed: &mut Vec<Vec<u8>>) -> bool {
    // Numbers and texts into memory: nothing to fail.
    let bytes = pack(&postcard::to_stdvec(found).unwrap_or_default());
    if bytes.len() <= EPOCH_BYTES {
        packed.push(bytes);
        return true;
    }
    let (one, other) = found.split_at(found.len() / 2);
    found.len() > 1 && split(one, packed) && split(other, packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Begun {
        Begun {
            id: uuid::Uuid::from_u128(1),
            began: 100 * FORGETS,
            parts: 4,
            incarnation: 0,
            stream: Some("a".into()),
            gone: Default::default(),
            gap: None,
        }
    }

    #[test]
    fn a_scan_of_another_shape_or_another_day_is_not_gone_on_with() {
        let there = begun();
        let later = |hours: u64| Begun { id: uuid::Uuid::from_u128(2), began: there.began + hours * FORGETS / 23, ..begun() };
        assert_eq!(useless(&there, &later(22)), None);
        let others = [
            Begun { parts: 8, ..later(1) },
            Begun { incarnation: 1, ..later(1) },
            Begun { stream: Some("b".into()), ..later(1) },
            Begun { gap: Some(4), ..later(1) },
            later(24),
        ];
        for other in others {
            assert!(useless(&there, &other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn pieces_fit_an_item_each_and_hold_all() {
        // What does not compress.
        let chance = crate::env::Env::seeded(3);
        let found: Vec<Vec<u8>> =
            (0..900).map(|_| (0..1_024).map(|_| u8::try_from(chance.below(256)).expect("a byte")).collect()).collect();
        let mut packed = Vec::new();
        assert!(split(&found, &mut packed));
        assert!(packed.len() > 2 && packed.iter().all(|piece| piece.len() <= EPOCH_BYTES), "{}", packed.len());
        let all: Vec<Vec<u8>> =
            packed.iter().flat_map(|piece| postcard::from_bytes::<Vec<Vec<u8>>>(&unpack(piece).expect("zstd")).expect("a list")).collect();
        assert_eq!(all, found);
        let whole: Vec<u8> = found.concat();
        assert!(!split(&[whole], &mut packed), "one alone that fits no item");
    }
}
