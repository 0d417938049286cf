//! Reading: one item, pages of a series, several items at one instant, and a whole table.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{Get, KeysAndAttributes, ReturnConsumedCapacity, Select, TransactGetItem};
use futures::Stream;

use super::item::{self, Item, Value};
use super::{Dynamo, Op, Terms};
use crate::error::{Error, Reason, Result};

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Strong,
    /// Perhaps a moment old, at half the units.
    Eventual,
}

/// The key of an item.
pub(crate) type Key = Item;

/// Items of one hash key, in the order of their range key.
#[derive(Debug, Clone)]
pub(crate) struct Find {
    pub(crate) table: String,
    /// Of the table itself, where none is named.
    pub(crate) index: Option<String>,
    pub(crate) hash: (String, Value),
    pub(crate) range: Option<Range>,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<i32>,
    pub(crate) freshness: Freshness,
}

/// A run of range keys, by the attribute's name.
#[derive(Debug, Clone)]
pub(crate) enum Range {
    /// From the first to the second, both included.
    Between(String, Value, Value),
    /// Behind this one.
    After(String, Value),
    /// Before this one.
    Before(String, Value),
    /// This one and those behind it.
    From(String, Value),
    /// That begin so.
    Begins(String, Value),
}

impl Range {
    /// Numbers from the first to the second, both included.
    pub(crate) fn numbers(name: &str, from: u64, to: u64) -> Self {
        Self::Between(name.into(), item::number(from), item::number(to))
    }

    /// Its condition, the name, and its values.
    fn terms(&self) -> (&'static str, &str, &Value, Option<&Value>) {
        match self {
            Range::Between(name, from, to) => ("#h = :h AND #r BETWEEN :a AND :b", name, from, Some(to)),
            Range::After(name, value) => ("#h = :h AND #r > :a", name, value, None),
            Range::Before(name, value) => ("#h = :h AND #r < :a", name, value, None),
            Range::From(name, value) => ("#h = :h AND #r >= :a", name, value, None),
            Range::Begins(name, value) => ("#h = :h AND begins_with(#r, :a)", name, value, None),
        }
    }
}

impl Find {
    /// All of a hash key, forwards and strongly consistent.
    pub(crate) fn new(table: impl Into<String>, hash: &str, value: Value) -> Self {
        Self {
            table: table.into(),
            index: None,
            hash: (hash.into(), value),
            range: None,
            reverse: false,
            limit: None,
            freshness: Freshness::Strong,
        }
    }
    pub(crate) fn range(mut self, range: Range) -> Self {
        self.range = Some(range);
        self
    }
}

/// What one batch may ask for.
const BATCH_GETS: usize = 100;

fn wanted(keys: Vec<Key>, freshness: Freshness) -> Result<KeysAndAttributes> {
    let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(freshness == Freshness::Strong);
    wanted.build().map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))
}

/// A page of one part of a scan.
#[derive(Debug)]
#[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the rebuild of an index goes on in the middle of a scan"))]
pub(crate) struct PartPage {
    pub(crate) part: u32,
    pub(crate) items: Vec<Item>,
    /// Where the part goes on; none: here it ends.
    pub(crate) after: Option<Key>,
}

impl Dynamo {
    /// One page, and where the next begins.
    pub(crate) async fn page(&self, op: &Op, find: &Find, start: Option<Key>) -> Result<(Vec<Item>, Option<Key>)> {
        let request = self.query(find, start);
        let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
        let page = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
        op.read(&page.consumed_capacity);
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    /// How many there are. Billed as reading them, but nothing of them travels.
    pub(crate) async fn count(&self, op: &Op, find: &Find) -> Result<u64> {
        Ok(self.count_some(op, find, &Terms::default()).await?.0)
    }

    /// How many there are of which a condition holds, and how many in all.
    pub(crate) async fn count_some(&self, op: &Op, find: &Find, filter: &Terms) -> Result<(u64, u64)> {
        let (mut count, mut all, mut start) = (0, 0, None);
        loop {
            let mut request = self.query(find, start).select(Select::Count);
            if !filter.condition.is_empty() {
                request = request.filter_expression(&filter.condition);
            }
            for (placeholder, name) in &filter.names {
                request = request.expression_attribute_names(placeholder, name);
            }
            for (placeholder, value) in &filter.values {
                request = request.expression_attribute_values(placeholder, value.clone());
            }
            let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
            let page = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
            op.read(&page.consumed_capacity);
            count += u64::try_from(page.count).unwrap_or(0);
            all += u64::try_from(page.scanned_count).unwrap_or(0);
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok((count, all));
            }
        }
    }

