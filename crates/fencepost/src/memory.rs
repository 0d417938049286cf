//! The contracts without DynamoDB: the oracle of the tests, and a store for unit tests.

/// A store in this process's memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {}
