//! The records by which the three tables of v5 know that they belong together: read on opening, written by the first who opens.

use std::time::Duration;

use uuid::Uuid;

use super::item::{AID, CONFIG, SEQ, SKEY};
use super::settings::{Kind, Options};
use crate::dynamo::item::{Attributes, Item, Malformed, number, text, wrong};
use crate::dynamo::{Dynamo, Freshness, Op, Outcome, Write};
use crate::error::{Error, Reason, Result};

const STORE: &str = "store_id";
const LAYOUT_VERSION: &str = "layout_version";
/// The one there is.
const ONE: u64 = 1;
/// In which a transaction lands.
const LANDING: Duration = Duration::from_millis(50);

/// Holds the tables' records against each other, and writes them where there are none; whether they were written now. v3 has none.
pub(super) async fn resolve(dynamo: &Dynamo, op: &Op, options: &Options) -> Result<bool> {
    let Kind::V5 { head, .. } = &options.kind else { return Ok(false) };
    let mut keys: Vec<(String, Item)> = Vec::new();
    for (table, range) in [(&options.journal, Some(SEQ)), (&options.snapshot, Some(SKEY)), (head, None)] {
        let mut key = Item::from([(AID.into(), text(CONFIG))]);
        key.extend(range.map(|range| (range.to_owned(), number(0))));
        keys.push((table.clone(), key));
    }
    if agree(options, &records(dynamo, op, &keys).await?, keys.len())? {
        return Ok(false);
    }
    // Version 4, as the peer's: chance alone.
    let (high, low) = (dynamo.env().below(u64::MAX), dynamo.env().below(u64::MAX));
    let store = uuid::Builder::from_random_bytes(Uuid::from_u64_pair(high, low).into_bytes()).into_uuid().to_string();
    let writes = keys.iter().map(|(table, key)| {
        let mut item = key.clone();
        item.insert(STORE.into(), text(&store));
        item.insert(LAYOUT_VERSION.into(), number(ONE));
        Write::PutNew { table: table.clone(), item }
    });
    let failed = match dynamo.write(op, options.hash_key(), writes.collect()).await {
        Ok(Outcome::Done) => return Ok(true),
        Ok(Outcome::Failed { .. }) => None,
        // Two who open at once may keep each other from it: what is there tells.
        Err(failure) => Some(failure.error),
    };
    match agree(options, &records(dynamo, op, &keys).await?, keys.len())? {
        true => Ok(false),
        false => Err(failed.unwrap_or_else(|| Error::unavailable(Reason::Missing, "the configuration records went away"))),
    }
}

/// The records that are there. A batch is no instant: of a transaction that is landing it may have one or two of three, and is then read again.
async fn records(dynamo: &Dynamo, op: &Op, keys: &[(String, Item)]) -> Result<Vec<(String, Item)>> {
    let found = dynamo.get_across(op, keys.to_vec(), Freshness::Strong).await?;
    if found.is_empty() || found.len() == keys.len() {
        return Ok(found);
    }
    dynamo.env().sleep(LANDING).await;
    dynamo.get_across(op, keys.to_vec(), Freshness::Strong).await
}

/// Whether all are there; none may be there without the others, and they must say the same.
fn agree(options: &Options, found: &[(String, Item)], needed: usize) -> Result<bool> {
    if found.is_empty() {
        return Ok(false);
    }
    let differs = |what: String| Error::unavailable(Reason::Differs, format!("{what}: are these the tables of one store?"));
    if found.len() < needed {
        let tables: Vec<&str> = found.iter().map(|(table, _)| table.as_str()).collect();
        return Err(differs(format!("only {} of {needed} tables have a configuration record ({})", found.len(), tables.join(", "))));
    }
    let mut stores = Vec::new();
    for (table, item) in found {
        let corrupt = |m: Malformed| Error::corrupt(options.layout(), format!("configuration record of {table}: {}", m.0));
        if item.number(LAYOUT_VERSION).map_err(corrupt)? != ONE {
            return Err(corrupt(wrong(LAYOUT_VERSION, "1, the only version that this release knows")));
        }
        stores.push(item.text(STORE).map_err(corrupt)?);
    }
    stores.dedup();
    if stores.len() > 1 {
        return Err(differs("the tables' configuration records name different stores".into()));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::StoreUrl;

    #[test]
    fn records_must_all_be_there_and_say_the_same() {
        let options = Options::v5(&StoreUrl::parse("memory:?layout=event-store-adapter-v5").expect("a URL")).expect("options");
        let record = |store: &str, version: u64| {
            ("t".to_owned(), Item::from([(STORE.into(), text(store)), (LAYOUT_VERSION.into(), number(version))]))
        };
        let judge = |found: &[(String, Item)]| agree(&options, found, 3);
        assert!(matches!(judge(&[]), Ok(false)));
        assert!(matches!(judge(&[record("a", 1), record("a", 1), record("a", 1)]), Ok(true)));
        assert!(matches!(judge(&[record("a", 1), record("a", 1)]), Err(Error::Unavailable(_))));
        assert!(matches!(judge(&[record("a", 1), record("b", 1), record("a", 1)]), Err(Error::Unavailable(_))));
        assert!(matches!(judge(&[record("a", 2), record("a", 2), record("a", 2)]), Err(Error::Corrupt(_))));
    }
}
