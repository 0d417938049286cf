//! What of a batch the destination holds already, by the ids of events: no layout can be asked for an id, but an event is on each of its
//! tags, so the series of any one of them tells. A series is read once and its ids are kept, as far as there is room; the tag of an event
//! that is carried by the fewest of its batch is taken, since its series is likely the shortest.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use uuid::Uuid;

use super::files::Lines;
use super::source::Group;
use super::target::Target;
use super::write::pieces;
use super::{IN_FLIGHT, Party};
use crate::error::{Error, Refused, Result};
use crate::event::{Event, Metadata, Recorded, Tag};
use crate::log::Bodies;

/// Ids of the destination that are kept at once, some 50 bytes each. A series with more of them is read again for each batch.
const KEPT: usize = 1_000_000;

/// A series: what carries all of these tags, usually one. Of all events, where there is none.
pub(super) type Cover = Vec<Tag>;
/// The series that tells of events with these tags; none where no series can be read.
type Covers = HashMap<Vec<Tag>, Option<Cover>>;

/// An event as checksums: whether two events with one id say the same. Against mistakes, not malice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Says {
    event_type: u32,
    tags: u32,
    body: u32,
    metadata: u32,
    time: u32,
}

/// An event of a series: what it says, and its number there.
#[derive(Debug, Clone, Copy)]
struct Entry {
    says: Says,
    number: u32,
}

impl Says {
    fn new(event_type: &str, tags: &[Tag], body: &[u8], (meta, at): (&Metadata, Option<Timestamp>), bodies: Bodies) -> Says {
        let mut names: Vec<&str> = tags.iter().map(Tag::as_str).collect();
        names.sort_unstable();
        let mut tags = crc32fast::Hasher::new();
        for name in names {
            tags.update(&(name.len() as u64).to_be_bytes());
            tags.update(name.as_bytes());
        }
        let body = match bodies {
            Bodies::Bytes | Bodies::Text => crc32fast::hash(body),
            // The same value comes back, perhaps spelt otherwise.
            Bodies::Json => serde_json::from_slice(body).map_or(0, |value| crc32fast::hash(plain(&value).as_bytes())),
        };
        let meta = Metadata { occurred: None, ..meta.clone() };
        Says {
            event_type: crc32fast::hash(event_type.as_bytes()),
            tags: tags.finalize(),
            body,
            // Maps are ordered, so equal metadata is equal text.
            metadata: crc32fast::hash(&serde_json::to_vec(&meta).unwrap_or_default()),
            time: at.map_or(0, |at| crc32fast::hash(&at.as_nanosecond().to_be_bytes())),
        }
    }
    /// Of an event that is moved: when it happened is in its metadata.
    pub(super) fn of(event: &Event, bodies: Bodies) -> Says {
        let meta = event.metadata();
        Says::new(event.event_type().as_str(), event.tags(), event.data(), (meta, meta.occurred), bodies)
    }
    fn found(event: &Recorded, bodies: Bodies) -> Says {
        Says::new(event.event_type.as_str(), &event.tags, &event.data, (&event.meta, Some(event.occurred_at())), bodies)
    }

    /// What differs of what an event is.
    fn differs(self, there: Says) -> Vec<&'static str> {
        let fields = [("type", self.event_type != there.event_type), ("tags", self.tags != there.tags), ("body", self.body != there.body)];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }
    /// That, and what is said about it.
    pub(super) fn differs_at_all(self, there: Says) -> Vec<&'static str> {
        let about = [("metadata", self.metadata != there.metadata), ("time", self.time != there.time)];
        let about = about.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field);
        self.differs(there).into_iter().chain(about).collect()
    }

    fn same_as(self, there: Says, id: Uuid) -> Result<()> {
        let differs = self.differs(there);
        if differs.is_empty() {
            return Ok(());
        }
        let why = format!(
            "event {id} is there already and says something else ({}): what stands before its commit is recorded, nothing of it and behind it",
            differs.join(", ")
        );
        Err(Refused::Malformed { what: "input", why }.into())
    }
}

