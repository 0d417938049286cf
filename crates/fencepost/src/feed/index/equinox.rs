//! The indexer of Equinox's tables: the same poller over the same stream, and what its records announce put into the index that the tables
//! have, by the layout's own appends. How far the stream was read is a checkpoint in the side table.
//!
//! It needs no plan and no list of ids. A stream's appends all go through one item, so that its records come in order; what comes twice or
//! not at all is known by the index itself, since it says of every stream how far it is. So two that run at once do no harm, and the
//! checkpoint may be of either: what it covers is in the index, and what is read again is not put again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use futures::TryStreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::compare::IndexVerified;
use super::poll::{Poller, now_of};
use super::rebuild::{IndexRebuilt, RebuildProgress};
use super::run::{AGAIN, AGAIN_AT_MOST, LOOKED, unlooked};
use super::scan::{PARTS, Pace, Scan};
use super::shards::{FORGETS, QUIET, SURE, Shards};
use super::status::{IndexStatus, ShardStatus, Unread, oldest, since, time};
use super::{IndexOptions, IndexProgress, Until};
use crate::dynamo::item::Item;
use crate::dynamo::records::Sequence;
use crate::dynamo::{Freshness, Op};
use crate::error::Result;
use crate::feed::equinox::Reached as Fed;
use crate::layout::equinox::{Covered, Entry, Equinox, LAYOUT, Place, Put, Span, Whole, span, whole_item};
use crate::layout::{Finding, VerifyProgress};
use crate::position::Checkpoint;
use crate::side::epoch::Mark;
use crate::side::scan::Begun;
use crate::state::{Checkpoints, Revision};

/// The checkpoint's name. A dot, so that a consumer called `index` has a place of its own.
const NAME: &str = "fencepost.index";
/// What they are sealed as.
const MARKS: &str = "equinox-index";
/// How far the stream was read is saved when there is nothing more to read, and this often.
const SAVED_AFTER: Duration = Duration::from_secs(5);
/// Differences that are told one by one.
const TOLD: usize = 1_000;

/// How far the table's stream was read: all of it is in the index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Marks {
    stream: Option<String>,
    shards: BTreeMap<String, Reached>,
    /// When it was found that records were trimmed before they were read; a rebuild clears it.
    gap: Option<u64>,
    /// No record was unread that had been written before this.
    looked: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Reached {
    done: Option<Sequence>,
    /// When that was written.
    at: Option<u64>,
    finished: bool,
}

impl Marks {
    async fn load(store: &Equinox) -> Result<(Marks, Option<Revision>)> {
        match Checkpoints::load(store.side(), NAME).await? {
            // What an older release has saved says too little: the stream is read from its oldest record, and nothing is put twice.
            Some((sealed, revision)) if sealed.layout() == LAYOUT => Ok((Marks::default(), Some(revision))),
            Some((sealed, revision)) => Ok((sealed.open(MARKS)?, Some(revision))),
            None => Ok((Marks::default(), None)),
        }
    }
    async fn save(&self, store: &Equinox, expect: Option<Revision>) -> Result<Option<Revision>> {
        Checkpoints::save(store.side(), NAME, &Checkpoint::seal(MARKS, self), expect).await
    }
    fn shards(&self) -> Shards {
        let mark = |reached: &Reached| match reached.finished {
            true => Mark::Finished,
            false => Mark::At { done: reached.done.clone(), first: None, read: None, at: reached.at },
        };
        Shards::resume(&self.shards.iter().map(|(id, reached)| (id.clone(), mark(reached))).collect(), self.looked)
    }
    fn of(stream: &str, shards: &Shards, gap: Option<u64>) -> Marks {
        let reached = |mark| match mark {
            Mark::Finished => Reached { done: None, at: None, finished: true },
            Mark::At { done, at, .. } => Reached { done, at, finished: false },
        };
        let marks = shards.marks().into_iter().map(|(id, mark)| (id, reached(mark))).collect();
        Marks { stream: Some(stream.into()), shards: marks, gap, looked: shards.looked() }
    }
}

