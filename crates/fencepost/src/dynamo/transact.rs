//! Writing: one item plainly, several in one transaction, and what a failed condition tells.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    ConditionCheck, Delete, DeleteRequest, Put, PutRequest, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure as OnFailure,
    TransactWriteItem, Update, WriteRequest,
};

use super::item::{self, Item, Value};
use super::{Dynamo, Failure, Key, Op};
use crate::error::{Error, Reason, Result};

/// One write of a transaction, or alone.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// Puts an item where none is.
    PutNew { table: String, item: Item },
    /// Puts an item under a condition of the caller's, with its values.
    PutIf { table: String, item: Item, condition: String, values: Item },
    /// Puts an item, whatever is there.
    Put { table: String, item: Item },
    /// Changes an item under a condition: `SET …`.
    Update { table: String, key: Key, update: String, condition: Terms },
    /// Deletes an item under a condition of the caller's.
    DeleteIf { table: String, key: Key, condition: Terms },
    /// Nothing is written; the condition must hold.
    Check { table: String, key: Key, condition: Terms },
    /// Nothing is written; no item may be there.
    CheckMissing { table: String, key: Key },
}

/// A condition, and what the placeholders of it, and of the update beside it, stand for. `#h` is the tables' hash key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// Empty: none.
    pub(crate) condition: String,
    pub(crate) names: HashMap<String, String>,
    pub(crate) values: Item,
}

impl Terms {
    pub(crate) fn when(condition: impl Into<String>) -> Self {
        Self { condition: condition.into(), ..Self::default() }
    }
    pub(crate) fn name(mut self, placeholder: impl Into<String>, name: impl Into<String>) -> Self {
        self.names.insert(placeholder.into(), name.into());
        self
    }
    pub(crate) fn value(mut self, placeholder: impl Into<String>, value: Value) -> Self {
        self.values.insert(placeholder.into(), value);
        self
    }

    fn condition(&self) -> Option<String> {
        (!self.condition.is_empty()).then(|| self.condition.clone())
    }
    fn names(&self, hash: &str) -> Option<HashMap<String, String>> {
        let mut names = self.names.clone();
        if self.condition.contains("#h") {
            names.insert("#h".into(), hash.into());
        }
        (!names.is_empty()).then_some(names)
    }
    fn values(&self) -> Option<Item> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Written, all of it.
    Done,
    /// Nothing of it was written. `doubt`: an earlier attempt of these same bytes was lost, and may have been.
    Failed { verdicts: Vec<Verdict>, doubt: bool },
}

/// What a failed write says of one of its items.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// Nothing.
    Silent,
    /// The condition failed on this item; it is what is there.
    Found(Box<Item>),
}

const ABSENT: &str = "attribute_not_exists(#h)";

/// Makes writes, the same each time.
pub(crate) type Make<'a> = dyn Fn() -> Vec<Write> + Send + Sync + 'a;

impl Write {
    fn units(&self) -> usize {
        match self {
            Write::PutNew { item, .. } | Write::Put { item, .. } | Write::PutIf { item, .. } => item::write_units(item::size(item)),
            // By what is there, if the failure tells.
            Write::Update { .. } | Write::DeleteIf { .. } | Write::Check { .. } | Write::CheckMissing { .. } => 1,
        }
    }
}

impl Dynamo {
    /// All of it or nothing. `hash` is the name of the tables' hash key. A single put or update is plain, at half the units.
    pub(crate) async fn write(&self, op: &Op, hash: &str, writes: Vec<Write>) -> Result<Outcome, Failure> {
        self.write_under(op, hash, writes, None).await
    }

    /// The same. `again` makes the same writes once more: a single put that has to be repeated is made anew, where the first would have to be
    /// copied for a repeat that seldom comes.
    pub(crate) async fn write_or_make(&self, op: &Op, hash: &str, writes: Vec<Write>, again: &Make<'_>) -> Result<Outcome, Failure> {
        match <[Write; 1]>::try_from(writes) {
            Ok([Write::PutNew { table, item }]) => {
                let again = || match again().pop() {
                    Some(Write::PutNew { item, .. }) => item,
                    // What makes them is pure: it does not come to anything else.
                    _ => Item::new(),
                };
                self.put(op, hash, table, item, &again, ABSENT.into(), Item::new()).await
            }
            Ok([other]) => self.write(op, hash, vec![other]).await,
            Err(writes) => self.write(op, hash, writes).await,
        }
    }

