//! Writing commits in order, several at once as far as order allows: those that share no tag. Into a store that counts its events one after
//! another, so that the total order stays.

use std::collections::{BTreeSet, VecDeque};

use futures::future::{BoxFuture, Either, select};
use futures::stream::{BoxStream, Fuse, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use uuid::Uuid;

use super::source::Group;
use super::target::Target;
use super::{IN_FLIGHT, IN_FLIGHT_BYTES};
use crate::error::{Error, Result};
use crate::event::{CommitId, Event, Tag};
use crate::log::Capabilities;

/// Items that a commit under an id of ours may need besides its tags: its own mark, and the seal of a large one.
const BESIDE_TAGS: usize = 2;

/// The id of the commit that moves these events: the same for the same ids, wherever and whenever.
pub(super) fn commit_id(events: &[Event]) -> CommitId {
    const MOVED: Uuid = Uuid::from_u128(0x5b1d_7a52_3c0e_4a6b_9d1f_6d6f_7665_6421);
    let ids: Vec<u8> = events.iter().filter_map(Event::given_id).flat_map(|id| *id.as_bytes()).collect();
    CommitId(Uuid::new_v5(&MOVED, &ids))
}

/// How many distinct tags a commit of several events may carry before it is split.
pub(super) fn tags_of_one(capabilities: &Capabilities) -> usize {
    capabilities.max_tags.saturating_sub(BESIDE_TAGS).max(1)
}

/// A commit in as few pieces as the destination needs: one, but for what is too large for it. Depends on nothing else, so that a repeat
/// cuts as before. An event that is too large alone is left for the store to refuse.
pub(super) fn pieces(events: Vec<Event>, capabilities: &Capabilities) -> Vec<Vec<Event>> {
    let most_tags = tags_of_one(capabilities);
    // Room below the largest that a layout takes, for the times that a move adds.
    let most_bytes = capabilities.max_bytes / 8 * 7;
    let (mut pieces, mut tags, mut bytes) = (Vec::<Vec<Event>>::new(), BTreeSet::<Tag>::new(), 0);
    for event in events {
        let added = event.tags().iter().filter(|tag| !tags.contains(*tag)).count();
        let size = size(&event);
        match pieces.last_mut() {
            Some(piece) if tags.len() + added <= most_tags && bytes + size <= most_bytes && piece.len() < capabilities.max_events => {
                tags.extend(event.tags().iter().cloned());
                bytes += size;
                piece.push(event);
            }
            _ => {
                tags = event.tags().iter().cloned().collect();
                bytes = size;
                pieces.push(vec![event]);
            }
        }
    }
    pieces
}

pub(super) fn size(event: &Event) -> usize {
    event.data().len() + event.metadata().bytes()
}

/// What was written, for whoever watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) events: u64,
    pub(super) commits: u64,
    /// Commits that came in more than one piece.
    pub(super) split: u64,
}

impl std::ops::AddAssign for Written {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.commits += other.commits;
        self.split += other.split;
    }
}

/// What is known of a commit on its way.
struct Flight<P> {
    tags: BTreeSet<Option<Tag>>,
    bytes: usize,
    written: Written,
    /// Where the source goes on behind it.
    place: P,
    landed: bool,
}

/// Writes commits, and tells of each in their order once nothing before it is outstanding.
pub(super) struct Writer<'a, P> {
    target: Target,
    capabilities: Capabilities,
    groups: Fuse<BoxStream<'a, Result<Group<Event, P>>>>,
    ended: bool,
    /// The next commit, if it was read and has to wait.
    waiting: Option<(Vec<Vec<Event>>, Flight<P>)>,
    flying: FuturesUnordered<BoxFuture<'static, Result<u64>>>,
    /// In the order of the source, from the first that has not landed.
    order: VecDeque<Flight<P>>,
    first: u64,
    /// What went wrong first.
    failed: Option<Error>,
}

impl<'a, P: Send> Writer<'a, P> {
    pub(super) fn new(target: Target, capabilities: Capabilities, groups: BoxStream<'a, Result<Group<Event, P>>>) -> Self {
        let groups = groups.fuse();
        Self {
            target,
            capabilities,
            groups,
            ended: false,
            waiting: None,
            flying: FuturesUnordered::new(),
            order: VecDeque::new(),
            first: 0,
            failed: None,
        }
    }

