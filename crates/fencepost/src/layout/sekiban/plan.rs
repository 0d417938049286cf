//! Planning: what an append writes, as one transaction or staged. Pure; `append` performs it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::item::{CNT, HASH, Head, PENDING, POS, Placed, Stamp, Stored};
use super::suid::SortableId;
use super::token::End;
use crate::dynamo::item::{Item, Value, binary, number, size, text};
use crate::dynamo::{TRANSACTION_BYTES, Terms, Write};
use crate::error::{Refused, Result};
use crate::event::{CommitId, Event, Tag, digest};

/// The tables that an append writes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) events: &'a str,
    pub(super) tags: &'a str,
}

/// Events that are to be recorded, under one commit.
#[derive(Debug)]
pub(super) struct Intent<'a> {
    pub(super) commit: CommitId,
    pub(super) events: &'a [Event],
    pub(super) ids: Vec<Uuid>,
    pub(super) digest: [u8; 8],
    /// Their places, where the caller gives them.
    pub(super) fixed: Option<Vec<SortableId>>,
    /// What is there already under an event's id: it is not written again.
    pub(super) there: BTreeMap<usize, Stored>,
}

impl<'a> Intent<'a> {
    pub(super) fn new(commit: CommitId, events: &'a [Event]) -> Result<Intent<'a>> {
        let ids: Vec<Uuid> = events.iter().enumerate().map(|(n, event)| event.given_id().unwrap_or_else(|| commit.event_id(n))).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let why = format!("{} is given to two events of one append", twice[0]);
            return Err(Refused::Malformed { what: "event id", why }.into());
        }
        Ok(Intent { commit, events, ids, digest: digest(events), fixed: None, there: BTreeMap::new() })
    }

    pub(super) fn is_given(&self) -> bool {
        self.events.iter().any(|event| event.given_id().is_some())
    }
    /// The place of an event, if the first tick is this.
    pub(super) fn place(&self, ticks: u64, index: usize) -> SortableId {
        match &self.fixed {
            Some(fixed) => fixed[index],
            None => SortableId::new(ticks + index as u64, &self.ids[index]),
        }
    }
    /// The tags of what is to be written, each with the indexes of its events.
    pub(super) fn tags(&self) -> BTreeMap<Tag, Vec<usize>> {
        let mut tags: BTreeMap<Tag, Vec<usize>> = BTreeMap::new();
        for (n, event) in self.events.iter().enumerate().filter(|(n, _)| !self.there.contains_key(n)) {
            for tag in event.tags() {
                tags.entry(tag.clone()).or_default().push(n);
            }
        }
        tags
    }
    /// Where a tag ends with this commit: its last event there, in order.
    pub(super) fn end(&self, ticks: u64, indexes: &[usize], stand: &Stand) -> End {
        let last = indexes.iter().map(|n| (self.place(ticks, *n), self.ids[*n])).max();
        let count = stand.end.count + indexes.len() as u64;
        last.map_or(stand.end, |(at, id)| End::at(at, id, count))
    }
}

/// Where a tag stands before an append: its head, and its last row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) head: Option<Head>,
    pub(super) end: End,
}

impl Stand {
    /// A head is moved over rows that none counted: from here on it does.
    pub(super) fn count_passed(&self) {
        let passed = self.end.count.saturating_sub(self.head.map_or(0, |head| head.cnt));
        metrics::counter!("fencepost_sekiban_rows_without_head_total").increment(passed);
    }
    /// The last tick that anything on it has.
    pub(super) fn ticks(&self) -> u64 {
        let head = self.head.map_or(0, |head| head.pos.ticks());
        head.max(self.end.id().map_or(0, |id| id.ticks()))
    }
}

/// What a write of a transaction is, to understand what its failure tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Event(usize),
    Row,
    Head(Tag),
    Record,
    Open,
}

/// Everything that one try is made of.
#[derive(Debug)]
pub(super) struct Try<'a> {
    pub(super) intent: &'a Intent<'a>,
    pub(super) tables: Tables<'a>,
    pub(super) stamp: Stamp<'a>,
    pub(super) ticks: u64,
    /// Tags written and tags checked.
    pub(super) stands: &'a BTreeMap<Tag, Stand>,
    /// Whether the commit gets a record, and how many pieces of it are staged.
    pub(super) record: Option<u64>,
    /// How often pieces under its id were collected.
    pub(super) buried: u64,
}

