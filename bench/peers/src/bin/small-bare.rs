//! The smallest program on the bare SDK: one event appended, to tell how long a start takes and what it weighs.

use aws_sdk_dynamodb::types::AttributeValue;
use fencepost_bench_peers::{plain, told};
use fencepost_contest::{Fault, body, first, say};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let (endpoint, table) = told()?;
    let item = [
        ("p", AttributeValue::S(format!("first-{}", std::process::id()))),
        ("v", AttributeValue::N("1".into())),
        ("d", AttributeValue::S(body(0))),
    ];
    let put = plain(&endpoint).put_item().table_name(table).condition_expression("attribute_not_exists(p)");
    put.set_item(Some(item.map(|(name, value)| (name.to_owned(), value)).into())).send().await?;
    say(&first())
}
