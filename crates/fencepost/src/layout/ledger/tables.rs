//! The ledger's tables, and what each role may do to them. The log is only ever put to, so that a writer needs no right to update or delete.

use crate::dynamo::table::{KeyKind, KeySpec, On, Rights, Role, StreamSpec, StreamView, TableSpec};

const HASH: &str = "p";
const RANGE: &str = "v";

/// The log and the side table; the log with a stream where the feed is read from it.
pub(crate) fn specs(table: &str, side: &str, streams_mode: bool) -> Vec<TableSpec> {
    let spec = |name: &str, stream: StreamSpec| TableSpec {
        name: name.into(),
        hash: KeySpec { name: HASH.into(), kind: KeyKind::S },
        range: Some(KeySpec { name: RANGE.into(), kind: KeyKind::N }),
        indexes: Vec::new(),
        stream,
        ttl: None,
    };
    let log = if streams_mode { StreamSpec::Needed(StreamView::NewImage) } else { StreamSpec::OnRequest };
    vec![spec(table, log), spec(side, StreamSpec::Never)]
}

const READ: [&str; 3] = ["GetItem", "BatchGetItem", "Query"];
const TABLE_ADMIN: [&str; 10] = [
    "CreateTable",
    "DescribeTable",
    "UpdateTable",
    "DescribeTimeToLive",
    "UpdateTimeToLive",
    "DescribeContinuousBackups",
    "UpdateContinuousBackups",
    "ListTagsOfResource",
    "TagResource",
    "UntagResource",
];

/// What each role does. Rights on the stream are named in every mode, so that a policy need not change with it.
pub(crate) fn rights(table: &str, side: &str) -> Vec<Rights> {
    let on = |role, name: &str, on, actions: &[&[&'static str]]| Rights { role, table: name.into(), on, actions: actions.concat() };
    vec![
        on(Role::Writer, table, On::Table, &[&READ, &["ConditionCheckItem", "PutItem"]]),
        on(Role::Writer, side, On::Table, &[&READ, &["PutItem", "UpdateItem", "DeleteItem"]]),
        on(Role::Reader, table, On::Table, &[&READ]),
        on(Role::Reader, side, On::Table, &[&READ]),
        on(Role::Indexer, table, On::Table, &[&READ]),
        on(Role::Indexer, table, On::Stream, &[&["DescribeStream", "GetRecords", "GetShardIterator"]]),
        on(Role::Indexer, side, On::Table, &[&READ, &["PutItem"]]),
        // Puts: the namespace at `init`, the seal on a dead set of chunks at `gc`, whose chunks are then deleted.
        on(Role::Admin, table, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "ConditionCheckItem", "PutItem", "DeleteItem"]]),
        on(Role::Admin, side, On::Table, &[&TABLE_ADMIN, &READ, &["Scan", "PutItem", "UpdateItem", "DeleteItem"]]),
    ]
}