pub(super) struct Runner<'a> {
    store: &'a Equinox,
    options: &'a IndexOptions,
    progress: &'a (dyn Fn(&IndexProgress) + Send + Sync),
    so_far: IndexProgress,
    op: Op,
}

impl<'a> Runner<'a> {
    pub(super) fn new(store: &'a Equinox, options: &'a IndexOptions, progress: &'a (dyn Fn(&IndexProgress) + Send + Sync)) -> Self {
        Self { store, options, progress, so_far: IndexProgress::default(), op: store.side().dynamo().long_op() }
    }
    pub(super) fn so_far(&self) -> IndexProgress {
        IndexProgress { units: self.op.units(), ..self.so_far.clone() }
    }

    pub(super) async fn run(&mut self) -> Result<()> {
        let mut again = AGAIN;
        loop {
            match self.session().await {
                Ok(()) => return Ok(()),
                // One that runs until it is stopped outlasts a service that is away.
                Err(error) if error.is_retryable() && self.options.until == Until::Stopped => {
                    tracing::warn!(%error, "the indexer begins again from what it has saved");
                    metrics::counter!("fencepost_index_errors_total").increment(1);
                    self.store.side().dynamo().env().sleep(again).await;
                    again = (again * 2).min(AGAIN_AT_MOST);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn session(&mut self) -> Result<()> {
        let mut session = Session::resume(self.store, &self.op).await?;
        let dynamo = self.store.side().dynamo();
        let mut appended = self.store.side().rings();
        let (mut quiet, mut pause, mut polled, mut told) = (0, self.options.idle_at_least, now(self.store), false);
        loop {
            // Whatever rings from here on may have come too late for this round.
            appended.mark_unchanged();
            // Asleep for so long, it does not see what a shard has lost of which it had read nothing: what was saved tells.
            if polled + FORGETS < now(self.store) {
                session = Session::resume(self.store, &self.op).await?;
            }
            polled = now(self.store);
            let (moved, put) = session.round(self.store, &self.op).await?;
            self.tell(&session, moved, put);
            if moved {
                (quiet, pause, told) = (0, self.options.idle_at_least, false);
                if session.saved.elapsed() > SAVED_AFTER {
                    session.save(self.store).await?;
                }
                continue;
            }
            quiet += 1;
            session.save(self.store).await?;
            // One that runs on comes to that many empty pages by itself; one that ends would never.
            let unsure = self.options.until == Until::CaughtUp && session.shards.is_unsure(now(self.store));
            let enough = if unsure { SURE } else { QUIET }.max(self.options.quiet);
            if quiet >= enough && !told {
                told = true;
                (self.so_far.caught_up, self.so_far.lag) = (true, Duration::ZERO);
                (self.progress)(&self.so_far);
            }
            if quiet >= enough && self.options.until == Until::CaughtUp {
                return Ok(());
            }
            if quiet < enough {
                dynamo.env().sleep(self.options.idle_at_least.min(Duration::from_millis(20))).await;
            } else {
                let _ = tokio::time::timeout(pause, appended.changed()).await;
                pause = (pause * 2).min(self.options.idle_at_most);
            }
        }
    }

    fn tell(&mut self, session: &Session, moved: bool, put: Put) {
        add(&mut self.so_far, put);
        let now = now(self.store);
        let lag = session.shards.behind().filter(|_| moved).map_or(0, |at| now.saturating_sub(at));
        self.so_far.lag = Duration::from_micros(lag);
        self.so_far.trimmed = session.gap.is_some();
        self.so_far.caught_up &= !moved;
        metrics::gauge!("fencepost_index_lag_seconds").set(self.so_far.lag.as_secs_f64());
        if moved {
            (self.progress)(&self.so_far);
        }
    }
}

/// Every event counts as a commit, since which were appended together is not stored; and every entry as an epoch, since that is what is put.
fn add(so_far: &mut IndexProgress, put: Put) {
    so_far.epochs += put.entries;
    so_far.commits += put.events;
    so_far.races_lost += put.races_lost;
    metrics::counter!("fencepost_index_epochs_total").increment(put.entries);
    metrics::counter!("fencepost_index_commits_total").increment(put.events);
}

fn now(store: &Equinox) -> u64 {
    now_of(store.side().dynamo())
}

/// From what was saved on.
struct Session {
    poller: Poller,
    shards: Shards,
    gap: Option<u64>,
    revision: Option<Revision>,
    known: Marks,
    saved: Instant,
}

impl Session {
    async fn resume(store: &Equinox, op: &Op) -> Result<Session> {
        let stream = store.side().dynamo().stream_of(op, &store.options().table).await?;
        let (known, revision) = Marks::load(store).await?;
        let now = now(store);
        let shards = if known.stream.is_some() { known.shards() } else { Shards::unknown(now) };
        let mut session = Session { poller: Poller::new(stream), shards, gap: known.gap, revision, known, saved: Instant::now() };
        if session.known.stream.as_ref().is_some_and(|known| *known != session.poller.stream) {
            session.shards = Shards::unknown(now);
            session.trimmed(store, "the table has another stream than the index was built from");
        } else if session.known.stream.is_some() && session.known.looked + FORGETS < now && session.shards.has_unread() {
            session.trimmed(store, &unlooked(session.known.looked, now));
        }
        Ok(session)
    }

    /// A page of every shard, put into the index; whether anything came.
    async fn round(&mut self, store: &Equinox, op: &Op) -> Result<(bool, Put)> {
        let polled = self.poller.poll(store.side().dynamo(), op, &mut self.shards).await?;
        for what in &polled.trimmed {
            self.trimmed(store, what);
        }
        let mut spans = Vec::new();
        for (shard, records) in polled.records {
            for record in records {
                if self.shards.read(&shard, record.sequence, record.at, None) {
                    spans.extend(span(&record.image));
                }
            }
        }
        let put = store.ingest(op, spans).await?;
        self.shards.settle(|_| true);
        Ok((polled.moved, put))
    }

    /// Said loudly, and kept until a rebuild.
    fn trimmed(&mut self, store: &Equinox, what: &str) {
        tracing::error!(
            stream = self.poller.stream,
            "{what}: events may be missing from the index; `fencepost index verify` tells which, `fencepost index rebuild` appends them"
        );
        metrics::counter!("fencepost_index_trimmed_total").increment(1);
        self.gap = Some(now(store));
    }

    /// Saves how far it is. Where another has saved meanwhile, what that one found missing stays, and the last to save is good enough.
    async fn save(&mut self, store: &Equinox) -> Result<()> {
        let marks = Marks::of(&self.poller.stream, &self.shards, self.gap);
        self.saved = Instant::now();
        // That somebody looked is said now and then, with nothing else to say.
        if marks.looked < self.known.looked + LOOKED && marks == (Marks { looked: marks.looked, ..self.known.clone() }) {
            return Ok(());
        }
        match marks.save(store, self.revision).await? {
            Some(revision) => (self.revision, self.known) = (Some(revision), marks),
            None => {
                let (other, revision) = Marks::load(store).await?;
                // A rebuild that cleared it since has also seen what was missing then.
                self.gap = other.gap.or(self.gap.filter(|_| self.known.gap.is_none()));
                (self.revision, self.known) = (revision, other);
            }
        }
        Ok(())
    }
}

/// Puts what these records announce: images of items after their change, in the order of their shard.
pub(super) async fn take(store: &Equinox, images: Vec<crate::dynamo::item::Item>) -> Result<IndexProgress> {
    let op = store.side().dynamo().long_op();
    let put = store.ingest(&op, images.iter().filter_map(span).collect()).await?;
    let mut progress = IndexProgress { caught_up: true, ..IndexProgress::default() };
    add(&mut progress, put);
    progress.units = op.units();
    Ok(progress)
}

pub(super) async fn peer_checkpoint(store: &Equinox, group: &str) -> Result<Option<Checkpoint>> {
    let op = store.side().dynamo().op();
    let mut partitions = BTreeMap::new();
    for partition in store.active_epochs(&op, Freshness::Strong).await?.into_keys() {
        partitions.extend(store.peer_position(&op, partition, group).await?.map(|position| (partition, position)));
    }
    Ok((!partitions.is_empty()).then(|| Fed::new(partitions).seal()))
}

pub(super) async fn save_peer_checkpoint(store: &Equinox, group: &str, checkpoint: &Checkpoint, every: Duration) -> Result<()> {
    let op = store.side().dynamo().op();
    for (partition, position) in Fed::open(checkpoint)?.partitions {
        store.save_peer_position(&op, partition, group, position, every).await?;
    }
    Ok(())
}

pub(super) async fn status(store: &Equinox) -> Result<IndexStatus> {
    let op = store.side().dynamo().op();
    let (marks, _) = Marks::load(store).await?;
    let (mut epochs, mut last): (u64, Option<Timestamp>) = (0, None);
    for (partition, epoch) in store.active_epochs(&op, Freshness::Strong).await? {
        let beyond = store.read_epoch(&op, partition, Place { epoch, offset: u32::MAX }, Freshness::Strong).await?;
        let end = Place { epoch, offset: u32::try_from(beyond.version.saturating_sub(1)).unwrap_or(u32::MAX) };
        let entries = store.read_epoch(&op, partition, end, Freshness::Strong).await?.entries;
        epochs += u64::from(epoch) + u64::from(beyond.version > 0);
        last = last.max(entries.last().map(|noted| noted.at));
    }
    let shard = |(id, reached): (&String, &Reached)| ShardStatus {
        id: id.clone(),
        done: reached.done.as_ref().map(|at| at.as_str().to_owned()),
        read: None,
        finished: reached.finished,
    };
    let unread = match look(store, &op, &marks).await {
        Ok(unread) => unread,
        Err(error) => Unread::Unknown(error.to_string()),
    };
    Ok(IndexStatus {
        epochs,
        last,
        stream: marks.stream.clone(),
        shards: marks.shards.iter().map(shard).collect(),
        beyond: 0,
        trimmed: marks.gap.and_then(time),
        unread,
        units: op.units(),
    })
}

pub(super) async fn lacks_since(store: &Equinox) -> Result<Option<Timestamp>> {
    let (marks, _) = Marks::load(store).await?;
    since(look(store, &store.side().dynamo().op(), &marks).await)
}

async fn look(store: &Equinox, op: &Op, marks: &Marks) -> Result<Unread> {
    if marks.stream.is_none() {
        return Ok(Unread::Unknown("no indexer has read the stream itself: where a function is fed by it, its own metrics tell".into()));
    }
    let dynamo = store.side().dynamo();
    let stream = dynamo.stream_of(op, store.table()).await?;
    oldest(dynamo, op, stream, marks.stream.as_deref(), marks.shards(), |record| span(&record.image).is_some()).await
}

/// What the index says, read from its beginning and then on.
#[derive(Default)]
struct Indexed {
    places: BTreeMap<u32, Place>,
    covered: HashMap<String, Covered>,
    findings: Vec<Finding>,
}

impl Indexed {
    async fn read_on(&mut self, store: &Equinox, op: &Op) -> Result<()> {
        for partition in store.active_epochs(op, Freshness::Strong).await?.into_keys() {
            let mut place = self.places.get(&partition).copied().unwrap_or_default();
            loop {
                let read = store.read_epoch(op, partition, place, Freshness::Strong).await?;
                for noted in &read.entries {
                    match &noted.entry {
                        Entry::Ingested(spans) => spans.iter().for_each(|span| self.take(span)),
                        Entry::Unread => {
                            let problem = format!("event {} cannot be read: `index rebuild` puts again what it named", noted.place.offset);
                            self.find(&format!("$AppendsEpoch-{partition}_{}", noted.place.epoch), problem);
                        }
                        Entry::Closed | Entry::Other => {}
                    }
                }
                place.offset = u32::try_from(read.version).unwrap_or(u32::MAX);
                if !read.closed {
                    break;
                }
                place = Place::start_of(place.epoch + 1);
            }
            self.places.insert(partition, place);
        }
        Ok(())
    }

    fn take(&mut self, span: &Span) {
        let new = self.covered.entry(span.stream.clone()).or_default().add(span.index..span.end());
        let twice = span.types.len() as u64 - new;
        if twice > 0 {
            let problem = format!("{twice} of the events {} to {} are in the index twice", span.index, span.end().saturating_sub(1));
            self.find(&span.stream, problem);
        }
    }
    fn lacking(&self, span: &Span) -> Vec<Range<u64>> {
        let range = span.index..span.end();
        match self.covered.get(&span.stream) {
            Some(covered) => covered.lacking(range),
            None if range.is_empty() => Vec::new(),
            None => vec![range],
        }
    }
    fn find(&mut self, item: &str, problem: String) {
        if self.findings.len() < TOLD {
            self.findings.push(Finding { item: item.into(), problem });
        }
    }
}

/// Reads the whole table and the whole index. Holds some 100 bytes of every stream.
pub(super) async fn verify(store: &Equinox, progress: &(dyn Fn(&VerifyProgress) + Send + Sync)) -> Result<IndexVerified> {
    let op = store.side().dynamo().long_op();
    let about = store.side().dynamo().about_items(&op, &[store.table()]).await;
    let began = store.side().dynamo().env().now();
    let mut report = IndexVerified::default();
    let mut indexed = Indexed::default();
    indexed.read_on(store, &op).await?;
    let before: HashMap<String, u64> = indexed.covered.iter().map(|(stream, covered)| (stream.clone(), covered.end())).collect();
    let mut ends: HashMap<String, u64> = HashMap::new();
    let mut unseen: Vec<Whole> = Vec::new();
    let mut pages = store.side().dynamo().scan_parts(&op, store.table(), PARTS);
    while let Some(items) = pages.try_next().await? {
        report.items += items.len() as u64;
        for whole in items.iter().filter_map(whole_item) {
            report.commits += whole.span.types.len() as u64;
            let end = ends.entry(whole.span.stream.clone()).or_default();
            *end = (*end).max(whole.span.end());
            if !indexed.lacking(&whole.span).is_empty() {
                unseen.push(whole);
            }
        }
        progress(&VerifyProgress { items: report.items, about });
    }
    // What was indexed meanwhile.
    indexed.read_on(store, &op).await?;
    for Whole { span, last } in unseen {
        for lacking in indexed.lacking(&span) {
            if last.is_none_or(|last| last >= began) {
                report.younger += lacking.end - lacking.start;
            } else {
                indexed.find(&span.stream, format!("events {} to {} are not in the index", lacking.start, lacking.end - 1));
            }
        }
    }
    let beyond: BTreeMap<&String, (u64, u64)> = before
        .iter()
        .map(|(stream, end)| (stream, (*end, ends.get(stream).copied().unwrap_or(0))))
        .filter(|(_, (end, there))| end > there)
        .collect();
    for (stream, (end, there)) in beyond {
        indexed.find(stream, format!("the index names {end} events, and the table has {there}"));
    }
    report.indexed = indexed.covered.values().map(Covered::count).sum();
    report.findings = indexed.findings;
    report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
    report.units = op.units();
    Ok(report)
}

/// Reads the whole table and appends to the index what it lacks: behind what it has of a stream as every indexer would, and what it has
/// passed already in epochs of their own.
pub(super) async fn rebuild(store: &Equinox, pace: Pace, progress: &(dyn Fn(&RebuildProgress) + Send + Sync)) -> Result<IndexRebuilt> {
    let dynamo = store.side().dynamo();
    let op = dynamo.long_op();
    let began = now(store);
    let (before, _) = Marks::load(store).await?;
    let stream = dynamo.stream_of(&op, store.table()).await.ok();
    let fresh = Begun { id: dynamo.env().new_id(), began, parts: PARTS, incarnation: 0, stream, gone: Default::default(), gap: before.gap };
    // A span's stream, first index and types.
    let mut scan: Scan<'_, (String, u64, Vec<String>)> = Scan::open(store.side(), &op, store.table(), pace, fresh).await?;
    let about = dynamo.about_items(&op, &[store.table()]).await;
    let mut so_far =
        RebuildProgress { about, resumed: scan.earlier.items, dropped: scan.earlier.dropped.clone(), ..RebuildProgress::default() };
    let mut indexed = Indexed::default();
    indexed.read_on(store, &op).await?;
    let look = |items: &[Item]| {
        let spans = items.iter().filter_map(whole_item).map(|whole| whole.span).filter(|span| !indexed.lacking(span).is_empty());
        spans.map(|Span { stream, index, types }| (stream, index, types)).collect()
    };
    scan.run(look, |items, lacking| progress(&RebuildProgress { items, lacking, ..so_far.clone() })).await?;
    so_far.items = scan.items();
    let mut unseen: Vec<Span> = scan.take().into_iter().map(|(stream, index, types)| Span { stream, index, types }).collect();
    indexed.read_on(store, &op).await?;
    // Of what was found twice, by runs that overlapped or while the item grew, the longer.
    unseen.sort_by(|a, b| (&a.stream, a.index, Reverse(a.types.len())).cmp(&(&b.stream, b.index, Reverse(b.types.len()))));
    // Holes of one stream, from the lowest up; of every stream one at a time.
    let mut rounds: Vec<Vec<Span>> = Vec::new();
    let mut holes: BTreeMap<String, usize> = BTreeMap::new();
    let mut next = Vec::new();
    let mut taken: HashMap<String, Covered> = HashMap::new();
    for span in unseen {
        let end = indexed.covered.get(&span.stream).map_or(0, Covered::end);
        let taken = taken.entry(span.stream.clone()).or_default();
        let lacks = indexed.lacking(&span).into_iter().flat_map(|range| taken.lacking(range)).collect::<Vec<_>>();
        for lacking in lacks {
            taken.add(lacking.clone());
            so_far.lacking += lacking.end - lacking.start;
            let part = cut(&span, &lacking);
            if lacking.start >= end {
                next.push(part);
                continue;
            }
            let round = holes.entry(span.stream.clone()).or_default();
            match rounds.get_mut(*round) {
                Some(spans) => spans.push(part),
                None => rounds.push(vec![part]),
            }
            *round += 1;
        }
    }
    let mut put = Put::default();
    for spans in rounds {
        put += store.ingest_late(&op, spans).await?;
        so_far.appended = put.events;
        progress(&so_far);
    }
    for spans in next.chunks(10_000) {
        put += store.ingest(&op, spans.to_vec()).await?;
        so_far.appended = put.events;
        progress(&so_far);
    }
    let (mut marks, revision) = Marks::load(store).await?;
    // One that was found since is not mended by a scan that began before.
    if marks.gap.is_some() && marks.gap == scan.begun.gap {
        let healed = Marks { gap: None, looked: marks.looked.max(scan.begun.began), ..marks.clone() };
        if healed.save(store, revision).await?.is_some() {
            marks = healed;
        }
    }
    scan.finish().await;
    let RebuildProgress { items, resumed, dropped, .. } = so_far;
    let trimmed = marks.gap.is_some();
    let (appended, epochs) = (put.events, put.entries);
    Ok(IndexRebuilt { items, resumed, dropped, unreadable: 0, held: 0, appended, epochs, trimmed, units: op.units() })
}

fn cut(span: &Span, range: &Range<u64>) -> Span {
    let types = (span.index..).zip(&span.types).filter(|(index, _)| range.contains(index)).map(|(_, kind)| kind.clone());
    Span { stream: span.stream.clone(), index: range.start, types: types.collect() }
}