pub(super) const DIGEST: &str = "digest";
pub(super) const TICKS: &str = "ticks";
/// The first tick of its events, where the caller gave their places.
pub(super) const FIRST: &str = "first";
/// The last tick of the events of a large commit, where it is listed.
pub(super) const LAST: &str = "last";
pub(super) const COUNT: &str = "count";
pub(super) const IDS: &str = "ids";
pub(super) const PIECES: &str = "pieces";
pub(super) const ENDS: &str = "ends";
pub(super) const WRITTEN: &str = "written";
pub(super) const SHARDS: &str = "shards";
/// When its rows expire; the record itself does not.
pub(super) const ROWS_TTL: &str = "rowsTtl";
pub(super) const RECORD: &str = "COMMIT";
/// Where a record would be, of a commit whose pieces were collected: how often. Nothing was recorded under its id, and something may be yet; but what was
/// staged before is gone, and is not published any more.
pub(super) const GRAVE: &str = "grave";
/// Of a record: how often pieces had been collected when its own were staged.
pub(super) const BURIED: &str = "buried";

impl Try<'_> {
    /// All of it as one transaction: events, their rows, heads and checks, the record.
    pub(super) fn whole(&self) -> Result<Vec<(Part, Write)>> {
        let mut writes = Vec::new();
        for (n, placed) in self
            .intent
            .events
            .iter()
            .enumerate()
            .filter(|(n, _)| !self.intent.there.contains_key(n))
            .map(|(n, event)| (n, Placed { id: self.intent.ids[n], at: self.intent.place(self.ticks, n), event }))
        {
            let item = self.stamp.event(&placed)?;
            writes.push((Part::Event(n), Write::PutNew { table: self.tables.events.into(), item }));
            for tag in placed.event.tags() {
                let item = self.stamp.tag_row(&placed, tag);
                writes.push((Part::Row, Write::Put { table: self.tables.tags.into(), item }));
            }
        }
        self.heads(&mut writes);
        if let Some(0) = self.record {
            writes.push((Part::Record, self.put_record(0)));
        }
        Ok(writes)
    }

    /// What makes a staged commit visible: its record, its place in the list of large ones, heads and checks. Where the caller gave ids, its first
    /// event as well, if it fits: whoever publishes the same events at the same time, on other tags or none, meets it.
    pub(super) fn publication(&self, pieces: u64, most: usize) -> Result<Vec<(Part, Write)>> {
        let events = || self.tables.events.to_owned();
        let mut open = super::item::key(self.stamp.keys.large_commits(), self.intent.commit.to_string());
        open.insert(TICKS.into(), number(self.first_given().unwrap_or(self.ticks)));
        let last = self.intent.fixed.iter().flatten().map(SortableId::ticks).max();
        open.insert(LAST.into(), number(last.unwrap_or(self.ticks + self.intent.events.len() as u64)));
        let mut writes = vec![(Part::Record, self.put_record(pieces)), (Part::Open, Write::Put { table: events(), item: open })];
        self.heads(&mut writes);
        if self.intent.is_given()
            && writes.len() < most
            && let Some(event) = self.intent.events.first()
        {
            let placed = Placed { id: self.intent.ids[0], at: self.intent.place(self.ticks, 0), event };
            let stamp = Stamp { staged: Some(self.intent.commit), ..self.stamp };
            writes.push((Part::Event(0), Write::PutNew { table: events(), item: stamp.event(&placed)? }));
        }
        Ok(writes)
    }

    fn first_given(&self) -> Option<u64> {
        self.intent.fixed.iter().flatten().map(SortableId::ticks).min()
    }

    fn heads(&self, writes: &mut Vec<(Part, Write)>) {
        let tags = self.intent.tags();
        for (tag, stand) in self.stands {
            let write = match tags.get(tag) {
                Some(indexes) => self.move_head(tag, stand, indexes),
                None => check(self.tables.tags, self.stamp.keys.head(tag.as_str()), stand.head),
            };
            writes.push((Part::Head(tag.clone()), write));
        }
    }

    fn move_head(&self, tag: &Tag, stand: &Stand, indexes: &[usize]) -> Write {
        let end = self.intent.end(self.ticks, indexes, stand);
        let terms = as_seen(stand.head).name("#p", POS).name("#c", CNT).value(":c", number(end.count));
        let mut terms = terms.value(":p", text(end.id().unwrap_or(SortableId::MIN).to_string()));
        let mut update = "SET #p = :p, #c = :c".to_owned();
        if self.record.is_some_and(|pieces| pieces > 0) {
            update.push_str(", #g = :g");
            terms = terms.name("#g", PENDING).value(":g", text(self.intent.commit.to_string()));
        }
        Write::Update { table: self.tables.tags.into(), key: self.stamp.keys.head(tag.as_str()), update, condition: terms }
    }

    fn put_record(&self, pieces: u64) -> Write {
        put_over_grave(self.tables.events, self.record_item(pieces), self.buried)
    }

    fn record_item(&self, pieces: u64) -> Item {
        let mut item = self.stamp.keys.commit(self.intent.commit, RECORD);
        item.insert(DIGEST.into(), binary(self.intent.digest));
        item.insert(TICKS.into(), number(self.ticks));
        item.insert(COUNT.into(), number(self.intent.events.len() as u64));
        if let Some(first) = self.first_given() {
            item.insert(FIRST.into(), number(first));
        }
        item.insert(WRITTEN.into(), text(super::item::written(self.stamp.now)));
        item.insert(SHARDS.into(), number(self.stamp.shards.into()));
        if let Some(ttl) = self.stamp.ttl {
            item.insert(ROWS_TTL.into(), number(ttl));
        }
        if self.buried > 0 {
            item.insert(BURIED.into(), number(self.buried));
        }
        if pieces > 0 {
            item.insert(PIECES.into(), number(pieces));
        }
        if self.intent.is_given() {
            item.insert(IDS.into(), binary(self.intent.ids.iter().flat_map(|id| *id.as_bytes()).collect::<Vec<u8>>()));
        }
        let ends = self.intent.tags().into_iter().map(|(tag, indexes)| {
            let end = self.stands.get(&tag).map_or(End::default(), |stand| self.intent.end(self.ticks, &indexes, stand));
            (tag.as_str().to_owned(), number(end.count))
        });
        item.insert(ENDS.into(), Value::M(ends.collect()));
        item
    }
}

