//! The ledger's tables, and what each role may do to them. The log is only ever put to, so that a writer needs no right to update or delete.

use crate::dynamo::table::{On, READ, Rights, Role, StreamSpec, StreamView, TABLE_ADMIN, TableSpec};
use crate::side;

/// The log and the side table; the log with a stream where the feed is read from it.
pub(crate) fn specs(table: &str, side: &str, streams_mode: bool) -> Vec<TableSpec> {
    let stream = if streams_mode { StreamSpec::Needed(StreamView::NewImage) } else { StreamSpec::OnRequest };
    // The log has the side table's keys.
    vec![TableSpec { stream, ..side::spec(table) }, side::spec(side)]
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_a_stream_in_streams_mode_alone_and_the_side_table_never() {
        let streams =
            |streams_mode| specs("orders", "orders-side", streams_mode).into_iter().map(|s| (s.name, s.stream)).collect::<Vec<_>>();
        let side = || ("orders-side".to_owned(), StreamSpec::Never);
        assert_eq!(streams(true), [("orders".to_owned(), StreamSpec::Needed(StreamView::NewImage)), side()]);
        assert_eq!(streams(false), [("orders".to_owned(), StreamSpec::OnRequest), side()]);
    }

    #[test]
    fn nobody_but_the_admin_deletes_from_the_log_or_scans_and_nobody_updates_it() {
        let all = rights("orders", "orders-side");
        let may = |role, table: &str, action: &str| all.iter().any(|r| r.role == role && r.table == table && r.actions.contains(&action));
        for role in [Role::Writer, Role::Reader, Role::Indexer, Role::Admin] {
            let admin = role == Role::Admin;
            assert!(may(role, "orders", "Query") && may(role, "orders-side", "GetItem"), "{role:?}");
            assert!(!may(role, "orders", "UpdateItem") && !may(role, "orders", "DeleteTable"), "{role:?}");
            assert_eq!(may(role, "orders", "DeleteItem"), admin, "{role:?}");
            assert_eq!(may(role, "orders", "Scan") || may(role, "orders-side", "Scan"), admin, "{role:?}");
            assert_eq!(may(role, "orders", "CreateTable"), admin, "{role:?}");
            assert_eq!(may(role, "orders", "PutItem"), admin || role == Role::Writer, "{role:?}");
            assert_eq!(may(role, "orders-side", "PutItem"), role != Role::Reader, "{role:?}");
        }
        assert!(may(Role::Writer, "orders", "ConditionCheckItem") && may(Role::Writer, "orders-side", "DeleteItem"));
        assert!(all.iter().all(|r| (r.on == On::Stream) == r.actions.contains(&"GetRecords")));
    }
}
