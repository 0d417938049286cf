//! Looking after the tables: every event on its tags, every row with its event, every head where its tag is; and mending what can be derived.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{self, ALL_KEY, EVENT_ID, HASH, Head, Placed, RANGE, Stamp};
use super::plan::{GRAVE, RECORD, TABLE_HASH, bump};
use super::stage::Record;
use super::{Listed, Sekiban};
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::{Freshness, Op, Outcome};
use crate::error::Result;
use crate::event::{CommitId, Tag};
use crate::layout::{Finding, Verified};

/// Keys looked up at a time.
const AT_ONCE: usize = 500;

impl Sekiban {
    /// Reads both tables once. With `repair`, rows that are missing are put again, from their events, and heads count what is there: nothing is ever deleted.
    pub(crate) async fn verify(&self, progress: &(dyn Fn(u64) + Send + Sync), repair: bool) -> Result<Verified> {
        let op = self.dynamo().long_op();
        if repair {
            self.refuse_replicas(&op, &self.options().events).await?;
            self.refuse_replicas(&op, &self.options().tags).await?;
        }
        let mut report = Verified::default();
        let listed = self.listed(&op).await?;
        if repair {
            self.shorten(&op, &listed).await;
        }
        for commit in listed.into_iter().filter(Listed::is_open).map(|open| open.commit) {
            if repair {
                self.finish(commit).await?;
            }
            let done = if repair { "it was finished" } else { "the next reader of its tags, or a repair, finishes it" };
            report
                .findings
                .push(Finding { item: format!("commit {commit}"), problem: format!("published, and not all in rows yet: {done}") });
        }
        self.verify_events(&op, progress, repair, &mut report).await?;
        self.verify_tags(&op, progress, repair, &mut report).await?;
        report.findings.sort_by(|a, b| (&a.item, &a.problem).cmp(&(&b.item, &b.problem)));
        report.units = op.units();
        Ok(report)
    }

