//! Ways to break the indexer on purpose, so that tests can show that they would notice.

/// One thing left out of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
    /// After a restart, commits emitted beyond a shard's number are not known.
    NoListOfIds,
    /// Epochs are put before the reading is where the chain's writer had been.
    PutBeforeReached,
    /// A commit is emitted before all of its slots arrived.
    NoBarrier,
    /// An epoch is put whatever is there.
    NoPutIfAbsent,
    /// The first version seen of a series is taken for the next.
    ShardOrderTrusted,
    /// A version that does not come is not looked for.
    NoLook,
    /// A shard's number moves past what waits.
    NumberPastWaiting,
    /// What is old is taken to be in the index, though records were lost.
    LostTakenForIndexed,
    /// What stands before a commit by its place is not waited for.
    PlacesIgnored,
}
