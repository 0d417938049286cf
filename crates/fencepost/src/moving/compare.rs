//! Comparing two stores event by event, in one pass over each and bounded memory.
//!
//! The two are read in step. An event that has no partner yet waits as a few checksums, under its id, until the other side brings it. The
//! same order is not asked for, since a store of several lanes merges them as they come; what must hold is the order on every tag: an event
//! that waited while a later one of the same tag found its partner, and then finds its own, stands elsewhere on one side.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use uuid::Uuid;

use super::copy::moved;
use super::known::{Cover, Known, Says, There};
use super::others::Lengths;
use super::source::{Group, Place, grouped, same_commit};
use super::write::size;
use super::{IN_FLIGHT_BYTES, Party};
use crate::error::Result;
use crate::event::{Event, Recorded};
use crate::position::Position;
use crate::query::Query;

/// Events of one side that may wait for the other; beyond that the rest is not compared.
const WAITING: usize = 200_000;
/// Differences that are told one by one.
const TOLD: usize = 100;
/// Events looked up at once, where a destination cannot be read as a whole.
const LOOKED_UP: usize = 4_096;

/// What two stores have and have not in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// Events of the source that were looked at.
    pub source: u64,
    /// Events of the destination that were looked at.
    pub destination: u64,
    /// Events that both have.
    pub equal: u64,
    /// Events that only the destination has, where it may have others.
    pub others: u64,
    /// How many differ, or are on one side only.
    pub differing: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// Whether all was compared: not, where more than 200,000 events of one side waited for the other, or were missing.
    pub whole: bool,
    /// Whether the destination was read by the tags of the source alone, since it cannot be read as a whole, or holds too much else: events that it
    /// has on other tags, or without any, were not looked for.
    pub by_tags: bool,
    /// Whether some events were looked up by the ids of their commits instead of compared, since the destination cannot read them.
    pub by_commits: bool,
}

impl Compared {
    /// Whether all was compared, and nothing differs.
    pub fn is_equal(&self) -> bool {
        self.whole && self.differing == 0
    }

    fn differs(&mut self, id: Uuid, fields: Vec<&'static str>) {
        self.differing += 1;
        if self.differences.len() < TOLD {
            self.differences.push(Difference { id, fields });
        }
    }
}

/// One event that is not the same on both sides: by its id, never by its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The event.
    pub id: Uuid,
    /// `type`, `tags`, `body`, `metadata`, `time` or `order`; `missing` at the destination, or `extra` there.
    pub fields: Vec<&'static str>,
}

/// Events that only the destination has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// They are differences.
    Differ,
    /// They were there before.
    Allowed,
}

