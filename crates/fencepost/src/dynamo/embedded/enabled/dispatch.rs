//! DynamoDB's operations by name: the request read, the engine called, the answer written, errors in DynamoDB's words.

use dynoxide::{DynoxideError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Engine, Tokens};

/// The answer's JSON. What the engine's own HTTP server checks before it reads a request (JSON of the wrong type where a
/// field is typed) is not checked here: the SDK cannot write such a request.
pub(super) async fn answer(engine: &Engine, operation: &str, body: &[u8]) -> Result<String> {
    let Engine { tables, tokens } = engine;
    let db = &tables.database;
    let call = Call { engine, operation, body };
    match operation {
        "CreateTable" => call.run(|q| db.create_table(q)).await,
        "DeleteTable" => call.run(|q| db.delete_table(q)).await,
        "DescribeTable" => call.run(|q| db.describe_table(q)).await,
        "ListTables" => call.run(|q| db.list_tables(q)).await,
        "UpdateTable" => call.run(|q| db.update_table(q)).await,
        "PutItem" => call.run(|q| db.put_item(q)).await,
        "GetItem" => call.run(|q| db.get_item(q)).await,
        "DeleteItem" => call.run(|q| db.delete_item(q)).await,
        "UpdateItem" => call.run(|q| db.update_item(q)).await,
        "Query" => call.run(|q| db.query(q)).await,
        "Scan" => call.run(|q| db.scan(q)).await,
        "SearchVectors" => call.run(|q| db.search_vectors(q)).await,
        "BatchGetItem" => call.run(|q| db.batch_get_item(q)).await,
        "BatchWriteItem" => call.run(|q| db.batch_write_item(q)).await,
        "TransactGetItems" => call.run(|q| db.transact_get_items(q)).await,
        "TransactWriteItems" => {
            let run = |mut q: dynoxide::actions::transact_write_items::TransactWriteItemsRequest| {
                q.client_request_token.take_if(|_| *tokens == Tokens::Dropped);
                db.transact_write_items(q)
            };
            call.run(run).await
        }
        "ExecuteStatement" => call.run(|q| db.execute_statement(q)).await,
        "BatchExecuteStatement" => call.run(|q| db.batch_execute_statement(q)).await,
        "ExecuteTransaction" => {
            let run = |mut q: dynoxide::actions::execute_transaction::ExecuteTransactionRequest| {
                q.client_request_token.take_if(|_| *tokens == Tokens::Dropped);
                db.execute_transaction(q)
            };
            call.run(run).await
        }
        "ListStreams" => call.run(|q| db.list_streams(q)).await,
        "DescribeStream" => call.run(|q| db.describe_stream(q)).await,
        "GetShardIterator" => call.run(|q| db.get_shard_iterator(q)).await,
        "GetRecords" => call.run(|q| db.get_records(q)).await,
        "UpdateTimeToLive" => call.run(|q| db.update_time_to_live(q)).await,
        "DescribeTimeToLive" => call.run(|q| db.describe_time_to_live(q)).await,
        "TagResource" => call.run(|q| db.tag_resource(q)).await,
        "UntagResource" => call.run(|q| db.untag_resource(q)).await,
        "ListTagsOfResource" => call.run(|q| db.list_tags_of_resource(q)).await,
        // With 501 and not DynamoDB's 400: a definite answer about the engine, that no retry policy repeats.
        _ => Err(DynoxideError::UnsupportedCapability(operation.to_owned())),
    }
}

struct Call<'a> {
    engine: &'a Engine,
    operation: &'a str,
    body: &'a [u8],
}

impl Call<'_> {
    async fn run<Q: DeserializeOwned, A: Serialize>(self, operate: impl FnOnce(Q) -> Result<A>) -> Result<String> {
        let request = serde_json::from_slice(self.body).map_err(|e| unreadable(self.operation, &e.to_string()))?;
        let answer = {
            let _turn = self.engine.tables.turn.lock().await;
            operate(request).map_err(|e| enveloped(self.operation, e))?
        };
        serde_json::to_string(&answer).map_err(|e| DynoxideError::InternalServerError(e.to_string()))
    }
}

/// The engine marks what it finds wrong while reading with the kind of error that DynamoDB gives.
fn unreadable(operation: &str, error: &str) -> DynoxideError {
    let message = error.rfind(" at line ").map_or(error, |at| &error[..at]);
    if let Some(whole) = error.strip_prefix("SERIALIZATION_AS_READ:") {
        DynoxideError::SerializationException(whole.into())
    } else if let Some(whole) = error.strip_prefix("VALIDATION_AS_READ:") {
        DynoxideError::ValidationException(whole.into())
    } else if let Some(rest) = message.strip_prefix("SERIALIZATION:") {
        DynoxideError::SerializationException(rest.into())
    } else if let Some(rest) = message.strip_prefix("VALIDATION_REQUEST:") {
        enveloped(operation, DynoxideError::EnvelopedValidation(rest.into()))
    } else if let Some(rest) = message.strip_prefix("VALIDATION:") {
        DynoxideError::ValidationException(rest.into())
    } else if ["missing field", "unknown variant", "invalid type: null", "Supplied AttributeValue", "empty AttributeValue"]
        .iter()
        .any(|mark| message.contains(mark))
    {
        DynoxideError::ValidationException(message.into())
    } else {
        DynoxideError::SerializationException(message.into())
    }
}

/// Three operations put an envelope around what is wrong with the request as such.
fn enveloped(operation: &str, error: DynoxideError) -> DynoxideError {
    match error {
        DynoxideError::EnvelopedValidation(message) if matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem") => {
            DynoxideError::ValidationException(format!("1 validation error detected: {message}"))
        }
        other => other,
    }
}