    fn query(&self, find: &Find, start: Option<Key>) -> QueryFluentBuilder {
        let mut request = self
            .client()
            .query()
            .table_name(&find.table)
            .set_index_name(find.index.clone())
            .expression_attribute_names("#h", &find.hash.0)
            .expression_attribute_values(":h", find.hash.1.clone())
            .scan_index_forward(!find.reverse)
            .consistent_read(find.freshness == Freshness::Strong)
            .set_limit(find.limit)
            .set_exclusive_start_key(start)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        request = match &find.range {
            None => request.key_condition_expression("#h = :h"),
            Some(range) => {
                let (condition, name, first, second) = range.terms();
                let request = request
                    .key_condition_expression(condition)
                    .expression_attribute_names("#r", name)
                    .expression_attribute_values(":a", first.clone());
                match second {
                    Some(second) => request.expression_attribute_values(":b", second.clone()),
                    None => request,
                }
            }
        };
        request
    }

    /// All items, page by page as they are asked for.
    pub(crate) fn items<'a>(&'a self, op: &'a Op, find: Find) -> impl Stream<Item = Result<Item>> + Send + 'a {
        let pages = futures::stream::try_unfold(Some(None), move |next: Option<Option<Key>>| {
            let find = find.clone();
            async move {
                let Some(start) = next else { return Ok::<_, Error>(None) };
                let (items, after) = self.page(op, &find, start).await?;
                Ok(Some((futures::stream::iter(items.into_iter().map(Ok)), after.map(Some))))
            }
        });
        futures::TryStreamExt::try_flatten(pages)
    }

