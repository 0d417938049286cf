//! The table as the peer creates it, and what each role may do to it and to the side table.

use super::item::{HASH, RANGE, TAG, TAG_COMPOSITE};
use crate::dynamo::table::{
    IndexSpec, KeyKind, KeySpec, On, Projection, READ, Rights, Role, StreamSpec, StreamView, TABLE_ADMIN, TableSpec,
};

fn text_key(name: impl Into<String>) -> KeySpec {
    KeySpec { name: name.into(), kind: KeyKind::S }
}

fn index(name: String, projection: Projection) -> IndexSpec {
    IndexSpec { hash: text_key(&name), name, range: Some(text_key(RANGE)), projection }
}

/// One table, one index for each declared key, one over all tags, and a stream.
pub(super) fn spec<'a>(table: &str, keys: impl IntoIterator<Item = &'a str>) -> TableSpec {
    let mut indexes: Vec<_> = keys.into_iter().map(|key| index(format!("{TAG}{key}"), Projection::KeysOnly)).collect();
    indexes.push(index(TAG_COMPOSITE.into(), Projection::All));
    TableSpec {
        name: table.into(),
        hash: text_key(HASH),
        range: Some(text_key(RANGE)),
        indexes,
        stream: StreamSpec::Needed(StreamView::NewImage),
        ttl: None,
    }
}

/// Fences are updated, everything else is only ever put. The side table is made by its first write.
pub(super) fn rights(table: &str, side: &str) -> Vec<Rights> {
    let on = |role, name: &str, on, actions: &[&[&'static str]]| Rights { role, table: name.into(), on, actions: actions.concat() };
    let writes = ["PutItem", "UpdateItem", "DeleteItem", "CreateTable"];
    vec![
        on(Role::Writer, table, On::Table, &[&READ, &["ConditionCheckItem", "PutItem", "UpdateItem"]]),
        on(Role::Writer, side, On::Table, &[&READ, &writes]),
        on(Role::Reader, table, On::Table, &[&READ, &["Scan"]]),
        on(Role::Reader, side, On::Table, &[&READ]),
        on(Role::Indexer, table, On::Table, &[&READ]),
        on(Role::Indexer, table, On::Stream, &[&["DescribeStream", "GetRecords", "GetShardIterator"]]),
        on(Role::Indexer, side, On::Table, &[&READ, &["PutItem", "CreateTable"]]),
        on(Role::Admin, table, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "PutItem"]]),
        on(Role::Admin, side, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "PutItem", "UpdateItem", "DeleteItem"]]),
    ]
}