    async fn verify_events(&self, op: &Op, progress: &(dyn Fn(u64) + Send + Sync), repair: bool, report: &mut Verified) -> Result<()> {
        let shards = self.shards_known(op).await?;
        let partitions = std::iter::once(None).chain((0..shards).map(Some)).map(|shard| self.keys().all_events(shard)).collect();
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(op, &self.options().events, start).await?;
            report.items += items.len() as u64;
            let ours = |item: &&Item| self.keys().owns(item) && item.text(RANGE).is_ok_and(|sk| sk.starts_with("EVENT#"));
            for items in items.iter().filter(ours).collect::<Vec<_>>().chunks(AT_ONCE) {
                self.verify_rows_of(op, items, &partitions, repair, report).await?;
            }
            for item in items.iter().filter(|item| self.keys().owns(item) && item.text(RANGE).is_ok_and(|sk| sk == RECORD)) {
                self.verify_record(op, item, report).await?;
            }
            progress(report.items);
            match next {
                Some(key) => start = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// That the events of a large commit whose ids were given are its own.
    async fn verify_record(&self, op: &Op, item: &Item, report: &mut Verified) -> Result<()> {
        let commit = item.text(HASH).ok().and_then(|pk| self.keys().rest(pk).strip_prefix("COMMIT#")?.parse().ok()).map(CommitId);
        let Some(commit) = commit else { return Ok(()) };
        // Nothing was recorded under an id whose pieces were collected.
        if let Ok(Some(_)) = item.maybe_number(GRAVE) {
            return Ok(());
        }
        let record = match Record::of_item(commit, item) {
            Ok(record) => record,
            Err(error) => {
                report.findings.push(Finding { item: item::describe(item), problem: error.to_string() });
                return Ok(());
            }
        };
        let others = self.stored_events(op, record.given_ids()).await?.into_iter().filter(|stored| stored.staged != Some(commit));
        for stored in others {
            let problem = format!("event {} is not its own: somebody else took the id while it was published", stored.event.id);
            report.findings.push(Finding { item: item::describe(item), problem });
        }
        Ok(())
    }

    /// That each of these events is in the index where it is looked for, and has a row on each of its tags.
    async fn verify_rows_of(
        &self,
        op: &Op,
        items: &[&Item],
        partitions: &BTreeSet<String>,
        repair: bool,
        report: &mut Verified,
    ) -> Result<()> {
        let mut wanted = BTreeMap::new();
        for item in items {
            if let Some(partition) = item.text(ALL_KEY).ok().filter(|partition| !partitions.contains(*partition)) {
                let problem = format!("it is in partition {partition} of the index, which is not read: open with shards=");
                report.findings.push(Finding { item: item::describe(item), problem });
            }
            let stored = match item::stored(item) {
                Ok(stored) => stored,
                Err(error) => {
                    report.findings.push(Finding { item: item::describe(item), problem: error.to_string() });
                    continue;
                }
            };
            report.events += 1;
            let (at, id, now) = (stored.at, stored.event.id, stored.event.recorded_at);
            let event = stored.event.into_event();
            let ttl = item.maybe_number(item::TTL).ok().flatten();
            let stamp = Stamp { keys: self.keys(), shards: 1, now, ttl, staged: None };
            // What has expired may lose its rows before itself.
            if ttl.is_some_and(|ttl| i128::from(ttl) <= i128::from(self.dynamo().env().now().as_second())) {
                continue;
            }
            // As the event itself is called: an id in capitals is another key.
            let written = item.text(EVENT_ID).map_or_else(|_| id.to_string(), str::to_owned);
            for tag in event.tags() {
                let mut row = stamp.tag_row(&Placed { id, at, event: &event }, tag);
                row.insert(RANGE.into(), text(item::sort_key(at, &written)));
                row.insert(EVENT_ID.into(), text(written.as_str()));
                wanted.insert((text_of(&row, HASH), text_of(&row, RANGE)), row);
            }
        }
        let keys = wanted.keys().map(|(hash, range)| item::key(hash.clone(), range.clone())).collect();
        for found in self.dynamo().get_many(op, &self.options().tags, keys, Freshness::Strong).await? {
            wanted.remove(&(text_of(&found, HASH), text_of(&found, RANGE)));
        }
        for row in wanted.values() {
            let problem = if repair { "was missing, and was put again" } else { "is missing: its event carries the tag" };
            report.findings.push(Finding { item: item::describe(row), problem: format!("the row {problem}") });
        }
        if repair {
            self.put_rows(op, &self.options().tags, wanted.into_values().collect()).await?;
        }
        Ok(())
    }

    async fn verify_tags(&self, op: &Op, progress: &(dyn Fn(u64) + Send + Sync), repair: bool, report: &mut Verified) -> Result<()> {
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(op, &self.options().tags, start).await?;
            report.items += items.len() as u64;
            let mut rows = Vec::new();
            for item in items.iter().filter(|item| self.keys().owns(item)) {
                let Ok(pk) = item.text(HASH) else { continue };
                if let Some(tag) = self.keys().rest(pk).strip_prefix("HEAD#") {
                    self.verify_head(op, tag, item, repair, report).await?;
                } else if self.keys().rest(pk).starts_with("TAG#") {
                    match item::tag_row(item) {
                        Ok(row) => rows.push((item::describe(item), row)),
                        Err(error) => report.findings.push(Finding { item: item::describe(item), problem: error.to_string() }),
                    }
                }
            }
            for rows in rows.chunks(AT_ONCE) {
                let ids: BTreeSet<&String> = rows.iter().map(|(_, row)| &row.event).collect();
                let found = self.events_by_id(op, ids.into_iter(), Freshness::Strong).await?;
                for (described, row) in rows {
                    let problem = match found.get(&row.event) {
                        None if row.has_expired(self.dynamo().env().now()) => continue,
                        None => "its event is not there: Sekiban's reads of the tag fail",
                        Some(stored) if stored.at != row.at => "its event stands elsewhere",
                        Some(_) => continue,
                    };
                    report.findings.push(Finding { item: described.clone(), problem: problem.into() });
                }
            }
            progress(report.items);
            match next {
                Some(key) => start = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// Rows above a head, or more of them than it counts, are of a writer that bumps no head. A repair moves the head, or sets its count. Fewer of them may
    /// have expired: they are not told from others that are gone.
    async fn verify_head(&self, op: &Op, tag: &str, item: &Item, repair: bool, report: &mut Verified) -> Result<()> {
        let mut finding = |problem: String| report.findings.push(Finding { item: item::describe(item), problem });
        let (head, named) = match (item::head(item), Tag::new(tag)) {
            (Ok(head), Ok(named)) => (head, named),
            (Err(error), _) | (_, Err(error)) => {
                finding(error.to_string());
                return Ok(());
            }
        };
        let above = self.count_rows(op, tag, Some(head.pos), None).await?;
        if above > 0 {
            let done = if repair { "it was moved there" } else { "somebody who bumps no head writes this tag, and nothing fences that" };
            finding(format!("{above} rows stand above it: {done}"));
            if repair {
                self.catch_head_up(op, &named).await?;
            }
        }
        let Some(head) = (if above > 0 && repair { self.head(op, &named, Freshness::Strong).await? } else { Some(head) }) else {
            return Ok(());
        };
        let rows = self.count_rows(op, tag, None, Some(head.pos)).await?;
        if rows > head.cnt {
            let (cnt, to) = (head.cnt, Head { cnt: rows, ..head });
            // Unless somebody has moved it meanwhile: then the next repair does.
            let write = bump(&self.options().tags, self.keys().head(tag), Some(head), to);
            let set = repair && matches!(self.dynamo().write(op, TABLE_HASH, vec![write]).await?, Outcome::Done);
            self.heads().remove(&named);
            let done = if set { ", and its count was set" } else { "" };
            finding(format!("it counts {cnt} events, and there are {rows} rows: some came late, from somebody who bumps no head{done}"));
        }
        Ok(())
    }
}

fn text_of(item: &Item, name: &str) -> String {
    item.text(name).unwrap_or_default().to_owned()
}