    /// One item.
    pub(crate) async fn get(&self, op: &Op, table: &str, key: Key, freshness: Freshness) -> Result<Option<Item>> {
        let request = self
            .client()
            .get_item()
            .table_name(table)
            .set_key(Some(key))
            .consistent_read(freshness == Freshness::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
        let got = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
        op.read(&got.consumed_capacity);
        Ok(got.item.filter(|item| !item.is_empty()))
    }

    /// Items of one table by key, in no order.
    pub(crate) async fn get_many(&self, op: &Op, table: &str, keys: Vec<Key>, freshness: Freshness) -> Result<Vec<Item>> {
        let (mut items, mut keys) = (Vec::with_capacity(keys.len()), keys.into_iter());
        while keys.len() > 0 {
            let some: Vec<Key> = keys.by_ref().take(BATCH_GETS).collect();
            let wanted = HashMap::from([(table.to_owned(), wanted(some, freshness)?)]);
            self.get_batch(op, wanted, |_, found| items.extend(found)).await?;
        }
        Ok(items)
    }

    /// Items by table and key, in no order.
    pub(crate) async fn get_across(&self, op: &Op, keys: Vec<(String, Key)>, freshness: Freshness) -> Result<Vec<(String, Item)>> {
        let mut items = Vec::with_capacity(keys.len());
        for some in keys.chunks(BATCH_GETS) {
            let mut of_tables: HashMap<String, Vec<Key>> = HashMap::new();
            for (table, key) in some {
                of_tables.entry(table.clone()).or_default().push(key.clone());
            }
            let batch = of_tables.into_iter().map(|(table, keys)| Ok((table, wanted(keys, freshness)?))).collect::<Result<_>>()?;
            let each = |table: String, found: Vec<Item>| items.extend(found.into_iter().map(|item| (table.clone(), item)));
            self.get_batch(op, batch, each).await?;
        }
        Ok(items)
    }

    /// One batch; what the service leaves unprocessed is asked for again.
    async fn get_batch(
        &self,
        op: &Op,
        mut wanted: HashMap<String, KeysAndAttributes>,
        mut each: impl FnMut(String, Vec<Item>),
    ) -> Result<()> {
        for attempt in 0u32.. {
            if wanted.is_empty() {
                break;
            }
            let request = self
                .client()
                .batch_get_item()
                .set_request_items(Some(std::mem::take(&mut wanted)))
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
            let got = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
            op.read(got.consumed_capacity());
            for (table, found) in got.responses.unwrap_or_default() {
                each(table, found);
            }
            wanted = got.unprocessed_keys.unwrap_or_default();
            wanted.retain(|_, left| !left.keys.is_empty());
            if !wanted.is_empty() {
                let pause = self.pause(attempt, Reason::Throttled);
                if op.is_over(pause) {
                    return Err(Error::unavailable(Reason::Throttled, "items stayed unprocessed"));
                }
                self.env().sleep(pause).await;
            }
        }
        Ok(())
    }

    /// Several items at one instant, in the order asked for: none where there is none. At most a hundred.
    pub(crate) async fn get_together(&self, op: &Op, table: &str, keys: Vec<Key>) -> Result<Vec<Option<Item>>> {
        use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError as Failed;
        let gets = keys
            .into_iter()
            .map(|key| Ok(TransactGetItem::builder().get(Get::builder().table_name(table).set_key(Some(key)).build()?).build()))
            .collect::<std::result::Result<Vec<_>, aws_sdk_dynamodb::error::BuildError>>()
            .map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
        let request =
            self.client().transact_get_items().set_transact_items(Some(gets)).return_consumed_capacity(ReturnConsumedCapacity::Total);
        for attempt in 0u32.. {
            let own = |e: &Failed| matches!(e, Failed::TransactionCanceledException(_));
            match self.repeat(op, || request.clone().send(), own).await?.0 {
                Ok(got) => {
                    op.read(got.consumed_capacity());
                    let items = got.responses.unwrap_or_default().into_iter();
                    return Ok(items.map(|response| response.item.filter(|item| !item.is_empty())).collect());
                }
                // It met a writer; nothing was read.
                Err(met) => {
                    let pause = self.pause(attempt, Reason::Unreachable);
                    if op.is_over(pause) || attempt >= 64 {
                        return Err(Error::unavailable(Reason::Throttled, format!("a read of several items kept meeting writers: {met}")));
                    }
                    self.env().sleep(pause).await;
                }
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Every item of a table, a page at a time. Only for work that says that it reads the whole table.
    pub(crate) async fn scan_page(&self, op: &Op, table: &str, start: Option<Key>) -> Result<(Vec<Item>, Option<Key>)> {
        self.scan_segment(op, table, (0, 1), start, None).await
    }

    /// Pages of a whole table, by several requests at once, in no order.
    pub(crate) fn scan_parts<'a>(&'a self, op: &'a Op, table: &'a str, parts: u32) -> impl Stream<Item = Result<Vec<Item>>> + Send + 'a {
        let from = (0..parts).map(|number| (number, None)).collect();
        futures::TryStreamExt::map_ok(self.scan_from(op, table, parts, from, None), |page| page.items)
    }

    /// The same of these parts of so many, each behind a key, perhaps by pages of so many items.
    pub(crate) fn scan_from<'a>(
        &'a self,
        op: &'a Op,
        table: &'a str,
        parts: u32,
        from: Vec<(u32, Option<Key>)>,
        limit: Option<i32>,
    ) -> impl Stream<Item = Result<PartPage>> + Send + 'a {
        let part = move |(part, start): (u32, Option<Key>)| {
            futures::stream::try_unfold(Some(start), move |next: Option<Option<Key>>| async move {
                let Some(start) = next else { return Ok(None) };
                let (items, after) = self.scan_segment(op, table, (part, parts), start, limit).await?;
                Ok(Some((PartPage { part, items, after: after.clone() }, after.map(Some))))
            })
        };
        futures::stream::select_all(from.into_iter().map(|from| Box::pin(part(from))))
    }

    /// A page of one part of so many of a table.
    async fn scan_segment(
        &self,
        op: &Op,
        table: &str,
        of: (u32, u32),
        start: Option<Key>,
        limit: Option<i32>,
    ) -> Result<(Vec<Item>, Option<Key>)> {
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let request = self
            .client()
            .scan()
            .table_name(table)
            .set_segment((of.1 > 1).then(|| number(of.0)))
            .set_total_segments((of.1 > 1).then(|| number(of.1)))
            .set_limit(limit)
            .consistent_read(true)
            .set_exclusive_start_key(start)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let (answer, _) = self.repeat(op, || request.clone().send(), |_| false).await?;
        let page = answer.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
        op.read(&page.consumed_capacity);
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }
}
