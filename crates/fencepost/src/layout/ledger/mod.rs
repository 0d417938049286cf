//! The ledger: this project's own layout.

pub(crate) mod tables;
