//! The tables of both generations, and what each role may do to them.

use super::item::{ACTIVE, AID, SEQ, SKEY, TTL};
use super::settings::{Kind, Options};
use crate::dynamo::table::{
    IndexSpec, KeyKind, KeySpec, On, Projection, READ, Rights, Role, StreamSpec, StreamView, TABLE_ADMIN, TableSpec,
};

fn key(name: &str, kind: KeyKind) -> KeySpec {
    KeySpec { name: name.into(), kind }
}

/// The side table is not among them: it is made when first needed.
pub(crate) fn specs(options: &Options) -> Vec<TableSpec> {
    let ttl = options.expire.map(|_| TTL.to_owned());
    let table = |name: &str, range: Option<KeySpec>, indexes: Vec<IndexSpec>, stream| TableSpec {
        name: name.into(),
        hash: key(options.hash_key(), KeyKind::S),
        range,
        indexes,
        stream,
        ttl: None,
    };
    let read = StreamSpec::Needed(StreamView::NewImage);
    match &options.kind {
        Kind::V5 { head, history_index } => {
            let history = IndexSpec {
                name: history_index.clone(),
                hash: key(AID, KeyKind::S),
                range: Some(key(ACTIVE, KeyKind::N)),
                projection: Projection::KeysOnly,
            };
            let snapshot = table(&options.snapshot, Some(key(SKEY, KeyKind::N)), vec![history], StreamSpec::Never);
            vec![
                table(&options.journal, Some(key(SEQ, KeyKind::N)), Vec::new(), StreamSpec::Never),
                TableSpec { ttl, ..snapshot },
                table(head, None, Vec::new(), read),
            ]
        }
        Kind::V3(keys) => {
            let by_aid = |name: &str| IndexSpec {
                name: name.into(),
                hash: key(AID, KeyKind::S),
                range: Some(key(SEQ, KeyKind::N)),
                projection: Projection::All,
            };
            let sorted = || Some(key(SKEY, KeyKind::S));
            let snapshot = table(&options.snapshot, sorted(), vec![by_aid(&keys.snapshot_index)], StreamSpec::Never);
            vec![table(&options.journal, sorted(), vec![by_aid(&keys.journal_index)], read), TableSpec { ttl, ..snapshot }]
        }
    }
}

/// What each role does. Events are put and never changed; heads and current snapshots are updated; retention deletes snapshots.
pub(crate) fn rights(options: &Options) -> Vec<Rights> {
    let (journal, snapshot, side) = (options.journal.as_str(), options.snapshot.as_str(), options.side.as_str());
    let head = match &options.kind {
        Kind::V5 { head, .. } => Some(head.as_str()),
        Kind::V3(_) => None,
    };
    let mut all = Vec::new();
    let mut may = |role, table: &str, on, actions: &[&[&'static str]]| {
        all.push(Rights { role, table: table.into(), on, actions: actions.concat() });
    };
    let own: Vec<&str> = [journal, snapshot].into_iter().chain(head).collect();
    for role in [Role::Writer, Role::Reader, Role::Indexer, Role::Admin] {
        for table in &own {
            may(role, table, On::Table, &[&READ]);
        }
        may(role, snapshot, On::Indexes, &[&["Query"]]);
        if head.is_none() {
            may(role, journal, On::Indexes, &[&["Query"]]);
        }
        may(role, side, On::Table, &[&READ]);
    }
    may(Role::Writer, journal, On::Table, &[&["PutItem"]]);
    may(Role::Writer, snapshot, On::Table, &[&["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"]]);
    if let Some(head) = head {
        may(Role::Writer, head, On::Table, &[&["PutItem", "UpdateItem"]]);
    }
    // The side table is made by the first who writes to it.
    may(Role::Writer, side, On::Table, &[&["PutItem", "UpdateItem", "DeleteItem", "CreateTable"]]);
    may(Role::Indexer, side, On::Table, &[&["PutItem", "CreateTable"]]);
    may(Role::Indexer, head.unwrap_or(journal), On::Stream, &[&["DescribeStream", "GetRecords", "GetShardIterator"]]);
    for table in own.into_iter().chain([side]) {
        may(Role::Admin, table, On::Table, &[&TABLE_ADMIN, &["Scan", "PutItem"]]);
    }
    may(Role::Admin, side, On::Table, &[&["UpdateItem", "DeleteItem"]]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::StoreUrl;

    #[test]
    fn events_are_never_changed_or_deleted_by_anybody() {
        for generation in ["v3", "v5"] {
            let url = StoreUrl::parse(&format!("memory:?layout=event-store-adapter-{generation}&table=orders")).expect("a URL");
            let options = if generation == "v3" { Options::v3(&url) } else { Options::v5(&url) }.expect("options");
            let all = rights(&options);
            let may =
                |role, table: &str, action: &str| all.iter().any(|r| r.role == role && r.table == table && r.actions.contains(&action));
            for role in [Role::Writer, Role::Reader, Role::Indexer, Role::Admin] {
                for action in ["UpdateItem", "DeleteItem", "DeleteTable"] {
                    assert!(!may(role, "orders-journal", action), "{role:?} {action}");
                }
                assert_eq!(may(role, "orders-journal", "Scan"), role == Role::Admin, "{role:?}");
                assert!(may(role, "orders-snapshot", "GetItem") && may(role, "orders-side", "GetItem"), "{role:?}");
            }
            assert_eq!(may(Role::Writer, "orders-head", "UpdateItem"), generation == "v5");
            let read = if generation == "v5" { "orders-head" } else { "orders-journal" };
            assert!(may(Role::Indexer, read, "GetRecords"));
        }
    }
}
