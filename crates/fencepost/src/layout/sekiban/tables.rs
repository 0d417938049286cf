//! Sekiban's three tables, and what each role may do to them. Its own policy names actions that do not exist, and misses one that transactions need.

use super::Options;
use super::item::{ALL_KEY, GROUP, HASH, INDEX, RANGE, SORTABLE, TAG};
use crate::dynamo::table::{IndexSpec, KeyKind, KeySpec, On, Projection, Rights, Role, StreamSpec, TableSpec};

fn text(name: &str) -> KeySpec {
    KeySpec { name: name.into(), kind: KeyKind::S }
}

fn table(name: &str, index: Option<(&str, &str, Projection)>) -> TableSpec {
    let index =
        index.map(|(hash, range, projection)| IndexSpec { name: INDEX.into(), hash: text(hash), range: Some(text(range)), projection });
    TableSpec {
        name: name.into(),
        hash: text(HASH),
        range: Some(text(RANGE)),
        indexes: index.into_iter().collect(),
        stream: StreamSpec::OnRequest,
        ttl: None,
    }
}

/// As Sekiban makes them. The index of tags may hold the keys alone: its published script makes it so, its code does not.
pub(super) fn specs(options: &Options) -> Vec<TableSpec> {
    vec![
        table(&options.events, Some((ALL_KEY, SORTABLE, Projection::All))),
        table(&options.tags, Some((GROUP, TAG, Projection::AllOrKeys))),
        table(&options.states, None),
    ]
}

const READ: [&str; 4] = ["GetItem", "BatchGetItem", "Query", "DescribeTable"];
const TABLE_ADMIN: [&str; 9] = [
    "CreateTable",
    "UpdateTable",
    "DescribeTimeToLive",
    "UpdateTimeToLive",
    "DescribeContinuousBackups",
    "UpdateContinuousBackups",
    "ListTagsOfResource",
    "TagResource",
    "UntagResource",
];

/// A reader writes too: it finishes the rows of a large commit whose writer died.
pub(super) fn rights(options: &Options) -> Vec<Rights> {
    let mut all = Vec::new();
    let mut may =
        |role, name: &str, on, actions: &[&[&'static str]]| all.push(Rights { role, table: name.into(), on, actions: actions.concat() });
    let rows = ["PutItem", "BatchWriteItem", "UpdateItem", "DeleteItem"];
    for role in [Role::Writer, Role::Reader, Role::Admin] {
        for name in [&options.events, &options.tags] {
            let admin: &[&str] = if role == Role::Admin { &TABLE_ADMIN } else { &[] };
            let check: &[&str] = if role == Role::Reader { &[] } else { &["ConditionCheckItem"] };
            let scan: &[&str] = if role == Role::Admin { &["Scan"] } else { &[] };
            may(role, name, On::Table, &[admin, &READ, check, &rows, scan]);
            may(role, name, On::Indexes, &[&["Query"]]);
        }
    }
    for name in [&options.states, &options.side] {
        may(Role::Writer, name, On::Table, &[&READ, &["PutItem", "UpdateItem", "DeleteItem"]]);
        may(Role::Reader, name, On::Table, &[&READ]);
        may(Role::Admin, name, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "PutItem", "UpdateItem", "DeleteItem"]]);
    }
    all
}
