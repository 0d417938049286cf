//! Which commits of ours a Tip has seen last: what tells an append whose answer was lost from somebody else's once others wrote behind it. Pure.
//!
//! They are one attribute of the Tip that the peers pass over and keep. Nothing is paid for them: DynamoDB counts whole kilobytes, and what
//! is left of the last one holds as many as fit, the newest first of all.

use crate::event::CommitId;

/// The version behind which a commit was written, and the end of its id, which is random.
const ENTRY: usize = 8;
/// More would not settle more: a doubt is looked into at once.
const MOST: usize = 32;

/// Newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks(Vec<u8>);

impl Marks {
    /// As they were stored. What is not ours tells nothing.
    pub(super) fn of(stored: Option<&[u8]>) -> Marks {
        Marks(stored.filter(|bytes| bytes.len() % ENTRY == 0).unwrap_or_default().to_vec())
    }
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// One more, and of those before it as many as fit into so many bytes with it.
    pub(super) fn and(&self, version: u64, commit: CommitId, room: usize) -> Marks {
        let most = (room / ENTRY).clamp(1, MOST) - 1;
        let from = (self.0.len() / ENTRY).saturating_sub(most) * ENTRY;
        let mut bytes = self.0.get(from..).unwrap_or_default().to_vec();
        bytes.extend(entry(version, commit));
        Marks(bytes)
    }

    /// The versions from this one on behind which the commit may have been written.
    pub(super) fn versions(&self, from: u64, commit: CommitId) -> impl Iterator<Item = u64> {
        let written = move |(version, id): (u64, &[u8])| (entry(version, commit)[4..] == *id).then_some(version);
        entries(&self.0).filter_map(written).filter(move |version| *version >= from)
    }

    /// The newest one: as long as it is among them, all that came after it are.
    pub(super) fn newest(&self) -> &[u8] {
        self.0.last_chunk::<ENTRY>().map_or(&[], |entry| entry)
    }
    pub(super) fn reach_back_to(&self, newest: &[u8]) -> bool {
        self.0.chunks_exact(ENTRY).any(|entry| entry == newest)
    }

    /// Whether every commit of ours behind this version is among them.
    pub(super) fn reach_behind(&self, version: u64) -> bool {
        entries(&self.0).next().is_none_or(|(oldest, _)| oldest < version)
    }

    /// Whether this commit may have been written behind this version, as far as they tell.
    pub(super) fn may_hold(&self, version: u64, commit: CommitId) -> bool {
        self.versions(version, commit).any(|at| at == version) || !(self.tell_of(version) || self.reach_behind(version))
    }

    /// Whether a commit behind exactly this version is among them.
    pub(super) fn tell_of(&self, version: u64) -> bool {
        entries(&self.0).any(|(at, _)| at == version)
    }
}

fn entry(version: u64, commit: CommitId) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let (at, id) = entry.split_at_mut(4);
    at.copy_from_slice(&u32::try_from(version).unwrap_or(u32::MAX).to_be_bytes());
    id.copy_from_slice(commit.0.as_bytes().last_chunk::<4>().unwrap_or(&[0; 4]));
    entry
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    bytes.chunks_exact(ENTRY).filter_map(|entry| {
        let (version, id) = entry.split_first_chunk::<4>()?;
        Some((u64::from(u32::from_be_bytes(*version)), id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> CommitId {
        CommitId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn the_newest_are_kept_as_many_as_fit_and_one_always() {
        let three = Marks::default().and(0, id(7), 100).and(2, id(8), 100).and(3, id(9), 100);
        assert_eq!(three.versions(0, id(8)).collect::<Vec<_>>(), [2]);
        assert_eq!(three.versions(3, id(8)).next(), None, "before it began");
        assert_eq!((three.reach_behind(1), three.reach_behind(0), three.tell_of(2)), (true, false, true));
        assert_eq!([id(8), id(6)].map(|id| three.may_hold(2, id)), [true, false], "it is ours, or another's");
        assert!(!three.may_hold(1, id(6)) && Marks::default().and(5, id(7), 0).may_hold(4, id(6)), "none of ours, or who knows");
        let two = three.and(4, id(10), 17);
        assert_eq!((two.bytes().len(), two.versions(0, id(9)).next(), two.versions(0, id(8)).next()), (16, Some(3), None));
        assert_eq!((two.reach_behind(3), two.reach_behind(4)), (false, true));
        assert!(two.reach_back_to(three.newest()) && !two.and(5, id(11), 9).reach_back_to(three.newest()));
        assert!(!two.reach_back_to(Marks::default().newest()));
        assert_eq!(two.and(5, id(11), 0).bytes().len(), 8);
        assert!(Marks::of(Some(&[1, 2, 3])).bytes().is_empty() && Marks::default().reach_behind(0));
    }
}
