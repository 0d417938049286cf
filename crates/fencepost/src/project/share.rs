//! Sharing the work: which partitions an instance of a consumer takes, and which it asks others for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

/// A partition's lease, as an instance sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) partition: u32,
    pub(super) holder: Option<Uuid>,
    pub(super) rung: Option<Uuid>,
    pub(super) barred: bool,
    /// Its holder, or whoever it was promised to, has been silent for the lease's length.
    pub(super) silent: bool,
}

/// What to do about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) take: Vec<u32>,
    pub(super) ring: Vec<u32>,
}

/// An even share: take what is free, and ask those for the rest who hold more than that.
pub(super) fn plan(seats: &[Seat], me: Uuid) -> Plan {
    let open: Vec<&Seat> = seats.iter().filter(|seat| !seat.barred).collect();
    let alive = |seat: &&&Seat| !seat.silent;
    let mut held: BTreeMap<Uuid, usize> = BTreeMap::from([(me, 0)]);
    for holder in open.iter().filter(alive).filter_map(|seat| seat.holder) {
        *held.entry(holder).or_default() += 1;
    }
    // Who has rung is about to hold something.
    let workers: BTreeSet<Uuid> = held.keys().copied().chain(open.iter().filter(alive).filter_map(|seat| seat.rung)).collect();
    let share = open.len().div_ceil(workers.len().max(1));
    let mine = held.get(&me).copied().unwrap_or(0);
    let mut wanted = share.saturating_sub(mine);
    let mut plan = Plan::default();
    for seat in &open {
        let free = seat.silent || (seat.holder.is_none() && seat.rung.is_none_or(|ringer| ringer == me));
        if wanted > 0 && free && seat.holder != Some(me) {
            plan.take.push(seat.partition);
            wanted -= 1;
        }
    }
    wanted = wanted.saturating_sub(open.iter().filter(|seat| seat.rung == Some(me) && !plan.take.contains(&seat.partition)).count());
    for seat in &open {
        let Some(holder) = seat.holder.filter(|holder| *holder != me && !seat.silent) else { continue };
        if wanted == 0 || seat.rung.is_some() {
            continue;
        }
        if let Some(count) = held.get_mut(&holder).filter(|count| **count > share) {
            *count -= 1;
            wanted -= 1;
            plan.ring.push(seat.partition);
        }
    }
    plan
}

/// The partition of a key: the same on every machine and in every release.
pub(super) fn partition_of(key: &str, partitions: u32) -> u32 {
    crc32fast::hash(key.as_bytes()) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(holders: &[Option<u128>]) -> Vec<Seat> {
        let seat = |(partition, holder): (usize, &Option<u128>)| Seat {
            partition: partition as u32,
            holder: holder.map(Uuid::from_u128),
            rung: None,
            barred: false,
            silent: false,
        };
        holders.iter().enumerate().map(seat).collect()
    }

    const A: Option<u128> = Some(1);
    const B: Option<u128> = Some(2);

    #[test]
    fn the_first_takes_all_and_the_second_asks_for_half() {
        let alone = plan(&seats(&[None; 4]), Uuid::from_u128(1));
        assert_eq!((alone.take.len(), alone.ring.len()), (4, 0));
        let second = plan(&seats(&[A; 4]), Uuid::from_u128(2));
        assert_eq!((second.take.len(), second.ring.len()), (0, 2));
        let third = plan(&seats(&[A, A, A, B, B, B]), Uuid::from_u128(3));
        assert_eq!(third.ring.len(), 2, "one from each");
        assert_eq!(plan(&seats(&[A, A, B, B]), Uuid::from_u128(2)), Plan::default(), "even");
        assert_eq!(plan(&seats(&[A]), Uuid::from_u128(2)), Plan::default(), "one partition stays where it is");
    }

    #[test]
    fn what_is_promised_to_another_is_left_to_it_while_it_lives() {
        let mut seen = seats(&[None, A]);
        seen[0].rung = Some(Uuid::from_u128(2));
        assert_eq!(plan(&seen, Uuid::from_u128(1)), Plan::default());
        assert_eq!(plan(&seen, Uuid::from_u128(2)).take, [0]);
        seen[0].silent = true;
        assert_eq!(plan(&seen, Uuid::from_u128(1)).take, [0]);
    }

    #[test]
    fn what_the_dead_held_is_divided_and_what_is_barred_is_left() {
        let mut seen = seats(&[A, A, B, B]);
        for seat in &mut seen[..2] {
            seat.silent = true;
        }
        assert_eq!(plan(&seen, Uuid::from_u128(2)).take, [0, 1]);
        assert_eq!(plan(&seen, Uuid::from_u128(3)).take, [0, 1], "two live: half each");
        seen[0].barred = true;
        assert_eq!(plan(&seen, Uuid::from_u128(2)).take, [1]);
    }

    #[test]
    fn who_has_rung_does_not_ring_for_more() {
        let mut seen = seats(&[A; 4]);
        for seat in &mut seen[..2] {
            seat.rung = Some(Uuid::from_u128(2));
        }
        assert_eq!(plan(&seen, Uuid::from_u128(2)), Plan::default());
    }
}