    /// The same under a request token of the caller's, as long as the service takes it for these bytes.
    pub(crate) async fn write_under(&self, op: &Op, hash: &str, writes: Vec<Write>, token: Option<String>) -> Result<Outcome, Failure> {
        let kept = |item: &Item| {
            let item = item.clone();
            move || item.clone()
        };
        match <[Write; 1]>::try_from(writes) {
            Ok([Write::PutNew { table, item }]) => {
                let again = kept(&item);
                self.put(op, hash, table, item, &again, ABSENT.into(), Item::new()).await
            }
            Ok([Write::PutIf { table, item, condition, values }]) => {
                let again = kept(&item);
                self.put(op, hash, table, item, &again, condition, values).await
            }
            Ok([Write::Put { table, item }]) => {
                let again = kept(&item);
                self.put(op, hash, table, item, &again, String::new(), Item::new()).await
            }
            Ok([Write::Update { table, key, update, condition }]) => self.update(op, hash, table, key, update, &condition).await,
            Ok([check]) => self.transact(op, hash, vec![check], token).await,
            Err(writes) => self.transact(op, hash, writes, token).await,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a put is made of, from one place")]
    async fn put(
        &self,
        op: &Op,
        hash: &str,
        table: String,
        item: Item,
        again: &(dyn Fn() -> Item + Send + Sync),
        condition: String,
        values: Item,
    ) -> Result<Outcome, Failure> {
        let units = item::write_units(item::size(&item));
        let mut first = Some(item);
        let send = || {
            let names = condition.contains("#h").then(|| [("#h".to_owned(), hash.to_owned())].into());
            self.client()
                .put_item()
                .table_name(&table)
                .set_item(Some(first.take().unwrap_or_else(again)))
                .set_condition_expression((!condition.is_empty()).then(|| condition.clone()))
                .set_expression_attribute_names(names)
                .set_expression_attribute_values((!values.is_empty()).then(|| values.clone()))
                .return_values_on_condition_check_failure(OnFailure::AllOld)
                .return_consumed_capacity(ReturnConsumedCapacity::Total)
                .send()
        };
        let own = |e: &PutItemError| matches!(e, PutItemError::ConditionalCheckFailedException(_));
        match self.repeat(op, send, own).await? {
            (Ok(done), _) => {
                op.wrote(&done.consumed_capacity);
                Ok(Outcome::Done)
            }
            (Err(PutItemError::ConditionalCheckFailedException(failed)), doubt) => Ok(refused(op, failed.item, units, doubt)),
            (Err(other), doubt) => Err(unexpected(&other, doubt)),
        }
    }

    async fn update(&self, op: &Op, hash: &str, table: String, key: Key, update: String, terms: &Terms) -> Result<Outcome, Failure> {
        let request = self
            .client()
            .update_item()
            .table_name(table)
            .set_key(Some(key))
            .update_expression(update)
            .set_condition_expression(terms.condition())
            .set_expression_attribute_names(terms.names(hash))
            .set_expression_attribute_values(terms.values())
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let own = |e: &UpdateItemError| matches!(e, UpdateItemError::ConditionalCheckFailedException(_));
        match self.repeat(op, || request.clone().send(), own).await? {
            (Ok(done), _) => {
                op.wrote(&done.consumed_capacity);
                Ok(Outcome::Done)
            }
            (Err(UpdateItemError::ConditionalCheckFailedException(failed)), doubt) => Ok(refused(op, failed.item, 1, doubt)),
            (Err(other), doubt) => Err(unexpected(&other, doubt)),
        }
    }

    async fn transact(&self, op: &Op, hash: &str, writes: Vec<Write>, mut token: Option<String>) -> Result<Outcome, Failure> {
        let units: Vec<usize> = writes.iter().map(Write::units).collect();
        let items = writes.into_iter().map(|write| sdk(hash, write)).collect::<Result<Vec<_>>>();
        let items = items.map_err(|error| Failure { error, doubt: false })?;
        let mut request =
            self.client().transact_write_items().set_transact_items(Some(items)).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let mut doubted = false;
        for attempt in 0u32.. {
            // A token for this sending; the same one while its answer is out.
            request = request.client_request_token(token.take().unwrap_or_else(|| self.env().new_id().simple().to_string()));
            let own = |e: &TransactWriteItemsError| {
                matches!(
                    e,
                    TransactWriteItemsError::TransactionCanceledException(_)
                        | TransactWriteItemsError::IdempotentParameterMismatchException(_)
                )
            };
            let answer = self.repeat(op, || request.clone().send(), own).await;
            let (answer, doubt) = answer.map_err(|failure| Failure { doubt: failure.doubt || doubted, ..failure })?;
            doubted |= doubt;
            let (message, reason) = match answer {
                Ok(done) => {
                    op.wrote(done.consumed_capacity());
                    return Ok(Outcome::Done);
                }
                Err(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    let message = cancelled.message.clone().unwrap_or_default();
                    let reasons = cancelled.cancellation_reasons.unwrap_or_default();
                    let codes: Vec<_> = reasons.iter().filter_map(|r| r.code.as_deref()).collect();
                    if codes.contains(&"ConditionalCheckFailed") {
                        let verdict = |reason: aws_sdk_dynamodb::types::CancellationReason| match (reason.code.as_deref(), reason.item) {
                            (Some("ConditionalCheckFailed"), Some(old)) if !old.is_empty() => Verdict::Found(Box::new(old)),
                            _ => Verdict::Silent,
                        };
                        let verdicts: Vec<Verdict> = reasons.into_iter().map(verdict).collect();
                        // Twice for each item, by the larger of what was offered and what is there.
                        let billed = units.iter().zip(&verdicts).map(|(offered, verdict)| match verdict {
                            Verdict::Found(old) => (*offered).max(item::write_units(item::size(old))),
                            Verdict::Silent => *offered,
                        });
                        op.wrote_in_vain((2 * billed.sum::<usize>()) as f64);
                        return Ok(Outcome::Failed { verdicts, doubt: doubted });
                    }
                    if codes.iter().any(|c| matches!(*c, "ThrottlingError" | "ProvisionedThroughputExceeded")) {
                        (message, Reason::Throttled)
                    } else if codes.contains(&"TransactionConflict") {
                        (message, Reason::Unreachable)
                    } else {
                        return Err(Failure { error: Error::unavailable(Reason::Rejected, message), doubt: doubted });
                    }
                }
                // The token was spent on other bytes: these go out under a new one, and the commit id in them settles a repeat.
                Err(TransactWriteItemsError::IdempotentParameterMismatchException(_)) => {
                    ("IdempotentParameterMismatchException".into(), Reason::Unreachable)
                }
                Err(other) => return Err(unexpected(&other, doubted)),
            };
            let pause = self.pause(attempt, reason);
            // Two writers that met go on until the deadline; the pause grows to 2 s.
            if op.is_over(pause) || attempt >= 64 {
                return Err(Failure { error: Error::unavailable(reason, message), doubt: doubted });
            }
            self.env().sleep(pause).await;
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Deletes one item under a condition that only an item there can fulfil; whether it is gone by this call.
    pub(crate) async fn delete_if(&self, op: &Op, table: &str, key: Key, condition: String, values: Item) -> Result<bool, Failure> {
        let request = self
            .client()
            .delete_item()
            .table_name(table)
            .set_key(Some(key))
            .condition_expression(condition)
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let own = |e: &DeleteItemError| matches!(e, DeleteItemError::ConditionalCheckFailedException(_));
        match self.repeat(op, || request.clone().send(), own).await? {
            (Ok(done), _) => {
                op.wrote(&done.consumed_capacity);
                Ok(true)
            }
            (Err(DeleteItemError::ConditionalCheckFailedException(failed)), doubt) => {
                let old = failed.item.unwrap_or_default();
                op.wrote_in_vain(item::write_units(item::size(&old)) as f64);
                // An earlier attempt whose answer was lost may have removed it: gone it is.
                Ok(doubt && old.is_empty())
            }
            (Err(other), doubt) => Err(unexpected(&other, doubt)),
        }
    }

    /// Puts items, whatever is there.
    pub(crate) async fn put_many(&self, op: &Op, table: &str, items: Vec<Item>) -> Result<(), Failure> {
        let put =
            |item: Item| PutRequest::builder().set_item(Some(item)).build().map(|put| WriteRequest::builder().put_request(put).build());
        let puts = items.into_iter().map(put).collect::<Result<_, _>>();
        self.write_many(op, table, puts.map_err(|error| Failure { error: build(error), doubt: false })?).await
    }

    /// Deletes items by key, whatever is there.
    pub(crate) async fn delete_many(&self, op: &Op, table: &str, keys: Vec<Key>) -> Result<()> {
        let delete = |key: Key| {
            let delete = DeleteRequest::builder().set_key(Some(key)).build();
            delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
        };
        Ok(self.write_many(op, table, keys.into_iter().map(delete).collect::<Result<_, _>>().map_err(build)?).await?)
    }

    /// 25 a request, each by itself; what the service leaves unprocessed is sent again.
    async fn write_many(&self, op: &Op, table: &str, writes: Vec<WriteRequest>) -> Result<(), Failure> {
        let mut doubted = false;
        for writes in writes.chunks(25) {
            let mut left = writes.to_vec();
            for attempt in 0u32.. {
                if left.is_empty() {
                    break;
                }
                let request = self.client().batch_write_item().request_items(table, std::mem::take(&mut left));
                let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
                let answer = self.repeat(op, || request.clone().send(), |_| false).await;
                let (answer, doubt) = answer.map_err(|failure| Failure { doubt: failure.doubt || doubted, ..failure })?;
                doubted |= doubt;
                let done = answer.map_err(|other| unexpected(&other, doubted))?;
                op.wrote(done.consumed_capacity());
                left = done.unprocessed_items.and_then(|mut tables| tables.remove(table)).unwrap_or_default();
                let pause = self.pause(attempt, Reason::Throttled);
                if !left.is_empty() {
                    if op.is_over(pause) {
                        let error = Error::unavailable(Reason::Throttled, "items stayed unprocessed");
                        return Err(Failure { error, doubt: doubted });
                    }
                    self.env().sleep(pause).await;
                }
            }
        }
        Ok(())
    }

    /// Deletes one item, whatever is there.
    pub(crate) async fn delete(&self, op: &Op, table: &str, key: Key) -> Result<()> {
        let request =
            self.client().delete_item().table_name(table).set_key(Some(key)).return_consumed_capacity(ReturnConsumedCapacity::Total);
        match self.repeat(op, || request.clone().send(), |_| false).await? {
            (Ok(done), _) => {
                op.wrote(&done.consumed_capacity);
                Ok(())
            }
            (Err(other), doubt) => Err(unexpected(&other, doubt).error),
        }
    }
}

fn build(error: aws_sdk_dynamodb::error::BuildError) -> Error {
    Error::unavailable(Reason::Rejected, error.to_string())
}

fn sdk(hash: &str, write: Write) -> Result<TransactWriteItem> {
    let item = TransactWriteItem::builder();
    Ok(match write {
        Write::PutNew { table, item: new } => {
            let put =
                Put::builder().table_name(table).set_item(Some(new)).condition_expression(ABSENT).expression_attribute_names("#h", hash);
            item.put(put.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
        Write::PutIf { table, item: new, condition, values } => {
            let names = condition.contains("#h").then(|| [("#h".to_owned(), hash.to_owned())].into());
            let put = Put::builder()
                .table_name(table)
                .set_item(Some(new))
                .condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values((!values.is_empty()).then_some(values));
            item.put(put.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
        Write::Put { table, item: new } => item.put(Put::builder().table_name(table).set_item(Some(new)).build().map_err(build)?).build(),
        Write::Update { table, key, update, condition } => {
            let update = Update::builder()
                .table_name(table)
                .set_key(Some(key))
                .update_expression(update)
                .set_condition_expression(condition.condition())
                .set_expression_attribute_names(condition.names(hash))
                .set_expression_attribute_values(condition.values());
            item.update(update.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
        Write::DeleteIf { table, key, condition } => {
            let delete = Delete::builder()
                .table_name(table)
                .set_key(Some(key))
                .set_condition_expression(condition.condition())
                .set_expression_attribute_names(condition.names(hash))
                .set_expression_attribute_values(condition.values());
            item.delete(delete.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
        Write::Check { table, key, condition } => {
            let check = ConditionCheck::builder()
                .table_name(table)
                .set_key(Some(key))
                .set_condition_expression(condition.condition())
                .set_expression_attribute_names(condition.names(hash))
                .set_expression_attribute_values(condition.values());
            item.condition_check(check.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
        Write::CheckMissing { table, key } => {
            let check = ConditionCheck::builder()
                .table_name(table)
                .set_key(Some(key))
                .condition_expression(ABSENT)
                .expression_attribute_names("#h", hash);
            item.condition_check(check.return_values_on_condition_check_failure(OnFailure::AllOld).build().map_err(build)?).build()
        }
    })
}

/// A write of one item whose condition failed: billed by the larger of what was offered and what is there.
fn refused(op: &Op, there: Option<Item>, units: usize, doubt: bool) -> Outcome {
    let old = there.unwrap_or_default();
    op.wrote_in_vain(units.max(item::write_units(item::size(&old))) as f64);
    let verdict = if old.is_empty() { Verdict::Silent } else { Verdict::Found(Box::new(old)) };
    Outcome::Failed { verdicts: vec![verdict], doubt }
}

fn unexpected(error: &(impl ProvideErrorMetadata + std::error::Error), doubt: bool) -> Failure {
    let message = error.message().map_or_else(|| error.to_string(), str::to_owned);
    Failure { error: Error::unavailable(Reason::Rejected, message), doubt }
}
