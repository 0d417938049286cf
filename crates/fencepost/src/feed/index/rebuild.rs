//! Mending the index: what it lacks is found by a scan of the homes, and appended to the same chain in the order of stamps.
//!
//! A stamp is above the stamps of all that its commit follows, so their order is right. A scan is no instant, though: a commit may be met and
//! one that it follows not, if that one landed behind the scan. It was stamped within the hour before, so what is as young is looked after.
//! Where places order the series, their order is the places' own.
//!
//! A home that cannot be read may be of any age, and what follows it must not come before it: where there is one, all that lacks is looked
//! after, and what stands behind it is held back until a rebuild that can read it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::plan::{HOUR, Turn};
use super::recent::Rebuilt;
use super::run::now;
use super::scan::{PARTS, Pace, Scan};
use crate::dynamo::Op;
use crate::dynamo::item::Item;
use crate::error::{Error, Result};
use crate::event::CommitId;
use crate::side::chain::{Indexable, Under};
use crate::side::epoch::{Epoch, Gap, Indexed, MAX_ENTRIES, Mark, Span};
use crate::side::notice::{Notice, split};
use crate::side::scan::Begun;
use crate::side::series::Series;
use crate::units::Units;

/// How far a rebuild has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RebuildProgress {
    /// Items of the log that were read, by an earlier run as well that was stopped.
    pub items: u64,
    /// About how many there are, where the table tells: it counts every six hours or so.
    pub about: Option<u64>,
    /// Those that an earlier run had read.
    pub resumed: u64,
    /// Why what an earlier run had read is of no use, where there was one.
    pub dropped: Option<String>,
    /// Commits that the index lacks, as far as is known.
    pub lacking: u64,
    /// Those that were appended to it.
    pub appended: u64,
}

/// What a rebuild did.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexRebuilt {
    /// Items of the log that were read, by an earlier run as well that was stopped.
    pub items: u64,
    /// Those that an earlier run had read.
    pub resumed: u64,
    /// Why what an earlier run had read was of no use, where there was one.
    pub dropped: Option<String>,
    /// Homes of commits that cannot be read, and are not in the index: [`super::Index::verify`] names them.
    pub unreadable: u64,
    /// Commits that can be read and follow what cannot: held back until a rebuild that can read all of it, so that their order stays right.
    pub held: u64,
    /// Commits that were appended to the index.
    pub appended: u64,
    /// Epochs that hold them.
    pub epochs: u64,
    /// Whether the index says still that records may have been lost: found since the rebuild began, or a home cannot be read.
    pub trimmed: bool,
    /// What it cost.
    pub units: Units,
}

/// What a home tells: its place, where places order the series, and the entry; none where it cannot be read.
type Home = Option<(String, Packed)>;

/// What the index lacks, in the order in which it is appended.
type Lacking = BTreeMap<Turn, Packed>;

/// An entry in few bytes, since there may be as many of them as commits. Saved as the entry itself.
#[derive(Debug, Clone)]
struct Packed(Box<[u8]>);

impl Packed {
    fn new(entry: &Indexed) -> Self {
        // Numbers and texts into memory: nothing to fail.
        Self(postcard::to_stdvec(entry).unwrap_or_default().into())
    }

    fn entry(&self) -> Result<Indexed> {
        postcard::from_bytes(&self.0).map_err(|error| Error::corrupt("log", format!("an entry of the index: {error}")))
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entry().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&Indexed::deserialize(deserializer)?))
    }
}

/// What stands before a commit on one of its series.
enum Preceding {
    /// Nothing, or it is in the index, or it is known that it lacks.
    Settled,
    /// It lacks, and the scan did not meet it.
    Lacks(Turn, Box<Indexed>),
    /// It is not in the index, and cannot be read.
    Unreadable,
}

/// The chain as far as it was read: its last epoch, and every commit in it.
struct Known {
    last: Option<Epoch>,
    commits: HashSet<CommitId>,
}

impl Known {
    fn next(&self) -> u64 {
        self.last.as_ref().map_or(0, |epoch| epoch.number) + 1
    }

    async fn read_on(&mut self, log: &dyn Indexable, op: &Op) -> Result<()> {
        loop {
            let mut epochs = log.side().epochs_from(op, self.next(), 16).await?;
            self.commits.extend(epochs.iter().flat_map(|epoch| &epoch.entries).map(|entry| entry.commit));
            let Some(last) = epochs.pop() else { return Ok(()) };
            self.last = Some(Epoch { entries: Vec::new(), ..last });
        }
    }
}

