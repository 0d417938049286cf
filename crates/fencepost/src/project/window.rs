//! What a consumer has read and not finished: which event may be handled next, and how far everything is done. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::Timestamp;

use crate::event::Recorded;
use crate::position::{Checkpoint, Position};

/// What is finished behind an event that takes long is repeated after a crash: so many times what may be unfinished, and no more.
const BEHIND: usize = 8;

/// An event that may be handled now: nothing before it under any of its keys is unfinished.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) sequence: u64,
    pub(super) event: Box<Recorded>,
    pub(super) keys: Vec<String>,
    pub(super) partition: u32,
    pub(super) checkpoint: Checkpoint,
    /// Covers all before the event; none where that is not known.
    pub(super) before: Option<Checkpoint>,
}

/// How far all is done.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Low {
    pub(super) checkpoint: Option<Checkpoint>,
    /// Without a checkpoint: it was rewound to the start, wherever it would begin by itself.
    pub(super) rewound: bool,
    /// The last event at or before the checkpoint.
    pub(super) last: Option<(Position, Timestamp)>,
    /// Events finished.
    pub(super) finished: u64,
}

#[derive(Debug)]
struct Entry {
    checkpoint: Checkpoint,
    /// Taken when it is handed out.
    event: Option<(Box<Recorded>, Option<Checkpoint>)>,
    keys: Vec<String>,
    /// Whose event it is.
    partition: u32,
    last: Option<(Position, Timestamp)>,
    done: bool,
}

/// Events in the order of the feed, finished in any order that keeps each key's.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The sequence of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// Under each key, what is unfinished.
    queues: HashMap<String, VecDeque<u64>>,
    ready: VecDeque<u64>,
    /// Entries that are events, unfinished.
    unfinished: usize,
    low: Low,
    /// The checkpoint of the last thing read.
    read: Option<Checkpoint>,
}

impl Window {
    pub(super) fn begin(low: Low) -> Self {
        Window { read: low.checkpoint.clone(), low, ..Window::default() }
    }
    /// How far everything is done.
    pub(super) fn low(&self) -> &Low {
        &self.low
    }
    /// Where the feed stands: behind the last thing read.
    pub(super) fn read(&self) -> Option<&Checkpoint> {
        self.read.as_ref()
    }
    /// Events read and not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }
    /// Whether no more is to be read: so many are unfinished, or [`BEHIND`] times as many are held up by one that is.
    pub(super) fn is_full(&self, read_ahead: usize) -> bool {
        self.unfinished >= read_ahead || self.entries.len() >= read_ahead.saturating_mul(BEHIND)
    }

    /// One more event, of this partition. Keys may repeat.
    pub(super) fn push(&mut self, event: Box<Recorded>, mut keys: Vec<String>, partition: u32, checkpoint: Checkpoint) {
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        let sequence = self.first + self.entries.len() as u64;
        for key in &keys {
            self.queues.entry(key.clone()).or_default().push_back(sequence);
        }
        let before = self.read.replace(checkpoint.clone());
        let last = Some((event.position, event.recorded_at));
        self.entries.push_back(Entry { checkpoint, event: Some((event, before)), keys, partition, last, done: false });
        self.unfinished += 1;
        if self.is_first(sequence) {
            self.ready.push_back(sequence);
        }
    }

    /// Nothing for this consumer up to here.
    pub(super) fn pass(&mut self, checkpoint: Checkpoint) {
        self.read = Some(checkpoint.clone());
        match self.entries.back_mut() {
            None => self.low.checkpoint = Some(checkpoint),
            // A finished entry at the end stands behind an unfinished one: it moves on.
            Some(last) if last.done => last.checkpoint = checkpoint,
            Some(_) => self.entries.push_back(Entry { checkpoint, event: None, keys: Vec::new(), partition: 0, last: None, done: true }),
        }
    }

    /// The next event that may be handled, of partitions where leave is given to begin something, and that leave: it is asked for once, since by
    /// the next moment it may be over. The event is unfinished until [`Window::finish`].
    pub(super) fn next<L>(&mut self, leave: impl Fn(u32) -> Option<L>) -> Option<(Ready, L)> {
        let (at, leave) = (0..self.ready.len()).find_map(|at| {
            let entry = self.entry(self.ready[at])?;
            Some((at, leave(entry.partition)?))
        })?;
        let sequence = self.ready.remove(at)?;
        let entry = self.entry(sequence)?;
        let (event, before) = entry.event.take()?;
        let (keys, partition, checkpoint) = (entry.keys.clone(), entry.partition, entry.checkpoint.clone());
        Some((Ready { sequence, event, keys, partition, checkpoint, before }, leave))
    }