/// Compares all events of two stores. `progress` hears the number of events of the source looked at so far.
pub async fn compare(source: impl Into<Party>, destination: impl Into<Party>, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Compared> {
    compare_up_to(&source.into(), &destination.into(), None, Others::Differ, progress).await
}

/// How far a copy has come. By its place, not by the number of its events: where several lanes are merged by their clocks, what is recorded
/// later may come earlier when all is read again.
#[derive(Debug, Clone)]
pub(super) struct UpTo {
    pub(super) events: u64,
    pub(super) place: Option<Place>,
}

impl UpTo {
    /// Which of these stand behind the place: they came since, and are for the next copy.
    async fn later(&self, source: &Party, mut of: BTreeSet<Position>) -> Result<BTreeSet<Position>> {
        let mut later = BTreeSet::new();
        if !of.is_empty() {
            let mut events = source.events(Query::all(), self.place.clone())?;
            while let Some((event, _)) = events.try_next().await? {
                later.extend(of.take(&event.position));
                if of.is_empty() {
                    break;
                }
            }
        }
        Ok(later)
    }
}

/// The same, up to where a copy has come: what came since, or comes while it is compared, is for the next one.
pub(super) async fn compare_up_to(
    source: &Party,
    destination: &Party,
    most: Option<UpTo>,
    others: Others,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Compared> {
    let compared = in_step(source, destination, most.as_ref(), others, progress).await?;
    if !compared.whole && others == Others::Allowed {
        // Too much else is there to wait for it all.
        return look_up(source, destination, most.as_ref(), others, progress).await;
    }
    Ok(compared)
}

async fn in_step(
    source: &Party,
    destination: &Party,
    most: Option<&UpTo>,
    others: Others,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Compared> {
    if !destination.is_readable() {
        return look_up(source, destination, most, others, progress).await;
    }
    let mut wanted = source.events(Query::all(), None)?.fuse();
    let mut found = destination.events(Query::all(), None)?.fuse();
    let mut compared = Compared { whole: true, ..Compared::default() };
    let (mut left, mut right) = (Side::default(), Side::default());
    let found_all = |compared: &Compared| most.is_some_and(|most| compared.equal + compared.differing >= most.events);
    loop {
        // The side of which less waits is read on; of the source no more, once all that was copied has met its copy.
        let ended = found_all(&compared);
        let next = if left.len() <= right.len() && !ended { wanted.try_next().await? } else { None };
        if let Some((event, _)) = next {
            compared.source += 1;
            progress(compared.source);
            meet(Sum::of(&event), &mut left, &mut right, &mut compared);
        } else if let Some((event, _)) = found.try_next().await? {
            compared.destination += 1;
            meet(Sum::of(&event), &mut right, &mut left, &mut compared);
        } else if !ended && let Some((event, _)) = wanted.try_next().await? {
            compared.source += 1;
            progress(compared.source);
            meet(Sum::of(&event), &mut left, &mut right, &mut compared);
        } else {
            break;
        }
        if left.len() + right.len() > WAITING {
            compared.whole = false;
            break;
        }
    }
    let later = match most {
        Some(most) => most.later(source, left.in_order().iter().map(|sum| sum.position).collect()).await?,
        None => BTreeSet::new(),
    };
    compared.source -= later.len() as u64;
    for sum in left.in_order().into_iter().filter(|sum| !later.contains(&sum.position)) {
        compared.differs(sum.id, vec!["missing"]);
    }
    match others {
        Others::Differ => right.in_order().into_iter().for_each(|sum| compared.differs(sum.id, vec!["extra"])),
        Others::Allowed => compared.others = right.len() as u64,
    }
    Ok(compared)
}

/// An event has come up on `here`: with its partner on the other side it is judged, else it waits.
fn meet(sum: Sum, here: &mut Side, there: &mut Side, compared: &mut Compared) {
    let Some((number, overtaken, partner)) = there.take(sum.id) else { return here.wait(sum) };
    let mut fields = sum.differs_from(&partner);
    if overtaken {
        fields.push("order");
    }
    // Everything that waits here came before this event; over there, what came before its partner. If it finds its own partner later, then
    // the two stand the other way round on one side.
    here.overtake(&sum.tags, here.came);
    there.overtake(&partner.tags, number);
    if fields.is_empty() { compared.equal += 1 } else { compared.differs(sum.id, fields) }
}

/// An event as checksums.
#[derive(Debug)]
struct Sum {
    id: Uuid,
    /// On its own side.
    position: Position,
    event_type: u64,
    body: u64,
    metadata: u64,
    time: u64,
    tags: Vec<u64>,
}

fn sum(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Sum {
    fn of(event: &Recorded) -> Self {
        let mut meta = event.meta.clone();
        meta.occurred = None;
        let mut tags: Vec<u64> = event.tags.iter().map(sum).collect();
        tags.sort_unstable();
        Self {
            id: event.id,
            position: event.position,
            event_type: sum(&event.event_type),
            body: sum(&event.data),
            // Maps are ordered, so equal metadata is equal text.
            metadata: sum(serde_json::to_string(&meta).unwrap_or_default()),
            time: sum(event.occurred_at()),
            tags,
        }
    }

    fn differs_from(&self, other: &Sum) -> Vec<&'static str> {
        let fields = [
            ("type", self.event_type != other.event_type),
            ("tags", self.tags != other.tags),
            ("body", self.body != other.body),
            ("metadata", self.metadata != other.metadata),
            ("time", self.time != other.time),
        ];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }
}

/// What waits on one side, in the order in which it came. An id may wait more than once.
#[derive(Debug, Default)]
struct Side {
    came: u64,
    waiting: BTreeMap<u64, Sum>,
    ids: HashMap<Uuid, BTreeSet<u64>>,
    tags: HashMap<u64, BTreeSet<u64>>,
    /// Of each tag on which something waits: what waits with a lower number was overtaken.
    overtaken: HashMap<u64, u64>,
}

impl Side {
    fn len(&self) -> usize {
        self.waiting.len()
    }
    fn wait(&mut self, sum: Sum) {
        let number = self.came;
        self.came += 1;
        self.ids.entry(sum.id).or_default().insert(number);
        for tag in &sum.tags {
            self.tags.entry(*tag).or_default().insert(number);
        }
        self.waiting.insert(number, sum);
    }
    fn take(&mut self, id: Uuid) -> Option<(u64, bool, Sum)> {
        let number = *self.ids.get(&id)?.first()?;
        let sum = self.waiting.remove(&number)?;
        forget(&mut self.ids, &id, number);
        sum.tags.iter().for_each(|tag| forget(&mut self.tags, tag, number));
        let overtaken = self.was_overtaken(&sum, number);
        for tag in sum.tags.iter().filter(|tag| !self.tags.contains_key(tag)) {
            self.overtaken.remove(tag);
        }
        Some((number, overtaken, sum))
    }
    /// An event that shares these tags and came as this number has found its partner before what waits.
    fn overtake(&mut self, tags: &[u64], number: u64) {
        for tag in tags.iter().filter(|tag| self.tags.contains_key(tag)) {
            let below = self.overtaken.entry(*tag).or_default();
            *below = number.max(*below);
        }
    }
    fn was_overtaken(&self, sum: &Sum, number: u64) -> bool {
        sum.tags.iter().any(|tag| self.overtaken.get(tag).is_some_and(|below| number < *below))
    }
    fn in_order(&self) -> Vec<&Sum> {
        self.waiting.values().collect()
    }
}

fn forget<K: Hash + Eq>(index: &mut HashMap<K, BTreeSet<u64>>, key: &K, number: u64) {
    if let Some(numbers) = index.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}

/// Where the destination cannot be read as a whole: each event of the source is looked for on one of its tags, and held against what is there.
/// The order is that of the series which were read, and what else is on them is told. Only what no series tells of is looked up by its commit.
async fn look_up(
    source: &Party,
    destination: &Party,
    most: Option<&UpTo>,
    others: Others,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Compared> {
    let (bodies, target) = (destination.capabilities.bodies, destination.writable()?);
    let (mut known, mut lengths) = (Known::new(destination, &target), Lengths::default());
    let mut compared = Compared { whole: true, by_tags: true, ..Compared::default() };
    let mut commits = std::pin::pin!(grouped(source.events(Query::all(), None)?, same_commit));
    let (mut missing, mut reached) = (Vec::new(), HashMap::<Cover, u32>::new());
    while most.is_none_or(|most| compared.equal + compared.differing < most.events) {
        let (mut positions, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
        while positions.len() < LOOKED_UP
            && bytes < IN_FLIGHT_BYTES
            && let Some(Group { events, .. }) = commits.try_next().await?
        {
            positions.extend(events.iter().map(|event| event.position));
            let events: Vec<Event> = events.into_iter().map(moved).collect();
            bytes += events.iter().map(size).sum::<usize>();
            batch.push(Group { events, place: () });
        }
        if batch.is_empty() {
            break;
        }
        let looked = known.look(&batch).await?.into_iter().flatten();
        // Series that were read in an earlier batch and have not come since begin anew.
        if reached.len() > WAITING {
            reached.clear();
        }
        let events = batch.iter().flat_map(|commit| &commit.events);
        for ((event, position), there) in events.zip(positions).zip(looked) {
            compared.source += 1;
            let id = event.given_id().unwrap_or_default();
            let fields = match there {
                There::No | There::ByCommit(false) => {
                    missing.push((position, id));
                    continue;
                }
                There::ByCommit(true) => {
                    compared.by_commits = true;
                    Vec::new()
                }
                There::Is { says, series, number, length } => {
                    lengths.met(event.tags(), &series, length);
                    let mut fields = Says::of(event, bodies).differs_at_all(says);
                    let before = reached.entry(series).or_default();
                    if number < *before {
                        fields.push("order");
                    }
                    *before = number.max(*before);
                    fields
                }
            };
            compared.destination += 1;
            if fields.is_empty() { compared.equal += 1 } else { compared.differs(id, fields) }
        }
        progress(compared.source);
        if missing.len() > WAITING {
            compared.whole = false;
            break;
        }
    }
    let later = match most {
        Some(most) => most.later(source, missing.iter().map(|(position, _)| *position).collect()).await?,
        None => BTreeSet::new(),
    };
    compared.source -= later.len() as u64;
    for (_, id) in missing.into_iter().filter(|(position, _)| !later.contains(position)) {
        compared.differs(id, vec!["missing"]);
    }
    if others == Others::Differ && compared.whole {
        match lengths.others(source, &target, WAITING).await? {
            Some(others) => others.into_iter().for_each(|id| compared.differs(id, vec!["extra"])),
            None => compared.whole = false,
        }
    }
    Ok(compared)
}
