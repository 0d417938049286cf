//! Bases of layouts that have streams alone: where an append began, sealed; and whether a token or base is of this stream. Pure.

use serde::{Deserialize, Serialize};

use crate::error::{Refused, Result};
use crate::event::StreamName;
use crate::position::Base;

/// Where an append began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    stream: String,
    /// The version behind which it was first tried.
    pub(crate) version: u64,
    /// Whether the caller had given the commit id.
    pub(crate) once: bool,
    /// What else the layout knew of the stream then.
    pub(crate) seen: Vec<u8>,
}

impl Began {
    pub(crate) fn new(stream: &StreamName, version: u64, once: bool, seen: Vec<u8>) -> Self {
        Self { stream: stream.as_str().into(), version, once, seen }
    }
    pub(crate) fn seal(&self, layout: &str) -> Base {
        Base::seal(layout, self)
    }
    pub(crate) fn open(layout: &str, base: &Base, stream: &StreamName) -> Result<Began> {
        let began: Began = base.open(layout)?;
        at_stream("base", &began.stream, stream)?;
        Ok(began)
    }
}

/// Refuses what is of another stream.
pub(crate) fn at_stream(what: &'static str, of: &str, here: &StreamName) -> Result<()> {
    if of == here.as_str() {
        return Ok(());
    }
    Err(Refused::Foreign { what, of: format!("stream {of}"), here: format!("stream {here}") }.into())
}