    /// How far these partitions are done, whatever the others are at.
    pub(super) fn low_of(&self, of: impl Fn(u32) -> bool) -> Low {
        let mut low = self.low.clone();
        for entry in self.entries.iter().take_while(|entry| entry.done || !of(entry.partition)) {
            low.last = entry.last.or(low.last);
            low.checkpoint = Some(entry.checkpoint.clone());
        }
        low
    }

    /// The partition is not read here any more: what was not finished of it is left to whoever reads it next.
    pub(super) fn drop_all_of(&mut self, partition: u32) {
        let unfinished = (self.first..).zip(&self.entries).filter(|(_, entry)| !entry.done && entry.partition == partition);
        for sequence in unfinished.map(|(sequence, _)| sequence).collect::<Vec<_>>() {
            self.ready.retain(|ready| *ready != sequence);
            self.finish(sequence);
        }
    }

    /// It is about to be put away elsewhere, in its order: what waited behind it need not wait for that, but the mark does.
    pub(super) fn set_aside(&mut self, sequence: u64) {
        let Some(entry) = self.entry(sequence) else { return };
        let keys = std::mem::take(&mut entry.keys);
        self.free(sequence, &keys);
    }

    /// It is done with: what waited behind it may go, and the mark moves over all that is done from the front.
    pub(super) fn finish(&mut self, sequence: u64) {
        let Some(entry) = self.entry(sequence) else { return };
        if std::mem::replace(&mut entry.done, true) {
            return;
        }
        let keys = std::mem::take(&mut entry.keys);
        self.unfinished -= 1;
        self.free(sequence, &keys);
        while self.entries.front().is_some_and(|entry| entry.done) {
            let Some(done) = self.entries.pop_front() else { break };
            self.first += 1;
            self.low.finished += u64::from(done.last.is_some());
            self.low.last = done.last.or(self.low.last);
            self.low.checkpoint = Some(done.checkpoint);
        }
    }

    /// What was behind it under these keys, and is behind nothing else, may be handled.
    fn free(&mut self, sequence: u64, keys: &[String]) {
        let mut freed = Vec::new();
        for key in keys {
            let Some(queue) = self.queues.get_mut(key) else { continue };
            queue.retain(|waiting| *waiting != sequence);
            freed.extend(queue.front());
            if queue.is_empty() {
                self.queues.remove(key);
            }
        }
        freed.sort_unstable();
        freed.dedup();
        for next in freed {
            if self.is_first(next) && !self.ready.contains(&next) {
                self.ready.push_back(next);
            }
        }
    }

