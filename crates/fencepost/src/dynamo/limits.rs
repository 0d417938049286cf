//! The limits of DynamoDB that are checked before a call is made.

/// One item, names and values together.
pub(crate) const ITEM_BYTES: usize = 400 * 1024;
/// Items in one transaction.
pub(crate) const TRANSACTION_ITEMS: usize = 100;
/// All items of one transaction together.
pub(crate) const TRANSACTION_BYTES: usize = 4 * 1024 * 1024;