/// What the destination has of an event.
#[derive(Debug, Clone)]
pub(super) enum There {
    /// It is not there.
    No,
    /// It is: on this series of so many events, with this number.
    Is { says: Says, series: Cover, number: u32, length: u64 },
    /// No series tells. Whether a move has brought the commit that it came in, or it alone.
    ByCommit(bool),
}

/// A JSON value in one spelling.
fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Number(number) => number.as_f64().unwrap_or_default().to_string(),
        serde_json::Value::Array(values) => format!("[{}]", values.iter().map(plain).collect::<Vec<_>>().join(",")),
        serde_json::Value::Object(values) => {
            let mut entries: Vec<String> = values.iter().map(|(key, value)| format!("{key:?}:{}", plain(value))).collect();
            entries.sort_unstable();
            format!("{{{}}}", entries.join(","))
        }
        other => other.to_string(),
    }
}

/// What a series was found to hold.
enum Found {
    All(Entries),
    /// There is no room for all: those that the batch asks for.
    Wanted(Entries),
    /// The layout has no such series.
    Unreadable,
}

/// Ids on one series, and how many events it has.
#[derive(Debug)]
struct Entries {
    ids: HashMap<Uuid, Entry>,
    length: u64,
}

/// One series.
#[derive(Debug)]
struct Series {
    on: Entries,
    /// The batch that last needed it.
    used: u64,
}

/// What is known of the destination.
#[derive(Debug)]
pub(super) struct Known {
    to: Party,
    target: Target,
    most: usize,
    series: HashMap<Cover, Series>,
    batch: u64,
}

/// What is to be counted once a group is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    /// Events of its commit that are there already.
    pub(super) repeated: u64,
    /// 1 for the first group of a commit.
    pub(super) commits: u64,
    /// 1 where its commit becomes several.
    pub(super) split: u64,
}

/// A batch sorted out: what is to be written, and how many events of each commit are there already.
pub(super) struct Sorted {
    pub(super) new: Vec<Group<Event, Counted>>,
    /// What is wrong with the first commit that is not among them.
    pub(super) wrong: Option<Error>,
}

impl Known {
    pub(super) fn new(to: &Party, target: &Target) -> Self {
        Self { to: to.clone(), target: target.clone(), most: KEPT, series: HashMap::new(), batch: 0 }
    }

    /// What is there of each event of a batch. Nothing may be under way: what was written must show.
    pub(super) async fn look(&mut self, batch: &[Lines]) -> Result<Vec<Vec<There>>> {
        let (covers, besides) = self.read(batch).await?;
        let asked = self.ask(batch, &covers).await?;
        let there = |event: &Event, asked: bool| {
            let Some(series) = covers.get(event.tags()).and_then(Option::as_ref) else { return There::ByCommit(asked) };
            let on = self.series.get(series).map(|series| &series.on).or(besides.get(series));
            match on.and_then(|on| Some((on.ids.get(&event.given_id()?)?, on.length))) {
                Some((Entry { says, number }, length)) => There::Is { says: *says, series: series.clone(), number: *number, length },
                None => There::No,
            }
        };
        let commits = batch.iter().zip(asked);
        Ok(commits.map(|(commit, asked)| commit.events.iter().zip(asked).map(|(event, asked)| there(event, asked)).collect()).collect())
    }

