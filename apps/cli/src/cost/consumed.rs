//! Units by table and index: what capacity is bought for, added up and multiplied.

use std::collections::BTreeMap;

use fencepost::Units;
use fencepost::testing::Place;

/// Read and write units, by where they were consumed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Consumed(pub(super) BTreeMap<Place, Units>);

impl Consumed {
    /// With so many times the other.
    pub(super) fn with(mut self, times: f64, other: &Consumed) -> Consumed {
        for (place, units) in &other.0 {
            let sum = self.0.entry(place.clone()).or_default();
            sum.read += units.read * times;
            sum.write += units.write * times;
        }
        self
    }
    pub(super) fn times(&self, times: f64) -> Consumed {
        Consumed::default().with(times, self)
    }
    /// Without the other, and nothing below zero.
    pub(super) fn less(&self, other: &Consumed) -> Consumed {
        let mut left = self.clone().with(-1.0, other);
        for units in left.0.values_mut() {
            (units.read, units.write) = (units.read.max(0.0), units.write.max(0.0));
        }
        left
    }
    pub(super) fn read(&self) -> f64 {
        self.0.values().fold(0.0, |sum, units| sum + units.read)
    }
    pub(super) fn write(&self) -> f64 {
        self.0.values().fold(0.0, |sum, units| sum + units.write)
    }
    /// Of which in secondary indexes.
    pub(super) fn index_write(&self) -> f64 {
        self.0.iter().filter(|(place, _)| place.index.is_some()).fold(0.0, |sum, (_, units)| sum + units.write)
    }
}

/// What grows with the commits that wait together: counted for one of them and for many, and a line through both.
#[derive(Debug, Clone, Default)]
pub(super) struct Grows<T> {
    pub(super) one: T,
    pub(super) many: T,
}

/// How many are many.
pub(super) const MANY: u64 = 100;

fn beyond(waiting: f64) -> f64 {
    (waiting.max(1.0) - 1.0) / (MANY - 1) as f64
}

impl Grows<Consumed> {
    pub(super) fn at(&self, waiting: f64) -> Consumed {
        let share = beyond(waiting);
        self.one.times(1.0 - share).with(share, &self.many)
    }
}
impl Grows<f64> {
    pub(super) fn at(&self, waiting: f64) -> f64 {
        self.one + (self.many - self.one) * beyond(waiting)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cost) fn at(table: &str, index: Option<&str>, read: f64, write: f64) -> Consumed {
        let place = Place { table: table.into(), index: index.map(Into::into) };
        Consumed([(place, Units { read, write, requests: 0 })].into())
    }

    #[test]
    fn what_is_between_and_beyond_the_counted_lies_on_their_line() {
        let epoch = Grows { one: at("side", None, 1.0, 1.0), many: at("side", None, 1.0, 10.9) };
        let write = |waiting: f64| (epoch.at(waiting).write() * 1e6).round() / 1e6;
        assert_eq!((write(0.0), write(1.0), write(11.0), write(100.0), write(1_000.0)), (1.0, 1.0, 2.0, 10.9, 100.9));
        assert_eq!(Grows { one: 100.0, many: 1_090.0 }.at(2.0), 110.0);
    }

    #[test]
    fn places_stay_apart_in_a_sum() {
        let sum = at("log", None, 1.0, 2.0).with(3.0, &at("log", Some("all"), 0.0, 1.0)).with(2.0, &at("log", None, 1.0, 0.0));
        assert_eq!((sum.read(), sum.write(), sum.index_write(), sum.0.len()), (3.0, 5.0, 3.0, 2));
    }
}
