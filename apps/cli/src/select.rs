//! Which events a command is about: `--query`, or `--tag` and `--type`. Shared by `read`, `tail` and `export`.

use clap::Args;
use fencepost::{EventType, Query, QueryItem, Tag};

use crate::failure::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Select {
    /// Events that match, as JSON: {"items":[{"types":[…],"tags":[…]}]}, and {} for all
    #[arg(long, value_name = "JSON", conflicts_with_all = ["tag", "type"])]
    query: Option<Query>,
    /// Events that carry this tag; given more than once, all of them
    #[arg(long, value_name = "TAG", value_parser = |text: &str| Tag::new(text))]
    tag: Vec<Tag>,
    /// Events of this type; given more than once, any of them
    #[arg(long, value_name = "TYPE", value_parser = |text: &str| EventType::new(text))]
    r#type: Vec<EventType>,
}

impl Select {
    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        self.query.is_some() || !self.tag.is_empty() || !self.r#type.is_empty()
    }

    /// Everything, where nothing was said.
    pub(crate) fn query(self) -> Outcome<Query> {
        match self.query {
            Some(query) => Ok(query),
            None if self.tag.is_empty() && self.r#type.is_empty() => Ok(Query::all()),
            None => Ok(Query::any([QueryItem::new(self.r#type, self.tag)?])?),
        }
    }
}
