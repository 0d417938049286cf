//! What must hold of what was written, handed over and folded. Pure; it is seen to object at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::roles;

/// Writer, commit, index in the commit.
pub(crate) type Label = (u64, u64, u64);
/// Under each tag, labels in order.
pub(crate) type Labels = BTreeMap<String, Vec<Label>>;
/// Of each tag, how many events and a number that depends on each of them and on their order.
pub(crate) type Folded = BTreeMap<String, (u64, u64)>;

/// A life's first line.
pub(crate) const BEGINS: &str = "begins";

pub(crate) fn text((writer, commit, index): Label) -> String {
    format!("{writer}.{commit}.{index}")
}
pub(crate) fn parse(text: &str) -> Label {
    let mut parts = text.split('.').map(|part| part.parse().expect("a number"));
    let mut next = || parts.next().expect("three numbers");
    (next(), next(), next())
}

pub(crate) fn fold(state: &mut Folded, tag: &str, (writer, commit, index): Label) {
    let (count, mixed) = state.entry(tag.into()).or_default();
    *count += 1;
    // JSON keeps all digits of a u64, and 31 bits are plenty.
    *mixed = (*mixed * 31 + writer * 7_919 + commit * 101 + index + 1) % 2_147_483_647;
}

pub(crate) fn fold_of(log: &Labels) -> Folded {
    let mut state = Folded::new();
    for (tag, labels) in log {
        labels.iter().for_each(|label| fold(&mut state, tag, *label));
    }
    state
}

pub(crate) fn events(log: &Labels) -> usize {
    log.values().flatten().collect::<BTreeSet<_>>().len()
}

/// The log holds every commit that was acknowledged, whole and once, each writer's in order, and nothing else.
#[track_caller]
pub(crate) fn assert_all_written(log: &Labels, acknowledged: [u64; 2], scene: &str) {
    let mut written: BTreeMap<String, Vec<Label>> = BTreeMap::new();
    for (writer, commits) in roles::WRITERS.into_iter().zip(acknowledged) {
        for n in 0..commits {
            for (index, event) in (0..).zip(roles::commit(writer, n).1) {
                event.tags().iter().for_each(|tag| written.entry(tag.to_string()).or_default().push((writer, n, index)));
            }
        }
    }
    for tag in roles::tags() {
        for writer in roles::WRITERS {
            let of =
                |labels: &Labels| labels.get(&tag).into_iter().flatten().filter(|label| label.0 == writer).copied().collect::<Vec<_>>();
            assert_eq!(of(log), of(&written), "{scene}: {tag}, writer {writer}: the log beside what was acknowledged");
        }
    }
}

/// What the consumer was handed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct HandedOver {
    lives: u64,
    events: u64,
    duplicates: u64,
    /// Places left in the middle of a life: a lease was lost.
    restarts: u64,
}

impl fmt::Display for HandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandedOver { lives, events, duplicates, restarts } = self;
        write!(f, "{events} handed over in {lives} lives, {duplicates} of them again, {restarts} restarts within a life")
    }
}

fn lines(handed: &str) -> impl Iterator<Item = Option<(Label, Vec<&str>)>> {
    handed.lines().map(|line| {
        let mut words = line.split(' ');
        let first = words.next().expect("a word");
        (first != BEGINS).then(|| (parse(first), words.collect()))
    })
}

/// On every tag, an event comes right behind the one before it in the log, or is a repeat from an earlier place: no gap, no disorder.
pub(crate) fn in_order(log: &Labels, handed: &str) -> Result<HandedOver, String> {
    let places: HashMap<(&str, Label), usize> =
        log.iter().flat_map(|(tag, labels)| labels.iter().zip(0..).map(move |(label, at)| ((tag.as_str(), *label), at))).collect();
    let mut next: HashMap<&str, usize> = HashMap::new();
    let (mut found, mut seen, mut fresh) = (HandedOver::default(), BTreeSet::new(), BTreeSet::new());
    for line in lines(handed) {
        let Some((label, tags)) = line else {
            found.lives += 1;
            fresh.extend(log.keys().map(String::as_str));
            continue;
        };
        found.events += 1;
        found.duplicates += u64::from(!seen.insert(label));
        for tag in tags {
            let at = *places.get(&(tag, label)).ok_or_else(|| format!("{} on {tag} is not in the log", text(label)))?;
            let expected = next.get(tag).copied().unwrap_or(0);
            if at > expected {
                let missed = log[tag][expected];
                return Err(format!("{tag}: {} came, and {} before it had not", text(label), text(missed)));
            }
            let begins = fresh.remove(tag);
            found.restarts += u64::from(at < expected && !begins);
            next.insert(tag, at + 1);
        }
    }
    Ok(found)
}

#[track_caller]
pub(crate) fn assert_order(log: &Labels, handed: &str, scene: &str) -> HandedOver {
    in_order(log, handed).unwrap_or_else(|wrong| panic!("{scene}: {wrong}"))
}

pub(crate) fn missed(log: &Labels, handed: &str) -> Vec<String> {
    let seen: BTreeSet<Label> = lines(handed).flatten().map(|(label, _)| label).collect();
    let all: BTreeSet<Label> = log.values().flatten().copied().collect();
    all.difference(&seen).take(20).map(|label| text(*label)).collect()
}

pub(crate) fn nothing_is_missed(log: &Labels, handed: &str) -> bool {
    missed(log, handed).is_empty()
}

pub(crate) fn differences(expected: &Folded, state: Option<&Folded>) -> Vec<String> {
    let of = |tag: &String| state.and_then(|state| state.get(tag));
    expected
        .iter()
        .filter(|(tag, folded)| of(tag) != Some(folded))
        .map(|(tag, folded)| format!("{tag}: {:?}, not {folded:?}", of(tag)))
        .collect()
}

#[test]
fn the_audit_objects_to_gaps_and_disorder_and_lets_repeats_pass() {
    let log = Labels::from([("a".into(), vec![(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 2, 0)])]);
    let handed = |labels: &str| {
        labels.split(' ').map(|word| if word == BEGINS { "begins\n".into() } else { format!("{word} a\n") }).collect::<String>()
    };
    let told = |labels: &str| in_order(&log, &handed(labels));
    let good = told("begins 0.0.0 0.1.0 1.0.0 begins 0.1.0 1.0.0 0.2.0").expect("repeats are as good as new");
    assert_eq!(good, HandedOver { lives: 2, events: 6, duplicates: 2, restarts: 0 });
    assert_eq!(told("begins 0.0.0 0.1.0 0.0.0").map(|found| found.restarts), Ok(1));
    assert_eq!(told("begins 0.0.0 1.0.0"), Err("a: 1.0.0 came, and 0.1.0 before it had not".into()));
    assert!(told("begins 0.0.0 0.1.0 1.0.0 begins 0.0.0 1.0.0").is_err(), "a gap within what is repeated");
    assert!(told("begins 0.0.0 5.5.5").is_err(), "nothing that was never written");
    assert_eq!(missed(&log, &handed("begins 0.0.0 0.1.0 1.0.0")), ["0.2.0"]);
    let (mut one, mut other) = (Folded::new(), Folded::new());
    for label in [(0, 0, 0), (0, 1, 0)] {
        fold(&mut one, "a", label);
    }
    for label in [(0, 1, 0), (0, 0, 0)] {
        fold(&mut other, "a", label);
    }
    assert_ne!(one, other, "order counts");
}