    /// Which events are new.
    pub(super) async fn sort(&mut self, batch: Vec<Lines>) -> Result<Sorted> {
        let bodies = self.to.capabilities.bodies;
        let looked = self.look(&batch).await?;
        let (mut seen, mut new, mut wrong) = (HashMap::<Uuid, Says>::new(), Vec::new(), None);
        'commits: for (commit, looked) in batch.into_iter().zip(looked) {
            let (mut fresh, mut alone, mut repeated) = (Vec::new(), Vec::new(), 0);
            for (event, there) in commit.events.into_iter().zip(looked) {
                let (id, says) = (event.given_id().unwrap_or_default(), Says::of(&event, bodies));
                let known = seen.get(&id).copied().or(if let There::Is { says, .. } = &there { Some(*says) } else { None });
                match (known.map(|known| says.same_as(known, id)), there) {
                    (Some(Err(error)), _) => {
                        // Of this commit nothing is written.
                        wrong = Some(error);
                        break 'commits;
                    }
                    (Some(Ok(())), _) | (None, There::ByCommit(true)) => repeated += 1,
                    (None, There::ByCommit(false)) => {
                        seen.insert(id, says);
                        alone.push(event);
                    }
                    (None, _) => {
                        seen.insert(id, says);
                        fresh.push(event);
                    }
                }
            }
            let groups = [fresh].into_iter().filter(|events| !events.is_empty()).chain(alone.into_iter().map(|event| vec![event]));
            let mut groups: Vec<_> = groups.map(|events| Group { events, place: Counted::default() }).collect();
            let split = u64::from(groups.len() > 1);
            match groups.first_mut() {
                Some(first) => first.place = Counted { repeated, commits: 1, split },
                None => groups.push(Group { events: Vec::new(), place: Counted { repeated, ..Counted::default() } }),
            }
            new.extend(groups);
        }
        // Kept for the batches to come; should a write fail, there are none.
        for event in new.iter().flat_map(|group| &group.events) {
            let (id, says) = (event.given_id().unwrap_or_default(), Says::of(event, bodies));
            let tags = event.tags();
            for cover in tags.iter().map(std::slice::from_ref).chain([&[], tags]) {
                if let Some(Series { on, .. }) = self.series.get_mut(cover) {
                    let number = u32::try_from(on.ids.len()).unwrap_or(u32::MAX);
                    on.ids.insert(id, Entry { says, number });
                    on.length += 1;
                }
            }
        }
        Ok(Sorted { new, wrong })
    }

    /// One series for each event: one that is kept, else that of its tag which the fewest carry; where none of its tags has one that can be
    /// read, what carries them all.
    fn covers(&self, batch: &[Lines], unreadable: &HashSet<Cover>) -> Covers {
        let events = || batch.iter().flat_map(|commit| &commit.events);
        let mut carried = HashMap::<&Tag, usize>::new();
        for tag in events().flat_map(Event::tags) {
            *carried.entry(tag).or_default() += 1;
        }
        let cover = |event: &Event| {
            let tags = event.tags();
            if tags.is_empty() {
                return self.to.capabilities.untagged_reads.then(Vec::new);
            }
            let readable = || tags.iter().filter(|tag| !unreadable.contains(std::slice::from_ref(*tag)));
            let kept = readable().find(|tag| self.series.contains_key(std::slice::from_ref(*tag)));
            let rarest = || readable().min_by_key(|tag| (carried.get(tag), *tag));
            let one = kept.or_else(rarest).map(|tag| vec![tag.clone()]);
            one.or_else(|| (!unreadable.contains(tags)).then(|| tags.to_vec()))
        };
        events().map(|event| (event.tags().to_vec(), cover(event))).collect()
    }

    /// Reads the series that are not kept. Of those that are too long to be kept, what this batch asks for.
    async fn read(&mut self, batch: &[Lines]) -> Result<(Covers, HashMap<Cover, Entries>)> {
        self.batch += 1;
        let wanted: HashSet<Uuid> = batch.iter().flat_map(|commit| &commit.events).filter_map(Event::given_id).collect();
        let (mut unreadable, mut besides) = (HashSet::new(), HashMap::new());
        loop {
            let covers = self.covers(batch, &unreadable);
            let needed: HashSet<Cover> = covers.values().flatten().cloned().collect();
            for cover in &needed {
                if let Some(series) = self.series.get_mut(cover) {
                    series.used = self.batch;
                }
            }
            self.make_room();
            let missing: Vec<Cover> =
                needed.into_iter().filter(|cover| !self.series.contains_key(cover) && !besides.contains_key(cover)).collect();
            if missing.is_empty() {
                return Ok((covers, besides));
            }
            let kept = AtomicUsize::new(self.series.values().map(|series| series.on.ids.len()).sum());
            let reads: Vec<_> = missing.into_iter().map(|cover| self.series_of(cover, &wanted, &kept)).collect();
            let found: Vec<_> = stream::iter(reads).buffer_unordered(IN_FLIGHT).try_collect().await?;
            for (cover, found) in found {
                match found {
                    Found::All(on) => drop(self.series.insert(cover, Series { on, used: self.batch })),
                    Found::Wanted(on) => drop(besides.insert(cover, on)),
                    Found::Unreadable => drop(unreadable.insert(cover)),
                }
            }
        }
    }

    async fn series_of(&self, cover: Cover, wanted: &HashSet<Uuid>, kept: &AtomicUsize) -> Result<(Cover, Found)> {
        let bodies = self.to.capabilities.bodies;
        let (mut ids, mut whole, mut length) = (HashMap::new(), true, 0u64);
        let each = |event: Recorded| {
            length += 1;
            if whole && kept.fetch_add(1, Ordering::Relaxed) >= self.most {
                kept.fetch_sub(ids.len() + 1, Ordering::Relaxed);
                ids.retain(|id, _| wanted.contains(id));
                whole = false;
            }
            if whole || wanted.contains(&event.id) {
                let number = u32::try_from(length).unwrap_or(u32::MAX);
                ids.insert(event.id, Entry { says: Says::found(&event, bodies), number });
            }
        };
        let found = match self.target.each(&cover, each).await {
            Err(Error::Refused(Refused::Unsupported { .. })) => Found::Unreadable,
            read => {
                read?;
                let on = Entries { ids, length };
                if whole { Found::All(on) } else { Found::Wanted(on) }
            }
        };
        Ok((cover, found))
    }

    /// Forgets series until half of the room is free, those first that have not been needed for the longest time. What this batch needs goes
    /// only where there is no room at all: it has grown by what was written.
    fn make_room(&mut self) {
        let mut kept: usize = self.series.values().map(|series| series.on.ids.len()).sum();
        let mut by_use: Vec<(u64, Cover)> = self.series.iter().map(|(cover, series)| (series.used, cover.clone())).collect();
        by_use.sort_unstable();
        for (used, cover) in by_use {
            if kept <= if used < self.batch { self.most / 2 } else { self.most } {
                break;
            }
            kept -= self.series.remove(&cover).map_or(0, |series| series.on.ids.len());
        }
        // Series of which there is nothing to keep still take room.
        if self.series.len() > self.most {
            self.series.retain(|_, series| series.used == self.batch);
        }
    }

    /// Of events that no series tells of: whether a move has brought the very commit that they came in, or each alone.
    async fn ask(&self, batch: &[Lines], covers: &Covers) -> Result<Vec<Vec<bool>>> {
        let unread = |event: &Event| covers.get(event.tags()).is_none_or(Option::is_none);
        let commits = batch.iter().map(|commit| async move {
            if !commit.events.iter().any(unread) {
                return Ok(vec![false; commit.events.len()]);
            }
            let mut whole = true;
            for piece in pieces(commit.events.clone(), &self.to.capabilities) {
                whole = whole && self.target.committed(&piece).await?.is_some();
            }
            let mut there = Vec::new();
            for event in &commit.events {
                let alone = unread(event) && !whole;
                there.push(whole || alone && self.target.committed(std::slice::from_ref(event)).await?.is_some());
            }
            Ok(there)
        });
        let commits: Vec<_> = commits.collect();
        stream::iter(commits).buffered(IN_FLIGHT).try_collect().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures::stream::BoxStream;

    use super::*;
    use crate::event::CommitId;
    use crate::log::{Answer, Append, Capabilities, Committed, EventLog, ReadOptions, Snapshots, Sourced};
    use crate::position::{Checkpoint, Position, Token};
    use crate::query::Query;
    use crate::state::{Checkpoints, Revision};

    /// Only to be read.
    #[derive(Debug, Clone)]
    struct Holds(Vec<Recorded>);

    #[async_trait]
    impl EventLog for Holds {
        async fn source(&self, _: &Query, _: Option<&Token>) -> Result<Sourced> {
            unreachable!("it is read")
        }
        async fn append(&self, _: Append) -> Result<Committed> {
            unreachable!("it is read")
        }
        async fn unchanged(&self, _: &Token) -> Result<Answer<bool>> {
            unreachable!("it is read")
        }
        async fn committed(&self, _: CommitId) -> Result<Answer<Option<Committed>>> {
            unreachable!("it is read")
        }
        fn read<'a>(&'a self, query: &'a Query, _: ReadOptions) -> BoxStream<'a, Result<Recorded>> {
            let matching = self.0.iter().filter(|event| query.matches(&event.event_type, &event.tags)).cloned();
            stream::iter(matching.map(Ok)).boxed()
        }
    }

    #[async_trait]
    impl Checkpoints for Holds {
        async fn load(&self, _: &str) -> Result<Option<(Checkpoint, Revision)>> {
            Ok(None)
        }
        async fn save(&self, _: &str, _: &Checkpoint, _: Option<Revision>) -> Result<Option<Revision>> {
            Ok(None)
        }
    }

    fn event(n: u128, tag: &str) -> Event {
        Event::new("T", n.to_string()).and_then(|event| event.tag(tag)).expect("event").id(Uuid::from_u128(n))
    }

    fn known(holds: &Holds, most: usize) -> Known {
        let capabilities = Capabilities {
            boundaries: true,
            untagged_conditions: true,
            indexed_types: true,
            untagged_reads: true,
            counted_positions: true,
            feed: true,
            max_tags: 12,
            max_events: 1_500,
            max_body: 1 << 20,
            max_bytes: 1 << 26,
            snapshots: Snapshots::Each,
            bodies: Bodies::Bytes,
        };
        let shared = Arc::new(holds.clone());
        let to = Party::new(capabilities, shared.clone()).log(shared);
        let target = to.writable().expect("a log");
        Known { most, ..Known::new(&to, &target) }
    }

    #[tokio::test]
    async fn a_series_too_long_to_be_kept_is_read_again_and_tells_the_same() {
        let recorded = |n: u128, tag: &str| {
            let event = event(n, tag);
            let (position, id) = (Position::number(1 + n as u64), Uuid::from_u128(n));
            let (kind, data, tags) = (event.event_type().clone(), event.data().clone(), event.tags().to_vec());
            Recorded::new(position, id, kind, data, tags, Metadata::default(), Timestamp::UNIX_EPOCH)
        };
        let memory = Holds((0..10).map(|n| recorded(n, "long")).chain((100..110).map(|n| recorded(n, "short"))).collect());
        for most in [0, 3, 12, 100] {
            let mut known = known(&memory, most);
            for from in 0..10 {
                let events = [event(from, "long"), event(from + 1, "long"), event(100 + from, "short"), event(200 + from, "short")];
                let batch = events.into_iter().map(|event| Group { events: vec![event], place: () }).collect();
                let sorted = known.sort(batch).await.expect("sorts");
                let new: Vec<u128> =
                    sorted.new.iter().flat_map(|group| &group.events).map(|e| e.given_id().expect("id").as_u128()).collect();
                let expected: Vec<u128> = [10].into_iter().filter(|_| from == 9).chain([200 + from]).collect();
                assert_eq!(new, expected, "room for {most}, from {from}");
                let kept: usize = known.series.values().map(|series| series.on.ids.len()).sum();
                assert!(kept <= most + new.len(), "room for {most}: {kept} are kept");
            }
        }
    }
}
