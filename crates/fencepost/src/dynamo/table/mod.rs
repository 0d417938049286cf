//! Tables: what a layout needs of them, and what the person who creates them may choose. Here the words and the comparison, both pure;
//! `create` talks to the service, `print` and `iam` write the same for Terraform, CloudFormation, the AWS CLI and IAM.

mod create;
mod iam;
mod print;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Reason, Refused, Result};

pub(crate) use iam::{On, READ, Rights, TABLE_ADMIN, iam};
pub use iam::{Role, Scope};
pub use print::Format;
pub(crate) use print::print;

/// One table as its layout needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) hash: KeySpec,
    pub(crate) range: Option<KeySpec>,
    /// A table may have others besides.
    pub(crate) indexes: Vec<IndexSpec>,
    pub(crate) stream: StreamSpec,
    /// The attribute by which items expire.
    pub(crate) ttl: Option<String>,
}

/// What a table has to do with DynamoDB Streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamSpec {
    /// Its changes mean nothing to anybody: no stream, whatever is asked for.
    Never,
    /// The layout needs none; whoever creates the table may ask for one.
    OnRequest,
    /// The layout reads it: at least this view.
    Needed(StreamView),
}

/// An attribute that is part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeySpec {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: KeyKind,
}

/// What an attribute of a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum KeyKind {
    /// Text.
    S,
    /// A number.
    N,
    /// Bytes.
    B,
}

/// A secondary index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexSpec {
    /// Its name.
    pub name: String,
    /// Its hash key.
    pub hash: KeySpec,
    /// Its range key.
    pub range: Option<KeySpec>,
    /// What it holds besides the keys.
    pub projection: Projection,
}

/// What an index holds of each item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Projection {
    /// The keys of table and index.
    KeysOnly,
    /// These attributes too.
    Include(Vec<String>),
    /// Everything.
    All,
    /// Everything where we make it; one that somebody else made may hold the keys alone.
    AllOrKeys,
}

/// What a record of a stream holds of the item that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum StreamView {
    /// Its key.
    KeysOnly,
    /// The item after the change.
    NewImage,
    /// The item before the change.
    OldImage,
    /// Both.
    NewAndOldImages,
}

/// How a table's capacity is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Billing {
    /// Per request.
    #[default]
    OnDemand,
    /// Per hour, for so many units a second; the same for each of its indexes.
    Provisioned {
        /// Read units a second.
        read: u32,
        /// Write units a second.
        write: u32,
    },
}

/// A stream other than the layout would choose by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum StreamChoice {
    /// None. Refused for a table whose stream the layout reads.
    Off,
    /// With the new item.
    New,
    /// With the new and the old item.
    NewAndOld,
}

/// What the person who creates the tables chooses. Keys and indexes are not among it: the layout has those.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// How capacity is paid for.
    pub billing: Billing,
    /// A customer managed key (its ARN) to encrypt with; none: a key that DynamoDB owns.
    pub kms_key: Option<String>,
    /// Tags of the tables, for the AWS account; nothing to do with tags of events.
    pub tags: Vec<(String, String)>,
    /// The stream of the tables that may have one; none: as the layout needs it.
    pub stream: Option<StreamChoice>,
}

/// How a table that was asked for came to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Created {
    /// It was made by this call.
    Created,
    /// It was there, or somebody else was first, and it is as the layout needs it.
    Existed,
}

/// One thing in which a table is not as its layout needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The table.
    pub table: String,
    /// What differs: a key, an index, the stream, the expiry.
    pub what: String,
    /// What the layout needs.
    pub needed: String,
    /// What the table has.
    pub found: String,
}

/// A table, as the service describes it. What an engine does not tell is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Described {
    /// Its name.
    pub name: String,
    /// `ACTIVE`, `CREATING` …
    pub status: String,
    /// Items, roughly: refreshed by DynamoDB every six hours or so.
    pub items: i64,
    /// Bytes, roughly.
    pub bytes: i64,
    /// How its capacity is paid for.
    pub billing: Billing,
    /// Its hash key.
    pub hash: Option<KeySpec>,
    /// Its range key.
    pub range: Option<KeySpec>,
    /// Its secondary indexes, global and local, by name.
    pub indexes: Vec<IndexSpec>,
    /// Its stream's view, where it has a stream.
    pub stream: Option<StreamView>,
    /// The stream's name in the account.
    pub stream_arn: Option<String>,
    /// The attribute by which items expire, where that is on.
    pub ttl: Option<String>,
    /// Whether point-in-time recovery is on.
    pub pitr: Option<bool>,
    /// Whether the table is protected from deletion.
    pub deletion_protection: Option<bool>,
    /// The customer's key that it is encrypted with.
    pub kms_key: Option<String>,
    /// Regions of its replicas: put-if-absent does not hold across them.
    pub replicas: Vec<String>,
    /// Another one after a restore.
    pub table_id: Option<String>,
    /// Its name in the account.
    pub arn: Option<String>,
}