pub(super) async fn rebuild(log: &dyn Indexable, pace: Pace, progress: &(dyn Fn(&RebuildProgress) + Send + Sync)) -> Result<IndexRebuilt> {
    let op = log.dynamo().long_op();
    let mut known = Known { last: None, commits: HashSet::new() };
    let begun = begin(log, &op, &mut known).await?;
    let mut scan: Scan<'_, Home> = Scan::open(log.side(), &op, log.homes(), pace, begun).await?;
    let about = log.dynamo().about_items(&op, &[log.homes()]).await;
    let mut so_far =
        RebuildProgress { about, resumed: scan.earlier.items, dropped: scan.earlier.dropped.clone(), ..RebuildProgress::default() };
    let lacks = |item: &Item| match log.home(item) {
        Ok(home) => {
            let lacks = home.and_then(indexed).filter(|(_, entry)| !known.commits.contains(&entry.commit));
            lacks.map(|(turn, entry)| Some((turn.0, Packed::new(&entry))))
        }
        // What cannot be read is for `verify` to name.
        Err(_) => Some(None),
    };
    let look = |items: &[Item]| items.iter().filter_map(&lacks).collect();
    scan.run(look, |items, lacking| progress(&RebuildProgress { items, lacking, ..so_far.clone() })).await?;
    (so_far.items, so_far.lacking) = (scan.items(), 0);
    let found = scan.take();
    let unreadable = found.iter().filter(|home| home.is_none()).count() as u64;
    let turn = |(place, packed): (String, Packed)| packed.entry().map(|entry| ((place, entry.stamp, entry.commit), packed));
    let mut lacking: Lacking = found.into_iter().flatten().map(turn).collect::<Result<_>>()?;
    known.read_on(log, &op).await?;
    let (writer, begun) = (log.dynamo().env().new_id(), scan.begun.clone());
    let mut rebuild = Rebuild { log, op: &op, known, writer, span: None, begun, unreadable, held: 0, epochs: 0 };
    let stuck = rebuild.complete(&mut lacking).await?;
    let lacking = rebuild.hold_back(lacking, &stuck).await?;
    rebuild.append(lacking, &mut so_far, progress).await?;
    scan.finish().await;
    let trimmed = rebuild.known.last.as_ref().is_some_and(|last| last.gap.is_some());
    let RebuildProgress { items, resumed, dropped, appended, .. } = so_far;
    let Rebuild { held, epochs, .. } = rebuild;
    Ok(IndexRebuilt { items, resumed, dropped, unreadable, held, appended, epochs, trimmed, units: op.units() })
}

/// What must be known from before the scan.
async fn begin(log: &dyn Indexable, op: &Op, known: &mut Known) -> Result<Begun> {
    let dynamo = log.dynamo();
    let began = now(log);
    // What a shard held that is gone before the scan begins, the scan finds. An indexer's rights are not needed for a rebuild.
    let stream = dynamo.stream_of(op, log.log_table()).await.ok();
    let described = match &stream {
        Some(stream) => dynamo.shards(op, stream).await.ok(),
        None => None,
    };
    known.read_on(log, op).await?;
    let there: Option<HashSet<String>> = described.map(|shards| shards.into_iter().map(|shard| shard.id).collect());
    let named = known.last.iter().flat_map(|last| last.shards.keys());
    let gone: BTreeSet<String> = named.filter(|id| there.as_ref().is_some_and(|there| !there.contains(*id))).cloned().collect();
    let gap = known.last.as_ref().and_then(|last| last.gap).map(|gap| gap.found);
    Ok(Begun { id: dynamo.env().new_id(), began, parts: PARTS, incarnation: log.incarnation(), stream, gone, gap })
}

struct Rebuild<'a> {
    log: &'a dyn Indexable,
    op: &'a Op,
    known: Known,
    writer: Uuid,
    /// What it put that may come again by the stream.
    span: Option<Span>,
    /// What was known before the scan, of its first run.
    begun: Begun,
    /// Homes that cannot be read.
    unreadable: u64,
    /// Commits that follow what cannot be read.
    held: u64,
    epochs: u64,
}

