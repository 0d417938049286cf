//! The index of `streams` mode: built from DynamoDB Streams, every commit once and after its predecessor on every series it touched.

mod mutation;
mod plan;
mod shards;
#[cfg(test)]
mod simulation;