impl TableSpec {
    /// The view that a stream is created with.
    fn view(&self, options: &TableOptions) -> Result<Option<StreamView>> {
        let asked = options.stream.map(|choice| match choice {
            StreamChoice::Off => None,
            StreamChoice::New => Some(StreamView::NewImage),
            StreamChoice::NewAndOld => Some(StreamView::NewAndOldImages),
        });
        match (self.stream, asked) {
            (StreamSpec::Never, _) | (StreamSpec::OnRequest, None) => Ok(None),
            (StreamSpec::OnRequest, Some(asked)) => Ok(asked),
            (StreamSpec::Needed(needed), None) => Ok(Some(needed)),
            (StreamSpec::Needed(needed), Some(Some(asked))) if asked.holds(needed) => Ok(Some(asked)),
            (StreamSpec::Needed(needed), Some(asked)) => Err(Refused::Unsupported {
                what: format!("table {} with stream {}", self.name, asked.map_or("off", StreamView::wire)),
                remedy: format!("the layout reads this stream and needs at least {}", needed.wire()),
            }
            .into()),
        }
    }

    /// Every attribute of a key, each once, the table's own first.
    fn attributes(&self) -> Vec<&KeySpec> {
        let of_indexes = self.indexes.iter().flat_map(|index| std::iter::once(&index.hash).chain(&index.range));
        let mut all: Vec<&KeySpec> = Vec::new();
        for key in std::iter::once(&self.hash).chain(&self.range).chain(of_indexes) {
            if !all.iter().any(|known| known.name == key.name) {
                all.push(key);
            }
        }
        all
    }

    /// In what the table is not as needed. Billing, encryption, tags and indexes beyond these are the operator's business.
    fn differences(&self, found: &Described, stream: Option<StreamView>) -> Vec<Difference> {
        let mut all = Vec::new();
        let mut differ = |what: String, needed: String, found: String| {
            all.push(Difference { table: self.name.clone(), what, needed, found });
        };
        if found.hash.as_ref() != Some(&self.hash) {
            differ("hash key".into(), self.hash.to_string(), shown(&found.hash));
        }
        if found.range != self.range {
            differ("range key".into(), shown(&self.range), shown(&found.range));
        }
        for index in &self.indexes {
            let what = |part: &str| format!("{part} of index {}", index.name);
            let Some(there) = found.indexes.iter().find(|there| there.name == index.name) else {
                differ(format!("index {}", index.name), format!("on {}, {}", index.hash, shown(&index.range)), "none".into());
                continue;
            };
            if there.hash != index.hash {
                differ(what("hash key"), index.hash.to_string(), there.hash.to_string());
            }
            if there.range != index.range {
                differ(what("range key"), shown(&index.range), shown(&there.range));
            }
            if !there.projection.holds(&index.projection) {
                differ(what("projection"), index.projection.to_string(), there.projection.to_string());
            }
        }
        if let Some(needed) = stream
            && !found.stream.is_some_and(|view| view.holds(needed))
        {
            differ("stream".into(), needed.wire().into(), found.stream.map_or("none", StreamView::wire).into());
        }
        if let Some(ttl) = &self.ttl
            && found.ttl.as_ref() != Some(ttl)
        {
            differ("expiry (TTL)".into(), format!("by {ttl}"), found.ttl.as_ref().map_or("none".into(), |by| format!("by {by}")));
        }
        all
    }
}

impl Difference {
    /// All of them as one error.
    pub(crate) fn error(all: &[Difference]) -> Error {
        let list: Vec<_> = all.iter().map(ToString::to_string).collect();
        Error::unavailable(Reason::Differs, list.join("; "))
    }
}

impl StreamView {
    /// As the service spells it.
    fn wire(self) -> &'static str {
        match self {
            StreamView::KeysOnly => "KEYS_ONLY",
            StreamView::NewImage => "NEW_IMAGE",
            StreamView::OldImage => "OLD_IMAGE",
            StreamView::NewAndOldImages => "NEW_AND_OLD_IMAGES",
        }
    }
    /// Whether its records hold all that those of `other` do: each holds the key.
    pub(in crate::dynamo) fn holds(self, other: StreamView) -> bool {
        self == other || self == StreamView::NewAndOldImages || other == StreamView::KeysOnly
    }
}

impl KeyKind {
    /// As the service spells it.
    fn wire(self) -> &'static str {
        match self {
            KeyKind::S => "S",
            KeyKind::N => "N",
            KeyKind::B => "B",
        }
    }
}

impl Projection {
    /// As the service spells it.
    fn wire(&self) -> &'static str {
        match self {
            Projection::KeysOnly => "KEYS_ONLY",
            Projection::Include(_) => "INCLUDE",
            Projection::All | Projection::AllOrKeys => "ALL",
        }
    }
    fn included(&self) -> &[String] {
        match self {
            Projection::Include(names) => names,
            _ => &[],
        }
    }
    fn holds(&self, needed: &Projection) -> bool {
        match (self, needed) {
            (Projection::All, _) | (_, Projection::AllOrKeys) => true,
            (_, Projection::All) => false,
            (has, needed) => needed.included().iter().all(|name| has.included().contains(name)),
        }
    }
}

fn shown(key: &Option<KeySpec>) -> String {
    key.as_ref().map_or_else(|| "none".into(), ToString::to_string)
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.kind.wire())
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Projection::Include(names) => write!(f, "INCLUDE {}", names.join(", ")),
            other => f.write_str(other.wire()),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}: {} is {}, needed is {}", self.table, self.what, self.found, self.needed)
    }
}