impl Rebuild<'_> {
    /// Adds what young commits follow and the scan did not meet. Which of them follow what cannot be read.
    async fn complete(&self, lacking: &mut Lacking) -> Result<HashSet<CommitId>> {
        // Where stamps are not ours, any may be young; and what follows a home that cannot be read may be as old as that.
        let any = self.log.counts_events() || self.unreadable > 0;
        let young = if any { 0 } else { self.begun.began.saturating_sub(HOUR) };
        let mut met: HashSet<CommitId> = lacking.keys().map(|(_, _, commit)| *commit).collect();
        let is_young = |((place, stamp, _), packed): (&Turn, &Packed)| (*stamp >= young).then(|| (place.clone(), packed.clone()));
        let mut unsure: Vec<(String, Packed)> = lacking.iter().filter_map(is_young).collect();
        let end = |(_, packed): &(String, Packed)| packed.entry().map(|entry| (entry.home.0.key(&entry.namespace), entry.home.1));
        let ends: HashSet<(String, u64)> = unsure.iter().map(end).collect::<Result<_>>()?;
        let mut stuck = HashSet::new();
        while let Some((place, packed)) = unsure.pop() {
            let entry = packed.entry()?;
            for (series, version) in self.slots(&entry).await? {
                let key = series.key(&entry.namespace);
                let before = if place.is_empty() {
                    let first = if self.log.counts_events() { entry.first(version) } else { version };
                    if first <= 1 || ends.contains(&(key.clone(), first - 1)) {
                        continue;
                    }
                    self.at(&key, first - 1, &mut met).await
                } else {
                    self.before(&key, &place, &mut met).await
                };
                let before = match before {
                    Err(Error::Corrupt(_)) => Preceding::Unreadable,
                    before => before?,
                };
                match before {
                    Preceding::Settled => {}
                    Preceding::Lacks(turn, before) => {
                        unsure.push((turn.0.clone(), Packed::new(&before)));
                        lacking.insert(turn, Packed::new(&before));
                    }
                    Preceding::Unreadable => drop(stuck.insert(entry.commit)),
                }
            }
        }
        Ok(stuck)
    }

    /// What left this version of a series.
    async fn at(&self, series: &str, version: u64, met: &mut HashSet<CommitId>) -> Result<Preceding> {
        let Some((commit, _)) = self.log.commit_at(self.op, series, version).await? else { return Ok(Preceding::Settled) };
        if self.known.commits.contains(&commit) || met.contains(&commit) {
            return Ok(Preceding::Settled);
        }
        let there = self.log.home_of(self.op, series, version).await?.and_then(indexed);
        let Some((turn, there)) = there else { return Ok(Preceding::Unreadable) };
        met.insert(commit);
        Ok(Preceding::Lacks(turn, Box::new(there)))
    }

    /// What stands before a place on a series.
    async fn before(&self, series: &str, place: &str, met: &mut HashSet<CommitId>) -> Result<Preceding> {
        let mut place = place.to_owned();
        while let Some(before) = self.log.before(self.op, series, &place).await? {
            if self.known.commits.contains(&before.commit) || met.contains(&before.commit) {
                break;
            }
            let there = self.log.notice_of(self.op, series, before.commit).await?.and_then(indexed);
            // A row without its event: what is before that counts.
            let Some((turn, there)) = there else {
                place = before.place;
                continue;
            };
            let lacks = !self.known.commits.contains(&there.commit) && met.insert(there.commit);
            return Ok(if lacks { Preceding::Lacks(turn, Box::new(there)) } else { Preceding::Settled });
        }
        Ok(Preceding::Settled)
    }

    /// What may be appended, in its order: neither what is stuck behind something that cannot be read, nor what follows that.
    async fn hold_back(&mut self, lacking: Lacking, stuck: &HashSet<CommitId>) -> Result<VecDeque<(CommitId, Packed)>> {
        let mut lacking: VecDeque<(CommitId, Packed)> = lacking.into_iter().map(|((.., commit), packed)| (commit, packed)).collect();
        if self.log.counts_events() {
            lacking = by_version(lacking)?;
        }
        if stuck.is_empty() {
            return Ok(lacking);
        }
        let (mut held_on, mut free) = (HashSet::new(), VecDeque::new());
        for (commit, packed) in lacking {
            let entry = packed.entry()?;
            // Those without versions stand by places, and these order tags.
            let orders = |(series, version): &(Series, u64)| *version > 0 || matches!(series, Series::Tag(_));
            let slots = self.slots(&entry).await?.into_iter().filter(orders);
            let series: Vec<String> = slots.map(|(series, _)| series.key(&entry.namespace)).collect();
            if stuck.contains(&commit) || series.iter().any(|series| held_on.contains(series)) {
                held_on.extend(series);
                self.held += 1;
            } else {
                free.push_back((commit, packed));
            }
        }
        Ok(free)
    }

    async fn slots(&self, entry: &Indexed) -> Result<BTreeMap<Series, u64>> {
        if let Some(slots) = &entry.slots {
            return Ok(slots.clone());
        }
        let home = self.log.home_of(self.op, &entry.home.0.key(&entry.namespace), entry.home.1).await?;
        Ok(home.and_then(|home| home.slots).into_iter().flatten().filter_map(|(key, version)| Some((split(&key)?.1, version))).collect())
    }

    async fn append(
        &mut self,
        mut lacking: VecDeque<(CommitId, Packed)>,
        so_far: &mut RebuildProgress,
        progress: &(dyn Fn(&RebuildProgress) + Send + Sync),
    ) -> Result<()> {
        loop {
            // What an indexer was quicker with.
            lacking.retain(|(commit, _)| !self.known.commits.contains(commit));
            // As long as nobody else puts an epoch, nothing of the rest is known.
            loop {
                if lacking.is_empty() && !self.heals() && !self.is_other_stream() && !self.must_tell() {
                    return Ok(());
                }
                let entries = lacking.iter().take(MAX_ENTRIES).map(|(_, packed)| packed.entry()).collect::<Result<Vec<_>>>()?;
                let epoch = self.epoch(&entries, lacking.len())?;
                let count = epoch.entries.len();
                if !self.log.side().put_epoch(self.op, &epoch, Under::NextNumber).await? {
                    break;
                }
                lacking.drain(..count);
                so_far.appended += count as u64;
                so_far.lacking = so_far.appended + lacking.len() as u64;
                self.epochs += u64::from(count > 0);
                self.span = self.spanned(&epoch);
                self.known.commits.extend(epoch.entries.iter().map(|entry| entry.commit));
                self.known.last = Some(Epoch { entries: Vec::new(), ..epoch });
                progress(so_far);
            }
            self.known.read_on(self.log, self.op).await?;
        }
    }

    /// Whether the chain says that records were lost, and the scan has found all of them: not those of which it was said since it began.
    fn heals(&self) -> bool {
        let gap = self.known.last.as_ref().and_then(|last| last.gap).map(|gap| gap.found);
        gap.is_some() && gap == self.begun.gap && self.is_whole()
    }

    /// Whether the index lacks nothing that the scan met.
    fn is_whole(&self) -> bool {
        self.unreadable == 0 && self.held == 0
    }

    /// Whether it lacks something, and the chain does not say so yet: an indexer would take what is old for indexed.
    fn must_tell(&self) -> bool {
        let gap = self.known.last.as_ref().and_then(|last| last.gap);
        !self.is_whole() && gap.is_none_or(|gap| gap.since > 0)
    }

    /// A shard that came since is not known yet, but one that is in the chain and was not described is gone.
    fn still_there(&self, marks: &BTreeMap<String, Mark>) -> BTreeMap<String, Mark> {
        marks.iter().filter(|(id, _)| !self.begun.gone.contains(*id)).map(|(id, mark)| (id.clone(), mark.clone())).collect()
    }

    /// Whether the chain was built from another stream than the table has now.
    fn is_other_stream(&self) -> bool {
        let built_from = self.known.last.as_ref().and_then(|last| last.stream.as_ref());
        self.begun.stream.is_some() && built_from.is_some() && built_from != self.begun.stream.as_ref()
    }

    /// What may come again by the stream, this epoch included.
    fn spanned(&self, epoch: &Epoch) -> Option<Span> {
        let (last, time) = (epoch.number, epoch.time);
        let may_come = epoch.entries.iter().any(|entry| Rebuilt::may_come(self.log, entry, time));
        if !may_come {
            return self.span;
        }
        Some(Span { first: self.span.map_or(epoch.number, |span| span.first), last, time })
    }

    /// The next epoch, of the first of so many that lack: what the last one says of the stream stays, since nothing was read of it.
    fn epoch(&self, entries: &[Indexed], lacking: usize) -> Result<Epoch> {
        let number = self.known.next();
        let last = self.known.last.as_ref();
        // All that another stream had is in the scan, and of this one nothing was read.
        let last = last.filter(|_| !self.is_other_stream());
        let gap = self.known.last.as_ref().and_then(|last| last.gap);
        let young = Rebuilt::young(self.known.last.as_ref().map_or(&[][..], |last| last.rebuilt.as_slice()), now(self.log));
        let others = young.into_iter().filter(|span| self.span.is_none_or(|own| own.first != span.first));
        let template = Epoch {
            number,
            time: now(self.log),
            writer: self.writer,
            stream: last.map_or_else(|| self.begun.stream.clone(), |last| last.stream.clone()),
            shards: last.map(|last| self.still_there(&last.shards)).unwrap_or_default(),
            ids: last.map(|last| last.ids.clone()).unwrap_or_default(),
            rebuilt: others.collect(),
            gap,
            // All that had been written before the scan is in the index once all is appended.
            looked: last.map_or(self.begun.began, |last| last.looked),
            chain: self.known.last.as_ref().map_or(Some(self.writer), |last| last.chain),
            begun: self.known.last.as_ref().and_then(|last| last.begun),
            entries: Vec::new(),
        };
        let count = if entries.is_empty() { 0 } else { template.cut(entries, template.ids.len()) };
        let all = count == lacking;
        let looked = if all { template.looked.max(self.begun.began) } else { template.looked };
        let gap = match self.is_whole() {
            true => template.gap.filter(|_| !(all && self.heals())),
            // What lacks may be of any age.
            false => Some(Gap { found: template.gap.map_or(template.time, |gap| gap.found), since: 0 }),
        };
        let begun = template.begun.filter(|_| !(all && self.is_whole()));
        let mut epoch = Epoch { entries: entries[..count].to_vec(), gap, begun, looked, ..template };
        let span = self.spanned(&epoch);
        epoch.rebuilt.extend(span);
        if count == 0 && !all {
            return Err(Error::corrupt("log", "a commit does not fit an epoch"));
        }
        Ok(epoch)
    }
}

