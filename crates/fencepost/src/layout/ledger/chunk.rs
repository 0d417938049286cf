//! Chunks: entries and bodies too large for the slots, as compressed runs over one or more items. Pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::item::{self, Body, Chunk, Entry, Run};
use crate::event::{Event, EventType, Metadata, Tag};

/// Entries are gathered to about this many bytes before compression: about 64 KB after it, for JSON.
const RUN_BYTES: usize = 192 * 1024;
/// A run larger than this goes on in the next item.
const PART_BYTES: usize = 256 * 1024;

/// One entry in a run. The versions of its tags are the home's to tell.
#[derive(Debug, Serialize, Deserialize)]
struct Packed<'a> {
    index: u32,
    id: Option<[u8; 16]>,
    #[serde(borrow)]
    event_type: &'a str,
    tags: Vec<&'a str>,
    /// Metadata as JSON text; empty for none.
    meta: &'a str,
    #[serde(borrow)]
    data: &'a [u8],
}

/// What a set holds: its items, and in which run each event lies.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) id: Uuid,
    pub(crate) chunks: Vec<Chunk>,
    /// By index of the event; only those that are in the set.
    runs: Vec<(u32, Run)>,
}

impl Set {
    /// These events of a commit, in index order.
    pub(crate) fn pack<'a>(id: Uuid, events: impl Iterator<Item = (u32, &'a Event, Option<&'a str>)>) -> Set {
        let mut set = Set { id, chunks: Vec::new(), runs: Vec::new() };
        let (mut run, mut bytes): (Vec<Packed<'_>>, usize) = (Vec::new(), 0);
        for (index, event, meta) in events {
            let size = event.data().len()
                + meta.map_or(0, str::len)
                + event.event_type().as_str().len()
                + event.tags().iter().map(|t| t.as_str().len() + 1).sum::<usize>()
                + 24;
            if bytes + size > RUN_BYTES && !run.is_empty() {
                set.close(std::mem::take(&mut run));
                bytes = 0;
            }
            bytes += size;
            run.push(Packed {
                index,
                id: event.given_id().map(Uuid::into_bytes),
                event_type: event.event_type().as_str(),
                tags: event.tags().iter().map(Tag::as_str).collect(),
                meta: meta.unwrap_or_default(),
                data: event.data(),
            });
        }
        if !run.is_empty() {
            set.close(run);
        }
        set
    }

    fn close(&mut self, run: Vec<Packed<'_>>) {
        // Numbers, texts and bytes into memory: nothing to fail.
        let data = item::pack(&postcard::to_stdvec(&run).unwrap_or_default());
        let data = Bytes::from(data);
        let first = self.chunks.len() as u64 + 1;
        let (from, to) = (run.first().map_or(0, |e| e.index), run.last().map_or(0, |e| e.index));
        for (part, start) in (0..data.len()).step_by(PART_BYTES).enumerate() {
            let piece = data.slice(start..data.len().min(start + PART_BYTES));
            self.chunks.push(Chunk { number: first + part as u64, first: from, last: to, part: part as u64, data: piece });
        }
        let place = Run { set: self.id, first, last: self.chunks.len() as u64 };
        self.runs.extend(run.iter().map(|entry| (entry.index, place)));
    }

    /// The run of one event.
    pub(crate) fn run(&self, index: u32) -> Option<Run> {
        self.runs.binary_search_by_key(&index, |(i, _)| *i).ok().map(|at| self.runs[at].1)
    }

    /// The runs that hold all of these events, from the first to the last.
    pub(crate) fn span(&self, indexes: impl Iterator<Item = u32>) -> Option<Run> {
        let mut span: Option<Run> = None;
        for run in indexes.filter_map(|index| self.run(index)) {
            span = Some(match span {
                None => run,
                Some(so_far) => Run { set: self.id, first: so_far.first.min(run.first), last: so_far.last.max(run.last) },
            });
        }
        span
    }
}

/// The entries of whole runs, given their items in order. None where a part is missing or does not decode.
pub(crate) fn unpack(chunks: &[Chunk]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < chunks.len() {
        let parts = 1 + chunks[at + 1..].iter().take_while(|c| c.part > 0).count();
        let run = &chunks[at..at + parts];
        if run.iter().enumerate().any(|(part, chunk)| chunk.part != part as u64) {
            return None;
        }
        let joined: Vec<u8>;
        let data = match run {
            [one] => &one.data[..],
            several => {
                joined = several.iter().flat_map(|c| c.data.iter().copied()).collect();
                &joined
            }
        };
        let raw = item::unpack(data)?;
        let run: Vec<Packed<'_>> = postcard::from_bytes(&raw).ok()?;
        for packed in run {
            entries.push(entry(&packed)?);
        }
        at += parts;
    }
    Some(entries)
}

fn entry(packed: &Packed<'_>) -> Option<Entry> {
    let meta = if packed.meta.is_empty() { Metadata::default() } else { serde_json::from_str(packed.meta).ok()? };
    Some(Entry {
        index: packed.index,
        id: packed.id.map(Uuid::from_bytes),
        event_type: EventType::new(packed.event_type).ok()?,
        tags: packed.tags.iter().map(|tag| Some((Tag::new(tag).ok()?, 0))).collect::<Option<_>>()?,
        type_version: None,
        meta,
        body: Body::Here(Bytes::copy_from_slice(packed.data)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_gives_back_what_it_was_given_in_runs_and_parts() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(900_000)
        .collect();
        let events: Vec<Event> = (0..500)
            .map(|i| if i == 250 { noise.clone() } else { format!("{{\"number\":{i}}}").repeat(50).into_bytes() })
            .map(|data| Event::new("T", data).and_then(|e| e.tag("a")).expect("event"))
            .collect();
        let set = Set::pack(Uuid::from_u128(7), events.iter().enumerate().map(|(i, e)| (i as u32, e, None)));
        assert!(set.chunks.len() > 4, "{}", set.chunks.len());
        assert!(set.chunks.iter().any(|c| c.part > 0), "the large one runs on");
        let whole = unpack(&set.chunks).expect("unpacks");
        assert_eq!(whole.len(), 500);
        for (entry, event) in whole.iter().zip(&events) {
            assert!(matches!(&entry.body, Body::Here(data) if data == event.data()));
        }
        let run = set.run(250).expect("there");
        let alone = unpack(&set.chunks[run.first as usize - 1..run.last as usize]).expect("unpacks alone");
        assert!(alone.iter().any(|e| e.index == 250));
        assert!(unpack(&set.chunks[run.first as usize..]).is_none(), "a run without its first part");
        let span = set.span([0, 499].into_iter()).expect("span");
        assert_eq!((span.first, span.last), (1, set.chunks.len() as u64));
    }
}