    /// The next commit behind which nothing is outstanding: its place may be saved. None, when all is written. After an error what was under
    /// way is told of first.
    pub(super) async fn next(&mut self) -> Result<Option<(Written, P)>> {
        loop {
            if let Some(Flight { written, place, .. }) = self.pop_landed() {
                self.first += 1;
                return Ok(Some((written, place)));
            }
            if self.has_room()
                && let Some((pieces, flight)) = self.waiting.take()
            {
                self.start(pieces, flight);
                continue;
            }
            if self.waiting.is_some() || self.ended {
                match self.flying.next().await {
                    Some(landed) => self.land(landed),
                    None => return self.failed.take().map_or(Ok(None), Err),
                }
                continue;
            }
            // What flies goes on while the source is being read.
            let next = if self.flying.is_empty() {
                self.groups.next().await
            } else {
                match select(self.groups.next(), self.flying.next()).await {
                    Either::Left((next, _)) => next,
                    Either::Right((landed, _)) => {
                        landed.into_iter().for_each(|landed| self.land(landed));
                        continue;
                    }
                }
            };
            match next {
                Some(Ok(group)) => self.waiting = Some(prepare(group, &self.capabilities)),
                Some(Err(error)) => self.fail(error),
                None => self.ended = true,
            }
        }
    }

    /// Nothing more is started; what is under way may land.
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
        self.ended = true;
        self.waiting = None;
    }

    fn pop_landed(&mut self) -> Option<Flight<P>> {
        if self.order.front().is_some_and(|flight| flight.landed) { self.order.pop_front() } else { None }
    }

    /// Whether the commit that waits may start: no other on its tags is under way. What has landed behind one that takes long counts too,
    /// so that the queue is bounded.
    fn has_room(&self) -> bool {
        let Some((_, next)) = &self.waiting else { return false };
        let at_once = if self.capabilities.counted_positions { 1 } else { IN_FLIGHT };
        let flying = || self.order.iter().filter(|flight| !flight.landed);
        let bytes: usize = flying().map(|flight| flight.bytes).sum();
        self.order.is_empty()
            || (self.order.len() < at_once
                && bytes + next.bytes <= IN_FLIGHT_BYTES
                && flying().all(|flight| flight.tags.is_disjoint(&next.tags)))
    }

    fn start(&mut self, pieces: Vec<Vec<Event>>, flight: Flight<P>) {
        let (number, target) = (self.first + self.order.len() as u64, self.target.clone());
        self.order.push_back(flight);
        let commit = async move {
            for piece in pieces {
                target.append(piece).await?;
            }
            Ok(number)
        };
        self.flying.push(commit.boxed());
    }

    fn land(&mut self, landed: Result<u64>) {
        match landed {
            Ok(number) => {
                let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
                self.order.get_mut(at).into_iter().for_each(|flight| flight.landed = true);
            }
            Err(error) => self.fail(error),
        }
    }
}

fn prepare<P>(group: Group<Event, P>, capabilities: &Capabilities) -> (Vec<Vec<Event>>, Flight<P>) {
    let Group { events, place } = group;
    // Events without a tag keep their order among themselves: they share the tag that is none.
    let tags = events.iter().flat_map(|event| {
        let untagged = event.tags().is_empty().then_some(None);
        event.tags().iter().cloned().map(Some).chain(untagged)
    });
    let (tags, bytes, count) = (tags.collect(), events.iter().map(size).sum(), events.len() as u64);
    let pieces = pieces(events, capabilities);
    let written = Written { events: count, commits: 1, split: u64::from(pieces.len() > 1) };
    (pieces, Flight { tags, bytes, written, place, landed: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tags: std::ops::Range<usize>) -> Event {
        tags.fold(Event::new("T", "{}").expect("event"), |event, n| event.tag(format!("t{n}")).expect("tag"))
    }

    #[test]
    fn a_commit_is_cut_only_where_it_must_be() {
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
            snapshots: crate::log::Snapshots::Each,
            bodies: crate::log::Bodies::Bytes,
        };
        let cut = |events: Vec<Event>| pieces(events, &capabilities).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(cut((0..10).map(|n| event(n..n + 1)).collect()), [10], "as many tags as fit");
        assert_eq!(cut((0..11).map(|n| event(n..n + 1)).collect()), [10, 1]);
        assert_eq!(cut(vec![event(0..1), event(0..30), event(0..1)]), [1, 1, 1], "one event that is too large stands alone");
        assert_eq!(cut((0..1_000).map(|_| event(0..3)).collect()), [1_000], "tags count once");
    }

    #[test]
    fn the_id_is_made_of_the_ids_in_their_order() {
        let with = |ids: &[u128]| ids.iter().map(|id| event(0..1).id(Uuid::from_u128(*id))).collect::<Vec<_>>();
        assert_eq!(commit_id(&with(&[1, 2])), commit_id(&with(&[1, 2])));
        assert_ne!(commit_id(&with(&[1, 2])), commit_id(&with(&[2, 1])));
        assert_ne!(commit_id(&with(&[1, 2])), commit_id(&with(&[1])));
    }
}
