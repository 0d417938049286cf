//! What a model is about: a query in the words of the application's events, which fills in the types.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::DomainEvent;
use crate::error::{Refused, Result};
use crate::event::{EventType, Tag};
use crate::query::{Query, QueryItem};

/// Events that carry certain tags. The types are those of the application's events that can carry them, unless [`About::only`] names fewer.
#[derive(Debug, Clone)]
pub struct About(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Tags {
        tags: Vec<(String, String)>,
        only: Vec<String>,
    },
    Query(Query),
    /// `and` or `only` behind a ready query, which has no place for it.
    Misplaced(&'static str),
}

/// Events that carry the tag `key:value`.
pub fn about(key: &str, value: impl Display) -> About {
    About(vec![Part::Tags { tags: vec![(key.into(), value.to_string())], only: Vec::new() }])
}

impl About {
    /// All events of the application's types, whatever their tags. A store in `streams` mode holds this for indexed types only.
    pub fn every() -> About {
        About(vec![Part::Tags { tags: Vec::new(), only: Vec::new() }])
    }
    /// That also carry this tag. Behind an `or`, only the last one must.
    pub fn and(mut self, key: &str, value: impl Display) -> About {
        match self.0.last_mut() {
            Some(Part::Tags { tags, .. }) => tags.push((key.into(), value.to_string())),
            _ => self.0.push(Part::Misplaced("and")),
        }
        self
    }
    /// Of these types only. Behind an `or`, this is said of the last one.
    pub fn only<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> About {
        match self.0.last_mut() {
            Some(Part::Tags { only, .. }) => only.extend(types.into_iter().map(Into::into)),
            _ => self.0.push(Part::Misplaced("only")),
        }
        self
    }
    /// Or what the other one is about.
    pub fn or(mut self, other: impl Into<About>) -> About {
        self.0.extend(other.into().0);
        self
    }

    /// The query, with the names that `E` reads filled in. Refused where no event of `E` can carry the tags.
    pub fn query<E: DomainEvent>(&self) -> Result<Query> {
        let mut queries = self.0.iter().map(|part| match part {
            Part::Query(query) => Ok(query.clone()),
            Part::Misplaced(word) => {
                let what = format!("`{word}` behind a ready query");
                Err(Refused::Unsupported { what, remedy: "say it in the query itself, or use `about`".into() }.into())
            }
            Part::Tags { tags, only } => {
                let types = types_of::<E>(tags, only)?;
                let tags = tags.iter().map(|(key, value)| tag(key, value)).collect::<Result<Vec<_>>>()?;
                Query::any([QueryItem::new(types, tags)?])
            }
        });
        let first = queries.next().unwrap_or_else(|| Err(Refused::Empty { what: "query" }.into()))?;
        queries.try_fold(first, |all, next| Ok(all.or(next?)))
    }
}

fn tag(key: &str, value: &str) -> Result<Tag> {
    if value.is_empty() {
        let why = format!("the value of the tag {key} is empty: no event carries such a tag");
        return Err(Refused::Malformed { what: "tag", why }.into());
    }
    Tag::new(format!("{key}:{value}"))
}

fn types_of<E: DomainEvent>(tags: &[(String, String)], only: &[String]) -> Result<Vec<EventType>> {
    let all: BTreeSet<_> = E::KINDS.iter().flat_map(|kind| kind.names()).collect();
    if let Some(unknown) = only.iter().find(|name| !all.contains(name.as_str())) {
        let known: Vec<_> = all.into_iter().collect();
        let what = format!("the event type {unknown}");
        return Err(Refused::Unsupported { what, remedy: format!("the events here are {}", known.join(", ")) }.into());
    }
    let carries = |kind: &&super::Kind| tags.iter().all(|(key, _)| kind.keys.contains(&key.as_str()));
    let wanted = |kind: &&super::Kind| only.is_empty() || kind.names().any(|name| only.iter().any(|wanted| wanted == name));
    let kinds: Vec<_> = E::KINDS.iter().filter(carries).filter(wanted).collect();
    if kinds.is_empty() {
        let keys: BTreeSet<_> = E::KINDS.iter().flat_map(|kind| kind.keys).copied().collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let asked: Vec<_> = tags.iter().map(|(key, _)| key.as_str()).collect();
        return Err(Refused::Unsupported {
            what: format!("a query about {}", asked.join(" and ")),
            remedy: format!("no such event carries these tags together; the keys are {}", keys.join(", ")),
        }
        .into());
    }
    kinds.into_iter().flat_map(|kind| kind.names()).map(EventType::new).collect()
}

impl<V: Display> From<(&str, V)> for About {
    fn from((key, value): (&str, V)) -> About {
        about(key, value)
    }
}
impl From<Query> for About {
    fn from(query: Query) -> About {
        About(vec![Part::Query(query)])
    }
}
