//! The codec against items as the specification prints them.