    fn entry(&mut self, sequence: u64) -> Option<&mut Entry> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(at)
    }

    /// Whether it waits for nothing: first under each of its keys, and not handed out yet.
    fn is_first(&mut self, sequence: u64) -> bool {
        let Some(entry) = self.entry(sequence) else { return false };
        if entry.event.is_none() {
            return false;
        }
        let keys = entry.keys.clone();
        keys.iter().all(|key| self.queues.get(key).and_then(VecDeque::front) == Some(&sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventType, Metadata};

    fn checkpoint(n: u64) -> Checkpoint {
        Checkpoint::seal("test", &n)
    }

    fn push(window: &mut Window, n: u64, keys: &[&str]) {
        let data = Event::new("T", "{}").expect("an event").data().clone();
        let ty = EventType::new("T").expect("a type");
        let event = Recorded::new(Position::number(n), uuid::Uuid::nil(), ty, data, Vec::new(), Metadata::default(), Timestamp::UNIX_EPOCH);
        let partition = u32::from(keys[0] == "b");
        window.push(Box::new(event), keys.iter().map(|key| (*key).to_owned()).collect(), partition, checkpoint(n));
    }

    fn started(window: &mut Window) -> Vec<u64> {
        std::iter::from_fn(|| window.next(|_| Some(()))).map(|(ready, ())| ready.event.position.as_number().expect("a number")).collect()
    }

    #[test]
    fn one_key_goes_in_order_and_the_others_do_not_wait() {
        let mut window = Window::default();
        for (n, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b")] {
            push(&mut window, n, &[key]);
        }
        assert_eq!(started(&mut window), [1, 3]);
        window.finish(2);
        assert_eq!(started(&mut window), [5]);
        window.finish(0);
        assert_eq!(started(&mut window), [2]);
        window.finish(1);
        assert_eq!(started(&mut window), [4]);
    }

    #[test]
    fn an_event_with_several_keys_waits_for_all_of_them() {
        let mut window = Window::default();
        push(&mut window, 1, &["a"]);
        push(&mut window, 2, &["b"]);
        push(&mut window, 3, &["b", "a", "b"]);
        push(&mut window, 4, &["a"]);
        assert_eq!(started(&mut window), [1, 2]);
        window.finish(0);
        assert_eq!(started(&mut window), [] as [u64; 0]);
        window.finish(1);
        assert_eq!(started(&mut window), [3]);
        window.finish(2);
        assert_eq!(started(&mut window), [4]);
    }

    #[test]
    fn the_mark_moves_only_over_what_is_done() {
        let mut window = Window::default();
        for (n, key) in [(1, "a"), (2, "b"), (3, "c")] {
            push(&mut window, n, &[key]);
        }
        window.pass(checkpoint(9));
        assert_eq!(started(&mut window), [1, 2, 3]);
        window.finish(1);
        assert_eq!(window.low().checkpoint, None);
        window.finish(0);
        assert_eq!(window.low().checkpoint, Some(checkpoint(2)), "not past the third, though all is read");
        window.finish(2);
        assert_eq!(window.low().checkpoint, Some(checkpoint(9)));
        assert_eq!((window.low().finished, window.low().last.map(|(at, _)| at)), (3, Some(Position::number(3))));
        window.pass(checkpoint(12));
        assert_eq!(window.low().checkpoint, Some(checkpoint(12)));
        window.finish(1);
        assert_eq!((window.low().finished, window.unfinished()), (3, 0), "finished twice counts once");
    }

    #[test]
    fn what_is_set_aside_holds_up_the_mark_and_not_its_keys() {
        let mut window = Window::default();
        for n in 1..=3 {
            push(&mut window, n, &["a"]);
        }
        assert_eq!(started(&mut window), [1]);
        window.set_aside(0);
        assert_eq!(started(&mut window), [2]);
        window.finish(1);
        assert_eq!((started(&mut window), window.low().checkpoint.clone(), window.unfinished()), (vec![3], None, 2));
        window.finish(0);
        assert_eq!(window.low().checkpoint, Some(checkpoint(2)));
    }

    #[test]
    fn of_a_partition_that_leaves_nothing_begins_and_its_place_is_before_what_has_not() {
        let mut window = Window::default();
        for (n, key) in [(1, "a"), (2, "b"), (3, "b"), (4, "a"), (5, "b")] {
            push(&mut window, n, &[key]);
        }
        let begun = |next: Option<(Ready, ())>| next.and_then(|(ready, ())| ready.event.position.as_number());
        let of_the_other = |partition| (partition == 1).then_some(());
        assert_eq!(begun(window.next(of_the_other)), Some(2));
        assert_eq!(begun(window.next(of_the_other)), None, "the first is of a partition that leaves");
        window.finish(1);
        assert_eq!(window.low().checkpoint, None);
        assert_eq!(window.low_of(|partition| partition == 1).checkpoint, Some(checkpoint(2)));
        assert_eq!(window.low_of(|partition| partition == 0).checkpoint, None);
        window.drop_all_of(0);
        assert_eq!(window.low().checkpoint, Some(checkpoint(2)), "the other one's place");
        assert_eq!(started(&mut window), [3]);
        window.finish(2);
        assert_eq!((started(&mut window), window.unfinished()), (vec![5], 1));
    }

    /// A lease is silent for too long from one moment to the next: an event that was taken out by then, and not handed out, would never be again.
    #[test]
    fn leave_that_ends_after_it_was_asked_for_loses_no_event() {
        let mut window = Window::default();
        push(&mut window, 1, &["a"]);
        let moments = std::cell::Cell::new(0);
        let for_a_moment = |_| (moments.replace(moments.get() + 1) == 0).then_some(());
        let begun: Vec<_> = window.next(for_a_moment).into_iter().chain(window.next(|_| Some(()))).collect();
        assert_eq!(begun.len(), 1);
    }

    #[test]
    fn what_is_handed_out_knows_what_covers_all_before_it() {
        let mut window = Window::begin(Low { checkpoint: Some(checkpoint(4)), ..Low::default() });
        push(&mut window, 5, &["a"]);
        window.pass(checkpoint(7));
        push(&mut window, 8, &["b"]);
        let befores: Vec<_> = std::iter::from_fn(|| window.next(|_| Some(()))).map(|(ready, ())| ready.before).collect();
        assert_eq!(befores, [Some(checkpoint(4)), Some(checkpoint(7))]);
    }
}
