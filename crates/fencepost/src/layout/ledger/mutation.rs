//! Ways to break the protocol on purpose, so that tests can show that they would notice. Only under the feature `testing`.

/// One thing left out of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
    /// An unconditional append leaves no slot on its tags.
    NoSlotOnUnconditional,
    /// A condition that lanes hold is not checked on the writer's own lane.
    OwnLaneUnchecked,
    /// … on the other lanes.
    OtherLanesUnchecked,
    /// A cover that is read but not written is not checked.
    ReadOnlyCoverUnchecked,
    /// Lane slots name no dependencies.
    NoDeps,
    /// … none on lanes that were only checked.
    DepsWithoutCheckedLanes,
    /// Entries already in the model count again.
    CountedAgain,
    /// A cover's slots are judged only by the items it covers.
    JudgedByOwnItems,
    /// A taken slot is stepped over without judging what is in it.
    NoReevaluation,
    /// A taken lane slot is stepped over although lanes hold the condition.
    LaneSteppedOver,
    /// A condition is held by today's version instead of the token's.
    HeldByToday,
    /// A token serves for any query.
    AnyToken,
    /// No look for the own commit before a conflict while a try is in doubt.
    NoLook,
    /// A repeat appends at the end without walking from its base.
    RepeatAtEnd,
    /// `unchanged` says yes without looking.
    Unconfirmed,
    /// Chunks are not sealed by their commit.
    NoSeal,
}