/// In the order given, but of each series by version.
fn by_version(entries: VecDeque<(CommitId, Packed)>) -> Result<VecDeque<(CommitId, Packed)>> {
    let (mut numbers, mut order) = (HashMap::new(), Vec::with_capacity(entries.len()));
    let mut turns: Vec<BTreeMap<(u64, CommitId), Packed>> = Vec::new();
    for (commit, packed) in entries {
        let Indexed { namespace, home: (series, version), .. } = packed.entry()?;
        let number = *numbers.entry((namespace, series)).or_insert(turns.len());
        if number == turns.len() {
            turns.push(BTreeMap::new());
        }
        turns[number].insert((version, commit), packed);
        order.push(number);
    }
    Ok(order.into_iter().filter_map(|number| turns[number].pop_first()).map(|((_, commit), packed)| (commit, packed)).collect())
}

/// By its home alone. The types of events that lie in other slots only are not known then, meaning any.
fn indexed(notice: Notice) -> Option<(Turn, Indexed)> {
    let (namespace, home) = split(&notice.series)?;
    let slots: BTreeMap<_, _> = notice.slots?.into_iter().filter_map(|(key, version)| Some((split(&key)?.1, version))).collect();
    let alone = notice.place.is_some() || slots.len() == 1;
    let (types, events) = (notice.types.filter(|_| alone), alone.then_some(notice.events));
    let turn = (notice.place.unwrap_or_default(), notice.stamp, notice.commit);
    Some((turn, Indexed::new(namespace.into(), notice.commit, notice.stamp, (home, notice.version), slots, types, events)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, Tag};

    /// As many may lack as there are commits: what the documentation says of memory rests on this.
    #[test]
    fn an_entry_that_lacks_is_held_in_few_bytes() {
        let tag = |n: u32| Series::Tag(Tag::new(format!("customer:{}", Uuid::from_u128(n.into()))).expect("a tag"));
        let slots: BTreeMap<Series, u64> = (0..3).map(|n| (tag(n), 1_000_000)).collect();
        let types = ["OrderPlaced", "PaymentReserved"].map(|name| EventType::new(name).expect("a type"));
        let commit = CommitId(Uuid::from_u128(7));
        let entry = Indexed::new("main".into(), commit, 1_767_225_600_000_000, (tag(0), 1_000_000), slots, Some(types.into()), Some(2));
        let packed = Packed::new(&entry);
        assert_eq!(packed.entry().expect("an entry"), entry);
        let bytes = size_of::<(Turn, Packed)>() + packed.0.len();
        assert!((200..500).contains(&bytes), "{bytes}");
    }
}
