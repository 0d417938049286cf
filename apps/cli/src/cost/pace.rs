//! How often somebody looks, how often in vain, and how much waits for a look: from the rate at which things come, and the pauses of who looks.
//! Pure.

use std::time::Duration;

/// A request to DynamoDB, from where it is sent to where its answer is read: an assumption, as good as any of one digit.
pub(super) const REQUEST: f64 = 0.01;

/// From a look that found something to the next that does, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    /// Looks in it; the last of them finds something.
    pub(super) looks: f64,
    pub(super) seconds: f64,
}

impl Round {
    /// What comes at random so often a second is looked for after these pauses, and then after the last of them again and again. A look takes a
    /// request; the first is made at once.
    fn of(per_second: f64, pauses: &[Duration]) -> Round {
        // The k-th look happens if nothing came until the one before it: e^(-rate × time) of all rounds.
        let (mut round, mut time) = (Round { looks: 0.0, seconds: 0.0 }, 0.0);
        let mut step = |seconds: f64, again: f64| {
            let nothing = (-per_second * time).exp() * again;
            round.looks += nothing;
            round.seconds += nothing * seconds;
            time += seconds;
        };
        step(REQUEST, 1.0);
        let (last, others) = pauses.split_last().map_or((Duration::ZERO, pauses), |(last, others)| (*last, others));
        others.iter().for_each(|pause| step(pause.as_secs_f64() + REQUEST, 1.0));
        let last = last.as_secs_f64() + REQUEST;
        step(last, 1.0 / -(-per_second * last).exp_m1());
        round
    }

    /// The indexer that runs for itself: by what `IndexOptions` say if nobody says otherwise, after two short pauses.
    pub(super) fn of_indexer(per_second: f64) -> Round {
        Self::of(per_second, &[20, 20, 50, 100, 200, 400, 800, 1_000].map(Duration::from_millis))
    }

    /// Who follows a feed.
    pub(super) fn of_feed(per_second: f64) -> Round {
        Self::of(per_second, &[20, 40, 80, 160, 320, 640, 1_000].map(Duration::from_millis))
    }
}

/// The function that indexes, as its template deploys it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rings {
    /// Invocations a second, of all shards.
    pub(super) rings: f64,
    /// How often a second the stream is looked at.
    pub(super) looks: f64,
    /// Rings a second that find another at work, and wait for it.
    pub(super) handed: f64,
}

/// `MaximumBatchingWindowInSeconds`.
const WINDOW: f64 = 1.0;

impl Rings {
    /// Each shard rings when something has come to it and the window has passed: at most once a second. One look at a time, of so many seconds;
    /// whoever rings meanwhile has it looked once more.
    pub(super) fn of(commits_per_second: f64, shards: f64, look: f64) -> Rings {
        let rings = shards / (shards / commits_per_second + WINDOW);
        // One place, and rings at random: the share that finds it taken. Two rings of one shard are never at once.
        let busy = rings * look;
        let handed = if shards > 1.0 { rings * busy / (1.0 + busy) } else { 0.0 };
        Rings { rings, looks: rings.min(1.0 / look), handed }
    }
}

/// How often a second a consumer writes, and looks at the leases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Keeping {
    pub(super) saves: f64,
    pub(super) looks: f64,
}

impl Keeping {
    /// It saves its place when its clock ticks and something came, and after so many events; silent, it renews its lease five times in its
    /// length, and looks at the leases four times.
    pub(super) fn of(arrivals_per_second: f64, events_per_second: f64, lease: Duration, save: (u64, Duration)) -> Keeping {
        let tick = save.1.min(lease / 5).as_secs_f64();
        let every = |part: u32| ((lease / part).as_secs_f64() / tick).ceil() * tick;
        let due = every(5);
        let ticks = -(-arrivals_per_second * tick).exp_m1() / tick;
        let full = if events_per_second * tick >= save.0 as f64 { events_per_second / save.0 as f64 } else { 0.0 };
        Keeping { saves: ticks + full + (-arrivals_per_second * due).exp() / due, looks: 1.0 / every(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 0.01 * right.abs().max(0.01), "{left}, and not {right}");
    }

    #[test]
    fn where_little_comes_almost_every_look_is_in_vain_and_one_waits_for_it() {
        // Once a day. Seven looks in the first seconds, and then one a second and a request.
        let round = Round::of_feed(1.0 / 86_400.0);
        near(round.seconds, 86_400.0);
        near(round.looks, 86_400.0 / 1.01);
        near(round.seconds / 86_400.0, 1.0);
    }

    #[test]
    fn where_much_comes_every_look_finds_what_came_in_one_request() {
        let round = Round::of_indexer(10_000.0);
        near(round.looks, 1.0);
        near(round.seconds * 10_000.0, 100.0);
    }

    #[test]
    fn at_a_dozen_a_second_little_more_than_one_waits_and_two_looks_of_three_are_in_vain() {
        let round = Round::of_indexer(11.574);
        let waiting = round.seconds * 11.574;
        assert!(waiting > 1.2 && waiting < 1.7, "{waiting}");
        assert!(round.looks > 2.5 && round.looks < 4.0, "{round:?}");
    }

    /// The pauses are the library's.
    #[test]
    fn an_indexer_that_nobody_told_otherwise_pauses_for_50_milliseconds_to_a_second() {
        let options = format!("{:?}", fencepost::IndexOptions::default());
        assert!(options.contains("idle_at_least: 50ms, idle_at_most: 1s,"), "{options}");
    }

    #[test]
    fn a_shard_rings_once_a_second_at_most_and_not_more_often_than_commits_come() {
        near(Rings::of(1e6, 1.0, 0.1).rings, 1.0);
        near(Rings::of(1e6, 4.0, 0.1).rings, 4.0);
        near(Rings::of(0.001, 4.0, 0.1).rings, 0.001);
        // Two shards with a commit a second each: after a second on average one comes, and a second later it rings.
        near(Rings::of(2.0, 2.0, 0.1).rings, 1.0);
    }

    #[test]
    fn rings_at_once_are_one_look_and_the_others_wait() {
        let one = Rings::of(1e6, 1.0, 0.5);
        assert_eq!((one.looks, one.handed), (one.rings, 0.0));
        let many = Rings::of(1e9, 40.0, 0.2);
        near(many.looks, 5.0);
        near(many.handed, 40.0 * 8.0 / 9.0);
    }

    #[test]
    fn a_consumer_writes_every_second_when_busy_and_four_times_a_lease_when_not() {
        let of = |arrivals, events| Keeping::of(arrivals, events, Duration::from_secs(16), (100, Duration::from_secs(1)));
        near(of(0.0, 0.0).saves, 0.25);
        near(of(0.0, 0.0).looks, 0.25);
        near(of(50.0, 50.0).saves, 1.0);
        near(of(50.0, 500.0).saves, 6.0);
        // The clock ticks every second, so that a fifth of 15 s is 3, and a quarter 4.
        let usual = Keeping::of(0.0, 0.0, Duration::from_secs(15), (100, Duration::from_secs(1)));
        near(usual.saves, 1.0 / 3.0);
        near(usual.looks, 0.25);
    }
}
