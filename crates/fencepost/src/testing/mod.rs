//! The conformance suite and the connectors that inject faults. Unstable: it follows the store.
