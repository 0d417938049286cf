//! The conformance suite, the random-query oracle, and the connectors that inject faults. Unstable: it follows the store.

pub mod conformance;
pub mod oracle;