/// Only if the head is as it was read, and no large commit is under way.
fn as_seen(head: Option<Head>) -> Terms {
    match head {
        None => Terms::when("attribute_not_exists(#h)"),
        Some(head) => {
            // The count as well: a repair may set it, and who has read it before would set it back.
            let terms = Terms::when("#p = :s AND #c = :n AND attribute_not_exists(#g)").name("#p", POS).name("#c", CNT).name("#g", PENDING);
            terms.value(":s", text(head.pos.to_string())).value(":n", number(head.cnt))
        }
    }
}

fn check(table: &str, key: Item, head: Option<Head>) -> Write {
    match head {
        None => Write::CheckMissing { table: table.into(), key },
        Some(_) => Write::Check { table: table.into(), key, condition: as_seen(head) },
    }
}

/// Moves a head by itself.
pub(super) fn bump(table: &str, key: Item, seen: Option<Head>, to: Head) -> Write {
    let terms = as_seen(seen).name("#p", POS).name("#c", CNT).value(":c", number(to.cnt)).value(":p", text(to.pos.to_string()));
    Write::Update { table: table.into(), key, update: "SET #p = :p, #c = :c".into(), condition: terms }
}

/// Puts an item where a commit's record goes, if nothing is there; where pieces were collected so often, over what says so.
pub(super) fn put_over_grave(table: &str, item: Item, buried: u64) -> Write {
    match buried {
        0 => Write::PutNew { table: table.into(), item },
        n => {
            let values = Item::from([(":n".into(), number(n))]);
            Write::PutIf { table: table.into(), item, condition: format!("{GRAVE} = :n"), values }
        }
    }
}

/// Clears a head of a commit that is finished.
pub(super) fn clear(table: &str, key: Item, commit: CommitId) -> Write {
    let condition = Terms::when("#g = :g").name("#g", PENDING).value(":g", text(commit.to_string()));
    Write::Update { table: table.into(), key, update: "REMOVE #g".into(), condition }
}

/// Whether writes fit in one transaction of so many items.
pub(super) fn fits(writes: &[(Part, Write)], items: usize) -> bool {
    let bytes: usize = writes.iter().map(|(_, write)| bytes(write)).sum();
    writes.len() <= items && bytes <= TRANSACTION_BYTES
}

fn bytes(write: &Write) -> usize {
    match write {
        Write::PutNew { item, .. } | Write::Put { item, .. } | Write::PutIf { item, .. } => size(item),
        // The key and a few numbers.
        Write::Update { key, .. } | Write::DeleteIf { key, .. } | Write::Check { key, .. } | Write::CheckMissing { key, .. } => {
            size(key) + 256
        }
    }
}

/// The name of the tables' hash key.
pub(super) const TABLE_HASH: &str = HASH;
